//! Pseudo-random numbers from a seed, and offsets made of them.

use crate::config::Range;

/// xoshiro256** by Blackman and Vigna, seeded with splitmix64.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: [u64; 4],
}

impl Random {
    pub fn new(seed: u64) -> Self {
        let mut counter = seed;
        let state = std::array::from_fn(|_| {
            counter = counter.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = counter;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ (mixed >> 31)
        });
        Random { state }
    }

    pub fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        result
    }

    /// Uniform in `0..bound`; the bias is below 2^-40 for every bound in use here.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }
}

/// Offsets of one job's operations.
#[derive(Clone, Debug)]
pub(crate) struct Offsets {
    range: Range,
    io_bytes: u64,
    positions: u64,
    next: u64,
    random: Option<Random>,
}

impl Offsets {
    /// Sequential from the start of the range, around and around.
    pub fn sequential(range: Range, io_bytes: u32) -> Self {
        let io_bytes = u64::from(io_bytes);
        let positions = range.length_bytes / io_bytes;
        assert!(positions > 0, "a range holds an operation");
        Offsets { range, io_bytes, positions, next: 0, random: None }
    }

    /// Uniformly random over the aligned positions of the range.
    pub fn random(range: Range, io_bytes: u32, seed: u64) -> Self {
        Offsets { random: Some(Random::new(seed)), ..Self::sequential(range, io_bytes) }
    }

    pub fn next(&mut self) -> u64 {
        let position = match &mut self.random {
            Some(random) => random.below(self.positions),
            None => {
                let position = self.next;
                self.next = if position + 1 == self.positions { 0 } else { position + 1 };
                position
            }
        };
        self.range.offset_bytes + position * self.io_bytes
    }
}

/// Part `job` of a range that is split among `jobs`; the last one takes the rest.
pub(crate) fn split(range: Range, io_bytes: u32, jobs: u32, job: u32) -> Range {
    let positions = range.length_bytes / u64::from(io_bytes);
    let share = positions / u64::from(jobs);
    let mine = if job + 1 == jobs { positions - share * u64::from(job) } else { share };
    Range {
        offset_bytes: range.offset_bytes + share * u64::from(job) * u64::from(io_bytes),
        length_bytes: mine * u64::from(io_bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANGE: Range = Range { offset_bytes: 8192, length_bytes: 10 * 4096 };

    #[test]
    fn sequential_offsets_go_around() {
        let mut offsets = Offsets::sequential(RANGE, 4096);
        let first: Vec<u64> = (0..11).map(|_| offsets.next()).collect();
        assert_eq!(first[..3], [8192, 12_288, 16_384]);
        assert_eq!(first[10], 8192);
    }

    #[test]
    fn random_offsets_are_aligned_inside_and_even() {
        let mut offsets = Offsets::random(RANGE, 4096, 5);
        let mut counts = [0u32; 10];
        for _ in 0..10_000 {
            let offset = offsets.next() - RANGE.offset_bytes;
            assert!(offset.is_multiple_of(4096));
            counts[(offset / 4096) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
        let again: Vec<u64> = (0..5).map(|_| Offsets::random(RANGE, 4096, 5).next()).collect();
        assert!(again.iter().all(|offset| *offset == again[0]), "the same seed gives the same offsets");
    }

    #[test]
    fn parts_cover_the_range() {
        let parts: Vec<Range> = (0..3).map(|job| split(RANGE, 4096, 3, job)).collect();
        assert_eq!(parts.iter().map(|part| part.length_bytes).sum::<u64>(), RANGE.length_bytes);
        assert_eq!(parts[0].end_bytes(), parts[1].offset_bytes);
        assert_eq!(parts[2].end_bytes(), RANGE.end_bytes());
    }
}
