//! Several who change the map at the same moment, each by what it knew, named for what would go wrong.

use coquina_base::{DriveId, NodeId};
use coquina_cluster::operation::{self, OperationError};
use coquina_cluster::{
    Action, BlockId, ClusterHealth, Coordinator, DriveCondition, DriveRecord, DriveReport, DriveState, Event,
    GroupBlock, GroupId, GroupRecord, Heartbeat, Key, MapView, NodeRecord, POOL_GROUPS_MAX, PoolId,
    PoolState, Proposal, ProposedChange, Record, ShardRef, UNCHANGED_MAX, VolumeRecord, VolumeState, Wanted,
    Write,
};

use crate::world::{CLUSTER, MILLISECOND_NS, World, all_records, drive_id, node_id, settings};

/// A clean cluster of so many nodes with one drive each.
fn cluster(nodes: u64, copies: u32, groups: u32) -> World {
    let mut world = World::new(1);
    // Only what the coordinator finds by itself.
    world.suspects = false;
    (0..nodes).for_each(|node| world.add_node(node, node, 1));
    world.add_pool("pool", copies, "node", groups).unwrap();
    world.elect();
    world.run_until_clean(200);
    world
}

fn run_ms(world: &mut World, milliseconds: u64) {
    let until_ns = world.now_ns + milliseconds * MILLISECOND_NS;
    while world.now_ns < until_ns {
        world.step();
    }
}

fn heartbeat(map: &MapView, node: NodeId, stopping: bool, proposals: Vec<Proposal>) -> Event {
    let report = |drive: DriveId| DriveReport { drive, condition: DriveCondition::Serving, hung: false };
    let drives = map.drives_of(node).map(|drive| report(drive.id)).collect();
    let (map_revision, returning) = (map.revision(), Some(Vec::new()));
    Event::Heartbeat(Heartbeat {
        node,
        cluster: CLUSTER,
        map_revision,
        stopping,
        drives,
        proposals,
        returning,
    })
}

/// What the leader writes when a primary has it take a backup out.
fn removal_of(world: &mut World, group: &GroupRecord, backup: ShardRef) -> Write {
    let proposal = Proposal { group: group.id, epoch: group.epoch, change: ProposedChange::Remove(backup) };
    let node = world.store.node_of(group.in_sync[0]).unwrap();
    let event = heartbeat(&world.store, node, false, vec![proposal]);
    let mut actions = Vec::new();
    world.seats[0].coordinator.apply(world.now_ns, event, &mut actions);
    let Some(Action::Write(removal)) = actions.pop() else { panic!("{actions:?}") };
    removal
}

#[test]
fn two_who_give_up_the_two_good_copies_at_once_do_not_both_succeed() {
    let mut world = cluster(4, 2, 1);
    let group = world.store.groups().next().unwrap().clone();
    let give_ups: Vec<Write> = group
        .in_sync
        .iter()
        .map(|shard| operation::give_up_drive(&world.store, shard.drive).unwrap().unwrap())
        .collect();
    let [first, second] = &give_ups[..] else { panic!("{give_ups:?}") };
    assert!(world.write(first.clone()));
    assert!(!world.write(second.clone()), "the other good copy was given up meanwhile");
    let refused = operation::give_up_drive(&world.store, group.in_sync[1].drive);
    assert!(matches!(refused, Err(OperationError::LastGoodCopy { .. })), "{refused:?}");
}

/// More blocks of groups than a transaction can name.
#[test]
fn a_drive_with_very_many_groups_is_given_up_only_as_it_was_seen() {
    let mut world = cluster(4, 2, 8192);
    let lost = drive_id(0);
    let has_primary = |group: &&GroupRecord| group.in_sync[0].drive == lost;
    // In the last block, which would be left out first.
    let group = world.store.groups().filter(has_primary).last().unwrap().clone();
    let write = operation::give_up_drive(&world.store, lost).unwrap().unwrap();
    assert!(world.store.used_shards_of(lost).map(|(_, groups)| groups.len()).sum::<usize>() > UNCHANGED_MAX);
    assert!(write.unchanged.len() <= UNCHANGED_MAX);
    let removal = removal_of(&mut world, &group, group.in_sync[1]);
    assert!(world.write(removal));
    assert!(!world.write(write), "the other copy of {group:?} was taken out meanwhile");
    // The leader has not heard yet; what is decided on the present map holds.
    let refused = operation::give_up_drive(&world.store, lost);
    assert!(matches!(refused, Err(OperationError::LastGoodCopy { groups: 1, .. })), "{refused:?}");
    let other = operation::give_up_drive(&world.store, drive_id(3)).unwrap().unwrap();
    assert!(world.write(other));
}

#[test]
fn a_drive_does_not_come_to_a_node_that_goes() {
    let mut world = cluster(3, 2, 4);
    world.add_node(9, 9, 0);
    let (copy_first, claim) = operation::claim_copies(&world.store, 1, 0).unwrap();
    assert!(world.write(claim));
    let known = world.store.drive(drive_id(0)).unwrap().clone();
    let drive = DriveRecord { id: drive_id(70), node: node_id(9), copy_first, shards: 1, ..known.clone() };
    let write = operation::register_drive(&world.store, &drive).unwrap().unwrap();
    let leaves = operation::want_node(&world.store, node_id(9), Wanted::Removing).unwrap().unwrap();
    assert!(world.write(leaves));
    let refused = operation::register_drive(&world.store, &drive);
    assert!(matches!(refused, Err(OperationError::NodeLeaves(_))), "{refused:?}");
    let moved = DriveRecord { node: node_id(9), ..known.clone() };
    let refused = operation::register_drive(&world.store, &moved);
    assert!(matches!(refused, Err(OperationError::NodeLeaves(_))), "{refused:?}");
    run_ms(&mut world, 3_000);
    assert!(world.store.node(node_id(9)).is_none());
    assert!(!world.write(write), "the node is gone");
    // One that is there says where it is as ever.
    let leaves = operation::want_drive(&world.store, known.id, Wanted::Removing).unwrap().unwrap();
    assert!(world.write(leaves));
    let node = operation::want_node(&world.store, known.node, Wanted::Removing);
    assert!(node.is_err() || world.write(node.unwrap().unwrap()));
    let again = DriveRecord { path: "/dev/elsewhere".to_owned(), ..known };
    let write = operation::register_drive(&world.store, &again).unwrap().unwrap();
    assert!(world.write(write));
}

/// An operator wants the node again while the leader takes its drives away.
#[test]
fn a_drive_does_not_go_with_a_node_that_stays() {
    let mut world = cluster(3, 2, 4);
    world.add_node(9, 9, 1);
    let drive = world.store.drives_of(node_id(9)).next().unwrap().id;
    let leaves = operation::want_node(&world.store, node_id(9), Wanted::Removing).unwrap().unwrap();
    assert!(world.write(leaves));
    let mut leader = elected(&world);
    let asked = actions(&mut leader, world.now_ns + 600 * MILLISECOND_NS, Event::Tick);
    let of_drive = |action| match action {
        Action::Write(write) if write.key == Key::Drive(drive) => Some(write),
        _ => None,
    };
    let held = asked.into_iter().find_map(of_drive).expect("no group names it");
    assert_eq!(held.record, None);
    let stays = operation::want_node(&world.store, node_id(9), Wanted::In).unwrap().unwrap();
    assert!(world.write(stays));
    assert!(!world.write(held), "its node is not to go any more");
    assert!(world.store.drive(drive).is_some());
    // Of one that is wanted gone itself nobody asks the node.
    let leaves = operation::want_drive(&world.store, drive, Wanted::Removing).unwrap().unwrap();
    assert!(world.write(leaves));
    let mut leader = elected(&world);
    let asked = actions(&mut leader, world.now_ns + 600 * MILLISECOND_NS, Event::Tick);
    let gone = asked.into_iter().find_map(of_drive).expect("no group names it");
    assert!(gone.unchanged.is_empty());
    assert!(world.write(gone));
}

#[test]
fn a_volume_does_not_come_to_a_pool_that_is_gone() {
    let mut world = cluster(3, 2, 4);
    let record = world.volume(1, "volume-1");
    let write = operation::create_volume(&world.store, &record).unwrap().unwrap();
    let removal = operation::remove_pool(&world.store, record.pool).unwrap().unwrap();
    assert!(world.write(removal));
    run_ms(&mut world, 3_000);
    assert!(world.store.pool(record.pool).is_none());
    assert!(!world.write(write));
}

/// Who removed the pool had not seen the volume yet.
#[test]
fn a_pool_that_was_told_to_go_stays_for_a_volume_that_was_made_meanwhile() {
    let mut world = cluster(3, 2, 4);
    let record = world.volume(1, "volume-1");
    let removal = operation::remove_pool(&world.store, record.pool).unwrap().unwrap();
    let write = operation::create_volume(&world.store, &record).unwrap().unwrap();
    assert!(world.write(write) && world.write(removal));
    assert_eq!(world.store.pool(record.pool).unwrap().state, PoolState::Removing);
    run_ms(&mut world, 3_000);
    assert_eq!(world.store.pool(record.pool).unwrap().state, PoolState::Active);
    // With one that goes anyway it goes, too.
    let removing = VolumeRecord { state: VolumeState::Removing, ..record.clone() };
    let key = Key::Volume(record.id);
    let revision = world.store.revision_of(&key);
    assert!(world.write(Write::new(key, revision, Some(Record::Volume(removing.clone())))));
    let pool = world.store.pool(record.pool).unwrap().clone();
    let key_of_pool = Key::Pool(pool.id);
    let going = coquina_cluster::PoolRecord { state: PoolState::Removing, ..pool };
    let pool_revision = world.store.revision_of(&key_of_pool);
    assert!(world.write(Write::new(key_of_pool, pool_revision, Some(Record::Pool(going)))));
    run_ms(&mut world, 3_000);
    assert_eq!(world.store.pool(record.pool).unwrap().state, PoolState::Removing);
    let revision = world.store.revision_of(&key);
    assert!(world.write(Write::new(key, revision, None)));
    run_ms(&mut world, 3_000);
    assert!(world.store.pool(record.pool).is_none());
}

/// A coordinator over the map of a world that has just been elected, and has heard all nodes.
fn elected(world: &World) -> Coordinator {
    let mut coordinator = Coordinator::new(settings(), world.store.clone(), world.now_ns);
    for node in world.store.nodes() {
        let event = heartbeat(&world.store, node.value.id, false, Vec::new());
        coordinator.apply(world.now_ns, event, &mut Vec::new());
    }
    coordinator
}

fn actions(coordinator: &mut Coordinator, now_ns: u64, event: Event) -> Vec<Action> {
    let mut actions = Vec::new();
    coordinator.apply(now_ns, event, &mut actions);
    actions
}

/// Runs the placement of a pool that was asked for.
fn placed(actions: &[Action], pool: PoolId) -> Option<Event> {
    actions.iter().find_map(|action| match action {
        Action::Place(job) if job.pool == pool => Some(Event::Placed { pool, result: job.place() }),
        _ => None,
    })
}

fn new_blocks(actions: Vec<Action>) -> Vec<Write> {
    let block = |action| match action {
        Action::Write(write) if matches!(write.key, Key::Groups(_)) => Some(write),
        _ => None,
    };
    actions.into_iter().filter_map(block).collect()
}

#[test]
fn groups_do_not_come_to_a_pool_that_is_gone() {
    let mut world = cluster(3, 2, 4);
    world.add_pool("second", 2, "node", 4).unwrap();
    let pool = world.store.pool_by_name("second").unwrap().id;
    let mut leader = elected(&world);
    let asked = actions(&mut leader, world.now_ns + 600 * MILLISECOND_NS, Event::Tick);
    let event = placed(&asked, pool).unwrap();
    let writes = new_blocks(actions(&mut leader, world.now_ns + 600 * MILLISECOND_NS, event));
    let [write] = &writes[..] else { panic!("{writes:?}") };
    // It is on its way for very long.
    let removal = operation::remove_pool(&world.store, pool).unwrap().unwrap();
    assert!(world.write(removal));
    run_ms(&mut world, 3_000);
    assert!(world.store.pool(pool).is_none());
    assert!(!world.write(write.clone()));
    assert!(MapView::load(all_records(&world.store), world.store.revision()).unwrap().orphans().is_empty());
}

/// Whoever is first in a new group has to be there, and it died after places were found.
#[test]
fn a_new_pool_whose_first_drives_die_before_its_groups_are_written_gets_others() {
    let mut world = cluster(4, 2, 4);
    world.add_pool("second", 2, "node", 4).unwrap();
    let pool = world.store.pool_by_name("second").unwrap().clone();
    let mut leader = elected(&world);
    let mut now_ns = world.now_ns + 600 * MILLISECOND_NS;
    let asked = actions(&mut leader, now_ns, Event::Tick);
    let event = placed(&asked, pool.id).unwrap();
    let Event::Placed { result: Ok(placement), .. } = &event else { panic!("{event:?}") };
    let dead = world.store.node_of(placement.wanted[0].1[0]).unwrap();
    actions(&mut leader, now_ns, heartbeat(&world.store, dead, true, Vec::new()));
    let written = new_blocks(actions(&mut leader, now_ns, event));
    assert!(!written.iter().any(|write| write.key == Key::Groups(BlockId::of(pool.group_first))));
    now_ns += 600 * MILLISECOND_NS;
    for node in (0..4).map(node_id).filter(|node| *node != dead) {
        actions(&mut leader, now_ns, heartbeat(&world.store, node, false, Vec::new()));
    }
    let asked = actions(&mut leader, now_ns, Event::Tick);
    let event = placed(&asked, pool.id).expect("it is placed anew");
    let written = new_blocks(actions(&mut leader, now_ns, event));
    let write = written.iter().find(|write| write.key == Key::Groups(BlockId::of(pool.group_first)));
    let Some(Record::Groups(block)) = &write.unwrap().record else { panic!("{written:?}") };
    assert_eq!(block.groups.len(), 4);
    let mut members = block.groups.iter().flat_map(GroupRecord::members);
    assert!(members.all(|shard| world.store.node_of(shard) != Some(dead)), "{block:?}");
}

/// Older versions could leave such records behind.
#[test]
fn records_without_their_node_or_pool_keep_nobody_from_using_the_map() {
    let mut world = cluster(3, 2, 4);
    let (copy_first, claim) = operation::claim_copies(&world.store, 1, 0).unwrap();
    assert!(world.write(claim));
    let known = world.store.drive(drive_id(0)).unwrap().clone();
    let drive = DriveRecord { id: drive_id(70), node: node_id(50), copy_first, shards: 1, ..known };
    let record = VolumeRecord { pool: PoolId(60), ..world.volume(1, "volume-1") };
    let id = GroupId(20 * POOL_GROUPS_MAX);
    let in_sync = vec![ShardRef { drive: drive_id(0), shard: 0 }, ShardRef { drive: drive.id, shard: 0 }];
    let group =
        GroupRecord { id, pool: PoolId(60), epoch: 1, in_sync, others: Vec::new(), wanted: Vec::new() };
    let block = BlockId::of(id);
    let lost = [
        (Key::Drive(drive.id), Record::Drive(drive.clone())),
        (Key::Volume(record.id), Record::Volume(record.clone())),
        (Key::Groups(block), Record::Groups(GroupBlock { groups: vec![group] })),
    ];
    let mut records = all_records(&world.store);
    records.extend(lost.iter().map(|(key, record)| (*key, world.store.revision(), record.clone())));
    let map = MapView::load(records.clone(), world.store.revision()).unwrap();
    let told: Vec<Key> = map.orphans().into_iter().map(|(key, _)| key).collect();
    assert_eq!(told, lost.each_ref().map(|(key, _)| *key));
    assert!(map.reload(records, map.revision()).is_ok());
    assert_eq!((map.config(id), map.locate(&record, 0)), (None, None));

    let mut leader = Coordinator::new(settings(), map.clone(), world.now_ns);
    let mut all = Vec::new();
    for step in 0..40 {
        let now_ns = world.now_ns + step * 100 * MILLISECOND_NS;
        for node in (0..3).map(node_id) {
            leader.apply(now_ns, heartbeat(&map, node, false, Vec::new()), &mut all);
        }
        leader.apply(now_ns, Event::Tick, &mut all);
    }
    assert_eq!(leader.halted(), None);
    assert_eq!(ClusterHealth::of(&leader).groups.total, 4);

    // A drive that nothing names goes by itself.
    let (key, lost) = lost[0].clone();
    assert!(world.write(Write::new(key, 0, Some(lost))));
    run_ms(&mut world, 3_000);
    assert!(world.store.drive(drive.id).is_none());
}

/// Both pass the check before the write; the one of the lower identity is the later one.
#[test]
fn of_two_nodes_that_take_a_name_the_later_one_finds_out_whatever_their_identities() {
    let mut world = cluster(3, 2, 4);
    for (low, high) in [(40, 41), (43, 42)] {
        let name = format!("twins-{low}");
        let record = |number| NodeRecord {
            id: node_id(number),
            name: name.clone(),
            ..world.store.node(node_id(0)).unwrap().clone()
        };
        let (later, first) = (record(low), record(high));
        let of_later = operation::register_node(&world.store, None, &later).unwrap().unwrap();
        let of_first = operation::register_node(&world.store, None, &first).unwrap().unwrap();
        assert!(world.write(of_first));
        assert_eq!(operation::withdraw_node(&world.store, first.id, None).unwrap(), None);
        assert!(world.write(of_later));
        let back = operation::withdraw_node(&world.store, later.id, None).unwrap().expect("it came later");
        assert_eq!(operation::withdraw_node(&world.store, first.id, None).unwrap(), None);
        // Even if it could not take its record back, nobody who has the name loses it.
        for node in [&first, &later] {
            let moved = NodeRecord { domains: Default::default(), ..node.clone() };
            assert!(operation::register_node(&world.store, None, &moved).unwrap().is_some());
        }
        assert!(world.write(back));
        let refused = operation::register_node(&world.store, None, &later);
        assert!(matches!(refused, Err(OperationError::NodeNameTaken { .. })), "{refused:?}");
    }
}

#[test]
fn a_drive_that_was_given_up_cannot_be_wanted_again() {
    let mut world = cluster(4, 2, 4);
    let give_up = operation::give_up_drive(&world.store, drive_id(3)).unwrap().unwrap();
    assert!(world.write(give_up));
    assert_eq!(world.store.drive(drive_id(3)).unwrap().state, DriveState::GivenUp);
    let refused = operation::want_drive(&world.store, drive_id(3), Wanted::In);
    assert!(matches!(refused, Err(OperationError::GivenUp(_))), "{refused:?}");
}
