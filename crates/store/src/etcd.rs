//! The store in etcd 3.4 or newer, over gRPC.
//!
//! Invariants:
//! - a read may be asked again at another endpoint; a transaction is asked again only if it surely was not done;
//! - no answer is believed that shows another etcd or an older state than seen before, and once one was seen
//!   every later request is refused too;
//! - a watch delivers each revision once and whole, across broken connections.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::api::{
    Compare, Identity, KeyValue, Lease, LeaseId, Operation, Snapshot, Store, StoreFuture, Transaction,
    check_lease_seconds, check_prefix,
};
use crate::error::StoreError;
use crate::watch::{WATCH_QUEUE, Watch, runtime};
use crate::wire::{self, path, prefix_end};

mod call;
mod connection;
mod seen;
mod watcher;

use call::{Caller, Doing, Failure};

/// Keys of one page of a read.
const PAGE_KEYS: i64 = 256;
/// How often a read begins anew when history is compacted under it.
const READ_ATTEMPTS: u32 = 5;

/// How to prove who one is.
#[derive(Clone, PartialEq, Eq)]
pub enum Access {
    /// Not at all, beyond a client certificate.
    Open,
    /// As a user of etcd; tokens are fetched anew as they expire.
    Password {
        /// The user.
        user: String,
        /// The password.
        password: String,
    },
    /// With a fixed token, as the [server](crate::StoreServer) of an embedded store wants.
    Token(String),
}

impl std::fmt::Debug for Access {
    /// Shows no secret.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Access::Open => formatter.write_str("Open"),
            Access::Password { user, .. } => write!(formatter, "Password {{ user: {user:?} }}"),
            Access::Token(_) => formatter.write_str("Token"),
        }
    }
}

/// Certificates, as PEM.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Tls {
    /// The authorities that may have signed etcd's certificate.
    pub ca_pem: Vec<u8>,
    /// The client's certificate and its key, if etcd wants one.
    pub client_pem: Option<(Vec<u8>, Vec<u8>)>,
    /// The name that etcd's certificate has to have, if not the endpoint's host.
    pub server_name: Option<String>,
}

impl std::fmt::Debug for Tls {
    /// Shows no secret.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let client = self.client_pem.is_some();
        write!(formatter, "Tls {{ client certificate: {client}, server_name: {:?} }}", self.server_name)
    }
}

/// How to reach etcd.
#[derive(Clone, Debug)]
pub struct EtcdOptions {
    /// Members, as `http://HOST:PORT`, `https://HOST:PORT` or `HOST:PORT`. The first one that works is used.
    pub endpoints: Vec<String>,
    /// Certificates; needed for `https`.
    pub tls: Option<Tls>,
    /// Who one is.
    pub access: Access,
    /// What the caller remembers of this store, to notice one that was wiped.
    pub known: Option<Identity>,
    /// How long one endpoint may take to be connected to.
    pub connect_timeout: Duration,
    /// How long a request may take, all attempts together.
    pub request_timeout: Duration,
    /// How long one endpoint may take to answer before another is asked, or the outcome of a change is said to be
    /// unknown. A single endpoint has at least half of `request_timeout`.
    pub attempt_timeout: Duration,
    /// After this much silence a watch asks whether its member is still there, and after as much again it takes
    /// another member.
    pub watch_silence: Duration,
}

impl EtcdOptions {
    /// Endpoints without certificates and users, and the usual times.
    pub fn new(endpoints: Vec<String>) -> Self {
        EtcdOptions {
            endpoints,
            tls: None,
            access: Access::Open,
            known: None,
            connect_timeout: Duration::from_secs(1),
            request_timeout: Duration::from_secs(5),
            attempt_timeout: Duration::from_millis(1500),
            watch_silence: Duration::from_secs(1),
        }
    }
}

/// Keeps everything in etcd. Clones share a connection, which belongs to the tokio runtime that it was made in: used
/// in another one after that has ended, it is made anew.
#[derive(Clone)]
pub struct EtcdStore {
    caller: Arc<Caller>,
}

impl EtcdStore {
    /// Checks the options. Connects when first asked for something: etcd need not run yet.
    pub fn new(options: EtcdOptions) -> Result<Self, StoreError> {
        Ok(EtcdStore { caller: Arc::new(Caller::new(options)?) })
    }

    async fn read_all(&self, prefix: &[u8]) -> Result<Snapshot, StoreError> {
        check_prefix(prefix)?;
        for _ in 0..READ_ATTEMPTS {
            if let Some(snapshot) = self.read_pages(prefix).await? {
                return Ok(snapshot);
            }
        }
        Err(self.caller.refused(Doing::READ, "its history is compacted faster than it can be read"))
    }

    /// All pages at the revision of the first; `None` if that revision was compacted meanwhile.
    async fn read_pages(&self, prefix: &[u8]) -> Result<Option<Snapshot>, StoreError> {
        let mut request = wire::RangeRequest {
            key: prefix.to_vec(),
            range_end: prefix_end(prefix),
            limit: PAGE_KEYS,
            ..wire::RangeRequest::default()
        };
        let mut items: Vec<KeyValue> = Vec::new();
        loop {
            let answer: Result<wire::RangeResponse, Failure> =
                self.caller.call(Doing::READ, path::RANGE, &request).await;
            let page = match answer {
                Ok(page) => page,
                Err(Failure::Compacted) => return Ok(None),
                Err(failure) => return Err(failure.into_error(&self.caller, Doing::READ)),
            };
            if request.revision == 0 {
                request.revision = page.header.as_ref().map_or(0, |header| header.revision);
            }
            let more = page.more;
            items.extend(page.items.into_iter().map(KeyValue::from));
            match items.last().filter(|_| more) {
                None => break,
                Some(last) => {
                    request.key.clone_from(&last.key);
                    request.key.push(0);
                }
            }
        }
        Ok(Some(Snapshot { items, revision: wire::revision(request.revision) }))
    }

    async fn execute(&self, transaction: Transaction) -> Result<u64, StoreError> {
        transaction.check()?;
        let request = encode_transaction(&transaction);
        let answer: Result<wire::TxnResponse, Failure> =
            self.caller.call(Doing::CHANGE, path::TXN, &request).await;
        let answer = match answer {
            Ok(answer) => answer,
            Err(Failure::LeaseNotFound) => return Err(self.lost_lease(&transaction)),
            Err(failure) => return Err(failure.into_error(&self.caller, Doing::CHANGE)),
        };
        if answer.succeeded {
            return Ok(answer.header.as_ref().map_or(0, |header| wire::revision(header.revision)));
        }
        let keys = transaction.compared_keys().into_iter().map(<[u8]>::to_vec).collect();
        let mut current = Vec::new();
        for response in answer.responses {
            if let Some(wire::Response::Range(range)) = response.response {
                current.extend(range.items.into_iter().map(KeyValue::from));
            }
        }
        Err(StoreError::Conflict { keys, current })
    }

    /// etcd does not say which of a transaction's leases is gone.
    fn lost_lease(&self, transaction: &Transaction) -> StoreError {
        let mut leases = transaction.operations.iter().filter_map(|operation| match operation {
            Operation::Put { lease, .. } => *lease,
            Operation::Delete { .. } => None,
        });
        match leases.next() {
            Some(lease) => StoreError::LeaseLost { lease },
            None => self.caller.refused(Doing::CHANGE, "it misses a lease that was not named"),
        }
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<u64, StoreError> {
        let request = wire::LeaseKeepAliveRequest { id: lease.0 };
        let answer: Result<wire::LeaseKeepAliveResponse, Failure> =
            self.caller.call_stream(Doing::KEEP_ALIVE, path::LEASE_KEEP_ALIVE, &request).await;
        match answer {
            Ok(answer) if answer.seconds > 0 => Ok(wire::revision(answer.seconds)),
            Ok(_) | Err(Failure::LeaseNotFound) => Err(StoreError::LeaseLost { lease }),
            Err(failure) => Err(failure.into_error(&self.caller, Doing::KEEP_ALIVE)),
        }
    }

    async fn grant(&self, seconds: u64) -> Result<Lease, StoreError> {
        check_lease_seconds(seconds)?;
        // Asked again after an unknown outcome: a lease that nobody knows of runs out.
        let request = wire::LeaseGrantRequest { seconds: wire::number(seconds), id: 0 };
        let answer: Result<wire::LeaseGrantResponse, Failure> =
            self.caller.call(Doing::GRANT, path::LEASE_GRANT, &request).await;
        match answer {
            Ok(answer) if answer.id != 0 && answer.seconds > 0 => {
                Ok(Lease { id: LeaseId(answer.id), seconds: wire::revision(answer.seconds) })
            }
            Ok(answer) => Err(self.caller.refused(Doing::GRANT, &answer.error)),
            Err(failure) => Err(failure.into_error(&self.caller, Doing::GRANT)),
        }
    }

    async fn revoke(&self, lease: LeaseId) -> Result<(), StoreError> {
        let request = wire::LeaseRevokeRequest { id: lease.0 };
        let answer: Result<wire::LeaseRevokeResponse, Failure> =
            self.caller.call(Doing::REVOKE, path::LEASE_REVOKE, &request).await;
        match answer {
            Ok(_) | Err(Failure::LeaseNotFound) => Ok(()),
            Err(failure) => Err(failure.into_error(&self.caller, Doing::REVOKE)),
        }
    }

    async fn forget(&self, revision: u64) -> Result<(), StoreError> {
        let request = wire::CompactionRequest { revision: wire::number(revision), physical: false };
        let answer: Result<wire::CompactionResponse, Failure> =
            self.caller.call(Doing::COMPACT, path::COMPACT, &request).await;
        match answer {
            Ok(_) | Err(Failure::Compacted) => Ok(()),
            Err(failure) => Err(failure.into_error(&self.caller, Doing::COMPACT)),
        }
    }
}

fn encode_transaction(transaction: &Transaction) -> wire::TxnRequest {
    let compare = |compare: &Compare| {
        use wire::{CompareResult, CompareTarget, TargetUnion, number};
        let (result, target, union, range_end) = match compare {
            Compare::ModRevision { revision, .. } => {
                let union = TargetUnion::ModRevision(number(*revision));
                (CompareResult::Equal, CompareTarget::Mod, union, Vec::new())
            }
            Compare::CreateRevision { revision, .. } => {
                let union = TargetUnion::CreateRevision(number(*revision));
                (CompareResult::Equal, CompareTarget::Create, union, Vec::new())
            }
            // It has to hold for every key of the range.
            Compare::NoneAfter { prefix, revision } => {
                let union = TargetUnion::ModRevision(number(revision.saturating_add(1)));
                (CompareResult::Less, CompareTarget::Mod, union, wire::prefix_end(prefix))
            }
        };
        wire::CompareMessage {
            result: result as i32,
            target: target as i32,
            key: compare.key().to_vec(),
            union: Some(union),
            range_end,
        }
    };
    let operation = |operation: &Operation| match operation {
        Operation::Put { key, value, lease } => wire::Request::Put(wire::PutRequest {
            key: key.clone(),
            value: value.clone(),
            lease: lease.map_or(0, |lease| lease.0),
        }),
        Operation::Delete { key } => {
            wire::Request::DeleteRange(wire::DeleteRangeRequest { key: key.clone(), range_end: Vec::new() })
        }
    };
    let current = |key: &[u8]| {
        wire::Request::Range(wire::RangeRequest { key: key.to_vec(), ..wire::RangeRequest::default() })
    };
    let wrap = |request| wire::RequestOp { request: Some(request) };
    wire::TxnRequest {
        compare: transaction.compares.iter().map(compare).collect(),
        success: transaction.operations.iter().map(operation).map(wrap).collect(),
        failure: transaction.compared_keys().into_iter().map(current).map(wrap).collect(),
    }
}

impl Store for EtcdStore {
    fn read<'a>(&'a self, prefix: &'a [u8]) -> StoreFuture<'a, Snapshot> {
        Box::pin(self.read_all(prefix))
    }

    fn transaction(&self, transaction: Transaction) -> StoreFuture<'_, u64> {
        Box::pin(self.execute(transaction))
    }

    fn watch(&self, prefix: &[u8], from_revision: u64) -> Result<Watch, StoreError> {
        check_prefix(prefix)?;
        let (sender, receiver) = mpsc::channel(WATCH_QUEUE);
        let watcher = watcher::Watcher::new(self.caller.clone(), prefix, from_revision, sender);
        let feeder = runtime()?.spawn(watcher.run());
        Ok(Watch::new(receiver, Some(feeder.abort_handle())))
    }

    fn lease_grant(&self, seconds: u64) -> StoreFuture<'_, Lease> {
        Box::pin(self.grant(seconds))
    }

    fn lease_keep_alive(&self, lease: LeaseId) -> StoreFuture<'_, u64> {
        Box::pin(self.keep_alive(lease))
    }

    fn lease_revoke(&self, lease: LeaseId) -> StoreFuture<'_, ()> {
        Box::pin(self.revoke(lease))
    }

    fn compact(&self, revision: u64) -> StoreFuture<'_, ()> {
        Box::pin(self.forget(revision))
    }

    fn identity(&self) -> Option<Identity> {
        self.caller.seen().identity()
    }
}
