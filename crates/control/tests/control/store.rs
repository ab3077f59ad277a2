//! A store with faults: cut off from one process, or slow for it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use coquina_store::{
    Attempt, EmbeddedStore, Identity, Lease, LeaseId, Operation, Snapshot, Store, StoreError, StoreFuture,
    Transaction, Watch,
};

/// One process's way to the store.
pub struct FaultyStore {
    inner: EmbeddedStore,
    /// Nothing reaches the store.
    pub cut: AtomicBool,
    /// Keep-alives do not reach it.
    pub leases_cut: AtomicBool,
    /// Transactions are on their way until this is taken back.
    pub transactions_held: AtomicBool,
    /// Only those that change a key that begins with this.
    pub held_prefix: Mutex<&'static str>,
    /// Reads do not reach it.
    pub reads_cut: AtomicBool,
    /// Reads find nothing of the map, as if all had been deleted.
    pub reads_empty: AtomicBool,
    /// The answer to the next transaction is lost, and nothing reaches the store any more.
    pub answers_lost: AtomicBool,
    /// Watches that begin now never tell anything.
    pub watches_silent: AtomicBool,
    /// It makes the next change and says that it is full, as etcd does.
    pub full_with_this: AtomicBool,
    /// It takes no changes, and grants no leases.
    pub full: AtomicBool,
    /// What it refused for that.
    pub refused: AtomicU64,
    /// Transactions that were held.
    pub held: AtomicU64,
    /// Those of them that were refused when they arrived.
    pub held_refused: AtomicU64,
}

impl FaultyStore {
    pub fn new(inner: EmbeddedStore) -> FaultyStore {
        FaultyStore {
            inner,
            cut: AtomicBool::new(false),
            leases_cut: AtomicBool::new(false),
            transactions_held: AtomicBool::new(false),
            held_prefix: Mutex::new(""),
            reads_cut: AtomicBool::new(false),
            reads_empty: AtomicBool::new(false),
            answers_lost: AtomicBool::new(false),
            watches_silent: AtomicBool::new(false),
            full_with_this: AtomicBool::new(false),
            full: AtomicBool::new(false),
            refused: AtomicU64::new(0),
            held: AtomicU64::new(0),
            held_refused: AtomicU64::new(0),
        }
    }

    fn check_room(&self) -> Result<(), StoreError> {
        if !self.full.load(Ordering::SeqCst) {
            return Ok(());
        }
        self.refused.fetch_add(1, Ordering::SeqCst);
        Err(full())
    }

    fn check(&self, cut: &AtomicBool) -> Result<(), StoreError> {
        match cut.load(Ordering::SeqCst) || self.cut.load(Ordering::SeqCst) {
            true => Err(StoreError::Unreachable { doing: "ask", tried: Vec::new() }),
            false => Ok(()),
        }
    }
}

fn full() -> StoreError {
    StoreError::Full { endpoint: "store".to_owned(), reason: "database space exceeded".to_owned() }
}

impl Store for FaultyStore {
    fn read<'a>(&'a self, prefix: &'a [u8]) -> StoreFuture<'a, Snapshot> {
        Box::pin(async move {
            self.check(&self.reads_cut)?;
            let mut snapshot = self.inner.read(prefix).await?;
            if self.reads_empty.load(Ordering::SeqCst) && prefix.starts_with(b"coquina/map/") {
                snapshot.items.clear();
            }
            Ok(snapshot)
        })
    }

    fn transaction(&self, transaction: Transaction) -> StoreFuture<'_, u64> {
        Box::pin(async move {
            self.check(&self.cut)?;
            self.check_room()?;
            let prefix = *self.held_prefix.lock().unwrap();
            let concerned = |operation: &Operation| operation.key().starts_with(prefix.as_bytes());
            let held = self.transactions_held.load(Ordering::SeqCst)
                && (prefix.is_empty() || transaction.operations.iter().any(concerned));
            if held {
                self.held.fetch_add(1, Ordering::SeqCst);
            }
            while held && self.transactions_held.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            let result = self.inner.transaction(transaction).await;
            if held && matches!(result, Err(StoreError::Conflict { .. })) {
                self.held_refused.fetch_add(1, Ordering::SeqCst);
            }
            if self.full_with_this.swap(false, Ordering::SeqCst) {
                result?;
                return Err(full());
            }
            if self.answers_lost.swap(false, Ordering::SeqCst) {
                self.cut.store(true, Ordering::SeqCst);
                let attempt = Attempt { endpoint: "store".to_owned(), reason: "no answer".to_owned() };
                return Err(StoreError::OutcomeUnknown { doing: "change", attempt });
            }
            result
        })
    }

    fn watch(&self, prefix: &[u8], from_revision: u64) -> Result<Watch, StoreError> {
        match self.watches_silent.load(Ordering::SeqCst) {
            // Beside everything that is written.
            true => self.inner.watch(b"nothing", from_revision),
            false => self.inner.watch(prefix, from_revision),
        }
    }

    fn lease_grant(&self, seconds: u64) -> StoreFuture<'_, Lease> {
        Box::pin(async move {
            self.check(&self.leases_cut)?;
            self.check_room()?;
            self.inner.lease_grant(seconds).await
        })
    }

    fn lease_keep_alive(&self, lease: LeaseId) -> StoreFuture<'_, u64> {
        Box::pin(async move {
            self.check(&self.leases_cut)?;
            self.inner.lease_keep_alive(lease).await
        })
    }

    fn lease_revoke(&self, lease: LeaseId) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            self.check(&self.leases_cut)?;
            self.inner.lease_revoke(lease).await
        })
    }

    fn compact(&self, revision: u64) -> StoreFuture<'_, ()> {
        self.inner.compact(revision)
    }

    fn identity(&self) -> Option<Identity> {
        self.inner.identity()
    }
}
