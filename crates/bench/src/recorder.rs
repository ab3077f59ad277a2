//! Latencies and counts of one job, merged after the run. Recording allocates nothing.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use hdrhistogram::Histogram;

/// Longest latency told apart; longer ones count as this.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;

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
}

impl Recorder {
    pub fn new(runtime: Duration) -> Self {
        let seconds = vec![Second::default(); runtime.as_secs_f64().ceil() as usize];
        let halves = vec![0; seconds.len() * 2];
        Recorder { read: Tally::new(), write: Tally::new(), seconds, halves }
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
        if let Some(second) = self.seconds.get_mut((at_ns / 1_000_000_000) as usize) {
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
