//! Reads whose asker compares what comes from memory with its checksums.

use coquina_base::crc32c_block;

use super::*;
use crate::cache::cache_key;

/// A shard with the first blocks of a chunk in its cache.
fn cached(blocks: u32) -> World {
    let World { mut drive, shard, now_ns, .. } = World::new();
    drop(shard);
    let config = ShardConfig { cache_bytes: 16 << 20, ..config() };
    let shard = Shard::open(&mut drive, 0, 1, config).unwrap();
    let mut world = World::of(drive, shard, now_ns);
    let payload: Vec<u8> = (1..=blocks as u8).flat_map(|byte| [byte; BLOCK_BYTES]).collect();
    world.change(write_of(1, 0, 0, &payload));
    for block in 0..blocks {
        assert_eq!(world.read(0, block), [block as u8 + 1; BLOCK_BYTES]);
    }
    world
}

impl World {
    /// What comes of a range, and which of its blocks match the checksums that come with it.
    fn read_unchecked(&mut self, offset_bytes: u32, length_bytes: u32) -> (Vec<u8>, Vec<bool>) {
        let read = request(READ, 0, offset_bytes, Operation::ReadUnchecked);
        self.shard.submit(Request { length_bytes, ..read });
        self.settle();
        let Some(Outcome::Read(data)) = self.outcome(READ) else { panic!("it is read") };
        let bytes = data.to_bytes();
        let blocks = bytes.chunks_exact(BLOCK_BYTES).zip(&data.checksums);
        (bytes.clone(), blocks.map(|(block, checksum)| crc32c_block(block) == *checksum).collect())
    }
}

#[test]
fn what_memory_has_spoilt_comes_with_the_checksum_that_shows_it_and_is_right_when_it_is_read_anew() {
    let mut world = cached(3);
    assert_eq!(world.read_unchecked(0, 3 * BLOCK).1, [true; 3]);
    world.shard.damage_cache();
    let hits = world.shard.stats().cache_hits;
    let (bytes, is_right) = world.read_unchecked(0, 3 * BLOCK);
    assert_eq!(is_right, [false; 3], "nothing was compared here");
    assert_eq!((bytes.len(), world.shard.stats().cache_hits - hits), (3 * BLOCK_BYTES, 3));
    // As a client does then.
    for block in 0..3 {
        assert_eq!(world.read(0, block), [block as u8 + 1; BLOCK_BYTES]);
    }
    assert_eq!(world.read_unchecked(0, 3 * BLOCK).1, [true; 3], "what was bad has left the cache");
}

/// What had gone bad stayed in the cache if another block of the same piece had left it before the client asked again.
#[test]
fn what_is_bad_leaves_the_cache_though_not_all_of_the_piece_is_there() {
    let mut world = cached(3);
    world.shard.damage_cache();
    assert_eq!(world.read_unchecked(0, 3 * BLOCK).1, [false; 3]);
    let (location, _) = world.place_in_log(2);
    let segment = world.shard.geometry.segment_of(location);
    let generation = world.shard.segments.get(segment).generation;
    world.shard.cache.remove(cache_key(location, generation));
    let read = request(READ, 0, 0, Operation::Read);
    world.shard.submit(Request { length_bytes: 3 * BLOCK, ..read });
    world.settle();
    assert!(matches!(world.outcome(READ), Some(Outcome::Read(_))));
    let hits = world.shard.stats().cache_hits;
    assert_eq!(world.read_unchecked(0, 3 * BLOCK).1, [true; 3]);
    assert_eq!(world.shard.stats().cache_hits - hits, 3, "all of it is cached, and right");
}

/// No checksums come with parts of blocks.
#[test]
fn parts_of_blocks_are_compared_here() {
    let mut world = cached(3);
    for (offset_bytes, length_bytes) in [(512, 512), (512, 3 * BLOCK - 512), (BLOCK, BLOCK + 512)] {
        world.shard.damage_cache();
        let (bytes, checksums) = world.read_unchecked(offset_bytes, length_bytes);
        assert!(checksums.is_empty());
        let byte_at = |at: usize| ((offset_bytes as usize + at) / BLOCK_BYTES) as u8 + 1;
        assert_eq!(bytes.len(), length_bytes as usize);
        assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == byte_at(at)), "from {offset_bytes}");
    }
}

/// What comes from the drive is compared, whoever asks.
#[test]
fn what_the_drive_has_spoilt_is_never_given() {
    let mut world = World::new();
    world.shard.enable_repairs();
    world.change(write_of(1, 0, 0, &[7; BLOCK_BYTES]));
    world.holds_reads = true;
    world.shard.submit(request(READ, 0, 0, Operation::ReadUnchecked));
    world.settle();
    world.end_held(true);
    world.settle();
    assert_eq!(world.asked.iter().map(|(_, block)| *block).collect::<Vec<_>>(), [0], "of another copy");
    assert!(world.outcome(READ).is_none());
}
