//! `coquina demo`: nodes, load, a node that is killed and comes back, then all of them killed, a restart, and proof that
//! nothing acknowledged was lost.
//!
//! Server and nodes are processes of their own, reached through the real NBD port. The volume has three parts: the first
//! is loaded and measured, the second is under load when a node is killed, the third when everything is killed; after
//! the restart every block of all parts must hold its newest acknowledged write, or a newer one that was under way. The
//! same load on a plain file in the same folder gives the figures beside.

mod failover;
mod folder;
mod report;
mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use coquina_bench::{
    DriveProbe, Findings, Hooks, IoBenchConfig, IoOutcome, Phase, Progress as BenchProgress, TargetSpec,
    Workload, run_io, verify_ledger,
};
use coquina_control::api;

use self::folder::DemoFolder;
use self::report::{DemoReport, KillReport, Measured};
use self::server::{Server, Shape};
use super::bench::{drive_write_bytes, show_progress};
use crate::arguments::{Demo, Global};
use crate::error::CliError;
use crate::output::{print, print_json};
use crate::progress::Progress;
use crate::signal;

/// Each part of the volume is loaded on its own.
const PART_BYTES: u64 = 128 << 20;
const PARTS: u64 = 3;
const DRIVE_BYTES: u64 = 768 << 20;
const VOLUME_NAME: &str = "demo";
/// Long enough to write the drive of a node once on all but the slowest disks; nodes share the disk.
const WRITE_ONCE: Duration = Duration::from_millis(2000);
const WRITE_ONCE_BLOCK_BYTES: u32 = 512 << 10;
/// Load before the kill.
const KILL_AFTER: Duration = Duration::from_millis(1500);

/// The signal that ends the demo without cleaning up, should that hang.
const FORCE_AT: u32 = 5;

/// Longest wait until all copies are where they should be.
const HEALTHY_TIME_MAX: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(50);

/// What all steps share.
struct Stage<'a> {
    demo: &'a Demo,
    folder: &'a DemoFolder,
    stop: Arc<AtomicBool>,
    progress: Progress,
}

pub fn run(global: &Global, demo: &Demo) -> Result<(), CliError> {
    if global.server.is_some() {
        return Err(CliError::usage("the demo starts a server of its own; --server has no meaning for it"));
    }
    if demo.seconds < 0.5 {
        return Err(CliError::usage("--seconds is at least 0.5 for the demo"));
    }
    let folder = DemoFolder::make(demo.folder.as_deref(), DRIVE_BYTES * u64::from(demo.nodes) + PART_BYTES)?;
    // An impatient second Ctrl-C must not leave the server and its files behind.
    let stop = signal::stop_flag(FORCE_AT, || {})?;
    let stage = Stage { demo, folder: &folder, stop, progress: Progress::new("demo") };
    let result = stage.play();
    let interrupted = stage.stop.load(Ordering::Relaxed);
    drop(stage);
    let report = cleaned_up(result, interrupted, folder.remove())?;
    if global.json {
        print_json(&report)?
    } else {
        print(&report.to_string())?
    }
    if report.lost_writes() > 0 {
        return Err(CliError::failed(format!("{} acknowledged write(s) were lost", report.lost_writes())));
    }
    Ok(())
}

/// What is told in the end. That the folder stays is not all of it if something failed before.
fn cleaned_up<T>(
    result: Result<T, CliError>,
    interrupted: bool,
    removed: Result<(), CliError>,
) -> Result<T, CliError> {
    match (result, removed) {
        (Err(_), Ok(())) if interrupted => Err(CliError::failed("stopped; everything was cleaned up")),
        (Err(_), Err(left)) if interrupted => Err(left),
        (Err(error), Err(left)) => Err(CliError::failed(format!("{error}\n{left}"))),
        (result, removed) => removed.and(result),
    }
}

impl Stage<'_> {
    fn play(&self) -> Result<DemoReport, CliError> {
        let plain = self.plain_file()?;
        self.note("starting the server");
        let shape = Shape { nodes: self.demo.nodes, drive_bytes: DRIVE_BYTES };
        let mut server = Server::start(self.folder, shape)?;
        let size_bytes = PARTS * PART_BYTES;
        let request = api::CreateVolume { name: VOLUME_NAME.to_owned(), size_bytes, ..Default::default() };
        server.client()?.create_volume(&request)?;
        self.wait_until_healthy(&server)?;
        self.write_once(&server)?;
        let measured = self.measure(&server)?;
        let failover = if self.demo.nodes > 1 { Some(self.fail_over(&server)?) } else { None };
        let killed = self.load_and_kill(&mut server)?;

        self.note("starting the server again");
        let restart = Instant::now();
        let server = Server::start(self.folder, shape)?;
        let restart_ns = u64::try_from(restart.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let mut findings = Vec::new();
        let loads = [Some(&measured), failover.as_ref().map(|(load, _)| load), Some(&killed)];
        for load in loads.into_iter().flatten() {
            findings.push(self.verify(&server, load)?);
        }
        server.stop()?;
        Ok(DemoReport {
            nodes: self.demo.nodes,
            plain_file: Measured::of(&plain.report),
            coquina: Measured::of(&measured.outcome.report),
            failover: failover.map(|(_, report)| report),
            kill: KillReport::new(&killed.outcome, restart_ns, &findings),
        })
    }

    /// Waits until every placement group has all its copies.
    fn wait_until_healthy(&self, server: &Server) -> Result<(), CliError> {
        self.note("waiting for all copies");
        let client = server.client()?;
        let begin = Instant::now();
        loop {
            let status = client.status(0)?;
            if failover::is_whole(&status) {
                return Ok(());
            }
            if self.stop.load(Ordering::Relaxed) {
                return Err(CliError::failed("stopped"));
            }
            if begin.elapsed() > HEALTHY_TIME_MAX {
                let said: Vec<_> = status.health.entries.iter().map(|entry| entry.message.clone()).collect();
                return Err(CliError::failed(format!("not all copies are there: {}", said.join("; "))));
            }
            std::thread::sleep(POLL);
        }
    }

    fn note(&self, title: &str) {
        self.progress.set(title, 0.0, String::new());
    }

    fn config(&self, target: TargetSpec) -> IoBenchConfig {
        let mut config = IoBenchConfig::new(target);
        config.depth = self.demo.depth;
        config.runtime = Duration::from_secs_f64(self.demo.seconds);
        config.warmup = Duration::from_millis(500);
        config.size_bytes = PART_BYTES;
        config.durable = true;
        config
    }

    fn run(
        &self,
        title: &str,
        config: &IoBenchConfig,
        probe: Option<DriveProbe<'_>>,
        observe: &mut dyn FnMut(&BenchProgress),
    ) -> Result<IoOutcome, CliError> {
        let mut show = |state: &BenchProgress| {
            show_progress(&self.progress, title, state);
            observe(state);
        };
        // Shortens the lifetime of the probe to that of the other hooks.
        let drive_write_bytes = probe.map(|probe| probe as DriveProbe<'_>);
        let hooks = Hooks { progress: &mut show, stop: &self.stop, drive_write_bytes };
        let outcome = run_io(config, hooks)?;
        if self.stop.load(Ordering::Relaxed) {
            return Err(CliError::failed("stopped"));
        }
        Ok(outcome)
    }

    /// The load on a plain file, opened with `O_DIRECT`, every write durable.
    fn plain_file(&self) -> Result<IoOutcome, CliError> {
        let path = self.folder.path().join("plain");
        let outcome =
            self.run("plain file", &self.config(TargetSpec::File { path: path.clone() }), None, &mut |_| {})?;
        std::fs::remove_file(&path).map_err(|error| CliError::io("remove", &path, &error))?;
        complete(&outcome, "the plain file")?;
        Ok(outcome)
    }

    /// Writes the volume for so long that the whole drive has been written once: until then its space is zeroed ahead of
    /// use, which the plain file was before it was measured.
    fn write_once(&self, server: &Server) -> Result<(), CliError> {
        let mut config = self.config(TargetSpec::Nbd { uri: server.nbd_uri(VOLUME_NAME) });
        config.workload = Workload::Write;
        config.block_bytes = WRITE_ONCE_BLOCK_BYTES;
        config.depth = 8;
        config.size_bytes = PARTS * PART_BYTES;
        config.warmup = Duration::ZERO;
        config.runtime = WRITE_ONCE * u32::from(self.demo.nodes);
        let outcome = self.run("writing the volume", &config, None, &mut |_| {})?;
        complete(&outcome, "the volume")
    }

    /// The load on a part of the volume.
    fn part(&self, server: &Server, number: u64) -> IoBenchConfig {
        let mut config = self.config(TargetSpec::Nbd { uri: server.nbd_uri(VOLUME_NAME) });
        config.verify = true;
        config.offset_bytes = number * PART_BYTES;
        config.seed = number + 1;
        config
    }

    /// The load on the first part of the volume.
    fn measure(&self, server: &Server) -> Result<Load, CliError> {
        let mut config = self.part(server, 0);
        config.cpu_pids.extend(server.processes());
        let client = server.client()?;
        let mut probe = || client.drives().ok().map(|list| drive_write_bytes(&list));
        let outcome = self.run("coquina", &config, Some(&mut probe), &mut |_| {})?;
        complete(&outcome, "the volume")?;
        Ok(Load { config, outcome })
    }

    /// The load on the third part, in the middle of which everything is killed.
    fn load_and_kill(&self, server: &mut Server) -> Result<Load, CliError> {
        let mut config = self.part(server, 2);
        config.warmup = Duration::ZERO;
        config.runtime = KILL_AFTER * 20;
        let mut began = None;
        let mut killed = Ok(());
        let outcome = self.run("coquina, to be killed", &config, None, &mut |state| {
            if state.phase == Phase::Measure && began.get_or_insert_with(Instant::now).elapsed() >= KILL_AFTER
            {
                killed = server.kill();
            }
        })?;
        killed?;
        if outcome.report.interrupted.is_none() {
            return Err(CliError::failed("the load did not notice that the server was killed"));
        }
        Ok(Load { config, outcome })
    }

    /// Reads everything back that was acknowledged.
    fn verify(&self, server: &Server, load: &Load) -> Result<Findings, CliError> {
        let ledger = load.outcome.ledger.as_ref();
        let ledger = ledger.ok_or_else(|| CliError::failed("the load kept no record of its writes"))?;
        let target = TargetSpec::Nbd { uri: server.nbd_uri(VOLUME_NAME) };
        let config = IoBenchConfig { target, ..load.config.clone() };
        let mut show = |state: &BenchProgress| show_progress(&self.progress, "after the restart", state);
        let hooks = Hooks { progress: &mut show, stop: &self.stop, drive_write_bytes: None };
        Ok(verify_ledger(&config, ledger, hooks)?)
    }
}

/// A load and what it left.
struct Load {
    config: IoBenchConfig,
    outcome: IoOutcome,
}

/// A measurement that must have gone through.
fn complete(outcome: &IoOutcome, what: &str) -> Result<(), CliError> {
    let report = &outcome.report;
    if let Some(reason) = &report.interrupted {
        return Err(CliError::failed(format!("the load on {what} ended early: {reason}")));
    }
    if report.errors > 0 {
        let first = report.first_error.as_deref().unwrap_or("unknown");
        return Err(CliError::failed(format!("{} operation(s) on {what} failed: {first}", report.errors)));
    }
    match &report.verify {
        Some(found) if found.mismatches > 0 => {
            Err(CliError::failed(format!("{} block(s) of {what} hold wrong data", found.mismatches)))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_stays_does_not_hide_why_the_demo_failed() {
        let failed = |text: &str| Err::<(), _>(CliError::failed(text));
        let told = |result, interrupted, removed| {
            cleaned_up(result, interrupted, removed).map_err(|error| error.to_string())
        };
        assert_eq!(told(Ok(()), false, Ok(())), Ok(()));
        assert_eq!(told(failed("why"), false, Ok(())), Err("why".to_owned()));
        assert_eq!(told(failed("why"), false, failed("it stays")), Err("why\nit stays".to_owned()));
        assert_eq!(told(Ok(()), false, failed("it stays")), Err("it stays".to_owned()));
        assert_eq!(told(failed("why"), true, failed("it stays")), Err("it stays".to_owned()));
        let stopped = Err("stopped; everything was cleaned up".to_owned());
        assert_eq!(told(failed("why"), true, Ok(())), stopped);
    }
}
