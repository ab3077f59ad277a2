//! Whether one target is better than another, in words that the figures bear.
//!
//! Invariants:
//! - fewer than three rounds never show a difference;
//! - a difference that is too small to print is none.

use std::fmt;

use serde::Serialize;

use super::estimate::{Estimate, NoisyMean, paired_log_ratio, unpaired_log_ratio};

/// How often equal targets may be told apart by chance.
const FALSE_ALARMS: f64 = 0.05;
/// How often [`Comparison::smallest_difference`] would be found.
const POWER: f64 = 0.8;
/// Rounds below which nothing is said.
const ROUNDS_MIN: usize = 3;
/// A smaller difference is none, whatever the noise: 0.05 %.
const NEGLIGIBLE: f64 = 0.0005;

/// Which values are good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Such as operations per second.
    HigherIsBetter,
    /// Such as latency and CPU time.
    LowerIsBetter,
}

/// What a comparison shows of b, as against a.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// b is better.
    Better,
    /// b is worse.
    Worse,
    /// It may be either; the interval says how large a difference might still be.
    NoDifferenceShown,
}

/// b as against a.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// b / a.
    pub ratio: Estimate,
    /// What it shows.
    pub verdict: Verdict,
    /// How likely chance alone gives a difference as large as this, for this comparison by itself; 1 below three rounds.
    pub p_value: f64,
    /// The difference that this many rounds with this noise show in four of five tries, as a share: 0.1 is 10 %.
    /// Infinity below three rounds.
    pub smallest_difference: f64,
    /// Which values are good.
    pub direction: Direction,
}

/// Compares targets that took turns: `a[i]` and `b[i]` are of the same round. `None` where there is no ratio, see
/// [`super::paired_ratio`].
pub fn compare_paired(a: &[f64], b: &[f64], direction: Direction) -> Option<Comparison> {
    paired_log_ratio(a, b).map(|mean| Comparison::new(mean, direction))
}

/// Compares runs that have nothing in common, such as reports of two machines. `None` where there is no ratio, see
/// [`super::unpaired_ratio`].
pub fn compare_unpaired(a: &[f64], b: &[f64], direction: Direction) -> Option<Comparison> {
    unpaired_log_ratio(a, b).map(|mean| Comparison::new(mean, direction))
}

/// The same of values that were rounded to steps, such as percentiles of a histogram, or that follow from counts of operations. `step` is the largest, as a share of the value; both
/// sides have it.
pub fn compare_steps(
    a: &[f64],
    b: &[f64],
    are_paired: bool,
    step: f64,
    direction: Direction,
) -> Option<Comparison> {
    let mean = if are_paired { paired_log_ratio(a, b) } else { unpaired_log_ratio(a, b) }?;
    Some(Comparison::new(mean.of_steps(step * 2f64.sqrt()), direction))
}

/// Withdraws verdicts until one of equal targets is told apart by chance in at most one of twenty such families.
/// Intervals and p-values stay those of each comparison by itself, so that correcting twice changes nothing.
///
/// S. Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6 (1979).
pub fn correct_for_several(comparisons: &mut [Comparison]) {
    // Those that could not have raised an alarm are no part of the family.
    let mut family: Vec<&mut Comparison> =
        comparisons.iter_mut().filter(|comparison| comparison.ratio.count >= ROUNDS_MIN).collect();
    family.sort_by(|one, other| one.p_value.total_cmp(&other.p_value));
    let size = family.len();
    let mut is_withdrawn = false;
    for (index, comparison) in family.into_iter().enumerate() {
        is_withdrawn |= comparison.p_value > FALSE_ALARMS / (size - index) as f64;
        if is_withdrawn {
            comparison.verdict = Verdict::NoDifferenceShown;
        }
    }
}

impl Comparison {
    fn new(log_ratio: NoisyMean, direction: Direction) -> Comparison {
        let ratio = log_ratio.ratio();
        if ratio.count < ROUNDS_MIN {
            return Comparison {
                ratio,
                verdict: Verdict::NoDifferenceShown,
                p_value: 1.0,
                smallest_difference: f64::INFINITY,
                direction,
            };
        }
        let p_value = log_ratio.chance();
        let verdict = if p_value > FALSE_ALARMS || (ratio.mean - 1.0).abs() < NEGLIGIBLE {
            Verdict::NoDifferenceShown
        } else if (ratio.mean > 1.0) == (direction == Direction::HigherIsBetter) {
            Verdict::Better
        } else {
            Verdict::Worse
        };
        let smallest = log_ratio.error_at(1.0 - FALSE_ALARMS / 2.0) + log_ratio.error_at(POWER);
        Comparison { ratio, verdict, p_value, smallest_difference: smallest.exp_m1(), direction }
    }

    /// The verdict for figures of speed, throughput or latency: `faster`, `slower` or `no difference shown`.
    pub fn speed_words(&self) -> &'static str {
        match self.verdict {
            Verdict::Better => "faster",
            Verdict::Worse => "slower",
            Verdict::NoDifferenceShown => "no difference shown",
        }
    }
}

impl fmt::Display for Comparison {
    /// `better by 8 to 12 %`, `worse by 3 to 9 %`, `no difference shown (-3 to +5 %)`: how far b's figure is from a's.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let low_percent = (self.ratio.low - 1.0) * 100.0;
        let high_percent = (self.ratio.high - 1.0) * 100.0;
        let word = match self.verdict {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::NoDifferenceShown if self.ratio.count < ROUNDS_MIN => {
                return write!(
                    formatter,
                    "no difference shown ({} of at least {ROUNDS_MIN} rounds)",
                    self.ratio.count
                );
            }
            Verdict::NoDifferenceShown => {
                return write!(
                    formatter,
                    "no difference shown ({})",
                    signed_range(low_percent, high_percent)
                );
            }
        };
        let (near, far) =
            if self.ratio.mean > 1.0 { (low_percent, high_percent) } else { (-high_percent, -low_percent) };
        write!(formatter, "{word} by {}", range(near, far))
    }
}

/// `8 to 12 %`, `0.3 to 0.7 %`, `up to 4 %`, `10 %`. Both ends are of the same sign.
fn range(near: f64, far: f64) -> String {
    let decimals = usize::from(near < 1.0 || format!("{near:.0}") == format!("{far:.0}"));
    let (near_text, far_text) = (rounded(near, decimals, false), rounded(far, decimals, false));
    if near_text == far_text {
        format!("{far_text} %")
    } else if near_text == "0" {
        format!("up to {far_text} %")
    } else {
        format!("{near_text} to {far_text} %")
    }
}

/// `-3 to +5 %`.
fn signed_range(low: f64, high: f64) -> String {
    let decimals = usize::from(low.abs().max(high.abs()) < 1.0);
    let (low_text, high_text) = (rounded(low, decimals, true), rounded(high, decimals, true));
    if low_text == high_text { format!("{low_text} %") } else { format!("{low_text} to {high_text} %") }
}

/// With at most so many decimals, without a zero after the point and without a sign of zero.
fn rounded(percent: f64, decimals: usize, is_signed: bool) -> String {
    let text = format!("{percent:.decimals$}");
    let text = text.strip_suffix(".0").unwrap_or(&text);
    match text {
        "0" | "-0" => "0".to_owned(),
        text if is_signed && percent > 0.0 => format!("+{text}"),
        text => text.to_owned(),
    }
}
