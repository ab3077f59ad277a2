//! Changes of placement groups that wait for reads which wait until other changes are committed.

use coquina_replication::{BlockRange, Recovery};

use super::*;
use crate::api::Failure;
use crate::groups::Record;

const GROUP: u32 = 1;

impl World {
    /// Asks for a write of whole blocks as a new change of the group.
    fn submit_new(&mut self, token: u64, block: u32, blocks: usize) {
        let payload = vec![token as u8; blocks * BLOCK_BYTES];
        let origin = Origin { group: GROUP, session: 1, request: token, ..Origin::default() };
        self.shard.submit(Request { origin, ..write_of(token, 0, block * BLOCK, &payload) });
        self.settle();
    }

    fn submit_read(&mut self, token: u64, block: u32) {
        let origin = Origin { group: GROUP, ..Origin::default() };
        self.shard.submit(Request { origin, ..request(token, 0, block * BLOCK, Operation::Read) });
        self.settle();
    }

    fn commit(&mut self, sequence: u64) {
        self.shard.commit(GROUP, sequence);
        self.settle();
    }

    /// A read ends with the answer that another copy leads the group.
    fn is_sent_elsewhere(&mut self, token: u64) {
        self.settle();
        let outcome = self.outcome(token);
        assert!(matches!(outcome, Some(Outcome::Failed(Failure::NotPrimary))), "{outcome:?}");
        assert_eq!(self.shard.groups.waiting, 0);
    }

    /// Takes the tokens of what has been answered, in order.
    fn answered(&mut self) -> Vec<u64> {
        let mut tokens: Vec<u64> = self.done.drain(..).map(|(token, _)| token).collect();
        tokens.sort_unstable();
        tokens
    }
}

/// A change waited until no read of its whole group waited any more.
#[test]
fn a_change_waits_only_for_the_reads_of_its_own_blocks() {
    let mut world = World::new();
    world.shard.accept_changes(GROUP, Some(1));
    // Entries 1 to 4; each is answered, and not committed.
    for (token, block) in [(1, 50), (2, 50), (3, 10), (4, 12)] {
        world.submit_new(token, block, 1);
    }
    assert_eq!(world.answered(), [1, 2, 3, 4]);
    world.submit_read(100, 10);
    world.submit_read(101, 12);
    // They have waited long.
    world.commit(1);
    world.commit(2);
    assert!(world.answered().is_empty(), "what they ask for is not committed");
    world.submit_new(5, 10, 1);
    // In the way of the second read only, with a block of which the next one is, too.
    world.submit_new(6, 11, 2);
    world.submit_new(7, 10, 2);
    assert!(world.answered().is_empty(), "they would keep the reads from ending");
    world.commit(3);
    // The third has no read to wait for, and still may not overtake the second.
    assert_eq!(world.answered(), [5, 100]);
    world.commit(4);
    assert_eq!(world.answered(), [6, 7, 101]);
    let last = world.shard.group(GROUP).unwrap().last;
    assert_eq!(last, 7);
    world.commit(last);
    let contents = [10, 11, 12].map(|block| world.read(0, block)[0]);
    assert_eq!(contents, [7, 7, 6], "in the order in which they came");
    assert_eq!(world.shard.groups.waiting, 0);
}

/// A shard with a read that waits for entry 3, which is not committed, and a change that goes out of its way.
fn with_waiters() -> World {
    let mut world = World::new();
    world.shard.accept_changes(GROUP, Some(1));
    for (token, block) in [(1, 50), (2, 50), (3, 10)] {
        world.submit_new(token, block, 1);
    }
    assert_eq!(world.answered(), [1, 2, 3]);
    world.submit_read(100, 10);
    // It has waited long, so that a change goes out of its way.
    world.commit(1);
    world.commit(2);
    world.submit_new(4, 10, 1);
    assert!(world.answered().is_empty(), "entry 3 is not committed");
    world
}

/// Another copy leads the group now. If this one is no member any more it hears of no commit again.
#[test]
fn what_waits_in_a_group_that_is_led_elsewhere_ends() {
    let mut world = with_waiters();
    world.shard.accept_changes(GROUP, None);
    for token in [100, 4] {
        let outcome = {
            world.settle();
            world.outcome(token)
        };
        assert!(matches!(outcome, Some(Outcome::Failed(Failure::NotPrimary))), "{outcome:?}");
    }
    assert_eq!(world.shard.groups.waiting, 0);
}

/// A cut commits nothing: what waited for the entry that it ended would have waited for ever.
#[test]
fn what_waits_for_an_entry_that_is_cut_goes_on() {
    let mut world = with_waiters();
    let beyond = vec![BlockRange { layer: LAYER, chunk: 0, first: 10, count: 1 }];
    world.shard.submit_record(GROUP, &Record::Cut { at: 2, recovery: Recovery { since: 2, beyond } });
    world.settle();
    let view = world.shard.group(GROUP).unwrap();
    assert_eq!((view.last, view.committed), (3, 2), "the change is entry 3 now");
    let outcome = world.outcome(100);
    assert!(matches!(outcome, Some(Outcome::Read(_))), "{outcome:?}");
    let outcome = world.outcome(4);
    assert!(matches!(outcome, Some(Outcome::Changed)), "{outcome:?}");
    assert_eq!(world.shard.groups.waiting, 0);
}

/// What was read is bad, and has been replaced by what is not committed: it waited for that, though nobody commits anything here any more.
#[test]
fn a_read_that_begins_anew_after_its_reign_ends() {
    for is_stop in [false, true] {
        let mut world = World::new();
        world.shard.accept_changes(GROUP, Some(1));
        world.submit_new(1, 10, 1);
        world.commit(1);
        world.holds_reads = true;
        world.submit_read(100, 10);
        assert_eq!(world.held.len(), 1);
        world.submit_new(2, 10, 1);
        assert_eq!(world.answered(), [1, 2]);
        if is_stop {
            world.shard.close();
        } else {
            world.shard.accept_changes(GROUP, None);
        }
        world.end_held(true);
        world.is_sent_elsewhere(100);
    }
}

/// Nobody says any more that what it waits for is committed.
#[test]
fn a_read_that_comes_after_a_stop_and_must_wait() {
    let mut world = World::new();
    world.shard.accept_changes(GROUP, Some(1));
    world.submit_new(1, 10, 1);
    world.shard.close();
    world.submit_read(100, 10);
    world.is_sent_elsewhere(100);
    // What need not wait is answered still.
    world.submit_read(101, 11);
    assert!(matches!(world.outcome(101), Some(Outcome::Read(_))));
}

/// Whoever leads the group next has what they wait for; of a drive that is given up nobody knows.
#[test]
fn reads_that_wait_are_sent_elsewhere_by_a_stop() {
    for (is_stop, failure) in [(true, Failure::NotPrimary), (false, Failure::Device)] {
        let mut world = with_waiters();
        if is_stop {
            world.shard.close();
        } else {
            world.shard.give_up(5);
        }
        world.settle();
        match world.outcome(100) {
            Some(Outcome::Failed(got)) => assert_eq!(got, failure),
            other => panic!("{other:?}"),
        }
        assert!(matches!(world.outcome(4), Some(Outcome::Failed(Failure::ReadOnly))));
        assert_eq!(world.shard.groups.waiting, 0);
    }
}
