//! Start-up: the last checkpoint, then the frames behind it.

use std::collections::VecDeque;

use coquina_base::{AlignedBuf, BLOCK_BYTES, crc32c_block, crc32c_bytes};
use hashbrown::HashMap;

use crate::api::{Action, Device, IoError, ShardConfig, ShardStats};
use crate::cache::BlockCache;
use crate::checkpoint::{CheckpointTask, PART_RECORD_BYTES, PartRef, ROOT_HEADER_BYTES, STREAM_VERSION};
use crate::footer;
use crate::frame::{Entries, Entry, EntryKind, FrameHeader, HEADER_BYTES, HEADS};
use crate::geometry::Geometry;
use crate::groups::Groups;
use crate::hash::FixedState;
use crate::index::{Index, PAGE_RECORD_BYTES, decode_page_record};
use crate::index_region::{Map, PageRef, RegionKey};
use crate::log::{HeadPosition, Log};
use crate::replay::{BlockReader, Chain, Lost, ReplayFrame, Step, is_whole};
use crate::segment::{SegmentState, SegmentTable};
use crate::session::Sessions;
use crate::shard::Shard;
use crate::superblock::{DriveSuperblock, INCARNATIONS_MAX, ShardSuperblock, SuperblockError};
use crate::write::regions_of;

/// Why a shard cannot be opened.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenError {
    /// A superblock cannot be used.
    #[error(transparent)]
    Superblock(#[from] SuperblockError),
    /// The shard's number is not one of the drive's.
    #[error("the drive has {shards} shards, there is no shard {shard}")]
    NoSuchShard {
        /// Asked for.
        shard: u32,
        /// There are.
        shards: u32,
    },
    /// The checkpoint cannot be read.
    #[error(
        "its checkpoint is damaged ({0}); run `coquina drive check` on it, and restore the volumes from a copy"
    )]
    Checkpoint(&'static str),
    /// Frames that were acknowledged cannot be read.
    #[error(
        "frames {} to {} were acknowledged but cannot be read (near byte {offset_bytes}): what they held is lost; \
         run `coquina drive check` on it, and restore the volumes from a copy",
        .lost.first_frame, .lost.next_frame - 1
    )]
    Lost {
        /// Which.
        lost: Lost,
        /// Where on the drive.
        offset_bytes: u64,
    },
    /// The log contradicts itself.
    #[error("its log contradicts itself ({0}); run `coquina drive check` on it")]
    Log(&'static str),
    /// The drive failed.
    #[error("reading or writing it failed (errno {})", .0.0)]
    Io(IoError),
}

impl From<IoError> for OpenError {
    fn from(error: IoError) -> Self {
        OpenError::Io(error)
    }
}

/// What a checkpoint holds.
struct Loaded {
    applied: u64,
    applied_crc: u32,
    live_blocks: u64,
    zero_blocks: u64,
    positions: [HeadPosition; 3],
    segments: SegmentTable,
    index: Index,
    sessions: Sessions,
    groups: Groups,
    checkpoint: CheckpointTask,
    /// Parts, root and pages written behind the point: needed, but not counted in the segments yet.
    behind_point: Vec<(u32, u32)>,
}

impl Shard {
    /// Opens a shard: reads its last checkpoint and replays what came behind it. Nothing else may use the drive.
    ///
    /// Writes to the drive: what was acknowledged is made durable, and a new mount is noted.
    pub fn open(
        device: &mut dyn Device,
        shard: u32,
        _entropy: u64,
        config: ShardConfig,
    ) -> Result<Shard, OpenError> {
        let mut opened = Self::recover(device, shard, config)?;
        device.sync()?;
        let superblock = &mut opened.superblock;
        opened.incarnation = superblock.begin_incarnation(opened.log.applied + 1);
        for _ in 0..2 {
            superblock.generation += 1;
            device.write(superblock.offset_bytes(&opened.geometry), &superblock.encode())?;
        }
        device.sync()?;
        if opened.superblock.incarnations.len() > INCARNATIONS_MAX / 2 {
            opened.checkpoint_now(device)?;
        }
        Ok(opened)
    }

    /// Completes a checkpoint before anything else: the superblock can name only so many mounts since the last one, and
    /// a server that crashes again and again must not run out of them.
    fn checkpoint_now(&mut self, device: &mut dyn Device) -> Result<(), OpenError> {
        let mut events = VecDeque::new();
        // As for a stop: nothing else is begun.
        self.closing = true;
        self.start_checkpoint();
        while !self.is_closed() {
            self.turn(self.now_ns);
            while let Some(action) = self.next_action() {
                match action {
                    Action::Write { io, offset_bytes, buffer } => {
                        let result = device.write(offset_bytes, &buffer);
                        self.io_done(io, buffer, result);
                    }
                    Action::Read { io, offset_bytes, mut buffer } => {
                        let result = device.read(offset_bytes, &mut buffer);
                        self.io_done(io, buffer, result);
                    }
                    // Left for later: it only makes the first writes there cheaper.
                    Action::Prewrite { io, .. } => self.io_done(io, AlignedBuf::new(), Ok(())),
                    other => events.push_back(other),
                }
            }
        }
        self.actions = events;
        self.closing = false;
        match self.poisoned {
            Some(errno) => Err(OpenError::Io(IoError(errno))),
            None => Ok(()),
        }
    }

    /// Reads a shard without writing to its drive.
    pub(crate) fn recover(
        device: &mut dyn Device,
        shard: u32,
        config: ShardConfig,
    ) -> Result<Shard, OpenError> {
        let drive = DriveSuperblock::read(device)?;
        if shard >= drive.shards {
            return Err(OpenError::NoSuchShard { shard, shards: drive.shards });
        }
        let geometry = drive.geometry(shard);
        let superblock = ShardSuperblock::read(device, &geometry)?;
        if superblock.drive != drive.identity.drive || superblock.shard != shard {
            return Err(SuperblockError::Damaged("a shard superblock of another drive").into());
        }
        let mut reader = BlockReader { device, geometry, drive: drive.identity.drive, shard };
        let loaded = match superblock.checkpoint {
            0 => empty(&geometry, drive.prewrite),
            _ => load(&mut reader, &superblock, drive.prewrite)?,
        };
        let behind_point = loaded.behind_point.clone();
        let mut opened = assemble(loaded, geometry, superblock, &drive, shard, config);
        #[cfg(feature = "mutations")]
        {
            opened.segments.reuse_early =
                opened.config.mutation == Some(crate::api::Mutation::ReuseSegmentEarly);
        }
        opened.capacity_blocks =
            capacity_blocks(&geometry, opened.frame_blocks_max_of(crate::frame::Head::Cold));
        opened.replay(&mut reader)?;
        for (segment, amount) in behind_point {
            opened.segments.add_live(segment, amount);
        }
        opened.pin_tails();
        opened.rebuild_streams(&mut reader)?;
        opened.check_counts()?;
        Ok(opened)
    }

    fn replay(&mut self, reader: &mut BlockReader<'_>) -> Result<(), OpenError> {
        self.replaying = true;
        let superblock = self.superblock.clone();
        let positions = std::array::from_fn(|head| self.log.streams[head].applied);
        let (last, last_crc) = (self.log.applied, self.log.applied_crc);
        let inner = BlockReader {
            device: &mut *reader.device,
            geometry: reader.geometry,
            drive: reader.drive,
            shard: reader.shard,
        };
        let mut chain = Chain::new(inner, &superblock, positions, last, last_crc);
        #[cfg(feature = "mutations")]
        {
            chain.stale_counts = self.config.mutation == Some(crate::api::Mutation::ReplayStaleFrame);
        }
        // Frames of which no later one has proven yet that they were acknowledged.
        let mut unproven: VecDeque<ReplayFrame> = VecDeque::new();
        loop {
            match chain.next_step()? {
                Step::Frame(frame) => unproven.push_back(frame),
                Step::End => break,
                Step::Lost(lost) => {
                    let offset_bytes =
                        self.geometry.offset_bytes(lost.location.min(self.geometry.blocks() - 1));
                    return Err(OpenError::Lost { lost, offset_bytes });
                }
            }
            while unproven.front().is_some_and(|frame| frame.header.frame_number <= chain.acknowledged) {
                let Some(frame) = unproven.pop_front() else { break };
                self.replay_frame(&mut chain.reader, &frame)?;
            }
        }
        for frame in unproven {
            if !is_whole(&mut chain.reader, &frame)? {
                break;
            }
            self.replay_frame(&mut chain.reader, &frame)?;
        }
        self.replaying = false;
        Ok(())
    }

    fn replay_frame(&mut self, reader: &mut BlockReader<'_>, frame: &ReplayFrame) -> Result<(), OpenError> {
        let header = &frame.header;
        let segment = self.geometry.segment_of(header.location);
        let known = self.segments.get(segment);
        if known.generation != header.segment_generation || known.state != SegmentState::Open {
            if known.live != 0 {
                return Err(OpenError::Log("a segment was reused while it was needed"));
            }
            self.segments.reopen(segment, header.segment_generation, header.head);
        }
        self.advance(header, frame.is_footer);
        self.log.previous_crc = header.header_crc;
        self.log.frame_next = header.frame_number + 1;
        if frame.is_footer {
            return Ok(());
        }
        let entries = Entries::new(&frame.entry_bytes, header.contexts, header.entries, header.data_blocks);
        let Some(mut entries) = entries else { return Err(OpenError::Log("a frame without its contexts")) };
        while let Some(entry) = entries.next_entry() {
            let Some(entry) = entry else { return Err(OpenError::Log("an entry that cannot be read")) };
            let layer = entry.context.layer().0;
            if entry.kind.has_range() {
                for (region, _, _) in regions_of(u32::from(entry.start_block), u32::from(entry.blocks)) {
                    self.load_now(reader, RegionKey { layer, chunk: entry.chunk, region })?;
                }
            }
            let body =
                if entry.kind == EntryKind::Record { read_body(reader, header, &entry)? } else { Vec::new() };
            self.note_group(&entry, header, &body).map_err(OpenError::Log)?;
            self.apply_entry(&entry, header);
            let session = entry.context.session();
            let is_client = session != 0 && entry.kind != EntryKind::Move && entry.group.is_none();
            if is_client && !entry.continues {
                self.sessions.apply(session, entry.request);
            }
            self.stats.replayed_entries += 1;
        }
        Ok(())
    }

    /// Reads a region's page at once, if the region is not in memory.
    pub(crate) fn load_now(&mut self, reader: &mut BlockReader<'_>, key: RegionKey) -> Result<(), OpenError> {
        let blocks_max = self.geometry.blocks();
        let region = self.index.region_or_new(key, 0);
        if region.is_complete() {
            return Ok(());
        }
        let page = region.page;
        let mut buffer = AlignedBuf::new();
        reader.read(page.location(), page.blocks() as u32, &mut buffer)?;
        let bytes = &buffer[page.offset_bytes()..page.offset_bytes() + page.length_bytes()];
        let good = self.with_region(key, |region| region.decode_page(key, bytes, blocks_max).is_some());
        if good { Ok(()) } else { Err(OpenError::Log("a page of the index cannot be read")) }
    }

    /// Puts the streams behind the last frame that counts and collects what their open segments' footers need.
    fn rebuild_streams(&mut self, reader: &mut BlockReader<'_>) -> Result<(), OpenError> {
        let mut promised = [None; 3];
        let mut open = [None; 3];
        for head in HEADS {
            let stream = self.log.stream(head);
            stream.position = stream.applied;
            promised[head as usize] = stream.position.next;
            open[head as usize] = stream.position.segment;
            if stream.position.next.is_none() {
                return Err(OpenError::Log("a stream without a next segment"));
            }
        }
        self.segments.rebuild(&promised, &open);
        for head in HEADS {
            let position = self.log.stream(head).position;
            let Some(segment) = position.segment else { continue };
            let start = self.geometry.segment_start(segment);
            let (mut offset, mut frames, mut records) = (0, 0, Vec::new());
            let mut buffer = AlignedBuf::new();
            while offset < position.offset {
                reader.read(start + u64::from(offset), 1, &mut buffer)?;
                let header = crate::frame::FrameHeader::peek(&buffer, reader.drive, reader.shard)
                    .filter(|header| header.header_blocks == 1 && header.is_intact(&buffer));
                let Some(header) = header else {
                    return Err(OpenError::Log("a frame of an open segment cannot be read"));
                };
                let end = HEADER_BYTES + header.entry_bytes as usize;
                footer::push_record(&mut records, &header, &buffer[HEADER_BYTES..end]);
                frames += 1;
                offset += header.blocks();
            }
            if offset != position.offset {
                return Err(OpenError::Log("the frames of an open segment do not fit"));
            }
            let stream = self.log.stream(head);
            stream.footer = records;
            stream.footer_frames = frames;
        }
        for head in HEADS {
            let blocks = self.frame_blocks_max_of(head) as usize + 1;
            let builder = self.log.builder(self.pool.take(blocks));
            self.log.stream(head).building = builder;
        }
        Ok(())
    }

    fn check_counts(&self) -> Result<(), OpenError> {
        let data: u64 = (0..self.segments.len())
            .map(|number| self.segments.get(number))
            .filter(|segment| segment.head != crate::frame::Head::Meta)
            .map(|segment| u64::from(segment.live))
            .sum();
        if data != self.live_blocks {
            return Err(OpenError::Log("the counts of needed blocks do not add up"));
        }
        Ok(())
    }
}

/// Reads the data of a record of a placement group.
fn read_body(
    reader: &mut BlockReader<'_>,
    header: &FrameHeader,
    entry: &Entry<'_>,
) -> Result<Vec<u8>, OpenError> {
    let location = header.location + u64::from(header.header_blocks) + u64::from(entry.data_offset);
    let mut buffer = AlignedBuf::new();
    reader.read(location, u32::from(entry.blocks), &mut buffer)?;
    let mut blocks = buffer.chunks_exact(BLOCK_BYTES).enumerate();
    if !blocks.all(|(index, block)| crc32c_block(block) == entry.checksum(index)) {
        return Err(OpenError::Log("a record of a placement group is not intact"));
    }
    Ok(buffer.to_vec())
}

fn empty(geometry: &Geometry, prewrite: bool) -> Loaded {
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

fn load(
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
    checkpoint: CheckpointTask,
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

fn assemble(
    loaded: Loaded,
    geometry: Geometry,
    superblock: ShardSuperblock,
    drive: &DriveSuperblock,
    shard: u32,
    config: ShardConfig,
) -> Shard {
    let mut log = Log::new(loaded.applied, loaded.applied_crc);
    for (stream, position) in log.streams.iter_mut().zip(loaded.positions) {
        stream.applied = position;
    }
    let layers_deleting =
        loaded.index.layers().iter().filter(|layer| layer.deleting).map(|layer| (layer.id, 0)).collect();
    Shard {
        capacity_blocks: 0,
        cache: BlockCache::new(config.cache_bytes),
        config,
        geometry,
        drive: drive.identity.drive,
        number: shard,
        superblock,
        incarnation: 0,
        segments: loaded.segments,
        index: loaded.index,
        sessions: loaded.sessions,
        groups: loaded.groups,
        log,
        actions: VecDeque::new(),
        ios: slab::Slab::new(),
        reads: slab::Slab::new(),
        changes: slab::Slab::new(),
        merges: Vec::new(),
        trims_under_way: 0,
        behind_trims: Vec::new(),
        page_waiters: Default::default(),
        repeats: Vec::new(),
        layers_deleting,
        chunk_deleting: None,
        layers_deleted: Default::default(),
        chunks_deleted: 0,
        cold_stalled: false,
        checkpoint: loaded.checkpoint,
        cleaner: Default::default(),
        scrub: Default::default(),
        repairs: Default::default(),
        pool: Default::default(),
        stats: ShardStats::default(),
        now_ns: 0,
        live_blocks: loaded.live_blocks,
        zero_blocks: loaded.zero_blocks,
        reserved_blocks: 0,
        poisoned: None,
        closing: false,
        prewriter: Default::default(),
        pages_loading: 0,
        dirty: Vec::new(),
        scratch_checksums: Vec::new(),
        landings: Vec::new(),
        page_scratch: Vec::new(),
        replaying: false,
        again: true,
        progress_seen: [0; 4],
    }
}

/// Blocks that users may fill: so many that, wherever they lie, some segment is worth cleaning.
fn capacity_blocks(geometry: &Geometry, frame_blocks_max: u32) -> u64 {
    let segments = u64::from(geometry.segments);
    // Streams and what they were promised, the cleaner's and the users' reserve, index pages and checkpoints.
    let kept = 14 + segments.div_ceil(64);
    let usable = segments.saturating_sub(kept).max(segments / 8);
    let cold = u64::from(crate::footer::cold_blocks(geometry, frame_blocks_max));
    usable * (cold - cold.div_ceil(32)).max(1)
}
