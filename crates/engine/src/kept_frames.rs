//! Frames that stay in memory, so that the cleaner need not read them when it moves their blocks.
//!
//! Frames of moved blocks stay in their own buffers: nothing is copied for them. Another buffer takes its place among those that serve
//! for frames. Where the drive's reads are dear and there is time, small writes of users are copied into such buffers, as many frames as
//! one has room for, and footers behind them ([`ReadCost`]).
//! What stays takes only memory that the block cache may have and does not: as that grows, frames go. (A few buffers are beside that: those
//! that are made ready, and those of frames that are being moved.)
//!
//! Invariant: a segment's frames are dropped before it is written again, so that what is there is what the drive holds, unless memory went
//! bad: whoever uses a block compares its checksum.

use std::collections::BTreeMap;

use coquina_base::{AlignedBuf, BLOCK_BYTES};

use crate::pool::may_be_registered;
use crate::shard::Shard;

/// Gives a buffer with room for as many blocks as the first number says, of which as many as the second are in memory already; none if
/// none is at hand.
pub type FrameMemory = Box<dyn FnMut(usize, usize) -> Option<AlignedBuf> + Send>;

/// What a read of the cleaner takes on average from which on it is dear, ns: a copy of all that users write costs less then than
/// writes that wait behind the reads. Those of an SSD take less until it is busy.
const DEAR_READ_NS: u64 = 200_000;
/// Reads after which an older one counts half, about.
const READS_REMEMBERED: u64 = 16;
/// Share of its time for which the shard's thread has something to do, or waits for want of processors, from which on it has none for
/// copies, and below which it has again: reads seem to take long then because nobody looks whether they are done, and copies make that
/// longer.
const OCCUPIED_FROM: f64 = 0.6;
const OCCUPIED_UNTIL: f64 = 0.45;

/// What reads of the cleaner have taken of late, and whether there is time to do without them.
#[derive(Default)]
pub(crate) struct ReadCost {
    mean_ns: u64,
    is_dear: bool,
    is_occupied: bool,
}

impl ReadCost {
    /// Counts a read that took so long.
    pub fn count(&mut self, took_ns: u64) {
        let rest_ns = self.mean_ns - self.mean_ns / READS_REMEMBERED;
        self.mean_ns = rest_ns.saturating_add(took_ns / READS_REMEMBERED);
        let bound_ns = if self.is_dear { DEAR_READ_NS / 2 } else { DEAR_READ_NS };
        self.is_dear = self.mean_ns >= bound_ns;
    }

    /// Learns for which share of its time the shard's thread had something to do of late.
    pub fn occupied(&mut self, share: f64) {
        self.is_occupied = share >= if self.is_occupied { OCCUPIED_UNTIL } else { OCCUPIED_FROM };
    }

    /// Whether to keep what users write rather than to read it.
    pub fn is_dear(&self) -> bool {
        self.is_dear && !self.is_occupied
    }
}

impl Shard {
    /// Says for which share of its time, 0 to 1, the thread that serves this shard has had something to do of late, or has waited for want
    /// of processors: where that is most of it, nothing is copied that could be read later instead. Without it there is time.
    pub fn set_occupation(&mut self, share: f64) {
        self.read_cost.occupied(share);
    }
}

/// A frame that stayed, or several that lie behind each other.
pub(crate) struct KeptFrame {
    /// Where its header lies.
    pub location: u64,
    /// All of it.
    pub buffer: AlignedBuf,
}

impl KeptFrame {
    /// The location behind its last block.
    pub fn end(&self) -> u64 {
        self.location + self.buffer.blocks() as u64
    }
}

/// What stayed, by segment.
#[derive(Default)]
pub(crate) struct KeptFrames {
    /// In order of location.
    segments: BTreeMap<u32, Vec<KeptFrame>>,
    /// Buffers of frames that are needed no more.
    spare: Vec<AlignedBuf>,
    /// Of all that stayed and of what is spare: whole buffers, whatever is in them.
    bytes: u64,
    /// Where memory comes from; else it is taken from the system.
    memory: Option<FrameMemory>,
}

impl KeptFrames {
    /// Buffers come from there from now on.
    pub fn set_memory(&mut self, memory: FrameMemory) {
        self.memory = Some(memory);
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Keeps a frame if there is memory for it, within `bytes_max` for all; gives a buffer that serves in place of its own. `blocks`
    /// is the size of the largest frame; one of less than half of that is not worth its buffer. Neither is one in memory that reactors
    /// have registered, of which there is little.
    pub fn keep(
        &mut self,
        segment: u32,
        location: u64,
        buffer: AlignedBuf,
        blocks: usize,
        bytes_max: u64,
    ) -> AlignedBuf {
        if buffer.blocks() < blocks / 2 || buffer.slab().is_some() {
            return buffer;
        }
        let Some(replacement) = self.take_buffer(buffer.capacity_blocks(), blocks, bytes_max) else {
            return buffer;
        };
        self.insert(segment, location, buffer);
        replacement
    }

    /// Keeps a copy of a frame, behind the one before it where that stayed and has room. `blocks` and `bytes_max` are as above. The
    /// buffers are those that frames of moved blocks have; where these are registered, nothing is kept.
    pub fn keep_copy(&mut self, segment: u32, location: u64, frame: &[u8], blocks: usize, bytes_max: u64) {
        if may_be_registered(blocks) || self.append(segment, location, location, frame, blocks) {
            return;
        }
        let capacity = blocks.next_power_of_two();
        if frame.len() / BLOCK_BYTES > blocks {
            return;
        }
        let Some(mut buffer) = self.take_buffer(capacity, blocks, bytes_max) else { return };
        buffer.clear();
        buffer.extend_from_bytes(frame);
        self.insert(segment, location, buffer);
    }

    /// The same for a footer; `frames_end` is where the last frame before it ends. It takes no buffer of its own.
    pub fn keep_footer(&mut self, segment: u32, frames_end: u64, location: u64, footer: &[u8]) {
        self.append(segment, frames_end, location, footer, usize::MAX);
    }

    /// Puts a frame behind the one that ends where it says, if that stayed and its buffer has room within so many blocks.
    fn append(&mut self, segment: u32, frames_end: u64, location: u64, frame: &[u8], blocks: usize) -> bool {
        let last = self.segments.get_mut(&segment).and_then(|frames| frames.last_mut());
        let Some(last) = last.filter(|last| last.end() == frames_end && frames_end <= location) else {
            return false;
        };
        let (used, at) = (last.buffer.blocks(), (location - last.location) as usize);
        let end = at + frame.len() / BLOCK_BYTES;
        if end > blocks.min(last.buffer.capacity_blocks()) {
            return false;
        }
        last.buffer.resize_blocks(end);
        last.buffer[used * BLOCK_BYTES..at * BLOCK_BYTES].fill(0);
        last.buffer[at * BLOCK_BYTES..].copy_from_slice(frame);
        true
    }

    /// A buffer of that capacity, if there is memory for it; it does not count yet.
    fn take_buffer(&mut self, capacity: usize, blocks: usize, bytes_max: u64) -> Option<AlignedBuf> {
        let serves = |spare: &mut AlignedBuf| spare.capacity_blocks() == capacity;
        if let Some(spare) = self.spare.pop_if(serves) {
            self.bytes -= bytes_of(&spare);
            return Some(spare);
        }
        if self.bytes + (capacity * BLOCK_BYTES) as u64 > bytes_max {
            return None;
        }
        match &mut self.memory {
            Some(memory) => memory(capacity, blocks),
            None => Some(AlignedBuf::with_capacity_blocks(capacity)),
        }
    }

    fn insert(&mut self, segment: u32, location: u64, buffer: AlignedBuf) {
        self.bytes += bytes_of(&buffer);
        let frames = self.segments.entry(segment).or_default();
        assert!(frames.last().is_none_or(|last| last.end() <= location), "frames stay in order");
        frames.push(KeptFrame { location, buffer });
    }

    /// Blocks that stayed, if all of them did and lie together.
    pub fn find(&self, segment: u32, location: u64, blocks: u64) -> Option<&[u8]> {
        let frames = self.segments.get(&segment)?;
        let frame = frames.get(frames.partition_point(|frame| frame.end() <= location))?;
        let at = location.checked_sub(frame.location)? as usize * BLOCK_BYTES;
        frame.buffer.get(at..at + blocks as usize * BLOCK_BYTES)
    }

    /// Takes out a segment's frames that begin before a location.
    pub fn take_before(&mut self, segment: u32, end: u64) -> Vec<KeptFrame> {
        let Some(frames) = self.segments.get_mut(&segment) else { return Vec::new() };
        let rest = frames.split_off(frames.partition_point(|frame| frame.location < end));
        let taken = std::mem::replace(frames, rest);
        if frames.is_empty() {
            self.segments.remove(&segment);
        }
        self.bytes -= taken.iter().map(|frame| bytes_of(&frame.buffer)).sum::<u64>();
        taken
    }

    /// Takes the buffer of a frame that is needed no more.
    pub fn give(&mut self, buffer: AlignedBuf) {
        self.bytes += bytes_of(&buffer);
        self.spare.push(buffer);
    }

    /// Drops what stayed of a segment.
    pub fn forget(&mut self, segment: u32) {
        for frame in self.take_before(segment, u64::MAX) {
            self.give(frame.buffer);
        }
    }

    /// Gives memory above `bytes_max` back.
    pub fn shrink(&mut self, bytes_max: u64) {
        while self.bytes > bytes_max {
            let buffer = self.spare.pop().or_else(|| self.drop_frame());
            let Some(buffer) = buffer else { panic!("{} bytes of frames that are not there", self.bytes) };
            self.bytes -= bytes_of(&buffer);
        }
    }

    fn drop_frame(&mut self) -> Option<AlignedBuf> {
        let mut last = self.segments.last_entry()?;
        let frame = last.get_mut().pop();
        if last.get().is_empty() {
            last.remove();
        }
        frame.map(|frame| frame.buffer)
    }

    /// Flips a bit of each block.
    #[cfg(debug_assertions)]
    pub fn damage(&mut self) {
        let frames = self.segments.values_mut().flatten();
        frames.for_each(|frame| {
            frame.buffer.chunks_exact_mut(BLOCK_BYTES).for_each(|block| block[1000] ^= 4);
        });
    }
}

fn bytes_of(buffer: &AlignedBuf) -> u64 {
    (buffer.capacity_blocks() * BLOCK_BYTES) as u64
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const CAPACITY: usize = 8;

    fn frame(tag: u8, blocks: usize) -> AlignedBuf {
        let mut buffer = AlignedBuf::with_capacity_blocks(CAPACITY);
        buffer.resize_blocks(blocks);
        buffer.fill(tag);
        buffer
    }

    fn keep(frames: &mut KeptFrames, segment: u32, location: u64, buffer: AlignedBuf, max: usize) -> bool {
        let place = buffer.as_ptr();
        let replacement = frames.keep(segment, location, buffer, CAPACITY, (max * BLOCK_BYTES) as u64);
        assert_eq!(replacement.capacity_blocks(), CAPACITY);
        replacement.as_ptr() != place
    }

    #[test]
    fn frames_stay_until_they_are_taken_or_forgotten() {
        let mut frames = KeptFrames::default();
        assert!(keep(&mut frames, 3, 300, frame(1, 5), 100));
        assert!(keep(&mut frames, 3, 305, frame(2, 8), 100));
        assert!(keep(&mut frames, 4, 400, frame(3, 4), 100));
        assert!(!keep(&mut frames, 4, 404, frame(3, 3), 100), "too small to be worth it");
        assert_eq!(frames.bytes(), 24 * BLOCK_BYTES as u64);
        let taken = frames.take_before(3, 305);
        assert_eq!((taken.len(), taken[0].location, taken[0].end(), taken[0].buffer[0]), (1, 300, 305, 1));
        assert_eq!(frames.bytes(), 16 * BLOCK_BYTES as u64);
        let taken = frames.take_before(3, u64::MAX);
        assert_eq!((taken.len(), taken[0].buffer[0]), (1, 2));
        frames.forget(4);
        frames.forget(4);
        assert!(frames.take_before(4, u64::MAX).is_empty());
        assert_eq!(frames.bytes(), 8 * BLOCK_BYTES as u64, "its buffer is spare");
        taken.into_iter().for_each(|frame| frames.give(frame.buffer));
        assert_eq!(frames.bytes(), 16 * BLOCK_BYTES as u64);
    }

    #[test]
    fn memory_stays_within_its_bound_and_serves_again() {
        let mut frames = KeptFrames::default();
        assert!(keep(&mut frames, 1, 100, frame(1, 4), 25));
        assert!(keep(&mut frames, 2, 200, frame(2, 4), 25));
        assert!(keep(&mut frames, 2, 204, frame(2, 4), 25));
        assert!(!keep(&mut frames, 3, 300, frame(3, 4), 25), "its own buffer comes back");
        frames.forget(1);
        assert!(keep(&mut frames, 1, 100, frame(1, 4), 25), "in place of what was forgotten");
        assert_eq!(frames.bytes(), 24 * BLOCK_BYTES as u64);
        frames.shrink(24 * BLOCK_BYTES as u64);
        assert_eq!(frames.take_before(1, u64::MAX).len(), 1);
        // One frame after the other, the last ones first.
        assert_eq!(frames.bytes(), 16 * BLOCK_BYTES as u64);
        frames.shrink(15 * BLOCK_BYTES as u64);
        assert_eq!(
            frames.take_before(2, u64::MAX).iter().map(|frame| frame.location).collect::<Vec<_>>(),
            [200]
        );
        frames.shrink(0);
        assert_eq!(frames.bytes(), 0);
    }

    #[test]
    fn a_frame_does_not_stay_where_no_buffer_is_at_hand() {
        let mut frames = KeptFrames::default();
        let mut at_hand = 1;
        frames.set_memory(Box::new(move |capacity, blocks| {
            assert_eq!((capacity, blocks), (CAPACITY, CAPACITY));
            let has_one = std::mem::take(&mut at_hand) > 0;
            has_one.then(|| AlignedBuf::with_capacity_blocks(capacity))
        }));
        assert!(keep(&mut frames, 1, 100, frame(1, 4), 100));
        assert!(!keep(&mut frames, 1, 104, frame(1, 4), 100));
        frames.forget(1);
        assert!(keep(&mut frames, 1, 100, frame(1, 4), 100), "what is spare needs none");
    }

    /// As many blocks as a buffer has room for, and less than those that frames may have.
    const WIDE: usize = 128;
    const PART: usize = WIDE - 20;

    fn copy(frames: &mut KeptFrames, location: u64, tag: u8, blocks: usize) {
        let frame = vec![tag; blocks * BLOCK_BYTES];
        frames.keep_copy(1, location, &frame, PART, (2 * WIDE * BLOCK_BYTES) as u64);
    }

    fn footer(frames: &mut KeptFrames, frames_end: u64, location: u64, tag: u8, blocks: usize) {
        frames.keep_footer(1, frames_end, location, &vec![tag; blocks * BLOCK_BYTES]);
    }

    #[test]
    fn copies_lie_behind_each_other_until_a_buffer_is_full() {
        let mut frames = KeptFrames::default();
        let large = PART - 30;
        copy(&mut frames, 100, 1, large);
        let end = 100 + large as u64;
        copy(&mut frames, end, 2, 10);
        assert_eq!(frames.bytes(), (WIDE * BLOCK_BYTES) as u64, "one buffer");
        assert!(frames.find(1, 100, large as u64).unwrap().iter().all(|byte| *byte == 1));
        assert!(frames.find(1, end, 10).unwrap().iter().all(|byte| *byte == 2));
        assert!(frames.find(1, 99, 2).is_none() && frames.find(1, end + 9, 2).is_none());
        assert!(frames.find(2, 100, 1).is_none());
        // What lies behind a frame that did not stay takes the next buffer, as long as there is memory.
        copy(&mut frames, end + 13, 3, PART);
        assert_eq!(frames.bytes(), (2 * WIDE * BLOCK_BYTES) as u64);
        let next = end + 13 + PART as u64;
        copy(&mut frames, next, 4, 1);
        assert!(frames.find(1, next, 1).is_none());
        assert_eq!(frames.bytes(), (2 * WIDE * BLOCK_BYTES) as u64);
        let taken = frames.take_before(1, u64::MAX);
        assert_eq!(taken.iter().map(|frame| frame.location).collect::<Vec<_>>(), [100, end + 13]);
        assert_eq!(frames.bytes(), 0);
    }

    #[test]
    fn a_footer_takes_the_room_that_frames_leave_and_covers_no_frame_that_did_not_stay() {
        let mut frames = KeptFrames::default();
        footer(&mut frames, 100, 100, 1, 2);
        assert_eq!(frames.bytes(), 0, "no buffer of its own");
        copy(&mut frames, 100, 2, PART);
        let end = 100 + PART as u64;
        footer(&mut frames, end + 2, end + 3, 3, 5);
        assert!(frames.find(1, end + 3, 5).is_none(), "a frame of 2 blocks lies between");
        footer(&mut frames, end, end + 3, 4, WIDE - PART);
        assert!(frames.find(1, end + 3, 1).is_none(), "no room");
        footer(&mut frames, end, end + 3, 5, 5);
        assert!(frames.find(1, end + 3, 5).unwrap().iter().all(|byte| *byte == 5));
        assert!(frames.find(1, end, 3).unwrap().iter().all(|byte| *byte == 0), "nothing was written there");
        assert_eq!(frames.bytes(), (WIDE * BLOCK_BYTES) as u64);
    }

    #[test]
    fn a_buffer_that_serves_again_shows_nothing_of_what_it_held() {
        let mut frames = KeptFrames::default();
        copy(&mut frames, 100, 9, PART);
        frames.forget(1);
        copy(&mut frames, 100, 1, 1);
        footer(&mut frames, 101, 104, 2, 1);
        assert_eq!(frames.bytes(), (WIDE * BLOCK_BYTES) as u64);
        assert!(frames.find(1, 101, 3).unwrap().iter().all(|byte| *byte == 0));
        assert!(frames.find(1, 105, 1).is_none());
    }

    #[test]
    fn nothing_is_copied_where_buffers_are_registered() {
        let mut frames = KeptFrames::default();
        frames.keep_copy(1, 100, &[1; BLOCK_BYTES], coquina_base::KEPT_BLOCKS, u64::MAX);
        assert_eq!(frames.bytes(), 0);
    }

    #[test]
    fn reads_become_dear_and_cheap_again() {
        let mut cost = ReadCost::default();
        (0..200).for_each(|_| cost.count(DEAR_READ_NS / 2));
        assert!(!cost.is_dear());
        cost.count(u64::MAX);
        assert!(cost.is_dear(), "one that took for ever");
        (0..2000).for_each(|_| cost.count(DEAR_READ_NS / 4));
        assert!(!cost.is_dear());
        (0..200).for_each(|_| cost.count(2 * DEAR_READ_NS));
        assert!(cost.is_dear());
        (0..200).for_each(|_| cost.count(DEAR_READ_NS * 3 / 4));
        assert!(cost.is_dear(), "not much less");
    }

    #[test]
    fn nothing_is_copied_by_a_thread_that_has_no_time() {
        let mut cost = ReadCost::default();
        (0..200).for_each(|_| cost.count(2 * DEAR_READ_NS));
        let mut is_dear_at = |share| {
            cost.occupied(share);
            cost.is_dear()
        };
        assert!(is_dear_at(0.0) && is_dear_at(OCCUPIED_FROM - 0.01));
        assert!(!is_dear_at(OCCUPIED_FROM), "reads that nobody fetches seem to take long");
        assert!(!is_dear_at(OCCUPIED_UNTIL), "not much less");
        assert!(is_dear_at(OCCUPIED_UNTIL - 0.01));
        (0..2000).for_each(|_| cost.count(DEAR_READ_NS / 4));
        assert!(!cost.is_dear());
    }
}
