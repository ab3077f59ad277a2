//! What was sampled, and what it says of any moment between the first and the last sample.
//!
//! Invariants:
//! - counters grow evenly between two samples, so a moment between them has its share;
//! - times of drives go on where the kernel's begin again;
//! - what only one of two samples knows, such as a core that went offline, is left out of their difference.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::counters::{CoreTimes, DriveTimes, NetworkBytes};
use super::processes::Used;
use super::throttle::Setting;

/// Samples that are kept: half an hour and more at the usual interval, so that longer windows need a longer one. The oldest are forgotten.
const POINTS_MAX: usize = 8192;

/// Counters of the host at a moment.
#[derive(Clone, Debug)]
pub(super) struct Point {
    pub at: Instant,
    pub cores: Vec<CoreTimes>,
    pub drives: Vec<Option<DriveTimes>>,
    pub networks: Vec<NetworkBytes>,
    /// Microseconds in which some task waited for a core, some for a drive, all for a drive.
    pub pressure_us: Option<[u64; 3]>,
    /// For how long the machine has stood still.
    pub stood_still_ns: Option<u64>,
    /// For how long each drive ended nothing though something was in flight; empty where that is not watched.
    pub stalled_ns: Vec<u64>,
    /// What processes used since the last point before at which they were looked at, if they were at this one.
    pub used: Option<Vec<Used>>,
    /// CPU time that sampling took since the point before.
    pub sampling_ns: u64,
}

/// What is looked at less often, since it takes longer.
#[derive(Clone, Debug)]
pub(super) struct Detail {
    pub at: Instant,
    /// Place of the process, number of the thread, CPU time in nanoseconds.
    pub threads: Vec<(u32, u32, u64)>,
    /// Place of the process, and the cores on which any of its threads may run.
    pub allowed: Vec<(u32, Vec<u32>)>,
    pub settings: Vec<Setting>,
}

/// A counter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    UnusedTicks(u32),
    StealTicks(u32),
    InterruptTicks(u32),
    Reads(usize),
    ReadBytes(usize),
    Writes(usize),
    WrittenBytes(usize),
    BusyMs(usize),
    WeightedMs(usize),
    Flushes(usize),
    FlushingMs(usize),
    InBytes(String),
    OutBytes(String),
    CpuSomeUs,
    IoSomeUs,
    IoFullUs,
    StoodStillNs,
    StalledNs(usize),
}

/// Counters by key.
pub(super) type Totals = BTreeMap<Key, f64>;

impl Point {
    fn totals(&self) -> Totals {
        let mut totals = Totals::new();
        for core in &self.cores {
            totals.insert(Key::UnusedTicks(core.number), core.unused_ticks as f64);
            totals.insert(Key::StealTicks(core.number), core.steal_ticks as f64);
            totals.insert(Key::InterruptTicks(core.number), core.interrupt_ticks as f64);
        }
        for (place, drive) in self.drives.iter().enumerate() {
            let Some(drive) = drive else { continue };
            totals.insert(Key::Reads(place), drive.reads as f64);
            totals.insert(Key::ReadBytes(place), drive.read_bytes as f64);
            totals.insert(Key::Writes(place), drive.writes as f64);
            totals.insert(Key::WrittenBytes(place), drive.written_bytes as f64);
            totals.insert(Key::BusyMs(place), drive.busy_ms as f64);
            totals.insert(Key::WeightedMs(place), drive.weighted_ms as f64);
            if let Some(flushes) = drive.flushes {
                totals.insert(Key::Flushes(place), flushes.count as f64);
                totals.insert(Key::FlushingMs(place), flushes.busy_ms as f64);
            }
        }
        for network in &self.networks {
            totals.insert(Key::InBytes(network.name.clone()), network.in_bytes as f64);
            totals.insert(Key::OutBytes(network.name.clone()), network.out_bytes as f64);
        }
        if let Some([cpu_some, io_some, io_full]) = self.pressure_us {
            totals.insert(Key::CpuSomeUs, cpu_some as f64);
            totals.insert(Key::IoSomeUs, io_some as f64);
            totals.insert(Key::IoFullUs, io_full as f64);
        }
        if let Some(stood_still_ns) = self.stood_still_ns {
            totals.insert(Key::StoodStillNs, stood_still_ns as f64);
        }
        for (place, stalled_ns) in self.stalled_ns.iter().enumerate() {
            totals.insert(Key::StalledNs(place), *stalled_ns as f64);
        }
        totals
    }
}

/// What grew from one moment to another.
pub(super) fn difference(later: &Totals, earlier: &Totals) -> Totals {
    let grown = |(key, later): (&Key, &f64)| Some((key.clone(), (later - earlier.get(key)?).max(0.0)));
    later.iter().filter_map(grown).collect()
}

/// Everything that was sampled.
#[derive(Debug, Default)]
pub(super) struct History {
    points: VecDeque<Point>,
    details: VecDeque<Detail>,
}

impl History {
    pub(super) fn push(&mut self, mut point: Point) {
        let before = self.points.back().map(|before| before.drives.as_slice()).unwrap_or_default();
        for (drive, before) in point.drives.iter_mut().zip(before) {
            if let (Some(now), Some(before)) = (&mut *drive, before) {
                *now = now.after(before);
            }
        }
        self.points.push_back(point);
        if self.points.len() > POINTS_MAX {
            self.points.pop_front();
        }
    }

    /// Says what the last sample took besides.
    pub(super) fn add_sampling_ns(&mut self, sampling_ns: u64) {
        if let Some(point) = self.points.back_mut() {
            point.sampling_ns += sampling_ns;
        }
    }

    pub(super) fn push_detail(&mut self, detail: Detail) {
        self.details.push_back(detail);
        if self.details.len() > POINTS_MAX {
            self.details.pop_front();
        }
    }

    pub(super) fn last(&self) -> Option<&Point> {
        self.points.back()
    }

    pub(super) fn last_detail_at(&self) -> Option<Instant> {
        self.details.back().map(|detail| detail.at)
    }

    /// Whether samples, those of processes as well, reach from one moment to another.
    pub(super) fn covers(&self, from: Instant, to: Instant) -> bool {
        let mut looks = self.points.iter().filter(|point| point.used.is_some());
        looks.next().is_some_and(|point| point.at <= from)
            && looks.next_back().is_some_and(|point| point.at >= to)
    }

    /// Whether the sampler was stopped for longer than `gap_max` within this time: what was done in which part of that is not known.
    pub(super) fn has_gap(&self, from: Instant, to: Instant, gap_max: Duration) -> bool {
        self.points.iter().zip(self.points.iter().skip(1)).any(|(before, point)| {
            point.at > from && before.at < to && point.at.duration_since(before.at) > gap_max
        })
    }

    /// Counters at a moment that is covered.
    pub(super) fn totals_at(&self, at: Instant) -> Option<Totals> {
        let next = self.points.partition_point(|point| point.at < at);
        let after = self.points.get(next)?;
        let Some(before) = next.checked_sub(1).and_then(|place| self.points.get(place)) else {
            return (after.at == at).then(|| after.totals());
        };
        let (low, high) = (before.totals(), after.totals());
        let share = share_of(before.at, after.at, at);
        let mixed = |(key, low): (Key, f64)| Some((key.clone(), low + (high.get(&key)? - low) * share));
        Some(low.into_iter().filter_map(mixed).collect())
    }

    /// Moments of the samples between two moments, without these.
    pub(super) fn moments(&self, from: Instant, to: Instant) -> Vec<Instant> {
        self.points.iter().map(|point| point.at).filter(|at| *at > from && *at < to).collect()
    }

    /// Nanoseconds that each process used between two moments, and what sampling took.
    pub(super) fn used(&self, from: Instant, to: Instant) -> (BTreeMap<u32, f64>, f64) {
        let mut used = BTreeMap::new();
        let mut sampling_ns = 0.0;
        let share = |before: &Point, point: &Point| {
            let is_outside = point.at <= from || before.at >= to;
            (!is_outside).then(|| share_of(before.at, point.at, to) - share_of(before.at, point.at, from))
        };
        for (before, point) in self.points.iter().zip(self.points.iter().skip(1)) {
            sampling_ns += point.sampling_ns as f64 * share(before, point).unwrap_or(0.0);
        }
        let looks = || self.points.iter().filter(|point| point.used.is_some());
        for (before, point) in looks().zip(looks().skip(1)) {
            let Some(share) = share(before, point) else { continue };
            for (place, ns) in point.used.iter().flatten() {
                *used.entry(*place).or_insert(0.0) += *ns as f64 * share;
            }
        }
        (used, sampling_ns)
    }

    /// Details within a window. Where there are fewer than two, those around it as well.
    pub(super) fn details(&self, from: Instant, to: Instant) -> Vec<&Detail> {
        let mut first = self.details.partition_point(|detail| detail.at < from);
        let mut end = self.details.partition_point(|detail| detail.at <= to);
        if end - first < 2 {
            first = first.saturating_sub(1);
            end = (end + 1).min(self.details.len());
        }
        self.details.range(first..end).collect()
    }
}

/// Where a moment lies between two others, 0 to 1.
fn share_of(from: Instant, to: Instant, at: Instant) -> f64 {
    let length = to.saturating_duration_since(from).as_secs_f64();
    if length == 0.0 {
        return 1.0;
    }
    (at.saturating_duration_since(from).as_secs_f64() / length).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(at: Instant, unused_ticks: u64, used_ns: u64) -> Point {
        let core = CoreTimes { number: 0, unused_ticks, ..CoreTimes::default() };
        let (drives, networks, used) = (Vec::new(), Vec::new(), Some(vec![(3, used_ns)]));
        Point {
            at,
            cores: vec![core],
            drives,
            networks,
            pressure_us: None,
            stood_still_ns: Some(used_ns / 5),
            stalled_ns: vec![used_ns / 4],
            used,
            sampling_ns: 0,
        }
    }

    #[test]
    fn a_time_that_begins_again_within_a_window_grows() {
        let start = Instant::now();
        let mut history = History::default();
        for (ms, weighted_ms) in [(0, (1 << 32) - 10_000), (1000, 118_000), (2000, 246_000)] {
            let drive = DriveTimes { weighted_ms, ..DriveTimes::default() };
            let at = start + Duration::from_millis(ms);
            history.push(Point { drives: vec![Some(drive)], ..point(at, 0, 0) });
        }
        let at = |ms| history.totals_at(start + Duration::from_millis(ms)).unwrap();
        for (from_ms, to_ms) in [(0, 2000), (0, 500), (500, 2000)] {
            let grown = difference(&at(to_ms), &at(from_ms))[&Key::WeightedMs(0)];
            assert_eq!(grown, f64::from(to_ms as u32 - from_ms as u32) * 128.0, "{from_ms} to {to_ms}");
        }
    }

    #[test]
    fn processes_are_not_looked_at_in_each_sample() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut history = History::default();
        let mut push = |ms, used| {
            history.push(Point { used, sampling_ns: 10, ..point(at(ms), 1000 + ms, 0) });
        };
        push(0, Some(Vec::new()));
        push(100, None);
        push(200, Some(vec![(3, 800)]));
        push(300, None);
        let used = |from, to| {
            let (used, sampling_ns) = history.used(at(from), at(to));
            (used[&3].round(), sampling_ns.round())
        };
        assert_eq!((used(0, 200), used(50, 150)), ((800.0, 20.0), (400.0, 10.0)));
        assert_eq!(used(150, 300).0, 200.0, "up to the last look");
        assert!(
            history.covers(at(0), at(200)) && !history.covers(at(0), at(201)),
            "what is used later is not known"
        );
        assert_eq!(history.totals_at(at(250)).unwrap()[&Key::UnusedTicks(0)], 1250.0);
    }

    #[test]
    fn a_moment_between_samples_has_its_share() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut history = History::default();
        history.push(point(at(0), 1000, 5));
        history.push(point(at(100), 1100, 100));
        history.push(point(at(300), 1100, 1000));
        assert!(history.covers(at(0), at(300)) && !history.covers(at(0), at(301)));
        let has_gap = |from, to| history.has_gap(at(from), at(to), Duration::from_millis(150));
        assert!(
            !has_gap(0, 100) && has_gap(0, 101) && has_gap(150, 300),
            "nothing was sampled from 100 to 300"
        );
        assert_eq!(history.totals_at(at(25)).unwrap()[&Key::UnusedTicks(0)], 1025.0);
        assert_eq!(history.totals_at(at(0)).unwrap()[&Key::UnusedTicks(0)], 1000.0);
        assert!(history.totals_at(at(301)).is_none());
        assert_eq!(history.used(at(50), at(200)).0[&3], 550.0);
        assert_eq!(history.used(at(100), at(300)).0[&3], 1000.0);
        assert_eq!(history.moments(at(0), at(300)), [at(100)]);
        let difference =
            difference(&history.totals_at(at(300)).unwrap(), &history.totals_at(at(50)).unwrap());
        assert_eq!(difference[&Key::UnusedTicks(0)], 50.0);
        assert_eq!(difference[&Key::StoodStillNs], 189.5, "200 less half of the way from 1 to 20");
        assert_eq!(difference[&Key::StalledNs(0)], 237.0, "250 less half of the way from 1 to 25");
    }
}
