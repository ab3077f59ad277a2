//! Three nodes in one process, with a map that nobody changes but the tests: data, other copies, gateways.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod cluster;
mod coordinator;
mod damage;
mod discard;
mod nbd;
mod refusal;
mod rejoin;
mod repair;
mod resized;
mod slots;
mod sockets;
mod stop;
mod store;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use coquina_base::{ClusterId, DriveId, SessionId};
use coquina_client::{ClientRequest, RequestKind, VolumeConnection};
use coquina_cluster::{GroupRecord, ShardRef};
use coquina_control::NodeBackend;
use coquina_node::{Node, NodeConfig};
use coquina_protocol::{
    Body, Header, Hello, Kind, VERSION_MAX, VERSION_MIN, decode, encode_hello, encode_plain,
};

use cluster::{Cluster, GROUPS, check_round, open, run, wait_for, write_round};

#[test]
fn data_is_the_same_through_every_node() {
    let cluster = Cluster::start(3, 3);
    cluster.make_volume("disk");
    let mut connection = open(&cluster, "disk");
    write_round(&mut connection, 512, 1);
    check_round(&mut connection, 512, 1);
    write_round(&mut connection, 512, 2);
    let mut other = open(&cluster, "disk");
    check_round(&mut other, 512, 2);
    let copies: usize = cluster
        .machines
        .iter()
        .flatten()
        .map(|machine| machine.node.snapshot().peers.iter().filter(|peer| peer.connected).count())
        .sum();
    assert_eq!(copies, 6, "each pair of copies has one connection, which both ends count");
}

#[test]
fn a_node_knows_who_has_a_volume_open_at_a_gateway() {
    let cluster = Cluster::start(1, 1);
    cluster.make_volume("disk");
    let config = NodeConfig {
        identity: None,
        drives: Vec::new(),
        native: None,
        ..cluster.node_config(cluster.folder.path(), 0)
    };
    let gateway = Node::start(config, cluster.service().clone()).unwrap();
    let node = &cluster.machines[0].as_ref().unwrap().node;
    let connections =
        || node.snapshot().volumes.iter().map(|volume| volume.counters.connections).sum::<u64>();
    let open = || {
        let mut client = TcpStream::connect(&gateway.nbd_addresses()[0]).unwrap();
        client.read_exact(&mut [0; 18]).unwrap();
        // Fixed newstyle without zeroes, then the export by its name.
        let mut request = 3u32.to_be_bytes().to_vec();
        request.extend(b"IHAVEOPT\0\0\0\x01\0\0\0\x04disk");
        client.write_all(&request).unwrap();
        client.read_exact(&mut [0; 10]).unwrap();
        client
    };
    assert_eq!(connections(), 0);
    let clients = [open(), open()];
    wait_for("the node knows", || connections() > 0);
    let [first, second] = clients;
    drop(first);
    std::thread::sleep(Duration::from_millis(200));
    assert!(connections() > 0, "one of them has it open yet");
    drop(second);
    wait_for("nobody has it open", || connections() == 0);
    let _again = open();
    wait_for("the node knows again", || connections() > 0);
    gateway.stop();
}

#[test]
fn a_burst_that_fills_the_buffer_within_a_header_is_taken_whole() {
    const PINGS: usize = 4000;
    let cluster = Cluster::start(1, 1);
    let address = cluster.machines[0].as_ref().unwrap().node.native_address();
    let hello = Hello {
        version_min: VERSION_MIN,
        version_max: VERSION_MAX,
        features: 0,
        cluster: ClusterId::default(),
        session: SessionId(7),
        shard: None,
        client: "burst",
    };
    let mut burst = Vec::new();
    encode_hello(&mut burst, &Header::new(Kind::Hello), &hello);
    let hello_bytes = burst.len();
    encode_plain(&mut burst, &Header::new(Kind::Ping));
    let ping = burst[hello_bytes..].to_vec();
    burst.extend((1..PINGS).flat_map(|_| &ping));
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(&burst).unwrap();
    let (mut answers, mut chunk, mut pings) = (Vec::new(), [0; 4096], 0);
    while pings < PINGS {
        let count = stream.read(&mut chunk).unwrap();
        assert_ne!(count, 0, "the node went away after {pings} answers");
        answers.extend_from_slice(&chunk[..count]);
        while let Some((message, consumed)) = decode(&answers).unwrap() {
            pings += usize::from(matches!(message.body, Body::PingReply));
            answers.drain(..consumed);
        }
    }
}

#[test]
fn who_announces_a_large_message_before_a_hello_is_sent_away() {
    const LENGTH_BYTES: u32 = 4 << 20;
    let cluster = Cluster::start(1, 1);
    let node = &cluster.machines[0].as_ref().unwrap().node;
    let mut stream = TcpStream::connect(node.native_address()).unwrap();
    // Less than the 10 s after which anybody who has said nothing is dropped.
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut head = Vec::new();
    let body_bytes = LENGTH_BYTES + 4;
    Header { length_bytes: LENGTH_BYTES, body_bytes, ..Header::new(Kind::Write) }.encode(&mut head);
    // As far as it goes it is a message like any other: the rest is waited for.
    assert!(decode(&head).unwrap().is_none());
    stream.write_all(&head).unwrap();
    assert_eq!(stream.read(&mut [0; 64]).unwrap(), 0, "closed without an answer");
    assert_eq!(node.snapshot().dropped_connections, 1);
}

#[test]
fn who_announces_a_large_message_without_a_volume_is_sent_away() {
    let cluster = Cluster::start(1, 1);
    let node = &cluster.machines[0].as_ref().unwrap().node;
    let mut stream = TcpStream::connect(node.native_address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut head = Vec::new();
    let hello = Hello {
        version_min: 1,
        version_max: 1,
        features: 0,
        cluster: ClusterId::default(),
        session: SessionId(5),
        shard: None,
        client: "test",
    };
    encode_hello(&mut head, &Header::new(Kind::Hello), &hello);
    let length_bytes = 4 << 20;
    Header { length_bytes, body_bytes: length_bytes + 4, ..Header::new(Kind::Write) }.encode(&mut head);
    stream.write_all(&head).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert!(matches!(decode(&answer), Ok(None | Some(_))), "at most the answer to the Hello, and the end");
    assert_eq!(node.snapshot().dropped_connections, 1);
}

#[test]
fn large_writes_are_the_same_everywhere() {
    let cluster = Cluster::start(3, 2);
    cluster.make_volume("disk");
    let mut connection = open(&cluster, "disk");
    const LENGTH: usize = 1 << 20;
    let make = |kind, token: u64| {
        let mut buffer = VolumeConnection::buffer(LENGTH);
        let words = buffer.chunks_exact_mut(8).zip(token << 32..);
        words.for_each(|(word, value)| word.copy_from_slice(&value.to_le_bytes()));
        let offset_bytes = token * LENGTH as u64 + 12_288;
        ClientRequest { token, kind, offset_bytes, length_bytes: LENGTH as u64, buffer }
    };
    let writes = (0..32).map(|token| make(RequestKind::Write, token)).collect();
    for completion in run(&mut connection, writes) {
        completion.result.unwrap();
    }
    let mut other = open(&cluster, "disk");
    let reads = (0..32).map(|token| {
        let mut request = make(RequestKind::Read, token);
        request.buffer.fill(0);
        request
    });
    for completion in run(&mut other, reads.collect()) {
        completion.result.unwrap();
        let expected = make(RequestKind::Write, completion.token).buffer;
        assert!(completion.buffer[..LENGTH] == expected[..LENGTH], "request {}", completion.token);
    }
}

#[test]
fn a_new_primary_serves_what_the_old_one_acknowledged() {
    let mut cluster = Cluster::start(3, 3);
    cluster.make_volume("disk");
    let mut connection = open(&cluster, "disk");
    write_round(&mut connection, 256, 1);
    let gone = cluster.drive_of(0);
    cluster.stop(0);
    cluster.change_groups(|group| {
        let (lost, in_sync) = group.in_sync.iter().partition(|shard| shard.drive == gone);
        GroupRecord { epoch: group.epoch + 1, in_sync, others: lost, ..group.clone() }
    });
    check_round(&mut connection, 256, 1);
    write_round(&mut connection, 256, 2);
    check_round(&mut connection, 256, 2);
    // It comes back and catches up: then it is proposed.
    cluster.restart(0);
    cluster.wait_for_additions(GROUPS as usize);
    cluster.change_groups(|group| {
        let mut in_sync = group.others.clone();
        in_sync.extend(&group.in_sync);
        GroupRecord { epoch: group.epoch + 1, in_sync, others: Vec::new(), ..group.clone() }
    });
    check_round(&mut connection, 256, 2);
}

#[test]
fn what_moved_away_is_freed_and_may_come_back() {
    let cluster = Cluster::start(3, 2);
    cluster.make_volume("disk");
    let mut connection = open(&cluster, "disk");
    write_round(&mut connection, 512, 1);
    let left = cluster.drive_of(0);
    let drives = [cluster.drive_of(1), cluster.drive_of(2)];
    let before = cluster.live_blocks(0);
    assert!(before > 0);
    // The copies on the first drive move to the one that lacks them.
    let target = |group: &GroupRecord| {
        let named = |drive: &DriveId| group.in_sync.iter().any(|shard| shard.drive == *drive);
        drives.into_iter().find(|drive| !named(drive)).map(|drive| ShardRef { drive, shard: 0 })
    };
    let concerned = |group: &GroupRecord| group.in_sync.iter().any(|shard| shard.drive == left);
    let moving = cluster.service().map().groups().filter(|group| concerned(group)).count();
    cluster.change_groups(|group| match concerned(group) {
        true => GroupRecord {
            epoch: group.epoch + 1,
            others: target(group).into_iter().collect(),
            ..group.clone()
        },
        false => group.clone(),
    });
    cluster.wait_for_additions(moving);
    cluster.change_groups(|group| match group.others.is_empty() {
        false => {
            let (gone, stays): (Vec<_>, Vec<_>) = group.in_sync.iter().partition(|shard| shard.drive == left);
            let in_sync = stays.into_iter().chain(group.others.clone()).collect();
            GroupRecord { epoch: group.epoch + 1, in_sync, others: gone, ..group.clone() }
        }
        true => group.clone(),
    });
    write_round(&mut connection, 512, 2);
    cluster.change_groups(|group| match group.others.is_empty() {
        false => GroupRecord { epoch: group.epoch + 1, others: Vec::new(), ..group.clone() },
        true => group.clone(),
    });
    check_round(&mut connection, 512, 2);
    wait_for("the space to be free", || cluster.live_blocks(0) == 0);
    write_round(&mut connection, 512, 3);
    // Back again: it has nothing, and is given everything.
    cluster.change_groups(|group| {
        let others = vec![ShardRef { drive: left, shard: 0 }];
        GroupRecord { epoch: group.epoch + 1, others, ..group.clone() }
    });
    cluster.wait_for_additions(GROUPS as usize);
    cluster.change_groups(|group| {
        let in_sync = group.others.clone();
        GroupRecord { epoch: group.epoch + 1, in_sync, others: group.in_sync.clone(), ..group.clone() }
    });
    check_round(&mut connection, 512, 3);
    assert_eq!(cluster.live_blocks(0), 512);
}

#[test]
fn a_copy_of_which_nothing_is_known_is_sent_what_differs() {
    let mut cluster = Cluster::start(3, 3);
    cluster.make_volume("disk");
    let mut connection = open(&cluster, "disk");
    write_round(&mut connection, 512, 1);
    let gone = cluster.drive_of(0);
    let is_gone = |shard: &ShardRef| shard.drive == gone;
    cluster.stop(0);
    // Nobody keeps in mind what a copy misses that is no member any more.
    cluster.change_groups(|group| {
        let in_sync = group.in_sync.iter().filter(|shard| !is_gone(shard)).copied().collect();
        GroupRecord { epoch: group.epoch + 1, in_sync, others: Vec::new(), ..group.clone() }
    });
    // Once all of it can be read, the new primaries know it committed. What they did not know to be would be sent again.
    check_round(&mut connection, 512, 1);
    // One in eight of the same blocks.
    let stride = cluster::VOLUME_BYTES / 4096 / 512;
    let change = |index: u64| cluster::request(RequestKind::Write, index, index * 8 * stride, 0xcc);
    for completion in run(&mut connection, (0..64).map(change).collect()) {
        completion.result.unwrap();
    }
    cluster.change_groups(|group| {
        let others = vec![ShardRef { drive: gone, shard: 0 }];
        GroupRecord { epoch: group.epoch + 1, others, ..group.clone() }
    });
    // Written on while it is compared.
    cluster.restart(0);
    write_round(&mut connection, 64, 2);
    cluster.wait_for_additions(GROUPS as usize);
    let sent: u64 = cluster
        .machines
        .iter()
        .flatten()
        .map(|machine| machine.node.snapshot().drives[0].shards[0].groups.clone())
        .flat_map(|groups| groups.into_iter().map(|group| group.recovered_blocks))
        .sum();
    // A range of 16 blocks for each that differs; and those alone that were written between the start of the node and the
    // begin of its stream, because they are known to be missing before anything has been compared.
    assert!(sent <= 64 * (16 + 1), "{sent} blocks were sent for 64 that differ");
    // It alone has the data then.
    cluster.change_groups(|group| {
        let in_sync = group.others.clone();
        GroupRecord { epoch: group.epoch + 1, in_sync, others: group.in_sync.clone(), ..group.clone() }
    });
    let mut connection = open(&cluster, "disk");
    check_round(&mut connection, 64, 2);
    let reads = (0..512).map(|index| cluster::request(RequestKind::Read, index, index * stride, 0));
    for completion in run(&mut connection, reads.collect()) {
        completion.result.unwrap();
        let expected = if completion.token % 8 == 0 {
            cluster::pattern(completion.token / 8, 2)
        } else {
            cluster::pattern(completion.token, 1)
        };
        assert!(completion.buffer[..4096].iter().all(|byte| *byte == expected), "block {}", completion.token);
    }
}

/// Their last configuration names them as members for ever.
#[test]
fn groups_of_a_removed_pool_are_forgotten() {
    let mut cluster = Cluster::start(3, 2);
    cluster.make_volume("disk");
    let mut connection = open(&cluster, "disk");
    write_round(&mut connection, 512, 1);
    drop(connection);
    let groups_open = |cluster: &Cluster| (0..3).map(|node| cluster.groups_open(node)).sum::<usize>();
    wait_for("the groups to be open", || groups_open(&cluster) == 2 * GROUPS as usize);
    cluster.remove_pool("disk");
    wait_for("the groups to be closed", || groups_open(&cluster) == 0);
    cluster.stop(0);
    cluster.restart(0);
    assert_eq!(cluster.groups_open(0), 0, "it does not open them again");
}

#[test]
fn an_idle_drive_file_is_prepared_once() {
    let mut cluster = Cluster::start(1, 1);
    let stats = |cluster: &Cluster| {
        let snapshot = cluster.machines[0].as_ref().unwrap().node.snapshot();
        snapshot.drives[0].shards[0].stats
    };
    wait_for("the drive to be prepared, and a checkpoint that knows it", || {
        let stats = stats(&cluster);
        stats.unprepared_bytes == 0 && stats.checkpoints > 0
    });
    let first = stats(&cluster);
    assert!(first.prewrite_bytes > (512 << 20) / 10 * 9, "{first:?}");
    cluster.stop(0);
    cluster.restart(0);
    let again = stats(&cluster);
    assert_eq!((again.prewrite_bytes, again.unprepared_bytes), (0, 0), "{again:?}");
}
