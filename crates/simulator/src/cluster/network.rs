//! Connections between copies: each delivers in order or breaks, and both ends are told that it broke before the next one
//! is made. Directions between nodes may be blocked; what is sent then waits, or is lost when the connection breaks.

use std::collections::VecDeque;

use coquina_copies::ShardCopies;
use coquina_replication::{Group, Message, decode_message};

use super::node::copy_id;
use super::report::Rare;
use super::world::{Event, World};
use crate::random::Random;
use crate::violation::Violation;

/// Time between looks at a link.
const LINK_NS: u64 = 3_000_000;

/// Bytes of one message on its way, with its group.
pub type Packet = (u32, Vec<u8>);

/// The connection between two copies, of which the first has the lower number.
#[derive(Debug)]
pub struct Link {
    pub ends: [usize; 2],
    /// Number of the connection there is or was.
    pub connection: u64,
    /// Whether it delivers.
    pub alive: bool,
    /// Which ends know of it.
    pub up: [bool; 2],
    /// When the last message to each end arrives.
    pub last_ns: [u64; 2],
    /// What waits for a blocked direction, by receiving end.
    pub held: [VecDeque<Packet>; 2],
    /// Since when something is held.
    pub blocked_since_ns: Option<u64>,
}

impl Link {
    pub fn new(ends: [usize; 2]) -> Link {
        Link {
            ends,
            connection: 0,
            alive: false,
            up: [false; 2],
            last_ns: [0; 2],
            held: Default::default(),
            blocked_since_ns: None,
        }
    }

    /// Whether a new connection can be made.
    pub fn is_idle(&self) -> bool {
        !self.alive && self.up == [false; 2]
    }

    /// The end that a copy is.
    pub fn end_of(&self, copy: usize) -> usize {
        usize::from(self.ends[1] == copy)
    }

    /// When a message sent now arrives at an end.
    pub fn arrival_ns(&mut self, end: usize, now_ns: u64, delay_ns: (u64, u64), random: &mut Random) -> u64 {
        let delay = random.between(delay_ns.0, delay_ns.1);
        let delay = if random.chance(1, 500) { delay * 20 } else { delay };
        self.last_ns[end] = self.last_ns[end].max(now_ns + delay);
        self.last_ns[end]
    }
}

impl World {
    pub fn link_of(&self, one: usize, other: usize) -> Option<usize> {
        let ends = [one.min(other), one.max(other)];
        self.links.iter().position(|link| link.ends == ends)
    }

    fn is_blocked(&self, link: usize, end: usize) -> bool {
        let ends = self.links[link].ends;
        self.blocked[self.node_of(ends[1 - end])][self.node_of(ends[end])] > 0
    }

    pub fn send(&mut self, from: usize, to: usize, group: u32, bytes: Vec<u8>) {
        let Some(link) = self.link_of(from, to) else { return };
        let end = self.links[link].end_of(to);
        if !self.links[link].alive || !self.links[link].up[1 - end] {
            return;
        }
        if self.is_blocked(link, end) || !self.links[link].held[end].is_empty() {
            self.links[link].held[end].push_back((group, bytes));
            return;
        }
        self.dispatch(link, end, group, bytes);
    }

    fn dispatch(&mut self, link: usize, end: usize, group: u32, bytes: Vec<u8>) {
        let delay_ns = self.plan.delay_ns;
        let one = &mut self.links[link];
        let connection = one.connection;
        let at_ns = one.arrival_ns(end, self.now_ns, delay_ns, &mut self.random);
        self.at(at_ns - self.now_ns, Event::Deliver { link, end, connection, group, bytes });
    }

    /// What waited for a direction that is free again goes on.
    pub fn release_held(&mut self) {
        for link in 0..self.links.len() {
            for end in 0..2 {
                while !self.is_blocked(link, end) {
                    let Some((group, bytes)) = self.links[link].held[end].pop_front() else { break };
                    self.dispatch(link, end, group, bytes);
                }
            }
        }
    }

    pub fn deliver(
        &mut self,
        link: usize,
        end: usize,
        connection: u64,
        group: u32,
        bytes: &[u8],
    ) -> Result<(), Violation> {
        let one = &self.links[link];
        if one.connection != connection || !one.alive || !one.up[end] {
            return Ok(());
        }
        let (to, from) = (one.ends[end], one.ends[1 - end]);
        let mut rest = bytes;
        let decoded = decode_message(&mut rest);
        let (message, length) =
            decoded.map_err(|error| Violation::Group(format!("a message cannot be read: {error}")))?;
        assert_eq!(rest.len(), length as usize, "the length of the data behind a message");
        self.report.messages += 1;
        self.note(&[10, from as u64, to as u64, u64::from(group), bytes.len() as u64]);
        self.note_bytes(bytes);
        self.count_message(to, &message);
        self.say(|| format!("{from} -> {to}, group {group}: {message:?}"));
        let flipped = self.flip(&message, rest);
        let rest = flipped.as_deref().unwrap_or(rest);
        let (mut result, mut is_received) = (Ok(()), false);
        let is_release = matches!(message, Message::Released { .. });
        let mut begins = false;
        self.with_copy(to, |copies, now_ns, out| {
            let serves = |copies: &ShardCopies| copies.group(group).is_some_and(Group::is_serving);
            let served = serves(copies);
            result = copies.receive(now_ns, copy_id(from), group, message, rest, out);
            is_received = true;
            begins = is_release && !served && serves(copies);
        })?;
        if begins {
            self.report.saw(Rare::ServedByRelease);
        }
        if flipped.is_none() {
            return result.map_err(|error| Violation::Group(error.to_string()));
        }
        if is_received && result.is_ok() {
            return Err(Violation::Group(format!("copy {to} has taken a block of which a bit had flipped")));
        }
        self.report.faults += 1;
        self.report.saw(Rare::BitFlipped);
        self.break_link(link);
        Ok(())
    }

    /// What came behind an entry, now and then with a bit flipped.
    fn flip(&mut self, message: &Message, data: &[u8]) -> Option<Vec<u8>> {
        let is_calm = self.calm;
        let random = self.flips.as_mut().filter(|_| !is_calm && !data.is_empty())?;
        let has_entries = matches!(message, Message::Append { .. } | Message::Tail { .. });
        // Tails are few.
        let one_in = if matches!(message, Message::Tail { .. }) { 4 } else { 400 };
        if !has_entries || !random.chance(1, one_in) {
            return None;
        }
        let mut data = data.to_vec();
        let byte = random.below(data.len() as u64) as usize;
        data[byte] ^= 1 << random.below(8);
        Some(data)
    }

    /// Makes a connection where there is none, or gives one up that has been blocked for long.
    pub fn look_at_link(&mut self, link: usize) {
        let wait_ns = self.random.between(LINK_NS / 3, LINK_NS);
        self.at(wait_ns, Event::Link(link));
        let is_blocked = self.is_blocked(link, 0) || self.is_blocked(link, 1);
        let ends = self.links[link].ends;
        let is_there = |copy: &usize| self.nodes[self.node_of(*copy)].up && !self.hosts[*copy].is_gone;
        let both_up = ends.iter().all(is_there);
        if self.links[link].is_idle() && both_up && !is_blocked {
            let times = [0, 1].map(|_| self.now_ns + self.random.between(50_000, 2_000_000));
            let one = &mut self.links[link];
            one.connection += 1;
            one.alive = true;
            one.last_ns = times;
            one.blocked_since_ns = None;
            let connection = one.connection;
            for (end, at_ns) in times.into_iter().enumerate() {
                self.at(at_ns - self.now_ns, Event::Connect { link, end, connection });
            }
        }
        let since = &mut self.links[link].blocked_since_ns;
        if !is_blocked {
            *since = None;
        } else if self.now_ns - *since.get_or_insert(self.now_ns) > 100_000_000 && self.random.chance(1, 10) {
            self.break_link(link);
        }
    }

    pub fn connect_end(&mut self, link: usize, end: usize, connection: u64) -> Result<(), Violation> {
        let one = &mut self.links[link];
        if one.connection != connection || !one.alive || self.hosts[one.ends[end]].is_gone {
            return Ok(());
        }
        one.up[end] = true;
        let (copy, other) = (one.ends[end], one.ends[1 - end]);
        self.note(&[11, copy as u64, other as u64]);
        self.with_copy(copy, |copies, now_ns, out| copies.connected(now_ns, copy_id(other), out))
    }

    pub fn disconnect_end(&mut self, link: usize, end: usize, connection: u64) -> Result<(), Violation> {
        let one = &mut self.links[link];
        if one.connection != connection || !one.up[end] {
            return Ok(());
        }
        one.up[end] = false;
        let (copy, other) = (one.ends[end], one.ends[1 - end]);
        self.note(&[12, copy as u64, other as u64]);
        self.with_copy(copy, |copies, now_ns, out| copies.disconnected(now_ns, copy_id(other), out))
    }

    /// Nothing is delivered any more; both ends will notice.
    pub fn break_link(&mut self, link: usize) {
        let one = &mut self.links[link];
        if !one.alive && one.up == [false; 2] {
            return;
        }
        one.alive = false;
        one.held = Default::default();
        let connection = one.connection;
        for end in 0..2 {
            if self.links[link].up[end] {
                let delay_ns = self.random.between(10_000, 5_000_000);
                self.at(delay_ns, Event::Disconnect { link, end, connection });
            }
        }
    }
}
