//! The NBD protocol: a server session and a client codec, without sockets.
//!
//! The specification is `doc/proto.md` of the NetworkBlockDevice project; comments that begin with `spec:` name the
//! requirement that the code beside them, or the test, is about.
//!
//! Invariants:
//! - nothing here owns a socket, clock, thread or file: a driver hands bytes in and sends the bytes that come out;
//! - bytes from the peer never cause a panic, and no length is used before it is checked;
//! - a session keeps no payload: a write's payload stays where the driver received it, and is named by its range;
//! - in the transmission phase nothing is allocated, apart from the driver's output growing to its working size.
//!
//! How a driver serves one connection, in the few lines that it takes: `tests/nbd/example.rs`.

mod client;
mod constant;
mod error;
mod export;
mod name;
mod reply;
mod request;
mod server;
mod wire;

pub use client::{
    BlockSizes, ClientConfig, ClientError, ClientHandshake, ClientRequest, ClientRequestKind,
    DescriptorIterator, Negotiated, Reply, parse_reply,
};
pub use constant::{
    ALLOCATION_CONTEXT_ID, OPTION_BYTES_MAX, PAYLOAD_BYTES_MAX, REQUEST_HEADER_BYTES, WRITE_DRAIN_BYTES_MAX,
};
pub use error::{DisconnectReason, ErrorCode, Violation};
pub use export::{ExportInfo, ExportRefusal, TransmissionFlags};
pub use name::{ExportName, ExportNameError, STRING_BYTES_MAX};
pub use reply::{
    BlockState, BlockStatusReply, DATA_CHUNK_HEADER_BYTES, DONE_CHUNK_BYTES, HOLE_CHUNK_BYTES,
    ReadReplyHeader, ReplyEncoder, SIMPLE_REPLY_BYTES, data_chunk_header, done_chunk, hole_chunk,
    simple_reply, write_error_chunk, write_error_offset_chunk,
};
pub use request::{Command, Cookie, PayloadRange, Request};
pub use server::{Event, LookUpPurpose, ServerConfig, ServerSession};
