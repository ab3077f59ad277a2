//! Samples what a host does while a benchmark runs: cores, processes, drives, networks, and limits that are set.
//!
//! Invariants:
//! - busy time is elapsed time less unused time, and that of processes comes from their clocks, to the nanosecond: ticks
//!   miss short work;
//! - a window that begins and ends at marks rests on samples taken there; any other is interpolated between samples;
//! - a sample that fails is left out, and its time counts to the next one;
//! - its threads end with the sampler.

mod counters;
mod history;
mod processes;
mod pulse;
mod stalls;
#[cfg(test)]
mod tests;
mod throttle;
mod utilisation;
mod way;
mod window;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::doctor::{HostRoot, whole_drive};
use crate::drive::{drive_of_path, is_drive, is_virtual_at};
use crate::{HostError, ThreadClock};

use counters::KernelFile;
use history::{Detail, History, Point};
use processes::Processes;
use pulse::Pulse;
use throttle::Hierarchies;
pub use utilisation::{
    DriveUse, NetworkUse, Pressures, ProcessUse, Role, Sample, Throttle, ThrottleKind, Utilisation,
};
use way::Way;
use window::{Drive, Knowledge};

/// What to sample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SamplerSettings {
    /// Time between samples, 10 to 60000.
    pub interval_ms: u64,
    /// Time between looks at processes, threads and control groups, which take longer, in whole intervals; they are looked at at marks as well.
    pub detail_interval_ms: u64,
    /// Kernel names of drives or partitions, such as `vda`. `None` means all whole drives.
    pub drives: Option<Vec<String>>,
    /// Processes to watch from the start, by number.
    pub processes: Vec<(u32, Role)>,
}

impl Default for SamplerSettings {
    fn default() -> Self {
        SamplerSettings { interval_ms: 250, detail_interval_ms: 1000, drives: None, processes: Vec::new() }
    }
}

/// Samples this host on a thread of its own until it is stopped or dropped.
#[derive(Debug)]
pub struct Sampler {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    stop: Condvar,
}

impl Sampler {
    /// Takes the first sample, and starts the thread that takes the others.
    pub fn start(settings: SamplerSettings) -> Result<Sampler, HostError> {
        if !(10..=60_000).contains(&settings.interval_ms) {
            return Err(HostError::Interval { interval_ms: settings.interval_ms });
        }
        let mut state = State::new(&settings)?;
        state.look()?;
        state.processes.forget_absent();
        let shared = Arc::new(Shared { state: Mutex::new(state), stop: Condvar::new() });
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("sampler".into())
            .spawn(move || theirs.run())
            .map_err(|source| HostError::Thread { source })?;
        Ok(Sampler { shared, thread: Some(thread) })
    }

    /// Gives a role to a process, its threads, and its descendants that have no role of their own, later ones as well.
    /// The role counts for all windows, also those that began before. A process that is not there is left out.
    pub fn watch(&self, pid: u32, role: Role) {
        self.watch_all(&[pid], role);
    }

    /// The same for several, with one look at the host.
    pub fn watch_all(&self, pids: &[u32], role: Role) {
        let mut state = self.shared.lock();
        // The processes may be younger than the last sample.
        let _ = state.sample(true);
        pids.iter().for_each(|pid| state.processes.watch(*pid, role));
        state.processes.forget_absent();
        let _ = state.detail();
    }

    /// Takes a sample now. Gives its moment, at which a window can begin or end.
    pub fn mark(&self) -> Instant {
        let mut state = self.shared.lock();
        match state.look() {
            Ok(at) => at,
            // The window is interpolated then.
            Err(_) => Instant::now(),
        }
    }

    /// What the host did between two moments. `None` where no samples reach: before the start, in the future, or so long
    /// ago that they are forgotten; and where the process was stopped meanwhile.
    pub fn window(&self, from: Instant, to: Instant) -> Option<Utilisation> {
        let mut state = self.shared.lock();
        if !state.history.covers(from, to) && to <= Instant::now() {
            let _ = state.look();
        }
        state.knowledge().window(from, to)
    }

    /// Ends the thread.
    pub fn stop(self) {}
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.shared.lock().is_stopped = true;
        self.shared.stop.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut state = self.lock();
        let mut next = Instant::now() + state.interval;
        while !state.is_stopped {
            let now = Instant::now();
            if now < next {
                let wait = self.stop.wait_timeout(state, next - now);
                state = wait.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            let _ = if state.is_look_due() { state.look_again() } else { state.sample(false) };
            // After the machine slept, missed samples are not made up for.
            next = (next + state.interval).max(Instant::now());
        }
    }
}

struct State {
    interval: Duration,
    detail_interval: Duration,
    stat: KernelFile,
    diskstats: Option<KernelFile>,
    networks: Option<KernelFile>,
    pressures: Option<[KernelFile; 2]>,
    drives: Vec<Drive>,
    drive_names: Vec<String>,
    hierarchies: Hierarchies,
    processes: Processes,
    /// What was read of the control groups of a process, by its place.
    groups_known: HashMap<u32, String>,
    pulse: Option<Pulse>,
    pulse_seen_ns: u64,
    history: History,
    is_stopped: bool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("State").field("interval", &self.interval).finish_non_exhaustive()
    }
}

impl State {
    fn new(settings: &SamplerSettings) -> Result<Self, HostError> {
        let mut diskstats = KernelFile::open("/proc/diskstats").ok();
        let text = diskstats.as_mut().and_then(|file| file.read().ok()).unwrap_or_default();
        let drives = choose_drives(settings.drives.as_deref(), &counters::drive_names(text))?;
        let drive_names: Vec<String> = drives.iter().map(|drive| drive.name.clone()).collect();
        let pressure = |name| KernelFile::open(name).ok();
        let mut processes = Processes::default();
        for (pid, role) in &settings.processes {
            processes.watch(*pid, *role);
        }
        Ok(State {
            interval: Duration::from_millis(settings.interval_ms),
            detail_interval: detail_interval(settings),
            stat: KernelFile::open("/proc/stat")?,
            diskstats,
            networks: KernelFile::open("/proc/net/dev").ok(),
            pressures: pressure("/proc/pressure/cpu").zip(pressure("/proc/pressure/io")).map(<[_; 2]>::from),
            drives,
            hierarchies: Hierarchies::here(),
            processes,
            groups_known: HashMap::new(),
            pulse: Pulse::start(&drive_names)?,
            drive_names,
            pulse_seen_ns: 0,
            history: History::default(),
            is_stopped: false,
        })
    }

    /// Takes a sample with everything in it.
    fn look(&mut self) -> Result<Instant, HostError> {
        self.processes.expect_any();
        self.groups_known.clear();
        self.look_again()
    }

    /// The same, but it is taken that processes are in the control groups in which they were, and those that had no children still have none.
    fn look_again(&mut self) -> Result<Instant, HostError> {
        let at = self.sample(true)?;
        let began_ns = ThreadClock::now_ns();
        self.detail();
        self.history.add_sampling_ns(ThreadClock::now_ns() - began_ns);
        Ok(at)
    }

    fn is_look_due(&self) -> bool {
        self.history.last_detail_at().is_none_or(|last| last.elapsed() >= self.detail_interval)
    }

    /// Takes a sample of the host, and of its processes if that is asked for.
    fn sample(&mut self, with_processes: bool) -> Result<Instant, HostError> {
        let began_ns = ThreadClock::now_ns();
        let cores = counters::cores(self.stat.read()?);
        let at = Instant::now();
        let used = with_processes.then(|| self.processes.sample());
        let text = self.diskstats.as_mut().and_then(|file| file.read().ok()).unwrap_or_default();
        let drives = counters::drives(text, &self.drive_names);
        let text = self.networks.as_mut().and_then(|file| file.read().ok()).unwrap_or_default();
        let networks = counters::networks(text);
        let pressure_us = self.pressures.as_mut().and_then(|[cpu, io]| {
            let (cpu_some, _) = counters::pressure(cpu.read().ok()?)?;
            let (io_some, io_full) = counters::pressure(io.read().ok()?)?;
            Some([cpu_some, io_some, io_full])
        });
        let stood_still_ns = self.pulse.as_ref().map(Pulse::stood_still_ns);
        let stalled_ns = self.pulse.as_ref().map(Pulse::stalled_ns).unwrap_or_default();
        let pulse_ns = self.pulse.as_ref().map_or(0, Pulse::used_ns);
        let beats_ns = pulse_ns.saturating_sub(std::mem::replace(&mut self.pulse_seen_ns, pulse_ns));
        self.history.push(Point {
            at,
            cores,
            drives,
            networks,
            pressure_us,
            stood_still_ns,
            stalled_ns,
            used,
            sampling_ns: ThreadClock::now_ns() - began_ns + beats_ns,
        });
        Ok(at)
    }

    /// Looks at threads and control groups of watched processes, as of the last sample. Those that are watched to be told apart have none that
    /// matter: daemons of a store that is not measured at the moment have hundreds of threads, at which to look takes milliseconds.
    fn detail(&mut self) -> Option<()> {
        let at = self.history.last()?.at;
        let mut detail = Detail { at, threads: Vec::new(), allowed: Vec::new(), settings: Vec::new() };
        let mut folders = BTreeSet::new();
        let mut way = Way::new();
        for place in self.processes.at_work() {
            let pid = self.processes.get(place).pid;
            let mut allowed = BTreeSet::new();
            for (thread, ns) in processes::threads(pid, &mut way) {
                detail.threads.push((place, thread, ns));
                allowed.extend(processes::allowed_cores(thread));
            }
            detail.allowed.push((place, allowed.into_iter().collect()));
            let groups = self.groups_known.entry(place).or_insert_with(|| {
                std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default()
            });
            folders.extend(self.hierarchies.folders(groups));
            way.give();
        }
        for (controller, folder, group) in folders {
            detail.settings.extend(throttle::settings(controller, &folder, &group));
        }
        self.history.push_detail(detail);
        Some(())
    }

    fn knowledge(&self) -> Knowledge<'_> {
        Knowledge {
            history: &self.history,
            processes: &self.processes,
            drives: &self.drives,
            interval: self.interval,
        }
    }
}

/// After this time a look at details is due: half an interval before the sample that is to have them, since samples come early and late
/// by a little.
fn detail_interval(settings: &SamplerSettings) -> Duration {
    let samples = settings.detail_interval_ms.div_ceil(settings.interval_ms).max(1);
    Duration::from_millis(samples.saturating_mul(settings.interval_ms) - settings.interval_ms / 2)
}

/// The named drives, or all whole ones.
fn choose_drives(names: Option<&[String]>, all: &[String]) -> Result<Vec<Drive>, HostError> {
    if let Some(name) = names.unwrap_or_default().iter().find(|name| !all.contains(name)) {
        return Err(HostError::UnknownDrive { name: name.clone() });
    }
    let is_partition =
        |name: &str| std::path::Path::new(&format!("/sys/class/block/{name}/partition")).exists();
    let chosen: Vec<&String> = match names {
        Some(names) => names.iter().collect(),
        None => all.iter().filter(|name| is_drive(name) && !is_partition(name)).collect(),
    };
    Ok(chosen.into_iter().map(|name| look_at_drive(&HostRoot::here(), name)).collect())
}

fn look_at_drive(root: &HostRoot, name: &str) -> Drive {
    let number = root.text(&format!("/sys/class/block/{name}/dev")).unwrap_or_default();
    let whole = whole_drive(root, name).unwrap_or_else(|| name.to_owned());
    let says_rotational = root.text(&format!("/sys/block/{whole}/queue/rotational")).as_deref() == Some("1");
    let may_spin = !whole.starts_with("nvme") && !is_virtual_at(root, &whole);
    let queues = |drive: &str| root.names(&format!("/sys/block/{drive}/mq")).len() as u32;
    // Of a drive with hidden ways to it these have the queues.
    let ways = root.names("/sys/block").into_iter();
    let ways = ways.filter(|way| drive_of_path(way).is_some_and(|drive| drive == whole));
    let hardware_queues = queues(&whole) + ways.map(|way| queues(&way)).sum::<u32>();
    Drive { name: name.to_owned(), number, is_rotational: says_rotational && may_spin, hardware_queues }
}
