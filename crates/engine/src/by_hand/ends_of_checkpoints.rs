//! Who may write while a checkpoint comes to its end.

use super::*;
use crate::frame::Head;

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
