//! fio: job files, and its JSON+.
//!
//! All jobs of one fio are one group, so that its histograms are of all of them. Latency is fio's `lat`: from the moment at
//! which an operation is handed in to its completion.

mod client;
mod engine;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use serde::Deserialize;

use super::{Amount, BusyHost, Command, Format, Load, Outcome, add, set_percentiles};
use crate::report::{Figures, Operation};
use crate::statistics::LatencyHistogram;

pub use client::{host, reach};
pub use engine::{Engine, for_files, need, parse};

/// What the names of fio's logs of operations per second begin with: `series_iops.1.log`, one for each job, and where another
/// host makes the load `series_iops.1.log.HOST`.
pub const SERIES_PREFIX: &str = "series_iops.";
const SERIES_INTERVAL_MS: u64 = 500;
/// Lines of a log come so much late, and fio prints its figures so long after its end at least.
const SERIES_SLACK_MS: u64 = 100;
/// Size and depth of sequential writes that fill a volume.
const FILL_BLOCK: &str = "1m";
const FILL_DEPTH: u32 = 16;
/// fio reads numbers with a sign, and drops a job whose seed is larger.
const SEED_MAX: u64 = u64::MAX >> 2;

/// What of a job differs between targets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FioOptions {
    /// `ioengine`.
    pub engine: String,
    /// Options of the engine and of the target, for all volumes.
    pub options: Vec<(String, String)>,
    /// Options of each volume: at least what names it.
    pub volumes: Vec<Vec<(String, String)>>,
    /// What is added to fio's environment.
    pub environment: Vec<(String, String)>,
    /// Another host on which a `fio --server` makes the load.
    pub host: Option<String>,
}

/// Refuses a name that fio would not take as it is: in a job file `#` and `;` begin a comment and `$` a variable, so that it would
/// use, and overwrite, something else.
pub fn check_name(name: &str) -> Result<(), String> {
    use super::process::FOLDER;
    if name.contains(FOLDER) {
        return Err(format!(
            "{name:?} holds {FOLDER:?}, which stands for the folder of the generator, so that it would use something else; name it \
             without (a file or folder by a link, for example)"
        ));
    }
    // What stands for bytes that are no text is another name.
    let is_special = |c: &char| c.is_control() || "#;$\\\u{fffd}".contains(*c);
    let ends = [name.chars().next(), name.chars().last()].into_iter().flatten();
    let found = name.chars().find(is_special).or_else(|| ends.into_iter().find(|c| c.is_whitespace()));
    match found {
        None => Ok(()),
        Some(found) => Err(format!(
            "{name:?} holds {found:?}, which fio would not take as a part of a name, so that it would use something else; name it \
             without (a file or folder by a link, for example)"
        )),
    }
}

/// Refuses jobs in which a volume has such a name after all, before anything is written to.
pub(super) fn check_job(job: &str) -> Result<(), String> {
    let volumes = job.find("[volume").map_or("", |at| &job[at..]);
    let values = volumes.lines().filter_map(|line| line.split_once('='));
    // Colons have been escaped.
    values.into_iter().try_for_each(|(_, value)| check_name(&value.replace("\\:", ":")))
}

/// The command that makes this load, which has no rate: fio counts latency from when it hands an operation in, not from when that was
/// due, and waits for all that a job has in flight before it waits for the time of the next one.
pub fn command(options: &FioOptions, load: &Load) -> Command {
    assert!(load.rate_iops.is_none(), "load at a rate is made by `coquina bench io`");
    let mut job = String::from("[global]\n");
    let mut set = |name: &str, value: &str| {
        // Writing to a text cannot fail.
        let _ = writeln!(job, "{name}={value}");
    };
    set("ioengine", &options.engine);
    set("direct", "1");
    set("group_reporting", "1");
    set("thread", "1");
    set("randrepeat", "0");
    set("randseed", &(load.seed & SEED_MAX).to_string());
    set("norandommap", "1");
    // Data does not repeat, and costs the generator little: filling each buffer anew takes longer than a fast drive.
    set("scramble_buffers", "1");
    set("lat_percentiles", "1");
    set("clat_percentiles", "0");
    // A job begins at its place and goes on for `size`: beyond the volume, if that were all of it. fio makes a file longer for that, by
    // making it anew.
    let range_bytes = if has_parts(load) { part_bytes(load) } else { load.size_bytes };
    if range_bytes > 0 {
        set("size", &range_bytes.to_string());
    }
    match load.amount {
        Amount::Fill => {
            set("rw", "write");
            set("bs", FILL_BLOCK);
            set("iodepth", &FILL_DEPTH.to_string());
        }
        Amount::Time { .. } | Amount::Bytes(_) => {
            set("rw", pattern(load.operation));
            if load.operation == Operation::Mixed70 {
                set("rwmixread", "70");
            }
            set("bs", &load.block_bytes.to_string());
            set("iodepth", &load.depth.to_string());
            set("numjobs", &load.jobs.to_string());
        }
    }
    if has_parts(load) {
        set("offset_increment", &part_bytes(load).to_string());
    }
    match load.amount {
        Amount::Time { warmup_s, runtime_s } => {
            set("time_based", "1");
            set("runtime", &format!("{}ms", (runtime_s * 1e3).round()));
            set("ramp_time", &format!("{}ms", (warmup_s * 1e3).round()));
            set("write_iops_log", "{folder}/series");
            // The log then says when the measured time began.
            set("log_unix_epoch", "1");
            set("log_avg_msec", &SERIES_INTERVAL_MS.to_string());
            // One log for all jobs would hold the last job's only, where another host makes the load.
            set("per_job_logs", "1");
        }
        Amount::Bytes(bytes) => {
            let jobs = options.volumes.len().max(1) as u64 * u64::from(load.jobs.max(1));
            set("io_size", &(bytes / jobs).to_string());
        }
        Amount::Fill => {}
    }
    if let Some(processors) = &load.processors {
        let list: Vec<String> = processors.iter().map(u32::to_string).collect();
        set("cpus_allowed", &list.join(","));
        set("cpus_allowed_policy", "split");
    }
    options.options.iter().for_each(|(name, value)| set(name, value));
    for (number, volume) in options.volumes.iter().enumerate() {
        let name = format!("volume{number}");
        add_section(&mut job, &name, volume);
    }
    let mut arguments: Vec<String> = ["--output-format=json+", "--eta=never"].map(str::to_owned).into();
    arguments.extend(options.host.iter().map(|host| format!("--client={host}")));
    arguments.push("{folder}/job.fio".to_owned());
    Command {
        program: PathBuf::from("fio"),
        arguments,
        environment: options.environment.clone(),
        files: vec![("job.fio".to_owned(), job)],
        format: Format::Fio,
        processors: None,
        runtime_s: load.amount.runtime_s(),
    }
}

fn add_section(job: &mut String, name: &str, options: &[(String, String)]) {
    // Writing to a text cannot fail.
    let _ = writeln!(job, "[{name}]");
    for (name, value) in options {
        let _ = writeln!(job, "{name}={value}");
    }
}

/// Whether each job of one volume goes through a part of it, as with `coquina bench io`: or the second one would find what the first has
/// just read. A volume with less than an operation for each of them has no parts.
fn has_parts(load: &Load) -> bool {
    load.jobs > 1 && load.amount != Amount::Fill && is_sequential(load.operation) && part_bytes(load) > 0
}

/// Each job's part of a volume that jobs go through one after the other.
fn part_bytes(load: &Load) -> u64 {
    load.size_bytes / u64::from(load.jobs.max(1)) / u64::from(load.block_bytes) * u64::from(load.block_bytes)
}

/// Adds options to the jobs of a command; what a job says already is replaced.
pub fn add_options(command: &mut Command, options: &[(String, String)]) {
    for (_, job) in &mut command.files {
        let Some(at) = job.find("[volume") else { continue };
        let lines: String = options.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
        job.insert_str(at, &lines);
    }
}

fn is_sequential(operation: Operation) -> bool {
    matches!(operation, Operation::SequentialRead | Operation::SequentialWrite)
}

/// The name of an operation.
pub(super) fn pattern(operation: Operation) -> &'static str {
    match operation {
        Operation::RandomRead => "randread",
        Operation::RandomWrite => "randwrite",
        Operation::SequentialRead | Operation::ObjectRead => "read",
        Operation::SequentialWrite | Operation::ObjectWrite => "write",
        Operation::Mixed70 => "randrw",
    }
}

#[derive(Deserialize)]
struct Printed {
    #[serde(default)]
    jobs: Vec<Job>,
    /// In place of `jobs` when other hosts made the load; the last is the sum of all, if there are several.
    #[serde(default)]
    client_stats: Vec<Job>,
    /// When it printed this, soon after the end of the load; not told where other hosts made the load.
    #[serde(default)]
    timestamp_ms: u64,
}

#[derive(Deserialize)]
struct Job {
    #[serde(default)]
    jobname: String,
    /// The host that made this load, where another did.
    #[serde(default)]
    hostname: Option<String>,
    /// Time of its threads on processors, in percent of how long they ran.
    #[serde(default)]
    usr_cpu: f64,
    #[serde(default)]
    sys_cpu: f64,
    error: i64,
    read: Direction,
    write: Direction,
}

#[derive(Deserialize)]
struct Direction {
    total_ios: u64,
    io_bytes: u64,
    /// Bytes per second, by its own count of bytes.
    #[serde(default)]
    bw_bytes: f64,
    iops: f64,
    /// Milliseconds.
    runtime: u64,
    lat_ns: serde_json::Value,
}

/// Reads what fio printed, and its log of operations per second. It was to measure for `runtime_s`.
pub fn read(out: &str, series: &str, runtime_s: Option<f64>) -> Result<Outcome, String> {
    let json = out.find("\n{").map(|at| at + 1).or_else(|| out.starts_with('{').then_some(0));
    let json = &out[json.ok_or("there is no JSON")?..];
    // Messages may follow the JSON.
    let mut values = serde_json::Deserializer::from_str(json).into_iter::<Printed>();
    let printed = values.next().ok_or("there is no JSON")?.map_err(|error| error.to_string())?;
    let printed_at_ms = Some(printed.timestamp_ms).filter(|at_ms| *at_ms > 0);
    let jobs = if printed.jobs.is_empty() { printed.client_stats } else { printed.jobs };
    let jobs: Vec<Job> = jobs.into_iter().filter(|job| job.jobname != "All clients").collect();
    if jobs.is_empty() {
        return Err("it names no job".to_owned());
    }
    let mut outcome = Outcome { series_interval_ms: SERIES_INTERVAL_MS, ..Outcome::default() };
    let (mut read, mut write) = (Figures::default(), Figures::default());
    let mut runtime_ms = 0;
    for job in &jobs {
        read = add(&read, &figures(&job.read, runtime_s)?);
        write = add(&write, &figures(&job.write, runtime_s)?);
        if let Some(host) = &job.hostname {
            let cores = (job.usr_cpu + job.sys_cpu) / 100.0;
            if cores > 0.0 && outcome.busiest_host.as_ref().is_none_or(|busiest| cores > busiest.thread_cores)
            {
                outcome.busiest_host = Some(BusyHost { host: host.clone(), thread_cores: cores });
            }
        }
        for direction in [&job.read, &job.write] {
            let measured_s = direction.measured_s(runtime_s);
            if measured_s > 0.0 {
                outcome.told_bytes_per_s += direction.bw_bytes * direction.runtime_s() / measured_s;
            }
            outcome.measured_s = outcome.measured_s.max(measured_s);
            runtime_ms = runtime_ms.max(direction.runtime);
        }
        if job.error != 0 {
            let reason = std::io::Error::from_raw_os_error(i32::try_from(job.error).unwrap_or(libc::EIO));
            outcome.errors += 1;
            outcome.first_error.get_or_insert(reason.to_string());
        }
    }
    outcome.total = add(&read, &write);
    if read.operations > 0 && write.operations > 0 {
        (outcome.read, outcome.write) = (Some(read), Some(write));
    }
    (outcome.began_unix_ms, outcome.series) = read_series(series, outcome.measured_s, runtime_ms);
    // What would have ended after it was printed began an interval earlier, of which there is no line.
    let is_over = |began_ms: &u64| {
        printed_at_ms.is_none_or(|at_ms| began_ms.saturating_add(runtime_ms) <= at_ms + SERIES_SLACK_MS)
    };
    outcome.began_unix_ms = outcome.began_unix_ms.filter(is_over);
    Ok(outcome)
}

impl Direction {
    fn runtime_s(&self) -> f64 {
        self.runtime as f64 / 1e3
    }

    /// fio's own time goes on until the last operation is done, and it begins none in the meantime: 128 of 100 ms each make a second
    /// 1.1 of them, or more. The operations that it counts are those that it began, of which with a full queue there are as many as
    /// were done up to the end of the time that was asked for. One that went on for longer than that must
    /// not count as shorter: the operation that ended last began no earlier than the longest latency before.
    fn measured_s(&self, runtime_s: Option<f64>) -> f64 {
        let began_last_s = self.runtime_s() - self.lat_ns["max"].as_f64().unwrap_or(0.0) / 1e9;
        runtime_s.map_or(self.runtime_s(), |runtime_s| self.runtime_s().min(runtime_s.max(began_last_s)))
    }

    /// fio's own figure where it was not at work for longer than it should be.
    fn iops(&self, runtime_s: Option<f64>) -> f64 {
        let measured_s = self.measured_s(runtime_s);
        if measured_s < self.runtime_s() { self.total_ios as f64 / measured_s } else { self.iops }
    }
}

fn figures(direction: &Direction, runtime_s: Option<f64>) -> Result<Figures, String> {
    let histogram = LatencyHistogram::from_fio(&direction.lat_ns).unwrap_or_default();
    // fio counts the operations in flight at the end with the bytes and the latencies, and not with its rate. So that a slow
    // target with many of them gets the right bandwidth, it is the rate times the bytes of an operation. What fio itself says
    // is kept besides, and compared with its rate.
    let counted = if histogram.count() > 0 { histogram.count() } else { direction.total_ios };
    let bytes_per_operation = direction.io_bytes as f64 / counted.max(1) as f64;
    let mut figures = Figures {
        operations: direction.total_ios,
        iops: direction.iops(runtime_s),
        bytes_per_s: direction.iops(runtime_s) * bytes_per_operation,
        latency_ns_mean: direction.lat_ns["mean"].as_f64().or_else(|| histogram.mean()).unwrap_or(0.0),
        latency_ns_max: histogram.percentiles().map_or(0, |found| found.latency_ns_max),
        latency_histogram: histogram.pairs(),
        ..Figures::default()
    };
    set_percentiles(&mut figures);
    Ok(figures)
}

/// Sums the lines of all jobs: `time in ms since 1970, operations per second, direction, size, offset`; gives when the
/// measured time began, too, unless more than one line is missing at the ends of the time that fio was at work: then nobody knows. fio writes
/// no line for an interval in which a job did nothing: that is a zero. The last interval with a line counts only if it is whole for all or
/// others follow; of those that follow without any line, the last may not have been whole.
fn read_series(text: &str, measured_s: f64, runtime_ms: u64) -> (Option<u64>, Vec<f64>) {
    let lines = text.lines().filter_map(|line| {
        let mut fields = line.split(',').map(str::trim);
        Some((fields.next()?.parse::<u64>().ok()?, fields.next()?.parse::<f64>().ok()?))
    });
    let lines: Vec<(u64, f64)> = lines.collect();
    let all_ms = || lines.iter().map(|(at_ms, _)| *at_ms);
    let (Some(first_ms), Some(last_ms)) = (all_ms().min(), all_ms().max()) else { return (None, Vec::new()) };
    // Often the last interval has no line either, though it is whole.
    let span_ms = last_ms - first_ms + SERIES_INTERVAL_MS;
    let spans_all = runtime_ms.abs_diff(span_ms) <= SERIES_INTERVAL_MS + SERIES_SLACK_MS;
    let intervals = (measured_s * 1e3 / SERIES_INTERVAL_MS as f64) as usize;
    let mut sums: BTreeMap<usize, (f64, u32)> = BTreeMap::new();
    for (at_ms, iops) in lines {
        let interval = ((at_ms - first_ms + SERIES_INTERVAL_MS / 2) / SERIES_INTERVAL_MS) as usize;
        // A clock that was set makes no series of years.
        if interval <= intervals {
            let sum = sums.entry(interval).or_default();
            *sum = (sum.0 + iops, sum.1 + 1);
        }
    }
    let all = sums.values().map(|(_, lines)| *lines).max().unwrap_or(0);
    let (seen, is_last_whole) =
        sums.last_key_value().map_or((0, true), |(last, (_, lines))| (last + 1, *lines == all));
    let end = match intervals.saturating_sub(1) {
        whole if whole > seen => whole,
        _ => seen - usize::from(!is_last_whole),
    };
    let series = (0..end).map(|interval| sums.get(&interval).map_or(0.0, |(sum, _)| *sum)).collect();
    (first_ms.checked_sub(SERIES_INTERVAL_MS).filter(|_| spans_all), series)
}

#[cfg(test)]
mod tests;
