//! What starts processes that serve: `coquina up`, `coquina node` and `coquina nbd`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use coquina_base::check_name;
use rustix::thread::{CpuSet, sched_getaffinity};

use super::{BusyPoll, size, whole};

/// Most nodes of one `coquina up`.
const NODES_MAX: u16 = 64;

#[derive(Args)]
#[command(after_help = "\
Examples:
  coquina up
  coquina up --nodes 3 --copies 3
  coquina up --dir /srv/coquina --drive /srv/coquina/drive0:100G --drive /dev/nvme1n1
  coquina up --nbd 127.0.0.1:10809 --nbd unix:/run/coquina.sock --overcommit 1.5
Drives given once are remembered, and the number of nodes too. Log messages go to standard error; COQUINA_LOG=debug
shows more.")]
pub struct Up {
    /// Nodes, each a process of its own if there are several, so that one can fail alone [default: as before, or 1]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<u16>(1..=NODES_MAX))]
    pub nodes: Option<u16>,
    /// Copies of each block in the first pool [default: 1 on one node, else one on each node, up to 3]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole::<u32>(1..=8))]
    pub copies: Option<u32>,
    /// File or block device, with the size of a file to make; repeat it for more. Several nodes take turns
    /// [default: DIR/drive0:16G, or DIR/nodeK/drive0 for each of several nodes]
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
    /// Address of the native protocol; that of the first of several nodes
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:10811")]
    pub listen: String,
    /// Volume sizes, times copies, may add up to this many times the capacity; remembered [default: 1.0]
    #[arg(long, value_name = "FACTOR", value_parser = overcommit_percent, allow_hyphen_values = true)]
    pub overcommit: Option<u32>,
    #[command(flatten)]
    pub tuning: Tuning,
    #[command(flatten)]
    pub running: Running,
}

/// How much of the host a process may take.
#[derive(Args, Clone, Default)]
pub struct Tuning {
    /// Most memory for the index of all drives of a node
    #[arg(long, value_name = "SIZE", value_parser = size, allow_hyphen_values = true)]
    pub index_memory: Option<u64>,
    /// Most memory for the block cache of a node, with the frames that its cleaner keeps to read less
    #[arg(long, value_name = "SIZE", value_parser = size, allow_hyphen_values = true)]
    pub cache_memory: Option<u64>,
    /// How much of each drive file is zeroed ahead of use while the drive is idle; 0 only just ahead of the log
    #[arg(long, value_name = "SIZE", value_parser = size, allow_hyphen_values = true, env = "COQUINA_ZERO_AHEAD")]
    #[arg(default_value = "16G", hide_env_values = true)]
    pub zero_ahead: u64,
    /// Let clients and nodes of the same host use TCP too, instead of a Unix socket that costs them less
    #[arg(long)]
    pub tcp_only: bool,
    #[command(flatten)]
    pub threads: Threads,
    /// When threads with drives bind themselves to processors. auto: one that serves NBD clients, to that of the drives' interrupts;
    /// those of several nodes of `up`, to one each while much is asked of them. never. Or numbers of processors, such as 0 or 2,3: one for
    /// each thread, while much is asked of it
    #[arg(long, value_name = "WHEN", value_parser = bind_cpu, default_value = "auto")]
    pub bind_cpu: BindCpu,
}

/// The part of it that concerns a process without drives, too.
#[derive(Args, Clone, Default)]
pub struct Threads {
    #[command(flatten)]
    pub busy_poll: BusyPoll,
    /// Number of reactor threads of a process [default: by the number of cores and shards]
    #[arg(long, value_name = "N", value_parser = whole::<u16>(1..=1024), allow_negative_numbers = true)]
    pub reactors: Option<u16>,
}

/// When threads bind themselves to processors.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum BindCpu {
    /// As it seems best.
    #[default]
    Auto,
    /// Not at all.
    Never,
    /// The first thread to the first of these, and so on.
    To(Vec<u32>),
}

fn bind_cpu(text: &str) -> Result<BindCpu, String> {
    match text {
        "auto" => return Ok(BindCpu::Auto),
        "never" => return Ok(BindCpu::Never),
        _ => (),
    }
    let cpus: Result<Vec<u32>, _> = text.split(',').map(|number| number.trim().parse()).collect();
    let cpus =
        cpus.map_err(|_| "neither auto, never nor numbers of processors, such as 0 or 2,3".to_owned())?;
    let twice = cpus.iter().enumerate().find(|(at, cpu)| cpus[..*at].contains(cpu));
    if let Some((_, cpu)) = twice {
        return Err(format!("processor {cpu} is named twice"));
    }
    let allowed = processors_allowed();
    match cpus.iter().find(|cpu| !allowed.contains(cpu)) {
        Some(cpu) => {
            let allowed: Vec<String> = allowed.iter().map(u32::to_string).collect();
            Err(format!("this process may not run on processor {cpu}, but on {}", allowed.join(", ")))
        }
        None => Ok(BindCpu::To(cpus)),
    }
}

/// The processors on which this process may run.
pub fn processors_allowed() -> Vec<u32> {
    let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU as u32).filter(|cpu| set.is_set(*cpu as usize)).collect()
}

/// How a process runs.
#[derive(Args, Clone, Default)]
pub struct Running {
    /// Listen on addresses that other hosts can reach, although nothing asks anybody who they are: for networks
    /// that you trust
    #[arg(long)]
    pub insecure: bool,
    /// Leave the series of each volume out of /metrics
    #[arg(long)]
    pub no_volume_metrics: bool,
    /// Stop cleanly when standard input ends: for programs that start a server and may die themselves
    #[arg(long)]
    pub stop_with_input: bool,
}

/// Where the cluster's map is kept.
#[derive(Args, Clone, Default)]
pub struct StoreArguments {
    /// A member of etcd, such as http://10.0.0.1:2379; repeat it for more
    #[arg(long = "etcd", value_name = "URL", required_unless_present = "store_folder")]
    pub etcd: Vec<String>,
    /// User of etcd
    #[arg(long, value_name = "USER", requires_all = ["etcd", "etcd_password_file"])]
    pub etcd_user: Option<String>,
    /// File with the user's password
    #[arg(long, value_name = "FILE", requires = "etcd_user")]
    pub etcd_password_file: Option<PathBuf>,
    /// File with the certificates of the authorities that signed etcd's, for https
    #[arg(long, value_name = "FILE", requires = "etcd")]
    pub etcd_ca: Option<PathBuf>,
    /// File with this client's certificate, if etcd wants one
    #[arg(long, value_name = "FILE", requires_all = ["etcd", "etcd_key", "etcd_ca"])]
    pub etcd_cert: Option<PathBuf>,
    /// File with the key of the certificate
    #[arg(long, value_name = "FILE", requires = "etcd_cert")]
    pub etcd_key: Option<PathBuf>,
    /// Folder with address and token of the store that `coquina up` serves to its nodes
    #[arg(long, value_name = "DIR", hide = true, conflicts_with = "etcd")]
    pub store_folder: Option<PathBuf>,
}

#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "\
Examples:
  coquina node --name a --dir /srv/a --listen 10.0.0.1:10811 --http 10.0.0.1:10810 --drive /dev/nvme1n1 --etcd http://10.0.0.1:2379 --etcd http://10.0.0.2:2379 --domain host=a,rack=1 --insecure
  coquina node --name b --dir /srv/b --listen 127.0.0.1:20811 --http 127.0.0.1:20810 --drive /srv/b/drive0:10G --etcd http://127.0.0.1:2379
  coquina node list
  coquina node remove a
The first node makes the cluster. Drives given once are remembered."
)]
pub struct Node {
    #[command(subcommand)]
    pub command: Option<NodeCommand>,
    #[command(flatten)]
    pub start: NodeStart,
}

#[derive(Args)]
pub struct NodeStart {
    /// Name of the node, unlike that of any other
    #[arg(long, required = true)]
    pub name: Option<String>,
    /// Address for clients and for other nodes, as they reach it
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:10811")]
    pub listen: String,
    /// Address of the REST interface and the metrics, as other nodes reach it
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:10810")]
    pub http: String,
    /// File or block device, with the size of a file to make; repeat it for more
    #[arg(long = "drive", value_name = "PATH[:SIZE]")]
    pub drives: Vec<String>,
    /// Format drives even if they hold something else. What they hold is lost
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub store: StoreArguments,
    /// What fails together with this node: LABEL=VALUE, such as host=a,rack=1 [default: host=NAME-OF-THE-HOST]
    #[arg(long, value_name = "LABEL=VALUE,...", value_parser = domains)]
    pub domain: Option<Domains>,
    /// Serve NBD too, at HOST:PORT or unix:PATH; repeat it for more
    #[arg(long = "nbd", value_name = "ADDR")]
    pub nbd: Vec<String>,
    #[command(flatten)]
    pub tuning: Tuning,
    #[command(flatten)]
    pub running: Running,
    /// Volume sizes, times copies, may add up to this many times the capacity; remembered by the cluster [default: 1.0]
    #[arg(long, value_name = "FACTOR", value_parser = overcommit_percent, allow_hyphen_values = true)]
    pub overcommit: Option<u32>,
    /// Never be the coordinator
    #[arg(long, hide = true)]
    pub no_coordinator: bool,
}

#[derive(Subcommand)]
pub enum NodeCommand {
    /// List the nodes of the cluster
    #[command(
        after_help = "Examples:\n  coquina node list\n  coquina node list --server 10.0.0.1:10810 --json"
    )]
    List,
    /// Move the data of a node to others, then forget the node; asks first
    #[command(after_help = "\
Examples:
  coquina node remove a
  coquina node remove a --yes --no-wait
  coquina node remove a --lost     when it never comes back: its copies are made anew elsewhere
Refused where the others could not keep the copies apart, or where it has the last good copy of something.")]
    Remove {
        /// Its name or identity
        node: String,
        /// It is gone for good: do not wait for it, and do not take its drives back
        #[arg(long)]
        lost: bool,
        /// Let it stay after all, if its data is still being moved away
        #[arg(long, conflicts_with = "lost")]
        cancel: bool,
        /// Remove it without asking
        #[arg(long, short)]
        yes: bool,
        /// Start it and return
        #[arg(long)]
        no_wait: bool,
    },
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  coquina nbd --etcd http://10.0.0.1:2379 --listen 127.0.0.1:10809
  coquina nbd --etcd http://10.0.0.1:2379 --listen unix:/run/coquina/nbd.sock --dir /run/coquina
Any number of these may serve the same volumes at once.")]
pub struct Nbd {
    #[command(flatten)]
    pub store: StoreArguments,
    /// Address to serve NBD at: HOST:PORT or unix:PATH; repeat it for more [default: 127.0.0.1:10809]
    #[arg(long = "listen", value_name = "ADDR")]
    pub listen: Vec<String>,
    /// Address of the REST interface and the metrics
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:10810")]
    pub http: String,
    #[command(flatten)]
    pub threads: Threads,
    #[command(flatten)]
    pub running: Running,
}

/// Failure domains by label.
pub type Domains = BTreeMap<String, String>;

/// Reads `LABEL=VALUE,LABEL=VALUE`.
fn domains(text: &str) -> Result<Domains, String> {
    let mut domains = Domains::new();
    for part in text.split(',') {
        let (label, value) = part
            .split_once('=')
            .filter(|(label, value)| !label.is_empty() && !value.is_empty())
            .ok_or_else(|| format!("{part:?} is not a domain; write it like host=a,rack=1"))?;
        for name in [label, value] {
            check_name(name).map_err(|error| format!("{part:?} is not a domain: {error}"))?;
        }
        if matches!(label, "drive" | "node") {
            return Err(format!(
                "{label:?} is a domain by itself; label what nodes share, such as host or rack"
            ));
        }
        if domains.insert(label.to_owned(), value.to_owned()).is_some() {
            return Err(format!("{label:?} is given twice; a node is in one {label} only"));
        }
    }
    Ok(domains)
}

/// Reads a factor as percent.
fn overcommit_percent(text: &str) -> Result<u32, String> {
    match text.parse::<f64>() {
        Ok(factor) if (0.01..=1000.0).contains(&factor) => Ok((factor * 100.0).round() as u32),
        _ => Err("give a factor between 0.01 and 1000, such as 1.5".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_are_labels_with_values() {
        let read = domains("host=a,rack=1").unwrap();
        assert_eq!(read, Domains::from([("host".into(), "a".into()), ("rack".into(), "1".into())]));
        for bad in ["", "host", "host=", "=a", "host=a,", "host=a,host=b", "node=a", "drive=x"] {
            assert!(domains(bad).is_err(), "{bad}");
        }
        // No such names can be recorded.
        for bad in ["a/b=1", "host=a b", "host=a=b"] {
            assert!(domains(bad).is_err(), "{bad}");
        }
    }
}
