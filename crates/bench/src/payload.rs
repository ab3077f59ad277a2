//! What is written: data that neither compresses nor repeats, made by changing 16 bytes per 4 KiB block.
//!
//! Each block of a slot's buffer keeps a random body; a write stamps the block's address and a version into its
//! first 16 bytes. The low bits of the address name the body, so a block that is read can be checked whole.
//!
//! Invariants:
//! - a version is never 0 and never used twice within 65,536 runs.

use coquina_base::BLOCK_BYTES;

use crate::random::Random;

/// Different bodies; they come around after 4 MiB, further than compressors look back.
const BODIES: usize = 1024;
const STAMP_BYTES: usize = 16;
const BODY_MASK: u64 = BODIES as u64 - 1;

/// What is wrong with a block that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PayloadError {
    /// It carries another address: the data of another block, or nothing of ours.
    Address(u64),
    /// The stamp is right but the body differs from this byte on.
    Body(usize),
}

/// Random bodies made from a seed.
pub(crate) struct Payload {
    bytes: Vec<u8>,
}

impl Payload {
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x7061_796c_6f61_6421);
        let mut bytes = vec![0; BODIES * BLOCK_BYTES];
        for word in bytes.chunks_exact_mut(8) {
            word.copy_from_slice(&random.next_u64().to_le_bytes());
        }
        Payload { bytes }
    }

    fn body(&self, number: usize) -> &[u8] {
        let start = number % BODIES * BLOCK_BYTES;
        &self.bytes[start..start + BLOCK_BYTES]
    }

    /// Fills a slot's buffer before its first use; `first_body` is told to [`stamp`] again later.
    pub fn fill(&self, buffer: &mut [u8], first_body: usize) {
        for (index, block) in buffer.chunks_mut(BLOCK_BYTES).enumerate() {
            block.copy_from_slice(&self.body(first_body + index)[..block.len()]);
        }
    }

    /// Checks a whole block and gives its version.
    pub fn check(&self, block: &[u8], address: u64) -> Result<u64, PayloadError> {
        assert_eq!(block.len(), BLOCK_BYTES);
        let (stamp, rest) = block.split_at(STAMP_BYTES);
        let word = |start: usize| {
            stamp[start..start + 8].iter().rev().fold(0u64, |word, byte| word << 8 | u64::from(*byte))
        };
        let named = word(0);
        if named & !(BLOCK_BYTES as u64 - 1) != address || named & (BLOCK_BYTES as u64 - 1) > BODY_MASK {
            return Err(PayloadError::Address(named));
        }
        let body = &self.body((named & BODY_MASK) as usize)[STAMP_BYTES..];
        if rest != body {
            let first = rest.iter().zip(body).position(|(found, wanted)| found != wanted).unwrap_or(0);
            return Err(PayloadError::Body(STAMP_BYTES + first));
        }
        Ok(word(8))
    }
}

/// Stamps the blocks of one write.
pub(crate) fn stamp(buffer: &mut [u8], first_body: usize, offset_bytes: u64, version: u64) {
    for (index, block) in buffer.chunks_mut(BLOCK_BYTES).enumerate() {
        let address = (offset_bytes + (index * BLOCK_BYTES) as u64) & !(BLOCK_BYTES as u64 - 1);
        let body = (first_body + index) as u64 & BODY_MASK;
        block[..8].copy_from_slice(&(address | body).to_le_bytes());
        block[8..STAMP_BYTES].copy_from_slice(&version.to_le_bytes());
    }
}

/// Versions of one job's writes.
pub(crate) struct Versions(u64);

impl Versions {
    /// `job` 255 is that of the fill.
    pub fn new(run: u16, job: u8) -> Self {
        Versions(u64::from(run.max(1)) << 48 | u64::from(job) << 40)
    }

    /// A version not used before.
    pub fn next(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }
}

/// A number for this run that differs from that of the runs before it.
pub(crate) fn run_number() -> u16 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    (now.as_millis() / 100) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamped_write_is_recognised_and_damage_is_found() {
        let payload = Payload::new(7);
        let mut buffer = vec![0; 3 * BLOCK_BYTES];
        payload.fill(&mut buffer, 1022);
        stamp(&mut buffer, 1022, 40_960, 99);
        for index in 0..3 {
            let block = &buffer[index * BLOCK_BYTES..][..BLOCK_BYTES];
            let address = 40_960 + (index * BLOCK_BYTES) as u64;
            assert_eq!(payload.check(block, address), Ok(99));
            assert!(matches!(payload.check(block, address + 4096), Err(PayloadError::Address(_))));
        }
        buffer[5000] ^= 1;
        assert_eq!(payload.check(&buffer[4096..8192], 45_056), Err(PayloadError::Body(904)));
        assert!(matches!(payload.check(&[0; 4096], 4096), Err(PayloadError::Address(0))));
    }

    #[test]
    fn blocks_of_a_buffer_differ() {
        let payload = Payload::new(7);
        let mut buffer = vec![0; 64 * BLOCK_BYTES];
        payload.fill(&mut buffer, 0);
        let bodies: std::collections::HashSet<&[u8]> =
            buffer.chunks(BLOCK_BYTES).map(|block| &block[STAMP_BYTES..]).collect();
        assert_eq!(bodies.len(), 64);
        assert!(Versions::new(3, 1).next() != Versions::new(3, 2).next());
    }
}
