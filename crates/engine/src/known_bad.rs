//! Blocks that no copy has any more: a copy that comes back takes them as bad, so that it gets all the others.
//!
//! Invariants:
//! - such a block has the checksum that it should have, and other data: reads of it fail, on each copy and after each start,
//!   until it is changed, or a copy is found that has what was lost;
//! - a frame that holds one is as whole as any other: replay does not take it for the torn end of the log;
//! - a copy that has the block, as far as is known without reading its drive, keeps it.

use coquina_base::{BLOCK_BYTES, CHUNK_BLOCKS, DriveId, LayerId, crc32c_block};
use coquina_replication::BlockRange;

use crate::api::{Failure, Operation, Origin, Request, RequestToken};
use crate::frame::{Entry, EntryKind};
use crate::index_region::RegionKey;
use crate::index_run::{REGION_BLOCKS, ZEROES};
use crate::shard::Shard;
use crate::write::Ready;

/// What a block begins with that stands for a bad one.
const MAGIC: [u8; 16] = *b"coquina: no data";

/// What is logged for a block that is known to be bad, with the checksum that it should have. Replay knows by it that the
/// frame is whole: nothing that lay there before can be taken for it, for no two mounts have the same number.
pub(crate) fn stand_in(drive: DriveId, shard: u32, incarnation: u64, checksum: u32) -> [u8; BLOCK_BYTES] {
    let mut block = [0; BLOCK_BYTES];
    block[..16].copy_from_slice(&MAGIC);
    block[16..32].copy_from_slice(&drive.0.0);
    block[32..36].copy_from_slice(&shard.to_le_bytes());
    block[36..40].copy_from_slice(&checksum.to_le_bytes());
    block[40..48].copy_from_slice(&incarnation.to_le_bytes());
    if crc32c_block(&block) == checksum {
        block[48] = 1;
    }
    block
}

/// Whether a block of a frame of the mount stands for a bad one.
pub(crate) fn is_stand_in(
    block: &[u8],
    drive: DriveId,
    shard: u32,
    incarnation: u64,
    entry: &Entry<'_>,
    index: usize,
) -> bool {
    let may_be_bad = entry.kind == EntryKind::Move || entry.recovered && entry.kind == EntryKind::Write;
    may_be_bad
        && block.starts_with(&MAGIC)
        && *block == stand_in(drive, shard, incarnation, entry.checksum(index))
}

impl Shard {
    /// Reads whole blocks, as they are applied, for a copy that misses them: each by itself, for a drive that cannot read one
    /// gives none of those that are read with it. A block that no copy has any more does not make it fail: it is named in the
    /// outcome ([`ReadData::bad`](crate::ReadData::bad)).
    pub fn read_for_recovery(&mut self, token: RequestToken, range: BlockRange) {
        let is_valid =
            range.count > 0 && range.first < CHUNK_BLOCKS && range.count <= CHUNK_BLOCKS - range.first;
        if !is_valid {
            return self.fail(token, Failure::Invalid);
        }
        self.start_recovery_read(token, range);
    }

    /// Logs a block that this copy missed and that no other copy has any more: from now on it is bad, with the checksum that
    /// it should have. Outcomes and the count of records are those of an entry of recovered data of one block.
    pub fn take_bad(
        &mut self,
        token: RequestToken,
        origin: Origin,
        (layer, chunk, block): (LayerId, u32, u32),
        checksum: u32,
    ) {
        let is_valid = block < CHUNK_BLOCKS && origin.recovered && origin.group != 0;
        if !is_valid {
            return self.fail(token, Failure::Invalid);
        }
        if self.poisoned.is_some() || self.closing {
            return self.fail(token, Failure::ReadOnly);
        }
        let request = Request {
            token,
            layer,
            chunk,
            offset_bytes: block * BLOCK_BYTES as u32,
            length_bytes: BLOCK_BYTES as u32,
            origin,
            operation: Operation::Trim,
        };
        let is_deleted = self.is_deleting(layer.0) || self.layers_deleted.contains_key(&layer.0);
        if is_deleted || self.has_version(&request, checksum) {
            return self.take_without_effect(&request);
        }
        if let Some(failure) = self.refuses_change(&origin) {
            return self.fail(token, failure);
        }
        if !self.has_room_for_entry(&request, block, 1) {
            return self.fail(token, Failure::NoSpace);
        }
        self.scratch_checksums.clear();
        self.scratch_checksums.push(checksum);
        let change = self.new_change(token, 1, origin);
        let data = self.stand_in(checksum);
        self.append(&Ready::new(&request, block, 1, EntryKind::Write, &data), change);
    }

    /// What is logged now for a block that is known to be bad.
    pub(crate) fn stand_in(&self, checksum: u32) -> [u8; BLOCK_BYTES] {
        stand_in(self.drive, self.number, self.incarnation, checksum)
    }

    /// Whether a block has a checksum, as far as its part of the index is in memory.
    fn has_version(&mut self, request: &Request<'_>, checksum: u32) -> bool {
        let block = request.offset_bytes as usize / BLOCK_BYTES;
        let region = (block / REGION_BLOCKS) as u8;
        let key = RegionKey { layer: request.layer.0, chunk: request.chunk, region };
        let Some(region) = self.index.region_mut(key).filter(|region| region.is_complete()) else {
            return false;
        };
        let block = block % REGION_BLOCKS;
        let location = region.location(block);
        let own = region.checksums.as_ref().and_then(|all| all.get(block)).copied();
        location != 0 && location != ZEROES && own == Some(checksum)
    }

    /// Reads a block to see whether it is bad: if it is, that is told, other copies are asked for it, and it is looked at again
    /// from time to time.
    pub fn check_block(&mut self, layer: LayerId, chunk: u32, block: u32) {
        if block < CHUNK_BLOCKS && !self.closing {
            self.read_bad_again((layer.0, chunk, block));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coquina_base::{Id128, ZERO_BLOCK_CRC};

    #[test]
    fn what_stands_for_a_lost_block_never_has_its_checksum() {
        let drive = DriveId(Id128([7; 16]));
        for checksum in [0, 1, ZERO_BLOCK_CRC, u32::MAX] {
            let block = stand_in(drive, 3, 5, checksum);
            assert_ne!(crc32c_block(&block), checksum);
            assert_ne!(block, stand_in(drive, 3, 6, checksum), "of another mount");
            assert_ne!(block, stand_in(drive, 3, 5, checksum ^ 2), "of another block");
        }
    }
}
