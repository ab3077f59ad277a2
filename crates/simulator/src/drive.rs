//! A drive in memory that loses, tears and reorders whatever is not yet stable, as a seed says.
//!
//! Invariants:
//! - a write that was reported complete is on the medium and stays there, unless a fault was ordered;
//! - of a write in flight when the power fails, any subset of its 512-byte sectors may reach the medium;
//! - zeros written ahead, and writes in flight when the process dies, are visible but volatile: until the next
//!   sync or durable write of their blocks a power cut may take any of their sectors back.

mod device;
mod faults;

use std::collections::{BTreeMap, VecDeque};

use coquina_base::{AlignedBuf, BLOCK_BYTES, SECTOR_BYTES};
use coquina_engine::{Action, IoError, IoToken};

use faults::EIO;
pub use faults::Faults;

use crate::content::BLOCK_SECTORS;
use crate::random::Random;
use crate::trace::TraceHash;

/// Completion time of an I/O that does not end by itself.
const NEVER_NS: u64 = u64::MAX;

/// A large write.
const LARGE_BYTES: u64 = 64 << 10;

/// Completed writes that are remembered.
const HISTORY_MAX: usize = 4096;

/// What an I/O does.
#[derive(Clone, Debug)]
enum Work {
    Write(AlignedBuf),
    Read(AlignedBuf),
    Prewrite { length_bytes: u64 },
}

#[derive(Clone, Debug)]
struct InFlight {
    shard: u32,
    io: IoToken,
    offset_bytes: u64,
    work: Work,
    done_ns: u64,
    /// Order of submission; unique.
    number: u64,
}

impl InFlight {
    fn length_bytes(&self) -> u64 {
        match &self.work {
            Work::Write(buffer) | Work::Read(buffer) => buffer.len() as u64,
            Work::Prewrite { length_bytes } => *length_bytes,
        }
    }
}

/// An I/O that is over.
#[derive(Debug)]
pub struct Completion {
    /// The shard that asked for it.
    pub shard: u32,
    /// Its name.
    pub io: IoToken,
    /// Its buffer, empty for a prewrite.
    pub buffer: AlignedBuf,
    /// How it went.
    pub result: Result<(), IoError>,
}

/// What a power cut or crash did to the I/O that was under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CutSummary {
    /// Writes in flight that left nothing.
    pub lost: u64,
    /// Writes in flight that reached the medium whole.
    pub applied: u64,
    /// Writes in flight of which a part reached the medium.
    pub torn: u64,
    /// Whether a later write of a shard arrived, at least in part, though an earlier one did not.
    pub reordered: bool,
    /// Volatile blocks of which sectors were taken back.
    pub taken_back: u64,
    /// Writes in flight of at least 64 KiB.
    pub large: u64,
}

/// How long I/O takes, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Latency {
    /// Least time.
    pub least_ns: u64,
    /// Most time of an ordinary I/O.
    pub most_ns: u64,
    /// One in so many I/Os takes 50 times as long.
    pub slow_one_in: u64,
}

impl Default for Latency {
    fn default() -> Self {
        Latency { least_ns: 10_000, most_ns: 200_000, slow_one_in: 40 }
    }
}

#[derive(Clone, Debug)]
struct VolatileBlock {
    /// What the medium still holds.
    old: Box<[u8; BLOCK_BYTES]>,
    /// Sectors that a cut may take back, a bit each.
    mask: u8,
}

/// A drive.
#[derive(Clone, Debug)]
pub struct VirtualDrive {
    bytes: Vec<u8>,
    volatile: BTreeMap<u64, VolatileBlock>,
    in_flight: Vec<InFlight>,
    random: Random,
    latency: Latency,
    faults: Faults,
    /// Device operations until the power fails, if that was ordered.
    cut_after: Option<u64>,
    powered: bool,
    operations: u64,
    next_number: u64,
    /// The last writes that completed: offset and length.
    history: VecDeque<(u64, u64)>,
    trace: TraceHash,
}

impl VirtualDrive {
    /// A drive of zeros.
    pub fn new(size_bytes: u64, latency: Latency, random: Random) -> Self {
        assert_eq!(size_bytes % BLOCK_BYTES as u64, 0, "a drive has whole blocks");
        VirtualDrive {
            bytes: vec![0; size_bytes as usize],
            volatile: BTreeMap::new(),
            in_flight: Vec::new(),
            random,
            latency,
            faults: Faults::default(),
            cut_after: None,
            powered: true,
            operations: 0,
            next_number: 0,
            history: VecDeque::new(),
            trace: TraceHash::default(),
        }
    }

    /// Takes an I/O of a shard. Gives back actions that are not for a drive.
    pub fn submit(&mut self, now_ns: u64, shard: u32, action: Action) -> Option<Action> {
        let (io, offset_bytes, work) = match action {
            Action::Write { io, offset_bytes, buffer } => (io, offset_bytes, Work::Write(buffer)),
            Action::Read { io, offset_bytes, buffer } => (io, offset_bytes, Work::Read(buffer)),
            Action::Prewrite { io, offset_bytes, length_bytes } => {
                (io, offset_bytes, Work::Prewrite { length_bytes })
            }
            other => return Some(other),
        };
        let kind = match &work {
            Work::Write(buffer) => {
                self.trace.add_bytes(buffer);
                1
            }
            Work::Read(_) => 2,
            Work::Prewrite { .. } => 3,
        };
        let number = self.next_number;
        self.next_number += 1;
        let stalled = matches!(work, Work::Write(_)) && self.faults.stalls_write();
        let done_ns = if stalled { NEVER_NS } else { now_ns + self.delay_ns() };
        let io = InFlight { shard, io, offset_bytes, work, done_ns, number };
        self.trace.add(&[kind, u64::from(shard), offset_bytes, io.length_bytes(), done_ns]);
        self.check_range(offset_bytes, io.length_bytes());
        assert!(io.length_bytes() > 0, "an I/O of no length at {offset_bytes}");
        self.in_flight.push(io);
        None
    }

    /// When the next I/O completes.
    pub fn next_completion_ns(&self) -> Option<u64> {
        self.in_flight.iter().map(|io| io.done_ns).filter(|done_ns| *done_ns != NEVER_NS).min()
    }

    /// Whether any I/O is under way, stalled ones included.
    pub fn is_busy(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Whether a write is stalled.
    pub fn is_stalled(&self) -> bool {
        self.in_flight.iter().any(|io| io.done_ns == NEVER_NS)
    }

    /// Completes the I/O that is due first, if it is due.
    pub fn complete_next(&mut self, now_ns: u64) -> Option<Completion> {
        let due = self.in_flight.iter().enumerate().filter(|(_, io)| io.done_ns <= now_ns);
        let (index, _) = due.min_by_key(|(_, io)| (io.done_ns, io.number))?;
        let InFlight { shard, io, offset_bytes, work, number, .. } = self.in_flight.remove(index);
        self.trace.add(&[4, number]);
        let (buffer, result) = match work {
            Work::Write(buffer) => {
                let result = self.write_durably(offset_bytes, &buffer);
                (buffer, result)
            }
            Work::Read(mut buffer) => {
                let result = self.read_now(offset_bytes, &mut buffer);
                self.trace.add_bytes(&buffer);
                (buffer, result)
            }
            Work::Prewrite { length_bytes } => {
                self.make_volatile(offset_bytes, length_bytes);
                self.bytes[offset_bytes as usize..(offset_bytes + length_bytes) as usize].fill(0);
                (AlignedBuf::new(), Ok(()))
            }
        };
        Some(Completion { shard, io, buffer, result })
    }

    /// The power fails: what is in flight is lost, applied or torn, what is volatile may be taken back. The next
    /// start finds the power on.
    pub fn power_cut(&mut self) -> CutSummary {
        let mut summary = CutSummary::default();
        let earlier_lost = self.end_in_flight(&mut summary, false);
        summary.reordered = earlier_lost;
        for (block, volatile) in std::mem::take(&mut self.volatile) {
            let back = volatile.mask & self.sector_choice();
            summary.taken_back += u64::from(back != 0);
            for sector in (0..BLOCK_SECTORS).filter(|sector| back & (1 << sector) != 0) {
                let start = block as usize * BLOCK_BYTES + sector * SECTOR_BYTES;
                let old = &volatile.old[sector * SECTOR_BYTES..][..SECTOR_BYTES];
                self.bytes[start..start + SECTOR_BYTES].copy_from_slice(old);
            }
        }
        self.restore();
        summary
    }

    /// The process dies and the power stays: what is in flight is lost, applied or torn, and what was applied is
    /// volatile until somebody syncs.
    pub fn process_crash(&mut self) -> CutSummary {
        let mut summary = CutSummary::default();
        summary.reordered = self.end_in_flight(&mut summary, true);
        self.restore();
        summary
    }

    /// Orders a power cut at the `operations`-th call of the [`Device`](coquina_engine::Device) interface, counted
    /// from 1. From then on it only fails, until the next start.
    pub fn arm_cut(&mut self, operations: u64) {
        self.cut_after = Some(operations);
    }

    /// Takes back an order for a cut. Gives whether the power has failed.
    pub fn disarm_cut(&mut self) -> bool {
        self.cut_after = None;
        !self.powered
    }

    /// Calls of the [`Device`](coquina_engine::Device) interface since the drive was made.
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// Orders of faults.
    pub fn faults_mut(&mut self) -> &mut Faults {
        &mut self.faults
    }

    /// Faults that came about.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// Lets stalled writes complete after an ordinary delay.
    pub fn release_stalled(&mut self, now_ns: u64) {
        self.faults.stall_no_more();
        for index in 0..self.in_flight.len() {
            if self.in_flight[index].done_ns == NEVER_NS {
                self.in_flight[index].done_ns = now_ns + self.delay_ns();
            }
        }
    }

    /// The bytes on the medium, to look at and to spoil.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    /// The bytes as a reader sees them.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Offset and length in bytes of the last writes that completed, oldest first.
    pub fn history(&self) -> &VecDeque<(u64, u64)> {
        &self.history
    }

    /// Cuts the drive off at a size, as a truncated file.
    pub fn truncate(&mut self, size_bytes: u64) {
        self.bytes.truncate(size_bytes as usize);
    }

    /// Hash of everything that the drive was asked and answered.
    pub fn trace(&self) -> TraceHash {
        self.trace
    }

    fn restore(&mut self) {
        self.cut_after = None;
        self.powered = true;
    }

    fn delay_ns(&mut self) -> u64 {
        let delay = self.random.between(self.latency.least_ns, self.latency.most_ns);
        if self.random.chance(1, self.latency.slow_one_in) { delay * 50 } else { delay }
    }

    fn check_range(&self, offset_bytes: u64, length_bytes: u64) {
        let block = BLOCK_BYTES as u64;
        assert!(
            offset_bytes.is_multiple_of(block) && length_bytes.is_multiple_of(block),
            "I/O at {offset_bytes} of {length_bytes} bytes is not of whole blocks"
        );
        let end = offset_bytes.checked_add(length_bytes);
        assert!(
            end.is_some_and(|end| end <= self.bytes.len() as u64),
            "I/O at {offset_bytes} of {length_bytes} bytes leaves the drive of {} bytes",
            self.bytes.len()
        );
    }

    fn write_durably(&mut self, offset_bytes: u64, buffer: &[u8]) -> Result<(), IoError> {
        if self.faults.fails_write() {
            self.land(offset_bytes, buffer);
            return Err(EIO);
        }
        if self.history.len() == HISTORY_MAX {
            self.history.pop_front();
        }
        self.history.push_back((offset_bytes, buffer.len() as u64));
        if self.faults.loses_write(offset_bytes, buffer) {
            return Ok(());
        }
        for block in blocks_of(offset_bytes, buffer.len() as u64) {
            self.volatile.remove(&block);
        }
        self.bytes[offset_bytes as usize..][..buffer.len()].copy_from_slice(buffer);
        Ok(())
    }

    /// A write fails, and nobody knows what it has left: nothing, some of it, or all.
    fn land(&mut self, offset_bytes: u64, buffer: &[u8]) {
        let Some(mut random) = self.faults.landing() else { return };
        let mut data = AlignedBuf::zeroed(buffer.len() / BLOCK_BYTES);
        data.copy_from_slice(buffer);
        let write = InFlight {
            shard: 0,
            io: IoToken(0),
            offset_bytes,
            work: Work::Write(data),
            done_ns: 0,
            number: self.next_number,
        };
        std::mem::swap(&mut self.random, &mut random);
        let (_, arrived) = self.end_write(&write, true);
        std::mem::swap(&mut self.random, &mut random);
        self.faults.note_landed(arrived);
    }

    /// What a reader gets now; of a write in flight to the same place, some sectors.
    fn read_now(&mut self, offset_bytes: u64, buffer: &mut [u8]) -> Result<(), IoError> {
        self.faults.before_read(offset_bytes, buffer.len() as u64)?;
        buffer.copy_from_slice(&self.bytes[offset_bytes as usize..][..buffer.len()]);
        let end = offset_bytes + buffer.len() as u64;
        for io in &self.in_flight {
            let Work::Write(data) = &io.work else { continue };
            let (from, to) =
                (io.offset_bytes.max(offset_bytes), (io.offset_bytes + data.len() as u64).min(end));
            for sector in (from..to.max(from)).step_by(SECTOR_BYTES) {
                if self.random.chance(1, 2) {
                    let source = &data[(sector - io.offset_bytes) as usize..][..SECTOR_BYTES];
                    buffer[(sector - offset_bytes) as usize..][..SECTOR_BYTES].copy_from_slice(source);
                }
            }
        }
        Ok(())
    }

    fn make_volatile(&mut self, offset_bytes: u64, length_bytes: u64) {
        for block in blocks_of(offset_bytes, length_bytes) {
            let bytes = &self.bytes[block as usize * BLOCK_BYTES..][..BLOCK_BYTES];
            let fresh = || {
                let mut old = Box::new([0; BLOCK_BYTES]);
                old.copy_from_slice(bytes);
                VolatileBlock { old, mask: 0 }
            };
            self.volatile.entry(block).or_insert_with(fresh).mask = 0xff;
        }
    }

    /// Ends all I/O in flight. Gives whether a later write arrived though an earlier one of its shard did not.
    fn end_in_flight(&mut self, summary: &mut CutSummary, volatile: bool) -> bool {
        let mut order: Vec<InFlight> = std::mem::take(&mut self.in_flight);
        let mut reordered = false;
        let mut incomplete_shards = 0u64;
        order.sort_by_key(|io| io.number);
        // Two writes to one place end in either order.
        let swap = self.random.chance(1, 2);
        let count = order.len();
        for index in 0..count {
            let io = &order[if swap { count - 1 - index } else { index }];
            if matches!(io.work, Work::Read(_)) {
                continue;
            }
            let (all, arrived) = self.end_write(io, volatile);
            let large = matches!(io.work, Work::Write(_)) && io.length_bytes() >= LARGE_BYTES;
            summary.large += u64::from(large);
            match arrived {
                0 => summary.lost += 1,
                some if some == all => summary.applied += 1,
                _ => summary.torn += 1,
            }
            let bit = 1u64 << io.shard.min(63);
            if !swap {
                reordered |= arrived > 0 && incomplete_shards & bit != 0;
                incomplete_shards |= if arrived < all { bit } else { 0 };
            }
        }
        reordered
    }

    /// Ends one write in flight. Gives its sectors and how many of them arrived.
    fn end_write(&mut self, io: &InFlight, volatile: bool) -> (u64, u64) {
        let sectors = io.length_bytes() / SECTOR_BYTES as u64;
        let fate = self.random.below(8);
        let boundary = self.random.between(0, sectors);
        if volatile && fate != 0 {
            self.make_volatile(io.offset_bytes, io.length_bytes());
        }
        let mut arrived = 0;
        for sector in 0..sectors {
            let arrives = match fate {
                0 | 1 => false,
                2 | 3 => true,
                4 | 5 => sector < boundary,
                6 => sector >= boundary,
                _ => self.random.chance(1, 2),
            };
            if !arrives {
                continue;
            }
            arrived += 1;
            let start = (sector as usize) * SECTOR_BYTES;
            let target = io.offset_bytes as usize + start;
            let target = &mut self.bytes[target..target + SECTOR_BYTES];
            match &io.work {
                Work::Write(buffer) => target.copy_from_slice(&buffer[start..start + SECTOR_BYTES]),
                _ => target.fill(0),
            }
        }
        self.trace.add(&[5, io.number, arrived]);
        (sectors, arrived)
    }

    fn sector_choice(&mut self) -> u8 {
        match self.random.below(3) {
            0 => 0,
            1 => 0xff,
            _ => self.random.next_u64() as u8,
        }
    }
}

fn blocks_of(offset_bytes: u64, length_bytes: u64) -> std::ops::Range<u64> {
    let block = BLOCK_BYTES as u64;
    offset_bytes / block..(offset_bytes + length_bytes).div_ceil(block)
}

#[cfg(test)]
mod tests;
