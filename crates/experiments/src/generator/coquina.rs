//! `coquina bench io`: arguments, and its JSON.

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use super::{Amount, Command, Format, Load, Outcome, set_percentiles, share};
use crate::report::{Figures, Operation};

/// The commands that make this load on several volumes at the same time: one each, with its share of bytes and rate. What
/// has no share of a rate is left out.
pub fn commands(program: &Path, targets: &[String], options: &[String], load: &Load) -> Vec<Command> {
    let count = targets.len() as u64;
    let of_one = (0..count).zip(targets).filter_map(|(number, target)| {
        let amount = match load.amount {
            Amount::Bytes(bytes) => Amount::Bytes(bytes / count),
            amount => amount,
        };
        let rate_iops = load.rate_iops.map(|rate_iops| share(rate_iops, number, count));
        let seed = load.seed.wrapping_add(number);
        let mine = Load { amount, seed, rate_iops, ..load.clone() };
        (rate_iops != Some(0)).then(|| command(program, target, options, &mine))
    });
    of_one.collect()
}

/// The command that makes this load on one volume. `target` is as `--target` takes it; `options` name the server, such as
/// `--dir`, or say that writes are to be durable.
pub fn command(program: &Path, target: &str, options: &[String], load: &Load) -> Command {
    let mut arguments: Vec<String> =
        ["bench", "io", "--json", "--yes", "--baseline", "0", "--target", target].map(str::to_owned).into();
    arguments.extend_from_slice(options);
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
        processors: load.processors.clone(),
        runtime_s: load.amount.runtime_s(),
    }
}

/// Has generators that are started one after the other begin at once, `wait` from now.
pub fn begin_at_once(commands: &mut [Command], wait: Duration) {
    let start_at_ns = coquina_host::monotonic_ns().saturating_add(wait.as_nanos() as u64);
    for command in commands.iter_mut().filter(|command| command.format == Format::Coquina) {
        command.arguments.extend(["--start-at".to_owned(), start_at_ns.to_string()]);
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

/// Reads what it printed. Who asked it to end knows that; otherwise an early end is a failure, also if no operation failed.
pub fn read(out: &str) -> Result<Outcome, String> {
    let printed: Printed = serde_json::from_str(out).map_err(|error| error.to_string())?;
    let gave_up = printed.interrupted.map(|reason| match &printed.first_error {
        Some(first) => format!("{reason}; the first that failed: {first}"),
        None => reason,
    });
    Ok(Outcome {
        measured_s: printed.measured_s,
        began_unix_ms: Some(printed.measured_began_unix_ms),
        skew_s: None,
        told_bytes_per_s: printed.total.bytes_per_s,
        total: figures(printed.total),
        read: printed.read.map(figures),
        write: printed.write.map(figures),
        series: printed.operations_by_500_ms.iter().map(|count| *count as f64 * 2.0).collect(),
        series_interval_ms: 500,
        errors: printed.errors.max(u64::from(gave_up.is_some())),
        first_error: gave_up.or(printed.first_error),
        is_stopped: false,
        busiest_host: None,
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
        let broke = printed.replace(r#""interrupted": null"#, r#""interrupted": "the connection broke""#);
        let outcome = read(&broke).unwrap();
        assert_eq!((outcome.errors, outcome.first_error.as_deref()), (1, Some("the connection broke")));
        assert!(!outcome.is_stopped, "nobody asked it to end");
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

    #[test]
    fn several_begin_at_once() {
        let load = Load {
            operation: Operation::RandomRead,
            block_bytes: 4096,
            depth: 1,
            jobs: 1,
            amount: Amount::Time { warmup_s: 0.5, runtime_s: 2.0 },
            size_bytes: 1 << 30,
            rate_iops: None,
            seed: 3,
            processors: None,
        };
        let volumes = ["volume:a".to_owned(), "volume:b".to_owned()];
        let mut made = commands(Path::new("coquina"), &volumes, &[], &load);
        let of_fio = Command { format: Format::Fio, ..made[0].clone() };
        made.push(of_fio.clone());
        let now_ns = coquina_host::monotonic_ns();
        begin_at_once(&mut made, Duration::from_secs(5));
        let starts: Vec<u64> =
            made[..2].iter().map(|one| one.arguments.last().unwrap().parse().unwrap()).collect();
        assert!(starts[0] == starts[1] && starts[0] >= now_ns + 5_000_000_000, "{starts:?}");
        assert_eq!(made[0].arguments[made[0].arguments.len() - 2], "--start-at");
        assert_eq!(made[2], of_fio, "it has no such option");
    }

    #[test]
    fn a_rate_is_shared_out_among_volumes() {
        let load = Load {
            operation: Operation::RandomWrite,
            block_bytes: 4096,
            depth: 8,
            jobs: 1,
            amount: Amount::Time { warmup_s: 0.5, runtime_s: 2.0 },
            size_bytes: 1 << 30,
            rate_iops: Some(101),
            seed: 3,
            processors: Some(vec![0, 2]),
        };
        let targets: Vec<String> = ["a", "b", "c"].map(|name| format!("file:/{name}")).into();
        let lines = |load: &Load| -> Vec<String> {
            let made = commands(Path::new("coquina"), &targets, &["--durable".to_owned()], load);
            made.iter().map(|command| command.arguments.join(" ")).collect()
        };
        let made = lines(&load);
        assert_eq!(
            made[0],
            "bench io --json --yes --baseline 0 --target file:/a --durable --seed 3 --size 1073741824 --rw randwrite --bs 4096 \
             --depth 8 --jobs 1 --runtime 2 --warmup 0.5 --rate 34"
        );
        assert!(made[1].ends_with("--rate 34") && made[2].ends_with("--rate 33"), "{made:?}");
        assert!(made[1].contains("--target file:/b") && made[1].contains("--seed 4 "), "{made:?}");
        let one = commands(Path::new("coquina"), &targets, &[], &Load { rate_iops: Some(1), ..load.clone() });
        assert_eq!(one.len(), 1, "what has no share of the rate makes no load");
        assert_eq!(one[0].processors, Some(vec![0, 2]));
        assert_eq!(lines(&Load { rate_iops: None, ..load }).len(), 3);
    }
}
