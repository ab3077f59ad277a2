//! Which requests of each client session have taken effect, so that a retry does nothing twice.
//!
//! A client keeps the distance between its newest request number and its oldest unanswered one below
//! [`SESSION_WINDOW`] / 2, so that a bit per request in a sliding window is enough.

use hashbrown::HashMap;

use crate::hash::FixedState;

/// Request numbers that are remembered per session.
pub const SESSION_WINDOW: u64 = 4096;
/// Sessions that are remembered; the one unused for longest goes first.
pub const SESSIONS_MAX: usize = 1024;
const WORDS: usize = (SESSION_WINDOW / 64) as usize;
/// Bytes of a session in a checkpoint.
const RECORD_BYTES: usize = 16 + WORDS * 8;

#[derive(Clone)]
struct Window {
    /// Highest request number accepted.
    highest: u64,
    /// Use counter at the last request.
    used: u64,
    accepted: [u64; WORDS],
    applied: [u64; WORDS],
}

/// What is known of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestState {
    /// Never seen.
    New,
    /// In the log, not yet acknowledged.
    UnderWay,
    /// Done.
    Applied,
}

/// All sessions of a shard.
#[derive(Clone, Default)]
pub struct Sessions {
    windows: HashMap<u64, Box<Window>, FixedState>,
    uses: u64,
}

fn bit(request: u64) -> (usize, u64) {
    ((request % SESSION_WINDOW / 64) as usize, 1 << (request % 64))
}

impl Sessions {
    fn window(&mut self, session: u64) -> &mut Window {
        self.uses += 1;
        let uses = self.uses;
        if self.windows.len() >= SESSIONS_MAX && !self.windows.contains_key(&session) {
            let oldest =
                self.windows.iter().min_by_key(|(_, window)| window.used).map(|(session, _)| *session);
            if let Some(oldest) = oldest {
                self.windows.remove(&oldest);
            }
        }
        let window = self.windows.entry(session).or_insert_with(|| {
            Box::new(Window { highest: 0, used: 0, accepted: [0; WORDS], applied: [0; WORDS] })
        });
        window.used = uses;
        window
    }

    /// What is known of a request.
    pub fn state(&self, session: u64, request: u64) -> RequestState {
        let Some(window) = self.windows.get(&session) else { return RequestState::New };
        if request > window.highest {
            return RequestState::New;
        }
        if window.highest - request >= SESSION_WINDOW {
            return RequestState::Applied;
        }
        let (word, mask) = bit(request);
        if window.applied[word] & mask != 0 {
            RequestState::Applied
        } else if window.accepted[word] & mask != 0 {
            RequestState::UnderWay
        } else {
            RequestState::New
        }
    }

    /// Notes that a request is on its way into the log.
    pub fn accept(&mut self, session: u64, request: u64) {
        let window = self.window(session);
        advance(window, request);
        let (word, mask) = bit(request);
        window.accepted[word] |= mask;
    }

    /// Notes that a request has taken effect.
    pub fn apply(&mut self, session: u64, request: u64) {
        let window = self.window(session);
        if window.highest >= request && window.highest - request >= SESSION_WINDOW {
            return;
        }
        advance(window, request);
        let (word, mask) = bit(request);
        window.accepted[word] |= mask;
        window.applied[word] |= mask;
    }

    /// Bytes that they take in a checkpoint.
    pub fn encoded_bytes(&self) -> u64 {
        (self.windows.len() * RECORD_BYTES) as u64
    }

    /// Encodes what is applied, for a checkpoint.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut sessions: Vec<_> = self.windows.iter().collect();
        sessions.sort_by_key(|(_, window)| window.used);
        for (session, window) in sessions {
            out.extend_from_slice(&session.to_le_bytes());
            out.extend_from_slice(&window.highest.to_le_bytes());
            window.applied.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
        }
    }

    /// Decodes a checkpoint's sessions; `None` where the length is not possible.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() % RECORD_BYTES != 0 {
            return None;
        }
        let mut sessions = Sessions::default();
        for record in bytes.chunks_exact(RECORD_BYTES) {
            let mut longs = record.chunks_exact(8).map(|bytes| {
                let mut long = [0; 8];
                long.copy_from_slice(bytes);
                u64::from_le_bytes(long)
            });
            let session = longs.next()?;
            let highest = longs.next()?;
            let window = sessions.window(session);
            window.highest = highest;
            for (word, value) in longs.enumerate() {
                window.applied[word] = value;
                window.accepted[word] = value;
            }
        }
        Some(sessions)
    }
}

fn advance(window: &mut Window, request: u64) {
    if request <= window.highest {
        return;
    }
    if request - window.highest >= SESSION_WINDOW {
        window.accepted = [0; WORDS];
        window.applied = [0; WORDS];
    } else {
        for passed in window.highest + 1..=request {
            let (word, mask) = bit(passed);
            window.accepted[word] &= !mask;
            window.applied[word] &= !mask;
        }
    }
    window.highest = request;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembers_a_window_of_requests_across_a_checkpoint() {
        let mut sessions = Sessions::default();
        for request in 1..=10_000 {
            assert_eq!(sessions.state(7, request), RequestState::New);
            sessions.accept(7, request);
            assert_eq!(sessions.state(7, request), RequestState::UnderWay);
            if request % 3 != 0 {
                sessions.apply(7, request);
            }
        }
        let mut bytes = Vec::new();
        sessions.encode(&mut bytes);
        let restored = Sessions::decode(&bytes).unwrap();
        for request in 10_000 - SESSION_WINDOW + 1..=10_000 {
            let expected = if request % 3 == 0 { RequestState::New } else { RequestState::Applied };
            assert_eq!(restored.state(7, request), expected, "request {request}");
        }
        assert_eq!(restored.state(7, 5), RequestState::Applied);
        assert_eq!(restored.state(8, 5), RequestState::New);
    }
}
