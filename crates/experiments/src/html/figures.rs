//! The plots of one scenario and workload.

use std::fmt::Write as _;

use crate::report::{Case, CaseResult, Operation};
use crate::spread::Spread;
use crate::view::figure::{merged_histogram, percentile};
use crate::view::format::{as_published, latency_us, measured_text, short, significant};
use crate::view::headline::{main_case, throughput_of};
use crate::view::published;
use crate::view::{Group, Key, Metric, View, estimate};

use super::bars::{self, Bar};
use super::escape::escape;
use super::plot::{Axis, Dot, Plot, Series};
use super::scale::Kind;
use super::svg::{Look, legend};

/// Most lines of targets in one plot; beyond, what varies beside the axis gets plots of its own.
const LINES_MAX: usize = 6;
/// Most sets of plots of one group.
const SETS_MAX: usize = 6;
/// Steps of a latency distribution for each power of ten.
const STEPS_PER_DECADE: i32 = 12;
/// Rarest operations that a distribution shows: one in so many powers of ten.
const DECADES_MAX: i32 = 6;

/// Plots of a group with their legend.
pub(super) fn figures(view: &View<'_>, group: &Group<'_>) -> String {
    let variants = group.variants();
    let together = variants.len() * view.targets.len() <= LINES_MAX;
    let sets: Vec<Vec<Line<'_>>> = if together {
        vec![lines(view, group, None)]
    } else {
        (0..variants.len().min(SETS_MAX)).map(|variant| lines(view, group, Some(variant))).collect()
    };
    let mut out = String::new();
    for set in &sets {
        if let (false, Some(line)) = (together, set.first()) {
            let _ = write!(out, "<h4>{}</h4>", escape(&line.variant));
        }
        out += &figure_set(view, group, set);
    }
    if !together && variants.len() > SETS_MAX {
        let _ = write!(
            out,
            "<p class=\"note\">{} more combinations have no plots; their figures are in the tables.</p>",
            variants.len() - SETS_MAX
        );
    }
    out
}

/// A target at the points of one variant.
struct Line<'a> {
    label: String,
    variant: String,
    target: usize,
    look: usize,
    cases: Vec<&'a Case>,
}

fn lines<'a>(view: &View<'_>, group: &Group<'a>, only: Option<usize>) -> Vec<Line<'a>> {
    let mut lines = Vec::new();
    for (place, variant) in group.variants().into_iter().enumerate() {
        if only.is_some_and(|only| only != place) {
            continue;
        }
        for (target, label) in view.targets.iter().enumerate() {
            let label = match (only, variant.label.as_str()) {
                (None, variant) if !variant.is_empty() => format!("{label}, {variant}"),
                _ => (*label).to_owned(),
            };
            let look = if only.is_none() { lines.len() } else { target };
            lines.push(Line {
                label,
                variant: variant.label.clone(),
                target,
                look,
                cases: variant.cases.clone(),
            });
        }
    }
    lines
}

fn figure_set(view: &View<'_>, group: &Group<'_>, lines: &[Line<'_>]) -> String {
    let mut out = String::new();
    let is_curve = lines.iter().any(|line| line.cases.len() > 1);
    let systems = published::systems(view.report, group);
    let mut entries: Vec<(Look, String)> =
        lines.iter().map(|line| (Look::Target(line.look), line.label.clone())).collect();
    let latency =
        if group.operation == Operation::Mixed70 { Metric::LatencyMeanRead } else { Metric::LatencyMean };
    if is_curve {
        // What was published without a depth has no place in a curve.
        let has_place = |system: &str| {
            let cases = lines.iter().flat_map(|line| &line.cases);
            let mut published = cases.flat_map(|case| published::of_case(view.report, group, &case.point));
            published.any(|published| {
                let is_drawn = |metric: &Metric| published.get(*metric).is_some();
                published.system == system && [throughput_of(group), latency].iter().any(is_drawn)
            })
        };
        let drawn = systems.iter().enumerate().filter(|(_, system)| has_place(system));
        entries.extend(drawn.map(|(place, system)| (Look::Published(place), format!("published: {system}"))));
    }
    if is_curve && group.axis == Key::Drives {
        let look = lines.first().map_or(0, |line| line.look);
        entries.push((Look::Straight(look), "in proportion to the fewest drives".to_owned()));
    }
    out += &legend(&entries);
    // Bars are flat: they stand above each other, with the distribution beside them.
    out += if is_curve { "<div class=\"plots\">" } else { "<div class=\"plots\"><div class=\"stack\">" };
    for metric in [throughput_of(group), latency, Metric::CpuPerIo] {
        let title = plot_title(metric, is_curve);
        let picture = match is_curve {
            true => curve(view, group, lines, metric, &systems, &title),
            false => bar_chart(view, group, lines, metric, &systems, &title),
        };
        if let Some(picture) = picture {
            figure(&mut out, &title, &picture);
        }
    }
    if !is_curve {
        out += "</div>";
    }
    if let Some((title, picture)) = distribution(view, group, lines) {
        figure(&mut out, &title, &picture);
    }
    out + "</div>"
}

/// A picture with its caption.
pub(super) fn figure(out: &mut String, caption: &str, picture: &str) {
    let _ = write!(out, "<figure><figcaption>{}</figcaption>{picture}</figure>", escape(caption));
}

fn plot_title(metric: Metric, is_curve: bool) -> String {
    let look = if is_curve { "thin" } else { "pale" };
    match metric {
        Metric::Iops => "Operations per second".to_owned(),
        Metric::Bandwidth => "Throughput in MiB/s".to_owned(),
        Metric::LatencyMean => format!("Latency: mean, and 99th percentile ({look})"),
        Metric::LatencyMeanRead => format!("Latency: mean of reads, and 99th percentile of all ({look})"),
        Metric::CpuPerIo => "CPU time per operation, in us".to_owned(),
        other => other.title().to_owned(),
    }
}

fn interval(spread: &Spread) -> Option<(f64, f64)> {
    spread.half_width().map(|_| (spread.low, spread.high))
}

fn curve(
    view: &View<'_>,
    group: &Group<'_>,
    lines: &[Line<'_>],
    metric: Metric,
    systems: &[&str],
    title: &str,
) -> Option<String> {
    // Drives and jobs are judged by how far they are from a straight line, the rest by ratios.
    let is_straight = matches!(group.axis, Key::Drives | Key::Jobs);
    let mut series = Vec::new();
    for line in lines {
        let target = view.targets[line.target];
        let dots_of = |metric: Metric| {
            sorted(line.cases.iter().filter_map(|case| {
                let spread = estimate(view.result(case, line.target)?, metric)?;
                let interval = interval(&spread).filter(|_| metric != Metric::LatencyP99);
                Some(Dot { x: group.position(view.report, case, target), y: spread.mean, interval })
            }))
        };
        let dots = dots_of(metric);
        if is_throughput_of_drives(group, metric)
            && let Some(dots) = straight_line(&dots)
        {
            let label = format!("{}, in proportion", line.label);
            series.push(Series { label, look: Look::Straight(line.look), dots });
        }
        series.push(Series { label: line.label.clone(), look: Look::Target(line.look), dots });
        if metric.is_latency() {
            let label = format!("{}, 99th percentile", line.label);
            series.push(Series { label, look: Look::Tail(line.look), dots: dots_of(Metric::LatencyP99) });
        }
    }
    for (place, system) in systems.iter().enumerate() {
        let cases = lines.first().map(|line| line.cases.as_slice()).unwrap_or_default();
        let target = lines.first().map_or("", |line| view.targets[line.target]);
        let dots = sorted(cases.iter().filter_map(|case| {
            let published = published::of_case(view.report, group, &case.point);
            let y = published.iter().find(|published| published.system == *system)?.get(metric)?;
            Some(Dot { x: group.position(view.report, case, target), y, interval: None })
        }));
        series.push(Series { label: format!("published: {system}"), look: Look::Published(place), dots });
    }
    let ticks = x_ticks(view, group, lines);
    let y_kind = if is_straight && !metric.is_latency() || metric == Metric::CpuPerIo {
        Kind::Linear
    } else {
        Kind::Logarithmic
    };
    let plot = Plot {
        title: format!("{}, {}: {title}", group.scenario, group.workload),
        x: Axis {
            title: group.axis.axis_title().to_owned(),
            kind: if is_straight { Kind::Linear } else { Kind::Logarithmic },
            ticks,
            format: short,
        },
        y: Axis { title: title.to_owned(), kind: y_kind, ticks: Vec::new(), format: y_format(metric) },
        series,
        y_max: None,
        shade_before_0: false,
    };
    (!plot.is_empty()).then(|| plot.svg())
}

/// Whether a straight line is what drives would give that share nothing.
fn is_throughput_of_drives(group: &Group<'_>, metric: Metric) -> bool {
    group.axis == Key::Drives && matches!(metric, Metric::Iops | Metric::Bandwidth)
}

/// From the first dot on in proportion to it, up to where the last one is.
fn straight_line(dots: &[Dot]) -> Option<Vec<Dot>> {
    let [first, .., last] = dots else { return None };
    let end = Dot { x: last.x, y: first.y * last.x / first.x, interval: None };
    (first.x > 0.0 && last.x > first.x && end.y.is_finite())
        .then(|| vec![Dot { interval: None, ..*first }, end])
}

fn y_format(metric: Metric) -> fn(f64) -> String {
    match metric {
        metric if metric.is_latency() => axis_latency,
        Metric::CpuPerIo => |us| format!("{} us", short(us)),
        _ => short,
    }
}

/// A latency beside an axis, without digits that say nothing: `2 ms`.
fn axis_latency(us: f64) -> String {
    let text = latency_us(us);
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') => {
            format!("{} {unit}", number.trim_end_matches('0').trim_end_matches('.'))
        }
        _ => text,
    }
}

fn sorted(dots: impl Iterator<Item = Dot>) -> Vec<Dot> {
    let mut dots: Vec<Dot> = dots.collect();
    dots.sort_by(|one, other| one.x.total_cmp(&other.x));
    dots
}

fn x_ticks(view: &View<'_>, group: &Group<'_>, lines: &[Line<'_>]) -> Vec<(f64, String)> {
    let has_figures = |case: &&Case| case.results.iter().any(|result| result.good_rounds().next().is_some());
    let mut ticks: Vec<(f64, String)> = Vec::new();
    for line in lines {
        let target = view.targets[line.target];
        let cases = line.cases.iter().copied().filter(has_figures);
        ticks.extend(
            cases.map(|case| (group.position(view.report, case, target), group.axis.text(&case.point))),
        );
    }
    ticks.sort_by(|one, other| one.0.total_cmp(&other.0));
    ticks.dedup_by(|one, other| one.0 == other.0);
    ticks
}

fn bar_chart(
    view: &View<'_>,
    group: &Group<'_>,
    lines: &[Line<'_>],
    metric: Metric,
    systems: &[&str],
    title: &str,
) -> Option<String> {
    let mut bars = Vec::new();
    for line in lines {
        let Some(result) = line.cases.first().and_then(|case| view.result(case, line.target)) else {
            continue;
        };
        if let Some(spread) = estimate(result, metric) {
            let text = match metric.is_latency() {
                true => latency_us(spread.mean),
                false => measured_text(&spread),
            };
            let label =
                if metric.is_latency() { format!("{}, mean", line.label) } else { line.label.clone() };
            let interval = interval(&spread);
            bars.push(Bar { label, look: Look::Target(line.look), value: spread.mean, interval, text });
        }
        if metric.is_latency()
            && let Some(spread) = estimate(result, Metric::LatencyP99)
        {
            let (label, text) = (format!("{}, p99", line.label), latency_us(spread.mean));
            bars.push(Bar { label, look: Look::Tail(line.look), value: spread.mean, interval: None, text });
        }
    }
    if bars.is_empty() {
        return None;
    }
    let case = lines.first().and_then(|line| line.cases.first());
    let published = case.map(|case| published::of_case(view.report, group, &case.point)).unwrap_or_default();
    for (place, system) in systems.iter().enumerate() {
        let figures = published.iter().find(|published| published.system == *system);
        if let Some(value) = figures.and_then(|published| published.get(metric)) {
            let text = if metric.is_latency() { latency_us(value) } else { as_published(value) };
            let label = format!("published: {system}");
            bars.push(Bar { label, look: Look::Published(place), value, interval: None, text });
        }
    }
    let title = format!("{}, {}: {title}", group.scenario, group.workload);
    Some(bars::svg(&title, &bars))
}

/// How latencies are distributed at the main point of the group.
fn distribution(view: &View<'_>, group: &Group<'_>, lines: &[Line<'_>]) -> Option<(String, String)> {
    let shown = lines
        .iter()
        .flat_map(|line| &line.cases)
        .any(|case| main_case(view, group).is_some_and(|main| main.id == case.id));
    let main = main_case(view, group).filter(|_| shown).or_else(|| lines.first()?.cases.last().copied())?;
    let series: Vec<Series> = lines
        .iter()
        .filter_map(|line| {
            // Each variant has a point of its own that lies where the main one lies on the axis.
            let position = |case: &Case| group.position(view.report, case, view.targets[line.target]);
            let case = line.cases.iter().find(|case| position(case) == position(main))?;
            let dots = percentiles(view.result(case, line.target)?);
            Some(Series { label: line.label.clone(), look: Look::Trace(line.look), dots })
        })
        .collect();
    let title = format!("Latency distribution at {}", group.axis.phrase(&main.point));
    let deepest = series.iter().flat_map(|series| &series.dots).map(|dot| dot.x).fold(10.0, f64::max);
    let ticks = ["0 %", "90 %", "99 %", "99.9 %", "99.99 %", "99.999 %", "99.9999 %"];
    let ticks =
        ticks.iter().enumerate().map(|(nines, label)| (10f64.powi(nines as i32), (*label).to_owned()));
    let plot = Plot {
        title: format!("{}, {}: {title}", group.scenario, group.workload),
        x: Axis {
            title: "share of operations that took no longer".to_owned(),
            kind: Kind::Logarithmic,
            ticks: ticks.filter(|(x, _)| *x <= deepest * 1.01).collect(),
            format: |value| significant(value, 2),
        },
        y: Axis { title: title.clone(), kind: Kind::Logarithmic, ticks: Vec::new(), format: axis_latency },
        series,
        y_max: None,
        shade_before_0: false,
    };
    (!plot.is_empty()).then(|| (title, plot.svg()))
}

/// Latencies in microseconds by how rare they are: 10 stands for the slowest tenth.
fn percentiles(result: &CaseResult) -> Vec<Dot> {
    let histogram = merged_histogram(result);
    let total: f64 = histogram.iter().map(|(_, operations)| *operations as f64).sum();
    let mut dots: Vec<Dot> = Vec::new();
    for step in 0..=DECADES_MAX * STEPS_PER_DECADE {
        let rarity = 10f64.powf(f64::from(step) / f64::from(STEPS_PER_DECADE));
        if rarity > total {
            break;
        }
        let share = if step == 0 { 0.0 } else { 1.0 - 1.0 / rarity };
        if let Some(ns) = percentile(&histogram, share) {
            dots.push(Dot { x: rarity, y: (ns as f64 / 1e3).max(0.001), interval: None });
        }
    }
    dots
}
