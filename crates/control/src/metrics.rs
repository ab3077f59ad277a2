//! The Prometheus text exposition (version 0.0.4) of a node, written by hand from a snapshot.
//!
//! Invariants:
//! - every series of a name stands together under one `HELP` and `TYPE`, each set of labels once, as the format demands;
//! - names begin with `coquina_`; counters end in `_total`, sizes in `_bytes`, times in `_seconds`;
//! - per-volume series can be switched off, so that many volumes do not flood a Prometheus.

use std::collections::BTreeSet;
use std::fmt::Write;

use coquina_base::{BLOCK_BYTES, DriveId, NodeId};
use coquina_cluster::{DriveState, HealthEntry, MapView, Severity, VolumeState};
use coquina_engine::ScrubReport;

use crate::backend::{DriveSnapshot, GroupRole, NodeSnapshot, ShardSnapshot, VolumeSnapshot};
use crate::catalogue::Room;
use crate::counters::VolumeCounters;
use crate::histogram::{LATENCY_BUCKETS, LatencyHistogram};
use crate::sample::Sample;
use crate::view::drive_state;

/// What to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricsOptions {
    /// Whether each volume has its own series.
    pub per_volume: bool,
}

impl Default for MetricsOptions {
    fn default() -> Self {
        MetricsOptions { per_volume: true }
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// The text as it grows.
struct Exposition {
    text: String,
}

impl Exposition {
    fn family(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        // Writing to a string cannot fail.
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn sample(&mut self, name: &str, labels: &Labels, value: impl std::fmt::Display) {
        let _ = writeln!(self.text, "{name}{} {value}", labels.braced());
    }

    fn histogram(&mut self, name: &str, labels: &Labels, histogram: &LatencyHistogram) {
        let mut cumulative = 0u64;
        for bucket in 0..LATENCY_BUCKETS {
            cumulative = cumulative.saturating_add(histogram.counts[bucket]);
            let bound = match LatencyHistogram::bound_ns(bucket) {
                Some(bound_ns) => seconds(bound_ns),
                None => "+Inf".to_owned(),
            };
            self.sample(&format!("{name}_bucket"), &labels.with("le", &bound), cumulative);
        }
        self.sample(&format!("{name}_sum"), labels, seconds(histogram.sum_ns));
        self.sample(&format!("{name}_count"), labels, cumulative);
    }
}

/// Exact decimal seconds.
fn seconds(ns: u64) -> String {
    let text = format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[derive(Clone, Default)]
struct Labels(String);

impl Labels {
    fn with(&self, name: &str, value: &str) -> Labels {
        let separator = if self.0.is_empty() { "" } else { "," };
        let mut escaped = String::with_capacity(value.len());
        for character in value.chars() {
            match character {
                '\\' => escaped.push_str("\\\\"),
                '"' => escaped.push_str("\\\""),
                '\n' => escaped.push_str("\\n"),
                other => escaped.push(other),
            }
        }
        Labels(format!("{}{separator}{name}=\"{escaped}\"", self.0))
    }

    fn braced(&self) -> String {
        if self.0.is_empty() { String::new() } else { format!("{{{}}}", self.0) }
    }
}

/// The whole exposition of a process: what it counts, the map that it has, and the state of all groups if it leads.
pub(crate) fn render_metrics(
    map: &MapView,
    sample: &Sample,
    more: &[HealthEntry],
    options: MetricsOptions,
) -> String {
    let mut out = Exposition { text: String::with_capacity(16 << 10) };
    let none = NodeSnapshot::default();
    let local = sample.now.processes().next();
    let snapshot = local.map_or(&none, |local| &local.snapshot);
    node_series(&mut out, map, snapshot);
    cluster_series(&mut out, map, sample);
    health_series(&mut out, &local_health(map, sample, more));
    copy_series(&mut out, snapshot);
    shard_series(&mut out, &snapshot.drives);
    drive_states(&mut out, map, local.and_then(|local| local.node), snapshot);
    drive_series(&mut out, &snapshot.drives);
    if options.per_volume {
        volume_series(&mut out, map, &snapshot.volumes);
    }
    out.text
}

/// What this process knows to be wrong. That it does not lead, and does not know of other nodes, is nothing wrong.
fn local_health(map: &MapView, sample: &Sample, more: &[HealthEntry]) -> Vec<HealthEntry> {
    let mut sample = sample.clone();
    if sample.leader.is_some() {
        sample.leader_health.get_or_insert_default();
    }
    let mut entries = sample.health(map, more);
    if sample.leader.is_none() {
        entries.retain(|entry| entry.code != coquina_cluster::HealthCode::NodeDown);
    }
    entries
}

/// The state of the cluster, of the process that leads only: others do not judge.
fn cluster_series(out: &mut Exposition, map: &MapView, sample: &Sample) {
    let none = Labels::default();
    out.family("coquina_leads", Kind::Gauge, "1 if this process leads the cluster.");
    out.sample("coquina_leads", &none, u64::from(sample.leader_health.is_some()));
    out.family("coquina_store_reachable", Kind::Gauge, "1 if the store of the map answers.");
    out.sample("coquina_store_reachable", &none, u64::from(sample.store.unreachable.is_none()));
    let Some(leader) = &sample.leader_health else { return };
    let name = "coquina_groups";
    out.family(
        name,
        Kind::Gauge,
        "Placement groups by state; one can be in several, so that they do not add up.",
    );
    for pool in map.pools() {
        let counts = leader.health.pools.get(&pool.value.id).copied().unwrap_or_default();
        let states = [
            ("active_clean", counts.active_clean),
            ("down", counts.down),
            ("below_min_copies", counts.below_min_copies),
            ("degraded", counts.degraded),
            ("undersized", counts.undersized),
            ("recovering", counts.recovering),
            ("stuck", counts.stuck),
            ("moving", counts.moving),
        ];
        for (state, count) in states {
            out.sample(name, &none.with("pool", &pool.value.name).with("state", state), count);
        }
    }
    let name = "coquina_pool_groups";
    out.family(name, Kind::Gauge, "Placement groups of each pool.");
    for pool in map.pools() {
        let counts = leader.health.pools.get(&pool.value.id).copied().unwrap_or_default();
        out.sample(name, &none.with("pool", &pool.value.name), counts.total);
    }
    let name = "coquina_copies_missing";
    out.family(name, Kind::Gauge, "Copies of placement groups that are missing.");
    out.sample(name, &none, leader.health.groups.copies_missing);
    let name = "coquina_node_up";
    out.family(name, Kind::Gauge, "1 unless the leader counts the node as dead.");
    for node in map.nodes() {
        let up = !leader.dead.contains(&node.value.id);
        out.sample(name, &none.with("node", &node.value.name), u64::from(up));
    }
}

/// The copies of groups here, and the connections to others.
fn copy_series(out: &mut Exposition, snapshot: &NodeSnapshot) {
    let none = Labels::default();
    let groups = || snapshot.drives.iter().flat_map(|drive| &drive.shards).flat_map(|shard| &shard.groups);
    let name = "coquina_copies";
    out.family(name, Kind::Gauge, "Copies of placement groups here, by role.");
    for role in [GroupRole::Primary, GroupRole::Backup, GroupRole::Out] {
        let count = groups().filter(|group| group.role == role).count();
        out.sample(name, &none.with("role", role.as_str()), count);
    }
    let name = "coquina_copies_serving";
    out.family(name, Kind::Gauge, "Primaries here that answer reads and writes.");
    out.sample(name, &none, groups().filter(|group| group.serving).count());
    let name = "coquina_recovery_blocks_left";
    out.family(name, Kind::Gauge, "Blocks that copies which come back still lack, by primaries here.");
    let left = groups().map(|group| group.recovering_blocks_left).fold(0, u64::saturating_add);
    out.sample(name, &none, left);
    let name = "coquina_differing_blocks";
    out.family(name, Kind::Gauge, "Blocks in ranges in which copies in sync differ, found by scrubs.");
    out.sample(name, &none, groups().map(|group| group.differing_blocks).fold(0, u64::saturating_add));
    let name = "coquina_recovery_blocks_total";
    out.family(name, Kind::Counter, "Blocks sent to copies that came back.");
    out.sample(name, &none, snapshot.recovered_blocks());
    let name = "coquina_peers";
    out.family(name, Kind::Gauge, "Connections to other copies.");
    for (label, connected) in [("connected", true), ("broken", false)] {
        let count = snapshot.peers.iter().filter(|peer| peer.connected == connected).count();
        out.sample(name, &none.with("state", label), count);
    }
    let totals = &snapshot.copy_totals;
    let counters = [
        ("coquina_peer_sent_bytes_total", "Bytes sent to other copies.", totals.sent_bytes),
        ("coquina_peer_received_bytes_total", "Bytes that came from other copies.", totals.received_bytes),
    ];
    for (name, help, value) in counters {
        out.family(name, Kind::Counter, help);
        out.sample(name, &none, value);
    }
}

fn node_series(out: &mut Exposition, map: &MapView, snapshot: &NodeSnapshot) {
    let none = Labels::default();
    let room = Room::of(map);
    let mut one = |name: &str, kind: Kind, help: &str, value: String| {
        out.family(name, kind, help);
        out.sample(name, &none, value);
    };
    one("coquina_uptime_seconds", Kind::Gauge, "Time since the server started.", seconds(snapshot.uptime_ns));
    let gauges: [(&str, &str, u64); 4] = [
        (
            "coquina_capacity_bytes",
            "What the drives can hold for users that the map does not call missing or given up, even if their nodes do not answer.",
            room.capacity_bytes,
        ),
        ("coquina_provisioned_bytes", "Sum of the sizes of all volumes, all copies.", room.provisioned_bytes),
        ("coquina_provisionable_bytes", "What the sizes may add up to.", room.provisionable_bytes),
        ("coquina_map_revision", "Revision of the cluster map.", map.revision()),
    ];
    for (name, help, value) in gauges {
        one(name, Kind::Gauge, help, value.to_string());
    }
    let dropped = "Connections dropped because they broke the protocol or stalled.";
    one(
        "coquina_dropped_connections_total",
        Kind::Counter,
        dropped,
        snapshot.dropped_connections.to_string(),
    );

    out.family("coquina_connections", Kind::Gauge, "Open connections.");
    out.sample("coquina_connections", &none.with("protocol", "nbd"), snapshot.nbd_connections);
    out.sample("coquina_connections", &none.with("protocol", "native"), snapshot.native_connections);
    out.family("coquina_volumes", Kind::Gauge, "Volumes by state.");
    for (label, state) in [("active", VolumeState::Active), ("removing", VolumeState::Removing)] {
        let count = map.volumes().filter(|volume| volume.value.state == state).count();
        out.sample("coquina_volumes", &none.with("state", label), count);
    }
    let reactors = |index: usize| none.with("reactor", &index.to_string());
    out.family("coquina_reactor_busy_seconds_total", Kind::Counter, "Time that a reactor was not asleep.");
    for (index, reactor) in snapshot.reactors.iter().enumerate() {
        out.sample("coquina_reactor_busy_seconds_total", &reactors(index), seconds(reactor.busy_ns));
    }
    let text = "Time that a reactor looked for events instead of sleeping.";
    out.family("coquina_reactor_busy_poll_seconds_total", Kind::Counter, text);
    for (index, reactor) in snapshot.reactors.iter().enumerate() {
        out.sample(
            "coquina_reactor_busy_poll_seconds_total",
            &reactors(index),
            seconds(reactor.busy_poll_ns),
        );
    }
    out.family("coquina_reactor_turns_total", Kind::Counter, "Turns of a reactor's loop.");
    for (index, reactor) in snapshot.reactors.iter().enumerate() {
        out.sample("coquina_reactor_turns_total", &reactors(index), reactor.turns);
    }
    out.family(
        "coquina_reactor_operations_total",
        Kind::Counter,
        "Operations submitted to a reactor's ring.",
    );
    for (index, reactor) in snapshot.reactors.iter().enumerate() {
        out.sample("coquina_reactor_operations_total", &reactors(index), reactor.operations);
    }
    let text =
        "The processor on which a reactor stays for now, that of its drives' interrupts; -1 if it is free.";
    out.family("coquina_reactor_bound_cpu", Kind::Gauge, text);
    for (index, reactor) in snapshot.reactors.iter().enumerate() {
        let cpu = reactor.bound_cpu.map_or(-1, i64::from);
        out.sample("coquina_reactor_bound_cpu", &reactors(index), cpu);
    }
}

fn health_series(out: &mut Exposition, health: &[HealthEntry]) {
    let worst = match health.iter().map(|entry| entry.severity).max() {
        None | Some(Severity::Notice) => 0,
        Some(Severity::Warning) => 1,
        Some(Severity::Error) => 2,
    };
    out.family("coquina_health_status", Kind::Gauge, "0 ok, 1 warning, 2 error.");
    out.sample("coquina_health_status", &Labels::default(), worst);
    out.family("coquina_health_entry", Kind::Gauge, "1 for everything that is wrong now.");
    // Several entries may differ in what they say alone: bad blocks of one drive, say.
    let mut told = BTreeSet::new();
    for entry in health {
        let severity = match entry.severity {
            Severity::Notice => "notice",
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        let labels = Labels::default()
            .with("code", entry.code.as_str())
            .with("severity", severity)
            .with("subject", &entry.subject);
        if told.insert(labels.0.clone()) {
            out.sample("coquina_health_entry", &labels, 1);
        }
    }
}

type ShardField = fn(&ShardSnapshot) -> u64;

/// What the scrub that is running has found, or the last one.
fn scrub(shard: &ShardSnapshot) -> ScrubReport {
    shard.scrub.or(shard.last_scrub.map(|record| record.report)).unwrap_or_default()
}

const SHARD_GAUGES: [(&str, &str, ShardField); 17] = [
    ("coquina_shard_capacity_bytes", "What a shard can hold for users.", |shard| shard.stats.capacity_bytes),
    ("coquina_shard_live_bytes", "Live user data.", |shard| shard.stats.live_bytes),
    ("coquina_shard_segments", "Segments in all.", |shard| shard.stats.segments),
    ("coquina_shard_segments_free", "Segments ready to be written.", |shard| shard.stats.segments_free),
    ("coquina_shard_read_only", "1 if a failed write has made the shard read-only.", |shard| {
        u64::from(shard.stats.poisoned)
    }),
    ("coquina_shard_cache_bytes", "Bytes held by the block cache and by frames of moved blocks.", |shard| {
        shard.stats.cache_bytes
    }),
    ("coquina_shard_index_memory_bytes", "Memory that the index takes.", |shard| {
        shard.stats.index_memory_bytes
    }),
    ("coquina_shard_unprepared_bytes", "Bytes to be zeroed ahead while the drive is idle.", |shard| {
        shard.stats.unprepared_bytes
    }),
    ("coquina_shard_scrub_running", "1 while a scrub runs.", |shard| {
        u64::from(shard.stats.scrub_progress.is_some())
    }),
    ("coquina_shard_scrub_progress_percent", "How far the running scrub is; 0 if none runs.", |shard| {
        u64::from(shard.stats.scrub_progress.unwrap_or(0) / 100)
    }),
    (
        "coquina_shard_scrubbed_timestamp_seconds",
        "When the last scrub ended, in seconds since 1970; 0 if none has.",
        |shard| shard.last_scrub.map_or(0, |record| record.ended_unix_ms / 1000),
    ),
    ("coquina_shard_scrub_read_bytes", "Bytes read by the running scrub, or the last one.", |shard| {
        scrub(shard).blocks * BLOCK_BYTES as u64
    }),
    ("coquina_shard_scrub_bad_blocks", "Blocks that it found bad.", |shard| scrub(shard).bad_blocks),
    ("coquina_shard_scrub_repaired_blocks", "Of these, repaired from another copy.", |shard| {
        scrub(shard).repaired_blocks
    }),
    ("coquina_shard_scrub_bad_blocks_left", "Of these, still bad.", |shard| scrub(shard).bad_blocks_left),
    ("coquina_shard_bad_blocks", "Bad blocks that are not repaired.", |shard| shard.stats.bad_blocks_left),
    ("coquina_shard_log_since_checkpoint_bytes", "Log that a restart would replay.", |shard| {
        shard.stats.log_since_checkpoint_bytes
    }),
];

const SHARD_COUNTERS: [(&str, &str, ShardField); 21] = [
    ("coquina_shard_reads_total", "Reads, in requests.", |shard| shard.stats.reads),
    ("coquina_shard_read_bytes_total", "Bytes read by requests.", |shard| shard.stats.read_bytes),
    ("coquina_shard_writes_total", "Changes, in requests.", |shard| shard.stats.writes),
    ("coquina_shard_write_bytes_total", "Bytes written by requests.", |shard| shard.stats.write_bytes),
    ("coquina_shard_trim_bytes_total", "Bytes trimmed or zeroed.", |shard| shard.stats.trim_bytes),
    ("coquina_shard_drive_read_bytes_total", "Bytes read from the drive.", |shard| {
        shard.stats.drive_read_bytes
    }),
    ("coquina_shard_drive_write_bytes_total", "Bytes written to the drive.", |shard| {
        shard.stats.drive_write_bytes
    }),
    ("coquina_shard_prewrite_bytes_total", "Zeros written ahead.", |shard| shard.stats.prewrite_bytes),
    ("coquina_shard_frames_total", "Frames written.", |shard| shard.stats.frames),
    ("coquina_shard_cleaner_bytes_total", "Bytes moved by the cleaner.", |shard| shard.stats.cleaner_bytes),
    ("coquina_shard_cleaner_cached_bytes_total", "Bytes that the cleaner found in memory.", |shard| {
        shard.stats.cleaner_cached_bytes
    }),
    ("coquina_shard_cleaner_segments_total", "Segments freed by the cleaner.", |shard| {
        shard.stats.cleaner_segments
    }),
    ("coquina_shard_metadata_bytes_total", "Bytes of checkpoints and index pages.", |shard| {
        shard.stats.metadata_bytes
    }),
    ("coquina_shard_checkpoints_total", "Checkpoints completed.", |shard| shard.stats.checkpoints),
    ("coquina_shard_cache_hits_total", "Blocks served from memory.", |shard| shard.stats.cache_hits),
    ("coquina_shard_cache_misses_total", "Blocks read from the drive.", |shard| shard.stats.cache_misses),
    ("coquina_shard_index_page_reads_total", "Index pages read.", |shard| shard.stats.index_page_reads),
    ("coquina_shard_index_page_evictions_total", "Index pages dropped.", |shard| {
        shard.stats.index_page_evictions
    }),
    ("coquina_shard_bad_blocks_total", "Blocks found bad.", |shard| shard.stats.bad_blocks),
    ("coquina_shard_log_cuts_total", "Damaged logs cut at the start.", |shard| shard.stats.log_cuts),
    ("coquina_shard_repaired_blocks_total", "Bad blocks repaired from another copy.", |shard| {
        shard.stats.repaired_blocks
    }),
];

fn drive_labels(drive: &DriveSnapshot) -> Labels {
    labels_of_drive(drive.id, &drive.path)
}

fn labels_of_drive(id: DriveId, path: &str) -> Labels {
    Labels::default().with("drive", &id.to_string()).with("path", path)
}

fn shard_series(out: &mut Exposition, drives: &[DriveSnapshot]) {
    let gauges = SHARD_GAUGES.iter().map(|(name, help, field)| (name, help, field, Kind::Gauge));
    let counters = SHARD_COUNTERS.iter().map(|(name, help, field)| (name, help, field, Kind::Counter));
    for (name, help, field, kind) in gauges.chain(counters) {
        out.family(name, kind, help);
        for drive in drives {
            for (number, shard) in drive.shards.iter().enumerate() {
                out.sample(name, &drive_labels(drive).with("shard", &number.to_string()), field(shard));
            }
        }
    }
}

/// The states of this node's drives, those included that it cannot serve.
fn drive_states(out: &mut Exposition, map: &MapView, node: Option<NodeId>, snapshot: &NodeSnapshot) {
    let name = "coquina_drive_state";
    out.family(name, Kind::Gauge, "1 for the state that the drive is in.");
    for record in node.into_iter().flat_map(|node| map.drives_of(node)) {
        let served = snapshot.drive(record.id);
        let path = served.map_or(&record.path, |drive| &drive.path);
        let now = drive_state(record, Some(snapshot), served);
        for state in [DriveState::Healthy, DriveState::ReadOnly, DriveState::Missing, DriveState::GivenUp] {
            let label = match state {
                DriveState::Healthy => "healthy",
                DriveState::ReadOnly => "read_only",
                DriveState::Missing => "missing",
                DriveState::GivenUp => "given_up",
            };
            let labels = labels_of_drive(record.id, path).with("state", label);
            out.sample(name, &labels, u64::from(now == state));
        }
    }
}

fn drive_series(out: &mut Exposition, drives: &[DriveSnapshot]) {
    out.family("coquina_drive_size_bytes", Kind::Gauge, "Size of the file or device.");
    for drive in drives {
        out.sample("coquina_drive_size_bytes", &drive_labels(drive), drive.size_bytes);
    }
    let name = "coquina_drive_latency_seconds";
    out.family(name, Kind::Histogram, "Latency of the device.");
    for drive in drives {
        out.histogram(name, &drive_labels(drive).with("operation", "write"), &drive.write_latency);
        out.histogram(name, &drive_labels(drive).with("operation", "read"), &drive.read_latency);
    }
}

type VolumeField = fn(&VolumeCounters) -> u64;

const VOLUME_COUNTERS: [(&str, &str, VolumeField); 8] = [
    ("coquina_volume_reads_total", "Reads.", |volume| volume.reads),
    ("coquina_volume_read_bytes_total", "Bytes read.", |volume| volume.read_bytes),
    ("coquina_volume_writes_total", "Writes.", |volume| volume.writes),
    ("coquina_volume_write_bytes_total", "Bytes written.", |volume| volume.write_bytes),
    ("coquina_volume_trims_total", "Trims and write-zeroes.", |volume| volume.trims),
    ("coquina_volume_trim_bytes_total", "Bytes trimmed or zeroed.", |volume| volume.trim_bytes),
    ("coquina_volume_flushes_total", "Flushes.", |volume| volume.flushes),
    ("coquina_volume_errors_total", "Requests answered with an error.", |volume| volume.errors),
];

fn volume_series(out: &mut Exposition, map: &MapView, volumes: &[VolumeSnapshot]) {
    let labels = |volume: &VolumeSnapshot| Labels::default().with("volume", &volume.name);
    out.family("coquina_volume_size_bytes", Kind::Gauge, "Size of a volume.");
    for volume in map.volumes().filter(|volume| volume.value.state == VolumeState::Active) {
        let labels = Labels::default().with("volume", &volume.value.name);
        out.sample("coquina_volume_size_bytes", &labels, volume.value.size_bytes);
    }
    out.family("coquina_volume_connections", Kind::Gauge, "Open connections.");
    for volume in volumes {
        out.sample("coquina_volume_connections", &labels(volume), volume.counters.connections);
    }
    for (name, help, field) in VOLUME_COUNTERS {
        out.family(name, Kind::Counter, help);
        for volume in volumes {
            out.sample(name, &labels(volume), field(&volume.counters));
        }
    }
    let name = "coquina_volume_latency_seconds";
    out.family(name, Kind::Histogram, "Latency from a request's arrival to its answer.");
    for volume in volumes {
        out.histogram(name, &labels(volume).with("operation", "write"), &volume.counters.write_latency);
        out.histogram(name, &labels(volume).with("operation", "read"), &volume.counters.read_latency);
    }
}
