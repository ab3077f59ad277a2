//! The log: frames being built, frames on their way to the drive, and where each stream goes on.
//!
//! Invariants:
//! - a frame gets its number and place when it is sealed, never before;
//! - frames count in the order of their numbers: one that is durable waits for all earlier ones.

use std::collections::VecDeque;

use coquina_base::{AlignedBuf, BLOCK_BYTES};

use crate::frame::{
    CONTEXT_BYTES, CONTEXTS_MAX, Context, EntryGroup, FrameHeader, HEADER_BYTES, Head, LOCATION_BYTES,
    NewEntry, encode_location,
};

/// Who waits for an entry: an index into the shard's changes.
pub type ChangeKey = u32;
/// Stands for nobody.
pub const CHANGE_NONE: ChangeKey = u32::MAX;

/// A frame that is being filled.
#[derive(Default)]
pub struct Builder {
    /// Tells it from the frames that are filled before and after it.
    pub serial: u64,
    /// Header block and data.
    pub buffer: AlignedBuf,
    /// Contexts so far.
    pub contexts: Vec<Context>,
    /// Where the placement groups of its entries lie among the contexts.
    pub groups: Vec<(EntryGroup, u8)>,
    /// Encoded entries so far.
    pub entries: Vec<u8>,
    /// How many entries.
    pub entry_count: u32,
    /// Blocks of data so far.
    pub data_blocks: u32,
    /// Bytes of pages or checkpoint so far; they become data when the frame is sealed.
    pub page_bytes: Vec<u8>,
    /// Changes that have entries here, one per entry of theirs.
    pub changes: Vec<ChangeKey>,
    /// Whether any entry needs a segment that only reserves may give: trims and deletes.
    pub only_metadata: bool,
    /// Bytes of records of placement groups so far.
    pub record_bytes: u64,
    /// Where its moves come from.
    origins: Vec<MoveOrigin>,
}

/// Where the blocks of a move come from.
struct MoveOrigin {
    /// Its first source among the encoded entries.
    at: usize,
    blocks: u16,
    /// Blocks of data before its own.
    data_offset: u32,
    segment: u32,
    /// That of the segment when the blocks were read there.
    generation: u64,
}

impl Builder {
    /// Makes it empty with the given buffer.
    pub fn reset(&mut self, buffer: AlignedBuf) {
        self.buffer = buffer;
        self.buffer.resize_blocks(1);
        self.buffer.fill(0);
        self.contexts.clear();
        self.groups.clear();
        self.entries.clear();
        self.entry_count = 0;
        self.data_blocks = 0;
        self.page_bytes.clear();
        self.changes.clear();
        self.only_metadata = true;
        self.record_bytes = 0;
        self.origins.clear();
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.entry_count == 0
    }

    /// Bytes of contexts and entries.
    pub fn entry_bytes(&self) -> usize {
        self.contexts.len() * CONTEXT_BYTES + self.entries.len()
    }

    /// Bytes left in the header for entries that may need new contexts.
    pub fn room_bytes(&self, context: &Context, group: Option<&EntryGroup>) -> usize {
        // As in `context` and `group_context`: the newest is the likeliest.
        let has_context = self.contexts.iter().rev().any(|known| known == context);
        let has_group = group.is_none_or(|group| self.group_context_of(group).is_some());
        let needed = usize::from(!has_context) + usize::from(!has_group);
        if self.contexts.len() + needed > CONTEXTS_MAX {
            return 0;
        }
        (BLOCK_BYTES - HEADER_BYTES).saturating_sub(self.entry_bytes() + needed * CONTEXT_BYTES)
    }

    /// Index of a context, added if it is new.
    pub fn context(&mut self, context: Context) -> u8 {
        // The newest is the likeliest.
        match self.contexts.iter().rposition(|known| *known == context) {
            Some(index) => index as u8,
            None => {
                self.contexts.push(context);
                (self.contexts.len() - 1) as u8
            }
        }
    }

    fn group_context_of(&self, group: &EntryGroup) -> Option<u8> {
        let same = |known: &&(EntryGroup, u8)| (known.0.group, known.0.epoch) == (group.group, group.epoch);
        self.groups.iter().rfind(same).map(|(_, index)| *index)
    }

    /// Index of the context of a placement group, added if it is new.
    pub fn group_context(&mut self, group: &EntryGroup) -> u8 {
        self.group_context_of(group).unwrap_or_else(|| {
            self.contexts.push(group.encode());
            let index = (self.contexts.len() - 1) as u8;
            self.groups.push((*group, index));
            index
        })
    }

    /// Adds an entry with its checksums; moves are added by [`Builder::add_move`].
    pub fn add(&mut self, entry: &NewEntry, checksums: impl Iterator<Item = u32>) {
        entry.encode(&mut self.entries);
        checksums.for_each(|checksum| self.entries.extend_from_slice(&checksum.to_le_bytes()));
        self.entry_count += 1;
    }

    /// Adds a move with its checksums, the locations that its blocks come from, and their segment as it is now.
    pub fn add_move(
        &mut self,
        entry: &NewEntry,
        checksums: impl Iterator<Item = u32>,
        sources: impl Iterator<Item = u64>,
        (segment, generation): (u32, u64),
    ) {
        self.add(entry, checksums);
        let at = self.entries.len();
        sources.for_each(|source| encode_location(source, &mut self.entries));
        let (blocks, data_offset) = (entry.blocks, entry.data_offset);
        self.origins.push(MoveOrigin { at, blocks, data_offset, segment, generation });
    }

    /// Takes the effect from moves whose segment has been written again since their blocks were read there: what the index points to
    /// there now is something else. Their sources become the places to which they move, to which it cannot point yet. `data` is where
    /// the frame's data will lie, `generation_of` says what a segment is now. Gives the number of their blocks.
    ///
    /// What is written there after this has a higher frame number and is applied after the move.
    pub fn disarm_stale_moves(&mut self, data: u64, generation_of: impl Fn(u32) -> u64) -> u64 {
        let mut blocks = 0;
        let stale = self.origins.iter().filter(|origin| generation_of(origin.segment) != origin.generation);
        for origin in stale {
            let end = origin.at + usize::from(origin.blocks) * LOCATION_BYTES;
            let sources = self.entries[origin.at..end].chunks_exact_mut(LOCATION_BYTES);
            for (source, location) in sources.zip(data + u64::from(origin.data_offset)..) {
                source.copy_from_slice(&location.to_le_bytes()[..LOCATION_BYTES]);
                blocks += 1;
            }
        }
        blocks
    }

    /// Blocks of the frame if it were sealed now.
    pub fn blocks(&self) -> u32 {
        1 + self.data_blocks + self.page_bytes.len().div_ceil(BLOCK_BYTES) as u32
    }
}

/// A frame on its way.
pub struct Flight {
    /// Its header.
    pub header: FrameHeader,
    /// Whole frame, when it has come back from the drive.
    pub buffer: Option<AlignedBuf>,
    /// Who waits.
    pub changes: Vec<ChangeKey>,
    /// On stable storage.
    pub durable: bool,
    /// Whether this is the footer that closes a segment.
    pub is_footer: bool,
}

/// Where a stream goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HeadPosition {
    /// The open segment.
    pub segment: Option<u32>,
    /// Blocks written in it.
    pub offset: u32,
    /// Its generation.
    pub generation: u64,
    /// The segment after it.
    pub next: Option<u32>,
}

/// One stream.
#[derive(Default)]
pub struct Stream {
    /// Where the next frame goes.
    pub position: HeadPosition,
    /// Where it went on behind the last frame that counts.
    pub applied: HeadPosition,
    /// Records of the open segment's frames, for its footer.
    pub footer: Vec<u8>,
    /// How many frames the footer has.
    pub footer_frames: u32,
    /// The frame that is being filled.
    pub building: Builder,
    /// Frames that are full and wait for their turn.
    pub queue: VecDeque<Builder>,
    /// Frames that have had it since the shard was opened.
    pub sealed: u64,
    /// Frames on their way.
    pub in_flight: u32,
    /// Blocks of data in them.
    pub in_flight_blocks: u32,
}

impl Stream {
    /// Whether something waits to be sealed.
    pub fn has_work(&self) -> bool {
        !self.queue.is_empty() || !self.building.is_empty()
    }
}

/// The log of a shard.
pub struct Log {
    /// Streams by number of their head.
    pub streams: [Stream; 3],
    /// Frames on their way, in order of their numbers.
    pub flights: VecDeque<Flight>,
    /// Number of the next frame.
    pub frame_next: u64,
    /// Highest frame that counts.
    pub applied: u64,
    /// The same of those that replay needs, for they are not of the stream of pages and checkpoints.
    pub applied_data: u64,
    /// Checksum of the header of the last sealed frame.
    pub previous_crc: u32,
    /// The same of the last frame that counts.
    pub applied_crc: u32,
    /// The serial given last.
    pub serial: u64,
    /// Entries of changes put into frames since the shard was opened.
    pub entries: u64,
    /// Bytes of records of placement groups in frames that are on their way: the next checkpoint may hold as much more.
    pub record_bytes_in_flight: u64,
    /// Emptied builders, to be used again.
    pub spare: Vec<Builder>,
    /// Bytes of data frames since the shard was opened; a checkpoint's own frames are not counted.
    pub sealed_bytes: u64,
}

impl Log {
    /// A log that goes on behind a frame.
    pub fn new(applied: u64, applied_crc: u32) -> Self {
        Log {
            streams: Default::default(),
            flights: VecDeque::new(),
            frame_next: applied + 1,
            applied,
            applied_data: 0,
            previous_crc: applied_crc,
            applied_crc,
            serial: 0,
            entries: 0,
            record_bytes_in_flight: 0,
            spare: Vec::new(),
            sealed_bytes: 0,
        }
    }

    /// An empty frame to be filled.
    pub fn builder(&mut self, buffer: AlignedBuf) -> Builder {
        let mut builder = self.spare.pop().unwrap_or_default();
        builder.reset(buffer);
        self.serial += 1;
        builder.serial = self.serial;
        builder
    }

    /// A stream.
    pub fn stream(&mut self, head: Head) -> &mut Stream {
        &mut self.streams[head as usize]
    }

    /// The flight of a frame.
    pub fn flight_mut(&mut self, frame_number: u64) -> Option<&mut Flight> {
        let first = self.flights.front()?.header.frame_number;
        self.flights.get_mut(frame_number.checked_sub(first)? as usize)
    }

    /// Whether nothing is being built or on its way.
    pub fn is_quiet(&self) -> bool {
        self.flights.is_empty() && self.streams.iter().all(|stream| !stream.has_work())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use coquina_base::LayerId;
    use zerocopy::IntoBytes;

    use super::*;
    use crate::frame::{Entries, EntryKind};

    const DATA: u64 = 5_001;

    /// A frame with two moves, of two blocks from segment 3 and of one from segment 4: their sources after it was sealed.
    fn sources_when_sealed(generation_of: impl Fn(u32) -> u64) -> Vec<u64> {
        let mut builder = Builder::default();
        builder.reset(AlignedBuf::new());
        for (segment, sources) in [(3, &[300, 301][..]), (4, &[402][..])] {
            let entry = NewEntry {
                context: builder.context(Context::new(LayerId(9), 0)),
                group: None,
                kind: EntryKind::Move,
                chunk: 0,
                start_block: 0,
                blocks: sources.len() as u16,
                data_offset: builder.data_blocks,
                sequence: 0,
                request: 0,
                continues: false,
                recovered: false,
            };
            let checksums = sources.iter().map(|_| 0);
            builder.add_move(&entry, checksums, sources.iter().copied(), (segment, 7));
            builder.data_blocks += sources.len() as u32;
        }
        builder.disarm_stale_moves(DATA, generation_of);
        let bytes = [builder.contexts.as_slice().as_bytes(), &builder.entries[..]].concat();
        let mut entries = Entries::new(&bytes, 1, builder.entry_count, builder.data_blocks).unwrap();
        let mut sources = Vec::new();
        while let Some(entry) = entries.next_entry() {
            let entry = entry.unwrap();
            sources.extend((0..usize::from(entry.blocks)).map(|index| entry.source(index)));
        }
        sources
    }

    /// Users had overwritten a victim's last blocks while the moves of these waited for their frame: the victim was written again, perhaps
    /// with newer data of the same blocks in the same places, and the move would have put the older data in their place.
    #[test]
    fn a_move_from_a_segment_that_was_written_again_has_no_effect() {
        assert_eq!(sources_when_sealed(|_| 7), [300, 301, 402]);
        assert_eq!(sources_when_sealed(|segment| 7 + u64::from(segment == 3)), [DATA, DATA + 1, 402]);
        assert_eq!(sources_when_sealed(|segment| 7 + u64::from(segment == 4)), [300, 301, DATA + 2]);
    }
}
