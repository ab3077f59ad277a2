//! A drive that comes back while the store of the map refuses changes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use coquina_cluster::{DriveRecord, Key, Record};
use coquina_control::NodeBackend;

use crate::cluster::{Cluster, check_round};
use crate::damage::{BLOCKS, damage_log, take_out, written};
use crate::store::RefusingStore;

#[test]
fn a_drive_that_the_store_did_not_take_back_is_tried_again_though_the_map_stays() {
    let (mut cluster, mut connection) = written(3, 3, 4);
    let damaged = cluster.drive_of(2);
    damage_log(&mut cluster, 2, |frames| frames / 2);
    let store = Arc::new(RefusingStore::new(cluster.store.clone()));
    cluster.restart_with(2, store.clone());
    let served = |cluster: &Cluster| cluster.machines[2].as_ref().unwrap().node.snapshot().drives.len();
    assert_eq!(served(&cluster), 0, "groups count on it");
    // The drive's record has to be changed when it is used again.
    let record = cluster.service().map().drive(damaged).unwrap().clone();
    let moved = DriveRecord { path: "/where/it/was/before".to_owned(), ..record };
    cluster.put(Key::Drive(damaged), Record::Drive(moved));
    store.refusals_left.store(2, Ordering::SeqCst);
    take_out(&cluster, damaged);
    cluster.wait_for("the store to refuse that", || store.refusals_left.load(Ordering::SeqCst) < 2);
    // Nobody changes the map from here on.
    cluster.wait_for("the drive to be used again", || served(&cluster) == 1);
    assert_eq!(store.refusals_left.load(Ordering::SeqCst), 0, "the second attempt was refused, too");
    check_round(&mut connection, BLOCKS, 4);
}
