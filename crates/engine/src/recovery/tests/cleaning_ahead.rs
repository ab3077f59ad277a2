//! Room is made while nobody asks for anything.

use super::*;

const SMALL_DRIVE_BYTES: usize = 64 << 20;

/// A drive that is three quarters full and was overwritten at random.
fn aged() -> Bench {
    let mut bench = Bench::new(SMALL_DRIVE_BYTES, SEGMENT_BYTES);
    let blocks = bench.shard.capacity() / 4 * 3;
    bench.blocks = (0..blocks as u32).collect();
    for block in 0..blocks as u32 {
        bench.write(block);
        bench.until("a write is not answered", |bench| bench.waiting.len() < 16);
    }
    bench.overwrite(2 * blocks as usize);
    bench
}

/// Turns that the shard asks for, until it asks for none.
fn leave_alone(bench: &mut Bench) {
    for _ in 0..STEPS_MAX {
        let actions = bench.actions;
        bench.step();
        if bench.actions > actions {
            continue;
        }
        match bench.shard.next_wake_ns() {
            Some(wake_ns) => bench.now_ns = bench.now_ns.max(wake_ns),
            None => return,
        }
    }
    panic!("it does not come to rest: {:?}", bench.shard);
}

fn moved_bytes(bench: &Bench) -> u64 {
    bench.shard.stats().cleaner_bytes
}

#[test]
fn those_who_write_after_a_pause_do_not_wait_for_the_cleaner() {
    let mut bench = aged();
    let (empty, segments) = (bench.shard.segments.empty(), bench.shard.segments.len());
    assert!(empty < segments / 32, "{empty} segments are empty");
    leave_alone(&mut bench);
    let empty = bench.shard.segments.empty();
    assert!(empty > segments / 24 && empty < segments / 8, "{empty} of {segments} segments are empty");
    // It stays at rest.
    let moved = moved_bytes(&bench);
    (0..10_000).for_each(|_| bench.step());
    assert_eq!(moved_bytes(&bench), moved);
    let ready = u64::from(empty - segments / 32) * SEGMENT_BYTES / BLOCK_BYTES as u64;
    // A write by itself takes a block for its header.
    bench.overwrite(ready as usize / 2);
    assert_eq!(moved_bytes(&bench), moved, "the cleaner was at work though there was room");
    bench.overwrite(10_000);
    assert!(moved_bytes(&bench) > moved);
    leave_alone(&mut bench);
    bench.check();
}

#[test]
fn who_only_reads_is_not_disturbed() {
    let mut bench = aged();
    let read_for = |bench: &mut Bench, steps: u32| {
        for step in 0..steps {
            if step % 20 == 0 {
                let at = bench.dice.below(bench.blocks.len() as u64) as usize;
                bench.request(bench.blocks[at], Operation::Read);
            }
            bench.step();
        }
    };
    // What had begun may end.
    read_for(&mut bench, 5000);
    let moved = moved_bytes(&bench);
    read_for(&mut bench, 20_000);
    assert_eq!(moved_bytes(&bench), moved);
    leave_alone(&mut bench);
    assert!(moved_bytes(&bench) > moved, "nothing was cleaned when nobody read any more");
    bench.check();
}

/// Where each segment is nearly full, little room would cost many moves.
#[test]
fn a_full_drive_comes_to_rest() {
    let mut bench = Bench::full();
    leave_alone(&mut bench);
    let moved = moved_bytes(&bench);
    (0..10_000).for_each(|_| bench.step());
    assert_eq!((moved_bytes(&bench), bench.shard.next_wake_ns()), (moved, None));
    bench.check();
}
