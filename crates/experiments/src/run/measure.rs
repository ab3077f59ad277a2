//! One target at one point: load, and what the machine did meanwhile.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use coquina_host::{DriveCounter, Role, Sampler, SamplerSettings, Utilisation};

use crate::definition::Mode;
use crate::generator::{Amount, Command, Format, GeneratorError, Load, Outcome, Running, share};
use crate::report::{CpuFigures, DriveFigures, Point, ProcessFigures, Round, UtilisationSample};
use crate::statistics::{SAMPLES_MIN, sanity, steadiness};
use crate::target::{Target, TargetError};

use super::placement;

const SAMPLE_INTERVAL_MS: u64 = 250;
/// The idle machine is looked at for so long.
const IDLE_TIME: Duration = Duration::from_secs(2);
/// A generator may take so long to begin and to end, besides its time.
const EXTRA_TIME_MAX: Duration = Duration::from_secs(60);
/// Time that a generator takes before its load begins, where it does not say when that was.
const START_TIME: Duration = Duration::from_millis(500);
/// Length of the first and last step of a window that may be cut off, so that it lies within the measured time.
const EDGE: Duration = Duration::from_millis(50);

/// What the machine does while no load is made: not what targets do for themselves, which counts for them.
#[derive(Clone, Debug, Default)]
pub struct Idle {
    /// Busy time without that of targets.
    pub us_per_s: f64,
    /// Busy time of the kernel's threads and of interrupts.
    pub kernel_us_per_s: f64,
    /// Busy time of processes that have nothing to do with the run, and the busiest of them.
    pub outside_us_per_s: f64,
    /// Its name.
    pub busiest: String,
    /// Busy time of all.
    pub all_us_per_s: f64,
    /// Drives that hold targets.
    pub drives: Vec<DriveCounter>,
    /// Their names.
    pub drive_names: Vec<String>,
}

impl Idle {
    /// Looks for some seconds. `servers` are the processes of all targets.
    pub fn look(
        places: &[PathBuf],
        servers: &[u32],
        stopped: &dyn Fn() -> bool,
    ) -> Result<Self, TargetError> {
        let drives = drives_of(places);
        let drive_names: Vec<String> = drives.iter().map(|drive| drive.name.clone()).collect();
        let mut idle = Idle { drives, drive_names, ..Idle::default() };
        let processes = servers.iter().map(|pid| (*pid, Role::Target)).collect();
        let Ok(sampler) = sampler(&idle.drive_names, processes) else { return Ok(idle) };
        let from = sampler.mark();
        while from.elapsed() < IDLE_TIME {
            if stopped() {
                return Err(TargetError::Stopped);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let to = sampler.mark();
        if let Some(seen) = sampler.window(from, to) {
            idle.all_us_per_s = seen.busy_cores * 1e6;
            idle.us_per_s = (seen.busy_cores - seen.role_cores(Role::Target)).max(0.0) * 1e6;
            idle.kernel_us_per_s = seen.role_cores(Role::Kernel) * 1e6;
            idle.outside_us_per_s = seen.role_cores(Role::Outside) * 1e6;
            let outside = seen.processes.iter().find(|process| process.role == Role::Outside);
            idle.busiest =
                outside.map(|process| format!("{} (pid {})", process.name, process.pid)).unwrap_or_default();
        }
        sampler.stop();
        Ok(idle)
    }
}

fn sampler(drives: &[String], processes: Vec<(u32, Role)>) -> Result<Sampler, coquina_host::HostError> {
    let mut processes = processes;
    processes.push((std::process::id(), Role::Harness));
    Sampler::start(SamplerSettings { interval_ms: SAMPLE_INTERVAL_MS, drives: drives.to_vec(), processes })
}

/// The drives that hold these files or devices, each once. A file that does not exist yet lies on the drive of its folder.
fn drives_of(places: &[PathBuf]) -> Vec<DriveCounter> {
    let mut drives: Vec<DriveCounter> = Vec::new();
    for place in places {
        let found = DriveCounter::under(place).or_else(|| DriveCounter::under(place.parent()?));
        if let Some(found) = found
            && drives.iter().all(|drive| drive.name != found.name)
        {
            drives.push(found);
        }
    }
    drives
}

/// Names of the drives that hold these files or devices.
pub fn drive_names(places: &[PathBuf]) -> Vec<String> {
    drives_of(places).into_iter().map(|drive| drive.name).collect()
}

/// One place on each of the drives.
pub fn drives_under(places: &[PathBuf]) -> Vec<PathBuf> {
    let mut seen: Vec<String> = Vec::new();
    let mut found = Vec::new();
    for place in places {
        let names = drive_names(std::slice::from_ref(place));
        if names.iter().any(|name| !seen.contains(name)) {
            seen.extend(names);
            let exists = place.exists();
            found.push(if exists { place.clone() } else { place.parent().unwrap_or(place).to_owned() });
        }
    }
    found
}

/// A round, and what it rests on.
#[derive(Clone, Debug)]
pub struct Measured {
    /// For the report.
    pub round: Round,
    /// What the machine did, if it could be seen.
    pub utilisation: Option<Utilisation>,
    /// The first failure of an operation.
    pub first_error: Option<String>,
}

/// What is measured.
pub struct Shot<'a> {
    /// On what.
    pub target: &'a dyn Target,
    /// Doing what.
    pub point: &'a Point,
    /// Size of each volume.
    pub volume_bytes: u64,
    /// How long.
    pub limits: &'a Mode,
    /// Other hosts with `fio --server`.
    pub hosts: &'a [String],
    /// Options of fio's jobs that are tried.
    pub fio_options: &'a [(String, String)],
    /// For offsets.
    pub seed: u64,
    /// Which round.
    pub round: u32,
    /// Processes of other targets: what they do is not this one's.
    pub others: &'a [u32],
    /// The idle machine.
    pub idle: &'a Idle,
    /// Folder for files of generators.
    pub scratch: &'a Path,
    /// Whether the run is to end.
    pub stopped: &'a dyn Fn() -> bool,
}

impl Shot<'_> {
    /// Runs the load until throughput was steady, or as often as the mode allows; the last time counts.
    pub fn take(&self) -> Result<Measured, GeneratorError> {
        let mut passes = 1;
        loop {
            let mut measured = self.pass(passes)?;
            measured.round.passes = passes;
            if measured.round.is_steady != Some(false) || passes >= self.limits.passes_max {
                return Ok(measured);
            }
            passes += 1;
        }
    }

    fn pass(&self, pass: u32) -> Result<Measured, GeneratorError> {
        let commands = self.commands(pass);
        let watched = self.target.processes().into_iter().map(|pid| (pid, Role::Target));
        let watched = watched.chain(self.others.iter().map(|pid| (*pid, Role::Outside)));
        let names = drive_names(&self.target.places());
        // A machine that does not let itself be looked at can still be measured.
        let sampler = sampler(&names, watched.collect()).ok();
        let (now, now_unix) = (Instant::now(), SystemTime::now());
        let mut running = Vec::new();
        for command in &commands {
            let started = Running::start(command, self.scratch)?;
            if let Some(sampler) = &sampler {
                sampler.watch(started.process(), Role::Generator);
            }
            running.push(started);
        }
        let time_max = Duration::from_secs_f64(self.limits.warmup_s + self.limits.runtime_s) + EXTRA_TIME_MAX;
        let outcomes: Result<Vec<Outcome>, GeneratorError> =
            running.into_iter().map(|running| running.finish(time_max, self.stopped)).collect();
        let outcome = Outcome::merge(outcomes?);
        if outcome.interrupted.is_some() {
            return Err(GeneratorError::Stopped);
        }
        let began = match outcome.began_unix_ms {
            Some(unix_ms) => {
                let at = UNIX_EPOCH + Duration::from_millis(unix_ms);
                now + at.duration_since(now_unix).unwrap_or_default()
            }
            None => now + START_TIME + Duration::from_secs_f64(self.limits.warmup_s),
        };
        let length = Duration::from_secs_f64(outcome.measured_s).max(EDGE * 4);
        let seen = sampler.and_then(|sampler| {
            let seen = sampler.window(began + EDGE, began + length - EDGE);
            sampler.stop();
            seen
        });
        let since_1970 =
            (now_unix + began.duration_since(now)).duration_since(UNIX_EPOCH).unwrap_or_default();
        let began_unix_ms = u64::try_from(since_1970.as_millis()).unwrap_or(0);
        let mut measured = self.measured(outcome, seen, began_unix_ms);
        let format = commands.first().map(|command| command.format);
        measured.round.generator = format.map_or("", Format::generator).to_owned();
        Ok(measured)
    }

    /// Clients share the volumes out among themselves, or one volume where there are fewer of them.
    fn commands(&self, pass: u32) -> Vec<Command> {
        let point = self.point;
        let clients = point.clients.max(1);
        // 0 stands for all.
        let volumes = match point.drives {
            Some(0) => self.target.drives(),
            Some(drives) => drives,
            None => point.volumes,
        };
        let mut commands = Vec::new();
        for client in 0..clients {
            let mut mine: Vec<u32> = (0..volumes).filter(|volume| volume % clients == client).collect();
            if mine.is_empty() {
                mine.push(client % volumes.max(1));
            }
            let load = Load {
                operation: point.operation,
                block_bytes: point.block_bytes,
                depth: point.depth,
                jobs: point.jobs,
                amount: Amount::Time { warmup_s: self.limits.warmup_s, runtime_s: self.limits.runtime_s },
                size_bytes: self.volume_bytes,
                rate_iops: point.rate_iops.map(|rate_iops| share(rate_iops, client.into(), clients.into())),
                seed: self.seed.wrapping_mul(1000).wrapping_add(u64::from(client) * 37 + u64::from(pass)),
                processors: placement::processors(point),
            };
            if load.rate_iops == Some(0) {
                // There are more clients than operations per second.
                continue;
            }
            let mut of_client = self.target.commands(&load, &mine);
            for command in of_client.iter_mut().filter(|command| command.format == Format::Fio) {
                crate::generator::fio::add_options(command, self.fio_options);
            }
            if !self.hosts.is_empty() {
                let host = &self.hosts[client as usize % self.hosts.len()];
                for command in of_client.iter_mut().filter(|command| command.format == Format::Fio) {
                    command.arguments.insert(0, format!("--client={host}"));
                }
            }
            commands.extend(of_client);
        }
        commands
    }

    fn measured(&self, outcome: Outcome, seen: Option<Utilisation>, began_unix_ms: u64) -> Measured {
        let steady = steadiness(&outcome.series);
        let outcome_length = outcome.series.len();
        let mut round = Round {
            round: self.round,
            began_unix_ms,
            measured_s: outcome.measured_s,
            total: outcome.total,
            read: outcome.read,
            write: outcome.write,
            series: outcome.series,
            series_interval_ms: outcome.series_interval_ms,
            is_steady: (outcome_length >= SAMPLES_MIN).then_some(steady.is_steady),
            steadiness: steady.text,
            errors: outcome.errors,
            ..Round::default()
        };
        round.contradictions = self.contradictions(&round);
        if let Some(seen) = &seen {
            let sees_servers = self.target.is_baseline() || !self.target.processes().is_empty();
            round.cpu = cpu_figures(&round, seen, self.idle, self.others, sees_servers);
            round.drives = seen
                .drives
                .iter()
                .map(|drive| DriveFigures {
                    name: drive.name.clone(),
                    read_bytes_per_s: drive.read_bytes_per_s,
                    write_bytes_per_s: drive.write_bytes_per_s,
                    busy: drive.busy,
                })
                .collect();
            round.utilisation = seen.samples.iter().map(|sample| UtilisationSample::from(*sample)).collect();
            let written_per_s: f64 = seen.drives.iter().map(|drive| drive.write_bytes_per_s).sum();
            let by_users = self.user_writes_bytes_per_s(&round);
            if by_users > 0.0 && !seen.drives.is_empty() {
                round.drive_bytes_per_user_byte = Some(written_per_s / by_users);
            }
        }
        Measured { round, utilisation: seen, first_error: outcome.first_error }
    }

    fn user_writes_bytes_per_s(&self, round: &Round) -> f64 {
        match (&round.write, self.point.operation.reads()) {
            (Some(write), _) => write.bytes_per_s,
            (None, false) => round.total.bytes_per_s,
            (None, true) => 0.0,
        }
    }

    fn contradictions(&self, round: &Round) -> Vec<String> {
        let drives = match self.point.drives {
            Some(0) => Some(self.target.drives()),
            drives => drives,
        };
        let point = Point { drives, ..self.point.clone() };
        let figures = sanity::Figures {
            iops: Some(round.total.iops),
            bandwidth_bytes_per_s: Some(round.total.bytes_per_s),
            block_bytes: Some(point.block_bytes),
            latency_ns_mean: Some(round.total.latency_ns_mean),
            // In microseconds, the generator's own time between operations is in no latency.
            outstanding: (point.outstanding() > 1).then(|| f64::from(point.outstanding())),
            is_open_loop: point.rate_iops.is_some(),
        };
        sanity::check(&figures).into_iter().map(|found| found.text).collect()
    }
}

/// CPU time per operation. Where all processes that serve the target are known, it is that of the generator, of the servers and of
/// the kernel's own threads, so that what else runs on the machine does not count; elsewhere all but what was busy before.
fn cpu_figures(
    round: &Round,
    seen: &Utilisation,
    idle: &Idle,
    others: &[u32],
    sees_servers: bool,
) -> CpuFigures {
    let share = |us_per_s: f64| if round.total.iops > 0.0 { us_per_s / round.total.iops } else { 0.0 };
    let cores_of_others: f64 = seen
        .processes
        .iter()
        .filter(|process| others.contains(&process.pid))
        .map(|process| seen.process_cores(process))
        .sum();
    let mine = if sees_servers && seen.sees_kernel_threads {
        let own =
            seen.role_cores(Role::Generator) + seen.role_cores(Role::Target) + seen.role_cores(Role::Kernel);
        own * 1e6 - idle.kernel_us_per_s
    } else {
        (seen.busy_cores - cores_of_others) * 1e6 - idle.us_per_s
    };
    CpuFigures {
        idle_us_per_s: idle.us_per_s,
        machine_us_per_io: share(mine.max(0.0)),
        busy_cores: seen.busy_cores,
        client_us_per_io: share(seen.role_cores(Role::Generator) * 1e6),
        servers_us_per_io: share(seen.role_cores(Role::Target) * 1e6),
        kernel_threads_us_per_io: share(seen.role_cores(Role::Kernel) * 1e6),
        processes: seen
            .processes
            .iter()
            .filter(|process| matches!(process.role, Role::Generator | Role::Target))
            .map(|process| ProcessFigures {
                name: process.name.clone(),
                pid: process.pid,
                us_per_io: share(seen.process_cores(process) * 1e6),
            })
            .collect(),
    }
}
