//! The store of one machine: all of it in memory, each change in a local file before it is answered.
//!
//! Invariants:
//! - one process at a time has the folder open;
//! - nothing is answered, read or watched before it is durable: answers wait for the sync of their batch, and
//!   watches end at the last durable revision. What a start finds is written anew before it counts: it may have been read from
//!   the kernel's memory only, where a killed process or a failed sync has left it;
//! - once a change could not be made durable, nothing more is answered until a new file of all that was has taken the place of the
//!   old one; a change that was not answered as made is not made from then on;
//! - leases that were alive have their whole time again after a restart, and after such a new file.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;

use tokio::sync::{mpsc as async_mpsc, oneshot, watch};

use crate::api::{
    Identity, Lease, LeaseId, Snapshot, Store, StoreFuture, Transaction, Watched, check_prefix,
};
use crate::error::StoreError;
use crate::machine::Machine;
use crate::random::random_u64;
use crate::watch::{WATCH_QUEUE, Watch};

mod medium;
mod record;
#[cfg(test)]
mod tests;
mod worker;

use medium::{FolderMedium, Medium, NoMedium};
use record::Refused;
use worker::{Command, Worker};

/// Revisions that a watch takes from the history at once.
const WATCH_BATCH: usize = 64;

/// What the worker and the watches share.
pub(crate) struct Shared {
    machine: Mutex<Machine>,
}

impl Shared {
    pub(crate) fn machine(&self) -> MutexGuard<'_, Machine> {
        // The machine has no state half changed that a panic could leave: effects are checked first.
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps everything in a local file. Clones are the same store.
#[derive(Clone)]
pub struct EmbeddedStore {
    inner: Arc<Inner>,
}

struct Inner {
    store_id: u64,
    shared: Arc<Shared>,
    commands: Option<mpsc::Sender<Command>>,
    durable: watch::Receiver<u64>,
    worker: Option<JoinHandle<()>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The worker ends when nobody can ask any more; the folder is free when this returns.
        self.commands = None;
        if let Some(worker) = self.worker.take() {
            let _ = worker.join();
        }
    }
}

impl EmbeddedStore {
    /// Opens the store in a folder, or makes a new one there. Blocks while the file is read.
    ///
    /// `known` is what the caller remembers of it: a store that is another one or in an older state is refused
    /// with [`StoreError::WentBack`].
    pub fn open(folder: &Path, known: Option<Identity>) -> Result<Self, StoreError> {
        Self::on(Box::new(FolderMedium::open(folder)?), known)
    }

    /// Whether there is one in a folder.
    pub fn is_in(folder: &Path) -> bool {
        medium::is_in(folder)
    }

    /// A store that keeps nothing beyond this process.
    pub fn in_memory() -> Result<Self, StoreError> {
        Self::on(Box::new(NoMedium), None)
    }

    fn on(mut medium: Box<dyn Medium>, known: Option<Identity>) -> Result<Self, StoreError> {
        let (store_id, machine) = match medium.load()? {
            Some(bytes) => {
                let loaded = record::decode_file(&bytes, 0).map_err(|refused| explain(refused, &*medium))?;
                if loaded.bytes < bytes.len() {
                    tracing::warn!(
                        file = medium.name(),
                        bytes = bytes.len() - loaded.bytes,
                        "left out the store's last record, which was never completed"
                    );
                }
                (loaded.store_id, loaded.machine)
            }
            None => {
                let store_id = random_u64()
                    .map_err(StoreError::io("make an identity for", Path::new(&medium.name())))?;
                (store_id, Machine::default())
            }
        };
        if let Some(seen) = known {
            let now = Identity { store_id, revision: machine.revision() };
            if seen.store_id != now.store_id || seen.revision > now.revision {
                return Err(StoreError::WentBack { seen, now });
            }
        }
        // A sync of the file as it is would not do: what a failed one has left unwritten counts as written.
        let bytes = record::encode_file(store_id, &machine);
        medium.prepare(&bytes)?;
        medium.publish()?;
        let worker = Worker::new(medium, store_id, machine, bytes.len());
        let (store_id, shared, durable) = (worker.store_id(), worker.shared(), worker.durable());
        let (commands, receiver) = mpsc::channel();
        let worker = std::thread::Builder::new()
            .name("coquina-store".to_owned())
            .spawn(move || worker.run(&receiver))
            .map_err(StoreError::io("start the thread of", Path::new("the store")))?;
        let inner = Inner { store_id, shared, commands: Some(commands), durable, worker: Some(worker) };
        Ok(EmbeddedStore { inner: Arc::new(inner) })
    }

    /// Runs something on the state, and answers when all that it changed is durable.
    pub(crate) fn ask<T: Send + 'static>(
        &self,
        run: impl FnOnce(&mut Machine, u64) -> Result<T, StoreError> + Send + 'static,
    ) -> StoreFuture<'static, T> {
        let (reply, answer) = oneshot::channel();
        let command: Command = Box::new(move |access| {
            let result = access.and_then(|(machine, now_ns)| run(machine, now_ns));
            Box::new(move |outcome| {
                let _ = reply.send(outcome.and(result));
            })
        });
        let sent = self.inner.commands.as_ref().is_some_and(|commands| commands.send(command).is_ok());
        Box::pin(async move {
            if !sent {
                return Err(StoreError::Closed);
            }
            answer.await.unwrap_or(Err(StoreError::Closed))
        })
    }

    pub(crate) fn store_id(&self) -> u64 {
        self.inner.store_id
    }

    pub(crate) fn shared(&self) -> Arc<Shared> {
        self.inner.shared.clone()
    }

    /// The last durable revision, and news of the next ones.
    pub(crate) fn durable(&self) -> watch::Receiver<u64> {
        self.inner.durable.clone()
    }
}

fn explain(refused: Refused, medium: &dyn Medium) -> StoreError {
    let path = medium.name();
    match refused {
        Refused::Damaged(reason) => StoreError::Damaged { path, reason, previous: medium.previous() },
        Refused::NewerFormat(found) => StoreError::NewerFormat { path, found, newest: record::FORMAT },
    }
}

impl Store for EmbeddedStore {
    fn read<'a>(&'a self, prefix: &'a [u8]) -> StoreFuture<'a, Snapshot> {
        let prefix = prefix.to_vec();
        self.ask(move |machine, _| {
            check_prefix(&prefix)?;
            Ok(machine.read(&prefix))
        })
    }

    fn transaction(&self, transaction: Transaction) -> StoreFuture<'_, u64> {
        self.ask(move |machine, _| machine.transaction(&transaction))
    }

    fn watch(&self, prefix: &[u8], from_revision: u64) -> Result<Watch, StoreError> {
        check_prefix(prefix)?;
        let runtime = crate::watch::runtime()?;
        let (sender, receiver) = async_mpsc::channel(WATCH_QUEUE);
        let (shared, durable, prefix) = (self.shared(), self.durable(), prefix.to_vec());
        let feeder = runtime.spawn(async move {
            let last = feed(&shared, durable, &prefix, from_revision, &sender).await;
            if let Some(last) = last {
                let _ = sender.send(last).await;
            }
        });
        Ok(Watch::new(receiver, Some(feeder.abort_handle())))
    }

    fn lease_grant(&self, seconds: u64) -> StoreFuture<'_, Lease> {
        self.ask(move |machine, now_ns| machine.lease_grant(None, seconds, now_ns))
    }

    fn lease_keep_alive(&self, lease: LeaseId) -> StoreFuture<'_, u64> {
        self.ask(move |machine, now_ns| machine.lease_keep_alive(lease, now_ns))
    }

    fn lease_revoke(&self, lease: LeaseId) -> StoreFuture<'_, ()> {
        self.ask(move |machine, _| {
            machine.lease_revoke(lease);
            Ok(())
        })
    }

    fn compact(&self, revision: u64) -> StoreFuture<'_, ()> {
        self.ask(move |machine, _| machine.compact(revision))
    }

    fn identity(&self) -> Option<Identity> {
        Some(Identity { store_id: self.store_id(), revision: *self.inner.durable.borrow() })
    }
}

/// Hands a watch its revisions; returns what it is told last, unless nobody listens any more.
async fn feed(
    shared: &Shared,
    mut durable: watch::Receiver<u64>,
    prefix: &[u8],
    from_revision: u64,
    sender: &async_mpsc::Sender<Result<Watched, StoreError>>,
) -> Option<Result<Watched, StoreError>> {
    let mut next = from_revision.max(1);
    loop {
        let durable_revision = *durable.borrow_and_update();
        let found = if next <= durable_revision {
            shared.machine().history_from(next, WATCH_BATCH)
        } else {
            Ok(Vec::new())
        };
        let found = match found {
            Ok(found) => found,
            Err(oldest_revision) => return Some(Ok(Watched::Reset { oldest_revision })),
        };
        let mut any = false;
        for revision in found.iter().filter(|revision| revision.revision <= durable_revision) {
            any = true;
            next = revision.revision + 1;
            if let Some(part) = revision.filtered(prefix) {
                sender.send(Ok(Watched::Revision(part))).await.ok()?;
            }
        }
        if any {
            continue;
        }
        tokio::select! {
            changed = durable.changed() => if changed.is_err() { return Some(Err(StoreError::Closed)) },
            () = sender.closed() => return None,
        }
    }
}
