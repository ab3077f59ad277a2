//! One run from start to report: open, fill, idle baseline, warm-up, measurement, verification.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Barrier, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::config::{IoBenchConfig, Range, TargetSpec};
use crate::error::{BenchError, TargetError};
use crate::ledger::{Findings, Ledger, LedgerPart};
use crate::payload::{Payload, Versions, run_number};
use crate::random::{Offsets, Random, split};
use crate::recorder::{Live, Recorder};
use crate::report::{IoReport, OperationReport, REPORT_VERSION, SecondSample};
use crate::sweep;
use crate::target::{self, Lane, LaneOptions, Readiness, Target};
use crate::watch::{Watch, Watched};
use crate::worker::{self, Job, JobResult, Pace, Stop};
use coquina_host::{DriveCounter, Environment, monotonic_ns};

/// Number of the fill among the jobs.
const FILL_JOB: u8 = 255;
/// Whether the caller stops is asked so often before the load begins.
const START_POLL: Duration = Duration::from_millis(50);

/// What a run is doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Writes the whole range.
    Fill,
    /// Looks at the idle machine.
    Baseline,
    /// Load that is not counted.
    WarmUp,
    /// Load that is counted.
    Measure,
    /// Reads everything back.
    Verify,
}

impl std::fmt::Display for Phase {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Phase::Fill => "fill",
            Phase::Baseline => "idle baseline",
            Phase::WarmUp => "warm-up",
            Phase::Measure => "run",
            Phase::Verify => "verify",
        })
    }
}

/// The state of a run, five times a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// What it is doing.
    pub phase: Phase,
    /// How much of the phase is done, 0 to 1.
    pub fraction: f64,
    /// Operations per second since the last call.
    pub iops: f64,
    /// Bytes per second since the last call.
    pub bytes_per_s: f64,
    /// Mean latency since the last call.
    pub latency_ns_mean: f64,
    /// Failed operations so far.
    pub errors: u64,
}

/// Reads a counter of bytes written to the drives behind a target.
pub type DriveProbe<'a> = &'a mut dyn FnMut() -> Option<u64>;

/// How the caller watches and stops a run.
pub struct Hooks<'a> {
    /// Called about every 200 ms.
    pub progress: &'a mut dyn FnMut(&Progress),
    /// Set it to end the run early; what was measured up to then is reported.
    pub stop: &'a AtomicBool,
    /// Read at the start and the end of the measured time, for targets whose drives the server knows.
    pub drive_write_bytes: Option<DriveProbe<'a>>,
}

/// What a run leaves.
pub struct IoOutcome {
    /// The figures.
    pub report: IoReport,
    /// With `verify`: what was written where. It outlives the connection, so that [`verify_ledger`] can check a
    /// server that was killed and started again.
    pub ledger: Option<Ledger>,
}

/// Runs the load. Blocks until it is done.
pub fn run_io(config: &IoBenchConfig, mut hooks: Hooks<'_>) -> Result<IoOutcome, BenchError> {
    config.check()?;
    let target = target::open(config)?;
    let range = config.range(target.size_bytes())?;
    if config.block_bytes > target.io_bytes_max() {
        return Err(
            TargetError::Unsupported("the target does not take operations of this size: lower --bs").into()
        );
    }
    let payload = Arc::new(Payload::new(config.seed));
    let run = run_number();
    let filled = prepare(target.as_ref(), config, range, &payload, run, &mut hooks)?;
    let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let probe = hooks.drive_write_bytes.take();
    let counters = target.local_path().map_or(Vec::new(), |path| DriveCounter::under(&path));
    let mut watch = Watch::new(config, counters, probe);
    watch.baseline(config.baseline, hooks.progress, hooks.stop)?;
    let setup = Setup { config, range, payload: &payload, run, filled, target: target.as_ref() };
    let (results, watched) = setup.run_jobs(&mut watch, &mut hooks)?;
    let environment = Environment::here(target.local_path().as_deref());
    let (mut report, ledger) = assemble(config, range, results, &watched, environment);
    report.began_unix_s = began.as_secs();
    if let Some(ledger) = &ledger
        && report.interrupted.is_none()
    {
        let checked = sweep_check(target.as_ref(), ledger, &payload, &mut hooks);
        note_check(&mut report, checked);
    }
    Ok(IoOutcome { report, ledger })
}

/// Reads back everything that a run with `verify` wrote, after whatever has happened to the server since.
pub fn verify_ledger(
    config: &IoBenchConfig,
    ledger: &Ledger,
    mut hooks: Hooks<'_>,
) -> Result<Findings, BenchError> {
    let read_only = IoBenchConfig { workload: crate::Workload::RandRead, fill: false, ..config.clone() };
    let target = target::open(&read_only)?;
    let payload = Payload::new(ledger.seed);
    sweep_check(target.as_ref(), ledger, &payload, &mut hooks)
}

fn note_check(report: &mut IoReport, checked: Result<Findings, BenchError>) {
    match checked {
        Ok(found) => report.verify.get_or_insert_default().merge(found),
        Err(error) => report.interrupted = Some(format!("verification: {error}")),
    }
}

fn sweep_check(
    target: &dyn Target,
    ledger: &Ledger,
    payload: &Payload,
    hooks: &mut Hooks<'_>,
) -> Result<Findings, BenchError> {
    let total = ledger.range().map_or(0, |range| range.length_bytes);
    let mut ticker = Ticker::new(Phase::Verify, total);
    sweep::check(target, ledger, payload, hooks.stop, &mut |done| ticker.tick(done, hooks.progress))
}

/// Writes the range where that is asked for or needed; gives the version that is then everywhere, or 0.
fn prepare(
    target: &dyn Target,
    config: &IoBenchConfig,
    range: Range,
    payload: &Payload,
    run: u16,
    hooks: &mut Hooks<'_>,
) -> Result<u64, BenchError> {
    let must_fill =
        config.fill || target.readiness(range.offset_bytes, range.length_bytes)? == Readiness::MustFill;
    if !must_fill {
        return Ok(0);
    }
    let version = Versions::new(run, FILL_JOB).next();
    let mut ticker = Ticker::new(Phase::Fill, range.length_bytes);
    sweep::fill(target, range, payload, version, hooks.stop, &mut |done| ticker.tick(done, hooks.progress))?;
    Ok(version)
}

/// Progress of a sweep.
struct Ticker {
    phase: Phase,
    total_bytes: u64,
    last_bytes: u64,
    last: Instant,
}

impl Ticker {
    fn new(phase: Phase, total_bytes: u64) -> Self {
        Ticker { phase, total_bytes, last_bytes: 0, last: Instant::now() }
    }

    fn tick(&mut self, done_bytes: u64, progress: &mut dyn FnMut(&Progress)) {
        let elapsed_s = self.last.elapsed().as_secs_f64();
        if elapsed_s < 0.2 {
            return;
        }
        let bytes_per_s = (done_bytes - self.last_bytes) as f64 / elapsed_s;
        let fraction = done_bytes as f64 / self.total_bytes.max(1) as f64;
        progress(&Progress {
            phase: self.phase,
            fraction,
            iops: 0.0,
            bytes_per_s,
            latency_ns_mean: 0.0,
            errors: 0,
        });
        (self.last, self.last_bytes) = (Instant::now(), done_bytes);
    }
}

/// What all jobs share.
struct Setup<'a> {
    config: &'a IoBenchConfig,
    range: Range,
    payload: &'a Arc<Payload>,
    run: u16,
    filled: u64,
    target: &'a dyn Target,
}

impl Setup<'_> {
    /// Starts a thread per job, watches them, and gathers what they leave.
    fn run_jobs(
        &self,
        watch: &mut Watch<'_>,
        hooks: &mut Hooks<'_>,
    ) -> Result<(Vec<JobResult>, Watched), BenchError> {
        let jobs = self.config.jobs;
        let live: Vec<Live> = (0..jobs).map(|_| Live::default()).collect();
        // Set when the caller stops the run, or when a job could not be started.
        let stop = Stop::new();
        let gate = Gate::new(jobs as usize);
        std::thread::scope(|scope| {
            let mut handles = Vec::new();
            for (number, live) in live.iter().enumerate() {
                let (gate, stop) = (&gate, &stop);
                let spawned = std::thread::Builder::new()
                    .name(format!("bench-{number}"))
                    .spawn_scoped(scope, move || self.run_job(number as u32, live, gate, stop));
                match spawned {
                    Ok(handle) => handles.push(handle),
                    Err(error) => gate.fail(BenchError::Thread(error)),
                }
            }
            gate.opened(jobs as usize - handles.len());
            let failed = gate.failure();
            if failed.is_none() {
                wait_for_start(self.config, hooks.stop);
            }
            let start = Instant::now();
            let _ = gate.start.set(failed.is_none().then_some(start));
            gate.go.wait();
            let watched = if failed.is_none() {
                let done = || handles.iter().all(|handle| handle.is_finished());
                Some(watch.follow(start, &live, &stop, &done, hooks.progress, hooks.stop))
            } else {
                None
            };
            stop.end_at(start.elapsed());
            let results: Vec<JobResult> =
                handles.into_iter().filter_map(|handle| handle.join().ok().flatten()).collect();
            match (failed, watched) {
                (None, Some(watched)) => Ok((results, watched?)),
                (failed, _) => Err(failed.unwrap_or(BenchError::Stopped)),
            }
        })
    }

    fn run_job(&self, number: u32, live: &Live, gate: &Gate, stop: &Stop) -> Option<JobResult> {
        let lane = match self.open_lane() {
            Ok(lane) => Some(lane),
            Err(error) => {
                gate.fail(error.into());
                None
            }
        };
        gate.ready.wait();
        gate.go.wait();
        let start = gate.start.get().copied().flatten()?;
        Some(worker::run(self.job(number, live, stop, start), lane?))
    }

    fn open_lane(&self) -> Result<Box<dyn Lane>, TargetError> {
        if self.config.rate_iops.is_some() {
            shorten_timer_slack();
        }
        self.target.open_lane(&LaneOptions {
            depth: self.config.depth,
            io_bytes_max: self.config.block_bytes,
            reads: self.config.workload.reads(),
            writes: self.config.workload.writes(),
            durable: self.config.durable,
            busy_poll_ns: self.config.busy_poll_ns,
        })
    }

    fn job<'b>(&'b self, number: u32, live: &'b Live, stop: &'b Stop, start: Instant) -> Job<'b> {
        let config = self.config;
        let mine = split(self.range, config.block_bytes, config.jobs, number);
        let seed = config.seed.wrapping_mul(0x9e37_79b9).wrapping_add(u64::from(number) << 1);
        let range = if config.verify { mine } else { self.range };
        let offsets = if config.workload.is_sequential() {
            Offsets::sequential(mine, config.block_bytes)
        } else {
            Offsets::random(range, config.block_bytes, seed)
        };
        let pace = config.rate_iops.map(|rate| {
            let interval_ns = 1e9 * f64::from(config.jobs) / rate as f64;
            Pace { interval_ns, next_ns: interval_ns * f64::from(number) / f64::from(config.jobs) }
        });
        Job {
            config,
            offsets,
            random: Random::new(seed ^ 1),
            versions: Versions::new(self.run, number as u8),
            payload: Arc::clone(self.payload),
            ledger: config.verify.then(|| LedgerPart::new(mine, self.filled)),
            live,
            stop,
            start,
            pace,
        }
    }
}

/// Holds the jobs back until all have opened their lanes.
struct Gate {
    jobs: usize,
    ready: Barrier,
    go: Barrier,
    start: OnceLock<Option<Instant>>,
    failure: Mutex<Option<BenchError>>,
}

impl Gate {
    fn new(jobs: usize) -> Self {
        Gate {
            jobs,
            ready: Barrier::new(jobs + 1),
            go: Barrier::new(jobs + 1),
            start: OnceLock::new(),
            failure: Mutex::new(None),
        }
    }

    fn fail(&self, error: BenchError) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    fn failure(&self) -> Option<BenchError> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn opened(&self, missing: usize) {
        assert!(missing <= self.jobs);
        self.ready.wait();
    }
}

/// Waits until the load is to begin, or the caller stops.
fn wait_for_start(config: &IoBenchConfig, stop: &AtomicBool) {
    while let Some(wait_ns) = config.start_at_ns.and_then(|at_ns| at_ns.checked_sub(monotonic_ns()))
        && wait_ns > 0
        && !stop.load(Relaxed)
    {
        std::thread::sleep(Duration::from_nanos(wait_ns).min(START_POLL));
    }
}

/// Lets this thread's timed waits end on time instead of up to 50 us late.
fn shorten_timer_slack() {
    // SAFETY: prctl with this option takes a number and touches no memory.
    #[allow(unsafe_code)]
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1u64);
    }
}

/// Puts the jobs' figures together.
fn assemble(
    config: &IoBenchConfig,
    range: Range,
    mut results: Vec<JobResult>,
    watched: &Watched,
    environment: Environment,
) -> (IoReport, Option<Ledger>) {
    let mut merged = Recorder::new(config.runtime);
    results.iter().for_each(|result| merged.merge(&result.recorder));
    let seconds = watched.measured_s;
    // Also those at the end in which nothing was done.
    merged.make_room(seconds.ceil() as usize);
    let read = OperationReport::from_tally(&merged.read, seconds);
    let write = OperationReport::from_tally(&merged.write, seconds);
    let is_mixed = config.workload.reads() && config.workload.writes();
    let written_bytes = merged.write.bytes;
    merged.read.merge(&merged.write);
    let total = OperationReport::from_tally(&merged.read, seconds);
    let failure = results.iter_mut().find_map(|result| result.failure.take());
    let mut findings = Findings::default();
    results.iter_mut().for_each(|result| findings.merge(std::mem::take(&mut result.findings)));
    let amplification = |bytes: u64| (written_bytes > 0).then(|| bytes as f64 / written_bytes as f64);
    let report = IoReport {
        report_version: REPORT_VERSION,
        began_unix_s: 0,
        config: config.clone(),
        range_bytes: range.length_bytes,
        measured_began_unix_ms: watched.began_unix_ms,
        measured_s: seconds,
        cpu: watched.cpu_report(total.operations),
        total,
        read: is_mixed.then_some(read),
        write: is_mixed.then_some(write),
        drive_write_bytes: watched.drive_write_bytes,
        write_amplification: watched.drive_write_bytes.and_then(amplification),
        series: series(&merged, watched),
        operations_by_500_ms: merged.halves[..((seconds * 2.0) as usize).min(merged.halves.len())].to_vec(),
        errors: results.iter().map(|result| result.errors).sum(),
        first_error: results.iter_mut().find_map(|result| result.first_error.take()),
        rate_unmet: results.iter().map(|result| result.rate_unmet).sum(),
        interrupted: failure
            .or_else(|| watched.interrupted.then(|| "stopped before the time was out".to_owned())),
        verify: config.verify.then_some(findings),
        environment,
    };
    let parts = results.into_iter().filter_map(|result| result.ledger).collect();
    (report, config.verify.then_some(Ledger { seed: config.seed, parts }))
}

fn series(merged: &Recorder, watched: &Watched) -> Vec<SecondSample> {
    let whole_seconds = watched.measured_s.round() as usize;
    let samples = merged.seconds.iter().take(whole_seconds).enumerate().map(|(index, second)| SecondSample {
        second: index as u32,
        iops: second.operations,
        bytes: second.bytes,
        latency_ns_mean: second.latency_ns as f64 / second.operations.max(1) as f64,
        cpu_busy_cores: watched.busy_cores.get(index).copied().unwrap_or(0.0),
    });
    samples.collect()
}

/// Whether a target is on this host and can be watched by its drive.
pub fn is_local(target: &TargetSpec) -> bool {
    matches!(target, TargetSpec::File { .. } | TargetSpec::Device { .. })
}
