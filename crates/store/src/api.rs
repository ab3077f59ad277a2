//! What every store does, and the values that go in and out of it.
//!
//! Invariants that every implementation keeps:
//! - each change of the store has a revision one above the one before, and all that one transaction changes
//!   has the same revision;
//! - a change is durable before it is answered, and a read sees every change answered before the read began;
//! - a watch delivers every revision that touches its prefix once, whole and in order, or says that it cannot;
//! - a lease is not ended by time before the time it was last given has passed;
//! - the store never silently goes back: see [`StoreError::WentBack`].

use std::pin::Pin;

use coquina_base::format_size_bytes;

use crate::error::StoreError;
use crate::watch::Watch;

/// Operations and conditions that one transaction may have: etcd's limit for a member with default settings.
pub const TRANSACTION_OPERATIONS_MAX: usize = 128;
/// Keys and values of a transaction together: below etcd's default limit of 1.5 MiB a request.
pub const TRANSACTION_BYTES_MAX: usize = 1 << 20;
/// Longest key.
pub const KEY_BYTES_MAX: usize = 4096;
/// Longest life of a lease.
pub const LEASE_SECONDS_MAX: u64 = 1 << 20;

/// What a store's operation returns: a future that any executor thread may drive.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// Names a lease. Never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub i64);

impl std::fmt::Display for LeaseId {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{:016x}", self.0)
    }
}

/// Which store answered, and how far it was. The caller keeps it across restarts, to notice a wiped store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Identity {
    /// etcd's cluster id, or the embedded store's own.
    pub store_id: u64,
    /// The highest revision seen.
    pub revision: u64,
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyValue {
    /// The key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
    /// Revision at which the key came to be (again).
    pub create_revision: u64,
    /// Revision of its last change.
    pub mod_revision: u64,
    /// The lease that it goes with, if any.
    pub lease: Option<LeaseId>,
}

/// All keys under a prefix as they were at one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The keys, in order.
    pub items: Vec<KeyValue>,
    /// The revision: a watch from the next one misses nothing.
    pub revision: u64,
}

/// A condition of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compare {
    /// The key was last changed at that revision; 0: it does not exist.
    ModRevision {
        /// The key.
        key: Vec<u8>,
        /// The revision.
        revision: u64,
    },
    /// The key came to be at that revision; 0: it does not exist. The fence of a leader.
    CreateRevision {
        /// The key.
        key: Vec<u8>,
        /// The revision.
        revision: u64,
    },
    /// No key that is there and begins with this was changed after that revision. What was removed is not noticed.
    NoneAfter {
        /// What the keys begin with.
        prefix: Vec<u8>,
        /// The revision.
        revision: u64,
    },
}

impl Compare {
    /// The key that is looked at, or what those begin with that are.
    pub fn key(&self) -> &[u8] {
        match self {
            Compare::ModRevision { key, .. } | Compare::CreateRevision { key, .. } => key,
            Compare::NoneAfter { prefix, .. } => prefix,
        }
    }
}

/// A change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Sets the key; without a lease it loses the one that it had.
    Put {
        /// The key.
        key: Vec<u8>,
        /// Its new value.
        value: Vec<u8>,
        /// The lease that it goes with.
        lease: Option<LeaseId>,
    },
    /// Removes the key, if it exists.
    Delete {
        /// The key.
        key: Vec<u8>,
    },
}

impl Operation {
    /// The key that is changed.
    pub fn key(&self) -> &[u8] {
        match self {
            Operation::Put { key, .. } | Operation::Delete { key } => key,
        }
    }
}

/// Changes that happen together if all conditions hold, and not at all otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// The conditions.
    pub compares: Vec<Compare>,
    /// The changes; at most one of each key.
    pub operations: Vec<Operation>,
}

impl Transaction {
    /// Changes one key if its last change was at `expected_mod_revision` (0: if it does not exist). `None`
    /// removes it.
    pub fn compare_and_set(
        key: &[u8],
        expected_mod_revision: u64,
        value: Option<Vec<u8>>,
        lease: Option<LeaseId>,
    ) -> Self {
        let operation = match value {
            Some(value) => Operation::Put { key: key.to_vec(), value, lease },
            None => Operation::Delete { key: key.to_vec() },
        };
        Transaction {
            compares: vec![Compare::ModRevision { key: key.to_vec(), revision: expected_mod_revision }],
            operations: vec![operation],
        }
    }

    /// Refuses what no store takes.
    pub fn check(&self) -> Result<(), StoreError> {
        let invalid = |reason: String| Err(StoreError::Invalid { reason });
        if self.compares.len() > TRANSACTION_OPERATIONS_MAX
            || self.operations.len() > TRANSACTION_OPERATIONS_MAX
        {
            return invalid(format!(
                "a transaction has {} conditions and {} changes, and {TRANSACTION_OPERATIONS_MAX} of each are \
                 the most",
                self.compares.len(),
                self.operations.len()
            ));
        }
        let compared = self.compares.iter().map(Compare::key);
        let mut changed: Vec<&[u8]> = self.operations.iter().map(Operation::key).collect();
        for key in compared.chain(changed.iter().copied()) {
            check_key(key)?;
        }
        let bytes: usize = self.operations.iter().map(operation_bytes).sum();
        if bytes > TRANSACTION_BYTES_MAX {
            return invalid(format!(
                "a transaction of {} is larger than {}; split its value",
                format_size_bytes(bytes as u64),
                format_size_bytes(TRANSACTION_BYTES_MAX as u64)
            ));
        }
        changed.sort_unstable();
        if changed.windows(2).any(|pair| pair[0] == pair[1]) {
            return invalid("a transaction changes a key twice".to_owned());
        }
        Ok(())
    }

    /// The single keys that the conditions look at, each once.
    pub(crate) fn compared_keys(&self) -> Vec<&[u8]> {
        let single = self.compares.iter().filter(|compare| !matches!(compare, Compare::NoneAfter { .. }));
        let mut keys: Vec<&[u8]> = single.map(Compare::key).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }
}

fn operation_bytes(operation: &Operation) -> usize {
    match operation {
        Operation::Put { key, value, .. } => key.len() + value.len(),
        Operation::Delete { key } => key.len(),
    }
}

fn check_key(key: &[u8]) -> Result<(), StoreError> {
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        let reason = format!("a key has {} bytes, and 1 to {KEY_BYTES_MAX} are allowed", key.len());
        return Err(StoreError::Invalid { reason });
    }
    Ok(())
}

/// Refuses a prefix that no store takes: an empty one would be everything that others keep in the same etcd.
pub(crate) fn check_prefix(prefix: &[u8]) -> Result<(), StoreError> {
    check_key(prefix)
}

/// Refuses a life that no store grants.
pub(crate) fn check_lease_seconds(seconds: u64) -> Result<(), StoreError> {
    if seconds == 0 || seconds > LEASE_SECONDS_MAX {
        let reason =
            format!("a lease of {seconds} s was asked for, and 1 to {LEASE_SECONDS_MAX} are allowed");
        return Err(StoreError::Invalid { reason });
    }
    Ok(())
}

/// What happened to one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It was set.
    Put(KeyValue),
    /// It was removed, by a caller or with its lease.
    Delete {
        /// The key.
        key: Vec<u8>,
    },
}

impl Event {
    /// The key that changed.
    pub fn key(&self) -> &[u8] {
        match self {
            Event::Put(item) => &item.key,
            Event::Delete { key } => key,
        }
    }
}

/// All that one revision changed, under the prefix that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revision {
    /// The revision.
    pub revision: u64,
    /// Its events, in the order in which the transaction named them; never empty.
    pub events: Vec<Event>,
}

impl Revision {
    /// The part of it that concerns a prefix, if there is one.
    pub(crate) fn filtered(&self, prefix: &[u8]) -> Option<Revision> {
        let events: Vec<Event> =
            self.events.iter().filter(|event| event.key().starts_with(prefix)).cloned().collect();
        (!events.is_empty()).then_some(Revision { revision: self.revision, events })
    }
}

/// What a watch tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watched {
    /// The next revision that touches the prefix.
    Revision(Revision),
    /// Revisions may have been missed, since the store no longer keeps them. It is the last that the watch
    /// tells: read all again, and watch from the revision after that.
    Reset {
        /// The oldest revision that a watch can still begin at, as far as known.
        oldest_revision: u64,
    },
}

/// A lease as it was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Its name.
    pub id: LeaseId,
    /// How long it lives after each keep-alive; the store may have given more than was asked for.
    pub seconds: u64,
}

/// Where the cluster map is kept.
pub trait Store: Send + Sync {
    /// Everything under a prefix at one revision, which is not older than any change answered before.
    fn read<'a>(&'a self, prefix: &'a [u8]) -> StoreFuture<'a, Snapshot>;

    /// Makes changes if all conditions hold, and returns their revision (the store's present one, if nothing
    /// had to be changed); [`StoreError::Conflict`] otherwise. After [`StoreError::OutcomeUnknown`] it may have
    /// happened or not: read to find out.
    fn transaction(&self, transaction: Transaction) -> StoreFuture<'_, u64>;

    /// Tells what happens under a prefix from a revision on. The watch is set up and kept up in the background.
    fn watch(&self, prefix: &[u8], from_revision: u64) -> Result<Watch, StoreError>;

    /// Grants a lease of at least that many seconds.
    fn lease_grant(&self, seconds: u64) -> StoreFuture<'_, Lease>;

    /// Gives a lease its time anew; returns how many seconds, or [`StoreError::LeaseLost`].
    fn lease_keep_alive(&self, lease: LeaseId) -> StoreFuture<'_, u64>;

    /// Ends a lease and removes its keys. No error if it is gone already.
    fn lease_revoke(&self, lease: LeaseId) -> StoreFuture<'_, ()>;

    /// Forgets the history up to and with a revision; what the keys hold now stays.
    fn compact(&self, revision: u64) -> StoreFuture<'_, ()>;

    /// Which store this is and the highest revision seen from it, `None` before its first answer.
    fn identity(&self) -> Option<Identity>;

    /// Changes one key if its last change was at `expected_mod_revision` (0: if it does not exist). `None`
    /// removes it.
    fn compare_and_set(
        &self,
        key: &[u8],
        expected_mod_revision: u64,
        value: Option<Vec<u8>>,
        lease: Option<LeaseId>,
    ) -> StoreFuture<'_, u64> {
        self.transaction(Transaction::compare_and_set(key, expected_mod_revision, value, lease))
    }
}
