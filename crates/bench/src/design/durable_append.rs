//! How to make appended frames durable: `O_DSYNC` frames, or plain frames and a flush that covers several.
//!
//! Each cell appends frames of one size to a file of its own kind of space, a number of them in flight, and counts
//! frames acknowledged, that is on stable storage, and the CPU time of the whole machine.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use coquina_base::{AlignedBuf, BLOCK_BYTES};
use serde::{Deserialize, Serialize};

use crate::error::{BenchError, TargetError};
use crate::payload::{Payload, stamp};
use crate::recorder::latency_histogram;
use crate::table::{format_count, format_ns, plain_table, with_warning};
use crate::target::file::FileLane;
use crate::target::{Completion, Lane, LaneOptions, Operation};
use coquina_host::{Environment, MachineCpu};

const HUNG: Duration = Duration::from_secs(30);

/// What the space is like into which frames are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AppendSpace {
    /// Written once before.
    Prewritten,
    /// Allocated by `fallocate` and never written.
    Fallocated,
    /// Not allocated.
    Sparse,
}

/// How frames are made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AppendMethod {
    /// Each frame is written with `RWF_DSYNC`.
    Dsync,
    /// All frames in flight are written plainly, then one `fdatasync` covers them.
    GroupFlush,
    /// Frames are written plainly; as soon as no `fdatasync` runs, one starts for all that are written by then.
    RollingFlush,
}

/// The experiment's parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct DurableAppendConfig {
    /// Folder for the test file, on the file system in question.
    pub folder: PathBuf,
    /// Kinds of space.
    pub spaces: Vec<AppendSpace>,
    /// Ways to make frames durable.
    pub methods: Vec<AppendMethod>,
    /// Sizes of frames: multiples of 4,096.
    pub frame_bytes: Vec<u32>,
    /// Frames in flight.
    pub in_flight: Vec<u32>,
    /// Time per cell. CPU time is counted by the kernel in steps of 10 ms.
    pub cell_time: Duration,
    /// Size of the test file; a cell on space that was never written ends when it is full.
    pub file_bytes: u64,
}

impl DurableAppendConfig {
    /// All kinds of space and methods, frames of 4 to 256 KiB, 1, 2 and 4 in flight, half a second each.
    pub fn new(folder: PathBuf) -> Self {
        DurableAppendConfig {
            folder,
            spaces: vec![AppendSpace::Prewritten, AppendSpace::Fallocated, AppendSpace::Sparse],
            methods: vec![AppendMethod::Dsync, AppendMethod::GroupFlush, AppendMethod::RollingFlush],
            frame_bytes: vec![4 << 10, 16 << 10, 64 << 10, 256 << 10],
            in_flight: vec![1, 2, 4],
            cell_time: Duration::from_millis(500),
            file_bytes: 512 << 20,
        }
    }

    fn check(&self) -> Result<(), BenchError> {
        let good = |bytes: &u32| *bytes > 0 && bytes.is_multiple_of(BLOCK_BYTES as u32) && *bytes <= 4 << 20;
        let largest = self.frame_bytes.iter().max().copied().unwrap_or(0);
        if !self.frame_bytes.iter().all(good) || largest == 0 {
            return Err(BenchError::Experiment("frames must be multiples of 4096 bytes, at most 4 MiB"));
        }
        if !self.in_flight.iter().all(|count| (1..=64).contains(count)) {
            return Err(BenchError::Experiment("1 to 64 frames can be in flight"));
        }
        if self.file_bytes < u64::from(largest) * 64 {
            return Err(BenchError::Experiment("the test file must hold at least 64 of the largest frames"));
        }
        Ok(())
    }
}

/// One cell's figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AppendCell {
    /// Kind of space.
    pub space: AppendSpace,
    /// How frames were made durable.
    pub method: AppendMethod,
    /// Size of a frame.
    pub frame_bytes: u32,
    /// Frames in flight.
    pub in_flight: u32,
    /// Frames acknowledged.
    pub frames: u64,
    /// Frames acknowledged per second.
    pub frames_per_s: f64,
    /// CPU time of the whole machine per frame, less the idle share, in microseconds.
    pub cpu_us_per_frame: f64,
    /// Mean time from a frame's start to its acknowledgement.
    pub latency_ns_mean: f64,
    /// Its 99th percentile.
    pub latency_ns_p99: u64,
}

/// The experiment's figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AppendReport {
    /// Busy time of the idle machine, subtracted.
    pub idle_us_per_s: f64,
    /// All cells.
    pub cells: Vec<AppendCell>,
    /// The machine.
    pub environment: Environment,
}

/// Runs the experiment. `progress` is called before each cell with how many are done and how many there are.
pub fn durable_append(
    config: &DurableAppendConfig,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<AppendReport, BenchError> {
    config.check()?;
    let path = config.folder.join(format!("coquina-durable-append-{}", std::process::id()));
    let _remover = Remover(&path);
    let payload = Payload::new(1);
    let before = MachineCpu::now()?;
    std::thread::sleep(Duration::from_secs(1));
    let after = MachineCpu::now()?;
    let idle_us_per_s = after.busy_us_since(&before) as f64 / after.seconds_since(&before);
    let total =
        config.spaces.len() * config.methods.len() * config.frame_bytes.len() * config.in_flight.len();
    let mut cells = Vec::with_capacity(total);
    for space in config.spaces.iter().copied() {
        let mut file = None;
        for (method, frame_bytes, in_flight) in combinations(config) {
            progress(cells.len(), total);
            if stop.load(Relaxed) {
                return Err(BenchError::Stopped);
            }
            // Space that was never written is so only once.
            if space != AppendSpace::Prewritten {
                file = None;
            }
            let file = match &file {
                Some(file) => Arc::clone(file),
                None => {
                    Arc::clone(file.insert(Arc::new(make_file(&path, space, config.file_bytes, &payload)?)))
                }
            };
            let plan = Cell { space, method, frame_bytes, in_flight };
            cells.push(run_cell(plan, file, config, &payload, idle_us_per_s)?);
        }
    }
    progress(total, total);
    let environment = Environment::here(Some(&path));
    Ok(AppendReport { idle_us_per_s, cells, environment })
}

fn combinations(config: &DurableAppendConfig) -> impl Iterator<Item = (AppendMethod, u32, u32)> + '_ {
    config.methods.iter().flat_map(move |method| {
        config.frame_bytes.iter().flat_map(move |frame_bytes| {
            config.in_flight.iter().map(move |in_flight| (*method, *frame_bytes, *in_flight))
        })
    })
}

struct Remover<'a>(&'a Path);

impl Drop for Remover<'_> {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.0);
    }
}

fn make_file(
    path: &Path,
    space: AppendSpace,
    size_bytes: u64,
    payload: &Payload,
) -> Result<File, TargetError> {
    let _ = std::fs::remove_file(path);
    let wrong = |what: &'static str| move |error| TargetError::path(what, path, error);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .custom_flags(libc::O_DIRECT | libc::O_CLOEXEC)
        .open(path)
        .map_err(wrong("cannot make"))?;
    file.set_len(size_bytes).map_err(wrong("cannot extend"))?;
    if space == AppendSpace::Fallocated {
        let length = i64::try_from(size_bytes).unwrap_or(i64::MAX);
        // SAFETY: the descriptor is open and the call touches no memory.
        #[allow(unsafe_code)]
        let failed = unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, length) };
        if failed != 0 {
            return Err(wrong("cannot allocate")(std::io::Error::last_os_error()));
        }
    }
    if space == AppendSpace::Prewritten {
        let mut buffer = AlignedBuf::zeroed(256);
        payload.fill(&mut buffer, 0);
        let mut at = 0;
        while at < size_bytes {
            let length = (size_bytes - at).min(buffer.len() as u64) as usize;
            std::os::unix::fs::FileExt::write_all_at(&file, &buffer[..length], at)
                .map_err(wrong("cannot write"))?;
            at += length as u64;
        }
    }
    file.sync_all().map_err(wrong("cannot sync"))?;
    Ok(file)
}

#[derive(Clone, Copy)]
struct Cell {
    space: AppendSpace,
    method: AppendMethod,
    frame_bytes: u32,
    in_flight: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FrameState {
    Idle,
    Writing,
    Written,
    /// Written before the running flush began.
    Flushing,
}

/// Appends frames in one cell.
struct Appender<'a> {
    lane: FileLane,
    cell: Cell,
    payload: &'a Payload,
    frames: Vec<(FrameState, Instant)>,
    is_flushing: bool,
    next_bytes: u64,
    file_bytes: u64,
    is_full: bool,
    acknowledged: u64,
    latency_ns: hdrhistogram::Histogram<u64>,
}

fn run_cell(
    cell: Cell,
    file: Arc<File>,
    config: &DurableAppendConfig,
    payload: &Payload,
    idle_us_per_s: f64,
) -> Result<AppendCell, BenchError> {
    let options = LaneOptions {
        // One slot more, for the flush.
        depth: cell.in_flight + 1,
        io_bytes_max: cell.frame_bytes,
        reads: false,
        writes: true,
        durable: cell.method == AppendMethod::Dsync,
        busy_poll_ns: 0,
    };
    let mut appender = Appender {
        lane: FileLane::new(file, &options)?,
        cell,
        payload,
        frames: vec![(FrameState::Idle, Instant::now()); cell.in_flight as usize],
        is_flushing: false,
        next_bytes: 0,
        file_bytes: config.file_bytes,
        is_full: false,
        acknowledged: 0,
        latency_ns: latency_histogram(),
    };
    appender.fill_buffers();
    let before = MachineCpu::now()?;
    appender.run(before.at + config.cell_time)?;
    let after = MachineCpu::now()?;
    let seconds = after.seconds_since(&before);
    let busy_us = (after.busy_us_since(&before) as f64 - idle_us_per_s * seconds).max(0.0);
    let frames = appender.acknowledged;
    Ok(AppendCell {
        space: cell.space,
        method: cell.method,
        frame_bytes: cell.frame_bytes,
        in_flight: cell.in_flight,
        frames,
        frames_per_s: frames as f64 / seconds,
        cpu_us_per_frame: busy_us / frames.max(1) as f64,
        latency_ns_mean: appender.latency_ns.mean(),
        latency_ns_p99: appender.latency_ns.value_at_quantile(0.99),
    })
}

impl Appender<'_> {
    fn first_body(&self, slot: u32) -> usize {
        slot as usize * self.cell.frame_bytes as usize / BLOCK_BYTES
    }

    fn fill_buffers(&mut self) {
        for slot in 0..self.cell.in_flight {
            let body = self.first_body(slot);
            self.payload.fill(self.lane.write_buffer(slot), body);
        }
    }

    fn run(&mut self, end: Instant) -> Result<(), TargetError> {
        let mut completions = Vec::with_capacity(self.frames.len() + 1);
        let mut progress = Instant::now();
        loop {
            let now = Instant::now();
            // At least one frame, however late this thread runs for the first time.
            let stopping = (now >= end && self.next_bytes > 0) || self.is_full;
            let is_idle = self.frames.iter().all(|(state, _)| *state == FrameState::Idle);
            if stopping && is_idle && !self.is_flushing {
                return Ok(());
            }
            if !stopping {
                self.start_frames(now);
            }
            self.start_flush(stopping);
            self.lane.turn(Duration::from_millis(200), &mut completions)?;
            if !completions.is_empty() {
                progress = Instant::now();
            } else if progress.elapsed() > HUNG {
                return Err(TargetError::Hung { outstanding: self.frames.len(), seconds: HUNG.as_secs() });
            }
            for completion in completions.drain(..) {
                self.complete(completion)?;
            }
        }
    }

    fn start_frames(&mut self, now: Instant) {
        // A group starts as a whole once the last one is acknowledged.
        let is_group = self.cell.method == AppendMethod::GroupFlush;
        if is_group && self.frames.iter().any(|(state, _)| *state != FrameState::Idle) {
            return;
        }
        for slot in 0..self.cell.in_flight {
            if self.frames[slot as usize].0 != FrameState::Idle {
                continue;
            }
            let length = u64::from(self.cell.frame_bytes);
            if self.next_bytes + length > self.file_bytes {
                if self.cell.space != AppendSpace::Prewritten {
                    self.is_full = true;
                    return;
                }
                self.next_bytes = 0;
            }
            let body = self.first_body(slot);
            let version = self.acknowledged + 1;
            stamp(self.lane.write_buffer(slot), body, self.next_bytes, version);
            self.lane.submit(slot, Operation::Write, self.next_bytes, self.cell.frame_bytes);
            self.frames[slot as usize] = (FrameState::Writing, now);
            self.next_bytes += length;
        }
    }

    fn start_flush(&mut self, stopping: bool) {
        if self.cell.method == AppendMethod::Dsync || self.is_flushing {
            return;
        }
        let count = |wanted| self.frames.iter().filter(|(state, _)| *state == wanted).count();
        let waits_for_group = self.cell.method == AppendMethod::GroupFlush || stopping;
        if count(FrameState::Written) == 0 || (waits_for_group && count(FrameState::Writing) > 0) {
            return;
        }
        for (state, _) in &mut self.frames {
            if *state == FrameState::Written {
                *state = FrameState::Flushing;
            }
        }
        self.lane.submit(self.cell.in_flight, Operation::Flush, 0, 0);
        self.is_flushing = true;
    }

    fn complete(&mut self, completion: Completion) -> Result<(), TargetError> {
        if completion.errno != 0 {
            return Err(TargetError::RingFailed(std::io::Error::from_raw_os_error(completion.errno)));
        }
        let is_flush = completion.slot == self.cell.in_flight;
        if !is_flush {
            let done = if self.cell.method == AppendMethod::Dsync {
                FrameState::Flushing
            } else {
                FrameState::Written
            };
            self.frames[completion.slot as usize].0 = done;
        } else {
            self.is_flushing = false;
        }
        if is_flush || self.cell.method == AppendMethod::Dsync {
            for (state, start) in &mut self.frames {
                if *state == FrameState::Flushing {
                    *state = FrameState::Idle;
                    self.acknowledged += 1;
                    self.latency_ns.saturating_record(start.elapsed().as_nanos() as u64);
                }
            }
        }
        Ok(())
    }
}

impl AppendReport {
    /// The cells as a table.
    pub fn to_table(&self) -> String {
        let header =
            ["space, method", "frame", "in flight", "frames/s", "MiB/s", "CPU us/frame", "mean", "p99"];
        let mut table = plain_table(&header);
        for cell in &self.cells {
            table.add_row([
                format!("{:?}, {:?}", cell.space, cell.method),
                format!("{} KiB", cell.frame_bytes >> 10),
                cell.in_flight.to_string(),
                format_count(cell.frames_per_s),
                format_count(cell.frames_per_s * f64::from(cell.frame_bytes) / f64::from(1 << 20)),
                format!("{:.1}", cell.cpu_us_per_frame),
                format_ns(cell.latency_ns_mean),
                format_ns(cell.latency_ns_p99 as f64),
            ]);
        }
        with_warning(&table, self.idle_us_per_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_acknowledges_frames_on_every_space_and_leaves_nothing_behind() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let config = DurableAppendConfig {
            frame_bytes: vec![8192],
            in_flight: vec![1, 3],
            cell_time: Duration::from_millis(10),
            file_bytes: 1 << 20,
            ..DurableAppendConfig::new(folder.path().to_owned())
        };
        let report = durable_append(&config, &AtomicBool::new(false), &mut |_, _| {}).unwrap();
        assert_eq!(report.cells.len(), 18);
        assert!(report.cells.iter().all(|cell| cell.frames > 0 && cell.latency_ns_mean > 0.0));
        assert_eq!(report.to_table().lines().filter(|line| line.contains("KiB")).count(), 18);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let small = DurableAppendConfig { file_bytes: 4096, ..config };
        assert!(durable_append(&small, &AtomicBool::new(false), &mut |_, _| {}).is_err());
    }
}
