//! The cluster map as one process sees it: all records, with the look-ups that nodes and clients need.
//!
//! Invariants:
//! - a view is never half-way: a revision of the store is applied whole or not at all;
//! - clones share what they have in common, so that an update costs what has changed and readers keep their view:
//!   `let mut next = (*view).clone(); next.apply(...)?; Arc::new(next)`;
//! - nothing goes backwards: not the revision, not a group's epoch, not the numbers given out. A store that does has
//!   lost changes (it was wiped, or restored from an old backup), and [`MapError::WentBack`] says so: I/O must be
//!   refused then, since other nodes may have acted on what was lost;
//! - the look-up tables (groups of a shard, drives of a node, names, copy numbers) follow from the records.

use std::collections::BTreeSet;
use std::sync::Arc;

use coquina_base::{ClusterId, DriveId, NodeId, VolumeId};
use coquina_replication::GroupId;

use crate::group::{GroupBlock, GroupRecord, ShardRef};
use crate::key::{BlockId, Key, PoolId};
use crate::record::{
    ClusterRecord, DriveRecord, InvalidRecord, NodeRecord, PoolRecord, Record, Versioned, VolumeRecord,
    VolumeState,
};
use crate::shelf::Shelf;

/// Why a change of the map was not taken over. After any of these nothing may be served by the map: what was served before
/// may contradict it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MapError {
    /// A record is not valid.
    #[error("the cluster map is damaged: {0}; restore the key from a backup of the store, or ask for help")]
    Invalid(#[from] InvalidRecord),
    /// The store knows less than before.
    #[error(
        "the store of the cluster map has lost changes: {what} was {seen} and is {now} now. It was wiped or restored \
         from an old backup, or the address is another cluster's. I/O is refused rather than answered wrongly: bring \
         back the newest state of the store"
    )]
    WentBack {
        /// What went backwards.
        what: String,
        /// The highest seen.
        seen: u64,
        /// What the store says.
        now: u64,
    },
    /// Another cluster's map.
    #[error(
        "the store holds the map of cluster {found}, this is cluster {expected}: give the right store's address"
    )]
    OtherCluster {
        /// The cluster that the caller belongs to.
        expected: ClusterId,
        /// The cluster that the store has.
        found: ClusterId,
    },
    /// There is no cluster.
    #[error("the store holds no cluster; make one first, or give the right store's address")]
    Empty,
}

impl MapError {
    fn went_back(what: impl Into<String>, seen: u64, now: u64) -> MapError {
        MapError::WentBack { what: what.into(), seen, now }
    }
}

/// What an update cost and concerned.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Applied {
    /// The keys that changed. Empty if the revision was known.
    pub keys: Vec<Key>,
    /// Groups of which anything changed, those that are gone included.
    pub groups: Vec<GroupId>,
    /// Entries of tables that were copied since an older view shares them.
    pub copied: usize,
}

/// The cluster map. See the head of the module.
#[derive(Clone, Debug, Default)]
pub struct MapView {
    pub(crate) revision: u64,
    /// The newest revision that is known to have changed the map. That of the store moves on without it, where others use that
    /// store, too.
    pub(crate) changed: u64,
    pub(crate) cluster: Option<Versioned<Arc<ClusterRecord>>>,
    pub(crate) nodes: Shelf<NodeId, Versioned<Arc<NodeRecord>>>,
    pub(crate) drives: Shelf<DriveId, Versioned<Arc<DriveRecord>>>,
    pub(crate) pools: Shelf<PoolId, Versioned<Arc<PoolRecord>>>,
    pub(crate) volumes: Shelf<VolumeId, Versioned<Arc<VolumeRecord>>>,
    pub(crate) blocks: Shelf<BlockId, Versioned<Arc<GroupBlock>>>,
    /// Groups that name a shard, as member or wanted, in order.
    pub(crate) shard_groups: Shelf<ShardRef, Arc<Vec<GroupId>>>,
    pub(crate) node_drives: Shelf<(NodeId, DriveId), ()>,
    pub(crate) volume_names: Shelf<(String, VolumeId), ()>,
    /// Drives by the copy number of their first shard.
    pub(crate) copies: Shelf<u64, DriveId>,
}

impl MapView {
    /// A view of everything that the store holds at a revision.
    pub fn load(records: Vec<(Key, u64, Record)>, revision: u64) -> Result<MapView, MapError> {
        let mut view = MapView::default();
        for (key, changed, record) in records {
            record.check(&key)?;
            view.put(key, changed, Some(record), &mut Applied::default());
            view.changed = view.changed.max(changed);
        }
        view.revision = revision;
        if view.cluster.is_none() {
            return Err(MapError::Empty);
        }
        view.check()?;
        Ok(view)
    }

    /// The view after everything was read again, as is due when a watch was lost. Refused if the store went backwards.
    pub fn reload(&self, records: Vec<(Key, u64, Record)>, revision: u64) -> Result<MapView, MapError> {
        if revision < self.revision {
            return Err(MapError::went_back("its revision", self.revision, revision));
        }
        let mut next = MapView::load(records, revision)?;
        next.changed = next.changed.max(self.changed);
        if let (Some(before), Some(after)) = (&self.cluster, &next.cluster) {
            check_cluster_step(&before.value, &after.value)?;
        }
        for (_, block) in self.blocks.iter() {
            for before in &block.value.groups {
                match next.group(before.id) {
                    Some(after) => check_group_step(before, after)?,
                    None => check_group_may_go(before, next.pool(before.pool))?,
                }
            }
        }
        Ok(next)
    }

    /// Applies all changes of one revision of the store; `None` deletes. A revision that is known already changes
    /// nothing. After an error the view is as it was.
    pub fn apply(&mut self, revision: u64, changes: Vec<(Key, Option<Record>)>) -> Result<Applied, MapError> {
        let mut applied = Applied::default();
        if revision <= self.revision {
            return Ok(applied);
        }
        for (key, record) in &changes {
            self.check_step(key, record.as_ref())?;
        }
        for (key, record) in changes {
            self.put(key, revision, record, &mut applied);
            self.changed = revision;
        }
        self.revision = revision;
        Ok(applied)
    }

    /// Checks a change against what is known.
    fn check_step(&self, key: &Key, record: Option<&Record>) -> Result<(), MapError> {
        if let Some(record) = record {
            record.check(key)?;
        }
        match (key, record) {
            (Key::Cluster, None) => Err(MapError::Empty),
            (Key::Cluster, Some(Record::Cluster(after))) => match &self.cluster {
                Some(before) => check_cluster_step(&before.value, after),
                None => Ok(()),
            },
            (Key::Groups(block), record) => {
                let Some(before) = self.block(*block) else { return Ok(()) };
                let after = match record {
                    Some(Record::Groups(after)) => Some(after),
                    _ => None,
                };
                before.value.groups.iter().try_for_each(|group| {
                    match after.and_then(|after| after.get(group.id)) {
                        Some(after) => check_group_step(group, after),
                        None => check_group_may_go(group, self.pool(group.pool)),
                    }
                })
            }
            _ => Ok(()),
        }
    }

    /// Puts a checked record into its table and brings the look-up tables up to it.
    fn put(&mut self, key: Key, revision: u64, record: Option<Record>, applied: &mut Applied) {
        applied.keys.push(key);
        applied.copied += match (key, record) {
            (Key::Cluster, Some(Record::Cluster(value))) => {
                self.cluster = Some(Versioned { revision, value: Arc::new(value) });
                0
            }
            (Key::Node(id), Some(Record::Node(value))) => self.nodes.set(id, versioned(revision, value)),
            (Key::Node(id), _) => self.nodes.set(id, None),
            (Key::Drive(id), Some(Record::Drive(value))) => self.put_drive(id, revision, Some(value)),
            (Key::Drive(id), _) => self.put_drive(id, revision, None),
            (Key::Pool(id), Some(Record::Pool(value))) => self.pools.set(id, versioned(revision, value)),
            (Key::Pool(id), _) => self.pools.set(id, None),
            (Key::Volume(id), Some(Record::Volume(value))) => self.put_volume(id, revision, Some(value)),
            (Key::Volume(id), _) => self.put_volume(id, revision, None),
            (Key::Groups(id), Some(Record::Groups(value))) => {
                self.put_block(id, revision, Some(value), applied)
            }
            (Key::Groups(id), _) => self.put_block(id, revision, None, applied),
            (Key::Cluster, _) => 0,
        };
    }

    fn put_drive(&mut self, id: DriveId, revision: u64, value: Option<DriveRecord>) -> usize {
        let before = self.drives.get(&id).map(|drive| (drive.value.node, drive.value.copy_first));
        let after = value.as_ref().map(|drive| (drive.node, drive.copy_first));
        let mut copied = 0;
        if before != after {
            if let Some((node, copy_first)) = before {
                copied += self.node_drives.set((node, id), None) + self.copies.set(copy_first, None);
            }
            if let Some((node, copy_first)) = after {
                copied += self.node_drives.set((node, id), Some(())) + self.copies.set(copy_first, Some(id));
            }
        }
        copied + self.drives.set(id, value.and_then(|value| versioned(revision, value)))
    }

    fn put_volume(&mut self, id: VolumeId, revision: u64, value: Option<VolumeRecord>) -> usize {
        let name_of = |volume: &VolumeRecord| {
            (volume.state == VolumeState::Active).then(|| (volume.name.clone(), volume.id))
        };
        let before = self.volumes.get(&id).and_then(|volume| name_of(&volume.value));
        let after = value.as_ref().and_then(name_of);
        let mut copied = 0;
        if before != after {
            copied += before.map_or(0, |name| self.volume_names.set(name, None));
            copied += after.map_or(0, |name| self.volume_names.set(name, Some(())));
        }
        copied + self.volumes.set(id, value.and_then(|value| versioned(revision, value)))
    }

    fn put_block(
        &mut self,
        id: BlockId,
        revision: u64,
        value: Option<GroupBlock>,
        applied: &mut Applied,
    ) -> usize {
        let before = self.blocks.get(&id).map(|block| block.value.clone());
        let mut copied = 0;
        let mut names = |group: GroupId, before: Option<&GroupRecord>, after: Option<&GroupRecord>| {
            if before == after {
                return;
            }
            applied.groups.push(group);
            let (before, after) =
                (before.map_or(Vec::new(), GroupRecord::named), after.map_or(Vec::new(), GroupRecord::named));
            for shard in before.iter().filter(|shard| !after.contains(shard)) {
                copied += set_group_of_shard(&mut self.shard_groups, *shard, group, false);
            }
            for shard in after.iter().filter(|shard| !before.contains(shard)) {
                copied += set_group_of_shard(&mut self.shard_groups, *shard, group, true);
            }
        };
        for group in before.iter().flat_map(|block| &block.groups) {
            names(group.id, Some(group), value.as_ref().and_then(|value| value.get(group.id)));
        }
        for group in value.iter().flat_map(|block| &block.groups) {
            if before.as_ref().is_none_or(|before| before.get(group.id).is_none()) {
                names(group.id, None, Some(group));
            }
        }
        copied + self.blocks.set(id, value.and_then(|value| versioned(revision, value)))
    }

    /// Checks what records must agree on. Costs a pass over the whole map.
    ///
    /// A group may name a shard that is not in the map (a drive that was removed while the group was changed): the
    /// coordinator takes such a member for dead. What lacks its node or pool is no damage either: see [`Self::orphans`].
    pub fn check(&self) -> Result<(), MapError> {
        let cluster = self.cluster();
        for (_, Versioned { value: drive, .. }) in self.drives.iter() {
            if cluster.is_some_and(|known| drive.copy_first + u64::from(drive.shards) > known.copy_next) {
                return Err(invalid(Key::Drive(drive.id), "its copy numbers were never given out"));
            }
        }
        let mut layers = BTreeSet::new();
        for (_, Versioned { value: volume, .. }) in self.volumes.iter() {
            let reason = if cluster.is_some_and(|known| volume.layer.0 >= known.layer_next) {
                "its layer was never given out"
            } else if !layers.insert(volume.layer) {
                "its layer is given to two volumes"
            } else {
                continue;
            };
            return Err(invalid(Key::Volume(volume.id), reason));
        }
        for (block, Versioned { value, .. }) in self.blocks.iter() {
            let is_strange =
                |group: &GroupRecord| self.pool(group.pool).is_some_and(|pool| !pool.has_group(group.id));
            if value.groups.iter().any(is_strange) {
                return Err(invalid(Key::Groups(*block), "a group is none of its pool's"));
            }
        }
        Ok(())
    }

    /// Records whose node or pool is not in the map, and what each lacks. Nothing writes any, but older versions could, and
    /// one of them must not keep all others from being used. They hold nothing that anybody can reach: a drive without a node
    /// takes no data, a volume or group without a pool cannot be opened. Costs a pass over the whole map.
    pub fn orphans(&self) -> Vec<(Key, &'static str)> {
        let drives = self.drives.iter().map(|(_, drive)| &drive.value);
        let drives = drives.filter(|drive| self.node(drive.node).is_none());
        let volumes = self.volumes.iter().map(|(_, volume)| &volume.value);
        let volumes = volumes.filter(|volume| self.pool(volume.pool).is_none());
        let lacks_pool =
            |block: &GroupBlock| block.groups.iter().any(|group| self.pool(group.pool).is_none());
        let blocks = self.blocks.iter().filter(|(_, block)| lacks_pool(&block.value));
        drives
            .map(|drive| (Key::Drive(drive.id), "its node is not in the map"))
            .chain(volumes.map(|volume| (Key::Volume(volume.id), "its pool is not in the map")))
            .chain(blocks.map(|(block, _)| (Key::Groups(*block), "its pool is not in the map")))
            .collect()
    }
}

fn versioned<T>(revision: u64, value: T) -> Option<Versioned<Arc<T>>> {
    Some(Versioned { revision, value: Arc::new(value) })
}

fn invalid(key: Key, reason: &str) -> MapError {
    InvalidRecord { record: key.to_string(), reason: reason.to_owned() }.into()
}

fn check_cluster_step(before: &ClusterRecord, after: &ClusterRecord) -> Result<(), MapError> {
    if before.id != after.id {
        return Err(MapError::OtherCluster { expected: before.id, found: after.id });
    }
    let numbers = [
        ("the next layer", before.layer_next, after.layer_next),
        ("the next group", u64::from(before.group_next), u64::from(after.group_next)),
        ("the next pool", u64::from(before.pool_next), u64::from(after.pool_next)),
        ("the next copy", before.copy_next, after.copy_next),
        ("the feature level", u64::from(before.feature_level), u64::from(after.feature_level)),
    ];
    match numbers.into_iter().find(|(_, seen, now)| now < seen) {
        Some((what, seen, now)) => Err(MapError::went_back(what, seen, now)),
        None => Ok(()),
    }
}

/// Epochs never fall, and one epoch has one configuration.
fn check_group_step(before: &GroupRecord, after: &GroupRecord) -> Result<(), MapError> {
    if after.epoch < before.epoch {
        return Err(MapError::went_back(
            format!("the epoch of group {}", before.id.0),
            before.epoch,
            after.epoch,
        ));
    }
    let same = before.in_sync == after.in_sync && before.others == after.others;
    if after.epoch == before.epoch && !same {
        let record = format!("group {}", before.id.0);
        let reason = format!("its epoch {} had other members before", after.epoch);
        return Err(InvalidRecord { record, reason }.into());
    }
    Ok(())
}

/// A group goes with its pool only.
fn check_group_may_go(before: &GroupRecord, pool: Option<&PoolRecord>) -> Result<(), MapError> {
    match pool {
        Some(pool) if pool.state != crate::record::PoolState::Removing => {
            Err(MapError::went_back(format!("the epoch of group {}", before.id.0), before.epoch, 0))
        }
        _ => Ok(()),
    }
}

fn set_group_of_shard(
    table: &mut Shelf<ShardRef, Arc<Vec<GroupId>>>,
    shard: ShardRef,
    group: GroupId,
    named: bool,
) -> usize {
    // Taken out of the table and put back, so that a list that nobody else has is changed in place.
    let mut list = table.get(&shard).cloned().unwrap_or_default();
    let copied = table.set(shard, None);
    let groups = Arc::make_mut(&mut list);
    match (groups.binary_search(&group), named) {
        (Err(index), true) => groups.insert(index, group),
        (Ok(index), false) => drop(groups.remove(index)),
        _ => {}
    }
    if !groups.is_empty() {
        table.set(shard, Some(list));
    }
    copied
}
