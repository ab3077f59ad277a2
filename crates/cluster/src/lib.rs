//! The cluster map, placement, and what the coordinator decides: pure, without clock, thread, file or socket.
//!
//! - [`MapView`]: all records of the store (see [`Key`]), with look-ups; updated by the revisions of a watch.
//! - [`PlacementJob`]: where the copies of a pool's groups are to lie.
//! - [`Coordinator`]: who is in sync, what moves, what goes; decided from heartbeats and the map.
//! - [`operation`]: what operators and starting nodes change.
//! - [`ClusterHealth`]: groups by state, and what is wrong with what to do.
//! - [`Striping`], [`group_of`]: where the bytes of a volume lie.

mod coordinator;
mod group;
mod health;
mod key;
mod lookup;
mod map;
pub mod operation;
mod placement;
mod record;
mod shelf;
mod stripe;

pub use coordinator::{
    Action, BlocksLeft, Coordinator, DriveCondition, DriveReport, Event, Heartbeat, Liveness, NodeRequest,
    Proposal, ProposedChange, Settings, ShardLife, Stuck, UNCHANGED_MAX, Write, WriteOutcome,
};
pub use coquina_replication::{Config, CopyId, GroupId};
pub use group::{BLOCK_GROUPS, GroupBlock, GroupRecord, MEMBERS_MAX, ShardRef};
pub use health::{ClusterHealth, GroupCounts, HealthCode, HealthEntry, Severity};
pub use key::{BlockId, Key, PoolId, UnknownKey};
pub use lookup::Domain;
pub use map::{Applied, MapError, MapView};
pub use operation::OperationError;
pub use placement::{Placement, PlacementDrive, PlacementError, PlacementJob};
pub use record::{
    COPIES_MAX, ClusterRecord, DOMAINS_MAX, DRIVE_SHARDS_MAX, DriveRecord, DriveState, FEATURE_LEVEL,
    InvalidRecord, NodeAddresses, NodeRecord, NumberRange, POOL_GROUPS_MAX, PoolRecord, PoolState, Record,
    SKIPPED_RANGES_MAX, VersionRange, Versioned, VolumeRecord, VolumeState, Wanted,
};
pub use stripe::{
    ChunkPlace, Extent, Extents, STRIPE_COUNT_MAX, Striping, StripingError, chunks_of_group, group_of, mix,
};
