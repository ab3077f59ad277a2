//! What copies of a placement group say to each other: a hello as an ordinary message, then frames.
//!
//! A frame is 16 bytes (length of the whole frame, group, length of the head, CRC32C of these three and the head), the
//! head, which only the replication understands, and a payload, whose blocks have checksums in the head.
//!
//! Invariants:
//! - a length from outside is checked against [`PEER_FRAME_BYTES_MAX`] before anything waits for so many bytes;
//! - a head that comes out is whole; a payload may be damaged.

use coquina_base::{ClusterId, NodeId};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::ProtocolError;
use crate::header::{Header, Kind};

/// Largest frame, its header included.
pub const PEER_FRAME_BYTES_MAX: usize = 8 << 20;
/// What stands before a frame's head.
pub const PEER_FRAME_HEADER_BYTES: usize = 16;

/// First message of a connection between two copies, and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerHello {
    /// The cluster of both.
    pub cluster: ClusterId,
    /// The node that sends this.
    pub node: NodeId,
    /// The copy that sends this.
    pub from_copy: u64,
    /// The copy that it is for.
    pub to_copy: u64,
    /// Oldest version that the sender speaks; in the answer, the version to speak.
    pub version_min: u16,
    /// Newest version that the sender speaks; in the answer, the version to speak.
    pub version_max: u16,
    /// Optional features that the sender knows; in the answer, those that both know. `docs/protocol.md` has the bits.
    pub features: u64,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct WirePeerHello {
    cluster: ClusterId,
    node: NodeId,
    from_copy: U64,
    to_copy: U64,
    features: U64,
    version_min: U16,
    version_max: U16,
    reserved: U32,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct WireFrame {
    length_bytes: U32,
    group: U32,
    head_bytes: U32,
    crc: U32,
}

const _: () = assert!(size_of::<WireFrame>() == PEER_FRAME_HEADER_BYTES);
/// The checksum covers what stands before it.
const CHECKED_BYTES: usize = 12;

/// Appends a hello, or the answer to one if that is the header's kind.
pub fn encode_peer_hello(out: &mut Vec<u8>, header: &Header, hello: &PeerHello) {
    let wire = WirePeerHello {
        cluster: hello.cluster,
        node: hello.node,
        from_copy: hello.from_copy.into(),
        to_copy: hello.to_copy.into(),
        features: hello.features.into(),
        version_min: hello.version_min.into(),
        version_max: hello.version_max.into(),
        reserved: 0.into(),
    };
    Header { body_bytes: size_of::<WirePeerHello>() as u32, ..*header }.encode(out);
    out.extend_from_slice(wire.as_bytes());
}

pub(crate) fn parse_peer_hello(kind: Kind, body: &[u8]) -> Result<PeerHello, ProtocolError> {
    let wire = WirePeerHello::ref_from_bytes(body).map_err(|_| ProtocolError::Malformed(kind))?;
    Ok(PeerHello {
        cluster: wire.cluster,
        node: wire.node,
        from_copy: wire.from_copy.get(),
        to_copy: wire.to_copy.get(),
        version_min: wire.version_min.get(),
        version_max: wire.version_max.get(),
        features: wire.features.get(),
    })
}

/// A frame. Slices point into the bytes that it was decoded from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerFrame<'a> {
    /// The placement group that it is about.
    pub group: u32,
    /// What the replication says.
    pub head: &'a [u8],
    /// The data that belongs to it.
    pub payload: &'a [u8],
}

/// A frame whose payload has not come yet, or not all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerFrameHead<'a> {
    /// The placement group that it is about.
    pub group: u32,
    /// What the replication says.
    pub head: &'a [u8],
    /// Bytes before the payload.
    pub payload_at: usize,
    /// Bytes of payload.
    pub payload_bytes: usize,
}

/// Appends a frame but for its payload, of which exactly `payload_bytes` must follow. `head` appends the head.
/// Panics if the frame is larger than [`PEER_FRAME_BYTES_MAX`].
pub fn encode_peer_frame(
    out: &mut Vec<u8>,
    group: u32,
    payload_bytes: usize,
    head: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len();
    out.extend_from_slice(&[0; PEER_FRAME_HEADER_BYTES]);
    head(out);
    let head_bytes = out.len() - start - PEER_FRAME_HEADER_BYTES;
    let length_bytes = PEER_FRAME_HEADER_BYTES + head_bytes + payload_bytes;
    assert!(length_bytes <= PEER_FRAME_BYTES_MAX, "a frame of {length_bytes} bytes is too large");
    let mut wire = WireFrame {
        length_bytes: (length_bytes as u32).into(),
        group: group.into(),
        head_bytes: (head_bytes as u32).into(),
        crc: 0.into(),
    };
    let head = &out[start + PEER_FRAME_HEADER_BYTES..];
    wire.crc = checksum(&wire, head).into();
    out[start..start + PEER_FRAME_HEADER_BYTES].copy_from_slice(wire.as_bytes());
}

fn checksum(wire: &WireFrame, head: &[u8]) -> u32 {
    coquina_base::crc32c_append(coquina_base::crc32c_bytes(&wire.as_bytes()[..CHECKED_BYTES]), head)
}

/// How long the frame at the front of `input` is; `None` if that cannot be told yet.
pub fn peer_frame_bytes(input: &[u8]) -> Result<Option<usize>, ProtocolError> {
    Ok(frame_header(input)?.map(|wire| wire.length_bytes.get() as usize))
}

fn frame_header(input: &[u8]) -> Result<Option<&WireFrame>, ProtocolError> {
    let Ok((wire, _)) = WireFrame::ref_from_prefix(input) else {
        return Ok(None);
    };
    let (length_bytes, head_bytes) = (wire.length_bytes.get(), wire.head_bytes.get());
    let is_possible = length_bytes as usize <= PEER_FRAME_BYTES_MAX
        && length_bytes.checked_sub(PEER_FRAME_HEADER_BYTES as u32).is_some_and(|rest| head_bytes <= rest);
    if !is_possible {
        return Err(ProtocolError::PeerFrame { length_bytes, head_bytes });
    }
    Ok(Some(wire))
}

/// The frame at the front of `input` as soon as its head is there, for receivers that choose where a large payload goes.
pub fn peek_peer_frame(input: &[u8]) -> Result<Option<PeerFrameHead<'_>>, ProtocolError> {
    let Some(wire) = frame_header(input)? else {
        return Ok(None);
    };
    let payload_at = PEER_FRAME_HEADER_BYTES + wire.head_bytes.get() as usize;
    let Some(head) = input.get(PEER_FRAME_HEADER_BYTES..payload_at) else {
        return Ok(None);
    };
    if checksum(wire, head) != wire.crc.get() {
        return Err(ProtocolError::PeerChecksum);
    }
    let payload_bytes = wire.length_bytes.get() as usize - payload_at;
    Ok(Some(PeerFrameHead { group: wire.group.get(), head, payload_at, payload_bytes }))
}

/// Takes the frame at the front of `input`, and says how many bytes it has; `None` if it is not all there.
///
/// An error means that the stream cannot be followed any further: close the connection.
pub fn decode_peer_frame(input: &[u8]) -> Result<Option<(PeerFrame<'_>, usize)>, ProtocolError> {
    // A frame that is not all there is not worth the checksum of its head each time something more arrives.
    if peer_frame_bytes(input)?.is_none_or(|length_bytes| input.len() < length_bytes) {
        return Ok(None);
    }
    let Some(PeerFrameHead { group, head, payload_at, payload_bytes }) = peek_peer_frame(input)? else {
        return Ok(None);
    };
    let end = payload_at + payload_bytes;
    Ok(input.get(payload_at..end).map(|payload| (PeerFrame { group, head, payload }, end)))
}
