//! Native clients: messages in, replies out. See `docs/protocol.md`.

use coquina_base::{BLOCK_BYTES, SessionId, VolumeId};
use coquina_cluster::ShardRef;
use coquina_copies::{Answer, Operation, Request};
use coquina_engine::{Failure, MapKind, Piece, ReadData};
use coquina_protocol::{
    Body, ChecksumKind, Extent, ExtentKind, FLAG_BEYOND_END, FLAG_CLIENT_CHECKS, FLAG_NO_HOLE, FLAG_ZEROES,
    Header, Hello, HelloReply, Kind, Message, OpenRequest, PayloadChecksum, Status, VERSION_MAX, VERSION_MIN,
    VolumeRef, decode, encode_data_head, encode_error, encode_hello_reply, encode_map_reply,
    encode_open_reply, encode_plain,
};
use coquina_reactor::{ReceiveBuffer, SendList};
use coquina_replication::Refusal;

use crate::command::Command;
use crate::connection::{GREETING_BYTES_MAX, Protocol, REQUESTS_MAX, State};
use crate::core::Core;
use crate::request::{Asker, ConnectionKey, volume_number};

/// Pieces below this size are copied into the reply rather than sent from where they lie.
const COPY_BYTES_MAX: usize = 16 << 10;

/// How a message leaves its connection.
pub enum Next {
    /// Go on.
    Continue,
    /// The rest of a payload is being received into the buffers of its frames.
    Landing,
    /// The connection now belongs to another reactor, or is closed.
    Gone,
}

impl Core {
    /// Takes messages from what was received, as long as there is room for their requests.
    pub(crate) fn parse_native(&mut self, index: usize, received: &mut ReceiveBuffer) -> Next {
        loop {
            if let Some(next) = self.connections[index].takes_no_request() {
                return next;
            }
            let consumed = match decode(received.data()) {
                Ok(None) => {
                    if self.start_landing(index, received) {
                        return Next::Landing;
                    }
                    let needed = coquina_protocol::message_bytes(received.data()).ok().flatten().unwrap_or(0);
                    let connection = &mut self.connections[index];
                    if connection.volume.is_none() && needed > GREETING_BYTES_MAX {
                        // No memory for what somebody unknown only announces.
                        self.drop_connection(index, "a large message before an Open");
                        return Next::Gone;
                    }
                    connection.needed_bytes = needed;
                    return Next::Continue;
                }
                Ok(Some((message, consumed))) => {
                    let taken = self.take_message(index, &message);
                    if taken.is_none() && self.connections[index].protocol() == Protocol::Peer {
                        received.consume(consumed);
                        return self.parse_peer(index, received);
                    }
                    if let Some(next) = taken {
                        match next {
                            Taken::HandOver(core) => {
                                self.hand_over(index, core, Protocol::Native, received);
                                return Next::Gone;
                            }
                            Taken::Violation(reason) => {
                                self.drop_connection(index, reason);
                                return Next::Gone;
                            }
                        }
                    }
                    consumed
                }
                Err(error) => {
                    let reason = error.to_string();
                    self.drop_connection(index, &reason);
                    return Next::Gone;
                }
            };
            received.consume(consumed);
        }
    }

    fn take_message(&mut self, index: usize, message: &Message<'_>) -> Option<Taken> {
        let greeted = matches!(&self.connections[index].state, State::Native(native) if native.greeted);
        match &message.body {
            Body::Hello(hello) if !greeted => return self.take_hello(index, &message.header, hello),
            Body::PeerHello(hello) if !greeted => return self.take_peer_hello(index, &message.header, hello),
            Body::Hello(_) | Body::PeerHello(_) => return Some(Taken::Violation("a second Hello")),
            _ if !greeted => return Some(Taken::Violation("no Hello")),
            Body::Open(open) => self.take_open(index, &message.header, open),
            Body::Ping => self.reply_plain(index, &message.header, Kind::PingReply),
            Body::Flush => {
                if let Some(volume) =
                    self.connections[index].volume.and_then(|slot| self.volumes.get_mut(slot))
                {
                    volume.counters.flushes += 1;
                }
                self.reply_plain(index, &message.header, Kind::FlushReply);
            }
            Body::Read => self.take_request(index, &message.header, read_of(message.header.flags)),
            Body::Discard => self.take_request(index, &message.header, discard_of(&message.header)),
            Body::WriteZeroes => {
                let no_hole = message.header.flags & FLAG_NO_HOLE != 0;
                self.take_request(index, &message.header, Operation::WriteZeroes { no_hole });
            }
            Body::Map => self.take_request(index, &message.header, Operation::Map),
            Body::Write(data) => {
                if data.payload_crc.is_some() && !data.is_intact() {
                    self.reply_error(index, &message.header, Status::ChecksumMismatch);
                } else {
                    let operation =
                        Operation::Write { payload: data.payload, checksums_le: data.checksums_le };
                    self.take_request(index, &message.header, operation);
                }
            }
            _ => return Some(Taken::Violation("a message that only servers send")),
        }
        None
    }

    fn take_hello(&mut self, index: usize, header: &Header, hello: &Hello<'_>) -> Option<Taken> {
        if hello.version_min > VERSION_MAX || hello.version_max < VERSION_MIN {
            self.reply_error(index, header, Status::VersionMismatch);
            self.close_after_send(index);
            return None;
        }
        if !hello.cluster.0.is_nil() && hello.cluster != self.cluster {
            self.reply_error(index, header, Status::WrongCluster);
            self.close_after_send(index);
            return None;
        }
        let mut place = None;
        if let Some((drive, shard)) = hello.shard {
            let reference = ShardRef { drive, shard };
            match self.places.get(&reference).copied() {
                Some((core, _)) if core != self.index => return Some(Taken::HandOver(core)),
                Some((_, slot)) if !self.shards[slot].released => place = Some((reference, slot)),
                _ => {
                    self.reply_error(index, header, Status::NotHere);
                    self.close_after_send(index);
                    return None;
                }
            }
            // The older connection of the session is closed: what it has not handed in yet is not taken any more,
            // and the session's numbers keep what is handed in twice from being done twice.
            let key = ConnectionKey { index, generation: self.connections[index].generation };
            if let Some(older) = self.sessions.insert((hello.session.0, reference), key)
                && self.connections.get(older.index).is_some_and(|one| one.generation == older.generation)
            {
                self.close_connection(older.index);
                self.sessions.insert((hello.session.0, reference), key);
            }
        }
        let SessionId(session) = hello.session;
        let reply = HelloReply {
            version: hello.version_max.min(VERSION_MAX),
            features: 0,
            cluster: self.cluster,
            node: self.node,
            // Nothing is read from who has `REQUESTS_MAX` under way, not even a ping.
            requests_max: REQUESTS_MAX - 1,
        };
        let connection = &mut self.connections[index];
        if let State::Native(native) = &mut connection.state {
            native.session = session;
            native.shard = place;
            native.greeted = true;
        }
        // Answers carry checksums, and clients check them.
        self.reactor.lend_to(connection.file);
        encode_hello_reply(connection.output.bytes(), &header.reply(Kind::HelloReply), &reply);
        self.list(index);
        None
    }

    fn take_open(&mut self, index: usize, header: &Header, open: &OpenRequest<'_>) {
        let slot = match open.volume {
            VolumeRef::Name(name) => self.volumes.by_name(name),
            VolumeRef::Id(id) => self.volumes.by_id(id),
        };
        let Some(slot) = slot.filter(|_| self.refused.is_none()) else {
            return self.reply_error(index, header, Status::UnknownVolume);
        };
        let Some(attached) = self.attached(slot, open.read_only) else {
            return self.reply_error(index, header, Status::UnknownVolume);
        };
        if open.attach_generation != 0 && open.attach_generation != attached.attach_generation {
            return self.reply_error(index, header, Status::StaleHandle);
        }
        let connection = &mut self.connections[index];
        let reply = Header { handle: slot as u64 + 1, ..header.reply(Kind::OpenReply) };
        if let Err(error) = encode_open_reply(connection.output.bytes(), &reply, &attached) {
            let text = format!("the table of the pool: {error}");
            encode_error(connection.output.bytes(), header, Status::Invalid, &text);
            return self.list(index);
        }
        if let Some(volume) = self.volumes.get_mut(slot) {
            volume.counters.connections += 1;
        }
        let before = connection.volume.replace(slot);
        if let State::Native(native) = &mut connection.state {
            native.read_only = open.read_only;
        }
        if let Some(volume) = before.and_then(|slot| self.volumes.get_mut(slot)) {
            volume.counters.connections -= 1;
        }
        self.list(index);
    }

    fn take_request(&mut self, index: usize, header: &Header, operation: Operation<'_>) {
        let place = match self.place_of(index, header) {
            Ok(place) => place,
            Err(status) => return self.reply_error(index, header, status),
        };
        let asker = self.admit_native(index, header);
        self.submit(asker, Some(place.volume), place.slot, &place.request(header, operation));
    }

    /// Where a request goes, or why it is refused.
    pub(crate) fn place_of(&self, index: usize, header: &Header) -> Result<Place, Status> {
        let connection = &self.connections[index];
        let State::Native(native) = &connection.state else { return Err(Status::StaleHandle) };
        let slot = connection.volume.filter(|slot| *slot as u64 + 1 == header.handle);
        let slot = slot.ok_or(Status::StaleHandle)?;
        let volume = self.volumes.served(slot).ok_or(Status::UnknownVolume)?;
        if native.read_only && !matches!(header.kind, Kind::Read | Kind::Map) {
            return Err(Status::ReadOnly);
        }
        let (chunk, offset_bytes, length_bytes) = (header.chunk, header.offset_bytes, header.length_bytes);
        if header.kind == Kind::Discard && header.flags & FLAG_BEYOND_END != 0 {
            if !volume.has_cut_off(chunk, offset_bytes, length_bytes) {
                return Err(Status::Invalid);
            }
        } else if !volume.has_range(chunk, offset_bytes, length_bytes) {
            // This node has not heard yet that the volume grew, or the client that it shrank: it comes again, and a client that knows
            // the end gives it up.
            return Err(Status::NotServing);
        }
        let (reference, place) = native.shard.ok_or(Status::NotHere)?;
        if self.shards[place].released || self.shards[place].reference != reference {
            return Err(Status::NotHere);
        }
        Ok(Place {
            volume: slot,
            slot: place,
            id: volume.record.id,
            group: volume.group_of(header.chunk),
            layer: volume.record.layer,
            generation: volume.record.attach_generation,
            session: native.session,
        })
    }

    /// Counts a request as under way.
    pub(crate) fn admit_native(&mut self, index: usize, header: &Header) -> Asker {
        let connection = &mut self.connections[index];
        connection.under_way += 1;
        connection.under_way_bytes += u64::from(header.length_bytes);
        Asker::Native(ConnectionKey { index, generation: connection.generation }, *header)
    }

    fn reply_plain(&mut self, index: usize, header: &Header, kind: Kind) {
        encode_plain(self.connections[index].output.bytes(), &header.reply(kind));
        self.list(index);
    }

    pub(crate) fn reply_error(&mut self, index: usize, header: &Header, status: Status) {
        encode_error(self.connections[index].output.bytes(), header, status, "");
        self.list(index);
    }

    /// A request of a native client is finished.
    pub(crate) fn answer_native(&mut self, key: ConnectionKey, header: &Header, answer: Answer) {
        let connection = self.connections.get_mut(key.index);
        let Some(connection) = connection.filter(|one| one.generation == key.generation && !one.closed)
        else {
            if let Answer::Read(data) = answer {
                self.emptied.push(data);
            }
            return;
        };
        connection.under_way -= 1;
        connection.under_way_bytes -= u64::from(header.length_bytes);
        let output = &mut connection.output;
        match answer {
            Answer::Done => {
                let kind = match header.kind {
                    Kind::Write => Kind::WriteReply,
                    Kind::Discard => Kind::DiscardReply,
                    _ => Kind::WriteZeroesReply,
                };
                encode_plain(output.bytes(), &header.reply(kind));
            }
            Answer::Read(data) => self.emptied.push(encode_read(output, header, data)),
            Answer::Map(extents) => {
                let extents: Vec<Extent> = extents.iter().map(wire_extent).collect();
                encode_map_reply(output.bytes(), &header.reply(Kind::MapReply), &extents);
            }
            Answer::Failed(failure) => encode_error(output.bytes(), header, status_of(failure), ""),
            Answer::Refused(refusal) => {
                encode_error(output.bytes(), header, status_of_refusal(refusal), "");
            }
        }
        self.list(key.index);
    }

    /// Gives a connection, with what it has received, to another reactor.
    pub(crate) fn hand_over(
        &mut self,
        index: usize,
        core: usize,
        protocol: Protocol,
        received: &mut ReceiveBuffer,
    ) {
        let connection = self.connections.remove(index);
        if let Some(socket) = self.reactor.detach(connection.file) {
            self.peers[core].send(Command::Adopt { socket, protocol, received: std::mem::take(received) });
        }
    }
}

/// Where a request goes.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// Slot of the volume.
    pub(crate) volume: usize,
    /// Slot of the shard on this reactor.
    pub(crate) slot: usize,
    id: VolumeId,
    group: u32,
    layer: coquina_base::LayerId,
    generation: u64,
    session: u64,
}

impl Place {
    /// The shard's request for a client's.
    pub(crate) fn request<'a>(&self, header: &Header, operation: Operation<'a>) -> Request<'a> {
        Request {
            client: 0,
            group: self.group,
            session: self.session,
            request: header.request,
            volume: volume_number(self.id),
            generation: self.generation,
            layer: self.layer,
            chunk: header.chunk,
            offset_bytes: header.offset_bytes,
            length_bytes: header.length_bytes,
            operation,
        }
    }
}

/// Why a message is not simply done with.
pub(crate) enum Taken {
    /// The connection belongs to another reactor.
    HandOver(usize),
    /// The client breaks the protocol.
    Violation(&'static str),
}

/// How a read with these flags is done.
fn read_of(flags: u32) -> Operation<'static> {
    if flags & FLAG_CLIENT_CHECKS != 0 { Operation::ReadUnchecked } else { Operation::Read }
}

/// How a discard is done, of which all reads as zeros then. A trim leaves blocks alone of which it has only a part; what a shrink has
/// cut off goes as far as it can without taking space.
fn discard_of(header: &Header) -> Operation<'static> {
    let is_whole = (header.offset_bytes | header.length_bytes).is_multiple_of(BLOCK_BYTES as u32);
    match is_whole || header.flags & FLAG_BEYOND_END != 0 {
        true => Operation::Trim,
        false => Operation::WriteZeroes { no_hole: false },
    }
}

/// Appends a read reply: small pieces are copied, large ones go out from where they lie. Returns what is left over.
fn encode_read(output: &mut SendList, header: &Header, mut data: ReadData) -> ReadData {
    let reply = header.reply(Kind::ReadReply);
    if data.pieces.iter().all(|piece| matches!(piece, Piece::Zeroes { .. })) {
        encode_plain(output.bytes(), &Header { flags: FLAG_ZEROES, ..reply });
        return data;
    }
    if data.checksums.is_empty() {
        let mut checksum = PayloadChecksum::default();
        for piece in &data.pieces {
            match piece.bytes() {
                Some(bytes) => checksum.update(bytes),
                None => checksum.update(&vec![0; piece.length_bytes()]),
            }
        }
        encode_data_head(output.bytes(), &reply, ChecksumKind::Payload, &[checksum.value()]);
    } else {
        encode_data_head(output.bytes(), &reply, ChecksumKind::Blocks, &data.checksums);
    }
    push_pieces(output, &mut data);
    data
}

/// Appends the data of a read; buffers that were copied stay in `data`.
pub fn push_pieces(output: &mut SendList, data: &mut ReadData) {
    let length_bytes: usize = data.pieces.iter().map(Piece::length_bytes).sum();
    for piece in &mut data.pieces {
        match piece {
            Piece::Zeroes { length_bytes } => output.push_zeroes(*length_bytes),
            Piece::Data { buffer, start_bytes, length_bytes } if *length_bytes < COPY_BYTES_MAX => {
                output.bytes().extend_from_slice(&buffer[*start_bytes..*start_bytes + *length_bytes]);
            }
            Piece::Data { buffer, start_bytes, length_bytes } => {
                output.push_buffer(std::mem::take(buffer), *start_bytes, *length_bytes);
            }
            Piece::Cached { block, start_bytes, length_bytes: part } if length_bytes < COPY_BYTES_MAX => {
                output.bytes().extend_from_slice(&block[*start_bytes..*start_bytes + *part]);
            }
            Piece::Cached { block, start_bytes, length_bytes } => {
                output.push_block(block.clone(), *start_bytes, *length_bytes);
            }
        }
    }
}

/// An extent as it is told.
pub(crate) fn wire_extent(extent: &coquina_engine::MapExtent) -> Extent {
    Extent {
        length_bytes: extent.length_bytes,
        kind: match extent.kind {
            MapKind::Data => ExtentKind::Data,
            MapKind::Zeroes => ExtentKind::Zeroes,
            MapKind::Hole => ExtentKind::Hole,
        },
    }
}

/// Why a group does not do a request now.
pub(crate) fn status_of_refusal(refusal: Refusal) -> Status {
    match refusal {
        Refusal::NotServing | Refusal::NoLease => Status::NotServing,
        Refusal::TooFewCopies => Status::TooFewCopies,
        Refusal::Fenced => Status::Fenced,
        Refusal::NoSpace => Status::NoSpace,
    }
}

/// Why a request failed.
pub(crate) fn status_of(failure: Failure) -> Status {
    match failure {
        Failure::NoSpace => Status::NoSpace,
        Failure::BadBlock => Status::BadBlock,
        Failure::ReadOnly => Status::ReadOnly,
        Failure::Device => Status::Device,
        Failure::ChecksumOnArrival => Status::ChecksumMismatch,
        Failure::Invalid => Status::Invalid,
        Failure::NotPrimary => Status::NotServing,
        Failure::OutOfOrder => Status::StaleEpoch,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coquina_protocol::FLAG_RETRY;

    #[test]
    fn only_reads_that_the_client_checks_are_not_compared_here() {
        assert!(matches!(read_of(FLAG_CLIENT_CHECKS | FLAG_RETRY), Operation::ReadUnchecked));
        assert!(matches!(read_of(!FLAG_CLIENT_CHECKS), Operation::Read));
    }
}
