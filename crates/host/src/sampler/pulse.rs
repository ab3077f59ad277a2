//! Whether all of the machine stood still, as one does whose own host gives it so much processor time in each period and no more.
//!
//! A thread sleeps for a short time again and again. Where it goes on late, and did not stand in line for a processor meanwhile as the
//! scheduler counts it (`Documentation/scheduler/sched-stats.rst`), nobody here had one. The kernel does not count such time as stolen: to it,
//! time has jumped. Now and then the thread looks at the drives as well.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::stalls::Stalls;
use crate::{HostError, ThreadClock};

/// How long the thread sleeps. Each time that it wakes it takes some 30 us of a processor that what is measured may want, most of it for timers
/// in a virtual machine.
const BEAT: Duration = Duration::from_millis(10);
/// Less late than this is what timers are.
const LATE_MIN: Duration = Duration::from_millis(2);

/// Counts time in which the machine stood still, until it is dropped.
#[derive(Debug)]
pub(super) struct Pulse {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    stood_still_ns: AtomicU64,
    used_ns: AtomicU64,
    /// For each drive.
    stalled_ns: Vec<AtomicU64>,
    is_stopped: AtomicBool,
}

impl Pulse {
    /// Starts the thread, which watches these drives, too; `None` where the scheduler does not count how long threads stand in line.
    pub(super) fn start(drives: &[String]) -> Result<Option<Pulse>, HostError> {
        if File::open("/proc/thread-self/schedstat").is_err() {
            return Ok(None);
        }
        let stalled_ns = drives.iter().map(|_| AtomicU64::new(0)).collect();
        let shared = Arc::new(Shared { stalled_ns, ..Shared::default() });
        let mut stalls = Stalls::of(drives);
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("pulse".into())
            .spawn(move || theirs.run(&mut stalls))
            .map_err(|source| HostError::Thread { source })?;
        Ok(Some(Pulse { shared, thread: Some(thread) }))
    }

    /// For how long the machine has stood still since the start.
    pub(super) fn stood_still_ns(&self) -> u64 {
        self.shared.stood_still_ns.load(Ordering::Relaxed)
    }

    /// For how long each drive has been stalled since the start.
    pub(super) fn stalled_ns(&self) -> Vec<u64> {
        self.shared.stalled_ns.iter().map(|ns| ns.load(Ordering::Relaxed)).collect()
    }

    /// CPU time of the thread since the start.
    pub(super) fn used_ns(&self) -> u64 {
        self.shared.used_ns.load(Ordering::Relaxed)
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self, stalls: &mut Stalls) {
        let Ok(file) = File::open("/proc/thread-self/schedstat") else { return };
        let mut in_line_ns = in_line_ns(&file);
        while !self.is_stopped.load(Ordering::Relaxed) {
            let began = Instant::now();
            std::thread::sleep(BEAT);
            let late = began.elapsed().saturating_sub(BEAT);
            let before_ns = std::mem::replace(&mut in_line_ns, self::in_line_ns(&file));
            let waited =
                before_ns.zip(in_line_ns).map(|(before_ns, now_ns)| now_ns.saturating_sub(before_ns));
            if let Some(still) = waited.and_then(|waited_ns| stood_still(late, waited_ns)) {
                self.stood_still_ns.fetch_add(still.as_nanos() as u64, Ordering::Relaxed);
            }
            stalls.look(&self.stalled_ns);
            self.used_ns.store(ThreadClock::now_ns(), Ordering::Relaxed);
        }
    }
}

/// What is left of lateness when the time in line is taken off, if that is not what timers are, and half a beat: on average the machine stopped
/// that long before the thread was due.
fn stood_still(late: Duration, waited_ns: u64) -> Option<Duration> {
    let left = late.saturating_sub(Duration::from_nanos(waited_ns));
    (left >= LATE_MIN).then_some(left + BEAT / 2)
}

/// How long the thread that opened the file could have run and did not: the second number.
fn in_line_ns(file: &File) -> Option<u64> {
    let mut text = [0; 80];
    let length = file.read_at(&mut text, 0).ok()?;
    std::str::from_utf8(&text[..length]).ok()?.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn who_is_late_and_did_not_stand_in_line_stood_still() {
        let after = |late_ms, waited_ms| stood_still(Duration::from_millis(late_ms), waited_ms * MS);
        assert_eq!(after(12, 0), Some(Duration::from_millis(17)));
        assert_eq!(after(12, 4), Some(Duration::from_millis(13)));
        assert_eq!(after(12, 11), None, "that is what timers are");
        assert_eq!(after(12, 30), None, "more in line than late");
        assert_eq!((after(1, 0), after(2, 0)), (None, Some(Duration::from_millis(7))));
    }

    #[test]
    fn the_threads_own_count_is_read_and_a_text_without_numbers_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let of = |text: &str| {
            let path = folder.path().join("schedstat");
            std::fs::write(&path, text).unwrap();
            in_line_ns(&File::open(path).unwrap())
        };
        assert_eq!(of("123 456 7\n"), Some(456));
        assert_eq!([of(""), of("123\n"), of("1 x 3\n"), of("1 -2 3\n")], [None; 4]);
    }

    /// All processors of this machine may be wanted by other tests meanwhile; then the thread stands in line.
    #[test]
    fn it_beats_until_it_is_dropped() {
        let Some(pulse) = Pulse::start(&[]).unwrap() else { return };
        let began = Instant::now();
        while pulse.used_ns() == 0 && began.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(pulse.used_ns() > 0, "it has not run for 30 s");
        let (still, passed) = (Duration::from_nanos(pulse.stood_still_ns()), began.elapsed());
        assert!(still <= passed, "{still:?} of {passed:?}");
        let shared = Arc::clone(&pulse.shared);
        drop(pulse);
        assert_eq!(Arc::strong_count(&shared), 1, "the thread has ended");
    }
}
