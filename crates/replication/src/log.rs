//! What the group knows of its copy's log: where it ends, what is durable, what is committed.
//!
//! Invariants:
//! - `committed <= last`, `durable <= last`; `uncommitted` holds exactly the entries above `committed`, in order;
//! - records become durable in the order in which they were logged.

use std::collections::VecDeque;

use crate::history::History;
use crate::types::Entry;

/// What follows when a record is durable.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Effect {
    /// The log is durable up to this entry.
    Change(u64),
    /// A configuration counts.
    Config,
    /// A cut can be answered.
    Cut,
    /// Nothing but its place in a stream.
    Other,
}

/// A record that is not durable yet.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Record {
    /// Its number since the start.
    pub number: u64,
    /// What follows.
    pub effect: Effect,
    /// Its position in the stream to a copy that catches up.
    pub position: Option<u64>,
}

/// The log's state.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Log {
    pub history: History,
    pub last: u64,
    pub durable: u64,
    pub committed: u64,
    pub uncommitted: VecDeque<Entry>,
    /// Records logged since the start.
    pub records: u64,
    pub undurable: VecDeque<Record>,
}

impl Log {
    /// Counts a record; gives its number.
    pub fn record(&mut self, effect: Effect, position: Option<u64>) -> u64 {
        self.records += 1;
        self.undurable.push_back(Record { number: self.records, effect, position });
        self.records
    }

    /// Takes an entry behind the last one. False if it does not follow.
    pub fn push(&mut self, entry: Entry, position: Option<u64>) -> bool {
        if entry.sequence != self.last + 1 || !self.history.push(entry.epoch, entry.sequence) {
            return false;
        }
        self.last = entry.sequence;
        self.uncommitted.push_back(entry);
        self.record(Effect::Change(entry.sequence), position);
        true
    }

    /// The uncommitted entries above a sequence number.
    pub fn above(&self, sequence: u64) -> impl Iterator<Item = &Entry> {
        let skip = sequence.saturating_sub(self.committed);
        self.uncommitted.iter().skip(usize::try_from(skip).unwrap_or(usize::MAX))
    }

    /// The last entry of a client's request, if that is not committed.
    pub fn uncommitted_request(&self, session: u64, request: u64) -> Option<u64> {
        let is_it = |entry: &&Entry| entry.is_last && entry.session == session && entry.request == request;
        self.uncommitted.iter().find(is_it).map(|entry| entry.sequence)
    }

    /// Commits up to the sequence number. False if nothing changed.
    pub fn commit(&mut self, sequence: u64) -> bool {
        assert!(sequence <= self.last, "committed beyond the log's end");
        if sequence <= self.committed {
            return false;
        }
        while self.uncommitted.front().is_some_and(|entry| entry.sequence <= sequence) {
            self.uncommitted.pop_front();
        }
        self.committed = sequence;
        true
    }

    /// Forgets the entries above.
    pub fn cut(&mut self, at: u64) {
        self.history.truncate(at);
        self.uncommitted.retain(|entry| entry.sequence <= at);
        self.last = self.last.min(at);
        self.durable = self.durable.min(at);
        for record in &mut self.undurable {
            if matches!(record.effect, Effect::Change(sequence) if sequence > at) {
                record.effect = Effect::Other;
            }
        }
    }

    /// Goes on behind `last` with another history; everything up to there is committed.
    pub fn join(&mut self, history: History, last: u64, position: u64) {
        self.history = history;
        self.last = last;
        self.committed = last;
        self.uncommitted.clear();
        self.record(Effect::Change(last), Some(position));
    }

    /// Forgets what was to be answered to a stream that has ended.
    pub fn forget_stream(&mut self) {
        for record in &mut self.undurable {
            record.position = None;
            if record.effect == Effect::Cut {
                record.effect = Effect::Other;
            }
        }
    }
}
