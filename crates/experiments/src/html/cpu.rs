//! Who takes the CPU time of an operation.

use std::fmt::Write as _;

use crate::view::cpu::{CpuParts, cpu_parts, processes_line};
use crate::view::format::significant;
use crate::view::headline::main_case;
use crate::view::{Group, View};

use super::escape::{escape, escape_breakable};

/// The parts of all points of a group, and the processes at its main one.
pub(super) fn write(out: &mut String, view: &View<'_>, group: &Group<'_>) {
    let is_known = |target: &usize| {
        let results = group.cases.iter().filter_map(|case| view.result(case, *target));
        results.into_iter().any(|result| cpu_parts(result).is_some())
    };
    let targets: Vec<usize> = (0..view.targets.len()).filter(is_known).collect();
    if targets.is_empty() {
        return;
    }
    *out += "<div class=\"tables\"><div class=\"wide\"><table class=\"parts\"><caption>CPU by who takes it, us/IO</caption><thead><tr>";
    for key in &group.keys {
        let _ = write!(out, "<th scope=\"col\">{}</th>", escape(key.title()));
    }
    for target in &targets {
        for (place, (part, _)) in CpuParts::default().named().into_iter().enumerate() {
            let name = if place == 0 { format!("{}: ", view.short[*target]) } else { String::new() };
            let _ = write!(out, "<th scope=\"col\">{}{part}</th>", escape_breakable(&name));
        }
    }
    *out += "</tr></thead><tbody>";
    for case in &group.cases {
        *out += "<tr>";
        for key in &group.keys {
            let _ = write!(out, "<th scope=\"row\">{}</th>", escape(&key.text(&case.point)));
        }
        for target in &targets {
            let parts = view.result(case, *target).and_then(cpu_parts).unwrap_or_default();
            for (_, us) in parts.named() {
                let text = us.map_or_else(|| "-".to_owned(), |us| significant(us, 3));
                let _ = write!(out, "<td>{text}</td>");
            }
        }
        *out += "</tr>";
    }
    *out += "</tbody></table></div></div>";
    if let Some(line) = main_case(view, group).and_then(|case| processes_line(view, group, case)) {
        let _ = write!(out, "<p class=\"note\">{}</p>", escape(&line));
    }
}
