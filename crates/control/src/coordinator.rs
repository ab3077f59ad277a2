//! Who decides what the cluster map is.
//!
//! Invariants that every implementation keeps:
//! - a change is durable before it is answered;
//! - a change applies to one record, and only if that record is as the caller last saw it;
//! - a map that was once returned never changes: readers hold a snapshot.

use std::path::PathBuf;
use std::sync::Arc;

use coquina_base::{DriveId, NodeId, VolumeId};

use crate::state::{ClusterMap, ClusterRecord, DriveRecord, InvalidMap, NodeRecord, VolumeRecord};

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
    #[error("cannot {doing} {}: {source}", path.display())]
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
