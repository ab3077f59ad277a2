//! Virtual drives and clusters driven from one seed, checked against a plain model.
//!
//! Invariants:
//! - one seed gives one run, byte for byte: no clock, thread, entropy or I/O in the library;
//! - a violation names the seed, and the same seed finds it again.

pub mod campaign;
pub mod cluster;
pub mod content;
pub mod counters;
pub mod device_faults;
pub mod drive;
pub mod model;
#[cfg(feature = "mutations")]
pub mod mutations;
pub mod plan;
mod proof;
pub mod random;
mod real;
pub mod rot;
pub mod runner;
pub mod spread;
pub mod subject;
#[cfg(test)]
mod toy;
pub mod trace;
pub mod violation;
pub mod workload;
