//! CPU time of the whole machine and of single processes.
//!
//! The kernel's own threads do half of a durable write, so the whole machine is what counts; single processes say
//! where the rest of it goes.

use std::time::Instant;

use crate::error::BenchError;

/// CPU time of the whole machine up to a moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MachineCpu {
    /// Time in which cores were busy, in microseconds. Waiting for I/O and time stolen by a hypervisor are not in it.
    pub busy_us: u64,
    /// When it was read.
    pub at: Instant,
}

impl MachineCpu {
    /// Reads it from `/proc/stat`.
    pub fn now() -> Result<Self, BenchError> {
        let text = std::fs::read_to_string("/proc/stat")
            .map_err(|source| BenchError::Proc { path: "/proc/stat".into(), source })?;
        let at = Instant::now();
        let ticks = busy_ticks(&text).ok_or_else(|| BenchError::Proc {
            path: "/proc/stat".into(),
            source: std::io::ErrorKind::InvalidData.into(),
        })?;
        Ok(MachineCpu { busy_us: ticks * (1_000_000 / ticks_per_s()), at })
    }

    /// Busy time since `earlier`, in microseconds.
    pub fn busy_us_since(&self, earlier: &MachineCpu) -> u64 {
        self.busy_us.saturating_sub(earlier.busy_us)
    }

    /// Seconds since `earlier`.
    pub fn seconds_since(&self, earlier: &MachineCpu) -> f64 {
        self.at.duration_since(earlier.at).as_secs_f64()
    }
}

/// user + nice + system + irq + softirq of the first line.
fn busy_ticks(text: &str) -> Option<u64> {
    let mut fields = text.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace();
    let mut values = [0u64; 7];
    for value in &mut values {
        *value = fields.next()?.parse().ok()?;
    }
    let [user, nice, system, _idle, _iowait, irq, softirq] = values;
    Some(user + nice + system + irq + softirq)
}

fn ticks_per_s() -> u64 {
    // SAFETY: sysconf only reads a constant.
    #[allow(unsafe_code)]
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    u64::try_from(ticks).ok().filter(|ticks| *ticks > 0).unwrap_or(100)
}

/// The CPU time of one process, all its threads together, the kernel's io_uring workers for it included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessClock(libc::clockid_t);

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

/// The short name of a process, or an empty text.
pub(crate) fn process_name(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm"))
        .map(|name| name.trim().to_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_leaves_out_waiting_and_stolen_time() {
        assert_eq!(busy_ticks("cpu  1 2 4 1000 500 8 16 300 0 0\ncpu0 1"), Some(31));
        assert_eq!(busy_ticks("cpu0 1 2 3 4 5 6 7"), None);
        assert_eq!(busy_ticks(""), None);
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
        assert!(MachineCpu::now().unwrap().busy_us > 0);
    }
}
