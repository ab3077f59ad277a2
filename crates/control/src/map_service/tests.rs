use std::sync::atomic::{AtomicU64, Ordering};

use coquina_base::{Id128, NodeId};
use coquina_cluster::{NodeRecord, operation};
use coquina_store::EmbeddedStore;

use super::*;

fn start(store: &EmbeddedStore, folder: &Path, create: bool) -> Result<Arc<MapService>, MapServiceError> {
    MapService::start(Arc::new(store.clone()), folder, create, &mut |error| panic!("{error}"))
}

fn node(number: u8) -> NodeRecord {
    NodeRecord {
        id: NodeId(Id128([number; 16])),
        name: format!("n{number}"),
        addresses: Default::default(),
        domains: Default::default(),
        versions: Default::default(),
        wanted: Default::default(),
    }
}

#[test]
fn a_change_is_seen_by_every_process_and_by_followers_in_order() {
    let store = EmbeddedStore::in_memory().unwrap();
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    assert!(matches!(start(&store, folders[0].path(), false), Err(MapServiceError::Empty)));
    let first = start(&store, folders[0].path(), true).unwrap();
    let second = start(&store, folders[1].path(), true).unwrap();
    assert_eq!(first.cluster(), second.cluster());

    let seen = Arc::new(AtomicU64::new(0));
    let told = seen.clone();
    second.subscribe(Box::new(move |map| {
        let revision = map.unwrap().revision();
        assert!(told.swap(revision, Ordering::SeqCst) < revision);
    }));
    std::thread::scope(|scope| {
        for (service, from) in [(&first, 1), (&second, 101)] {
            scope.spawn(move || {
                for number in from..from + 20 {
                    let record = node(number);
                    let map = service.change(&|map| operation::register_node(map, None, &record)).unwrap();
                    assert_eq!(map.node(record.id), Some(&record));
                }
            });
        }
    });
    let revision = first.read_again().unwrap().revision();
    // The last change may be of either revision.
    let has_all = |map: &MapView| map.revision() >= revision - 1 && map.nodes().count() == 40;
    assert!(second.wait_for_map(Duration::from_secs(5), has_all).is_some());
    assert!(second.wait_followed(revision - 1, Duration::from_secs(5)));
    assert_eq!(second.map().nodes().count(), 40);
    assert!(seen.load(Ordering::SeqCst) >= revision - 1);
    first.stop();
    let error = first.change(&|map| operation::register_node(map, None, &node(200))).unwrap_err();
    assert_eq!(error, ChangeError::Stopping);
    second.stop();
}

#[test]
fn a_change_that_rests_on_all_copies_conflicts_with_any_newer_drive() {
    let store = EmbeddedStore::in_memory().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let service = start(&store, folder.path(), true).unwrap();
    let map = service.change(&|map| operation::register_node(map, None, &node(1))).unwrap();
    let resting = |number: u8, since: u64| {
        let write = operation::register_node(&service.map(), None, &node(number)).unwrap().unwrap();
        service.write(Write { copies_unchanged_since: Some(since), ..write }, None)
    };
    resting(2, map.revision()).unwrap();
    let (copy_first, claim) = operation::claim_copies(&service.map(), 1, 0).unwrap();
    service.write(claim, None).unwrap();
    let drive = coquina_cluster::DriveRecord {
        id: coquina_base::DriveId(Id128([9; 16])),
        node: node(1).id,
        path: "/d".to_owned(),
        size_bytes: 1 << 30,
        capacity_bytes: 1 << 30,
        shards: 1,
        weight: 1,
        copy_first,
        state: Default::default(),
        wanted: Default::default(),
        dead_ms: 0,
    };
    let after = service.change(&|map| operation::register_drive(map, &drive)).unwrap();
    let refused = resting(3, after.revision() - 1).unwrap_err();
    assert!(matches!(refused, ChangeError::Store(StoreError::Conflict { .. })), "{refused}");
    resting(3, after.revision()).unwrap();
    service.stop();
}

#[test]
fn another_cluster_or_a_wiped_store_is_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::in_memory().unwrap();
    start(&store, folder.path(), true).unwrap().stop();
    start(&store, folder.path(), true).unwrap().stop();

    let empty = EmbeddedStore::in_memory().unwrap();
    let error = start(&empty, folder.path(), true).map(drop).unwrap_err();
    assert!(matches!(&error, MapServiceError::StoreLost { .. }), "{error}");
    assert!(error.to_string().contains("cluster.json"), "{error}");

    let other_folder = tempfile::tempdir().unwrap();
    start(&empty, other_folder.path(), true).unwrap().stop();
    let error = start(&empty, folder.path(), true).map(drop).unwrap_err();
    assert!(matches!(error, MapServiceError::OtherCluster { .. }), "{error}");
}

/// A folder in which whoever writes `cluster.json` waits for ever: what is written first is a pipe that nobody reads.
fn folder_that_hangs() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("cluster.new.json");
    assert!(std::process::Command::new("mkfifo").arg(pipe).status().unwrap().success());
    folder
}

#[test]
fn a_folder_whose_disk_hangs_keeps_nobody_from_following_the_map() {
    const PATIENCE: Duration = Duration::from_secs(10);
    let (folder, elsewhere) = (folder_that_hangs(), tempfile::tempdir().unwrap());
    let store = EmbeddedStore::in_memory().unwrap();
    let service = start(&store, folder.path(), true).unwrap();
    let other = start(&store, elsewhere.path(), true).unwrap();
    for number in 1..=2 {
        other.change(&|map| operation::register_node(map, None, &node(number))).unwrap();
        let follows = |map: &MapView| map.node(node(number).id).is_some();
        assert!(service.wait_for_map(PATIENCE, follows).is_some());
        // Beyond the next save.
        std::thread::sleep(Duration::from_millis(300));
    }
    let changed = service.change(&|map| operation::register_node(map, None, &node(3))).unwrap();
    assert!(changed.node(node(3).id).is_some());

    let (sender, told) = mpsc::channel();
    service.subscribe(Box::new(move |map| drop(sender.send(map.map(drop)))));
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), Ok(()));
    let key = coquina_cluster::Key::Cluster;
    other.write(Write::new(key, other.map().revision_of(&key), None), None).unwrap();
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), Err(MapError::Empty));

    let (sender, stopped) = mpsc::channel();
    std::thread::spawn(move || {
        service.stop();
        let _ = sender.send(());
    });
    stopped.recv_timeout(PATIENCE).unwrap();
    assert!(!folder.path().join("cluster.json").exists());
    other.stop();
}

#[test]
fn a_refusal_is_remembered_as_soon_as_the_disk_answers() {
    let folder = folder_that_hangs();
    let store = EmbeddedStore::in_memory().unwrap();
    let service = start(&store, folder.path(), true).unwrap();
    let key = coquina_cluster::Key::Cluster;
    service.write(Write::new(key, service.map().revision_of(&key), None), None).unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    while service.state().refused.is_none() {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(10));
    }
    // The first save fails now, since a pipe is not a file, and what was to be saved since is.
    let pipe = folder.path().join("cluster.new.json");
    let reader = std::fs::File::open(&pipe).unwrap();
    std::fs::remove_file(&pipe).unwrap();
    drop(reader);
    let refused = || crate::cluster_file::ClusterFile::read(folder.path()).ok().flatten()?.refused;
    while refused().is_none() {
        assert!(Instant::now() < until, "it was not remembered");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(refused(), Some(MapError::Empty.to_string()));
    service.stop();
}

#[test]
fn a_store_that_loses_the_map_stops_everything() {
    let folder = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::in_memory().unwrap();
    let service = start(&store, folder.path(), true).unwrap();
    let (sender, told) = mpsc::channel();
    service.subscribe(Box::new(move |map| drop(sender.send(map.map(drop)))));
    assert_eq!(told.recv().unwrap(), Ok(()));
    let key = coquina_cluster::Key::Cluster;
    let wipe = Write::new(key, service.map().revision_of(&key), None);
    service.write(wipe, None).unwrap();
    assert_eq!(told.recv().unwrap(), Err(MapError::Empty));
    // Before it was told: a process that is killed now must remember it.
    let remembered: crate::cluster_file::ClusterFile =
        serde_json::from_slice(&std::fs::read(folder.path().join("cluster.json")).unwrap()).unwrap();
    assert_eq!(remembered.refused, Some(MapError::Empty.to_string()));
    assert_eq!(service.state().refused, Some(MapError::Empty));
    let error = service.change(&|map| operation::register_node(map, None, &node(1))).unwrap_err();
    assert_eq!(error, ChangeError::Refused(MapError::Empty));
    service.stop();
    // Whatever the store says by then.
    let create = operation::create_cluster(service.cluster());
    let again = start(&store, tempfile::tempdir().unwrap().path(), true).unwrap();
    again.write(Write { expected_revision: again.map().revision_of(&key), ..create }, None).unwrap();
    again.stop();
    let error = start(&store, folder.path(), true).map(drop).unwrap_err();
    assert!(matches!(&error, MapServiceError::StoreLost { .. }), "{error}");
    assert!(error.to_string().contains("cluster.json"), "{error}");
}

#[test]
fn a_folder_that_cannot_be_written_is_told() {
    let folder = tempfile::tempdir().unwrap();
    // What is written first cannot be a folder.
    std::fs::create_dir(folder.path().join("cluster.new.json")).unwrap();
    let service = start(&EmbeddedStore::in_memory().unwrap(), folder.path(), true).unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    while service.state().not_remembered.is_none() {
        assert!(Instant::now() < until, "nothing is told");
        std::thread::sleep(Duration::from_millis(10));
    }
    service.change(&|map| operation::register_node(map, None, &node(1))).unwrap();
    let [entry] = &crate::health::of_process(&service.state(), "node n1")[..] else { panic!("no entry") };
    assert_eq!((entry.code.as_str(), entry.subject.as_str()), ("FOLDER_NOT_WRITTEN", "node n1"));
    assert!(entry.message.contains("cluster.new.json"), "{entry:?}");
    service.stop();
}
