//! Changes: from a request to entries in the frame that is being filled.

use coquina_base::{BLOCK_BYTES, crc32c_block};

use crate::api::{Failure, Operation, Outcome, Request};
use crate::footer::{RECORD_BYTES, footer_blocks};
use crate::frame::{
    CONTEXT_BYTES, Context, ENTRY_BYTES, EntryKind, HEADER_BYTES, Head, MOVE_BLOCK_BYTES, MOVE_BYTES,
    NewEntry,
};
use crate::index_region::{Map, RegionKey};
use crate::index_run::REGION_BLOCKS;
use crate::log::ChangeKey;
use crate::session::RequestState;
use crate::shard::{Change, IoPurpose, OwnedRequest, PageWaiter, Shard};

/// A frame with less data is not worth its header: the rest of the segment is left empty instead.
const FRAME_BLOCKS_MIN: u32 = 4;

/// A change of whole blocks, ready for the log.
pub struct Ready<'a> {
    pub(crate) layer: u64,
    pub(crate) chunk: u32,
    pub(crate) start_block: u32,
    pub(crate) blocks: u32,
    pub(crate) kind: EntryKind,
    pub(crate) epoch: u64,
    pub(crate) sequence: u64,
    pub(crate) session: u64,
    pub(crate) request: u64,
    /// Nothing of the request comes behind this.
    pub(crate) is_last: bool,
    /// Whole blocks, or empty for metadata. Checksums lie in the shard's scratch.
    pub(crate) payload: &'a [u8],
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
        if is_deleting {
            return self.fail(request.token, Failure::Invalid);
        }
        if let Err(failure) = self.take_checksums(request) {
            return self.fail(request.token, failure);
        }
        let origin = request.origin;
        if origin.session != 0 {
            match self.sessions.state(origin.session, origin.request) {
                RequestState::New => {}
                RequestState::Applied => return self.finish(request.token, Outcome::Changed),
                RequestState::UnderWay => {
                    return self.repeats.push((origin.session, origin.request, request.token));
                }
            }
        }
        if !self.merges.is_empty() && self.wait_for_merge(request) {
            return;
        }
        let block = BLOCK_BYTES as u32;
        let aligned = request.offset_bytes % block == 0 && request.length_bytes % block == 0;
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
        self.make_checksums([payload].into_iter(), checksums_le)
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
        if needed > 0 && used + u64::from(needed) > self.capacity() {
            // What only replaces is never refused. But what it replaces may be on its way out.
            if self.trims_under_way > 0 {
                let Some(owned) = OwnedRequest::new(request) else {
                    return self.fail(request.token, Failure::Invalid);
                };
                return self.behind_trims.push(owned);
            }
            match self.count_unmapped(request.layer.0, request.chunk, start_block, blocks) {
                Ok(unmapped) => needed = unmapped,
                Err(key) => {
                    let Some(owned) = OwnedRequest::new(request) else {
                        return self.fail(request.token, Failure::Invalid);
                    };
                    return self.wait_for_page(key, PageWaiter::Change(Box::new(owned)));
                }
            }
            if needed > 0 && used + u64::from(needed) > self.capacity() {
                return self.fail(request.token, Failure::NoSpace);
            }
        }
        let change = self.new_change(request.token, needed, request.origin);
        let ready = Ready {
            layer: request.layer.0,
            chunk: request.chunk,
            start_block,
            blocks,
            kind,
            epoch: request.origin.epoch,
            sequence: request.origin.sequence,
            session: request.origin.session,
            request: request.origin.request,
            is_last: true,
            payload,
        };
        self.append(&ready, change);
    }

    pub(crate) fn new_change(
        &mut self,
        token: crate::api::RequestToken,
        reserved_blocks: u32,
        origin: crate::api::Origin,
    ) -> ChangeKey {
        self.reserved_blocks += u64::from(reserved_blocks);
        if origin.session != 0 {
            self.sessions.accept(origin.session, origin.request);
        }
        let change = Change {
            token,
            parts_left: 0,
            blocks_left: 0,
            reserved_blocks,
            failure: None,
            session: origin.session,
            request: origin.request,
        };
        self.changes.insert(change) as ChangeKey
    }

    /// Blocks of a range that hold nothing, or the first region that must be read to know.
    pub(crate) fn count_unmapped(
        &mut self,
        layer: u64,
        chunk: u32,
        start_block: u32,
        blocks: u32,
    ) -> Result<u32, RegionKey> {
        let mut unmapped = 0;
        for (region, first, count) in regions_of(start_block, blocks) {
            let key = RegionKey { layer, chunk, region };
            match self.index.region_mut(key) {
                None => unmapped += count as u32,
                Some(region) if matches!(region.map, Map::Absent) => return Err(key),
                Some(region) => {
                    unmapped +=
                        (first..first + count).filter(|block| region.location(*block) == 0).count() as u32;
                }
            }
        }
        Ok(unmapped)
    }

    /// Puts a change into the frame that is being filled, in as many entries as it takes.
    pub(crate) fn append(&mut self, ready: &Ready<'_>, change: ChangeKey) {
        let context = Context::new(coquina_base::LayerId(ready.layer), ready.epoch, ready.session);
        let bytes = u64::from(ready.blocks) * BLOCK_BYTES as u64;
        match ready.kind {
            EntryKind::Write => self.stats.write_bytes += bytes,
            _ => self.stats.trim_bytes += bytes,
        }
        let has_data = ready.kind == EntryKind::Write;
        let mut done = 0;
        while done < ready.blocks {
            let data_blocks_max = self.frame_room(Head::Hot);
            let builder = &self.log.stream(Head::Hot).building;
            let room = builder.room_bytes(&context);
            let left = ready.blocks - done;
            let fits = if has_data {
                let by_entry = room.saturating_sub(ENTRY_BYTES) as u32 / 4;
                left.min(by_entry).min(data_blocks_max.saturating_sub(builder.data_blocks))
            } else if room >= ENTRY_BYTES {
                left
            } else {
                0
            };
            if fits == 0 {
                self.rotate(Head::Hot);
                continue;
            }
            let start_block = ready.start_block + done;
            self.pin(ready.layer, ready.chunk, start_block, fits);
            let builder = &mut self.log.stream(Head::Hot).building;
            let entry = NewEntry {
                context: builder.context(context),
                kind: ready.kind,
                chunk: ready.chunk,
                start_block: start_block as u16,
                blocks: fits as u16,
                data_offset: builder.data_blocks,
                sequence: ready.sequence,
                request: ready.request,
                continues: !ready.is_last || done + fits < ready.blocks,
            };
            if has_data {
                let (from, to) = (done as usize, (done + fits) as usize);
                builder.add(&entry, self.scratch_checksums[from..to].iter().copied(), std::iter::empty());
                builder.buffer.extend_from_bytes(&ready.payload[from * BLOCK_BYTES..to * BLOCK_BYTES]);
                builder.data_blocks += fits;
                builder.only_metadata = false;
            } else {
                builder.add(&entry, std::iter::empty(), std::iter::empty());
            }
            builder.changes.push(change);
            let is_full = builder.data_blocks == data_blocks_max;
            self.changes[change as usize].parts_left += 1;
            self.changes[change as usize].blocks_left += fits;
            self.trims_under_way += u64::from(ready.kind == EntryKind::Trim);
            done += fits;
            if is_full {
                self.rotate(Head::Hot);
            }
        }
    }

    /// Moves a full frame into the queue and starts an empty one.
    pub(crate) fn rotate(&mut self, head: Head) {
        let mut builder = self.log.spare.pop().unwrap_or_default();
        let blocks = self.frame_blocks_max_of(head) as usize + 1;
        builder.reset(self.pool.take(blocks));
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
        let most = self.frame_blocks_max_of(head);
        let segment_blocks = self.geometry.segment_blocks;
        let stream = self.log.stream(head);
        if stream.position.segment.is_none() {
            return most;
        }
        let queued: u32 = stream.queue.iter().map(crate::log::Builder::blocks).sum();
        let queued_bytes: usize =
            stream.queue.iter().map(|builder| RECORD_BYTES + builder.entry_bytes()).sum();
        let block_bytes = if head == Head::Cold { MOVE_BYTES + MOVE_BLOCK_BYTES } else { ENTRY_BYTES + 4 };
        let entry_bytes = CONTEXT_BYTES + most as usize * block_bytes;
        let footer = footer_blocks(stream.footer.len() + queued_bytes + RECORD_BYTES + entry_bytes);
        let left = segment_blocks.saturating_sub(stream.position.offset + queued + footer + 1);
        if (FRAME_BLOCKS_MIN..most).contains(&left) { left } else { most }
    }

    /// Keeps the regions of a range in memory until the entry is applied, and reads those that are not there.
    pub(crate) fn pin(&mut self, layer: u64, chunk: u32, start_block: u32, blocks: u32) {
        let checkpoint = self.checkpoint.number_running();
        for (region, _, _) in regions_of(start_block, blocks) {
            let key = RegionKey { layer, chunk, region };
            let region = self.index.region_or_new(key, checkpoint);
            region.pins += 1;
            region.referenced = true;
            if !region.is_complete() && !region.loading {
                self.load_page(key);
            }
        }
    }

    pub(crate) fn unpin(&mut self, layer: u64, chunk: u32, start_block: u32, blocks: u32) {
        for (region, _, _) in regions_of(start_block, blocks) {
            let key = RegionKey { layer, chunk, region };
            let Some(region) = self.index.region_mut(key) else { panic!("{key:?} was dropped while pinned") };
            region.pins -= 1;
        }
    }

    pub(crate) fn load_page(&mut self, key: RegionKey) {
        let Some(region) = self.index.region_mut(key) else { return };
        assert!(
            !region.page.is_none() && !region.dirty,
            "{key:?} is not in memory and has no page: {region:?}"
        );
        region.loading = true;
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
        if !region.loading {
            self.load_page(key);
        }
        self.page_waiters.entry(key).or_default().push(waiter);
    }

    fn submit_delete(&mut self, request: &Request<'_>, is_deleting: bool) {
        if is_deleting || self.index.layer_position(request.layer.0).is_none() {
            // Nothing of it is here yet, but a merge may be on its way.
            self.layers_deleted.insert(request.layer.0, ());
            return self.finish(request.token, Outcome::Changed);
        }
        let context = Context::new(request.layer, request.origin.epoch, request.origin.session);
        if self.log.stream(Head::Hot).building.room_bytes(&context) < ENTRY_BYTES {
            self.rotate(Head::Hot);
        }
        let change = self.new_change(request.token, 0, request.origin);
        let builder = &mut self.log.stream(Head::Hot).building;
        let entry = NewEntry {
            context: builder.context(context),
            kind: EntryKind::DeleteLayer,
            chunk: 0,
            start_block: 0,
            blocks: 0,
            data_offset: 0,
            sequence: request.origin.sequence,
            request: request.origin.request,
            continues: false,
        };
        builder.add(&entry, std::iter::empty(), std::iter::empty());
        builder.changes.push(change);
        self.changes[change as usize].parts_left += 1;
    }
}
