//! Joins the cluster map and a node's counters into what the REST interface shows.

use crate::api;
use crate::backend::{DriveSnapshot, NodeSnapshot, ShardSnapshot, VolumeSnapshot};
use crate::counters::VolumeCounters;
use crate::health::{HealthEntry, Severity, derive_health};
use crate::histogram::LatencyHistogram;
use crate::state::{ClusterMap, DriveRecord, DriveState, VolumeRecord, VolumeState};

/// A node's counters now, and those of a moment before if live rates are wanted.
pub(crate) struct Sample {
    pub(crate) now: NodeSnapshot,
    pub(crate) before: Option<(NodeSnapshot, std::time::Duration)>,
}

impl Sample {
    fn volume(&self, volume: &VolumeRecord) -> Option<&VolumeSnapshot> {
        self.now.volumes.iter().find(|snapshot| snapshot.id == volume.id)
    }

    fn volume_rates(&self, now: &VolumeSnapshot) -> Option<api::Rates> {
        let (before, interval) = self.before.as_ref()?;
        let default = VolumeSnapshot::default();
        let before = before.volumes.iter().find(|snapshot| snapshot.id == now.id).unwrap_or(&default);
        Some(rates(&[(now, before)], *interval))
    }

    fn total_rates(&self) -> Option<api::Rates> {
        let (before, interval) = self.before.as_ref()?;
        let default = VolumeSnapshot::default();
        let pairs: Vec<_> = self
            .now
            .volumes
            .iter()
            .map(|now| (now, before.volumes.iter().find(|old| old.id == now.id).unwrap_or(&default)))
            .collect();
        Some(rates(&pairs, *interval))
    }
}

fn rates(pairs: &[(&VolumeSnapshot, &VolumeSnapshot)], interval: std::time::Duration) -> api::Rates {
    let seconds = interval.as_secs_f64().max(1e-3);
    let per_second = |field: fn(&VolumeCounters) -> u64| {
        let done = |(now, before): &(&VolumeSnapshot, &VolumeSnapshot)| {
            field(&now.counters).saturating_sub(field(&before.counters)) as f64
        };
        pairs.iter().map(done).sum::<f64>() / seconds
    };
    let latency = |field: fn(&VolumeCounters) -> &LatencyHistogram| {
        let mut merged = LatencyHistogram::new();
        for (now, before) in pairs {
            merged.merge(&field(&now.counters).since(field(&before.counters)));
        }
        latency(&merged)
    };
    api::Rates {
        interval_ns: u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX),
        reads_per_s: per_second(|volume| volume.reads),
        read_bytes_per_s: per_second(|volume| volume.read_bytes),
        writes_per_s: per_second(|volume| volume.writes),
        write_bytes_per_s: per_second(|volume| volume.write_bytes),
        read_latency: latency(|volume| &volume.read_latency),
        write_latency: latency(|volume| &volume.write_latency),
    }
}

fn latency(histogram: &LatencyHistogram) -> api::Latency {
    api::Latency {
        mean_ns: histogram.mean_ns(),
        p50_ns: histogram.quantile_bound_ns(500),
        p99_ns: histogram.quantile_bound_ns(990),
    }
}

pub(crate) fn volume(map: &ClusterMap, volume: &VolumeRecord, sample: &Sample) -> api::Volume {
    let snapshot = sample.volume(volume);
    let mut groups = vec![0u64; volume.placement.shards.len()];
    for index in &volume.placement.groups {
        groups[usize::from(*index)] += 1;
    }
    let placement = volume.placement.shards.iter().zip(groups).map(|(shard, groups)| api::PlacementShare {
        drive: shard.drive,
        path: map.drives.get(&shard.drive).map(|drive| drive.value.path.clone()).unwrap_or_default(),
        shard: shard.shard,
        groups,
    });
    api::Volume {
        id: volume.id,
        name: volume.name.clone(),
        size_bytes: volume.size_bytes,
        state: volume.state,
        created_unix_ns: volume.created_unix_ns,
        layer: volume.layer.0,
        shrinking_from_bytes: volume.shrinking_from_bytes,
        groups: volume.placement.groups.len() as u64,
        placement: placement.collect(),
        io: snapshot.map(|volume| volume.counters.with_latencies(latency)).unwrap_or_default(),
        rates: snapshot.and_then(|snapshot| sample.volume_rates(snapshot)),
    }
}

pub(crate) fn drives(map: &ClusterMap, snapshot: &NodeSnapshot) -> Vec<api::Drive> {
    map.drives
        .values()
        .map(|record| {
            let problem = snapshot.absent_reason(record.value.id).map(str::to_owned);
            api::Drive { problem, ..drive(&record.value, snapshot.drive(record.value.id)) }
        })
        .collect()
}

fn drive(record: &DriveRecord, snapshot: Option<&DriveSnapshot>) -> api::Drive {
    let shards: Vec<api::Shard> = snapshot
        .map(|drive| {
            drive.shards.iter().enumerate().map(|(number, state)| shard(number as u32, state)).collect()
        })
        .unwrap_or_default();
    let state = match snapshot {
        None => DriveState::Missing,
        Some(_) if shards.iter().any(|shard| shard.read_only) => DriveState::ReadOnly,
        Some(_) => record.state,
    };
    let scrubbing: Vec<f64> = shards.iter().filter_map(|shard| shard.scrub_percent).collect();
    // A shard that is done while others go on counts in full.
    let done = (shards.len() - scrubbing.len()) as f64 * 100.0;
    let scrub_percent =
        (!scrubbing.is_empty()).then(|| (scrubbing.iter().sum::<f64>() + done) / shards.len() as f64);
    api::Drive {
        id: record.id,
        path: record.path.clone(),
        state,
        problem: None,
        node: record.node,
        size_bytes: record.size_bytes,
        capacity_bytes: record.capacity_bytes,
        live_bytes: shards.iter().map(|shard| shard.live_bytes).fold(0, u64::saturating_add),
        bad_blocks: shards.iter().map(|shard| shard.bad_blocks).fold(0, u64::saturating_add),
        scrub_percent,
        write_latency: snapshot.map(|drive| latency(&drive.write_latency)).unwrap_or_default(),
        read_latency: snapshot.map(|drive| latency(&drive.read_latency)).unwrap_or_default(),
        shards,
    }
}

fn shard(number: u32, snapshot: &ShardSnapshot) -> api::Shard {
    let stats = &snapshot.stats;
    api::Shard {
        shard: number,
        reactor: snapshot.reactor,
        read_only: stats.poisoned,
        open_ns: snapshot.open_ns,
        capacity_bytes: stats.capacity_bytes,
        live_bytes: stats.live_bytes,
        segments: stats.segments,
        segments_free: stats.segments_free,
        segment_bytes: stats.segment_bytes,
        reads: stats.reads,
        read_bytes: stats.read_bytes,
        writes: stats.writes,
        write_bytes: stats.write_bytes,
        trim_bytes: stats.trim_bytes,
        drive_read_bytes: stats.drive_read_bytes,
        drive_write_bytes: stats.drive_write_bytes,
        prewrite_bytes: stats.prewrite_bytes,
        frames: stats.frames,
        cleaner_bytes: stats.cleaner_bytes,
        cleaner_segments: stats.cleaner_segments,
        metadata_bytes: stats.metadata_bytes,
        checkpoints: stats.checkpoints,
        cache_hits: stats.cache_hits,
        cache_misses: stats.cache_misses,
        cache_bytes: stats.cache_bytes,
        index_memory_bytes: stats.index_memory_bytes,
        index_page_reads: stats.index_page_reads,
        index_page_evictions: stats.index_page_evictions,
        bad_blocks: stats.bad_blocks,
        scrub_percent: stats.scrub_progress.map(|parts| f64::from(parts) / 100.0),
        log_since_checkpoint_bytes: stats.log_since_checkpoint_bytes,
        replayed_entries: stats.replayed_entries,
    }
}

pub(crate) fn health(map: &ClusterMap, snapshot: &NodeSnapshot, more: &[HealthEntry]) -> api::Health {
    let mut entries = derive_health(map, snapshot);
    entries.extend_from_slice(more);
    let state = match entries.iter().map(|entry| entry.severity).max() {
        None => api::HealthState::Ok,
        Some(Severity::Warning) => api::HealthState::Warning,
        Some(Severity::Error) => api::HealthState::Error,
    };
    api::Health { state, entries }
}

pub(crate) fn data(map: &ClusterMap, snapshot: &NodeSnapshot) -> api::DataSummary {
    let shards = snapshot.drives.iter().flat_map(|drive| &drive.shards);
    let removing = map.volumes.values().filter(|volume| volume.value.state == VolumeState::Removing).count();
    api::DataSummary {
        capacity_bytes: map.capacity_bytes(),
        live_bytes: shards.map(|shard| shard.stats.live_bytes).fold(0, u64::saturating_add),
        volumes: (map.volumes.len() - removing) as u64,
        volumes_removing: removing as u64,
        provisioned_bytes: map.provisioned_bytes(),
        provisionable_bytes: map.provisionable_bytes(),
        overcommit_percent: map.cluster.value.overcommit_percent,
    }
}

pub(crate) fn total_rates(sample: &Sample) -> Option<api::Rates> {
    sample.total_rates()
}

pub(crate) fn reactors(snapshot: &NodeSnapshot) -> Vec<api::Reactor> {
    let reactor = |reactor: &crate::backend::ReactorSnapshot| api::Reactor {
        turns: reactor.turns,
        busy_ns: reactor.busy_ns,
        operations: reactor.operations,
    };
    snapshot.reactors.iter().map(reactor).collect()
}
