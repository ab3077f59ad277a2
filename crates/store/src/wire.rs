//! The part of etcd's protocol that is used here: its messages, with the field numbers of etcd's `rpc.proto`,
//! `kv.proto` and `auth.proto` (API version 3.4, unchanged up to 3.6). Fields that nobody here needs are left
//! out: protobuf skips unknown ones.
//!
//! Written by hand, so that a build needs no `protoc`.

use crate::api::{Event, KeyValue, LeaseId, Revision};

mod messages;

pub(crate) use messages::*;

/// Paths of the methods.
pub(crate) mod path {
    pub(crate) const RANGE: &str = "/etcdserverpb.KV/Range";
    pub(crate) const PUT: &str = "/etcdserverpb.KV/Put";
    pub(crate) const DELETE_RANGE: &str = "/etcdserverpb.KV/DeleteRange";
    pub(crate) const TXN: &str = "/etcdserverpb.KV/Txn";
    pub(crate) const COMPACT: &str = "/etcdserverpb.KV/Compact";
    pub(crate) const WATCH: &str = "/etcdserverpb.Watch/Watch";
    pub(crate) const LEASE_GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
    pub(crate) const LEASE_REVOKE: &str = "/etcdserverpb.Lease/LeaseRevoke";
    pub(crate) const LEASE_KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";
    pub(crate) const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";
    pub(crate) const STATUS: &str = "/etcdserverpb.Maintenance/Status";
}

/// An answer; all of etcd's have a header.
pub(crate) trait Answer: prost::Message + Default + 'static {
    /// Who answered, and how far it was.
    fn header(&self) -> Option<&ResponseHeader>;
}

macro_rules! answers {
    ($($message:ty),*) => {
        $(impl Answer for $message {
            fn header(&self) -> Option<&ResponseHeader> {
                self.header.as_ref()
            }
        })*
    };
}

answers!(
    RangeResponse,
    TxnResponse,
    CompactionResponse,
    LeaseGrantResponse,
    LeaseRevokeResponse,
    LeaseKeepAliveResponse
);

/// The first key after all that begin with a prefix, as etcd wants a range's end; a single zero byte is "no end".
pub(crate) fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.last_mut() {
        if *last < u8::MAX {
            *last += 1;
            return end;
        }
        end.pop();
    }
    vec![0]
}

/// A revision number of the protocol; nothing that is there has a negative one.
pub(crate) fn revision(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// A revision number for the protocol.
pub(crate) fn number(revision: u64) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}

impl From<KeyValueMessage> for KeyValue {
    fn from(message: KeyValueMessage) -> Self {
        KeyValue {
            key: message.key,
            value: message.value,
            create_revision: revision(message.create_revision),
            mod_revision: revision(message.mod_revision),
            lease: (message.lease != 0).then_some(LeaseId(message.lease)),
        }
    }
}

impl From<KeyValue> for KeyValueMessage {
    fn from(item: KeyValue) -> Self {
        KeyValueMessage {
            key: item.key,
            create_revision: number(item.create_revision),
            mod_revision: number(item.mod_revision),
            value: item.value,
            lease: item.lease.map_or(0, |lease| lease.0),
        }
    }
}

/// A revision's events, as etcd tells them: a deleted key carries the revision too.
pub(crate) fn event_messages(revision: &Revision) -> Vec<EventMessage> {
    let message = |event: &Event| match event {
        Event::Put(item) => EventMessage { kind: EventKind::Put as i32, item: Some(item.clone().into()) },
        Event::Delete { key } => {
            let item = KeyValueMessage {
                key: key.clone(),
                mod_revision: number(revision.revision),
                ..KeyValueMessage::default()
            };
            EventMessage { kind: EventKind::Delete as i32, item: Some(item) }
        }
    };
    revision.events.iter().map(message).collect()
}

/// Puts events together into whole revisions; `None` if they are nonsense.
pub(crate) fn revisions(messages: Vec<EventMessage>) -> Option<Vec<Revision>> {
    let mut revisions: Vec<Revision> = Vec::new();
    for message in messages {
        let item = KeyValue::from(message.item?);
        let number = item.mod_revision;
        let event = match EventKind::try_from(message.kind).ok()? {
            EventKind::Put => Event::Put(item),
            EventKind::Delete => Event::Delete { key: item.key },
        };
        match revisions.last_mut() {
            Some(last) if last.revision == number => last.events.push(event),
            Some(last) if last.revision > number => return None,
            _ => revisions.push(Revision { revision: number, events: vec![event] }),
        }
    }
    Some(revisions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_prefix_is_after_all_its_keys() {
        assert_eq!(prefix_end(b"/a/"), b"/a0");
        assert_eq!(prefix_end(&[1, 255]), [2]);
        assert_eq!(prefix_end(&[255, 255]), [0]);
    }
}
