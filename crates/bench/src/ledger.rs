//! What was written where, so that a run, or somebody after a crash, can check every block.
//!
//! Invariants:
//! - each job has its own part, so the newest acknowledged version of a block is known exactly;
//! - a block takes one operation at a time: one with a pending mark is left alone;
//! - a write that failed or never came back leaves its mark: the block may hold the old or the new version.

use coquina_base::BLOCK_BYTES;

use crate::config::Range;
use crate::payload::{Payload, PayloadError};

/// Mark of a block that is being read.
const READING: u64 = u64::MAX;
/// Mismatches that are described; the others are only counted.
const DESCRIBED_MAX: usize = 8;

/// One job's part of the record: 16 bytes per block.
pub(crate) struct LedgerPart {
    range: Range,
    /// Newest acknowledged version, or 0 where nothing is known.
    acknowledged: Vec<u64>,
    /// Version of a write that has not been acknowledged, [`READING`], or 0.
    pending: Vec<u64>,
}

impl LedgerPart {
    /// `filled` is the version that the fill left everywhere, or 0.
    pub fn new(range: Range, filled: u64) -> Self {
        let blocks = (range.length_bytes / BLOCK_BYTES as u64) as usize;
        LedgerPart { range, acknowledged: vec![filled; blocks], pending: vec![0; blocks] }
    }

    fn blocks(&self, offset_bytes: u64, length_bytes: u32) -> std::ops::Range<usize> {
        assert!(offset_bytes >= self.range.offset_bytes, "an operation lies in its job's part");
        let first = ((offset_bytes - self.range.offset_bytes) / BLOCK_BYTES as u64) as usize;
        first..first + length_bytes as usize / BLOCK_BYTES
    }

    /// Whether an operation may go there now.
    pub fn is_free(&self, offset_bytes: u64, length_bytes: u32) -> bool {
        self.pending[self.blocks(offset_bytes, length_bytes)].iter().all(|mark| *mark == 0)
    }

    /// A write goes out.
    pub fn write_begins(&mut self, offset_bytes: u64, length_bytes: u32, version: u64) {
        let blocks = self.blocks(offset_bytes, length_bytes);
        self.pending[blocks].fill(version);
    }

    /// A write was acknowledged.
    pub fn write_done(&mut self, offset_bytes: u64, length_bytes: u32) {
        for block in self.blocks(offset_bytes, length_bytes) {
            self.acknowledged[block] = self.pending[block];
            self.pending[block] = 0;
        }
    }

    /// A read goes out.
    pub fn read_begins(&mut self, offset_bytes: u64, length_bytes: u32) {
        let blocks = self.blocks(offset_bytes, length_bytes);
        self.pending[blocks].fill(READING);
    }

    /// A read came back, with or without success.
    pub fn read_done(&mut self, offset_bytes: u64, length_bytes: u32) {
        let blocks = self.blocks(offset_bytes, length_bytes);
        self.pending[blocks].fill(0);
    }

    /// Checks what a read gave.
    pub fn check(&self, payload: &Payload, offset_bytes: u64, data: &[u8], found: &mut Findings) {
        for (block, data) in self.blocks(offset_bytes, data.len() as u32).zip(data.chunks_exact(BLOCK_BYTES))
        {
            let address = self.range.offset_bytes + (block * BLOCK_BYTES) as u64;
            let (newest, pending) = (self.acknowledged[block], self.pending[block]);
            let maybe = if pending == READING { 0 } else { pending };
            if newest == 0 {
                continue;
            }
            found.blocks_checked += 1;
            match payload.check(data, address) {
                Ok(version) if version == newest || (maybe != 0 && version == maybe) => {}
                Ok(version) => found.add(format!(
                    "block at byte {address}: an older or foreign write is there (version {version:#x}, \
                     acknowledged {newest:#x})"
                )),
                Err(PayloadError::Address(named)) => found.add(format!(
                    "block at byte {address}: not what was written there (its stamp is {named:#x}, acknowledged \
                     version {newest:#x})"
                )),
                Err(PayloadError::Body(byte)) => {
                    found.add(format!("block at byte {address}: damaged from its byte {byte} on"));
                }
            }
        }
    }
}

/// What was written where by a run with `verify`.
pub struct Ledger {
    pub(crate) seed: u64,
    pub(crate) parts: Vec<LedgerPart>,
}

impl Ledger {
    /// The range that it covers.
    pub(crate) fn range(&self) -> Option<Range> {
        let (first, last) = (self.parts.first()?.range, self.parts.last()?.range);
        let length_bytes = last.end_bytes() - first.offset_bytes;
        Some(Range { offset_bytes: first.offset_bytes, length_bytes })
    }

    /// Blocks with an acknowledged write.
    pub fn blocks_acknowledged(&self) -> u64 {
        self.parts.iter().flat_map(|part| &part.acknowledged).filter(|version| **version != 0).count() as u64
    }

    /// Blocks with a write of unknown outcome.
    pub fn blocks_uncertain(&self) -> u64 {
        self.parts.iter().flat_map(|part| &part.pending).filter(|mark| !matches!(**mark, 0 | READING)).count()
            as u64
    }

    pub(crate) fn check(&self, payload: &Payload, offset_bytes: u64, data: &[u8], found: &mut Findings) {
        let mut at = offset_bytes;
        let mut rest = data;
        for part in &self.parts {
            if rest.is_empty() || at >= part.range.end_bytes() {
                continue;
            }
            let take = (part.range.end_bytes() - at).min(rest.len() as u64) as usize;
            let (mine, later) = rest.split_at(take);
            part.check(payload, at, mine, found);
            at += take as u64;
            rest = later;
        }
    }
}

/// What a check has found.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Findings {
    /// Blocks compared.
    pub blocks_checked: u64,
    /// Blocks that hold something else than they must.
    pub mismatches: u64,
    /// The first few of them.
    pub described: Vec<String>,
}

impl Findings {
    fn add(&mut self, text: String) {
        self.mismatches += 1;
        if self.described.len() < DESCRIBED_MAX {
            self.described.push(text);
        }
    }

    pub(crate) fn merge(&mut self, other: Findings) {
        self.blocks_checked += other.blocks_checked;
        self.mismatches += other.mismatches;
        let room = DESCRIBED_MAX - self.described.len().min(DESCRIBED_MAX);
        self.described.extend(other.described.into_iter().take(room));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::stamp;

    const BLOCK: u32 = BLOCK_BYTES as u32;

    fn written(payload: &Payload, address: u64, version: u64) -> Vec<u8> {
        let mut data = vec![0; BLOCK_BYTES];
        payload.fill(&mut data, 0);
        stamp(&mut data, 0, address, version);
        data
    }

    #[test]
    fn a_lost_write_is_found_and_an_uncertain_one_may_be_either() {
        let payload = Payload::new(1);
        let mut part = LedgerPart::new(Range { offset_bytes: 0, length_bytes: 8 * 4096 }, 5);
        part.write_begins(4096, BLOCK, 6);
        assert!(!part.is_free(4096, BLOCK));
        assert!(part.is_free(8192, BLOCK));
        let count = |part: &LedgerPart, data: &[u8]| {
            let mut found = Findings::default();
            part.check(&payload, 4096, data, &mut found);
            assert_eq!(found.blocks_checked, 1);
            found.mismatches
        };
        assert_eq!(count(&part, &written(&payload, 4096, 5)), 0);
        assert_eq!(count(&part, &written(&payload, 4096, 6)), 0);
        assert_eq!(count(&part, &written(&payload, 4096, 4)), 1);
        part.write_done(4096, BLOCK);
        assert_eq!(count(&part, &written(&payload, 4096, 5)), 1);
        assert_eq!(count(&part, &written(&payload, 4096, 6)), 0);
        assert_eq!(count(&part, &written(&payload, 8192, 6)), 1);
        assert_eq!(count(&part, &[0; 4096]), 1);
    }

    #[test]
    fn a_check_goes_across_parts() {
        let payload = Payload::new(1);
        let part = |start| LedgerPart::new(Range { offset_bytes: start, length_bytes: 4096 }, 3);
        let ledger = Ledger { seed: 1, parts: vec![part(0), part(4096)] };
        let data = [written(&payload, 0, 3), written(&payload, 4096, 2)].concat();
        let mut found = Findings::default();
        ledger.check(&payload, 0, &data, &mut found);
        assert_eq!((found.blocks_checked, found.mismatches), (2, 1));
        assert_eq!(ledger.blocks_acknowledged(), 2);
    }
}
