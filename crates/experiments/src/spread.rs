//! Figures of rounds as tables, plots and comparisons show them.
//!
//! Invariants:
//! - this is the only place that turns rounds into one shown figure, so that tables, plots and comparisons agree;
//! - a single round has no interval, and shows no difference.

use serde::{Deserialize, Serialize};

use crate::statistics::{self, Comparison, Direction, Estimate, compare_steps};

/// What the interval of a [`Spread`] is, for legends.
pub(crate) const INTERVAL_TITLE: &str = "the 95 % confidence interval of the mean";

/// What stands before a ratio that shows no difference, or none that is certain among so many cases.
pub(crate) const NO_DIFFERENCE_MARK: &str = "~";

/// A figure of several rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// Lower end of its 95 % confidence interval.
    pub low: f64,
    /// Upper end of its interval.
    pub high: f64,
    /// Rounds.
    pub count: usize,
}

impl Spread {
    /// How far the interval reaches from the mean, on the side on which it reaches farther: one that was cut at 0, that of a ratio, and one
    /// that was widened have it not in their middle, and half their width would say less than is not known. `None` where one round gives
    /// no interval.
    pub fn half_width(&self) -> Option<f64> {
        let reach = (self.high - self.mean).abs().max((self.mean - self.low).abs());
        (self.count > 1).then_some(reach).filter(|half| half.is_finite())
    }

    /// The interval with another figure of the same rounds in its middle. It is widened where it does not hold that one.
    pub(crate) fn around(self, mean: f64) -> Spread {
        Spread { mean, low: self.low.min(mean), high: self.high.max(mean), count: self.count }
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

impl From<Estimate> for Spread {
    fn from(estimate: Estimate) -> Self {
        Spread { mean: estimate.mean, low: estimate.low, high: estimate.high, count: estimate.count }
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

impl From<statistics::Verdict> for Verdict {
    fn from(verdict: statistics::Verdict) -> Self {
        match verdict {
            statistics::Verdict::Better => Verdict::Faster,
            statistics::Verdict::Worse => Verdict::Slower,
            statistics::Verdict::NoDifferenceShown => Verdict::NoDifferenceShown,
        }
    }
}

/// What two sets of rounds say of each other, as a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Compared {
    /// Second over first.
    pub(crate) ratio: Spread,
    /// Whether the second is better.
    pub(crate) verdict: Verdict,
    /// What it was found by.
    comparison: Option<Comparison>,
}

impl Compared {
    /// What a report says that was found when it was made.
    pub(crate) fn said(ratio: Spread, verdict: Verdict) -> Self {
        Compared { ratio, verdict, comparison: None }
    }

    /// The same with the ratio of what was found in all rounds together. A difference that this one does not bear out is none.
    pub(crate) fn around(mut self, ratio: f64) -> Self {
        self.ratio = self.ratio.around(ratio);
        if self.ratio.low <= 1.0 && self.ratio.high >= 1.0 {
            self.verdict = Verdict::NoDifferenceShown;
            if let Some(comparison) = &mut self.comparison {
                comparison.verdict = statistics::Verdict::NoDifferenceShown;
            }
        }
        self
    }

    /// What must be said of a ratio that may be chance; nothing of one that is shown.
    pub(crate) fn doubt(&self) -> &'static str {
        match self.verdict {
            Verdict::Faster | Verdict::Slower => "",
            Verdict::NoDifferenceShown if self.ratio.count < 2 => " (one round)",
            // By itself it would be shown; among so many, one or the other such difference is chance.
            Verdict::NoDifferenceShown if self.ratio.low > 1.0 || self.ratio.high < 1.0 => " (not certain)",
            Verdict::NoDifferenceShown => " (no difference shown)",
        }
    }
}

/// Whether rounds of two targets belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounds {
    /// Values of the same place are of the same round, in which the targets took turns.
    Paired,
    /// They have nothing in common.
    Apart,
}

/// The mean of rounds with its interval. Values that are no numbers are left out.
pub(crate) fn mean_of_rounds(values: &[f64]) -> Option<Spread> {
    let finite: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    let mut spread = Spread::from(Estimate::of(&finite)?);
    if !spread.mean.is_finite() {
        return None;
    }
    // None of the figures can be below 0; few rounds make an interval that does not know it.
    spread.low = spread.low.max(0.0);
    Some(spread)
}

/// Compares the second with the first. `None` where there is no ratio. `step` is that to which values were rounded, as a share of them; 0 if
/// they were not.
pub(crate) fn compare_rounds(
    first: &[f64],
    second: &[f64],
    rounds: Rounds,
    step: f64,
    higher_is_better: bool,
) -> Option<Compared> {
    let direction = if higher_is_better { Direction::HigherIsBetter } else { Direction::LowerIsBetter };
    let comparison = compare_steps(first, second, rounds == Rounds::Paired, step, direction)?;
    let ratio = Spread::from(comparison.ratio);
    let verdict = comparison.verdict.into();
    ratio.mean.is_finite().then_some(Compared { ratio, verdict, comparison: Some(comparison) })
}

/// Withdraws verdicts that chance alone would give among so many.
pub(crate) fn correct_for_several(compared: &mut [Compared]) {
    let mut found: Vec<(usize, Comparison)> = compared
        .iter()
        .enumerate()
        .filter_map(|(place, compared)| Some((place, compared.comparison?)))
        .collect();
    let mut comparisons: Vec<Comparison> = found.iter().map(|(_, comparison)| *comparison).collect();
    statistics::correct_for_several(&mut comparisons);
    for ((place, _), comparison) in found.drain(..).zip(comparisons) {
        compared[place].verdict = comparison.verdict.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_become_a_mean_and_an_interval() {
        assert_eq!(mean_of_rounds(&[]), None);
        assert_eq!(mean_of_rounds(&[f64::NAN]), None);
        let spread = mean_of_rounds(&[90.0, 110.0, 100.0, f64::INFINITY]).unwrap();
        assert_eq!((spread.mean, spread.count), (100.0, 3));
        assert!(spread.half_width().is_some_and(|half| (24.0..26.0).contains(&half)), "{spread:?}");
        assert_eq!(mean_of_rounds(&[5.0]).unwrap().half_width(), None);
        let cut = mean_of_rounds(&[1.0, 100.0]).unwrap();
        assert_eq!(cut.low, 0.0);
        assert!(
            cut.half_width().is_some_and(|half| (half - 628.9).abs() < 0.2),
            "{cut:?}: 12.71 standard errors"
        );
    }

    #[test]
    fn a_difference_needs_rounds_that_show_it() {
        let (slow, fast) = ([90.0, 110.0, 101.0], [190.0, 210.0, 202.0]);
        let verdict = |first: &[f64], second: &[f64], higher_is_better| {
            compare_rounds(first, second, Rounds::Paired, 0.0, higher_is_better).unwrap().verdict
        };
        assert_eq!(verdict(&slow, &fast, true), Verdict::Faster);
        assert_eq!(verdict(&slow, &fast, false), Verdict::Slower);
        assert_eq!(verdict(&slow, &slow, true), Verdict::NoDifferenceShown);
        assert_eq!(verdict(&slow[..1], &fast[..1], true), Verdict::NoDifferenceShown);
        let ratio = compare_rounds(&slow, &fast, Rounds::Apart, 0.0, true).unwrap().ratio;
        assert!((1.9..2.1).contains(&ratio.mean) && ratio.low < 2.0 && ratio.high > 2.0);
        assert_eq!(compare_rounds(&[0.0, 0.0], &fast, Rounds::Apart, 0.0, true), None);
    }

    #[test]
    fn of_many_comparisons_chance_is_taken_away() {
        let steady = [100.0, 101.0, 99.0, 100.5, 99.5];
        let a_little_better = [101.5, 102.5, 100.2, 101.9, 101.2];
        let mut all = vec![compare_rounds(&steady, &a_little_better, Rounds::Apart, 0.0, true).unwrap(); 1];
        assert_eq!(all[0].verdict, Verdict::Faster);
        let equal = compare_rounds(&steady, &steady, Rounds::Apart, 0.0, true).unwrap();
        all.extend([equal; 200]);
        correct_for_several(&mut all);
        assert!(all.iter().all(|compared| compared.verdict == Verdict::NoDifferenceShown));
    }
}
