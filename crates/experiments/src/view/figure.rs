//! One figure of one target at one point, of all its rounds.

use std::collections::BTreeMap;

use crate::limit::LimitKind;
use crate::report::{CaseResult, Figures, LimitFigures, Round, counting_step};
use crate::spread::{Compared, Rounds, Spread, compare_rounds, mean_of_rounds};

/// Nanoseconds in a microsecond.
const NS_PER_US: f64 = 1e3;
/// Microseconds in a second.
const US_PER_S: f64 = 1e6;
/// Bytes in a MiB.
const MIB: f64 = (1u64 << 20) as f64;

/// Largest step of percentiles as a share of them: fio's histograms have 64 buckets from a power of two to the next. Those of `coquina bench io`
/// are finer, and are compared with the same care.
const PERCENTILE_STEP: f64 = 1.0 / 64.0;

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// CPU time of what makes and serves the load per operation, in microseconds; of the whole machine where servers cannot be seen.
    CpuPerIo,
    /// Operations per second that one busy processor gives, as the kernel counts them: a hardware thread.
    IopsPerThread,
    /// Operations per second by the physical cores that jobs were pinned to.
    IopsPerCore,
    /// Bytes written to drives per byte written by users.
    DriveBytes,
}

impl Metric {
    /// All of them.
    pub(crate) const ALL: [Metric; 10] = [
        Metric::Iops,
        Metric::Bandwidth,
        Metric::LatencyMean,
        Metric::LatencyMeanRead,
        Metric::LatencyMeanWrite,
        Metric::LatencyP99,
        Metric::CpuPerIo,
        Metric::IopsPerThread,
        Metric::IopsPerCore,
        Metric::DriveBytes,
    ];

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
            Metric::IopsPerThread => "IOPS per hardware thread",
            Metric::IopsPerCore => "IOPS per core",
            Metric::DriveBytes => "drive/user bytes",
        }
    }

    /// The unit of [`estimate`].
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Metric::Iops | Metric::IopsPerThread | Metric::IopsPerCore | Metric::DriveBytes => "",
            Metric::Bandwidth => "MiB/s",
            Metric::CpuPerIo => "us/IO",
            _ => "us",
        }
    }

    /// Whether more is better.
    pub(crate) fn higher_is_better(self) -> bool {
        matches!(self, Metric::Iops | Metric::Bandwidth | Metric::IopsPerThread | Metric::IopsPerCore)
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
            // 0 stands for a generator that told no histogram.
            Metric::LatencyP99 => (round.total.operations > 0 && round.total.latency_ns_p99 > 0)
                .then_some(round.total.latency_ns_p99 as f64 / NS_PER_US),
            Metric::CpuPerIo => cpu_us_per_io(round).filter(|_| round.total.operations > 0),
            Metric::IopsPerThread => cpu_us_per_io(round).map(|us| US_PER_S / us),
            Metric::IopsPerCore => {
                round.cores_pinned.filter(|cores| *cores > 0).map(|cores| round.total.iops / f64::from(cores))
            }
            Metric::DriveBytes => round.drive_bytes_per_user_byte,
        };
        value.filter(|value| value.is_finite() && *value >= 0.0)
    }
}

/// Earlier versions wrote 0 where more was busy before the load than with it.
fn cpu_us_per_io(round: &Round) -> Option<f64> {
    round.cpu.as_ref()?.machine_us_per_io.filter(|us| *us > 0.0)
}

/// The figure of all good rounds, with its interval. Percentiles are those of the merged rounds, never means of percentiles; their
/// intervals are those of the rounds' own percentiles, widened where these do not hold that of all.
pub(crate) fn estimate(result: &CaseResult, metric: Metric) -> Option<Spread> {
    let values: Vec<f64> = result.good_rounds().filter_map(|round| metric.of_round(round)).collect();
    let spread = mean_of_rounds(&values)?;
    match metric {
        Metric::LatencyP99 => Some(spread.around(merged_p99_us(result)?)),
        _ => Some(spread),
    }
}

fn merged_p99_us(result: &CaseResult) -> Option<f64> {
    let merged_ns = percentile(&merged_histogram(result), 0.99)?;
    // Buckets are named by their highest value.
    let largest_ns = result.good_rounds().map(|round| round.total.latency_ns_max).max().filter(|ns| *ns > 0);
    Some(merged_ns.min(largest_ns.unwrap_or(u64::MAX)) as f64 / NS_PER_US)
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
    let step = match metric {
        Metric::LatencyP99 => PERCENTILE_STEP,
        Metric::LatencyMean | Metric::LatencyMeanRead | Metric::LatencyMeanWrite => 0.0,
        _ => counting_step(first.good_rounds().chain(second.good_rounds())),
    };
    let compared = compare_rounds(&ours, &theirs, rounds, step, metric.higher_is_better())?;
    if metric != Metric::LatencyP99 {
        return Some(compared);
    }
    // The ratio of the two figures that are shown.
    let ratio = estimate(second, metric)?.mean / estimate(first, metric)?.mean;
    ratio.is_finite().then(|| compared.around(ratio))
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

/// The limit that most good rounds name, as the round says it that names it first. Of as many that name one and none, it is the one.
pub(crate) fn limit_of(result: &CaseResult) -> Option<&LimitFigures> {
    let limits = || result.good_rounds().map(|round| &round.limit).filter(|limit| !limit.kind.is_empty());
    let times = |limit: &LimitFigures| {
        let is_named = limit.kind != LimitKind::Unknown.name();
        (limits().filter(|other| other.kind == limit.kind).count(), is_named)
    };
    let most = limits().map(times).max()?;
    limits().find(|limit| times(limit) == most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spread::Verdict;

    /// Rounds of so many operations of 1 ms, and so many of the other latency, which is the round's p99.
    fn result(rounds: &[(u64, u64, u64)]) -> CaseResult {
        let rounds = rounds.iter().zip(1..).map(|((usual, slow, slow_ns), round)| Round {
            round,
            total: Figures {
                operations: usual + slow,
                latency_ns_p99: *slow_ns,
                latency_ns_max: *slow_ns,
                latency_histogram: vec![(1_000_000, *usual), (*slow_ns, *slow)],
                ..Figures::default()
            },
            ..Round::default()
        });
        CaseResult { target: "t".into(), rounds: rounds.collect(), skipped: None, settled_s: 0.0 }
    }

    #[test]
    fn the_interval_of_a_percentile_holds_it_and_a_verdict_agrees_with_it() {
        // One round in four has nearly all operations, and no slow ones.
        let first =
            result(&[(100, 20, 5_000_000), (100, 20, 5_100_000), (100, 20, 4_900_000), (9000, 1, 5_000_000)]);
        let second = result(&[(98, 2, 2_000_000); 4]);
        let figure = estimate(&first, Metric::LatencyP99).unwrap();
        assert_eq!(figure.mean, 1000.0, "that of all operations");
        assert!(figure.low <= figure.mean && figure.high > 4900.0, "{figure:?}");
        for rounds in [Rounds::Paired, Rounds::Apart] {
            let found = against(&first, &second, Metric::LatencyP99, rounds).unwrap();
            let second = estimate(&second, Metric::LatencyP99).unwrap();
            assert_eq!(found.ratio.mean, second.mean / figure.mean);
            assert!(found.ratio.low <= found.ratio.mean && found.ratio.mean <= found.ratio.high);
            assert!(found.ratio.low < 0.5, "that of the rounds is part of it: {found:?}");
            let mut all = [found];
            crate::spread::correct_for_several(&mut all);
            for found in [found, all[0]] {
                assert_eq!(found.verdict, Verdict::NoDifferenceShown, "rounds say less, all together more");
            }
        }
    }

    #[test]
    fn percentiles_of_neighbouring_buckets_are_not_told_apart_by_rounds_that_all_agree() {
        let of = |count: usize, slow_ns: u64| result(&vec![(90, 10, slow_ns); count]);
        let verdict = |count, first_ns, second_ns, rounds| {
            let (first, second) = (of(count, first_ns), of(count, second_ns));
            against(&first, &second, Metric::LatencyP99, rounds).unwrap().verdict
        };
        // Buckets of 65,536 ns; the latencies may differ by next to nothing.
        for rounds in [Rounds::Paired, Rounds::Apart] {
            assert_eq!(verdict(5, 4_259_839, 4_325_375, rounds), Verdict::NoDifferenceShown);
            assert_eq!(verdict(5, 4_259_839, 4_456_447, rounds), Verdict::Slower, "three buckets");
            assert_eq!(verdict(3, 4_259_839, 8_454_143, rounds), Verdict::Slower, "twice");
        }
    }

    #[test]
    fn a_percentile_without_a_histogram_is_unknown() {
        let mut untold = result(&[(100, 1, 2_000_000); 3]);
        for round in &mut untold.rounds {
            (round.total.latency_ns_p99, round.total.latency_histogram) = (0, Vec::new());
        }
        assert_eq!(estimate(&untold, Metric::LatencyP99), None);
        assert_eq!(against(&untold, &untold, Metric::LatencyP99, Rounds::Paired), None);
    }

    /// CPU time counts hardware threads: both siblings of a core are busy where it gives its 320,000.
    #[test]
    fn two_siblings_are_one_core() {
        let mut round = Round { cores_pinned: Some(1), ..Round::default() };
        round.total.iops = 320_000.0;
        let machine_us_per_io = Some(2.0 * US_PER_S / 320_000.0);
        round.cpu = Some(crate::report::CpuFigures { machine_us_per_io, ..Default::default() });
        assert_eq!(Metric::IopsPerThread.of_round(&round), Some(160_000.0));
        assert_eq!(Metric::IopsPerCore.of_round(&round), Some(320_000.0));
        for nothing_pinned in [None, Some(0)] {
            round.cores_pinned = nothing_pinned;
            assert_eq!(Metric::IopsPerCore.of_round(&round), None);
        }
    }

    #[test]
    fn the_limit_is_the_one_that_most_rounds_name() {
        let of = |kinds: &[&str]| {
            let mut result = result(&vec![(90, 10, 2_000_000); kinds.len()]);
            for (round, kind) in result.rounds.iter_mut().zip(kinds) {
                round.limit.kind = (*kind).to_owned();
            }
            limit_of(&result).map(|limit| limit.kind.clone())
        };
        assert_eq!(of(&["unknown", "one-core", "unknown", "one-core"]).as_deref(), Some("one-core"));
        assert_eq!(of(&["unknown", "one-core", "unknown"]).as_deref(), Some("unknown"));
        assert_eq!(of(&["drive", "cpu", "cpu", "drive"]).as_deref(), Some("drive"), "the first of them");
        assert_eq!(of(&["", ""]), None);
    }

    #[test]
    fn figures_of_one_round_are_its_own() {
        let one = result(&[(98, 2, 2_000_000)]);
        assert_eq!(estimate(&one, Metric::LatencyP99).map(|figure| figure.mean), Some(2000.0));
    }
}
