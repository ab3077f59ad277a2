//! Nodes that pretend, with real maps, elections, heartbeats and REST interfaces.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use coquina_base::{DriveId, Id128, LayerId, NodeId, VolumeId};
use coquina_cluster::{
    Config, DriveCondition, DriveRecord, DriveReport, DriveState, GroupId, HealthEntry, MapView,
    NodeAddresses, NodeRecord, ShardRef, VersionRange, Wanted, operation,
};
use coquina_control::{
    BackendError, Catalogue, Client, ControlListener, ControlServer, CoordinatorConfig, CoordinatorService,
    DriveSnapshot, HeartbeatService, LatencyHistogram, MapService, MetricsOptions, NodeBackend, NodeFile,
    NodeSnapshot, ReactorSnapshot, ServerConfig, ShardSnapshot, Trimmer, VolumeCounters, VolumeSnapshot,
    follow_map, random_id,
};
use coquina_engine::ShardStats;
use coquina_store::EmbeddedStore;

use super::store::FaultyStore;

/// What a drive can hold.
pub const CAPACITY_BYTES: u64 = 64 << 30;
/// How long anything may take: the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// What a fake node remembers.
#[derive(Default)]
pub struct Memory {
    pub map: Option<Arc<MapView>>,
    pub refused: Option<String>,
    pub drives: BTreeMap<DriveId, DriveCondition>,
    pub layers: BTreeMap<ShardRef, BTreeSet<LayerId>>,
    pub removed: Vec<DriveId>,
    /// Copies that are out get nothing.
    pub moves_hang: bool,
    /// Removed drives are not let go of.
    pub releases_hang: bool,
    pub quiesced: Vec<VolumeId>,
    pub scrubs: Vec<Option<DriveId>>,
    pub connections: u64,
    pub poisoned: bool,
    pub bad_blocks: u64,
    /// What the node itself found.
    pub health: Vec<HealthEntry>,
    /// What is in use of each shard, beside 1 GiB.
    pub more_live_bytes: u64,
    /// A reactor does not answer.
    pub incomplete: bool,
    pub snapshots: u64,
    /// How long each of these takes.
    pub snapshot_takes: Duration,
    pub shutdown_requested: bool,
}

/// A node that pretends: copies that are out have everything at once.
pub struct FakeNode {
    pub id: NodeId,
    memory: Mutex<Memory>,
}

impl FakeNode {
    pub fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap()
    }
}

impl NodeBackend for FakeNode {
    fn snapshot(&self) -> NodeSnapshot {
        let takes = self.memory().snapshot_takes;
        std::thread::sleep(takes);
        let mut memory = self.memory();
        memory.snapshots += 1;
        let writes = memory.snapshots * 10;
        let stats = ShardStats {
            capacity_bytes: CAPACITY_BYTES / 2,
            live_bytes: (1 << 30) + memory.more_live_bytes,
            poisoned: memory.poisoned,
            bad_blocks: memory.bad_blocks,
            bad_blocks_left: memory.bad_blocks,
            scrub_progress: (!memory.scrubs.is_empty()).then_some(2_500),
            ..ShardStats::default()
        };
        let shard = ShardSnapshot { stats, ..ShardSnapshot::default() };
        let Some(map) = memory.map.clone() else { return NodeSnapshot::default() };
        let path = |drive| map.drive(drive).map(|drive| drive.path.clone()).unwrap_or_default();
        let drives = memory.drives.iter().filter(|(_, condition)| **condition != DriveCondition::Failed);
        let mut latency = LatencyHistogram::new();
        latency.record(100_000);
        let counters = VolumeCounters {
            connections: memory.connections,
            writes,
            write_bytes: writes * 4096,
            write_latency: latency,
            ..VolumeCounters::default()
        };
        NodeSnapshot {
            uptime_ns: 2_500_000_000,
            drives: drives
                .map(|(id, _)| DriveSnapshot {
                    id: *id,
                    path: path(*id),
                    size_bytes: CAPACITY_BYTES,
                    shards: vec![shard.clone(), shard.clone()],
                    ..DriveSnapshot::default()
                })
                .collect(),
            volumes: map
                .volumes()
                .map(|volume| VolumeSnapshot {
                    id: volume.value.id,
                    name: volume.value.name.clone(),
                    counters,
                })
                .collect(),
            reactors: vec![ReactorSnapshot::default()],
            health: memory.health.clone(),
            incomplete: memory.incomplete,
            ..NodeSnapshot::default()
        }
    }

    fn set_map(&self, map: Arc<MapView>) -> Result<(), BackendError> {
        let mut memory = self.memory();
        assert!(memory.map.as_ref().is_none_or(|before| before.revision() <= map.revision()));
        memory.map = Some(map);
        Ok(())
    }

    fn refuse_io(&self, reason: String) {
        self.memory().refused = Some(reason);
    }

    fn drive_reports(&self) -> Vec<DriveReport> {
        let memory = self.memory();
        let report = |(drive, condition): (&DriveId, &DriveCondition)| DriveReport {
            drive: *drive,
            condition: *condition,
            hung: false,
        };
        memory.drives.iter().map(report).collect()
    }

    fn proposals(&self) -> Vec<(GroupId, Config)> {
        let memory = self.memory();
        let Some(map) = memory.map.clone().filter(|_| !memory.moves_hang) else { return Vec::new() };
        drop(memory);
        let here = |shard: ShardRef| map.node_of(shard) == Some(self.id);
        let mut proposals = Vec::new();
        for group in map.groups().filter(|group| group.primary().is_some_and(here)) {
            let Some(config) = map.config(group.id) else { continue };
            for other in config.others.clone() {
                let mut next = config.clone();
                next.epoch += 1;
                next.others.retain(|copy| *copy != other);
                next.in_sync.push(other);
                proposals.push((group.id, next));
            }
        }
        proposals
    }

    fn quiesce(&self, volume: VolumeId) -> Result<(), BackendError> {
        self.memory().quiesced.push(volume);
        Ok(())
    }

    fn layers(&self) -> Result<Vec<(ShardRef, Vec<LayerId>)>, BackendError> {
        let memory = self.memory();
        Ok(memory.layers.iter().map(|(shard, layers)| (*shard, layers.iter().copied().collect())).collect())
    }

    fn delete_layer(&self, shard: ShardRef, layer: LayerId) -> Result<(), BackendError> {
        self.memory().layers.entry(shard).or_default().remove(&layer);
        Ok(())
    }

    fn scrub_start(&self, drive: Option<DriveId>) -> Result<(), BackendError> {
        self.memory().scrubs.push(drive);
        Ok(())
    }

    fn drive_add(&self, path: &str, _: bool) -> Result<DriveId, BackendError> {
        Err(BackendError::DriveRefused { path: path.to_owned(), reason: "this node pretends".to_owned() })
    }

    fn drive_removed(&self, drive: DriveId) -> Result<(), BackendError> {
        let mut memory = self.memory();
        if memory.releases_hang {
            return Err(BackendError::Drive { drive, reason: "it hangs".to_owned() });
        }
        memory.drives.remove(&drive);
        memory.removed.push(drive);
        Ok(())
    }
}

/// What was cut off from volumes.
#[derive(Default)]
pub struct FakeTrimmer {
    pub trims: Mutex<Vec<(String, u64, u64)>>,
    /// They take until this is taken back.
    pub held: AtomicBool,
    /// They fail until this is taken back.
    pub fails: AtomicBool,
}

impl Trimmer for FakeTrimmer {
    fn trim(
        &self,
        addresses: &[String],
        volume: &str,
        from: u64,
        to: u64,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<(), String> {
        assert!(goes_on());
        assert!(!addresses.is_empty());
        self.trims.lock().unwrap().push((volume.to_owned(), from, to));
        while self.held.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(10));
        }
        match self.fails.load(Ordering::SeqCst) {
            true => Err("this trimmer fails".to_owned()),
            false => Ok(()),
        }
    }
}

/// A process of a cluster.
pub struct Process {
    pub name: String,
    pub node: Arc<FakeNode>,
    pub store: Arc<FaultyStore>,
    pub map: Arc<MapService>,
    pub coordinator: Arc<CoordinatorService>,
    pub heartbeat: HeartbeatService,
    pub catalogue: Arc<Catalogue>,
    pub server: ControlServer,
    pub folder: tempfile::TempDir,
}

impl Process {
    pub fn client(&self) -> Client {
        Client::new(self.server.address()).unwrap()
    }

    /// As `kill -9` does: nothing of it is heard any more, nor does it hear anything.
    pub fn kill(&self) {
        self.store.cut.store(true, Ordering::SeqCst);
        self.server.stop();
        self.heartbeat.stop(&|| false);
    }

    pub fn wait(&self, what: &str, holds: impl FnMut(&MapView) -> bool) -> Arc<MapView> {
        let found = self.map.wait_for_map(PATIENCE, holds);
        found.unwrap_or_else(|| panic!("{}: {what} has not come true", self.name))
    }
}

/// A cluster.
pub struct World {
    pub store: EmbeddedStore,
    pub trimmer: Arc<FakeTrimmer>,
    pub processes: Vec<Process>,
}

impl Drop for World {
    fn drop(&mut self) {
        for process in &self.processes {
            process.heartbeat.stop(&|| false);
            process.coordinator.stop();
            process.server.stop();
            process.map.stop();
        }
    }
}

impl World {
    /// A cluster of so many nodes with so many drives each.
    pub fn new(nodes: usize, drives: usize) -> World {
        let store = EmbeddedStore::in_memory().unwrap();
        let mut world = World { store, trimmer: Arc::default(), processes: Vec::new() };
        for number in 0..nodes {
            world.start(&format!("node-{number}"), drives);
        }
        world.wait_for("a leader", |world| world.leader().is_some());
        // What a new pool is like follows from what the process that makes it knows.
        world.wait_for("all know of all", |world| {
            world.processes.iter().all(|process| process.map.map().drives().count() == nodes * drives)
        });
        world
    }

    pub fn wait_for(&self, what: &str, holds: impl Fn(&World) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !holds(self) {
            assert!(Instant::now() < deadline, "{what} has not come true");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The process that leads and is not cut off.
    pub fn leader(&self) -> Option<&Process> {
        self.processes
            .iter()
            .find(|process| process.coordinator.leads() && !process.store.cut.load(Ordering::SeqCst))
    }

    pub fn start(&mut self, name: &str, drives: usize) {
        let folder = tempfile::tempdir().unwrap();
        let store = Arc::new(FaultyStore::new(self.store.clone()));
        let map = MapService::start(store.clone(), folder.path(), true, &mut |_| {}).unwrap();
        let id = NodeFile::open(folder.path()).unwrap().node;
        let listener = ControlListener::bind("127.0.0.1:0").unwrap();
        let http = listener.address().to_owned();
        register_node(&map, id, name, &http).unwrap();
        let node = Arc::new(FakeNode { id, memory: Mutex::default() });
        for number in 0..drives {
            let drive = add_drive(&map, id, &format!("/drives/\"{number}\""));
            node.memory().drives.insert(drive, DriveCondition::Serving);
        }
        let backend: Arc<dyn NodeBackend> = node.clone();
        follow_map(&map, backend.clone());
        let config = CoordinatorConfig { http: http.clone(), node: Some(id), trimmer: self.trimmer.clone() };
        let coordinator = CoordinatorService::start(map.clone(), config).unwrap();
        let heartbeat =
            HeartbeatService::start(map.clone(), backend.clone(), id, Some(coordinator.clone())).unwrap();
        let catalogue = Arc::new(Catalogue::new(map.clone(), backend, Some(id), Some(coordinator.clone())));
        let request = node.clone();
        let config = ServerConfig {
            version: "1.2.3".to_owned(),
            nbd: vec!["127.0.0.1:10809".to_owned()],
            native: "127.0.0.1:10811".to_owned(),
            metrics: MetricsOptions::default(),
            health: Vec::new(),
            shutdown: Box::new(move || request.memory().shutdown_requested = true),
        };
        let server = ControlServer::start(listener, config, catalogue.clone()).unwrap();
        let name = name.to_owned();
        self.processes.push(Process {
            name,
            node,
            store,
            map,
            coordinator,
            heartbeat,
            catalogue,
            server,
            folder,
        });
    }
}

pub fn register_node(
    map: &MapService,
    id: NodeId,
    name: &str,
    http: &str,
) -> Result<(), coquina_control::ChangeError> {
    let record = NodeRecord {
        id,
        name: name.to_owned(),
        addresses: NodeAddresses {
            http: http.to_owned(),
            native: format!("127.0.0.1:1{}", id.0.0[0]),
            peer: String::new(),
        },
        domains: BTreeMap::new(),
        versions: VersionRange { min: 1, max: 1 },
        wanted: Wanted::In,
    };
    map.change(&|view| operation::register_node(view, Some(map.cluster()), &record)).map(drop)
}

pub fn add_drive(map: &MapService, node: NodeId, path: &str) -> DriveId {
    let id = DriveId(random_id().unwrap());
    let copy_first = std::cell::Cell::new(0);
    map.change(&|view| {
        let (first, write) = operation::claim_copies(view, 2, 0)?;
        copy_first.set(first);
        Ok(Some(write))
    })
    .unwrap();
    let record = DriveRecord {
        id,
        node,
        path: path.to_owned(),
        size_bytes: CAPACITY_BYTES,
        capacity_bytes: CAPACITY_BYTES,
        shards: 2,
        weight: DriveRecord::weight_of_capacity(CAPACITY_BYTES),
        copy_first: copy_first.get(),
        state: DriveState::Healthy,
        wanted: Wanted::In,
        dead_ms: 0,
    };
    map.change(&|view| operation::register_drive(view, &record)).unwrap();
    id
}

/// Whether every group has as many copies in sync as its pool says, on different nodes, and nothing is left to do.
pub fn is_clean(map: &MapView) -> bool {
    map.groups().all(|group| {
        let copies = map.pool(group.pool).unwrap().copies as usize;
        group.in_sync.len() == copies && group.others.is_empty() && group.wanted.is_empty()
    })
}

/// Whether it is clean, and all drives have as many groups as each other, or one less. A pool is made on the drives that are known to be
/// alive then; the others get their share when it has been made, so that it may look clean in between.
pub fn is_spread(map: &MapView) -> bool {
    let groups = |drive| map.used_shards_of(drive).map(|(_, groups)| groups.len()).sum::<usize>();
    let counts: Vec<usize> = map.drives().map(|drive| groups(drive.value.id)).collect();
    let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
    is_clean(map) && most - least <= 1
}

pub fn volume_request(name: &str, size_bytes: u64) -> coquina_control::api::CreateVolume {
    let name = name.to_owned();
    coquina_control::api::CreateVolume { name, size_bytes, ..Default::default() }
}

pub fn unknown_node() -> NodeId {
    NodeId(Id128([0xee; 16]))
}
