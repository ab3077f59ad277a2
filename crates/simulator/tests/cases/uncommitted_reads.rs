//! A read sees nothing that is not committed, also where it had to wait for pages of the index meanwhile.

use std::collections::BTreeMap;

use coquina_base::{BLOCK_BYTES, LayerId};
use coquina_engine::{
    Action, Failure, Operation, Origin, Outcome, Piece, Request, RequestToken, Shard, ShardConfig,
};
use coquina_simulator::drive::VirtualDrive;
use coquina_simulator::random::Random;

use crate::common::{SEGMENT_BYTES, formatted_drive};

const GROUP: u32 = 1;
/// The last block of a region of the index, and the first of the next one.
const BLOCKS: [u32; 2] = [255, 256];
/// Tokens of reads begin here; those of writes are the numbers of their entries.
const READS: u64 = 1 << 32;

struct World {
    drive: VirtualDrive,
    shard: Shard,
    now_ns: u64,
    last: u64,
    done: BTreeMap<u64, Outcome>,
}

impl World {
    /// Nothing stays in memory of the index that can be had from the drive.
    #[allow(clippy::needless_update, reason = "the settings have one field more with mutations")]
    fn new() -> World {
        let mut drive = formatted_drive();
        let config = ShardConfig {
            copy: 1,
            index_memory_bytes: 1,
            cache_bytes: 0,
            checkpoint_log_bytes: 8 * SEGMENT_BYTES,
            ..ShardConfig::default()
        };
        let mut shard = Shard::open(&mut drive, 0, 1, config).unwrap();
        shard.accept_changes(GROUP, Some(1));
        World { drive, shard, now_ns: 1, last: 0, done: BTreeMap::new() }
    }

    fn submit(&mut self, token: u64, block: u32, blocks: u32, operation: Operation<'_>) {
        self.shard.submit(Request {
            token: RequestToken(token),
            layer: LayerId(1),
            chunk: 0,
            offset_bytes: block * BLOCK_BYTES as u32,
            length_bytes: blocks * BLOCK_BYTES as u32,
            origin: Origin { group: GROUP, session: 1, request: token, ..Origin::default() },
            operation,
        });
    }

    /// Writes a block as the next entry; its number is what the block holds.
    fn write(&mut self, block: u32) -> u64 {
        self.last += 1;
        let payload = self.last.to_le_bytes().repeat(BLOCK_BYTES / 8);
        self.submit(self.last, block, 1, Operation::Write { payload: &payload, checksums_le: &[] });
        self.last
    }

    /// Commits all, and has a read begin whose regions are not in memory; sometimes it has got further.
    fn begin_read(&mut self, round: u64, random: &mut Random) -> u64 {
        while self.step() {}
        self.commit();
        // Others push these regions out of memory.
        for block in [600, 900] {
            self.write(block);
        }
        while self.step() {}
        self.commit();
        let read = READS + round;
        self.submit(read, BLOCKS[0], 2, Operation::Read);
        for _ in 0..random.below(3) {
            self.step();
        }
        read
    }

    fn commit(&mut self) {
        self.shard.commit(GROUP, self.last);
        while self.step() {}
    }

    /// Lets the shard act, and one I/O come to its end. False: nothing is under way.
    fn step(&mut self) -> bool {
        self.shard.turn(self.now_ns);
        while let Some(action) = self.shard.next_action() {
            if let Some(Action::Done { token, outcome }) = self.drive.submit(self.now_ns, 0, action) {
                self.done.insert(token.0, outcome);
            }
        }
        let Some(next_ns) = self.drive.next_completion_ns() else { return false };
        self.now_ns = self.now_ns.max(next_ns);
        if let Some(done) = self.drive.complete_next(self.now_ns) {
            self.shard.io_done(done.io, done.buffer, done.result);
        }
        true
    }
}

fn values(outcome: &Outcome) -> Vec<u64> {
    let Outcome::Read(data) = outcome else { panic!("{outcome:?}") };
    let bytes: Vec<u8> = data.pieces.iter().flat_map(|piece| Piece::bytes(piece).unwrap().to_vec()).collect();
    bytes.chunks(BLOCK_BYTES).map(|block| u64::from_le_bytes(block[..8].try_into().unwrap())).collect()
}

#[test]
fn a_read_that_waited_for_the_index_sees_nothing_that_is_not_committed() {
    let mut world = World::new();
    let mut random = Random::new(7);
    let mut early = 0;
    for round in 0..400 {
        let committed = BLOCKS.map(|block| world.write(block));
        let read = world.begin_read(round, &mut random);
        let block = random.pick(&BLOCKS);
        let uncommitted = world.write(block);
        while world.step() {}
        if let Some(outcome) = world.done.get(&read) {
            assert_eq!(
                values(outcome),
                committed,
                "round {round}: entry {uncommitted} of block {block} is not committed"
            );
            early += 1;
        }
        world.commit();
        let seen = values(&world.done[&read]);
        assert!(seen.iter().zip(committed).all(|(seen, before)| *seen == before || *seen == uncommitted));
    }
    let stats = world.shard.stats();
    assert!(early > 0 && stats.reads_behind_commits > 0, "{early} did not wait; {stats:?}");
}

/// Its group was never forgotten, since it waited for a commit of which nobody would tell this copy.
#[test]
fn a_read_that_waits_for_the_index_ends_with_the_reign_of_its_copy() {
    let mut world = World::new();
    let mut random = Random::new(7);
    let mut refused = 0;
    for round in 0..200 {
        world.shard.accept_changes(GROUP, Some(1));
        for block in BLOCKS {
            world.write(block);
        }
        let read = world.begin_read(round, &mut random);
        let block = random.pick(&BLOCKS);
        world.write(block);
        world.shard.accept_changes(GROUP, None);
        while world.step() {}
        match &world.done[&read] {
            Outcome::Read(_) => {}
            Outcome::Failed(Failure::NotPrimary) => refused += 1,
            other => panic!("round {round}: {other:?}"),
        }
        world.commit();
    }
    assert!(refused > 0, "none had to wait");
}
