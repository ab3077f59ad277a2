//! What the network alone costs: a client, a primary and two backups pass 4 KiB writes and answers over loopback TCP,
//! each on a thread of its own with the real reactor, and no engine.
//!
//! Invariants:
//! - a write is answered when both backups have answered, as with three copies;
//! - each node sends all that a turn produced for a peer in one send;
//! - every answer is checked: no write is answered twice or out of thin air.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use coquina_reactor::{SendList, Wait};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::links::{Arrival, Links, broken, joined, socket_pair};
use crate::error::BenchError;
use crate::recorder::latency_histogram;
use crate::table::{format_count, format_ns, plain_table, with_warning};
use coquina_host::{Environment, MachineCpu, ThreadClock};

/// Size of a header and of an answer.
const HEADER_BYTES: usize = 64;
const MAGIC: u32 = 0x7061_7373;
/// Rounds of the largest depth that the primary can keep track of.
const DEPTH_MAX: u32 = 1024;

/// The experiment's parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct MessagePassingConfig {
    /// Writes in flight, one run each.
    pub depths: Vec<u32>,
    /// Bytes of data per write: a multiple of 512, at most 64 KiB.
    pub message_bytes: u32,
    /// Copies, 1 to 5: the primary's and those of the backups.
    pub copies: u32,
    /// Time per run.
    pub runtime: Duration,
}

impl MessagePassingConfig {
    /// Depths 1, 16 and 128, 4 KiB, three copies, 3 s each.
    pub fn new() -> Self {
        MessagePassingConfig {
            depths: vec![1, 16, 128],
            message_bytes: 4096,
            copies: 3,
            runtime: Duration::from_secs(3),
        }
    }

    fn check(&self) -> Result<(), BenchError> {
        let size = self.message_bytes;
        if size == 0 || !size.is_multiple_of(512) || size > 64 << 10 {
            return Err(BenchError::Experiment("messages must be multiples of 512 bytes, at most 64 KiB"));
        }
        if !self.depths.iter().all(|depth| (1..=DEPTH_MAX).contains(depth)) {
            return Err(BenchError::Experiment("use depths of 1 to 1024"));
        }
        if !(1..=5).contains(&self.copies) || self.runtime.is_zero() {
            return Err(BenchError::Experiment("use 1 to 5 copies and a run time above zero"));
        }
        Ok(())
    }
}

impl Default for MessagePassingConfig {
    fn default() -> Self {
        Self::new()
    }
}

/// One depth's figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MessageCell {
    /// Writes in flight.
    pub depth: u32,
    /// Writes answered.
    pub writes: u64,
    /// Writes answered per second.
    pub writes_per_s: f64,
    /// CPU time of the whole machine per write, less the idle share, in microseconds.
    pub cpu_us_per_write: f64,
    /// CPU time of the client's thread per write.
    pub client_us_per_write: f64,
    /// CPU time of the primary's thread per write.
    pub primary_us_per_write: f64,
    /// CPU time of all backups' threads together per write.
    pub backups_us_per_write: f64,
    /// Mean time from a write's start to its answer.
    pub latency_ns_mean: f64,
    /// Its 99th percentile.
    pub latency_ns_p99: u64,
}

/// The experiment's figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MessageReport {
    /// Bytes of data per write.
    pub message_bytes: u32,
    /// Copies.
    pub copies: u32,
    /// Busy time of the idle machine, subtracted.
    pub idle_us_per_s: f64,
    /// One cell per depth.
    pub cells: Vec<MessageCell>,
    /// The machine.
    pub environment: Environment,
}

impl MessageReport {
    /// The cells as a table.
    pub fn to_table(&self) -> String {
        let header =
            ["depth", "writes/s", "CPU us/write", "client", "primary", "backups", "mean latency", "p99"];
        let mut table = plain_table(&header);
        for cell in &self.cells {
            table.add_row([
                cell.depth.to_string(),
                format_count(cell.writes_per_s),
                format!("{:.1}", cell.cpu_us_per_write),
                format!("{:.1}", cell.client_us_per_write),
                format!("{:.1}", cell.primary_us_per_write),
                format!("{:.1}", cell.backups_us_per_write),
                format_ns(cell.latency_ns_mean),
                format_ns(cell.latency_ns_p99 as f64),
            ]);
        }
        with_warning(&table, self.idle_us_per_s)
    }
}

/// Runs the experiment.
pub fn message_passing(
    config: &MessagePassingConfig,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<MessageReport, BenchError> {
    config.check()?;
    let before = MachineCpu::now()?;
    std::thread::sleep(Duration::from_secs(1));
    let after = MachineCpu::now()?;
    let idle_us_per_s = after.busy_us_since(&before) as f64 / after.seconds_since(&before);
    let mut cells = Vec::with_capacity(config.depths.len());
    for depth in config.depths.iter().copied() {
        progress(cells.len(), config.depths.len());
        if stop.load(Relaxed) {
            return Err(BenchError::Stopped);
        }
        cells.push(run_depth(config, depth, idle_us_per_s)?);
    }
    progress(cells.len(), config.depths.len());
    Ok(MessageReport {
        message_bytes: config.message_bytes,
        copies: config.copies,
        idle_us_per_s,
        cells,
        environment: Environment::here(None),
    })
}

fn run_depth(
    config: &MessagePassingConfig,
    depth: u32,
    idle_us_per_s: f64,
) -> Result<MessageCell, BenchError> {
    let message_bytes = config.message_bytes as usize;
    let backups = config.copies as usize - 1;
    let (client_end, primary_end) = socket_pair()?;
    let pairs = (0..backups).map(|_| socket_pair()).collect::<Result<Vec<_>, _>>()?;
    let (to_backups, backup_ends): (Vec<OwnedFd>, Vec<OwnedFd>) = pairs.into_iter().unzip();
    std::thread::scope(|scope| {
        let start = |name: &str| std::thread::Builder::new().name(format!("bench-{name}"));
        let mut backup_threads = Vec::new();
        for end in backup_ends {
            let thread = start("backup").spawn_scoped(scope, move || run_backup(end, message_bytes));
            backup_threads.push(thread.map_err(BenchError::Thread)?);
        }
        let primary = start("primary")
            .spawn_scoped(scope, move || run_primary(primary_end, to_backups, message_bytes))
            .map_err(BenchError::Thread)?;
        let client = start("client")
            .spawn_scoped(scope, move || run_client(client_end, depth, message_bytes, config.runtime))
            .map_err(BenchError::Thread)?;
        let client = joined(client)?;
        let primary_ns = joined(primary)?;
        let backups_ns = backup_threads.into_iter().map(joined).sum::<Result<u64, BenchError>>()?;
        let writes = client.latency_ns.len();
        let per_write = |us: f64| us / writes.max(1) as f64;
        let busy_us = client.busy_us as f64 - idle_us_per_s * client.seconds;
        Ok(MessageCell {
            depth,
            writes,
            writes_per_s: writes as f64 / client.seconds,
            cpu_us_per_write: per_write(busy_us.max(0.0)),
            client_us_per_write: per_write(client.cpu_ns as f64 / 1e3),
            primary_us_per_write: per_write(primary_ns as f64 / 1e3),
            backups_us_per_write: per_write(backups_ns as f64 / 1e3),
            latency_ns_mean: client.latency_ns.mean(),
            latency_ns_p99: client.latency_ns.value_at_quantile(0.99),
        })
    })
}

fn header(number: u64) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..4].copy_from_slice(&MAGIC.to_le_bytes());
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// The number of the first message, if it is whole.
fn first_message(data: &[u8], length: usize) -> Result<Option<u64>, BenchError> {
    if data.len() < length {
        return Ok(None);
    }
    let word = |range: std::ops::Range<usize>| {
        data[range].iter().rev().fold(0u64, |word, byte| word << 8 | u64::from(*byte))
    };
    if word(0..4) != u64::from(MAGIC) {
        return Err(broken("a message does not begin where it should"));
    }
    Ok(Some(word(8..16)))
}

/// Answers every message until the peer closes; gives its thread's CPU time.
fn run_backup(end: OwnedFd, message_bytes: usize) -> Result<u64, BenchError> {
    let mut node = Links::new(vec![end])?;
    loop {
        let mut completions = node.turn(Wait::Forever)?;
        for completion in completions.drain(..) {
            match node.take(completion)?.1 {
                Arrival::Nothing => {}
                Arrival::Closed => return Ok(ThreadClock::now_ns()),
                Arrival::Bytes => {
                    let link = &mut node.links[0];
                    let length = HEADER_BYTES + message_bytes;
                    while let Some(number) = first_message(link.input.data(), length)? {
                        link.next.bytes().extend_from_slice(&header(number));
                        link.input.consume(length);
                    }
                    node.receive(0);
                }
            }
        }
        node.give_back(completions);
    }
}

/// Passes every message on to the backups and answers when all have.
fn run_primary(client: OwnedFd, backups: Vec<OwnedFd>, message_bytes: usize) -> Result<u64, BenchError> {
    let copies = backups.len() as u8;
    let mut node = Links::new(std::iter::once(client).chain(backups).collect())?;
    // Answers still to come, by number modulo the largest depth: the client never has more in flight.
    let mut missing = vec![0u8; DEPTH_MAX as usize];
    loop {
        let mut completions = node.turn(Wait::Forever)?;
        for completion in completions.drain(..) {
            match node.take(completion)? {
                (_, Arrival::Nothing) => {}
                (_, Arrival::Closed) => return Ok(ThreadClock::now_ns()),
                (0, Arrival::Bytes) => pass_on(&mut node, message_bytes, copies, &mut missing)?,
                (index, Arrival::Bytes) => gather(&mut node, index, &mut missing)?,
            }
        }
        node.give_back(completions);
    }
}

fn pass_on(node: &mut Links, message_bytes: usize, copies: u8, missing: &mut [u8]) -> Result<(), BenchError> {
    let length = HEADER_BYTES + message_bytes;
    let Some((client, backups)) = node.links.split_first_mut() else { return Ok(()) };
    while let Some(number) = first_message(client.input.data(), length)? {
        let count = &mut missing[number as usize % DEPTH_MAX as usize];
        if *count != 0 {
            return Err(broken("a write came before the one with its place was answered"));
        }
        *count = copies;
        for backup in &mut *backups {
            backup.next.bytes().extend_from_slice(&client.input.data()[..length]);
        }
        if copies == 0 {
            client.next.bytes().extend_from_slice(&header(number));
        }
        client.input.consume(length);
    }
    node.receive(0);
    Ok(())
}

fn gather(node: &mut Links, index: usize, missing: &mut [u8]) -> Result<(), BenchError> {
    while let Some(number) = first_message(node.links[index].input.data(), HEADER_BYTES)? {
        let count = &mut missing[number as usize % DEPTH_MAX as usize];
        if *count == 0 {
            return Err(broken("a backup answered what it was not asked"));
        }
        *count -= 1;
        if *count == 0 {
            node.links[0].next.bytes().extend_from_slice(&header(number));
        }
        node.links[index].input.consume(HEADER_BYTES);
    }
    node.receive(index);
    Ok(())
}

struct ClientFigures {
    latency_ns: Histogram<u64>,
    seconds: f64,
    busy_us: u64,
    cpu_ns: u64,
}

/// Keeps `depth` writes in flight for the run time.
fn run_client(
    end: OwnedFd,
    depth: u32,
    message_bytes: usize,
    runtime: Duration,
) -> Result<ClientFigures, BenchError> {
    let mut node = Links::new(vec![end])?;
    let mut latency_ns = latency_histogram();
    let data = vec![0x5a; message_bytes];
    let before = MachineCpu::now()?;
    let end = before.at + runtime;
    // Numbers are slot + round * DEPTH_MAX, so that a number names its slot.
    let mut slots: Vec<(u64, Instant)> = (0..u64::from(depth)).map(|slot| (slot, before.at)).collect();
    for (number, _) in &slots {
        push_message(&mut node.links[0].next, *number, &data);
    }
    let mut in_flight = depth;
    while in_flight > 0 {
        let mut completions = node.turn(Wait::Forever)?;
        for completion in completions.drain(..) {
            match node.take(completion)?.1 {
                Arrival::Nothing => continue,
                Arrival::Closed => return Err(broken("the primary ended early")),
                Arrival::Bytes => {}
            }
            let now = Instant::now();
            let link = &mut node.links[0];
            while let Some(number) = first_message(link.input.data(), HEADER_BYTES)? {
                link.input.consume(HEADER_BYTES);
                let slot = slots.get_mut((number % u64::from(DEPTH_MAX)) as usize);
                let Some((_, start)) = slot.as_ref().filter(|(expected, _)| *expected == number) else {
                    return Err(broken("an answer to nothing"));
                };
                latency_ns.saturating_record(now.duration_since(*start).as_nanos() as u64);
                if now >= end {
                    in_flight -= 1;
                } else if let Some(slot) = slot {
                    *slot = (number + u64::from(DEPTH_MAX), now);
                    push_message(&mut link.next, slot.0, &data);
                }
            }
            node.receive(0);
        }
        node.give_back(completions);
    }
    let after = MachineCpu::now()?;
    Ok(ClientFigures {
        latency_ns,
        seconds: after.seconds_since(&before),
        busy_us: after.busy_us_since(&before),
        cpu_ns: ThreadClock::now_ns(),
    })
}

fn push_message(list: &mut SendList, number: u64, data: &[u8]) {
    list.bytes().extend_from_slice(&header(number));
    list.bytes().extend_from_slice(data);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_write_is_answered_by_every_number_of_copies() {
        for copies in [1, 2, 3] {
            let config = MessagePassingConfig {
                depths: vec![1, 40],
                copies,
                runtime: Duration::from_millis(20),
                ..MessagePassingConfig::new()
            };
            let report = message_passing(&config, &AtomicBool::new(false), &mut |_, _| {}).unwrap();
            assert!(report.cells.iter().all(|cell| cell.writes >= u64::from(cell.depth)));
            assert!(report.to_table().lines().count() >= 3);
        }
        let bad = MessagePassingConfig { copies: 0, ..MessagePassingConfig::new() };
        assert!(message_passing(&bad, &AtomicBool::new(false), &mut |_, _| {}).is_err());
    }
}
