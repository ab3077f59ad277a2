//! Where throughput stops growing with clients or drives, how far drives are from a straight line, and how sure that is.
//!
//! Invariants:
//! - only points that differ in nothing but the step are held against each other; "all drives" is as many as the target has;
//! - a later step counts as growth unless its rounds show that it is none: what may be noise is said to be that.

use crate::report::{Case, CaseResult, Finding, Point, counting_step};
use crate::statistics::unpaired_ratio_of_steps;
use crate::view::figure::limit_of;

use super::FLAT_GROWTH;
use super::findings::finding;

/// Rounds of a step below which nothing is shown.
const ROUNDS_MIN: usize = 3;
/// How the reason of a step begins that was left out because the one before had not grown.
const ENDED: &str = "throughput grew by less than 5 %";

/// Drives that give less than this share of what one gives alone have left the straight line.
const SHARE_MIN: f64 = 0.9;

/// Points of a curve with so many clients or drives. A target's last drive and "all drives" are one step.
pub struct Step<'a> {
    /// Clients or drives.
    count: u32,
    /// `4 drives`.
    title: String,
    /// Identifiers of its cases.
    cases: Vec<&'a str>,
    /// Operations per second of each round.
    iops: Vec<f64>,
    result: &'a CaseResult,
}

impl Step<'_> {
    fn mean(&self) -> f64 {
        self.iops.iter().sum::<f64>() / self.iops.len().max(1) as f64
    }

    /// Whether its mean is not above that of an earlier step by [`FLAT_GROWTH`].
    fn is_flat_after(&self, earlier: &Step<'_>) -> bool {
        self.mean() < earlier.mean() * (1.0 + FLAT_GROWTH)
    }

    /// The 95 % interval of its throughput over that of an earlier step.
    fn growth_over(&self, earlier: &Step<'_>) -> (f64, f64) {
        let step = counting_step(earlier.result.good_rounds().chain(self.result.good_rounds()));
        match unpaired_ratio_of_steps(&earlier.iops, &self.iops, step) {
            Some(ratio) if ratio.count >= ROUNDS_MIN => (ratio.low, ratio.high),
            _ => (0.0, f64::INFINITY),
        }
    }
}

/// Whether two points differ in nothing but the step: drives where these are told, or else clients.
fn same_but_steps(a: &Point, b: &Point) -> bool {
    let without = |point: &Point| match point.drives {
        Some(_) => Point { drives: Some(0), ..point.clone() },
        None => Point { clients: 0, ..point.clone() },
    };
    without(a) == without(b)
}

/// `4 clients`, `8 drives`, with how many it is on a target with so many drives.
fn step(point: &Point, drives: u32) -> (u32, String) {
    let counted =
        |count: u32, name: &str| if count == 1 { format!("1 {name}") } else { format!("{count} {name}s") };
    match point.drives {
        Some(0) => (drives, format!("all {}", counted(drives, "drive"))),
        Some(drives) => (drives, counted(drives, "drive")),
        None => (point.clients, counted(point.clients, "client")),
    }
}

/// The steps of a point's curve that have figures of a target, which has so many drives, in the order in which they were run.
fn curve<'a>(cases: &'a [Case], point: &Point, target: usize, drives: u32) -> Vec<Step<'a>> {
    let mut steps: Vec<Step<'a>> = Vec::new();
    for case in cases.iter().filter(|case| same_but_steps(&case.point, point)) {
        let Some(result) = case.results.get(target).filter(|result| result.good_rounds().next().is_some())
        else {
            continue;
        };
        let iops = result.good_rounds().map(|round| round.total.iops);
        let (count, title) = step(&case.point, drives);
        match steps.iter_mut().find(|other| other.count == count) {
            Some(same) => {
                same.iops.extend(iops);
                same.cases.push(&case.id);
            }
            None => steps.push(Step { count, title, cases: vec![&case.id], iops: iops.collect(), result }),
        }
    }
    steps
}

/// Why the steps of a ladder after this point are left out for a target, if throughput had stopped growing for two steps.
pub fn end_of_ladder(cases: &[Case], id: &str, point: &Point, target: usize, drives: u32) -> Option<String> {
    let steps = curve(cases, point, target, drives);
    let [.., before, between, now] = steps.as_slice() else { return None };
    // One step may be slow by chance.
    let is_flat = between.is_flat_after(before) && now.is_flat_after(before);
    (now.cases.contains(&id) && is_flat).then(|| format!("{ENDED} from {} to {}", before.title, now.title))
}

/// What the curves of one scenario show, for targets which have so many drives.
pub fn of(cases: &[Case], drives: &[u32]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let targets = cases.iter().map(|case| case.results.len()).max().unwrap_or(0);
    for (place, case) in cases.iter().enumerate() {
        if cases[..place].iter().any(|other| same_but_steps(&other.point, &case.point)) {
            continue;
        }
        for target in 0..targets {
            let mut steps = curve(cases, &case.point, target, drives.get(target).copied().unwrap_or(1));
            let ended = cases.iter().filter(|other| same_but_steps(&other.point, &case.point)).any(|other| {
                let skipped = other.results.get(target).and_then(|result| result.skipped.as_deref());
                skipped.is_some_and(|reason| reason.starts_with(ENDED))
            });
            let unsure = if ended { not_shown(&steps) } else { None };
            steps.sort_by_key(|step| step.count);
            let knee = knee(&steps);
            let mut scaling = if case.point.drives.is_some() { Scaling::of(&steps) } else { None };
            let label = case.results.get(target).map_or("", |result| result.target.as_str());
            let subject = format!("{}: {label}", curve_title(cases, &case.point));
            if let Some(mut text) = knee.or(unsure) {
                if let Some(scaling) = scaling.take() {
                    text += &format!("; {}{}", scaling.text, scaling.shared);
                }
                findings.push(finding("stops-growing", &subject, &text));
            }
            if let Some(scaling) = scaling {
                let shared = if scaling.is_below { scaling.shared.as_str() } else { "" };
                findings.push(finding("scaling", &subject, &format!("{}{shared}", scaling.text)));
            }
        }
    }
    findings
}

/// `drives together, 4k random read`, and what tells the curve from others of that workload.
fn curve_title(cases: &[Case], point: &Point) -> String {
    let mut title = format!("{}, {}", point.scenario, point.workload());
    let others = || cases.iter().map(|case| &case.point).filter(|other| other.workload() == point.workload());
    if others().any(|other| other.depth != point.depth) {
        title += &format!(", depth {}", point.depth);
    }
    if others().any(|other| other.jobs != point.jobs) {
        title += &format!(", {} job(s)", point.jobs);
    }
    if let Some(placement) = &point.placement {
        title += &format!(", on {placement}");
    }
    if let Some(rate_iops) =
        point.rate_iops.filter(|_| others().any(|other| other.rate_iops != point.rate_iops))
    {
        title += &format!(", {rate_iops} per second offered");
    }
    title
}

/// How sure it is that throughput does not grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sureness {
    /// By no more than [`FLAT_GROWTH`].
    Flat,
    /// By less than half of what as many more clients or drives could give; by how much, rounds do not tell.
    Little,
}

/// The first step from which on rounds show of every later one that it is no growth, or little.
fn knee(steps: &[Step<'_>]) -> Option<String> {
    let end = steps.last()?;
    let found = (0..steps.len() - 1).find_map(|at| Some((at, sureness(&steps[at], &steps[at + 1..])?)));
    let (at, sureness) = found?;
    let here = &steps[at];
    let (low, high) = end.growth_over(here);
    let figures = format!(
        "{:.0} operations per second there, {:.0} with {} ({})",
        here.mean(),
        end.mean(),
        end.title,
        percent(low, high)
    );
    let mut text = match sureness {
        Sureness::Flat => format!("grows no more from {} on: {figures}", here.title),
        Sureness::Little => format!(
            "grows little or not from {} on: {figures}, where {:.0} % more would be in proportion; whether it still grows by 5 %{} is \
             not shown",
            here.title,
            (f64::from(end.count) / f64::from(here.count.max(1)) - 1.0) * 100.0,
            unsure_at(here, &steps[at + 1..])
        ),
    };
    if let Some(limit) = limit_of(here.result).filter(|limit| !limit.text.is_empty()) {
        text += &format!("; the limit there: {}", limit.text);
    }
    Some(text)
}

/// Where rounds do not show that throughput is flat after a step, if that is not at the end, of which the interval is told.
fn unsure_at(here: &Step<'_>, later: &[Step<'_>]) -> String {
    let unsure: Vec<&Step<'_>> =
        later.iter().filter(|step| step.growth_over(here).1 >= 1.0 + FLAT_GROWTH).collect();
    match (unsure.first(), unsure.last(), later.last()) {
        (Some(step), Some(last), Some(end)) if last.count != end.count => {
            let (low, high) = step.growth_over(here);
            format!(" with {} ({})", step.title, percent(low, high))
        }
        _ => String::new(),
    }
}

/// What rounds show of the steps after one; nothing if one of them grows, or may grow as steps do.
fn sureness(here: &Step<'_>, later: &[Step<'_>]) -> Option<Sureness> {
    let mut found = Sureness::Flat;
    for step in later {
        let (_, high) = step.growth_over(here);
        let in_proportion = f64::from(step.count) / f64::from(here.count.max(1)) - 1.0;
        if !step.is_flat_after(here) || high >= 1.0 + (in_proportion / 2.0).max(FLAT_GROWTH) {
            return None;
        }
        if high >= 1.0 + FLAT_GROWTH {
            found = Sureness::Little;
        }
    }
    Some(found)
}

/// What must be said where steps were left out although their rounds do not show that throughput had stopped growing.
fn not_shown(steps: &[Step<'_>]) -> Option<String> {
    let [.., before, _, now] = steps else { return None };
    let (low, high) = now.growth_over(before);
    let interval = if high.is_finite() {
        format!("its rounds allow for {}", percent(low, high))
    } else {
        format!("that takes {ROUNDS_MIN} rounds at least")
    };
    Some(format!(
        "the steps after {} were left out, since throughput grew by less than 5 % from {} ({:.0} operations per second) to it ({:.0}). \
         That it stops growing there is not shown: {interval}. More or longer rounds (--rounds, --runtime) would tell",
        now.title,
        before.title,
        before.mean(),
        now.mean()
    ))
}

/// `-3 to +5 %`.
fn percent(low: f64, high: f64) -> String {
    format!("{:+.0} to {:+.0} %", (low - 1.0) * 100.0, (high - 1.0) * 100.0)
}

/// What each of several drives gives of what one gives alone: 100 % is a straight line.
struct Scaling {
    text: String,
    /// Whether rounds show that the most drives are below [`SHARE_MIN`].
    is_below: bool,
    /// What drives that share something are to be looked at for.
    shared: String,
}

impl Scaling {
    /// Nothing of a target with one drive.
    fn of(steps: &[Step<'_>]) -> Option<Self> {
        let [first, later @ ..] = steps else { return None };
        let end = later.last()?;
        if first.count == 0 || first.mean() <= 0.0 {
            return None;
        }
        let in_proportion = |step: &Step<'_>| f64::from(step.count) / f64::from(first.count);
        let share = |step: &Step<'_>| step.mean() / first.mean() / in_proportion(step);
        let interval = |step: &Step<'_>| {
            let (low, high) = step.growth_over(first);
            (low / in_proportion(step), high / in_proportion(step))
        };
        let alone = match first.count {
            1 => "of what one gives alone".to_owned(),
            _ => format!("of what each of {} gives", first.title),
        };
        let sure = match interval(end) {
            (low, high) if high.is_finite() => format!("{:.0} to {:.0} %", low * 100.0, high * 100.0),
            _ => format!("how sure that is takes {ROUNDS_MIN} rounds to tell"),
        };
        let mut text = format!("with {}, each gives {:.0} % ({sure}) {alone}", end.title, share(end) * 100.0);
        // The first step that is below, with all that follow it.
        let below = |is_below: &dyn Fn(&Step<'_>) -> bool| {
            later.iter().rev().take_while(|step| is_below(step)).last().map(|step| step.title.as_str())
        };
        let shown = below(&|step| interval(step).1 < SHARE_MIN);
        let by_means = below(&|step| share(step) < SHARE_MIN);
        text += &match (shown, by_means) {
            (Some(from), _) => format!("; below {:.0} % from {from} on", SHARE_MIN * 100.0),
            (None, Some(from)) => format!(
                "; the means are below {:.0} % from {from} on, which their rounds do not show",
                SHARE_MIN * 100.0
            ),
            (None, None) => String::new(),
        };
        Some(Scaling { text, is_below: shown.is_some(), shared: shared(end) })
    }
}

/// What drives are to be looked at for that give less together than each alone.
fn shared(end: &Step<'_>) -> String {
    let mut names: Vec<&str> =
        end.result.good_rounds().flat_map(|round| &round.drives).map(|drive| drive.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let what_is_shared = "a RAID or volume, the cable and lanes of the host adapter, its driver, a backplane's expander, or the \
                          processors";
    match names.as_slice() {
        [] => format!(
            "; if they are files or partitions of one drive, that drive is the limit, otherwise look for what they share: \
             {what_is_shared}"
        ),
        [name] => {
            format!("; they are files or partitions of one drive, {name}, and share what that one can do")
        }
        names if names.len() < end.count as usize => format!(
            "; they lie on {} drives only ({}), so look at these first, then for what they share: {what_is_shared}",
            names.len(),
            names.join(", ")
        ),
        _ => format!("; look for what they share: {what_is_shared}"),
    }
}

#[cfg(test)]
mod tests;
