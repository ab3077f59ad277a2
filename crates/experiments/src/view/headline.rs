//! The few figures that stand for a report.

use std::collections::HashMap;

use crate::report::Case;

use super::format::{measured_text, ratio_text};
use super::{Group, Metric, View, estimate};

/// Most lines of a headline.
const LINES_MAX: usize = 8;

/// The point of a group with most operations in flight at which the first target and its reference both have figures.
pub(crate) fn main_case<'a>(view: &View<'a>, group: &Group<'a>) -> Option<&'a Case> {
    let throughput = throughput_of(group);
    let has = |case: &Case, target: usize| {
        view.result(case, target).is_some_and(|result| estimate(result, throughput).is_some())
    };
    let common = |case: &&Case| match view.main_pair() {
        Some((target, reference)) => has(case, target) && has(case, reference),
        None => has(case, 0),
    };
    let any = |case: &&Case| (0..view.targets.len()).any(|target| has(case, target));
    let most = |cases: Vec<&'a Case>| {
        // The first of equals, so that the headline follows the order of the report.
        cases.into_iter().rev().max_by_key(|case| (case.point.drives == Some(0), case.point.outstanding()))
    };
    let of =
        |wanted: &dyn Fn(&&Case) -> bool| group.cases.iter().copied().filter(|case| wanted(case)).collect();
    most(of(&common)).or_else(|| most(of(&any)))
}

/// What throughput of a group is shown as.
pub(crate) fn throughput_of(group: &Group<'_>) -> Metric {
    if group.is_large() { Metric::Bandwidth } else { Metric::Iops }
}

/// One line for each of the main scenarios and workloads.
pub(crate) fn headline(view: &View<'_>) -> Vec<String> {
    main_cases(view).into_iter().filter_map(|(group, case)| line(view, group, case)).collect()
}

/// Which groups the headline is of, with their main points: of each scenario in turn, until there are enough.
pub(crate) fn main_cases<'v, 'a>(view: &'v View<'a>) -> Vec<(&'v Group<'a>, &'a Case)> {
    let mut seen: HashMap<&str, usize> = HashMap::new();
    let mut found: Vec<(usize, usize, &Group<'_>, &Case)> = Vec::new();
    for (place, group) in view.groups.iter().enumerate() {
        if let Some(case) = main_case(view, group) {
            let turn = seen.entry(group.scenario).or_default();
            found.push((*turn, place, group, case));
            *turn += 1;
        }
    }
    found.sort_by_key(|(turn, place, ..)| (*turn, *place));
    found.truncate(LINES_MAX);
    found.sort_by_key(|(_, place, ..)| *place);
    found.into_iter().map(|(_, _, group, case)| (group, case)).collect()
}

fn line(view: &View<'_>, group: &Group<'_>, case: &Case) -> Option<String> {
    let throughput = throughput_of(group);
    let unit = if throughput == Metric::Iops { "IOPS" } else { "MiB/s" };
    let shown = |target: usize| {
        let own = estimate(view.result(case, target)?, throughput)?;
        Some(format!("{} {} {unit}", view.short[target], measured_text(&own)))
    };
    let mut parts: Vec<String> = Vec::new();
    for (is_named, pair) in by_target(&view.pairs) {
        let Some(mut text) = shown(pair.0) else { continue };
        let ratio =
            |metric| view.compared(case, pair, metric).map(|found| (ratio_text(&found.ratio), found.doubt()));
        let name = view.reference_name(pair, group);
        match (ratio(throughput), is_named) {
            (Some((ratio, doubt)), true) => {
                parts.push(format!("{ratio} times {name}{doubt}"));
                continue;
            }
            (Some((ratio, doubt)), false) => text += &format!(", {ratio} times {name}{doubt}"),
            (None, true) => continue,
            (None, false) => {}
        }
        if let Some((ratio, doubt)) = ratio(Metric::CpuPerIo) {
            text += &format!(", {ratio} times its CPU per I/O{doubt}");
        }
        parts.push(text);
    }
    if parts.is_empty() {
        parts.extend((0..view.targets.len()).filter_map(shown));
    }
    (!parts.is_empty()).then(|| {
        format!("{}, {}, {}: {}", group.scenario, group.workload, group.phrase(case), parts.join("; "))
    })
}

/// Pairs with those of one target behind each other, and whether the target was named before: what stands without a name is of the
/// target before it.
fn by_target(pairs: &[(usize, usize)]) -> Vec<(bool, (usize, usize))> {
    let mut sorted: Vec<(usize, usize)> = pairs.to_vec();
    sorted.sort_by_key(|(target, _)| pairs.iter().position(|(other, _)| other == target));
    let is_named = |place: usize| place > 0 && sorted[place - 1].0 == sorted[place].0;
    sorted.iter().enumerate().map(|(place, pair)| (is_named(place), *pair)).collect()
}
