//! Nodes that die, fall silent or lag, and data that moves.

use coquina_cluster::Striping;
use coquina_protocol::{CONNECTION_BYTES_MAX, Status};

use super::world::{Life, SECTOR, World, address, config, drive, tags};
use crate::link::IN_FLIGHT_BYTES_MAX;
use crate::{ClientError, RequestKind};

const MS: u64 = 1_000_000;

/// Three nodes, one of which (2) the client was not told of; all data is on `node`.
fn world(node: usize) -> World {
    let mut world = World::new(config(2), 3, 4, Striping::PLAIN, false);
    world.primaries = vec![Some(node); 4];
    world.settle();
    assert!(world.core.volume().is_some());
    world
}

fn outcome(world: &mut World) -> Result<(), ClientError> {
    assert_eq!(world.completions.len(), 1, "one completion");
    world.completions.remove(0).result
}

#[test]
fn nodes_that_refuse_are_passed_over_at_the_start() {
    let mut world = World::new(config(3), 3, 4, Striping::PLAIN, false);
    world.lives = vec![Life::Dead, Life::Dead, Life::Up];
    world.primaries = vec![Some(2); 4];
    world.pass(5 * MS);
    assert!(world.core.volume().is_some(), "the third was asked without a pause");
    assert_eq!(world.connects, [(0, 0), (0, 1), (0, 2)]);
}

#[test]
fn nodes_that_say_nothing_are_passed_over_at_the_start() {
    let mut world = World::new(config(3), 3, 4, Striping::PLAIN, false);
    world.lives = vec![Life::Stopped, Life::Stopped, Life::Up];
    world.pass(1900 * MS);
    assert!(world.core.volume().is_none());
    world.pass(200 * MS);
    assert!(world.core.volume().is_some());
}

#[test]
fn giving_up_names_all_addresses() {
    let mut world = World::new(config(2), 2, 4, Striping::PLAIN, false);
    world.lives = vec![Life::Dead; 2];
    world.submit(1, RequestKind::Read, 0, 1);
    world.pass(40_000 * MS);
    let error = outcome(&mut world).unwrap_err();
    assert!(error.to_string().contains("node0:1, node1:1"), "{error}");
    assert!(world.connects.len() < 200, "with pauses: {}", world.connects.len());
}

#[test]
fn no_more_is_sent_than_a_server_reads() {
    let mut world = World::new(config(2), 3, 4, Striping::PLAIN, false);
    (world.primaries, world.requests_max) = (vec![Some(0); 4], 1024);
    world.submit(0, RequestKind::Write, 0, 8);
    world.settle();
    let sectors = coquina_base::CHUNK_BYTES / SECTOR;
    for token in 1..41 {
        world.submit(token, RequestKind::Discard, token % 4 * sectors, sectors);
    }
    world.pump();
    let under_way = world.core.links.iter().map(|link| link.in_flight_bytes).max();
    assert_eq!(under_way, Some(IN_FLIGHT_BYTES_MAX));
    const { assert!(IN_FLIGHT_BYTES_MAX + coquina_base::CHUNK_BYTES <= CONNECTION_BYTES_MAX) };
    world.settle();
    assert_eq!(world.completions.len(), 41);
}

/// A server reads nothing from who has as many requests under way as it takes: the ping would not be read, and the connection count as broken.
#[test]
fn a_ping_is_read_however_much_is_under_way() {
    let mut world = world(0);
    for token in 0..20 {
        world.submit(token, RequestKind::Write, token * 8, 8);
    }
    world.pump();
    for requests_max in [5, 2, 1] {
        world.break_wire(1);
        world.requests_max = requests_max;
        world.lives[0] = Life::Stopped;
        world.pass(1100 * MS);
        world.lives[0] = Life::Up;
        while world.serve(1) && world.core.links[1].in_flight == 0 {
            world.deliver(1, usize::MAX);
            world.pump();
        }
        assert_eq!(world.core.links[1].in_flight, (requests_max - 1).max(1));
    }
    world.pass(5_000 * MS);
    assert_eq!(world.completions.len(), 20);
}

/// They waited for it, for up to 30 s, once so many numbers were given.
#[test]
fn a_group_that_takes_nothing_holds_no_other_back() {
    let mut world = world(0);
    world.requests_max = 1024;
    let sectors = coquina_base::CHUNK_BYTES / SECTOR;
    let stuck = world.group(0);
    assert!((1..4).all(|chunk| world.group(chunk) != stuck));
    world.refusing_groups.insert(stuck, Status::TooFewCopies);
    // Two that are refused, in turn with others, and one of each kind at the end.
    for token in 0..5000 {
        let chunk = if token == 0 || token == 1000 { 0 } else { 1 + token % 3 };
        world.submit(token, RequestKind::Write, chunk * sectors + token, 1);
    }
    world.settle();
    for token in 5000..5100 {
        world.submit(token, RequestKind::Write, (token % 4) * sectors + token, 1);
    }
    world.pass(1000 * MS);
    assert_eq!(world.completions.len(), 4998 + 75);
    assert!(world.completions.iter().all(|done| done.result.is_ok()));
    let seen = world.arrivals.iter().filter(|arrival| arrival.chunk == 0);
    assert!(seen.map(|arrival| arrival.number).max() <= Some(1001), "the group gets no new numbers");
    world.refusing_groups.clear();
    world.pass(1000 * MS);
    assert_eq!(world.completions.len(), 5100);
    assert!(world.completions.iter().all(|done| done.result.is_ok()));
    for token in 0..5100 {
        let chunk = match token {
            0 | 1000 => 0,
            token if token < 5000 => 1 + token % 3,
            token => token % 4,
        };
        assert_eq!(world.sectors[&(chunk as u32, token as u32)], token);
    }
}

/// In this process nobody is asked whether it is there.
#[test]
fn a_group_that_does_not_answer_holds_no_other_back() {
    let mut config = config(0);
    config.local = vec![(drive(0), 7)];
    let mut world = World::new(config, 1, 4, Striping::PLAIN, true);
    world.tell_table();
    let sectors = coquina_base::CHUNK_BYTES / SECTOR;
    world.silent_groups.insert(world.group(0));
    for token in 0..5000 {
        let chunk = if token == 0 || token == 1000 { 0 } else { 1 + token % 3 };
        world.submit(token, RequestKind::Write, chunk * sectors + token, 1);
    }
    world.pass(400 * MS);
    assert!(world.completions.len() < 2048, "it may only be slow");
    world.pass(600 * MS);
    assert_eq!(world.completions.len(), 4998);
    world.silent_groups.clear();
    world.settle();
    assert_eq!(world.completions.len(), 5000);
    assert!(world.completions.iter().all(|done| done.result.is_ok()));
}

#[test]
fn who_waits_behind_a_group_that_takes_nothing_is_told_when_that_is_given_up() {
    let mut world = world(0);
    let sectors = coquina_base::CHUNK_BYTES / SECTOR;
    world.refusing_groups.insert(world.group(0), Status::TooFewCopies);
    for token in 0..3000 {
        let chunk = if token == 0 || token > 2990 { 0 } else { 1 + token % 3 };
        world.submit(token, RequestKind::Write, chunk * sectors + token, 1);
    }
    // Over both, of which one part is written.
    world.submit(3000, RequestKind::Discard, sectors - 8, 16);
    world.pass(29_000 * MS);
    world.core.withdraw(|token| token == 2995);
    world.pass(33_000 * MS);
    assert_eq!(world.completions.len(), 3001);
    assert_eq!(world.completions.iter().filter(|done| done.result.is_err()).count(), 11);
    // The whole client gives up while some wait.
    world.submit(1, RequestKind::Write, 0, 8);
    for token in 3001..6000 {
        world.submit(token, RequestKind::Write, (1 + token % 3) * sectors + token, 1);
    }
    world.settle();
    world.submit(2, RequestKind::Write, 0, 8);
    world.settle();
    world.core.fail(ClientError::Closed);
    world.pump();
    assert_eq!(world.core.outstanding(), 0);
}

#[test]
fn a_killed_primary_with_link_0_on_it_is_left_for_its_successor() {
    let mut world = world(0);
    world.submit(1, RequestKind::Write, 0, 8);
    world.settle();
    assert_eq!(outcome(&mut world), Ok(()));
    world.lives[0] = Life::Dead;
    world.submit(2, RequestKind::Write, 0, 8);
    for link in world.wires() {
        world.break_wire(link);
    }
    world.pass(300 * MS);
    assert!(world.completions.is_empty(), "nobody serves");
    world.promote(0, Some(2));
    world.primaries = vec![Some(2); 4];
    // Node 1 tells that the map has changed.
    assert_eq!(world.node_of(0), Some(1));
    world.notify(0);
    world.pass(25 * MS);
    assert_eq!(outcome(&mut world), Ok(()));
    let newest = world.arrivals.last().unwrap();
    assert_eq!((newest.node, newest.number), (2, 2));
}

#[test]
fn a_node_that_does_not_serve_sends_the_client_for_the_table() {
    let mut world = world(0);
    world.submit(1, RequestKind::Write, 0, 8);
    world.settle();
    assert_eq!(outcome(&mut world), Ok(()));
    // The data moves, and nobody says so.
    world.promote(0, Some(2));
    world.primaries = vec![Some(2); 4];
    world.pass(100 * MS);
    world.submit(2, RequestKind::Write, 0, 8);
    world.settle();
    assert_eq!(outcome(&mut world), Ok(()), "without waiting: the table was newer");
    let sent: Vec<_> =
        world.arrivals.iter().map(|arrival| (arrival.node, arrival.number, arrival.is_retry)).collect();
    assert_eq!(sent, [(0, 1, false), (0, 2, false), (2, 2, true)]);
}

#[test]
fn a_shard_that_is_connected_to_later_brings_its_newer_table_along() {
    let mut world = world(0);
    world.promote(0, Some(2));
    world.primaries = vec![Some(2); 4];
    world.submit(1, RequestKind::Write, 0, 8);
    world.settle();
    assert_eq!(outcome(&mut world), Ok(()));
    assert!(world.arrivals.iter().all(|arrival| arrival.node == 2));
}

#[test]
fn a_node_that_is_behind_does_not_make_a_volume_small_again() {
    let mut world = world(0);
    let size = |world: &World| world.core.volume().map(|volume| volume.size_bytes);
    let (small_bytes, old_version) = (world.size_bytes, world.version);
    world.size_bytes *= 2;
    world.version += 1;
    world.notify(0);
    world.pass(100 * MS);
    assert_eq!(size(&world), Some(2 * small_bytes), "the table says so");
    world.tell_size(0, small_bytes, old_version);
    world.settle();
    assert_eq!(size(&world), Some(2 * small_bytes), "that was before");
    world.submit(1, RequestKind::Write, small_bytes / SECTOR, 8);
    world.settle();
    assert_eq!(outcome(&mut world), Ok(()), "what was added can be used");
    // A size of the same map, or of a newer one, counts.
    for (version, bytes) in [(old_version + 1, 3 * small_bytes), (old_version + 2, small_bytes)] {
        world.tell_size(0, bytes, version);
        world.settle();
        assert_eq!(size(&world), Some(bytes));
    }
}

#[test]
fn an_older_size_that_comes_late_does_not_replace_a_newer_one() {
    let mut world = world(0);
    let told = |world: &World| world.core.volume().map(|volume| (volume.size_bytes, volume.map_version));
    let (small_bytes, version) = (world.size_bytes, world.version);
    world.tell_size(0, 3 * small_bytes, version + 2);
    world.tell_size(0, 2 * small_bytes, version + 1);
    world.settle();
    assert_eq!(told(&world), Some((3 * small_bytes, version)), "the second one was sent before");
    // A table that is newer than the one before, and older than the notice, tells where the data is.
    world.size_bytes = 2 * small_bytes;
    world.promote(0, Some(2));
    world.primaries = vec![Some(2); 4];
    world.notify(0);
    world.pass(100 * MS);
    assert_eq!(told(&world), Some((3 * small_bytes, version + 1)));
    world.submit(1, RequestKind::Write, 2 * small_bytes / SECTOR, 8);
    world.settle();
    assert_eq!(outcome(&mut world), Ok(()), "what was added can be used");
    assert_eq!(world.arrivals.last().unwrap().node, 2);
    // One of the notice's map, or of a newer one, counts.
    world.version += 1;
    world.notify(0);
    world.pass(100 * MS);
    assert_eq!(told(&world), Some((2 * small_bytes, version + 2)));
    world.tell_size(0, 3 * small_bytes, version + 1);
    world.settle();
    assert_eq!(told(&world), Some((2 * small_bytes, version + 2)));
}

#[test]
fn refusals_under_the_same_table_are_tried_again_with_growing_pauses() {
    let mut world = world(0);
    world.submit(1, RequestKind::Write, 0, 8);
    world.refusals = [Some(Status::NotServing); 8].into();
    world.pass(100 * MS);
    // At 0, 10, 30 and 70 ms.
    assert_eq!(world.arrivals.len(), 4);
    world.pass(900 * MS);
    // At 150, 310, 510, 710 ms, and done at 910 ms.
    assert_eq!(world.arrivals.len(), 9);
    assert_eq!(outcome(&mut world), Ok(()));
    assert!(world.arrivals[1..].iter().all(|arrival| arrival.number == 1 && arrival.is_retry));
}

#[test]
fn the_time_for_which_the_process_was_stopped_does_not_count() {
    let mut world = world(0);
    world.submit(1, RequestKind::Write, 0, 8);
    world.settle();
    assert_eq!(outcome(&mut world), Ok(()));
    world.lives[0] = Life::Dead;
    for link in world.wires() {
        world.break_wire(link);
    }
    world.submit(2, RequestKind::Write, 0, 8);
    world.pass(300 * MS);
    assert!(world.completions.is_empty(), "nobody serves");
    world.now_ns += 31_000 * MS;
    world.lives[0] = Life::Up;
    world.pass(2_000 * MS);
    assert_eq!(outcome(&mut world), Ok(()));
    // One that runs gives up.
    world.lives[0] = Life::Dead;
    for link in world.wires() {
        world.break_wire(link);
    }
    world.submit(3, RequestKind::Write, 0, 8);
    world.pass(32_000 * MS);
    assert!(matches!(outcome(&mut world), Err(ClientError::GivenUp { .. })));
}

#[test]
fn a_silent_primary_that_also_told_the_table_costs_less_than_two_seconds() {
    for first in [RequestKind::Write, RequestKind::Read] {
        let mut world = world(0);
        assert_eq!(world.node_of(0), Some(0));
        world.submit(1, RequestKind::Write, 0, 64);
        world.settle();
        world.completions.clear();
        world.lives[0] = Life::Stopped;
        world.submit(2, first, 0, 64);
        world.settle();
        world.promote(0, Some(1));
        world.primaries = vec![Some(1); 4];
        world.pass(1900 * MS);
        assert_eq!(outcome(&mut world), Ok(()), "{first:?}");
        assert_eq!(world.node_of(0), Some(1));
        let newest = world.arrivals.last().unwrap();
        assert_eq!((newest.node, newest.number, newest.is_retry), (1, 2, true));
    }
}

#[test]
fn a_connection_that_was_silent_when_its_parts_moved_is_made_anew() {
    let mut world = world(0);
    world.submit(1, RequestKind::Write, 0, 8);
    world.settle();
    let connects_before = world.connects.len();
    world.completions.clear();
    world.lives[0] = Life::CutOff;
    world.submit(2, RequestKind::Write, 0, 8);
    world.pass(700 * MS);
    assert!(world.completions.is_empty());
    // One group stays on node 0, so that the table still names it.
    let (moved, kept) = (world.group(0), world.group(1));
    assert_ne!(moved, kept);
    world.promote(moved, Some(1));
    world.pass(1_300 * MS);
    assert_eq!(outcome(&mut world), Ok(()), "the other node took it");
    let again = world.connects[connects_before..].iter().filter(|(link, node)| *link != 0 && *node == 0);
    assert!(again.count() > 0, "what waits on the old connection is not waited for");
    // When the network is mended and the group is back, only the new connection is used.
    world.promote(moved, Some(0));
    world.lives[0] = Life::Up;
    world.pass(1_100 * MS);
    world.submit(3, RequestKind::Write, 0, 8);
    world.settle();
    assert_eq!(outcome(&mut world), Ok(()));
    let taken: Vec<_> = world.arrivals.iter().map(|arrival| (arrival.node, arrival.number)).collect();
    assert_eq!(
        taken,
        [(0, 1), (1, 2), (0, 3)],
        "each once: what waited on the old connection is gone with it"
    );
}

#[test]
fn a_node_that_cannot_be_reached_is_tried_again_each_second() {
    let mut world = world(0);
    world.lives[0] = Life::CutOff;
    for link in world.wires() {
        world.break_wire(link);
    }
    world.submit(1, RequestKind::Write, 0, 8);
    world.pass(10_000 * MS);
    let tried = world.connects.iter().filter(|(link, node)| *link != 0 && *node == 0).count();
    assert!((9..=12).contains(&tried), "{tried} attempts");
    world.lives[0] = Life::Up;
    // Attempts of before are lost; the next one gets through.
    world.connecting.clear();
    world.pass(1_100 * MS);
    assert_eq!(outcome(&mut world), Ok(()));
}

#[test]
fn an_answer_of_the_former_primary_that_comes_late_is_passed_over() {
    let mut world = world(0);
    world.submit(1, RequestKind::Write, 0, 8);
    world.settle();
    world.completions.clear();
    world.submit(2, RequestKind::Write, 0, 8);
    world.submit(3, RequestKind::Write, 8, 8);
    world.pump();
    let link = world.wires().into_iter().find(|link| *link != 0).unwrap();
    world.serve(link);
    world.serve(link);
    // Only the group of chunk 1 stays on node 0, so the connection stays.
    let (moved, kept) = (world.group(0), world.group(1));
    assert_ne!(moved, kept);
    world.promote(moved, Some(1));
    world.notify(0);
    world.finish_send(0);
    while world.deliver(0, usize::MAX) {
        world.pump();
        world.serve(0);
        world.finish_send(0);
    }
    world.pass(5 * MS);
    assert_eq!(world.completions.len(), 2);
    assert!(world.completions.iter().all(|done| done.result.is_ok()));
    assert_eq!(world.connects.iter().filter(|(_, node)| *node == 0).count(), 2, "no connection was broken");
}

#[test]
fn a_node_that_lags_behind_is_left_for_another() {
    let mut world = world(0);
    let old = world.table();
    world.promote(0, Some(2));
    world.primaries = vec![Some(2); 4];
    world.lagging.insert(0, old);
    world.submit(1, RequestKind::Write, 0, 8);
    world.pass(1000 * MS);
    assert_eq!(outcome(&mut world), Ok(()));
    assert_eq!(world.node_of(0), Some(1), "the node that does not hear of changes was left");
}

#[test]
fn an_older_table_is_not_taken() {
    let mut world = world(0);
    let old = world.table();
    world.promote(0, Some(2));
    world.primaries = vec![Some(2); 4];
    world.notify(0);
    world.pass(30 * MS);
    assert_eq!(world.core.volume().unwrap().map_version, 2);
    world.lagging.insert(0, old.clone());
    world.lagging.insert(1, old);
    world.notify(0);
    world.pass(30 * MS);
    assert_eq!(world.core.volume().unwrap().map_version, 2);
    world.submit(1, RequestKind::Write, 0, 8);
    world.settle();
    assert_eq!(outcome(&mut world), Ok(()));
    assert_eq!(world.arrivals.last().unwrap().node, 2);
}

#[test]
fn too_few_copies_are_waited_for_and_then_told() {
    let mut world = world(0);
    world.refusals = [Some(Status::TooFewCopies); 1000].into();
    world.submit(1, RequestKind::Write, 0, 8);
    world.pass(29_000 * MS);
    assert!(world.completions.is_empty());
    world.pass(2_000 * MS);
    let error = outcome(&mut world).unwrap_err();
    assert_eq!(error, ClientError::Server { status: Status::TooFewCopies, text: "as ordered".to_owned() });
    world.refusals.clear();
    world.submit(2, RequestKind::Write, 0, 8);
    world.settle();
    assert_eq!(outcome(&mut world), Ok(()));
}

#[test]
fn a_fenced_attachment_is_not_tried_again() {
    let mut world = world(0);
    world.refusals = [Some(Status::Fenced)].into();
    world.submit(1, RequestKind::Write, 0, 8);
    world.settle();
    assert_eq!(outcome(&mut world).unwrap_err().status(), Some(Status::Fenced));
    assert_eq!(world.arrivals.len(), 1);
}

#[test]
fn a_group_without_a_known_primary_is_waited_for() {
    let mut world = world(0);
    world.primaries = vec![None; 4];
    world.version += 1;
    world.notify(0);
    world.pass(30 * MS);
    world.submit(1, RequestKind::Read, 0, 8);
    world.pass(2_000 * MS);
    assert!(world.completions.is_empty() && world.arrivals.is_empty());
    world.primaries = vec![Some(2); 4];
    world.version += 1;
    world.pass(500 * MS);
    assert_eq!(outcome(&mut world), Ok(()));
}

#[test]
fn links_of_nodes_that_left_are_used_again() {
    let mut world = world(0);
    for round in 0..50 {
        world.lives.push(Life::Up);
        world.primaries = vec![Some(world.lives.len() - 1); 4];
        world.version += 1;
        // The table names only the shard in use, as a server's does.
        let mut table = world.table();
        table.shards = vec![table.shards[world.lives.len() - 1].clone()];
        table.groups = vec![0; 4];
        for node in 0..world.lives.len() {
            world.lagging.insert(node, table.clone());
        }
        world.notify(0);
        world.pass(30 * MS);
        world.submit(round, RequestKind::Read, 0, 8);
        world.settle();
        assert_eq!(outcome(&mut world), Ok(()), "{}", address(world.lives.len() - 1));
    }
    assert!(world.core.links() < 6, "{} links", world.core.links());
}

#[test]
fn what_was_written_is_read_wherever_it_moves() {
    let mut world = world(0);
    for round in 0..30u64 {
        world.submit(round + 1, RequestKind::Write, 16000, 800);
        world.pump();
        world.promote(round as usize % 4, Some(round as usize % 3));
        world.pass(400 * MS);
        assert_eq!(outcome(&mut world), Ok(()));
        world.submit(0, RequestKind::Read, 16000, 800);
        world.pass(400 * MS);
        let done = world.completions.remove(0);
        assert!(tags(&done.buffer[..800 * 512]).iter().all(|tag| *tag == round + 1));
    }
}

#[test]
fn one_node_that_refuses_the_volume_fails_only_what_lies_there() {
    for status in [Status::UnknownVolume, Status::VersionMismatch, Status::WrongCluster, Status::Busy] {
        let mut world = world(0);
        world.promote(0, Some(2));
        world.refused_opens.insert(2, status);
        let (there, here) = if world.group(0) == 0 { (0, 1) } else { (4 - world.group(0) as u64, 0) };
        let sectors = (4 << 20) / 512;
        world.submit(1, RequestKind::Write, there * sectors, 8);
        world.submit(2, RequestKind::Write, here * sectors, 8);
        world.pass(1_000 * MS);
        assert_eq!(world.completions.len(), 1, "{status:?}");
        assert_eq!(world.completions.remove(0).token, 2);
        world.pass(40_000 * MS);
        let error = outcome(&mut world).unwrap_err().to_string();
        assert!(error.contains("node2:1") && error.contains(&status.to_string()), "{error}");
        assert_eq!(world.core.failure(), None);
        world.refused_opens.clear();
        world.submit(3, RequestKind::Write, there * sectors, 8);
        world.pass(2_000 * MS);
        assert_eq!(outcome(&mut world), Ok(()));
    }
}

#[test]
fn a_node_that_does_not_know_the_volume_any_more_is_not_the_last_word() {
    let mut world = world(0);
    for link in world.wires() {
        world.break_wire(link);
    }
    world.refused_opens.insert(1, Status::UnknownVolume);
    world.submit(1, RequestKind::Write, 0, 8);
    world.pass(100 * MS);
    assert_eq!(outcome(&mut world), Ok(()));
    assert_eq!(world.core.failure(), None);
    for node in 0..3 {
        world.refused_opens.insert(node, Status::UnknownVolume);
    }
    for link in world.wires() {
        world.break_wire(link);
    }
    world.pass(100 * MS);
    let status = world.core.failure().and_then(ClientError::status);
    assert_eq!(status, Some(Status::UnknownVolume), "all say so");
}

#[test]
fn an_attachment_that_is_over_ends_the_client_but_not_a_directed_one() {
    for (status, directed) in [(Status::StaleHandle, false), (Status::Fenced, false), (Status::Fenced, true)]
    {
        let mut world = World::new(config(2), 3, 4, Striping::PLAIN, directed);
        world.primaries = vec![Some(1); 4];
        if directed {
            world.tell_table();
        }
        world.settle();
        world.refused_opens.insert(1, status);
        world.submit(1, RequestKind::Read, 0, 8);
        world.pass(1_000 * MS);
        assert_eq!(world.core.failure().is_some(), !directed);
        world.refused_opens.clear();
        world.pass(2_000 * MS);
        assert_eq!(outcome(&mut world).is_ok(), directed);
    }
}

#[test]
fn a_node_knows_of_an_open_volume_before_anything_is_asked_for() {
    let mut world = World::new(config(3), 3, 4, Striping::PLAIN, true);
    let home = world.group(0);
    let nodes =
        |world: &World| world.wires().iter().filter_map(|link| world.node_of(*link)).collect::<Vec<_>>();
    world.tell_table();
    world.settle();
    assert_eq!(nodes(&world), [world.primaries[home].unwrap()]);
    // Idle is asleep.
    assert_eq!(world.core.deadline_ns(), None);

    let next = (world.primaries[home].unwrap() + 1) % 3;
    world.promote(home, Some(next));
    world.tell_table();
    world.settle();
    assert!(nodes(&world).contains(&next), "{:?}", nodes(&world));

    // A node that is not there is tried again at a slow pace.
    world.lives[next] = Life::Dead;
    for link in world.wires() {
        world.break_wire(link);
    }
    let before = world.connects.len();
    world.pass(20_000 * MS);
    assert!((15..80).contains(&(world.connects.len() - before)), "{}", world.connects.len() - before);
    world.lives[next] = Life::Up;
    world.pass(2_000 * MS);
    assert!(nodes(&world).contains(&next));

    // What is under way goes on when nobody has it open any more; then there is no connection left.
    world.submit(1, RequestKind::Read, 0, 8);
    world.core.set_open(false, world.now_ns);
    world.settle();
    assert!(outcome(&mut world).is_ok());
    world.settle();
    assert_eq!((nodes(&world), world.core.deadline_ns()), (vec![], None));
    world.tell_table();
    world.settle();
    assert!(nodes(&world).is_empty());
    world.core.set_open(true, world.now_ns);
    world.settle();
    assert_eq!(nodes(&world), [next]);
}
