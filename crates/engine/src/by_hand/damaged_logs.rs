//! Placement groups on a shard whose log was cut where it is damaged: those of which something is left, and those of which nothing is.

use coquina_replication::{Config, CopyId};

use super::*;
use crate::api::IoError;
use crate::groups::Record;
use crate::recovery::OpenError;
use crate::superblock::{COMPATIBLE_CUT, COMPATIBLE_CUTTING};

/// A group that was logged before the damage.
const KEPT: u32 = 1;
/// One that was logged behind it only.
const LOST: u32 = 2;
/// One that is made after the cut.
const NEW: u32 = 3;
/// The shard's copy of each.
const OWN: CopyId = CopyId(1);
const OTHER: CopyId = CopyId(2);

fn configuration(epoch: u64, in_sync: &[CopyId], others: &[CopyId]) -> Config {
    Config { epoch, in_sync: in_sync.to_vec(), others: others.to_vec(), min_copies: 1 }
}

/// The configuration that a group is made with.
fn first() -> Config {
    configuration(1, &[OWN, OTHER], &[])
}

/// The copy was taken out before its log was cut.
fn out() -> Config {
    configuration(2, &[OTHER], &[OWN])
}

/// What the protocol is told of a group if it may be opened: whether the copy has all that it ever had. So has one of which
/// nothing is known.
fn is_taken_for_intact(shard: &mut Shard, group: u32, config: &Config) -> bool {
    shard.may_open_group(group, config) && shard.group_start(group).is_none_or(|start| start.intact)
}

impl World {
    fn persist(&mut self, group: u32, config: Config) {
        self.shard.submit_record(group, &Record::Config { config, committed: 0 });
        self.settle();
    }

    fn is_intact(&self, group: u32) -> bool {
        self.shard.group_start(group).unwrap().intact
    }
}

/// A drive whose log is damaged where the lost group begins: what comes behind proves that it was acknowledged.
fn damaged_drive() -> Memory {
    let mut world = World::new();
    world.persist(KEPT, first());
    let frame = world.shard.log.applied + 1;
    world.persist(LOST, first());
    (0..2).for_each(|block| world.change(write_of(1, 0, block * BLOCK, &[1; BLOCK_BYTES])));
    let mut drive = world.drive;
    let is_lost = |block: &[u8]| block.starts_with(b"CQFR") && block[8..16] == frame.to_le_bytes();
    let header = drive.0.chunks(BLOCK_BYTES).position(is_lost).unwrap() * BLOCK_BYTES;
    drive.0[header + 200] ^= 1;
    let error = Shard::open(&mut drive, 0, 1, config()).unwrap_err();
    assert!(error.is_in_log(), "{error}");
    drive
}

/// Nothing comes behind it in the log, so that it was taken for a torn tail: the next frame of its stream was written over the root
/// that the superblock names, and after a crash before the next checkpoint the drive could not be opened any more.
#[test]
fn a_log_without_the_last_frame_of_its_checkpoint_is_damaged() {
    for has_more in [false, true] {
        let mut world = World::new();
        world.change(write_of(1, 0, 0, &[1; BLOCK_BYTES]));
        world.shard.start_checkpoint();
        world.settle();
        assert_eq!(world.shard.stats().checkpoints, 1);
        if has_more {
            (1..3).for_each(|block| world.change(write_of(1, 0, block * BLOCK, &[1; BLOCK_BYTES])));
        }
        let World { mut drive, shard, .. } = world;
        let header = shard.geometry.offset_bytes(shard.superblock.root_location - 1) as usize;
        assert!(drive.0[header..].starts_with(b"CQFR"));
        drop(shard);
        drive.0[header + 200] ^= 1;
        let error = Shard::open(&mut drive, 0, 1, config()).unwrap_err();
        assert_eq!(matches!(error, OpenError::Lost { .. }), has_more, "{error}");
        assert!(error.is_in_log() && !check_drive(&mut drive, &mut |_, _| {}).is_clean(), "{error}");
        // It would be written over there, too.
        assert_eq!(Shard::open_cut(&mut drive, 0, config()).unwrap_err(), error);
        drive.0[header + 200] ^= 1;
        let shard = open(&mut drive);
        assert_eq!(World::of(drive, shard, 1).read(0, 0), [1; BLOCK_BYTES]);
    }
}

/// A drive that forgets what is written to it once the power is gone.
struct PowerCut<'a> {
    drive: &'a mut Memory,
    writes_left: u32,
}

impl Device for PowerCut<'_> {
    fn size_bytes(&self) -> u64 {
        self.drive.size_bytes()
    }

    fn read(&mut self, offset_bytes: u64, buffer: &mut AlignedBuf) -> Result<(), IoError> {
        self.drive.read(offset_bytes, buffer)
    }

    fn write(&mut self, offset_bytes: u64, buffer: &AlignedBuf) -> Result<(), IoError> {
        if self.writes_left == 0 {
            return Ok(());
        }
        self.writes_left -= 1;
        self.drive.write(offset_bytes, buffer)
    }

    fn sync(&mut self) -> Result<(), IoError> {
        Ok(())
    }
}

/// Its addition may have been proposed before the damage, and be decided after the cut. If the others are gone by then, nobody
/// would notice that it has nothing.
#[test]
fn a_group_of_which_a_cut_log_has_nothing_left_is_not_taken_for_an_empty_one() {
    let counting = [configuration(3, &[OWN], &[OTHER]), configuration(3, &[OTHER, OWN], &[])];
    let mut whole = World::new().shard;
    for config in &counting {
        assert!(is_taken_for_intact(&mut whole, LOST, config), "a whole log has all that there ever was");
    }
    let mut drive = damaged_drive();
    drop(Shard::open_cut(&mut drive, 0, config()).unwrap());
    for config in &counting {
        let mut shard = open(&mut drive);
        assert!(shard.group(LOST).is_none(), "nothing is left of it");
        assert!(!is_taken_for_intact(&mut shard, LOST, config), "{config:?}");
        assert!(!is_taken_for_intact(&mut shard, KEPT, config), "{config:?}");
    }
    let mut shard = open(&mut drive);
    assert!(is_taken_for_intact(&mut shard, NEW, &first()), "a group that is new has lost nothing");
}

#[test]
fn a_copy_that_was_lost_whole_remembers_it_until_it_is_in_sync() {
    let mut drive = damaged_drive();
    let (shard, _) = Shard::open_cut(&mut drive, 0, config()).unwrap();
    let mut world = World::of(drive, shard, 1);
    for group in [KEPT, LOST] {
        assert!(world.shard.may_open_group(group, &out()));
        world.persist(group, out());
    }
    assert!(world.shard.may_open_group(NEW, &first()));
    world.persist(NEW, first());
    for _ in 0..2 {
        world = world.reopen();
        assert_eq!([KEPT, LOST, NEW].map(|group| world.is_intact(group)), [false, false, true]);
    }
    world.persist(LOST, configuration(3, &[OTHER, OWN], &[]));
    world = world.reopen();
    assert_eq!([KEPT, LOST, NEW].map(|group| world.is_intact(group)), [false, true, true]);
}

#[test]
fn groups_are_not_trusted_after_a_power_cut_while_the_log_is_cut() {
    let mut was_under_way = false;
    for writes_left in 0..16 {
        let mut drive = damaged_drive();
        drop(Shard::open_cut(&mut PowerCut { drive: &mut drive, writes_left }, 0, config()));
        if writes_left == 0 {
            assert!(Shard::open(&mut drive, 0, 1, config()).is_err(), "nothing was cut");
            continue;
        }
        let shard = open(&mut drive);
        was_under_way |= shard.superblock.checkpoint == 1 && shard.stats().checkpoints == 1;
        let mut world = World::of(drive, shard, 1);
        assert!(!world.is_intact(KEPT), "after {writes_left} writes");
        assert_eq!(world.shard.superblock.compatible & (COMPATIBLE_CUT | COMPATIBLE_CUTTING), COMPATIBLE_CUT);
        // What is in sync again stays so.
        world.persist(KEPT, configuration(3, &[OTHER, OWN], &[]));
        assert!(world.reopen().is_intact(KEPT), "after {writes_left} writes");
    }
    assert!(was_under_way, "a start completes the checkpoint");
}
