//! A report in the order in which people look at it: by scenario and workload, and in each along what varies.
//!
//! Invariants:
//! - tables, plots and the headline take their figures from here, so that they cannot differ;
//! - a report that was read from a file may hold anything: nothing here panics on it.

pub(crate) mod figure;
pub(crate) mod format;
pub(crate) mod group;
pub(crate) mod headline;
pub(crate) mod published;

#[cfg(test)]
pub(crate) mod made_up;

use crate::report::{Case, CaseResult, Report};

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
    /// The target that others are compared with: the first that is not the first.
    pub(crate) reference: Option<usize>,
    /// Cases by scenario and workload.
    pub(crate) groups: Vec<Group<'a>>,
}

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
        let reference = (targets.len() > 1).then_some(1);
        View { report, short: short_labels(&targets), targets, reference, groups: group::groups(report) }
    }

    /// What a target showed in a case.
    pub(crate) fn result<'c>(&self, case: &'c Case, target: usize) -> Option<&'c CaseResult> {
        let label = self.targets.get(target)?;
        case.results.iter().find(|result| result.target == *label)
    }

    /// `Coquina / Ceph`, for each target that has a ratio.
    pub(crate) fn ratios(&self) -> Vec<(usize, usize, String)> {
        let Some(reference) = self.reference else { return Vec::new() };
        (0..self.targets.len())
            .filter(|target| *target != reference)
            .map(|target| (target, reference, format!("{} / {}", self.short[target], self.short[reference])))
            .collect()
    }
}

/// First words of labels, if these differ, or else the labels.
pub(crate) fn short_labels(labels: &[&str]) -> Vec<String> {
    let first: Vec<&str> = labels
        .iter()
        .map(|label| label.split_whitespace().next().unwrap_or(label).trim_end_matches(','))
        .collect();
    let differ = first.iter().enumerate().all(|(index, word)| !first[..index].contains(word));
    if differ { first } else { labels.to_vec() }.into_iter().map(str::to_owned).collect()
}

/// Everything that rounds say against themselves: identifier of the case, target and what.
pub(crate) fn contradictions(report: &Report) -> Vec<(&str, &str, &str)> {
    let mut found: Vec<(&str, &str, &str)> = Vec::new();
    for case in &report.cases {
        for result in &case.results {
            for text in result.rounds.iter().flat_map(|round| &round.contradictions) {
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
