//! Removing drives from the cluster.
//!
//! Invariants:
//! - a drive that works is removed only when no volume has a place on it;
//! - data on a missing drive is given up only when asked for by name, and such a drive is remembered: should it come
//!   back, it is not taken back with what it holds;
//! - every step leaves a state from which the removal can be repeated.

use coquina_base::DriveId;

use super::{Catalogue, CatalogueCore, CatalogueError};
use crate::coordinator::{Change, CoordinatorError, retry_conflicts};
use crate::state::{ClusterMap, ClusterRecord, DriveRecord, Versioned, VolumeRecord, VolumeState};

/// Digits of an identity that are enough to name a drive, if no other begins with them.
const PREFIX_MIN: usize = 4;

/// What a removal of a drive does, or has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveRemoval {
    /// The drive as it was.
    pub drive: DriveRecord,
    /// Volumes that are removed with it, by name.
    pub volumes_lost: Vec<String>,
}

impl Catalogue {
    /// The drive that a path, an identity or the beginning of one names.
    pub fn find_drive(&self, text: &str) -> Result<DriveRecord, CatalogueError> {
        find_drive(&self.map(), text).cloned()
    }

    /// Says what [`remove_drive`](Self::remove_drive) would do, or why it would refuse.
    pub fn plan_drive_removal(&self, id: DriveId, lose_data: bool) -> Result<DriveRemoval, CatalogueError> {
        self.core.plan_drive_removal(id, lose_data)
    }

    /// Forgets a drive and lets go of it. Refused while volumes have a place on it, unless it is missing and
    /// `lose_data` is given: those volumes are removed then.
    pub fn remove_drive(&self, id: DriveId, lose_data: bool) -> Result<DriveRemoval, CatalogueError> {
        let _guard = self.core.lock();
        let removal = self.core.plan_drive_removal(id, lose_data)?;
        let result = self.core.give_up_volumes(id).and_then(|()| self.core.forget_drive(id));
        // What other drives hold of removed volumes is deleted, however far this came.
        self.background.wake();
        result.map(|()| removal)
    }
}

impl CatalogueCore {
    fn plan_drive_removal(&self, id: DriveId, lose_data: bool) -> Result<DriveRemoval, CatalogueError> {
        let map = self.coordinator.map();
        let drive = &by_identity(&map, id)?.value;
        let path = || drive.path.clone();
        let snapshot = self.backend.snapshot();
        let served = snapshot.drive(id);
        let takes_deletes =
            served.is_some_and(|drive| drive.shards.iter().all(|shard| !shard.stats.poisoned));
        let (active, removing): (Vec<_>, Vec<_>) =
            map.volumes_on(id).into_iter().partition(|volume| volume.value.state == VolumeState::Active);
        let volumes: Vec<String> = active.iter().map(|volume| volume.value.name.clone()).collect();
        if served.is_some() && snapshot.drives.len() == 1 {
            return Err(CatalogueError::DriveLast { path: path() });
        }
        if served.is_some() && !volumes.is_empty() {
            return Err(CatalogueError::DriveInUse { path: path(), volumes });
        }
        if takes_deletes && !removing.is_empty() {
            return Err(CatalogueError::DriveEmptying { path: path() });
        }
        if !volumes.is_empty() && !lose_data {
            return Err(CatalogueError::DriveLost { path: path(), volumes });
        }
        Ok(DriveRemoval { drive: drive.clone(), volumes_lost: volumes })
    }

    /// Removes the volumes that have a place on a drive, and takes the drive out of what is left to delete of them.
    fn give_up_volumes(&self, id: DriveId) -> Result<(), CatalogueError> {
        let map = self.coordinator.map();
        let volumes = map.volumes_on(id);
        if volumes.is_empty() {
            return Ok(());
        }
        self.remember_given_up(id)?;
        for volume in volumes {
            if volume.value.state == VolumeState::Active {
                self.begin_removal(volume, false)?;
            }
            self.strip_placement(&volume.value, id)?;
        }
        Ok(())
    }

    fn strip_placement(&self, volume: &VolumeRecord, drive: DriveId) -> Result<(), CatalogueError> {
        let map = self.coordinator.map();
        let Some(Versioned { revision, value }) = map.volumes.get(&volume.id) else { return Ok(()) };
        let placement = value.placement.without(drive);
        let change = if placement.groups.is_empty() {
            Change::ForgetVolume(value.id)
        } else {
            Change::Volume(VolumeRecord { placement, ..value.clone() })
        };
        match self.coordinator.compare_and_set(Some(*revision), change) {
            // The background thread has just finished with it.
            Err(CoordinatorError::Conflict { .. })
                if !self.coordinator.map().volumes.contains_key(&volume.id) =>
            {
                Ok(())
            }
            result => Ok(result.map(drop)?),
        }
    }

    fn remember_given_up(&self, id: DriveId) -> Result<(), CoordinatorError> {
        retry_conflicts(|| {
            let map = self.coordinator.map();
            let mut cluster = ClusterRecord::clone(&map.cluster.value);
            if cluster.given_up_drives.contains(&id) {
                return Ok(());
            }
            cluster.given_up_drives.push(id);
            self.coordinator.compare_and_set(Some(map.cluster.revision), Change::Cluster(cluster)).map(drop)
        })
    }

    fn forget_drive(&self, id: DriveId) -> Result<(), CatalogueError> {
        // In this order: what is not in the map must not be held, or it could not be taken back.
        self.backend.drive_removed(id)?;
        retry_conflicts(|| match self.coordinator.map().drives.get(&id) {
            Some(drive) => {
                self.coordinator.compare_and_set(Some(drive.revision), Change::ForgetDrive(id)).map(drop)
            }
            None => Ok(()),
        })?;
        Ok(())
    }
}

fn by_identity(map: &ClusterMap, id: DriveId) -> Result<&Versioned<DriveRecord>, CatalogueError> {
    map.drives.get(&id).ok_or_else(|| CatalogueError::DriveNotFound { text: id.to_string() })
}

fn find_drive<'a>(map: &'a ClusterMap, text: &str) -> Result<&'a DriveRecord, CatalogueError> {
    let drives = || map.drives.values().map(|drive| &drive.value);
    let by_path: Vec<_> = drives().filter(|drive| drive.path == text).collect();
    let found = if by_path.is_empty() && text.len() >= PREFIX_MIN {
        let prefix = text.to_ascii_lowercase();
        drives().filter(|drive| drive.id.to_string().starts_with(&prefix)).collect()
    } else {
        by_path
    };
    match found.as_slice() {
        [] => Err(CatalogueError::DriveNotFound { text: text.to_owned() }),
        [drive] => Ok(drive),
        _ => Err(CatalogueError::DriveAmbiguous { text: text.to_owned(), count: found.len() }),
    }
}
