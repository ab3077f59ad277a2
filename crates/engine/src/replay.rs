//! The chain of frames behind a checkpoint, read back in order.
//!
//! Each stream offers its next frame; the one whose number and chained checksum fit is next. Full segments are read
//! through their footers, others frame by frame. Where no stream can go on, either the log ends there (a torn tail:
//! nothing behind it was acknowledged), or a later frame proves that something acknowledged cannot be read: damage.

use std::collections::VecDeque;

use coquina_base::{AlignedBuf, BLOCK_BYTES, DriveId, crc32c_block, crc32c_bytes};

use crate::api::{Device, FULL_FRAMES_IN_FLIGHT_LIMIT, IoError};
use crate::footer::{self, Trailer};
use crate::frame::{Entries, FrameHeader, HEADER_BYTES, Head};
use crate::geometry::Geometry;
use crate::known_bad::is_stand_in;
use crate::log::HeadPosition;
use crate::superblock::ShardSuperblock;

/// Blocks read at a time while a segment is walked.
pub const WINDOW_BLOCKS: u32 = 64;

/// A frame read back: its header and the bytes of its contexts and entries.
#[derive(Clone, Debug)]
pub struct ReplayFrame {
    /// The header.
    pub header: FrameHeader,
    /// Contexts and entries; empty for a footer.
    pub entry_bytes: Vec<u8>,
    /// Whether it is a footer.
    pub is_footer: bool,
}

/// What cannot be read although it was acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lost {
    /// First frame lost.
    pub first_frame: u64,
    /// First frame that can be read again.
    pub next_frame: u64,
    /// Where the next frame of a stream was expected.
    pub location: u64,
}

impl ReplayFrame {
    /// Whether it holds the root of the checkpoint whose root lies there: a root begins its frame's data.
    pub fn holds_root(&self, root_location: u64) -> bool {
        let data = self.header.location + u64::from(self.header.header_blocks);
        self.header.head == Head::Meta && !self.is_footer && data == root_location
    }
}

/// Reads blocks of a shard's segments.
pub struct BlockReader<'a> {
    pub(crate) device: &'a mut dyn Device,
    pub(crate) geometry: Geometry,
    pub(crate) drive: DriveId,
    pub(crate) shard: u32,
}

impl BlockReader<'_> {
    /// Reads blocks into a buffer.
    pub fn read(&mut self, location: u64, blocks: u32, buffer: &mut AlignedBuf) -> Result<(), IoError> {
        buffer.resize_blocks(blocks as usize);
        self.device.read(self.geometry.offset_bytes(location), buffer)
    }
}

/// A full segment's frames, from its footer; the footer itself is the last.
type Listed = VecDeque<ReplayFrame>;

/// One stream's place in the chain.
#[derive(Default)]
struct Cursor {
    position: HeadPosition,
    listed: Option<Listed>,
    /// The segment whose trailer was looked at.
    looked_at: Option<u32>,
    window: AlignedBuf,
    window_start: u64,
    offered: Option<ReplayFrame>,
}

/// The chain of frames.
pub struct Chain<'a> {
    pub(crate) reader: BlockReader<'a>,
    superblock: &'a ShardSuperblock,
    cursors: [Cursor; 3],
    last: u64,
    last_crc: u32,
    /// Highest frame proven acknowledged.
    pub acknowledged: u64,
    /// A deliberate mistake: frames of earlier mounts count.
    #[cfg(feature = "mutations")]
    pub stale_counts: bool,
}

/// The next step of a chain.
pub enum Step {
    /// The next frame.
    Frame(ReplayFrame),
    /// Nothing more that counts.
    End,
    /// Acknowledged frames cannot be read.
    Lost(Lost),
}

impl<'a> Chain<'a> {
    /// Starts behind a frame, with the positions of the streams there.
    pub fn new(
        reader: BlockReader<'a>,
        superblock: &'a ShardSuperblock,
        positions: [HeadPosition; 3],
        last: u64,
        last_crc: u32,
    ) -> Self {
        // The last mount began when everything before it had been read whole and made durable.
        let mounted = superblock.incarnations.last().map_or(0, |mount| mount.first_frame.saturating_sub(1));
        let cursors = positions.map(|position| Cursor { position, ..Cursor::default() });
        Chain {
            reader,
            superblock,
            cursors,
            last,
            last_crc,
            acknowledged: last.max(mounted),
            #[cfg(feature = "mutations")]
            stale_counts: false,
        }
    }

    /// The number of the next frame.
    pub fn next_number(&self) -> u64 {
        self.last + 1
    }

    /// The next frame of the chain.
    pub fn next_step(&mut self) -> Result<Step, IoError> {
        for head in 0..3 {
            if self.cursors[head].offered.is_none() {
                let offered = self.offer(head)?;
                self.cursors[head].offered = offered;
            }
        }
        let wanted = self.last + 1;
        #[cfg(feature = "mutations")]
        let stale_counts = self.stale_counts;
        #[cfg(not(feature = "mutations"))]
        let stale_counts = false;
        let fits = |frame: &ReplayFrame, crc: u32| {
            frame.header.frame_number == wanted && (frame.header.previous_crc == crc || stale_counts)
        };
        let last_crc = self.last_crc;
        let found = (0..3)
            .find(|head| self.cursors[*head].offered.as_ref().is_some_and(|frame| fits(frame, last_crc)));
        if let Some(head) = found {
            let Some(frame) = self.cursors[head].offered.take() else { return Ok(Step::End) };
            self.take(head, &frame);
            return Ok(Step::Frame(frame));
        }
        Ok(self.end_or_lost())
    }

    fn is_owner(&self, frame_number: u64, incarnation: u64) -> bool {
        #[cfg(feature = "mutations")]
        if self.stale_counts {
            return true;
        }
        self.superblock.owner(frame_number) == Some(incarnation)
    }

    fn take(&mut self, head: usize, frame: &ReplayFrame) {
        let header = frame.header;
        self.last = header.frame_number;
        self.last_crc = header.header_crc;
        self.acknowledged = self.acknowledged.max(header.acknowledged);
        if self.superblock.checkpoint != 0 && frame.holds_root(self.superblock.root_location) {
            // The superblock names a root only once it and all before it was applied.
            self.acknowledged = self.acknowledged.max(header.frame_number);
        }
        let geometry = self.reader.geometry;
        let cursor = &mut self.cursors[head];
        let next = Some(header.next_segment).filter(|next| *next < geometry.segments);
        if frame.is_footer {
            cursor.position = HeadPosition { segment: None, offset: 0, generation: 0, next };
            cursor.listed = None;
            return;
        }
        let segment = geometry.segment_of(header.location);
        let offset = (header.location - geometry.segment_start(segment)) as u32 + header.blocks();
        cursor.position =
            HeadPosition { segment: Some(segment), offset, generation: header.segment_generation, next };
        if let Some(listed) = &mut cursor.listed {
            listed.pop_front();
        }
    }

    /// The next frame of a stream, whatever its number.
    ///
    /// What cannot be read is an error, not an end: it may have been acknowledged.
    fn offer(&mut self, head: usize) -> Result<Option<ReplayFrame>, IoError> {
        let position = self.cursors[head].position;
        let Some(segment) = position.segment.or(position.next) else { return Ok(None) };
        if segment >= self.reader.geometry.segments {
            return Ok(None);
        }
        if self.cursors[head].looked_at != Some(segment) {
            self.cursors[head].looked_at = Some(segment);
            // Where it cannot be read, the frames themselves may be.
            self.cursors[head].listed = self.read_footer(head, segment, position).unwrap_or(None);
        }
        if self.cursors[head].listed.is_some() {
            return Ok(self.offer_listed(head));
        }
        let offset = if position.segment.is_some() { position.offset } else { 0 };
        match self.offer_walked(head, segment, offset)? {
            // The footer itself, which does not follow the last frame at once.
            None => Ok(self.read_footer(head, segment, position)?.and_then(|mut listed| listed.pop_back())),
            walked => Ok(walked),
        }
    }

    fn offer_listed(&mut self, head: usize) -> Option<ReplayFrame> {
        let last = self.last;
        let listed = self.cursors[head].listed.as_mut()?;
        while listed.front().is_some_and(|frame| frame.header.frame_number <= last) {
            listed.pop_front();
        }
        listed.front().cloned()
    }

    /// Reads a segment's footer, if it has one that counts.
    fn read_footer(
        &mut self,
        head: usize,
        segment: u32,
        position: HeadPosition,
    ) -> Result<Option<Listed>, IoError> {
        let geometry = self.reader.geometry;
        let start = geometry.segment_start(segment);
        let end = start + u64::from(geometry.segment_blocks);
        let mut buffer = AlignedBuf::new();
        self.reader.read(end - 1, 1, &mut buffer)?;
        let Some(trailer) = Trailer::decode(&buffer) else { return Ok(None) };
        let known = position.segment.is_none() || trailer.segment_generation == position.generation;
        let in_place = trailer.location >= start && trailer.location + u64::from(trailer.blocks) == end;
        if !known || !in_place || trailer.frame_number <= self.last {
            return Ok(None);
        }
        if !self.is_owner(trailer.frame_number, trailer.incarnation) {
            return Ok(None);
        }
        let mut data = AlignedBuf::new();
        self.reader.read(trailer.location, trailer.blocks, &mut data)?;
        Ok(self.list_frames(head, &trailer, &data))
    }

    fn list_frames(&self, head: usize, trailer: &Trailer, data: &[u8]) -> Option<Listed> {
        let header = FrameHeader::peek(data, self.reader.drive, self.reader.shard)?;
        let intact = header.header_blocks == 1
            && header.is_intact(&data[..BLOCK_BYTES])
            && header.location == trailer.location
            && header.blocks() == trailer.blocks
            && header.frame_number == trailer.frame_number
            && header.segment_generation == trailer.segment_generation
            && header.head as usize == head
            && header.data_crc == crc32c_bytes(&data[BLOCK_BYTES..]);
        if !intact {
            return None;
        }
        let frames = footer::list(data, &header, trailer.frames)?;
        let listed = frames.iter().map(|frame| ReplayFrame {
            header: frame.header,
            entry_bytes: frame.entry_bytes().to_vec(),
            is_footer: false,
        });
        Some(listed.chain([ReplayFrame { header, entry_bytes: Vec::new(), is_footer: true }]).collect())
    }

    fn offer_walked(
        &mut self,
        head: usize,
        segment: u32,
        offset: u32,
    ) -> Result<Option<ReplayFrame>, IoError> {
        if offset >= self.reader.geometry.segment_blocks {
            return Ok(None);
        }
        let location = self.reader.geometry.segment_start(segment) + u64::from(offset);
        let frame = self.frame_at(head, location)?;
        let position = self.cursors[head].position;
        Ok(frame.filter(|frame| {
            let known = position.segment.is_none() || frame.header.segment_generation == position.generation;
            known && frame.header.head as usize == head
        }))
    }

    /// A frame whose header is intact and belongs to the mount that owns its number.
    fn frame_at(&mut self, head: usize, location: u64) -> Result<Option<ReplayFrame>, IoError> {
        let geometry = self.reader.geometry;
        let segment = geometry.segment_of(location);
        let end = geometry.segment_start(segment) + u64::from(geometry.segment_blocks);
        let cursor = &mut self.cursors[head];
        let held = cursor.window_start..cursor.window_start + cursor.window.blocks() as u64;
        if !held.contains(&location) {
            let blocks = (end - location).min(u64::from(WINDOW_BLOCKS)) as u32;
            cursor.window_start = location;
            if self.reader.read(location, blocks, &mut cursor.window).is_err() {
                // Part of the window may be readable: this block alone.
                if let Err(error) = self.reader.read(location, 1, &mut cursor.window) {
                    cursor.window.clear();
                    return Err(error);
                }
            }
        }
        let cursor = &self.cursors[head];
        let at = (location - cursor.window_start) as usize * BLOCK_BYTES;
        let block = cursor.window.get(at..at + BLOCK_BYTES);
        Ok(block.and_then(|block| self.frame_in(block, location, end)))
    }

    fn frame_in(&self, block: &[u8], location: u64, end: u64) -> Option<ReplayFrame> {
        let header = FrameHeader::peek(block, self.reader.drive, self.reader.shard)?;
        let fits = header.header_blocks == 1
            && header.location == location
            && location + u64::from(header.blocks()) <= end
            && header.is_intact(block)
            && self.is_owner(header.frame_number, header.incarnation);
        if !fits {
            return None;
        }
        let is_footer = header.entries == 0;
        let entry_bytes = block[HEADER_BYTES..HEADER_BYTES + header.entry_bytes as usize].to_vec();
        Some(ReplayFrame { header, entry_bytes, is_footer })
    }

    /// No stream goes on with the wanted frame: looks for proof that it was acknowledged.
    ///
    /// Any later frame may be the proof: the next ones were perhaps on their way together with the wanted one, and
    /// prove nothing.
    fn end_or_lost(&mut self) -> Step {
        let wanted = self.last + 1;
        let mut search = Search { wanted, acknowledged: self.acknowledged, lowest: None };
        let mut location = 0;
        for head in 0..3 {
            let position = self.cursors[head].position;
            let Some(segment) = position.segment.or(position.next) else { continue };
            if segment >= self.reader.geometry.segments {
                continue;
            }
            let offset = if position.segment.is_some() { position.offset } else { 0 };
            if let Some(frame) = self.cursors[head].offered.clone() {
                search.see(&frame.header);
            } else {
                location = self.reader.geometry.segment_start(segment) + u64::from(offset);
            }
            for listed in self.cursors[head].listed.iter().flatten() {
                search.see(&listed.header);
            }
            self.search_stream(head, segment, offset, &mut search);
        }
        // A frame behind a gap proves what lies before the gap, too.
        self.acknowledged = search.acknowledged;
        if search.acknowledged < wanted {
            return Step::End;
        }
        let next_frame = search.lowest.unwrap_or(wanted + 1);
        Step::Lost(Lost { first_frame: wanted, next_frame, location })
    }

    /// Looks at all frames that a stream has from a place on.
    fn search_stream(&mut self, head: usize, segment: u32, offset: u32, search: &mut Search) {
        let geometry = self.reader.geometry;
        let (mut segment, mut offset) = (segment, offset);
        // However damaged the pointers are, it ends.
        for _ in 0..SEARCH_SEGMENTS_MAX {
            let start = geometry.segment_start(segment);
            let mut next = self.cursors[head].position.next.filter(|next| *next != segment);
            let mut found = false;
            while offset < geometry.segment_blocks {
                // Where nothing is expected, what cannot be read says nothing.
                let frame = self.frame_at(head, start + u64::from(offset)).unwrap_or(None);
                let header = frame.map(|frame| frame.header);
                match header.filter(|header| header.head as usize == head && header.frame_number > self.last)
                {
                    Some(header) => {
                        search.see(&header);
                        found = true;
                        next = Some(header.next_segment);
                        offset += header.blocks();
                    }
                    None => offset += 1,
                }
            }
            match next.filter(|next| *next < geometry.segments && *next != segment) {
                // The first segment may have lost all its frames; a later one without any is the end.
                Some(next) if found || segment == self.cursors[head].position.segment.unwrap_or(segment) => {
                    (segment, offset) = (next, 0);
                }
                _ => return,
            }
        }
    }
}

/// Segments of a stream behind the end of the chain that are looked at for proof: more than the frames that can be on
/// their way together fill, at three frames to the smallest segment.
const SEARCH_SEGMENTS_MAX: u32 = 16;
const _: () = assert!(SEARCH_SEGMENTS_MAX > FULL_FRAMES_IN_FLIGHT_LIMIT / 3 + 2);

/// What is known of the frames behind the end of the chain.
struct Search {
    wanted: u64,
    /// Up to here frames are proven to have been acknowledged.
    acknowledged: u64,
    /// Lowest number of a frame that can be read.
    lowest: Option<u64>,
}

impl Search {
    fn see(&mut self, header: &FrameHeader) {
        if header.frame_number < self.wanted {
            return;
        }
        self.acknowledged = self.acknowledged.max(header.acknowledged);
        if header.frame_number == self.wanted {
            return;
        }
        self.lowest = Some(self.lowest.map_or(header.frame_number, |known| known.min(header.frame_number)));
    }
}

/// Whether a frame's header and all its data are on the drive as they were written: for frames of which no later
/// one proves that they were acknowledged. What cannot be read may be whole: that is an error.
pub fn is_whole(reader: &mut BlockReader<'_>, frame: &ReplayFrame) -> Result<bool, IoError> {
    let header = &frame.header;
    let mut buffer = AlignedBuf::new();
    reader.read(header.location, header.blocks(), &mut buffer)?;
    Ok(is_whole_in(&buffer, reader, frame).unwrap_or(false))
}

fn is_whole_in(buffer: &[u8], reader: &BlockReader<'_>, frame: &ReplayFrame) -> Option<bool> {
    let header = &frame.header;
    let split = usize::from(header.header_blocks) * BLOCK_BYTES;
    // The header on the drive: a footer does not keep all of it.
    let found = FrameHeader::peek(buffer, reader.drive, reader.shard)
        .filter(|found| found.header_crc == header.header_crc && found.is_intact(&buffer[..split]));
    let found = found?;
    let data = &buffer[split..];
    if frame.is_footer || header.head == Head::Meta {
        return Some(found.data_crc == crc32c_bytes(data));
    }
    let mut entries = Entries::of_frame(header, &buffer[..split])?;
    while let Some(entry) = entries.next_entry() {
        let entry = entry?;
        if !entry.kind.has_data() {
            continue;
        }
        for index in 0..usize::from(entry.blocks) {
            let at = (entry.data_offset as usize + index) * BLOCK_BYTES;
            let good = data.get(at..at + BLOCK_BYTES).is_some_and(|block| {
                crc32c_block(block) == entry.checksum(index)
                    || is_stand_in(block, reader.drive, reader.shard, found.incarnation, &entry, index)
            });
            if !good {
                return None;
            }
        }
    }
    Some(true)
}
