//! CRC32C (Castagnoli, RFC 3720 appendix B.4), one per block, from the client to the drive and back.

use crc_fast::{CrcAlgorithm, Digest};

use crate::BLOCK_BYTES;

/// CRC32C of a block of zeros.
pub const ZERO_BLOCK_CRC: u32 = 0x98f9_4189;

/// CRC32C of one block of exactly 4,096 bytes.
pub fn crc32c_block(block: &[u8]) -> u32 {
    debug_assert_eq!(block.len(), BLOCK_BYTES);
    crc_fast::crc32_iscsi(block)
}

/// CRC32C of any bytes.
pub fn crc32c_bytes(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// CRC32C of bytes of which the first have `crc` and the last are `bytes`.
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!crc));
    digest.update(bytes);
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        /// Each processor has its own code for this: all lengths and places must give what another implementation gives.
        #[test]
        fn is_what_another_implementation_gives(
            bytes in proptest::collection::vec(any::<u8>(), 0..9000),
            start in 0_usize..64,
            cut in 0_usize..9000,
        ) {
            let bytes = &bytes[start.min(bytes.len())..];
            prop_assert_eq!(super::crc32c_bytes(bytes), crc32c::crc32c(bytes));
            let (first, last) = bytes.split_at(cut.min(bytes.len()));
            let crc = super::crc32c_append(super::crc32c_bytes(first), last);
            prop_assert_eq!(crc, crc32c::crc32c(bytes));
        }
    }

    /// RFC 3720, appendix B.4.
    #[test]
    fn examples_of_the_standard() {
        let ascending: Vec<u8> = (0..32).collect();
        let descending: Vec<u8> = (0..32).rev().collect();
        assert_eq!(super::crc32c_bytes(&[0; 32]), 0x8a91_36aa);
        assert_eq!(super::crc32c_bytes(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(super::crc32c_bytes(&ascending), 0x46dd_794e);
        assert_eq!(super::crc32c_bytes(&descending), 0x113f_db5c);
        assert_eq!((super::crc32c_bytes(&[]), super::crc32c_append(7, &[])), (0, 7));
    }

    #[test]
    fn zero_block_crc_is_right() {
        assert_eq!(super::crc32c_block(&[0; 4096]), super::ZERO_BLOCK_CRC);
    }
}
