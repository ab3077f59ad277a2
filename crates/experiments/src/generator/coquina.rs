//! `coquina bench io`: arguments, and its JSON.

use std::path::Path;

use serde::Deserialize;

use super::{Amount, Command, Format, Load, Outcome, set_percentiles};
use crate::report::{Figures, Operation};

/// The command that makes this load on one volume. `target` is as `--target` takes it; `server` are options that name
/// the server, such as `--dir`.
pub fn command(program: &Path, target: &str, server: &[String], load: &Load) -> Command {
    let mut arguments: Vec<String> =
        ["bench", "io", "--json", "--yes", "--baseline", "0", "--target", target].map(str::to_owned).into();
    arguments.extend_from_slice(server);
    let mut set = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
    set("--seed", load.seed.to_string());
    if load.size_bytes > 0 {
        set("--size", load.size_bytes.to_string());
    }
    if load.amount == Amount::Fill {
        set("--rw", "write".to_owned());
        set("--bs", "1M".to_owned());
        set("--depth", "16".to_owned());
        set("--bytes", load.size_bytes.to_string());
        set("--warmup", "0".to_owned());
    } else {
        set("--rw", pattern(load.operation).to_owned());
        set("--bs", load.block_bytes.to_string());
        set("--depth", load.depth.to_string());
        set("--jobs", load.jobs.to_string());
    }
    match load.amount {
        Amount::Time { warmup_s, runtime_s } => {
            set("--runtime", runtime_s.to_string());
            set("--warmup", warmup_s.to_string());
        }
        Amount::Bytes(bytes) => {
            set("--bytes", bytes.to_string());
            set("--warmup", "0".to_owned());
        }
        Amount::Fill => {}
    }
    if let Some(rate_iops) = load.rate_iops {
        set("--rate", rate_iops.to_string());
    }
    Command {
        program: program.to_owned(),
        arguments,
        environment: Vec::new(),
        files: Vec::new(),
        format: Format::Coquina,
    }
}

/// Named as fio does, but for the mix.
fn pattern(operation: Operation) -> &'static str {
    match operation {
        Operation::Mixed70 => "mix:70",
        operation => super::fio::pattern(operation),
    }
}

#[derive(Deserialize)]
struct Printed {
    measured_s: f64,
    measured_began_unix_ms: u64,
    total: Part,
    read: Option<Part>,
    write: Option<Part>,
    operations_by_500_ms: Vec<u64>,
    errors: u64,
    first_error: Option<String>,
    interrupted: Option<String>,
}

#[derive(Deserialize)]
struct Part {
    operations: u64,
    iops: f64,
    bytes_per_s: f64,
    latency_ns_mean: f64,
    latency_ns_max: u64,
    latency_histogram: Vec<(u64, u64)>,
}

/// Reads what it printed.
pub fn read(out: &str) -> Result<Outcome, String> {
    let printed: Printed = serde_json::from_str(out).map_err(|error| error.to_string())?;
    Ok(Outcome {
        measured_s: printed.measured_s,
        began_unix_ms: Some(printed.measured_began_unix_ms),
        told_bytes_per_s: printed.total.bytes_per_s,
        total: figures(printed.total),
        read: printed.read.map(figures),
        write: printed.write.map(figures),
        series: printed.operations_by_500_ms.iter().map(|count| *count as f64 * 2.0).collect(),
        series_interval_ms: 500,
        errors: printed.errors,
        first_error: printed.first_error,
        interrupted: printed.interrupted,
    })
}

fn figures(part: Part) -> Figures {
    let mut figures = Figures {
        operations: part.operations,
        iops: part.iops,
        bytes_per_s: part.bytes_per_s,
        latency_ns_mean: part.latency_ns_mean,
        latency_ns_max: part.latency_ns_max,
        latency_histogram: part.latency_histogram,
        ..Figures::default()
    };
    set_percentiles(&mut figures);
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_come_from_its_json() {
        let printed = r#"{"report_version": 1, "measured_began_unix_ms": 7000, "measured_s": 2.0, "total": {"operations": 10, "iops": 5.0, "bytes_per_s": 20480.0,
            "latency_ns_mean": 100.0, "latency_ns_max": 300, "latency_histogram": [[100, 9], [511, 1]]}, "read": null, "write": null,
            "series": [], "operations_by_500_ms": [2, 3], "errors": 0, "first_error": null,
            "interrupted": null}"#;
        let outcome = read(printed).unwrap();
        assert_eq!(outcome.total.latency_ns_p50, 100);
        assert_eq!(outcome.total.latency_ns_p99_9, 300, "no percentile is above the largest");
        assert_eq!(outcome.series, [4.0, 6.0]);
        assert!(read("").is_err());
    }

    #[test]
    fn load_becomes_arguments() {
        let load = Load {
            operation: Operation::Mixed70,
            block_bytes: 4096,
            depth: 8,
            jobs: 2,
            amount: Amount::Bytes(5 << 30),
            size_bytes: 1 << 30,
            rate_iops: Some(500),
            seed: 3,
            processors: None,
        };
        let made = command(Path::new("coquina"), "volume:a", &["--dir".into(), "/d".into()], &load);
        let line = made.arguments.join(" ");
        assert_eq!(
            line,
            "bench io --json --yes --baseline 0 --target volume:a --dir /d --seed 3 --size 1073741824 --rw mix:70 --bs 4096 \
             --depth 8 --jobs 2 --bytes 5368709120 --warmup 0 --rate 500"
        );
    }
}
