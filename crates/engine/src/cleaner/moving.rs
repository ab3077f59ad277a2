//! The blocks of a window go into the log.

use coquina_base::{BLOCK_BYTES, LayerId, SharedBlock, crc32c_block};

use super::reading::{Got, good_block};
use super::{BAD_ONCE_MAX, Item, MOVES_PER_TURN, MovingWindow, QUEUE_MAX};
use crate::cache::cache_key;
use crate::frame::{Context, EntryKind, Head, MOVE_BLOCK_BYTES, MOVE_BYTES, NewEntry};
use crate::shard::Shard;

impl Shard {
    pub(super) fn move_window(&mut self) {
        let Some(mut moving) = self.cleaner.moving.take() else { return };
        let mut budget = MOVES_PER_TURN;
        while moving.moved < moving.items.len() {
            if budget == 0 || self.log.stream(Head::Cold).queue.len() >= QUEUE_MAX {
                self.cleaner.moving = Some(moving);
                return;
            }
            if self.cleaner.credit < 1.0 {
                self.cleaner.waiting = true;
                self.cleaner.moving = Some(moving);
                return;
            }
            let moved = self.move_run(&moving, budget);
            moving.moved += moved;
            budget -= moved;
            self.cleaner.credit -= moved as f64;
        }
        for read in moving.reads {
            match read.got {
                Got::Read(buffer) => self.pool.give(buffer),
                Got::Kept(buffer) => self.kept_frames.give(buffer),
                Got::Cached(_) | Got::Nothing => {}
            }
        }
        self.stats.cleaner_bytes += (moving.items.len() * BLOCK_BYTES) as u64;
        if moving.last {
            self.cleaner.settling.push(moving.victim);
        }
    }

    /// Puts consecutive blocks of a chunk into the log as one entry; says how many.
    fn move_run(&mut self, moving: &MovingWindow, limit: usize) -> usize {
        let rest = &moving.items[moving.moved..];
        let first = rest[0];
        if self.is_deleting(first.layer) || self.index.chunk_mut(first.layer, first.chunk).is_none() {
            // Deleted since it was looked at: an entry would bring the layer back into the index.
            return 1;
        }
        let context = Context::new(LayerId(first.layer), 0);
        let data_blocks_max = self.frame_room(Head::Cold);
        let builder = &self.log.stream(Head::Cold).building;
        let room = builder.room_bytes(&context, None).saturating_sub(MOVE_BYTES) / MOVE_BLOCK_BYTES;
        let room = room.min(data_blocks_max.saturating_sub(builder.data_blocks) as usize);
        if room == 0 {
            self.rotate(Head::Cold);
            return 0;
        }
        let follows = |(index, item): &(usize, &Item)| {
            let at = (first.layer, first.chunk, u32::from(first.block) + *index as u32);
            item.place() == at && (*index == 0 || good_block(&moving.reads, item).is_some())
        };
        let mut count = rest.iter().take(room.min(limit)).enumerate().take_while(follows).count();
        let generation = self.segments.get(moving.victim).generation;
        let read = &moving.reads[first.read as usize];
        let mut is_bad = good_block(&moving.reads, &first).is_none();
        // It may have been read over because it lay among others, though it is in memory.
        let cached = is_bad.then(|| self.cached_block(&first, generation)).flatten();
        if cached.is_some() {
            (is_bad, count) = (false, 1);
        }
        let is_stand_in = is_bad
            && read.block(first.location).is_some_and(|block| block == &self.stand_in(first.checksum)[..]);
        if is_bad && read.was_in_memory() && !is_stand_in {
            // It changed in memory: it stays where it is, and is read when its segment is cleaned again.
            self.cache.remove(cache_key(first.location, generation));
            self.cleaner.left.push(moving.victim);
            return 1;
        }
        if is_bad && self.is_overwritten(first.place(), first.location) {
            return 1;
        }
        if is_bad {
            self.bad_block(first.layer, first.chunk, u32::from(first.block));
            if self.leaves_to_repair(first.place(), first.location, first.checksum) {
                self.cleaner.left.push(moving.victim);
                return 1;
            }
            if !is_stand_in && !self.was_bad_before(&first, generation) {
                return 1;
            }
            count = 1;
        }
        let items = &rest[..count];
        self.pin(first.layer, first.chunk, u32::from(first.block), count as u32);
        let builder = &mut self.log.stream(Head::Cold).building;
        let entry = NewEntry {
            context: builder.context(context),
            group: None,
            kind: EntryKind::Move,
            chunk: first.chunk,
            start_block: first.block,
            blocks: count as u16,
            data_offset: builder.data_blocks,
            sequence: 0,
            request: 0,
            continues: false,
            recovered: false,
        };
        let checksums = items.iter().map(|item| item.checksum);
        let sources = items.iter().map(|item| item.location);
        builder.add_move(&entry, checksums, sources, (moving.victim, generation));
        builder.data_blocks += count as u32;
        builder.only_metadata = false;
        for item in items {
            let read = &moving.reads[item.read as usize];
            let stand_in = is_bad.then(|| self.stand_in(item.checksum));
            let instead = stand_in.as_ref().map(|block| &block[..]).or(cached.as_deref());
            let block = instead.or_else(|| read.block(item.location));
            let Some(block) = block else { unreachable!("a good block without its bytes") };
            self.log.stream(Head::Cold).building.buffer.extend_from_bytes(block);
            if read.was_in_memory() || cached.is_some() {
                self.stats.cleaner_cached_bytes += BLOCK_BYTES as u64;
            }
        }
        count
    }

    /// Whether a bad block that nobody is asked for was bad before. If not, it stays where it is and is read once more: one bad
    /// read may have been the fault of memory, and what is given up for a good block frees the only place where it lies.
    fn was_bad_before(&mut self, item: &Item, generation: u64) -> bool {
        let is_given_up = self.is_given_up(item.place(), item.location, item.checksum);
        let bad_once = &mut self.cleaner.bad_once;
        if is_given_up || bad_once.remove(&item.location) == Some(generation) {
            return true;
        }
        // Of too many, the rest are tried again later, as segments that cannot be cleaned.
        if bad_once.len() < BAD_ONCE_MAX {
            bad_once.insert(item.location, generation);
            self.cleaner.left.push(self.geometry.segment_of(item.location));
        }
        false
    }

    /// A block of the victim from the block cache, if it is there and as it should be.
    fn cached_block(&mut self, item: &Item, generation: u64) -> Option<SharedBlock> {
        let block = self.cache.get(cache_key(item.location, generation));
        block.filter(|block| crc32c_block(block) == item.checksum)
    }
}
