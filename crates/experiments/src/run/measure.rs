//! One target at one point: load, and what the machine did meanwhile.

use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use coquina_host::{DriveCounter, Role, Sampler, SamplerSettings, Utilisation, resident_bytes};

use crate::definition::{Mode, object_set_bytes};
use crate::generator::{
    Amount, BusyHost, Command, Format, GeneratorError, Load, Outcome, Running, coquina, gate, share,
};
use crate::report::{CpuFigures, DriveFigures, NetworkFigures, Point, ProcessFigures, Round};
use crate::statistics::{SAMPLES_MIN, sanity, steadiness};
use crate::target::{Target, is_this_host, lies_in_memory};

use super::{afterwards::Afterwards, idle::Idle, over_time::over_time, placement, quiet, servers::Servers};

/// The machine is sampled this often, and more often in runs in which that gives fewer than [`SAMPLES_MIN_PER_RUN`].
const SAMPLE_INTERVAL_MS: u64 = 250;
/// More often would take processors from what is measured.
const SAMPLE_INTERVAL_MS_MIN: u64 = 50;
const SAMPLES_MIN_PER_RUN: f64 = 8.0;
/// Half of what the sampler keeps, so that the first sample of a run is still known at its end.
const SAMPLES_MAX_PER_RUN: f64 = 4000.0;
/// The sampler's longest interval.
const SAMPLE_INTERVAL_MS_MAX: u64 = 60_000;
/// Threads and control groups are looked at this often, and more often in runs in which that gives fewer than
/// [`DETAILS_MIN_PER_RUN`].
const DETAIL_INTERVAL_MS: u64 = 1000;
/// More often would take processors from what is measured: a server may have hundreds of threads.
const DETAIL_INTERVAL_MS_MIN: u64 = 300;
/// What grew is known from two details on; a run's edges lie between them.
const DETAILS_MIN_PER_RUN: f64 = 4.0;
/// What a generator may need by itself between two operations, on a busy processor.
const BETWEEN_NS_MAX: f64 = 200e3;
/// A generator may take so long to begin, where it may wait for others, and to end, besides its time: as long as a store that stalls and is
/// not hung, whatever its loads before took.
pub(super) const EXTRA_TIME_MAX: Duration = Duration::from_secs(60).saturating_add(gate::WAIT_MAX);
/// Time that a generator takes before its load begins, where it does not say when that was.
const START_TIME: Duration = Duration::from_millis(500);
/// Several generators begin at once when all should be ready: so long after the first is started, and so much longer for each.
const AT_ONCE_TIME: Duration = Duration::from_millis(200);
const AT_ONCE_TIME_EACH: Duration = Duration::from_millis(15);
/// What is cut off a window at either end, so that it lies within the measured time; less where that is short.
const EDGE: Duration = Duration::from_millis(50);
/// What is measured for less long than this is not seen: the kernel counts idle time to 10 ms.
const SEEN_TIME_MIN: Duration = Duration::from_millis(100);

pub(super) fn sampler(
    runtime_s: f64,
    drives: Option<Vec<String>>,
    processes: Vec<(u32, Role)>,
) -> Result<Sampler, coquina_host::HostError> {
    let mut processes = processes;
    processes.push((std::process::id(), Role::Harness));
    let (interval_ms, detail_interval_ms) = (sample_interval_ms(runtime_s), detail_interval_ms(runtime_s));
    Sampler::start(SamplerSettings { interval_ms, detail_interval_ms, drives, processes })
}

/// How often a run of this length is sampled.
fn sample_interval_ms(runtime_s: f64) -> u64 {
    let runtime_ms = runtime_s * 1e3;
    let usual = ((runtime_ms / SAMPLES_MIN_PER_RUN) as u64).clamp(SAMPLE_INTERVAL_MS_MIN, SAMPLE_INTERVAL_MS);
    usual.max((runtime_ms / SAMPLES_MAX_PER_RUN) as u64).min(SAMPLE_INTERVAL_MS_MAX)
}

/// How often threads and control groups are looked at in a run of this length.
fn detail_interval_ms(runtime_s: f64) -> u64 {
    ((runtime_s * 1e3 / DETAILS_MIN_PER_RUN) as u64).clamp(DETAIL_INTERVAL_MS_MIN, DETAIL_INTERVAL_MS)
}

/// When the measured time of generators began that were started and had ended at these moments, and whose jobs waited at a gate until it
/// was opened, if they did. What they told is not believed where it cannot be, as with a host whose clock goes wrong.
fn beginning(
    (started, ended): (Instant, Instant),
    opened: Option<Instant>,
    told: Option<Instant>,
    warmup: Duration,
    length: Duration,
) -> Instant {
    let latest = ended.checked_sub(length).unwrap_or(started).max(started);
    told.unwrap_or_else(|| opened.unwrap_or(started + START_TIME) + warmup).min(latest)
}

/// How long generators have to get ready, so that they begin at once. One alone begins when it is.
fn start_time(generators: usize) -> Duration {
    match u32::try_from(generators).unwrap_or(u32::MAX) {
        0 | 1 => Duration::ZERO,
        count => AT_ONCE_TIME + AT_ONCE_TIME_EACH.saturating_mul(count),
    }
}

/// The part of the measured time that is looked at. `None` where that is too short to see anything.
fn looked_at(began: Instant, length: Duration) -> Option<(Instant, Instant)> {
    let edge = EDGE.min(length / 8);
    (length >= SEEN_TIME_MIN).then(|| (began + edge, began + length - edge))
}

/// The whole drives that hold these files or devices, each once. A file that does not exist yet lies on the drive of its folder.
pub(super) fn drives_of(places: &[PathBuf]) -> Vec<DriveCounter> {
    let mut drives: Vec<DriveCounter> = Vec::new();
    for place in places {
        for found in DriveCounter::under(place) {
            if drives.iter().all(|drive| drive.name != found.name) {
                drives.push(found);
            }
        }
    }
    drives
}

/// Names of the drives that hold these files or devices.
pub fn drive_names(places: &[PathBuf]) -> Vec<String> {
    drives_of(places).into_iter().map(|drive| drive.name).collect()
}

/// The drives that tell something of what has these places. `None` stands for all: on this host it is not known which, as of a server
/// on loopback or a file system without a drive of its own. Those of this host tell nothing of what is elsewhere, or in memory.
pub(super) fn drives_to_sample(places: &[PathBuf], is_on_this_host: bool) -> Option<Vec<String>> {
    let names = drive_names(places);
    let is_in_memory = !places.is_empty() && places.iter().all(|place| lies_in_memory(place));
    (!names.is_empty() || !is_on_this_host || is_in_memory).then_some(names)
}

/// One place on each of the drives, and all block devices: a RAID or volume has settings of its own, and its drives have theirs.
pub fn drives_under(places: &[PathBuf]) -> Vec<PathBuf> {
    let mut seen: Vec<String> = Vec::new();
    let mut found = Vec::new();
    for place in places {
        if std::fs::metadata(place).is_ok_and(|metadata| metadata.file_type().is_block_device()) {
            found.push(place.clone());
            continue;
        }
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
    /// What was seen of what serves the target.
    pub servers: Servers,
    /// Other hosts that made the load.
    pub hosts: Vec<String>,
    /// The one of them whose jobs used most of their cores.
    pub busiest_host: Option<BusyHost>,
    /// By which share the memory of the processes that serve the target grew, where it was looked at and grew.
    pub grown: Option<f64>,
    /// When what the load had left behind was done, or was not waited for any longer; `None` where it was not waited for.
    pub waited_at: Option<Instant>,
}

/// The round in which a store settles. It goes on while servers get more memory, too: in a virtual machine that has to get it from its own host
/// 14 us a page were seen, which halved the throughput of a store whose cache grew.
pub const SETTLING: u32 = 0;
/// Servers whose memory has grown by a smaller share in a pass have what they need.
const GROWN_MIN: f64 = 0.02;

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
    /// Which round; [`SETTLING`] for one that is not measured.
    pub round: u32,
    /// Processes of other targets: what they do is not this one's.
    pub others: &'a [u32],
    /// The idle machine.
    pub idle: &'a Idle,
    /// Folder for files of generators.
    pub scratch: &'a Path,
    /// How long a generator may take to begin and to end, besides its time.
    pub extra_time_max: Duration,
    /// How long what the load leaves behind is waited for.
    pub quiet_time_max: Duration,
    /// Whether the run is to end.
    pub stopped: &'a dyn Fn() -> bool,
}

impl Shot<'_> {
    /// Runs the load until throughput was steady, or as often as the mode allows; the last time counts, and one that failed.
    pub fn take(&self) -> Result<Measured, GeneratorError> {
        let mut passes = 1;
        loop {
            let before = (self.round == SETTLING).then(|| self.memory_of_servers());
            let mut measured = self.pass(passes)?;
            measured.grown = before.and_then(|before| grown(before, self.memory_of_servers()));
            measured.round.passes = passes;
            let is_steady = measured.round.is_steady != Some(false) && measured.grown.is_none();
            if is_steady || !measured.round.is_good() || passes >= self.limits.passes_max {
                return Ok(measured);
            }
            passes += 1;
        }
    }

    fn memory_of_servers(&self) -> u64 {
        self.target.processes().into_iter().filter_map(resident_bytes).sum()
    }

    fn pass(&self, pass: u32) -> Result<Measured, GeneratorError> {
        let mut commands = self.commands(pass);
        let watched = self.target.processes().into_iter().map(|pid| (pid, Role::Target));
        let watched = watched.chain(self.others.iter().map(|pid| (*pid, Role::Outside)));
        let drives = drives_to_sample(&self.target.places(), self.target.is_on_this_host());
        // A machine that does not let itself be looked at can still be measured.
        let sampler = sampler(self.limits.runtime_s, drives, watched.collect()).ok();
        let (now, now_unix) = (Instant::now(), SystemTime::now());
        let start_time = start_time(commands.len());
        coquina::begin_at_once(&mut commands, start_time);
        gate::put(&mut commands);
        // All before they are looked at, which takes its time.
        let running: Result<Vec<Running>, GeneratorError> =
            commands.iter().map(|command| Running::start(command, self.scratch)).collect();
        let mut running = running?;
        if let Some(sampler) = &sampler {
            let processes: Vec<u32> = running.iter().map(Running::process).collect();
            sampler.watch_all(&processes, Role::Generator);
        }
        let opened = gate::open_together(&mut running, self.stopped)?;
        let time_max = Duration::from_secs_f64(self.limits.warmup_s_of(self.point) + self.limits.runtime_s)
            + start_time
            + self.extra_time_max;
        let outcomes = Running::finish_all(running, time_max, self.stopped);
        // A sample at the end, so that what generators used up to there is known.
        let ended = sampler.as_ref().map_or_else(Instant::now, Sampler::mark);
        let mut outcome = Outcome::merge(outcomes?);
        // Work that is left for later is work of the load, too. Between two passes it would be a pause that the load does not have.
        let is_last = pass >= self.limits.passes_max || is_steady(&outcome.series) != Some(false);
        let is_waited_for = self.round != SETTLING && is_last;
        let is_quiet = is_waited_for && quiet::wait(self.idle, self.quiet_time_max, self.stopped);
        let looked_until = sampler.as_ref().map_or_else(Instant::now, Sampler::mark);
        if !self.hosts.iter().all(|host| is_this_host(host)) {
            // Their clocks need not agree.
            outcome.skew_s = None;
        }
        if outcome.is_stopped {
            return Err(GeneratorError::Stopped);
        }
        let told = outcome.began_unix_ms.and_then(|unix_ms| {
            let at = UNIX_EPOCH + Duration::from_millis(unix_ms);
            Some(now + at.duration_since(now_unix).ok()?)
        });
        let length = Duration::from_secs_f64(outcome.measured_s.max(0.0));
        let warmup = Duration::from_secs_f64(self.limits.warmup_s_of(self.point));
        let began = beginning((now, ended), opened, told, warmup, length);
        let seen = sampler.and_then(|sampler| {
            // While all were at work: the last one to begin tells when that was.
            let together =
                length.saturating_sub(Duration::from_secs_f64(outcome.skew_s.unwrap_or(0.0).max(0.0)));
            let (from, to) = looked_at(began, together)?;
            let seen = sampler.window(from, to)?;
            let samples = over_time(&sampler, now, warmup, began, from, &seen.samples);
            let afterwards = is_waited_for.then(|| sampler.window(ended, looked_until)).flatten();
            sampler.stop();
            Some((seen, (samples, afterwards)))
        });
        let (seen, rest) = seen.unzip();
        let (samples, afterwards) = rest.unzip();
        let loaded_s = (length + warmup).as_secs_f64();
        let afterwards = afterwards.flatten().map(|seen| Afterwards { seen, loaded_s, is_quiet });
        let since_1970 =
            (now_unix + began.duration_since(now)).duration_since(UNIX_EPOCH).unwrap_or_default();
        let began_unix_ms = u64::try_from(since_1970.as_millis()).unwrap_or(0);
        let mut measured = self.measured(outcome, (seen, afterwards), began_unix_ms);
        measured.waited_at = is_waited_for.then_some(looked_until);
        measured.round.utilisation = samples.unwrap_or_default();
        let format = commands.first().map(|command| command.format);
        measured.round.generator = format.map_or("", Format::generator).to_owned();
        Ok(Measured { hosts: hosts_of(&commands), ..measured })
    }

    /// Clients share the volumes out among themselves, or one volume where there are fewer of them.
    fn commands(&self, pass: u32) -> Vec<Command> {
        let point = self.point;
        let clients = point.clients.max(1);
        let volumes = point.volumes_on(self.target.drives());
        let mut commands = Vec::new();
        for client in 0..clients {
            let mine = volumes_of(client, clients, volumes);
            let load = Load {
                operation: point.operation,
                block_bytes: point.block_bytes,
                depth: point.depth,
                jobs: point.jobs,
                amount: Amount::Time {
                    warmup_s: self.limits.warmup_s_of(point),
                    runtime_s: self.limits.runtime_s,
                },
                size_bytes: match point.operation.is_of_objects() {
                    true => object_set_bytes(self.volume_bytes, point.block_bytes),
                    false => self.volume_bytes,
                },
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

    fn measured(
        &self,
        outcome: Outcome,
        (seen, afterwards): (Option<Utilisation>, Option<Afterwards>),
        began_unix_ms: u64,
    ) -> Measured {
        let steady = steadiness(&outcome.series);
        let is_steady = is_steady(&outcome.series);
        let told_bytes_per_s = outcome.told_bytes_per_s;
        let mut round = Round {
            round: self.round,
            began_unix_ms,
            measured_s: outcome.measured_s,
            skew_s: outcome.skew_s,
            total: outcome.total,
            read: outcome.read,
            write: outcome.write,
            series: outcome.series,
            series_interval_ms: outcome.series_interval_ms,
            is_steady,
            steadiness: steady.text,
            errors: outcome.errors,
            // Where the cores of other hosts lie is not known here.
            cores_pinned: placement::cores_pinned(self.point).filter(|_| self.hosts.is_empty()),
            ..Round::default()
        };
        // JSON has no word for what is no number, and readers would refuse the report.
        round.series.retain(|value| value.is_finite());
        round.contradictions = self.contradictions(&round, told_bytes_per_s);
        let mut servers = Servers::Unseen;
        if let Some(seen) = &seen {
            let pids: Vec<u32> = seen.processes.iter().map(|process| process.pid).collect();
            servers = Servers::of(&self.target.processes(), self.target.are_processes_all(), &pids);
            // What other hosts take to make the load is not known here.
            if self.hosts.is_empty() {
                round.cpu = cpu_figures(&round, seen, self.idle, self.others, servers);
                if let (Some(cpu), Some(afterwards)) = (&mut round.cpu, &afterwards) {
                    afterwards.add_cpu(cpu, round.total.iops, self.idle, self.others, servers);
                }
            }
            round.afterwards_s = afterwards.as_ref().map(|afterwards| afterwards.seen.seconds);
            round.is_quiet_afterwards = afterwards.as_ref().map(|afterwards| afterwards.is_quiet);
            round.stood_still = seen.stood_still.filter(|share| share.is_finite());
            round.drives = seen
                .drives
                .iter()
                .map(|drive| DriveFigures {
                    name: drive.name.clone(),
                    read_bytes_per_s: drive.read_bytes_per_s,
                    write_bytes_per_s: drive.write_bytes_per_s,
                    busy: drive.busy,
                    stalled: drive.stalled,
                })
                .collect();
            round.networks = network_figures(seen);
            let written_per_s: f64 = seen.drives.iter().map(|drive| drive.write_bytes_per_s).sum();
            let by_users = self.user_writes_bytes_per_s(&round);
            if by_users > 0.0 && !seen.drives.is_empty() {
                let later_per_s = afterwards.as_ref().map_or(0.0, Afterwards::drive_bytes_per_s);
                round.drive_bytes_per_user_byte =
                    Some((written_per_s + later_per_s) / by_users).filter(|ratio| ratio.is_finite());
            }
        }
        Measured {
            round,
            utilisation: seen,
            first_error: outcome.first_error,
            servers,
            hosts: Vec::new(),
            busiest_host: outcome.busiest_host,
            grown: None,
            waited_at: None,
        }
    }

    fn user_writes_bytes_per_s(&self, round: &Round) -> f64 {
        match (&round.write, self.point.operation.reads()) {
            (Some(write), _) => write.bytes_per_s,
            (None, false) => round.total.bytes_per_s,
            (None, true) => 0.0,
        }
    }

    /// Bandwidth is the one that the generator printed: the report's is made from operations per second.
    fn contradictions(&self, round: &Round, told_bytes_per_s: f64) -> Vec<String> {
        let point = self.point.on(self.target.drives());
        let figures = sanity::Figures {
            iops: Some(round.total.iops),
            bandwidth_bytes_per_s: Some(told_bytes_per_s),
            in_flight_at_end_bytes_per_s: Some(
                f64::from(point.outstanding()) * f64::from(point.block_bytes) / round.measured_s,
            ),
            block_bytes: Some(point.block_bytes),
            latency_ns_mean: Some(round.total.latency_ns_mean),
            outstanding: Some(f64::from(point.outstanding())),
            // With more in flight it goes on beside them.
            between_ns_max: if point.outstanding() > 1 { 0.0 } else { BETWEEN_NS_MAX },
            is_open_loop: point.rate_iops.is_some(),
        };
        sanity::check(&figures).into_iter().map(|found| found.text).collect()
    }
}

/// What went through each interface but loopback.
fn network_figures(seen: &Utilisation) -> Vec<NetworkFigures> {
    let networks = seen.networks.iter().map(|network| NetworkFigures {
        name: network.name.clone(),
        in_bytes_per_s: network.in_bytes_per_s,
        out_bytes_per_s: network.out_bytes_per_s,
        speed_bits_per_s: network.speed_bits_per_s,
    });
    networks.collect()
}

/// Whether throughput was steady; `None` where there is too little of it to tell.
fn is_steady(series: &[f64]) -> Option<bool> {
    (series.len() >= SAMPLES_MIN).then(|| steadiness(series).is_steady)
}

/// By which share memory grew, if that is more than what changes always. Of none nothing is known.
fn grown(before_bytes: u64, after_bytes: u64) -> Option<f64> {
    let share = after_bytes as f64 / before_bytes as f64 - 1.0;
    Some(share).filter(|share| share.is_finite() && *share >= GROWN_MIN)
}

/// The hosts to which these commands hand their load.
fn hosts_of(commands: &[Command]) -> Vec<String> {
    commands.iter().flat_map(Command::hosts).map(str::to_owned).collect()
}

/// The volumes that one of the clients loads: its share, or one that it has in common with others.
fn volumes_of(client: u32, clients: u32, volumes: u32) -> Vec<u32> {
    let mine: Vec<u32> = (0..volumes).filter(|volume| volume % clients == client).collect();
    if mine.is_empty() { vec![client % volumes.max(1)] } else { mine }
}

/// CPU time per operation. Where all processes that serve the target are known, it is that of the generator, of the servers and of
/// the kernel's own threads, so that what else runs on the machine does not count; elsewhere all but what was busy before. `None`
/// where nothing was seen.
fn cpu_figures(
    round: &Round,
    seen: &Utilisation,
    idle: &Idle,
    others: &[u32],
    servers: Servers,
) -> Option<CpuFigures> {
    let share = |us_per_s: f64| us_per_s / round.total.iops;
    if seen.cores_online == 0 || !share(seen.busy_cores * 1e6).is_finite() {
        return None;
    }
    let cores_of_others: f64 = seen
        .processes
        .iter()
        .filter(|process| others.contains(&process.pid))
        .map(|process| seen.process_cores(process))
        .sum();
    let seen_of_it = seen.role_cores(Role::Generator) + seen.role_cores(Role::Target);
    let mine_us_per_s = if servers == Servers::All && seen.sees_kernel_threads {
        Some(seen_of_it * 1e6 + (seen.role_cores(Role::Kernel) * 1e6 - idle.kernel_us_per_s).max(0.0))
    } else {
        // It cannot be less than the part that is seen: on a machine without a core to spare the load takes time away from
        // what kept it busy before.
        let rest = (seen.busy_cores - cores_of_others) * 1e6 - idle.us_per_s;
        Some(rest).filter(|rest| *rest >= seen_of_it * 1e6)
    };
    Some(CpuFigures {
        idle_us_per_s: idle.us_per_s,
        machine_us_per_io: mine_us_per_s.map(share),
        busy_cores: seen.busy_cores,
        client_us_per_io: share(seen.role_cores(Role::Generator) * 1e6),
        servers_us_per_io: (servers != Servers::Unseen).then(|| share(seen.role_cores(Role::Target) * 1e6)),
        kernel_threads_us_per_io: seen
            .sees_kernel_threads
            .then(|| share(seen.role_cores(Role::Kernel) * 1e6)),
        afterwards_us_per_io: None,
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
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn round(iops: f64) -> Round {
        Round { total: crate::report::Figures { iops, ..Default::default() }, ..Round::default() }
    }

    #[test]
    fn clients_share_volumes_or_bring_their_own() {
        let mut point = crate::run::tests::point(8, 3);
        let shares = |point: &Point| -> Vec<Vec<u32>> {
            let volumes = point.loaded_volumes();
            (0..point.clients).map(|client| volumes_of(client, point.clients, volumes)).collect()
        };
        assert_eq!(shares(&point), [vec![0, 3, 6], vec![1, 4, 7], vec![2, 5]]);
        assert_eq!(point.outstanding(), 8 * point.depth, "all volumes, whatever the number of clients");
        point.volumes_per_client = Some(1);
        assert_eq!(shares(&point), [vec![0], vec![1], vec![2]]);
        assert_eq!(point.outstanding(), 3 * point.depth);
        point.clients = 10;
        assert_eq!(shares(&point)[7..], [vec![7], vec![0], vec![1]]);
        assert_eq!(point.outstanding(), 10 * point.depth);
        (point.volumes_per_client, point.clients, point.drives) = (None, 1, Some(2));
        assert_eq!(point.outstanding(), 2 * point.depth, "of eight volumes those of two drives");
        point.drives = None;
        (point.clients, point.volumes_per_client) = (2, Some(3));
        assert_eq!(shares(&point), [vec![0, 2, 4], vec![1, 3, 5]]);
        assert_eq!(point.outstanding(), 6 * point.depth);
    }

    #[test]
    fn cpu_that_was_not_seen_is_unknown() {
        let seen = Utilisation { seconds: 1.0, cores_online: 2, busy_cores: 0.5, ..Utilisation::default() };
        let figures = |round: &Round, seen: &Utilisation, servers| {
            cpu_figures(round, seen, &Idle::default(), &[], servers)
        };
        let found = figures(&round(1000.0), &seen, Servers::Unseen).unwrap();
        assert_eq!((found.machine_us_per_io, found.servers_us_per_io), (Some(500.0), None));
        assert_eq!(found.kernel_threads_us_per_io, None);
        let all = |round: &Round, seen: &Utilisation| figures(round, seen, Servers::All);
        assert_eq!(all(&round(1000.0), &seen).unwrap().servers_us_per_io, Some(0.0));
        assert_eq!(all(&round(0.0), &seen), None);
        assert_eq!(all(&round(f64::MIN_POSITIVE), &seen), None);
        assert_eq!(all(&round(1000.0), &Utilisation { cores_online: 0, ..seen }), None);
    }

    #[test]
    fn a_round_keeps_what_went_through_each_interface() {
        let network = |name: &str, out_bytes_per_s| coquina_host::sampler::NetworkUse {
            name: name.to_owned(),
            out_bytes_per_s,
            speed_bits_per_s: Some(10_000_000_000),
            ..Default::default()
        };
        let networks = vec![network("eth0", 1e9), network("eth1", 2.5)];
        let round = Round {
            networks: network_figures(&Utilisation { networks, ..Utilisation::default() }),
            ..Round::default()
        };
        let mut json = serde_json::to_value(&round).unwrap();
        assert_eq!(json["networks"][0]["out_bytes_per_s"], 1e9);
        assert_eq!(json["networks"][1]["name"], "eth1");
        json.as_object_mut().unwrap().remove("networks");
        let older: Round = serde_json::from_value(json).unwrap();
        assert_eq!(older.networks, []);
    }

    #[test]
    fn what_a_busy_machine_hides_is_not_0() {
        let by_role = [(Role::Generator, 0.4), (Role::Kernel, 0.1)].into();
        let seen = Utilisation {
            seconds: 1.0,
            cores_online: 2,
            busy_cores: 2.0,
            by_role,
            sees_kernel_threads: true,
            ..Utilisation::default()
        };
        let machine = |us_per_s: f64, servers| {
            let idle = Idle { us_per_s, kernel_us_per_s: us_per_s, ..Idle::default() };
            cpu_figures(&round(1000.0), &seen, &idle, &[], servers).unwrap().machine_us_per_io
        };
        assert_eq!(machine(1.9e6, Servers::Unseen), None, "the generator alone takes 400 us");
        assert_eq!(machine(1.5e6, Servers::Unseen), Some(500.0));
        assert_eq!(machine(1.5e6, Servers::Some), Some(500.0), "who listens may have others work");
        assert_eq!(machine(1.9e6, Servers::All), Some(400.0));
    }

    #[test]
    fn the_window_of_a_short_run_lies_between_start_and_end() {
        let started = Instant::now();
        let ended = started + 450 * MS;
        let warmup = Duration::ZERO;
        // fio says of a run below its 500 ms nothing, and of that which other hosts make what their clocks say.
        for told in [None, Some(started + 5000 * MS)] {
            let began = beginning((started, ended), None, told, warmup, 300 * MS);
            assert_eq!(began, started + 150 * MS);
            let (from, to) = looked_at(began, 300 * MS).unwrap();
            assert!(from > began && to < ended && to - from >= 200 * MS);
        }
        let told = Some(started + 20 * MS);
        assert_eq!(beginning((started, ended), None, told, warmup, 300 * MS), started + 20 * MS);
        assert_eq!(beginning((started, ended), None, None, warmup, 900 * MS), started);
        assert_eq!(looked_at(started, 60 * MS), None);
        assert_eq!(looked_at(started, 2000 * MS), Some((started + EDGE, started + 1950 * MS)));
    }

    #[test]
    fn who_does_not_say_when_it_began_did_so_when_its_gate_was_opened() {
        let started = Instant::now();
        let (ended, opened) = (started + 9000 * MS, Some(started + 6000 * MS));
        let began = |opened, told| beginning((started, ended), opened, told, 500 * MS, 2000 * MS);
        assert_eq!(began(opened, None), started + 6500 * MS);
        assert_eq!(began(None, None), started + START_TIME + 500 * MS);
        assert_eq!(began(opened, Some(started + 6700 * MS)), started + 6700 * MS);
    }

    #[test]
    fn drives_of_what_is_elsewhere_are_not_sampled() {
        assert_eq!(drives_to_sample(&[], false), Some(Vec::new()));
        assert_eq!(drives_to_sample(&[], true), None, "all: it may be on any of them");
        let in_memory = PathBuf::from("/dev/shm/file");
        if lies_in_memory(&in_memory) {
            assert_eq!(drives_to_sample(&[in_memory], true), Some(Vec::new()));
        }
    }

    #[test]
    fn memory_that_hardly_changes_does_not_grow() {
        assert_eq!(grown(1 << 30, 1 << 30), None);
        assert_eq!(grown(1 << 30, 1 << 29), None);
        assert_eq!(grown(1000, 1015), None);
        assert_eq!(grown(0, 1 << 30), None, "nothing was seen before");
        assert_eq!(grown(1 << 29, 1 << 30), Some(1.0));
    }

    #[test]
    fn short_runs_are_sampled_more_often() {
        assert_eq!(sample_interval_ms(20.0), 250);
        assert_eq!(sample_interval_ms(1.0), 125);
        assert_eq!(sample_interval_ms(0.3), 50);
        assert_eq!([20.0, 4.0, 3.0, 1.2, 0.3].map(detail_interval_ms), [1000, 1000, 750, 300, 300]);
    }

    #[test]
    fn the_first_sample_of_a_long_run_is_kept_to_its_end() {
        assert_eq!(sample_interval_ms(1000.0), 250);
        assert_eq!(sample_interval_ms(3600.0), 900);
        assert_eq!(sample_interval_ms(86_400.0), 21_600);
        assert_eq!(sample_interval_ms(1e6), 60_000, "what the sampler takes at most");
    }
}
