//! How much room changes need, and whether it is there.
//!
//! What a change may take is reserved until it is applied. Far from full that is all of its blocks, whether they replace others or not: to
//! know that costs a look at each. Near the end of the room only those are reserved that hold nothing yet, or blocks that are only replaced
//! would keep others from what is free.

use coquina_replication::BlockRange;

use crate::api::{Origin, Request};
use crate::index_region::{Map, RegionKey};
use crate::shard::Shard;
use crate::write::regions_of;

/// Room left below which it counts what changes replace: more than is under way at once.
const NEAR_FULL_BLOCKS: u64 = (64 << 20) / coquina_base::BLOCK_BYTES as u64;

impl Shard {
    /// Blocks to reserve for a write for which there is room, whatever it replaces. Where that cannot be told at once, all of them.
    pub(crate) fn blocks_to_reserve(&mut self, range: &BlockRange, free_blocks: u64) -> u32 {
        if free_blocks > NEAR_FULL_BLOCKS || self.is_being_trimmed(range) {
            return range.count;
        }
        self.count_unmapped(range.layer.0, range.chunk, range.first, range.count).unwrap_or(range.count)
    }

    /// Whether an entry of another primary fits. Its primary has seen to that as far as it knew, and a copy that refuses an
    /// entry cannot go on: so what is under way does not count, for it may only replace, as this may where the index page
    /// that would tell is not in memory.
    pub(crate) fn has_room_for_entry(&mut self, request: &Request<'_>, start: u32, blocks: u32) -> bool {
        let used = self.live_blocks + self.zero_blocks;
        if used + u64::from(blocks) <= self.capacity() {
            return true;
        }
        let unmapped = match self.count_unmapped(request.layer.0, request.chunk, start, blocks) {
            Ok(unmapped) => unmapped,
            Err(_) if used <= self.capacity() => 0,
            Err(_) => blocks,
        };
        unmapped == 0 || used + u64::from(unmapped) <= self.capacity()
    }

    /// Whether a trim in the log takes blocks of a range: then the index does not say yet what a change there replaces.
    pub(crate) fn is_being_trimmed(&self, range: &BlockRange) -> bool {
        self.trims_under_way.iter().any(|trim| trim.intersects(range))
    }

    /// Whether trims in the log may give a change the room that it lacks.
    pub(crate) fn trims_may_make_room(&self, origin: &Origin) -> bool {
        !self.trims_under_way.is_empty() && !origin.replaces_only && !origin.after_trims
    }

    /// Blocks of a range that hold nothing, or the first region that must be read to know.
    pub(crate) fn count_unmapped(
        &mut self,
        layer: u64,
        chunk: u32,
        start_block: u32,
        blocks: u32,
    ) -> Result<u32, RegionKey> {
        let mut unmapped = 0;
        for (region, first, count) in regions_of(start_block, blocks) {
            let key = RegionKey { layer, chunk, region };
            match self.index.region_mut(key) {
                None => unmapped += count as u32,
                Some(region) if matches!(region.map, Map::Absent) => return Err(key),
                Some(region) => {
                    unmapped +=
                        (first..first + count).filter(|block| region.location(*block) == 0).count() as u32;
                }
            }
        }
        Ok(unmapped)
    }
}
