//! Requests that nobody waits for any more: they must not write over what came later.

use coquina_cluster::Striping;
use coquina_protocol::Status;

use super::world::{Life, World, config, drive, tags};
use crate::request::Window;
use crate::{ClientError, RequestKind};

const MS: u64 = 1_000_000;
const SECTORS: u64 = coquina_base::CHUNK_BYTES / super::world::SECTOR;

fn world() -> World {
    let mut world = World::new(config(2), 2, 2, Striping::PLAIN, false);
    world.primaries = vec![Some(0); 2];
    world.settle();
    world
}

/// The same with a connection: a write to other blocks has been answered.
fn connected_world() -> World {
    let mut world = world();
    world.submit(0, RequestKind::Write, 64, 8);
    world.settle();
    world.completions.clear();
    world
}

/// Withdraws write 1 of block 0, which is request `number`, writes it anew, and looks what it holds in the end. Nothing of the first may
/// come to a server later.
fn withdraw_and_write(world: &mut World, number: u64) {
    world.core.withdraw(|token| token == 1);
    let arrived = world.arrivals.len();
    world.refusals.clear();
    for token in [2, 3] {
        world.submit(token, RequestKind::Write, 0, 8);
        world.settle();
    }
    world.pass(40_000 * MS);
    world.submit(4, RequestKind::Read, 0, 8);
    world.pass(40_000 * MS);
    let read = world.completions.iter().find(|done| done.token == 4).unwrap();
    assert_eq!(tags(&read.buffer), [3; 8]);
    let withdrawn = world.completions.iter().find(|done| done.token == 1).unwrap();
    assert_eq!(withdrawn.result, Err(ClientError::Withdrawn));
    assert_eq!(world.completions.len(), 4);
    assert!(world.arrivals[arrived..].iter().all(|arrival| arrival.number != number));
}

#[test]
fn what_is_parked_ends_at_once() {
    let mut world = world();
    world.refusals = vec![Some(Status::TooFewCopies); 1000].into();
    world.submit(1, RequestKind::Write, 0, 8);
    world.pass(100 * MS);
    assert!(world.completions.is_empty());
    world.core.withdraw(|token| token == 1);
    world.pump();
    assert_eq!(world.completions.len(), 1);
    withdraw_and_write(&mut world, 1);
}

#[test]
fn what_is_under_way_and_refused_then_is_not_tried_again() {
    let mut world = connected_world();
    world.refusals = vec![Some(Status::NotServing); 1].into();
    world.submit(1, RequestKind::Write, 0, 8);
    world.pump();
    world.core.withdraw(|token| token == 1);
    world.pump();
    assert!(world.completions.is_empty(), "it may take effect still");
    world.settle();
    assert_eq!(world.completions.len(), 1);
    withdraw_and_write(&mut world, 2);
}

#[test]
fn what_is_under_way_and_answered_counts() {
    let mut world = connected_world();
    world.submit(1, RequestKind::Write, 0, 8);
    world.pump();
    withdraw_and_write_after(&mut world);
}

/// The server has taken it before what follows.
fn withdraw_and_write_after(world: &mut World) {
    world.completions.clear();
    world.core.withdraw(|token| token == 1);
    for token in [2, 3] {
        world.submit(token, RequestKind::Write, 0, 8);
    }
    world.settle();
    assert_eq!(world.completions.len(), 3);
    assert!((0..8).all(|sector| world.sectors[&(0, sector)] == 3));
}

#[test]
fn a_connection_that_breaks_ends_it() {
    let mut world = connected_world();
    world.lives[0] = Life::Stopped;
    world.submit(1, RequestKind::Write, 0, 8);
    world.pump();
    world.core.withdraw(|token| token == 1);
    for link in world.wires() {
        world.break_wire(link);
    }
    world.pump();
    assert_eq!(world.completions.len(), 1);
    world.lives[0] = Life::Up;
    withdraw_and_write(&mut world, 2);
}

#[test]
fn a_newer_table_does_not_move_it() {
    let mut world = connected_world();
    world.lives[0] = Life::Stopped;
    world.submit(1, RequestKind::Write, 0, 8);
    world.pump();
    world.core.withdraw(|token| token == 1);
    for group in 0..2 {
        world.promote(group, Some(1));
    }
    world.break_wire(0);
    world.pass(2_000 * MS);
    assert!(world.completions.is_empty(), "the former primary has it");
    world.pass(15_000 * MS);
    assert_eq!(world.completions.len(), 1);
    withdraw_and_write(&mut world, 2);
}

/// It was made anew each second, until the next table.
#[test]
fn a_connection_that_only_it_was_on_goes_with_it() {
    for is_answered in [false, true] {
        let mut world = World::new(config(2), 2, 2, Striping::PLAIN, true);
        world.primaries = vec![Some(0); 2];
        world.tell_table();
        world.submit(0, RequestKind::Write, 64, 8);
        world.settle();
        world.completions.clear();
        world.lives[0] = Life::Stopped;
        world.submit(1, RequestKind::Write, 0, 8);
        world.pump();
        world.core.withdraw(|token| token == 1);
        world.version += 1;
        // Who leads no group is not in a table.
        let mut table = world.table();
        table.shards.remove(0);
        world.core.set_volume(&table, world.now_ns);
        world.pass(2_000 * MS);
        assert!(world.completions.is_empty(), "the former primary has it");
        let wires = world.wires().len();
        world.lives[0] = if is_answered { Life::Up } else { Life::Dead };
        world.pass(15_000 * MS);
        assert_eq!(world.completions.len(), 1);
        assert_eq!(world.wires().len(), wires - 1);
        let connects = world.connects.len();
        world.pass(20_000 * MS);
        assert_eq!(world.connects.len(), connects, "nothing is wanted there any more");
        assert_eq!(world.core.deadline_ns(), None);
    }
}

#[test]
fn what_waits_for_a_connection_ends_at_once() {
    let mut world = world();
    world.lives[0] = Life::CutOff;
    world.submit(1, RequestKind::Write, 0, 8);
    world.pump();
    assert!(world.completions.is_empty());
    world.core.withdraw(|token| token == 1);
    world.pump();
    assert_eq!(world.completions.len(), 1);
    world.lives[0] = Life::Up;
    withdraw_and_write(&mut world, 1);
}

#[test]
fn a_part_in_this_process_is_waited_for_and_not_handed_out_again() {
    let mut config = config(0);
    config.local = vec![(drive(0), 7)];
    let mut world = World::new(config, 1, 1, Striping::PLAIN, true);
    world.tell_table();
    world.submit(1, RequestKind::Write, 0, 8);
    world.pump();
    world.core.withdraw(|token| token == 1);
    world.pump();
    assert_eq!((world.local_parts.len(), world.completions.len()), (1, 0));
    world.refusals = [Some(Status::TooFewCopies)].into();
    world.serve_local(0);
    world.pump();
    assert_eq!((world.local_parts.len(), world.completions.len()), (0, 1));
    withdraw_and_write(&mut world, 1);
}

#[test]
fn no_more_parts_are_made_of_a_large_one_and_others_go_on() {
    let mut world = world();
    world.size_bytes = 16_384 * coquina_base::CHUNK_BYTES;
    world.version += 1;
    world.tell_size(0, world.size_bytes, world.version);
    world.settle();
    world.submit(1, RequestKind::Discard, 0, 8192 * SECTORS);
    world.submit(2, RequestKind::Write, 0, 8);
    world.pump();
    world.core.withdraw(|token| token == 1);
    world.settle();
    assert_eq!(world.completions.len(), 2);
    assert!(world.arrivals.len() < 20, "{}", world.arrivals.len());
}

/// Each of them was looked for among all that waited.
#[test]
fn many_of_many_more_end_at_once() {
    let mut world = connected_world();
    world.lives[0] = Life::Stopped;
    for token in 1..=100_000 {
        world.submit(token, RequestKind::Discard, 8 * (token % 1000), 8);
    }
    world.pump();
    // Some have numbers, and others none.
    world.core.withdraw(|token| (1501..=2500).contains(&token));
    world.pump();
    assert_eq!(world.completions.len(), 1000);
    assert_eq!(world.core.searches, 0);
    world.core.withdraw(|_| true);
    world.pump();
    assert_eq!(world.completions.len(), 100_000 - 4, "four are under way");
    assert_eq!(world.core.searches, 0);
}

#[test]
fn what_came_before_the_volume_was_open_ends_as_well() {
    let mut world = World::new(config(1), 1, 1, Striping::PLAIN, false);
    for token in [1, 2] {
        world.submit(token, RequestKind::Write, 0, 8);
    }
    world.core.withdraw(|token| token == 1);
    world.settle();
    assert_eq!(world.completions.iter().filter(|done| done.result.is_ok()).count(), 1);
    assert!(world.sectors.values().all(|tag| *tag == 2));
}

/// A write that waits for a connection until the server greets, which takes so long.
fn wait_for_link(milliseconds: u64) -> World {
    let mut world = world();
    world.lives[0] = Life::CutOff;
    world.submit(1, RequestKind::Write, 0, 8);
    world.pump();
    assert!(world.core.tries_again(), "more is received of who asked for it");
    world.pass(milliseconds * MS);
    world.core.may_send_again(world.now_ns);
    world.lives[0] = Life::Up;
    world.connect(0);
    world.pump();
    world.now_ns += 5 * MS;
    for link in world.wires() {
        world.finish_send(link);
        while world.serve(link) {}
        while world.deliver(link, usize::MAX) {}
    }
    world
}

#[test]
fn what_was_never_sent_is_looked_after_when_it_is_late() {
    for (milliseconds, is_late) in [(20, false), (200, true)] {
        let mut world = wait_for_link(milliseconds);
        assert!(world.arrivals.is_empty());
        assert_eq!(world.core.may_send_again(world.now_ns), is_late);
        assert_eq!(world.core.tries_again(), is_late);
        world.settle();
        assert_eq!(world.completions.len(), 1);
        assert!(!world.core.tries_again());
    }
}

#[test]
fn what_waits_for_room_is_looked_after_from_time_to_time_when_it_is_late() {
    let mut world = connected_world();
    world.lives[0] = Life::Stopped;
    // Four are sent, others wait for the link or for numbers.
    for window in [1000, 4] {
        world.pass(10 * MS);
        world.core.window = Window::new(window);
        for token in 1..20 {
            world.submit(token, RequestKind::Write, 8 * token, 8);
        }
        world.pump();
        assert!(!world.core.may_send_again(world.now_ns));
        world.now_ns += 200 * MS;
        assert!(world.core.may_send_again(world.now_ns));
        let ahead_bytes_max = world.core.ahead_bytes_max(world.now_ns);
        assert!(!world.core.tries_again() && (1..=4 << 20).contains(&ahead_bytes_max));
        assert!(!world.core.may_send_again(world.now_ns + MS));
        assert!(world.core.may_send_again(world.now_ns + 5 * MS));
        assert!(!world.core.may_send_again(world.now_ns + 6 * MS));
        // What was asked for meanwhile may have come after what goes now, by another way.
        world.lives[0] = Life::Up;
        for link in world.wires() {
            world.finish_send(link);
            world.serve(link);
            world.deliver(link, usize::MAX);
        }
        assert!(world.core.may_send_again(world.now_ns + 6 * MS), "it has room");
        world.core.withdraw(|_| true);
        for link in world.wires() {
            world.break_wire(link);
        }
        world.lives[0] = Life::Up;
        world.pass(100 * MS);
        world.lives[0] = Life::Stopped;
    }
}

#[test]
fn while_a_connection_is_made_anew_its_parts_are_tried_again() {
    let mut world = connected_world();
    world.lives[0] = Life::CutOff;
    world.submit(1, RequestKind::Write, 0, 8);
    world.pump();
    assert!(!world.core.tries_again());
    for link in world.wires() {
        world.break_wire(link);
    }
    world.pump();
    assert!(world.core.tries_again());
    world.core.withdraw(|_| true);
    world.pump();
    assert!(!world.core.tries_again(), "nothing waits for it");
}
