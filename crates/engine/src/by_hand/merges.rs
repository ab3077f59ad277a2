//! Changes of less than a block, of which a read fails.

use super::*;
use crate::api::Failure;

/// A merge of two edges whose first read failed was answered at once. Its token could then be given to another request, whose merge
/// took what the second read brought for its own block.
#[test]
fn a_merge_is_answered_only_when_all_its_reads_have_ended() {
    let mut world = World::new();
    for (chunk, byte) in [(0, 0xa0), (1, 0xb0)] {
        world.change(write_of(1, chunk, 0, &[byte; 2 * BLOCK_BYTES]));
    }
    world.holds_reads = true;
    world.shard.submit(write_of(9, 0, 512, &[1; BLOCK_BYTES]));
    // Waits behind it.
    world.shard.submit(write_of(10, 0, 0, &[2; BLOCK_BYTES]));
    world.settle();
    assert_eq!(world.held.len(), 2, "a block at each edge");
    world.end_held(true);
    world.settle();
    let early: Vec<u64> = world.done.iter().map(|(token, _)| *token).collect();
    // A driver gives a token to another request as soon as it has the answer.
    let token = if early.contains(&9) { 9 } else { 11 };
    world.shard.submit(write_of(token, 1, BLOCK + 512, &[3; 512]));
    world.settle();
    assert_eq!(world.held.len(), 2, "the second edge, and the block of the other merge");
    world.end_held(false);
    world.end_held(false);
    world.holds_reads = false;
    world.settle();
    let merged = [[0xb0_u8; 512], [3; 512]].concat();
    assert_eq!(world.read(1, 1)[..1024], merged[..], "another block's bytes around the change");
    assert!(early.is_empty(), "{early:?} were answered while a block was being read");
    let outcomes = [9, 10, 11].map(|token| world.outcome(token));
    assert!(matches!(outcomes[0], Some(Outcome::Failed(Failure::BadBlock))), "{outcomes:?}");
    assert!(outcomes[1..].iter().all(|outcome| matches!(outcome, Some(Outcome::Changed))), "{outcomes:?}");
    assert!(world.done.is_empty(), "{:?}", world.done);
    assert_eq!(world.read(0, 0), [2; BLOCK_BYTES]);
    assert_eq!(world.read(0, 1), [0xa0; BLOCK_BYTES], "what failed has changed nothing");
    assert_eq!(world.read(1, 1)[1024..], [0xb0; BLOCK_BYTES - 1024]);
    world.shard.verify().unwrap();
}

/// Whichever of the two fails.
#[test]
fn a_merge_fails_once_though_both_its_reads_do() {
    for damaged in [[true, true], [false, true]] {
        let mut world = World::new();
        world.change(write_of(1, 0, 0, &[0xa0; 2 * BLOCK_BYTES]));
        world.holds_reads = true;
        world.shard.submit(write_of(9, 0, 512, &[1; BLOCK_BYTES]));
        world.settle();
        damaged.into_iter().for_each(|is_damaged| world.end_held(is_damaged));
        world.holds_reads = false;
        world.settle();
        assert!(matches!(world.outcome(9), Some(Outcome::Failed(Failure::BadBlock))));
        assert!(world.done.is_empty(), "{:?}", world.done);
        // Nothing of it is left in the way of others.
        world.change(write_of(9, 0, 512, &[1; BLOCK_BYTES]));
        let bytes = [world.read(0, 0), world.read(0, 1)].concat();
        assert!(bytes[512..512 + BLOCK_BYTES].iter().all(|byte| *byte == 1));
        assert!(bytes[..512].iter().chain(&bytes[512 + BLOCK_BYTES..]).all(|byte| *byte == 0xa0));
    }
}

/// A shard that gives up answers at once, and takes no changes any more to which what still comes could be given.
#[test]
fn what_is_read_for_a_merge_comes_to_nothing_once_the_shard_has_given_up() {
    // A write that fails, and a drive that stalls.
    for end in [Shard::poison, Shard::give_up] {
        let mut world = World::new();
        world.change(write_of(1, 0, 0, &[0xa0; 2 * BLOCK_BYTES]));
        world.holds_reads = true;
        world.shard.submit(write_of(9, 0, 512, &[1; BLOCK_BYTES]));
        world.settle();
        world.end_held(true);
        end(&mut world.shard, 5);
        world.settle();
        assert!(matches!(world.outcome(9), Some(Outcome::Failed(Failure::ReadOnly))));
        world.shard.submit(write_of(9, 1, BLOCK + 512, &[3; 512]));
        world.end_held(false);
        world.settle();
        assert!(matches!(world.outcome(9), Some(Outcome::Failed(Failure::ReadOnly))));
        assert!(world.done.is_empty() && world.held.is_empty());
    }
}

#[test]
fn a_merge_fails_once_if_its_layer_is_deleted_meanwhile() {
    let mut world = World::new();
    world.change(write_of(1, 0, 0, &[0xa0; 2 * BLOCK_BYTES]));
    world.shard.submit(write_of(9, 0, 512, &[1; BLOCK_BYTES]));
    world.shard.submit(request(2, 0, 0, Operation::DeleteLayer));
    world.settle();
    let outcomes = [2, 9].map(|token| world.outcome(token));
    assert!(matches!(outcomes[0], Some(Outcome::Changed)), "{outcomes:?}");
    assert!(matches!(outcomes[1], Some(Outcome::Failed(Failure::Invalid))), "{outcomes:?}");
    assert!(world.done.is_empty(), "{:?}", world.done);
    assert_eq!(world.shard.stats().live_bytes, 0);
}

/// One began with each turn, and a drive that is idle otherwise has a turn only when a read ends.
#[test]
fn merges_of_different_blocks_are_read_together() {
    const MERGES: u32 = 40;
    let mut world = World::new();
    for chunk in 0..MERGES {
        world.change(write_of(1, chunk, 0, &[0xa0; BLOCK_BYTES]));
    }
    world.holds_reads = true;
    for chunk in 0..MERGES {
        world.shard.submit(write_of(u64::from(chunk), chunk, 512, &[chunk as u8; 512]));
    }
    world.turn();
    assert_eq!(world.held.len(), MERGES as usize);
    while !world.held.is_empty() {
        world.end_held(false);
    }
    world.holds_reads = false;
    world.settle();
    for chunk in 0..MERGES {
        assert!(matches!(world.outcome(u64::from(chunk)), Some(Outcome::Changed)));
        let block = world.read(chunk, 0);
        assert!(block[512..1024].iter().all(|byte| *byte == chunk as u8));
        assert!(block[..512].iter().chain(&block[1024..]).all(|byte| *byte == 0xa0));
    }
}

/// What is read of holes ends at once, and lets others go on that waited behind it: they change the list.
#[test]
fn merges_that_end_at_once_keep_none_of_the_others_waiting() {
    const CHUNKS: u32 = 12;
    let mut world = World::new();
    world.change(write_of(1, 0, 0, &[0xa0; BLOCK_BYTES]));
    for chunk in 0..CHUNKS {
        for part in 0..3 {
            let token = u64::from(chunk * 3 + part) + 100;
            let payload = [token as u8; 512];
            world.shard.submit(write_of(token, chunk, (part + 1) * 512, &payload));
        }
    }
    world.settle();
    for chunk in 0..CHUNKS {
        let block = world.read(chunk, 0);
        for part in 0..3 {
            let token = u64::from(chunk * 3 + part) + 100;
            assert!(matches!(world.outcome(token), Some(Outcome::Changed)));
            let bytes = &block[(part as usize + 1) * 512..][..512];
            assert!(bytes.iter().all(|byte| *byte == token as u8));
        }
    }
    assert!(world.done.is_empty() && world.shard.merges.is_empty());
}

/// It waited until nothing of anybody's waited for its turn, which under load never comes.
#[test]
fn a_merge_does_not_wait_for_what_comes_later() {
    let World { mut drive, shard, now_ns, .. } = World::new();
    drop(shard);
    let config = ShardConfig { frames_in_flight_max: 1, full_frames_in_flight_max: 1, ..config() };
    let shard = Shard::open(&mut drive, 0, 1, config).unwrap();
    let mut world = World::of(drive, shard, now_ns);
    world.change(write_of(1, 0, 0, &[0xa0; BLOCK_BYTES]));
    let payload = vec![7; 48 * BLOCK_BYTES];
    let mut token = 100;
    let mut load = |world: &mut World| {
        token += 1;
        world.shard.submit(write_of(token, 1 + token as u32 % 2, 0, &payload));
    };
    load(&mut world);
    load(&mut world);
    world.shard.submit(write_of(9, 0, 512, &[1; 512]));
    // For each frame that ends, as much comes as went.
    let mut under_way: Vec<(IoToken, AlignedBuf)> = Vec::new();
    for turn in 0..300 {
        world.now_ns += TURN_NS;
        world.shard.turn(world.now_ns);
        while let Some(action) = world.shard.next_action() {
            match action {
                Action::Write { io, offset_bytes, buffer } => {
                    world.drive.write(offset_bytes, &buffer).unwrap();
                    under_way.push((io, buffer));
                }
                Action::Read { io, offset_bytes, mut buffer } => {
                    world.drive.read(offset_bytes, &mut buffer).unwrap();
                    world.shard.io_done(io, buffer, Ok(()));
                }
                Action::Done { token, outcome } => {
                    assert!(matches!(outcome, Outcome::Changed), "{token:?}: {outcome:?}");
                    if token.0 == 9 {
                        assert!(turn > 0, "what was there before it comes first");
                        return;
                    }
                    load(&mut world);
                }
                _ => {}
            }
        }
        if !under_way.is_empty() {
            let (io, buffer) = under_way.remove(0);
            world.shard.io_done(io, buffer, Ok(()));
        }
    }
    panic!("{:?}", world.shard);
}

/// Writes blocks, from the second chunk on, until there is no room for another one.
fn fill(world: &mut World) {
    for block in 0.. {
        world.shard.submit(write_of(3, 1 + block / 1024, block % 1024 * BLOCK, &[1; BLOCK_BYTES]));
        world.settle();
        match world.outcome(3) {
            Some(Outcome::Changed) => {}
            Some(Outcome::Failed(Failure::NoSpace)) => return assert!(block > 100, "{block}"),
            other => panic!("{other:?}"),
        }
    }
}

/// Lets somebody trim a large empty volume, chunk by chunk, until a change is answered; gives the answer. One of the trims is always in
/// the log and not applied.
fn outcome_beside_trims(world: &mut World, token: u64, mut then: impl FnMut(&mut Shard)) -> Outcome {
    for chunk in 0..100 {
        let trim = request(1000 + u64::from(chunk), chunk, 0, Operation::Trim);
        world.shard.submit(Request { layer: LayerId(2), ..trim });
        assert!(!world.shard.trims_under_way.is_empty());
        world.turn();
        then(&mut world.shard);
        if let Some(outcome) = world.outcome(token) {
            return outcome;
        }
    }
    panic!("it waits without end: {:?}", world.shard)
}

/// Each of them might have made room, so that it was decided on again behind each.
#[test]
fn a_merge_on_a_full_drive_does_not_wait_for_trims_that_come_later() {
    let mut world = World::new();
    fill(&mut world);
    world.shard.submit(write_of(9, 0, 512, &[1; 512]));
    let outcome = outcome_beside_trims(&mut world, 9, |_| {});
    assert!(matches!(outcome, Outcome::Failed(Failure::NoSpace)), "{outcome:?}");
    // For those that were in the log before it, it does.
    world.settle();
    world.done.clear();
    world.shard.submit(request(8, 1, 0, Operation::Trim));
    world.shard.submit(write_of(9, 0, 512, &[1; 512]));
    let outcome = outcome_beside_trims(&mut world, 9, |_| {});
    assert!(matches!(outcome, Outcome::Changed), "{outcome:?}");
    assert_eq!(world.read(0, 0)[..1024], [[0; 512], [1; 512]].concat()[..]);
    world.shard.verify().unwrap();
}

/// A copy whose reign ended serves again only when nothing of that reign is under way: what it must refuse waits for nothing.
#[test]
fn a_merge_of_a_reign_that_is_over_does_not_wait_for_trims() {
    let mut world = World::new();
    fill(&mut world);
    world.shard.accept_changes(1, Some(1));
    let origin = Origin { group: 1, session: 1, request: 1, ..Origin::default() };
    world.shard.submit(Request { origin, ..write_of(9, 0, 512, &[1; 512]) });
    let outcome = outcome_beside_trims(&mut world, 9, |shard| shard.accept_changes(1, None));
    assert!(matches!(outcome, Outcome::Failed(Failure::NotPrimary)), "{outcome:?}");
}

/// Blocks inside the range become holes; only those at its edges need room, and these have it.
#[test]
fn zeroing_parts_of_blocks_on_a_full_drive_needs_no_room_for_holes() {
    let mut world = World::new();
    world.change(write_of(1, 0, 0, &[0xa0; BLOCK_BYTES]));
    world.change(write_of(2, 0, 9 * BLOCK, &[0xb0; BLOCK_BYTES]));
    fill(&mut world);
    let zeroes = request(4, 0, 512, Operation::WriteZeroes { no_hole: false });
    world.shard.submit(Request { length_bytes: 9 * BLOCK, ..zeroes });
    world.settle();
    let outcome = world.outcome(4);
    assert!(matches!(outcome, Some(Outcome::Changed)), "{outcome:?}");
    assert_eq!(world.read(0, 0), [[0xa0; 512].as_slice(), &[0; BLOCK_BYTES - 512]].concat());
    assert_eq!(world.read(0, 9), [[0; 512].as_slice(), &[0xb0; BLOCK_BYTES - 512]].concat());
}
