//! How much users can still write into each pool.

use std::collections::BTreeMap;

use coquina_cluster::{MapView, PoolId, ShardRef};

use crate::sample::Moment;

/// What users can still write into each pool, one copy. Data spreads over the groups of a pool evenly, so that the first shard that is
/// full ends it: each copy of a group there takes its share. Shards that do not answer, or take no changes, are left out, and so are pools
/// without any other. What other pools take meanwhile is not counted.
pub(super) fn available_bytes(map: &MapView, now: &Moment) -> BTreeMap<PoolId, u64> {
    let free = free_bytes(now);
    let mut copies: BTreeMap<(PoolId, ShardRef), u64> = BTreeMap::new();
    for group in map.groups() {
        for shard in group.intended() {
            *copies.entry((group.pool, *shard)).or_default() += 1;
        }
    }
    let mut available: BTreeMap<PoolId, u64> = BTreeMap::new();
    for ((id, shard), count) in copies {
        let (Some(pool), Some(free_bytes)) = (map.pool(id), free.get(&shard)) else { continue };
        let bytes = u128::from(*free_bytes) * u128::from(pool.group_count) / u128::from(count);
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        available.entry(id).and_modify(|least| *least = bytes.min(*least)).or_insert(bytes);
    }
    available
}

/// What users can still write on each shard that answers and takes changes.
fn free_bytes(now: &Moment) -> BTreeMap<ShardRef, u64> {
    let drives = now.nodes.values().flat_map(|local| &local.snapshot.drives);
    let shards = drives.flat_map(|drive| {
        let numbered = (0..).zip(&drive.shards).filter(|(_, shard)| !shard.stats.poisoned);
        numbered.map(move |(number, shard)| {
            let free_bytes = shard.stats.capacity_bytes.saturating_sub(shard.stats.live_bytes);
            (ShardRef { drive: drive.id, shard: number }, free_bytes)
        })
    });
    shards.collect()
}
