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
//! | `GET /v1/pools` | | [`PoolList`] |
//! | `POST /v1/pools` | [`CreatePool`] | [`Pool`] |
//! | `POST /v1/pools/NAME/remove` | [`RemovePool`] | [`Pool`] |
//! | `GET /v1/nodes` | | [`NodeList`] |
//! | `POST /v1/nodes/remove` | [`RemoveNode`] | [`RemovedNode`] |
//! | `GET /v1/drives` | | [`DriveList`] |
//! | `POST /v1/drives/add` | [`AddDrive`] | [`Drive`] |
//! | `POST /v1/drives/reweight` | [`ReweightDrive`] | [`Drive`] |
//! | `POST /v1/drives/scrub` | [`ScrubDrives`] | [`ScrubBegun`] |
//! | `POST /v1/drives/remove` | [`RemoveDrive`] | [`RemovedDrive`] |
//! | `GET /v1/groups?volume=NAME` | | [`GroupList`] |
//! | `POST /v1/cluster/overcommit` | [`SetOvercommit`] | [`DataSummary`] |
//! | `POST /v1/cluster/forget-lost` | [`ForgetLost`] | [`LostData`] |
//! | `POST /v1/shutdown` | [`Shutdown`] | [`Shutdown`] |
//! | `GET /health` | | [`Health`], with status 503 if something does not work |
//! | `GET /metrics` | | Prometheus text |
//!
//! Between the processes of a cluster:
//!
//! | request | body | answer |
//! |---|---|---|
//! | `GET /v1/local` | | [`Local`]: what this process counts |
//! | `GET /v1/health` | | [`LeaderHealth`]: how the cluster is, as its leader sees it; of the leader only |
//! | `GET /v1/leader/silence` | | [`LeaderSilence`]: how long the node of this process has not heard the leader |
//! | `POST /v1/heartbeat` | [`Heartbeat`](coquina_cluster::Heartbeat) | [`HeartbeatReply`]; of the leader only |
//! | `POST /v1/quiesce` | [`Quiesce`] | [`Quiesce`], when nothing taken under an older map is under way |
//!
//! With `interval_ms` (up to 10,000) the server measures for that long and answers with live rates. An error
//! has a status of 400 or above and the body [`Error`].

mod internal;
mod request;

use std::collections::BTreeMap;

use coquina_base::{BLOCK_BYTES, ClusterId, DriveId, NodeId, VolumeId};
pub use coquina_cluster::{DriveState, PoolState, VolumeState, Wanted};
use coquina_cluster::{GroupCounts, HealthEntry};
use coquina_engine::{ScrubReport, ShardStats};
use serde::{Deserialize, Serialize};

use crate::counters::VolumeCounters;
pub use internal::{HeartbeatReply, LeaderHealth, LeaderSilence, Local, Quiesce};
pub use request::{
    AddDrive, CreatePool, CreateVolume, ForgetLost, RemoveDrive, RemoveNode, RemovePool, RemoveVolume,
    RenameVolume, ResizeVolume, ReweightDrive, ScrubDrives, SetOvercommit, Shutdown,
};

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

/// A drive that is removed, or would be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedDrive {
    /// The drive.
    pub id: DriveId,
    /// File or block device.
    pub path: String,
    /// Volumes that are removed with it, by name.
    pub volumes_lost: Vec<String>,
    /// The same volumes by identity.
    #[serde(default)]
    pub volume_ids_lost: Vec<VolumeId>,
    /// Whether nothing was done.
    pub dry_run: bool,
    /// Groups whose copy there has to be moved or made anew elsewhere before it is gone.
    #[serde(default)]
    pub groups_left: u64,
    /// For how long the drive's node has been silent, in milliseconds, if it is given up with a node that does not answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_ms: Option<u64>,
}

/// A node that is removed, or would be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemovedNode {
    /// The node.
    pub id: NodeId,
    /// Its name.
    pub name: String,
    /// Its drives.
    pub drives: Vec<DriveId>,
    /// Those that go although the node stays after all, since they themselves are being removed.
    #[serde(default)]
    pub drives_leaving: Vec<DriveId>,
    /// Groups whose copy there has to be moved or made anew elsewhere before it is gone.
    pub groups_left: u64,
    /// Whether nothing was done.
    pub dry_run: bool,
}

/// What drives hold of volumes that the map lost when it was put back to an older state, which is deleted, or would be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostData {
    /// The layers of these volumes, as nodes have found them that answer.
    pub layers: Vec<u64>,
    /// The nodes that have something of them.
    pub nodes: Vec<LostOnNode>,
    /// Nodes that do not answer, by name: what they have of such volumes goes, too, when they are back.
    pub silent: Vec<String>,
    /// Whether nothing was done.
    pub dry_run: bool,
}

/// What a node has of volumes that the map lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostOnNode {
    /// The node, by name.
    pub node: String,
    /// Layers of such volumes.
    pub layers: Vec<u64>,
}

/// All pools.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PoolList {
    /// By number.
    pub pools: Vec<Pool>,
}

/// A pool: volumes of the same policy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Pool {
    /// Its number.
    pub id: u32,
    /// Its name.
    pub name: String,
    /// Where it is in its life.
    pub state: PoolState,
    /// Copies of each block.
    pub copies: u32,
    /// Writes are refused while fewer copies are in sync.
    pub min_copies: u32,
    /// No two copies in the same of these.
    pub domain: String,
    /// Placement groups.
    pub groups: u32,
    /// Its groups by state, if the leader could be asked.
    pub states: Option<GroupCounts>,
    /// Active volumes.
    pub volumes: u64,
    /// Sum of their sizes, one copy.
    pub provisioned_bytes: u64,
    /// What users can still write into it, one copy, before the first shard that it has copies on is full, if nothing is written into other
    /// pools meanwhile; none if no shard of it answers, and in the answer to a change.
    #[serde(default)]
    pub available_bytes: Option<u64>,
}

/// All nodes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeList {
    /// By name.
    pub nodes: Vec<Node>,
}

/// How a node is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// It answers.
    Up,
    /// It does not answer.
    Down,
    /// Nobody can say: it does not answer here, and the leader does not count it as dead.
    #[default]
    Unknown,
}

/// A node of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// The node.
    pub id: NodeId,
    /// Its name.
    pub name: String,
    /// How it is.
    pub state: NodeState,
    /// Whether it stays.
    pub wanted: Wanted,
    /// Whether it leads: decides on failures and moves.
    pub leads: bool,
    /// Its addresses.
    pub http: String,
    /// Clients' native protocol.
    pub native: String,
    /// Other nodes.
    pub peer: String,
    /// Failure domains.
    pub domains: BTreeMap<String, String>,
    /// Version of its program, if it answers.
    pub version: Option<String>,
    /// Time since it started, if it answers.
    pub uptime_ns: Option<u64>,
    /// Drives of it in the map.
    pub drives: u64,
    /// What they can hold.
    pub capacity_bytes: u64,
    /// Live user data on them, if it answers.
    pub live_bytes: u64,
    /// Groups that have a copy in sync on it.
    pub groups: u64,
    /// Groups whose primary is on it.
    pub primaries: u64,
    /// Groups with a copy there that has to be moved before it can go.
    pub groups_left: u64,
}

/// Placement groups.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupList {
    /// By number.
    pub groups: Vec<Group>,
}

/// A placement group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Its number.
    pub id: u32,
    /// Its pool.
    pub pool: String,
    /// Number of its configuration.
    pub epoch: u64,
    /// Copies in sync, the primary first.
    pub in_sync: Vec<GroupCopy>,
    /// Copies that are absent or being brought up.
    pub others: Vec<GroupCopy>,
    /// Where the copies are to be in the end, if elsewhere.
    pub wanted: Vec<GroupCopy>,
    /// Whether its primary answers, as far as it could be asked.
    pub serving: Option<bool>,
    /// Blocks that copies which come back still lack.
    pub blocks_left: u64,
}

/// A copy of a placement group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupCopy {
    /// The node, by name.
    pub node: String,
    /// The drive.
    pub drive: DriveId,
    /// Its path.
    pub path: String,
    /// The shard on it.
    pub shard: u32,
}

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
    /// Number of placement groups that it lies on.
    pub groups: u64,
    /// The shards that have copies of them.
    pub placement: Vec<PlacementShare>,
    /// Its pool.
    #[serde(default)]
    pub pool: String,
    /// Copies of each block.
    #[serde(default)]
    pub copies: u32,
    /// Writes are refused while fewer copies are in sync.
    #[serde(default)]
    pub min_copies: u32,
    /// Bytes that go to one chunk before the next of the stripe is used.
    #[serde(default)]
    pub stripe_unit_bytes: u32,
    /// Chunks that are filled at the same time.
    #[serde(default)]
    pub stripe_count: u32,
    /// Groups with fewer copies in sync than there should be.
    #[serde(default)]
    pub groups_degraded: u64,
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
    /// How many of the volume's groups have a copy there.
    pub groups: u64,
    /// The node, by name.
    #[serde(default)]
    pub node: String,
    /// Of how many of them it is the primary.
    #[serde(default)]
    pub primaries: u64,
    /// Of how many of them the copy there is not in sync.
    #[serde(default)]
    pub groups_out: u64,
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

/// Scrubs that have begun.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScrubBegun {
    /// All drives, by identity.
    pub drives: Vec<Drive>,
    /// Nodes on which none has begun that should have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<ScrubFailed>,
}

/// A node on which no scrub has begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubFailed {
    /// The node.
    pub node: NodeId,
    /// Its name.
    pub name: String,
    /// Why not.
    pub reason: String,
}

/// A drive.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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
    /// Its node does not answer this process, and the leader does not count it as dead, so that nobody can say here how the drive
    /// is; `state` is `missing` then.
    #[serde(default)]
    pub unknown: bool,
    /// The node that has it.
    #[serde(default)]
    pub node: NodeId,
    /// The same, under the name that `coquina df` has for it.
    #[serde(default)]
    pub node_id: NodeId,
    /// Size of the file or device.
    pub size_bytes: u64,
    /// What it can hold for users.
    pub capacity_bytes: u64,
    /// Live user data on it.
    pub live_bytes: u64,
    /// Blocks found bad since the server started, each time that they were.
    pub bad_blocks: u64,
    /// Bad blocks that are known and neither repaired nor overwritten yet.
    #[serde(default)]
    pub bad_blocks_left: u64,
    /// Bad blocks repaired from another copy since the server started.
    #[serde(default)]
    pub repaired_blocks: u64,
    /// Progress of the running scrub in percent.
    pub scrub_percent: Option<f64>,
    /// What the running scrub has found so far.
    #[serde(default)]
    pub scrub: Option<Scrub>,
    /// The last scrub that ended on all shards, also before a restart; none if there was none on this node.
    #[serde(default)]
    pub last_scrub: Option<Scrub>,
    /// Latency of writes to the device.
    pub write_latency: Latency,
    /// Latency of reads from the device.
    pub read_latency: Latency,
    /// Its shards.
    pub shards: Vec<Shard>,
    /// The node's name.
    #[serde(default)]
    pub node_name: String,
    /// Whether it stays.
    #[serde(default)]
    pub wanted: Wanted,
    /// Its share of the data.
    #[serde(default)]
    pub weight: u64,
    /// Groups that have a copy on it or are to have one.
    #[serde(default)]
    pub groups: u64,
    /// Groups whose primary is on it.
    #[serde(default)]
    pub primaries: u64,
}

/// What a scrub of a drive has found, and what has become of that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Scrub {
    /// When it ended, in milliseconds since 1970, on the shard on which it ended first; none of one that is running.
    pub ended_unix_ms: Option<u64>,
    /// Bytes read.
    pub read_bytes: u64,
    /// Blocks found bad.
    pub bad_blocks: u64,
    /// Of these, repaired from another copy.
    pub repaired_blocks: u64,
    /// Of these, still bad as far as is known: neither repaired nor overwritten. The node keeps 65,536 of a shard in mind; the others
    /// count until the next scrub.
    pub bad_blocks_left: u64,
    /// Bytes passed over, since their part of the index cannot be read.
    pub skipped_bytes: u64,
}

impl Scrub {
    /// Adds what one of another shard has found.
    pub(crate) fn add(&mut self, report: &ScrubReport) {
        self.read_bytes += report.blocks * BLOCK_BYTES as u64;
        self.bad_blocks += report.bad_blocks;
        self.repaired_blocks += report.repaired_blocks;
        self.bad_blocks_left += report.bad_blocks_left;
        self.skipped_bytes += report.skipped_blocks * BLOCK_BYTES as u64;
    }
}

/// A shard of a drive; counters start at zero with the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Shard {
    /// Its number on the drive.
    pub shard: u32,
    /// The reactor that carries it.
    pub reactor: u32,
    /// Time that the last start-up took.
    pub open_ns: u64,
    /// Progress of the running scrub in percent.
    pub scrub_percent: Option<f64>,
    /// What the engine counts.
    #[serde(flatten)]
    pub stats: ShardStats,
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
    /// Reactors of the process that answers.
    pub reactors: Vec<Reactor>,
    /// All nodes.
    #[serde(default)]
    pub nodes: Vec<Node>,
    /// All placement groups by state, if the leader could be asked.
    #[serde(default)]
    pub groups: Option<GroupCounts>,
    /// Pools.
    #[serde(default)]
    pub pools: Vec<Pool>,
    /// Copies that are being brought up to date or moved.
    #[serde(default)]
    pub recovery: Recovery,
    /// The store of the map.
    #[serde(default)]
    pub store: StoreSummary,
}

/// Copies that are being brought up to date or moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recovery {
    /// Groups with a copy that is being brought up.
    pub groups: u64,
    /// Bytes that such copies still lack, as far as their primaries know.
    pub left_bytes: u64,
    /// Bytes sent to such copies since the nodes started.
    pub done_bytes: u64,
    /// Bytes per second, if an interval was asked for.
    pub bytes_per_s: Option<f64>,
    /// Time left at that rate.
    pub left_ns: Option<u64>,
}

/// The store of the map.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreSummary {
    /// Whether it answers this process.
    pub reachable: bool,
    /// Why not.
    pub problem: Option<String>,
    /// REST address of the process that leads.
    pub leader: Option<String>,
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

/// The process that answers, and the node that it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSummary {
    /// The node; zero for a process without one.
    pub id: NodeId,
    /// Its name; empty for a process without a node.
    pub name: String,
    /// What health entries call the process, be it a node or not: `node a`, or `process 127.0.0.1:10810` by its REST address for gateways
    /// and supervisors.
    #[serde(default)]
    pub process_name: String,
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
    /// What the drives can hold for users, as far as nodes answer: those that are missing do not count.
    pub capacity_bytes: u64,
    /// Live user data, all copies, as far as nodes answer.
    pub live_bytes: u64,
    /// Number of active volumes.
    pub volumes: u64,
    /// Number of volumes that are being removed.
    pub volumes_removing: u64,
    /// Sum of the sizes of active volumes, all copies.
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
    /// Time spent looking for events instead of sleeping; not part of `busy_ns`.
    pub busy_poll_ns: u64,
    /// Operations submitted to its ring.
    pub operations: u64,
    /// The processor on which it stays for now; none if it is free.
    #[serde(default)]
    pub bound_cpu: Option<u32>,
}
