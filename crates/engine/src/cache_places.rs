//! Where cached blocks are, by their names.
//!
//! Blocks that lie one behind the other on the drive share an entry, so that who looks for many of them in order waits for memory only
//! once for each entry.

use hashbrown::HashMap;

use crate::cache::CacheKey;
use crate::hash::FixedState;

/// Blocks of an entry: so many slots fill a line of the processor's cache. Segments consist of whole entries.
const ENTRY_BLOCKS: usize = 16;
/// Stands for no slot.
const NONE: u32 = u32::MAX;

/// The slots of neighbouring blocks.
#[derive(Clone, Copy)]
struct Entry {
    slots: [u32; ENTRY_BLOCKS],
    /// How many there are.
    held: u32,
}

/// A map from the names of blocks to their slots.
#[derive(Default)]
pub(crate) struct Places {
    entries: HashMap<CacheKey, Entry, FixedState>,
}

/// The name of a block's entry, and where it is in there. The location is in the low bits of the name.
fn entry_of(key: CacheKey) -> (CacheKey, usize) {
    let mask = ENTRY_BLOCKS as u64 - 1;
    (key & !mask, (key & mask) as usize)
}

impl Places {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// A block's slot.
    pub fn get(&self, key: CacheKey) -> Option<u32> {
        let (name, index) = entry_of(key);
        self.entries.get(&name).map(|entry| entry.slots[index]).filter(|slot| *slot != NONE)
    }

    /// Notes a slot; gives the one that was there.
    pub fn insert(&mut self, key: CacheKey, slot: u32) -> Option<u32> {
        let (name, index) = entry_of(key);
        let entry = self.entries.entry(name).or_insert(Entry { slots: [NONE; ENTRY_BLOCKS], held: 0 });
        let before = std::mem::replace(&mut entry.slots[index], slot);
        if before != NONE {
            return Some(before);
        }
        entry.held += 1;
        None
    }

    /// Forgets a block; gives its slot.
    pub fn remove(&mut self, key: CacheKey) -> Option<u32> {
        let (name, index) = entry_of(key);
        let entry = self.entries.get_mut(&name)?;
        let slot = std::mem::replace(&mut entry.slots[index], NONE);
        if slot == NONE {
            return None;
        }
        entry.held -= 1;
        if entry.held == 0 {
            self.entries.remove(&name);
        }
        Some(slot)
    }

    /// Forgets `blocks` blocks from one on, whole entries; tells their slots.
    pub fn remove_range(&mut self, key: CacheKey, blocks: u64, mut each: impl FnMut(u32)) {
        let (first, index) = entry_of(key);
        assert!(index == 0 && blocks % ENTRY_BLOCKS as u64 == 0, "whole entries");
        for name in (first..first + blocks).step_by(ENTRY_BLOCKS) {
            if let Some(entry) = self.entries.remove(&name) {
                entry.slots.iter().filter(|slot| **slot != NONE).for_each(|slot| each(*slot));
            }
        }
    }

    /// How many blocks there are.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.entries.values().map(|entry| entry.held as usize).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Against a map without entries in common.
    #[test]
    fn finds_what_was_noted_and_nothing_else() {
        let (mut places, mut model) = (Places::default(), BTreeMap::new());
        let mut state = 1u64;
        let mut below = |limit: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % limit
        };
        for round in 0..100_000 {
            let key = below(300) | below(2) << 40;
            match below(8) {
                0..4 => assert_eq!(places.insert(key, round), model.insert(key, round)),
                4..7 => assert_eq!(places.remove(key), model.remove(&key)),
                _ => {
                    let first = key & !63;
                    let mut gone = Vec::new();
                    places.remove_range(first, 64, |slot| gone.push(slot));
                    let expected: Vec<u32> =
                        (first..first + 64).filter_map(|key| model.remove(&key)).collect();
                    assert_eq!(gone, expected);
                }
            }
            let key = below(300) | below(2) << 40;
            assert_eq!(places.get(key), model.get(&key).copied());
            assert_eq!((places.len(), places.is_empty()), (model.len(), model.is_empty()));
        }
    }
}
