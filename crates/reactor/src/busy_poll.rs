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
//!   back later when it wakes. The scheduler's own count of how long the thread stood in line tells (`schedstat`);
//! - where processor time is rationed, as to a virtual machine that may have so much of it in each period, there is none either: what is
//!   looked away is missing at the end of the period, where all threads stand still. Who looks sees time jump then, though it did not stand
//!   in line, up to the same place of a period again and again. (Who is in a control group with such a ration stands in line, as the
//!   scheduler counts.)

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
/// Two looks that are so far apart did not follow each other: the thread stood still.
const STOOD_STILL_NS: u64 = 2_000_000;
/// The period in which a ration of processor time counts (`cpu.cfs_period_us` and `cpu.max`: nobody sets another one).
const RATION_PERIOD_NS: u64 = 100_000_000;
/// How far from a whole number of periods two ends of standing still may be apart: a new ration is given out by a timer.
const RATION_JITTER_NS: u64 = 2_000_000;
/// After so long, clocks may have gone apart.
const RATION_RECENT_NS: u64 = 10_000_000_000;
/// So many in a row that are whole periods apart do not happen by chance.
const RATION_STREAK: u32 = 2;
/// How long there is no polling where time is rationed: at first, and at most when it turns out to be so again and again.
const RATION_REST_MIN_NS: u64 = 10_000_000_000;
const RATION_REST_MAX_NS: u64 = 160_000_000_000;

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
    company: Rests,
    rations: Rests,
    /// When the thread last stood still and went on.
    went_on_ns: Option<u64>,
    /// How often in a row it did so whole periods after the last time.
    periods_streak: u32,
    seen: InLine,
    seen_ns: u64,
}

/// Times without polling, each twice as long as the one before where the reason is there again soon after it.
#[derive(Debug)]
struct Rests {
    length_ns: u64,
    until_ns: u64,
    length_min_ns: u64,
    length_max_ns: u64,
}

impl Rests {
    fn new(length_min_ns: u64, length_max_ns: u64) -> Rests {
        Rests { length_ns: length_min_ns, until_ns: 0, length_min_ns, length_max_ns }
    }

    fn begin(&mut self, now_ns: u64) {
        let is_again = self.until_ns > 0 && now_ns < self.until_ns + FORGET_RESTS * self.length_ns;
        self.length_ns =
            if is_again { (2 * self.length_ns).min(self.length_max_ns) } else { self.length_min_ns };
        self.until_ns = now_ns + self.length_ns;
    }
}

impl BusyPoll {
    /// Never polls longer than `limit_ns` at a time; 0 is never.
    pub(crate) fn new(limit_ns: u64) -> BusyPoll {
        BusyPoll {
            limit_ns,
            crowd: 0,
            windows: [Window::default(); 2],
            company: Rests::new(REST_MIN_NS, REST_MAX_NS),
            rations: Rests::new(RATION_REST_MIN_NS, RATION_REST_MAX_NS),
            went_on_ns: None,
            periods_streak: 0,
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
        if now_ns < self.company.until_ns.max(self.rations.until_ns) {
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
        self.company.begin(now_ns);
        true
    }

    /// Whether two looks are so far apart that [`BusyPoll::jumped`] is worth its system call.
    pub(crate) fn is_jump(before_ns: u64, now_ns: u64) -> bool {
        now_ns.saturating_sub(before_ns) >= STOOD_STILL_NS
    }

    /// Learns that time went from one look to the next, and how long the thread stood in line so far; says whether to stop polling, since
    /// processor time is rationed.
    pub(crate) fn jumped(&mut self, before_ns: u64, now_ns: u64, in_line: InLine) -> bool {
        // Since the last look at it: more than in the jump, which is on the safe side.
        let waited_ns = in_line.waited_ns.saturating_sub(self.seen.waited_ns);
        if !Self::is_jump(before_ns + waited_ns, now_ns) {
            return false;
        }
        let went_on_ns = self.went_on_ns.replace(now_ns);
        let passed_ns = went_on_ns.map_or(u64::MAX, |went_on_ns| now_ns.saturating_sub(went_on_ns));
        let beside_ns = passed_ns % RATION_PERIOD_NS;
        let is_whole = (RATION_PERIOD_NS / 2..RATION_RECENT_NS).contains(&passed_ns)
            && beside_ns.min(RATION_PERIOD_NS - beside_ns) <= RATION_JITTER_NS;
        self.periods_streak = if is_whole { self.periods_streak + 1 } else { 0 };
        let is_rationed = self.periods_streak >= RATION_STREAK;
        if is_rationed {
            self.periods_streak = 0;
            self.rations.begin(now_ns);
        }
        is_rationed
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
            now_ns = poll.company.until_ns;
            assert!(!look(&mut poll, 0, 0, now_ns));
            now_ns += LOOK_NS;
            assert!(look(&mut poll, 4_000_000, 2, now_ns));
            assert_eq!(poll.company.length_ns, (REST_MIN_NS << round).min(REST_MAX_NS));
        }
        now_ns = poll.company.until_ns + FORGET_RESTS * REST_MAX_NS;
        assert!(!look(&mut poll, 0, 0, now_ns));
        now_ns += LOOK_NS;
        assert!(look(&mut poll, 4_000_000, 2, now_ns));
        assert_eq!(poll.company.length_ns, REST_MIN_NS);
    }

    #[test]
    fn does_not_look_where_processor_time_is_rationed() {
        const MS: u64 = 1_000_000;
        let start_ns = 1_000_000 * MS;
        let mut poll = opened(50_000);
        let mut in_line = InLine::default();
        assert!(!poll.look(in_line, start_ns));
        let at = |ms| start_ns + ms * MS;
        // From one look to the next: nothing of note, twice in line, others at any time, two of them a period apart.
        assert!(!BusyPoll::is_jump(at(1), at(3) - 1) && BusyPoll::is_jump(at(1), at(3)));
        in_line.waited_ns = 9 * MS;
        assert!(!poll.jumped(at(90), at(100), in_line));
        assert!(!poll.jumped(at(190), at(200), in_line));
        assert!(!poll.look(InLine { turns: 100, ..in_line }, at(201)));
        for end_ms in [300, 430, 555, 590, 722, 821, 853, 20_722, 20_822] {
            assert!(!poll.jumped(at(end_ms - 8), at(end_ms), in_line), "{end_ms}");
            assert!(poll.window_ns(Expecting::Answer, at(end_ms)) > 0);
        }
        // Up to the same place of a period again and again, though not in each of them.
        let mut now_ms = 21_423;
        assert!(poll.jumped(at(now_ms - 5), at(now_ms), in_line));
        let mut rest_ms = 10_000;
        for _ in 0..8 {
            let end_ns = at(now_ms + rest_ms);
            assert_eq!(poll.window_ns(Expecting::Answer, end_ns - 1), 0);
            assert!(poll.window_ns(Expecting::Answer, end_ns) > 0);
            now_ms += rest_ms + 330;
            for is_rationed in [false, false, true] {
                now_ms += 201;
                assert_eq!(poll.jumped(at(now_ms - 5), at(now_ms), in_line), is_rationed);
            }
            rest_ms = (2 * rest_ms).min(160_000);
        }
        // Long after that a rest is short again.
        now_ms += 900_000;
        for is_rationed in [false, false, true] {
            now_ms += 100;
            assert_eq!(poll.jumped(at(now_ms - 5), at(now_ms), in_line), is_rationed);
        }
        assert_eq!(poll.rations.length_ns, RATION_REST_MIN_NS);
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
