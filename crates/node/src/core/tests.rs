//! A reactor's loop, turned by hand, without a thread.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{TryRecvError, channel};

use coquina_base::{AlignedBuf, BLOCK_BYTES, Id128, SharedBlock};
use coquina_client::{ClientConfig, ClientRequest, RequestKind, VolumeClient};
use coquina_cluster::{ClusterRecord, Key, Record, Striping};
use coquina_engine::{FormatOptions, Identity, Piece, Shard, ShardConfig, format_drive};
use coquina_nbd::Cookie;
use coquina_protocol::{AttachedVolume, CONNECTION_BYTES_MAX};
use coquina_reactor::{
    BindTo, DriveFile, DriveOptions, Payload, ReactorConfig, SendList, SyncDevice, mailbox,
};
use tempfile::TempDir;

use super::*;
use crate::connection::{MESSAGE_NS_MAX, Protocol, REQUESTS_MAX};
use crate::gateway::Gateway;
use crate::threads::{Seed, SeedShard, core_of};

mod answers;
mod drain;
mod gone;
mod hung;
mod moved;
mod rest;

const DRIVE: DriveId = DriveId(Id128([7; 16]));
/// Turns that the release of a drive or a stop may take, of up to 10 ms each: less than a stop waits for a silent drive.
const TURNS_MAX: u32 = 1000;

/// A reactor without anything.
fn bare_core() -> Core {
    let reactor = Reactor::new(ReactorConfig::default()).unwrap();
    let (sender, mailbox) = mailbox(reactor.waker());
    let (notices, _) = channel();
    let seed = Seed {
        index: 0,
        shards: Vec::new(),
        listeners: Vec::new(),
        places: Arc::default(),
        map: Arc::default(),
        cluster: ClusterId::default(),
        node: NodeId::default(),
        notices,
        proposals: Arc::default(),
        hung: Arc::new(crate::stalls::HungShards::of(1)),
        busy_poll_ns: 0,
        bind_to: BindTo::Nothing,
    };
    Core { now_ns: boottime_ns(), ..core_of(seed, reactor, mailbox, vec![sender]) }
}

/// A reactor with the shard of a new drive.
fn core_with_drive(folder: &TempDir) -> Core {
    let mut core = bare_core();
    take_drive(&mut core, folder);
    core
}

/// Gives a reactor the shard of a new drive.
fn take_drive(core: &mut Core, folder: &TempDir) {
    let options = DriveOptions { create_bytes: Some(16 << 20), ..DriveOptions::default() };
    let file = DriveFile::open(&folder.path().join("drive"), options).unwrap();
    let mut device = SyncDevice::new(&file);
    let options = FormatOptions {
        identity: Identity { drive: DRIVE, ..Identity::default() },
        shards: 1,
        segment_bytes: 64 << 10,
        prewrite: false,
        created_unix_ns: 1,
    };
    format_drive(&mut device, &options).unwrap();
    let config = ShardConfig { copy: 1, ..ShardConfig::default() };
    let engine = Shard::open(&mut device, 0, 1, config).unwrap();
    let reference = ShardRef { drive: DRIVE, shard: 0 };
    let descriptor = file.try_clone_descriptor().unwrap();
    let seed = SeedShard { reference, copy: CopyId(1), engine, descriptor, open_ns: 0 };
    core.take_shards(vec![seed], Arc::new(Places::from_iter([(reference, (0, 0))])));
}

/// Waits for what comes within 10 ms, and takes it.
fn turn(core: &mut Core) {
    let mut completions = Vec::new();
    core.reactor.turn(Wait::Until(monotonic_ns() + 10_000_000), &mut completions).unwrap();
    core.now_ns = boottime_ns();
    completions.drain(..).for_each(|completion| core.complete(completion));
}

#[test]
fn a_reactor_that_has_nothing_to_wait_for_arms_no_timer() {
    let mut core = bare_core();
    core.gateways.list_due();
    let wait = core.wait(boottime_ns());
    assert_eq!(wait, Wait::Forever);
}

/// What shards were asked in the last round waited for the next event, or for a tick.
#[test]
fn who_ends_a_turn_for_its_length_does_not_wait_after_it() {
    let mut core = bare_core();
    core.has_more = true;
    assert_eq!(core.wait(boottime_ns()), Wait::Poll);
    core.service();
    assert_eq!(core.wait(boottime_ns()), Wait::Forever);
}

/// Two tell it of each map, and all was gone through twice.
#[test]
fn a_map_that_is_followed_already_is_not_followed_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut core = core_with_drive(&folder);
    let mut tell = |revision| {
        core.shards[0].sweep.is_due = false;
        let cluster = Record::Cluster(ClusterRecord::new(ClusterId(Id128([1; 16]))));
        let map = Arc::new(MapView::load(vec![(Key::Cluster, 1, cluster)], revision).unwrap());
        let (done, told) = channel();
        core.obey(Command::Follow { map, done });
        assert_eq!(told.try_recv(), Ok(()), "who tells it waits for nothing");
        core.shards[0].sweep.is_due
    };
    assert_eq!([5, 5, 4, 6, 6].map(&mut tell), [true, false, false, true, false]);
}

/// Lets go of the drive, as when it is removed.
fn release(core: &mut Core) {
    let (done, released) = channel();
    core.obey(Command::ReleaseDrive { drive: DRIVE, done });
    for _ in 0..TURNS_MAX {
        core.service();
        if released.try_recv().is_ok() {
            assert!(core.shards[0].released);
            return;
        }
        turn(core);
    }
    panic!("the drive is not let go of");
}

/// Each of them stayed until the drive was let go of.
#[test]
fn a_drive_that_is_slow_to_be_let_go_of_may_be_asked_for_again_and_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut core = core_with_drive(&folder);
    let asked: Vec<_> = (0..50)
        .map(|_| {
            let (done, released) = channel();
            core.obey(Command::ReleaseDrive { drive: DRIVE, done });
            released
        })
        .collect();
    assert_eq!(core.releases.len(), 1);
    release(&mut core);
    assert!(core.releases.is_empty());
    assert!(asked.iter().all(|released| released.try_recv() == Err(TryRecvError::Disconnected)));
}

/// Shares of a cached block that there are once an answer with it has been sent on. Its shard is that of another reactor.
fn shares_left(core: &mut Core) -> usize {
    let block = SharedBlock::touched_slab().swap_remove(0);
    let piece = Piece::Cached { block: block.clone(), start_bytes: 0, length_bytes: BLOCK_BYTES };
    core.emptied.push(ReadData { pieces: vec![piece], ..ReadData::default() });
    core.service();
    block.shares()
}

/// They went back with the next thing that a shard did, and where none was left there was no such thing.
#[test]
fn buffers_of_answers_are_handed_back_though_no_shard_is_left() {
    assert_eq!(shares_left(&mut bare_core()), 1, "a reactor for connections alone");
    let folder = tempfile::tempdir().unwrap();
    let mut core = core_with_drive(&folder);
    assert_eq!(shares_left(&mut core), 1, "the shard has taken it");
    release(&mut core);
    assert_eq!(shares_left(&mut core), 1, "the last shard has gone");
}

#[test]
fn who_makes_memory_for_a_drive_ends_when_it_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let mut core = core_with_drive(&folder);
    let (slabs, slabs_end) = channel::<()>();
    let (frames, frames_end) = channel::<()>();
    let shard = core.shards[0].copies_mut().shard_mut();
    shard.set_cache_memory(Box::new(move || {
        drop(slabs.clone());
        None
    }));
    shard.set_frame_memory(Box::new(move |_, _| {
        drop(frames.clone());
        None
    }));
    assert_eq!(slabs_end.try_recv(), Err(TryRecvError::Empty));
    assert_eq!(frames_end.try_recv(), Err(TryRecvError::Empty));
    release(&mut core);
    // The slot stays, but not what it had.
    assert_eq!(slabs_end.try_recv(), Err(TryRecvError::Disconnected));
    assert_eq!(frames_end.try_recv(), Err(TryRecvError::Disconnected));
}

#[test]
fn a_drive_that_comes_while_the_reactor_stops_is_closed_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let mut core = bare_core();
    core.stop();
    take_drive(&mut core, &folder);
    for _ in 0..TURNS_MAX {
        core.service();
        if core.is_stopped() {
            assert!(core.shards[0].copies().shard().is_closed());
            return;
        }
        turn(&mut core);
    }
    panic!("the stop waits for a drive that was not told");
}

/// What had been done in the turn in which a stop came was not told any more.
#[test]
fn answers_that_were_made_are_sent_before_a_stop_closes_their_connection() {
    let mut core = bare_core();
    let (index, mut theirs) = connect(&mut core, Protocol::Nbd);
    core.service();
    theirs.read_exact(&mut [0; 18]).unwrap();
    core.connections[index].volume = Some(0);
    turn(&mut core);
    core.connections[index].output.bytes().extend_from_slice(b"answers");
    core.stop();
    turn(&mut core);
    let mut rest = Vec::new();
    theirs.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"answers");
}

/// A connection, and the other end of it.
fn connect(core: &mut Core, protocol: Protocol) -> (usize, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let file = core.reactor.attach(ours.into());
    let before: Vec<usize> = core.connections.iter().map(|(index, _)| index).collect();
    core.adopt(file, protocol, None);
    let index = core.connections.iter().map(|(index, _)| index).find(|index| !before.contains(index));
    (index.unwrap(), theirs)
}

/// They went to a shard, which had no use for them, and each read had to have another one.
#[test]
fn buffers_of_nbd_answers_go_back_to_the_gateway_of_the_volume() {
    let folder = tempfile::tempdir().unwrap();
    let mut core = core_with_drive(&folder);
    core.volumes = crate::volume::tests::table_of_one();
    for volume in [7, 0] {
        let client = VolumeClient::directed(ClientConfig::new("", "disk", 1), tag::GATEWAY);
        core.gateways.insert(Gateway::new(client, volume, 1));
    }
    core.volumes.get_mut(0).unwrap().gateway = Some(1);
    let (index, _theirs) = connect(&mut core, Protocol::Nbd);
    core.connections[index].volume = Some(0);
    let mut list = SendList::new();
    list.push_buffer(AlignedBuf::zeroed(16), 0, 65536);
    core.sent(index, Completion { token: 0, result: Ok(65536), payload: Payload::Send(list) });
    let spare = [0, 1].map(|gateway| core.gateways.get_mut(gateway).unwrap().spare_buffers());
    assert_eq!(spare, [0, 1]);
}

#[test]
fn who_announces_a_message_and_sends_no_more_of_it_is_dropped() {
    let mut core = bare_core();
    let mut clients: Vec<(usize, UnixStream)> = (0..100).map(|_| connect(&mut core, Protocol::Nbd)).collect();
    // One that has nothing to say may stay.
    clients.push(connect(&mut core, Protocol::Nbd));
    for (index, client) in &mut clients[..100] {
        // The client's flags, and an option of which 4,000 bytes are still to come.
        client.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x07\0\0\x0f\xa0").unwrap();
        core.connections[*index].volume = Some(0);
    }
    clients[100].1.write_all(b"\0\0\0\x03").unwrap();
    core.connections[clients[100].0].volume = Some(0);
    for _ in 0..TURNS_MAX {
        core.service();
        turn(&mut core);
        if core.connections.iter().filter(|(_, one)| one.awaits_rest()).count() == 100 {
            break;
        }
    }
    // Without a shard it would not wake.
    core.timer_runs = false;
    core.wait(core.now_ns);
    assert!(core.timer_runs);
    let began_ns = core.now_ns;
    while core.now_ns < began_ns + MESSAGE_NS_MAX - 2_000_000_000 {
        core.housekeeping();
        core.now_ns += 1_000_000_000;
    }
    assert_eq!(core.dropped_connections, 0);
    // One goes on.
    core.connections[clients[0].0].received_ns = core.now_ns;
    for _ in 0..4 {
        core.housekeeping();
        core.now_ns += 1_000_000_000;
    }
    assert_eq!(core.dropped_connections, 99);
    assert!(!core.connections[clients[0].0].closed && !core.connections[clients[100].0].closed);
}

#[test]
fn a_reactor_whose_clients_have_nothing_to_say_sleeps() {
    let mut core = bare_core();
    let (index, _theirs) = connect(&mut core, Protocol::Nbd);
    core.connections[index].volume = Some(0);
    core.service();
    turn(&mut core);
    core.wait(core.now_ns);
    assert!(!core.timer_runs);
}

/// All its connections were looked at in each turn.
#[test]
fn a_busy_reactor_asks_its_connections_once_a_second() {
    let mut core = bare_core();
    let (index, _theirs) = connect(&mut core, Protocol::Nbd);
    core.connections[index].volume = Some(0);
    core.service();
    turn(&mut core);
    let (mut asked, mut timers, began_ns) = (0, 0, core.now_ns);
    let mut timer_ns = u64::MAX;
    for ms in 0..10_000 {
        let (now_ns, before_ns) = (began_ns + ms * 1_000_000, core.asked_ns);
        core.timer_runs &= now_ns < timer_ns;
        let had_timer = core.timer_runs;
        core.wait(now_ns);
        asked += u32::from(core.asked_ns != before_ns);
        if core.timer_runs && !had_timer {
            (timers, timer_ns) = (timers + 1, now_ns + HOUSEKEEPING_NS);
        }
    }
    assert!((9..=11).contains(&asked) && (9..=11).contains(&timers), "{asked} times, {timers} timers");
    // It sleeps as soon as the last timer has come.
    core.timer_runs = false;
    core.wait(timer_ns + HOUSEKEEPING_NS);
    assert!(!core.timer_runs);
}

/// Adds a volume's gateway that takes its shard for one of this process.
fn add_gateway(core: &mut Core) {
    core.volumes = crate::volume::tests::table_of_one();
    add_gateway_of(core, 0);
}

/// The same of the volume in this slot.
fn add_gateway_of(core: &mut Core, slot: usize) {
    let config = ClientConfig { local: vec![(DRIVE, 0)], ..ClientConfig::new("", "disk", 1) };
    let token_base = tag::GATEWAY | (core.gateways.next_number() as u64) << 32;
    let mut client = VolumeClient::directed(config, token_base);
    client.set_volume(&table_on_drive());
    let index = core.gateways.insert(Gateway::new(client, slot, 1));
    core.volumes.get_mut(slot).unwrap().gateway = Some(index);
}

/// It was turned before as well, for nothing.
#[test]
fn what_a_gateway_hands_over_is_done_in_the_same_turn_of_the_shard() {
    let folder = tempfile::tempdir().unwrap();
    let mut core = core_with_drive(&folder);
    add_gateway(&mut core);
    core.service();
    let (kind, buffer) = (RequestKind::Discard, AlignedBuf::new());
    let request = ClientRequest { token: 0, kind, offset_bytes: 0, length_bytes: 4096, buffer };
    let gateway = core.gateways.touch(0).unwrap();
    gateway.client().submit(request);
    let (turns, serial) = (core.shard_turns, core.serial_next);
    core.service();
    assert_eq!(core.serial_next, serial + 1, "the shard was asked");
    assert_eq!(core.shard_turns, turns + 1);
}

/// A volume's table: all of it is on one shard, where nobody listens.
fn table_on_drive() -> AttachedVolume {
    let shard = coquina_protocol::ShardRef { drive: DRIVE, shard: 0, address: "127.0.0.1:1".to_owned() };
    AttachedVolume {
        volume: coquina_base::VolumeId(Id128([9; 16])),
        name: "disk".to_owned(),
        size_bytes: 1 << 20,
        layer: coquina_base::LayerId(1),
        attach_generation: 1,
        map_version: 1,
        family: 1,
        group_first: 0,
        stripe_unit_bytes: Striping::PLAIN.stripe_unit_bytes,
        stripe_count: Striping::PLAIN.stripe_count,
        read_only: false,
        shards: vec![shard],
        groups: vec![0],
        nodes: Vec::new(),
    }
}

/// A reactor with a volume's gateway, whose shard is where nobody listens.
fn core_with_gateway() -> Core {
    let mut core = bare_core();
    core.volumes = crate::volume::tests::table_of_one();
    let mut client = VolumeClient::directed(ClientConfig::new("", "disk", 1), tag::GATEWAY);
    client.set_volume(&table_on_drive());
    core.gateways.insert(Gateway::new(client, 0, 1));
    core.volumes.get_mut(0).unwrap().gateway = Some(0);
    core
}

#[test]
fn what_its_client_is_told_of_counts_as_an_error_and_what_comes_again_does_not() {
    let mut core = bare_core();
    core.volumes = crate::volume::tests::table_of_one();
    let asker = Asker::Gateway { gateway: 0, part: LocalName { number: 1, attempt: 1 } };
    let request =
        InFlight { asker, volume: Some(0), started_ns: 0, serial: 0, length_bytes: 4096, kind: Kind::Write };
    for (answer, errors) in [
        (Answer::Done, 0),
        (Answer::Refused(Refusal::NotServing), 0),
        (Answer::Refused(Refusal::NoSpace), 1),
        (Answer::Failed(coquina_engine::Failure::Device), 2),
    ] {
        core.volumes.get_mut(0).unwrap().under_way = 1;
        core.count(&request, &answer);
        let volume = core.volumes.get_mut(0).unwrap();
        assert_eq!((volume.counters.errors, volume.under_way), (errors, 0), "{answer:?}");
    }
}

/// A client that is read from no further, and what it asked for is tried again.
fn client_of_what_is_tried_again(core: &mut Core) -> (usize, UnixStream) {
    let (index, theirs) = connect(core, Protocol::Nbd);
    let connection = &mut core.connections[index];
    connection.volume = Some(0);
    connection.under_way = REQUESTS_MAX;
    let key = ConnectionKey { index, generation: connection.generation };
    let volume = core.volumes.get_mut(0).unwrap();
    volume.nbd_connections.push(index);
    volume.counters.connections = 1;
    let token = core.nbd_requests.insert(NbdRequest {
        connection: key,
        cookie: Cookie(1),
        offset_bytes: 0,
        length_bytes: 4096,
        held_bytes: 0,
        answer: crate::request::Answer::Success,
        cached: None,
    }) as u64;
    let (kind, buffer) = (RequestKind::Discard, AlignedBuf::new());
    let request = ClientRequest { token, kind, offset_bytes: 0, length_bytes: 4096, buffer };
    core.gateways.touch(0).unwrap().client().submit(request);
    core.look_after_gateways();
    assert!(core.gateways.get_mut(0).unwrap().waits_in.is_none());
    (index, theirs)
}

/// The end of a connection that was read from no further came too late: what was asked for there had been sent again.
#[test]
fn a_gateway_that_tries_again_receives_from_its_clients_first() {
    let mut core = core_with_gateway();
    let (index, mut theirs) = client_of_what_is_tried_again(&mut core);
    theirs.write_all(&[0; 100]).unwrap();
    for _ in 0..2 {
        core.gateways.touch(0).unwrap();
        core.look_after_gateways();
        assert!(core.connections[index].received.is_none(), "it is received from");
        assert_eq!(core.gateways.get_mut(0).unwrap().waits_in, Some(0));
        assert_eq!(core.gateways.due_ns(), 0);
    }
    drop(theirs);
    for _ in 0..TURNS_MAX {
        turn(&mut core);
        if core.connections.get(index).is_none_or(|one| one.closed) {
            break;
        }
    }
    core.turns += 1;
    core.look_after_gateways();
    assert!(core.nbd_requests.is_empty(), "it is withdrawn");
    assert!(core.gateways.get_mut(0).unwrap().waits_in.is_none());
}

/// An NBD request for the first block.
fn nbd_request(command: u16) -> Vec<u8> {
    let mut request = 0x2560_9513_u32.to_be_bytes().to_vec();
    request.extend_from_slice(&[0, 0]);
    request.extend_from_slice(&command.to_be_bytes());
    request.extend_from_slice(&[0; 18]);
    request.extend_from_slice(&4096_u16.to_be_bytes());
    request
}

/// What a client says that opens the volume.
fn hello(core: &Core) -> Vec<u8> {
    let name = core.volumes.names().remove(0);
    let mut hello = b"\0\0\0\x03IHAVEOPT\0\0\0\x01".to_vec();
    hello.extend_from_slice(&(name.len() as u32).to_be_bytes());
    hello.extend_from_slice(name.as_bytes());
    hello
}

/// That it disconnects was received, but not yet looked at, when it was taken for gone.
#[test]
fn who_disconnects_and_sends_no_more_is_not_gone_before_that_is_received() {
    let mut core = core_with_gateway();
    let (index, mut theirs) = connect(&mut core, Protocol::Nbd);
    theirs.write_all(&[hello(&core), nbd_request(4)].concat()).unwrap();
    for _ in 0..TURNS_MAX {
        core.service();
        turn(&mut core);
        if core.connections[index].under_way > 0 {
            break;
        }
    }
    core.look_after_gateways();
    std::thread::sleep(std::time::Duration::from_millis(10));
    assert!(core.connections[index].received.is_none(), "it is received from");
    theirs.write_all(&nbd_request(2)).unwrap();
    theirs.shutdown(Shutdown::Write).unwrap();
    for _ in 0..2 {
        core.gateways.touch(0).unwrap();
        core.look_after_gateways();
        assert_eq!(core.gateways.get_mut(0).unwrap().waits_in, Some(core.turns));
        core.turns += 1;
    }
    assert!(!core.connections[index].closed);
    turn(&mut core);
    core.look_after_gateways();
    assert!(core.connections[index].closing && !core.connections[index].closed);
    assert_eq!(core.nbd_requests.len(), 1, "it is tried again");
    assert!(core.gateways.get_mut(0).unwrap().waits_in.is_none());
}
