//! Where the cluster map is kept: etcd, or an embedded store over a local file for one machine.
//!
//! Invariants:
//! - [`Store`] promises what etcd documents, and no more: users of it cannot tell which one they have;
//! - the machine behind the embedded store is the one that the simulator uses as its model of etcd.

mod api;
mod election;
mod embedded;
mod error;
mod etcd;
mod lease;
mod machine;
mod model;
mod random;
mod server;
mod watch;
mod wire;

pub use api::{
    Compare, Event, Identity, KEY_BYTES_MAX, KeyValue, LEASE_SECONDS_MAX, Lease, LeaseId, Operation,
    Revision, Snapshot, Store, StoreFuture, TRANSACTION_BYTES_MAX, TRANSACTION_OPERATIONS_MAX, Transaction,
    Watched,
};
pub use election::{Campaign, CampaignStep, Candidates, Leadership, Observer, ask, campaign, observe};
pub use embedded::EmbeddedStore;
pub use error::{Attempt, StoreError};
pub use etcd::{Access, EtcdOptions, EtcdStore, Tls};
pub use lease::LeaseKeeper;
pub use model::{ModelStore, Request, Response, WatchId};
pub use server::{StoreServer, create_token, read_token};
pub use watch::Watch;
