//! Which blocks changed while a copy is out.
//!
//! A chunk with any block in a set takes some 55 bytes, and 160 for a bitmap if it has more than three runs. So a set of any
//! blocks at all takes at most 54 bytes per MiB, and a whole chunk as little as a block. Clones share bitmaps until one of
//! them changes: a clone takes time and memory by the chunk, not by the run.

mod blocks;

use std::collections::BTreeMap;

use coquina_base::LayerId;

use crate::types::{BlockRange, Config, CopyId};
use blocks::Blocks;

/// A set of blocks. Cheap to clone, also when it is large.
pub trait ChangedSet: Clone + Default {
    /// Adds all blocks of the range, which does not go beyond the end of its chunk.
    fn insert(&mut self, range: BlockRange);
    /// Takes out all blocks of the range.
    fn remove(&mut self, range: BlockRange);
    /// Whether any block of the range is in the set.
    fn intersects(&self, range: BlockRange) -> bool;
    /// The first run of blocks in the set, at most `blocks_max` long.
    fn first(&self, blocks_max: u32) -> Option<BlockRange>;
    /// Adds all blocks of another set.
    fn merge(&mut self, other: &Self);
    /// Calls for each run of blocks of the range that is not in the set.
    fn gaps(&self, range: BlockRange, gap: impl FnMut(BlockRange));
    /// Whether the set is empty.
    fn is_empty(&self) -> bool {
        self.first(1).is_none()
    }
}

/// Blocks by chunk.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct RangeSet {
    /// By layer and chunk; none is empty.
    chunks: BTreeMap<(LayerId, u32), Blocks>,
    /// How many blocks these are.
    blocks: u64,
}

impl RangeSet {
    /// The runs in order. Runs of one chunk neither touch nor overlap; none goes on into the next chunk.
    pub fn ranges(&self) -> impl Iterator<Item = BlockRange> + '_ {
        self.chunks.iter().flat_map(|(&(layer, chunk), blocks)| {
            let runs = blocks.runs();
            runs.map(move |(first, end)| BlockRange { layer, chunk, first, count: end - first })
        })
    }

    /// How many blocks are in the set; a [`BlockRange::whole_layer`] counts as one. Takes no time.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    fn forget_layer(&mut self, layer: LayerId) {
        let chunks: Vec<_> =
            self.chunks.range((layer, 0)..=(layer, u32::MAX)).map(|(chunk, _)| *chunk).collect();
        for chunk in chunks {
            let blocks = self.chunks.remove(&chunk).unwrap_or_default();
            self.blocks -= blocks.runs().map(|(first, end)| u64::from(end - first)).sum::<u64>();
        }
    }
}

impl ChangedSet for RangeSet {
    fn insert(&mut self, range: BlockRange) {
        if range.first == range.end() {
            return;
        }
        if range.is_whole_layer() {
            // Of a deleted layer nothing but that is missed.
            self.forget_layer(range.layer);
        }
        let blocks = self.chunks.entry((range.layer, range.chunk)).or_default();
        self.blocks += blocks.insert(range.first, range.end());
    }

    fn remove(&mut self, range: BlockRange) {
        let chunk = (range.layer, range.chunk);
        let Some(blocks) = self.chunks.get_mut(&chunk).filter(|_| range.first < range.end()) else { return };
        self.blocks -= blocks.remove(range.first, range.end());
        if blocks.is_empty() {
            self.chunks.remove(&chunk);
        }
    }

    fn intersects(&self, range: BlockRange) -> bool {
        let blocks = self.chunks.get(&(range.layer, range.chunk));
        let run = blocks.and_then(|blocks| blocks.next_run(range.first));
        run.is_some_and(|(first, _)| first < range.end())
    }

    fn first(&self, blocks_max: u32) -> Option<BlockRange> {
        let mut range = self.ranges().next()?;
        range.count = range.count.min(blocks_max);
        Some(range)
    }

    fn merge(&mut self, other: &Self) {
        other.ranges().for_each(|range| self.insert(range));
    }

    fn gaps(&self, range: BlockRange, mut gap: impl FnMut(BlockRange)) {
        let blocks = self.chunks.get(&(range.layer, range.chunk));
        let (mut first, end) = (range.first, range.end());
        while first < end {
            let run = blocks.and_then(|blocks| blocks.next_run(first));
            let (run_first, run_end) = run.map_or((end, end), |run| (run.0.min(end), run.1));
            if first < run_first {
                gap(BlockRange { first, count: run_first - first, ..range });
            }
            first = run_end;
        }
    }
}

/// What is known of the blocks that an out copy misses.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Missing<C> {
    /// The set holds every block changed by entries above this sequence number.
    pub base: u64,
    /// The blocks.
    pub set: C,
}

/// What each out copy misses, as a copy in sync keeps it. Rebuilt by replay with the same calls.
///
/// Invariant: for each out copy, every block changed by an entry above `base` that this copy holds is in its set,
/// whether the entry is committed or not, unless the block has been recovered since.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct MissingSets<C> {
    sets: BTreeMap<CopyId, Missing<C>>,
}

impl<C: ChangedSet> MissingSets<C> {
    /// Goes over to a configuration. `committed` is the last entry known to be committed, `uncommitted` are the
    /// ranges of the entries above it.
    ///
    /// A copy that is out keeps no sets, since it does not see every change. A set lives on while both this copy
    /// stays in sync and the other stays out; a configuration that was not heard of in between cannot have brought
    /// this copy back without its knowing.
    pub fn adopt(
        &mut self,
        config: &Config,
        copy: CopyId,
        committed: u64,
        uncommitted: impl Iterator<Item = BlockRange> + Clone,
    ) {
        if !config.is_in_sync(copy) {
            self.sets.clear();
            return;
        }
        self.sets.retain(|other, _| config.is_out(*other));
        for other in &config.others {
            self.sets.entry(*other).or_insert_with(|| {
                let mut set = C::default();
                uncommitted.clone().for_each(|range| set.insert(range));
                Missing { base: committed, set }
            });
        }
    }

    /// Notes a change that no out copy has.
    pub fn mark(&mut self, range: BlockRange) {
        self.sets.values_mut().for_each(|missing| missing.set.insert(range));
    }

    /// All sets by copy.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (CopyId, &Missing<C>)> {
        self.sets.iter().map(|(copy, missing)| (*copy, missing))
    }

    /// Puts back a set that was stored.
    pub fn insert(&mut self, copy: CopyId, missing: Missing<C>) {
        self.sets.insert(copy, missing);
    }

    /// What a copy misses, if it is out.
    pub fn get(&self, copy: CopyId) -> Option<&Missing<C>> {
        self.sets.get(&copy)
    }

    pub(crate) fn get_mut(&mut self, copy: CopyId) -> Option<&mut Missing<C>> {
        self.sets.get_mut(&copy)
    }
}

#[cfg(test)]
mod tests;
