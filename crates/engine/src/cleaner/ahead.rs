//! Cleaning ahead: room that is made while nobody asks for anything, so that those who write next do not wait for the cleaner.
//!
//! A quarter of the room that a drive could still have is made ready, and no more than [`AHEAD_SHARE`] of the drive or [`AHEAD_BYTES_MAX`]:
//! what is cleaned early has more in it that is needed than it would have later. A drive comes to rest when that much is empty, or when
//! no segment is empty enough. Who only reads is not disturbed either. Each shard looks at what it is asked itself, not at others on the same drive.

use crate::frame::Head;
use crate::segment::SegmentState;
use crate::shard::Shard;

/// The part of a shard's segments that is made ready at most: one of so many.
const AHEAD_SHARE: u32 = 16;
/// Room that is made ready at most, in bytes per shard.
const AHEAD_BYTES_MAX: u64 = 16 << 30;

/// What the cleaner remembers of it.
#[derive(Default)]
pub(super) struct Ahead {
    /// What users have written and read so far, in blocks and reads.
    asked_seen: [u64; 2],
    /// Whether anything of theirs was under way at the last look.
    was_asked: bool,
    /// When that was last so.
    asked_at_ns: u64,
    /// The log, and what was deleted, when it was last found that nothing is to be gained: nothing is until that has changed.
    rests_at: Option<[u64; 3]>,
}

impl Shard {
    /// Notes whether users have asked for something, or wait for it. The turn in which it ends counts, too: they could not go on before.
    pub(super) fn note_what_is_asked(&mut self) {
        let hot = &self.log.streams[Head::Hot as usize];
        let is_asked = hot.in_flight > 0 || hot.has_work() || !self.reads.is_empty();
        let asked = [self.cleaner.hot_blocks, self.stats.reads];
        let ahead = &mut self.cleaner.ahead;
        let was_asked = std::mem::replace(&mut ahead.was_asked, is_asked);
        let is_new = std::mem::replace(&mut ahead.asked_seen, asked) != asked;
        if is_asked || was_asked || is_new {
            ahead.asked_at_ns = self.now_ns;
        }
    }

    /// From when on users have left the shard alone for long enough, if they ask for nothing until then.
    pub(crate) fn left_alone_ns(&self) -> u64 {
        self.cleaner.ahead.asked_at_ns + super::PATIENCE_NS
    }

    /// Whether nobody has asked the shard for anything for a while.
    pub(super) fn is_left_alone(&self) -> bool {
        self.now_ns >= self.left_alone_ns()
    }

    /// Whether there may be something to clean for those who write next.
    fn may_clean_ahead(&self) -> bool {
        let segment_bytes = u64::from(self.geometry.segment_blocks) * coquina_base::BLOCK_BYTES as u64;
        let most = u64::from(self.segments.len() / AHEAD_SHARE).min(AHEAD_BYTES_MAX / segment_bytes);
        u64::from(self.segments.empty()) < u64::from(self.cleaning_level()) + most
            && self.cleaner.ahead.rests_at != Some(self.log_position())
            && self.layers_deleting.is_empty()
            && !self.closing
            && self.poisoned.is_none()
    }

    /// What decides which segments can be cleaned.
    fn log_position(&self) -> [u64; 3] {
        [self.log.applied, self.segments.covered_frame, self.chunks_deleted]
    }

    /// Whether a victim is to be chosen now though there is room enough.
    pub(super) fn cleans_ahead(&mut self) -> bool {
        if !self.is_left_alone() || !self.may_clean_ahead() {
            return false;
        }
        // A quarter of what is empty above the level or could be emptied.
        let level = self.cleaning_level();
        let empty_blocks = u64::from(self.segments.empty().saturating_sub(level));
        let empty_blocks = empty_blocks * u64::from(self.geometry.segment_blocks);
        let dead_blocks: u64 = (0..self.segments.len())
            .map(|number| self.segments.get(number))
            .filter(|segment| segment.state == SegmentState::Closed && !segment.damaged)
            .map(|segment| u64::from(self.cold_blocks().saturating_sub(segment.live)))
            .sum();
        let goes_on = empty_blocks * 3 < dead_blocks;
        if !goes_on {
            self.rest();
        }
        goes_on
    }

    /// Nothing is to be gained before the log goes on.
    pub(super) fn rest(&mut self) {
        self.cleaner.ahead.rests_at = Some(self.log_position());
    }

    /// When it begins, if nothing else happens.
    pub(crate) fn ahead_wake_ns(&self) -> Option<u64> {
        let begin_ns = self.left_alone_ns();
        let waits = self.cleaner.is_at_rest() && begin_ns > self.now_ns;
        (waits && self.may_clean_ahead()).then_some(begin_ns)
    }
}
