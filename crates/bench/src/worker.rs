//! One job: keeps its lane full (closed loop) or starts operations by the clock (open loop), and records.
//!
//! Invariants:
//! - nothing is allocated, logged or locked per operation;
//! - open loop: latency counts from the moment at which the operation was due, not from when a slot was free;
//! - throughput is what completes in the measured time; what completes after it is waited for;
//! - open loop: latency is that of all operations that were due in the measured time, whenever they complete, or a stall at its end
//!   would not be seen; what is never started counts with how long it had waited.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use coquina_base::BLOCK_BYTES;

use crate::config::{IoBenchConfig, Workload};
use crate::error::TargetError;
use crate::ledger::{Findings, LedgerPart};
use crate::payload::{Payload, Versions, stamp};
use crate::random::{Offsets, Random};
use crate::recorder::{Live, LiveCounts, Recorder};
use crate::target::{Completion, Lane, Operation};

/// After this time without any completion a target counts as hung.
pub(crate) const HUNG: Duration = Duration::from_secs(60);
/// Longest wait in one turn, so that a stop is seen.
const WAIT_MAX: Duration = Duration::from_millis(200);
/// A job gives up after this many failed operations.
const ERRORS_MAX: u64 = 1000;
/// Steps in which operations that were never started are counted: at a rate far out of reach there are milliards of them.
const NEVER_STARTED_STEPS: u64 = 10_000;
/// Random positions tried before the next free one is taken, when verifying.
const TRIES: u32 = 16;

/// Ends the load early, for all jobs at the same moment.
pub(crate) struct Stop {
    /// Counted from the start of the load; `u64::MAX` while nobody has stopped it.
    at_ns: AtomicU64,
}

impl Stop {
    pub fn new() -> Self {
        Stop { at_ns: AtomicU64::new(u64::MAX) }
    }

    /// Ends the load so long after its start; the earliest of several counts.
    pub fn end_at(&self, after_start: Duration) {
        self.at_ns.fetch_min(after_start.as_nanos() as u64, Relaxed);
    }

    fn at_ns(&self) -> Option<u64> {
        Some(self.at_ns.load(Relaxed)).filter(|at_ns| *at_ns < u64::MAX)
    }
}

/// What a job does and what it needs for it.
pub(crate) struct Job<'a> {
    pub config: &'a IoBenchConfig,
    pub offsets: Offsets,
    pub random: Random,
    pub versions: Versions,
    pub payload: Arc<Payload>,
    pub ledger: Option<LedgerPart>,
    pub live: &'a Live,
    pub stop: &'a Stop,
    pub start: Instant,
    /// For an open loop: time between operations of this job, and when its first is due.
    pub pace: Option<Pace>,
}

/// When operations of an open loop are due.
#[derive(Clone, Copy)]
pub(crate) struct Pace {
    pub interval_ns: f64,
    pub next_ns: f64,
}

/// What a job leaves.
pub(crate) struct JobResult {
    pub recorder: Recorder,
    pub errors: u64,
    pub first_error: Option<String>,
    pub failure: Option<String>,
    pub rate_unmet: u64,
    pub findings: Findings,
    pub ledger: Option<LedgerPart>,
}

#[derive(Clone, Copy)]
struct Slot {
    operation: Operation,
    offset_bytes: u64,
    start_ns: u64,
}

struct Worker<'a> {
    job: Job<'a>,
    lane: Box<dyn Lane>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    totals: LiveCounts,
    result: JobResult,
    warm_ns: u64,
    /// End of the measured time: earlier than asked for once the load was stopped.
    end_ns: u64,
    /// Open loop: what is due from here on is not started any more. Set when the job stops.
    due_until_ns: Option<u64>,
    /// Open loop: when a slot was free after that.
    free_ns: Option<u64>,
}

/// Runs a job to its end.
pub(crate) fn run(job: Job<'_>, lane: Box<dyn Lane>) -> JobResult {
    let depth = job.config.depth;
    let warm_ns = job.config.warmup.as_nanos() as u64;
    let idle = Slot { operation: Operation::Flush, offset_bytes: 0, start_ns: 0 };
    let mut worker = Worker {
        slots: vec![idle; depth as usize],
        free: (0..depth).rev().collect(),
        totals: LiveCounts::default(),
        result: JobResult {
            recorder: Recorder::new(job.config.runtime),
            errors: 0,
            first_error: None,
            failure: None,
            rate_unmet: 0,
            findings: Findings::default(),
            ledger: None,
        },
        warm_ns,
        end_ns: full_end_ns(job.config),
        due_until_ns: None,
        free_ns: None,
        job,
        lane,
    };
    worker.fill_buffers();
    if let Err(error) = worker.load() {
        worker.result.failure = Some(error.to_string());
    }
    worker.result.ledger = worker.job.ledger.take();
    worker.result
}

/// When the measured time ends if nobody stops the load.
fn full_end_ns(config: &IoBenchConfig) -> u64 {
    (config.warmup.as_nanos() + config.runtime.as_nanos()) as u64
}

impl Worker<'_> {
    fn fill_buffers(&mut self) {
        if self.job.config.workload.writes() {
            for slot in 0..self.job.config.depth {
                let body = self.first_body(slot);
                self.job.payload.fill(self.lane.write_buffer(slot), body);
            }
        }
    }

    fn first_body(&self, slot: u32) -> usize {
        slot as usize * (self.job.config.block_bytes as usize).div_ceil(BLOCK_BYTES)
    }

    fn now_ns(&self) -> u64 {
        self.job.start.elapsed().as_nanos() as u64
    }

    fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn load(&mut self) -> Result<(), TargetError> {
        let mut completions: Vec<Completion> = Vec::with_capacity(self.slots.len());
        let mut now_ns = self.now_ns();
        let mut progress_ns = now_ns;
        loop {
            let is_stopped = self.look_for_stop();
            let stopping = is_stopped || now_ns >= self.end_ns || self.result.errors >= ERRORS_MAX;
            if stopping && self.due_until_ns.is_none() {
                self.begin_to_stop(now_ns);
            }
            if stopping && self.in_flight() == 0 {
                break;
            }
            let wait = if stopping { WAIT_MAX } else { self.start_operations(now_ns) };
            self.lane.turn(wait, &mut completions)?;
            now_ns = self.now_ns();
            self.look_for_stop();
            if !completions.is_empty() || self.in_flight() == 0 {
                progress_ns = now_ns;
            } else if now_ns - progress_ns > HUNG.as_nanos() as u64 {
                return Err(TargetError::Hung { outstanding: self.in_flight(), seconds: HUNG.as_secs() });
            }
            for completion in completions.drain(..) {
                self.complete(completion, now_ns);
            }
            if stopping && !self.free.is_empty() {
                self.free_ns.get_or_insert(now_ns);
            }
            self.job.live.publish(&self.totals);
        }
        if self.result.errors >= ERRORS_MAX {
            self.result.failure = Some(format!("a job gave up after {ERRORS_MAX} failed operations"));
        }
        self.count_never_started(now_ns);
        Ok(())
    }

    /// Whether the load was stopped; then the measured time ends there, and what completes later is waited for and not counted.
    fn look_for_stop(&mut self) -> bool {
        let at_ns = self.job.stop.at_ns();
        self.end_ns = self.end_ns.min(at_ns.unwrap_or(u64::MAX));
        at_ns.is_some()
    }

    /// Open loop: starts what was due before the end while this thread slept, as far as there are slots.
    fn begin_to_stop(&mut self, now_ns: u64) {
        let is_over = now_ns >= full_end_ns(self.job.config);
        if self.job.pace.is_some() && is_over {
            self.start_operations(self.end_ns - 1);
        }
        // Who is stopped with a slot free had kept up.
        let kept_up = !is_over && !self.free.is_empty();
        self.due_until_ns = Some(if kept_up { 0 } else { now_ns.min(self.end_ns) });
        self.free_ns = (!self.free.is_empty()).then_some(now_ns);
    }

    /// Open loop: what was due and never started would have begun when a slot was free at the earliest, and have taken longer than that.
    fn count_never_started(&mut self, now_ns: u64) {
        let (Some(pace), Some(until_ns)) = (self.job.pace, self.due_until_ns) else { return };
        let due_before = |ns: u64| ((ns as f64 - pace.next_ns) / pace.interval_ns).ceil().max(0.0) as u64;
        let all = due_before(until_ns);
        self.result.rate_unmet = all;
        let free_ns = self.free_ns.unwrap_or(now_ns) as f64;
        let reads = |operations: u64| (operations as f64 * self.job.config.workload.read_share()) as u64;
        let mut from = due_before(self.warm_ns);
        let step = (all.saturating_sub(from) / NEVER_STARTED_STEPS).max(1);
        while from < all {
            let to = from.saturating_add(step).min(all);
            // That of the last of them, which waited least.
            let due_ns = pace.next_ns + (to - 1) as f64 * pace.interval_ns;
            let latency_ns = (free_ns - due_ns).max(0.0) as u64;
            let of_reads = (reads(to) - reads(from)).min(to - from);
            self.result.recorder.take_as_long(true, latency_ns, of_reads);
            self.result.recorder.take_as_long(false, latency_ns, to - from - of_reads);
            from = to;
        }
    }

    /// Queues what can start now; says how long to wait for completions.
    fn start_operations(&mut self, now_ns: u64) -> Duration {
        while let Some(slot) = self.free.last().copied() {
            let start_ns = match &self.job.pace {
                None => now_ns,
                Some(pace) if pace.next_ns <= now_ns as f64 => pace.next_ns as u64,
                Some(pace) => return Duration::from_nanos(pace.next_ns as u64 - now_ns).min(WAIT_MAX),
            };
            if !self.start_one(slot, start_ns) {
                break;
            }
            self.free.pop();
            if let Some(pace) = &mut self.job.pace {
                pace.next_ns += pace.interval_ns;
            }
        }
        WAIT_MAX
    }

    fn start_one(&mut self, slot: u32, start_ns: u64) -> bool {
        let length_bytes = self.job.config.block_bytes;
        let operation = self.next_operation();
        let Some(offset_bytes) = self.next_offset() else { return false };
        if operation == Operation::Write {
            let version = self.job.versions.next();
            let body = self.first_body(slot);
            stamp(self.lane.write_buffer(slot), body, offset_bytes, version);
            if let Some(ledger) = &mut self.job.ledger {
                ledger.write_begins(offset_bytes, length_bytes, version);
            }
        } else if let Some(ledger) = &mut self.job.ledger {
            ledger.read_begins(offset_bytes, length_bytes);
        }
        self.slots[slot as usize] = Slot { operation, offset_bytes, start_ns };
        self.lane.submit(slot, operation, offset_bytes, length_bytes);
        true
    }

    fn next_operation(&mut self) -> Operation {
        match self.job.config.workload {
            Workload::RandRead | Workload::Read => Operation::Read,
            Workload::RandWrite | Workload::Write => Operation::Write,
            Workload::Mix { read_percent } if self.job.random.below(100) < u64::from(read_percent) => {
                Operation::Read
            }
            Workload::Mix { .. } => Operation::Write,
        }
    }

    /// The next offset; with a ledger, the next one whose blocks carry no operation, or none if all tried ones do.
    fn next_offset(&mut self) -> Option<u64> {
        let Some(ledger) = &self.job.ledger else { return Some(self.job.offsets.next()) };
        let length_bytes = self.job.config.block_bytes;
        (0..TRIES).map(|_| self.job.offsets.next()).find(|offset| ledger.is_free(*offset, length_bytes))
    }

    fn complete(&mut self, completion: Completion, now_ns: u64) {
        let Slot { operation, offset_bytes, start_ns } = self.slots[completion.slot as usize];
        let length_bytes = self.job.config.block_bytes;
        self.free.push(completion.slot);
        if completion.errno != 0 {
            self.fail(completion.errno, operation, offset_bytes);
        } else {
            let latency_ns = now_ns.saturating_sub(start_ns);
            self.totals.operations += 1;
            self.totals.bytes += u64::from(length_bytes);
            self.totals.latency_ns += latency_ns;
            let is_read = operation == Operation::Read;
            let measured = self.warm_ns..self.end_ns;
            if measured.contains(&now_ns) {
                self.result.recorder.complete(is_read, now_ns - self.warm_ns, latency_ns, length_bytes);
            }
            if measured.contains(if self.job.pace.is_some() { &start_ns } else { &now_ns }) {
                self.result.recorder.take_as_long(is_read, latency_ns, 1);
            }
        }
        self.note(completion, operation, offset_bytes);
    }

    /// Keeps the ledger.
    fn note(&mut self, completion: Completion, operation: Operation, offset_bytes: u64) {
        let length_bytes = self.job.config.block_bytes;
        let Some(ledger) = &mut self.job.ledger else { return };
        match (operation, completion.errno) {
            (Operation::Write, 0) => ledger.write_done(offset_bytes, length_bytes),
            (Operation::Read, errno) => {
                if errno == 0 {
                    let data = &self.lane.read_buffer(completion.slot)[..length_bytes as usize];
                    ledger.check(&self.job.payload, offset_bytes, data, &mut self.result.findings);
                }
                ledger.read_done(offset_bytes, length_bytes);
            }
            (Operation::Write | Operation::Flush, _) => {}
        }
    }

    #[cold]
    fn fail(&mut self, errno: i32, operation: Operation, offset_bytes: u64) {
        self.result.errors += 1;
        self.totals.errors += 1;
        if self.result.first_error.is_none() {
            let what = if operation == Operation::Read { "read" } else { "write" };
            let reason = std::io::Error::from_raw_os_error(errno);
            self.result.first_error = Some(format!("{what} at byte {offset_bytes}: {reason}"));
        }
    }
}
