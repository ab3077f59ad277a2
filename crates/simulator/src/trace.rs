//! A hash of everything that happened in a run: equal hashes mean equal runs.

/// FNV-1a over 64-bit words.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceHash(u64);

impl Default for TraceHash {
    fn default() -> Self {
        TraceHash(0xcbf2_9ce4_8422_2325)
    }
}

impl TraceHash {
    /// Adds words in order.
    pub fn add(&mut self, words: &[u64]) {
        for word in words {
            self.0 = (self.0 ^ word).wrapping_mul(0x0000_0100_0000_01b3);
            self.0 ^= self.0 >> 29;
        }
    }

    /// Adds bytes, by their length and checksum.
    pub fn add_bytes(&mut self, bytes: &[u8]) {
        self.add(&[bytes.len() as u64, u64::from(coquina_base::crc32c_bytes(bytes))]);
    }

    /// The hash so far.
    pub fn value(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_content_change_the_hash() {
        let hash = |words: &[u64]| {
            let mut trace = TraceHash::default();
            trace.add(words);
            trace.value()
        };
        assert_eq!(hash(&[1, 2]), hash(&[1, 2]));
        assert_ne!(hash(&[1, 2]), hash(&[2, 1]));
        assert_ne!(hash(&[1]), hash(&[1, 0]));
    }
}
