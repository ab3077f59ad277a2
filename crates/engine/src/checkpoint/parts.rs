//! A checkpoint's stream is cut into parts; a root names these.

use coquina_base::{BLOCK_BYTES, crc32c_bytes};

use super::{CheckpointTask, PART_RECORD_BYTES, PartRef, Phase, ROOT_HEADER_BYTES, meta_bytes_max};
use crate::frame::{Entry, EntryKind, FrameHeader, Head};
use crate::index::PAGE_RECORD_BYTES;
use crate::index_run::REGION_BLOCKS;
use crate::segment::SEGMENT_RECORD_BYTES;
use crate::shard::Shard;

/// Parts that may wait for their turn to go to the drive.
const QUEUE_MAX: usize = 2;
/// Part of a region that holds anything where volumes are thin: an eighth, so that there are so many times more regions.
const THIN_REGIONS: u64 = 8;

impl CheckpointTask {
    /// The stream is these, one behind the other. They do not change once the pages are noted.
    fn stream(&self) -> [&[u8]; 4] {
        [&self.snapshot, &self.table, &self.overrides_length, &self.overrides]
    }

    /// Puts the next so many bytes of the stream into `part`.
    fn take_from_stream(&mut self, bytes: u64, part: &mut Vec<u8>) {
        let mut skipped = self.table_bytes_last - self.stream_left;
        let end = skipped + bytes;
        let mut at = 0;
        for piece in self.stream() {
            let piece_end = at + piece.len() as u64;
            if piece_end > skipped && end > at {
                part.extend_from_slice(&piece[(skipped - at) as usize..(end.min(piece_end) - at) as usize]);
                skipped = end.min(piece_end);
            }
            at = piece_end;
        }
        self.stream_left -= bytes;
    }
}

impl Shard {
    pub(super) fn begin_parts(&mut self) {
        let task = &mut self.checkpoint;
        task.phase = Phase::Parts;
        task.snapshot.extend_from_slice(&(task.table.len() as u64).to_le_bytes());
        task.overrides_length = (task.overrides.len() as u64).to_le_bytes();
        task.table_bytes_last = task.stream().iter().map(|piece| piece.len() as u64).sum();
        task.stream_left = task.table_bytes_last;
        task.group_bytes_last = task.group_bytes;
        task.parts.clear();
        task.part_crcs.clear();
        self.send_parts();
    }

    /// Puts the next parts of the stream into the log. Of a large drive it takes hundreds of MB: with all of them at once, users would wait
    /// while they are copied and their checksums are made.
    pub(super) fn send_parts(&mut self) {
        let part_bytes = self.meta_bytes_max() as u64;
        let number = self.checkpoint.number;
        let mut part = std::mem::take(&mut self.page_scratch);
        while self.checkpoint.stream_left > 0 && self.log.stream(Head::Meta).queue.len() < QUEUE_MAX {
            part.clear();
            let bytes = self.checkpoint.stream_left.min(part_bytes);
            self.checkpoint.take_from_stream(bytes, &mut part);
            self.checkpoint.part_crcs.push(crc32c_bytes(&part));
            self.add_meta(0, 0, 0, EntryKind::Checkpoint, &part, number);
        }
        self.page_scratch = part;
    }

    /// A part of the stream, or the root, counts.
    pub(crate) fn checkpoint_part_written(&mut self, entry: &Entry<'_>, header: &FrameHeader) {
        if self.replaying || entry.sequence != self.checkpoint.number {
            return;
        }
        let location =
            header.location + u64::from(header.header_blocks) + u64::from(entry.data_offset) / 4096;
        let part = PartRef {
            location,
            offset_bytes: entry.data_offset % 4096,
            length_bytes: entry.request as u32,
            crc: self.checkpoint.part_crcs.get(self.checkpoint.parts.len()).copied().unwrap_or(0),
        };
        self.segments.add_live(self.geometry.segment_of(location), part.length_bytes);
        self.checkpoint.parts.push(part);
        match self.checkpoint.phase {
            Phase::Parts => {
                let are_all_here = self.checkpoint.parts.len() == self.checkpoint.part_crcs.len();
                if are_all_here && self.checkpoint.stream_left == 0 {
                    self.send_root();
                }
            }
            Phase::Root => self.send_superblock(part),
            _ => {}
        }
    }

    fn send_root(&mut self) {
        self.checkpoint.phase = Phase::Root;
        let root =
            encode_root(self.checkpoint.number, self.checkpoint.table_bytes_last, &self.checkpoint.parts);
        self.checkpoint.root_crc = crc32c_bytes(&root);
        let number = self.checkpoint.number;
        if !self.log.stream(Head::Meta).building.is_empty() {
            self.rotate(Head::Meta);
        }
        self.add_meta(0, 0, 0, EntryKind::Checkpoint, &root, number);
    }
}

/// Whether the root of a checkpoint of a shard of so many segments fits one of them, as it must. A quarter of the stream is for groups
/// and sessions.
pub(crate) fn root_fits(segment_blocks: u32, segments: u64) -> bool {
    // Besides the root, a frame's header and a footer.
    let root_bytes = (segment_blocks as usize - 2) * BLOCK_BYTES;
    let parts = ((root_bytes - ROOT_HEADER_BYTES) / PART_RECORD_BYTES) as u64;
    let stream_bytes = parts * meta_bytes_max(segment_blocks) as u64;
    // A page may have a record as of the point, and one that replaces it.
    let page_bytes =
        u64::from(segment_blocks) * THIN_REGIONS * 2 * PAGE_RECORD_BYTES as u64 / REGION_BLOCKS as u64;
    segments * (SEGMENT_RECORD_BYTES as u64 + page_bytes) <= stream_bytes / 4 * 3
}

fn encode_root(number: u64, stream_bytes: u64, parts: &[PartRef]) -> Vec<u8> {
    let mut root = Vec::with_capacity(ROOT_HEADER_BYTES + parts.len() * PART_RECORD_BYTES);
    root.extend_from_slice(b"COQROOT1");
    root.extend_from_slice(&number.to_le_bytes());
    root.extend_from_slice(&stream_bytes.to_le_bytes());
    root.extend_from_slice(&(parts.len() as u64).to_le_bytes());
    for part in parts {
        root.extend_from_slice(&part.location.to_le_bytes());
        root.extend_from_slice(&part.offset_bytes.to_le_bytes());
        root.extend_from_slice(&part.length_bytes.to_le_bytes());
        root.extend_from_slice(&part.crc.to_le_bytes());
        root.extend_from_slice(&[0; 4]);
    }
    root
}
