//! The volume catalogue: creating, resizing, renaming and removing volumes; removing drives is in [`drives`].
//!
//! Invariants:
//! - a layer is claimed durably before a volume is recorded with it, so that no crash gives it out twice;
//! - a shrink is recorded before data is cut off and is finished after a crash: growing again never shows
//!   what was cut off;
//! - a removal is recorded before data is deleted and is finished after a crash;
//! - calls to the node about one volume never overlap.

mod drives;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use coquina_base::{
    BLOCK_BYTES, LayerId, NameError, NodeId, SECTOR_BYTES, VOLUME_BYTES_MAX, VolumeId, check_name,
    format_size_bytes,
};

use crate::backend::{BackendError, NodeBackend};
use crate::background::Background;
use crate::coordinator::{Change, Coordinator, CoordinatorError, retry_conflicts};
use crate::placement::{PlacementError, WeightedShard, place};
use crate::random::random_id;
use crate::state::{ClusterMap, ClusterRecord, DriveState, ShardRef, Versioned, VolumeRecord, VolumeState};

/// Why a volume could not be made or changed. Nothing was changed, unless the message says so.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// The name breaks the rule for names.
    #[error("{0}")]
    Name(#[from] NameError),
    /// There is a volume of that name.
    #[error("volume {name:?} exists; choose another name, or remove or rename it first")]
    Duplicate {
        /// The name.
        name: String,
    },
    /// There is no volume of that name.
    #[error("no volume {name:?}; `coquina volume list` shows what there is")]
    NotFound {
        /// The name.
        name: String,
    },
    /// A volume needs at least one block.
    #[error("a volume of size 0 holds nothing; give a size above zero, such as 10G")]
    SizeZero,
    /// Not a multiple of a sector.
    #[error(
        "{size_bytes} bytes is not a multiple of {SECTOR_BYTES}; give whole sectors, or a suffix such as M or G"
    )]
    SizeUnaligned {
        /// The size asked for.
        size_bytes: u64,
    },
    /// More than any volume can have.
    #[error(
        "{} is more than a volume can have, which is {}",
        format_size_bytes(*size_bytes),
        format_size_bytes(VOLUME_BYTES_MAX)
    )]
    SizeTooLarge {
        /// The size asked for.
        size_bytes: u64,
    },
    /// More than the drives can hold.
    #[error(
        "{} does not fit: {} of {} are left for volumes; give a smaller size, add a drive with --drive, or \
         allow sizes to add up to more than the drives hold with `coquina up --overcommit F` (now {}.{:02})",
        format_size_bytes(*asked_bytes),
        format_size_bytes(*left_bytes),
        format_size_bytes(*provisionable_bytes),
        overcommit_percent / 100,
        overcommit_percent % 100
    )]
    NoRoom {
        /// What the change would add.
        asked_bytes: u64,
        /// What is left.
        left_bytes: u64,
        /// What volume sizes may add up to.
        provisionable_bytes: u64,
        /// The setting in force.
        overcommit_percent: u32,
    },
    /// Shrinking cuts data off and was not confirmed.
    #[error(
        "volume {name:?} would shrink from {} to {}, and the data beyond is lost; confirm it with --yes",
        format_size_bytes(*from_bytes),
        format_size_bytes(*to_bytes)
    )]
    ShrinkNotConfirmed {
        /// The volume.
        name: String,
        /// Its size.
        from_bytes: u64,
        /// The size asked for.
        to_bytes: u64,
    },
    /// Data of an earlier shrink is still being deleted.
    #[error("data that volume {name:?} lost when it shrank is still being deleted; try again in a moment")]
    Shrinking {
        /// The volume.
        name: String,
    },
    /// The volume has connections.
    #[error(
        "volume {name:?} is in use by {connections} connection(s); disconnect them, or remove it all the same with \
         `coquina volume remove {name} --force`"
    )]
    Attached {
        /// The volume.
        name: String,
        /// How many.
        connections: u64,
    },
    /// There is no such drive.
    #[error("no drive {text:?}; `coquina drive list` shows identities and paths")]
    DriveNotFound {
        /// As asked for.
        text: String,
    },
    /// The beginning of more than one identity.
    #[error("{text:?} is the beginning of {count} drives; give more of the identity, or the path")]
    DriveAmbiguous {
        /// As asked for.
        text: String,
        /// How many.
        count: usize,
    },
    /// Volumes have data on a drive that works.
    #[error(
        "drive {path} has data of {}; remove {} first",
        names(volumes),
        if volumes.len() == 1 { "that volume" } else { "those volumes" }
    )]
    DriveInUse {
        /// Its path.
        path: String,
        /// The volumes.
        volumes: Vec<String>,
    },
    /// Volumes have data on a drive that is missing.
    #[error(
        "drive {path} is missing and has data of {}; bring it back, or give it up with --lose-data: {} removed then, \
         with what other drives hold of {}",
        names(volumes),
        if volumes.len() == 1 { "that volume is" } else { "those volumes are" },
        if volumes.len() == 1 { "it" } else { "them" }
    )]
    DriveLost {
        /// Its path.
        path: String,
        /// The volumes.
        volumes: Vec<String>,
    },
    /// Data of removed volumes is still being deleted from a drive.
    #[error("data of removed volumes is still being deleted from drive {path}; try again in a moment")]
    DriveEmptying {
        /// Its path.
        path: String,
    },
    /// A server needs a drive.
    #[error("drive {path} is the only one that works; add another with `coquina up --drive` first")]
    DriveLast {
        /// Its path.
        path: String,
    },
    /// No drive takes new volumes.
    #[error("{0}")]
    Placement(#[from] PlacementError),
    /// The cluster state could not be changed.
    #[error("{0}")]
    Coordinator(#[from] CoordinatorError),
    /// The node could not follow. The change is recorded, and takes effect with a restart at the latest.
    #[error("{0}")]
    Backend(#[from] BackendError),
    /// The operating system gave no randomness.
    #[error("cannot make an identity: {0}")]
    Random(std::io::Error),
}

pub use drives::DriveRemoval;

/// How to remove a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoveOptions {
    /// Remove it although it has connections; they are dropped.
    pub force: bool,
}

/// Makes, changes and removes volumes.
pub struct Catalogue {
    core: Arc<CatalogueCore>,
    background: Background,
}

/// What the catalogue shares with its background thread.
pub(crate) struct CatalogueCore {
    coordinator: Arc<dyn Coordinator>,
    backend: Arc<dyn NodeBackend>,
    /// Held through every operation, so that calls to the node never overlap.
    operations: Mutex<()>,
}

impl Catalogue {
    /// Takes up work that an earlier run left (removals, shrinks) in a background thread.
    pub fn start(
        coordinator: Arc<dyn Coordinator>,
        backend: Arc<dyn NodeBackend>,
    ) -> std::io::Result<Catalogue> {
        let core = Arc::new(CatalogueCore { coordinator, backend, operations: Mutex::new(()) });
        let background = Background::start(core.clone())?;
        Ok(Catalogue { core, background })
    }

    /// The cluster map.
    pub fn map(&self) -> Arc<ClusterMap> {
        self.core.coordinator.map()
    }

    /// The node that this process is.
    pub fn node_id(&self) -> NodeId {
        self.core.coordinator.node_id()
    }

    /// The node.
    pub fn backend(&self) -> &Arc<dyn NodeBackend> {
        &self.core.backend
    }

    /// Makes a volume. The size must be a multiple of 512 and is rounded up to whole blocks of 4 KiB.
    pub fn create(&self, name: &str, size_bytes: u64) -> Result<VolumeRecord, CatalogueError> {
        check_name(name)?;
        let size_bytes = check_volume_size(size_bytes)?;
        let _guard = self.core.lock();
        let map = self.map();
        if map.volume_by_name(name).is_some() {
            return Err(CatalogueError::Duplicate { name: name.to_owned() });
        }
        check_room(&map, size_bytes)?;
        let shards = weighted_shards(&map);
        place(&shards, 0)?;
        let layer = self.core.claim_layer()?;
        let volume = VolumeRecord {
            id: VolumeId(random_id().map_err(CatalogueError::Random)?),
            name: name.to_owned(),
            size_bytes,
            layer,
            created_unix_ns: unix_now_ns(),
            state: VolumeState::Active,
            attach_generation: 1,
            shrinking_from_bytes: None,
            placement: place(&shards, layer.0)?,
        };
        self.core.coordinator.compare_and_set(None, Change::Volume(volume.clone()))?;
        self.core.backend.volume_opened(&volume)?;
        Ok(volume)
    }

    /// All volumes by name, those that are being removed included.
    pub fn list(&self) -> Vec<VolumeRecord> {
        let map = self.map();
        let mut volumes: Vec<_> = map.volumes.values().map(|volume| volume.value.clone()).collect();
        volumes.sort_by(|a, b| a.name.cmp(&b.name).then(a.layer.cmp(&b.layer)));
        volumes
    }

    /// One volume.
    pub fn info(&self, name: &str) -> Result<VolumeRecord, CatalogueError> {
        Ok(find(&self.map(), name)?.value)
    }

    /// Grows or shrinks a volume; shrinking needs `allow_shrink`. Rounds like [`create`](Self::create).
    pub fn resize(
        &self,
        name: &str,
        size_bytes: u64,
        allow_shrink: bool,
    ) -> Result<VolumeRecord, CatalogueError> {
        let size_bytes = check_volume_size(size_bytes)?;
        let _guard = self.core.lock();
        let map = self.map();
        let Versioned { revision, mut value } = find(&map, name)?;
        let from_bytes = value.size_bytes;
        if size_bytes == from_bytes {
            return Ok(value);
        }
        let shrinks = size_bytes < from_bytes;
        if shrinks && !allow_shrink {
            let name = name.to_owned();
            return Err(CatalogueError::ShrinkNotConfirmed { name, from_bytes, to_bytes: size_bytes });
        }
        if !shrinks && value.shrinking_from_bytes.is_some() {
            return Err(CatalogueError::Shrinking { name: name.to_owned() });
        }
        if !shrinks {
            check_room(&map, size_bytes - from_bytes)?;
        }
        value.size_bytes = size_bytes;
        if shrinks {
            value.shrinking_from_bytes =
                Some(value.shrinking_from_bytes.unwrap_or(from_bytes).max(from_bytes));
        }
        self.core.coordinator.compare_and_set(Some(revision), Change::Volume(value.clone()))?;
        self.core.backend.volume_changed(&value)?;
        if shrinks && self.core.finish_shrink(value.id).is_err() {
            self.background.wake();
        }
        Ok(find(&self.map(), name)?.value)
    }

    /// Gives a volume another name. Connections stay.
    pub fn rename(&self, name: &str, new_name: &str) -> Result<VolumeRecord, CatalogueError> {
        check_name(new_name)?;
        let _guard = self.core.lock();
        let map = self.map();
        let Versioned { revision, mut value } = find(&map, name)?;
        if name == new_name {
            return Ok(value);
        }
        if map.volume_by_name(new_name).is_some() {
            return Err(CatalogueError::Duplicate { name: new_name.to_owned() });
        }
        value.name = new_name.to_owned();
        self.core.coordinator.compare_and_set(Some(revision), Change::Volume(value.clone()))?;
        self.core.backend.volume_changed(&value)?;
        Ok(value)
    }

    /// Removes a volume. Its name is free when this returns; its space is freed in the background.
    pub fn remove(&self, name: &str, options: RemoveOptions) -> Result<VolumeRecord, CatalogueError> {
        let _guard = self.core.lock();
        let value = self.core.begin_removal(&find(&self.map(), name)?, options.force)?;
        self.background.wake();
        Ok(value)
    }

    /// Ends the background thread after the step that it is at. What is left is taken up by the next start.
    pub fn stop(&self) {
        self.background.stop();
    }
}

impl Drop for Catalogue {
    fn drop(&mut self) {
        self.stop();
    }
}

impl CatalogueCore {
    fn lock(&self) -> MutexGuard<'_, ()> {
        self.operations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn claim_layer(&self) -> Result<LayerId, CoordinatorError> {
        retry_conflicts(|| {
            let map = self.coordinator.map();
            let layer = map.cluster.value.layer_next;
            let cluster = ClusterRecord { layer_next: layer + 1, ..map.cluster.value.clone() };
            self.coordinator.compare_and_set(Some(map.cluster.revision), Change::Cluster(cluster))?;
            Ok(LayerId(layer))
        })
    }

    /// Ends access to a volume and records that it goes. The caller holds the lock.
    fn begin_removal(
        &self,
        before: &Versioned<VolumeRecord>,
        force: bool,
    ) -> Result<VolumeRecord, CatalogueError> {
        self.backend.volume_removed(&before.value, force).map_err(|error| match error {
            BackendError::Attached { connections } => {
                CatalogueError::Attached { name: before.value.name.clone(), connections }
            }
            other => CatalogueError::Backend(other),
        })?;
        let value =
            VolumeRecord { state: VolumeState::Removing, shrinking_from_bytes: None, ..before.value.clone() };
        let change = Change::Volume(value.clone());
        if let Err(error) = self.coordinator.compare_and_set(Some(before.revision), change) {
            self.backend.volume_opened(&before.value)?;
            return Err(error.into());
        }
        Ok(value)
    }

    /// Deletes what a shrunk volume holds beyond its end. The caller holds the lock.
    fn finish_shrink(&self, id: VolumeId) -> Result<(), CatalogueError> {
        let map = self.coordinator.map();
        let Some(Versioned { revision, value }) = map.volumes.get(&id) else { return Ok(()) };
        let Some(from_bytes) = value.shrinking_from_bytes else { return Ok(()) };
        self.backend.trim_layer(value, value.size_bytes, from_bytes)?;
        let value = VolumeRecord { shrinking_from_bytes: None, ..value.clone() };
        self.coordinator.compare_and_set(Some(*revision), Change::Volume(value))?;
        Ok(())
    }

    /// Deletes the data of a removed volume, then its record.
    fn finish_removal(&self, id: VolumeId) -> Result<(), CatalogueError> {
        let map = self.coordinator.map();
        let Some(Versioned { revision, value }) = map.volumes.get(&id) else { return Ok(()) };
        if value.state != VolumeState::Removing {
            return Ok(());
        }
        self.backend.delete_layer(value)?;
        self.coordinator.compare_and_set(Some(*revision), Change::ForgetVolume(id))?;
        Ok(())
    }

    /// Does what is left to do. Returns whether all of it is done.
    pub(crate) fn work_off(&self, stopping: &dyn Fn() -> bool) -> bool {
        let map = self.coordinator.map();
        let mut complete = true;
        for volume in map.volumes.values() {
            if stopping() {
                return false;
            }
            let id = volume.value.id;
            let result = if volume.value.state == VolumeState::Removing {
                self.finish_removal(id)
            } else if volume.value.shrinking_from_bytes.is_some() {
                let _guard = self.lock();
                self.finish_shrink(id)
            } else {
                Ok(())
            };
            if let Err(error) = result {
                tracing::warn!(volume = %volume.value.name, %error, "deleting data failed and is tried again");
                complete = false;
            }
        }
        complete
    }
}

/// Volumes for a message: all of a few, else the first ones and how many more there are.
fn names(volumes: &[String]) -> String {
    const SHOWN: usize = 8;
    let shown: Vec<String> = volumes.iter().take(SHOWN).map(|name| format!("{name:?}")).collect();
    let more = match volumes.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("volume{} {}{more}", if volumes.len() == 1 { "" } else { "s" }, shown.join(", "))
}

fn find(map: &ClusterMap, name: &str) -> Result<Versioned<VolumeRecord>, CatalogueError> {
    map.volume_by_name(name).cloned().ok_or_else(|| CatalogueError::NotFound { name: name.to_owned() })
}

/// Checks a volume's size and rounds it up to whole blocks.
pub fn check_volume_size(size_bytes: u64) -> Result<u64, CatalogueError> {
    if size_bytes == 0 {
        return Err(CatalogueError::SizeZero);
    }
    if size_bytes > VOLUME_BYTES_MAX {
        return Err(CatalogueError::SizeTooLarge { size_bytes });
    }
    if !size_bytes.is_multiple_of(SECTOR_BYTES as u64) {
        return Err(CatalogueError::SizeUnaligned { size_bytes });
    }
    Ok(size_bytes.next_multiple_of(BLOCK_BYTES as u64))
}

fn check_room(map: &ClusterMap, asked_bytes: u64) -> Result<(), CatalogueError> {
    let (left_bytes, provisionable_bytes) = map.room_bytes();
    if asked_bytes <= left_bytes {
        return Ok(());
    }
    let overcommit_percent = map.cluster.value.overcommit_percent;
    Err(CatalogueError::NoRoom { asked_bytes, left_bytes, provisionable_bytes, overcommit_percent })
}

/// The shards that take new volumes.
fn weighted_shards(map: &ClusterMap) -> Vec<WeightedShard> {
    let healthy = map.drives.values().filter(|drive| drive.value.state == DriveState::Healthy);
    healthy
        .flat_map(|drive| {
            let drive = &drive.value;
            let capacity_bytes = drive.capacity_bytes / u64::from(drive.shards.max(1));
            (0..drive.shards).map(move |shard| WeightedShard {
                shard: ShardRef { drive: drive.id, shard },
                capacity_bytes,
            })
        })
        .collect()
}

fn unix_now_ns() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_nanos()).unwrap_or(u64::MAX)
}
