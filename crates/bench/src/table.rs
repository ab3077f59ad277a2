//! A report as text for people.

use std::fmt::Write as _;

use comfy_table::{CellAlignment, Table, presets};
use coquina_base::format_size_bytes;

use crate::report::{IoReport, OperationReport};

/// Cores that may be busy on a machine that counts as idle.
const IDLE_CORES_MAX: f64 = 0.1;

/// Shows a time in nanoseconds with a fitting unit: `850 ns`, `12.3 us`, `4.56 ms`, `1.2 s`.
pub fn format_ns(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if ns < 1e3 => return format!("{ns:.0} ns"),
        ns if ns < 1e6 => (ns / 1e3, "us"),
        ns if ns < 1e9 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    match value {
        value if value < 10.0 => format!("{value:.2} {unit}"),
        value if value < 100.0 => format!("{value:.1} {unit}"),
        _ => format!("{value:.0} {unit}"),
    }
}

/// Shows a count with separators: `12,345`.
pub fn format_count(value: f64) -> String {
    let digits = format!("{:.0}", value.max(0.0));
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// What to say of CPU figures that were taken while the machine was busy with something else, if it was.
pub(crate) fn idle_warning(idle_us_per_s: f64) -> Option<String> {
    let busy_cores = idle_us_per_s / 1e6;
    (busy_cores > IDLE_CORES_MAX).then(|| {
        format!(
            "the machine was not idle before the run ({busy_cores:.2} cores busy): CPU of the whole machine is \
             unreliable, and other figures may be low"
        )
    })
}

/// A table, and the warning where one is due.
pub(crate) fn with_warning(table: &Table, idle_us_per_s: f64) -> String {
    match idle_warning(idle_us_per_s) {
        Some(warning) => format!("{}\n{warning}", table.trim_fmt()),
        None => table.trim_fmt(),
    }
}

/// A plain table with right-aligned columns after the first.
pub(crate) fn plain_table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header.iter().copied());
    for (index, column) in table.column_iter_mut().enumerate() {
        if index > 0 {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

impl IoReport {
    /// The report as a short table.
    pub fn to_table(&self) -> String {
        let config = &self.config;
        let mut text = String::new();
        let durable = if config.durable { ", durable" } else { "" };
        let loop_kind = config.rate_iops.map(|rate| format!(", at {rate} per second")).unwrap_or_default();
        let _ = writeln!(
            text,
            "{}: {} {}, depth {} x {} job(s){durable}{loop_kind}, range {}, {:.1} s, seed {}",
            config.target,
            config.workload,
            format_size_bytes(config.block_bytes.into()),
            config.depth,
            config.jobs,
            format_size_bytes(self.range_bytes),
            self.measured_s,
            config.seed,
        );
        let mut table =
            plain_table(&["", "IOPS", "bandwidth", "mean", "p50", "p90", "p99", "p99.9", "max", "stddev"]);
        match (&self.read, &self.write) {
            (Some(read), Some(write)) => {
                table.add_row(row("read", read));
                table.add_row(row("write", write));
                table.add_row(row("total", &self.total));
            }
            _ => {
                table.add_row(row(if config.workload.reads() { "read" } else { "write" }, &self.total));
            }
        }
        let _ = writeln!(text, "{}", table.trim_fmt());
        self.write_machine(&mut text);
        self.write_problems(&mut text);
        text
    }

    fn write_machine(&self, text: &mut String) {
        let cpu = &self.cpu;
        let _ = write!(
            text,
            "CPU per I/O: {} whole machine ({:.2} of {} cores busy, {:.2} when idle), {:.1} us client",
            cpu.machine_us_per_io.map_or("-".to_owned(), |us| format!("{us:.1} us")),
            cpu.machine_busy_cores,
            self.environment.cores,
            cpu.idle_us_per_s / 1e6,
            cpu.client_us_per_io,
        );
        for server in &cpu.servers {
            let share = server.us_per_io.map_or("ended".to_owned(), |us| format!("{us:.1} us"));
            let _ = write!(text, ", {share} {} ({})", server.name, server.pid);
        }
        let _ = writeln!(text);
        if let Some(amplification) = self.write_amplification {
            let _ = writeln!(text, "written to the drive: {amplification:.2} bytes per byte");
        }
    }

    fn write_problems(&self, text: &mut String) {
        if let Some(found) = &self.verify {
            let _ = writeln!(
                text,
                "verified: {} blocks checked, {} wrong",
                format_count(found.blocks_checked as f64),
                found.mismatches
            );
            found.described.iter().for_each(|line| {
                let _ = writeln!(text, "  {line}");
            });
        }
        if let Some(warning) = idle_warning(self.cpu.idle_us_per_s) {
            let _ = writeln!(text, "{warning}");
        }
        if self.rate_unmet > 0 {
            let _ = writeln!(
                text,
                "the rate was not reached: {} operations were due and not started; they count with how long they had waited",
                self.rate_unmet
            );
        }
        if self.errors > 0 {
            let first = self.first_error.as_deref().unwrap_or("unknown");
            let _ = writeln!(text, "errors: {} (first: {first})", self.errors);
        }
        if let Some(reason) = &self.interrupted {
            let _ = writeln!(text, "ended early: {reason}");
        }
    }
}

fn row(name: &str, figures: &OperationReport) -> Vec<String> {
    vec![
        name.to_owned(),
        format_count(figures.iops),
        format!("{}/s", format_size_bytes(figures.bytes_per_s as u64)),
        format_ns(figures.latency_ns_mean),
        format_ns(figures.latency_ns_p50 as f64),
        format_ns(figures.latency_ns_p90 as f64),
        format_ns(figures.latency_ns_p99 as f64),
        format_ns(figures.latency_ns_p99_9 as f64),
        format_ns(figures.latency_ns_max as f64),
        format_ns(figures.latency_ns_stddev),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_figures_for_people() {
        assert_eq!(format_ns(850.0), "850 ns");
        assert_eq!(format_ns(12_345.0), "12.3 us");
        assert_eq!(format_ns(1.5e9), "1.50 s");
        assert_eq!(format_count(1_234_567.4), "1,234,567");
        assert_eq!(format_count(999.0), "999");
        assert_eq!(idle_warning(50_000.0), None);
        assert!(idle_warning(1_250_000.0).is_some_and(|text| text.contains("1.25 cores")));
    }
}
