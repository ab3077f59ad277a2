//! CPU time of the whole machine and of single processes.
//!
//! The kernel's own threads do half of a durable write, so the whole machine is what counts; single processes say
//! where the rest of it goes.

use std::time::Instant;

use crate::ProcError;

/// Time in which the machine's cores had nothing to do, up to a moment.
///
/// The kernel measures idle time exactly, but busy time only by looking every few milliseconds at what runs: work that
/// begins right after a tick, as with an open loop, is not seen (measured: 0.11 cores shown where 0.30 were busy). So
/// busy time is what is left of the elapsed time.
#[derive(Clone, Copy, Debug)]
pub struct MachineCpu {
    /// Idle, waiting for I/O, and taken by the hypervisor, all cores together.
    unused_us: u64,
    cores: u32,
    /// When it was read.
    pub at: Instant,
}

impl MachineCpu {
    /// Reads it from `/proc/stat`.
    pub fn now() -> Result<Self, ProcError> {
        let text = std::fs::read_to_string("/proc/stat")
            .map_err(|source| ProcError { path: "/proc/stat".into(), source })?;
        let at = Instant::now();
        let (ticks, cores) = unused_ticks(&text).ok_or_else(|| ProcError {
            path: "/proc/stat".into(),
            source: std::io::ErrorKind::InvalidData.into(),
        })?;
        Ok(MachineCpu { unused_us: ticks * (1_000_000 / ticks_per_s()), cores, at })
    }

    /// Time in which cores were busy since `earlier`, in microseconds. Exact to 10 ms.
    pub fn busy_us_since(&self, earlier: &MachineCpu) -> u64 {
        let elapsed_us = self.at.duration_since(earlier.at).as_micros() as u64;
        let unused_us = self.unused_us.saturating_sub(earlier.unused_us);
        (elapsed_us * u64::from(self.cores)).saturating_sub(unused_us)
    }

    /// Seconds since `earlier`.
    pub fn seconds_since(&self, earlier: &MachineCpu) -> f64 {
        self.at.duration_since(earlier.at).as_secs_f64()
    }
}

/// idle + iowait + steal of the first line, and how many cores there are.
fn unused_ticks(text: &str) -> Option<(u64, u32)> {
    let mut lines = text.lines();
    let mut fields = lines.next()?.strip_prefix("cpu ")?.split_ascii_whitespace();
    let mut values = [0u64; 8];
    for value in &mut values {
        *value = fields.next()?.parse().ok()?;
    }
    let [_user, _nice, _system, idle, iowait, _irq, _softirq, steal] = values;
    Some((idle + iowait + steal, lines.filter(|line| line.starts_with("cpu")).count() as u32))
}

pub(crate) fn ticks_per_s() -> u64 {
    // SAFETY: sysconf only reads a constant.
    #[allow(unsafe_code)]
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    u64::try_from(ticks).ok().filter(|ticks| *ticks > 0).unwrap_or(100)
}

/// The CPU time of one process, all its threads together, the kernel's io_uring workers for it included.
#[derive(Clone, Copy, Debug)]
pub struct ProcessClock(libc::clockid_t);

impl ProcessClock {
    /// The clock of a process, or `None` where there is no such process.
    pub fn of(pid: u32) -> Option<Self> {
        let mut clock = 0;
        // SAFETY: `clock` is a valid place for the answer.
        #[allow(unsafe_code)]
        let failed = unsafe { libc::clock_getcpuclockid(libc::pid_t::try_from(pid).ok()?, &mut clock) };
        (failed == 0).then_some(ProcessClock(clock))
    }

    /// CPU time so far in nanoseconds, or `None` once the process has ended.
    pub fn now_ns(self) -> Option<u64> {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is a valid place for the answer.
        #[allow(unsafe_code)]
        let failed = unsafe { libc::clock_gettime(self.0, &mut time) };
        (failed == 0).then_some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }
}

/// The CPU time of the calling thread.
pub struct ThreadClock;

impl ThreadClock {
    /// CPU time so far in nanoseconds.
    pub fn now_ns() -> u64 {
        ProcessClock(libc::CLOCK_THREAD_CPUTIME_ID).now_ns().unwrap_or(0)
    }
}

/// The host's clock that nobody sets (CLOCK_MONOTONIC), the same for all its processes.
pub fn monotonic_ns() -> u64 {
    ProcessClock(libc::CLOCK_MONOTONIC).now_ns().unwrap_or(0)
}

/// The short name of a process, or an empty text.
pub fn process_name(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm"))
        .map(|name| name.trim().to_owned())
        .unwrap_or_default()
}

/// Bytes of a process that are in memory, or `None` where that cannot be seen.
pub fn resident_bytes(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"))?;
    kib.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_a_process_is_seen() {
        let before = resident_bytes(std::process::id()).unwrap();
        let held = vec![1u8; 64 << 20];
        let after = resident_bytes(std::process::id()).unwrap();
        assert!(after >= before + (48 << 20) && held.len() == 64 << 20, "{before} {after}");
        assert_eq!(resident_bytes(u32::MAX), None);
    }

    #[test]
    fn unused_is_idle_waiting_and_stolen_time() {
        let text = "cpu  1 2 4 1000 500 8 16 300 0 0\ncpu0 1\ncpu1 2\nintr 5";
        assert_eq!(unused_ticks(text), Some((1800, 2)));
        assert_eq!(unused_ticks("cpu0 1 2 3 4 5 6 7"), None);
        assert_eq!(unused_ticks(""), None);
    }

    #[test]
    fn busy_time_is_what_is_left_of_the_elapsed_time() {
        let first = MachineCpu { unused_us: 5_000_000, cores: 4, at: Instant::now() };
        let at = first.at + std::time::Duration::from_secs(1);
        let second = MachineCpu { unused_us: 6_000_000, cores: 4, at };
        assert_eq!(second.busy_us_since(&first), 3_000_000);
        let all_idle = MachineCpu { unused_us: 9_010_000, ..second };
        assert_eq!(all_idle.busy_us_since(&first), 0);
    }

    #[test]
    fn own_clock_runs_and_that_of_nobody_is_none() {
        let clock = ProcessClock::of(std::process::id()).unwrap();
        let before = clock.now_ns().unwrap();
        let mut sum = 0u64;
        while clock.now_ns().unwrap() == before {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(ProcessClock::of(u32::MAX).is_none());
        assert!(MachineCpu::now().unwrap().cores > 0);
    }
}
