//! Requests that nobody waits for any more.
//!
//! Invariant: of a request that was withdrawn nothing is sent, or handed out, that was not before. What is with a server may take effect
//! still; what it refuses, what was on a connection that
//! breaks, and what is with a shard of this process whose group moves, ends. It does not move to another server.

use coquina_protocol::REQUEST_WINDOW;

use crate::core::ClientCore;
use crate::error::ClientError;
use crate::link::{Link, LinkState};
use crate::request::{Part, Request};

/// Who has waited so long may have given up, and have asked anew elsewhere.
pub const LATE_NS: u64 = 100_000_000;
/// Time between two looks for who is gone, while nothing can go that is tried again, or is late.
const LOOK_NS_MIN: u64 = 5_000_000;

/// What is received from a client at most while no request of it is taken, and requests are tried again.
const AHEAD_BYTES_MAX: usize = 64 << 20;
/// The same while some are late.
const AHEAD_BYTES_MAX_LATE: usize = 4 << 20;

fn is_withdrawn(requests: &[Option<Request>], index: u32) -> bool {
    requests[index as usize].as_ref().is_some_and(|request| request.is_withdrawn)
}

impl ClientCore {
    /// Withdraws the requests that `is_meant`, by their tokens. They complete with an error: at once, but for those of which a part is with a
    /// server.
    pub fn withdraw(&mut self, is_meant: impl Fn(u64) -> bool) {
        let (meant, early): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.early).into_iter().partition(|request| is_meant(request.token));
        self.early = early;
        for request in meant {
            self.refuse(request, Err(ClientError::Withdrawn));
        }
        for request in self.requests.iter_mut().flatten().filter(|request| is_meant(request.token)) {
            request.is_withdrawn = true;
            // No more parts are made of it.
            request.error.get_or_insert(ClientError::Withdrawn);
        }
        // All at once: to look for each of them among everybody's requests may take long.
        let (requests, window) = (&self.requests, &self.window);
        self.backlog.retain(|index| !is_withdrawn(requests, *index));
        self.behind_aside.retain(|index| !is_withdrawn(requests, *index));
        let lasts =
            |number: &u64| window.peek(*number).is_none_or(|part| !is_withdrawn(requests, part.request));
        self.links.iter_mut().for_each(|link| link.unsent.retain(lasts));
        for number in self.window.numbers() {
            let Some(part) = self.window.peek(number) else { continue };
            if part.in_flight || !self.is_withdrawn(part.request) {
                continue;
            }
            self.finish_part(number, Err(ClientError::Withdrawn));
        }
        let window = &self.window;
        self.parked.retain(|parked| window.peek(parked.number).is_some());
        for index in 0..self.requests.len() as u32 {
            if self.is_withdrawn(index) {
                self.finish_if_done(index);
            }
        }
    }

    /// Whether nobody waits for a request any more.
    pub(crate) fn is_withdrawn(&self, request: u32) -> bool {
        is_withdrawn(&self.requests, request)
    }

    /// Whether a request has waited so long that its client may have given it up.
    fn is_late(&self, request: u32, now_ns: u64) -> bool {
        let request = self.requests[request as usize].as_ref();
        request.is_some_and(|request| request.asked_ns.saturating_add(LATE_NS) <= now_ns)
    }

    /// Whether a part that is to be sent was sent before, or is late.
    pub(crate) fn may_be_stale(&self, part: &Part, now_ns: u64) -> bool {
        part.sends > 0 || self.is_late(part.request, now_ns)
    }

    /// Whether parts wait for a connection that is being made, or made anew.
    fn waits_for_links(&self) -> bool {
        let is_made = |link: &Link| !matches!(link.state, LinkState::Idle | LinkState::Ready);
        let waits = |part: &Part| !part.parked && self.links.get(part.link as usize).is_some_and(is_made);
        self.links.iter().any(is_made) && self.window.parts().any(waits)
    }

    /// Whether requests are tried again, or will be.
    pub(crate) fn tries_again(&self) -> bool {
        self.sends_again || !self.parked.is_empty() || self.waits_for_links()
    }

    /// Whether something late waits, or has waited, for room.
    fn has_late(&self, now_ns: u64) -> bool {
        let is_late =
            |number: &u64| self.window.peek(*number).is_some_and(|part| self.is_late(part.request, now_ns));
        !self.behind_aside.is_empty()
            || self.backlog.front().is_some_and(|request| self.is_late(*request, now_ns))
            || self.links.iter().any(|link| link.unsent.front().is_some_and(is_late))
    }

    /// How many bytes of who asks, and is read from no further, are to be there at most: behind them may be the end of who asked for what
    /// waits. Where nothing but room is missing, a client that lives should be held back instead.
    pub fn ahead_bytes_max(&self, now_ns: u64) -> usize {
        match self.tries_again() {
            true => AHEAD_BYTES_MAX,
            false if self.has_late(now_ns) => AHEAD_BYTES_MAX_LATE,
            false => 0,
        }
    }

    /// Whether the next `pump` has room for something that was sent before, or is late.
    fn has_room_for_stale(&self, now_ns: u64) -> bool {
        let numbers = match self.window.room() {
            // Others get their numbers when the oldest are laid aside.
            0 if self.has_stuck(now_ns) => REQUEST_WINDOW as usize,
            room => room,
        };
        let is_stale =
            |number: &u64| self.window.peek(*number).is_some_and(|part| self.may_be_stale(part, now_ns));
        self.backlog.iter().take(numbers).any(|request| self.is_late(*request, now_ns))
            || self.links.iter().any(|link| {
                link.state == LinkState::Ready && link.unsent.iter().take(link.room()).any(is_stale)
            })
    }

    /// Whether something is about to be sent that may be long out of date, if it was withdrawn unnoticed. Of what waits for room, or for
    /// a connection, it is told from time to time as well.
    pub fn may_send_again(&mut self, now_ns: u64) -> bool {
        let is_due = self.begins_again
            || self.parked.iter().any(|parked| parked.until_ns <= now_ns)
            || self.has_room_for_stale(now_ns);
        let is_time = now_ns >= self.looked_ns.saturating_add(LOOK_NS_MIN);
        let waits = || self.sends_again || self.has_late(now_ns) || self.waits_for_links();
        let is_told = is_due || is_time && waits();
        if is_told {
            self.looked_ns = now_ns;
        }
        is_told
    }
}
