//! What a reactor counts, as handed to the control plane.

use coquina_base::{DriveId, VolumeId};
use coquina_control::{LatencyHistogram, ReactorSnapshot, ShardSnapshot};

/// Counters of a volume on one reactor.
#[derive(Clone, Debug, Default)]
pub struct VolumeCounters {
    /// Open connections.
    pub connections: u64,
    /// Reads.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Trims and write-zeroes.
    pub trims: u64,
    /// Their bytes.
    pub trim_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Requests answered with an error.
    pub errors: u64,
    /// Latency of reads.
    pub read_latency: LatencyHistogram,
    /// Latency of changes.
    pub write_latency: LatencyHistogram,
}

impl VolumeCounters {
    /// Adds another reactor's counters.
    pub fn merge(&mut self, other: &VolumeCounters) {
        self.connections += other.connections;
        self.reads += other.reads;
        self.read_bytes += other.read_bytes;
        self.writes += other.writes;
        self.write_bytes += other.write_bytes;
        self.trims += other.trims;
        self.trim_bytes += other.trim_bytes;
        self.flushes += other.flushes;
        self.errors += other.errors;
        self.read_latency.merge(&other.read_latency);
        self.write_latency.merge(&other.write_latency);
    }
}

/// A shard, as its reactor sees it.
#[derive(Clone, Debug)]
pub struct CoreShard {
    /// Its drive.
    pub drive: DriveId,
    /// Its number on the drive.
    pub number: u32,
    /// Counters and gauges.
    pub shard: ShardSnapshot,
    /// Latency of writes to the device.
    pub write_latency: LatencyHistogram,
    /// Latency of reads from the device.
    pub read_latency: LatencyHistogram,
    /// I/Os that have been on their way for long.
    pub stalled: u64,
    /// Events worth an operator's look: what was damaged at start-up or later.
    pub damage: Vec<String>,
}

/// A reactor's counters.
#[derive(Clone, Debug, Default)]
pub struct CoreSnapshot {
    /// Its shards.
    pub shards: Vec<CoreShard>,
    /// Volumes with what they did here.
    pub volumes: Vec<(VolumeId, VolumeCounters)>,
    /// The loop itself.
    pub reactor: ReactorSnapshot,
    /// Open NBD connections.
    pub nbd_connections: u64,
    /// Open native connections.
    pub native_connections: u64,
    /// Connections dropped for what they did wrong.
    pub dropped_connections: u64,
}
