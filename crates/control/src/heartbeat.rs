//! A node's part in the cluster: it tells the leader that it is there, and keeps house by the map.
//!
//! Invariants:
//! - a heartbeat says what the node is at that moment; one that cannot be delivered is not repeated, the next one follows;
//! - a node that refuses its map, and all I/O with it, sends none: others must take over;
//! - the thread that sends waits for the leader for less than the time after which a node counts as dead, and for no reactor.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use coquina_base::NodeId;
use coquina_cluster::{BlocksLeft, CopyId, GroupId, Heartbeat, MapView, NodeRequest, Proposal};

use crate::api::HeartbeatReply;
use crate::backend::{BackendError, GroupRole, GroupSnapshot, NodeBackend, NodeSnapshot, ReturningCopy};
use crate::client::Client;
use crate::coordinator_service::CoordinatorService;
use crate::layers;
use crate::map_service::{Leader, MapService};

/// How often the leader is told that the node is there.
const INTERVAL: Duration = Duration::from_millis(250);
/// How often it is looked how far copies are that come back to primaries here.
const RETURNING_INTERVAL: Duration = Duration::from_secs(10);
/// Most copies of which this is told; of others the leader sees only for how long they take.
const RETURNING_MAX: usize = 4096;
/// How often it is looked whether there is something new to tell.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// How long the leader may take to answer.
const ANSWER_TIME_MAX: Duration = Duration::from_millis(400);
/// How often a node that stops looks whether its copies know that they are primaries no more.
const RELEASE_POLL: Duration = Duration::from_millis(5);
/// How long a node that stops waits until its primaries are elsewhere.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(1);
/// How long a stop waits for what is not urgent.
const OTHERS_TIME_MAX: Duration = Duration::from_secs(1);
/// Name of the thread that sends heartbeats.
const HEARTBEAT: &str = "heartbeat";

/// Has a backend follow the map, or refuse all I/O when the map must not be used any more.
pub fn follow_map(map: &MapService, backend: Arc<dyn NodeBackend>) {
    map.subscribe(Box::new(move |news| match news {
        Ok(map) => match backend.set_map(map) {
            Ok(()) | Err(BackendError::Stopping) => {}
            Err(error) => tracing::error!(%error, "the node could not follow the map"),
        },
        Err(error) => backend.refuse_io(error.to_string()),
    }));
}

/// Sends heartbeats of a node and deletes what the map no longer needs here.
pub struct HeartbeatService {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

pub(crate) struct Shared {
    pub(crate) map: Arc<MapService>,
    pub(crate) backend: Arc<dyn NodeBackend>,
    pub(crate) node: NodeId,
    coordinator: Option<Arc<CoordinatorService>>,
    pub(crate) stop: StopSignal,
    removed: AtomicBool,
    /// How far copies are that come back to primaries here, until the next heartbeat says so.
    returning: Mutex<Vec<BlocksLeft>>,
}

/// What a thread does until it is told to stop.
type Work = fn(&Shared);

/// Tells threads to end, and wakes them for it.
#[derive(Default)]
pub(crate) struct StopSignal {
    stop: Mutex<bool>,
    changed: Condvar,
}

impl StopSignal {
    pub(crate) fn is_set(&self) -> bool {
        *self.stop.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self) {
        *self.stop.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Sleeps; returns whether to end.
    pub(crate) fn sleep(&self, time: Duration) -> bool {
        let stop = self.stop.lock().unwrap_or_else(PoisonError::into_inner);
        let result = self.changed.wait_timeout_while(stop, time, |stop| !*stop);
        *result.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl HeartbeatService {
    /// Begins. With a coordinator in the same process, heartbeats take the short way while that leads.
    pub fn start(
        map: Arc<MapService>,
        backend: Arc<dyn NodeBackend>,
        node: NodeId,
        coordinator: Option<Arc<CoordinatorService>>,
    ) -> std::io::Result<HeartbeatService> {
        let shared = Arc::new(Shared {
            map,
            backend,
            node,
            coordinator,
            stop: StopSignal::default(),
            removed: AtomicBool::new(false),
            returning: Mutex::default(),
        });
        let mut threads = Vec::new();
        let works: [(&str, Work); 3] =
            [(HEARTBEAT, run), ("layers", layers::run), ("returning", look_after_returning)];
        for (name, work) in works {
            let shared = shared.clone();
            threads.push(std::thread::Builder::new().name(name.to_owned()).spawn(move || work(&shared))?);
        }
        Ok(HeartbeatService { shared, threads: Mutex::new(threads) })
    }

    /// Whether the leader says that the node is not in the map any more: it was removed.
    pub fn was_removed(&self) -> bool {
        self.shared.removed.load(Ordering::Relaxed)
    }

    /// Ends. As long as `leaves` says so, the leader is told that the node stops, so that others need not wait for it, and
    /// up to a second is waited until groups with other copies have their primaries there: the node must still serve
    /// meanwhile. Otherwise, as when all nodes stop together, the copies here stay in sync.
    pub fn stop(&self, leaves: &dyn Fn() -> bool) {
        self.shared.stop.set();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        let (heartbeats, others): (Vec<_>, Vec<_>) =
            threads.into_iter().partition(|thread| thread.thread().name() == Some(HEARTBEAT));
        for thread in heartbeats {
            // A panic of the thread was already reported by the panic hook.
            let _ = thread.join();
        }
        // Nothing is served by a refused map, so there is nothing to hand over.
        if leaves() && !refuses(&self.shared) {
            self.leave(leaves);
        }
        // One may be waiting for a drive that does not answer. It finds the node stopped, then.
        let deadline = Instant::now() + OTHERS_TIME_MAX;
        while others.iter().any(|thread| !thread.is_finished()) && Instant::now() < deadline {
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    fn leave(&self, leaves: &dyn Fn() -> bool) {
        let shared = &self.shared;
        let deadline = Instant::now() + LEAVE_TIME_MAX;
        let mut sender = Sender::default();
        let mut heartbeat = heartbeat(shared);
        heartbeat.stopping = true;
        heartbeat.proposals.clear();
        while Instant::now() < deadline && leaves() {
            let leader = shared.map.leader();
            // Told again and again: who was told may lead no more before it has decided anything.
            if let Some(leader) = leader {
                sender.send(shared, &leader, heartbeat.clone());
            }
            let patience = LOOK_INTERVAL.min(deadline.saturating_duration_since(Instant::now()));
            let gone = shared.map.wait_for_map(patience, |map| {
                let here = |shard| map.node_of(shard) == Some(shared.node);
                !map.groups().any(|group| {
                    group.primary().is_some_and(here) && group.in_sync.iter().any(|shard| !here(*shard))
                })
            });
            if let Some(map) = gone {
                return wait_until_released(shared, &map, deadline);
            }
        }
        // Those that stop together do not wait for each other: only one that leaves alone leaves something undone.
        if leaves() {
            tracing::info!("not all groups had another primary before the node stopped");
        }
    }
}

/// Waits until the copies here know that they are primaries no more: then they have told the next ones, which need not wait
/// for what was promised to these.
fn wait_until_released(shared: &Shared, map: &MapView, deadline: Instant) {
    let follows = |group: &GroupSnapshot| {
        let primary = map.group(GroupId(group.group)).and_then(|known| known.primary());
        group.role != GroupRole::Primary || primary.and_then(|shard| map.node_of(shard)) == Some(shared.node)
    };
    loop {
        // Of a reactor that hangs this is what it said last: it is waited for no longer than the others.
        let snapshot = shared.backend.snapshot();
        let mut groups =
            snapshot.drives.iter().flat_map(|drive| &drive.shards).flat_map(|shard| &shard.groups);
        if groups.all(follows) || Instant::now() >= deadline {
            return;
        }
        std::thread::sleep(RELEASE_POLL);
    }
}

impl Drop for HeartbeatService {
    fn drop(&mut self) {
        self.shared.stop.set();
    }
}

/// Sends until it is told to stop.
fn run(shared: &Shared) {
    let mut sender = Sender::default();
    let mut sent: Option<(Instant, Option<Leader>, Vec<Proposal>)> = None;
    loop {
        let leader = shared.map.leader();
        let proposals = proposals(shared);
        let due = sent
            .as_ref()
            .is_none_or(|(at, to, what)| at.elapsed() >= INTERVAL || *to != leader || *what != proposals);
        if due && !refuses(shared) {
            sent = Some((Instant::now(), leader.clone(), proposals));
            if let Some(leader) = &leader
                && let Some(reply) = sender.send(shared, leader, heartbeat(shared))
            {
                shared.map.leader_answered(leader.term);
                obey(shared, &reply);
            }
        }
        if shared.stop.sleep(LOOK_INTERVAL) {
            return;
        }
    }
}

fn refuses(shared: &Shared) -> bool {
    shared.map.state().refused.is_some()
}

fn proposals(shared: &Shared) -> Vec<Proposal> {
    let map = shared.map.map();
    let proposals = shared.backend.proposals();
    proposals.iter().filter_map(|(group, config)| Proposal::of_config(&map, *group, config)).collect()
}

fn heartbeat(shared: &Shared) -> Heartbeat {
    Heartbeat {
        node: shared.node,
        cluster: shared.map.cluster(),
        map_revision: shared.map.followed(),
        stopping: false,
        drives: shared.backend.drive_reports(),
        proposals: proposals(shared),
        returning: Some(std::mem::take(&mut *lock(&shared.returning))),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Looks from time to time how far copies are that come back, if there are any: this waits for reactors.
fn look_after_returning(shared: &Shared) {
    while !shared.stop.sleep(RETURNING_INTERVAL) {
        let map = shared.map.map();
        let here = |shard| map.node_of(shard) == Some(shared.node);
        if map.groups().any(|group| !group.others.is_empty() && group.primary().is_some_and(here)) {
            *lock(&shared.returning) = returning(&shared.backend.snapshot(), &map);
        }
    }
}

/// What primaries have left to do for each copy that follows them again.
fn returning(snapshot: &NodeSnapshot, map: &MapView) -> Vec<BlocksLeft> {
    let shards = snapshot.drives.iter().flat_map(|drive| &drive.shards);
    let left = |copy: &ReturningCopy| {
        let shard = Some(map.shard_of(CopyId(copy.copy))?);
        Some(BlocksLeft { group: GroupId(copy.group), epoch: copy.epoch, shard, blocks: copy.blocks_left })
    };
    shards.flat_map(|shard| &shard.returning).filter_map(left).take(RETURNING_MAX).collect()
}

fn obey(shared: &Shared, reply: &HeartbeatReply) {
    let mut removed = false;
    for request in &reply.requests {
        match request {
            NodeRequest::ReadMap { revision } => {
                tracing::info!(revision, "the leader says that the map here is old; reading it again");
                shared.map.read_again_soon();
            }
            NodeRequest::NotInMap => removed = shared.map.map().node(shared.node).is_none(),
            NodeRequest::OtherCluster { expected } => {
                tracing::error!(%expected, "the leader belongs to another cluster; see which store each node uses");
            }
        }
    }
    if removed && !shared.removed.swap(true, Ordering::Relaxed) {
        tracing::error!("this node is not in the cluster any more: it was removed");
    }
}

/// Keeps the connection to the leader.
#[derive(Default)]
struct Sender {
    client: Option<(String, Client)>,
}

impl Sender {
    /// The leader's answer, if it came in time.
    fn send(&mut self, shared: &Shared, leader: &Leader, heartbeat: Heartbeat) -> Option<HeartbeatReply> {
        if let Some(coordinator) = shared.coordinator.as_ref().filter(|coordinator| coordinator.leads()) {
            return coordinator.heartbeat_blocking(heartbeat);
        }
        if self.client.as_ref().is_none_or(|(address, _)| *address != leader.http) {
            let client = Client::with_patience(&leader.http, ANSWER_TIME_MAX, ANSWER_TIME_MAX).ok()?;
            self.client = Some((leader.http.clone(), client));
        }
        let (_, client) = self.client.as_ref()?;
        match client.heartbeat(&heartbeat) {
            Ok(reply) => Some(reply),
            Err(error) => {
                tracing::debug!(%error, leader = leader.http, "a heartbeat was not taken");
                None
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use coquina_base::{ClusterId, DriveId, Id128};
    use coquina_cluster::{ClusterRecord, DriveRecord, Key, Record, ShardRef};

    use super::*;
    use crate::backend::{DriveSnapshot, ShardSnapshot};

    #[test]
    fn primaries_tell_how_far_each_copy_is_that_comes_back() {
        let drive = DriveRecord {
            id: DriveId(Id128([9; 16])),
            node: NodeId(Id128([1; 16])),
            path: "/d".to_owned(),
            size_bytes: 1 << 30,
            capacity_bytes: 1 << 30,
            shards: 2,
            weight: 1,
            copy_first: 5,
            state: Default::default(),
            wanted: Default::default(),
            dead_ms: 0,
        };
        let id = drive.id;
        let cluster = ClusterRecord { copy_next: 7, ..ClusterRecord::new(ClusterId(Id128([2; 16]))) };
        let records =
            vec![(Key::Cluster, 1, Record::Cluster(cluster)), (Key::Drive(id), 1, Record::Drive(drive))];
        let map = MapView::load(records, 1).unwrap();
        let copy = |group, copy, blocks_left| ReturningCopy { group, epoch: 7, copy, blocks_left };
        let returning = vec![copy(1, 6, 30), copy(1, 99, 40), copy(2, 5, 0)];
        let shards = vec![ShardSnapshot { returning, ..ShardSnapshot::default() }];
        let drives = vec![DriveSnapshot { shards, ..DriveSnapshot::default() }];
        let snapshot = NodeSnapshot { drives, ..NodeSnapshot::default() };
        let left = |group, shard, blocks| BlocksLeft {
            group: GroupId(group),
            epoch: 7,
            shard: Some(ShardRef { drive: id, shard }),
            blocks,
        };
        assert_eq!(super::returning(&snapshot, &map), [left(1, 1, 30), left(2, 0, 0)]);
    }
}
