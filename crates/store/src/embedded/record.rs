//! The bytes of the embedded store's file.
//!
//! | offset | bytes | head of the file |
//! |---|---|---|
//! | 0 | 8 | `COQSTORE` |
//! | 8 | 4 | format |
//! | 12 | 4 | zero |
//! | 16 | 8 | store id |
//! | 24 | 4 | zero |
//! | 28 | 4 | CRC32C of the 28 bytes before |
//!
//! Records follow, each:
//!
//! | offset | bytes | |
//! |---|---|---|
//! | 0 | 4 | length of the content |
//! | 4 | 4 | CRC32C of length, store id, number and content |
//! | 8 | 8 | number: 0, 1, 2 ... |
//! | 16 | length | content: a protobuf [`Record`] |
//!
//! All numbers are little-endian. Record 0 holds all of the state, the others what happened since.
//!
//! Invariants:
//! - head and record 0 are put in place by a rename and are never torn;
//! - each record is durable before the next is written: only the last one can be torn, and it was not answered.
//!   A bad record with a good one behind it is damage.

use std::sync::Arc;

use coquina_base::crc32c_bytes;
use prost::{Enumeration, Message};

use crate::api::{Lease, LeaseId, Revision};
use crate::machine::{Effect, Machine, MachineImage};
use crate::wire::{EventMessage, KeyValueMessage, event_messages, number, revision, revisions};

/// The newest format that this build writes and reads.
pub(super) const FORMAT: u32 = 1;
const MAGIC: &[u8; 8] = b"COQSTORE";
const HEAD_BYTES: usize = 32;
const RECORD_HEAD_BYTES: usize = 16;

#[derive(Clone, PartialEq, Message)]
struct Record {
    #[prost(message, optional, tag = "1")]
    image: Option<ImageMessage>,
    #[prost(message, repeated, tag = "2")]
    effects: Vec<EffectMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct ImageMessage {
    #[prost(uint64, tag = "1")]
    revision: u64,
    #[prost(uint64, tag = "2")]
    compacted: u64,
    #[prost(int64, tag = "3")]
    lease_last: i64,
    #[prost(message, repeated, tag = "4")]
    keys: Vec<KeyValueMessage>,
    #[prost(message, repeated, tag = "5")]
    history: Vec<EventMessage>,
    #[prost(message, repeated, tag = "6")]
    leases: Vec<LeaseMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct LeaseMessage {
    #[prost(int64, tag = "1")]
    id: i64,
    #[prost(uint64, tag = "2")]
    seconds: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Enumeration)]
#[repr(i32)]
enum EffectKind {
    Unknown = 0,
    Changed = 1,
    Granted = 2,
    Ended = 3,
    Compacted = 4,
}

#[derive(Clone, PartialEq, Message)]
struct EffectMessage {
    #[prost(enumeration = "EffectKind", tag = "1")]
    kind: i32,
    #[prost(message, repeated, tag = "2")]
    events: Vec<EventMessage>,
    #[prost(message, optional, tag = "3")]
    lease: Option<LeaseMessage>,
    #[prost(int64, tag = "4")]
    revision: i64,
}

/// Why a file cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    Damaged(String),
    NewerFormat(u32),
}

/// A file that was read.
#[derive(Debug)]
pub(super) struct Loaded {
    pub store_id: u64,
    pub machine: Machine,
    /// Length of the part that counts; what is behind it was never answered.
    pub bytes: usize,
}

/// A whole file that holds a state.
pub(super) fn encode_file(store_id: u64, machine: &Machine) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD_BYTES);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&FORMAT.to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&store_id.to_le_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&crc32c_bytes(&bytes).to_le_bytes());
    assert!(bytes.len() == HEAD_BYTES, "the head's fields make up its length");
    let record = Record { image: Some(encode_image(machine.image())), effects: Vec::new() };
    encode_record(store_id, 0, &record.encode_to_vec(), &mut bytes);
    bytes
}

/// A record of what happened.
pub(super) fn encode_effects(store_id: u64, record: u64, effects: &[Effect]) -> Vec<u8> {
    let effects = effects.iter().map(encode_effect).collect();
    let content = Record { image: None, effects }.encode_to_vec();
    let mut bytes = Vec::with_capacity(RECORD_HEAD_BYTES + content.len());
    encode_record(store_id, record, &content, &mut bytes);
    bytes
}

fn encode_record(store_id: u64, record: u64, content: &[u8], bytes: &mut Vec<u8>) {
    let length = u32::try_from(content.len()).unwrap_or_else(|_| panic!("a record is smaller than 4 GiB"));
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&record_checksum(store_id, record, content).to_le_bytes());
    bytes.extend_from_slice(&record.to_le_bytes());
    bytes.extend_from_slice(content);
}

fn record_checksum(store_id: u64, record: u64, content: &[u8]) -> u32 {
    // The checksum of the numbers, then of the content, joined: without a copy of the content.
    let mut head = [0_u8; 24];
    head[..8].copy_from_slice(&(content.len() as u64).to_le_bytes());
    head[8..16].copy_from_slice(&store_id.to_le_bytes());
    head[16..].copy_from_slice(&record.to_le_bytes());
    let mut joined = [0_u8; 8];
    joined[..4].copy_from_slice(&crc32c_bytes(&head).to_le_bytes());
    joined[4..].copy_from_slice(&crc32c_bytes(content).to_le_bytes());
    crc32c_bytes(&joined)
}

fn encode_image(image: MachineImage) -> ImageMessage {
    ImageMessage {
        revision: image.revision,
        compacted: image.compacted,
        lease_last: image.lease_last,
        keys: image.keys.into_iter().map(Into::into).collect(),
        history: image.history.iter().flat_map(|revision| event_messages(revision)).collect(),
        leases: image
            .leases
            .iter()
            .map(|lease| LeaseMessage { id: lease.id.0, seconds: lease.seconds })
            .collect(),
    }
}

fn decode_image(message: ImageMessage) -> Option<MachineImage> {
    let lease = |lease: &LeaseMessage| Lease { id: LeaseId(lease.id), seconds: lease.seconds };
    Some(MachineImage {
        revision: message.revision,
        compacted: message.compacted,
        lease_last: message.lease_last,
        keys: message.keys.into_iter().map(Into::into).collect(),
        history: revisions(message.history)?.into_iter().map(Arc::new).collect(),
        leases: message.leases.iter().map(lease).collect(),
    })
}

fn encode_effect(effect: &Effect) -> EffectMessage {
    let empty = EffectMessage::default();
    match effect {
        Effect::Changed(revision) => EffectMessage {
            kind: EffectKind::Changed as i32,
            events: event_messages(revision),
            revision: number(revision.revision),
            ..empty
        },
        Effect::Granted { lease, seconds } => {
            let lease = Some(LeaseMessage { id: lease.0, seconds: *seconds });
            EffectMessage { kind: EffectKind::Granted as i32, lease, ..empty }
        }
        Effect::Ended { lease } => {
            let lease = Some(LeaseMessage { id: lease.0, seconds: 0 });
            EffectMessage { kind: EffectKind::Ended as i32, lease, ..empty }
        }
        Effect::Compacted { revision } => {
            EffectMessage { kind: EffectKind::Compacted as i32, revision: number(*revision), ..empty }
        }
    }
}

fn decode_effect(message: EffectMessage) -> Option<Effect> {
    let lease = message.lease.as_ref();
    match EffectKind::try_from(message.kind).ok()? {
        EffectKind::Unknown => None,
        EffectKind::Changed => {
            let mut decoded: Vec<Revision> = revisions(message.events)?;
            let only = decoded.pop()?;
            let whole = decoded.is_empty() && only.revision == revision(message.revision);
            whole.then(|| Effect::Changed(Arc::new(only)))
        }
        EffectKind::Granted => {
            lease.map(|lease| Effect::Granted { lease: LeaseId(lease.id), seconds: lease.seconds })
        }
        EffectKind::Ended => lease.map(|lease| Effect::Ended { lease: LeaseId(lease.id) }),
        EffectKind::Compacted => Some(Effect::Compacted { revision: revision(message.revision) }),
    }
}

/// Reads a whole file.
pub(super) fn decode_file(bytes: &[u8], now_ns: u64) -> Result<Loaded, Refused> {
    let store_id = decode_head(bytes)?;
    let damaged = |reason: &str, record: u64| Refused::Damaged(format!("{reason} in record {record}"));
    let mut offset = HEAD_BYTES;
    let first = decode_record(bytes, offset, store_id, 0)
        .ok_or_else(|| damaged("the checksum does not match, or bytes are missing,", 0))?;
    let machine = first.content.image.and_then(decode_image);
    let machine = machine.and_then(|image| Machine::from_image(image, now_ns));
    let mut machine = machine.ok_or_else(|| damaged("there is an impossible state", 0))?;
    offset += first.bytes;
    let mut record = 1;
    while let Some(found) = decode_record(bytes, offset, store_id, record) {
        for effect in found.content.effects {
            let replayed = decode_effect(effect).is_some_and(|effect| machine.replay(&effect, now_ns));
            if !replayed {
                return Err(damaged("there is an impossible change", record));
            }
        }
        offset += found.bytes;
        record += 1;
    }
    if good_record_follows(bytes, offset, store_id, record) {
        return Err(damaged("the checksum does not match", record));
    }
    Ok(Loaded { store_id, machine, bytes: offset })
}

fn decode_head(bytes: &[u8]) -> Result<u64, Refused> {
    let damaged = |reason: &str| Refused::Damaged(reason.to_owned());
    let head = bytes.get(..HEAD_BYTES).ok_or_else(|| damaged("it is shorter than its head"))?;
    if &head[..8] != MAGIC {
        return Err(damaged("it does not begin like a store's file"));
    }
    let format = u32_at(head, 8);
    if crc32c_bytes(&head[..28]) != u32_at(head, 28) || format == 0 {
        return Err(damaged("the checksum of its head does not match"));
    }
    if format > FORMAT {
        return Err(Refused::NewerFormat(format));
    }
    Ok(u64_at(head, 16))
}

struct Found {
    content: Record,
    bytes: usize,
}

/// The record at an offset, if a whole and good one with that number is there.
fn decode_record(bytes: &[u8], offset: usize, store_id: u64, record: u64) -> Option<Found> {
    let content = record_content(bytes, offset, store_id, |found| found == record)?;
    let bytes = RECORD_HEAD_BYTES + content.len();
    Some(Found { content: Record::decode(content).ok()?, bytes })
}

fn record_content(
    bytes: &[u8],
    offset: usize,
    store_id: u64,
    expected: impl Fn(u64) -> bool,
) -> Option<&[u8]> {
    let rest = bytes.get(offset..)?;
    let head = rest.get(..RECORD_HEAD_BYTES)?;
    let record = u64_at(head, 8);
    if !expected(record) {
        return None;
    }
    let content = rest[RECORD_HEAD_BYTES..].get(..u32_at(head, 0) as usize)?;
    (record_checksum(store_id, record, content) == u32_at(head, 4)).then_some(content)
}

/// Whether a good record lies anywhere behind a bad one, which then cannot be the last.
fn good_record_follows(bytes: &[u8], bad_offset: usize, store_id: u64, bad_record: u64) -> bool {
    // Fewer records than bytes can lie between.
    let numbers = bad_record + 1..bad_record + 1 + bytes.len() as u64;
    (bad_offset + 1..bytes.len())
        .any(|offset| record_content(bytes, offset, store_id, |record| numbers.contains(&record)).is_some())
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    let mut field = [0; 4];
    field.copy_from_slice(&bytes[offset..offset + 4]);
    u32::from_le_bytes(field)
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    let mut field = [0; 8];
    field.copy_from_slice(&bytes[offset..offset + 8]);
    u64::from_le_bytes(field)
}
