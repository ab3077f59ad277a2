//! Checkpoints: what the index was at one point of the log, so that replay starts there.
//!
//! A checkpoint is exact. It begins behind an applied frame (*the point*); every region that was dirty there is
//! written as it was there: before it changes again, or in turn. Then come a table of all pages as of the point, the
//! segments, the layers and the placement groups as of the point, cut into parts, and a root that names the parts. The
//! shard's superblock names the root.
//!
//! Because it is exact, replay applies every entry behind the point just as it was applied the first time, and the
//! counts of needed blocks come out right without reading the index.

mod parts;

pub(crate) use parts::root_fits;

use coquina_base::{AlignedBuf, BLOCK_BYTES};
use hashbrown::HashMap;

use crate::api::{Action, Event};
use crate::frame::{Context, ENTRY_BYTES, Entry, EntryKind, FrameHeader, Head, NewEntry};
use crate::hash::FixedState;
use crate::index::encode_page_record;
use crate::index_region::{Map, PageRef, RegionKey};
use crate::index_run::REGION_BLOCKS;
use crate::log::HeadPosition;
use crate::segment::SegmentState;
use crate::shard::{IoPurpose, Shard};
use crate::superblock::COMPATIBLE_CUTTING;

/// Version of the checkpoint's stream.
pub const STREAM_VERSION: u32 = 1;
/// Bytes of a part; smaller in small segments.
const PART_BYTES_MAX: usize = 128 << 10;
/// Pages written per turn of the loop.
const PAGES_PER_TURN: usize = 16;
/// Leaves of the page table noted per turn.
const LEAVES_PER_TURN: usize = 16;
/// Bytes of a part's record in the root.
pub const PART_RECORD_BYTES: usize = 24;
/// Bytes of the root before its part records.
pub const ROOT_HEADER_BYTES: usize = 32;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Phase {
    #[default]
    Idle,
    /// Dirty regions are written as they were at the point.
    Collecting,
    /// Their pages are on the way; the page table is being noted.
    Noting,
    /// The stream's parts are on the way.
    Parts,
    /// The root is on the way.
    Root,
    /// The superblock is on the way.
    Superblock,
}

/// Where a part of a checkpoint lies.
#[derive(Clone, Copy, Debug)]
pub struct PartRef {
    /// Location of its first block.
    pub location: u64,
    /// Offset in that block.
    pub offset_bytes: u32,
    /// Length.
    pub length_bytes: u32,
    /// Its checksum.
    pub crc: u32,
}

/// The running checkpoint, and what is remembered of the last one.
#[derive(Default)]
pub struct CheckpointTask {
    phase: Phase,
    wanted: bool,
    number: u64,
    /// The point: the last frame covered.
    point: u64,
    /// Regions dirty at the point, still to be looked at.
    pending: Vec<RegionKey>,
    /// Pages of this checkpoint that are on their way.
    pages_in_flight: u32,
    /// Pages on their way that are right for the next checkpoint, if they do not change before its point.
    pages_in_flight_next: u32,
    /// Clean regions whose pages lie in segments of index pages that are mostly empty: to be written again.
    refresh: Vec<(RegionKey, PageRef)>,
    /// Page records, as of the point.
    table: Vec<u8>,
    /// Page records that replace those in the table.
    overrides: Vec<u8>,
    cursor: (usize, usize),
    /// Segments, layers, placement groups and positions as of the point, and in the end the length of the table.
    snapshot: Vec<u8>,
    overrides_length: [u8; 8],
    /// Bytes of the stream that still have to be put into the log.
    stream_left: u64,
    /// Checksums of the parts that were.
    part_crcs: Vec<u32>,
    parts: Vec<PartRef>,
    root_crc: u32,
    /// Last frame applied when the last checkpoint was complete.
    applied_at_end: u64,
    /// Copies of the superblock still to be written.
    superblocks_left: u8,
    /// Where the last complete checkpoint's stream and root lie.
    parts_last: Vec<PartRef>,
    /// Length of the last checkpoint's stream.
    pub table_bytes_last: u64,
    /// How much of it groups and sessions take.
    pub group_bytes_last: u64,
    /// How much they take in the running one.
    group_bytes: u64,
    /// Bytes of log sealed when it began.
    pub sealed_at_begin: u64,
    /// Chunks of deleted layers freed when it began.
    chunks_deleted_at_begin: u64,
    /// Checkpoints in a row that had nothing new to cover.
    fruitless: u32,
}

/// A checkpoint can free the segments of the last two. More in a row without anything new free nothing but their own.
const FRUITLESS_MAX: u32 = 3;

impl CheckpointTask {
    /// Goes on behind a loaded checkpoint.
    pub fn after(number: u64, parts_last: Vec<PartRef>) -> Self {
        let table_bytes_last = parts_last.iter().map(|part| u64::from(part.length_bytes)).sum();
        CheckpointTask { number, parts_last, table_bytes_last, ..Default::default() }
    }

    /// Whether none is running or wanted.
    pub fn is_idle(&self) -> bool {
        self.phase == Phase::Idle && !self.wanted
    }

    /// Whether dirty regions are still being written as they were.
    pub fn is_collecting(&self) -> bool {
        self.phase == Phase::Collecting
    }

    /// Whether the page table is being put together: layers must not go meanwhile.
    pub fn is_noting(&self) -> bool {
        matches!(self.phase, Phase::Collecting | Phase::Noting)
    }

    /// Number of the running checkpoint, or of the last.
    pub fn number_running(&self) -> u64 {
        self.number
    }

    /// Changes whenever the checkpoint gets on.
    pub fn progress(&self) -> u64 {
        let left = (self.pending.len() + self.refresh.len()) as u64;
        (self.phase as u64) << 60
            | u64::from(self.wanted) << 59
            | left << 36
            | (self.cursor.0 as u64) << 20
            | self.cursor.1 as u64
    }

    /// Parts that are counted as needed: of the last complete checkpoint, and of the running one.
    pub fn parts_needed(&self) -> impl Iterator<Item = &PartRef> {
        self.parts_last.iter().chain(&self.parts)
    }

    /// Bytes of the stream that still have to be put into the log.
    pub fn stream_left(&self) -> u64 {
        self.stream_left
    }

    /// Regions still to be written.
    pub fn pages_left(&self) -> u32 {
        (self.pending.len() + self.refresh.len()) as u32
    }
}

impl Shard {
    /// Asks for a checkpoint as soon as none is running.
    pub fn start_checkpoint(&mut self) {
        self.checkpoint.wanted = true;
    }

    pub(crate) fn checkpoint_step(&mut self) {
        match self.checkpoint.phase {
            Phase::Idle => {
                let nothing_new = self.dirty.is_empty()
                    && self.checkpoint.applied_at_end == self.log.applied
                    && self.is_covered()
                    && self.log.is_quiet()
                    && self.segments.prewritten_news() == 0;
                let wanted = self.checkpoint.wanted || (self.closing && !self.is_covered());
                if nothing_new {
                    self.checkpoint.wanted = false;
                } else if self.checkpoint_is_due() || (wanted && !self.waits_for_last_frames()) {
                    self.begin_checkpoint();
                }
            }
            Phase::Collecting => self.collect(),
            Phase::Noting => self.note(),
            Phase::Parts => self.send_parts(),
            Phase::Root | Phase::Superblock => {}
        }
    }

    /// Whether nothing has been applied behind the point of the last checkpoint that a start must replay.
    pub(crate) fn is_covered(&self) -> bool {
        self.log.applied_data <= self.checkpoint.point
    }

    /// Whether a shard that closes still has frames under way that its last checkpoint is to cover. It does not wait for what waits for
    /// room, for that may wait for the checkpoint.
    fn waits_for_last_frames(&self) -> bool {
        let is_under_way = |head: Head| self.log.streams[head as usize].in_flight > 0;
        self.closing && (is_under_way(Head::Hot) || is_under_way(Head::Cold))
    }

    pub(crate) fn checkpoint_is_due(&self) -> bool {
        let log_bytes = self.log.sealed_bytes - self.checkpoint.sealed_at_begin;
        let dirty_bytes = self.dirty.len() as u64 * 2432;
        let memory = (self.config.index_memory_bytes / 2).max(64 << 20);
        let waiting = self.segments.pending();
        let room = self.segments.available() + self.segments.unprepared();
        // Users wait, or soon will: a checkpoint helps where segments wait for it, or where what was written since the
        // last one must be covered before it can be cleaned.
        let may_help = self.checkpoint.fruitless < FRUITLESS_MAX || self.has_news();
        let short = may_help && room <= self.hot_reserve();
        let stuck = self.cleaner.is_stuck();
        let users_wait = self.log.streams[Head::Hot as usize].has_work();
        log_bytes >= self.checkpoint_log_bytes()
            || dirty_bytes > memory
            || (short && (self.cold_stalled || (stuck && (waiting > 0 || users_wait))))
            || (short && waiting >= 4 && log_bytes >= self.checkpoint_log_bytes() / 8)
            || self.superblock.incarnations.len() > 16
    }

    fn checkpoint_log_bytes(&self) -> u64 {
        if self.config.checkpoint_log_bytes > 0 {
            return self.config.checkpoint_log_bytes;
        }
        (self.geometry.blocks() * 4096 / 6).min(64 << 30)
    }

    /// Whether data went into the log, or space was freed, since the last checkpoint began.
    fn has_news(&self) -> bool {
        self.log.sealed_bytes > self.checkpoint.sealed_at_begin
            || self.chunks_deleted != self.checkpoint.chunks_deleted_at_begin
    }

    fn begin_checkpoint(&mut self) {
        let positions_known = self.log.streams.iter().all(|stream| stream.applied.next.is_some());
        assert!(positions_known, "a stream without a next segment");
        self.segments.checkpoint_begins();
        self.choose_refresh();
        self.checkpoint.wanted = false;
        self.checkpoint.phase = Phase::Collecting;
        self.checkpoint.number += 1;
        self.checkpoint.point = self.log.applied;
        self.checkpoint.fruitless = if self.has_news() { 0 } else { self.checkpoint.fruitless + 1 };
        self.checkpoint.chunks_deleted_at_begin = self.chunks_deleted;
        self.checkpoint.sealed_at_begin = self.log.sealed_bytes;
        self.checkpoint.pages_in_flight = std::mem::take(&mut self.checkpoint.pages_in_flight_next);
        self.checkpoint.pending = std::mem::take(&mut self.dirty);
        self.checkpoint.table.clear();
        self.checkpoint.overrides.clear();
        self.checkpoint.cursor = (0, 0);
        let mut snapshot = std::mem::take(&mut self.checkpoint.snapshot);
        snapshot.clear();
        self.encode_snapshot(&mut snapshot);
        self.checkpoint.snapshot = snapshot;
        self.collect();
    }

    fn encode_snapshot(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&STREAM_VERSION.to_le_bytes());
        out.extend_from_slice(&self.log.applied_crc.to_le_bytes());
        out.extend_from_slice(&self.log.applied.to_le_bytes());
        out.extend_from_slice(&self.live_blocks.to_le_bytes());
        out.extend_from_slice(&self.zero_blocks.to_le_bytes());
        for stream in &self.log.streams {
            encode_position(&stream.applied, out);
        }
        let section = |out: &mut Vec<u8>, fill: &mut dyn FnMut(&mut Vec<u8>)| {
            let at = out.len();
            out.extend_from_slice(&[0; 8]);
            fill(out);
            let length = (out.len() - at - 8) as u64;
            out[at..at + 8].copy_from_slice(&length.to_le_bytes());
        };
        // What the checkpoint before takes is not needed any more where this one is read.
        let geometry = &self.geometry;
        let mut outdated = HashMap::<u32, u32, FixedState>::default();
        for part in &self.checkpoint.parts_last {
            *outdated.entry(geometry.segment_of(part.location)).or_default() += part.length_bytes;
        }
        section(out, &mut |out| self.segments.encode(&outdated, out));
        section(out, &mut |out| {
            for layer in self.index.layers() {
                out.extend_from_slice(&layer.id.to_le_bytes());
                out.extend_from_slice(&u64::from(layer.deleting).to_le_bytes());
            }
        });
        section(out, &mut |out| self.sessions.encode(out));
        let groups = &mut self.groups;
        let groups_at = out.len();
        section(out, &mut |out| groups.encode(out));
        self.checkpoint.group_bytes = self.sessions.encoded_bytes() + (out.len() - groups_at) as u64;
    }

    /// Writes some of the regions that were dirty at the point and have not changed since.
    fn collect(&mut self) {
        let era = self.segments.era as u8;
        for _ in 0..PAGES_PER_TURN {
            if self.log.stream(Head::Meta).queue.len() >= 2 {
                return;
            }
            let Some(key) = self.checkpoint.pending.pop() else {
                if !self.refresh_pages() {
                    return;
                }
                self.checkpoint.phase = Phase::Noting;
                return self.note();
            };
            let due =
                self.index.region_mut(key).is_some_and(|region| region.is_dirty() && region.dirty_era != era);
            if due {
                self.write_page(key);
            }
        }
    }

    /// Puts a region's page into the log. It is clean then; the page counts when its frame is applied.
    pub(crate) fn write_page(&mut self, key: RegionKey) {
        let era = self.segments.era as u8;
        let collecting = self.checkpoint.is_collecting();
        let number = self.checkpoint.number;
        let Some(region) = self.index.region_mut(key) else { return };
        assert!(region.is_dirty(), "{key:?} is written although it is clean");
        // Checkpoint that the content is right for: it was the same at its point.
        let belongs_to = match collecting {
            true if region.dirty_era != era => number,
            true => 0,
            false => number + 1,
        };
        region.set_dirty(false);
        // With an older page on its way, an empty one must follow it, or the older one would count.
        if matches!(region.map, Map::Empty) && region.writing == 0 {
            return self.drop_page(key, belongs_to);
        }
        region.writing += 1;
        let mut page = std::mem::take(&mut self.page_scratch);
        page.clear();
        if let Some(region) = self.index.region_mut(key) {
            region.encode_page(key, &mut page);
        }
        self.add_meta(
            key.layer,
            key.chunk,
            u16::from(key.region) * REGION_BLOCKS as u16,
            EntryKind::Page,
            &page,
            belongs_to,
        );
        self.page_scratch = page;
        match belongs_to {
            0 => {}
            same if same == number => self.checkpoint.pages_in_flight += 1,
            _ => self.checkpoint.pages_in_flight_next += 1,
        }
    }

    /// An empty region has no page.
    fn drop_page(&mut self, key: RegionKey, belongs_to: u64) {
        let had_page = self.with_region(key, |region| {
            region.checksums = None;
            !region.page.is_none()
        });
        self.forget_page(key);
        // Such a region has not changed since the point: it only got pages meanwhile, and lost none. So where it has none now, no
        // record of this checkpoint names one.
        if had_page && belongs_to == self.checkpoint.number && self.checkpoint.is_noting() {
            encode_page_record(
                key.layer,
                key.chunk,
                key.region,
                PageRef::default(),
                &mut self.checkpoint.overrides,
            );
        }
        self.index.cool(key.layer, key.chunk);
    }

    /// A region's page is not needed any more.
    pub(crate) fn forget_page(&mut self, key: RegionKey) {
        self.set_page(key, PageRef::default());
    }

    fn set_page(&mut self, key: RegionKey, page: PageRef) {
        if self.checkpoint.phase == Phase::Collecting || self.checkpoint.phase == Phase::Noting {
            let number = self.checkpoint.number;
            self.index.note_leaf(key.layer, key.chunk, number, &mut self.checkpoint.table);
        }
        let Some(region) = self.index.region_mut(key) else { return };
        let old = std::mem::replace(&mut region.page, page);
        if !old.is_none() {
            self.segments.remove_live(self.geometry.segment_of(old.location()), old.length_bytes() as u32);
        }
        if !page.is_none() {
            self.segments.add_live(self.geometry.segment_of(page.location()), page.length_bytes() as u32);
        }
    }

    /// Puts bytes into the stream of pages and checkpoints.
    fn add_meta(
        &mut self,
        layer: u64,
        chunk: u32,
        start_block: u16,
        kind: EntryKind,
        bytes: &[u8],
        sequence: u64,
    ) {
        let context = Context::new(coquina_base::LayerId(layer), 0);
        let bytes_max = self.meta_bytes_max();
        let builder = &self.log.stream(Head::Meta).building;
        let full = builder.room_bytes(&context, None) < ENTRY_BYTES
            || builder.page_bytes.len() + bytes.len() > bytes_max;
        if full && !builder.is_empty() {
            self.rotate(Head::Meta);
        }
        let builder = &mut self.log.stream(Head::Meta).building;
        let entry = NewEntry {
            context: builder.context(context),
            group: None,
            kind,
            chunk,
            start_block,
            blocks: 0,
            data_offset: builder.page_bytes.len() as u32,
            sequence,
            request: bytes.len() as u64,
            continues: false,
            recovered: false,
        };
        builder.add(&entry, std::iter::empty());
        builder.page_bytes.extend_from_slice(bytes);
        builder.page_bytes.resize(builder.page_bytes.len().next_multiple_of(8), 0);
    }

    pub(crate) fn meta_bytes_max(&self) -> usize {
        meta_bytes_max(self.geometry.segment_blocks)
    }

    /// A page counts: the region is found there from now on.
    pub(crate) fn page_written(&mut self, entry: &Entry<'_>, header: &FrameHeader) {
        if self.replaying {
            return;
        }
        let region = (usize::from(entry.start_block) / REGION_BLOCKS) as u8;
        let key = RegionKey { layer: entry.context.layer().0, chunk: entry.chunk, region };
        let location =
            header.location + u64::from(header.header_blocks) + u64::from(entry.data_offset) / 4096;
        let page = PageRef::new(location, entry.data_offset as usize % 4096, entry.request as usize);
        let Some(region) = self.index.region_mut(key) else {
            panic!("{key:?} was dropped while it was written")
        };
        assert!(region.writing > 0);
        region.writing -= 1;
        let is_needless = matches!(region.map, Map::Empty) && !region.is_dirty() && region.writing == 0;
        self.index.look_again();
        self.set_page(key, page);
        if entry.sequence == self.checkpoint.number && self.checkpoint.is_noting() {
            encode_page_record(key.layer, key.chunk, key.region, page, &mut self.checkpoint.overrides);
            self.checkpoint.pages_in_flight -= 1;
        } else if entry.sequence == self.checkpoint.number + 1 {
            self.checkpoint.pages_in_flight_next -= 1;
        }
        if is_needless {
            // It was written only to follow an older page, which has come before it.
            self.drop_page(key, entry.sequence);
        }
    }

    /// Chooses segments of index pages that are mostly empty, if such segments take much room, and lists the regions
    /// whose pages lie there.
    fn choose_refresh(&mut self) {
        let segment_bytes = u64::from(self.geometry.segment_blocks) * 4096;
        let (mut used, mut live) = (0, 0);
        let mut victims = Vec::new();
        for number in 0..self.segments.len() {
            let segment = self.segments.get(number);
            if segment.head == Head::Meta && segment.state == SegmentState::Closed {
                used += 1;
                live += u64::from(segment.live);
                if segment.live > 0 && u64::from(segment.live) < segment_bytes / 2 {
                    victims.push(number);
                }
            }
        }
        self.checkpoint.refresh.clear();
        if used <= 2 + 2 * live.div_ceil(segment_bytes) {
            return;
        }
        let geometry = self.geometry;
        let refresh = &mut self.checkpoint.refresh;
        self.index.for_each_page(|key, page| {
            if victims.binary_search(&geometry.segment_of(page.location())).is_ok() {
                refresh.push((key, page));
            }
        });
        // Hardly anything is kept for them: where room is short, those come first that free the most for what they take.
        let mut refresh = std::mem::take(&mut self.checkpoint.refresh);
        if self.pages_that_fit(&refresh) < refresh.len() {
            let emptiest = |page: PageRef| self.segments.get(geometry.segment_of(page.location())).live;
            refresh.sort_unstable_by_key(|(_, page)| (emptiest(*page), page.location()));
            refresh.truncate(self.pages_that_fit(&refresh));
        }
        self.checkpoint.refresh = refresh;
    }

    /// Writes listed regions again that have not changed since the point; reads those that are not in memory. Says
    /// whether none is left.
    fn refresh_pages(&mut self) -> bool {
        let era = self.segments.era as u8;
        for _ in 0..PAGES_PER_TURN {
            let Some((key, page)) = self.checkpoint.refresh.last().copied() else { return true };
            let Some(region) = self.index.region_mut(key) else {
                self.checkpoint.refresh.pop();
                continue;
            };
            if region.is_loading() {
                return false;
            }
            // One that has another page by now has changed, or was written since the point.
            if region.page != page || region.is_dirty() || region.writing > 0 {
                self.checkpoint.refresh.pop();
                continue;
            }
            if !region.is_complete() {
                self.load_page(key);
                return false;
            }
            region.set_dirty(true);
            region.dirty_era = era.wrapping_sub(1);
            self.checkpoint.refresh.pop();
            self.write_page(key);
        }
        false
    }

    /// Notes some of the page table; when all is noted and all pages count, the stream goes out.
    fn note(&mut self) {
        let number = self.checkpoint.number;
        let mut table = std::mem::take(&mut self.checkpoint.table);
        let mut cursor = self.checkpoint.cursor;
        let all = self.index.note_leaves(&mut cursor, LEAVES_PER_TURN, number, &mut table);
        self.checkpoint.table = table;
        self.checkpoint.cursor = cursor;
        if all && self.checkpoint.pages_in_flight == 0 {
            self.begin_parts();
        }
    }

    fn send_superblock(&mut self, root: PartRef) {
        self.checkpoint.phase = Phase::Superblock;
        let superblock = &mut self.superblock;
        superblock.checkpoint = self.checkpoint.number;
        assert_eq!(root.offset_bytes, 0, "the root begins a frame's data");
        superblock.root_location = root.location;
        superblock.root_bytes = root.length_bytes;
        superblock.root_crc = self.checkpoint.root_crc;
        // The groups in it remember.
        superblock.compatible &= !COMPATIBLE_CUTTING;
        // Frames behind the point belong to this mount, for it has replayed all that others wrote.
        let current = superblock.incarnations.len().saturating_sub(1);
        superblock.incarnations.drain(..current);
        self.checkpoint.superblocks_left = 2;
        self.write_superblock();
    }

    /// Both copies are written, one after the other, before anything relies on them: then the loss of either is
    /// harmless.
    fn write_superblock(&mut self) {
        self.checkpoint.superblocks_left -= 1;
        self.superblock.generation += 1;
        let buffer = self.superblock.encode();
        let offset_bytes = self.superblock.offset_bytes(&self.geometry);
        self.stats.drive_write_bytes += buffer.len() as u64;
        let io = self.issue_io(IoPurpose::Superblock);
        self.actions.push_back(Action::Write { io, offset_bytes, buffer });
    }

    /// The superblock is durable: the checkpoint is complete.
    pub(crate) fn checkpoint_written(&mut self, buffer: AlignedBuf) {
        self.pool.give(buffer);
        if self.checkpoint.superblocks_left > 0 {
            return self.write_superblock();
        }
        let parts = std::mem::take(&mut self.checkpoint.parts);
        for part in std::mem::replace(&mut self.checkpoint.parts_last, parts) {
            self.segments.remove_live(self.geometry.segment_of(part.location), part.length_bytes);
        }
        self.checkpoint.phase = Phase::Idle;
        let (era, point) = (self.segments.era, self.checkpoint.point);
        self.segments.checkpoint_complete(era, point);
        self.checkpoint.applied_at_end = self.log.applied;
        self.stats.checkpoints += 1;
        let number = self.checkpoint.number;
        self.event(Event::Checkpoint { number });
    }
}

/// Most bytes of pages in a frame, and of a part of a checkpoint, where segments have so many blocks.
fn meta_bytes_max(segment_blocks: u32) -> usize {
    (segment_blocks as usize / 4 * BLOCK_BYTES).clamp(8192, PART_BYTES_MAX)
}

fn encode_position(position: &HeadPosition, out: &mut Vec<u8>) {
    out.extend_from_slice(&position.segment.unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(&position.offset.to_le_bytes());
    out.extend_from_slice(&position.generation.to_le_bytes());
    out.extend_from_slice(&position.next.unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(&[0; 4]);
}

impl std::fmt::Debug for CheckpointTask {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("CheckpointTask")
            .field("phase", &self.phase)
            .field("wanted", &self.wanted)
            .field("number", &self.number)
            .field("point", &self.point)
            .field("pending", &self.pending.len())
            .field("refresh", &self.refresh.len())
            .field("pages_in_flight", &self.pages_in_flight)
            .field("cursor", &self.cursor)
            .field("parts", &(self.parts.len(), self.part_crcs.len()))
            .finish_non_exhaustive()
    }
}
