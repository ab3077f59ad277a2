//! Requests that are under way when the reign of their primary ends, and come again in the next one.

use coquina_base::{BLOCK_BYTES, LayerId, crc32c_block};
use coquina_copies::{Answer, Operation, Request};
use coquina_replication::{
    BlockRange, Entry, EntryKind, History, Message, PayloadRef, Refusal, SESSIONS_MAX,
};

use crate::common::config;
use crate::common::copy::{GROUP, ME, World};

/// Blocks of an entry: the segments are small.
const PART: u32 = 4;

/// Asks for a write to the start of the chunk.
fn write(world: &mut World, client: u64, request: u64, payload: &[u8]) {
    let operation = Operation::Write { payload, checksums_le: &[] };
    ask(world, client, (9, request), payload.len() as u32, operation);
}

/// Asks for a change of the start of the chunk, as a request of a session.
fn ask(
    world: &mut World,
    client: u64,
    (session, request): (u64, u64),
    length_bytes: u32,
    operation: Operation<'_>,
) {
    let request = Request {
        client,
        group: GROUP,
        session,
        request,
        volume: 1,
        generation: 1,
        layer: LayerId(1),
        chunk: 0,
        offset_bytes: 0,
        length_bytes,
        operation,
    };
    world.copies.request(world.now_ns, &request, &mut world.out);
}

/// Its first blocks are in the log, and somebody else may have written them since: they are not done a second time.
#[test]
fn of_a_write_that_is_in_the_log_in_part_only_the_rest_is_done_when_it_comes_again() {
    let mut world = World::with_group(config(1, &[2, 1], &[]));
    let entry = |sequence, session, request, is_last| Entry {
        epoch: 1,
        sequence,
        session,
        request,
        kind: EntryKind::Write,
        range: BlockRange { layer: LayerId(1), chunk: 0, first: 0, count: PART },
        is_last,
        payload: PayloadRef(0),
    };
    // The first blocks of a request, and then another one on the same blocks.
    for (entry, byte) in [(entry(1, 9, 1, false), 1), (entry(2, 8, 1, true), 2)] {
        let block = [byte; BLOCK_BYTES];
        let mut data = crc32c_block(&block).to_le_bytes().repeat(PART as usize);
        data.extend(block.repeat(PART as usize));
        let previous_epoch = entry.sequence - 1;
        let message = Message::Append { config_epoch: 1, previous_epoch, commit: 0, entry };
        world.receive_with(message, &data).unwrap();
        world.turns(Ok(()));
    }
    world.copies.config(world.now_ns, GROUP, config(2, &[1], &[2]), &mut world.out);
    world.turns(Ok(()));
    world.tick();
    world.turns(Ok(()));
    assert!(world.copies.group(GROUP).unwrap().is_serving());
    let payload = [1; 2 * PART as usize * BLOCK_BYTES];
    write(&mut world, 5, 1, &payload);
    world.turns(Ok(()));
    assert!(matches!(world.out.answers[..], [(5, Answer::Done)]), "{:?}", world.out.answers);
    assert_eq!(world.copies.group(GROUP).unwrap().last(), 3, "an entry for the rest of it");
    let checksums = [0, PART - 1, PART].map(|block| {
        let place = world.copies.shard_mut().place_of(LayerId(1), 0, block);
        place.flatten().map(|(_, checksum)| checksum)
    });
    let of = |byte| Some(crc32c_block(&[byte; BLOCK_BYTES]));
    assert_eq!(checksums, [of(2), of(2), of(1)], "what was written since stays");
}

/// It waits for a block to be read, and its client has been told to go elsewhere: there it may have been done, and newer ones after it.
#[test]
fn a_change_that_waits_at_the_engine_is_not_done_in_a_later_reign_of_its_copy() {
    let mut world = World::with_group(config(1, &[1], &[2]));
    world.copies.config(world.now_ns, GROUP, config(2, &[1], &[2]), &mut world.out);
    world.turns(Ok(()));
    write(&mut world, 5, 1, &[1; BLOCK_BYTES]);
    world.turns(Ok(()));
    assert!(matches!(world.out.answers[..], [(5, Answer::Done)]), "{:?}", world.out.answers);
    write(&mut world, 6, 2, &[2; 512]);
    for config in [config(3, &[2, 1], &[]), config(4, &[1], &[2])] {
        world.copies.config(world.now_ns, GROUP, config, &mut world.out);
    }
    let answer = &world.out.answers[1..];
    assert!(matches!(answer, [(6, Answer::Refused(Refusal::NotServing))]), "{answer:?}");
    world.turns(Ok(()));
    world.tick();
    world.turns(Ok(()));
    assert!(world.copies.group(GROUP).unwrap().is_serving());
    assert_eq!(world.copies.group(GROUP).unwrap().last(), 1, "nothing of it is in the log");
    write(&mut world, 7, 3, &[3; 512]);
    world.turns(Ok(()));
    assert!(matches!(world.out.answers[2..], [(7, Answer::Done)]), "changes are taken again");
}

/// The engine's table of sessions is behind that of its group by what is not durable yet: it still knew the request, and "done" was said
/// of what the other copy did not have.
#[test]
fn a_request_of_a_session_that_was_pushed_out_is_done_when_its_change_is_committed() {
    let mut world = World::with_group(config(1, &[ME, 2], &[]));
    let state = Message::State { config_epoch: 1, history: History::default(), last: 0, durable: 0 };
    world.receive(state);
    let payload = [1; BLOCK_BYTES];
    write(&mut world, 1, 1, &payload);
    let others = 100..100 + SESSIONS_MAX as u64;
    for session in others.clone() {
        if session + 1 == others.end {
            // All that fits the table is durable here, and the last one pushes the first out.
            world.turns(Ok(()));
            assert_eq!(world.copies.shard().group(GROUP).unwrap().last, SESSIONS_MAX as u64);
        }
        ask(&mut world, session, (session, 1), BLOCK_BYTES as u32, Operation::Trim);
    }
    write(&mut world, 2, 1, &payload);
    assert!(world.out.answers.is_empty(), "{:?}", world.out.answers);
    // The session comes in again, without what was known of its first request.
    write(&mut world, 3, 2, &payload);
    write(&mut world, 4, 1, &payload);
    assert!(world.out.answers.is_empty(), "{:?}", world.out.answers);
    // Nor is the request done a second time when the engine has forgotten it, too.
    world.turns(Ok(()));
    write(&mut world, 5, 1, &payload);
    world.turns(Ok(()));
    assert!(world.out.answers.is_empty(), "{:?}", world.out.answers);
    let last = SESSIONS_MAX as u64 + 2;
    assert_eq!(world.copies.group(GROUP).unwrap().last(), last);
    world.receive(Message::AppendAck { config_epoch: 1, durable: 1 });
    let clients = |world: &World| -> Vec<u64> {
        let answers = world.out.answers.iter();
        answers.map(|(client, answer)| if matches!(answer, Answer::Done) { *client } else { 0 }).collect()
    };
    assert_eq!(clients(&world), [1, 2, 4, 5]);
    world.receive(Message::AppendAck { config_epoch: 1, durable: last });
    assert_eq!(clients(&world)[4..], others.chain([3]).collect::<Vec<u64>>());
}

/// What it waited for came to its end, and the engine was told to take new changes: of a group that had stopped.
#[test]
fn a_group_that_has_stopped_takes_no_changes_when_the_last_one_of_a_former_reign_ends() {
    let mut world = World::with_group(config(1, &[ME], &[2]));
    world.copies.config(world.now_ns, GROUP, config(2, &[ME], &[2]), &mut world.out);
    world.turns(Ok(()));
    write(&mut world, 5, 1, &[1; BLOCK_BYTES]);
    world.turns(Ok(()));
    assert!(matches!(world.out.answers[..], [(5, Answer::Done)]), "{:?}", world.out.answers);
    world.holds_reads = true;
    write(&mut world, 6, 2, &[2; 512]);
    for config in [config(3, &[2, ME], &[]), config(4, &[ME], &[2])] {
        world.copies.config(world.now_ns, GROUP, config, &mut world.out);
        world.turns(Ok(()));
    }
    world.tick();
    world.turns(Ok(()));
    assert!(world.copies.group(GROUP).unwrap().is_serving(), "it would take changes after that one");
    assert!(world.is_reading());
    // Its pool is removed.
    let forget = |world: &mut World| world.copies.forget_removed_group(world.now_ns, GROUP, &mut world.out);
    assert!(!forget(&mut world), "a change of it is still at the engine");
    assert!(world.copies.is_halted(GROUP));
    world.holds_reads = false;
    world.turns(Ok(()));
    assert_eq!(world.copies.shard().group(GROUP).unwrap().last, 1, "nothing of it is in the log");
    assert!(forget(&mut world));
}
