//! The log-structured drive engine: a pure state machine without clock, thread, file or socket.

mod api;

pub use api::{
    Action, Device, Event, Failure, FormatOptions, Identity, IoError, IoToken, MapExtent, MapKind, Operation,
    Origin, Outcome, Piece, ReadData, Request, RequestToken, ShardConfig, ShardStats,
};
