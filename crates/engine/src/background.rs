//! Small background work: keeping the index within its memory, and zeroing segments of a file ahead of use.

use crate::api::{Action, IoError};
use crate::frame::Head;
use crate::index_region::{Map, RegionKey};
use crate::shard::{IoPurpose, Shard};

/// Regions looked at per turn of the loop.
const EVICT_STEPS: usize = 4096;
/// Regions pushed out per turn of the loop, or passed over since they cannot be, without those that cost no memory beyond their places.
const EVICT_MAX: usize = 64;
/// Segments that are zeroed ahead of use, whatever else goes on.
const PREWRITE_AHEAD: u32 = 4;
/// Bytes that are zeroed at once: on a slow disk with other work a whole segment may take longer than a drive has for an answer.
const PREWRITE_PIECE_BYTES: u64 = 8 << 20;
/// How long no request may have come for a shard to count as idle.
const IDLE_NS: u64 = 500_000_000;

/// Zeroing of a drive's file ahead of use: writing to space that was never written costs the file system a transaction.
#[derive(Debug, Default)]
pub(crate) struct Prewriter {
    /// The segment of which a piece is on its way, and the bytes of that.
    segment: Option<(u32, u64)>,
    /// Bytes of the next segment that have been zeroed.
    done_bytes: u64,
    begin_ns: u64,
    /// Whether one has just ended.
    pause: bool,
    /// Nothing is done before this for which there is no need.
    idle_from_ns: u64,
    activity_seen: [u64; 2],
}

impl Shard {
    /// Pushes regions out of memory until the index is within its bound: clean ones at once, dirty ones by way of
    /// the log.
    pub(crate) fn evict_step(&mut self) {
        let mut steps = EVICT_STEPS;
        let mut pushed_out = 0;
        while pushed_out < EVICT_MAX {
            if self.index.memory_bytes() <= self.config.index_memory_bytes {
                return;
            }
            let Some(key) = self.index.next_idle(&mut steps) else { return };
            let dirty = self.index.region_mut(key).is_some_and(|region| region.is_dirty());
            if !dirty {
                // As many of those that cost memory go as come, however often each has to be found: the steps bound the time.
                pushed_out += usize::from(self.push_out(key));
                continue;
            }
            // A checkpoint's segments are not for this: better a little more memory than no checkpoint.
            let room = self.segments.available();
            pushed_out += 1;
            if self.log.stream(Head::Meta).queue.len() >= 4 || room <= self.meta_reserve() {
                // Clean ones may lie behind it.
                continue;
            }
            self.stats.index_page_evictions += 1;
            self.write_page(key);
        }
    }

    /// Forgets what a page on the drive can give back. At first not what costs no memory beyond its place: a region that was
    /// written in order still knows where its blocks lie, without their checksums. If nobody has used that either when it is found
    /// again, it goes, too: while one region of a chunk says something, all four take their places. Says whether it cost memory
    /// beyond its place.
    fn push_out(&mut self, key: RegionKey) -> bool {
        let had_heap = self.with_region(key, |region| {
            let had_heap = region.heap_bytes() > 0;
            let had_checksums = region.checksums.take().is_some();
            if !had_checksums || !matches!(region.map, Map::One(_)) {
                region.map = Map::Absent;
            }
            had_heap
        });
        self.index.cool(key.layer, key.chunk);
        had_heap
    }

    /// Zeroes the next segment of a file: always a few ahead of the log, and many while nothing else is to be done.
    pub(crate) fn prewrite_step(&mut self) {
        let activity = [self.log.entries, self.stats.reads];
        if activity != self.prewriter.activity_seen {
            self.prewriter.activity_seen = activity;
            self.prewriter.idle_from_ns = self.now_ns + IDLE_NS;
        }
        if std::mem::take(&mut self.prewriter.pause) {
            // Half of the drive's time is left to others, such as drives in other files of the same disk.
            let resume_ns = self.now_ns + (self.now_ns - self.prewriter.begin_ns);
            self.prewriter.idle_from_ns = self.prewriter.idle_from_ns.max(resume_ns);
        }
        // The last checkpoint of a shard that closes may need a segment, too.
        let ahead = if self.closing { 1 } else { self.hot_reserve() + PREWRITE_AHEAD };
        if self.prewriter.segment.is_some() || (self.closing && self.segments.available() > 0) {
            return;
        }
        let needed = self.segments.to_prewrite(ahead);
        let idle = if self.closing { None } else { self.prewrite_while_idle() };
        let Some(segment) = needed.or(idle) else { return };
        let done_bytes = self.prewriter.done_bytes;
        let length_bytes = (self.segment_bytes() - done_bytes).min(PREWRITE_PIECE_BYTES);
        let offset_bytes = self.geometry.offset_bytes(self.geometry.segment_start(segment)) + done_bytes;
        self.stats.prewrite_bytes += length_bytes;
        self.prewriter.segment = Some((segment, length_bytes));
        self.prewriter.begin_ns = self.now_ns;
        let io = self.issue_io(IoPurpose::Prewrite);
        self.actions.push_back(Action::Prewrite { io, offset_bytes, length_bytes });
    }

    fn prewrite_while_idle(&mut self) -> Option<u32> {
        if self.now_ns < self.prewriter.idle_from_ns {
            return None;
        }
        let next = self.segments.to_prewrite(self.prewrite_ahead_when_idle());
        if next.is_none() && self.has_prewritten_much() {
            // So that it need not be done again after a start.
            self.start_checkpoint();
        }
        next
    }

    /// Whether more is zeroed ahead that no checkpoint knows of than always is.
    fn has_prewritten_much(&self) -> bool {
        self.segments.prewritten_news() > self.hot_reserve() + PREWRITE_AHEAD
    }

    fn prewrite_ahead_when_idle(&self) -> u32 {
        u32::try_from(self.config.zero_ahead_bytes / self.segment_bytes()).unwrap_or(u32::MAX)
    }

    fn segment_bytes(&self) -> u64 {
        u64::from(self.geometry.segment_blocks) * 4096
    }

    /// Bytes that will be zeroed ahead as soon as there is time for it.
    pub(crate) fn unprepared_bytes(&self) -> u64 {
        let segments = self.segments.unprepared_of(self.prewrite_ahead_when_idle());
        (u64::from(segments) * self.segment_bytes()).saturating_sub(self.prewriter.done_bytes)
    }

    pub(crate) fn prewrite_done(&mut self, result: Result<(), IoError>) {
        let Some((segment, length_bytes)) = self.prewriter.segment.take() else {
            panic!("the end of zeroing ahead that nobody began")
        };
        match result {
            Ok(()) => self.prewriter.done_bytes += length_bytes,
            Err(error) => self.poison(error.0),
        }
        if self.prewriter.done_bytes == self.segment_bytes() {
            self.prewriter.done_bytes = 0;
            self.segments.prewritten(segment);
        }
        self.prewriter.pause = true;
    }

    /// When zeroing ahead goes on, if nothing else happens.
    pub(crate) fn prewrite_wake_ns(&self) -> Option<u64> {
        let waits = self.prewriter.segment.is_none() && !self.closing && self.poisoned.is_none();
        let more = self.segments.to_prewrite(self.prewrite_ahead_when_idle()).is_some()
            || (self.has_prewritten_much() && self.checkpoint.is_idle());
        (waits && more).then_some(self.prewriter.idle_from_ns)
    }
}
