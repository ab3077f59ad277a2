//! Which target and which case of one report is which of the other.

use std::collections::HashMap;

use serde::Serialize;

use crate::report::{Case, Report};

/// A target of each report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TargetPair {
    /// Label in the first report.
    pub first: String,
    /// Label in the second report.
    pub second: String,
    /// Why they are held against each other.
    pub matched_by: MatchedBy,
}

/// Why two targets are held against each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MatchedBy {
    /// They have the same label.
    Label,
    /// They were named alike on the command line.
    Spec,
    /// Each report has one target.
    OnlyOne,
    /// Nothing but their places.
    Order,
}

/// Pairs of targets, by what is surest first, in the order of the first report.
pub(super) fn targets(first: &Report, second: &Report) -> Vec<TargetPair> {
    let (ours, theirs) = (&first.targets, &second.targets);
    let mut partners: Vec<Option<(usize, MatchedBy)>> = vec![None; ours.len()];
    let mut taken = vec![false; theirs.len()];
    let mut take =
        |partners: &mut Vec<Option<(usize, MatchedBy)>>, by, fits: &dyn Fn(usize, usize) -> bool| {
            for (place, partner) in partners.iter_mut().enumerate().filter(|(_, partner)| partner.is_none()) {
                if let Some(found) = (0..taken.len()).find(|other| !taken[*other] && fits(place, *other)) {
                    taken[found] = true;
                    *partner = Some((found, by));
                }
            }
        };
    take(&mut partners, MatchedBy::Label, &|one, other| ours[one].label == theirs[other].label);
    if ours.len() == 1 && theirs.len() == 1 {
        take(&mut partners, MatchedBy::OnlyOne, &|_, _| true);
    }
    take(&mut partners, MatchedBy::Spec, &|one, other| ours[one].spec == theirs[other].spec);
    // Where others have a partner, or there are not as many here as there, a place says nothing.
    if ours.len() == theirs.len() && partners.iter().all(Option::is_none) {
        take(&mut partners, MatchedBy::Order, &|one, other| one == other);
    }
    let pair = |(target, partner): (&crate::report::TargetFacts, Option<(usize, MatchedBy)>)| {
        let (found, matched_by) = partner?;
        Some(TargetPair { first: target.label.clone(), second: theirs[found].label.clone(), matched_by })
    };
    ours.iter().zip(partners).filter_map(pair).collect()
}

/// What must be said of how targets were matched.
pub(super) fn notes(targets: &[TargetPair]) -> Vec<String> {
    let why = |matched_by| match matched_by {
        MatchedBy::Label => None,
        MatchedBy::Spec => Some("they were named alike on the command line"),
        MatchedBy::OnlyOne => Some("each report has one target"),
        MatchedBy::Order => Some("they have the same place in their reports, and nothing else in common"),
    };
    targets
        .iter()
        .filter_map(|pair| Some((pair, why(pair.matched_by)?)))
        .map(|(pair, why)| format!("{} is compared with {} because {why}", pair.first, pair.second))
        .collect()
}

/// Cases with the same identifier, in the order of the first report.
pub(super) fn cases<'a>(first: &'a Report, second: &'a Report) -> Vec<(&'a Case, &'a Case)> {
    let others: HashMap<&str, &Case> = second.cases.iter().map(|case| (case.id.as_str(), case)).collect();
    first.cases.iter().filter_map(|case| Some((case, *others.get(case.id.as_str())?))).collect()
}
