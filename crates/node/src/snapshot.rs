//! What a reactor counts, as handed to the control plane.

use std::sync::Arc;

use coquina_base::{DriveId, VolumeId};
use coquina_cluster::{HealthCode, HealthEntry, Severity};
use coquina_control::{
    CopyTotals, DriveSnapshot, GroupRole, GroupSnapshot, LatencyHistogram, PeerSnapshot, ReactorSnapshot,
    ReturningCopy, ScrubRecord, ShardSnapshot, VolumeCounters,
};

use crate::connection::Protocol;
use crate::core::{Core, ShardSlot};
use crate::node::NodeDrive;
use crate::scrubs::Scrubs;

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
    /// Connections to other copies.
    pub peers: Vec<PeerSnapshot>,
    /// What its shards have done for other copies.
    pub copy_totals: CopyTotals,
    /// The loop itself.
    pub reactor: ReactorSnapshot,
    /// Open NBD connections.
    pub nbd_connections: u64,
    /// Open native connections.
    pub native_connections: u64,
    /// Connections dropped for what they did wrong.
    pub dropped_connections: u64,
}

/// What shards have done for other copies, those included whose drives are gone.
pub(crate) fn copy_totals(shards: &[ShardSlot]) -> CopyTotals {
    let mut totals = CopyTotals::default();
    for slot in shards {
        let (sent_bytes, received_bytes) = slot.peers.bytes();
        let recovered_blocks = slot.copies().recovered_blocks_total();
        totals.add(&CopyTotals { recovered_blocks, sent_bytes, received_bytes });
    }
    totals
}

/// A drive, put together from what the reactors of its shards say.
pub(crate) fn drive_snapshot(
    drive: &NodeDrive,
    cores: &[Arc<CoreSnapshot>],
    scrubs: &Scrubs,
    health: &mut Vec<HealthEntry>,
) -> DriveSnapshot {
    let mut snapshot = DriveSnapshot {
        id: drive.id,
        path: drive.path.display().to_string(),
        size_bytes: drive.size_bytes,
        ..DriveSnapshot::default()
    };
    for number in 0..drive.shards {
        let shards = cores.iter().flat_map(|core| &core.shards);
        let Some(shard) = shards.into_iter().find(|shard| shard.drive == drive.id && shard.number == number)
        else {
            continue;
        };
        let mut seen = shard.shard.clone();
        seen.last_scrub = seen.last_scrub.or_else(|| scrubs.last(drive.id, number));
        snapshot.shards.push(seen);
        snapshot.write_latency.merge(&shard.write_latency);
        snapshot.read_latency.merge(&shard.read_latency);
        if shard.stalled > 0 {
            let message = format!("{} I/O(s) have been on their way for over 5 s", shard.stalled);
            health.push(HealthEntry::new(
                HealthCode::SlowDrive,
                Severity::Warning,
                snapshot.path.clone(),
                message,
            ));
        }
        for damage in &shard.damage {
            let path = snapshot.path.clone();
            health.push(HealthEntry::new(HealthCode::DamagedLog, Severity::Error, path, damage.clone()));
        }
    }
    snapshot
}

impl ShardSlot {
    fn snapshot(&self, reactor: u32) -> ShardSnapshot {
        let copies = self.copies();
        let (stats, report) = (copies.stats(), copies.shard().scrub_report());
        let under_way = report.filter(|_| stats.scrub_progress.is_some());
        // What has become of what the last one found is known as long as no other one has begun.
        let ended = report.filter(|_| stats.scrub_progress.is_none());
        let last_scrub = self.last_scrub.map(|record| match ended {
            Some(report) => ScrubRecord { report, ..record },
            None => record,
        });
        let groups: Vec<GroupSnapshot> =
            copies.groups().into_iter().filter_map(|group| self.group(group)).collect();
        let primaries = groups.iter().filter(|group| group.role == GroupRole::Primary);
        let returning = primaries.flat_map(|&GroupSnapshot { group, epoch, .. }| {
            let left = copies.returning_blocks_left(group).into_iter();
            left.map(move |(copy, blocks_left)| ReturningCopy { group, epoch, copy: copy.0, blocks_left })
        });
        ShardSnapshot {
            returning: returning.collect(),
            stats,
            scrub: under_way,
            last_scrub,
            scrub_blocks_left: report.map_or(0, |report| report.bad_blocks_left),
            reactor,
            open_ns: self.open_ns,
            groups,
        }
    }
}

impl Core {
    /// What it counts now.
    pub(crate) fn snapshot(&self) -> CoreSnapshot {
        let shards = self.shards.iter().filter(|slot| !slot.released).map(|slot| CoreShard {
            drive: slot.reference.drive,
            number: slot.reference.shard,
            shard: slot.snapshot(self.index as u32),
            write_latency: slot.write_latency,
            read_latency: slot.read_latency,
            stalled: slot.stalled,
            damage: slot.damage.clone(),
        });
        let volumes = self.volumes.iter().map(|volume| (volume.record.id, volume.counters));
        let count = |protocol| self.connections.iter().filter(|(_, one)| one.protocol() == protocol).count();
        CoreSnapshot {
            shards: shards.collect(),
            volumes: volumes.collect(),
            reactor: ReactorSnapshot {
                turns: self.turns,
                busy_ns: self.busy_ns,
                busy_poll_ns: self.reactor.busy_poll_ns(),
                operations: self.operations,
                bound_cpu: self.placement.cpu(),
            },
            peers: self
                .shards
                .iter()
                .flat_map(|slot| slot.peers.snapshot(&self.map, &self.connections))
                .collect(),
            // Of drives that are gone, too: what was counted does not fall.
            copy_totals: copy_totals(&self.shards),
            nbd_connections: count(Protocol::Nbd) as u64,
            native_connections: count(Protocol::Native) as u64,
            dropped_connections: self.dropped_connections,
        }
    }
}
