//! `coquina bench run`, `tune`, `list`, `show` and `compare`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;

use coquina_experiments::definition::RATE_IOPS_MAX;

use super::{seconds, size, whole};

const TARGETS: &str = "\
Targets:
  coquina-local        three Coquina nodes, made for the run, by the native client
  coquina-local-nbd    the same, by fio over NBD
  ceph-local           Ceph from Debian's packages, made for the run: monitor, manager, three OSDs; by fio's RBD engine, whole
                       objects by librados
  coquina:VOLUME       a volume of a running cluster (--dir or --server); made and removed if it does not exist
  coquina-nbd:VOLUME   the same, by fio over NBD
  rbd:POOL/IMAGE       an image of a running Ceph cluster, in no namespace; made and removed if it does not exist
  rados:POOL           whole objects of a pool of a running Ceph cluster, by librados; made and removed
  nbd:URI              an export of any NBD server
  file:PATH[,PATH..]   files: each a volume or a drive; device:PATH[,PATH..] the same with block devices
  plain-file           a file in --folder; plain-files:N several";

/// Smallest volume that is worth measuring.
const VOLUME_BYTES_MIN: u64 = 16 << 20;
/// Smallest drive that has room for one.
const STORE_BYTES_MIN: u64 = 64 << 20;

fn volume_size(text: &str) -> Result<u64, String> {
    match size(text)? {
        bytes if bytes < VOLUME_BYTES_MIN => Err("a volume to be measured needs 16M at least".to_owned()),
        bytes => Ok(bytes),
    }
}

fn store_size(text: &str) -> Result<u64, String> {
    match size(text)? {
        bytes if bytes < STORE_BYTES_MIN => Err("a drive of a store needs 64M at least".to_owned()),
        bytes => Ok(bytes),
    }
}

#[derive(Args)]
#[command(after_help = format!("\
Examples:
  coquina bench run curve-vs-ceph --quick
  coquina bench run curve-vs-ceph --peer ceph-local --quick
  coquina bench run host-drives --target device:/dev/sdb,/dev/sdc --destroy-data device:/dev/sdb,/dev/sdc
  coquina bench run curve-vs-ceph --target coquina:test --target rbd:bench/test --dir /srv/coquina
  coquina bench run my-experiment.toml --target file:/srv/disk --plan
{TARGETS}
Nothing that holds data, and no device, is written to unless --destroy-data names it. Ctrl-C ends the run: what was measured is kept
and marked, and what was made or started is removed. A second one says what is waited for, a third ends at once and says what is left.
Exit code: 0 if all is well; 1 if operations failed, a target that was named has no figures, the run ended early, or it could not
begin; 2 for wrong usage. The report is written in all but the last two cases."))]
pub struct BenchRun {
    /// A built-in experiment (see `coquina bench list`), or a file
    pub experiment: String,
    #[command(flatten)]
    pub what: Measured,
    /// Measure this instead of the experiment's own targets; repeat it for more
    #[arg(long = "target", value_name = "TARGET")]
    pub targets: Vec<String>,
    /// Measure this besides; repeat it for more
    #[arg(long = "peer", value_name = "TARGET")]
    pub peers: Vec<String>,
    /// Compare targets whose copies or durability differ or cannot be known
    #[arg(long)]
    pub allow_unequal: bool,
    /// Print what would be run, and for how long, and do nothing
    #[arg(long)]
    pub plan: bool,
}

#[derive(Args)]
#[command(after_help = format!("\
Examples:
  coquina bench tune curve-vs-ceph --quick --only 'random write / depth 128' --target ceph-local --set osd:debug_ms=0 --set osd:debug_ms=5
  coquina bench tune hdd-tuning --target file:/srv/disk --set os:scheduler:sdb=none --set os:scheduler:sdb=mq-deadline
  coquina bench tune curve-vs-ceph --quick --target coquina-local --set coquina:index-memory=64M
Settings:
  KEY=VALUE, SECTION:KEY=VALUE   an option of Ceph, as `ceph config set SECTION KEY VALUE` (section osd if none is named)
                                 one that OSDs read at their start only needs ceph-local: they are started again for each turn
  os:KEY=VALUE                   of the operating system: scheduler:DRIVE, iosched/NAME:DRIVE (of the scheduler that is set),
                                 read_ahead_kb:DRIVE, nr_requests:DRIVE, swappiness, governor, thp
  fio:KEY=VALUE                  an option of fio's job, where fio makes the load; not what makes columns unequal, such as
                                 iodepth, bs, rw, direct, sync. It is tried with `fio --parse-only` first
  coquina:KEY=VALUE              an option of `coquina up`, for coquina-local: it is started again for each turn
Values of one key are compared with the first of them, or with what is set now if there is one only. Everything is put back
at the end, also after Ctrl-C; what cannot be is told, with exit code 1. Exit codes are those of `coquina bench run`.
{TARGETS}"))]
pub struct BenchTune {
    /// A built-in experiment (see `coquina bench list`), or a file
    pub experiment: String,
    #[command(flatten)]
    pub what: Measured,
    /// What is set and measured
    #[arg(long, value_name = "TARGET")]
    pub target: String,
    /// A setting to try; repeat it for more
    #[arg(long = "set", value_name = "KEY=VALUE", required = true)]
    pub settings: Vec<String>,
    /// Print what would be run, and for how long, and do nothing
    #[arg(long)]
    pub plan: bool,
}

/// What is run, how long, and where.
#[derive(Args)]
pub struct Measured {
    /// Minutes: short runs, few cases, small volumes
    #[arg(long, conflicts_with = "full")]
    pub quick: bool,
    /// The published durations and sizes, as far as there is room
    #[arg(long)]
    pub full: bool,
    /// Only cases whose name contains this, with whole numbers at its ends (`depth 1` is not in `depth 128`), or is this behind a
    /// `=`; repeat it for more
    #[arg(long, value_name = "TEXT")]
    pub only: Vec<String>,
    /// Times that each case is run on each target, or with each setting [default: those of the experiment's mode; `bench tune` takes
    /// 8 if these are fewer, and refuses fewer than 3]
    #[arg(long, value_parser = whole::<u32>(1..=1000), allow_negative_numbers = true)]
    pub rounds: Option<u32>,
    /// Seconds that are measured each time [default: the experiment's]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_hyphen_values = true)]
    pub runtime: Option<f64>,
    /// Seconds of load before [default: the experiment's]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_hyphen_values = true)]
    pub warmup: Option<f64>,
    /// Seconds of load, not measured, that cases of random writes begin with on aged stores, and up to four times that until these are steady;
    /// 0 for none [default: the experiment's]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_hyphen_values = true)]
    pub settle: Option<f64>,
    /// Size of each volume, 16M at least, rounded down to a multiple of that [default: the experiment's, or less where the targets have less room]
    #[arg(long, value_name = "SIZE", value_parser = volume_size, allow_hyphen_values = true)]
    pub volume_size: Option<u64>,
    /// Size of each drive of stores that are made for the run, 64M at least, 1G for ceph-local [default: 2G with --quick, or 1G where stores
    /// are aged; else 16G]
    #[arg(long, value_name = "SIZE", value_parser = store_size, allow_hyphen_values = true)]
    pub store_size: Option<u64>,
    /// Open loop: offer this many operations per second in every case, whatever the target does; latency counts from when one was due
    #[arg(long, value_name = "IOPS", value_parser = whole::<u64>(1..=RATE_IOPS_MAX), allow_negative_numbers = true)]
    pub rate: Option<u64>,
    /// Make fio's load on this host, on which `fio --server` runs, at port 8765 if none is named; repeat it for more, which share
    /// the clients out. It must reach the target by the same name: no files, devices, loopback addresses. Not with a rate
    #[arg(long = "client", value_name = "HOST[,PORT]", value_parser = NonEmptyStringValueParser::new())]
    pub hosts: Vec<String>,
    /// Folder for files of targets, on the disk in question
    #[arg(long, default_value = ".", value_name = "FOLDER")]
    pub folder: PathBuf,
    /// Folder for the report [default: coquina-bench-NAME-TIME]
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
    /// Order of targets and offsets follow from it [default: the time]
    #[arg(long, value_parser = whole::<u64>(0..=u64::MAX), allow_negative_numbers = true)]
    pub seed: Option<u64>,
    /// Overwrite this, which holds data: a volume, image, export, file or device, as it is named in the error; a file or device by
    /// any of its paths that begins with /, ./ or ../. Devices that are written to need it always
    #[arg(long = "destroy-data", value_name = "NAME")]
    pub destroy: Vec<String>,
    /// Run scenarios that fill the store on clusters that run already, too: they take most of what is free there. Without it volumes
    /// leave such clusters no more than 80 % full
    #[arg(long)]
    pub fill_stores: bool,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  coquina bench list
  coquina bench list curve-vs-ceph          its file, to be changed and run
  coquina bench list curve-vs-ceph --json   the same as the field `toml`, with its name, title and targets")]
pub struct BenchList {
    /// Print the file of this experiment
    pub experiment: Option<String>,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  coquina bench show coquina-bench-curve-vs-ceph-20261123-101500
  coquina bench show report.json --html report.html --svg plot.svg")]
pub struct BenchShow {
    /// A report, or the folder that holds it
    pub report: PathBuf,
    /// Write it as a page, too
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write its main plot, too
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

#[derive(Args)]
#[command(after_help = "\
Example:
  coquina bench compare before/report.json after/report.json
Each case is \"faster\", \"slower\", or there is \"no difference shown\", with 95 % intervals.")]
pub struct BenchCompare {
    /// A report, or the folder that holds it
    pub a: PathBuf,
    /// Another one of the same experiment: its figures are divided by those of the first
    pub b: PathBuf,
}
