//! Bodies of data messages: checksums, then the payload; and the extents of a block map.

use coquina_base::{BLOCK_BYTES, CHUNK_BYTES, SECTOR_BYTES};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::header::{ChecksumKind, Header, Kind};
use crate::{FLAG_ZEROES, ProtocolError};

/// The body of a write or of a read reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data<'a> {
    /// CRC32C of each block, little-endian; empty unless the checksum kind is [`ChecksumKind::Blocks`].
    pub checksums_le: &'a [u8],
    /// CRC32C of the whole payload, if the checksum kind is [`ChecksumKind::Payload`].
    pub payload_crc: Option<u32>,
    /// The bytes; empty if all are zero and were left out ([`FLAG_ZEROES`]).
    pub payload: &'a [u8],
}

impl<'a> Data<'a> {
    pub(crate) fn parse(header: &Header, body: &'a [u8]) -> Result<Data<'a>, ProtocolError> {
        let length = header.length_bytes as usize;
        let wrong = ProtocolError::BodyLength { kind: header.kind, body_bytes: header.body_bytes };
        if header.kind == Kind::ReadReply && header.flags & FLAG_ZEROES != 0 {
            let empty = Data { checksums_le: &[], payload_crc: None, payload: &[] };
            return if body.is_empty() { Ok(empty) } else { Err(wrong) };
        }
        let checksums = match header.checksum_kind {
            ChecksumKind::Payload => 4,
            ChecksumKind::Blocks if is_whole_blocks(header.offset_bytes, header.length_bytes) => {
                length / BLOCK_BYTES * 4
            }
            ChecksumKind::Blocks => return Err(wrong),
        };
        if body.len() != checksums + length {
            return Err(wrong);
        }
        let (checksums_le, payload) = body.split_at(checksums);
        Ok(match header.checksum_kind {
            ChecksumKind::Blocks => Data { checksums_le, payload_crc: None, payload },
            ChecksumKind::Payload => {
                let crc = checksums_le.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
                Data { checksums_le: &[], payload_crc: crc, payload }
            }
        })
    }

    /// Whether the payload matches its checksums. A payload that was left out does.
    pub fn is_intact(&self) -> bool {
        if let Some(crc) = self.payload_crc {
            return coquina_base::crc32c_bytes(self.payload) == crc;
        }
        let (sums, _) = self.checksums_le.as_chunks::<4>();
        self.payload
            .chunks_exact(BLOCK_BYTES)
            .zip(sums)
            .all(|(block, crc)| coquina_base::crc32c_block(block) == u32::from_le_bytes(*crc))
    }

    /// Copies the payload, or the zeros that stand for it, to `target`, checking each block as it passes.
    /// False if a checksum does not match; `target` holds nothing of use then. Panics if the lengths differ.
    #[must_use]
    pub fn copy_checked(&self, target: &mut [u8]) -> bool {
        if self.payload.is_empty() {
            target.fill(0);
            return true;
        }
        if self.payload_crc.is_some() {
            target.copy_from_slice(self.payload);
            return self.is_intact();
        }
        assert_eq!(target.len(), self.payload.len(), "the target has the length of the payload");
        let (sums, _) = self.checksums_le.as_chunks::<4>();
        let blocks = self.payload.chunks_exact(BLOCK_BYTES).zip(target.chunks_exact_mut(BLOCK_BYTES));
        blocks.zip(sums).all(|((block, place), crc)| {
            place.copy_from_slice(block);
            coquina_base::crc32c_block(block) == u32::from_le_bytes(*crc)
        })
    }
}

/// Whether a range is of whole blocks, so that checksums are per block.
pub(crate) fn is_whole_blocks(offset_bytes: u32, length_bytes: u32) -> bool {
    (offset_bytes | length_bytes).is_multiple_of(BLOCK_BYTES as u32)
}

/// Checks that a range is not empty, of whole sectors, and within its chunk.
pub(crate) fn check_range(header: &Header) -> Result<(), ProtocolError> {
    let Header { offset_bytes, length_bytes, .. } = *header;
    let end = u64::from(offset_bytes) + u64::from(length_bytes);
    let aligned = (offset_bytes | length_bytes).is_multiple_of(SECTOR_BYTES as u32);
    if length_bytes == 0 || !aligned || end > CHUNK_BYTES {
        return Err(ProtocolError::Range { offset_bytes, length_bytes });
    }
    Ok(())
}

/// A CRC32C over a payload that comes in pieces.
#[derive(Clone, Copy, Debug, Default)]
pub struct PayloadChecksum(u32);

impl PayloadChecksum {
    /// Goes on with the next piece.
    pub fn update(&mut self, piece: &[u8]) {
        self.0 = coquina_base::crc32c_append(self.0, piece);
    }

    /// The checksum of all pieces so far.
    pub fn value(self) -> u32 {
        self.0
    }
}

/// Appends a message without a body: reads, discards, most replies.
pub fn encode_plain(out: &mut Vec<u8>, header: &Header) {
    debug_assert_eq!(header.body_bytes, 0);
    header.encode(out);
}

/// Appends header and checksums of a data message; exactly `header.length_bytes` of payload must follow.
///
/// `checksums` holds one CRC32C per block with [`ChecksumKind::Blocks`], else the one of the payload.
/// Panics if their number does not fit the range.
pub fn encode_data_head(out: &mut Vec<u8>, header: &Header, kind: ChecksumKind, checksums: &[u32]) {
    let expected = match kind {
        ChecksumKind::Payload => 1,
        ChecksumKind::Blocks => {
            assert!(is_whole_blocks(header.offset_bytes, header.length_bytes), "blocks are whole");
            header.length_bytes as usize / BLOCK_BYTES
        }
    };
    assert_eq!(checksums.len(), expected, "one checksum per block, or one in all");
    start_data(out, header, kind, expected);
    for crc in checksums {
        out.extend_from_slice(&crc.to_le_bytes());
    }
}

/// Makes the checksums of `payload` and appends header and checksums; the payload itself must follow.
/// Panics if the payload does not have `header.length_bytes` bytes.
pub fn encode_data_head_for(out: &mut Vec<u8>, header: &Header, payload: &[u8]) {
    assert_eq!(payload.len(), header.length_bytes as usize, "the header counts the payload");
    if is_whole_blocks(header.offset_bytes, header.length_bytes) {
        start_data(out, header, ChecksumKind::Blocks, payload.len() / BLOCK_BYTES);
        for block in payload.chunks_exact(BLOCK_BYTES) {
            out.extend_from_slice(&coquina_base::crc32c_block(block).to_le_bytes());
        }
    } else {
        start_data(out, header, ChecksumKind::Payload, 1);
        out.extend_from_slice(&coquina_base::crc32c_bytes(payload).to_le_bytes());
    }
}

/// The checksums that [`encode_data_head`] wants for a payload, appended to `checksums`; says which kind.
pub fn checksum_payload(offset_bytes: u32, payload: &[u8], checksums: &mut Vec<u32>) -> ChecksumKind {
    if is_whole_blocks(offset_bytes, payload.len() as u32) {
        checksums.extend(payload.chunks_exact(BLOCK_BYTES).map(coquina_base::crc32c_block));
        ChecksumKind::Blocks
    } else {
        checksums.push(coquina_base::crc32c_bytes(payload));
        ChecksumKind::Payload
    }
}

fn start_data(out: &mut Vec<u8>, header: &Header, kind: ChecksumKind, checksums: usize) {
    let body_bytes = checksums * 4 + header.length_bytes as usize;
    assert!(body_bytes <= crate::BODY_BYTES_MAX, "a data message carries a chunk at most");
    Header { body_bytes: body_bytes as u32, checksum_kind: kind, ..*header }.encode(out);
}

/// What a run of bytes is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum ExtentKind {
    /// Written data.
    Data = 0,
    /// Zeros whose space is reserved.
    Zeroes = 1,
    /// Nothing: reads as zeros.
    Hole = 2,
}

/// A run of bytes of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// How many bytes.
    pub length_bytes: u32,
    /// What they are.
    pub kind: ExtentKind,
}

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct WireExtent {
    length_bytes: U32,
    kind: U32,
}

/// The extents of a map reply, which cover the range asked for exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extents<'a> {
    bytes: &'a [u8],
}

impl<'a> Extents<'a> {
    pub(crate) fn parse(header: &Header, body: &'a [u8]) -> Result<Extents<'a>, ProtocolError> {
        let malformed = ProtocolError::Malformed(header.kind);
        let wire = <[WireExtent]>::ref_from_bytes(body).map_err(|_| malformed)?;
        let mut sum = 0u64;
        for extent in wire {
            if extent.length_bytes.get() == 0 || extent.kind.get() > ExtentKind::Hole as u32 {
                return Err(malformed);
            }
            sum += u64::from(extent.length_bytes.get());
        }
        if sum != u64::from(header.length_bytes) {
            return Err(malformed);
        }
        Ok(Extents { bytes: body })
    }

    /// The extents in order.
    pub fn iter(&self) -> impl Iterator<Item = Extent> + 'a {
        self.bytes.chunks_exact(size_of::<WireExtent>()).filter_map(|bytes| {
            let wire = WireExtent::ref_from_bytes(bytes).ok()?;
            let kind = match wire.kind.get() {
                0 => ExtentKind::Data,
                1 => ExtentKind::Zeroes,
                _ => ExtentKind::Hole,
            };
            Some(Extent { length_bytes: wire.length_bytes.get(), kind })
        })
    }
}

/// Appends a map reply. The extents must cover `header.length_bytes` exactly.
pub fn encode_map_reply(out: &mut Vec<u8>, header: &Header, extents: &[Extent]) {
    let body_bytes = size_of_val(extents);
    const { assert!(size_of::<Extent>() == size_of::<WireExtent>()) };
    assert!(body_bytes <= crate::BODY_BYTES_MAX, "a chunk has at most 8,192 sectors");
    Header { body_bytes: body_bytes as u32, ..*header }.encode(out);
    for extent in extents {
        let wire = WireExtent { length_bytes: extent.length_bytes.into(), kind: (extent.kind as u32).into() };
        out.extend_from_slice(wire.as_bytes());
    }
}
