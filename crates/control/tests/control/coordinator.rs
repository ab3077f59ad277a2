//! The embedded coordinator and its file.

use std::fs;
use std::path::Path;

use coquina_base::{Id128, LayerId, VolumeId};
use coquina_control::{
    Change, ClusterRecord, Coordinator, CoordinatorError, EmbeddedCoordinator, PlacementTable, ShardRef,
    VolumeRecord, VolumeState,
};

use super::backend::{DRIVE, open};

fn volume(number: u8) -> VolumeRecord {
    VolumeRecord {
        id: VolumeId(Id128([number; 16])),
        name: format!("volume-{number}"),
        size_bytes: 1 << 30,
        layer: LayerId(u64::from(number)),
        created_unix_ns: 7,
        state: VolumeState::Active,
        attach_generation: 1,
        shrinking_from_bytes: None,
        placement: PlacementTable { shards: vec![ShardRef { drive: DRIVE, shard: 1 }], groups: vec![0, 0] },
    }
}

fn claim_layers(coordinator: &dyn Coordinator, layer_next: u64) {
    let map = coordinator.map();
    let cluster = ClusterRecord { layer_next, ..map.cluster.value.clone() };
    coordinator.compare_and_set(Some(map.cluster.revision), Change::Cluster(cluster)).unwrap();
}

#[test]
fn changes_survive_a_restart_and_identities_stay() {
    let folder = tempfile::tempdir().unwrap();
    let first = open(folder.path());
    claim_layers(&*first, 5);
    let map = first.compare_and_set(None, Change::Volume(volume(3))).unwrap();
    let node = first.node_id();
    drop(first);
    let again = EmbeddedCoordinator::open(folder.path(), "another-name").unwrap();
    assert_eq!(again.map(), map);
    assert_eq!(again.node_id(), node);
    assert_eq!(again.map().nodes[&node].value.name, "node-a");
}

#[test]
fn a_change_on_an_old_revision_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let coordinator = open(folder.path());
    claim_layers(&*coordinator, 5);
    let change = || Change::Volume(volume(3));
    let first = coordinator.compare_and_set(None, change()).unwrap();
    let conflict = |result| matches!(result, Err(CoordinatorError::Conflict { .. }));
    assert!(conflict(coordinator.compare_and_set(None, change())));
    assert!(conflict(coordinator.compare_and_set(Some(first.revision + 1), change())));
    let second = coordinator.compare_and_set(Some(first.revision), change()).unwrap();
    assert!(second.revision > first.revision);
    assert!(conflict(coordinator.compare_and_set(Some(first.revision), Change::ForgetVolume(volume(3).id))));
    assert_eq!(coordinator.map(), second);
}

#[test]
fn a_change_that_breaks_the_map_is_refused_and_harms_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let coordinator = open(folder.path());
    claim_layers(&*coordinator, 5);
    coordinator.compare_and_set(None, Change::Volume(volume(3))).unwrap();
    let before = coordinator.map();
    let with = |change: fn(&mut VolumeRecord)| {
        let mut volume = volume(4);
        change(&mut volume);
        Change::Volume(volume)
    };
    let bad = [
        with(|volume| volume.layer = LayerId(3)),
        with(|volume| volume.layer = LayerId(5)),
        with(|volume| volume.name = "volume-3".to_owned()),
        with(|volume| volume.name = "a/b".to_owned()),
        with(|volume| volume.size_bytes = 0),
        with(|volume| volume.size_bytes = 4097),
        with(|volume| volume.size_bytes = u64::MAX - 4095),
        with(|volume| volume.placement.groups.clear()),
        with(|volume| volume.placement.groups[0] = 1),
        with(|volume| volume.placement.shards[0].shard = 2),
    ];
    for change in bad {
        let error = coordinator.compare_and_set(None, change).unwrap_err();
        assert!(matches!(error, CoordinatorError::Invalid(_)), "{error}");
    }
    let back = ClusterRecord { layer_next: 4, ..before.cluster.value.clone() };
    let result = coordinator.compare_and_set(Some(before.cluster.revision), Change::Cluster(back));
    assert!(matches!(result, Err(CoordinatorError::Invalid(_))));
    let forget = Change::ForgetDrive(DRIVE);
    let result = coordinator.compare_and_set(Some(before.drives[&DRIVE].revision), forget);
    assert!(matches!(result, Err(CoordinatorError::Invalid(_))), "a drive in use stays");
    assert_eq!(coordinator.map(), before);
    coordinator.compare_and_set(None, Change::Volume(volume(4))).unwrap();
}

fn open_error(folder: &Path) -> String {
    match EmbeddedCoordinator::open(folder, "x") {
        Ok(_) => panic!("a damaged state was accepted"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_state_file_damaged_at_any_byte_is_refused_and_the_earlier_copy_named() {
    let folder = tempfile::tempdir().unwrap();
    claim_layers(&*open(folder.path()), 5);
    let path = folder.path().join("cluster.json");
    let good = fs::read(&path).unwrap();
    for index in 0..good.len() {
        for bit in [0x01, 0x20, 0x80] {
            let mut bad = good.clone();
            bad[index] ^= bit;
            fs::write(&path, &bad).unwrap();
            let message = open_error(folder.path());
            let newer = message.contains("use a newer coquina") && index < good.len() / 2;
            let damaged = message.contains("is damaged") && message.contains("cluster.previous.json");
            assert!(newer || damaged, "byte {index}: {message}");
        }
    }
    for length in 0..good.len() {
        fs::write(&path, &good[..length]).unwrap();
        assert!(open_error(folder.path()).contains("is damaged"), "cut at {length}");
    }
    fs::write(&path, [&good[..], b" "].concat()).unwrap();
    assert!(open_error(folder.path()).contains("is damaged"));
    fs::write(&path, &good).unwrap();
    assert_eq!(open(folder.path()).map().cluster.value.layer_next, 5);
}

#[test]
fn the_earlier_copy_is_the_state_before_the_last_change() {
    let folder = tempfile::tempdir().unwrap();
    let coordinator = open(folder.path());
    claim_layers(&*coordinator, 5);
    let before = coordinator.map();
    claim_layers(&*coordinator, 6);
    drop(coordinator);
    let path = folder.path().join("cluster.json");
    fs::remove_file(&path).unwrap();
    let message = open_error(folder.path());
    assert!(message.contains("it is missing") && message.contains("copy it over"), "{message}");
    fs::copy(folder.path().join("cluster.previous.json"), &path).unwrap();
    assert_eq!(EmbeddedCoordinator::open(folder.path(), "x").unwrap().map(), before);
}

#[test]
fn a_newer_format_is_refused_with_its_number() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cluster.json");
    fs::write(&path, "{\"coquina_state\":2,\"something\":\"else\"}\n{}\n").unwrap();
    let message = open_error(folder.path());
    assert!(message.contains("format 2") && message.contains("up to 1"), "{message}");
}

#[test]
fn a_change_that_cannot_be_written_is_not_shown_and_can_be_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let coordinator = open(folder.path());
    let before = coordinator.map();
    // Works for root too, unlike taking permissions away.
    let blocker = folder.path().join("cluster.new.json");
    fs::create_dir(&blocker).unwrap();
    let cluster = ClusterRecord { layer_next: 9, ..before.cluster.value.clone() };
    let change = || Change::Cluster(cluster.clone());
    let error = coordinator.compare_and_set(Some(before.cluster.revision), change()).unwrap_err();
    assert!(error.to_string().contains("cluster.new.json"), "{error}");
    assert_eq!(coordinator.map(), before);
    assert_eq!(EmbeddedCoordinator::open(folder.path(), "x").unwrap().map(), before);
    fs::remove_dir(&blocker).unwrap();
    let after = coordinator.compare_and_set(Some(before.cluster.revision), change()).unwrap();
    assert_eq!(EmbeddedCoordinator::open(folder.path(), "x").unwrap().map(), after);
}
