//! Buffers that have served and will serve again, by size, so that the path of an I/O does not allocate.

use coquina_base::{AlignedBuf, KEPT_BLOCKS};

use crate::api::ReadData;

const CLASSES: usize = 11;
/// Blocks of spare buffers kept per class.
const CLASS_BLOCKS_MAX: usize = 2048;
/// The same for buffers of 512 KiB, of which many are on their way under large reads.
const LARGE_CLASS_BLOCKS_MAX: usize = 8192;
const LARGE_CLASS: usize = 7;

/// Smaller ones are not worth a buffer for a whole frame.
const KEPT_FROM_BLOCKS: usize = 33;
/// Spare buffers of frames that are kept: what large writes of many clients have on their way.
const KEPT_MAX: usize = 128;

/// Spare buffers.
#[derive(Default)]
pub struct Pool {
    classes: [Vec<AlignedBuf>; CLASSES],
    /// Those of the size of a frame: in memory that reactors may have registered, as long as there is some.
    kept: Vec<AlignedBuf>,
    data: Vec<ReadData>,
}

/// Whether buffers of so many blocks lie in memory that reactors may have registered, of which there is little.
pub fn may_be_registered(blocks: usize) -> bool {
    (KEPT_FROM_BLOCKS..=KEPT_BLOCKS).contains(&blocks)
}

fn class_of(blocks: usize) -> usize {
    (blocks.max(1).next_power_of_two().ilog2() as usize).min(CLASSES - 1)
}

impl Pool {
    /// A buffer with room for so many blocks; its length and content are left over.
    pub fn take(&mut self, blocks: usize) -> AlignedBuf {
        if may_be_registered(blocks) {
            return self.kept.pop().unwrap_or_else(AlignedBuf::kept);
        }
        let class = class_of(blocks);
        self.classes[class]
            .pop()
            .unwrap_or_else(|| AlignedBuf::with_capacity_blocks(blocks.max(1).next_power_of_two()))
    }

    /// Gives a buffer back.
    pub fn give(&mut self, buffer: AlignedBuf) {
        if buffer.capacity_blocks() == KEPT_BLOCKS {
            if self.kept.len() < KEPT_MAX {
                self.kept.push(buffer);
            }
            return;
        }
        let blocks = buffer.capacity_blocks();
        if blocks == 0 {
            return;
        }
        // By the power of two below, so that a buffer always has the room that its class promises.
        let class = blocks.ilog2() as usize;
        let blocks_max = if class == LARGE_CLASS { LARGE_CLASS_BLOCKS_MAX } else { CLASS_BLOCKS_MAX };
        if class < CLASSES && self.classes[class].len() < (blocks_max >> class).max(4) {
            self.classes[class].push(buffer);
        }
    }

    /// An empty list of pieces.
    pub fn take_data(&mut self) -> ReadData {
        self.data.pop().unwrap_or_default()
    }

    /// Gives a list back.
    pub fn give_data(&mut self, data: ReadData) {
        if self.data.len() < 1024 {
            self.data.push(data);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Beyond the slabs buffers of frames are ordinary memory: they must serve again all the same.
    #[test]
    fn buffers_of_frames_serve_again_whatever_memory_they_are() {
        let mut pool = Pool::default();
        for buffer in [AlignedBuf::with_capacity_blocks(KEPT_BLOCKS), AlignedBuf::kept()] {
            let slab = buffer.slab();
            let place = buffer.as_ptr();
            pool.give(buffer);
            for blocks in [KEPT_FROM_BLOCKS, 65, KEPT_BLOCKS] {
                let again = pool.take(blocks);
                assert_eq!((again.as_ptr(), again.slab()), (place, slab));
                assert!(again.capacity_blocks() >= blocks);
                pool.give(again);
            }
            let taken = pool.take(65);
            assert_eq!(taken.as_ptr(), place);
        }
    }
}
