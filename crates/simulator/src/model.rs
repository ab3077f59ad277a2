//! The plain reference model: what every block of every layer may hold.
//!
//! Invariants:
//! - requests are entered before the engine sees them and answered when the engine answers;
//! - blocks are kept in the order of their addresses, so that runs are repeatable.

mod block;

use std::collections::BTreeMap;

use coquina_base::{BLOCK_BYTES, CHUNK_BLOCKS, SECTOR_BYTES};
use coquina_engine::{MapExtent, MapKind};

use block::{BlockModel, Contradiction, Effect};

use crate::content::{BLOCK_SECTORS, BlockState, GARBAGE, SectorPlace, Version, read_sector};
use crate::violation::Violation;

/// A part of one chunk, in bytes; both are multiples of 512.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// Layer.
    pub layer: u64,
    /// Chunk of the layer.
    pub chunk: u32,
    /// First byte of the chunk.
    pub offset_bytes: u32,
    /// How many bytes.
    pub length_bytes: u32,
}

impl Span {
    /// Blocks touched: the first and the one after the last.
    pub fn blocks(&self) -> std::ops::Range<u32> {
        let end = self.offset_bytes + self.length_bytes;
        self.offset_bytes / BLOCK_BYTES as u32..end.div_ceil(BLOCK_BYTES as u32)
    }

    /// The whole blocks of it, if it has any.
    pub fn whole_blocks(&self) -> Option<Span> {
        let block = BLOCK_BYTES as u32;
        let offset_bytes = self.offset_bytes.next_multiple_of(block);
        let end = (self.offset_bytes + self.length_bytes) / block * block;
        (offset_bytes < end).then(|| Span { offset_bytes, length_bytes: end - offset_bytes, ..*self })
    }

    /// Whether it is of whole blocks.
    pub fn is_aligned(&self) -> bool {
        self.whole_blocks() == Some(*self)
    }

    /// Where the first sector lies.
    pub fn place(&self) -> SectorPlace {
        SectorPlace { layer: self.layer, chunk: self.chunk, sector: self.offset_bytes / SECTOR_BYTES as u32 }
    }

    /// The sectors of one of its blocks that it touches, a bit each.
    pub fn mask(&self, block: u32) -> u8 {
        let first = (self.offset_bytes / SECTOR_BYTES as u32) as usize;
        let end = first + self.length_bytes as usize / SECTOR_BYTES;
        let start_of_block = block as usize * BLOCK_SECTORS;
        (0..BLOCK_SECTORS)
            .filter(|sector| (first..end).contains(&(start_of_block + sector)))
            .fold(0, |mask, sector| mask | 1 << sector)
    }
}

/// What a read brought that cannot be right.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WrongData {
    /// Layer.
    pub layer: u64,
    /// Chunk.
    pub chunk: u32,
    /// Block of the chunk.
    pub block: u32,
    /// Versions that were read, [`GARBAGE`] for bytes that no write to this place made.
    pub seen: Option<BlockState>,
    /// States that would have been right.
    pub allowed: Vec<BlockState>,
}

impl std::fmt::Display for WrongData {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "layer {} chunk {} block {}: ", self.layer, self.chunk, self.block)?;
        match &self.seen {
            Some(seen) => write!(formatter, "versions {seen:?} were read")?,
            None => write!(formatter, "an answer came that no order of the requests explains")?,
        }
        write!(formatter, ", allowed: {:?} ({GARBAGE} stands for foreign bytes, 0 for zeros)", self.allowed)
    }
}

/// A request entered into the model; given back when it is answered.
#[derive(Debug)]
pub struct Ticket {
    span: Span,
    slots: Vec<u8>,
}

impl Ticket {
    /// The request's span.
    pub fn span(&self) -> &Span {
        &self.span
    }
}

#[derive(Clone, Debug, Default)]
struct Entry {
    block: BlockModel,
    /// May take space on the drive. Never false for a block that does.
    stored: bool,
    /// Zeros whose space the engine promised to keep.
    reserved: bool,
}

#[derive(Clone, Debug)]
struct Chunk {
    entries: Vec<Entry>,
    /// Whether anything was ever ordered here.
    touched: bool,
}

/// How a request was answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer<'a> {
    /// A change is stable.
    Changed,
    /// A change was refused and left everything as it was.
    Refused,
    /// A change failed: it has taken effect, or may have after the next crash.
    Unknown,
    /// A change is over, and nobody knows whether it took effect.
    Either,
    /// Bytes of the whole span.
    Data(&'a [u8]),
}

/// Every layer's blocks.
#[derive(Clone, Debug, Default)]
pub struct Model {
    chunks: BTreeMap<(u64, u32), Chunk>,
    /// Blocks per layer that may take space.
    stored: BTreeMap<u64, u64>,
    spare_slots: Vec<Vec<u8>>,
}

impl Model {
    /// Whether every block of the span can take one more read, or change.
    pub fn has_room(&self, span: &Span, change: bool) -> bool {
        let Some(chunk) = self.chunks.get(&(span.layer, span.chunk)) else { return true };
        span.blocks().all(|block| chunk.entries[block as usize].block.has_room(change))
    }

    /// Enters a read, or a change that sets the span to a version. There must be room.
    pub fn begin(&mut self, span: Span, change: Option<Version>) -> Ticket {
        let mut slots = self.spare_slots.pop().unwrap_or_default();
        slots.clear();
        let chunk = self.chunks.entry((span.layer, span.chunk)).or_insert_with(|| Chunk {
            entries: (0..CHUNK_BLOCKS).map(|_| Entry::default()).collect(),
            touched: false,
        });
        chunk.touched |= change.is_some();
        for block in span.blocks() {
            let entry = &mut chunk.entries[block as usize];
            let effect = match change {
                None => Effect::Read,
                Some(version) => {
                    entry.reserved = false;
                    Effect::Set { mask: span.mask(block), version }
                }
            };
            let slot = entry.block.begin(effect);
            slots.push(slot.unwrap_or_else(|| panic!("no room for an operation on {span:?}")));
        }
        Ticket { span, slots }
    }

    /// Whether nothing is under way on a block.
    pub fn is_quiet(&self, layer: u64, chunk: u32, block: u32) -> bool {
        let chunk = self.chunks.get(&(layer, chunk));
        chunk.is_none_or(|chunk| chunk.entries[block as usize].block.is_quiet())
    }

    /// Whether each block of the span has space promised to it.
    pub fn is_reserved(&self, span: &Span) -> bool {
        let Some(chunk) = self.chunks.get(&(span.layer, span.chunk)) else { return false };
        span.blocks().all(|block| chunk.entries[block as usize].reserved)
    }

    /// Marks whole quiet blocks of an acknowledged zeroing as having space promised.
    pub fn reserve(&mut self, span: &Span) {
        let Some(chunk) = self.chunks.get_mut(&(span.layer, span.chunk)) else { return };
        for block in span.blocks().filter(|block| span.mask(*block) == 0xff) {
            let entry = &mut chunk.entries[block as usize];
            entry.reserved = entry.block.is_quiet();
        }
    }

    /// Answers a request. A change with `stores` takes space; one without frees whole blocks.
    pub fn finish(&mut self, ticket: Ticket, answer: Answer<'_>, stores: bool) -> Result<(), WrongData> {
        let Ticket { span, slots } = ticket;
        let chunk = self.chunks.get_mut(&(span.layer, span.chunk));
        let Some(chunk) = chunk else { panic!("an answer for a chunk that was never asked for") };
        let stored = self.stored.entry(span.layer).or_default();
        for (block, slot) in span.blocks().zip(&slots) {
            let entry = &mut chunk.entries[block as usize];
            let mask = span.mask(block);
            let mut seen = None;
            let result = match answer {
                Answer::Changed => entry.block.finish_change(*slot),
                Answer::Refused => entry.block.finish_refused(*slot),
                Answer::Unknown => {
                    entry.block.finish_unknown(*slot);
                    Ok(())
                }
                Answer::Either => {
                    entry.block.finish_either(*slot);
                    Ok(())
                }
                Answer::Data(bytes) => {
                    let state = read_block(bytes, &span, block);
                    seen = Some(state);
                    entry.block.finish_read(*slot, mask, &state)
                }
            };
            if let Err(Contradiction { allowed }) = result {
                return Err(WrongData { layer: span.layer, chunk: span.chunk, block, seen, allowed });
            }
            let keeps = match answer {
                // A block of which only a part was zeroed is written whole.
                Answer::Changed | Answer::Unknown | Answer::Either if stores || mask != 0xff => true,
                Answer::Changed => entry.stored && !entry.block.is_quiet(),
                _ => entry.stored,
            };
            *stored = *stored + u64::from(keeps) - u64::from(entry.stored);
            entry.stored = keeps;
        }
        self.spare_slots.push(slots);
        Ok(())
    }

    /// Ends a read that failed.
    pub fn abandon_read(&mut self, ticket: Ticket) {
        let span = ticket.span;
        if let Some(chunk) = self.chunks.get_mut(&(span.layer, span.chunk)) {
            for (block, slot) in span.blocks().zip(&ticket.slots) {
                chunk.entries[block as usize].block.finish_nothing(*slot);
            }
        }
        self.spare_slots.push(ticket.slots);
    }

    /// Says that the span's bytes are zeros, as a map of extents did.
    pub fn finish_map(&mut self, ticket: Ticket, zeros: &[bool]) -> Result<(), WrongData> {
        let Ticket { span, slots } = ticket;
        let chunk = self.chunks.get_mut(&(span.layer, span.chunk));
        let Some(chunk) = chunk else { panic!("an answer for a chunk that was never asked for") };
        let first = span.offset_bytes as usize / SECTOR_BYTES;
        for (block, slot) in span.blocks().zip(&slots) {
            let mask = (0..BLOCK_SECTORS).fold(0u8, |mask, sector| {
                let index = (block as usize * BLOCK_SECTORS + sector).checked_sub(first);
                let zero = index.and_then(|index| zeros.get(index)).copied().unwrap_or(false);
                mask | u8::from(zero) << sector
            });
            let entry = &mut chunk.entries[block as usize];
            if let Err(Contradiction { allowed }) = entry.block.finish_read(*slot, mask, &[0; BLOCK_SECTORS])
            {
                let seen = Some([0; BLOCK_SECTORS]);
                return Err(WrongData { layer: span.layer, chunk: span.chunk, block, seen, allowed });
            }
        }
        self.spare_slots.push(slots);
        Ok(())
    }

    /// Everything under way ends: each change of each block has happened or has not.
    pub fn crash(&mut self) {
        for ((layer, _), chunk) in &mut self.chunks {
            let stored = self.stored.entry(*layer).or_default();
            for entry in &mut chunk.entries {
                if !entry.block.is_quiet() {
                    *stored += u64::from(!entry.stored);
                    entry.stored = true;
                }
                entry.block.crash();
            }
        }
    }

    /// Spans that cover every chunk of a layer that was ever asked for, whole.
    pub fn layer_spans(&self, layer: u64) -> Vec<Span> {
        let chunks = self.chunks.range((layer, 0)..=(layer, u32::MAX));
        chunks.map(|((layer, chunk), _)| whole_chunk(*layer, *chunk)).collect()
    }

    /// Spans that cover every chunk ever changed, whole.
    pub fn touched_spans(&self) -> Vec<Span> {
        let touched = self.chunks.iter().filter(|(_, chunk)| chunk.touched);
        touched.map(|((layer, chunk), _)| whole_chunk(*layer, *chunk)).collect()
    }

    /// Forgets a layer that is gone for good, once it has been seen to be zeros.
    pub fn forget_layer(&mut self, layer: u64) {
        let chunks: Vec<_> = self.chunks.range((layer, 0)..=(layer, u32::MAX)).map(|(key, _)| *key).collect();
        for key in chunks {
            self.chunks.remove(&key);
        }
        self.stored.remove(&layer);
    }

    /// Blocks of a layer that may take space: never fewer than do.
    pub fn stored_blocks(&self, layer: u64) -> u64 {
        self.stored.get(&layer).copied().unwrap_or(0)
    }

    /// What a block may hold.
    pub fn possible(&self, layer: u64, chunk: u32, block: u32) -> Vec<BlockState> {
        let chunk = self.chunks.get(&(layer, chunk));
        chunk.map_or_else(|| vec![[0; BLOCK_SECTORS]], |chunk| chunk.entries[block as usize].block.possible())
    }
}

/// Which sectors of a span a map of it calls zeros.
pub fn zeros_of(span: &Span, extents: &[MapExtent]) -> Result<Vec<bool>, Violation> {
    let wrong = || Violation::WrongAnswer(format!("{span:?} was mapped as {extents:?}"));
    let mut zeros = Vec::new();
    for extent in extents {
        let length_bytes = extent.length_bytes as usize;
        if length_bytes == 0 || !length_bytes.is_multiple_of(SECTOR_BYTES) {
            return Err(wrong());
        }
        zeros.resize(zeros.len() + length_bytes / SECTOR_BYTES, extent.kind != MapKind::Data);
    }
    if zeros.len() * SECTOR_BYTES == span.length_bytes as usize { Ok(zeros) } else { Err(wrong()) }
}

/// The versions that the bytes of a span hold in one of its blocks; sectors outside are 0.
pub fn read_block(bytes: &[u8], span: &Span, block: u32) -> BlockState {
    let mask = span.mask(block);
    let mut state = [0; BLOCK_SECTORS];
    for (index, version) in state.iter_mut().enumerate().filter(|(index, _)| mask & (1 << index) != 0) {
        let sector = block * BLOCK_SECTORS as u32 + index as u32;
        let start = sector as usize * SECTOR_BYTES - span.offset_bytes as usize;
        let place = SectorPlace { layer: span.layer, chunk: span.chunk, sector };
        *version = read_sector(&bytes[start..start + SECTOR_BYTES], place);
    }
    state
}

fn whole_chunk(layer: u64, chunk: u32) -> Span {
    Span { layer, chunk, offset_bytes: 0, length_bytes: CHUNK_BLOCKS * BLOCK_BYTES as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::fill;

    fn span(offset_bytes: u32, length_bytes: u32) -> Span {
        Span { layer: 1, chunk: 2, offset_bytes, length_bytes }
    }

    #[test]
    fn masks_cover_the_sectors_of_a_span() {
        let part = span(3584, 1536);
        assert_eq!(part.blocks(), 0..2);
        assert_eq!((part.mask(0), part.mask(1)), (0b1000_0000, 0b11));
        assert_eq!(span(4096, 8192).mask(2), 0xff);
    }

    #[test]
    fn writes_of_sectors_are_merged_and_read_back() {
        let mut model = Model::default();
        let write = model.begin(span(512, 1024), Some(7));
        model.finish(write, Answer::Changed, true).unwrap();
        let mut bytes = vec![0; 4096];
        fill(&mut bytes[512..1536], 7, span(512, 1024).place());
        let read = model.begin(span(0, 4096), None);
        model.finish(read, Answer::Data(&bytes), false).unwrap();
        bytes[600] ^= 1;
        let read = model.begin(span(0, 4096), None);
        let wrong = model.finish(read, Answer::Data(&bytes), false).unwrap_err();
        assert_eq!(wrong.seen, Some([0, GARBAGE, 7, 0, 0, 0, 0, 0]));
        assert_eq!(wrong.allowed, vec![[0, 7, 7, 0, 0, 0, 0, 0]]);
    }

    #[test]
    fn space_is_counted_from_above() {
        let mut model = Model::default();
        let write = model.begin(span(0, 8192), Some(1));
        model.finish(write, Answer::Changed, true).unwrap();
        assert_eq!(model.stored_blocks(1), 2);
        let trim = model.begin(span(0, 4096), Some(0));
        model.finish(trim, Answer::Changed, false).unwrap();
        assert_eq!(model.stored_blocks(1), 1);
        model.begin(span(0, 4096), Some(2));
        model.crash();
        assert_eq!(model.stored_blocks(1), 2);
        model.forget_layer(1);
        assert_eq!(model.stored_blocks(1), 0);
    }

    #[test]
    fn extents_called_zeros_must_be_zeros() {
        let mut model = Model::default();
        let write = model.begin(span(4096, 4096), Some(1));
        model.finish(write, Answer::Changed, true).unwrap();
        let right: Vec<bool> = (0..16).map(|sector| sector < 8).collect();
        let map = model.begin(span(0, 8192), None);
        model.finish_map(map, &right).unwrap();
        let map = model.begin(span(0, 8192), None);
        assert!(model.finish_map(map, &[true; 16]).is_err());
    }
}
