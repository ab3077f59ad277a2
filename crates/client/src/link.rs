//! One connection to a shard, or to the node that opens volumes, across its breaks.

use std::collections::VecDeque;

use coquina_base::DriveId;
use coquina_protocol::{CONNECTION_BYTES_MAX, PAYLOAD_BYTES_MAX, REQUEST_WINDOW, ShardRef};
use coquina_reactor::SendList;

use crate::landing::LandingRead;

/// A client that has so many bytes under way at a server sends no more: with one part of the largest size above that the server still reads
/// what is sent, so that pings are answered, and no TCP window is closed for long, for which the kernel would break the connection.
pub(crate) const IN_FLIGHT_BYTES_MAX: u64 = CONNECTION_BYTES_MAX - 2 * PAYLOAD_BYTES_MAX as u64;

/// Where a connection stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LinkState {
    /// Nothing wants it yet.
    Idle,
    /// Waits to be connected again.
    Backoff { until_ns: u64 },
    /// The driver was told to connect.
    Connecting,
    /// Hello and open are sent.
    Greeting,
    /// Requests can be sent.
    Ready,
}

/// One connection.
pub(crate) struct Link {
    pub(crate) address: String,
    /// The shard it is for; none for the first one, which opens volumes.
    pub(crate) shard: Option<(DriveId, u32)>,
    pub(crate) state: LinkState,
    pub(crate) handle: u64,
    pub(crate) requests_max: u32,
    pub(crate) in_flight: u32,
    /// What these transfer, or change.
    pub(crate) in_flight_bytes: u64,
    /// Parts that were sent on this connection and taken off it before they were answered.
    pub(crate) strays: u32,
    /// Whether a part was answered on this connection.
    pub(crate) has_answered: bool,
    /// Whether the shard is in this process: always ready, and never sent to.
    pub(crate) is_local: bool,
    /// Whether no table needs it any more: it goes with its last part.
    pub(crate) is_left_over: bool,
    /// Numbers of parts to be sent, in order.
    pub(crate) unsent: VecDeque<u64>,
    /// What goes out with the next send.
    pub(crate) list: SendList,
    /// An empty list that keeps its memory.
    pub(crate) spare: SendList,
    pub(crate) sending: bool,
    /// When it was first not ready while wanted.
    pub(crate) broken_since_ns: u64,
    /// When the present state began.
    pub(crate) state_since_ns: u64,
    pub(crate) attempts: u32,
    pub(crate) last_failure: String,
    pub(crate) last_received_ns: u64,
    /// The answer that is received into a program's buffer, if one is.
    pub(crate) landing: LandingRead,
    /// What was done about its present silence: 1 for a ping, more for asking others.
    pub(crate) probes: u32,
}

impl Link {
    pub(crate) fn new(address: String, shard: Option<(DriveId, u32)>) -> Link {
        Link {
            address,
            shard,
            state: LinkState::Idle,
            handle: 0,
            requests_max: 0,
            in_flight: 0,
            in_flight_bytes: 0,
            strays: 0,
            has_answered: false,
            is_local: false,
            is_left_over: false,
            unsent: VecDeque::new(),
            list: SendList::new(),
            spare: SendList::new(),
            sending: false,
            broken_since_ns: 0,
            state_since_ns: 0,
            attempts: 0,
            last_failure: "not connected yet".to_owned(),
            last_received_ns: 0,
            landing: LandingRead::default(),
            probes: 0,
        }
    }

    /// A link to a shard of this process.
    pub(crate) fn local(shard: (DriveId, u32)) -> Link {
        Link {
            state: LinkState::Ready,
            is_local: true,
            requests_max: REQUEST_WINDOW as u32,
            ..Link::new(String::new(), Some(shard))
        }
    }

    pub(crate) fn serves(&self, shard: &ShardRef, is_local: bool) -> bool {
        self.shard == Some((shard.drive, shard.shard))
            && self.is_local == is_local
            && (is_local || self.address == shard.address)
    }

    /// Whether another part may be sent.
    pub(crate) fn has_room(&self) -> bool {
        self.room() > 0
    }

    /// How many parts more may be sent. One less than a server takes: from a client that has as many under way it may read no ping.
    pub(crate) fn room(&self) -> usize {
        if self.in_flight_bytes >= IN_FLIGHT_BYTES_MAX {
            return 0;
        }
        self.requests_max.saturating_sub(1).max(1).saturating_sub(self.in_flight) as usize
    }

    /// Counts a part that is sent, or handed out.
    pub(crate) fn count(&mut self, length_bytes: u32) {
        self.in_flight += 1;
        self.in_flight_bytes += u64::from(length_bytes);
    }

    /// Counts one no more.
    pub(crate) fn uncount(&mut self, length_bytes: u32) {
        self.in_flight -= 1;
        self.in_flight_bytes -= u64::from(length_bytes);
    }

    /// What to send now, if nothing is being sent.
    pub(crate) fn take_list(&mut self) -> Option<SendList> {
        if self.sending || self.list.is_empty() {
            return None;
        }
        self.sending = true;
        let spare = std::mem::take(&mut self.spare);
        Some(std::mem::replace(&mut self.list, spare))
    }

    pub(crate) fn enter(&mut self, state: LinkState, now_ns: u64) {
        self.state = state;
        self.state_since_ns = now_ns;
    }

    /// Gives the memory of a link back that is not connected.
    pub(crate) fn rest(&mut self) {
        self.list = SendList::new();
        self.spare = SendList::new();
        self.unsent = VecDeque::new();
        self.landing = LandingRead::default();
    }

    /// The connection is gone: nothing is on its way any more. See [`ClientCore::reset_link`](crate::core::ClientCore::reset_link).
    pub(crate) fn reset(&mut self) {
        self.list.recycle(drop);
        self.sending = false;
        self.in_flight = 0;
        self.in_flight_bytes = 0;
        self.unsent.clear();
        self.strays = 0;
        self.has_answered = false;
        self.probes = 0;
    }
}
