//! What the cleaner moves is what is needed, whatever users overwrite meanwhile and whatever cannot be read beside it.

use std::collections::HashMap;

use coquina_base::{BLOCK_BYTES, LayerId};
use coquina_engine::{
    Action, IoError, IoToken, Operation, Origin, Outcome, Request, RequestToken, Shard, ShardConfig,
};
use coquina_simulator::drive::VirtualDrive;
use coquina_simulator::random::Random;

use crate::common::{SEGMENT_BYTES, formatted_drive};

const LAYER: LayerId = LayerId(1);

struct World {
    drive: VirtualDrive,
    shard: Shard,
    now_ns: u64,
    /// Blocks of the drive that cannot be read, by their offset, and the reads that meet them.
    unreadable: Vec<u64>,
    failing: Vec<IoToken>,
    /// Reads that failed.
    failed: usize,
    done: HashMap<u64, Outcome>,
    requests: u64,
}

impl World {
    #[allow(clippy::needless_update, reason = "the settings have one field more with mutations")]
    fn new() -> World {
        let mut drive = formatted_drive();
        let config =
            ShardConfig { cache_bytes: 0, checkpoint_log_bytes: 8 * SEGMENT_BYTES, ..ShardConfig::default() };
        let shard = Shard::open(&mut drive, 0, 1, config).unwrap();
        World {
            drive,
            shard,
            now_ns: 1,
            unreadable: Vec::new(),
            failing: Vec::new(),
            failed: 0,
            done: HashMap::new(),
            requests: 0,
        }
    }

    fn submit(&mut self, block: u32, blocks: u32, operation: Operation<'_>) -> u64 {
        self.requests += 1;
        self.shard.submit(Request {
            token: RequestToken(self.requests),
            layer: LAYER,
            chunk: 0,
            offset_bytes: block * BLOCK_BYTES as u32,
            length_bytes: blocks * BLOCK_BYTES as u32,
            origin: Origin::default(),
            operation,
        });
        self.requests
    }

    fn write(&mut self, block: u32, blocks: u32, tag: u64) -> u64 {
        let payload = tag.to_le_bytes().repeat(blocks as usize * BLOCK_BYTES / 8);
        self.submit(block, blocks, Operation::Write { payload: &payload, checksums_le: &[] })
    }

    fn read(&mut self, block: u32) -> u64 {
        let request = self.submit(block, 1, Operation::Read);
        while self.step() {}
        let Some(Outcome::Read(data)) = self.done.remove(&request) else { panic!("block {block}") };
        u64::from_le_bytes(data.to_bytes()[..8].try_into().unwrap())
    }

    /// Lets the shard act, and what ends next come to its end. False: nothing is under way.
    fn step(&mut self) -> bool {
        self.shard.turn(self.now_ns);
        while let Some(action) = self.shard.next_action() {
            if let Action::Read { io, offset_bytes, buffer } = &action {
                let range = *offset_bytes..offset_bytes + buffer.len() as u64;
                let is_met = self.unreadable.iter().any(|offset_bytes| range.contains(offset_bytes));
                self.failing.extend(is_met.then_some(*io));
            }
            if let Action::Write { offset_bytes, buffer, .. } = &action {
                // What is written mends it.
                let range = *offset_bytes..offset_bytes + buffer.len() as u64;
                self.unreadable.retain(|offset_bytes| !range.contains(offset_bytes));
            }
            if let Some(Action::Done { token, outcome }) = self.drive.submit(self.now_ns, 0, action) {
                self.done.insert(token.0, outcome);
            }
        }
        let Some(next_ns) = self.drive.next_completion_ns() else { return false };
        self.now_ns = self.now_ns.max(next_ns);
        while let Some(done) = self.drive.complete_next(self.now_ns) {
            let before = self.failing.len();
            self.failing.retain(|io| *io != done.io);
            let fails = self.failing.len() < before;
            self.failed += usize::from(fails);
            let result = if fails { Err(IoError(5)) } else { done.result };
            self.shard.io_done(done.io, done.buffer, result);
        }
        true
    }
}

#[test]
fn a_block_that_nobody_needs_and_that_cannot_be_read_does_no_harm() {
    const BLOCKS: u32 = 700;
    let mut world = World::new();
    let mut tags: Vec<u64> = (1..=u64::from(BLOCKS)).collect();
    for block in 0..BLOCKS {
        world.write(block, 1, tags[block as usize]);
        while world.step() {}
    }
    // Of what was written first, every eighth block is overwritten, and its old place becomes unreadable.
    for block in (0..BLOCKS / 2).step_by(8) {
        let (offset_bytes, _) = world.shard.place_of(LAYER, 0, block).unwrap().unwrap();
        world.unreadable.push(offset_bytes);
        tags[block as usize] = 10_000;
        world.write(block, 1, 10_000);
        while world.step() {}
    }
    let mut random = Random::new(3);
    for round in 0..3_000_u64 {
        let block = random.below(u64::from(BLOCKS)) as u32;
        tags[block as usize] = 20_000 + round;
        world.write(block, 1, tags[block as usize]);
        while world.step() {}
    }
    let stats = world.shard.stats();
    assert!(world.failed > 0, "the cleaner met an unreadable block");
    assert_eq!((stats.bad_blocks, stats.poisoned), (0, false), "{stats:?}");
    world.unreadable.clear();
    for block in 0..BLOCKS {
        assert_eq!(world.read(block), tags[block as usize], "block {block}");
    }
}

/// Many writes under way on a drive that is nearly full.
fn overwrite_under_way(seed: u64) -> u64 {
    let mut world = World::new();
    let mut random = Random::new(seed);
    let under_way_max = 1 + random.below(60);
    // What is under way must have room, too.
    let capacity = world.shard.stats().capacity_bytes / BLOCK_BYTES as u64;
    let blocks = (capacity - 4 * under_way_max - random.below(200)) as u32;
    let mut tags = vec![0; blocks as usize];
    for round in 1..6_000_u64 {
        let length = match random.below(8) {
            0 => 1 + random.below(12) as u32,
            _ => 1,
        };
        let block = random.below(u64::from(blocks - length)) as u32;
        world.write(block, length, round);
        tags[block as usize..(block + length) as usize].fill(round);
        while world.requests - world.done.len() as u64 > under_way_max && world.step() {}
    }
    while world.step() {}
    let failed = world.done.values().find(|outcome| !matches!(outcome, Outcome::Changed));
    assert!(failed.is_none(), "seed {seed}: {failed:?}");
    for block in 0..blocks {
        assert_eq!(world.read(block), tags[block as usize], "seed {seed}: block {block}");
    }
    world.shard.stats().cleaner_stale_blocks
}

#[test]
fn a_block_that_was_overwritten_while_its_move_waited_stays_as_it_is() {
    let stale: u64 = (0..40).map(overwrite_under_way).sum();
    assert!(stale > 0, "no move waited so long");
}
