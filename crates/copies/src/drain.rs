//! What the engine did is told to the groups.

use coquina_engine::{
    Action as EngineAction, Appended, ChangeKind, Event as EngineEvent, Failure, Origin, Outcome,
    RequestToken,
};
use coquina_replication::{BlockRange, Entry, EntryKind, Input, PayloadRef, Token};

use crate::api::{Answer, Event, Sink};
use crate::shard::{Context, ShardCopies};

/// Bits of a token that say whose it is.
const KIND_SHIFT: u32 = 56;
const CLIENT: u64 = 1;
const FETCH: u64 = 2;
const READ: u64 = 3;
const REPLICA: u64 = 4;
const RECOVERED: u64 = 5;
const DELETION: u64 = 6;
const SWEEP: u64 = 7;
const REPAIR: u64 = 8;
const HASH: u64 = 9;
const TAKEN_BAD: u64 = 10;

fn token(kind: u64, key: usize) -> RequestToken {
    RequestToken(kind << KIND_SHIFT | key as u64)
}

/// The engine's name for a client's request.
pub(crate) fn client_token(slot: usize) -> RequestToken {
    token(CLIENT, slot)
}

/// The engine's name for an entry that is read back.
pub(crate) fn fetch_token(fetch: usize) -> RequestToken {
    token(FETCH, fetch)
}

/// The engine's name for a read for another copy.
pub(crate) fn read_token(read: usize) -> RequestToken {
    token(READ, read)
}

/// The engine's name for an entry of another primary.
pub(crate) fn replica_token(key: usize) -> RequestToken {
    token(REPLICA, key)
}

/// The engine's name for the deletion of a layer.
pub(crate) fn deletion_token(deletion: usize) -> RequestToken {
    token(DELETION, deletion)
}

/// The engine's name for trims of what no group holds here.
pub(crate) fn sweep_token() -> RequestToken {
    token(SWEEP, 0)
}

/// The engine's name for a block that is bad on another copy.
pub(crate) fn repair_token(slot: usize) -> RequestToken {
    token(REPAIR, slot)
}

/// The engine's name for blocks to be hashed.
pub(crate) fn hash_token(slot: usize) -> RequestToken {
    token(HASH, slot)
}

/// The engine's name for a block that is taken as bad.
pub(crate) fn taken_bad_token(slot: usize) -> RequestToken {
    token(TAKEN_BAD, slot)
}

/// The engine's name for blocks that were missed.
pub(crate) fn recovered_token(key: usize) -> RequestToken {
    token(RECOVERED, key)
}

impl ShardCopies {
    /// Takes up everything that the engine has done.
    pub(crate) fn drain(&mut self, sink: &mut impl Sink) {
        loop {
            if let Some((key, token, bytes)) = self.later.pop_front() {
                let payload = PayloadRef::default();
                self.input(key, Input::RecoveryRead { token, payload }, Context::Read(&bytes), sink);
                continue;
            }
            let Some(action) = self.shard.next_action() else { break };
            match action {
                EngineAction::Appended(appended) => self.appended(&appended, sink),
                EngineAction::FenceAppended { token, origin, volume, generation } => {
                    self.fence_appended(token, origin, EntryKind::Fence { volume, generation }, sink);
                }
                EngineAction::Durable { group, records } => self.durable(group, records, sink),
                EngineAction::Done { token, outcome } => self.done(token, outcome, sink),
                EngineAction::Repair { repair, layer, chunk, block } => {
                    self.begin_repair(repair, (layer, chunk, block), sink);
                }
                EngineAction::Event(event) => self.engine_event(event, sink),
                io => sink.io(io),
            }
        }
        self.send_grants(sink);
        self.look_at_room(sink);
    }

    fn engine_event(&mut self, event: EngineEvent, sink: &mut impl Sink) {
        let poisoned = matches!(event, EngineEvent::Poisoned { .. });
        sink.event(Event::Engine(event));
        if poisoned {
            let keys: Vec<usize> = self.members.iter().map(|(key, _)| key).collect();
            keys.into_iter().for_each(|key| self.halt(key, Failure::ReadOnly, sink));
        }
    }

    /// A change of a client is in the log.
    fn appended(&mut self, appended: &Appended, sink: &mut impl Sink) {
        let kind = match appended.kind {
            ChangeKind::Write => EntryKind::Write,
            ChangeKind::Trim => EntryKind::Trim,
            ChangeKind::Zeroes => EntryKind::Zeroes,
        };
        let range = BlockRange {
            layer: appended.layer,
            chunk: appended.chunk,
            first: appended.start_block,
            count: appended.blocks,
        };
        let slot = key_of(appended.token);
        let entry = new_entry(&appended.origin, kind, range);
        self.note_touched(&range);
        self.log_new(slot, entry, Context::Appended(appended), sink);
    }

    fn fence_appended(&mut self, token: RequestToken, origin: Origin, kind: EntryKind, sink: &mut impl Sink) {
        let entry = new_entry(&origin, kind, BlockRange::default());
        self.log_new(key_of(token), entry, Context::None, sink);
    }

    fn log_new(&mut self, slot: usize, entry: Entry, context: Context<'_>, sink: &mut impl Sink) {
        let pending = &mut self.requests[slot];
        pending.appended = true;
        let (key, is_orphan) = (pending.member, pending.orphan);
        if self.members[key].halted {
            // It came into the log with the entry for which this copy stopped; its end settles the request.
            return;
        }
        assert!(!is_orphan, "{entry:?} of a former reign has come into the log");
        self.mark(key, 1);
        self.input(key, Input::Appended { token: Token(slot as u64), entry }, context, sink);
    }

    /// More of a group is durable.
    fn durable(&mut self, group: u32, records: u64, sink: &mut impl Sink) {
        let Some(key) = self.key_of(group) else { return };
        let member = &mut self.members[key];
        let before = member.durable_records;
        while member.marks.front().is_some_and(|mark| *mark <= records) {
            member.marks.pop_front();
            member.durable_records += 1;
        }
        if member.durable_records > before {
            let records = member.durable_records;
            self.input(key, Input::Durable { records }, Context::None, sink);
        }
        self.issue_fetches(key);
        self.answer_asks(key);
        self.begin_hashes(key, sink);
    }

    fn done(&mut self, token: RequestToken, outcome: Outcome, sink: &mut impl Sink) {
        let key = key_of(token);
        match token.0 >> KIND_SHIFT {
            CLIENT if self.requests[key].is_read => self.read_done(key, outcome, sink),
            CLIENT => self.change_done(key, outcome, sink),
            FETCH => match outcome {
                Outcome::Read(data) => self.fetched(key, Ok(data), sink),
                Outcome::Failed(failure) => self.fetched(key, Err(failure), sink),
                Outcome::Changed | Outcome::Map(_) => panic!("an entry was read back as {outcome:?}"),
            },
            READ => self.recovery_read_done(key, outcome, sink),
            TAKEN_BAD => self.taken_bad_done(key, outcome, sink),
            REPAIR => self.repair_read_done(key, outcome, sink),
            HASH => self.hash_read_done(key, outcome, sink),
            REPLICA | RECOVERED => {
                if let Outcome::Failed(failure) = outcome {
                    self.halt(key, failure, sink);
                }
            }
            // What fails is tried again with the next round.
            SWEEP => {}
            DELETION => {
                let layer = self.deletions.remove(key);
                let result = match outcome {
                    Outcome::Failed(failure) => Err(failure),
                    _ => Ok(()),
                };
                sink.layer_deleted(layer, result);
            }
            _ => panic!("the engine made {token:?} up"),
        }
    }

    fn read_done(&mut self, slot: usize, outcome: Outcome, sink: &mut impl Sink) {
        self.requests[slot].in_engine = false;
        let answer = match outcome {
            Outcome::Read(data) => Answer::Read(data),
            Outcome::Map(extents) => Answer::Map(extents),
            Outcome::Failed(failure) => Answer::Failed(failure),
            Outcome::Changed => panic!("a read has changed something"),
        };
        self.answer(slot, answer, sink);
    }

    fn change_done(&mut self, slot: usize, outcome: Outcome, sink: &mut impl Sink) {
        let pending = &mut self.requests[slot];
        pending.in_engine = false;
        let (key, token) = (pending.member, Token(slot as u64));
        if std::mem::take(&mut pending.orphan) {
            self.members[key].orphans -= 1;
            self.accept_if_free(key);
        }
        let pending = &mut self.requests[slot];
        if !pending.appended && pending.in_group {
            let input = match outcome {
                Outcome::Failed(failure) => {
                    let retry = matches!(failure, Failure::NoSpace | Failure::NotPrimary | Failure::ReadOnly);
                    pending.failure = (!retry).then_some(failure);
                    Input::Refused { token, no_space: failure == Failure::NoSpace }
                }
                _ => Input::Unchanged { token },
            };
            // The slot lives until the group has answered.
            self.input(key, input, Context::None, sink);
        } else {
            self.settle(slot);
        }
    }
}

fn key_of(token: RequestToken) -> usize {
    (token.0 & ((1 << KIND_SHIFT) - 1)) as usize
}

fn new_entry(origin: &Origin, kind: EntryKind, range: BlockRange) -> Entry {
    Entry {
        epoch: origin.epoch,
        sequence: origin.sequence,
        session: origin.session,
        request: origin.request,
        kind,
        range,
        is_last: !origin.continues,
        payload: PayloadRef::default(),
    }
}
