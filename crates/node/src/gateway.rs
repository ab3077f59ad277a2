//! The NBD gateway: requests of NBD clients, cut into parts that lie within one chunk each.

use coquina_base::CHUNK_BYTES;
use coquina_engine::{Failure, MapKind, Operation, Origin, Outcome, Request, RequestToken};
use coquina_nbd::{
    BlockState, BlockStatusReply, Command, Cookie, ErrorCode, Event, ExportInfo, ExportRefusal,
    LookUpPurpose, ReplyEncoder,
};
use coquina_reactor::ReceiveBuffer;

use crate::connection::State;
use crate::core::Core;
use crate::native::{Next, push_pieces};
use crate::request::{Answer, Asker, ConnectionKey, Group};
use crate::volume::parts_of;

/// Bytes that one request to cache may bring into memory.
const CACHE_BYTES_MAX: u64 = 32 << 20;

impl Core {
    /// Takes requests from what was received, as long as there is room for them.
    pub(crate) fn parse_nbd(&mut self, index: usize, received: &mut ReceiveBuffer) -> Next {
        loop {
            let connection = &mut self.connections[index];
            if connection.closing || connection.closed {
                return Next::Gone;
            }
            if connection.is_full() {
                connection.held_back = true;
                return Next::Continue;
            }
            let State::Nbd(session) = &mut connection.state else { return Next::Continue };
            let (consumed, event) = session.receive(received.data(), connection.output.bytes());
            let is_end = consumed == 0 && event.is_none();
            if event.is_none() {
                connection.needed_bytes = session.needed_bytes();
            }
            if !connection.output.is_empty() {
                self.list(index);
            }
            if let Some(event) = event
                && let Next::Gone = self.take_event(index, event, received.data())
            {
                return Next::Gone;
            }
            received.consume(consumed);
            if is_end {
                return Next::Continue;
            }
        }
    }

    fn take_event(&mut self, index: usize, event: Event, input: &[u8]) -> Next {
        match event {
            Event::LookUpExport { name, purpose } => return self.look_up(index, name.as_str(), purpose),
            Event::ListExports => {
                let names = self.volumes.names();
                let connection = &mut self.connections[index];
                if let State::Nbd(session) = &mut connection.state {
                    session.exports_listed(names.iter(), connection.output.bytes());
                }
                self.list(index);
            }
            Event::Ready => {}
            Event::Request(request) => self.take_nbd_request(index, &request, input),
            Event::Refused { .. } => self.list(index),
            Event::Disconnect(_) => {
                self.close_after_send(index);
                return Next::Gone;
            }
            Event::Violation(violation) => {
                let reason = format!("{violation:?}");
                self.drop_connection(index, &reason);
                return Next::Gone;
            }
        }
        Next::Continue
    }

    fn look_up(&mut self, index: usize, name: &str, purpose: LookUpPurpose) -> Next {
        let slot = self.volumes.by_name(name);
        let size_bytes = slot.and_then(|slot| self.volumes.get(slot)).map(|volume| volume.record.size_bytes);
        let connection = &mut self.connections[index];
        let State::Nbd(session) = &mut connection.state else { return Next::Continue };
        let answer = size_bytes.map(ExportInfo::new).ok_or(ExportRefusal::Unknown);
        let found = answer.is_ok();
        let event = session.export_found(answer, connection.output.bytes());
        if found && purpose == LookUpPurpose::Open {
            connection.volume = slot;
            if let Some(volume) = slot.and_then(|slot| self.volumes.get_mut(slot)) {
                volume.counters.connections += 1;
            }
        }
        self.list(index);
        match event {
            Some(event) => self.take_event(index, event, &[]),
            None => Next::Continue,
        }
    }

    fn take_nbd_request(&mut self, index: usize, request: &coquina_nbd::Request, input: &[u8]) {
        let (cookie, offset, length) = (request.cookie, request.offset_bytes, request.length_bytes);
        match request.command {
            Command::Read { .. } => {
                self.start_group(index, cookie, offset, length, Answer::Data, Operation::Read)
            }
            Command::Write { payload, .. } => {
                let payload = &input[payload.as_range()];
                let operation = Operation::Write { payload, checksums_le: &[] };
                self.start_group(index, cookie, offset, length, Answer::Success, operation);
            }
            Command::Trim { .. } => {
                self.start_group(index, cookie, offset, length, Answer::Success, Operation::Trim);
            }
            Command::WriteZeroes { no_hole, .. } => {
                let operation = Operation::WriteZeroes { no_hole };
                self.start_group(index, cookie, offset, length, Answer::Success, operation);
            }
            Command::Cache => {
                let length = u64::from(length).min(CACHE_BYTES_MAX) as u32;
                self.start_group(index, cookie, offset, length, Answer::Cached, Operation::Read);
            }
            Command::BlockStatus { one_extent } => {
                let answer = Answer::BlockStatus { one_extent };
                self.start_group(index, cookie, offset, length, answer, Operation::Map);
            }
            Command::Flush => {
                // Everything that was answered is on stable storage, whichever connection it came by.
                let connection = &mut self.connections[index];
                if let Some(volume) = connection.volume.and_then(|slot| self.volumes.get_mut(slot)) {
                    volume.counters.flushes += 1;
                }
                encoder(&connection.state).success(cookie, connection.output.bytes());
                self.list(index);
            }
        }
    }

    fn start_group(
        &mut self,
        index: usize,
        cookie: Cookie,
        offset_bytes: u64,
        length_bytes: u32,
        answer: Answer,
        operation: Operation<'_>,
    ) {
        let connection = &mut self.connections[index];
        let key = ConnectionKey { index, generation: connection.generation };
        let slot = connection.volume;
        let volume = slot.and_then(|slot| self.volumes.get(slot));
        let served = volume.filter(|volume| {
            // The volume may have shrunk or gone since the session was told its size.
            let end = offset_bytes + u64::from(length_bytes);
            end <= volume.record.size_bytes && self.volumes.by_id(volume.record.id) == slot
        });
        let Some(volume) = served else {
            let code = if matches!(operation, Operation::Write { .. }) {
                ErrorCode::NoSpace
            } else {
                ErrorCode::InvalidArgument
            };
            let text = "the range lies beyond the end of the volume";
            encoder(&connection.state).error(cookie, code, text, connection.output.bytes());
            return self.list(index);
        };
        let record = volume.record.clone();
        let counted = counted_bytes(answer, length_bytes);
        connection.under_way += 1;
        connection.under_way_bytes += counted;
        let parts = parts_of(offset_bytes, u64::from(length_bytes)).count();
        let mut outcomes = self.spare_outcomes.pop().unwrap_or_default();
        outcomes.resize_with(parts, || None);
        let group = self.groups.insert(Group {
            connection: key,
            cookie,
            offset_bytes,
            length_bytes,
            answer,
            left: parts as u32,
            is_missing: false,
            outcomes,
        });
        for (part, (chunk, within, length)) in parts_of(offset_bytes, u64::from(length_bytes)).enumerate() {
            let operation = match operation {
                Operation::Write { payload, .. } => {
                    let start = u64::from(chunk) * CHUNK_BYTES + u64::from(within) - offset_bytes;
                    let payload = &payload[start as usize..start as usize + length as usize];
                    Operation::Write { payload, checksums_le: &[] }
                }
                other => other,
            };
            let request = Request {
                token: RequestToken(0),
                layer: record.layer,
                chunk,
                offset_bytes: within,
                length_bytes: length,
                origin: Origin::default(),
                operation,
            };
            let shard = record.placement.shard_of_chunk(chunk);
            let asker = Asker::Gateway { group, part: part as u32 };
            match self.places.get(&shard).copied() {
                Some(place) => self.submit(asker, slot, shard, place, &request),
                None => self.part_missing(group, part as u32, slot),
            }
        }
    }

    /// Answers a part that lies on a drive which is not served.
    fn part_missing(&mut self, group: usize, part: u32, volume: Option<usize>) {
        if let Some(volume) = volume.and_then(|slot| self.volumes.get_mut(slot)) {
            volume.counters.errors += 1;
        }
        self.groups[group].is_missing = true;
        self.part_done(group, part, Outcome::Failed(Failure::Device));
    }

    pub(crate) fn part_done(&mut self, key: usize, part: u32, outcome: Outcome) {
        let group = &mut self.groups[key];
        group.outcomes[part as usize] = Some(outcome);
        group.left -= 1;
        if group.left == 0 {
            let mut group = self.groups.remove(key);
            let mut outcomes = std::mem::take(&mut group.outcomes);
            self.answer_group(&group, &mut outcomes);
            for outcome in outcomes.drain(..).flatten() {
                self.recycle_outcome(0, outcome);
            }
            self.spare_outcomes.push(outcomes);
        }
    }

    fn answer_group(&mut self, group: &Group, outcomes: &mut [Option<Outcome>]) {
        let key = group.connection;
        let connection = self.connections.get_mut(key.index);
        let Some(connection) = connection.filter(|one| one.generation == key.generation && !one.closed)
        else {
            return;
        };
        connection.under_way -= 1;
        connection.under_way_bytes -= counted_bytes(group.answer, group.length_bytes);
        let replies = encoder(&connection.state);
        let output = &mut connection.output;
        let failure = outcomes.iter().flatten().find_map(|outcome| match outcome {
            Outcome::Failed(failure) => Some(*failure),
            _ => None,
        });
        if let Some(failure) = failure {
            let (code, text) = match group.is_missing {
                true => (ErrorCode::Io, "a drive that holds part of this is missing: see `coquina status`"),
                false => error_of(failure),
            };
            replies.error(group.cookie, code, text, output.bytes());
            return self.list(key.index);
        }
        match group.answer {
            Answer::Success | Answer::Cached => replies.success(group.cookie, output.bytes()),
            Answer::Data => {
                let header = replies.read(group.cookie, group.offset_bytes, group.length_bytes);
                output.bytes().extend_from_slice(header.as_bytes());
                for outcome in outcomes.iter_mut().flatten() {
                    if let Outcome::Read(data) = outcome {
                        push_pieces(output, data);
                    }
                }
            }
            Answer::BlockStatus { one_extent } => {
                let mut reply =
                    BlockStatusReply::new(group.cookie, group.length_bytes, one_extent, output.bytes());
                'all: for outcome in outcomes.iter().flatten() {
                    let Outcome::Map(extents) = outcome else { continue };
                    for extent in extents {
                        let state = match extent.kind {
                            MapKind::Data => BlockState::DATA,
                            MapKind::Zeroes => BlockState { hole: false, zero: true },
                            MapKind::Hole => BlockState::HOLE,
                        };
                        if !reply.push(u64::from(extent.length_bytes), state) {
                            break 'all;
                        }
                    }
                }
                reply.finish();
            }
        }
        self.list(key.index);
    }
}

/// Bytes that a request holds in memory until it is answered; a write's payload has left the connection at once.
fn counted_bytes(answer: Answer, length_bytes: u32) -> u64 {
    match answer {
        Answer::Data | Answer::Cached => u64::from(length_bytes),
        Answer::Success | Answer::BlockStatus { .. } => 0,
    }
}

fn encoder(state: &State) -> ReplyEncoder {
    match state {
        State::Nbd(session) => session.replies(),
        State::Native(_) => unreachable!("a gateway's request of a native connection"),
    }
}

fn error_of(failure: Failure) -> (ErrorCode, &'static str) {
    match failure {
        Failure::NoSpace => {
            (ErrorCode::NoSpace, "the drives are full: remove or trim volumes, or add a drive")
        }
        Failure::BadBlock => (ErrorCode::Io, "a block is damaged on its drive"),
        Failure::ReadOnly => (ErrorCode::Io, "the drive takes no changes since a write to it failed"),
        Failure::Device => (ErrorCode::Io, "the drive failed"),
        Failure::ChecksumOnArrival => (ErrorCode::Io, "the data was damaged on its way"),
        Failure::Invalid => (ErrorCode::InvalidArgument, "the request makes no sense"),
        Failure::NotPrimary | Failure::OutOfOrder => (ErrorCode::Io, "another node has the data now"),
    }
}
