//! What a running node offers to the control plane.
//!
//! Every call comes from threads of the control plane, never from a reactor, and may block unless it says that it does
//! not wait. A process without shards (a gateway, a supervisor) offers a backend with nothing in it.

use std::sync::Arc;

use coquina_base::{DriveId, LayerId, VolumeId};
use coquina_cluster::{Config, DriveReport, GroupId, HealthEntry, MapView, ShardRef};
use coquina_engine::{ScrubReport, ShardStats};
use serde::{Deserialize, Serialize};

use crate::counters::VolumeCounters;
use crate::histogram::LatencyHistogram;

/// Why a node could not do what it was asked to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackendError {
    /// A drive took no change; the call can be repeated later.
    #[error("drive {drive} refused the change: {reason}")]
    Drive {
        /// The drive.
        drive: DriveId,
        /// What it said.
        reason: String,
    },
    /// No such drive on this node.
    #[error("no drive {0} on this node; `coquina drive list` shows which node has it")]
    UnknownDrive(DriveId),
    /// A drive of the map is not there, or cannot be used.
    #[error("drive {0} is missing; bring it back, or give it up with `coquina drive remove {0} --lost`")]
    DriveMissing(DriveId),
    /// A drive could not be opened or formatted.
    #[error("cannot use {path} as a drive: {reason}")]
    DriveRefused {
        /// The path as it was given.
        path: String,
        /// Why, and what to do.
        reason: String,
    },
    /// This process has no drives.
    #[error("this process serves no drives; ask a node of the cluster, by its --http address")]
    NoNode,
    /// The node is stopping.
    #[error("the server is stopping")]
    Stopping,
}

/// A running node, as the control plane sees it.
pub trait NodeBackend: Send + Sync {
    /// All counters and gauges of this process. Called a few times per second at most. Waits for a second at most, and not at all for
    /// what has not answered the call before.
    fn snapshot(&self) -> NodeSnapshot;

    /// There is a newer map. Returns when every reactor follows it. Never called with an older one.
    fn set_map(&self, map: Arc<MapView>) -> Result<(), BackendError>;

    /// The store of the map went backwards or the map is damaged: all I/O is refused from now on, with this reason.
    fn refuse_io(&self, reason: String);

    /// How the drives here are, for heartbeats. Does not wait.
    fn drive_reports(&self) -> Vec<DriveReport>;

    /// What primaries here asked for last, as the configurations that they would like. Does not wait.
    fn proposals(&self) -> Vec<(GroupId, Config)>;

    /// Returns when no request of the volume that was taken under an older map is under way here any more.
    fn quiesce(&self, volume: VolumeId) -> Result<(), BackendError>;

    /// The layers that shards here hold blocks of.
    fn layers(&self) -> Result<Vec<(ShardRef, Vec<LayerId>)>, BackendError>;

    /// Deletes a layer from one shard. Durable when it returns. Safe to repeat.
    fn delete_layer(&self, shard: ShardRef, layer: LayerId) -> Result<(), BackendError>;

    /// Starts a scrub of all shards of a drive, or of all drives; one that runs goes on. When this returns,
    /// [`snapshot`](Self::snapshot) shows the progress.
    fn scrub_start(&self, drive: Option<DriveId>) -> Result<(), BackendError>;

    /// Opens `PATH[:SIZE]` or formats it (over other data with `force` only), registers it in the map and serves it.
    fn drive_add(&self, path: &str, force: bool) -> Result<DriveId, BackendError>;

    /// A drive is no longer in the map. When this returns, its file or device is free for others and
    /// [`snapshot`](Self::snapshot) does not show it. Safe to repeat.
    fn drive_removed(&self, drive: DriveId) -> Result<(), BackendError>;
}

/// The backend of a process without shards.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoNode;

impl NodeBackend for NoNode {
    fn snapshot(&self) -> NodeSnapshot {
        NodeSnapshot::default()
    }

    fn set_map(&self, _: Arc<MapView>) -> Result<(), BackendError> {
        Ok(())
    }

    fn refuse_io(&self, _: String) {}

    fn drive_reports(&self) -> Vec<DriveReport> {
        Vec::new()
    }

    fn proposals(&self) -> Vec<(GroupId, Config)> {
        Vec::new()
    }

    fn quiesce(&self, _: VolumeId) -> Result<(), BackendError> {
        Ok(())
    }

    fn layers(&self) -> Result<Vec<(ShardRef, Vec<LayerId>)>, BackendError> {
        Ok(Vec::new())
    }

    fn delete_layer(&self, _: ShardRef, _: LayerId) -> Result<(), BackendError> {
        Err(BackendError::NoNode)
    }

    fn scrub_start(&self, _: Option<DriveId>) -> Result<(), BackendError> {
        Err(BackendError::NoNode)
    }

    fn drive_add(&self, _: &str, _: bool) -> Result<DriveId, BackendError> {
        Err(BackendError::NoNode)
    }

    fn drive_removed(&self, _: DriveId) -> Result<(), BackendError> {
        Ok(())
    }
}

/// Everything that a process counts.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeSnapshot {
    /// Time since the process started.
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
    /// Connections to other copies.
    pub peers: Vec<PeerSnapshot>,
    /// What was done for other copies since the process started.
    pub copy_totals: CopyTotals,
    /// What the node itself found: a slow drive, a bad block with its place.
    pub health: Vec<HealthEntry>,
    /// A reactor has not answered: what it counts is as it told it last, or missing.
    pub incomplete: bool,
}

impl NodeSnapshot {
    /// A drive that is served.
    pub fn drive(&self, id: DriveId) -> Option<&DriveSnapshot> {
        self.drives.iter().find(|drive| drive.id == id)
    }

    /// Blocks sent to copies that came back, those of an older node's groups that are gone left out.
    pub fn recovered_blocks(&self) -> u64 {
        let shards = self.drives.iter().flat_map(|drive| &drive.shards);
        let groups = shards.flat_map(|shard| &shard.groups).map(|group| group.recovered_blocks);
        self.copy_totals.recovered_blocks.max(groups.fold(0, u64::saturating_add))
    }

    /// Why a drive is not served, if the node knows.
    pub fn absent_reason(&self, id: DriveId) -> Option<&str> {
        self.absent.iter().find(|drive| drive.id == id).map(|drive| drive.reason.as_str())
    }
}

/// What a process has done for other copies since it started. Groups, connections and drives come and go; this never falls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CopyTotals {
    /// Blocks sent to copies that came back.
    pub recovered_blocks: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Bytes received.
    pub received_bytes: u64,
}

impl CopyTotals {
    /// Adds what another part of the process has done.
    pub fn add(&mut self, other: &CopyTotals) {
        self.recovered_blocks = self.recovered_blocks.saturating_add(other.recovered_blocks);
        self.sent_bytes = self.sent_bytes.saturating_add(other.sent_bytes);
        self.received_bytes = self.received_bytes.saturating_add(other.received_bytes);
    }

    /// Takes over what is more than was known, and says what is known then.
    pub fn raised_to(&mut self, now: &CopyTotals) -> CopyTotals {
        self.recovered_blocks = self.recovered_blocks.max(now.recovered_blocks);
        self.sent_bytes = self.sent_bytes.max(now.sent_bytes);
        self.received_bytes = self.received_bytes.max(now.received_bytes);
        *self
    }
}

/// A drive that cannot be used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AbsentDrive {
    /// The drive.
    pub id: DriveId,
    /// What is wrong with it.
    pub reason: String,
}

/// A drive of a node.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
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

/// A scrub that has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ScrubRecord {
    /// When, in milliseconds since 1970.
    pub ended_unix_ms: u64,
    /// What it found, and what has become of that since.
    #[serde(flatten)]
    pub report: ScrubReport,
}

/// A shard of a drive.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ShardSnapshot {
    /// The engine's counters and gauges.
    pub stats: ShardStats,
    /// What the scrub that is under way has found so far.
    pub scrub: Option<ScrubReport>,
    /// The last scrub that ended, perhaps before a restart.
    pub last_scrub: Option<ScrubRecord>,
    /// The reactor that carries it.
    pub reactor: u32,
    /// Time that the last start-up took.
    pub open_ns: u64,
    /// Its placement groups.
    pub groups: Vec<GroupSnapshot>,
    /// Copies elsewhere that come back to primaries here.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub returning: Vec<ReturningCopy>,
    /// Of what the last scrub here found, still bad; 0 before the first one since the start, for nothing is known of it then.
    pub scrub_blocks_left: u64,
}

/// What a copy is to its group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GroupRole {
    /// It orders changes and answers.
    Primary,
    /// It is in sync and follows the primary.
    Backup,
    /// It is a member that has not everything.
    #[default]
    Out,
}

impl GroupRole {
    /// The word that is shown.
    pub fn as_str(self) -> &'static str {
        match self {
            GroupRole::Primary => "primary",
            GroupRole::Backup => "backup",
            GroupRole::Out => "out",
        }
    }
}

/// A copy of a placement group on a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupSnapshot {
    /// The group's number.
    pub group: u32,
    /// The epoch that it follows.
    pub epoch: u64,
    /// What it is to the group.
    pub role: GroupRole,
    /// Whether it answers reads and writes; of a primary only.
    pub serving: bool,
    /// Copies in sync by its configuration.
    pub in_sync: u8,
    /// Blocks that copies which come back still lack, as far as this primary knows.
    pub recovering_blocks_left: u64,
    /// Blocks that this copy has sent to copies that came back, since the process started.
    pub recovered_blocks: u64,
    /// Blocks in ranges of which copies in sync hold different data with good checksums, found by this primary's scrub.
    pub differing_blocks: u64,
}

/// A copy that is out and follows its primary again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReturningCopy {
    /// The group's number.
    pub group: u32,
    /// The epoch that the primary follows.
    pub epoch: u64,
    /// The copy.
    pub copy: u64,
    /// Blocks still to be sent to it or compared with it. More than before only when the primary has begun anew with it.
    pub blocks_left: u64,
}

/// A connection to another copy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PeerSnapshot {
    /// The copy here.
    pub from_copy: u64,
    /// The copy at the other end.
    pub to_copy: u64,
    /// Where it is, as `host:port`.
    pub address: String,
    /// Whether messages pass.
    pub connected: bool,
    /// Bytes sent to it.
    pub sent_bytes: u64,
    /// Bytes that came from it.
    pub received_bytes: u64,
}

/// A volume, as the node counts it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct VolumeSnapshot {
    /// The volume.
    pub id: VolumeId,
    /// Its name.
    pub name: String,
    /// What was done with it.
    pub counters: VolumeCounters,
}

/// A reactor's counters.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ReactorSnapshot {
    /// Turns of its loop.
    pub turns: u64,
    /// Time spent not asleep.
    pub busy_ns: u64,
    /// How long it has looked for events instead of sleeping.
    pub busy_poll_ns: u64,
    /// Operations submitted to its ring.
    pub operations: u64,
    /// The processor on which it stays for now; none if it is free.
    pub bound_cpu: Option<u32>,
}
