//! Which requests of each client session are in the log, so that a retry does nothing twice, and which generations of
//! attachments are fenced.
//!
//! A request that is in the table and not among the uncommitted entries has taken effect. One that is among them may not be in the
//! table: its session may have been pushed out since. A client keeps the distance between its newest request and its oldest unanswered
//! one below half of [`SESSION_WINDOW`].
//!
//! Invariant: the table of a copy in sync is a function of its log: the same entries give the same table, evictions
//! included.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};

use crate::types::{Entry, EntryKind};

/// Request numbers that are remembered per session.
pub const SESSION_WINDOW: u64 = 4096;
/// Sessions that are remembered; the one unused for longest goes first.
pub const SESSIONS_MAX: usize = 1024;
/// Words of a window's bitmap.
pub const WINDOW_WORDS: usize = (SESSION_WINDOW / 64) as usize;

/// One session: 552 bytes. What each request needs lies first and together.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(C)]
pub struct Window {
    /// Sequence number of its newest entry.
    pub used: u64,
    /// Highest request number seen.
    pub highest: u64,
    /// Requests of several entries of which the last is not in the log, rising, with how many blocks are: when one comes
    /// again only the rest of it is done, so that no block is changed twice.
    pub parts: Vec<(u64, u32)>,
    /// A bit for each request number within [`SESSION_WINDOW`] of the highest, by its remainder.
    pub seen: [u64; WINDOW_WORDS],
}

impl Default for Window {
    fn default() -> Self {
        Window { used: 0, highest: 0, seen: [0; WINDOW_WORDS], parts: Vec::new() }
    }
}

/// Most words of most windows are empty.
impl Hash for Window {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.used, self.highest, &self.parts).hash(state);
        for (place, word) in self.seen.iter().enumerate().filter(|(_, word)| **word != 0) {
            (place, word).hash(state);
        }
    }
}

/// Place of a request's bit.
fn bit(request: u64) -> (usize, u64) {
    ((request % SESSION_WINDOW / 64) as usize, 1 << (request % 64))
}

impl Window {
    /// Whether the request was seen, or is too old to tell.
    pub fn contains(&self, request: u64) -> bool {
        let (word, mask) = bit(request);
        match self.highest.checked_sub(request) {
            None => false,
            Some(age) => age >= SESSION_WINDOW || self.seen[word] & mask != 0,
        }
    }

    /// Notes a part of a request.
    fn insert_part(&mut self, request: u64, blocks: u32) {
        match self.parts.binary_search_by_key(&request, |part| part.0) {
            Ok(place) => self.parts[place].1 += blocks,
            Err(place) => self.parts.insert(place, (request, blocks)),
        }
    }

    /// Forgets the numbers from `first` to `last`, a word at a time: where a client writes to many groups, each sees few of
    /// its numbers and passes over many.
    fn clear(&mut self, first: u64, last: u64) {
        let mut next = Some(first);
        while let Some(from) = next.filter(|next| *next <= last) {
            let word_last = last.min(from | 63);
            let count = word_last - from + 1;
            let mask = (u64::MAX >> (64 - count)) << (from % 64);
            self.seen[bit(from).0] &= !mask;
            // A client may give the last number that there is.
            next = word_last.checked_add(1);
        }
    }

    /// Notes a request.
    fn insert(&mut self, request: u64) {
        if !self.parts.is_empty() {
            let lowest = self.highest.saturating_sub(SESSION_WINDOW);
            self.parts.retain(|part| part.0 != request && part.0 > lowest);
        }
        if request > self.highest {
            if request - self.highest >= SESSION_WINDOW {
                self.seen = [0; WINDOW_WORDS];
            } else {
                self.clear(self.highest + 1, request);
            }
            self.highest = request;
        }
        if self.highest - request < SESSION_WINDOW {
            let (word, mask) = bit(request);
            self.seen[word] |= mask;
        }
    }
}

/// Windows in order of their sessions. Each entry of a log asks for one, in a group that may have known a thousand sessions of which few
/// use it now: so what is searched lies together, 8 bytes for each session, and where the last ones were found is tried before.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Windows {
    /// Rising.
    sessions: Vec<u64>,
    /// Of the session at the same place.
    windows: Vec<Window>,
    found: Found,
}

impl Windows {
    /// Sessions.
    pub fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.sessions.is_empty()
    }

    fn place(&self, session: u64) -> Result<usize, usize> {
        let found = self.found.place(session);
        if self.sessions.get(found) == Some(&session) {
            return Ok(found);
        }
        self.sessions.binary_search(&session)
    }

    fn insert_at(&mut self, place: usize, session: u64, window: Window) {
        self.sessions.insert(place, session);
        self.windows.insert(place, window);
    }

    /// A session's.
    pub fn get(&self, session: u64) -> Option<&Window> {
        self.place(session).ok().map(|place| &self.windows[place])
    }

    /// A session's, an empty one if it has none.
    pub fn get_or_new(&mut self, session: u64) -> &mut Window {
        let place = match self.place(session) {
            Ok(place) => place,
            Err(place) => {
                self.insert_at(place, session, Window::default());
                place
            }
        };
        self.found.note(session, place);
        &mut self.windows[place]
    }

    /// Gives a session a window, in place of the one that it may have.
    pub fn insert(&mut self, session: u64, window: Window) {
        match self.place(session) {
            Ok(place) => self.windows[place] = window,
            Err(place) => self.insert_at(place, session, window),
        }
    }

    /// Forgets a session.
    pub fn remove(&mut self, session: u64) {
        if let Ok(place) = self.place(session) {
            self.sessions.remove(place);
            self.windows.remove(place);
        }
    }

    /// All, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u64, &Window)> {
        self.sessions.iter().copied().zip(&self.windows)
    }

    /// Takes the windows of others in, in place of those of the same sessions.
    pub fn append(&mut self, others: Windows) {
        others
            .sessions
            .into_iter()
            .zip(others.windows)
            .for_each(|(session, window)| self.insert(session, window));
    }
}

/// Where sessions were found last, by a few bits of theirs. A hint that may be wrong, and no part of what a table says: tables with
/// different ones may be equal.
#[derive(Clone, Default, Debug)]
struct Found {
    places: [u16; 16],
}

impl Found {
    fn index(session: u64) -> usize {
        // Fibonacci hashing: the highest 4 bits of a product with 2^64 divided by the golden ratio.
        (session.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 60) as usize
    }

    fn place(&self, session: u64) -> usize {
        usize::from(self.places[Found::index(session)])
    }

    fn note(&mut self, session: u64, place: usize) {
        if let Ok(place) = u16::try_from(place) {
            self.places[Found::index(session)] = place;
        }
    }
}

impl PartialEq for Found {
    fn eq(&self, _: &Found) -> bool {
        true
    }
}

impl Eq for Found {}

impl PartialOrd for Found {
    fn partial_cmp(&self, other: &Found) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Found {
    fn cmp(&self, _: &Found) -> Ordering {
        Ordering::Equal
    }
}

impl Hash for Found {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// All sessions and fences of a group.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Sessions {
    /// By session.
    pub windows: Windows,
    /// Lowest generation still served, by volume.
    pub fences: BTreeMap<u128, u64>,
}

impl Sessions {
    /// Whether the request is in the log (or was, too long ago to tell).
    pub fn contains(&self, session: u64, request: u64) -> bool {
        self.windows.get(session).is_some_and(|window| window.contains(request))
    }

    /// Blocks of a request that are in the log though its last entry is not.
    pub fn part_blocks(&self, session: u64, request: u64) -> u32 {
        let parts = self.windows.get(session).map_or(&[][..], |window| &window.parts);
        parts.iter().find(|part| part.0 == request).map_or(0, |part| part.1)
    }

    /// Whether the next session that is not here pushes another one out.
    pub(crate) fn is_full(&self) -> bool {
        self.windows.len() >= SESSIONS_MAX
    }

    /// Notes an entry of the log; says whether its session has pushed another one out.
    pub fn note(&mut self, entry: &Entry) -> bool {
        if let EntryKind::Fence { volume, generation } = entry.kind {
            self.fence(volume, generation);
        }
        let is_another_out = self.make_room(entry.session);
        let window = self.window(entry.session, entry.sequence);
        if entry.is_last {
            window.insert(entry.request);
        } else {
            window.insert_part(entry.request, entry.range.count);
        }
        is_another_out
    }

    /// Notes that a request is in the log.
    pub fn insert(&mut self, session: u64, request: u64, sequence: u64) {
        self.make_room(session);
        self.window(session, sequence).insert(request);
    }

    /// Forgets the session that was not used for longest, if this one is not here and has no room; says whether it did.
    fn make_room(&mut self, session: u64) -> bool {
        if !self.is_full() || self.windows.get(session).is_some() {
            return false;
        }
        let oldest = self.windows.iter().min_by_key(|(_, window)| window.used).map(|(session, _)| session);
        if let Some(oldest) = oldest {
            self.windows.remove(oldest);
        }
        true
    }

    /// A session that is used now.
    fn window(&mut self, session: u64, sequence: u64) -> &mut Window {
        let window = self.windows.get_or_new(session);
        window.used = sequence;
        window
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
    fn the_last_numbers_that_there_are_can_be_noted() {
        let mut window = Window::default();
        for request in [u64::MAX - 70, u64::MAX - 1, u64::MAX] {
            window.insert(request);
        }
        assert!(window.contains(u64::MAX) && window.contains(u64::MAX - 1) && window.contains(u64::MAX - 70));
        assert!(!window.contains(u64::MAX - 2) && !window.contains(u64::MAX - 64));
    }

    #[test]
    fn numbers_that_are_passed_over_are_forgotten_whatever_their_distance() {
        // The distances meet every place in a word, and words on both sides of it.
        let mut window = Window::default();
        let mut noted = Vec::new();
        let mut request = 0;
        for distance in (1..200).chain([4094, 4095, 1, 64, 63, 65]) {
            request += distance;
            window.insert(request);
            noted.push(request);
            for number in request.saturating_sub(SESSION_WINDOW - 1)..=request {
                let expected = noted.binary_search(&number).is_ok();
                assert_eq!(window.contains(number), expected, "{number} at {request}");
            }
        }
    }

    #[test]
    fn parts_of_a_request_add_up_until_its_last_entry() {
        let mut sessions = Sessions::default();
        let entry = |request, count, is_last| Entry {
            epoch: 1,
            sequence: 1,
            session: 7,
            request,
            kind: EntryKind::Write,
            range: crate::types::BlockRange { count, ..Default::default() },
            is_last,
            payload: Default::default(),
        };
        sessions.note(&entry(5, 16, false));
        sessions.note(&entry(6, 16, false));
        sessions.note(&entry(5, 16, false));
        assert_eq!((sessions.part_blocks(7, 5), sessions.part_blocks(7, 6)), (32, 16));
        assert!(!sessions.contains(7, 5));
        sessions.note(&entry(5, 3, true));
        assert_eq!((sessions.part_blocks(7, 5), sessions.part_blocks(7, 6)), (0, 16));
        assert!(sessions.contains(7, 5));
        sessions.note(&entry(6 + SESSION_WINDOW + 1, 1, true));
        sessions.note(&entry(6 + SESSION_WINDOW + 2, 1, true));
        assert_eq!(sessions.part_blocks(7, 6), 0, "older than the window");
    }

    #[test]
    fn windows_are_found_by_their_sessions_and_lie_in_their_order() {
        let mut windows = Windows::default();
        let window = |highest| Window { highest, ..Window::default() };
        for session in [5, 1, 9, 3, 7] {
            assert_eq!(windows.get(session), None);
            windows.get_or_new(session).highest = session;
        }
        windows.remove(3);
        windows.remove(4);
        let mut others = Windows::default();
        for (session, highest) in [(4, 40), (5, 50), (11, 110)] {
            others.insert(session, window(highest));
        }
        windows.append(others);
        windows.insert(1, window(10));
        let all: Vec<_> = windows.iter().map(|(session, window)| (session, window.highest)).collect();
        assert_eq!(all, [(1, 10), (4, 40), (5, 50), (7, 7), (9, 9), (11, 110)]);
        assert_eq!((windows.len(), windows.get(3), windows.get(9)), (6, None, Some(&window(9))));
    }

    /// Against a map, with more sessions than are noted as found last, and with places that move.
    #[test]
    fn where_sessions_were_found_last_changes_nothing_but_the_way() {
        let mut windows = Windows::default();
        let mut model = BTreeMap::new();
        let mut state = 1u64;
        for step in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let session = (state >> 33) % 90;
            match (state >> 50) % 8 {
                0 => {
                    windows.remove(session);
                    model.remove(&session);
                }
                1 => {
                    let window = Window { highest: step, ..Window::default() };
                    windows.insert(session, window.clone());
                    model.insert(session, window);
                }
                2 => assert_eq!(windows.get(session), model.get(&session), "at {step}"),
                _ => {
                    windows.get_or_new(session).used = step;
                    model.entry(session).or_default().used = step;
                }
            }
        }
        assert!(windows.iter().eq(model.iter().map(|(session, window)| (*session, window))));
        let mut again = Windows::default();
        model.iter().rev().for_each(|(session, window)| again.insert(*session, window.clone()));
        assert_ne!(again.found.places, windows.found.places);
        assert_eq!(again, windows, "what was found last is no part of it");
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
