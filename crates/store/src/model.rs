//! A store for the simulator: etcd's documented guarantees and no more, without clock, thread or runtime.
//!
//! The one who drives it hands in the time, decides when a watch gets on (delay), when it breaks without a word
//! (loss), when a lease whose time has passed really ends (never too early, possibly late), and when history is
//! forgotten. A clone is a backup: putting it in place of the store restores the store from it, and a new
//! store is a wiped one.

use std::collections::BTreeMap;

use crate::api::{Identity, Lease, LeaseId, Snapshot, Transaction, Watched, check_prefix};
use crate::error::StoreError;
use crate::machine::Machine;

/// What can be asked of a store, as a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// See [`Store::read`](crate::Store::read).
    Read {
        /// The prefix.
        prefix: Vec<u8>,
    },
    /// See [`Store::transaction`](crate::Store::transaction).
    Transaction(Transaction),
    /// See [`Store::lease_grant`](crate::Store::lease_grant).
    LeaseGrant {
        /// The least life.
        seconds: u64,
    },
    /// See [`Store::lease_keep_alive`](crate::Store::lease_keep_alive).
    LeaseKeepAlive {
        /// The lease.
        lease: LeaseId,
    },
    /// See [`Store::lease_revoke`](crate::Store::lease_revoke).
    LeaseRevoke {
        /// The lease.
        lease: LeaseId,
    },
    /// See [`Store::compact`](crate::Store::compact).
    Compact {
        /// The last revision to forget.
        revision: u64,
    },
}

/// What a store answers to a [`Request`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Response {
    /// To a read.
    Snapshot(Snapshot),
    /// To a transaction: its revision.
    Revision(u64),
    /// To a grant.
    Lease(Lease),
    /// To a keep-alive: how many seconds the lease has again.
    KeptAlive(u64),
    /// To a revocation and a compaction.
    Done,
}

/// Names a watch of a [`ModelStore`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchId(pub u64);

#[derive(Clone, Debug)]
struct ModelWatch {
    prefix: Vec<u8>,
    next: u64,
}

/// The model of a store.
#[derive(Clone, Debug)]
pub struct ModelStore {
    store_id: u64,
    machine: Machine,
    watches: BTreeMap<WatchId, ModelWatch>,
    watch_next: u64,
}

impl ModelStore {
    /// An empty store.
    pub fn new(store_id: u64) -> Self {
        ModelStore { store_id, machine: Machine::default(), watches: BTreeMap::new(), watch_next: 1 }
    }

    /// Which store this is, and its revision.
    pub fn identity(&self) -> Identity {
        Identity { store_id: self.store_id, revision: self.machine.revision() }
    }

    /// Does what is asked, at once and as one step.
    pub fn apply(&mut self, now_ns: u64, request: &Request) -> Result<Response, StoreError> {
        let result = match request {
            Request::Read { prefix } => {
                check_prefix(prefix).map(|()| Response::Snapshot(self.machine.read(prefix)))
            }
            Request::Transaction(transaction) => {
                self.machine.transaction(transaction).map(Response::Revision)
            }
            Request::LeaseGrant { seconds } => {
                self.machine.lease_grant(None, *seconds, now_ns).map(Response::Lease)
            }
            Request::LeaseKeepAlive { lease } => {
                self.machine.lease_keep_alive(*lease, now_ns).map(Response::KeptAlive)
            }
            Request::LeaseRevoke { lease } => {
                self.machine.lease_revoke(*lease);
                Ok(Response::Done)
            }
            Request::Compact { revision } => self.machine.compact(*revision).map(|()| Response::Done),
        };
        // Watches look into the history.
        self.machine.take_effects();
        result
    }

    /// When the first lease may end unless it is kept alive.
    pub fn expiry_next_ns(&self) -> Option<u64> {
        self.machine.expiry_next_ns()
    }

    /// Ends every lease whose time has passed. To be called at any time from [`expiry_next_ns`] on, also late.
    ///
    /// [`expiry_next_ns`]: Self::expiry_next_ns
    pub fn expire(&mut self, now_ns: u64) {
        self.machine.expire(now_ns);
        self.machine.take_effects();
    }

    /// Gives every lease its whole time anew, as a new leader of etcd does.
    pub fn renew_leases(&mut self, now_ns: u64) {
        let leases: Vec<LeaseId> = self.machine.leases().collect();
        for lease in leases {
            let kept = self.machine.lease_keep_alive(lease, now_ns);
            assert!(kept.is_ok(), "a lease that is there can be kept");
        }
    }

    /// Begins to watch a prefix.
    pub fn watch(&mut self, prefix: &[u8], from_revision: u64) -> Result<WatchId, StoreError> {
        check_prefix(prefix)?;
        let id = WatchId(self.watch_next);
        self.watch_next += 1;
        self.watches.insert(id, ModelWatch { prefix: prefix.to_vec(), next: from_revision.max(1) });
        Ok(id)
    }

    /// The next that a watch tells; `None` if there is nothing now, or if it was lost or has told its last.
    pub fn watch_next(&mut self, id: WatchId) -> Option<Watched> {
        let watch = self.watches.get_mut(&id)?;
        loop {
            match self.machine.history_from(watch.next, 1) {
                Err(oldest_revision) => {
                    self.watches.remove(&id);
                    return Some(Watched::Reset { oldest_revision });
                }
                Ok(found) => {
                    let revision = found.first()?;
                    watch.next = revision.revision + 1;
                    if let Some(part) = revision.filtered(&watch.prefix) {
                        return Some(Watched::Revision(part));
                    }
                }
            }
        }
    }

    /// Whether a watch is still served: one that was lost is not, which its owner is not told.
    pub fn is_watched(&self, id: WatchId) -> bool {
        self.watches.contains_key(&id)
    }

    /// Breaks a watch with all that it has not told yet. Its owner has to find out, and to watch again.
    pub fn lose_watch(&mut self, id: WatchId) {
        self.watches.remove(&id);
    }

    /// Breaks all watches, as the restart of a member does.
    pub fn lose_all_watches(&mut self) {
        self.watches.clear();
    }
}
