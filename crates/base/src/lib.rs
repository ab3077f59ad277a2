//! Identities, sizes, checksums and aligned buffers that every crate shares.
//!
//! Invariants:
//! - a block is [`BLOCK_BYTES`] long everywhere: on a drive, on the wire, in an index;
//! - nothing here owns a clock, a thread, a file or a socket.

mod buffer;
mod checksum;
mod hash;
mod huge_pages;
mod id;
mod kept;
mod landing;
mod name;
mod nearest;
mod shared_block;
mod size;

pub use buffer::{AlignedBuf, Block};
pub use checksum::{ZERO_BLOCK_CRC, crc32c_append, crc32c_block, crc32c_bytes};
pub use hash::Hasher128;
pub use huge_pages::HugePages;
pub use id::{ClusterId, DriveId, Id128, LayerId, NodeId, ParseIdError, SessionId, VolumeId};
pub use kept::{KEPT_BLOCKS, SLAB_BYTES, SLABS_MAX};
pub use landing::Landing;
pub use name::{NAME_BYTES_MAX, NameError, check_name};
pub use nearest::Nearest;
pub use shared_block::SharedBlock;
pub use size::{SizeError, format_least_size_bytes, format_size_bytes, parse_size_bytes};

/// Size of a block, the unit of storage, checksums and the index.
pub const BLOCK_BYTES: usize = 4096;
/// Size of a sector, the smallest unit that a client may read or write.
pub const SECTOR_BYTES: usize = 512;
/// Size of a chunk, the unit of placement: 4 MiB.
pub const CHUNK_BYTES: u64 = 4 << 20;
/// Blocks in one chunk.
pub const CHUNK_BLOCKS: u32 = (CHUNK_BYTES / BLOCK_BYTES as u64) as u32;
/// Most chunks of a volume: the last number that 32 bits hold stands for a whole layer.
pub const CHUNKS_MAX: u64 = u32::MAX as u64;
/// Largest size of a volume.
pub const VOLUME_BYTES_MAX: u64 = CHUNK_BYTES * CHUNKS_MAX;
/// How long a thread that waits for I/O looks for its end before it sleeps, unless told otherwise: longer than a durable write
/// to copies on fast drives takes.
pub const BUSY_POLL_NS: u64 = 400_000;
