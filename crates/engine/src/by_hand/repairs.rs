//! Bad blocks that wait for their turn to be asked for.

use super::*;
use crate::api::{Failure, IoError};
use crate::index_region::{Map, RegionKey};

/// More than are asked for at the same time.
const BAD_BLOCKS: u32 = 70;

fn content(block: u32) -> [u8; BLOCK_BYTES] {
    [block as u8 + 1; BLOCK_BYTES]
}

impl World {
    /// Location and checksum of a block of the first region.
    pub(super) fn place_in_log(&mut self, block: u32) -> (u64, u32) {
        let region = self.shard.index.region_mut(RegionKey { layer: LAYER.0, chunk: 0, region: 0 }).unwrap();
        let checksum = region.checksums.as_ref().unwrap()[block as usize];
        (region.location(block as usize), checksum)
    }
}

/// The cleaner moves blocks that it had read while they were good: they are bad no more. When all that had been asked for were such,
/// no answer was waited for any more, and nobody asked for the others.
#[test]
fn bad_blocks_are_asked_for_though_others_were_moved_while_they_were_asked_for() {
    let mut world = World::new();
    world.shard.enable_repairs();
    for block in 0..BAD_BLOCKS {
        world.change(write_of(1, 0, block * BLOCK, &content(block)));
    }
    for block in 0..BAD_BLOCKS {
        let (location, _) = world.place_in_log(block);
        let at = world.shard.geometry.offset_bytes(location) as usize;
        world.drive.0[at] ^= 1;
        let token = READ + u64::from(block);
        world.shard.submit(request(token, 0, block * BLOCK, Operation::Read));
        world.settle();
    }
    let asked = std::mem::take(&mut world.asked);
    assert!(!asked.is_empty() && asked.len() < BAD_BLOCKS as usize, "{} are asked for", asked.len());
    for (_, block) in &asked {
        let (location, checksum) = world.place_in_log(*block);
        world.shard.append_repair((LAYER.0, 0, *block), location, checksum, &content(*block));
    }
    world.settle();
    // What other copies say to these comes late.
    for (repair, block) in &asked {
        assert!(world.shard.repair(*repair, &content(*block)));
    }
    world.settle();
    let others = std::mem::take(&mut world.asked);
    assert_eq!(asked.len() + others.len(), BAD_BLOCKS as usize, "the others wait for ever");
    for (repair, block) in others {
        assert!(world.shard.repair(repair, &content(block)));
    }
    world.settle();
    for block in 0..BAD_BLOCKS {
        match world.outcome(READ + u64::from(block)) {
            Some(Outcome::Read(data)) => assert_eq!(data.to_bytes(), content(block)),
            other => panic!("block {block}: {other:?}"),
        }
    }
    assert_eq!(world.shard.stats().bad_blocks_left, 0);
    world.shard.verify().unwrap();
}

/// Ends the reads that are held, the first of them wrongly if `is_damaged` says so, until nothing is under way.
fn end_reads(world: &mut World, mut is_damaged: bool) {
    loop {
        world.settle();
        if world.held.is_empty() {
            return;
        }
        world.end_held(std::mem::take(&mut is_damaged));
    }
}

/// A shard whose first block lies alone in a closed segment of users, which is cleaned as soon as room is short.
pub(super) fn with_a_victim(world: &mut World) {
    world.change(write_of(1, 0, 0, &content(0)));
    let (location, _) = world.place_in_log(0);
    let segment = world.shard.geometry.segment_of(location);
    for _ in 0..8 {
        world.change(write_of(1, 0, BLOCK, &[9; 3 * BLOCK_BYTES]));
    }
    assert_eq!(world.shard.segments.get(segment).live, 1);
    world.shard.start_checkpoint();
    world.settle();
    // What is there is taken, so that the cleaner has to make room.
    let level = world.shard.meta_reserve() + 4;
    while world.shard.segments.available() > level {
        assert!(world.shard.segments.take(crate::frame::Head::Hot).is_some());
    }
}

/// Lets the cleaner read the only block of its victim, once.
fn clean_until_it_reads(world: &mut World) {
    world.holds_reads = true;
    for _ in 0..100 {
        world.turn();
        // Footers and pages are read well.
        let (location, _) = world.place_in_log(0);
        let at = world.shard.geometry.offset_bytes(location);
        match world.held.first().map(|held| held.offset_bytes) {
            None => {}
            Some(offset_bytes) if offset_bytes == at => return,
            Some(_) => world.end_held(false),
        }
    }
    panic!("the segment is not cleaned: {:?}", world.shard);
}

/// What may have happened before a good block is read wrongly, once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Before {
    /// It is the first that is bad.
    Nothing,
    /// No copy had what was there before.
    GivenUp,
    /// The shard closes.
    Close,
    /// There are no others to be asked.
    NoCopies,
}

/// A block was given up, and the place where it lies freed, after one bad look at it: no other copy had what lay there before it was
/// written again, or the shard was about to close, or others were not to be asked.
#[test]
fn one_bad_look_of_the_cleaner_gives_up_no_good_block() {
    for before in [Before::Nothing, Before::GivenUp, Before::Close, Before::NoCopies] {
        let mut world = World::new();
        if before != Before::NoCopies {
            world.shard.enable_repairs();
        }
        if before == Before::GivenUp {
            world.change(write_of(1, 0, 0, &[77; BLOCK_BYTES]));
            let (location, _) = world.place_in_log(0);
            let at = world.shard.geometry.offset_bytes(location) as usize;
            world.drive.0[at] ^= 1;
            world.shard.submit(request(READ, 0, 0, Operation::Read));
            world.settle();
            let (repair, _) = world.asked.pop().unwrap();
            world.shard.cannot_repair(repair, true);
            world.settle();
            assert!(matches!(world.outcome(READ), Some(Outcome::Failed(_))));
        }
        with_a_victim(&mut world);
        clean_until_it_reads(&mut world);
        world.end_held(true);
        if before == Before::Close {
            world.shard.close();
        }
        end_reads(&mut world, false);
        let is_asked_for = world.asked.iter().any(|(_, block)| *block == 0);
        assert_eq!(is_asked_for, matches!(before, Before::Nothing | Before::GivenUp), "{before:?}");
        let mut world = if before == Before::Close { world.reopen() } else { world };
        world.holds_reads = false;
        world.shard.submit(request(READ, 0, 0, Operation::Read));
        world.settle();
        match world.outcome(READ) {
            Some(Outcome::Read(data)) => assert_eq!(data.to_bytes(), content(0), "{before:?}"),
            other => panic!("{before:?}: {other:?}"),
        }
        world.shard.verify().unwrap();
    }
}

/// What nobody has any more is moved all the same, at the second look, so that its segment can be written again.
#[test]
fn a_block_that_stays_bad_is_moved_as_bad_though_nobody_can_be_asked() {
    let mut world = World::new();
    with_a_victim(&mut world);
    let (location, checksum) = world.place_in_log(0);
    let at = world.shard.geometry.offset_bytes(location) as usize;
    world.drive.0[at] ^= 1;
    world.settle();
    let moved = world.place_in_log(0);
    assert_ne!(moved.0, location);
    assert_eq!(moved.1, checksum);
    world.shard.submit(request(READ, 0, 0, Operation::Read));
    world.settle();
    let outcome = world.outcome(READ);
    assert!(matches!(outcome, Some(Outcome::Failed(_))), "{outcome:?}");
}

/// What may come of a read.
#[derive(Clone, Copy, Debug)]
enum End {
    Damaged,
    Failed,
}

/// Overwrites the first block, if that is asked for, while a read of it is held, and lets that end badly; says whether a bad block is told of.
fn is_told_as_bad(world: &mut World, is_overwritten: bool, end: End) -> bool {
    assert_eq!(world.held.len(), 1);
    if is_overwritten {
        world.change(write_of(1, 0, 0, &content(1)));
    }
    match end {
        End::Damaged => world.end_held(true),
        End::Failed => {
            let Held { io, buffer, .. } = world.held.remove(0);
            world.shard.io_done(io, buffer, Err(IoError(5)));
        }
    }
    world.holds_reads = false;
    end_reads(world, false);
    let is_told = world.events.iter().any(|event| matches!(event, Event::BadBlock { .. }));
    assert_eq!(world.shard.stats().bad_blocks > 0, is_told);
    assert_eq!(world.read(0, 0), content(u32::from(is_overwritten)));
    is_told
}

#[test]
fn what_was_overwritten_while_the_cleaner_read_it_is_no_bad_block() {
    for end in [End::Damaged, End::Failed] {
        for is_overwritten in [true, false] {
            let mut world = World::new();
            with_a_victim(&mut world);
            clean_until_it_reads(&mut world);
            let is_told = is_told_as_bad(&mut world, is_overwritten, end);
            assert_eq!(is_told, !is_overwritten, "{end:?}");
        }
    }
}

#[test]
fn what_was_overwritten_while_the_scrub_read_it_is_no_bad_block() {
    for end in [End::Damaged, End::Failed] {
        for is_overwritten in [true, false] {
            let mut world = World::new();
            world.change(write_of(1, 0, 0, &content(0)));
            world.holds_reads = true;
            world.shard.start_scrub();
            world.settle();
            let is_told = is_told_as_bad(&mut world, is_overwritten, end);
            assert_eq!(is_told, !is_overwritten, "{end:?}");
            assert!(!world.shard.is_scrubbing());
            let bad_blocks = world.shard.scrub_report().unwrap().bad_blocks;
            assert_eq!(bad_blocks, u64::from(!is_overwritten), "{end:?}");
        }
    }
}

/// Nobody could tell what a scrub had come to.
#[test]
fn a_scrub_says_what_it_found_and_what_became_of_that() {
    let mut world = World::new();
    world.shard.enable_repairs();
    for block in 0..6 {
        world.change(write_of(1, 0, block * BLOCK, &content(block)));
    }
    assert_eq!(world.shard.scrub_report(), None);
    for block in [1, 2, 4] {
        let (location, _) = world.place_in_log(block);
        let at = world.shard.geometry.offset_bytes(location) as usize;
        world.drive.0[at] ^= 1;
    }
    // One was met by a read before.
    world.shard.submit(request(READ, 0, 2 * BLOCK, Operation::Read));
    world.settle();
    world.shard.start_scrub();
    assert!(world.shard.is_scrubbing());
    world.settle();
    assert!(!world.shard.is_scrubbing());
    let told = |world: &World| {
        let report = world.shard.scrub_report().unwrap();
        assert_eq!((report.blocks, report.skipped_blocks), (6, 0));
        (report.bad_blocks, report.repaired_blocks, report.bad_blocks_left)
    };
    assert_eq!(told(&world), (3, 0, 3));
    for (repair, block) in std::mem::take(&mut world.asked) {
        match block {
            1 => assert!(world.shard.repair(repair, &content(1))),
            _ => world.shard.cannot_repair(repair, true),
        }
    }
    world.settle();
    assert_eq!(told(&world), (3, 1, 2));
    // It is asked for anew after a minute, and is still one of those.
    world.now_ns += 120_000_000_000;
    world.settle();
    assert!(!world.asked.is_empty());
    assert_eq!(told(&world), (3, 1, 2));
    for (repair, block) in std::mem::take(&mut world.asked) {
        assert!(world.shard.repair(repair, &content(block)));
    }
    world.settle();
    assert_eq!(told(&world), (3, 3, 0));
    world.shard.start_scrub();
    world.settle();
    assert_eq!(told(&world), (0, 0, 0));
}

/// What is not kept in mind was told as repaired, or not at all.
#[test]
fn bad_blocks_that_nobody_is_asked_for_are_left_over_from_a_scrub() {
    let mut world = World::new();
    world.change(write_of(1, 0, 0, &content(0)));
    let (location, _) = world.place_in_log(0);
    let at = world.shard.geometry.offset_bytes(location) as usize;
    world.drive.0[at] ^= 1;
    world.shard.start_scrub();
    world.settle();
    let report = world.shard.scrub_report().unwrap();
    assert_eq!((report.bad_blocks, report.bad_blocks_left), (1, 1));
    assert_eq!(world.shard.stats().bad_blocks_left, 0, "it is not kept in mind");
}

impl World {
    /// Has nothing of the index stay in memory that need not.
    fn forget_index(&mut self) {
        self.shard.set_index_memory_bytes(0);
        self.settle();
        let region = &self.shard.index.chunk_mut(LAYER.0, 0).unwrap()[0];
        assert!(region.pins > 0 || matches!(region.map, Map::Absent), "{region:?}");
    }
}

/// Whether a block was overwritten could not be told when its region had been pushed out since: its old place counted.
#[test]
fn a_read_of_a_bad_place_gives_what_was_written_meanwhile_though_the_index_was_pushed_out() {
    let mut world = World::new();
    world.change(write_of(1, 0, 0, &content(0)));
    world.holds_reads = true;
    world.shard.submit(request(READ, 0, 0, Operation::Read));
    world.settle();
    world.holds_reads = false;
    world.change(write_of(1, 0, 0, &content(1)));
    world.forget_index();
    world.end_held(true);
    world.settle();
    let outcome = world.outcome(READ);
    assert!(matches!(&outcome, Some(Outcome::Read(data)) if data.to_bytes() == content(1)), "{outcome:?}");
    assert_eq!(world.shard.stats().bad_blocks, 0);
}

/// The same where it had been known as bad, and other copies have only what was written since.
#[test]
fn what_no_copy_has_any_more_is_read_anew_if_it_was_overwritten_though_the_index_was_pushed_out() {
    for is_overwritten in [true, false] {
        let mut world = World::new();
        world.shard.enable_repairs();
        world.change(write_of(1, 0, 0, &content(0)));
        let (location, _) = world.place_in_log(0);
        let at = world.shard.geometry.offset_bytes(location) as usize;
        world.drive.0[at] ^= 1;
        world.shard.submit(request(READ, 0, 0, Operation::Read));
        world.settle();
        let (repair, _) = world.asked.remove(0);
        if is_overwritten {
            world.change(write_of(1, 0, 0, &content(1)));
        }
        world.forget_index();
        world.shard.cannot_repair(repair, false);
        world.settle();
        let outcome = world.outcome(READ);
        match outcome {
            Some(Outcome::Read(data)) if is_overwritten => assert_eq!(data.to_bytes(), content(1)),
            Some(Outcome::Failed(Failure::BadBlock)) if !is_overwritten => {}
            other => panic!("{other:?}"),
        }
        world.forget_index();
        let regions = world.shard.index.chunk_mut(LAYER.0, 0).unwrap();
        assert!(regions.iter().all(|region| region.pins == 0), "{regions:?}");
        assert_eq!(world.shard.stats().bad_blocks_left, u64::from(!is_overwritten));
    }
}
