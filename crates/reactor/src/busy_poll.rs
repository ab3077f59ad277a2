//! How long a reactor looks for the next completion before it sleeps.
//!
//! To wake a processor that has gone idle costs more than a short wait, above all in a virtual machine. So a reactor whose
//! waits have been short of late gives its processor to whoever wants it (`sched_yield`) and looks again, for a bounded time; the
//! window grows and shrinks by what the last waits were, as guest halt polling of Linux does (`cpuidle/governors/haltpoll.c`). Waits for what is known to
//! be on its way and waits for what somebody may ask next are told apart, since the first may be short where the second are long.
//!
//! Invariants:
//! - a reactor that nobody asks for anything sleeps: a wait that was longer than the limit shrinks its window, down to nothing;
//! - a reactor of whose waits more than about a third are longer than the limit sleeps: looking costs a processor then, and the wake-ups
//!   that it saves are too few;
//! - on processors that others want there is no polling: a thread that gives its processor away again and again is also given it
//!   back later when it wakes. The scheduler's own count of how long the thread stood in line tells (`schedstat`).

use crate::sched_stat::InLine;

/// So many short waits in a row open a window: the few messages that an idle node gets at once do not.
const STREAK: u32 = 8;
/// All of the last waits were short; a wait changes the share by an eighth of what is left to go. Where many requests are under way,
/// waits are judged by a shorter limit, and change nothing.
const SHARE_ALL: u32 = 1 << 16;
const SHARE_WAITS: u32 = 8;
/// A window of which a smaller share of waits was short is closed.
const SHARE_MIN: u32 = SHARE_ALL / 100 * 65;
/// From so many requests under way on average, there are no windows longer than a part of the limit: each event is about several of them
/// then, so that a sleep costs each of them little, and looking for long costs each of them much.
const CROWD: u64 = 20;
/// Waits that the average is taken over, about.
const CROWD_WAITS: u64 = 16;
const CROWD_PART: u64 = 6;
/// Windows below this are none.
const WINDOW_MIN_NS: u64 = 8_000;
/// How often to look how long the thread stood in line.
const LOOK_NS: u64 = 5_000_000;
/// What was before that does not count.
const RECENT_NS: u64 = 100_000_000;
/// Who stands in line for so long each time, on average, has company that does not sleep: other reactors are done sooner.
const IN_LINE_NS: u64 = 400_000;
/// How long there is no polling after that: at first, and at most when it happens again and again.
const REST_MIN_NS: u64 = 50_000_000;
const REST_MAX_NS: u64 = 2_000_000_000;
/// After so many rests without company the next one is as short as the first.
const FORGET_RESTS: u64 = 4;

/// What the next wait is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Expecting {
    /// Something under way: a drive's work, an answer.
    Answer = 0,
    /// Whatever somebody may ask.
    Request = 1,
}

#[derive(Clone, Copy, Default, Debug)]
struct Window {
    length_ns: u64,
    /// Short waits in a row.
    streak: u32,
    /// Share of short waits since it was opened, the last ones most: of [`SHARE_ALL`].
    short_share: u32,
}

/// The windows of a reactor. All times are of [`monotonic_ns`](crate::monotonic_ns).
#[derive(Debug)]
pub(crate) struct BusyPoll {
    limit_ns: u64,
    /// Requests under way at the last waits, times [`CROWD_WAITS`].
    crowd: u64,
    windows: [Window; 2],
    rest_ns: u64,
    resting_until_ns: u64,
    seen: InLine,
    seen_ns: u64,
}

impl BusyPoll {
    /// Never polls longer than `limit_ns` at a time; 0 is never.
    pub(crate) fn new(limit_ns: u64) -> BusyPoll {
        BusyPoll {
            limit_ns,
            crowd: 0,
            windows: [Window::default(); 2],
            rest_ns: REST_MIN_NS,
            resting_until_ns: 0,
            seen: InLine::default(),
            seen_ns: 0,
        }
    }

    /// Says how many requests are under way at the next wait.
    pub(crate) fn expect(&mut self, requests: usize) {
        self.crowd = self.crowd - self.crowd / CROWD_WAITS + requests as u64;
    }

    /// Whether many requests were under way at the last waits.
    pub(crate) fn is_crowded(&self) -> bool {
        self.crowd >= CROWD * CROWD_WAITS
    }

    fn limit_ns(&self) -> u64 {
        if self.is_crowded() { self.limit_ns / CROWD_PART } else { self.limit_ns }
    }

    /// How long to look before the next sleep.
    pub(crate) fn window_ns(&self, expecting: Expecting, now_ns: u64) -> u64 {
        if now_ns < self.resting_until_ns {
            0
        } else {
            self.windows[expecting as usize].length_ns.min(self.limit_ns())
        }
    }

    /// Learns how long a wait was, with the sleep if there was one.
    pub(crate) fn waited(&mut self, expecting: Expecting, waited_ns: u64) {
        let limit_ns = self.limit_ns();
        let share_counts = !self.is_crowded();
        let window = &mut self.windows[expecting as usize];
        if waited_ns > limit_ns {
            window.streak = 0;
            if share_counts {
                window.short_share -= window.short_share / SHARE_WAITS;
            }
            window.length_ns /= 2;
            if window.length_ns < WINDOW_MIN_NS || window.short_share < SHARE_MIN {
                window.length_ns = 0;
            }
            return;
        }
        window.streak = window.streak.saturating_add(1);
        if share_counts {
            window.short_share += (SHARE_ALL - window.short_share) / SHARE_WAITS;
        }
        let is_open = window.length_ns > 0;
        if !is_open && window.streak >= STREAK {
            window.short_share = SHARE_ALL;
        }
        if is_open || window.streak >= STREAK {
            window.length_ns = window.length_ns.max(2 * waited_ns).max(WINDOW_MIN_NS).min(limit_ns);
        }
    }

    /// Whether it is time to look how long the thread stood in line.
    pub(crate) fn looks_again(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.seen_ns) >= LOOK_NS
    }

    /// Learns how long the thread stood in line so far; says whether to stop polling, because others want the processor.
    pub(crate) fn look(&mut self, in_line: InLine, now_ns: u64) -> bool {
        let before = std::mem::replace(&mut self.seen, in_line);
        let is_recent = now_ns.saturating_sub(self.seen_ns) < RECENT_NS;
        self.seen_ns = now_ns;
        let waited_ns = in_line.waited_ns.saturating_sub(before.waited_ns);
        let turns = in_line.turns.saturating_sub(before.turns).max(1);
        if !is_recent || waited_ns / turns < IN_LINE_NS {
            return false;
        }
        let is_again = now_ns < self.resting_until_ns + FORGET_RESTS * self.rest_ns;
        self.rest_ns = if is_again { (2 * self.rest_ns).min(REST_MAX_NS) } else { REST_MIN_NS };
        self.resting_until_ns = now_ns + self.rest_ns;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT_NS: u64 = 200_000;

    fn opened(waited_ns: u64) -> BusyPoll {
        let mut poll = BusyPoll::new(LIMIT_NS);
        (0..STREAK).for_each(|_| poll.waited(Expecting::Answer, waited_ns));
        poll
    }

    #[test]
    fn polls_after_short_waits_and_sleeps_when_idle() {
        let mut poll = opened(50_000);
        assert_eq!(poll.window_ns(Expecting::Answer, 0), 100_000);
        poll.waited(Expecting::Answer, 150_000);
        assert_eq!(poll.window_ns(Expecting::Answer, 0), LIMIT_NS);
        for _ in 0..5 {
            poll.waited(Expecting::Answer, 100_000_000);
        }
        assert_eq!(poll.window_ns(Expecting::Answer, 0), 0);
    }

    #[test]
    fn a_few_messages_at_once_open_no_window() {
        let mut poll = BusyPoll::new(LIMIT_NS);
        for _ in 0..1_000 {
            (0..STREAK - 1).for_each(|_| poll.waited(Expecting::Request, 20_000));
            assert_eq!(poll.window_ns(Expecting::Request, 0), 0);
            poll.waited(Expecting::Request, 100_000_000);
        }
    }

    #[test]
    fn looks_where_most_waits_are_short_and_not_where_half_are() {
        let windows_open = |waits: [u64; 10]| {
            let mut poll = opened(150_000);
            let mut open = 0;
            for wait_ns in waits.repeat(100) {
                poll.waited(Expecting::Answer, wait_ns);
                open += u32::from(poll.window_ns(Expecting::Answer, 0) > 0);
            }
            open
        };
        let (short, long) = (150_000, 250_000);
        assert_eq!(
            windows_open([short, short, short, short, short, short, short, short, short, long]),
            1_000
        );
        // Only what was opened at the beginning.
        let at_most = SHARE_WAITS * 2;
        assert!(windows_open([short, long, short, long, short, long, short, long, short, long]) < at_most);
        assert!(windows_open([short, short, short, short, short, long, long, long, long, long]) < at_most);
    }

    #[test]
    fn tells_answers_from_requests() {
        let mut poll = BusyPoll::new(LIMIT_NS);
        for _ in 0..100 {
            poll.waited(Expecting::Answer, 90_000);
            poll.waited(Expecting::Request, 1_000_000);
        }
        assert_eq!(poll.window_ns(Expecting::Answer, 0), 180_000);
        assert_eq!(poll.window_ns(Expecting::Request, 0), 0);
    }

    #[test]
    fn leaves_processors_alone_that_others_want() {
        let mut poll = opened(50_000);
        let mut in_line = InLine::default();
        let mut now_ns = 10 * RECENT_NS;
        let mut look = |poll: &mut BusyPoll, waited_ns, turns, now_ns| {
            in_line =
                InLine { waited_ns: in_line.waited_ns + waited_ns, turns: in_line.turns + turns, ..in_line };
            poll.look(in_line, now_ns)
        };
        assert!(poll.looks_again(now_ns));
        // What was before the first look may be long ago.
        assert!(!look(&mut poll, 1_000_000_000, 1, now_ns));
        assert!(!poll.looks_again(now_ns + LOOK_NS - 1));
        // Many short times in line are those of other reactors.
        now_ns += LOOK_NS;
        assert!(!look(&mut poll, 3_000_000, 40, now_ns));
        now_ns += LOOK_NS;
        assert!(look(&mut poll, 4_000_000, 2, now_ns));
        assert_eq!(poll.window_ns(Expecting::Answer, now_ns + REST_MIN_NS - 1), 0);
        assert_eq!(poll.window_ns(Expecting::Answer, now_ns + REST_MIN_NS), 100_000);
        // Again and again: twice as long each time, up to a bound.
        for round in 1..20 {
            now_ns = poll.resting_until_ns;
            assert!(!look(&mut poll, 0, 0, now_ns));
            now_ns += LOOK_NS;
            assert!(look(&mut poll, 4_000_000, 2, now_ns));
            assert_eq!(poll.rest_ns, (REST_MIN_NS << round).min(REST_MAX_NS));
        }
        now_ns = poll.resting_until_ns + FORGET_RESTS * REST_MAX_NS;
        assert!(!look(&mut poll, 0, 0, now_ns));
        now_ns += LOOK_NS;
        assert!(look(&mut poll, 4_000_000, 2, now_ns));
        assert_eq!(poll.rest_ns, REST_MIN_NS);
    }

    #[test]
    fn looks_for_less_long_where_many_requests_are_under_way() {
        let mut poll = opened(90_000);
        let expect =
            |poll: &mut BusyPoll, requests| (0..10 * CROWD_WAITS).for_each(|_| poll.expect(requests));
        expect(&mut poll, CROWD as usize - 2);
        assert_eq!(poll.window_ns(Expecting::Answer, 0), 180_000);
        // A burst is no crowd.
        poll.expect(2 * CROWD as usize);
        assert_eq!(poll.window_ns(Expecting::Answer, 0), 180_000);
        expect(&mut poll, CROWD as usize + 2);
        assert_eq!(poll.window_ns(Expecting::Answer, 0), LIMIT_NS / CROWD_PART);
        // Waits that it does not look through close the window, and those that it would look through open it again.
        (0..10).for_each(|_| poll.waited(Expecting::Answer, LIMIT_NS / 2));
        assert_eq!(poll.window_ns(Expecting::Answer, 0), 0);
        (0..STREAK).for_each(|_| poll.waited(Expecting::Answer, LIMIT_NS / 10));
        assert_eq!(poll.window_ns(Expecting::Answer, 0), LIMIT_NS / CROWD_PART);
        expect(&mut poll, 1);
        (0..3).for_each(|_| poll.waited(Expecting::Answer, LIMIT_NS / 2));
        assert_eq!(poll.window_ns(Expecting::Answer, 0), LIMIT_NS);
    }

    #[test]
    fn a_limit_of_none_never_polls() {
        let mut poll = BusyPoll::new(0);
        for waited_ns in [0, 1, 1_000, 100_000_000].repeat(10) {
            poll.waited(Expecting::Answer, waited_ns);
            assert_eq!(poll.window_ns(Expecting::Answer, 0), 0);
        }
    }
}
