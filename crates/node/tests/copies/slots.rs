//! Drives that come and go while a node runs: a reactor keeps the slots of those that it had.

use coquina_base::{DriveId, LayerId};
use coquina_cluster::{GroupRecord, ShardRef};
use coquina_control::NodeBackend;

use crate::cluster::{Cluster, GROUPS, check_round, open, write_round};

const BLOCKS: u64 = 512;

fn add(cluster: &Cluster, name: &str) -> DriveId {
    let path = cluster.folder.path().join(name);
    let node = &cluster.machines[0].as_ref().unwrap().node;
    node.drive_add(&format!("{}:128M", path.display()), false).unwrap()
}

fn remove(cluster: &Cluster, drive: DriveId) {
    cluster.machines[0].as_ref().unwrap().node.drive_removed(drive).unwrap();
}

/// Takes a drive away and adds it again: it gets another slot, perhaps on another reactor.
fn move_on(cluster: &Cluster, drive: DriveId, name: &str) {
    remove(cluster, drive);
    assert_eq!(add(cluster, name), drive);
}

fn live_blocks(cluster: &Cluster, drive: DriveId) -> u64 {
    let snapshot = cluster.machines[0].as_ref().unwrap().node.snapshot();
    let drive = snapshot.drives.iter().find(|one| one.id == drive).unwrap();
    drive.shards[0].stats.live_bytes / 4096
}

#[test]
fn a_new_drive_is_not_taken_for_one_that_was_removed() {
    let cluster = Cluster::with_reactors(1, 1, 2);
    cluster.make_volume("disk");
    let mut connection = open(&cluster, "disk");
    write_round(&mut connection, BLOCKS, 1);
    let one = add(&cluster, "one");
    move_on(&cluster, one, "one");
    let drives = [one, add(&cluster, "two"), add(&cluster, "three")];
    // By now both reactors have slots of it, and one of them has one that serves and one that does not.
    move_on(&cluster, one, "one");
    let node = &cluster.machines[0].as_ref().unwrap().node;
    // Where it serves there is nothing of that layer; where it was, nothing is done any more.
    node.delete_layer(ShardRef { drive: one, shard: 0 }, LayerId(1000)).unwrap();
    // All data moves to the drives that came.
    cluster.change_groups(|group| {
        let drive = drives[group.id.0 as usize % drives.len()];
        let others = vec![ShardRef { drive, shard: 0 }];
        GroupRecord { epoch: group.epoch + 1, others, ..group.clone() }
    });
    cluster.wait_for_additions(GROUPS as usize);
    cluster.change_groups(|group| {
        let in_sync = group.others.clone();
        GroupRecord { epoch: group.epoch + 1, in_sync, others: group.in_sync.clone(), ..group.clone() }
    });
    check_round(&mut connection, BLOCKS, 1);
    write_round(&mut connection, BLOCKS, 2);
    check_round(&mut connection, BLOCKS, 2);
    let live = drives.map(|drive| live_blocks(&cluster, drive));
    assert!(live.iter().all(|blocks| *blocks > 0), "{live:?}");
    assert_eq!(live.iter().sum::<u64>(), BLOCKS, "each block is on one of them");
}
