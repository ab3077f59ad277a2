//! Directed clients, and shards in the same process.

use coquina_cluster::Striping;
use coquina_protocol::{REQUEST_WINDOW, Status};

use super::world::{Life, World, config, drive, tags};
use crate::{ClientError, LocalAnswer, LocalName, RequestKind};

const MS: u64 = 1_000_000;

/// Three nodes of which the first is in this process, and has all groups.
fn world() -> World {
    world_with_local(1)
}

/// The same with so many of them in this process.
fn world_with_local(nodes: usize) -> World {
    let mut config = config(0);
    config.local = (0..nodes).map(|node| (drive(node), 7)).collect();
    let mut world = World::new(config, 3, 4, Striping { stripe_unit_bytes: 65536, stripe_count: 4 }, true);
    world.primaries = vec![Some(0); 4];
    world.tell_table();
    world.pump();
    world
}

/// The name of a part that was handed out once.
fn name(number: u64) -> LocalName {
    LocalName { number, attempt: 1 }
}

#[test]
fn nothing_is_connected_and_the_payload_is_seen_in_place() {
    let mut world = world();
    world.submit(3, RequestKind::Write, 0, 256);
    world.pump();
    assert_eq!(world.local_parts.len(), 2, "one per stripe unit");
    let part = world.local_parts[1];
    assert!(!part.is_retry);
    assert_eq!((part.name, part.request_floor, part.offset_bytes, part.length_bytes), (name(2), 1, 0, 65536));
    assert_eq!(tags(world.core.local_payload(name(2)).unwrap()), [3; 128]);
    assert!(world.core.local_payload(name(3)).is_none() && world.core.local_buffer(name(9)).is_none());
    world.settle();
    world.submit(4, RequestKind::Read, 100, 100);
    world.settle();
    assert_eq!(world.completions.len(), 2);
    assert_eq!(tags(&world.completions[1].buffer[..51200]), [3; 100]);
    assert!(world.connects.is_empty());
    assert_eq!(world.core.deadline_ns(), None, "idle is asleep");
}

#[test]
fn completions_come_in_the_order_of_the_answers_and_the_floor_follows() {
    let mut world = world();
    for token in 1..=4 {
        world.submit(token, RequestKind::Write, token * 8, 8);
    }
    world.pump();
    for index in [3, 1, 1] {
        world.serve_local(index);
        world.pump();
    }
    assert_eq!(world.completions.iter().map(|done| done.token).collect::<Vec<_>>(), [4, 2, 3]);
    world.submit(5, RequestKind::Write, 0, 8);
    world.pump();
    assert_eq!(world.local_parts[1].request_floor, 1, "the first is unanswered");
    world.serve_local(0);
    world.submit(6, RequestKind::Write, 0, 8);
    world.pump();
    assert_eq!(world.local_parts[1].request_floor, 5);
}

#[test]
fn the_window_bounds_what_is_handed_out() {
    let mut world = world();
    for token in 0..3000 {
        world.submit(token, RequestKind::Write, token, 1);
    }
    world.pump();
    assert_eq!(world.local_parts.len() as u64, REQUEST_WINDOW);
    world.serve_local(1);
    world.pump();
    assert_eq!(world.local_parts.len() as u64, REQUEST_WINDOW - 1, "the oldest is unanswered");
    world.settle();
    assert_eq!(world.completions.len(), 3000);
}

#[test]
fn a_refused_part_keeps_its_number_and_moves_with_the_table() {
    let mut world = world();
    world.submit(1, RequestKind::Write, 0, 8);
    world.refusals = [Some(Status::NotServing), Some(Status::StaleHandle)].into();
    world.pump();
    world.serve_local(0);
    world.pump();
    assert!(world.local_parts.is_empty());
    world.now_ns += 10 * MS;
    world.core.tick(world.now_ns);
    world.pump();
    let part = world.local_parts[0];
    assert!(part.name == LocalName { number: 1, attempt: 2 } && part.is_retry);
    world.serve_local(0);
    // It is parked for 20 ms when the data moves to another node: it goes there at once.
    world.primaries = vec![Some(2); 4];
    world.version += 1;
    world.tell_table();
    world.settle();
    assert_eq!(world.completions.len(), 1);
    let arrival = world.arrivals[0];
    assert_eq!((arrival.node, arrival.number, arrival.is_retry), (2, 1, true));
    // And back.
    world.submit(2, RequestKind::Read, 0, 8);
    world.pump();
    world.primaries = vec![Some(0); 4];
    world.version += 1;
    world.tell_table();
    world.settle();
    assert_eq!(tags(&world.completions[1].buffer[..4096]), [1; 8]);
}

#[test]
fn what_a_stopped_process_hears_late_is_tried_again() {
    // Stopped while the shard had the part, which was primary no more afterwards.
    let mut world = world();
    world.submit(1, RequestKind::Write, 0, 8);
    world.pump();
    world.now_ns += 31_000 * MS;
    world.refusals = [Some(Status::NotServing)].into();
    world.serve_local(0);
    world.pass(100 * MS);
    assert_eq!(world.completions.len(), 1);
    assert_eq!(world.completions[0].result, Ok(()));
    // Stopped while it was parked: with the table as it was, and with another primary since.
    for primary in [0, 2] {
        world.submit(2, RequestKind::Write, 0, 8);
        world.pump();
        world.refusals = [Some(Status::NotServing)].into();
        world.serve_local(0);
        world.pump();
        world.now_ns += 31_000 * MS;
        world.primaries = vec![Some(primary); 4];
        world.version += 1;
        world.tell_table();
        world.pass(100 * MS);
        assert_eq!(world.completions.len(), 2);
        assert_eq!(world.completions.remove(1).result, Ok(()), "{primary}");
    }
}

#[test]
fn what_is_refused_for_too_long_is_given_up() {
    let mut world = world();
    world.submit(1, RequestKind::Write, 0, 8);
    world.refusals = vec![Some(Status::NotServing); 1000].into();
    world.pass(29_000 * MS);
    assert!(world.completions.is_empty());
    world.pass(2_000 * MS);
    assert_eq!(world.completions.len(), 1);
    assert_eq!(world.completions[0].result.clone().unwrap_err().status(), Some(Status::NotServing));
}

/// Gives all groups to a node, and tells the client.
fn move_all(world: &mut World, node: usize) {
    (0..world.primaries.len()).for_each(|group| world.promote(group, Some(node)));
    world.tell_table();
    world.pump();
}

/// It was waited for as long as its thread hung, and all numbers of the group's requests with it.
#[test]
fn what_a_shard_that_hangs_was_handed_moves_with_its_group() {
    let mut world = world();
    world.submit(1, RequestKind::Write, 0, 8);
    world.submit(2, RequestKind::Read, 8, 8);
    world.pump();
    world.lives[0] = Life::Stopped;
    world.pass(10_000 * MS);
    assert!(world.completions.is_empty());
    move_all(&mut world, 1);
    world.settle();
    assert_eq!(world.completions.len(), 2);
    assert!(world.completions.iter().all(|done| done.result == Ok(())));
    let arrivals: Vec<_> = world.arrivals.iter().map(|one| (one.node, one.number, one.is_retry)).collect();
    assert_eq!(arrivals, [(1, 1, true), (1, 2, true)]);
    // The thread goes on when what it has was written over elsewhere.
    world.submit(3, RequestKind::Write, 0, 16);
    world.settle();
    assert_eq!(world.local_parts.len(), 2);
    world.lives[0] = Life::Up;
    world.settle();
    assert!(world.local_parts.is_empty() && world.completions.len() == 3);
    world.submit(4, RequestKind::Read, 0, 16);
    world.settle();
    assert_eq!(tags(&world.completions[3].buffer), [3; 16]);
}

/// A drive that hangs is given up in the end: that is no error of what is somewhere else.
#[test]
fn an_answer_counts_for_the_attempt_that_it_answers() {
    let mut world = world_with_local(2);
    world.submit(1, RequestKind::Write, 0, 8);
    world.pump();
    move_all(&mut world, 1);
    move_all(&mut world, 0);
    let names: Vec<_> = world.local_parts.iter().map(|part| (part.drive, part.name)).collect();
    let attempts: Vec<_> = names.iter().map(|(at, name)| (*at, name.number, name.attempt)).collect();
    assert_eq!(attempts, [(drive(0), 1, 1), (drive(1), 1, 2), (drive(0), 1, 3)]);
    for (_, name) in &names[..2] {
        assert!(world.core.local_payload(*name).is_none());
        for answer in [Err(Status::Device), Err(Status::NotServing), Ok(LocalAnswer::Changed)] {
            world.core.local_done(*name, answer, world.now_ns);
            world.pump();
            assert!(world.completions.is_empty());
        }
    }
    world.core.local_done(names[2].1, Ok(LocalAnswer::Changed), world.now_ns);
    world.pump();
    assert_eq!(world.completions.len(), 1);
    assert_eq!(world.completions[0].result, Ok(()));
}

/// Nobody waits for it, but its group got no new numbers.
#[test]
fn what_was_withdrawn_from_a_shard_that_hangs_ends_when_its_group_moves() {
    let mut world = world();
    world.submit(1, RequestKind::Write, 0, 8);
    world.pump();
    world.lives[0] = Life::Stopped;
    world.core.withdraw(|token| token == 1);
    world.pass(1_000 * MS);
    assert!(world.completions.is_empty(), "it may take effect still");
    move_all(&mut world, 1);
    world.settle();
    assert_eq!(world.completions.len(), 1);
    assert_eq!(world.completions[0].result, Err(ClientError::Withdrawn));
    assert!(world.arrivals.is_empty(), "it goes nowhere else");
}

#[test]
fn older_tables_are_ignored_and_requests_before_the_first_wait() {
    let mut world = World::new(config(0), 2, 2, Striping::PLAIN, true);
    world.submit(1, RequestKind::Write, 0, 8);
    world.pass(100_000 * MS);
    assert!(world.completions.is_empty() && world.core.failure().is_none());
    let old = world.table();
    world.primaries = vec![Some(1); 2];
    world.version += 1;
    world.tell_table();
    world.core.set_volume(&old, world.now_ns);
    world.settle();
    assert_eq!(world.completions.len(), 1);
    assert!(world.arrivals.iter().all(|arrival| arrival.node == 1));
    assert!(world.connects.iter().all(|(link, _)| *link != 0), "nobody is asked for the table");
}

#[test]
fn a_shared_buffer_comes_back_when_all_shares_are_gone() {
    let mut world = world();
    world.submit(5, RequestKind::Write, 120, 16);
    world.submit(6, RequestKind::Read, 0, 8);
    world.pump();
    assert_eq!(world.local_parts.len(), 3, "the write crosses a unit");
    let (buffer, at) = world.core.local_share(name(2)).unwrap();
    assert_eq!((at, tags(&buffer[at..at + 4096])), (4096, vec![5; 8]));
    assert!(world.core.local_share(name(3)).is_none(), "what is read is not shared");
    world.settle();
    assert_eq!(world.completions.len(), 1);
    drop(buffer);
    world.pump();
    assert_eq!(world.completions.len(), 2);
    assert_eq!(world.completions[1].buffer.len(), 8192);
}

#[test]
fn only_a_read_of_one_part_is_known_by_that_part() {
    let mut world = world();
    world.submit(1, RequestKind::Read, 0, 8);
    world.submit(2, RequestKind::Read, 120, 16);
    world.submit(3, RequestKind::Write, 0, 8);
    world.pump();
    let tokens: Vec<_> = (0..6).map(|number| world.core.local_whole_read(name(number))).collect();
    assert_eq!(tokens, [None, Some(1), None, None, None, None]);
    world.core.local_done(name(1), Ok(LocalAnswer::Data), world.now_ns);
    assert_eq!(world.core.local_whole_read(name(1)), None, "it is answered");
}

#[test]
fn failure_ends_what_is_under_way_and_late_answers_change_nothing() {
    let mut world = world();
    world.submit(1, RequestKind::Read, 0, 8);
    world.pump();
    world.core.fail(ClientError::Closed);
    assert!(world.core.local_buffer(name(1)).is_none());
    world.core.local_done(name(1), Ok(LocalAnswer::Data), world.now_ns);
    world.pump();
    assert_eq!(world.completions.len(), 1);
    assert_eq!(world.completions[0].result, Err(ClientError::Closed));
    world.tell_table();
    world.submit(2, RequestKind::Read, 0, 8);
    world.pump();
    assert_eq!(world.completions.len(), 2);
}

#[test]
fn statuses_that_do_not_pass_fail_the_request() {
    for status in [Status::NoSpace, Status::BadBlock, Status::Device, Status::Fenced, Status::Invalid] {
        let mut world = world();
        world.refusals = [Some(status)].into();
        world.submit(1, RequestKind::Write, 0, 8);
        world.settle();
        assert_eq!(world.completions[0].result.clone().unwrap_err().status(), Some(status));
    }
}

/// It took cubic time: minutes for so many.
#[test]
fn a_table_of_very_many_shards_is_taken_over_at_once() {
    const SHARDS: u32 = 5000;
    let mut world = world();
    let mut table = world.table();
    let shard = |number: u32| coquina_protocol::ShardRef {
        drive: drive(0),
        shard: number,
        address: super::world::address(1),
    };
    table.shards = (0..SHARDS).map(shard).collect();
    table.groups = (0..8192).map(|group| group % SHARDS).collect();
    let local: Vec<_> = (0..SHARDS).step_by(7).map(|number| (drive(0), number)).collect();
    world.core.set_local(&local);
    let started = std::time::Instant::now();
    for first in [0, 0, SHARDS, 0] {
        table.map_version += 1;
        // Others in the place of all that are not here, and back.
        table.shards = (first..first + SHARDS).map(shard).collect();
        world.core.set_volume(&table, world.now_ns);
        world.pump();
    }
    assert!(world.core.failure().is_none());
    let links = world.core.links() as usize;
    assert!(links <= 2 + 2 * SHARDS as usize, "links that are not used serve again: {links}");
    assert!(started.elapsed().as_secs() < 10);
}
