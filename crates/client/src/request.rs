//! Requests of a program, and the parts into which they are split where they leave a chunk.

use std::collections::BTreeMap;
use std::sync::Arc;

use coquina_base::{AlignedBuf, CHUNK_BYTES};
use coquina_cluster::Striping;
use coquina_protocol::{Extent, Kind, REQUEST_WINDOW};

use crate::error::ClientError;

/// What a request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestKind {
    /// Fills the buffer.
    Read,
    /// Replaces data with the buffer's; on stable storage when it completes.
    Write,
    /// Forgets data: the range reads as zeros.
    Discard,
    /// The range reads as zeros.
    WriteZeroes {
        /// Keep the space reserved.
        no_hole: bool,
    },
    /// Asks what of the range is data.
    Map,
    /// Completes at once: completed changes are on stable storage already.
    Flush,
}

impl RequestKind {
    pub(crate) fn is_change(self) -> bool {
        matches!(self, RequestKind::Write | RequestKind::Discard | RequestKind::WriteZeroes { .. })
    }

    /// The message that asks for it.
    pub(crate) fn message(self) -> Kind {
        match self {
            RequestKind::Read => Kind::Read,
            RequestKind::Write => Kind::Write,
            RequestKind::Discard => Kind::Discard,
            RequestKind::WriteZeroes { .. } => Kind::WriteZeroes,
            RequestKind::Map => Kind::Map,
            RequestKind::Flush => Kind::Flush,
        }
    }
}

/// A request of a program. Offset and length are multiples of 512.
#[derive(Debug)]
pub struct ClientRequest {
    /// Handed back in the completion.
    pub token: u64,
    /// What to do.
    pub kind: RequestKind,
    /// First byte of the volume.
    pub offset_bytes: u64,
    /// Bytes.
    pub length_bytes: u64,
    /// For reads and writes at least `length_bytes` long; handed back. Empty otherwise.
    pub buffer: AlignedBuf,
}

/// A finished request.
#[derive(Debug)]
pub struct ClientCompletion {
    /// The request's token.
    pub token: u64,
    /// How it ended.
    pub result: Result<(), ClientError>,
    /// The request's buffer.
    pub buffer: AlignedBuf,
    /// For [`RequestKind::Map`], the extents that cover the range; else empty.
    pub extents: Vec<Extent>,
}

/// A request's buffer: shared with the sends that carry it, if it is too large to be copied.
#[derive(Debug)]
pub(crate) enum Buffer {
    Owned(AlignedBuf),
    Shared(Arc<AlignedBuf>),
    /// With the driver, which receives an answer into it.
    Lent {
        blocks: usize,
    },
}

impl Buffer {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Buffer::Owned(buffer) => buffer,
            Buffer::Shared(buffer) => buffer,
            Buffer::Lent { .. } => &[],
        }
    }

    pub(crate) fn is_lent(&self) -> bool {
        matches!(self, Buffer::Lent { .. })
    }

    /// Takes the buffer out for the driver, if it is here.
    pub(crate) fn lend(&mut self) -> Option<AlignedBuf> {
        let Buffer::Owned(buffer) = self else { return None };
        let buffer = std::mem::take(buffer);
        *self = Buffer::Lent { blocks: buffer.blocks() };
        Some(buffer)
    }

    /// Puts another in the place of one that is with the driver.
    pub(crate) fn replace_lent(&mut self) {
        if let Buffer::Lent { blocks } = *self {
            *self = Buffer::Owned(AlignedBuf::zeroed(blocks));
        }
    }

    /// Where data of an answer goes; none for a request that reads none.
    pub(crate) fn target(&mut self) -> Option<&mut AlignedBuf> {
        self.replace_lent();
        match self {
            Buffer::Owned(buffer) => Some(buffer),
            _ => None,
        }
    }

    /// A share of the buffer, which comes back from `release` when all shares are gone.
    pub(crate) fn share(&mut self) -> Arc<AlignedBuf> {
        if let Buffer::Owned(buffer) = self {
            *self = Buffer::Shared(Arc::new(std::mem::take(buffer)));
        }
        match self {
            Buffer::Shared(shared) => shared.clone(),
            _ => unreachable!("it was made a shared one, and only buffers of reads are lent"),
        }
    }

    /// The buffer back, unless a send still holds it.
    pub(crate) fn release(&mut self) -> Option<AlignedBuf> {
        self.replace_lent();
        match std::mem::replace(self, Buffer::Owned(AlignedBuf::new())) {
            Buffer::Owned(buffer) => Some(buffer),
            Buffer::Shared(shared) => match Arc::try_unwrap(shared) {
                Ok(buffer) => Some(buffer),
                Err(shared) => {
                    *self = Buffer::Shared(shared);
                    None
                }
            },
            Buffer::Lent { .. } => unreachable!("it was replaced"),
        }
    }
}

/// A request that is not finished.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) token: u64,
    pub(crate) kind: RequestKind,
    pub(crate) offset_bytes: u64,
    pub(crate) length_bytes: u64,
    pub(crate) buffer: Buffer,
    /// How much of it was made into parts.
    pub(crate) issued_bytes: u64,
    /// Of a request whose parts are of all that lies in a chunk: chunks that had theirs of the set of chunks which comes next.
    pub(crate) issued_chunks: u32,
    pub(crate) parts_outstanding: u32,
    /// When it was first looked at; `u64::MAX` before.
    pub(crate) asked_ns: u64,
    pub(crate) error: Option<ClientError>,
    /// Nobody waits for it any more.
    pub(crate) is_withdrawn: bool,
    /// Answers to a map request: offset within the request, extents of that part.
    pub(crate) extents: Vec<(u64, Vec<Extent>)>,
}

impl Request {
    pub(crate) fn is_finished(&self) -> bool {
        self.parts_outstanding == 0 && (self.issued_bytes == self.length_bytes || self.error.is_some())
    }

    /// Whether bytes of the volume go with it or come back.
    pub(crate) fn has_data(&self) -> bool {
        matches!(self.kind, RequestKind::Read | RequestKind::Write)
    }

    /// The chunk of the next part.
    pub(crate) fn next_chunk(&self, striping: &Striping) -> Option<u32> {
        self.next_cut(striping).map(|cut| cut.chunk)
    }

    /// What the next part is of: of data, and of what is told in the volume's order, what lies together there too; of the rest all that
    /// lies in a chunk, which is together in the chunk however small the stripe units are.
    fn next_cut(&self, striping: &Striping) -> Option<Cut> {
        let start = self.offset_bytes + self.issued_bytes;
        let left = self.length_bytes - self.issued_bytes;
        if !matches!(self.kind, RequestKind::Discard | RequestKind::WriteZeroes { .. }) {
            let extent = striping.extents(start, left).next()?;
            let (place, length_bytes) = (extent.place, extent.length_bytes);
            let (chunk, offset_bytes) = (place.chunk, place.offset_bytes);
            return Some(Cut {
                chunk,
                offset_bytes,
                length_bytes,
                issued_bytes: length_bytes.into(),
                chunks: 0,
            });
        }
        if left == 0 {
            return None;
        }
        let (unit_bytes, count) = (u64::from(striping.stripe_unit_bytes), u64::from(striping.stripe_count));
        let set_bytes = count * CHUNK_BYTES;
        // Both are counted from the beginning of the set of chunks that are filled at the same time.
        let (set, first) = (start / set_bytes, start % set_bytes);
        let end = (first + left).min(set_bytes);
        let chunks = (end.div_ceil(unit_bytes) - first / unit_bytes).min(count);
        let position = (first / unit_bytes + u64::from(self.issued_chunks)) % count;
        let used_bytes = |bytes| striping.chunk_used_bytes(position as u32, bytes);
        let (offset_bytes, end_bytes) = (used_bytes(first), used_bytes(end));
        let is_last = u64::from(self.issued_chunks) + 1 == chunks;
        Some(Cut {
            chunk: (set * count + position) as u32,
            offset_bytes,
            length_bytes: end_bytes - offset_bytes,
            issued_bytes: if is_last { end - first } else { 0 },
            chunks: if is_last { 0 } else { self.issued_chunks + 1 },
        })
    }

    /// Cuts the next part off.
    pub(crate) fn next_part(&mut self, striping: &Striping, request: u32, now_ns: u64) -> Part {
        let Some(cut) = self.next_cut(striping) else {
            panic!("a request that is wholly issued has no next part");
        };
        let at_bytes = self.issued_bytes;
        self.issued_bytes += cut.issued_bytes;
        self.issued_chunks = cut.chunks;
        self.parts_outstanding += 1;
        Part {
            request,
            link: NO_LINK,
            chunk: cut.chunk,
            group: 0,
            offset_bytes: cut.offset_bytes,
            length_bytes: cut.length_bytes,
            at_bytes,
            started_ns: now_ns,
            refused_ns: u64::MAX,
            breaks: 0,
            broken_ns: u64::MAX,
            damaged: 0,
            parks: 0,
            sends: 0,
            in_flight: false,
            parked: false,
        }
    }
}

/// The next part of a request.
struct Cut {
    chunk: u32,
    offset_bytes: u32,
    length_bytes: u32,
    /// How much of the request was made into parts with it; 0 while other chunks have a part of the same range.
    issued_bytes: u64,
    /// See [`Request::issued_chunks`], with it.
    chunks: u32,
}

/// Stands for no link.
pub(crate) const NO_LINK: u32 = u32::MAX;

/// A part of which fewer connections broke one after the other is not given up for that: the process may have been stopped meanwhile.
const BREAKS_MIN: u32 = 3;

/// A part of a request: one message, one request number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// Index of its request.
    pub(crate) request: u32,
    /// Where it was sent or waits; [`NO_LINK`] if no primary of its group was known.
    pub(crate) link: u32,
    pub(crate) chunk: u32,
    /// Its placement group, counted from the pool's first.
    pub(crate) group: u32,
    pub(crate) offset_bytes: u32,
    pub(crate) length_bytes: u32,
    /// Where its data lies in the request's buffer; of no use for a request without any.
    pub(crate) at_bytes: u64,
    pub(crate) started_ns: u64,
    /// When it was first refused, and later by what this process was stopped for while it was parked; `u64::MAX` before.
    pub(crate) refused_ns: u64,
    /// How often a connection broke that had been made for it, since a server has answered it last, and when the first one did.
    pub(crate) breaks: u32,
    pub(crate) broken_ns: u64,
    /// How often an answer to it was damaged.
    pub(crate) damaged: u32,
    /// How often it was parked since its group last moved.
    pub(crate) parks: u32,
    /// How often it was sent.
    pub(crate) sends: u32,
    /// Whether it is on its way on its link's present connection.
    pub(crate) in_flight: bool,
    /// Whether it waits for its time to be tried again.
    pub(crate) parked: bool,
}

impl Part {
    /// The connection on which it was, or waited to be, has broken though it stood. Whether that has gone on for so long that it is to be
    /// given up: each new connection may stand, and all that is larger than what makes it be lost on the way.
    pub(crate) fn lost_connection(&mut self, now_ns: u64, give_up_ns: u64) -> bool {
        self.breaks += 1;
        self.broken_ns = self.broken_ns.min(now_ns);
        self.breaks >= BREAKS_MIN && now_ns.saturating_sub(self.broken_ns) >= give_up_ns
    }

    /// A server has answered it, though not with what was asked for.
    pub(crate) fn was_answered(&mut self) {
        (self.breaks, self.broken_ns) = (0, u64::MAX);
    }
}

/// The unanswered parts, found by request number.
///
/// A server knows the numbers of each placement group by itself, up to some distance below the newest one there. So one that waits for
/// long holds back the others of its group and no more: it is laid aside, and while it is there its group gets no new numbers.
pub(crate) struct Window {
    /// How many it holds before any is laid aside.
    size: u64,
    /// The newest ones, by the remainder of their numbers; empty before the first one, and after a rest.
    parts: Vec<Option<Part>>,
    /// Those that were laid aside; all below `first`.
    aside: BTreeMap<u64, Part>,
    /// How many of each group are.
    groups_aside: BTreeMap<u32, u32>,
    /// No number below is unanswered and not laid aside.
    first: u64,
    /// The next number to be given.
    next: u64,
}

/// Parts that are laid aside at most.
const ASIDE_MAX: usize = REQUEST_WINDOW as usize;

impl Window {
    /// One that holds so many before any is laid aside: [`REQUEST_WINDOW`], or fewer.
    pub(crate) fn new(numbers: u64) -> Window {
        Window {
            size: numbers,
            parts: Vec::new(),
            aside: BTreeMap::new(),
            groups_aside: BTreeMap::new(),
            first: 1,
            next: 1,
        }
    }

    fn place(&self, number: u64) -> usize {
        (number % self.size) as usize
    }

    pub(crate) fn is_full(&self) -> bool {
        self.room() == 0
    }

    /// How many numbers can be given.
    pub(crate) fn room(&self) -> usize {
        self.size.saturating_sub(self.next - self.first) as usize
    }

    /// No number below is unanswered.
    pub(crate) fn floor(&self) -> u64 {
        self.aside.first_key_value().map_or(self.first, |(number, _)| *number)
    }

    /// The next number to be given.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// All numbers that may be unanswered, rising.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> + use<> {
        let aside: Vec<u64> = self.aside.keys().copied().collect();
        aside.into_iter().chain(self.first..self.next)
    }

    /// All parts, in any order.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &Part> {
        self.aside.values().chain(self.parts.iter().flatten())
    }

    /// Whether one more can be laid aside.
    pub(crate) fn has_room_aside(&self) -> bool {
        self.aside.len() < ASIDE_MAX
    }

    /// The oldest part that is not laid aside.
    pub(crate) fn oldest(&self) -> Option<&Part> {
        self.peek(self.first)
    }

    /// Lays that one aside; says whether it could be.
    pub(crate) fn lay_aside(&mut self) -> bool {
        if !self.has_room_aside() {
            return false;
        }
        let number = self.first;
        if let Some(part) = self.remove(number) {
            *self.groups_aside.entry(part.group).or_default() += 1;
            self.aside.insert(number, part);
        }
        true
    }

    /// Whether a group gets no new numbers, because an old part of it is unanswered.
    pub(crate) fn is_held(&self, group: u32) -> bool {
        self.groups_aside.contains_key(&group)
    }

    /// Gives the part the next number.
    pub(crate) fn add(&mut self, part: Part) -> u64 {
        assert!(!self.is_full(), "the window has room");
        if self.parts.is_empty() {
            self.parts.resize(self.size as usize, None);
        }
        let number = self.next;
        self.next += 1;
        let place = self.place(number);
        self.parts[place] = Some(part);
        number
    }

    /// Gives memory back while nothing is unanswered. The numbers go on.
    pub(crate) fn rest(&mut self) {
        if self.first == self.next {
            self.parts = Vec::new();
        }
    }

    pub(crate) fn get(&mut self, number: u64) -> Option<&mut Part> {
        if !(self.first..self.next).contains(&number) {
            return self.aside.get_mut(&number);
        }
        let place = self.place(number);
        self.parts[place].as_mut()
    }

    pub(crate) fn peek(&self, number: u64) -> Option<&Part> {
        if !(self.first..self.next).contains(&number) {
            return self.aside.get(&number);
        }
        self.parts[self.place(number)].as_ref()
    }

    /// Takes an answered part out.
    pub(crate) fn remove(&mut self, number: u64) -> Option<Part> {
        if !(self.first..self.next).contains(&number) {
            let part = self.aside.remove(&number)?;
            if let Some(left) = self.groups_aside.get_mut(&part.group) {
                *left -= 1;
                if *left == 0 {
                    self.groups_aside.remove(&part.group);
                }
            }
            return Some(part);
        }
        let place = self.place(number);
        let part = self.parts[place].take();
        while self.first < self.next && self.parts[self.place(self.first)].is_none() {
            self.first += 1;
        }
        part
    }
}
