//! An out copy on its way back: it forgets what never was committed, skips what it missed, follows the stream.
//!
//! Invariants, from the first cut until the copy is in sync:
//! - every block not in `beyond` has the state of entry `since`, or that of a later committed entry or a live one;
//! - everything that is taken comes from one connection of one primary under one configuration; when it breaks, the
//!   next one starts with a new query, and `since` and `beyond` stay.

use std::collections::BTreeSet;

use coquina_base::CHUNK_BLOCKS;

use crate::api::{Action, Violation};
use crate::changed::{ChangedSet, RangeSet};
use crate::group::{Actions, Group};
use crate::history::History;
use crate::log::Effect;
use crate::message::Message;
use crate::session::Sessions;
use crate::types::{BlockRange, PayloadRef, Recovery};

/// The stream that is being followed.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Learning {
    /// Whether the primary was told that nothing is certain here: it compares all.
    pub is_compared: bool,
    /// Whether the stream has begun.
    pub joined: bool,
    /// Position of the last message taken.
    pub position: u64,
    /// Position up to which all is durable.
    pub durable: u64,
}

impl<C: ChangedSet> Group<C> {
    /// Counts a message of the stream; none if there is no stream.
    pub(crate) fn next_position(&mut self) -> Option<u64> {
        let learning = self.learning.as_mut().filter(|learning| learning.joined)?;
        learning.position += 1;
        Some(learning.position)
    }

    /// What it says of itself when it is asked what it has: whether its log tells which blocks it misses, whatever of it is cut.
    pub(crate) fn is_certain(&self) -> bool {
        self.intact
            && !self.recovery.as_ref().is_some_and(Recovery::is_of_nothing)
            && !self.may_forget_too_much()
    }

    /// Whether the entries that may be cut, with those that were before, are of more chunks than a message can name runs of. If not,
    /// [`few_runs`] are few enough for one, whatever is cut.
    fn may_forget_too_much(&self) -> bool {
        let beyond = self.recovery.as_ref().map_or(&[][..], |recovery| &recovery.beyond);
        if beyond.len() + self.log.uncommitted.len() <= Recovery::RUNS_SENT_MAX {
            return false;
        }
        let ranges = beyond.iter().chain(self.log.uncommitted.iter().map(|entry| &entry.range));
        let chunks: BTreeSet<_> = ranges.map(|range| (range.layer, range.chunk)).collect();
        chunks.len() > Recovery::RUNS_SENT_MAX
    }

    /// Forgets the entries above. They are on this drive's blocks all the same, so these are remembered.
    pub(crate) fn cut(&mut self, at: u64, actions: &mut Actions) {
        let Some(learning) = self.learning.as_ref().filter(|learning| !learning.joined) else { return };
        let is_compared = learning.is_compared;
        if at < self.log.committed {
            return self.violate(Violation::CutCommitted { at, committed: self.log.committed }, actions);
        }
        if at > self.log.last {
            return self.violate(Violation::Gap { expected: self.log.last, got: at }, actions);
        }
        let former = self.recovery.take();
        let is_of_nothing = former.as_ref().is_some_and(Recovery::is_of_nothing);
        let mut beyond = RangeSet::default();
        let ranges = former.iter().flat_map(|recovery| recovery.beyond.iter().copied());
        ranges.chain(self.log.above(at).map(|entry| entry.range)).for_each(|range| beyond.insert(range));
        let since = former.map_or(at, |recovery| recovery.since.min(at));
        let mut recovery = Recovery { since, beyond: few_runs(&beyond) };
        let has_too_many = recovery.beyond.len() > Recovery::RUNS_SENT_MAX;
        assert!(is_compared || !has_too_many, "forgets more than it can name, and was taken for intact");
        // One that has said that nothing is certain, and is compared, stays so until it is in sync.
        if is_of_nothing || has_too_many {
            recovery = Recovery::default();
        }
        self.log.cut(at);
        self.commit_heard = self.log.committed;
        self.log.record(Effect::Cut, None);
        actions.push(Action::Cut { at, recovery: recovery.for_log() });
        self.recovery = Some(recovery);
    }

    /// The cut is durable.
    pub(crate) fn cut_done(&mut self, actions: &mut Actions) {
        let Some(primary) = self.config.primary() else { return };
        let ranges = self.recovery.as_ref().map_or_else(Vec::new, |recovery| recovery.beyond.clone());
        let message = Message::CutDone { config_epoch: self.config.epoch, ranges };
        self.send(primary, message, actions);
    }

    /// Skips to where the stream begins. All that is skipped is committed.
    pub(crate) fn join(&mut self, history: History, from: u64, actions: &mut Actions) {
        let Some(learning) = self.learning.as_mut().filter(|_| self.recovery.is_some()) else { return };
        if from <= self.log.last {
            return self.violate(Violation::Gap { expected: self.log.last + 1, got: from }, actions);
        }
        *learning = Learning { joined: true, ..Learning::default() };
        let last = from - 1;
        self.log.join(history.clone(), last, 0);
        self.commit_heard = last;
        actions.extend([Action::Join { history, last }, Action::Commit(last)]);
    }

    /// Takes data of blocks that it missed.
    pub(crate) fn recover(&mut self, range: BlockRange, payload: PayloadRef, actions: &mut Actions) {
        let Some(position) = self.next_position() else { return };
        self.log.record(Effect::Other, Some(position));
        actions.push(Action::Recovered { range, payload });
    }

    /// Takes the primary's session table in place of its own, which may hold requests that were cut.
    pub(crate) fn set_sessions(&mut self, sessions: Sessions, actions: &mut Actions) {
        let Some(position) = self.next_position() else { return };
        self.log.record(Effect::Other, Some(position));
        self.sessions = sessions.clone();
        if self.sessions.is_full() {
            self.pushed_out_to = self.log.last;
        }
        // It is the last that was missing. A configuration that counts on that is logged behind it, so when that one is
        // durable, this is.
        self.complete = true;
        actions.push(Action::SetSessions(sessions));
    }
}

/// The runs of a set. If they are too many for the log, near ones of a chunk become one: what lies between them is pushed for nothing.
fn few_runs(set: &RangeSet) -> Vec<BlockRange> {
    let mut runs: Vec<BlockRange> = set.ranges().collect();
    let mut gap_blocks = 1;
    while runs.len() > Recovery::RUNS_MAX && gap_blocks <= CHUNK_BLOCKS {
        runs.dedup_by(|next, run| {
            let is_near =
                (next.layer, next.chunk) == (run.layer, run.chunk) && next.first - run.end() <= gap_blocks;
            if is_near {
                run.count = next.end() - run.first;
            }
            is_near
        });
        gap_blocks *= 2;
    }
    runs
}
