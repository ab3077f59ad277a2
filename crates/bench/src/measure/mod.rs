//! Figures of the machine: CPU time, bytes that went to a drive, and what the machine is.

mod cpu;
mod drive;
mod environment;

pub use environment::{DriveEnvironment, Environment};

pub(crate) use cpu::{MachineCpu, ProcessClock, ThreadClock, process_name};
pub(crate) use drive::DriveCounter;
