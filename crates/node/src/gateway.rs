//! The NBD gateway: a client of the cluster for each volume that somebody has open. What lies on a shard of this process
//! goes there without the network.
//!
//! Invariant: a part keeps its session and number wherever it is tried, so that it takes effect once.

use coquina_base::{AlignedBuf, BLOCK_BYTES, DriveId};
use coquina_client::{
    ClientCompletion, ClientConfig, ClientRequest, LocalAnswer, LocalName, LocalPart, RequestKind,
    VolumeClient,
};
use coquina_cluster::ShardRef;
use coquina_copies::{Answer as CopyAnswer, Operation, Request};
use coquina_nbd::{Command, ErrorCode, Event, ExportInfo, ExportRefusal, LookUpPurpose};
use coquina_protocol::Status;
use coquina_reactor::{Completion, ReceiveBuffer, monotonic_ns, random_u64};

use crate::command::Command as CoreCommand;
use crate::connection::State;
use crate::core::{Core, tag};
use crate::native::{Next, status_of, status_of_refusal, wire_extent};
use crate::nbd_answer::{copy_pieces, encode_answer, encoder, is_cached};
use crate::request::{Answer, Asker, ConnectionKey, HoppingRequest, NbdRequest, volume_number};
use crate::spare::SpareBuffers;
use crate::withdraw::{Ahead, RECEIVES_AHEAD_MAX};

/// Bytes that one request to cache may bring into memory.
const CACHE_BYTES_MAX: u64 = 32 << 20;
/// Bytes of a volume of which one request is told what is data; who asked for more asks again.
const MAP_BYTES_MAX: u64 = 64 << 20;
/// So many bytes that are mapped hold one.
const MAP_BYTES_PER_HELD_BYTE: u64 = BLOCK_BYTES as u64 / 16;

/// A volume's client.
pub struct Gateway {
    /// The client; taken out while one of its parts is handed over.
    client: Option<Box<VolumeClient>>,
    /// Answers that came while it was taken out.
    early: Vec<(LocalName, CopyAnswer)>,
    /// Slot of the volume.
    pub volume: usize,
    /// Its session.
    session: u64,
    /// Parts for shards of this process.
    parts: Vec<LocalPart>,
    completions: Vec<ClientCompletion>,
    spare: SpareBuffers,
    /// Nobody has its volume open, and it keeps no memory.
    rests: bool,
    /// Parts that are with a shard.
    pub handed_out: usize,
    /// Whether it is to be looked after in this turn.
    pub listed: bool,
    /// The turn in which it sends nothing, because the ends of its clients' connections may come with the next.
    pub(crate) waits_in: Option<u64>,
    /// Turns in a row in which it did.
    pub(crate) waited_turns: u32,
    /// Its volume is gone.
    pub has_ended: bool,
}

impl Gateway {
    /// A volume's gateway, with its session.
    pub fn new(client: VolumeClient, volume: usize, session: u64) -> Gateway {
        Gateway {
            client: Some(Box::new(client)),
            early: Vec::new(),
            volume,
            session,
            parts: Vec::new(),
            completions: Vec::new(),
            spare: SpareBuffers::default(),
            rests: false,
            handed_out: 0,
            listed: false,
            waits_in: None,
            waited_turns: 0,
            has_ended: false,
        }
    }

    /// Whether nothing comes back that was asked for on its behalf.
    pub fn is_quiet(&self) -> bool {
        self.handed_out == 0
            && self.early.is_empty()
            && self.client.as_ref().is_some_and(|client| client.in_flight() == 0)
    }

    /// Its client. It is in its place whenever nothing is being handed over.
    pub fn client(&mut self) -> &mut VolumeClient {
        let Some(client) = self.client.as_deref_mut() else {
            panic!("a gateway's client is not in its place")
        };
        client
    }

    /// When its client wants to be looked after, by the monotonic clock.
    pub fn deadline_ns(&self) -> Option<u64> {
        if self.waits_in.is_some() {
            return Some(0);
        }
        self.client.as_ref().and_then(|client| client.deadline_ns())
    }

    /// A buffer of at least so many bytes, with anything in it.
    fn buffer(&mut self, length_bytes: usize) -> AlignedBuf {
        self.spare.take(length_bytes.div_ceil(BLOCK_BYTES))
    }

    /// Takes a buffer back for the next requests. Some come back late, when all that was sent from them is gone.
    pub(crate) fn keep(&mut self, buffer: AlignedBuf) {
        if !self.rests {
            self.spare.give(buffer);
        }
    }

    /// Gives memory back once nobody has its volume open and all requests are answered: a reactor may serve very many volumes one after the
    /// other, and has their gateways as long as the volumes last.
    fn rest(&mut self, is_open: bool) {
        self.rests = !is_open && self.client().outstanding() == 0;
        if self.rests {
            self.spare = SpareBuffers::default();
            (self.parts, self.completions) = (Vec::new(), Vec::new());
        }
    }

    /// Buffers that it keeps.
    #[cfg(test)]
    pub(crate) fn spare_buffers(&self) -> usize {
        self.spare.len()
    }
}

impl Core {
    /// The gateway of a volume; made if there is none yet.
    fn gateway_of(&mut self, slot: usize) -> Option<usize> {
        if let Some(index) = self.volumes.get(slot)?.gateway {
            return Some(index);
        }
        let attached = self.attached(slot, false)?;
        let session = random_u64();
        let config = ClientConfig {
            cluster: self.cluster,
            local: self.local_shards(),
            ..ClientConfig::new("", &attached.name, session)
        };
        let token_base = tag::GATEWAY | (self.gateways.next_number() as u64) << 32;
        let mut client = VolumeClient::directed(config, token_base);
        client.set_volume(&attached);
        let index = self.gateways.insert(Gateway::new(client, slot, session));
        if let Some(volume) = self.volumes.get_mut(slot) {
            volume.gateway = Some(index);
        }
        Some(index)
    }

    /// The shards of this process. Places of drives that were removed stay, and a drive may belong to another node by now.
    fn local_shards(&self) -> Vec<(DriveId, u32)> {
        let own = self.places.keys().filter(|reference| self.map.node_of(**reference) == Some(self.node));
        own.map(|reference| (reference.drive, reference.shard)).collect()
    }

    /// Tells all gateways of the map, and of the shards of this process.
    pub(crate) fn refresh_gateways(&mut self) {
        let local = self.local_shards();
        for (index, slot) in self.gateways.volumes() {
            let attached = self.attached(slot, false);
            if let (Some(attached), Some(gateway)) = (attached, self.gateways.touch(index)) {
                gateway.client().set_local(&local);
                gateway.client().set_volume(&attached);
            }
        }
    }

    /// Ends the gateway of a volume that is gone.
    pub(crate) fn drop_gateway(&mut self, slot: usize) {
        let found = self.volumes.get_mut(slot).and_then(|volume| volume.gateway.take());
        let Some(index) = found else { return };
        if let Some(gateway) = self.gateways.touch(index) {
            gateway.has_ended = true;
            gateway.client().shut_down(&mut self.reactor);
            self.answer_finished(index);
        }
    }

    /// Something that a gateway's client asked the ring for is done.
    pub(crate) fn gateway_completion(&mut self, index: usize, completion: Completion) {
        let Some(gateway) = self.gateways.touch(index) else {
            panic!("something is done for gateway {index}, which has ended and waited for everything")
        };
        gateway.client().complete(&mut self.reactor, completion);
    }

    /// Sends what is to be sent, hands over what stays here, answers what is finished, for all gateways that something
    /// has happened to or whose time has come; says whether any of it was.
    pub(crate) fn look_after_gateways(&mut self) -> bool {
        let mut acted = false;
        let listed = self.gateways.take_listed();
        for index in &listed {
            acted |= self.look_after_gateway(*index);
            self.gateways.looked_after(*index);
        }
        self.gateways.give_back(listed) | acted
    }

    fn look_after_gateway(&mut self, index: usize) -> bool {
        let turn = self.turns;
        let Some(gateway) = self.gateways.get_mut(index) else { return false };
        if gateway.waits_in == Some(turn) {
            return self.answer_finished(index);
        }
        let waited = gateway.waits_in.take().map_or(0, |_| gateway.waited_turns);
        // One time for both: nothing is late for the flush that was not for the look.
        let now_ns = monotonic_ns();
        if gateway.client().may_send_again(now_ns) || waited > 0 {
            let (slot, bytes_max) = (gateway.volume, gateway.client().ahead_bytes_max(now_ns));
            let ahead = self.close_hung_up(slot, bytes_max);
            if let Some(gateway) = self.gateways.get_mut(index)
                && (ahead == Ahead::End || ahead == Ahead::Bytes && waited < RECEIVES_AHEAD_MAX)
            {
                (gateway.waits_in, gateway.waited_turns) = (Some(turn), waited + 1);
                return self.answer_finished(index);
            }
        }
        let Some(gateway) = self.gateways.get_mut(index) else { return false };
        let is_open = self.volumes.get(gateway.volume).is_some_and(|one| !one.nbd_connections.is_empty());
        gateway.client().set_open(is_open);
        gateway.client().flush_at(&mut self.reactor, now_ns);
        let mut parts = std::mem::take(&mut gateway.parts);
        gateway.client().take_local(&mut parts);
        let acted = !parts.is_empty();
        for part in parts.drain(..) {
            self.submit_part(index, &part);
        }
        if let Some(gateway) = self.gateways.get_mut(index) {
            gateway.parts = parts;
        }
        let acted = self.answer_finished(index) | acted;
        if let Some(gateway) = self.gateways.get_mut(index) {
            gateway.rest(is_open);
        }
        acted
    }

    fn submit_part(&mut self, index: usize, part: &LocalPart) {
        let Some(gateway) = self.gateways.get_mut(index) else { return };
        let (slot, session, name) = (gateway.volume, gateway.session, part.name);
        let reference = ShardRef { drive: part.drive, shard: part.shard };
        let place = self.places.get(&reference).copied();
        let Some(volume) = self.volumes.served(slot) else {
            return self.part_failed(index, name, Status::UnknownVolume);
        };
        let is_released = |(core, shard): (usize, usize)| core == self.index && self.shards[shard].released;
        let Some((core, shard)) = place.filter(|place| !is_released(*place)) else {
            return self.part_failed(index, name, Status::NotServing);
        };
        if !volume.has_range(part.chunk, part.offset_bytes, part.length_bytes) {
            // It waited while the volume shrank.
            return self.part_failed(index, name, Status::Invalid);
        }
        let record = volume.record.clone();
        let Some(client) = gateway.client.take() else { return };
        gateway.handed_out += 1;
        let operation = match part.kind {
            RequestKind::Write => {
                let payload = client.local_payload(name).unwrap_or_default();
                Operation::Write { payload, checksums_le: &[] }
            }
            RequestKind::Discard => Operation::Trim,
            RequestKind::WriteZeroes { no_hole } => Operation::WriteZeroes { no_hole },
            RequestKind::Map => Operation::Map,
            RequestKind::Read | RequestKind::Flush => Operation::Read,
        };
        let request = Request {
            client: 0,
            group: part.group,
            session,
            request: name.number,
            volume: volume_number(record.id),
            generation: record.attach_generation,
            layer: record.layer,
            chunk: part.chunk,
            offset_bytes: part.offset_bytes,
            length_bytes: part.length_bytes,
            operation,
        };
        if core == self.index {
            let asker = Asker::Gateway { gateway: index, part: name };
            self.submit(asker, Some(slot), shard, &request);
        } else {
            let request = HoppingRequest::of(reference, record.id, &request);
            let command = CoreCommand::Hop { from: self.index, gateway: index, part: name, request };
            self.peers[core].send(command);
        }
        let Some(gateway) = self.gateways.get_mut(index) else { return };
        gateway.client = Some(client);
        for (name, answer) in std::mem::take(&mut gateway.early) {
            self.part_done(index, name, answer);
        }
    }

    /// Answers a part that no shard has seen.
    fn part_failed(&mut self, index: usize, name: LocalName, status: Status) {
        if let Some(gateway) = self.gateways.touch(index) {
            gateway.client().local_done(name, Err(status));
        }
    }

    /// Takes requests from what was received, as long as there is room for them.
    pub(crate) fn parse_nbd(&mut self, index: usize, received: &mut ReceiveBuffer) -> Next {
        loop {
            let connection = &mut self.connections[index];
            if let Some(next) = connection.takes_no_request() {
                return next;
            }
            let State::Nbd(session) = &mut connection.state else { return Next::Continue };
            let (consumed, event) = session.receive(received.data(), connection.output.bytes());
            let is_end = consumed == 0 && event.is_none();
            if event.is_none() {
                connection.needed_bytes = session.needed_bytes();
            }
            if let Some(Event::Request(request)) = &event
                && !connection.has_room_for(payload_bytes(request))
            {
                // It is received anew, with nothing changed by it.
                return Next::Continue;
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
        let slot = self.volumes.by_name(name).filter(|_| self.refused.is_none());
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
                volume.nbd_connections.push(index);
            }
            // The nodes hear of it before it asks for anything.
            if let Some(gateway) = slot.and_then(|slot| self.gateway_of(slot)) {
                self.gateways.touch(gateway);
            }
        }
        self.list(index);
        match event {
            Some(event) => self.take_event(index, event, &[]),
            None => Next::Continue,
        }
    }

    fn take_nbd_request(&mut self, index: usize, request: &coquina_nbd::Request, input: &[u8]) {
        match request.command {
            Command::Read { .. } => self.start_nbd(index, request, Answer::Data, RequestKind::Read, &[]),
            Command::Write { payload, .. } => {
                let payload = &input[payload.as_range()];
                self.start_nbd(index, request, Answer::Success, RequestKind::Write, payload);
            }
            Command::Trim { .. } => match whole_blocks(request) {
                Some(request) => {
                    self.start_nbd(index, &request, Answer::Success, RequestKind::Discard, &[]);
                }
                None => self.answer_at_once(index, request),
            },
            Command::WriteZeroes { no_hole, .. } => {
                self.start_nbd(index, request, Answer::Success, RequestKind::WriteZeroes { no_hole }, &[]);
            }
            Command::Cache => {
                let length_bytes = u64::from(request.length_bytes).min(CACHE_BYTES_MAX) as u32;
                let request = coquina_nbd::Request { length_bytes, ..*request };
                self.start_nbd(index, &request, Answer::Cached, RequestKind::Read, &[]);
            }
            Command::BlockStatus { one_extent } => {
                let length_bytes = u64::from(request.length_bytes).min(MAP_BYTES_MAX) as u32;
                let request = coquina_nbd::Request { length_bytes, ..*request };
                self.start_nbd(index, &request, Answer::BlockStatus { one_extent }, RequestKind::Map, &[]);
            }
            Command::Flush => {
                // Everything that was answered is on stable storage, whichever connection it came by.
                let connection = &mut self.connections[index];
                if let Some(volume) = connection.volume.and_then(|slot| self.volumes.get_mut(slot)) {
                    volume.counters.flushes += 1;
                }
                self.answer_at_once(index, request);
            }
        }
    }

    fn answer_at_once(&mut self, index: usize, request: &coquina_nbd::Request) {
        let connection = &mut self.connections[index];
        encoder(&connection.state).success(request.cookie, connection.output.bytes());
        self.list(index);
    }

    fn start_nbd(
        &mut self,
        index: usize,
        request: &coquina_nbd::Request,
        answer: Answer,
        kind: RequestKind,
        payload: &[u8],
    ) {
        let (offset_bytes, length_bytes) = (request.offset_bytes, request.length_bytes);
        let connection = &mut self.connections[index];
        let key = ConnectionKey { index, generation: connection.generation };
        let slot = connection.volume;
        let gateway = slot.filter(|slot| {
            // The volume may have shrunk or gone since the session was told its size.
            let size_bytes = self.volumes.served(*slot).map_or(0, |volume| volume.record.size_bytes);
            offset_bytes.checked_add(u64::from(length_bytes)).is_some_and(|end| end <= size_bytes)
        });
        let Some(gateway) = gateway.and_then(|slot| self.gateway_of(slot)) else {
            let stores = matches!(kind, RequestKind::Write | RequestKind::WriteZeroes { .. });
            let code = if stores { ErrorCode::NoSpace } else { ErrorCode::InvalidArgument };
            let text = "the range lies beyond the end of the volume";
            let connection = &mut self.connections[index];
            encoder(&connection.state).error(request.cookie, code, text, connection.output.bytes());
            return self.list(index);
        };
        let connection = &mut self.connections[index];
        connection.under_way += 1;
        let held_bytes = held_bytes(kind, length_bytes);
        connection.under_way_bytes += held_bytes;
        let cookie = request.cookie;
        let token = self.nbd_requests.insert(NbdRequest {
            connection: key,
            cookie,
            offset_bytes,
            length_bytes,
            held_bytes,
            answer,
            cached: None,
        });
        let Some(gateway) = self.gateways.touch(gateway) else { return };
        let buffer = match kind {
            RequestKind::Read => gateway.buffer(length_bytes as usize),
            RequestKind::Write => {
                let mut buffer = gateway.buffer(length_bytes as usize);
                buffer[..payload.len()].copy_from_slice(payload);
                buffer
            }
            _ => AlignedBuf::new(),
        };
        gateway.client().submit(ClientRequest {
            token: token as u64,
            kind,
            offset_bytes,
            length_bytes: u64::from(length_bytes),
            buffer,
        });
    }

    /// A shard has answered a part of a gateway's request. The part may have moved to another shard meanwhile, and be answered.
    pub(crate) fn part_done(&mut self, index: usize, name: LocalName, answer: CopyAnswer) {
        let Some(gateway) = self.gateways.touch(index) else {
            panic!("a part of gateway {index} is answered, which has ended and waited for all of them")
        };
        let Some(client) = gateway.client.as_deref_mut() else {
            return gateway.early.push((name, answer));
        };
        gateway.handed_out -= 1;
        let result = match answer {
            CopyAnswer::Done => Ok(LocalAnswer::Changed),
            CopyAnswer::Read(data) => {
                let whole = client.local_whole_read(name).filter(|_| is_cached(&data));
                match whole.and_then(|token| self.nbd_requests.get_mut(token as usize)) {
                    // It is sent from where it lies.
                    Some(request) => request.cached = Some(data),
                    None => {
                        if let Some(buffer) = client.local_buffer(name) {
                            copy_pieces(&data, buffer);
                        }
                        self.emptied.push(data);
                    }
                }
                Ok(LocalAnswer::Data)
            }
            CopyAnswer::Map(extents) => Ok(LocalAnswer::Map(extents.iter().map(wire_extent).collect())),
            CopyAnswer::Refused(refusal) => Err(status_of_refusal(refusal)),
            CopyAnswer::Failed(failure) => Err(status_of(failure)),
        };
        client.local_done(name, result);
    }

    /// Answers the requests that a gateway has finished.
    fn answer_finished(&mut self, index: usize) -> bool {
        let Some(gateway) = self.gateways.get_mut(index) else { return false };
        let mut completions = std::mem::take(&mut gateway.completions);
        gateway.client().take_completions(&mut completions);
        let acted = !completions.is_empty();
        for completion in completions.drain(..) {
            let buffer = self.answer_nbd(completion);
            if let Some(gateway) = self.gateways.get_mut(index) {
                gateway.keep(buffer);
            }
        }
        if let Some(gateway) = self.gateways.get_mut(index) {
            gateway.completions = completions;
        }
        acted
    }

    /// Answers an NBD client; gives the buffer back if it was not sent from.
    fn answer_nbd(&mut self, completion: ClientCompletion) -> AlignedBuf {
        let ClientCompletion { token, result, buffer, extents } = completion;
        let Some(mut request) = self.nbd_requests.try_remove(token as usize) else {
            panic!("a gateway's client answered {token}, which nobody asked for");
        };
        self.work.requests += 1;
        let key = request.connection;
        let connection = self.connections.get_mut(key.index);
        let connection = connection.filter(|one| one.generation == key.generation && !one.closed);
        let rest = match connection {
            None => buffer,
            Some(connection) => {
                connection.under_way -= 1;
                connection.under_way_bytes -= request.held_bytes;
                let rest = encode_answer(connection, &mut request, result, buffer, &extents);
                self.list(key.index);
                rest
            }
        };
        self.emptied.extend(request.cached);
        rest
    }
}

/// Bytes of buffers that a request holds until it is answered.
fn held_bytes(kind: RequestKind, length_bytes: u32) -> u64 {
    match kind {
        RequestKind::Read | RequestKind::Write => u64::from(length_bytes),
        // An extent for each block at worst, of 8 bytes, in the shard's answer and in the client's.
        RequestKind::Map => u64::from(length_bytes) / MAP_BYTES_PER_HELD_BYTE,
        RequestKind::Discard | RequestKind::WriteZeroes { .. } | RequestKind::Flush => 0,
    }
}

/// Bytes of the buffers of a request with data; the others' are few.
fn payload_bytes(request: &coquina_nbd::Request) -> u64 {
    let length_bytes = u64::from(request.length_bytes);
    match request.command {
        Command::Read { .. } | Command::Write { .. } => length_bytes,
        Command::Cache => length_bytes.min(CACHE_BYTES_MAX),
        _ => 0,
    }
}

/// The whole blocks of a trim, which promises nothing: to zero parts of blocks would cost reads and writes, and space that a full drive
/// has not.
fn whole_blocks(request: &coquina_nbd::Request) -> Option<coquina_nbd::Request> {
    let block = BLOCK_BYTES as u64;
    let offset_bytes = request.offset_bytes.checked_next_multiple_of(block)?;
    let end = request.offset_bytes.checked_add(u64::from(request.length_bytes))? / block * block;
    let length_bytes = u32::try_from(end.checked_sub(offset_bytes)?).ok().filter(|length| *length > 0)?;
    Some(coquina_nbd::Request { offset_bytes, length_bytes, ..*request })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_has_a_buffer_counts() {
        assert_eq!(held_bytes(RequestKind::Write, 32 << 20), 32 << 20, "its payload waits in a buffer, too");
        assert_eq!(held_bytes(RequestKind::Read, 4096), 4096);
        assert_eq!(held_bytes(RequestKind::Discard, u32::MAX), 0);
        // A connection has as many under way as hold 64 MiB: 1,024 of them held 134 MiB and more.
        assert_eq!(held_bytes(RequestKind::Map, MAP_BYTES_MAX as u32), 256 << 10);
    }

    #[test]
    fn a_trim_is_of_whole_blocks() {
        let whole = |offset_bytes, length_bytes| {
            let command = Command::Trim { force_unit_access: false };
            let cookie = coquina_nbd::Cookie(1);
            let request = coquina_nbd::Request { cookie, offset_bytes, length_bytes, command };
            whole_blocks(&request).map(|request| (request.offset_bytes, request.length_bytes))
        };
        assert_eq!(whole(4096, 8192), Some((4096, 8192)));
        assert_eq!(whole(512, 8192), Some((4096, 4096)));
        assert_eq!(whole(512, 4096), None);
        assert_eq!(whole(512, 512), None);
        assert_eq!(whole(u64::MAX - 511, 512), None);
        assert_eq!(whole(0, u32::MAX), Some((0, u32::MAX - 4095)));
    }
}
