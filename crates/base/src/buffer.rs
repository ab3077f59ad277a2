//! Buffers aligned for `O_DIRECT`, made without `unsafe`: aligned blocks seen as bytes.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::BLOCK_BYTES;
use crate::kept::{KEPT_BLOCKS, Kept};

/// One block of 4,096 bytes, aligned to its size.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
pub struct Block(pub [u8; BLOCK_BYTES]);

impl Block {
    /// A block of zeros.
    pub const ZERO: Block = Block([0; BLOCK_BYTES]);
}

impl std::fmt::Debug for Block {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Block({:02x}{:02x}..)", self.0[0], self.0[1])
    }
}

/// A growable buffer of whole blocks, aligned to 4 KiB, for `O_DIRECT` I/O.
///
/// It derefs to its bytes. Shrinking keeps the memory and what is in it, and growing again shows what was left
/// there: a buffer that serves many times is not zeroed each time.
#[derive(Default, Clone)]
pub struct AlignedBuf {
    memory: Memory,
    /// Blocks in use; those behind them hold leftovers.
    used_blocks: usize,
}

enum Memory {
    Own(Vec<Block>),
    Kept(Kept),
}

impl Default for Memory {
    fn default() -> Self {
        Memory::Own(Vec::new())
    }
}

impl Clone for Memory {
    fn clone(&self) -> Self {
        Memory::Own(self.blocks().to_vec())
    }
}

impl Memory {
    fn blocks(&self) -> &[Block] {
        match self {
            Memory::Own(blocks) => blocks,
            Memory::Kept(kept) => kept.blocks(),
        }
    }

    fn blocks_mut(&mut self) -> &mut [Block] {
        match self {
            Memory::Own(blocks) => blocks,
            Memory::Kept(kept) => kept.blocks_mut(),
        }
    }
}

impl AlignedBuf {
    /// An empty buffer that allocates nothing.
    pub const fn new() -> Self {
        AlignedBuf { memory: Memory::Own(Vec::new()), used_blocks: 0 }
    }

    /// An empty buffer with room for `blocks` blocks.
    pub fn with_capacity_blocks(blocks: usize) -> Self {
        AlignedBuf { memory: Memory::Own(Vec::with_capacity(blocks)), used_blocks: 0 }
    }

    /// A buffer of `blocks` zero blocks.
    pub fn zeroed(blocks: usize) -> Self {
        AlignedBuf { memory: Memory::Own(vec![Block::ZERO; blocks]), used_blocks: blocks }
    }

    /// An empty buffer of [`KEPT_BLOCKS`](crate::KEPT_BLOCKS) blocks in memory that is never given back to the system, so that reactors
    /// may have it registered; of ordinary memory if there is no more of that.
    pub fn kept() -> Self {
        match Kept::take() {
            Some(kept) => AlignedBuf { memory: Memory::Kept(kept), used_blocks: 0 },
            None => Self::with_capacity_blocks(KEPT_BLOCKS),
        }
    }

    /// The slab of memory that is never given back in which it lies, below [`SLABS_MAX`](crate::SLABS_MAX). Slabs are aligned to
    /// [`SLAB_BYTES`](crate::SLAB_BYTES), their size.
    pub fn slab(&self) -> Option<u16> {
        match &self.memory {
            Memory::Own(_) => None,
            Memory::Kept(kept) => Some(kept.slab()),
        }
    }

    /// Sets the length in blocks; what new blocks hold is not said, but it is never memory of others.
    pub fn resize_blocks(&mut self, blocks: usize) {
        if self.memory.blocks().len() < blocks {
            if let Memory::Kept(kept) = &self.memory {
                self.memory = Memory::Own(kept.blocks().to_vec());
            }
            if let Memory::Own(own) = &mut self.memory {
                own.resize(blocks, Block::ZERO);
            }
        }
        self.used_blocks = blocks;
    }

    /// Appends whole blocks; the last one is padded with zeros.
    pub fn extend_from_bytes(&mut self, bytes: &[u8]) {
        let start = self.used_blocks * BLOCK_BYTES;
        self.resize_blocks(self.used_blocks + bytes.len().div_ceil(BLOCK_BYTES));
        let (copied, padding) = self[start..].split_at_mut(bytes.len());
        copied.copy_from_slice(bytes);
        padding.fill(0);
    }

    /// Makes the buffer empty and keeps its memory.
    pub fn clear(&mut self) {
        self.used_blocks = 0;
    }

    /// Length in blocks.
    pub fn blocks(&self) -> usize {
        self.used_blocks
    }

    /// Blocks that fit without a new allocation.
    pub fn capacity_blocks(&self) -> usize {
        match &self.memory {
            Memory::Own(blocks) => blocks.capacity(),
            Memory::Kept(kept) => kept.blocks().len(),
        }
    }
}

impl std::ops::Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.memory.blocks()[..self.used_blocks].as_bytes()
    }
}

impl std::ops::DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.memory.blocks_mut()[..self.used_blocks].as_mut_bytes()
    }
}

impl std::fmt::Debug for AlignedBuf {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "AlignedBuf({} blocks)", self.used_blocks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_aligned_and_padded() {
        let mut buffer = AlignedBuf::new();
        buffer.extend_from_bytes(&[9; 9000]);
        buffer.clear();
        buffer.extend_from_bytes(&[7; 5000]);
        assert_eq!(buffer.blocks(), 2);
        assert_eq!(buffer.as_ptr() as usize % BLOCK_BYTES, 0);
        assert_eq!(buffer[4999], 7);
        assert!(buffer[5000..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_kept_one_grows_into_ordinary_memory() {
        let mut buffer = AlignedBuf::kept();
        assert!(buffer.slab().is_some());
        assert_eq!((buffer.blocks(), buffer.capacity_blocks()), (0, KEPT_BLOCKS));
        buffer.extend_from_bytes(&[3; 10]);
        buffer.extend_from_bytes(&[4; KEPT_BLOCKS * BLOCK_BYTES]);
        assert_eq!((buffer.blocks(), buffer.slab()), (KEPT_BLOCKS + 1, None));
        assert_eq!((buffer[9], buffer[10], buffer[BLOCK_BYTES], buffer[buffer.len() - 1]), (3, 0, 4, 4));
        let mut kept = AlignedBuf::kept();
        kept.extend_from_bytes(&[5; BLOCK_BYTES]);
        let copy = kept.clone();
        kept.fill(6);
        assert_eq!((copy.slab(), copy[0], kept[0]), (None, 5, 6));
    }
}
