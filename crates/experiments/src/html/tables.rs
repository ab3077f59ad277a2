//! Tables of figures.

use std::fmt::Write as _;

use crate::table::{Column, ColumnGroup, ColumnKind, Table};
use crate::view::Key;

use super::escape::{escape, escape_breakable};

/// The tables of a group and their notes: one for each figure, or a single one where there is a single point.
pub(super) fn write(out: &mut String, table: &Table) {
    *out += "<div class=\"tables\">";
    match table.rows.as_slice() {
        [_] => one_point(out, table),
        _ => table.groups.iter().enumerate().for_each(|(place, group)| figure(out, table, place, group)),
    }
    *out += "</div>";
    for note in &table.notes {
        let _ = write!(out, "<p class=\"note\">{}</p>", escape(note));
    }
}

/// Points from top to bottom.
fn figure(out: &mut String, table: &Table, place: usize, group: &ColumnGroup) {
    let _ = write!(out, "<div class=\"wide\"><table><caption>{}</caption><thead><tr>", escape(&title(group)));
    for key in &table.keys {
        let _ = write!(out, "<th scope=\"col\">{}</th>", escape(key));
    }
    group.columns.iter().for_each(|column| head(out, column));
    *out += "</tr></thead><tbody>";
    for row in &table.rows {
        *out += "<tr>";
        for key in &row.keys {
            let _ = write!(out, "<th scope=\"row\">{}</th>", escape(key));
        }
        for (column, text) in group.columns.iter().zip(&row.cells[place]) {
            cell(out, column.kind, text);
        }
        *out += "</tr>";
    }
    *out += "</tbody></table></div>";
}

/// Figures from top to bottom.
fn one_point(out: &mut String, table: &Table) {
    let Some(widest) = table.groups.iter().max_by_key(|group| group.columns.len()) else { return };
    *out += "<div class=\"wide\"><table class=\"one\"><thead><tr><td></td>";
    widest.columns.iter().for_each(|column| head(out, column));
    *out += "</tr></thead><tbody>";
    offered(out, table, widest.columns.len());
    for (place, group) in table.groups.iter().enumerate() {
        let _ = write!(out, "<tr><th scope=\"row\">{}</th>", escape(&title(group)));
        for column in &widest.columns {
            let found = group.columns.iter().position(|other| other == column);
            let text = found.and_then(|column| table.rows.first()?.cells[place].get(column));
            cell(out, column.kind, text.map_or("-", String::as_str));
        }
        *out += "</tr>";
    }
    *out += "</tbody></table></div>";
}

/// What was offered, above what was achieved.
fn offered(out: &mut String, table: &Table, columns: usize) {
    let title = Key::Rate.title();
    let Some(place) = table.keys.iter().position(|key| key == title) else { return };
    let Some(text) = table.rows.first().and_then(|row| row.keys.get(place)) else { return };
    let _ = write!(
        out,
        "<tr><th scope=\"row\">{}</th><td colspan=\"{columns}\">{}</td></tr>",
        escape(title),
        escape(text)
    );
}

fn title(group: &ColumnGroup) -> String {
    if group.unit.is_empty() { group.title.clone() } else { format!("{}, {}", group.title, group.unit) }
}

fn head(out: &mut String, column: &Column) {
    let class = if is_published(column.kind) { " class=\"pub\"" } else { "" };
    let _ = write!(out, "<th scope=\"col\"{class}>{}</th>", escape_breakable(&column.title));
}

fn cell(out: &mut String, kind: ColumnKind, text: &str) {
    let class = if is_published(kind) { " class=\"pub\"" } else { "" };
    let _ = write!(out, "<td{class}>{}</td>", escape(text));
}

fn is_published(kind: ColumnKind) -> bool {
    matches!(kind, ColumnKind::Published | ColumnKind::PublishedRatio)
}
