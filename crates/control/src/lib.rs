//! The control plane: the map as the store has it, the coordinator, the catalogue of volumes, the REST interface and the
//! metrics.
//!
//! Invariants:
//! - a change of the map is durable in the store before it is answered;
//! - nothing here is on the path of an I/O: losing this crate's threads stops changes, not reads and writes;
//! - what a client, a file or the store hands in is checked before it is used, and every error says what to do.

pub mod api;
mod ask;
mod backend;
mod catalogue;
mod client;
mod clock;
mod cluster_file;
mod coordinator_service;
mod counters;
mod folder;
mod health;
mod heartbeat;
mod histogram;
mod journal;
mod layers;
mod map_service;
mod metrics;
mod node_file;
mod random;
mod registration;
mod sample;
mod scrub_file;
mod server;
mod trim;
mod view;

pub use backend::{
    AbsentDrive, BackendError, CopyTotals, DriveSnapshot, GroupRole, GroupSnapshot, NoNode, NodeBackend,
    NodeSnapshot, PeerSnapshot, ReactorSnapshot, ReturningCopy, ScrubRecord, ShardSnapshot, VolumeSnapshot,
};
pub use catalogue::{
    Catalogue, CatalogueError, DriveRemoval, NodeRemoval, STRIPING_DEFAULT, check_volume_size,
};
pub use client::{Client, ClientError};
pub use clock::unix_ms;
pub use cluster_file::ClusterFile;
pub use coordinator_service::{CoordinatorConfig, CoordinatorService};
pub use coquina_cluster::{HealthCode, HealthEntry, Severity};
pub use counters::VolumeCounters;
pub use folder::{FolderError, FolderLock, ServerFile, running_server};
pub use heartbeat::{HeartbeatService, follow_map};
pub use histogram::{LATENCY_BUCKETS, LatencyHistogram};
pub use map_service::{
    ChangeError, ChangesRefused, Leader, MapFollower, MapService, MapServiceError, StoreState,
};
pub use metrics::MetricsOptions;
pub use node_file::NodeFile;
pub use random::{random_id, random_u64};
pub use registration::register_node;
pub use scrub_file::ScrubFile;
pub use server::{ControlListener, ControlServer, ServerConfig, ServerError, ShutdownRequest};
pub use trim::{NativeTrimmer, Trimmer};
