//! Who may write while a checkpoint comes to its end, and what a clean stop leaves to be replayed.

use super::*;
use crate::frame::Head;
use crate::groups::Record;

/// More than a checkpoint of one page takes.
const TURNS_MAX: u32 = 50;

fn is_complete(world: &World) -> bool {
    world.events.iter().any(|event| matches!(event, Event::Checkpoint { .. }))
}

/// Whether a write that comes when only the last frames of a checkpoint are missing is answered before the checkpoint is complete.
/// It needs no segment: there is room behind the last frame of its stream.
fn is_answered_before_the_end(is_room_short: bool) -> bool {
    const TOKEN: u64 = 9;
    let mut world = World::new();
    for block in 0..2 {
        world.change(write_of(1, 0, block * BLOCK, &[1; BLOCK_BYTES]));
    }
    world.events.clear();
    world.shard.start_checkpoint();
    world.turn();
    for _ in 0..TURNS_MAX {
        if !world.shard.checkpoint.is_noting() {
            break;
        }
        world.turn();
    }
    let checkpoint = &world.shard.checkpoint;
    assert!(!checkpoint.is_noting() && !checkpoint.is_idle() && !is_complete(&world), "it is about to end");
    if is_room_short {
        // What is left is less than what is kept for checkpoints.
        let reserve = world.shard.meta_reserve();
        while world.shard.segments.available() >= reserve {
            assert!(world.shard.segments.take(Head::Cold).is_some());
        }
    }
    world.shard.submit(write_of(TOKEN, 0, 7 * BLOCK, &[2; BLOCK_BYTES]));
    let mut is_early = false;
    for _ in 0..TURNS_MAX {
        if is_complete(&world) {
            break;
        }
        is_early |= world.done.iter().any(|(token, _)| *token == TOKEN);
        world.turn();
    }
    assert!(is_complete(&world), "it does not end: {:?}", world.shard);
    world.settle();
    let outcome = world.outcome(TOKEN);
    assert!(matches!(outcome, Some(Outcome::Changed)), "{outcome:?}");
    assert_eq!(world.read(0, 7), [2; BLOCK_BYTES]);
    is_early
}

/// A frame of users behind the checkpoint's would keep these in the log if the power went now, and the next checkpoint would lack
/// their segments (`recovery/pages.rs`).
#[test]
fn where_room_is_short_nobody_else_writes_until_a_checkpoint_is_complete() {
    assert!(!is_answered_before_the_end(true));
    assert!(is_answered_before_the_end(false), "elsewhere users wait for no checkpoint");
}

/// A record dirties no region: the stop took the checkpoint that was about to end for one that covers it.
#[test]
fn a_stop_covers_what_was_applied_while_a_checkpoint_came_to_its_end() {
    let mut world = World::new();
    world.change(write_of(1, 0, 0, &[1; BLOCK_BYTES]));
    world.holds_superblocks = true;
    world.shard.start_checkpoint();
    world.settle();
    assert_eq!(world.held_superblocks.len(), 1, "it is about to end");
    world.shard.submit_record(1, &Record::Sessions(Default::default()));
    world.settle();
    assert_eq!(world.shard.group(1).unwrap().records, 1, "it is durable");
    world.end_superblocks();
    let mut world = world.stop_and_start();
    assert_eq!(world.read(0, 0), [1; BLOCK_BYTES]);
}

/// Nor did it wait for what was in the log already, but was not yet on its way to the drive.
#[test]
fn a_stop_covers_what_waits_in_the_log() {
    const FRAMES: u32 = 50;
    let World { mut drive, shard, now_ns, .. } = World::new();
    drop(shard);
    let config = ShardConfig { frames_in_flight_max: 1, full_frames_in_flight_max: 1, ..config() };
    let shard = Shard::open(&mut drive, 0, 1, config).unwrap();
    let mut world = World::of(drive, shard, now_ns);
    let blocks = world.shard.frame_blocks_max();
    for frame in 0..FRAMES {
        let payload = vec![frame as u8 + 1; blocks as usize * BLOCK_BYTES];
        world.shard.submit(write_of(u64::from(frame), 0, frame * blocks * BLOCK, &payload));
    }
    let mut world = world.stop_and_start();
    for frame in 0..FRAMES {
        assert_eq!(world.read(0, frame * blocks), [frame as u8 + 1; BLOCK_BYTES]);
    }
}

/// All parts were put together and queued in one turn, in which nobody else got anything.
#[test]
fn the_parts_of_a_checkpoint_go_into_the_log_one_after_another() {
    const REGIONS: u32 = 9_000;
    let mut drive = formatted(96 << 20, 64 << 10, false);
    let shard = open(&mut drive);
    let mut world = World::of(drive, shard, 1);
    for region in 0..REGIONS {
        world.shard.submit(write_of(1, region / 4, region % 4 * (256 * BLOCK), &[3; BLOCK_BYTES]));
        if region % 64 == 63 {
            world.turn();
        }
    }
    world.settle();
    world.change(write_of(1, 0, BLOCK, &[4; BLOCK_BYTES]));
    world.events.clear();
    world.shard.start_checkpoint();
    let mut most = 0;
    for _ in 0..2_000 {
        if is_complete(&world) {
            break;
        }
        world.turn();
        most = most.max(world.shard.log.streams[Head::Meta as usize].queue.len());
    }
    assert!(is_complete(&world), "{:?}", world.shard);
    assert!(world.shard.checkpoint.parts_needed().count() > 8, "it has many parts");
    assert!(most <= 3, "{most} wait for their turn");
    let mut world = world.stop_and_start();
    for region in (0..REGIONS).step_by(97) {
        assert_eq!(world.read(region / 4, region % 4 * 256), [3; BLOCK_BYTES]);
    }
    assert_eq!(world.read(0, 1), [4; BLOCK_BYTES]);
    world.shard.verify().unwrap();
}

/// A retry may come after the frame that says that its request was done has been left behind.
#[test]
fn a_request_that_a_checkpoint_covers_is_not_done_again() {
    let write = |world: &mut World, byte: u8, session| {
        let origin = Origin { session, request: 5, ..Origin::default() };
        world.change(Request { origin, ..write_of(1, 0, 0, &[byte; BLOCK_BYTES]) });
    };
    let mut world = World::new();
    write(&mut world, 1, 7);
    write(&mut world, 2, 8);
    let mut world = world.stop_and_start();
    write(&mut world, 1, 7);
    assert_eq!(world.read(0, 0), [2; BLOCK_BYTES], "what was written since stays");
    write(&mut world, 3, 9);
    assert_eq!(world.read(0, 0), [3; BLOCK_BYTES], "of another session");
}
