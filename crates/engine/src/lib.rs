//! The log-structured drive engine: a pure state machine without clock, thread, file or socket.

#[cfg(all(feature = "mutations", not(debug_assertions)))]
compile_error!("the engine's deliberate mistakes must not be in a release build");

mod api;
mod apply;
mod background;
#[cfg(test)]
mod by_hand;
mod cache;
mod cache_places;
mod check;
mod checkpoint;
mod checkpoint_load;
mod cleaner;
mod footer;
mod frame;
pub mod geometry;
mod group_log;
mod groups;
mod hash;
mod index;
mod index_region;
mod index_run;
mod kept_frames;
mod known_bad;
mod landed;
mod log;
#[cfg(test)]
mod memory_drive;
mod merge;
mod pool;
mod read;
mod recovery;
mod repair;
mod replay;
mod room;
mod scrub;
mod seal;
mod segment;
mod session;
mod shard;
mod superblock;
mod write;

#[cfg(feature = "mutations")]
pub use api::Mutation;
pub use api::{
    Action, Appended, ChangeKind, Device, DeviceRead, Event, Failure, FormatOptions, Identity, IoError,
    IoToken, MapExtent, MapKind, Operation, Origin, Outcome, Piece, ReadData, RepairToken, Request,
    RequestToken, ShardConfig, ShardStats,
};
pub use cache::CacheMemory;
pub use check::{BadBlock, CheckReport, ShardReport, check_drive, format_drive};
pub use groups::{GroupView, Record};
pub use kept_frames::FrameMemory;
pub use recovery::{Cut, OpenError};
pub use replay::Lost;
pub use scrub::ScrubReport;
pub use shard::Shard;
pub use superblock::{DriveSuperblock, FORMAT_VERSION, ShardSuperblock, SuperblockError};
