//! What one send carries: headers and small payloads in one byte buffer, large payloads as owned pieces.
//!
//! Invariant: pieces that lie in `inline` cover it without gaps or overlaps, up to `sealed_bytes`.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use coquina_base::{AlignedBuf, SharedBlock};

use crate::lend::LENT_BYTES_MIN;

/// Zeros to send or write, shared by all reactors.
pub(crate) const ZEROES_BYTES: usize = 1 << 20;

/// A list that is used again keeps no more room for headers and small payloads than this.
const INLINE_BYTES_KEPT: usize = 1 << 20;

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
    /// Pieces that are lent, in order; found when the list is sent.
    lent: Vec<Range<usize>>,
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
        self.inline.shrink_to(INLINE_BYTES_KEPT);
        self.lent.clear();
        self.sealed_bytes = 0;
        self.pieces_bytes = 0;
    }

    /// Gives up the shares of blocks: nobody reads them from this list any more.
    pub(crate) fn give_up_blocks(&mut self) {
        self.pieces.retain(|piece| !matches!(piece, Piece::Block { .. }));
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

    /// Finds what of a sealed list is lent: large pieces of which its owner keeps a share, and blocks that are so many in a row.
    pub(crate) fn find_lent(&mut self) {
        self.lent.clear();
        let mut index = 0;
        while index < self.pieces.len() {
            let first = index;
            index += 1;
            let lent_bytes = match &self.pieces[first] {
                Piece::Shared { length, .. } => *length,
                Piece::Block { length, .. } => {
                    let mut bytes = *length;
                    while let Some(Piece::Block { length, .. }) = self.pieces.get(index) {
                        bytes += length;
                        index += 1;
                    }
                    bytes
                }
                // A buffer that was just read from a drive lies in the processor's cache: to lend it gains nothing.
                Piece::Buffer { .. } | Piece::Inline { .. } | Piece::Zeroes { .. } => 0,
            };
            if lent_bytes >= LENT_BYTES_MIN {
                self.lent.push(first..index);
            }
        }
    }

    /// Whether something is lent.
    pub(crate) fn has_lent(&self) -> bool {
        !self.lent.is_empty()
    }

    /// Whether something is lent of which nobody but the list keeps a share until the receiver has it.
    pub(crate) fn keeps_lent(&self) -> bool {
        self.lent.iter().any(|run| matches!(self.pieces[run.start], Piece::Block { .. }))
    }

    /// The place of byte `skip_bytes` of a sealed list.
    pub(crate) fn cursor(&self, skip_bytes: usize) -> Cursor {
        let mut cursor = Cursor { piece: 0, offset_bytes: 0, run: 0 };
        self.advance(&mut cursor, skip_bytes);
        cursor
    }

    /// Moves a place on. Panics behind the end.
    pub(crate) fn advance(&self, cursor: &mut Cursor, bytes: usize) {
        let mut left_bytes = bytes;
        while left_bytes > 0 {
            let rest_bytes = self.slice(cursor.piece).len() - cursor.offset_bytes;
            if left_bytes < rest_bytes {
                cursor.offset_bytes += left_bytes;
                break;
            }
            left_bytes -= rest_bytes;
            cursor.piece += 1;
            cursor.offset_bytes = 0;
        }
        while self.lent.get(cursor.run).is_some_and(|run| run.end <= cursor.piece) {
            cursor.run += 1;
        }
    }

    /// Fills `vectors` with at most `vectors_max` of what comes next of a sealed list, up to where lending begins or ends if there is
    /// `lending`, and says how they are to be sent; `None` at the end.
    pub(crate) fn next_run(
        &self,
        cursor: &Cursor,
        lending: bool,
        vectors_max: usize,
        vectors: &mut Vec<libc::iovec>,
    ) -> Option<Run> {
        let (run, end) = match self.lent.get(cursor.run).filter(|_| lending) {
            Some(run) if run.contains(&cursor.piece) => (Run::Lent, run.end),
            Some(run) => (Run::Copied, run.start),
            None => (Run::Copied, self.pieces.len()),
        };
        self.fill(cursor, end, vectors_max, vectors);
        (!vectors.is_empty()).then_some(run)
    }

    /// Fills `vectors` with at most `vectors_max` pieces of a sealed list, from byte `skip_bytes` on.
    pub(crate) fn vectors(&self, skip_bytes: usize, vectors_max: usize, vectors: &mut Vec<libc::iovec>) {
        self.fill(&self.cursor(skip_bytes), self.pieces.len(), vectors_max, vectors);
    }

    fn fill(&self, cursor: &Cursor, end: usize, vectors_max: usize, vectors: &mut Vec<libc::iovec>) {
        vectors.clear();
        let mut skip_bytes = cursor.offset_bytes;
        for index in (cursor.piece..end).take(vectors_max) {
            let slice = &self.slice(index)[skip_bytes..];
            vectors.push(libc::iovec { iov_base: slice.as_ptr() as *mut _, iov_len: slice.len() });
            skip_bytes = 0;
        }
    }
}

/// A place in a list.
pub(crate) struct Cursor {
    piece: usize,
    offset_bytes: usize,
    /// The run of lent pieces that it is in, or before.
    run: usize,
}

/// How some of a list is sent.
pub(crate) enum Run {
    Copied,
    Lent,
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
