//! The index: layer, chunk and block to location and checksum.
//!
//! Regions of 256 blocks are the unit of memory: each is complete in memory, or only its page on the drive is
//! known. Chunks are found through a two-level table per layer, so that a look-up costs two dependent loads.

use std::cell::Cell;

use hashbrown::HashMap;

use crate::hash::FixedState;
use crate::index_region::{Map, PageRef, Region, RegionKey};
use crate::index_run::REGION_BLOCKS;

/// Regions of a chunk.
pub const REGIONS: usize = 4;
const LEAF_CHUNKS: usize = 64;
/// No layer has this number.
const LAYER_NONE: u64 = 0;
/// Blocks whose memory is waited for together.
pub const LOOKS: usize = 16;

/// The regions of one chunk.
#[derive(Default, Debug)]
pub struct Chunk {
    regions: [Region; REGIONS],
}

/// A chunk's place in a leaf. A chunk of which nothing is in memory takes 32 bytes.
#[derive(Default)]
enum Slot {
    #[default]
    None,
    Cold(Box<[PageRef; REGIONS]>),
    Warm(Box<Chunk>),
}

impl Slot {
    fn is_none(&self) -> bool {
        matches!(self, Slot::None)
    }
}

#[derive(Default)]
struct Leaf {
    chunks: Vec<Slot>,
    /// Number of the checkpoint that has noted this leaf's pages.
    noted_checkpoint: u64,
}

/// A layer.
pub struct Layer {
    /// Its number.
    pub id: u64,
    /// Being deleted: takes no changes.
    pub deleting: bool,
    leaves: Vec<Option<Box<Leaf>>>,
}

/// All layers of a shard.
#[derive(Default)]
pub struct Index {
    layers: Vec<Layer>,
    by_id: HashMap<u64, u32, FixedState>,
    /// The layer that was looked up last, and its position: mostly it is asked for again.
    layer_last: Cell<(u64, u32)>,
    /// Bytes of memory held, tables included.
    memory_bytes: u64,
    clock: Clock,
}

/// Looks for regions that may go, round after round.
#[derive(Default)]
struct Clock {
    /// Position of a layer, chunk, region.
    hand: (usize, u32, u8),
    /// In this round it has met something that may go, at once or when it comes there again.
    has_met: bool,
    /// Since this round began something may have changed behind it.
    has_news: bool,
    /// The last round was in vain, and nothing has changed since.
    is_at_rest: bool,
}

const CHUNK_MEMORY_BYTES: u64 = size_of::<Chunk>() as u64 + 16;
const COLD_MEMORY_BYTES: u64 = size_of::<[PageRef; REGIONS]>() as u64 + 16;
const LEAF_MEMORY_BYTES: u64 = (size_of::<Leaf>() + LEAF_CHUNKS * size_of::<Slot>() + 32) as u64;

impl Index {
    /// Bytes of memory held.
    pub fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    /// Notes that a region's heap has changed from `before` bytes.
    pub fn account(&mut self, before: usize, after: usize) {
        self.memory_bytes = self.memory_bytes + after as u64 - before as u64;
    }

    /// All layers.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// Position of a layer.
    pub fn layer_position(&self, id: u64) -> Option<usize> {
        let (last, position) = self.layer_last.get();
        if last == id && id != LAYER_NONE {
            return Some(position as usize);
        }
        let position = *self.by_id.get(&id)?;
        self.layer_last.set((id, position));
        Some(position as usize)
    }

    /// A layer, made if it is not there.
    pub fn layer_mut(&mut self, id: u64) -> &mut Layer {
        let position = *self.by_id.entry(id).or_insert_with(|| {
            self.layers.push(Layer { id, deleting: false, leaves: Vec::new() });
            (self.layers.len() - 1) as u32
        });
        &mut self.layers[position as usize]
    }

    /// Forgets a layer that has no chunks.
    pub fn remove_layer(&mut self, id: u64) {
        if let Some(position) = self.by_id.remove(&id) {
            self.layer_last.set((LAYER_NONE, 0));
            let layer = self.layers.swap_remove(position as usize);
            // Another one is in its place.
            self.look_again();
            self.memory_bytes -= layer.leaves.iter().flatten().count() as u64 * LEAF_MEMORY_BYTES;
            assert!(layer.leaves.iter().flatten().all(|leaf| leaf.chunks.iter().all(Slot::is_none)));
            if let Some(moved) = self.layers.get(position as usize) {
                self.by_id.insert(moved.id, position);
            }
        }
    }

    fn slot_mut(&mut self, layer: u64, chunk: u32) -> Option<&mut Slot> {
        let position = self.layer_position(layer)?;
        let leaf = self.layers[position].leaves.get_mut(chunk as usize / LEAF_CHUNKS)?.as_mut()?;
        Some(&mut leaf.chunks[chunk as usize % LEAF_CHUNKS])
    }

    /// Has the processor get what is known of blocks: places in a layer, each a chunk and a block of it. A pass for each step, and as
    /// little as can be between two loads of a pass, so that it waits for the memory of many blocks at once.
    pub fn look_at(&self, layer: u64, mut places: impl Iterator<Item = (u32, u16)>) {
        let Some(position) = self.layer_position(layer) else { return };
        let leaves = &self.layers[position].leaves;
        let region_of = |(chunk, block): (u32, u16)| {
            let leaf = leaves.get(chunk as usize / LEAF_CHUNKS)?.as_ref()?;
            let Slot::Warm(warm) = &leaf.chunks[chunk as usize % LEAF_CHUNKS] else { return None };
            Some((&warm.regions[usize::from(block) / REGION_BLOCKS], usize::from(block) % REGION_BLOCKS))
        };
        let mut count = LOOKS;
        while count == LOOKS {
            let mut regions = [None; LOOKS];
            count = 0;
            for (region, place) in regions.iter_mut().zip(&mut places) {
                *region = region_of(place);
                count += 1;
            }
            for (region, _) in regions.iter().flatten() {
                std::hint::black_box(region.is_referenced());
            }
            for (region, block) in regions.iter().flatten() {
                region.look_at(*block);
            }
        }
    }

    /// A chunk's regions; `None` where it has none: all holes.
    pub fn chunk_mut(&mut self, layer: u64, chunk: u32) -> Option<&mut [Region; REGIONS]> {
        if let Slot::Cold(_) = self.slot_mut(layer, chunk)? {
            self.warm(layer, chunk);
        }
        match self.slot_mut(layer, chunk)? {
            Slot::Warm(chunk) => Some(&mut chunk.regions),
            _ => None,
        }
    }

    fn warm(&mut self, layer: u64, chunk: u32) {
        let Some(slot) = self.slot_mut(layer, chunk) else { return };
        let Slot::Cold(pages) = slot else { return };
        let mut warm = Box::<Chunk>::default();
        for (region, page) in warm.regions.iter_mut().zip(pages.iter()) {
            region.page = *page;
            region.map = if page.is_none() { Map::Empty } else { Map::Absent };
        }
        *slot = Slot::Warm(warm);
        self.memory_bytes += CHUNK_MEMORY_BYTES - COLD_MEMORY_BYTES;
    }

    /// Makes a chunk take little memory if nothing of it is in memory, and none if nothing is to be known of it.
    pub fn cool(&mut self, layer: u64, chunk: u32) {
        if self.drop_chunk_if_empty(layer, chunk) {
            return;
        }
        let Some(slot) = self.slot_mut(layer, chunk) else { return };
        let Slot::Warm(warm) = slot else { return };
        let idle = warm.regions.iter().all(|region| {
            let nothing = match region.map {
                Map::Absent => true,
                Map::Empty => region.page.is_none() && region.checksums.is_none(),
                _ => false,
            };
            nothing && region.pins == 0 && !region.is_dirty() && region.writing == 0 && !region.is_loading()
        });
        if idle {
            let pages: [PageRef; REGIONS] = std::array::from_fn(|number| warm.regions[number].page);
            assert!(pages.iter().any(|page| !page.is_none()), "a cold chunk that holds nothing");
            *slot = Slot::Cold(Box::new(pages));
            self.memory_bytes -= CHUNK_MEMORY_BYTES - COLD_MEMORY_BYTES;
        }
    }

    /// A region; `None` where its chunk has none.
    pub fn region_mut(&mut self, key: RegionKey) -> Option<&mut Region> {
        self.chunk_mut(key.layer, key.chunk).map(|regions| &mut regions[usize::from(key.region)])
    }

    /// A region, made if it is not there. `checkpoint` is the number of the running one, for a new leaf.
    pub fn region_or_new(&mut self, key: RegionKey, checkpoint: u64) -> &mut Region {
        let mut grown = 0;
        let layer = self.layer_mut(key.layer);
        let at = key.chunk as usize / LEAF_CHUNKS;
        if layer.leaves.len() <= at {
            layer.leaves.resize_with(at + 1, || None);
        }
        let leaf = layer.leaves[at].get_or_insert_with(|| {
            grown += LEAF_MEMORY_BYTES;
            let mut chunks = Vec::with_capacity(LEAF_CHUNKS);
            chunks.resize_with(LEAF_CHUNKS, Slot::default);
            Box::new(Leaf { chunks, noted_checkpoint: checkpoint })
        });
        let slot = &mut leaf.chunks[key.chunk as usize % LEAF_CHUNKS];
        if slot.is_none() {
            grown += CHUNK_MEMORY_BYTES;
            *slot = Slot::Warm(Box::default());
        }
        self.memory_bytes += grown;
        // Looked up again, because the memory had to be counted in between.
        match self.region_mut(key) {
            Some(region) => region,
            None => unreachable!("the region was just made"),
        }
    }

    /// Forgets a chunk whose regions are empty, unused and without pages, and its leaf with the last one. Says whether it did.
    pub fn drop_chunk_if_empty(&mut self, layer: u64, chunk: u32) -> bool {
        let Some(slot) = self.slot_mut(layer, chunk) else { return false };
        let Slot::Warm(warm) = slot else { return false };
        if !warm.regions.iter().all(|region| region.is_vacant() && region.pins == 0) {
            return false;
        }
        let heap = warm.regions.iter().map(Region::heap_bytes).sum::<usize>() as u64;
        *slot = Slot::None;
        self.memory_bytes -= CHUNK_MEMORY_BYTES + heap;
        self.drop_leaf_if_empty(layer, chunk);
        true
    }

    /// Forgets a leaf without chunks. A running checkpoint does not miss it: a leaf that it has not noted yet still has the pages
    /// that it had at the point, which are none here. One that is made anew counts as noted.
    fn drop_leaf_if_empty(&mut self, layer: u64, chunk: u32) {
        let Some(position) = self.layer_position(layer) else { return };
        let place = self.layers[position].leaves.get_mut(chunk as usize / LEAF_CHUNKS);
        let Some(place) = place else { return };
        if place.as_ref().is_some_and(|leaf| leaf.chunks.iter().all(Slot::is_none)) {
            *place = None;
            self.memory_bytes -= LEAF_MEMORY_BYTES;
        }
    }

    /// The first chunk of a layer at or after `from`.
    pub fn next_chunk(&self, layer: u64, from: u32) -> Option<u32> {
        let layer = &self.layers[self.layer_position(layer)?];
        let mut at = from as usize / LEAF_CHUNKS;
        let mut within = from as usize % LEAF_CHUNKS;
        while at < layer.leaves.len() {
            if let Some(leaf) = &layer.leaves[at] {
                while within < LEAF_CHUNKS {
                    if !leaf.chunks[within].is_none() {
                        return Some((at * LEAF_CHUNKS + within) as u32);
                    }
                    within += 1;
                }
            }
            at += 1;
            within = 0;
        }
        None
    }

    /// Something was loaded, let go or written: there may be more that [`Index::next_idle`] finds.
    pub fn look_again(&mut self) {
        self.clock.has_news = true;
        self.clock.is_at_rest = false;
    }

    /// Looks for a region in memory that was not used for a while: the clock algorithm. One of which only the places are left
    /// in memory is found as well. Takes its steps off `steps`, and gives up when none is left, or after a round in vain: then it
    /// does not look any more before [`Index::look_again`].
    pub fn next_idle(&mut self, steps: &mut usize) -> Option<RegionKey> {
        while *steps > 0 && !self.clock.is_at_rest {
            *steps -= 1;
            let (position, chunk, number) = self.clock.hand;
            let Some(id) = self.layers.get(position).map(|layer| layer.id) else {
                let is_at_rest = !self.clock.has_met && !self.clock.has_news;
                self.clock = Clock { is_at_rest, ..Clock::default() };
                continue;
            };
            let Some(chunk) = self.next_chunk(id, chunk) else {
                self.clock.hand = (position + 1, 0, 0);
                continue;
            };
            let number = if chunk == self.clock.hand.1 { number } else { 0 };
            // Behind the last chunk that a layer can have comes the next layer.
            let behind = chunk.checked_add(1).map_or((position + 1, 0, 0), |next| (position, next, 0));
            self.clock.hand =
                if usize::from(number) + 1 < REGIONS { (position, chunk, number + 1) } else { behind };
            let key = RegionKey { layer: id, chunk, region: number };
            if matches!(self.slot_mut(id, chunk), Some(Slot::Cold(_))) {
                self.clock.hand = behind;
                continue;
            }
            let Some(region) = self.region_mut(key) else { continue };
            let is_in_use = region.pins > 0 || region.writing > 0 || region.is_loading();
            if is_in_use || matches!(region.map, Map::Absent | Map::Empty) {
                continue;
            }
            let was_used = region.is_referenced();
            region.set_referenced(false);
            self.clock.has_met = true;
            if !was_used {
                return Some(key);
            }
        }
        None
    }

    /// Appends the pages of the leaf that holds a chunk, unless this checkpoint has noted them already.
    pub fn note_leaf(&mut self, layer: u64, chunk: u32, checkpoint: u64, out: &mut Vec<u8>) {
        let Some(position) = self.layer_position(layer) else { return };
        let leaf = self.layers[position].leaves.get_mut(chunk as usize / LEAF_CHUNKS);
        let Some(Some(leaf)) = leaf else { return };
        if leaf.noted_checkpoint == checkpoint {
            return;
        }
        leaf.noted_checkpoint = checkpoint;
        let first = chunk - chunk % LEAF_CHUNKS as u32;
        for (index, slot) in leaf.chunks.iter().enumerate() {
            let pages = match slot {
                Slot::None => continue,
                Slot::Cold(pages) => **pages,
                Slot::Warm(chunk) => std::array::from_fn(|number| chunk.regions[number].page),
            };
            for (number, page) in pages.into_iter().enumerate().filter(|(_, page)| !page.is_none()) {
                encode_page_record(layer, first + index as u32, number as u8, page, out);
            }
        }
    }

    /// Visits every page of every layer.
    pub fn for_each_page(&self, mut visit: impl FnMut(RegionKey, PageRef)) {
        for layer in &self.layers {
            for (at, leaf) in layer.leaves.iter().enumerate() {
                for (index, slot) in leaf.iter().flat_map(|leaf| leaf.chunks.iter()).enumerate() {
                    let pages = match slot {
                        Slot::None => continue,
                        Slot::Cold(pages) => **pages,
                        Slot::Warm(chunk) => std::array::from_fn(|number| chunk.regions[number].page),
                    };
                    let chunk = (at * LEAF_CHUNKS + index) as u32;
                    for (number, page) in pages.into_iter().enumerate().filter(|(_, page)| !page.is_none()) {
                        visit(RegionKey { layer: layer.id, chunk, region: number as u8 }, page);
                    }
                }
            }
        }
    }

    /// Appends the pages of up to `leaves` leaves that this checkpoint has not noted, from a cursor on. Returns
    /// whether all are noted.
    pub fn note_leaves(
        &mut self,
        cursor: &mut (usize, usize),
        leaves: usize,
        checkpoint: u64,
        out: &mut Vec<u8>,
    ) -> bool {
        for _ in 0..leaves {
            let Some(layer) = self.layers.get(cursor.0) else { return true };
            if cursor.1 >= layer.leaves.len() {
                *cursor = (cursor.0 + 1, 0);
                continue;
            }
            let (id, chunk) = (layer.id, (cursor.1 * LEAF_CHUNKS) as u32);
            self.note_leaf(id, chunk, checkpoint, out);
            cursor.1 += 1;
        }
        false
    }
}

/// Bytes of a page record in a checkpoint.
pub const PAGE_RECORD_BYTES: usize = 24;

/// Appends where a region's page lies.
pub fn encode_page_record(layer: u64, chunk: u32, region: u8, page: PageRef, out: &mut Vec<u8>) {
    out.extend_from_slice(&layer.to_le_bytes());
    out.extend_from_slice(&chunk.to_le_bytes());
    out.extend_from_slice(&[region, 0, 0, 0]);
    out.extend_from_slice(&page.0.to_le_bytes());
}

/// Reads a page record.
pub fn decode_page_record(bytes: &[u8]) -> Option<(RegionKey, PageRef)> {
    let layer = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
    let chunk = u32::from_le_bytes(bytes.get(8..12)?.try_into().ok()?);
    let region = *bytes.get(12)?;
    let page = u64::from_le_bytes(bytes.get(16..24)?.try_into().ok()?);
    (usize::from(region) < REGIONS).then_some((RegionKey { layer, chunk, region }, PageRef(page)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index_run::Run;

    #[test]
    fn chunks_that_hold_nothing_leave_nothing_behind() {
        let mut index = Index::default();
        let chunks = [0, 1, 63, 64, 1000];
        for chunk in chunks {
            index.region_or_new(RegionKey { layer: 7, chunk, region: 3 }, 0).pins = 1;
            index.cool(7, chunk);
            assert_eq!(index.next_chunk(7, chunk), Some(chunk), "it is pinned");
        }
        // One of the first leaf stays, for it has a page.
        let page = PageRef::new(9, 0, 24);
        index.region_or_new(RegionKey { layer: 7, chunk: 1, region: 0 }, 0).page = page;
        let of_one = CHUNK_MEMORY_BYTES + LEAF_MEMORY_BYTES;
        assert_eq!(index.memory_bytes(), 5 * CHUNK_MEMORY_BYTES + 3 * LEAF_MEMORY_BYTES);
        for chunk in chunks {
            index.region_or_new(RegionKey { layer: 7, chunk, region: 3 }, 0).pins = 0;
            assert_eq!(index.drop_chunk_if_empty(7, chunk), chunk != 1);
        }
        assert_eq!((index.memory_bytes(), index.next_chunk(7, 0)), (of_one, Some(1)));
        index.region_or_new(RegionKey { layer: 7, chunk: 1, region: 0 }, 0).page = PageRef::default();
        index.cool(7, 1);
        assert_eq!((index.memory_bytes(), index.next_chunk(7, 0)), (0, None));
        index.remove_layer(7);
        assert_eq!(index.memory_bytes(), 0);
    }

    /// A complete region, or one of which only the places are left.
    fn put(index: &mut Index, chunk: u32, is_complete: bool) {
        let region = index.region_or_new(RegionKey { layer: 7, chunk, region: 0 }, 0);
        region.map = Map::One(Run::new(0, 1, 9));
        region.page = PageRef::new(9, 0, 24);
        if is_complete {
            region.add_checksums();
        }
    }

    #[test]
    fn regions_that_may_go_are_found_when_they_are_not_used_for_a_round() {
        let mut index = Index::default();
        let key = |chunk| Some(RegionKey { layer: 7, chunk, region: 0 });
        (0..3).for_each(|chunk| put(&mut index, chunk, chunk != 2));
        index.region_or_new(RegionKey { layer: 7, chunk: 0, region: 0 }, 0).set_referenced(true);
        let mut steps = 100;
        let found = [(); 4].map(|()| index.next_idle(&mut steps));
        assert_eq!(found, [key(1), key(2), key(0), key(1)]);
    }

    /// A round was made again and again while nothing could be found, a multiple of what it takes for each turn of the shard.
    #[test]
    fn after_a_round_in_vain_nothing_is_looked_at_before_something_has_changed() {
        const CHUNKS: u32 = 100;
        let mut index = Index::default();
        let key = RegionKey { layer: 7, chunk: CHUNKS / 2, region: 0 };
        for chunk in 0..CHUNKS {
            put(&mut index, chunk, true);
            index.region_or_new(RegionKey { layer: 7, chunk, region: 0 }, 0).pins = 1;
        }
        let mut steps = 10_000;
        assert_eq!(index.next_idle(&mut steps), None);
        assert!(steps > 9_000, "{steps} steps are left of one round");
        let before = steps;
        assert_eq!((index.next_idle(&mut steps), steps), (None, before));
        // In the middle of a round, behind its hand.
        index.look_again();
        steps = 300;
        assert_eq!((index.next_idle(&mut steps), steps), (None, 0));
        index.region_or_new(key, 0).pins = 0;
        index.look_again();
        steps = 1_000;
        assert_eq!(index.next_idle(&mut steps), Some(key));
        index.region_or_new(key, 0).pins = 1;
        assert_eq!((index.next_idle(&mut steps), index.next_idle(&mut steps)), (None, None));
        assert!(steps > 0, "it has given up");
    }

    /// The last look-up is remembered; layers change their positions when others go.
    #[test]
    fn layers_are_found_where_they_have_moved_to() {
        let mut index = Index::default();
        for id in [7, 8, 9] {
            index.layer_mut(id);
            assert_eq!(index.layer_position(id), Some(id as usize - 7));
        }
        assert_eq!(index.layer_position(9), Some(2));
        index.remove_layer(7);
        assert_eq!([7, 8, 9, 0].map(|id| index.layer_position(id)), [None, Some(1), Some(0), None]);
        index.remove_layer(9);
        assert_eq!([9, 8, 9].map(|id| index.layer_position(id)), [None, Some(0), None]);
        assert_eq!(index.layers()[0].id, 8);
    }
}
