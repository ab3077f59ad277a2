//! A node: opens its drives, starts its reactors, and answers the control plane.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use coquina_base::{CHUNK_BYTES, ClusterId, DriveId, NodeId, VolumeId};
use coquina_control::{
    BackendError, Coordinator, DriveRecord, DriveSnapshot, DriveState, HealthCode, HealthEntry, NodeBackend,
    NodeSnapshot, Severity, ShardRef, VolumeRecord, VolumeSnapshot, VolumeState, register_drive,
};
use coquina_engine::{DriveSuperblock, Identity, Shard, ShardConfig, SuperblockError};
use coquina_reactor::{
    Address, DriveFile, DriveOptions, DriveProblem, ListenProblem, Listener, MailboxSender, Reactor,
    ReactorConfig, ReactorError, SyncDevice, mailbox, random_u64,
};
use hashbrown::HashMap;

use crate::cache_size::{HostMemory, default_bound_bytes, target_bytes};
use crate::command::Command;
use crate::connection::Protocol;
use crate::core::{Core, ListenerSlot, ShardSlot};
use crate::drive::{FormatRequest, format_open};
use crate::error::NodeError;
use crate::snapshot::{CoreSnapshot, VolumeCounters};
use crate::volume::{VolumeTable, parts_of};

/// How often the block cache's size is looked at.
const CACHE_PERIOD: Duration = Duration::from_secs(5);
/// How long the control plane waits for a reactor.
const PATIENCE: Duration = Duration::from_secs(40);
/// How long a start waits for what a killed server may still hold.
const BUSY_MAX: Duration = Duration::from_secs(1);
/// Index memory where none is given: a part of the host's memory.
const INDEX_MEMORY_PART: u64 = 8;

/// A drive that a node shall serve.
#[derive(Clone, Debug)]
pub struct DriveSpec {
    /// File or block device.
    pub path: PathBuf,
    /// Size of the file to make, if there is none.
    pub size_bytes: Option<u64>,
    /// Erase what is there if it is not a drive of this cluster.
    pub force: bool,
}

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

/// A drive as the node knows it.
struct NodeDrive {
    id: DriveId,
    path: PathBuf,
    size_bytes: u64,
    shards: u32,
}

struct Housekeeper {
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

/// A running node.
pub struct Node {
    cores: Vec<MailboxSender<Command>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    housekeeper: Mutex<Option<Housekeeper>>,
    places: Arc<HashMap<ShardRef, (usize, usize)>>,
    drives: Vec<NodeDrive>,
    volumes: Mutex<BTreeMap<VolumeId, Arc<VolumeRecord>>>,
    nbd: Vec<Address>,
    native: Address,
    started: Instant,
}

/// A drive that is open, before its reactor has it.
struct Opened {
    file: DriveFile,
    id: DriveId,
    shards: u32,
    path: PathBuf,
    size_bytes: u64,
}

/// What a reactor's thread starts with.
struct Seed {
    index: usize,
    shards: Vec<(ShardRef, Shard, OwnedFd, u64)>,
    listeners: Vec<(OwnedFd, Protocol)>,
    places: Arc<HashMap<ShardRef, (usize, usize)>>,
    volumes: Vec<Arc<VolumeRecord>>,
    cluster: ClusterId,
    node: NodeId,
}

impl Node {
    /// Opens or formats the drives, replays their logs, and serves.
    pub fn start(config: NodeConfig, coordinator: Arc<dyn Coordinator>) -> Result<Arc<Node>, NodeError> {
        let map = coordinator.map();
        let identity = Identity {
            cluster: map.cluster.value.id,
            node: coordinator.node_id(),
            drive: DriveId::default(),
        };
        let (nbd, native) = bind_all(&config)?;
        let mut opened = Vec::new();
        for spec in &config.drives {
            opened.push(open_drive(spec, identity)?);
        }
        let shards_all: usize = opened.iter().map(|drive| drive.shards as usize).sum();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let reactors = config.reactors.unwrap_or(cores.min(shards_all)).clamp(1, 256);
        let memory = HostMemory::read();
        let cache_bound = config.cache_memory_bytes.unwrap_or_else(|| default_bound_bytes(memory));
        let shard_config = shard_config(&config, shards_all as u64, memory, cache_bound);

        let mut seeds: Vec<Vec<(ShardRef, Shard, OwnedFd, u64)>> =
            (0..reactors).map(|_| Vec::new()).collect();
        let mut places = HashMap::new();
        let mut drives = Vec::new();
        let mut number = 0;
        for drive in opened {
            let mut capacity_bytes = 0;
            for shard in 0..drive.shards {
                let core = number % reactors;
                number += 1;
                let started = Instant::now();
                let engine = open_shard(&drive, shard, &shard_config)?;
                let stats = engine.stats();
                capacity_bytes += stats.capacity_bytes;
                let open_ns = started.elapsed().as_nanos() as u64;
                tracing::info!(
                    drive = %drive.path.display(), shard, entries = stats.replayed_entries,
                    milliseconds = open_ns / 1_000_000, "shard opened"
                );
                let reference = ShardRef { drive: drive.id, shard };
                places.insert(reference, (core, seeds[core].len()));
                let descriptor = drive.file.try_clone_descriptor()?;
                seeds[core].push((reference, engine, descriptor, open_ns));
            }
            register_drive(
                &*coordinator,
                &DriveRecord {
                    id: drive.id,
                    node: identity.node,
                    path: drive.path.display().to_string(),
                    size_bytes: drive.size_bytes,
                    capacity_bytes,
                    shards: drive.shards,
                    state: DriveState::Healthy,
                },
            )?;
            drives.push(NodeDrive {
                id: drive.id,
                path: drive.path,
                size_bytes: drive.size_bytes,
                shards: drive.shards,
            });
        }
        let places = Arc::new(places);
        let volumes: BTreeMap<VolumeId, Arc<VolumeRecord>> = coordinator
            .map()
            .volumes
            .values()
            .filter(|volume| volume.value.state == VolumeState::Active)
            .map(|volume| (volume.value.id, Arc::new(volume.value.clone())))
            .collect();
        let nbd_addresses = nbd.iter().map(|listener| listener.address().clone()).collect();
        let native_address = native.address().clone();
        let mut listeners: Vec<(OwnedFd, Protocol)> =
            nbd.into_iter().map(|listener| (listener.into_socket(), Protocol::Nbd)).collect();
        listeners.push((native.into_socket(), Protocol::Native));
        let mut listeners = Some(listeners);
        let seeds = seeds.into_iter().enumerate().map(|(index, shards)| Seed {
            index,
            shards,
            listeners: listeners.take().unwrap_or_default(),
            places: places.clone(),
            volumes: volumes.values().cloned().collect(),
            cluster: identity.cluster,
            node: identity.node,
        });
        let (cores, threads) = start_cores(seeds.collect())?;
        let housekeeper = start_housekeeper(cores.clone(), shards_all as u64, cache_bound)?;
        Ok(Arc::new(Node {
            cores,
            threads: Mutex::new(threads),
            housekeeper: Mutex::new(Some(housekeeper)),
            places,
            drives,
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
            drop(housekeeper.stop);
            let _ = housekeeper.thread.join();
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

    /// Has a job done on each shard of a volume's placement.
    fn on_shards(
        &self,
        volume: &VolumeRecord,
        make: impl Fn(ShardRef, Sender<Result<(), String>>) -> Command,
    ) -> Result<(), BackendError> {
        for shard in &volume.placement.shards {
            let Some(&(core, _)) = self.places.get(shard) else {
                return Err(BackendError::UnknownDrive(shard.drive));
            };
            let (sender, receiver) = channel();
            self.cores[core].send(make(*shard, sender));
            let answer = receiver.recv_timeout(PATIENCE).map_err(|_| BackendError::Stopping)?;
            answer.map_err(|reason| BackendError::Drive { drive: shard.drive, reason })?;
        }
        Ok(())
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
        let drives = self.drives.iter().map(|drive| drive_snapshot(drive, &cores, &mut health)).collect();
        let mut counters: BTreeMap<VolumeId, VolumeCounters> = BTreeMap::new();
        for (id, one) in cores.iter().flat_map(|core| &core.volumes) {
            counters.entry(*id).or_default().merge(one);
        }
        let volumes = records.values().map(|record| {
            let counted = counters.remove(&record.id).unwrap_or_default();
            volume_snapshot(record, counted)
        });
        NodeSnapshot {
            uptime_ns: self.started.elapsed().as_nanos() as u64,
            drives,
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
        if let Some(id) = drive.filter(|id| self.drives.iter().all(|drive| drive.id != *id)) {
            return Err(BackendError::UnknownDrive(id));
        }
        for core in &self.cores {
            core.send(Command::Scrub { drive });
        }
        // Mailboxes keep their order: an answer to this means that the scrub has begun.
        self.ask_all(|done| Command::Snapshot { done }).map(drop)
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

fn bind_all(config: &NodeConfig) -> Result<(Vec<Listener>, Listener), NodeError> {
    let bind = |flag: &str, text: &str| {
        let named = |reason: String| NodeError::Address { address: format!("{flag} {text}"), reason };
        let address = Address::resolve(text).map_err(|error| named(error.to_string()))?;
        let is_busy = |error: &ReactorError| {
            matches!(error, ReactorError::Listen { problem: ListenProblem::InUse, .. })
        };
        patiently(is_busy, || Listener::bind(&address)).map_err(|error| match error {
            ReactorError::Listen { problem, .. } => named(problem.to_string()),
            other => named(other.to_string()),
        })
    };
    let nbd = config.nbd.iter().map(|text| bind("--nbd", text)).collect::<Result<Vec<_>, _>>()?;
    Ok((nbd, bind("--listen", &config.native)?))
}

/// Tries again for a while: the kernel keeps the sockets and locks of a process that was just killed until it has
/// taken its rings down.
fn patiently<T>(
    is_busy: impl Fn(&ReactorError) -> bool,
    mut attempt: impl FnMut() -> Result<T, ReactorError>,
) -> Result<T, ReactorError> {
    let started = Instant::now();
    loop {
        match attempt() {
            Err(error) if is_busy(&error) && started.elapsed() < BUSY_MAX => {
                std::thread::sleep(Duration::from_millis(20));
            }
            result => return result,
        }
    }
}

fn open_drive(spec: &DriveSpec, identity: Identity) -> Result<Opened, NodeError> {
    let path = &spec.path;
    if spec.size_bytes.is_none() && !path.exists() {
        return Err(NodeError::NoSize { path: path.clone() });
    }
    let is_new = !path.exists();
    // An existing file keeps its size: it may be somebody's.
    let create_bytes = if is_new { spec.size_bytes } else { None };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = folder.filter(|folder| is_new && !folder.exists()) {
        return Err(NodeError::NoFolder { path: path.clone(), folder: folder.to_owned() });
    }
    let is_locked =
        |error: &ReactorError| matches!(error, ReactorError::Drive { problem: DriveProblem::Locked, .. });
    let options = DriveOptions { create_bytes, ..DriveOptions::default() };
    let file = patiently(is_locked, || DriveFile::open(path, options))?;
    let format = |file: &DriveFile, force: bool| {
        let request = FormatRequest {
            size_bytes: spec.size_bytes,
            shards: 1,
            segment_bytes: None,
            cluster_and_node: identity,
            force,
        };
        format_open(path, file, &request)
    };
    let found = DriveSuperblock::read(&mut SyncDevice::new(&file));
    let superblock = match found {
        Ok(superblock) if superblock.identity.cluster == identity.cluster => superblock,
        Ok(superblock) if !spec.force => {
            return Err(NodeError::OtherCluster {
                path: path.clone(),
                found: superblock.identity.cluster,
                expected: identity.cluster,
            });
        }
        Err(SuperblockError::Io(error)) => {
            return Err(NodeError::Superblock { path: path.clone(), error: SuperblockError::Io(error) });
        }
        Err(error) if !spec.force && !matches!(error, SuperblockError::Missing) => {
            return Err(NodeError::Superblock { path: path.clone(), error });
        }
        Ok(_) | Err(_) => {
            let formatted = format(&file, spec.force);
            if formatted.is_err() && is_new {
                let _ = std::fs::remove_file(path);
            }
            formatted?;
            DriveSuperblock::read(&mut SyncDevice::new(&file))
                .map_err(|error| NodeError::Superblock { path: path.clone(), error })?
        }
    };
    Ok(Opened {
        id: superblock.identity.drive,
        shards: superblock.shards,
        size_bytes: superblock.size_bytes,
        path: path.clone(),
        file,
    })
}

fn open_shard(drive: &Opened, shard: u32, config: &ShardConfig) -> Result<Shard, NodeError> {
    let mut device = SyncDevice::new(&drive.file);
    Shard::open(&mut device, shard, random_u64(), config.clone()).map_err(|error| NodeError::Open {
        path: drive.path.clone(),
        shard,
        error,
    })
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

/// Ways to the reactors, and their threads.
type Cores = (Vec<MailboxSender<Command>>, Vec<JoinHandle<()>>);

fn start_cores(seeds: Vec<Seed>) -> Result<Cores, NodeError> {
    let count = seeds.len();
    let (ready_sender, ready) = channel();
    let mut peers = Vec::new();
    let mut threads = Vec::new();
    for seed in seeds {
        let (peer_sender, peer_receiver) = channel::<Vec<MailboxSender<Command>>>();
        peers.push(peer_sender);
        let ready_sender = ready_sender.clone();
        let run = move || run_core(seed, &ready_sender, &peer_receiver);
        let thread = std::thread::Builder::new().name("reactor".to_owned()).spawn(run);
        threads.push(thread.map_err(NodeError::Thread)?);
    }
    let mut senders: Vec<Option<MailboxSender<Command>>> = (0..count).map(|_| None).collect();
    for _ in 0..count {
        match ready.recv() {
            Ok((index, Ok(sender))) => senders[index] = Some(sender),
            Ok((_, Err(error))) => return Err(error.into()),
            Err(_) => break,
        }
    }
    let senders: Vec<_> = senders.into_iter().flatten().collect();
    for peer in peers {
        // A thread that is gone has said so above.
        let _ = peer.send(senders.clone());
    }
    Ok((senders, threads))
}

type Ready = Sender<(usize, Result<MailboxSender<Command>, ReactorError>)>;

fn run_core(seed: Seed, ready: &Ready, peers: &std::sync::mpsc::Receiver<Vec<MailboxSender<Command>>>) {
    let index = seed.index;
    let mut reactor = match Reactor::new(ReactorConfig::default()) {
        Ok(reactor) => reactor,
        Err(error) => {
            let _ = ready.send((index, Err(error)));
            return;
        }
    };
    let (sender, mailbox) = mailbox(reactor.waker());
    if ready.send((index, Ok(sender))).is_err() {
        return;
    }
    // The others did not start.
    let Ok(peers) = peers.recv() else { return };
    let shards = seed
        .shards
        .into_iter()
        .map(|(reference, shard, descriptor, open_ns)| ShardSlot {
            reference,
            shard,
            file: reactor.attach(descriptor),
            open_ns,
            write_latency: Default::default(),
            read_latency: Default::default(),
            issued_ns: Vec::new(),
            is_write: Vec::new(),
            under_way: 0,
            stalled: 0,
            damage: Vec::new(),
        })
        .collect();
    let listeners = seed
        .listeners
        .into_iter()
        .map(|(socket, protocol)| ListenerSlot { file: reactor.attach(socket), protocol })
        .collect();
    let mut volumes = VolumeTable::default();
    seed.volumes.into_iter().for_each(|record| volumes.set(record));
    let core = Core {
        index,
        reactor,
        mailbox,
        peers,
        cluster: seed.cluster,
        node: seed.node,
        shards,
        places: seed.places,
        listeners,
        connections: slab::Slab::new(),
        generation_next: 0,
        listed: Vec::new(),
        requests: slab::Slab::new(),
        serial_next: 0,
        groups: slab::Slab::new(),
        spare_outcomes: Vec::new(),
        volumes,
        sessions: HashMap::new(),
        waiters: Vec::new(),
        now_ns: 0,
        housekeeping_ns: 0,
        stopping_since_ns: None,
        adopt_next: 0,
        dropped_connections: 0,
        turns: 0,
        busy_ns: 0,
        operations: 0,
    };
    if let Err(error) = core.run() {
        tracing::error!(%error, "a reactor has failed: the server must be restarted");
        std::process::abort();
    }
}

fn start_housekeeper(
    cores: Vec<MailboxSender<Command>>,
    shards: u64,
    bound_bytes: u64,
) -> Result<Housekeeper, NodeError> {
    let (stop, stopped) = channel::<()>();
    let run = move || {
        let mut last = 0;
        while stopped.recv_timeout(CACHE_PERIOD) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            let Some(memory) = HostMemory::read() else { continue };
            let (sender, receiver) = channel();
            cores.iter().for_each(|core| core.send(Command::Snapshot { done: sender.clone() }));
            let snapshots: Vec<CoreSnapshot> =
                cores.iter().filter_map(|_| receiver.recv_timeout(CACHE_PERIOD).ok()).collect();
            let held =
                snapshots.iter().flat_map(|core| &core.shards).map(|shard| shard.shard.stats.cache_bytes);
            let target = target_bytes(memory, held.sum(), bound_bytes);
            // Small changes are not worth the waking.
            if target.abs_diff(last) > last / 16 {
                last = target;
                let bytes_per_shard = target / shards.max(1);
                cores.iter().for_each(|core| core.send(Command::SetCache { bytes_per_shard }));
            }
        }
    };
    let thread = std::thread::Builder::new().name("housekeeper".to_owned()).spawn(run);
    Ok(Housekeeper { stop, thread: thread.map_err(NodeError::Thread)? })
}

fn drive_snapshot(drive: &NodeDrive, cores: &[CoreSnapshot], health: &mut Vec<HealthEntry>) -> DriveSnapshot {
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
        snapshot.shards.push(shard.shard.clone());
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

fn volume_snapshot(record: &VolumeRecord, counted: VolumeCounters) -> VolumeSnapshot {
    VolumeSnapshot {
        id: record.id,
        name: record.name.clone(),
        connections: counted.connections,
        reads: counted.reads,
        read_bytes: counted.read_bytes,
        writes: counted.writes,
        write_bytes: counted.write_bytes,
        trims: counted.trims,
        trim_bytes: counted.trim_bytes,
        flushes: counted.flushes,
        errors: counted.errors,
        read_latency: counted.read_latency,
        write_latency: counted.write_latency,
    }
}
