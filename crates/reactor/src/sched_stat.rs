//! How long a thread stood in line for a processor, as the scheduler counts it.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// What the scheduler counts of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct InLine {
    /// How long it could have run and did not.
    pub waited_ns: u64,
    /// How often it was given a processor.
    pub turns: u64,
    /// How long it ran.
    pub ran_ns: u64,
}

/// For how much of its time a thread had something to do.
#[derive(Default, Debug)]
pub(crate) struct Occupation {
    seen: InLine,
    looked_ns: u64,
    idle_ns: Option<u64>,
    now_ns: u64,
    share: f64,
}

impl Occupation {
    /// Share of the time for which the thread ran, without the time in which it only looked for something to do, of which `looked_ns` is the
    /// sum so far, or stood in line for want of processors: who stands in line while one of them idles is badly placed, and the machine has
    /// time. Of the last [`PERIOD_NS`] or more; 0 at first, and where the scheduler does not count. `count` is asked once in that time: it gives
    /// what the scheduler counts of the thread, and for how long all processors together have been idle so far, if that is known.
    pub(crate) fn since(
        &mut self,
        looked_ns: u64,
        processors: usize,
        now_ns: u64,
        count: impl FnOnce() -> (InLine, Option<u64>),
    ) -> f64 {
        let passed_ns = now_ns.saturating_sub(self.now_ns);
        if passed_ns < PERIOD_NS {
            return self.share;
        }
        let (in_line, idle_ns) = count();
        let before =
            std::mem::replace(self, Occupation { seen: in_line, looked_ns, idle_ns, now_ns, share: 0.0 });
        if before.now_ns == 0 {
            return 0.0;
        }
        let passed = passed_ns as f64;
        let ran_ns = (in_line.ran_ns.saturating_sub(before.seen.ran_ns))
            .saturating_sub(looked_ns.saturating_sub(before.looked_ns));
        let waited_ns = in_line.waited_ns.saturating_sub(before.seen.waited_ns);
        let idle = match (before.idle_ns, idle_ns) {
            (Some(before_ns), Some(idle_ns)) => idle_ns.saturating_sub(before_ns) as f64 / passed,
            _ => 0.0,
        };
        let room = (processors as f64 * ROOM_SHARE).min(1.0);
        let short_of_processors = 1.0 - (idle / room).min(1.0);
        self.share = ((ran_ns as f64 + waited_ns as f64 * short_of_processors) / passed).min(1.0);
        self.share
    }
}

/// How long to look at least: idle time is counted in steps of 10 ms.
const PERIOD_NS: u64 = 1_000_000_000;
/// From where on idle processors, in all, are room for more: this share of all, or a whole one.
const ROOM_SHARE: f64 = 0.1;

/// Where the system's count of idle time is read.
#[derive(Debug)]
pub(crate) struct IdleTime {
    file: Option<File>,
    /// How many this process may use.
    pub processors: usize,
}

impl IdleTime {
    /// That of all processors that the system has, also of those on which this process may not run.
    pub(crate) fn open() -> IdleTime {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        IdleTime { file: File::open("/proc/uptime").ok(), processors }
    }

    /// For how long all processors together have been idle, in nanoseconds; none where that is not counted. One system call.
    pub(crate) fn read_ns(&self) -> Option<u64> {
        let mut text = [0; 80];
        let length = self.file.as_ref()?.read_at(&mut text, 0).ok()?;
        parse_idle_ns(&text[..length])
    }
}

/// Reads the second number of seconds, with two decimals (`proc_uptime(5)`).
fn parse_idle_ns(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let (whole, hundredths) = text.split_ascii_whitespace().nth(1)?.split_once('.')?;
    let hundredths = (hundredths.len() == 2).then_some(hundredths)?.parse::<u64>().ok()?;
    let seconds_ns = whole.parse::<u64>().ok()?.checked_mul(1_000_000_000)?;
    seconds_ns.checked_add(hundredths * 10_000_000)
}

/// Where the scheduler's count of the thread that opened it is read.
#[derive(Debug)]
pub(crate) struct SchedStat(Option<File>);

impl SchedStat {
    /// That of the calling thread; a kernel without the count has nobody in line.
    pub(crate) fn open() -> SchedStat {
        SchedStat(File::open("/proc/thread-self/schedstat").ok())
    }

    /// The count so far. One system call.
    pub(crate) fn read(&self) -> InLine {
        let mut text = [0; 80];
        let Some(length) = self.0.as_ref().and_then(|file| file.read_at(&mut text, 0).ok()) else {
            return InLine::default();
        };
        parse(&text[..length])
    }
}

/// Reads nanoseconds run, nanoseconds in line and number of turns (`Documentation/scheduler/sched-stats.rst`).
fn parse(text: &[u8]) -> InLine {
    let words = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let mut numbers = words.map(|number| {
        number.iter().try_fold(0_u64, |sum, digit| {
            let digit = char::from(*digit).to_digit(10)?;
            sum.checked_mul(10)?.checked_add(u64::from(digit))
        })
    });
    match (numbers.next(), numbers.next(), numbers.next()) {
        (Some(Some(ran_ns)), Some(Some(waited_ns)), Some(Some(turns))) => InLine { waited_ns, turns, ran_ns },
        _ => InLine::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn in_line(ran_ms: u64, waited_ms: u64) -> InLine {
        InLine { waited_ns: waited_ms * 1_000_000, turns: 0, ran_ns: ran_ms * 1_000_000 }
    }

    #[test]
    fn who_runs_or_stands_in_line_is_occupied_and_who_only_looks_is_not() {
        let mut occupation = Occupation::default();
        let mut since = |in_line, looked_ms: u64, now_ns| {
            occupation.since(looked_ms * 1_000_000, 2, now_ns, || (in_line, None))
        };
        assert_eq!(since(in_line(5_000, 7_000), 900, 1000 * S), 0.0, "nothing is known of before");
        assert_eq!(since(in_line(5_300, 7_200), 900, 1001 * S), 0.5);
        assert_eq!(since(in_line(5_900, 7_200), 900, 1001 * S + S / 2), 0.5, "not looked at again so soon");
        assert_eq!(since(in_line(6_000, 7_500), 1_650, 1002 * S), 0.3);
        assert_eq!(since(in_line(9_000, 7_500), 1_650, 1003 * S), 1.0, "counts come late");
        assert_eq!(since(in_line(9_000, 7_500), 1_650, 1004 * S), 0.0);
        assert_eq!(since(InLine::default(), 1_650, 1005 * S), 0.0, "no count");
    }

    /// Reactors that stood in line on one processor, while another one was idle for a third of the time, were taken for ones that have no time.
    #[test]
    fn who_stands_in_line_beside_idle_processors_has_time() {
        let share_at = |processors, idle_ms: u64| {
            let mut occupation = Occupation::default();
            occupation.since(0, processors, 1000 * S, || (in_line(0, 0), Some(7 * S)));
            let idle_ns = 7 * S + idle_ms * 1_000_000;
            occupation.since(0, processors, 1001 * S, || (in_line(380, 400), Some(idle_ns)))
        };
        assert_eq!(
            [share_at(2, 0), share_at(2, 100), share_at(2, 200), share_at(2, 900)],
            [0.78, 0.58, 0.38, 0.38]
        );
        assert_eq!([share_at(128, 500), share_at(128, 1000)], [0.58, 0.38], "a whole one is room");
    }

    #[test]
    fn reads_how_long_processors_were_idle() {
        assert_eq!(parse_idle_ns(b"55505.54 43691.09\n"), Some(43_691_090_000_000));
        for text in
            [&b""[..], b"1.00", b"1.00 2", b"1.00 2.5", b"1.00 -2.50", b"1.00 99999999999.00", b"\xff 1.00"]
        {
            assert_eq!(parse_idle_ns(text), None, "{text:?}");
        }
        let here = IdleTime::open();
        assert!(here.file.is_none() || here.read_ns().is_some());
    }

    #[test]
    fn reads_the_count_of_the_scheduler() {
        assert_eq!(parse(b"123 456 7\n"), InLine { waited_ns: 456, turns: 7, ran_ns: 123 });
        for text in [&b""[..], b"1 2\n", b"1 x 3\n", b"1 99999999999999999999999 3\n", b"-1 2 3\n"] {
            assert_eq!(parse(text), InLine::default());
        }
        let here = SchedStat::open();
        assert!(here.0.is_none() || here.read().turns > 0);
    }
}
