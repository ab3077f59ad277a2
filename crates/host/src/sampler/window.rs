//! From samples to what a host did in a window of time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::cpu::ticks_per_s;

use super::history::{Detail, History, Key, Totals, difference};
use super::processes::Processes;
use super::throttle::Setting;
use super::utilisation::{
    DriveUse, NetworkUse, Pressures, ProcessUse, Role, Sample, Throttle, ThrottleKind, Utilisation,
};

/// A process that is not watched is listed from this share of a core on.
const LISTED_CORES_MIN: f64 = 0.01;

/// A drive that is sampled.
#[derive(Clone, Debug)]
pub(super) struct Drive {
    pub name: String,
    /// `major:minor`, as control groups name it.
    pub number: String,
    pub is_rotational: bool,
    /// Ways by which the kernel hands it requests at once; each has flushes of its own.
    pub hardware_queues: u32,
}

/// Samples so many intervals, and so long, apart were interrupted: the process was stopped, or the whole machine.
const GAP_INTERVALS: u32 = 8;
const GAP_MIN: Duration = Duration::from_secs(2);

/// What is known besides the samples.
pub(super) struct Knowledge<'a> {
    pub history: &'a History,
    pub processes: &'a Processes,
    pub drives: &'a [Drive],
    pub interval: Duration,
}

impl Knowledge<'_> {
    /// What the host did between two moments. `None` where samples do not reach.
    pub(super) fn window(&self, from: Instant, to: Instant) -> Option<Utilisation> {
        // Samples may come late where processors are taken.
        let gap_max = (self.interval * GAP_INTERVALS).max(GAP_MIN);
        if from >= to || !self.history.covers(from, to) || self.history.has_gap(from, to, gap_max) {
            return None;
        }
        let seconds = to.duration_since(from).as_secs_f64();
        let grown = difference(&self.history.totals_at(to)?, &self.history.totals_at(from)?);
        let details = self.history.details(from, to);
        let mut window = Utilisation {
            seconds,
            sees_kernel_threads: self.processes.sees_kernel_threads(),
            drives: self.drive_uses(&grown, seconds),
            pressures: pressures(&grown, seconds),
            stood_still: grown.get(&Key::StoodStillNs).map(|ns| (ns / 1e9 / seconds).min(1.0)),
            throttles: self.throttles(&details),
            samples: self.samples(from, to),
            ..Utilisation::default()
        };
        add_cores(&mut window, &grown);
        self.add_processes(&mut window, from, to, &details);
        let (loopback, networks) =
            network_uses(&grown, seconds).into_iter().partition(|network| network.name == "lo");
        window.networks = networks;
        window.loopback = Vec::into_iter(loopback).next();
        Some(window)
    }

    fn drive_uses(&self, grown: &Totals, seconds: f64) -> Vec<DriveUse> {
        let drive = |(place, drive): (usize, &Drive)| {
            let per_s = |key: Key| grown.get(&key).map(|value| value / seconds);
            let share = |key: Key| per_s(key).map(|ms_per_s| (ms_per_s / 1000.0).min(1.0));
            let busy = share(Key::BusyMs(place))?;
            Some(DriveUse {
                name: drive.name.clone(),
                is_rotational: drive.is_rotational,
                read_bytes_per_s: per_s(Key::ReadBytes(place))?,
                write_bytes_per_s: per_s(Key::WrittenBytes(place))?,
                read_iops: per_s(Key::Reads(place))?,
                write_iops: per_s(Key::Writes(place))?,
                busy,
                in_flight_mean: per_s(Key::WeightedMs(place))? / 1000.0,
                flushes_per_s: per_s(Key::Flushes(place)),
                flushing: share(Key::FlushingMs(place)).map(|share| share.min(busy)),
                hardware_queues: drive.hardware_queues,
                stalled: per_s(Key::StalledNs(place)).map(|ns_per_s| (ns_per_s / 1e9).min(1.0)),
            })
        };
        self.drives.iter().enumerate().filter_map(drive).collect()
    }

    fn add_processes(&self, window: &mut Utilisation, from: Instant, to: Instant, details: &[&Detail]) {
        let (mut used, sampling_ns) = self.history.used(from, to);
        window.sampler_cores = sampling_ns / 1e9 / window.seconds;
        let mut by_role: BTreeMap<Role, f64> = Role::ALL.iter().map(|role| (*role, 0.0)).collect();
        for (place, ns) in &used {
            *by_role.entry(self.processes.get(*place).role).or_default() += ns / 1e9 / window.seconds;
        }
        window.kernel_threads_us = (by_role[&Role::Kernel] * window.seconds * 1e6) as u64;
        // What is left is of processes too short to be seen, or hidden. It can be below 0: time is counted to 10 ms.
        let unseen = (window.busy_cores - by_role.values().sum::<f64>()).max(0.0);
        let interrupts = window.interrupt_cores.min(unseen);
        *by_role.entry(Role::Kernel).or_default() += interrupts;
        *by_role.entry(Role::Outside).or_default() += unseen - interrupts;
        window.by_role = by_role;

        let alive =
            |place: &u32| details.iter().any(|detail| detail.allowed.iter().any(|(at, _)| at == place));
        let idle: Vec<u32> = self.processes.all_watched().filter(alive).collect();
        for place in idle {
            used.entry(place).or_insert(0.0);
        }
        for (place, ns) in used {
            let known = self.processes.get(place);
            if !known.is_watched && ns / 1e9 / window.seconds < LISTED_CORES_MIN {
                continue;
            }
            window.processes.push(ProcessUse {
                pid: known.pid,
                name: known.name.clone(),
                role: known.role,
                cpu_us: (ns / 1000.0) as u64,
                busiest_thread_cores: busiest_thread(place, details, to.duration_since(from)),
                allowed_cores: details
                    .iter()
                    .rev()
                    .find_map(|detail| detail.allowed.iter().find(|(at, _)| *at == place))
                    .map(|(_, cores)| cores.clone())
                    .unwrap_or_default(),
            });
        }
        window.processes.sort_by_key(|process| (std::cmp::Reverse(process.cpu_us), process.pid));
        window.cores_allowed = allowed_cores(window);
    }

    fn throttles(&self, details: &[&Detail]) -> Vec<Throttle> {
        let Some(last) = details.last() else { return Vec::new() };
        let throttle = |setting: &Setting| {
            let same = |earlier: &&Setting| {
                (earlier.kind, &earlier.subject, &earlier.group)
                    == (setting.kind, &setting.subject, &setting.group)
            };
            // The group may be younger than the window, or be known only since one of its processes is watched.
            let earlier = details
                .iter()
                .find_map(|detail| Some((detail.at, detail.settings.iter().find(same)?)))
                .filter(|(at, _)| *at < last.at);
            let seconds = earlier.map_or(0.0, |(at, _)| last.at.duration_since(at).as_secs_f64());
            let used = setting.used.zip(earlier.and_then(|(_, earlier)| earlier.used));
            let periods = setting.periods.zip(earlier.and_then(|(_, earlier)| earlier.periods));
            Throttle {
                kind: setting.kind,
                subject: self.subject(setting),
                group: setting.group.clone(),
                limit: setting.limit,
                used: used.map(|(now, then)| (now - then).max(0.0) / seconds),
                throttled_share: periods.and_then(|((all, waited), (all_before, waited_before))| {
                    let all = all.checked_sub(all_before).filter(|all| *all > 0)?;
                    Some(waited.saturating_sub(waited_before) as f64 / all as f64)
                }),
                evidence: setting.evidence.clone(),
            }
        };
        last.settings.iter().map(throttle).collect()
    }

    /// The name of the drive that is limited.
    fn subject(&self, setting: &Setting) -> String {
        if setting.kind == ThrottleKind::Cpu {
            return setting.subject.clone();
        }
        let known = self.drives.iter().find(|drive| drive.number == setting.subject);
        let link = || std::fs::read_link(format!("/sys/dev/block/{}", setting.subject)).ok();
        let linked = || link()?.file_name()?.to_str().map(str::to_owned);
        known.map(|drive| drive.name.clone()).or_else(linked).unwrap_or_else(|| setting.subject.clone())
    }

    /// Steps of the window. Samples that follow closely, as at marks, make one step: idle time is counted to 10 ms.
    fn samples(&self, from: Instant, to: Instant) -> Vec<Sample> {
        let mut moments = self.history.moments(from, to);
        moments.push(to);
        let Some(mut before) = self.history.totals_at(from) else { return Vec::new() };
        let mut began = from;
        let mut samples = Vec::new();
        for (place, at) in moments.iter().enumerate() {
            let seconds = at.duration_since(began).as_secs_f64();
            let is_last = place + 1 == moments.len();
            if seconds < self.interval.as_secs_f64() / 2.0 && !(is_last && samples.is_empty()) {
                continue;
            }
            let Some(totals) = self.history.totals_at(*at) else { continue };
            let mut sample = self.sample(&difference(&totals, &before), seconds);
            sample.at_ms = at.duration_since(from).as_millis() as i64;
            samples.push(sample);
            (before, began) = (totals, *at);
        }
        samples
    }

    fn sample(&self, grown: &Totals, seconds: f64) -> Sample {
        let drives = self.drive_uses(grown, seconds);
        let busiest = |network: &NetworkUse| network.in_bytes_per_s + network.out_bytes_per_s;
        let mut step = Utilisation { seconds, ..Utilisation::default() };
        add_cores(&mut step, grown);
        Sample {
            at_ms: 0,
            busy_cores: step.busy_cores,
            drive_busy: drives.iter().map(|drive| drive.busy).fold(0.0, f64::max),
            read_bytes_per_s: drives.iter().map(|drive| drive.read_bytes_per_s).sum(),
            write_bytes_per_s: drives.iter().map(|drive| drive.write_bytes_per_s).sum(),
            network_bytes_per_s: network_uses(grown, seconds)
                .iter()
                .filter(|network| network.name != "lo")
                .map(busiest)
                .fold(0.0, f64::max),
        }
    }
}

/// Busy time is what is left of the elapsed time.
fn add_cores(window: &mut Utilisation, grown: &Totals) {
    let to_cores = 1.0 / ticks_per_s() as f64 / window.seconds;
    for (key, ticks) in grown {
        match key {
            Key::UnusedTicks(number) => {
                window.core_numbers.push(*number);
                window.per_core_busy.push((1.0 - ticks * to_cores).clamp(0.0, 1.0));
                let interrupts =
                    grown.get(&Key::InterruptTicks(*number)).map_or(0.0, |ticks| ticks * to_cores);
                window.per_core_interrupts.push(interrupts.clamp(0.0, 1.0));
                window.interrupt_cores += interrupts;
            }
            Key::StealTicks(_) => window.steal_cores += ticks * to_cores,
            _ => {}
        }
    }
    window.cores_online = window.core_numbers.len() as u32;
    window.busy_cores = window.per_core_busy.iter().sum();
}

fn network_uses(grown: &Totals, seconds: f64) -> Vec<NetworkUse> {
    let network = |(key, out_bytes): (&Key, &f64)| {
        let Key::OutBytes(name) = key else { return None };
        let in_bytes = grown.get(&Key::InBytes(name.clone()))?;
        (in_bytes + out_bytes > 0.0).then(|| NetworkUse {
            name: name.clone(),
            in_bytes_per_s: in_bytes / seconds,
            out_bytes_per_s: out_bytes / seconds,
            speed_bits_per_s: speed(name),
        })
    };
    grown.iter().filter_map(network).collect()
}

/// The kernel gives -1 or an error where it does not know. What has no device behind it, as the ends of a container's or virtual machine's
/// link, names a speed that is none; that of a bond is the sum of its links.
fn speed(name: &str) -> Option<u64> {
    speed_in(Path::new("/sys/class/net"), name)
}

fn speed_in(interfaces: &Path, name: &str) -> Option<u64> {
    let interface = interfaces.join(name);
    if !interface.join("device").exists() && !interface.join("bonding").exists() {
        return None;
    }
    let text = std::fs::read_to_string(interface.join("speed")).ok()?;
    text.trim().parse::<u64>().ok().filter(|speed| *speed > 0).map(|speed| speed * 1_000_000)
}

fn pressures(grown: &Totals, seconds: f64) -> Option<Pressures> {
    let share = |key: Key| grown.get(&key).map(|us| (us / 1e6 / seconds).min(1.0));
    Some(Pressures {
        cpu_some: share(Key::CpuSomeUs)?,
        io_some: share(Key::IoSomeUs)?,
        io_full: share(Key::IoFullUs)?,
    })
}

/// Cores that the busiest thread of a process used, each thread from its own first detail to its last: one that began with the window is
/// not as idle as before. One that was seen for less than half of the window is taken to have been idle in the rest of that half: it is not
/// what held the window back.
fn busiest_thread(place: u32, details: &[&Detail], window: Duration) -> Option<f64> {
    let mut spans: BTreeMap<u32, [(Instant, u64); 2]> = BTreeMap::new();
    for detail in details {
        for (_, thread, ns) in detail.threads.iter().filter(|(at, ..)| *at == place) {
            let seen = (detail.at, *ns);
            spans.entry(*thread).or_insert([seen; 2])[1] = seen;
        }
    }
    let cores = |[(from, low), (to, high)]: &[(Instant, u64); 2]| {
        let seconds = to.duration_since(*from).max(window / 2).as_secs_f64();
        (to > from).then(|| (high.saturating_sub(*low) as f64 / 1e9 / seconds).min(1.0))
    };
    spans.values().filter_map(cores).max_by(f64::total_cmp)
}

/// Cores on which generators and targets may run; those of all watched processes where there are none.
fn allowed_cores(window: &Utilisation) -> Vec<u32> {
    let of = |is_meant: fn(Role) -> bool| {
        let processes = window.processes.iter().filter(|process| is_meant(process.role));
        processes.flat_map(|process| process.allowed_cores.iter().copied()).collect::<BTreeSet<u32>>()
    };
    let mut cores = of(|role| matches!(role, Role::Generator | Role::Target));
    if cores.is_empty() {
        cores = of(|_| true);
    }
    let is_allowed = |core: &u32| cores.is_empty() || cores.contains(core);
    window.core_numbers.iter().copied().filter(is_allowed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_are_those_of_each_core() {
        let mut grown = Totals::new();
        for (number, unused, interrupts) in [(0, 90, 2), (3, 4, 60)] {
            grown.insert(Key::UnusedTicks(number), (unused * ticks_per_s() / 100) as f64);
            grown.insert(Key::InterruptTicks(number), (interrupts * ticks_per_s() / 100) as f64);
        }
        let mut window = Utilisation { seconds: 1.0, ..Utilisation::default() };
        add_cores(&mut window, &grown);
        let is_near = |found: f64, wanted: f64| (found - wanted).abs() < 1e-9;
        assert_eq!(window.core_numbers, [0, 3]);
        assert!(is_near(window.per_core_interrupts[0], 0.02) && is_near(window.per_core_interrupts[1], 0.6));
        assert!(is_near(window.interrupt_cores, 0.62));
    }

    /// Each hardware queue flushes for itself, and their times are added up.
    #[test]
    fn a_drive_does_not_flush_for_longer_than_it_is_busy() {
        let (history, processes) = (History::default(), Processes::default());
        let drive = |name: &str, hardware_queues| Drive {
            name: name.to_owned(),
            number: String::new(),
            is_rotational: false,
            hardware_queues,
        };
        let drives = [drive("nvme0n1", 3), drive("sda", 1)];
        let interval = Duration::from_millis(250);
        let knowledge = Knowledge { history: &history, processes: &processes, drives: &drives, interval };
        let mut grown = Totals::new();
        for (place, flushing_ms) in [(0, 1050.0), (1, 300.0)] {
            for key in [Key::ReadBytes, Key::WrittenBytes, Key::Reads, Key::Writes, Key::WeightedMs] {
                grown.insert(key(place), 1.0);
            }
            grown.insert(Key::BusyMs(place), 400.0);
            grown.insert(Key::FlushingMs(place), flushing_ms);
        }
        let found: Vec<_> = knowledge
            .drive_uses(&grown, 1.0)
            .iter()
            .map(|drive| (drive.flushing, drive.hardware_queues))
            .collect();
        assert_eq!(found, [(Some(0.4), 3), (Some(0.3), 1)]);
    }

    #[test]
    fn a_made_up_speed_is_none() {
        let interfaces = tempfile::tempdir().unwrap();
        let make = |name: &str, folder: Option<&str>, speed: &str| {
            let interface = interfaces.path().join(name);
            std::fs::create_dir_all(interface.join(folder.unwrap_or(""))).unwrap();
            std::fs::write(interface.join("speed"), speed).unwrap();
        };
        make("eth0", Some("device"), "25000\n");
        make("bond0", Some("bonding"), "50000\n");
        make("veth1", None, "10000\n");
        make("wlan0", Some("device"), "-1\n");
        let speeds =
            ["eth0", "bond0", "veth1", "wlan0", "gone"].map(|name| speed_in(interfaces.path(), name));
        assert_eq!(speeds, [Some(25_000_000_000), Some(50_000_000_000), None, None, None]);
    }

    #[test]
    fn a_thread_counts_from_when_it_was_first_seen() {
        let start = Instant::now();
        let detail = |ms, threads: &[(u32, u64)]| Detail {
            at: start + Duration::from_millis(ms),
            threads: threads.iter().map(|(thread, ms)| (0, *thread, ms * 1_000_000)).collect(),
            allowed: Vec::new(),
            settings: Vec::new(),
        };
        let second = Duration::from_secs(1);
        let of = |details: &[Detail]| busiest_thread(0, &details.iter().collect::<Vec<_>>(), second);
        let is_near =
            |found: Option<f64>, wanted: f64| found.is_some_and(|cores| (cores - wanted).abs() < 1e-9);
        let born_late = [
            detail(0, &[(7, 100)]),
            detail(900, &[(7, 190), (8, 5)]),
            detail(1400, &[(7, 240), (8, 455)]),
            detail(1700, &[(7, 270), (8, 725)]),
        ];
        assert!(is_near(of(&born_late), 0.9), "720 ms in the 800 ms in which it was seen");
        let short = [detail(0, &[(7, 0)]), detail(500, &[(7, 0), (8, 0)]), detail(600, &[(7, 0), (8, 100)])];
        assert!(is_near(of(&short), 0.2), "100 ms, in half of the window");
        assert_eq!(of(&born_late[..1]), None, "nothing is known of what it used");
        assert_eq!(busiest_thread(1, &born_late.iter().collect::<Vec<_>>(), second), None);
    }
}
