//! A cluster of three nodes of this program, made for a run and removed after it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;
use tempfile::TempDir;

use super::{Context, TargetError, need_room};
use crate::generator::{GO_TIME_MAX, Other, Patience, end_with_children, output_of};
use crate::leftovers::{self, Note};

const NODES: u32 = 3;
const START_TIME_MAX: Duration = Duration::from_secs(60);
/// How long it may take until all have ended: a node whose thread hangs takes 37 s, and their supervisor gives them up after 50 s.
const STOP_TIME_MAX: Duration = Duration::from_secs(55);
/// Fresh drive files are zeroed ahead of use; while that goes on, writes cost more. It may take so long, and as much longer as the writing
/// of all files takes at this rate.
const PREPARE_TIME_MAX: Duration = Duration::from_secs(300);
const WRITTEN_BYTES_PER_S_MIN: u64 = 20 << 20;
/// They may be no further for so long: one of the nodes may have died, which others do not tell.
const STILL_TIME_MAX: Duration = Duration::from_secs(120);
/// Bytes of the end of its log that are shown.
const LOG_TAIL_BYTES: usize = 2000;
/// How much of each file that is: all of it is zeroed before anything is measured, or it would be in the turns of others.
const ZERO_AHEAD: &str = "zero-ahead";
/// When it is first said how much of that is left. The pauses after that are twice as long each time.
const TOLD_AFTER: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(100);
/// Looks in a row at which nothing is written any more.
const QUIET_LOOKS: u32 = 10;

/// A running cluster. Dropping it ends it.
pub struct LocalCoquina {
    spec: String,
    program: PathBuf,
    child: Child,
    /// Until it is dropped.
    folder: Option<TempDir>,
    /// Where that is.
    path: PathBuf,
    store_bytes: u64,
    /// Options of `coquina up` besides, without dashes.
    options: BTreeMap<String, String>,
    /// As long as it runs.
    left: Option<Note>,
    still_time_max: Duration,
}

/// Options of `coquina up` that the run sets itself.
const TAKEN_OPTIONS: [&str; 9] =
    ["dir", "nodes", "copies", "drive", "nbd", "http", "listen", "stop-with-input", "server"];

fn arguments(folder: &Path, store_bytes: u64, options: &BTreeMap<String, String>) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["up".into(), "--dir".into(), folder.join("data").into()];
    let (nodes, zero_ahead) = (NODES.to_string(), store_bytes.to_string());
    arguments.extend(["--nodes", &nodes, "--copies", &nodes].map(OsString::from));
    for number in 1..=NODES {
        let drive = folder.join(format!("drive{number}"));
        arguments.extend(["--drive".into(), format!("{}:{store_bytes}", drive.display()).into()]);
    }
    let addresses = ["--nbd", "127.0.0.1:0", "--http", "127.0.0.1:0", "--listen", "127.0.0.1:0"];
    arguments.extend(addresses.map(OsString::from));
    if !options.contains_key(ZERO_AHEAD) {
        arguments.push(format!("--{ZERO_AHEAD}={zero_ahead}").into());
    }
    arguments.extend(options.iter().map(|(key, value)| format!("--{key}={value}").into()));
    arguments
}

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
    command.args(arguments(folder, store_bytes, options));
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
    unprepared_bytes: u64,
}

/// What its drives have done since their nodes were started.
#[derive(Clone, Copy, Default, PartialEq)]
struct Written {
    shards: usize,
    log_mib: u64,
    zeroed_bytes: u64,
    /// To be zeroed.
    left_bytes: u64,
}

impl Written {
    fn of(status: &Status) -> Self {
        let shards: Vec<&Shard> = status.drives.iter().flat_map(|drive| &drive.shards).collect();
        Written {
            shards: shards.len(),
            log_mib: shards.iter().map(|shard| shard.drive_write_bytes).sum::<u64>() >> 20,
            zeroed_bytes: shards.iter().map(|shard| shard.prewrite_bytes).sum(),
            left_bytes: shards.iter().map(|shard| shard.unprepared_bytes).sum(),
        }
    }
}

/// How long the files of so large drives may take until they have been written once.
fn prepare_time_max(store_bytes: u64) -> Duration {
    let bytes = store_bytes.saturating_mul(NODES.into());
    PREPARE_TIME_MAX + Duration::from_secs(bytes / WRITTEN_BYTES_PER_S_MIN)
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
        let (left, path) = (Some(note_of(&child)), folder.path().to_owned());
        let (spec, folder) = (spec.to_owned(), Some(folder));
        let still_time_max = STILL_TIME_MAX;
        let mut started =
            LocalCoquina { spec, program, child, folder, path, store_bytes, options, left, still_time_max };
        started.wait_for_start(context.stopped)?;
        started.wait_until_prepared(prepare_time_max(store_bytes), context)?;
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
        if !self.stop() {
            let message =
                "not all of its processes could be ended, so that it is not started again".to_owned();
            return Err(TargetError::Unusable { spec: self.spec.clone(), message });
        }
        self.child = spawn(&self.spec, &self.program, &self.path, self.store_bytes, &self.options)?;
        self.left = Some(note_of(&self.child));
        self.wait_for_start(context.stopped)?;
        self.wait_until_prepared(prepare_time_max(self.store_bytes), context)
    }

    /// The folder of its supervisor.
    pub fn data(&self) -> PathBuf {
        self.path.join("data")
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
                return Err(self.failed("the cluster did not start"));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Says what went wrong, with the end of its log.
    fn failed(&self, what: &str) -> TargetError {
        let log = std::fs::read(self.path.join("log")).unwrap_or_default();
        let said = String::from_utf8_lossy(&log[log.len().saturating_sub(LOG_TAIL_BYTES)..]).into_owned();
        let said =
            if said.trim().is_empty() { "nothing".to_owned() } else { format!("\n{}", said.trim_end()) };
        TargetError::Unusable {
            spec: self.spec.clone(),
            message: format!("{what}; the end of what it said: {said}"),
        }
    }

    /// Waits until the files of its drives have been written once, and nothing is written any more.
    fn wait_until_prepared(&mut self, time_max: Duration, context: &Context<'_>) -> Result<(), TargetError> {
        let size = coquina_base::format_size_bytes;
        let (begin, mut pause) = (Instant::now(), TOLD_AFTER);
        let mut told_at = begin;
        let (mut last, mut quiet) = (Written::default(), 0);
        let mut moved_at = begin;
        while quiet < QUIET_LOOKS {
            if (context.stopped)() {
                return Err(TargetError::Stopped);
            }
            std::thread::sleep(POLL);
            if let Some(status) = self.status(context.stopped) {
                let now = Written::of(&status);
                let is_quiet = now == last && now.left_bytes == 0 && now.shards >= NODES as usize;
                quiet = if is_quiet { quiet + 1 } else { 0 };
                if is_quiet || now != last {
                    moved_at = Instant::now();
                }
                last = now;
            }
            if quiet < QUIET_LOOKS && !matches!(self.child.try_wait(), Ok(None)) {
                return Err(
                    self.failed("the cluster has ended while the files of its drives were written once")
                );
            }
            if quiet < QUIET_LOOKS && moved_at.elapsed() > self.still_time_max {
                let what = format!(
                    "the files of its drives are no further after {} s, with {} left to be written once: one of its {NODES} nodes may have \
                     died, or its disk does not answer",
                    self.still_time_max.as_secs(),
                    size(last.left_bytes)
                );
                return Err(self.failed(&what));
            }
            if told_at.elapsed() >= pause && last.left_bytes > 0 {
                (told_at, pause) = (Instant::now(), pause * 2);
                (context.say)(&format!(
                    "{}: writing the files of its drives once; {} are left",
                    self.spec,
                    size(last.left_bytes)
                ));
            }
            if quiet < QUIET_LOOKS && begin.elapsed() > time_max {
                return Err(TargetError::Unusable {
                    spec: self.spec.clone(),
                    message: format!(
                        "its drives were still being written after {} s, and would be while others are measured: {} of their files, of {} \
                         each, had still to be written once; name a smaller --store-size, or another --folder, on a faster disk",
                        time_max.as_secs(),
                        size(last.left_bytes),
                        size(self.store_bytes)
                    ),
                });
            }
        }
        Ok(())
    }

    /// Ends it. Says whether nothing is left of it; what is left is told.
    fn stop(&mut self) -> bool {
        // Before it has gone: it ends them, but for those that wait for a drive that hangs.
        let mut nodes = match self.child.try_wait() {
            Ok(None) => Other::children_of(self.child.id()),
            Ok(Some(_)) | Err(_) => Vec::new(),
        };
        // End of its input is the request to stop.
        drop(self.child.stdin.take());
        let (supervisor, nodes) = ((&mut self.child, "coquina up"), (&mut nodes[..], "coquina node"));
        let is_gone = end_with_children(supervisor, nodes, STOP_TIME_MAX, GO_TIME_MAX);
        self.left = None;
        is_gone
    }
}

impl Drop for LocalCoquina {
    fn drop(&mut self) {
        let is_gone = self.stop();
        let Some(mut folder) = self.folder.take() else { return };
        if is_gone {
            // If that cannot be done, it is still there with the run's folder, of which a note speaks.
            let _ = leftovers::removed(move || folder.close());
        } else {
            // It goes with the run's folder, for which nobody waits for ever.
            folder.disable_cleanup(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_each_drive_is_written_before_anything_is_measured() {
        let line = |options: &[(&str, &str)]| {
            let option = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
            let words = arguments(Path::new("/f"), 100 << 30, &options.iter().map(option).collect());
            words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
        };
        let usual = line(&[]);
        assert!(usual.contains("--drive /f/drive3:107374182400 "), "{usual}");
        assert!(usual.ends_with(" --zero-ahead=107374182400"), "{usual}");
        let tried = line(&[("zero-ahead", "1G")]);
        assert!(tried.ends_with(" 127.0.0.1:0 --zero-ahead=1G"), "{tried}");
        // A disk that writes 20 MiB/s is given time for all of it.
        assert_eq!(prepare_time_max(1 << 30).as_secs(), 300 + 153);
        assert_eq!(prepare_time_max(100 << 30).as_secs(), 300 + 15_360);
    }

    /// A cluster that does nothing, and says of its drives what is in the file `drives`.
    fn stand_in(folder: &Path) -> LocalCoquina {
        let script = "printf '{\"drives\":[%s]}' \"$(cat \"$(dirname \"$0\")/drives\")\"\n";
        crate::target::ceph::tests::install(folder, script, &["coquina"]);
        let child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let own = tempfile::tempdir_in(folder).unwrap();
        LocalCoquina {
            spec: "coquina-local".to_owned(),
            program: folder.join("coquina"),
            left: Some(note_of(&child)),
            child,
            path: own.path().to_owned(),
            folder: Some(own),
            store_bytes: 5 << 30,
            options: BTreeMap::new(),
            still_time_max: STILL_TIME_MAX,
        }
    }

    fn drives(unprepared_bytes: u64) -> String {
        let of_one = format!(
            r#"{{"shards":[{{"drive_write_bytes":1,"prewrite_bytes":2,"unprepared_bytes":{unprepared_bytes}}}]}}"#
        );
        vec![of_one; NODES as usize].join(",")
    }

    #[test]
    fn drives_that_have_not_been_written_in_time_are_refused_with_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let mut cluster = stand_in(folder.path());
        let context = crate::target::tests::context(folder.path());
        std::fs::write(folder.path().join("drives"), drives(1 << 30)).unwrap();
        // Nothing is written meanwhile, as on a disk that stands still for some seconds.
        let error = cluster.wait_until_prepared(Duration::from_secs(3), &context).unwrap_err().to_string();
        for part in ["after 3 s", "3 GiB of their files, of 5 GiB each", "a smaller --store-size"] {
            assert!(error.contains(part), "{part}: {error}");
        }
        std::fs::write(folder.path().join("drives"), drives(0)).unwrap();
        cluster.wait_until_prepared(Duration::from_secs(60), &context).unwrap();
    }

    #[test]
    fn a_node_that_died_while_files_were_written_is_not_waited_for_as_long_as_a_slow_disk() {
        let folder = tempfile::tempdir().unwrap();
        let mut cluster = stand_in(folder.path());
        let context = crate::target::tests::context(folder.path());
        std::fs::write(folder.path().join("drives"), drives(1 << 30)).unwrap();
        std::fs::write(cluster.path.join("log"), "node2 was killed\n").unwrap();
        cluster.still_time_max = Duration::from_secs(1);
        let long = Duration::from_secs(4 * 3600);
        let mut error = || cluster.wait_until_prepared(long, &context).unwrap_err().to_string();
        let still = error();
        for part in
            ["no further after 1 s, with 3 GiB left", "nodes may have died", "said: \nnode2 was killed"]
        {
            assert!(still.contains(part), "{part}: {still}");
        }
        cluster.child.kill().unwrap();
        cluster.still_time_max = STILL_TIME_MAX;
        let ended = cluster.wait_until_prepared(long, &context).unwrap_err().to_string();
        assert!(ended.contains("has ended while") && ended.ends_with("node2 was killed"), "{ended}");
        // Slow, but it goes on.
        let mut cluster = stand_in(folder.path());
        cluster.still_time_max = Duration::from_secs(1);
        let drives_file = folder.path().join("drives");
        std::fs::write(&drives_file, drives(9 << 30)).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for left in (0..4).rev() {
                    std::thread::sleep(Duration::from_millis(500));
                    // A whole file at once: half of one cannot be read.
                    std::fs::write(folder.path().join("next"), drives(left << 30)).unwrap();
                    std::fs::rename(folder.path().join("next"), &drives_file).unwrap();
                }
            });
            cluster.wait_until_prepared(long, &context).unwrap();
        });
    }

    #[test]
    fn what_has_ended_is_removed_and_told_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let cluster = stand_in(folder.path());
        let (path, process) = (cluster.path.clone(), cluster.child.id());
        let told = || leftovers::all().iter().any(|text| text.contains(&format!("(process {process} and")));
        assert!(path.exists() && told());
        drop(cluster);
        assert!(!path.exists() && !told());
        assert!(!Path::new(&format!("/proc/{process}")).exists());
    }
}
