//! What the command line takes, with examples.

mod bench;
mod doctor;
mod drive;
mod experiment;
mod help;
mod server;
mod volume;

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use coquina_base::{BUSY_POLL_NS, parse_size_bytes};

pub use bench::{Bench, BenchDesign, BenchIo};
pub use doctor::Doctor;
pub use drive::Drive;
pub use experiment::{BenchCompare, BenchList, BenchRun, BenchShow, BenchTune, Measured};
pub use server::{
    BindCpu, Domains, Nbd, Node, NodeCommand, NodeStart, Running, StoreArguments, Threads, Tuning, Up,
    processors_allowed,
};
pub use volume::{Pool, Volume};

/// How long a thread looks for the next event before it sleeps.
#[derive(Args, Clone, Copy)]
pub struct BusyPoll {
    /// Most microseconds that a thread looks for the next event before it sleeps, where events came that soon of late; it gives
    /// the processor to whoever wants it meanwhile; 0 is never
    #[arg(long, value_name = "N", value_parser = whole::<u32>(0..=100_000), allow_hyphen_values = true)]
    #[arg(default_value_t = BUSY_POLL_US, env = "COQUINA_BUSY_POLL_US", hide_env_values = true)]
    pub busy_poll_us: u32,
}

impl Default for BusyPoll {
    fn default() -> Self {
        BusyPoll { busy_poll_us: BUSY_POLL_US }
    }
}

impl BusyPoll {
    /// The same in nanoseconds.
    pub fn limit_ns(self) -> u64 {
        u64::from(self.busy_poll_us) * 1_000
    }
}

const BUSY_POLL_US: u32 = (BUSY_POLL_NS / 1_000) as u32;

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
  coquina up --nodes 3 --copies 3          the same with three nodes, each a process of its own
  coquina volume create disk --size 10G    make a volume; reach it as nbd://127.0.0.1:10809/disk
  coquina status                           see how the server is"
)]
pub struct Arguments {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

impl Arguments {
    /// What this process was started with. Wrong usage, and who asks for help, is answered here.
    pub fn read() -> Arguments {
        let command = help::with_whole_examples(Arguments::command());
        let read = Arguments::from_arg_matches(&command.clone().get_matches());
        read.unwrap_or_else(|error| error.format(&mut command.clone()).exit())
    }
}

/// Options that would stand between a command's own ones.
const HEADING_OF_ALL: &str = "Options of every command";

/// What every command takes.
#[derive(Args)]
pub struct Global {
    /// Folder of the local server
    #[arg(long, global = true, env = "COQUINA_DIR", default_value = "./coquina-data", value_name = "DIR")]
    #[arg(help_heading = HEADING_OF_ALL)]
    pub dir: PathBuf,
    /// HTTP address of a remote server, instead of the local one
    #[arg(long, global = true, value_name = "HOST:PORT", value_parser = server, help_heading = HEADING_OF_ALL)]
    pub server: Option<String>,
    /// Print JSON with stable fields
    #[arg(long, global = true, help_heading = HEADING_OF_ALL)]
    pub json: bool,
}

#[derive(Subcommand)]
pub enum Command {
    /// Start a server; makes what is missing. Ctrl-C stops it cleanly
    Up(Up),
    /// Start a node of a cluster whose map is in etcd; list and remove nodes
    Node(Box<Node>),
    /// Serve the cluster's volumes over NBD, from any host
    Nbd(Nbd),
    /// Make, list and remove pools: volumes with the same number of copies
    #[command(
        subcommand,
        after_help = "Examples:\n  coquina pool create safe --copies 3 --domain host\n  coquina pool list"
    )]
    Pool(Pool),
    /// Make, list, change and remove volumes
    #[command(
        subcommand,
        after_help = "Examples:\n  coquina volume create disk --size 10G\n  coquina volume list"
    )]
    Volume(Volume),
    /// Show the cluster's health, nodes, drives, placement groups, data, live I/O and recovery
    Status(Status),
    /// Show what the drives hold and what the volumes may take
    #[command(after_help = "Examples:\n  coquina df\n  coquina df --json")]
    Df,
    /// Format, add, list, inspect, scrub, check, weigh and remove drives
    #[command(
        subcommand,
        after_help = "Examples:\n  coquina drive list\n  coquina drive format /srv/drive1:100G"
    )]
    Drive(Drive),
    /// Check this host against the advice for storage: what to change, why, and how
    Doctor(Doctor),
    /// Measure
    #[command(
        subcommand,
        after_help = "Examples:\n  coquina bench io --target volume:disk --rw randwrite --depth 128\n  coquina bench run curve-vs-ceph --quick\n  coquina bench list"
    )]
    Bench(Bench),
    /// Start nodes in a temporary folder, load them, kill them, and verify every acknowledged write
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

/// How long to measure live I/O.
#[derive(Args)]
pub struct Interval {
    /// Measure live I/O for this many milliseconds
    #[arg(long, value_name = "MS", default_value_t = 200, value_parser = whole::<u64>(0..=10_000), allow_negative_numbers = true)]
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
    /// Show it again and again until Ctrl-C, every so many seconds, 1 to 10; live I/O is that of the time between
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "1",
        value_parser = whole::<u64>(1..=10), allow_negative_numbers = true, conflicts_with = "interval")]
    pub watch: Option<u64>,
}

/// Reads a whole number within a range.
fn whole<T>(range: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: FromStr + PartialOrd + Display + Clone,
{
    move |text| match text.parse::<T>() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => Err(format!("give a whole number from {} to {}", range.start(), range.end())),
    }
}

/// Reads the address of a server; only a look-up tells whether there is such a host.
fn server(text: &str) -> Result<String, String> {
    let address = text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/');
    match address.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(text.to_owned()),
        _ => Err("write it like 10.0.0.5:10810".to_owned()),
    }
}

/// Reads a number of seconds.
fn seconds(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('s').parse::<f64>() {
        Ok(seconds) if (0.0..=2_592_000.0).contains(&seconds) => Ok(seconds),
        _ => Err("give seconds between 0 and 2592000, such as 10 or 0.5".to_owned()),
    }
}

#[derive(Args)]
#[command(
    after_help = "Examples:\n  coquina demo\n  coquina demo --seconds 10 --json\n  coquina demo --nodes 1\n\
Nothing is left behind, also after Ctrl-C. Takes about 1 GiB of disk space for each node while it runs."
)]
pub struct Demo {
    /// Nodes, each a process of its own with a copy of everything; 1 shows a single server
    #[arg(long, value_name = "N", default_value_t = 3, allow_negative_numbers = true, value_parser = whole::<u16>(1..=8))]
    pub nodes: u16,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 3.0, value_parser = seconds, allow_hyphen_values = true)]
    pub seconds: f64,
    /// Where to make the temporary folder [default: the system's, unless that is in memory]
    #[arg(long, value_name = "FOLDER")]
    pub folder: Option<PathBuf>,
    /// Operations in flight
    #[arg(long, default_value_t = 64, value_parser = whole::<u32>(1..=1024), allow_negative_numbers = true)]
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
