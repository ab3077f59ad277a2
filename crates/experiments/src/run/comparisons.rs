//! Targets, or settings, against each other: ratios with intervals, and verdicts.

use crate::report::{CaseResult, Finding, Report, Round, TargetComparison, TargetFacts, counting_step};
use crate::statistics::{Comparison, Direction, Verdict, compare_steps, correct_for_several};

/// What is compared of a round.
struct Metric {
    name: &'static str,
    direction: Direction,
    value: fn(&Round) -> Option<f64>,
    /// Whether it follows from the number of operations, of which there is one more or fewer by chance.
    is_counted: bool,
}

const METRICS: [Metric; 3] = [
    Metric {
        name: "iops",
        direction: Direction::HigherIsBetter,
        value: |round| Some(round.total.iops),
        is_counted: true,
    },
    Metric {
        name: "latency",
        direction: Direction::LowerIsBetter,
        value: |round| Some(round.total.latency_ns_mean),
        is_counted: false,
    },
    Metric {
        name: "cpu",
        direction: Direction::LowerIsBetter,
        value: |round| round.cpu.as_ref()?.machine_us_per_io,
        is_counted: true,
    },
];

/// Pairs (column, its reference) of a run that compares targets. Stores are compared with the first one of another system, if
/// there is one, and with the first one of their own system: what NBD costs, for example. Last comes the first store beside the first
/// plain drive; with the other plain drives it is compared only where there is nothing else. `columns` are the systems, and whether they are plain drives.
pub fn references_of_targets(columns: &[(&str, bool)]) -> Vec<(usize, usize)> {
    let stores: Vec<usize> = (0..columns.len()).filter(|column| !columns[*column].1).collect();
    let Some(first) = stores.first() else {
        return (1..columns.len()).map(|other| (other, 0)).collect();
    };
    let peer = stores.iter().find(|other| columns[**other].0 != columns[*first].0);
    let mut pairs: Vec<(usize, usize)> = Vec::new();
    if let Some(peer) = peer {
        pairs.extend(stores.iter().filter(|column| *column != peer).map(|column| (*column, *peer)));
    }
    for column in stores.iter().skip(1) {
        if columns[*column].0 == columns[*first].0 {
            pairs.push((*column, *first));
        }
    }
    let drives = (0..columns.len()).filter(|column| columns[*column].1).map(|drive| (*first, drive));
    let drives_max = if pairs.is_empty() { columns.len() } else { 1 };
    pairs.extend(drives.take(drives_max));
    pairs
}

/// Whether a pair is a store beside a plain drive, which has one copy, and none of its work: a reference, and no rival. Such pairs are
/// a family of their own, so that they take nothing from the verdicts of others.
pub fn is_beside_a_drive(target: Option<&TargetFacts>, reference: Option<&TargetFacts>) -> bool {
    let is_plain = |facts: Option<&TargetFacts>| facts.is_some_and(TargetFacts::is_plain_drive);
    is_plain(reference) && !is_plain(target)
}

/// Corrects for how many there are in each of the two families; those of the second are so marked.
pub fn correct_families<T: Copy>(all: &mut [(T, bool)], correct: impl Fn(&mut [T])) {
    for is_second in [false, true] {
        let mut family: Vec<T> =
            all.iter().filter(|(_, of)| *of == is_second).map(|(each, _)| *each).collect();
        correct(&mut family);
        let places = all.iter_mut().filter(|(_, of)| *of == is_second);
        places.zip(family).for_each(|((each, _), corrected)| *each = corrected);
    }
}

/// Compares each column with its reference in all cases. Verdicts are corrected for how many comparisons there are of one
/// metric; those with plain drives apart.
pub fn of(report: &Report, references: &[(usize, usize)]) -> Vec<TargetComparison> {
    let mut all = Vec::new();
    for Metric { name: metric, direction, value, is_counted } in METRICS {
        let mut found: Vec<TargetComparison> = Vec::new();
        let mut comparisons: Vec<(Comparison, bool)> = Vec::new();
        for case in &report.cases {
            for (column, reference) in references {
                let (Some(mine), Some(other)) = (case.results.get(*column), case.results.get(*reference))
                else {
                    continue;
                };
                let (a, b) = paired(other, mine, value);
                // JSON has no word for what is no number.
                let step = if is_counted {
                    counting_step(other.good_rounds().chain(mine.good_rounds()))
                } else {
                    0.0
                };
                let comparison =
                    compare_steps(&a, &b, true, step, direction).filter(|found| found.ratio.mean.is_finite());
                let Some(comparison) = comparison else { continue };
                let named = TargetComparison {
                    case: case.id.clone(),
                    metric: metric.to_owned(),
                    target: mine.target.clone(),
                    reference: other.target.clone(),
                    ratio: comparison.ratio.mean,
                    ratio_low: Some(comparison.ratio.low).filter(|low| low.is_finite()),
                    ratio_high: Some(comparison.ratio.high).filter(|high| high.is_finite()),
                    verdict: String::new(),
                    text: String::new(),
                };
                found.push(named);
                let facts = |column: &usize| report.targets.get(*column);
                comparisons.push((comparison, is_beside_a_drive(facts(column), facts(reference))));
            }
        }
        correct_families(&mut comparisons, correct_for_several);
        for (mut named, (comparison, _)) in found.into_iter().zip(comparisons) {
            named.verdict = match comparison.verdict {
                Verdict::Better => "better",
                Verdict::Worse => "worse",
                Verdict::NoDifferenceShown => "no difference shown",
            }
            .to_owned();
            named.text = comparison.to_string();
            all.push(named);
        }
    }
    all
}

/// One finding for each setting and case: what it did to each metric.
pub fn verdicts(report: &Report) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for found in &report.comparisons {
        let subject = format!("{} against {}, {}", found.target, found.reference, found.case);
        let name = match found.metric.as_str() {
            "iops" => "operations per second",
            "latency" => "mean latency",
            _ => "CPU per operation",
        };
        let text = format!("{name} {}", found.text);
        match findings.iter_mut().find(|finding| finding.subject == subject) {
            Some(finding) => finding.text += &format!("; {text}"),
            None => findings.push(Finding { kind: "verdict".to_owned(), subject, text }),
        }
    }
    findings
}

/// Values of the good rounds that both have.
fn paired(a: &CaseResult, b: &CaseResult, value: fn(&Round) -> Option<f64>) -> (Vec<f64>, Vec<f64>) {
    let both = a.good_rounds().filter_map(|first| {
        let second = b.good_rounds().find(|second| second.round == first.round)?;
        Some((value(first)?, value(second)?))
    });
    both.filter(|(first, second)| *first > 0.0 && *second > 0.0).unzip()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Case, CpuFigures, Figures, Operation, Point};

    fn result(target: &str, iops: &[f64]) -> CaseResult {
        let rounds = iops.iter().enumerate().map(|(index, iops)| Round {
            round: index as u32 + 1,
            total: Figures { iops: *iops, latency_ns_mean: 1e9 / iops, ..Figures::default() },
            ..Round::default()
        });
        CaseResult { target: target.to_owned(), rounds: rounds.collect(), skipped: None, settled_s: 0.0 }
    }

    fn point() -> Point {
        Point {
            scenario: "s".into(),
            operation: Operation::RandomRead,
            block_bytes: 4096,
            depth: 1,
            jobs: 1,
            volumes: 1,
            volumes_per_client: None,
            clients: 1,
            drives: None,
            copies: None,
            placement: None,
            rate_iops: None,
        }
    }

    #[test]
    fn rounds_are_compared_in_pairs() {
        // The machine drifts by far more than the two differ.
        let slow = result("slow", &[100.0, 200.0, 150.0, 300.0, 120.0]);
        let mut fast = result("fast", &[121.0, 239.0, 181.0, 362.0, 143.0]);
        fast.rounds.remove(1);
        let case = Case { id: "c".into(), point: point(), results: vec![fast, slow] };
        let report = Report { cases: vec![case], ..Report::default() };
        let found = of(&report, &[(0, 1)]);
        assert_eq!(found.len(), 2, "of CPU nothing is known");
        assert_eq!((found[0].metric.as_str(), found[0].verdict.as_str()), ("iops", "better"));
        assert!((1.19..1.22).contains(&found[0].ratio), "{:?}", found[0]);
        assert_eq!(found[1].verdict, "better");
        let report = Report { comparisons: found, ..report };
        let verdicts = verdicts(&report);
        assert_eq!(verdicts.len(), 1);
        assert!(verdicts[0].text.starts_with("operations per second better by 1"), "{verdicts:?}");
        assert!(verdicts[0].text.contains("; mean latency better by"), "{verdicts:?}");
    }

    #[test]
    fn one_operation_more_or_fewer_in_each_round_is_no_difference() {
        let verdict = |slow: u64, fast: u64| {
            let counted = |target, operations: u64| {
                let mut result = result(target, &[operations as f64; 4]);
                result.rounds.iter_mut().for_each(|round| {
                    (round.total.operations, round.total.latency_ns_mean) = (operations, 0.0);
                });
                result
            };
            let results = vec![counted("slow", slow), counted("fast", fast)];
            let case = Case { id: "c".into(), point: point(), results };
            let found = of(&Report { cases: vec![case], ..Report::default() }, &[(0, 1)]);
            (found[0].metric.clone(), found[0].verdict.clone())
        };
        let of_iops = |verdict: &str| ("iops".to_owned(), verdict.to_owned());
        assert_eq!(verdict(10, 11), of_iops("no difference shown"));
        assert_eq!(verdict(1000, 1100), of_iops("worse"));
        assert_eq!(verdict(10, 20), of_iops("worse"));
    }

    #[test]
    fn rounds_that_failed_and_cpu_that_was_not_seen_are_not_compared() {
        let mut quick = result("quick to fail", &[90000.0, 100.0, 101.0, 99.0]);
        quick.rounds[0].errors = 1;
        let mut other = result("other", &[100.0, 100.0, 101.0, 99.0]);
        for result in [&mut quick, &mut other] {
            for round in result.rounds.iter_mut().skip(2) {
                round.cpu = Some(CpuFigures { machine_us_per_io: Some(7.0), ..CpuFigures::default() });
            }
        }
        let case = Case { id: "c".into(), point: point(), results: vec![quick, other] };
        let found = of(&Report { cases: vec![case], ..Report::default() }, &[(0, 1)]);
        let ratios: Vec<(&str, f64)> =
            found.iter().map(|found| (found.metric.as_str(), found.ratio)).collect();
        assert_eq!(ratios, [("iops", 1.0), ("latency", 1.0), ("cpu", 1.0)]);
    }

    #[test]
    fn a_report_that_was_written_can_be_read() {
        for experiment in ["curve-vs-ceph", "hdd-tuning"] {
            let mut report = crate::view::made_up::made_up(experiment, &["Coquina", "Ceph"]);
            report.cases[0].results[0].rounds[0] = Round::default();
            report.comparisons = of(&report, &[(0, 1)]);
            assert!(!report.comparisons.is_empty());
            let json = serde_json::to_string(&report).unwrap();
            let read: Report = serde_json::from_str(&json).unwrap();
            let unknown = |json: &str| json.matches("null").count();
            assert_eq!(unknown(&serde_json::to_string(&read).unwrap()), unknown(&json));
            assert_eq!(
                (read.cases.len(), read.comparisons.len()),
                (report.cases.len(), report.comparisons.len())
            );
        }
    }

    #[test]
    fn plain_drives_take_nothing_from_the_verdicts_of_stores() {
        // The two stores differ by so little that a second comparison in the family withdraws the verdict.
        let results = [&[103.1, 104.2, 102.05], &[100.0, 100.0, 100.0], &[500.0, 100.0, 300.0]];
        let labels = ["Coquina", "Ceph", "plain file"];
        let results = labels.iter().zip(results).map(|(label, iops)| result(label, iops)).collect();
        let case = Case { id: "c".into(), point: point(), results };
        let mut report = Report { cases: vec![case], ..Report::default() };
        report.targets = labels
            .map(|label| TargetFacts {
                label: label.to_owned(),
                is_plain: Some(label == "plain file"),
                ..TargetFacts::default()
            })
            .into();
        let judged = |report: &Report, references: &[(usize, usize)]| {
            let found = of(report, references);
            let iops = found.into_iter().filter(|found| found.metric == "iops");
            iops.map(|found| found.verdict).collect::<Vec<String>>()
        };
        assert_eq!(judged(&report, &[(0, 1)]), ["better"]);
        assert_eq!(judged(&report, &[(0, 1), (0, 2)]), ["better", "no difference shown"]);
        report.targets.clear();
        assert_eq!(judged(&report, &[(0, 1), (0, 2)])[0], "no difference shown", "in one family");
    }

    #[test]
    fn stores_are_compared_with_another_system_and_with_the_first_of_their_own() {
        let (coquina, ceph, file) = (("Coquina", false), ("Ceph", false), ("file system", true));
        assert_eq!(references_of_targets(&[coquina, coquina, file, ceph]), [(0, 3), (1, 3), (1, 0), (0, 2)]);
        assert_eq!(references_of_targets(&[coquina, coquina]), [(1, 0)]);
        assert_eq!(references_of_targets(&[file, coquina, coquina, file]), [(2, 1), (1, 0)]);
        assert_eq!(references_of_targets(&[coquina, file]), [(0, 1)]);
        assert_eq!(references_of_targets(&[coquina, file, file]), [(0, 1), (0, 2)]);
        assert_eq!(references_of_targets(&[file, file]), [(1, 0)]);
        assert!(references_of_targets(&[coquina]).is_empty() && references_of_targets(&[]).is_empty());
    }
}
