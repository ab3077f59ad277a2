//! What a group wants is done.

use coquina_base::BLOCK_BYTES;
use coquina_engine::{Operation as EngineOperation, Origin, Record, Request as EngineRequest};
use coquina_replication::{
    Action, BlockRange, CopyId, Entry, EntryKind, PayloadRef, RecoveryToken, Refusal, Token,
};

use crate::api::{Answer, Event, Operation, Request, Sink};
use crate::drain::{client_token, recovered_token, replica_token};
use crate::payload::{self, Content};
use crate::shard::{Context, RecoveryRead, ShardCopies};

impl ShardCopies {
    /// Executes actions in order.
    pub(crate) fn execute_all(
        &mut self,
        key: usize,
        actions: &mut Vec<Action>,
        context: Context<'_>,
        sink: &mut impl Sink,
    ) {
        for action in actions.drain(..) {
            self.execute(key, action, context, sink);
        }
    }

    fn execute(&mut self, key: usize, action: Action, context: Context<'_>, sink: &mut impl Sink) {
        let number = self.members[key].number;
        match action {
            Action::Send { to, message } => self.send(key, to, message, context, sink),
            Action::Submit(token) => self.submit(number, token, context),
            Action::Append(entry) => self.append(key, &entry, context),
            Action::Persist { config, committed } => self.record(key, &Record::Config { config, committed }),
            Action::Cut { at, recovery } => self.record(key, &Record::Cut { at, recovery }),
            Action::Join { history, last } => self.record(key, &Record::Join { history, last }),
            Action::SetSessions(sessions) => self.record(key, &Record::Sessions(sessions)),
            Action::Recovered { range, payload } => self.recovered(key, range, payload, context),
            Action::Commit(commit) => {
                self.members[key].commit = commit;
                self.commit_at_engine(key);
            }
            Action::Serve { epoch } => self.serve(key, epoch),
            Action::Stop => self.stop(key, sink),
            Action::Answer(token) => {
                let slot = token.0 as usize;
                self.requests[slot].in_group = false;
                self.answer(slot, Answer::Done, sink);
            }
            Action::Refuse { token, refusal } => {
                let slot = token.0 as usize;
                let pending = &mut self.requests[slot];
                pending.in_group = false;
                let answer = pending.failure.map_or(Answer::Refused(refusal), Answer::Failed);
                self.answer(slot, answer, sink);
            }
            Action::Read(token) => self.read(number, token, context),
            Action::ReadForRecovery { token, copy, range } => self.read_for_recovery(key, token, copy, range),
            Action::Compare { token, copy } => sink.compare(number, copy, token),
            Action::Propose(config) => sink.propose(number, config),
            Action::Withdraw(config) => sink.withdraw(number, &config),
            // The last of its input's actions: what the group owed its clients was refused before.
            Action::Violation(violation) => {
                let is_own = violation.is_about_this_copy();
                sink.event(Event::Violation(number, violation));
                if is_own {
                    self.stop_for_good(key, sink);
                }
            }
            Action::Report(violation) => sink.event(Event::Damaged(number, violation)),
        }
    }

    /// Hands a client's change to the engine. A fence may come later than its request.
    fn submit(&mut self, number: u32, token: Token, context: Context<'_>) {
        let slot = token.0 as usize;
        self.requests[slot].in_engine = true;
        let Context::Request(request) = context else {
            let Some((session, request, volume, generation)) = self.requests[slot].fence else {
                panic!("only a fence is submitted later than it is asked for");
            };
            let origin = Origin { group: number, session, request, ..Origin::default() };
            return self.shard.submit_fence(client_token(slot), origin, volume, generation);
        };
        let origin = Origin {
            group: number,
            session: request.session,
            request: request.request,
            replaces_only: self.is_full_elsewhere(number),
            ..Origin::default()
        };
        let done_blocks = self.part_blocks(number, request);
        let landed;
        let with_payload;
        let mut request = request;
        if let (Some(landing), Operation::Write { checksums_le, .. }) =
            (self.landing.take(), request.operation)
        {
            if done_blocks == 0 {
                let operation = EngineOperation::Write { payload: &[], checksums_le };
                return self.shard.submit_landed(engine_request(request, slot, origin, operation), landing);
            }
            landed = landing.pieces().collect::<Vec<_>>().concat();
            self.shard.recycle_landing(landing);
            with_payload =
                Request { operation: Operation::Write { payload: &landed, checksums_le }, ..*request };
            request = &with_payload;
        }
        let rest;
        let request = if done_blocks == 0 {
            request
        } else {
            rest = rest_of(request, done_blocks);
            &rest
        };
        let operation = match request.operation {
            Operation::Write { payload, checksums_le } => EngineOperation::Write { payload, checksums_le },
            Operation::Trim => EngineOperation::Trim,
            Operation::WriteZeroes { no_hole } => EngineOperation::WriteZeroes { no_hole },
            Operation::Fence => {
                let (volume, generation) = (request.volume, request.generation);
                return self.shard.submit_fence(client_token(slot), origin, volume, generation);
            }
            Operation::Read | Operation::ReadUnchecked | Operation::Map => {
                panic!("a read is not submitted as a change")
            }
        };
        self.shard.submit(engine_request(request, slot, origin, operation));
    }

    /// Blocks of a request that a former try has brought into the log.
    fn part_blocks(&self, number: u32, request: &Request<'_>) -> u32 {
        let member = self.key_of(number).map(|key| &self.members[key]);
        member.map_or(0, |member| member.group.sessions().part_blocks(request.session, request.request))
    }

    fn read(&mut self, number: u32, token: Token, context: Context<'_>) {
        let slot = token.0 as usize;
        let Context::Request(request) = context else { panic!("a read is let through when it is asked for") };
        self.requests[slot].in_group = false;
        self.requests[slot].in_engine = true;
        let origin = Origin { group: number, ..Origin::default() };
        let operation = match request.operation {
            Operation::Map => EngineOperation::Map,
            Operation::ReadUnchecked => EngineOperation::ReadUnchecked,
            _ => EngineOperation::Read,
        };
        self.shard.submit(engine_request(request, slot, origin, operation));
    }

    /// Logs an entry of another primary.
    fn append(&mut self, key: usize, entry: &Entry, context: Context<'_>) {
        let number = self.members[key].number;
        self.mark(key, 1);
        let origin = Origin {
            group: number,
            epoch: entry.epoch,
            sequence: entry.sequence,
            session: entry.session,
            request: entry.request,
            continues: !entry.is_last,
            recovered: false,
            replaces_only: false,
            after_trims: false,
        };
        let operation = match entry.kind {
            EntryKind::Write => {
                let Context::Received(bytes) = context else { panic!("an entry comes with its data") };
                let start = usize::try_from(entry.payload.0).unwrap_or(usize::MAX);
                let (checksums_le, payload) = payload::split_entry(&bytes[start..], entry);
                EngineOperation::Write { payload, checksums_le }
            }
            EntryKind::Trim => EngineOperation::Trim,
            EntryKind::Zeroes => EngineOperation::WriteZeroes { no_hole: true },
            EntryKind::DeleteLayer => EngineOperation::DeleteLayer,
            EntryKind::Fence { volume, generation } => {
                return self.shard.submit_fence(replica_token(key), origin, volume, generation);
            }
        };
        self.shard.submit(ranged(entry.range, replica_token(key), origin, operation));
    }

    /// Logs blocks that this copy missed.
    fn recovered(&mut self, key: usize, range: BlockRange, _payload: PayloadRef, context: Context<'_>) {
        let Context::Received(bytes) = context else { panic!("blocks come with their data") };
        let member = &self.members[key];
        let origin = Origin {
            group: member.number,
            epoch: member.group.config().epoch,
            recovered: true,
            ..Origin::default()
        };
        let mut entries = 0;
        for run in payload::runs(range, bytes) {
            let operation = match run.content {
                Content::Data { checksums_le, payload } => EngineOperation::Write { payload, checksums_le },
                Content::Hole => EngineOperation::Trim,
                Content::Bad { checksum } => {
                    entries += 1;
                    self.take_bad(key, origin, run.range, checksum);
                    continue;
                }
            };
            entries += 1;
            self.shard.submit(ranged(run.range, recovered_token(key), origin, operation));
        }
        self.mark(key, entries);
    }

    fn record(&mut self, key: usize, record: &Record) {
        self.mark(key, 1);
        self.shard.submit_record(self.members[key].number, record);
    }

    /// Notes that a record of the group takes so many of the engine's.
    pub(crate) fn mark(&mut self, key: usize, engine_records: u64) {
        let member = &mut self.members[key];
        member.engine_records += engine_records;
        member.marks.push_back(member.engine_records);
    }

    fn serve(&mut self, key: usize, epoch: u64) {
        self.members[key].serve = Some(epoch);
        self.accept_if_free(key);
    }

    /// Takes new changes in the epoch that is to be served, once none of a former reign is left at the engine.
    pub(crate) fn accept_if_free(&mut self, key: usize) {
        let member = &self.members[key];
        let Some(epoch) = member.serve.filter(|_| member.orphans == 0) else { return };
        assert!(!member.halted, "group {} has stopped, and would take changes", member.number);
        self.shard.accept_changes(member.number, Some(epoch));
    }

    fn stop(&mut self, key: usize, sink: &mut impl Sink) {
        let member = &mut self.members[key];
        member.serve = None;
        self.shard.accept_changes(member.number, None);
        let of_member = |pending: &crate::shard::Pending| pending.member == key && pending.in_engine;
        let slots: Vec<usize> =
            self.requests.iter().filter(|(_, pending)| of_member(pending)).map(|(slot, _)| slot).collect();
        for slot in slots {
            let pending = &mut self.requests[slot];
            if pending.is_read {
                self.answer(slot, Answer::Refused(Refusal::NotServing), sink);
            } else if !pending.appended && !pending.orphan {
                pending.orphan = true;
                self.members[key].orphans += 1;
            }
        }
    }

    fn read_for_recovery(&mut self, key: usize, token: RecoveryToken, copy: CopyId, range: BlockRange) {
        if range.is_whole_layer() {
            // The deletion itself; it is known by its range.
            return self.later.push_back((key, token, payload::recovered(range, None)));
        }
        self.begin_recovery_read(RecoveryRead { member: key, token, copy, range, tries: 0 });
    }
}

/// What is left of a write of which the first blocks are in the log. None of a request that is not what it was before: the
/// engine refuses it then.
fn rest_of<'a>(request: &Request<'a>, done_blocks: u32) -> Request<'a> {
    let block = BLOCK_BYTES as u32;
    let start = (request.offset_bytes / block).saturating_add(done_blocks).saturating_mul(block);
    let skipped = start.saturating_sub(request.offset_bytes).min(request.length_bytes);
    let operation = match request.operation {
        Operation::Write { payload, checksums_le } => Operation::Write {
            payload: payload.get(skipped as usize..).unwrap_or_default(),
            checksums_le: checksums_le.get(done_blocks as usize * 4..).unwrap_or_default(),
        },
        other => other,
    };
    Request {
        offset_bytes: request.offset_bytes + skipped,
        length_bytes: request.length_bytes - skipped,
        operation,
        ..*request
    }
}

fn engine_request<'a>(
    request: &Request<'a>,
    slot: usize,
    origin: Origin,
    operation: EngineOperation<'a>,
) -> EngineRequest<'a> {
    EngineRequest {
        token: client_token(slot),
        layer: request.layer,
        chunk: request.chunk,
        offset_bytes: request.offset_bytes,
        length_bytes: request.length_bytes,
        origin,
        operation,
    }
}

pub(crate) fn ranged(
    range: BlockRange,
    token: coquina_engine::RequestToken,
    origin: Origin,
    operation: EngineOperation<'_>,
) -> EngineRequest<'_> {
    EngineRequest {
        token,
        layer: range.layer,
        chunk: range.chunk,
        offset_bytes: range.first * BLOCK_BYTES as u32,
        length_bytes: range.count * BLOCK_BYTES as u32,
        origin,
        operation,
    }
}
