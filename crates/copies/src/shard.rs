//! What comes in: requests, messages, connections, configurations, completions of I/O, time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use coquina_base::{AlignedBuf, Landing, LayerId};
use coquina_engine::{
    Appended, Failure, IoError, IoToken, Operation as EngineOperation, Origin, ReadData, Record,
    Request as EngineRequest, Shard,
};
use coquina_replication::{
    Action, BlockRange, ClientRequest, Config, CopyId, EntryKind, Group, GroupId, History, Input, Message,
    RangeSet, RecoveryToken, Refusal, Sessions, Settings, Start, Token,
};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use slab::Slab;

use crate::api::{Answer, Event, Operation, Request, Sink};
use crate::between::Grants;
use crate::compare::Comparisons;
use crate::drain::{deletion_token, sweep_token};
use crate::lost::TakenBad;
use crate::outgoing::{Fetch, Lane};
use crate::payload::{self, Payload, PayloadError};
use crate::repair::Repairs;
use crate::verify::Verification;

/// What the actions of an input need beside what is in them.
#[derive(Clone, Copy)]
pub(crate) enum Context<'a> {
    /// Nothing.
    None,
    /// The client's request.
    Request(&'a Request<'a>),
    /// The entry just put into the log.
    Appended(&'a Appended),
    /// What came behind a message.
    Received(&'a [u8]),
    /// Blocks read for a copy that misses them, as they go behind a message.
    Read(&'a [u8]),
}

/// A client's request under way.
#[derive(Debug)]
pub(crate) struct Pending {
    pub client: u64,
    pub member: usize,
    pub is_read: bool,
    /// The group owes the answer.
    pub in_group: bool,
    /// The engine owes its end.
    pub in_engine: bool,
    pub appended: bool,
    /// Its reign ended while it was at the engine.
    pub orphan: bool,
    /// The client has its answer.
    pub answered: bool,
    /// Session, request, volume and generation of a fence.
    pub fence: Option<(u64, u64, u128, u64)>,
    /// Why the engine refused it.
    pub failure: Option<Failure>,
}

/// Blocks on their way to be read for a copy that misses them.
#[derive(Debug)]
pub(crate) struct RecoveryRead {
    pub member: usize,
    pub token: RecoveryToken,
    pub copy: CopyId,
    pub range: BlockRange,
    /// How often it was tried in vain.
    pub tries: u32,
}

/// A group on this shard.
pub(crate) struct Member {
    pub number: u32,
    pub group: Group<RangeSet>,
    pub suspect_ns: u64,
    /// What goes out, by copy; there is one for each connection.
    pub lanes: BTreeMap<CopyId, Lane>,
    /// The engine's count of the group's records after each of the group's records that is not durable.
    pub marks: VecDeque<u64>,
    /// The group's records given to the engine, as the engine counts.
    pub engine_records: u64,
    /// The group's durable records, as the group counts.
    pub durable_records: u64,
    /// Last entry that the group said is committed.
    pub commit: u64,
    /// Entries being read back.
    pub fetches: usize,
    /// The entry last read back in vain for a copy in sync, and how often that was so since something of these was committed.
    pub unreadable: Option<(u64, u32)>,
    /// Changes of former reigns at the engine.
    pub orphans: usize,
    /// Epoch to serve once there are none. None of a group that has halted.
    pub serve: Option<u64>,
    /// The drive does not take what it must, or gives back no more what others need, or the group has found this copy to be wrong:
    /// nothing is done any more, but that somebody else becomes primary.
    pub halted: bool,
    /// Its pool has been removed: it is halted, and nobody is a member of it any more, whatever its configuration says.
    pub removed: bool,
    /// The newest configuration heard of while halted.
    pub heard: Option<Config>,
    pub propose_ns: u64,
    /// Blocks sent to copies that came back.
    pub recovered_blocks: u64,
}

impl Member {
    /// The newest configuration heard of. What the group heard of before it halted may never become durable here.
    fn config_heard(&self) -> &Config {
        let known = self.group.known();
        self.heard.as_ref().filter(|heard| heard.epoch > known.epoch).unwrap_or(known)
    }
}

/// All groups of one shard.
pub struct ShardCopies {
    pub(crate) shard: Shard,
    pub(crate) copy: CopyId,
    pub(crate) now_ns: u64,
    pub(crate) members: Slab<Member>,
    by_number: HashMap<u32, usize, FixedState>,
    pub(crate) requests: Slab<Pending>,
    pub(crate) fetches: Slab<Fetch>,
    pub(crate) reads: Slab<RecoveryRead>,
    /// Those that are to be tried again, and when.
    pub(crate) reads_again: Vec<(u64, RecoveryRead)>,
    /// Blocks on their way into the log as bad.
    pub(crate) taken_bad: Slab<TakenBad>,
    /// Layers that are being deleted.
    pub(crate) deletions: Slab<LayerId>,
    pub(crate) connected: BTreeSet<CopyId>,
    /// Inputs that arose while actions were executed.
    pub(crate) later: VecDeque<(usize, RecoveryToken, Vec<u8>)>,
    /// Groups whose state is being forgotten: how many records the engine counts when it is.
    forgetting: BTreeMap<u32, u64>,
    /// Blocks that groups which are not open any more have sent to copies that came back.
    recovered_blocks_gone: u64,
    /// The payload of the request that is being taken, if it lies in buffers of the engine.
    pub(crate) landing: Option<Landing>,
    /// Whether the other copies were told that this shard is full, and which of them are.
    pub(crate) is_full: bool,
    pub(crate) full_copies: BTreeSet<CopyId>,
    /// What goes to other copies at the end of the call.
    pub(crate) grants: Grants,
    pub(crate) repairs: Repairs,
    pub(crate) comparisons: Comparisons,
    pub(crate) verification: Verification,
    actions: Vec<Action>,
    /// Members to be told of something; its memory is used again.
    keys: Vec<usize>,
}

impl ShardCopies {
    /// Takes a shard over. Its configuration must say which copy it is.
    pub fn new(mut shard: Shard, now_ns: u64) -> ShardCopies {
        let copy = shard.copy();
        shard.enable_repairs();
        ShardCopies {
            shard,
            copy,
            now_ns,
            members: Slab::new(),
            by_number: HashMap::default(),
            requests: Slab::new(),
            fetches: Slab::new(),
            reads: Slab::new(),
            reads_again: Vec::new(),
            taken_bad: Slab::new(),
            deletions: Slab::new(),
            connected: BTreeSet::new(),
            later: VecDeque::new(),
            forgetting: BTreeMap::new(),
            recovered_blocks_gone: 0,
            landing: None,
            is_full: false,
            full_copies: BTreeSet::new(),
            grants: Grants::default(),
            repairs: Repairs::default(),
            comparisons: Comparisons::default(),
            verification: Verification::default(),
            actions: Vec::new(),
            keys: Vec::new(),
        }
    }

    /// Opens a group with what the log says, if it says anything, and tells it of `config`, the newest configuration that
    /// is known of the coordinator. Of `settings` the group and the copy are set here. One of which the log has lost something
    /// is not opened as long as the configuration counts on it.
    pub fn open_group(&mut self, number: u32, settings: Settings, config: Config, sink: &mut impl Sink) {
        assert!(!self.by_number.contains_key(&number), "group {number} is open already");
        assert!(!self.is_forgetting(number), "group {number} is being forgotten");
        assert!(
            settings.recover_blocks_max <= payload::ENTRY_BLOCKS_MAX,
            "more than an entry of the log holds"
        );
        if !self.shard.may_open_group(number, &config) {
            return;
        }
        let settings = Settings { group: GroupId(number), copy: self.copy, ..settings };
        let mut start =
            self.shard.group_start(number).unwrap_or_else(|| Start { intact: true, ..Start::default() });
        // A copy in sync without entries has had nothing yet: what is committed is in the logs of all in sync. Any other one may have
        // been forgotten with blocks that it had been given already, of which nobody knows that they are gone.
        start.intact &= start.last > 0 || config.is_in_sync(self.copy);
        let commit = start.committed;
        let mut actions = std::mem::take(&mut self.actions);
        let group = Group::new(settings, start, self.now_ns, &mut actions);
        let key = self.members.insert(Member {
            number,
            group,
            suspect_ns: settings.suspect_ns,
            lanes: BTreeMap::new(),
            marks: VecDeque::new(),
            engine_records: self.shard.group(number).map_or(0, |group| group.records),
            durable_records: 0,
            commit,
            fetches: 0,
            unreadable: None,
            orphans: 0,
            serve: None,
            halted: false,
            removed: false,
            heard: None,
            propose_ns: 0,
            recovered_blocks: 0,
        });
        self.by_number.insert(number, key);
        self.execute_all(key, &mut actions, Context::None, sink);
        self.actions = actions;
        for copy in &self.connected {
            sink.send(*copy, number, &Message::Opened {}, Payload::default());
        }
        self.input(key, Input::Config(config), Context::None, sink);
        self.drain(sink);
    }

    /// Closes a group that this copy is no member of any more, and forgets what was logged of it but for its
    /// configuration: should the copy become a member again, it has nothing, and its blocks may be trimmed until then.
    /// False: something of it is still under way; try again.
    pub fn forget_group(&mut self, now_ns: u64, number: u32, sink: &mut impl Sink) -> bool {
        self.advance(now_ns);
        if !self.shard.takes_changes() {
            return false;
        }
        if let Some(&key) = self.by_number.get(&number) {
            let member = &self.members[key];
            let config = if member.halted { member.config_heard() } else { member.group.config() };
            let is_member = !member.removed && (config.is_in_sync(self.copy) || config.is_out(self.copy));
            // What its drive did not take when it halted never becomes durable, but all that is in the log does.
            let is_durable = match member.halted {
                true => self.shard.group(number).is_none_or(|view| view.records == view.logged),
                false => member.marks.is_empty(),
            };
            let is_idle = is_durable && member.orphans == 0 && !is_member;
            let is_named = self.requests.iter().any(|(_, pending)| pending.member == key)
                || self.fetches.iter().any(|(_, fetch)| fetch.is_of(key))
                || self.reads.iter().any(|(_, read)| read.member == key)
                || self.later.iter().any(|(later, _, _)| *later == key)
                || self.lost_names(key)
                || self.repairs.names(key)
                || self.comparisons.names(key)
                || self.verification.names(key);
            if !is_idle || is_named {
                return false;
            }
            let member = self.members.remove(key);
            self.recovered_blocks_gone += member.recovered_blocks;
            self.by_number.remove(&number);
        }
        // Once: what is known of it stays until the frame with these records is applied.
        let is_forgotten = self.is_forgetting(number);
        if let Some(view) = self.shard.group(number).filter(|view| view.last > 0 && !is_forgotten) {
            // The join is the last: records behind it would be numbered below what is still known as committed.
            self.shard.submit_record(number, &Record::Sessions(Sessions::default()));
            self.shard.submit_record(number, &Record::Join { history: History::default(), last: 0 });
            self.forgetting.insert(number, view.records + 2);
        }
        self.drain(sink);
        true
    }

    /// The same for a group whose pool has been removed, which no configuration tells: the group is stopped first. It must be
    /// certain that the pool is gone for good, for what was logged of the group is forgotten though others may count on it.
    pub fn forget_removed_group(&mut self, now_ns: u64, number: u32, sink: &mut impl Sink) -> bool {
        self.advance(now_ns);
        if let Some(&key) = self.by_number.get(&number) {
            self.members[key].removed = true;
            self.stop_for_good(key, sink);
        }
        self.forget_group(now_ns, number, sink)
    }

    /// Whether a group cannot be opened yet, since its state is being forgotten.
    pub fn is_forgetting(&mut self, number: u32) -> bool {
        let Some(records) = self.forgetting.get(&number) else { return false };
        let is_done = self.shard.group(number).is_none_or(|view| view.records >= *records);
        if is_done {
            self.forgetting.remove(&number);
        }
        !is_done
    }

    /// Trims a whole chunk of which this shard holds blocks for no group any more.
    pub fn trim_chunk(&mut self, now_ns: u64, layer: LayerId, chunk: u32, sink: &mut impl Sink) {
        self.advance(now_ns);
        self.shard.submit(EngineRequest {
            token: sweep_token(),
            layer,
            chunk,
            offset_bytes: 0,
            length_bytes: coquina_base::CHUNK_BYTES as u32,
            origin: Origin::default(),
            operation: EngineOperation::Trim,
        });
        self.drain(sink);
    }

    /// Takes a client's request.
    pub fn request(&mut self, now_ns: u64, request: &Request<'_>, sink: &mut impl Sink) {
        self.advance(now_ns);
        let key = self.by_number.get(&request.group).copied().filter(|key| !self.members[*key].halted);
        let Some(member) = key else {
            return sink.answer(request.client, Answer::Refused(Refusal::NotServing));
        };
        let kind = match request.operation {
            Operation::Read | Operation::ReadUnchecked | Operation::Map => None,
            Operation::Write { .. } => Some(EntryKind::Write),
            Operation::Trim | Operation::WriteZeroes { no_hole: false } => Some(EntryKind::Trim),
            Operation::WriteZeroes { no_hole: true } => Some(EntryKind::Zeroes),
            Operation::Fence => {
                Some(EntryKind::Fence { volume: request.volume, generation: request.generation })
            }
        };
        if kind.is_some() && request.session == 0 {
            return sink.answer(request.client, Answer::Failed(Failure::Invalid));
        }
        let slot = self.requests.insert(Pending {
            client: request.client,
            member,
            is_read: kind.is_none(),
            in_group: true,
            in_engine: false,
            appended: false,
            orphan: false,
            answered: false,
            fence: matches!(request.operation, Operation::Fence).then_some((
                request.session,
                request.request,
                request.volume,
                request.generation,
            )),
            failure: None,
        });
        let token = Token(slot as u64);
        let input = match kind {
            None => Input::Read(token),
            Some(kind) => Input::Request(ClientRequest {
                token,
                session: request.session,
                request: request.request,
                volume: request.volume,
                generation: request.generation,
                kind,
            }),
        };
        self.input(member, input, Context::Request(request), sink);
        self.drain(sink);
    }

    /// Takes a client's write of whole blocks whose payload was received into buffers of the engine
    /// ([`Shard::landing`]); the payload in the request is empty.
    pub fn request_landed(
        &mut self,
        now_ns: u64,
        request: &Request<'_>,
        landing: Landing,
        sink: &mut impl Sink,
    ) {
        self.landing = Some(landing);
        self.request(now_ns, request, sink);
        if let Some(landing) = self.landing.take() {
            // It was answered, or refused, without.
            self.shard.recycle_landing(landing);
        }
    }

    /// Takes a message of another copy on the connection that there is now, and the data that came behind it. An error
    /// means that the connection must be broken.
    pub fn receive(
        &mut self,
        now_ns: u64,
        from: CopyId,
        group: u32,
        mut message: Message,
        data: &[u8],
        sink: &mut impl Sink,
    ) -> Result<(), PayloadError> {
        self.advance(now_ns);
        payload::check(&message, data)?;
        if self.receive_of_shard(from, &message, sink) {
            self.drain(sink);
            return Ok(());
        }
        let Some(&key) = self.by_number.get(&group) else { return Ok(()) };
        let is_taken = self.receive_opened(key, from, &message, sink)
            || !self.members[key].lanes.contains_key(&from)
            || self.receive_repair(key, from, &message, data, sink)
            || self.receive_hashes(key, from, &mut message, sink);
        if is_taken {
            self.drain(sink);
            return Ok(());
        }
        if let Message::Tail { entries, .. } = &mut message {
            let mut start = 0;
            for entry in entries {
                entry.payload.0 = start as u64;
                start += payload::entry_bytes(entry);
            }
        }
        self.input(key, Input::Message(from, message), Context::Received(data), sink);
        self.drain(sink);
        Ok(())
    }

    /// There is a connection to another copy; the one before has been told to be gone.
    pub fn connected(&mut self, now_ns: u64, copy: CopyId, sink: &mut impl Sink) {
        self.advance(now_ns);
        self.connected.insert(copy);
        self.tell_full(copy, sink);
        for key in self.keys() {
            self.connect_member(key, copy, sink);
        }
        self.drain(sink);
    }

    pub(crate) fn connect_member(&mut self, key: usize, copy: CopyId, sink: &mut impl Sink) {
        self.members[key].lanes.insert(copy, Lane::default());
        self.input(key, Input::Connected(copy), Context::None, sink);
    }

    /// The connection to another copy is gone.
    pub fn disconnected(&mut self, now_ns: u64, copy: CopyId, sink: &mut impl Sink) {
        self.advance(now_ns);
        if !self.connected.remove(&copy) {
            return;
        }
        self.full_copies.remove(&copy);
        self.repair_disconnected(copy);
        self.comparisons_disconnected(copy);
        self.end_verification(|_, copies| copies.contains_key(&copy));
        for key in self.keys() {
            self.drop_lane(key, copy);
            self.input(key, Input::Disconnected(copy), Context::None, sink);
        }
        self.drain(sink);
    }

    /// The coordinator has made a configuration.
    pub fn config(&mut self, now_ns: u64, group: u32, config: Config, sink: &mut impl Sink) {
        self.advance(now_ns);
        let Some(&key) = self.by_number.get(&group) else { return };
        let member = &mut self.members[key];
        if member.halted && member.heard.as_ref().is_none_or(|heard| heard.epoch < config.epoch) {
            member.heard = Some(config.clone());
        }
        self.input(key, Input::Config(config), Context::None, sink);
        self.drain(sink);
    }

    /// Deletes what this shard holds of a layer, told by [`Sink::layer_deleted`]. No group is asked: the cluster's map says
    /// on every copy by itself that the layer belongs to nothing any more, and nobody reads it. Entries and blocks of it
    /// that still come from other copies are logged without effect; a client's changes fail with [`Failure::Invalid`].
    pub fn delete_layer(&mut self, now_ns: u64, layer: LayerId, sink: &mut impl Sink) {
        self.advance(now_ns);
        let deletion = self.deletions.insert(layer);
        self.shard.submit(EngineRequest {
            token: deletion_token(deletion),
            layer,
            chunk: 0,
            offset_bytes: 0,
            length_bytes: 0,
            origin: Origin::default(),
            operation: EngineOperation::DeleteLayer,
        });
        self.drain(sink);
    }

    /// Time has passed: due several times within `suspect_ns` and `grant_ns`.
    pub fn tick(&mut self, now_ns: u64, sink: &mut impl Sink) {
        self.advance(now_ns);
        let mut keys = std::mem::take(&mut self.keys);
        keys.extend(self.members.iter().map(|(key, _)| key));
        for key in keys.drain(..) {
            self.input(key, Input::Tick, Context::None, sink);
            self.give_away(key, sink);
        }
        self.keys = keys;
        self.repair_tick(sink);
        self.lost_tick();
        self.comparisons_tick();
        self.drain(sink);
    }

    /// A halted primary asks for another one, also if it was made the primary after it had halted.
    fn give_away(&mut self, key: usize, sink: &mut impl Sink) {
        let member = &mut self.members[key];
        if !member.halted || member.removed || self.now_ns < member.propose_ns {
            return;
        }
        let config = member.config_heard();
        if config.primary() == Some(self.copy) && config.in_sync.len() > 1 {
            let next = config.without(self.copy);
            member.propose_ns = self.now_ns + member.suspect_ns;
            sink.propose(member.number, next);
        }
    }

    /// The end of an I/O of the shard.
    pub fn io_done(
        &mut self,
        io: IoToken,
        buffer: AlignedBuf,
        result: Result<(), IoError>,
        sink: &mut impl Sink,
    ) {
        self.shard.io_done(io, buffer, result);
        self.drain(sink);
    }

    /// The end of a turn of the driver's loop.
    pub fn turn(&mut self, now_ns: u64, sink: &mut impl Sink) {
        self.advance(now_ns);
        self.hash_step();
        self.verify_step(sink);
        self.shard.turn(self.now_ns);
        self.drain(sink);
        self.end_scrub(sink);
    }

    /// When [`ShardCopies::turn`] must be called at the latest.
    pub fn next_wake_ns(&self) -> Option<u64> {
        if self.comparisons.is_ready() {
            return Some(self.now_ns);
        }
        self.shard.next_wake_ns().into_iter().chain(self.verification.wake_ns()).min()
    }

    /// Gives a read's buffers back.
    pub fn recycle(&mut self, data: ReadData) {
        self.shard.recycle(data);
    }

    /// The engine, to be looked at and told to close, scrub and so on; what it then wants to do comes with the next turn.
    pub fn shard_mut(&mut self) -> &mut Shard {
        &mut self.shard
    }

    /// The engine.
    pub fn shard(&self) -> &Shard {
        &self.shard
    }

    /// A group's state.
    pub fn group(&self, number: u32) -> Option<&Group<RangeSet>> {
        self.by_number.get(&number).map(|key| &self.members[*key].group)
    }

    /// Blocks that a group has sent from here to copies that came back, since it was opened.
    pub fn recovered_blocks(&self, number: u32) -> u64 {
        self.by_number.get(&number).map_or(0, |key| self.members[*key].recovered_blocks)
    }

    /// Blocks that all groups have sent from here to copies that came back, those included that are not open any more.
    pub fn recovered_blocks_total(&self) -> u64 {
        self.members.iter().fold(self.recovered_blocks_gone, |sum, (_, member)| sum + member.recovered_blocks)
    }

    /// The groups that are open, in order.
    pub fn groups(&self) -> Vec<u32> {
        let mut numbers: Vec<u32> = self.by_number.keys().copied().collect();
        numbers.sort_unstable();
        numbers
    }

    /// Whether a group does nothing any more, for the drive does not take what it must, or this copy has been found wrong.
    pub fn is_halted(&self, number: u32) -> bool {
        self.by_number.get(&number).is_some_and(|key| self.members[*key].halted)
    }

    fn keys(&self) -> Vec<usize> {
        self.members.iter().map(|(key, _)| key).collect()
    }

    pub(crate) fn advance(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
    }

    pub(crate) fn key_of(&self, number: u32) -> Option<usize> {
        self.by_number.get(&number).copied()
    }

    /// Gives a group an input and does what it wants.
    pub(crate) fn input(&mut self, key: usize, input: Input, context: Context<'_>, sink: &mut impl Sink) {
        if self.members[key].halted {
            return;
        }
        let mut actions = std::mem::take(&mut self.actions);
        self.members[key].group.apply(self.now_ns, input, &mut actions);
        self.execute_all(key, &mut actions, context, sink);
        self.actions = actions;
    }

    /// Stops a group for good: its drive does not take what it must, or give what it must.
    pub(crate) fn halt(&mut self, key: usize, failure: Failure, sink: &mut impl Sink) {
        if self.stop_for_good(key, sink) {
            sink.event(Event::Halted(self.members[key].number, failure));
        }
    }

    /// Has a group do nothing any more; says whether it did anything before.
    pub(crate) fn stop_for_good(&mut self, key: usize, sink: &mut impl Sink) -> bool {
        let member = &mut self.members[key];
        if std::mem::replace(&mut member.halted, true) {
            return false;
        }
        member.serve = None;
        let number = member.number;
        let copies: Vec<CopyId> = member.lanes.keys().copied().collect();
        copies.into_iter().for_each(|copy| self.drop_lane(key, copy));
        self.shard.accept_changes(number, None);
        let slots: Vec<usize> =
            self.requests.iter().filter(|(_, pending)| pending.member == key).map(|(slot, _)| slot).collect();
        for slot in slots {
            self.requests[slot].in_group = false;
            self.answer(slot, Answer::Refused(Refusal::NotServing), sink);
        }
        self.end_repairs_of(key);
        self.end_comparisons_of(key);
        self.end_verification(|member, _| member == key);
        true
    }

    /// Answers a request, unless it has been; forgets it once nobody owes anything for it.
    pub(crate) fn answer(&mut self, slot: usize, answer: Answer, sink: &mut impl Sink) {
        let pending = &mut self.requests[slot];
        if std::mem::replace(&mut pending.answered, true) {
            if let Answer::Read(data) = answer {
                self.shard.recycle(data);
            }
        } else {
            sink.answer(pending.client, answer);
        }
        self.settle(slot);
    }

    pub(crate) fn settle(&mut self, slot: usize) {
        let pending = &self.requests[slot];
        if !pending.in_group && !pending.in_engine && pending.answered {
            self.requests.remove(slot);
        }
    }
}
