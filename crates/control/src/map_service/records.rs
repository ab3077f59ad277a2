//! The map's records as keys and values of the store.

use coquina_cluster::{InvalidRecord, Key, MapError, Record, Write};
use coquina_store::{Compare, Event, KeyValue, Operation, Revision, Snapshot, Transaction};

/// What all keys of the map begin with. Other keys of the cluster begin differently, so that no watch of the map sees
/// them.
const PREFIX: &[u8] = b"coquina/map/";
/// The election of the process that leads.
pub(crate) const ELECTION: &[u8] = b"coquina/leader";

/// What the map is read and watched under.
pub(crate) fn read_prefix() -> &'static [u8] {
    PREFIX
}

fn store_key(key: &Key) -> Vec<u8> {
    [PREFIX, key.to_string().as_bytes()].concat()
}

/// The transaction of a write.
pub(crate) fn transaction(write: Write, fence: Option<Compare>) -> Transaction {
    let key = store_key(&write.key);
    let mut compares = vec![Compare::ModRevision { key: key.clone(), revision: write.expected_revision }];
    compares.extend(fence);
    let unchanged = write.unchanged.iter();
    compares.extend(unchanged.map(|(key, at)| Compare::ModRevision { key: store_key(key), revision: *at }));
    if let Some(revision) = write.copies_unchanged_since {
        let prefixes = Key::COPIES_PREFIXES.iter().map(|prefix| [PREFIX, prefix.as_bytes()].concat());
        compares.extend(prefixes.map(|prefix| Compare::NoneAfter { prefix, revision }));
    }
    let operation = match &write.record {
        Some(record) => Operation::Put { key, value: record.encode(), lease: None },
        None => Operation::Delete { key },
    };
    Transaction { compares, operations: vec![operation] }
}

/// All records of a read.
pub(crate) fn decode_snapshot(snapshot: &Snapshot) -> Result<Vec<(Key, u64, Record)>, MapError> {
    snapshot
        .items
        .iter()
        .map(|item| decode_item(item).map(|(key, record)| (key, item.mod_revision, record)))
        .collect()
}

/// All changes of a revision.
pub(crate) fn decode_revision(revision: &Revision) -> Result<Vec<(Key, Option<Record>)>, MapError> {
    let decode = |event: &Event| match event {
        Event::Put(item) => decode_item(item).map(|(key, record)| (key, Some(record))),
        Event::Delete { key } => Ok((decode_key(key)?, None)),
    };
    revision.events.iter().map(decode).collect()
}

fn decode_item(item: &KeyValue) -> Result<(Key, Record), MapError> {
    let key = decode_key(&item.key)?;
    let record = Record::decode(&key, &item.value)?;
    Ok((key, record))
}

fn decode_key(key: &[u8]) -> Result<Key, MapError> {
    let text = key.strip_prefix(PREFIX).and_then(|rest| std::str::from_utf8(rest).ok());
    let invalid = |reason: String| {
        MapError::Invalid(InvalidRecord { record: String::from_utf8_lossy(key).into_owned(), reason })
    };
    let text = text.ok_or_else(|| invalid("it is not a key of the map".to_owned()))?;
    text.parse().map_err(|error: coquina_cluster::UnknownKey| invalid(error.to_string()))
}
