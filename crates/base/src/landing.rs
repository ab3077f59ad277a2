//! A payload that is received into the buffers in which it is wanted: those of frames, from which it will be written, or the one of
//! a program that reads.
//!
//! Invariants: every buffer begins with `head_bytes` that are not payload: a block for the header of a frame, or nothing; the
//! payload fills the rest of the buffers in order, though not always to the end; the first `filled_bytes` of it are there.

use crate::{AlignedBuf, BLOCK_BYTES};

/// Buffers, and how much of their payload has come.
#[derive(Debug, Default)]
pub struct Landing {
    buffers: Vec<AlignedBuf>,
    head_bytes: usize,
    length_bytes: usize,
    filled_bytes: usize,
}

impl Landing {
    /// A landing without payload yet, in buffers of frames. Panics if a buffer has no block behind its header.
    pub fn new(buffers: Vec<AlignedBuf>) -> Self {
        assert!(buffers.iter().all(|buffer| buffer.blocks() > 1), "a buffer has a header and payload");
        let length_bytes = buffers.iter().map(|buffer| buffer.len() - BLOCK_BYTES).sum();
        Landing { buffers, head_bytes: BLOCK_BYTES, length_bytes, filled_bytes: 0 }
    }

    /// A landing without payload yet of `length_bytes` at the front of one buffer, the only one in `buffers`, which is a list so
    /// that its memory can be used again. Panics if there is not one, or it is too short.
    pub fn plain(buffers: Vec<AlignedBuf>, length_bytes: usize) -> Self {
        assert!(matches!(&buffers[..], [only] if only.len() >= length_bytes), "one buffer takes the payload");
        Landing { buffers, head_bytes: 0, length_bytes, filled_bytes: 0 }
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
        let head_bytes = self.head_bytes;
        let mut left = self.length_bytes;
        let mut before = self.filled_bytes + skip;
        self.buffers.iter_mut().filter_map(move |buffer| {
            let length = left.min(buffer.len() - head_bytes);
            left -= length;
            let payload = &mut buffer[head_bytes..head_bytes + length];
            let start = before.min(payload.len());
            before -= start;
            let free = &mut payload[start..];
            (!free.is_empty()).then_some(free)
        })
    }

    /// The payload, buffer by buffer, whether it has come or not.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let mut left = self.length_bytes;
        self.buffers.iter().map(move |buffer| {
            let length = left.min(buffer.len() - self.head_bytes);
            left -= length;
            &buffer[self.head_bytes..self.head_bytes + length]
        })
    }

    /// The buffers, with what is before and behind the payload.
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
    #[test]
    fn a_plain_one_leaves_what_is_behind_the_payload() {
        let mut buffer = AlignedBuf::zeroed(2);
        buffer.fill(9);
        let mut landing = Landing::plain(vec![buffer], BLOCK_BYTES + 10);
        landing.push(&[1; 7]);
        let lengths: Vec<usize> = landing.free_mut(3).map(|free| free.len()).collect();
        assert_eq!(lengths, [BLOCK_BYTES]);
        landing.push(&[2; BLOCK_BYTES + 3]);
        assert_eq!((landing.left_bytes(), landing.free_mut(0).count()), (0, 0));
        assert_eq!(landing.pieces().map(<[u8]>::len).collect::<Vec<_>>(), [BLOCK_BYTES + 10]);
        let buffers = landing.into_buffers();
        let [buffer] = &buffers[..] else { panic!("one buffer") };
        assert_eq!(buffer[..7], [1; 7]);
        assert_eq!(buffer[7..BLOCK_BYTES + 10], [2; BLOCK_BYTES + 3]);
        assert_eq!(buffer[BLOCK_BYTES + 10..], [9; BLOCK_BYTES - 10]);
    }
}
