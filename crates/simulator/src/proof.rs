//! Which frames of a stopped drive nothing on it proves acknowledged: what is spoilt there cannot be told from a torn
//! tail, and may be cut off without a sign. Damage of any other frame must show.
//!
//! A frame says which frames were acknowledged when it was written, and a mount is noted behind the last frame that it
//! found. So only the frames that were on their way together at the end, and those that were acknowledged after the
//! last one was written, have no proof. How many that are depends on the engine's settings and on the requests; here
//! they are read from the drive, as `docs/on-disk-format.md` describes it and apart from the engine's own code.

use std::ops::Range;

use coquina_base::{AlignedBuf, BLOCK_BYTES, crc32c_bytes};
use coquina_engine::geometry::Geometry;
use coquina_engine::{Device, DriveSuperblock, ShardSuperblock};

const MAGIC: &[u8; 4] = b"CQFR";

/// What a header says, as far as it matters here.
struct Frame {
    number: u64,
    acknowledged: u64,
    bytes: Range<u64>,
}

/// Ranges of bytes of the drive that hold frames without proof. None where a superblock cannot be read.
pub fn unproven(device: &mut dyn Device) -> Vec<Range<u64>> {
    let Ok(drive) = DriveSuperblock::read(device) else { return Vec::new() };
    let mut ranges = Vec::new();
    for shard in 0..drive.shards {
        let geometry = drive.geometry(shard);
        let Ok(superblock) = ShardSuperblock::read(device, &geometry) else { continue };
        let frames = frames_of(device, &geometry, shard, &superblock);
        let mounted = superblock.incarnations.last().map_or(0, |last| last.first_frame - 1);
        let proven = frames.iter().map(|frame| frame.acknowledged).fold(mounted, u64::max);
        ranges.extend(frames.into_iter().filter(|frame| frame.number > proven).map(|frame| frame.bytes));
    }
    ranges
}

/// All frames whose headers are intact and whose numbers belong to the mount that wrote them.
fn frames_of(
    device: &mut dyn Device,
    geometry: &Geometry,
    shard: u32,
    superblock: &ShardSuperblock,
) -> Vec<Frame> {
    let mut frames = Vec::new();
    let mut segment = AlignedBuf::zeroed(geometry.segment_blocks as usize);
    for number in 0..geometry.segments {
        let start = geometry.segment_start(number);
        if device.read(geometry.offset_bytes(start), &mut segment).is_err() {
            continue;
        }
        for (index, block) in segment.chunks_exact(BLOCK_BYTES).enumerate() {
            let location = start + index as u64;
            let intact = block.starts_with(MAGIC) && long(block, 32) == location && is_intact(block);
            let ours = word(block, 76) == shard && block[84..100] == superblock.drive.0.0;
            if !intact || !ours || superblock.owner(long(block, 8)) != Some(long(block, 16)) {
                continue;
            }
            let blocks = u64::from(half(block, 56)) + u64::from(word(block, 64));
            let at = geometry.offset_bytes(location);
            frames.push(Frame {
                number: long(block, 8),
                acknowledged: long(block, 40),
                bytes: at..at + blocks * BLOCK_BYTES as u64,
            });
        }
    }
    frames
}

/// Whether a header's checksum, of its block with the checksum zero, is right.
fn is_intact(block: &[u8]) -> bool {
    let mut zeroed = [0; BLOCK_BYTES];
    zeroed.copy_from_slice(block);
    zeroed[4..8].fill(0);
    crc32c_bytes(&zeroed) == word(block, 4)
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from(half(bytes, at)) | u32::from(half(bytes, at + 2)) << 16
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}
