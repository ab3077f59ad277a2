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
use crate::generator::output_of;

const NODES: u32 = 3;
const START_TIME_MAX: Duration = Duration::from_secs(60);
const STOP_TIME_MAX: Duration = Duration::from_secs(30);
/// Fresh drive files are zeroed ahead of use; while that goes on, writes cost more.
const PREPARE_TIME_MAX: Duration = Duration::from_secs(300);
const POLL: Duration = Duration::from_millis(100);

/// A running cluster. Dropping it ends it.
pub struct LocalCoquina {
    spec: String,
    child: Child,
    folder: TempDir,
    store_bytes: u64,
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
        need_room(spec, &context.folder, context.store_bytes * u64::from(NODES))?;
        let unusable = |message: String| TargetError::Unusable { spec: spec.to_owned(), message };
        let folder = TempDir::with_prefix_in("coquina-", &context.folder).map_err(|error| {
            unusable(format!("cannot make a folder in {}: {error}", context.folder.display()))
        })?;
        (context.say)(&format!("starting {NODES} Coquina nodes"));
        let log = folder.path().join("log");
        let log_file = File::create(&log)
            .map_err(|error| unusable(format!("cannot make {}: {error}", log.display())))?;
        let mut command = Command::new(&context.program);
        command.arg("up").arg("--dir").arg(folder.path().join("data"));
        command.args(["--nodes", &NODES.to_string(), "--copies", &NODES.to_string()]);
        for number in 1..=NODES {
            let drive = folder.path().join(format!("drive{number}"));
            command.arg("--drive").arg(format!("{}:{}", drive.display(), context.store_bytes));
        }
        command.args(["--nbd", "127.0.0.1:0", "--http", "127.0.0.1:0", "--listen", "127.0.0.1:0"]);
        // Its input ends when this process does, however that ends, and it stops then.
        command.arg("--stop-with-input").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log_file);
        let child = command
            .process_group(0)
            .spawn()
            .map_err(|error| unusable(format!("cannot start {}: {error}", context.program.display())))?;
        let mut started =
            LocalCoquina { spec: spec.to_owned(), child, folder, store_bytes: context.store_bytes };
        started.wait_for_start(context)?;
        started.wait_until_prepared(context)?;
        Ok(started)
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

    fn status(&self, program: &Path) -> Option<Status> {
        let folder = self.data().to_string_lossy().into_owned();
        let arguments = ["status", "--interval", "0", "--json", "--dir", &folder].map(str::to_owned);
        let printed = output_of(&program.to_string_lossy(), &arguments, &[]).ok()?;
        serde_json::from_str(&printed).ok()
    }

    fn wait_for_start(&mut self, context: &Context<'_>) -> Result<(), TargetError> {
        let begin = Instant::now();
        while self.status(&context.program).is_none() {
            if (context.stopped)() {
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

    fn wait_until_prepared(&self, context: &Context<'_>) -> Result<(), TargetError> {
        let begin = Instant::now();
        let mut last = (0, 0);
        let mut quiet = 0;
        // Nothing written between ten looks in a row.
        while quiet < 10 && begin.elapsed() < PREPARE_TIME_MAX {
            if (context.stopped)() {
                return Err(TargetError::Stopped);
            }
            std::thread::sleep(POLL);
            let Some(status) = self.status(&context.program) else { continue };
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

impl Drop for LocalCoquina {
    fn drop(&mut self) {
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
