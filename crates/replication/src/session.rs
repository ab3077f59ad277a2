//! Which requests of each client session are in the log, so that a retry does nothing twice, and which generations of
//! attachments are fenced.
//!
//! A request that is in the table and not among the uncommitted entries has taken effect. A client keeps the distance
//! between its newest request and its oldest unanswered one below half of [`SESSION_WINDOW`].
//!
//! Invariant: the table of a copy in sync is a function of its log: the same entries give the same table, evictions
//! included.

use std::collections::{BTreeMap, VecDeque};

/// Request numbers that are remembered per session.
pub const SESSION_WINDOW: u64 = 4096;
/// Sessions that are remembered; the one unused for longest goes first.
pub const SESSIONS_MAX: usize = 1024;

/// One session.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Window {
    /// Sequence number of its newest entry.
    pub used: u64,
    /// Request numbers seen, rising, all within [`SESSION_WINDOW`] of the last.
    pub requests: VecDeque<u64>,
}

/// All sessions and fences of a group.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Sessions {
    /// By session.
    pub windows: BTreeMap<u64, Window>,
    /// Lowest generation still served, by volume.
    pub fences: BTreeMap<u128, u64>,
}

impl Sessions {
    /// Whether the request is in the log (or was, too long ago to tell).
    pub fn contains(&self, session: u64, request: u64) -> bool {
        let Some(window) = self.windows.get(&session) else { return false };
        let Some(&highest) = window.requests.back() else { return false };
        highest >= request.saturating_add(SESSION_WINDOW) || window.requests.binary_search(&request).is_ok()
    }

    /// Notes that a request is in the log.
    pub fn insert(&mut self, session: u64, request: u64, sequence: u64) {
        if self.windows.len() >= SESSIONS_MAX && !self.windows.contains_key(&session) {
            let oldest =
                self.windows.iter().min_by_key(|(_, window)| window.used).map(|(session, _)| *session);
            if let Some(oldest) = oldest {
                self.windows.remove(&oldest);
            }
        }
        let window = self.windows.entry(session).or_default();
        window.used = sequence;
        if let Err(place) = window.requests.binary_search(&request) {
            window.requests.insert(place, request);
        }
        let highest = window.requests.back().copied().unwrap_or(0);
        while window.requests.front().is_some_and(|first| highest - first >= SESSION_WINDOW) {
            window.requests.pop_front();
        }
    }

    /// Notes a fence.
    pub fn fence(&mut self, volume: u128, generation: u64) {
        let lowest = self.fences.entry(volume).or_insert(generation);
        *lowest = generation.max(*lowest);
    }

    /// Whether requests of the generation are refused.
    pub fn is_fenced(&self, volume: u128, generation: u64) -> bool {
        self.fences.get(&volume).is_some_and(|lowest| generation < *lowest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_a_window_and_takes_older_ones_for_applied() {
        let mut sessions = Sessions::default();
        for request in (1..=10_000).filter(|request| request % 3 != 0) {
            assert!(!sessions.contains(7, request));
            sessions.insert(7, request, request);
        }
        assert!(sessions.contains(7, 3), "older than the window");
        assert!(!sessions.contains(7, 9_999));
        assert!(sessions.contains(7, 9_998));
        assert!(!sessions.contains(8, 1));
    }

    #[test]
    fn the_session_unused_for_longest_goes_first() {
        let mut sessions = Sessions::default();
        for session in 0..=SESSIONS_MAX as u64 {
            sessions.insert(session, 1, session + 1);
        }
        assert!(!sessions.contains(0, 1));
        assert!(sessions.contains(1, 1));
    }

    #[test]
    fn a_fence_only_rises() {
        let mut sessions = Sessions::default();
        sessions.fence(1, 5);
        sessions.fence(1, 3);
        assert!(sessions.is_fenced(1, 4));
        assert!(!sessions.is_fenced(1, 5));
        assert!(!sessions.is_fenced(2, 0));
    }
}
