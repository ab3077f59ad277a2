//! Requests of NBD clients that are gone.
//!
//! A client that gives a connection up sends its requests again on another one, perhaps to another reactor, and newer ones behind them. What
//! it sent before must not be tried again after that: it would write over newer data.

use coquina_reactor::{Incoming, ReceiveBuffer};

use crate::connection::{Protocol, RECEIVE_BYTES_BUSY, State};
use crate::core::{Core, tag};
use crate::request::ConnectionKey;

/// The room for more grows with what is there, up to this.
const RECEIVE_BYTES_AHEAD_MAX: usize = 64 << 20;

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
        for index in 0..self.connections.capacity() {
            let Some(one) = self.connections.get(index) else { continue };
            let is_nbd = one.volume == Some(slot) && one.protocol() == Protocol::Nbd;
            if is_nbd && one.under_way > 0 && !one.closed {
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

    /// Receives more from a client of which no request is taken, unless so much is there already.
    fn receive_ahead(&mut self, index: usize, bytes_max: usize) -> bool {
        let connection = &mut self.connections[index];
        let has_room = |received: &mut ReceiveBuffer| received.data().len() < bytes_max;
        let Some(mut received) = connection.received.take_if(has_room) else { return false };
        received.reserve(received.data().len().clamp(RECEIVE_BYTES_BUSY, RECEIVE_BYTES_AHEAD_MAX));
        self.reactor.receive(connection.file, received, tag::RECEIVE | index as u64);
        true
    }

    /// A client sends no more. It is gone, unless it says in what was received that it disconnects.
    pub(crate) fn ended(&mut self, index: usize, received: ReceiveBuffer) {
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
        connection.received = Some(received);
        let gateway = connection.volume.and_then(|slot| self.volumes.get(slot)).and_then(|one| one.gateway);
        let is_nbd = connection.protocol() == Protocol::Nbd && connection.under_way > 0;
        let gateway = gateway.filter(|_| is_nbd).and_then(|gateway| self.gateways.get_mut(gateway));
        let bytes_max = gateway.map_or(0, |gateway| gateway.client().ahead_bytes_max());
        if bytes_max > 0 {
            self.look_for_end(index, bytes_max);
        }
    }
}
