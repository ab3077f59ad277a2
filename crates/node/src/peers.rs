//! Connections to other copies: for each pair of copies one, made by the copy of the lower number.
//!
//! Invariants:
//! - a shard is told that a connection is gone before it is told of the next one to the same copy;
//! - what a connection brings is handed to the shard in order, and nothing after the shard was told of its end.

use std::collections::BTreeMap;

use coquina_cluster::{MapView, ShardRef};
use coquina_control::PeerSnapshot;
use coquina_copies::{FEATURES, Payload};
use coquina_protocol::{
    Body, Header, Kind, PeerHello, Status, VERSION_MAX, VERSION_MIN, decode, decode_peer_frame,
    encode_peer_frame, encode_peer_hello, peer_frame_bytes,
};
use coquina_reactor::{Address, Completion, GiveUp, ReceiveBuffer};
use coquina_replication::{CopyId, Message, decode_message, encode_message};
use slab::Slab;

use crate::connection::{Connection, PeerPhase, PeerState, RECEIVE_BYTES_BUSY, State};
use crate::core::{Core, tag};
use crate::native::{Next, Taken};
use crate::request::ConnectionKey;

/// Pause before a connection is made again; doubles up to the largest.
const PAUSE_NS_MIN: u64 = 50_000_000;
const PAUSE_NS_MAX: u64 = 500_000_000;
/// A connection that is not made by then is begun anew. The kernel asks again after 1 s, 3 s and 7 s only, so that on a network
/// that was mended it might be seconds before it does: a new connection asks at once.
const CONNECT_NS_MAX: u64 = 1_000_000_000;
/// Silence after which the kernel gives a connection up.
const SILENCE_SECONDS_MAX: u32 = 4;

/// Another copy.
struct PeerLink {
    reference: ShardRef,
    connection: Option<ConnectionKey>,
    next_ns: u64,
    attempts: u32,
    sent_bytes: u64,
    received_bytes: u64,
}

/// The other copies of a shard's groups.
pub struct PeerLinks {
    own: CopyId,
    links: BTreeMap<CopyId, PeerLink>,
    /// What went to copies, and came from them, that are not linked any more.
    gone_sent_bytes: u64,
    gone_received_bytes: u64,
}

impl PeerLinks {
    /// None yet.
    pub fn new(own: CopyId) -> PeerLinks {
        PeerLinks { own, links: BTreeMap::new(), gone_sent_bytes: 0, gone_received_bytes: 0 }
    }

    /// Whether there is no other copy.
    pub fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// Takes over who the others are. Returns connections that nobody needs any more.
    pub fn follow(&mut self, others: Vec<(CopyId, ShardRef)>) -> Vec<usize> {
        let mut before = std::mem::take(&mut self.links);
        for (copy, reference) in others {
            let fresh = PeerLink {
                reference,
                connection: None,
                next_ns: 0,
                attempts: 0,
                sent_bytes: 0,
                received_bytes: 0,
            };
            let link = before.remove(&copy).unwrap_or(fresh);
            self.links.entry(copy).or_insert(link);
        }
        self.gone_sent_bytes += before.values().map(|link| link.sent_bytes).sum::<u64>();
        self.gone_received_bytes += before.values().map(|link| link.received_bytes).sum::<u64>();
        // They are forgotten when they have been closed.
        let lost: Vec<usize> =
            before.values().filter_map(|link| link.connection).map(|connection| connection.index).collect();
        lost
    }

    /// Bytes sent to other copies and received from them, those included that are not linked any more.
    pub fn bytes(&self) -> (u64, u64) {
        let gone = (self.gone_sent_bytes, self.gone_received_bytes);
        self.links
            .values()
            .fold(gone, |(sent, received), link| (sent + link.sent_bytes, received + link.received_bytes))
    }

    /// All connections, those that are missing included.
    pub fn snapshot(&self, map: &MapView, connections: &Slab<Connection>) -> Vec<PeerSnapshot> {
        let one = |(copy, link): (&CopyId, &PeerLink)| {
            let connection = link.connection.and_then(|key| connections.get(key.index));
            let is_up = |connection: &Connection| {
                matches!(connection.state, State::Peer(PeerState { phase: PeerPhase::Up, .. }))
            };
            let node = map.node_of(link.reference).and_then(|node| map.node(node));
            PeerSnapshot {
                from_copy: self.own.0,
                to_copy: copy.0,
                address: node.map(|node| node.addresses.peer.clone()).unwrap_or_default(),
                connected: connection.is_some_and(is_up),
                sent_bytes: link.sent_bytes,
                received_bytes: link.received_bytes,
            }
        };
        self.links.iter().map(one).collect()
    }

    /// Connections that could not be made in time.
    fn late(&self, now_ns: u64, connections: &Slab<Connection>) -> Vec<usize> {
        let is_late = |index: &usize| {
            connections.get(*index).is_some_and(|connection| {
                let phase = match &connection.state {
                    State::Peer(peer) => Some(peer.phase),
                    _ => None,
                };
                let waited_ns = now_ns.saturating_sub(connection.since_ns);
                phase == Some(PeerPhase::Connecting) && waited_ns >= CONNECT_NS_MAX
            })
        };
        let indices = self.links.values().filter_map(|link| link.connection).map(|key| key.index);
        indices.filter(is_late).collect()
    }

    fn due(&self, now_ns: u64) -> Vec<CopyId> {
        let is_due = |(copy, link): &(&CopyId, &PeerLink)| {
            self.own < **copy && link.connection.is_none() && link.next_ns <= now_ns
        };
        self.links.iter().filter(is_due).map(|(copy, _)| *copy).collect()
    }
}

impl Core {
    /// Makes the connections that are due.
    pub(crate) fn connect_peers(&mut self, slot: usize) {
        if self.stopping_since_ns.is_some() {
            return;
        }
        for index in self.shards[slot].peers.late(self.now_ns, &self.connections) {
            self.close_connection(index);
        }
        for copy in self.shards[slot].peers.due(self.now_ns) {
            if let Err(reason) = self.connect_peer(slot, copy) {
                tracing::debug!(copy = copy.0, reason, "cannot connect to a copy");
                self.put_off(slot, copy);
            }
        }
    }

    fn connect_peer(&mut self, slot: usize, copy: CopyId) -> Result<(), String> {
        let Some(link) = self.shards[slot].peers.links.get(&copy) else { return Ok(()) };
        let failures = link.attempts;
        let node = self.map.node_of(link.reference).and_then(|node| self.map.node(node));
        let addresses = &node.ok_or("its node is not in the map")?.addresses;
        let text = if addresses.peer.is_empty() { &addresses.native } else { &addresses.peer };
        let address = Address::resolve_next(text, failures).map_err(|error| error.to_string())?;
        let state = PeerState { slot, copy, phase: PeerPhase::Connecting };
        let entry = self.connections.vacant_key();
        let token = tag::CONNECT | entry as u64;
        let connected = self.reactor.connect_to(&address, GiveUp::SilentSeconds(SILENCE_SECONDS_MAX), token);
        let file = connected.map_err(|error| error.to_string())?;
        let index = self.insert_connection(file, State::Peer(state), ReceiveBuffer::default());
        assert_eq!(index, entry, "a connection gets the place that was free");
        let key = ConnectionKey { index, generation: self.connections[index].generation };
        if let Some(link) = self.shards[slot].peers.links.get_mut(&copy) {
            link.connection = Some(key);
        }
        Ok(())
    }

    fn put_off(&mut self, slot: usize, copy: CopyId) {
        let now_ns = self.now_ns;
        let Some(link) = self.shards[slot].peers.links.get_mut(&copy) else { return };
        let pause_ns = (PAUSE_NS_MIN << link.attempts.min(10)).min(PAUSE_NS_MAX);
        link.attempts += 1;
        link.next_ns = now_ns + pause_ns;
    }

    /// A connection to another copy was made, or cannot be.
    pub(crate) fn peer_connected(&mut self, index: usize, completion: &Completion) {
        let Some(connection) = self.connections.get_mut(index).filter(|one| !one.closed) else { return };
        let State::Peer(peer) = &mut connection.state else { return };
        if let Err(errno) = completion.result {
            tracing::debug!(copy = peer.copy.0, %errno, "cannot connect to a copy");
            return self.close_connection(index);
        }
        peer.phase = PeerPhase::Greeting;
        let hello = PeerHello {
            cluster: self.cluster,
            node: self.node,
            from_copy: self.shards[peer.slot].copy.0,
            to_copy: peer.copy.0,
            version_min: VERSION_MIN,
            version_max: VERSION_MAX,
            features: FEATURES,
        };
        encode_peer_hello(connection.output.bytes(), &Header::new(Kind::PeerHello), &hello);
        let file = connection.file;
        let received = ReceiveBuffer::with_capacity_bytes(RECEIVE_BYTES_BUSY);
        self.reactor.receive(file, received, tag::RECEIVE | index as u64);
        self.list(index);
    }

    /// Another copy introduces itself on a connection that it made.
    pub(crate) fn take_peer_hello(
        &mut self,
        index: usize,
        header: &Header,
        hello: &PeerHello,
    ) -> Option<Taken> {
        if hello.version_min > VERSION_MAX || hello.version_max < VERSION_MIN {
            self.reply_error(index, header, Status::VersionMismatch);
            self.close_after_send(index);
            return None;
        }
        if hello.cluster != self.cluster {
            self.reply_error(index, header, Status::WrongCluster);
            self.close_after_send(index);
            return None;
        }
        let (from, to) = (CopyId(hello.from_copy), CopyId(hello.to_copy));
        let reference = self.map.shard_of(to);
        let place = reference.and_then(|reference| self.places.get(&reference).copied());
        if let Some((core, _)) = place.filter(|(core, _)| *core != self.index) {
            return Some(Taken::HandOver(core));
        }
        let is_known = |slot: usize| {
            let slot = &self.shards[slot];
            !slot.released && slot.peers.links.contains_key(&from) && from < to
        };
        let Some((_, slot)) = place.filter(|(_, slot)| is_known(*slot)) else {
            // The maps differ for a moment: it comes again.
            self.reply_error(index, header, Status::NotHere);
            self.close_after_send(index);
            return None;
        };
        let generation = self.connections[index].generation;
        let key = ConnectionKey { index, generation };
        let older = self.shards[slot].peers.links.get(&from).and_then(|link| link.connection);
        if let Some(older) = older {
            self.close_connection(older.index);
        }
        let reply = PeerHello {
            node: self.node,
            from_copy: to.0,
            to_copy: from.0,
            version_min: hello.version_max.min(VERSION_MAX),
            version_max: hello.version_max.min(VERSION_MAX),
            features: hello.features & FEATURES,
            ..*hello
        };
        let connection = &mut self.connections[index];
        encode_peer_hello(connection.output.bytes(), &header.reply(Kind::PeerHelloReply), &reply);
        connection.state = State::Peer(PeerState { slot, copy: from, phase: PeerPhase::Greeting });
        if let Some(link) = self.shards[slot].peers.links.get_mut(&from) {
            link.connection = Some(key);
        }
        self.list(index);
        self.peer_up(index, hello.features & FEATURES);
        None
    }

    fn peer_up(&mut self, index: usize, features: u64) {
        self.tell_lost_peers();
        let State::Peer(peer) = &mut self.connections[index].state else { return };
        peer.phase = PeerPhase::Up;
        let PeerState { slot, copy, .. } = *peer;
        if let Some(link) = self.shards[slot].peers.links.get_mut(&copy) {
            link.attempts = 0;
        }
        tracing::debug!(own = self.shards[slot].copy.0, copy = copy.0, "connected to a copy");
        self.on_shard(slot, |copies, now_ns, hands| {
            copies.set_features(copy, features);
            copies.connected(now_ns, copy, hands);
        });
    }

    /// Takes what another copy says.
    pub(crate) fn parse_peer(&mut self, index: usize, received: &mut ReceiveBuffer) -> Next {
        loop {
            let connection = &mut self.connections[index];
            let State::Peer(peer) = connection.state else { return Next::Gone };
            if connection.closed {
                return Next::Gone;
            }
            let consumed = match peer.phase {
                PeerPhase::Connecting => return Next::Continue,
                PeerPhase::Greeting => match self.take_greeting(index, received.data()) {
                    Ok(consumed) => consumed,
                    Err(reason) => {
                        tracing::debug!(copy = peer.copy.0, reason, "a copy refuses the connection");
                        self.close_connection(index);
                        return Next::Gone;
                    }
                },
                PeerPhase::Up => match self.take_frame(index, peer, received.data()) {
                    Ok(consumed) => consumed,
                    Err(reason) => {
                        self.drop_connection(index, &reason);
                        return Next::Gone;
                    }
                },
            };
            if consumed == 0 {
                let needed = peer_frame_bytes(received.data()).ok().flatten().unwrap_or(0);
                self.connections[index].needed_bytes = needed;
                return Next::Continue;
            }
            received.consume(consumed);
        }
    }

    fn take_greeting(&mut self, index: usize, input: &[u8]) -> Result<usize, String> {
        let Some((message, consumed)) = decode(input).map_err(|error| error.to_string())? else {
            return Ok(0);
        };
        match &message.body {
            Body::PeerHelloReply(hello) if hello.cluster == self.cluster => {
                self.peer_up(index, hello.features & FEATURES);
                Ok(consumed)
            }
            Body::PeerHelloReply(_) => Err("it belongs to another cluster".to_owned()),
            Body::Error(text) => Err(format!("{}: {text}", message.header.status)),
            _ => Err("it does not greet".to_owned()),
        }
    }

    /// Hands a frame to its shard, if all of it is there; gives its length or 0.
    fn take_frame(&mut self, index: usize, peer: PeerState, input: &[u8]) -> Result<usize, String> {
        let Some((frame, consumed)) = decode_peer_frame(input).map_err(|error| error.to_string())? else {
            return Ok(0);
        };
        if let Some(link) = self.shards[peer.slot].peers.links.get_mut(&peer.copy) {
            link.received_bytes += consumed as u64;
        }
        let mut head = frame.head;
        let (message, payload_bytes) = decode_message(&mut head).map_err(|error| error.to_string())?;
        if !head.is_empty() || frame.payload.len() != payload_bytes as usize {
            return Err("a message is not as long as it says".to_owned());
        }
        let result = self.on_shard(peer.slot, |copies, now_ns, hands| {
            copies.receive(now_ns, peer.copy, frame.group, message, frame.payload, hands)
        });
        result.map_err(|error| error.to_string())?;
        // A group may have asked for a new connection meanwhile.
        if self.connections[index].closed { Ok(0) } else { Ok(consumed) }
    }

    /// Queues a message of a group for another copy, unless there is no connection.
    pub(crate) fn send_to_copy(
        &mut self,
        slot: usize,
        to: CopyId,
        group: u32,
        message: &Message,
        payload: Payload<'_>,
    ) {
        let Some(key) = self.shards[slot].peers.links.get(&to).and_then(|link| link.connection) else {
            return;
        };
        let Some(connection) = self.connections.get_mut(key.index) else { return };
        let is_up = matches!(connection.state, State::Peer(PeerState { phase: PeerPhase::Up, .. }));
        if connection.generation != key.generation || connection.closed || !is_up {
            return;
        }
        let length_bytes = payload.length_bytes();
        let out = connection.output.bytes();
        let before = out.len();
        encode_peer_frame(out, group, length_bytes, |out| encode_message(message, length_bytes as u32, out));
        payload.append_to(out);
        let sent_bytes = (out.len() - before) as u64;
        if let Some(link) = self.shards[slot].peers.links.get_mut(&to) {
            link.sent_bytes += sent_bytes;
        }
        self.list(key.index);
    }

    /// Ends the connection to a copy.
    pub(crate) fn break_peer(&mut self, slot: usize, copy: CopyId, reason: &str) {
        let Some(key) = self.shards[slot].peers.links.get(&copy).and_then(|link| link.connection) else {
            return;
        };
        tracing::debug!(copy = copy.0, reason, "the connection to a copy is broken off");
        self.close_connection(key.index);
    }

    /// A connection to another copy has been closed.
    pub(crate) fn peer_closed(&mut self, index: usize, peer: PeerState) {
        let generation = self.connections[index].generation;
        let link = self.shards[peer.slot].peers.links.get_mut(&peer.copy);
        if let Some(link) = link.filter(|link| {
            link.connection.is_some_and(|key| key.index == index && key.generation == generation)
        }) {
            link.connection = None;
            self.put_off(peer.slot, peer.copy);
        }
        if peer.phase == PeerPhase::Up {
            self.lost_peers.push((peer.slot, peer.copy));
        }
    }

    /// Tells shards which connections are gone.
    pub(crate) fn tell_lost_peers(&mut self) {
        for (slot, copy) in std::mem::take(&mut self.lost_peers) {
            if !self.shards[slot].released {
                self.on_shard(slot, |copies, now_ns, hands| copies.disconnected(now_ns, copy, hands));
            }
        }
    }
}
