//! Which frames of a stopped drive nothing on it proves acknowledged: what is spoilt there cannot be told from a torn
//! tail, and may be cut off without a sign. Damage of any other frame must show.
//!
//! A frame says which frames were acknowledged when it was written, a mount is noted behind the last frame that it
//! found, and a superblock names the root of a checkpoint once that and all before it was acknowledged. So only the frames that were on their way together at the end, and those that were acknowledged after the
//! last one was written, have no proof. How many that are depends on the engine's settings and on the requests; here
//! they are read from the drive, as `docs/on-disk-format.md` describes it and apart from the engine's own code.
//!
//! Likewise where data of users lies: what is spoilt there is a bad block each, and harms nothing else.

use std::ops::Range;

use coquina_base::{AlignedBuf, BLOCK_BYTES, crc32c_bytes};
use coquina_engine::geometry::Geometry;
use coquina_engine::{Device, DriveSuperblock, ShardSuperblock};

const MAGIC: &[u8; 4] = b"CQFR";

/// What a header says, as far as it matters here.
struct Frame {
    number: u64,
    /// What it proves, or the superblock that names it.
    acknowledged: u64,
    bytes: Range<u64>,
    /// Whether its data is of users, and all of it.
    is_user_data: bool,
}

/// Kinds of entries without data, or with data of users: write, trim, zeroes, move, deletion of a layer, fence.
const USER_KINDS: [u8; 6] = [1, 2, 3, 4, 7, 10];
/// Where contexts begin in a header, and how long each is.
const CONTEXTS_AT: usize = 128;
const CONTEXT_BYTES: usize = 16;

/// Ranges of bytes of the drive that hold frames without proof. None where a superblock cannot be read.
pub fn unproven(device: &mut dyn Device) -> Vec<Range<u64>> {
    let mut ranges = Vec::new();
    for (superblock, frames) in shards_of(device) {
        let mounted = superblock.incarnations.last().map_or(0, |last| last.first_frame - 1);
        let proven = frames.iter().map(|frame| frame.acknowledged).fold(mounted, u64::max);
        ranges.extend(frames.into_iter().filter(|frame| frame.number > proven).map(|frame| frame.bytes));
    }
    ranges
}

/// Ranges of bytes of the drive that hold data of users, as far as headers tell it for sure. None where a superblock cannot be
/// read.
pub fn user_data(device: &mut dyn Device) -> Vec<Range<u64>> {
    let frames: Vec<Frame> = shards_of(device).into_iter().flat_map(|(_, frames)| frames).collect();
    // What is left of older frames may lie within newer ones.
    let is_alone = |frame: &&Frame| {
        let meets =
            |other: &&Frame| other.bytes.start < frame.bytes.end && frame.bytes.start < other.bytes.end;
        frames.iter().filter(meets).count() == 1
    };
    let users = frames.iter().filter(|frame| frame.is_user_data).filter(is_alone);
    users.map(|frame| frame.bytes.start + BLOCK_BYTES as u64..frame.bytes.end).collect()
}

/// Each shard whose superblock can be read, and its frames.
fn shards_of(device: &mut dyn Device) -> Vec<(ShardSuperblock, Vec<Frame>)> {
    let Ok(drive) = DriveSuperblock::read(device) else { return Vec::new() };
    let mut shards = Vec::new();
    for shard in 0..drive.shards {
        let geometry = drive.geometry(shard);
        let Ok(superblock) = ShardSuperblock::read(device, &geometry) else { continue };
        let frames = frames_of(device, &geometry, shard, &superblock);
        shards.push((superblock, frames));
    }
    shards
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
            let number = long(block, 8);
            let data = location + u64::from(half(block, 56));
            let is_root = superblock.checkpoint != 0 && data == superblock.root_location;
            frames.push(Frame {
                number,
                acknowledged: long(block, 40).max(if is_root { number } else { 0 }),
                bytes: at..at + blocks * BLOCK_BYTES as u64,
                is_user_data: is_user_data(block),
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

/// Whether a header's entries are of users only. A footer has none, and its data is the log's own.
fn is_user_data(header: &[u8]) -> bool {
    let contexts = usize::from(half(header, 58));
    let entries = word(header, 60);
    let mut at = CONTEXTS_AT + contexts * CONTEXT_BYTES;
    for _ in 0..entries {
        let Some(entry) = header.get(at..at + 12) else { return false };
        let (kind, flags, blocks) = (entry[1], entry[2], usize::from(half(entry, 10)));
        if !USER_KINDS.contains(&kind) {
            return false;
        }
        at += if kind == 4 { 12 } else { 32 };
        at += if flags & 1 != 0 { 8 } else { 0 };
        at += match kind {
            1 => 4 * blocks,
            4 => 9 * blocks,
            10 => 16,
            _ => 0,
        };
    }
    entries > 0
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
