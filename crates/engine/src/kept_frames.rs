//! Frames of moved blocks that stay in memory, so that the cleaner need not read them when it moves these blocks again.
//!
//! A frame's own buffer is what stays: nothing is copied for it. Another buffer takes its place among those that serve for frames.
//! What stays takes only memory that the block cache may have and does not: as that grows, frames go. (A few buffers are beside that: those
//! that are made ready, and those of frames that are being moved.)
//!
//! Invariant: a segment's frames are dropped before it is written again, so that what is there is what the drive holds, unless memory went
//! bad: whoever uses a block compares its checksum.

use std::collections::BTreeMap;

use coquina_base::AlignedBuf;

/// Gives a buffer with room for as many blocks as the first number says, of which as many as the second are in memory already; none if
/// none is at hand.
pub type FrameMemory = Box<dyn FnMut(usize, usize) -> Option<AlignedBuf> + Send>;

/// A frame that stayed.
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
        let capacity = buffer.capacity_blocks();
        let bytes = bytes_of(&buffer);
        let serves = |spare: &mut AlignedBuf| spare.capacity_blocks() == capacity;
        let replacement = match self.spare.pop_if(serves) {
            Some(spare) => {
                self.bytes -= bytes_of(&spare);
                Some(spare)
            }
            None if self.bytes + bytes > bytes_max => None,
            None => match &mut self.memory {
                Some(memory) => memory(capacity, blocks),
                None => Some(AlignedBuf::with_capacity_blocks(capacity)),
            },
        };
        let Some(replacement) = replacement else { return buffer };
        self.bytes += bytes;
        let frames = self.segments.entry(segment).or_default();
        assert!(frames.last().is_none_or(|last| last.end() <= location), "frames stay in order");
        frames.push(KeptFrame { location, buffer });
        replacement
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
            frame.buffer.chunks_exact_mut(coquina_base::BLOCK_BYTES).for_each(|block| block[1000] ^= 4);
        });
    }
}

fn bytes_of(buffer: &AlignedBuf) -> u64 {
    (buffer.capacity_blocks() * coquina_base::BLOCK_BYTES) as u64
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use coquina_base::BLOCK_BYTES;

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
}
