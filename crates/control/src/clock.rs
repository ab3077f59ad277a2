//! The clock that leases and heartbeats are measured by.

use rustix::time::{ClockId, clock_gettime};

/// Time since the machine started, sleep included.
pub(crate) fn boottime_ns() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    let (seconds, rest) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    seconds.unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(rest.unwrap_or(0))
}
