//! Blocks of one chunk, as a set.
//!
//! Each set has one form only, so sets are equal where their forms are: there is no bitmap where a few runs do.

use std::iter::successors;
use std::sync::Arc;

use coquina_base::CHUNK_BLOCKS;

const WORD_BLOCKS: u32 = u64::BITS;
const WORDS: usize = (CHUNK_BLOCKS / WORD_BLOCKS) as usize;
const _: () = assert!(CHUNK_BLOCKS % WORD_BLOCKS == 0 && CHUNK_BLOCKS <= u16::MAX as u32);
/// Most runs without a bitmap: as many as take no more place than the pointer to one.
const FEW: usize = 3;

/// A bit for each block of a chunk.
pub(super) type Bits = [u64; WORDS];

/// Its first block and the one after its last; both 0 if it is none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub(super) struct Run {
    first: u16,
    end: u16,
}

/// Blocks of one chunk.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Blocks {
    /// Few runs, in order, then none. So it is for a whole chunk and for a single block.
    Few([Run; FEW]),
    /// More runs. Shared by clones until one of them changes.
    Many(Arc<Bits>),
}

impl Default for Blocks {
    fn default() -> Blocks {
        Blocks::Few([Run::default(); FEW])
    }
}

/// The words that a range of a chunk's blocks is in, each with the bits of these blocks.
fn masks(first: u32, end: u32) -> impl Iterator<Item = (usize, u64)> {
    let words = first / WORD_BLOCKS..end.min(CHUNK_BLOCKS).div_ceil(WORD_BLOCKS);
    words.map(move |word| {
        let start = word * WORD_BLOCKS;
        let from = first.max(start) - start;
        let count = end.min(start + WORD_BLOCKS).saturating_sub(start + from);
        (word as usize, u64::MAX.checked_shr(WORD_BLOCKS - count).unwrap_or(0) << from)
    })
}

fn bits_of(runs: &[Run]) -> Bits {
    let mut bits: Bits = [0; WORDS];
    for run in runs {
        masks(run.first.into(), run.end.into()).for_each(|(word, mask)| bits[word] |= mask);
    }
    bits
}

/// The first block from `from` on that is in the set, or is not; the chunk's end if there is none.
fn next(bits: &Bits, from: u32, in_set: bool) -> u32 {
    let mut from = from;
    while from < CHUNK_BLOCKS {
        let invert = if in_set { 0 } else { u64::MAX };
        let left = (bits[(from / WORD_BLOCKS) as usize] ^ invert) >> (from % WORD_BLOCKS);
        if left != 0 {
            return from + left.trailing_zeros();
        }
        from = (from / WORD_BLOCKS + 1) * WORD_BLOCKS;
    }
    CHUNK_BLOCKS
}

fn next_run(bits: &Bits, from: u32) -> Option<(u32, u32)> {
    let first = next(bits, from, true);
    (first < CHUNK_BLOCKS).then(|| (first, next(bits, first, false)))
}

/// The runs of a bitmap, in order, if there are few.
fn few(bits: &Bits) -> Option<Blocks> {
    let mut runs = [Run::default(); FEW];
    let mut end = 0;
    for run in &mut runs {
        let Some((first, run_end)) = next_run(bits, end) else { break };
        *run = Run { first: first as u16, end: run_end as u16 };
        end = run_end;
    }
    next_run(bits, end).is_none().then_some(Blocks::Few(runs))
}

impl Blocks {
    fn of(bits: Bits) -> Blocks {
        few(&bits).unwrap_or_else(|| Blocks::Many(Arc::new(bits)))
    }

    /// What is left of the first run that has a block from `from` on: its first block and the one after its last.
    pub fn next_run(&self, from: u32) -> Option<(u32, u32)> {
        let (first, end) = match self {
            Blocks::Few(runs) => {
                let run = runs.iter().find(|run| u32::from(run.end) > from)?;
                (u32::from(run.first), u32::from(run.end))
            }
            Blocks::Many(bits) => next_run(bits, from)?,
        };
        Some((first.max(from), end))
    }

    /// The runs, in order: the first block of each and the one after its last.
    pub fn runs(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        successors(self.next_run(0), move |(_, end)| self.next_run(*end))
    }

    pub fn is_empty(&self) -> bool {
        self.next_run(0).is_none()
    }

    /// Adds the blocks of a range. Gives how many were not there.
    pub fn insert(&mut self, first: u32, end: u32) -> u64 {
        assert!(end <= CHUNK_BLOCKS, "blocks of a chunk");
        self.change(first, end, true)
    }

    /// Takes out the blocks of a range. Gives how many were there.
    pub fn remove(&mut self, first: u32, end: u32) -> u64 {
        self.change(first, end, false)
    }

    fn change(&mut self, first: u32, end: u32, insert: bool) -> u64 {
        let invert = if insert { u64::MAX } else { 0 };
        let flip = |bits: &mut Bits| {
            masks(first, end).for_each(|(word, mask)| bits[word] ^= (bits[word] ^ invert) & mask);
        };
        let to_flip = |bits: &Bits| -> u64 {
            masks(first, end).map(|(word, mask)| u64::from(((bits[word] ^ invert) & mask).count_ones())).sum()
        };
        match self {
            Blocks::Many(bits) => {
                let changed = to_flip(bits);
                // What is shared is not copied for nothing.
                if changed > 0 {
                    flip(Arc::make_mut(bits));
                    if let Some(few) = few(bits) {
                        *self = few;
                    }
                }
                changed
            }
            Blocks::Few(runs) => {
                let mut bits = bits_of(runs);
                let changed = to_flip(&bits);
                flip(&mut bits);
                *self = Blocks::of(bits);
                changed
            }
        }
    }
}
