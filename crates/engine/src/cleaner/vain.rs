//! Cleaning in vain: where all segments are nearly full, what a victim gives may be no more than what a part-filled frame of its
//! blocks takes. With so many segments damaged that changes wait, the cleaner would move the same blocks for ever.

use crate::shard::Shard;

/// Victims for each segment of a shard that gained nothing, after which no more are chosen until something has changed.
const VICTIMS_PER_SEGMENT_MAX: u32 = 4;

/// What has come of the cleaner's work of late.
#[derive(Default)]
pub(super) struct Vain {
    victims: u32,
    /// The most room that there was since.
    room: u32,
    /// What users have written and deleted by then.
    progress: [u64; 2],
}

impl Vain {
    pub(super) fn count(&mut self) {
        self.victims = self.victims.saturating_add(1);
    }

    /// So many segments that could not be cleaned may be tried again; they give much room if they can be now.
    pub(super) fn try_again(&mut self, damaged: u32) {
        self.victims = self.victims.saturating_sub(damaged);
    }
}

impl Shard {
    /// Whether there is more room than there was since users last got on.
    pub(super) fn has_gained(&self) -> bool {
        self.segments.empty() > self.cleaner.vain.room
    }

    /// Whether all segments that can be have been cleaned several times without any gain, since others are damaged.
    pub(super) fn is_in_vain(&mut self) -> bool {
        let progress = [self.cleaner.hot_blocks, self.chunks_deleted];
        if progress != self.cleaner.vain.progress || self.has_gained() {
            self.cleaner.vain = Vain { victims: 0, room: self.segments.empty(), progress };
        }
        let victims = self.cleaner.vain.victims;
        self.segments.damaged() > 0 && victims / VICTIMS_PER_SEGMENT_MAX >= self.segments.len()
    }
}
