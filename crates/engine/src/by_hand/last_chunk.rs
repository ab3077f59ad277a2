//! The last chunk that a layer can have: nothing comes behind it. The table of such a layer takes 512 MiB of memory.

use super::*;
use crate::index::Index;
use crate::index_region::{Map, PageRef, RegionKey};

#[test]
fn it_is_written_scrubbed_and_deleted_as_others_are() {
    let payload = [7_u8; BLOCK_BYTES];
    let mut world = World::new();
    world.change(write_of(1, u32::MAX, 0, &payload));
    world.shard.verify().unwrap();
    world.shard.start_scrub();
    world.settle();
    let is_over = |event: &Event| matches!(event, Event::ScrubDone { blocks: 1, bad: 0 });
    assert!(world.events.iter().any(is_over), "{:?}", world.events);
    let mut world = world.reopen();
    assert_eq!(world.read(u32::MAX, 0), payload);
    world.shard.submit(request(2, 0, 0, Operation::DeleteLayer));
    // Logged, and not yet done: each start goes on with it.
    world.turn();
    assert_eq!(world.shard.stats().live_bytes, BLOCK_BYTES as u64);
    let mut world = world.reopen();
    world.settle();
    assert!(world.shard.layers().is_empty());
    assert_eq!(world.shard.stats().live_bytes, 0);
    world.shard.verify().unwrap();
}

#[test]
fn the_evictor_goes_on_behind_it() {
    let mut index = Index::default();
    let last = RegionKey { layer: 5, chunk: u32::MAX, region: 3 };
    let next = RegionKey { layer: 6, chunk: 0, region: 0 };
    for key in [last, next] {
        let region = index.region_or_new(key, 0);
        region.replace(0, 1, 77, &mut |_, _| {});
        region.set_checksum(0, 1);
    }
    let found: Vec<_> = (0..4).map(|_| index.next_idle(&mut 64)).collect();
    assert_eq!(found, [last, next, last, next].map(Some));
    // The same where nothing of the chunk is in memory.
    let region = index.region_or_new(last, 0);
    (region.map, region.checksums, region.page) = (Map::Absent, None, PageRef::new(9, 0, 64));
    index.cool(last.layer, last.chunk);
    assert_eq!([index.next_idle(&mut 64), index.next_idle(&mut 64)], [Some(next); 2]);
}
