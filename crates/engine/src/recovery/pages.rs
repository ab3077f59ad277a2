//! What a start makes of the index's stream: all that its frames say is known again from the frames of the others.
//!
//! A checkpoint that was under way when the power went has taken segments, and only a complete one frees them. The next
//! one needs as many again: on a full drive there might be none for it, and nothing else would ever make room. So:
//! - frames behind the root that no frame of another stream follows are as if they had never been written: their segments
//!   are free again;
//! - where room is short, a page of the frames that stay counts if it says what its region is, so that the next
//!   checkpoint need not write it again.

use std::collections::BTreeMap;

use coquina_base::{AlignedBuf, BLOCK_BYTES};

use crate::api::DeviceRead;
use crate::frame::{Entry, EntryKind, FrameHeader, Head};
use crate::index::REGIONS;
use crate::index_region::{Map, PageRef, Region, RegionKey};
use crate::index_run::{REGION_BLOCKS, ZEROES};
use crate::replay::{BlockReader, ReplayFrame};
use crate::segment::SegmentState;
use crate::shard::Shard;
use crate::superblock::ShardSuperblock;

/// Pages read together.
const PAGES_TOGETHER: usize = 256;
/// The longest page.
const PAGE_BYTES_MAX: usize = 2328;

/// What replay has found of the index's stream.
#[derive(Default)]
pub(super) struct MetaFrames {
    /// Where the root of the checkpoint lies; none where there is no checkpoint, or when the root's frame was passed.
    root_location: Option<u64>,
    /// Frames behind the root that no frame of another stream has followed yet.
    held: Vec<ReplayFrame>,
    /// The newest page of each region.
    pages: BTreeMap<RegionKey, PageRef>,
}

impl MetaFrames {
    pub(super) fn new(superblock: &ShardSuperblock) -> Self {
        let root_location = (superblock.checkpoint != 0).then_some(superblock.root_location);
        MetaFrames { root_location, ..MetaFrames::default() }
    }

    /// Whether the last checkpoint ends before the end of what was replayed.
    pub(super) fn has_passed_root(&self) -> bool {
        self.root_location.is_none()
    }

    /// Keeps back a frame of the index's stream that lies behind the root; says whether it did.
    pub(super) fn hold(&mut self, frame: &ReplayFrame) -> bool {
        if frame.header.head != Head::Meta {
            return false;
        }
        if let Some(root_location) = self.root_location {
            // The root is the last of its checkpoint.
            if frame.holds_root(root_location) {
                self.root_location = None;
            }
            return false;
        }
        self.held.push(frame.clone());
        true
    }

    /// Gives what was kept back.
    pub(super) fn release(&mut self) -> Vec<ReplayFrame> {
        std::mem::take(&mut self.held)
    }

    /// Notes where a page lies, if the entry is one.
    pub(super) fn note_page(&mut self, entry: &Entry<'_>, header: &FrameHeader) {
        let offset = entry.data_offset as usize;
        let length = usize::try_from(entry.request).unwrap_or(usize::MAX);
        let region = usize::from(entry.start_block) / REGION_BLOCKS;
        let is_page = entry.kind == EntryKind::Page
            && region < REGIONS
            && offset % 8 == 0
            && (1..=PAGE_BYTES_MAX).contains(&length)
            && offset + length <= header.data_blocks as usize * BLOCK_BYTES;
        if !is_page {
            return;
        }
        let key = RegionKey { layer: entry.context.layer().0, chunk: entry.chunk, region: region as u8 };
        let location = header.location + u64::from(header.header_blocks) + (offset / BLOCK_BYTES) as u64;
        self.pages.insert(key, PageRef::new(location, offset % BLOCK_BYTES, length));
    }
}

impl Shard {
    /// Leaves out the last frames of the log. The next mount begins before them, so that they never count again.
    pub(super) fn leave_out(&mut self, frames: &[ReplayFrame]) {
        for frame in frames {
            // No generation is given twice, whatever becomes of the segment.
            self.segments.note_generation(frame.header.segment_generation);
        }
    }

    /// Where room is short: pages of a checkpoint that was not completed count, if their regions are as they say.
    ///
    /// What such a page says is compared with what was replayed, so it does not matter when it was written. Its segment
    /// stays: it lies behind the checkpoint's point, and from now on it is needed.
    pub(super) fn take_up_pages(&mut self, reader: &mut BlockReader<'_>, meta: &MetaFrames) {
        let room = self.segments.available() + self.segments.unprepared();
        if room > self.hot_reserve() {
            return;
        }
        let found: Vec<(RegionKey, PageRef)> =
            self.dirty.iter().filter_map(|key| Some((*key, *meta.pages.get(key)?))).collect();
        for some in found.chunks(PAGES_TOGETHER) {
            let mut reads: Vec<DeviceRead> = some.iter().map(|(_, page)| self.page_read(*page)).collect();
            reader.device.read_many(&mut reads);
            for ((key, page), read) in some.iter().zip(&reads) {
                let bytes = &read.buffer[page.offset_bytes()..page.offset_bytes() + page.length_bytes()];
                if read.result.is_ok() && self.is_as_page_says(*key, bytes) {
                    self.take_up_page(*key, *page);
                }
            }
        }
        let index = &mut self.index;
        self.dirty.retain(|key| index.region_mut(*key).is_some_and(|region| region.is_dirty()));
        self.segments.review_pending();
    }

    /// The read that gives a page.
    pub(super) fn page_read(&self, page: PageRef) -> DeviceRead {
        let mut buffer = AlignedBuf::new();
        buffer.resize_blocks(page.blocks());
        DeviceRead { offset_bytes: self.geometry.offset_bytes(page.location()), buffer, result: Ok(()) }
    }

    /// Whether a region that would have to be written is just what a page says. An empty one has no page.
    fn is_as_page_says(&mut self, key: RegionKey, page: &[u8]) -> bool {
        let mut written = Region::default();
        if written.decode_page(key, page, self.geometry.blocks()).is_none() {
            return false;
        }
        let Some(region) = self.index.region_mut(key) else { return false };
        let is_to_be_written = region.is_dirty() && region.is_complete() && !matches!(region.map, Map::Empty);
        is_to_be_written && is_same(region, &written)
    }

    fn take_up_page(&mut self, key: RegionKey, page: PageRef) {
        let Some(region) = self.index.region_mut(key) else { return };
        region.set_dirty(false);
        let old = std::mem::replace(&mut region.page, page);
        let segment = self.geometry.segment_of(page.location());
        let known = self.segments.get(segment);
        let is_kept = matches!(known.state, SegmentState::Open | SegmentState::Closed)
            && known.head == Head::Meta
            && known.last_frame > self.segments.covered_frame;
        assert!(is_kept, "a page of the log lies in segment {segment}, which may be written again");
        self.segments.add_live(segment, page.length_bytes() as u32);
        if !old.is_none() {
            self.segments.remove_live(self.geometry.segment_of(old.location()), old.length_bytes() as u32);
        }
    }
}

/// Whether two regions in memory say the same, in whatever form.
fn is_same(one: &Region, other: &Region) -> bool {
    let (Some(checksums), Some(others)) = (&one.checksums, &other.checksums) else { return false };
    (0..REGION_BLOCKS).all(|block| {
        let location = one.location(block);
        let has_data = location != 0 && location != ZEROES;
        location == other.location(block) && (!has_data || checksums[block] == others[block])
    })
}
