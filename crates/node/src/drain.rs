//! The beginning of a clean stop: what NBD clients have asked for is done and answered, while all shards of the node, and its connections
//! to other nodes, serve as before. The shards are closed when no reactor has an NBD connection any more.
//!
//! Requests that come later are not taken, and not answered either. spec: a server should wait for requests under way before it
//! disconnects; it may end them by errors, and so it may the later ones. Here it does not: a client that connects again (QEMU
//! with `reconnect-delay`) repeats what was not answered and goes on, while an error, also `NBD_ESHUTDOWN`, reaches the guest as an error of
//! its disk. For one that does not connect again the end of the connection is an error as well.

use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use coquina_reactor::{MailboxSender, ReceiveBuffer};

use crate::command::Command;
use crate::connection::{Connection, Protocol};
use crate::core::{Core, tag};

/// Requests that are under way so long after the beginning of the stop are given up, with their connections.
const UNDER_WAY_NS_MAX: u64 = 5_000_000_000;
/// A client that was told the end, and does not hang up for so long, has what was sent to it.
const LINGER_NS_MAX: u64 = 500_000_000;
/// How often connections are looked at.
const LOOK_NS: u64 = 10_000_000;
/// Who stops all reactors waits no longer for one that says nothing.
const PATIENCE: Duration = Duration::from_secs(7);

/// A stop that has begun.
pub(crate) struct Drain {
    pub(crate) since_ns: u64,
    /// Told when no NBD connection is left.
    done: Option<Sender<()>>,
}

/// Has all reactors answer their NBD clients, and waits until they have closed the connections.
pub(crate) fn drain_all(cores: &[MailboxSender<Command>]) {
    let (done, drained) = channel();
    for core in cores {
        core.send(Command::Drain { done: done.clone() });
    }
    drop(done);
    let end = Instant::now() + PATIENCE;
    // Until nobody is left who could tell.
    while drained.recv_timeout(end.saturating_duration_since(Instant::now())).is_ok() {}
}

impl Core {
    /// Takes no NBD client and no request of one any more.
    pub(crate) fn drain(&mut self, done: Sender<()>) {
        self.draining = Some(Drain { since_ns: self.now_ns, done: Some(done) });
        let held_back: Vec<_> = self
            .connections
            .iter_mut()
            .filter(|(_, connection)| is_open_nbd(connection))
            .filter_map(|(index, connection)| Some((index, connection.received.take()?)))
            .collect();
        for (index, received) in held_back {
            self.pass_over(index, received);
        }
    }

    /// Whether what comes on a connection is not looked at any more.
    pub(crate) fn passes_over(&self, connection: &Connection) -> bool {
        self.draining.is_some() && connection.protocol() == Protocol::Nbd
    }

    /// Forgets what was received, and receives what follows until the client hangs up: a socket that is closed with bytes in it may take
    /// away what was sent on it.
    pub(crate) fn pass_over(&mut self, index: usize, mut received: ReceiveBuffer) {
        let connection = &mut self.connections[index];
        (connection.held_back, connection.is_within_message) = (false, false);
        received.consume(received.data().len());
        self.reactor.receive(connection.file, received, tag::RECEIVE | index as u64);
    }

    /// When the connections are to be looked at again.
    pub(crate) fn drain_due_ns(&self, now_ns: u64) -> u64 {
        let is_at_work = self.draining.as_ref().is_some_and(|drain| drain.done.is_some());
        if is_at_work { now_ns + LOOK_NS } else { u64::MAX }
    }

    /// Tells clients the end that have all their answers, closes the connections of those that have heard it, and tells when there are none.
    pub(crate) fn drain_on(&mut self) {
        let Some(drain) = self.draining.as_ref().filter(|drain| drain.done.is_some()) else { return };
        let is_over = self.now_ns.saturating_sub(drain.since_ns) >= UNDER_WAY_NS_MAX;
        let (mut is_left, mut given_up) = (false, 0);
        for index in 0..self.connections.capacity() {
            let Some(connection) = self.connections.get_mut(index).filter(|one| is_open_nbd(one)) else {
                continue;
            };
            let has_answers =
                connection.under_way == 0 && connection.output.is_empty() && !connection.sending;
            if has_answers && connection.told_end_ns == u64::MAX {
                connection.told_end_ns = self.now_ns;
                self.reactor.end_sending(connection.file);
            }
            let has_heard = self.now_ns.saturating_sub(connection.told_end_ns) >= LINGER_NS_MAX;
            if is_over || has_heard {
                given_up += connection.under_way;
                self.close_connection(index);
            } else {
                is_left = true;
            }
        }
        if given_up > 0 {
            tracing::warn!(requests = given_up, "NBD requests under way are given up: the server stops");
        }
        if !is_left && let Some(done) = self.draining.as_mut().and_then(|drain| drain.done.take()) {
            // Nobody listens any more if another reactor has hung.
            let _ = done.send(());
        }
    }
}

fn is_open_nbd(connection: &Connection) -> bool {
    connection.protocol() == Protocol::Nbd && !connection.closed
}
