//! The cluster state and its coordinator, the volume catalogue, the REST interface and the metrics.
//!
//! Invariants:
//! - a change of the cluster state is durable before it is answered;
//! - nothing here is on the path of an I/O: losing this crate's threads stops changes, not reads and writes;
//! - what a client or a file hands in is checked before it is used, and every error says what to do.

pub mod api;
mod backend;
mod background;
mod catalogue;
mod client;
mod coordinator;
mod counters;
mod embedded;
mod folder;
mod health;
mod histogram;
mod metrics;
mod placement;
mod random;
mod server;
mod state;
mod state_file;
mod view;

pub use backend::{
    AbsentDrive, BackendError, DriveSnapshot, NodeBackend, NodeSnapshot, ReactorSnapshot, ShardSnapshot,
    VolumeSnapshot,
};
pub use catalogue::{Catalogue, CatalogueError, DriveRemoval, RemoveOptions, check_volume_size};
pub use client::{Client, ClientError};
pub use coordinator::{
    Change, Coordinator, CoordinatorError, record_drive_state, register_drive, set_overcommit_percent,
};
pub use counters::VolumeCounters;
pub use embedded::EmbeddedCoordinator;
pub use folder::{FolderError, FolderLock, ServerFile, running_server};
pub use health::{HealthCode, HealthEntry, Severity, derive_health};
pub use histogram::{LATENCY_BUCKETS, LatencyHistogram};
pub use metrics::{MetricsOptions, render_metrics};
pub use placement::{PlacementError, WeightedShard, place};
pub use random::{random_id, random_u64};
pub use server::{ControlListener, ControlServer, ServerConfig, ServerError, ShutdownRequest};
pub use state::{
    ClusterMap, ClusterRecord, DRIVE_SHARDS_MAX, DriveRecord, DriveState, FEATURE_LEVEL, GROUPS_MAX,
    InvalidMap, NodeRecord, PlacementTable, ShardRef, Versioned, VolumeRecord, VolumeState,
};
