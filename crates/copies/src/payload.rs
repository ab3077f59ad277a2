//! The bytes of data behind a message.
//!
//! Behind an entry that writes: a CRC32C per block, little-endian, then the blocks. Behind a `Tail`: those of each of its
//! entries in order. Behind a `Recover`: a bit for each block that holds data (32 bits, little-endian), then checksums and
//! blocks of these; the others are holes. Behind a `RepairData`: the block; its checksum is known to who asked.

use coquina_base::{BLOCK_BYTES, crc32c_block};
use coquina_engine::{Piece, ReadData};
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

/// What came behind a message is not what its entries need.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{got} bytes of data came behind a message that needs {needed}: the sender is damaged, or of another version"
)]
pub struct PayloadError {
    /// What is needed.
    pub needed: usize,
    /// What came.
    pub got: usize,
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
    let mut bytes = Vec::with_capacity(entry_bytes(entry));
    let blocks = vec![0; entry.range.count as usize * BLOCK_BYTES];
    put_checksums(&blocks, &mut bytes);
    bytes.extend_from_slice(&blocks);
    bytes
}

/// Splits the bytes behind an entry into checksums and blocks.
pub(crate) fn split_entry<'a>(bytes: &'a [u8], entry: &Entry) -> (&'a [u8], &'a [u8]) {
    bytes[..entry_bytes(entry)].split_at(entry.range.count as usize * 4)
}

/// Checks that the bytes are those that the message needs.
pub(crate) fn check(message: &Message, bytes: &[u8]) -> Result<(), PayloadError> {
    let got = bytes.len();
    let too_large = |entry: &Entry| entry.kind == EntryKind::Write && entry.range.count > ENTRY_BLOCKS_MAX;
    let needed = match message {
        Message::Append { entry, .. } if !too_large(entry) => entry_bytes(entry),
        Message::Tail { entries, .. } if !entries.iter().any(too_large) => {
            entries.iter().map(entry_bytes).sum()
        }
        Message::Recover { range, .. } if range.count <= ENTRY_BLOCKS_MAX => {
            let mask = mask(bytes).ok_or(PayloadError { needed: MASK_BYTES, got })?;
            if u64::from(mask) >> range.count != 0 {
                return Err(PayloadError { needed: MASK_BYTES, got });
            }
            MASK_BYTES + mask.count_ones() as usize * CHECKED_BLOCK_BYTES
        }
        Message::RepairData { range, .. } if range.count == 1 => BLOCK_BYTES,
        Message::RepairRead { range, .. } if range.count == 1 && !range.is_whole_layer() => 0,
        Message::Append { .. }
        | Message::Tail { .. }
        | Message::Recover { .. }
        | Message::RepairData { .. }
        | Message::RepairRead { .. } => usize::MAX,
        _ => 0,
    };
    if got == needed { Ok(()) } else { Err(PayloadError { needed, got }) }
}

fn mask(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|mask| u32::from_le_bytes(*mask))
}

/// Puts checksums of blocks into an empty buffer.
pub(crate) fn put_checksums(data: &[u8], out: &mut Vec<u8>) {
    data.chunks_exact(BLOCK_BYTES)
        .for_each(|block| out.extend_from_slice(&crc32c_block(block).to_le_bytes()));
}

/// The bytes behind a `Recover` of blocks that were read; all holes without `data`.
pub(crate) fn recovered(range: BlockRange, data: Option<&ReadData>) -> Vec<u8> {
    let (mut mask, mut block) = (0u32, 0usize);
    let (mut checksums, mut blocks) = (Vec::new(), Vec::new());
    for piece in data.iter().flat_map(|data| &data.pieces) {
        match piece {
            Piece::Zeroes { length_bytes } => block += length_bytes / BLOCK_BYTES,
            Piece::Data { buffer, start_bytes, length_bytes } => {
                let bytes = &buffer[*start_bytes..*start_bytes + *length_bytes];
                blocks.extend_from_slice(bytes);
                put_checksums(bytes, &mut checksums);
                for _ in bytes.chunks_exact(BLOCK_BYTES) {
                    mask |= 1 << block;
                    block += 1;
                }
            }
        }
    }
    assert!(block <= range.count as usize, "more was read than was asked for");
    [&mask.to_le_bytes()[..], &checksums, &blocks].concat()
}

/// A run of blocks of a `Recover`.
pub(crate) struct Run<'a> {
    pub range: BlockRange,
    /// Checksums and blocks, or none for a hole.
    pub data: Option<(&'a [u8], &'a [u8])>,
}

/// The runs of a `Recover` whose bytes were checked.
pub(crate) fn runs(range: BlockRange, bytes: &[u8]) -> impl Iterator<Item = Run<'_>> {
    let mask = mask(bytes).unwrap_or(0);
    let filled = mask.count_ones() as usize;
    let (mut checksums, mut blocks) = bytes[MASK_BYTES..].split_at(filled * 4);
    let mut first = 0;
    std::iter::from_fn(move || {
        if first >= range.count {
            return None;
        }
        let is_data = mask >> first & 1 != 0;
        let end =
            (first..range.count).find(|block| (mask >> block & 1 != 0) != is_data).unwrap_or(range.count);
        let run = BlockRange { first: range.first + first, count: end - first, ..range };
        first = end;
        let data = is_data.then(|| {
            let (own_checksums, rest) = checksums.split_at(run.count as usize * 4);
            let (own_blocks, more) = blocks.split_at(run.count as usize * BLOCK_BYTES);
            (checksums, blocks) = (rest, more);
            (own_checksums, own_blocks)
        });
        Some(Run { range: run, data })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use coquina_base::{AlignedBuf, LayerId};

    #[test]
    fn recovered_blocks_come_back_with_their_holes() {
        let range = BlockRange { layer: LayerId(3), chunk: 1, first: 10, count: 6 };
        let mut buffer = AlignedBuf::zeroed(3);
        buffer.fill(7);
        let length = BLOCK_BYTES;
        let pieces = vec![
            Piece::Zeroes { length_bytes: length },
            Piece::Data { buffer, start_bytes: 0, length_bytes: 3 * length },
            Piece::Zeroes { length_bytes: 2 * length },
        ];
        let bytes = recovered(range, Some(&ReadData { pieces, checksums: Vec::new() }));
        let message =
            Message::Recover { config_epoch: 1, range, payload: coquina_replication::PayloadRef(0) };
        assert_eq!(check(&message, &bytes), Ok(()));
        assert!(check(&message, &bytes[1..]).is_err());
        let runs: Vec<_> =
            runs(range, &bytes).map(|run| (run.range.first, run.range.count, run.data)).collect();
        assert_eq!(runs.len(), 3);
        assert_eq!((runs[0].0, runs[0].1, runs[0].2), (10, 1, None));
        assert_eq!((runs[2].0, runs[2].1, runs[2].2), (14, 2, None));
        let (checksums, blocks) = runs[1].2.expect("data");
        assert_eq!((checksums.len(), blocks), (12, &[7; 3 * BLOCK_BYTES][..]));
    }
}
