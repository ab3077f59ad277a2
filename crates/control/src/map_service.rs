//! The cluster map of this process, kept as the store has it, and the way to change it.
//!
//! Invariants:
//! - the map never goes backwards; a store that does ends the service: [`MapService::state`] and every follower say so,
//!   and what follows the map refuses I/O;
//! - without the store the service goes on with the map that it has and asks again, without end;
//! - a change is one compare-and-set, made anew on a newer map as long as somebody else was faster;
//! - all that talks to the store runs on the one thread of the service's runtime, which nothing blocks; followers have
//!   a thread of their own, and so has what is written to the folder, whose disk may hang;
//! - nobody waits for that thread without an end.

mod changes;
mod follow;
mod followers;
mod leader;
mod records;
mod saver;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use coquina_base::{ClusterId, LayerId};
use coquina_cluster::{MapError, MapView, OperationError, Write};
use coquina_store::{Attempt, Compare, Store, StoreError};
use tokio::sync::{mpsc as async_mpsc, watch};

use crate::cluster_file::ClusterFile;
use crate::folder::FolderError;
use crate::journal;
pub use changes::ChangesRefused;
use follow::Started;
pub(crate) use leader::Candidate;
pub use leader::Leader;
pub(crate) use records::{ELECTION, decode_revision, decode_snapshot, read_prefix, transaction};

/// How long a change is tried.
const CHANGE_TIME_MAX: Duration = Duration::from_secs(15);
/// How long it is waited for the watch to show what is in the store.
const WATCH_PATIENCE: Duration = Duration::from_secs(1);
/// How long it is waited for an answer of the service's thread: longer than a store takes to give up a request and the one
/// before it.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(15);
/// Pause before a change is tried again that the store did not take.
const CHANGE_PAUSE: Duration = Duration::from_millis(200);

/// Why there is no map.
#[derive(Debug, thiserror::Error)]
pub enum MapServiceError {
    /// The store cannot be used.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The map cannot be used.
    #[error("{0}")]
    Map(#[from] MapError),
    /// The folder cannot be used.
    #[error("{0}")]
    Folder(#[from] FolderError),
    /// The store has another cluster than the folder.
    #[error(
        "{folder} belongs to cluster {own}, and the store has cluster {found}: give the store of its own cluster \
         (--etcd), or another folder (--dir) to join that one"
    )]
    OtherCluster {
        /// The folder.
        folder: String,
        /// Its cluster.
        own: ClusterId,
        /// The store's.
        found: ClusterId,
    },
    /// The store has lost what the folder remembers.
    #[error(
        "the store has lost changes: {reason}. It was wiped, replaced or restored from an old backup, so I/O is refused \
         rather than answered wrongly. Bring back the newest state of the store; once it is certain that it is the newest, \
         delete {file} on each node that says this and start again"
    )]
    StoreLost {
        /// What is known of it.
        reason: String,
        /// The file that remembers.
        file: String,
    },
    /// The store has no cluster, and none is to be made.
    #[error(
        "the store has no cluster yet: start a node first (`coquina node`), which makes one, or give the right store's address"
    )]
    Empty,
    /// No thread, runtime or randomness.
    #[error("cannot follow the cluster map: {0}")]
    System(std::io::Error),
    /// It was stopped while it started.
    #[error("the server is stopping")]
    Stopping,
}

/// Why the map was not changed, unless the text says that it was or may have been.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// It is not allowed.
    #[error("{0}")]
    Operation(#[from] OperationError),
    /// The store does not take it.
    #[error("the cluster map cannot be changed now: {0}")]
    Store(#[from] StoreError),
    /// The store has the change, and this process's map does not show it.
    #[error("the change was made (revision {revision}), but this process does not see it yet: {reason}")]
    NotSeen {
        /// The store's revision with it.
        revision: u64,
        /// Why not.
        reason: String,
    },
    /// A number was claimed for something new, and this process's map does not show it: nothing is made of it.
    #[error("nothing was made, since this process does not see the newest cluster map: {reason}; try again")]
    OnlyClaimed {
        /// Why not.
        reason: String,
    },
    /// The map must not be used any more.
    #[error("{0}")]
    Refused(MapError),
    /// Others change the same record all the time.
    #[error("others change the same record of the cluster map all the time; try again")]
    Busy,
    /// The service is being stopped.
    #[error("the server is stopping")]
    Stopping,
}

/// How the store and the map are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreState {
    /// Why the store does not answer, and since when, if it does not.
    pub unreachable: Option<(Instant, String)>,
    /// It is kept in a folder and could not write its file: it does not answer until it can.
    pub broken: bool,
    /// Why it takes no changes, if it does not though it answers.
    pub changes_refused: Option<ChangesRefused>,
    /// Why it is not remembered how far the store is, if it is not.
    pub not_remembered: Option<String>,
    /// Why nothing may be served by the map any more.
    pub refused: Option<MapError>,
    /// Layers that drives here hold and that the map has not given out: of volumes that were lost when it went back.
    pub lost_layers: BTreeSet<LayerId>,
}

/// Is called with the map: see [`MapService::subscribe`].
pub type MapFollower = Box<dyn FnMut(Result<Arc<MapView>, MapError>) + Send>;

/// The map of this process. See the head of the module.
pub struct MapService {
    shared: Arc<Shared>,
    store: Arc<dyn Store>,
    cluster: ClusterId,
    runtime: tokio::runtime::Handle,
    reads: async_mpsc::UnboundedSender<ReadRequest>,
    stop: watch::Sender<bool>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Asks for a read of the whole store that begins after this was sent.
type ReadRequest = mpsc::Sender<Result<Arc<MapView>, ChangeError>>;

/// What the threads share.
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    map: Arc<MapView>,
    store: StoreState,
    stopping: bool,
    /// Revision of the map that all followers have been called with.
    followed: u64,
    /// Followers that have not been called yet.
    joining: Vec<MapFollower>,
    /// The process that leads now.
    leader: Option<Leader>,
    /// The one that leads or led last, and the one before.
    leaders_last: [Option<LeaderSeen>; 2],
}

/// Who leads or led, and when its answer to this process's node came last; when it was first seen if none came.
#[derive(Clone)]
pub(crate) struct LeaderSeen {
    pub(crate) leader: Leader,
    pub(crate) heard: Instant,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing is half changed when a thread panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change_state<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state());
        self.changed.notify_all();
        result
    }

    /// Waits until something holds of the state. `None` when the time is over.
    fn wait_until<T>(&self, deadline: Instant, mut holds: impl FnMut(&State) -> Option<T>) -> Option<T> {
        let mut state = self.state();
        loop {
            if let Some(value) = holds(&state) {
                return Some(value);
            }
            let left = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl State {
    /// The map, if changes can be based on it.
    fn usable(&self) -> Result<&Arc<MapView>, ChangeError> {
        match &self.store.refused {
            Some(error) => Err(ChangeError::Refused(error.clone())),
            None if self.stopping => Err(ChangeError::Stopping),
            None => Ok(&self.map),
        }
    }
}

impl MapService {
    /// Reads the map; makes a cluster if the store has none and `create` says so. Waits through errors that pass, telling
    /// `waiting` each of them; blocks until then. The folder keeps `cluster.json`, so that another cluster's store or one
    /// that was wiped or is older than before is refused.
    pub fn start(
        store: Arc<dyn Store>,
        folder: &Path,
        create: bool,
        waiting: &mut dyn FnMut(&StoreError),
    ) -> Result<Arc<MapService>, MapServiceError> {
        let known = ClusterFile::read(folder)?;
        let (started, news) = mpsc::channel();
        let (reads, read_requests) = async_mpsc::unbounded_channel();
        let (stop, stopped) = watch::channel(false);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(MapServiceError::System)?;
        let handle = runtime.handle().clone();
        let begin = follow::Begin {
            store: store.clone(),
            folder: folder.to_owned(),
            known,
            create,
            read_requests,
            stopped,
        };
        let thread = std::thread::Builder::new()
            .name("map".to_owned())
            .spawn(move || runtime.block_on(follow::run(begin, &started)))
            .map_err(MapServiceError::System)?;
        let shared = loop {
            match news.recv() {
                Ok(Started::Waiting(error)) => waiting(&error),
                Ok(Started::Ready(shared)) => break shared,
                Ok(Started::Failed(error)) => {
                    let _ = thread.join();
                    return Err(error);
                }
                Err(mpsc::RecvError) => return Err(MapServiceError::Stopping),
            }
        };
        let cluster = shared.state().map.cluster().map(|cluster| cluster.id).unwrap_or_default();
        let followed = shared.clone();
        let followers = std::thread::Builder::new()
            .name("map-followers".to_owned())
            .spawn(move || followers::run(&followed))
            .map_err(MapServiceError::System)?;
        let threads = Mutex::new(vec![thread, followers]);
        Ok(Arc::new(MapService { shared, store, cluster, runtime: handle, reads, stop, threads }))
    }

    /// The newest map that is known.
    pub fn map(&self) -> Arc<MapView> {
        self.shared.state().map.clone()
    }

    /// The cluster.
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// How the store and the map are.
    pub fn state(&self) -> StoreState {
        self.shared.state().store.clone()
    }

    /// Notes which layers drives here hold that the map has not given out. Returns which they were before.
    pub(crate) fn found_lost_layers(&self, layers: BTreeSet<LayerId>) -> BTreeSet<LayerId> {
        std::mem::replace(&mut self.shared.state().store.lost_layers, layers)
    }

    /// The process that leads, if one does.
    pub fn leader(&self) -> Option<Leader> {
        self.shared.state().leader.clone()
    }

    /// Waits until somebody else leads than `known`, or nobody does; or as long as `patience`. Returns who leads then.
    pub fn wait_for_leader(&self, known: Option<&Leader>, patience: Duration) -> Option<Leader> {
        let changed =
            |state: &State| (state.leader.as_ref() != known || state.stopping).then(|| state.leader.clone());
        let found = self.shared.wait_until(Instant::now() + patience, changed);
        found.unwrap_or_else(|| known.cloned())
    }

    /// Who led before a term, as far as it was seen.
    pub(crate) fn leader_before(&self, term: u64) -> Option<LeaderSeen> {
        let last = self.shared.state().leaders_last.clone();
        last.into_iter().flatten().find(|seen| seen.leader.term < term)
    }

    /// The leader of that term has answered this process's node.
    pub(crate) fn leader_answered(&self, term: u64) {
        let mut state = self.shared.state();
        let seen = state.leaders_last.iter_mut().flatten().find(|seen| seen.leader.term == term);
        if let Some(seen) = seen {
            seen.heard = Instant::now();
        }
    }

    /// The leader, and when it was heard last.
    pub(crate) fn leader_seen(&self) -> Option<LeaderSeen> {
        let state = self.shared.state();
        let term = state.leader.as_ref()?.term;
        state.leaders_last.iter().flatten().find(|seen| seen.leader.term == term).cloned()
    }

    /// Revision of the map that all followers of this process have been called with.
    pub fn followed(&self) -> u64 {
        self.shared.state().followed
    }

    /// Has nobody use the map any more, since it was found to be wrong in another way than the store itself tells.
    pub(crate) fn refuse(&self, error: MapError) {
        self.shared.change_state(|state| {
            state.store.refused.get_or_insert(error);
        });
    }

    /// Calls `follow` with the present map at once and then with newer ones, in order, on one thread that all followers
    /// share. It always ends with the newest, and may leave out some in between. With `Err` the map must not be used any
    /// more, and nothing else follows. A follower must not wait for a [`change`](Self::change).
    pub fn subscribe(&self, follow: MapFollower) {
        self.shared.change_state(|state| state.joining.push(follow));
    }

    /// Waits until all followers of this process have been called with a revision; `false` if that takes too long.
    pub fn wait_followed(&self, revision: u64, patience: Duration) -> bool {
        let done = |state: &State| (state.followed >= revision || state.stopping).then_some(());
        self.shared.wait_until(Instant::now() + patience, done).is_some()
    }

    /// Waits until something holds of the map; `None` if that takes too long, or the service ends.
    pub fn wait_for_map(
        &self,
        patience: Duration,
        mut holds: impl FnMut(&MapView) -> bool,
    ) -> Option<Arc<MapView>> {
        let found = self.shared.wait_until(Instant::now() + patience, |state| match state.usable() {
            Ok(map) => holds(map).then(|| Some(map.clone())),
            Err(_) => Some(None),
        });
        found.flatten()
    }

    /// Makes a change by compare-and-set, decides anew on conflicts, and returns the map that shows it. `make` gives
    /// `None` if nothing is to do. Blocks: not for the runtime's thread, and not for followers.
    ///
    /// It can happen that `make` is called again after its change was made, since the answer was lost: it should then
    /// find that nothing is to do.
    pub fn change(
        &self,
        make: &dyn Fn(&MapView) -> Result<Option<Write>, OperationError>,
    ) -> Result<Arc<MapView>, ChangeError> {
        let deadline = Instant::now() + CHANGE_TIME_MAX;
        // Of a try of which nobody has said yet whether it was made.
        let mut unknown: Option<StoreError> = None;
        loop {
            let map = self.shared.state().usable()?.clone();
            let Some(write) = make(&map)? else { return Ok(map) };
            let tried = Write { record: None, ..write.clone() };
            let lines = journal::lines(&map, &write);
            let error = match self.write(write, None) {
                // Whatever is wrong now, nobody must take the map for unchanged.
                Ok(revision) => {
                    lines.iter().for_each(journal::Line::tell);
                    let seen = self.wait_for(|map| map.revision() >= revision);
                    return seen
                        .map_err(|error| ChangeError::NotSeen { revision, reason: error.to_string() });
                }
                Err(ChangeError::Store(error)) => error,
                Err(error) => return Err(error),
            };
            let late = Instant::now() >= deadline;
            match error {
                StoreError::Conflict { .. } if late => {
                    return Err(unknown.map_or(ChangeError::Busy, ChangeError::Store));
                }
                StoreError::Conflict { .. } => {
                    if let Err(error) = self.wait_for(|map| !tried.holds_on(map)) {
                        return Err(unknown.map_or(error, ChangeError::Store));
                    }
                }
                // Etcd says so of a change that it has made, too: of the one that took the last room.
                StoreError::Full { endpoint, reason } => match self.read_again() {
                    Ok(map) if make(&map)?.is_none() => return Ok(map),
                    Ok(_) => return Err(StoreError::Full { endpoint, reason }.into()),
                    Err(ChangeError::Store(_)) => {
                        let attempt = Attempt { endpoint, reason };
                        let lost = StoreError::OutcomeUnknown { doing: "change the cluster map", attempt };
                        if late {
                            return Err(lost.into());
                        }
                        unknown = Some(lost);
                        std::thread::sleep(CHANGE_PAUSE);
                    }
                    Err(refused) => return Err(refused),
                },
                error if late || !error.is_passing() => return Err(unknown.unwrap_or(error).into()),
                lost @ StoreError::OutcomeUnknown { .. } => match self.read_again() {
                    Ok(_) => unknown = None,
                    // Who hears of this error only would take the map for unchanged.
                    Err(ChangeError::Store(_)) => {
                        unknown = Some(lost);
                        std::thread::sleep(CHANGE_PAUSE);
                    }
                    Err(refused) => return Err(refused),
                },
                _ => std::thread::sleep(CHANGE_PAUSE),
            }
        }
    }

    /// Reads everything again, with a read that begins now, and returns the map that shows at least that. Blocks, as
    /// [`change`](Self::change) does.
    pub fn read_again(&self) -> Result<Arc<MapView>, ChangeError> {
        let (reply, answer) = mpsc::channel();
        self.reads.send(reply).map_err(|_| ChangeError::Stopping)?;
        answer.recv_timeout(ANSWER_TIME_MAX).unwrap_or_else(|error| match error {
            RecvTimeoutError::Disconnected => Err(ChangeError::Stopping),
            RecvTimeoutError::Timeout => {
                let waited_ms = ANSWER_TIME_MAX.as_millis() as u64;
                Err(StoreError::Slow { doing: "read the cluster map", waited_ms, tried: vec![no_answer()] }
                    .into())
            }
        })
    }

    /// Has everything be read again, without waiting for it.
    pub fn read_again_soon(&self) {
        let _ = self.reads.send(mpsc::channel().0);
    }

    /// Ends the service: the map stays as it is, and changes are refused. Waits for the threads, so not for followers.
    pub fn stop(&self) {
        self.shared.change_state(|state| state.stopping = true);
        self.stop.send_replace(true);
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            // A panic of the thread was already reported by the panic hook.
            let _ = thread.join();
        }
    }

    /// The store.
    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Waits until the map shows what is in the store already; reads again if the watch is late.
    fn wait_for(&self, shows: impl Fn(&MapView) -> bool) -> Result<Arc<MapView>, ChangeError> {
        match self.wait_for_map(WATCH_PATIENCE, &shows) {
            Some(map) => Ok(map),
            None => self.read_again(),
        }
    }

    /// One compare-and-set, perhaps under a fence. Returns its revision.
    pub(crate) fn write(&self, write: Write, fence: Option<Compare>) -> Result<u64, ChangeError> {
        let transaction = transaction(write, fence);
        let store = self.store.clone();
        let (reply, answer) = mpsc::channel();
        let shared = self.shared.clone();
        let task = self.runtime.spawn(async move {
            let result = store.transaction(transaction).await;
            shared.changed_with(&result);
            let _ = reply.send(result);
        });
        match answer.recv_timeout(ANSWER_TIME_MAX) {
            Ok(result) => Ok(result?),
            Err(RecvTimeoutError::Disconnected) => Err(ChangeError::Stopping),
            Err(RecvTimeoutError::Timeout) => {
                task.abort();
                Err(StoreError::OutcomeUnknown { doing: "change the cluster map", attempt: no_answer() }
                    .into())
            }
        }
    }
}

/// What is said of a request that the service's thread does not answer.
fn no_answer() -> Attempt {
    let reason = format!("it did not answer within {} s", ANSWER_TIME_MAX.as_secs());
    Attempt { endpoint: "the thread that follows the map".to_owned(), reason }
}

impl Drop for MapService {
    fn drop(&mut self) {
        self.shared.change_state(|state| state.stopping = true);
        self.stop.send_replace(true);
    }
}

#[cfg(test)]
mod tests;
