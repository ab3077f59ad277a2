//! Buffers of a gateway that have served and will serve again, by size, so that the way of an I/O does not allocate.

use coquina_base::AlignedBuf;

/// Classes of buffers: 1 block, 2, 4 and so on up to 1 MiB. Larger ones are not kept.
const CLASSES: usize = 9;
/// Blocks of all that are kept: 16 MiB.
const SPARE_BLOCKS_MAX: usize = 4096;

/// Spare buffers.
#[derive(Default)]
pub struct SpareBuffers {
    classes: [Vec<AlignedBuf>; CLASSES],
    /// Blocks of all of them.
    blocks: usize,
    /// Buffers that were made because none was there.
    #[cfg(test)]
    made: usize,
}

impl SpareBuffers {
    /// A buffer of so many blocks, with anything in it that this gateway had in one.
    pub fn take(&mut self, blocks: usize) -> AlignedBuf {
        let room_blocks = blocks.max(1).next_power_of_two();
        let class = self.classes.get_mut(room_blocks.ilog2() as usize);
        let Some(class) = class else { return AlignedBuf::zeroed(blocks) };
        let mut buffer = match class.pop() {
            Some(buffer) => {
                self.blocks -= buffer.capacity_blocks();
                buffer
            }
            None => {
                #[cfg(test)]
                (self.made += 1);
                AlignedBuf::zeroed(room_blocks)
            }
        };
        buffer.resize_blocks(blocks);
        buffer
    }

    /// Takes a buffer back. Where that is one too many, some of the sizes that most is kept of go.
    pub fn give(&mut self, buffer: AlignedBuf) {
        let blocks = buffer.capacity_blocks();
        // By the power of two below, so that a buffer always has the room that its class promises.
        let class = blocks.checked_ilog2().and_then(|class| self.classes.get_mut(class as usize));
        let Some(class) = class else { return };
        class.push(buffer);
        self.blocks += blocks;
        while self.blocks > SPARE_BLOCKS_MAX {
            let fullest =
                self.classes.iter_mut().enumerate().max_by_key(|(class, spare)| spare.len() << class);
            let Some(dropped) = fullest.and_then(|(_, spare)| spare.pop()) else { return };
            self.blocks -= dropped.capacity_blocks();
        }
    }

    /// How many there are.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.classes.iter().map(Vec::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes and gives back buffers of these sizes in turn, so many at a time.
    fn use_buffers(spare: &mut SpareBuffers, sizes: &[usize], depth: usize, requests: usize) {
        let mut used = std::collections::VecDeque::new();
        for request in 0..requests {
            let blocks = sizes[request % sizes.len()];
            let buffer = spare.take(blocks);
            assert_eq!(buffer.blocks(), blocks);
            used.push_back(buffer);
            if used.len() == depth {
                spare.give(used.pop_front().unwrap());
            }
        }
        used.into_iter().for_each(|buffer| spare.give(buffer));
    }

    #[test]
    fn reads_of_one_size_take_the_same_buffers_again() {
        let mut spare = SpareBuffers::default();
        use_buffers(&mut spare, &[16], 4, 1000);
        assert_eq!((spare.made, spare.len()), (4, 4));
    }

    #[test]
    fn what_is_kept_of_one_size_leaves_room_for_others() {
        let mut spare = SpareBuffers::default();
        use_buffers(&mut spare, &[1], 300, 300);
        use_buffers(&mut spare, &[16, 5, 3, 32, 256], 4, 1000);
        assert!(spare.made <= 300 + 5 * 4, "{}", spare.made);
        // As much of the smallest as there may be of all.
        use_buffers(&mut spare, &[1], 8192, 8192);
        assert!(spare.blocks <= SPARE_BLOCKS_MAX);
        let before = spare.made;
        use_buffers(&mut spare, &[64], 4, 1000);
        assert!(spare.made - before <= 4, "{}", spare.made - before);
    }

    #[test]
    fn no_more_is_kept_than_so_many_bytes_and_nothing_very_large() {
        let mut spare = SpareBuffers::default();
        use_buffers(&mut spare, &[256], 64, 64);
        assert_eq!((spare.blocks, spare.len()), (SPARE_BLOCKS_MAX, 16));
        use_buffers(&mut spare, &[8192, 512], 2, 4);
        assert_eq!(spare.len(), 16);
        spare.give(AlignedBuf::new());
        assert_eq!(spare.len(), 16);
    }
}
