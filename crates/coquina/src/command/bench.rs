//! `coquina bench ...`

use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use coquina_base::{NodeId, format_least_size_bytes, format_size_bytes};
use coquina_bench::{
    Hooks, IoBenchConfig, IoReport, Phase, Progress as BenchProgress, TargetSpec, format_count, format_ns,
    remove_objects, run_io,
};
use coquina_control::{Client, api};

use super::connect::{client, native_addresses};
use super::{bench_list, design, experiment};
use crate::arguments::{Bench, BenchIo, Global};
use crate::error::CliError;
use crate::output::{self, print, print_json};
use crate::progress::Progress;
use crate::signal;

/// Longest time for a given number of bytes.
const BYTES_TIME_S_MAX: f64 = 7.0 * 86_400.0;

pub fn run(global: &Global, command: &Bench) -> Result<(), CliError> {
    match command {
        Bench::Io(arguments) => io(global, arguments),
        Bench::Run(arguments) => experiment::run(global, arguments),
        Bench::Tune(arguments) => experiment::tune(global, arguments),
        Bench::List(arguments) => bench_list::run(global, arguments),
        Bench::Show(arguments) => experiment::show(global, arguments),
        Bench::Compare(arguments) => experiment::compare(global, arguments),
        Bench::Design(arguments) => design::run(global, arguments),
    }
}

fn io(global: &Global, arguments: &BenchIo) -> Result<(), CliError> {
    // What is wrong whatever the server says comes before it is looked for.
    let workload = arguments.rw.parse()?;
    let server = server_of(global, &arguments.target)?;
    let config = IoBenchConfig { workload, ..config(global, arguments, server.as_ref())? };
    config.check()?;
    if arguments.remove && !matches!(config.target, TargetSpec::Rados { .. }) {
        return Err(CliError::usage("--remove: only whole objects are removed; name rados:POOL/PREFIX"));
    }
    check_range(&config)?;
    if let TargetSpec::Device { path } = &config.target {
        check_device(path)?;
    }
    if let TargetSpec::Device { path } | TargetSpec::File { path } = &config.target
        && config.is_destructive()
    {
        check_unused(path)?;
        confirm_overwriting(path, arguments.yes)?;
    }
    let stop = signal::stop_flag(2, || {})?;
    if arguments.remove {
        return Ok(remove_objects(&config, &stop)?);
    }
    let progress = Progress::new("bench");
    let mut written = server.as_ref().map(|server| Written::new(&server.client));
    let mut probe = || written.as_mut()?.bytes();
    let mut show = |state: &BenchProgress| show_progress(&progress, "bench", state);
    let hooks = Hooks {
        progress: &mut show,
        stop: &stop,
        drive_write_bytes: if server.is_some() { Some(&mut probe) } else { None },
    };
    let outcome = run_io(&config, hooks);
    drop(progress);
    let report = outcome?.report;
    if global.json {
        print_json(&report)?
    } else {
        print(&report.to_table())?
    }
    finish(&report)
}

/// The server that serves a target.
struct Server {
    client: Client,
    status: api::Status,
}

/// The server of a volume, or of an NBD export, if that is one of this program: it has been named, or listens there. Its processes and
/// drives say nothing of what another one serves.
fn server_of(global: &Global, target: &str) -> Result<Option<Server>, CliError> {
    let is_volume = target.starts_with("volume:");
    let is_needed = is_volume || global.server.is_some();
    let client = match client(global) {
        Ok(client) => client,
        Err(error) if is_needed => return Err(error),
        Err(_) => return Ok(None),
    };
    let target = TargetSpec::parse(target, Some(""))?;
    if !matches!(target, TargetSpec::Volume { .. } | TargetSpec::Nbd { .. }) {
        return Ok(None);
    }
    match client.status(0) {
        Ok(status) if is_needed || target.is_export_at(&status.services.nbd) => {
            Ok(Some(Server { client, status }))
        }
        Err(error) if is_needed => Err(error.into()),
        _ => Ok(None),
    }
}

/// What a cluster has written to its drives, as long as its nodes go on counting: one that is started again begins with 0.
struct Written<'a> {
    client: &'a Client,
    since: Option<(Instant, Vec<NodeId>)>,
}

impl<'a> Written<'a> {
    fn new(client: &'a Client) -> Self {
        Written { client, since: None }
    }

    /// Bytes; `None` if a node does not answer that did, or the reverse, or was started since this was first asked.
    fn bytes(&mut self) -> Option<u64> {
        let asked = Instant::now();
        let status = self.client.status(0).ok()?;
        let answering = || status.nodes.iter().filter_map(|node| Some((node.id, node.uptime_ns?)));
        let mut nodes: Vec<NodeId> = answering().map(|(node, _)| node).collect();
        nodes.sort_unstable();
        let (since, before) = self.since.get_or_insert_with(|| (asked, nodes.clone()));
        let counted_ns = asked.duration_since(*since).as_nanos();
        if *before != nodes || answering().any(|(_, uptime_ns)| u128::from(uptime_ns) < counted_ns) {
            return None;
        }
        Some(drive_write_bytes(&self.client.drives().ok()?))
    }
}

fn config(global: &Global, arguments: &BenchIo, server: Option<&Server>) -> Result<IoBenchConfig, CliError> {
    let native = server.map(|server| native_addresses(&server.client, &server.status));
    let target = TargetSpec::parse(&arguments.target, native.as_deref())?;
    let mut config = IoBenchConfig::new(target);
    config.block_bytes = u32::try_from(arguments.bs)
        .map_err(|_| CliError::usage(format!("--bs {} is too large; the most is 16M", arguments.bs)))?;
    config.depth = arguments.depth;
    config.jobs = arguments.jobs;
    let runtime_s =
        arguments.runtime.unwrap_or(if arguments.bytes.is_some() { BYTES_TIME_S_MAX } else { 10.0 });
    config.runtime = Duration::from_secs_f64(runtime_s);
    config.end_after_bytes = arguments.bytes;
    config.baseline = Duration::from_secs_f64(arguments.baseline);
    let warmup_s = arguments.warmup.unwrap_or(if arguments.bytes.is_some() { 0.0 } else { 1.0 });
    config.warmup = Duration::from_secs_f64(warmup_s);
    config.start_at_ns = arguments.start_at;
    config.size_bytes = arguments.size.unwrap_or(0);
    if arguments.size == Some(0) {
        return Err(CliError::usage(
            "--size 0 leaves nothing to work on; leave it out to use all of the target",
        ));
    }
    if arguments.bytes == Some(0) {
        return Err(CliError::usage("--bytes 0 is no load; leave it out to measure for --runtime"));
    }
    let is_gone = |pid: &&u32| !Path::new("/proc").join(pid.to_string()).exists();
    if let Some(pid) = arguments.cpu_pids.iter().find(is_gone) {
        return Err(CliError::usage(format!("--cpu-pid {pid}: there is no such process")));
    }
    config.offset_bytes = arguments.offset;
    config.durable = arguments.durable;
    config.busy_poll_ns = arguments.busy_poll.limit_ns();
    config.rate_iops = arguments.rate;
    config.seed = arguments.seed.unwrap_or_else(another_seed);
    config.fill = arguments.fill;
    config.verify = arguments.verify;
    config.cpu_pids.clone_from(&arguments.cpu_pids);
    let local = server.filter(|server| server.client.address().ip().is_loopback());
    if let (true, Some(server)) = (config.cpu_pids.is_empty(), local) {
        let process = server.status.node.process;
        config.cpu_pids.push(process);
        // A supervisor has a process for each of its nodes.
        if global.server.is_none() {
            let nodes = coquina_experiments::target::nodes_of(&global.dir);
            config.cpu_pids.extend(nodes.into_iter().filter(|pid| *pid != process));
        }
    }
    Ok(config)
}

/// Another one each time, by the clock: the same order of overwrites again empties whole segments of a full drive, and it seems to
/// need no cleaner. Of 12 digits, to be typed again.
fn another_seed() -> u64 {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (clock.as_micros() % 1_000_000_000_000) as u64
}

/// Refuses a size that is too small, before a file of that size is made.
fn check_range(config: &IoBenchConfig) -> Result<(), CliError> {
    let (block, size, least) = (config.block_bytes, config.size_bytes, config.range_bytes_min());
    if size > 0 && size < least {
        return Err(CliError::usage(format!(
            "--size {} is too small for {} job(s) at depth {} with operations of {}; give {} at least",
            format_size_bytes(size),
            config.jobs,
            config.depth,
            format_size_bytes(u64::from(block)),
            format_least_size_bytes(least)
        )));
    }
    Ok(())
}

/// Refuses what is no device, before anybody is asked whether it may be overwritten.
fn check_device(path: &Path) -> Result<(), CliError> {
    let metadata = std::fs::metadata(path).map_err(|error| CliError::io("look at", path, &error))?;
    if metadata.file_type().is_block_device() {
        return Ok(());
    }
    Err(CliError::failed(format!("{} is no block device; use file:PATH for a file", path.display())))
}

/// Who opens a device alone is not told of loop devices in front of it, nor of a file's use.
fn check_unused(path: &Path) -> Result<(), CliError> {
    match coquina_experiments::target::users_of(path).as_slice() {
        [] => Ok(()),
        users => {
            let (path, users) = (path.display(), users.join(", "));
            Err(CliError::failed(format!("{path} is in use: {users}; unmount or free it first")))
        }
    }
}

/// Asks before a device, or a file that holds anything, is overwritten. A file that is a Coquina drive is refused.
fn confirm_overwriting(path: &Path, yes: bool) -> Result<(), CliError> {
    let Ok(metadata) = std::fs::metadata(path) else { return Ok(()) };
    let drive = coquina_node::drive::info(path).ok().map(|found| found.drive);
    let shown = path.display();
    match drive {
        Some(drive) if metadata.is_file() => Err(CliError::failed(format!(
            "{shown} is the Coquina drive {drive}, and would be overwritten; name another file, or delete this one if nothing on it \
             is needed"
        ))),
        Some(drive) => output::confirm(&format!("the Coquina drive {drive} on {shown} is overwritten"), yes),
        None if metadata.is_file() && metadata.len() == 0 => Ok(()),
        None => output::confirm(&format!("the data on {shown} is overwritten"), yes),
    }
}

/// Bytes that a server wrote to its drives, prewriting included.
pub fn drive_write_bytes(list: &api::DriveList) -> u64 {
    let shards = list.drives.iter().flat_map(|drive| &drive.shards);
    shards.map(|shard| shard.stats.drive_write_bytes + shard.stats.prewrite_bytes).sum()
}

/// Shows the state of a run.
pub fn show_progress(progress: &Progress, title: &str, state: &BenchProgress) {
    let bandwidth = format!("{}/s", format_size_bytes(state.bytes_per_s as u64));
    let message = match state.phase {
        Phase::WarmUp | Phase::Measure => {
            format!(
                "{} IOPS, {bandwidth}, mean {}",
                format_count(state.iops),
                format_ns(state.latency_ns_mean)
            )
        }
        Phase::Fill | Phase::Verify => bandwidth,
        Phase::Baseline => String::new(),
    };
    progress.set(&format!("{title}: {}", state.phase), state.fraction, message);
}

/// A run that found wrong data, or that ended early, is not a success.
fn finish(report: &IoReport) -> Result<(), CliError> {
    if let Some(found) = &report.verify
        && found.mismatches > 0
    {
        return Err(CliError::failed(format!("{} block(s) hold wrong data", found.mismatches)));
    }
    if report.errors > 0 {
        let first = report.first_error.as_deref().unwrap_or("unknown");
        return Err(CliError::failed(format!(
            "{} operation(s) failed, the first with: {first}",
            report.errors
        )));
    }
    match &report.interrupted {
        Some(reason) => Err(CliError::failed(format!("the run ended early: {reason}"))),
        // At a low rate none may be due.
        None if report.total.operations == 0 && report.config.rate_iops.is_none() => Err(CliError::failed(
            "nothing was done in the measured time: the target takes longer for one operation; give it more with --runtime",
        )),
        None => Ok(()),
    }
}
