//! The keys of the store, each of which holds one record. Nothing else knows how they are written.
//!
//! | key | record |
//! |---|---|
//! | `cluster` | [`ClusterRecord`](crate::ClusterRecord) |
//! | `nodes/<32 hexadecimal digits>` | [`NodeRecord`](crate::NodeRecord) |
//! | `drives/<32 hexadecimal digits>` | [`DriveRecord`](crate::DriveRecord) |
//! | `pools/<8 hexadecimal digits>` | [`PoolRecord`](crate::PoolRecord) |
//! | `volumes/<32 hexadecimal digits>` | [`VolumeRecord`](crate::VolumeRecord) |
//! | `groups/<8 hexadecimal digits>` | [`GroupBlock`](crate::GroupBlock) of up to 64 groups |
//!
//! Whoever uses a store puts a prefix of the cluster before these.

use coquina_base::{DriveId, NodeId, VolumeId};
use coquina_replication::GroupId;
use serde::{Deserialize, Serialize};

use crate::group::BLOCK_GROUPS;

/// A pool. Given out from [`ClusterRecord::pool_next`](crate::ClusterRecord::pool_next), never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PoolId(pub u32);

impl std::fmt::Display for PoolId {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(formatter)
    }
}

/// The number of a block of groups.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct BlockId(pub u32);

impl BlockId {
    /// The block that holds a group.
    pub fn of(group: GroupId) -> BlockId {
        BlockId(group.0 / BLOCK_GROUPS)
    }

    /// The first group that belongs here.
    pub fn first(self) -> GroupId {
        GroupId(self.0.saturating_mul(BLOCK_GROUPS))
    }
}

/// The name of a record in the store.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Key {
    /// What concerns the cluster as a whole.
    Cluster,
    /// A node.
    Node(NodeId),
    /// A drive.
    Drive(DriveId),
    /// A pool.
    Pool(PoolId),
    /// A volume.
    Volume(VolumeId),
    /// A block of groups.
    Groups(BlockId),
}

impl Key {
    /// What the keys of all drives and of all blocks of groups begin with: all that says who has good copies.
    pub const COPIES_PREFIXES: [&str; 2] = ["drives/", "groups/"];
}

/// A key that is none of the cluster map's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "key {0:?} is none of the cluster map's; something else writes under its prefix, or a newer version does"
)]
pub struct UnknownKey(pub String);

impl std::fmt::Display for Key {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Key::Cluster => formatter.write_str("cluster"),
            Key::Node(id) => write!(formatter, "nodes/{id}"),
            Key::Drive(id) => write!(formatter, "drives/{id}"),
            Key::Pool(id) => write!(formatter, "pools/{:08x}", id.0),
            Key::Volume(id) => write!(formatter, "volumes/{id}"),
            Key::Groups(block) => write!(formatter, "groups/{:08x}", block.0),
        }
    }
}

impl std::str::FromStr for Key {
    type Err = UnknownKey;

    fn from_str(text: &str) -> Result<Key, UnknownKey> {
        let key = match text.split_once('/') {
            None if text == "cluster" => Some(Key::Cluster),
            Some(("nodes", id)) => id.parse().ok().map(Key::Node),
            Some(("drives", id)) => id.parse().ok().map(Key::Drive),
            Some(("pools", id)) => number(id).map(|id| Key::Pool(PoolId(id))),
            Some(("volumes", id)) => id.parse().ok().map(Key::Volume),
            Some(("groups", block)) => number(block).map(|block| Key::Groups(BlockId(block))),
            _ => None,
        };
        // One record has one key: other spellings of the same number are refused.
        key.filter(|key| key.to_string() == text).ok_or_else(|| UnknownKey(text.to_owned()))
    }
}

fn number(text: &str) -> Option<u32> {
    u32::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use coquina_base::Id128;

    use super::*;

    #[test]
    fn keys_are_read_back_as_written() {
        let id = Id128([0xab; 16]);
        let keys = [
            Key::Cluster,
            Key::Node(NodeId(id)),
            Key::Drive(DriveId(id)),
            Key::Pool(PoolId(7)),
            Key::Volume(VolumeId(id)),
            Key::Groups(BlockId(0x1_0000)),
        ];
        for key in keys {
            assert_eq!(key.to_string().parse(), Ok(key));
        }
        assert_eq!(Key::Groups(BlockId(0x1_0000)).to_string(), "groups/00010000");
        let of_copies = keys.iter().map(ToString::to_string);
        let of_copies =
            of_copies.filter(|key| Key::COPIES_PREFIXES.iter().any(|prefix| key.starts_with(prefix)));
        assert_eq!(of_copies.count(), 2);
    }

    #[test]
    fn other_keys_and_other_spellings_are_refused() {
        for text in ["", "cluster/", "nodes/1", "pools/7", "groups/0000000A", "groups/+000000a", "leader"] {
            assert_eq!(text.parse::<Key>(), Err(UnknownKey(text.to_owned())));
        }
    }
}
