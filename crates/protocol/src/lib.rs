//! The native protocol: fixed little-endian headers and their codec. Byte-exact in `docs/protocol.md`.
//!
//! Invariants:
//! - no clock, thread, file or socket: bytes are handed in and out;
//! - whatever bytes come in, decoding gives a message, asks for more, or fails; it never panics;
//! - data messages are encoded and decoded without allocating or copying the payload;
//! - a length from outside is checked against a limit before anything waits for or uses so many bytes.

mod control;
mod data;
mod decode;
mod header;
mod peer;
mod status;

pub use control::{
    AttachedVolume, GROUP_UNKNOWN, Hello, HelloReply, Notify, NotifyKind, OpenRequest, ShardRef, VolumeRef,
    encode_error, encode_hello, encode_hello_reply, encode_notify, encode_open, encode_open_reply,
};
pub use data::{
    Data, Extent, ExtentKind, Extents, PayloadChecksum, checksum_payload, encode_data_head,
    encode_data_head_for, encode_map_reply, encode_plain,
};
pub use decode::{BlocksHead, Body, Message, decode, message_bytes, peek_blocks};
pub use header::{ChecksumKind, HEADER_BYTES, Header, Kind};
pub use peer::{
    PEER_FRAME_BYTES_MAX, PEER_FRAME_HEADER_BYTES, PeerFrame, PeerFrameHead, PeerHello, decode_peer_frame,
    encode_peer_frame, encode_peer_hello, peek_peer_frame, peer_frame_bytes,
};
pub use status::{ProtocolError, Status};

/// Oldest protocol version spoken here.
pub const VERSION_MIN: u16 = 1;
/// Newest protocol version spoken here.
pub const VERSION_MAX: u16 = 1;
/// Largest payload of one message: a chunk.
pub const PAYLOAD_BYTES_MAX: usize = coquina_base::CHUNK_BYTES as usize;
/// Largest body: a payload, its checksums, and 4 KiB to spare.
pub const BODY_BYTES_MAX: usize = PAYLOAD_BYTES_MAX + coquina_base::CHUNK_BLOCKS as usize * 4 + 4096;
/// Longest text in a control message: a name, an address, an explanation.
pub const TEXT_BYTES_MAX: usize = 1024;
/// Request numbers of a session that may lie between the oldest unanswered one of a placement group and the newest of that group, which
/// bounds what a server remembers of a session.
pub const REQUEST_WINDOW: u64 = 2048;
/// Bytes that requests of one connection may transfer or change while they are under way. A server reads nothing more from a client that
/// has as many, or more, until some are answered.
pub const CONNECTION_BYTES_MAX: u64 = 64 << 20;
/// A header's flag: the write or discard reserves its space (`no_hole`), for write-zeroes.
pub const FLAG_NO_HOLE: u32 = 1;
/// A header's flag of a read reply: the payload is all zeros and left out of the body.
pub const FLAG_ZEROES: u32 = 2;
/// A header's flag: the request was sent before, on an earlier connection.
pub const FLAG_RETRY: u32 = 4;
/// A header's flag of a discard: it is of what a shrink has cut off, behind the end of the volume as the server knows it.
pub const FLAG_BEYOND_END: u32 = 8;
/// A header's flag of a read: the client compares each block with the checksum that comes with it, and asks again without this flag if
/// one differs. So the server need not compare what it has in memory.
pub const FLAG_CLIENT_CHECKS: u32 = 16;
