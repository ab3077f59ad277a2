//! The page from top to bottom.

use std::fmt::Write as _;

use crate::report::Report;
use crate::spread::{INTERVAL_TITLE, NO_DIFFERENCE_MARK};
use crate::table::table;
use crate::view::format::{duration, measured, ratio_text, utc};
use crate::view::headline::{main_cases, throughput_of};
use crate::view::{Group, Metric, View, contradictions, estimate};

use super::escape::escape;
use super::style::STYLE;
use super::{cpu, facts, figures, tables, utilisation};

/// Groups that have plots; the others have tables only.
const GROUPS_WITH_PLOTS_MAX: usize = 48;
/// Most contradictions that are listed.
const CONTRADICTIONS_MAX: usize = 100;

/// The whole report as a page.
pub fn render(report: &Report) -> String {
    let view = View::of(report);
    let scenarios = scenarios(&view);
    let mut out = String::with_capacity(1 << 18);
    let _ = write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>{}</title>\
         <style>{STYLE}</style></head>\n<body><main>",
        escape(&title(report))
    );
    head(&mut out, report);
    navigation(&mut out, &view, &scenarios);
    short(&mut out, &view);
    facts::targets(&mut out, report);
    for (number, name) in scenarios.iter().enumerate() {
        scenario(&mut out, &view, number, name);
    }
    facts::limits(&mut out, &view);
    findings(&mut out, report);
    utilisation::section(&mut out, &view);
    facts::publication(&mut out, report);
    facts::environment(&mut out, report);
    facts::settings(&mut out, report);
    out += "</section>\n";
    let _ = write!(
        out,
        "<footer><p>± and bars: {INTERVAL_TITLE}. Ratios above 1 are better for IOPS and MiB/s, below 1 for latency and \
         CPU; {NO_DIFFERENCE_MARK} means that no difference is shown, or none that is \
         certain among so many cases. Percentiles are those of all rounds together. CPU is the time that the generator, the \
         target's processes and the kernel's threads take per operation; where the target's cannot be seen, what the whole \
         machine takes beyond what it does when idle. By who takes it, kernel threads are with what they take when idle. Dashed grey lines and <i>italic</i> columns are figures that others published for other \
         machines: compare ratios and shapes with them, not heights.</p><p>coquina {}, report version {}.</p></footer>",
        escape(&report.program_version),
        report.report_version
    );
    out + "</main></body></html>\n"
}

fn title(report: &Report) -> String {
    match report.experiment.title.as_str() {
        "" => format!("Experiment {}", report.experiment.name),
        title => title.to_owned(),
    }
}

fn head(out: &mut String, report: &Report) {
    let _ = write!(out, "<header><h1>{}</h1>", escape(&title(report)));
    let environment = &report.environment;
    let machine = match environment.cpu_model.as_str() {
        "" => format!("{} cores", environment.cores),
        model => format!("{model}, {} cores", environment.cores),
    };
    let _ = write!(
        out,
        "<p class=\"soft\">Experiment <b>{}</b>, mode <b>{}</b>, begun {}, {} long, on {}</p>",
        escape(&report.experiment.name),
        escape(&report.mode),
        utc(report.began_unix_s),
        duration(report.elapsed_s),
        escape(&machine)
    );
    if !report.command.is_empty() {
        let _ = write!(out, "<code class=\"command\">{}</code>", escape(&report.command));
    }
    if let Some(reason) = &report.interrupted {
        let _ = write!(
            out,
            "<p class=\"alert\" role=\"alert\">Interrupted: {}. The figures are those up to then.</p>",
            escape(reason)
        );
    }
    *out += "</header>";
}

/// Names of scenarios, in order.
fn scenarios<'a>(view: &View<'a>) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    for group in &view.groups {
        if !names.contains(&group.scenario) {
            names.push(group.scenario);
        }
    }
    names
}

/// Most scenarios that the table of contents names.
const CONTENTS_MAX: usize = 24;

fn navigation(out: &mut String, view: &View<'_>, scenarios: &[&str]) {
    *out += "<nav aria-label=\"Contents\"><a href=\"#short\">In short</a><a href=\"#targets\">Targets</a>";
    for (number, name) in scenarios.iter().take(CONTENTS_MAX).enumerate() {
        let _ = write!(out, "<a href=\"#scenario-{number}\">{}</a>", escape(name));
    }
    if !view.report.cases.is_empty() {
        *out += "<a href=\"#limits\">Limits</a>";
    }
    *out += "<a href=\"#findings\">Findings</a><a href=\"#machine\">Machine and settings</a></nav>";
}

/// Cards with the main figures.
fn short(out: &mut String, view: &View<'_>) {
    *out += "<section id=\"short\"><h2>In short</h2>";
    let cases = main_cases(view);
    if cases.is_empty() {
        *out += "<p>There are no figures.</p></section>";
        return;
    }
    *out += "<div class=\"cards\">";
    for (group, case) in cases {
        let _ = write!(
            out,
            "<div class=\"card\"><div class=\"what\">{}, {}</div><div class=\"what\"><b>{}</b></div>",
            escape(group.scenario),
            escape(&group.phrase(case)),
            escape(&group.workload)
        );
        let metric = throughput_of(group);
        let unit = if metric == Metric::Iops { "IOPS" } else { "MiB/s" };
        let of =
            |target: usize, metric| view.result(case, target).and_then(|result| estimate(result, metric));
        for (place, (upper, lower, title)) in view.ratios(group).iter().enumerate().take(3) {
            let Some(compared) = view.compared(case, (*upper, *lower), metric) else { continue };
            let (ratio, title, doubt) = (ratio_text(&compared.ratio), escape(title), compared.doubt());
            let _ = match place {
                0 => write!(
                    out,
                    "<div class=\"big\">{ratio} ×</div><div class=\"small\">{title}, {unit}{doubt}</div>"
                ),
                _ => write!(out, "<div class=\"small\"><b>{ratio} ×</b> {title}{doubt}</div>"),
            };
        }
        let _ = write!(
            out,
            "<table><thead><tr><td></td><th scope=\"col\">{unit}</th><th scope=\"col\">CPU, us/IO</th></tr></thead><tbody>"
        );
        for (target, name) in view.short.iter().enumerate().take(4) {
            let show =
                |metric| of(target, metric).map_or_else(|| "-".to_owned(), |figure| measured(&figure).0);
            let _ = write!(
                out,
                "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td></tr>",
                escape(name),
                show(metric),
                show(Metric::CpuPerIo)
            );
        }
        *out += "</tbody></table>";
        *out += "</div>";
    }
    *out += "</div></section>";
}

fn scenario(out: &mut String, view: &View<'_>, number: usize, name: &str) {
    let _ = write!(out, "<section id=\"scenario-{number}\"><h2>{}</h2>", escape(name));
    for (place, group) in view.groups.iter().enumerate().filter(|(_, group)| group.scenario == name) {
        let _ = write!(out, "<h3>{}</h3>", escape(&heading(group)));
        if place < GROUPS_WITH_PLOTS_MAX {
            *out += &figures::figures(view, group);
        }
        tables::write(out, &table(view, group));
        cpu::write(out, view, group);
    }
    *out += "</section>\n";
}

/// The workload, and the point if there is only one.
fn heading(group: &Group<'_>) -> String {
    match group.cases.as_slice() {
        [case] => format!("{}, {}", group.workload, group.phrase(case)),
        _ => group.workload.clone(),
    }
}

fn findings(out: &mut String, report: &Report) {
    *out += "<section id=\"findings\"><h2>Findings</h2>";
    if report.findings.is_empty() {
        *out += "<p>None.</p>";
    } else {
        *out += "<ul class=\"list\">";
        for finding in &report.findings {
            let subject =
                if finding.subject.is_empty() { String::new() } else { format!("{}: ", finding.subject) };
            let _ = write!(
                out,
                "<li><span class=\"kind\">{}</span><b>{}</b>{}</li>",
                escape(&finding.kind),
                escape(&subject),
                escape(&finding.text)
            );
        }
        *out += "</ul>";
    }
    let found = contradictions(report);
    if !found.is_empty() {
        *out += "<h3>Figures that contradict each other</h3><ul class=\"list\">";
        for (case, target, text) in found.iter().take(CONTRADICTIONS_MAX) {
            let _ = write!(out, "<li><b>{}, {}:</b> {}</li>", escape(case), escape(target), escape(text));
        }
        *out += "</ul>";
        if found.len() > CONTRADICTIONS_MAX {
            let _ = write!(
                out,
                "<p class=\"note\">{} more are in the report's JSON.</p>",
                found.len() - CONTRADICTIONS_MAX
            );
        }
    }
    *out += "</section>\n";
}
