//! The blocks of a window come from frames that stayed in memory, from the block cache, or from the drive.

use coquina_base::{AlignedBuf, BLOCK_BYTES, SharedBlock, crc32c_block};

use super::{GAP_BLOCKS, Item, MovingWindow, Phase, READ_BLOCKS, READS_CALM, READS_MAX};
use crate::cache::{CacheSlot, cache_key};
use crate::shard::{IoPurpose, Shard};

/// A block of the window that is needed.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    location: u64,
    item: u32,
    cached: Option<CacheSlot>,
}

/// Blocks that come with one read or with a frame that was in memory, or one that was in the block cache.
#[derive(Default)]
pub(super) struct WindowRead {
    pub(super) location: u64,
    pub(super) blocks: u64,
    pub(super) got: Got,
    pub(super) failed: bool,
    pub(super) issued: bool,
}

/// What has come of a read so far.
#[derive(Default)]
pub(super) enum Got {
    #[default]
    Nothing,
    Read(AlignedBuf),
    /// A share of the cache's block.
    Cached(SharedBlock),
    /// A frame that stayed in memory.
    Kept(AlignedBuf),
}

impl WindowRead {
    pub(super) fn was_in_memory(&self) -> bool {
        matches!(self.got, Got::Cached(_) | Got::Kept(_))
    }

    /// The block at a location that it covers.
    pub(super) fn block(&self, location: u64) -> Option<&[u8]> {
        let at = (location - self.location) as usize * BLOCK_BYTES;
        match &self.got {
            Got::Nothing => None,
            Got::Read(buffer) | Got::Kept(buffer) => buffer.get(at..at + BLOCK_BYTES),
            Got::Cached(block) => Some(block),
        }
    }
}

impl Shard {
    /// Takes what is in memory, and plans reads of the rest.
    pub(super) fn plan_reads(&mut self) {
        let generation = self.segments.get(self.cleaner.victim).generation;
        let mut wanted = std::mem::take(&mut self.cleaner.wanted);
        wanted.clear();
        let items = self.cleaner.window.iter().zip(0..);
        wanted.extend(items.map(|(item, index)| Wanted {
            location: item.location,
            item: index,
            cached: None,
        }));
        wanted.sort_unstable_by_key(|wanted| wanted.location);
        // A pass for each step of the look-up, so that the processor waits for many blocks' memory at once.
        for wanted in &mut wanted {
            wanted.cached = self.cache.find(cache_key(wanted.location, generation));
        }
        wanted.iter().filter_map(|wanted| wanted.cached).for_each(|slot| self.cache.look_at(slot));
        let reads = &mut self.cleaner.reads;
        reads.clear();
        let end = wanted.last().map_or(0, |last| last.location + 1);
        let mut kept = self.kept_frames.take_before(self.cleaner.victim, end).into_iter().peekable();
        for &Wanted { location, item, cached } in &wanted {
            while let Some(frame) = kept.next_if(|frame| frame.end() <= location) {
                self.kept_frames.give(frame.buffer);
            }
            if let Some(frame) = kept.next_if(|frame| frame.location <= location) {
                let (location, blocks) = (frame.location, frame.buffer.blocks() as u64);
                let got = Got::Kept(frame.buffer);
                reads.push(WindowRead { location, blocks, got, issued: true, failed: false });
            }
            // One that is cached is read over if it lies among others.
            match reads.last_mut().filter(|last| !matches!(last.got, Got::Cached(_))) {
                Some(WindowRead { location: start, blocks, got: Got::Kept(_), .. })
                    if location < *start + *blocks => {}
                Some(last)
                    if !last.issued
                        && location <= last.location + last.blocks + GAP_BLOCKS
                        && location + 1 - last.location <= READ_BLOCKS =>
                {
                    last.blocks = location + 1 - last.location;
                }
                _ => {
                    let issued = cached.is_some();
                    let got = cached.map_or(Got::Nothing, |slot| Got::Cached(self.cache.share(slot)));
                    reads.push(WindowRead { location, blocks: 1, got, issued, failed: false });
                }
            }
            self.cleaner.window[item as usize].read = reads.len() as u32 - 1;
        }
        kept.for_each(|frame| self.kept_frames.give(frame.buffer));
        self.cleaner.wanted = wanted;
    }

    /// Reads what is needed of a read that failed block by block: a bad block that nobody needs may have been among them.
    pub(super) fn read_singly(&mut self, slot: u32) {
        for item in self.cleaner.window.iter_mut().filter(|item| item.read == slot) {
            item.read = self.cleaner.reads.len() as u32;
            let location = item.location;
            let (got, issued, failed) = (Got::Nothing, false, false);
            self.cleaner.reads.push(WindowRead { location, blocks: 1, got, issued, failed });
        }
    }

    pub(super) fn read_window(&mut self) {
        let (level, reserve) = (self.cleaning_level(), self.hot_reserve());
        let is_calm = self.room() > reserve + (level - reserve) / 2;
        let reads_max = if is_calm { READS_CALM } else { READS_MAX };
        let mut under_way =
            self.cleaner.reads.iter().filter(|read| read.issued && matches!(read.got, Got::Nothing)).count();
        for slot in 0..self.cleaner.reads.len() {
            if under_way >= reads_max {
                return;
            }
            let read = &mut self.cleaner.reads[slot];
            if read.issued {
                continue;
            }
            read.issued = true;
            under_way += 1;
            let (location, blocks) = (read.location, read.blocks as usize);
            self.issue_read(IoPurpose::Cleaner(slot as u32), location, blocks);
        }
        if under_way == 0 {
            self.cleaner.phase = Phase::Ready;
        }
    }

    /// What is read goes into the log next; the look-up goes on behind it.
    pub(super) fn hand_over(&mut self) {
        if self.cleaner.moving.is_some() {
            return;
        }
        let mut items = std::mem::take(&mut self.cleaner.window);
        let reads = std::mem::take(&mut self.cleaner.reads);
        if reads.iter().any(|read| read.failed) {
            // What cannot be read now stays where it is: later it may be readable.
            items.retain(|item| {
                let is_here = !reads[item.read as usize].failed;
                if !is_here && !self.is_overwritten(item.place(), item.location) {
                    self.bad_block(item.layer, item.chunk, u32::from(item.block));
                    self.leaves_to_repair(item.place(), item.location, item.checksum);
                }
                is_here
            });
        }
        let victim = self.cleaner.victim;
        self.cleaner.moving = Some(MovingWindow { victim, last: false, items, reads, moved: 0 });
        self.next_window();
    }
}

/// A block that is as it should be. Memory is not to be trusted either.
pub(super) fn good_block<'a>(reads: &'a [WindowRead], item: &Item) -> Option<&'a [u8]> {
    let block = reads[item.read as usize].block(item.location);
    block.filter(|block| crc32c_block(block) == item.checksum)
}
