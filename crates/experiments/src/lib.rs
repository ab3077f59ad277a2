//! Published storage experiments, repeated side by side on several targets.
//!
//! Invariants:
//! - load is made by processes of their own, `fio` or `coquina bench io`, so that their CPU time is told from that of servers;
//! - targets take turns in random order within each case, so that drift of the machine hits all alike;
//! - nothing that holds data is overwritten unless its name was spelled out;
//! - an interrupted run gives its report, marked as such, and leaves nothing running.

pub mod compare;
pub mod definition;
pub mod generator;
pub mod html;
pub mod leftovers;
pub mod limit;
pub mod report;
pub mod run;
pub mod spread;
pub mod statistics;
pub mod table;
pub mod target;
mod view;
