//! When a drive counts as hung.

use super::*;

#[test]
fn a_drive_hangs_while_it_answers_no_read_whatever_it_writes() {
    let mut world = World::new();
    world.change(write_of(1, 0, 0, &[7; BLOCK_BYTES]));
    let asked_ns = world.now_ns;
    assert!(!world.shard.is_hung(asked_ns + 1), "it owes nothing");
    world.holds_reads = true;
    world.shard.submit(request(READ, 0, 0, Operation::Read));
    world.turn();
    assert_eq!(world.held.len(), 1);
    assert!(!world.shard.is_hung(asked_ns), "it has not been asked for long");
    let later_ns = world.now_ns + 10 * TURN_NS;
    assert!(world.shard.is_hung(later_ns));
    world.now_ns = later_ns;
    world.change(write_of(2, 0, BLOCK, &[8; BLOCK_BYTES]));
    assert!(world.shard.is_hung(later_ns), "who reads waits nevertheless");
    // A read may take longer than others, as on a bad sector.
    world.holds_reads = false;
    assert_eq!(world.read(0, 1), [8; BLOCK_BYTES]);
    assert!(!world.shard.is_hung(later_ns), "it reads");
    assert!(world.shard.is_hung(world.now_ns + 1), "and has not again for long");
}

#[test]
fn a_drive_hangs_while_a_frame_is_not_durable_whatever_else_it_answers() {
    let mut world = World::new();
    world.change(write_of(1, 0, 0, &[7; BLOCK_BYTES]));
    world.now_ns += TURN_NS;
    world.shard.turn(world.now_ns);
    world.shard.submit(write_of(2, 0, 0, &[8; BLOCK_BYTES]));
    world.shard.turn(world.now_ns);
    let mut frame = None;
    while let Some(action) = world.shard.next_action() {
        match action {
            Action::Write { io, buffer, .. } => frame = Some((io, buffer)),
            Action::Prewrite { io, .. } => world.shard.io_done(io, AlignedBuf::new(), Ok(())),
            _ => {}
        }
    }
    let (io, buffer) = frame.unwrap();
    let written_ns = world.now_ns;
    assert_eq!(world.read(0, 0), [7; BLOCK_BYTES], "reads come and go");
    assert!(world.now_ns > written_ns && world.shard.is_hung(written_ns + 1));
    world.shard.io_done(io, buffer, Ok(()));
    assert!(!world.shard.is_hung(u64::MAX));
}

#[test]
fn zeroing_ahead_counts_where_the_log_waits_for_it() {
    let mut drive = formatted(8 << 20, SEGMENT_BYTES_MIN, true);
    let shard = open(&mut drive);
    let mut world = World::of(drive, shard, 1);
    // Everything is answered but that.
    let mut zeroing = Vec::new();
    for write in 0..1000 {
        world.shard.submit(write_of(write, 0, (write % 1024) as u32 * BLOCK, &[7; BLOCK_BYTES]));
        zeroing.extend(turn_without_zeroing(&mut world));
        assert!(!world.shard.is_hung(world.now_ns.saturating_sub(3 * TURN_NS)), "{write} writes");
        if (world.done.len() as u64) < write {
            break;
        }
    }
    assert!(!zeroing.is_empty() && world.done.len() < 1000, "the log waits for it now");
    let waits_since_ns = world.now_ns;
    for _ in 0..10 {
        assert!(turn_without_zeroing(&mut world).is_empty());
    }
    assert!(world.shard.is_hung(waits_since_ns));
    zeroing.into_iter().for_each(|io| world.shard.io_done(io, AlignedBuf::new(), Ok(())));
    world.settle();
    assert!(!world.shard.is_hung(world.now_ns));
}

/// A turn in which all I/O ends but what zeroes ahead.
fn turn_without_zeroing(world: &mut World) -> Vec<IoToken> {
    world.now_ns += TURN_NS;
    world.shard.turn(world.now_ns);
    let mut zeroing = Vec::new();
    while let Some(action) = world.shard.next_action() {
        match action {
            Action::Write { io, offset_bytes, buffer } => {
                world.drive.write(offset_bytes, &buffer).unwrap();
                world.shard.io_done(io, buffer, Ok(()));
            }
            Action::Prewrite { io, .. } => zeroing.push(io),
            Action::Done { token, outcome } => world.done.push((token.0, outcome)),
            _ => {}
        }
    }
    zeroing
}

/// A whole segment took longer on a slow disk than a drive has for an answer.
#[test]
fn zeroing_ahead_goes_by_pieces() {
    const SEGMENT_BYTES: u64 = 16 << 20;
    let mut drive = formatted(27 * SEGMENT_BYTES as usize, SEGMENT_BYTES, true);
    let mut shard = open(&mut drive);
    let mut pieces: Vec<(u64, u64)> = Vec::new();
    for turn in 1..200 {
        shard.turn(turn * TURN_NS);
        while let Some(action) = shard.next_action() {
            if let Action::Prewrite { io, offset_bytes, length_bytes } = action {
                pieces.push((offset_bytes, length_bytes));
                shard.io_done(io, AlignedBuf::new(), Ok(()));
            }
        }
    }
    assert!(pieces.len() > 4, "{pieces:?}");
    assert!(pieces.iter().all(|(_, length_bytes)| *length_bytes <= 8 << 20), "{pieces:?}");
    let follow = |pair: &[(u64, u64)]| pair[0].0 + pair[0].1 == pair[1].0;
    assert!(pieces.windows(2).all(follow), "none is left out: {pieces:?}");
    let zeroed: u64 = pieces.iter().map(|(_, length_bytes)| length_bytes).sum();
    assert_eq!(zeroed % SEGMENT_BYTES, 0, "whole segments");
    assert_eq!(shard.stats().prewrite_bytes, zeroed);
}

/// A read that takes longer than a pause is no pause, and who has just got it may ask for the next one.
#[test]
fn who_waits_for_the_drive_has_not_left_the_shard_alone() {
    let mut world = World::new();
    world.change(write_of(1, 0, 0, &[1; BLOCK_BYTES]));
    world.settle();
    let is_left_alone = |world: &World| world.shard.left_alone_ns() <= world.shard.now_ns;
    assert!(is_left_alone(&world), "{:?}", world.shard);
    world.holds_reads = true;
    world.shard.submit(request(READ, 0, 0, Operation::Read));
    for _ in 0..3 {
        world.turn();
        assert!(!is_left_alone(&world), "while it is read");
    }
    world.end_held(false);
    world.turn();
    assert!(world.outcome(READ).is_some() && !is_left_alone(&world), "when it has just been read");
    world.turn();
    assert!(is_left_alone(&world));
}
