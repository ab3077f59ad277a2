//! The task that reads and watches the map.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use coquina_base::ClusterId;
use coquina_cluster::{MapError, MapView, operation};
use coquina_store::{Identity, Snapshot, Store, StoreError, Watch, Watched};
use tokio::sync::{mpsc as async_mpsc, watch};

use super::saver::Saver;
use super::{ChangeError, MapServiceError, ReadRequest, Shared, State, StoreState, leader};
use super::{decode_revision, decode_snapshot, read_prefix, transaction};
use crate::cluster_file::ClusterFile;
use crate::random::random_id;

/// Pause before the store is asked again.
const RETRY_PAUSE: Duration = Duration::from_millis(300);
/// The longest pause, after errors that somebody has to do something about.
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(5);
/// How soon it is remembered how far the store is.
const SAVE_INTERVAL: Duration = Duration::from_millis(250);
/// How long a save may take before it is told that the disk hangs.
const SAVE_TIME_MAX: Duration = Duration::from_secs(5);
/// How long a refusal waits to be remembered before it is told all the same: I/O goes on meanwhile.
const REFUSAL_WAIT: Duration = Duration::from_secs(1);
/// How long a stop waits for the last save.
const STOP_WAIT: Duration = Duration::from_secs(2);
/// How often the store is asked whether it is there: a watch says nothing of that.
const PROBE_INTERVAL: Duration = Duration::from_secs(3);

/// What the task begins with.
pub(super) struct Begin {
    pub(super) store: Arc<dyn Store>,
    pub(super) folder: PathBuf,
    pub(super) known: Option<ClusterFile>,
    pub(super) create: bool,
    pub(super) read_requests: async_mpsc::UnboundedReceiver<ReadRequest>,
    pub(super) stopped: watch::Receiver<bool>,
}

/// News of the start.
pub(super) enum Started {
    Waiting(StoreError),
    Ready(Arc<Shared>),
    Failed(MapServiceError),
}

/// Starts and follows the map until it is told to stop. Ends with the runtime, so that nothing of it goes on.
pub(super) async fn run(mut begin: Begin, started: &mpsc::Sender<Started>) {
    let map = match first_map(&begin, started).await {
        Ok(map) => map,
        Err(error) => {
            let _ = started.send(Started::Failed(error));
            return;
        }
    };
    let cluster = map.cluster().map(|cluster| cluster.id).unwrap_or_default();
    let state = State {
        map: Arc::new(map),
        store: StoreState::default(),
        stopping: false,
        followed: 0,
        joining: Vec::new(),
        leader: None,
        leaders_last: [None, None],
    };
    let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
    let folder = begin.folder.clone();
    let for_saver = shared.clone();
    let tell = move |failed: Option<String>| for_saver.remembered_with(failed);
    let saver = match Saver::start(Box::new(move |file| file.save(&folder)), Box::new(tell)) {
        Ok(saver) => saver,
        Err(error) => {
            let _ = started.send(Started::Failed(MapServiceError::System(error)));
            return;
        }
    };
    if started.send(Started::Ready(shared.clone())).is_err() {
        return;
    }
    let follower = Follower {
        store: begin.store.clone(),
        shared,
        cluster,
        folder: begin.folder.clone(),
        saver,
        refusing: Mutex::new(None),
    };
    follower.save(false);
    let mut stopped = begin.stopped.clone();
    tokio::select! {
        _ = stopped.wait_for(|stopped| *stopped) => {}
        () = follower.probe() => {}
        () = follower.remember() => {}
        () = leader::follow(&follower.shared, begin.store.clone()) => {}
        () = follower.follow(&mut begin.read_requests) => {}
    }
    if let Some(number) = follower.save(true)
        && !follower.saver.wait(number, STOP_WAIT).await
    {
        let file = follower.file();
        tracing::error!(
            file,
            "stopping without having remembered how far the store is: the disk does not answer"
        );
    }
}

/// Reads the map for the first time, and makes the cluster if that is wanted.
async fn first_map(begin: &Begin, started: &mpsc::Sender<Started>) -> Result<MapView, MapServiceError> {
    loop {
        let error = match begin.store.read(read_prefix()).await {
            Ok(snapshot) => {
                check_known(begin, &snapshot)?;
                if !snapshot.items.is_empty() {
                    return load_first(begin, &snapshot);
                }
                if !begin.create {
                    return Err(MapServiceError::Empty);
                }
                let id = random_id().map_err(MapServiceError::System)?;
                let create = transaction(operation::create_cluster(ClusterId(id)), None);
                match begin.store.transaction(create).await {
                    // Read it, or what somebody else made at the same time.
                    Ok(_) | Err(StoreError::Conflict { .. }) => continue,
                    Err(error) => error,
                }
            }
            Err(error) => error,
        };
        if let (StoreError::WentBack { .. }, Some(_)) = (&error, &begin.known) {
            return Err(lost(&begin.folder, error.to_string()));
        }
        if !error.is_passing() {
            return Err(error.into());
        }
        if started.send(Started::Waiting(error)).is_err() {
            return Err(MapServiceError::Stopping);
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

fn load_first(begin: &Begin, snapshot: &Snapshot) -> Result<MapView, MapServiceError> {
    let map = MapView::load(decode_snapshot(snapshot)?, snapshot.revision)?;
    for (key, lacks) in map.orphans() {
        tracing::warn!(%key, lacks, "a record of the cluster map is of no use");
    }
    let found = map.cluster().map(|cluster| cluster.id).unwrap_or_default();
    match &begin.known {
        Some(known) if known.cluster != found => Err(MapServiceError::OtherCluster {
            folder: begin.folder.display().to_string(),
            own: known.cluster,
            found,
        }),
        _ => Ok(map),
    }
}

/// Compares the store with what the folder remembers of it. Another cluster is told as that.
fn check_known(begin: &Begin, snapshot: &Snapshot) -> Result<(), MapServiceError> {
    let Some(known) = &begin.known else { return Ok(()) };
    if let Some(reason) = &known.refused {
        return Err(lost(&begin.folder, format!("when it was last used, {reason}")));
    }
    if snapshot.items.is_empty() {
        let reason =
            format!("it is empty, and {} belongs to cluster {}", begin.folder.display(), known.cluster);
        return Err(lost(&begin.folder, reason));
    }
    load_first(begin, snapshot)?;
    let (Some(seen), Some(now)) = (known.identity(), begin.store.identity()) else { return Ok(()) };
    let now = Identity { revision: now.revision.max(snapshot.revision), ..now };
    if seen.store_id != now.store_id {
        let reason =
            format!("it is another one ({:016x}) than before ({:016x})", now.store_id, seen.store_id);
        return Err(lost(&begin.folder, reason));
    }
    if seen.revision > now.revision {
        let reason = format!("it was at revision {} and is at {} now", seen.revision, now.revision);
        return Err(lost(&begin.folder, reason));
    }
    Ok(())
}

fn lost(folder: &Path, reason: String) -> MapServiceError {
    MapServiceError::StoreLost { reason, file: ClusterFile::path(folder).display().to_string() }
}

struct Follower {
    store: Arc<dyn Store>,
    shared: Arc<Shared>,
    cluster: ClusterId,
    folder: PathBuf,
    saver: Saver,
    /// Why the map must not be used any more, before it is told: nothing else is remembered from then on.
    refusing: Mutex<Option<MapError>>,
}

impl Shared {
    /// What became of a save of `cluster.json`: why it failed, if it did.
    fn remembered_with(&self, failed: Option<String>) {
        if self.state().store.not_remembered != failed {
            self.change_state(|state| state.store.not_remembered = failed);
        }
    }
}

/// Why the watch is begun anew.
enum Ended {
    /// Something may have been missed, or the store has trouble.
    ReadAgain,
    /// The map must not be used any more.
    Refused,
}

impl Follower {
    /// Follows the map. Ends only when nothing follows any more.
    async fn follow(&self, reads: &mut async_mpsc::UnboundedReceiver<ReadRequest>) {
        loop {
            let from = self.map().revision() + 1;
            let ended = match self.store.watch(read_prefix(), from) {
                Ok(mut watch) => self.watch(&mut watch, reads).await,
                Err(error) => {
                    self.trouble(&error).await;
                    Ended::ReadAgain
                }
            };
            let refused = matches!(ended, Ended::Refused) || !self.read_until_done(reads).await;
            if refused {
                self.answer_refused(reads).await;
                return;
            }
        }
    }

    /// Takes what the watch tells, and reads again when asked to.
    async fn watch(
        &self,
        watch: &mut Watch,
        reads: &mut async_mpsc::UnboundedReceiver<ReadRequest>,
    ) -> Ended {
        loop {
            let result = tokio::select! {
                watched = watch.next() => match watched {
                    Some(Ok(Watched::Revision(revision))) => self.take_revision(&revision).await,
                    Some(Ok(Watched::Reset { .. })) | None => return Ended::ReadAgain,
                    Some(Err(error)) => {
                        if self.trouble(&error).await {
                            return Ended::Refused;
                        }
                        tokio::time::sleep(RETRY_PAUSE).await;
                        return Ended::ReadAgain;
                    }
                },
                Some(request) = reads.recv() => self.answer(request, reads).await,
            };
            if result.is_err() {
                return Ended::Refused;
            }
        }
    }

    /// Reads everything, however long it takes; `false` if the map must not be used any more.
    async fn read_until_done(&self, reads: &mut async_mpsc::UnboundedReceiver<ReadRequest>) -> bool {
        let mut pause = RETRY_PAUSE;
        loop {
            match self.read().await {
                Ok(_) => return true,
                Err(ChangeError::Store(error)) => {
                    // Who waits for a read is told, and may ask again.
                    while let Ok(request) = reads.try_recv() {
                        let _ = request.send(Err(error.clone().into()));
                    }
                    if !error.is_passing() {
                        pause = (pause * 2).min(RETRY_PAUSE_MAX);
                    }
                }
                Err(_) => return false,
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// Answers a request to read again, and all others that came before the read began.
    async fn answer(
        &self,
        request: ReadRequest,
        reads: &mut async_mpsc::UnboundedReceiver<ReadRequest>,
    ) -> Result<(), MapError> {
        let mut requests = vec![request];
        while let Ok(request) = reads.try_recv() {
            requests.push(request);
        }
        let result = self.read().await;
        for request in requests {
            let _ = request.send(result.clone());
        }
        match result {
            Err(ChangeError::Refused(error)) => Err(error),
            _ => Ok(()),
        }
    }

    async fn answer_refused(&self, reads: &mut async_mpsc::UnboundedReceiver<ReadRequest>) {
        while let Some(request) = reads.recv().await {
            let error = self.refusal().map_or(ChangeError::Stopping, ChangeError::Refused);
            let _ = request.send(Err(error));
        }
    }

    /// Reads everything once.
    async fn read(&self) -> Result<Arc<MapView>, ChangeError> {
        match self.store.read(read_prefix()).await {
            Ok(snapshot) => {
                self.reached();
                self.take_snapshot(&snapshot).await.map_err(ChangeError::Refused)
            }
            Err(error) => match self.trouble(&error).await {
                true => Err(ChangeError::Refused(went_back(&error))),
                false => Err(error.into()),
            },
        }
    }

    async fn take_snapshot(&self, snapshot: &Snapshot) -> Result<Arc<MapView>, MapError> {
        self.check_trusted()?;
        let map = self.map();
        let next = decode_snapshot(snapshot).and_then(|records| map.reload(records, snapshot.revision));
        match next {
            Ok(next) if next.revision() > map.revision() => {
                let next = Arc::new(next);
                self.shared.change_state(|state| state.map = next.clone());
                Ok(next)
            }
            Ok(_) => Ok(map),
            Err(error) => Err(self.refuse(error).await),
        }
    }

    async fn take_revision(&self, revision: &coquina_store::Revision) -> Result<(), MapError> {
        self.check_trusted()?;
        let mut next = (*self.map()).clone();
        let applied = decode_revision(revision).and_then(|changes| next.apply(revision.revision, changes));
        match applied {
            Ok(_) => {
                self.shared.change_state(|state| state.map = Arc::new(next));
                Ok(())
            }
            Err(error) => Err(self.refuse(error).await),
        }
    }

    /// Asks from time to time whether the store is there and the same, and remembers how far it is.
    async fn probe(&self) {
        let mut key = read_prefix().to_vec();
        key.extend_from_slice(b"cluster");
        loop {
            tokio::time::sleep(PROBE_INTERVAL).await;
            match self.store.read(&key).await {
                Ok(snapshot) if snapshot.items.is_empty() => {
                    // Whoever asks next is told too.
                    self.refuse(MapError::Empty).await;
                }
                Ok(_) => self.reached(),
                Err(error) => drop(self.trouble(&error).await),
            }
            self.shared.probe_changes(&*self.store).await;
        }
    }

    /// Has `cluster.json` be written soon after anything new.
    async fn remember(&self) {
        let mut hangs = false;
        loop {
            tokio::time::sleep(SAVE_INTERVAL).await;
            let Some(number) = self.save(false) else { continue };
            let came_back = self.saver.wait(number, SAVE_TIME_MAX).await;
            if !came_back {
                self.shared.remembered_with(Some(format!("{}: the disk does not answer", self.file())));
            }
            if !came_back && !hangs {
                tracing::error!(
                    file = self.file(),
                    "the disk does not answer; the map is followed all the same"
                );
            }
            hangs = !came_back;
        }
    }

    fn map(&self) -> Arc<MapView> {
        self.shared.state().map.clone()
    }

    fn reached(&self) {
        let was = self.shared.change_state(|state| state.store.unreachable.take());
        if let Some((since, _)) = was {
            tracing::info!(seconds = since.elapsed().as_secs(), "the store of the cluster map answers again");
        }
    }

    /// Notes an error of the store; `true` if the map must not be used any more.
    async fn trouble(&self, error: &StoreError) -> bool {
        if let StoreError::WentBack { .. } = error {
            self.refuse(went_back(error)).await;
            return true;
        }
        let text = error.to_string();
        let broken = matches!(error, StoreError::Poisoned { .. } | StoreError::Io { .. });
        let first = self.shared.change_state(|state| {
            state.store.broken = broken;
            let first = state.store.unreachable.is_none();
            let since = state.store.unreachable.as_ref().map_or_else(Instant::now, |(since, _)| *since);
            state.store.unreachable = Some((since, text));
            first
        });
        if first {
            tracing::warn!(%error, "the store of the cluster map does not answer; I/O goes on");
        }
        false
    }

    async fn refuse(&self, error: MapError) -> MapError {
        // Remembered before anybody is told: a process that dies now must not take such a store for good when it is back. But
        // a disk that hangs must not keep I/O going by a map that is wrong.
        let why = self.refusal().unwrap_or_else(|| error.clone());
        self.refusing().get_or_insert(why.clone());
        if let Some(number) = self.save(true)
            && !self.saver.wait(number, REFUSAL_WAIT).await
        {
            tracing::error!(
                file = self.file(),
                "the disk does not answer: the refusal is not remembered yet"
            );
        }
        let first = self.shared.change_state(|state| {
            let first = state.store.refused.is_none();
            state.store.refused.get_or_insert(why);
            first
        });
        if first {
            tracing::error!(%error, "the cluster map must not be used any more; I/O is refused");
        }
        error
    }

    /// Nothing is taken any more from a store that is about to be refused.
    fn check_trusted(&self) -> Result<(), MapError> {
        self.refusing().clone().map_or(Ok(()), Err)
    }

    fn refusing(&self) -> MutexGuard<'_, Option<MapError>> {
        self.refusing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why the map must not be used any more, whether that was told already or not.
    fn refusal(&self) -> Option<MapError> {
        let told = self.shared.state().store.refused.clone();
        told.or_else(|| self.refusing().clone())
    }

    fn file(&self) -> String {
        ClusterFile::path(&self.folder).display().to_string()
    }

    /// Has `cluster.json` be written, if there is anything new; returns the number of that save. What the store was before it
    /// went back stays in it, and why it was refused.
    fn save(&self, at_once: bool) -> Option<u64> {
        let refused = match self.refusal() {
            // A record that cannot be read can be mended.
            Some(MapError::Invalid(_)) => return None,
            refused => refused.map(|error| error.to_string()),
        };
        let mut file = ClusterFile::new(self.cluster, self.store.identity()?);
        if refused.is_some() {
            file = self.saver.newest().unwrap_or(file);
            file.refused = refused;
        }
        Some(self.saver.save(file, at_once))
    }
}

fn went_back(error: &StoreError) -> MapError {
    let (seen, now) = match error {
        StoreError::WentBack { seen, now } => (*seen, *now),
        _ => Default::default(),
    };
    let what = if seen.store_id == now.store_id { "its revision" } else { "another store's revision" };
    MapError::WentBack { what: what.to_owned(), seen: seen.revision, now: now.revision }
}
