//! Drives that come and go while a node runs: a reactor keeps the slots of those that it had.

use coquina_base::{DriveId, Id128, LayerId, NodeId};
use coquina_cluster::{DriveRecord, GroupRecord, Key, Record, ShardRef};
use coquina_control::{CopyTotals, HeartbeatService, NodeBackend};

use crate::cluster::{Cluster, GROUPS, check_round, open, wait_for, write_round};

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

/// They fell when a group was forgotten, and when the other copies were none any more.
#[test]
fn what_was_sent_to_copies_is_still_counted_when_groups_and_links_are_gone() {
    let cluster = Cluster::start(2, 1);
    cluster.make_volume("disk");
    let mut connection = open(&cluster, "disk");
    write_round(&mut connection, BLOCKS, 1);
    let drives = [cluster.drive_of(0), cluster.drive_of(1)];
    let snapshot = |index: usize| cluster.machines[index].as_ref().unwrap().node.snapshot();
    let totals = || [snapshot(0), snapshot(1)].map(|snapshot| snapshot.copy_totals);
    let mut first: Option<[CopyTotals; 2]> = None;
    for round in 1..=3 {
        // All groups change sides. Of those that are gone then, and the way to them, it is still known what they did.
        cluster.change_groups(|group| {
            let drive = if group.in_sync[0].drive == drives[0] { drives[1] } else { drives[0] };
            let others = vec![ShardRef { drive, shard: 0 }];
            GroupRecord { epoch: group.epoch + 1, others, ..group.clone() }
        });
        cluster.wait_for_additions(GROUPS as usize);
        let before = totals();
        // As much is done again, by other groups and over other connections.
        let counts: [fn(&CopyTotals) -> u64; 3] =
            [|one| one.recovered_blocks, |one| one.sent_bytes, |one| one.received_bytes];
        for count in counts {
            let all = |totals: &[CopyTotals; 2]| totals.iter().map(count).sum::<u64>();
            let least = first.as_ref().map_or(BLOCKS, |first| all(first) * round * 5 / 6);
            assert!(all(&before) >= least, "{first:?}, {before:?}");
        }
        first.get_or_insert(before);
        cluster.change_groups(|group| {
            let in_sync = group.others.clone();
            GroupRecord { epoch: group.epoch + 1, in_sync, others: Vec::new(), ..group.clone() }
        });
        wait_for("no links", || (0..2).all(|index| snapshot(index).peers.is_empty()));
        let groups_open = || cluster.groups_open(0) + cluster.groups_open(1);
        wait_for("groups to be forgotten", || groups_open() == GROUPS as usize);
        check_round(&mut connection, BLOCKS, 1);
        for (before, now) in before.iter().zip(totals()) {
            assert!(now.recovered_blocks >= before.recovered_blocks, "{before:?}, {now:?}");
            assert!(now.sent_bytes >= before.sent_bytes, "{before:?}, {now:?}");
            assert!(now.received_bytes >= before.received_bytes, "{before:?}, {now:?}");
        }
    }
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

/// Its former node kept groups and links, and broke the connections of the other one again and again.
#[test]
fn a_node_lets_go_of_a_drive_that_belongs_to_another_node() {
    let cluster = Cluster::start(3, 2);
    cluster.make_volume("disk");
    let mut connection = open(&cluster, "disk");
    write_round(&mut connection, BLOCKS, 1);
    let [first, second] = [0, 1].map(|index: usize| cluster.machines[index].as_ref().unwrap());
    let heartbeat =
        HeartbeatService::start(first.service.clone(), first.node.clone(), NodeId(Id128([1; 16])), None);
    let moved = cluster.drive_of(0);
    let has_links = || !first.node.snapshot().peers.is_empty();
    assert!(has_links() && cluster.groups_open(0) > 0);
    // As if another node had registered it, which has it by another way.
    let record = cluster.service().map().drive(moved).unwrap().clone();
    cluster.put(
        Key::Drive(moved),
        Record::Drive(DriveRecord { node: NodeId(Id128([2; 16])), ..record.clone() }),
    );
    wait_for("no links", || !has_links());
    wait_for("the drive to be let go of", || first.node.snapshot().drives.is_empty());
    // Only one that nobody holds can be opened.
    assert_eq!(second.node.drive_add(&record.path, false).unwrap(), moved);
    check_round(&mut connection, BLOCKS, 1);
    write_round(&mut connection, BLOCKS, 2);
    check_round(&mut connection, BLOCKS, 2);
    heartbeat.unwrap().stop(&|| false);
}
