//! Footers: the last frame of a full segment, a copy of the headers and entries of all others in it.
//!
//! It ends with a trailer in the last bytes of the segment, so that it is found without reading the segment.

use coquina_base::{AlignedBuf, BLOCK_BYTES, crc32c_bytes};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::frame::{CONTEXT_BYTES, Entries, FrameHeader, HEADER_BYTES, MOVE_BLOCK_BYTES, MOVE_BYTES};
use crate::geometry::Geometry;

const TRAILER_MAGIC: u32 = u32::from_le_bytes(*b"CQTR");
/// Bytes of the trailer.
pub const TRAILER_BYTES: usize = 64;
/// Bytes of a frame's record, before its contexts and entries.
pub const RECORD_BYTES: usize = 56;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug)]
#[repr(C)]
struct TrailerRecord {
    magic: U32,
    crc: U32,
    segment_generation: U64,
    incarnation: U64,
    frame_number: U64,
    location: U64,
    blocks: U32,
    frames: U32,
    reserved: [u8; 16],
}

/// Where a segment's footer lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trailer {
    /// Generation of the segment.
    pub segment_generation: u64,
    /// Mount that wrote the footer.
    pub incarnation: u64,
    /// Number of the footer's frame.
    pub frame_number: u64,
    /// Where the footer's frame lies.
    pub location: u64,
    /// Its blocks.
    pub blocks: u32,
    /// Frames that it lists.
    pub frames: u32,
}

impl Trailer {
    /// Reads the trailer at the end of a segment's last block.
    pub fn decode(block: &[u8]) -> Option<Trailer> {
        let bytes = block.get(BLOCK_BYTES - TRAILER_BYTES..BLOCK_BYTES)?;
        let record = TrailerRecord::read_from_bytes(bytes).ok()?;
        let mut zeroed = record;
        zeroed.crc = 0.into();
        if record.magic.get() != TRAILER_MAGIC || crc32c_bytes(zeroed.as_bytes()) != record.crc.get() {
            return None;
        }
        Some(Trailer {
            segment_generation: record.segment_generation.get(),
            incarnation: record.incarnation.get(),
            frame_number: record.frame_number.get(),
            location: record.location.get(),
            blocks: record.blocks.get(),
            frames: record.frames.get(),
        })
    }
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug)]
#[repr(C)]
struct FrameRecord {
    frame_number: U64,
    location: U64,
    acknowledged: U64,
    incarnation: U64,
    header_crc: U32,
    previous_crc: U32,
    data_blocks: U32,
    entry_bytes: U32,
    entries: U32,
    header_blocks: U16,
    contexts: U16,
}

/// Appends a sealed frame's record to a footer.
pub fn push_record(footer: &mut Vec<u8>, header: &FrameHeader, entry_bytes: &[u8]) {
    let record = FrameRecord {
        frame_number: header.frame_number.into(),
        location: header.location.into(),
        acknowledged: header.acknowledged.into(),
        incarnation: header.incarnation.into(),
        header_crc: header.header_crc.into(),
        previous_crc: header.previous_crc.into(),
        data_blocks: header.data_blocks.into(),
        entry_bytes: header.entry_bytes.into(),
        entries: header.entries.into(),
        header_blocks: header.header_blocks.into(),
        contexts: header.contexts.into(),
    };
    footer.extend_from_slice(record.as_bytes());
    footer.extend_from_slice(entry_bytes);
}

/// Blocks of a footer's frame whose records have this many bytes.
pub fn footer_blocks(record_bytes: usize) -> u32 {
    (HEADER_BYTES + record_bytes + TRAILER_BYTES).div_ceil(BLOCK_BYTES) as u32
}

/// Blocks of data that a segment of full frames of moved blocks holds, headers and footer taken off.
pub fn cold_blocks(geometry: &Geometry, frame_blocks_max: u32) -> u32 {
    // A header block has room for so many moves of single blocks; they are the costliest.
    let entry_bytes = MOVE_BYTES + MOVE_BLOCK_BYTES;
    let per_header = ((BLOCK_BYTES - HEADER_BYTES - 2 * CONTEXT_BYTES) / entry_bytes) as u32;
    let frame = frame_blocks_max.min(per_header);
    let (mut data, mut offset, mut records) = (0, 0, 0);
    loop {
        let left = geometry.segment_blocks - offset;
        // As `Shard::room_at` does: footer and room by the costliest entries.
        let footer = footer_blocks(records + RECORD_BYTES + CONTEXT_BYTES + frame as usize * entry_bytes);
        let room = left.saturating_sub(footer + 1);
        if room < 4 {
            return data.max(1);
        }
        let blocks = frame.min(room);
        records += RECORD_BYTES + CONTEXT_BYTES + blocks as usize * entry_bytes;
        offset += 1 + blocks;
        data += blocks;
    }
}

/// Builds the footer's frame: room for its header, records, trailer.
pub fn build(records: &[u8], frames: u32, trailer: &Trailer, mut buffer: AlignedBuf) -> AlignedBuf {
    let blocks = footer_blocks(records.len()) as usize;
    buffer.resize_blocks(blocks);
    buffer.fill(0);
    buffer[HEADER_BYTES..HEADER_BYTES + records.len()].copy_from_slice(records);
    let mut record = TrailerRecord {
        magic: TRAILER_MAGIC.into(),
        crc: 0.into(),
        segment_generation: trailer.segment_generation.into(),
        incarnation: trailer.incarnation.into(),
        frame_number: trailer.frame_number.into(),
        location: trailer.location.into(),
        blocks: trailer.blocks.into(),
        frames: frames.into(),
        reserved: [0; 16],
    };
    record.crc = crc32c_bytes(record.as_bytes()).into();
    let end = buffer.len();
    buffer[end - TRAILER_BYTES..].copy_from_slice(record.as_bytes());
    buffer
}

/// A frame as a footer lists it.
#[derive(Clone, Copy)]
pub struct ListedFrame<'a> {
    /// Its header; fields that a footer does not keep are taken from the footer's frame.
    pub header: FrameHeader,
    entry_bytes: &'a [u8],
}

impl<'a> ListedFrame<'a> {
    /// The frame's entries.
    pub fn entries(&self) -> Option<Entries<'a>> {
        Entries::new(self.entry_bytes, self.header.contexts, self.header.entries, self.header.data_blocks)
    }

    /// Contexts and entries, as in the header.
    pub fn entry_bytes(&self) -> &'a [u8] {
        self.entry_bytes
    }
}

/// Lists the frames of a footer, whose frame (all its blocks) is given and intact.
pub fn list<'a>(frame: &'a [u8], footer: &FrameHeader, frames: u32) -> Option<Vec<ListedFrame<'a>>> {
    let mut rest = frame.get(HEADER_BYTES..frame.len().checked_sub(TRAILER_BYTES)?)?;
    let mut listed = Vec::with_capacity((frames as usize).min(rest.len() / RECORD_BYTES));
    for _ in 0..frames {
        let (record, behind) = FrameRecord::read_from_prefix(rest).ok()?;
        let entry_bytes = behind.get(..record.entry_bytes.get() as usize)?;
        rest = &behind[entry_bytes.len()..];
        let header = FrameHeader {
            header_crc: record.header_crc.get(),
            frame_number: record.frame_number.get(),
            incarnation: record.incarnation.get(),
            segment_generation: footer.segment_generation,
            location: record.location.get(),
            acknowledged: record.acknowledged.get(),
            previous_crc: record.previous_crc.get(),
            head: footer.head,
            header_blocks: record.header_blocks.get(),
            contexts: record.contexts.get(),
            entries: record.entries.get(),
            data_blocks: record.data_blocks.get(),
            entry_bytes: record.entry_bytes.get(),
            next_segment: footer.next_segment,
            data_crc: 0,
        };
        let fits = header.header_blocks >= 1
            && HEADER_BYTES + entry_bytes.len() <= usize::from(header.header_blocks) * BLOCK_BYTES;
        if !fits {
            return None;
        }
        listed.push(ListedFrame { header, entry_bytes });
    }
    Some(listed)
}
