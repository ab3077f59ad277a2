//! Which blocks changed while a copy is out.

use std::collections::BTreeMap;

use coquina_base::LayerId;

use crate::types::{BlockRange, Config, CopyId};

/// A set of blocks. The engine keeps bitmaps per chunk; [`RangeSet`] is the plain form.
pub trait ChangedSet: Clone + Default {
    /// Adds all blocks of the range.
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

/// Runs of blocks by their start.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct RangeSet {
    /// (layer, chunk, first block) to the block after the last one; runs neither touch nor overlap.
    runs: BTreeMap<(LayerId, u32, u32), u32>,
}

impl RangeSet {
    /// The runs in order.
    pub fn ranges(&self) -> impl Iterator<Item = BlockRange> + '_ {
        self.runs.iter().map(|(&(layer, chunk, first), &end)| BlockRange {
            layer,
            chunk,
            first,
            count: end - first,
        })
    }

    /// The runs that touch or overlap the range, in order.
    fn touching(&self, range: BlockRange) -> Vec<BlockRange> {
        let (layer, chunk) = (range.layer, range.chunk);
        let from = self
            .runs
            .range((layer, chunk, 0)..=(layer, chunk, range.first))
            .next_back()
            .map_or(range.first, |(&(_, _, first), _)| first);
        self.runs
            .range((layer, chunk, from)..=(layer, chunk, range.end()))
            .map(|(&(_, _, first), &end)| BlockRange { layer, chunk, first, count: end - first })
            .filter(|run| run.end() >= range.first)
            .collect()
    }

    fn put(&mut self, range: BlockRange, first: u32, end: u32) {
        if first < end {
            self.runs.insert((range.layer, range.chunk, first), end);
        }
    }
}

impl ChangedSet for RangeSet {
    fn insert(&mut self, range: BlockRange) {
        if range.count == 0 {
            return;
        }
        if range.is_whole_layer() {
            // Of a deleted layer nothing but that is missed.
            self.runs.retain(|(layer, _, _), _| *layer != range.layer);
        }
        let (mut first, mut end) = (range.first, range.end());
        for run in self.touching(range) {
            self.runs.remove(&(run.layer, run.chunk, run.first));
            first = first.min(run.first);
            end = end.max(run.end());
        }
        self.put(range, first, end);
    }

    fn remove(&mut self, range: BlockRange) {
        for run in self.touching(range) {
            self.runs.remove(&(run.layer, run.chunk, run.first));
            self.put(range, run.first, run.end().min(range.first));
            self.put(range, run.first.max(range.end()), run.end());
        }
    }

    fn intersects(&self, range: BlockRange) -> bool {
        self.touching(range).iter().any(|run| run.intersects(&range))
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
        let mut first = range.first;
        for run in self.touching(range) {
            if run.first > first {
                gap(BlockRange { first, count: run.first.min(range.end()) - first, ..range });
            }
            first = first.max(run.end());
        }
        if first < range.end() {
            gap(BlockRange { first, count: range.end() - first, ..range });
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
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn range(first: u32, count: u32) -> BlockRange {
        BlockRange { layer: LayerId(1), chunk: 2, first, count }
    }

    #[test]
    fn behaves_like_a_plain_set() {
        let (mut set, mut plain, mut seed) = (RangeSet::default(), BTreeSet::new(), 1u64);
        for _ in 0..4000 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (first, count) = ((seed >> 33) as u32 % 40, (seed >> 50) as u32 % 7);
            if seed >> 63 == 0 {
                set.insert(range(first, count));
                plain.extend(first..first + count);
            } else {
                set.remove(range(first, count));
                plain.retain(|block| !(first..first + count).contains(block));
            }
            let blocks: BTreeSet<u32> = set.ranges().flat_map(|run| run.first..run.end()).collect();
            assert_eq!(blocks, plain);
            assert_eq!(set.intersects(range(10, 5)), plain.range(10..15).next().is_some());
            let mut gaps = BTreeSet::new();
            set.gaps(range(8, 20), |gap| gaps.extend(gap.first..gap.end()));
            assert_eq!(gaps, (8..28).filter(|block| !plain.contains(block)).collect());
            assert_eq!(set.first(3).map(|run| run.first), plain.first().copied());
        }
    }

    #[test]
    fn a_deletion_takes_the_place_of_all_else_of_its_layer() {
        let mut set = RangeSet::default();
        set.insert(range(0, 4));
        set.insert(BlockRange { layer: LayerId(2), ..range(7, 1) });
        set.insert(BlockRange::whole_layer(LayerId(1)));
        let left: Vec<_> = set.ranges().collect();
        let other = BlockRange { layer: LayerId(2), ..range(7, 1) };
        assert_eq!(left, [BlockRange::whole_layer(LayerId(1)), other]);
    }

    #[test]
    fn chunks_are_apart() {
        let mut set = RangeSet::default();
        set.insert(range(0, 4));
        assert!(!set.intersects(BlockRange { chunk: 3, ..range(0, 4) }));
        assert!(!set.intersects(BlockRange { layer: LayerId(2), ..range(0, 4) }));
    }
}
