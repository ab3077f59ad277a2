//! Which copy of a superblock counts.

use super::*;
use crate::memory_drive::Memory;

const B: usize = SUPERBLOCK_B_OFFSET_BYTES as usize;

fn formatted() -> (Memory, DriveSuperblock) {
    let mut memory = Memory(vec![0; 16 << 20]);
    let options = FormatOptions {
        identity: Identity::default(),
        shards: 1,
        segment_bytes: 64 << 10,
        prewrite: false,
        created_unix_ns: 1,
    };
    let superblock = DriveSuperblock::format(&mut memory, &options).unwrap();
    (memory, superblock)
}

/// Changes a field of one copy as another program would have written it.
fn rewrite(memory: &mut Memory, copy: usize, offset: usize, value: u8) {
    memory.0[copy + offset] = value;
    let crc = checksum_of(&memory.0[copy..copy + BLOCK_BYTES], CRC_OFFSET);
    memory.0[copy + CRC_OFFSET..copy + CRC_OFFSET + 4].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn either_copy_is_enough_and_none_is_not() {
    for spoilt in [0, B] {
        let (mut memory, superblock) = formatted();
        memory.0[spoilt + 100] ^= 1;
        assert_eq!(DriveSuperblock::read(&mut memory), Ok(superblock));
    }
    let (mut memory, _) = formatted();
    memory.0[100] ^= 1;
    memory.0[B + 100] ^= 1;
    assert!(matches!(DriveSuperblock::read(&mut memory), Err(SuperblockError::Damaged(_))));
    memory.0.fill(0);
    assert_eq!(DriveSuperblock::read(&mut memory), Err(SuperblockError::Missing));
}

#[test]
fn a_half_written_shard_superblock_leaves_the_older_one() {
    let (mut memory, superblock) = formatted();
    let geometry = superblock.geometry(0);
    let older = ShardSuperblock::read(&mut memory, &geometry).unwrap();
    let mut newer = older.clone();
    newer.generation += 1;
    newer.checkpoint = 9;
    let at = newer.offset_bytes(&geometry) as usize;
    assert_ne!(at as u64, older.offset_bytes(&geometry));
    let half = newer.encode();
    memory.0[at..at + 64].copy_from_slice(&half[..64]);
    assert_eq!(ShardSuperblock::read(&mut memory, &geometry), Ok(older));
    memory.0[at..at + BLOCK_BYTES].copy_from_slice(&half);
    assert_eq!(ShardSuperblock::read(&mut memory, &geometry), Ok(newer));
}

#[test]
fn other_formats_and_unknown_features_in_either_copy_are_refused() {
    for copy in [0, B] {
        let (mut memory, _) = formatted();
        rewrite(&mut memory, copy, 8, FORMAT_VERSION as u8 + 1);
        let found = FORMAT_VERSION + 1;
        assert_eq!(DriveSuperblock::read(&mut memory), Err(SuperblockError::Newer { found }));
        let (mut memory, _) = formatted();
        rewrite(&mut memory, copy, 8, FORMAT_VERSION as u8 - 1);
        let found = FORMAT_VERSION - 1;
        assert_eq!(DriveSuperblock::read(&mut memory), Err(SuperblockError::Older { found }));
        let (mut memory, _) = formatted();
        rewrite(&mut memory, copy, 16, 0x80);
        assert_eq!(DriveSuperblock::read(&mut memory), Err(SuperblockError::Features(0x80)));
        let (mut memory, superblock) = formatted();
        // Unknown compatible bits are nobody's business.
        rewrite(&mut memory, copy, 24, 0x80);
        let found = DriveSuperblock::read(&mut memory).unwrap();
        assert_eq!(DriveSuperblock { compatible: 0, ..found }, superblock);
    }
}

#[test]
fn unknown_compatible_features_are_kept_when_a_superblock_is_written_again() {
    let (mut memory, superblock) = formatted();
    let geometry = superblock.geometry(0);
    let mut shard = ShardSuperblock::read(&mut memory, &geometry).unwrap();
    let at = shard.offset_bytes(&geometry);
    rewrite(&mut memory, at as usize, 24, 0x80);
    shard = ShardSuperblock::read(&mut memory, &geometry).unwrap();
    assert_eq!(shard.compatible, 0x80);
    shard.generation += 1;
    let at = shard.offset_bytes(&geometry) as usize;
    memory.0[at..at + BLOCK_BYTES].copy_from_slice(&shard.encode());
    let again = ShardSuperblock::read(&mut memory, &geometry).unwrap();
    assert_eq!((again.generation, again.compatible), (shard.generation, 0x80));
}

#[test]
fn a_drive_that_was_cut_off_is_refused() {
    let (mut memory, _) = formatted();
    memory.0.truncate(8 << 20);
    assert!(matches!(DriveSuperblock::read(&mut memory), Err(SuperblockError::Shrunk { .. })));
}

/// The first checkpoint ended the process: the list of its parts did not fit a segment.
#[test]
fn segments_too_small_for_the_size_of_the_drive_are_refused() {
    let check = |size_bytes, segment_bytes| {
        let options = FormatOptions {
            identity: Identity::default(),
            shards: 1,
            segment_bytes,
            prewrite: false,
            created_unix_ns: 1,
        };
        DriveSuperblock::check_size(size_bytes, &options)
    };
    let refused = check(8 << 40, 256 << 10);
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("choose larger segments"), "{text}");
    assert_eq!(check(8 << 40, 1 << 20), Ok(()));
    assert_eq!(check(1 << 39, 256 << 10), Ok(()));
    // What is chosen for a size is never refused.
    for power in 23..51 {
        for size_bytes in [1u64 << power, (1 << power) + (1 << power >> 1), (2 << power) - 1] {
            assert_eq!(check(size_bytes, 0), Ok(()), "{size_bytes} bytes");
        }
    }
}

/// One that is there already goes on being opened: it may hold little, and work.
#[test]
fn a_drive_with_many_small_segments_from_before_is_opened() {
    let (_, superblock) = formatted();
    let segment_bytes = 256 << 10;
    let size_bytes = 8 << 40;
    let shard_bytes = SHARD_HEAD_BYTES + (size_bytes / segment_bytes - 8) * segment_bytes;
    let before = DriveSuperblock { size_bytes, segment_bytes, shard_bytes, ..superblock };
    assert_eq!(DriveSuperblock::decode(&before.encode()), Ok(before));
}
