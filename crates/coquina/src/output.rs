//! What commands print: JSON or text on standard output, questions on standard error.

use std::fmt::Display;
use std::io::{self, BufRead, ErrorKind, IsTerminal, Write};

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use crate::error::CliError;

/// Width of what is no terminal.
const WIDTH: usize = 200;
/// A terminal that is narrower is not believed.
const WIDTH_MIN: u16 = 40;

/// Prints text as it is. A reader that went away is not an error.
pub fn print(text: &str) -> Result<(), CliError> {
    print_while_read(text).map(drop)
}

/// Prints text as it is. Says whether there is a reader.
pub fn print_while_read(text: &str) -> Result<bool, CliError> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(CliError::failed(format!("cannot write to standard output: {error}"))),
        Ok(()) => Ok(true),
    }
}

/// Says something on standard error, as a line of its own. Whether somebody reads it changes nothing: `eprintln!` would end the
/// process, with what it started left behind, as soon as the other end of a pipe is closed.
pub fn tell(text: impl Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Columns of the terminal, or what fits most files and screens where there is none.
pub fn width() -> usize {
    let terminal = console::Term::stdout();
    match terminal.size_checked() {
        Some((_, columns)) if columns >= WIDTH_MIN => usize::from(columns),
        _ => WIDTH,
    }
}

/// Prints a value as JSON.
pub fn print_json(value: &impl Serialize) -> Result<(), CliError> {
    print(&json_text(value)?)
}

/// A value as JSON for people.
pub fn json_text(value: &impl Serialize) -> Result<String, CliError> {
    serde_json::to_string_pretty(value).map(|text| text + "\n").map_err(no_json)
}

/// Prints a value as one line of JSON. Says whether there is a reader.
pub fn print_json_line(value: &impl Serialize) -> Result<bool, CliError> {
    let text = serde_json::to_string(value).map_err(no_json)?;
    print_while_read(&(text + "\n"))
}

fn no_json(error: serde_json::Error) -> CliError {
    CliError::failed(format!("cannot write JSON: {error}"))
}

/// A table without lines; columns from `right` on are aligned right.
pub fn table(header: &[&str], right: usize) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header.iter().copied());
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if index >= right {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Asks before data is lost. `question` says what would be lost. Off a terminal `--yes` is needed.
pub fn confirm(question: &str, yes: bool) -> Result<(), CliError> {
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(CliError::failed(format!(
            "{question}: not done without confirmation; add --yes to confirm"
        )));
    }
    // Nothing is lost if the question cannot be shown: the answer is then not yes.
    let mut asked = io::stderr();
    let _ = write!(asked, "{question}. Go on? [y/N] ").and_then(|()| asked.flush());
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer);
    if read.is_ok() && matches!(answer.trim(), "y" | "Y" | "yes") {
        return Ok(());
    }
    Err(CliError::failed("not confirmed; nothing was changed"))
}

/// A duration for people: `350 ms`, `12 s`, `3 h 5 min`.
pub fn format_duration(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    match seconds {
        0 => format!("{} ms", ns / 1_000_000),
        1..=9 => format!("{:.1} s", ns as f64 / 1e9),
        10..=59 => format!("{seconds} s"),
        60..=3599 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..=86_399 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// A point in time as UTC: `2026-11-21 20:34:00 UTC`.
pub fn format_unix_ns(unix_ns: u64) -> String {
    let seconds = unix_ns / 1_000_000_000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Days to a civil date, after the proleptic Gregorian calendar: eras of 400 years that begin in March.
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second % 3600 / 60, second % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_for_people() {
        assert_eq!(format_unix_ns(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(format_unix_ns(951_782_399_000_000_000), "2000-02-28 23:59:59 UTC");
        assert_eq!(format_unix_ns(951_782_400_000_000_000), "2000-02-29 00:00:00 UTC");
        assert_eq!(format_unix_ns(1_795_293_240_123_456_789), "2026-11-21 20:34:00 UTC");
        assert_eq!(format_duration(350_000_000), "350 ms");
        assert_eq!(format_duration(3_661_000_000_000), "1 h 1 min");
        assert_eq!(format_duration(1_234_000_000), "1.2 s");
        assert_eq!(format_duration(90_000_000_000_000), "1 d 1 h");
    }
}
