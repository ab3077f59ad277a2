//! Random numbers from a seed: xoshiro256++ seeded by splitmix64. Never the operating system's entropy.

/// A stream of random numbers; the same seed gives the same stream on every machine.
#[derive(Clone, Debug)]
pub struct Random {
    state: [u64; 4],
}

impl Random {
    /// The stream of this seed.
    pub fn new(seed: u64) -> Self {
        let mut mixer = seed;
        Random { state: std::array::from_fn(|_| splitmix(&mut mixer)) }
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let state = &mut self.state;
        let result = state[0].wrapping_add(state[3]).rotate_left(23).wrapping_add(state[0]);
        let shifted = state[1] << 17;
        state[2] ^= state[0];
        state[3] ^= state[1];
        state[1] ^= state[2];
        state[0] ^= state[3];
        state[2] ^= shifted;
        state[3] = state[3].rotate_left(45);
        result
    }

    /// A number below `limit`, which is above zero.
    pub fn below(&mut self, limit: u64) -> u64 {
        assert!(limit > 0, "nothing lies below zero");
        ((u128::from(self.next_u64()) * u128::from(limit)) >> 64) as u64
    }

    /// A number of the closed range.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True `numerator` times out of `denominator`.
    pub fn chance(&mut self, numerator: u64, denominator: u64) -> bool {
        self.below(denominator) < numerator
    }

    /// One of the choices.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// An index chosen in proportion to the weights, of which one is above zero.
    pub fn weighted(&mut self, weights: &[u64]) -> usize {
        let mut rest = self.below(weights.iter().sum());
        for (index, weight) in weights.iter().enumerate() {
            if rest < *weight {
                return index;
            }
            rest -= weight;
        }
        unreachable!("the rest is below the sum of the weights")
    }

    /// An independent stream, so that one part's use of numbers does not shift another's.
    pub fn fork(&mut self) -> Random {
        Random::new(self.next_u64())
    }
}

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_gives_the_same_numbers() {
        let (mut one, mut two) = (Random::new(7), Random::new(7));
        assert!((0..1000).all(|_| one.next_u64() == two.next_u64()));
        assert_ne!(Random::new(8).next_u64(), Random::new(7).next_u64());
    }

    #[test]
    fn numbers_stay_in_their_range_and_reach_its_ends() {
        let mut random = Random::new(1);
        let mut seen = [0; 5];
        for _ in 0..1000 {
            seen[random.between(3, 7) as usize - 3] += 1;
        }
        assert!(seen.iter().all(|count| *count > 100), "{seen:?}");
        assert!((0..100).all(|_| random.weighted(&[0, 5, 0]) == 1));
    }
}
