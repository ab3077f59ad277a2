//! Two reports of one experiment: of two machines, or before and after a change.
//!
//! Invariants:
//! - reports of different experiments, or of versions that are not known, are refused;
//! - whatever was not equal is listed, for a ratio without it misleads; so is what only one of them has;
//! - rounds of two reports did not take turns: they are never treated as pairs.

mod differences;
mod matching;
mod one_sided;
mod text;

#[cfg(test)]
mod tests;

use serde::Serialize;

use crate::report::{CaseResult, REPORT_VERSION, Report};
use crate::spread::{Compared, Rounds, Spread, Verdict, correct_for_several};
use crate::view::figure::against;
use crate::view::{Metric, estimate};

pub use matching::{MatchedBy, TargetPair};
pub use one_sided::{OneSided, OneSidedFigures};

/// What is compared.
const METRICS: [Metric; 4] = [Metric::Iops, Metric::LatencyMean, Metric::LatencyP99, Metric::CpuPerIo];

/// Why two reports cannot be compared.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// A report was written by a program whose fields may mean something else.
    #[error(
        "the {which} report has version {version}; this program compares version {REPORT_VERSION}: run the experiment \
         again, or use the program that wrote it"
    )]
    UnknownVersion {
        /// `first` or `second`.
        which: &'static str,
        /// Its version.
        version: u32,
    },
    /// The reports are of two experiments.
    #[error(
        "the reports are of different experiments, {first} and {second}; compare two reports of the same one"
    )]
    DifferentExperiments {
        /// Experiment of the first.
        first: String,
        /// Experiment of the second.
        second: String,
    },
    /// No case was measured in both.
    #[error(
        "no case was measured in both reports ({first} cases with figures in the first, {second} in the second); compare \
         reports of the same mode"
    )]
    NothingInCommon {
        /// Cases of the first.
        first: usize,
        /// Cases of the second.
        second: usize,
    },
}

/// Two reports side by side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReportComparison {
    /// Name of the experiment.
    pub experiment: String,
    /// The first report.
    pub first: Side,
    /// The second report.
    pub second: Side,
    /// Which targets were held against each other.
    pub targets: Vec<TargetPair>,
    /// What was not equal.
    pub notes: Vec<String>,
    /// What the first report has and the second does not.
    pub only_first: OneSided,
    /// What the second report has and the first does not.
    pub only_second: OneSided,
    /// Cases that were measured in both, in the order of the first.
    pub cases: Vec<ComparedCase>,
}

/// Where a report comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Side {
    /// Processor, cores and kernel.
    pub machine: String,
    /// `quick`, `default` or `full`.
    pub mode: String,
    /// When it began, in seconds since 1970.
    pub began_unix_s: u64,
    /// Version of the program.
    pub program_version: String,
}

/// One case of one pair of targets.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparedCase {
    /// Identifier of the case.
    pub id: String,
    /// Place in [`ReportComparison::targets`].
    pub target: usize,
    /// Its figures.
    pub metrics: Vec<ComparedMetric>,
}

/// One figure in both reports.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ComparedMetric {
    /// `iops`, `latency_us_mean`, `latency_us_p99` or `cpu_machine_us_per_io`.
    pub metric: &'static str,
    /// In the first report.
    pub first: Spread,
    /// In the second report.
    pub second: Spread,
    /// Second over first; `None` where the first is 0.
    pub ratio: Option<Spread>,
    /// Whether the second is better.
    pub verdict: Verdict,
    #[serde(skip)]
    compared: Option<Compared>,
}

/// Compares two reports; `second` is judged by `first`.
pub fn compare(first: &Report, second: &Report) -> Result<ReportComparison, CompareError> {
    for (which, report) in [("first", first), ("second", second)] {
        if report.report_version != REPORT_VERSION {
            return Err(CompareError::UnknownVersion { which, version: report.report_version });
        }
    }
    if first.experiment.name != second.experiment.name {
        return Err(CompareError::DifferentExperiments {
            first: first.experiment.name.clone(),
            second: second.experiment.name.clone(),
        });
    }
    let targets = matching::targets(first, second);
    let mut cases = Vec::new();
    for (one, other) in matching::cases(first, second) {
        for (place, pair) in targets.iter().enumerate() {
            let result = |results: &'_ [CaseResult], label: &str| {
                results.iter().position(|result| result.target == label)
            };
            let (Some(own), Some(theirs)) =
                (result(&one.results, &pair.first), result(&other.results, &pair.second))
            else {
                continue;
            };
            let metrics = metrics(&one.results[own], &other.results[theirs]);
            if !metrics.is_empty() {
                cases.push(ComparedCase { id: one.id.clone(), target: place, metrics });
            }
        }
    }
    if cases.is_empty() {
        let count = |report: &Report| {
            let has_figures = |result: &CaseResult| result.good_rounds().next().is_some();
            report.cases.iter().filter(|case| case.results.iter().any(has_figures)).count()
        };
        return Err(CompareError::NothingInCommon { first: count(first), second: count(second) });
    }
    correct(&mut cases);
    let mut notes = matching::notes(&targets);
    notes.extend(differences::notes(first, second, &targets));
    let (only_first, only_second) = one_sided::of(first, second, &targets);
    Ok(ReportComparison {
        experiment: first.experiment.name.clone(),
        first: side(first),
        second: side(second),
        targets,
        notes,
        only_first,
        only_second,
        cases,
    })
}

fn side(report: &Report) -> Side {
    let environment = &report.environment;
    Side {
        machine: format!(
            "{}, {} cores, kernel {}",
            environment.cpu_model, environment.cores, environment.kernel
        ),
        mode: report.mode.clone(),
        began_unix_s: report.began_unix_s,
        program_version: report.program_version.clone(),
    }
}

fn metrics(first: &CaseResult, second: &CaseResult) -> Vec<ComparedMetric> {
    METRICS
        .iter()
        .filter_map(|metric| {
            let compared = against(first, second, *metric, Rounds::Apart);
            Some(ComparedMetric {
                metric: name(*metric),
                first: estimate(first, *metric)?,
                second: estimate(second, *metric)?,
                ratio: compared.map(|compared| compared.ratio),
                verdict: compared.map_or(Verdict::NoDifferenceShown, |compared| compared.verdict),
                compared,
            })
        })
        .collect()
}

/// Withdraws verdicts that chance alone would give among so many. All cases of one figure are a family.
fn correct(cases: &mut [ComparedCase]) {
    for metric in METRICS {
        let metrics = cases.iter_mut().flat_map(|case| &mut case.metrics);
        let family = metrics.filter(|found| found.metric == name(metric) && found.compared.is_some());
        let family: Vec<&mut ComparedMetric> = family.collect();
        let mut compared: Vec<Compared> = family.iter().filter_map(|found| found.compared).collect();
        correct_for_several(&mut compared);
        for (found, compared) in family.into_iter().zip(compared) {
            found.verdict = compared.verdict;
        }
    }
}

/// As in JSON.
fn name(metric: Metric) -> &'static str {
    match metric {
        Metric::Iops => "iops",
        Metric::Bandwidth => "bandwidth_mib_s",
        Metric::LatencyMean => "latency_us_mean",
        Metric::LatencyMeanRead => "latency_us_mean_read",
        Metric::LatencyMeanWrite => "latency_us_mean_write",
        Metric::LatencyP99 => "latency_us_p99",
        Metric::CpuPerIo => "cpu_machine_us_per_io",
        Metric::IopsPerThread => "iops_per_hardware_thread",
        Metric::IopsPerCore => "iops_per_core",
        Metric::DriveBytes => "drive_bytes_per_user_byte",
    }
}
