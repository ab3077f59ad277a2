//! Runs a [`ClientCore`] on a reactor, which it may share with others.
//!
//! Invariant: a completion is for this client if the upper half of its token is the client's `token_base`; the
//! lower half names the operation, the link, and the connection's generation, so that late ones are recognised.

use std::sync::Arc;
use std::time::{Duration, Instant};

use coquina_base::{AlignedBuf, DriveId, Landing, check_name};
use coquina_protocol::{AttachedVolume, Status, message_bytes};
use coquina_reactor::{
    Address, AddressError, Completion, FileId, GiveUp, Payload, Reactor, ReactorConfig, ReceiveBuffer, Wait,
    monotonic_ns, random_u64,
};

use crate::config::ClientConfig;
use crate::core::{ClientCore, LinkAction};
use crate::error::ClientError;
use crate::local::{LocalAnswer, LocalName, LocalPart};
use crate::request::{ClientCompletion, ClientRequest};

const CONNECT: u64 = 0;
const SEND: u64 = 1;
const RECEIVE: u64 = 2;
const CLOSE: u64 = 3;

/// A connection on which the other host has acknowledged nothing of what was sent for so long is broken.
const UNHEARD_SECONDS_MAX: u32 = 2;
/// How long names that no name server answers for are looked up again when a volume is opened, and the pause between two tries.
const LOOK_UP_TIME_MAX: Duration = Duration::from_secs(5);
const LOOK_UP_PAUSE: Duration = Duration::from_millis(200);
/// Room that a receive has at least.
const RECEIVE_BYTES_MIN: usize = 64 << 10;
/// Room behind a large message.
const RECEIVE_BYTES_AHEAD: usize = 64 << 10;
/// Behind an answer that landed in its reader's buffer another one is expected, of which no more than this is received before it is
/// known where it goes: the header and the checksums of 3.9 MiB.
const HEAD_BYTES_EXPECTED: usize = 4 << 10;
/// Receive buffers that are larger are given back when they are empty and were needed for one large message.
const RECEIVE_BYTES_KEPT: usize = 2 << 20;

#[derive(Default)]
struct Connection {
    file: Option<FileId>,
    generation: u16,
    /// Whether it is being connected, and how often that has failed so far.
    connecting: bool,
    failures: u32,
    /// Kept between connections, as long as they are made anew.
    buffer: ReceiveBuffer,
}

/// A volume's client on a reactor that the caller turns.
pub struct VolumeClient {
    core: ClientCore,
    token_base: u64,
    connections: Vec<Connection>,
    actions: Vec<LinkAction>,
    /// Operations that the reactor was asked for and that were not completed here.
    in_flight: usize,
}

impl VolumeClient {
    /// A client that starts to connect with the first `flush`. The lower 32 bits of `token_base` must be 0,
    /// the upper ones must differ from those of all other tokens on the reactor.
    pub fn new(config: ClientConfig, token_base: u64) -> VolumeClient {
        Self::drive(ClientCore::new(config, monotonic_ns()), token_base)
    }

    /// A client that is told by `set_volume` where the data is, and asks nobody. `token_base` as in `new`.
    pub fn directed(config: ClientConfig, token_base: u64) -> VolumeClient {
        Self::drive(ClientCore::directed(config), token_base)
    }

    fn drive(core: ClientCore, token_base: u64) -> VolumeClient {
        assert_eq!(token_base & 0xffff_ffff, 0, "the lower half of the token is the client's");
        VolumeClient { core, token_base, connections: Vec::new(), actions: Vec::new(), in_flight: 0 }
    }

    /// Tells a directed client the volume's table: see [`ClientCore::set_volume`].
    pub fn set_volume(&mut self, volume: &AttachedVolume) {
        self.core.set_volume(volume, monotonic_ns());
    }

    /// Tells a directed client whether anybody has the volume open: see [`ClientCore::set_open`].
    pub fn set_open(&mut self, is_open: bool) {
        self.core.set_open(is_open, monotonic_ns());
    }

    /// Which shards are in this process from the next `set_volume` on.
    pub fn set_local(&mut self, shards: &[(DriveId, u32)]) {
        self.core.set_local(shards);
    }

    /// Appends the parts that are for this process now, each once. To be called after `flush`.
    pub fn take_local(&mut self, parts: &mut Vec<LocalPart>) {
        self.core.take_local(parts);
    }

    /// The data of a write that was handed out: see [`ClientCore::local_payload`].
    pub fn local_payload(&self, name: LocalName) -> Option<&[u8]> {
        self.core.local_payload(name)
    }

    /// A share of the buffer with a write's data: see [`ClientCore::local_share`].
    pub fn local_share(&mut self, name: LocalName) -> Option<(Arc<AlignedBuf>, usize)> {
        self.core.local_share(name)
    }

    /// Where the data of a read goes: see [`ClientCore::local_buffer`].
    pub fn local_buffer(&mut self, name: LocalName) -> Option<&mut [u8]> {
        self.core.local_buffer(name)
    }

    /// The token of the read that a part is the whole of: see [`ClientCore::local_whole_read`].
    pub fn local_whole_read(&self, name: LocalName) -> Option<u64> {
        self.core.local_whole_read(name)
    }

    /// Answers a part that was handed out: see [`ClientCore::local_done`].
    pub fn local_done(&mut self, name: LocalName, result: Result<LocalAnswer, Status>) {
        self.core.local_done(name, result, monotonic_ns());
    }

    /// Withdraws requests: see [`ClientCore::withdraw`].
    pub fn withdraw(&mut self, is_meant: impl Fn(u64) -> bool) {
        self.core.withdraw(is_meant);
    }

    /// How much of who asks is to be there at most: see [`ClientCore::ahead_bytes_max`].
    pub fn ahead_bytes_max(&self, now_ns: u64) -> usize {
        self.core.ahead_bytes_max(now_ns)
    }

    /// Whether a `flush_at` with the same time may send something again: see [`ClientCore::may_send_again`].
    pub fn may_send_again(&mut self, now_ns: u64) -> bool {
        self.core.may_send_again(now_ns)
    }

    /// Gives up for good: everything outstanding and everything to come fails with `error`.
    pub fn fail(&mut self, error: ClientError) {
        self.core.fail(error);
    }

    /// The open volume, once it is.
    pub fn volume(&self) -> Option<&AttachedVolume> {
        self.core.volume()
    }

    /// Why the client gave up for good, if it did.
    pub fn failure(&self) -> Option<&ClientError> {
        self.core.failure()
    }

    /// Requests that are not finished.
    pub fn outstanding(&self) -> usize {
        self.core.outstanding()
    }

    /// Operations of the reactor whose completions are still to come, those of connections that are gone included.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Takes a request; it goes out with the next `flush`.
    pub fn submit(&mut self, request: ClientRequest) {
        self.core.submit(request);
    }

    /// Moves finished requests to `completions`.
    pub fn take_completions(&mut self, completions: &mut Vec<ClientCompletion>) {
        self.core.take_completions(completions);
    }

    /// When `flush` must be called next, if nothing else happens; a time of `monotonic_ns`.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.core.deadline_ns()
    }

    /// Whether a completion is for this client's `complete`.
    pub fn owns(&self, token: u64) -> bool {
        token & !0xffff_ffff == self.token_base
    }

    /// Queues everything that is to be sent, connected or closed. To be called before each turn.
    pub fn flush(&mut self, reactor: &mut Reactor) {
        self.flush_at(reactor, monotonic_ns());
    }

    /// The same with the time of a look: nothing becomes late between the two. A time of `monotonic_ns`.
    pub fn flush_at(&mut self, reactor: &mut Reactor, now_ns: u64) {
        if self.core.deadline_ns().is_some_and(|deadline_ns| deadline_ns <= now_ns) {
            self.core.tick(now_ns);
        }
        self.core.pump(now_ns);
        self.act(reactor, now_ns);
        for link in 0..self.core.links() {
            let Some(file) = self.connections.get(link as usize).and_then(|connection| connection.file)
            else {
                continue;
            };
            if let Some(list) = self.core.take_send(link) {
                self.in_flight += 1;
                if let Some(completion) = reactor.send(file, list, self.token(link, SEND)) {
                    self.complete(reactor, completion);
                }
            }
        }
    }

    fn act(&mut self, reactor: &mut Reactor, now_ns: u64) {
        self.connections.resize_with(self.core.links() as usize, Connection::default);
        loop {
            self.core.take_actions(&mut self.actions);
            if self.actions.is_empty() {
                return;
            }
            for action in std::mem::take(&mut self.actions) {
                match action {
                    LinkAction::Close { link } => self.close(reactor, link),
                    LinkAction::Connect { link, address } => {
                        if let Err(reason) = self.connect(reactor, link, &address) {
                            self.core.broken(link, &reason, now_ns);
                        }
                    }
                }
            }
        }
    }

    fn connect(&mut self, reactor: &mut Reactor, link: u32, address: &str) -> Result<(), String> {
        let failures = self.connections[link as usize].failures;
        let address = Address::resolve_next(address, failures).map_err(|error| error.to_string())?;
        let token = self.token(link, CONNECT);
        let file = reactor
            .connect_to(&address, GiveUp::UnheardSeconds(UNHEARD_SECONDS_MAX), token)
            .map_err(|error| error.to_string())?;
        let connection = &mut self.connections[link as usize];
        connection.file = Some(file);
        connection.connecting = true;
        connection.buffer.clear();
        self.in_flight += 1;
        Ok(())
    }

    fn close(&mut self, reactor: &mut Reactor, link: u32) {
        let token = self.token(link, CLOSE);
        let connection = &mut self.connections[link as usize];
        connection.generation = connection.generation.wrapping_add(1);
        // Refused, or without an answer.
        connection.failures =
            connection.failures.wrapping_add(u32::from(std::mem::take(&mut connection.connecting)));
        if self.core.is_idle(link) {
            connection.buffer = ReceiveBuffer::default();
        }
        if let Some(file) = connection.file.take() {
            reactor.close(file, token);
            self.in_flight += 1;
        }
    }

    fn token(&self, link: u32, operation: u64) -> u64 {
        let generation = u64::from(self.connections[link as usize].generation);
        self.token_base | generation << 16 | u64::from(link) << 2 | operation
    }

    /// Takes a completion that `owns` says is this client's.
    pub fn complete(&mut self, reactor: &mut Reactor, completion: Completion) {
        assert!(self.in_flight > 0, "what is completed was asked for");
        self.in_flight -= 1;
        let Completion { token, result, payload } = completion;
        let link = (token >> 2 & 0x3fff) as u32;
        let operation = token & 3;
        if token != self.token(link, operation) {
            // Of a connection that is gone.
            return match payload {
                Payload::Send(list) => self.core.send_dropped(list),
                Payload::Receive(buffer) => self.keep(link, buffer),
                _ => {}
            };
        }
        let failure = result.err().map(|errno| errno.to_string());
        match (payload, failure) {
            (Payload::Send(list), None) => self.core.sent(link, list),
            (Payload::Send(list), Some(reason)) => {
                self.core.send_dropped(list);
                self.core.broken(link, &reason, monotonic_ns());
            }
            (Payload::Landing(landing), None) => self.landed(reactor, link, landing),
            (Payload::Receive(buffer), failure) => self.received(reactor, link, buffer, result, failure),
            (_, None) if operation == CONNECT => {
                self.connections[link as usize].connecting = false;
                self.core.connected(link, monotonic_ns());
                let buffer = std::mem::take(&mut self.connections[link as usize].buffer);
                self.receive(reactor, link, buffer);
            }
            (_, Some(reason)) => self.core.broken(link, &reason, monotonic_ns()),
            _ => {}
        }
    }

    fn received(
        &mut self,
        reactor: &mut Reactor,
        link: u32,
        mut buffer: ReceiveBuffer,
        result: Result<u32, coquina_reactor::Errno>,
        failure: Option<String>,
    ) {
        let now_ns = monotonic_ns();
        if result == Ok(0) || failure.is_some() {
            let reason = failure.unwrap_or_else(|| "the server closed the connection".to_owned());
            self.keep(link, buffer);
            self.core.broken(link, &reason, now_ns);
            return;
        }
        self.core.received(link, &mut buffer, now_ns);
        match self.core.start_landing(link, &mut buffer) {
            Some(landing) => {
                self.connections[link as usize].buffer = buffer;
                self.land(reactor, link, landing);
            }
            None => self.receive(reactor, link, buffer),
        }
    }

    fn land(&mut self, reactor: &mut Reactor, link: u32, landing: Landing) {
        if let Some(file) = self.connections[link as usize].file {
            reactor.land_as_it_comes(file, landing, self.token(link, RECEIVE));
            self.in_flight += 1;
        }
    }

    fn landed(&mut self, reactor: &mut Reactor, link: u32, landing: Landing) {
        if let Some(rest) = self.core.landed(link, landing, monotonic_ns()) {
            return self.land(reactor, link, rest);
        }
        let mut buffer = std::mem::take(&mut self.connections[link as usize].buffer);
        buffer.limit_next(HEAD_BYTES_EXPECTED);
        self.receive(reactor, link, buffer);
    }

    /// Receives on, with room for the rest of a message that is not all there.
    fn receive(&mut self, reactor: &mut Reactor, link: u32, mut buffer: ReceiveBuffer) {
        let Some(file) = self.connections[link as usize].file else {
            return self.keep(link, buffer);
        };
        buffer.shrink_if_empty(RECEIVE_BYTES_KEPT);
        let missing = match message_bytes(buffer.data()) {
            Ok(Some(length)) => length.saturating_sub(buffer.data().len()),
            _ => 0,
        };
        if missing > RECEIVE_BYTES_MIN {
            // Room for the start of the next message too, so that it is seldom moved to the front.
            let wanted_bytes = missing + RECEIVE_BYTES_AHEAD;
            buffer.reserve(wanted_bytes);
            buffer.limit_next(wanted_bytes);
        } else {
            buffer.reserve(RECEIVE_BYTES_MIN);
        }
        reactor.receive(file, buffer, self.token(link, RECEIVE));
        self.in_flight += 1;
    }

    fn keep(&mut self, link: u32, mut buffer: ReceiveBuffer) {
        if self.core.is_idle(link) {
            return;
        }
        buffer.clear();
        buffer.shrink_if_empty(RECEIVE_BYTES_KEPT);
        self.connections[link as usize].buffer = buffer;
    }

    /// Fails everything outstanding and closes the connections.
    pub fn shut_down(&mut self, reactor: &mut Reactor) {
        self.core.fail(ClientError::Closed);
        self.act(reactor, monotonic_ns());
    }
}

/// A [`VolumeClient`] with a reactor of its own, for one thread.
pub struct VolumeConnection {
    reactor: Reactor,
    client: VolumeClient,
    turned: Vec<Completion>,
}

impl VolumeConnection {
    /// Opens a volume and waits until it is open, for at most the time to give up of the configuration.
    pub fn open(config: ClientConfig) -> Result<VolumeConnection, ClientError> {
        let sizes = ReactorConfig { busy_poll_ns: config.busy_poll_ns, ..ReactorConfig::default() };
        let reactor = Reactor::new(sizes).map_err(|error| ClientError::Local(error.to_string()))?;
        let patience = LOOK_UP_TIME_MAX.min(Duration::from_nanos(config.give_up_ns));
        check_addresses(&config.addresses, patience, &mut |address| Address::resolve(address))?;
        // No server would answer it, but break the connection each time.
        check_name(&config.volume).map_err(|error| ClientError::Server {
            status: Status::UnknownVolume,
            text: error.to_string(),
        })?;
        let client = VolumeClient::new(config, 0);
        let mut connection = VolumeConnection { reactor, client, turned: Vec::new() };
        while connection.client.volume().is_none() {
            connection.client.flush(&mut connection.reactor);
            if let Some(error) = connection.client.failure() {
                return Err(error.clone());
            }
            connection.turn(Wait::Forever)?;
        }
        Ok(connection)
    }

    /// The usual configuration with a fresh session. `addresses` is one address or several with commas between them.
    pub fn config(addresses: &str, volume: &str) -> ClientConfig {
        ClientConfig::new(addresses, volume, random_u64())
    }

    /// Size of the volume.
    pub fn size_bytes(&self) -> u64 {
        self.client.volume().map_or(0, |volume| volume.size_bytes)
    }

    /// The open volume.
    pub fn client(&self) -> &VolumeClient {
        &self.client
    }

    /// A handle that ends a `poll` from another thread.
    pub fn waker(&self) -> coquina_reactor::Waker {
        self.reactor.waker()
    }

    /// Takes a request; all taken before a `poll` go out together.
    pub fn submit(&mut self, request: ClientRequest) {
        self.client.submit(request);
    }

    /// Sends what was submitted and appends what is finished, waiting for at least one event. It may return
    /// without a completion, for instance after a wake-up.
    pub fn poll(&mut self, wait: Wait, completions: &mut Vec<ClientCompletion>) -> Result<(), ClientError> {
        let before = completions.len();
        self.client.flush(&mut self.reactor);
        self.client.take_completions(completions);
        let result = self.turn(if completions.len() > before { Wait::Poll } else { wait });
        self.client.take_completions(completions);
        result
    }

    /// One turn of the reactor, after a `flush`.
    fn turn(&mut self, wait: Wait) -> Result<(), ClientError> {
        let wait = match (wait, self.client.deadline_ns()) {
            (Wait::Forever, Some(deadline_ns)) => Wait::Until(deadline_ns),
            (Wait::Until(own_ns), Some(deadline_ns)) => Wait::Until(own_ns.min(deadline_ns)),
            (wait, _) => wait,
        };
        let mut turned = std::mem::take(&mut self.turned);
        self.reactor.expect_answers(self.client.outstanding());
        let result = self.reactor.turn(wait, &mut turned);
        for completion in turned.drain(..) {
            if self.client.owns(completion.token) {
                self.client.complete(&mut self.reactor, completion);
            }
        }
        self.turned = turned;
        result.map_err(|error| ClientError::Local(error.to_string()))
    }

    /// A buffer for requests of so many bytes.
    pub fn buffer(length_bytes: usize) -> AlignedBuf {
        AlignedBuf::zeroed(length_bytes.div_ceil(coquina_base::BLOCK_BYTES))
    }
}

/// Fails if no address can be used at all, which time would not change. Names that nobody could look up are tried again for a while.
fn check_addresses(
    addresses: &[String],
    patience: Duration,
    resolve: &mut dyn FnMut(&str) -> Result<Address, AddressError>,
) -> Result<(), ClientError> {
    let began = Instant::now();
    loop {
        let mut failure = "no address of a node was given".to_owned();
        let mut is_passing = false;
        for address in addresses {
            match resolve(address) {
                Ok(_) => return Ok(()),
                Err(error) => {
                    is_passing |= error.is_passing();
                    failure = error.to_string();
                }
            }
        }
        if !is_passing || began.elapsed() >= patience {
            return Err(ClientError::Address(failure));
        }
        std::thread::sleep(LOOK_UP_PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// It failed at once, as a name does that does not exist.
    #[test]
    fn a_name_is_looked_up_again_when_no_name_server_answers() {
        let unanswered = |text: &str| AddressError::Unanswered(text.to_owned(), "no answer".to_owned());
        let addresses = ["a:1".to_owned(), "b:1".to_owned()];
        let patience = Duration::from_secs(20);
        let mut tries = 0;
        let found = check_addresses(&addresses, patience, &mut |text| {
            tries += 1;
            if tries < 4 { Err(unanswered(text)) } else { Address::resolve("127.0.0.1:1") }
        });
        assert_eq!((found, tries), (Ok(()), 4));
        let mut tries = 0;
        let found = check_addresses(&addresses, Duration::ZERO, &mut |text| {
            tries += 1;
            Err(unanswered(text))
        });
        assert!(
            matches!(&found, Err(ClientError::Address(text)) if text.contains("name server")),
            "{found:?}"
        );
        assert_eq!(tries, 2, "it is not waited for without end");
        let mut tries = 0;
        let found = check_addresses(&addresses, patience, &mut |text| {
            tries += 1;
            Err(AddressError::Unresolved(text.to_owned(), "unknown".to_owned()))
        });
        assert!(found.is_err() && tries == 2, "what is known to be wrong is told at once");
    }
}
