//! Bad blocks: read from other copies, repaired, told of; bytes of the drive files are changed under the nodes.

use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use coquina_base::AlignedBuf;
use coquina_client::RequestKind;
use coquina_cluster::GroupRecord;
use coquina_control::{NodeBackend, unix_ms};
use coquina_engine::ShardStats;

use crate::cluster::{Cluster, GROUPS, check_round, open, pattern, request, run, wait_for, write_round};

const BLOCKS: u64 = 512;

fn stats(cluster: &Cluster, node: usize) -> ShardStats {
    cluster.machines[node].as_ref().unwrap().node.snapshot().drives[0].shards[0].stats
}

/// Spoils a bit of each block of the tests' data in a node's drive file; gives how many.
fn spoil(cluster: &Cluster, node: usize) -> u64 {
    spoil_those(cluster, node, |_| true)
}

/// The same of blocks of some bytes.
fn spoil_those(cluster: &Cluster, node: usize, is_meant: impl Fn(u8) -> bool) -> u64 {
    let path = cluster.folder.path().join(format!("node{node}")).join("drive");
    // As the node does it: what another process writes through the page cache can meet its direct writes, and fail (`EIO`).
    let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(path).unwrap();
    let mut block = AlignedBuf::zeroed(1);
    let mut spoilt = 0;
    for number in 0..file.metadata().unwrap().len() / 4096 {
        file.read_exact_at(&mut block, number * 4096).unwrap();
        if block[0] != 0 && is_meant(block[0]) && block.iter().all(|byte| *byte == block[0]) {
            block[7] ^= 4;
            file.write_all_at(&block, number * 4096).unwrap();
            spoilt += 1;
        }
    }
    file.sync_all().unwrap();
    spoilt
}

fn scrub(cluster: &Cluster, node: usize) {
    let machine = cluster.machines[node].as_ref().unwrap();
    machine.node.scrub_start(None).unwrap();
    wait_for("the scrub", || stats(cluster, node).scrub_progress.is_none());
}

#[test]
fn bad_blocks_are_read_and_repaired_from_another_copy() {
    let mut cluster = Cluster::with_cache(3, 3, 0);
    cluster.make_volume("disk");
    let mut connection = open(&cluster, "disk");
    write_round(&mut connection, BLOCKS, 1);
    let spoilt = spoil(&cluster, 0);
    assert!(spoilt > BLOCKS - 8, "all but those of zeros");
    // Those of which it is the primary: found by clients.
    check_round(&mut connection, BLOCKS, 1);
    wait_for("the repair of what was read", || stats(&cluster, 0).bad_blocks_left == 0);
    let repaired = stats(&cluster, 0).repaired_blocks;
    assert!(repaired > 0 && repaired < spoilt, "{repaired} repaired");
    // Those of which it is a backup: found by a scrub.
    scrub(&cluster, 0);
    wait_for("the repair of what was scrubbed", || stats(&cluster, 0).bad_blocks_left == 0);
    assert_eq!(stats(&cluster, 0).repaired_blocks, spoilt);
    let found = stats(&cluster, 0).bad_blocks;
    scrub(&cluster, 0);
    assert_eq!(stats(&cluster, 0).bad_blocks, found, "nothing is bad any more");
    for node in [1, 2] {
        assert_eq!(stats(&cluster, node).bad_blocks, 0);
    }
    // What was repaired is durable.
    cluster.stop(0);
    cluster.restart(0);
    check_round(&mut connection, BLOCKS, 1);
    write_round(&mut connection, BLOCKS, 2);
    check_round(&mut connection, BLOCKS, 2);
    assert_eq!(stats(&cluster, 0).bad_blocks, 0);
}

#[test]
fn when_a_drive_was_scrubbed_and_what_came_of_it_is_known_after_a_restart() {
    let mut cluster = Cluster::with_cache(3, 3, 0);
    cluster.make_volume("disk");
    let mut connection = open(&cluster, "disk");
    write_round(&mut connection, BLOCKS, 1);
    let last = |cluster: &Cluster| {
        let snapshot = cluster.machines[0].as_ref().unwrap().node.snapshot();
        snapshot.drives[0].shards[0].last_scrub
    };
    assert_eq!(last(&cluster), None);
    let (spoilt, began) = (spoil(&cluster, 0), unix_ms());
    scrub(&cluster, 0);
    wait_for("all is repaired", || last(&cluster).is_some_and(|scrub| scrub.report.bad_blocks_left == 0));
    let scrubbed = last(&cluster).unwrap();
    assert!((began..=unix_ms()).contains(&scrubbed.ended_unix_ms), "{scrubbed:?}");
    assert_eq!((scrubbed.report.bad_blocks, scrubbed.report.repaired_blocks), (spoilt, spoilt));
    let file = cluster.folder.path().join("node0/scrubs.json");
    let kept = || std::fs::read_to_string(&file).unwrap_or_default();
    wait_for("it is kept", || kept().contains(&format!("\"repaired_blocks\": {spoilt}")));
    cluster.stop(0);
    cluster.restart(0);
    assert_eq!(last(&cluster), Some(scrubbed));
    scrub(&cluster, 0);
    wait_for("the next one counts", || last(&cluster) != Some(scrubbed));
    assert_eq!(last(&cluster).unwrap().report.bad_blocks, 0);
}

#[test]
fn parts_of_bad_blocks_are_written_with_what_the_other_copy_has() {
    let cluster = Cluster::with_cache(2, 2, 0);
    cluster.make_volume("disk");
    let mut connection = open(&cluster, "disk");
    write_round(&mut connection, BLOCKS, 1);
    assert!(spoil(&cluster, 0) > BLOCKS - 8, "all but those of zeros");
    let stride = crate::cluster::VOLUME_BYTES / 4096 / BLOCKS;
    let part = |index: u64| {
        let mut request = request(RequestKind::Write, index, index * stride, 0xee);
        request.length_bytes = 512;
        request.offset_bytes += 512;
        request
    };
    for completion in run(&mut connection, (0..BLOCKS).map(part).collect()) {
        completion.result.unwrap();
    }
    let reads = (0..BLOCKS).map(|index| request(RequestKind::Read, index, index * stride, 0));
    for completion in run(&mut connection, reads.collect()) {
        completion.result.unwrap();
        let kept = pattern(completion.token, 1);
        let bytes = &completion.buffer[..4096];
        assert!(bytes[..512].iter().chain(&bytes[1024..]).all(|byte| *byte == kept));
        assert!(bytes[512..1024].iter().all(|byte| *byte == 0xee));
    }
}

#[test]
fn what_is_bad_on_all_copies_is_an_error_until_it_is_written() {
    let cluster = Cluster::with_cache(2, 2, 0);
    cluster.make_volume("disk");
    let mut connection = open(&cluster, "disk");
    write_round(&mut connection, 16, 1);
    assert_eq!((spoil(&cluster, 0), spoil(&cluster, 1)), (16, 16));
    let stride = crate::cluster::VOLUME_BYTES / 4096 / 16;
    let reads = (0..16).map(|index| request(RequestKind::Read, index, index * stride, 0));
    for completion in run(&mut connection, reads.collect()) {
        assert!(completion.result.is_err(), "block {}", completion.token);
    }
    assert_eq!(stats(&cluster, 0).bad_blocks_left + stats(&cluster, 1).bad_blocks_left, 32);
    write_round(&mut connection, 16, 2);
    check_round(&mut connection, 16, 2);
}

#[test]
fn what_is_bad_on_all_copies_left_does_not_keep_another_from_coming_back() {
    const LOST: [u64; 3] = [5, 6, 20];
    const COUNT: u64 = 64;
    let mut cluster = Cluster::with_cache(3, 3, 0);
    cluster.make_volume("disk");
    let mut connection = open(&cluster, "disk");
    write_round(&mut connection, COUNT, 1);
    let gone = cluster.drive_of(0);
    cluster.stop(0);
    cluster.change_groups(|group| {
        let (lost, in_sync) = group.in_sync.iter().partition(|shard| shard.drive == gone);
        GroupRecord { epoch: group.epoch + 1, in_sync, others: lost, ..group.clone() }
    });
    write_round(&mut connection, COUNT, 2);
    // Each of the copies left has lost one more, which the other has.
    for (node, own) in [(1, 30), (2, 31)] {
        let meant: Vec<u8> = LOST.iter().chain([&own]).map(|index| pattern(*index, 2)).collect();
        assert!(spoil_those(&cluster, node, |byte| meant.contains(&byte)) >= 4);
    }
    cluster.restart(0);
    cluster.wait_for_additions(GROUPS as usize);
    // It serves then.
    cluster.change_groups(|group| {
        let in_sync = group.others.iter().chain(&group.in_sync).copied().collect();
        GroupRecord { epoch: group.epoch + 1, in_sync, others: Vec::new(), ..group.clone() }
    });
    check_but_lost(&mut connection, &LOST);
    wait_for("the bad blocks to be told of", || stats(&cluster, 0).bad_blocks_left == 3);
    // A scrub across copies comes to its end, a start makes no difference.
    scrub(&cluster, 0);
    cluster.stop(0);
    cluster.restart(0);
    check_but_lost(&mut connection, &LOST);
    // Whatever changes such a block heals it.
    let stride = crate::cluster::VOLUME_BYTES / 4096 / COUNT;
    let kinds = [RequestKind::Write, RequestKind::Discard, RequestKind::WriteZeroes { no_hole: true }];
    let changes = LOST.iter().zip(kinds).map(|(index, kind)| request(kind, *index, index * stride, 0x77));
    for completion in run(&mut connection, changes.collect()) {
        completion.result.unwrap();
    }
    let reads = LOST.iter().map(|index| request(RequestKind::Read, *index, index * stride, 1));
    for completion in run(&mut connection, reads.collect()) {
        completion.result.unwrap();
        let expected = if completion.token == LOST[0] { 0x77 } else { 0 };
        assert!(completion.buffer[..4096].iter().all(|byte| *byte == expected), "{}", completion.token);
    }
}

/// Reads what the second round has written: an error for what is lost, and all else as it should be.
fn check_but_lost(connection: &mut coquina_client::VolumeConnection, lost: &[u64]) {
    let stride = crate::cluster::VOLUME_BYTES / 4096 / 64;
    let reads = (0..64).map(|index| request(RequestKind::Read, index, index * stride, 0));
    for completion in run(connection, reads.collect()) {
        if lost.contains(&completion.token) {
            assert!(completion.result.is_err(), "block {} is lost", completion.token);
            continue;
        }
        completion.result.unwrap();
        let expected = pattern(completion.token, 2);
        assert!(completion.buffer[..4096].iter().all(|byte| *byte == expected), "block {}", completion.token);
    }
}
