//! Sockets of a reactor: accepting, receiving, sending, closing.

use coquina_engine::{Piece, ReadData};
use coquina_nbd::{ServerConfig, ServerSession};
use coquina_reactor::{Completion, Errno, FileId, Payload, ReceiveBuffer, SendList};

use crate::command::Command;
use crate::connection::{
    Connection, Protocol, RECEIVE_BYTES_BUSY, RECEIVE_BYTES_KEPT, RECEIVE_BYTES_MIN, State,
};
use crate::core::{Core, tag};
use crate::native::Next;
use crate::request::ConnectionKey;
use crate::waiting::Waiting;

/// Of a message of which more is there, it stays where it is as long as its rest fits.
const RECEIVE_BYTES_MOVED: usize = 64 << 10;
/// Room behind a large message.
const RECEIVE_BYTES_AHEAD: usize = 64 << 10;
/// Most connections of a reactor; more are refused by closing them.
const CONNECTIONS_MAX: usize = 16_384;

impl Core {
    pub(crate) fn accepted(&mut self, listener: usize, completion: Completion) {
        let Some(slot) = self.listeners.get(listener) else {
            // A stop has closed the listener in the turn in which this one came.
            if let Payload::Accepted(Some(socket)) = completion.payload {
                self.reactor.close(socket, tag::ACCEPT | tag::MASK);
            }
            return;
        };
        let protocol = slot.protocol;
        if let Err(errno) = completion.result {
            // Out of file descriptors, for example: asked at once it would fail again without end, whether anybody connects or not.
            if !std::mem::replace(&mut self.accept_fails, true) {
                tracing::warn!(%errno, "cannot accept connections; trying again each second");
            }
            self.accept_again.push(listener);
            return;
        }
        self.accept_fails = false;
        let Payload::Accepted(Some(socket)) = completion.payload else { return };
        let core = self.adopt_next % self.peers.len();
        let is_dealt = protocol == Protocol::Nbd && self.draining.is_none();
        self.adopt_next += usize::from(is_dealt);
        if is_dealt && core != self.index {
            if let Some(socket) = self.reactor.detach(socket) {
                self.peers[core].send(Command::Adopt {
                    socket,
                    protocol,
                    received: ReceiveBuffer::default(),
                });
            }
            return;
        }
        self.adopt(socket, protocol, None);
    }

    pub(crate) fn adopt(&mut self, file: FileId, protocol: Protocol, received: Option<ReceiveBuffer>) {
        let is_late =
            self.stopping_since_ns.is_some() || (self.draining.is_some() && protocol == Protocol::Nbd);
        if self.connections.len() >= CONNECTIONS_MAX || is_late {
            self.reactor.close(file, tag::ACCEPT | tag::MASK);
            return;
        }
        let mut output = SendList::new();
        let state = match protocol {
            Protocol::Nbd => {
                State::Nbd(Box::new(ServerSession::new(ServerConfig::default(), output.bytes())))
            }
            Protocol::Native | Protocol::Peer => State::Native(Box::default()),
        };
        let received = received.unwrap_or_else(|| ReceiveBuffer::with_capacity_bytes(RECEIVE_BYTES_MIN));
        let index = self.insert_connection(file, state, received);
        let connection = &mut self.connections[index];
        connection.output = output;
        connection.held_back = true;
        self.list(index);
    }

    /// Makes room for a connection.
    pub(crate) fn insert_connection(&mut self, file: FileId, state: State, received: ReceiveBuffer) -> usize {
        self.generation_next = self.generation_next.wrapping_add(1);
        self.connections.insert(Connection {
            file,
            generation: self.generation_next,
            state,
            received: Some(received),
            output: SendList::new(),
            spare: Some(SendList::new()),
            sending: false,
            sending_bytes: 0,
            under_way: 0,
            under_way_bytes: 0,
            next_bytes: 0,
            held_back: false,
            waiting: Waiting::default(),
            listed: false,
            closing: false,
            ended: false,
            closed: false,
            told_end_ns: u64::MAX,
            volume: None,
            since_ns: self.now_ns,
            sent_ns: self.now_ns,
            received_ns: self.now_ns,
            is_within_message: false,
            needed_bytes: 0,
        })
    }

    /// Notes that a connection has something to send or to take up again.
    pub(crate) fn list(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        if !connection.listed {
            connection.listed = true;
            self.listed.push(index);
        }
    }

    /// Sends what is to be sent and takes up what was held back; says whether requests came of it.
    pub(crate) fn look_after_connections(&mut self) -> bool {
        let mut acted = false;
        let mut listed = std::mem::take(&mut self.listed);
        for index in listed.drain(..) {
            let Some(connection) = self.connections.get_mut(index) else { continue };
            connection.listed = false;
            if connection.closed {
                continue;
            }
            if connection.held_back && !connection.is_full() {
                connection.held_back = false;
                if let Some(received) = connection.received.take() {
                    acted = true;
                    self.take_up(index, received);
                }
            }
            self.send(index);
        }
        // What was listed meanwhile comes behind.
        if self.listed.is_empty() {
            self.listed = listed;
        } else {
            acted = true;
        }
        acted
    }

    pub(crate) fn parse(&mut self, index: usize, mut received: ReceiveBuffer) {
        if self.passes_over(&self.connections[index]) {
            return self.pass_over(index, received);
        }
        let connection = &mut self.connections[index];
        connection.received_ns = self.now_ns;
        connection.is_within_message = false;
        let next = match connection.protocol() {
            Protocol::Nbd => self.parse_nbd(index, &mut received),
            Protocol::Native => self.parse_native(index, &mut received),
            Protocol::Peer => self.parse_peer(index, &mut received),
        };
        if let Next::Gone | Next::Landing = next {
            return;
        }
        let Some(connection) = self.connections.get_mut(index) else { return };
        if connection.held_back {
            return self.hold_back(index, received);
        }
        connection.waiting.taken();
        connection.is_within_message = !received.data().is_empty();
        let is_busy = connection.volume.is_some() || connection.protocol() == Protocol::Peer;
        make_room(&mut received, connection.needed_bytes, is_busy);
        if received.capacity_bytes() > RECEIVE_BYTES_KEPT {
            // It was needed for one large message.
            received.shrink_if_empty(RECEIVE_BYTES_BUSY);
        }
        let file = connection.file;
        self.reactor.receive(file, received, tag::RECEIVE | index as u64);
    }

    pub(crate) fn received(&mut self, index: usize, completion: Completion) {
        let received = match completion.payload {
            Payload::Receive(received) => received,
            Payload::Landing(landing) => match self.landed(index, landing, completion.result.is_ok()) {
                Some(received) => received,
                None => return,
            },
            _ => return,
        };
        let Some(connection) = self.connections.get_mut(index) else { return };
        if connection.closed {
            return;
        }
        match completion.result {
            Ok(0) => self.ended(index, received),
            Err(errno) => {
                tell_failed("receiving from", errno);
                self.close_connection(index);
            }
            Ok(_) => {
                connection.waiting.received(&received);
                self.take_up(index, received);
            }
        }
    }

    pub(crate) fn send(&mut self, index: usize) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        if connection.sending || connection.closed {
            return;
        }
        if connection.output.is_empty() {
            if connection.closing && connection.under_way == 0 {
                self.close_connection(index);
            }
            return;
        }
        let spare = connection.spare.take().unwrap_or_default();
        let list = std::mem::replace(&mut connection.output, spare);
        connection.sending = true;
        connection.sending_bytes = list.length_bytes();
        connection.sent_ns = self.now_ns;
        let file = connection.file;
        if let Some(completion) = self.reactor.send(file, list, tag::SEND | index as u64) {
            self.sent(index, completion);
        }
    }

    pub(crate) fn sent(&mut self, index: usize, completion: Completion) {
        let Payload::Send(mut list) = completion.payload else { return };
        self.recycle_sent(index, &mut list);
        let Some(connection) = self.connections.get_mut(index) else { return };
        (connection.sending, connection.sending_bytes) = (false, 0);
        connection.spare = Some(list);
        if let (Err(errno), false) = (completion.result, connection.closed) {
            tell_failed("sending to", errno);
            return self.close_connection(index);
        }
        if !connection.closed && (connection.closing || connection.held_back || !connection.output.is_empty())
        {
            self.list(index);
        }
    }

    /// Gives the buffers that were sent from back to where they came from: a gateway, or a shard.
    fn recycle_sent(&mut self, index: usize, list: &mut SendList) {
        let connection = self.connections.get(index);
        if let Some(connection) = connection.filter(|one| one.protocol() == Protocol::Nbd) {
            let volume = connection.volume.and_then(|slot| self.volumes.get(slot));
            let gateway = volume.and_then(|volume| volume.gateway);
            return match gateway.and_then(|gateway| self.gateways.get_mut(gateway)) {
                Some(gateway) => list.recycle(|buffer| gateway.keep(buffer)),
                None => list.recycle(drop),
            };
        }
        let mut data = ReadData::default();
        list.recycle(|buffer| data.pieces.push(Piece::Data { buffer, start_bytes: 0, length_bytes: 0 }));
        if !data.pieces.is_empty()
            && let Some(slot) = self.shards.iter_mut().find(|slot| !slot.released)
        {
            slot.copies_mut().recycle(data);
        }
    }

    /// Closes a connection when everything is answered and sent.
    pub(crate) fn close_after_send(&mut self, index: usize) {
        self.connections[index].closing = true;
        self.list(index);
    }

    /// Ends a connection for what its client did.
    pub(crate) fn drop_connection(&mut self, index: usize, reason: &str) {
        self.dropped_connections += 1;
        tracing::warn!(reason, "a connection is dropped");
        self.close_connection(index);
    }

    /// Ends a connection now. Nobody is told of its requests under way: what is with a shard goes on.
    pub(crate) fn close_connection(&mut self, index: usize) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        if connection.closed {
            return;
        }
        connection.closed = true;
        let (file, generation) = (connection.file, connection.generation);
        if matches!(connection.state, State::Nbd(_)) && connection.under_way > 0 {
            let slot = connection.volume;
            self.withdraw_nbd(ConnectionKey { index, generation }, slot);
        }
        let Some(connection) = self.connections.get(index) else { return };
        if let Some(volume) = connection.volume.and_then(|slot| self.volumes.get_mut(slot)) {
            volume.counters.connections -= 1;
            if matches!(connection.state, State::Nbd(_)) {
                volume.nbd_connections.retain(|one| *one != index);
                if let Some(gateway) = volume.gateway {
                    self.gateways.touch(gateway);
                }
            }
        }
        if let State::Native(native) = &connection.state
            && let Some((reference, _)) = native.shard
        {
            let name = (native.session, reference);
            if self.sessions.get(&name).is_some_and(|key| key.generation == generation) {
                self.sessions.remove(&name);
            }
        }
        let peer = match &connection.state {
            State::Peer(peer) => Some(*peer),
            _ => None,
        };
        self.reactor.close(file, tag::CLOSE | index as u64);
        if let Some(peer) = peer {
            self.peer_closed(index, peer);
        }
    }

    /// A connection's last operation is done.
    pub(crate) fn closed(&mut self, index: usize) {
        if self.connections.get(index).is_some_and(|connection| connection.closed) {
            self.connections.remove(index);
        }
    }
}

/// Makes room for the next receive, and for all of a message of `needed_bytes` that is cut.
///
/// Much that is there of one message is moved only if its rest does not fit: moved for the sake of more room with each receive, a large
/// message would be copied many times over.
fn make_room(received: &mut ReceiveBuffer, needed_bytes: usize, is_busy: bool) {
    let (held, capacity) = (received.data().len(), received.capacity_bytes());
    let missing = needed_bytes.saturating_sub(held);
    let busy = if is_busy { (RECEIVE_BYTES_BUSY - RECEIVE_BYTES_BUSY / 4).min(capacity * 2) } else { 0 };
    let mut wanted = match missing {
        0 if received.room_bytes() >= RECEIVE_BYTES_MIN / 2 => return,
        missing if missing > 0 && held > RECEIVE_BYTES_MOVED => missing,
        missing => missing.max(RECEIVE_BYTES_MIN).max(busy),
    };
    if missing > RECEIVE_BYTES_AHEAD && capacity - held < wanted {
        // Room for the start of the next message, too.
        wanted += RECEIVE_BYTES_AHEAD;
    }
    received.reserve(wanted);
}

/// What nobody has to look after is told to those only who ask for more than usual.
fn tell_failed(what: &str, errno: Errno) {
    if errno.is_peer_gone() {
        tracing::debug!(%errno, "{what} a connection failed");
    } else {
        tracing::warn!(%errno, "{what} a connection failed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes that the buffer has while messages of one size come in pieces of another, and bytes that were moved to a new one.
    fn receive_messages(message_bytes: usize, piece_bytes: usize, messages: usize) -> (usize, usize) {
        let mut received = ReceiveBuffer::with_capacity_bytes(RECEIVE_BYTES_BUSY);
        let (mut left, mut changes, mut moved) = (message_bytes * messages, 0, 0);
        while left > 0 {
            let (capacity, held) = (received.capacity_bytes(), received.data().len());
            make_room(&mut received, if held < 28 { 28 } else { message_bytes }, true);
            assert!(received.room_bytes() > 0);
            if received.capacity_bytes() != capacity {
                changes += 1;
                moved += held;
            }
            let piece = piece_bytes.min(received.room_bytes()).min(left);
            received.extend(&vec![0; piece]);
            left -= piece;
            while received.data().len() >= message_bytes {
                received.consume(message_bytes);
            }
        }
        (changes, moved)
    }

    /// The last 768 KiB of it came into a new buffer with nearly each receive.
    #[test]
    fn a_large_message_is_received_into_one_buffer() {
        let (changes, moved) = receive_messages(4 << 20, 200_000, 1);
        assert!(changes <= 2 && moved < 1 << 20, "{changes} buffers, {moved} bytes moved");
        // The room of the first is enough for those behind it.
        assert!(receive_messages(4 << 20, 200_000, 20).0 <= 2);
        assert!(receive_messages(2 << 20, 1 << 20, 20).0 <= 2);
    }

    #[test]
    fn small_messages_come_many_at_a_time() {
        assert!(receive_messages(4096 + 28, 1 << 20, 10_000).0 <= 2);
        let mut received = ReceiveBuffer::with_capacity_bytes(RECEIVE_BYTES_BUSY);
        received.extend(&vec![0; RECEIVE_BYTES_BUSY]);
        received.consume(RECEIVE_BYTES_BUSY - 4000);
        make_room(&mut received, 4096 + 28, true);
        assert!(received.room_bytes() >= RECEIVE_BYTES_BUSY / 2);
    }
}
