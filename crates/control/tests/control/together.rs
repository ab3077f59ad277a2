//! Several processes change the same at the same moment, or by a map that is old.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use coquina_base::{Id128, NodeId, VolumeId};
use coquina_cluster::{
    DriveCondition, DriveState, NodeRecord, OperationError, VersionRange, VolumeState, Wanted, operation,
};
use coquina_control::{Catalogue, CatalogueError, ChangeError, MapService, NoNode, api, register_node};
use coquina_store::{EmbeddedStore, StoreError};

use super::store::FaultyStore;
use super::world::{World, is_spread, volume_request};

const GIB: u64 = 1 << 30;

/// A process's map, with the way of that process to the store.
fn start(store: &EmbeddedStore, folder: &tempfile::TempDir) -> (Arc<FaultyStore>, Arc<MapService>) {
    let store = Arc::new(FaultyStore::new(store.clone()));
    let map = MapService::start(store.clone(), folder.path(), true, &mut |_| {}).unwrap();
    (store, map)
}

fn node(number: u8) -> NodeRecord {
    NodeRecord {
        id: NodeId(Id128([number; 16])),
        name: "twin".to_owned(),
        addresses: Default::default(),
        domains: Default::default(),
        versions: VersionRange { min: 1, max: 1 },
        wanted: Wanted::In,
    }
}

fn until(holds: impl Fn() -> bool) {
    for _ in 0..3000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("it has not come true");
}

/// The one of the lower identity decides first and is recorded second, and the other one has looked again by then.
#[test]
fn one_of_two_nodes_that_take_a_name_stays_and_can_start_again() {
    let store = EmbeddedStore::in_memory().unwrap();
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let (way, late) = start(&store, &folders[0]);
    let (_, early) = start(&store, &folders[1]);
    way.transactions_held.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let late_result = scope.spawn(|| register_node(&late, &node(1)));
        until(|| way.held.load(Ordering::SeqCst) > 0);
        register_node(&early, &node(2)).unwrap();
        way.transactions_held.store(false, Ordering::SeqCst);
        let refused = late_result.join().unwrap();
        let expected = OperationError::NodeNameTaken { name: "twin".to_owned(), id: node(2).id };
        assert_eq!(refused, Err(ChangeError::Operation(expected)));
    });
    let map = early.read_again().unwrap();
    assert_eq!(map.nodes().map(|node| node.value.id).collect::<Vec<_>>(), [node(2).id]);
    register_node(&early, &node(2)).unwrap();
    late.stop();
    early.stop();
}

#[test]
fn a_change_that_was_made_is_not_said_to_be_refused_since_the_store_was_lost_then() {
    let store = EmbeddedStore::in_memory().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (way, map) = start(&store, &folder);
    way.answers_lost.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let changed =
            scope.spawn(|| map.change(&|view| operation::register_node(view, None, &node(1))).map(drop));
        until(|| way.cut.load(Ordering::SeqCst));
        std::thread::sleep(Duration::from_millis(500));
        way.cut.store(false, Ordering::SeqCst);
        assert_eq!(changed.join().unwrap(), Ok(()));
    });
    assert!(map.map().node(node(1).id).is_some());
    map.stop();
}

/// Etcd makes the change that takes the last room, and says of it that there was none.
#[test]
fn a_change_that_was_made_is_not_said_to_be_refused_since_the_store_is_full_now() {
    let store = EmbeddedStore::in_memory().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (way, map) = start(&store, &folder);
    let change = |number: u8| {
        let record = NodeRecord { name: format!("node-{number}"), ..node(number) };
        map.change(&|view| operation::register_node(view, None, &record)).map(drop)
    };
    way.full_with_this.store(true, Ordering::SeqCst);
    assert_eq!(change(1), Ok(()));
    assert!(map.map().node(node(1).id).is_some());
    assert!(map.state().changes_refused.is_some(), "that it is full is told");
    // Of what was not made it is told, once.
    way.full.store(true, Ordering::SeqCst);
    let error = change(2).unwrap_err();
    assert!(matches!(error, ChangeError::Store(StoreError::Full { .. })), "{error:?}");
    assert_eq!(way.refused.load(Ordering::SeqCst), 1);
    way.full.store(false, Ordering::SeqCst);
    // Nobody knows as long as it cannot be read.
    way.full_with_this.store(true, Ordering::SeqCst);
    way.reads_cut.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let changed = scope.spawn(|| change(3));
        until(|| !way.full_with_this.load(Ordering::SeqCst));
        std::thread::sleep(Duration::from_millis(500));
        way.reads_cut.store(false, Ordering::SeqCst);
        assert_eq!(changed.join().unwrap(), Ok(()));
    });
    map.stop();
}

#[test]
fn a_change_that_is_not_seen_here_is_said_to_be_made() {
    let store = EmbeddedStore::in_memory().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let way = Arc::new(FaultyStore::new(store));
    way.watches_silent.store(true, Ordering::SeqCst);
    let map = MapService::start(way.clone(), folder.path(), true, &mut |_| {}).unwrap();
    let before = map.map().revision();
    way.reads_cut.store(true, Ordering::SeqCst);
    let error = map.change(&|view| operation::register_node(view, None, &node(1))).unwrap_err();
    assert!(matches!(error, ChangeError::NotSeen { revision, .. } if revision > before), "{error:?}");
    assert!(error.to_string().starts_with("the change was made (revision "), "{error}");
    way.reads_cut.store(false, Ordering::SeqCst);
    assert!(map.read_again().unwrap().node(node(1).id).is_some());
    map.stop();
}

#[test]
fn one_of_two_pools_of_a_name_is_made() {
    let world = World::new(2, 1);
    // The leader makes the groups, and must not be held up.
    let second = world.leader().unwrap();
    let first = world.processes.iter().find(|process| process.name != second.name).unwrap();
    let request =
        api::CreatePool { name: "fast".to_owned(), copies: 2, groups: Some(8), ..api::CreatePool::default() };
    // It has claimed its number, the lower one, before the other, and is recorded after it.
    *first.store.held_prefix.lock().unwrap() = "coquina/map/pools/";
    first.store.transactions_held.store(true, Ordering::SeqCst);
    let (made_first, made_second) = std::thread::scope(|scope| {
        let made_first = scope.spawn(|| first.catalogue.create_pool(&request));
        until(|| first.store.held.load(Ordering::SeqCst) > 0);
        let made_second = scope.spawn(|| second.catalogue.create_pool(&request));
        until(|| second.map.map().pool_by_name("fast").is_some());
        first.store.transactions_held.store(false, Ordering::SeqCst);
        (made_first.join().unwrap(), made_second.join().unwrap())
    });
    made_second.unwrap();
    let refused = made_first.unwrap_err().to_string();
    assert!(refused.contains("\"fast\" exists"), "{refused}");
    let map = second.map.read_again().unwrap();
    assert_eq!(map.pools().filter(|pool| pool.value.name == "fast").count(), 1);
}

#[test]
fn a_volume_has_as_many_copies_as_asked_for_whoever_makes_the_first_pool() {
    let world = World::new(2, 1);
    // The leader makes the groups, and must not be held up.
    let second = world.leader().unwrap();
    let first = world.processes.iter().find(|process| process.name != second.name).unwrap();
    let request =
        |name: &str, copies| api::CreateVolume { copies: Some(copies), ..volume_request(name, GIB) };
    // Both are about to make the pool `default`, one with two copies and one with a single one, which is faster.
    *first.store.held_prefix.lock().unwrap() = "coquina/map/pools/";
    first.store.transactions_held.store(true, Ordering::SeqCst);
    let (two, one) = std::thread::scope(|scope| {
        let two = scope.spawn(|| first.catalogue.create(&request("two", 2)));
        until(|| first.store.held.load(Ordering::SeqCst) > 0);
        let one = second.catalogue.create(&request("one", 1));
        first.store.transactions_held.store(false, Ordering::SeqCst);
        (two.join().unwrap().unwrap(), one.unwrap())
    });
    let map = second.map.read_again().unwrap();
    let pools = [&two, &one].map(|volume| map.pool(volume.pool).unwrap());
    assert_eq!(pools.map(|pool| (pool.name.as_str(), pool.copies)), [("copies-2", 2), ("default", 1)]);
}

#[test]
fn a_volume_that_replaced_the_one_that_was_meant_is_not_resized_and_that_is_said() {
    let world = World::new(2, 1);
    let (first, second) = (&world.processes[0], &world.processes[1]);
    let meant = first.catalogue.create(&volume_request("db", GIB)).unwrap();
    second.wait("the volume", |map| map.volume_by_name("db").is_some());
    *first.store.held_prefix.lock().unwrap() = "coquina/map/volumes/";
    first.store.transactions_held.store(true, Ordering::SeqCst);
    let held = first.store.held.load(Ordering::SeqCst);
    let resized = std::thread::scope(|scope| {
        let resized = scope.spawn(|| first.catalogue.resize("db", 2 * GIB, false, false));
        until(|| first.store.held.load(Ordering::SeqCst) > held);
        second.catalogue.remove("db", true).unwrap();
        second.catalogue.create(&volume_request("db", GIB)).unwrap();
        first.wait("the other volume", |map| {
            map.volume_by_name("db").is_some_and(|volume| volume.value.id != meant.id)
        });
        first.store.transactions_held.store(false, Ordering::SeqCst);
        resized.join().unwrap()
    });
    assert!(matches!(resized, Err(CatalogueError::Replaced { .. })), "{resized:?}");
    assert_eq!(second.catalogue.info("db").unwrap().size_bytes, GIB);
}

/// The answer to the shrink is lost, and the volume has grown again before it is found out what became of it: at first only to
/// another size than before was that noticed.
#[test]
fn what_a_volume_has_grown_by_meanwhile_is_not_cut_off() {
    let world = World::new(2, 1);
    // The leader cuts, and must be heard.
    let second = world.leader().unwrap();
    let first = world.processes.iter().find(|process| process.name != second.name).unwrap();
    first.catalogue.create(&volume_request("db", 3 * GIB)).unwrap();
    for grown_bytes in [2 * GIB, 3 * GIB] {
        second.catalogue.resize("db", 3 * GIB, false, false).unwrap();
        first.wait("its size", |map| map.volume_by_name("db").unwrap().value.size_bytes == 3 * GIB);
        first.store.answers_lost.store(true, Ordering::SeqCst);
        let resized = std::thread::scope(|scope| {
            let resized = scope.spawn(|| first.catalogue.resize("db", GIB, true, true));
            until(|| first.store.cut.load(Ordering::SeqCst));
            second.wait("the shrink", |map| {
                let volume = &map.volume_by_name("db").unwrap().value;
                volume.size_bytes == GIB && volume.shrinking_from_bytes.is_none()
            });
            second.catalogue.resize("db", grown_bytes, false, false).unwrap();
            let grown_at = second.map.map().revision();
            first.wait("it has grown", |map| map.revision() >= grown_at);
            first.store.cut.store(false, Ordering::SeqCst);
            resized.join().unwrap()
        });
        let Err(CatalogueError::Resized { from_bytes, now_bytes, .. }) = resized else {
            panic!("{resized:?}")
        };
        assert_eq!((from_bytes, now_bytes), (3 * GIB, grown_bytes));
        assert_eq!(second.catalogue.info("db").unwrap().size_bytes, grown_bytes);
    }
}

/// It was denied there, since only the map that the process follows was looked at.
#[test]
fn what_was_made_elsewhere_a_moment_ago_is_not_denied() {
    let world = World::new(1, 1);
    let process = &world.processes[0];
    let folder = tempfile::tempdir().unwrap();
    let way = Arc::new(FaultyStore::new(world.store.clone()));
    way.watches_silent.store(true, Ordering::SeqCst);
    let late = MapService::start(way.clone(), folder.path(), false, &mut |_| {}).unwrap();
    let catalogue = Catalogue::new(late.clone(), Arc::new(NoNode), None, None);

    let request = |name: &str| api::CreateVolume { copies: Some(1), ..volume_request(name, GIB) };
    let made = process.catalogue.create(&request("first")).unwrap();
    assert!(late.map().volume(made.id).is_none(), "it has not heard of it");
    assert_eq!(catalogue.info("first").unwrap().id, made.id);
    process.catalogue.create(&request("second")).unwrap();
    assert_eq!(catalogue.resize("second", 2 * GIB, false, false).unwrap().size_bytes, 2 * GIB);
    process.catalogue.create(&request("third")).unwrap();
    assert_eq!(catalogue.rename("third", "fourth").unwrap().name, "fourth");
    process.catalogue.create(&request("fifth")).unwrap();
    assert_eq!(catalogue.remove("fifth", true).unwrap().state, VolumeState::Removing);
    let pool = api::CreatePool { name: "fast".to_owned(), copies: 1, ..Default::default() };
    process.catalogue.create_pool(&pool).unwrap();
    assert_eq!(catalogue.pool("fast").unwrap().name, "fast");
    // What is nowhere is denied still, but not by who cannot know.
    assert!(matches!(catalogue.info("sixth"), Err(CatalogueError::NotFound { .. })));
    way.reads_cut.store(true, Ordering::SeqCst);
    assert!(matches!(catalogue.info("sixth"), Err(CatalogueError::Change(ChangeError::Store(_)))));
    late.stop();
}

/// What was moved away meanwhile is not lost with the drive, though this process has not heard of that.
#[test]
fn data_is_given_up_by_what_the_store_has_not_by_an_old_map() {
    let world = World::new(1, 2);
    let process = &world.processes[0];
    let request = api::CreateVolume { copies: Some(1), ..volume_request("db", GIB) };
    let volume = process.catalogue.create(&request).unwrap();
    process.wait("clean, on both drives", is_spread);
    let id = *process.node.memory().drives.keys().next().unwrap();

    let folder = tempfile::tempdir().unwrap();
    let way = Arc::new(FaultyStore::new(world.store.clone()));
    way.watches_silent.store(true, Ordering::SeqCst);
    let old = MapService::start(way, folder.path(), false, &mut |_| {}).unwrap();
    let catalogue = Catalogue::new(old.clone(), Arc::new(NoNode), None, None);

    process.map.change(&|map| operation::reweight_drive(map, id, 0)).unwrap();
    process.wait("nothing is on it", |map| !map.is_used(id));
    process.node.memory().drives.insert(id, DriveCondition::Failed);
    process.wait("missing", |map| map.drive(id).unwrap().state == DriveState::Missing);
    assert!(old.map().is_used(id), "it has not heard of it");
    let request = api::RemoveDrive { drive: id.to_string(), lose_data: true, ..Default::default() };
    let removal = catalogue.remove_drive(&request).unwrap();
    assert_eq!(removal.volumes_lost, [""; 0]);
    process.wait("the drive is gone", |map| map.drive(id).is_none());
    assert_eq!(process.map.map().volume(volume.id).unwrap().state, VolumeState::Active);
    old.stop();
}

#[test]
fn a_drive_that_comes_back_while_its_volumes_are_given_up_keeps_the_rest() {
    let world = World::new(1, 2);
    let process = &world.processes[0];
    let request = |name| api::CreateVolume { copies: Some(1), ..volume_request(name, GIB) };
    let volumes = ["first", "second"].map(|name| process.catalogue.create(&request(name)).unwrap().id);
    process.wait("clean, on both drives", is_spread);
    let id = *process.node.memory().drives.keys().next().unwrap();
    process.node.memory().drives.insert(id, DriveCondition::Failed);
    process.wait("missing", |map| map.drive(id).unwrap().state == DriveState::Missing);
    *process.store.held_prefix.lock().unwrap() = "coquina/map/volumes/";
    process.store.transactions_held.store(true, Ordering::SeqCst);
    let held = process.store.held.load(Ordering::SeqCst);
    let request = api::RemoveDrive { drive: id.to_string(), lose_data: true, ..Default::default() };
    let error = std::thread::scope(|scope| {
        let removed = scope.spawn(|| process.catalogue.remove_drive(&request));
        until(|| process.store.held.load(Ordering::SeqCst) > held);
        process.node.memory().drives.insert(id, DriveCondition::Serving);
        process.wait("it is back", |map| map.drive(id).unwrap().state == DriveState::Healthy);
        process.store.transactions_held.store(false, Ordering::SeqCst);
        removed.join().unwrap().unwrap_err()
    });
    assert!(matches!(error, CatalogueError::DriveWorks { .. }), "{error}");
    let map = process.map.read_again().unwrap();
    let active = |id: &VolumeId| map.volume(*id).is_some_and(|volume| volume.state == VolumeState::Active);
    // The change of the first was on its way when it came back.
    assert!(volumes.iter().filter(|id| active(id)).count() >= 1);
    assert_eq!(map.drive(id).unwrap().state, DriveState::Healthy);
}
