//! How a primary begins: it greets all copies in sync, collects their tails, completes them everywhere.
//!
//! Steps under a new configuration (it is persisted here by now):
//! 1. `Configure` to every other copy in sync. Each persists it, from then on refuses everything of lower epochs, and
//!    answers with the end of its log. After all answers no former primary can commit anything any more, and a former
//!    primary among them has stopped reading.
//! 2. Their logs are prefixes of one another. What this log lacks is fetched from the longest.
//! 3. Everybody gets what it lacks, as the start of its stream.
//! 4. When all is durable everywhere and this copy's own promises to former primaries are over, all is committed and
//!    the group serves.
//!
//! A serving primary that only sees copies leave, or the one that it proposed arrive, does step 1 and 3 with each
//! copy by itself and serves all the while. So does a primary whose connection to a copy in sync broke.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::api::{Action, Violation};
use crate::catch_up::{Learner, Stage};
use crate::changed::ChangedSet;
use crate::group::{Actions, Group};
use crate::history::History;
use crate::message::Message;
use crate::primary::{Greeting, Peer, Primary};
use crate::types::{CopyId, Entry};

impl<C: ChangedSet> Group<C> {
    /// Begins a reign.
    pub(crate) fn become_primary(&mut self, now_ns: u64, actions: &mut Actions) {
        self.step_down(actions);
        let others = self.config.in_sync.iter().filter(|copy| **copy != self.settings.copy);
        let peers: BTreeMap<_, _> = others.map(|copy| (*copy, Peer::new(0))).collect();
        self.primary = Some(Box::new(Primary {
            serving: false,
            since_epoch: self.config.epoch,
            collected: peers.is_empty(),
            fetching: None,
            peers,
            learners: BTreeMap::new(),
            joining: None,
            compared: BTreeSet::new(),
            submitted: Vec::new(),
            waiting: VecDeque::new(),
        }));
        #[cfg(feature = "mutations")]
        if self.settings.has(crate::Mutation::SkipTakeover) {
            if let Some(primary) = &mut self.primary {
                primary.collected = true;
                primary.serving = true;
            }
            self.log.commit(self.log.last);
            actions.extend([Action::Commit(self.log.last), Action::Serve { epoch: self.config.epoch }]);
        }
        for copy in self.config.in_sync.clone() {
            self.greet(copy, now_ns, actions);
        }
        self.commit_step(now_ns, actions);
    }

    /// Goes on under the next configuration, which lets copies go or takes in the one that was proposed.
    pub(crate) fn go_on(&mut self, now_ns: u64, actions: &mut Actions) {
        let Some(primary) = &mut self.primary else { return };
        let mut peers = BTreeMap::new();
        for copy in self.config.in_sync.iter().filter(|copy| **copy != self.settings.copy) {
            // What a copy has acked to this primary it still has: only a copy that is out is ever cut.
            let joined = primary.joining.as_ref().filter(|joining| joining.copy == *copy);
            let acked = match primary.peers.get(copy) {
                Some(peer) => peer.acked,
                None => joined.map_or(0, |joining| joining.acked),
            };
            peers.insert(*copy, Peer::new(acked));
        }
        primary.peers = peers;
        primary.learners.clear();
        primary.compared.retain(|copy| self.config.is_out(*copy));
        primary.joining = None;
        actions.push(Action::Serve { epoch: self.config.epoch });
        for copy in self.config.in_sync.clone().into_iter().chain(self.config.others.clone()) {
            self.greet(copy, now_ns, actions);
        }
        self.commit_step(now_ns, actions);
    }

    /// Says the first words to a copy, if it is connected.
    pub(crate) fn greet(&mut self, copy: CopyId, now_ns: u64, actions: &mut Actions) {
        let _ = now_ns;
        let Some(primary) = self.primary.as_mut().filter(|_| self.connected.contains(&copy)) else { return };
        let config = self.config.clone();
        if let Some(peer) = primary.peers.get_mut(&copy) {
            peer.greeting = Greeting::Asked;
            self.send(copy, Message::Configure { config }, actions);
        } else if primary.serving
            && self.config.is_out(copy)
            && primary.joining.as_ref().is_none_or(|joining| joining.copy != copy)
        {
            primary.learners.insert(copy, Learner::new(Stage::Asked));
            self.send(copy, Message::JoinQuery { config }, actions);
        }
    }

    /// The connection to a copy broke.
    pub(crate) fn lose(&mut self, copy: CopyId, now_ns: u64, actions: &mut Actions) {
        let Some(primary) = &mut self.primary else { return };
        if let Some(peer) = primary.peers.get_mut(&copy) {
            // Its grant still holds: it was given by the copy, not by the connection.
            peer.greeting = Greeting::Silent;
        }
        if primary.fetching == Some(copy) {
            primary.fetching = None;
        }
        primary.compared.remove(&copy);
        if primary.learners.remove(&copy).is_none() {
            return;
        }
        match primary.joining.as_ref().filter(|joining| joining.copy == copy) {
            // Whether it will be added is up to the coordinator by now; only a new configuration tells.
            Some(joining) if joining.proposed => self.propose(self.config.renewed(), now_ns, actions),
            Some(_) => {
                primary.joining = None;
                self.commit_step(now_ns, actions);
            }
            None => {}
        }
    }

    /// A message to a primary.
    pub(crate) fn receive_as_primary(
        &mut self,
        from: CopyId,
        message: Message,
        now_ns: u64,
        actions: &mut Actions,
    ) {
        let epoch = self.config.epoch;
        match message {
            Message::State { config_epoch, history, last, durable } if config_epoch == epoch => {
                self.peer_state(from, &history, last, durable, now_ns, actions);
            }
            Message::Tail { config_epoch, entries } if config_epoch == epoch => {
                self.tail(from, &entries, now_ns, actions);
            }
            Message::AppendAck { config_epoch, durable } if config_epoch == epoch => {
                let Some(peer) = self.primary.as_mut().and_then(|primary| primary.peers.get_mut(&from))
                else {
                    return;
                };
                peer.acked_to(durable);
                self.commit_step(now_ns, actions);
            }
            Message::Grant { config_epoch, sent_ns } if config_epoch == epoch => {
                let lease_ns = self.settings.lease_ns();
                let Some(primary) = &mut self.primary else { return };
                if let Some(peer) = primary.peers.get_mut(&from) {
                    peer.lease.granted(sent_ns, lease_ns);
                    peer.answered();
                } else if let Some(learner) = primary.learners.get_mut(&from) {
                    learner.lease.granted(sent_ns, lease_ns);
                    // What it grants is not what it acknowledges, and it holds commits up: its drive may hang, and then the
                    // coordinator neither adds it nor says so.
                    if learner.acked >= self.log.last {
                        learner.waiting_since_ns = None;
                    }
                }
            }
            Message::JoinState { config_epoch, history, last, committed, incomplete_since, intact }
                if config_epoch == epoch =>
            {
                let known = intact.then_some(incomplete_since);
                self.join_state(from, &history, last, committed, known, actions);
            }
            Message::CutDone { config_epoch, ranges } if config_epoch == epoch => {
                self.start_stream(from, &ranges, actions);
            }
            Message::StreamAck { config_epoch, position, durable } if config_epoch == epoch => {
                self.stream_ack(from, position, durable, now_ns, actions);
            }
            _ => {}
        }
    }

    /// A copy in sync has stopped everything older and says where its log ends.
    fn peer_state(
        &mut self,
        from: CopyId,
        history: &History,
        last: u64,
        durable: u64,
        now_ns: u64,
        actions: &mut Actions,
    ) {
        let copy = self.settings.copy;
        self.promises.given_back(from, self.config.epoch);
        let Some(primary) = &mut self.primary else { return };
        let Some(peer) = primary.peers.get_mut(&from) else { return };
        let (my_last, committed) = (self.log.last, self.log.committed);
        let common = self.log.history.common(my_last, history, last);
        if last < committed {
            actions.push(Action::Report(Violation::LostCommitted { copy: from, last, committed }));
            return self.propose(self.config.without(from), now_ns, actions);
        }
        if common < last.min(my_last) || (primary.collected && last > my_last) {
            return self.violate(Violation::LogsPart { one: copy, other: from, at: common }, actions);
        }
        peer.greeting = Greeting::Answered(last);
        let lacks_nothing = durable >= my_last && peer.lease.is_valid(now_ns);
        peer.greeted(durable > peer.acked || lacks_nothing);
        peer.acked = peer.acked.max(durable);
        if primary.collected {
            self.start_streaming(from, now_ns, actions);
        } else {
            self.collect(now_ns, actions);
        }
    }

    /// Fetches what this log lacks once all have answered; with nothing lacking, everybody gets the rest.
    fn collect(&mut self, now_ns: u64, actions: &mut Actions) {
        let Some(primary) = &mut self.primary else { return };
        let mut longest = None;
        for (&copy, peer) in &primary.peers {
            let Greeting::Answered(last) = peer.greeting else { return };
            if last > self.log.last && longest.is_none_or(|(most, _)| last > most) {
                longest = Some((last, copy));
            }
        }
        if let Some((_, copy)) = longest {
            if primary.fetching.is_none() {
                primary.fetching = Some(copy);
                let message = Message::FetchTail { config_epoch: self.config.epoch, from: self.log.last + 1 };
                self.send(copy, message, actions);
            }
            return;
        }
        primary.collected = true;
        primary.fetching = None;
        let copies: Vec<CopyId> = primary.peers.keys().copied().collect();
        for copy in copies {
            self.start_streaming(copy, now_ns, actions);
        }
        self.commit_step(now_ns, actions);
    }

    /// The tail that was fetched.
    fn tail(&mut self, from: CopyId, entries: &[Entry], now_ns: u64, actions: &mut Actions) {
        let Some(primary) = self.primary.as_mut().filter(|primary| primary.fetching == Some(from)) else {
            return;
        };
        primary.fetching = None;
        if let Some(peer) = primary.peers.get_mut(&from) {
            // There may be more, in further messages: whoever sends it is not silent.
            (peer.fruitless, peer.waiting_since_ns) = (0, None);
        }
        if entries.is_empty() {
            // It had more, and none of it uncommitted: then this copy was not in sync.
            return self.violate(Violation::Gap { expected: self.log.last + 1, got: 0 }, actions);
        }
        for &entry in entries {
            let expected = self.log.last + 1;
            if !self.take(entry, None) {
                return self.violate(Violation::Gap { expected, got: entry.sequence }, actions);
            }
            actions.push(Action::Append(entry));
        }
        self.collect(now_ns, actions);
    }

    /// Sends a copy in sync what it lacks, and from then on everything.
    fn start_streaming(&mut self, to: CopyId, now_ns: u64, actions: &mut Actions) {
        let Some(primary) = &mut self.primary else { return };
        let Some(peer) = primary.peers.get_mut(&to) else { return };
        let Greeting::Answered(last) = peer.greeting else { return };
        peer.greeting = Greeting::Streaming;
        peer.commit_told = self.log.committed;
        let message = Message::Commit { config_epoch: self.config.epoch, commit: self.log.committed };
        self.send(to, message, actions);
        for entry in self.log.above(last) {
            self.send(to, self.append_message(entry), actions);
        }
        self.ask_for_grants(now_ns, actions);
        self.commit_step(now_ns, actions);
    }

    pub(crate) fn append_message(&self, entry: &Entry) -> Message {
        Message::Append {
            config_epoch: self.config.epoch,
            previous_epoch: self.log.history.epoch_of(entry.sequence - 1),
            commit: self.log.committed,
            entry: *entry,
        }
    }
}
