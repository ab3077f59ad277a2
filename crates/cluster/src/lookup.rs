//! What nodes and clients ask of the map.

use std::sync::Arc;

use coquina_base::{DriveId, NodeId, VolumeId};
use coquina_replication::{Config, CopyId, GroupId};

use crate::group::{GroupBlock, GroupRecord, ShardRef};
use crate::key::{BlockId, Key, PoolId};
use crate::map::MapView;
use crate::record::{
    ClusterRecord, DriveRecord, DriveState, NodeRecord, POOL_GROUPS_MAX, PoolRecord, Versioned, VolumeRecord,
};
use crate::stripe::group_of;

/// What copies of a block are kept apart by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Domain {
    /// A drive by itself.
    Drive(DriveId),
    /// A node by itself.
    Node(NodeId),
    /// What the operator called it.
    Named(String),
}

impl MapView {
    /// The store's revision up to which all changes are known.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The revision that changed a key last; 0 if the key does not exist.
    pub fn revision_of(&self, key: &Key) -> u64 {
        let revision = match key {
            Key::Cluster => self.cluster.as_ref().map(|record| record.revision),
            Key::Node(id) => self.nodes.get(id).map(|record| record.revision),
            Key::Drive(id) => self.drives.get(id).map(|record| record.revision),
            Key::Pool(id) => self.pools.get(id).map(|record| record.revision),
            Key::Volume(id) => self.volumes.get(id).map(|record| record.revision),
            Key::Groups(id) => self.blocks.get(id).map(|record| record.revision),
        };
        revision.unwrap_or(0)
    }

    /// The newest revision that wrote a drive or a block of groups that is there. Costs a pass over them.
    pub fn copies_written(&self) -> u64 {
        let drives = self.drives.iter().map(|(_, drive)| drive.revision);
        drives.chain(self.blocks.iter().map(|(_, block)| block.revision)).max().unwrap_or(0)
    }

    /// What concerns the cluster as a whole. `None` only in an empty view.
    pub fn cluster(&self) -> Option<&ClusterRecord> {
        self.cluster.as_ref().map(|cluster| &*cluster.value)
    }

    /// The same with its revision.
    pub fn cluster_versioned(&self) -> Option<&Versioned<Arc<ClusterRecord>>> {
        self.cluster.as_ref()
    }

    /// A node.
    pub fn node(&self, id: NodeId) -> Option<&NodeRecord> {
        self.nodes.get(&id).map(|node| &*node.value)
    }

    /// A drive.
    pub fn drive(&self, id: DriveId) -> Option<&DriveRecord> {
        self.drives.get(&id).map(|drive| &*drive.value)
    }

    /// A pool.
    pub fn pool(&self, id: PoolId) -> Option<&PoolRecord> {
        self.pools.get(&id).map(|pool| &*pool.value)
    }

    /// A volume.
    pub fn volume(&self, id: VolumeId) -> Option<&VolumeRecord> {
        self.volumes.get(&id).map(|volume| &*volume.value)
    }

    /// A block of groups with its revision.
    pub fn block(&self, id: BlockId) -> Option<&Versioned<Arc<GroupBlock>>> {
        self.blocks.get(&id)
    }

    /// A placement group.
    pub fn group(&self, id: GroupId) -> Option<&GroupRecord> {
        self.block(BlockId::of(id))?.value.get(id)
    }

    /// Whether a group went with its pool and never comes back. `false` where it may be newer than this map.
    ///
    /// A pool is recorded before its groups, and only while nobody has claimed numbers for another pool since it claimed its
    /// own (see [`operation`](crate::operation)). So once numbers behind the group's pool's were claimed, a pool that is not
    /// in the map was removed before, or never was. Of the pool that claimed last it cannot be said, nor of those whose numbers
    /// were left out: a map that is lost since may have had them.
    pub fn is_gone(&self, id: GroupId) -> bool {
        let number_of = |group: u32| group / POOL_GROUPS_MAX;
        let own = number_of(id.0);
        let is_past = self
            .cluster()
            .is_some_and(|cluster| own + 1 < number_of(cluster.group_next) && !cluster.has_skipped_group(id));
        let has_pool = || self.pools().any(|pool| number_of(pool.value.group_first.0) == own);
        is_past && self.group(id).is_none() && !has_pool()
    }

    /// All nodes in the order of their identities, with their revisions.
    pub fn nodes(&self) -> impl Iterator<Item = &Versioned<Arc<NodeRecord>>> {
        self.nodes.iter().map(|(_, node)| node)
    }

    /// All drives in the order of their identities, with their revisions.
    pub fn drives(&self) -> impl Iterator<Item = &Versioned<Arc<DriveRecord>>> {
        self.drives.iter().map(|(_, drive)| drive)
    }

    /// All pools, with their revisions.
    pub fn pools(&self) -> impl Iterator<Item = &Versioned<Arc<PoolRecord>>> {
        self.pools.iter().map(|(_, pool)| pool)
    }

    /// All volumes, those that are being removed included, with their revisions.
    pub fn volumes(&self) -> impl Iterator<Item = &Versioned<Arc<VolumeRecord>>> {
        self.volumes.iter().map(|(_, volume)| volume)
    }

    /// All blocks of groups, with their revisions.
    pub fn blocks(&self) -> impl Iterator<Item = (BlockId, &Versioned<Arc<GroupBlock>>)> {
        self.blocks.iter().map(|(id, block)| (*id, block))
    }

    /// The blocks of groups from one on.
    pub(crate) fn blocks_from(&self, first: BlockId) -> impl Iterator<Item = BlockId> {
        self.blocks.iter_from(&first).map(|(id, _)| *id)
    }

    /// All groups in order.
    pub fn groups(&self) -> impl Iterator<Item = &GroupRecord> {
        self.blocks.iter().flat_map(|(_, block)| &block.value.groups)
    }

    /// How many nodes and drives there are.
    pub fn counts(&self) -> (usize, usize) {
        (self.nodes.len(), self.drives.len())
    }

    /// The volume of that name that is not being removed. If two were made at the same time, the one of the lower
    /// identity has the name.
    pub fn volume_by_name(&self, name: &str) -> Option<&Versioned<Arc<VolumeRecord>>> {
        let from = (name.to_owned(), VolumeId::default());
        let ((found, id), ()) = self.volume_names.iter_from(&from).next()?;
        if found == name { self.volumes.get(id) } else { None }
    }

    /// The node of that name. If two took it at the same time, the one of the lower identity has it.
    pub fn node_by_name(&self, name: &str) -> Option<&NodeRecord> {
        self.nodes().map(|node| &*node.value).find(|node| node.name == name)
    }

    /// The pool of that name. If two were made at the same time, the one of the lower number has it.
    pub fn pool_by_name(&self, name: &str) -> Option<&PoolRecord> {
        self.pools().map(|pool| &*pool.value).find(|pool| pool.name == name)
    }

    /// The group of a chunk of a volume. `None` if the volume's pool or the group is not in the map (yet).
    pub fn locate(&self, volume: &VolumeRecord, chunk: u32) -> Option<&GroupRecord> {
        self.group(group_of(self.pool(volume.pool)?, volume.family, chunk))
    }

    /// Groups that name a shard as member or want a copy on it, in order.
    pub fn groups_on(&self, shard: ShardRef) -> &[GroupId] {
        self.shard_groups.get(&shard).map_or(&[], |groups| groups)
    }

    /// Whether any group names a shard of the drive.
    pub fn is_used(&self, drive: DriveId) -> bool {
        self.used_shards_of(drive).next().is_some()
    }

    /// Shards of a drive that groups name, with those groups.
    pub fn used_shards_of(&self, drive: DriveId) -> impl Iterator<Item = (ShardRef, &[GroupId])> {
        self.shard_groups
            .iter_from(&ShardRef { drive, shard: 0 })
            .take_while(move |(shard, _)| shard.drive == drive)
            .map(|(shard, groups)| (*shard, groups.as_slice()))
    }

    /// Shards that groups name, with those groups, in order.
    pub fn used_shards(&self) -> impl Iterator<Item = (ShardRef, &[GroupId])> {
        self.shard_groups.iter().map(|(shard, groups)| (*shard, groups.as_slice()))
    }

    /// Drives of a node, in the order of their identities.
    pub fn drives_of(&self, node: NodeId) -> impl Iterator<Item = &DriveRecord> {
        self.node_drives
            .iter_from(&(node, DriveId::default()))
            .map(|(key, ())| *key)
            .take_while(move |(owner, _)| *owner == node)
            .filter_map(|(_, drive)| self.drive(drive))
    }

    /// The shards of a drive.
    pub fn shards_of(&self, drive: &DriveRecord) -> impl Iterator<Item = ShardRef> + use<> {
        let id = drive.id;
        (0..drive.shards).map(move |shard| ShardRef { drive: id, shard })
    }

    /// The node that has a shard's drive.
    pub fn node_of(&self, shard: ShardRef) -> Option<NodeId> {
        self.drive(shard.drive).map(|drive| drive.node)
    }

    /// The number of the copy that a shard is, for the protocol of a group. `None` if there is no such shard.
    pub fn copy_of(&self, shard: ShardRef) -> Option<CopyId> {
        let drive = self.drive(shard.drive).filter(|drive| shard.shard < drive.shards)?;
        Some(CopyId(drive.copy_first + u64::from(shard.shard)))
    }

    /// The shard of a copy number.
    pub fn shard_of(&self, copy: CopyId) -> Option<ShardRef> {
        // The drive whose numbers begin at or before: the last one up to `copy`.
        let drive = self.copies.last_up_to(&copy.0).and_then(|id| self.drive(*id))?;
        let shard = u32::try_from(copy.0.checked_sub(drive.copy_first)?).ok()?;
        (shard < drive.shards).then_some(ShardRef { drive: drive.id, shard })
    }

    /// A group's configuration for its protocol. `None` if the group, its pool or a member is not in the map.
    pub fn config(&self, group: GroupId) -> Option<Config> {
        let record = self.group(group)?;
        let copies =
            |shards: &[ShardRef]| shards.iter().map(|shard| self.copy_of(*shard)).collect::<Option<_>>();
        Some(Config {
            epoch: record.epoch,
            in_sync: copies(&record.in_sync)?,
            others: copies(&record.others)?,
            min_copies: self.pool(record.pool)?.min_copies,
        })
    }

    /// The failure domain of a drive under a label. `None` if its node does not say; a node without the label `host` is
    /// a host by itself.
    pub fn domain_of(&self, drive: &DriveRecord, label: &str) -> Option<Domain> {
        match label {
            "drive" => Some(Domain::Drive(drive.id)),
            "node" => Some(Domain::Node(drive.node)),
            _ => match self.node(drive.node)?.domains.get(label) {
                Some(name) => Some(Domain::Named(name.clone())),
                None => (label == "host").then_some(Domain::Node(drive.node)),
            },
        }
    }

    /// Bytes that the drives can hold for users, all copies together; those that are missing or given up left out.
    pub fn capacity_bytes(&self) -> u64 {
        let is_there =
            |drive: &DriveRecord| matches!(drive.state, DriveState::Healthy | DriveState::ReadOnly);
        let there = self.drives().filter(|drive| is_there(&drive.value));
        there.map(|drive| drive.value.capacity_bytes).fold(0, u64::saturating_add)
    }

    /// Sum of the sizes of a pool's volumes that are not being removed, one copy.
    pub fn provisioned_bytes(&self, pool: PoolId) -> u64 {
        self.volumes()
            .filter(|volume| volume.value.pool == pool && volume.value.state == crate::VolumeState::Active)
            .map(|volume| volume.value.size_bytes)
            .fold(0, u64::saturating_add)
    }
}
