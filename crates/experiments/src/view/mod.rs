//! A report in the order in which people look at it: by scenario and workload, and in each along what varies.
//!
//! Invariants:
//! - tables, plots and the headline take their figures from here, so that they cannot differ;
//! - a report that was read from a file may hold anything: nothing here panics on it.

pub(crate) mod cpu;
pub(crate) mod figure;
pub(crate) mod format;
pub(crate) mod group;
pub(crate) mod headline;
pub(crate) mod labels;
pub(crate) mod published;
pub(crate) mod setup;

#[cfg(test)]
pub(crate) mod made_up;

use std::collections::HashMap;

use crate::report::{Case, CaseResult, Report, Round, TargetComparison, TargetFacts};
use crate::run::comparisons::{correct_families, is_beside_a_drive, references_of_targets};
use crate::spread::{Compared, Rounds, Spread, Verdict, correct_for_several};

pub(crate) use figure::{Metric, estimate};
pub(crate) use group::{Group, Key};

/// A report, sorted.
pub(crate) struct View<'a> {
    /// The report.
    pub(crate) report: &'a Report,
    /// Labels of the targets, in the order of the columns.
    pub(crate) targets: Vec<&'a str>,
    /// The same, as short as they can be told apart.
    pub(crate) short: Vec<String>,
    /// Pairs of a target and the one that it is compared with.
    pub(crate) pairs: Vec<(usize, usize)>,
    /// Cases by scenario and workload.
    pub(crate) groups: Vec<Group<'a>>,
    /// Pairs in cases, by the case's identifier.
    judged: HashMap<(&'a str, Metric, (usize, usize)), Compared>,
}

/// Case, metric, target and reference.
type SaidKey<'a> = (&'a str, &'a str, &'a str, &'a str);

impl<'a> View<'a> {
    /// Sorts a report.
    pub(crate) fn of(report: &'a Report) -> Self {
        let mut targets: Vec<&str> = Vec::new();
        let listed = report.targets.iter().map(|target| target.label.as_str());
        let measured =
            report.cases.iter().flat_map(|case| case.results.iter().map(|result| result.target.as_str()));
        for label in listed.chain(measured) {
            if !targets.contains(&label) {
                targets.push(label);
            }
        }
        let pairs = pairs(report, &targets);
        let mut view = View {
            report,
            short: labels::short(&targets),
            pairs,
            targets,
            groups: group::groups(report),
            judged: HashMap::new(),
        };
        view.judge();
        view
    }

    /// The pair that stands for the report.
    pub(crate) fn main_pair(&self) -> Option<(usize, usize)> {
        self.pairs.first().copied()
    }

    /// What a target showed in a case.
    pub(crate) fn result<'c>(&self, case: &'c Case, target: usize) -> Option<&'c CaseResult> {
        let label = self.targets.get(target)?;
        case.results.iter().find(|result| result.target == *label)
    }

    /// Pairs with their names in a group: `Coquina / Ceph`.
    pub(crate) fn ratios(&self, group: &Group<'_>) -> Vec<(usize, usize, String)> {
        let name = |pair: &(usize, usize)| {
            (pair.0, pair.1, format!("{} / {}", self.short[pair.0], self.reference_name(*pair, group)))
        };
        self.pairs.iter().map(name).collect()
    }

    fn facts(&self, target: usize) -> Option<&'a TargetFacts> {
        facts_of(self.report, self.targets.get(target)?)
    }

    /// The name of what a target is compared with. That of a plain drive says where the store reads what its caches hold, which the
    /// drive has none of, and how few copies it writes.
    pub(crate) fn reference_name(&self, (target, reference): (usize, usize), group: &Group<'_>) -> String {
        let copies = |target| self.facts(target).and_then(|facts| facts.copies);
        let is_less = copies(reference) == Some(1) && copies(target) != Some(1);
        let mut name = self.short[reference].clone();
        if !self.is_beside_a_drive((target, reference)) {
            return name;
        }
        let is_warm = self.has_warm_reads(group);
        if is_less && (group.operation.writes() || !is_warm) {
            name += ", one copy";
        }
        let is_in_memory = self.facts(reference).is_some_and(|facts| facts.durable == Some(false));
        if is_warm && !is_in_memory {
            name += if group.operation.writes() { ", reads from the drive" } else { ", from the drive" };
        }
        name
    }

    /// Whether stores were read once before the cases of a group, so that their caches hold what fits into them.
    fn has_warm_reads(&self, group: &Group<'_>) -> bool {
        let mut layouts = self.report.layouts.iter().filter(|layout| layout.scenario == group.scenario);
        group.operation.reads() && layouts.any(|layout| layout.warm_reads)
    }

    /// Whether a pair is a store beside a plain drive.
    pub(crate) fn is_beside_a_drive(&self, (target, reference): (usize, usize)) -> bool {
        is_beside_a_drive(self.facts(target), self.facts(reference))
    }

    /// A pair in a case: as the report judges it, or else as its rounds do.
    pub(crate) fn compared(&self, case: &Case, pair: (usize, usize), metric: Metric) -> Option<Compared> {
        self.judged.get(&(case.id.as_str(), metric, pair)).copied()
    }

    /// Compares all pairs in all cases. Verdicts that the report does not give are corrected like those that it gives: for how
    /// many comparisons there are of the same figure.
    fn judge(&mut self) {
        let said = said(self.report);
        let are_beside: Vec<bool> = self.pairs.iter().map(|pair| self.is_beside_a_drive(*pair)).collect();
        for metric in Metric::ALL {
            let mut keys = Vec::new();
            let mut family = Vec::new();
            for case in &self.report.cases {
                for (pair, is_beside) in self.pairs.iter().zip(&are_beside) {
                    if let Some(found) = self.compare(&said, case, *pair, metric) {
                        keys.push((case.id.as_str(), metric, *pair));
                        family.push((found, *is_beside));
                    }
                }
            }
            correct_families(&mut family, correct_for_several);
            self.judged.extend(keys.into_iter().zip(family.into_iter().map(|(found, _)| found)));
        }
    }

    fn compare(
        &self,
        said: &HashMap<SaidKey<'_>, &TargetComparison>,
        case: &Case,
        (target, reference): (usize, usize),
        metric: Metric,
    ) -> Option<Compared> {
        let (own, other) = (self.result(case, target)?, self.result(case, reference)?);
        let name = match metric {
            Metric::Iops | Metric::Bandwidth => "iops",
            Metric::LatencyMean => "latency",
            Metric::CpuPerIo => "cpu",
            _ => return figure::against(other, own, metric, Rounds::Paired),
        };
        let key = (case.id.as_str(), name, self.targets[target], self.targets[reference]);
        let by_rounds = figure::against(other, own, metric, Rounds::Paired);
        // Bandwidth is said in operations.
        let same = match metric {
            Metric::Bandwidth => figure::against(other, own, Metric::Iops, Rounds::Paired),
            _ => by_rounds,
        };
        let are_all_good = own.rounds.iter().chain(&other.rounds).all(Round::is_good);
        match said.get(&key) {
            Some(said) if are_all_good || is_of_good_rounds(said, same.as_ref()) => {
                Some(judged(said, own.good_rounds().count().min(other.good_rounds().count())))
            }
            _ => by_rounds,
        }
    }
}

/// Whether a report compared what its good rounds give: reports of earlier versions compared the figures of those that failed as well.
fn is_of_good_rounds(said: &TargetComparison, by_rounds: Option<&Compared>) -> bool {
    by_rounds.is_some_and(|found| (found.ratio.mean / said.ratio - 1.0).abs() < 1e-6)
}

/// What a report says of a pair.
fn judged(said: &TargetComparison, rounds: usize) -> Compared {
    let ratio = Spread {
        mean: said.ratio,
        low: said.ratio_low.unwrap_or(0.0),
        high: said.ratio_high.unwrap_or(f64::INFINITY),
        count: rounds,
    };
    let verdict = match said.verdict.as_str() {
        "better" => Verdict::Faster,
        "worse" => Verdict::Slower,
        _ => Verdict::NoDifferenceShown,
    };
    Compared::said(ratio, verdict)
}

fn said(report: &Report) -> HashMap<SaidKey<'_>, &TargetComparison> {
    let usable = |said: &&TargetComparison| said.ratio.is_finite() && said.ratio > 0.0;
    report
        .comparisons
        .iter()
        .filter(usable)
        .map(|said| {
            ((said.case.as_str(), said.metric.as_str(), said.target.as_str(), said.reference.as_str()), said)
        })
        .collect()
}

fn facts_of<'a>(report: &'a Report, label: &str) -> Option<&'a TargetFacts> {
    report.targets.iter().find(|facts| facts.label == label)
}

/// Pairs that the report compares, those of different systems first and stores beside plain drives last. One that compares nothing, such as that of an older program that
/// was ended early, has the pairs that it would have compared.
fn pairs(report: &Report, targets: &[&str]) -> Vec<(usize, usize)> {
    let place = |label: &str| targets.iter().position(|target| *target == label);
    let mut pairs: Vec<(usize, usize)> = Vec::new();
    for said in &report.comparisons {
        if let (Some(target), Some(reference)) = (place(&said.target), place(&said.reference))
            && target != reference
            && !pairs.contains(&(target, reference))
        {
            pairs.push((target, reference));
        }
    }
    if pairs.is_empty() {
        pairs = usual_pairs(report, targets);
    }
    let facts = |target: usize| facts_of(report, targets[target]);
    let system = |target: usize| facts(target).and_then(|facts| facts.system.split_whitespace().next());
    pairs.sort_by_key(|(target, reference)| {
        let is_beside = is_beside_a_drive(facts(*target), facts(*reference));
        (is_beside, system(*target) == system(*reference))
    });
    pairs
}

/// The pairs that a run compares.
fn usual_pairs(report: &Report, targets: &[&str]) -> Vec<(usize, usize)> {
    let columns: Vec<(&str, bool)> = targets
        .iter()
        .map(|label| {
            let facts = facts_of(report, label);
            facts.map_or((*label, false), |facts| (facts.system.as_str(), facts.is_plain_drive()))
        })
        .collect();
    references_of_targets(&columns)
}

/// Everything that good rounds say against themselves: identifier of the case, target and what.
pub(crate) fn contradictions(report: &Report) -> Vec<(&str, &str, &str)> {
    let mut found: Vec<(&str, &str, &str)> = Vec::new();
    for case in &report.cases {
        for result in &case.results {
            for text in result.good_rounds().flat_map(|round| &round.contradictions) {
                let entry = (case.id.as_str(), result.target.as_str(), text.as_str());
                // Those of one case follow each other, so that a look at the last few is enough.
                if !found.iter().rev().take(16).any(|other| *other == entry) {
                    found.push(entry);
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::made_up::made_up;
    use super::*;
    use crate::report::Operation;

    #[test]
    fn a_report_without_comparisons_has_the_pairs_of_a_finished_one() {
        let mut report = made_up("curve-vs-ceph", &["Coquina", "Coquina over NBD", "Ceph", "plain file"]);
        for (facts, (system, copies)) in
            report.targets.iter_mut().zip([("Coquina", 3), ("Coquina", 3), ("Ceph", 3), ("file system", 1)])
        {
            (facts.system, facts.copies) = (system.to_owned(), Some(copies));
        }
        let pairs = [(0, 2), (1, 2), (1, 0), (0, 3)];
        assert_eq!(View::of(&report).pairs, pairs);
        report.comparisons = crate::run::comparisons::of(&report, &pairs);
        assert_eq!(View::of(&report).pairs, pairs);
        // Of an older report, which did not compare with the plain file.
        report.comparisons = crate::run::comparisons::of(&report, &pairs[..3]);
        assert_eq!(View::of(&report).pairs, pairs[..3]);
    }

    #[test]
    fn the_headline_tells_all_ratios_of_a_target_before_it_names_the_next() {
        let mut report = made_up("curve-vs-ceph", &["Coquina", "Coquina, NBD", "Ceph", "plain file"]);
        let systems = [("Coquina", 3), ("Coquina", 3), ("Ceph", 3), ("file system", 1)];
        for (facts, (system, copies)) in report.targets.iter_mut().zip(systems) {
            (facts.system, facts.copies) = (system.to_owned(), Some(copies));
            facts.is_plain = Some(copies == 1);
        }
        let view = View::of(&report);
        assert_eq!(view.pairs, [(0, 2), (1, 2), (1, 0), (0, 3)]);
        let lines = headline::headline(&view);
        let mut both =
            lines.iter().filter_map(|line| Some((line, line.split_once("; Coquina, NBD ")?))).peekable();
        assert!(both.peek().is_some(), "{lines:?}");
        for (line, (native, nbd)) in both {
            assert_eq!(native.matches(" times plain file").count(), 1, "{line}");
            assert_eq!(nbd.matches(" times Coquina").count(), 1, "{line}");
            assert!(!nbd.contains("plain file"), "{line}");
        }
    }

    #[test]
    fn a_store_beside_a_plain_file_comes_last_and_is_said_to_have_more_copies() {
        let mut report = made_up("curve-vs-ceph", &["Coquina", "Coquina, NBD", "plain file"]);
        let systems = [("Coquina", 3), ("Coquina", 3), ("file system", 1)];
        for (facts, (system, copies)) in report.targets.iter_mut().zip(systems) {
            (facts.system, facts.copies) = (system.to_owned(), Some(copies));
            facts.is_plain = Some(copies == 1);
        }
        let view = View::of(&report);
        assert_eq!(view.main_pair(), Some((1, 0)));
        let names: Vec<String> = view.ratios(&view.groups[0]).into_iter().map(|(.., name)| name).collect();
        assert_eq!(names, ["Coquina, NBD / Coquina", "Coquina / plain file, one copy"]);
        let lines = headline::headline(&view);
        assert!(lines[0].contains(" times plain file, one copy"), "{lines:?}");
        // The picture says once what it compares with.
        let picture = crate::html::headline_svg(&report);
        assert!(picture.contains("against Coquina<") && !picture.contains("plain file</text>"), "{picture}");
        report.targets[0].copies = Some(1);
        let view = View::of(&report);
        assert_eq!(view.ratios(&view.groups[0])[1].2, "Coquina / plain file", "both have one");
    }

    #[test]
    fn reads_from_the_drive_are_told_apart_from_reads_of_warm_caches() {
        let mut report = made_up("curve-vs-ceph", &["Coquina", "plain file"]);
        for (facts, copies) in report.targets.iter_mut().zip([3, 1]) {
            (facts.copies, facts.is_plain) = (Some(copies), Some(copies == 1));
        }
        report.layouts.iter_mut().for_each(|layout| layout.warm_reads = true);
        let name = |report: &Report, operation: Operation| {
            let view = View::of(report);
            let mut group = view.groups[0].clone();
            group.operation = operation;
            view.reference_name((0, 1), &group)
        };
        assert_eq!(name(&report, Operation::RandomRead), "plain file, from the drive");
        assert_eq!(name(&report, Operation::Mixed70), "plain file, one copy, reads from the drive");
        assert_eq!(name(&report, Operation::RandomWrite), "plain file, one copy");
        // All that shows ratios has it.
        let told = |text: &str| text.contains("plain file, from the drive");
        let view = View::of(&report);
        assert!(headline::headline(&view).iter().any(|line| told(line)));
        assert!(told(&crate::html::render(&report)) && told(&crate::table::text(&report, 200)));
        report.targets[1].durable = Some(false);
        assert_eq!(name(&report, Operation::RandomRead), "plain file", "it lies in memory");
        report.layouts.iter_mut().for_each(|layout| layout.warm_reads = false);
        assert_eq!(name(&report, Operation::RandomRead), "plain file, one copy");
    }

    #[test]
    fn ratios_that_the_report_does_not_judge_are_corrected_for_how_many_there_are() {
        let mut report = made_up("curve-vs-ceph", &["Coquina", "Ceph"]);
        for (place, case) in report.cases.iter_mut().enumerate() {
            let first = [100_000, 101_000, 99_000];
            let second = if place == 0 { [105_000, 105_000, 105_500] } else { first };
            for (result, values) in case.results.iter_mut().zip([second, first]) {
                for (round, ns) in result.rounds.iter_mut().zip(values) {
                    round.total.latency_ns_p99 = ns;
                    round.total.latency_histogram = vec![(ns, round.total.operations)];
                }
            }
        }
        let doubt = |report: &Report| {
            let found = View::of(report).compared(&report.cases[0], (0, 1), Metric::LatencyP99);
            found.map(|found| (found.verdict, found.doubt()))
        };
        assert_eq!(doubt(&report), Some((Verdict::NoDifferenceShown, " (not certain)")));
        report.cases.truncate(1);
        assert_eq!(doubt(&report), Some((Verdict::Slower, "")));
    }
}
