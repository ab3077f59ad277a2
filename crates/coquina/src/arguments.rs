//! What the command line takes, with examples.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use coquina_base::parse_size_bytes;

/// Reads a size for the parser.
fn size(text: &str) -> Result<u64, String> {
    parse_size_bytes(text).map_err(|error| error.to_string())
}

/// Replicated block storage: volumes for virtual machines, containers and databases.
#[derive(Parser)]
#[command(
    name = "coquina",
    version,
    max_term_width = 110,
    after_help = "\
Examples:
  coquina demo                             see it work, with nothing left behind
  coquina up                               start a server that keeps its data in ./coquina-data
  coquina volume create disk --size 10G    make a volume; reach it as nbd://127.0.0.1:10809/disk
  coquina status                           see how the server is"
)]
pub struct Arguments {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// What every command takes.
#[derive(Args)]
pub struct Global {
    /// Folder of the local server
    #[arg(long, global = true, env = "COQUINA_DIR", default_value = "./coquina-data", value_name = "DIR")]
    pub dir: PathBuf,
    /// HTTP address of a remote server, instead of the local one
    #[arg(long, global = true, value_name = "HOST:PORT")]
    pub server: Option<String>,
    /// Print JSON with stable fields
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Subcommand)]
pub enum Command {
    /// Start a server; makes what is missing. Ctrl-C stops it cleanly
    Up(Up),
    /// Make, list, change and remove volumes
    #[command(
        subcommand,
        after_help = "Examples:\n  coquina volume create disk --size 10G\n  coquina volume list"
    )]
    Volume(Volume),
    /// Show the server's health, services, data and live I/O
    Status(Status),
    /// Show what the drives hold and what the volumes may take
    #[command(after_help = "Examples:\n  coquina df\n  coquina df --json")]
    Df,
    /// Format, list, inspect, scrub, check and remove drives
    #[command(
        subcommand,
        after_help = "Examples:\n  coquina drive list\n  coquina drive format /srv/drive1:100G"
    )]
    Drive(Drive),
    /// Measure
    #[command(
        subcommand,
        after_help = "Examples:\n  coquina bench io --target volume:disk --rw randwrite --depth 128\n  coquina bench experiment"
    )]
    Bench(Bench),
    /// Start a server in a temporary folder, load it, kill it, and verify every acknowledged write
    Demo(Demo),
    /// Print the manual page of a command, or write all pages into a folder
    #[command(after_help = "\
Examples:
  coquina man | man -l -
  coquina man volume create | man -l -
  coquina man --folder ~/.local/share/man/man1")]
    Man {
        /// The command; without one, the page of coquina itself
        command: Vec<String>,
        /// Write the pages of all commands into this folder
        #[arg(long, value_name = "FOLDER", conflicts_with = "command")]
        folder: Option<PathBuf>,
    },
    /// Print a completion script for a shell
    #[command(
        after_help = "Example:\n  coquina completions bash > ~/.local/share/bash-completion/completions/coquina"
    )]
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  coquina up
  coquina up --dir /srv/coquina --drive /srv/coquina/drive0:100G --drive /dev/nvme1n1
  coquina up --nbd 127.0.0.1:10809 --nbd unix:/run/coquina.sock --overcommit 1.5
Drives given once are remembered. Log messages go to standard error; COQUINA_LOG=debug shows more.")]
pub struct Up {
    /// File or block device, with the size of a file to make; repeat it for more [default: DIR/drive0:16G]
    #[arg(long = "drive", value_name = "PATH[:SIZE]")]
    pub drives: Vec<String>,
    /// Format drives even if they hold something else. What they hold is lost
    #[arg(long)]
    pub force: bool,
    /// Address of the NBD server: HOST:PORT or unix:PATH; repeat it for more [default: 127.0.0.1:10809]
    #[arg(long = "nbd", value_name = "ADDR")]
    pub nbd: Vec<String>,
    /// Address of the REST interface and the metrics
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:10810")]
    pub http: String,
    /// Address of the native protocol
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:10811")]
    pub listen: String,
    /// Most memory for the index of all drives
    #[arg(long, value_name = "SIZE", value_parser = size, allow_hyphen_values = true)]
    pub index_memory: Option<u64>,
    /// Most memory for the block cache
    #[arg(long, value_name = "SIZE", value_parser = size, allow_hyphen_values = true)]
    pub cache_memory: Option<u64>,
    /// Volume sizes may add up to this many times the capacity; remembered [default: 1.0]
    #[arg(long, value_name = "FACTOR", value_parser = overcommit_percent, allow_hyphen_values = true)]
    pub overcommit: Option<u32>,
    /// Number of reactor threads [default: by the number of cores and shards]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub reactors: Option<u16>,
    /// Leave the series of each volume out of /metrics
    #[arg(long)]
    pub no_volume_metrics: bool,
    /// Stop cleanly when standard input ends: for programs that start a server and may die themselves
    #[arg(long)]
    pub stop_with_input: bool,
}

/// Reads a factor as percent.
fn overcommit_percent(text: &str) -> Result<u32, String> {
    match text.parse::<f64>() {
        Ok(factor) if (0.01..=1000.0).contains(&factor) => Ok((factor * 100.0).round() as u32),
        _ => Err("give a factor between 0.01 and 1000, such as 1.5".to_owned()),
    }
}

#[derive(Subcommand)]
pub enum Volume {
    /// Make a volume
    #[command(after_help = "Example:\n  coquina volume create disk --size 10G")]
    Create {
        /// 1 to 63 characters out of a-z, A-Z, 0-9, '.', '_' and '-', the first a letter or digit
        name: String,
        /// Size, such as 512M, 10G or 1.5TiB; rounded up to whole blocks of 4 KiB
        #[arg(long, value_parser = size, allow_hyphen_values = true)]
        size: u64,
    },
    /// List volumes with their live I/O
    #[command(after_help = "Example:\n  coquina volume list --json")]
    List(Interval),
    /// Show one volume
    #[command(after_help = "Example:\n  coquina volume info disk")]
    Info {
        /// Its name
        name: String,
    },
    /// Grow or shrink a volume. Shrinking loses the data beyond the new end and asks first
    #[command(
        after_help = "Examples:\n  coquina volume resize disk --size 20G\n  coquina volume resize disk --size 5G --yes"
    )]
    Resize {
        /// Its name
        name: String,
        /// The new size
        #[arg(long, value_parser = size, allow_hyphen_values = true)]
        size: u64,
        /// Shrink without asking
        #[arg(long, short)]
        yes: bool,
    },
    /// Give a volume another name
    #[command(after_help = "Example:\n  coquina volume rename disk old-disk")]
    Rename {
        /// Its name
        name: String,
        /// Its new name
        new_name: String,
    },
    /// Remove a volume and its data; asks first
    #[command(
        after_help = "Examples:\n  coquina volume remove disk\n  coquina volume remove disk --yes --force"
    )]
    Remove {
        /// Its name
        name: String,
        /// Remove it without asking
        #[arg(long, short)]
        yes: bool,
        /// Remove it although it has connections
        #[arg(long)]
        force: bool,
    },
}

/// How long to measure live I/O.
#[derive(Args)]
pub struct Interval {
    /// Measure live I/O for this many milliseconds
    #[arg(long, value_name = "MS", default_value_t = 200, value_parser = clap::value_parser!(u64).range(0..=10_000))]
    pub interval: u64,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  coquina status
  coquina status --watch
  coquina status --watch 5 --json
  coquina status --server 10.0.0.5:10810 --json
With --watch and --json each status is one line.")]
pub struct Status {
    #[command(flatten)]
    pub interval: Interval,
    /// Show it again and again until Ctrl-C, every so many seconds; live I/O is that of the time between
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1",
        value_parser = clap::value_parser!(u64).range(1..=10), conflicts_with = "interval")]
    pub watch: Option<u64>,
}

#[derive(Subcommand)]
pub enum Drive {
    /// Format a drive for the local folder's cluster, ahead of `coquina up --drive`
    #[command(
        after_help = "Examples:\n  coquina drive format /srv/drive1:100G\n  coquina drive format /dev/nvme1n1 --shards 2"
    )]
    Format {
        /// File or block device, with the size of a file to make
        #[arg(value_name = "PATH[:SIZE]")]
        drive: String,
        /// Shards: each has its own log and can use its own core
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
        shards: u32,
        /// Size of a segment [default: by the size of the drive]
        #[arg(long, value_parser = size, allow_hyphen_values = true)]
        segment: Option<u64>,
        /// Format it even if it holds something else. What it holds is lost
        #[arg(long)]
        force: bool,
    },
    /// List the drives of a running server
    #[command(after_help = "Examples:\n  coquina drive list\n  coquina drive list --json")]
    List,
    /// Forget a drive that no volume has data on, or give up one that is lost; asks first
    #[command(after_help = "\
Examples:
  coquina drive remove /dev/nvme1n1
  coquina drive remove 3f9a2c41 --yes
  coquina drive remove /srv/drive1 --lose-data     when it is missing: its volumes are removed with it
A drive that works goes only when no volume has data on it. What the drive itself holds is not erased: do not name it
with --drive again, unless it is to come back.")]
    Remove {
        /// Path, identity, or the beginning of its identity, as `coquina drive list` shows them
        drive: String,
        /// Give up what volumes have on it, if it is missing: those volumes are removed
        #[arg(long)]
        lose_data: bool,
        /// Remove it without asking
        #[arg(long, short)]
        yes: bool,
    },
    /// Show what a drive says about itself
    #[command(after_help = "Example:\n  coquina drive info ./coquina-data/drive0")]
    Info {
        /// File or block device
        path: PathBuf,
    },
    /// Read and check every block of a running server's drives, at a limited rate
    #[command(
        after_help = "Examples:\n  coquina drive scrub\n  coquina drive scrub --drive /dev/nvme1n1 --no-wait"
    )]
    Scrub {
        /// Path, identity, or the beginning of its identity [default: all drives]
        #[arg(long)]
        drive: Option<String>,
        /// Start it and return
        #[arg(long)]
        no_wait: bool,
    },
    /// Verify a stopped drive end to end and say what is wrong
    #[command(after_help = "Example:\n  coquina drive check ./coquina-data/drive0")]
    Check {
        /// File or block device
        path: PathBuf,
    },
}

#[derive(Subcommand)]
pub enum Bench {
    /// Generate load and show IOPS, latency and CPU per I/O
    Io(BenchIo),
    /// Repeat an experiment that decided the design; without a name, list them
    Experiment(BenchExperiment),
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  coquina bench experiment\n  coquina bench experiment durable-append --folder /srv"
)]
pub struct BenchExperiment {
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
    /// Where the load goes: volume:NAME, nbd:URI, file:PATH or device:PATH
    #[arg(long)]
    pub target: String,
    /// randwrite, randread, read, write, mix (70 % reads) or mix:PERCENT
    #[arg(long, default_value = "randwrite")]
    pub rw: String,
    /// Size of an operation
    #[arg(long, default_value = "4k", value_parser = size, allow_hyphen_values = true)]
    pub bs: u64,
    /// Operations in flight per job
    #[arg(long, default_value_t = 1)]
    pub depth: u32,
    /// Threads, each with its own connection
    #[arg(long, default_value_t = 1)]
    pub jobs: u32,
    /// Seconds that are measured
    #[arg(long, default_value_t = 10.0, value_parser = seconds, allow_hyphen_values = true)]
    pub runtime: f64,
    /// Seconds of load before
    #[arg(long, default_value_t = 1.0, value_parser = seconds, allow_hyphen_values = true)]
    pub warmup: f64,
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
    #[arg(long, value_name = "IOPS")]
    pub rate: Option<u64>,
    /// Offsets and payload follow from it
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write the whole range first
    #[arg(long)]
    pub fill: bool,
    /// Check every read, and read everything back at the end
    #[arg(long)]
    pub verify: bool,
    /// Report the CPU time of this process too; repeat it for more [default: the local server's]
    #[arg(long = "cpu-pid", value_name = "PID")]
    pub cpu_pids: Vec<u32>,
    /// Overwrite a block device without asking
    #[arg(long, short)]
    pub yes: bool,
}

/// Reads a number of seconds.
fn seconds(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('s').parse::<f64>() {
        Ok(seconds) if (0.0..=2_592_000.0).contains(&seconds) => Ok(seconds),
        _ => Err("give seconds between 0 and 2592000, such as 10 or 0.5".to_owned()),
    }
}

#[derive(Args)]
#[command(after_help = "Examples:\n  coquina demo\n  coquina demo --seconds 10 --json\n\
Nothing is left behind, also after Ctrl-C. Takes about 2 GiB of disk space while it runs.")]
pub struct Demo {
    /// Seconds of each measurement
    #[arg(long, default_value_t = 3.0, value_parser = seconds, allow_hyphen_values = true)]
    pub seconds: f64,
    /// Where to make the temporary folder [default: the system's, unless that is in memory]
    #[arg(long, value_name = "FOLDER")]
    pub folder: Option<PathBuf>,
    /// Operations in flight
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub depth: u32,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn check(command: &clap::Command) {
        let name = command.get_name();
        let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        assert!(after.contains("Example") && after.contains("coquina"), "{name} has no example");
        assert!(command.get_about().is_some(), "{name} does not say what it does");
        command.get_subcommands().for_each(check);
    }

    #[test]
    fn every_command_says_what_it_does_with_an_example() {
        Arguments::command().debug_assert();
        check(&Arguments::command());
    }
}
