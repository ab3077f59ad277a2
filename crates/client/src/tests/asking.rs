//! Who is asked for the table and for the volume, and whose word counts.

use coquina_cluster::Striping;
use coquina_protocol::Status;

use super::world::{Life, World, config};
use crate::{ClientError, RequestKind};

const MS: u64 = 1_000_000;

/// Three nodes, one of which (2) the client was not told of; all data is on `node`.
fn world(node: usize) -> World {
    let mut world = World::new(config(2), 3, 4, Striping::PLAIN, false);
    world.primaries = vec![Some(node); 4];
    world.submit(1, RequestKind::Write, 0, 8);
    world.settle();
    assert_eq!(world.completions.remove(0).result, Ok(()));
    world
}

/// Two nodes that were asked in turns were taken for all three.
#[test]
fn a_node_that_cannot_be_asked_whether_it_knows_the_volume_is_waited_for() {
    let mut world = world(2);
    world.lives[2] = Life::Dead;
    for node in 0..2 {
        world.refused_opens.insert(node, Status::UnknownVolume);
    }
    for link in world.wires() {
        world.break_wire(link);
    }
    world.submit(2, RequestKind::Write, 0, 8);
    world.pass(5_000 * MS);
    assert_eq!(world.core.failure(), None, "the third has not said so");
    world.lives[2] = Life::Up;
    world.pass(2_000 * MS);
    assert_eq!(world.completions.remove(0).result, Ok(()));

    world.lives[2] = Life::Dead;
    for link in world.wires() {
        world.break_wire(link);
    }
    world.pass(29_000 * MS);
    assert_eq!(world.core.failure(), None);
    world.pass(5_000 * MS);
    let status = world.core.failure().and_then(ClientError::status);
    assert_eq!(status, Some(Status::UnknownVolume), "it is not waited for without end");
}

/// What becomes of the first open of a client that was told of so many nodes.
fn opening(nodes: usize, refusing: &[usize], dead: &[usize]) -> World {
    let mut world = World::new(config(nodes), 3, 4, Striping::PLAIN, false);
    world.primaries = vec![Some(2); 4];
    for node in refusing {
        world.refused_opens.insert(*node, Status::UnknownVolume);
    }
    for node in dead {
        world.lives[*node] = Life::Dead;
    }
    world.submit(1, RequestKind::Write, 0, 8);
    world.pass(100 * MS);
    world
}

fn is_unknown(world: &World) -> bool {
    world.core.failure().and_then(ClientError::status) == Some(Status::UnknownVolume)
}

/// The first node that was asked had the last word.
#[test]
fn a_new_volume_that_one_node_has_not_heard_of_is_opened_by_another() {
    let mut world = opening(2, &[0], &[]);
    assert_eq!(world.completions.remove(0).result, Ok(()));
    // All that can be asked have said so.
    assert!(is_unknown(&opening(2, &[0, 1], &[])));
    let mut world = opening(3, &[0, 1], &[2]);
    assert!(!is_unknown(&world), "the third may know it");
    world.pass(5_000 * MS);
    assert!(is_unknown(&world), "it is not waited for without end");
}

#[test]
fn the_only_node_is_asked_again_before_a_volume_counts_as_unknown() {
    let mut world = opening(1, &[0], &[]);
    assert_eq!(world.core.failure(), None);
    world.refused_opens.clear();
    world.pass(300 * MS);
    assert_eq!(world.completions.remove(0).result, Ok(()));
    let mut world = opening(1, &[0], &[]);
    world.pass(1_000 * MS);
    assert!(is_unknown(&world));
}

/// Time that passed before the answer came took the question back.
#[test]
fn a_change_that_is_told_while_the_table_is_asked_for_is_asked_for_again() {
    let mut world = world(0);
    world.now_ns += 1_000 * MS;
    world.core.refresh(world.now_ns);
    world.pump();
    world.finish_send(0);
    assert!(world.serve(0), "the answer is made and on its way");
    let group = world.group(0);
    world.promote(group, Some(1));
    world.notify(1);
    assert!(world.deliver(1, usize::MAX));
    world.now_ns += MS;
    world.core.tick(world.now_ns);
    assert!(world.deliver(0, usize::MAX));
    assert_ne!(world.core.volume().unwrap().map_version, world.version, "it is an old one");
    world.pass(100 * MS);
    assert_eq!(world.core.volume().unwrap().map_version, world.version);
}

/// As where large packets are lost on the way and small ones are not: each connection was a new beginning, without end.
#[test]
fn connections_that_are_made_and_bring_no_answer_are_not_tried_without_end() {
    let mut world = world(1);
    world.mute.insert(1);
    for link in world.wires() {
        world.break_wire(link);
    }
    let before_ns = world.now_ns;
    for token in 2..10 {
        world.submit(token, RequestKind::Write, 0, 8);
    }
    world.pass(29_000 * MS);
    assert!(world.completions.is_empty());
    world.pass(16_000 * MS);
    assert_eq!(world.completions.len(), 8, "{} s", (world.now_ns - before_ns) / (1_000 * MS));
    let is_given_up =
        |error: &ClientError| matches!(error, ClientError::GivenUp { last, .. } if last.contains("silent"));
    assert!(world.completions.drain(..).all(|done| done.result.is_err_and(|error| is_given_up(&error))));

    // What is answered in between begins anew.
    world.submit(10, RequestKind::Write, 0, 8);
    world.pass(25_000 * MS);
    world.mute.clear();
    world.refusing_groups = (0..4).map(|group| (group, Status::TooFewCopies)).collect();
    world.pass(11_000 * MS);
    world.refusing_groups.clear();
    world.mute.insert(1);
    world.pass(15_000 * MS);
    world.mute.clear();
    world.pass(11_000 * MS);
    assert_eq!(world.completions.remove(0).result, Ok(()));
}

#[test]
fn what_waits_for_its_turn_is_not_given_up_as_long_as_others_are_answered() {
    let mut world = world(1);
    for token in 2..14 {
        world.submit(token, RequestKind::Write, 0, 8);
    }
    world.pump();
    let link = world.wires().into_iter().find(|link| *link != 0).unwrap();
    for answered in 1..=12 {
        // Each connection breaks when it has brought one answer.
        while world.completions.len() < answered {
            world.pump();
            while let Some(index) = (!world.connecting.is_empty()).then_some(0) {
                world.connect(index);
                world.pump();
            }
            world.finish_send(link);
            world.serve(link);
            world.deliver(link, usize::MAX);
            world.pump();
        }
        world.now_ns += 9_000 * MS;
        world.break_wire(link);
        world.core.tick(world.now_ns);
    }
    assert!(world.completions.iter().all(|done| done.result.is_ok()), "{:?}", world.completions);
}
