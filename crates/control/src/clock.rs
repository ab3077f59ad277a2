//! The clock that leases and heartbeats are measured by, and the time of day.

use std::time::{SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

/// Time since the machine started, sleep included.
pub(crate) fn boottime_ns() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    let (seconds, rest) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    seconds.unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(rest.unwrap_or(0))
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
