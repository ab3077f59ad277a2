//! What goes out to one copy of one group, in order; the data of entries may have to be read back from the log first.
//!
//! Invariant: an entry that is being read back stays uncommitted at the engine until it is read, for the engine keeps only
//! those readable.

use std::collections::VecDeque;

use coquina_engine::{Failure, ReadData};
use coquina_replication::{CopyId, Entry, EntryKind, GroupEpoch, GroupId, Message};

use crate::api::Sink;
use crate::drain::fetch_token;
use crate::payload::{self, Payload};
use crate::shard::{Context, ShardCopies};

/// The other copy knows [`Message::Released`].
pub const FEATURE_RELEASE: u64 = 4;

/// Data of entries in one message of a tail; what is left is asked for again.
const TAIL_BYTES_MAX: usize = 1 << 20;
/// Entries in one message of a tail: they take up to 78 bytes each beside their data, and many have none.
const TAIL_ENTRIES_MAX: usize = 1 << 14;
/// After so many reads in vain of what copies in sync wait for, this copy gives up.
const FETCH_TRIES: u32 = 3;

/// A message that waits for its data, or behind one that does.
#[derive(Debug)]
struct Held {
    message: Message,
    /// Data, part by part; none for what is being read.
    parts: Vec<Option<Vec<u8>>>,
}

impl Held {
    /// Takes data that was read back. There is none of an entry that was logged without effect because its layer is deleted
    /// here: any data does then, for nobody reads that layer again.
    fn put(&mut self, part: usize, bytes: Vec<u8>) {
        let entry = match &self.message {
            Message::Append { entry, .. } => Some(entry),
            Message::Tail { entries, .. } => {
                entries.iter().filter(|entry| entry.kind == EntryKind::Write).nth(part)
            }
            _ => None,
        };
        let is_gone = bytes.is_empty() && entry.is_some_and(|entry| payload::entry_bytes(entry) > 0);
        let bytes = if is_gone { entry.map(payload::zeroed_entry).unwrap_or_default() } else { bytes };
        if let Some(place) = self.parts.get_mut(part) {
            *place = Some(bytes);
        }
    }
}

/// What waits to go out on one connection. Empty nearly always.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    queue: VecDeque<Held>,
    /// Messages that have left the queue.
    sent: u64,
}

/// An entry that is being read back.
#[derive(Debug)]
pub(crate) struct Fetch {
    member: usize,
    to: CopyId,
    /// Which message of the lane, and which part of its data.
    message: u64,
    part: usize,
    sequence: u64,
    issued: bool,
    /// The connection is gone.
    dropped: bool,
}

impl Fetch {
    /// Whether it is of a group.
    pub(crate) fn is_of(&self, member: usize) -> bool {
        self.member == member
    }
}

impl ShardCopies {
    pub(crate) fn send(
        &mut self,
        key: usize,
        to: CopyId,
        mut message: Message,
        context: Context<'_>,
        sink: &mut impl Sink,
    ) {
        let member = &mut self.members[key];
        let number = member.number;
        let Some(lane) = member.lanes.get_mut(&to) else { return };
        let one = |epoch| GroupEpoch { group: GroupId(number), epoch };
        match message {
            Message::GrantRequest { config_epoch, sent_ns } => {
                return self.keep_grant(to, one(config_epoch), sent_ns, true);
            }
            Message::Grant { config_epoch, sent_ns } => {
                return self.keep_grant(to, one(config_epoch), sent_ns, false);
            }
            Message::Released { .. } => {
                // It says by its epoch what it is about, and need not wait for entries that are read back.
                if self.repairs.has(to, FEATURE_RELEASE) {
                    sink.send(to, number, &message, Payload::default());
                }
                return;
            }
            _ => {}
        }
        let is_free = lane.queue.is_empty();
        let mut wanted = Vec::new();
        let parts = match (&mut message, context) {
            (Message::Append { entry, .. }, _) if entry.kind != EntryKind::Write => Vec::new(),
            (Message::Append { entry, .. }, Context::Appended(appended))
                if appended.origin.sequence == entry.sequence =>
            {
                let (checksums_le, data) = self.shard.appended(appended);
                let payload = Payload { head: checksums_le, data: &[data] };
                assert_eq!(payload.length_bytes(), payload::entry_bytes(entry), "{entry:?} lost its data");
                if is_free {
                    return sink.send(to, number, &message, payload);
                }
                let mut bytes = Vec::with_capacity(payload.length_bytes());
                payload.append_to(&mut bytes);
                vec![Some(bytes)]
            }
            (Message::Append { entry, .. }, _) => {
                wanted.push(entry.sequence);
                vec![None]
            }
            (Message::Tail { entries, .. }, _) => {
                cap_tail(entries);
                wanted.extend(writes(entries));
                wanted.iter().map(|_| None).collect()
            }
            (Message::Recover { range, .. }, Context::Read(bytes)) => {
                member.recovered_blocks += u64::from(range.count);
                if is_free {
                    return sink.send(to, number, &message, Payload { head: bytes, data: &[] });
                }
                vec![Some(bytes.to_vec())]
            }
            (Message::Recover { .. }, _) => panic!("data to recover is sent when it was read"),
            _ => Vec::new(),
        };
        if is_free && parts.is_empty() {
            return sink.send(to, number, &message, Payload::default());
        }
        let place = lane.sent + lane.queue.len() as u64;
        lane.queue.push_back(Held { message, parts });
        for (part, sequence) in wanted.into_iter().enumerate() {
            self.members[key].fetches += 1;
            let fetch = self.fetches.insert(Fetch {
                member: key,
                to,
                message: place,
                part,
                sequence,
                issued: false,
                dropped: false,
            });
            self.issue_fetch(fetch);
        }
    }

    /// Reads an entry back if it is in the log by now.
    fn issue_fetch(&mut self, fetch: usize) {
        let one = &mut self.fetches[fetch];
        let (number, sequence) = (self.members[one.member].number, one.sequence);
        if !one.issued && self.shard.group(number).is_some_and(|group| group.last >= sequence) {
            one.issued = true;
            self.shard.read_entry(fetch_token(fetch), number, sequence);
        }
    }

    /// More of a group is durable.
    pub(crate) fn issue_fetches(&mut self, key: usize) {
        if self.members[key].fetches == 0 {
            return;
        }
        let fetches: Vec<usize> =
            self.fetches.iter().filter(|(_, fetch)| fetch.member == key).map(|(fetch, _)| fetch).collect();
        fetches.into_iter().for_each(|fetch| self.issue_fetch(fetch));
    }

    /// An entry was read back.
    pub(crate) fn fetched(&mut self, fetch: usize, result: Result<ReadData, Failure>, sink: &mut impl Sink) {
        let fetch = self.fetches.remove(fetch);
        let key = fetch.member;
        match result {
            Ok(data) => {
                let bytes = entry_payload(&data);
                self.shard.recycle(data);
                if !fetch.dropped {
                    let lane = self.members[key].lanes.get_mut(&fetch.to);
                    let held = lane.and_then(|lane| lane.queue.get_mut((fetch.message - lane.sent) as usize));
                    if let Some(held) = held {
                        held.put(fetch.part, bytes);
                    }
                }
            }
            // It cannot be sent: the next connection asks for what is missing then.
            Err(_) if !fetch.dropped => {
                self.drop_lane(key, fetch.to);
                if self.is_given_up(key, &fetch) {
                    self.halt(key, Failure::BadBlock, sink);
                } else {
                    sink.disconnect(fetch.to);
                }
            }
            Err(_) => {}
        }
        if !fetch.dropped {
            self.members[key].fetches -= 1;
            self.commit_at_engine(key);
            self.flush(key, fetch.to, sink);
        }
    }

    /// Counts a read in vain, and says whether this copy must leave the group to the others. What a copy in sync has not got it has
    /// not acknowledged, so neither this entry nor any behind it is committed, and each other copy in sync has all that is: they go on
    /// without this one, where nothing more would ever be committed. For a copy that is out nobody but itself waits.
    fn is_given_up(&mut self, key: usize, fetch: &Fetch) -> bool {
        let member = &mut self.members[key];
        if !member.group.known().is_in_sync(fetch.to) {
            return false;
        }
        let committed = member.group.committed();
        let before = member.unreadable.filter(|(sequence, _)| *sequence > committed);
        let tries = before.map_or(0, |(_, tries)| tries) + 1;
        member.unreadable = Some((fetch.sequence, tries));
        tries >= FETCH_TRIES
    }

    /// Sends what has its data.
    fn flush(&mut self, key: usize, to: CopyId, sink: &mut impl Sink) {
        let member = &mut self.members[key];
        let Some(lane) = member.lanes.get_mut(&to) else { return };
        while lane.queue.front().is_some_and(|held| held.parts.iter().all(Option::is_some)) {
            let Some(held) = lane.queue.pop_front() else { break };
            lane.sent += 1;
            let data: Vec<&[u8]> = held.parts.iter().flatten().map(Vec::as_slice).collect();
            sink.send(to, member.number, &held.message, Payload { head: &[], data: &data });
        }
    }

    /// Forgets what was to go out on a connection that is gone.
    pub(crate) fn drop_lane(&mut self, key: usize, copy: CopyId) {
        self.end_reads_again(key, copy);
        if self.members[key].lanes.remove(&copy).is_none() || self.members[key].fetches == 0 {
            return;
        }
        let of_lane = |fetch: &Fetch| fetch.member == key && fetch.to == copy && !fetch.dropped;
        let mut ended = 0;
        self.fetches.retain(|_, fetch| {
            if of_lane(fetch) {
                ended += 1;
                fetch.dropped = true;
            }
            !fetch.dropped || fetch.issued
        });
        self.members[key].fetches -= ended;
        self.commit_at_engine(key);
    }

    /// Tells the engine what is committed, but for entries that are still to be read back.
    pub(crate) fn commit_at_engine(&mut self, key: usize) {
        let member = &self.members[key];
        let mut commit = member.commit;
        if member.fetches > 0 {
            let fetches = self.fetches.iter().map(|(_, fetch)| fetch);
            let held =
                fetches.filter(|fetch| fetch.member == key && !fetch.dropped).map(|fetch| fetch.sequence);
            commit = commit.min(held.min().map_or(u64::MAX, |first| first - 1));
        }
        self.shard.commit(member.number, commit);
    }
}

/// Cuts a tail where it becomes too much for one message.
fn cap_tail(entries: &mut Vec<Entry>) {
    let mut bytes = 0;
    let fits = entries.iter().take(TAIL_ENTRIES_MAX).take_while(|entry| {
        bytes += payload::entry_bytes(entry);
        bytes <= TAIL_BYTES_MAX
    });
    let fits = fits.count().max(1);
    entries.truncate(fits);
}

fn writes(entries: &[Entry]) -> impl Iterator<Item = u64> + '_ {
    entries.iter().filter(|entry| entry.kind == EntryKind::Write).map(|entry| entry.sequence)
}

/// The bytes behind an entry that was read back.
fn entry_payload(data: &ReadData) -> Vec<u8> {
    let mut bytes = Vec::new();
    data.checksums.iter().for_each(|checksum| bytes.extend_from_slice(&checksum.to_le_bytes()));
    data.append_to(&mut bytes);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use coquina_base::LayerId;
    use coquina_replication::{BlockRange, PayloadRef, encode_message};

    /// What `coquina-protocol` takes as one frame (`PEER_FRAME_BYTES_MAX`); more ends the process.
    const FRAME_BYTES_MAX: usize = 8 << 20;

    fn tail(kind: EntryKind, entries: u64) -> Vec<Entry> {
        let range = BlockRange { layer: LayerId(1), chunk: 0, first: 0, count: 1 };
        let entry = |sequence| Entry {
            epoch: 1,
            sequence,
            session: 9,
            request: sequence,
            kind,
            range,
            is_last: true,
            payload: PayloadRef(0),
        };
        (1..=entries).map(entry).collect()
    }

    /// Entries without data were not counted.
    #[test]
    fn a_tail_of_any_entries_fits_a_frame() {
        let fence = EntryKind::Fence { volume: u128::MAX, generation: u64::MAX };
        for kind in [EntryKind::Trim, EntryKind::Zeroes, EntryKind::Write, fence] {
            let mut entries = tail(kind, 200_000);
            cap_tail(&mut entries);
            let data_bytes: usize = entries.iter().map(payload::entry_bytes).sum();
            let first = tail(kind, entries.len() as u64);
            assert!(!entries.is_empty() && entries == first, "what is left is asked for behind these");
            let mut bytes = Vec::new();
            encode_message(&Message::Tail { config_epoch: 1, entries }, data_bytes as u32, &mut bytes);
            assert!(bytes.len() + data_bytes < FRAME_BYTES_MAX / 2, "{kind:?}: {} bytes", bytes.len());
        }
        let mut entries = tail(EntryKind::Trim, 3);
        cap_tail(&mut entries);
        assert_eq!(entries.len(), 3);
    }
}
