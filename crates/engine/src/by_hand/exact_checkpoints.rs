//! A checkpoint says what was so at its point, whatever changes while it is made.

use super::*;

/// More regions than a checkpoint writes in three turns.
const CHUNKS: u32 = 200;

impl World {
    /// Asks for a write of a block to each chunk.
    fn submit_to_all(&mut self, block: u32, byte: u8) {
        for chunk in 0..CHUNKS {
            self.shard.submit(write_of(u64::from(chunk), chunk, block * BLOCK, &[byte; BLOCK_BYTES]));
        }
    }
}

/// Replay begins at the point: what was changed before that is in no frame that it reads.
#[test]
fn a_region_that_changes_while_a_checkpoint_collects_is_in_it_as_it_was() {
    let mut world = World::new();
    world.submit_to_all(0, 1);
    world.settle();
    assert_eq!(std::mem::take(&mut world.done).len(), CHUNKS as usize);
    world.shard.start_checkpoint();
    world.turn();
    world.submit_to_all(1, 2);
    // They are durable after the first, and answered in the second.
    world.turn();
    world.turn();
    assert!(world.shard.checkpoint.is_collecting(), "some regions have still to be written");
    assert!(world.outcome(0).is_some(), "they change meanwhile");
    for _ in 0..CHUNKS {
        world.turn();
    }
    assert_eq!(world.shard.stats().checkpoints, 1);
    let mut world = world.reopen();
    for chunk in 0..CHUNKS {
        assert_eq!([world.read(chunk, 0)[0], world.read(chunk, 1)[0]], [1, 2], "chunk {chunk}");
    }
    world.shard.verify().unwrap();
}
