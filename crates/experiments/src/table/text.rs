//! Tables for terminals.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, Table as Grid, presets};

use crate::report::Report;
use crate::spread::{INTERVAL_TITLE, NO_DIFFERENCE_MARK};
use crate::view::format::{clean, duration};
use crate::view::{View, contradictions, cpu, headline, setup};

use super::{ColumnKind, Table, tables_of};

/// Widest word of a head before it is broken over lines.
const HEAD_WIDTH: usize = 12;
/// Longest word of a head that is not broken.
const HEAD_WORD_MAX: usize = 18;
/// Space between columns.
const GAP: usize = 2;
/// Narrowest terminal that is believed.
const WIDTH_MIN: usize = 40;
/// Most contradictions that are shown.
const CONTRADICTIONS_MAX: usize = 10;

/// A whole report for a terminal of so many columns.
pub fn text(report: &Report, width: usize) -> String {
    let view = View::of(report);
    let mut out = String::new();
    if let Some(reason) = &report.interrupted {
        let _ = writeln!(out, "INTERRUPTED: {}. The figures are those up to then.\n", clean(reason));
    }
    let _ = writeln!(
        out,
        "{}: {} (mode {}, {})\n",
        clean(&report.experiment.name),
        clean(&report.experiment.title),
        clean(&report.mode),
        duration(report.elapsed_s)
    );
    if !report.hosts.is_empty() {
        let line = format!("Load made by fio on: {}", clean(&report.hosts.join(", ")));
        let _ = writeln!(out, "{}\n", wrap(&line, width, "  "));
    }
    for (mut table, group) in tables_of(&view).into_iter().zip(&view.groups) {
        table.notes.extend(cpu::line(&view, group));
        let _ = writeln!(out, "{}", table.to_text(width));
    }
    let legend = format!(
        "±: {INTERVAL_TITLE}. Ratios: above 1 is better for IOPS and MiB/s, below 1 for latency and CPU; \
         {NO_DIFFERENCE_MARK}: no difference shown, or none that is certain among so many cases."
    );
    let _ = writeln!(out, "{}", wrap(&legend, width, ""));
    let lines = setup::lines(report).into_iter().map(|(name, text)| clean(&format!("{name}: {text}")));
    section(&mut out, width, "How it was run", lines);
    let lines = headline::headline(&view);
    section(&mut out, width, "In short", lines.iter().map(|line| clean(line)));
    let found = report.findings.iter().map(|finding| {
        clean(&match finding.subject.as_str() {
            "" => format!("{}: {}", finding.kind, finding.text),
            subject => format!("{}: {subject}: {}", finding.kind, finding.text),
        })
    });
    section(&mut out, width, "Findings", found);
    let contradictions = contradictions(report);
    let shown = contradictions.iter().take(CONTRADICTIONS_MAX);
    let more = contradictions.len().saturating_sub(CONTRADICTIONS_MAX);
    let lines = shown.map(|(case, target, text)| clean(&format!("{case}, {target}: {text}")));
    let more = (more > 0).then(|| format!("and {more} more, which are in the report's JSON"));
    section(&mut out, width, "Figures that contradict each other", lines.chain(more));
    out
}

fn section(out: &mut String, width: usize, title: &str, lines: impl Iterator<Item = String>) {
    let mut lines = lines.peekable();
    if lines.peek().is_some() {
        let _ = writeln!(out, "\n{title}");
        lines.for_each(|line| {
            let _ = writeln!(out, "  {}", wrap(&line, width.saturating_sub(2), "    "));
        });
    }
}

/// Breaks at spaces; lines after the first are indented.
pub(crate) fn wrap(text: &str, width: usize, indent: &str) -> String {
    let width = width.max(WIDTH_MIN);
    let (mut out, mut used) = (String::new(), 0);
    for word in text.split(' ') {
        let length = word.chars().count();
        if used > 0 && used + 1 + length > width {
            let _ = write!(out, "\n{indent}{word}");
            used = indent.len() + length;
        } else {
            out += if used > 0 { " " } else { "" };
            out += word;
            used += length + usize::from(used > 0);
        }
    }
    out
}

/// A column as it is printed.
struct Printed {
    head: Vec<String>,
    cells: Vec<String>,
    width: usize,
    /// Whether it begins a figure.
    begins: bool,
    is_text: bool,
}

impl Printed {
    fn new(head: Vec<String>, cells: Vec<String>, begins: bool, is_text: bool) -> Self {
        let width = head.iter().chain(&cells).map(|text| text.chars().count()).max().unwrap_or(0);
        Printed { head, cells, width, begins, is_text }
    }
}

impl Table {
    /// The table for a terminal of so many columns. What does not fit beside the rest stands below it.
    pub fn to_text(&self, width: usize) -> String {
        let mut out = format!("{} / {}\n", clean(&self.scenario), clean(&self.workload));
        // Without figures, as where everything was skipped, there is only to say why.
        let blocks = if self.groups.is_empty() { Vec::new() } else { self.blocks(width.max(WIDTH_MIN)) };
        let blocks: Vec<String> = blocks.iter().map(|columns| print(columns) + "\n").collect();
        out += &blocks.join("\n");
        if blocks.is_empty() && self.notes.is_empty() {
            out += "  note: nothing was measured\n";
        }
        for note in &self.notes {
            let _ = writeln!(
                out,
                "  {}",
                wrap(&format!("note: {}", clean(note)), width.saturating_sub(2), "    ")
            );
        }
        out
    }

    fn key_columns(&self) -> Vec<Printed> {
        self.keys
            .iter()
            .enumerate()
            .map(|(place, title)| {
                let cells: Vec<String> = self.rows.iter().map(|row| clean(&row.keys[place])).collect();
                let is_text = !cells.iter().any(|cell| cell.starts_with(|c: char| c.is_ascii_digit()));
                Printed::new(vec![String::new(), title.clone()], cells, false, is_text)
            })
            .collect()
    }

    /// Columns by what fits side by side; each block begins with what varies.
    fn blocks(&self, width: usize) -> Vec<Vec<Printed>> {
        let total = |columns: &[Printed]| columns.iter().map(|column| column.width + GAP).sum::<usize>();
        let mut blocks = Vec::new();
        let mut block = self.key_columns();
        let keys = block.len();
        for (place, group) in self.groups.iter().enumerate() {
            let columns = self.columns(place);
            // A figure that fits into a block of its own is not torn.
            if block.len() > keys && total(&block) + total(&columns) > width + GAP {
                blocks.push(std::mem::replace(&mut block, self.key_columns()));
            }
            for mut column in columns {
                if block.len() > keys && total(&block) + column.width > width {
                    blocks.push(std::mem::replace(&mut block, self.key_columns()));
                    column.begins = true;
                }
                if column.begins {
                    column.head[0] = title(&group.title, &group.unit);
                }
                block.push(column);
            }
        }
        blocks.push(block);
        blocks
    }

    fn columns(&self, group: usize) -> Vec<Printed> {
        let head = &self.groups[group];
        let columns = head.columns.iter().enumerate().map(|(place, column)| {
            let cells = self.rows.iter().map(|row| clean(&row.cells[group][place])).collect();
            let mut lines = vec![String::new()];
            if place == 0 {
                lines[0] = title(&head.title, &head.unit);
            }
            let prefix = match column.kind {
                ColumnKind::Published | ColumnKind::PublishedRatio => "published ",
                ColumnKind::Measured | ColumnKind::Ratio => "",
            };
            lines.extend(break_lines(&clean(&format!("{prefix}{}", column.title))));
            Printed::new(lines, cells, place == 0, head.title == "limit")
        });
        columns.collect()
    }
}

fn title(title: &str, unit: &str) -> String {
    if unit.is_empty() { title.to_owned() } else { format!("{title}, {unit}") }
}

/// Breaks at spaces so that lines are about [`HEAD_WIDTH`] wide, and words that are far longer, such as paths, anywhere.
fn break_lines(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= HEAD_WIDTH => {
                line.push(' ');
                *line += word;
            }
            _ => {
                let letters: Vec<char> = word.chars().collect();
                lines.extend(letters.chunks(HEAD_WORD_MAX).map(|part| part.iter().collect::<String>()));
            }
        }
    }
    lines
}

fn print(columns: &[Printed]) -> String {
    let mut grid = Grid::new();
    grid.load_preset(presets::NOTHING);
    let deepest = columns.iter().map(|column| column.head.len()).max().unwrap_or(0);
    // Titles of figures on top, names of columns at the bottom, next to the figures.
    let head = columns.iter().map(|column| {
        let mut lines = column.head.clone();
        while lines.len() < deepest {
            lines.insert(1, String::new());
        }
        lines.push("-".repeat(column.width));
        lines.join("\n")
    });
    grid.set_header(head);
    let rows = columns.first().map_or(0, |column| column.cells.len());
    for row in 0..rows {
        grid.add_row(columns.iter().map(|column| column.cells[row].clone()));
    }
    for (column, printed) in grid.column_iter_mut().zip(columns) {
        column.set_padding((0, GAP as u16));
        let alignment = if printed.is_text { CellAlignment::Left } else { CellAlignment::Right };
        column.set_cell_alignment(alignment);
    }
    grid.trim_fmt()
}
