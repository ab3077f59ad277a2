//! Sealing: a filled frame gets its number and place and goes to the drive.

use coquina_base::{BLOCK_BYTES, crc32c_bytes};

use crate::api::{Action, FULL_FRAMES_IN_FLIGHT_LIMIT};
use crate::cache::cache_key;
use crate::footer::{self, RECORD_BYTES, Trailer, footer_blocks};
use crate::frame::{CONTEXT_BYTES, FrameHeader, HEADER_BYTES, Head};
use crate::index_region::{PageRef, RegionKey};
use crate::log::{Builder, Flight};
use crate::shard::{IoPurpose, Shard};
use zerocopy::IntoBytes;

/// Frames of index pages that are on their way at the same time.
const META_FRAMES_MAX: u32 = 3;
/// Frames of moved data that are on their way at the same time: with 3, users of a full drive waited for the cleaner.
const COLD_FRAMES_MAX: u32 = 6;
/// Segments kept for a checkpoint besides what it is known to need: one because the open segment may have no room for the
/// next frame, one for pages that it writes again to empty others.
const SPARE_SEGMENTS: u32 = 2;
/// Bytes of log that an index page takes at most, with its entry and its record in the checkpoint.
const PAGE_COST_MAX: u64 = 2432;
/// The same of a page whose blocks are not counted.
const PAGE_COST: u64 = 128;
/// What a block adds to its page at most: a run and a checksum.
const BLOCK_COST: u64 = 14;
/// Checkpoints whose segments are taken, or kept, at the same time.
const CHECKPOINTS_HELD: u32 = 3;
/// Tables of up to this part of a segment have room in what each shard keeps for checkpoints.
const SMALL_TABLES: u64 = 4;

impl Shard {
    pub(crate) fn seal_all(&mut self) {
        for head in [Head::Hot, Head::Meta, Head::Cold] {
            while self.poisoned.is_none() && self.seal(head) {}
        }
    }

    fn seal(&mut self, head: Head) -> bool {
        if !self.is_due(head) {
            return false;
        }
        if head != Head::Meta && self.checkpoint_comes_first() {
            return false;
        }
        let stream = self.log.stream(head);
        let next = stream.queue.front().unwrap_or(&stream.building);
        let (blocks, entry_bytes, metadata) = (next.blocks(), next.entry_bytes(), next.only_metadata);
        let has_room = self.make_room(head, blocks, entry_bytes, metadata);
        if head == Head::Cold {
            self.cold_stalled = !has_room;
        }
        if !has_room {
            return false;
        }
        if self.log.stream(head).queue.is_empty() {
            self.rotate(head);
        }
        let Some(builder) = self.log.stream(head).queue.pop_front() else { return false };
        self.log.stream(head).sealed += 1;
        self.log.record_bytes_in_flight += builder.record_bytes;
        if head == Head::Hot {
            self.cleaner.count_hot(builder.blocks());
        }
        self.send_frame(head, builder);
        true
    }

    /// Whether a stream's next frame may go now. A full one goes while the drive takes more; one that still grows
    /// waits for its predecessors, so that batches form under load and not when idle.
    fn is_due(&mut self, head: Head) -> bool {
        let (growing_max, full_max) =
            (self.config.frames_in_flight_max, self.config.full_frames_in_flight_max);
        let full_max = full_max.max(growing_max).min(FULL_FRAMES_IN_FLIGHT_LIMIT);
        let batch_blocks_min = self.config.batch_blocks_min;
        let loaded_min = self.config.batch_blocks_loaded_min;
        let is_flushing = self.cleaner.flushing;
        // A frame for each page that has to be read first would take 20 times the room that is kept for it.
        let more_pages_come = self.checkpoint.is_collecting();
        let stream = self.log.stream(head);
        let is_full = !stream.queue.is_empty();
        if !stream.has_work() {
            return false;
        }
        match head {
            Head::Hot if is_full => stream.in_flight < full_max,
            Head::Hot => {
                let growing_max = growing_max.min(FULL_FRAMES_IN_FLIGHT_LIMIT);
                let blocks = stream.building.data_blocks;
                let under_way = stream.in_flight_blocks + blocks;
                let least = (under_way / 2).min(loaded_min).max(batch_blocks_min);
                let is_large = stream.in_flight == 0 || blocks >= least;
                is_large && stream.in_flight < growing_max
            }
            Head::Meta => stream.in_flight < META_FRAMES_MAX && (is_full || !more_pages_come),
            Head::Cold => stream.in_flight < COLD_FRAMES_MAX && (is_full || is_flushing),
        }
    }

    /// Makes sure that a frame fits behind the stream's last one, with the footer behind it; opens the next
    /// segment if not. Says whether it does.
    fn make_room(&mut self, head: Head, blocks: u32, entry_bytes: usize, metadata: bool) -> bool {
        let segment_blocks = self.geometry.segment_blocks;
        let stream = self.log.stream(head);
        if stream.position.segment.is_some() {
            let footer = footer_blocks(stream.footer.len() + RECORD_BYTES + entry_bytes);
            if stream.position.offset + blocks + footer <= segment_blocks {
                return true;
            }
        }
        assert!(
            blocks + footer_blocks(RECORD_BYTES + entry_bytes) <= segment_blocks,
            "a frame of {blocks} blocks does not fit a segment of {segment_blocks}"
        );
        if !self.may_take(head, metadata) {
            return false;
        }
        let Some(promised) = self.segments.take(head) else { return false };
        if self.log.stream(head).position.segment.is_some() {
            self.send_footer(head);
        }
        let Some(segment) = self.log.stream(head).position.next else {
            panic!("a stream without a next segment")
        };
        self.forget_cached(segment);
        self.segments.open(segment, head);
        let generation = self.segments.get(segment).generation;
        let stream = self.log.stream(head);
        stream.position.segment = Some(segment);
        stream.position.offset = 0;
        stream.position.generation = generation;
        stream.position.next = Some(promised);
        stream.footer.clear();
        stream.footer_frames = 0;
        true
    }

    /// What is in memory of a segment that is used again is of no use any more.
    fn forget_cached(&mut self, segment: u32) {
        self.kept_frames.forget(segment);
        if self.cache.is_empty() {
            return;
        }
        let start = self.geometry.segment_start(segment);
        let generation = self.segments.get(segment).generation;
        self.cache.remove_range(cache_key(start, generation), u64::from(self.geometry.segment_blocks));
    }

    /// Whether a stream may take a segment: some are kept for those that make room.
    fn may_take(&self, head: Head, metadata: bool) -> bool {
        // What is not prewritten yet will be: `take` waits for it.
        let available = self.segments.available() + self.segments.unprepared();
        match head {
            Head::Meta => available > 0,
            Head::Cold => available > self.meta_reserve(),
            Head::Hot if metadata => available > self.meta_reserve() + 1,
            Head::Hot => available > self.hot_reserve(),
        }
    }

    /// Whether nobody else may write until the checkpoint that is about to end is complete. A power cut would make its last
    /// frames vain, and the next checkpoint would need room for them again. That is theirs unless a frame of another stream
    /// keeps them in the log (`recovery/pages.rs`): so where there is no other room, there must be no such frame.
    fn checkpoint_comes_first(&self) -> bool {
        let is_ending = !self.checkpoint.is_idle() && !self.checkpoint.is_noting();
        is_ending && self.segments.available() + self.segments.unprepared() < self.meta_reserve()
    }

    /// Segments kept for checkpoints: so many that the next one can begin and end, when the running one is complete, and also when
    /// that was in vain because the power was cut.
    pub(crate) fn meta_reserve(&self) -> u32 {
        let (dirty, left) = (self.dirty.len() as u64, u64::from(self.checkpoint.pages_left()));
        let blocks = self.live_blocks + self.zero_blocks;
        let stream = &self.log.streams[Head::Meta as usize];
        let waiting: usize =
            stream.queue.iter().chain([&stream.building]).map(|frame| frame.page_bytes.len()).sum();
        let others = self.index.layers().len() as u64 * 64
            + self.segments.len() as u64 * 32
            + self.checkpoint.table_bytes_last
            + self.table_bytes().saturating_sub(self.checkpoint.group_bytes_last)
            + self.log.record_bytes_in_flight;
        let begun = others + waiting as u64 + self.checkpoint.stream_left();
        let in_one = self.meta_segments(page_bytes_max(dirty + left, blocks) + begun);
        if !self.segments.is_checkpoint_running() {
            return SPARE_SEGMENTS + in_one;
        }
        // What has changed since the point is written once more by the next one, where the end of this one has made room.
        let this = self.meta_segments(page_bytes_max(left, blocks) + begun);
        let next = self.meta_segments(page_bytes_max(dirty, blocks) + others);
        SPARE_SEGMENTS + in_one.max(this + next.saturating_sub(self.segments.freed_by_checkpoint()))
    }

    /// Segments that the tables of groups and sessions keep from users, besides those that each shard keeps for checkpoints: for the last
    /// complete checkpoint, for the one before, which waits for the next one to be free again, and for that one.
    pub(crate) fn table_segments(&self) -> u32 {
        let small = self.meta_segment_bytes() / SMALL_TABLES;
        CHECKPOINTS_HELD * self.meta_segments(self.table_bytes().saturating_sub(small))
    }

    /// Segments for so many bytes of pages and checkpoints.
    fn meta_segments(&self, bytes: u64) -> u32 {
        (bytes * 9 / 8).div_ceil(self.meta_segment_bytes()) as u32
    }

    /// Bytes of pages and checkpoints that a segment holds: headers and the footer take a good part of a small one.
    fn meta_segment_bytes(&self) -> u64 {
        let frame_blocks = (self.meta_bytes_max() / BLOCK_BYTES) as u32;
        let frames = ((self.geometry.segment_blocks - 1) / (frame_blocks + 1)).max(1);
        u64::from(frames * frame_blocks) * BLOCK_BYTES as u64
    }

    /// How many of these pages, from the first on, fit into the segments that are not kept, and the one that is kept for such.
    pub(crate) fn pages_that_fit(&self, pages: &[(RegionKey, PageRef)]) -> usize {
        let room = self.segments.available() + self.segments.unprepared();
        let segments = (room + 1).saturating_sub(self.meta_reserve());
        let bytes = u64::from(segments) * self.meta_segment_bytes() * 8 / 9;
        let mut taken = 0;
        let fits = |(_, page): &&(RegionKey, PageRef)| {
            taken += page.length_bytes() as u64 + PAGE_COST;
            taken <= bytes
        };
        pages.iter().take_while(fits).count()
    }

    /// Segments below which users wait for the cleaner.
    pub(crate) fn hot_reserve(&self) -> u32 {
        self.meta_reserve() + 3
    }

    fn header(&mut self, head: Head, location: u64) -> FrameHeader {
        let frame_number = self.log.frame_next;
        self.log.frame_next += 1;
        let incarnation = self.incarnation;
        let acknowledged = self.log.applied;
        let previous_crc = self.log.previous_crc;
        let position = self.log.stream(head).position;
        FrameHeader {
            header_crc: 0,
            frame_number,
            incarnation,
            segment_generation: position.generation,
            location,
            acknowledged,
            previous_crc,
            head,
            header_blocks: 1,
            contexts: 0,
            entries: 0,
            data_blocks: 0,
            entry_bytes: 0,
            next_segment: position.next.unwrap_or(u32::MAX),
            data_crc: 0,
        }
    }

    fn send_frame(&mut self, head: Head, mut builder: Builder) {
        let position = self.log.stream(head).position;
        let Some(segment) = position.segment else { panic!("a frame without a segment") };
        let location = self.geometry.segment_start(segment) + u64::from(position.offset);
        let mut header = self.header(head, location);
        let data = location + u64::from(header.header_blocks);
        self.stats.cleaner_stale_blocks +=
            builder.disarm_stale_moves(data, |segment| self.segments.get(segment).generation);
        header.contexts = builder.contexts.len() as u16;
        header.entries = builder.entry_count;
        header.entry_bytes = builder.entry_bytes() as u32;
        if !builder.page_bytes.is_empty() {
            builder.buffer.extend_from_bytes(&builder.page_bytes);
            builder.data_blocks += builder.page_bytes.len().div_ceil(BLOCK_BYTES) as u32;
            header.data_crc = crc32c_bytes(&builder.buffer[BLOCK_BYTES..]);
            self.stats.metadata_bytes += builder.buffer.len() as u64;
        }
        header.data_blocks = builder.data_blocks;
        let split = HEADER_BYTES + builder.contexts.len() * CONTEXT_BYTES;
        let mut buffer = std::mem::take(&mut builder.buffer);
        buffer[HEADER_BYTES..split].copy_from_slice(builder.contexts.as_slice().as_bytes());
        buffer[split..split + builder.entries.len()].copy_from_slice(&builder.entries);
        buffer[split + builder.entries.len()..BLOCK_BYTES].fill(0);
        header.encode(&mut buffer[..BLOCK_BYTES], self.drive, self.number);
        self.log.previous_crc = header.header_crc;
        let stream = self.log.stream(head);
        let end = HEADER_BYTES + header.entry_bytes as usize;
        footer::push_record(&mut stream.footer, &header, &buffer[HEADER_BYTES..end]);
        stream.footer_frames += 1;
        stream.position.offset += header.blocks();
        let changes = std::mem::take(&mut builder.changes);
        self.log.spare.push(builder);
        self.launch(Flight { header, buffer: Some(buffer), changes, durable: false, is_footer: false });
    }

    fn send_footer(&mut self, head: Head) {
        let position = self.log.stream(head).position;
        let Some(segment) = position.segment else { panic!("a footer without a segment") };
        let records = std::mem::take(&mut self.log.stream(head).footer);
        let frames = self.log.stream(head).footer_frames;
        let blocks = footer_blocks(records.len());
        let offset = self.geometry.segment_blocks - blocks;
        assert!(position.offset <= offset, "no room for the footer of segment {segment}");
        let location = self.geometry.segment_start(segment) + u64::from(offset);
        let mut header = self.header(head, location);
        header.data_blocks = blocks - 1;
        let trailer = Trailer {
            segment_generation: header.segment_generation,
            incarnation: header.incarnation,
            frame_number: header.frame_number,
            location,
            blocks,
            frames,
        };
        let buffer = self.pool.take(blocks as usize);
        let mut buffer = footer::build(&records, frames, &trailer, buffer);
        header.data_crc = crc32c_bytes(&buffer[BLOCK_BYTES..]);
        header.encode(&mut buffer[..BLOCK_BYTES], self.drive, self.number);
        self.log.previous_crc = header.header_crc;
        self.log.stream(head).footer = records;
        self.stats.metadata_bytes += buffer.len() as u64;
        self.launch(Flight {
            header,
            buffer: Some(buffer),
            changes: Vec::new(),
            durable: false,
            is_footer: true,
        });
    }

    fn launch(&mut self, mut flight: Flight) {
        let Some(buffer) = flight.buffer.take() else { return };
        let header = flight.header;
        let stream = self.log.stream(header.head);
        stream.in_flight += 1;
        stream.in_flight_blocks += header.data_blocks;
        if header.head != Head::Meta {
            self.log.sealed_bytes += buffer.len() as u64;
        }
        self.stats.frames += 1;
        self.stats.drive_write_bytes += buffer.len() as u64;
        self.log.flights.push_back(flight);
        let offset_bytes = self.geometry.offset_bytes(header.location);
        let io = self.issue_io(IoPurpose::Frame(header.frame_number));
        #[cfg(feature = "mutations")]
        if self.config.mutation == Some(crate::api::Mutation::AckBeforeSync) {
            self.frame_durable(header.frame_number, buffer.clone());
        }
        self.actions.push_back(Action::Write { io, offset_bytes, buffer });
    }
}

/// Bytes of log for the pages of so many regions, with no more than so many blocks in all.
///
/// A region whose blocks were scattered, and that lost all but a few to trims, may take up to 1,270 bytes more, for it keeps
/// its dense form until it is read again; but the trims have left 40 times as much room to the cleaner.
fn page_bytes_max(pages: u64, blocks: u64) -> u64 {
    (pages * PAGE_COST_MAX).min(pages * PAGE_COST + blocks * BLOCK_COST)
}

#[cfg(test)]
mod tests;
