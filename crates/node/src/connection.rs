//! A connection: a socket, what was received, what is to be sent, and what it speaks.

use coquina_cluster::ShardRef;
use coquina_nbd::ServerSession;
use coquina_protocol::{CONNECTION_BYTES_MAX, Header};
use coquina_reactor::{FileId, ReceiveBuffer, SendList};
use coquina_replication::CopyId;

use crate::native::Next;
use crate::waiting::Waiting;

/// Room for the first bytes of a connection.
pub const RECEIVE_BYTES_MIN: usize = 16 << 10;
/// Room that a busy connection gets.
pub const RECEIVE_BYTES_BUSY: usize = 1 << 20;
/// Larger receive buffers are given back when they are empty.
pub const RECEIVE_BYTES_KEPT: usize = 4 << 20;
/// Largest message of a client that has not opened a volume.
pub const GREETING_BYTES_MAX: usize = 16 << 10;
/// Requests of one connection that are under way at the same time.
pub const REQUESTS_MAX: u32 = 1024;
/// A client that has not said what it wants by then is dropped.
pub const HANDSHAKE_NS_MAX: u64 = 10_000_000_000;
/// One of whose message a part has come, and then nothing for so long, is dropped.
pub const MESSAGE_NS_MAX: u64 = 60_000_000_000;
/// A client that takes nothing for so long is dropped.
pub const SEND_NS_MAX: u64 = 60_000_000_000;

/// What a connection speaks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// NBD.
    Nbd,
    /// The native protocol, of clients and of other copies until they have said what they are.
    Native,
    /// What copies say to each other.
    Peer,
}

/// Where a connection is in its protocol.
pub enum State {
    /// NBD.
    Nbd(Box<ServerSession>),
    /// The native protocol.
    Native(Box<NativeState>),
    /// Another copy.
    Peer(PeerState),
}

/// A connection to another copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerState {
    /// Slot of the shard here.
    pub slot: usize,
    /// The copy at the other end.
    pub copy: CopyId,
    /// How far it is.
    pub phase: PeerPhase,
}

/// How far a connection to another copy is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeerPhase {
    /// Being made.
    Connecting,
    /// The greeting is under way.
    Greeting,
    /// Messages of groups go both ways.
    Up,
}

/// A native connection.
#[derive(Default)]
pub struct NativeState {
    /// From Hello; 0 before it.
    pub session: u64,
    /// The shard it is for.
    pub shard: Option<(ShardRef, usize)>,
    /// Whether Hello was answered.
    pub greeted: bool,
    /// Whether the volume was opened for reading only.
    pub read_only: bool,
    /// The write whose payload is being received into the buffers of its frames.
    pub landing: Option<LandingWrite>,
    /// A list of checksums to be used again.
    pub spare_checksums: Vec<u8>,
}

/// A write whose payload is on its way into its landing.
pub struct LandingWrite {
    /// Its header.
    pub header: Header,
    /// CRC32C of each block, little-endian.
    pub checksums_le: Vec<u8>,
    /// Where the next message goes.
    pub received: ReceiveBuffer,
}

/// A connection.
pub struct Connection {
    /// Its socket.
    pub file: FileId,
    /// Tells it from others that had its place.
    pub generation: u32,
    /// What it speaks.
    pub state: State,
    /// What was received, unless the reactor has it.
    pub received: Option<ReceiveBuffer>,
    /// What is to be sent.
    pub output: SendList,
    /// The list to fill while the other is on its way.
    pub spare: Option<SendList>,
    /// Whether a send is on its way.
    pub sending: bool,
    /// Bytes of the list that it sends.
    pub sending_bytes: usize,
    /// Requests under way.
    pub under_way: u32,
    /// Their bytes.
    pub under_way_bytes: u64,
    /// Bytes of the next request, if it was not taken because there was no room for it.
    pub next_bytes: u64,
    /// Whether requests wait in `received` because too many are under way.
    pub held_back: bool,
    /// Since when what it has sent may wait for that.
    pub waiting: Waiting,
    /// Whether it is in the list of connections that need a look.
    pub listed: bool,
    /// To be closed when everything is sent.
    pub closing: bool,
    /// Whether its client sends no more, and all it has sent was received.
    pub ended: bool,
    /// Being closed.
    pub closed: bool,
    /// When it was told that nothing more is sent, at the beginning of a stop; `u64::MAX` before.
    pub told_end_ns: u64,
    /// Slot of the volume it works on.
    pub volume: Option<usize>,
    /// When it came.
    pub since_ns: u64,
    /// When something last came, or was last taken up again.
    pub received_ns: u64,
    /// Whether a message has begun to come that is not all there.
    pub is_within_message: bool,
    /// When a send last went on.
    pub sent_ns: u64,
    /// Bytes that must be there for the next step.
    pub needed_bytes: usize,
}

impl Connection {
    /// What it speaks.
    pub fn protocol(&self) -> Protocol {
        match self.state {
            State::Nbd(_) => Protocol::Nbd,
            State::Native(_) => Protocol::Native,
            State::Peer(_) => Protocol::Peer,
        }
    }

    /// Whether no more requests are taken for now: what is under way and what waits for its client to take it is bounded together, with
    /// the next request, unless it is the only one.
    pub fn is_full(&self) -> bool {
        let answers_bytes = self.output.length_bytes() + self.sending_bytes;
        let held_bytes = self.under_way_bytes + answers_bytes as u64;
        let has_no_room = held_bytes > 0 && held_bytes + self.next_bytes > CONNECTION_BYTES_MAX;
        self.under_way >= REQUESTS_MAX || held_bytes >= CONNECTION_BYTES_MAX || has_no_room
    }

    /// Whether a request that holds so many bytes is taken now. If not, it is looked at again when it has room.
    pub fn has_room_for(&mut self, bytes: u64) -> bool {
        self.next_bytes = bytes;
        let has_room = !self.is_full();
        if has_room {
            self.next_bytes = 0;
        }
        self.held_back |= !has_room;
        has_room
    }

    /// What follows if no request is taken from it now; one that is full is looked at again when it has room.
    pub fn takes_no_request(&mut self) -> Option<Next> {
        if self.closing || self.closed {
            return Some(Next::Gone);
        }
        self.held_back |= self.is_full();
        self.is_full().then_some(Next::Continue)
    }

    /// Whether memory waits for the rest of a message.
    pub fn awaits_rest(&self) -> bool {
        let lands = matches!(&self.state, State::Native(native) if native.landing.is_some());
        self.is_within_message || lands
    }

    /// Whether it still has to say what it wants.
    pub fn is_in_handshake(&self) -> bool {
        match &self.state {
            State::Nbd(_) => self.volume.is_none(),
            State::Native(native) => !native.greeted,
            State::Peer(peer) => peer.phase != PeerPhase::Up,
        }
    }
}
