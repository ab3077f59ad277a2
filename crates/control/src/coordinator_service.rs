//! The process's part in leading the cluster: it is a candidate, and runs the coordinator while it leads.
//!
//! Invariants:
//! - every write is fenced by the election: a leader that was replaced without knowing changes nothing;
//! - losing the lease, the election or the map's trust ends the leadership before the next decision;
//! - the coordinator has a thread and a runtime of its own; large placements run on others.

mod chores;
mod lead;
mod silence;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use coquina_base::NodeId;
use coquina_cluster::Heartbeat;
use coquina_store::{LeaseId, LeaseKeeper, Store, StoreError, campaign};
use tokio::sync::{mpsc, oneshot, watch};

use crate::api::{HeartbeatReply, LeaderHealth};
use crate::map_service::{Candidate, ELECTION, MapService};
use crate::trim::Trimmer;
use lead::{Ended, Input};

/// Life of a candidate's lease: as short as etcd allows. A killed leader is replaced after that at the latest; see
/// `silence` for what is sooner.
const LEASE_SECONDS: u64 = 2;
/// Pause before the next campaign after trouble with the store.
const RETRY_PAUSE: Duration = Duration::from_millis(300);
/// How long it is waited for a lease to be given back.
const GIVE_BACK_WAIT: Duration = Duration::from_secs(1);
/// How long that is tried: longer than a lease lives that nobody keeps.
const GIVE_BACK_TIME_MAX: Duration = Duration::from_secs(10);
/// How long the leader's thread may take to answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);

/// Who a candidate is.
pub struct CoordinatorConfig {
    /// Address of this process's REST interface, where heartbeats are sent to.
    pub http: String,
    /// The node of this process, if it has one.
    pub node: Option<NodeId>,
    /// Deletes what volumes hold beyond their end, to finish shrinks.
    pub trimmer: Arc<dyn Trimmer>,
}

/// Takes part in the election, and leads when elected. See the head of the module.
pub struct CoordinatorService {
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    map: Arc<MapService>,
    config: CoordinatorConfig,
    /// While this process leads.
    leading: Mutex<Option<Leading>>,
}

struct Leading {
    /// The way to the leader's loop.
    inputs: mpsc::UnboundedSender<Input>,
    /// The store's revision when it was elected.
    term: u64,
    since: Instant,
}

impl Shared {
    fn leading(&self) -> MutexGuard<'_, Option<Leading>> {
        self.leading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the leader's loop something; `None` if this process does not lead.
    async fn ask<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> Input) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.leading().as_ref()?.inputs.send(question(reply)).ok()?;
        tokio::time::timeout(ANSWER_TIME_MAX, answer).await.ok()?.ok()
    }

    /// The same for threads that may block.
    fn ask_blocking<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> Input) -> Option<T> {
        let (reply, answer) = oneshot::channel();
        self.leading().as_ref()?.inputs.send(question(reply)).ok()?;
        answer.blocking_recv().ok()
    }

    fn leads(&self) -> bool {
        self.leading().is_some()
    }
}

impl CoordinatorService {
    /// Becomes a candidate.
    pub fn start(
        map: Arc<MapService>,
        config: CoordinatorConfig,
    ) -> std::io::Result<Arc<CoordinatorService>> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(4)
            .thread_name("coordinator-blocking")
            .build()?;
        let (stop, stopped) = watch::channel(false);
        let shared = Arc::new(Shared { map, config, leading: Mutex::new(None) });
        let for_thread = shared.clone();
        let until = stopped.clone();
        let coordinator = std::thread::Builder::new().name("coordinator".to_owned()).spawn(move || {
            runtime.block_on(run(&for_thread, until));
            // A placement that is being computed is of no use any more.
            runtime.shutdown_background();
        })?;
        let for_thread = shared.clone();
        // Ends by itself, later than a stop may take if it has a node to wait for. What it leaves is finished by whoever
        // leads next.
        std::thread::Builder::new()
            .name("chores".to_owned())
            .spawn(move || chores::run(&for_thread, &stopped))?;
        Ok(Arc::new(CoordinatorService { shared, stop, thread: Mutex::new(Some(coordinator)) }))
    }

    /// Whether this process leads, as far as it knows.
    pub fn leads(&self) -> bool {
        self.shared.leads()
    }

    /// Takes a node's heartbeat. `None` if this process does not lead. Blocks for a moment.
    pub fn heartbeat_blocking(&self, heartbeat: Heartbeat) -> Option<HeartbeatReply> {
        self.shared.ask_blocking(|reply| Input::Heartbeat(heartbeat, reply))
    }

    /// The same without blocking.
    pub async fn heartbeat(&self, heartbeat: Heartbeat) -> Option<HeartbeatReply> {
        self.shared.ask(|reply| Input::Heartbeat(heartbeat, reply)).await
    }

    /// How the cluster is. `None` if this process does not lead. Blocks for a moment.
    pub fn health_blocking(&self) -> Option<LeaderHealth> {
        self.shared.ask_blocking(Input::Health)
    }

    /// Resigns, if it leads, and ends. Waits for the coordinator's thread.
    pub fn stop(&self) {
        self.stop.send_replace(true);
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // A panic of the thread was already reported by the panic hook.
            let _ = thread.join();
        }
    }
}

impl Drop for CoordinatorService {
    fn drop(&mut self) {
        self.stop.send_replace(true);
    }
}

/// Campaigns and leads until it is told to stop.
async fn run(shared: &Arc<Shared>, mut stopped: watch::Receiver<bool>) {
    loop {
        if *stopped.borrow() {
            return;
        }
        let mut pause = RETRY_PAUSE;
        if shared.map.state().refused.is_none() {
            match candidacy(shared, &mut stopped).await {
                Ok(Ended::Stopped) => return,
                Ok(Ended::Halted(error)) => {
                    tracing::error!(%error, "the map cannot be trusted; this process leads no more");
                    shared.map.refuse(error);
                }
                Ok(Ended::Replaced) => tracing::warn!("another process leads now"),
                Err(StoreError::LeaseLost { .. }) => tracing::warn!("the lease was lost; campaigning anew"),
                Err(error) => {
                    tracing::debug!(%error, "cannot campaign now");
                    pause = shared.map.refused_with(&error).map_or(pause, |refused| refused.max(pause));
                }
            }
        }
        tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// One candidacy with one lease, from the campaign to the end of the leadership.
async fn candidacy(shared: &Arc<Shared>, stopped: &mut watch::Receiver<bool>) -> Result<Ended, StoreError> {
    let store = shared.map.store().clone();
    let mut keeper = LeaseKeeper::grant(store.clone(), LEASE_SECONDS).await?;
    shared.map.lease_granted();
    let lease = keeper.lease();
    let candidate =
        Candidate { http: shared.config.http.clone(), node: shared.config.node, process: std::process::id() };
    let value = serde_json::to_vec(&candidate).unwrap_or_default();
    let leading = async {
        let leadership = campaign(&*store, ELECTION, value, lease).await?;
        shared.map.changes_taken();
        let before = shared.map.leader_before(leadership.create_revision);
        tracing::info!(term = leadership.create_revision, "this process leads the cluster");
        let (inputs, receiver) = mpsc::unbounded_channel();
        let term = leadership.create_revision;
        *shared.leading() = Some(Leading { inputs: inputs.clone(), term, since: Instant::now() });
        lead::Lead::new(shared, leadership, inputs, before).run(receiver).await
    };
    let result = tokio::select! {
        result = leading => result,
        ended = silence::watch(shared, lease) => Ok(ended),
        error = keeper.lost() => Err(error),
        _ = stopped.wait_for(|stopped| *stopped) => Ok(Ended::Stopped),
    };
    *shared.leading() = None;
    drop(keeper);
    // Whatever happened, others need not wait for the lease to run out.
    let given_back = tokio::spawn(give_back(store, lease));
    let _ = tokio::time::timeout(GIVE_BACK_WAIT, given_back).await;
    result
}

/// Gives a lease back, as soon as the store takes it: when etcd loses its leader, all candidates lose their leases at once, and
/// the key of one that does not come back would lead until etcd finds out, which begins to count anew with its next leader.
async fn give_back(store: Arc<dyn Store>, lease: LeaseId) {
    let until = Instant::now() + GIVE_BACK_TIME_MAX;
    while Instant::now() < until {
        match store.lease_revoke(lease).await {
            Err(error) if error.is_passing() => tokio::time::sleep(RETRY_PAUSE).await,
            _ => return,
        }
    }
    tracing::debug!("the lease could not be given back; it runs out by itself");
}
