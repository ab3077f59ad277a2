//! Several nodes in one process, and what their clients do.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use coquina_base::{DriveId, Id128, NodeId, VolumeId};
use coquina_client::{ClientCompletion, ClientConfig, ClientRequest, RequestKind, VolumeConnection};
use coquina_cluster::operation::{claim_layer, claim_pool, create_pool, create_volume, remove_pool};
use coquina_cluster::{
    BLOCK_GROUPS, BlockId, GroupBlock, GroupRecord, Key, MapView, PoolId, PoolRecord, PoolState, Record,
    ShardRef, VolumeRecord, VolumeState, Write,
};
use coquina_control::{MapService, NodeBackend};
use coquina_node::{BindCpu, DriveSpec, Node, NodeConfig, NodeError, NodeIdentity};
use coquina_reactor::Wait;
use coquina_store::{EmbeddedStore, Store};

pub const GROUPS: u32 = 8;
pub const VOLUME_BYTES: u64 = 64 << 20;

pub struct Machine {
    pub service: Arc<MapService>,
    pub node: Arc<Node>,
}

pub struct Cluster {
    pub folder: tempfile::TempDir,
    pub store: Arc<dyn Store>,
    pub cache_bytes: u64,
    pub zero_ahead_bytes: u64,
    pub reactors: usize,
    pub machines: Vec<Option<Machine>>,
}

impl Cluster {
    pub fn start(nodes: usize, copies: u32) -> Cluster {
        Cluster::with_cache(nodes, copies, 32 << 20)
    }

    /// The nodes keep so much data in memory.
    pub fn with_cache(nodes: usize, copies: u32, cache_bytes: u64) -> Cluster {
        Cluster::with(nodes, copies, cache_bytes, 1)
    }

    /// The nodes have so many reactors.
    pub fn with_reactors(nodes: usize, copies: u32, reactors: usize) -> Cluster {
        Cluster::with(nodes, copies, 32 << 20, reactors)
    }

    fn with(nodes: usize, copies: u32, cache_bytes: u64, reactors: usize) -> Cluster {
        let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let store: Arc<dyn Store> = Arc::new(EmbeddedStore::in_memory().unwrap());
        let mut cluster = Cluster {
            folder,
            store,
            cache_bytes,
            // Only the drives of a cluster of one: the others share one disk with each other, and with other tests.
            zero_ahead_bytes: if nodes == 1 { 1 << 30 } else { 0 },
            reactors,
            machines: Vec::new(),
        };
        for index in 0..nodes {
            let machine = cluster.machine(index);
            cluster.machines.push(Some(machine));
        }
        cluster.make_pool(copies);
        cluster
    }

    fn machine(&self, index: usize) -> Machine {
        self.try_machine(index).unwrap()
    }

    fn try_machine(&self, index: usize) -> Result<Machine, NodeError> {
        self.machine_with(index, self.store.clone())
    }

    fn machine_with(&self, index: usize, store: Arc<dyn Store>) -> Result<Machine, NodeError> {
        let folder = self.folder.path().join(format!("node{index}"));
        std::fs::create_dir_all(&folder).unwrap();
        let service = MapService::start(store, &folder, true, &mut |_| {}).unwrap();
        let node = Node::start(self.node_config(&folder, index), service.clone())?;
        Ok(Machine { service, node })
    }

    pub fn service(&self) -> &Arc<MapService> {
        &self.machines.iter().flatten().next().unwrap().service
    }

    pub fn node_config(&self, folder: &Path, index: usize) -> NodeConfig {
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
            insecure: false,
            index_memory_bytes: None,
            cache_memory_bytes: Some(self.cache_bytes),
            zero_ahead_bytes: self.zero_ahead_bytes,
            tcp_only: false,
            busy_poll_ns: coquina_base::BUSY_POLL_NS,
            bind_cpu: BindCpu::Never,
            reactors: Some(self.reactors),
            folder: Some(folder.to_owned()),
        }
    }

    /// Stops a node.
    pub fn stop(&mut self, index: usize) {
        let machine = self.machines[index].take().unwrap();
        machine.node.stop();
        machine.service.stop();
    }

    pub fn restart(&mut self, index: usize) {
        let machine = self.machine(index);
        self.machines[index] = Some(machine);
    }

    /// The same, with a way to the store of its own.
    pub fn restart_with(&mut self, index: usize, store: Arc<dyn Store>) {
        self.machines[index] = Some(self.machine_with(index, store).unwrap());
    }

    pub fn try_restart(&mut self, index: usize) -> Result<(), NodeError> {
        self.machines[index] = Some(self.try_machine(index)?);
        Ok(())
    }

    fn make_pool(&self, copies: u32) {
        let service = self.service();
        let claimed = std::cell::Cell::new(None);
        service
            .change(&|map| {
                let (pool, first, write) = claim_pool(map, false)?;
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

    /// Removes a volume and the pool, as the coordinator does: the groups go before the pool.
    pub fn remove_pool(&self, volume: &str) {
        let map = self.service().map();
        let volume = map.volume_by_name(volume).unwrap().value.clone();
        self.delete(Key::Volume(volume.id));
        self.service().change(&|map| remove_pool(map, volume.pool)).unwrap();
        map.blocks().for_each(|(block, _)| self.delete(Key::Groups(block)));
        self.delete(Key::Pool(volume.pool));
    }

    fn delete(&self, key: Key) {
        let is_there = |map: &MapView| map.revision_of(&key) > 0;
        let write = |map: &MapView| Ok(is_there(map).then(|| Write::new(key, map.revision_of(&key), None)));
        self.service().change(&write).unwrap();
    }

    /// Groups that are open on a node.
    pub fn groups_open(&self, index: usize) -> usize {
        let snapshot = self.machines[index].as_ref().unwrap().node.snapshot();
        snapshot.drives.iter().flat_map(|drive| &drive.shards).map(|shard| shard.groups.len()).sum()
    }

    pub fn put(&self, key: Key, record: Record) {
        let write = |map: &MapView| Ok(Some(Write::new(key, map.revision_of(&key), Some(record.clone()))));
        self.service().change(&write).unwrap();
    }

    pub fn make_volume(&self, name: &str) {
        let service = self.service();
        let layer = std::cell::Cell::new(None);
        service
            .change(&|map| {
                let (claimed, write) = claim_layer(map, 0)?;
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
            size_max_bytes: None,
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

    pub fn drive_of(&self, index: usize) -> DriveId {
        self.service().map().drives_of(NodeId(Id128([index as u8 + 1; 16]))).next().unwrap().id
    }

    pub fn live_blocks(&self, index: usize) -> u64 {
        let snapshot = self.machines[index].as_ref().unwrap().node.snapshot();
        snapshot.drives[0].shards[0].stats.live_bytes / 4096
    }

    /// Changes all groups as an operator of the test wants.
    pub fn change_groups(&self, change: impl Fn(&GroupRecord) -> GroupRecord) {
        let map = self.service().map();
        let blocks: Vec<_> = map.blocks().map(|(id, block)| (id, block.value.clone())).collect();
        for (id, block) in blocks {
            let groups = block.groups.iter().map(&change).collect();
            self.put(Key::Groups(id), Record::Groups(GroupBlock { groups }));
        }
    }
}

pub fn wait_for(what: &str, holds: impl FnMut() -> bool) {
    wait_for_or_tell(what, holds, String::new);
}

/// The same, with more to be told if it was in vain.
pub fn wait_for_or_tell(what: &str, mut holds: impl FnMut() -> bool, more: impl Fn() -> String) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(60), "waited in vain for {what}{}", more());
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub fn open(cluster: &Cluster, name: &str) -> VolumeConnection {
    let config = VolumeConnection::config(&cluster.addresses(), name);
    VolumeConnection::open(ClientConfig { give_up_ns: 20_000_000_000, ..config }).unwrap()
}

/// Does requests and waits for all.
pub fn run(connection: &mut VolumeConnection, requests: Vec<ClientRequest>) -> Vec<ClientCompletion> {
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

pub fn request(kind: RequestKind, token: u64, block: u64, fill: u8) -> ClientRequest {
    let mut buffer = VolumeConnection::buffer(4096);
    buffer.fill(fill);
    ClientRequest { token, kind, offset_bytes: block * 4096, length_bytes: 4096, buffer }
}

/// What block `index` of the tests' blocks is written with in round `round`.
pub fn pattern(index: u64, round: u64) -> u8 {
    (index * 7 + round * 31 + 1) as u8
}

pub fn write_round(connection: &mut VolumeConnection, blocks: u64, round: u64) {
    let stride = VOLUME_BYTES / 4096 / blocks;
    let writes = (0..blocks)
        .map(|index| request(RequestKind::Write, index, index * stride, pattern(index, round)))
        .collect();
    for completion in run(connection, writes) {
        completion.result.unwrap();
    }
}

pub fn check_round(connection: &mut VolumeConnection, blocks: u64, round: u64) {
    let stride = VOLUME_BYTES / 4096 / blocks;
    let reads = (0..blocks).map(|index| request(RequestKind::Read, index, index * stride, 0)).collect();
    for completion in run(connection, reads) {
        completion.result.unwrap();
        let expected = pattern(completion.token, round);
        assert!(completion.buffer[..4096].iter().all(|byte| *byte == expected), "block {}", completion.token);
    }
}
