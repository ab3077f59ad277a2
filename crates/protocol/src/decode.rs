//! From bytes to messages.

use coquina_base::BLOCK_BYTES;

use crate::control::{self, AttachedVolume, Hello, HelloReply, Notify, OpenRequest};
use crate::data::{Data, Extents, check_range, is_whole_blocks};
use crate::header::{ChecksumKind, HEADER_BYTES, Header, Kind};
use crate::peer::{self, PeerHello};
use crate::{FLAG_ZEROES, ProtocolError, Status};

/// A message. Slices point into the bytes that it was decoded from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Its header, checked.
    pub header: Header,
    /// What follows the header.
    pub body: Body<'a>,
}

/// What follows a header.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Each is documented at its `Kind`.
pub enum Body<'a> {
    Hello(Hello<'a>),
    HelloReply(HelloReply),
    Open(OpenRequest<'a>),
    OpenReply(Box<AttachedVolume>),
    Read,
    ReadReply(Data<'a>),
    Write(Data<'a>),
    WriteReply,
    Discard,
    DiscardReply,
    WriteZeroes,
    WriteZeroesReply,
    Map,
    MapReply(Extents<'a>),
    Flush,
    FlushReply,
    Ping,
    PingReply,
    Notify(Notify),
    PeerHello(PeerHello),
    PeerHelloReply(PeerHello),
    /// The explanation, which may be empty; the status is in the header and is not `Ok`.
    Error(&'a str),
}

/// How long the message at the front of `input` is, header included; `None` if the header is not all there.
/// Tells a receiver how much room to make.
pub fn message_bytes(input: &[u8]) -> Result<Option<usize>, ProtocolError> {
    Ok(Header::parse(input)?.map(|header| HEADER_BYTES + header.body_bytes as usize))
}

/// The head of a message with whole blocks as its payload: what stands before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlocksHead<'a> {
    /// The header, checked.
    pub header: Header,
    /// CRC32C of each block of the payload, little-endian.
    pub checksums_le: &'a [u8],
    /// Bytes before the payload.
    pub head_bytes: usize,
}

/// The message of a kind, a write or a read's reply, at the front of `input`, if it carries whole blocks and its head is there,
/// whether its payload has come or not: for receivers that choose where a large payload goes. `None` for other messages
/// and where the head is not all there.
pub fn peek_blocks(input: &[u8], kind: Kind) -> Result<Option<BlocksHead<'_>>, ProtocolError> {
    assert!(matches!(kind, Kind::Write | Kind::ReadReply), "a kind of message with a payload");
    let Some(header) = Header::parse(input)? else {
        return Ok(None);
    };
    let is_left_out = kind == Kind::ReadReply && header.flags & FLAG_ZEROES != 0;
    if header.kind != kind || header.checksum_kind != ChecksumKind::Blocks || is_left_out {
        return Ok(None);
    }
    check_fixed(&header)?;
    let payload_bytes = header.length_bytes as usize;
    let checksums_bytes = payload_bytes / BLOCK_BYTES * 4;
    let is_whole_blocks = is_whole_blocks(header.offset_bytes, header.length_bytes);
    if !is_whole_blocks || header.body_bytes as usize != checksums_bytes + payload_bytes {
        return Err(ProtocolError::BodyLength { kind: header.kind, body_bytes: header.body_bytes });
    }
    let head_bytes = HEADER_BYTES + checksums_bytes;
    let checksums_le = input.get(HEADER_BYTES..head_bytes);
    Ok(checksums_le.map(|checksums_le| BlocksHead { header, checksums_le, head_bytes }))
}

/// Takes the message at the front of `input`, and says how many bytes it has; `None` if it is not all there.
///
/// An error means that the stream cannot be followed any further: close the connection.
pub fn decode(input: &[u8]) -> Result<Option<(Message<'_>, usize)>, ProtocolError> {
    let Some(header) = Header::parse(input)? else {
        return Ok(None);
    };
    check_fixed(&header)?;
    let end = HEADER_BYTES + header.body_bytes as usize;
    let Some(body) = input.get(HEADER_BYTES..end) else {
        return Ok(None);
    };
    let body = match header.kind {
        Kind::Hello => Body::Hello(control::parse_hello(body)?),
        Kind::HelloReply => Body::HelloReply(control::parse_hello_reply(body)?),
        Kind::Open => Body::Open(control::parse_open(body)?),
        Kind::OpenReply => Body::OpenReply(Box::new(control::parse_open_reply(body)?)),
        Kind::Read => Body::Read,
        Kind::ReadReply => Body::ReadReply(Data::parse(&header, body)?),
        Kind::Write => Body::Write(Data::parse(&header, body)?),
        Kind::WriteReply => Body::WriteReply,
        Kind::Discard => Body::Discard,
        Kind::DiscardReply => Body::DiscardReply,
        Kind::WriteZeroes => Body::WriteZeroes,
        Kind::WriteZeroesReply => Body::WriteZeroesReply,
        Kind::Map => Body::Map,
        Kind::MapReply => Body::MapReply(Extents::parse(&header, body)?),
        Kind::Flush => Body::Flush,
        Kind::FlushReply => Body::FlushReply,
        Kind::Ping => Body::Ping,
        Kind::PingReply => Body::PingReply,
        Kind::Notify => Body::Notify(control::parse_notify(body)?),
        Kind::PeerHello => Body::PeerHello(peer::parse_peer_hello(header.kind, body)?),
        Kind::PeerHelloReply => Body::PeerHelloReply(peer::parse_peer_hello(header.kind, body)?),
        Kind::Error => Body::Error(control::parse_error(body)?),
    };
    Ok(Some((Message { header, body }, end)))
}

/// What can be said before the body is there.
fn check_fixed(header: &Header) -> Result<(), ProtocolError> {
    let (ranged, bodied) = match header.kind {
        Kind::Write | Kind::ReadReply | Kind::MapReply => (true, true),
        Kind::Read | Kind::Discard | Kind::WriteZeroes | Kind::Map => (true, false),
        Kind::Hello | Kind::HelloReply | Kind::Open | Kind::OpenReply => (false, true),
        Kind::Notify | Kind::PeerHello | Kind::PeerHelloReply | Kind::Error => (false, true),
        _ => (false, false),
    };
    if ranged {
        check_range(header)?;
    }
    if !bodied && header.body_bytes != 0 {
        return Err(ProtocolError::BodyLength { kind: header.kind, body_bytes: header.body_bytes });
    }
    if (header.kind == Kind::Error) != (header.status != Status::Ok) {
        return Err(ProtocolError::Status(header.status as u16));
    }
    Ok(())
}
