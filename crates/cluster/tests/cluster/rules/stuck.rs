//! Copies that are out and alive and never get on take nobody's place.

use super::*;

/// Four nodes with a drive each, and a pool of three copies that takes changes with two. By their weights most groups have copies on
/// the first, second and fourth.
fn of_four() -> World {
    let mut world = World::new(1);
    world.min_copies = 2;
    (0..4).for_each(|node| world.add_node(node, node, 1));
    world.add_pool("pool", 3, "node", 64).unwrap();
    world.elect();
    world.run_until_clean(200);
    world.suspects = false;
    world
}

/// Two nodes do not reach each other any more; both reach all others, and the leader.
fn cut_link(world: &mut World, one: u64, other: u64) {
    world.apart.insert((drive_id(one), drive_id(other)));
    world.apart.insert((drive_id(other), drive_id(one)));
}

/// Groups with the primary on one drive and a copy that is out on another.
fn out_of(world: &World, from: u64, to: u64) -> usize {
    let is_out = |group: &&GroupRecord| {
        group.in_sync[0].drive == drive_id(from)
            && group.others.iter().any(|shard| shard.drive == drive_id(to))
    };
    groups(world).iter().filter(is_out).count()
}

/// Most copies that are out on a drive while time passes.
fn most_out_on(world: &mut World, drive: u64, milliseconds: u64) -> usize {
    let until_ns = world.now_ns + milliseconds * MILLISECOND_NS;
    let mut most = 0;
    while world.now_ns < until_ns {
        world.step();
        most = most.max((0..4).map(|from| out_of(world, from, drive)).sum());
    }
    most
}

fn refusing(world: &World) -> usize {
    groups(world).iter().filter(|group| group.in_sync.len() < 2).count()
}

fn health(world: &World) -> ClusterHealth {
    ClusterHealth::of(&world.seats[0].coordinator)
}

/// They used up all moves of their primaries' drives, so that no group there got a substitute ever.
#[test]
fn groups_get_another_copy_though_a_link_is_cut_and_a_third_node_dies() {
    let mut world = of_four();
    cut_link(&mut world, 1, 3);
    run_ms(&mut world, 3_000);
    assert!(out_of(&world, 1, 3) > 4 && out_of(&world, 3, 1) > 4);
    world.nodes.get_mut(&node_id(0)).unwrap().up = false;
    run_ms(&mut world, 3_000);
    assert!(refusing(&world) > 8, "they take no changes");
    run_ms(&mut world, 16_000);
    assert!(refusing(&world) > 8, "the node may come back");
    assert!((1..=4).contains(&most_out_on(&mut world, 2, 30_000)), "not all at once");
    assert_eq!(refusing(&world), 0);
}

/// Of those that can go on it is seen only after a while that they do not.
#[test]
fn groups_that_take_no_changes_do_not_wait_for_copies_that_may_get_on() {
    let mut world = of_four();
    cut_link(&mut world, 1, 3);
    run_ms(&mut world, 3_000);
    let write = operation::give_up_drive(&world.store, drive_id(0)).unwrap().unwrap();
    assert!(world.write(write));
    assert!((1..=4).contains(&most_out_on(&mut world, 2, 14_000)), "not all at once");
    assert_eq!(refusing(&world), 0);
    assert_eq!(health(&world).groups.stuck, 0, "nobody knows that yet");
}

/// As on a drive that is full: each has halted, and waits for a restart of its node.
#[test]
fn a_drive_with_copies_that_have_stopped_can_be_emptied() {
    let mut world = of_four();
    world.apart.extend((0..4).map(|from| (drive_id(from), drive_id(1))));
    run_ms(&mut world, 3_000);
    assert!((0..4).all(|from| from == 1 || out_of(&world, from, 1) > 4));
    let write = operation::reweight_drive(&world.store, drive_id(1), 0).unwrap().unwrap();
    assert!(world.write(write));
    run_ms(&mut world, 60_000);
    let is_used = |group: &GroupRecord| group.named().iter().any(|shard| shard.drive == drive_id(1));
    assert!(!groups(&world).iter().any(is_used));
    assert!(groups(&world).iter().all(|group| group.in_sync.len() == 3 && group.others.is_empty()));
}

/// Most copies that are out and come to one drive.
fn most_to_a_drive(world: &World) -> usize {
    let to_drive = |drive| (0..4).map(|from| out_of(world, from, drive)).sum();
    (0..4).map(to_drive).max().unwrap()
}

/// A drive is emptied, and no copy comes to its end.
fn of_four_that_move_for_ever() -> World {
    let mut world = of_four();
    world.slow = true;
    let write = operation::reweight_drive(&world.store, drive_id(1), 0).unwrap().unwrap();
    assert!(world.write(write));
    world
}

/// Groups of a large drive take hours, and a few at a time are done sooner than all at once.
#[test]
fn copies_that_get_on_are_waited_for_however_long_they_take() {
    let mut world = of_four_that_move_for_ever();
    for left in (0..600).rev() {
        world.blocks_left = Some(1_000 + left);
        world.step();
        assert!(most_to_a_drive(&world) <= 4, "{left}");
    }
    assert!(most_to_a_drive(&world) > 0);
    // They begin anew again and again, and never get further.
    let mut round = 0;
    let until_ns = world.now_ns + 40_000 * MILLISECOND_NS;
    while world.now_ns < until_ns {
        round += 1;
        world.blocks_left = Some(1_000 + round % 10);
        world.step();
    }
    assert!(most_to_a_drive(&world) > 4);
    world.slow = false;
    world.run_until_clean(2_000);
}

/// What was left for a group that is compared as a whole was little while the link was broken, and it never had less left again.
#[test]
fn copies_that_begin_anew_after_a_break_get_on() {
    let mut world = of_four_that_move_for_ever();
    let step = |world: &mut World, left: Option<u64>| {
        world.blocks_left = left;
        world.step();
        assert!(most_to_a_drive(world) <= 4, "{left:?}");
        assert_eq!(health(world).groups.stuck, 0, "{left:?}");
    };
    for round in 0..4 {
        // For longer than is waited for a sign.
        (0..240).for_each(|done| step(&mut world, Some(26_000_000 - 1_000 * done)));
        let of_set = (round > 1).then_some(500);
        (0..80).for_each(|_| step(&mut world, of_set));
    }
    assert!(most_to_a_drive(&world) > 0);
}

/// What a copy missed that was cut off grew with each write, and hid that another copy of its group got on.
#[test]
fn a_copy_that_gets_on_is_told_apart_from_one_beside_it_that_does_not() {
    let mut world = of_four();
    cut_link(&mut world, 1, 3);
    run_ms(&mut world, 3_000);
    world.slow = true;
    world.nodes.get_mut(&node_id(0)).unwrap().up = false;
    let mut beside = 0;
    for left in (0..800).rev() {
        world.blocks_left = Some(left);
        world.step();
        let stuck = world.seats[0].coordinator.stuck();
        assert!(stuck.keys().all(|(_, shard)| shard.drive != drive_id(2)), "{left}");
        let both = |group: &&GroupRecord| {
            let is_out = |drive| group.others.iter().any(|shard| shard.drive == drive_id(drive));
            is_out(2) && stuck.keys().any(|(id, _)| *id == group.id)
        };
        beside = beside.max(groups(&world).iter().filter(both).count());
    }
    assert!(beside > 0);
}

/// Nobody could tell whether they got on, and after ten minutes all counted as if they did not.
#[test]
fn copies_of_primaries_with_an_older_program_are_not_judged() {
    let mut world = of_four_that_move_for_ever();
    world.mute.extend((0..4).map(node_id));
    for _ in 0..400 {
        world.step();
        assert!(most_to_a_drive(&world) <= 4);
    }
    assert!(most_to_a_drive(&world) > 0);
    assert_eq!(health(&world).groups.stuck, 0);
    // With the newer program it is waited for as long as ever until they are.
    world.mute.clear();
    run_ms(&mut world, 15_000);
    assert_eq!(health(&world).groups.stuck, 0);
    run_ms(&mut world, 10_000);
    assert!(health(&world).groups.stuck > 0);
}

/// It said that they were being recovered for ever, and that nodes or drives should be added.
#[test]
fn copies_that_do_not_get_on_are_told_with_their_time_and_what_to_do() {
    let mut world = of_four();
    cut_link(&mut world, 0, 1);
    run_ms(&mut world, 3_000);
    let counts = health(&world).groups;
    assert!(counts.degraded > 8);
    assert_eq!((counts.recovering, counts.stuck), (counts.degraded, 0), "they may be");
    run_ms(&mut world, 25_000);
    let told = health(&world);
    assert_eq!((told.groups.recovering, told.groups.stuck), (0, counts.degraded));
    let of = |code| told.entries.iter().filter(move |entry| entry.code == code).collect::<Vec<_>>();
    let stuck = of(HealthCode::CopyStuck);
    for (entry, (here, there)) in stuck.iter().zip([(0, 1), (1, 0)]) {
        assert!(entry.subject.ends_with(&format!("on node-{here}")), "{entry:?}");
        assert!(entry.message.starts_with(&format!("{} group(s)", out_of(&world, there, here))), "{entry:?}");
        assert!(entry.message.contains(&format!("primaries are on node-{there}; groups ")), "{entry:?}");
        assert!(entry.message.contains("not got on for 2") && entry.message.contains(" s, "), "{entry:?}");
    }
    assert_eq!(stuck.len(), 2);
    let degraded = of(HealthCode::GroupDegraded)[0];
    assert!(degraded.advice.contains("COPY_STUCK"), "{degraded:?}");
    assert!(degraded.message.contains("0 are being recovered"), "{degraded:?}");
    // Who leads next has not watched them.
    world.seats.clear();
    world.elect();
    run_ms(&mut world, 3_000);
    let counts = health(&world).groups;
    assert_eq!((counts.recovering, counts.stuck), (counts.degraded, 0));
    run_ms(&mut world, 25_000);
    assert!(health(&world).groups.stuck > 8);
    world.apart.clear();
    world.run_until_clean(400);
    assert_eq!(health(&world).entries, []);
}
