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
        (Some(Some(_)), Some(Some(waited_ns)), Some(Some(turns))) => InLine { waited_ns, turns },
        _ => InLine::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_count_of_the_scheduler() {
        assert_eq!(parse(b"123 456 7\n"), InLine { waited_ns: 456, turns: 7 });
        for text in [&b""[..], b"1 2\n", b"1 x 3\n", b"1 99999999999999999999999 3\n", b"-1 2 3\n"] {
            assert_eq!(parse(text), InLine::default());
        }
        let here = SchedStat::open();
        assert!(here.0.is_none() || here.read().turns > 0);
    }
}
