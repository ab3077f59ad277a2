//! Drives fail, go missing and are removed.

use std::path::Path;
use std::sync::Arc;

use coquina_base::{DriveId, Id128};
use coquina_control::{
    AbsentDrive, Catalogue, CatalogueError, Coordinator, DriveRecord, DriveState, EmbeddedCoordinator,
    VolumeState, record_drive_state, register_drive,
};

use super::backend::{CAPACITY_BYTES, DRIVE, FakeNode, open, settle};

const GIB: u64 = 1 << 30;
/// A second drive, which the made-up node has no counters of: it counts as missing.
const OTHER: DriveId = DriveId(Id128([0xab; 16]));

fn two_drives(folder: &Path, node: &Arc<FakeNode>) -> (Arc<EmbeddedCoordinator>, Catalogue) {
    let coordinator = open(folder);
    let other = DriveRecord {
        id: OTHER,
        node: coordinator.node_id(),
        path: "/drives/other".to_owned(),
        size_bytes: CAPACITY_BYTES + 4096,
        capacity_bytes: CAPACITY_BYTES,
        shards: 1,
        state: DriveState::Healthy,
    };
    register_drive(&*coordinator, &other).unwrap();
    node.restart(&*coordinator);
    let catalogue = Catalogue::start(coordinator.clone(), node.clone()).unwrap();
    (coordinator, catalogue)
}

fn lose_other(coordinator: &dyn Coordinator, node: &FakeNode) {
    record_drive_state(coordinator, OTHER, DriveState::Missing).unwrap();
    node.memory().absent =
        vec![AbsentDrive { id: OTHER, reason: "there is no /drives/other any more".to_owned() }];
}

#[test]
fn new_volumes_go_only_where_data_is_taken() {
    let (folder, node) = (tempfile::tempdir().unwrap(), Arc::new(FakeNode::default()));
    let (coordinator, catalogue) = two_drives(folder.path(), &node);
    let both = catalogue.create("both", 40 * GIB).unwrap();
    assert!(both.placement.is_on(DRIVE) && both.placement.is_on(OTHER));
    for state in [DriveState::ReadOnly, DriveState::Missing] {
        record_drive_state(&*coordinator, OTHER, state).unwrap();
        let one = catalogue.create(&format!("{state:?}"), GIB).unwrap();
        assert!(one.placement.is_on(DRIVE) && !one.placement.is_on(OTHER), "{state:?}");
    }
    // 64 GiB of the drive that is left, less about half of the first volume (whole groups), less 2 GiB.
    let refused = catalogue.create("large", 43 * GIB);
    let about = 41 * GIB..=43 * GIB;
    assert!(matches!(refused, Err(CatalogueError::NoRoom { left_bytes, .. }) if about.contains(&left_bytes)));
    record_drive_state(&*coordinator, DRIVE, DriveState::ReadOnly).unwrap();
    assert!(matches!(catalogue.create("none", GIB), Err(CatalogueError::NoRoom { left_bytes: 0, .. })));
    record_drive_state(&*coordinator, OTHER, DriveState::Healthy).unwrap();
    assert!(catalogue.create("back", GIB).unwrap().placement.is_on(OTHER));
}

#[test]
fn a_state_is_recorded_once_and_only_for_drives_of_the_map() {
    let (folder, node) = (tempfile::tempdir().unwrap(), Arc::new(FakeNode::default()));
    let (coordinator, _catalogue) = two_drives(folder.path(), &node);
    let before = coordinator.map().revision;
    record_drive_state(&*coordinator, OTHER, DriveState::Healthy).unwrap();
    record_drive_state(&*coordinator, DriveId(Id128([1; 16])), DriveState::ReadOnly).unwrap();
    assert_eq!(coordinator.map().revision, before);
    record_drive_state(&*coordinator, OTHER, DriveState::ReadOnly).unwrap();
    assert_eq!(coordinator.map().revision, before + 1);
    drop((coordinator, _catalogue));
    let again = EmbeddedCoordinator::open(folder.path(), "node-a").unwrap();
    assert_eq!(again.map().drives[&OTHER].value.state, DriveState::ReadOnly);
}

#[test]
fn drives_are_named_by_path_identity_or_its_beginning() {
    let (folder, node) = (tempfile::tempdir().unwrap(), Arc::new(FakeNode::default()));
    let (_coordinator, catalogue) = two_drives(folder.path(), &node);
    for text in ["/drives/other", "abab", "ABABAB", &OTHER.to_string()] {
        assert_eq!(catalogue.find_drive(text).unwrap().id, OTHER, "{text}");
    }
    for text in ["", "aba", "/drives/none", "0123456789"] {
        assert!(matches!(catalogue.find_drive(text), Err(CatalogueError::DriveNotFound { .. })), "{text}");
    }
}

#[test]
fn a_drive_that_works_is_removed_only_without_volumes() {
    let (folder, node) = (tempfile::tempdir().unwrap(), Arc::new(FakeNode::default()));
    let (coordinator, catalogue) = two_drives(folder.path(), &node);
    assert!(matches!(catalogue.remove_drive(DRIVE, false), Err(CatalogueError::DriveLast { .. })));
    catalogue.create("db", GIB).unwrap();
    for lose_data in [false, true] {
        // The only one that works comes first: it is not to be had at any price.
        assert!(matches!(catalogue.remove_drive(DRIVE, lose_data), Err(CatalogueError::DriveLast { .. })));
    }
    catalogue.remove("db", Default::default()).unwrap();
    settle(&catalogue);
    catalogue.remove_drive(OTHER, false).unwrap();
    assert_eq!(node.memory().removed_drives, [OTHER]);
    assert!(!coordinator.map().drives.contains_key(&OTHER));
    assert!(coordinator.map().cluster.value.given_up_drives.is_empty(), "nothing was lost with it");
    assert!(matches!(catalogue.remove_drive(OTHER, false), Err(CatalogueError::DriveNotFound { .. })));
}

#[test]
fn a_missing_drive_takes_its_volumes_along_only_when_asked_to() {
    let (folder, node) = (tempfile::tempdir().unwrap(), Arc::new(FakeNode::default()));
    let (coordinator, catalogue) = two_drives(folder.path(), &node);
    let wide = catalogue.create("wide", GIB).unwrap();
    let removed_before = catalogue.create("removed", GIB).unwrap();
    node.write(&wide, 0);
    lose_other(&*coordinator, &node);
    catalogue.create("narrow", GIB).unwrap();
    catalogue.remove("removed", Default::default()).unwrap();
    let refused = catalogue.remove_drive(OTHER, false).unwrap_err();
    assert!(
        matches!(&refused, CatalogueError::DriveLost { volumes, .. } if volumes == &["wide"]),
        "{refused}"
    );
    assert!(refused.to_string().contains("--lose-data"));
    assert_eq!(catalogue.plan_drive_removal(OTHER, true).unwrap().volumes_lost, ["wide"]);
    assert_eq!(catalogue.info("wide").unwrap().state, VolumeState::Active, "a plan changes nothing");

    node.memory().connections = 1;
    assert!(matches!(catalogue.remove_drive(OTHER, true), Err(CatalogueError::Attached { .. })));
    node.memory().connections = 0;
    assert_eq!(catalogue.remove_drive(OTHER, true).unwrap().volumes_lost, ["wide"]);
    settle(&catalogue);
    let map = coordinator.map();
    assert_eq!(map.volumes.values().map(|volume| volume.value.name.as_str()).collect::<Vec<_>>(), ["narrow"]);
    assert!(!map.drives.contains_key(&OTHER));
    assert_eq!(map.cluster.value.given_up_drives, [OTHER]);
    let memory = node.memory();
    assert!(!memory.data.contains_key(&wide.layer), "what the other drive holds is deleted");
    assert!(!memory.data.contains_key(&removed_before.layer));
}
