//! Requests of NBD clients that are gone.
//!
//! A client that gives a connection up sends its requests again on another one, perhaps to another reactor, and newer ones behind them. What
//! it sent before must not be tried again after that: it would write over newer data.

use coquina_reactor::{Incoming, ReceiveBuffer, monotonic_ns};

use crate::connection::{Protocol, RECEIVE_BYTES_BUSY, State};
use crate::core::{Core, tag};
use crate::request::ConnectionKey;

/// The room for more grows with what is there, up to this.
const RECEIVE_BYTES_AHEAD_MAX: usize = 64 << 20;

/// The same of one that was held back for long and has room again, beside the message that is on its way.
const BYTES_AHEAD_MAX_HELD: usize = 4 << 20;
/// Receives in a row, or turns with one, after which a client that goes on sending is taken for one that lives.
pub(crate) const RECEIVES_AHEAD_MAX: u32 = 8;

/// What is received from a connection, behind which its end may come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Ahead {
    /// Nothing that has to be waited for.
    Nothing,
    /// As much as there is for now. Its client may go on for long.
    Bytes,
    /// The rest, and then the end.
    End,
}

impl Core {
    /// Takes back what a connection's client asked of its volume's gateway and no shard has yet.
    pub(crate) fn withdraw_nbd(&mut self, key: ConnectionKey, slot: Option<usize>) {
        let gateway = slot.and_then(|slot| self.volumes.get(slot)).and_then(|volume| volume.gateway);
        let Some(gateway) = gateway.and_then(|index| self.gateways.touch(index)) else { return };
        let requests = &self.nbd_requests;
        let is_meant = |token| requests.get(token as usize).is_some_and(|request| request.connection == key);
        gateway.client().withdraw(is_meant);
    }

    /// Closes the NBD connections to a volume whose clients are gone. Of one that is read from no further, because much of it is under way,
    /// nothing else would tell. Of others so much is received that `bytes_max` are there. Says what is received.
    pub(crate) fn close_hung_up(&mut self, slot: usize, bytes_max: usize) -> Ahead {
        let mut ahead = Ahead::Nothing;
        let connections = |core: &Core| core.volumes.get(slot).map_or(0, |one| one.nbd_connections.len());
        // From the end: who is closed leaves the list, and nobody before it moves.
        for at in (0..connections(self)).rev() {
            let index = self.volumes.get(slot).and_then(|one| one.nbd_connections.get(at).copied());
            let Some(index) = index else { continue };
            if self.connections[index].under_way > 0 {
                ahead = ahead.max(self.look_for_end(index, bytes_max));
            }
        }
        ahead
    }

    /// Closes a connection whose client is gone. Says what is received from it.
    fn look_for_end(&mut self, index: usize, bytes_max: usize) -> Ahead {
        let connection = &self.connections[index];
        match self.reactor.incoming(connection.file) {
            Incoming::Gone => {
                self.close_connection(index);
                Ahead::Nothing
            }
            // One that has said that it disconnects may close its sending direction, and what it asked for is done all the same.
            Incoming::End if connection.closing || connection.ended => Ahead::Nothing,
            // Whether it has said so is known when the rest is received.
            Incoming::End => {
                self.receive_ahead(index, usize::MAX);
                Ahead::End
            }
            Incoming::Bytes if self.receive_ahead(index, bytes_max) => Ahead::Bytes,
            Incoming::Bytes | Incoming::Nothing => Ahead::Nothing,
        }
    }

    /// Receives more from a client of which no request is taken, unless so much is there already. Whether it is being received.
    fn receive_ahead(&mut self, index: usize, bytes_max: usize) -> bool {
        let connection = &mut self.connections[index];
        let Some(received) = &connection.received else {
            return connection.held_back || connection.waiting.receives_ahead > 0;
        };
        if received.data().len() >= bytes_max {
            return false;
        }
        let received = connection.received.take().unwrap_or_default();
        self.receive_behind(index, received, bytes_max);
        true
    }

    fn receive_behind(&mut self, index: usize, mut received: ReceiveBuffer, bytes_max: usize) {
        let held = received.data().len();
        let room_max = bytes_max.saturating_sub(held).clamp(RECEIVE_BYTES_BUSY, RECEIVE_BYTES_AHEAD_MAX);
        received.reserve(held.clamp(RECEIVE_BYTES_BUSY, room_max));
        self.reactor.receive(self.connections[index].file, received, tag::RECEIVE | index as u64);
    }

    /// Takes requests from what was received. If they may have waited for long, because their connection was held back, nothing is taken
    /// of a client that is gone: what it has sent is received first, up to the end, and `ended` decides.
    ///
    /// The end may lie behind more than the socket has room for. So of one that still has bytes more is received, as long as each receive
    /// finds some, up to `RECEIVES_AHEAD_MAX` of them and `BYTES_AHEAD_MAX_HELD`. What is there then is taken, since a client that lives may
    /// go on for ever: an end behind more than that, or one that is still on its way through the network, comes too late for it.
    pub(crate) fn take_up(&mut self, index: usize, received: ReceiveBuffer) {
        let connection = &mut self.connections[index];
        let takes_late = connection.protocol() == Protocol::Nbd
            && connection.waiting.is_late(self.now_ns)
            && !(connection.is_full() || connection.closing || connection.ended);
        if !takes_late {
            return self.parse(index, received);
        }
        let mut bytes_max = connection.needed_bytes.saturating_add(BYTES_AHEAD_MAX_HELD);
        let receives_more = match self.reactor.incoming(connection.file) {
            Incoming::Gone => return self.close_connection(index),
            // It ends: no more comes than the system has.
            Incoming::End => {
                bytes_max = usize::MAX;
                true
            }
            Incoming::Bytes => {
                connection.waiting.receives_ahead < RECEIVES_AHEAD_MAX && received.data().len() < bytes_max
            }
            Incoming::Nothing => {
                connection.waiting.socket_is_empty();
                false
            }
        };
        if receives_more {
            connection.waiting.receives_ahead += 1;
            return self.receive_behind(index, received, bytes_max);
        }
        connection.waiting.receives_ahead = 0;
        self.parse(index, received);
    }

    /// A client sends no more. It is gone, unless it says in what was received that it disconnects.
    pub(crate) fn ended(&mut self, index: usize, received: ReceiveBuffer) {
        if self.passes_over(&self.connections[index]) {
            return self.close_connection(index);
        }
        let connection = &mut self.connections[index];
        let disconnects =
            matches!(&connection.state, State::Nbd(session) if session.disconnects_within(received.data()));
        if !disconnects {
            return self.close_connection(index);
        }
        connection.ended = true;
        self.parse(index, received);
    }

    /// Keeps what was received from a client of which no request is taken for now. While requests of its volume are tried again, or are
    /// late, more is received, as far as something is there: the end of the connection comes behind it.
    pub(crate) fn hold_back(&mut self, index: usize, received: ReceiveBuffer) {
        let connection = &mut self.connections[index];
        connection.waiting.held_back(self.now_ns, &received);
        connection.received = Some(received);
        let gateway = connection.volume.and_then(|slot| self.volumes.get(slot)).and_then(|one| one.gateway);
        let is_nbd = connection.protocol() == Protocol::Nbd && connection.under_way > 0;
        let gateway = gateway.filter(|_| is_nbd).and_then(|gateway| self.gateways.get_mut(gateway));
        let bytes_max = gateway.map_or(0, |gateway| gateway.client().ahead_bytes_max(monotonic_ns()));
        if bytes_max > 0 {
            self.look_for_end(index, bytes_max);
        }
    }
}
