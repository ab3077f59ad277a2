//! A node: opens its drives, starts its reactors, and answers the control plane. Without drives it is a gateway.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use coquina_base::{DriveId, LayerId, NodeId, VolumeId};
use coquina_cluster::{
    Config, DriveCondition, DriveRecord, DriveReport, DriveState, GroupId, HealthCode, HealthEntry, MapView,
    NodeAddresses, Severity, ShardRef, VolumeState, Wanted,
    operation::{OperationError, claim_copies, register_drive},
};
use coquina_control::{
    AbsentDrive, BackendError, ChangeError, CopyTotals, MapService, NodeBackend, NodeSnapshot,
    VolumeCounters, VolumeSnapshot, register_node, unix_ms,
};
use coquina_engine::{Identity, ShardConfig};
use coquina_reactor::{Address, Listener, MailboxSender, boottime_ns, listen_nearby};
use coquina_replication::CopyId;

use crate::bind_cpu::BindCpu;
use crate::cache_size::{HostMemory, default_bound_bytes, default_index_bytes, target_bytes};
use crate::command::Command;
use crate::connection::Protocol;
use crate::error::NodeError;
use crate::figures::{Figures, Now};
use crate::housekeeper::{Housekeeper, HousekeeperConfig};
use crate::listen::bind_all;
use crate::open::{DamagedDrive, DriveSpec, OpenedDrive, is_out, open_drives};
use crate::proposals::Proposals;
use crate::scrubs::Scrubs;
use crate::snapshot::drive_snapshot;
use crate::stalls::HungShards;
use crate::tell_map::tell_all;
use crate::threads::{CoreThread, Places, Seed, SeedShard, start_cores};

/// How long the control plane waits for a reactor.
const PATIENCE: Duration = Duration::from_secs(40);
/// A reactor that owes an answer for so long is told of.
const SLOW: Duration = Duration::from_secs(5);
/// How soon who waits for reactors notices that the node stops.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// How a node is started.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// Who it is. Drives and native addresses are registered for it.
    pub identity: Option<NodeIdentity>,
    /// Drives to serve; those without a superblock are formatted if they are empty.
    pub drives: Vec<DriveSpec>,
    /// Address for native clients and other nodes; none for a gateway.
    pub native: Option<String>,
    /// Addresses for NBD clients; `unix:PATH` for Unix sockets.
    pub nbd: Vec<String>,
    /// Whether it may listen where other hosts can reach it.
    pub insecure: bool,
    /// Most bytes of index in memory, for all shards together.
    pub index_memory_bytes: Option<u64>,
    /// How much of each drive file is zeroed ahead of use while the drive is idle.
    pub zero_ahead_bytes: u64,
    /// Whether clients and nodes of the same host are left to TCP, without a Unix socket beside the native address.
    pub tcp_only: bool,
    /// Most bytes of block cache, for all shards together.
    pub cache_memory_bytes: Option<u64>,
    /// How long a reactor may look for the next event before it sleeps, where events came that soon of late; 0 is never.
    pub busy_poll_ns: u64,
    /// When reactors bind themselves to processors.
    pub bind_cpu: BindCpu,
    /// Reactor threads; as many as there are cores or shards, whichever is less, if `None`.
    pub reactors: Option<usize>,
    /// Where it is remembered over a restart when drives were scrubbed; nowhere if `None`.
    pub folder: Option<PathBuf>,
}

/// A node as it registers.
#[derive(Clone, Debug)]
pub struct NodeIdentity {
    /// The node.
    pub id: NodeId,
    /// Its name.
    pub name: String,
    /// Where its REST interface is.
    pub http: String,
    /// Failure domains that it is in.
    pub domains: BTreeMap<String, String>,
}

/// A drive as the node knows it.
#[derive(Clone)]
pub(crate) struct NodeDrive {
    pub id: DriveId,
    pub path: PathBuf,
    pub size_bytes: u64,
    pub shards: u32,
}

/// The drives of a node.
#[derive(Clone, Default)]
struct NodeDrives {
    served: Vec<NodeDrive>,
    absent: Vec<AbsentDrive>,
    damaged: Vec<DamagedDrive>,
    places: Arc<Places>,
    /// Slots that each reactor has had: those of drives that were removed are not given away again.
    slots: Vec<usize>,
}

/// A running node.
pub struct Node {
    identity: Option<NodeIdentity>,
    map_service: Arc<MapService>,
    cores: Vec<MailboxSender<Command>>,
    threads: Mutex<Vec<CoreThread>>,
    housekeeper: Mutex<Option<Housekeeper>>,
    drives: Mutex<NodeDrives>,
    /// Held while drives come and go.
    changing_drives: Mutex<()>,
    read_only: Arc<Mutex<BTreeSet<DriveId>>>,
    proposals: Arc<Proposals>,
    hung: Arc<HungShards>,
    scrubs: Arc<Scrubs>,
    /// What is counted of groups and connections that are gone does not fall.
    copy_totals: Mutex<CopyTotals>,
    /// What reactors told last: what is counted does not fall while one of them does not answer.
    figures: Figures,
    shard_config: ShardConfig,
    nbd: Vec<Address>,
    listeners: Vec<Address>,
    native: Option<Address>,
    started: Instant,
    is_stopping: AtomicBool,
}

impl Node {
    /// Registers the node, opens or formats the drives, replays their logs, and serves; follows the map from then on.
    /// Drives of the map that cannot be used are left out, as long as there is one that can.
    pub fn start(config: NodeConfig, map_service: Arc<MapService>) -> Result<Arc<Node>, NodeError> {
        crate::listen::raise_open_files();
        let (nbd, native) = bind_all(&config)?;
        let native_address = native.as_ref().map(|listener| listener.address().clone());
        let mut found = crate::open::Drives::default();
        if let Some(node) = &config.identity {
            // Who may not join formats no drive, and who has no drive does not join.
            let (record, map) = (node_record(node, native_address.as_ref()), map_service.map());
            coquina_cluster::operation::register_node(&map, Some(map_service.cluster()), &record)
                .map_err(ChangeError::from)?;
            found = open_drives(&config.drives, drive_identity(&map_service, node), &map)?;
            register_node(&map_service, &record)?;
        }
        let shards_all: usize = found.opened.iter().map(|drive| drive.shards as usize).sum();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let reactors = config.reactors.unwrap_or(cores.min(shards_all.max(1))).clamp(1, 256);
        let memory = HostMemory::read();
        let cache_bound_bytes = config.cache_memory_bytes.unwrap_or_else(|| default_bound_bytes(memory));
        let shard_config = shard_config(&config, shards_all as u64, memory, cache_bound_bytes);
        let mut ready = open_shards(&map_service, &mut found, &shard_config)?;
        if let Some(node) = &config.identity {
            found.absent.extend(record_drives(&map_service, node.id, &mut ready)?);
        }
        if ready.is_empty() && found.damaged.is_empty() && config.identity.is_some() {
            let reasons = found.absent.iter().map(|absent| format!("\n  {}: {}", absent.id, absent.reason));
            return Err(NodeError::NoDrive { reasons: reasons.collect() });
        }
        let Distribution { drives, placed, places } = distribute(ready, reactors)?;
        let slots = placed.iter().map(Vec::len).collect();
        let places = Arc::new(places);

        let nbd_addresses: Vec<Address> = nbd.iter().map(|listener| listener.address().clone()).collect();
        let mut listeners: Vec<(OwnedFd, Protocol)> =
            nbd.into_iter().map(|listener| (listener.into_socket(), Protocol::Nbd)).collect();
        let beside = native.as_ref().filter(|_| !config.tcp_only);
        if let Some(nearby) = beside.and_then(|listener| listen_nearby(listener.address())) {
            match nearby {
                Ok(socket) => listeners.push((socket, Protocol::Native)),
                Err(errno) => tracing::warn!(%errno, "no Unix socket for clients of this host: they use TCP"),
            }
        }
        listeners.extend(native.map(|listener| (listener.into_socket(), Protocol::Native)));
        let mut listeners = Some(listeners);
        let (notice_sender, notices) = channel();
        let proposals = Arc::new(Proposals::default());
        let hung = Arc::new(HungShards::of(reactors));
        let map = map_service.map();
        let seeds = placed.into_iter().enumerate().map(|(index, shards)| Seed {
            index,
            shards,
            listeners: listeners.take().unwrap_or_default(),
            places: places.clone(),
            map: map.clone(),
            cluster: map_service.cluster(),
            node: config.identity.as_ref().map_or_else(NodeId::default, |node| node.id),
            notices: notice_sender.clone(),
            proposals: proposals.clone(),
            hung: hung.clone(),
            busy_poll_ns: config.busy_poll_ns,
            bind_to: config.bind_cpu.of(index, reactors),
        });
        let (cores, threads) = start_cores(seeds.collect())?;
        let read_only = Arc::new(Mutex::new(BTreeSet::new()));
        let scrubs = Scrubs::open(config.folder.clone());
        let housekeeper_config = HousekeeperConfig {
            read_only: read_only.clone(),
            scrubs: scrubs.clone(),
            cores: cores.clone(),
            cache_bound_bytes,
            index_bytes: index_bytes(&config, memory),
        };
        let housekeeper = Housekeeper::start(housekeeper_config, notice_sender, notices)?;
        let all = nbd_addresses.iter().chain(&native_address).cloned().collect();
        let node = Arc::new(Node {
            identity: config.identity,
            map_service: map_service.clone(),
            cores,
            threads: Mutex::new(threads),
            housekeeper: Mutex::new(Some(housekeeper)),
            drives: Mutex::new(NodeDrives {
                served: drives,
                absent: found.absent,
                damaged: found.damaged,
                places,
                slots,
            }),
            changing_drives: Mutex::new(()),
            read_only,
            proposals,
            hung,
            scrubs,
            copy_totals: Mutex::default(),
            figures: Figures::of(reactors),
            shard_config,
            nbd: nbd_addresses,
            listeners: all,
            native: native_address,
            started: Instant::now(),
            is_stopping: AtomicBool::new(false),
        });
        node.follow_map();
        Ok(node)
    }

    /// Follows the map for as long as the node lives.
    fn follow_map(self: &Arc<Self>) {
        let node = Arc::downgrade(self);
        self.map_service.subscribe(Box::new(move |followed| {
            let Some(node) = node.upgrade() else { return };
            match followed {
                Ok(map) => {
                    if let Err(error) = node.set_map(map.clone()) {
                        tracing::warn!(%error, "a reactor does not follow the map");
                    }
                    crate::rejoin::rejoin_damaged(&node, &map);
                }
                Err(error) => node.refuse_io(error.to_string()),
            }
        }));
    }

    /// Where NBD clients connect.
    pub fn nbd_addresses(&self) -> Vec<String> {
        self.nbd.iter().map(ToString::to_string).collect()
    }

    /// Where native clients and other nodes connect; empty for a gateway.
    pub fn native_address(&self) -> String {
        self.native.as_ref().map(ToString::to_string).unwrap_or_default()
    }

    /// Stops: connections are closed, what is acknowledged stays, and the next start has little to replay.
    pub fn stop(&self) {
        if !self.is_stopping.swap(true, Relaxed) {
            // While these sockets are listened on, and once: afterwards the files may be those of whoever serves here next.
            self.listeners.iter().for_each(Listener::remove);
            crate::drain::drain_all(&self.cores);
        }
        if let Some(housekeeper) = lock(&self.housekeeper).take() {
            housekeeper.stop();
        }
        for core in &self.cores {
            core.send(Command::Stop);
        }
        for thread in lock(&self.threads).drain(..) {
            thread.wait();
        }
    }

    /// Asks every reactor and waits for all.
    fn ask_all<T>(&self, make: impl Fn(Sender<T>) -> Command) -> Result<Vec<T>, BackendError> {
        let (sender, receiver) = channel();
        for core in &self.cores {
            core.send(make(sender.clone()));
        }
        drop(sender);
        let mut answers = Vec::new();
        let begun = Instant::now();
        while answers.len() < self.cores.len() {
            match receiver.recv_timeout(LOOK_AGAIN) {
                Ok(answer) => answers.push(answer),
                // What lies in the mailbox of a reactor that has ended is answered by nobody.
                Err(RecvTimeoutError::Timeout)
                    if begun.elapsed() < PATIENCE && !self.is_stopping.load(Relaxed) => {}
                Err(_) => return Err(BackendError::Stopping),
            }
        }
        Ok(answers)
    }

    /// The reactor of a shard.
    fn core_of(&self, shard: ShardRef) -> Result<&MailboxSender<Command>, BackendError> {
        let place = lock(&self.drives).places.get(&shard).copied();
        place.map(|(core, _)| &self.cores[core]).ok_or(BackendError::DriveMissing(shard.drive))
    }

    /// Opens and registers drives of a running node, and serves them.
    fn add_drive(&self, spec: DriveSpec) -> Result<DriveId, NodeError> {
        let _one_at_a_time = lock(&self.changing_drives);
        self.add_drive_of(spec, false)
    }

    /// The drives with damaged logs on which no group of a map counts any more.
    pub(crate) fn damaged_and_out(&self, map: &MapView) -> Vec<DamagedDrive> {
        let damaged = lock(&self.drives).damaged.clone();
        damaged.into_iter().filter(|drive| is_out(map, drive.id)).collect()
    }

    /// Whether it was told to stop.
    pub(crate) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Relaxed)
    }

    /// Serves a drive again as it was before its log was damaged. If that fails for what has nothing to do with the drive, it
    /// may be tried again; otherwise it is not. Does nothing if somebody has tried since the caller looked.
    pub(crate) fn rejoin(&self, damaged: &DamagedDrive) -> Result<(), NodeError> {
        let _one_at_a_time = lock(&self.changing_drives);
        let is_it = |drive: &DamagedDrive| drive.id == damaged.id && drive.tries == damaged.tries;
        let known = lock(&self.drives).damaged.iter().any(is_it);
        let map = self.map_service.map();
        // One that was removed meanwhile would be registered as a new one.
        if !known || map.drive(damaged.id).is_none() || !is_out(&map, damaged.id) {
            return Ok(());
        }
        lock(&self.drives).damaged.retain(|drive| drive.id != damaged.id);
        // No reactor may open the groups by an older map, in which they still count on this drive.
        let followed = self.set_map(map).map_err(|_| NodeError::Stopping);
        let added = followed.and_then(|()| self.add_drive_of(damaged.spec(), true));
        if added.as_ref().is_err_and(NodeError::is_passing) {
            let tries = damaged.tries + 1;
            lock(&self.drives).damaged.push(DamagedDrive { tries, ..damaged.clone() });
        }
        added.map(drop)
    }

    fn add_drive_of(&self, spec: DriveSpec, is_cut: bool) -> Result<DriveId, NodeError> {
        let Some(node) = &self.identity else { return Err(NodeError::NoNode) };
        let map = self.map_service.map();
        let mut found = open_drives(&[spec], drive_identity(&self.map_service, node), &map)?;
        found.is_cut = is_cut;
        // A copy of a drive that is served, or another path to it: each would write what the other one does not know of.
        found.refuse_same(&lock(&self.drives).served)?;
        let mut ready = open_shards(&self.map_service, &mut found, &self.shard_config)?;
        let Some(drive) = ready.pop() else {
            let reasons = found.absent.iter().map(|absent| format!("\n  {}", absent.reason)).collect();
            return Err(NodeError::NoDrive { reasons });
        };
        let id = drive.drive.id;
        record_drive(&self.map_service, node.id, &drive)?;
        let mut drives = lock(&self.drives);
        let mut places = (*drives.places).clone();
        let mut slots = drives.slots.clone();
        let mut turn = (0..self.cores.len()).cycle().skip(slots.iter().sum());
        let mut seeds: Vec<Vec<SeedShard>> = self.cores.iter().map(|_| Vec::new()).collect();
        let served = place_shards(drive, &mut |reference, seed| {
            let core = turn.next().unwrap_or(0);
            places.insert(reference, (core, slots[core]));
            slots[core] += 1;
            seeds[core].push(seed);
        })?;
        drives.places = Arc::new(places);
        drives.slots = slots;
        drives.absent.retain(|absent| absent.id != id);
        drives.damaged.retain(|damaged| damaged.id != id);
        drives.served.push(served);
        let places = drives.places.clone();
        drop(drives);
        // It may have come back mended.
        lock(&self.read_only).remove(&id);
        let (done, told) = channel();
        for (core, new) in self.cores.iter().zip(seeds) {
            core.send(Command::Shards { new, places: places.clone(), done: done.clone() });
        }
        drop(done);
        while told.recv_timeout(PATIENCE).is_ok() {}
        Ok(id)
    }
}

impl NodeBackend for Node {
    fn snapshot(&self) -> NodeSnapshot {
        let Now { cores, silent_since } = self.figures.ask(&self.cores, || self.is_stopping());
        let map = self.map_service.map();
        let mut health = Vec::new();
        if let Some(silent) = silent_since.map(|since| since.elapsed()).filter(|silent| *silent >= SLOW) {
            let message = format!("a reactor has not answered for {} s", silent.as_secs());
            health.push(HealthEntry::new(HealthCode::SlowDrive, Severity::Error, "node".to_owned(), message));
        }
        let NodeDrives { served, absent, .. } = lock(&self.drives).clone();
        let mut show = |drive: &NodeDrive| drive_snapshot(drive, &cores, &self.scrubs, &mut health);
        let drives = served.iter().map(&mut show).collect();
        let mut counters: BTreeMap<VolumeId, VolumeCounters> = BTreeMap::new();
        for (id, one) in cores.iter().flat_map(|core| &core.volumes) {
            counters.entry(*id).or_default().merge(one);
        }
        let active = map.volumes().filter(|volume| volume.value.state == VolumeState::Active);
        let volumes = active.map(|volume| VolumeSnapshot {
            id: volume.value.id,
            name: volume.value.name.clone(),
            counters: counters.remove(&volume.value.id).unwrap_or_default(),
        });
        let mut copy_totals = CopyTotals::default();
        cores.iter().for_each(|core| copy_totals.add(&core.copy_totals));
        NodeSnapshot {
            uptime_ns: self.started.elapsed().as_nanos() as u64,
            drives,
            absent,
            volumes: volumes.collect(),
            reactors: cores.iter().map(|core| core.reactor).collect(),
            nbd_connections: cores.iter().map(|core| core.nbd_connections).sum(),
            native_connections: cores.iter().map(|core| core.native_connections).sum(),
            dropped_connections: cores.iter().map(|core| core.dropped_connections).sum(),
            peers: cores.iter().flat_map(|core| core.peers.iter().cloned()).collect(),
            copy_totals: lock(&self.copy_totals).raised_to(&copy_totals),
            health,
            incomplete: silent_since.is_some(),
        }
    }

    fn set_map(&self, map: Arc<MapView>) -> Result<(), BackendError> {
        let begun = Instant::now();
        let is_over = || begun.elapsed() >= PATIENCE || self.is_stopping.load(Relaxed);
        let follow = tell_all(&self.cores, &map, || self.map_service.map(), is_over);
        if follow { Ok(()) } else { Err(BackendError::Stopping) }
    }

    fn refuse_io(&self, reason: String) {
        tracing::error!(reason, "I/O is refused from now on");
        for core in &self.cores {
            core.send(Command::RefuseIo { reason: reason.clone() });
        }
    }

    fn drive_reports(&self) -> Vec<DriveReport> {
        let read_only = lock(&self.read_only);
        let drives = lock(&self.drives);
        // Places of drives that were removed stay, and reactors without others sleep.
        let is_served = |shard: &ShardRef| drives.served.iter().any(|drive| drive.id == shard.drive);
        let placed = drives.places.iter().filter(|(shard, _)| is_served(shard));
        let with_shards = placed.map(|(_, (core, _))| *core).collect();
        let stuck = self.hung.stuck_reactors(&with_shards, boottime_ns());
        let is_stuck = |drive: DriveId| {
            drives.places.iter().any(|(shard, (core, _))| shard.drive == drive && stuck.contains(core))
        };
        let report = |drive: &NodeDrive| DriveReport {
            drive: drive.id,
            condition: match read_only.contains(&drive.id) {
                true => DriveCondition::ReadOnly,
                false => DriveCondition::Serving,
            },
            hung: self.hung.has(drive.id) || (!stuck.is_empty() && is_stuck(drive.id)),
        };
        let absent = drives.absent.iter().map(|absent| DriveReport {
            drive: absent.id,
            condition: DriveCondition::Failed,
            hung: false,
        });
        drives.served.iter().map(report).chain(absent).collect()
    }

    fn proposals(&self) -> Vec<(GroupId, Config)> {
        self.proposals.all()
    }

    fn quiesce(&self, volume: VolumeId) -> Result<(), BackendError> {
        self.ask_all(|done| Command::Quiesce { volume, done }).map(drop)
    }

    fn layers(&self) -> Result<Vec<(ShardRef, Vec<LayerId>)>, BackendError> {
        let answers = self.ask_all(|done| Command::Layers { done })?;
        Ok(answers.into_iter().flatten().collect())
    }

    fn delete_layer(&self, shard: ShardRef, layer: LayerId) -> Result<(), BackendError> {
        let (done, told) = channel();
        self.core_of(shard)?.send(Command::DeleteLayer { shard, layer, done });
        let answer = told.recv_timeout(PATIENCE).map_err(|_| BackendError::Stopping)?;
        answer.map_err(|reason| BackendError::Drive { drive: shard.drive, reason })
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

    fn drive_add(&self, path: &str, force: bool) -> Result<DriveId, BackendError> {
        let refused = |reason: String| BackendError::DriveRefused { path: path.to_owned(), reason };
        let mut spec = DriveSpec::parse(path).map_err(refused)?;
        spec.force = force;
        self.add_drive(spec).map_err(|error| refused(error.to_string()))
    }

    fn drive_removed(&self, drive: DriveId) -> Result<(), BackendError> {
        // Reactors that have not heard yet that it is another node's would write to it once more.
        self.set_map(self.map_service.map())?;
        self.ask_all(|done| Command::ReleaseDrive { drive, done })?;
        let mut drives = lock(&self.drives);
        drives.served.retain(|served| served.id != drive);
        drives.absent.retain(|absent| absent.id != drive);
        drives.damaged.retain(|damaged| damaged.id != drive);
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

fn drive_identity(map_service: &MapService, node: &NodeIdentity) -> Identity {
    Identity { cluster: map_service.cluster(), node: node.id, drive: DriveId::default() }
}

/// What the map has of a node.
fn node_record(node: &NodeIdentity, native: Option<&Address>) -> coquina_cluster::NodeRecord {
    let address = native.map(ToString::to_string).unwrap_or_default();
    coquina_cluster::NodeRecord {
        id: node.id,
        name: node.name.clone(),
        addresses: NodeAddresses { native: address.clone(), http: node.http.clone(), peer: address },
        domains: node.domains.clone(),
        versions: coquina_cluster::VersionRange {
            min: u32::from(coquina_protocol::VERSION_MIN),
            max: u32::from(coquina_protocol::VERSION_MAX),
        },
        wanted: Wanted::In,
    }
}

/// Opens the shards of drives with their copy numbers, which new ones are given here.
fn open_shards(
    map_service: &MapService,
    found: &mut crate::open::Drives,
    config: &ShardConfig,
) -> Result<Vec<OpenedDrive>, NodeError> {
    let map = map_service.map();
    found.open_shards(&map, config, &mut |drive| {
        if let Some(record) = map.drive(drive.id) {
            return Ok(record.copy_first);
        }
        let first = std::cell::Cell::new(0);
        map_service.change(&|map| {
            let (copy, write) = claim_copies(map, drive.shards, unix_ms())?;
            first.set(copy);
            Ok(Some(write))
        })?;
        Ok(first.get())
    })
}

/// Puts drives into the map. A node that is being removed goes on without those that it has been emptied of before: the others
/// have to be emptied, too.
fn record_drives(
    map_service: &MapService,
    node: NodeId,
    ready: &mut Vec<OpenedDrive>,
) -> Result<Vec<AbsentDrive>, NodeError> {
    let mut left_out = Vec::new();
    for opened in std::mem::take(ready) {
        match record_drive(map_service, node, &opened) {
            Ok(()) => ready.push(opened),
            Err(NodeError::Change(ChangeError::Operation(error @ OperationError::NodeLeaves(_)))) => {
                tracing::warn!(drive = %opened.drive.id, %error, "a drive is left out");
                left_out.push(AbsentDrive { id: opened.drive.id, reason: error.to_string() });
            }
            Err(error) => return Err(error),
        }
    }
    Ok(left_out)
}

/// Puts a drive into the map, or brings its record up to date.
fn record_drive(map_service: &MapService, node: NodeId, opened: &OpenedDrive) -> Result<(), NodeError> {
    let OpenedDrive { drive, copy_first, shards } = opened;
    let capacity_bytes = shards.iter().map(|shard| shard.engine.stats().capacity_bytes).sum();
    let record = DriveRecord {
        id: drive.id,
        node,
        path: drive.path.display().to_string(),
        size_bytes: drive.size_bytes,
        capacity_bytes,
        shards: drive.shards,
        weight: DriveRecord::weight_of_capacity(capacity_bytes),
        copy_first: *copy_first,
        state: DriveState::Healthy,
        wanted: Wanted::In,
        dead_ms: 0,
    };
    map_service.change(&|map| register_drive(map, &record))?;
    Ok(())
}

/// Drives, the shards of each reactor, and where each shard is.
struct Distribution {
    drives: Vec<NodeDrive>,
    placed: Vec<Vec<SeedShard>>,
    places: Places,
}

/// Gives shards to reactors in turn.
fn distribute(ready: Vec<OpenedDrive>, reactors: usize) -> Result<Distribution, NodeError> {
    let mut placed: Vec<Vec<SeedShard>> = (0..reactors).map(|_| Vec::new()).collect();
    let mut places = Places::new();
    let mut drives = Vec::new();
    let mut turn = (0..reactors).cycle();
    for drive in ready {
        drives.push(place_shards(drive, &mut |reference, seed| {
            let core = turn.next().unwrap_or(0);
            places.insert(reference, (core, placed[core].len()));
            placed[core].push(seed);
        })?);
    }
    Ok(Distribution { drives, placed, places })
}

/// Hands out a drive's shards.
fn place_shards(
    opened: OpenedDrive,
    place: &mut dyn FnMut(ShardRef, SeedShard),
) -> Result<NodeDrive, NodeError> {
    let OpenedDrive { drive, copy_first, shards } = opened;
    for (number, shard) in (0u32..).zip(shards) {
        let reference = ShardRef { drive: drive.id, shard: number };
        let descriptor = drive.file.try_clone_descriptor()?;
        let copy = CopyId(copy_first + u64::from(number));
        place(
            reference,
            SeedShard { reference, copy, engine: shard.engine, descriptor, open_ns: shard.open_ns },
        );
    }
    Ok(NodeDrive { id: drive.id, path: drive.path, size_bytes: drive.size_bytes, shards: drive.shards })
}

fn shard_config(
    config: &NodeConfig,
    shards: u64,
    memory: Option<HostMemory>,
    cache_bound: u64,
) -> ShardConfig {
    let shards = shards.max(1);
    let cache = memory.map_or(0, |memory| target_bytes(memory, 0, cache_bound));
    ShardConfig {
        index_memory_bytes: index_bytes(config, memory) / shards,
        cache_bytes: cache / shards,
        zero_ahead_bytes: config.zero_ahead_bytes,
        ..ShardConfig::default()
    }
}

/// Most bytes of index, for all shards together.
fn index_bytes(config: &NodeConfig, memory: Option<HostMemory>) -> u64 {
    config.index_memory_bytes.unwrap_or_else(|| default_index_bytes(memory))
}
