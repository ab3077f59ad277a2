//! Leaders, nodes and stores fail.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use coquina_base::NodeId;
use coquina_cluster::{HealthCode, Key, MapView, Severity, Wanted, Write, operation};
use coquina_control::{ChangeError, CoordinatorConfig, CoordinatorService, MapService, MapServiceError, api};
use coquina_store::{EmbeddedStore, Operation, Store, Transaction};

use super::world::{Process, World, is_clean, register_node, unknown_node, volume_request};

const GIB: u64 = 1 << 30;

fn has_primary_on(map: &MapView, node: NodeId) -> bool {
    map.groups().any(|group| group.primary().and_then(|shard| map.node_of(shard)) == Some(node))
}

fn is_in_sync_on(map: &MapView, node: NodeId) -> bool {
    map.groups().any(|group| group.in_sync.iter().any(|shard| map.node_of(*shard) == Some(node)))
}

fn prepared() -> World {
    let world = World::new(3, 1);
    let leader = world.leader().unwrap();
    leader.catalogue.create(&volume_request("db", GIB)).unwrap();
    for process in &world.processes {
        process.wait("clean", is_clean);
    }
    world
}

fn leader_and_other(world: &World) -> (&Process, &Process) {
    let leader = world.leader().unwrap();
    let other = world.processes.iter().find(|process| process.name != leader.name).unwrap();
    (leader, other)
}

/// The same of three.
fn leader_and_others(world: &World) -> (&Process, &Process, &Process) {
    let (leader, other) = leader_and_other(world);
    let mut rest =
        world.processes.iter().filter(|process| ![&leader.name, &other.name].contains(&&process.name));
    (leader, other, rest.next().unwrap())
}

/// It was told as a warning while the other copy was out, though nothing could repair it.
#[test]
fn bad_blocks_are_an_error_while_no_other_copy_is_in_sync() {
    let world = World::new(3, 1);
    let (leader, other, third) = leader_and_others(&world);
    let request = api::CreateVolume { copies: Some(2), ..volume_request("db", GIB) };
    leader.catalogue.create(&request).unwrap();
    leader.wait("clean", is_clean);
    leader.node.memory().bad_blocks = 1;
    let severity = || {
        let entries = leader.client().health().unwrap().entries;
        entries.into_iter().find(|entry| entry.code == HealthCode::BadBlocks).map(|entry| entry.severity)
    };
    assert_eq!(severity(), Some(Severity::Warning));
    leader.node.memory().moves_hang = true;
    other.node.memory().moves_hang = true;
    third.kill();
    let id = third.catalogue.node().unwrap();
    leader.wait("nothing in sync there", |map| !is_in_sync_on(map, id));
    assert_eq!(severity(), Some(Severity::Error));
}

#[test]
fn another_process_leads_when_the_leader_is_killed_and_its_node_is_found_dead_at_once() {
    let world = prepared();
    let (leader, other) = leader_and_other(&world);
    let id = leader.catalogue.node().unwrap();
    let killed = Instant::now();
    leader.kill();
    other.wait("other primaries", |map| !has_primary_on(map, id));
    println!("new primaries {} ms after the leader was killed", killed.elapsed().as_millis());
    world.wait_for("another leader", |world| world.leader().is_some());
    other.wait("nothing in sync there", |map| !is_in_sync_on(map, id));
    let entries = other.client().health().unwrap().entries;
    assert!(entries.iter().any(|entry| entry.code == HealthCode::NodeDown), "{entries:?}");
}

/// It reaches the store, so that its lease lives on: a network that is split between nodes.
#[test]
fn a_leader_that_no_node_hears_is_replaced_though_its_lease_lives() {
    let world = prepared();
    let (leader, other) = leader_and_other(&world);
    let id = leader.catalogue.node().unwrap();
    let term = other.map.leader().unwrap().term;
    leader.server.stop();
    world.wait_for("another leader", |_| other.map.leader().is_some_and(|new| new.term > term));
    world.wait_for("the former leader knows", |_| !leader.coordinator.leads());
    // Its own heartbeats get through, so its copies stay, whatever was thought of it for a moment.
    other.wait("its copies in sync", |map| is_clean(map) && is_in_sync_on(map, id));
}

#[test]
fn a_killed_node_that_does_not_lead_is_found_dead() {
    let world = prepared();
    let (leader, other) = leader_and_other(&world);
    let id = other.catalogue.node().unwrap();
    let killed = Instant::now();
    other.kill();
    leader.wait("other primaries", |map| !has_primary_on(map, id));
    println!("new primaries {} ms after a node was killed", killed.elapsed().as_millis());
}

#[test]
fn a_node_that_stops_in_order_hands_its_primaries_over() {
    let world = prepared();
    for process in &world.processes[..2] {
        let id = process.catalogue.node().unwrap();
        let stopped = Instant::now();
        process.heartbeat.stop(&|| true);
        // It stops after a second, whether that was enough on this machine or not; what was told is done.
        process.wait("other primaries", |map| !has_primary_on(map, id));
        println!("{} left within {} ms", process.name, stopped.elapsed().as_millis());
        process.coordinator.stop();
        world.wait_for("a leader", |world| world.leader().is_some());
    }
}

#[test]
fn a_leader_whose_lease_ran_out_writes_nothing_more() {
    let world = prepared();
    let (leader, other, third) = leader_and_others(&world);
    // The leader's changes are on their way for long, and its lease runs out meanwhile.
    leader.store.transactions_held.store(true, Ordering::SeqCst);
    third.kill();
    world.wait_for("a change of the leader is on its way", |_| leader.store.held.load(Ordering::SeqCst) > 0);
    leader.store.leases_cut.store(true, Ordering::SeqCst);
    world.wait_for("another leader", |_| other.coordinator.leads());
    let id = third.catalogue.node().unwrap();
    other.wait("decided by the new leader", |map| !is_in_sync_on(map, id));
    leader.store.transactions_held.store(false, Ordering::SeqCst);
    world.wait_for("the late changes arrive", |_| {
        let store = &leader.store;
        store.held.load(Ordering::SeqCst) == store.held_refused.load(Ordering::SeqCst)
    });
    assert!(!leader.coordinator.leads());
}

#[test]
fn without_the_store_the_map_stays_and_changes_are_refused() {
    let world = prepared();
    let process = &world.processes[0];
    let before = process.map.map();
    process.store.cut.store(true, Ordering::SeqCst);
    world.wait_for("it is noticed", |_| process.map.state().unreachable.is_some());
    assert_eq!(process.map.state().refused, None);
    assert_eq!(process.map.map().revision(), before.revision());
    let entries = process.client().health().unwrap().entries;
    let entry = entries.iter().find(|entry| entry.code == HealthCode::StoreUnreachable);
    assert!(entry.unwrap().advice.contains("I/O goes on"), "{entries:?}");
    assert_eq!(process.node.memory().refused, None);
    process.store.cut.store(false, Ordering::SeqCst);
    world.wait_for("it is back", |_| process.map.state().unreachable.is_none());
    process.catalogue.create(&volume_request("later", GIB)).unwrap();
}

#[test]
fn a_wiped_store_has_all_io_refused() {
    let world = prepared();
    let keys: Vec<Key> = {
        let map = world.processes[0].map.map();
        map.volumes().map(|volume| Key::Volume(volume.value.id)).chain([Key::Cluster]).collect()
    };
    let operations =
        keys.iter().map(|key| Operation::Delete { key: format!("coquina/map/{key}").into_bytes() }).collect();
    let wipe = Transaction { compares: Vec::new(), operations };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(world.store.transaction(wipe)).unwrap();
    for process in &world.processes {
        world.wait_for("I/O is refused", |_| process.node.memory().refused.is_some());
        let error = process.catalogue.create(&volume_request("x", GIB)).unwrap_err().to_string();
        assert!(error.contains("no cluster"), "{error}");
        let health = process.client().health().unwrap();
        assert_eq!(health.entries[0].code, HealthCode::MapWentBack, "{health:?}");
    }
    world.wait_for("nobody leads", |world| world.leader().is_none());
}

#[test]
fn a_node_that_refuses_its_map_is_gone_on_without() {
    let world = prepared();
    let leader = world.leader().unwrap();
    let process = world.processes.iter().find(|process| process.name != leader.name).unwrap();
    let id = process.catalogue.node().unwrap();
    assert!(is_in_sync_on(&leader.map.map(), id));
    process.store.reads_empty.store(true, Ordering::SeqCst);
    world.wait_for("I/O is refused", |_| process.node.memory().refused.is_some());
    leader.wait("others have its copies", |map| !is_in_sync_on(map, id));
    assert_eq!(leader.node.memory().refused, None);
}

#[test]
fn a_node_name_is_given_once() {
    let world = World::new(1, 1);
    let process = &world.processes[0];
    let error = register_node(&process.map, unknown_node(), "node-0", "127.0.0.1:1").unwrap_err();
    assert!(matches!(&error, ChangeError::Operation(_)), "{error}");
    assert!(error.to_string().contains("start this one with another --name"), "{error}");
}

#[test]
fn a_folder_of_another_cluster_is_refused() {
    let world = World::new(1, 1);
    let other = EmbeddedStore::in_memory().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let start = |store: &EmbeddedStore, folder: &std::path::Path| {
        MapService::start(Arc::new(store.clone()), folder, true, &mut |_| {})
    };
    start(&other, elsewhere.path()).unwrap().stop();
    let error = start(&other, world.processes[0].folder.path()).map(drop).unwrap_err();
    assert!(matches!(error, MapServiceError::OtherCluster { .. }), "{error}");
    assert!(error.to_string().contains("--etcd"), "{error}");
    let error = start(&EmbeddedStore::in_memory().unwrap(), elsewhere.path()).map(drop).unwrap_err();
    assert!(matches!(error, MapServiceError::StoreLost { .. }), "{error}");
}

#[test]
fn a_change_that_others_make_at_the_same_time_is_decided_anew() {
    let world = World::new(2, 1);
    let node = world.processes[0].catalogue.node().unwrap();
    std::thread::scope(|scope| {
        for process in &world.processes {
            scope.spawn(move || {
                for _ in 0..20 {
                    process.catalogue.set_overcommit(100).unwrap();
                    let flip = |map: &MapView| -> Result<Option<Write>, operation::OperationError> {
                        let wanted = map.node(node).unwrap().wanted;
                        assert_eq!(wanted, Wanted::In);
                        let (_, write) = operation::claim_layer(map, 0)?;
                        Ok(Some(write))
                    };
                    process.map.change(&flip).unwrap();
                }
            });
        }
    });
    let map = world.processes[0].map.read_again().unwrap();
    assert_eq!(map.cluster().unwrap().layer_next, 41);
    assert!(world.processes[1].map.wait_followed(map.revision(), Duration::from_secs(10)));
}

/// Nothing told it but the log, several times a second for each record.
#[test]
fn a_full_store_is_told_and_not_asked_all_the_time() {
    let world = prepared();
    let (leader, other, third) = leader_and_others(&world);
    let fill =
        |full| world.processes.iter().for_each(|process| process.store.full.store(full, Ordering::SeqCst));
    let told = || {
        let entries = other.client().health().unwrap().entries;
        entries.into_iter().find(|entry| entry.code == HealthCode::StoreRefusesChanges)
    };
    assert_eq!(told(), None);
    fill(true);
    third.kill();
    world.wait_for("the leader is refused", |_| leader.store.refused.load(Ordering::SeqCst) > 0);
    std::thread::sleep(Duration::from_secs(10));
    let refused = leader.store.refused.load(Ordering::SeqCst);
    assert!(refused < 10, "it was tried {refused} times in 10 s");
    let entry = told().expect("another process tells what the leader met");
    assert!(entry.message.contains("database space exceeded"), "{entry:?}");
    assert!(leader.coordinator.leads(), "a lease that is there is kept");
    // Who would lead meanwhile cannot.
    let config = CoordinatorConfig { http: String::new(), node: None, trimmer: world.trimmer.clone() };
    let candidate = CoordinatorService::start(other.map.clone(), config).unwrap();
    world.wait_for("the candidate is refused", |_| other.map.state().changes_refused.is_some());
    std::thread::sleep(Duration::from_secs(3));
    let refused = other.store.refused.load(Ordering::SeqCst);
    assert!(refused < 8, "it was tried {refused} times in 3 s");
    fill(false);
    let id = third.catalogue.node().unwrap();
    other.wait("nothing in sync there", |map| !is_in_sync_on(map, id));
    world.wait_for("the entry is gone", |_| told().is_none());
    candidate.stop();
}
