//! What is written: each sector's bytes say which write made them and where they belong.
//!
//! Invariants:
//! - version 0 is zeros; every write request gets a version of its own;
//! - a sector's bytes depend on version, layer, chunk and place, so that data of another place, of mixed writes
//!   or of chance is never taken for right.

use coquina_base::{BLOCK_BYTES, SECTOR_BYTES};

/// Number of the write that made a sector; 0 for zeros.
pub type Version = u32;

/// Sectors in a block.
pub const BLOCK_SECTORS: usize = BLOCK_BYTES / SECTOR_BYTES;

/// The versions of a block's sectors.
pub type BlockState = [Version; BLOCK_SECTORS];

/// Stands for bytes that no write made.
pub const GARBAGE: Version = Version::MAX;

const STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;

/// A place in a layer, counted in sectors from the start of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SectorPlace {
    /// Layer.
    pub layer: u64,
    /// Chunk of the layer.
    pub chunk: u32,
    /// Sector of the chunk.
    pub sector: u32,
}

impl SectorPlace {
    fn base(self, version: Version) -> u64 {
        let place = (u64::from(self.chunk) << 32) | u64::from(self.sector);
        let mixed = (place ^ self.layer.rotate_left(48)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        (mixed ^ (mixed >> 32) ^ u64::from(version)).wrapping_mul(0xc4ce_b9fe_1a85_ec53)
    }
}

/// Fills one sector.
pub fn fill_sector(bytes: &mut [u8], version: Version, place: SectorPlace) {
    if version == 0 {
        bytes.fill(0);
        return;
    }
    let base = place.base(version);
    for (index, word) in bytes.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&base.wrapping_add((index as u64).wrapping_mul(STRIDE)).to_le_bytes());
    }
    bytes[..4].copy_from_slice(&version.to_le_bytes());
}

/// Which write made this sector, or [`GARBAGE`].
pub fn read_sector(bytes: &[u8], place: SectorPlace) -> Version {
    let version = Version::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    if version == 0 {
        let any = bytes.chunks_exact(8).fold(0, |any, word| any | word_of(word));
        return if any == 0 { 0 } else { GARBAGE };
    }
    let base = place.base(version);
    let mut difference = (word_of(&bytes[..8]) ^ base) >> 32;
    for (index, word) in bytes.chunks_exact(8).enumerate().skip(1) {
        difference |= word_of(word) ^ base.wrapping_add((index as u64).wrapping_mul(STRIDE));
    }
    if difference == 0 { version } else { GARBAGE }
}

fn word_of(bytes: &[u8]) -> u64 {
    u64::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]])
}

/// Fills whole sectors of one write from a place on.
pub fn fill(bytes: &mut [u8], version: Version, first: SectorPlace) {
    for (index, sector) in bytes.chunks_exact_mut(SECTOR_BYTES).enumerate() {
        fill_sector(sector, version, SectorPlace { sector: first.sector + index as u32, ..first });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sectors_tell_their_write_and_refuse_other_places() {
        let place = SectorPlace { layer: 3, chunk: 9, sector: 70 };
        let mut bytes = [1; 1024];
        fill(&mut bytes, 42, place);
        let next = SectorPlace { sector: 71, ..place };
        assert_eq!(read_sector(&bytes[..512], place), 42);
        assert_eq!(read_sector(&bytes[512..], next), 42);
        assert_eq!(read_sector(&bytes[..512], next), GARBAGE);
        assert_eq!(read_sector(&bytes[..512], SectorPlace { layer: 4, ..place }), GARBAGE);
        fill(&mut bytes, 0, place);
        assert_eq!(read_sector(&bytes[..512], place), 0);
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let place = SectorPlace { layer: 1, chunk: 0, sector: 0 };
        for version in [0, 1, 77_000] {
            let mut bytes = [0; 512];
            fill_sector(&mut bytes, version, place);
            for bit in 0..4096 {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(read_sector(&bytes, place), GARBAGE, "version {version}, bit {bit}");
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
        }
    }
}
