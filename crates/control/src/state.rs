//! The cluster map: everything that nodes must agree on, as plain records.
//!
//! Invariants, checked by [`ClusterMap::validate`] whenever a map comes from outside:
//! - layers and identities are unique and never reused: `layer_next` is above every layer in the map;
//! - two volumes that are not being removed never share a name;
//! - every placement names drives and shards that the map knows;
//! - a volume's size is a multiple of a block, above zero and at most [`VOLUME_BYTES_MAX`].

use std::collections::{BTreeMap, HashSet};

use coquina_base::{
    BLOCK_BYTES, CHUNK_BYTES, ClusterId, DriveId, LayerId, NodeId, VOLUME_BYTES_MAX, VolumeId, check_name,
};
use serde::{Deserialize, Serialize};

/// The newest format of records that this build writes and reads.
pub const FEATURE_LEVEL: u32 = 1;
/// Most placement groups of one volume.
pub const GROUPS_MAX: usize = 1 << 16;
/// Most shards of one drive.
pub const DRIVE_SHARDS_MAX: u32 = 1024;

/// A record and the revision of the map that wrote it last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versioned<T> {
    /// Revision of the map at the last change; what a compare-and-set compares.
    pub revision: u64,
    /// The record.
    #[serde(flatten)]
    pub value: T,
}

/// Everything that nodes must agree on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterMap {
    /// Grows by one with every change.
    pub revision: u64,
    /// What concerns the cluster as a whole.
    pub cluster: Versioned<ClusterRecord>,
    /// Nodes.
    pub nodes: BTreeMap<NodeId, Versioned<NodeRecord>>,
    /// Drives.
    pub drives: BTreeMap<DriveId, Versioned<DriveRecord>>,
    /// Volumes, those that are being removed included.
    pub volumes: BTreeMap<VolumeId, Versioned<VolumeRecord>>,
}

/// What concerns the cluster as a whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterRecord {
    /// The cluster.
    pub id: ClusterId,
    /// Nothing newer than this is written to drives or wires.
    pub feature_level: u32,
    /// The next layer to give out; a layer is never given out twice.
    pub layer_next: u64,
    /// The sum of volume sizes may be this many percent of the capacity.
    pub overcommit_percent: u32,
    /// Drives that were given up with data on them. One that comes back holds what nobody knows any more, so it is
    /// not taken back as it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub given_up_drives: Vec<DriveId>,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// The node.
    pub id: NodeId,
    /// Its name, for people.
    pub name: String,
}

/// What the operator wants of a drive, or what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DriveState {
    /// Takes new data.
    Healthy,
    /// Serves what it holds, takes no new volumes: a write failed.
    ReadOnly,
    /// Not there, or cannot be opened.
    Missing,
}

/// A drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveRecord {
    /// The drive.
    pub id: DriveId,
    /// The node that has it.
    pub node: NodeId,
    /// File or block device on that node.
    pub path: String,
    /// Size of the file or device.
    pub size_bytes: u64,
    /// What it can hold for users, all shards together.
    pub capacity_bytes: u64,
    /// Number of shards.
    pub shards: u32,
    /// What the operator wants of it, or what became of it.
    pub state: DriveState,
}

/// Where a volume is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VolumeState {
    /// Can be attached.
    Active,
    /// Its data is being deleted; its name is free again.
    Removing,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeRecord {
    /// The volume, whatever its name.
    pub id: VolumeId,
    /// Its name.
    pub name: String,
    /// Its size; a multiple of a block.
    pub size_bytes: u64,
    /// The layer that holds its data.
    pub layer: LayerId,
    /// When it was made, for display only.
    pub created_unix_ns: u64,
    /// Where it is in its life.
    pub state: VolumeState,
    /// Grows with every attachment that must fence the ones before.
    pub attach_generation: u64,
    /// A shrink whose data is not all deleted yet: the size that it shrank from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shrinking_from_bytes: Option<u64>,
    /// Where its chunks lie.
    pub placement: PlacementTable,
}

/// One shard of one drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ShardRef {
    /// The drive.
    pub drive: DriveId,
    /// The shard's number on it.
    pub shard: u32,
}

/// The placement groups of a volume and the shard that each lies on.
///
/// Written as the list of different shards and, per group, an index into it: a few hundred bytes of JSON.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PlacementTable {
    /// The shards used.
    pub shards: Vec<ShardRef>,
    /// Per group, the index of its shard in `shards`.
    pub groups: Vec<u16>,
}

impl PlacementTable {
    /// The group that a chunk belongs to.
    pub fn group_of_chunk(&self, chunk: u32) -> usize {
        assert!(!self.groups.is_empty(), "a placement has at least one group");
        chunk as usize % self.groups.len()
    }

    /// The shard that a group lies on.
    pub fn shard_of_group(&self, group: usize) -> ShardRef {
        self.shards[usize::from(self.groups[group])]
    }

    /// The shard that a chunk lies on.
    pub fn shard_of_chunk(&self, chunk: u32) -> ShardRef {
        self.shard_of_group(self.group_of_chunk(chunk))
    }

    /// Whether a group lies on the drive.
    pub fn is_on(&self, drive: DriveId) -> bool {
        self.shards.iter().any(|shard| shard.drive == drive)
    }

    /// How many groups lie on drives that `counts` names.
    pub fn groups_on(&self, counts: impl Fn(DriveId) -> bool) -> usize {
        self.groups.iter().filter(|index| counts(self.shards[usize::from(**index)].drive)).count()
    }

    /// What is left of it without a drive: only good for deleting what lies elsewhere, since chunks lose their places.
    pub fn without(&self, drive: DriveId) -> PlacementTable {
        let stays = |index: &u16| self.shards[usize::from(*index)].drive != drive;
        let shards: Vec<ShardRef> =
            self.shards.iter().copied().filter(|shard| shard.drive != drive).collect();
        let renumber = |index: &u16| {
            let shard = self.shards[usize::from(*index)];
            shards.iter().position(|other| *other == shard).unwrap_or(0) as u16
        };
        let groups = self.groups.iter().filter(|index| stays(index)).map(renumber).collect();
        PlacementTable { shards, groups }
    }
}

/// Why a map was refused: which record, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{record}: {reason}")]
pub struct InvalidMap {
    /// The record.
    pub record: String,
    /// What is wrong with it.
    pub reason: String,
}

fn invalid(record: impl std::fmt::Display, reason: impl Into<String>) -> InvalidMap {
    InvalidMap { record: record.to_string(), reason: reason.into() }
}

impl ClusterMap {
    /// A map of a new cluster with one node and nothing else.
    pub fn new(cluster: ClusterRecord, node: NodeRecord) -> Self {
        ClusterMap {
            revision: 1,
            cluster: Versioned { revision: 1, value: cluster },
            nodes: BTreeMap::from([(node.id, Versioned { revision: 1, value: node })]),
            drives: BTreeMap::new(),
            volumes: BTreeMap::new(),
        }
    }

    /// The volume of that name that is not being removed.
    pub fn volume_by_name(&self, name: &str) -> Option<&Versioned<VolumeRecord>> {
        self.volumes
            .values()
            .find(|volume| volume.value.name == name && volume.value.state == VolumeState::Active)
    }

    /// Bytes that all drives can hold for users.
    pub fn capacity_bytes(&self) -> u64 {
        self.drives.values().map(|drive| drive.value.capacity_bytes).fold(0, u64::saturating_add)
    }

    /// Sum of the sizes of the volumes that are not being removed.
    pub fn provisioned_bytes(&self) -> u64 {
        self.volumes
            .values()
            .filter(|volume| volume.value.state == VolumeState::Active)
            .map(|volume| volume.value.size_bytes)
            .fold(0, u64::saturating_add)
    }

    /// The most that volume sizes may add up to.
    pub fn provisionable_bytes(&self) -> u64 {
        self.provisionable_of(self.capacity_bytes())
    }

    fn provisionable_of(&self, capacity_bytes: u64) -> u64 {
        let bytes = u128::from(capacity_bytes) * u128::from(self.cluster.value.overcommit_percent) / 100;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// Whether a drive takes new data.
    pub fn takes_data(&self, drive: DriveId) -> bool {
        self.drives.get(&drive).is_some_and(|drive| drive.value.state == DriveState::Healthy)
    }

    /// What sizes may grow by, and what they may add up to, both on the drives that take new data.
    pub fn room_bytes(&self) -> (u64, u64) {
        let taking = self.drives.values().filter(|drive| drive.value.state == DriveState::Healthy);
        let capacity_bytes = taking.map(|drive| drive.value.capacity_bytes).fold(0, u64::saturating_add);
        let provisionable_bytes = self.provisionable_of(capacity_bytes);
        let share = |volume: &VolumeRecord| {
            let groups = volume.placement.groups.len().max(1) as u128;
            let here = volume.placement.groups_on(|drive| self.takes_data(drive)) as u128;
            u64::try_from((u128::from(volume.size_bytes) * here).div_ceil(groups)).unwrap_or(u64::MAX)
        };
        let active = self.volumes.values().filter(|volume| volume.value.state == VolumeState::Active);
        let provisioned_bytes = active.map(|volume| share(&volume.value)).fold(0, u64::saturating_add);
        (provisionable_bytes.saturating_sub(provisioned_bytes), provisionable_bytes)
    }

    /// The volumes that have a place on a drive, those that are being removed included, by name.
    pub fn volumes_on(&self, drive: DriveId) -> Vec<&Versioned<VolumeRecord>> {
        let on_it = self.volumes.values().filter(|volume| volume.value.placement.is_on(drive));
        let mut volumes: Vec<_> = on_it.collect();
        volumes.sort_by(|a, b| a.value.name.cmp(&b.value.name));
        volumes
    }

    /// Checks the invariants of a map that came from outside.
    pub fn validate(&self) -> Result<(), InvalidMap> {
        if self.cluster.value.id.0.is_nil() {
            return Err(invalid("cluster", "it has no identity"));
        }
        self.validate_revisions()?;
        for (id, node) in &self.nodes {
            if *id != node.value.id || id.0.is_nil() {
                return Err(invalid(format_args!("node {id}"), "its identity does not match its key"));
            }
        }
        for (id, drive) in &self.drives {
            self.validate_drive(*id, &drive.value)?;
        }
        let mut names = HashSet::new();
        let mut layers = HashSet::new();
        for (id, volume) in &self.volumes {
            let volume = &volume.value;
            self.validate_volume(*id, volume)?;
            if volume.state == VolumeState::Active && !names.insert(&volume.name) {
                return Err(invalid(format_args!("volume {id}"), "its name is given to two volumes"));
            }
            if !layers.insert(volume.layer) {
                return Err(invalid(format_args!("volume {id}"), "its layer is given to two volumes"));
            }
        }
        Ok(())
    }

    fn validate_revisions(&self) -> Result<(), InvalidMap> {
        let newest = std::iter::once(self.cluster.revision)
            .chain(self.nodes.values().map(|record| record.revision))
            .chain(self.drives.values().map(|record| record.revision))
            .chain(self.volumes.values().map(|record| record.revision))
            .max();
        if newest > Some(self.revision) {
            return Err(invalid("map", "a record is newer than the map"));
        }
        Ok(())
    }

    fn validate_drive(&self, id: DriveId, drive: &DriveRecord) -> Result<(), InvalidMap> {
        let record = format!("drive {id}");
        if id != drive.id || id.0.is_nil() {
            return Err(invalid(record, "its identity does not match its key"));
        }
        if !self.nodes.contains_key(&drive.node) {
            return Err(invalid(record, "its node is not in the map"));
        }
        if drive.shards == 0 || drive.shards > DRIVE_SHARDS_MAX {
            return Err(invalid(record, format!("it has {} shards", drive.shards)));
        }
        if drive.capacity_bytes > drive.size_bytes {
            return Err(invalid(record, "its capacity is above its size"));
        }
        Ok(())
    }

    fn validate_volume(&self, id: VolumeId, volume: &VolumeRecord) -> Result<(), InvalidMap> {
        let record = || format!("volume {id}");
        if id != volume.id || id.0.is_nil() {
            return Err(invalid(record(), "its identity does not match its key"));
        }
        check_name(&volume.name).map_err(|error| invalid(record(), error.to_string()))?;
        for size_bytes in [Some(volume.size_bytes), volume.shrinking_from_bytes].into_iter().flatten() {
            if size_bytes == 0 || size_bytes > VOLUME_BYTES_MAX || size_bytes % BLOCK_BYTES as u64 != 0 {
                return Err(invalid(record(), format!("its size is {size_bytes} bytes")));
            }
        }
        if volume.layer.0 == 0 || volume.layer.0 >= self.cluster.value.layer_next {
            return Err(invalid(record(), "its layer was never given out"));
        }
        let placement = &volume.placement;
        if placement.groups.is_empty() || placement.groups.len() > GROUPS_MAX {
            return Err(invalid(record(), format!("it has {} placement groups", placement.groups.len())));
        }
        if placement.groups.iter().any(|index| usize::from(*index) >= placement.shards.len()) {
            return Err(invalid(record(), "a placement group lies on no shard"));
        }
        for shard in &placement.shards {
            let known = self.drives.get(&shard.drive).is_some_and(|drive| shard.shard < drive.value.shards);
            if !known {
                return Err(invalid(
                    record(),
                    format!("drive {} shard {} is not in the map", shard.drive, shard.shard),
                ));
            }
        }
        Ok(())
    }
}

impl VolumeRecord {
    /// Number of chunks that its size covers.
    pub fn chunks(&self) -> u64 {
        self.size_bytes.div_ceil(CHUNK_BYTES)
    }
}
