//! The bytes of data behind a message.
//!
//! Behind an entry that writes: a CRC32C per block, little-endian, then the blocks. Behind a `Tail`: those of each of its
//! entries in order. Behind a `Recover`: 32 bits, little-endian: in the lower 16 one for each block that holds data, in the
//! upper 16 one for each that no copy has any more; then checksums of all these, in the order of the blocks, then the blocks
//! that hold data. The others are holes. Behind a `RepairData`: the block; its checksum is known to who asked.

use coquina_base::{BLOCK_BYTES, ZERO_BLOCK_CRC, crc32c_block};
use coquina_engine::ReadData;
use coquina_replication::{BlockRange, Entry, EntryKind, Message};

/// Bytes of the mask of a `Recover`.
const MASK_BYTES: usize = 4;
/// Most blocks of an entry.
pub(crate) const ENTRY_BLOCKS_MAX: u32 = 16;
/// A block with its checksum.
const CHECKED_BLOCK_BYTES: usize = BLOCK_BYTES + 4;

/// Data that goes out: `head`, then `data` piece by piece.
#[derive(Clone, Copy, Debug, Default)]
pub struct Payload<'a> {
    /// Checksums and the like.
    pub head: &'a [u8],
    /// Blocks.
    pub data: &'a [&'a [u8]],
}

impl Payload<'_> {
    /// How many bytes it has.
    pub fn length_bytes(&self) -> usize {
        self.head.len() + self.data.iter().map(|piece| piece.len()).sum::<usize>()
    }

    /// Appends all of it.
    pub fn append_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.head);
        self.data.iter().for_each(|piece| out.extend_from_slice(piece));
    }
}

/// What came behind a message is not what it needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PayloadError {
    /// Too much or too little.
    #[error(
        "{got} bytes of data came behind a message that needs {needed}: the sender is damaged, or of another version"
    )]
    Length {
        /// What is needed.
        needed: usize,
        /// What came.
        got: usize,
    },
    /// More blocks than a message of its kind has, or the deletion of a layer, of which the map tells.
    #[error("a message names what none of its kind does: the sender is damaged, or of another version")]
    Range,
    /// Blocks are not those that the sender meant: they are asked for again.
    #[error(
        "blocks came that do not match their checksums: they went bad on the way or in the sender's memory"
    )]
    Checksum,
}

/// Bytes behind an entry.
pub(crate) fn entry_bytes(entry: &Entry) -> usize {
    match entry.kind {
        EntryKind::Write => entry.range.count as usize * CHECKED_BLOCK_BYTES,
        _ => 0,
    }
}

/// The bytes behind an entry that writes zeros.
pub(crate) fn zeroed_entry(entry: &Entry) -> Vec<u8> {
    let mut bytes = ZERO_BLOCK_CRC.to_le_bytes().repeat(entry.range.count as usize);
    bytes.resize(entry_bytes(entry), 0);
    bytes
}

/// Splits the bytes behind an entry into checksums and blocks.
pub(crate) fn split_entry<'a>(bytes: &'a [u8], entry: &Entry) -> (&'a [u8], &'a [u8]) {
    bytes[..entry_bytes(entry)].split_at(entry.range.count as usize * 4)
}

/// Checks that the bytes are those that the message needs.
pub(crate) fn check(message: &Message, bytes: &[u8]) -> Result<(), PayloadError> {
    let got = bytes.len();
    let may_come = |entry: &Entry| match entry.kind {
        EntryKind::Write => entry.range.count <= ENTRY_BLOCKS_MAX && !entry.range.is_whole_layer(),
        EntryKind::Trim | EntryKind::Zeroes => !entry.range.is_whole_layer(),
        EntryKind::Fence { .. } => true,
        EntryKind::DeleteLayer => false,
    };
    let needed = match message {
        Message::Append { entry, .. } if may_come(entry) => entry_bytes(entry),
        Message::Tail { entries, .. } if entries.iter().all(may_come) => {
            entries.iter().map(entry_bytes).sum()
        }
        Message::Recover { range, .. } if range.count <= ENTRY_BLOCKS_MAX && !range.is_whole_layer() => {
            let mask = mask(bytes).ok_or(PayloadError::Length { needed: MASK_BYTES, got })?;
            let (data, bad) = split_mask(mask);
            if (data | bad) >> range.count != 0 || data & bad != 0 {
                return Err(PayloadError::Length { needed: MASK_BYTES, got });
            }
            MASK_BYTES + data.count_ones() as usize * CHECKED_BLOCK_BYTES + bad.count_ones() as usize * 4
        }
        Message::RepairData { range, .. } if range.count == 1 && !range.is_whole_layer() => BLOCK_BYTES,
        Message::RepairRead { range, .. } if range.count == 1 && !range.is_whole_layer() => 0,
        Message::Append { .. }
        | Message::Tail { .. }
        | Message::Recover { .. }
        | Message::RepairData { .. }
        | Message::RepairRead { .. } => return Err(PayloadError::Range),
        _ => 0,
    };
    if got != needed {
        return Err(PayloadError::Length { needed, got });
    }
    // Here, since what the group and the engine have taken cannot be asked for again.
    let is_good = match message {
        Message::Append { entry, .. } => is_entry_good(bytes, entry),
        Message::Tail { entries, .. } => {
            let mut rest = bytes;
            entries.iter().all(|entry| {
                let (one, behind) = rest.split_at(entry_bytes(entry));
                rest = behind;
                is_entry_good(one, entry)
            })
        }
        Message::Recover { range, .. } => runs(*range, bytes).all(|run| match run.content {
            Content::Data { checksums_le, payload } => are_blocks_good(checksums_le, payload),
            Content::Hole | Content::Bad { .. } => true,
        }),
        _ => true,
    };
    if is_good { Ok(()) } else { Err(PayloadError::Checksum) }
}

fn is_entry_good(bytes: &[u8], entry: &Entry) -> bool {
    if entry.kind != EntryKind::Write {
        return true;
    }
    let (checksums_le, payload) = split_entry(bytes, entry);
    are_blocks_good(checksums_le, payload)
}

fn are_blocks_good(checksums_le: &[u8], payload: &[u8]) -> bool {
    let checksums = checksums_le.as_chunks::<4>().0.iter();
    let mut pairs = checksums.zip(payload.chunks_exact(BLOCK_BYTES));
    pairs.all(|(checksum, block)| u32::from_le_bytes(*checksum) == crc32c_block(block))
}

fn mask(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|mask| u32::from_le_bytes(*mask))
}

/// Which blocks of a `Recover` hold data, and which are bad.
fn split_mask(mask: u32) -> (u32, u32) {
    (mask & ((1 << ENTRY_BLOCKS_MAX) - 1), mask >> ENTRY_BLOCKS_MAX)
}

/// The bytes behind a `Recover` of blocks that were read; all holes without `data`. Checksums are those with which the engine compared what
/// it read: what goes bad since then is found by who gets it.
pub(crate) fn recovered(range: BlockRange, data: Option<&ReadData>) -> Vec<u8> {
    let (mut mask, mut block) = (0u32, 0usize);
    let (mut checksums, mut blocks) = (Vec::new(), Vec::new());
    for piece in data.iter().flat_map(|data| &data.pieces) {
        match piece.bytes() {
            None => block += piece.length_bytes() / BLOCK_BYTES,
            Some(bytes) => {
                for bytes in bytes.chunks_exact(BLOCK_BYTES) {
                    let (checksum, is_lost) = data.map_or((0, false), |data| checksum_of(data, block));
                    if is_lost {
                        mask |= 1 << ENTRY_BLOCKS_MAX << block;
                    } else {
                        mask |= 1 << block;
                        blocks.extend_from_slice(bytes);
                    }
                    checksums.extend_from_slice(&checksum.to_le_bytes());
                    block += 1;
                }
            }
        }
    }
    assert!(block <= range.count as usize, "more was read than was asked for");
    [&mask.to_le_bytes()[..], &checksums, &blocks].concat()
}

/// The checksum that a block should have, and whether no copy has the block any more.
fn checksum_of(data: &ReadData, block: usize) -> (u32, bool) {
    assert!(block < data.checksums.len(), "whole blocks are read with their checksums");
    (data.checksums[block], data.bad.iter().any(|bad| *bad as usize == block))
}

/// What blocks of a `Recover` are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Content<'a> {
    Hole,
    Data {
        checksums_le: &'a [u8],
        payload: &'a [u8],
    },
    /// A single block that no copy has any more, with the checksum that it should have.
    Bad {
        checksum: u32,
    },
}

/// A run of blocks of a `Recover`.
pub(crate) struct Run<'a> {
    pub range: BlockRange,
    pub content: Content<'a>,
}

/// The runs of a `Recover` whose bytes were checked.
pub(crate) fn runs(range: BlockRange, bytes: &[u8]) -> impl Iterator<Item = Run<'_>> {
    let (data, bad) = split_mask(mask(bytes).unwrap_or(0));
    let filled = (data | bad).count_ones() as usize;
    let (mut checksums, mut blocks) = bytes[MASK_BYTES..].split_at(filled * 4);
    let mut first = 0;
    std::iter::from_fn(move || {
        if first >= range.count {
            return None;
        }
        let kind = |block: u32| (data >> block & 1, bad >> block & 1);
        let is_bad = kind(first).1 != 0;
        let other = (first..range.count).find(|block| kind(*block) != kind(first));
        let end = if is_bad { first + 1 } else { other.unwrap_or(range.count) };
        let run = BlockRange { first: range.first + first, count: end - first, ..range };
        let is_hole = kind(first) == (0, 0);
        first = end;
        if is_hole {
            return Some(Run { range: run, content: Content::Hole });
        }
        let (checksums_le, rest) = checksums.split_at(run.count as usize * 4);
        checksums = rest;
        if is_bad {
            let checksum = checksums_le.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
            return Some(Run { range: run, content: Content::Bad { checksum } });
        }
        let (payload, more) = blocks.split_at(run.count as usize * BLOCK_BYTES);
        blocks = more;
        Some(Run { range: run, content: Content::Data { checksums_le, payload } })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use coquina_base::{AlignedBuf, LayerId};
    use coquina_engine::Piece;

    const LENGTH: usize = BLOCK_BYTES;
    /// What a block of sevens has.
    fn sevens() -> u32 {
        crc32c_block(&[7; BLOCK_BYTES])
    }

    fn recover(range: BlockRange) -> Message {
        Message::Recover { config_epoch: 1, range, payload: coquina_replication::PayloadRef(0) }
    }

    fn read(bad: Vec<u32>) -> ReadData {
        let mut buffer = AlignedBuf::zeroed(3);
        buffer.fill(7);
        let pieces = vec![
            Piece::Zeroes { length_bytes: LENGTH },
            Piece::Data { buffer, start_bytes: 0, length_bytes: 3 * LENGTH },
            Piece::Zeroes { length_bytes: 2 * LENGTH },
        ];
        // Of a block that is lost it is that of what is lost.
        let checksum = |block| if bad.contains(&block) { 100 + block } else { sevens() };
        ReadData { pieces, checksums: (0..6).map(checksum).collect(), bad, has_errors: false }
    }

    #[test]
    fn recovered_blocks_come_back_with_their_holes() {
        let range = BlockRange { layer: LayerId(3), chunk: 1, first: 10, count: 6 };
        let bytes = recovered(range, Some(&read(Vec::new())));
        assert_eq!(check(&recover(range), &bytes), Ok(()));
        assert!(check(&recover(range), &bytes[1..]).is_err());
        let runs: Vec<_> =
            runs(range, &bytes).map(|run| (run.range.first, run.range.count, run.content)).collect();
        assert_eq!(runs.len(), 3);
        assert_eq!(runs[0], (10, 1, Content::Hole));
        assert_eq!(runs[2], (14, 2, Content::Hole));
        let Content::Data { checksums_le, payload } = runs[1].2 else { panic!("{:?}", runs[1]) };
        assert_eq!(
            (checksums_le, payload),
            (&sevens().to_le_bytes().repeat(3)[..], &[7; 3 * BLOCK_BYTES][..])
        );
    }

    /// The group would take it and the engine log nothing for it, so that the group stopped with the next change.
    #[test]
    fn what_only_the_map_tells_is_refused() {
        let blocks = BlockRange { layer: LayerId(3), chunk: 1, first: 10, count: 1 };
        let layer = BlockRange::whole_layer(LayerId(3));
        let entry = |kind, range| Entry {
            epoch: 1,
            sequence: 1,
            session: 1,
            request: 1,
            kind,
            range,
            is_last: true,
            payload: coquina_replication::PayloadRef(0),
        };
        let append = |kind, range| Message::Append {
            config_epoch: 1,
            previous_epoch: 0,
            commit: 0,
            entry: entry(kind, range),
        };
        assert_eq!(check(&append(EntryKind::Trim, blocks), &[]), Ok(()));
        for kind in [EntryKind::DeleteLayer, EntryKind::Trim, EntryKind::Zeroes, EntryKind::Write] {
            let bytes = zeroed_entry(&entry(kind, layer));
            assert_eq!(check(&append(kind, layer), &bytes), Err(PayloadError::Range), "{kind:?}");
        }
        assert_eq!(check(&append(EntryKind::DeleteLayer, blocks), &[]), Err(PayloadError::Range));
        assert_eq!(check(&recover(layer), &recovered(layer, None)), Err(PayloadError::Range));
        assert_eq!(check(&recover(blocks), &recovered(blocks, None)), Ok(()));
    }

    #[test]
    fn a_block_that_went_bad_since_it_was_read_is_refused() {
        let range = BlockRange { layer: LayerId(3), chunk: 1, first: 10, count: 6 };
        let mut data = read(vec![2]);
        let bytes = recovered(range, Some(&data));
        let Piece::Data { buffer, .. } = &mut data.pieces[1] else { panic!("{data:?}") };
        buffer[BLOCK_BYTES + 5] ^= 4;
        assert_eq!(recovered(range, Some(&data)), bytes, "nobody looks at what is lost");
        let Piece::Data { buffer, .. } = &mut data.pieces[1] else { panic!("{data:?}") };
        buffer[2 * BLOCK_BYTES + 5] ^= 4;
        assert_eq!(check(&recover(range), &bytes), Ok(()));
        assert_eq!(check(&recover(range), &recovered(range, Some(&data))), Err(PayloadError::Checksum));
        // And one that went bad on the way.
        let mut bytes = bytes;
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        assert_eq!(check(&recover(range), &bytes), Err(PayloadError::Checksum));
    }

    #[test]
    fn lost_blocks_come_as_their_checksums() {
        let range = BlockRange { layer: LayerId(3), chunk: 1, first: 10, count: 6 };
        let bytes = recovered(range, Some(&read(vec![3, 1])));
        assert_eq!(bytes.len(), MASK_BYTES + 3 * 4 + BLOCK_BYTES);
        assert_eq!(bytes[..4], [0b100, 0, 0b1010, 0]);
        assert_eq!(check(&recover(range), &bytes), Ok(()));
        let runs: Vec<_> =
            runs(range, &bytes).map(|run| (run.range.first, run.range.count, run.content)).collect();
        let contents: Vec<_> = runs.iter().map(|run| (run.0, run.1)).collect();
        assert_eq!(contents, [(10, 1), (11, 1), (12, 1), (13, 1), (14, 2)]);
        assert_eq!(runs[1].2, Content::Bad { checksum: 101 });
        assert_eq!(runs[3].2, Content::Bad { checksum: 103 });
        let Content::Data { checksums_le, payload } = runs[2].2 else { panic!("{:?}", runs[2]) };
        assert_eq!((checksums_le, payload), (&sevens().to_le_bytes()[..], &[7; BLOCK_BYTES][..]));
        // Both at once, or a block behind the end, is none that this version sends.
        for mask in [0b10_0010_u32 | 1 << 17, 1 << 22, 1 << 6] {
            let mut bytes = bytes.clone();
            bytes[..4].copy_from_slice(&mask.to_le_bytes());
            assert!(check(&recover(range), &bytes).is_err(), "{mask:b}");
        }
    }
}
