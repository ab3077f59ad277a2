//! What the REST interface takes and gives, as JSON. Shared by server and client; also what `--json` prints.
//!
//! Fields are stable: they are added, never renamed or removed. Sizes are bytes, durations nanoseconds, wall
//! time is nanoseconds since 1970. Every change must be sent with `Content-Type: application/json`.
//!
//! | request | body | answer |
//! |---|---|---|
//! | `GET /v1/status?interval_ms=N` | | [`Status`] |
//! | `GET /v1/volumes?interval_ms=N` | | [`VolumeList`] |
//! | `POST /v1/volumes` | [`CreateVolume`] | [`Volume`] |
//! | `GET /v1/volumes/NAME` | | [`Volume`] |
//! | `POST /v1/volumes/NAME/resize` | [`ResizeVolume`] | [`Volume`] |
//! | `POST /v1/volumes/NAME/rename` | [`RenameVolume`] | [`Volume`] |
//! | `POST /v1/volumes/NAME/remove` | [`RemoveVolume`] | [`Volume`] |
//! | `GET /v1/drives` | | [`DriveList`] |
//! | `POST /v1/drives/scrub` | [`ScrubDrives`] | [`DriveList`] |
//! | `POST /v1/drives/remove` | [`RemoveDrive`] | [`RemovedDrive`] |
//! | `POST /v1/shutdown` | [`Shutdown`] | [`Shutdown`] |
//! | `GET /health` | | [`Health`], with status 503 if something does not work |
//! | `GET /metrics` | | Prometheus text |
//!
//! With `interval_ms` (up to 10,000) the server measures for that long and answers with live rates. An error
//! has a status of 400 or above and the body [`Error`].

use coquina_base::{ClusterId, DriveId, NodeId, VolumeId};
use serde::{Deserialize, Serialize};

use crate::counters::VolumeCounters;
use crate::health::HealthEntry;
pub use crate::state::{DriveState, VolumeState};

/// The longest interval that a request may ask live rates for.
pub const INTERVAL_MS_MAX: u64 = 10_000;

/// An error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Error {
    /// A stable code, such as `volume_not_found`.
    pub code: String,
    /// What is wrong and what to do, for people.
    pub message: String,
}

/// Asks for a new volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreateVolume {
    /// Its name.
    pub name: String,
    /// Its size: a multiple of 512, rounded up to whole blocks of 4 KiB.
    pub size_bytes: u64,
}

/// Asks for another size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResizeVolume {
    /// The new size.
    pub size_bytes: u64,
    /// Whether data may be cut off.
    #[serde(default)]
    pub allow_shrink: bool,
}

/// Asks for another name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RenameVolume {
    /// The new name.
    pub new_name: String,
}

/// Asks for removal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoveVolume {
    /// Remove it although it has connections.
    #[serde(default)]
    pub force: bool,
}

/// Asks for a scrub.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScrubDrives {
    /// Path or identity of a drive, or the beginning of its identity; all drives if missing.
    #[serde(default)]
    pub drive: Option<String>,
}

/// Asks for a drive to be forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoveDrive {
    /// Path or identity of a drive, or the beginning of its identity.
    pub drive: String,
    /// Give up what volumes have on it, if it is missing; those volumes are removed.
    #[serde(default)]
    pub lose_data: bool,
    /// Only say what would be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// A drive that was removed, or would be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedDrive {
    /// The drive.
    pub id: DriveId,
    /// File or block device.
    pub path: String,
    /// Volumes that are removed with it, by name.
    pub volumes_lost: Vec<String>,
    /// Whether nothing was done.
    pub dry_run: bool,
}

/// Asks the server to stop cleanly, and its answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shutdown {}

/// All volumes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VolumeList {
    /// By name, those that are being removed included.
    pub volumes: Vec<Volume>,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Volume {
    /// The volume, whatever its name.
    pub id: VolumeId,
    /// Its name.
    pub name: String,
    /// Its size.
    pub size_bytes: u64,
    /// Where it is in its life.
    pub state: VolumeState,
    /// When it was made.
    pub created_unix_ns: u64,
    /// Number of the layer that holds its data.
    pub layer: u64,
    /// Size from which it is still being shrunk.
    pub shrinking_from_bytes: Option<u64>,
    /// Number of placement groups.
    pub groups: u64,
    /// The shards that its groups lie on.
    pub placement: Vec<PlacementShare>,
    /// What was done with it since the server started.
    pub io: VolumeIo,
    /// What is being done with it now, if an interval was asked for.
    pub rates: Option<Rates>,
}

/// A shard's part of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlacementShare {
    /// The drive.
    pub drive: DriveId,
    /// Its path.
    pub path: String,
    /// Number of the shard on it.
    pub shard: u32,
    /// How many of the volume's groups it holds.
    pub groups: u64,
}

/// What was done with a volume since the server started.
pub type VolumeIo = VolumeCounters<Latency>;

/// Latencies, from a histogram whose buckets double: percentiles are upper bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latency {
    /// Mean.
    pub mean_ns: u64,
    /// Half of all took at most this.
    pub p50_ns: u64,
    /// 99 % took at most this.
    pub p99_ns: u64,
}

/// What was done during an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rates {
    /// Length of the interval.
    pub interval_ns: u64,
    /// Reads per second.
    pub reads_per_s: f64,
    /// Bytes read per second.
    pub read_bytes_per_s: f64,
    /// Writes per second.
    pub writes_per_s: f64,
    /// Bytes written per second.
    pub write_bytes_per_s: f64,
    /// Latency of reads.
    pub read_latency: Latency,
    /// Latency of writes, trims and write-zeroes.
    pub write_latency: Latency,
}

/// All drives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DriveList {
    /// By identity.
    pub drives: Vec<Drive>,
}

/// A drive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Drive {
    /// The drive.
    pub id: DriveId,
    /// File or block device.
    pub path: String,
    /// Its state, as far as it is known now.
    pub state: DriveState,
    /// Why it is missing.
    #[serde(default)]
    pub problem: Option<String>,
    /// The node that has it.
    #[serde(default)]
    pub node: NodeId,
    /// Size of the file or device.
    pub size_bytes: u64,
    /// What it can hold for users.
    pub capacity_bytes: u64,
    /// Live user data on it.
    pub live_bytes: u64,
    /// Blocks found bad since the server started.
    pub bad_blocks: u64,
    /// Progress of the running scrub in percent.
    pub scrub_percent: Option<f64>,
    /// Latency of writes to the device.
    pub write_latency: Latency,
    /// Latency of reads from the device.
    pub read_latency: Latency,
    /// Its shards.
    pub shards: Vec<Shard>,
}

/// A shard of a drive; counters start at zero with the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shard {
    /// Its number on the drive.
    pub shard: u32,
    /// The reactor that carries it.
    pub reactor: u32,
    /// Whether a failed write has made it read-only.
    pub read_only: bool,
    /// Time that the last start-up took.
    pub open_ns: u64,
    /// What it can hold for users.
    pub capacity_bytes: u64,
    /// Live user data.
    pub live_bytes: u64,
    /// Segments in all.
    pub segments: u64,
    /// Segments ready to be written.
    pub segments_free: u64,
    /// Size of a segment.
    pub segment_bytes: u64,
    /// Reads, in requests.
    pub reads: u64,
    /// Bytes read by requests.
    pub read_bytes: u64,
    /// Changes, in requests.
    pub writes: u64,
    /// Bytes written by requests.
    pub write_bytes: u64,
    /// Bytes trimmed or zeroed.
    pub trim_bytes: u64,
    /// Bytes read from the drive.
    pub drive_read_bytes: u64,
    /// Bytes written to the drive, prewriting excluded.
    pub drive_write_bytes: u64,
    /// Bytes of zeros written ahead.
    pub prewrite_bytes: u64,
    /// Frames written.
    pub frames: u64,
    /// Bytes moved by the cleaner.
    pub cleaner_bytes: u64,
    /// Segments freed by the cleaner.
    pub cleaner_segments: u64,
    /// Bytes written for checkpoints and index pages.
    pub metadata_bytes: u64,
    /// Checkpoints completed.
    pub checkpoints: u64,
    /// Blocks served from memory.
    pub cache_hits: u64,
    /// Blocks read from the drive.
    pub cache_misses: u64,
    /// Bytes held by the block cache.
    pub cache_bytes: u64,
    /// Bytes of memory that the index takes.
    pub index_memory_bytes: u64,
    /// Index pages read from the drive.
    pub index_page_reads: u64,
    /// Index pages dropped to make room.
    pub index_page_evictions: u64,
    /// Blocks found bad.
    pub bad_blocks: u64,
    /// Progress of the running scrub in percent.
    pub scrub_percent: Option<f64>,
    /// Bytes of log since the last checkpoint.
    pub log_since_checkpoint_bytes: u64,
    /// Entries replayed by the last start-up.
    pub replayed_entries: u64,
}

/// How a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HealthState {
    /// All is well.
    Ok,
    /// Everything works; something needs attention.
    Warning,
    /// Something does not work.
    Error,
}

/// How a server is, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// The worst of the entries.
    pub state: HealthState,
    /// Worst first.
    pub entries: Vec<HealthEntry>,
}

/// The whole of a server at a glance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// How it is.
    pub health: Health,
    /// The cluster.
    pub cluster: ClusterSummary,
    /// The node that answers.
    pub node: NodeSummary,
    /// Where it listens, and who is connected.
    pub services: Services,
    /// How much there is and how much is used.
    pub data: DataSummary,
    /// Drives.
    pub drives: Vec<Drive>,
    /// What is being done now, over all volumes, if an interval was asked for.
    pub rates: Option<Rates>,
    /// Reactors.
    pub reactors: Vec<Reactor>,
}

/// A cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterSummary {
    /// The cluster.
    pub id: ClusterId,
    /// Nothing newer than this is written.
    pub feature_level: u32,
    /// Revision of its map.
    pub revision: u64,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSummary {
    /// The node.
    pub id: NodeId,
    /// Its name.
    pub name: String,
    /// Version of its program.
    pub version: String,
    /// Its process.
    pub process: u32,
    /// Time since it started.
    pub uptime_ns: u64,
}

/// Where a node listens, and who is connected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Services {
    /// REST interface and metrics.
    pub http: String,
    /// NBD: `HOST:PORT` or `unix:PATH`.
    pub nbd: Vec<String>,
    /// Native protocol.
    pub native: String,
    /// Open NBD connections.
    pub nbd_connections: u64,
    /// Open native connections.
    pub native_connections: u64,
    /// Connections dropped because they broke the protocol or stalled.
    pub dropped_connections: u64,
}

/// How much there is and how much is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataSummary {
    /// What the drives can hold for users.
    pub capacity_bytes: u64,
    /// Live user data.
    pub live_bytes: u64,
    /// Number of active volumes.
    pub volumes: u64,
    /// Number of volumes that are being removed.
    pub volumes_removing: u64,
    /// Sum of the sizes of active volumes.
    pub provisioned_bytes: u64,
    /// What that sum may be.
    pub provisionable_bytes: u64,
    /// The setting that this follows from.
    pub overcommit_percent: u32,
}

/// A reactor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reactor {
    /// Turns of its loop.
    pub turns: u64,
    /// Time spent not asleep.
    pub busy_ns: u64,
    /// Operations submitted to its ring.
    pub operations: u64,
}
