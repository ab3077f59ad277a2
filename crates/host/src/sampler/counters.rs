//! Counters of the whole host: `/proc/stat`, `/proc/diskstats`, `/proc/net/dev` and `/proc/pressure`.
//!
//! Invariant: readers take text and give counters since the host started; what cannot be read is left out.

use std::fs::File;
use std::os::unix::fs::FileExt;

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
    /// Since Linux 5.5; a drive does one of them at a time.
    pub flushes: Option<Flushes>,
}

/// How often a drive made what it had in its write cache durable, and how long that took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flushes {
    pub count: u64,
    pub busy_ms: u64,
}

/// The named drives of `/proc/diskstats`, in the order of the names. `None` for those that are not there.
pub(super) fn drives(text: &str, names: &[String]) -> Vec<Option<DriveTimes>> {
    let mut found = vec![None; names.len()];
    for line in text.lines() {
        let Some(name) = line.split_ascii_whitespace().nth(2) else { continue };
        if let Some(place) = names.iter().position(|wanted| wanted == name) {
            found[place] = drive(line);
        }
    }
    found
}

/// All names in `/proc/diskstats`.
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
