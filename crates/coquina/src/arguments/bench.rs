//! `coquina bench`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use coquina_bench::{DEPTH_MAX, JOBS_MAX};

use coquina_experiments::definition::RATE_IOPS_MAX;

use super::experiment::{BenchCompare, BenchList, BenchRun, BenchShow, BenchTune};
use super::{BusyPoll, seconds, size, whole};

#[derive(Subcommand)]
pub enum Bench {
    /// Generate load and show IOPS, latency and CPU per I/O
    Io(BenchIo),
    /// Run a published experiment, or your own, on several targets in turns
    Run(Box<BenchRun>),
    /// Try settings of a target against each other, in turns, and put them back
    Tune(Box<BenchTune>),
    /// List the experiments that are built in, or print the file of one
    List(BenchList),
    /// Show a report
    Show(BenchShow),
    /// Compare two reports of one experiment
    Compare(BenchCompare),
    /// Repeat an experiment that decided the design; without a name, list them
    Design(BenchDesign),
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  coquina bench design\n  coquina bench design durable-append --folder /srv"
)]
pub struct BenchDesign {
    /// Which experiment
    pub name: Option<String>,
    /// Folder for test files, on the disk in question
    #[arg(long, default_value = ".", value_name = "FOLDER")]
    pub folder: PathBuf,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  coquina bench io --target volume:disk --rw randwrite --bs 4k --depth 128 --runtime 10
  coquina bench io --target nbd://127.0.0.1:10809/disk --rw randread --depth 32 --jobs 2
  coquina bench io --target file:/srv/raw --size 1G --rw randwrite --depth 128 --durable
What lies in the range is overwritten by workloads that write.")]
pub struct BenchIo {
    /// Where the load goes: volume:NAME, nbd:URI, rbd:[USER@]POOL/IMAGE, rados:[USER@]POOL/PREFIX (whole objects of the size of an
    /// operation, PREFIX0 and so on, which are written before they are read), file:PATH or device:PATH
    #[arg(long)]
    pub target: String,
    /// randread, randwrite, read, write, mix (70 % reads) or mix:PERCENT
    #[arg(long, default_value = "randread")]
    pub rw: String,
    /// Size of an operation
    #[arg(long, default_value = "4k", value_parser = size, allow_hyphen_values = true)]
    pub bs: u64,
    /// Operations in flight per job
    #[arg(long, default_value_t = 1, value_parser = whole::<u32>(1..=DEPTH_MAX), allow_negative_numbers = true)]
    pub depth: u32,
    /// Threads, each with its own connection
    #[arg(long, default_value_t = 1, value_parser = whole::<u32>(1..=JOBS_MAX), allow_negative_numbers = true)]
    pub jobs: u32,
    /// Seconds that are measured [default: 10, or with --bytes until these are done]
    #[arg(long, value_parser = seconds, allow_hyphen_values = true)]
    pub runtime: Option<f64>,
    /// End when so many bytes were read or written; those of the warm-up do not count
    #[arg(long, value_name = "SIZE", value_parser = size, allow_hyphen_values = true)]
    pub bytes: Option<u64>,
    /// Seconds of load before [default: 1, or 0 with --bytes]
    #[arg(long, value_parser = seconds, allow_hyphen_values = true)]
    pub warmup: Option<f64>,
    /// Seconds for which the idle machine is looked at before, to be subtracted from CPU time
    #[arg(long, default_value_t = 1.0, value_parser = seconds, allow_hyphen_values = true)]
    pub baseline: f64,
    /// Size of the range that is used [default: all of the target]
    #[arg(long, value_parser = size, allow_hyphen_values = true)]
    pub size: Option<u64>,
    /// Start of the range
    #[arg(long, default_value = "0", value_parser = size, allow_hyphen_values = true)]
    pub offset: u64,
    /// Each write is on stable storage before it counts. Volumes always are
    #[arg(long)]
    pub durable: bool,
    /// Open loop: start this many operations per second, whatever the target does
    #[arg(long, value_name = "IOPS", value_parser = whole::<u64>(1..=RATE_IOPS_MAX), allow_negative_numbers = true)]
    pub rate: Option<u64>,
    /// Offsets and payload follow from it; the same again overwrites in the same order, which makes a full drive seem faster than it is
    /// [default: another each time]
    #[arg(long, value_parser = whole::<u64>(0..=u64::MAX), allow_negative_numbers = true)]
    pub seed: Option<u64>,
    /// Write the whole range first
    #[arg(long)]
    pub fill: bool,
    /// Check every read, and read everything back at the end
    #[arg(long)]
    pub verify: bool,
    /// Report the CPU time of this process too; repeat it for more [default: those of the local server, if it serves the target]
    #[arg(long = "cpu-pid", value_name = "PID")]
    pub cpu_pids: Vec<u32>,
    /// Make no load, but remove the objects that load on rados:POOL/PREFIX with this --bs and --size has left, by their names
    #[arg(long)]
    pub remove: bool,
    /// When the load begins, in nanoseconds of CLOCK_MONOTONIC: several generators of a run begin at once
    #[arg(long, value_name = "NS", hide = true)]
    pub start_at: Option<u64>,
    /// Overwrite a block device, or a file that holds data, without asking
    #[arg(long, short)]
    pub yes: bool,
    #[command(flatten)]
    pub busy_poll: BusyPoll,
}
