//! Groups to decide on, by the block in which they are written.

use std::collections::BTreeMap;

use coquina_replication::GroupId;

use crate::group::BLOCK_GROUPS;
use crate::key::BlockId;
use crate::map::MapView;

/// Groups by block, a bit for each.
#[derive(Debug, Default)]
pub(super) struct Dirty(pub(super) BTreeMap<BlockId, u64>);

pub(super) fn bit(group: GroupId) -> u64 {
    1 << (group.0 % BLOCK_GROUPS)
}

impl Dirty {
    pub(super) fn all(map: &MapView) -> Dirty {
        Dirty(map.blocks().map(|(block, _)| (block, !0)).collect())
    }

    pub(super) fn add(&mut self, group: GroupId) {
        *self.0.entry(BlockId::of(group)).or_default() |= bit(group);
    }

    pub(super) fn add_block(&mut self, block: BlockId) {
        self.0.insert(block, !0);
    }

    pub(super) fn extend(&mut self, other: Dirty) {
        for (block, groups) in other.0 {
            *self.0.entry(block).or_default() |= groups;
        }
    }
}
