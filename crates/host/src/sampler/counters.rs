//! Counters of the whole host: `/proc/stat`, `/proc/diskstats`, `/proc/net/dev` and `/proc/pressure`.
//!
//! Invariant: readers take text and give counters since the host started; what cannot be read is left out.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::drive::drive_of_path;
use crate::{HostError, ProcError};

/// Size of a sector in `/proc/diskstats`, whatever the drive's own.
const DISKSTATS_SECTOR_BYTES: u64 = 512;

/// A core's times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CoreTimes {
    pub number: u32,
    /// Idle, waiting for I/O, and taken by the hypervisor.
    pub unused_ticks: u64,
    pub steal_ticks: u64,
    pub interrupt_ticks: u64,
}

/// The cores of `/proc/stat`, those that are online.
pub(super) fn cores(text: &str) -> Vec<CoreTimes> {
    let lines = text.lines().skip(1).take_while(|line| line.starts_with("cpu"));
    lines.filter_map(core).collect()
}

fn core(line: &str) -> Option<CoreTimes> {
    let mut fields = line.strip_prefix("cpu")?.split_ascii_whitespace();
    let number = fields.next()?.parse().ok()?;
    let mut values = [0u64; 8];
    for value in &mut values {
        *value = fields.next()?.parse().ok()?;
    }
    let [_user, _nice, _system, idle, iowait, irq, softirq, steal] = values;
    let unused_ticks = idle + iowait + steal;
    Some(CoreTimes { number, unused_ticks, steal_ticks: steal, interrupt_ticks: irq + softirq })
}

/// A drive's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DriveTimes {
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub written_bytes: u64,
    pub busy_ms: u64,
    /// Time of all operations added up.
    pub weighted_ms: u64,
    /// Since Linux 5.5; each hardware queue of a drive has one of them under way at a time.
    pub flushes: Option<Flushes>,
}

/// How often a drive made what it had in its write cache durable, and how long that took, of all its hardware queues added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flushes {
    pub count: u64,
    pub busy_ms: u64,
}

impl DriveTimes {
    /// What was done on two ways to one drive.
    fn and(self, other: DriveTimes) -> DriveTimes {
        let flushes = |one: Flushes, other: Flushes| Flushes {
            count: one.count + other.count,
            busy_ms: one.busy_ms + other.busy_ms,
        };
        DriveTimes {
            reads: self.reads + other.reads,
            read_bytes: self.read_bytes + other.read_bytes,
            writes: self.writes + other.writes,
            written_bytes: self.written_bytes + other.written_bytes,
            busy_ms: self.busy_ms + other.busy_ms,
            weighted_ms: self.weighted_ms + other.weighted_ms,
            flushes: self.flushes.zip(other.flushes).map(|(one, other)| flushes(one, other)),
        }
    }

    /// A drive of which this much was done on hidden ways: what it does not count itself is counted there.
    fn by_ways(self, ways: DriveTimes) -> DriveTimes {
        let has_own = self.reads + self.writes > 0;
        let flushes = self.flushes.filter(|flushes| flushes.count > 0).or(ways.flushes);
        DriveTimes { flushes, ..if has_own { self } else { ways } }
    }

    /// The same of a later look than `before`, with times that go on where the kernel's begin again.
    pub(super) fn after(self, before: &DriveTimes) -> DriveTimes {
        let flushes = |now: Flushes, before: Flushes| Flushes {
            busy_ms: continued(before.busy_ms, now.busy_ms),
            ..now
        };
        DriveTimes {
            busy_ms: continued(before.busy_ms, self.busy_ms),
            weighted_ms: continued(before.weighted_ms, self.weighted_ms),
            flushes: match (self.flushes, before.flushes) {
                (Some(now), Some(before)) => Some(flushes(now, before)),
                (now, _) => now,
            },
            ..self
        }
    }
}

/// A time in ms that the kernel shows with 32 bits (`diskstats_show` in `block/genhd.c`), after it was `before`: it begins again every 50 days, and
/// that of all operations added up does so twice a day with a hundred in flight. One that begins anew for another reason, as that of a drive
/// which was taken out, is seldom so near its end.
fn continued(before: u64, shown: u64) -> u64 {
    const HALF: u64 = 1 << 31;
    if shown > u64::from(u32::MAX) {
        return shown;
    }
    let (cycles, last) = (before >> 32, before & u64::from(u32::MAX));
    let has_begun_again = last >= HALF && shown < last - HALF;
    ((cycles + u64::from(has_begun_again)) << 32) + shown
}

/// The named drives of `/proc/diskstats`, in the order of the names. `None` for those that are not there.
pub(super) fn drives(text: &str, names: &[String]) -> Vec<Option<DriveTimes>> {
    let mut found: Vec<Option<DriveTimes>> = vec![None; names.len()];
    let mut ways = found.clone();
    let place_of = |name: &str| names.iter().position(|wanted| wanted == name);
    for line in text.lines() {
        let Some(name) = line.split_ascii_whitespace().nth(2) else { continue };
        if let Some(place) = place_of(name) {
            found[place] = drive(line);
        } else if let Some(place) = drive_of_path(name).and_then(|drive| place_of(&drive))
            && let Some(way) = drive(line)
        {
            ways[place] = Some(ways[place].map_or(way, |others| others.and(way)));
        }
    }
    let with_ways = |(drive, ways): (Option<DriveTimes>, Option<DriveTimes>)| match ways {
        Some(ways) => drive.map(|drive| drive.by_ways(ways)),
        None => drive,
    };
    found.into_iter().zip(ways).map(with_ways).collect()
}

/// All names in `/proc/diskstats`, hidden ways to drives as well.
pub(super) fn drive_names(text: &str) -> Vec<String> {
    text.lines().filter_map(|line| line.split_ascii_whitespace().nth(2)).map(str::to_owned).collect()
}

fn drive(line: &str) -> Option<DriveTimes> {
    let mut values = [0u64; 11];
    let mut fields = line.split_ascii_whitespace().skip(3);
    for value in &mut values {
        *value = fields.next()?.parse().ok()?;
    }
    let [reads, _, read_sectors, _, writes, _, written_sectors, _, _, busy_ms, weighted_ms] = values;
    let read_bytes = read_sectors * DISKSTATS_SECTOR_BYTES;
    let written_bytes = written_sectors * DISKSTATS_SECTOR_BYTES;
    // Four fields of discards lie between.
    let mut fields = fields.skip(4).map_while(|field| field.parse().ok());
    let flushes = fields.next().zip(fields.next()).map(|(count, busy_ms)| Flushes { count, busy_ms });
    Some(DriveTimes { reads, read_bytes, writes, written_bytes, busy_ms, weighted_ms, flushes })
}

/// An interface's counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NetworkBytes {
    pub name: String,
    pub in_bytes: u64,
    pub out_bytes: u64,
}

/// The interfaces of `/proc/net/dev`.
pub(super) fn networks(text: &str) -> Vec<NetworkBytes> {
    let interface = |line: &str| {
        let (name, values) = line.split_once(':')?;
        let mut values = values.split_ascii_whitespace();
        let in_bytes = values.next()?.parse().ok()?;
        let out_bytes = values.nth(7)?.parse().ok()?;
        Some(NetworkBytes { name: name.trim().to_owned(), in_bytes, out_bytes })
    };
    text.lines().filter_map(interface).collect()
}

/// Microseconds in which some task, and all tasks, waited: one file of `/proc/pressure`.
pub(super) fn pressure(text: &str) -> Option<(u64, u64)> {
    let total = |kind: &str| {
        let line = text.lines().find(|line| line.starts_with(kind))?;
        line.split_once("total=")?.1.trim().parse().ok()
    };
    Some((total("some")?, total("full").unwrap_or(0)))
}

/// A file of the kernel that stays open, since it is read again and again.
pub(super) struct KernelFile {
    path: &'static str,
    file: File,
    bytes: Vec<u8>,
}

impl KernelFile {
    pub(super) fn open(path: &'static str) -> Result<Self, HostError> {
        let file = File::open(path).map_err(|source| ProcError { path: path.into(), source })?;
        Ok(KernelFile { path, file, bytes: vec![0; 16 << 10] })
    }

    /// What it says now.
    pub(super) fn read(&mut self) -> Result<&str, HostError> {
        let failed = |source| HostError::Proc(ProcError { path: self.path.into(), source });
        let mut filled = 0;
        loop {
            if filled == self.bytes.len() {
                self.bytes.resize(filled * 2, 0);
            }
            let count = self.file.read_at(&mut self.bytes[filled..], filled as u64).map_err(failed)?;
            if count == 0 {
                break;
            }
            filled += count;
        }
        std::str::from_utf8(&self.bytes[..filled]).map_err(|_| failed(std::io::ErrorKind::InvalidData.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drives_of(text: &str, name: &str) -> DriveTimes {
        drives(text, &[name.to_owned()])[0].unwrap()
    }

    #[test]
    fn what_is_counted_at_hidden_ways_is_the_drive_s() {
        let ways = "0 0 nvme0c0n1 10 0 80 5 20 0 160 6 0 100 300 0 0 0 0 4 40\n\
                    0 0 nvme0c1n1 1 0 8 5 2 0 16 6 0 10 30 0 0 0 0 1 5\n\
                    0 0 nvme0c0n2 7 0 8 5 7 0 16 6 0 10 30 0 0 0 0 1 5\n";
        let text = format!("259 0 nvme0n1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n{ways}");
        let found = drives_of(&text, "nvme0n1");
        assert_eq!(
            (found.reads, found.writes, found.read_bytes, found.written_bytes),
            (11, 22, 88 * 512, 176 * 512)
        );
        assert_eq!((found.busy_ms, found.weighted_ms), (110, 330));
        assert_eq!(found.flushes, Some(Flushes { count: 5, busy_ms: 45 }));
        // Since Linux 6.4 it counts itself, but no flushes.
        let text = format!("{ways}259 0 nvme0n1 11 0 90 0 22 0 180 0 0 105 320 0 0 0 0 0 0\n");
        let found = drives_of(&text, "nvme0n1");
        assert_eq!(
            (found.reads, found.read_bytes, found.busy_ms, found.weighted_ms),
            (11, 90 * 512, 105, 320)
        );
        assert_eq!(found.flushes, Some(Flushes { count: 5, busy_ms: 45 }));
        assert_eq!(drives(ways, &["nvme0n1".to_owned(), "sda".to_owned()]), [None, None]);
    }

    #[test]
    fn times_that_begin_again_go_on() {
        let of = |busy_ms: u64, weighted_ms: u64| {
            let line = format!("8 0 sda 1 0 8 5 2 0 16 6 0 {busy_ms} {weighted_ms} 0 0 0 0 4 {busy_ms}\n");
            drives_of(&line, "sda")
        };
        let end = 1_u64 << 32;
        let before = of(100, end - 1000);
        let after = of(350, 31_000).after(&before);
        assert_eq!((after.busy_ms, after.weighted_ms), (350, end + 31_000));
        let later = of(600, 63_000).after(&after);
        assert_eq!(later.weighted_ms - after.weighted_ms, 32_000);
        let flushes = of(5, 0).after(&of(end - 20, 0)).flushes.unwrap();
        assert_eq!((flushes.busy_ms, flushes.count), (end + 5, 4));
        // A drive that was taken out and put in again counts from 0.
        assert_eq!(of(3, 7).after(&of(900, 40_000)).weighted_ms, 7);
    }
}
