//! Latencies and counts of one job, merged after the run. Recording allocates nothing, but for more seconds once in an hour or less often.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use hdrhistogram::Histogram;

/// Longest latency told apart; longer ones count as this.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

/// Seconds for which there is room from the beginning. Who works until something is done may have a week for it, and end in a second.
const ROOM_S: usize = 3600;

/// A histogram of latencies with three significant digits.
pub(crate) fn latency_histogram() -> Histogram<u64> {
    match Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3) {
        Ok(histogram) => histogram,
        Err(error) => unreachable!("the bounds are constants that fit: {error}"),
    }
}

/// Counts of one second.
#[derive(Clone, Copy, Default)]
pub(crate) struct Second {
    pub operations: u64,
    pub bytes: u64,
    pub latency_ns: u64,
}

/// Figures of one kind of operation.
pub(crate) struct Tally {
    /// Of what completed in the measured time; in an open loop, of what was due in it.
    pub latency_ns: Histogram<u64>,
    /// Completed in the measured time.
    pub operations: u64,
    pub bytes: u64,
}

impl Tally {
    pub fn new() -> Self {
        Tally { latency_ns: latency_histogram(), operations: 0, bytes: 0 }
    }

    pub fn merge(&mut self, other: &Tally) {
        // Equal bounds on both sides: it cannot fail.
        let _ = self.latency_ns.add(&other.latency_ns);
        self.operations += other.operations;
        self.bytes += other.bytes;
    }
}

/// Figures of one job in the measured time.
pub(crate) struct Recorder {
    pub read: Tally,
    pub write: Tally,
    pub seconds: Vec<Second>,
    /// Operations of each half second.
    pub halves: Vec<u64>,
    /// How many seconds there may be.
    seconds_max: usize,
}

impl Recorder {
    pub fn new(runtime: Duration) -> Self {
        let seconds_max = runtime.as_secs_f64().ceil() as usize;
        let mut recorder = Recorder {
            read: Tally::new(),
            write: Tally::new(),
            seconds: Vec::new(),
            halves: Vec::new(),
            seconds_max,
        };
        recorder.make_room(ROOM_S);
        recorder
    }

    /// Has room for so many seconds, as far as there may be so many.
    pub fn make_room(&mut self, seconds: usize) {
        let wanted = seconds.min(self.seconds_max);
        if wanted > self.seconds.len() {
            self.seconds.resize(wanted, Second::default());
            self.halves.resize(wanted * 2, 0);
        }
    }

    fn tally(&mut self, is_read: bool) -> &mut Tally {
        if is_read { &mut self.read } else { &mut self.write }
    }

    /// Latency of so many operations.
    pub fn take_as_long(&mut self, is_read: bool, latency_ns: u64, operations: u64) {
        // None would still count as the largest or the smallest latency.
        if operations > 0 {
            self.tally(is_read).latency_ns.saturating_record_n(latency_ns, operations);
        }
    }

    /// An operation completed; `at_ns` counts from the start of the measured time.
    pub fn complete(&mut self, is_read: bool, at_ns: u64, latency_ns: u64, bytes: u32) {
        let tally = self.tally(is_read);
        tally.operations += 1;
        tally.bytes += u64::from(bytes);
        let at_s = (at_ns / 1_000_000_000) as usize;
        if at_s >= self.seconds.len() {
            self.make_room((self.seconds.len() * 2).max(at_s + 1));
        }
        if let Some(second) = self.seconds.get_mut(at_s) {
            second.operations += 1;
            second.bytes += u64::from(bytes);
            second.latency_ns += latency_ns;
        }
        if let Some(half) = self.halves.get_mut((at_ns / 500_000_000) as usize) {
            *half += 1;
        }
    }

    pub fn merge(&mut self, other: &Recorder) {
        self.read.merge(&other.read);
        self.write.merge(&other.write);
        self.make_room(other.seconds.len());
        for (mine, theirs) in self.seconds.iter_mut().zip(&other.seconds) {
            mine.operations += theirs.operations;
            mine.bytes += theirs.bytes;
            mine.latency_ns += theirs.latency_ns;
        }
        self.halves.iter_mut().zip(&other.halves).for_each(|(mine, theirs)| *mine += theirs);
    }
}

/// Counts that a job publishes for the live display, once per turn. Only the job writes them.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Live {
    operations: AtomicU64,
    bytes: AtomicU64,
    latency_ns: AtomicU64,
    errors: AtomicU64,
}

/// A reading of [`Live`], or what a job adds in one turn.
#[derive(Clone, Copy, Default)]
pub(crate) struct LiveCounts {
    pub operations: u64,
    pub bytes: u64,
    pub latency_ns: u64,
    pub errors: u64,
}

impl Live {
    pub fn publish(&self, totals: &LiveCounts) {
        self.operations.store(totals.operations, Relaxed);
        self.bytes.store(totals.bytes, Relaxed);
        self.latency_ns.store(totals.latency_ns, Relaxed);
        self.errors.store(totals.errors, Relaxed);
    }

    /// The sum over all jobs.
    pub fn sum(jobs: &[Live]) -> LiveCounts {
        jobs.iter().fold(LiveCounts::default(), |sum, job| LiveCounts {
            operations: sum.operations + job.operations.load(Relaxed),
            bytes: sum.bytes + job.bytes.load(Relaxed),
            latency_ns: sum.latency_ns + job.latency_ns.load(Relaxed),
            errors: sum.errors + job.errors.load(Relaxed),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    /// Who works until so many bytes are done had room for a week: 24 MB for each job.
    #[test]
    fn room_for_seconds_is_made_when_they_come() {
        let week = Duration::from_secs(604_800);
        let (mut one, mut other) = (Recorder::new(week), Recorder::new(week));
        assert!(one.seconds.len() <= ROOM_S && one.halves.capacity() <= 2 * ROOM_S);
        one.complete(true, SECOND_NS, 5, 4096);
        other.complete(false, 10_000 * SECOND_NS + SECOND_NS / 2, 7, 4096);
        other.complete(false, 604_800 * SECOND_NS, 7, 4096);
        one.merge(&other);
        let operations = |second: usize| one.seconds[second].operations;
        assert_eq!((operations(1), operations(10_000), one.halves[20_001]), (1, 1, 1));
        assert_eq!(
            one.seconds.iter().map(|second| second.operations).sum::<u64>(),
            2,
            "that of the end has none"
        );
        assert_eq!((one.read.operations, one.write.operations), (1, 2));
        one.make_room(usize::MAX);
        assert_eq!((one.seconds.len(), one.halves.len()), (604_800, 1_209_600));
        let short = Recorder::new(Duration::from_millis(1500));
        assert_eq!((short.seconds.len(), short.halves.len()), (2, 4));
    }
}
