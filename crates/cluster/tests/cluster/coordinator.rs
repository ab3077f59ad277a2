//! The coordinator's promises under random faults, and its rules one by one.

use coquina_cluster::operation;
use coquina_cluster::{DriveCondition, DriveState, Wanted};
use proptest::prelude::*;

use crate::world::{Counts, Faults, World};

/// Something of an operator or of fate.
fn disturb(world: &mut World) {
    let nodes: Vec<_> = world.nodes.keys().copied().collect();
    let node = nodes[world.random.below(nodes.len() as u64) as usize];
    let drives: Vec<_> = world.store.drives().map(|drive| drive.value.id).collect();
    let drive = drives[world.random.below(drives.len() as u64) as usize];
    match world.random.below(16) {
        0..=2 => world.nodes.get_mut(&node).unwrap().up = false,
        3..=6 => {
            let node = world.nodes.get_mut(&node).unwrap();
            (node.up, node.stopping) = (true, false);
        }
        7 => {
            let node = world.nodes.get_mut(&node).unwrap();
            node.reachable = !node.reachable;
        }
        8 | 9 => {
            let owner = world.store.drive(drive).unwrap().node;
            if world.random.chance(25) {
                if !world.hung.remove(&drive) {
                    world.hung.insert(drive);
                }
                return;
            }
            let kind = world.random.below(3);
            let condition =
                [DriveCondition::Serving, DriveCondition::Failed, DriveCondition::ReadOnly][kind as usize];
            world.nodes.get_mut(&owner).unwrap().conditions.insert(drive, condition);
        }
        10 => world.add_drive(node),
        11 => {
            let wanted = if world.random.chance(60) { Wanted::Removing } else { Wanted::In };
            if let Ok(Some(write)) = operation::want_drive(&world.store, drive, wanted) {
                world.write(write);
            }
        }
        12 => {
            let weight = 50 * (1 + world.random.below(8));
            if let Ok(Some(write)) = operation::reweight_drive(&world.store, drive, weight) {
                world.write(write);
            }
        }
        13 => {
            let lost = world.store.drive(drive).unwrap().state != DriveState::Healthy;
            if lost && let Ok(Some(write)) = operation::give_up_drive(&world.store, drive) {
                world.write(write);
            }
        }
        14 => {
            // A new coordinator, while the old one may not know yet that it is none.
            world.elect();
            if world.seats.len() > 2 || world.random.chance(50) {
                world.seats.remove(0);
            }
        }
        _ => {
            let node = world.nodes.get_mut(&node).unwrap();
            (node.up, node.stopping) = (false, true);
        }
    }
}

/// Everything comes back, except for drives that were given up.
fn heal(world: &mut World) {
    world.faults = Faults::default();
    world.seats.truncate(1);
    world.hung.clear();
    for node in world.nodes.values_mut() {
        (node.up, node.reachable, node.stopping) = (true, true, false);
        node.conditions.values_mut().for_each(|condition| *condition = DriveCondition::Serving);
    }
    let stays = |drive: &coquina_cluster::DriveRecord| {
        drive.wanted == Wanted::In && drive.state != DriveState::GivenUp
    };
    let nodes: Vec<_> = world.nodes.keys().copied().collect();
    for node in nodes {
        if !world.store.drives_of(node).any(stays) {
            world.add_drive(node);
        }
    }
}

fn run(seed: u64) -> Counts {
    let mut world = World::new(seed);
    let label = ["drive", "node", "rack"][world.random.below(3) as usize];
    let nodes = 3 + world.random.below(5);
    for node in 0..nodes {
        let drives = 1 + world.random.below(3);
        world.add_node(node, node % 4, drives);
    }
    let domains = if label == "rack" { nodes.min(4) } else { nodes };
    let copies = 1 + world.random.below(domains.min(4)) as u32;
    let groups = 1 << world.random.below(8);
    world.add_pool("first", copies, label, groups).unwrap();
    world.elect();
    world.run_until_clean(200);
    for _ in 0..4 {
        world.faults = Faults::MANY;
        for _ in 0..60 {
            if world.random.chance(25) {
                disturb(&mut world);
            }
            world.step();
            let down = world.store.groups().filter(|group| !group.in_sync.iter().any(|s| world.serves(*s)));
            world.counts.down += down.count() as u64;
        }
        heal(&mut world);
        world.run_until_clean(4000);
    }
    world.counts
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(40) })]

    /// In the model: a member in sync has every committed change, epochs grow by one, the primary was in sync, at least
    /// one copy in sync stays, wanted copies are apart; and when faults stop all becomes clean.
    #[test]
    fn random_faults_lose_nothing_and_all_becomes_clean(seed in 0u64..1 << 40) {
        run(seed);
    }
}

#[test]
fn faults_reach_what_they_are_to_test() {
    let mut total = Counts::default();
    for seed in 0..12 {
        let counts = run(seed);
        total.changes += counts.changes;
        total.promotions += counts.promotions;
        total.removals += counts.removals;
        total.additions += counts.additions;
        total.conflicts += counts.conflicts;
        total.moves += counts.moves;
        total.down += counts.down;
        total.reloads += counts.reloads;
        total.coordinators += counts.coordinators;
    }
    println!("{total:?}");
    let seen = [
        total.promotions,
        total.removals,
        total.additions,
        total.conflicts,
        total.moves,
        total.down,
        total.reloads,
        total.coordinators - 12,
    ];
    assert!(seen.iter().all(|count| *count > 0), "{total:?}");
}
