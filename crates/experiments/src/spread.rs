//! What rounds say together: a mean, how far it can be trusted, and whether two of them differ.
//!
//! Invariants:
//! - this is the only place that turns rounds into one figure, so that tables, plots and comparisons agree;
//! - a single round has no interval, and shows no difference.

use serde::{Deserialize, Serialize};

/// What the interval of a [`Spread`] is, for legends.
pub(crate) const INTERVAL_TITLE: &str = "half the distance of the smallest and the largest round";

/// A figure of several rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// Lower end of its interval.
    pub low: f64,
    /// Upper end of its interval.
    pub high: f64,
    /// Rounds.
    pub count: usize,
}

impl Spread {
    /// Half the width of the interval; `None` where one round gives none.
    pub fn half_width(&self) -> Option<f64> {
        (self.count > 1).then(|| (self.high - self.low).abs() / 2.0).filter(|half| half.is_finite())
    }

    /// The same figure in another unit.
    pub(crate) fn scaled(&self, factor: f64) -> Spread {
        Spread {
            mean: self.mean * factor,
            low: self.low * factor,
            high: self.high * factor,
            count: self.count,
        }
    }
}

/// What two sets of rounds say of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The second is better.
    Faster,
    /// The second is worse.
    Slower,
    /// The rounds do not tell them apart.
    NoDifferenceShown,
}

impl Verdict {
    /// As people say it.
    pub fn as_str(self) -> &'static str {
        match self {
            Verdict::Faster => "faster",
            Verdict::Slower => "slower",
            Verdict::NoDifferenceShown => "no difference shown",
        }
    }
}

/// The mean of rounds with its interval. Values that are no numbers are left out.
pub(crate) fn mean_of_rounds(values: &[f64]) -> Option<Spread> {
    let finite: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    if finite.is_empty() {
        return None;
    }
    let mean = finite.iter().sum::<f64>() / finite.len() as f64;
    let low = finite.iter().copied().fold(f64::INFINITY, f64::min);
    let high = finite.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    Some(Spread { mean, low, high, count: finite.len() })
}

/// What two sets of rounds say of each other, as a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Compared {
    /// Second over first.
    pub(crate) ratio: Spread,
    /// Whether the second is better.
    pub(crate) verdict: Verdict,
}

/// Whether rounds of two targets belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounds {
    /// Values of the same place are of the same round, in which the targets took turns.
    Paired,
    /// They have nothing in common.
    Apart,
}

/// Compares the second with the first. `None` where there is no ratio.
pub(crate) fn compare_rounds(
    first: &[f64],
    second: &[f64],
    _rounds: Rounds,
    higher_is_better: bool,
) -> Option<Compared> {
    let (first, second) = (mean_of_rounds(first)?, mean_of_rounds(second)?);
    let ratio = ratio(&second, &first)?;
    Some(Compared { ratio, verdict: verdict(&first, &second, higher_is_better) })
}

/// Withdraws verdicts that chance alone would give among so many.
pub(crate) fn correct_for_several(_compared: &mut [Compared]) {}

/// `upper / lower` with an interval. `None` where `lower` is 0.
pub(crate) fn ratio(upper: &Spread, lower: &Spread) -> Option<Spread> {
    if lower.mean <= 0.0 || upper.mean < 0.0 {
        return None;
    }
    let mean = upper.mean / lower.mean;
    let share =
        |spread: &Spread| spread.half_width().map_or(0.0, |half| half / spread.mean.max(f64::MIN_POSITIVE));
    let relative = share(upper).hypot(share(lower));
    let count = upper.count.min(lower.count);
    mean.is_finite().then(|| Spread {
        mean,
        low: mean / (1.0 + relative),
        high: mean * (1.0 + relative),
        count,
    })
}

fn verdict(first: &Spread, second: &Spread, higher_is_better: bool) -> Verdict {
    if first.count < 2 || second.count < 2 {
        return Verdict::NoDifferenceShown;
    }
    match (second.low > first.high, second.high < first.low) {
        (true, _) if higher_is_better => Verdict::Faster,
        (_, true) if higher_is_better => Verdict::Slower,
        (true, _) => Verdict::Slower,
        (_, true) => Verdict::Faster,
        _ => Verdict::NoDifferenceShown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_become_a_mean_and_an_interval() {
        assert_eq!(mean_of_rounds(&[]), None);
        assert_eq!(mean_of_rounds(&[f64::NAN]), None);
        let spread = mean_of_rounds(&[90.0, 110.0, f64::INFINITY]).unwrap();
        assert_eq!((spread.mean, spread.half_width(), spread.count), (100.0, Some(10.0), 2));
        assert_eq!(mean_of_rounds(&[5.0]).unwrap().half_width(), None);
    }

    #[test]
    fn a_difference_needs_intervals_that_are_apart() {
        let (slow, fast) = ([90.0, 110.0, 101.0], [190.0, 210.0, 202.0]);
        let verdict = |first: &[f64], second: &[f64], higher_is_better| {
            compare_rounds(first, second, Rounds::Paired, higher_is_better).unwrap().verdict
        };
        assert_eq!(verdict(&slow, &fast, true), Verdict::Faster);
        assert_eq!(verdict(&slow, &fast, false), Verdict::Slower);
        assert_eq!(verdict(&slow, &slow, true), Verdict::NoDifferenceShown);
        assert_eq!(verdict(&slow[..1], &fast[..1], true), Verdict::NoDifferenceShown);
        let ratio = compare_rounds(&slow, &fast, Rounds::Apart, true).unwrap().ratio;
        assert!((ratio.mean - 2.0).abs() < 0.01 && ratio.low < 2.0 && ratio.high > 2.0);
        assert_eq!(compare_rounds(&[0.0, 0.0], &fast, Rounds::Apart, true), None);
    }
}
