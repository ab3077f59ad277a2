//! Buffers aligned for `O_DIRECT`, made without `unsafe`: a vector of aligned blocks seen as bytes.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::BLOCK_BYTES;

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
/// It derefs to its bytes. Clearing keeps the memory, so that a pool of buffers does not allocate.
#[derive(Default, Clone)]
pub struct AlignedBuf {
    blocks: Vec<Block>,
}

impl AlignedBuf {
    /// An empty buffer that allocates nothing.
    pub const fn new() -> Self {
        AlignedBuf { blocks: Vec::new() }
    }

    /// An empty buffer with room for `blocks` blocks.
    pub fn with_capacity_blocks(blocks: usize) -> Self {
        AlignedBuf { blocks: Vec::with_capacity(blocks) }
    }

    /// A buffer of `blocks` zero blocks.
    pub fn zeroed(blocks: usize) -> Self {
        AlignedBuf { blocks: vec![Block::ZERO; blocks] }
    }

    /// Sets the length in blocks; new blocks are zero, kept ones unchanged.
    pub fn resize_blocks(&mut self, blocks: usize) {
        self.blocks.resize(blocks, Block::ZERO);
    }

    /// Appends whole blocks; the last one is padded with zeros.
    pub fn extend_from_bytes(&mut self, bytes: &[u8]) {
        let start = self.blocks.len();
        let (whole, rest) = bytes.split_at(bytes.len() / BLOCK_BYTES * BLOCK_BYTES);
        for block in whole.chunks_exact(BLOCK_BYTES) {
            self.blocks.push(Block(block.try_into().unwrap_or([0; BLOCK_BYTES])));
        }
        if !rest.is_empty() {
            let mut last = Block::ZERO;
            last.0[..rest.len()].copy_from_slice(rest);
            self.blocks.push(last);
        }
        debug_assert_eq!(self.blocks.len() - start, bytes.len().div_ceil(BLOCK_BYTES));
    }

    /// Makes the buffer empty and keeps its memory.
    pub fn clear(&mut self) {
        self.blocks.clear();
    }

    /// Length in blocks.
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Blocks that fit without a new allocation.
    pub fn capacity_blocks(&self) -> usize {
        self.blocks.capacity()
    }
}

impl std::ops::Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.blocks.as_slice().as_bytes()
    }
}

impl std::ops::DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.blocks.as_mut_slice().as_mut_bytes()
    }
}

impl std::fmt::Debug for AlignedBuf {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "AlignedBuf({} blocks)", self.blocks.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_aligned_and_padded() {
        let mut buffer = AlignedBuf::new();
        buffer.extend_from_bytes(&[7; 5000]);
        assert_eq!(buffer.blocks(), 2);
        assert_eq!(buffer.as_ptr() as usize % BLOCK_BYTES, 0);
        assert_eq!(buffer[4999], 7);
        assert_eq!(buffer[5000], 0);
    }
}
