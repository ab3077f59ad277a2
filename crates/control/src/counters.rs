//! What was done with a volume, as counted by reactors and as shown by the REST interface.

use serde::{Deserialize, Serialize};

use crate::histogram::LatencyHistogram;

/// What was done with a volume since the server started. `L` is how latencies are kept: as histograms, or summed up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeCounters<L = LatencyHistogram> {
    /// Open connections.
    pub connections: u64,
    /// Reads.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes, write-zeroes excluded.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Trims and write-zeroes.
    pub trims: u64,
    /// Bytes trimmed or zeroed.
    pub trim_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Requests answered with an error.
    pub errors: u64,
    /// Latency of reads, from the request's arrival to its answer.
    pub read_latency: L,
    /// Latency of writes, trims and write-zeroes, likewise.
    pub write_latency: L,
}

impl VolumeCounters {
    /// Adds what another reactor counted.
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

impl VolumeCounters {
    /// What was done since the same reactors counted `before`.
    pub fn since(&self, before: &VolumeCounters) -> VolumeCounters {
        let more = |field: fn(&VolumeCounters) -> u64| field(self).saturating_sub(field(before));
        VolumeCounters {
            connections: self.connections,
            reads: more(|one| one.reads),
            read_bytes: more(|one| one.read_bytes),
            writes: more(|one| one.writes),
            write_bytes: more(|one| one.write_bytes),
            trims: more(|one| one.trims),
            trim_bytes: more(|one| one.trim_bytes),
            flushes: more(|one| one.flushes),
            errors: more(|one| one.errors),
            read_latency: self.read_latency.since(&before.read_latency),
            write_latency: self.write_latency.since(&before.write_latency),
        }
    }
}

impl<L> VolumeCounters<L> {
    /// The same with latencies kept in another way.
    pub fn with_latencies<M>(&self, convert: impl Fn(&L) -> M) -> VolumeCounters<M> {
        VolumeCounters {
            connections: self.connections,
            reads: self.reads,
            read_bytes: self.read_bytes,
            writes: self.writes,
            write_bytes: self.write_bytes,
            trims: self.trims,
            trim_bytes: self.trim_bytes,
            flushes: self.flushes,
            errors: self.errors,
            read_latency: convert(&self.read_latency),
            write_latency: convert(&self.write_latency),
        }
    }
}
