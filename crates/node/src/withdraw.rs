//! Requests of NBD clients that are gone.
//!
//! A client that gives a connection up sends its requests again on another one, perhaps to another reactor, and newer ones behind them. What
//! it sent before must not be tried again after that: it would write over newer data.

use coquina_reactor::{Incoming, ReceiveBuffer};

use crate::connection::{Protocol, RECEIVE_BYTES_BUSY};
use crate::core::{Core, tag};
use crate::request::ConnectionKey;

/// What is received from a client at most while no request of it is taken.
const AHEAD_BYTES_MAX: usize = 64 << 20;

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
    /// nothing else would tell. Says whether more is received from one, behind which its end may come.
    pub(crate) fn close_hung_up(&mut self, slot: usize, reads_ahead: bool) -> bool {
        let mut reads = false;
        for index in 0..self.connections.capacity() {
            let Some(one) = self.connections.get(index) else { continue };
            let is_nbd = one.volume == Some(slot) && one.protocol() == Protocol::Nbd;
            if is_nbd && one.under_way > 0 && !one.closed {
                reads |= self.look_for_end(index, reads_ahead);
            }
        }
        reads
    }

    /// Closes a connection whose client is gone. Says whether more is received from it.
    fn look_for_end(&mut self, index: usize, reads_ahead: bool) -> bool {
        let connection = &mut self.connections[index];
        match self.reactor.incoming(connection.file) {
            Incoming::Gone => self.close_connection(index),
            // One that has said that it disconnects may close its sending direction, and what it asked for is done all the same.
            Incoming::End if !connection.closing => self.close_connection(index),
            Incoming::Bytes if reads_ahead => {
                let has_room = |received: &mut ReceiveBuffer| received.data().len() < AHEAD_BYTES_MAX;
                if let Some(mut received) = connection.received.take_if(has_room) {
                    received.reserve(received.data().len().max(RECEIVE_BYTES_BUSY));
                    self.reactor.receive(connection.file, received, tag::RECEIVE | index as u64);
                    return true;
                }
            }
            Incoming::Bytes | Incoming::End | Incoming::Nothing => {}
        }
        false
    }

    /// Keeps what was received from a client of which no request is taken for now. While requests of its volume are refused and tried again,
    /// more is received, as far as something is there: the end of the connection comes behind it.
    pub(crate) fn hold_back(&mut self, index: usize, received: ReceiveBuffer) {
        let connection = &mut self.connections[index];
        connection.received = Some(received);
        let gateway = connection.volume.and_then(|slot| self.volumes.get(slot)).and_then(|one| one.gateway);
        let is_nbd = connection.protocol() == Protocol::Nbd && connection.under_way > 0;
        let gateway = gateway.filter(|_| is_nbd).and_then(|gateway| self.gateways.get_mut(gateway));
        if gateway.is_some_and(|gateway| gateway.client().tries_again()) {
            self.look_for_end(index, true);
        }
    }
}
