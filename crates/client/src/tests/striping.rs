//! Requests that cross stripe units, and their answers in the right places.

use coquina_cluster::{ChunkPlace, Striping};
use coquina_protocol::REQUEST_WINDOW;

use super::world::{SECTOR, World, config, tags};
use crate::RequestKind;

fn world(stripe_unit_bytes: u32, stripe_count: u32) -> World {
    let mut world = World::new(config(3), 3, 8, Striping { stripe_unit_bytes, stripe_count }, false);
    world.settle();
    world
}

#[test]
fn parts_follow_the_striping_and_their_data_the_request() {
    for (unit, count) in [(4096, 1), (4096, 4), (16384, 3), (1 << 20, 2), (4 << 20, 1), (4 << 20, 3)] {
        let mut world = world(unit, count);
        // Each sector gets its own number, by writes that start and end anywhere.
        for first in (0..512).step_by(8) {
            world.submit(1000 + first, RequestKind::Write, first + 3, 8);
        }
        world.settle();
        assert_eq!(world.completions.len(), 64, "unit {unit}, count {count}");
        assert!(world.completions.drain(..).all(|done| done.result.is_ok()));
        world.submit(1, RequestKind::Read, 3, 500);
        world.settle();
        let done = world.completions.remove(0);
        assert_eq!(done.result, Ok(()));
        let expected: Vec<u64> = (0..500).map(|sector| 1000 + sector / 8 * 8).collect();
        assert_eq!(tags(&done.buffer[..500 * SECTOR as usize]), expected, "unit {unit}, count {count}");
        // And each lies where the map says.
        for sector in 3..503u64 {
            let place = world.striping.chunk_of(sector * SECTOR);
            let written = world.sectors[&(place.chunk, place.offset_bytes / 512)];
            assert_eq!(written, 1000 + (sector - 3) / 8 * 8);
        }
        let whole = |arrival: &super::world::Arrival| {
            count == 1
                || arrival.offset_bytes / unit == (arrival.offset_bytes + arrival.length_bytes - 1) / unit
        };
        assert!(world.arrivals.iter().all(whole), "no part crosses a unit");
    }
}

#[test]
fn one_chunk_to_a_stripe_is_cut_at_chunks_only() {
    let mut world = world(4096, 1);
    world.submit(1, RequestKind::Write, (4 << 20) / SECTOR - 64, 128);
    world.settle();
    let mut places: Vec<_> = world
        .arrivals
        .iter()
        .map(|arrival| (arrival.chunk, arrival.offset_bytes, arrival.length_bytes))
        .collect();
    places.sort_unstable();
    assert_eq!(places, [(0, (4 << 20) - 32768, 32768), (1, 0, 32768)]);
}

#[test]
fn a_large_write_goes_to_many_shards_and_comes_back_once_no_send_holds_it() {
    let mut world = world(65536, 4);
    world.submit(7, RequestKind::Write, 0, 2048);
    world.submit(8, RequestKind::Map, 0, 2048);
    world.settle();
    assert_eq!(world.completions.len(), 2);
    world.completions.sort_by_key(|done| done.token);
    assert_eq!(world.completions[0].buffer.len(), 1 << 20);
    assert_eq!(world.completions[1].extents.len(), 16);
    let nodes: std::collections::HashSet<usize> = world.arrivals.iter().map(|arrival| arrival.node).collect();
    assert_eq!(nodes.len(), 3);
    assert_eq!(world.arrivals.len(), 32);
}

#[test]
fn discards_beyond_the_end_go_out_only_when_the_volume_shrinks() {
    let mut world = world(65536, 4);
    let end = world.size_bytes / SECTOR;
    world.submit(1, RequestKind::Discard, end, 8);
    world.settle();
    assert!(matches!(world.completions.remove(0).result, Err(crate::ClientError::Range { .. })));
    let mut config = config(3);
    config.discards_beyond_end = true;
    let mut world = World::new(config, 3, 8, world.striping, false);
    world.settle();
    world.submit(1, RequestKind::Discard, end - 8, 16);
    world.submit(2, RequestKind::Write, end - 8, 16);
    world.submit(3, RequestKind::Discard, u64::MAX / SECTOR - 8, 4);
    world.settle();
    world.completions.sort_by_key(|done| done.token);
    assert_eq!(world.completions[0].result, Ok(()));
    assert!(world.completions[1..].iter().all(|done| done.result.is_err()));
    assert!(!world.arrivals.is_empty() && world.arrivals.iter().all(|arrival| arrival.is_beyond_end));
}

#[test]
fn a_request_of_many_parts_gives_way_to_what_is_behind_it() {
    const UNIT_BYTES: u32 = 4096;
    const UNITS: u64 = 4096;
    let mut world = world(UNIT_BYTES, 4);
    assert_eq!(world.size_bytes, UNITS * u64::from(UNIT_BYTES));
    world.submit(1, RequestKind::Map, 0, world.size_bytes / SECTOR);
    world.pump();
    assert!(world.core.window.is_full(), "all of it does not fit into the window");
    // The only part of one sector.
    world.submit(2, RequestKind::Read, 8, 1);
    world.settle();
    assert_eq!(world.arrivals.len() as u64, UNITS + 1);
    let read = world.arrivals.iter().find(|arrival| arrival.length_bytes == SECTOR as u32).unwrap();
    // One part more of the map, and then the read.
    assert_eq!(read.number, REQUEST_WINDOW + 2);
    let done: Vec<u64> = world.completions.iter().map(|done| done.token).collect();
    assert_eq!(done, [2, 1], "the read did not wait for the whole map");
    assert!(world.completions.iter().all(|done| done.result.is_ok()));
}

/// It was one for each stripe unit.
#[test]
fn a_discard_has_one_part_for_each_chunk() {
    let mut world =
        World::new(config(3), 3, 8, Striping { stripe_unit_bytes: 65536, stripe_count: 4 }, false);
    world.size_bytes = 256 << 20;
    world.settle();
    world.submit(1, RequestKind::Discard, 0, world.size_bytes / SECTOR);
    world.settle();
    assert_eq!(world.completions.remove(0).result, Ok(()));
    assert_eq!(world.arrivals.len(), 64);
    assert!(
        world.arrivals.iter().all(|arrival| (arrival.offset_bytes, arrival.length_bytes) == (0, 4 << 20))
    );
}

#[test]
fn parts_without_data_are_of_all_that_lies_in_a_chunk_and_of_nothing_else() {
    for (unit, count) in [(4096, 1), (4096, 4), (16384, 3), (1 << 20, 2), (4 << 20, 3), (65536, 64)] {
        let ranges = [(0, 1), (3, 8), (7, 1000), (8190, 8200), (24_000, 8), (5, 32_000), (16_384, 16_384)];
        for (first, length) in ranges {
            let mut world = world(unit, count);
            let zero = RequestKind::WriteZeroes { no_hole: false };
            world.submit(1, zero, first, length);
            world.settle();
            assert_eq!(world.completions.remove(0).result, Ok(()));
            // Each sector of it is zeroed once, and no other is.
            let mut zeroed: Vec<u64> = world
                .arrivals
                .iter()
                .flat_map(|part| {
                    (0..part.length_bytes).step_by(512).map(|at| (part.chunk, part.offset_bytes + at))
                })
                .map(|(chunk, offset_bytes)| {
                    world.striping.offset_of(ChunkPlace { chunk, offset_bytes }) / SECTOR
                })
                .collect();
            zeroed.sort_unstable();
            assert!(zeroed.into_iter().eq(first..first + length), "{unit} {count} {first} {length}");
            let chunks: std::collections::HashSet<u32> =
                world.arrivals.iter().map(|part| part.chunk).collect();
            assert_eq!(chunks.len(), world.arrivals.len(), "{unit} {count} {first} {length}");
        }
    }
}
