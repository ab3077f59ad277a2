//! What stands under a table.

use crate::report::{Case, CaseResult};
use crate::run::rates;
use crate::view::format::as_published;
use crate::view::published;
use crate::view::{Group, Metric, View};

/// Most cases that one note names.
const CASES_MAX: usize = 6;

/// The notes of a group: skipped cases, unsteady ones, failures, and published figures that have no row.
pub(super) fn notes(view: &View<'_>, group: &Group<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    for (target, label) in view.targets.iter().enumerate() {
        let results: Vec<(&Case, &CaseResult)> =
            group.cases.iter().filter_map(|case| Some((*case, view.result(case, target)?))).collect();
        skipped(&mut notes, group, label, &results);
        let unsteady = |result: &CaseResult| result.good_rounds().any(|round| round.is_steady == Some(false));
        let cases: Vec<&Case> =
            results.iter().filter(|(_, result)| unsteady(result)).map(|(case, _)| *case).collect();
        if !cases.is_empty() {
            notes.push(format!("{label} was not steady at {}", name(group, &cases)));
        }
        failed(&mut notes, group, label, &results);
        let missed = |case: &&Case, result: &CaseResult| rates::missed_iops(case, result).is_some();
        let cases: Vec<&Case> =
            results.iter().filter(|(case, result)| missed(case, result)).map(|(case, _)| *case).collect();
        if !cases.is_empty() {
            notes.push(format!(
                "{label} did not achieve what was offered at {}: latency there grows with the length of the run",
                name(group, &cases)
            ));
        }
    }
    notes.extend(published_notes(view, group));
    notes
}

/// One note for each reason.
fn skipped(notes: &mut Vec<String>, group: &Group<'_>, label: &str, results: &[(&Case, &CaseResult)]) {
    let mut reasons: Vec<(&str, Vec<&Case>)> = Vec::new();
    for (case, result) in results {
        let Some(reason) = result.skipped.as_deref().filter(|_| !result.has_failed()) else { continue };
        match reasons.iter_mut().find(|(other, _)| *other == reason) {
            Some((_, cases)) => cases.push(case),
            None => reasons.push((reason, vec![case])),
        }
    }
    for (reason, cases) in reasons {
        notes.push(format!("{label} skipped at {}: {reason}", name(group, &cases)));
    }
}

/// Rounds that are no part of the figures, and cases that have none at all.
fn failed(notes: &mut Vec<String>, group: &Group<'_>, label: &str, results: &[(&Case, &CaseResult)]) {
    let has_bad = |result: &CaseResult| result.rounds.iter().any(|round| !round.is_good());
    let of = |is_meant: &dyn Fn(&CaseResult) -> bool| -> Vec<&Case> {
        results.iter().filter(|(_, result)| is_meant(result)).map(|(case, _)| *case).collect()
    };
    let all = of(&CaseResult::has_failed);
    if !all.is_empty() {
        notes.push(format!("{label} failed in all rounds at {}: there are no figures", name(group, &all)));
    }
    let some = of(&|result| has_bad(result) && !result.has_failed());
    if !some.is_empty() {
        notes.push(format!("{label}: rounds with failed operations are left out at {}", name(group, &some)));
    }
}

fn name(group: &Group<'_>, cases: &[&Case]) -> String {
    let mut names: Vec<String> = cases.iter().take(CASES_MAX).map(|case| group.phrase(case)).collect();
    if cases.len() > CASES_MAX {
        names.push(format!("{} more", cases.len() - CASES_MAX));
    }
    let separator = if group.keys.len() > 1 { "; " } else { ", " };
    names.join(separator)
}

fn published_notes(view: &View<'_>, group: &Group<'_>) -> Vec<String> {
    let mut notes = Vec::new();
    let of_cases: Vec<_> =
        group.cases.iter().flat_map(|case| published::of_case(view.report, group, &case.point)).collect();
    if let Some(summed) = of_cases.iter().find(|published| published.clients > 1) {
        notes.push(format!(
            "published figures are those of {} clients together: operations added up, latencies weighed by them",
            summed.clients
        ));
    }
    if group.cases.len() > 1 || published::has_best(group) {
        // What has a row "best" needs no note, but for what has no column there.
        let figures: &[(Metric, &str)] = match published::has_best(group) {
            true => &[(Metric::IopsPerCore, "IOPS per core")],
            false => &[
                (Metric::Iops, "IOPS"),
                (Metric::IopsPerCore, "IOPS per core"),
                (Metric::Bandwidth, "MiB/s"),
                (Metric::LatencyMean, "us"),
            ],
        };
        for published in published::without_depth(view.report, group) {
            let texts: Vec<String> = figures
                .iter()
                .filter_map(|(metric, unit)| {
                    published.get(*metric).map(|value| format!("{} {unit}", as_published(value)))
                })
                .collect();
            if texts.is_empty() {
                continue;
            }
            notes.push(format!("published, without a depth: {}: {}", published.system, texts.join(", ")));
        }
    }
    notes
}
