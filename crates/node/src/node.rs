//! A node: opens its drives, starts its reactors, and answers the control plane.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use coquina_base::{CHUNK_BYTES, DriveId, NodeId, VolumeId};
use coquina_control::{
    AbsentDrive, BackendError, ClusterMap, Coordinator, DriveRecord, DriveState, HealthCode, HealthEntry,
    NodeBackend, NodeSnapshot, Severity, ShardRef, VolumeCounters, VolumeRecord, VolumeSnapshot, VolumeState,
    record_drive_state, register_drive,
};
use coquina_engine::{Identity, ShardConfig};
use coquina_reactor::{Address, Listener, MailboxSender};
use hashbrown::HashMap;

use crate::cache_size::{HostMemory, default_bound_bytes, target_bytes};
use crate::command::Command;
use crate::connection::Protocol;
use crate::error::NodeError;
use crate::housekeeper::{Housekeeper, HousekeeperConfig};
use crate::listen::bind_all;
use crate::open::{DriveSpec, OpenedDrive, open_drives};
use crate::snapshot::drive_snapshot;
use crate::threads::{Seed, SeedShard, start_cores};
use crate::volume::parts_of;

/// How long the control plane waits for a reactor.
const PATIENCE: Duration = Duration::from_secs(40);
/// Index memory where none is given: a part of the host's memory.
const INDEX_MEMORY_PART: u64 = 8;

/// How a node is started.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Folder of the cluster state; not used for data.
    pub folder: PathBuf,
    /// Drives to serve; those without a superblock are formatted if they are empty.
    pub drives: Vec<DriveSpec>,
    /// Address for native clients.
    pub native: String,
    /// Addresses for NBD clients; `unix:PATH` for Unix sockets.
    pub nbd: Vec<String>,
    /// Most bytes of index in memory, for all shards together.
    pub index_memory_bytes: Option<u64>,
    /// Most bytes of block cache, for all shards together.
    pub cache_memory_bytes: Option<u64>,
    /// Reactor threads; as many as there are cores or shards, whichever is less, if `None`.
    pub reactors: Option<usize>,
}

/// Reactor and slot of every shard.
type Places = HashMap<ShardRef, (usize, usize)>;

/// A drive as the node knows it.
#[derive(Clone)]
pub(crate) struct NodeDrive {
    pub id: DriveId,
    pub path: PathBuf,
    pub size_bytes: u64,
    pub shards: u32,
}

/// The drives of a node.
#[derive(Clone)]
struct NodeDrives {
    served: Vec<NodeDrive>,
    absent: Vec<AbsentDrive>,
}

/// A running node.
pub struct Node {
    cores: Vec<MailboxSender<Command>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    housekeeper: Mutex<Option<Housekeeper>>,
    places: Arc<Places>,
    drives: Mutex<NodeDrives>,
    volumes: Mutex<BTreeMap<VolumeId, Arc<VolumeRecord>>>,
    nbd: Vec<Address>,
    native: Address,
    started: Instant,
}

impl Node {
    /// Opens or formats the drives, replays their logs, and serves. Drives of the map that cannot be used are left out
    /// and recorded as missing, as long as there is one that can.
    pub fn start(config: NodeConfig, coordinator: Arc<dyn Coordinator>) -> Result<Arc<Node>, NodeError> {
        let map = coordinator.map();
        let identity = Identity {
            cluster: map.cluster.value.id,
            node: coordinator.node_id(),
            drive: DriveId::default(),
        };
        let (nbd, native) = bind_all(&config)?;
        let mut found = open_drives(&config.drives, identity, &map)?;
        let shards_all: usize = found.opened.iter().map(|drive| drive.shards as usize).sum();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let reactors = config.reactors.unwrap_or(cores.min(shards_all)).clamp(1, 256);
        let memory = HostMemory::read();
        let cache_bound_bytes = config.cache_memory_bytes.unwrap_or_else(|| default_bound_bytes(memory));
        let shard_config = shard_config(&config, shards_all as u64, memory, cache_bound_bytes);
        let ready = found.open_shards(&map, &shard_config)?;
        if ready.is_empty() {
            let reasons = found.absent.iter().map(|absent| format!("\n  {}: {}", absent.id, absent.reason));
            return Err(NodeError::NoDrive { reasons: reasons.collect() });
        }
        record_drives(&*coordinator, identity.node, &ready, &found.absent)?;
        let Distribution { drives, placed, places } = distribute(ready, reactors)?;

        let volumes = active_volumes(&coordinator.map());
        let nbd_addresses = nbd.iter().map(|listener| listener.address().clone()).collect();
        let native_address = native.address().clone();
        let mut listeners: Vec<(OwnedFd, Protocol)> =
            nbd.into_iter().map(|listener| (listener.into_socket(), Protocol::Nbd)).collect();
        listeners.push((native.into_socket(), Protocol::Native));
        let mut listeners = Some(listeners);
        let (notice_sender, notices) = channel();
        let seeds = placed.into_iter().enumerate().map(|(index, shards)| Seed {
            index,
            shards,
            listeners: listeners.take().unwrap_or_default(),
            places: places.clone(),
            volumes: volumes.values().cloned().collect(),
            cluster: identity.cluster,
            node: identity.node,
            notices: notice_sender.clone(),
        });
        let (cores, threads) = start_cores(seeds.collect())?;
        let housekeeper_config = HousekeeperConfig {
            coordinator,
            cores: cores.clone(),
            shards: shards_all as u64,
            cache_bound_bytes,
        };
        let housekeeper = Housekeeper::start(housekeeper_config, notice_sender, notices)?;
        Ok(Arc::new(Node {
            cores,
            threads: Mutex::new(threads),
            housekeeper: Mutex::new(Some(housekeeper)),
            places,
            drives: Mutex::new(NodeDrives { served: drives, absent: found.absent }),
            volumes: Mutex::new(volumes),
            nbd: nbd_addresses,
            native: native_address,
            started: Instant::now(),
        }))
    }

    /// Where NBD clients connect.
    pub fn nbd_addresses(&self) -> Vec<String> {
        self.nbd.iter().map(ToString::to_string).collect()
    }

    /// Where native clients connect.
    pub fn native_address(&self) -> String {
        self.native.to_string()
    }

    /// Stops: connections are closed, what is acknowledged stays, and the next start has little to replay.
    pub fn stop(&self) {
        if let Some(housekeeper) = lock(&self.housekeeper).take() {
            housekeeper.stop();
        }
        for core in &self.cores {
            core.send(Command::Stop);
        }
        for thread in lock(&self.threads).drain(..) {
            let _ = thread.join();
        }
        self.nbd.iter().for_each(Listener::remove);
    }

    /// Asks every reactor and waits for all.
    fn ask_all<T>(&self, make: impl Fn(Sender<T>) -> Command) -> Result<Vec<T>, BackendError> {
        let (sender, receiver) = channel();
        for core in &self.cores {
            core.send(make(sender.clone()));
        }
        drop(sender);
        let mut answers = Vec::new();
        while answers.len() < self.cores.len() {
            answers.push(receiver.recv_timeout(PATIENCE).map_err(|_| BackendError::Stopping)?);
        }
        Ok(answers)
    }

    /// Has a job done on each shard of a volume's placement. What can be done is, also where something cannot; the
    /// first error is told.
    fn on_shards(
        &self,
        volume: &VolumeRecord,
        make: impl Fn(ShardRef, Sender<Result<(), String>>) -> Command,
    ) -> Result<(), BackendError> {
        let mut result = Ok(());
        for shard in &volume.placement.shards {
            result = result.and(self.on_shard(*shard, &make));
        }
        result
    }

    fn on_shard(
        &self,
        shard: ShardRef,
        make: impl Fn(ShardRef, Sender<Result<(), String>>) -> Command,
    ) -> Result<(), BackendError> {
        let Some(&(core, _)) = self.places.get(&shard) else {
            return Err(BackendError::DriveMissing(shard.drive));
        };
        let (sender, receiver) = channel();
        self.cores[core].send(make(shard, sender));
        let answer = receiver.recv_timeout(PATIENCE).map_err(|_| BackendError::Stopping)?;
        answer.map_err(|reason| BackendError::Drive { drive: shard.drive, reason })
    }

    fn connections_of(&self, volume: VolumeId) -> Result<u64, BackendError> {
        let snapshots = self.ask_all(|done| Command::Snapshot { done })?;
        let counters = snapshots.iter().flat_map(|snapshot| &snapshot.volumes);
        Ok(counters.filter(|(id, _)| *id == volume).map(|(_, counters)| counters.connections).sum())
    }
}

impl NodeBackend for Node {
    fn snapshot(&self) -> NodeSnapshot {
        let answered = self.ask_all(|done| Command::Snapshot { done });
        let records = lock(&self.volumes).clone();
        let mut health = Vec::new();
        if answered.is_err() {
            let message = "a reactor has not answered for 40 s".to_owned();
            health.push(HealthEntry::new(HealthCode::SlowDrive, Severity::Error, "node".to_owned(), message));
        }
        let cores = answered.unwrap_or_default();
        let NodeDrives { served, absent } = lock(&self.drives).clone();
        let drives = served.iter().map(|drive| drive_snapshot(drive, &cores, &mut health)).collect();
        let mut counters: BTreeMap<VolumeId, VolumeCounters> = BTreeMap::new();
        for (id, one) in cores.iter().flat_map(|core| &core.volumes) {
            counters.entry(*id).or_default().merge(one);
        }
        let volumes = records.values().map(|record| VolumeSnapshot {
            id: record.id,
            name: record.name.clone(),
            counters: counters.remove(&record.id).unwrap_or_default(),
        });
        NodeSnapshot {
            uptime_ns: self.started.elapsed().as_nanos() as u64,
            drives,
            absent,
            volumes: volumes.collect(),
            reactors: cores.iter().map(|core| core.reactor).collect(),
            nbd_connections: cores.iter().map(|core| core.nbd_connections).sum(),
            native_connections: cores.iter().map(|core| core.native_connections).sum(),
            dropped_connections: cores.iter().map(|core| core.dropped_connections).sum(),
            health,
        }
    }

    fn volume_opened(&self, volume: &VolumeRecord) -> Result<(), BackendError> {
        let record = Arc::new(volume.clone());
        lock(&self.volumes).insert(volume.id, record.clone());
        self.ask_all(|done| Command::SetVolume { volume: record.clone(), done }).map(drop)
    }

    fn volume_changed(&self, volume: &VolumeRecord) -> Result<(), BackendError> {
        self.volume_opened(volume)?;
        self.ask_all(|done| Command::Quiesce { volume: volume.id, done }).map(drop)
    }

    fn volume_removed(&self, volume: &VolumeRecord, force: bool) -> Result<(), BackendError> {
        let connections = self.connections_of(volume.id)?;
        if connections > 0 && !force {
            return Err(BackendError::Attached { connections });
        }
        lock(&self.volumes).remove(&volume.id);
        self.ask_all(|done| Command::DropVolume { volume: volume.id, done }).map(drop)
    }

    fn delete_layer(&self, volume: &VolumeRecord) -> Result<(), BackendError> {
        self.on_shards(volume, |shard, done| Command::DeleteLayer {
            drive: shard.drive,
            shard: shard.shard,
            layer: volume.layer,
            done,
        })
    }

    fn trim_layer(&self, volume: &VolumeRecord, from_bytes: u64, to_bytes: u64) -> Result<(), BackendError> {
        // A bounded number of chunks at a time, so that a large volume takes no large list.
        let step = CHUNK_BYTES * 4096;
        let mut from = from_bytes;
        while from < to_bytes {
            let to = to_bytes.min((from / step + 1) * step);
            self.on_shards(volume, |shard, done| Command::TrimLayer {
                drive: shard.drive,
                shard: shard.shard,
                layer: volume.layer,
                ranges: parts_of(from, to - from)
                    .filter(|(chunk, _, _)| volume.placement.shard_of_chunk(*chunk) == shard)
                    .collect(),
                done,
            })?;
            from = to;
        }
        Ok(())
    }

    fn scrub_start(&self, drive: Option<DriveId>) -> Result<(), BackendError> {
        if let Some(id) = drive {
            let drives = lock(&self.drives);
            if drives.absent.iter().any(|absent| absent.id == id) {
                return Err(BackendError::DriveMissing(id));
            }
            if drives.served.iter().all(|drive| drive.id != id) {
                return Err(BackendError::UnknownDrive(id));
            }
        }
        for core in &self.cores {
            core.send(Command::Scrub { drive });
        }
        // Mailboxes keep their order: an answer to this means that the scrub has begun.
        self.ask_all(|done| Command::Snapshot { done }).map(drop)
    }

    fn drive_removed(&self, drive: DriveId) -> Result<(), BackendError> {
        self.ask_all(|done| Command::ReleaseDrive { drive, done })?;
        let mut drives = lock(&self.drives);
        drives.served.retain(|served| served.id != drive);
        drives.absent.retain(|absent| absent.id != drive);
        Ok(())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.stop();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says in the map which drives are served and which are not.
fn record_drives(
    coordinator: &dyn Coordinator,
    node: NodeId,
    ready: &[OpenedDrive],
    absent: &[AbsentDrive],
) -> Result<(), NodeError> {
    for OpenedDrive { drive, shards } in ready {
        let capacity_bytes = shards.iter().map(|shard| shard.engine.stats().capacity_bytes).sum();
        register_drive(
            coordinator,
            &DriveRecord {
                id: drive.id,
                node,
                path: drive.path.display().to_string(),
                size_bytes: drive.size_bytes,
                capacity_bytes,
                shards: drive.shards,
                state: DriveState::Healthy,
            },
        )?;
    }
    for absent in absent {
        record_drive_state(coordinator, absent.id, DriveState::Missing)?;
    }
    Ok(())
}

/// Drives, the shards of each reactor, and where each shard is.
struct Distribution {
    drives: Vec<NodeDrive>,
    placed: Vec<Vec<SeedShard>>,
    places: Arc<Places>,
}

/// Gives shards to reactors in turn.
fn distribute(ready: Vec<OpenedDrive>, reactors: usize) -> Result<Distribution, NodeError> {
    let mut placed: Vec<Vec<SeedShard>> = (0..reactors).map(|_| Vec::new()).collect();
    let mut places = HashMap::new();
    let mut drives = Vec::new();
    let mut turn = (0..reactors).cycle();
    for OpenedDrive { drive, shards } in ready {
        for (number, shard) in shards.into_iter().enumerate() {
            let core = turn.next().unwrap_or(0);
            let reference = ShardRef { drive: drive.id, shard: number as u32 };
            places.insert(reference, (core, placed[core].len()));
            let descriptor = drive.file.try_clone_descriptor()?;
            placed[core].push(SeedShard {
                reference,
                engine: shard.engine,
                descriptor,
                open_ns: shard.open_ns,
            });
        }
        drives.push(NodeDrive {
            id: drive.id,
            path: drive.path,
            size_bytes: drive.size_bytes,
            shards: drive.shards,
        });
    }
    Ok(Distribution { drives, placed, places: Arc::new(places) })
}

fn active_volumes(map: &ClusterMap) -> BTreeMap<VolumeId, Arc<VolumeRecord>> {
    let active = map.volumes.values().filter(|volume| volume.value.state == VolumeState::Active);
    active.map(|volume| (volume.value.id, Arc::new(volume.value.clone()))).collect()
}

fn shard_config(
    config: &NodeConfig,
    shards: u64,
    memory: Option<HostMemory>,
    cache_bound: u64,
) -> ShardConfig {
    let shards = shards.max(1);
    let index =
        config.index_memory_bytes.or_else(|| memory.map(|memory| memory.total_bytes / INDEX_MEMORY_PART));
    let cache = memory.map_or(0, |memory| target_bytes(memory, 0, cache_bound));
    ShardConfig {
        index_memory_bytes: index.unwrap_or(1 << 30) / shards,
        cache_bytes: cache / shards,
        ..ShardConfig::default()
    }
}
