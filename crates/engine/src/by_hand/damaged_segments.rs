//! Segments that the cleaner cannot empty.

use super::repairs::with_a_victim;
use super::*;
use crate::api::Failure;
use crate::frame::Head;
use crate::segment::{SegmentState, SegmentTable};

/// From one try to the next.
const RETRY_NS: u64 = 20_000_000_000;

/// They are tried again every 20 s, and the tries before anybody waited for room counted: when it first ran short, the drive took no
/// changes any more at once.
#[test]
fn tries_that_nobody_waits_for_do_not_count() {
    let mut world = World::new();
    world.change(write_of(1, 0, 0, &[1; BLOCK_BYTES]));
    for _ in 0..10 {
        world.shard.segments.set_damaged(9, true);
        world.turn();
        assert_eq!(world.shard.segments.damaged(), 0, "it is tried again");
        assert!(!world.shard.cleaner.has_given_up());
    }
}

/// Spoils the footers of all segments that might be cleaned.
fn damage_footers(world: &mut World) {
    let segments = &world.shard.segments;
    let geometry = world.shard.geometry;
    for number in 0..segments.len() {
        let segment = segments.get(number);
        if segment.state == SegmentState::Closed && segment.live > 0 && segment.head != Head::Meta {
            let end = geometry.segment_start(number) + u64::from(geometry.segment_blocks);
            world.drive.0[geometry.offset_bytes(end) as usize - BLOCK_BYTES..][..BLOCK_BYTES].fill(0);
        }
    }
}

/// Writes to new blocks, from the `from`th on, until one waits for room; says which.
fn write_until_one_waits(world: &mut World, from: u32) -> u32 {
    for block in from..1000 {
        damage_footers(world);
        world.shard.submit(write_of(u64::from(block), 0, block * BLOCK, &[5; BLOCK_BYTES]));
        world.settle();
        match world.outcome(u64::from(block)) {
            None => return block,
            Some(Outcome::Changed) => {}
            other => panic!("{other:?}"),
        }
    }
    panic!("no write waits: {:?}", world.shard)
}

/// Has damaged segments tried again, once.
fn try_again(world: &mut World) {
    world.now_ns += RETRY_NS;
    world.settle();
    assert!(world.shard.segments.damaged() > 0, "{:?}", world.shard);
}

#[test]
fn a_drive_that_cannot_make_room_takes_no_changes_after_three_tries_that_are_waited_for() {
    let mut world = World::new();
    with_a_victim(&mut world);
    let waits = u64::from(write_until_one_waits(&mut world, 4));
    for _ in 0..2 {
        try_again(&mut world);
        assert!(world.outcome(waits).is_none() && !world.shard.stats().poisoned, "{:?}", world.shard);
    }
    try_again(&mut world);
    let outcome = world.outcome(waits);
    assert!(matches!(outcome, Some(Outcome::Failed(Failure::ReadOnly))), "{outcome:?}, {:?}", world.shard);
    assert!(world.shard.stats().poisoned);
}

/// They counted for the next time as well, if there was room before they were tried again.
#[test]
fn tries_before_there_was_room_do_not_count() {
    let mut world = World::new();
    with_a_victim(&mut world);
    let mut waits = write_until_one_waits(&mut world, 4);
    try_again(&mut world);
    try_again(&mut world);
    assert!(world.outcome(u64::from(waits)).is_none());
    // Some of those that were taken are given back.
    let next = [Head::Hot, Head::Cold, Head::Meta].map(|head| world.shard.log.stream(head).position.next);
    let segments = &mut world.shard.segments;
    let is_taken = |segments: &SegmentTable, number: u32| {
        segments.get(number).state == SegmentState::Promised && !next.contains(&Some(number))
    };
    let taken: Vec<u32> = (0..segments.len()).filter(|number| is_taken(segments, *number)).take(2).collect();
    for number in taken {
        segments.open(number, Head::Hot);
        segments.close(number);
    }
    world.shard.start_checkpoint();
    world.settle();
    assert!(matches!(world.outcome(u64::from(waits)), Some(Outcome::Changed)), "{:?}", world.shard);
    waits = write_until_one_waits(&mut world, waits + 1);
    try_again(&mut world);
    try_again(&mut world);
    assert!(world.outcome(u64::from(waits)).is_none() && !world.shard.stats().poisoned, "{:?}", world.shard);
    try_again(&mut world);
    assert!(world.shard.stats().poisoned);
}
