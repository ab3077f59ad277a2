//! Start-up: the last checkpoint, then the frames behind it.

mod pages;

use std::collections::{BTreeSet, VecDeque};

use coquina_base::{AlignedBuf, BLOCK_BYTES, crc32c_block};

use crate::api::{Action, Device, Event, IoError, ShardConfig, ShardStats};
use crate::cache::BlockCache;
use crate::checkpoint_load::{Loaded, empty, load};
use crate::footer;
use crate::frame::{Entries, Entry, EntryKind, FrameHeader, HEADER_BYTES, HEADS, Head};
use crate::geometry::Geometry;
use crate::index_region::RegionKey;
use crate::log::{HeadPosition, Log};
use crate::replay::{BlockReader, Chain, Lost, ReplayFrame, Step, WINDOW_BLOCKS, is_whole};
use crate::segment::SegmentState;
use crate::shard::Shard;
use crate::superblock::{
    COMPATIBLE_CUT, COMPATIBLE_CUTTING, DriveSuperblock, INCARNATIONS_MAX, ShardSuperblock, SuperblockError,
};
use crate::write::regions_of;
use pages::MetaFrames;

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

impl OpenError {
    /// Whether the log is what is damaged, so that [`Shard::open_cut`] may help.
    pub fn is_in_log(&self) -> bool {
        matches!(self, OpenError::Lost { .. } | OpenError::Log(_) | OpenError::Io(_))
    }
}

impl From<IoError> for OpenError {
    fn from(error: IoError) -> Self {
        OpenError::Io(error)
    }
}

/// Frames whose pages of the index are read together.
const REPLAYED_TOGETHER: usize = 64;
/// Blocks of a frame behind which more than the next header is read.
const SMALL_FRAME_BLOCKS: u32 = 16;

/// How far a log is replayed.
#[derive(Clone, Copy)]
struct Extent {
    /// The first frame that is left out.
    end: u64,
    /// What is damaged is left out, too; else it is an error.
    is_cut: bool,
}

impl Extent {
    const ALL: Extent = Extent { end: u64::MAX, is_cut: false };
}

/// Why a shard was not recovered.
struct Stopped {
    error: OpenError,
    /// The frame at which replay stopped: all before it can be replayed.
    frame: Option<u64>,
}

impl<E: Into<OpenError>> From<E> for Stopped {
    fn from(error: E) -> Self {
        Stopped { error: error.into(), frame: None }
    }
}

/// What was left out of a damaged log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cut {
    /// The first frame that was left out: all from there on is as if it had never been written.
    pub frame: u64,
    /// What was wrong there.
    pub damage: Option<OpenError>,
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
        let is_cutting = opened.superblock.compatible & COMPATIBLE_CUTTING != 0;
        if is_cutting {
            // The power went while the log was cut: nothing has been logged since.
            opened.groups.distrust();
        }
        opened.begin_mount(device)?;
        if is_cutting || opened.superblock.incarnations.len() > INCARNATIONS_MAX / 2 {
            opened.checkpoint_now(device)?;
        }
        Ok(opened)
    }

    /// Opens a shard whose log is damaged, as it was before the damage: what was logged from there on, acknowledged or not,
    /// is lost on this drive. Only for a shard of which all is on other copies, and none of whose copies is in sync any
    /// more. Its placement groups know from then on that they are not to be trusted ([`Start::intact`]), until a
    /// configuration says that they are in sync again: those of which nothing is left as well ([`Shard::may_open_group`]).
    ///
    /// [`Start::intact`]: coquina_replication::Start
    pub fn open_cut(
        device: &mut dyn Device,
        shard: u32,
        config: ShardConfig,
    ) -> Result<(Shard, Cut), OpenError> {
        let mut extent = Extent { is_cut: true, ..Extent::ALL };
        let mut damage = None;
        let mut opened = loop {
            match Self::recover_to(device, shard, config.clone(), extent) {
                Ok(opened) => break opened,
                Err(Stopped { error, frame: Some(frame) }) if frame < extent.end => {
                    extent.end = frame;
                    damage = Some(error);
                }
                Err(stopped) => return Err(damage.unwrap_or(stopped.error)),
            }
        };
        opened.groups.distrust();
        opened.superblock.compatible |= COMPATIBLE_CUT | COMPATIBLE_CUTTING;
        opened.begin_mount(device)?;
        // What is left of the frames behind the cut must never be read again, and the groups must not forget.
        opened.checkpoint_now(device)?;
        opened.stats.log_cuts = 1;
        let frame = opened.log.applied.min(extent.end.saturating_sub(1)) + 1;
        let reason = "its log was damaged: what was written from there on is fetched from other copies";
        let offset_bytes = match &damage {
            Some(OpenError::Lost { offset_bytes, .. }) => *offset_bytes,
            _ => 0,
        };
        opened.event(Event::Damage { offset_bytes, reason });
        Ok((opened, Cut { frame, damage }))
    }

    /// Makes what was replayed durable, and notes that a mount begins behind it.
    fn begin_mount(&mut self, device: &mut dyn Device) -> Result<(), OpenError> {
        let opened = self;
        device.sync()?;
        let superblock = &mut opened.superblock;
        opened.incarnation = superblock.begin_incarnation(opened.log.applied + 1);
        for _ in 0..2 {
            superblock.generation += 1;
            device.write(superblock.offset_bytes(&opened.geometry), &superblock.encode())?;
        }
        device.sync()?;
        Ok(())
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
        Self::recover_to(device, shard, config, Extent::ALL).map_err(|stopped| stopped.error)
    }

    fn recover_to(
        device: &mut dyn Device,
        shard: u32,
        config: ShardConfig,
        extent: Extent,
    ) -> Result<Shard, Stopped> {
        let drive = DriveSuperblock::read(device)?;
        if shard >= drive.shards {
            return Err(OpenError::NoSuchShard { shard, shards: drive.shards }.into());
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
        opened.set_capacity();
        let meta = opened.replay(&mut reader, extent)?;
        if !meta.has_passed_root() {
            // The superblock proves that it was written. What comes next would be written over what the checkpoint consists of.
            return Err(OpenError::Log("it ends before the end of its last checkpoint").into());
        }
        for (segment, amount) in behind_point {
            opened.segments.add_live(segment, amount);
        }
        opened.pin_tails();
        opened.rebuild_streams(&mut reader, extent.is_cut)?;
        opened.take_up_pages(&mut reader, &meta);
        opened.check_counts()?;
        Ok(opened)
    }

    /// Applies the frames behind the checkpoint, up to the last one that something needs. Gives what it found of the index's
    /// stream.
    fn replay(&mut self, reader: &mut BlockReader<'_>, extent: Extent) -> Result<MetaFrames, Stopped> {
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
        let mut meta = MetaFrames::new(&superblock);
        while chain.next_number() < extent.end {
            let stopped_at = Some(chain.next_number());
            let stopped = |error| Stopped { error, frame: stopped_at };
            match chain.next_step().map_err(|error| stopped(error.into()))? {
                Step::Frame(frame) => unproven.push_back(frame),
                Step::End => break,
                Step::Lost(lost) => {
                    let offset_bytes =
                        self.geometry.offset_bytes(lost.location.min(self.geometry.blocks() - 1));
                    return Err(stopped(OpenError::Lost { lost, offset_bytes }));
                }
            }
            let proven = |frame: &ReplayFrame| frame.header.frame_number <= chain.acknowledged;
            if unproven.get(REPLAYED_TOGETHER - 1).is_some_and(proven) {
                let together: Vec<ReplayFrame> = unproven.drain(..REPLAYED_TOGETHER).collect();
                self.replay_frames(&mut chain.reader, &together, &mut meta)?;
            }
        }
        let proven = |frame: &ReplayFrame| frame.header.frame_number <= chain.acknowledged;
        let count = unproven.partition_point(proven);
        let together: Vec<ReplayFrame> = unproven.drain(..count).collect();
        self.replay_frames(&mut chain.reader, &together, &mut meta)?;
        for frame in unproven {
            let stopped =
                |error: IoError| Stopped { error: error.into(), frame: Some(frame.header.frame_number) };
            if !is_whole(&mut chain.reader, &frame).map_err(stopped)? {
                break;
            }
            self.replay_frame(&mut chain.reader, &frame, &mut meta)?;
        }
        self.replaying = false;
        self.leave_out(&meta.release());
        Ok(meta)
    }

    fn replay_frames(
        &mut self,
        reader: &mut BlockReader<'_>,
        frames: &[ReplayFrame],
        meta: &mut MetaFrames,
    ) -> Result<(), Stopped> {
        let mut loaded = 0;
        for (index, frame) in frames.iter().enumerate() {
            if index >= loaded {
                loaded = index + self.load_together(reader, &frames[index..]);
            }
            self.replay_frame(reader, frame, meta)?;
        }
        Ok(())
    }

    /// Reads pages of the index that the next frames are going to need, many at a time: one after the other they would take longer
    /// than all else. Says for how many frames. What cannot be read now is left to [`Shard::load_now`], which says so at
    /// the frame that needs it.
    fn load_together(&mut self, reader: &mut BlockReader<'_>, frames: &[ReplayFrame]) -> usize {
        let mut keys = BTreeSet::new();
        let mut count = 0;
        'frames: for frame in frames {
            let header = &frame.header;
            let entries =
                Entries::new(&frame.entry_bytes, header.contexts, header.entries, header.data_blocks);
            let mut entries = entries.filter(|_| !frame.is_footer);
            while let Some(Some(entry)) = entries.as_mut().and_then(Entries::next_entry) {
                if matches!(entry.kind, EntryKind::Page | EntryKind::DeleteLayer) {
                    // Behind this, regions may have other pages, or none.
                    break 'frames;
                }
                if entry.kind.has_range() {
                    let layer = entry.context.layer().0;
                    for (region, _, _) in regions_of(u32::from(entry.start_block), u32::from(entry.blocks)) {
                        keys.insert(RegionKey { layer, chunk: entry.chunk, region });
                    }
                }
            }
            count += 1;
        }
        self.load_pages(reader, &keys);
        count.max(1)
    }

    fn load_pages(&mut self, reader: &mut BlockReader<'_>, keys: &BTreeSet<RegionKey>) {
        let blocks_max = self.geometry.blocks();
        let (mut wanted, mut reads) = (Vec::new(), Vec::new());
        for &key in keys {
            let Some(region) = self.index.region_mut(key) else { continue };
            if region.is_complete() {
                continue;
            }
            let page = region.page;
            wanted.push((key, page));
            reads.push(self.page_read(page));
        }
        reader.device.read_many(&mut reads);
        for ((key, page), read) in wanted.into_iter().zip(reads) {
            if read.result.is_ok() {
                let bytes = &read.buffer[page.offset_bytes()..page.offset_bytes() + page.length_bytes()];
                // One that is damaged stays absent.
                self.with_region(key, |region| region.decode_page(key, bytes, blocks_max).is_some());
            }
        }
    }

    /// Applies the next frame of the log, and those that were kept back until one like it came.
    fn replay_frame(
        &mut self,
        reader: &mut BlockReader<'_>,
        frame: &ReplayFrame,
        meta: &mut MetaFrames,
    ) -> Result<(), Stopped> {
        if meta.hold(frame) {
            return Ok(());
        }
        for frame in meta.release().iter().chain([frame]) {
            let number = frame.header.frame_number;
            let applied = self.apply_frame(reader, frame, meta);
            applied.map_err(|error| Stopped { error, frame: Some(number) })?;
        }
        Ok(())
    }

    fn apply_frame(
        &mut self,
        reader: &mut BlockReader<'_>,
        frame: &ReplayFrame,
        meta: &mut MetaFrames,
    ) -> Result<(), OpenError> {
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
            meta.note_page(&entry, header);
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

    /// Puts the streams behind the last frame that counts and collects what their open segments' footers need. Where that
    /// cannot be read and `is_cut` says so, the segment ends there without a footer, and cannot be cleaned.
    fn rebuild_streams(&mut self, reader: &mut BlockReader<'_>, is_cut: bool) -> Result<(), OpenError> {
        let mut promised = [None; 3];
        let mut open = [None; 3];
        for head in HEADS {
            let stream = self.log.stream(head);
            stream.position = stream.applied;
            if stream.position.next.is_none() {
                return Err(OpenError::Log("a stream without a next segment"));
            }
            match self.read_records(reader, head) {
                Ok(()) => {}
                Err(OpenError::Log(_) | OpenError::Io(_)) if is_cut => self.end_segment(head),
                Err(error) => return Err(error),
            }
            let position = self.log.stream(head).position;
            promised[head as usize] = position.next;
            open[head as usize] = position.segment;
        }
        self.segments.rebuild(&promised, &open);
        for head in HEADS {
            let blocks = self.frame_blocks_max_of(head) as usize + 1;
            let builder = self.log.builder(self.pool.take(blocks));
            self.log.stream(head).building = builder;
        }
        Ok(())
    }

    /// Collects the records of the frames of a stream's open segment.
    fn read_records(&mut self, reader: &mut BlockReader<'_>, head: Head) -> Result<(), OpenError> {
        let position = self.log.stream(head).position;
        let Some(segment) = position.segment else { return Ok(()) };
        let start = self.geometry.segment_start(segment);
        let (mut offset, mut frames, mut records) = (0, 0, Vec::new());
        let (mut window, mut window_offset) = (AlignedBuf::new(), 0);
        // Small frames are read together; of large ones the headers alone.
        let mut are_small = false;
        while offset < position.offset {
            let held = window_offset..window_offset + window.blocks() as u32;
            if !held.contains(&offset) {
                let blocks = if are_small { WINDOW_BLOCKS.min(position.offset - offset) } else { 1 };
                let location = start + u64::from(offset);
                window_offset = offset;
                let whole = reader.read(location, blocks, &mut window);
                if whole.is_err() && blocks > 1 {
                    // The header may be readable, though something behind it is not.
                    reader.read(location, 1, &mut window)?;
                } else {
                    whole?;
                }
            }
            let at = (offset - window_offset) as usize * BLOCK_BYTES;
            let block = &window[at..at + BLOCK_BYTES];
            let header = FrameHeader::peek(block, reader.drive, reader.shard)
                .filter(|header| header.header_blocks == 1 && header.is_intact(block));
            let Some(header) = header else {
                return Err(OpenError::Log("a frame of an open segment cannot be read"));
            };
            let end = HEADER_BYTES + header.entry_bytes as usize;
            footer::push_record(&mut records, &header, &block[HEADER_BYTES..end]);
            frames += 1;
            offset += header.blocks();
            are_small = header.blocks() <= SMALL_FRAME_BLOCKS;
        }
        if offset != position.offset {
            return Err(OpenError::Log("the frames of an open segment do not fit"));
        }
        let stream = self.log.stream(head);
        stream.footer = records;
        stream.footer_frames = frames;
        Ok(())
    }

    fn end_segment(&mut self, head: Head) {
        let stream = self.log.stream(head);
        let next = stream.position.next;
        let segment = stream.position.segment;
        stream.position = HeadPosition { segment: None, offset: 0, generation: 0, next };
        stream.applied = stream.position;
        segment.into_iter().for_each(|segment| self.segments.close(segment));
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
    let mut groups = loaded.groups;
    groups.was_cut = superblock.compatible & COMPATIBLE_CUT != 0;
    Shard {
        capacity_blocks: 0,
        segment_capacity_blocks: 0,
        cache: BlockCache::new(config.cache_bytes),
        kept_frames: Default::default(),
        read_cost: Default::default(),
        config,
        geometry,
        drive: drive.identity.drive,
        number: shard,
        superblock,
        incarnation: 0,
        segments: loaded.segments,
        index: loaded.index,
        sessions: loaded.sessions,
        groups,
        log,
        actions: VecDeque::new(),
        ios: slab::Slab::new(),
        read_done_ns: 0,
        write_done_ns: 0,
        log_moved_ns: 0,
        reads: slab::Slab::new(),
        changes: slab::Slab::new(),
        merges: Vec::new(),
        trims_under_way: VecDeque::new(),
        trims_applied: 0,
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
        progress_seen: [0; 5],
    }
}

#[cfg(test)]
mod tests;
