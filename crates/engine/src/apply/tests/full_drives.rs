//! Writes on a full drive: what they reserve, and those that wait for trims.

use super::*;

/// It had waited for the trims that were there when it came, and was decided on as if it were never to take room again.
#[test]
fn a_write_that_waited_for_trims_gets_the_room_that_trims_of_its_own_blocks_make() {
    let mut world = World::open(Memory::formatted(16 << 20), AMPLE);
    world.write(1, 0, 0, 2);
    world.settle();
    world.shard.capacity_blocks = 2;
    world.submit(1, 9, 0, 1, Operation::Trim);
    world.turn();
    world.all_changed();
    // There is no room for its second block, but the trim may make some.
    let written = world.write(1, 0, 1, 2);
    let trim = world.submit(1, 0, 0, 2, Operation::Trim);
    world.complete(0);
    assert_eq!((world.shard.trims_applied, world.shard.behind_trims.len()), (1, 1));
    assert!(!world.done.contains_key(&trim) && !world.done.contains_key(&written));
    world.settle();
    let outcome = world.done.remove(&written);
    assert!(matches!(outcome, Some(Outcome::Changed)), "{outcome:?}");
    world.all_changed();
    assert_eq!(world.contents(1, 0)[..4], [HOLE, written, written, HOLE]);
    world.shard.verify().unwrap();
}

/// Blocks that were only replaced had been reserved as if they were new.
#[test]
fn writes_under_way_that_only_replace_keep_no_others_from_the_last_room() {
    let mut world = World::open(Memory::formatted(16 << 20), AMPLE);
    world.write(1, 0, 0, 2);
    world.settle();
    world.shard.capacity_blocks = 4;
    let replaces = world.write(1, 0, 0, 2);
    let new = world.write(1, 0, 2, 2);
    assert_eq!(world.shard.reserved_blocks, 2);
    world.settle();
    world.all_changed();
    assert_eq!(world.contents(1, 0)[..5], [replaces, replaces, new, new, HOLE]);
    let refused = world.write(1, 0, 4, 1);
    world.settle();
    let outcome = world.done.remove(&refused);
    assert!(matches!(outcome, Some(Outcome::Failed(Failure::NoSpace))), "{outcome:?}");
    world.shard.verify().unwrap();
}
