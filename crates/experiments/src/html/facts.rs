//! Sections of words: what was compared, what held it back, what was published, and on what it ran.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use coquina_base::format_size_bytes;

use crate::report::{Case, LimitFigures, Report, TargetFacts};
use crate::view::figure::limit_of;
use crate::view::format::grouped;
use crate::view::{Group, View, setup};

use super::escape::{escape, escape_breakable};

/// Most rows of limits; the rest is in the JSON.
const LIMITS_MAX: usize = 240;
/// Most lines of settings.
const SETTINGS_MAX: usize = 2000;

/// What is equal between targets and what is not.
pub(super) fn targets(out: &mut String, report: &Report) {
    *out += "<section id=\"targets\"><h2>What was compared</h2>";
    if report.targets.is_empty() {
        *out += "<p>No targets are named.</p></section>";
        return;
    }
    *out += "<div class=\"wide\"><table class=\"words\"><thead><tr><th scope=\"col\"></th>";
    for target in &report.targets {
        let _ = write!(out, "<th scope=\"col\">{}</th>", escape_breakable(&target.label));
    }
    *out += "</tr></thead><tbody>";
    let unknown = || "not known".to_owned();
    row(out, report, "system", false, |target| target.system.clone());
    row(out, report, "named as", false, |target| target.spec.clone());
    row(out, report, "copies", true, |target| {
        target.copies.map_or_else(unknown, |copies| copies.to_string())
    });
    row(out, report, "a write is done when", true, |target| {
        match target.durable {
            Some(true) => "it is on stable storage on all copies",
            Some(false) => "it may still be lost",
            None => "not known",
        }
        .to_owned()
    });
    row(out, report, "caches", true, |target| target.cache.clone());
    row(out, report, "load made by", true, |target| target.generator.clone());
    row(out, report, "servers here", false, |target| target.server_processes.join(", "));
    row(out, report, "drives here", false, |target| target.drives.join(", "));
    for name in setting_names(report).iter().filter(|name| is_shared(report, name)) {
        row(out, report, name, true, setting(name));
    }
    *out += "</tbody></table></div>";
    let lines = setup::lines(report);
    if !lines.is_empty() {
        fact_table(out, "How it was run", &lines);
    }
    *out += "</section>\n";
}

/// Settings that any target has in any scenario.
fn setting_names(report: &Report) -> BTreeSet<String> {
    let targets = report.targets.iter().flat_map(|target| report.facts_by_scenario(target));
    targets.flat_map(|(_, facts)| facts.settings.into_keys()).collect()
}

/// Whether several targets have a setting, so that it can be equal or not.
fn is_shared(report: &Report, name: &str) -> bool {
    let has = |target: &&TargetFacts| {
        report.facts_by_scenario(target).iter().any(|(_, facts)| facts.settings.contains_key(name))
    };
    report.targets.len() == 1 || report.targets.iter().filter(has).count() > 1
}

fn setting(name: &str) -> impl Fn(&TargetFacts) -> String {
    move |target| target.settings.get(name).cloned().unwrap_or_default()
}

/// What is to be said of a target: one text where all scenarios have the same, or else each with its scenarios.
fn by_scenario(report: &Report, target: &TargetFacts, of: impl Fn(&TargetFacts) -> String) -> String {
    let mut found: Vec<(String, Vec<&str>)> = Vec::new();
    for (scenario, facts) in report.facts_by_scenario(target) {
        let text = of(&facts);
        match found.iter_mut().find(|(other, _)| *other == text) {
            Some((_, scenarios)) => scenarios.push(scenario),
            None => found.push((text, vec![scenario])),
        }
    }
    if found.len() == 1 {
        return found.remove(0).0;
    }
    let with_names = found.iter().map(|(text, scenarios)| {
        format!("{} ({})", if text.is_empty() { "-" } else { text }, scenarios.join(", "))
    });
    with_names.collect::<Vec<_>>().join("; ")
}

/// Settings that only one target has.
pub(super) fn settings(out: &mut String, report: &Report) {
    let names = setting_names(report);
    let own = |target: &TargetFacts| -> Vec<(String, String)> {
        let settings = names.iter().filter(|name| !is_shared(report, name));
        let settings = settings.map(|name| (name.clone(), by_scenario(report, target, setting(name))));
        settings.filter(|(_, value)| !value.is_empty()).collect()
    };
    for target in &report.targets {
        let facts = own(target);
        if !facts.is_empty() {
            fact_table(out, &format!("Settings of {}", target.label), &facts);
        }
    }
}

fn row(
    out: &mut String,
    report: &Report,
    name: &str,
    is_fairness: bool,
    of: impl Fn(&TargetFacts) -> String,
) {
    let values: Vec<String> = report.targets.iter().map(|target| by_scenario(report, target, &of)).collect();
    if values.iter().all(String::is_empty) {
        return;
    }
    let differs = is_fairness && values.iter().any(|value| *value != values[0]);
    let mark = if differs { "<span class=\"differs\">differs</span>" } else { "" };
    let _ = write!(out, "<tr><th scope=\"row\">{}{mark}</th>", escape(name));
    for value in &values {
        let _ = write!(out, "<td>{}</td>", escape_breakable(if value.is_empty() { "-" } else { value }));
    }
    *out += "</tr>";
}

/// What held throughput back, and how that is known.
pub(super) fn limits(out: &mut String, view: &View<'_>) {
    let rows: Vec<LimitRow<'_>> = view.groups.iter().flat_map(|group| limit_rows(view, group)).collect();
    if view.report.cases.is_empty() {
        return;
    }
    *out += "<section id=\"limits\"><h2>What held it back</h2>";
    if rows.is_empty() {
        *out += "<p>No limits were named.</p></section>";
        return;
    }
    *out += "<div class=\"wide\"><table class=\"words limits\"><thead><tr><th scope=\"col\">case</th><th scope=\"col\">target</th>\
             <th scope=\"col\">limit</th><th scope=\"col\">evidence</th></tr></thead><tbody>";
    for row in rows.iter().take(LIMITS_MAX) {
        let limit = row.limit;
        let text = if limit.text.is_empty() { &limit.kind } else { &limit.text };
        let _ = write!(
            out,
            "<tr><td>{}, {}, {}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape_breakable(row.group.scenario),
            escape_breakable(&row.group.workload),
            escape_breakable(&row.cases()),
            escape_breakable(view.targets[row.target]),
            escape_breakable(text),
            escape_breakable(&limit.evidence.join("; "))
        );
    }
    *out += "</tbody></table></div>";
    if rows.len() > LIMITS_MAX {
        let _ = write!(
            out,
            "<p class=\"note\">{} more are in the report's JSON.</p>",
            grouped((rows.len() - LIMITS_MAX) as f64, 0)
        );
    }
    *out += "</section>\n";
}

/// Cases in a row that one thing held back. The figures are those of the last.
struct LimitRow<'v> {
    group: &'v Group<'v>,
    target: usize,
    first: &'v Case,
    last: &'v Case,
    limit: &'v LimitFigures,
}

impl LimitRow<'_> {
    /// `depth 16`, or `depth 1 to 256`.
    fn cases(&self) -> String {
        let (first, last) = (self.group.phrase(self.first), self.group.phrase(self.last));
        match self.group.keys.as_slice() {
            _ if first == last => first,
            [key] => {
                format!("{} {} to {}", key.title(), key.text(&self.first.point), key.text(&self.last.point))
            }
            _ => format!("{first} to {last}"),
        }
    }
}

fn limit_rows<'v>(view: &'v View<'v>, group: &'v Group<'v>) -> Vec<LimitRow<'v>> {
    let mut rows: Vec<LimitRow<'v>> = Vec::new();
    for target in 0..view.targets.len() {
        for case in &group.cases {
            let Some(limit) = view.result(case, target).and_then(limit_of) else { continue };
            match rows.last_mut() {
                Some(row) if row.target == target && row.limit.kind == limit.kind => {
                    (row.last, row.limit) = (case, limit);
                }
                _ => rows.push(LimitRow { group, target, first: case, last: case, limit }),
            }
        }
    }
    rows
}

/// What others ran, and what they found.
pub(super) fn publication(out: &mut String, report: &Report) {
    let facts = &report.experiment;
    if facts.published_setup.is_empty() && facts.published_finding.is_empty() {
        return;
    }
    *out += "<section id=\"published\"><h2>What was published</h2>";
    for (title, text) in [("Setup", &facts.published_setup), ("Finding", &facts.published_finding)] {
        if !text.is_empty() {
            let _ = write!(out, "<p><b>{title}.</b> {}</p>", escape(text.trim()));
        }
    }
    *out += "</section>\n";
}

/// The machine and what its operating system was set to. The section stays open.
pub(super) fn environment(out: &mut String, report: &Report) {
    *out += "<section id=\"machine\"><h2>Machine and settings</h2>";
    let environment = &report.environment;
    let mut facts: Vec<(String, String)> = vec![
        ("processor".to_owned(), environment.cpu_model.clone()),
        ("architecture".to_owned(), environment.architecture.clone()),
        ("cores".to_owned(), environment.cores.to_string()),
        ("memory".to_owned(), format_size_bytes(environment.memory_bytes)),
        ("kernel".to_owned(), environment.kernel.clone()),
        ("file system".to_owned(), environment.file_system.clone()),
    ];
    facts.extend(report.drives.iter().map(|drive| {
        let size = if drive.size_bytes > 0 { format_size_bytes(drive.size_bytes) } else { String::new() };
        let (model, scheduler, cache) = (&drive.model, &drive.scheduler, &drive.write_cache);
        let parts: [&str; 5] = [model, drive.kind(), &size, scheduler, cache];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        (format!("drive {}", drive.name), parts.join(", "))
    }));
    facts.extend(
        report.versions.iter().map(|(name, version)| (format!("version of {name}"), version.clone())),
    );
    facts.push(("load made on".to_owned(), report.hosts.join(", ")));
    facts.push(("seed".to_owned(), report.seed.to_string()));
    fact_table(out, "Machine", &facts);
    if !report.settings.is_empty() {
        let settings: Vec<(String, String)> =
            report.settings.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        fact_table(out, "Settings of the operating system", &settings);
    }
}

fn fact_table(out: &mut String, title: &str, facts: &[(String, String)]) {
    let _ = write!(out, "<h3>{}</h3><table class=\"words facts\"><tbody>", escape(title));
    for (name, value) in facts.iter().filter(|(_, value)| !value.is_empty()).take(SETTINGS_MAX) {
        let _ = write!(
            out,
            "<tr><th scope=\"row\">{}</th><td>{}</td></tr>",
            escape(name),
            escape_breakable(value)
        );
    }
    *out += "</tbody></table>";
}
