//! What a running node offers to the control plane.
//!
//! Every call comes from threads of the control plane, never from a reactor, and may block; calls about one
//! volume never overlap. A node takes the active volumes from the coordinator's map when it starts, and
//! hears of later changes only through these calls.

use coquina_base::{DriveId, VolumeId};
use coquina_engine::ShardStats;

use crate::counters::VolumeCounters;
use crate::health::HealthEntry;
use crate::histogram::LatencyHistogram;
use crate::state::VolumeRecord;

/// Why a node could not do what it was asked to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackendError {
    /// The volume has connections.
    #[error("the volume is in use by {connections} connection(s)")]
    Attached {
        /// How many.
        connections: u64,
    },
    /// A drive took no change; the call can be repeated later.
    #[error("drive {drive} refused the change: {reason}")]
    Drive {
        /// The drive.
        drive: DriveId,
        /// What it said.
        reason: String,
    },
    /// No such drive on this node.
    #[error("no drive {0} on this node")]
    UnknownDrive(DriveId),
    /// A drive of the map is not there, or cannot be used.
    #[error("drive {0} is missing; bring it back, or give it up with `coquina drive remove {0}`")]
    DriveMissing(DriveId),
    /// The node is stopping.
    #[error("the server is stopping")]
    Stopping,
}

/// A running node, as the control plane sees it.
pub trait NodeBackend: Send + Sync {
    /// All counters and gauges. Called a few times per second at most.
    fn snapshot(&self) -> NodeSnapshot;

    /// A volume was made (its record is durable): offer it.
    fn volume_opened(&self, volume: &VolumeRecord) -> Result<(), BackendError>;

    /// A volume's size or name changed (its record is durable). When this returns, sessions see the new size,
    /// and no request beyond the new end is running or will be accepted.
    fn volume_changed(&self, volume: &VolumeRecord) -> Result<(), BackendError>;

    /// A volume is about to be removed: refuse with [`BackendError::Attached`] while it has connections,
    /// unless `force`; else drop its exports and connections. When this returns `Ok`, no request for it is
    /// running or will be accepted. If the removal cannot be recorded, `volume_opened` follows.
    fn volume_removed(&self, volume: &VolumeRecord, force: bool) -> Result<(), BackendError>;

    /// Deletes a layer on every shard of the volume's placement. Returns when it cannot come back. Safe to
    /// repeat.
    fn delete_layer(&self, volume: &VolumeRecord) -> Result<(), BackendError>;

    /// Trims a volume's layer from `from_bytes` up to `to_bytes` on every shard of its placement. Returns
    /// when the data cannot come back. Safe to repeat.
    fn trim_layer(&self, volume: &VolumeRecord, from_bytes: u64, to_bytes: u64) -> Result<(), BackendError>;

    /// Starts a scrub of all shards of a drive, or of all drives; one that runs goes on. When this returns,
    /// [`snapshot`](Self::snapshot) shows the progress.
    fn scrub_start(&self, drive: Option<DriveId>) -> Result<(), BackendError>;

    /// A drive goes: no volume has a place on it any more. When this returns, its file or device is free for others,
    /// and [`snapshot`](Self::snapshot) shows it neither among the drives nor among the absent ones. Safe to repeat.
    fn drive_removed(&self, drive: DriveId) -> Result<(), BackendError>;
}

/// Everything that a node counts.
#[derive(Clone, Debug, Default)]
pub struct NodeSnapshot {
    /// Time since the node started.
    pub uptime_ns: u64,
    /// Drives that are served.
    pub drives: Vec<DriveSnapshot>,
    /// Drives of the map that this node should serve and cannot.
    pub absent: Vec<AbsentDrive>,
    /// Active volumes.
    pub volumes: Vec<VolumeSnapshot>,
    /// Reactors.
    pub reactors: Vec<ReactorSnapshot>,
    /// Open NBD connections.
    pub nbd_connections: u64,
    /// Open native connections.
    pub native_connections: u64,
    /// Connections dropped because they broke the protocol or stalled.
    pub dropped_connections: u64,
    /// What the node itself found (a slow drive, a bad block with its place). What follows from the other
    /// fields is added by [`derive_health`](crate::derive_health).
    pub health: Vec<HealthEntry>,
}

impl NodeSnapshot {
    /// A drive that is served.
    pub fn drive(&self, id: DriveId) -> Option<&DriveSnapshot> {
        self.drives.iter().find(|drive| drive.id == id)
    }

    /// Why a drive is not served, if the node knows.
    pub fn absent_reason(&self, id: DriveId) -> Option<&str> {
        self.absent.iter().find(|drive| drive.id == id).map(|drive| drive.reason.as_str())
    }
}

/// A drive that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbsentDrive {
    /// The drive.
    pub id: DriveId,
    /// What is wrong with it.
    pub reason: String,
}

/// A drive of a node.
#[derive(Clone, Debug, Default)]
pub struct DriveSnapshot {
    /// The drive.
    pub id: DriveId,
    /// File or block device.
    pub path: String,
    /// Size of the file or device.
    pub size_bytes: u64,
    /// Its shards, in order.
    pub shards: Vec<ShardSnapshot>,
    /// Latency of writes to the device.
    pub write_latency: LatencyHistogram,
    /// Latency of reads from the device.
    pub read_latency: LatencyHistogram,
}

/// A shard of a drive.
#[derive(Clone, Debug, Default)]
pub struct ShardSnapshot {
    /// The engine's counters and gauges.
    pub stats: ShardStats,
    /// The reactor that carries it.
    pub reactor: u32,
    /// Time that the last start-up took.
    pub open_ns: u64,
}

/// A volume, as the node counts it.
#[derive(Clone, Debug, Default)]
pub struct VolumeSnapshot {
    /// The volume.
    pub id: VolumeId,
    /// Its name.
    pub name: String,
    /// What was done with it.
    pub counters: VolumeCounters,
}

/// A reactor's counters.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReactorSnapshot {
    /// Turns of its loop.
    pub turns: u64,
    /// Time spent not asleep.
    pub busy_ns: u64,
    /// Operations submitted to its ring.
    pub operations: u64,
}
