//! The block cache: S3-FIFO (Yang et al., SOSP 2023), so that a scan does not push out what is used again.
//!
//! A block is named by its location and the generation of its segment, so nothing has to be invalidated: what was
//! overwritten is not asked for any more, and a reused segment has a new generation. When a segment is used again, what is left
//! of its blocks is dropped.
//!
//! Readers get shares of blocks, not copies: a block of which somebody has a share is not changed, and its slot takes another only
//! when that share is gone.
//!
//! Invariant: a slot that is occupied has one entry in `small` or `main` with its ticket; entries with other tickets are of blocks
//! that were dropped, and mean nothing.

use std::collections::VecDeque;

use coquina_base::{BLOCK_BYTES, SLAB_BYTES, SharedBlock};
use hashbrown::HashMap;

use crate::cache_places::Places;
use crate::hash::FixedState;

/// Unit of the cache's size: 1 MiB.
const UNIT_BLOCKS: usize = 256;
/// Blocks that memory is taken in as long as there is room for so many: a huge page, so that look-ups in a large cache need few entries of
/// the processor's table of pages.
const SLAB_BLOCKS: usize = SLAB_BYTES / BLOCK_BYTES;
/// Slots whose blocks are still shared are passed over so often; then a block is not kept.
const PASSED_OVER_MAX: usize = 64;

/// Gives a slab of the cache's memory, [`SLAB_BLOCKS`] blocks, if one is at hand.
pub type CacheMemory = Box<dyn FnMut() -> Option<Vec<SharedBlock>> + Send>;

/// Name of a cached block.
pub type CacheKey = u64;

/// Where a cached block is, until the cache changes.
#[derive(Clone, Copy)]
pub struct CacheSlot(u32);

/// Makes a key out of a location (40 bits) and a segment generation (its low 24 bits).
pub fn cache_key(location: u64, generation: u64) -> CacheKey {
    location | generation << 40
}

#[derive(Clone, Copy, Default)]
struct Slot {
    key: CacheKey,
    uses: u8,
    occupied: bool,
    ticket: u32,
}

impl Slot {
    /// Makes the slot's entry in its queue mean nothing.
    fn vacate(&mut self) {
        self.occupied = false;
        self.ticket = self.ticket.wrapping_add(1);
    }
}

/// A slot's place in a queue.
#[derive(Clone, Copy)]
struct Place {
    slot: u32,
    ticket: u32,
}

/// Blocks in memory.
pub struct BlockCache {
    places: Places,
    slots: Vec<Slot>,
    /// The memory of each slot.
    blocks: Vec<SharedBlock>,
    unused: VecDeque<u32>,
    small: VecDeque<Place>,
    main: VecDeque<Place>,
    ghost: VecDeque<CacheKey>,
    ghost_set: HashMap<CacheKey, u32, FixedState>,
    blocks_max: usize,
    /// Where memory comes from, as long as there is some at hand; else it is taken from the system.
    memory: Option<CacheMemory>,
}

impl BlockCache {
    /// A cache of at most `bytes`.
    pub fn new(bytes: u64) -> Self {
        BlockCache {
            places: Places::default(),
            slots: Vec::new(),
            blocks: Vec::new(),
            unused: VecDeque::new(),
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghost: VecDeque::new(),
            ghost_set: HashMap::default(),
            blocks_max: blocks_of(bytes),
            memory: None,
        }
    }

    /// Slabs come from there from now on, as long as they are at hand.
    pub fn set_memory(&mut self, memory: CacheMemory) {
        self.memory = Some(memory);
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        (self.blocks.len() * BLOCK_BYTES) as u64
    }

    /// Bytes that it may still take.
    pub fn bytes_left(&self) -> u64 {
        (self.blocks_max.saturating_sub(self.blocks.len()) * BLOCK_BYTES) as u64
    }

    /// Changes the bound; memory above it is given back at once, but for the rest of a slab of which some is kept or still shared.
    pub fn set_bytes_max(&mut self, bytes: u64) {
        self.blocks_max = blocks_of(bytes);
        let first = self.blocks_max;
        if self.blocks.len() <= first {
            return;
        }
        // In one pass, however much it is.
        for slot in self.slots[first..].iter().filter(|slot| slot.occupied) {
            self.places.remove(slot.key);
        }
        self.slots.truncate(first);
        self.blocks.truncate(first);
        self.unused.retain(|slot| (*slot as usize) < first);
        self.small.retain(|place| (place.slot as usize) < first);
        self.main.retain(|place| (place.slot as usize) < first);
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// A share of a block, if it is there.
    pub fn get(&mut self, key: CacheKey) -> Option<SharedBlock> {
        let index = self.places.get(key)?;
        let slot = &mut self.slots[index as usize];
        slot.uses = (slot.uses + 1).min(3);
        Some(self.blocks[index as usize].clone())
    }

    /// Where a block is, if it is there. It does not count as used.
    pub fn find(&self, key: CacheKey) -> Option<CacheSlot> {
        self.places.get(key).map(CacheSlot)
    }

    /// Has the processor get what it needs to look for a block; it need not wait for it.
    pub fn look_for(&self, key: CacheKey) {
        std::hint::black_box(self.find(key).is_some());
    }

    /// Has the processor get what it needs for a share of a block that was found. It need not wait for it, and can get those of
    /// others meanwhile.
    pub fn look_at(&self, slot: CacheSlot) {
        std::hint::black_box(self.blocks[slot.0 as usize].shares());
    }

    /// A share of a block that was found just now.
    pub fn share(&self, slot: CacheSlot) -> SharedBlock {
        self.blocks[slot.0 as usize].clone()
    }

    /// Whether a block is there.
    #[cfg(test)]
    fn contains(&self, key: CacheKey) -> bool {
        self.places.get(key).is_some()
    }

    /// Keeps a block that was read.
    pub fn insert(&mut self, key: CacheKey, block: &[u8]) {
        if self.blocks_max == 0 || self.places.get(key).is_some() {
            return;
        }
        let Some(index) = self.spare_slot().or_else(|| self.evict()) else { return };
        let returned = self.ghost_set.remove(&key).is_some();
        self.fill(index, key, block, returned);
    }

    fn fill(&mut self, index: u32, key: CacheKey, block: &[u8], in_main: bool) {
        let Some(room) = self.blocks[index as usize].get_mut() else {
            unreachable!("a slot that takes another block is not shared");
        };
        room.copy_from_slice(block);
        let ticket = self.slots[index as usize].ticket;
        self.slots[index as usize] = Slot { key, uses: 0, occupied: true, ticket };
        self.places.insert(key, index);
        let slots = self.slots.len();
        let queue = if in_main { &mut self.main } else { &mut self.small };
        queue.push_back(Place { slot: index, ticket });
        if queue.len() > 2 * slots {
            let slots = &self.slots;
            queue.retain(|place| is_current(slots, place));
        }
    }

    /// Drops a block, if it is there.
    pub fn remove(&mut self, key: CacheKey) {
        if let Some(index) = self.places.remove(key) {
            self.slots[index as usize].vacate();
            self.unused.push_back(index);
        }
    }

    /// Drops what is there of so many blocks from one on; see [`Places::remove_range`].
    pub fn remove_range(&mut self, key: CacheKey, blocks: u64) {
        let (slots, unused) = (&mut self.slots, &mut self.unused);
        self.places.remove_range(key, blocks, |index| {
            slots[index as usize].vacate();
            unused.push_back(index);
        });
    }

    /// Flips a bit of each block that is not shared.
    #[cfg(debug_assertions)]
    pub(crate) fn damage(&mut self) {
        self.blocks.iter_mut().filter_map(SharedBlock::get_mut).for_each(|block| block[1000] ^= 4);
    }

    /// A block has moved: what was known by the old name is known by the new one.
    pub fn rename(&mut self, old: CacheKey, new: CacheKey) {
        if let Some(index) = self.places.remove(old) {
            self.slots[index as usize].key = new;
            if let Some(other) = self.places.insert(new, index) {
                self.slots[other as usize].vacate();
                self.unused.push_back(other);
            }
        }
    }

    /// A slot whose memory holds nothing.
    fn unused_slot(&mut self) -> Option<u32> {
        for _ in 0..self.unused.len().min(PASSED_OVER_MAX) {
            let index = self.unused.pop_back()?;
            if self.blocks[index as usize].get_mut().is_some() {
                return Some(index);
            }
            self.unused.push_front(index);
        }
        None
    }

    /// A slot that nothing has to leave.
    fn spare_slot(&mut self) -> Option<u32> {
        if let Some(index) = self.unused_slot() {
            return Some(index);
        }
        if self.blocks.len() < self.blocks_max {
            let has_room = self.blocks.len() + SLAB_BLOCKS <= self.blocks_max;
            match self.memory.as_mut().filter(|_| has_room).and_then(|memory| memory()) {
                Some(slab) => self.blocks.extend(slab),
                None => {
                    self.blocks.extend(SharedBlock::slab(if has_room { SLAB_BLOCKS } else { UNIT_BLOCKS }))
                }
            }
            let first = self.slots.len() as u32;
            self.slots.resize(self.blocks.len(), Slot::default());
            self.unused.extend((first..self.slots.len() as u32).rev());
            // None if the system has no memory; what is unused then is shared still.
            return (first < self.slots.len() as u32).then(|| self.unused.pop_back()).flatten();
        }
        None
    }

    /// Makes a block leave; gives its slot. None if only blocks were found that are still shared.
    fn evict(&mut self) -> Option<u32> {
        let small_target = self.slots.len() / 10;
        let mut passed_over = 0;
        loop {
            let from_small = self.small.len() > small_target || self.main.is_empty();
            let queue = if from_small { &mut self.small } else { &mut self.main };
            let place = queue.pop_front()?;
            if !is_current(&self.slots, &place) {
                continue;
            }
            let slot = &mut self.slots[place.slot as usize];
            // In `main` each use gives another round; it has three at most, so that this ends.
            if from_small && slot.uses > 1 {
                slot.uses = 0;
                self.enter_main(place);
                continue;
            }
            if !from_small && slot.uses > 0 {
                slot.uses -= 1;
                self.main.push_back(place);
                continue;
            }
            if self.blocks[place.slot as usize].get_mut().is_none() {
                self.enter_main(place);
                passed_over += 1;
                if passed_over == PASSED_OVER_MAX {
                    return None;
                }
                continue;
            }
            let key = slot.key;
            self.places.remove(key);
            self.slots[place.slot as usize].vacate();
            if from_small {
                self.remember(key);
            }
            return Some(place.slot);
        }
    }

    /// Puts a block's entry into `main`. Those there of blocks that were dropped go when they are too many: as long as `small` is
    /// long, nothing else takes them out.
    fn enter_main(&mut self, place: Place) {
        self.main.push_back(place);
        if self.main.len() > 2 * self.slots.len() {
            let slots = &self.slots;
            self.main.retain(|entry| is_current(slots, entry));
        }
    }

    fn remember(&mut self, key: CacheKey) {
        self.ghost.push_back(key);
        *self.ghost_set.entry(key).or_insert(0) += 1;
        while self.ghost.len() > self.slots.len() {
            let Some(old) = self.ghost.pop_front() else { break };
            if let Some(count) = self.ghost_set.get_mut(&old) {
                *count -= 1;
                if *count == 0 {
                    self.ghost_set.remove(&old);
                }
            }
        }
    }
}

/// Whole units of so many bytes, in blocks.
fn blocks_of(bytes: u64) -> usize {
    bytes as usize / (UNIT_BLOCKS * BLOCK_BYTES) * UNIT_BLOCKS
}

fn is_current(slots: &[Slot], place: &Place) -> bool {
    slots[place.slot as usize].ticket == place.ticket
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn block(value: u64) -> Vec<u8> {
        value.to_le_bytes().repeat(BLOCK_BYTES / 8)
    }

    #[test]
    fn gives_back_what_was_put_and_stays_within_its_bound() {
        let mut cache = BlockCache::new(2 << 20);
        for key in 1..=2000 {
            cache.insert(key, &block(key));
            assert_eq!(cache.get(key).unwrap()[..], block(key));
        }
        assert_eq!(cache.bytes(), 2 << 20);
        assert!(!cache.contains(1));
        cache.set_bytes_max(1 << 20);
        assert_eq!(cache.bytes(), 1 << 20);
        for key in 1..=2000 {
            if let Some(data) = cache.get(key) {
                assert_eq!(data[..], block(key));
            }
        }
        cache.set_bytes_max(0);
        cache.insert(5, &block(5));
        assert!(!cache.contains(5));
    }

    #[test]
    fn a_scan_does_not_push_out_what_is_used_again() {
        let mut cache = BlockCache::new(4 << 20);
        for round in 0..4 {
            for key in 1..=500 {
                if cache.get(key).is_none() {
                    assert!(round < 2);
                    cache.insert(key, &block(key));
                }
            }
        }
        for key in 10_000..20_000 {
            cache.insert(key, &block(key));
        }
        let kept = (1..=500).filter(|key| cache.contains(*key)).count();
        assert!(kept >= 450, "{kept} of 500 kept");
    }

    #[test]
    fn a_moved_block_keeps_its_place() {
        let mut cache = BlockCache::new(1 << 20);
        cache.insert(1, &block(1));
        cache.insert(2, &block(2));
        cache.rename(1, 9);
        assert!(cache.get(1).is_none());
        assert_eq!(cache.get(9).unwrap()[..], block(1));
    }

    #[test]
    fn what_was_dropped_makes_room_again() {
        let mut cache = BlockCache::new(2 << 20);
        (0..512).for_each(|key| cache.insert(key, &block(key)));
        for round in 0..20 {
            let first = 1024 + round * 64;
            cache.remove_range(if round == 0 { 0 } else { first - 64 }, 64);
            (first..first + 64).for_each(|key| cache.insert(key, &block(key)));
            assert!((first..first + 64).all(|key| cache.get(key).is_some_and(|data| data[..] == block(key))));
            assert!((64..512).all(|key| cache.contains(key)), "nothing else has to go");
        }
        assert!(cache.small.len() <= 2 * cache.slots.len(), "entries of what was dropped go, too");
        assert_eq!(cache.find(511).map(|slot| cache.share(slot)).unwrap()[..], block(511));
    }

    /// Blocks that are read again and again, and then overwritten: their segments are written again, and they are dropped. Their
    /// entries in the main queue stayed for ever.
    #[test]
    fn entries_of_what_was_used_often_and_dropped_go() {
        let mut cache = BlockCache::new(1 << 20);
        let mut keys = 0..;
        let mut held = VecDeque::new();
        for _ in 0..100 {
            for key in keys.by_ref().take(256 - held.len()) {
                cache.insert(key, &block(key));
                held.push_back(key);
            }
            let used: Vec<u64> = held.drain(..64).collect();
            for key in used.iter().chain(&used) {
                assert!(cache.get(*key).is_some());
            }
            // One more block makes those that were used often go over to the main queue, and another one leave.
            let key = keys.next().unwrap();
            cache.insert(key, &block(key));
            held.push_back(key);
            held.retain(|key| cache.contains(*key));
            used.iter().for_each(|key| cache.remove(*key));
        }
        let slots = cache.slots.len();
        assert!(cache.main.len() <= 2 * slots, "{} entries for {slots} blocks", cache.main.len());
    }

    #[test]
    fn memory_that_is_not_at_hand_comes_from_the_system() {
        let mut cache = BlockCache::new(8 << 20);
        let mut at_hand = 1;
        cache.set_memory(Box::new(move || {
            let has_one = std::mem::take(&mut at_hand) > 0;
            has_one.then(SharedBlock::touched_slab)
        }));
        (1..=600).for_each(|key| cache.insert(key, &block(key)));
        assert_eq!((cache.bytes(), cache.places.len()), (4 << 20, 600));
        (1..=600).for_each(|key| assert_eq!(cache.get(key).unwrap()[..], block(key)));
    }

    #[test]
    fn a_block_that_is_shared_stays_what_it_is() {
        let mut cache = BlockCache::new(1 << 20);
        for key in 1..=256 {
            cache.insert(key, &block(key));
        }
        let shares: Vec<SharedBlock> = (1..=256).step_by(2).map(|key| cache.get(key).unwrap()).collect();
        // Some leave by being dropped, others have to make room for what comes.
        for key in 1..=64 {
            cache.remove(key);
        }
        for key in 1000..3000 {
            cache.insert(key, &block(key));
        }
        for (index, share) in shares.iter().enumerate() {
            assert_eq!(share[..], block(index as u64 * 2 + 1));
        }
        assert!((65..=256).step_by(2).all(|key| cache.contains(key)), "what is shared does not leave");
        let kept = (1000..3000).filter(|key| cache.contains(*key)).count();
        assert_eq!(kept, 128, "every slot that is not shared serves");
        // When all are shared, nothing is kept until one is given back.
        let others: Vec<SharedBlock> = (1000..3000).filter_map(|key| cache.get(key)).collect();
        cache.insert(5000, &block(5000));
        assert!(!cache.contains(5000));
        drop((others, shares));
        (6000..6400).for_each(|key| cache.insert(key, &block(key)));
        assert!(cache.contains(6399) && cache.places.len() == 256);
        for key in (65..=256).chain(1000..3000).chain(6000..6400) {
            assert!(cache.get(key).is_none_or(|data| data[..] == block(key)), "{key}");
        }
    }
}
