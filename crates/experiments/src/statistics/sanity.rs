//! Whether the figures of one run can all be true.
//!
//! Operations in flight are operations per second times mean latency, J. D. C. Little, "A proof for the queuing formula
//! L = λW", Operations Research 9 (1961); bandwidth is operations per second times the size of one. Where a product is
//! wrong by a factor that people often get wrong, such as thousand, that is said.
//!
//! Invariants:
//! - only what is known is judged: a figure that is missing, 0 or not a number contradicts nothing.

use std::fmt;

use serde::Serialize;

/// How far figures may be from Little's law: the generator's own time between operations is in no latency.
const LITTLE_TOLERANCE: f64 = 0.15;
/// How far measured bandwidth may be from what operations carry.
const BANDWIDTH_TOLERANCE: f64 = 0.05;
/// The same of figures that others printed: nothing but their rounding is between them.
const BANDWIDTH_TOLERANCE_PRINTED: f64 = 0.01;
/// Digits that a printed figure surely has, zeros at its end included.
const DIGITS_PRINTED_MIN: i32 = 3;
/// Decimals that are looked for in a printed figure.
const DECIMALS_PRINTED_MAX: i32 = 6;
/// How far a factor may be from a whole number that explains it, as a share.
const WHOLE_TOLERANCE: f64 = 0.05;
/// The same as a difference, since any large number is near a whole one.
const WHOLE_DISTANCE_MAX: f64 = 0.25;
/// How far a factor may be from a power of 1.024 that explains it; these lie close to 1 and to each other.
const UNIT_TOLERANCE: f64 = 0.005;

/// What was told of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Operations per second.
    pub iops: Option<f64>,
    /// Bytes per second.
    pub bandwidth_bytes_per_s: Option<f64>,
    /// Bytes of the operations that were in flight at the end, per second of the whole run: fio counts these in its bandwidth, and
    /// not in its operations per second. None: both count the same operations.
    pub in_flight_at_end_bytes_per_s: Option<f64>,
    /// Size of one operation.
    pub block_bytes: Option<u32>,
    /// Mean latency.
    pub latency_ns_mean: Option<f64>,
    /// Operations in flight, all jobs together.
    pub outstanding: Option<f64>,
    /// The generator's own time between two operations may be so long; it is in no latency.
    pub between_ns_max: f64,
    /// Whether load was offered at a rate. Then the depth is a limit, and says nothing of what was in flight.
    pub is_open_loop: bool,
}

/// Which figures contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ContradictionKind {
    /// Operations in flight against operations per second times mean latency.
    LittlesLaw,
    /// Bandwidth against operations per second times their size.
    Bandwidth,
}

/// Figures that cannot all be true.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Contradiction {
    /// Which.
    pub kind: ContradictionKind,
    /// What contradicts what, with the numbers, and what may be the reason.
    pub text: String,
}

impl fmt::Display for Contradiction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

/// Finds what cannot be true. Nothing is found where too little was told.
pub fn check(figures: &Figures) -> Vec<Contradiction> {
    [littles_law(figures), bandwidth(figures, BANDWIDTH_TOLERANCE)].into_iter().flatten().collect()
}

/// The same for figures as they were printed, where bandwidth and operations per second may be off by this share together, see
/// [`rounding`].
pub fn check_printed(figures: &Figures, rounding: f64) -> Vec<Contradiction> {
    let tolerance = rounding.max(BANDWIDTH_TOLERANCE_PRINTED);
    [littles_law(figures), bandwidth(figures, tolerance)].into_iter().flatten().collect()
}

/// How far a figure may be from what was measured, as a share, by the digits that were printed: one in the last of them, since
/// some programs round and others cut off. Zeros at the end of large figures may be no digits: `104000` was 104k.
pub fn rounding(printed: f64) -> f64 {
    if !printed.is_finite() || printed <= 0.0 {
        return 0.0;
    }
    let is_whole_in = |unit: f64| {
        let units = printed / unit;
        (units - units.round()).abs() < 1e-9 * units.max(1.0)
    };
    let largest = (printed.log10().floor() as i32 - DIGITS_PRINTED_MIN + 1).max(0);
    let last = (-DECIMALS_PRINTED_MAX..=largest).rev().find(|place| is_whole_in(10f64.powi(*place)));
    10f64.powi(last.unwrap_or(-DECIMALS_PRINTED_MAX)) / printed
}

fn littles_law(figures: &Figures) -> Option<Contradiction> {
    if figures.is_open_loop {
        return None;
    }
    let iops = usable(figures.iops)?;
    let latency_ns = usable(figures.latency_ns_mean)?;
    let told = usable(figures.outstanding)?;
    let found = iops * latency_ns / 1e9;
    let found_max = iops * (latency_ns + figures.between_ns_max) / 1e9;
    if found / told <= 1.0 + LITTLE_TOLERANCE && found_max / told >= 1.0 - LITTLE_TOLERANCE {
        return None;
    }
    let text = format!(
        "{} operations/s of {} mean latency are {} in flight by Little's law, not {}{}",
        number(iops),
        duration(latency_ns),
        number(found),
        number(told),
        hint(little_hint(found / told))
    );
    Some(Contradiction { kind: ContradictionKind::LittlesLaw, text })
}

/// What may be the reason that so many times more were found in flight than were told.
fn little_hint(factor: f64) -> Option<String> {
    if let Some(thousands) = power_of_thousand(factor) {
        return Some(format!("the unit of latency may be wrong by {thousands}"));
    }
    if let Some(jobs) = whole_factor(factor) {
        return Some(format!("as if {jobs} jobs ran and one was told"));
    }
    whole_factor(1.0 / factor).map(|jobs| {
        format!("as if {jobs} jobs were told and one ran, or operations were those of one of {jobs} jobs")
    })
}

fn bandwidth(figures: &Figures, tolerance: f64) -> Option<Contradiction> {
    let iops = usable(figures.iops)?;
    let told = usable(figures.bandwidth_bytes_per_s)?;
    let block_bytes = figures.block_bytes.filter(|block_bytes| *block_bytes > 0)?;
    let found = iops * f64::from(block_bytes);
    let at_end = usable(figures.in_flight_at_end_bytes_per_s).unwrap_or(0.0);
    if (found..=found + at_end).contains(&told) {
        return None;
    }
    let without_end = if told > found { told - at_end } else { told };
    let units = power_of_unit(told / found);
    // MB and MiB differ by 4.9 %, which is so exact a sign that it counts below the tolerance, too.
    if units.is_none() && is_close(without_end / found, 1.0, tolerance) {
        return None;
    }
    let text = format!(
        "{} operations/s of {block_bytes} bytes are {}, not {}{}",
        number(iops),
        bandwidth_words(found),
        bandwidth_words(told),
        hint(units.or_else(|| bandwidth_hint(told / found)))
    );
    Some(Contradiction { kind: ContradictionKind::Bandwidth, text })
}

/// What may be the reason that so many times more bandwidth was told than found.
fn bandwidth_hint(factor: f64) -> Option<String> {
    if let Some(thousands) = power_of_thousand(factor) {
        return Some(format!("the unit of bandwidth may be wrong by {thousands}"));
    }
    if let Some(whole) = whole_factor(factor) {
        let bits = if whole == 8 { ", or bits were taken for bytes" } else { "" };
        return Some(format!("as if operations were those of one of {whole} jobs{bits}"));
    }
    whole_factor(1.0 / factor).map(|whole| format!("as if bandwidth were that of one of {whole} jobs"))
}

/// A unit of 1000s that was taken for one of 1024s, or the other way round.
fn power_of_unit(factor: f64) -> Option<String> {
    [("MB/s", "MiB/s", 1.024_f64.powi(2)), ("GB/s", "GiB/s", 1.024_f64.powi(3))].into_iter().find_map(
        |(decimal, binary, unit)| {
            if is_close(factor, unit, UNIT_TOLERANCE) {
                Some(format!("{decimal} may have been taken for {binary}"))
            } else if is_close(factor, 1.0 / unit, UNIT_TOLERANCE) {
                Some(format!("{binary} may have been taken for {decimal}"))
            } else {
                None
            }
        },
    )
}

/// The words for 1000, a million or a milliard, and their inverses. Generous, since nothing else is as far off.
fn power_of_thousand(factor: f64) -> Option<&'static str> {
    let size = if factor < 1.0 { 1.0 / factor } else { factor };
    [(1e3, "1000"), (1e6, "1000000"), (1e9, "1000000000")]
        .into_iter()
        .find(|(thousands, _)| is_close(size, *thousands, LITTLE_TOLERANCE))
        .map(|(_, words)| words)
}

/// 2 to 16, where the factor is one of them.
fn whole_factor(factor: f64) -> Option<u32> {
    let whole = factor.round();
    let is_near = is_close(factor, whole, WHOLE_TOLERANCE) && (factor - whole).abs() <= WHOLE_DISTANCE_MAX;
    ((2.0..=16.0).contains(&whole) && is_near).then_some(whole as u32)
}

fn is_close(value: f64, wanted: f64, tolerance: f64) -> bool {
    (value / wanted - 1.0).abs() <= tolerance
}

fn usable(figure: Option<f64>) -> Option<f64> {
    figure.filter(|figure| figure.is_finite() && *figure > 0.0)
}

fn hint(words: Option<String>) -> String {
    words.map_or_else(String::new, |words| format!(" ({words})"))
}

/// Three digits or so, without zeros after the point.
fn number(value: f64) -> String {
    let decimals = match value {
        value if value >= 100.0 => 0,
        value if value >= 10.0 => 1,
        value if value >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.decimals$}");
    if decimals == 0 { text } else { text.trim_end_matches('0').trim_end_matches('.').to_owned() }
}

fn duration(nanoseconds: f64) -> String {
    match nanoseconds {
        value if value >= 1e9 => format!("{} s", number(value / 1e9)),
        value if value >= 1e6 => format!("{} ms", number(value / 1e6)),
        value if value >= 1e3 => format!("{} µs", number(value / 1e3)),
        value => format!("{} ns", number(value)),
    }
}

fn bandwidth_words(bytes_per_s: f64) -> String {
    match bytes_per_s {
        value if value >= 1e6 => format!("{} MB/s", number(value / 1e6)),
        value if value >= 1e3 => format!("{} kB/s", number(value / 1e3)),
        value => format!("{} bytes/s", number(value)),
    }
}
