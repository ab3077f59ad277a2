//! Reads: from the index to pieces, from memory or from the drive, each block compared with its checksum, here or by who asks.

use coquina_base::{AlignedBuf, BLOCK_BYTES, ZERO_BLOCK_CRC, crc32c_block};
use coquina_replication::BlockRange;

use crate::api::{
    Event, Failure, IoError, MapExtent, MapKind, Outcome, Piece, ReadData, Request, RequestToken,
};
use crate::cache::cache_key;
use crate::groups::WaitingRead;
use crate::index_region::{Map, RegionKey};
use crate::index_run::{REGION_BLOCKS, ZEROES};
use crate::repair::{Place, Waiter};
use crate::shard::{IoPurpose, PageWaiter, Shard};
use crate::write::regions_of;

/// Who asked for a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ReadTarget {
    Request(RequestToken),
    /// A merge, by its request, which is not answered while it reads; the block.
    Merge(RequestToken, u32),
    /// Whether a block is still bad.
    Check(Place),
}

/// A read under way.
pub struct ReadOperation {
    target: ReadTarget,
    group: u32,
    layer: u64,
    chunk: u32,
    offset_bytes: u32,
    length_bytes: u32,
    is_map: bool,
    /// Whoever asked compares what comes from memory with its checksums.
    is_unchecked: bool,
    /// Fails at bad blocks rather than wait for what other copies have.
    is_for_copy: bool,
    /// Reads each block by itself, and does not fail at those that no copy has any more.
    names_lost: bool,
    data: ReadData,
    /// Pieces on their way from the drive, and bad blocks on their way from other copies.
    pending: u32,
    failure: Option<Failure>,
    /// A bad block was overwritten or moved meanwhile, or may have been: all is read again.
    is_outdated: bool,
    /// Its regions stay in memory until it ends: what they say decides what a bad block means.
    holds_regions: bool,
    /// Answered already: the drive stalls.
    abandoned: bool,
}

impl ReadOperation {
    fn first_block(&self) -> u32 {
        self.offset_bytes / BLOCK_BYTES as u32
    }

    fn blocks(&self) -> u32 {
        (self.offset_bytes + self.length_bytes).div_ceil(BLOCK_BYTES as u32) - self.first_block()
    }

    /// Whether checksums come with the data.
    fn is_whole_blocks(&self) -> bool {
        (self.offset_bytes | self.length_bytes).is_multiple_of(BLOCK_BYTES as u32)
    }

    /// As it is asked again.
    fn to_waiting(&self, token: RequestToken) -> WaitingRead {
        WaitingRead {
            token,
            group: self.group,
            range: BlockRange {
                layer: coquina_base::LayerId(self.layer),
                chunk: self.chunk,
                first: self.first_block(),
                count: self.blocks(),
            },
            offset_bytes: self.offset_bytes,
            length_bytes: self.length_bytes,
            is_map: self.is_map,
            is_unchecked: self.is_unchecked,
            rounds: 0,
        }
    }
}

/// Reads that wait for nothing are cut where this many blocks are reached, so that buffers stay small.
const READ_BLOCKS_MAX: usize = 256;

impl Shard {
    pub(crate) fn submit_read(&mut self, request: &Request<'_>) {
        let read = WaitingRead::new(request);
        if !self.wait_for_commit(read.group, &read) {
            self.start_waiting_read(&read);
        } else if self.closing {
            self.end_waiters(read.group);
        }
    }

    /// Starts a read whose blocks may be seen.
    pub(crate) fn start_waiting_read(&mut self, read: &WaitingRead) {
        let operation = self.new_read(
            ReadTarget::Request(read.token),
            (read.range.layer.0, read.range.chunk),
            (read.offset_bytes, read.length_bytes),
        );
        let is_unchecked = read.is_unchecked && operation.is_whole_blocks();
        self.start_read(ReadOperation { is_map: read.is_map, is_unchecked, group: read.group, ..operation });
    }

    fn new_read(
        &mut self,
        target: ReadTarget,
        (layer, chunk): (u64, u32),
        (offset_bytes, length_bytes): (u32, u32),
    ) -> ReadOperation {
        ReadOperation {
            target,
            group: 0,
            layer,
            chunk,
            offset_bytes,
            length_bytes,
            is_map: false,
            is_unchecked: false,
            is_for_copy: false,
            names_lost: false,
            data: self.pool.take_data(),
            pending: 0,
            failure: None,
            is_outdated: false,
            holds_regions: false,
            abandoned: false,
        }
    }

    fn read_block(&mut self, target: ReadTarget, (layer, chunk, block): Place, is_for_copy: bool) {
        let bytes = BLOCK_BYTES as u32;
        let operation = self.new_read(target, (layer, chunk), (block * bytes, bytes));
        self.start_read(ReadOperation { is_for_copy, ..operation });
    }

    /// Reads a block, as it is applied, for a copy on which it is bad. Fails if it is bad here, too: two copies must not
    /// wait for each other.
    pub fn read_for_copy(
        &mut self,
        token: RequestToken,
        layer: coquina_base::LayerId,
        chunk: u32,
        block: u32,
    ) {
        if block >= coquina_base::CHUNK_BLOCKS {
            return self.fail(token, Failure::Invalid);
        }
        self.read_block(ReadTarget::Request(token), (layer.0, chunk, block), true);
    }

    pub(crate) fn start_recovery_read(&mut self, token: RequestToken, range: BlockRange) {
        let bytes = BLOCK_BYTES as u32;
        let place = (range.layer.0, range.chunk);
        let span = (range.first * bytes, range.count * bytes);
        let operation = self.new_read(ReadTarget::Request(token), place, span);
        self.start_read(ReadOperation { names_lost: true, ..operation });
    }

    pub(crate) fn read_bad_again(&mut self, place: Place) {
        self.read_block(ReadTarget::Check(place), place, false);
    }

    pub(crate) fn read_for_merge(&mut self, token: RequestToken, layer: u64, chunk: u32, block: u32) {
        self.read_block(ReadTarget::Merge(token, block), (layer, chunk, block), false);
    }

    fn start_read(&mut self, mut operation: ReadOperation) {
        if !operation.is_map {
            self.stats.reads += 1;
            self.stats.read_bytes += u64::from(operation.length_bytes);
        }
        let (layer, chunk) = (operation.layer, operation.chunk);
        let (first, blocks) = (operation.first_block(), operation.blocks());
        let exists = self.index.chunk_mut(layer, chunk).is_some();
        operation.holds_regions &= exists;
        let key = self.reads.insert(operation);
        if exists {
            // Kept in memory until the read knows where its blocks lie.
            self.pin_for_read(layer, chunk, first, blocks);
        }
        self.continue_read_pinned(key, exists);
    }

    fn pin_for_read(&mut self, layer: u64, chunk: u32, first: u32, blocks: u32) {
        for (region, _, _) in regions_of(first, blocks) {
            if let Some(region) = self.index.region_mut(RegionKey { layer, chunk, region }) {
                region.pins += 1;
                region.set_referenced(true);
            }
        }
    }

    /// A region that the read waited for is in memory. Meanwhile changes of its other regions may have been applied that are not
    /// committed: it waits for these like one that has just come.
    pub(crate) fn continue_read(&mut self, key: usize) {
        let operation = &self.reads[key];
        if let ReadTarget::Request(token) = operation.target
            && !operation.abandoned
        {
            let read = operation.to_waiting(token);
            if self.wait_again(&read) {
                self.unpin(read.range.layer.0, read.range.chunk, read.range.first, read.range.count);
                let operation = self.reads.remove(key);
                return self.pool.give_data(operation.data);
            }
        }
        self.continue_read_pinned(key, true);
    }

    /// Whether a read that was under way must wait until changes are committed; notes it then. If the reign of this copy ended meanwhile,
    /// or the shard is to close, it is ended instead.
    fn wait_again(&mut self, read: &WaitingRead) -> bool {
        let waits = self.wait_for_commit(read.group, read);
        if waits && (self.closing || !self.is_led_from_here(read.group)) {
            self.end_waiters(read.group);
        }
        waits
    }

    fn continue_read_pinned(&mut self, key: usize, pinned: bool) {
        let operation = &self.reads[key];
        let (layer, chunk) = (operation.layer, operation.chunk);
        let (first, blocks) = (operation.first_block(), operation.blocks());
        let is_map = operation.is_map;
        for (region, _, _) in regions_of(first, blocks) {
            let region_key = RegionKey { layer, chunk, region };
            let missing = self.index.region_mut(region_key).is_some_and(|region| match region.map {
                Map::Absent => true,
                _ => !is_map && !region.is_complete(),
            });
            if missing {
                return self.wait_for_page(region_key, PageWaiter::Read(key));
            }
        }
        let is_deleting =
            self.index.layer_position(layer).is_some_and(|position| self.index.layers()[position].deleting);
        if is_map {
            let extents = self.map_extents(layer, chunk, key, is_deleting);
            self.unpin_read(key, pinned);
            let operation = self.reads.remove(key);
            self.pool.give_data(operation.data);
            if let ReadTarget::Request(token) = operation.target {
                self.finish(token, Outcome::Map(extents));
            }
            return;
        }
        if is_deleting {
            self.unpin_read(key, pinned);
            self.reads[key].failure = Some(Failure::Invalid);
            return self.complete_read(key);
        }
        self.reads[key].pending = 1;
        self.gather(key);
        self.unpin_read(key, pinned);
        self.reads[key].pending -= 1;
        if self.reads[key].pending == 0 {
            self.complete_read(key);
        }
    }

    /// What a read had to know of its regions it knows.
    fn unpin_read(&mut self, key: usize, pinned: bool) {
        let operation = &self.reads[key];
        if pinned && !operation.holds_regions {
            self.unpin(operation.layer, operation.chunk, operation.first_block(), operation.blocks());
        }
    }

    fn map_extents(&mut self, layer: u64, chunk: u32, key: usize, hidden: bool) -> Vec<MapExtent> {
        let operation = &self.reads[key];
        let (offset, length) = (operation.offset_bytes, operation.length_bytes);
        let (first, blocks) = (operation.first_block(), operation.blocks());
        let mut extents: Vec<MapExtent> = Vec::new();
        let mut at = first as usize * BLOCK_BYTES;
        let mut push = |kind, count: usize| {
            let from = at.max(offset as usize);
            at += count * BLOCK_BYTES;
            let to = at.min((offset + length) as usize);
            let length_bytes = (to - from) as u32;
            match extents.last_mut() {
                Some(last) if last.kind == kind => last.length_bytes += length_bytes,
                _ => extents.push(MapExtent { length_bytes, kind }),
            }
        };
        for (region, first, count) in regions_of(first, blocks) {
            let region = self.index.region_mut(RegionKey { layer, chunk, region });
            let Some(region) = region.filter(|_| !hidden) else {
                push(MapKind::Hole, count);
                continue;
            };
            let mut block = first;
            while block < first + count {
                let (location, run) = region.extent(block, first + count);
                let kind = match location {
                    0 => MapKind::Hole,
                    ZEROES => MapKind::Zeroes,
                    _ => MapKind::Data,
                };
                push(kind, run);
                block += run;
            }
        }
        extents
    }

    /// Finds the pieces of a read and starts what must come from the drive.
    fn gather(&mut self, key: usize) {
        let operation = &self.reads[key];
        let (layer, chunk) = (operation.layer, operation.chunk);
        let (first, blocks) = (operation.first_block(), operation.blocks());
        for (region, start, count) in regions_of(first, blocks) {
            let region_key = RegionKey { layer, chunk, region };
            let mut block = start;
            while block < start + count {
                let operation = &mut self.reads[key];
                let region = self.index.region_mut(region_key);
                let (location, run) = match &region {
                    Some(region) => region.extent(block, start + count),
                    None => (0, start + count - block),
                };
                let run = run.min(if operation.names_lost { 1 } else { READ_BLOCKS_MAX });
                if location == 0 || location == ZEROES {
                    operation.data.checksums.extend(std::iter::repeat_n(ZERO_BLOCK_CRC, run));
                    match operation.data.pieces.last_mut() {
                        Some(Piece::Zeroes { length_bytes }) => *length_bytes += run * BLOCK_BYTES,
                        _ => operation.data.pieces.push(Piece::Zeroes { length_bytes: run * BLOCK_BYTES }),
                    }
                } else {
                    let first_of_piece = operation.data.checksums.len() as u32;
                    if let Some(checksums) = region.as_ref().and_then(|region| region.checksums.as_ref()) {
                        operation.data.checksums.extend_from_slice(&checksums[block..block + run]);
                    }
                    self.gather_data(key, location, run, first_of_piece);
                }
                block += run;
            }
        }
    }

    fn gather_data(&mut self, key: usize, location: u64, blocks: usize, first: u32) {
        let segment = self.geometry.segment_of(location);
        let generation = self.segments.get(segment).generation;
        let is_unchecked = self.reads[key].is_unchecked;
        let data = &mut self.reads[key].data;
        let piece = data.pieces.len();
        let cached = (0..blocks as u64).map_while(|index| {
            let block = self.cache.get(cache_key(location + index, generation))?;
            Some(Piece::Cached { block, start_bytes: 0, length_bytes: BLOCK_BYTES })
        });
        data.pieces.extend(cached);
        if data.pieces.len() == piece + blocks {
            // Memory is not to be trusted either: if it is not what it should be, from the drive, then.
            let checksums = &data.checksums[first as usize..];
            let mut checked = data.pieces[piece..].iter().zip(checksums);
            let is_good = checksums.len() == blocks
                && (is_unchecked
                    || checked.all(|(piece, checksum)| piece.bytes().map(crc32c_block) == Some(*checksum)));
            if is_good {
                self.stats.cache_hits += blocks as u64;
                return;
            }
        }
        data.pieces.truncate(piece);
        if !is_unchecked {
            // It may be read since one of these was found bad. What is right comes back from the drive.
            for index in 0..blocks as u64 {
                self.cache.remove(cache_key(location + index, generation));
            }
        }
        self.stats.cache_misses += blocks as u64;
        let operation = &mut self.reads[key];
        // Stands for the data on its way. Never zeros: a hole behind it must not join it.
        let length_bytes = blocks * BLOCK_BYTES;
        operation.data.pieces.push(Piece::Data { buffer: AlignedBuf::new(), start_bytes: 0, length_bytes });
        operation.pending += 1;
        self.segments.get_mut(segment).readers += 1;
        let purpose = IoPurpose::Read { operation: key, piece, location, first };
        self.issue_read(purpose, location, blocks);
    }

    pub(crate) fn read_piece_done(
        &mut self,
        key: usize,
        piece: usize,
        location: u64,
        first: u32,
        buffer: AlignedBuf,
        result: Result<(), IoError>,
    ) {
        let segment = self.geometry.segment_of(location);
        let generation = self.segments.get(segment).generation;
        let blocks = buffer.blocks();
        let mut bad = Vec::new();
        let operation = &self.reads[key];
        for (index, block) in buffer.chunks_exact(BLOCK_BYTES).enumerate() {
            let expected = operation.data.checksums.get(first as usize + index).copied();
            if result.is_err() || expected != Some(crc32c_block(block)) {
                bad.push(index as u32);
            }
        }
        if bad.is_empty() {
            for (index, block) in buffer.chunks_exact(BLOCK_BYTES).enumerate() {
                self.cache.insert(cache_key(location + index as u64, generation), block);
            }
        }
        let operation = &mut self.reads[key];
        operation.data.has_errors |= result.is_err();
        let length_bytes = blocks * BLOCK_BYTES;
        operation.data.pieces[piece] = Piece::Data { buffer, start_bytes: 0, length_bytes };
        if !bad.is_empty() {
            self.wait_for_good(key, piece, location, first, &bad);
        }
        self.segments.remove_reader(segment);
        self.end_wait(key, None);
    }

    /// Has a read wait for bad blocks, or fail if they cannot be asked for.
    fn wait_for_good(&mut self, key: usize, piece: usize, location: u64, first: u32, bad: &[u32]) {
        let operation = &self.reads[key];
        let (layer, chunk, base) = (operation.layer, operation.chunk, operation.first_block() + first);
        for &index in bad {
            let block = base + index;
            let place = (layer, chunk, block);
            let region = (block as usize / REGION_BLOCKS) as u8;
            let region = self.index.region_mut(RegionKey { layer, chunk, region });
            if region.is_some_and(|region| matches!(region.map, Map::Absent)) {
                // It was pushed out: whether the block was overwritten before that is known only when it is in memory again.
                self.reads[key].is_outdated = true;
                continue;
            }
            if self.is_overwritten(place, location + u64::from(index)) {
                // It was repaired or written while it was read: what is there now may be good.
                self.reads[key].is_outdated = true;
                continue;
            }
            self.bad_block(layer, chunk, block);
            let checksum = self.reads[key].data.checksums.get((first + index) as usize).copied();
            let operation = &mut self.reads[key];
            let waits = !operation.is_for_copy && !operation.abandoned;
            operation.pending += u32::from(waits);
            if waits && !std::mem::replace(&mut operation.holds_regions, true) {
                let (first, blocks) = (operation.first_block(), operation.blocks());
                self.pin_for_read(layer, chunk, first, blocks);
            }
            let waiter = waits.then_some(Waiter { read: key, piece, index: index as usize });
            let is_asked = self.note_bad(place, location + u64::from(index), checksum, waiter);
            if !waits || !is_asked {
                let operation = &mut self.reads[key];
                operation.pending -= u32::from(waits);
                operation.failure = Some(Failure::BadBlock);
            }
        }
    }

    /// Another copy has given a bad block.
    pub(crate) fn give_good(&mut self, waiter: Waiter, block: &[u8]) {
        let operation = &mut self.reads[waiter.read];
        if let Some(Piece::Data { buffer, .. }) = operation.data.pieces.get_mut(waiter.piece) {
            buffer[waiter.index * BLOCK_BYTES..][..BLOCK_BYTES].copy_from_slice(block);
        }
        self.end_wait(waiter.read, None);
    }

    /// No copy has a bad block that a read waits for; says whether the read goes on without it.
    pub(crate) fn goes_on_without(&mut self, waiter: Waiter) -> bool {
        let operation = &mut self.reads[waiter.read];
        if !operation.names_lost {
            return false;
        }
        let before = operation.data.pieces.iter().take(waiter.piece);
        let before_bytes: usize = before.map(Piece::length_bytes).sum();
        operation.data.bad.push((before_bytes / BLOCK_BYTES + waiter.index) as u32);
        true
    }

    /// A bad block was overwritten: the read sees what is there now.
    pub(crate) fn read_anew(&mut self, waiter: Waiter) {
        self.reads[waiter.read].is_outdated = true;
        self.end_wait(waiter.read, None);
    }

    /// Something that a read waited for is here, or will not come.
    pub(crate) fn end_wait(&mut self, key: usize, failure: Option<Failure>) {
        let operation = &mut self.reads[key];
        operation.failure = failure.or(operation.failure);
        operation.pending -= 1;
        if operation.pending == 0 {
            self.complete_read(key);
        }
    }

    fn restart_read(&mut self, operation: ReadOperation) {
        if let ReadTarget::Request(token) = operation.target
            && !operation.names_lost
            && !operation.is_for_copy
            && self.wait_again(&operation.to_waiting(token))
        {
            return;
        }
        let data = self.pool.take_data();
        // If a block is bad again, it is known what that means.
        self.start_read(ReadOperation { data, is_outdated: false, holds_regions: true, ..operation });
    }

    pub(crate) fn bad_block(&mut self, layer: u64, chunk: u32, block: u32) {
        self.stats.bad_blocks += 1;
        let region = (block as usize / REGION_BLOCKS) as u8;
        let region = self.index.region_mut(RegionKey { layer, chunk, region });
        let location = match region {
            Some(region) if !matches!(region.map, Map::Absent) => {
                region.location(block as usize % REGION_BLOCKS)
            }
            _ => 0,
        };
        let known = location != 0 && location != ZEROES;
        let offset_bytes = if known { self.geometry.offset_bytes(location) } else { 0 };
        self.event(Event::BadBlock { layer: coquina_base::LayerId(layer), chunk, block, offset_bytes });
    }

    pub(crate) fn fail_read(&mut self, key: usize, failure: Failure) {
        let operation = &mut self.reads[key];
        operation.failure = Some(failure);
        let (layer, chunk) = (operation.layer, operation.chunk);
        let (first, blocks) = (operation.first_block(), operation.blocks());
        if !operation.holds_regions {
            self.unpin(layer, chunk, first, blocks);
        }
        self.complete_read(key);
    }

    fn complete_read(&mut self, key: usize) {
        let mut operation = self.reads.remove(key);
        if operation.holds_regions {
            self.unpin(operation.layer, operation.chunk, operation.first_block(), operation.blocks());
        }
        let unaligned = operation.offset_bytes % BLOCK_BYTES as u32 != 0
            || operation.length_bytes % BLOCK_BYTES as u32 != 0;
        let mut data = std::mem::take(&mut operation.data);
        if operation.is_outdated && operation.failure.is_none() && !operation.abandoned {
            self.recycle(data);
            return self.restart_read(operation);
        }
        if unaligned && operation.failure.is_none() {
            cut(&mut data, operation.offset_bytes as usize % BLOCK_BYTES, operation.length_bytes as usize);
        }
        if operation.abandoned {
            return self.recycle(data);
        }
        let result = match operation.failure {
            Some(failure) => {
                self.recycle(data);
                Err(failure)
            }
            None => Ok(data),
        };
        match operation.target {
            ReadTarget::Request(token) => match result {
                Ok(data) => self.finish(token, Outcome::Read(data)),
                Err(failure) => self.fail(token, failure),
            },
            ReadTarget::Merge(token, block) => self.merge_read_done(token, block, result),
            ReadTarget::Check(place) => {
                if let Ok(data) = result {
                    self.recycle(data);
                }
                self.bad_was_read(place);
            }
        }
    }

    /// Answers a read whose drive stalls; what still comes is thrown away.
    pub(crate) fn abandon_read(&mut self, key: usize) {
        let Some(operation) = self.reads.get_mut(key) else { return };
        if operation.abandoned {
            return;
        }
        operation.abandoned = true;
        if let ReadTarget::Request(token) = operation.target {
            self.fail(token, Failure::Device);
        }
    }
}

/// Cuts whole blocks down to the range that was asked for.
fn cut(data: &mut ReadData, skip_bytes: usize, length_bytes: usize) {
    data.checksums.clear();
    let mut skip = skip_bytes;
    let mut left = length_bytes;
    for piece in &mut data.pieces {
        let length = match piece {
            Piece::Zeroes { length_bytes } => length_bytes,
            Piece::Data { start_bytes, length_bytes, .. }
            | Piece::Cached { start_bytes, length_bytes, .. } => {
                *start_bytes += skip;
                length_bytes
            }
        };
        *length = (*length - skip).min(left);
        left -= *length;
        skip = 0;
    }
    assert_eq!(left, 0, "pieces are shorter than the read");
}
