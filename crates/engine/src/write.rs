//! Changes: from a request to entries in the frame that is being filled.

use coquina_base::{BLOCK_BYTES, LayerId, crc32c_block};
use coquina_replication::BlockRange;

use crate::api::{Action, Appended, ChangeKind, Failure, Operation, Origin, Outcome, Request};
use crate::footer::{RECORD_BYTES, footer_blocks};
use crate::frame::{
    CONTEXT_BYTES, Context, ENTRY_BYTES, EntryGroup, EntryKind, HEADER_BYTES, Head, MOVE_BLOCK_BYTES,
    MOVE_BYTES, NewEntry,
};
use crate::index_region::RegionKey;
use crate::index_run::REGION_BLOCKS;
use crate::log::{Builder, ChangeKey};
use crate::session::RequestState;
use crate::shard::{BehindTrims, Change, IoPurpose, OwnedRequest, PageWaiter, Shard};

/// A frame with less data is not worth its header: the rest of the segment is left empty instead.
const FRAME_BLOCKS_MIN: u32 = 4;
/// Most blocks of one entry of a placement group. A frame of the smallest segment that drives for use have holds as many
/// ([`COPY_SEGMENT_BYTES_MIN`](crate::geometry::COPY_SEGMENT_BYTES_MIN)).
const PART_BLOCKS_MAX: u32 = 16;

/// A change of whole blocks, ready for the log.
pub struct Ready<'a> {
    pub(crate) layer: u64,
    pub(crate) chunk: u32,
    pub(crate) start_block: u32,
    pub(crate) blocks: u32,
    pub(crate) kind: EntryKind,
    pub(crate) origin: Origin,
    /// Nothing of the request comes behind this.
    pub(crate) is_last: bool,
    /// Whole blocks, or empty for metadata. Checksums lie in the shard's scratch.
    pub(crate) payload: &'a [u8],
}

impl<'a> Ready<'a> {
    /// A change of whole blocks as a request asks for it.
    pub(crate) fn new(
        request: &Request<'_>,
        start_block: u32,
        blocks: u32,
        kind: EntryKind,
        payload: &'a [u8],
    ) -> Ready<'a> {
        Ready {
            layer: request.layer.0,
            chunk: request.chunk,
            start_block,
            blocks,
            kind,
            origin: request.origin,
            is_last: !request.origin.continues,
            payload,
        }
    }

    /// The `blocks` behind the first `done` ones, for an entry of their own.
    pub(crate) fn part(&self, done: u32, blocks: u32) -> Ready<'a> {
        let end = done + blocks;
        let payload = match self.payload {
            [] => &[],
            payload => &payload[done as usize * BLOCK_BYTES..end as usize * BLOCK_BYTES],
        };
        let is_last = self.is_last && end == self.blocks;
        Ready { start_block: self.start_block + done, blocks, is_last, payload, ..*self }
    }
}

/// Regions that a block range of a chunk touches: (number, first block within, blocks).
pub fn regions_of(start_block: u32, blocks: u32) -> impl Iterator<Item = (u8, usize, usize)> {
    let end = (start_block + blocks) as usize;
    let mut at = start_block as usize;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let region = at / REGION_BLOCKS;
        let stop = end.min((region + 1) * REGION_BLOCKS);
        let item = (region as u8, at % REGION_BLOCKS, stop - at);
        at = stop;
        Some(item)
    })
}

/// A place within a segment, and what the frames before it add to its footer.
#[derive(Clone, Copy, Default)]
pub struct FramePlace {
    offset_blocks: u32,
    footer_bytes: usize,
}

impl FramePlace {
    /// Goes on behind a frame of so many blocks, its header included.
    pub(crate) fn pass(&mut self, frame_blocks: u32, entry_bytes: usize) {
        self.offset_blocks += frame_blocks;
        self.footer_bytes += RECORD_BYTES + entry_bytes;
    }
}

impl Shard {
    pub(crate) fn submit_change(&mut self, request: &Request<'_>) {
        if self.poisoned.is_some() || self.closing {
            return self.fail(request.token, Failure::ReadOnly);
        }
        let layer = request.layer.0;
        let is_deleting = self.is_deleting(layer) || self.layers_deleted.contains_key(&layer);
        if matches!(request.operation, Operation::DeleteLayer) {
            return self.submit_delete(request, is_deleting);
        }
        let origin = request.origin;
        let is_entry = origin.sequence != 0 || origin.recovered;
        if is_entry && (is_deleting || request.length_bytes == 0) {
            return self.take_without_effect(request);
        }
        if is_deleting {
            return self.fail(request.token, Failure::Invalid);
        }
        if let Err(failure) = self.take_checksums(request) {
            return self.fail(request.token, failure);
        }
        if let Some(failure) = self.refuses_change(&origin) {
            return self.fail(request.token, failure);
        }
        let block = BLOCK_BYTES as u32;
        let aligned = request.offset_bytes % block == 0 && request.length_bytes % block == 0;
        if is_entry {
            return if aligned {
                self.take_entry(request)
            } else {
                self.fail(request.token, Failure::Invalid)
            };
        }
        if origin.session != 0 {
            match self.request_state(&origin) {
                RequestState::New => {}
                RequestState::Applied => return self.finish(request.token, Outcome::Changed),
                RequestState::UnderWay => return self.repeats.push((origin, request.token)),
            }
        }
        if !self.merges.is_empty() && self.wait_for_merge(request) {
            return;
        }
        if self.wait_for_reads(origin.group, request) {
            return;
        }
        match request.operation {
            Operation::Trim => {
                let start = request.offset_bytes.div_ceil(block);
                let end = (request.offset_bytes + request.length_bytes) / block;
                if start >= end {
                    return self.finish(request.token, Outcome::Changed);
                }
                self.admit(request, start, end - start, EntryKind::Trim, &[]);
            }
            _ if !aligned => self.start_merge(request),
            Operation::WriteZeroes { no_hole } => {
                let kind = if no_hole { EntryKind::Zeroes } else { EntryKind::Trim };
                self.admit(request, request.offset_bytes / block, request.length_bytes / block, kind, &[]);
            }
            Operation::Write { payload, .. } => {
                let start = request.offset_bytes / block;
                self.admit(request, start, request.length_bytes / block, EntryKind::Write, payload);
            }
            _ => self.fail(request.token, Failure::Invalid),
        }
    }

    /// What is known of a request that comes from a client.
    pub(crate) fn request_state(&self, origin: &Origin) -> RequestState {
        match origin.group {
            0 => self.sessions.state(origin.session, origin.request),
            // What is under way, or not committed, is known to those who replicate, also of a session that newer ones have pushed out
            // of their table and not yet out of this one.
            _ if self.is_in_group(origin) => RequestState::Applied,
            _ => RequestState::New,
        }
    }

    /// Puts an entry into the log that the primary of its group has ordered: it is never refused, and never waits.
    fn take_entry(&mut self, request: &Request<'_>) {
        let block = BLOCK_BYTES as u32;
        let (start, blocks) = (request.offset_bytes / block, request.length_bytes / block);
        let (kind, payload) = match request.operation {
            Operation::Write { payload, .. } => (EntryKind::Write, payload),
            Operation::Trim | Operation::WriteZeroes { no_hole: false } => (EntryKind::Trim, &[][..]),
            Operation::WriteZeroes { no_hole: true } => (EntryKind::Zeroes, &[][..]),
            _ => return self.fail(request.token, Failure::Invalid),
        };
        if kind == EntryKind::Write && blocks > self.part_blocks_max() {
            return self.fail(request.token, Failure::Invalid);
        }
        let needed = if kind == EntryKind::Trim { 0 } else { blocks };
        if needed > 0 && !self.has_room_for_entry(request, start, blocks) {
            return self.fail(request.token, Failure::NoSpace);
        }
        let change = self.new_change(request.token, needed, request.origin);
        let ready = Ready::new(request, start, blocks, kind, payload);
        self.append(&ready, change);
    }

    /// Puts an entry into the log that another primary has ordered for a layer that is deleted here: a trim of no blocks.
    /// It counts as the entry that it was, here and on replay, and does not bring the layer back.
    pub(crate) fn take_without_effect(&mut self, request: &Request<'_>) {
        let origin = request.origin;
        if let Some(failure) = self.refuses_change(&origin) {
            return self.fail(request.token, failure);
        }
        let context = Context::new(request.layer, origin.session);
        let group = self.group_of(&origin);
        if self.log.stream(Head::Hot).building.room_bytes(&context, group.as_ref()) < ENTRY_BYTES {
            self.rotate(Head::Hot);
        }
        let change = self.new_change(request.token, 0, origin);
        self.append_part(&Ready::new(request, 0, 0, EntryKind::Trim, &[]), 0, change);
    }

    /// Checks or makes the checksums of a payload of whole blocks; they lie in the scratch then.
    fn take_checksums(&mut self, request: &Request<'_>) -> Result<(), Failure> {
        let Operation::Write { payload, checksums_le } = request.operation else { return Ok(()) };
        if payload.len() != request.length_bytes as usize {
            return Err(Failure::Invalid);
        }
        let block = BLOCK_BYTES as u32;
        let aligned = request.offset_bytes % block == 0 && request.length_bytes % block == 0;
        if !aligned {
            return if checksums_le.is_empty() { Ok(()) } else { Err(Failure::Invalid) };
        }
        if !checksums_le.is_empty() && checksums_le.len() != payload.len() / BLOCK_BYTES * 4 {
            return Err(Failure::Invalid);
        }
        let origin = &request.origin;
        if checksums_le.is_empty() || origin.sequence == 0 && !origin.recovered {
            return self.make_checksums([payload].into_iter(), checksums_le);
        }
        // Whoever took it from another copy has compared it, before anything was told of it.
        let told = checksums_le.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes));
        self.scratch_checksums.clear();
        self.scratch_checksums.extend(told);
        debug_assert!(
            payload.chunks_exact(BLOCK_BYTES).map(crc32c_block).eq(self.scratch_checksums.iter().copied()),
            "{origin:?} has not been compared with its checksums"
        );
        Ok(())
    }

    /// Makes the checksums of whole blocks in the scratch, and compares them with the client's, if it made any.
    pub(crate) fn make_checksums<'a>(
        &mut self,
        pieces: impl Iterator<Item = &'a [u8]>,
        checksums_le: &[u8],
    ) -> Result<(), Failure> {
        let blocks = pieces.flat_map(|piece| piece.chunks_exact(BLOCK_BYTES));
        self.scratch_checksums.clear();
        self.scratch_checksums.extend(blocks.map(crc32c_block));
        let told = checksums_le.chunks_exact(4);
        let right = told.zip(&self.scratch_checksums).all(|(told, made)| *told == made.to_le_bytes());
        if right { Ok(()) } else { Err(Failure::ChecksumOnArrival) }
    }

    /// Sets space aside for a change of whole blocks and puts it into the log, or says that there is none.
    pub(crate) fn admit(
        &mut self,
        request: &Request<'_>,
        start_block: u32,
        blocks: u32,
        kind: EntryKind,
        payload: &[u8],
    ) {
        let mut needed = if kind == EntryKind::Trim { 0 } else { blocks };
        let used = self.live_blocks + self.zero_blocks + self.reserved_blocks;
        let capacity = self.client_capacity(&request.origin);
        let range =
            BlockRange { layer: request.layer, chunk: request.chunk, first: start_block, count: blocks };
        if needed > 0 && used + u64::from(needed) <= capacity {
            needed = self.blocks_to_reserve(&range, capacity - used);
        } else if needed > 0 {
            // What only replaces is never refused. But what it replaces may be on its way out.
            if self.is_being_trimmed(&range) {
                return self.wait_for_trims(request, 0);
            }
            match self.count_unmapped(request.layer.0, request.chunk, start_block, blocks) {
                Ok(unmapped) => needed = unmapped,
                Err(key) => {
                    let Some(owned) = OwnedRequest::new(request) else {
                        return self.fail(request.token, Failure::Invalid);
                    };
                    return self.wait_with_change(key, owned);
                }
            }
            if needed > 0 && used + u64::from(needed) > capacity {
                if self.trims_may_make_room(&request.origin) {
                    return self.wait_for_trims(request, needed);
                }
                return self.fail(request.token, Failure::NoSpace);
            }
        }
        if let Some(failure) = self.refuses_change(&request.origin) {
            return self.fail(request.token, failure);
        }
        let change = self.new_change(request.token, needed, request.origin);
        let ready = Ready::new(request, start_block, blocks, kind, payload);
        self.append(&ready, change);
    }

    fn wait_for_trims(&mut self, request: &Request<'_>, needed_blocks: u32) {
        let until = self.trims_applied + self.trims_under_way.len() as u64;
        match OwnedRequest::new(request) {
            Some(mut request) => {
                // The next decision is another one: these trims are in the log before it, too.
                request.origin.after_trims = false;
                self.behind_trims.push(BehindTrims { request, needed_blocks, until });
            }
            None => self.fail(request.token, Failure::Invalid),
        }
    }

    pub(crate) fn new_change(
        &mut self,
        token: crate::api::RequestToken,
        reserved_blocks: u32,
        origin: crate::api::Origin,
    ) -> ChangeKey {
        self.reserved_blocks += u64::from(reserved_blocks);
        if origin.session != 0 && origin.group == 0 {
            self.sessions.accept(origin.session, origin.request);
        }
        let change = Change { token, parts_left: 0, blocks_left: 0, reserved_blocks, failure: None, origin };
        self.changes.insert(change) as ChangeKey
    }

    /// Puts a change into the frame that is being filled, in as many entries as it takes.
    pub(crate) fn append(&mut self, ready: &Ready<'_>, change: ChangeKey) {
        let bytes = u64::from(ready.blocks) * BLOCK_BYTES as u64;
        match ready.kind {
            EntryKind::Write => self.stats.write_bytes += bytes,
            _ => self.stats.trim_bytes += bytes,
        }
        let mut done = 0;
        while done < ready.blocks {
            let data_blocks_max = self.frame_room(Head::Hot);
            let fits = self.fits(ready, ready.blocks - done, data_blocks_max);
            if fits == 0 {
                self.rotate(Head::Hot);
                continue;
            }
            self.append_part(&ready.part(done, fits), done as usize, change);
            done += fits;
            if self.log.stream(Head::Hot).building.data_blocks >= data_blocks_max {
                self.rotate(Head::Hot);
            }
        }
    }

    /// Blocks of a change that the next entry takes; 0 if the frame that is being filled has no room for it.
    fn fits(&mut self, ready: &Ready<'_>, left: u32, data_blocks_max: u32) -> u32 {
        let context = Context::new(LayerId(ready.layer), ready.origin.session);
        let group = self.group_of(&ready.origin);
        let part_blocks_max = self.part_blocks_max();
        let builder = &self.log.stream(Head::Hot).building;
        let room = builder.room_bytes(&context, group.as_ref());
        if room < ENTRY_BYTES {
            return 0;
        }
        if ready.kind != EntryKind::Write {
            return left;
        }
        let by_entry = (room - ENTRY_BYTES) as u32 / 4;
        let by_data = data_blocks_max.saturating_sub(builder.data_blocks);
        if group.is_none() {
            return left.min(by_entry).min(by_data);
        }
        // An entry of a group is the same on all copies: it is not cut where one copy's frame or segment happens to end.
        let part = left.min(part_blocks_max);
        let is_short = data_blocks_max < part && builder.is_empty();
        if part <= by_entry && (part <= by_data || is_short) { part } else { 0 }
    }

    /// Most blocks of one entry of a placement group: few enough for a frame of any copy. Fewer only in the small segments of tests.
    pub(crate) fn part_blocks_max(&self) -> u32 {
        PART_BLOCKS_MAX.min(self.frame_blocks_max())
    }

    /// The group of an entry of this origin, if it has one.
    fn group_of(&mut self, origin: &Origin) -> Option<EntryGroup> {
        (origin.group != 0).then(|| {
            let group = self.groups.get_mut(origin.group);
            let is_new = origin.sequence == 0 && !origin.recovered;
            let epoch = if is_new { group.accepting } else { Some(origin.epoch) };
            let Some(epoch) = epoch else { panic!("group {} takes no new changes", origin.group) };
            group.entry_group(origin.group, epoch)
        })
    }

    /// Puts one entry into the frame that is being filled, which has room for it. Its checksums lie in the scratch,
    /// from `first_checksum` on.
    pub(crate) fn append_part(&mut self, part: &Ready<'_>, first_checksum: usize, change: ChangeKey) {
        let mut builder = std::mem::take(&mut self.log.stream(Head::Hot).building);
        self.add_part(&mut builder, part, first_checksum, change);
        self.log.stream(Head::Hot).building = builder;
        // Last: moving the builder waits for all that the processor has yet to store, and the frame's memory comes slowly.
        if part.kind == EntryKind::Write {
            self.log.stream(Head::Hot).building.buffer.extend_from_bytes(part.payload);
        }
    }

    /// Adds an entry to a frame, without its data.
    pub(crate) fn add_part(
        &mut self,
        builder: &mut Builder,
        part: &Ready<'_>,
        first_checksum: usize,
        change: ChangeKey,
    ) {
        self.pin(part.layer, part.chunk, part.start_block, part.blocks);
        let context = builder.context(Context::new(LayerId(part.layer), part.origin.session));
        let (mut group, mut sequence, mut told) = (None, 0, None);
        let data_offset = builder.data_blocks;
        if let Some(of) = self.group_of(&part.origin) {
            let is_recovered = part.origin.recovered;
            let one = self.groups.get_mut(of.group);
            one.logged += 1;
            sequence = if is_recovered { one.appended.0 + 1 } else { one.number(of.epoch) };
            group = Some(builder.group_context(&of));
            if part.origin.sequence == 0 && !is_recovered {
                told = Some(Origin { epoch: of.epoch, sequence, continues: !part.is_last, ..part.origin });
            }
        }
        let entry = NewEntry {
            context,
            group,
            kind: part.kind,
            chunk: part.chunk,
            start_block: part.start_block as u16,
            blocks: part.blocks as u16,
            data_offset,
            sequence,
            request: part.origin.request,
            continues: !part.is_last,
            recovered: part.origin.recovered,
        };
        if part.kind == EntryKind::Write {
            let checksums = &self.scratch_checksums[first_checksum..first_checksum + part.blocks as usize];
            builder.add(&entry, checksums.iter().copied());
            builder.data_blocks += part.blocks;
            builder.only_metadata = false;
        } else {
            builder.add(&entry, std::iter::empty());
        }
        if let Some(origin) = told {
            self.actions.push_back(Action::Appended(Appended {
                token: self.changes[change as usize].token,
                origin,
                layer: LayerId(part.layer),
                chunk: part.chunk,
                start_block: part.start_block,
                blocks: part.blocks,
                kind: match part.kind {
                    EntryKind::Write => ChangeKind::Write,
                    EntryKind::Zeroes => ChangeKind::Zeroes,
                    _ => ChangeKind::Trim,
                },
                data_block: data_offset,
                entry_end: builder.entries.len(),
                builder: builder.serial,
            }));
        }
        builder.changes.push(change);
        self.log.entries += 1;
        self.changes[change as usize].parts_left += 1;
        self.changes[change as usize].blocks_left += part.blocks;
        if part.kind == EntryKind::Trim {
            let (layer, first, count) = (LayerId(part.layer), part.start_block, part.blocks);
            self.trims_under_way.push_back(BlockRange { layer, chunk: part.chunk, first, count });
        }
    }

    /// Checksums (little-endian) and data of an entry that was just put into the log: the driver takes all actions before the
    /// next [`Shard::turn`], which seals its frame. Empty for an entry without data.
    pub fn appended(&self, appended: &Appended) -> (&[u8], &[u8]) {
        let blocks = if appended.kind == ChangeKind::Write { appended.blocks as usize } else { 0 };
        let stream = &self.log.streams[Head::Hot as usize];
        let builders = stream.queue.iter().chain([&stream.building]);
        let Some(builder) = builders.rev().find(|builder| builder.serial == appended.builder) else {
            panic!("the frame of {appended:?} was sealed before its data was asked for")
        };
        let start = (1 + appended.data_block as usize) * BLOCK_BYTES;
        let end = appended.entry_end;
        (&builder.entries[end - blocks * 4..end], &builder.buffer[start..start + blocks * BLOCK_BYTES])
    }

    /// Moves a full frame into the queue and starts an empty one.
    pub(crate) fn rotate(&mut self, head: Head) {
        let blocks = self.frame_blocks_max_of(head) as usize + 1;
        let builder = self.log.builder(self.pool.take(blocks));
        let stream = self.log.stream(head);
        let full = std::mem::replace(&mut stream.building, builder);
        assert!(!full.is_empty(), "an entry is larger than an empty frame");
        stream.queue.push_back(full);
    }

    /// Most blocks of data of a frame: also a small part of a small segment.
    pub(crate) fn frame_blocks_max(&self) -> u32 {
        (self.config.frame_bytes_max / BLOCK_BYTES as u32).clamp(1, (self.geometry.segment_blocks / 4).max(1))
    }

    /// The same for a stream: moved blocks go in larger frames, for nobody waits for them.
    pub(crate) fn frame_blocks_max_of(&self, head: Head) -> u32 {
        match head {
            Head::Cold => {
                // As many as one header block has entries for, and a few frames to a segment.
                let by_header =
                    (BLOCK_BYTES - HEADER_BYTES - 2 * CONTEXT_BYTES) / (MOVE_BYTES + MOVE_BLOCK_BYTES);
                (self.frame_blocks_max() * 3)
                    .min(by_header as u32)
                    .min((self.geometry.segment_blocks / 3).max(1))
            }
            Head::Hot | Head::Meta => self.frame_blocks_max(),
        }
    }

    /// Blocks of data that the frame being filled may have: a full frame, or what is left of the segment where that
    /// is less but worth a frame, so that segments are filled to their ends.
    pub(crate) fn frame_room(&mut self, head: Head) -> u32 {
        let room = self.place_behind_queue(head).and_then(|place| self.room_at(head, place));
        room.unwrap_or_else(|| self.frame_blocks_max_of(head))
    }

    /// Where the frame behind those that are full is expected to go; none if that is a new segment.
    pub(crate) fn place_behind_queue(&self, head: Head) -> Option<FramePlace> {
        let stream = &self.log.streams[head as usize];
        stream.position.segment?;
        let mut place =
            FramePlace { offset_blocks: stream.position.offset, footer_bytes: stream.footer.len() };
        stream.queue.iter().for_each(|builder| place.pass(builder.blocks(), builder.entry_bytes()));
        Some(place)
    }

    /// Blocks of data that a frame at a place of a segment may have; none if not enough is left for one.
    pub(crate) fn room_at(&self, head: Head, place: FramePlace) -> Option<u32> {
        let most = self.frame_blocks_max_of(head);
        let block_bytes = if head == Head::Cold { MOVE_BYTES + MOVE_BLOCK_BYTES } else { ENTRY_BYTES + 4 };
        let entry_bytes = CONTEXT_BYTES + most as usize * block_bytes;
        let footer = footer_blocks(place.footer_bytes + RECORD_BYTES + entry_bytes);
        let left = self.geometry.segment_blocks.saturating_sub(place.offset_blocks + footer + 1);
        (left >= FRAME_BLOCKS_MIN.min(most)).then_some(left.min(most))
    }

    /// Keeps the regions of a range in memory until the entry is applied, and reads those that are not there.
    pub(crate) fn pin(&mut self, layer: u64, chunk: u32, start_block: u32, blocks: u32) {
        let checkpoint = self.checkpoint.number_running();
        for (region, _, _) in regions_of(start_block, blocks) {
            let key = RegionKey { layer, chunk, region };
            let region = self.index.region_or_new(key, checkpoint);
            region.pins += 1;
            region.set_referenced(true);
            if !region.is_complete() && !region.is_loading() {
                self.load_page(key);
            }
        }
    }

    pub(crate) fn unpin(&mut self, layer: u64, chunk: u32, start_block: u32, blocks: u32) {
        let mut is_vacant = false;
        for (region, _, _) in regions_of(start_block, blocks) {
            let key = RegionKey { layer, chunk, region };
            let Some(region) = self.index.region_mut(key) else { panic!("{key:?} was dropped while pinned") };
            assert!(region.pins > 0, "{key:?} is not pinned");
            region.pins -= 1;
            is_vacant |= region.is_vacant();
        }
        self.index.look_again();
        // It may have been made for the pins alone, as for a trim of holes.
        if is_vacant {
            self.index.cool(layer, chunk);
        }
    }

    pub(crate) fn load_page(&mut self, key: RegionKey) {
        let Some(region) = self.index.region_mut(key) else { return };
        assert!(
            !region.page.is_none() && !region.is_dirty(),
            "{key:?} is not in memory and has no page: {region:?}"
        );
        region.set_loading(true);
        let page = region.page;
        self.stats.index_page_reads += 1;
        self.pages_loading += 1;
        let segment = self.geometry.segment_of(page.location());
        self.segments.get_mut(segment).readers += 1;
        self.issue_read(IoPurpose::Page(key), page.location(), page.blocks());
    }

    pub(crate) fn wait_for_page(&mut self, key: RegionKey, waiter: PageWaiter) {
        let checkpoint = self.checkpoint.number_running();
        let region = self.index.region_or_new(key, checkpoint);
        if !region.is_loading() {
            self.load_page(key);
        }
        self.page_waiters.entry(key).or_default().push(waiter);
    }

    /// Lets a change wait for a page. All its regions stay in memory from when they are read until it is tried again:
    /// otherwise one might be pushed out while the next is read, without end.
    fn wait_with_change(&mut self, key: RegionKey, request: OwnedRequest) {
        let (first, blocks) = request.blocks();
        self.pin(request.layer, request.chunk, first, blocks);
        self.wait_for_page(key, PageWaiter::Change(Box::new(request)));
    }

    /// A page that a change waited for is here.
    pub(crate) fn continue_change(&mut self, request: &OwnedRequest) {
        let (first, blocks) = request.blocks();
        self.submit_change(&request.borrow());
        // Only now: it may have to wait again, for another of its regions.
        self.unpin(request.layer, request.chunk, first, blocks);
    }

    fn submit_delete(&mut self, request: &Request<'_>, is_deleting: bool) {
        if is_deleting || self.index.layer_position(request.layer.0).is_none() {
            // Nothing of it is here yet, but a merge may be on its way.
            self.layers_deleted.insert(request.layer.0, ());
            return self.finish(request.token, Outcome::Changed);
        }
        let context = Context::new(request.layer, request.origin.session);
        if self.log.stream(Head::Hot).building.room_bytes(&context, None) < ENTRY_BYTES {
            self.rotate(Head::Hot);
        }
        let change = self.new_change(request.token, 0, request.origin);
        let builder = &mut self.log.stream(Head::Hot).building;
        let entry = NewEntry {
            context: builder.context(context),
            group: None,
            kind: EntryKind::DeleteLayer,
            chunk: 0,
            start_block: 0,
            blocks: 0,
            data_offset: 0,
            sequence: 0,
            request: request.origin.request,
            continues: false,
            recovered: false,
        };
        builder.add(&entry, std::iter::empty());
        builder.changes.push(change);
        self.changes[change as usize].parts_left += 1;
    }
}
