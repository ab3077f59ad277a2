//! The load generator: one run against one target ([`run_io`]), and the experiments that decided the design
//! ([`design`]).
//!
//! Invariants:
//! - what is written neither compresses nor repeats, so no target can cheat by its zeros or copies;
//! - CPU is that of the whole machine less an idle baseline, since the kernel's threads do half of a durable write;
//! - the same generator drives every target, so that figures can be put side by side;
//! - an interrupted run still gives its report, marked as such.

mod config;
pub mod design;
mod error;
mod ledger;
mod payload;
mod random;
mod recorder;
mod report;
mod run;
mod sweep;
mod table;
pub mod target;
mod watch;
mod worker;

pub use config::{
    DEPTH_MAX, IO_BYTES_MAX, IoBenchConfig, JOBS_MAX, TargetSpec, VERIFY_RANGE_BYTES_MAX, Workload,
};
pub use coquina_host::{DriveEnvironment, Environment};
pub use error::{BenchError, ConfigError, TargetError};
pub use ledger::{Findings, Ledger};
pub use report::{CpuReport, IoReport, OperationReport, ProcessCpu, REPORT_VERSION, SecondSample};
pub use run::{DriveProbe, Hooks, IoOutcome, Phase, Progress, is_local, run_io, verify_ledger};
pub use table::{format_count, format_ns};
pub use target::remove_objects;
