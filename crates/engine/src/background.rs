//! Small background work: keeping the index within its memory, and zeroing segments of a file ahead of use.

use crate::api::Action;
use crate::frame::Head;
use crate::index_region::{Map, RegionKey};
use crate::shard::{IoPurpose, Shard};

/// Regions looked at per turn of the loop.
const EVICT_STEPS: usize = 4096;
/// Regions pushed out per turn of the loop.
const EVICT_MAX: usize = 64;
/// Segments that are zeroed ahead of use.
const PREWRITE_AHEAD: u32 = 4;

impl Shard {
    /// Pushes regions out of memory until the index is within its bound: clean ones at once, dirty ones by way of
    /// the log.
    pub(crate) fn evict_step(&mut self) {
        for _ in 0..EVICT_MAX {
            if self.index.memory_bytes() <= self.config.index_memory_bytes {
                return;
            }
            let Some(key) = self.index.next_idle(EVICT_STEPS) else { return };
            let dirty = self.index.region_mut(key).is_some_and(|region| region.dirty);
            if !dirty {
                self.push_out(key);
                continue;
            }
            // A checkpoint's segments are not for this: better a little more memory than no checkpoint.
            let room = self.segments.available();
            if self.log.stream(Head::Meta).queue.len() >= 4 || room <= self.meta_reserve() {
                return;
            }
            self.stats.index_page_evictions += 1;
            self.write_page(key);
        }
    }

    /// Forgets what a page on the drive can give back. What costs no memory beyond its place is kept: a region that
    /// was written in order still knows where its blocks lie, without their checksums.
    fn push_out(&mut self, key: RegionKey) {
        self.with_region(key, |region| {
            region.checksums = None;
            if !matches!(region.map, Map::One(_)) {
                region.map = Map::Absent;
            }
        });
        self.index.cool(key.layer, key.chunk);
    }

    pub(crate) fn prewrite_step(&mut self) {
        if self.prewriting == 0 {
            let Some(segment) = self.segments.to_prewrite(self.hot_reserve() + PREWRITE_AHEAD) else {
                return;
            };
            self.prewriting += 1;
            let length_bytes = u64::from(self.geometry.segment_blocks) * 4096;
            let offset_bytes = self.geometry.offset_bytes(self.geometry.segment_start(segment));
            self.stats.prewrite_bytes += length_bytes;
            let io = self.issue_io(IoPurpose::Prewrite(segment));
            self.actions.push_back(Action::Prewrite { io, offset_bytes, length_bytes });
        }
    }
}
