//! Large writes that come one after the other are received into their frames whole, wherever segments end.

use coquina_base::{BLOCK_BYTES, CHUNK_BYTES, LayerId};
use coquina_engine::{Operation, Origin, Outcome, Request, RequestToken, Shard, ShardConfig};
use coquina_simulator::drive::VirtualDrive;

use crate::common;

const SEGMENT_BYTES: u64 = 1 << 20;
const CHUNK_BLOCKS: u32 = (CHUNK_BYTES / BLOCK_BYTES as u64) as u32;
const WRITE_BLOCKS: u32 = 128;
const WRITES: u32 = 64;

struct World {
    drive: VirtualDrive,
    shard: Shard,
    now_ns: u64,
}

impl World {
    fn request<'a>(block: u32, blocks: u32, operation: Operation<'a>) -> Request<'a> {
        Request {
            token: RequestToken(u64::from(block)),
            layer: LayerId(1),
            chunk: block / CHUNK_BLOCKS,
            offset_bytes: block % CHUNK_BLOCKS * BLOCK_BYTES as u32,
            length_bytes: blocks * BLOCK_BYTES as u32,
            origin: Origin::default(),
            operation,
        }
    }

    /// The outcomes of all that was asked.
    fn finish(&mut self) -> Vec<Outcome> {
        let answered = common::settle(&mut self.shard, &mut self.drive, &mut self.now_ns);
        answered.into_iter().map(|(_, outcome)| outcome).collect()
    }

    /// Receives the payload before it is known where the writes before it went, as a busy node does.
    fn write(&mut self, index: u32) {
        let first = index * WRITE_BLOCKS;
        let mut landing = self.shard.landing(WRITE_BLOCKS);
        (first..first + WRITE_BLOCKS).for_each(|block| landing.push(&content(block)));
        let operation = Operation::Write { payload: &[], checksums_le: &[] };
        self.shard.submit_landed(Self::request(first, WRITE_BLOCKS, operation), landing);
    }

    fn read(&mut self, block: u32) -> Vec<u8> {
        self.shard.submit(Self::request(block, 1, Operation::Read));
        match self.finish().pop().unwrap() {
            Outcome::Read(data) => data.to_bytes(),
            other => panic!("block {block}: {other:?}"),
        }
    }
}

fn content(block: u32) -> Vec<u8> {
    (u64::from(block) + 1).to_le_bytes().repeat(BLOCK_BYTES / 8)
}

#[allow(clippy::needless_update, reason = "the settings have one field more with mutations")]
fn config() -> ShardConfig {
    ShardConfig { cache_bytes: 0, ..ShardConfig::default() }
}

/// Writes all of them, so many at a time; gives how many bytes did not need to be copied, of how many.
fn write_all(at_a_time: u32, small: bool) -> (u64, u64) {
    let mut drive = common::formatted(64 << 20, SEGMENT_BYTES);
    let shard = Shard::open(&mut drive, 0, 1, config()).unwrap();
    let mut world = World { drive, shard, now_ns: 1 };
    for index in 0..WRITES {
        if small {
            let operation = Operation::Write { payload: &content(0), checksums_le: &[] };
            world.shard.submit(World::request(0, 1, operation));
        }
        world.write(index);
        if (index + 1) % at_a_time == 0 {
            let outcomes = world.finish();
            assert!(outcomes.iter().all(|outcome| matches!(outcome, Outcome::Changed)), "{outcomes:?}");
        }
    }
    let stats = world.shard.stats();
    world.shard = Shard::open(&mut world.drive, 0, 2, config()).unwrap();
    for block in 0..WRITES * WRITE_BLOCKS {
        assert_eq!(world.read(block), content(block), "block {block}");
    }
    (stats.landed_bytes, stats.write_bytes)
}

#[test]
fn large_writes_are_not_copied_where_segments_end() {
    for at_a_time in [1, 4] {
        let (landed, written) = write_all(at_a_time, false);
        assert_eq!(written, u64::from(WRITES * WRITE_BLOCKS) * BLOCK_BYTES as u64);
        assert_eq!(landed, written, "{at_a_time} at a time");
    }
}

#[test]
fn small_writes_between_large_ones_are_all_that_is_copied() {
    let (landed, written) = write_all(1, true);
    assert_eq!(written - landed, u64::from(WRITES) * BLOCK_BYTES as u64);
}
