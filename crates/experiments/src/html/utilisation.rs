//! The machine over time, at the main points.

use std::fmt::Write as _;

use crate::report::{Case, CaseResult, Round, UtilisationSample};
use crate::view::format::short;
use crate::view::headline::main_case;
use crate::view::{Group, View};

use super::escape::escape;
use super::figures::figure;
use super::plot::{Axis, Dot, Plot, Series};
use super::scale::Kind;
use super::svg::{Look, legend};

/// Most points that are shown.
const CASES_MAX: usize = 16;

/// Bytes in a MiB.
const MIB: f64 = (1u64 << 20) as f64;

/// What is plotted: title, how it is read, and the highest value, where there is one.
type Curve = (&'static str, fn(&UtilisationSample) -> f64, Option<f64>);

/// Busy cores, drives and bytes over time. All is open from the start: browsers print nothing of what is folded.
pub(super) fn section(out: &mut String, view: &View<'_>) {
    let shown: Vec<(&Group<'_>, &Case)> = view
        .groups
        .iter()
        .filter_map(|group| main_case(view, group).map(|case| (group, case)))
        .filter(|(_, case)| {
            case.results.iter().any(|result| result.good_rounds().any(|round| !round.utilisation.is_empty()))
        })
        .take(CASES_MAX)
        .collect();
    if shown.is_empty() {
        return;
    }
    *out += "<section id=\"utilisation\"><h2>The machine over time</h2>\
             <p class=\"note\">One round of the main point of each workload. Curves of nothing but zeros are left out, and so is loopback, \
             over which clusters on this machine talk.";
    let has_warmup = |(_, case): &(&Group<'_>, &Case)| {
        let rounds = case.results.iter().filter_map(middle_round);
        rounds.into_iter().any(|round| round.utilisation.iter().any(|sample| sample.at_ms < 0))
    };
    if shown.iter().any(has_warmup) {
        *out += " What is shaded is load before the measured time.";
    }
    *out += "</p>";
    for (group, case) in shown {
        let _ = write!(
            out,
            "<details open><summary>{}, {}, {}</summary>",
            escape(group.scenario),
            escape(&group.workload),
            escape(&group.phrase(case))
        );
        plots(out, view, case);
        *out += "</details>";
    }
    *out += "</section>\n";
}

fn plots(out: &mut String, view: &View<'_>, case: &Case) {
    let rounds: Vec<(usize, &Round)> = (0..view.targets.len())
        .filter_map(|target| Some((target, middle_round(view.result(case, target)?)?)))
        .collect();
    let entries: Vec<(Look, String)> =
        rounds.iter().map(|(target, _)| (Look::Trace(*target), view.targets[*target].to_owned())).collect();
    *out += &legend(&entries);
    let curves: [Curve; 5] = [
        ("Busy cores", |sample| sample.busy_cores, None),
        ("Busiest drive, % of the time", |sample| sample.drive_busy * 100.0, Some(100.0)),
        ("Written to drives, MiB/s", |sample| sample.write_bytes_per_s / MIB, None),
        ("Read from drives, MiB/s", |sample| sample.read_bytes_per_s / MIB, None),
        (
            "Network, both ways on the busiest interface but loopback, MiB/s",
            |sample| sample.network_bytes_per_s / MIB,
            None,
        ),
    ];
    *out += "<div class=\"plots\">";
    for (title, of, y_max) in curves {
        let series: Vec<Series> = rounds
            .iter()
            .map(|(target, round)| Series {
                label: view.targets[*target].to_owned(),
                look: Look::Trace(*target),
                dots: dots(round, of),
            })
            .collect();
        // A curve of zeros says nothing.
        if series.iter().flat_map(|series| &series.dots).all(|dot| dot.y <= 0.0) {
            continue;
        }
        let plot = Plot {
            title: format!("{}: {title}", case.id),
            x: Axis { title: "seconds".to_owned(), kind: Kind::Time, ticks: Vec::new(), format: short },
            y: Axis { title: title.to_owned(), kind: Kind::Linear, ticks: Vec::new(), format: short },
            series,
            y_max,
            shade_before_0: true,
        };
        figure(out, title, &plot.svg());
    }
    *out += "</div>";
}

/// Neither the first nor the last, where there are three.
fn middle_round(result: &CaseResult) -> Option<&Round> {
    let with: Vec<&Round> = result.good_rounds().filter(|round| !round.utilisation.is_empty()).collect();
    with.get(with.len() / 2).copied()
}

fn dots(round: &Round, of: fn(&UtilisationSample) -> f64) -> Vec<Dot> {
    round
        .utilisation
        .iter()
        .map(|sample| Dot { x: sample.at_ms as f64 / 1e3, y: of(sample), interval: None })
        .filter(|dot| dot.y.is_finite())
        .collect()
}
