//! When a drive counts as hung.

use super::*;

#[test]
fn a_drive_hangs_while_it_answers_no_read_and_nothing_else() {
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
    // A read may take longer than others, as on a bad sector.
    world.now_ns = later_ns;
    world.change(write_of(2, 0, BLOCK, &[8; BLOCK_BYTES]));
    assert!(!world.shard.is_hung(later_ns), "it has answered since");
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
