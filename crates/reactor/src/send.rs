//! What one send carries: headers and small payloads in one byte buffer, large payloads as owned pieces.
//!
//! Invariant: pieces that lie in `inline` cover it without gaps or overlaps, up to `sealed_bytes`.

use std::sync::{Arc, OnceLock};

use coquina_base::{AlignedBuf, SharedBlock};

use crate::lend::LENT_BYTES_MIN;

/// Zeros to send or write, shared by all reactors.
pub(crate) const ZEROES_BYTES: usize = 1 << 20;

/// The shared zeros, [`ZEROES_BYTES`] of them.
pub(crate) fn zeroes() -> &'static AlignedBuf {
    static ZEROES: OnceLock<AlignedBuf> = OnceLock::new();
    ZEROES.get_or_init(|| AlignedBuf::zeroed(ZEROES_BYTES / coquina_base::BLOCK_BYTES))
}

#[derive(Debug)]
enum Piece {
    Inline { start: usize, length: usize },
    Buffer { buffer: AlignedBuf, start: usize, length: usize },
    Shared { buffer: Arc<AlignedBuf>, start: usize, length: usize },
    Block { block: SharedBlock, start: usize, length: usize },
    Zeroes { length: usize },
}

/// A list of bytes to send in order, without copying the large ones.
#[derive(Debug, Default)]
pub struct SendList {
    inline: Vec<u8>,
    sealed_bytes: usize,
    pieces: Vec<Piece>,
    pieces_bytes: usize,
}

impl SendList {
    /// An empty list that allocates nothing.
    pub fn new() -> Self {
        SendList::default()
    }

    /// The byte buffer to append headers and small payloads to. Only append: what was there stays.
    pub fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.inline
    }

    /// Appends `buffer[start..start + length]`, which the list owns from now on. Panics if out of range.
    pub fn push_buffer(&mut self, buffer: AlignedBuf, start: usize, length: usize) {
        assert!(
            start.checked_add(length).is_some_and(|end| end <= buffer.len()),
            "the piece is in its buffer"
        );
        self.push(Piece::Buffer { buffer, start, length }, length);
    }

    /// Appends `buffer[start..start + length]`, of which the caller keeps a share. Panics if out of range.
    ///
    /// A receiver on this host may see what is changed there until it has read it ([`crate::lend`]): the bytes must stay as they are
    /// until it has answered, or what it reads must be checked against checksums that were sent before.
    pub fn push_shared(&mut self, buffer: Arc<AlignedBuf>, start: usize, length: usize) {
        assert!(
            start.checked_add(length).is_some_and(|end| end <= buffer.len()),
            "the piece is in its buffer"
        );
        self.push(Piece::Shared { buffer, start, length }, length);
    }

    /// Appends `block[start..start + length]`, of which the list holds a share until it is recycled. Panics if out of range.
    pub fn push_block(&mut self, block: SharedBlock, start: usize, length: usize) {
        assert!(start.checked_add(length).is_some_and(|end| end <= block.len()), "the piece is in its block");
        self.push(Piece::Block { block, start, length }, length);
    }

    /// Appends `length` zero bytes.
    pub fn push_zeroes(&mut self, mut length: usize) {
        while length > 0 {
            let part = length.min(ZEROES_BYTES);
            self.push(Piece::Zeroes { length: part }, part);
            length -= part;
        }
    }

    /// Bytes in the list.
    pub fn length_bytes(&self) -> usize {
        self.pieces_bytes + (self.inline.len() - self.sealed_bytes)
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.length_bytes() == 0
    }

    /// Empties the list, keeps its memory, and hands back the buffers that it owned.
    pub fn recycle(&mut self, mut give_back: impl FnMut(AlignedBuf)) {
        for piece in self.pieces.drain(..) {
            match piece {
                Piece::Buffer { buffer, .. } => give_back(buffer),
                Piece::Shared { .. } | Piece::Block { .. } | Piece::Inline { .. } | Piece::Zeroes { .. } => {}
            }
        }
        self.inline.clear();
        self.sealed_bytes = 0;
        self.pieces_bytes = 0;
    }

    /// The bytes of the list in order; for tests and in-memory transports.
    pub fn to_bytes(&mut self) -> Vec<u8> {
        self.seal();
        let mut bytes = Vec::with_capacity(self.pieces_bytes);
        for index in 0..self.pieces.len() {
            bytes.extend_from_slice(self.slice(index));
        }
        bytes
    }

    fn push(&mut self, piece: Piece, length: usize) {
        if length > 0 {
            self.seal();
            self.pieces.push(piece);
            self.pieces_bytes += length;
        }
    }

    /// Makes a piece of what was appended to the byte buffer since the last piece.
    pub(crate) fn seal(&mut self) {
        assert!(self.inline.len() >= self.sealed_bytes, "the byte buffer of a list is only appended to");
        let length = self.inline.len() - self.sealed_bytes;
        if length > 0 {
            self.pieces.push(Piece::Inline { start: self.sealed_bytes, length });
            self.pieces_bytes += length;
            self.sealed_bytes = self.inline.len();
        }
    }

    fn slice(&self, index: usize) -> &[u8] {
        match &self.pieces[index] {
            Piece::Inline { start, length } => &self.inline[*start..*start + *length],
            Piece::Buffer { buffer, start, length } => &buffer[*start..*start + *length],
            Piece::Shared { buffer, start, length } => &buffer[*start..*start + *length],
            Piece::Block { block, start, length } => &block[*start..*start + *length],
            Piece::Zeroes { length } => &zeroes()[..*length],
        }
    }

    /// Whether a piece can be lent: large, and kept by its owner.
    fn can_lend(&self, index: usize) -> bool {
        matches!(&self.pieces[index], Piece::Shared { length, .. } if *length >= LENT_BYTES_MIN)
    }

    /// Whether there is a piece that can be lent.
    pub(crate) fn has_lendable(&self) -> bool {
        (0..self.pieces.len()).any(|index| self.can_lend(index))
    }

    /// What to send next of a sealed list, from byte `skip_bytes` on: the rest of a piece to be lent, or what there is before the
    /// next such piece, for which `vectors` is filled with at most `vectors_max`; `None` at the end.
    pub(crate) fn next_run(
        &self,
        mut skip_bytes: usize,
        lending: bool,
        vectors_max: usize,
        vectors: &mut Vec<libc::iovec>,
    ) -> Option<Run<'_>> {
        vectors.clear();
        for index in 0..self.pieces.len() {
            let slice = self.slice(index);
            if skip_bytes >= slice.len() {
                skip_bytes -= slice.len();
                continue;
            }
            let slice = &slice[skip_bytes..];
            skip_bytes = 0;
            match lending && self.can_lend(index) {
                true if vectors.is_empty() => return Some(Run::Lent(slice)),
                true => return Some(Run::Copied),
                false => vectors.push(vector(slice)),
            }
            if vectors.len() == vectors_max {
                break;
            }
        }
        (!vectors.is_empty()).then_some(Run::Copied)
    }

    /// Fills `vectors` with at most `vectors_max` pieces of a sealed list, from byte `skip_bytes` on.
    pub(crate) fn vectors(&self, mut skip_bytes: usize, vectors_max: usize, vectors: &mut Vec<libc::iovec>) {
        vectors.clear();
        for index in 0..self.pieces.len() {
            let slice = self.slice(index);
            if skip_bytes >= slice.len() {
                skip_bytes -= slice.len();
                continue;
            }
            let slice = &slice[skip_bytes..];
            skip_bytes = 0;
            vectors.push(vector(slice));
            if vectors.len() == vectors_max {
                return;
            }
        }
    }
}

/// What is sent at once of a list of which pieces can be lent.
pub(crate) enum Run<'a> {
    /// What the vectors say, copied.
    Copied,
    /// This, lent.
    Lent(&'a [u8]),
}

fn vector(slice: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: slice.as_ptr() as *mut _, iov_len: slice.len() }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_order_of_bytes_and_pieces() {
        let mut buffer = AlignedBuf::zeroed(1);
        buffer[10] = 9;
        let mut list = SendList::new();
        list.bytes().extend_from_slice(b"head");
        list.push_buffer(buffer.clone(), 10, 2);
        list.push_zeroes(3);
        list.bytes().extend_from_slice(b"tail");
        list.push_shared(Arc::new(buffer), 9, 2);
        let mut block = SharedBlock::slab(1).next().unwrap();
        block.get_mut().unwrap()[7] = 8;
        list.push_block(block.clone(), 6, 3);
        assert_eq!(list.length_bytes(), 18);
        assert_eq!(list.to_bytes(), b"head\x09\0\0\0\0tail\0\x09\0\x08\0");
        assert!(block.get_mut().is_none());
        let mut given_back = 0;
        list.recycle(|_| given_back += 1);
        assert_eq!(given_back, 1);
        assert!(list.is_empty());
        assert!(block.get_mut().is_some(), "a recycled list has no shares");
    }
}
