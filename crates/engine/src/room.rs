//! How much room changes need, and whether it is there.
//!
//! What a change may take is reserved until it is applied. Far from full that is all of its blocks, whether they replace others or not: to
//! know that costs a look at each. Near the end of the room only those are reserved that hold nothing yet, or blocks that are only replaced
//! would keep others from what is free.

use coquina_replication::BlockRange;

use crate::api::{Origin, Request};
use crate::footer::cold_blocks;
use crate::frame::Head;
use crate::index_region::{Map, RegionKey};
use crate::shard::Shard;
use crate::write::regions_of;

/// Room left below which it counts what changes replace: more than is under way at once.
const NEAR_FULL_BLOCKS: u64 = (64 << 20) / coquina_base::BLOCK_BYTES as u64;

/// Blocks that each shard of several MiB keeps for the entries of other primaries; large shards keep a share.
const KEPT_BLOCKS: u64 = 4096;

impl Shard {
    /// Works out how many blocks users may fill: so many that, wherever they lie, some segment is worth cleaning.
    pub(crate) fn set_capacity(&mut self) {
        let segments = u64::from(self.geometry.segments);
        // Streams and what they were promised, the cleaner's and the users' reserve, index pages and checkpoints.
        let kept = 14 + segments.div_ceil(64);
        let usable = segments.saturating_sub(kept).max(segments / 8);
        let cold = u64::from(cold_blocks(&self.geometry, self.frame_blocks_max_of(Head::Cold)));
        self.segment_capacity_blocks = (cold - cold.div_ceil(32)).max(1);
        self.capacity_blocks = usable * self.segment_capacity_blocks;
    }

    /// Blocks that users may fill, without those that tables take.
    fn capacity_beside_tables(&self) -> u64 {
        let tables = u64::from(self.table_segments()) * self.segment_capacity_blocks;
        self.capacity_blocks.saturating_sub(tables)
    }

    /// Blocks that users may fill, without what damaged segments hold. It may fall below what they have filled, as more clients come:
    /// then only what replaces, and what makes room, is taken.
    pub(crate) fn capacity(&self) -> u64 {
        let lost = u64::from(self.segments.damaged()) * u64::from(self.geometry.segment_blocks);
        self.capacity_beside_tables().saturating_sub(lost)
    }

    /// Blocks of the capacity that only entries of other primaries may take: these cannot be refused, and more of them are
    /// on their way when their primaries are told that this shard is full.
    fn kept_blocks(&self) -> u64 {
        match self.config.copy {
            0 => 0,
            _ => (self.capacity_blocks / 64).max((self.capacity_blocks / 8).min(KEPT_BLOCKS)),
        }
    }

    /// Blocks up to which a client's change may fill the shard.
    pub(crate) fn client_capacity(&self, origin: &Origin) -> u64 {
        if origin.replaces_only { 0 } else { self.capacity().saturating_sub(self.kept_blocks()) }
    }

    /// Blocks that clients may fill, for who looks after the shard: damage counts elsewhere. At least one, so that a shard that has no
    /// room at all shows as full.
    pub(crate) fn told_capacity_blocks(&self) -> u64 {
        self.capacity_beside_tables().saturating_sub(self.kept_blocks()).max(1)
    }

    /// Whether other primaries should send nothing more that needs room. `was_full` is what they were told last: they are
    /// not told another thing with each block.
    pub fn is_full(&self, was_full: bool) -> bool {
        let kept = self.kept_blocks();
        let margin = if was_full { kept + kept / 4 } else { kept };
        let most = self.capacity().saturating_sub(margin);
        most == 0 || self.live_blocks + self.zero_blocks > most
    }

    /// Bytes that the tables of groups and sessions take in the next checkpoint, or somewhat more.
    pub(crate) fn table_bytes(&self) -> u64 {
        self.sessions.encoded_bytes() + self.groups.encoded_bytes()
    }

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
