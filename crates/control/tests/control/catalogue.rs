//! Volumes are made, changed and removed, also across restarts and failing drives.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use coquina_base::{BLOCK_BYTES, VOLUME_BYTES_MAX};
use coquina_control::{Catalogue, CatalogueError, RemoveOptions, VolumeState, set_overcommit_percent};
use proptest::prelude::*;

use super::backend::{CAPACITY_BYTES, FakeNode, open, settle, start};

const GIB: u64 = 1 << 30;

fn fresh() -> (tempfile::TempDir, Arc<FakeNode>, Catalogue) {
    let folder = tempfile::tempdir().unwrap();
    let node = Arc::new(FakeNode::default());
    let catalogue = start(folder.path(), &node);
    (folder, node, catalogue)
}

#[test]
fn a_volume_is_made_spread_and_offered() {
    let (_folder, node, catalogue) = fresh();
    let volume = catalogue.create("db", GIB + 512).unwrap();
    assert_eq!(volume.size_bytes, GIB + 4096, "rounded up to whole blocks");
    assert_eq!(volume.placement.groups.len(), 128);
    assert_eq!(volume.placement.groups.iter().filter(|index| **index == 0).count(), 64);
    assert_ne!(volume.placement.shard_of_chunk(0), volume.placement.shard_of_chunk(1));
    assert_eq!(node.memory().offered[&volume.id], ("db".to_owned(), GIB + 4096));
    assert_eq!(catalogue.info("db").unwrap(), volume);
}

#[test]
fn bad_input_is_refused_with_what_to_do() {
    let (_folder, _node, catalogue) = fresh();
    catalogue.create("db", GIB).unwrap();
    let message = |result: Result<_, CatalogueError>| result.map(|_| ()).unwrap_err().to_string();
    let long = "x".repeat(300);
    for name in ["", long.as_str(), "a/b", "naïve", "..", "-x"] {
        assert!(message(catalogue.create(name, GIB)).contains("a name has 1 to 63 characters"), "{name}");
        assert!(message(catalogue.rename("db", name)).contains("a name has 1 to 63 characters"), "{name}");
    }
    assert!(message(catalogue.create("x", 0)).contains("above zero"));
    assert!(message(catalogue.create("x", 1000)).contains("not a multiple of 512"));
    assert!(message(catalogue.create("x", VOLUME_BYTES_MAX + 512)).contains("more than a volume can have"));
    assert!(message(catalogue.create("x", u64::MAX)).contains("more than a volume can have"));
    assert!(message(catalogue.create("db", GIB)).contains("exists"));
    assert!(message(catalogue.info("other")).contains("no volume \"other\""));
    assert!(message(catalogue.resize("other", GIB, false)).contains("no volume"));
    assert!(message(catalogue.resize("db", 0, true)).contains("above zero"));
    assert!(message(catalogue.rename("other", "x")).contains("no volume"));
    assert!(message(catalogue.remove("other", RemoveOptions::default())).contains("no volume"));
    assert_eq!(catalogue.list().len(), 1);
}

#[test]
fn sizes_add_up_to_the_capacity_times_overcommit_and_no_more() {
    let (folder, _node, catalogue) = fresh();
    catalogue.create("a", CAPACITY_BYTES - GIB).unwrap();
    let error = catalogue.create("b", 2 * GIB).unwrap_err().to_string();
    assert!(error.contains("1 GiB of 64 GiB are left") && error.contains("--overcommit"), "{error}");
    catalogue.create("b", GIB).unwrap();
    assert!(matches!(catalogue.create("c", 4096), Err(CatalogueError::NoRoom { left_bytes: 0, .. })));
    assert!(matches!(catalogue.resize("b", 2 * GIB, false), Err(CatalogueError::NoRoom { .. })));
    drop(catalogue);
    set_overcommit_percent(&*open(folder.path()), 150).unwrap();
    let catalogue = start(folder.path(), &Arc::new(FakeNode::default()));
    catalogue.create("c", 32 * GIB).unwrap();
    assert!(matches!(catalogue.create("d", 4096), Err(CatalogueError::NoRoom { .. })));
    catalogue.remove("a", RemoveOptions::default()).unwrap();
    catalogue.create("d", 4096).unwrap();
}

#[test]
fn a_shrink_needs_confirmation_and_growing_again_shows_nothing_old() {
    let (_folder, node, catalogue) = fresh();
    let volume = catalogue.create("db", GIB).unwrap();
    for block in [0, 1, 1000, 200_000] {
        node.write(&volume, block);
    }
    let refused = catalogue.resize("db", 1 << 20, false);
    assert!(matches!(refused, Err(CatalogueError::ShrinkNotConfirmed { .. })));
    assert_eq!(node.memory().data[&volume.layer].len(), 4);
    let shrunk = catalogue.resize("db", 1 << 20, true).unwrap();
    assert_eq!((shrunk.size_bytes, shrunk.shrinking_from_bytes), (1 << 20, None));
    catalogue.resize("db", GIB, false).unwrap();
    assert_eq!(node.memory().data[&volume.layer].iter().copied().collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn a_shrink_that_could_not_delete_is_finished_after_a_restart_and_blocks_growing_until_then() {
    let (folder, node, catalogue) = fresh();
    let volume = catalogue.create("db", GIB).unwrap();
    node.write(&volume, 200_000);
    node.memory().refuse_changes = true;
    let shrunk = catalogue.resize("db", 1 << 20, true).unwrap();
    assert_eq!(shrunk.shrinking_from_bytes, Some(GIB));
    assert!(matches!(catalogue.resize("db", GIB, false), Err(CatalogueError::Shrinking { .. })));
    let smaller = catalogue.resize("db", 4096, true).unwrap();
    assert_eq!(smaller.shrinking_from_bytes, Some(GIB), "the first end is not forgotten");
    drop(catalogue);
    node.memory().refuse_changes = false;
    let catalogue = start(folder.path(), &node);
    settle(&catalogue);
    catalogue.resize("db", GIB, false).unwrap();
    assert!(node.memory().data[&volume.layer].is_empty());
}

#[test]
fn a_removal_that_could_not_delete_is_finished_after_a_restart_and_frees_the_name_at_once() {
    let (folder, node, catalogue) = fresh();
    let volume = catalogue.create("db", GIB).unwrap();
    node.write(&volume, 7);
    node.memory().refuse_changes = true;
    assert_eq!(catalogue.remove("db", RemoveOptions::default()).unwrap().state, VolumeState::Removing);
    assert!(node.memory().offered.is_empty());
    let second = catalogue.create("db", GIB).unwrap();
    assert_ne!(second.layer, volume.layer);
    node.write(&second, 9);
    assert_eq!(catalogue.list().len(), 2);
    drop(catalogue);
    node.memory().refuse_changes = false;
    let catalogue = start(folder.path(), &node);
    settle(&catalogue);
    assert_eq!(catalogue.list().iter().map(|volume| volume.id).collect::<Vec<_>>(), [second.id]);
    let memory = node.memory();
    assert_eq!(memory.data.keys().copied().collect::<Vec<_>>(), [second.layer]);
    assert!(memory.data[&second.layer].contains(&9));
}

#[test]
fn a_volume_in_use_is_removed_only_by_force() {
    let (_folder, node, catalogue) = fresh();
    catalogue.create("db", GIB).unwrap();
    node.memory().connections = 2;
    let error = catalogue.remove("db", RemoveOptions::default()).unwrap_err().to_string();
    assert!(error.contains("in use by 2 connection(s)") && error.contains("--force"), "{error}");
    assert_eq!(catalogue.info("db").unwrap().state, VolumeState::Active);
    catalogue.remove("db", RemoveOptions { force: true }).unwrap();
    settle(&catalogue);
    assert!(catalogue.list().is_empty());
}

#[test]
fn a_rename_keeps_the_data_and_frees_the_old_name() {
    let (_folder, node, catalogue) = fresh();
    let volume = catalogue.create("old", GIB).unwrap();
    catalogue.create("taken", GIB).unwrap();
    assert!(matches!(catalogue.rename("old", "taken"), Err(CatalogueError::Duplicate { .. })));
    let renamed = catalogue.rename("old", "new").unwrap();
    assert_eq!((renamed.id, renamed.layer), (volume.id, volume.layer));
    assert_eq!(node.memory().offered[&volume.id].0, "new");
    assert!(catalogue.info("old").is_err());
    catalogue.create("old", GIB).unwrap();
    assert_eq!(catalogue.rename("new", "new").unwrap().name, "new");
}

#[derive(Clone, Debug)]
enum Step {
    Create(u8, u64),
    Resize(u8, u64, bool),
    Rename(u8, u8),
    Remove(u8),
    Write(u8, u64),
    RefuseChanges(bool),
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = 0u8..4;
    let size =
        prop_oneof![(1u64..64).prop_map(|sectors| sectors * 512), (1u64..40).prop_map(|gib| gib * GIB)];
    let step = prop_oneof![
        4 => (name.clone(), size.clone()).prop_map(|(name, size)| Step::Create(name, size)),
        4 => (name.clone(), size, any::<bool>()).prop_map(|(name, size, allow)| Step::Resize(name, size, allow)),
        2 => (name.clone(), name.clone()).prop_map(|(from, to)| Step::Rename(from, to)),
        2 => name.clone().prop_map(Step::Remove),
        6 => (name, any::<u64>()).prop_map(|(name, block)| Step::Write(name, block)),
        1 => any::<bool>().prop_map(Step::RefuseChanges),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..40)
}

/// What a volume must be: its size, and its blocks that hold data.
type Model = BTreeMap<String, (u64, HashSet<u64>)>;

fn apply(catalogue: &Catalogue, node: &FakeNode, model: &mut Model, layers: &mut HashSet<u64>, step: &Step) {
    let named = |number: &u8| format!("v{number}");
    let used: u64 = model.values().map(|(size, _)| *size).sum();
    match step {
        Step::Create(number, size) => {
            let (name, size) = (named(number), size.next_multiple_of(BLOCK_BYTES as u64));
            let possible = !model.contains_key(&name) && used + size <= CAPACITY_BYTES;
            let created = catalogue.create(&name, size);
            assert_eq!(created.is_ok(), possible, "{created:?}");
            if let Ok(volume) = created {
                assert!(layers.insert(volume.layer.0), "a layer is never given out twice");
                model.insert(name, (size, HashSet::new()));
            }
        }
        Step::Resize(number, size, allow) => {
            let (name, size) = (named(number), size.next_multiple_of(BLOCK_BYTES as u64));
            let result = catalogue.resize(&name, size, *allow);
            let Some((present, blocks)) = model.get_mut(&name) else {
                assert!(matches!(result, Err(CatalogueError::NotFound { .. })));
                return;
            };
            let fits = used - *present + size <= CAPACITY_BYTES;
            match result {
                Ok(volume) => {
                    assert!(size >= *present && (size == *present || fits) || size < *present && *allow);
                    assert_eq!(volume.size_bytes, size);
                    *present = size;
                    blocks.retain(|block| (block + 1) * BLOCK_BYTES as u64 <= size);
                }
                Err(CatalogueError::ShrinkNotConfirmed { .. }) => assert!(size < *present && !allow),
                Err(CatalogueError::NoRoom { .. }) => assert!(!fits),
                Err(CatalogueError::Shrinking { .. }) => assert!(size > *present),
                Err(other) => panic!("{other}"),
            }
        }
        Step::Rename(from, to) => {
            let (from, to) = (named(from), named(to));
            let possible = model.contains_key(&from) && (from == to || !model.contains_key(&to));
            assert_eq!(catalogue.rename(&from, &to).is_ok(), possible);
            if possible && let Some(volume) = model.remove(&from) {
                model.insert(to, volume);
            }
        }
        Step::Remove(number) => {
            let removed = catalogue.remove(&named(number), RemoveOptions::default());
            assert_eq!(removed.is_ok(), model.remove(&named(number)).is_some());
        }
        Step::Write(number, block) => {
            if let Some((size, blocks)) = model.get_mut(&named(number)) {
                let block = block % (*size / BLOCK_BYTES as u64);
                node.write(&catalogue.info(&named(number)).unwrap(), block);
                blocks.insert(block);
            }
        }
        Step::RefuseChanges(refuse) => node.memory().refuse_changes = *refuse,
        Step::Restart => {}
    }
}

fn check(catalogue: &Catalogue, node: &FakeNode, model: &Model) {
    let active: Vec<_> =
        catalogue.list().into_iter().filter(|volume| volume.state == VolumeState::Active).collect();
    assert_eq!(
        active.iter().map(|volume| &volume.name).collect::<Vec<_>>(),
        model.keys().collect::<Vec<_>>()
    );
    let memory = node.memory();
    assert_eq!(memory.offered.len(), model.len());
    for volume in &active {
        let (size, blocks) = &model[&volume.name];
        assert_eq!(volume.size_bytes, *size);
        assert_eq!(memory.offered[&volume.id], (volume.name.clone(), *size));
        let visible: HashSet<u64> = memory
            .data
            .get(&volume.layer)
            .into_iter()
            .flatten()
            .copied()
            .filter(|block| block * (BLOCK_BYTES as u64) < *size)
            .collect();
        assert_eq!(&visible, blocks, "exactly what was written to {} is there", volume.name);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_catalogue_is_a_map_of_names_to_sizes(steps in steps()) {
        let folder = tempfile::tempdir().unwrap();
        let node = Arc::new(FakeNode::default());
        let (mut model, mut layers) = (Model::new(), HashSet::new());
        let mut catalogue = Some(start(folder.path(), &node));
        for step in &steps {
            if matches!(step, Step::Restart) {
                drop(catalogue.take());
            }
            let catalogue = catalogue.get_or_insert_with(|| start(folder.path(), &node));
            apply(catalogue, &node, &mut model, &mut layers, step);
            check(catalogue, &node, &model);
        }
        node.memory().refuse_changes = false;
        drop(catalogue.take());
        let catalogue = start(folder.path(), &node);
        settle(&catalogue);
        check(&catalogue, &node, &model);
        let live: HashSet<_> = catalogue.list().iter().map(|volume| volume.layer).collect();
        prop_assert!(node.memory().data.keys().all(|layer| live.contains(layer)), "removed data is deleted");
    }
}
