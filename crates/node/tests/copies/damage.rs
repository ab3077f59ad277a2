//! Damaged logs: a drive whose log cannot be replayed whole comes back as it was before, and is brought up from others.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;

use coquina_base::DriveId;
use coquina_client::{RequestKind, VolumeConnection};
use coquina_cluster::{GroupRecord, HealthCode, ProposedChange};
use coquina_control::NodeBackend;
use coquina_reactor::{Wait, monotonic_ns};

use crate::cluster::{Cluster, GROUPS, check_round, open, request, write_round};

pub const BLOCKS: u64 = 512;
const BLOCK: u64 = 4096;
/// Both copies of the superblock of the first shard.
const SUPERBLOCKS: [u64; 2] = [1 << 20, (1 << 20) + (64 << 10)];
/// Where its first segment lies, and how large segments of such a drive are.
const SEGMENTS: u64 = (1 << 20) + (128 << 10);
const SEGMENT_BYTES: u64 = 256 << 10;
/// The stream of users' data.
const HOT: u64 = 0;

fn drive_file(cluster: &Cluster, node: usize) -> File {
    let path = cluster.folder.path().join(format!("node{node}")).join("drive");
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

fn block_at(file: &File, offset: u64) -> Vec<u8> {
    let mut block = vec![0; BLOCK as usize];
    file.read_exact_at(&mut block, offset).unwrap();
    block
}

fn number(block: &[u8], at: usize, length: usize) -> u64 {
    block[at..at + length].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Headers of the frames of users' data behind the superblock's checkpoint, by number.
fn frames(file: &File) -> BTreeMap<u64, u64> {
    // A drive is filled from its start.
    let places = (SEGMENTS..64 << 20).step_by(BLOCK as usize);
    let mut frames = BTreeMap::new();
    for offset in places {
        let block = block_at(file, offset);
        if block[..4] == *b"CQFR" && number(&block, 54, 2) == HOT && number(&block, 60, 4) > 0 {
            frames.insert(number(&block, 8, 8), offset);
        }
    }
    frames
}

/// A cluster with a volume that was written in so many rounds.
pub fn written(nodes: usize, copies: u32, rounds: u64) -> (Cluster, VolumeConnection) {
    let cluster = Cluster::start(nodes, copies);
    cluster.make_volume("disk");
    let mut connection = open(&cluster, "disk");
    (1..=rounds).for_each(|round| write_round(&mut connection, BLOCKS, round));
    (cluster, connection)
}

/// Stops a node as a power cut does: what it writes while it stops is forgotten. Then a frame of its log is spoilt, with the
/// footer that repeats it: the one with this index of so many.
pub fn damage_log(cluster: &mut Cluster, node: usize, choose: impl Fn(usize) -> usize) {
    let file = drive_file(cluster, node);
    let superblocks = SUPERBLOCKS.map(|offset| block_at(&file, offset));
    cluster.stop(node);
    for (offset, block) in SUPERBLOCKS.into_iter().zip(superblocks) {
        file.write_all_at(&block, offset).unwrap();
    }
    let frames = frames(&file);
    assert!(frames.len() > 8, "{frames:?}");
    let (_, frame) = frames.iter().nth(choose(frames.len())).unwrap();
    let segment = SEGMENTS + (frame - SEGMENTS) / SEGMENT_BYTES * SEGMENT_BYTES;
    for offset in [*frame, segment + SEGMENT_BYTES - BLOCK] {
        let spoilt: Vec<u8> = block_at(&file, offset).iter().map(|byte| byte ^ 0xa5).collect();
        file.write_all_at(&spoilt, offset).unwrap();
    }
    file.sync_all().unwrap();
}

fn log_cuts(cluster: &Cluster, node: usize) -> u64 {
    let snapshot = cluster.machines[node].as_ref().unwrap().node.snapshot();
    snapshot.drives.iter().flat_map(|drive| &drive.shards).map(|shard| shard.stats.log_cuts).sum()
}

/// No group counts on a drive any more.
pub fn take_out(cluster: &Cluster, drive: DriveId) {
    cluster.change_groups(|group| {
        let (lost, in_sync) = group.in_sync.iter().partition(|shard| shard.drive == drive);
        GroupRecord { epoch: group.epoch + 1, in_sync, others: lost, ..group.clone() }
    });
}

/// All groups count on the copies that are out, and on those only.
fn change_places(cluster: &Cluster) {
    cluster.change_groups(|group| {
        let in_sync = group.others.clone();
        GroupRecord { epoch: group.epoch + 1, in_sync, others: group.in_sync.clone(), ..group.clone() }
    });
}

#[test]
fn a_drive_with_a_damaged_log_comes_back_once_others_have_taken_over() {
    let (mut cluster, mut connection) = written(3, 3, 4);
    let damaged = cluster.drive_of(0);
    damage_log(&mut cluster, 0, |frames| frames / 2);
    cluster.restart(0);
    let snapshot = cluster.machines[0].as_ref().unwrap().node.snapshot();
    assert!(snapshot.drives.is_empty(), "it serves nothing as long as groups count on it");
    assert!(snapshot.absent[0].reason.contains("acknowledged"), "{}", snapshot.absent[0].reason);
    // The others take over.
    take_out(&cluster, damaged);
    cluster.wait_for("the drive to be used again", || log_cuts(&cluster, 0) == 1);
    check_round(&mut connection, BLOCKS, 4);
    write_round(&mut connection, BLOCKS / 4, 5);
    cluster.wait_for_additions(GROUPS as usize);
    // It alone has the data then.
    change_places(&cluster);
    let mut connection = open(&cluster, "disk");
    check_round(&mut connection, BLOCKS / 4, 5);
    cluster.stop(0);
    cluster.restart(0);
    let snapshot = cluster.machines[0].as_ref().unwrap().node.snapshot();
    assert_eq!((snapshot.drives.len(), log_cuts(&cluster, 0)), (1, 0), "its log is whole again");
}

/// Nobody knows whether it will be added under the epoch under which that was proposed, and it may have nothing any more.
#[test]
fn a_drive_that_goes_when_its_copies_were_proposed_is_brought_up_under_the_next_epoch() {
    let (mut cluster, mut connection) = written(3, 3, 1);
    let damaged = cluster.drive_of(0);
    damage_log(&mut cluster, 0, |frames| frames / 2);
    take_out(&cluster, damaged);
    cluster.restart(0);
    cluster.wait_for_additions(GROUPS as usize);
    let before: Vec<u64> = cluster.service().map().groups().map(|group| group.epoch).collect();
    cluster.stop(0);
    cluster.wait_for("the next epoch to be asked for", || {
        cluster.groups_that_want(|change| change == ProposedChange::Renew) == GROUPS as usize
    });
    cluster.restart(0);
    cluster.wait_for_additions(GROUPS as usize);
    let after: Vec<u64> = cluster.service().map().groups().map(|group| group.epoch).collect();
    assert_eq!((before.len(), after.len()), (GROUPS as usize, GROUPS as usize));
    assert!(before.iter().zip(&after).all(|(before, after)| before < after), "{before:?} {after:?}");
    write_round(&mut connection, BLOCKS / 4, 2);
    // It alone has the data then.
    change_places(&cluster);
    let mut connection = open(&cluster, "disk");
    check_round(&mut connection, BLOCKS / 4, 2);
}

#[test]
fn a_damaged_log_that_a_group_counts_on_is_left_as_it_is() {
    let (mut cluster, _) = written(3, 1, 1);
    damage_log(&mut cluster, 0, |frames| frames / 2);
    let before = cluster.folder.path().join("before");
    let path = cluster.folder.path().join("node0").join("drive");
    std::fs::copy(&path, &before).unwrap();
    assert!(cluster.try_restart(0).is_err(), "there is nothing else to serve");
    assert!(std::fs::read(&path).unwrap() == std::fs::read(&before).unwrap(), "nothing is written to it");
}

/// The first frame is lost, and nothing is left of any group. Then the map counts on that copy alone, as if its addition had been
/// proposed before.
#[test]
fn groups_that_were_lost_whole_are_not_served_as_empty_ones() {
    let (mut cluster, _) = written(2, 2, 1);
    let damaged = cluster.drive_of(0);
    damage_log(&mut cluster, 0, |_| 0);
    take_out(&cluster, damaged);
    // Nobody brings it up.
    cluster.stop(1);
    cluster.restart(0);
    cluster.wait_for("the groups to be open", || cluster.groups_open(0) == GROUPS as usize);
    assert_eq!((log_cuts(&cluster, 0), cluster.live_blocks(0)), (1, 0), "nothing is left");
    cluster.stop(0);
    cluster.restart(1);
    change_places(&cluster);
    cluster.stop(1);
    cluster.restart(0);
    cluster.wait_for("all groups to be told", || {
        let snapshot = cluster.machines[0].as_ref().unwrap().node.snapshot();
        snapshot.health.iter().filter(|entry| entry.code == HealthCode::DamagedLog).count() == GROUPS as usize
    });
    let mut connection = open(&cluster, "disk");
    connection.submit(request(RequestKind::Read, 0, 0, 0));
    let mut completions = Vec::new();
    let deadline_ns = monotonic_ns() + 3_000_000_000;
    while monotonic_ns() < deadline_ns {
        connection.poll(Wait::Until(deadline_ns), &mut completions).unwrap();
    }
    assert!(completions.iter().all(|one| one.result.is_err()), "it has nothing to answer with");
}
