//! Applying: what is durable as a prefix of the log changes the index and is answered.

use coquina_base::{AlignedBuf, BLOCK_BYTES, CHUNK_BLOCKS};
use coquina_replication::BlockRange;

use crate::api::{Event, Failure, Outcome};
use crate::cache::cache_key;
use crate::frame::{Entries, Entry, EntryKind, FrameHeader, Head};
use crate::groups::range_of;
use crate::index::LOOKS;
use crate::index_region::{Map, Region, RegionKey};
use crate::index_run::{REGION_BLOCKS, ZEROES};
use crate::log::{CHANGE_NONE, ChangeKey, Flight, HeadPosition};
use crate::session::RequestState;
use crate::shard::{PageWaiter, Shard};
use crate::write::regions_of;

/// Blocks of a write, on average over a frame, up to which it counts as small.
const SMALL_WRITE_BLOCKS: u32 = 8;

impl Shard {
    pub(crate) fn frame_durable(&mut self, number: u64, buffer: AlignedBuf) {
        if self.poisoned.is_some() {
            return;
        }
        #[cfg(feature = "mutations")]
        if self.config.mutation == Some(crate::api::Mutation::AckBeforeSync)
            && self.log.flight_mut(number).is_none_or(|flight| flight.durable)
        {
            return;
        }
        let Some(flight) = self.log.flight_mut(number) else { panic!("frame {number} is not on its way") };
        flight.durable = true;
        flight.buffer = Some(buffer);
        self.apply_ready();
    }

    /// Applies the frames at the front that are durable and whose regions are in memory.
    pub(crate) fn apply_ready(&mut self) {
        while self.poisoned.is_none() && self.log.flights.front().is_some_and(|flight| flight.durable) {
            if self.pages_loading > 0 && !self.front_is_complete() {
                return;
            }
            let Some(flight) = self.log.flights.pop_front() else { return };
            self.apply_flight(flight);
        }
    }

    fn front_is_complete(&mut self) -> bool {
        let Some(flight) = self.log.flights.front_mut() else { return true };
        let header = flight.header;
        let Some(buffer) = flight.buffer.take() else { return true };
        let mut complete = true;
        if let Some(mut entries) = Entries::of_frame(&header, &buffer[..BLOCK_BYTES]) {
            while let Some(Some(entry)) = entries.next_entry() {
                if entry.kind.has_range() {
                    for (region, _, _) in regions_of(u32::from(entry.start_block), u32::from(entry.blocks)) {
                        let key = RegionKey { layer: entry.context.layer().0, chunk: entry.chunk, region };
                        complete &= self.index.region_mut(key).is_some_and(|region| region.is_complete());
                    }
                }
            }
        }
        if let Some(flight) = self.log.flights.front_mut() {
            flight.buffer = Some(buffer);
        }
        complete
    }

    fn apply_flight(&mut self, flight: Flight) {
        let header = flight.header;
        let Some(buffer) = flight.buffer else { panic!("a durable frame without its buffer") };
        assert_eq!(header.frame_number, self.log.applied + 1, "frames are applied in order");
        // Only now: frames that are durable before their predecessors prove nothing yet, and replay looks for proof
        // only so far.
        let stream = self.log.stream(header.head);
        stream.in_flight -= 1;
        stream.in_flight_blocks -= header.data_blocks;
        self.advance(&header, flight.is_footer);
        let mut has_trims = false;
        if !flight.is_footer {
            let Some(mut entries) = Entries::of_frame(&header, &buffer[..BLOCK_BYTES]) else {
                panic!("own frame {} cannot be read", header.frame_number);
            };
            self.look_at_blocks(&header, &buffer);
            let mut index = 0;
            while let Some(entry) = entries.next_entry() {
                let Some(entry) = entry else { panic!("own frame {} cannot be read", header.frame_number) };
                let start = usize::from(header.header_blocks) + entry.data_offset as usize;
                let body = match entry.kind {
                    EntryKind::Write | EntryKind::Record | EntryKind::Move => {
                        let end = start + usize::from(entry.blocks);
                        buffer.get(start * BLOCK_BYTES..end * BLOCK_BYTES).unwrap_or_default()
                    }
                    _ => &[],
                };
                if let Err(reason) = self.note_group(&entry, &header, body) {
                    panic!("own frame {}: {reason}", header.frame_number);
                }
                self.apply_entry(&entry, &header);
                if entry.kind == EntryKind::Move {
                    self.moved(&entry, &header, body);
                }
                let blocks = u32::from(entry.blocks);
                if entry.kind.has_range() {
                    self.unpin(entry.context.layer().0, entry.chunk, u32::from(entry.start_block), blocks);
                }
                if entry.kind == EntryKind::Trim {
                    let (layer, first) = (entry.context.layer(), u32::from(entry.start_block));
                    let range = BlockRange { layer, chunk: entry.chunk, first, count: blocks };
                    let trim = self.trims_under_way.pop_front();
                    assert_eq!(trim, Some(range), "trims are applied in the order of the log");
                    self.trims_applied += 1;
                    has_trims = true;
                }
                if let Some(change) = flight.changes.get(index).filter(|change| **change != CHANGE_NONE) {
                    let ignored = entry.kind.has_range() && self.is_deleting(entry.context.layer().0);
                    self.part_applied(*change, blocks, ignored);
                }
                index += 1;
            }
        }
        let buffer = self.keep_frame(&header, flight.is_footer, buffer);
        self.recycle_frame(buffer, flight.changes);
        self.frame_of_groups_applied();
        if !self.repeats.is_empty() {
            self.answer_repeats();
        }
        if has_trims && !self.behind_trims.is_empty() {
            self.resubmit_behind_trims();
        }
    }

    /// What the cleaner may need stays in memory; gives a buffer that serves in place of the frame's.
    fn keep_frame(&mut self, header: &FrameHeader, is_footer: bool, buffer: AlignedBuf) -> AlignedBuf {
        let segment = self.geometry.segment_of(header.location);
        let blocks = self.frame_blocks_max_of(Head::Cold) as usize + 1;
        let bytes_max = self.cache.bytes_left();
        if header.head == Head::Cold && !is_footer {
            return self.kept_frames.keep(segment, header.location, buffer, blocks, bytes_max);
        }
        if header.head == Head::Meta || !self.read_cost.is_dear() {
            return buffer;
        }
        if is_footer {
            let written = u64::from(self.segments.get(segment).written_blocks);
            let frames_end = self.geometry.segment_start(segment) + written;
            self.kept_frames.keep_footer(segment, frames_end, header.location, &buffer);
        } else if header.data_blocks <= SMALL_WRITE_BLOCKS * header.entries {
            // What large writes wrote is read back in large pieces, or is overwritten as a whole.
            self.kept_frames.keep_copy(segment, header.location, &buffer, blocks, bytes_max);
        }
        buffer
    }

    /// Tries those again that waited for trims which are applied now. Others may always be under way, as when a whole volume is
    /// trimmed: who need not wait for these does not.
    fn resubmit_behind_trims(&mut self) {
        let waiting = std::mem::take(&mut self.behind_trims);
        let mut used = self.live_blocks + self.zero_blocks + self.reserved_blocks;
        let mut ready = Vec::new();
        for mut waiting in waiting {
            let range = range_of(&waiting.request.borrow());
            let needed = if waiting.needed_blocks > 0 { waiting.needed_blocks } else { range.count };
            let with_it = used + u64::from(needed);
            // It fails at once, and keeps nothing from a group that is to begin anew.
            let is_refused = self.closing || self.refuses_change(&waiting.request.origin).is_some();
            if is_refused || self.trims_under_way.is_empty() {
                ready.push(waiting.request);
            } else if with_it <= self.client_capacity(&waiting.request.origin) {
                used = with_it;
                ready.push(waiting.request);
            } else if waiting.needed_blocks > 0 && self.trims_applied >= waiting.until {
                // There was no room when it came: it may replace, or is refused.
                waiting.request.origin.after_trims = true;
                ready.push(waiting.request);
            } else if waiting.needed_blocks == 0 && !self.is_being_trimmed(&range) {
                ready.push(waiting.request);
            } else {
                self.behind_trims.push(waiting);
            }
        }
        self.resubmit(ready);
    }

    /// Has the processor get what it needs to apply the blocks of a frame: so it waits for many blocks' memory at once, not for
    /// that of each in turn.
    fn look_at_blocks(&self, header: &FrameHeader, buffer: &AlignedBuf) {
        if header.head == Head::Meta {
            return;
        }
        let Some(mut entries) = Entries::of_frame(header, &buffer[..BLOCK_BYTES]) else { return };
        let generation = self.segments.get(self.geometry.segment_of(header.location)).generation;
        let data = header.location + u64::from(header.header_blocks);
        let (mut layer, mut places, mut count) = (0, [(0, 0); LOOKS], 0);
        while let Some(Some(entry)) = entries.next_entry() {
            if !matches!(entry.kind, EntryKind::Write | EntryKind::Move) {
                continue;
            }
            let location = data + u64::from(entry.data_offset);
            for index in 0..usize::from(entry.blocks) {
                if count == LOOKS || layer != entry.context.layer().0 {
                    self.index.look_at(layer, places[..count].iter().copied());
                    (layer, count) = (entry.context.layer().0, 0);
                }
                places[count] = (entry.chunk, entry.start_block + index as u16);
                count += 1;
                if entry.kind == EntryKind::Move {
                    let source = entry.source(index);
                    let old = self.segments.get(self.geometry.segment_of(source)).generation;
                    self.cache.look_for(cache_key(source, old));
                    self.cache.look_for(cache_key(location + index as u64, generation));
                }
            }
        }
        self.index.look_at(layer, places[..count].iter().copied());
    }

    fn recycle_frame(&mut self, buffer: AlignedBuf, mut changes: Vec<ChangeKey>) {
        self.pool.give(buffer);
        changes.clear();
        if let Some(builder) = self.log.spare.iter_mut().find(|builder| builder.changes.capacity() == 0) {
            builder.changes = changes;
        }
    }

    /// Moves the stream and its segment forward; the same in operation and on replay.
    pub(crate) fn advance(&mut self, header: &FrameHeader, is_footer: bool) {
        self.log.applied = header.frame_number;
        if header.head != Head::Meta {
            self.log.applied_data = header.frame_number;
        }
        self.log.applied_crc = header.header_crc;
        let segment = self.geometry.segment_of(header.location);
        let end = (header.location - self.geometry.segment_start(segment)) as u32 + header.blocks();
        let next = Some(header.next_segment);
        let entry = self.segments.get_mut(segment);
        entry.last_frame = header.frame_number;
        if is_footer {
            entry.footer = true;
            self.segments.close(segment);
        } else {
            entry.written_blocks = end;
        }
        self.log.stream(header.head).applied = match is_footer {
            true => HeadPosition { segment: None, offset: 0, generation: 0, next },
            false => HeadPosition {
                segment: Some(segment),
                offset: end,
                generation: header.segment_generation,
                next,
            },
        };
    }

    /// Changes the index; the same in operation and on replay.
    pub(crate) fn apply_entry(&mut self, entry: &Entry<'_>, header: &FrameHeader) {
        let data = header.location + u64::from(header.header_blocks) + u64::from(entry.data_offset);
        match entry.kind {
            EntryKind::Write => self.apply_range(entry, data, EntryKind::Write),
            EntryKind::Trim => self.apply_range(entry, 0, EntryKind::Trim),
            EntryKind::Zeroes => self.apply_range(entry, ZEROES, EntryKind::Zeroes),
            EntryKind::Move => self.apply_move(entry, data),
            EntryKind::DeleteLayer => self.apply_delete(entry.context.layer().0),
            EntryKind::Page => self.page_written(entry, header),
            EntryKind::Checkpoint => self.checkpoint_part_written(entry, header),
            EntryKind::Footer | EntryKind::Record | EntryKind::Fence => {}
        }
        // In operation the entry pins its regions: then this is done when the last pin goes.
        if self.replaying && entry.kind.has_range() {
            self.index.cool(entry.context.layer().0, entry.chunk);
        }
    }

    pub(crate) fn is_deleting(&self, layer: u64) -> bool {
        self.index.layer_position(layer).is_some_and(|position| self.index.layers()[position].deleting)
    }

    fn apply_range(&mut self, entry: &Entry<'_>, location: u64, kind: EntryKind) {
        let layer = entry.context.layer().0;
        if self.is_deleting(layer) {
            return;
        }
        let is_data = kind == EntryKind::Write;
        let mut done = 0;
        for (region, first, count) in regions_of(u32::from(entry.start_block), u32::from(entry.blocks)) {
            let key = RegionKey { layer, chunk: entry.chunk, region };
            let at = if is_data { location + done as u64 } else { location };
            // A trim of holes changes nothing. Were they dirty then, a large thin volume that is trimmed as a whole would fill
            // memory and checkpoints with regions that are not there.
            if kind == EntryKind::Trim && self.index.region_mut(key).is_none_or(|region| region.is_vacant()) {
                continue;
            }
            self.replace(key, first, count, at, |region| match kind {
                EntryKind::Write => {
                    (0..count)
                        .for_each(|index| region.set_checksum(first + index, entry.checksum(done + index)));
                }
                // A region that is not empty is complete only with checksums, needed or not.
                EntryKind::Zeroes => region.add_checksums(),
                _ => {}
            });
            if is_data {
                self.segments.add_live(self.geometry.segment_of(at), count as u32);
                self.live_blocks += count as u64;
            } else if kind == EntryKind::Zeroes {
                self.zero_blocks += count as u64;
            }
            done += count;
        }
    }

    fn apply_move(&mut self, entry: &Entry<'_>, data: u64) {
        let layer = entry.context.layer().0;
        if self.is_deleting(layer) {
            return;
        }
        for index in 0..usize::from(entry.blocks) {
            let block = usize::from(entry.start_block) + index;
            let region = (block / REGION_BLOCKS) as u8;
            let key = RegionKey { layer, chunk: entry.chunk, region };
            let source = entry.source(index);
            let still = self.index.region_mut(key).is_some_and(|region| {
                !matches!(region.map, Map::Absent) && region.location(block % REGION_BLOCKS) == source
            });
            #[cfg(feature = "mutations")]
            let still = still || self.config.mutation == Some(crate::api::Mutation::ApplyMoveTwice);
            if !still {
                continue;
            }
            let location = data + index as u64;
            let segment = self.geometry.segment_of(location);
            let old = cache_key(source, self.segments.get(self.geometry.segment_of(source)).generation);
            self.replace(key, block % REGION_BLOCKS, 1, location, |region| {
                region.set_checksum(block % REGION_BLOCKS, entry.checksum(index));
            });
            self.segments.add_live(segment, 1);
            self.live_blocks += 1;
            self.cache.rename(old, cache_key(location, self.segments.get(segment).generation));
        }
    }

    /// Changes a region and keeps count of its memory.
    pub(crate) fn with_region<R>(&mut self, key: RegionKey, change: impl FnOnce(&mut Region) -> R) -> R {
        let Some(region) = self.index.region_mut(key) else { panic!("{key:?} is not in the index") };
        let before = region.heap_bytes();
        let result = change(region);
        let after = region.heap_bytes();
        if before != after {
            self.index.account(before, after);
        }
        result
    }

    /// Replaces the location of a range, takes what was there from its segments, and does what else is to be done to the region.
    pub(crate) fn replace(
        &mut self,
        key: RegionKey,
        first: usize,
        count: usize,
        location: u64,
        then: impl FnOnce(&mut Region),
    ) {
        self.touch(key);
        let Some(region) = self.index.region_mut(key) else { panic!("{key:?} is not in the index") };
        let before = region.heap_bytes();
        let (segments, geometry) = (&mut self.segments, &self.geometry);
        let (mut live, mut zeroes) = (0, 0);
        region.replace(first, count, location, &mut |old, blocks| {
            if old == ZEROES {
                zeroes += blocks as u64;
            } else {
                // A run never leaves its segment: frames do not.
                segments.remove_live(geometry.segment_of(old), blocks as u32);
                live += blocks as u64;
            }
        });
        then(region);
        let after = region.heap_bytes();
        self.index.account(before, after);
        self.live_blocks -= live;
        self.zero_blocks -= zeroes;
    }

    /// Before a region changes: a running checkpoint gets it as it was; then it is dirty.
    fn touch(&mut self, key: RegionKey) {
        let era = self.segments.era as u8;
        if let Some(region) = self.index.region_mut(key)
            && region.is_dirty()
            && region.dirty_era == era
        {
            region.set_referenced(true);
            return;
        }
        let checkpoint = self.checkpoint.number_running();
        let region = self.index.region_or_new(key, checkpoint);
        region.set_referenced(true);
        if region.is_dirty() && self.checkpoint.is_collecting() {
            self.write_page(key);
        }
        let Some(region) = self.index.region_mut(key) else { return };
        region.set_dirty(true);
        region.dirty_era = era;
        self.dirty.push(key);
    }

    fn part_applied(&mut self, key: ChangeKey, blocks: u32, ignored: bool) {
        let Some(change) = self.changes.get_mut(key as usize) else {
            panic!("change {key} is not under way")
        };
        change.parts_left -= 1;
        // What another primary has ordered is done with that: the layer is deleted there, too, or soon will be.
        if ignored && change.origin.sequence == 0 && !change.origin.recovered {
            change.failure = Some(Failure::Invalid);
        }
        // What is applied is counted as needed from now on; what is left may be the part that needs the room.
        change.blocks_left -= blocks;
        let released = change.reserved_blocks.saturating_sub(change.blocks_left);
        change.reserved_blocks -= released;
        self.reserved_blocks -= u64::from(released);
        if self.changes[key as usize].parts_left == 0 {
            let change = self.changes.remove(key as usize);
            self.reserved_blocks -= u64::from(change.reserved_blocks);
            let origin = change.origin;
            if origin.session != 0 && origin.group == 0 {
                self.sessions.apply(origin.session, origin.request);
            }
            self.stats.writes += 1;
            self.finish(change.token, change.failure.map_or(Outcome::Changed, Outcome::Failed));
        }
    }

    fn answer_repeats(&mut self) {
        let mut index = 0;
        while index < self.repeats.len() {
            let (origin, token) = self.repeats[index];
            if self.sessions.state(origin.session, origin.request) == RequestState::Applied {
                self.repeats.swap_remove(index);
                self.finish(token, Outcome::Changed);
            } else {
                index += 1;
            }
        }
    }

    /// A page of the index has come from the drive.
    pub(crate) fn page_loaded(
        &mut self,
        key: RegionKey,
        buffer: AlignedBuf,
        result: Result<(), crate::IoError>,
    ) {
        self.pages_loading -= 1;
        let blocks_max = self.geometry.blocks();
        let (mut good, mut is_empty) = (false, false);
        let mut segment = None;
        if let Some(region) = self.index.region_mut(key) {
            let page = region.page;
            segment = Some(self.geometry.segment_of(page.location()));
            let before = region.heap_bytes();
            region.set_loading(false);
            region.set_referenced(true);
            let end = page.offset_bytes() + page.length_bytes();
            let bytes = buffer.get(page.offset_bytes()..end);
            good = result.is_ok()
                && bytes.is_some_and(|bytes| region.decode_page(key, bytes, blocks_max).is_some());
            let after = region.heap_bytes();
            is_empty = matches!(region.map, Map::Empty);
            self.index.account(before, after);
            self.index.look_again();
        }
        if good && is_empty {
            // The page says nothing that is not known without it. Changed so that the next checkpoint leaves it out.
            self.touch(key);
        }
        self.pool.give(buffer);
        if let Some(segment) = segment {
            self.segments.remove_reader(segment);
        }
        let waiters = self.page_waiters.remove(&key).unwrap_or_default();
        if !good {
            self.event(Event::Damage { offset_bytes: 0, reason: "a page of the index cannot be read" });
            // Before anybody is answered: groups halt, and send their clients to copies that have what could not be looked up here.
            self.poison(5);
            for waiter in waiters {
                match waiter {
                    PageWaiter::Read(operation) => self.fail_read(operation, Failure::BadBlock),
                    PageWaiter::Change(request) => self.fail(request.token, Failure::ReadOnly),
                }
            }
            return;
        }
        for waiter in waiters {
            match waiter {
                PageWaiter::Read(operation) => self.continue_read(operation),
                PageWaiter::Change(request) => self.continue_change(&request),
            }
        }
        self.cleaner_page_loaded();
        self.apply_ready();
    }

    fn apply_delete(&mut self, layer: u64) {
        if self.index.layer_position(layer).is_some() && !self.is_deleting(layer) {
            self.index.layer_mut(layer).deleting = true;
            self.scrub_leave(layer);
            self.layers_deleting.push((layer, 0));
        }
    }

    /// Frees a little of the layers that are being deleted. Waits while a checkpoint collects pages, so that the
    /// checkpoint sees each layer as it was. A stop does not wait for it: the next start goes on.
    pub(crate) fn delete_step(&mut self) {
        let mut budget = 8;
        let mut layers_waiting = 0;
        while budget > 0 && self.makes_room() && !self.checkpoint.is_noting() {
            let Some(&(layer, from)) = self.layers_deleting.first() else { return };
            if let Some(chunk) = self.index.next_chunk(layer, from) {
                let deleted = self.chunks_deleted;
                if !self.delete_chunk(layer, chunk) {
                    return;
                }
                // Pinned chunks are few and passed over at once: nothing would call for the turn that goes on behind them.
                budget -= self.chunks_deleted - deleted;
                if let Some(next) = chunk.checked_add(1) {
                    self.layers_deleting[0].1 = next;
                    continue;
                }
                // It was the last one that a layer can have.
            }
            if self.index.next_chunk(layer, 0).is_none() {
                self.index.remove_layer(layer);
                self.layers_deleted.insert(layer, ());
                self.layers_deleting.remove(0);
            } else {
                // Something is pinned by changes, which may wait for the room that the next layer gives: on to
                // that one, and from the start again at the next turn.
                self.layers_deleting[0].1 = 0;
                self.layers_deleting.rotate_left(1);
                layers_waiting += 1;
                if layers_waiting >= self.layers_deleting.len() {
                    return;
                }
            }
        }
    }

    /// Frees a chunk; says whether nothing had to be waited for.
    fn delete_chunk(&mut self, layer: u64, chunk: u32) -> bool {
        let Some(regions) = self.index.chunk_mut(layer, chunk) else { return true };
        let writing = regions.iter().any(|region| region.writing > 0);
        let loading = regions.iter().any(|region| region.is_loading());
        let absent = regions.iter().any(|region| !region.is_complete());
        if self.chunk_deleting == Some((layer, chunk)) {
            if loading {
                return false;
            }
            self.chunk_deleting = None;
            self.unpin(layer, chunk, 0, CHUNK_BLOCKS);
        }
        let Some(regions) = self.index.chunk_mut(layer, chunk) else { return true };
        // Entries that have not been applied pin their regions. They are ignored when their time comes, and must not
        // keep the space until then: it may be what their frames wait for.
        let is_emptied =
            |region: &Region| matches!(region.map, Map::Empty) && region.page.is_none() && !region.is_dirty();
        let is_waiting = regions.iter().all(is_emptied) && regions.iter().any(|region| region.pins > 0);
        if writing || loading || is_waiting {
            return true;
        }
        if absent {
            // One chunk at a time, and it stays in memory: its first page must not be pushed out for its last.
            self.chunk_deleting = Some((layer, chunk));
            self.pin(layer, chunk, 0, CHUNK_BLOCKS);
            return false;
        }
        for region in 0..4 {
            let key = RegionKey { layer, chunk, region };
            let geometry = self.geometry;
            let (index, segments) = (&mut self.index, &mut self.segments);
            if let Some(region) = index.region_mut(key) {
                region.for_each(|_, location, _| {
                    if location != ZEROES {
                        segments.note_deleted(geometry.segment_of(location));
                    }
                });
            }
            self.replace(key, 0, REGION_BLOCKS, 0, |_| {});
            self.forget_page(key);
            self.with_region(key, |region| {
                region.map = Map::Empty;
                region.checksums = None;
                region.set_dirty(false);
            });
        }
        self.index.drop_chunk_if_empty(layer, chunk);
        self.chunks_deleted += 1;
        true
    }
}

#[cfg(test)]
mod tests;
