//! The clock that leases and heartbeats are measured by, and the time of day.

use std::time::{SystemTime, UNIX_EPOCH};

/// Time since the machine started, sleep included. It is asked by the C library as everywhere else in a node, so that tests can let all of
/// its clocks drift.
pub(crate) fn boottime_ns() -> u64 {
    coquina_reactor::boottime_ns()
}

/// Time of day in nanoseconds since 1970; 0 before that.
pub(crate) fn unix_ns() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX)
}

/// Time of day in milliseconds since 1970, which numbers that are claimed begin with: see [`claim_layer`]. Clocks that are wrong
/// give a number that is too low, which changes nothing, or one that is far from the end of all numbers.
///
/// [`claim_layer`]: coquina_cluster::operation::claim_layer
pub fn unix_ms() -> u64 {
    unix_ns() / 1_000_000
}
