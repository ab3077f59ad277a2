//! A group that has stopped for good on the copy that is its primary asks for another one.

use coquina_base::{BLOCK_BYTES, LayerId, crc32c_block};
use coquina_copies::{Answer, Operation, Request};
use coquina_engine::{Event as EngineEvent, Failure, IoError};
use coquina_replication::{
    BlockRange, CopyId, Entry, EntryKind, History, Message, PayloadRef, Refusal, Run, Settings, Violation,
};

use crate::common::config;
use crate::common::copy::{GROUP, ME, TURN_NS, TURNS, World};

/// The coordinator thinks it alive, and what made it the primary never becomes durable on it.
#[test]
fn a_copy_that_halts_while_it_becomes_primary_asks_for_another_one() {
    let mut world = World::new();
    let backup = config(1, &[2, ME, 3], &[]);
    world.copies.open_group(GROUP, Settings::for_tests(CopyId(ME)), backup, &mut world.out);
    world.turns(Ok(()));
    assert_eq!(world.copies.group(GROUP).unwrap().config().epoch, 1);
    let primary = config(2, &[ME, 3], &[2]);
    world.copies.config(world.now_ns, GROUP, primary.clone(), &mut world.out);
    world.turns(Err(IoError(5)));
    assert!(world.copies.is_halted(GROUP));
    assert_eq!(world.copies.group(GROUP).unwrap().config().epoch, 1);
    world.tick();
    assert_eq!(world.out.proposals, [primary.without(CopyId(ME))]);
}

/// What copy 2 says of its log when it is asked under the first configuration: all of that is durable.
fn state(last: u64) -> Message {
    let runs = if last > 0 { vec![Run { epoch: 1, first_sequence: 1 }] } else { Vec::new() };
    Message::State { config_epoch: 1, history: History::from_runs(runs).unwrap(), last, durable: last }
}

/// The others have all that is committed, whatever is wrong with this one.
#[test]
fn a_copy_that_has_stopped_itself_and_becomes_primary_asks_for_another_one() {
    let mut world = World::with_group(config(1, &[2, ME, 3], &[]));
    let entry = Entry {
        epoch: 1,
        sequence: 2,
        session: 9,
        request: 2,
        kind: EntryKind::Trim,
        range: BlockRange { layer: LayerId(1), chunk: 0, first: 0, count: 1 },
        is_last: true,
        payload: PayloadRef(0),
    };
    world.receive(Message::Append { config_epoch: 1, previous_epoch: 1, commit: 0, entry });
    assert_eq!(world.out.violations, [Violation::Gap { expected: 1, got: 2 }]);
    assert!(world.copies.is_halted(GROUP));
    world.tick();
    assert!(world.out.proposals.is_empty(), "the primary does: {:?}", world.out.proposals);
    let primary = config(2, &[ME, 3], &[2]);
    world.copies.config(world.now_ns, GROUP, primary.clone(), &mut world.out);
    world.tick();
    assert_eq!(world.out.proposals, [primary.without(CopyId(ME))]);
    // The last one that has everything stays.
    world.copies.config(world.now_ns, GROUP, config(3, &[ME], &[2, 3]), &mut world.out);
    world.now_ns += TURN_NS;
    world.tick();
    assert_eq!(world.out.proposals.len(), 1);
}

/// The other copy has let go of what this one lacks: that is committed, and this one should never have been in sync.
#[test]
fn a_primary_that_finds_itself_incomplete_asks_for_another_one() {
    let primary = config(1, &[ME, 2], &[]);
    let mut world = World::with_group(primary.clone());
    world.receive(state(1));
    world.receive(Message::Tail { config_epoch: 1, entries: Vec::new() });
    assert_eq!(world.out.violations, [Violation::Gap { expected: 1, got: 0 }]);
    world.tick();
    assert_eq!(world.out.proposals, [primary.without(CopyId(ME))]);
}

/// Whichever is left out may be the one that holds a write which was answered.
#[test]
fn a_primary_whose_log_parts_from_that_of_a_backup_leaves_it_to_people() {
    let mut world = World::with_group(config(1, &[ME, 2], &[]));
    world.receive(state(0));
    assert!(world.copies.group(GROUP).unwrap().is_serving());
    world.receive(state(1));
    assert_eq!(world.out.violations, [Violation::LogsPart { one: CopyId(ME), other: CopyId(2), at: 0 }]);
    assert!(!world.copies.is_halted(GROUP));
    for _ in 0..TURNS {
        world.now_ns += TURN_NS;
        world.tick();
    }
    assert!(world.out.proposals.is_empty(), "{:?}", world.out.proposals);
}

fn ask(world: &mut World, client: u64, offset_bytes: u32, operation: Operation<'_>) {
    let length_bytes = match operation {
        Operation::Write { payload, .. } => payload.len() as u32,
        _ => 4096,
    };
    let request = Request {
        client,
        group: GROUP,
        session: 9,
        request: client,
        volume: 5,
        generation: 1,
        layer: LayerId(1),
        chunk: 0,
        offset_bytes,
        length_bytes,
        operation,
    };
    world.copies.request(world.now_ns, &request, &mut world.out);
}

/// What it holds may be good on other copies: clients ask there, and are not told that their data is bad.
#[test]
fn who_waits_for_an_index_page_that_cannot_be_read_is_sent_elsewhere() {
    let mut world = World::with_group(config(1, &[ME], &[2]));
    for client in [1, 2] {
        let operation = Operation::Write { payload: &[7; 4096], checksums_le: &[] };
        ask(&mut world, client, client as u32 * 8192, operation);
        world.turns(Ok(()));
        assert!(matches!(world.out.answers.pop(), Some((_, Answer::Done))));
    }
    world.copies.shard_mut().set_index_memory_bytes(0);
    world.turns(Ok(()));
    assert!(world.copies.shard().stats().index_page_evictions > 0);
    ask(&mut world, 3, 8192, Operation::Read);
    ask(&mut world, 4, 8192 + 512, Operation::Write { payload: &[1; 512], checksums_le: &[] });
    world.turns(Err(IoError(5)));
    assert!(world.out.engine.iter().any(|event| matches!(event, EngineEvent::Damage { .. })));
    assert!(world.copies.is_halted(GROUP));
    let answers: Vec<_> = world.out.answers.iter().map(|(client, _)| *client).collect();
    assert_eq!(answers, [3, 4]);
    for (_, answer) in &world.out.answers {
        assert!(matches!(answer, Answer::Refused(Refusal::NotServing)), "{answer:?}");
    }
}

/// Has a primary log a write that nobody acknowledges, and spoils what is on its drive of it.
fn log_and_spoil(world: &mut World) {
    world.out.breaks = Some(0);
    ask(world, 1, 0, Operation::Write { payload: &[7; 4096], checksums_le: &[] });
    world.turns(Ok(()));
    let (offset_bytes, _) = world.copies.shard_mut().place_of(LayerId(1), 0, 0).unwrap().unwrap();
    world.drive.bytes_mut()[offset_bytes as usize + 5] ^= 1;
}

/// The other copy asked for it on each new connection, and none lasted: nothing was ever committed again.
#[test]
fn a_primary_that_cannot_read_its_own_entry_back_asks_for_another_one() {
    let mut world = World::with_group(config(1, &[ME, 2], &[]));
    world.receive(state(0));
    log_and_spoil(&mut world);
    for breaks in 0..3 {
        assert_eq!((world.out.halted.len(), world.out.breaks), (0, Some(breaks)), "it may be read yet");
        world.reconnect();
        world.receive(state(0));
        world.turns(Ok(()));
    }
    assert_eq!((&world.out.halted[..], world.out.breaks), (&[Failure::BadBlock][..], Some(2)));
    assert!(world.copies.is_halted(GROUP));
    assert_eq!(world.copies.group(GROUP).unwrap().committed(), 0);
    world.tick();
    // The other one has all that is committed.
    assert_eq!(world.out.proposals, [config(1, &[ME, 2], &[]).without(CopyId(ME))]);
    let answers = &world.out.answers[..];
    assert!(matches!(answers, [(1, Answer::Refused(Refusal::NotServing))]), "{answers:?}");
}

/// Nobody but that copy waits for it.
#[test]
fn a_primary_that_cannot_read_its_own_entry_back_for_a_copy_that_is_out_goes_on() {
    let mut world = World::with_group(config(1, &[ME, 3], &[2]));
    world.copies.connected(world.now_ns, CopyId(3), &mut world.out);
    world.copies.receive(world.now_ns, CopyId(3), GROUP, state(0), &[], &mut world.out).unwrap();
    log_and_spoil(&mut world);
    for breaks in 0..6 {
        assert_eq!(world.out.breaks, Some(breaks));
        world.reconnect();
        let history = History::default();
        let (last, committed, incomplete_since, intact) = (0, 0, None, true);
        world.receive(Message::JoinState {
            config_epoch: 1,
            history,
            last,
            committed,
            incomplete_since,
            intact,
        });
        world.receive(Message::CutDone { config_epoch: 1, ranges: Vec::new() });
        world.turns(Ok(()));
    }
    assert!(world.out.halted.is_empty());
    assert!(world.copies.group(GROUP).unwrap().is_serving());
}

/// An entry of copy 2, which writes so many blocks, with its data behind it.
fn receive_write(world: &mut World, sequence: u64, count: u32) {
    let entry = Entry {
        epoch: 1,
        sequence,
        session: 9,
        request: sequence,
        kind: EntryKind::Write,
        range: BlockRange { layer: LayerId(1), chunk: 0, first: 0, count },
        is_last: true,
        payload: PayloadRef(0),
    };
    let previous_epoch = u64::from(sequence > 1);
    let block = [7; BLOCK_BYTES];
    let checksums = crc32c_block(&block).to_le_bytes().repeat(count as usize);
    let data = [checksums, block.repeat(count as usize)].concat();
    let message = Message::Append { config_epoch: 1, previous_epoch, commit: sequence - 1, entry };
    world.receive_with(message, &data).unwrap();
}

fn forget(world: &mut World) -> bool {
    world.copies.forget_group(world.now_ns, GROUP, &mut world.out)
}

/// What it did not take counted as on its way to the log, and where it had heard of the last configuration was not looked at: what it held
/// stayed until its process restarted.
#[test]
fn a_copy_that_has_halted_forgets_a_group_that_has_moved_away() {
    let mut world = World::with_group(config(1, &[2, ME], &[]));
    receive_write(&mut world, 1, 1);
    world.turns(Ok(()));
    receive_write(&mut world, 2, 1);
    // More than a frame of this small drive holds.
    receive_write(&mut world, 3, 16);
    assert_eq!(world.out.halted, [Failure::Invalid]);
    assert!(!forget(&mut world), "it is a member");
    world.copies.config(world.now_ns, GROUP, config(2, &[2], &[ME]), &mut world.out);
    assert!(!forget(&mut world), "it is one that is out");
    world.copies.config(world.now_ns, GROUP, config(3, &[2], &[]), &mut world.out);
    assert!(!forget(&mut world), "the entry before is on its way to the drive");
    world.turns(Ok(()));
    assert_eq!(world.copies.shard().group(GROUP).unwrap().last, 2);
    assert!(forget(&mut world));
    assert!(world.copies.group(GROUP).is_none());
    world.turns(Ok(()));
    assert!(!world.copies.is_forgetting(GROUP));
    assert_eq!(world.copies.shard().group(GROUP).unwrap().last, 0);
    // It can become a member again, and has nothing.
    let back = config(4, &[2], &[ME]);
    world.copies.open_group(GROUP, Settings::for_tests(CopyId(ME)), back.clone(), &mut world.out);
    world.receive(Message::OpenedToo {});
    world.turns(Ok(()));
    world.out.sent.clear();
    world.receive(Message::JoinQuery { config: back });
    let [Message::JoinState { last: 0, committed: 0, intact: false, .. }] = &world.out.sent[..] else {
        panic!("{:?}", world.out.sent)
    };
}

/// Nothing can be put into the log of a drive that takes no changes any more: the group was closed all the same, and waited for ever for
/// the record that it is forgotten.
#[test]
fn a_copy_whose_drive_takes_no_changes_forgets_nothing() {
    let mut world = World::with_group(config(1, &[2, ME], &[]));
    receive_write(&mut world, 1, 1);
    world.turns(Ok(()));
    world.copies.config(world.now_ns, GROUP, config(2, &[2], &[]), &mut world.out);
    world.turns(Ok(()));
    world.copies.shard_mut().give_up(5);
    world.turns(Ok(()));
    assert_eq!(world.out.halted, [Failure::ReadOnly]);
    assert!(!forget(&mut world));
    assert!(!world.copies.is_forgetting(GROUP));
    assert_eq!(world.copies.shard().group(GROUP).unwrap().last, 1);
}
