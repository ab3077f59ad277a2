//! The clocks that drivers hand to the pure crates.

/// Nanoseconds since boot, time asleep included: the clock of grants and time-outs between nodes.
pub fn boottime_ns() -> u64 {
    clock_ns(libc::CLOCK_BOOTTIME)
}

/// Nanoseconds on the monotonic clock: the clock of [`Wait::Until`](crate::Wait::Until).
pub fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for writing for the whole call.
    #[allow(unsafe_code)]
    let result = unsafe { libc::clock_gettime(clock, &mut time) };
    assert_eq!(result, 0, "the kernel has clock {clock}");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
