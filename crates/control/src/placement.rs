//! Spreads a volume's placement groups over shards by weight.
//!
//! Shares are as exact as whole groups allow (largest remainder), and every run of neighbouring groups is
//! spread as evenly as the whole, so that a small volume does not land on one shard.

use crate::state::{GROUPS_MAX, PlacementTable, ShardRef};

/// Placement groups of a volume, unless there are more shards than that.
const GROUPS_DEFAULT: usize = 128;

/// A shard and how much it can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WeightedShard {
    /// The shard.
    pub shard: ShardRef,
    /// What it can hold for users.
    pub capacity_bytes: u64,
}

/// Why nothing can be placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// There is no shard that takes new data.
    #[error("no healthy drive takes new volumes; `coquina status` says what is wrong with the drives")]
    NoShards,
    /// More shards than one volume can be spread over.
    #[error("a volume can be spread over at most {GROUPS_MAX} shards, there are {0}")]
    TooManyShards(usize),
}

/// Spreads groups over shards by capacity. `rotation` (such as the layer) says where to begin, so that the
/// first chunks of many volumes do not meet on one shard.
pub fn place(shards: &[WeightedShard], rotation: u64) -> Result<PlacementTable, PlacementError> {
    let usable: Vec<WeightedShard> =
        shards.iter().copied().filter(|shard| shard.capacity_bytes > 0).collect();
    if usable.is_empty() {
        return Err(PlacementError::NoShards);
    }
    if usable.len() >= GROUPS_MAX {
        return Err(PlacementError::TooManyShards(usable.len()));
    }
    let groups = GROUPS_DEFAULT.next_multiple_of(usable.len()).min(GROUPS_MAX);
    let quotas = quotas(&usable, groups);
    let mut order = interleave(&quotas, groups);
    order.rotate_left((rotation % groups as u64) as usize);
    Ok(PlacementTable { shards: usable.iter().map(|shard| shard.shard).collect(), groups: order })
}

/// How many groups each shard gets: at least one, in proportion otherwise.
fn quotas(shards: &[WeightedShard], groups: usize) -> Vec<usize> {
    let total: u128 = shards.iter().map(|shard| u128::from(shard.capacity_bytes)).sum();
    let share = |shard: &WeightedShard| u128::from(shard.capacity_bytes) * groups as u128;
    let mut quotas: Vec<usize> =
        shards.iter().map(|shard| ((share(shard) / total) as usize).max(1)).collect();
    let mut by_remainder: Vec<usize> = (0..shards.len()).collect();
    by_remainder.sort_by_key(|index| std::cmp::Reverse(share(&shards[*index]) % total));
    let mut position = 0;
    while quotas.iter().sum::<usize>() < groups {
        quotas[by_remainder[position % shards.len()]] += 1;
        position += 1;
    }
    while quotas.iter().sum::<usize>() > groups {
        let largest = (0..quotas.len()).max_by_key(|index| quotas[*index]).unwrap_or(0);
        quotas[largest] -= 1;
    }
    quotas
}

/// Smooth weighted round robin: each turn the shard that is furthest behind its share.
fn interleave(quotas: &[usize], groups: usize) -> Vec<u16> {
    let mut credit = vec![0i64; quotas.len()];
    (0..groups)
        .map(|_| {
            for (credit, quota) in credit.iter_mut().zip(quotas) {
                *credit += *quota as i64;
            }
            let next = (0..credit.len()).max_by_key(|index| (credit[*index], std::cmp::Reverse(*index)));
            let next = next.unwrap_or(0);
            credit[next] -= groups as i64;
            next as u16
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use coquina_base::{DriveId, Id128};

    use super::*;

    fn shards(capacities: &[u64]) -> Vec<WeightedShard> {
        capacities
            .iter()
            .enumerate()
            .map(|(index, capacity_bytes)| WeightedShard {
                shard: ShardRef { drive: DriveId(Id128([1; 16])), shard: index as u32 },
                capacity_bytes: *capacity_bytes,
            })
            .collect()
    }

    fn counts(table: &PlacementTable) -> Vec<usize> {
        let mut counts = vec![0; table.shards.len()];
        table.groups.iter().for_each(|index| counts[usize::from(*index)] += 1);
        counts
    }

    #[test]
    fn equal_shards_get_equal_shares_and_neighbours_differ() {
        let table = place(&shards(&[7, 7, 7]), 0).unwrap();
        assert_eq!(counts(&table), [43, 43, 43]);
        for window in table.groups.windows(3) {
            let mut window = window.to_vec();
            window.sort_unstable();
            assert_eq!(window, [0, 1, 2]);
        }
    }

    #[test]
    fn shares_follow_capacity_and_nobody_is_left_out() {
        assert_eq!(counts(&place(&shards(&[1 << 40, 3 << 40]), 0).unwrap()), [32, 96]);
        let counts = counts(&place(&shards(&[1, 1 << 40, 1 << 40, 0]), 0).unwrap());
        assert_eq!(counts.len(), 3);
        assert_eq!(counts[0], 1);
        assert_eq!(counts.iter().sum::<usize>(), 129);
    }

    #[test]
    fn more_shards_than_groups_and_none() {
        assert_eq!(counts(&place(&shards(&[5; 300]), 9).unwrap()), vec![1; 300]);
        assert_eq!(place(&shards(&[0, 0]), 0), Err(PlacementError::NoShards));
        assert_eq!(place(&[], 0), Err(PlacementError::NoShards));
    }

    #[test]
    fn rotation_moves_the_first_group() {
        let first = |rotation| place(&shards(&[1, 1]), rotation).unwrap().shard_of_chunk(0).shard;
        assert_ne!(first(0), first(1));
    }
}
