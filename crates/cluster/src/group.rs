//! Placement groups as the map holds them: up to 64 in a record.
//!
//! Invariants, checked whenever a block comes from outside:
//! - a group is in the block that its number says, and blocks are in order of their groups;
//! - `in_sync` is never empty, no shard is twice a member, and `wanted` names no shard twice;
//! - epochs start at 1.

use coquina_base::DriveId;
use coquina_replication::GroupId;
use serde::{Deserialize, Serialize};

use crate::key::{BlockId, PoolId};
use crate::record::{COPIES_MAX, InvalidRecord, NUMBER_MAX};

/// Groups in one key of the store.
pub const BLOCK_GROUPS: u32 = 64;
/// Most members of a group: all copies that it has and all that it is to have.
pub const MEMBERS_MAX: usize = 2 * COPIES_MAX as usize + 8;

/// One shard of one drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ShardRef {
    /// The drive.
    pub drive: DriveId,
    /// The shard's number on it.
    pub shard: u32,
}

impl std::fmt::Display for ShardRef {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}.{}", self.drive, self.shard)
    }
}

impl std::str::FromStr for ShardRef {
    type Err = String;

    fn from_str(text: &str) -> Result<ShardRef, String> {
        let parse = || {
            let (drive, shard) = text.split_once('.')?;
            Some(ShardRef { drive: drive.parse().ok()?, shard: shard.parse().ok()? })
        };
        parse().ok_or_else(|| format!("{text:?} is not a shard: it is written DRIVE.NUMBER"))
    }
}

/// A placement group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupRecord {
    /// The group.
    #[serde(with = "group_number")]
    pub id: GroupId,
    /// Its pool.
    pub pool: PoolId,
    /// Number of this configuration; grows by one with every change of `in_sync` or `others`, and when the primary has asked
    /// for it.
    pub epoch: u64,
    /// Copies that have every committed change, the primary first. Never empty.
    #[serde(with = "shard_list")]
    pub in_sync: Vec<ShardRef>,
    /// Members that are out: absent, catching up or to come.
    #[serde(with = "shard_list", default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<ShardRef>,
    /// Where placement wants the copies, the primary first. Empty: as `in_sync` says. The epoch does not grow with it.
    #[serde(with = "shard_list", default, skip_serializing_if = "Vec::is_empty")]
    pub wanted: Vec<ShardRef>,
}

impl GroupRecord {
    /// The primary.
    pub fn primary(&self) -> Option<ShardRef> {
        self.in_sync.first().copied()
    }

    /// All members, those in sync first.
    pub fn members(&self) -> impl Iterator<Item = ShardRef> + '_ {
        self.in_sync.iter().chain(&self.others).copied()
    }

    /// All shards that the group names, members or wanted, each once.
    pub fn named(&self) -> Vec<ShardRef> {
        let mut named: Vec<ShardRef> = self.members().chain(self.wanted.iter().copied()).collect();
        named.sort_unstable();
        named.dedup();
        named
    }

    /// Where the copies are to be in the end.
    pub fn intended(&self) -> &[ShardRef] {
        if self.wanted.is_empty() { &self.in_sync } else { &self.wanted }
    }

    /// Whether the shard is a member.
    pub fn is_member(&self, shard: ShardRef) -> bool {
        self.in_sync.contains(&shard) || self.others.contains(&shard)
    }

    fn check(&self) -> Result<(), InvalidRecord> {
        let invalid = |reason: &str| {
            Err(InvalidRecord { record: format!("group {}", self.id.0), reason: reason.to_owned() })
        };
        if self.epoch == 0 {
            return invalid("its epoch is 0");
        }
        if self.epoch > NUMBER_MAX {
            return invalid("its epoch is no number that was counted");
        }
        if self.in_sync.is_empty() {
            return invalid("no copy is in sync");
        }
        if self.in_sync.len() + self.others.len() > MEMBERS_MAX || self.wanted.len() > COPIES_MAX as usize {
            return invalid("it has too many members");
        }
        let twice = |list: &[ShardRef]| (1..list.len()).any(|index| list[..index].contains(&list[index]));
        let members: Vec<ShardRef> = self.members().collect();
        if twice(&members) || twice(&self.wanted) {
            return invalid("a shard is named twice");
        }
        Ok(())
    }
}

/// The groups of one key.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GroupBlock {
    /// In the order of their numbers.
    pub groups: Vec<GroupRecord>,
}

impl GroupBlock {
    /// A group of this block.
    pub fn get(&self, id: GroupId) -> Option<&GroupRecord> {
        let index = self.groups.binary_search_by_key(&id, |group| group.id).ok()?;
        self.groups.get(index)
    }

    pub(crate) fn check(&self, block: BlockId) -> Result<(), InvalidRecord> {
        let invalid = |reason: &str| {
            Err(InvalidRecord { record: format!("block {} of groups", block.0), reason: reason.to_owned() })
        };
        if self.groups.iter().any(|group| BlockId::of(group.id) != block) {
            return invalid("it holds a group of another block");
        }
        if self.groups.windows(2).any(|pair| pair[0].id >= pair[1].id) {
            return invalid("its groups are not in order");
        }
        self.groups.iter().try_for_each(GroupRecord::check)
    }
}

/// A group's number as JSON.
pub(crate) mod group_number {
    use super::GroupId;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(group: &GroupId, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(group.0)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<GroupId, D::Error> {
        u32::deserialize(deserializer).map(GroupId)
    }
}

/// Shards as `DRIVE.NUMBER`: half as long as objects, and there may be a million of them.
mod shard_list {
    use super::ShardRef;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(list: &[ShardRef], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(list.iter().map(ToString::to_string))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<ShardRef>, D::Error> {
        let texts = Vec::<String>::deserialize(deserializer)?;
        texts.iter().map(|text| text.parse().map_err(D::Error::custom)).collect()
    }
}
