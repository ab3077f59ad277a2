//! Who decides what the cluster map is.
//!
//! Invariants that every implementation keeps:
//! - a change is durable before it is answered;
//! - a change applies to one record, and only if that record is as the caller last saw it;
//! - a map that was once returned never changes: readers hold a snapshot.

use std::path::PathBuf;
use std::sync::Arc;

use coquina_base::{DriveId, NodeId, VolumeId};

use crate::state::{
    ClusterMap, ClusterRecord, DriveRecord, DriveState, InvalidMap, NodeRecord, VolumeRecord,
};

/// A change of one record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Replaces what concerns the cluster as a whole.
    Cluster(ClusterRecord),
    /// Adds or replaces a node.
    Node(NodeRecord),
    /// Adds or replaces a drive.
    Drive(DriveRecord),
    /// Adds or replaces a volume.
    Volume(VolumeRecord),
    /// Takes a drive out.
    ForgetDrive(DriveId),
    /// Takes a volume out.
    ForgetVolume(VolumeId),
}

impl Change {
    /// The record that is changed, for messages.
    pub fn record_name(&self) -> String {
        match self {
            Change::Cluster(_) => "the cluster".to_owned(),
            Change::Node(node) => format!("node {}", node.id),
            Change::Drive(drive) => format!("drive {}", drive.id),
            Change::Volume(volume) => format!("volume {}", volume.id),
            Change::ForgetDrive(id) => format!("drive {id}"),
            Change::ForgetVolume(id) => format!("volume {id}"),
        }
    }
}

/// Why the cluster state could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum CoordinatorError {
    /// Somebody else changed the record; read the map again and decide anew.
    #[error("{record} was changed by somebody else at the same time; try again")]
    Conflict {
        /// The record.
        record: String,
    },
    /// The change would break an invariant of the map. A mistake of the caller.
    #[error("the change is not valid: {0}")]
    Invalid(#[from] InvalidMap),
    /// The state could not be read or written.
    #[error("cannot {doing} {}: {source}{}", path.display(), advice_on_io(source))]
    Io {
        /// What was tried, as a verb.
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The state file is damaged.
    #[error(
        "the cluster state {} is damaged ({reason}); {}",
        path.display(),
        advice_on_damage(previous.as_deref())
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
        /// The copy before the last change, if there is one.
        previous: Option<PathBuf>,
    },
    /// The state was written by a newer version.
    #[error(
        "the cluster state {} has format {found}, and this version reads formats up to {newest}; \
         use a newer coquina",
        path.display()
    )]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u64,
        /// The newest format that is read here.
        newest: u64,
    },
    /// A change failed half-way: nothing more is changed until a restart.
    #[error("an earlier change of the cluster state could not be made durable; restart the server")]
    Poisoned,
}

fn advice_on_io(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            "; run as the user whose it is, or give another folder with --dir"
        }
        std::io::ErrorKind::ReadOnlyFilesystem => "; give a folder that can be written with --dir",
        std::io::ErrorKind::StorageFull => "; free some space on its file system",
        _ => "",
    }
}

fn advice_on_damage(previous: Option<&std::path::Path>) -> String {
    match previous {
        Some(previous) => format!(
            "the copy from before the last change is {}: copy it over the damaged file to go back to it",
            previous.display()
        ),
        None => "there is no earlier copy; restore it from a backup".to_owned(),
    }
}

/// Keeps the cluster map.
pub trait Coordinator: Send + Sync {
    /// The node that this process is.
    fn node_id(&self) -> NodeId;

    /// The newest map known here. Cheap; the map returned never changes.
    fn map(&self) -> Arc<ClusterMap>;

    /// Changes one record if its revision is still `expected` (`None`: if it does not exist), and returns
    /// the map after it. Durable when it returns.
    fn compare_and_set(
        &self,
        expected: Option<u64>,
        change: Change,
    ) -> Result<Arc<ClusterMap>, CoordinatorError>;
}

/// Attempts at a change that others keep getting in the way of, before it is given up.
const CONFLICTS_MAX: u32 = 16;

/// Repeats `attempt`, which reads the map and tries to change it, while it meets other changes.
pub(crate) fn retry_conflicts<T>(
    mut attempt: impl FnMut() -> Result<T, CoordinatorError>,
) -> Result<T, CoordinatorError> {
    for _ in 1..CONFLICTS_MAX {
        match attempt() {
            Err(CoordinatorError::Conflict { .. }) => {}
            finished => return finished,
        }
    }
    attempt()
}

/// Adds a drive to the map, or brings its record up to date. Writes nothing if the record is as given.
pub fn register_drive(coordinator: &dyn Coordinator, drive: &DriveRecord) -> Result<(), CoordinatorError> {
    retry_conflicts(|| {
        let map = coordinator.map();
        let present = map.drives.get(&drive.id);
        if present.is_some_and(|present| present.value == *drive) {
            return Ok(());
        }
        let expected = present.map(|present| present.revision);
        coordinator.compare_and_set(expected, Change::Drive(drive.clone())).map(drop)
    })
}

/// Records what became of a drive. Writes nothing if it is as given, or if the map does not have the drive.
pub fn record_drive_state(
    coordinator: &dyn Coordinator,
    drive: DriveId,
    state: DriveState,
) -> Result<(), CoordinatorError> {
    retry_conflicts(|| {
        let map = coordinator.map();
        let Some(present) = map.drives.get(&drive).filter(|present| present.value.state != state) else {
            return Ok(());
        };
        let changed = DriveRecord { state, ..present.value.clone() };
        coordinator.compare_and_set(Some(present.revision), Change::Drive(changed)).map(drop)
    })
}

/// Sets how many percent of the capacity volume sizes may add up to. Writes nothing if it is as given.
pub fn set_overcommit_percent(coordinator: &dyn Coordinator, percent: u32) -> Result<(), CoordinatorError> {
    retry_conflicts(|| {
        let map = coordinator.map();
        if map.cluster.value.overcommit_percent == percent {
            return Ok(());
        }
        let cluster = ClusterRecord { overcommit_percent: percent, ..map.cluster.value.clone() };
        coordinator.compare_and_set(Some(map.cluster.revision), Change::Cluster(cluster)).map(drop)
    })
}
