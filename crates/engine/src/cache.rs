//! The block cache: S3-FIFO (Yang et al., SOSP 2023), so that a scan does not push out what is used again.
//!
//! A block is named by its location and the generation of its segment, so nothing is ever invalidated: what was
//! overwritten is not asked for any more, and a reused segment has a new generation.

use std::collections::VecDeque;

use coquina_base::{AlignedBuf, BLOCK_BYTES};
use hashbrown::HashMap;

use crate::hash::FixedState;

/// Blocks that memory is taken and given back in: 1 MiB.
const SLAB_BLOCKS: usize = 256;

/// Name of a cached block.
pub type CacheKey = u64;

/// Makes a key out of a location (40 bits) and a segment generation (its low 24 bits).
pub fn cache_key(location: u64, generation: u64) -> CacheKey {
    location | generation << 40
}

#[derive(Clone, Copy, Default)]
struct Slot {
    key: CacheKey,
    uses: u8,
    in_main: bool,
    occupied: bool,
}

/// Blocks in memory.
pub struct BlockCache {
    map: HashMap<CacheKey, u32, FixedState>,
    slots: Vec<Slot>,
    slabs: Vec<AlignedBuf>,
    unused: Vec<u32>,
    small: VecDeque<u32>,
    main: VecDeque<u32>,
    ghost: VecDeque<CacheKey>,
    ghost_set: HashMap<CacheKey, u32, FixedState>,
    slabs_max: usize,
}

impl BlockCache {
    /// A cache of at most `bytes`.
    pub fn new(bytes: u64) -> Self {
        BlockCache {
            map: HashMap::default(),
            slots: Vec::new(),
            slabs: Vec::new(),
            unused: Vec::new(),
            small: VecDeque::new(),
            main: VecDeque::new(),
            ghost: VecDeque::new(),
            ghost_set: HashMap::default(),
            slabs_max: bytes as usize / (SLAB_BLOCKS * BLOCK_BYTES),
        }
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        (self.slabs.len() * SLAB_BLOCKS * BLOCK_BYTES) as u64
    }

    /// Changes the bound; memory above it is given back at once.
    pub fn set_bytes_max(&mut self, bytes: u64) {
        self.slabs_max = bytes as usize / (SLAB_BLOCKS * BLOCK_BYTES);
        while self.slabs.len() > self.slabs_max {
            let first = (self.slabs.len() - 1) * SLAB_BLOCKS;
            for slot in &self.slots[first..] {
                if slot.occupied {
                    self.map.remove(&slot.key);
                }
            }
            self.slots.truncate(first);
            self.slabs.pop();
            let keep = |slot: &u32| (*slot as usize) < first;
            self.unused.retain(keep);
            self.small.retain(keep);
            self.main.retain(keep);
        }
    }

    /// Copies a block out, if it is there.
    pub fn get(&mut self, key: CacheKey, out: &mut [u8]) -> bool {
        let Some(&index) = self.map.get(&key) else { return false };
        let slot = &mut self.slots[index as usize];
        slot.uses = (slot.uses + 1).min(3);
        let at = index as usize % SLAB_BLOCKS * BLOCK_BYTES;
        out.copy_from_slice(&self.slabs[index as usize / SLAB_BLOCKS][at..at + BLOCK_BYTES]);
        true
    }

    /// Whether a block is there.
    pub fn contains(&self, key: CacheKey) -> bool {
        self.map.contains_key(&key)
    }

    /// Keeps a block.
    pub fn insert(&mut self, key: CacheKey, block: &[u8]) {
        if self.slabs_max == 0 || self.map.contains_key(&key) {
            return;
        }
        let Some(index) = self.free_slot() else { return };
        let returned = self.ghost_set.remove(&key).is_some();
        let at = index as usize % SLAB_BLOCKS * BLOCK_BYTES;
        self.slabs[index as usize / SLAB_BLOCKS][at..at + BLOCK_BYTES].copy_from_slice(block);
        self.slots[index as usize] = Slot { key, uses: 0, in_main: returned, occupied: true };
        self.map.insert(key, index);
        if returned { self.main.push_back(index) } else { self.small.push_back(index) }
    }

    /// A block has moved: what was known by the old name is known by the new one.
    pub fn rename(&mut self, old: CacheKey, new: CacheKey) {
        if let Some(index) = self.map.remove(&old) {
            self.slots[index as usize].key = new;
            if let Some(other) = self.map.insert(new, index) {
                self.slots[other as usize].occupied = false;
            }
        }
    }

    fn free_slot(&mut self) -> Option<u32> {
        if let Some(index) = self.unused.pop() {
            return Some(index);
        }
        if self.slabs.len() < self.slabs_max {
            let first = self.slots.len() as u32;
            self.slabs.push(AlignedBuf::zeroed(SLAB_BLOCKS));
            self.slots.resize(self.slots.len() + SLAB_BLOCKS, Slot::default());
            self.unused.extend((first + 1..first + SLAB_BLOCKS as u32).rev());
            return Some(first);
        }
        self.evict()
    }

    fn evict(&mut self) -> Option<u32> {
        let small_target = self.slots.len() / 10;
        for _ in 0..self.slots.len() * 4 + 4 {
            if self.small.len() > small_target || self.main.is_empty() {
                let index = self.small.pop_front()?;
                let slot = self.slots[index as usize];
                if !slot.occupied {
                    return Some(index);
                }
                if slot.uses > 1 {
                    self.slots[index as usize].uses = 0;
                    self.slots[index as usize].in_main = true;
                    self.main.push_back(index);
                    continue;
                }
                self.map.remove(&slot.key);
                self.remember(slot.key);
                self.slots[index as usize].occupied = false;
                return Some(index);
            }
            let index = self.main.pop_front()?;
            let slot = &mut self.slots[index as usize];
            if slot.occupied && slot.uses > 0 {
                slot.uses -= 1;
                self.main.push_back(index);
                continue;
            }
            if slot.occupied {
                slot.occupied = false;
                let key = slot.key;
                self.map.remove(&key);
            }
            return Some(index);
        }
        None
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

#[cfg(test)]
mod tests {
    use super::*;

    fn block(value: u64) -> Vec<u8> {
        value.to_le_bytes().repeat(BLOCK_BYTES / 8)
    }

    #[test]
    fn gives_back_what_was_put_and_stays_within_its_bound() {
        let mut cache = BlockCache::new(2 << 20);
        let mut out = vec![0; BLOCK_BYTES];
        for key in 1..=2000 {
            cache.insert(key, &block(key));
            assert!(cache.get(key, &mut out));
            assert_eq!(out, block(key));
        }
        assert_eq!(cache.bytes(), 2 << 20);
        assert!(!cache.contains(1));
        cache.set_bytes_max(1 << 20);
        assert_eq!(cache.bytes(), 1 << 20);
        for key in 1..=2000 {
            if cache.get(key, &mut out) {
                assert_eq!(out, block(key));
            }
        }
        cache.set_bytes_max(0);
        cache.insert(5, &block(5));
        assert!(!cache.contains(5));
    }

    #[test]
    fn a_scan_does_not_push_out_what_is_used_again() {
        let mut cache = BlockCache::new(4 << 20);
        let mut out = vec![0; BLOCK_BYTES];
        for round in 0..4 {
            for key in 1..=500 {
                if !cache.get(key, &mut out) {
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
        let mut out = vec![0; BLOCK_BYTES];
        assert!(!cache.get(1, &mut out) && cache.get(9, &mut out));
        assert_eq!(out, block(1));
    }
}
