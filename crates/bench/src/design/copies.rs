//! What copies cost: a client writes blocks at random places to a primary, which has one or two backups, over loopback TCP,
//! each on a thread of its own with the real reactor, engine and replication. No map, no protocol for clients, no gateway.
//!
//! Invariants:
//! - a write is answered when it is durable on all copies;
//! - each node sends all that a turn produced for a peer in one send;
//! - every answer is checked: no write is answered twice or out of thin air.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use coquina_base::{BLOCK_BYTES, CHUNK_BLOCKS, ClusterId, DriveId, Id128, LayerId, NodeId, crc32c_block};
use coquina_copies::{Answer, Event, Operation, Payload as Data, Request, ShardCopies, Sink};
use coquina_engine::{Action, FormatOptions, Identity, IoError, IoToken, Shard, ShardConfig, format_drive};
use coquina_reactor::{Completion, DriveFile, DriveOptions, FileId, Payload, SyncDevice, Wait, monotonic_ns};
use coquina_replication::{Config, CopyId, Message, RecoveryToken, Settings, decode_message, encode_message};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::links::{Arrival, Links, broken, joined, socket_pair};
use crate::error::BenchError;
use crate::random::Random;
use crate::recorder::latency_histogram;
use crate::table::{format_count, format_ns, plain_table, with_warning};
use coquina_host::{Environment, MachineCpu, ThreadClock};

/// Bytes before a write's data and of an answer: number, block, checksum.
const HEADER_BYTES: usize = 24;
/// Bytes before a message of a copy: its length and its group.
const FRAME_BYTES: usize = 8;
/// Longest message of a copy that is taken.
const MESSAGE_BYTES_MAX: usize = 8 << 20;
/// Largest depth.
const DEPTH_MAX: u32 = 1024;
/// Depth of the warm-up.
const WARM_UP_DEPTH: u32 = 128;
/// Tokens of the drive begin here.
const DRIVE_TOKENS: u64 = 1 << 32;
/// How often time is told to the groups.
const TICK_NS: u64 = 100_000_000;
const LAYER: LayerId = LayerId(1);

/// The experiment's parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct CopiesConfig {
    /// Folder for the drives' files.
    pub folder: PathBuf,
    /// Copies, one run of all depths each: 1 to 5.
    pub copies: Vec<u32>,
    /// Writes in flight, one run each.
    pub depths: Vec<u32>,
    /// Blocks that are written to, at random.
    pub blocks: u32,
    /// Size of a drive.
    pub drive_bytes: u64,
    /// Placement groups.
    pub groups: u32,
    /// Time per run.
    pub runtime: Duration,
}

impl CopiesConfig {
    /// One, two and three copies, depths 128, 16 and 1, 512 MiB on drives of 2 GiB, 32 groups, 4 s each.
    pub fn new(folder: PathBuf) -> Self {
        CopiesConfig {
            folder,
            copies: vec![1, 2, 3],
            depths: vec![128, 16, 1],
            blocks: 1 << 17,
            drive_bytes: 2 << 30,
            groups: 32,
            runtime: Duration::from_secs(4),
        }
    }

    fn check(&self) -> Result<(), BenchError> {
        if !self.depths.iter().all(|depth| (1..=DEPTH_MAX).contains(depth)) {
            return Err(BenchError::Experiment("use depths of 1 to 1024"));
        }
        if !self.copies.iter().all(|copies| (1..=5).contains(copies)) || self.runtime.is_zero() {
            return Err(BenchError::Experiment("use 1 to 5 copies and a run time above zero"));
        }
        if self.groups == 0 || self.blocks == 0 {
            return Err(BenchError::Experiment("use at least one placement group and one block"));
        }
        Ok(())
    }
}

/// Figures of one depth.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CopiesCell {
    /// Copies.
    pub copies: u32,
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
pub struct CopiesReport {
    /// Busy time of the idle machine, subtracted.
    pub idle_us_per_s: f64,
    /// One cell per number of copies and depth.
    pub cells: Vec<CopiesCell>,
    /// The machine.
    pub environment: Environment,
}

impl CopiesReport {
    /// The cells as a table.
    pub fn to_table(&self) -> String {
        let header = [
            "copies",
            "depth",
            "writes/s",
            "CPU us/write",
            "client",
            "primary",
            "backups",
            "mean latency",
            "p99",
        ];
        let mut table = plain_table(&header);
        for cell in &self.cells {
            table.add_row([
                cell.copies.to_string(),
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
pub fn copies(
    config: &CopiesConfig,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<CopiesReport, BenchError> {
    config.check()?;
    let before = MachineCpu::now()?;
    std::thread::sleep(Duration::from_secs(1));
    let after = MachineCpu::now()?;
    let idle_us_per_s = after.busy_us_since(&before) as f64 / after.seconds_since(&before);
    let total = config.copies.len() * config.depths.len();
    let mut cells = Vec::with_capacity(total);
    for copies in config.copies.iter().copied() {
        let paths: Vec<PathBuf> =
            (1..=copies).map(|copy| config.folder.join(format!("coquina-experiment-copy{copy}"))).collect();
        let remove = || paths.iter().for_each(|path| drop(std::fs::remove_file(path)));
        remove();
        // A drive's file that is written for the first time is zeroed ahead, which costs more than what is measured.
        let mut warm_up = config.drive_bytes / BLOCK_BYTES as u64;
        for depth in config.depths.iter().copied() {
            progress(cells.len(), total);
            if stop.load(Relaxed) {
                remove();
                return Err(BenchError::Stopped);
            }
            let run = |depth, warm_up| run_depth(config, &paths, depth, warm_up, idle_us_per_s);
            let warmed = match std::mem::take(&mut warm_up) {
                0 => Ok(()),
                // A run of its own, so that its threads' time does not count.
                writes => run(WARM_UP_DEPTH, writes).map(drop),
            };
            match warmed.and_then(|()| run(depth, 0)) {
                Ok(cell) => cells.push(cell),
                Err(error) => {
                    remove();
                    return Err(error);
                }
            }
        }
        remove();
    }
    progress(total, total);
    Ok(CopiesReport { idle_us_per_s, cells, environment: Environment::here(Some(&config.folder)) })
}

fn run_depth(
    config: &CopiesConfig,
    paths: &[PathBuf],
    depth: u32,
    warm_up: u64,
    idle_us_per_s: f64,
) -> Result<CopiesCell, BenchError> {
    let run = Run { copies: paths.len() as u32, session: monotonic_ns() };
    let (client_end, primary_end) = socket_pair()?;
    let mut primary_ends = vec![(0, primary_end)];
    let mut backup_ends = Vec::new();
    for copy in 2..=paths.len() as u64 {
        let (near, far) = socket_pair()?;
        primary_ends.push((copy, near));
        backup_ends.push((copy, vec![(1, far)]));
    }
    std::thread::scope(|scope| {
        let start = |name: &str| std::thread::Builder::new().name(format!("bench-{name}"));
        let mut backups = Vec::new();
        for (copy, ends) in backup_ends {
            let path = &paths[copy as usize - 1];
            let thread = start("backup").spawn_scoped(scope, move || run_copy(config, run, copy, path, ends));
            backups.push(thread.map_err(BenchError::Thread)?);
        }
        let primary = start("primary")
            .spawn_scoped(scope, move || run_copy(config, run, 1, &paths[0], primary_ends))
            .map_err(BenchError::Thread)?;
        let client = start("client")
            .spawn_scoped(scope, move || run_client(config, client_end, depth, warm_up))
            .map_err(BenchError::Thread)?;
        // Those first whose failure makes the others end early.
        let backups_ns = backups.into_iter().map(joined).sum::<Result<u64, BenchError>>()?;
        let primary_ns = joined(primary)?;
        let client = joined(client)?;
        let writes = client.latency_ns.len();
        let per_write = |us: f64| us / writes.max(1) as f64;
        let busy_us = client.busy_us as f64 - idle_us_per_s * client.seconds;
        Ok(CopiesCell {
            copies: paths.len() as u32,
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

/// What all copies of a run know.
#[derive(Clone, Copy)]
struct Run {
    copies: u32,
    /// The client's: another one for each run, whose requests begin with 1 again.
    session: u64,
}

/// What a copy's groups have done for them.
struct Hands {
    links: Links,
    /// Whose connection each link is; 0 for the client.
    peers: Vec<u64>,
    drive: FileId,
    session: u64,
    failure: Option<String>,
    reads: Vec<coquina_engine::ReadData>,
}

impl Sink for Hands {
    fn send(&mut self, to: CopyId, group: u32, message: &Message, payload: Data<'_>) {
        let Some(link) = self.peers.iter().position(|peer| *peer == to.0) else { return };
        let out = self.links.output(link);
        let at = out.len();
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&group.to_le_bytes());
        encode_message(message, payload.length_bytes() as u32, out);
        payload.append_to(out);
        let length = (out.len() - at) as u32;
        out[at..at + 4].copy_from_slice(&length.to_le_bytes());
    }

    fn disconnect(&mut self, from: CopyId) {
        self.failure.get_or_insert_with(|| format!("copy {} was to be disconnected", from.0));
    }

    fn answer(&mut self, client: u64, answer: Answer) {
        match answer {
            Answer::Done => {
                if let Some(link) = self.peers.iter().position(|peer| *peer == 0) {
                    self.links.output(link).extend_from_slice(&header(client, 0, 0));
                }
            }
            Answer::Read(data) => self.reads.push(data),
            other => drop(self.failure.get_or_insert_with(|| format!("a write was answered with {other:?}"))),
        }
    }

    fn io(&mut self, action: Action) {
        let reactor = self.links.reactor();
        match action {
            Action::Write { io, offset_bytes, buffer } => {
                reactor.write_at(self.drive, offset_bytes, buffer, true, DRIVE_TOKENS | io.0);
            }
            Action::Read { io, offset_bytes, buffer } => {
                reactor.read_at(self.drive, offset_bytes, buffer, DRIVE_TOKENS | io.0);
            }
            Action::Prewrite { io, offset_bytes, length_bytes } => {
                reactor.write_zeroes(self.drive, offset_bytes, length_bytes, DRIVE_TOKENS | io.0);
            }
            _ => {}
        }
    }

    fn propose(&mut self, group: u32, config: Config) {
        self.failure.get_or_insert_with(|| format!("group {group} proposed {config:?}"));
    }

    fn compare(&mut self, group: u32, _: CopyId, _: RecoveryToken) {
        self.failure.get_or_insert_with(|| format!("group {group} wanted to compare"));
    }

    fn event(&mut self, event: Event) {
        let is_harmless = matches!(
            event,
            Event::Engine(coquina_engine::Event::Checkpoint { .. } | coquina_engine::Event::ScrubDone { .. })
        );
        if !is_harmless {
            self.failure.get_or_insert_with(|| format!("{event:?}"));
        }
    }
}

/// Opens a copy's drive, formatted anew if it is not there.
fn open_shard(config: &CopiesConfig, copy: u64, path: &Path) -> Result<(DriveFile, Shard), BenchError> {
    let is_new = !path.exists();
    let size_bytes = is_new.then_some(config.drive_bytes);
    let drive = DriveFile::open(path, DriveOptions { create_bytes: size_bytes, ..DriveOptions::default() });
    let drive = drive.map_err(broken)?;
    let mut device = SyncDevice::new(&drive);
    if is_new {
        let identity = Identity {
            cluster: ClusterId(Id128([1; 16])),
            node: NodeId(Id128([copy as u8; 16])),
            drive: DriveId(Id128([copy as u8; 16])),
        };
        let options =
            FormatOptions { identity, shards: 1, segment_bytes: 0, prewrite: true, created_unix_ns: 0 };
        format_drive(&mut device, &options).map_err(broken)?;
    }
    let shard_config = ShardConfig { copy, ..ShardConfig::default() };
    let shard = Shard::open(&mut device, 0, 0, shard_config).map_err(broken)?;
    Ok((drive, shard))
}

/// Serves as a copy until the client or the primary is gone; gives its thread's CPU time.
fn run_copy(
    config: &CopiesConfig,
    run: Run,
    copy: u64,
    path: &Path,
    ends: Vec<(u64, OwnedFd)>,
) -> Result<u64, BenchError> {
    let (drive, shard) = open_shard(config, copy, path)?;
    let (peers, ends): (Vec<u64>, Vec<OwnedFd>) = ends.into_iter().unzip();
    let mut links = Links::new(ends)?;
    let descriptor = drive.try_clone_descriptor().map_err(broken)?;
    let file = links.reactor().attach(descriptor);
    let mut hands =
        Hands { links, peers, drive: file, session: run.session, failure: None, reads: Vec::new() };
    let mut copies = ShardCopies::new(shard, monotonic_ns());
    let settings = Settings {
        group: Default::default(),
        copy: CopyId(copy),
        grant_ns: 2_000_000_000,
        drift_ppm: 1_000,
        suspect_ns: 30_000_000_000,
        recover_blocks_max: 16,
        recover_window: 8,
        stream_lag_blocks_max: 256,
    };
    let in_sync: Vec<CopyId> = (1..=u64::from(run.copies)).map(CopyId).collect();
    for group in 1..=config.groups {
        let first = Config { epoch: 1, in_sync: in_sync.clone(), others: Vec::new(), min_copies: 1 };
        copies.open_group(group, settings, first, &mut hands);
    }
    let now_ns = monotonic_ns();
    for peer in hands.peers.clone() {
        if peer != 0 {
            copies.connected(now_ns, CopyId(peer), &mut hands);
        }
    }
    let mut is_serving = copy != 1;
    let mut tick_ns = now_ns;
    loop {
        copies.turn(monotonic_ns(), &mut hands);
        if let Some(failure) = hands.failure.take() {
            return Err(broken(failure));
        }
        while let Some(data) = hands.reads.pop() {
            copies.recycle(data);
        }
        let now_ns = monotonic_ns();
        let wake_ns = copies.next_wake_ns().unwrap_or(u64::MAX).min(tick_ns);
        let wait = if wake_ns <= now_ns { Wait::Poll } else { Wait::Until(wake_ns) };
        let mut completions = hands.links.turn(wait)?;
        let now_ns = monotonic_ns();
        for completion in completions.drain(..) {
            if completion.token >= DRIVE_TOKENS {
                drive_done(&mut copies, completion, &mut hands);
                continue;
            }
            match hands.links.take(completion)? {
                (_, Arrival::Nothing) => {}
                (_, Arrival::Closed) => return Ok(ThreadClock::now_ns()),
                (link, Arrival::Bytes) => arrived(config, &mut copies, &mut hands, link, is_serving, now_ns)?,
            }
        }
        hands.links.give_back(completions);
        if now_ns >= tick_ns {
            tick_ns = now_ns + TICK_NS;
            copies.tick(now_ns, &mut hands);
        }
        if !is_serving && serves_all(config, &copies) {
            is_serving = true;
            if let Some(link) = hands.peers.iter().position(|peer| *peer == 0) {
                arrived(config, &mut copies, &mut hands, link, true, now_ns)?;
            }
        }
    }
}

fn serves_all(config: &CopiesConfig, copies: &ShardCopies) -> bool {
    (1..=config.groups).all(|group| copies.group(group).is_some_and(coquina_replication::Group::is_serving))
}

fn drive_done(copies: &mut ShardCopies, completion: Completion, hands: &mut Hands) {
    let io = IoToken(completion.token - DRIVE_TOKENS);
    let buffer = match completion.payload {
        Payload::Buffer(buffer) => buffer,
        _ => Default::default(),
    };
    let result = completion.result.map(drop).map_err(|errno| IoError(errno.0));
    copies.io_done(io, buffer, result, hands);
}

/// Takes what came on a link.
fn arrived(
    config: &CopiesConfig,
    copies: &mut ShardCopies,
    hands: &mut Hands,
    link: usize,
    is_serving: bool,
    now_ns: u64,
) -> Result<(), BenchError> {
    let peer = hands.peers[link];
    if peer == 0 && !is_serving {
        // Received on when all groups serve.
        return Ok(());
    }
    // What arrives is looked at while answers and messages are queued behind it.
    let mut input = hands.links.take_input(link);
    let mut done = 0;
    loop {
        let data = &input.data()[done..];
        let length = if peer == 0 {
            take_write(config, copies, hands, data, now_ns)
        } else {
            take_message(copies, hands, CopyId(peer), data, now_ns)?
        };
        if length == 0 {
            break;
        }
        done += length;
    }
    input.consume(done);
    hands.links.receive_into(link, input);
    Ok(())
}

/// Takes a write of the client, if all of it is there; gives its length or 0.
fn take_write(
    config: &CopiesConfig,
    copies: &mut ShardCopies,
    hands: &mut Hands,
    data: &[u8],
    now_ns: u64,
) -> usize {
    let length = HEADER_BYTES + BLOCK_BYTES;
    let Some(message) = data.get(..length) else { return 0 };
    let (number, block) = (word(&message[0..8]), word(&message[8..16]) as u32);
    let chunk = block / CHUNK_BLOCKS;
    copies.request(
        now_ns,
        &Request {
            client: number,
            group: chunk % config.groups + 1,
            session: hands.session,
            request: number + 1,
            volume: 1,
            generation: 1,
            layer: LAYER,
            chunk,
            offset_bytes: block % CHUNK_BLOCKS * BLOCK_BYTES as u32,
            length_bytes: BLOCK_BYTES as u32,
            operation: Operation::Write { payload: &message[HEADER_BYTES..], checksums_le: &message[16..20] },
        },
        hands,
    );
    length
}

/// Takes a message of a copy, if all of it is there; gives its length or 0.
fn take_message(
    copies: &mut ShardCopies,
    hands: &mut Hands,
    from: CopyId,
    data: &[u8],
    now_ns: u64,
) -> Result<usize, BenchError> {
    let Some(frame) = data.get(..FRAME_BYTES) else { return Ok(0) };
    let (length, group) = (word(&frame[..4]) as usize, word(&frame[4..]) as u32);
    if !(FRAME_BYTES..=MESSAGE_BYTES_MAX).contains(&length) {
        return Err(broken(format_args!("a message of {length} bytes")));
    }
    let Some(mut body) = data.get(FRAME_BYTES..length) else { return Ok(0) };
    let (message, payload_bytes) = decode_message(&mut body).map_err(broken)?;
    if body.len() != payload_bytes as usize {
        return Err(broken("the data behind a message is not as long as it says"));
    }
    copies.receive(now_ns, from, group, message, body, hands).map_err(broken)?;
    Ok(length)
}

fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

fn header(number: u64, block: u64, checksum: u32) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes[8..16].copy_from_slice(&block.to_le_bytes());
    bytes[16..20].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

struct ClientFigures {
    latency_ns: Histogram<u64>,
    seconds: f64,
    busy_us: u64,
    cpu_ns: u64,
}

/// Keeps `depth` writes in flight for the run time, which begins behind `warm_up` writes.
fn run_client(
    config: &CopiesConfig,
    end: OwnedFd,
    depth: u32,
    warm_up: u64,
) -> Result<ClientFigures, BenchError> {
    let mut links = Links::new(vec![end])?;
    let mut latency_ns = latency_histogram();
    let mut random = Random::new(u64::from(depth) << 32 | monotonic_ns() & 0xffff_ffff);
    let mut data = vec![0x5a; BLOCK_BYTES];
    let mut write = |out: &mut Vec<u8>, number: u64| {
        data[..8].copy_from_slice(&number.to_le_bytes());
        let block = random.below(u64::from(config.blocks));
        out.extend_from_slice(&header(number, block, crc32c_block(&data)));
        out.extend_from_slice(&data);
    };
    // The first write is answered when all groups serve; time counts from then on, or from the end of the warm-up.
    write(links.output(0), 0);
    let mut started: Option<(MachineCpu, u64)> = None;
    let (mut next, mut answered) = (1u64, 0u64);
    let mut starts: Vec<(u64, Instant)> = vec![(0, Instant::now())];
    while !starts.is_empty() {
        let mut completions = links.turn(Wait::Forever)?;
        for completion in completions.drain(..) {
            match links.take(completion)?.1 {
                Arrival::Nothing => continue,
                Arrival::Closed => return Err(broken("the primary ended early")),
                Arrival::Bytes => {}
            }
            let now = Instant::now();
            let mut input = links.take_input(0);
            while input.data().len() >= HEADER_BYTES {
                let number = word(&input.data()[..8]);
                input.consume(HEADER_BYTES);
                let Some(slot) = starts.iter().position(|(known, _)| *known == number) else {
                    return Err(broken("an answer to nothing"));
                };
                let (_, start) = starts.swap_remove(slot);
                answered += 1;
                if started.is_none() && answered > warm_up {
                    started = Some((MachineCpu::now()?, ThreadClock::now_ns()));
                } else if started.is_some() {
                    latency_ns.saturating_record(now.duration_since(start).as_nanos() as u64);
                }
                let begin = started.as_ref().map_or(now, |(before, _)| before.at);
                while now < begin + config.runtime && starts.len() < depth as usize {
                    write(links.output(0), next);
                    starts.push((next, Instant::now()));
                    next += 1;
                }
            }
            links.receive_into(0, input);
        }
        links.give_back(completions);
    }
    let Some((before, cpu_ns)) = started else { return Err(broken("nothing was answered")) };
    let after = MachineCpu::now()?;
    Ok(ClientFigures {
        latency_ns,
        seconds: after.seconds_since(&before),
        busy_us: after.busy_us_since(&before),
        cpu_ns: ThreadClock::now_ns() - cpu_ns,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_write_is_answered_by_every_number_of_copies() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let config = CopiesConfig {
            copies: vec![1, 2, 3],
            depths: vec![40, 1],
            blocks: 4096,
            drive_bytes: 64 << 20,
            groups: 4,
            runtime: Duration::from_millis(200),
            ..CopiesConfig::new(folder.path().to_owned())
        };
        let report = copies(&config, &AtomicBool::new(false), &mut |_, _| {}).unwrap();
        assert_eq!(report.cells.len(), 6);
        assert!(report.cells.iter().all(|cell| cell.writes > 0));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "it cleans up");
        let bad = CopiesConfig { copies: vec![0], ..config };
        assert!(copies(&bad, &AtomicBool::new(false), &mut |_, _| {}).is_err());
    }
}
