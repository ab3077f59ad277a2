//! The beginning of a clean stop: what NBD clients have asked for is done and answered, while all shards of the node, and its connections
//! to other nodes, serve as before. The shards are closed when no reactor has an NBD connection any more.
//!
//! spec: on a shutdown a server should wait for requests under way before it disconnects. It may end them by errors; these, and the answers
//! to all requests that come later, should be `NBD_ESHUTDOWN`.

use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use coquina_nbd::{Cookie, ErrorCode};
use coquina_reactor::{Incoming, MailboxSender};

use crate::command::Command;
use crate::connection::{Connection, Protocol};
use crate::core::Core;
use crate::gateway::encoder;
use crate::request::ConnectionKey;

/// Requests that are under way so long after the beginning of the stop are answered with an error.
const UNDER_WAY_NS_MAX: u64 = 5_000_000_000;
/// So long after it a client that goes on asking is cut off, and one that takes no answers.
const CONNECTED_NS_MAX: u64 = 6_000_000_000;
/// A connection on which nothing moved for so long is closed. Who asks all the time hears by then that the server stops.
const QUIET_NS: u64 = 100_000_000;
/// How often connections are looked at.
const LOOK_NS: u64 = 10_000_000;
/// Who stops all reactors waits no longer for one that says nothing.
const PATIENCE: Duration = Duration::from_secs(7);
const SHUTDOWN_TEXT: &str = "the server is shutting down";

/// A stop that has begun.
pub(crate) struct Drain {
    pub(crate) since_ns: u64,
    /// Told when no NBD connection is left.
    done: Option<Sender<()>>,
    /// Whether what is under way is not waited for any more.
    is_over: bool,
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
        self.draining = Some(Drain { since_ns: self.now_ns, done: Some(done), is_over: false });
    }

    /// When the connections are to be looked at again.
    pub(crate) fn drain_due_ns(&self, now_ns: u64) -> u64 {
        let is_at_work = self.draining.as_ref().is_some_and(|drain| drain.done.is_some());
        if is_at_work { now_ns + LOOK_NS } else { u64::MAX }
    }

    /// Closes the NBD connections that are through, and tells when there are none.
    pub(crate) fn drain_on(&mut self) {
        let Some(drain) = self.draining.as_mut().filter(|drain| drain.done.is_some()) else { return };
        let age_ns = self.now_ns.saturating_sub(drain.since_ns);
        if age_ns >= UNDER_WAY_NS_MAX && !std::mem::replace(&mut drain.is_over, true) {
            self.end_requests();
        }
        let is_cut = age_ns >= CONNECTED_NS_MAX;
        let is_through = |connection: &Connection| is_cut || self.is_quiet(connection);
        let through = self.connections.iter().filter(|(_, one)| is_open_nbd(one) && is_through(one));
        let through: Vec<usize> = through.map(|(index, _)| index).collect();
        for index in through {
            // What was answered is told, as far as the client takes it now.
            self.send(index);
            self.close_connection(index);
        }
        if !self.connections.iter().any(|(_, connection)| is_open_nbd(connection))
            && let Some(done) = self.draining.as_mut().and_then(|drain| drain.done.take())
        {
            // Nobody listens any more if another reactor has hung.
            let _ = done.send(());
        }
    }

    /// Whether nothing is under way on a connection in either direction.
    fn is_quiet(&self, connection: &Connection) -> bool {
        let moved_ns = connection.received_ns.max(connection.sent_ns);
        let has_nothing = connection.under_way == 0 && connection.output.is_empty() && !connection.sending;
        has_nothing
            && !connection.held_back
            && !connection.is_within_message
            && self.now_ns.saturating_sub(moved_ns) >= QUIET_NS
            && self.reactor.incoming(connection.file) != Incoming::Bytes
    }

    /// Answers a request that came too late.
    pub(crate) fn refuse_late(&mut self, index: usize, cookie: Cookie) {
        let connection = &mut self.connections[index];
        let replies = encoder(&connection.state);
        replies.error(cookie, ErrorCode::Shutdown, SHUTDOWN_TEXT, connection.output.bytes());
        self.list(index);
    }

    /// Answers all requests of NBD clients that are under way. What a shard has of them may still take effect.
    fn end_requests(&mut self) {
        let open = self.connections.iter().filter(|(_, one)| is_open_nbd(one) && one.under_way > 0);
        let open: Vec<_> = open.map(|(index, one)| (index, one.generation, one.volume)).collect();
        for &(index, generation, volume) in &open {
            // Nothing more of them is begun.
            self.withdraw_nbd(ConnectionKey { index, generation }, volume);
        }
        for (_, request) in &mut self.nbd_requests {
            let key = std::mem::replace(&mut request.connection, ConnectionKey::NOBODY);
            let connection = self.connections.get_mut(key.index);
            let Some(connection) = connection.filter(|one| one.generation == key.generation && !one.closed)
            else {
                continue;
            };
            connection.under_way -= 1;
            connection.under_way_bytes -= request.held_bytes;
            let replies = encoder(&connection.state);
            replies.error(request.cookie, ErrorCode::Shutdown, SHUTDOWN_TEXT, connection.output.bytes());
        }
        if !open.is_empty() {
            tracing::warn!(connections = open.len(), "NBD requests under way are given up: the server stops");
        }
        for (index, ..) in open {
            self.list(index);
            self.send(index);
        }
    }
}

fn is_open_nbd(connection: &Connection) -> bool {
    connection.protocol() == Protocol::Nbd && !connection.closed
}
