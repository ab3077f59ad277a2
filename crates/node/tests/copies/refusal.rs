//! A node that refuses I/O because it cannot trust its map any more, as one of several may: it alone has seen what the store has lost, or
//! it is too old to read a record.

use std::time::{Duration, Instant};

use coquina_client::{ClientCompletion, ClientError, RequestKind, VolumeConnection};
use coquina_cluster::GroupRecord;
use coquina_control::NodeBackend;
use coquina_protocol::Status;
use coquina_reactor::{Wait, monotonic_ns};

use crate::cluster::{Cluster, VOLUME_BYTES, open, pattern, request, run};

const BLOCKS: u64 = 64;

/// Has the first node refuse I/O.
fn refuse(cluster: &Cluster) {
    let node = &cluster.machines[0].as_ref().unwrap().node;
    node.refuse_io("a test".to_owned());
    // An answer means that what was asked before was heard.
    node.snapshot();
}

/// Submits writes of blocks of all groups.
fn submit(connection: &mut VolumeConnection) {
    let stride = VOLUME_BYTES / 4096 / BLOCKS;
    // In each chunk of the stripes.
    let write = |at| request(RequestKind::Write, at, at * stride + at % 4 * 16, pattern(at, 1));
    (0..BLOCKS).for_each(|at| connection.submit(write(at)));
}

/// What is finished within a moment, or once all is.
fn poll(connection: &mut VolumeConnection, moment: Duration, finished: &mut Vec<ClientCompletion>) {
    let end = Instant::now() + moment;
    while Instant::now() < end && finished.len() < BLOCKS as usize {
        connection.poll(Wait::Until(monotonic_ns() + 10_000_000), finished).unwrap();
    }
}

/// Those of the groups that it led failed at once.
#[test]
fn clients_of_a_node_that_refuses_go_on_with_the_copies_that_take_over() {
    let cluster = Cluster::start(3, 3);
    cluster.make_volume("disk");
    let mut connection = open(&cluster, "disk");
    let mut finished = Vec::new();
    submit(&mut connection);
    poll(&mut connection, Duration::from_secs(60), &mut finished);
    assert_eq!(finished.len(), BLOCKS as usize, "all groups serve");
    finished.clear();
    let gone = cluster.drive_of(0);
    refuse(&cluster);
    submit(&mut connection);
    poll(&mut connection, Duration::from_millis(300), &mut finished);
    assert!(finished.len() < BLOCKS as usize, "some wait for another primary");
    cluster.change_groups(|group| {
        let (lost, in_sync) = group.in_sync.iter().partition(|shard| shard.drive == gone);
        GroupRecord { epoch: group.epoch + 1, in_sync, others: lost, ..group.clone() }
    });
    poll(&mut connection, Duration::from_secs(60), &mut finished);
    assert_eq!(finished.len(), BLOCKS as usize);
    finished.into_iter().for_each(|completion| completion.result.unwrap());
}

#[test]
fn a_node_that_refuses_and_has_the_only_good_copy_says_so() {
    let cluster = Cluster::start(2, 2);
    cluster.make_volume("disk");
    let mut connection = open(&cluster, "disk");
    let only = cluster.drive_of(0);
    cluster.change_groups(|group| {
        let (in_sync, others) = group.in_sync.iter().partition(|shard| shard.drive == only);
        GroupRecord { epoch: group.epoch + 1, in_sync, others, ..group.clone() }
    });
    let node = cluster.machines[0].as_ref().unwrap();
    assert!(node.service.wait_followed(cluster.service().map().revision(), Duration::from_secs(10)));
    submit(&mut connection);
    let mut finished = Vec::new();
    poll(&mut connection, Duration::from_secs(60), &mut finished);
    assert_eq!(finished.len(), BLOCKS as usize);
    finished.drain(..).for_each(|completion| completion.result.unwrap());
    refuse(&cluster);
    let refused = run(&mut connection, vec![request(RequestKind::Read, 1, 0, 0)]).remove(0).result;
    assert!(matches!(refused, Err(ClientError::Server { status: Status::Device, .. })), "{refused:?}");
}
