//! What lies on a shard for groups that have moved away is forgotten and trimmed, a little at a time. Groups that went with their
//! pool are forgotten, too; the blocks went with the volumes before.
//!
//! Invariants:
//! - a group is forgotten before the first of its blocks is trimmed, so that a copy that becomes a member again is known to
//!   have nothing;
//! - one that may be newer than the map is not forgotten.

use std::collections::BTreeSet;

use coquina_base::LayerId;
use coquina_cluster::{GroupId, MapView, POOL_GROUPS_MAX, group_of};

use crate::core::Core;

/// Pause between two rounds over all that lies on a shard.
const ROUND_NS: u64 = 5_000_000_000;
/// Chunks that are looked at in each step.
const LOOKED_AT_MAX: usize = 1024;
/// Chunks that are trimmed in each step.
const TRIMMED_MAX: usize = 16;

/// How far a shard's sweep is.
#[derive(Default)]
pub struct Sweep {
    /// Groups could not be opened when the map said so.
    pub reopen: bool,
    /// The map has changed since the last round began.
    pub is_due: bool,
    /// First groups of pools that were in a map that was followed before, and are gone since. No pool is made twice.
    pub removed_pools: BTreeSet<GroupId>,
    next_ns: u64,
    /// The layer and the chunk to go on with; no chunk behind the last one that a layer can have.
    at: Option<(LayerId, Option<u32>)>,
}

impl Sweep {
    /// Whether a group went with its pool, by this map or since an older one. One that the map does not have may be newer.
    pub fn is_gone(&self, map: &MapView, group: GroupId) -> bool {
        let first = GroupId(group.0 / POOL_GROUPS_MAX * POOL_GROUPS_MAX);
        map.is_gone(group) || (map.group(group).is_none() && self.removed_pools.contains(&first))
    }
}

/// The first groups of pools that an older map has and a newer one has not.
pub(crate) fn removed_pools(older: &MapView, newer: &MapView) -> Vec<GroupId> {
    let pools = older.pools().map(|pool| &pool.value);
    pools.filter(|pool| newer.pool(pool.id).is_none()).map(|pool| pool.group_first).collect()
}

impl Core {
    /// Takes a step of a shard's sweep.
    pub(crate) fn sweep(&mut self, slot: usize) {
        if std::mem::take(&mut self.shards[slot].sweep.reopen) {
            let map = self.map.clone();
            self.follow_groups(slot, &map);
        }
        let sweep = &self.shards[slot].sweep;
        if (sweep.at.is_none() && (!sweep.is_due || self.now_ns < sweep.next_ns)) || self.refused.is_some() {
            return;
        }
        if sweep.at.is_none() {
            let now_ns = self.now_ns;
            let sweep = &mut self.shards[slot].sweep;
            sweep.is_due = false;
            sweep.next_ns = now_ns + ROUND_NS;
            sweep.at = Some((LayerId(0), Some(0)));
            self.forget_groups(slot);
        }
        self.sweep_chunks(slot);
    }

    /// Forgets the groups that this copy is no member of, and those of pools that have been removed.
    fn forget_groups(&mut self, slot: usize) {
        let reference = self.shards[slot].reference;
        let mut is_complete = true;
        for number in self.shards[slot].copies().shard().group_numbers() {
            let group = self.map.group(GroupId(number));
            let is_gone = self.shards[slot].sweep.is_gone(&self.map, GroupId(number));
            // A group that the map does not have may be newer than the map.
            let is_member = group.is_none_or(|group| group.is_member(reference));
            if is_gone {
                is_complete &= self.on_shard(slot, |copies, now_ns, hands| {
                    copies.forget_removed_group(now_ns, number, hands)
                });
            } else if !is_member {
                is_complete &=
                    self.on_shard(slot, |copies, now_ns, hands| copies.forget_group(now_ns, number, hands));
            }
        }
        self.shards[slot].sweep.is_due |= !is_complete;
    }

    fn sweep_chunks(&mut self, slot: usize) {
        let reference = self.shards[slot].reference;
        let Some((mut layer, mut from)) = self.shards[slot].sweep.at else { return };
        let mut trimmed = 0;
        let mut known = None;
        for _ in 0..LOOKED_AT_MAX {
            let shard = self.shards[slot].copies().shard();
            let Some(chunk) = from.and_then(|from| shard.next_chunk(layer, from)) else {
                let layers = shard.layers();
                let Some(next) = layers.into_iter().find(|next| *next > layer) else {
                    self.shards[slot].sweep.at = None;
                    return;
                };
                (layer, from) = (next, Some(0));
                continue;
            };
            from = chunk.checked_add(1);
            // Layers that the map does not have go as a whole, or are newer than the map.
            if known.as_ref().is_none_or(|(of, _)| *of != layer) {
                known = Some((layer, self.volumes.of_layer(layer)));
            }
            let Some((_, Some((record, pool)))) = &known else { continue };
            let number = group_of(pool, record.family, chunk);
            let is_member = self.map.group(number).is_none_or(|group| group.is_member(reference));
            if is_member || self.shards[slot].copies().group(number.0).is_some() {
                continue;
            }
            self.on_shard(slot, |copies, now_ns, hands| copies.trim_chunk(now_ns, layer, chunk, hands));
            trimmed += 1;
            if trimmed == TRIMMED_MAX {
                break;
            }
        }
        self.shards[slot].sweep.at = Some((layer, from));
    }
}
