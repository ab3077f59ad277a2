//! Which epochs a log's entries are of: (epoch, first sequence number), compressed.
//!
//! Invariant: epochs and first sequence numbers both rise. Two logs whose entry at a sequence number has the same
//! epoch hold the same entries up to there, since one primary made it behind the same predecessor.

/// One run of entries of one epoch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Run {
    /// The entries' epoch.
    pub epoch: u64,
    /// The first one's sequence number.
    pub first_sequence: u64,
}

/// The runs of a log in order.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct History {
    /// The last of `runs`, as zeros if there is none: nearly every question is about it, and it is at hand.
    last: Run,
    runs: Vec<Run>,
}

impl History {
    /// From runs as stored or received; `None` unless they rise in both numbers.
    pub fn from_runs(runs: Vec<Run>) -> Option<History> {
        let rising = runs
            .windows(2)
            .all(|pair| pair[0].epoch < pair[1].epoch && pair[0].first_sequence < pair[1].first_sequence);
        rising.then(|| History { last: runs.last().copied().unwrap_or_default(), runs })
    }

    /// The runs in order.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    fn last(&self) -> Option<Run> {
        (!self.runs.is_empty()).then_some(self.last)
    }

    /// Notes an entry behind all others. False if its epoch is lower than theirs.
    pub fn push(&mut self, epoch: u64, sequence: u64) -> bool {
        match self.last() {
            Some(last) if last.epoch == epoch => true,
            Some(last) if last.epoch > epoch || last.first_sequence >= sequence => false,
            _ => {
                self.last = Run { epoch, first_sequence: sequence };
                self.runs.push(self.last);
                true
            }
        }
    }

    /// The epoch of an entry that the log holds; 0 before the first.
    pub fn epoch_of(&self, sequence: u64) -> u64 {
        if let Some(last) = self.last().filter(|last| last.first_sequence <= sequence) {
            return last.epoch;
        }
        self.runs.iter().rev().find(|run| run.first_sequence <= sequence).map_or(0, |run| run.epoch)
    }

    /// Forgets everything above the sequence number.
    pub fn truncate(&mut self, last: u64) {
        while self.runs.last().is_some_and(|run| run.first_sequence > last) {
            self.runs.pop();
        }
        self.last = self.runs.last().copied().unwrap_or_default();
    }

    /// The part up to the sequence number.
    pub fn up_to(&self, last: u64) -> History {
        let mut part = self.clone();
        part.truncate(last);
        part
    }

    /// The last sequence number up to which two logs that end at `last` and `other_last` are the same.
    pub fn common(&self, last: u64, other: &History, other_last: u64) -> u64 {
        let mut common = last.min(other_last);
        while common > 0 && self.epoch_of(common) != other.epoch_of(common) {
            // The epochs differ: go on below the start of whichever run began later.
            let start = |history: &History| {
                history
                    .runs
                    .iter()
                    .rev()
                    .find(|run| run.first_sequence <= common)
                    .map_or(1, |r| r.first_sequence)
            };
            common = start(self).max(start(other)) - 1;
        }
        common
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(runs: &[(u64, u64)]) -> History {
        let runs = runs.iter().map(|&(epoch, first_sequence)| Run { epoch, first_sequence }).collect();
        History::from_runs(runs).unwrap()
    }

    #[test]
    fn common_ends_where_epochs_part() {
        let one = history(&[(1, 1), (2, 5)]);
        let other = history(&[(1, 1), (3, 7)]);
        assert_eq!(one.common(9, &other, 8), 4);
        assert_eq!(one.common(3, &other, 8), 3);
        assert_eq!(one.common(9, &one, 6), 6);
        assert_eq!(one.common(9, &History::default(), 0), 0);
        assert_eq!(history(&[(1, 1), (4, 3)]).common(4, &history(&[(2, 1)]), 4), 0);
    }

    #[test]
    fn truncation_forgets_runs_above() {
        let mut one = history(&[(1, 1), (2, 5)]);
        assert_eq!(one.up_to(4), history(&[(1, 1)]));
        assert!(one.push(2, 9));
        assert!(!one.push(1, 10));
        one.truncate(0);
        assert_eq!(one, History::default());
    }

    /// What is kept at hand of the last run is that run after whatever was done.
    #[test]
    fn the_last_run_is_at_hand() {
        let mut one = History::default();
        assert_eq!((one.epoch_of(1), one.push(3, 1), one.push(3, 2)), (0, true, true));
        assert_eq!((one.push(5, 3), one.push(4, 4), one.push(5, 4)), (true, false, true));
        for (through, epochs) in [(4, [3, 3, 5, 5]), (3, [3, 3, 5, 5]), (2, [3; 4]), (0, [0; 4])] {
            let part = one.up_to(through);
            assert_eq!([1, 2, 3, 4].map(|sequence| part.epoch_of(sequence)), epochs, "up to {through}");
            assert_eq!(History::from_runs(part.runs().to_vec()), Some(part));
        }
        one.truncate(2);
        assert!(!one.push(2, 3), "below an epoch that is there again");
        assert!(one.push(4, 3), "the epoch that was cut off is forgotten");
        assert_eq!(one, history(&[(3, 1), (4, 3)]));
    }

    #[test]
    fn runs_that_do_not_rise_are_refused() {
        let run = |epoch, first_sequence| Run { epoch, first_sequence };
        assert!(History::from_runs(vec![run(2, 1), run(2, 4)]).is_none());
        assert!(History::from_runs(vec![run(2, 4), run(3, 4)]).is_none());
    }
}
