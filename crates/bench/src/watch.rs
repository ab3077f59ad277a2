//! Watches a run from outside its jobs: CPU, drive, live progress, and the end.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::config::IoBenchConfig;
use crate::error::BenchError;
use crate::recorder::{Live, LiveCounts};
use crate::report::{CpuReport, ProcessCpu};
use crate::run::{DriveProbe, Phase, Progress};
use crate::worker::Stop;
use coquina_host::{DriveCounter, MachineCpu, ProcessClock, process_name};

const TICK: Duration = Duration::from_millis(200);

/// Counters of the machine at one moment.
struct Snapshot {
    machine: MachineCpu,
    client_ns: u64,
    servers_ns: Vec<Option<u64>>,
    drive_write_bytes: Option<u64>,
}

/// What was seen in the measured time.
pub(crate) struct Watched {
    pub measured_s: f64,
    /// When the measured time began, in milliseconds since 1970.
    pub began_unix_ms: u64,
    pub interrupted: bool,
    pub drive_write_bytes: Option<u64>,
    pub busy_cores: Vec<f64>,
    idle_us_per_s: f64,
    busy_us: u64,
    watched_s: f64,
    client_ns: u64,
    servers: Vec<(u32, String, Option<u64>)>,
}

impl Watched {
    /// CPU time shared out among `operations`.
    pub fn cpu_report(&self, operations: u64) -> CpuReport {
        let share = |us: f64| if operations == 0 { 0.0 } else { us / operations as f64 };
        let idle_us = self.idle_us_per_s * self.watched_s;
        let servers = self.servers.iter().map(|(pid, name, ns)| ProcessCpu {
            pid: *pid,
            name: name.clone(),
            us_per_io: ns.map(|ns| share(ns as f64 / 1e3)),
        });
        let servers: Vec<ProcessCpu> = servers.collect();
        CpuReport {
            idle_us_per_s: self.idle_us_per_s,
            machine_us_per_io: Some(self.busy_us as f64 - idle_us)
                .filter(|us| *us > 0.0 && operations > 0)
                .map(share),
            machine_busy_cores: self.busy_us as f64 / 1e6 / self.watched_s.max(1e-9),
            client_us_per_io: share(self.client_ns as f64 / 1e3),
            servers_us_per_io: servers.iter().filter_map(|server| server.us_per_io).sum(),
            servers,
        }
    }
}

/// The watcher.
pub(crate) struct Watch<'a> {
    warmup: Duration,
    runtime: Duration,
    end_after_bytes: u64,
    client: Option<ProcessClock>,
    servers: Vec<(u32, String, Option<ProcessClock>)>,
    /// Of all drives under the target; none where they are not known.
    counters: Vec<DriveCounter>,
    probe: Option<DriveProbe<'a>>,
    idle_us_per_s: f64,
}

impl<'a> Watch<'a> {
    pub fn new(config: &IoBenchConfig, counters: Vec<DriveCounter>, probe: Option<DriveProbe<'a>>) -> Self {
        let servers = config.cpu_pids.iter().map(|pid| (*pid, process_name(*pid), ProcessClock::of(*pid)));
        Watch {
            warmup: config.warmup,
            runtime: config.runtime,
            end_after_bytes: config.end_after_bytes.unwrap_or(u64::MAX),
            client: ProcessClock::of(std::process::id()),
            servers: servers.collect(),
            counters,
            probe,
            idle_us_per_s: 0.0,
        }
    }

    /// Looks at the idle machine.
    pub fn baseline(
        &mut self,
        length: Duration,
        progress: &mut dyn FnMut(&Progress),
        stop: &AtomicBool,
    ) -> Result<(), BenchError> {
        if length.is_zero() {
            return Ok(());
        }
        let before = MachineCpu::now()?;
        while before.at.elapsed() < length {
            if stop.load(Relaxed) {
                return Err(BenchError::Stopped);
            }
            std::thread::sleep(TICK.min(length.saturating_sub(before.at.elapsed())));
            let fraction = before.at.elapsed().as_secs_f64() / length.as_secs_f64();
            progress(&report(Phase::Baseline, fraction, LiveCounts::default(), LiveCounts::default(), 1.0));
        }
        let after = MachineCpu::now()?;
        self.idle_us_per_s = after.busy_us_since(&before) as f64 / after.seconds_since(&before).max(1e-9);
        Ok(())
    }

    fn snapshot(&mut self) -> Result<Snapshot, BenchError> {
        // What is read at once comes first: the probe may ask a whole cluster.
        let machine = MachineCpu::now()?;
        let client_ns = self.client.and_then(ProcessClock::now_ns).unwrap_or(0);
        let servers = self.servers.iter().map(|(_, _, clock)| clock.and_then(ProcessClock::now_ns));
        let servers_ns = servers.collect();
        let from_drives = self.counters.iter().map(DriveCounter::written_bytes).sum::<Option<u64>>();
        let from_drives = from_drives.filter(|_| !self.counters.is_empty());
        let drive_write_bytes = match &mut self.probe {
            Some(probe) => probe(),
            None => from_drives,
        };
        Ok(Snapshot { machine, client_ns, servers_ns, drive_write_bytes })
    }

    /// Follows the jobs to the end of the measured time, or until `done`, or until the caller stops.
    pub fn follow(
        &mut self,
        start: Instant,
        live: &[Live],
        stop_jobs: &Stop,
        done: &dyn Fn() -> bool,
        progress: &mut dyn FnMut(&Progress),
        stop: &AtomicBool,
    ) -> Result<Watched, BenchError> {
        let mut ticks = Ticks { start, last: start, counts: LiveCounts::default(), live, progress };
        let end_after_bytes = self.end_after_bytes;
        let halted = || stop.load(Relaxed) || done();
        let warm_end = start + self.warmup;
        if ticks.until(warm_end, Phase::WarmUp, start, self.warmup, &halted) {
            stop_jobs.end_at(start.elapsed());
        }
        // What the warm-up did is not what was asked for.
        let warm_bytes = if self.warmup.is_zero() { 0 } else { Live::sum(live).bytes };
        let is_enough = || Live::sum(live).bytes - warm_bytes >= end_after_bytes;
        let halted = || halted() || is_enough();
        let first = self.snapshot()?;
        let end = warm_end + self.runtime;
        let mut busy_cores = Vec::with_capacity(self.runtime.as_secs() as usize + 1);
        let mut last = first.machine;
        let mut interrupted = false;
        while !interrupted && Instant::now() < end {
            let second = warm_end + Duration::from_secs(busy_cores.len() as u64 + 1);
            interrupted = ticks.until(second.min(end), Phase::Measure, warm_end, self.runtime, &halted);
            let now = MachineCpu::now()?;
            busy_cores.push(now.busy_us_since(&last) as f64 / 1e6 / now.seconds_since(&last).max(1e-3));
            last = now;
        }
        let interrupted = interrupted && !is_enough();
        // What completes later is not in the figures, as its time is not.
        let stopped_at = Instant::now();
        stop_jobs.end_at(stopped_at.duration_since(start));
        let second = self.snapshot()?;
        let measured = (warm_end, stopped_at.min(end));
        Ok(self.watched(first, second, measured, interrupted, busy_cores))
    }

    /// `began` and `ended` bound the measured time; a load that was stopped in its warm-up has none.
    fn watched(
        &self,
        first: Snapshot,
        last: Snapshot,
        (began, ended): (Instant, Instant),
        interrupted: bool,
        busy_cores: Vec<f64>,
    ) -> Watched {
        // What counts from 0 again was started again.
        let difference = |first: Option<u64>, last: Option<u64>| last?.checked_sub(first?);
        let servers = self.servers.iter().enumerate().map(|(index, (pid, name, _))| {
            (*pid, name.clone(), difference(first.servers_ns[index], last.servers_ns[index]))
        });
        Watched {
            measured_s: ended.saturating_duration_since(began).as_secs_f64(),
            began_unix_ms: unix_ms_of(began),
            interrupted,
            drive_write_bytes: difference(first.drive_write_bytes, last.drive_write_bytes),
            busy_cores,
            idle_us_per_s: self.idle_us_per_s,
            busy_us: last.machine.busy_us_since(&first.machine),
            watched_s: last.machine.seconds_since(&first.machine),
            client_ns: last.client_ns.saturating_sub(first.client_ns),
            servers: servers.collect(),
        }
    }
}

/// A moment of the past, in milliseconds since 1970.
fn unix_ms_of(moment: Instant) -> u64 {
    let then = SystemTime::now().checked_sub(moment.elapsed());
    let since_1970 = then.and_then(|then| then.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
    u64::try_from(since_1970.as_millis()).unwrap_or(u64::MAX)
}

/// Live progress.
struct Ticks<'a> {
    start: Instant,
    last: Instant,
    counts: LiveCounts,
    live: &'a [Live],
    progress: &'a mut dyn FnMut(&Progress),
}

impl Ticks<'_> {
    /// Sleeps to a moment in ticks; true if it was cut short.
    fn until(
        &mut self,
        moment: Instant,
        phase: Phase,
        begin: Instant,
        length: Duration,
        halted: &dyn Fn() -> bool,
    ) -> bool {
        assert!(begin >= self.start);
        loop {
            let now = Instant::now();
            if now >= moment {
                return false;
            }
            if halted() {
                return true;
            }
            let next = (self.last + TICK).max(now);
            std::thread::sleep(next.min(moment).saturating_duration_since(now));
            let now = Instant::now();
            if now < self.last + TICK {
                continue;
            }
            let counts = Live::sum(self.live);
            let fraction =
                now.saturating_duration_since(begin).as_secs_f64() / length.as_secs_f64().max(1e-9);
            let elapsed_s = now.duration_since(self.last).as_secs_f64();
            (self.progress)(&report(phase, fraction.min(1.0), self.counts, counts, elapsed_s));
            (self.last, self.counts) = (now, counts);
        }
    }
}

fn report(phase: Phase, fraction: f64, before: LiveCounts, now: LiveCounts, elapsed_s: f64) -> Progress {
    let operations = now.operations - before.operations;
    Progress {
        phase,
        fraction,
        iops: operations as f64 / elapsed_s,
        bytes_per_s: (now.bytes - before.bytes) as f64 / elapsed_s,
        latency_ns_mean: (now.latency_ns - before.latency_ns) as f64 / operations.max(1) as f64,
        errors: now.errors,
    }
}
