//! What one coordinator leaves to the next.

use super::*;

/// As after a crash of the leader: whoever is next knows the store only.
fn elect_anew(world: &mut World) {
    world.seats.clear();
    world.elect();
}

fn is_named(world: &World, drive: DriveId) -> bool {
    groups(world).iter().any(|group| group.named().iter().any(|shard| shard.drive == drive))
}

#[test]
fn a_drive_that_was_replaced_is_not_wanted_again_by_the_next_coordinator_before_it_serves() {
    let mut world = cluster(4, 2, 32);
    world.nodes.get_mut(&node_id(3)).unwrap().up = false;
    run_ms(&mut world, 60_000);
    assert!(!is_named(&world, drive_id(3)));
    let before = groups(&world);
    elect_anew(&mut world);
    run_ms(&mut world, 60_000);
    assert_eq!(groups(&world), before, "nothing has happened that groups need");
    assert!(world.store.drive(drive_id(3)).unwrap().dead_ms >= 20_000);
    world.nodes.get_mut(&node_id(3)).unwrap().up = true;
    run_ms(&mut world, 2_000);
    world.run_until_clean(2_000);
    assert!(is_named(&world, drive_id(3)), "it has its share again");
    assert_eq!(world.store.drive(drive_id(3)).unwrap().dead_ms, 0);
}

#[test]
fn a_dead_drive_is_replaced_though_coordinators_change_often() {
    let mut world = cluster(4, 2, 32);
    world.nodes.get_mut(&node_id(3)).unwrap().up = false;
    for _ in 0..3 {
        run_ms(&mut world, 10_000);
        assert!(is_named(&world, drive_id(3)), "not before its time");
        elect_anew(&mut world);
    }
    for _ in 0..3 {
        run_ms(&mut world, 10_000);
        elect_anew(&mut world);
    }
    assert!(!is_named(&world, drive_id(3)));
}

#[test]
fn nodes_that_died_long_ago_are_no_isolation_of_the_next_coordinator() {
    let mut world = cluster(5, 2, 16);
    for node in 0..3 {
        world.nodes.get_mut(&node_id(node)).unwrap().up = false;
        run_ms(&mut world, 3_000);
    }
    elect_anew(&mut world);
    run_ms(&mut world, 5_000);
    let liveness = world.seats[0].coordinator.liveness();
    assert!(!liveness.is_isolated());
    assert_eq!(
        [0, 1, 2, 3, 4].map(|node| liveness.is_node_dead(node_id(node))),
        [true, true, true, false, false]
    );
    // Of those that it expects all are silent.
    (3..5).for_each(|node| world.nodes.get_mut(&node_id(node)).unwrap().reachable = false);
    run_ms(&mut world, 5_000);
    assert!(world.seats[0].coordinator.liveness().is_isolated());
}

/// The node of the leader was killed, and its lease ran out: whoever leads next need not watch that node anew.
#[test]
fn the_node_of_a_killed_leader_is_dead_as_soon_as_the_others_are_heard() {
    let world = cluster(3, 3, 4);
    let dead = world.store.node_of(groups(&world)[0].in_sync[0]).unwrap();
    let mut coordinator = Coordinator::new(settings(), world.store.clone(), world.now_ns);
    coordinator.predecessor_silent(dead, world.now_ns - 2_000 * MILLISECOND_NS);
    let mut actions = Vec::new();
    coordinator.apply(world.now_ns, Event::Tick, &mut actions);
    assert_eq!(actions, [], "nobody was heard yet: it may be this coordinator that is cut off");
    for node in (0..3).map(node_id).filter(|node| *node != dead) {
        coordinator.apply(world.now_ns + MILLISECOND_NS, serving(&world, node), &mut actions);
    }
    coordinator.apply(world.now_ns + 2 * MILLISECOND_NS, Event::Tick, &mut actions);
    assert!(coordinator.liveness().is_node_dead(dead));
    let blocks = actions.iter().filter_map(|action| match action {
        Action::Write(Write { record: Some(Record::Groups(block)), .. }) => Some(block),
        _ => None,
    });
    let groups: Vec<GroupRecord> = blocks.flat_map(|block| block.groups.clone()).collect();
    assert!(!groups.is_empty());
    for group in groups {
        assert!(group.in_sync.iter().all(|shard| world.store.node_of(*shard) != Some(dead)), "{group:?}");
    }
}

/// It answers after all before it was found dead.
#[test]
fn the_node_of_the_leader_before_lives_if_it_is_heard() {
    let world = cluster(3, 3, 4);
    let mut coordinator = Coordinator::new(settings(), world.store.clone(), world.now_ns);
    coordinator.predecessor_silent(node_id(0), world.now_ns - 2_000 * MILLISECOND_NS);
    let mut actions = Vec::new();
    for number in 0..3 {
        coordinator.apply(world.now_ns + MILLISECOND_NS, serving(&world, node_id(number)), &mut actions);
    }
    coordinator.apply(world.now_ns + 2 * MILLISECOND_NS, Event::Tick, &mut actions);
    assert!(coordinator.liveness().is_node_alive(node_id(0)));
    assert!(!actions.iter().any(|action| matches!(action, Action::Write(_))), "{actions:?}");
}
