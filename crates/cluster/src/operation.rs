//! What operators and starting nodes change: each a check against the map and one compare-and-set.
//!
//! None of these needs two keys to change together. Where two keys change, the order makes a crash in between harmless:
//! - **numbers** (layers, copies, pools with their groups) are claimed by a write of `cluster` first, and used after it is
//!   durable: a crash leaves numbers unused. None is given out twice, also not by a map that went back;
//! - **a node joins** before its drives are registered; **a drive** claims its copy numbers before its record is written;
//! - **a pool** is recorded as being created; the coordinator makes its groups and then says that it is complete;
//! - **a volume** is recorded after its layer was claimed, in a pool that is complete;
//! - **removals** only say what is wanted; the coordinator moves the data away and deletes the record last.
//!
//! A write rests on every record that would make it wrong if it changed meanwhile ([`Write::unchanged`]): a drive on its
//! node, a volume on its pool, the loss of a drive on the groups that it had and on who has them now.
//!
//! Names are unique by a check before the write. Two that take the same name at the same moment both pass it. Volumes and
//! pools are therefore written only by who was the last to claim a number. A node looks again after its write, on a map that
//! shows it: if another one was written before, it takes its own record back and is refused ([`withdraw_node`]). So one of two
//! stays, whoever has the lower identity. One that has a name keeps it, whatever else happened.

use std::collections::BTreeSet;
use std::sync::Arc;

use coquina_base::{ClusterId, DriveId, LayerId, NodeId, check_name};
use coquina_replication::GroupId;

use crate::coordinator::{UNCHANGED_MAX, Write, add_drive, empty_job, takes_data};
use crate::key::{BlockId, Key, PoolId};
use crate::map::{MapError, MapView};
use crate::placement::PlacementError;
use crate::record::{
    ClusterRecord, DriveRecord, DriveState, InvalidRecord, NUMBER_MAX, NodeRecord, NumberRange,
    POOL_GROUPS_MAX, PoolRecord, PoolState, Record, SKIPPED_RANGES_MAX, VersionRange, Versioned,
    VolumeRecord, VolumeState, Wanted, check_pool,
};

/// Why a change was refused. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OperationError {
    /// There is no map.
    #[error("{0}")]
    Map(#[from] MapError),
    /// A record would not be valid.
    #[error("{0}; correct it and try again")]
    Invalid(#[from] InvalidRecord),
    /// Another node has the name.
    #[error(
        "there is a node {name:?} already ({id}); start this one with another --name, or remove the other one first"
    )]
    NodeNameTaken {
        /// The name.
        name: String,
        /// Who has it.
        id: NodeId,
    },
    /// The node belongs to another cluster.
    #[error(
        "this node belongs to cluster {own}, and the store has cluster {found}; give the store of its own cluster, or an empty folder to join this one"
    )]
    OtherCluster {
        /// The node's cluster.
        own: ClusterId,
        /// The store's.
        found: ClusterId,
    },
    /// No version in common.
    #[error("this node speaks versions {}..={} and node {name:?} {}..={}; update them over a version that both speak", own.min, own.max, other.min, other.max)]
    VersionsApart {
        /// This node's.
        own: VersionRange,
        /// The other node's.
        other: VersionRange,
        /// Its name.
        name: String,
    },
    /// A new drive on a node that goes.
    #[error(
        "node {0:?} is being removed and takes no new drives; to keep it, `coquina node remove {0} --cancel` first"
    )]
    NodeLeaves(String),
    /// A drive that is to stay on a node that goes.
    #[error(
        "drive {drive} goes with its node {node:?}, which is being removed; to keep it, cancel that: `coquina node remove {node} \
         --cancel`"
    )]
    GoesWithNode {
        /// The drive.
        drive: DriveId,
        /// Its node's name.
        node: String,
    },
    /// Nothing of that identity or name.
    #[error("there is no {0}")]
    NotFound(String),
    /// A name is taken.
    #[error("{kind} {name:?} exists; choose another name, or remove it first")]
    NameTaken {
        /// Pool or volume.
        kind: &'static str,
        /// The name.
        name: String,
    },
    /// The drive was given up with data on it.
    #[error("drive {0} was given up: what it holds is old; format it anew to use it")]
    GivenUp(DriveId),
    /// The domain rule could not be kept without it.
    #[error("pool {pool:?} could not keep its copies apart: {source}")]
    Domains {
        /// The pool.
        pool: String,
        /// Why.
        source: PlacementError,
    },
    /// It has the only good copy of something.
    #[error(
        "{what} has the last good copy of {groups} placement group(s); bring it back, or wait until `coquina status` shows them recovered"
    )]
    LastGoodCopy {
        /// The drive or node.
        what: String,
        /// How many groups.
        groups: usize,
    },
    /// The pool is not complete, or goes.
    #[error("pool {0:?} is being created or removed; try again in a moment")]
    PoolNotReady(String),
    /// Volumes are in the pool.
    #[error("pool {pool:?} has {volumes} volume(s); remove them first")]
    PoolInUse {
        /// The pool.
        pool: String,
        /// How many.
        volumes: usize,
    },
    /// All numbers are given out.
    #[error("this cluster has given out all the numbers that it has for pools, volumes or copies")]
    NumbersUsedUp,
}

/// Pools whose numbers are left out by the first claim of a process: more than are made between two backups of a map.
const POOLS_SKIPPED: u32 = 8;

type Change = Result<Option<Write>, OperationError>;

fn write(map: &MapView, key: Key, record: Record) -> Change {
    record.check(&key)?;
    Ok(Some(Write::new(key, map.revision_of(&key), Some(record))))
}

/// A key with the revision at which it must stay.
fn as_it_is(map: &MapView, key: Key) -> (Key, u64) {
    (key, map.revision_of(&key))
}

fn cluster(map: &MapView) -> Result<&ClusterRecord, OperationError> {
    Ok(map.cluster().ok_or(MapError::Empty)?)
}

fn not_found(what: impl std::fmt::Display) -> OperationError {
    OperationError::NotFound(what.to_string())
}

fn counted_on(number: u64, by: u64) -> Result<u64, OperationError> {
    number.checked_add(by).filter(|next| *next <= NUMBER_MAX).ok_or(OperationError::NumbersUsedUp)
}

/// Claims the next layer, or the one that `floor` says if that is higher. Whoever claims one for the first time since it
/// started gives the time in milliseconds, so that no number comes again that a map gave out which is lost since; later ones
/// count on. The numbers in between are remembered as left out.
pub fn claim_layer(map: &MapView, floor: u64) -> Result<(LayerId, Write), OperationError> {
    let before = cluster(map)?;
    let layer = before.layer_next.max(floor);
    let layer_next = counted_on(layer, 1)?;
    let mut after = ClusterRecord { layer_next, ..before.clone() };
    skip(&mut after.layers_skipped, before.layer_next, layer);
    Ok((LayerId(layer), claim(map, after)))
}

/// Claims copy numbers for the shards of a new drive, none below `floor`: see [`claim_layer`]. Returns the first.
pub fn claim_copies(map: &MapView, shards: u32, floor: u64) -> Result<(u64, Write), OperationError> {
    let before = cluster(map)?;
    let copy_first = before.copy_next.max(floor);
    let copy_next = counted_on(copy_first, u64::from(shards))?;
    let after = ClusterRecord { copy_next, ..before.clone() };
    Ok((copy_first, claim(map, after)))
}

/// Claims a pool's number and its groups' numbers. Returns the pool and its first group. There are too few numbers of groups
/// for the time. So whoever claims one for the first time since it started leaves some out, which a map that is lost since may
/// have given out, unless there has never been a pool.
pub fn claim_pool(map: &MapView, is_first: bool) -> Result<(PoolId, GroupId, Write), OperationError> {
    let before = cluster(map)?;
    let leaves_out = is_first && before.pool_next > 1 && before.group_next < u32::MAX / 2;
    let skipped = if leaves_out { POOLS_SKIPPED } else { 0 };
    let used_up = OperationError::NumbersUsedUp;
    let group_first = before.group_next.checked_add(skipped * POOL_GROUPS_MAX).ok_or(used_up.clone())?;
    let pool = before.pool_next.checked_add(skipped).ok_or(used_up.clone())?;
    let group_next = group_first.checked_add(POOL_GROUPS_MAX).ok_or(used_up.clone())?;
    let pool_next = pool.checked_add(1).ok_or(used_up)?;
    let mut after = ClusterRecord { group_next, pool_next, ..before.clone() };
    skip(&mut after.groups_skipped, u64::from(before.group_next), u64::from(group_first));
    Ok((PoolId(pool), GroupId(group_first), claim(map, after)))
}

/// Remembers numbers that were left out, and forgets the oldest ones of too many.
fn skip(skipped: &mut Vec<NumberRange>, first: u64, end: u64) {
    if first < end {
        skipped.push(NumberRange { first, end });
        skipped.drain(..skipped.len().saturating_sub(SKIPPED_RANGES_MAX));
    }
}

/// Gives up what lies on drives of volumes and groups that the map lost when it went back: their numbers count as given out,
/// so that each node deletes what it has of them. `floor` as in [`claim_layer`].
pub fn forget_lost(map: &MapView, floor: u64) -> Change {
    let before = cluster(map)?;
    let layer_next = before.layer_next.max(floor);
    counted_on(layer_next, 1)?;
    let (layers_skipped, groups_skipped) = (Vec::new(), Vec::new());
    let after = ClusterRecord { layer_next, layers_skipped, groups_skipped, ..before.clone() };
    Ok((after != *before).then(|| claim(map, after)))
}

fn claim(map: &MapView, after: ClusterRecord) -> Write {
    Write::new(Key::Cluster, map.revision_of(&Key::Cluster), Some(Record::Cluster(after)))
}

/// Makes a cluster in an empty store.
pub fn create_cluster(id: ClusterId) -> Write {
    Write::new(Key::Cluster, 0, Some(Record::Cluster(ClusterRecord::new(id))))
}

/// Adds a node or brings its record up to date. `own` is the cluster that the node belongs to, if it belongs to one.
pub fn register_node(map: &MapView, own: Option<ClusterId>, node: &NodeRecord) -> Change {
    let found = cluster(map)?.id;
    if let Some(own) = own.filter(|own| *own != found) {
        return Err(OperationError::OtherCluster { own, found });
    }
    // Who has the name already takes it from nobody.
    let has_name = map.node(node.id).is_some_and(|present| present.name == node.name);
    if let Some(other) = others_of_name(map, node).next().filter(|_| !has_name) {
        return Err(OperationError::NodeNameTaken { name: node.name.clone(), id: other.value.id });
    }
    for other in map.nodes().filter(|other| other.value.id != node.id) {
        if !other.value.versions.overlaps(node.versions) {
            let (other_versions, name) = (other.value.versions, other.value.name.clone());
            return Err(OperationError::VersionsApart { own: node.versions, other: other_versions, name });
        }
    }
    let present = map.node(node.id);
    let wanted = present.map_or(node.wanted, |present| present.wanted);
    let record = NodeRecord { wanted, ..node.clone() };
    if present == Some(&record) { Ok(None) } else { write(map, Key::Node(node.id), Record::Node(record)) }
}

fn others_of_name<'a>(
    map: &'a MapView,
    node: &'a NodeRecord,
) -> impl Iterator<Item = &'a Versioned<Arc<NodeRecord>>> {
    map.nodes().filter(|other| other.value.name == node.name && other.value.id != node.id)
}

/// The second look of a node that has just taken a name, on a map that shows it: puts back what was `before` if another one was
/// written under that name earlier. Whoever was written later does the same, so that one stays. A new node has no drives yet.
pub fn withdraw_node(map: &MapView, id: NodeId, before: Option<&NodeRecord>) -> Change {
    let Some(node) = map.node(id) else { return Ok(None) };
    let key = Key::Node(id);
    let own_revision = map.revision_of(&key);
    let came_later = others_of_name(map, node).any(|other| other.revision < own_revision);
    Ok(came_later.then(|| Write::new(key, own_revision, before.cloned().map(Record::Node))))
}

/// Adds a drive, or brings node, path and sizes of one that is known up to date, also when it has moved to another node.
/// A new one needs copy numbers ([`claim_copies`]).
pub fn register_drive(map: &MapView, drive: &DriveRecord) -> Change {
    let node = map.node(drive.node).ok_or_else(|| not_found(format_args!("node {}", drive.node)))?;
    let present = map.drive(drive.id);
    // A node that goes is deleted when the map shows no drive of it: one that came after that would have none.
    let is_there = present.is_some_and(|present| present.node == drive.node);
    if node.wanted == Wanted::Removing && !is_there {
        return Err(OperationError::NodeLeaves(node.name.clone()));
    }
    let given_up = present.is_some_and(|present| present.state == DriveState::GivenUp);
    if given_up || cluster(map)?.given_up_drives.contains(&drive.id) {
        return Err(OperationError::GivenUp(drive.id));
    }
    let record = match present {
        // What the operator and the coordinator said of it stays.
        Some(present) => DriveRecord {
            weight: present.weight,
            copy_first: present.copy_first,
            shards: present.shards,
            state: present.state,
            wanted: present.wanted,
            dead_ms: present.dead_ms,
            ..drive.clone()
        },
        None => drive.clone(),
    };
    if present == Some(&record) {
        return Ok(None);
    }
    let change = write(map, Key::Drive(drive.id), Record::Drive(record))?;
    let unchanged = vec![as_it_is(map, Key::Node(drive.node))];
    Ok(change.map(|write| Write { unchanged, ..write }))
}

/// Adds a pool, with numbers from [`claim_pool`]. The coordinator makes its groups.
pub fn create_pool(map: &MapView, pool: &PoolRecord) -> Change {
    check_pool(pool).map_err(|reason| InvalidRecord { record: format!("pool {:?}", pool.name), reason })?;
    if map.pools().any(|other| other.value.name == pool.name) {
        return Err(OperationError::NameTaken { kind: "pool", name: pool.name.clone() });
    }
    check_domains(map, pool, |_| true)?;
    let record = PoolRecord { state: PoolState::Creating, ..pool.clone() };
    write(map, Key::Pool(pool.id), Record::Pool(record))
}

/// Takes a pool without volumes away.
pub fn remove_pool(map: &MapView, id: PoolId) -> Change {
    let pool = map.pool(id).ok_or_else(|| not_found(format_args!("pool {id}")))?;
    let in_pool = || map.volumes().map(|volume| &volume.value).filter(|volume| volume.pool == id);
    let active = in_pool().filter(|volume| volume.state == VolumeState::Active).count();
    // Those that are being removed have to be forgotten first, too.
    let volumes = if active > 0 { active } else { in_pool().count() };
    if volumes > 0 {
        return Err(OperationError::PoolInUse { pool: pool.name.clone(), volumes });
    }
    if pool.state == PoolState::Removing {
        return Ok(None);
    }
    let record = PoolRecord { state: PoolState::Removing, ..pool.clone() };
    write(map, Key::Pool(id), Record::Pool(record))
}

/// Adds a volume, with a layer from [`claim_layer`].
pub fn create_volume(map: &MapView, volume: &VolumeRecord) -> Change {
    let invalid = |reason: String| InvalidRecord { record: format!("volume {:?}", volume.name), reason };
    check_name(&volume.name).map_err(|error| invalid(error.to_string()))?;
    if map.volume_by_name(&volume.name).is_some() {
        return Err(OperationError::NameTaken { kind: "volume", name: volume.name.clone() });
    }
    let pool = map.pool(volume.pool).ok_or_else(|| not_found(format_args!("pool {}", volume.pool)))?;
    if pool.state != PoolState::Active {
        return Err(OperationError::PoolNotReady(pool.name.clone()));
    }
    let used = |other: &VolumeRecord| other.layer == volume.layer;
    if volume.layer.0 >= cluster(map)?.layer_next || map.volumes().any(|other| used(&other.value)) {
        return Err(invalid("its layer was not claimed for it".to_owned()).into());
    }
    let record = VolumeRecord { state: VolumeState::Active, ..volume.clone() };
    let change = write(map, Key::Volume(volume.id), Record::Volume(record))?;
    // The pool may be removed meanwhile, since nobody sees this volume in it yet.
    let unchanged = vec![as_it_is(map, Key::Pool(volume.pool))];
    Ok(change.map(|write| Write { unchanged, ..write }))
}

/// Gives a drive another weight.
pub fn reweight_drive(map: &MapView, id: DriveId, weight: u64) -> Change {
    let drive = known_drive(map, id)?;
    if weight == 0 {
        check_all_domains(map, |drive| drive.id != id)?;
    }
    change_drive(map, &DriveRecord { weight, ..drive.clone() })
}

/// Has a drive's data moved away, then the drive taken out; or, with [`Wanted::In`], has it stay after all.
pub fn want_drive(map: &MapView, id: DriveId, wanted: Wanted) -> Change {
    let drive = known_drive(map, id)?;
    if drive.state == DriveState::GivenUp && wanted == Wanted::In {
        return Err(OperationError::GivenUp(id));
    }
    let change = || change_drive(map, &DriveRecord { wanted, ..drive.clone() });
    if wanted == Wanted::Removing {
        check_leaving(map, &format!("drive {id}"), |other| other.id == id)?;
        return change();
    }
    if let Some(node) = map.node(drive.node).filter(|node| node.wanted == Wanted::Removing) {
        return Err(OperationError::GoesWithNode { drive: id, node: node.name.clone() });
    }
    let unchanged = vec![as_it_is(map, Key::Node(drive.node))];
    Ok(change()?.map(|write| Write { unchanged, ..write }))
}

/// Says that a drive is lost for good. Its copies are made anew elsewhere. Refused if it has the last good copy of
/// anything; the write holds only if nobody has taken others out of these groups meanwhile, or given them up.
pub fn give_up_drive(map: &MapView, id: DriveId) -> Change {
    let drive = known_drive(map, id)?;
    check_last_copies(map, &format!("drive {id}"), |other| other.id == id)?;
    let record = DriveRecord { state: DriveState::GivenUp, wanted: Wanted::Removing, ..drive.clone() };
    let change = change_drive(map, &record)?;
    let unchanged = good_copies_besides(map, id);
    Ok(change.map(|write| match unchanged.len() {
        0..=UNCHANGED_MAX => Write { unchanged, ..write },
        // Nothing that it rests on may be left out, so it rests on all copies of the cluster.
        _ => Write { copies_unchanged_since: Some(map.revision()), ..write },
    }))
}

/// Why a drive can be done without: the blocks of groups in which it is in sync, and for each of these groups another
/// drive in sync that is not given up. With their revisions.
fn good_copies_besides(map: &MapView, id: DriveId) -> Vec<(Key, u64)> {
    let mut keys = BTreeSet::new();
    for (shard, named) in map.used_shards_of(id) {
        let groups = named.iter().filter_map(|group| map.group(*group));
        for group in groups.filter(|group| group.in_sync.contains(&shard)) {
            keys.insert(Key::Groups(BlockId::of(group.id)));
            let is_good =
                |other: &DriveId| map.drive(*other).is_some_and(|drive| drive.state != DriveState::GivenUp);
            let others = group.in_sync.iter().map(|shard| shard.drive).filter(|other| *other != id);
            let others: Vec<DriveId> = others.filter(is_good).collect();
            // One is enough; one that is named already costs nothing.
            if !others.iter().any(|other| keys.contains(&Key::Drive(*other))) {
                keys.extend(others.first().map(|other| Key::Drive(*other)));
            }
        }
    }
    keys.into_iter().map(|key| as_it_is(map, key)).collect()
}

/// Has the data of all of a node's drives moved away, then the drives and the node taken out; or has it stay after all.
/// One write: the drives follow the node's record.
pub fn want_node(map: &MapView, id: NodeId, wanted: Wanted) -> Change {
    let node = map.node(id).ok_or_else(|| not_found(format_args!("node {id}")))?;
    if wanted == Wanted::Removing {
        check_leaving(map, &format!("node {:?}", node.name), |drive| drive.node == id)?;
    }
    let record = NodeRecord { wanted, ..node.clone() };
    if *node == record { Ok(None) } else { write(map, Key::Node(id), Record::Node(record)) }
}

fn known_drive(map: &MapView, id: DriveId) -> Result<&DriveRecord, OperationError> {
    map.drive(id).ok_or_else(|| not_found(format_args!("drive {id}")))
}

fn change_drive(map: &MapView, record: &DriveRecord) -> Change {
    if map.drive(record.id) == Some(record) {
        return Ok(None);
    }
    write(map, Key::Drive(record.id), Record::Drive(record.clone()))
}

/// Whether drives can be emptied: their copies have somewhere to go and somewhere to come from.
fn check_leaving(
    map: &MapView,
    what: &str,
    leaves: impl Fn(&DriveRecord) -> bool,
) -> Result<(), OperationError> {
    check_all_domains(map, |drive| !leaves(drive))?;
    // A drive that works is read from; one that does not cannot be emptied if it has the only good copy.
    check_last_copies(map, what, |drive| leaves(drive) && drive.state != DriveState::Healthy)
}

fn check_all_domains(map: &MapView, stays: impl Fn(&DriveRecord) -> bool) -> Result<(), OperationError> {
    for pool in map.pools().filter(|pool| pool.value.state != PoolState::Removing) {
        let checked = check_domains(map, &pool.value, &stays);
        // What lacks domains already and lacks no more without it is no reason to refuse.
        if checked.is_err() && domains(map, &pool.value, |_| true) != domains(map, &pool.value, &stays) {
            return checked;
        }
    }
    Ok(())
}

/// How many failure domains have drives that take data, or will when they are well again.
fn domains(map: &MapView, pool: &PoolRecord, stays: impl Fn(&DriveRecord) -> bool) -> usize {
    let well = |drive: &DriveRecord| match drive.state {
        DriveState::ReadOnly => DriveRecord { state: DriveState::Healthy, ..drive.clone() },
        _ => drive.clone(),
    };
    let drives = map.drives().filter(|drive| takes_data(map, &well(&drive.value)) && stays(&drive.value));
    let domains: BTreeSet<_> = drives.filter_map(|drive| map.domain_of(&drive.value, &pool.domain)).collect();
    domains.len()
}

fn check_domains(
    map: &MapView,
    pool: &PoolRecord,
    stays: impl Fn(&DriveRecord) -> bool,
) -> Result<(), OperationError> {
    let mut job = empty_job(pool);
    for drive in map.drives().filter(|drive| takes_data(map, &drive.value) && stays(&drive.value)) {
        add_drive(&mut job, map, pool, &drive.value);
    }
    job.check_domains().map_err(|source| OperationError::Domains { pool: pool.name.clone(), source })
}

fn check_last_copies(
    map: &MapView,
    what: &str,
    leaves: impl Fn(&DriveRecord) -> bool,
) -> Result<(), OperationError> {
    let lost = |drive: &DriveRecord| leaves(drive) || drive.state == DriveState::GivenUp;
    let mut groups = BTreeSet::new();
    for drive in map.drives().filter(|drive| leaves(&drive.value)) {
        for (shard, named) in map.used_shards_of(drive.value.id) {
            let records = named.iter().filter_map(|group| map.group(*group));
            let last = records.filter(|group| {
                group.in_sync.contains(&shard)
                    && group.in_sync.iter().all(|other| map.drive(other.drive).is_none_or(lost))
            });
            groups.extend(last.map(|group| group.id));
        }
    }
    if groups.is_empty() {
        return Ok(());
    }
    Err(OperationError::LastGoodCopy { what: what.to_owned(), groups: groups.len() })
}
