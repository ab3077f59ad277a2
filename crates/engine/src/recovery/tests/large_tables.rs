//! Session tables that take a good part of a small drive: each checkpoint holds them whole, and room is kept for the next one.

use coquina_replication::{Config, CopyId, Sessions, Window};

use super::*;
use crate::groups::Record;

const SEGMENTS_BYTES: u64 = 256 << 10;
const SESSIONS: u64 = 1024;

/// A drive of so many segments of the smallest size for use.
fn bench_of(segments: u64) -> Bench {
    let bytes = DRIVE_HEAD_BYTES + SHARD_HEAD_BYTES + segments * SEGMENTS_BYTES;
    Bench::new(bytes as usize, SEGMENTS_BYTES)
}

/// A table of as many sessions as are remembered, whose windows take as many bytes as they can.
fn full_table() -> Sessions {
    let mut table = Sessions::default();
    for session in 1..=SESSIONS {
        let seen = std::array::from_fn(|word| 0x5555_5555_5555_5555 ^ word as u64);
        let window = Window { used: session, highest: 9_000 + session, parts: Vec::new(), seen };
        table.windows.insert(session, window);
    }
    table
}

fn checkpoint(bench: &mut Bench) {
    bench.shard.start_checkpoint();
    bench.until("a checkpoint does not end", |bench| bench.shard.checkpoint.is_idle());
}

/// Fills the drive one block after the other, until one is refused, and goes on changing what is there.
fn fill_and_use(mut bench: Bench) {
    let mut block = 1;
    while !bench.was_refused {
        bench.write(block);
        bench.finish_all();
        block += 1;
    }
    // It shows as full; one without any room shows that of a block.
    let stats = bench.shard.stats();
    assert!(
        stats.live_bytes >= stats.capacity_bytes || stats.capacity_bytes == BLOCK_BYTES as u64,
        "{stats:?}"
    );
    bench.request(0, Operation::Trim);
    bench.finish_all();
    bench.known.remove(&0);
    bench.blocks = bench.known.keys().copied().collect();
    if !bench.blocks.is_empty() {
        bench.overwrite(3 * bench.blocks.len());
        checkpoint(&mut bench);
        bench.overwrite(bench.blocks.len());
    }
    bench.reopen();
    bench.check();
}

/// The room for checkpoints grew with the tables, and what users may fill did not shrink: writes were admitted for which there
/// was no room, nor any way to make some, and all behind them waited for ever.
#[test]
fn a_small_drive_with_many_sessions_is_full_before_writes_hang() {
    for segments in [24, 40, 64] {
        let mut bench = bench_of(segments);
        for session in 1..=SESSIONS {
            bench.origin = Origin { session, request: 1, ..Origin::default() };
            bench.write(0);
            bench.finish_all();
        }
        bench.origin = Origin::default();
        checkpoint(&mut bench);
        fill_and_use(bench);
    }
}

#[test]
fn a_small_drive_with_a_group_of_many_sessions_is_full_before_writes_hang() {
    for segments in [24, 40, 64] {
        let mut bench = bench_of(segments);
        bench.shard.submit_record(1, &Record::Sessions(full_table()));
        bench.until("the table is not logged", |bench| bench.shard.group(1).unwrap().records == 1);
        bench.write(0);
        bench.finish_all();
        checkpoint(&mut bench);
        fill_and_use(bench);
    }
}

/// Else a shard would be full too early, or too late.
#[test]
fn the_bytes_of_a_group_in_a_checkpoint_are_known_before_it_begins() {
    const GROUP: u32 = 1;
    let mut bench = bench_of(64);
    let config = Config { epoch: 1, in_sync: vec![CopyId(0)], others: vec![CopyId(2)], min_copies: 1 };
    bench.shard.submit_record(GROUP, &Record::Config { config, committed: 0 });
    let mut requests = [0; 40];
    for round in 1..=20 {
        bench.shard.accept_changes(GROUP, Some(round));
        // Without a tail, and with one.
        let committed = if round % 2 == 0 { u64::MAX } else { 0 };
        bench.shard.commit(GROUP, committed);
        for _ in 0..100 {
            let session = bench.dice.below(2 * round) as usize;
            requests[session] += 1 + bench.dice.below(200);
            let origin = Origin {
                group: GROUP,
                session: session as u64 + 1,
                request: requests[session],
                ..bench.origin
            };
            bench.origin = Origin { continues: bench.dice.below(10) == 0, ..origin };
            let block = bench.dice.below(1000) as u32;
            bench.write(block);
            bench.finish_all();
        }
        let groups = &mut bench.shard.groups;
        let (told, tail) = (groups.encoded_bytes(), groups.tail_entries as u64);
        let mut out = Vec::new();
        groups.encode(&mut out);
        let bytes = out.len() as u64;
        // An epoch and two words of a session for each entry, and what an entry of a tail takes less than the longest.
        assert!((bytes..=bytes + 100 * 40 + 24 * tail).contains(&(told + 16)), "{told} of {bytes} bytes");
        assert!(groups.encoded_bytes() - bytes <= 24 * tail, "it is counted");
        let told = groups.encoded_bytes();
        checkpoint(&mut bench);
        bench.reopen();
        let groups = &bench.shard.groups;
        assert_eq!((groups.encoded_bytes(), groups.tail_entries as u64), (told, tail), "after a start");
    }
}

/// What they have room for in any shard must not be taken from users.
#[test]
fn a_few_sessions_take_no_room_from_users() {
    let mut bench = bench_of(24);
    let most = bench.shard.stats().capacity_bytes;
    for session in 1..=64 {
        bench.origin = Origin { session, request: 1, ..Origin::default() };
        bench.write(0);
        bench.finish_all();
    }
    assert_eq!(bench.shard.stats().capacity_bytes, most);
}

/// A drive that holds little, and has so many segments left.
fn used_until(segments: u64, blocks: u32, available: u32) -> Bench {
    let mut bench = bench_of(segments);
    (0..blocks).for_each(|block| bench.write(block));
    bench.finish_all();
    checkpoint(&mut bench);
    bench.blocks = bench.known.keys().copied().collect();
    // Until then no checkpoint frees what was overwritten.
    bench.shard.config.checkpoint_log_bytes = u64::MAX;
    for _ in 0..20_000 {
        if bench.shard.segments.available() <= available {
            break;
        }
        bench.write_any();
        bench.finish_all();
    }
    bench
}

/// Copies that come up log the tables of their groups. They took what was kept for trims, and the next checkpoint, which had to hold
/// them all, found no segments: the shard took no changes any more, and after each start it was the same.
#[test]
fn tables_of_groups_that_moved_here_leave_room_for_the_checkpoint_that_holds_them() {
    for (segments, groups, available) in [(40, 2, 7), (40, 2, 12), (40, 2, 14), (64, 4, 12), (64, 4, 16)] {
        let mut bench = used_until(segments, 200, available);
        assert_eq!(bench.shard.segments.available(), available);
        for round in 0..3 {
            (1..=groups).for_each(|group| bench.shard.submit_record(group, &Record::Sessions(full_table())));
            bench.write_any();
            (0..100).for_each(|_| bench.step());
            checkpoint(&mut bench);
            bench.write_any();
            bench.until("the tables are not logged", |bench| {
                (1..=groups).all(|group| bench.shard.group(group).is_some_and(|group| group.records == 1))
            });
            bench.finish_all();
            if round < 2 {
                // Without a stop, for what was logged counts by replay.
                bench.reopen();
            }
        }
        bench.overwrite(1000);
        assert!(bench.shard.poisoned.is_none());
        bench.check();
    }
}
