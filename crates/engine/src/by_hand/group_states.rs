//! What a start tells the protocol of a group is what was so when the process ended.

use coquina_replication::{ChangedSet, Config, CopyId, Recovery, Start};

use super::*;
use crate::groups::Record;

const GROUP: u32 = 1;
const OWN: CopyId = CopyId(1);
const OTHER: CopyId = CopyId(2);

fn configuration(epoch: u64, in_sync: &[CopyId], others: &[CopyId]) -> Config {
    Config { epoch, in_sync: in_sync.to_vec(), others: others.to_vec(), min_copies: 1 }
}

impl World {
    fn log_record(&mut self, record: &Record) {
        self.shard.submit_record(GROUP, record);
        self.settle();
    }

    /// A new change of a block, as the next entry of the group.
    fn log_change(&mut self, block: u32, operation: Operation<'_>) {
        let origin = Origin { group: GROUP, session: 1, request: u64::from(block), ..Origin::default() };
        self.change(Request { origin, ..request(1, 0, block * BLOCK, operation) });
    }

    fn log_write(&mut self, block: u32) {
        self.log_change(block, Operation::Write { payload: &[7; BLOCK_BYTES], checksums_le: &[] });
    }

    /// What holds of the group, now and after a start.
    fn holds(self, check: impl Fn(Start<coquina_replication::RangeSet>)) -> World {
        check(self.shard.group_start(GROUP).unwrap());
        let world = self.reopen();
        check(world.shard.group_start(GROUP).unwrap());
        world
    }
}

fn leading() -> World {
    let mut world = World::new();
    world.shard.accept_changes(GROUP, Some(1));
    world
}

/// Whatever an entry does to a block, and whether it is committed or not when the other copy is left out.
#[test]
fn blocks_of_all_entries_above_the_base_are_missing_on_a_copy_that_is_out() {
    let mut world = leading();
    world.log_record(&Record::Config { config: configuration(1, &[OWN, OTHER], &[]), committed: 0 });
    world.log_write(0);
    world.log_write(1);
    world.log_change(2, Operation::Trim);
    world.shard.commit(GROUP, 1);
    world.log_record(&Record::Config { config: configuration(2, &[OWN], &[OTHER]), committed: 1 });
    world.log_write(3);
    world.log_change(4, Operation::Trim);
    world.log_change(5, Operation::WriteZeroes { no_hole: true });
    world.holds(|start| {
        let missing = start.missing.get(OTHER).unwrap();
        assert_eq!(missing.base, 1, "entry 1 is on both copies");
        let range = |first| coquina_replication::BlockRange { layer: LAYER, chunk: 0, first, count: 1 };
        let are_missing = [0, 1, 2, 3, 4, 5].map(|first| missing.set.intersects(range(first)));
        assert_eq!(are_missing, [false, true, true, true, true, true]);
    });
}

#[test]
fn a_cut_takes_the_entries_above_it_and_no_other() {
    let mut world = leading();
    (0..3).for_each(|block| world.log_write(block));
    world.log_record(&Record::Cut { at: 2, recovery: Recovery::default() });
    let world = world.holds(|start| {
        let left: Vec<u64> = start.uncommitted.iter().map(|entry| entry.sequence).collect();
        assert_eq!((start.last, start.committed, left), (2, 0, vec![1, 2]));
    });
    drop(world);
}

/// A copy that is not intact counts as complete only in the configuration under which it was brought up.
#[test]
fn a_copy_is_complete_until_its_next_configuration_or_cut() {
    let table = Record::Sessions(Default::default());
    let out = |epoch| Record::Config { config: configuration(epoch, &[OTHER], &[OWN]), committed: 0 };
    for next in [out(3), Record::Cut { at: 0, recovery: Recovery::default() }] {
        let mut world = World::new();
        world.log_record(&out(2));
        world = world.holds(|start| assert!(!start.complete));
        world.log_record(&table);
        world = world.holds(|start| assert!(start.complete));
        world.log_record(&next);
        world.holds(|start| assert!(!start.complete));
    }
}

/// Whatever the change is.
#[test]
fn a_read_waits_for_any_change_of_its_blocks_that_is_not_committed() {
    let write = Operation::Write { payload: &[7; BLOCK_BYTES], checksums_le: &[] };
    let zeroes = |no_hole| Operation::WriteZeroes { no_hole };
    for operation in [write, Operation::Trim, zeroes(false), zeroes(true)] {
        let mut world = leading();
        world.log_change(0, operation);
        let origin = Origin { group: GROUP, ..Origin::default() };
        for (token, block) in [(READ, 0), (READ + 1, 1)] {
            world.shard.submit(Request { origin, ..request(token, 0, block * BLOCK, Operation::Read) });
        }
        world.settle();
        assert!(world.outcome(READ).is_none(), "{operation:?}");
        assert!(world.outcome(READ + 1).is_some(), "of another block");
        world.shard.commit(GROUP, 1);
        world.settle();
        assert!(world.outcome(READ).is_some());
    }
}
