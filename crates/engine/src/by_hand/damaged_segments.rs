//! Segments that the cleaner cannot empty.

use super::*;

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
