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
}
