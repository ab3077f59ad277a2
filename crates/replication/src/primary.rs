//! The primary: clients' requests, the streams to the copies in sync, commits, the lease, whom it suspects.
//!
//! Invariants:
//! - nothing is committed before it is durable at this copy, at all copies in sync, and at the one being added;
//! - a read is let through only while all of these have granted it;
//! - no change is answered as done while fewer than `min_copies` are in sync, also one that was taken before and that fewer
//!   have now: its client asks again, and is answered when there are enough.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::api::{Action, ClientRequest, Refusal, Violation};
use crate::catch_up::{Joining, Learner};
use crate::changed::ChangedSet;
use crate::grant::Lease;
use crate::group::{Actions, Group};
use crate::message::Message;
use crate::types::{Config, CopyId, Entry, EntryKind, Token};

/// How far the primary is with a copy in sync.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Greeting {
    /// Not connected, or nothing said yet.
    Silent,
    /// `Configure` is under way.
    Asked,
    /// It has answered and its log ends here; the stream has not begun.
    Answered(u64),
    /// Each new entry is sent to it.
    Streaming,
}

/// A copy in sync as its primary sees it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Peer {
    pub greeting: Greeting,
    /// Last entry known to be durable there.
    pub acked: u64,
    pub commit_told: u64,
    pub lease: Lease,
    /// Since when something is expected of it.
    pub waiting_since_ns: Option<u64>,
    /// Greetings that it has answered since it last got on; not counted further than is of interest.
    pub fruitless: u32,
}

/// Greetings that count as an answer though nothing has come of the last one.
const FRUITLESS_MAX: u32 = 3;

impl Peer {
    pub fn new(acked: u64) -> Peer {
        Peer {
            greeting: Greeting::Silent,
            acked,
            commit_told: 0,
            lease: Lease::default(),
            waiting_since_ns: None,
            fruitless: 0,
        }
    }

    /// It has answered a greeting. `gets_on` says whether it has got on since the last one, or owes nothing.
    pub fn greeted(&mut self, gets_on: bool) {
        self.fruitless = if gets_on { 0 } else { (self.fruitless + 1).min(FRUITLESS_MAX + 1) };
        self.answered();
    }

    /// It has said something: it is not silent, unless it only ever answers greetings and breaks off.
    pub fn answered(&mut self) {
        if self.fruitless <= FRUITLESS_MAX {
            self.waiting_since_ns = None;
        }
    }

    /// Entries up to this one are durable there.
    pub fn acked_to(&mut self, durable: u64) {
        if durable > self.acked {
            self.acked = durable;
            self.fruitless = 0;
        }
        self.answered();
    }
}

/// A request handed to the engine that is not appended yet.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Submitted {
    pub request: ClientRequest,
    /// Retries of the same request.
    pub retries: Vec<Token>,
    /// A fence that waits for older requests of the volume to be appended.
    pub held: bool,
}

/// What a primary keeps.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Primary<C> {
    pub serving: bool,
    /// Epoch in which the reign began.
    pub since_epoch: u64,
    /// Whether every entry that any copy in sync holds is in this log.
    pub collected: bool,
    /// From whom a tail is being fetched.
    pub fetching: Option<CopyId>,
    pub peers: BTreeMap<CopyId, Peer>,
    pub learners: BTreeMap<CopyId, Learner<C>>,
    pub joining: Option<Joining>,
    /// Copies that are out and were compared as a whole on the connection that there is: since then the set says all that they miss.
    pub compared: BTreeSet<CopyId>,
    pub submitted: Vec<Submitted>,
    /// Who waits for which entry to be committed, in order.
    pub waiting: VecDeque<(u64, Token)>,
}

impl<C: ChangedSet> Group<C> {
    /// A client wants a change.
    pub(crate) fn request(&mut self, request: ClientRequest, actions: &mut Actions) {
        let token = request.token;
        let Some(primary) = self.primary.as_mut().filter(|primary| primary.serving) else {
            return actions.push(Action::Refuse { token, refusal: Refusal::NotServing });
        };
        let newer = primary.submitted.iter().any(|submitted| {
            matches!(submitted.request.kind, EntryKind::Fence { volume, generation }
                if volume == request.volume && generation > request.generation)
        });
        if newer || self.sessions.is_fenced(request.volume, request.generation) {
            return actions.push(Action::Refuse { token, refusal: Refusal::Fenced });
        }
        let is_known = self.sessions.contains(request.session, request.request);
        if is_known || self.log.committed < self.pushed_out_to {
            match self.log.uncommitted_request(request.session, request.request) {
                Some(sequence) => return primary.wait(sequence, token),
                None if is_known => return actions.push(self.config.answer_to_change(token)),
                None => {}
            }
        }
        let same = |submitted: &&mut Submitted| {
            submitted.request.session == request.session && submitted.request.request == request.request
        };
        if let Some(submitted) = primary.submitted.iter_mut().find(same) {
            if submitted.request.token != token && !submitted.retries.contains(&token) {
                submitted.retries.push(token);
            }
            return;
        }
        if !self.config.has_enough_copies() {
            return actions.push(Action::Refuse { token, refusal: Refusal::TooFewCopies });
        }
        let held = primary.has_older(&request);
        primary.submitted.push(Submitted { request, retries: Vec::new(), held });
        if !held {
            actions.push(Action::Submit(token));
        }
    }

    /// A client wants to read.
    ///
    /// The lease is checked here, at the read's invocation, before the engine looks at the data, and not again when
    /// the engine answers. That is enough: now no other primary serves, so all that was ever committed is in this
    /// log. The engine answers from a state of this log that is not older, once all changes of the block are
    /// committed. A later change that it does not see was committed by somebody else after now, so what it gives was
    /// the block's value at some moment between now and that commit, within the read. (Checking when the answer
    /// leaves, still primary of the same epoch, would do as well; checking in between, after the engine has looked
    /// and without the reign having been kept, would not.) What would break it is a *cut*, which takes entries out of
    /// the log under a waiting read: therefore [`Action::Stop`] refuses reads that wait.
    pub(crate) fn read(&self, token: Token, now_ns: u64, actions: &mut Actions) {
        actions.push(match self.may_read(now_ns) {
            Ok(()) => Action::Read(token),
            Err(refusal) => Action::Refuse { token, refusal },
        });
    }

    /// Whether a read that comes now is let through.
    pub fn may_read(&self, now_ns: u64) -> Result<(), Refusal> {
        let Some(primary) = self.primary.as_ref().filter(|primary| primary.serving) else {
            return Err(Refusal::NotServing);
        };
        #[cfg(feature = "mutations")]
        if self.settings.has(crate::Mutation::ReadAfterLease) {
            return Ok(());
        }
        if primary.has_lease(now_ns) { Ok(()) } else { Err(Refusal::NoLease) }
    }

    /// The engine has appended a change: it is sent to everybody at once.
    pub(crate) fn appended(&mut self, token: Token, entry: Entry, actions: &mut Actions) {
        let place = self.primary.as_ref().and_then(|primary| {
            let place = |submitted: &Submitted| submitted.request.token == token && !submitted.held;
            primary.submitted.iter().position(place).filter(|_| primary.serving)
        });
        // An entry made while the next configuration of the same reign was being adopted has the epoch before.
        let epochs =
            self.primary.as_ref().map_or(u64::MAX, |primary| primary.since_epoch)..=self.config.epoch;
        let fits = epochs.contains(&entry.epoch) && entry.sequence == self.log.last + 1;
        let (Some(place), true) = (place, fits) else {
            let expected = self.log.last + 1;
            let violation = Violation::WrongAppend { expected, got: entry.sequence, epoch: entry.epoch };
            return self.violate(violation, actions);
        };
        self.take(entry, None);
        let Some(primary) = self.primary.as_mut() else { return };
        if entry.is_last {
            let submitted = primary.submitted.remove(place);
            primary.wait(entry.sequence, token);
            submitted.retries.into_iter().for_each(|retry| primary.wait(entry.sequence, retry));
        }
        let message = Message::Append {
            config_epoch: self.config.epoch,
            previous_epoch: self.log.history.epoch_of(entry.sequence - 1),
            commit: self.log.committed,
            entry,
        };
        for (&to, peer) in primary.peers.iter_mut().filter(|(_, peer)| peer.greeting == Greeting::Streaming) {
            peer.commit_told = self.log.committed;
            actions.push(Action::Send { to, message: message.clone() });
        }
        for (&to, learner) in primary.learners.iter_mut().filter(|(_, learner)| learner.is_streaming()) {
            learner.sent_change(&entry);
            actions.push(Action::Send { to, message: message.clone() });
        }
        primary.let_go(actions);
    }

    /// The engine has found nothing to change, or that the request is in its log: then it is committed, for what is not was found in
    /// [`Group::request`].
    pub(crate) fn unchanged(&mut self, token: Token, actions: &mut Actions) {
        let mut submitted = self.primary.iter().flat_map(|primary| &primary.submitted);
        if let Some(Submitted { request, .. }) = submitted.find(|submitted| submitted.request.token == token)
        {
            let logged = self.log.uncommitted_request(request.session, request.request);
            assert_eq!(logged, None, "{request:?} is in the log, and not committed");
        }
        self.end_submitted(token, Config::answer_to_change, actions);
    }

    /// The engine does not append a change.
    pub(crate) fn refused(&mut self, token: Token, no_space: bool, actions: &mut Actions) {
        let refusal = if no_space { Refusal::NoSpace } else { Refusal::NotServing };
        self.end_submitted(token, |_, token| Action::Refuse { token, refusal }, actions);
    }

    /// Ends a request at the engine without an entry, and its retries.
    fn end_submitted(&mut self, token: Token, end: impl Fn(&Config, Token) -> Action, actions: &mut Actions) {
        let Some(primary) = self.primary.as_mut() else { return };
        let Some(place) = primary.submitted.iter().position(|submitted| submitted.request.token == token)
        else {
            return;
        };
        let submitted = primary.submitted.remove(place);
        let tokens = std::iter::once(token).chain(submitted.retries);
        actions.extend(tokens.map(|token| end(&self.config, token)));
        primary.let_go(actions);
    }

    /// Notes an entry in the log, the session table and the sets of what out copies miss.
    pub(crate) fn take(&mut self, entry: Entry, position: Option<u64>) -> bool {
        if !self.log.push(entry, position) {
            return false;
        }
        if self.sessions.note(&entry) {
            self.pushed_out_to = entry.sequence;
        }
        if self.settings.marks(&entry) {
            self.missing.mark(entry.range);
        }
        true
    }

    /// Commits what everybody has, and serves once a takeover is complete.
    pub(crate) fn commit_step(&mut self, now_ns: u64, actions: &mut Actions) {
        let Some(primary) = self.primary.as_mut() else { return };
        // Before its own promises are over, a new primary lets nothing become visible: the former one may still
        // read, and must not read what is older.
        if !primary.collected || !(primary.serving || self.promises.are_over(now_ns)) {
            return;
        }
        let acked = primary.peers.values().map(|peer| peer.acked).min().unwrap_or(u64::MAX);
        let lagging = primary.lagging_acked(self.settings.stream_lag_blocks_max);
        let mut commit = self.log.durable.min(acked).min(primary.joining_acked()).min(lagging);
        #[cfg(feature = "mutations")]
        {
            use crate::Mutation::{AnswerAfterOneCopy, CommitWithoutJoining};
            if self.settings.has(AnswerAfterOneCopy) {
                commit = self.log.durable;
            } else if self.settings.has(CommitWithoutJoining) {
                commit = self.log.durable.min(acked);
            }
        }
        commit = commit.min(self.log.last);
        if self.log.commit(commit) {
            actions.push(Action::Commit(commit));
            while primary.waiting.front().is_some_and(|(sequence, _)| *sequence <= commit) {
                let token = primary.waiting.pop_front().map(|(_, token)| token);
                actions.extend(token.map(|token| self.config.answer_to_change(token)));
            }
        }
        if !primary.serving && self.log.committed == self.log.last {
            self.serve(now_ns, actions);
        }
        self.join_step(now_ns, actions);
    }

    fn serve(&mut self, now_ns: u64, actions: &mut Actions) {
        let Some(primary) = self.primary.as_mut() else { return };
        primary.serving = true;
        actions.push(Action::Serve { epoch: self.config.epoch });
        for copy in self.config.others.clone() {
            self.greet(copy, now_ns, actions);
        }
    }

    /// Stops being the primary: clients go elsewhere and try again.
    pub(crate) fn step_down(&mut self, actions: &mut Actions) {
        let Some(primary) = self.primary.take() else { return };
        actions.push(Action::Stop);
        let submitted = primary
            .submitted
            .into_iter()
            .flat_map(|submitted| std::iter::once(submitted.request.token).chain(submitted.retries));
        for token in primary.waiting.into_iter().map(|(_, token)| token).chain(submitted) {
            actions.push(Action::Refuse { token, refusal: Refusal::NotServing });
        }
    }

    /// Gives back what the members have promised to the primary of a former configuration, which this copy was and is not
    /// any more, so that the next primary need not wait. The configuration that ended it is persisted by now: nothing is
    /// served under a lower epoch again, not after a restart either.
    pub(crate) fn release(&self, former: &Config, config_epoch: u64, actions: &mut Actions) {
        let copy = self.settings.copy;
        if former.primary() != Some(copy) {
            return;
        }
        let message = Message::Released { config_epoch };
        let members = former.in_sync.iter().chain(&former.others);
        for &to in members.filter(|to| **to != copy) {
            self.send(to, message.clone(), actions);
        }
    }

    /// Asks for grants that are needed soon.
    pub(crate) fn ask_for_grants(&mut self, now_ns: u64, actions: &mut Actions) {
        let Some(primary) = self.primary.as_mut() else { return };
        let lease_ns = self.settings.lease_ns();
        let message = Message::GrantRequest { config_epoch: self.config.epoch, sent_ns: now_ns };
        for (&to, peer) in &mut primary.peers {
            if peer.greeting == Greeting::Streaming && peer.lease.is_due(now_ns, lease_ns) {
                peer.lease.asked(now_ns);
                actions.push(Action::Send { to, message: message.clone() });
            }
        }
        if let Some((to, learner)) = primary.joining_learner()
            && learner.lease.is_due(now_ns, lease_ns)
        {
            learner.lease.asked(now_ns);
            actions.push(Action::Send { to, message });
        }
    }

    /// Renews grants, tells commit numbers, and proposes to remove a copy of which something (an answer, an ack, a
    /// grant) has been expected without any progress for `suspect_ns`. The rule counts from the tick that first saw
    /// it missing, so a copy is suspected after at least `suspect_ns` and at most that and a tick. To answer greetings on
    /// ever new connections is no progress, but for the first few. What was proposed of one that has answered since is
    /// taken back.
    pub(crate) fn tick_as_primary(&mut self, now_ns: u64, actions: &mut Actions) {
        self.commit_step(now_ns, actions);
        self.restart_stalled(now_ns, actions);
        self.ask_for_grants(now_ns, actions);
        let Some(primary) = self.primary.as_mut() else { return };
        let (last, committed) = (self.log.last, self.log.committed);
        let mut suspect = None;
        for (&to, peer) in &mut primary.peers {
            if peer.greeting == Greeting::Streaming && peer.commit_told < committed {
                peer.commit_told = committed;
                let message = Message::Commit { config_epoch: self.config.epoch, commit: committed };
                actions.push(Action::Send { to, message });
            }
            // A peer that waits for the others during a takeover owes nothing.
            let owes = match peer.greeting {
                Greeting::Silent | Greeting::Asked => true,
                Greeting::Answered(_) => false,
                Greeting::Streaming => peer.acked < last || !peer.lease.is_valid(now_ns),
            } || primary.fetching == Some(to);
            if peer.greeting == Greeting::Streaming && !owes {
                peer.fruitless = 0;
            }
            if is_overdue(&mut peer.waiting_since_ns, owes, now_ns, self.settings.suspect_ns) {
                suspect = Some(self.config.without(to));
            }
        }
        if let Some(joining) = primary.joining.as_ref().filter(|joining| joining.proposed) {
            let owes = primary.learners.get_mut(&joining.copy).is_none_or(|learner| {
                let owes = learner.owes(last, now_ns);
                is_overdue(&mut learner.waiting_since_ns, owes, now_ns, self.settings.suspect_ns)
            });
            if owes {
                suspect = suspect.or_else(|| Some(self.config.renewed()));
            }
        }
        match suspect {
            Some(config) => self.propose(config, now_ns, actions),
            None => self.withdraw(now_ns, actions),
        }
    }

    /// Takes back the proposal to remove a copy once that copy does all that it was suspected not to do: it follows, has
    /// every entry that there was then, and grants. The coordinator may have decided by now; then it is removed, and
    /// comes back. Only called while nobody is suspected.
    fn withdraw(&mut self, now_ns: u64, actions: &mut Actions) {
        let (Some(primary), Some(proposal)) = (&self.primary, &self.proposal) else { return };
        let is_back = |(copy, peer): (&CopyId, &Peer)| {
            peer.greeting == Greeting::Streaming
                && peer.acked >= proposal.last
                && peer.lease.is_valid(now_ns)
                && self.config.without(*copy) == proposal.config
        };
        if !primary.peers.iter().any(is_back) {
            return;
        }
        let joining = primary.joining.as_ref().filter(|joining| joining.proposed).map(|joining| joining.copy);
        let Some(proposal) = self.proposal.take() else { return };
        actions.push(Action::Withdraw(proposal.config));
        // The removal stood in the place of an addition that was asked for before, and only a configuration ends that. The
        // copy follows still, or it would be suspected itself.
        if let Some(copy) = joining {
            self.propose(self.config.with(copy), now_ns, actions);
        }
    }
}

/// Whether something has been owed for too long.
pub(crate) fn is_overdue(since_ns: &mut Option<u64>, owes: bool, now_ns: u64, suspect_ns: u64) -> bool {
    if !owes {
        *since_ns = None;
        return false;
    }
    now_ns.saturating_sub(*since_ns.get_or_insert(now_ns)) >= suspect_ns
}

impl<C: ChangedSet> Primary<C> {
    /// Whether all who could serve next have promised not to.
    fn has_lease(&self, now_ns: u64) -> bool {
        let joining = match &self.joining {
            None => true,
            Some(joining) => {
                self.learners.get(&joining.copy).is_some_and(|learner| learner.lease.is_valid(now_ns))
            }
        };
        joining && self.peers.values().all(|peer| peer.lease.is_valid(now_ns))
    }

    /// Notes who waits for an entry. Mostly the newest one; a retry may wait for an older one.
    fn wait(&mut self, sequence: u64, token: Token) {
        if let Err(place) = self.waiting.binary_search(&(sequence, token)) {
            self.waiting.insert(place, (sequence, token));
        }
    }

    /// Whether a fence must wait: requests of older attachments are at the engine, and would land behind it.
    fn has_older(&self, request: &ClientRequest) -> bool {
        let EntryKind::Fence { volume, generation } = request.kind else { return false };
        self.submitted.iter().any(|submitted| {
            submitted.request.token != request.token
                && submitted.request.volume == volume
                && submitted.request.generation < generation
        })
    }

    /// Hands on fences that need not wait any more.
    fn let_go(&mut self, actions: &mut Actions) {
        for place in 0..self.submitted.len() {
            let request = self.submitted[place].request;
            if self.submitted[place].held && !self.has_older(&request) {
                self.submitted[place].held = false;
                actions.push(Action::Submit(request.token));
            }
        }
    }
}
