//! Joins the cluster map and what processes count into what the REST interface shows.

mod available;
mod lost;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use coquina_base::{BLOCK_BYTES, NodeId};
use coquina_cluster::{
    DriveRecord, DriveState, GroupId, GroupRecord, HealthEntry, MapView, NodeRecord, PoolId, PoolRecord,
    ShardRef, VolumeRecord, VolumeState,
};

use crate::api;
use crate::backend::{DriveSnapshot, NodeSnapshot, ShardSnapshot};
use crate::catalogue::Room;
use crate::counters::VolumeCounters;
use crate::health;
use crate::histogram::LatencyHistogram;
use crate::sample::Sample;

pub(crate) use lost::lost;

/// Most chunks of a volume that are looked at to find its groups: after so many it has nearly all of its pool.
const CHUNKS_LOOKED_AT: u64 = 1 << 16;

fn latency(histogram: &LatencyHistogram) -> api::Latency {
    api::Latency {
        mean_ns: histogram.mean_ns(),
        p50_ns: histogram.quantile_bound_ns(500),
        p99_ns: histogram.quantile_bound_ns(990),
    }
}

/// `done` is what was done within the interval.
fn rates(done: &VolumeCounters, interval: Duration) -> api::Rates {
    let seconds = interval.as_secs_f64().max(1e-3);
    let per_second = |count: u64| count as f64 / seconds;
    api::Rates {
        interval_ns: u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX),
        reads_per_s: per_second(done.reads),
        read_bytes_per_s: per_second(done.read_bytes),
        writes_per_s: per_second(done.writes),
        write_bytes_per_s: per_second(done.write_bytes),
        read_latency: latency(&done.read_latency),
        write_latency: latency(&done.write_latency),
    }
}

/// What is being done with all volumes.
pub(crate) fn total_rates(sample: &Sample) -> Option<api::Rates> {
    let (before, interval) = sample.before.as_ref()?;
    Some(rates(&sample.now.volumes_since(before), *interval))
}

pub(crate) fn node_name(map: &MapView, node: NodeId) -> String {
    map.node(node).map(|node| node.name.clone()).unwrap_or_default()
}

/// The groups that a volume's chunks lie in.
pub(crate) fn groups_of<'a>(map: &'a MapView, volume: &VolumeRecord) -> Vec<&'a GroupRecord> {
    let Some(pool) = map.pool(volume.pool) else { return Vec::new() };
    let chunks = volume.chunks();
    let all = u64::from(pool.group_count);
    let mut found: BTreeSet<GroupId> = BTreeSet::new();
    for chunk in 0..chunks.min(CHUNKS_LOOKED_AT) {
        if found.len() as u64 == all {
            break;
        }
        found.insert(coquina_cluster::group_of(pool, volume.family, chunk as u32));
    }
    found.into_iter().filter_map(|group| map.group(group)).collect()
}

pub(crate) fn volume(map: &MapView, volume: &VolumeRecord, sample: &Sample) -> api::Volume {
    let pool = map.pool(volume.pool);
    let copies = pool.map_or(0, |pool| pool.copies);
    let groups = groups_of(map, volume);
    let mut shares: BTreeMap<ShardRef, api::PlacementShare> = BTreeMap::new();
    for group in &groups {
        for shard in group.members() {
            let share = shares.entry(shard).or_insert_with(|| share(map, shard));
            share.groups += 1;
            share.primaries += u64::from(group.primary() == Some(shard));
            share.groups_out += u64::from(!group.in_sync.contains(&shard));
        }
    }
    let counters = sample.now.volume(volume.id);
    let degraded = groups.iter().filter(|group| group.in_sync.len() < copies as usize).count();
    let before = sample.before.as_ref();
    api::Volume {
        id: volume.id,
        name: volume.name.clone(),
        size_bytes: volume.size_bytes,
        state: volume.state,
        created_unix_ns: volume.created_unix_ns,
        layer: volume.layer.0,
        shrinking_from_bytes: volume.shrinking_from_bytes,
        groups: groups.len() as u64,
        placement: shares.into_values().collect(),
        pool: pool.map(|pool| pool.name.clone()).unwrap_or_default(),
        copies,
        min_copies: pool.map_or(0, |pool| pool.min_copies),
        stripe_unit_bytes: volume.stripe_unit_bytes,
        stripe_count: volume.stripe_count,
        groups_degraded: degraded as u64,
        io: counters.with_latencies(latency),
        rates: before.map(|(before, interval)| rates(&sample.now.volume_since(before, volume.id), *interval)),
    }
}

fn share(map: &MapView, shard: ShardRef) -> api::PlacementShare {
    let drive = map.drive(shard.drive);
    api::PlacementShare {
        drive: shard.drive,
        path: drive.map(|drive| drive.path.clone()).unwrap_or_default(),
        shard: shard.shard,
        groups: 0,
        node: drive.map(|drive| node_name(map, drive.node)).unwrap_or_default(),
        primaries: 0,
        groups_out: 0,
    }
}

/// How many groups have a copy in sync on each drive, and how many their primary.
pub(crate) type Shares = BTreeMap<coquina_base::DriveId, (u64, u64)>;

pub(crate) fn shares(map: &MapView) -> Shares {
    let mut shares = Shares::new();
    for group in map.groups() {
        for shard in &group.in_sync {
            shares.entry(shard.drive).or_default().0 += 1;
        }
        if let Some(primary) = group.primary() {
            shares.entry(primary.drive).or_default().1 += 1;
        }
    }
    shares
}

pub(crate) fn drives(map: &MapView, sample: &Sample) -> Vec<api::Drive> {
    let shares = shares(map);
    map.drives().map(|record| drive(map, &record.value, sample, &shares)).collect()
}

pub(crate) fn drive(map: &MapView, record: &DriveRecord, sample: &Sample, shares: &Shares) -> api::Drive {
    let local = sample.now.nodes.get(&record.node).map(|local| &local.snapshot);
    let snapshot = local.and_then(|local| local.drive(record.id));
    let shards: Vec<api::Shard> = snapshot
        .map(|drive| {
            drive.shards.iter().enumerate().map(|(number, state)| shard(number as u32, state)).collect()
        })
        .unwrap_or_default();
    let scrubbing: Vec<f64> = shards.iter().filter_map(|shard| shard.scrub_percent).collect();
    // A shard that is done while others go on counts in full.
    let done = (shards.len() - scrubbing.len()) as f64 * 100.0;
    let scrub_percent =
        (!scrubbing.is_empty()).then(|| (scrubbing.iter().sum::<f64>() + done) / shards.len() as f64);
    let sum = |field: fn(&api::Shard) -> u64| shards.iter().map(field).fold(0, u64::saturating_add);
    let primaries = shares.get(&record.id).map_or(0, |(_, primaries)| *primaries);
    let groups = map.used_shards_of(record.id).map(|(_, groups)| groups.len() as u64).sum();
    api::Drive {
        id: record.id,
        path: record.path.clone(),
        state: drive_state(record, local, snapshot),
        problem: problem(map, record, local),
        unknown: local.is_none()
            && matches!(record.state, DriveState::Healthy | DriveState::ReadOnly)
            && !is_dead(sample, record.node),
        node: record.node,
        node_id: record.node,
        size_bytes: record.size_bytes,
        capacity_bytes: record.capacity_bytes,
        live_bytes: sum(|shard| shard.stats.live_bytes),
        bad_blocks: sum(|shard| shard.stats.bad_blocks),
        bad_blocks_left: sum(|shard| shard.stats.bad_blocks_left),
        repaired_blocks: sum(|shard| shard.stats.repaired_blocks),
        scrub_percent,
        scrub: running_scrub(snapshot),
        last_scrub: last_scrub(snapshot),
        write_latency: snapshot.map(|drive| latency(&drive.write_latency)).unwrap_or_default(),
        read_latency: snapshot.map(|drive| latency(&drive.read_latency)).unwrap_or_default(),
        shards,
        node_name: node_name(map, record.node),
        wanted: record.wanted,
        weight: record.weight,
        groups,
        primaries,
    }
}

/// What the shards that are being scrubbed have found so far.
fn running_scrub(drive: Option<&DriveSnapshot>) -> Option<api::Scrub> {
    let running = drive?.shards.iter().filter_map(|shard| shard.scrub.as_ref());
    let mut sum = None;
    running.for_each(|report| sum.get_or_insert_with(api::Scrub::default).add(report));
    sum
}

/// The last scrub of a drive, if all its shards have had one.
fn last_scrub(drive: Option<&DriveSnapshot>) -> Option<api::Scrub> {
    let mut sum = api::Scrub::default();
    for shard in &drive?.shards {
        let record = shard.last_scrub?;
        let earlier = sum.ended_unix_ms.unwrap_or(u64::MAX);
        sum.ended_unix_ms = Some(earlier.min(record.ended_unix_ms));
        sum.add(&record.report);
    }
    sum.ended_unix_ms.is_some().then_some(sum)
}

/// Whether the leader counts a node as dead, as far as it could be asked.
fn is_dead(sample: &Sample, node: NodeId) -> bool {
    sample.leader_health.as_ref().is_some_and(|leader| leader.dead.contains(&node))
}

/// The state as it is seen now, which the record may not say yet.
pub(crate) fn drive_state(
    record: &DriveRecord,
    local: Option<&NodeSnapshot>,
    snapshot: Option<&DriveSnapshot>,
) -> DriveState {
    match (record.state, local, snapshot) {
        (DriveState::GivenUp, ..) => DriveState::GivenUp,
        (_, None, _) | (_, _, None) => DriveState::Missing,
        (_, _, Some(drive)) if drive.shards.iter().any(|shard| shard.stats.poisoned) => DriveState::ReadOnly,
        (DriveState::Missing, ..) => DriveState::Healthy,
        (state, ..) => state,
    }
}

fn problem(map: &MapView, record: &DriveRecord, local: Option<&NodeSnapshot>) -> Option<String> {
    match local {
        None => Some(format!("node {} does not answer this process", node_name(map, record.node))),
        Some(local) if local.drive(record.id).is_none() => {
            Some(local.absent_reason(record.id).unwrap_or("its node does not serve it").to_owned())
        }
        Some(_) => None,
    }
}

fn shard(number: u32, snapshot: &ShardSnapshot) -> api::Shard {
    api::Shard {
        shard: number,
        reactor: snapshot.reactor,
        open_ns: snapshot.open_ns,
        scrub_percent: snapshot.stats.scrub_progress.map(|parts| f64::from(parts) / 100.0),
        stats: snapshot.stats,
    }
}

pub(crate) fn health(map: &MapView, sample: &Sample, more: &[HealthEntry]) -> api::Health {
    let entries = sample.health(map, more);
    api::Health { state: health::state_of(&entries), entries }
}

pub(crate) fn data(map: &MapView, sample: &Sample) -> api::DataSummary {
    let drives = sample.now.nodes.values().flat_map(|local| &local.snapshot.drives);
    let shards = drives.flat_map(|drive| &drive.shards);
    let volumes = map.volumes().count();
    let removing = map.volumes().filter(|volume| volume.value.state == VolumeState::Removing).count();
    let room = Room::of(map);
    let answers = |record: &DriveRecord| {
        let local = sample.now.nodes.get(&record.node).map(|local| &local.snapshot);
        let state = drive_state(record, local, local.and_then(|local| local.drive(record.id)));
        matches!(state, DriveState::Healthy | DriveState::ReadOnly)
    };
    let answering = map.drives().filter(|record| answers(&record.value));
    api::DataSummary {
        capacity_bytes: answering.map(|record| record.value.capacity_bytes).fold(0, u64::saturating_add),
        live_bytes: shards.map(|shard| shard.stats.live_bytes).fold(0, u64::saturating_add),
        volumes: (volumes - removing) as u64,
        volumes_removing: removing as u64,
        provisioned_bytes: room.provisioned_bytes,
        provisionable_bytes: room.provisionable_bytes,
        overcommit_percent: map.cluster().map_or(100, |cluster| cluster.overcommit_percent),
    }
}

pub(crate) fn pools(map: &MapView, sample: &Sample) -> Vec<api::Pool> {
    let available = available::available_bytes(map, &sample.now);
    map.pools().map(|record| pool_with(map, &record.value, sample, &available)).collect()
}

/// What is told of a pool that was made or changed. How much room it has only all nodes together can say.
pub(crate) fn pool(map: &MapView, record: &PoolRecord, sample: &Sample) -> api::Pool {
    pool_with(map, record, sample, &BTreeMap::new())
}

fn pool_with(
    map: &MapView,
    record: &PoolRecord,
    sample: &Sample,
    available: &BTreeMap<PoolId, u64>,
) -> api::Pool {
    let in_pool = |volume: &VolumeRecord| volume.pool == record.id && volume.state == VolumeState::Active;
    api::Pool {
        id: record.id.0,
        name: record.name.clone(),
        state: record.state,
        copies: record.copies,
        min_copies: record.min_copies,
        domain: record.domain.clone(),
        groups: record.group_count,
        states: sample
            .leader_health
            .as_ref()
            .map(|leader| leader.health.pools.get(&record.id).copied().unwrap_or_default()),
        volumes: map.volumes().filter(|volume| in_pool(&volume.value)).count() as u64,
        provisioned_bytes: map.provisioned_bytes(record.id),
        available_bytes: available.get(&record.id).copied(),
    }
}

pub(crate) fn nodes(map: &MapView, sample: &Sample) -> Vec<api::Node> {
    let shares = shares(map);
    let mut nodes: Vec<api::Node> =
        map.nodes().map(|record| node(map, &record.value, sample, &shares)).collect();
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    nodes
}

fn node(map: &MapView, record: &NodeRecord, sample: &Sample, shares: &Shares) -> api::Node {
    let local = sample.now.nodes.get(&record.id);
    let dead = is_dead(sample, record.id);
    let drives: Vec<&DriveRecord> = map.drives_of(record.id).collect();
    let of_drives = |field: fn(&(u64, u64)) -> u64| {
        drives.iter().filter_map(|drive| shares.get(&drive.id)).map(field).sum()
    };
    let shards = local.iter().flat_map(|local| &local.snapshot.drives).flat_map(|drive| &drive.shards);
    let named = drives.iter().flat_map(|drive| map.used_shards_of(drive.id));
    api::Node {
        id: record.id,
        name: record.name.clone(),
        state: match local {
            Some(_) => api::NodeState::Up,
            None if dead => api::NodeState::Down,
            None => api::NodeState::Unknown,
        },
        wanted: record.wanted,
        leads: sample.leader.as_ref().is_some_and(|leader| leader.node == Some(record.id)),
        http: record.addresses.http.clone(),
        native: record.addresses.native.clone(),
        peer: record.addresses.peer.clone(),
        domains: record.domains.clone(),
        version: local.map(|local| local.version.clone()),
        uptime_ns: local.map(|local| local.snapshot.uptime_ns),
        drives: drives.len() as u64,
        capacity_bytes: drives.iter().map(|drive| drive.capacity_bytes).fold(0, u64::saturating_add),
        live_bytes: shards.map(|shard| shard.stats.live_bytes).fold(0, u64::saturating_add),
        groups: of_drives(|(groups, _)| *groups),
        primaries: of_drives(|(_, primaries)| *primaries),
        groups_left: named.map(|(_, groups)| groups.len() as u64).sum(),
    }
}

pub(crate) fn groups(map: &MapView, volume: Option<&VolumeRecord>, sample: &Sample) -> Vec<api::Group> {
    let primaries = sample.now.primaries();
    let groups: Vec<&GroupRecord> = match volume {
        Some(volume) => groups_of(map, volume),
        None => map.groups().collect(),
    };
    let copies = |shards: &[ShardRef]| shards.iter().map(|shard| copy(map, *shard)).collect();
    let show = |group: &GroupRecord| {
        let primary = primaries.get(&group.id.0).filter(|primary| primary.epoch == group.epoch);
        api::Group {
            id: group.id.0,
            pool: map.pool(group.pool).map(|pool| pool.name.clone()).unwrap_or_default(),
            epoch: group.epoch,
            in_sync: copies(&group.in_sync),
            others: copies(&group.others),
            wanted: copies(&group.wanted),
            serving: primary.map(|primary| primary.serving),
            blocks_left: primary.map_or(0, |primary| primary.recovering_blocks_left),
        }
    };
    groups.into_iter().map(show).collect()
}

fn copy(map: &MapView, shard: ShardRef) -> api::GroupCopy {
    let drive = map.drive(shard.drive);
    api::GroupCopy {
        node: drive.map(|drive| node_name(map, drive.node)).unwrap_or_default(),
        drive: shard.drive,
        path: drive.map(|drive| drive.path.clone()).unwrap_or_default(),
        shard: shard.shard,
    }
}

pub(crate) fn recovery(map: &MapView, sample: &Sample) -> api::Recovery {
    let block_bytes = BLOCK_BYTES as u64;
    let left = |moment: &crate::sample::Moment| -> u64 {
        moment.primaries().values().map(|copy| copy.recovering_blocks_left).fold(0, u64::saturating_add)
    };
    let left_bytes = left(&sample.now).saturating_mul(block_bytes);
    let done_bytes = sample.now.recovered_blocks().saturating_mul(block_bytes);
    let bytes_per_s = sample.before.as_ref().map(|(before, interval)| {
        let bytes = sample.now.recovered_blocks_since(before).saturating_mul(block_bytes);
        bytes as f64 / interval.as_secs_f64().max(1e-3)
    });
    let left_ns = bytes_per_s
        .filter(|rate| *rate > 0.0 && left_bytes > 0)
        .map(|rate| (left_bytes as f64 / rate * 1e9).min(9e18) as u64);
    let groups = map.groups().filter(|group| !group.others.is_empty()).count() as u64;
    api::Recovery { groups, left_bytes, done_bytes, bytes_per_s, left_ns }
}

pub(crate) fn store(sample: &Sample) -> api::StoreSummary {
    let problem = match (&sample.store.refused, &sample.store.unreachable) {
        (Some(error), _) => Some(error.to_string()),
        (None, Some((_, reason))) => Some(reason.clone()),
        (None, None) => None,
    };
    api::StoreSummary {
        reachable: problem.is_none(),
        problem,
        leader: sample.leader.as_ref().map(|leader| leader.http.clone()),
    }
}

pub(crate) fn reactors(snapshot: &NodeSnapshot) -> Vec<api::Reactor> {
    let reactor = |reactor: &crate::backend::ReactorSnapshot| api::Reactor {
        turns: reactor.turns,
        busy_ns: reactor.busy_ns,
        busy_poll_ns: reactor.busy_poll_ns,
        operations: reactor.operations,
        bound_cpu: reactor.bound_cpu,
    };
    snapshot.reactors.iter().map(reactor).collect()
}
