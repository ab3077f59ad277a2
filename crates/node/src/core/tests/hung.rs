//! Requests of NBD clients that were handed to a reactor whose thread hangs.

use coquina_client::LocalName;

use super::answers::open;
use super::*;
use crate::request::Answer as NbdAnswer;

/// What was handed to a reactor since.
fn handed_over(mailbox: &Mailbox<Command>) -> Vec<LocalName> {
    let mut commands = Vec::new();
    mailbox.drain(&mut commands);
    let name = |command| match command {
        Command::Hop { part, .. } => part,
        _ => panic!("parts are handed over only"),
    };
    commands.drain(..).map(name).collect()
}

/// Has a client ask for a block.
pub fn ask(core: &mut Core, index: usize, kind: RequestKind, answer: NbdAnswer) {
    let connection = &mut core.connections[index];
    connection.under_way += 1;
    let key = ConnectionKey { index, generation: connection.generation };
    let length_bytes = BLOCK_BYTES as u32;
    let token = core.nbd_requests.insert(NbdRequest {
        connection: key,
        cookie: Cookie(1),
        offset_bytes: 0,
        length_bytes,
        held_bytes: 0,
        answer,
        cached: None,
    }) as u64;
    let buffer = AlignedBuf::zeroed(1);
    let request =
        ClientRequest { token, kind, offset_bytes: 0, length_bytes: u64::from(length_bytes), buffer };
    core.gateways.touch(0).unwrap().client().submit(request);
}

/// Tells the gateway that the volume is on this drive, in the next version of the map.
fn move_to(core: &mut Core, drive: DriveId, map_version: u64) {
    let mut table = AttachedVolume { map_version, ..table_on_drive() };
    table.shards[0].drive = drive;
    core.gateways.touch(0).unwrap().client().set_volume(&table);
    core.look_after_gateways();
}

/// They hung for as long as the thread did, wherever the group was.
#[test]
fn what_was_handed_to_a_thread_that_hangs_moves_and_its_late_answers_count_for_nothing() {
    let mut core = bare_core();
    let other = Reactor::new(ReactorConfig::default()).unwrap();
    let (sender, hung) = mailbox(other.waker());
    core.peers.push(sender);
    core.places = Arc::new(Places::from_iter([(ShardRef { drive: DRIVE, shard: 0 }, (1, 0))]));
    add_gateway(&mut core);
    let (index, mut theirs) = open(&mut core, 0);
    ask(&mut core, index, RequestKind::Write, NbdAnswer::Success);
    ask(&mut core, index, RequestKind::Read, NbdAnswer::Data);
    core.look_after_gateways();
    let first = handed_over(&hung);
    assert_eq!(first, [1, 2].map(|number| LocalName { number, attempt: 1 }));

    move_to(&mut core, DriveId(Id128([8; 16])), 2);
    assert!(handed_over(&hung).is_empty());
    let block = SharedBlock::touched_slab().swap_remove(0);
    let piece = Piece::Cached { block: block.clone(), start_bytes: 0, length_bytes: BLOCK_BYTES };
    let data = ReadData { pieces: vec![piece], ..ReadData::default() };
    let late = [Answer::Failed(coquina_engine::Failure::Device), Answer::Read(data)];
    for (part, answer) in first.into_iter().zip(late) {
        core.obey(Command::HopDone { gateway: 0, part, answer });
    }
    core.service();
    assert_eq!(block.shares(), 1, "nothing is kept of what was read");
    assert_eq!((core.nbd_requests.len(), core.gateways.get_mut(0).unwrap().handed_out), (2, 0));

    move_to(&mut core, DRIVE, 3);
    let second = handed_over(&hung);
    assert_eq!(second, [1, 2].map(|number| LocalName { number, attempt: 2 }));
    let zeroes = vec![Piece::Zeroes { length_bytes: BLOCK_BYTES }];
    let answers = [Answer::Done, Answer::Read(ReadData { pieces: zeroes, ..ReadData::default() })];
    for (part, answer) in second.into_iter().zip(answers) {
        core.obey(Command::HopDone { gateway: 0, part, answer });
    }
    core.service();
    assert!(core.nbd_requests.is_empty());
    let mut replies = vec![0; 2 * 16 + BLOCK_BYTES];
    theirs.read_exact(&mut replies).unwrap();
    assert!(replies.chunks(16).take(2).all(|reply| reply[..8] == [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0]));
}
