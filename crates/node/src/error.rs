//! Why a node does not start or a drive cannot be used.

use std::path::PathBuf;

use coquina_control::ChangeError;
use coquina_engine::{OpenError, SuperblockError};
use coquina_reactor::{DriveProblem, ReactorError};

/// What to do where the problem alone does not say it.
fn advice_on_problem(error: &ReactorError) -> &'static str {
    match error {
        ReactorError::Drive { problem: DriveProblem::Busy, .. } => {
            "; unmount it first, or name another drive"
        }
        ReactorError::Drive { problem: DriveProblem::ReadOnly, .. } => {
            "; make it and its file system writable, or name another drive"
        }
        ReactorError::Drive { problem: DriveProblem::Kind, .. } => "; name a file or a block device",
        ReactorError::Drive { problem: DriveProblem::NoSpace { .. }, .. } => {
            "; free some space, or give a smaller size"
        }
        _ => "",
    }
}

fn advice_on_superblock(error: &SuperblockError) -> &'static str {
    match error {
        SuperblockError::TooSmall { .. } => "; give a larger size, or name another drive",
        SuperblockError::Damaged(_) => "; name another drive, or erase this one with --force",
        SuperblockError::Shrunk { .. } => "; give it back its size",
        _ => "",
    }
}

/// Why a node does not start or a drive cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// io_uring, a file or a socket.
    #[error("{0}{advice}", advice = advice_on_problem(.0))]
    Reactor(#[from] ReactorError),
    /// A superblock.
    #[error("drive {path}: {error}{}", advice_on_superblock(error))]
    Superblock {
        /// The drive.
        path: PathBuf,
        /// What is wrong.
        error: SuperblockError,
    },
    /// A shard.
    #[error("drive {path}, shard {shard}: {error}")]
    Open {
        /// The drive.
        path: PathBuf,
        /// The shard.
        shard: u32,
        /// What is wrong.
        error: OpenError,
    },
    /// The drive belongs elsewhere.
    #[error(
        "drive {path} belongs to cluster {found}, this is cluster {expected}; name another drive (--drive with the new \
         path, if the server's own drive has moved), or take it over with --drive {path} --force: that erases it"
    )]
    OtherCluster {
        /// The drive.
        path: PathBuf,
        /// Its cluster.
        found: coquina_base::ClusterId,
        /// Ours.
        expected: coquina_base::ClusterId,
    },
    /// The map keeps paths as text.
    #[error("the path of drive {path} is not UTF-8, and could not be found again; name another path")]
    PathNotText {
        /// The drive.
        path: PathBuf,
    },
    /// Somebody else's data.
    #[error("drive {path} holds {what}; name another drive, or erase it with --force")]
    ForeignData {
        /// The drive.
        path: PathBuf,
        /// What it looks like.
        what: String,
    },
    /// Formatting would erase a drive.
    #[error("drive {path} is a Coquina drive of cluster {cluster}; erase it with --force")]
    AlreadyFormatted {
        /// The drive.
        path: PathBuf,
        /// Its cluster.
        cluster: coquina_base::ClusterId,
    },
    /// No size was given for a new file.
    #[error("drive {path} does not exist; give a size to make a file, like {path}:10G")]
    NoSize {
        /// The drive.
        path: PathBuf,
    },
    /// A drive that was there before is gone.
    #[error("there is no {path} any more")]
    Absent {
        /// The drive.
        path: PathBuf,
    },
    /// Two drives say that they are the same.
    #[error(
        "drives {path} and {other} are one and the same, so one must be a copy of the other; name only one"
    )]
    SameDrive {
        /// The one.
        path: PathBuf,
        /// The other.
        other: PathBuf,
    },
    /// A drive that was removed with data on it.
    #[error(
        "drive {path} was removed from this cluster, and the volumes that it has data of with it; leave it out, or \
         erase it and use it anew with --drive {path} --force"
    )]
    GivenUp {
        /// The drive.
        path: PathBuf,
    },
    /// The node ends.
    #[error("the node is stopping")]
    Stopping,
    /// Drives belong to nodes.
    #[error("this process serves no drives; ask a node of the cluster")]
    NoNode,
    /// Nothing to serve from.
    #[error(
        "none of the server's drives can be used:{reasons}\nbring one back, give its new path with --drive, or name \
         another drive with --drive to start without those"
    )]
    NoDrive {
        /// A line for each, with a line feed before it.
        reasons: String,
    },
    /// The file system cannot hold the drive.
    #[error(
        "drive {path}: its file system has no room for {}; free some space, give a smaller size, or name a path on \
         another file system",
        coquina_base::format_size_bytes(*size_bytes)
    )]
    NoRoom {
        /// The drive.
        path: PathBuf,
        /// Its size.
        size_bytes: u64,
    },
    /// A new file has no place.
    #[error("drive {path}: its directory {folder} does not exist; make it first, or name another drive")]
    NoFolder {
        /// The drive.
        path: PathBuf,
        /// Its folder.
        folder: PathBuf,
    },
    /// The cluster map.
    #[error(transparent)]
    Change(#[from] ChangeError),
    /// An address that cannot be listened on.
    #[error("{address}: {reason}")]
    Address {
        /// As given.
        address: String,
        /// Why.
        reason: String,
    },
    /// No randomness for an identity.
    #[error("the system gives no random numbers: {0}")]
    Random(std::io::Error),
    /// A thread did not start.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
}

impl NodeError {
    /// Whether nothing is wrong with a drive: the store of the cluster map did not take a change, or a reactor did not answer.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(
            self,
            NodeError::Stopping
                | NodeError::Change(ChangeError::Store(_) | ChangeError::Busy | ChangeError::NotSeen { .. })
        )
    }
}
