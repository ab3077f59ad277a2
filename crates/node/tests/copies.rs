//! Three nodes in one process, with a map that nobody changes but the tests: data, other copies, gateways.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use coquina_base::{DriveId, Id128, NodeId, VolumeId};
use coquina_client::{ClientCompletion, ClientConfig, ClientRequest, RequestKind, VolumeConnection};
use coquina_cluster::operation::{claim_layer, claim_pool, create_pool, create_volume};
use coquina_cluster::{
    BLOCK_GROUPS, BlockId, GroupBlock, GroupRecord, Key, MapView, PoolId, PoolRecord, PoolState, Record,
    ShardRef, VolumeRecord, VolumeState, Write,
};
use coquina_control::{MapService, NodeBackend};
use coquina_node::{DriveSpec, Node, NodeConfig, NodeIdentity};
use coquina_reactor::Wait;
use coquina_store::{EmbeddedStore, Store};

const GROUPS: u32 = 8;
const VOLUME_BYTES: u64 = 64 << 20;

struct Machine {
    service: Arc<MapService>,
    node: Arc<Node>,
}

struct Cluster {
    folder: tempfile::TempDir,
    nodes: usize,
    store: Arc<dyn Store>,
    machines: Vec<Option<Machine>>,
}

impl Cluster {
    fn start(nodes: usize, copies: u32) -> Cluster {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let store: Arc<dyn Store> = Arc::new(EmbeddedStore::in_memory().unwrap());
        let mut cluster = Cluster { folder, nodes, store, machines: Vec::new() };
        for index in 0..nodes {
            let machine = cluster.machine(index);
            cluster.machines.push(Some(machine));
        }
        cluster.make_pool(copies);
        cluster
    }

    fn machine(&self, index: usize) -> Machine {
        let folder = self.folder.path().join(format!("node{index}"));
        std::fs::create_dir_all(&folder).unwrap();
        let service = MapService::start(self.store.clone(), &folder, true, &mut |_| {}).unwrap();
        let node = Node::start(node_config(&folder, index, self.nodes), service.clone()).unwrap();
        Machine { service, node }
    }

    fn service(&self) -> &Arc<MapService> {
        &self.machines.iter().flatten().next().unwrap().service
    }

    /// Stops a node.
    fn stop(&mut self, index: usize) {
        let machine = self.machines[index].take().unwrap();
        machine.node.stop();
        machine.service.stop();
    }

    fn restart(&mut self, index: usize) {
        let machine = self.machine(index);
        self.machines[index] = Some(machine);
    }

    fn make_pool(&self, copies: u32) {
        let service = self.service();
        let claimed = std::cell::Cell::new(None);
        service
            .change(&|map| {
                let (pool, first, write) = claim_pool(map)?;
                claimed.set(Some((pool, first)));
                Ok(Some(write))
            })
            .unwrap();
        let (id, group_first) = claimed.get().unwrap();
        let pool = PoolRecord {
            id,
            name: "data".to_owned(),
            copies,
            min_copies: 1,
            domain: "node".to_owned(),
            group_first,
            group_count: GROUPS,
            state: PoolState::Creating,
        };
        service.change(&|map| create_pool(map, &pool)).unwrap();
        let map = service.map();
        let shards: Vec<ShardRef> =
            map.drives().map(|drive| ShardRef { drive: drive.value.id, shard: 0 }).collect();
        let groups = (0..GROUPS).map(|index| GroupRecord {
            id: coquina_cluster::GroupId(group_first.0 + index),
            pool: id,
            epoch: 1,
            in_sync: (0..copies as usize)
                .map(|copy| shards[(index as usize + copy) % shards.len()])
                .collect(),
            others: Vec::new(),
            wanted: Vec::new(),
        });
        let block = GroupBlock { groups: groups.collect() };
        let key = Key::Groups(BlockId(group_first.0 / BLOCK_GROUPS));
        self.put(key, Record::Groups(block));
        self.put(Key::Pool(id), Record::Pool(PoolRecord { state: PoolState::Active, ..pool }));
    }

    fn put(&self, key: Key, record: Record) {
        let write = |map: &MapView| {
            let expected_revision = map.revision_of(&key);
            Ok(Some(Write { key, expected_revision, record: Some(record.clone()) }))
        };
        self.service().change(&write).unwrap();
    }

    fn make_volume(&self, name: &str) {
        let service = self.service();
        let layer = std::cell::Cell::new(None);
        service
            .change(&|map| {
                let (claimed, write) = claim_layer(map)?;
                layer.set(Some(claimed));
                Ok(Some(write))
            })
            .unwrap();
        let layer = layer.get().unwrap();
        let volume = VolumeRecord {
            id: VolumeId(Id128([layer.0 as u8; 16])),
            name: name.to_owned(),
            size_bytes: VOLUME_BYTES,
            layer,
            created_unix_ns: 0,
            state: VolumeState::Active,
            attach_generation: 1,
            shrinking_from_bytes: None,
            pool: PoolId(1),
            family: layer.0,
            stripe_unit_bytes: 64 << 10,
            stripe_count: 4,
        };
        service.change(&|map| create_volume(map, &volume)).unwrap();
        let revision = self.service().map().revision();
        for machine in self.machines.iter().flatten() {
            assert!(
                machine.service.wait_followed(revision, Duration::from_secs(10)),
                "a node follows the map"
            );
        }
    }

    fn addresses(&self) -> String {
        let nodes = self.machines.iter().flatten();
        nodes.map(|machine| machine.node.native_address()).collect::<Vec<_>>().join(",")
    }

    fn drive_of(&self, index: usize) -> DriveId {
        self.service().map().drives_of(NodeId(Id128([index as u8 + 1; 16]))).next().unwrap().id
    }

    fn live_blocks(&self, index: usize) -> u64 {
        let snapshot = self.machines[index].as_ref().unwrap().node.snapshot();
        snapshot.drives[0].shards[0].stats.live_bytes / 4096
    }

    /// Waits until so many groups ask for a change.
    fn wait_for_proposals(&self, count: usize) {
        wait_for("proposals", || {
            let proposed = self.machines.iter().flatten().map(|machine| machine.node.proposals().len());
            proposed.sum::<usize>() == count
        });
    }

    /// Changes all groups as an operator of the test wants.
    fn change_groups(&self, change: impl Fn(&GroupRecord) -> GroupRecord) {
        let map = self.service().map();
        let blocks: Vec<_> = map.blocks().map(|(id, block)| (id, block.value.clone())).collect();
        for (id, block) in blocks {
            let groups = block.groups.iter().map(&change).collect();
            self.put(Key::Groups(id), Record::Groups(GroupBlock { groups }));
        }
    }
}

fn wait_for(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(60), "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn node_config(folder: &Path, index: usize, nodes: usize) -> NodeConfig {
    NodeConfig {
        identity: Some(NodeIdentity {
            id: NodeId(Id128([index as u8 + 1; 16])),
            name: format!("node{index}"),
            http: String::new(),
            domains: BTreeMap::new(),
        }),
        drives: vec![DriveSpec {
            path: folder.join("drive"),
            size_bytes: Some(512 << 20),
            force: false,
            remembered: None,
        }],
        native: Some("127.0.0.1:0".to_owned()),
        nbd: vec!["127.0.0.1:0".to_owned()],
        index_memory_bytes: None,
        cache_memory_bytes: Some(32 << 20),
        // Only the drives of a cluster of one: the others share one disk with each other, and with other tests.
        zero_ahead_bytes: if nodes == 1 { 1 << 30 } else { 0 },
        reactors: Some(1),
    }
}

fn open(cluster: &Cluster, name: &str) -> VolumeConnection {
    let config = VolumeConnection::config(&cluster.addresses(), name);
    VolumeConnection::open(ClientConfig { give_up_ns: 20_000_000_000, ..config }).unwrap()
}

/// Does requests and waits for all.
fn run(connection: &mut VolumeConnection, requests: Vec<ClientRequest>) -> Vec<ClientCompletion> {
    let count = requests.len();
    requests.into_iter().for_each(|request| connection.submit(request));
    let mut completions = Vec::new();
    let started = Instant::now();
    while completions.len() < count {
        connection.poll(Wait::Forever, &mut completions).unwrap();
        assert!(started.elapsed() < Duration::from_secs(60), "{} of {count} finished", completions.len());
    }
    completions.sort_by_key(|completion| completion.token);
    completions
}

fn request(kind: RequestKind, token: u64, block: u64, fill: u8) -> ClientRequest {
    let mut buffer = VolumeConnection::buffer(4096);
    buffer.fill(fill);
    ClientRequest { token, kind, offset_bytes: block * 4096, length_bytes: 4096, buffer }
}

/// What block `index` of the tests' blocks is written with in round `round`.
fn pattern(index: u64, round: u64) -> u8 {
    (index * 7 + round * 31 + 1) as u8
}

fn write_round(connection: &mut VolumeConnection, blocks: u64, round: u64) {
    let stride = VOLUME_BYTES / 4096 / blocks;
    let writes = (0..blocks)
        .map(|index| request(RequestKind::Write, index, index * stride, pattern(index, round)))
        .collect();
    for completion in run(connection, writes) {
        completion.result.unwrap();
    }
}

fn check_round(connection: &mut VolumeConnection, blocks: u64, round: u64) {
    let stride = VOLUME_BYTES / 4096 / blocks;
    let reads = (0..blocks).map(|index| request(RequestKind::Read, index, index * stride, 0)).collect();
    for completion in run(connection, reads) {
        completion.result.unwrap();
        let expected = pattern(completion.token, round);
        assert!(completion.buffer[..4096].iter().all(|byte| *byte == expected), "block {}", completion.token);
    }
}

#[test]
fn data_is_the_same_through_every_node() {
    let cluster = Cluster::start(3, 3);
    cluster.make_volume("disk");
    let mut connection = open(&cluster, "disk");
    write_round(&mut connection, 512, 1);
    check_round(&mut connection, 512, 1);
    write_round(&mut connection, 512, 2);
    let mut other = open(&cluster, "disk");
    check_round(&mut other, 512, 2);
    let copies: usize = cluster
        .machines
        .iter()
        .flatten()
        .map(|machine| machine.node.snapshot().peers.iter().filter(|peer| peer.connected).count())
        .sum();
    assert_eq!(copies, 6, "each pair of copies has one connection, which both ends count");
}

#[test]
fn large_writes_are_the_same_everywhere() {
    let cluster = Cluster::start(3, 2);
    cluster.make_volume("disk");
    let mut connection = open(&cluster, "disk");
    const LENGTH: usize = 1 << 20;
    let make = |kind, token: u64| {
        let mut buffer = VolumeConnection::buffer(LENGTH);
        let words = buffer.chunks_exact_mut(8).zip(token << 32..);
        words.for_each(|(word, value)| word.copy_from_slice(&value.to_le_bytes()));
        let offset_bytes = token * LENGTH as u64 + 12_288;
        ClientRequest { token, kind, offset_bytes, length_bytes: LENGTH as u64, buffer }
    };
    let writes = (0..32).map(|token| make(RequestKind::Write, token)).collect();
    for completion in run(&mut connection, writes) {
        completion.result.unwrap();
    }
    let mut other = open(&cluster, "disk");
    let reads = (0..32).map(|token| {
        let mut request = make(RequestKind::Read, token);
        request.buffer.fill(0);
        request
    });
    for completion in run(&mut other, reads.collect()) {
        completion.result.unwrap();
        let expected = make(RequestKind::Write, completion.token).buffer;
        assert!(completion.buffer[..LENGTH] == expected[..LENGTH], "request {}", completion.token);
    }
}

#[test]
fn a_new_primary_serves_what_the_old_one_acknowledged() {
    let mut cluster = Cluster::start(3, 3);
    cluster.make_volume("disk");
    let mut connection = open(&cluster, "disk");
    write_round(&mut connection, 256, 1);
    let gone = cluster.drive_of(0);
    cluster.stop(0);
    cluster.change_groups(|group| {
        let (lost, in_sync) = group.in_sync.iter().partition(|shard| shard.drive == gone);
        GroupRecord { epoch: group.epoch + 1, in_sync, others: lost, ..group.clone() }
    });
    check_round(&mut connection, 256, 1);
    write_round(&mut connection, 256, 2);
    check_round(&mut connection, 256, 2);
    // It comes back and catches up: then it is proposed.
    cluster.restart(0);
    cluster.wait_for_proposals(GROUPS as usize);
    cluster.change_groups(|group| {
        let mut in_sync = group.others.clone();
        in_sync.extend(&group.in_sync);
        GroupRecord { epoch: group.epoch + 1, in_sync, others: Vec::new(), ..group.clone() }
    });
    check_round(&mut connection, 256, 2);
}

#[test]
fn what_moved_away_is_freed_and_may_come_back() {
    let cluster = Cluster::start(3, 2);
    cluster.make_volume("disk");
    let mut connection = open(&cluster, "disk");
    write_round(&mut connection, 512, 1);
    let left = cluster.drive_of(0);
    let drives = [cluster.drive_of(1), cluster.drive_of(2)];
    let before = cluster.live_blocks(0);
    assert!(before > 0);
    // The copies on the first drive move to the one that lacks them.
    let target = |group: &GroupRecord| {
        let named = |drive: &DriveId| group.in_sync.iter().any(|shard| shard.drive == *drive);
        drives.into_iter().find(|drive| !named(drive)).map(|drive| ShardRef { drive, shard: 0 })
    };
    let concerned = |group: &GroupRecord| group.in_sync.iter().any(|shard| shard.drive == left);
    let moving = cluster.service().map().groups().filter(|group| concerned(group)).count();
    cluster.change_groups(|group| match concerned(group) {
        true => GroupRecord {
            epoch: group.epoch + 1,
            others: target(group).into_iter().collect(),
            ..group.clone()
        },
        false => group.clone(),
    });
    cluster.wait_for_proposals(moving);
    cluster.change_groups(|group| match group.others.is_empty() {
        false => {
            let (gone, stays): (Vec<_>, Vec<_>) = group.in_sync.iter().partition(|shard| shard.drive == left);
            let in_sync = stays.into_iter().chain(group.others.clone()).collect();
            GroupRecord { epoch: group.epoch + 1, in_sync, others: gone, ..group.clone() }
        }
        true => group.clone(),
    });
    write_round(&mut connection, 512, 2);
    cluster.change_groups(|group| match group.others.is_empty() {
        false => GroupRecord { epoch: group.epoch + 1, others: Vec::new(), ..group.clone() },
        true => group.clone(),
    });
    check_round(&mut connection, 512, 2);
    wait_for("the space to be free", || cluster.live_blocks(0) == 0);
    write_round(&mut connection, 512, 3);
    // Back again: it has nothing, and is given everything.
    cluster.change_groups(|group| {
        let others = vec![ShardRef { drive: left, shard: 0 }];
        GroupRecord { epoch: group.epoch + 1, others, ..group.clone() }
    });
    cluster.wait_for_proposals(GROUPS as usize);
    cluster.change_groups(|group| {
        let in_sync = group.others.clone();
        GroupRecord { epoch: group.epoch + 1, in_sync, others: group.in_sync.clone(), ..group.clone() }
    });
    check_round(&mut connection, 512, 3);
    assert_eq!(cluster.live_blocks(0), 512);
}

#[test]
fn an_idle_drive_file_is_prepared_once() {
    let mut cluster = Cluster::start(1, 1);
    let stats = |cluster: &Cluster| {
        let snapshot = cluster.machines[0].as_ref().unwrap().node.snapshot();
        snapshot.drives[0].shards[0].stats
    };
    wait_for("the drive to be prepared, and a checkpoint that knows it", || {
        let stats = stats(&cluster);
        stats.unprepared_bytes == 0 && stats.checkpoints > 0
    });
    let first = stats(&cluster);
    assert!(first.prewrite_bytes > (512 << 20) / 10 * 9, "{first:?}");
    cluster.stop(0);
    cluster.restart(0);
    let again = stats(&cluster);
    assert_eq!((again.prewrite_bytes, again.unprepared_bytes), (0, 0), "{again:?}");
}
