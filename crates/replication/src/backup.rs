//! A copy that is not the primary: it follows the stream of the primary of the configuration that it has persisted.
//!
//! Invariants:
//! - nothing of another configuration than the persisted one is taken, nor anything while a newer one is under way;
//! - a stream has no gaps: each entry follows the last one, behind an entry of the epoch that the primary says.

use crate::api::{Action, Violation};
use crate::changed::ChangedSet;
use crate::group::{Actions, Group, Query};
use crate::message::Message;
use crate::returning::Learning;
use crate::types::{CopyId, Entry};

impl<C: ChangedSet> Group<C> {
    /// Answers a query whose configuration is persisted.
    pub(crate) fn answer(&mut self, to: CopyId, query: Query, actions: &mut Actions) {
        if self.config.primary() != Some(to) || to == self.settings.copy {
            return;
        }
        let config_epoch = self.config.epoch;
        let (history, last) = (self.log.history.clone(), self.log.last);
        self.log.forget_stream();
        self.learning = None;
        match query {
            Query::State if self.config.is_in_sync(self.settings.copy) => {
                let message = Message::State { config_epoch, history, last, durable: self.log.durable };
                self.send(to, message, actions);
            }
            Query::Join if self.config.is_out(self.settings.copy) => {
                let intact = self.is_certain();
                self.learning = Some(Learning { is_compared: !intact, ..Learning::default() });
                // It is cut next, and then brought up anew.
                self.complete = false;
                let message = Message::JoinState {
                    config_epoch,
                    history,
                    last,
                    committed: self.log.committed,
                    incomplete_since: self.recovery.as_ref().map(|recovery| recovery.since),
                    intact,
                };
                self.send(to, message, actions);
            }
            _ => {}
        }
    }

    /// A message to a copy that is not the primary. Lower epochs have been refused already.
    pub(crate) fn receive_as_backup(
        &mut self,
        from: CopyId,
        message: Message,
        now_ns: u64,
        actions: &mut Actions,
    ) {
        let holds = |config_epoch: u64| {
            config_epoch == self.config.epoch && self.pending.is_none() && self.config.primary() == Some(from)
        };
        match message {
            Message::Append { config_epoch, previous_epoch, commit, entry }
                if holds(config_epoch) || self.settings.ignores_epochs() =>
            {
                self.receive_append(previous_epoch, commit, entry, actions);
            }
            Message::Commit { config_epoch, commit } if holds(config_epoch) => {
                self.commit_heard = self.commit_heard.max(commit);
                self.commit_what_is_durable(actions);
            }
            Message::FetchTail { config_epoch, from: first } if holds(config_epoch) => {
                let entries = self.log.above(first.saturating_sub(1)).copied().collect();
                self.send(from, Message::Tail { config_epoch, entries }, actions);
            }
            Message::GrantRequest { config_epoch, sent_ns } if holds(config_epoch) => {
                self.promises.give(from, config_epoch, now_ns, self.settings.promise_ns());
                self.send(from, Message::Grant { config_epoch, sent_ns }, actions);
            }
            Message::Cut { config_epoch, at } if holds(config_epoch) => self.cut(at, actions),
            Message::Join { config_epoch, history, from } if holds(config_epoch) => {
                self.join(history, from, actions);
            }
            Message::Recover { config_epoch, range, payload } if holds(config_epoch) => {
                self.recover(range, payload, actions);
            }
            Message::Sessions { config_epoch, sessions } if holds(config_epoch) => {
                self.set_sessions(sessions, actions);
            }
            _ => {}
        }
    }

    fn receive_append(&mut self, previous_epoch: u64, commit: u64, entry: Entry, actions: &mut Actions) {
        let out = !self.config.is_in_sync(self.settings.copy);
        if out && self.learning.as_ref().is_none_or(|learning| !learning.joined) {
            return;
        }
        let expected = self.log.last + 1;
        let follows =
            entry.sequence == expected && previous_epoch == self.log.history.epoch_of(self.log.last);
        let position = self.next_position();
        if !follows || !self.take(entry, position) {
            return self.violate(Violation::Gap { expected, got: entry.sequence }, actions);
        }
        actions.push(Action::Append(entry));
        self.commit_heard = self.commit_heard.max(commit);
        self.commit_what_is_durable(actions);
    }

    /// Commits what the primary has said is committed, as far as it is durable here.
    pub(crate) fn commit_what_is_durable(&mut self, actions: &mut Actions) {
        let commit = self.commit_heard.min(self.log.durable);
        if self.log.commit(commit) {
            actions.push(Action::Commit(commit));
        }
    }

    /// Tells the primary what is durable.
    pub(crate) fn acknowledge(&mut self, actions: &mut Actions) {
        let Some(primary) = self.config.primary().filter(|_| self.pending.is_none()) else { return };
        let (config_epoch, durable) = (self.config.epoch, self.log.durable);
        let message = match &self.learning {
            Some(learning) if learning.joined => {
                Message::StreamAck { config_epoch, position: learning.durable, durable }
            }
            _ if self.config.is_in_sync(self.settings.copy) => Message::AppendAck { config_epoch, durable },
            _ => return,
        };
        self.send(primary, message, actions);
    }
}
