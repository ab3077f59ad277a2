//! Means and ratios with their 95 % confidence intervals.
//!
//! Invariants:
//! - ratios are averaged as logarithms, so that a to b and b to a are exact inverses;
//! - one value alone has an interval without ends, since nothing is known of its noise.

use std::f64::consts::SQRT_2;

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};

/// How often an interval holds the true value.
const CONFIDENCE: f64 = 0.95;

/// A mean with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The mean; of ratios, the geometric one.
    pub mean: f64,
    /// Low end of the interval; minus infinity for one value, 0 for one ratio.
    pub low: f64,
    /// High end of the interval; infinity for one value.
    pub high: f64,
    /// How many values it rests on; pairs, or the values of the smaller side where they are not paired.
    pub count: usize,
}

impl Estimate {
    /// The mean of values whose noise is the same for all, by Student's t. `None` without values, or where one is not a
    /// number.
    pub fn of(values: &[f64]) -> Option<Estimate> {
        NoisyMean::of(values).map(NoisyMean::estimate)
    }
}

/// The ratio b / a of two targets that took turns: `a[i]` and `b[i]` are of the same round, so that what the machine did
/// in that round falls out. `None` unless there are as many of each and all are above 0.
pub fn paired_ratio(a: &[f64], b: &[f64]) -> Option<Estimate> {
    paired_log_ratio(a, b).map(NoisyMean::ratio)
}

/// The ratio b / a of two runs that have nothing in common, by Welch's t. `None` where a side is empty or a value is not
/// above 0.
pub fn unpaired_ratio(a: &[f64], b: &[f64]) -> Option<Estimate> {
    unpaired_ratio_of_steps(a, b, 0.0)
}

/// The same of values that were rounded to steps, or follow from counts. `step` is the largest, as a share of the value; both sides have it.
pub fn unpaired_ratio_of_steps(a: &[f64], b: &[f64], step: f64) -> Option<Estimate> {
    unpaired_log_ratio(a, b).map(|ratio| ratio.of_steps(step * SQRT_2).ratio())
}

pub(super) fn paired_log_ratio(a: &[f64], b: &[f64]) -> Option<NoisyMean> {
    if a.len() != b.len() {
        return None;
    }
    let differences: Vec<f64> = logarithms(b)?.iter().zip(logarithms(a)?).map(|(b, a)| b - a).collect();
    NoisyMean::of(&differences)
}

pub(super) fn unpaired_log_ratio(a: &[f64], b: &[f64]) -> Option<NoisyMean> {
    let (a, b) = (NoisyMean::of(&logarithms(a)?)?, NoisyMean::of(&logarithms(b)?)?);
    let (variance_a, variance_b) = (a.standard_error.powi(2), b.standard_error.powi(2));
    let variance = variance_a + variance_b;
    // Welch and Satterthwaite. Without any noise, or without any knowledge of it, their formula is 0/0.
    let freedom = if variance > 0.0 && variance.is_finite() {
        variance.powi(2) / (share(variance_a, a.freedom) + share(variance_b, b.freedom))
    } else {
        a.freedom.min(b.freedom)
    };
    let standard_error = variance.sqrt();
    Some(NoisyMean { mean: b.mean - a.mean, standard_error, freedom, count: a.count.min(b.count) })
}

fn share(variance: f64, freedom: f64) -> f64 {
    if variance > 0.0 { variance.powi(2) / freedom } else { 0.0 }
}

fn logarithms(values: &[f64]) -> Option<Vec<f64>> {
    values.iter().map(|value| (*value > 0.0 && value.is_finite()).then(|| value.ln())).collect()
}

/// A mean and what is known of its error.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoisyMean {
    pub mean: f64,
    /// Standard deviation of the mean; infinity where it is not known.
    pub standard_error: f64,
    /// Degrees of freedom of the standard error; 0 where it is not known.
    pub freedom: f64,
    pub count: usize,
}

impl NoisyMean {
    fn of(values: &[f64]) -> Option<NoisyMean> {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        if values.is_empty() || !mean.is_finite() {
            return None;
        }
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let standard_error =
            if values.len() < 2 { f64::INFINITY } else { (squares / (count - 1.0) / count).sqrt() };
        Some(NoisyMean { mean, standard_error, freedom: count - 1.0, count: values.len() })
    }

    /// The same of values that were rounded to steps of so much. Their noise may hide in the step, so that it seems to be 0: the mean
    /// cannot be known better than one value that lies anywhere in its step.
    pub(super) fn of_steps(self, step: f64) -> NoisyMean {
        NoisyMean { standard_error: self.standard_error.max(step / 12f64.sqrt()), ..self }
    }

    fn estimate(self) -> Estimate {
        let half = self.error_at((1.0 + CONFIDENCE) / 2.0);
        Estimate { mean: self.mean, low: self.mean - half, high: self.mean + half, count: self.count }
    }

    /// The same for a mean of logarithms.
    pub(super) fn ratio(self) -> Estimate {
        let logarithm = self.estimate();
        Estimate {
            mean: logarithm.mean.exp(),
            low: logarithm.low.exp(),
            high: logarithm.high.exp(),
            count: self.count,
        }
    }

    /// What the error stays below with this probability, which is above a half.
    pub(super) fn error_at(self, probability: f64) -> f64 {
        if self.standard_error == 0.0 {
            return 0.0;
        }
        match student(self.freedom) {
            Some(student) if self.standard_error.is_finite() => {
                student.inverse_cdf(probability) * self.standard_error
            }
            _ => f64::INFINITY,
        }
    }

    /// How likely chance alone gives a mean as far from 0 as this, or farther.
    pub(super) fn chance(self) -> f64 {
        // Rounding leaves that much of equal values.
        if self.mean.abs() < 1e-12 {
            return 1.0;
        }
        if self.standard_error == 0.0 {
            return 0.0;
        }
        match student(self.freedom) {
            Some(student) if self.standard_error.is_finite() => {
                (2.0 * student.cdf(-(self.mean / self.standard_error).abs())).min(1.0)
            }
            _ => 1.0,
        }
    }
}

fn student(freedom: f64) -> Option<StudentsT> {
    StudentsT::new(0.0, 1.0, freedom).ok()
}
