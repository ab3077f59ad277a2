//! Volumes and pools are made, changed and removed.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use coquina_base::{LayerId, VOLUME_BYTES_MAX};
use coquina_cluster::{HealthCode, Severity, ShardRef, VolumeState};
use coquina_control::{CatalogueError, HeartbeatService, api};

use super::world::{CAPACITY_BYTES, World, volume_request};

const GIB: u64 = 1 << 30;

fn message<T>(result: Result<T, CatalogueError>) -> String {
    result.map(drop).unwrap_err().to_string()
}

#[test]
fn the_first_volume_makes_a_pool_of_three_copies_on_three_nodes() {
    let world = World::new(3, 1);
    let process = &world.processes[0];
    let volume = process.catalogue.create(&volume_request("db", GIB + 512)).unwrap();
    assert_eq!(volume.size_bytes, GIB + 4096, "rounded up to whole blocks");
    let map = process.map.map();
    let pool = map.pool(volume.pool).unwrap();
    assert_eq!((pool.name.as_str(), pool.copies, pool.min_copies), ("default", 3, 2));
    assert_eq!((pool.domain.as_str(), pool.group_count), ("node", 64));
    for group in map.groups() {
        let nodes: BTreeSet<_> = group.in_sync.iter().map(|shard| map.node_of(*shard)).collect();
        assert_eq!(nodes.len(), 3, "{group:?}");
    }
    assert_eq!(process.catalogue.info("db").unwrap(), volume);
    // The operation returns when this process follows; the others do soon.
    let followed = process.node.memory().map.clone().unwrap();
    assert!(followed.volume(volume.id).is_some());
    world.processes[2].wait("the volume", |map| map.volume_by_name("db").is_some());
    assert_eq!(process.catalogue.create(&volume_request("web", GIB)).unwrap().pool, volume.pool);

    let two = api::CreateVolume { copies: Some(2), ..volume_request("two", GIB) };
    let two = process.catalogue.create(&two).unwrap();
    let map = process.map.map();
    let pool = map.pool(two.pool).unwrap();
    assert_eq!((pool.name.as_str(), pool.copies, pool.min_copies), ("copies-2", 2, 1));
    let four = api::CreateVolume { copies: Some(4), ..volume_request("four", GIB) };
    let error = process.catalogue.create(&four).unwrap_err().to_string();
    assert!(error.contains("4 copies need drives in 4 different failure domains"), "{error}");
}

#[test]
fn bad_input_is_refused_with_what_to_do() {
    let world = World::new(1, 2);
    let catalogue = &world.processes[0].catalogue;
    catalogue.create(&volume_request("db", GIB)).unwrap();
    let create = |name: &str, size| catalogue.create(&volume_request(name, size));
    let long = "x".repeat(300);
    for name in ["", long.as_str(), "a/b", "naïve", "..", "-x"] {
        assert!(message(create(name, GIB)).contains("a name has 1 to 63 characters"), "{name}");
        assert!(message(catalogue.rename("db", name)).contains("a name has 1 to 63 characters"), "{name}");
    }
    assert!(message(create("x", 0)).contains("above zero"));
    assert!(message(create("x", VOLUME_BYTES_MAX + 512)).contains("more than a volume can have"));
    assert!(message(create("x", u64::MAX)).contains("more than a volume can have"));
    assert!(message(create("db", GIB)).contains("exists"));
    let striped = api::CreateVolume { stripe_unit_bytes: Some(5000), ..volume_request("x", GIB) };
    assert!(message(catalogue.create(&striped)).contains("power of two"));
    let pooled = api::CreateVolume { pool: Some("none".to_owned()), ..volume_request("x", GIB) };
    assert!(message(catalogue.create(&pooled)).contains("no pool \"none\""));
    assert!(message(catalogue.info("other")).contains("no volume \"other\""));
    assert!(message(catalogue.resize("other", GIB, false, false)).contains("no volume"));
    assert!(message(catalogue.resize("db", 0, true, false)).contains("above zero"));
    assert!(message(catalogue.resize("db", 4096, false, false)).contains("confirm it with --yes"));
    assert!(message(catalogue.rename("other", "x")).contains("no volume"));
    assert!(message(catalogue.remove("other", false)).contains("no volume"));
    assert_eq!(catalogue.list().len(), 1);
    for (asked, bytes) in [(1, 4096), (4096, 4096), (GIB + 1, GIB + 4096)] {
        assert_eq!(create("any", asked).unwrap().size_bytes, bytes, "rounded up, whatever it is");
        catalogue.remove("any", false).unwrap();
    }
    let pool = |name: &str, copies| {
        let request = api::CreatePool { name: name.to_owned(), copies, ..api::CreatePool::default() };
        message(catalogue.create_pool(&request))
    };
    let taken = pool("default", 1);
    assert!(taken.ends_with("choose another name, or remove it first"), "pools cannot be renamed: {taken}");
    let apart = pool("wide", 3);
    assert!(apart.contains("could not keep its copies apart: 3 copies need"), "it never did: {apart}");
}

#[test]
fn a_misspelt_name_gets_the_one_that_is_meant() {
    let world = World::new(3, 1);
    let catalogue = &world.processes[0].catalogue;
    for name in ["database", "mail1", "mail2"] {
        catalogue.create(&volume_request(name, GIB)).unwrap();
    }
    let error = message(catalogue.info("databse"));
    let wanted =
        "no volume \"databse\"; did you mean \"database\"?; `coquina volume list` shows what there is";
    assert_eq!(error, wanted);
    assert!(!message(catalogue.info("mail3")).contains("did you mean"), "two are as near");
    assert!(message(catalogue.pool("defualt")).contains("did you mean \"default\"?"));
    assert!(message(catalogue.find_drive("/drives/0")).contains("; did you mean \"/drives/\\\"0\\\"\"?"));
    let node = message(catalogue.find_drive("node_2:/drives/\"0\""));
    assert!(node.contains("did you mean \"node-2:/drives/"), "{node}");
    let id = world.processes[0].node.memory().drives.keys().next().unwrap().to_string();
    let other = if id.ends_with('0') { "1" } else { "0" };
    let misspelt = format!("{}{other}", &id[..id.len() - 1]);
    assert!(message(catalogue.find_drive(&misspelt)).contains(&format!("did you mean \"{id}\"?")));
    let remove = api::RemoveNode { node: "nod-2".to_owned(), ..api::RemoveNode::default() };
    assert!(message(catalogue.remove_node(&remove)).contains("did you mean \"node-2\"?"));
}

#[test]
fn sizes_times_copies_add_up_to_the_capacity_times_overcommit_and_no_more() {
    let world = World::new(3, 1);
    let catalogue = &world.processes[1].catalogue;
    catalogue.create(&volume_request("a", CAPACITY_BYTES - GIB)).unwrap();
    let error = catalogue.create(&volume_request("b", 2 * GIB)).unwrap_err().to_string();
    assert!(error.contains("2 GiB in 3 copies does not fit: 3 GiB of 192 GiB are left"), "{error}");
    catalogue.create(&volume_request("b", GIB)).unwrap();
    assert!(matches!(catalogue.resize("b", 2 * GIB, false, false), Err(CatalogueError::NoRoom { .. })));
    catalogue.set_overcommit(200).unwrap();
    assert_eq!(catalogue.resize("b", 2 * GIB, false, false).unwrap().size_bytes, 2 * GIB);
}

/// It left a pool `default` behind, of as many copies as there could be just then.
#[test]
fn a_volume_that_is_refused_for_room_leaves_no_pool() {
    let world = World::new(3, 1);
    let process = &world.processes[0];
    let large = volume_request("large", CAPACITY_BYTES + GIB);
    let error = message(process.catalogue.create(&large));
    assert!(error.contains("65 GiB in 3 copies does not fit: 192 GiB of 192 GiB are left"), "{error}");
    assert_eq!(process.catalogue.pools(), []);
    let two = api::CreateVolume { copies: Some(2), ..large };
    process.catalogue.create(&two).unwrap();
    let pools = process.catalogue.pools();
    assert_eq!(
        pools.iter().map(|pool| (pool.name.as_str(), pool.copies)).collect::<Vec<_>>(),
        [("default", 2)]
    );
}

#[test]
fn a_shrink_that_is_not_done_is_told() {
    let world = World::new(1, 1);
    let process = &world.processes[0];
    process.catalogue.create(&volume_request("db", 2 * GIB)).unwrap();
    let pending = || {
        let entries = process.client().health().unwrap().entries;
        entries.into_iter().find(|entry| entry.code == HealthCode::ShrinkPending)
    };
    world.trimmer.fails.store(true, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let shrink = scope.spawn(|| process.catalogue.resize("db", GIB, true, false).unwrap());
        world.wait_for("it has failed", |world| !world.trimmer.trims.lock().unwrap().is_empty());
        let entry = pending().unwrap();
        assert_eq!((entry.severity, entry.subject.as_str()), (Severity::Notice, "volume db"));
        world.trimmer.fails.store(false, Ordering::SeqCst);
        assert_eq!(shrink.join().unwrap().shrinking_from_bytes, None);
    });
    assert_eq!(pending(), None);
}

#[test]
fn a_shrink_is_cut_off_after_every_node_refuses_the_old_size() {
    let world = World::new(3, 1);
    let process = &world.processes[1];
    let volume = process.catalogue.create(&volume_request("db", 2 * GIB)).unwrap();
    let shrunk = process.catalogue.resize("db", GIB, true, false).unwrap();
    assert_eq!((shrunk.size_bytes, shrunk.shrinking_from_bytes), (GIB, None));
    assert_eq!(*world.trimmer.trims.lock().unwrap(), [("db".to_owned(), GIB, 2 * GIB)]);
    for process in &world.processes {
        let memory = process.node.memory();
        assert_eq!(memory.quiesced, [volume.id]);
        assert_eq!(memory.map.as_ref().unwrap().volume(volume.id).unwrap().size_bytes, GIB);
    }
    assert_eq!((shrunk.size_max_bytes, shrunk.largest_bytes()), (Some(2 * GIB), 2 * GIB));
    assert_eq!(process.catalogue.resize("db", 3 * GIB, false, false).unwrap().size_bytes, 3 * GIB);
    let again = process.catalogue.resize("db", GIB, true, false).unwrap();
    assert_eq!((again.size_bytes, again.largest_bytes()), (GIB, 3 * GIB), "what it was once is kept in mind");
    let again = process.catalogue.resize("db", 4096, true, false).unwrap();
    assert_eq!((again.size_bytes, again.largest_bytes()), (4096, 3 * GIB));
}

/// It may have a change under way that it took before it knew the new end.
#[test]
fn a_node_that_comes_back_while_a_volume_is_cut_has_to_refuse_the_old_size_too() {
    let world = World::new(3, 1);
    let leader = world.leader().unwrap();
    let away = world.processes.iter().find(|process| process.name != leader.name).unwrap();
    let volume = leader.catalogue.create(&volume_request("db", 2 * GIB)).unwrap();
    let is_dead = |world: &World| {
        let health = world.leader().and_then(|leader| leader.coordinator.health_blocking());
        health.is_some_and(|health| health.dead.contains(&away.node.id))
    };
    away.heartbeat.stop(&|| false);
    world.wait_for("it is dead", is_dead);
    leader.wait("others lead", |map| {
        map.groups().all(|group| group.primary().and_then(|shard| map.node_of(shard)) != Some(away.node.id))
    });
    world.trimmer.held.store(true, Ordering::SeqCst);
    let back = std::thread::scope(|scope| {
        let shrink = scope.spawn(|| leader.catalogue.resize("db", GIB, true, false).unwrap());
        world.wait_for("it is cut", |world| !world.trimmer.trims.lock().unwrap().is_empty());
        assert!(away.node.memory().quiesced.is_empty(), "nobody waits for a dead node");
        let coordinator = Some(away.coordinator.clone());
        let back = HeartbeatService::start(away.map.clone(), away.node.clone(), away.node.id, coordinator);
        world.wait_for("it is there again", |world| !is_dead(world));
        world.trimmer.held.store(false, Ordering::SeqCst);
        assert_eq!(shrink.join().unwrap().shrinking_from_bytes, None);
        back.unwrap()
    });
    assert_eq!(away.node.memory().quiesced, [volume.id]);
    assert_eq!(world.trimmer.trims.lock().unwrap().len(), 2);
    back.stop(&|| false);
}

#[test]
fn a_volume_may_be_in_use_at_a_node_that_does_not_answer_unless_it_is_dead() {
    let world = World::new(3, 1);
    let leader = world.leader().unwrap();
    let silent = world.processes.iter().find(|process| process.name != leader.name).unwrap();
    for name in ["db", "forced"] {
        leader.catalogue.create(&volume_request(name, GIB)).unwrap();
    }
    silent.server.stop();
    let error = leader.catalogue.remove("db", false).unwrap_err().to_string();
    assert!(error.contains(&format!("node {:?} does not answer", silent.name)), "{error}");
    assert!(error.contains("--force"), "{error}");
    leader.catalogue.remove("forced", true).unwrap();
    silent.kill();
    world.wait_for("it is known to be dead", |_| leader.catalogue.remove("db", false).is_ok());
}

/// It counted as a node without connections.
#[test]
fn a_volume_may_be_in_use_at_a_reactor_that_does_not_answer() {
    let world = World::new(2, 1);
    let process = &world.processes[0];
    process.catalogue.create(&volume_request("db", GIB)).unwrap();
    for hung in &world.processes {
        hung.node.memory().incomplete = true;
        for error in [
            process.catalogue.remove("db", false).unwrap_err().to_string(),
            process.catalogue.resize("db", 4096, true, false).unwrap_err().to_string(),
        ] {
            assert!(error.contains(&format!("node {:?} does not answer", hung.name)), "{error}");
        }
        hung.node.memory().incomplete = false;
    }
    world.wait_for("all answer", |_| process.catalogue.remove("db", false).is_ok());
}

#[test]
fn a_removed_volume_goes_from_every_node_that_holds_some_of_it() {
    let world = World::new(3, 1);
    let process = &world.processes[0];
    let stays = process.catalogue.create(&volume_request("stays", GIB)).unwrap();
    let goes = process.catalogue.create(&volume_request("goes", GIB)).unwrap();
    let not_given_out = LayerId(1_000_000);
    for process in &world.processes {
        let mut memory = process.node.memory();
        let drives: Vec<_> = memory.drives.keys().copied().collect();
        for drive in drives {
            let layers = [stays.layer, goes.layer, not_given_out].into_iter().collect();
            memory.layers.insert(ShardRef { drive, shard: 0 }, layers);
        }
    }
    process.node.memory().connections = 2;
    let error = process.catalogue.remove("goes", false).unwrap_err().to_string();
    assert!(error.contains("in use by 2 connection(s)") && error.contains("--force"), "{error}");
    // So is a shrink, which cuts off what they may be using.
    let error = process.catalogue.resize("goes", 4096, true, false).unwrap_err().to_string();
    assert!(error.contains("in use by 2 connection(s)") && error.contains("resize` and --force"), "{error}");
    assert_eq!(process.catalogue.info("goes").unwrap().size_bytes, GIB, "nothing was changed");
    assert_eq!(process.catalogue.resize("goes", 2 * GIB, true, false).unwrap().size_bytes, 2 * GIB);
    assert_eq!(process.catalogue.resize("goes", GIB, true, true).unwrap().size_bytes, GIB);
    let removed = process.catalogue.remove("goes", true).unwrap();
    assert_eq!(removed.state, VolumeState::Removing);
    assert!(process.catalogue.create(&volume_request("goes", GIB)).is_ok(), "the name is free at once");
    process.wait("the record is gone", |map| map.volume(goes.id).is_none());
    world.wait_for("layers are deleted", |world| {
        world.processes.iter().all(|process| {
            let memory = process.node.memory();
            memory.layers.values().all(|layers| *layers == BTreeSet::from([stays.layer, not_given_out]))
        })
    });
}

/// An older map counts on from the same number as it did before. A new volume got the layer of one that was lost with the newer
/// map, and showed its data.
#[test]
fn a_map_that_went_back_gives_no_layer_again_and_keeps_what_it_has_lost() {
    let lost: Vec<LayerId> = {
        let before = World::new(1, 1);
        let catalogue = &before.processes[0].catalogue;
        ["a", "b"].map(|name| catalogue.create(&volume_request(name, GIB)).unwrap().layer).to_vec()
    };
    assert_eq!(lost[1].0, lost[0].0 + 1, "one after the other while the process runs");
    // A map as it was before both were made.
    let world = World::new(1, 1);
    let process = &world.processes[0];
    let drive = *process.node.memory().drives.keys().next().unwrap();
    let shard = ShardRef { drive, shard: 0 };
    process.node.memory().layers.insert(shard, lost.iter().copied().collect());
    let told = || {
        let entries = process.client().health().unwrap().entries;
        entries.into_iter().find(|entry| entry.code == HealthCode::LostVolumes)
    };
    let new = process.catalogue.create(&volume_request("new", GIB)).unwrap();
    assert!(!lost.contains(&new.layer), "{:?} was given before", new.layer);
    let goes = process.catalogue.create(&volume_request("goes", GIB)).unwrap();
    process.node.memory().layers.get_mut(&shard).unwrap().extend([new.layer, goes.layer]);
    process.catalogue.remove("goes", false).unwrap();
    let held = |layers: &[LayerId]| {
        process.node.memory().layers[&shard] == layers.iter().copied().collect::<BTreeSet<_>>()
    };
    world.wait_for("the removed volume is deleted", |_| held(&[lost[0], lost[1], new.layer]));
    world.wait_for("the lost ones are told", |_| told().is_some());
    assert!(told().unwrap().message.contains("data of 2 volume(s)"), "{:?}", told());
    let forget = |dry_run| process.client().forget_lost(&api::ForgetLost { dry_run }).unwrap();
    let found = api::LostData {
        layers: lost.iter().map(|layer| layer.0).collect(),
        nodes: vec![api::LostOnNode {
            node: process.name.clone(),
            layers: lost.iter().map(|layer| layer.0).collect(),
        }],
        silent: Vec::new(),
        dry_run: true,
    };
    assert_eq!(forget(true), found);
    assert!(held(&[lost[0], lost[1], new.layer]), "nothing was done");
    assert_eq!(forget(false), api::LostData { dry_run: false, ..found });
    world.wait_for("the lost ones are deleted", |_| held(&[new.layer]));
    world.wait_for("nothing is told any more", |_| told().is_none());
    assert_eq!(forget(true), api::LostData { dry_run: true, ..api::LostData::default() });
}

/// Messages of events on this thread.
#[derive(Clone, Default)]
struct Messages(std::sync::Arc<std::sync::Mutex<Vec<String>>>);

impl tracing::field::Visit for Messages {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        if ["message", "volume", "before"].contains(&field.name()) {
            self.0.lock().unwrap().push(format!("{}={value:?}", field.name()));
        }
    }
}

impl tracing::Subscriber for Messages {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().contains("journal")
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        event.record(&mut self.clone());
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn the_log_has_one_line_for_each_change_of_an_operator() {
    let world = World::new(1, 1);
    let catalogue = &world.processes[0].catalogue;
    catalogue.create(&volume_request("other", GIB)).unwrap();
    let messages = Messages::default();
    tracing::subscriber::with_default(messages.clone(), || {
        catalogue.create(&volume_request("db", GIB)).unwrap();
        catalogue.resize("db", 2 * GIB, false, false).unwrap();
        catalogue.resize("db", 2 * GIB, false, false).unwrap();
        catalogue.rename("db", "base").unwrap();
        catalogue.remove("base", false).unwrap();
        catalogue.remove("nothing", false).unwrap_err();
    });
    let mut told = messages.0.lock().unwrap().clone();
    told.sort();
    let expected = [
        "before=\"\"",
        "before=\"\"",
        "before=\"1073741824 bytes\"",
        "before=\"db\"",
        "message=a volume was created",
        "message=a volume was removed",
        "message=a volume was renamed",
        "message=a volume was resized",
        "volume=\"base\"",
        "volume=\"base\"",
        "volume=\"db\"",
        "volume=\"db\"",
    ];
    assert_eq!(told, expected);
}

#[test]
fn a_volume_keeps_its_identity_under_another_name() {
    let world = World::new(1, 1);
    let catalogue = &world.processes[0].catalogue;
    let volume = catalogue.create(&volume_request("db", GIB)).unwrap();
    catalogue.create(&volume_request("web", GIB)).unwrap();
    assert!(matches!(catalogue.rename("db", "web"), Err(CatalogueError::Duplicate { .. })));
    assert_eq!(catalogue.rename("db", "db").unwrap(), volume);
    let renamed = catalogue.rename("db", "base").unwrap();
    assert_eq!((renamed.id, renamed.layer, renamed.name.as_str()), (volume.id, volume.layer, "base"));
}

#[test]
fn names_are_given_once_whoever_asks_at_the_same_moment() {
    let world = World::new(3, 1);
    world.processes[0].catalogue.create(&volume_request("first", GIB)).unwrap();
    // At once, and shortly after each other: one may have its answer when the next one is recorded.
    for (round, pause) in (0..12).zip([0, 0, 1, 2, 3, 5].into_iter().cycle()) {
        let name = format!("db{round}");
        let request = &volume_request(&name, GIB / 64);
        let made = std::thread::scope(|scope| {
            let tasks: Vec<_> = world
                .processes
                .iter()
                .map(|process| {
                    std::thread::sleep(std::time::Duration::from_millis(pause));
                    scope.spawn(|| process.catalogue.create(request).is_ok())
                })
                .collect();
            tasks.into_iter().filter_map(|task| task.join().ok()).filter(|made| *made).count()
        });
        assert_eq!(made, 1, "{name}");
        world.processes[0].wait("one volume of the name", |map| {
            map.volumes().filter(|volume| volume.value.name == name).count() == 1
        });
    }
    let mut layers: Vec<_> = world.processes[0].catalogue.list().iter().map(|volume| volume.layer).collect();
    layers.sort();
    layers.dedup();
    assert_eq!(layers.len(), 13, "a layer was given twice");
}

#[test]
fn a_name_goes_to_one_of_a_new_volume_and_a_renamed_one() {
    let world = World::new(2, 1);
    for round in 0..8 {
        let (old, name) = (format!("old{round}"), format!("db{round}"));
        world.processes[0].catalogue.create(&volume_request(&old, GIB / 64)).unwrap();
        world.processes[1].wait("the volume", |map| map.volume_by_name(&old).is_some());
        let (made, renamed) = std::thread::scope(|scope| {
            let made =
                scope.spawn(|| world.processes[0].catalogue.create(&volume_request(&name, GIB / 64)).is_ok());
            let renamed = scope.spawn(|| world.processes[1].catalogue.rename(&old, &name).is_ok());
            (made.join().unwrap(), renamed.join().unwrap())
        });
        assert!(made != renamed, "{name}: made {made}, renamed {renamed}");
    }
}

#[test]
fn pools_are_made_listed_and_removed() {
    let world = World::new(2, 2);
    let catalogue = &world.processes[0].catalogue;
    let request = api::CreatePool {
        name: "fast".to_owned(),
        copies: 2,
        groups: Some(16),
        ..api::CreatePool::default()
    };
    let pool = catalogue.create_pool(&request).unwrap();
    assert_eq!((pool.group_count, pool.domain.as_str()), (16, "node"));
    assert!(message(catalogue.create_pool(&request)).contains("exists"));
    let odd = api::CreatePool { name: "odd".to_owned(), groups: Some(17), ..request.clone() };
    assert!(message(catalogue.create_pool(&odd)).contains("powers of two"));
    let wide = api::CreatePool { name: "wide".to_owned(), copies: 3, ..request.clone() };
    assert!(message(catalogue.create_pool(&wide)).contains("3 copies need drives in 3"));
    let drives = api::CreatePool { domain: Some("drive".to_owned()), ..wide };
    catalogue.create_pool(&drives).unwrap();

    let volume = api::CreateVolume { pool: Some("fast".to_owned()), ..volume_request("db", GIB) };
    assert_eq!(catalogue.create(&volume).unwrap().pool, pool.id);
    let more = api::CreateVolume { name: "more".to_owned(), copies: Some(3), ..volume };
    let error = message(catalogue.create(&more));
    assert!(error.contains("\"fast\" keeps 2 copies of each block, and 3 are asked for"), "{error}");
    let error = message(catalogue.create(&volume_request("x", GIB)));
    assert!(error.contains("several pools (fast, wide)") && error.contains("--pool"), "{error}");
    assert!(message(catalogue.remove_pool("fast")).contains("has 1 volume(s)"));
    // At once after the volume, which the map has until all nodes know that it is gone.
    catalogue.remove("db", true).unwrap();
    catalogue.remove_pool("fast").unwrap();
    world.processes[0].wait("the pool is gone", |map| map.pool(pool.id).is_none());
}
