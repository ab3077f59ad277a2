//! Drives and nodes leave: first their data, then they.

use std::cell::RefCell;
use std::time::Duration;

use coquina_cluster::{DriveCondition, DriveRecord, DriveState, VolumeState, Wanted, operation};
use coquina_control::{CatalogueError, api};

use super::world::{Process, World, is_clean, is_spread, volume_request};

const GIB: u64 = 1 << 30;

fn message<T>(result: Result<T, CatalogueError>) -> String {
    result.map(drop).unwrap_err().to_string()
}

/// Asks until it is refused with these words: a node that does not answer in time counts as full.
fn refused<T>(world: &World, words: &[&str], ask: impl Fn() -> Result<T, CatalogueError>) {
    let last = RefCell::new(String::new());
    let holds = |_: &World| {
        *last.borrow_mut() = ask().err().map(|error| error.to_string()).unwrap_or_default();
        words.iter().all(|word| last.borrow().contains(word))
    };
    world.wait_for(&format!("a refusal with {words:?}"), holds);
}

/// The same until it is done.
fn done<T>(world: &World, ask: impl Fn() -> Result<T, CatalogueError>) -> T {
    let result = RefCell::new(None);
    world.wait_for("what was asked for", |_| {
        *result.borrow_mut() = ask().ok();
        result.borrow().is_some()
    });
    result.into_inner().unwrap()
}

fn remove(drive: impl ToString) -> api::RemoveDrive {
    api::RemoveDrive { drive: drive.to_string(), ..api::RemoveDrive::default() }
}

#[test]
fn a_drive_is_emptied_then_let_go() {
    let world = World::new(3, 2);
    let process = &world.processes[1];
    process.catalogue.create(&volume_request("db", GIB)).unwrap();
    process.wait("clean, on all drives", is_spread);
    let id = *process.node.memory().drives.keys().next().unwrap();
    let plan = api::RemoveDrive { dry_run: true, ..remove(id) };
    let planned = done(&world, || process.catalogue.remove_drive(&plan));
    assert!(planned.groups_left > 0);
    assert_eq!(process.map.map().drive(id).unwrap().wanted, Wanted::In);
    assert_eq!(done(&world, || process.catalogue.remove_drive(&remove(id))), planned);
    process.node.memory().releases_hang = true;
    process.wait("the drive is gone", |map| map.drive(id).is_none());
    process.wait("clean", is_clean);
    // No map comes any more that would have it tried again.
    let revision = process.map.map().revision();
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(process.map.map().revision(), revision);
    assert!(process.node.memory().removed.is_empty());
    process.node.memory().releases_hang = false;
    world.wait_for("the node lets go", |_| process.node.memory().removed == [id]);
}

/// It was served by both, or told as missing for good by the former one.
#[test]
fn drives_that_belong_to_another_node_now_are_let_go_of() {
    let world = World::new(2, 2);
    let [former, next] = [0, 1].map(|index: usize| &world.processes[index]);
    let mut moved: Vec<_> = former.node.memory().drives.keys().copied().collect();
    let theirs = *next.node.memory().drives.keys().next().unwrap();
    {
        let drives = &mut former.node.memory().drives;
        drives.insert(moved[1], DriveCondition::Failed);
        // One that has come from another node and cannot be used yet: it is registered when it can.
        drives.insert(theirs, DriveCondition::Failed);
    }
    // It is looked every second.
    std::thread::sleep(Duration::from_millis(1500));
    for drive in &moved {
        let register = |map: &_| {
            let record = coquina_cluster::MapView::drive(map, *drive).unwrap();
            operation::register_drive(map, &DriveRecord { node: next.node.id, ..record.clone() })
        };
        next.map.change(&register).unwrap();
    }
    moved.sort_unstable();
    let removed = || {
        let mut removed = former.node.memory().removed.clone();
        removed.sort_unstable();
        removed
    };
    world.wait_for("the node lets go", |_| removed() == moved);
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!((removed(), next.node.memory().removed.len()), (moved, 0));
}

#[test]
fn what_the_others_have_no_room_for_is_not_moved_away() {
    let world = World::new(2, 2);
    let process = &world.processes[0];
    let request = api::CreateVolume { copies: Some(1), ..volume_request("db", GIB) };
    process.catalogue.create(&request).unwrap();
    process.wait("clean, on all drives", is_spread);
    let id = *process.node.memory().drives.keys().next().unwrap();
    // 62 of 64 GiB of each drive are in use.
    world.processes.iter().for_each(|process| process.node.memory().more_live_bytes = 30 * GIB);
    let room = "62 GiB would have to be moved away, and the other drives have room for 6 GiB";
    let plan = api::RemoveDrive { dry_run: true, ..remove(id) };
    refused(&world, &[room, "coquina drive add"], || process.catalogue.remove_drive(&plan));
    let node = api::RemoveNode { node: "node-0".to_owned(), dry_run: true, ..api::RemoveNode::default() };
    let room = "124 GiB would have to be moved away, and the other drives have room for 4 GiB";
    refused(&world, &[room], || process.catalogue.remove_node(&node));
    assert_eq!(process.map.map().drive(id).unwrap().wanted, Wanted::In);
    let all_have = |more_live_bytes| {
        world.processes.iter().for_each(|process| process.node.memory().more_live_bytes = more_live_bytes);
    };
    // Of reactors that do not answer it is not known how much lies on their drives: they look empty.
    for (hung, more_live_bytes) in [(&world.processes[0], 30 * GIB), (&world.processes[1], 0)] {
        world.processes[1].node.memory().more_live_bytes = more_live_bytes;
        hung.node.memory().incomplete = true;
        let full = format!("node {:?} does not answer, and drives there count as full", hung.name);
        refused(&world, &["would have to be moved away", &full], || process.catalogue.remove_drive(&plan));
        hung.node.memory().incomplete = false;
    }
    done(&world, || process.catalogue.remove_drive(&remove(id)));
    // One that is under way may be asked for again, whatever room its copies have taken by then.
    all_have(30 * GIB);
    match process.catalogue.remove_drive(&remove(id)) {
        Ok(_) | Err(CatalogueError::DriveNotFound { .. }) => {}
        Err(error) => panic!("{error}"),
    }
    process.wait("the drive is gone", |map| map.drive(id).is_none());
    all_have(0);
    let node = api::RemoveNode { node: "node-1".to_owned(), ..api::RemoveNode::default() };
    let leaving = done(&world, || process.catalogue.remove_node(&node)).node.id;
    all_have(30 * GIB);
    match process.catalogue.remove_node(&node) {
        Ok(_) | Err(CatalogueError::NodeNotFound { .. }) => {}
        Err(error) => panic!("{error}"),
    }
    process.wait("the node is gone", |map| map.node(leaving).is_none());
}

#[test]
fn what_nothing_has_to_be_moved_from_goes_without_room_elsewhere() {
    let world = World::new(3, 2);
    let process = &world.processes[1];
    process.catalogue.create(&volume_request("db", GIB)).unwrap();
    process.wait("clean, on all drives", is_spread);
    let [emptied, other] =
        [1, 2].map(|index| *world.processes[index].node.memory().drives.keys().next().unwrap());
    // 62 of 64 GiB of each drive are in use.
    world.processes.iter().for_each(|process| process.node.memory().more_live_bytes = 30 * GIB);
    let plan = |id| api::RemoveDrive { dry_run: true, ..remove(id) };
    let moved = "62 GiB would have to be moved away";
    refused(&world, &[moved], || process.catalogue.remove_drive(&plan(emptied)));
    // Its groups have left, and what they had there is not deleted yet.
    process.map.change(&|map| operation::reweight_drive(map, emptied, 0)).unwrap();
    process.wait("nothing is on it", |map| !map.is_used(emptied));
    process.catalogue.remove_drive(&plan(emptied)).unwrap();
    // One that takes no changes, whether its copies are made anew elsewhere already or not.
    world.processes[2].node.memory().drives.insert(other, DriveCondition::ReadOnly);
    process.wait("read-only", |map| map.drive(other).unwrap().state == DriveState::ReadOnly);
    process.catalogue.remove_drive(&plan(other)).unwrap();
}

#[test]
fn a_node_that_does_not_answer_has_no_room() {
    let world = World::new(4, 1);
    let process = &world.processes[0];
    let request = api::CreateVolume { copies: Some(2), ..volume_request("db", GIB) };
    process.catalogue.create(&request).unwrap();
    process.wait("clean, on all drives", is_spread);
    // 46 of 64 GiB of each drive are in use.
    world.processes.iter().for_each(|process| process.node.memory().more_live_bytes = 22 * GIB);
    let node = |name: &str| api::RemoveNode { node: name.to_owned(), ..api::RemoveNode::default() };
    let plan = api::RemoveNode { dry_run: true, ..node("node-2") };
    done(&world, || process.catalogue.remove_node(&plan));
    world.processes[3].kill();
    let room = "46 GiB would have to be moved away, and the other drives have room for 36 GiB";
    refused(&world, &[room, "node \"node-3\" does not answer"], || process.catalogue.remove_node(&plan));
    // That of the node itself is not asked about when it is lost.
    world.processes.iter().for_each(|process| process.node.memory().moves_hang = true);
    let lost = api::RemoveNode { lost: true, ..node("node-3") };
    done(&world, || process.catalogue.remove_node(&lost));
    // From what was given up nothing is moved, while its groups still name it: 24 of 80 GiB are needed.
    world.processes.iter().for_each(|process| process.node.memory().more_live_bytes = 0);
    let given_up = |map: &coquina_cluster::MapView| {
        map.drives().any(|drive| drive.value.state == DriveState::GivenUp && map.is_used(drive.value.id))
    };
    done(&world, || process.catalogue.remove_node(&plan));
    assert!(given_up(&process.map.map()));
}

#[test]
fn what_leaves_already_needs_its_room_too_and_is_not_asked_about_again() {
    let world = World::new(4, 1);
    let process = &world.processes[0];
    let request = api::CreateVolume { copies: Some(1), ..volume_request("db", GIB) };
    process.catalogue.create(&request).unwrap();
    process.wait("clean, on all drives", is_spread);
    let all_have = |more_live_bytes| {
        world.processes.iter().for_each(|process| process.node.memory().more_live_bytes = more_live_bytes);
    };
    // 38 of 64 GiB of each drive are in use, and none of it moves.
    all_have(18 * GIB);
    world.processes.iter().for_each(|process| process.node.memory().moves_hang = true);
    let drive = |index: usize| *world.processes[index].node.memory().drives.keys().next().unwrap();
    let [one, other] = [1, 2].map(drive);
    done(&world, || process.catalogue.remove_drive(&remove(one)));
    let room = "76 GiB would have to be moved away, and the other drives have room for 52 GiB";
    refused(&world, &[room], || process.catalogue.remove_drive(&remove(other)));
    refused(&world, &[room], || process.catalogue.reweight_drive(&other.to_string(), 0));
    let node = api::RemoveNode { node: "node-2".to_owned(), ..api::RemoveNode::default() };
    refused(&world, &[room], || process.catalogue.remove_node(&node));
    let again = |drive| process.catalogue.remove_drive(&remove(drive)).unwrap();
    all_have(30 * GIB);
    again(one);
    process.catalogue.remove_drive(&api::RemoveDrive { cancel: true, ..remove(one) }).unwrap();
    let room = "62 GiB would have to be moved away, and the other drives have room for 6 GiB";
    refused(&world, &[room], || process.catalogue.reweight_drive(&other.to_string(), 0));
    all_have(18 * GIB);
    done(&world, || process.catalogue.reweight_drive(&other.to_string(), 0));
    all_have(30 * GIB);
    process.catalogue.reweight_drive(&other.to_string(), 0).unwrap();
    again(other);
    let map = process.map.map();
    assert_eq!(
        (map.drive(one).unwrap().wanted, map.drive(other).unwrap().wanted),
        (Wanted::In, Wanted::Removing)
    );
}

#[test]
fn what_goes_with_something_else_is_not_said_to_stay() {
    let world = World::new(4, 1);
    let process = &world.processes[0];
    process.catalogue.create(&volume_request("db", GIB)).unwrap();
    process.wait("clean, on all drives", is_spread);
    world.processes.iter().for_each(|process| process.node.memory().moves_hang = true);
    let id = *world.processes[2].node.memory().drives.keys().next().unwrap();
    let node = api::RemoveNode { node: "node-2".to_owned(), ..api::RemoveNode::default() };
    done(&world, || process.catalogue.remove_node(&node));
    for dry_run in [true, false] {
        let request = api::RemoveDrive { cancel: true, dry_run, ..remove(id) };
        let error = message(process.catalogue.remove_drive(&request));
        assert!(error.contains("coquina node remove node-2 --cancel"), "{error}");
    }
    process.catalogue.remove_drive(&remove(id)).unwrap();
    let cancel = api::RemoveNode { cancel: true, ..node };
    let stays = process.client().remove_node(&cancel).unwrap();
    assert_eq!((stays.drives_leaving, stays.drives), (vec![id], vec![id]));
    assert_eq!(process.map.map().drive(id).unwrap().wanted, Wanted::Removing);
    process.catalogue.remove_drive(&api::RemoveDrive { cancel: true, ..remove(id) }).unwrap();
    assert_eq!(process.catalogue.remove_node(&cancel).unwrap().drives_leaving, []);
    assert_eq!(process.map.map().drive(id).unwrap().wanted, Wanted::In);
}

#[test]
fn a_drive_that_is_not_heard_of_when_a_pool_is_made_gets_its_share() {
    let world = World::new(3, 2);
    let process = &world.processes[1];
    let id = *process.node.memory().drives.keys().next().unwrap();
    process.node.memory().drives.insert(id, DriveCondition::Failed);
    process.wait("missing", |map| map.drive(id).unwrap().state == DriveState::Missing);
    process.catalogue.create(&volume_request("db", GIB)).unwrap();
    process.node.memory().drives.insert(id, DriveCondition::Serving);
    process.wait("clean, on all drives", is_spread);
}

#[test]
fn what_would_break_a_rule_is_refused_with_what_to_do() {
    let world = World::new(3, 1);
    let catalogue = &world.processes[0].catalogue;
    catalogue.create(&volume_request("db", GIB)).unwrap();
    let id = *world.processes[0].node.memory().drives.keys().next().unwrap();
    let error = message(catalogue.remove_drive(&remove(id)));
    assert!(error.contains("3 copies need drives in 3 different failure domains"), "{error}");
    for request in
        [api::RemoveDrive { lost: true, ..remove(id) }, api::RemoveDrive { lose_data: true, ..remove(id) }]
    {
        assert!(message(catalogue.remove_drive(&request)).contains("works"));
    }
    assert!(message(catalogue.remove_drive(&remove("/nothing"))).contains("no drive"));
    // The same path on each node: the own one is meant, unless the node is named.
    let own = catalogue.find_drive("/drives/\"0\"").unwrap();
    assert_eq!(own.id, id);
    let other = catalogue.find_drive("node-2:/drives/\"0\"").unwrap();
    assert_eq!(Some(other.node), world.processes[2].catalogue.node());
    let node =
        |request: &api::RemoveNode| message(world.processes[1].catalogue.remove_node(request).map(drop));
    let request = api::RemoveNode { node: "node-0".to_owned(), ..api::RemoveNode::default() };
    assert!(node(&request).contains("3 copies need drives in 3"));
    assert!(node(&api::RemoveNode { lost: true, ..request.clone() }).contains("answers"));
    assert!(node(&api::RemoveNode { node: "none".to_owned(), ..request }).contains("no node \"none\""));
}

#[test]
fn a_node_leaves_in_order_and_a_lost_one_is_given_up() {
    let world = World::new(5, 1);
    let process = &world.processes[0];
    process.catalogue.create(&volume_request("db", GIB)).unwrap();
    process.wait("clean", is_clean);
    let request = api::RemoveNode { node: "node-4".to_owned(), ..api::RemoveNode::default() };
    let leaving = done(&world, || process.catalogue.remove_node(&request));
    process.wait("the node is gone", |map| map.node(leaving.node.id).is_none());
    world.wait_for("the node knows", |world| world.processes[4].heartbeat.was_removed());

    let lost = &world.processes[3];
    let id = lost.catalogue.node().unwrap();
    lost.kill();
    let request = api::RemoveNode { node: "node-3".to_owned(), lost: true, ..Default::default() };
    // It is waited until that is known to be silent, by a new leader, too. It was refused, and not said when to try again.
    process.catalogue.remove_node(&request).unwrap();
    process.wait("the node is gone", |map| map.node(id).is_none());
    process.wait("clean", is_clean);
    assert_eq!(process.map.map().cluster().unwrap().given_up_drives.len(), 1);
}

#[test]
fn what_does_not_answer_here_and_is_heard_by_the_leader_is_not_lost() {
    let world = World::new(3, 1);
    let of_role = |leads: bool| world.processes.iter().find(|other| other.coordinator.leads() == leads);
    let (leader, silent) = (of_role(true).unwrap(), of_role(false).unwrap());
    let other = |process: &&Process| process.name != leader.name && process.name != silent.name;
    let process = world.processes.iter().find(other).unwrap();
    let request = api::CreateVolume { copies: Some(1), ..volume_request("db", GIB) };
    let volume = process.catalogue.create(&request).unwrap();
    process.wait("clean, on all drives", is_spread);
    let id = *silent.node.memory().drives.keys().next().unwrap();
    let is_unknown = || {
        let drives = process.client().drives().unwrap().drives;
        drives.iter().find(|drive| drive.id == id).is_some_and(|drive| drive.unknown)
    };
    silent.server.stop();
    for request in
        [api::RemoveDrive { lost: true, ..remove(id) }, api::RemoveDrive { lose_data: true, ..remove(id) }]
    {
        for process in [process, leader] {
            let error = message(process.catalogue.remove_drive(&request));
            assert!(error.contains("does not answer") && error.contains("hears it"), "{error}");
        }
    }
    let node = api::RemoveNode { node: silent.name.clone(), lost: true, ..api::RemoveNode::default() };
    assert!(message(process.catalogue.remove_node(&node)).contains("hears it"));
    assert!(is_unknown());
    let map = process.map.map();
    assert_eq!(map.drive(id).unwrap().state, DriveState::Healthy);
    assert_eq!(map.volume(volume.id).unwrap().state, VolumeState::Active);

    silent.kill();
    let lose_data = api::RemoveDrive { lose_data: true, ..remove(id) };
    // Who is asked is told for how long it has been silent: a moment, as of a node that is being restarted, is no loss.
    let plan = api::RemoveDrive { dry_run: true, ..lose_data.clone() };
    let planned = done(&world, || process.catalogue.remove_drive(&plan));
    assert!(planned.silent_ms.is_some_and(|silent_ms| silent_ms >= 1_500), "{planned:?}");
    done(&world, || process.catalogue.remove_drive(&lose_data));
    assert!(!is_unknown());
}

/// It was told as missing, with the advice to give it up.
#[test]
fn of_a_read_only_drive_whose_node_does_not_answer_nothing_is_known() {
    let world = World::new(3, 1);
    let leader = world.leader().unwrap();
    let silent = world.processes.iter().find(|process| process.name != leader.name).unwrap();
    let id = *silent.node.memory().drives.keys().next().unwrap();
    silent.node.memory().drives.insert(id, DriveCondition::ReadOnly);
    leader.wait("read-only", |map| map.drive(id).unwrap().state == DriveState::ReadOnly);
    silent.server.stop();
    let drives = leader.client().drives().unwrap().drives;
    let drive = drives.iter().find(|drive| drive.id == id).unwrap();
    assert!(drive.unknown && drive.state == DriveState::Missing, "{drive:?}");
}

#[test]
fn a_lost_drive_with_the_only_copy_is_given_up_by_name_only() {
    let world = World::new(1, 2);
    let process = &world.processes[0];
    let request = api::CreateVolume { copies: Some(1), ..volume_request("db", GIB) };
    let volume = process.catalogue.create(&request).unwrap();
    process.wait("clean, on both drives", is_spread);
    let id = *process.node.memory().drives.keys().next().unwrap();
    process.node.memory().drives.insert(id, DriveCondition::Failed);
    process.wait("missing", |map| map.drive(id).unwrap().state == DriveState::Missing);
    let refused = |request: &api::RemoveDrive| process.catalogue.remove_drive(request).unwrap_err();
    for request in [remove(id), api::RemoveDrive { lost: true, ..remove(id) }] {
        let error = refused(&request).to_string();
        assert!(error.contains("volume \"db\"") && error.contains("--lose-data"), "{error}");
    }
    let give_up = api::RemoveDrive { lose_data: true, ..remove(id) };
    let plan = api::RemoveDrive { dry_run: true, ..give_up.clone() };
    let planned = process.catalogue.remove_drive(&plan).unwrap();
    assert_eq!((planned.volumes_lost, &planned.volume_ids_lost), (vec!["db".to_owned()], &vec![volume.id]));
    // One that is made before the answer was not on the screen.
    let later = process.catalogue.create(&volume_request("later", GIB)).unwrap();
    let agreed = api::RemoveDrive { volumes: Some(planned.volume_ids_lost), ..give_up.clone() };
    let error = refused(&agreed).to_string();
    assert!(error.contains("volume \"later\"") && !error.contains("\"db\""), "{error}");
    for id in [volume.id, later.id] {
        assert_eq!(process.map.map().volume(id).unwrap().state, VolumeState::Active);
    }
    let agreed = api::RemoveDrive { volumes: Some(vec![later.id, volume.id]), ..give_up };
    assert_eq!(process.catalogue.remove_drive(&agreed).unwrap().volumes_lost, ["db", "later"]);
    process.wait("the drive is gone", |map| map.drive(id).is_none());
    assert_eq!(process.map.map().cluster().unwrap().given_up_drives, [id]);
    process.catalogue.create(&volume_request("again", GIB)).unwrap();
}

#[test]
fn a_drive_that_fails_and_comes_back_serves_again() {
    let world = World::new(3, 1);
    let process = &world.processes[2];
    process.catalogue.create(&volume_request("db", GIB)).unwrap();
    process.wait("clean", is_clean);
    let id = *process.node.memory().drives.keys().next().unwrap();
    process.node.memory().drives.insert(id, DriveCondition::Failed);
    process.wait("its copies are out", |map| {
        map.groups().all(|group| group.in_sync.iter().all(|shard| shard.drive != id))
    });
    process.node.memory().drives.insert(id, DriveCondition::Serving);
    process.wait("clean", is_clean);
}
