//! Memory that is never given back to the system: a reactor tells the kernel of it once and writes from it without having its pages
//! looked up each time, which it could not if the memory might be somebody else's by then.
//!
//! It comes in slabs of 2 MiB, in huge pages where the system has them. Buffers that are dropped go back on a shelf from which any thread
//! takes its next one; paths of I/O keep theirs in pools and do not come here.

use std::sync::{Mutex, PoisonError};

use zerocopy::FromBytes;

use crate::buffer::Block;

/// Size of a slab, to which it is aligned as well: a huge page.
pub const SLAB_BYTES: usize = 2 << 20;
/// Most slabs of a process, 128 MiB in all; further buffers are ordinary memory.
pub const SLABS_MAX: u16 = 64;
/// Blocks of a buffer: a frame of 256 KiB with its header, seven to a slab.
pub const KEPT_BLOCKS: usize = 73;

/// Part of a slab, owned; dropped, it goes back on the shelf.
pub(crate) struct Kept {
    blocks: &'static mut [Block],
    slab: u16,
}

struct Shelf {
    free: Vec<Kept>,
    slabs: u16,
}

static SHELF: Mutex<Shelf> = Mutex::new(Shelf { free: Vec::new(), slabs: 0 });

impl Kept {
    /// [`KEPT_BLOCKS`] blocks with anything in them that this process has put there. None if there are enough slabs, or no memory.
    pub(crate) fn take() -> Option<Kept> {
        let mut shelf = SHELF.lock().unwrap_or_else(PoisonError::into_inner);
        if shelf.free.is_empty() && shelf.slabs < SLABS_MAX {
            let slab = shelf.slabs;
            let parts = new_slab()?.chunks_exact_mut(KEPT_BLOCKS);
            shelf.free.extend(parts.map(|blocks| Kept { blocks, slab }));
            shelf.slabs += 1;
        }
        shelf.free.pop()
    }

    /// Number of the slab, below [`SLABS_MAX`].
    pub(crate) fn slab(&self) -> u16 {
        self.slab
    }

    pub(crate) fn blocks(&self) -> &[Block] {
        self.blocks
    }

    pub(crate) fn blocks_mut(&mut self) -> &mut [Block] {
        self.blocks
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let kept = Kept { blocks: std::mem::take(&mut self.blocks), slab: self.slab };
        if kept.blocks.is_empty() {
            return;
        }
        SHELF.lock().unwrap_or_else(PoisonError::into_inner).free.push(kept);
    }
}

/// Maps a slab, zeroed, and never unmaps it.
fn new_slab() -> Option<&'static mut [Block]> {
    // Twice as much, so that an aligned slab is in it; what is not touched takes no memory.
    let map = memmap2::MmapMut::map_anon(2 * SLAB_BYTES).ok()?;
    // Refused where huge pages are switched off: then it is ordinary pages.
    let _ = map.advise(memmap2::Advice::HugePage);
    let map: &'static mut memmap2::MmapMut = Box::leak(Box::new(map));
    let bytes: &'static mut [u8] = map;
    let before = bytes.as_ptr().align_offset(SLAB_BYTES);
    <[Block]>::mut_from_bytes(bytes.get_mut(before..before + SLAB_BYTES)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BLOCK_BYTES;

    #[test]
    fn parts_are_aligned_apart_and_used_again() {
        let kept: Vec<Kept> = (0..20).map_while(|_| Kept::take()).collect();
        assert_eq!(kept.len(), 20);
        let mut places: Vec<usize> = Vec::new();
        for part in &kept {
            let start = part.blocks().as_ptr() as usize;
            assert_eq!((start % BLOCK_BYTES, part.blocks().len()), (0, KEPT_BLOCKS));
            assert!(start % SLAB_BYTES + KEPT_BLOCKS * BLOCK_BYTES <= SLAB_BYTES, "within one slab");
            places.push(start);
        }
        places.sort_unstable();
        assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= KEPT_BLOCKS * BLOCK_BYTES));
        let slabs = kept.iter().map(Kept::slab).max();
        drop(kept);
        let again: Vec<Kept> = (0..20).map_while(|_| Kept::take()).collect();
        assert_eq!(again.len(), 20);
        // Other tests of this process may hold some, but twenty were just given back.
        assert!(again.iter().map(Kept::slab).max() <= slabs.map(|slab| slab + 1));
    }
}
