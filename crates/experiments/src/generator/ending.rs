//! How processes that were started here are ended.
//!
//! Invariants:
//! - nobody is waited for without end: the kernel keeps a process that waits for a drive which hangs, also one that was killed;
//! - who is given up is told as left behind.

use std::process::Child;
use std::time::{Duration, Instant};

use crate::leftovers;

/// Time to go after it was killed.
pub const GO_TIME_MAX: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(10);

/// What is ended: a child, or what stands for one in tests.
pub trait Process {
    /// Its number.
    fn number(&self) -> u32;
    /// Has the kernel end it.
    fn kill(&mut self);
    /// Whether nothing is left of it.
    fn is_gone(&mut self) -> bool;
}

impl Process for Child {
    fn number(&self) -> u32 {
        self.id()
    }

    fn kill(&mut self) {
        // One that has just gone cannot be killed, and need not be.
        let _ = Child::kill(self);
    }

    fn is_gone(&mut self) -> bool {
        // Who cannot be waited for has been.
        !matches!(self.try_wait(), Ok(None))
    }
}

/// A process that is no child of this one, by its number, and when it was started: numbers are given again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Other {
    number: u32,
    started: u64,
}

/// What the kernel says of a process.
struct Stat {
    state: String,
    parent: u32,
    threads: u64,
    started: u64,
}

impl Stat {
    fn of(number: u32) -> Option<Stat> {
        let text = std::fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
        // Its name, in brackets, may hold anything.
        let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
        let number = |place: usize| fields.get(place)?.parse().ok();
        Some(Stat {
            state: (*fields.first()?).to_owned(),
            parent: u32::try_from(number(1)?).ok()?,
            threads: number(17)?,
            started: number(19)?,
        })
    }
}

impl Other {
    /// The children of a process.
    pub fn children_of(parent: u32) -> Vec<Other> {
        let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
        let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let child = |number: u32| {
            let stat = Stat::of(number).filter(|stat| stat.parent == parent)?;
            Some(Other { number, started: stat.started })
        };
        numbers.filter_map(child).collect()
    }
}

impl Process for Other {
    fn number(&self) -> u32 {
        self.number
    }

    fn kill(&mut self) {
        if !self.is_gone() {
            signal(self.number, libc::SIGKILL);
        }
    }

    fn is_gone(&mut self) -> bool {
        // Nothing is left of one that has only not been waited for, unless another thread than the first one waits for a drive.
        let is_over = |stat: &Stat| ["Z", "X"].contains(&stat.state.as_str()) && stat.threads <= 1;
        !Stat::of(self.number).is_some_and(|stat| stat.started == self.started && !is_over(&stat))
    }
}

/// Sends a signal to a process, which must be known to be the one of that number.
pub fn signal(number: u32, signal: i32) {
    let Ok(number) = libc::pid_t::try_from(number) else { return };
    // SAFETY: kill takes numbers only.
    #[allow(unsafe_code)]
    unsafe {
        libc::kill(number, signal);
    }
}

/// Ends a process that was asked to end, and its children, whom it ends itself if it can: waits so long for that, then kills who is left.
/// Says whether all are gone.
pub fn end_with_children(
    (process, program): (&mut impl Process, &str),
    (children, program_of_children): (&mut [impl Process], &str),
    stop_time_max: Duration,
    go_time_max: Duration,
) -> bool {
    let is_gone = is_gone_by(process, Instant::now() + stop_time_max)
        || end(process, program, Instant::now() + go_time_max);
    // All of them together have as long as one.
    let end_by = Instant::now() + go_time_max;
    for child in children.iter_mut() {
        if !child.is_gone() {
            child.kill();
        }
    }
    children.iter_mut().fold(is_gone, |are_gone, child| end(child, program_of_children, end_by) && are_gone)
}

/// Kills a process that is of no use any more, and waits up to this moment until it is gone. Then it is given up. Says whether it is
/// gone.
pub fn end(process: &mut impl Process, program: &str, end_by: Instant) -> bool {
    if process.is_gone() {
        return true;
    }
    process.kill();
    let is_gone = is_gone_by(process, end_by);
    if !is_gone {
        leftovers::note(format!(
            "{program} (process {number}), which was killed and waits for a drive or file system that does not answer: it goes when that \
             answers again (as after fsfreeze --unfreeze), or with a restart of this host",
            number = process.number()
        ))
        .keep();
    }
    is_gone
}

/// Whether it has gone by this moment.
pub fn is_gone_by(process: &mut impl Process, end_by: Instant) -> bool {
    loop {
        if process.is_gone() {
            return true;
        }
        if Instant::now() >= end_by {
            return false;
        }
        std::thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One that waits for a drive, and goes when it has been killed and asked for so often, if at all.
    struct Stuck {
        number: u32,
        is_killed: bool,
        goes_after: Option<u32>,
    }

    impl Process for Stuck {
        fn number(&self) -> u32 {
            self.number
        }

        fn kill(&mut self) {
            self.is_killed = true;
        }

        fn is_gone(&mut self) -> bool {
            if self.is_killed {
                self.goes_after = self.goes_after.map(|times| times.saturating_sub(1));
            }
            self.goes_after == Some(0)
        }
    }

    #[test]
    fn one_that_does_not_go_is_given_up_and_told() {
        let told = |number: u32| {
            let name = format!("generator (process {number})");
            leftovers::all().into_iter().filter(|text| text.starts_with(&name)).count()
        };
        for (number, goes_after, is_told) in [(4_000_000_001, None, 1), (4_000_000_002, Some(3), 0)] {
            let begin = Instant::now();
            let mut stuck = Stuck { number, is_killed: false, goes_after };
            let is_gone = end(&mut stuck, "generator", begin + Duration::from_millis(200));
            assert_eq!((stuck.is_killed, is_gone), (true, is_told == 0));
            assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
            assert_eq!(told(number), is_told);
        }
    }

    #[test]
    fn children_that_do_not_go_are_told_also_where_their_parent_does() {
        let short = Duration::from_millis(100);
        let stuck = |number, goes_after| Stuck { number, is_killed: false, goes_after };
        let told = |number: u32| {
            let name = format!("node (process {number})");
            leftovers::all().into_iter().filter(|text| text.starts_with(&name)).count()
        };
        for (parent, child, are_gone) in [
            (Some(0), None, false),
            (Some(2), Some(2), true),
            (None, Some(0), false),
            (Some(0), Some(0), true),
        ] {
            let mut parent = stuck(4_000_000_003, parent);
            let mut children = [stuck(4_000_000_004, Some(0)), stuck(4_000_000_005, child)];
            let (begin, before) = (Instant::now(), told(4_000_000_005));
            let ended = end_with_children((&mut parent, "up"), (&mut children[..], "node"), short, short);
            assert_eq!(ended, are_gone, "{:?} {child:?}", parent.goes_after);
            assert_eq!(told(4_000_000_005) - before, usize::from(child.is_none()));
            assert!(!children[0].is_killed && children[1].is_killed == (child != Some(0)));
            assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
        }
    }

    #[test]
    fn children_are_known_by_number_and_start() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let found = Other::children_of(std::process::id());
        let mut other = found.iter().find(|other| other.number == child.id()).unwrap().clone();
        assert!(!other.is_gone());
        let mut later = Other { started: other.started + 1, ..other.clone() };
        assert!(later.is_gone(), "another one of the same number");
        Process::kill(&mut later);
        assert!(!other.is_gone(), "it is left alone");
        Process::kill(&mut other);
        assert!(is_gone_by(&mut other, Instant::now() + GO_TIME_MAX), "though nobody has waited for it");
        child.wait().unwrap();
        assert!(Other::children_of(std::process::id()).iter().all(|other| other.number != child.id()));
    }
}
