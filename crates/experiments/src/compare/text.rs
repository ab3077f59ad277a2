//! A comparison for terminals.

use std::fmt::Write as _;

use crate::spread::{INTERVAL_TITLE, Spread, Verdict};
use crate::table::{Column, ColumnGroup, ColumnKind, Row, Table, unit_of, wrap};
use crate::view::Metric;
use crate::view::format::{clean, measured_text, ratio_end_text, ratio_text, significant, utc};

use super::{ComparedCase, ComparedMetric, METRICS, ReportComparison, Side, name};

/// Of each figure what it is multiplied by, and its unit then.
type Units = [(f64, &'static str); METRICS.len()];

/// The scenario and workload of a case: `one volume / 4k random write`.
fn workload_of(id: &str) -> &str {
    id.match_indices(" / ").nth(1).map_or(id, |(at, _)| &id[..at])
}

impl ReportComparison {
    /// The comparison for a terminal of so many columns.
    pub fn to_text(&self, width: usize) -> String {
        let mut out = format!("{}: second report against first\n", clean(&self.experiment));
        for (which, side) in [("first", &self.first), ("second", &self.second)] {
            let _ = writeln!(out, "  {which}: {}", clean(&describe(side)));
        }
        out.push('\n');
        for target in 0..self.targets.len() {
            for (cases, units) in self.of_same_units(target) {
                let _ = writeln!(out, "{}", self.table(target, &cases, &units).to_text(width));
            }
        }
        let legend = format!(
            "±: {INTERVAL_TITLE}. Ratios are second over first, with their intervals. Verdicts allow for chance, and for \
             how many cases are compared."
        );
        let _ = writeln!(out, "{}\n", wrap(&legend, width, ""));
        let _ = writeln!(out, "{}", self.summary());
        if !self.notes.is_empty() {
            let _ = writeln!(out, "\nNot equal");
            for note in &self.notes {
                let _ = writeln!(out, "  {}", wrap(&clean(note), width.saturating_sub(2), "    "));
            }
        }
        out += &self.only_first.to_text("first", width);
        out += &self.only_second.to_text("second", width);
        out
    }

    /// `IOPS: faster in 3 of 10 cases, slower in 1, no difference shown in 6.`
    fn summary(&self) -> String {
        let lines = METRICS.iter().filter_map(|metric| {
            let verdicts: Vec<Verdict> = self
                .cases
                .iter()
                .filter_map(|case| find(case, *metric))
                .map(|compared| compared.verdict)
                .collect();
            let count = |wanted: Verdict| verdicts.iter().filter(|verdict| **verdict == wanted).count();
            (!verdicts.is_empty()).then(|| {
                format!(
                    "{}: {} in {} of {} cases, {} in {}, {} in {}",
                    metric.title(),
                    word(*metric, Verdict::Faster),
                    count(Verdict::Faster),
                    verdicts.len(),
                    word(*metric, Verdict::Slower),
                    count(Verdict::Slower),
                    word(*metric, Verdict::NoDifferenceShown),
                    count(Verdict::NoDifferenceShown)
                )
            })
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// The cases of a target, those together whose figures have the same units. Each workload has the units that it has in the tables of a
    /// report.
    fn of_same_units(&self, target: usize) -> Vec<(Vec<&ComparedCase>, Units)> {
        let of_target = || self.cases.iter().filter(|case| case.target == target);
        let mut found: Vec<(Vec<&ComparedCase>, Units)> = Vec::new();
        for case in of_target() {
            let units = METRICS.map(|metric| {
                let others = of_target().filter(|other| workload_of(&other.id) == workload_of(&case.id));
                let figures = others.filter_map(|other| find(other, metric));
                unit_of(metric, figures.flat_map(|compared| [&compared.first, &compared.second]))
            });
            match found.iter_mut().find(|(_, others)| *others == units) {
                Some((cases, _)) => cases.push(case),
                None => found.push((vec![case], units)),
            }
        }
        found
    }

    fn table(&self, target: usize, cases: &[&ComparedCase], units: &Units) -> Table {
        let pair = &self.targets[target];
        let label = if pair.first == pair.second {
            pair.first.clone()
        } else {
            format!("{} -> {}", pair.first, pair.second)
        };
        let mut table = Table {
            scenario: label,
            workload: self.experiment.clone(),
            keys: vec!["case".to_owned()],
            rows: cases.iter().map(|case| Row { keys: vec![case.id.clone()], cells: Vec::new() }).collect(),
            ..Table::default()
        };
        for (metric, (factor, unit)) in METRICS.into_iter().zip(*units) {
            let titles = ["first", "second", "ratio", "verdict"];
            let kinds = [ColumnKind::Measured, ColumnKind::Measured, ColumnKind::Ratio, ColumnKind::Ratio];
            let columns =
                titles.iter().zip(kinds).map(|(title, kind)| Column { title: (*title).to_owned(), kind });
            table.groups.push(ColumnGroup {
                title: metric.title().to_owned(),
                unit: unit.to_owned(),
                columns: columns.collect(),
            });
            for (row, case) in table.rows.iter_mut().zip(cases) {
                row.cells.push(match find(case, metric) {
                    Some(compared) => cells(compared, metric, factor),
                    None => vec!["-".to_owned(); titles.len()],
                });
            }
        }
        table
    }
}

fn describe(side: &Side) -> String {
    format!(
        "{}, mode {}, coquina {}, {}",
        side.machine,
        side.mode,
        side.program_version,
        utc(side.began_unix_s)
    )
}

fn find(case: &ComparedCase, metric: Metric) -> Option<&ComparedMetric> {
    case.metrics.iter().find(|compared| compared.metric == name(metric))
}

fn cells(compared: &ComparedMetric, metric: Metric, factor: f64) -> Vec<String> {
    let figure = |spread: &Spread| match metric {
        Metric::LatencyP99 => significant(spread.scaled(factor).mean, 3),
        _ => measured_text(&spread.scaled(factor)),
    };
    let ratio = compared.ratio.as_ref().map_or_else(
        || "-".to_owned(),
        |ratio| {
            ratio.half_width().map_or_else(
                || ratio_text(ratio),
                |_| {
                    let (low, high) = (ratio_end_text(ratio.low), ratio_end_text(ratio.high));
                    format!("{} ({low} to {high})", ratio_text(ratio))
                },
            )
        },
    );
    vec![figure(&compared.first), figure(&compared.second), ratio, word(metric, compared.verdict).to_owned()]
}

/// A verdict as one says it of a figure.
fn word(metric: Metric, verdict: Verdict) -> &'static str {
    match (metric, verdict) {
        (Metric::CpuPerIo, Verdict::Faster) => "less",
        (Metric::CpuPerIo, Verdict::Slower) => "more",
        (_, verdict) => verdict.as_str(),
    }
}
