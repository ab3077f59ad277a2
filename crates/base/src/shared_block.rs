//! Blocks of memory that many may read at once, made without `unsafe`: parts of one allocation, each with a count of its shares.

use std::sync::Arc;

use bytes::{Buf, BytesMut};

use crate::BLOCK_BYTES;

/// One block of 4,096 bytes, aligned to its size. A clone is another share of the same memory; who holds the only share may change it.
///
/// It derefs to its bytes.
#[derive(Clone)]
pub struct SharedBlock(Arc<BytesMut>);

impl SharedBlock {
    /// `count` blocks of zeros in one allocation, which is given back when the last share of all of them is gone.
    pub fn slab(count: usize) -> impl Iterator<Item = SharedBlock> {
        let mut slab = BytesMut::zeroed((count + 1) * BLOCK_BYTES);
        slab.advance(slab.as_ptr().align_offset(BLOCK_BYTES));
        (0..count).map(move |_| SharedBlock(Arc::new(slab.split_to(BLOCK_BYTES))))
    }

    /// The block's bytes to be changed, unless there are other shares of it.
    pub fn get_mut(&mut self) -> Option<&mut [u8]> {
        Arc::get_mut(&mut self.0).map(|bytes| &mut bytes[..])
    }
}

impl std::ops::Deref for SharedBlock {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for SharedBlock {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "SharedBlock({} shares)", Arc::strong_count(&self.0))
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
}
