//! Where things lie on a drive. Each offset is computed from the one before it.
//!
//! ```text
//! drive:  | superblock A | .. | superblock B | .. | shard 0 | shard 1 | ..
//!         0              4K   64K            68K  1M
//! shard:  | superblock A | .. | superblock B | .. | segment 0 | segment 1 | ..
//!         0              4K   64K            68K  128K
//! ```
//!
//! A *location* is a block number counted from the first block of segment 0 of its shard. Location 0 is the
//! header of a frame, never data, so that 0 can stand for a hole.

use coquina_base::BLOCK_BYTES;

/// Offset of the second copy of a superblock from the first.
pub const SUPERBLOCK_B_OFFSET_BYTES: u64 = 64 << 10;
/// Where the first shard begins.
pub const DRIVE_HEAD_BYTES: u64 = 1 << 20;
/// Where segment 0 begins within a shard.
pub const SHARD_HEAD_BYTES: u64 = 128 << 10;
/// Smallest segment of the format.
pub const SEGMENT_BYTES_MIN: u64 = 64 << 10;
/// Smallest segment of drives that are formatted for use: its frames hold any entry of a placement group. Smaller ones are for tests: a
/// copy there could not take what another has put into one entry.
pub const COPY_SEGMENT_BYTES_MIN: u64 = 256 << 10;
/// Largest segment.
pub const SEGMENT_BYTES_MAX: u64 = 256 << 20;
/// Fewest segments that a shard can work with.
pub const SEGMENTS_MIN: u64 = 24;
/// Most shards of a drive.
pub const SHARDS_MAX: u32 = 64;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Geometry of one shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Where the shard begins on the drive.
    pub shard_offset_bytes: u64,
    /// Size of a segment in blocks.
    pub segment_blocks: u32,
    /// How many segments.
    pub segments: u32,
}

impl Geometry {
    /// Byte offset on the drive of a location.
    pub fn offset_bytes(&self, location: u64) -> u64 {
        assert!(location < self.blocks(), "location {location} lies behind the shard's end");
        self.shard_offset_bytes + SHARD_HEAD_BYTES + location * BLOCK
    }

    /// Location of the first block of a segment.
    pub fn segment_start(&self, segment: u32) -> u64 {
        u64::from(segment) * u64::from(self.segment_blocks)
    }

    /// The segment that holds a location.
    pub fn segment_of(&self, location: u64) -> u32 {
        (location / u64::from(self.segment_blocks)) as u32
    }

    /// Blocks of all segments.
    pub fn blocks(&self) -> u64 {
        u64::from(self.segment_blocks) * u64::from(self.segments)
    }
}

/// A shard of this size and more has segments that hold frames which can stay in memory once the cleaner has moved them.
const KEEPING_SHARD_BYTES_MIN: u64 = 512 << 20;

/// Segment size for a shard of this size: about 2,048 segments, a power of two, 256 KiB to 256 MiB; 1 MiB at least for shards of 512 MiB
/// and more.
pub fn choose_segment_bytes(shard_bytes: u64) -> u64 {
    let least = if shard_bytes >= KEEPING_SHARD_BYTES_MIN { 1 << 20 } else { COPY_SEGMENT_BYTES_MIN };
    (shard_bytes / 2048).next_power_of_two().clamp(least, SEGMENT_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::choose_segment_bytes;

    #[test]
    fn segments_suit_the_size_of_the_shard() {
        let sizes = [16 << 20, (512 << 20) - 1, 512 << 20, 1 << 30, 3 << 30, 8 << 40];
        let segments = [256 << 10, 256 << 10, 1 << 20, 1 << 20, 2 << 20, 256 << 20];
        assert_eq!(sizes.map(choose_segment_bytes), segments);
    }
}
