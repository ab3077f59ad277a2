//! The clocks and the randomness that drivers hand to the pure crates.

use crate::error::Errno;

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

/// 64 random bits from the kernel, for identities and sessions.
pub fn random_u64() -> u64 {
    let mut bytes = [0u8; 8];
    loop {
        // SAFETY: `bytes` is writable for its length during the call.
        #[allow(unsafe_code)]
        let result = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        if result == bytes.len() as isize {
            return u64::from_ne_bytes(bytes);
        }
        assert!(result < 0 && Errno::last().0 == libc::EINTR, "the kernel gives random bytes");
    }
}
