//! The coordinator's rules one by one, named for what goes wrong.

mod leaders;
mod stuck;

use coquina_base::{ClusterId, DriveId, Id128};
use coquina_cluster::operation::{self, OperationError};
use coquina_cluster::{
    Action, BlockId, ClusterHealth, Coordinator, CopyId, DriveCondition, DriveReport, Event, GroupId,
    GroupRecord, HealthCode, Heartbeat, Key, MapError, MapView, NodeRecord, NodeRequest, POOL_GROUPS_MAX,
    Proposal, ProposedChange, Record, VersionRange, Wanted, Write, WriteOutcome,
};

use crate::world::{CLUSTER, MILLISECOND_NS, World, all_records, drive_id, node_id, settings};

/// The first group of the first pool.
const FIRST: GroupId = GroupId(POOL_GROUPS_MAX);

/// A clean cluster of so many nodes with one drive each.
fn cluster(nodes: u64, copies: u32, groups: u32) -> World {
    let mut world = World::new(1);
    (0..nodes).for_each(|node| world.add_node(node, node, 1));
    world.add_pool("pool", copies, "node", groups).unwrap();
    world.elect();
    world.run_until_clean(200);
    // Only what the coordinator finds by itself.
    world.suspects = false;
    world
}

/// Whose copies are in sync nowhere, and whose are everywhere.
fn out_and_in(world: &World) -> (Vec<DriveId>, Vec<DriveId>) {
    let groups = groups(world);
    let count = |drive: DriveId| {
        groups.iter().filter(|group| group.in_sync.iter().any(|shard| shard.drive == drive)).count()
    };
    let drives = || world.store.drives().map(|drive| drive.value.id);
    (
        drives().filter(|drive| count(*drive) == 0).collect(),
        drives().filter(|drive| count(*drive) == groups.len()).collect(),
    )
}

fn run_ms(world: &mut World, milliseconds: u64) {
    let until_ns = world.now_ns + milliseconds * MILLISECOND_NS;
    while world.now_ns < until_ns {
        world.step();
    }
}

fn groups(world: &World) -> Vec<GroupRecord> {
    world.store.groups().cloned().collect()
}

#[test]
fn a_dead_node_leaves_and_its_groups_get_primaries_that_were_in_sync() {
    let mut world = cluster(4, 3, 64);
    let before = groups(&world);
    world.nodes.get_mut(&node_id(0)).unwrap().up = false;
    run_ms(&mut world, 1_200);
    assert_eq!(groups(&world), before, "too early");
    run_ms(&mut world, 1_000);
    for (before, after) in before.iter().zip(groups(&world)) {
        let dead: Vec<_> =
            before.in_sync.iter().copied().filter(|shard| shard.drive == drive_id(0)).collect();
        assert!(!after.in_sync.iter().any(|shard| shard.drive == drive_id(0)));
        assert_eq!(after.others, dead);
        let kept: Vec<_> = before.in_sync.iter().copied().filter(|shard| !dead.contains(shard)).collect();
        assert_eq!(after.in_sync, kept, "the others keep their order");
    }
    world.nodes.get_mut(&node_id(0)).unwrap().up = true;
    world.run_until_clean(400);
    let primaries = |groups: &[GroupRecord]| groups.iter().map(|group| group.in_sync[0]).collect::<Vec<_>>();
    assert_eq!(primaries(&groups(&world)), primaries(&before), "primaries are given back");
}

#[test]
fn groups_go_on_without_a_drive_that_hangs_while_enough_others_are_there() {
    let mut world = World::new(1);
    world.min_copies = 2;
    (0..3).for_each(|node| world.add_node(node, node, 1));
    world.add_pool("pool", 3, "node", 16).unwrap();
    world.elect();
    world.run_until_clean(200);
    world.suspects = false;
    let primaries = |world: &World| groups(world).iter().map(|group| group.in_sync[0]).collect::<Vec<_>>();
    let before = primaries(&world);
    assert!(before.iter().any(|shard| shard.drive == drive_id(0)), "some lead there");
    world.hung.insert(drive_id(0));
    run_ms(&mut world, 700);
    let others = vec![drive_id(1), drive_id(2)];
    assert_eq!(out_and_in(&world), (vec![drive_id(0)], others.clone()), "at once, primaries and backups");
    assert!(groups(&world).iter().all(|group| group.others.len() == 1), "they stay members");
    // With fewer than `min_copies` no change would be taken: who hangs now has all that is committed, and may answer soon.
    world.hung.insert(drive_id(1));
    run_ms(&mut world, 5_000);
    assert_eq!(out_and_in(&world), (vec![drive_id(0)], others));
    world.hung.clear();
    world.run_until_clean(400);
    assert_eq!(primaries(&world), before, "they are given back");
    // All hang, as on one disk that stalls: what the first reports say costs one copy at most.
    world.hung.extend([drive_id(0), drive_id(1), drive_id(2)]);
    run_ms(&mut world, 5_000);
    assert!(groups(&world).iter().all(|group| group.in_sync.len() >= 2));
    world.hung.clear();
    world.run_until_clean(400);
}

#[test]
fn the_only_copy_gets_others_though_its_drive_is_said_to_hang() {
    let mut world = World::new(1);
    world.min_copies = 1;
    (0..2).for_each(|node| world.add_node(node, node, 1));
    world.add_pool("pool", 2, "node", 8).unwrap();
    world.elect();
    world.run_until_clean(200);
    world.nodes.get_mut(&node_id(1)).unwrap().up = false;
    run_ms(&mut world, 2_500);
    assert_eq!(out_and_in(&world), (vec![drive_id(1)], vec![drive_id(0)]));
    world.said_to_hang.insert(drive_id(0));
    world.nodes.get_mut(&node_id(1)).unwrap().up = true;
    run_ms(&mut world, 5_000);
    assert_eq!(out_and_in(&world), (vec![drive_id(0)], vec![drive_id(1)]), "and it is not needed any more");
    world.said_to_hang.clear();
    world.run_until_clean(400);
}

#[test]
fn a_node_that_stops_in_order_is_removed_at_once() {
    let mut world = cluster(3, 3, 8);
    world.nodes.get_mut(&node_id(1)).unwrap().stopping = true;
    run_ms(&mut world, 300);
    assert!(groups(&world).iter().all(|group| group.in_sync.len() == 2));
}

#[test]
fn the_last_good_copy_stays_and_whoever_returns_first_of_the_last_goes_on() {
    let mut world = cluster(3, 3, 8);
    for node in 0..2 {
        world.nodes.get_mut(&node_id(node)).unwrap().up = false;
        run_ms(&mut world, 2_500);
    }
    let before = groups(&world);
    assert!(before.iter().all(|group| group.in_sync.len() == 1 && group.in_sync[0].drive == drive_id(2)));
    world.nodes.get_mut(&node_id(2)).unwrap().conditions.insert(drive_id(2), DriveCondition::Failed);
    world.nodes.get_mut(&node_id(0)).unwrap().up = true;
    run_ms(&mut world, 5_000);
    assert!(groups(&world).iter().all(|group| group.in_sync[0].drive == drive_id(2)));
    let health = ClusterHealth::of(&world.seats[0].coordinator);
    assert_eq!((health.groups.down, health.groups.degraded), (8, 8));
    assert_eq!(health.entries[0].code, HealthCode::GroupDown);
    assert!(health.entries[0].message.contains("on node-2"), "{:?}", health.entries[0]);
}

/// It said that copies were being made anew while none were.
#[test]
fn a_degraded_pool_says_what_its_copies_wait_for() {
    let mut world = cluster(3, 3, 8);
    world.nodes.get_mut(&node_id(1)).unwrap().up = false;
    run_ms(&mut world, 2_500);
    let degraded = |world: &World| {
        let health = ClusterHealth::of(&world.seats[0].coordinator);
        assert_eq!((health.groups.degraded, health.groups.recovering), (8, 0));
        health.entries.into_iter().find(|entry| entry.code == HealthCode::GroupDegraded).unwrap().advice
    };
    let advice = degraded(&world);
    assert!(advice.contains("silent for 10 minutes") && advice.starts_with("start the nodes"), "{advice}");
    // The node is gone for so long that its copies are to be made elsewhere, and there is no fourth one.
    run_ms(&mut world, 25_000);
    let advice = degraded(&world);
    assert!(advice.contains("bring back what is missing") && !advice.contains("10 minutes"), "{advice}");
}

#[test]
fn more_than_half_silent_at_once_is_the_coordinators_isolation() {
    let mut world = cluster(5, 3, 16);
    let before = groups(&world);
    (0..3).for_each(|node| world.nodes.get_mut(&node_id(node)).unwrap().reachable = false);
    // Primaries that can be reached still say what they see: here, that all is well.
    run_ms(&mut world, 10_000);
    assert_eq!(groups(&world), before);
    let liveness = world.seats[0].coordinator.liveness();
    assert!(liveness.is_isolated());
    // Nobody is dead, and who is silent is known all the same.
    let heard = |node| liveness.is_node_heard(node_id(node), world.now_ns);
    assert_eq!([0, 1, 2, 3, 4].map(heard), [false, false, false, true, true]);
    let health = ClusterHealth::of(&world.seats[0].coordinator);
    assert!(health.entries.iter().any(|entry| entry.code == HealthCode::CoordinatorIsolated));
    (0..3).for_each(|node| world.nodes.get_mut(&node_id(node)).unwrap().reachable = true);
    run_ms(&mut world, 1_000);
    assert!(!world.seats[0].coordinator.liveness().is_isolated());
    assert_eq!(groups(&world), before);
}

#[test]
fn one_after_the_other_is_no_isolation() {
    let mut world = cluster(5, 3, 16);
    for node in 0..3 {
        world.nodes.get_mut(&node_id(node)).unwrap().up = false;
        run_ms(&mut world, 3_000);
    }
    let gone = |group: &GroupRecord| group.in_sync.iter().all(|shard| shard.drive >= drive_id(3));
    assert!(groups(&world).iter().filter(|group| group.in_sync.len() > 1).all(gone));
}

#[test]
fn a_new_coordinator_and_one_that_slept_believe_nobody_dead() {
    let mut world = cluster(4, 3, 16);
    let before = groups(&world);
    world.seats.clear();
    world.now_ns += 60_000 * MILLISECOND_NS;
    world.elect();
    let mut actions = Vec::new();
    let seat = &mut world.seats[0].coordinator;
    seat.apply(world.now_ns + 1_000 * MILLISECOND_NS, Event::Tick, &mut actions);
    seat.apply(world.now_ns + 60_000 * MILLISECOND_NS, Event::Tick, &mut actions);
    assert!(!actions.iter().any(|action| matches!(action, Action::Write(_))), "{actions:?}");
    assert_eq!(groups(&world), before);
}

#[test]
fn proposals_need_the_epoch_and_a_living_primary() {
    let mut world = cluster(4, 3, 1);
    let group = groups(&world)[0].clone();
    let coordinator = &mut world.seats[0].coordinator;
    let mut propose = |node, epoch, change| {
        let proposals = vec![Proposal { group: group.id, epoch, change }];
        let heartbeat = Heartbeat {
            node,
            cluster: CLUSTER,
            map_revision: coordinator.map().revision(),
            stopping: false,
            drives: Vec::new(),
            proposals,
            returning: Some(Vec::new()),
        };
        let mut actions = Vec::new();
        coordinator.apply(world.now_ns, Event::Heartbeat(heartbeat), &mut actions);
        actions
    };
    let node_of = |shard: coquina_cluster::ShardRef| world.store.node_of(shard).unwrap();
    let [primary, backup, _] = group.in_sync[..] else { panic!("{group:?}") };
    let remove = ProposedChange::Remove(backup);
    assert_eq!(propose(node_of(backup), group.epoch, remove), [], "not the primary");
    assert_eq!(propose(node_of(primary), group.epoch + 1, remove), [], "an epoch of the future");
    assert_eq!(propose(node_of(primary), group.epoch, ProposedChange::Add(primary)), [], "not out");
    let actions = propose(node_of(primary), group.epoch, remove);
    let [Action::Write(Write { record: Some(Record::Groups(block)), .. })] = &actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!(block.groups[0].epoch, group.epoch + 1);
    assert_eq!(block.groups[0].others, [backup]);
    assert_eq!(block.groups[0].wanted, group.in_sync);
}

fn with_proposal(event: Event, group: &GroupRecord, change: ProposedChange) -> Event {
    let Event::Heartbeat(mut heartbeat) = event else { panic!("not a heartbeat") };
    heartbeat.proposals.push(Proposal { group: group.id, epoch: group.epoch, change });
    Event::Heartbeat(heartbeat)
}

/// Its drive is full beyond what is kept: it does nothing any more, but its node lives, and its drive serves.
#[test]
fn a_primary_that_cannot_go_on_is_followed_by_a_living_one_in_sync() {
    let mut world = cluster(4, 3, 1);
    let group = groups(&world)[0].clone();
    let [primary, silent, heir] = group.in_sync[..] else { panic!("{group:?}") };
    let of = |shard: coquina_cluster::ShardRef| serving(&world, world.store.node_of(shard).unwrap());
    let gives_away = || with_proposal(of(primary), &group, ProposedChange::Remove(primary));
    let mut actions = Vec::new();
    let mut coordinator = Coordinator::new(settings(), world.store.clone(), world.now_ns);
    coordinator.apply(world.now_ns, gives_away(), &mut actions);
    assert_eq!(actions, [], "nobody is known to be alive who could follow");
    coordinator.apply(world.now_ns, of(heir), &mut actions);
    assert_eq!(actions, [], "the primary says it again");
    coordinator.apply(world.now_ns, gives_away(), &mut actions);
    let [Action::Write(write)] = &actions[..] else { panic!("{actions:?}") };
    let Some(Record::Groups(block)) = &write.record else { panic!("{write:?}") };
    let after = GroupRecord {
        epoch: group.epoch + 1,
        in_sync: vec![heir, silent],
        others: vec![primary],
        wanted: group.in_sync.clone(),
        ..group.clone()
    };
    assert_eq!(block.groups, [after]);
    let rests_on: Vec<Key> = write.unchanged.iter().map(|(key, _)| *key).collect();
    for shard in [heir, silent] {
        assert!(rests_on.contains(&Key::Drive(shard.drive)), "who stays must not be given up meanwhile");
    }
    let write = write.clone();
    assert!(world.write(write));
}

#[test]
fn the_only_copy_in_sync_is_not_removed_whoever_asks_for_it() {
    let mut world = cluster(3, 1, 1);
    let group = groups(&world)[0].clone();
    let only = group.in_sync[0];
    let event = serving(&world, world.store.node_of(only).unwrap());
    let event = with_proposal(event, &group, ProposedChange::Remove(only));
    let mut actions = Vec::new();
    world.seats[0].coordinator.apply(world.now_ns, event, &mut actions);
    assert_eq!(actions, []);
}

/// The backup was silent for a moment, and answers again before anything was decided.
#[test]
fn a_proposal_that_the_next_heartbeat_has_not_got_is_forgotten() {
    let mut world = cluster(4, 3, 1);
    let group = groups(&world)[0].clone();
    let [primary, backup, _] = group.in_sync[..] else { panic!("{group:?}") };
    let node_of = |shard| world.store.node_of(shard).unwrap();
    let removes = with_proposal(serving(&world, node_of(primary)), &group, ProposedChange::Remove(backup));
    let (nothing, of_another) = (serving(&world, node_of(primary)), serving(&world, node_of(backup)));
    // Of its outcome nothing is known: it is decided anew.
    let failed = Event::Written { key: Key::Groups(BlockId::of(FIRST)), outcome: WriteOutcome::Failed };
    let coordinator = &mut world.seats[0].coordinator;
    let mut writes = |event: &Event| {
        let mut actions = Vec::new();
        coordinator.apply(world.now_ns, event.clone(), &mut actions);
        assert!(actions.iter().all(|action| matches!(action, Action::Write(_))), "{actions:?}");
        actions.len()
    };
    assert_eq!(writes(&removes), 1);
    assert_eq!(writes(&of_another), 0);
    assert_eq!(writes(&failed), 1, "what others ask for changes nothing");
    assert_eq!(writes(&nothing), 0);
    assert_eq!(writes(&failed), 0, "it was taken back");
    assert_eq!(writes(&removes), 1, "and asked for again");
}

/// The only other copy is taken out by a leader that has not heard that the drive of the one that stays is lost; or the other
/// way round.
#[test]
fn the_last_two_copies_are_not_taken_away_by_two_who_have_not_heard_of_each_other() {
    for removal_first in [false, true] {
        let mut world = cluster(4, 2, 1);
        let group = groups(&world)[0].clone();
        let [primary, backup] = group.in_sync[..] else { panic!("{group:?}") };
        let proposal = Proposal { group: FIRST, epoch: group.epoch, change: ProposedChange::Remove(backup) };
        let heartbeat = Heartbeat {
            node: world.store.node_of(primary).unwrap(),
            cluster: CLUSTER,
            map_revision: world.store.revision(),
            stopping: false,
            drives: Vec::new(),
            proposals: vec![proposal],
            returning: Some(Vec::new()),
        };
        let mut actions = Vec::new();
        world.seats[0].coordinator.apply(world.now_ns, Event::Heartbeat(heartbeat), &mut actions);
        let Some(Action::Write(removal)) = actions.pop() else { panic!("{actions:?}") };
        let give_up = operation::give_up_drive(&world.store, primary.drive).unwrap().unwrap();
        let (first, second) = if removal_first { (removal, give_up) } else { (give_up, removal) };
        let key = second.key;
        assert!(world.write(first));
        assert!(!world.write(second), "{removal_first}: it was decided on what does not hold any more");
        if removal_first {
            let refused = operation::give_up_drive(&world.store, primary.drive);
            assert!(matches!(refused, Err(OperationError::LastGoodCopy { .. })), "{refused:?}");
            continue;
        }
        // The leader hears of it, and goes on with the copy that is left.
        world.apply(0, Event::Written { key, outcome: WriteOutcome::Conflict });
        run_ms(&mut world, 300);
        let after = groups(&world)[0].clone();
        assert!(after.in_sync.contains(&backup) && !after.in_sync.contains(&primary), "{after:?}");
    }
}

#[test]
fn a_primary_that_asks_for_it_gets_the_next_epoch_with_the_same_members() {
    let mut world = cluster(4, 3, 1);
    let group = groups(&world)[0].clone();
    let heartbeat = Heartbeat {
        node: world.store.node_of(group.in_sync[0]).unwrap(),
        cluster: CLUSTER,
        map_revision: world.store.revision(),
        stopping: false,
        drives: Vec::new(),
        proposals: vec![Proposal { group: FIRST, epoch: group.epoch, change: ProposedChange::Renew }],
        returning: Some(Vec::new()),
    };
    let mut actions = Vec::new();
    world.seats[0].coordinator.apply(world.now_ns, Event::Heartbeat(heartbeat), &mut actions);
    let [Action::Write(Write { record: Some(Record::Groups(block)), .. })] = &actions[..] else {
        panic!("{actions:?}")
    };
    assert_eq!(block.groups[0], GroupRecord { epoch: group.epoch + 1, ..group });
}

#[test]
fn a_proposal_is_read_from_the_configuration_that_the_protocol_asks_for() {
    let world = cluster(4, 3, 1);
    let config = world.store.config(FIRST).unwrap();
    assert_eq!(config.epoch, 1);
    assert!(config.in_sync.iter().all(|copy| world.store.shard_of(*copy).is_some()));
    let without = config.without(config.in_sync[2]);
    let shard = world.store.shard_of(config.in_sync[2]).unwrap();
    let proposal = Proposal { group: FIRST, epoch: 1, change: ProposedChange::Remove(shard) };
    assert_eq!(Proposal::of_config(&world.store, FIRST, &without), Some(proposal));
    assert_eq!(Proposal::of_config(&world.store, FIRST, &config), None);
    let renewal = Proposal { group: FIRST, epoch: 1, change: ProposedChange::Renew };
    assert_eq!(Proposal::of_config(&world.store, FIRST, &config.renewed()), Some(renewal));
    let with = config.with(CopyId(99));
    assert_eq!(Proposal::of_config(&world.store, FIRST, &with), None, "an unknown copy");
}

#[test]
fn a_drive_out_for_long_is_replaced_and_a_given_up_one_forgotten() {
    let mut world = cluster(4, 2, 32);
    world.nodes.get_mut(&node_id(3)).unwrap().up = false;
    run_ms(&mut world, 60_000);
    let is_used = |group: &GroupRecord| group.named().iter().any(|shard| shard.drive == drive_id(3));
    assert!(!groups(&world).iter().any(is_used), "copies are made anew elsewhere");
    assert!(groups(&world).iter().all(|group| group.in_sync.len() == 2));
    let write = operation::give_up_drive(&world.store, drive_id(3)).unwrap().unwrap();
    assert!(world.write(write));
    run_ms(&mut world, 5_000);
    assert!(world.store.drive(drive_id(3)).is_none());
    assert_eq!(world.store.cluster().unwrap().given_up_drives, [drive_id(3)]);
}

#[test]
fn a_node_is_drained_then_goes_and_a_new_one_is_filled() {
    let mut world = cluster(4, 3, 64);
    let write = operation::want_node(&world.store, node_id(1), Wanted::Removing).unwrap().unwrap();
    assert!(world.write(write));
    world.run_until_clean(2_000);
    run_ms(&mut world, 3_000);
    assert!(world.store.node(node_id(1)).is_none() && world.store.drive(drive_id(1)).is_none());
    world.nodes.remove(&node_id(1));
    world.add_node(9, 9, 1);
    run_ms(&mut world, 2_000);
    world.run_until_clean(2_000);
    let new = world.store.drives_of(node_id(9)).next().unwrap().id;
    let copies: usize = world.store.used_shards_of(new).map(|(_, groups)| groups.len()).sum();
    assert!(copies > 24, "the new node has {copies} copies");
}

#[test]
fn removals_that_would_break_a_rule_are_refused_with_the_reason() {
    let mut world = cluster(3, 3, 4);
    let refused = operation::want_node(&world.store, node_id(1), Wanted::Removing).unwrap_err();
    assert!(matches!(refused, OperationError::Domains { .. }), "{refused}");
    assert!(refused.to_string().contains("there are 2"), "{refused}");
    let refused = operation::reweight_drive(&world.store, drive_id(0), 0).unwrap_err();
    assert!(matches!(refused, OperationError::Domains { .. }), "{refused}");
    assert!(operation::give_up_drive(&world.store, drive_id(0)).is_ok(), "there are two other copies");
    for node in 0..2 {
        world.nodes.get_mut(&node_id(node)).unwrap().up = false;
        run_ms(&mut world, 2_500);
    }
    let refused = operation::give_up_drive(&world.store, drive_id(2)).unwrap_err();
    assert!(matches!(refused, OperationError::LastGoodCopy { groups: 4, .. }), "{refused}");
}

#[test]
fn pools_and_nodes_that_cannot_be_are_refused() {
    let mut world = cluster(3, 3, 4);
    let refused = world.add_pool("wide", 4, "node", 8).unwrap_err();
    assert!(refused.to_string().contains("4 copies need"), "{refused}");
    let refused = world.add_pool("pool", 2, "node", 8).unwrap_err();
    assert!(matches!(refused, OperationError::NameTaken { .. }), "{refused}");
    for (copies, groups) in [(0, 8), (9, 8), (2, 0), (2, 3), (2, 1 << 19)] {
        let refused = world.add_pool("odd", copies, "node", groups).unwrap_err();
        assert!(matches!(refused, OperationError::Invalid(_)), "{copies} {groups}: {refused}");
    }
    let mut pool = world.store.pool_by_name("pool").unwrap().clone();
    (pool.name, pool.min_copies) = ("many".to_owned(), 4);
    let refused = operation::create_pool(&world.store, &pool).unwrap_err();
    assert!(refused.to_string().contains("min_copies is 4"), "{refused}");

    let node = NodeRecord { id: node_id(50), ..world.store.node(node_id(0)).unwrap().clone() };
    let refused = operation::register_node(&world.store, None, &node).unwrap_err();
    assert!(matches!(refused, OperationError::NodeNameTaken { .. }), "{refused}");
    let node = NodeRecord { name: "other".to_owned(), ..node };
    let other = ClusterId(Id128([9; 16]));
    let refused = operation::register_node(&world.store, Some(other), &node).unwrap_err();
    assert!(matches!(refused, OperationError::OtherCluster { .. }), "{refused}");
    let newer = NodeRecord { versions: VersionRange { min: 3, max: 4 }, ..node.clone() };
    let refused = operation::register_node(&world.store, None, &newer).unwrap_err();
    assert!(matches!(refused, OperationError::VersionsApart { .. }), "{refused}");
    let overlapping = NodeRecord { versions: VersionRange { min: 2, max: 4 }, ..node };
    assert!(operation::register_node(&world.store, Some(CLUSTER), &overlapping).unwrap().is_some());
}

#[test]
fn a_pool_without_volumes_can_be_taken_away() {
    let mut world = cluster(3, 2, 128);
    let id = world.store.pool_by_name("pool").unwrap().id;
    let write = operation::remove_pool(&world.store, id).unwrap().unwrap();
    assert!(world.write(write));
    run_ms(&mut world, 5_000);
    assert_eq!((world.store.pool(id), world.store.groups().count()), (None, 0));
    assert_eq!(world.store.used_shards().count(), 0);
}

#[test]
fn strangers_are_told_so() {
    let mut world = cluster(3, 2, 1);
    let heartbeat = |node, cluster| Heartbeat {
        node,
        cluster,
        map_revision: 1,
        stopping: false,
        drives: Vec::new(),
        proposals: Vec::new(),
        returning: Some(Vec::new()),
    };
    let coordinator = &mut world.seats[0].coordinator;
    let mut requests = |heartbeat| {
        let mut actions = Vec::new();
        coordinator.apply(world.now_ns, Event::Heartbeat(heartbeat), &mut actions);
        actions
    };
    let tell = |node, request| vec![Action::Tell { node, request }];
    let expected = tell(node_id(0), NodeRequest::OtherCluster { expected: CLUSTER });
    assert_eq!(requests(heartbeat(node_id(0), ClusterId(Id128([9; 16])))), expected);
    assert_eq!(requests(heartbeat(node_id(70), CLUSTER)), tell(node_id(70), NodeRequest::NotInMap));
}

/// A backup of the store from before the last changes is put back.
#[test]
fn a_restored_store_halts_the_coordinator() {
    let mut world = cluster(3, 3, 4);
    let backup = world.store.clone();
    world.nodes.get_mut(&node_id(0)).unwrap().up = false;
    run_ms(&mut world, 3_000);
    let mut coordinator = Coordinator::new(settings(), world.store.clone(), world.now_ns);
    let halted = |coordinator: &mut Coordinator, revision| {
        let mut actions = Vec::new();
        let event = Event::Read { token: 0, records: all_records(&backup), revision };
        coordinator.apply(world.now_ns, event, &mut actions);
        let [Action::Halt(_)] = &actions[..] else { panic!("{actions:?}") };
        actions.truncate(0);
        coordinator.apply(world.now_ns, Event::Tick, &mut actions);
        assert_eq!(actions, [], "nothing comes after a halt");
        coordinator.halted().cloned().unwrap()
    };
    let error = halted(&mut coordinator, backup.revision());
    assert!(matches!(&error, MapError::WentBack { what, .. } if what == "its revision"), "{error}");
    // The restored store may have gone on since; then epochs tell.
    let mut coordinator = Coordinator::new(settings(), world.store.clone(), world.now_ns);
    let error = halted(&mut coordinator, world.store.revision() + 1_000);
    assert!(error.to_string().contains("epoch of group"), "{error}");
}

/// The coordinator was elected after the restore and knows nothing of it, but a node remembers.
#[test]
fn a_node_that_has_seen_a_higher_epoch_uncovers_a_restored_store() {
    let world = cluster(3, 3, 4);
    let group = groups(&world)[0].clone();
    let node = world.store.node_of(group.in_sync[0]).unwrap();
    let mut coordinator = Coordinator::new(settings(), world.store.clone(), world.now_ns);
    let change = ProposedChange::Remove(group.in_sync[1]);
    let proposals = vec![Proposal { group: group.id, epoch: group.epoch + 5, change }];
    let map_revision = world.store.revision();
    let heartbeat = Heartbeat {
        node,
        cluster: CLUSTER,
        map_revision,
        stopping: false,
        drives: Vec::new(),
        proposals,
        returning: Some(Vec::new()),
    };
    let mut actions = Vec::new();
    for step in 0..25 {
        let now_ns = world.now_ns + step * 100 * MILLISECOND_NS;
        coordinator.apply(now_ns, Event::Heartbeat(heartbeat.clone()), &mut actions);
        coordinator.apply(now_ns, Event::Tick, &mut actions);
    }
    let token = actions.iter().find_map(|action| match action {
        Action::ReadAll { token } => Some(*token),
        _ => None,
    });
    let event =
        Event::Read { token: token.unwrap(), records: all_records(&world.store), revision: map_revision };
    actions.clear();
    coordinator.apply(world.now_ns + 2_500 * MILLISECOND_NS, event, &mut actions);
    assert!(matches!(&actions[..], [Action::Halt(MapError::WentBack { .. })]), "{actions:?}");
}

/// Others use the store, too, so that its revision moves on without the map.
#[test]
fn a_node_lacks_only_what_has_changed_the_map() {
    let world = cluster(3, 3, 4);
    let seen = world.store.revision();
    let map = MapView::load(all_records(&world.store), seen + 100).unwrap();
    let mut coordinator = Coordinator::new(settings(), map, world.now_ns);
    let mut now_ns = world.now_ns;
    let mut is_told_to_read = |map_revision| {
        let heartbeat = Heartbeat {
            node: node_id(0),
            cluster: CLUSTER,
            map_revision,
            stopping: false,
            drives: Vec::new(),
            proposals: Vec::new(),
            returning: Some(Vec::new()),
        };
        let mut actions = Vec::new();
        for _ in 0..25 {
            now_ns += 100 * MILLISECOND_NS;
            coordinator.apply(now_ns, Event::Heartbeat(heartbeat.clone()), &mut actions);
            coordinator.apply(now_ns, Event::Tick, &mut actions);
        }
        let is_read =
            |action: &Action| matches!(action, Action::Tell { request: NodeRequest::ReadMap { .. }, .. });
        actions.iter().any(is_read)
    };
    assert!(!is_told_to_read(seen), "it has everything");
    assert!(is_told_to_read(seen - 1), "its watch is lost");
}

#[test]
fn several_groups_of_a_block_change_in_one_write() {
    let mut world = cluster(4, 3, 128);
    let before = world.history.len();
    world.nodes.get_mut(&node_id(2)).unwrap().up = false;
    run_ms(&mut world, 2_400);
    let keys: Vec<Key> =
        world.history[before..].iter().flat_map(|(_, changes)| changes).map(|(key, _)| *key).collect();
    let writes =
        |block| keys.iter().filter(|key| **key == Key::Groups(BlockId(BlockId::of(FIRST).0 + block))).count();
    assert_eq!((writes(0), writes(1)), (1, 1), "{keys:?}");
}

fn serving(world: &World, node: coquina_base::NodeId) -> Event {
    let report = |drive: DriveId| DriveReport { drive, condition: DriveCondition::Serving, hung: false };
    Event::Heartbeat(Heartbeat {
        node,
        cluster: CLUSTER,
        map_revision: world.store.revision(),
        stopping: false,
        drives: world.store.drives_of(node).map(|drive| report(drive.id)).collect(),
        proposals: Vec::new(),
        returning: Some(Vec::new()),
    })
}
