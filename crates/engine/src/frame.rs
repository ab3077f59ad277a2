//! Frames: the unit of writing. A header of one block (more for footers) with contexts and entries, then the data.
//!
//! Invariants:
//! - frames of a shard are numbered without gaps and each header carries the checksum of the one before;
//! - a header says where it lies, so that a misdirected write is noticed;
//! - `acknowledged` of a later frame proves that an earlier one was durable.
//!
//! See `docs/on-disk-format.md` for the byte map.

use coquina_base::{BLOCK_BYTES, DriveId, LayerId, crc32c_bytes};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::superblock::FORMAT_VERSION;

/// Bytes of the fixed part of a header.
pub const HEADER_BYTES: usize = 128;
/// Bytes of a context: who ordered an entry, or its placement group.
pub const CONTEXT_BYTES: usize = 16;
/// Bytes of the fixed part of an entry.
pub const ENTRY_BYTES: usize = 32;
/// Bytes of the fixed part of a move: nobody asked for it, and its data lies behind that of the entry before.
pub const MOVE_BYTES: usize = 12;
/// Bytes that a move takes for each block: its checksum, and where it came from.
pub const MOVE_BLOCK_BYTES: usize = 4 + LOCATION_BYTES;
/// Bytes of a location in an entry.
pub const LOCATION_BYTES: usize = 5;
/// Bytes of an entry's extension: reserved for checksum kind, transform and erasure-code shard.
pub const EXTENSION_BYTES: usize = 8;
/// Most contexts of a frame.
pub const CONTEXTS_MAX: usize = 128;
/// Stands for "no placement group" in an entry.
const GROUP_NONE: u8 = u8::MAX;

const MAGIC: u32 = u32::from_le_bytes(*b"CQFR");
const HEADER_CRC_OFFSET: usize = 4;

/// Streams of frames that are kept in segments of their own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Head {
    /// What users write.
    Hot = 0,
    /// What the cleaner moves.
    Cold = 1,
    /// Index pages and checkpoints.
    Meta = 2,
}

/// All heads, by number.
pub const HEADS: [Head; 3] = [Head::Hot, Head::Cold, Head::Meta];

impl Head {
    fn from_number(number: u8) -> Option<Self> {
        HEADS.get(usize::from(number)).copied()
    }
}

/// What an entry does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum EntryKind {
    /// New data for a block range.
    Write = 1,
    /// The range becomes a hole.
    Trim = 2,
    /// The range becomes zeros whose space stays reserved.
    Zeroes = 3,
    /// Data moved by the cleaner; names where from.
    Move = 4,
    /// A page of the index.
    Page = 5,
    /// A part of a checkpoint.
    Checkpoint = 6,
    /// The layer is gone.
    DeleteLayer = 7,
    /// The footer of a segment.
    Footer = 8,
    /// Something that a copy of a placement group must remember, in its data.
    Record = 9,
    /// Attachments of a volume below a generation are fenced off.
    Fence = 10,
}

impl EntryKind {
    fn from_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => EntryKind::Write,
            2 => EntryKind::Trim,
            3 => EntryKind::Zeroes,
            4 => EntryKind::Move,
            5 => EntryKind::Page,
            6 => EntryKind::Checkpoint,
            7 => EntryKind::DeleteLayer,
            8 => EntryKind::Footer,
            9 => EntryKind::Record,
            10 => EntryKind::Fence,
            _ => return None,
        })
    }

    /// Whether it has blocks of data, each with its checksum.
    pub fn has_data(self) -> bool {
        matches!(self, EntryKind::Write | EntryKind::Move | EntryKind::Record)
    }

    /// Whether it changes blocks of a chunk.
    pub fn has_range(self) -> bool {
        matches!(self, EntryKind::Write | EntryKind::Trim | EntryKind::Zeroes | EntryKind::Move)
    }
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug)]
#[repr(C)]
struct HeaderRecord {
    magic: U32,
    header_crc: U32,
    frame_number: U64,
    incarnation: U64,
    segment_generation: U64,
    location: U64,
    acknowledged: U64,
    previous_crc: U32,
    format_version: U16,
    head: u8,
    flags: u8,
    header_blocks: U16,
    contexts: U16,
    entries: U32,
    data_blocks: U32,
    entry_bytes: U32,
    next_segment: U32,
    shard: U32,
    data_crc: U32,
    drive: DriveId,
    incompatible: U32,
    compatible: U32,
    reserved: [u8; 20],
}

/// The header of a frame, checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameHeader {
    /// CRC32C of the header blocks, with this field zero.
    pub header_crc: u32,
    /// Counted over the shard's whole life.
    pub frame_number: u64,
    /// The mount that wrote it.
    pub incarnation: u64,
    /// Generation of the segment: rises with every reuse.
    pub segment_generation: u64,
    /// Where the frame lies.
    pub location: u64,
    /// Highest frame acknowledged when this one was written.
    pub acknowledged: u64,
    /// `header_crc` of the frame numbered one lower.
    pub previous_crc: u32,
    /// The stream it belongs to.
    pub head: Head,
    /// Blocks of the header.
    pub header_blocks: u16,
    /// How many contexts.
    pub contexts: u16,
    /// How many entries.
    pub entries: u32,
    /// Blocks of data behind the header.
    pub data_blocks: u32,
    /// Bytes of contexts and entries.
    pub entry_bytes: u32,
    /// The segment in which this stream goes on.
    pub next_segment: u32,
    /// CRC32C of the data for footers, pages and checkpoints; 0 where each block has its own.
    pub data_crc: u32,
}

impl FrameHeader {
    /// Blocks of the whole frame.
    pub fn blocks(&self) -> u32 {
        u32::from(self.header_blocks) + self.data_blocks
    }

    /// Reads a header from the first block of a frame, without its checksum.
    ///
    /// `None` where it cannot be one: wrong magic, version, drive, shard or impossible lengths.
    pub fn peek(bytes: &[u8], drive: DriveId, shard: u32) -> Option<Self> {
        let (record, _) = HeaderRecord::read_from_prefix(bytes).ok()?;
        let known = record.magic.get() == MAGIC
            && u32::from(record.format_version.get()) == FORMAT_VERSION
            && record.incompatible.get() == 0
            && record.drive == drive
            && record.shard.get() == shard;
        if !known {
            return None;
        }
        let header = FrameHeader {
            header_crc: record.header_crc.get(),
            frame_number: record.frame_number.get(),
            incarnation: record.incarnation.get(),
            segment_generation: record.segment_generation.get(),
            location: record.location.get(),
            acknowledged: record.acknowledged.get(),
            previous_crc: record.previous_crc.get(),
            head: Head::from_number(record.head)?,
            header_blocks: record.header_blocks.get(),
            contexts: record.contexts.get(),
            entries: record.entries.get(),
            data_blocks: record.data_blocks.get(),
            entry_bytes: record.entry_bytes.get(),
            next_segment: record.next_segment.get(),
            data_crc: record.data_crc.get(),
        };
        let room = usize::from(header.header_blocks) * BLOCK_BYTES;
        let contexts = usize::from(header.contexts);
        let fits = header.header_blocks >= 1
            && contexts <= CONTEXTS_MAX
            && HEADER_BYTES + header.entry_bytes as usize <= room
            && contexts * CONTEXT_BYTES <= header.entry_bytes as usize
            && header.data_blocks < 1 << 20;
        fits.then_some(header)
    }

    /// Whether the checksum fits the header blocks.
    pub fn is_intact(&self, header_blocks: &[u8]) -> bool {
        header_blocks.len() == usize::from(self.header_blocks) * BLOCK_BYTES
            && header_checksum(header_blocks) == self.header_crc
    }

    /// Writes the header into the first bytes of its blocks and returns its checksum. Contexts and entries must be
    /// there already.
    pub fn encode(&mut self, header_blocks: &mut [u8], drive: DriveId, shard: u32) -> u32 {
        let record = HeaderRecord {
            magic: MAGIC.into(),
            header_crc: 0.into(),
            frame_number: self.frame_number.into(),
            incarnation: self.incarnation.into(),
            segment_generation: self.segment_generation.into(),
            location: self.location.into(),
            acknowledged: self.acknowledged.into(),
            previous_crc: self.previous_crc.into(),
            format_version: (FORMAT_VERSION as u16).into(),
            head: self.head as u8,
            flags: 0,
            header_blocks: self.header_blocks.into(),
            contexts: self.contexts.into(),
            entries: self.entries.into(),
            data_blocks: self.data_blocks.into(),
            entry_bytes: self.entry_bytes.into(),
            next_segment: self.next_segment.into(),
            shard: shard.into(),
            data_crc: self.data_crc.into(),
            drive,
            incompatible: 0.into(),
            compatible: 0.into(),
            reserved: [0; 20],
        };
        header_blocks[..HEADER_BYTES].copy_from_slice(record.as_bytes());
        self.header_crc = header_checksum(header_blocks);
        header_blocks[HEADER_CRC_OFFSET..HEADER_CRC_OFFSET + 4]
            .copy_from_slice(&self.header_crc.to_le_bytes());
        self.header_crc
    }
}

fn header_checksum(header_blocks: &[u8]) -> u32 {
    let crc = crc32c_bytes(&header_blocks[..HEADER_CRC_OFFSET]);
    let crc = coquina_base::crc32c_append(crc, &[0; 4]);
    coquina_base::crc32c_append(crc, &header_blocks[HEADER_CRC_OFFSET + 4..])
}

/// What several entries of a frame share: whose data it is, and who ordered it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Context {
    layer: U64,
    session: U64,
}

/// The placement group of several entries of a frame, as it was when the first of them was put there. Lies among the
/// contexts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct GroupRecord {
    group: U32,
    /// Lower half of the highest sequence number that was known to be committed.
    committed_low: U32,
    epoch: U64,
}

const _: () = assert!(size_of::<Context>() == CONTEXT_BYTES);
const _: () = assert!(size_of::<GroupRecord>() == CONTEXT_BYTES);

/// The placement group of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryGroup {
    /// Its number; never 0.
    pub group: u32,
    /// The epoch in which the entry was ordered.
    pub epoch: u64,
    /// A sequence number up to which the group was known to be committed; below the entry's own.
    pub committed: u64,
}

impl EntryGroup {
    /// As it lies among the contexts of a frame.
    pub fn encode(&self) -> Context {
        let record = GroupRecord {
            group: self.group.into(),
            committed_low: (self.committed as u32).into(),
            epoch: self.epoch.into(),
        };
        zerocopy::transmute!(record)
    }

    /// Reads the group of an entry with this sequence number. `None` if there can be no such group.
    fn decode(context: Context, sequence: u64) -> Option<Self> {
        let record: GroupRecord = zerocopy::transmute!(context);
        let group = record.group.get();
        let behind = sequence.checked_sub(1)?;
        // The highest number below the entry's that ends as the record says.
        let lag = (behind as u32).wrapping_sub(record.committed_low.get());
        let committed = behind.checked_sub(u64::from(lag))?;
        (group != 0).then_some(EntryGroup { group, epoch: record.epoch.get(), committed })
    }
}

impl Context {
    /// A context.
    pub fn new(layer: LayerId, session: u64) -> Self {
        Context { layer: layer.0.into(), session: session.into() }
    }

    /// The layer.
    pub fn layer(&self) -> LayerId {
        LayerId(self.layer.get())
    }

    /// The client's session; 0 for none.
    pub fn session(&self) -> u64 {
        self.session.get()
    }
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug)]
#[repr(C)]
struct EntryRecord {
    context: u8,
    kind: u8,
    flags: u8,
    group: u8,
    chunk: U32,
    start_block: U16,
    blocks: U16,
}

/// The rest of the fixed part; moves have none.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Debug, Default)]
#[repr(C)]
struct OriginRecord {
    data_offset: U32,
    sequence: U64,
    request: U64,
}

const _: () = assert!(size_of::<EntryRecord>() == MOVE_BYTES);
const _: () = assert!(size_of::<EntryRecord>() + size_of::<OriginRecord>() == ENTRY_BYTES);

/// Flag: an extension of 8 bytes follows the fixed part.
pub const ENTRY_FLAG_EXTENSION: u8 = 1;
/// Flag: more entries of the same request follow; it has taken effect only with the last of them.
pub const ENTRY_FLAG_CONTINUES: u8 = 2;
/// Flag: data that an entry of a placement group brought elsewhere; it has no sequence number of its own.
pub const ENTRY_FLAG_RECOVERED: u8 = 4;
/// Bytes of a fence behind its fixed part: the volume.
pub const FENCE_BYTES: usize = 16;
const ENTRY_FLAGS_KNOWN: u8 = ENTRY_FLAG_EXTENSION | ENTRY_FLAG_CONTINUES | ENTRY_FLAG_RECOVERED;
/// Flags that an older program may ignore.
const ENTRY_FLAGS_COMPATIBLE: u8 = 0xf0;

/// An entry of a frame, borrowed from its header.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// What several entries share.
    pub context: Context,
    /// Its placement group, if it has one.
    pub group: Option<EntryGroup>,
    /// What it does.
    pub kind: EntryKind,
    /// The chunk.
    pub chunk: u32,
    /// First block within the chunk.
    pub start_block: u16,
    /// How many blocks.
    pub blocks: u16,
    /// Blocks (bytes for pages) from the start of the frame's data to the entry's data.
    pub data_offset: u32,
    /// Sequence number within the placement group.
    pub sequence: u64,
    /// Request number; the length in bytes for pages and checkpoints.
    pub request: u64,
    /// Whether more entries of the same request follow.
    pub continues: bool,
    /// Whether it brings data of other entries, and has no sequence number of its own.
    pub recovered: bool,
    /// One CRC32C per block, little-endian.
    checksums: &'a [u8],
    /// For moves: 5 bytes per block, the location moved from.
    sources: &'a [u8],
}

impl Entry<'_> {
    /// CRC32C of the entry's block `index`.
    pub fn checksum(&self, index: usize) -> u32 {
        let bytes = &self.checksums[index * 4..index * 4 + 4];
        u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
    }

    /// The volume of a fence.
    pub fn volume(&self) -> u128 {
        self.checksums.first_chunk::<FENCE_BYTES>().map_or(0, |bytes| u128::from_le_bytes(*bytes))
    }

    /// Location that block `index` of a move came from.
    pub fn source(&self, index: usize) -> u64 {
        let mut bytes = [0; 8];
        let at = index * LOCATION_BYTES;
        bytes[..LOCATION_BYTES].copy_from_slice(&self.sources[at..at + LOCATION_BYTES]);
        u64::from_le_bytes(bytes)
    }
}

/// Iterates over contexts and entries of a header or of a footer's copy of it.
#[derive(Clone)]
pub struct Entries<'a> {
    contexts: &'a [u8],
    rest: &'a [u8],
    left: u32,
    data_blocks: u32,
    /// Blocks of data of the entries so far: where the data of a move lies.
    data_next: u32,
}

impl<'a> Entries<'a> {
    /// Starts at `bytes`, which begins with the contexts.
    pub fn new(bytes: &'a [u8], contexts: u16, entries: u32, data_blocks: u32) -> Option<Self> {
        let split = usize::from(contexts) * CONTEXT_BYTES;
        if split > bytes.len() {
            return None;
        }
        let (contexts, rest) = bytes.split_at(split);
        Some(Entries { contexts, rest, left: entries, data_blocks, data_next: 0 })
    }

    /// Entries of a frame whose header blocks are given.
    pub fn of_frame(header: &FrameHeader, header_blocks: &'a [u8]) -> Option<Self> {
        let end = HEADER_BYTES + header.entry_bytes as usize;
        let bytes = header_blocks.get(HEADER_BYTES..end)?;
        Self::new(bytes, header.contexts, header.entries, header.data_blocks)
    }

    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        if bytes > self.rest.len() {
            return None;
        }
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        Some(taken)
    }

    /// The next entry; `Some(None)` where the bytes are malformed.
    pub fn next_entry(&mut self) -> Option<Option<Entry<'a>>> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let entry = self.parse();
        if entry.is_none() {
            self.left = 0;
        }
        Some(entry)
    }

    fn parse(&mut self) -> Option<Entry<'a>> {
        let record = EntryRecord::read_from_bytes(self.take(MOVE_BYTES)?).ok()?;
        let kind = EntryKind::from_number(record.kind)?;
        let origin = match kind {
            EntryKind::Move => OriginRecord { data_offset: self.data_next.into(), ..Default::default() },
            _ => OriginRecord::read_from_bytes(self.take(ENTRY_BYTES - MOVE_BYTES)?).ok()?,
        };
        if record.flags & !(ENTRY_FLAGS_COMPATIBLE | ENTRY_FLAGS_KNOWN) != 0 {
            return None;
        }
        if record.flags & ENTRY_FLAG_EXTENSION != 0 {
            let extension = self.take(EXTENSION_BYTES)?;
            if extension.iter().any(|byte| *byte != 0) {
                return None;
            }
        }
        let at = usize::from(record.context) * CONTEXT_BYTES;
        let context = Context::read_from_bytes(self.contexts.get(at..at + CONTEXT_BYTES)?).ok()?;
        let group = match record.group {
            GROUP_NONE => None,
            number => {
                let at = usize::from(number) * CONTEXT_BYTES;
                let context = Context::read_from_bytes(self.contexts.get(at..at + CONTEXT_BYTES)?).ok()?;
                Some(EntryGroup::decode(context, origin.sequence.get())?)
            }
        };
        let blocks = usize::from(record.blocks.get());
        let inline_bytes = if kind == EntryKind::Fence { FENCE_BYTES } else { blocks * 4 };
        let checksums =
            if kind.has_data() || kind == EntryKind::Fence { self.take(inline_bytes)? } else { &[] };
        let sources = if kind == EntryKind::Move { self.take(blocks * 5)? } else { &[] };
        let in_chunk = usize::from(record.start_block.get()) + blocks <= coquina_base::CHUNK_BLOCKS as usize;
        let in_data = !kind.has_data()
            || origin.data_offset.get() as u64 + blocks as u64 <= u64::from(self.data_blocks);
        if !in_chunk || !in_data {
            return None;
        }
        if kind.has_data() {
            self.data_next = origin.data_offset.get() + blocks as u32;
        }
        Some(Entry {
            context,
            group,
            kind,
            chunk: record.chunk.get(),
            start_block: record.start_block.get(),
            blocks: record.blocks.get(),
            data_offset: origin.data_offset.get(),
            sequence: origin.sequence.get(),
            request: origin.request.get(),
            continues: record.flags & ENTRY_FLAG_CONTINUES != 0,
            recovered: record.flags & ENTRY_FLAG_RECOVERED != 0,
            checksums,
            sources,
        })
    }
}

/// The fixed part of an entry that is about to be written.
#[derive(Clone, Copy, Debug)]
pub struct NewEntry {
    /// Index of its context.
    pub context: u8,
    /// Index of the context of its placement group, if it has one.
    pub group: Option<u8>,
    /// What it does.
    pub kind: EntryKind,
    /// The chunk.
    pub chunk: u32,
    /// First block.
    pub start_block: u16,
    /// How many blocks.
    pub blocks: u16,
    /// See [`Entry::data_offset`].
    pub data_offset: u32,
    /// Sequence number.
    pub sequence: u64,
    /// Request number, or length in bytes.
    pub request: u64,
    /// Whether more entries of the same request follow.
    pub continues: bool,
    /// Whether it brings data of other entries of its group.
    pub recovered: bool,
}

impl NewEntry {
    /// Appends the fixed part. A move's data must lie behind that of the entry before.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let record = EntryRecord {
            context: self.context,
            kind: self.kind as u8,
            flags: (if self.continues { ENTRY_FLAG_CONTINUES } else { 0 })
                | if self.recovered { ENTRY_FLAG_RECOVERED } else { 0 },
            group: self.group.unwrap_or(GROUP_NONE),
            chunk: self.chunk.into(),
            start_block: self.start_block.into(),
            blocks: self.blocks.into(),
        };
        out.extend_from_slice(record.as_bytes());
        if self.kind == EntryKind::Move {
            assert!(
                self.sequence == 0 && self.request == 0 && self.group.is_none(),
                "nobody asked for a move"
            );
            return;
        }
        let origin = OriginRecord {
            data_offset: self.data_offset.into(),
            sequence: self.sequence.into(),
            request: self.request.into(),
        };
        out.extend_from_slice(origin.as_bytes());
    }
}

/// Appends a location as 5 bytes.
pub fn encode_location(location: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&location.to_le_bytes()[..LOCATION_BYTES]);
}

#[cfg(test)]
mod tests;
