//! What makes load: programs that are run as processes of their own, and what they print.
//!
//! Invariants:
//! - a generator never outlives the run: it is asked to end when the run is stopped, and killed if it does not, or if the run is killed.
//!   Only one that the kernel keeps, since its drive hangs, is given up after a while, and told as left behind;
//! - load that other hosts make ends with it, too: fio's client is asked to end first, since one that is killed does not tell its hosts;
//! - it gets no Ctrl-C of the terminal, so that its figures up to then are not lost;
//! - figures are read from its JSON only; what it prints otherwise is shown when it fails.

pub mod coquina;
mod ending;
pub mod fio;
pub mod gate;
mod process;
mod program;
mod stillness;

use std::path::PathBuf;

use crate::report::{Figures, Operation};
use crate::statistics::LatencyHistogram;

pub use ending::{GO_TIME_MAX, Other, end, end_with_children, is_gone_by, signal};
pub use process::{Running, end_with_this_process};
pub use program::{ANSWER_TIME_MAX, Patience, output_of, output_while_it_moves};
pub use stillness::mark;

/// Why a generator gave no figures.
#[derive(Debug, thiserror::Error)]
pub enum GeneratorError {
    /// The program cannot be started.
    #[error("cannot start {program}: {source}{}", hint(program))]
    Start {
        /// Its name.
        program: String,
        /// Why.
        source: std::io::Error,
    },
    /// It ended with an error.
    #[error("{program} failed ({status}): {message}")]
    Failed {
        /// Its name.
        program: String,
        /// How it ended.
        status: String,
        /// The last of what it said.
        message: String,
    },
    /// It printed something else than expected.
    #[error("{program} printed no figures that can be read: {message}")]
    Unreadable {
        /// Its name.
        program: String,
        /// What is wrong.
        message: String,
    },
    /// A file for it cannot be written or read.
    #[error("cannot use {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It did not end in time.
    #[error("{program} was still running {seconds} s after its time; it was ended. Is the target hung?")]
    Hung {
        /// Its name.
        program: String,
        /// How long after.
        seconds: u64,
    },
    /// Its jobs did nothing any more.
    #[error(
        "{program} has done nothing for {seconds} s, since what it loads does not answer, and was ended; look at the target's drive \
         (`dmesg`) or server, and begin again when that answers"
    )]
    Still {
        /// Its name.
        program: String,
        /// For how long.
        seconds: u64,
    },
    /// It was ended, since it took too long.
    #[error("{program} did not answer within {seconds} s and was ended; {}", slow_hint(program))]
    Slow {
        /// Its name, and what it was to do.
        program: String,
        /// How long it had.
        seconds: u64,
    },
    /// A volume has a name that fio does not take.
    #[error("{0}")]
    Name(String),
    /// fio cannot do what a target needs.
    #[error("this {program} has no engine {engine}; {}", engine_hint(engine))]
    NoEngine {
        /// Its name.
        program: String,
        /// The engine that is missing.
        engine: String,
    },
    /// The run was stopped.
    #[error("stopped")]
    Stopped,
}

impl GeneratorError {
    /// Whether what it loads does not answer, as far as can be seen.
    pub fn is_hang(&self) -> bool {
        matches!(self, GeneratorError::Hung { .. } | GeneratorError::Still { .. })
    }

    /// Whether the reason may lie with what it loads, rather than with the generator itself.
    pub fn may_be_of_the_target(&self) -> bool {
        self.is_hang() || matches!(self, GeneratorError::Failed { .. })
    }
}

/// Which fio has an engine.
fn engine_hint(engine: &str) -> String {
    let library = match engine {
        "rbd" => "librbd-dev",
        "nbd" => "libnbd-dev",
        _ => "the engine's library",
    };
    format!(
        "install the Debian package fio, which has it, or build fio where {library} is installed; `fio --enghelp` lists engines"
    )
}

/// Which package to install for a program that is missing.
fn hint(program: &str) -> &'static str {
    match program.rsplit('/').next().unwrap_or(program) {
        "fio" => "; install the Debian package fio",
        "rbd" | "ceph" | "ceph-conf" => "; install the Debian package ceph-common",
        "nbdinfo" => "; install the Debian package libnbd-bin",
        "bash" => "; install the Debian package bash",
        _ => "",
    }
}

/// What to do about a program that does not answer.
fn slow_hint(command: &str) -> &'static str {
    let program = command.split(' ').next().unwrap_or(command);
    match program.rsplit('/').next().unwrap_or(program) {
        "fio" => {
            "it was only asked what it can do, with a file of 4 KiB: look at the drive under --folder (`dmesg`)"
        }
        "rbd" | "ceph" => "look at `ceph -s`: monitors and OSDs must be up",
        "nbdinfo" => {
            "whoever listens there took the connection and says nothing: is it an NBD server, and does it answer others? Start it again, \
             or name another export"
        }
        _ => "look at what it speaks to: does its server hang, or does something else listen there?",
    }
}

/// What a generator is to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// Reads, writes or both.
    pub operation: Operation,
    /// Size of one operation.
    pub block_bytes: u32,
    /// Operations in flight per job.
    pub depth: u32,
    /// Jobs for each volume.
    pub jobs: u32,
    /// How much.
    pub amount: Amount,
    /// Size of the range of each volume.
    pub size_bytes: u64,
    /// Operations per second at which load is offered, all volumes of this generator together.
    pub rate_iops: Option<u64>,
    /// Offsets follow from it.
    pub seed: u64,
    /// Processors that jobs are pinned to, one each.
    pub processors: Option<Vec<u32>>,
}

/// The share of one of several parts in a whole number of operations, so that all shares together are the whole.
pub fn share(whole: u64, part: u64, parts: u64) -> u64 {
    let parts = parts.max(1);
    whole / parts + u64::from(part < whole % parts)
}

impl Amount {
    /// Seconds that are measured, where that is what bounds it.
    pub fn runtime_s(self) -> Option<f64> {
        match self {
            Amount::Time { runtime_s, .. } => Some(runtime_s),
            Amount::Fill | Amount::Bytes(_) => None,
        }
    }
}

/// How much load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// For some time, after a warm-up.
    Time {
        /// Before.
        warmup_s: f64,
        /// Measured.
        runtime_s: f64,
    },
    /// The whole range once, one after the other.
    Fill,
    /// So many bytes.
    Bytes(u64),
}

/// A generator, ready to be started.
#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    /// The program.
    pub program: PathBuf,
    /// Its arguments. For fio `{folder}` stands for a folder of its own.
    pub arguments: Vec<String>,
    /// What is added to its environment.
    pub environment: Vec<(String, String)>,
    /// Files that it needs, by name in its folder.
    pub files: Vec<(String, String)>,
    /// How to read what it prints.
    pub format: Format,
    /// Processors that the whole process is kept on, where it cannot be told to keep its jobs on them.
    pub processors: Option<Vec<u32>>,
    /// Seconds that it is to measure, if load is made for some time.
    pub runtime_s: Option<f64>,
}

impl Command {
    /// Other hosts that make its load, if they do.
    pub fn hosts(&self) -> impl Iterator<Item = &str> {
        self.arguments.iter().filter_map(|argument| argument.strip_prefix("--client="))
    }
}

/// What a generator prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// fio's JSON+.
    Fio,
    /// The JSON of `coquina bench io`.
    Coquina,
}

impl Format {
    /// The generator that prints it.
    pub fn generator(self) -> &'static str {
        match self {
            Format::Fio => "fio",
            Format::Coquina => "coquina bench io",
        }
    }
}

/// A host with `fio --server`, as fio tells of it.
#[derive(Clone, Debug, PartialEq)]
pub struct BusyHost {
    /// Its name.
    pub host: String,
    /// Cores that each of its jobs used, on average.
    pub thread_cores: f64,
}

/// What a generator has measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Measured time.
    pub measured_s: f64,
    /// When it began, in milliseconds since 1970, if the generator says so.
    pub began_unix_ms: Option<u64>,
    /// Of several generators, for how long not all of them measured, if they say when they began.
    pub skew_s: Option<f64>,
    /// Reads and writes together.
    pub total: Figures,
    /// Bandwidth as the generator itself printed it, to be checked against its operations per second. 0 if it printed none.
    pub told_bytes_per_s: f64,
    /// Reads, in mixed workloads.
    pub read: Option<Figures>,
    /// Writes, in mixed workloads.
    pub write: Option<Figures>,
    /// Operations per second over time.
    pub series: Vec<f64>,
    /// Distance of its values.
    pub series_interval_ms: u64,
    /// Operations that failed; 1 at least if it gave up.
    pub errors: u64,
    /// The first failure, or why it gave up.
    pub first_error: Option<String>,
    /// It was asked to end before its time.
    pub is_stopped: bool,
    /// Of other hosts that made the load, the one whose jobs used most of their cores.
    pub busiest_host: Option<BusyHost>,
}

impl Outcome {
    /// Whether no operation was done, and none failed.
    fn is_empty(&self) -> bool {
        self.total.operations == 0 && self.errors == 0
    }

    /// Puts the figures of generators that ran at the same time together. Where none of them did anything, that is a failure.
    pub fn merge(outcomes: Vec<Outcome>) -> Outcome {
        let mut merged = Outcome { skew_s: skew_s(&outcomes), ..Outcome::default() };
        for (number, outcome) in outcomes.into_iter().enumerate() {
            merged.measured_s = merged.measured_s.max(outcome.measured_s);
            // The last one to begin counts: before, not all were at work.
            merged.began_unix_ms = merged.began_unix_ms.max(outcome.began_unix_ms);
            merged.total = add(&merged.total, &outcome.total);
            merged.told_bytes_per_s += outcome.told_bytes_per_s;
            merged.read = add_options(merged.read, outcome.read);
            merged.write = add_options(merged.write, outcome.write);
            merged.series_interval_ms = merged.series_interval_ms.max(outcome.series_interval_ms);
            if number == 0 {
                merged.series = outcome.series;
            } else {
                // The shortest counts: behind its end not all were running. None at all means that it is not known.
                merged.series.truncate(outcome.series.len());
                merged.series.iter_mut().zip(outcome.series).for_each(|(sum, value)| *sum += value);
            }
            merged.errors += outcome.errors;
            merged.first_error = merged.first_error.or(outcome.first_error);
            merged.is_stopped |= outcome.is_stopped;
            let cores = |host: &Option<BusyHost>| host.as_ref().map_or(0.0, |host| host.thread_cores);
            if cores(&outcome.busiest_host) > cores(&merged.busiest_host) {
                merged.busiest_host = outcome.busiest_host;
            }
        }
        if merged.is_empty() && !merged.is_stopped {
            merged.errors = 1;
            merged.first_error = Some("no operation was done in the measured time".to_owned());
        }
        merged
    }
}

/// How much longer than the time in which all measured the longest of them did.
fn skew_s(outcomes: &[Outcome]) -> Option<f64> {
    // What did nothing has no time of its own.
    let measured: Vec<&Outcome> = outcomes.iter().filter(|outcome| !outcome.is_empty()).collect();
    if measured.len() < 2 {
        return None;
    }
    let began_s = |outcome: &Outcome| Some(outcome.began_unix_ms? as f64 / 1e3);
    let began: Vec<f64> = measured.iter().map(|outcome| began_s(outcome)).collect::<Option<_>>()?;
    let last_began_s = began.iter().copied().fold(f64::MIN, f64::max);
    let ends = began.iter().zip(&measured).map(|(began_s, outcome)| began_s + outcome.measured_s);
    let first_end_s = ends.fold(f64::MAX, f64::min);
    let longest_s = measured.iter().map(|outcome| outcome.measured_s).fold(0.0, f64::max);
    // Moments since 1970 in milliseconds: there is less than one in the rest of a number.
    let skew_s = longest_s - (first_end_s - last_began_s).max(0.0);
    Some((skew_s.max(0.0) * 1e3).round() / 1e3)
}

fn add_options(first: Option<Figures>, second: Option<Figures>) -> Option<Figures> {
    match (first, second) {
        (Some(first), Some(second)) => Some(add(&first, &second)),
        (first, second) => first.or(second),
    }
}

/// The figures of two loads that ran at the same time, percentiles from the merged histogram.
pub(crate) fn add(first: &Figures, second: &Figures) -> Figures {
    // At a rate there are latencies of operations that were not done in time, too, and maybe of no others.
    let latencies = |figures: &Figures| match figures.latency_histogram.is_empty() {
        true => figures.operations,
        false => figures.latency_histogram.iter().map(|(_, count)| count).sum(),
    };
    let (of_first, of_second) = (latencies(first), latencies(second));
    if first.operations == 0 && of_first == 0 {
        return second.clone();
    }
    if second.operations == 0 && of_second == 0 {
        return first.clone();
    }
    let operations = first.operations + second.operations;
    let weighted = first.latency_ns_mean * of_first as f64 + second.latency_ns_mean * of_second as f64;
    let mut sum = Figures {
        operations,
        iops: first.iops + second.iops,
        bytes_per_s: first.bytes_per_s + second.bytes_per_s,
        latency_ns_mean: weighted / (of_first + of_second).max(1) as f64,
        latency_ns_max: first.latency_ns_max.max(second.latency_ns_max),
        latency_histogram: [&first.latency_histogram[..], &second.latency_histogram[..]].concat(),
        ..Figures::default()
    };
    set_percentiles(&mut sum);
    sum
}

/// Fills the percentiles in from the histogram, none above the largest latency that was seen.
pub(crate) fn set_percentiles(figures: &mut Figures) {
    let max = (figures.latency_ns_max > 0).then_some(figures.latency_ns_max);
    let histogram = LatencyHistogram::from_pairs(&figures.latency_histogram).with_exact(None, max);
    if let Some(found) = histogram.percentiles() {
        figures.latency_ns_p50 = found.latency_ns_p50;
        figures.latency_ns_p90 = found.latency_ns_p90;
        figures.latency_ns_p99 = found.latency_ns_p99;
        figures.latency_ns_p99_9 = found.latency_ns_p99_9;
        figures.latency_ns_p99_99 = found.latency_ns_p99_99;
        figures.latency_ns_max = found.latency_ns_max;
    }
    figures.latency_histogram = histogram.pairs();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A command with this job file, for a script in the place of fio.
    pub(super) fn of_fio(job: &str) -> Command {
        Command {
            program: "bash".into(),
            arguments: Vec::new(),
            environment: Vec::new(),
            files: vec![("job.fio".to_owned(), job.to_owned())],
            format: Format::Fio,
            processors: None,
            runtime_s: None,
        }
    }

    #[test]
    fn shares_are_the_whole_together() {
        for (whole, parts) in [(100, 3), (2, 5), (7, 1), (12_345, 128)] {
            let shares: Vec<u64> = (0..parts).map(|part| share(whole, part, parts)).collect();
            assert_eq!(shares.iter().sum::<u64>(), whole, "{shares:?}");
            assert!(shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1, "{shares:?}");
        }
    }

    #[test]
    fn who_did_nothing_in_time_counts_with_its_latencies() {
        let figures = |operations, latency_ns_mean, counted| Figures {
            operations,
            latency_ns_mean,
            latency_histogram: vec![(latency_ns_mean as u64, counted)],
            ..Figures::default()
        };
        let sum = add(&figures(100, 1e6, 100), &figures(0, 9e6, 100));
        assert_eq!((sum.operations, sum.latency_ns_mean), (100, 5e6));
        assert!(sum.latency_ns_p99 > 8_000_000, "{}", sum.latency_ns_p99);
        let without = Figures { operations: 300, latency_ns_mean: 1e6, ..Figures::default() };
        assert_eq!(add(&without, &figures(100, 5e6, 100)).latency_ns_mean, 2e6);
    }

    #[test]
    fn generators_that_do_not_measure_at_once_are_told() {
        let one = |began_unix_ms, measured_s| Outcome {
            measured_s,
            began_unix_ms: Some(began_unix_ms),
            total: Figures { operations: 1, ..Figures::default() },
            ..Outcome::default()
        };
        let now_ms = 1_800_000_000_000;
        let skew_s = |all: Vec<Outcome>| Outcome::merge(all).skew_s;
        assert_eq!(skew_s(vec![one(now_ms, 2.0)]), None);
        assert_eq!(skew_s(vec![one(now_ms, 2.0), one(now_ms, 2.0)]), Some(0.0));
        assert_eq!(skew_s(vec![one(now_ms, 2.0), one(now_ms + 300, 2.0), one(now_ms + 50, 2.0)]), Some(0.3));
        assert_eq!(skew_s(vec![one(now_ms, 2.0), one(now_ms + 100, 1.5)]), Some(0.5), "one ended early");
        assert_eq!(skew_s(vec![one(now_ms, 2.0), one(now_ms + 9000, 2.0)]), Some(2.0), "never at once");
        let unknown = Outcome { began_unix_ms: None, ..one(now_ms, 2.0) };
        assert_eq!(skew_s(vec![one(now_ms, 2.0), unknown]), None);
        let idle = Outcome { began_unix_ms: Some(now_ms + 9000), ..Outcome::default() };
        assert_eq!(skew_s(vec![one(now_ms, 2.0), one(now_ms, 2.0), idle]), Some(0.0));
    }

    #[test]
    fn load_of_which_nothing_was_done_has_failed() {
        let empty = || Outcome { measured_s: 2.0, ..Outcome::default() };
        let merged = Outcome::merge(vec![empty(), empty()]);
        assert_eq!(merged.errors, 1);
        assert!(merged.first_error.unwrap().contains("no operation was done"));
        assert_eq!(Outcome::merge(vec![Outcome { is_stopped: true, ..empty() }]).errors, 0);
        let total = Figures { operations: 3, ..Figures::default() };
        // Of a low rate one of several volumes may have no share in a short time.
        assert_eq!(Outcome::merge(vec![empty(), Outcome { total, ..empty() }]).errors, 0);
    }
}
