//! Bytes of what copies say to each other and keep in their logs: little-endian, lengths checked, counts bounded by
//! what is there. The data of entries is not in here: its length is given with a message, and it travels behind.
//!
//! Invariants:
//! - what is decoded is what was encoded, but for [`PayloadRef`]s, which mean nothing elsewhere and become 0;
//! - no input makes `decode` panic or allocate more than a small multiple of the input's length.

use coquina_base::{CHUNK_BLOCKS, LayerId};

use crate::changed::{ChangedSet, Missing, MissingSets, RangeSet};
use crate::history::{History, Run};
use crate::message::Message;
use crate::session::{SESSIONS_MAX, Sessions, Window};
use crate::types::{BlockRange, Config, CopyId, Entry, EntryKind, GroupEpoch, GroupId, PayloadRef, Recovery};

/// Why bytes are not what they should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecodeError {
    /// The bytes end too early.
    #[error("ends too early: the sender or the drive is damaged, or of another version")]
    Truncated,
    /// Something that cannot be.
    #[error("{0} is not valid: the sender or the drive is damaged, or of another version")]
    Invalid(&'static str),
}

use DecodeError::{Invalid, Truncated};

/// Something that has a form in bytes.
pub trait Codec: Sized {
    /// Fewest bytes that it takes; above 0.
    const BYTES_MIN: usize;
    /// Appends its bytes.
    fn encode(&self, out: &mut Vec<u8>);
    /// Takes it off the front of the bytes.
    fn decode(bytes: &mut &[u8]) -> Result<Self, DecodeError>;
}

macro_rules! integers {
    ($($integer:ty),*) => {$(
        impl Codec for $integer {
            const BYTES_MIN: usize = size_of::<$integer>();

            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn decode(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
                let (taken, rest) = bytes.split_first_chunk().ok_or(Truncated)?;
                *bytes = rest;
                Ok(<$integer>::from_le_bytes(*taken))
            }
        }
    )*};
}
integers!(u8, u32, u64, u128);

impl Codec for bool {
    const BYTES_MIN: usize = 1;

    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
        match u8::decode(bytes)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Invalid("a flag")),
        }
    }
}

impl Codec for Option<u64> {
    const BYTES_MIN: usize = 1;

    fn encode(&self, out: &mut Vec<u8>) {
        self.is_some().encode(out);
        if let Some(value) = self {
            value.encode(out);
        }
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
        bool::decode(bytes)?.then(|| u64::decode(bytes)).transpose()
    }
}

fn encode_all<'a, T: Codec + 'a>(items: impl ExactSizeIterator<Item = &'a T>, out: &mut Vec<u8>) {
    encode_count(items.len(), out);
    items.for_each(|item| item.encode(out));
}

fn encode_count(count: usize, out: &mut Vec<u8>) {
    u32::try_from(count).expect("a list is shorter than 2^32").encode(out);
}

/// A count of items of which each takes at least so many bytes.
fn decode_count(bytes: &mut &[u8], item_bytes_min: usize) -> Result<usize, DecodeError> {
    let count = u32::decode(bytes)? as usize;
    if count > bytes.len() / item_bytes_min { Err(Truncated) } else { Ok(count) }
}

impl<T: Codec> Codec for Vec<T> {
    const BYTES_MIN: usize = 4;

    fn encode(&self, out: &mut Vec<u8>) {
        encode_all(self.iter(), out);
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
        let count = decode_count(bytes, T::BYTES_MIN)?;
        (0..count).map(|_| T::decode(bytes)).collect()
    }
}

impl Codec for CopyId {
    const BYTES_MIN: usize = 8;

    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
        u64::decode(bytes).map(CopyId)
    }
}

impl Codec for GroupEpoch {
    const BYTES_MIN: usize = 12;

    fn encode(&self, out: &mut Vec<u8>) {
        self.group.0.encode(out);
        self.epoch.encode(out);
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
        Ok(GroupEpoch { group: GroupId(u32::decode(bytes)?), epoch: u64::decode(bytes)? })
    }
}

impl Codec for BlockRange {
    const BYTES_MIN: usize = 20;

    fn encode(&self, out: &mut Vec<u8>) {
        self.layer.0.encode(out);
        [self.chunk, self.first, self.count].iter().for_each(|part| part.encode(out));
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
        let layer = LayerId(u64::decode(bytes)?);
        let (chunk, first, count) = (u32::decode(bytes)?, u32::decode(bytes)?, u32::decode(bytes)?);
        let range = BlockRange { layer, chunk, first, count };
        let in_chunk = first.checked_add(count).is_some_and(|end| end <= CHUNK_BLOCKS);
        let valid = if range.is_whole_layer() { first == 0 && count == 1 } else { in_chunk };
        if valid { Ok(range) } else { Err(Invalid("a range of blocks")) }
    }
}

impl Codec for EntryKind {
    const BYTES_MIN: usize = 1;

    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            EntryKind::Write => out.push(1),
            EntryKind::Trim => out.push(2),
            EntryKind::Zeroes => out.push(3),
            EntryKind::DeleteLayer => out.push(4),
            EntryKind::Fence { volume, generation } => {
                out.push(5);
                volume.encode(out);
                generation.encode(out);
            }
        }
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
        Ok(match u8::decode(bytes)? {
            1 => EntryKind::Write,
            2 => EntryKind::Trim,
            3 => EntryKind::Zeroes,
            4 => EntryKind::DeleteLayer,
            5 => EntryKind::Fence { volume: u128::decode(bytes)?, generation: u64::decode(bytes)? },
            _ => return Err(Invalid("a kind of change")),
        })
    }
}

impl Codec for Entry {
    const BYTES_MIN: usize = 4 * 8 + 1 + BlockRange::BYTES_MIN + 1;

    fn encode(&self, out: &mut Vec<u8>) {
        [self.epoch, self.sequence, self.session, self.request].iter().for_each(|part| part.encode(out));
        self.kind.encode(out);
        self.range.encode(out);
        self.is_last.encode(out);
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
        Ok(Entry {
            epoch: u64::decode(bytes)?,
            sequence: u64::decode(bytes)?,
            session: u64::decode(bytes)?,
            request: u64::decode(bytes)?,
            kind: EntryKind::decode(bytes)?,
            range: BlockRange::decode(bytes)?,
            is_last: bool::decode(bytes)?,
            payload: PayloadRef::default(),
        })
    }
}

impl Codec for Config {
    const BYTES_MIN: usize = 20;

    fn encode(&self, out: &mut Vec<u8>) {
        self.epoch.encode(out);
        self.in_sync.encode(out);
        self.others.encode(out);
        self.min_copies.encode(out);
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
        let (epoch, in_sync, others) = (u64::decode(bytes)?, Vec::decode(bytes)?, Vec::decode(bytes)?);
        Ok(Config { epoch, in_sync, others, min_copies: u32::decode(bytes)? })
    }
}

impl Codec for Run {
    const BYTES_MIN: usize = 16;

    fn encode(&self, out: &mut Vec<u8>) {
        self.epoch.encode(out);
        self.first_sequence.encode(out);
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
        Ok(Run { epoch: u64::decode(bytes)?, first_sequence: u64::decode(bytes)? })
    }
}

impl Codec for History {
    const BYTES_MIN: usize = 4;

    fn encode(&self, out: &mut Vec<u8>) {
        encode_all(self.runs().iter(), out);
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
        History::from_runs(Vec::decode(bytes)?).ok_or(Invalid("a history of epochs"))
    }
}

impl Codec for Recovery {
    const BYTES_MIN: usize = 12;

    fn encode(&self, out: &mut Vec<u8>) {
        self.since.encode(out);
        self.beyond.encode(out);
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
        Ok(Recovery { since: u64::decode(bytes)?, beyond: Vec::decode(bytes)? })
    }
}

/// Words of a window that are neither empty nor full are written out; of the others only which they are.
impl Codec for Window {
    const BYTES_MIN: usize = 36;

    fn encode(&self, out: &mut Vec<u8>) {
        let mask = |value: u64| {
            let places = self.seen.iter().enumerate().filter(|(_, word)| **word == value);
            places.fold(0u64, |mask, (place, _)| mask | 1 << place)
        };
        let (empty, full) = (mask(0), mask(u64::MAX));
        [self.used, self.highest, empty, full].iter().for_each(|part| part.encode(out));
        let others = self.seen.iter().filter(|word| **word != 0 && **word != u64::MAX);
        others.for_each(|word| word.encode(out));
        encode_count(self.parts.len(), out);
        for (request, blocks) in &self.parts {
            request.encode(out);
            blocks.encode(out);
        }
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
        let mut window =
            Window { used: u64::decode(bytes)?, highest: u64::decode(bytes)?, ..Window::default() };
        let (empty, full) = (u64::decode(bytes)?, u64::decode(bytes)?);
        for (place, word) in window.seen.iter_mut().enumerate() {
            *word = match (empty >> place & 1, full >> place & 1) {
                (1, 0) => 0,
                (0, 1) => u64::MAX,
                (0, 0) => u64::decode(bytes)?,
                _ => return Err(Invalid("a window of requests")),
            };
            if (empty | full) >> place & 1 == 0 && (*word == 0 || *word == u64::MAX) {
                return Err(Invalid("a window of requests"));
            }
        }
        for _ in 0..decode_count(bytes, 12)? {
            window.parts.push((u64::decode(bytes)?, u32::decode(bytes)?));
        }
        if !window.parts.is_sorted_by(|one, next| one.0 < next.0) {
            return Err(Invalid("a list of unfinished requests"));
        }
        Ok(window)
    }
}

impl Codec for Sessions {
    const BYTES_MIN: usize = 8;

    fn encode(&self, out: &mut Vec<u8>) {
        encode_count(self.windows.len(), out);
        for (session, window) in self.windows.iter() {
            session.encode(out);
            window.encode(out);
        }
        encode_count(self.fences.len(), out);
        for (volume, generation) in &self.fences {
            volume.encode(out);
            generation.encode(out);
        }
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
        let mut sessions = Sessions::default();
        let windows = decode_count(bytes, 8 + Window::BYTES_MIN)?;
        if windows > SESSIONS_MAX {
            return Err(Invalid("a number of sessions"));
        }
        for _ in 0..windows {
            let session = u64::decode(bytes)?;
            sessions.windows.insert(session, Window::decode(bytes)?);
        }
        let fences = decode_count(bytes, 24)?;
        for _ in 0..fences {
            let volume = u128::decode(bytes)?;
            sessions.fences.insert(volume, u64::decode(bytes)?);
        }
        let unique = sessions.windows.len() == windows && sessions.fences.len() == fences;
        if unique { Ok(sessions) } else { Err(Invalid("a session table")) }
    }
}

impl Codec for RangeSet {
    const BYTES_MIN: usize = 4;

    fn encode(&self, out: &mut Vec<u8>) {
        encode_count(self.ranges().count(), out);
        self.ranges().for_each(|range| range.encode(out));
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
        let mut set = RangeSet::default();
        for _ in 0..decode_count(bytes, BlockRange::BYTES_MIN)? {
            set.insert(BlockRange::decode(bytes)?);
        }
        Ok(set)
    }
}

impl Codec for MissingSets<RangeSet> {
    const BYTES_MIN: usize = 4;

    fn encode(&self, out: &mut Vec<u8>) {
        encode_count(self.iter().len(), out);
        for (copy, missing) in self.iter() {
            copy.encode(out);
            missing.base.encode(out);
            missing.set.encode(out);
        }
    }

    fn decode(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
        let mut sets = MissingSets::default();
        for _ in 0..decode_count(bytes, 20)? {
            let (copy, base) = (CopyId::decode(bytes)?, u64::decode(bytes)?);
            sets.insert(copy, Missing { base, set: RangeSet::decode(bytes)? });
        }
        Ok(sets)
    }
}

/// Appends a message. `payload_bytes` of data follow behind it, wherever they are.
pub fn encode_message(message: &Message, payload_bytes: u32, out: &mut Vec<u8>) {
    payload_bytes.encode(out);
    message.encode(out);
}

/// Takes a message off the front of the bytes; gives it with the number of bytes of data that follow.
pub fn decode_message(bytes: &mut &[u8]) -> Result<(Message, u32), DecodeError> {
    let payload_bytes = u32::decode(bytes)?;
    Ok((Message::decode(bytes)?, payload_bytes))
}

/// Kinds of messages and their fields in order. What is left out is not sent.
macro_rules! messages {
    ($($number:literal $name:ident { $($field:ident),* } $({ $left_out:ident })?;)*) => {
        impl Codec for Message {
            const BYTES_MIN: usize = 1;

            fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    $(Message::$name { $($field,)* $($left_out: _)? } => {
                        out.push($number);
                        $($field.encode(out);)*
                    })*
                }
            }

            fn decode(bytes: &mut &[u8]) -> Result<Self, DecodeError> {
                match u8::decode(bytes)? {
                    $($number => Ok(Message::$name {
                        $($field: Codec::decode(bytes)?,)*
                        $($left_out: PayloadRef::default())?
                    }),)*
                    _ => Err(Invalid("a kind of message")),
                }
            }
        }
    };
}

messages! {
    1 Configure { config };
    2 State { config_epoch, history, last, durable };
    3 FetchTail { config_epoch, from };
    4 Tail { config_epoch, entries };
    5 Append { config_epoch, previous_epoch, commit, entry };
    6 AppendAck { config_epoch, durable };
    7 Commit { config_epoch, commit };
    8 Stale { config };
    9 GrantRequest { config_epoch, sent_ns };
    10 Grant { config_epoch, sent_ns };
    11 JoinQuery { config };
    12 JoinState { config_epoch, history, last, committed, incomplete_since, intact };
    13 Cut { config_epoch, at };
    14 CutDone { config_epoch, ranges };
    15 Join { config_epoch, history, from };
    16 Recover { config_epoch, range } { payload };
    17 Sessions { config_epoch, sessions };
    18 StreamAck { config_epoch, position, durable };
    19 GrantRequests { sent_ns, groups };
    20 Grants { sent_ns, groups };
    21 Room { is_full };
    22 Opened {};
    23 OpenedToo {};
    24 RepairRead { config_epoch, repair, at, range };
    25 RepairData { config_epoch, repair, range } { payload };
    26 RepairRefused { config_epoch, repair, is_bad };
    27 HashRead { config_epoch, compare, at, range, key };
    28 Hashes { config_epoch, compare, range, hashes };
    29 HashRefused { config_epoch, compare };
    30 Released { config_epoch };
}
