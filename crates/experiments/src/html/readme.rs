//! One picture with the main figures, for a page that others render.

use std::fmt::Write as _;

use crate::report::{Case, Report};
use crate::spread::{NO_DIFFERENCE_MARK, Spread, Verdict};
use crate::view::format::{ratio_text, significant};
use crate::view::headline::{main_cases, throughput_of};
use crate::view::labels::cut;
use crate::view::{Group, Metric, View, estimate};

use super::bars::hatch;
use super::escape::escape;
use super::svg::{Look, text_width};

const WIDTH: f64 = 920.0;
const MARGIN: f64 = 24.0;
/// Where the bars of throughput, and those of CPU, begin, and how far they reach.
const PANELS: [(f64, f64); 2] = [(150.0, 230.0), (598.0, 160.0)];
const HEAD: f64 = 84.0;
const ROW: f64 = 24.0;
const THICK: f64 = 18.0;
const BETWEEN: f64 = 40.0;
/// Most cases in the picture.
const CASES_MAX: usize = 6;
/// Most characters of a label beside a bar.
const LABEL_CHARACTERS_MAX: usize = 16;
/// Most targets in the picture.
const TARGETS_MAX: usize = 4;
const COLOURS: [&str; 6] = ["#0068a8", "#c75000", "#00815f", "#a8528a", "#9a6a00", "#30363d"];
const FONT: &str = "system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif";

/// Bars of throughput and CPU time per operation of the main cases, as a picture of its own. Black on white, so that it can
/// be read wherever it is put.
pub fn headline_svg(report: &Report) -> String {
    let view = View::of(report);
    let cases: Vec<(&Group<'_>, &Case)> = main_cases(&view).into_iter().take(CASES_MAX).collect();
    let shown = shown(&view);
    let targets = shown.len();
    let short = cut(&view.short.iter().map(String::as_str).collect::<Vec<_>>(), LABEL_CHARACTERS_MAX);
    let block = BETWEEN + ROW * targets as f64;
    let height = HEAD + block * cases.len() as f64 + 34.0;
    let names: Vec<&str> = shown.iter().map(|target| view.targets[*target]).collect();
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" height=\"{height:.0}\" \
         role=\"img\" font-family=\"{FONT}\" font-size=\"13\" fill=\"#1a1d21\"><title>{}</title><desc>{}</desc>\
         <rect width=\"{WIDTH}\" height=\"{height:.0}\" rx=\"6\" fill=\"#fff\" stroke=\"#d5dae0\"/>\
         <text x=\"{MARGIN}\" y=\"32\" font-size=\"17\" font-weight=\"600\">{}</text>",
        escape(&report.experiment.title),
        escape(&crate::view::headline::headline(&view).join(". ")),
        escape(&names.join(" · ")),
    );
    if let Some((_, reference)) = view.main_pair() {
        let _ = write!(
            out,
            "<text x=\"{:.0}\" y=\"32\" text-anchor=\"end\" fill=\"#5b636d\">×: against {}</text>",
            WIDTH - MARGIN,
            escape(&short[reference])
        );
    }
    let titles = ["Throughput (longer is better)", "CPU per I/O (shorter is better)"];
    for ((x, _), title) in PANELS.iter().zip(titles) {
        let _ = write!(out, "<text x=\"{x}\" y=\"60\" fill=\"#5b636d\">{title}</text>");
    }
    for (place, (group, case)) in cases.iter().enumerate() {
        let top = HEAD + block * place as f64;
        let _ = write!(
            out,
            "<path d=\"M{MARGIN} {:.0}H{:.0}\" stroke=\"#e6e9ed\"/><text x=\"{MARGIN}\" y=\"{:.0}\" font-weight=\"600\">{}\
             <tspan font-weight=\"400\" fill=\"#5b636d\">  {}, {}</tspan></text>",
            top - 10.0,
            WIDTH - MARGIN,
            top + 12.0,
            escape(&group.workload),
            escape(group.scenario),
            escape(&group.phrase(case))
        );
        panel(&mut out, &view, case, &shown, throughput_of(group), top + 22.0, PANELS[0]);
        panel(&mut out, &view, case, &shown, Metric::CpuPerIo, top + 22.0, PANELS[1]);
        for (row, target) in shown.iter().enumerate() {
            let _ = write!(
                out,
                "<text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                PANELS[0].0 - 10.0,
                top + 22.0 + ROW * row as f64 + 13.5,
                escape(&short[*target])
            );
        }
    }
    if cases.is_empty() {
        let _ = write!(out, "<text x=\"{MARGIN}\" y=\"{HEAD}\">There are no figures.</text>");
    }
    let _ = write!(
        out,
        "<text x=\"{MARGIN}\" y=\"{:.0}\" font-size=\"11\" fill=\"#5b636d\">{}</text></svg>",
        height - 12.0,
        escape(&foot(report))
    );
    out.push('\n');
    out
}

fn foot(report: &Report) -> String {
    let environment = &report.environment;
    let machine = if environment.cpu_model.is_empty() { "unknown processor" } else { &environment.cpu_model };
    let facts = report.targets.iter().flat_map(|target| report.facts_by_scenario(target));
    let mut copies: Vec<Option<u32>> = facts.map(|(_, facts)| facts.copies).collect();
    copies.dedup();
    // Where scenarios or targets differ, no number stands for all.
    let copies = match copies.as_slice() {
        [Some(all)] => format!(", {all} copies"),
        _ => String::new(),
    };
    let ended = if report.interrupted.is_some() { ", interrupted" } else { "" };
    format!(
        "Experiment {}, mode {}{ended}{copies}; {machine}, {} cores; each group of bars has its own scale; {NO_DIFFERENCE_MARK}: not certain",
        report.experiment.name, report.mode, environment.cores
    )
}

/// The targets that are compared, or the first ones if none are.
fn shown(view: &View<'_>) -> Vec<usize> {
    // A plain drive beside stores that are compared has its place in tables.
    let has_drives_only = view.main_pair().is_some_and(|pair| view.is_beside_a_drive(pair));
    let is_drawn = |pair: &&(usize, usize)| has_drives_only || !view.is_beside_a_drive(**pair);
    let is_compared = |target: &usize| {
        view.pairs.iter().filter(is_drawn).any(|(own, other)| own == target || other == target)
    };
    let targets = (0..view.targets.len()).filter(|target| view.pairs.is_empty() || is_compared(target));
    targets.take(TARGETS_MAX).collect()
}

/// Bars of one figure; the longest of a case fills the panel.
fn panel(
    out: &mut String,
    view: &View<'_>,
    case: &Case,
    shown: &[usize],
    metric: Metric,
    top: f64,
    (left, room): (f64, f64),
) {
    let of = |target: usize| view.result(case, target).and_then(|result| estimate(result, metric));
    let figures: Vec<Option<Spread>> = shown.iter().map(|target| of(*target)).collect();
    let most = figures.iter().flatten().map(|figure| figure.mean).fold(0.0, f64::max);
    let unit = match metric {
        Metric::Iops => "IOPS",
        Metric::Bandwidth => "MiB/s",
        _ => "us",
    };
    for (row, (target, figure)) in shown.iter().copied().zip(&figures).enumerate() {
        let y = top + ROW * row as f64;
        let Some(figure) = figure else {
            let _ =
                write!(out, "<text x=\"{left:.0}\" y=\"{:.1}\" fill=\"#5b636d\">no figure</text>", y + 13.5);
            continue;
        };
        let long = if most > 0.0 { (figure.mean / most * room).max(2.0) } else { 2.0 };
        let _ = write!(
            out,
            "<rect x=\"{left:.1}\" y=\"{y:.1}\" width=\"{long:.1}\" height=\"{THICK}\" fill=\"{}\"/>",
            COLOURS[target % COLOURS.len()]
        );
        let stripes = hatch(Look::Target(target), left, y, long);
        *out += &stripes.replace("class=\"hatch\"", "stroke=\"#fff\" stroke-width=\"2\" fill=\"none\"");
        let text = format!("{} {unit}", significant(figure.mean, 3));
        let (x, width) = (left + long + 7.0, text_width(&text));
        let _ = write!(out, "<text x=\"{x:.1}\" y=\"{:.1}\">{}</text>", y + 13.5, escape(&text));
        let is_shown = |(own, other): &&(usize, usize)| {
            // The head names one reference for all.
            *own == target && shown.contains(other) && Some(*other) == view.main_pair().map(|pair| pair.1)
        };
        let pair = view.pairs.iter().find(is_shown);
        if let Some(compared) = pair.and_then(|pair| view.compared(case, *pair, metric)) {
            let (look, text) = match compared.verdict {
                Verdict::NoDifferenceShown => {
                    ("fill=\"#5b636d\"", format!("{NO_DIFFERENCE_MARK}{} ×", ratio_text(&compared.ratio)))
                }
                Verdict::Faster | Verdict::Slower => {
                    ("font-weight=\"700\"", format!("{} ×", ratio_text(&compared.ratio)))
                }
            };
            let x = x + width + 14.0;
            let _ = write!(out, "<text x=\"{x:.1}\" y=\"{:.1}\" {look}>{text}</text>", y + 13.5);
        }
    }
}
