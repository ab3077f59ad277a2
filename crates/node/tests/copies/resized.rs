//! Volumes whose size is not the same everywhere yet.

use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use coquina_client::{ClientError, RequestKind};
use coquina_cluster::{Key, Record, VolumeRecord};

use crate::cluster::{Cluster, VOLUME_BYTES, open, request, run};

/// Blocks of the volume as it is made.
const BLOCKS: u64 = VOLUME_BYTES / 4096;

/// Keeps newer maps from a node, until what is returned is dropped.
fn hold_map(cluster: &Cluster, index: usize) -> Sender<()> {
    let (release, released) = channel::<()>();
    let (begun, has_begun) = channel();
    cluster.machines[index].as_ref().unwrap().service.subscribe(Box::new(move |_| {
        let _ = begun.send(());
        let _ = released.recv();
    }));
    has_begun.recv().unwrap();
    release
}

fn resize(cluster: &Cluster, size_bytes: u64) -> u64 {
    let map = cluster.service().map();
    let volume = map.volume_by_name("disk").unwrap().value.as_ref().clone();
    cluster.put(Key::Volume(volume.id), Record::Volume(VolumeRecord { size_bytes, ..volume }));
    cluster.service().map().revision()
}

/// They failed at once where a node had not heard of the growth.
#[test]
fn writes_to_the_grown_part_wait_for_nodes_that_have_not_heard_of_it() {
    let cluster = Cluster::start(2, 1);
    cluster.make_volume("disk");
    let held = hold_map(&cluster, 1);
    let revision = resize(&cluster, 2 * VOLUME_BYTES);
    let first = &cluster.machines[0].as_ref().unwrap().service;
    assert!(first.wait_followed(revision, Duration::from_secs(10)));
    let mut connection = open(&cluster, "disk");
    assert_eq!(connection.size_bytes(), 2 * VOLUME_BYTES, "the first node knows");
    let release = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        drop(held);
    });
    // A block in each of the new chunks, which are on both nodes.
    let writes = (0..16).map(|index| request(RequestKind::Write, index, BLOCKS + index * 16, 7)).collect();
    let began = Instant::now();
    for completion in run(&mut connection, writes) {
        assert_eq!(completion.result, Ok(()));
    }
    assert!(began.elapsed() > Duration::from_millis(200), "some waited for the second node");
    release.join().unwrap();
}

#[test]
fn what_lies_behind_the_end_after_a_shrink_fails_at_once() {
    let cluster = Cluster::start(2, 1);
    cluster.make_volume("disk");
    let mut connection = open(&cluster, "disk");
    assert_eq!(run(&mut connection, vec![request(RequestKind::Write, 0, 0, 1)])[0].result, Ok(()));
    let revision = resize(&cluster, VOLUME_BYTES / 2);
    for machine in cluster.machines.iter().flatten() {
        assert!(machine.service.wait_followed(revision, Duration::from_secs(10)));
    }
    // The client has not read what it was told meanwhile.
    assert_eq!(connection.size_bytes(), VOLUME_BYTES);
    let began = Instant::now();
    let writes =
        (0..16).map(|index| request(RequestKind::Write, index, BLOCKS - 1 - index * 16, 7)).collect();
    for completion in run(&mut connection, writes) {
        assert!(matches!(completion.result, Err(ClientError::Range { .. })), "{:?}", completion.result);
    }
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
}
