//! Replies of the transmission phase: headers only, so that the driver sends payloads from where they lie.

use crate::constant::{
    ALLOCATION_CONTEXT_ID, CHUNK_HEADER_BYTES, MAGIC_SIMPLE_REPLY, MAGIC_STRUCTURED_REPLY, chunk,
};
use crate::name::STRING_BYTES_MAX;
use crate::wire::{prefix, put_u16, put_u32, put_u64};
use crate::{Cookie, ErrorCode};

/// Size of a simple reply, in bytes, less the data of a read.
pub const SIMPLE_REPLY_BYTES: usize = 16;
/// Size of the header of a data chunk, in bytes, its offset included and its data not.
pub const DATA_CHUNK_HEADER_BYTES: usize = CHUNK_HEADER_BYTES + 8;
/// Size of a hole chunk, in bytes.
pub const HOLE_CHUNK_BYTES: usize = CHUNK_HEADER_BYTES + 12;
/// Size of a chunk that only ends a reply, in bytes.
pub const DONE_CHUNK_BYTES: usize = CHUNK_HEADER_BYTES;
/// Most descriptors of one block status reply, which bounds it to 64 KiB; a client asks again for the rest.
const DESCRIPTORS_MAX: u32 = 8192;

/// A reply without chunks; the data of a successful read follows it.
pub fn simple_reply(cookie: Cookie, error: Option<ErrorCode>) -> [u8; SIMPLE_REPLY_BYTES] {
    let mut bytes = [0; SIMPLE_REPLY_BYTES];
    bytes[..4].copy_from_slice(&MAGIC_SIMPLE_REPLY.to_be_bytes());
    bytes[4..8].copy_from_slice(&error.map_or(0, ErrorCode::to_wire).to_be_bytes());
    // spec: a reply carries the same cookie as its request.
    bytes[8..].copy_from_slice(&cookie.0.to_be_bytes());
    bytes
}

fn chunk_header(cookie: Cookie, chunk_type: u16, last: bool, length_bytes: u32) -> [u8; CHUNK_HEADER_BYTES] {
    // spec: DONE is set on the final chunk of a reply and on no other.
    let flags = if last { chunk::FLAG_DONE } else { 0 };
    let mut bytes = [0; CHUNK_HEADER_BYTES];
    bytes[..4].copy_from_slice(&MAGIC_STRUCTURED_REPLY.to_be_bytes());
    bytes[4..6].copy_from_slice(&flags.to_be_bytes());
    bytes[6..8].copy_from_slice(&chunk_type.to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.0.to_be_bytes());
    bytes[16..].copy_from_slice(&length_bytes.to_be_bytes());
    bytes
}

/// Header of a chunk of data; exactly `length_bytes` of data must follow it.
///
/// Only data that is already in memory may be sent as the `last` chunk.
///
/// # Panics
/// If the length is zero or does not fit the chunk's length field: the caller's mistake, not the client's.
pub fn data_chunk_header(
    cookie: Cookie,
    offset_bytes: u64,
    length_bytes: u32,
    last: bool,
) -> [u8; DATA_CHUNK_HEADER_BYTES] {
    // spec: a content chunk describes at least one byte.
    assert!(length_bytes > 0 && length_bytes <= u32::MAX - 8, "a data chunk of {length_bytes} bytes");
    let mut bytes = [0; DATA_CHUNK_HEADER_BYTES];
    bytes[..CHUNK_HEADER_BYTES].copy_from_slice(&chunk_header(
        cookie,
        chunk::OFFSET_DATA,
        last,
        length_bytes + 8,
    ));
    bytes[CHUNK_HEADER_BYTES..].copy_from_slice(&offset_bytes.to_be_bytes());
    bytes
}

/// A chunk that says that a range reads as zeroes.
///
/// # Panics
/// If the length is zero: the caller's mistake, not the client's.
pub fn hole_chunk(
    cookie: Cookie,
    offset_bytes: u64,
    length_bytes: u32,
    last: bool,
) -> [u8; HOLE_CHUNK_BYTES] {
    // spec: a hole's size must not be zero.
    assert!(length_bytes > 0, "a hole of no bytes");
    let mut bytes = [0; HOLE_CHUNK_BYTES];
    bytes[..CHUNK_HEADER_BYTES].copy_from_slice(&chunk_header(cookie, chunk::OFFSET_HOLE, last, 12));
    bytes[CHUNK_HEADER_BYTES..CHUNK_HEADER_BYTES + 8].copy_from_slice(&offset_bytes.to_be_bytes());
    bytes[CHUNK_HEADER_BYTES + 8..].copy_from_slice(&length_bytes.to_be_bytes());
    bytes
}

/// A chunk that ends a reply and, if none before it was an error, means success.
pub fn done_chunk(cookie: Cookie) -> [u8; DONE_CHUNK_BYTES] {
    // spec: NONE has no payload and always DONE.
    chunk_header(cookie, chunk::NONE, true, 0)
}

/// Appends an error chunk that makes a whole request fail, with a message for a person.
pub fn write_error_chunk(cookie: Cookie, error: ErrorCode, message: &str, last: bool, output: &mut Vec<u8>) {
    // spec: the message obeys the limit of strings, 4096 bytes.
    let message = prefix(message, STRING_BYTES_MAX);
    output.extend_from_slice(&chunk_header(cookie, chunk::ERROR, last, 6 + message.len() as u32));
    put_u32(output, error.to_wire());
    put_u16(output, message.len() as u16);
    output.extend_from_slice(message.as_bytes());
}

/// Appends an error chunk for one place within a request; other chunks of the reply stay valid.
pub fn write_error_offset_chunk(
    cookie: Cookie,
    error: ErrorCode,
    message: &str,
    offset_bytes: u64,
    last: bool,
    output: &mut Vec<u8>,
) {
    let message = prefix(message, STRING_BYTES_MAX);
    output.extend_from_slice(&chunk_header(cookie, chunk::ERROR_OFFSET, last, 14 + message.len() as u32));
    put_u32(output, error.to_wire());
    put_u16(output, message.len() as u16);
    output.extend_from_slice(message.as_bytes());
    put_u64(output, offset_bytes);
}

/// Header of a whole read reply: what is sent before the data.
#[derive(Clone, Copy, Debug)]
pub struct ReadReplyHeader {
    bytes: [u8; DATA_CHUNK_HEADER_BYTES],
    length_bytes: usize,
}

impl ReadReplyHeader {
    /// The 16 or 28 bytes to send.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.length_bytes]
    }
}

/// How a session's client wants its replies. Copied out of the session, so that replies need no access to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyEncoder {
    pub(crate) structured: bool,
}

impl ReplyEncoder {
    /// Whether the client negotiated structured replies. Without them, holes cannot be sent and data must be whole.
    pub fn is_structured(self) -> bool {
        self.structured
    }

    /// Header of a successful read whose data, exactly `length_bytes`, is in memory and follows in one piece.
    ///
    /// It also answers a read with `dont_fragment`, since it is a single chunk.
    pub fn read(self, cookie: Cookie, offset_bytes: u64, length_bytes: u32) -> ReadReplyHeader {
        let mut bytes = [0; DATA_CHUNK_HEADER_BYTES];
        // spec: with structured replies negotiated a read must not be answered by a simple reply.
        if self.structured {
            let bytes = data_chunk_header(cookie, offset_bytes, length_bytes, true);
            return ReadReplyHeader { bytes, length_bytes: DATA_CHUNK_HEADER_BYTES };
        }
        bytes[..SIMPLE_REPLY_BYTES].copy_from_slice(&simple_reply(cookie, None));
        ReadReplyHeader { bytes, length_bytes: SIMPLE_REPLY_BYTES }
    }

    /// Appends the success of a request other than a read or a block status.
    ///
    /// spec: such a reply may be simple in any mode, and simple is shorter.
    pub fn success(self, cookie: Cookie, output: &mut Vec<u8>) {
        output.extend_from_slice(&simple_reply(cookie, None));
    }

    /// Appends the failure of any request. The message reaches the client only with structured replies.
    ///
    /// Chunks that the reply already has stay allowed before it, data after it not.
    pub fn error(self, cookie: Cookie, error: ErrorCode, message: &str, output: &mut Vec<u8>) {
        // spec: a server should prefer structured errors, for their message.
        if self.structured {
            write_error_chunk(cookie, error, message, true, output);
        } else {
            output.extend_from_slice(&simple_reply(cookie, Some(error)));
        }
    }
}

/// State of a range, as `base:allocation` tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockState {
    /// Nothing is stored: a write may need new space.
    pub hole: bool,
    /// The range reads as zeroes.
    pub zero: bool,
}

impl BlockState {
    /// Something is stored.
    pub const DATA: Self = Self { hole: false, zero: false };
    /// Nothing is stored, and it reads as zeroes.
    pub const HOLE: Self = Self { hole: true, zero: true };

    /// The descriptor's flags on the wire.
    pub fn to_wire(self) -> u32 {
        u32::from(self.hole) | u32::from(self.zero) << 1
    }

    /// spec: unknown bits are ignored.
    pub fn from_wire(flags: u32) -> Self {
        Self { hole: flags & 1 != 0, zero: flags & 2 != 0 }
    }
}

/// Writes the reply to a block status request, extent by extent, straight into the output.
///
/// Neighbours of one state become one descriptor, and what exceeds the request is cut off. The output must not be
/// used for anything else until [`BlockStatusReply::finish`] or [`BlockStatusReply::abandon`].
#[must_use = "an unfinished reply leaves the output unusable"]
pub struct BlockStatusReply<'a> {
    output: &'a mut Vec<u8>,
    cookie: Cookie,
    start: usize,
    /// Bytes of the request that no descriptor covers yet.
    remaining_bytes: u32,
    descriptors_max: u32,
    descriptors: u32,
    open: Option<(u32, BlockState)>,
}

impl<'a> BlockStatusReply<'a> {
    /// Begins the reply to a request for `length_bytes`; `one_extent` as in the request.
    pub fn new(cookie: Cookie, length_bytes: u32, one_extent: bool, output: &'a mut Vec<u8>) -> Self {
        let start = output.len();
        output.extend_from_slice(&[0; CHUNK_HEADER_BYTES]);
        put_u32(output, ALLOCATION_CONTEXT_ID);
        // spec: with REQ_ONE the reply has exactly one descriptor, no longer than the request.
        let descriptors_max = if one_extent { 1 } else { DESCRIPTORS_MAX };
        Self {
            output,
            cookie,
            start,
            remaining_bytes: length_bytes,
            descriptors_max,
            descriptors: 0,
            open: None,
        }
    }

    /// Adds the extent that begins where the last one ended. False means that nothing more is wanted.
    pub fn push(&mut self, length_bytes: u64, state: BlockState) -> bool {
        let taken = u32::try_from(length_bytes).unwrap_or(u32::MAX).min(self.remaining_bytes);
        if taken == 0 {
            return self.remaining_bytes > 0;
        }
        match &mut self.open {
            Some((open_bytes, open_state)) if *open_state == state => *open_bytes += taken,
            _ => {
                if self.descriptors + u32::from(self.open.is_some()) == self.descriptors_max {
                    self.remaining_bytes = 0;
                    return false;
                }
                self.close();
                self.open = Some((taken, state));
            }
        }
        self.remaining_bytes -= taken;
        self.remaining_bytes > 0
    }

    fn close(&mut self) {
        if let Some((length_bytes, state)) = self.open.take() {
            put_u32(self.output, length_bytes);
            put_u32(self.output, state.to_wire());
            self.descriptors += 1;
        }
    }

    /// Completes the reply.
    ///
    /// # Panics
    /// If nothing was pushed: a reply without a descriptor is not valid. Answer with an error instead.
    pub fn finish(mut self) {
        self.close();
        // spec: the chunk has at least one descriptor.
        assert!(self.descriptors > 0, "a block status reply without an extent");
        let length_bytes = 4 + 8 * self.descriptors;
        let header = chunk_header(self.cookie, chunk::BLOCK_STATUS, true, length_bytes);
        self.output[self.start..self.start + CHUNK_HEADER_BYTES].copy_from_slice(&header);
    }

    /// Takes back all that was written, so that the request can be answered with an error instead.
    pub fn abandon(self) {
        self.output.truncate(self.start);
    }
}
