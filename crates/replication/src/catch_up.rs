//! The primary's side of a copy that returns.
//!
//! The stream to it carries, in order: `Join`, each uncommitted and each new change, and between them the blocks that
//! it misses, then the session table. Why this is right:
//! - The cut and the join are never above what is committed here. So all that the copy skips is committed and can
//!   never be cut again, and all that is not committed comes as a change of which the copy knows the blocks.
//! - A block is pushed only while no change of it has been sent in this stream. So what is pushed is a committed state,
//!   and nothing older can land on top of a newer change. A change covers whole blocks, so a block that a change of
//!   this stream covers needs no push.
//! - Another configuration of the same reign begins the stream anew, as when another copy is added. What a comparison has found stays in
//!   the set then, which all changes since are in, too; so it is not made again unless the connection broke, behind which the copy may
//!   have lost something. Entries that it forgets come again: this primary has them all.
//! - A block leaves the set of what is missing when its push is durable there, unless a change of it was sent in this
//!   stream: if the stream breaks, such changes may be cut, so they stay in the set until the copy is in sync.
//!
//! What is on its way is bounded: while a copy is further behind than `stream_lag_blocks_max`, nothing more is committed
//! without it, so that clients, who wait for answers, send no more. One that then does nothing at all for `suspect_ns` is asked
//! from the start what it has, and holds nobody up until it follows again.

use std::collections::VecDeque;

use crate::api::Action;
use crate::changed::ChangedSet;
use crate::grant::Lease;
use crate::group::{Actions, Group};
use crate::history::History;
use crate::message::Message;
use crate::primary::{Primary, is_overdue};
use crate::types::{BlockRange, CopyId, Entry, EntryKind, PayloadRef, RecoveryToken};

/// How far an out copy is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Stage {
    /// `JoinQuery` is under way.
    Asked,
    /// `Cut` is under way.
    Cutting {
        /// Everything must be compared.
        compare: bool,
    },
    /// It follows.
    Streaming,
}

/// What is left of a stream to a copy that is out. It grows only by what the comparison finds.
#[derive(Clone, Copy, Debug)]
pub struct StreamLeft<'a, C> {
    /// The copy.
    pub copy: CopyId,
    /// Blocks that are to be sent.
    pub todo: &'a C,
    /// Blocks that are being read, or were sent and may not be durable there.
    pub under_way_blocks: u64,
    /// The comparison that finds more of them.
    pub comparing: Option<RecoveryToken>,
}

/// A copy that is being added to those in sync: commits and reads need it already.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Joining {
    pub copy: CopyId,
    /// Last entry durable there; stays when the connection breaks.
    pub acked: u64,
    /// Whether the coordinator was asked: from then on only a new configuration ends this.
    pub proposed: bool,
}

/// An out copy as the primary sees it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Learner<C> {
    pub stage: Stage,
    /// Position of the last message sent.
    pub position: u64,
    /// Blocks still to be pushed.
    pub todo: C,
    /// Blocks of changes sent in this stream.
    pub fresh: C,
    /// Blocks pushed and not acked, by position.
    pub pushes: VecDeque<(u64, BlockRange)>,
    pub reading: Option<(RecoveryToken, BlockRange)>,
    pub comparing: Option<RecoveryToken>,
    /// Position of the session table.
    pub sessions_at: Option<u64>,
    /// It has that, and so everything that it missed: it may be added.
    pub done: bool,
    /// Last entry durable there.
    pub acked: u64,
    /// Changes sent of which it is not known that they are durable there: sequence number and blocks.
    pub unacked: VecDeque<(u64, u32)>,
    /// Blocks of these.
    pub unacked_blocks: u64,
    pub lease: Lease,
    pub waiting_since_ns: Option<u64>,
}

impl<C: ChangedSet> Learner<C> {
    pub fn new(stage: Stage) -> Learner<C> {
        Learner {
            stage,
            position: 0,
            todo: C::default(),
            fresh: C::default(),
            pushes: VecDeque::new(),
            reading: None,
            comparing: None,
            sessions_at: None,
            done: false,
            acked: 0,
            unacked: VecDeque::new(),
            unacked_blocks: 0,
            lease: Lease::default(),
            waiting_since_ns: None,
        }
    }

    pub fn is_streaming(&self) -> bool {
        self.stage == Stage::Streaming
    }

    /// A change goes into the stream. One without data counts as a block, however many it trims: it is a message, too.
    pub fn sent_change(&mut self, entry: &Entry) {
        let blocks = if entry.kind == EntryKind::Write { entry.range.count.max(1) } else { 1 };
        self.position += 1;
        self.unacked.push_back((entry.sequence, blocks));
        self.unacked_blocks += u64::from(blocks);
        self.fresh.insert(entry.range);
        self.todo.remove(entry.range);
    }

    /// Entries up to this one are durable there.
    fn acked_to(&mut self, durable: u64) {
        self.acked = self.acked.max(durable);
        while let Some(&(_, blocks)) = self.unacked.front().filter(|(sequence, _)| *sequence <= self.acked) {
            self.unacked.pop_front();
            self.unacked_blocks -= u64::from(blocks);
        }
    }

    fn is_reading(&self, token: RecoveryToken) -> bool {
        self.reading.is_some_and(|(reading, _)| reading == token)
    }

    /// Whether an ack or a grant is missing while it is being added, the log ending at `last`.
    pub fn owes(&self, last: u64, now_ns: u64) -> bool {
        self.acked < last || !self.lease.is_valid(now_ns)
    }

    /// What is left of its stream.
    fn left(&self, copy: CopyId) -> StreamLeft<'_, C> {
        let pushes = self.pushes.iter().map(|(_, range)| range);
        let under_way = pushes.chain(self.reading.iter().map(|(_, range)| range));
        let blocks = |range: &BlockRange| if range.is_whole_layer() { 1 } else { u64::from(range.count) };
        let under_way_blocks = under_way.map(blocks).sum();
        StreamLeft { copy, todo: &self.todo, under_way_blocks, comparing: self.comparing }
    }

    /// Whether it is so far behind that commits wait for it.
    pub fn lags(&self, blocks_max: u64) -> bool {
        self.unacked_blocks > blocks_max
    }
}

impl<C: ChangedSet> Primary<C> {
    /// What commits need of the copy that is being added.
    pub(crate) fn joining_acked(&self) -> u64 {
        self.joining.as_ref().map_or(u64::MAX, |joining| joining.acked)
    }

    /// What commits need of copies that are too far behind.
    pub(crate) fn lagging_acked(&self, blocks_max: u64) -> u64 {
        let lagging = self.learners.values().filter(|learner| learner.lags(blocks_max));
        lagging.map(|learner| learner.acked).min().unwrap_or(u64::MAX)
    }

    /// The copy that is being added, while connected.
    pub(crate) fn joining_learner(&mut self) -> Option<(CopyId, &mut Learner<C>)> {
        let copy = self.joining.as_ref()?.copy;
        self.learners.get_mut(&copy).map(|learner| (copy, learner))
    }
}

impl<C: ChangedSet> Group<C> {
    /// An out copy says where it stands. `known` is none if it cannot be trusted to have what its log says.
    pub(crate) fn join_state(
        &mut self,
        from: CopyId,
        history: &History,
        last: u64,
        committed: u64,
        known: Option<Option<u64>>,
        actions: &mut Actions,
    ) {
        let Some(primary) = &mut self.primary else { return };
        let is_compared = primary.compared.contains(&from);
        let Some(learner) = primary.learners.get_mut(&from).filter(|learner| learner.stage == Stage::Asked)
        else {
            return;
        };
        let common = self.log.history.common(self.log.last, history, last);
        let at = common.min(self.log.committed);
        let complete_to = known.map(|since| since.map_or(at, |since| since.min(at)));
        let base = self.missing.get(from).map(|missing| missing.base);
        let incremental = complete_to.zip(base).is_some_and(|(complete_to, base)| base <= complete_to);
        learner.stage = Stage::Cutting { compare: !incremental && !is_compared };
        let _ = committed;
        self.send(from, Message::Cut { config_epoch: self.config.epoch, at }, actions);
    }

    /// The copy has cut what was not committed: the stream begins.
    pub(crate) fn start_stream(&mut self, from: CopyId, ranges: &[BlockRange], actions: &mut Actions) {
        let config_epoch = self.config.epoch;
        let Some(primary) = &mut self.primary else { return };
        let Some(learner) = primary.learners.get_mut(&from) else { return };
        let Stage::Cutting { compare } = learner.stage else { return };
        let Some(missing) = self.missing.get_mut(from) else { return };
        #[cfg(feature = "mutations")]
        let ranges = if self.settings.has(crate::Mutation::DropCut) { &[] } else { ranges };
        ranges.iter().for_each(|range| missing.set.insert(*range));
        learner.stage = Stage::Streaming;
        learner.todo = missing.set.clone();
        let history = self.log.history.up_to(self.log.committed);
        let first = self.log.committed + 1;
        actions
            .push(Action::Send { to: from, message: Message::Join { config_epoch, history, from: first } });
        if compare {
            self.recovery_tokens += 1;
            let token = RecoveryToken(self.recovery_tokens);
            learner.comparing = Some(token);
            actions.push(Action::Compare { token, copy: from });
        }
        for entry in &self.log.uncommitted {
            learner.sent_change(entry);
        }
        for entry in &self.log.uncommitted {
            self.send(from, self.append_message(entry), actions);
        }
        self.push_blocks(from, actions);
    }

    /// Pushes the next blocks, or the session table when none is left.
    fn push_blocks(&mut self, to: CopyId, actions: &mut Actions) {
        let Some(primary) = &mut self.primary else { return };
        let Some(learner) = primary.learners.get_mut(&to).filter(|learner| learner.is_streaming()) else {
            return;
        };
        if learner.reading.is_some() || learner.pushes.len() >= self.settings.recover_window as usize {
            return;
        }
        if let Some(range) = learner.todo.first(self.settings.recover_blocks_max) {
            learner.todo.remove(range);
            self.recovery_tokens += 1;
            let token = RecoveryToken(self.recovery_tokens);
            learner.reading = Some((token, range));
            actions.push(Action::ReadForRecovery { token, copy: to, range });
        } else if learner.pushes.is_empty() && learner.comparing.is_none() && learner.sessions_at.is_none() {
            learner.position += 1;
            learner.sessions_at = Some(learner.position);
            let message =
                Message::Sessions { config_epoch: self.config.epoch, sessions: self.sessions.clone() };
            self.send(to, message, actions);
        }
    }

    /// What is left of the streams to copies that are out. One that is not connected, or has not said yet where it stands, has none.
    pub fn streams(&self) -> impl Iterator<Item = StreamLeft<'_, C>> {
        let learners = self.primary.iter().flat_map(|primary| &primary.learners);
        learners.filter(|(_, learner)| learner.is_streaming()).map(|(copy, learner)| learner.left(*copy))
    }

    /// Whether blocks that are being read are still to be pushed: the stream that they were for goes on.
    pub fn is_reading(&self, token: RecoveryToken) -> bool {
        let mut learners = self.primary.iter().flat_map(|primary| primary.learners.values());
        learners.any(|learner| learner.is_reading(token))
    }

    /// Blocks to push have been read.
    pub(crate) fn recovery_read(&mut self, token: RecoveryToken, payload: PayloadRef, actions: &mut Actions) {
        let Some(primary) = &mut self.primary else { return };
        let mut learners = primary.learners.iter_mut();
        let Some((&to, learner)) = learners.find(|(_, learner)| learner.is_reading(token)) else { return };
        let Some((_, range)) = learner.reading.take() else { return };
        if learner.fresh.intersects(range) {
            // A change of it went out since: what was read may be older. The rest is read again.
            learner.fresh.gaps(range, |gap| learner.todo.insert(gap));
        } else {
            learner.position += 1;
            learner.pushes.push_back((learner.position, range));
            let message = Message::Recover { config_epoch: self.config.epoch, range, payload };
            actions.push(Action::Send { to, message });
        }
        self.push_blocks(to, actions);
    }

    /// Blocks that differ have been found.
    pub(crate) fn compared(
        &mut self,
        copy: CopyId,
        token: RecoveryToken,
        ranges: &[BlockRange],
        done: bool,
        actions: &mut Actions,
    ) {
        let Some(primary) = &mut self.primary else { return };
        let Some(learner) = primary.learners.get_mut(&copy) else { return };
        if learner.comparing != Some(token) {
            return;
        }
        for &range in ranges {
            if let Some(missing) = self.missing.get_mut(copy) {
                missing.set.insert(range);
            }
            learner.fresh.gaps(range, |gap| learner.todo.insert(gap));
        }
        if done {
            learner.comparing = None;
            primary.compared.insert(copy);
        }
        self.push_blocks(copy, actions);
    }

    /// The copy has more of the stream.
    pub(crate) fn stream_ack(
        &mut self,
        from: CopyId,
        position: u64,
        durable: u64,
        now_ns: u64,
        actions: &mut Actions,
    ) {
        let Some(primary) = &mut self.primary else { return };
        let Some(learner) = primary.learners.get_mut(&from).filter(|learner| learner.is_streaming()) else {
            return;
        };
        learner.waiting_since_ns = None;
        learner.acked_to(durable);
        while let Some(&(at, range)) = learner.pushes.front().filter(|(at, _)| *at <= position) {
            learner.pushes.pop_front();
            let _ = at;
            if let Some(missing) = self.missing.get_mut(from) {
                learner.fresh.gaps(range, |gap| missing.set.remove(gap));
            }
        }
        learner.done |= learner.sessions_at.is_some_and(|at| at <= position);
        let (done, acked) = (learner.done, learner.acked);
        match &mut primary.joining {
            Some(joining) if joining.copy == from => joining.acked = acked,
            None if done => {
                primary.joining = Some(Joining { copy: from, acked, proposed: false });
                self.ask_for_grants(now_ns, actions);
            }
            _ => {}
        }
        self.push_blocks(from, actions);
        self.commit_step(now_ns, actions);
    }

    /// Asks copies that hold commits up, and have done nothing for `suspect_ns`, from the start what they have. The coordinator
    /// was not asked to add them yet, so nobody needs to decide anything. What was sent to them is still before the question.
    pub(crate) fn restart_stalled(&mut self, now_ns: u64, actions: &mut Actions) {
        let Some(primary) = &mut self.primary else { return };
        let (last, settings) = (self.log.last, self.settings);
        let joining = primary.joining.as_ref();
        let proposed = joining.filter(|joining| joining.proposed).map(|joining| joining.copy);
        let joining = joining.map(|joining| joining.copy);
        let others = primary.learners.iter_mut().filter(|(copy, _)| proposed != Some(**copy));
        let stalled = others.filter_map(|(copy, learner)| {
            let owes = match joining == Some(*copy) {
                true => learner.owes(last, now_ns),
                false => learner.lags(settings.stream_lag_blocks_max),
            };
            is_overdue(&mut learner.waiting_since_ns, owes, now_ns, settings.suspect_ns).then_some(*copy)
        });
        let stalled: Vec<CopyId> = stalled.collect();
        if stalled.is_empty() {
            return;
        }
        for copy in stalled {
            self.lose(copy, now_ns, actions);
            self.greet(copy, now_ns, actions);
        }
        self.commit_step(now_ns, actions);
    }

    /// Asks the coordinator to add the copy once it has all that is committed. From the start of joining on nothing is
    /// committed without it, so that stays true until the answer.
    ///
    /// One copy is added at a time. When the one before has gone, the next one may owe no ack with which it could begin.
    pub(crate) fn join_step(&mut self, now_ns: u64, actions: &mut Actions) {
        let last = self.log.last;
        let Some(primary) = &mut self.primary else { return };
        if primary.joining.is_none() {
            let is_ready = |learner: &Learner<C>| learner.done && learner.acked >= last;
            let ready = primary.learners.iter().find(|(_, learner)| is_ready(learner));
            let Some((&copy, learner)) = ready else { return };
            primary.joining = Some(Joining { copy, acked: learner.acked, proposed: false });
            self.ask_for_grants(now_ns, actions);
        }
        let Some(joining) = self.primary.as_mut().and_then(|primary| primary.joining.as_mut()) else {
            return;
        };
        if !joining.proposed && joining.acked >= self.log.committed {
            joining.proposed = true;
            let config = self.config.with(joining.copy);
            self.propose(config, now_ns, actions);
        }
    }
}
