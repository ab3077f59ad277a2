//! What is left of the index in memory where nearly none is allowed.

use super::*;

/// Four places of pages, and what the allocator takes.
const COLD_BYTES: u64 = 4 * 8 + 16;

/// A region that was written in order kept its place in memory when its checksums went, and with it the regions of its whole chunk, until
/// it was written again or the process ended.
#[test]
fn of_chunks_that_nobody_uses_only_the_places_of_their_pages_stay_in_memory() {
    const CHUNKS: u32 = 32;
    let mut world = World::new();
    for chunk in 0..CHUNKS {
        world.change(write_of(1, chunk, 0, &[chunk as u8; 2 * BLOCK_BYTES]));
    }
    let before = world.shard.stats().index_memory_bytes;
    world.shard.set_index_memory_bytes(0);
    world.settle();
    let after = world.shard.stats().index_memory_bytes;
    assert!(before > u64::from(CHUNKS) * 1024, "{before} bytes with all checksums");
    let chunks = u64::from(CHUNKS) * COLD_BYTES;
    assert!((chunks..chunks + 1500).contains(&after), "{after} bytes");
    for chunk in 0..CHUNKS {
        assert_eq!(world.read(chunk, 1), [chunk as u8; BLOCK_BYTES]);
    }
    world.settle();
    assert_eq!(world.shard.stats().index_memory_bytes, after);
    let mut world = world.reopen();
    assert_eq!(world.read(CHUNKS - 1, 0), [CHUNKS as u8 - 1; BLOCK_BYTES]);
}

/// Each of so many chunks has its first block written, and a checkpoint has all of them.
fn with_clean_chunks(chunks: u32) -> World {
    let mut world = World::new();
    for chunk in 0..chunks {
        world.change(write_of(1, chunk, 0, &[chunk as u8; BLOCK_BYTES]));
    }
    world.shard.start_checkpoint();
    world.turn();
    while !world.shard.checkpoint.is_idle() {
        world.turn();
    }
    world
}

/// A region that was written in order is found twice before all of it goes, and each time counted as one of the few of a turn: of pages
/// that reads brought into memory only half as many went.
#[test]
fn a_region_that_costs_nothing_but_its_place_takes_no_turn_of_another() {
    /// What two turns push out, but not in two halves each.
    const CHUNKS: u32 = 100;
    let mut world = with_clean_chunks(CHUNKS);
    world.shard.set_index_memory_bytes(0);
    let before = world.shard.stats().index_memory_bytes;
    world.turn();
    let between = world.shard.stats().index_memory_bytes;
    assert!(between < before - 60 * 1024 && between > before - 70 * 1024, "{before}, then {between} bytes");
    world.turn();
    let after = world.shard.stats().index_memory_bytes;
    let chunks = u64::from(CHUNKS) * COLD_BYTES;
    assert!((chunks..chunks + 3000).contains(&after), "{after} bytes");
}

/// Each turn ended at the first dirty region, as long as there was no room to write its page.
#[test]
fn clean_regions_go_though_those_before_them_cannot_be_written() {
    const CHUNKS: u32 = 40;
    const DIRTY: u32 = 20;
    let mut world = with_clean_chunks(CHUNKS);
    for chunk in 0..DIRTY {
        world.change(write_of(1, chunk, 0, &[chunk as u8 + 1; BLOCK_BYTES]));
    }
    while world.shard.segments.available() > world.shard.meta_reserve() {
        world.shard.segments.take(crate::frame::Head::Cold).unwrap();
    }
    let before = world.shard.stats().index_memory_bytes;
    world.shard.set_index_memory_bytes(0);
    world.turn();
    let after = world.shard.stats().index_memory_bytes;
    let clean = u64::from(CHUNKS - DIRTY) * 1024;
    assert!(after < before - clean, "{before}, then {after} bytes");
    assert_eq!(world.shard.dirty.len(), DIRTY as usize);
    for chunk in 0..CHUNKS {
        let written = chunk as u8 + u8::from(chunk < DIRTY);
        assert_eq!(world.read(chunk, 0), [written; BLOCK_BYTES]);
    }
}
