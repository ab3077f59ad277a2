//! Drives: finding, adding, removing, giving them up.
//!
//! Invariants:
//! - a removal only says what is wanted: the coordinator moves the data away and deletes the record last;
//! - data is given up only when asked for by name, only with a drive that does not work, and such a drive is remembered:
//!   should it come back, it is not taken back with what it holds;
//! - every step leaves a state from which the removal can be repeated.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use coquina_base::{DriveId, Nearest, NodeId, VolumeId};
use coquina_cluster::{
    DriveRecord, DriveState, GroupRecord, MapView, OperationError, PoolId, VolumeRecord, VolumeState, Wanted,
    operation,
};

use super::{Catalogue, CatalogueError};
use crate::api::RemoveDrive;
use crate::ask::ask_nodes;
use crate::backend::{DriveSnapshot, NodeSnapshot};
use crate::view::node_name;

/// Digits of an identity that are enough to name something, if nothing else begins with them.
pub(super) const PREFIX_MIN: usize = 4;
/// How long it is waited until volumes and pools are gone that lose data.
const EMPTY_TIME_MAX: Duration = Duration::from_secs(20);

/// After so long it is asked again whether a drive is lost whose volumes are given up.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// What a removal of a drive does, or has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveRemoval {
    /// The drive as it was.
    pub drive: DriveRecord,
    /// Volumes that are removed with it, by name.
    pub volumes_lost: Vec<String>,
    /// The same by identity.
    pub volume_ids_lost: Vec<VolumeId>,
    /// Groups whose copy there has to be moved or made anew elsewhere first.
    pub groups_left: u64,
    /// For how long its node has been silent for the process that leads, if the drive is given up with a node that does not answer.
    pub silent_ms: Option<u64>,
}

impl Catalogue {
    /// The drive that a path, `NODE:PATH`, an identity or the beginning of one names. A path names the drive of this
    /// process's node first.
    pub fn find_drive(&self, text: &str) -> Result<DriveRecord, CatalogueError> {
        Ok(self.look_up(&|map| find(map, text, self.node).cloned())?.1)
    }

    /// Takes a drive out of the cluster, or says what that would do.
    pub fn remove_drive(&self, request: &RemoveDrive) -> Result<DriveRemoval, CatalogueError> {
        // What is given up is decided on what the store has now, not on what this process knows of it.
        if request.lose_data {
            self.map.read_again().map_err(CatalogueError::Change)?;
        }
        let (map, drive) = self.look_up(&|map| find(map, &request.drive, self.node).cloned())?;
        let id = drive.id;
        if request.cancel {
            match request.dry_run {
                true => drop(operation::want_drive(&map, id, Wanted::In)?),
                false => drop(self.change(&|map| Ok(operation::want_drive(map, id, Wanted::In)?))?),
            }
            let (volumes_lost, volume_ids_lost) = Default::default();
            return Ok(DriveRemoval {
                drive,
                volumes_lost,
                volume_ids_lost,
                groups_left: 0,
                silent_ms: None,
            });
        }
        let give_up = request.lost || request.lose_data;
        if give_up && drive.state == DriveState::Healthy {
            self.check_lost(&map, &drive)?;
        }
        let (volumes, pools) = loses(&map, |other| other.id == id);
        let names: Vec<String> = volumes.iter().map(|volume| volume.name.clone()).collect();
        if !pools.is_empty() && drive.state != DriveState::Healthy && !request.lose_data {
            return Err(CatalogueError::DriveLost { path: drive.path, volumes: names });
        }
        if let Some(agreed) = request.volumes.as_ref().filter(|_| request.lose_data) {
            let others = volumes.iter().filter(|volume| !agreed.contains(&volume.id));
            let others: Vec<String> = others.map(|volume| volume.name.clone()).collect();
            if !others.is_empty() {
                return Err(CatalogueError::OtherVolumesLost { path: drive.path, volumes: others });
            }
        }
        if !give_up {
            decide(&map, id, false)?;
            self.check_room_elsewhere(&map, &|other| other.id == id)?;
        }
        let groups_left = map.used_shards_of(id).map(|(_, groups)| groups.len() as u64).sum();
        let (volumes_lost, volume_ids_lost) = match request.lose_data {
            true => (names, volumes.iter().map(|volume| volume.id).collect()),
            false => Default::default(),
        };
        let silent_ms = match give_up && Some(drive.node) != self.node {
            true => self.leader_health().and_then(|health| {
                let is_silent = health.heard.is_none_or(|heard| !heard.contains(&drive.node));
                health.silent_ms.get(&drive.node).copied().filter(|_| is_silent)
            }),
            false => None,
        };
        let removal = DriveRemoval { drive, volumes_lost, volume_ids_lost, groups_left, silent_ms };
        if request.dry_run {
            if !request.lose_data {
                decide(&map, id, give_up)?;
            }
            return Ok(removal);
        }
        if request.lose_data {
            self.give_up_pools(&removal.drive, volumes, pools)?;
        }
        self.change(&|map| {
            let back = map.drive(id).filter(|now| give_up && has_come_back(&removal.drive, now));
            match back {
                Some(now) => Err(CatalogueError::DriveWorks { path: now.path.clone() }),
                None => Ok(decide(map, id, give_up)?),
            }
        })?;
        Ok(removal)
    }

    /// Gives a drive another share of the data.
    pub fn reweight_drive(&self, text: &str, weight: u64) -> Result<DriveRecord, CatalogueError> {
        let (map, drive) = self.look_up(&|map| find(map, text, self.node).cloned())?;
        if weight == 0 {
            operation::reweight_drive(&map, drive.id, weight)?;
            self.check_room_elsewhere(&map, &|other| other.id == drive.id)?;
        }
        let map = self.change(&|map| Ok(operation::reweight_drive(map, drive.id, weight)?))?;
        Ok(map.drive(drive.id).cloned().unwrap_or(drive))
    }

    /// Refuses to have more moved away than the drives that stay have room for, with what leaves already, as far as nodes say. A
    /// drive of which nothing is known counts as full. What leaves already is not asked about again.
    pub(super) fn check_room_elsewhere(
        &self,
        map: &MapView,
        leaves: &dyn Fn(&DriveRecord) -> bool,
    ) -> Result<(), CatalogueError> {
        let drives = || map.drives().map(|drive| &*drive.value);
        // From one that takes no changes or is missing nothing is moved: whether it is removed or not, its copies are made anew
        // elsewhere. And what groups have left behind is only deleted.
        let is_moved = |drive: &DriveRecord| {
            let begins = leaves(drive) && !leaves_already(map, drive);
            begins && drive.state == DriveState::Healthy && map.is_used(drive.id)
        };
        if !drives().any(is_moved) {
            return Ok(());
        }
        let mut snapshots: BTreeMap<NodeId, NodeSnapshot> =
            ask_nodes(map, self.node).into_iter().map(|(node, local)| (node, local.snapshot)).collect();
        snapshots.extend(self.node.map(|node| (node, self.backend.snapshot())));
        // The drives of a reactor that does not answer look empty.
        snapshots.retain(|_, snapshot| !snapshot.incomplete);
        let (mut moved_bytes, mut free_bytes, mut silent) = (0u64, 0u64, BTreeSet::new());
        for drive in drives() {
            // Of one that was given up nothing is moved, and what was made anew elsewhere counts there already.
            let is_given_up = drive.state == DriveState::GivenUp;
            let goes = leaves_already(map, drive) && !is_given_up && map.is_used(drive.id);
            let takes = takes_data(map, drive) && !leaves(drive) && drive.state != DriveState::Missing;
            if !(goes || takes || is_moved(drive)) {
                continue;
            }
            let snapshot = snapshots.get(&drive.node);
            if snapshot.is_none() {
                silent.insert(node_name(map, drive.node));
            }
            let live_bytes = snapshot.and_then(|snapshot| snapshot.drive(drive.id)).map(live_bytes);
            let live_bytes = live_bytes.unwrap_or(drive.capacity_bytes);
            if takes {
                free_bytes = free_bytes.saturating_add(drive.capacity_bytes.saturating_sub(live_bytes));
            } else {
                moved_bytes = moved_bytes.saturating_add(live_bytes);
            }
        }
        match moved_bytes <= free_bytes {
            true => Ok(()),
            false => {
                let silent = silent.into_iter().collect();
                Err(CatalogueError::NoRoomElsewhere { moved_bytes, free_bytes, silent })
            }
        }
    }

    /// Refuses if a drive is served, or may be: its node does not answer this process, and is not known to be silent.
    fn check_lost(&self, map: &MapView, drive: &DriveRecord) -> Result<(), CatalogueError> {
        let snapshot = match Some(drive.node) == self.node {
            true => Some(self.backend.snapshot()),
            false => ask_nodes(map, self.node).remove(&drive.node).map(|local| local.snapshot),
        };
        match snapshot {
            None => self.check_silent(map, drive.node),
            Some(snapshot) if snapshot.drive(drive.id).is_some() => {
                Err(CatalogueError::DriveWorks { path: drive.path.clone() })
            }
            Some(_) => Ok(()),
        }
    }

    /// The same of one that was lost a moment ago. What the map says of it is looked at with the change itself.
    fn check_still_lost(&self, drive: &DriveRecord) -> Result<(), CatalogueError> {
        let map = self.map();
        match map.drive(drive.id) {
            Some(now) if now.state == DriveState::Healthy => self.check_lost(&map, now),
            _ => Ok(()),
        }
    }

    /// Removes the volumes and pools that have lost data for good.
    fn give_up_pools(
        &self,
        drive: &DriveRecord,
        volumes: Vec<VolumeRecord>,
        pools: BTreeSet<PoolId>,
    ) -> Result<(), CatalogueError> {
        let mut checked = Instant::now();
        for volume in volumes {
            // Looked at again: it takes a while, and the drive or other copies may come back meanwhile. To ask a host that is off takes a second.
            if checked.elapsed() >= CHECK_INTERVAL {
                self.check_still_lost(drive)?;
                checked = Instant::now();
            }
            self.mark_removed(volume.id, &|map| {
                let (lost, _) = loses(map, |other| other.id == drive.id);
                let path = drive.path.clone();
                if map.drive(drive.id).is_some_and(|now| has_come_back(drive, now)) {
                    return Err(CatalogueError::DriveWorks { path });
                }
                match lost.iter().any(|other| other.id == volume.id) {
                    true => Ok(()),
                    false => Err(CatalogueError::NotLost { path, volume: volume.name.clone() }),
                }
            })?;
        }
        let emptying = || CatalogueError::DriveEmptying { path: drive.path.clone() };
        let volumes_gone = |map: &MapView| !map.volumes().any(|volume| pools.contains(&volume.value.pool));
        self.map.wait_for_map(EMPTY_TIME_MAX, volumes_gone).ok_or_else(emptying)?;
        for pool in &pools {
            self.change(&|map| match map.pool(*pool) {
                Some(_) => Ok(operation::remove_pool(map, *pool)?),
                None => Ok(None),
            })?;
        }
        let pools_gone = |map: &MapView| pools.iter().all(|pool| map.pool(*pool).is_none());
        self.map.wait_for_map(EMPTY_TIME_MAX, pools_gone).ok_or_else(emptying)?;
        Ok(())
    }
}

/// A drive that took no changes, or was missing, takes them again.
fn has_come_back(before: &DriveRecord, now: &DriveRecord) -> bool {
    before.state != DriveState::Healthy && now.state == DriveState::Healthy
}

fn decide(
    map: &MapView,
    id: DriveId,
    give_up: bool,
) -> Result<Option<coquina_cluster::Write>, OperationError> {
    match give_up {
        // The coordinator may have finished already.
        _ if map.drive(id).is_none() => Ok(None),
        true => operation::give_up_drive(map, id),
        false => operation::want_drive(map, id, Wanted::Removing),
    }
}

/// Active volumes and all pools of groups whose only good copies are on drives that are lost.
pub(super) fn loses(
    map: &MapView,
    lost: impl Fn(&DriveRecord) -> bool,
) -> (Vec<VolumeRecord>, BTreeSet<PoolId>) {
    let gone = |drive: &DriveRecord| lost(drive) || drive.state == DriveState::GivenUp;
    let is_lost =
        |group: &&GroupRecord| group.in_sync.iter().all(|shard| map.drive(shard.drive).is_none_or(gone));
    let pools: BTreeSet<PoolId> = map.groups().filter(is_lost).map(|group| group.pool).collect();
    let volumes = map.volumes().map(|volume| &*volume.value);
    let mut volumes: Vec<VolumeRecord> = volumes
        .filter(|volume| volume.state == VolumeState::Active && pools.contains(&volume.pool))
        .cloned()
        .collect();
    volumes.sort_by(|a, b| a.name.cmp(&b.name));
    (volumes, pools)
}

/// Whether a drive takes data, or will when it is back.
pub(crate) fn takes_data(map: &MapView, drive: &DriveRecord) -> bool {
    let node_wanted = map.node(drive.node).is_some_and(|node| node.wanted == Wanted::In);
    let state_good = matches!(drive.state, DriveState::Healthy | DriveState::Missing);
    drive.wanted == Wanted::In && node_wanted && state_good && drive.weight > 0
}

/// Whether a drive's data is being moved away already, or made anew elsewhere for good.
fn leaves_already(map: &MapView, drive: &DriveRecord) -> bool {
    let node_leaves = map.node(drive.node).is_none_or(|node| node.wanted == Wanted::Removing);
    drive.wanted == Wanted::Removing || node_leaves || drive.weight == 0
}

fn live_bytes(drive: &DriveSnapshot) -> u64 {
    drive.shards.iter().map(|shard| shard.stats.live_bytes).fold(0, u64::saturating_add)
}

/// The drive that a misspelt text may mean, in the form in which it was written: `NODE:PATH`, a path or an identity.
fn nearest(map: &MapView, text: &str) -> Nearest {
    let drives = || map.drives().map(|drive| &*drive.value);
    let names: Vec<String> = match (text.split_once(':').is_some(), text.contains('/')) {
        (true, _) => drives()
            .filter_map(|drive| Some(format!("{}:{}", map.node(drive.node)?.name, drive.path)))
            .collect(),
        (_, true) => drives().map(|drive| drive.path.clone()).collect(),
        _ => drives().map(|drive| drive.id.to_string()).collect(),
    };
    Nearest::of(text, names.iter().map(String::as_str))
}

fn find<'a>(map: &'a MapView, text: &str, own: Option<NodeId>) -> Result<&'a DriveRecord, CatalogueError> {
    let drives = || map.drives().map(|drive| &*drive.value);
    let by_path = |path: &str, node: Option<NodeId>| -> Vec<&DriveRecord> {
        drives().filter(|drive| drive.path == path && node.is_none_or(|node| drive.node == node)).collect()
    };
    let mut found = by_path(text, own.filter(|own| drives().any(|d| d.path == text && d.node == *own)));
    if found.is_empty()
        && let Some((node, path)) = text.split_once(':')
        && let Some(node) = map.node_by_name(node)
    {
        found = by_path(path, Some(node.id));
    }
    if found.is_empty() && text.len() >= PREFIX_MIN {
        let prefix = text.to_ascii_lowercase();
        found = drives().filter(|drive| drive.id.to_string().starts_with(&prefix)).collect();
    }
    match found.as_slice() {
        [] => Err(CatalogueError::DriveNotFound { text: text.to_owned(), nearest: nearest(map, text) }),
        [drive] => Ok(drive),
        several => Err(CatalogueError::DriveAmbiguous { text: text.to_owned(), count: several.len() }),
    }
}
