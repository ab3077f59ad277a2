//! Tables as studies print them: a row for each depth, and for each figure the targets side by side, then their ratio, then
//! what was published.
//!
//! Invariants:
//! - units stand in heads, not in cells;
//! - a cell without a figure is `-`, or `failed` where operations failed in all rounds, and a note says why.

mod notes;
mod text;

#[cfg(test)]
mod tests;

use crate::report::{Case, CaseResult, Operation, Report};
use crate::spread::{Compared, NO_DIFFERENCE_MARK, Rounds, Spread, Verdict};
use crate::view::format::{as_published, grouped, measured_text, ratio_text, significant};
use crate::view::published::{self, Published};
use crate::view::{Group, Key, Metric, View, estimate, figure, headline};

pub use text::text;
pub(crate) use text::wrap;

/// From this latency on a table shows milliseconds, in microseconds.
const MILLISECONDS_FROM_US: f64 = 1000.0;
/// Operations per second where load was offered at a rate.
const ACHIEVED: &str = "achieved IOPS";

/// A table of one scenario and workload.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// The scenario.
    pub scenario: String,
    /// `4k random write`.
    pub workload: String,
    /// Heads of what varies: `depth`.
    pub keys: Vec<String>,
    /// Figures, each with its columns.
    pub groups: Vec<ColumnGroup>,
    /// One for each point.
    pub rows: Vec<Row>,
    /// What must be known to read it: why cells are empty, which figures are not steady.
    pub notes: Vec<String>,
}

/// Columns of one figure.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ColumnGroup {
    /// The figure: `mean latency`.
    pub title: String,
    /// Its unit; empty where there is none.
    pub unit: String,
    /// The columns.
    pub columns: Vec<Column>,
}

/// One column.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// A target, a ratio or a published system.
    pub title: String,
    /// Which of these.
    pub kind: ColumnKind,
}

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// Figures that were measured.
    Measured,
    /// A target's figure over that of the reference.
    Ratio,
    /// Figures that others published.
    Published,
    /// The ratio of two published figures.
    PublishedRatio,
}

/// One point.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// Values of what varies.
    pub keys: Vec<String>,
    /// Cells, by group and column.
    pub cells: Vec<Vec<String>>,
}

/// The tables of a report, in its order.
pub fn tables(report: &Report) -> Vec<Table> {
    tables_of(&View::of(report))
}

/// [`tables`] of a view.
pub(crate) fn tables_of(view: &View<'_>) -> Vec<Table> {
    view.groups.iter().map(|group| table(view, group)).collect()
}

/// The table of one group.
pub(crate) fn table(view: &View<'_>, group: &Group<'_>) -> Table {
    let systems = published::systems(view.report, group);
    let mut table = Table {
        scenario: group.scenario.to_owned(),
        workload: group.workload.clone(),
        keys: group.keys.iter().map(|key| key.title().to_owned()).collect(),
        notes: notes::notes(view, group),
        ..Table::default()
    };
    for case in &group.cases {
        let keys = group.keys.iter().map(|key| key.text(&case.point)).collect();
        table.rows.push(Row { keys, cells: Vec::new() });
    }
    let best = published::has_best(group).then(|| published::without_depth(view.report, group));
    let best = best.filter(|published| !published.is_empty());
    if best.is_some() {
        let mut keys = vec![String::new(); group.keys.len()];
        keys[0] = "best".to_owned();
        table.rows.push(Row { keys, cells: Vec::new() });
    }
    for metric in metrics(group) {
        add_metric(&mut table, view, group, metric, &systems, best.as_deref());
    }
    add_limits(&mut table, view, group);
    table
}

/// The figures that a group's table shows.
fn metrics(group: &Group<'_>) -> Vec<Metric> {
    let mut metrics = vec![Metric::Iops];
    if group.is_large() {
        metrics.push(Metric::Bandwidth);
    }
    match group.operation {
        Operation::Mixed70 => metrics.extend([Metric::LatencyMeanRead, Metric::LatencyMeanWrite]),
        _ => metrics.push(Metric::LatencyMean),
    }
    metrics.extend([Metric::LatencyP99, Metric::CpuPerIo]);
    // What a core gives is asked where hosts are sized: drives and jobs are added until cores are used up.
    if group.keys.contains(&Key::Jobs) || group.keys.contains(&Key::Drives) {
        metrics.extend([Metric::IopsPerThread, Metric::IopsPerCore]);
    }
    if group.operation.writes() {
        metrics.push(Metric::DriveBytes);
    }
    metrics
}

/// What one row holds of one figure, before it is text.
struct Line<'a> {
    measured: Vec<Option<Spread>>,
    /// Whether a target failed in all rounds.
    failed: Vec<bool>,
    /// By pair of targets.
    ratios: Vec<Option<Compared>>,
    published: Vec<Published<'a>>,
}

fn add_metric(
    table: &mut Table,
    view: &View<'_>,
    group: &Group<'_>,
    metric: Metric,
    systems: &[&str],
    best: Option<&[Published<'_>]>,
) {
    let mut lines: Vec<Line<'_>> = group
        .cases
        .iter()
        .map(|case| Line {
            measured: measured_of(view, case, metric),
            failed: (0..view.targets.len())
                .map(|target| view.result(case, target).is_some_and(CaseResult::has_failed))
                .collect(),
            ratios: view.pairs.iter().map(|pair| view.compared(case, *pair, metric)).collect(),
            published: published::of_case(view.report, group, &case.point),
        })
        .collect();
    if let Some(published) = best {
        let measured = (0..view.targets.len())
            .map(|target| {
                let case = best_case(view, group, target)?;
                estimate(view.result(case, target)?, metric)
            })
            .collect();
        let ratios = best_ratios(view, group, metric);
        let failed = vec![false; view.targets.len()];
        lines.push(Line { measured, failed, ratios, published: published.to_vec() });
    }
    // That a target failed is told once, where nothing else is to be told.
    let is_told = |line: &Line<'_>| metric == Metric::Iops && line.failed.contains(&true);
    if lines.iter().all(|line| line.measured.iter().all(Option::is_none) && !is_told(line)) {
        return;
    }
    let systems: Vec<&str> = systems
        .iter()
        .copied()
        .filter(|system| lines.iter().any(|line| published_figure(line, system, metric).is_some()))
        .collect();
    let (factor, unit) = unit(metric, &lines);
    let (ratios, mut published_ratios) = (view.ratios(group), published::ratios(view, &systems));
    // Two systems that published for different points have no ratio.
    published_ratios.retain(|(upper, lower, _)| {
        let has = |line: &Line<'_>, place: &usize| published_figure(line, systems[*place], metric).is_some();
        lines.iter().any(|line| has(line, upper) && has(line, lower))
    });
    let column = |title: &str, kind| Column { title: title.to_owned(), kind };
    let mut columns: Vec<Column> =
        view.targets.iter().map(|label| column(label, ColumnKind::Measured)).collect();
    columns.extend(ratios.iter().map(|(_, _, title)| column(title, ColumnKind::Ratio)));
    columns.extend(systems.iter().map(|system| column(system, ColumnKind::Published)));
    columns.extend(published_ratios.iter().map(|(_, _, title)| column(title, ColumnKind::PublishedRatio)));
    let title = match metric {
        Metric::Iops if group.has_rate() => ACHIEVED,
        metric => metric.title(),
    };
    table.groups.push(ColumnGroup { title: title.to_owned(), unit: unit.to_owned(), columns });
    for (row, line) in table.rows.iter_mut().zip(&lines) {
        let published = |place: usize| published_figure(line, systems[place], metric);
        let mut cells: Vec<String> = line
            .measured
            .iter()
            .zip(&line.failed)
            .map(|(figure, failed)| match figure {
                Some(figure) => show(&figure.scaled(factor), metric),
                None if *failed => "failed".to_owned(),
                None => dash(),
            })
            .collect();
        cells.extend(line.ratios.iter().map(|compared| compared.as_ref().map_or_else(dash, ratio_cell)));
        cells.extend(
            (0..systems.len())
                .map(|place| published(place).map_or_else(dash, |value| as_published(value * factor))),
        );
        cells.extend(published_ratios.iter().map(|(upper, lower, _)| {
            published::ratio_of(published(*upper), published(*lower))
                .map_or_else(dash, |ratio| ratio_text(&ratio))
        }));
        row.cells.push(cells);
    }
}

/// The ratio, marked where it may be chance.
fn ratio_cell(compared: &Compared) -> String {
    let mark = match compared.verdict {
        Verdict::NoDifferenceShown => NO_DIFFERENCE_MARK,
        Verdict::Faster | Verdict::Slower => "",
    };
    format!("{mark}{}", ratio_text(&compared.ratio))
}

fn dash() -> String {
    "-".to_owned()
}

fn measured_of(view: &View<'_>, case: &Case, metric: Metric) -> Vec<Option<Spread>> {
    (0..view.targets.len()).map(|target| estimate(view.result(case, target)?, metric)).collect()
}

/// The pairs of targets at the points where each did most.
fn best_ratios(view: &View<'_>, group: &Group<'_>, metric: Metric) -> Vec<Option<Compared>> {
    let result = |target: usize| view.result(best_case(view, group, target)?, target);
    let ratio = |(target, reference): &(usize, usize)| {
        figure::against(result(*reference)?, result(*target)?, metric, Rounds::Apart)
    };
    view.pairs.iter().map(ratio).collect()
}

/// The case of a group in which a target did most.
fn best_case<'a>(view: &View<'a>, group: &Group<'a>, target: usize) -> Option<&'a Case> {
    let throughput = |case: &Case| {
        estimate(view.result(case, target)?, headline::throughput_of(group)).map(|spread| spread.mean)
    };
    group
        .cases
        .iter()
        .copied()
        .filter(|case| throughput(case).is_some())
        .max_by(|one, other| throughput(one).unwrap_or(0.0).total_cmp(&throughput(other).unwrap_or(0.0)))
}

fn published_figure(line: &Line<'_>, system: &str, metric: Metric) -> Option<f64> {
    line.published.iter().find(|published| published.system == system)?.get(metric)
}

fn unit(metric: Metric, lines: &[Line<'_>]) -> (f64, &'static str) {
    unit_of(metric, lines.iter().flat_map(|line| &line.measured).flatten())
}

/// Latencies are shown in milliseconds where all of a workload that are measured are that long. Gives what microseconds are multiplied by, too.
pub(crate) fn unit_of<'a>(
    metric: Metric,
    measured: impl IntoIterator<Item = &'a Spread>,
) -> (f64, &'static str) {
    let least = measured.into_iter().map(|spread| spread.mean).fold(f64::MAX, f64::min);
    if metric.is_latency() && least >= MILLISECONDS_FROM_US { (1e-3, "ms") } else { (1.0, metric.unit()) }
}

/// Percentiles are those of all rounds together and have no interval.
fn show(figure: &Spread, metric: Metric) -> String {
    match metric {
        Metric::LatencyP99 => significant(figure.mean, 3),
        Metric::DriveBytes if figure.mean < 1000.0 => grouped(figure.mean, 2),
        _ => measured_text(figure),
    }
}

/// A column for each target with what held it back.
fn add_limits(table: &mut Table, view: &View<'_>, group: &Group<'_>) {
    let limit = |case: &Case, target: usize| {
        figure::limit_of(view.result(case, target)?).map(|limit| limit.kind.clone())
    };
    let is_known = |case: &Case| (0..view.targets.len()).any(|target| limit(case, target).is_some());
    if !group.cases.iter().any(|case| is_known(case)) {
        return;
    }
    let columns = view
        .targets
        .iter()
        .map(|label| Column { title: (*label).to_owned(), kind: ColumnKind::Measured })
        .collect();
    table.groups.push(ColumnGroup { title: "limit".to_owned(), unit: String::new(), columns });
    for (index, row) in table.rows.iter_mut().enumerate() {
        let cell = |target: usize| {
            let case = match group.cases.get(index) {
                Some(case) => Some(*case),
                None => best_case(view, group, target),
            };
            case.and_then(|case| limit(case, target)).unwrap_or_else(dash)
        };
        row.cells.push((0..view.targets.len()).map(cell).collect());
    }
}
