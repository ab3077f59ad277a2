//! Going over a whole range once, front to back: to fill it, or to check it against a ledger.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use coquina_base::BLOCK_BYTES;

use crate::config::Range;
use crate::error::{BenchError, TargetError};
use crate::ledger::{Findings, Ledger};
use crate::payload::{Payload, stamp};
use crate::target::{Completion, Lane, LaneOptions, Operation, Target};
use crate::worker::HUNG;

const SWEEP_IO_BYTES: u32 = 512 << 10;
const SWEEP_DEPTH: u32 = 8;

/// What a sweep does with each piece.
enum Task<'a> {
    Fill { payload: &'a Payload, version: u64 },
    Check { payload: &'a Payload, ledger: &'a Ledger, findings: &'a mut Findings },
}

/// Called with bytes done.
pub(crate) type OnBytes<'a> = &'a mut dyn FnMut(u64);

/// Writes the range once, every block with the same version, and makes it durable.
pub(crate) fn fill(
    target: &dyn Target,
    range: Range,
    payload: &Payload,
    version: u64,
    stop: &AtomicBool,
    on_bytes: OnBytes<'_>,
) -> Result<(), BenchError> {
    Sweep::open(target, range, Task::Fill { payload, version })?.run(stop, on_bytes)
}

/// Reads the ledger's range and checks every block with a known version.
pub(crate) fn check(
    target: &dyn Target,
    ledger: &Ledger,
    payload: &Payload,
    stop: &AtomicBool,
    on_bytes: OnBytes<'_>,
) -> Result<Findings, BenchError> {
    let mut findings = Findings::default();
    if let Some(range) = ledger.range() {
        let task = Task::Check { payload, ledger, findings: &mut findings };
        Sweep::open(target, range, task)?.run(stop, on_bytes)?;
    }
    Ok(findings)
}

struct Sweep<'a> {
    lane: Box<dyn Lane>,
    range: Range,
    io_bytes: u32,
    next: u64,
    done_bytes: u64,
    slots: Vec<(u64, u32)>,
    free: Vec<u32>,
    task: Task<'a>,
}

impl<'a> Sweep<'a> {
    fn open(target: &dyn Target, range: Range, task: Task<'a>) -> Result<Self, TargetError> {
        let io_bytes = SWEEP_IO_BYTES.min(target.io_bytes_max()) / BLOCK_BYTES as u32 * BLOCK_BYTES as u32;
        let io_bytes = io_bytes.max(BLOCK_BYTES as u32);
        let fills = matches!(task, Task::Fill { .. });
        let options = LaneOptions {
            depth: SWEEP_DEPTH,
            io_bytes_max: io_bytes,
            reads: !fills,
            writes: fills,
            durable: false,
            busy_poll_ns: 0,
        };
        let mut lane = target.open_lane(&options)?;
        if let Task::Fill { payload, .. } = &task {
            for slot in 0..SWEEP_DEPTH {
                payload.fill(lane.write_buffer(slot), first_body(slot, io_bytes));
            }
        }
        Ok(Sweep {
            lane,
            range,
            io_bytes,
            next: range.offset_bytes,
            done_bytes: 0,
            slots: vec![(0, 0); SWEEP_DEPTH as usize],
            free: (0..SWEEP_DEPTH).collect(),
            task,
        })
    }

    fn run(mut self, stop: &AtomicBool, on_bytes: OnBytes<'_>) -> Result<(), BenchError> {
        let mut completions = Vec::new();
        while self.next < self.range.end_bytes() || self.free.len() < self.slots.len() {
            if stop.load(Relaxed) {
                return Err(BenchError::Stopped);
            }
            self.start_pieces();
            self.wait(&mut completions)?;
            for completion in completions.drain(..) {
                self.finish(completion)?;
            }
            on_bytes(self.done_bytes);
        }
        if matches!(self.task, Task::Fill { .. }) {
            self.lane.submit(0, Operation::Flush, 0, 0);
            self.wait(&mut completions)?;
            let flushed = completions.drain(..).next();
            check_errno(flushed.map_or(0, |completion| completion.errno), "flush", 0)?;
        }
        Ok(())
    }

    fn start_pieces(&mut self) {
        while self.next < self.range.end_bytes() {
            let Some(slot) = self.free.pop() else { return };
            let length = (self.range.end_bytes() - self.next).min(u64::from(self.io_bytes)) as u32;
            let operation = match &self.task {
                Task::Fill { version, .. } => {
                    let buffer = &mut self.lane.write_buffer(slot)[..length as usize];
                    stamp(buffer, first_body(slot, self.io_bytes), self.next, *version);
                    Operation::Write
                }
                Task::Check { .. } => Operation::Read,
            };
            self.slots[slot as usize] = (self.next, length);
            self.lane.submit(slot, operation, self.next, length);
            self.next += u64::from(length);
        }
    }

    /// Waits for at least one completion.
    fn wait(&mut self, completions: &mut Vec<Completion>) -> Result<(), TargetError> {
        let since = Instant::now();
        while completions.is_empty() {
            self.lane.turn(Duration::from_millis(200), completions)?;
            if since.elapsed() > HUNG {
                let outstanding = self.slots.len() - self.free.len();
                return Err(TargetError::Hung { outstanding, seconds: HUNG.as_secs() });
            }
        }
        Ok(())
    }

    fn finish(&mut self, completion: Completion) -> Result<(), TargetError> {
        let (offset_bytes, length) = self.slots[completion.slot as usize];
        let what = if matches!(self.task, Task::Fill { .. }) { "write" } else { "read" };
        check_errno(completion.errno, what, offset_bytes)?;
        if let Task::Check { payload, ledger, findings } = &mut self.task {
            let data = &self.lane.read_buffer(completion.slot)[..length as usize];
            ledger.check(payload, offset_bytes, data, findings);
        }
        self.done_bytes += u64::from(length);
        self.free.push(completion.slot);
        Ok(())
    }
}

fn first_body(slot: u32, io_bytes: u32) -> usize {
    slot as usize * io_bytes as usize / BLOCK_BYTES
}

fn check_errno(errno: i32, what: &'static str, offset_bytes: u64) -> Result<(), TargetError> {
    if errno == 0 {
        return Ok(());
    }
    let reason = std::io::Error::from_raw_os_error(errno);
    Err(TargetError::Refused {
        peer: "the target".to_owned(),
        reason: format!("{what} at byte {offset_bytes}: {reason}"),
    })
}
