//! What a Linux host is, and what it does: CPU time, drives, environment, and advice on its settings.
//!
//! Invariants:
//! - busy time is elapsed time less unused time, since the kernel's own counters of busy time miss short work;
//! - what the kernel does not say is left out or empty, never guessed.

mod cpu;
mod cpu_model;
pub mod doctor;
mod drive;
mod environment;
mod error;
mod hangup;
pub mod sampler;

pub use cpu::{MachineCpu, ProcessClock, ThreadClock, monotonic_ns, process_name, resident_bytes};
pub use drive::DriveCounter;
pub use environment::{DriveEnvironment, Environment};
pub use error::{HostError, ProcError};
pub use hangup::{ignore_hangup, is_hangup_ignored};
pub use sampler::{Role, Sampler, SamplerSettings, Utilisation};
