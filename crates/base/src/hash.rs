//! SipHash-2-4 with 128 bits (Aumasson and Bernstein, 2012): tells whether two copies hold the same, without sending them.
//! The key is another one each time, so nobody can prepare data that looks like other data.

/// Hashes bytes that come in whole words of 8.
#[derive(Clone, Debug)]
pub struct Hasher128 {
    state: [u64; 4],
    length_bytes: u64,
}

impl Hasher128 {
    /// Begins with a key.
    pub fn new(key: u128) -> Hasher128 {
        let (low, high) = (key as u64, (key >> 64) as u64);
        let state = [
            low ^ 0x736f_6d65_7073_6575,
            high ^ 0x646f_7261_6e64_6f6d ^ 0xee,
            low ^ 0x6c79_6765_6e65_7261,
            high ^ 0x7465_6462_7974_6573,
        ];
        Hasher128 { state, length_bytes: 0 }
    }

    /// Adds bytes; their number is a multiple of 8.
    pub fn add(&mut self, bytes: &[u8]) {
        assert!(bytes.len() % 8 == 0, "only whole words are hashed");
        self.length_bytes += bytes.len() as u64;
        let mut state = self.state;
        let (words, _) = bytes.as_chunks::<8>();
        words.iter().for_each(|word| add_word(&mut state, u64::from_le_bytes(*word)));
        self.state = state;
    }

    /// Adds a word.
    pub fn add_word(&mut self, word: u64) {
        self.length_bytes += 8;
        add_word(&mut self.state, word);
    }

    /// The hash of all.
    pub fn finish(mut self) -> u128 {
        add_word(&mut self.state, self.length_bytes << 56);
        self.state[2] ^= 0xee;
        (0..4).for_each(|_| round(&mut self.state));
        let fold = |state: &[u64; 4]| state[0] ^ state[1] ^ state[2] ^ state[3];
        let low = fold(&self.state);
        self.state[1] ^= 0xdd;
        (0..4).for_each(|_| round(&mut self.state));
        u128::from(low) | u128::from(fold(&self.state)) << 64
    }
}

fn add_word(state: &mut [u64; 4], word: u64) {
    state[3] ^= word;
    round(state);
    round(state);
    state[0] ^= word;
}

fn round(state: &mut [u64; 4]) {
    let [mut a, mut b, mut c, mut d] = *state;
    a = a.wrapping_add(b);
    b = b.rotate_left(13) ^ a;
    a = a.rotate_left(32);
    c = c.wrapping_add(d);
    d = d.rotate_left(16) ^ c;
    a = a.wrapping_add(d);
    d = d.rotate_left(21) ^ a;
    c = c.wrapping_add(b);
    b = b.rotate_left(17) ^ c;
    c = c.rotate_left(32);
    *state = [a, b, c, d];
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The key of the authors' test vectors.
    const KEY: u128 = 0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100;

    #[test]
    fn hashes_are_those_of_the_authors() {
        let hash = Hasher128::new(KEY).finish();
        let expected =
            [0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02, 0x93];
        assert_eq!(hash.to_le_bytes(), expected);
    }

    #[test]
    fn what_differs_hashes_differently_however_it_is_cut() {
        let hash = |bytes: &[u8], cut: usize| {
            let mut hasher = Hasher128::new(KEY);
            hasher.add(&bytes[..cut]);
            hasher.add(&bytes[cut..]);
            hasher.finish()
        };
        let mut bytes = [7; 4096];
        assert_eq!(hash(&bytes, 0), hash(&bytes, 1024));
        let before = hash(&bytes, 0);
        bytes[4095] ^= 1;
        assert_ne!(hash(&bytes, 0), before);
        let mut words = Hasher128::new(KEY);
        (0..512).for_each(|_| words.add_word(0x0707_0707_0707_0707));
        assert_eq!(words.finish(), before);
    }
}
