//! Who needs copies most.

use std::collections::BinaryHeap;

use crate::stripe::mix;

/// Counts of things, what they should be, and, per bucket of things, who is furthest below.
///
/// Heaps hold entries of the past too: one counts only if its need is still as it says.
pub(super) struct Needs {
    want: Vec<u32>,
    have: Vec<u32>,
    bucket: Vec<u32>,
    heaps: Vec<BinaryHeap<Entry>>,
    salt: u64,
}

/// (part of the wanted that is missing, thing, how many are missing)
type Entry = (u64, u32, u32);

impl Needs {
    pub(super) fn new(want: Vec<u32>, bucket: Vec<u32>, buckets: usize, salt: u64) -> Needs {
        let have = vec![0; want.len()];
        let mut needs = Needs { want, have, bucket, heaps: vec![BinaryHeap::new(); buckets], salt };
        (0..needs.want.len()).for_each(|index| needs.push(index));
        needs
    }

    /// Starts over with what there is now; what is added and removed before that costs no heap.
    pub(super) fn set_have(&mut self, have: Vec<u32>) {
        self.have = have;
        self.heaps.iter_mut().for_each(BinaryHeap::clear);
        (0..self.want.len()).for_each(|index| self.push(index));
    }

    pub(super) fn missing(&self, index: usize) -> u32 {
        self.want[index].saturating_sub(self.have[index])
    }

    pub(super) fn excess(&self, index: usize) -> u32 {
        self.have[index].saturating_sub(self.want[index])
    }

    pub(super) fn add(&mut self, index: usize) {
        self.have[index] += 1;
        self.push(index);
    }

    pub(super) fn remove(&mut self, index: usize) {
        self.have[index] -= 1;
        self.push(index);
    }

    fn push(&mut self, index: usize) {
        let missing = self.missing(index);
        if missing > 0 {
            // Each copy's turn comes at a random moment of its share of the time, so that partners differ.
            let random = mix(self.salt ^ ((index as u64) << 32) ^ u64::from(missing)) >> 40;
            let part = ((u64::from(missing) << 24) - random) / u64::from(self.want[index]);
            self.heaps[self.bucket[index] as usize].push((part, index as u32, missing));
        }
    }

    /// The neediest thing of a bucket that is allowed.
    pub(super) fn neediest(&mut self, bucket: usize, mut allowed: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut passed_over = Vec::new();
        let mut found = None;
        while let Some(entry) = self.heaps[bucket].pop() {
            if entry.2 != self.missing(entry.1 as usize) {
                continue;
            }
            passed_over.push(entry);
            if allowed(entry.1) {
                found = Some(entry.1);
                break;
            }
        }
        // What was found stays until its count changes.
        self.heaps[bucket].extend(passed_over);
        found
    }
}
