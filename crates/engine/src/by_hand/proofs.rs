//! What proves to a start that a frame was acknowledged, and what makes that proof good.

use super::*;
use crate::api::IoError;
use crate::recovery::OpenError;

/// Distance of the two copies of a superblock.
const COPY_B: u64 = 64 << 10;

impl World {
    /// Writes a block; gives the number of the frame, and where it begins and ends on the drive.
    fn logged(&mut self, block: u32) -> (u64, std::ops::Range<usize>) {
        self.change(write_of(1, 0, block * BLOCK, &[block as u8 + 1; BLOCK_BYTES]));
        let (location, _) = self.place_in_log(block);
        let data = self.shard.geometry.offset_bytes(location) as usize;
        (self.shard.log.applied, data - BLOCK_BYTES..data + BLOCK_BYTES)
    }

    /// The drive as the end of the process leaves it.
    fn killed(self) -> Memory {
        drop(self.shard);
        self.drive
    }
}

fn world_of(mut drive: Memory) -> World {
    let shard = open(&mut drive);
    World::of(drive, shard, 1)
}

/// The first frame that a start misses, if it refuses the drive for that.
fn first_lost(mut drive: Memory) -> Option<u64> {
    match Shard::open(&mut drive, 0, 1, config()) {
        Err(OpenError::Lost { lost, .. }) => Some(lost.first_frame),
        Err(other) => panic!("{other}"),
        Ok(_) => None,
    }
}

/// The one that the next frame's header names, and no other.
#[test]
fn the_last_frame_that_a_later_one_proves_acknowledged_is_missed() {
    let mut world = World::new();
    let frames = [0, 1, 2].map(|block| world.logged(block));
    let drive = world.killed();
    for (index, (number, place)) in frames.iter().enumerate() {
        // A header that cannot be read; a frame that lacks its end looks like it only where nothing proves anything.
        let mut damaged = Memory(drive.0.clone());
        damaged.0[place.start + 40] ^= 1;
        let is_proven = index < 2;
        assert_eq!(first_lost(damaged), is_proven.then_some(*number), "frame {number}");
    }
}

/// It has read and made durable all that lies before it, though nothing was written since.
#[test]
fn a_mount_proves_that_what_lies_before_it_was_acknowledged() {
    let mut world = World::new();
    let (number, place) = world.logged(0);
    let mut drive = world.reopen().killed();
    drive.0[place.start + 40] ^= 1;
    assert_eq!(first_lost(drive), Some(number));
}

/// A write that was under way when the process ended comes late, when the log has already been found to end before it. It has the
/// number that is next, and follows the last frame.
#[test]
fn a_frame_of_a_former_mount_that_surfaces_late_does_not_count() {
    let mut world = World::new();
    world.logged(0);
    let before = Memory(world.drive.0.clone());
    let (number, place) = world.logged(1);
    let late = world.killed().0[place.clone()].to_vec();
    // Before anything was written behind it, and when something was.
    for writes in [false, true] {
        let mut world = world_of(Memory(before.0.clone()));
        if writes {
            let (again, _) = world.logged(2);
            assert_eq!(again, number);
        }
        let mut drive = world.killed();
        if !writes {
            drive.0[place.clone()].copy_from_slice(&late);
        }
        let mut world = world_of(drive);
        assert_eq!(world.read(0, 0), [1; BLOCK_BYTES]);
        assert_eq!(world.read(0, 1), [0; BLOCK_BYTES], "it had been lost");
    }
}

/// What may be on the drive, or only on its way there.
#[derive(PartialEq, Eq, Debug)]
enum Step {
    Write(u64),
    Sync,
}

struct Noted {
    drive: Memory,
    steps: Vec<Step>,
}

impl Device for Noted {
    fn size_bytes(&self) -> u64 {
        self.drive.size_bytes()
    }

    fn read(&mut self, offset_bytes: u64, buffer: &mut AlignedBuf) -> Result<(), IoError> {
        self.drive.read(offset_bytes, buffer)
    }

    fn write(&mut self, offset_bytes: u64, buffer: &AlignedBuf) -> Result<(), IoError> {
        self.steps.push(Step::Write(offset_bytes));
        self.drive.write(offset_bytes, buffer)
    }

    fn sync(&mut self) -> Result<(), IoError> {
        self.steps.push(Step::Sync);
        self.drive.sync()
    }
}

/// A process that was killed may have left frames that can be read and would not outlast a power cut: the mount that proves them
/// acknowledged must not be on the drive before they are.
#[test]
fn a_mount_is_noted_when_what_was_replayed_is_durable_and_is_durable_before_anything_is_written() {
    let mut world = World::new();
    world.logged(0);
    let mut drive = Noted { drive: world.killed(), steps: Vec::new() };
    let shard = Shard::open(&mut drive, 0, 1, config()).unwrap();
    let copy_a = shard.geometry.shard_offset_bytes;
    let [Step::Sync, Step::Write(one), Step::Write(other), Step::Sync] = drive.steps[..] else {
        panic!("{:?}", drive.steps)
    };
    assert_eq!([one.min(other), one.max(other)], [copy_a, copy_a + COPY_B]);
}

/// Segments are used again, and frames count for the new mount, as if both copies said so.
#[test]
fn either_copy_of_the_superblock_may_be_lost_after_a_start_and_after_a_checkpoint() {
    for with_checkpoint in [false, true] {
        let mut world = World::new();
        world.logged(0);
        let mut world = world.reopen();
        world.logged(1);
        if with_checkpoint {
            world.shard.start_checkpoint();
            world.settle();
            assert_eq!(world.shard.superblock.checkpoint, 1);
        }
        world.logged(2);
        let copy_a = world.shard.geometry.shard_offset_bytes as usize;
        let drive = world.killed();
        for copy in [copy_a, copy_a + COPY_B as usize] {
            let mut damaged = Memory(drive.0.clone());
            damaged.0[copy..copy + BLOCK_BYTES].fill(0);
            let mut world = world_of(damaged);
            assert_eq!(world.shard.superblock.checkpoint, u64::from(with_checkpoint));
            for block in 0..3 {
                assert_eq!(world.read(0, block), [block as u8 + 1; BLOCK_BYTES]);
            }
        }
    }
}

/// The superblock names a root only once all before it was applied: what was on its way when the root was sealed needs no other proof, and a
/// bad block in it is one bad block. Replay ended there, before the end of the checkpoint, and the drive could not be opened.
#[test]
fn a_checkpoint_proves_that_what_lies_before_its_root_was_acknowledged() {
    let mut proven_by_the_root = 0;
    for turns in 1..20 {
        let mut world = World::new();
        world.change(write_of(1, 0, 0, &[1; BLOCK_BYTES]));
        world.shard.start_checkpoint();
        for block in 1..=turns {
            world.shard.submit(write_of(u64::from(block), 0, block * BLOCK, &[block as u8 + 1; BLOCK_BYTES]));
            world.turn();
        }
        world.settle();
        assert_eq!(world.shard.stats().checkpoints, 1, "{turns}");
        let (location, _) = world.place_in_log(turns);
        let data = world.shard.geometry.offset_bytes(location) as usize;
        let root = world.shard.geometry.offset_bytes(world.shard.superblock.root_location - 1) as usize;
        let mut drive = world.killed();
        let long = |at: usize| u64::from_le_bytes(drive.0[at..at + 8].try_into().unwrap());
        let number = long(data - BLOCK_BYTES + 8);
        let is_proven_by_it = number < long(root + 8) && number > long(root + 40);
        let is_proven = number < long(root + 8);
        drive.0[data + 100] ^= 1;
        let shard = open(&mut drive);
        let mut world = World::of(drive, shard, 1);
        for block in 0..turns {
            assert_eq!(world.read(0, block), [block as u8 + 1; BLOCK_BYTES], "{turns}: {block}");
        }
        if is_proven {
            world.shard.submit(request(READ, 0, turns * BLOCK, Operation::Read));
            world.settle();
            let outcome = world.outcome(READ);
            assert!(matches!(outcome, None | Some(Outcome::Failed(_))), "{turns}: {outcome:?}");
        }
        proven_by_the_root += u32::from(is_proven_by_it);
    }
    assert!(proven_by_the_root > 0);
}
