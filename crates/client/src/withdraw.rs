//! Requests that nobody waits for any more.
//!
//! Invariant: of a request that was withdrawn nothing is sent, or handed out, that was not before. What is with a server may take effect
//! still; what it refuses, and what was on a connection that
//! breaks, ends. It does not move to another server.

use crate::core::ClientCore;
use crate::error::ClientError;

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
        for number in self.window.numbers() {
            let Some(part) = self.window.peek(number) else { continue };
            let (request, link) = (part.request, part.link);
            if part.in_flight || !self.is_withdrawn(request) {
                continue;
            }
            if let Some(link) = self.links.get_mut(link as usize) {
                link.unsent.retain(|waiting| *waiting != number);
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
        self.requests[request as usize].as_ref().is_some_and(|request| request.is_withdrawn)
    }

    /// Whether requests are tried again, or will be.
    pub(crate) fn tries_again(&self) -> bool {
        self.sends_again || !self.parked.is_empty()
    }

    /// Whether something is about to be sent that was sent before and may be long out of date, if it was withdrawn unnoticed.
    pub fn may_send_again(&self, now_ns: u64) -> bool {
        self.sends_again || self.parked.iter().any(|parked| parked.until_ns <= now_ns)
    }
}
