use super::ClientError;
use crate::constant::{CHUNK_HEADER_BYTES, MAGIC_SIMPLE_REPLY, MAGIC_STRUCTURED_REPLY, chunk};
use crate::name::STRING_BYTES_MAX;
use crate::wire::Reader;
use crate::{BlockState, Cookie, ErrorCode};

/// Longest payload of an error chunk that is taken, in bytes: its message, its fields and some that may come yet.
const ERROR_PAYLOAD_BYTES_MAX: usize = STRING_BYTES_MAX + 64;
/// Longest payload of a block status chunk that is taken, in bytes.
const STATUS_PAYLOAD_BYTES_MAX: usize = 4 + (8 << 20);

/// One simple reply, or one chunk of a structured one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// The whole outcome of a request. If it succeeded and was a read, its data follows in full.
    Simple {
        /// Which request.
        cookie: Cookie,
        /// None means success.
        error: Option<ErrorCode>,
    },
    /// Part of a read's data: `length_bytes` of it follow.
    Data {
        /// Which request.
        cookie: Cookie,
        /// Where the data belongs in the export.
        offset_bytes: u64,
        /// How much follows; the caller checks that it lies within its request before it receives it.
        length_bytes: u32,
        /// The reply is complete after it.
        last: bool,
    },
    /// A part of a read that is all zeroes.
    Hole {
        /// Which request.
        cookie: Cookie,
        /// Where in the export.
        offset_bytes: u64,
        /// How long; the caller checks that it lies within its request.
        length_bytes: u32,
        /// The reply is complete.
        last: bool,
    },
    /// The reply is complete; it succeeded if no chunk before was an error.
    Done {
        /// Which request.
        cookie: Cookie,
    },
    /// The request failed.
    Error {
        /// Which request.
        cookie: Cookie,
        /// In what way.
        error: ErrorCode,
        /// What the server says of it; empty if that is nothing or not UTF-8.
        message: &'a str,
        /// The reply is complete.
        last: bool,
    },
    /// State of the blocks from the start of the request on.
    BlockStatus {
        /// Which request.
        cookie: Cookie,
        /// As negotiated.
        context_id: u32,
        /// The extents, in order.
        descriptors: DescriptorIterator<'a>,
        /// The reply is complete.
        last: bool,
    },
}

/// The extents of a block status chunk: length in bytes and state of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorIterator<'a> {
    bytes: &'a [u8],
}

impl Iterator for DescriptorIterator<'_> {
    type Item = (u32, BlockState);

    fn next(&mut self) -> Option<Self::Item> {
        let mut reader = Reader::new(self.bytes);
        let item = (reader.u32()?, BlockState::from_wire(reader.u32()?));
        self.bytes = reader.rest();
        Some(item)
    }
}

/// Takes a reply or chunk from the front of the input: how many bytes it has, and what it says.
///
/// None means that more input is needed. The data of a read is not part of it and follows those bytes. After an error
/// the place in the stream is lost, and the connection has to be dropped.
pub fn parse_reply(input: &[u8]) -> Result<Option<(usize, Reply<'_>)>, ClientError> {
    let mut reader = Reader::new(input);
    match reader.u32() {
        None => Ok(None),
        Some(MAGIC_SIMPLE_REPLY) => Ok(parse_simple(reader).map(|reply| (crate::SIMPLE_REPLY_BYTES, reply))),
        Some(MAGIC_STRUCTURED_REPLY) => parse_chunk(reader),
        Some(_) => Err(ClientError::Invalid("reply magic")),
    }
}

fn parse_simple(mut reader: Reader<'_>) -> Option<Reply<'_>> {
    let error = reader.u32()?;
    let cookie = Cookie(reader.u64()?);
    Some(Reply::Simple { cookie, error: (error != 0).then(|| ErrorCode::from_wire(error)) })
}

struct ChunkHeader {
    cookie: Cookie,
    chunk_type: u16,
    last: bool,
    length_bytes: usize,
}

fn parse_chunk_header(reader: &mut Reader<'_>) -> Option<ChunkHeader> {
    // spec: unrecognized flags are ignored.
    let flags = reader.u16()?;
    let chunk_type = reader.u16()?;
    let cookie = Cookie(reader.u64()?);
    let length_bytes = reader.u32()? as usize;
    Some(ChunkHeader { cookie, chunk_type, last: flags & chunk::FLAG_DONE != 0, length_bytes })
}

fn parse_chunk(mut reader: Reader<'_>) -> Result<Option<(usize, Reply<'_>)>, ClientError> {
    let Some(header) = parse_chunk_header(&mut reader) else { return Ok(None) };
    // Checked before the payload is waited for: a server that lies must not make the client buffer without bound.
    let kept_bytes = kept_payload_bytes(&header)?;
    let Some(payload) = reader.take(kept_bytes) else { return Ok(None) };
    let reply = parse_payload(&header, payload).ok_or(ClientError::Invalid("chunk"))?;
    Ok(Some((CHUNK_HEADER_BYTES + kept_bytes, reply)))
}

/// How much of a chunk's payload is part of its [`Reply`]; all but a read's data.
fn kept_payload_bytes(header: &ChunkHeader) -> Result<usize, ClientError> {
    let length_bytes = header.length_bytes;
    match header.chunk_type {
        // spec: the length of NONE must be zero, and DONE set.
        chunk::NONE if length_bytes == 0 && header.last => Ok(0),
        // spec: the length of OFFSET_DATA must be at least 9.
        chunk::OFFSET_DATA if length_bytes >= 9 => Ok(8),
        // spec: the length of OFFSET_HOLE must be 12.
        chunk::OFFSET_HOLE if length_bytes == 12 => Ok(12),
        // spec: the length of BLOCK_STATUS must be 4 plus a positive multiple of 8.
        chunk::BLOCK_STATUS
            if (12..=STATUS_PAYLOAD_BYTES_MAX).contains(&length_bytes) && length_bytes % 8 == 4 =>
        {
            Ok(length_bytes)
        }
        // spec: an unknown type with bit 15 set is an error chunk, whose length must be at least 6.
        kind if kind & chunk::ERROR_BIT != 0 && (6..=ERROR_PAYLOAD_BYTES_MAX).contains(&length_bytes) => {
            Ok(length_bytes)
        }
        // spec: for any other type or inconsistent contents the client must disconnect.
        _ => Err(ClientError::Invalid("chunk type or length")),
    }
}

fn parse_payload<'a>(header: &ChunkHeader, payload: &'a [u8]) -> Option<Reply<'a>> {
    let &ChunkHeader { cookie, last, .. } = header;
    let mut reader = Reader::new(payload);
    match header.chunk_type {
        chunk::NONE => Some(Reply::Done { cookie }),
        chunk::OFFSET_DATA => {
            let length_bytes = u32::try_from(header.length_bytes - 8).ok()?;
            Some(Reply::Data { cookie, offset_bytes: reader.u64()?, length_bytes, last })
        }
        chunk::OFFSET_HOLE => {
            let (offset_bytes, length_bytes) = (reader.u64()?, reader.u32()?);
            // spec: a hole's size must not be zero.
            (length_bytes > 0).then_some(Reply::Hole { cookie, offset_bytes, length_bytes, last })
        }
        chunk::BLOCK_STATUS => {
            let context_id = reader.u32()?;
            let descriptors = DescriptorIterator { bytes: reader.rest() };
            // spec: an extent's length must not be zero.
            let is_valid = descriptors.into_iter().all(|(length_bytes, _)| length_bytes > 0);
            is_valid.then_some(Reply::BlockStatus { cookie, context_id, descriptors, last })
        }
        _ => {
            let error = ErrorCode::from_wire(reader.u32()?);
            // spec: the message must fit the chunk.
            let message_bytes = usize::from(reader.u16()?);
            let message = std::str::from_utf8(reader.take(message_bytes)?).unwrap_or_default();
            Some(Reply::Error { cookie, error, message, last })
        }
    }
}
