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
    /// nothing else would tell.
    pub(crate) fn close_hung_up(&mut self, slot: usize) {
        let waiting: Vec<usize> = self
            .connections
            .iter()
            .filter(|(_, one)| one.volume == Some(slot) && one.protocol() == Protocol::Nbd)
            .filter(|(_, one)| one.under_way > 0 && !one.closed)
            .map(|(index, _)| index)
            .collect();
        for index in waiting {
            match self.connections[index].received.take() {
                Some(received) => self.hold_back(index, received),
                None if self.reactor.incoming(self.connections[index].file) == Incoming::End => {
                    self.close_connection(index);
                }
                None => {}
            }
        }
    }

    /// Keeps what was received from a client of which no request is taken for now. While requests of its volume are refused and tried again,
    /// more is received, as far as something is there: the end of the connection comes behind it.
    pub(crate) fn hold_back(&mut self, index: usize, mut received: ReceiveBuffer) {
        let connection = &self.connections[index];
        let gateway = connection.volume.and_then(|slot| self.volumes.get(slot)).and_then(|one| one.gateway);
        let is_nbd = connection.protocol() == Protocol::Nbd && connection.under_way > 0;
        let gateway = gateway.filter(|_| is_nbd).and_then(|gateway| self.gateways.get_mut(gateway));
        if gateway.is_some_and(|gateway| gateway.client().tries_again()) {
            match self.reactor.incoming(connection.file) {
                Incoming::End => return self.close_connection(index),
                Incoming::Bytes if received.data().len() < AHEAD_BYTES_MAX => {
                    received.reserve(received.data().len().max(RECEIVE_BYTES_BUSY));
                    return self.reactor.receive(connection.file, received, tag::RECEIVE | index as u64);
                }
                Incoming::Bytes | Incoming::Nothing => {}
            }
        }
        self.connections[index].received = Some(received);
    }
}
