//! Blocks of memory that many may read at once: parts of one mapping, each with a count of its shares.

use std::sync::Arc;

use memmap2::{Advice, MmapMut};

use crate::{BLOCK_BYTES, SLAB_BYTES};

/// One block of 4,096 bytes, aligned to its size. A clone is another share of the same memory; who holds the only share may change it.
///
/// It derefs to its bytes.
#[derive(Clone)]
pub struct SharedBlock(Arc<Part>);

/// A block's part of a mapping.
struct Part {
    /// Not longer than `_map` is there, whatever its type says: so it does not leave this module but borrowed from its block.
    bytes: &'static mut [u8],
    _map: Arc<MmapMut>,
}

impl SharedBlock {
    /// `count` blocks of zeros in one mapping, which is given back when the last share of all of them is gone; none if the system has no
    /// memory. A multiple of [`SLAB_BYTES`] lies in huge pages, where the system has them: Linux 6.7 and newer align such mappings.
    pub fn slab(count: usize) -> impl Iterator<Item = SharedBlock> {
        let map = MmapMut::map_anon(count * BLOCK_BYTES).ok();
        map.into_iter().flat_map(|mut map| {
            if map.len() % SLAB_BYTES == 0 {
                // Refused where huge pages are switched off: then it is ordinary pages.
                let _ = map.advise(Advice::HugePage);
            }
            // SAFETY: the memory stays mapped as long as any part of it lives, since each holds a share of the mapping, and nothing
            // but the parts, which do not overlap, looks at it.
            #[allow(unsafe_code)]
            let bytes: &'static mut [u8] =
                unsafe { std::slice::from_raw_parts_mut(map.as_mut_ptr(), map.len()) };
            let map = Arc::new(map);
            let parts = bytes.chunks_exact_mut(BLOCK_BYTES);
            parts.map(move |bytes| SharedBlock(Arc::new(Part { bytes, _map: map.clone() })))
        })
    }

    /// One slab of [`SLAB_BYTES`] as [`SharedBlock::slab`] gives it, each page touched: whoever writes to it first does not have to
    /// wait for the system to find and clear it.
    pub fn touched_slab() -> Vec<SharedBlock> {
        let mut blocks: Vec<SharedBlock> = SharedBlock::slab(SLAB_BYTES / BLOCK_BYTES).collect();
        blocks.iter_mut().filter_map(SharedBlock::get_mut).for_each(|block| block[0] = 0);
        blocks
    }

    /// How many shares there are of it, this one included.
    pub fn shares(&self) -> usize {
        Arc::strong_count(&self.0)
    }

    /// The block's bytes to be changed, unless there are other shares of it.
    pub fn get_mut(&mut self) -> Option<&mut [u8]> {
        Arc::get_mut(&mut self.0).map(|part| &mut *part.bytes)
    }
}

impl std::ops::Deref for SharedBlock {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.0.bytes
    }
}

impl std::fmt::Debug for SharedBlock {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "SharedBlock({} shares)", self.shares())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_the_only_share_changes_a_block_and_no_other() {
        let mut blocks: Vec<SharedBlock> = SharedBlock::slab(3).collect();
        for (tag, block) in blocks.iter_mut().enumerate() {
            assert_eq!(block.as_ptr() as usize % BLOCK_BYTES, 0);
            assert_eq!(block[..], [0; BLOCK_BYTES]);
            block.get_mut().expect("nobody else has it").fill(tag as u8 + 1);
        }
        let share = blocks[1].clone();
        assert!(blocks[1].get_mut().is_none());
        assert!(blocks[0].get_mut().is_some(), "each block counts by itself");
        drop(blocks);
        assert_eq!(share[..], [2; BLOCK_BYTES]);
    }

    #[test]
    fn a_mapping_lasts_as_long_as_a_share_of_any_of_its_blocks() {
        let blocks: Vec<SharedBlock> = SharedBlock::slab(SLAB_BYTES / BLOCK_BYTES).collect();
        assert_eq!(blocks.len(), SLAB_BYTES / BLOCK_BYTES);
        let map = Arc::downgrade(&blocks[0].0._map);
        let share = blocks[100].clone();
        drop(blocks);
        assert!(map.upgrade().is_some());
        assert_eq!(share[..], [0; BLOCK_BYTES]);
        drop(share);
        assert!(map.upgrade().is_none(), "given back with the last share");
    }
}
