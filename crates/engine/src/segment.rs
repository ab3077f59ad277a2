//! The segment table: who may be written, who is full, how much of each is still needed.
//!
//! Invariants:
//! - a data segment is reused only when none of its blocks is needed, nobody reads it, and the last checkpoint
//!   covers everything in it;
//! - a segment of index pages is reused only after a checkpoint that began when none of its pages was needed, for
//!   the checkpoint before may still name them;
//! - every operation costs the same however full or old the drive is.

use std::collections::VecDeque;

use hashbrown::HashMap;

use crate::frame::Head;
use crate::hash::FixedState;

/// What a segment is used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum SegmentState {
    /// Never written.
    Unused = 0,
    /// Ready to be written again.
    Free = 1,
    /// Named as the next segment of a stream.
    Promised = 2,
    /// Being written.
    Open = 3,
    /// Full.
    Closed = 4,
}

impl SegmentState {
    fn from_number(number: u8) -> Option<Self> {
        use SegmentState::{Closed, Free, Open, Promised, Unused};
        [Unused, Free, Promised, Open, Closed].get(usize::from(number)).copied()
    }
}

/// One segment.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// Rises with every reuse.
    pub generation: u64,
    /// Highest frame in it.
    pub last_frame: u64,
    /// Blocks needed (data), or bytes (index pages and checkpoints).
    pub live: u32,
    /// Blocks written so far.
    pub written_blocks: u32,
    /// Reads and moves under way.
    pub readers: u32,
    /// Checkpoints begun when `live` fell to zero.
    pub emptied_era: u64,
    /// Checkpoints begun when a deleted layer's blocks were last taken from it, plus one: replay does not take them, so
    /// that only a later checkpoint makes the segment free.
    pub deleted_era: u64,
    /// What it is used for.
    pub state: SegmentState,
    /// The stream it belongs to.
    pub head: Head,
    /// Whether it ends with a footer.
    pub footer: bool,
    /// Whether its space has been written once since the shard was opened or before.
    pub prewritten: bool,
    /// Whether the cleaner must leave it alone: its frames cannot be read.
    pub damaged: bool,
}

impl Segment {
    const UNUSED: Segment = Segment {
        generation: 0,
        last_frame: 0,
        live: 0,
        written_blocks: 0,
        readers: 0,
        emptied_era: 0,
        deleted_era: 0,
        state: SegmentState::Unused,
        head: Head::Hot,
        footer: false,
        prewritten: false,
        damaged: false,
    };
}

/// Bytes of a segment's record in a checkpoint.
pub const SEGMENT_RECORD_BYTES: usize = 32;

/// The table of all segments of a shard.
#[derive(Clone, Debug)]
pub struct SegmentTable {
    segments: Vec<Segment>,
    free: VecDeque<u32>,
    /// Next segment that was never taken.
    unused_next: u32,
    /// Next segment that was neither taken nor prewritten.
    unprepared_next: u32,
    /// Segments prewritten of which no checkpoint knows.
    prewritten_news: u32,
    /// Whether unused segments must be prewritten before use.
    prewrite: bool,
    /// Generation to give next.
    generation_next: u64,
    /// Checkpoints begun.
    pub era: u64,
    /// Era of the last complete checkpoint.
    pub era_complete: u64,
    /// Frames up to here are covered by the last complete checkpoint.
    pub covered_frame: u64,
    /// Segments that wait for a checkpoint to be free.
    pending: Vec<u32>,
    /// How many these were when the running checkpoint began, or the last one.
    pending_at_begin: u32,
    /// How many are damaged.
    damaged: u32,
    /// A deliberate mistake: nothing waits for a checkpoint.
    #[cfg(feature = "mutations")]
    pub reuse_early: bool,
}

impl SegmentTable {
    /// An empty shard's table.
    pub fn new(segments: u32, prewrite: bool) -> Self {
        SegmentTable {
            segments: vec![Segment::UNUSED; segments as usize],
            free: VecDeque::new(),
            unused_next: 0,
            unprepared_next: 0,
            prewritten_news: 0,
            prewrite,
            generation_next: 1,
            era: 0,
            era_complete: 0,
            covered_frame: 0,
            pending: Vec::new(),
            pending_at_begin: 0,
            damaged: 0,
            #[cfg(feature = "mutations")]
            reuse_early: false,
        }
    }

    /// How many segments there are.
    pub fn len(&self) -> u32 {
        self.segments.len() as u32
    }

    /// A segment.
    pub fn get(&self, segment: u32) -> &Segment {
        &self.segments[segment as usize]
    }

    /// A segment, to be changed.
    pub fn get_mut(&mut self, segment: u32) -> &mut Segment {
        &mut self.segments[segment as usize]
    }

    /// Segments that can be taken at once.
    pub fn available(&self) -> u32 {
        let fresh = if self.prewrite { self.prewritten_ahead() } else { self.len() - self.unused_next };
        self.free.len() as u32 + fresh
    }

    /// Segments that are empty, whether ready or still to be prewritten or to be covered by a checkpoint.
    pub fn empty(&self) -> u32 {
        self.free.len() as u32 + (self.len() - self.unused_next) + self.pending.len() as u32
    }

    /// Segments never written and not prewritten.
    pub fn unprepared(&self) -> u32 {
        if self.prewrite { self.len() - self.unused_next - self.prewritten_ahead() } else { 0 }
    }

    /// Segments that cannot be cleaned: the space that they hold is lost until nothing in them is needed.
    pub fn damaged(&self) -> u32 {
        self.damaged
    }

    /// Notes that a segment cannot be cleaned, or may be tried again.
    pub fn set_damaged(&mut self, segment: u32, is_damaged: bool) {
        let entry = &mut self.segments[segment as usize];
        if entry.damaged != is_damaged {
            entry.damaged = is_damaged;
            self.damaged = if is_damaged { self.damaged + 1 } else { self.damaged - 1 };
        }
    }

    /// Segments that wait for a checkpoint.
    pub fn pending(&self) -> u32 {
        self.pending.len() as u32
    }

    fn prewritten_ahead(&self) -> u32 {
        self.unprepared_next - self.unused_next
    }

    /// The next segment to be prewritten, if fewer than `ahead` are.
    pub fn to_prewrite(&self, ahead: u32) -> Option<u32> {
        let next = self.unprepared_next;
        (self.prewrite && self.prewritten_ahead() < ahead && next < self.len()).then_some(next)
    }

    /// Segments that have still to be prewritten so that `ahead` are, or all.
    pub fn unprepared_of(&self, ahead: u32) -> u32 {
        self.unprepared().min(ahead.saturating_sub(self.prewritten_ahead()))
    }

    /// Notes that a checkpoint begins: it will know all that was prewritten.
    pub fn checkpoint_begins(&mut self) {
        self.era += 1;
        self.prewritten_news = 0;
        self.pending_at_begin = self.pending();
    }

    /// Whether a checkpoint has begun that is not complete.
    pub fn is_checkpoint_running(&self) -> bool {
        self.era != self.era_complete
    }

    /// Segments that the running checkpoint frees when it is complete: those that waited when it began, for it covers them.
    pub fn freed_by_checkpoint(&self) -> u32 {
        self.pending_at_begin
    }

    /// Notes that the segment of [`SegmentTable::to_prewrite`] was prewritten.
    pub fn prewritten(&mut self, segment: u32) {
        assert_eq!(segment, self.unprepared_next, "segments are prewritten one after another");
        self.get_mut(segment).prewritten = true;
        self.unprepared_next += 1;
        self.prewritten_news += 1;
    }

    /// Segments that are prewritten and not taken, since a checkpoint last began.
    pub fn prewritten_news(&self) -> u32 {
        self.prewritten_news.min(self.prewritten_ahead())
    }

    /// Takes a segment for a stream, if there is one.
    pub fn take(&mut self, head: Head) -> Option<u32> {
        let segment = match self.free.pop_front() {
            Some(segment) => segment,
            None => {
                let next = self.unused_next;
                if next >= self.len() || (self.prewrite && next >= self.unprepared_next) {
                    return None;
                }
                self.unused_next += 1;
                self.unprepared_next = self.unprepared_next.max(self.unused_next);
                next
            }
        };
        let entry = self.get_mut(segment);
        assert!(entry.live == 0 && entry.readers == 0, "segment {segment} is taken while it is needed");
        entry.state = SegmentState::Promised;
        entry.head = head;
        Some(segment)
    }

    /// Starts writing a promised segment.
    pub fn open(&mut self, segment: u32, head: Head) {
        let generation = self.generation_next;
        self.generation_next += 1;
        let entry = self.get_mut(segment);
        assert_eq!(entry.state, SegmentState::Promised);
        entry.generation = generation;
        entry.state = SegmentState::Open;
        entry.head = head;
        entry.written_blocks = 0;
        entry.footer = false;
        entry.prewritten = true;
        entry.deleted_era = 0;
        self.set_damaged(segment, false);
    }

    /// Notes on replay that a segment was opened with this generation.
    pub fn reopen(&mut self, segment: u32, generation: u64, head: Head) {
        self.note_generation(generation);
        let entry = self.get_mut(segment);
        entry.generation = generation;
        entry.state = SegmentState::Open;
        entry.head = head;
        entry.written_blocks = 0;
        entry.footer = false;
        entry.prewritten = true;
        entry.deleted_era = 0;
        self.set_damaged(segment, false);
    }

    /// Notes a generation that must not be given again.
    pub fn note_generation(&mut self, generation: u64) {
        self.generation_next = self.generation_next.max(generation + 1);
    }

    /// Adds to what is needed of a segment.
    pub fn add_live(&mut self, segment: u32, amount: u32) {
        let entry = self.get_mut(segment);
        entry.live += amount;
    }

    /// Takes from what is needed of a segment.
    pub fn remove_live(&mut self, segment: u32, amount: u32) {
        let era = self.era;
        let entry = self.get_mut(segment);
        entry.live = entry.live.checked_sub(amount).unwrap_or_else(|| {
            panic!("segment {segment}: {amount} taken from {} needed", entry.live);
        });
        if entry.live == 0 {
            entry.emptied_era = era;
            if entry.state == SegmentState::Closed {
                self.free_if_possible(segment);
            }
        }
    }

    /// Notes that blocks of a deleted layer are about to be taken from a segment.
    pub fn note_deleted(&mut self, segment: u32) {
        let era = self.era;
        self.get_mut(segment).deleted_era = era + 1;
    }

    /// Notes that a segment is full.
    pub fn close(&mut self, segment: u32) {
        let era = self.era;
        let entry = self.get_mut(segment);
        assert_eq!(entry.state, SegmentState::Open);
        entry.state = SegmentState::Closed;
        if entry.live == 0 {
            entry.emptied_era = era;
            self.free_if_possible(segment);
        }
    }

    /// Notes the end of a read or move.
    pub fn remove_reader(&mut self, segment: u32) {
        let entry = self.get_mut(segment);
        assert!(entry.readers > 0, "segment {segment} has no readers");
        entry.readers -= 1;
        if entry.readers == 0 && entry.live == 0 && entry.state == SegmentState::Closed {
            self.free_if_possible(segment);
        }
    }

    fn is_covered(&self, segment: &Segment) -> bool {
        #[cfg(feature = "mutations")]
        if self.reuse_early && segment.head != Head::Meta {
            return true;
        }
        let by_era = (segment.head != Head::Meta || segment.emptied_era < self.era_complete)
            && (segment.deleted_era == 0 || segment.deleted_era <= self.era_complete);
        segment.last_frame <= self.covered_frame && by_era
    }

    fn free_if_possible(&mut self, segment: u32) {
        let entry = *self.get(segment);
        if entry.state != SegmentState::Closed || entry.live > 0 || entry.readers > 0 {
            return;
        }
        let covered = self.is_covered(&entry);
        if covered {
            self.get_mut(segment).state = SegmentState::Free;
            self.set_damaged(segment, false);
            self.free.push_back(segment);
        } else if !self.pending.contains(&segment) {
            self.pending.push(segment);
        }
    }

    /// A checkpoint is complete: frees what waited for it.
    pub fn checkpoint_complete(&mut self, era: u64, covered_frame: u64) {
        self.era_complete = era;
        self.covered_frame = covered_frame;
        for segment in std::mem::take(&mut self.pending) {
            self.free_if_possible(segment);
        }
    }

    /// After a start: what is needed again waits for no checkpoint any more.
    pub fn review_pending(&mut self) {
        let segments = &self.segments;
        self.pending.retain(|segment| segments[*segment as usize].live == 0);
    }

    /// Whether a segment will be free as soon as nobody reads it any more.
    pub fn waits_for_readers(&self) -> bool {
        self.segments.iter().any(|segment| {
            let is_empty = segment.state == SegmentState::Closed && segment.live == 0;
            is_empty && segment.readers > 0 && self.is_covered(segment)
        })
    }

    /// Full segments of a head, and what is needed of them: for a person who looks into a hang.
    pub fn closed_of(&self, head: Head) -> Vec<u32> {
        let closed = self
            .segments
            .iter()
            .filter(|segment| segment.head == head && segment.state == SegmentState::Closed);
        closed.map(|segment| segment.live).collect()
    }

    /// Encodes the table for a checkpoint. `outdated` says how much of what segments hold is not needed any more
    /// once the checkpoint is complete.
    pub fn encode(&self, outdated: &HashMap<u32, u32, FixedState>, out: &mut Vec<u8>) {
        for (number, segment) in self.segments.iter().enumerate() {
            let amount = outdated.get(&(number as u32)).copied().unwrap_or(0);
            let live = segment.live.checked_sub(amount);
            let live =
                live.unwrap_or_else(|| panic!("segment {number}: {amount} of {} outdated", segment.live));
            out.extend_from_slice(&segment.generation.to_le_bytes());
            out.extend_from_slice(&segment.last_frame.to_le_bytes());
            out.extend_from_slice(&live.to_le_bytes());
            out.extend_from_slice(&segment.written_blocks.to_le_bytes());
            // Damaged ones are tried again after a start.
            let flags = u8::from(segment.footer) | u8::from(segment.prewritten) << 1;
            out.extend_from_slice(&[segment.state as u8, segment.head as u8, flags, 0, 0, 0, 0, 0]);
        }
    }

    /// Decodes a table of the right length. Which segments are free is found by [`SegmentTable::rebuild`].
    pub fn decode(bytes: &[u8], segments: u32, prewrite: bool) -> Option<Self> {
        if bytes.len() != segments as usize * SEGMENT_RECORD_BYTES {
            return None;
        }
        let mut table = SegmentTable::new(segments, prewrite);
        for (segment, record) in table.segments.iter_mut().zip(bytes.chunks_exact(SEGMENT_RECORD_BYTES)) {
            let long = |at: usize| {
                let mut bytes = [0; 8];
                bytes.copy_from_slice(&record[at..at + 8]);
                u64::from_le_bytes(bytes)
            };
            segment.generation = long(0);
            segment.last_frame = long(8);
            segment.live = long(16) as u32;
            segment.written_blocks = (long(16) >> 32) as u32;
            segment.state = SegmentState::from_number(record[24])?;
            segment.head = *crate::frame::HEADS.get(usize::from(record[25]))?;
            segment.footer = record[26] & 1 != 0;
            segment.prewritten = segment.state != SegmentState::Unused || record[26] & 2 != 0;
            table.generation_next = table.generation_next.max(segment.generation + 1);
        }
        Some(table)
    }

    /// After replay: works out which segments are free. `promised` and open ones stay with their streams.
    pub fn rebuild(&mut self, promised: &[Option<u32>], open: &[Option<u32>]) {
        self.free.clear();
        self.pending.clear();
        self.unused_next = self.len();
        while self.unused_next > 0 && self.get(self.unused_next - 1).state == SegmentState::Unused {
            self.unused_next -= 1;
        }
        for segment in 0..self.len() {
            if promised.contains(&Some(segment)) {
                self.unused_next = self.unused_next.max(segment + 1);
            }
        }
        let unused = &self.segments[self.unused_next as usize..];
        let ahead = unused.iter().take_while(|segment| segment.prewritten).count() as u32;
        self.unprepared_next = self.unused_next + ahead;
        for segment in 0..self.len() {
            if promised.contains(&Some(segment)) {
                let entry = self.get_mut(segment);
                entry.state = SegmentState::Promised;
                continue;
            }
            if self.get(segment).state == SegmentState::Open && !open.contains(&Some(segment)) {
                // Opened by a frame that did not reach the drive.
                assert_eq!(self.get(segment).live, 0, "segment {segment} is open in no stream");
                self.get_mut(segment).state = SegmentState::Free;
            }
            match self.get(segment).state {
                SegmentState::Unused if segment < self.unused_next => {
                    self.get_mut(segment).state = SegmentState::Free;
                    self.free.push_back(segment);
                }
                SegmentState::Free | SegmentState::Promised => {
                    self.get_mut(segment).state = SegmentState::Free;
                    self.free.push_back(segment);
                }
                SegmentState::Closed if self.get(segment).live == 0 => self.free_if_possible(segment),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests;
