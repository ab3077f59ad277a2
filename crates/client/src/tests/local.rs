//! Directed clients, and shards in the same process.

use coquina_cluster::Striping;
use coquina_protocol::{REQUEST_WINDOW, Status};

use super::world::{World, config, drive, tags};
use crate::{ClientError, LocalAnswer, RequestKind};

const MS: u64 = 1_000_000;

/// Three nodes of which the first is in this process, and has all groups.
fn world() -> World {
    let mut config = config(0);
    config.local = vec![(drive(0), 7)];
    let mut world = World::new(config, 3, 4, Striping { stripe_unit_bytes: 65536, stripe_count: 4 }, true);
    world.primaries = vec![Some(0); 4];
    world.tell_table();
    world.pump();
    world
}

#[test]
fn nothing_is_connected_and_the_payload_is_seen_in_place() {
    let mut world = world();
    world.submit(3, RequestKind::Write, 0, 256);
    world.pump();
    assert_eq!(world.local_parts.len(), 2, "one per stripe unit");
    let part = world.local_parts[1];
    assert!(!part.is_retry);
    assert_eq!((part.number, part.request_floor, part.offset_bytes, part.length_bytes), (2, 1, 0, 65536));
    assert_eq!(tags(world.core.local_payload(2).unwrap()), [3; 128]);
    assert!(world.core.local_payload(3).is_none() && world.core.local_buffer(9).is_none());
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
    assert!(part.number == 1 && part.is_retry);
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

#[test]
fn a_part_under_way_here_is_answered_here_whatever_the_table_says() {
    let mut world = world();
    world.submit(1, RequestKind::Write, 0, 8);
    world.pump();
    world.primaries = vec![Some(1); 4];
    world.version += 1;
    world.tell_table();
    world.pump();
    assert_eq!(world.local_parts.len(), 1);
    assert!(world.arrivals.is_empty());
    world.settle();
    assert_eq!(world.completions.len(), 1);
    assert_eq!(world.arrivals[0].node, 1);
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
    let (buffer, at) = world.core.local_share(2).unwrap();
    assert_eq!((at, tags(&buffer[at..at + 4096])), (4096, vec![5; 8]));
    assert!(world.core.local_share(3).is_none(), "what is read is not shared");
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
    let tokens: Vec<_> = (0..6).map(|number| world.core.local_whole_read(number)).collect();
    assert_eq!(tokens, [None, Some(1), None, None, None, None]);
    world.core.local_done(1, Ok(LocalAnswer::Data), world.now_ns);
    assert_eq!(world.core.local_whole_read(1), None, "it is answered");
}

#[test]
fn failure_ends_what_is_under_way_and_late_answers_change_nothing() {
    let mut world = world();
    world.submit(1, RequestKind::Read, 0, 8);
    world.pump();
    world.core.fail(ClientError::Closed);
    assert!(world.core.local_buffer(1).is_none());
    world.core.local_done(1, Ok(LocalAnswer::Data), world.now_ns);
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
