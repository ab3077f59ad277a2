//! The group: what it consists of, how inputs are told apart, how a configuration is taken over.

use std::collections::BTreeSet;

use crate::api::{Action, ClientRequest, Input, Refusal, Settings, Start, Violation};
use crate::catch_up::Joining;
use crate::changed::{ChangedSet, Missing, MissingSets, RangeSet};
use crate::grant::Promises;
use crate::log::{Effect, Log};
use crate::message::Message;
use crate::primary::Primary;
use crate::returning::Learning;
use crate::session::Sessions;
use crate::types::{Config, CopyId, Recovery};

/// Which answer a copy owes once a configuration is persisted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Query {
    /// `Configure` is answered by `State`.
    State,
    /// `JoinQuery` is answered by `JoinState`.
    Join,
}

/// A configuration that is being persisted.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Pending {
    pub config: Config,
    pub record: u64,
    pub answer: Option<(CopyId, Query)>,
}

/// A configuration asked for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Proposal {
    pub config: Config,
    pub since_ns: u64,
    /// Last entry of the log when it was asked for.
    pub last: u64,
}

/// One placement group on one copy.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Group<C = RangeSet> {
    pub(crate) settings: Settings,
    /// The highest configuration persisted.
    pub(crate) config: Config,
    pub(crate) pending: Option<Pending>,
    pub(crate) log: Log,
    pub(crate) recovery: Option<Recovery>,
    pub(crate) intact: bool,
    /// This copy was brought up under the present configuration, up to the session table, and nothing was lost since: if it is not
    /// intact, it may be added all the same.
    pub(crate) complete: bool,
    pub(crate) sessions: Sessions,
    /// The session table may lack sessions of entries up to this one: newer ones have pushed them out.
    pub(crate) pushed_out_to: u64,
    pub(crate) missing: MissingSets<C>,
    pub(crate) promises: Promises,
    pub(crate) connected: BTreeSet<CopyId>,
    pub(crate) primary: Option<Box<Primary<C>>>,
    pub(crate) learning: Option<Learning>,
    pub(crate) proposal: Option<Proposal>,
    /// Highest commit number heard of; entries count as committed once they are durable here as well.
    pub(crate) commit_heard: u64,
    pub(crate) recovery_tokens: u64,
    pub(crate) violation: Option<Violation>,
}

pub(crate) type Actions = Vec<Action>;

impl<C: ChangedSet> Group<C> {
    /// Opens a copy's group with what its log says.
    ///
    /// The copy does not remember which grants it gave, so it will not serve before all of them must have run out,
    /// unless it can have given none: without any configuration (epoch 0), as the primary of the first configuration
    /// (epoch 1), or as the only member that has made an entry of its epoch: it served under that, so what it had promised
    /// was over. Without such an entry the epoch may be new, and a copy that was removed with it may hold a grant still.
    /// Nor does a primary remember whom it was about to add: unless there is nobody who could be added, it asks
    /// for a new epoch and serves under that.
    pub fn new(settings: Settings, start: Start<C>, now_ns: u64, actions: &mut Vec<Action>) -> Group<C> {
        let alone = start.config.in_sync == [settings.copy]
            && start.config.others.is_empty()
            && start.last > 0
            && start.history.epoch_of(start.last) == start.config.epoch;
        let first = start.config.epoch <= 1 && start.config.primary() == Some(settings.copy);
        let promises = if alone || first || start.config.epoch == 0 {
            Promises::default()
        } else {
            Promises::forgotten(now_ns, settings.promise_ns())
        };
        let mut group = Group {
            settings,
            config: start.config,
            pending: None,
            log: Log {
                history: start.history,
                last: start.last,
                durable: start.last,
                committed: start.committed,
                uncommitted: start.uncommitted.into(),
                ..Log::default()
            },
            recovery: start.recovery,
            intact: start.intact,
            complete: start.complete,
            pushed_out_to: if start.sessions.is_full() { start.last } else { 0 },
            sessions: start.sessions,
            missing: start.missing,
            promises,
            connected: BTreeSet::new(),
            primary: None,
            learning: None,
            proposal: None,
            commit_heard: start.committed,
            recovery_tokens: 0,
            violation: None,
        };
        if group.config.primary() == Some(settings.copy) {
            if group.config.others.is_empty() {
                group.become_primary(now_ns, actions);
            } else {
                group.propose(group.config.renewed(), now_ns, actions);
            }
        }
        group
    }

    /// Takes an input and adds what is to be done. `now_ns` is this node's `CLOCK_BOOTTIME`; it never falls.
    pub fn apply(&mut self, now_ns: u64, input: Input, actions: &mut Vec<Action>) {
        if self.violation.is_some() {
            // Clients are sent elsewhere: without an answer they would wait for ever.
            if let Input::Request(ClientRequest { token, .. }) | Input::Read(token) = input {
                actions.push(Action::Refuse { token, refusal: Refusal::NotServing });
            }
            return;
        }
        match input {
            Input::Tick => self.tick(now_ns, actions),
            Input::Config(config) => self.receive_config(config, None, now_ns, actions),
            Input::Connected(copy) => self.connect(copy, now_ns, actions),
            Input::Disconnected(copy) => self.disconnect(copy, now_ns, actions),
            Input::Message(from, message) => self.receive(from, message, now_ns, actions),
            Input::Request(request) => self.request(request, actions),
            Input::Read(token) => self.read(token, now_ns, actions),
            Input::Appended { token, entry } => self.appended(token, entry, actions),
            Input::Refused { token, no_space } => self.refused(token, no_space, actions),
            Input::Unchanged { token } => self.unchanged(token, actions),
            Input::Durable { records } => self.durable(records, now_ns, actions),
            Input::RecoveryRead { token, payload } => self.recovery_read(token, payload, actions),
            Input::Compared { copy, token, ranges, done } => {
                self.compared(copy, token, &ranges, done, actions)
            }
        }
    }

    fn receive(&mut self, from: CopyId, message: Message, now_ns: u64, actions: &mut Actions) {
        // Everything that a primary sends under a configuration that has been replaced is refused, and the sender
        // learns of the new one. Answers of a lower epoch are ignored where they arrive.
        let epoch = match &message {
            Message::Configure { config } | Message::JoinQuery { config } => Some(config.epoch),
            Message::FetchTail { config_epoch, .. }
            | Message::Append { config_epoch, .. }
            | Message::Commit { config_epoch, .. }
            | Message::GrantRequest { config_epoch, .. }
            | Message::Cut { config_epoch, .. }
            | Message::Join { config_epoch, .. }
            | Message::Recover { config_epoch, .. }
            | Message::Sessions { config_epoch, .. } => Some(*config_epoch),
            _ => None,
        };
        let ignored = matches!(message, Message::Append { .. }) && self.settings.ignores_epochs();
        if epoch.is_some_and(|epoch| epoch < self.known().epoch) && !ignored {
            let config = self.known().clone();
            self.send(from, Message::Stale { config }, actions);
            return;
        }
        match message {
            Message::Configure { config } => {
                self.receive_config(config, Some((from, Query::State)), now_ns, actions)
            }
            Message::JoinQuery { config } => {
                self.receive_config(config, Some((from, Query::Join)), now_ns, actions)
            }
            Message::Stale { config } => self.receive_config(config, None, now_ns, actions),
            Message::Released { config_epoch } => {
                self.promises.given_back(from, config_epoch);
                self.commit_step(now_ns, actions);
            }
            message if self.primary.is_some() => self.receive_as_primary(from, message, now_ns, actions),
            message => self.receive_as_backup(from, message, now_ns, actions),
        }
    }

    /// The highest configuration heard of, though it may not be persisted yet.
    pub fn known(&self) -> &Config {
        self.pending.as_ref().map_or(&self.config, |pending| &pending.config)
    }

    /// Hears of a configuration; answers the query that brought it once it is persisted. A primary that does not go
    /// on stops at once, since nothing that it still did could count.
    pub(crate) fn receive_config(
        &mut self,
        config: Config,
        answer: Option<(CopyId, Query)>,
        now_ns: u64,
        actions: &mut Actions,
    ) {
        if config.epoch < self.known().epoch || config.in_sync.is_empty() {
            return;
        }
        if config.epoch == self.known().epoch {
            match (&mut self.pending, answer) {
                (Some(pending), Some(answer)) => pending.answer = Some(answer),
                (None, Some((to, query))) => self.answer(to, query, actions),
                _ => {}
            }
            return;
        }
        if config.is_in_sync(self.settings.copy) && !self.may_be_in_sync() {
            return self.stay_out(&config, now_ns, actions);
        }
        if !self.continues_under(&config) {
            #[cfg(feature = "mutations")]
            if self.settings.has(crate::Mutation::ReleaseBeforeStopping) {
                self.release(&self.config, config.epoch, actions);
            } else {
                self.step_down(actions);
            }
            #[cfg(not(feature = "mutations"))]
            self.step_down(actions);
        }
        self.learning = None;
        self.log.forget_stream();
        #[cfg(feature = "mutations")]
        if self.settings.has(crate::Mutation::ForgetPromise) && self.config.epoch > 0 {
            self.pending = Some(Pending { config, record: 0, answer });
            self.adopt(now_ns, actions);
            return;
        }
        let _ = now_ns;
        actions.push(Action::Persist { config: config.clone(), committed: self.log.committed });
        let record = self.log.record(Effect::Config, None);
        self.pending = Some(Pending { config, record, answer });
    }

    /// Whether a configuration may count on this copy. One that is not intact may have lost what it had when its addition
    /// was proposed, and only what it was sent since its start is certain to be there.
    fn may_be_in_sync(&self) -> bool {
        self.intact || self.complete || self.known().is_in_sync(self.settings.copy)
    }

    /// A configuration counts on this copy, and it is not complete. It takes no part in it, so that nobody gets an answer
    /// that rests on it: the primary finds it silent and has it removed, and then it is compared as a whole. If it is to be
    /// the primary, it asks for another one itself.
    fn stay_out(&mut self, config: &Config, now_ns: u64, actions: &mut Actions) {
        let copy = self.settings.copy;
        if config.in_sync == [copy] {
            return self.violate(Violation::Incomplete { epoch: config.epoch }, actions);
        }
        if config.primary() == Some(copy) {
            return self.propose(config.without(copy), now_ns, actions);
        }
        self.proposal = None;
    }

    /// Whether this copy is a serving primary that stays one under the next configuration without asking anybody:
    /// all who are in sync then have everything that it has committed, from it.
    fn continues_under(&self, config: &Config) -> bool {
        let Some(primary) = &self.primary else { return false };
        let added = match &primary.joining {
            Some(Joining { copy, proposed: true, .. }) => Some(*copy),
            _ => None,
        };
        primary.serving
            && self.pending.is_none()
            && config.epoch == self.config.epoch + 1
            && config.primary() == Some(self.settings.copy)
            && config.in_sync.iter().all(|copy| self.config.is_in_sync(*copy) || added == Some(*copy))
    }

    /// The pending configuration is persisted: acts by it.
    fn adopt(&mut self, now_ns: u64, actions: &mut Actions) {
        let Some(pending) = self.pending.take() else { return };
        let continues = self.continues_under(&pending.config);
        let former = std::mem::replace(&mut self.config, pending.config);
        self.proposal = None;
        self.commit_heard = self.log.committed;
        let copy = self.settings.copy;
        if self.config.is_in_sync(copy) {
            assert!(self.intact || self.complete || former.is_in_sync(copy), "only a complete copy is added");
            self.recovery = None;
            self.intact = true;
        }
        self.complete = false;
        let settings = self.settings;
        let uncommitted = self.log.uncommitted.iter();
        let uncommitted = uncommitted.filter(|entry| settings.marks(entry)).map(|entry| entry.range);
        self.missing.adopt(&self.config, copy, self.log.committed, uncommitted);
        if self.config.primary() != Some(copy) {
            self.step_down(actions);
            self.release(&former, self.config.epoch, actions);
        } else if continues {
            self.go_on(now_ns, actions);
        } else {
            self.become_primary(now_ns, actions);
        }
        if let Some((to, query)) = pending.answer {
            self.answer(to, query, actions);
        }
    }

    /// More records are durable.
    fn durable(&mut self, records: u64, now_ns: u64, actions: &mut Actions) {
        let mut adopt = false;
        let mut acks = false;
        while self.log.undurable.front().is_some_and(|record| record.number <= records) {
            let Some(record) = self.log.undurable.pop_front() else { break };
            match record.effect {
                Effect::Change(sequence) => {
                    self.log.durable = sequence;
                    acks = true;
                }
                Effect::Config => {
                    adopt |= self.pending.as_ref().is_some_and(|pending| pending.record == record.number);
                }
                Effect::Cut => self.cut_done(actions),
                Effect::Other => {}
            }
            if let (Some(position), Some(learning)) = (record.position, &mut self.learning) {
                learning.durable = position;
                acks = true;
            }
        }
        if adopt {
            self.adopt(now_ns, actions);
        }
        if self.primary.is_some() {
            self.commit_step(now_ns, actions);
        } else {
            self.commit_what_is_durable(actions);
            if acks {
                self.acknowledge(actions);
            }
        }
    }

    fn connect(&mut self, copy: CopyId, now_ns: u64, actions: &mut Actions) {
        self.connected.insert(copy);
        self.greet(copy, now_ns, actions);
    }

    fn disconnect(&mut self, copy: CopyId, now_ns: u64, actions: &mut Actions) {
        self.connected.remove(&copy);
        if let Some(pending) = &mut self.pending
            && pending.answer.is_some_and(|(to, _)| to == copy)
        {
            pending.answer = None;
        }
        if self.config.primary() == Some(copy) {
            self.learning = None;
            self.log.forget_stream();
        }
        self.lose(copy, now_ns, actions);
    }

    fn tick(&mut self, now_ns: u64, actions: &mut Actions) {
        // First, since it may take the proposal back.
        self.tick_as_primary(now_ns, actions);
        if let Some(proposal) = &mut self.proposal
            && now_ns >= proposal.since_ns.saturating_add(self.settings.suspect_ns)
        {
            // The coordinator may not have heard it; a second time does no harm.
            proposal.since_ns = now_ns;
            actions.push(Action::Propose(proposal.config.clone()));
        }
    }

    /// Asks for a configuration, unless it was asked for already.
    pub(crate) fn propose(&mut self, config: Config, now_ns: u64, actions: &mut Actions) {
        if self.proposal.as_ref().is_some_and(|proposal| proposal.config == config) {
            return;
        }
        actions.push(Action::Propose(config.clone()));
        self.proposal = Some(Proposal { config, since_ns: now_ns, last: self.log.last });
    }

    pub(crate) fn send(&self, to: CopyId, message: Message, actions: &mut Actions) {
        actions.push(Action::Send { to, message });
    }

    /// Stops for good. What was asked for before is taken back: people may have to decide now.
    pub(crate) fn violate(&mut self, violation: Violation, actions: &mut Actions) {
        self.step_down(actions);
        if let Some(proposal) = self.proposal.take() {
            actions.push(Action::Withdraw(proposal.config));
        }
        self.violation = Some(violation.clone());
        actions.push(Action::Violation(violation));
    }

    /// The highest configuration persisted.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Whether clients' changes are taken.
    pub fn is_serving(&self) -> bool {
        self.primary.as_ref().is_some_and(|primary| primary.serving)
    }

    /// Last entry of the log.
    pub fn last(&self) -> u64 {
        self.log.last
    }

    /// Last entry known to be committed and durable here.
    pub fn committed(&self) -> u64 {
        self.log.committed
    }

    /// What an out copy misses, for the engine's checkpoint.
    pub fn missing(&self, copy: CopyId) -> Option<&Missing<C>> {
        self.missing.get(copy)
    }

    /// The session table, for the engine's checkpoint.
    pub fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Set if the copy is catching up, for the engine's checkpoint.
    pub fn recovery(&self) -> Option<&Recovery> {
        self.recovery.as_ref()
    }

    /// Why the group has stopped, if it has.
    pub fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }
}
