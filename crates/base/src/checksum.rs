//! CRC32C (Castagnoli, RFC 3720 appendix B.4), one per block, from the client to the drive and back.

use crate::BLOCK_BYTES;

/// CRC32C of a block of zeros.
pub const ZERO_BLOCK_CRC: u32 = 0x98f9_4189;

/// CRC32C of one block of exactly 4,096 bytes.
pub fn crc32c_block(block: &[u8]) -> u32 {
    debug_assert_eq!(block.len(), BLOCK_BYTES);
    crc32c::crc32c(block)
}

/// CRC32C of any bytes.
pub fn crc32c_bytes(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

#[cfg(test)]
mod tests {
    #[test]
    fn zero_block_crc_is_right() {
        assert_eq!(super::crc32c_block(&[0; 4096]), super::ZERO_BLOCK_CRC);
    }
}
