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
    now_ns: u64,
}

impl Occupation {
    /// Share of the time since the last call for which it ran or stood in line, without the time in which it only looked for
    /// something to do, of which `looked_ns` is the sum so far. 0 at first, and where the scheduler does not count.
    pub(crate) fn since(&mut self, in_line: InLine, looked_ns: u64, now_ns: u64) -> f64 {
        let before = std::mem::replace(self, Occupation { seen: in_line, looked_ns, now_ns });
        let busy_ns = (in_line.ran_ns.saturating_sub(before.seen.ran_ns))
            .saturating_add(in_line.waited_ns.saturating_sub(before.seen.waited_ns))
            .saturating_sub(looked_ns.saturating_sub(before.looked_ns));
        let passed_ns = now_ns.saturating_sub(before.now_ns);
        if before.now_ns == 0 || passed_ns == 0 {
            return 0.0;
        }
        (busy_ns as f64 / passed_ns as f64).min(1.0)
    }
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

    #[test]
    fn who_runs_or_stands_in_line_is_occupied_and_who_only_looks_is_not() {
        let in_line = |ran_ns, waited_ns| InLine { waited_ns, turns: 0, ran_ns };
        let mut occupation = Occupation::default();
        assert_eq!(
            occupation.since(in_line(5_000, 7_000), 900, 1_000_000),
            0.0,
            "nothing is known of before"
        );
        assert_eq!(occupation.since(in_line(5_300, 7_200), 900, 1_001_000), 0.5);
        assert_eq!(occupation.since(in_line(6_000, 7_500), 1_650, 1_002_000), 0.25);
        assert_eq!(occupation.since(in_line(9_000, 7_500), 1_650, 1_003_000), 1.0, "counts come late");
        assert_eq!(occupation.since(in_line(9_000, 7_500), 1_650, 1_003_000), 0.0);
        assert_eq!(occupation.since(InLine::default(), 1_650, 1_004_000), 0.0, "no count");
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
