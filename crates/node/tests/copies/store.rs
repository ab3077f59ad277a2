//! A store that refuses one process's changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use coquina_store::{Identity, Lease, LeaseId, Snapshot, Store, StoreError, StoreFuture, Transaction, Watch};

/// One process's way to the store.
pub struct RefusingStore {
    inner: Arc<dyn Store>,
    /// So many of the next changes are refused.
    pub refusals_left: AtomicU32,
}

impl RefusingStore {
    pub fn new(inner: Arc<dyn Store>) -> RefusingStore {
        RefusingStore { inner, refusals_left: AtomicU32::new(0) }
    }
}

impl Store for RefusingStore {
    fn read<'a>(&'a self, prefix: &'a [u8]) -> StoreFuture<'a, Snapshot> {
        self.inner.read(prefix)
    }

    fn transaction(&self, transaction: Transaction) -> StoreFuture<'_, u64> {
        let less = |left: u32| left.checked_sub(1);
        if self.refusals_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_err() {
            return self.inner.transaction(transaction);
        }
        // Not one for which the change itself is tried again for long.
        let (endpoint, reason) = ("the test".to_owned(), "as ordered".to_owned());
        Box::pin(async move { Err(StoreError::AuthRefused { endpoint, reason }) })
    }

    fn watch(&self, prefix: &[u8], from_revision: u64) -> Result<Watch, StoreError> {
        self.inner.watch(prefix, from_revision)
    }

    fn lease_grant(&self, seconds: u64) -> StoreFuture<'_, Lease> {
        self.inner.lease_grant(seconds)
    }

    fn lease_keep_alive(&self, lease: LeaseId) -> StoreFuture<'_, u64> {
        self.inner.lease_keep_alive(lease)
    }

    fn lease_revoke(&self, lease: LeaseId) -> StoreFuture<'_, ()> {
        self.inner.lease_revoke(lease)
    }

    fn compact(&self, revision: u64) -> StoreFuture<'_, ()> {
        self.inner.compact(revision)
    }

    fn identity(&self) -> Option<Identity> {
        self.inner.identity()
    }
}
