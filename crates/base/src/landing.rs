//! A payload that is received into the buffers from which it will be written.
//!
//! Invariants: every buffer begins with one block that is not payload, for the header of a frame; the payload fills
//! the rest of the buffers in order; the first `filled_bytes` of it are there.

use crate::{AlignedBuf, BLOCK_BYTES};

/// Buffers with room for a header block each, and how much of their payload has come.
#[derive(Debug, Default)]
pub struct Landing {
    buffers: Vec<AlignedBuf>,
    length_bytes: usize,
    filled_bytes: usize,
}

impl Landing {
    /// A landing without payload yet. Panics if a buffer has no block behind its header.
    pub fn new(buffers: Vec<AlignedBuf>) -> Self {
        assert!(buffers.iter().all(|buffer| buffer.blocks() > 1), "a buffer has a header and payload");
        let length_bytes = buffers.iter().map(|buffer| buffer.len() - BLOCK_BYTES).sum();
        Landing { buffers, length_bytes, filled_bytes: 0 }
    }

    /// Bytes of the whole payload.
    pub fn length_bytes(&self) -> usize {
        self.length_bytes
    }

    /// Bytes of payload that have not come.
    pub fn left_bytes(&self) -> usize {
        self.length_bytes - self.filled_bytes
    }

    /// Copies the next bytes of the payload. Panics if there are more than are left.
    pub fn push(&mut self, mut bytes: &[u8]) {
        assert!(bytes.len() <= self.left_bytes(), "no more than the payload");
        let count = bytes.len();
        for place in self.free_mut(0) {
            let part = place.len().min(bytes.len());
            let (now, rest) = bytes.split_at(part);
            place[..part].copy_from_slice(now);
            bytes = rest;
        }
        self.filled_bytes += count;
    }

    /// Notes that the next bytes were put in place through [`Landing::free_mut`]. Panics if there are more than are
    /// left.
    pub fn filled(&mut self, count: usize) {
        assert!(count <= self.left_bytes(), "no more than the payload");
        self.filled_bytes += count;
    }

    /// The places of the payload that have not been filled, but for the first `skip` bytes of them.
    pub fn free_mut(&mut self, skip: usize) -> impl Iterator<Item = &mut [u8]> {
        let mut before = self.filled_bytes + skip;
        self.buffers.iter_mut().filter_map(move |buffer| {
            let payload = &mut buffer[BLOCK_BYTES..];
            let start = before.min(payload.len());
            before -= start;
            let free = &mut payload[start..];
            (!free.is_empty()).then_some(free)
        })
    }

    /// The payload, buffer by buffer, whether it has come or not.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.buffers.iter().map(|buffer| &buffer[BLOCK_BYTES..])
    }

    /// The buffers, with their header blocks.
    pub fn into_buffers(self) -> Vec<AlignedBuf> {
        self.buffers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_payload_lies_behind_the_headers_in_order() {
        let mut landing = Landing::new(vec![AlignedBuf::zeroed(3), AlignedBuf::zeroed(2)]);
        assert_eq!(landing.length_bytes(), 3 * BLOCK_BYTES);
        let payload: Vec<u8> = (0..3 * BLOCK_BYTES).map(|index| (index % 251) as u8).collect();
        landing.push(&payload[..100]);
        landing.push(&payload[100..BLOCK_BYTES + 7]);
        let lengths: Vec<usize> = landing.free_mut(0).map(|free| free.len()).collect();
        assert_eq!(lengths, [BLOCK_BYTES - 7, BLOCK_BYTES]);
        let lengths: Vec<usize> = landing.free_mut(BLOCK_BYTES).map(|free| free.len()).collect();
        assert_eq!(lengths, [BLOCK_BYTES - 7]);
        landing.push(&payload[BLOCK_BYTES + 7..]);
        assert_eq!(landing.left_bytes(), 0);
        assert_eq!(landing.pieces().collect::<Vec<_>>().concat(), payload);
        assert!(landing.into_buffers().iter().all(|buffer| buffer[..BLOCK_BYTES] == [0; BLOCK_BYTES]));
    }
}
