//! What operators change: volumes here; pools, drives and nodes in the modules below.
//!
//! Invariants:
//! - every operation is a check against the map and one compare-and-set, or several in an order that makes a crash in between
//!   harmless: a number is claimed durably before anything is recorded with it;
//! - a shrink is recorded before data is cut off, and the process that leads finishes it: growing again never shows what was
//!   cut off;
//! - a removal is recorded, and each node deletes what it holds by the map;
//! - a name of a volume or pool is given once: who takes one has claimed a layer or a pool's number, and records it only while
//!   nobody has claimed another since (compare-and-set on the cluster's record), so that whoever claims later sees it;
//! - an operation returns when this process follows the change.

mod drives;
mod error;
mod nodes;
mod pools;

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use coquina_base::{
    BLOCK_BYTES, CHUNK_BYTES, LayerId, Nearest, NodeId, VOLUME_BYTES_MAX, VolumeId, check_name,
};
use coquina_cluster::{
    ClusterRecord, Key, MapView, OperationError, PoolRecord, Record, Striping, VolumeRecord, VolumeState,
    Write, operation,
};

use crate::api::{CreateVolume, LeaderHealth};
use crate::ask::{ask_leader, ask_nodes};
use crate::backend::NodeBackend;
use crate::clock::{unix_ms, unix_ns};
use crate::coordinator_service::CoordinatorService;
use crate::map_service::{ChangeError, Leader, MapService};
use crate::random::random_id;
use crate::view::node_name;
pub use drives::DriveRemoval;
pub use error::CatalogueError;
pub use nodes::NodeRemoval;

/// How a volume's bytes are spread if nobody says otherwise: chunk after chunk, each of which lies in a group of its own.
pub const STRIPING_DEFAULT: Striping = Striping { stripe_unit_bytes: CHUNK_BYTES as u32, stripe_count: 1 };
/// How long it is waited until this process follows a change.
const FOLLOW_TIME_MAX: Duration = Duration::from_secs(5);
/// Numbers that are claimed for one name, where others claim some all the time.
const NAME_CLAIMS_MAX: u64 = 100;
/// Unit of the waits between these.
const STEP_BACK: Duration = Duration::from_millis(2);
/// How long it is waited for a leader that knows whether a node is silent: until one leads, and has listened for long enough.
const SILENCE_WAIT: Duration = Duration::from_secs(10);
/// Pause before it is asked again: longer than that between two heartbeats of a node.
const SILENCE_PAUSE: Duration = Duration::from_millis(300);
/// How long it is waited until the process that leads has finished a shrink.
const SHRINK_TIME_MAX: Duration = Duration::from_secs(60);

/// Makes, changes and removes what operators name.
pub struct Catalogue {
    map: Arc<MapService>,
    backend: Arc<dyn NodeBackend>,
    node: Option<NodeId>,
    coordinator: Option<Arc<CoordinatorService>>,
    /// This process has claimed a layer.
    layer_claimed: AtomicBool,
    /// This process has claimed a pool's numbers.
    pool_claimed: AtomicBool,
}

type Changed = Result<Option<Write>, CatalogueError>;

/// Of the claim of a number: a change that is not seen here has made nothing that anybody asked for.
fn only_claimed(error: CatalogueError) -> CatalogueError {
    match error {
        CatalogueError::Change(ChangeError::NotSeen { reason, .. }) => {
            CatalogueError::Change(ChangeError::OnlyClaimed { reason })
        }
        other => other,
    }
}

impl Catalogue {
    /// The catalogue of a process: the node that it is, if it is one, and its candidacy, if it has one.
    pub fn new(
        map: Arc<MapService>,
        backend: Arc<dyn NodeBackend>,
        node: Option<NodeId>,
        coordinator: Option<Arc<CoordinatorService>>,
    ) -> Catalogue {
        let (layer_claimed, pool_claimed) = (AtomicBool::new(false), AtomicBool::new(false));
        Catalogue { map, backend, node, coordinator, layer_claimed, pool_claimed }
    }

    /// The cluster map.
    pub fn map(&self) -> Arc<MapView> {
        self.map.map()
    }

    /// What keeps the map.
    pub fn map_service(&self) -> &Arc<MapService> {
        &self.map
    }

    /// The node that this process is.
    pub fn node(&self) -> Option<NodeId> {
        self.node
    }

    /// The node's counters and drives.
    pub fn backend(&self) -> &Arc<dyn NodeBackend> {
        &self.backend
    }

    /// This process's candidacy.
    pub fn coordinator(&self) -> Option<&Arc<CoordinatorService>> {
        self.coordinator.as_ref()
    }

    /// Makes a volume. The size is rounded up to whole blocks of 4 KiB. Without a pool it goes
    /// to the only one, or to a new one.
    pub fn create(&self, request: &CreateVolume) -> Result<VolumeRecord, CatalogueError> {
        let name = request.name.as_str();
        check_name(name)?;
        let size_bytes = check_volume_size(request.size_bytes)?;
        let striping = Striping {
            stripe_unit_bytes: request.stripe_unit_bytes.unwrap_or(STRIPING_DEFAULT.stripe_unit_bytes),
            stripe_count: request.stripe_count.unwrap_or(STRIPING_DEFAULT.stripe_count),
        };
        striping.check(size_bytes)?;
        if self.map().volume_by_name(name).is_some() {
            return Err(CatalogueError::Duplicate { name: name.to_owned() });
        }
        let pool = self.pool_for(request.pool.as_deref(), request.copies, size_bytes)?;
        check_room(&self.map(), size_bytes, &pool)?;
        let volume = VolumeRecord {
            id: VolumeId(random_id().map_err(CatalogueError::Random)?),
            name: name.to_owned(),
            size_bytes,
            layer: LayerId(0),
            created_unix_ns: unix_ns(),
            state: VolumeState::Active,
            attach_generation: 0,
            shrinking_from_bytes: None,
            size_max_bytes: None,
            pool: pool.id,
            family: 0,
            stripe_unit_bytes: striping.stripe_unit_bytes,
            stripe_count: striping.stripe_count,
        };
        let make = |map: &MapView, layer: LayerId| {
            if map.volume(volume.id).is_some() {
                return Ok(None);
            }
            if map.volume_by_name(name).is_some() {
                return Err(CatalogueError::Duplicate { name: name.to_owned() });
            }
            check_room(map, size_bytes, &pool)?;
            Ok(operation::create_volume(map, &VolumeRecord { layer, family: layer.0, ..volume.clone() })?)
        };
        self.take_name(&make, &|map| map.volume(volume.id).cloned())
    }

    /// All volumes by name, those that are being removed included.
    pub fn list(&self) -> Vec<VolumeRecord> {
        let map = self.map();
        let mut volumes: Vec<_> = map.volumes().map(|volume| VolumeRecord::clone(&volume.value)).collect();
        volumes.sort_by(|a, b| a.name.cmp(&b.name).then(a.layer.cmp(&b.layer)));
        volumes
    }

    /// One volume. Blocks for as long as a read of the map takes if this process knows of none of that name.
    pub fn info(&self, name: &str) -> Result<VolumeRecord, CatalogueError> {
        Ok(self.look_up(&|map| find(map, name).cloned())?.1)
    }

    /// Grows or shrinks a volume; shrinking needs `allow_shrink`, is refused like [`remove`](Self::remove) while there are or may
    /// be connections unless `force`, and waits for a while until what is cut off is deleted. Rounds like
    /// [`create`](Self::create).
    pub fn resize(
        &self,
        name: &str,
        size_bytes: u64,
        allow_shrink: bool,
        force: bool,
    ) -> Result<VolumeRecord, CatalogueError> {
        let size_bytes = check_volume_size(size_bytes)?;
        let before = self.info(name)?;
        let (id, known_bytes) = (before.id, before.size_bytes);
        if size_bytes < before.size_bytes && allow_shrink && !force {
            self.check_unused(id, name, "shrink it all the same with `coquina volume resize` and --force")?;
        }
        // Of the record that a first try was to shrink.
        let first_revision = Cell::new(None);
        self.change(&|map| {
            let volume = find(map, name)?;
            let from_bytes = volume.size_bytes;
            let revision = map.revision_of(&Key::Volume(id));
            if volume.id != id {
                return Err(CatalogueError::Replaced { name: name.to_owned() });
            }
            if size_bytes == from_bytes {
                return Ok(None);
            }
            let mut next = VolumeRecord { size_bytes, ..volume.clone() };
            next.striping().check(size_bytes)?;
            if size_bytes > from_bytes {
                if volume.shrinking_from_bytes.is_some() {
                    return Err(CatalogueError::Shrinking { name: name.to_owned() });
                }
                let pool = map.pool(volume.pool).ok_or_else(|| unknown_pool(volume))?;
                check_room(map, size_bytes - from_bytes, pool)?;
            } else if !allow_shrink {
                let name = name.to_owned();
                return Err(CatalogueError::ShrinkNotConfirmed { name, from_bytes, to_bytes: size_bytes });
            } else if from_bytes != known_bytes || first_revision.get().is_some_and(|first| first != revision)
            {
                // A try whose answer was lost may have shrunk it, and somebody else let it grow since, be it to the same size as
                // before. What it holds now nobody has asked to cut off.
                let name = name.to_owned();
                return Err(CatalogueError::Resized { name, from_bytes: known_bytes, now_bytes: from_bytes });
            } else {
                let before = volume.shrinking_from_bytes.unwrap_or(from_bytes);
                next.shrinking_from_bytes = Some(before.max(from_bytes));
                next.size_max_bytes = Some(volume.largest_bytes());
                first_revision.set(Some(revision));
            }
            Ok(Some(write_volume(map, next)))
        })?;
        let done = |map: &MapView| map.volume(id).is_none_or(|volume| volume.shrinking_from_bytes.is_none());
        if let Some(map) = self.map.wait_for_map(SHRINK_TIME_MAX, done) {
            self.map.wait_followed(map.revision(), FOLLOW_TIME_MAX);
        }
        let map = self.map();
        map.volume(id).cloned().ok_or_else(|| not_found(&map, name))
    }

    /// Gives a volume another name. Connections stay.
    pub fn rename(&self, name: &str, new_name: &str) -> Result<VolumeRecord, CatalogueError> {
        check_name(new_name)?;
        let id = self.info(name)?.id;
        let taken = || CatalogueError::Duplicate { name: new_name.to_owned() };
        // A layer is claimed only for what may have the name.
        match self.map().volume_by_name(new_name) {
            Some(other) if other.value.id == id => return Ok(VolumeRecord::clone(&other.value)),
            Some(_) => return Err(taken()),
            None => {}
        }
        let make = |map: &MapView, _: LayerId| {
            let volume = map.volume(id).filter(|volume| volume.state == VolumeState::Active);
            let volume = volume.ok_or_else(|| not_found(map, name))?;
            if map.volume_by_name(new_name).is_some_and(|other| other.value.id != id) {
                return Err(taken());
            }
            let next = VolumeRecord { name: new_name.to_owned(), ..volume.clone() };
            Ok((next != *volume).then(|| write_volume(map, next)))
        };
        self.take_name(&make, &|map| map.volume(id).filter(|volume| volume.name == new_name).cloned())
    }

    /// Removes a volume; refused while it has connections, or may have some at a node that does not answer, unless `force`. Its
    /// name is free when this returns; its space is freed by each node by itself.
    pub fn remove(&self, name: &str, force: bool) -> Result<VolumeRecord, CatalogueError> {
        let before = self.info(name)?;
        let id = before.id;
        if !force {
            self.check_unused(id, name, "remove it all the same with `coquina volume remove` and --force")?;
        }
        self.mark_removed(id, &|_| Ok(()))?;
        let map = self.map();
        // The record itself may be gone already.
        Ok(map.volume(id).cloned().unwrap_or(VolumeRecord { state: VolumeState::Removing, ..before }))
    }

    /// Sets what volume sizes, times copies, may add up to, in percent of the capacity.
    pub fn set_overcommit(&self, percent: u32) -> Result<(), CatalogueError> {
        self.change(&|map| {
            let Some(cluster) = map.cluster().filter(|cluster| cluster.overcommit_percent != percent) else {
                return Ok(None);
            };
            let record = ClusterRecord { overcommit_percent: percent, ..cluster.clone() };
            let revision = map.revision_of(&Key::Cluster);
            Ok(Some(Write::new(Key::Cluster, revision, Some(Record::Cluster(record)))))
        })?;
        Ok(())
    }

    /// Gives up what lies on drives of volumes that the map lost when it was put back to an older state.
    pub fn forget_lost(&self) -> Result<(), CatalogueError> {
        let floor = unix_ms();
        self.change(&|map| Ok(operation::forget_lost(map, floor)?))?;
        Ok(())
    }

    /// What the map has of a name, and that map. What this process has not heard of may have been made through another one a moment ago, so that
    /// it is not denied before the store was asked.
    fn look_up<T>(
        &self,
        find: &dyn Fn(&MapView) -> Result<T, CatalogueError>,
    ) -> Result<(Arc<MapView>, T), CatalogueError> {
        let map = self.map();
        match find(&map) {
            Err(denied) if denied.is_not_found() => {
                let map = self.map.read_again().map_err(CatalogueError::Change)?;
                let found = find(&map)?;
                Ok((map, found))
            }
            known => Ok((map, known?)),
        }
    }

    /// Whether the map may be used.
    fn check_usable(&self) -> Result<(), CatalogueError> {
        match self.map.state().refused {
            Some(error) => Err(CatalogueError::Change(ChangeError::Refused(error))),
            None => Ok(()),
        }
    }

    /// Records that a volume goes, if a map allows it.
    fn mark_removed(
        &self,
        id: VolumeId,
        check: &dyn Fn(&MapView) -> Result<(), CatalogueError>,
    ) -> Result<(), CatalogueError> {
        self.change(&|map| {
            let Some(volume) = map.volume(id).filter(|volume| volume.state == VolumeState::Active) else {
                return Ok(None);
            };
            check(map)?;
            Ok(Some(write_volume(map, removing(volume))))
        })?;
        Ok(())
    }

    /// Refuses if a volume has connections, or may have some: at a node that does not answer this process, and that the leader
    /// does not count as dead. Without a leader nobody is known to be dead.
    fn check_unused(&self, id: VolumeId, name: &str, otherwise: &'static str) -> Result<(), CatalogueError> {
        let map = self.map();
        let (others, own) = (ask_nodes(&map, self.node), self.backend.snapshot());
        // A reactor that does not answer may have connections that nobody else knows of.
        let answers = |node: &NodeId| match Some(*node) == self.node {
            true => !own.incomplete,
            false => others.get(node).is_some_and(|local| !local.snapshot.incomplete),
        };
        let mut silent: Vec<(NodeId, String)> =
            map.nodes().map(|node| (node.value.id, node.value.name.clone())).collect();
        silent.retain(|(node, _)| !answers(node));
        let is_silent_itself = self.node.is_none() && own.incomplete;
        let snapshots = others.into_values().map(|local| local.snapshot);
        let volumes = snapshots.chain([own]).flat_map(|snapshot| snapshot.volumes);
        let connections =
            volumes.filter(|volume| volume.id == id).map(|volume| volume.counters.connections).sum();
        if connections > 0 {
            return Err(CatalogueError::Attached { name: name.to_owned(), connections, otherwise });
        }
        if !silent.is_empty() {
            let dead = self.leader_health().map(|health| health.dead).unwrap_or_default();
            silent.retain(|(node, _)| !dead.contains(node));
        }
        let own = is_silent_itself.then(|| error::THIS_PROCESS.to_owned());
        let nodes: Vec<String> = silent.into_iter().map(|(_, name)| name).chain(own).collect();
        if nodes.is_empty() {
            return Ok(());
        }
        Err(CatalogueError::ConnectionsUnknown { name: name.to_owned(), nodes, otherwise })
    }

    /// How the cluster is, as its leader sees it, be it this process. Blocks for up to a second.
    pub(crate) fn leader_health(&self) -> Option<LeaderHealth> {
        let here = self.coordinator.as_ref().and_then(|coordinator| coordinator.health_blocking());
        here.or_else(|| self.map.leader().and_then(|leader| ask_leader(&leader.http)))
    }

    /// Refuses to count a node that does not answer this process as lost, unless the leader does not hear it either. Who does not lead for
    /// long enough to know is waited for, and so is the next leader. Blocks for seconds at most.
    fn check_silent(&self, map: &MapView, node: NodeId) -> Result<(), CatalogueError> {
        let name = || node_name(map, node);
        let began = Instant::now();
        let mut before: Option<(Option<Leader>, Instant)> = None;
        loop {
            let (leader, asked) = (self.map.leader(), Instant::now());
            let health = self.leader_health();
            if let Some(LeaderHealth { heard: Some(heard), silent_ms, .. }) = &health {
                if !heard.contains(&node) {
                    return Ok(());
                }
                // Since the last answer, so that it is not only the time that the leader needs to know.
                let silent_ms = silent_ms.get(&node).copied().unwrap_or(u64::MAX);
                let is_heard = before.as_ref().is_some_and(|(by, answered)| {
                    *by == leader && u128::from(silent_ms) < asked.duration_since(*answered).as_millis()
                });
                if is_heard {
                    return Err(CatalogueError::NodeHeard { name: name() });
                }
                before = Some((leader, Instant::now()));
            }
            if began.elapsed() >= SILENCE_WAIT {
                return Err(CatalogueError::NodeUnknown { name: name(), waited_s: SILENCE_WAIT.as_secs() });
            }
            std::thread::sleep(SILENCE_PAUSE);
        }
    }

    fn claim_layer(&self) -> Result<LayerId, CatalogueError> {
        let claimed = Cell::new(LayerId(0));
        // The map may be an older one that was put back before this process was started. While it runs, it follows none.
        let floor = if self.layer_claimed.load(Ordering::Relaxed) { 0 } else { unix_ms() };
        self.change(&|map| {
            let (layer, write) = operation::claim_layer(map, floor)?;
            // Should the answer be lost, the number stays unused and the next one is claimed.
            claimed.set(layer);
            Ok(Some(write))
        })
        .map_err(only_claimed)?;
        self.layer_claimed.store(true, Ordering::Relaxed);
        Ok(claimed.get())
    }

    /// Makes a change that takes a name, until what it made is there: by who has claimed a layer, as long as nobody has claimed
    /// another one.
    fn take_name(
        &self,
        make: &dyn Fn(&MapView, LayerId) -> Changed,
        made: &dyn Fn(&MapView) -> Option<VolumeRecord>,
    ) -> Result<VolumeRecord, CatalogueError> {
        for number in 1..=NAME_CLAIMS_MAX {
            let layer = self.claim_layer()?;
            let is_last = |cluster: &ClusterRecord| cluster.layer_next == layer.0 + 1;
            let map = self.change(&|map| Ok(while_last(map, is_last, make(map, layer)?)))?;
            if let Some(volume) = made(&map) {
                return Ok(volume);
            }
            step_back(number, layer.0);
        }
        Err(CatalogueError::Change(ChangeError::Busy))
    }

    /// Makes a change, and returns when everything in this process follows it.
    fn change(&self, make: &dyn Fn(&MapView) -> Changed) -> Result<Arc<MapView>, CatalogueError> {
        let refusal = RefCell::new(None);
        let map = self.map.change(&|map| match make(map) {
            Ok(write) => Ok(write),
            Err(CatalogueError::Operation(error)) => Err(error),
            Err(error) => {
                refusal.replace(Some(error));
                Ok(None)
            }
        });
        if let Some(error) = refusal.into_inner() {
            return Err(error);
        }
        let map = map.map_err(|error| match error {
            ChangeError::Operation(error) => CatalogueError::Operation(error),
            error => CatalogueError::Change(error),
        })?;
        self.map.wait_followed(map.revision(), FOLLOW_TIME_MAX);
        Ok(map)
    }
}

/// The write of who has claimed a number, which holds as long as nobody has claimed another one; none if somebody has.
fn while_last(
    map: &MapView,
    is_last: impl Fn(&ClusterRecord) -> bool,
    write: Option<Write>,
) -> Option<Write> {
    write.filter(|_| map.cluster().is_some_and(is_last)).map(|mut write| {
        write.unchanged.push((Key::Cluster, map.revision_of(&Key::Cluster)));
        write
    })
}

/// Waits, so that others who take names at the same moment do not overtake each other for ever: all have numbers of their own.
fn step_back(attempt: u64, own: u64) {
    std::thread::sleep(STEP_BACK * u32::try_from((attempt * (own % 8)).min(100)).unwrap_or(0));
}

fn find<'a>(map: &'a MapView, name: &str) -> Result<&'a VolumeRecord, CatalogueError> {
    map.volume_by_name(name).map(|volume| &*volume.value).ok_or_else(|| not_found(map, name))
}

fn not_found(map: &MapView, name: &str) -> CatalogueError {
    let active = map.volumes().filter(|volume| volume.value.state == VolumeState::Active);
    let nearest = Nearest::of(name, active.map(|volume| volume.value.name.as_str()));
    CatalogueError::NotFound { name: name.to_owned(), nearest }
}

fn unknown_pool(volume: &VolumeRecord) -> CatalogueError {
    OperationError::NotFound(format!("pool {}", volume.pool)).into()
}

fn write_volume(map: &MapView, volume: VolumeRecord) -> Write {
    let key = Key::Volume(volume.id);
    Write::new(key, map.revision_of(&key), Some(Record::Volume(volume)))
}

fn removing(volume: &VolumeRecord) -> VolumeRecord {
    VolumeRecord { state: VolumeState::Removing, shrinking_from_bytes: None, ..volume.clone() }
}

/// Checks a volume's size and rounds it up to whole blocks.
pub fn check_volume_size(size_bytes: u64) -> Result<u64, CatalogueError> {
    if size_bytes == 0 {
        return Err(CatalogueError::SizeZero);
    }
    if size_bytes > VOLUME_BYTES_MAX {
        return Err(CatalogueError::SizeTooLarge { size_bytes });
    }
    Ok(size_bytes.next_multiple_of(BLOCK_BYTES as u64))
}

/// How much room volumes have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Room {
    /// What all drives can hold.
    pub(crate) capacity_bytes: u64,
    /// Sum of the sizes of active volumes, all copies.
    pub(crate) provisioned_bytes: u64,
    /// What that sum may be.
    pub(crate) provisionable_bytes: u64,
}

impl Room {
    /// What the map says. Only drives that take data, or will when they are back, count for what is allowed.
    pub(crate) fn of(map: &MapView) -> Room {
        let drives = map.drives().filter(|drive| drives::takes_data(map, &drive.value));
        let usable_bytes = drives.map(|drive| drive.value.capacity_bytes).fold(0, u64::saturating_add);
        let percent = map.cluster().map_or(100, |cluster| cluster.overcommit_percent);
        let allowed = u128::from(usable_bytes) * u128::from(percent) / 100;
        let share = |volume: &VolumeRecord| {
            let copies = map.pool(volume.pool).map_or(1, |pool| u64::from(pool.copies));
            volume.size_bytes.saturating_mul(copies)
        };
        let active = map.volumes().filter(|volume| volume.value.state == VolumeState::Active);
        Room {
            capacity_bytes: map.capacity_bytes(),
            provisioned_bytes: active.map(|volume| share(&volume.value)).fold(0, u64::saturating_add),
            provisionable_bytes: u64::try_from(allowed).unwrap_or(u64::MAX),
        }
    }
}

fn check_room(map: &MapView, size_bytes: u64, pool: &PoolRecord) -> Result<(), CatalogueError> {
    let room = Room::of(map);
    let left_bytes = room.provisionable_bytes.saturating_sub(room.provisioned_bytes);
    if size_bytes.saturating_mul(u64::from(pool.copies)) <= left_bytes {
        return Ok(());
    }
    Err(CatalogueError::NoRoom {
        asked_bytes: size_bytes,
        copies: pool.copies,
        left_bytes,
        provisionable_bytes: room.provisionable_bytes,
        overcommit_percent: map.cluster().map_or(100, |cluster| cluster.overcommit_percent),
    })
}
