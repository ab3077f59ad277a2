//! Pages of the index that cannot be read.

use super::*;
use crate::api::{Failure, IoError};

/// Answered before it, clients of a group took it for the end of their data, which other copies have.
#[test]
fn what_waits_for_a_page_that_cannot_be_read_is_answered_after_the_shard_is_given_up() {
    let mut world = World::new();
    for block in [0, 2] {
        world.change(write_of(1, 0, block * BLOCK, &[7; BLOCK_BYTES]));
    }
    world.shard.set_index_memory_bytes(0);
    world.settle();
    assert!(world.shard.stats().index_page_evictions > 0);
    world.holds_reads = true;
    world.shard.submit(request(READ, 0, 0, Operation::Read));
    world.shard.submit(write_of(2, 0, 512, &[1; 512]));
    world.settle();
    assert_eq!((world.held.len(), world.done.len()), (1, 0), "both wait for the page");
    let Held { io, buffer, .. } = world.held.remove(0);
    world.shard.io_done(io, buffer, Err(IoError(5)));
    let (mut is_poisoned, mut failures) = (false, Vec::new());
    while let Some(action) = world.shard.next_action() {
        match action {
            Action::Event(Event::Poisoned { .. }) => is_poisoned = true,
            Action::Done { token, outcome: Outcome::Failed(failure) } => {
                assert!(is_poisoned, "{token:?} has failed with {failure:?} before");
                failures.push((token.0, failure));
            }
            _ => {}
        }
    }
    failures.sort_unstable_by_key(|(token, _)| *token);
    assert_eq!(failures, [(2, Failure::ReadOnly), (READ, Failure::BadBlock)]);
}
