//! Since when the requests of a connection may have waited, as it was held back.

use coquina_client::LATE_NS;
use coquina_reactor::ReceiveBuffer;

/// How old what a connection's client has sent may be.
///
/// Invariant: no whole message that was received came to this host before `received_since_ns`, and none in the socket before
/// `socket_since_ns`, but for what a receive under way finds at once.
#[derive(Debug)]
pub struct Waiting {
    /// Since when what was received may have been here; `u64::MAX` while nothing is held back.
    received_since_ns: u64,
    /// The same of what lies in the socket: while it is held back, nothing is received from there.
    socket_since_ns: u64,
    /// Receives in a row that were to find the end of the connection.
    pub receives_ahead: u32,
}

impl Default for Waiting {
    fn default() -> Waiting {
        Waiting { received_since_ns: u64::MAX, socket_since_ns: u64::MAX, receives_ahead: 0 }
    }
}

impl Waiting {
    /// No request is taken of what was received.
    pub fn held_back(&mut self, now_ns: u64, received: &ReceiveBuffer) {
        self.receives_ahead = 0;
        self.socket_since_ns = self.socket_since_ns.min(now_ns);
        self.received_since_ns = match received.data() {
            [] => self.socket_since_ns,
            _ => self.received_since_ns.min(now_ns),
        };
    }

    /// All whole messages were taken. What is missing of the next one is to come from the socket.
    pub fn taken(&mut self) {
        self.received_since_ns = self.socket_since_ns;
    }

    /// Something was received.
    pub fn received(&mut self, received: &ReceiveBuffer) {
        if received.room_bytes() > 0 {
            // There was no more.
            self.socket_is_empty();
        }
    }

    /// What comes now is new.
    pub fn socket_is_empty(&mut self) {
        self.socket_since_ns = u64::MAX;
    }

    /// Whether what was received may have waited for so long that its client has given up.
    pub fn is_late(&self, now_ns: u64) -> bool {
        self.received_since_ns.saturating_add(LATE_NS) <= now_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn buffer(bytes: usize) -> ReceiveBuffer {
        let mut received = ReceiveBuffer::with_capacity_bytes(100);
        received.extend(&vec![0; bytes]);
        received
    }

    #[test]
    fn what_was_never_held_back_is_new() {
        let mut waiting = Waiting::default();
        waiting.received(&buffer(100));
        waiting.taken();
        assert!(!waiting.is_late(u64::MAX - 1));
    }

    #[test]
    fn what_lay_in_the_socket_is_as_old_as_what_was_received() {
        let mut waiting = Waiting::default();
        waiting.held_back(10 * MS, &buffer(60));
        assert!(!waiting.is_late(109 * MS) && waiting.is_late(110 * MS));
        // As much as there is room for: there may be more.
        waiting.taken();
        waiting.received(&buffer(100));
        assert!(waiting.is_late(110 * MS));
        waiting.held_back(111 * MS, &buffer(100));
        waiting.taken();
        waiting.received(&buffer(99));
        assert!(waiting.is_late(112 * MS));
        waiting.taken();
        assert!(!waiting.is_late(u64::MAX - 1));
    }

    /// One that has more to ask for than is taken at once is held back all the time, but for no request of it longer than for a moment.
    #[test]
    fn a_client_that_is_held_back_again_and_again_is_not_late() {
        let mut waiting = Waiting::default();
        for turn in 1..1000 {
            waiting.received(&buffer(60));
            waiting.held_back(turn * MS, &buffer(60));
            assert!(!waiting.is_late(turn * MS + MS));
            waiting.held_back(turn * MS, &buffer(0));
            assert!(!waiting.is_late(turn * MS + MS));
            waiting.taken();
        }
    }
}
