//! What others published for a point.

use crate::report::{Point, PublishedRow, Report};
use crate::spread::Spread;

use super::{Group, Key, Metric, View};

/// Published figures of one system at one point.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Published<'a> {
    /// Whose.
    pub(crate) system: &'a str,
    /// Operations per second, of all clients.
    pub(crate) iops: Option<f64>,
    /// Operations per second by physical cores.
    pub(crate) iops_per_core: Option<f64>,
    /// MiB per second, of all clients.
    pub(crate) bandwidth_mib_s: Option<f64>,
    /// Mean latency in microseconds, of reads in a mix.
    pub(crate) latency_us_mean: Option<f64>,
    /// Mean latency in microseconds of the writes of a mix.
    pub(crate) latency_us_mean_write: Option<f64>,
    /// Clients whose figures were added up.
    pub(crate) clients: usize,
}

impl Published<'_> {
    /// One of its figures.
    pub(crate) fn get(&self, metric: Metric) -> Option<f64> {
        match metric {
            Metric::Iops => self.iops,
            Metric::Bandwidth => self.bandwidth_mib_s,
            Metric::LatencyMean | Metric::LatencyMeanRead => self.latency_us_mean,
            Metric::LatencyMeanWrite => self.latency_us_mean_write,
            Metric::IopsPerCore => self.iops_per_core,
            Metric::LatencyP99 | Metric::CpuPerIo | Metric::IopsPerThread | Metric::DriveBytes => None,
        }
        .filter(|value| value.is_finite())
    }
}

fn fits_group(row: &PublishedRow, group: &Group<'_>) -> bool {
    row.scenario == group.scenario && row.workload == group.workload
}

/// Whether a row is of cases whose jobs lay on processors as those of this one do.
fn is_of_placement(row: &PublishedRow, point: &Point) -> bool {
    row.placement.is_some() && row.placement == point.placement
}

fn fits_copies(row: &PublishedRow, point: &Point) -> bool {
    match (row.copies, point.copies) {
        (Some(published), Some(copies)) => published == copies,
        _ => true,
    }
}

/// Systems that published something for a group at depths that were measured, and those without a depth, in order.
pub(crate) fn systems<'a>(report: &'a Report, group: &Group<'_>) -> Vec<&'a str> {
    let mut systems: Vec<&str> = Vec::new();
    for row in report.published.iter().filter(|row| fits_group(row, group)) {
        let is_measured = match row.depth {
            None if row.placement.is_some() => {
                group.cases.iter().any(|case| is_of_placement(row, &case.point))
            }
            None => is_of_only_case(group) || has_best(group),
            depth => group.cases.iter().any(|case| Some(case.point.depth) == depth),
        };
        if is_measured && !systems.contains(&row.system.as_str()) {
            systems.push(&row.system);
        }
    }
    systems
}

/// Whether published figures without a depth are those of the best point: the number of clients or drives was raised to it. Of a single case,
/// as one that was chosen, or that a run came to before it ended early, its point tells that there are others.
pub(crate) fn has_best(group: &Group<'_>) -> bool {
    match group.cases.as_slice() {
        [] => false,
        [one] => one.point.volumes_per_client.is_some() || one.point.drives.is_some(),
        _ => matches!(group.axis, Key::Clients | Key::Drives),
    }
}

/// Whether published figures without a depth are those of the group's only case.
fn is_of_only_case(group: &Group<'_>) -> bool {
    group.cases.len() == 1 && !has_best(group)
}

/// Figures that were published for a case, by system.
pub(crate) fn of_case<'a>(report: &'a Report, group: &Group<'_>, point: &Point) -> Vec<Published<'a>> {
    add_up(report.published.iter().filter(|row| {
        let depth = match row.depth {
            None => is_of_placement(row, point) || row.placement.is_none() && is_of_only_case(group),
            depth => depth == Some(point.depth) && (row.placement.is_none() || is_of_placement(row, point)),
        };
        fits_group(row, group) && fits_copies(row, point) && depth
    }))
}

/// Figures that were published for a group as a whole, by system.
pub(crate) fn without_depth<'a>(report: &'a Report, group: &Group<'_>) -> Vec<Published<'a>> {
    let Some(first) = group.cases.first() else { return Vec::new() };
    let is_of_all = |row: &PublishedRow| row.depth.is_none() && row.placement.is_none();
    add_up(
        report
            .published
            .iter()
            .filter(|row| fits_group(row, group) && fits_copies(row, &first.point) && is_of_all(row)),
    )
}

/// Adds up the clients of each system; latencies are weighed by operations.
fn add_up<'a>(rows: impl Iterator<Item = &'a PublishedRow>) -> Vec<Published<'a>> {
    let mut systems: Vec<(&str, Vec<&PublishedRow>)> = Vec::new();
    for row in rows {
        match systems.iter_mut().find(|(system, _)| *system == row.system) {
            Some((_, rows)) => rows.push(row),
            None => systems.push((&row.system, vec![row])),
        }
    }
    systems
        .into_iter()
        .map(|(system, rows)| {
            let sum =
                |of: fn(&PublishedRow) -> Option<f64>| rows.iter().map(|row| of(row)).sum::<Option<f64>>();
            let mean = |of: fn(&PublishedRow) -> Option<f64>| {
                if rows.len() == 1 {
                    return of(rows[0]);
                }
                let weights = sum(|row| row.iops).filter(|sum| *sum > 0.0)?;
                let weighed = rows.iter().map(|row| Some(row.iops? * of(row)?)).sum::<Option<f64>>()?;
                Some(weighed / weights)
            };
            Published {
                system,
                iops: sum(|row| row.iops),
                iops_per_core: mean(|row| row.iops_per_core),
                bandwidth_mib_s: sum(|row| row.bandwidth_mib_s),
                latency_us_mean: mean(|row| row.latency_us_mean),
                latency_us_mean_write: mean(|row| row.latency_us_mean_write),
                clients: rows.len(),
            }
        })
        .collect()
}

/// Which published systems are compared: each with the one that is the reference target's namesake, or else with the
/// first. Pairs of places in `systems`.
pub(crate) fn ratios(view: &View<'_>, systems: &[&str]) -> Vec<(usize, usize, String)> {
    if systems.len() < 2 {
        return Vec::new();
    }
    let word = |text: &str| text.split_whitespace().next().unwrap_or_default().to_lowercase();
    let wanted = view.main_pair().map(|(_, reference)| word(view.targets[reference]));
    let reference = systems.iter().position(|system| Some(word(system)) == wanted).unwrap_or(0);
    let short = super::labels::short(systems);
    (0..systems.len())
        .filter(|system| *system != reference)
        .map(|system| (system, reference, format!("{} / {}", short[system], short[reference])))
        .collect()
}

/// The ratio of two published figures.
pub(crate) fn ratio_of(upper: Option<f64>, lower: Option<f64>) -> Option<Spread> {
    let ratio = upper? / lower.filter(|lower| *lower > 0.0)?;
    ratio.is_finite().then_some(Spread { mean: ratio, low: ratio, high: ratio, count: 1 })
}
