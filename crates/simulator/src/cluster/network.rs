//! Connections between copies: each delivers in order or breaks, and both ends are told that it broke before the next one
//! is made. Directions between nodes may be blocked; what is sent then waits, or is lost when the connection breaks.

use std::collections::VecDeque;

use crate::random::Random;

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
