//! Times placement and map updates at 500 nodes, 10,000 drives and up to 262,144 groups:
//! `cargo run --release -p coquina-cluster --example scale`.

#![allow(clippy::disallowed_types, reason = "a benchmark needs a clock")]

use std::time::Instant;

use std::collections::BTreeMap;

use coquina_base::{ClusterId, DriveId, Id128, NodeId};
use coquina_cluster::{
    Action, BlockId, ClusterRecord, Coordinator, Domain, DriveCondition, DriveRecord, DriveReport,
    DriveState, Event, GroupBlock, GroupId, GroupRecord, Heartbeat, Key, MapView, NodeAddresses, NodeRecord,
    POOL_GROUPS_MAX, Placement, PlacementDrive, PlacementJob, PoolId, PoolRecord, PoolState, Record,
    Settings, VersionRange, Wanted,
};

const CLUSTER: ClusterId = ClusterId(Id128([7; 16]));

fn drive(number: u128) -> PlacementDrive {
    PlacementDrive {
        drive: DriveId(Id128((number + 1).to_be_bytes())),
        shards: 1,
        weight: 1_000_000 + (number as u64 % 4) * 500_000,
        domain: Domain::Node(NodeId(Id128((number / 20 + 1).to_be_bytes()))),
    }
}

fn timed(name: &str, job: &PlacementJob) -> Placement {
    let least = job.moves_least();
    let start = Instant::now();
    let placed = job.place().unwrap_or_else(|error| panic!("{error}"));
    println!(
        "{name}: {} groups in {:.3} s, moved {} copies, the least is {least}",
        job.groups.len(),
        start.elapsed().as_secs_f64(),
        placed.copies_moved
    );
    placed
}

/// The map of a placement.
fn records(job: &PlacementJob) -> Vec<(Key, u64, Record)> {
    let copy_next = job.drives.len() as u64 + 1;
    let cluster =
        ClusterRecord { copy_next, group_next: 1 << 18, pool_next: 2, ..ClusterRecord::new(CLUSTER) };
    let mut records = vec![(Key::Cluster, 1, Record::Cluster(cluster))];
    let mut nodes = BTreeMap::new();
    for (number, drive) in job.drives.iter().enumerate() {
        let Domain::Node(node) = drive.domain else { continue };
        nodes.insert(node, number);
        let record = DriveRecord {
            id: drive.drive,
            node,
            path: format!("/dev/{number}"),
            size_bytes: 1 << 44,
            capacity_bytes: 1 << 43,
            shards: 1,
            weight: drive.weight,
            copy_first: 1 + number as u64,
            state: DriveState::Healthy,
            wanted: Wanted::In,
            dead_ms: 0,
        };
        records.push((Key::Drive(record.id), 1, Record::Drive(record)));
    }
    for (id, number) in nodes {
        let record = NodeRecord {
            id,
            name: format!("n{number}"),
            addresses: NodeAddresses::default(),
            domains: BTreeMap::new(),
            versions: VersionRange { min: 1, max: 1 },
            wanted: Wanted::In,
        };
        records.push((Key::Node(id), 1, Record::Node(record)));
    }
    let pool = PoolRecord {
        id: job.pool,
        name: "p".to_owned(),
        copies: job.copies,
        min_copies: 2,
        domain: job.domain.clone(),
        group_first: GroupId(POOL_GROUPS_MAX),
        group_count: job.groups.len() as u32,
        state: PoolState::Active,
    };
    records.push((Key::Pool(pool.id), 1, Record::Pool(pool)));
    for groups in job.groups.chunks(64) {
        let group = |(id, in_sync): &(GroupId, Vec<_>)| GroupRecord {
            id: *id,
            pool: job.pool,
            epoch: 1,
            in_sync: in_sync.clone(),
            others: Vec::new(),
            wanted: Vec::new(),
        };
        let block = BlockId::of(groups[0].0);
        let groups = groups.iter().map(group).collect();
        records.push((Key::Groups(block), 1, Record::Groups(GroupBlock { groups })));
    }
    records
}

/// The map read, decoded and loaded; one update; and what a coordinator computes when a node dies.
fn map_and_failover(job: &PlacementJob) {
    let encoded: Vec<(Key, u64, Vec<u8>)> =
        records(job).iter().map(|(key, revision, record)| (*key, *revision, record.encode())).collect();
    let bytes: usize = encoded.iter().map(|(_, _, text)| text.len()).sum();
    let start = Instant::now();
    let decoded = encoded
        .iter()
        .map(|(key, revision, text)| Record::decode(key, text).map(|record| (*key, *revision, record)))
        .collect::<Result<_, _>>()
        .unwrap_or_else(|error| panic!("{error}"));
    let decoding_s = start.elapsed().as_secs_f64();
    let start = Instant::now();
    let view = MapView::load(decoded, 1).unwrap_or_else(|error| panic!("{error}"));
    let loading_s = start.elapsed().as_secs_f64();
    println!(
        "map: {} keys, {:.1} MB, decoded in {decoding_s:.3} s, loaded in {loading_s:.3} s",
        encoded.len(),
        bytes as f64 / 1e6
    );
    let nodes: Vec<NodeId> = view.nodes().map(|node| node.value.id).collect();
    let mut coordinator = Coordinator::new(Settings::default(), view.clone(), 0);
    let (mut writes, mut longest_s, mut all_s) = (0, 0.0f64, 0.0);
    for step in 0..30u64 {
        let heartbeats = nodes.iter().filter(|node| **node != nodes[99] || step < 10).map(|node| Heartbeat {
            node: *node,
            cluster: CLUSTER,
            map_revision: 1,
            stopping: false,
            drives: view
                .drives_of(*node)
                .map(|drive| DriveReport { drive: drive.id, condition: DriveCondition::Serving, hung: false })
                .collect(),
            proposals: Vec::new(),
            returning: Some(Vec::new()),
        });
        let events: Vec<Event> = heartbeats.map(Event::Heartbeat).chain([Event::Tick]).collect();
        for event in events {
            let mut actions = Vec::new();
            let start = Instant::now();
            coordinator.apply(step * 100_000_000, event, &mut actions);
            let spent_s = start.elapsed().as_secs_f64();
            (longest_s, all_s) = (longest_s.max(spent_s), all_s + spent_s);
            writes += actions.iter().filter(|action| matches!(action, Action::Write(_))).count();
        }
    }
    println!(
        "coordinator: 3 s of heartbeats of {} nodes took {all_s:.3} s, the longest event {longest_s:.3} s; a dead node \
         made {writes} writes",
        nodes.len()
    );
}

fn main() {
    for groups in [65_536, 262_144] {
        let mut job = PlacementJob {
            pool: PoolId(1),
            copies: 3,
            domain: "node".to_owned(),
            drives: (0..10_000).map(drive).collect(),
            drives_unlabelled: 0,
            groups: (0..groups).map(|group| (GroupId(POOL_GROUPS_MAX + group), Vec::new())).collect(),
        };
        job.groups = timed("initial", &job).wanted;
        job.groups = timed("nothing changed", &job).wanted;
        job.drives.push(drive(9_999 + 1));
        job.groups = timed("drive added", &job).wanted;
        job.drives.remove(4_321);
        job.groups = timed("drive removed", &job).wanted;
        job.drives.retain(|drive| drive.domain != Domain::Node(NodeId(Id128(100u128.to_be_bytes()))));
        job.groups = timed("node removed", &job).wanted;
        job.drives[77].weight *= 2;
        job.groups = timed("drive reweighted", &job).wanted;
        job.drives.extend((20_000..20_020).map(drive));
        job.groups = timed("node added", &job).wanted;
        map_and_failover(&job);
    }
}
