//! Power cuts late in a checkpoint of a full drive: the frames that were in vain must not cost the room for the next one.

use std::collections::BTreeMap;

use coquina_base::{CHUNK_BLOCKS, LayerId};

use super::*;
use crate::api::{
    Failure, FormatOptions, Identity, Operation, Origin, Outcome, Request, RequestToken, ShardConfig,
};
use crate::check::{check_drive, format_drive};
use crate::geometry::{DRIVE_HEAD_BYTES, SHARD_HEAD_BYTES};
use crate::memory_drive::Memory;

mod cleaning_ahead;
mod large_tables;

const DRIVE_BYTES: usize = 64 << 20;
const SEGMENT_BYTES: u64 = 64 << 10;
/// Blocks of the volume: eight times what the drive holds, so that there are many regions.
const VOLUME_BLOCKS: u64 = 96 << 10;
/// Turns after which what has not come will not come.
const STEPS_MAX: u32 = 200_000;

/// Small, fast and repeatable.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// A drive, a shard on it, and what it must hold.
struct Bench {
    memory: Memory,
    shard: Shard,
    now_ns: u64,
    dice: Dice,
    token: u64,
    /// Requests that are not answered yet: their blocks.
    waiting: BTreeMap<u64, u32>,
    /// The last write of each block that was acknowledged.
    known: BTreeMap<u32, u64>,
    /// Blocks that hold something.
    blocks: Vec<u32>,
    was_refused: bool,
    /// The power goes before a superblock is written.
    is_power_short: bool,
    is_cut: bool,
    /// Who asks from now on.
    origin: Origin,
    /// What the shard has asked for so far.
    actions: u64,
}

fn open(memory: &mut Memory) -> Shard {
    let config = ShardConfig { cache_bytes: 0, ..ShardConfig::default() };
    Shard::open(memory, 0, 1, config).unwrap()
}

impl Bench {
    /// An empty drive.
    fn new(drive_bytes: usize, segment_bytes: u64) -> Bench {
        let mut memory = Memory(vec![0; drive_bytes]);
        let options = FormatOptions {
            identity: Identity::default(),
            shards: 1,
            segment_bytes,
            prewrite: false,
            created_unix_ns: 1,
        };
        format_drive(&mut memory, &options).unwrap();
        let shard = open(&mut memory);
        Bench {
            memory,
            shard,
            now_ns: 1,
            dice: Dice(7),
            token: 0,
            waiting: BTreeMap::new(),
            known: BTreeMap::new(),
            blocks: Vec::new(),
            was_refused: false,
            is_power_short: false,
            is_cut: false,
            origin: Origin::default(),
            actions: 0,
        }
    }

    /// A drive that was filled at random and overwritten until all of its index has changed.
    fn full() -> Bench {
        let mut bench = Bench::new(DRIVE_BYTES, SEGMENT_BYTES);
        while !bench.was_refused {
            if bench.waiting.len() < 16 {
                let block = bench.dice.below(VOLUME_BLOCKS) as u32;
                bench.write(block);
            }
            bench.step();
        }
        bench.finish_all();
        bench.blocks = bench.known.keys().copied().collect();
        bench.overwrite(bench.blocks.len());
        bench
    }

    fn request(&mut self, block: u32, operation: Operation<'_>) {
        self.token += 1;
        self.waiting.insert(self.token, block);
        self.shard.submit(Request {
            token: RequestToken(self.token),
            layer: LayerId(1),
            chunk: block / CHUNK_BLOCKS,
            offset_bytes: block % CHUNK_BLOCKS * BLOCK_BYTES as u32,
            length_bytes: BLOCK_BYTES as u32,
            origin: self.origin,
            operation,
        });
    }

    /// A block says which it is, and by which request it was written.
    fn write(&mut self, block: u32) {
        let mut payload = [0; BLOCK_BYTES];
        payload[..8].copy_from_slice(&u64::from(block).to_le_bytes());
        payload[8..16].copy_from_slice(&(self.token + 1).to_le_bytes());
        self.request(block, Operation::Write { payload: &payload, checksums_le: &[] });
    }

    fn write_any(&mut self) {
        let at = self.dice.below(self.blocks.len() as u64) as usize;
        self.write(self.blocks[at]);
    }

    fn answered(&mut self, token: u64, outcome: &Outcome) {
        let Some(block) = self.waiting.remove(&token) else { panic!("request {token} is answered twice") };
        match outcome {
            Outcome::Changed => {
                let known = self.known.entry(block).or_default();
                *known = token.max(*known);
            }
            Outcome::Read(data) => {
                let bytes = data.to_bytes();
                let long = |at: usize| {
                    let mut long = [0; 8];
                    long.copy_from_slice(&bytes[at..at + 8]);
                    u64::from_le_bytes(long)
                };
                assert_eq!(long(0), u64::from(block));
                assert!(long(8) >= self.known[&block], "block {block} has gone back");
            }
            Outcome::Failed(Failure::NoSpace) => self.was_refused = true,
            other => panic!("request {token}: {other:?}, {:?}", self.shard),
        }
    }

    /// A turn, and all that the shard asks for.
    fn step(&mut self) {
        self.now_ns += 100_000;
        self.shard.turn(self.now_ns);
        while let Some(action) = self.shard.next_action() {
            self.actions += 1;
            match action {
                Action::Write { offset_bytes, .. }
                    if self.is_power_short && offset_bytes < DRIVE_HEAD_BYTES + SHARD_HEAD_BYTES =>
                {
                    self.is_cut = true;
                }
                Action::Write { io, offset_bytes, buffer } => {
                    let result = self.memory.write(offset_bytes, &buffer);
                    self.shard.io_done(io, buffer, result);
                }
                Action::Read { io, offset_bytes, mut buffer } => {
                    let result = self.memory.read(offset_bytes, &mut buffer);
                    self.shard.io_done(io, buffer, result);
                }
                Action::Prewrite { io, .. } => self.shard.io_done(io, AlignedBuf::new(), Ok(())),
                Action::Done { token, outcome } => self.answered(token.0, &outcome),
                _ => {}
            }
        }
    }

    fn until(&mut self, what: &str, is_reached: impl Fn(&Bench) -> bool) {
        for _ in 0..STEPS_MAX {
            if is_reached(self) {
                return;
            }
            self.step();
        }
        panic!("{what}: {:?}", self.shard);
    }

    fn finish_all(&mut self) {
        self.until("requests are not answered", |bench| bench.waiting.is_empty());
    }

    fn overwrite(&mut self, count: usize) {
        for _ in 0..count {
            self.write_any();
            self.until("a write is not answered", |bench| bench.waiting.len() < 16);
        }
        self.finish_all();
    }

    /// Begins a checkpoint and lets the power go just before its superblock is written; users write meanwhile, and behind
    /// its root.
    fn cut_checkpoint(&mut self, are_users_active: bool) {
        (self.is_power_short, self.is_cut) = (true, false);
        self.shard.start_checkpoint();
        for _ in 0..STEPS_MAX {
            if self.is_cut {
                break;
            }
            if are_users_active && self.waiting.len() < 4 {
                self.write_any();
            }
            self.step();
        }
        assert!(self.is_cut, "the checkpoint does not end: {:?}", self.shard);
        if are_users_active {
            self.write_any();
            (0..20).for_each(|_| self.step());
        }
        self.is_power_short = false;
        self.reopen();
    }

    fn reopen(&mut self) {
        self.shard = open(&mut self.memory);
        self.waiting.clear();
        self.shard.verify().unwrap();
    }

    fn check(&mut self) {
        for at in 0..self.blocks.len() {
            self.request(self.blocks[at], Operation::Read);
            self.until("a read is not answered", |bench| bench.waiting.len() < 16);
        }
        self.finish_all();
        self.shard.verify().unwrap();
        self.shard.close();
        self.until("the stop does not end", |bench| bench.shard.is_closed());
        let report = check_drive(&mut self.memory, &mut |_, _| {});
        assert!(report.is_clean(), "{report:?}");
    }
}

/// Pages of a thin volume lie scattered, and checkpoints write some again only to empty the segments of others: for that no room
/// is kept, and it must not take what is.
#[test]
fn a_full_drive_with_a_thin_volume_goes_on_taking_writes() {
    let mut bench = Bench::full();
    bench.overwrite(2 * bench.blocks.len());
    bench.check();
}

/// Frames of users keep those of the checkpoint in the log: their segments stay taken, and what they hold must not be in vain.
#[test]
fn a_full_drive_takes_writes_after_power_cuts_late_in_its_checkpoints() {
    let mut bench = Bench::full();
    let (mut was_taken_up, mut pages_max) = (false, 0);
    for _ in 0..10 {
        bench.cut_checkpoint(true);
        // Where all pages were written in vain, all are to be written again.
        pages_max = pages_max.max(bench.shard.dirty.len());
        was_taken_up |= bench.shard.dirty.len() < pages_max / 2;
        bench.write_any();
        bench.finish_all();
    }
    assert!(was_taken_up, "all pages were written in vain, each time");
    bench.overwrite(bench.blocks.len());
    bench.check();
}

/// Nothing follows the checkpoint's frames: all is as before.
#[test]
fn a_checkpoint_that_was_not_completed_takes_no_segments() {
    let mut bench = Bench::full();
    // The cleaner comes to rest.
    (0..5000).for_each(|_| bench.step());
    bench.until("a checkpoint does not end", |bench| bench.shard.checkpoint.is_idle());
    bench.reopen();
    let state = |bench: &Bench| {
        let segments = &bench.shard.segments;
        (bench.shard.log.applied, segments.available(), segments.pending())
    };
    // While a checkpoint runs more room is kept, which the cleaner makes first.
    let mut before = state(&bench);
    for _ in 0..20 {
        bench.cut_checkpoint(false);
        if state(&bench) == std::mem::replace(&mut before, state(&bench)) {
            break;
        }
    }
    for _ in 0..5 {
        bench.cut_checkpoint(false);
        assert_eq!(state(&bench), before);
    }
    // What was left behind must not count, either.
    bench.write_any();
    bench.finish_all();
    bench.reopen();
    bench.overwrite(bench.blocks.len());
    bench.check();
}

/// Changes that were in the log when the stop began may need more room than there is: nobody made it any more, and the stop never
/// ended.
#[test]
fn a_stop_of_a_full_drive_ends_though_writes_wait_for_the_cleaner() {
    let mut bench = Bench::full();
    (0..2000).for_each(|_| bench.write_any());
    bench.shard.close();
    bench.until("the stop does not end", |bench| bench.shard.is_closed());
    assert!(!bench.shard.stats().poisoned);
    assert!(bench.waiting.is_empty(), "{} writes are not answered", bench.waiting.len());
    bench.reopen();
    bench.check();
}

/// Takes all segments that are free away from the shard.
fn take_all(shard: &mut Shard) {
    while shard.segments.take(Head::Cold).is_some() {}
}

#[test]
fn a_checkpoint_without_segments_is_an_error_not_a_hang() {
    let mut bench = Bench::full();
    // A stop must end.
    take_all(&mut bench.shard);
    bench.shard.close();
    bench.until("the stop does not end", |bench| bench.shard.is_closed());
    assert!(bench.shard.stats().poisoned);
    // The drive is as good as before.
    bench.reopen();
    bench.overwrite(1000);
    bench.check();
}
