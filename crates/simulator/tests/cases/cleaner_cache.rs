//! What the cleaner has moved once it finds in memory when it moves it again, and what is there is right, whatever was overwritten.

use coquina_base::{BLOCK_BYTES, LayerId};
use coquina_engine::{Operation, Origin, Outcome, Request, RequestToken, Shard, ShardConfig, ShardStats};
use coquina_simulator::drive::{Latency, VirtualDrive};
use coquina_simulator::random::Random;

use crate::common::{self, SEGMENT_BYTES, formatted_drive, formatted_with};

/// A drive whose reads are not dear.
const FAST: Latency = Latency { least_ns: 10_000, most_ns: 200_000, slow_one_in: 1_000_000 };
/// One whose reads are.
const SLOW: Latency = Latency { least_ns: 1_500_000, most_ns: 2_500_000, slow_one_in: 1_000_000 };

/// Blocks of the volume: most of what the drive holds.
const BLOCKS: u32 = 700;

struct Drive {
    drive: VirtualDrive,
    now_ns: u64,
    requests: u64,
}

impl Drive {
    #[allow(clippy::needless_update, reason = "the settings have one field more with mutations")]
    fn open(&mut self, cache_bytes: u64) -> Shard {
        let config =
            ShardConfig { cache_bytes, checkpoint_log_bytes: 8 * SEGMENT_BYTES, ..ShardConfig::default() };
        Shard::open(&mut self.drive, 0, 1, config).unwrap()
    }

    fn submit(&mut self, shard: &mut Shard, block: u32, operation: Operation<'_>) -> Outcome {
        self.requests += 1;
        shard.submit(Request {
            token: RequestToken(self.requests),
            layer: LayerId(1),
            chunk: 0,
            offset_bytes: block * BLOCK_BYTES as u32,
            length_bytes: BLOCK_BYTES as u32,
            origin: Origin::default(),
            operation,
        });
        common::settle(shard, &mut self.drive, &mut self.now_ns).pop().unwrap().1
    }

    fn write(&mut self, shard: &mut Shard, block: u32, tag: u64) {
        let payload = tag.to_le_bytes().repeat(BLOCK_BYTES / 8);
        let outcome = self.submit(shard, block, Operation::Write { payload: &payload, checksums_le: &[] });
        assert!(matches!(outcome, Outcome::Changed), "{outcome:?}");
    }

    fn read(&mut self, shard: &mut Shard, block: u32) -> u64 {
        let Outcome::Read(data) = self.submit(shard, block, Operation::Read) else { panic!("block {block}") };
        let bytes = data.to_bytes();
        assert!(bytes.chunks(8).all(|tag| tag == &bytes[..8]));
        u64::from_le_bytes(bytes[..8].try_into().unwrap())
    }
}

/// Overwrites at random, trims a little, and reads everything in the end, after a start, too; the cache's memory goes bad each
/// `damage_rounds`.
fn overwrite(latency: Latency, cache_bytes: u64, damage_rounds: Option<u64>) -> ShardStats {
    let drive = formatted_with(8 << 20, SEGMENT_BYTES, latency);
    let mut drive = Drive { drive, now_ns: 1, requests: 0 };
    let mut shard = drive.open(cache_bytes);
    let mut random = Random::new(3);
    let mut tags: Vec<u64> = (1..=u64::from(BLOCKS)).collect();
    for (block, tag) in tags.iter().enumerate() {
        drive.write(&mut shard, block as u32, *tag);
    }
    for round in 0..8000 {
        let block = random.below(u64::from(BLOCKS)) as u32;
        tags[block as usize] = match random.below(50) {
            0 => 0,
            _ => 10_000 + round,
        };
        match tags[block as usize] {
            0 => assert!(matches!(drive.submit(&mut shard, block, Operation::Trim), Outcome::Changed)),
            tag => drive.write(&mut shard, block, tag),
        }
        if damage_rounds.is_some_and(|rounds| round % rounds == 0) {
            shard.damage_cache();
        }
        if round % 4 == 0 {
            let block = random.below(u64::from(BLOCKS)) as u32;
            assert_eq!(drive.read(&mut shard, block), tags[block as usize], "block {block}");
        }
    }
    let stats = shard.stats();
    drive.drive.process_crash();
    let mut shard = drive.open(cache_bytes);
    for (block, tag) in tags.iter().enumerate() {
        assert_eq!(drive.read(&mut shard, block as u32), *tag, "block {block}");
    }
    stats
}

#[test]
fn what_is_moved_again_is_not_read() {
    let with = overwrite(FAST, 64 << 20, None);
    let without = overwrite(FAST, 0, None);
    assert!(with.cleaner_bytes > 8 << 20, "the cleaner had work: {with:?}");
    // What clients wrote is read when it is moved first; about half of it is overwritten before it is moved again.
    assert!(with.cleaner_cached_bytes > with.cleaner_bytes / 3, "{with:?}");
    let saved_bytes = without.drive_read_bytes - with.drive_read_bytes;
    assert!(saved_bytes > with.cleaner_cached_bytes, "{with:?} {without:?}");
    assert_eq!(without.cleaner_cached_bytes, 0);
    // A small cache has room at first only.
    let small = overwrite(FAST, 1 << 20, None);
    assert!(small.cleaner_cached_bytes < with.cleaner_cached_bytes / 2, "{small:?}");
    assert!(small.cache_bytes <= 1 << 20);
}

#[test]
fn what_bad_memory_has_changed_is_read_from_the_drive() {
    let good = overwrite(FAST, 64 << 20, None);
    let bad = overwrite(FAST, 64 << 20, Some(100));
    assert!(bad.cache_hits > 0 && bad.cache_hits < good.cache_hits, "{bad:?} {good:?}");
    assert!(bad.cleaner_cached_bytes > 0 && bad.cleaner_cached_bytes < good.cleaner_cached_bytes);
    assert_eq!((bad.bad_blocks, bad.log_cuts, bad.poisoned), (0, 0, false), "the drive's blocks were good");
}

#[test]
fn what_users_write_stays_where_reads_are_dear() {
    let fast = overwrite(FAST, 64 << 20, None);
    let slow = overwrite(SLOW, 64 << 20, None);
    let share = |stats: &ShardStats| stats.cleaner_cached_bytes * 100 / stats.cleaner_bytes;
    assert!(share(&fast) < 70 && share(&slow) > 85, "{fast:?} {slow:?}");
    // Footers behind users' frames stay, too; in segments as small as these there is no room for them behind moved ones.
    assert!(slow.drive_read_bytes < fast.drive_read_bytes / 3, "{fast:?} {slow:?}");
    let small = overwrite(SLOW, 1 << 20, None);
    assert!(small.cache_bytes <= 1 << 20 && share(&small) < share(&slow) / 2, "{small:?}");
    let bad = overwrite(SLOW, 64 << 20, Some(100));
    assert!(share(&bad) > 0 && share(&bad) < share(&slow), "{bad:?}");
    assert_eq!((bad.bad_blocks, bad.log_cuts, bad.poisoned), (0, 0, false), "the drive's blocks were good");
}

#[test]
fn what_is_written_does_not_stay_while_nothing_is_moved() {
    let mut drive = Drive { drive: formatted_drive(), now_ns: 1, requests: 0 };
    let mut shard = drive.open(64 << 20);
    (0..BLOCKS / 2).for_each(|block| drive.write(&mut shard, block, 1));
    let stats = shard.stats();
    assert_eq!((stats.cleaner_bytes, stats.cache_bytes), (0, 0), "{stats:?}");
}

#[test]
fn what_is_read_has_the_memory_first_also_when_the_drive_takes_no_writes_any_more() {
    const CACHE_BYTES: u64 = 4 << 20;
    let mut drive = Drive { drive: formatted_drive(), now_ns: 1, requests: 0 };
    let mut shard = drive.open(CACHE_BYTES);
    let mut random = Random::new(5);
    (0..BLOCKS).for_each(|block| drive.write(&mut shard, block, 1));
    for round in 0..6000 {
        drive.write(&mut shard, random.below(u64::from(BLOCKS)) as u32, round);
    }
    let kept_bytes = shard.stats().cache_bytes;
    assert!(kept_bytes > CACHE_BYTES / 2 && kept_bytes <= CACHE_BYTES, "{kept_bytes}");
    shard.give_up(5);
    assert!(shard.stats().poisoned);
    for block in 0..BLOCKS {
        drive.read(&mut shard, block);
        let stats = shard.stats();
        assert!(stats.cache_bytes <= CACHE_BYTES, "{stats:?}");
    }
    assert!(shard.stats().cache_misses >= u64::from(BLOCKS));
    let hits = shard.stats().cache_hits;
    for block in 0..BLOCKS {
        drive.read(&mut shard, block);
    }
    assert!(shard.stats().cache_hits - hits >= u64::from(BLOCKS), "all of it is in the block cache");
}
