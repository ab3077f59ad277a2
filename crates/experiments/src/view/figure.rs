//! One figure of one target at one point, of all its rounds.

use std::collections::BTreeMap;

use crate::report::{CaseResult, Figures, Round};
use crate::spread::{Compared, Rounds, Spread, compare_rounds, mean_of_rounds};

/// Nanoseconds in a microsecond.
const NS_PER_US: f64 = 1e3;
/// Microseconds in a second.
const US_PER_S: f64 = 1e6;
/// Bytes in a MiB.
const MIB: f64 = (1u64 << 20) as f64;

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Metric {
    /// Operations per second.
    Iops,
    /// MiB per second.
    Bandwidth,
    /// Mean latency of all operations, in microseconds.
    LatencyMean,
    /// Mean latency of the reads of a mix, in microseconds.
    LatencyMeanRead,
    /// Mean latency of the writes of a mix, in microseconds.
    LatencyMeanWrite,
    /// 99th percentile of the latency of all rounds together, in microseconds.
    LatencyP99,
    /// CPU time of the whole machine per operation, in microseconds.
    CpuPerIo,
    /// Operations per second that one busy core gives.
    IopsPerCore,
    /// Bytes written to drives per byte written by users.
    DriveBytes,
}

impl Metric {
    /// As in heads, without the unit.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Metric::Iops => "IOPS",
            Metric::Bandwidth => "throughput",
            Metric::LatencyMean => "mean latency",
            Metric::LatencyMeanRead => "mean read latency",
            Metric::LatencyMeanWrite => "mean write latency",
            Metric::LatencyP99 => "p99 latency",
            Metric::CpuPerIo => "CPU",
            Metric::IopsPerCore => "IOPS per core",
            Metric::DriveBytes => "drive/user bytes",
        }
    }

    /// The unit of [`estimate`].
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Metric::Iops | Metric::IopsPerCore | Metric::DriveBytes => "",
            Metric::Bandwidth => "MiB/s",
            Metric::CpuPerIo => "us/IO",
            _ => "us",
        }
    }

    /// Whether more is better.
    pub(crate) fn higher_is_better(self) -> bool {
        matches!(self, Metric::Iops | Metric::Bandwidth | Metric::IopsPerCore)
    }

    /// Whether it is a time that may be shown in milliseconds.
    pub(crate) fn is_latency(self) -> bool {
        matches!(
            self,
            Metric::LatencyMean | Metric::LatencyMeanRead | Metric::LatencyMeanWrite | Metric::LatencyP99
        )
    }

    /// That of one round. Of no use are figures that cannot be: of no operations, below 0, or no number.
    pub(crate) fn of_round(self, round: &Round) -> Option<f64> {
        let latency =
            |figures: &Figures| (figures.operations > 0).then_some(figures.latency_ns_mean / NS_PER_US);
        let value = match self {
            Metric::Iops => Some(round.total.iops),
            Metric::Bandwidth => Some(round.total.bytes_per_s / MIB),
            Metric::LatencyMean => latency(&round.total),
            Metric::LatencyMeanRead => round.read.as_ref().and_then(latency),
            Metric::LatencyMeanWrite => round.write.as_ref().and_then(latency),
            Metric::LatencyP99 => {
                (round.total.operations > 0).then_some(round.total.latency_ns_p99 as f64 / NS_PER_US)
            }
            Metric::CpuPerIo => cpu_us_per_io(round).filter(|_| round.total.operations > 0),
            Metric::IopsPerCore => cpu_us_per_io(round).filter(|us| *us > 0.0).map(|us| US_PER_S / us),
            Metric::DriveBytes => round.drive_bytes_per_user_byte,
        };
        value.filter(|value| value.is_finite() && *value >= 0.0)
    }
}

fn cpu_us_per_io(round: &Round) -> Option<f64> {
    round.cpu.as_ref().map(|cpu| cpu.machine_us_per_io)
}

/// The figure of all rounds. Percentiles are those of the merged rounds.
pub(crate) fn estimate(result: &CaseResult, metric: Metric) -> Option<Spread> {
    let values: Vec<f64> = result.good_rounds().filter_map(|round| metric.of_round(round)).collect();
    let mut spread = mean_of_rounds(&values)?;
    if metric == Metric::LatencyP99
        && let Some(merged_ns) = percentile(&merged_histogram(result), 0.99)
    {
        spread.mean = merged_ns as f64 / NS_PER_US;
    }
    Some(spread)
}

/// A target against another of the same report. Rounds are pairs if both are of the same case.
pub(crate) fn against(
    first: &CaseResult,
    second: &CaseResult,
    metric: Metric,
    rounds: Rounds,
) -> Option<Compared> {
    let values = |result: &CaseResult, other: &CaseResult| -> Vec<f64> {
        let has_pair = |round: &&Round| {
            let pair = other.good_rounds().find(|pair| pair.round == round.round);
            rounds == Rounds::Apart || pair.is_some_and(|pair| metric.of_round(pair).is_some())
        };
        result.good_rounds().filter(has_pair).filter_map(|round| metric.of_round(round)).collect()
    };
    let (ours, theirs) = (values(first, second), values(second, first));
    let mut compared = compare_rounds(&ours, &theirs, rounds, metric.higher_is_better())?;
    if metric == Metric::LatencyP99
        && let (Some(first), Some(second)) = (estimate(first, metric), estimate(second, metric))
        && first.mean > 0.0
    {
        compared.ratio.mean = second.mean / first.mean;
    }
    Some(compared)
}

/// The histograms of all good rounds, added up, by rising latency.
pub(crate) fn merged_histogram(result: &CaseResult) -> Vec<(u64, u64)> {
    let mut merged: BTreeMap<u64, u64> = BTreeMap::new();
    for (latency_ns, operations) in result.good_rounds().flat_map(|round| &round.total.latency_histogram) {
        let sum = merged.entry(*latency_ns).or_default();
        *sum = sum.saturating_add(*operations);
    }
    merged.into_iter().collect()
}

/// The latency in nanoseconds that a share of operations did not exceed.
pub(crate) fn percentile(histogram: &[(u64, u64)], share: f64) -> Option<u64> {
    let total: f64 = histogram.iter().map(|(_, operations)| *operations as f64).sum();
    let wanted = total * share;
    let mut seen = 0.0;
    for (latency_ns, operations) in histogram {
        seen += *operations as f64;
        if seen >= wanted && *operations > 0 {
            return Some(*latency_ns);
        }
    }
    histogram.last().map(|(latency_ns, _)| *latency_ns)
}

/// The limit that most good rounds name, as the round says it that names it first.
pub(crate) fn limit_of(result: &CaseResult) -> Option<&crate::report::LimitFigures> {
    let named = |round: &&Round| !round.limit.kind.is_empty();
    let times = |kind: &str| result.good_rounds().filter(|round| round.limit.kind == kind).count();
    let most = result.good_rounds().filter(named).map(|round| times(&round.limit.kind)).max()?;
    result.good_rounds().filter(named).map(|round| &round.limit).find(|limit| times(&limit.kind) == most)
}
