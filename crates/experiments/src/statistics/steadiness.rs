//! Whether throughput was steady over the measured time.
//!
//! The rule is that of SNIA's Solid State Storage Performance Test Specification, version 2.0.2, for steady state: over the
//! measurement window the values range over no more than 20 % of their average, and the ends of the straight line of
//! best fit differ by no more than 10 % of it. SNIA's values are rounds of a minute. These are samples of half a second
//! or so, which are much noisier, so the range is that of the averages of the window's four quarters.
//!
//! Invariants:
//! - a single spike changes nothing: a sample that is far from both its neighbours, as against what is usual in the
//!   series, is replaced by the nearer one first.

use serde::Serialize;

/// Samples below which nothing can be told.
pub const SAMPLES_MIN: usize = 8;
/// SNIA's limit of the range, as a share of the mean.
const RANGE_MAX: f64 = 0.20;
/// SNIA's limit of the slope over the window, as a share of the mean.
const SLOPE_MAX: f64 = 0.10;
/// How many times the usual step from sample to sample a spike is away from its neighbours: three standard deviations.
/// Much less would take noise for spikes, and make the slope noisier than it is.
const SPIKE_STEPS: f64 = 3.0;
/// What is nearer to its neighbours is no spike, as a share of the mean.
const SPIKE_MIN: f64 = 0.05;

/// Whether throughput was steady, and why it is thought so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Steadiness {
    /// Whether it was.
    pub is_steady: bool,
    /// `steady: slope 1.2 %, quarters within 4.0 % of the mean`, `not steady: grows by 23 % over the window`.
    pub text: String,
}

/// Judges samples of throughput at equal distances, in any unit.
pub fn steadiness(samples: &[f64]) -> Steadiness {
    let no = |text: String| Steadiness { is_steady: false, text };
    if samples.len() < SAMPLES_MIN {
        let noun = if samples.len() == 1 { "value" } else { "values" };
        return no(format!("too short to tell ({} {noun})", samples.len()));
    }
    if samples.iter().any(|sample| !sample.is_finite() || *sample < 0.0) {
        return no("not steady: some values are not rates".to_owned());
    }
    let smooth = without_spikes(samples);
    let mean = average(&smooth);
    if mean <= 0.0 {
        return no("not steady: nothing was done".to_owned());
    }

    let slope = growth(&smooth) / mean;
    let quarters = quarters(&smooth).map(|quarter| quarter / mean);
    let highest = quarters.iter().copied().fold(f64::MIN, f64::max);
    let lowest = quarters.iter().copied().fold(f64::MAX, f64::min);
    let distance = (highest - 1.0).max(1.0 - lowest);
    if slope.abs() > SLOPE_MAX {
        let verb = if slope > 0.0 { "grows" } else { "falls" };
        return no(format!("not steady: {verb} by {:.0} % over the window", slope.abs() * 100.0));
    }
    if highest - lowest > RANGE_MAX {
        let range = (highest - lowest) * 100.0;
        return no(format!("not steady: quarters range over {range:.0} % of the mean"));
    }
    let text = format!(
        "steady: slope {:.1} %, quarters within {:.1} % of the mean",
        // No sign of zero.
        (slope * 1000.0).round() / 10.0 + 0.0,
        distance * 100.0
    );
    Steadiness { is_steady: true, text }
}

/// The samples, with the median of itself and its neighbours in place of each spike.
fn without_spikes(samples: &[f64]) -> Vec<f64> {
    let medians = medians_of_three(samples);
    let mut steps: Vec<f64> = samples.windows(2).map(|pair| (pair[1] - pair[0]).abs()).collect();
    steps.sort_by(f64::total_cmp);
    let limit = (SPIKE_STEPS * steps[steps.len() / 2]).max(SPIKE_MIN * average(&medians));
    samples
        .iter()
        .zip(medians)
        .map(|(sample, median)| if (sample - median).abs() > limit { median } else { *sample })
        .collect()
}

/// The median of each sample and its two neighbours; at the ends, of the three outermost.
fn medians_of_three(samples: &[f64]) -> Vec<f64> {
    let last_start = samples.len() - 3;
    (0..samples.len())
        .map(|index| {
            let start = index.saturating_sub(1).min(last_start);
            let (one, two, three) = (samples[start], samples[start + 1], samples[start + 2]);
            one.min(two).max(one.max(two).min(three))
        })
        .collect()
}

fn average(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The averages of four parts which differ by at most one value in length.
fn quarters(values: &[f64]) -> [f64; 4] {
    let border = |quarter: usize| quarter * values.len() / 4;
    [0, 1, 2, 3].map(|quarter| average(&values[border(quarter)..border(quarter + 1)]))
}

/// How much the straight line of best fit rises from the first value to the last.
fn growth(values: &[f64]) -> f64 {
    let (middle, mean) = ((values.len() - 1) as f64 / 2.0, average(values));
    let (mut products, mut squares) = (0.0, 0.0);
    for (index, value) in values.iter().enumerate() {
        let distance = index as f64 - middle;
        products += distance * (value - mean);
        squares += distance * distance;
    }
    products / squares * (values.len() - 1) as f64
}
