//! Large writes whose payload was received into the buffers of their frames, so that it is not copied again.
//!
//! What cannot go that way, for instance on a full drive or behind a merge, is copied into the frame that is being
//! filled, as a write of [`Shard::submit`] is.

use coquina_base::{AlignedBuf, BLOCK_BYTES, Landing};

use crate::api::{Failure, Operation, Request};
use crate::frame::{CONTEXT_BYTES, ENTRY_BYTES, EntryKind, Head};
use crate::log::ChangeKey;
use crate::session::RequestState;
use crate::shard::Shard;
use crate::write::{FramePlace, Ready};

impl Shard {
    /// Buffers into which the payload of a write of whole blocks may be received, for [`Shard::submit_landed`] or
    /// [`Shard::recycle_landing`]. They are cut where segments will end, if nothing else is written before it has come.
    pub fn landing(&mut self, blocks: u32) -> Landing {
        let most = self.frame_blocks_max();
        let mut place = self.place_behind_queue(Head::Hot);
        let building = &self.log.stream(Head::Hot).building;
        if let (Some(place), false) = (&mut place, building.is_empty()) {
            place.pass(building.blocks(), building.entry_bytes());
        }
        let mut buffers = self.landings.pop().unwrap_or_default();
        let mut left = blocks;
        while left > 0 {
            let open = place.and_then(|place| Some((place, self.room_at(Head::Hot, place)?)));
            // Else in the next segment.
            let (mut frame, room) = open.unwrap_or((FramePlace::default(), most));
            let payload_blocks = left.min(room);
            let parts = payload_blocks.div_ceil(self.part_blocks_max()) as usize;
            let entry_bytes = 2 * CONTEXT_BYTES + parts * ENTRY_BYTES + payload_blocks as usize * 4;
            frame.pass(payload_blocks + 1, entry_bytes);
            place = Some(frame);
            let mut buffer = self.pool.take(payload_blocks as usize + 1);
            buffer.resize_blocks(payload_blocks as usize + 1);
            buffers.push(buffer);
            left -= payload_blocks;
        }
        Landing::new(buffers)
    }

    /// Takes buffers back that were not used.
    pub fn recycle_landing(&mut self, landing: Landing) {
        let mut buffers = landing.into_buffers();
        buffers.drain(..).for_each(|buffer| self.pool.give(buffer));
        self.landings.push(buffers);
    }

    /// Takes a write whose payload is in `landing`, all of it; the payload in the request is empty.
    ///
    /// Outcomes are those of [`Shard::submit`].
    pub fn submit_landed(&mut self, request: Request<'_>, landing: Landing) {
        let Operation::Write { checksums_le, .. } = request.operation else {
            self.recycle_landing(landing);
            return self.fail(request.token, Failure::Invalid);
        };
        let length = request.length_bytes as usize;
        if landing.left_bytes() > 0 || landing.length_bytes() != length {
            self.recycle_landing(landing);
            return self.fail(request.token, Failure::Invalid);
        }
        if !self.may_land(&request) {
            let payload: Vec<u8> = landing.pieces().collect::<Vec<_>>().concat();
            self.recycle_landing(landing);
            let operation = Operation::Write { payload: &payload, checksums_le };
            return self.submit(Request { operation, ..request });
        }
        let counted = checksums_le.is_empty() || checksums_le.len() == length / BLOCK_BYTES * 4;
        let checked =
            if counted { self.make_checksums(landing.pieces(), checksums_le) } else { Err(Failure::Invalid) };
        if let Err(failure) = checked {
            self.recycle_landing(landing);
            return self.fail(request.token, failure);
        }
        let change = self.new_change(request.token, (length / BLOCK_BYTES) as u32, request.origin);
        self.append_landed(&request, landing, change);
    }

    /// Whether nothing stands in the way of a write: no lack of space, no merge, no earlier try.
    fn may_land(&self, request: &Request<'_>) -> bool {
        let block = BLOCK_BYTES as u32;
        let end = u64::from(request.offset_bytes) + u64::from(request.length_bytes);
        let layer = request.layer.0;
        let origin = request.origin;
        let used = self.live_blocks + self.zero_blocks + self.reserved_blocks;
        request.length_bytes > 0
            && request.offset_bytes.is_multiple_of(block)
            && request.length_bytes.is_multiple_of(block)
            && end <= coquina_base::CHUNK_BYTES
            && self.poisoned.is_none()
            && !self.closing
            && !self.is_deleting(layer)
            && !self.layers_deleted.contains_key(&layer)
            && self.merges.is_empty()
            && used + u64::from(request.length_bytes / block) <= self.client_capacity(&origin)
            && origin.sequence == 0
            && !origin.recovered
            && self.refuses_change(&origin).is_none()
            && self.groups.has_no_waiters()
            && (origin.session == 0 || matches!(self.request_state(&origin), RequestState::New))
    }

    /// Makes a frame of each buffer. Its checksums lie in the scratch.
    fn append_landed(&mut self, request: &Request<'_>, landing: Landing, change: ChangeKey) {
        let start_block = request.offset_bytes / BLOCK_BYTES as u32;
        let mut ready = Ready::new(request, start_block, 0, EntryKind::Write, &[]);
        if !self.log.stream(Head::Hot).building.is_empty() {
            self.rotate(Head::Hot);
        }
        let mut buffers = landing.into_buffers();
        let end_block = (request.offset_bytes + request.length_bytes) / BLOCK_BYTES as u32;
        for buffer in buffers.drain(..) {
            ready.blocks = buffer.blocks() as u32 - 1;
            ready.is_last = ready.start_block + ready.blocks == end_block;
            let is_between = !self.log.stream(Head::Hot).building.is_empty();
            if !is_between && self.frame_room(Head::Hot) >= ready.blocks {
                self.queue_landed(&ready, buffer, change);
            } else {
                // The rest of a segment: the payload is cut where the segment ends.
                self.append(&Ready { payload: &buffer[BLOCK_BYTES..], ..ready }, change);
                self.pool.give(buffer);
            }
            self.scratch_checksums.drain(..ready.blocks as usize);
            ready.start_block += ready.blocks;
        }
        self.landings.push(buffers);
    }

    fn queue_landed(&mut self, ready: &Ready<'_>, buffer: AlignedBuf, change: ChangeKey) {
        let bytes = u64::from(ready.blocks) * BLOCK_BYTES as u64;
        self.stats.write_bytes += bytes;
        self.stats.landed_bytes += bytes;
        let mut builder = self.log.builder(buffer);
        // What was received is still there behind the header.
        builder.buffer.resize_blocks(ready.blocks as usize + 1);
        let part_blocks_max = if ready.origin.group == 0 { ready.blocks } else { self.part_blocks_max() };
        let mut done = 0;
        while done < ready.blocks {
            let blocks = part_blocks_max.min(ready.blocks - done);
            self.add_part(&mut builder, &ready.part(done, blocks), done as usize, change);
            done += blocks;
        }
        self.log.stream(Head::Hot).queue.push_back(builder);
    }
}
