//! Why an operation was refused.

use coquina_base::{NameError, Nearest, VOLUME_BYTES_MAX, format_size_bytes};
use coquina_cluster::{OperationError, StripingError};

use crate::backend::BackendError;
use crate::client::ClientError;
use crate::map_service::ChangeError;

/// Why something could not be made or changed. Nothing was changed, unless the message says so.
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
    #[error("no volume {name:?}{nearest}; `coquina volume list` shows what there is")]
    NotFound {
        /// The name.
        name: String,
        /// What may be meant.
        nearest: Nearest,
    },
    /// There is another one now.
    #[error("volume {name:?} was replaced by another one of that name meanwhile, which was left as it is")]
    Replaced {
        /// The name.
        name: String,
    },
    /// It is not as it was when it was to be cut. It may have the same size again, and other data.
    #[error(
        "somebody else has changed volume {name:?} meanwhile: it had {}, now it has {}, and it was left at that; look at it and ask again",
        format_size_bytes(*from_bytes),
        format_size_bytes(*now_bytes)
    )]
    Resized {
        /// The name.
        name: String,
        /// The size that was to be cut.
        from_bytes: u64,
        /// The size that it has.
        now_bytes: u64,
    },
    /// A volume needs at least one block.
    #[error("a volume of size 0 holds nothing; give a size above zero, such as 10G")]
    SizeZero,
    /// More than any volume can have.
    #[error(
        "{} is more than a volume can have; give {VOLUME_BYTES_MAX} bytes at most (4 MiB less than 16 PiB)",
        format_size_bytes(*size_bytes)
    )]
    SizeTooLarge {
        /// The size asked for.
        size_bytes: u64,
    },
    /// The striping is impossible.
    #[error("{0}; give other values to --stripe-unit and --stripe-count")]
    Striping(#[from] StripingError),
    /// More than the drives can hold.
    #[error(
        "{}{} does not fit: {} of {} are left for volumes; give a smaller size, add a drive with `coquina drive add`, or \
         allow sizes to add up to more than the drives hold with --overcommit F (now {}.{:02})",
        format_size_bytes(*asked_bytes),
        in_copies(*copies),
        format_size_bytes(*left_bytes),
        format_size_bytes(*provisionable_bytes),
        overcommit_percent / 100,
        overcommit_percent % 100
    )]
    NoRoom {
        /// What the change would add, one copy.
        asked_bytes: u64,
        /// Copies of each block.
        copies: u32,
        /// What is left for all copies.
        left_bytes: u64,
        /// What volume sizes, times copies, may add up to.
        provisionable_bytes: u64,
        /// The setting in force.
        overcommit_percent: u32,
    },
    /// The drives that stay cannot hold what has to be moved.
    #[error(
        "{} would have to be moved away, and the other drives have room for {}{}; add a drive with `coquina drive add`, or \
         trim or remove volumes",
        format_size_bytes(*moved_bytes),
        format_size_bytes(*free_bytes),
        counted_as_full(silent)
    )]
    NoRoomElsewhere {
        /// What is in use on the drives that are to leave, or leave already.
        moved_bytes: u64,
        /// What is free on all others that take data.
        free_bytes: u64,
        /// Names of the nodes that do not answer, whose drives count as full.
        silent: Vec<String>,
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
    #[error("volume {name:?} is in use by {connections} connection(s); disconnect them, or {otherwise}")]
    Attached {
        /// The volume.
        name: String,
        /// How many.
        connections: u64,
        /// How to do it all the same.
        otherwise: &'static str,
    },
    /// Nobody knows whether the volume has connections.
    #[error(
        "{}, so whether volume {name:?} has connections there is not known; bring it back, or {otherwise}",
        silent(nodes)
    )]
    ConnectionsUnknown {
        /// The volume.
        name: String,
        /// Names of the nodes that do not answer.
        nodes: Vec<String>,
        /// How to do it all the same.
        otherwise: &'static str,
    },
    /// There is no such pool.
    #[error("no pool {name:?}{nearest}; `coquina pool list` shows what there is")]
    PoolNotFound {
        /// The name.
        name: String,
        /// What may be meant.
        nearest: Nearest,
    },
    /// Several pools would do.
    #[error("there are several pools ({}); say which one with --pool", pools.join(", "))]
    PoolAmbiguous {
        /// Their names.
        pools: Vec<String>,
    },
    /// A pool with another number of copies than asked for.
    #[error(
        "pool {pool:?} keeps {copies} copies of each block, and {asked} are asked for; make a pool with \
         `coquina pool create NAME --copies {asked}` and name that one with --pool"
    )]
    PoolOtherCopies {
        /// The pool.
        pool: String,
        /// Its copies.
        copies: u32,
        /// Those that are asked for.
        asked: u32,
    },
    /// All volumes of a pool were removed, and are in the map still.
    #[error(
        "pool {name:?} has {volumes} volume(s) that were removed, and after {} s not all nodes know yet that they are gone; start the \
         nodes that are down, or remove those that are gone for good, and ask again (`coquina status` shows REMOVAL_PENDING meanwhile)",
        waited.as_secs()
    )]
    PoolEmptying {
        /// The pool.
        name: String,
        /// How many.
        volumes: usize,
        /// How long it was waited for.
        waited: std::time::Duration,
    },
    /// The groups of a new pool were not made in time.
    #[error(
        "pool {name:?} is recorded, but its placement groups are not made yet; `coquina status` says whether nodes and the \
         leader are there. Try again in a moment"
    )]
    PoolPending {
        /// Its name.
        name: String,
    },
    /// There is no such drive.
    #[error("no drive {text:?}{nearest}; `coquina drive list` shows identities and paths")]
    DriveNotFound {
        /// As asked for.
        text: String,
        /// What may be meant.
        nearest: Nearest,
    },
    /// Names more than one drive.
    #[error("{text:?} may be any of {count} drives; give more of the identity, or NODE:PATH")]
    DriveAmbiguous {
        /// As asked for.
        text: String,
        /// How many.
        count: usize,
    },
    /// It is not missing.
    #[error(
        "drive {path} works; remove it without --lost and --lose-data, so that its data is moved away first"
    )]
    DriveWorks {
        /// Its path.
        path: String,
    },
    /// Volumes of pools that lose data with a drive.
    #[error(
        "drive {path} is missing or takes no changes, and has the only good copy of data of {}; bring it back, or give the data \
         up with --lose-data: {} removed then, with what other drives hold of {}",
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
    /// More volumes lose data than was agreed to.
    #[error(
        "drive {path} has by now the only good copy of data of {} as well, so that nothing was removed; repeat the command to be \
         asked about all of them",
        names(volumes)
    )]
    OtherVolumesLost {
        /// Its path.
        path: String,
        /// The volumes that nobody agreed to lose.
        volumes: Vec<String>,
    },
    /// What was to be given up is not lost any more.
    #[error(
        "drive {path} has not the last good copy of volume {volume:?} any more, so that this volume was left; look at \
         `coquina status` and decide anew"
    )]
    NotLost {
        /// Its path.
        path: String,
        /// The volume.
        volume: String,
    },
    /// Volumes were removed, and the rest has to wait.
    #[error(
        "the volumes that lose data with drive {path} are being removed; repeat the command in a moment to give the drive \
         up"
    )]
    DriveEmptying {
        /// Its path.
        path: String,
    },
    /// There is no such node.
    #[error("no node {text:?}{nearest}; `coquina node list` shows names and identities")]
    NodeNotFound {
        /// As asked for.
        text: String,
        /// What may be meant.
        nearest: Nearest,
    },
    /// Names more than one node.
    #[error("{text:?} is the beginning of {count} nodes; give more of the identity, or the name")]
    NodeAmbiguous {
        /// As asked for.
        text: String,
        /// How many.
        count: usize,
    },
    /// It is not lost.
    #[error("node {name:?} answers; remove it without --lost, so that its data is moved away first")]
    NodeAnswers {
        /// Its name.
        name: String,
    },
    /// It is not known to be lost.
    #[error(
        "node {name:?} does not answer this process, but the process that leads hears it, so it is not lost; ask another process \
         with --server, or look at the network between them. If it is to be given up all the same, stop it first"
    )]
    NodeHeard {
        /// Its name.
        name: String,
    },
    /// Nobody knows whether it is lost.
    #[error(
        "node {name:?} does not answer this process, and within {waited_s} s no process that leads could say whether it is lost; \
         `coquina status` says who leads. Try again in {waited_s} s, or ask another process with --server"
    )]
    NodeUnknown {
        /// Its name.
        name: String,
        /// How long it was waited for one.
        waited_s: u64,
    },
    /// Another node has to do it and could not be asked.
    #[error("node {name:?} has to do this: {source}")]
    OtherNode {
        /// Its name.
        name: String,
        /// Why it did not.
        source: ClientError,
    },
    /// The rules of the map do not allow it.
    #[error("{0}")]
    Operation(#[from] OperationError),
    /// The map could not be changed.
    #[error("{0}")]
    Change(ChangeError),
    /// The node could not do it.
    #[error("{0}")]
    Backend(#[from] BackendError),
    /// The operating system gave no randomness.
    #[error("cannot make an identity: {0}")]
    Random(std::io::Error),
}

fn in_copies(copies: u32) -> String {
    if copies == 1 { String::new() } else { format!(" in {copies} copies") }
}

/// Which nodes do not answer.
/// Stands for a process that is no node among names of nodes; none is called so.
pub(super) const THIS_PROCESS: &str = "this process";

fn silent(nodes: &[String]) -> String {
    match nodes {
        [node] if node == THIS_PROCESS => "a reactor of this process does not answer".to_owned(),
        [node] => format!("node {node:?} does not answer"),
        nodes => format!("each of the nodes {} does not answer", nodes.join(", ")),
    }
}

fn counted_as_full(nodes: &[String]) -> String {
    match nodes {
        [] => String::new(),
        nodes => format!(" ({}, and drives there count as full)", silent(nodes)),
    }
}

impl CatalogueError {
    /// Whether nothing has the name that was given.
    pub(super) fn is_not_found(&self) -> bool {
        matches!(
            self,
            Self::NotFound { .. }
                | Self::PoolNotFound { .. }
                | Self::DriveNotFound { .. }
                | Self::NodeNotFound { .. }
        )
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
