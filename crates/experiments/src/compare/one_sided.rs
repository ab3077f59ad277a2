//! What only one of two reports has: targets, cases, and figures of cases that both have.

use std::collections::HashSet;

use serde::Serialize;

use crate::report::{Case, CaseResult, Report};
use crate::table::wrap;
use crate::view::format::clean;

use super::matching::{self, TargetPair};

/// Most of one kind that a terminal is shown; JSON has all.
const SHOWN_MAX: usize = 10;

/// What one report has and the other one does not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OneSided {
    /// Labels of targets that were held against none of the other report.
    pub targets: Vec<String>,
    /// Identifiers of cases that the other one does not have.
    pub cases: Vec<String>,
    /// Targets that have figures in a case that both have, and none in the other report. Cases in which all rounds failed are not
    /// among them: the notes name these.
    pub figures: Vec<OneSidedFigures>,
}

/// A case of a target that has figures in one of the reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OneSidedFigures {
    /// Label of the target in the report that has the figures.
    pub target: String,
    /// Identifier of the case.
    pub case: String,
    /// Why the other report has none, if it says so.
    pub reason: Option<String>,
}

/// What only the first has, and what only the second.
pub(super) fn of(first: &Report, second: &Report, pairs: &[TargetPair]) -> (OneSided, OneSided) {
    let (mut ours, mut theirs) = (OneSided::default(), OneSided::default());
    ours.targets = unpaired(first, pairs.iter().map(|pair| pair.first.as_str()));
    theirs.targets = unpaired(second, pairs.iter().map(|pair| pair.second.as_str()));
    ours.cases = missing_in(first, second);
    theirs.cases = missing_in(second, first);
    for (one, other) in matching::cases(first, second) {
        for pair in pairs {
            let (own, others) = (result(one, &pair.first), result(other, &pair.second));
            ours.figures.extend(only_here(own, others, &pair.first, one));
            theirs.figures.extend(only_here(others, own, &pair.second, one));
        }
    }
    (ours, theirs)
}

fn unpaired<'a>(report: &Report, paired: impl Iterator<Item = &'a str>) -> Vec<String> {
    let paired: HashSet<&str> = paired.collect();
    let labels = report.targets.iter().map(|target| target.label.as_str());
    labels.filter(|label| !paired.contains(label)).map(str::to_owned).collect()
}

fn missing_in(report: &Report, other: &Report) -> Vec<String> {
    let known: HashSet<&str> = other.cases.iter().map(|case| case.id.as_str()).collect();
    let ids = report.cases.iter().map(|case| case.id.as_str());
    ids.filter(|id| !known.contains(id)).map(str::to_owned).collect()
}

fn result<'a>(case: &'a Case, label: &str) -> Option<&'a CaseResult> {
    case.results.iter().find(|result| result.target == label)
}

fn only_here(
    here: Option<&CaseResult>,
    there: Option<&CaseResult>,
    target: &str,
    case: &Case,
) -> Option<OneSidedFigures> {
    let is_told_otherwise =
        there.is_some_and(|there| there.has_failed() || there.good_rounds().next().is_some());
    if is_told_otherwise || here?.good_rounds().next().is_none() {
        return None;
    }
    let reason = there.and_then(|there| there.skipped.clone());
    Some(OneSidedFigures { target: target.to_owned(), case: case.id.clone(), reason })
}

impl OneSided {
    /// Lines for a terminal of so many columns; empty where there is nothing to say.
    pub(super) fn to_text(&self, which: &str, width: usize) -> String {
        let figures = self.figures.iter().map(|found| {
            let why = found.reason.as_ref().map(|reason| format!(" (the other: {reason})"));
            format!("figures of {} in {}{}", found.target, found.case, why.unwrap_or_default())
        });
        let lines: Vec<String> =
            listed(self.targets.iter().map(|label| format!("the target {label}")), "targets")
                .chain(listed(self.cases.iter().map(|id| format!("the case {id}")), "cases"))
                .chain(listed(figures, "cases without figures in the other"))
                .collect();
        if lines.is_empty() {
            return String::new();
        }
        let lines =
            lines.iter().map(|line| format!("  {}\n", wrap(&clean(line), width.saturating_sub(2), "    ")));
        format!("\nOnly in the {which} report\n{}", lines.collect::<String>())
    }
}

/// The first ones, and how many more there are.
fn listed(lines: impl ExactSizeIterator<Item = String>, kind: &str) -> impl Iterator<Item = String> {
    let left = lines.len().saturating_sub(SHOWN_MAX);
    let more = (left > 0).then(|| format!("and {left} more {kind}"));
    lines.take(SHOWN_MAX).chain(more)
}
