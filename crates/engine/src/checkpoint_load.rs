//! The last checkpoint, read back: root, parts, and what their stream says.

use coquina_base::{AlignedBuf, crc32c_bytes};
use hashbrown::HashMap;

use crate::checkpoint::{CheckpointTask, PART_RECORD_BYTES, PartRef, ROOT_HEADER_BYTES, STREAM_VERSION};
use crate::geometry::Geometry;
use crate::groups::Groups;
use crate::hash::FixedState;
use crate::index::{Index, PAGE_RECORD_BYTES, decode_page_record};
use crate::index_region::{Map, PageRef, RegionKey};
use crate::log::HeadPosition;
use crate::recovery::OpenError;
use crate::replay::BlockReader;
use crate::segment::SegmentTable;
use crate::session::Sessions;
use crate::superblock::ShardSuperblock;

/// What a checkpoint holds.
pub(crate) struct Loaded {
    pub(crate) applied: u64,
    pub(crate) applied_crc: u32,
    pub(crate) live_blocks: u64,
    pub(crate) zero_blocks: u64,
    pub(crate) positions: [HeadPosition; 3],
    pub(crate) segments: SegmentTable,
    pub(crate) index: Index,
    pub(crate) sessions: Sessions,
    pub(crate) groups: Groups,
    pub(crate) checkpoint: CheckpointTask,
    /// Parts, root and pages written behind the point: needed, but not counted in the segments yet.
    pub(crate) behind_point: Vec<(u32, u32)>,
}

/// What an empty shard holds.
pub(crate) fn empty(geometry: &Geometry, prewrite: bool) -> Loaded {
    let mut positions = [HeadPosition::default(); 3];
    for (number, position) in positions.iter_mut().enumerate() {
        position.next = Some(number as u32);
    }
    Loaded {
        applied: 0,
        applied_crc: 0,
        live_blocks: 0,
        zero_blocks: 0,
        positions,
        segments: SegmentTable::new(geometry.segments, prewrite),
        index: Index::default(),
        sessions: Sessions::default(),
        groups: Groups::default(),
        checkpoint: CheckpointTask::default(),
        behind_point: Vec::new(),
    }
}

/// Takes bytes off the front of a slice.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], OpenError> {
        if length > self.0.len() {
            return Err(OpenError::Checkpoint("it ends too early"));
        }
        let (taken, rest) = self.0.split_at(length);
        self.0 = rest;
        Ok(taken)
    }

    fn long(&mut self) -> Result<u64, OpenError> {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(self.take(8)?);
        Ok(u64::from_le_bytes(bytes))
    }

    fn word(&mut self) -> Result<u32, OpenError> {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(self.take(4)?);
        Ok(u32::from_le_bytes(bytes))
    }

    fn section(&mut self) -> Result<&'a [u8], OpenError> {
        let length =
            usize::try_from(self.long()?).map_err(|_| OpenError::Checkpoint("an impossible length"))?;
        self.take(length)
    }
}

fn read_bytes(
    reader: &mut BlockReader<'_>,
    location: u64,
    offset_bytes: usize,
    length_bytes: usize,
    crc: u32,
) -> Result<Vec<u8>, OpenError> {
    let damaged = OpenError::Checkpoint("a part of it is not intact");
    let blocks = (offset_bytes + length_bytes).div_ceil(4096);
    let in_place = offset_bytes < 4096
        && blocks as u64 <= u64::from(reader.geometry.segment_blocks)
        && location.checked_add(blocks as u64).is_some_and(|end| end <= reader.geometry.blocks());
    if !in_place {
        return Err(damaged);
    }
    let mut buffer = AlignedBuf::new();
    reader.read(location, blocks as u32, &mut buffer)?;
    let bytes = &buffer[offset_bytes..offset_bytes + length_bytes];
    if crc32c_bytes(bytes) != crc {
        return Err(damaged);
    }
    Ok(bytes.to_vec())
}

/// Reads the checkpoint that the superblock names.
pub(crate) fn load(
    reader: &mut BlockReader<'_>,
    superblock: &ShardSuperblock,
    prewrite: bool,
) -> Result<Loaded, OpenError> {
    let root =
        read_bytes(reader, superblock.root_location, 0, superblock.root_bytes as usize, superblock.root_crc)?;
    let mut bytes = Bytes(&root);
    if bytes.take(8)? != b"COQROOT1" || bytes.long()? != superblock.checkpoint {
        return Err(OpenError::Checkpoint("its root is of another checkpoint"));
    }
    let stream_bytes = bytes.long()?;
    let count = bytes.long()? as usize;
    if root.len() != ROOT_HEADER_BYTES + count.saturating_mul(PART_RECORD_BYTES) {
        return Err(OpenError::Checkpoint("its root has an impossible length"));
    }
    let geometry = reader.geometry;
    let mut stream = Vec::new();
    let mut parts = Vec::with_capacity(count);
    for _ in 0..count {
        let part = PartRef {
            location: bytes.long()?,
            offset_bytes: bytes.word()?,
            length_bytes: bytes.word()?,
            crc: bytes.word()?,
        };
        bytes.word()?;
        let content = read_bytes(
            reader,
            part.location,
            part.offset_bytes as usize,
            part.length_bytes as usize,
            part.crc,
        )?;
        stream.extend_from_slice(&content);
        parts.push(part);
    }
    if stream.len() as u64 != stream_bytes {
        return Err(OpenError::Checkpoint("its parts do not add up"));
    }
    parts.push(PartRef {
        location: superblock.root_location,
        offset_bytes: 0,
        length_bytes: superblock.root_bytes,
        crc: superblock.root_crc,
    });
    let behind_point =
        parts.iter().map(|part| (geometry.segment_of(part.location), part.length_bytes)).collect();
    let checkpoint = CheckpointTask::after(superblock.checkpoint, parts);
    decode_stream(&stream, &geometry, prewrite, checkpoint, behind_point)
}

fn decode_stream(
    stream: &[u8],
    geometry: &Geometry,
    prewrite: bool,
    mut checkpoint: CheckpointTask,
    behind_point: Vec<(u32, u32)>,
) -> Result<Loaded, OpenError> {
    let mut bytes = Bytes(stream);
    if bytes.word()? != STREAM_VERSION {
        return Err(OpenError::Checkpoint("it has another version"));
    }
    let applied_crc = bytes.word()?;
    let applied = bytes.long()?;
    let live_blocks = bytes.long()?;
    let zero_blocks = bytes.long()?;
    let mut positions = [HeadPosition::default(); 3];
    for position in &mut positions {
        *position = decode_position(&mut bytes, geometry)?;
    }
    let segments = SegmentTable::decode(bytes.section()?, geometry.segments, prewrite);
    let mut segments = segments.ok_or(OpenError::Checkpoint("its segment table has an impossible length"))?;
    segments.era = 1;
    segments.era_complete = 1;
    segments.covered_frame = applied;
    let mut index = Index::default();
    let mut layers = Bytes(bytes.section()?);
    while !layers.0.is_empty() {
        let id = layers.long()?;
        index.layer_mut(id).deleting = layers.long()? != 0;
    }
    let sessions = Sessions::decode(bytes.section()?);
    let sessions = sessions.ok_or(OpenError::Checkpoint("its session table has an impossible length"))?;
    let groups = Groups::decode(bytes.section()?, geometry.blocks());
    let groups = groups.ok_or(OpenError::Checkpoint("its placement groups contradict themselves"))?;
    checkpoint.group_bytes_last = sessions.encoded_bytes() + groups.encoded_bytes();
    let mut pages = PageTable { geometry, index, segments, behind_point, newer: HashMap::default() };
    for overrides in [false, true] {
        let mut records = Bytes(bytes.section()?);
        while !records.0.is_empty() {
            let record = decode_page_record(records.take(PAGE_RECORD_BYTES)?);
            let (key, page) = record.ok_or(OpenError::Checkpoint("a page record that is not valid"))?;
            pages.take(key, page, overrides)?;
        }
    }
    let PageTable { index, segments, behind_point, .. } = pages;
    Ok(Loaded {
        applied,
        applied_crc,
        live_blocks,
        zero_blocks,
        positions,
        segments,
        index,
        sessions,
        groups,
        checkpoint,
        behind_point,
    })
}

/// What page records are taken into.
struct PageTable<'a> {
    geometry: &'a Geometry,
    index: Index,
    segments: SegmentTable,
    behind_point: Vec<(u32, u32)>,
    /// Pages that overrides have put into `behind_point`.
    newer: HashMap<u64, (), FixedState>,
}

impl PageTable<'_> {
    fn take(&mut self, key: RegionKey, page: PageRef, overrides: bool) -> Result<(), OpenError> {
        let in_place = page.is_none() || page.location() + page.blocks() as u64 <= self.geometry.blocks();
        let known = self.index.layer_position(key.layer).is_some();
        if !in_place || !known {
            return Err(OpenError::Checkpoint("a page record that is not valid"));
        }
        let region = self.index.region_or_new(key, 0);
        let old = std::mem::replace(&mut region.page, page);
        region.map = if page.is_none() { Map::Empty } else { Map::Absent };
        if overrides {
            self.replace(old, page);
        }
        self.index.cool(key.layer, key.chunk);
        Ok(())
    }

    fn counted(&self, page: PageRef) -> (u32, u32) {
        (self.geometry.segment_of(page.location()), page.length_bytes() as u32)
    }

    /// A page written behind the point takes the place of another.
    fn replace(&mut self, old: PageRef, new: PageRef) {
        if !old.is_none() {
            let counted = self.counted(old);
            if self.newer.remove(&old.0).is_none() {
                self.segments.remove_live(counted.0, counted.1);
            } else if let Some(at) = self.behind_point.iter().position(|entry| *entry == counted) {
                self.behind_point.swap_remove(at);
            }
        }
        if !new.is_none() {
            self.behind_point.push(self.counted(new));
            self.newer.insert(new.0, ());
        }
    }
}

fn decode_position(bytes: &mut Bytes<'_>, geometry: &Geometry) -> Result<HeadPosition, OpenError> {
    let segment = bytes.word()?;
    let offset = bytes.word()?;
    let generation = bytes.long()?;
    let next = bytes.word()?;
    bytes.word()?;
    let valid = |number: u32| number < geometry.segments;
    if (segment != u32::MAX && !valid(segment)) || !valid(next) || offset > geometry.segment_blocks {
        return Err(OpenError::Checkpoint("a position that is not valid"));
    }
    Ok(HeadPosition {
        segment: (segment != u32::MAX).then_some(segment),
        offset,
        generation,
        next: Some(next),
    })
}
