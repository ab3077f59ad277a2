//! Bad blocks that wait for their turn to be asked for.

use super::*;
use crate::index_region::RegionKey;

/// More than are asked for at the same time.
const BAD_BLOCKS: u32 = 70;

fn content(block: u32) -> [u8; BLOCK_BYTES] {
    [block as u8 + 1; BLOCK_BYTES]
}

impl World {
    /// Location and checksum of a block of the first region.
    pub(super) fn place_in_log(&mut self, block: u32) -> (u64, u32) {
        let region = self.shard.index.region_mut(RegionKey { layer: LAYER.0, chunk: 0, region: 0 }).unwrap();
        let checksum = region.checksums.as_ref().unwrap()[block as usize];
        (region.location(block as usize), checksum)
    }
}

/// The cleaner moves blocks that it had read while they were good: they are bad no more. When all that had been asked for were such,
/// no answer was waited for any more, and nobody asked for the others.
#[test]
fn bad_blocks_are_asked_for_though_others_were_moved_while_they_were_asked_for() {
    let mut world = World::new();
    world.shard.enable_repairs();
    for block in 0..BAD_BLOCKS {
        world.change(write_of(1, 0, block * BLOCK, &content(block)));
    }
    for block in 0..BAD_BLOCKS {
        let (location, _) = world.place_in_log(block);
        let at = world.shard.geometry.offset_bytes(location) as usize;
        world.drive.0[at] ^= 1;
        let token = READ + u64::from(block);
        world.shard.submit(request(token, 0, block * BLOCK, Operation::Read));
        world.settle();
    }
    let asked = std::mem::take(&mut world.asked);
    assert!(!asked.is_empty() && asked.len() < BAD_BLOCKS as usize, "{} are asked for", asked.len());
    for (_, block) in &asked {
        let (location, checksum) = world.place_in_log(*block);
        world.shard.append_repair((LAYER.0, 0, *block), location, checksum, &content(*block));
    }
    world.settle();
    // What other copies say to these comes late.
    for (repair, block) in &asked {
        assert!(world.shard.repair(*repair, &content(*block)));
    }
    world.settle();
    let others = std::mem::take(&mut world.asked);
    assert_eq!(asked.len() + others.len(), BAD_BLOCKS as usize, "the others wait for ever");
    for (repair, block) in others {
        assert!(world.shard.repair(repair, &content(block)));
    }
    world.settle();
    for block in 0..BAD_BLOCKS {
        match world.outcome(READ + u64::from(block)) {
            Some(Outcome::Read(data)) => assert_eq!(data.to_bytes(), content(block)),
            other => panic!("block {block}: {other:?}"),
        }
    }
    assert_eq!(world.shard.stats().bad_blocks_left, 0);
    world.shard.verify().unwrap();
}
