//! A cluster of three nodes of this program, made for a run and removed after it.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;
use tempfile::TempDir;

use super::{Context, TargetError, need_room};
use crate::generator::{Patience, output_of};
use crate::leftovers::{self, Note};

const NODES: u32 = 3;
const START_TIME_MAX: Duration = Duration::from_secs(60);
const STOP_TIME_MAX: Duration = Duration::from_secs(30);
/// Fresh drive files are zeroed ahead of use; while that goes on, writes cost more.
const PREPARE_TIME_MAX: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_millis(100);

/// A running cluster. Dropping it ends it.
pub struct LocalCoquina {
    spec: String,
    program: PathBuf,
    child: Child,
    folder: TempDir,
    store_bytes: u64,
    /// Options of `coquina up` besides, without dashes.
    options: BTreeMap<String, String>,
    left: Note,
}

/// Options of `coquina up` that the run sets itself.
const TAKEN_OPTIONS: [&str; 9] =
    ["dir", "nodes", "copies", "drive", "nbd", "http", "listen", "stop-with-input", "server"];

fn spawn(
    spec: &str,
    program: &Path,
    folder: &Path,
    store_bytes: u64,
    options: &BTreeMap<String, String>,
) -> Result<Child, TargetError> {
    let unusable = |message: String| TargetError::Unusable { spec: spec.to_owned(), message };
    let log = folder.join("log");
    let log_file =
        File::create(&log).map_err(|error| unusable(format!("cannot make {}: {error}", log.display())))?;
    let mut command = Command::new(program);
    command.arg("up").arg("--dir").arg(folder.join("data"));
    command.args(["--nodes", &NODES.to_string(), "--copies", &NODES.to_string()]);
    for number in 1..=NODES {
        let drive = folder.join(format!("drive{number}"));
        command.arg("--drive").arg(format!("{}:{store_bytes}", drive.display()));
    }
    command.args(["--nbd", "127.0.0.1:0", "--http", "127.0.0.1:0", "--listen", "127.0.0.1:0"]);
    command.args(options.iter().map(|(key, value)| format!("--{key}={value}")));
    // Its input ends when this process does, however that ends, and it stops then.
    command.arg("--stop-with-input").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log_file);
    let started = command.process_group(0).spawn();
    started.map_err(|error| unusable(format!("cannot start {}: {error}", program.display())))
}

fn note_of(child: &Child) -> Note {
    leftovers::note(format!(
        "{NODES} Coquina nodes (process {} and its children), which end by themselves within some seconds; if they do not: kill {}",
        child.id(),
        child.id()
    ))
}

#[derive(Deserialize)]
struct Status {
    drives: Vec<Drive>,
}

#[derive(Deserialize)]
struct Drive {
    shards: Vec<Shard>,
}

#[derive(Deserialize)]
struct Shard {
    drive_write_bytes: u64,
    prewrite_bytes: u64,
}

impl LocalCoquina {
    /// Starts it, and waits until its drives are ready.
    pub fn start(spec: &str, context: &Context<'_>) -> Result<Self, TargetError> {
        need_room(spec, &context.folder, context.store_bytes.saturating_mul(NODES.into()))?;
        let unusable = |message: String| TargetError::Unusable { spec: spec.to_owned(), message };
        let folder = TempDir::with_prefix_in("coquina-", &context.folder).map_err(|error| {
            unusable(format!("cannot make a folder in {}: {error}", context.folder.display()))
        })?;
        (context.say)(&format!("starting {NODES} Coquina nodes"));
        let program = context.program.clone();
        let (options, store_bytes) = (BTreeMap::new(), context.store_bytes);
        let child = spawn(spec, &program, folder.path(), store_bytes, &options)?;
        let left = note_of(&child);
        let mut started =
            LocalCoquina { spec: spec.to_owned(), program, child, folder, store_bytes, options, left };
        started.wait_for_start(context.stopped)?;
        started.wait_until_prepared(context.stopped)?;
        Ok(started)
    }

    /// Refuses what is no option of `coquina up`, and those that the run sets itself.
    pub fn check_option(spec: &str, name: &str) -> Result<(), TargetError> {
        let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        if is_name && !TAKEN_OPTIONS.contains(&name) {
            return Ok(());
        }
        Err(TargetError::Wrong {
            spec: spec.to_owned(),
            message: format!(
                "coquina:{name} is no option of `coquina up` that can be tried; see `coquina up --help`"
            ),
        })
    }

    /// An option of `coquina up` that it was given.
    pub fn option(&self, name: &str) -> Option<String> {
        self.options.get(name).cloned()
    }

    /// Gives it an option of `coquina up`, or takes it away, from its next start on.
    pub fn set(&mut self, name: &str, value: Option<&str>) {
        match value {
            Some(value) => self.options.insert(name.to_owned(), value.to_owned()),
            None => self.options.remove(name),
        };
    }

    /// Starts it again with its options as they are now; takes some seconds. Its data stays.
    pub fn restart(&mut self, context: &Context<'_>) -> Result<(), TargetError> {
        self.stop();
        self.child = spawn(&self.spec, &self.program, self.folder.path(), self.store_bytes, &self.options)?;
        self.left = note_of(&self.child);
        self.wait_for_start(context.stopped)?;
        self.wait_until_prepared(context.stopped)
    }

    /// The folder of its supervisor.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// How it is set.
    pub fn settings(&self) -> BTreeMap<String, String> {
        let size = coquina_base::format_size_bytes(self.store_bytes);
        BTreeMap::from([
            ("nodes".to_owned(), format!("{NODES} processes on this machine, one drive file of {size} each")),
            ("checksums".to_owned(), "CRC32C of each 4 KiB, checked on every read from a drive".to_owned()),
        ])
    }

    fn status(&self, stopped: &dyn Fn() -> bool) -> Option<Status> {
        let folder = self.data().to_string_lossy().into_owned();
        let arguments = ["status", "--interval", "0", "--json", "--dir", &folder].map(str::to_owned);
        let patience = Patience { time_max: START_TIME_MAX, stopped };
        let printed = output_of(&self.program.to_string_lossy(), &arguments, &[], patience).ok()?;
        serde_json::from_str(&printed).ok()
    }

    fn wait_for_start(&mut self, stopped: &dyn Fn() -> bool) -> Result<(), TargetError> {
        let begin = Instant::now();
        while self.status(stopped).is_none() {
            if stopped() {
                return Err(TargetError::Stopped);
            }
            let ended = !matches!(self.child.try_wait(), Ok(None));
            if ended || begin.elapsed() > START_TIME_MAX {
                let said = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
                return Err(TargetError::Unusable {
                    spec: self.spec.clone(),
                    message: format!("the cluster did not start; it said:\n{}", said.trim_end()),
                });
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    fn wait_until_prepared(&self, stopped: &dyn Fn() -> bool) -> Result<(), TargetError> {
        let begin = Instant::now();
        let mut last = (0, 0);
        let mut quiet = 0;
        // Nothing written between ten looks in a row.
        while quiet < 10 && begin.elapsed() < PREPARE_TIME_MAX {
            if stopped() {
                return Err(TargetError::Stopped);
            }
            std::thread::sleep(POLL);
            let Some(status) = self.status(stopped) else { continue };
            let shards: Vec<&Shard> = status.drives.iter().flat_map(|drive| &drive.shards).collect();
            let now = (
                shards.iter().map(|shard| shard.drive_write_bytes).sum::<u64>() >> 20,
                shards.iter().map(|shard| shard.prewrite_bytes).sum(),
            );
            quiet = if now == last && shards.len() >= NODES as usize { quiet + 1 } else { 0 };
            last = now;
        }
        Ok(())
    }
}

impl LocalCoquina {
    fn stop(&mut self) {
        // End of its input is the request to stop.
        drop(self.child.stdin.take());
        let begin = Instant::now();
        while let Ok(None) = self.child.try_wait() {
            if begin.elapsed() > STOP_TIME_MAX {
                // Its nodes end when their supervisor is gone.
                let _ = self.child.kill();
                let _ = self.child.wait();
                break;
            }
            std::thread::sleep(POLL);
        }
    }
}

impl Drop for LocalCoquina {
    fn drop(&mut self) {
        self.stop();
    }
}
