//! `coquina demo`: a server, load, a hard kill, a restart, and proof that nothing acknowledged was lost.
//!
//! The server is a process of its own, reached through its real NBD port. Half of the volume is loaded and
//! measured, the other half is under load when the server is killed; after the restart every block of both
//! halves must hold its newest acknowledged write, or a newer one that was under way. The same load on a plain
//! file in the same folder gives the figures beside.

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
use self::server::Server;
use super::bench::{drive_write_bytes, show_progress};
use crate::arguments::{Demo, Global};
use crate::error::CliError;
use crate::output::{print, print_json};
use crate::progress::Progress;
use crate::signal;

/// Size of the volume; each half is loaded on its own.
const VOLUME_BYTES: u64 = 512 << 20;
const HALF_BYTES: u64 = VOLUME_BYTES / 2;
const DRIVE_BYTES: u64 = 1 << 30;
const VOLUME_NAME: &str = "demo";
/// Long enough to write the drive once on all but the slowest disks.
const WRITE_ONCE: Duration = Duration::from_millis(2500);
const WRITE_ONCE_BLOCK_BYTES: u32 = 512 << 10;
/// Load before the kill.
const KILL_AFTER: Duration = Duration::from_millis(1500);

/// The signal that ends the demo without cleaning up, should that hang.
const FORCE_AT: u32 = 5;

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
    let folder = DemoFolder::make(demo.folder.as_deref(), DRIVE_BYTES + HALF_BYTES)?;
    // An impatient second Ctrl-C must not leave the server and its files behind.
    let stop = signal::stop_flag(FORCE_AT, || {})?;
    let stage = Stage { demo, folder: &folder, stop, progress: Progress::new("demo") };
    let result = stage.play();
    let interrupted = stage.stop.load(Ordering::Relaxed);
    drop(stage);
    folder.remove()?;
    let report = match result {
        Err(_) if interrupted => return Err(CliError::failed("stopped; everything was cleaned up")),
        result => result?,
    };
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

impl Stage<'_> {
    fn play(&self) -> Result<DemoReport, CliError> {
        let plain = self.plain_file()?;
        self.note("starting the server");
        let mut server = Server::start(self.folder, DRIVE_BYTES)?;
        let request = api::CreateVolume { name: VOLUME_NAME.to_owned(), size_bytes: VOLUME_BYTES };
        server.client()?.create_volume(&request)?;
        self.write_once(&server)?;
        let (measured_config, measured) = self.measure(&server)?;
        let (killed_config, killed) = self.load_and_kill(&mut server)?;

        self.note("starting the server again");
        let restart = Instant::now();
        let server = Server::start(self.folder, DRIVE_BYTES)?;
        let restart_ns = u64::try_from(restart.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let before = self.verify(&server, &measured_config, &measured)?;
        let under_way = self.verify(&server, &killed_config, &killed)?;
        server.stop()?;
        Ok(DemoReport {
            plain_file: Measured::of(&plain.report),
            coquina: Measured::of(&measured.report),
            kill: KillReport::new(&killed, restart_ns, &[before, under_way]),
        })
    }

    fn note(&self, title: &str) {
        self.progress.set(title, 0.0, String::new());
    }

    fn config(&self, target: TargetSpec) -> IoBenchConfig {
        let mut config = IoBenchConfig::new(target);
        config.depth = self.demo.depth;
        config.runtime = Duration::from_secs_f64(self.demo.seconds);
        config.warmup = Duration::from_millis(500);
        config.size_bytes = HALF_BYTES;
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
        config.size_bytes = VOLUME_BYTES;
        config.warmup = Duration::ZERO;
        config.runtime = WRITE_ONCE;
        let outcome = self.run("writing the volume", &config, None, &mut |_| {})?;
        complete(&outcome, "the volume")
    }

    /// The load on the first half of the volume.
    fn measure(&self, server: &Server) -> Result<(IoBenchConfig, IoOutcome), CliError> {
        let mut config = self.config(TargetSpec::Nbd { uri: server.nbd_uri(VOLUME_NAME) });
        config.verify = true;
        config.cpu_pids.push(server.process());
        let client = server.client()?;
        let mut probe = || client.drives().ok().map(|list| drive_write_bytes(&list));
        let outcome = self.run("coquina", &config, Some(&mut probe), &mut |_| {})?;
        complete(&outcome, "the volume")?;
        Ok((config, outcome))
    }

    /// The load on the second half, in the middle of which the server is killed.
    fn load_and_kill(&self, server: &mut Server) -> Result<(IoBenchConfig, IoOutcome), CliError> {
        let mut config = self.config(TargetSpec::Nbd { uri: server.nbd_uri(VOLUME_NAME) });
        config.verify = true;
        config.offset_bytes = HALF_BYTES;
        config.warmup = Duration::ZERO;
        config.runtime = KILL_AFTER * 20;
        config.seed = 2;
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
        Ok((config, outcome))
    }

    /// Reads everything back that was acknowledged.
    fn verify(
        &self,
        server: &Server,
        config: &IoBenchConfig,
        outcome: &IoOutcome,
    ) -> Result<Findings, CliError> {
        let ledger = outcome.ledger.as_ref();
        let ledger = ledger.ok_or_else(|| CliError::failed("the load kept no record of its writes"))?;
        let target = TargetSpec::Nbd { uri: server.nbd_uri(VOLUME_NAME) };
        let config = IoBenchConfig { target, ..config.clone() };
        let mut show = |state: &BenchProgress| show_progress(&self.progress, "after the restart", state);
        let hooks = Hooks { progress: &mut show, stop: &self.stop, drive_write_bytes: None };
        Ok(verify_ledger(&config, ledger, hooks)?)
    }
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
