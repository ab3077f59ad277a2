//! How the bytes of a volume are spread over chunks, and chunks over placement groups.
//!
//! **Striping** is the usual one of `(stripe unit u, stripe count n)`. With `s = 4 MiB / u` units in a chunk, unit `k` of
//! the volume (its bytes `k*u ..`) is in stripe `k / n`, at position `k % n`. `n` chunks make a set, and `s` stripes fill
//! it: the unit is in chunk `(k / n / s) * n + k % n`, as that chunk's unit `(k / n) % s`. With `u` = 4 MiB or `n` = 1
//! that is chunk `offset / 4 MiB`.
//!
//! **Groups**: chunk `c` of family `f` is in group `group_first + (mix(f) + c) mod group_count` of the pool, where `mix`
//! is the 64-bit finalizer written out in [`mix`], and only its low 32 bits count. Every `group_count` neighbouring
//! chunks have each group once, so all volumes are even over groups however small they are. `group_count` is a power of
//! two, so a pool whose count doubles splits group `i` into `i` and `i + group_count`, and nothing else moves.
//!
//! Invariants: both directions of striping are inverse to each other; a chunk is used from its beginning without gaps.

use coquina_base::{BLOCK_BYTES, CHUNK_BYTES, CHUNKS_MAX, format_size_bytes};
use coquina_replication::GroupId;

use crate::record::PoolRecord;

/// Most chunks of one stripe.
pub const STRIPE_COUNT_MAX: u32 = 4096;

/// How a volume's bytes are spread over chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Striping {
    /// Bytes that go to one chunk before the next of the stripe is used: a multiple of a block that divides a chunk.
    pub stripe_unit_bytes: u32,
    /// Chunks that are filled at the same time: 1 to [`STRIPE_COUNT_MAX`].
    pub stripe_count: u32,
}

/// Why bytes cannot be spread so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StripingError {
    /// The unit does not fit.
    #[error(
        "a stripe unit of {unit} bytes is not possible; give a power of two from {least} to {most}",
        unit = .0,
        least = format_size_bytes(BLOCK_BYTES as u64),
        most = format_size_bytes(CHUNK_BYTES)
    )]
    Unit(u32),
    /// The count is out of bounds.
    #[error("a stripe of {0} chunks is not possible; give 1 to {STRIPE_COUNT_MAX}")]
    Count(u32),
    /// Chunk numbers have 32 bits.
    #[error(
        "a volume of {} has too many chunks with {stripe_count} to a stripe; give a smaller stripe count",
        format_size_bytes(*size_bytes)
    )]
    TooLarge {
        /// The volume's size.
        size_bytes: u64,
        /// Chunks to a stripe.
        stripe_count: u32,
    },
}

/// A place in a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChunkPlace {
    /// The chunk.
    pub chunk: u32,
    /// Bytes from its beginning.
    pub offset_bytes: u32,
}

/// Bytes of a volume that lie together in a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Where they begin in the volume.
    pub volume_offset_bytes: u64,
    /// Where they begin in the chunk.
    pub place: ChunkPlace,
    /// How many they are; never 0.
    pub length_bytes: u32,
}

impl Striping {
    /// One chunk after the other.
    pub const PLAIN: Striping = Striping { stripe_unit_bytes: CHUNK_BYTES as u32, stripe_count: 1 };

    /// Whether bytes can be spread so in a volume of that size.
    pub fn check(&self, size_bytes: u64) -> Result<(), StripingError> {
        let unit = self.stripe_unit_bytes;
        if !unit.is_power_of_two() || (unit as usize) < BLOCK_BYTES || u64::from(unit) > CHUNK_BYTES {
            return Err(StripingError::Unit(unit));
        }
        if self.stripe_count == 0 || self.stripe_count > STRIPE_COUNT_MAX {
            return Err(StripingError::Count(self.stripe_count));
        }
        if self.chunks(size_bytes) > CHUNKS_MAX {
            return Err(StripingError::TooLarge { size_bytes, stripe_count: self.stripe_count });
        }
        Ok(())
    }

    fn chunk_units(&self) -> u64 {
        CHUNK_BYTES / u64::from(self.stripe_unit_bytes)
    }

    /// Bytes of a full set of chunks.
    fn set_bytes(&self) -> u64 {
        u64::from(self.stripe_count) * CHUNK_BYTES
    }

    /// Where a byte of the volume lies. The striping must have been checked for the volume's size.
    pub fn chunk_of(&self, offset_bytes: u64) -> ChunkPlace {
        let (unit_bytes, count) = (u64::from(self.stripe_unit_bytes), u64::from(self.stripe_count));
        let unit = offset_bytes / unit_bytes;
        let (stripe, position) = (unit / count, unit % count);
        let (set, row) = (stripe / self.chunk_units(), stripe % self.chunk_units());
        let chunk = u32::try_from(set * count + position);
        ChunkPlace {
            chunk: chunk.unwrap_or_else(|_| panic!("offset {offset_bytes} is beyond the largest volume")),
            offset_bytes: (row * unit_bytes + offset_bytes % unit_bytes) as u32,
        }
    }

    /// Where in the volume a byte of a chunk lies: the inverse of [`chunk_of`](Self::chunk_of).
    pub fn offset_of(&self, place: ChunkPlace) -> u64 {
        let (unit_bytes, count) = (u64::from(self.stripe_unit_bytes), u64::from(self.stripe_count));
        let (set, position) = (u64::from(place.chunk) / count, u64::from(place.chunk) % count);
        let (row, within) =
            (u64::from(place.offset_bytes) / unit_bytes, u64::from(place.offset_bytes) % unit_bytes);
        let stripe = set * self.chunk_units() + row;
        (stripe * count + position) * unit_bytes + within
    }

    /// Chunk numbers below this one are all that a volume of that size uses. With striping the last ones of the last
    /// set may be short, but each is used if the volume has a unit in it.
    pub fn chunks(&self, size_bytes: u64) -> u64 {
        let count = u64::from(self.stripe_count.max(1));
        let units_left =
            (size_bytes % self.set_bytes().max(1)).div_ceil(u64::from(self.stripe_unit_bytes.max(1)));
        (size_bytes / self.set_bytes().max(1)) * count + units_left.min(count)
    }

    /// How many bytes of a chunk a volume of that size uses, from the chunk's beginning.
    pub fn chunk_used_bytes(&self, chunk: u32, size_bytes: u64) -> u32 {
        let (unit_bytes, count) = (u64::from(self.stripe_unit_bytes), u64::from(self.stripe_count));
        let (set, position) = (u64::from(chunk) / count, u64::from(chunk) % count);
        let left = size_bytes.saturating_sub(set * self.set_bytes()).min(self.set_bytes());
        let (stripes, rest) = (left / (unit_bytes * count), left % (unit_bytes * count));
        let last = rest.saturating_sub(position * unit_bytes).min(unit_bytes);
        (stripes * unit_bytes + last) as u32
    }

    /// The extents of a range of a volume, in the volume's order. Neighbours in the same chunk are one extent.
    pub fn extents(&self, offset_bytes: u64, length_bytes: u64) -> Extents {
        Extents { striping: *self, offset_bytes, end_bytes: offset_bytes.saturating_add(length_bytes) }
    }
}

/// Iterator of [`Striping::extents`].
#[derive(Clone, Debug)]
pub struct Extents {
    striping: Striping,
    offset_bytes: u64,
    end_bytes: u64,
}

impl Iterator for Extents {
    type Item = Extent;

    fn next(&mut self) -> Option<Extent> {
        if self.offset_bytes >= self.end_bytes {
            return None;
        }
        let place = self.striping.chunk_of(self.offset_bytes);
        // With one chunk to a stripe, the next unit follows in the same chunk.
        let together_bytes = match self.striping.stripe_count {
            1 => CHUNK_BYTES,
            _ => u64::from(self.striping.stripe_unit_bytes),
        };
        let room_bytes = together_bytes - u64::from(place.offset_bytes) % together_bytes;
        let length_bytes = room_bytes.min(self.end_bytes - self.offset_bytes);
        let extent =
            Extent { volume_offset_bytes: self.offset_bytes, place, length_bytes: length_bytes as u32 };
        self.offset_bytes += length_bytes;
        Some(extent)
    }
}

/// The finalizer of splitmix64: `x ^= x >> 30; x *= 0xbf58476d1ce4e5b9; x ^= x >> 27; x *= 0x94d049bb133111eb;
/// x ^= x >> 31`, after `x += 0x9e3779b97f4a7c15`, all modulo 2^64.
pub fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The chunks below `chunks` that lie in a group of the pool, in order.
pub fn chunks_of_group(
    pool: &PoolRecord,
    family: u64,
    group: GroupId,
    chunks: u32,
) -> impl Iterator<Item = u32> + use<> {
    let first = group_of(pool, family, 0);
    let skip = group.0.wrapping_sub(first.0) & (pool.group_count - 1);
    (skip..chunks).step_by(pool.group_count as usize)
}

/// The group of a chunk: see the head of this module. Part of the format: it can never change.
pub fn group_of(pool: &PoolRecord, family: u64, chunk: u32) -> GroupId {
    assert!(pool.group_count.is_power_of_two(), "a pool was checked before it is used");
    let index = (mix(family) as u32).wrapping_add(chunk) & (pool.group_count - 1);
    GroupId(pool.group_first.0 + index)
}
