//! Buffers of a gateway that have served and will serve again, by size, so that the way of an I/O does not allocate.

use coquina_base::AlignedBuf;

/// Classes of buffers: from 1 block on, from 2, 4 and so on up to all that are kept.
const CLASSES: usize = SPARE_BLOCKS_MAX.ilog2() as usize + 1;
/// Blocks of all that are kept: 16 MiB. A larger buffer is not kept.
const SPARE_BLOCKS_MAX: usize = 4096;
/// Larger ones, above 1 MiB, are made of a multiple of `LARGE_BLOCKS_STEP`, since twice of what is asked for may be much. There are never
/// more of them than can be looked through.
const LARGE_BLOCKS: usize = 256;
const LARGE_BLOCKS_STEP: usize = 64;

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
        let room_blocks = match blocks.max(1) {
            blocks if blocks <= LARGE_BLOCKS => blocks.next_power_of_two(),
            blocks => blocks.next_multiple_of(LARGE_BLOCKS_STEP),
        };
        if room_blocks > SPARE_BLOCKS_MAX {
            #[cfg(test)]
            (self.made += 1);
            return AlignedBuf::zeroed(blocks);
        }
        let class = &mut self.classes[room_blocks.ilog2() as usize];
        // The last one, unless it is large.
        let fitting = class.iter().rposition(|buffer| buffer.capacity_blocks() >= blocks);
        let mut buffer = match fitting.map(|at| class.swap_remove(at)) {
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
        let kept_blocks = Some(blocks).filter(|blocks| *blocks <= SPARE_BLOCKS_MAX);
        let class =
            kept_blocks.and_then(usize::checked_ilog2).and_then(|class| self.classes.get_mut(class as usize));
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

    /// From 1 MiB on each had a buffer of its own.
    #[test]
    fn large_requests_take_the_same_buffers_again() {
        let mut spare = SpareBuffers::default();
        use_buffers(&mut spare, &[320, 512], 4, 1000);
        assert!(spare.made <= 8, "{}", spare.made);
        let before = spare.made;
        use_buffers(&mut spare, &[300, 257, 320], 4, 1000);
        assert!(spare.made - before <= 4, "{}", spare.made - before);
        assert!(spare.blocks <= SPARE_BLOCKS_MAX);
        let mut spare = SpareBuffers::default();
        use_buffers(&mut spare, &[4096], 2, 10);
        assert_eq!((spare.blocks, spare.len()), (SPARE_BLOCKS_MAX, 1));
    }

    #[test]
    fn no_more_is_kept_than_so_many_bytes_and_nothing_very_large() {
        let mut spare = SpareBuffers::default();
        use_buffers(&mut spare, &[256], 64, 64);
        assert_eq!((spare.blocks, spare.len()), (SPARE_BLOCKS_MAX, 16));
        use_buffers(&mut spare, &[8192, 4097], 2, 4);
        assert_eq!(spare.len(), 16);
        spare.give(AlignedBuf::new());
        assert_eq!(spare.len(), 16);
    }
}
