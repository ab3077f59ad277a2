//! A Ceph cluster on this machine, started and removed by the script `bench/peers/ceph`.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;
use tempfile::TempDir;

use super::{Context, TargetError, need_room};
use crate::generator::{
    ANSWER_TIME_MAX, GO_TIME_MAX, GeneratorError, Patience, end, end_with_this_process, is_gone_by,
    output_of, signal,
};
use crate::leftovers::{self, Note};

/// The script, which needs nothing but bash and Debian's packages.
const SCRIPT: &str = include_str!("../../../../bench/peers/ceph");
const OSDS: u64 = 3;
/// The least that `bench/peers/ceph` makes.
const OSD_BYTES_MIN: u64 = 1 << 30;
/// Size of the file in which each OSD keeps RocksDB and its log. How much they take does not go by the size of the OSD: Ceph 16.2.15 lets the log
/// have 1 GiB (`max_total_wal_size`), and RocksDB takes room for each of its files ahead, 281 MiB (1.1 times `write_buffer_size`). After some
/// 100,000 small writes to each OSD on a fast disk the log alone had 1,127 MiB. What does not fit goes into the file of the data: with 1 GiB
/// here it filled OSDs of 1 GiB whose data took 75 % of them, until they took no writes any more.
const DB_BYTES: u64 = 2 << 30;
const POLL: Duration = Duration::from_millis(100);
/// How long its start may take, besides the writing of its files at this rate: the script bounds each step by two minutes and less, but
/// waits for a drive that hangs.
const START_TIME_MAX: Duration = Duration::from_secs(1200);
const WRITTEN_BYTES_PER_S_MIN: u64 = 20 << 20;
/// How long its end may take: the script gives processes up that do not go within 20 s, and removes large files.
const DOWN_TIME_MAX: Duration = Duration::from_secs(120);

/// A running cluster. Dropping it ends it, and so does the end of this process, however it ends.
pub struct LocalCeph {
    /// Until it is dropped.
    folder: Option<TempDir>,
    /// Where that is.
    path: PathBuf,
    /// Ends the cluster when its input ends.
    guard: Option<Child>,
    left: Option<Note>,
    status: Status,
}

#[derive(Default, Deserialize)]
struct Status {
    conf: String,
    pool: String,
    #[serde(default)]
    osds: u64,
    #[serde(default)]
    osd_bytes: u64,
    #[serde(default)]
    db_bytes: u64,
    processes: Vec<Daemon>,
    block_files: Vec<PathBuf>,
    #[serde(default)]
    settings: BTreeMap<String, serde_json::Value>,
}

#[derive(Deserialize)]
struct Daemon {
    pid: u32,
}

impl LocalCeph {
    /// Starts it; takes up to a minute.
    pub fn start(spec: &str, context: &Context<'_>) -> Result<Self, TargetError> {
        if context.store_bytes < OSD_BYTES_MIN {
            let message = format!(
                "an OSD needs {} at least; name a larger --store-size",
                coquina_base::format_size_bytes(OSD_BYTES_MIN)
            );
            return Err(TargetError::Wrong { spec: spec.to_owned(), message });
        }
        need_room(spec, &context.folder, files_bytes(context.store_bytes))?;
        let unusable = |message: String| TargetError::Unusable { spec: spec.to_owned(), message };
        let folder = TempDir::with_prefix_in("ceph-", &context.folder).map_err(|error| {
            unusable(format!("cannot make a folder in {}: {error}", context.folder.display()))
        })?;
        let mut cluster = LocalCeph::in_folder(folder);
        let script = cluster.script();
        std::fs::write(&script, SCRIPT)
            .map_err(|error| unusable(format!("cannot write {}: {error}", script.display())))?;
        (context.say)("starting Ceph: monitor, manager and three OSDs");
        cluster.begin_guard().map_err(|error| unusable(format!("cannot start bash: {error}")))?;
        let mut command = Command::new("bash");
        command.args(cluster.arguments("up"));
        command.args(["--osd-size", &context.store_bytes.to_string(), "--db-size", &DB_BYTES.to_string()]);
        let written_s = files_bytes(context.store_bytes) / WRITTEN_BYTES_PER_S_MIN;
        let time_max = START_TIME_MAX + Duration::from_secs(written_s);
        wait_for_start(spec, command, "Ceph did not start", (time_max, DOWN_TIME_MAX), context)?;
        cluster.look(spec, context)?;
        Ok(cluster)
    }

    /// One that has not been started yet.
    fn in_folder(folder: TempDir) -> Self {
        let path = folder.path().to_owned();
        LocalCeph { folder: Some(folder), path, guard: None, left: None, status: Status::default() }
    }

    /// Starts who ends the cluster when this process does.
    fn begin_guard(&mut self) -> Result<(), std::io::Error> {
        self.left = Some(leftovers::note(format!(
            "Ceph's daemons and {}, which another process ends and removes within a minute; if it does not: {}",
            leftovers::quoted(self.data()),
            self.down_command()
        )));
        let mut guard = Command::new("bash");
        guard.args(self.arguments("down")).arg("--after-input");
        // Ctrl-C goes to the whole foreground group.
        guard.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        self.guard = Some(guard.spawn()?);
        Ok(())
    }

    fn script(&self) -> PathBuf {
        self.path.join("ceph.sh")
    }

    fn data(&self) -> PathBuf {
        self.path.join("data")
    }

    /// What a user may do about it.
    fn down_command(&self) -> String {
        let data = leftovers::quoted(self.data());
        format!(
            "bash {} down --dir {data} (or bench/peers/ceph down --dir {data})",
            leftovers::quoted(self.script())
        )
    }

    /// Ends it: by who waits for that, and if that one fails or is gone, once more.
    fn down(&self, mut guard: Child) -> Result<(), GeneratorError> {
        drop(guard.stdin.take());
        if is_gone_by(&mut guard, Instant::now() + DOWN_TIME_MAX)
            && guard.wait().is_ok_and(|status| status.success())
        {
            return Ok(());
        }
        output_of("bash", &self.arguments("down"), &[], Patience::of(DOWN_TIME_MAX)).map(drop)
    }

    /// Starts the OSDs again, with all that they hold; takes some seconds. They are other processes then.
    pub fn restart(&mut self, spec: &str, context: &Context<'_>) -> Result<(), TargetError> {
        let mut command = Command::new("bash");
        command.args(self.arguments("restart"));
        let times = (START_TIME_MAX, DOWN_TIME_MAX);
        wait_for_start(spec, command, "Ceph's OSDs did not start again", times, context)?;
        self.look(spec, context)
    }

    fn look(&mut self, spec: &str, context: &Context<'_>) -> Result<(), TargetError> {
        let arguments = [self.arguments("status"), vec!["--json".to_owned()]].concat();
        let printed = output_of("bash", &arguments, &[], context.patience(ANSWER_TIME_MAX))
            .map_err(|source| TargetError::Program { spec: spec.to_owned(), source })?;
        self.status = serde_json::from_str(&printed).map_err(|error| TargetError::Unusable {
            spec: spec.to_owned(),
            message: format!("the script's status is not as expected: {error}"),
        })?;
        Ok(())
    }

    fn arguments(&self, verb: &str) -> Vec<String> {
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        vec![text(self.script()), verb.to_owned(), "--dir".to_owned(), text(self.data())]
    }

    /// Its configuration file.
    pub fn conf(&self) -> &str {
        &self.status.conf
    }

    /// Its pool.
    pub fn pool(&self) -> &str {
        &self.status.pool
    }

    /// Its daemons.
    pub fn processes(&self) -> Vec<u32> {
        self.status.processes.iter().map(|daemon| daemon.pid).collect()
    }

    /// Files of its OSDs.
    pub fn places(&self) -> Vec<PathBuf> {
        self.status.block_files.clone()
    }

    /// How it is set.
    pub fn settings(&self) -> BTreeMap<String, String> {
        let settings = self.status.settings.iter().map(|(name, value)| {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            (name.clone(), text)
        });
        let mut settings: BTreeMap<String, String> = settings.collect();
        let size = coquina_base::format_size_bytes;
        let osds = format!(
            "{} on this machine, each with a BlueStore file of {} for data and one of {} for RocksDB",
            self.status.osds,
            size(self.status.osd_bytes),
            size(self.status.db_bytes),
        );
        settings.insert("OSDs".to_owned(), osds);
        settings
    }
}

/// What the files of all OSDs take, whose data have so much each.
fn files_bytes(store_bytes: u64) -> u64 {
    store_bytes.saturating_add(DB_BYTES).saturating_mul(OSDS)
}

/// Starts the script. When this process is killed, it is asked to end: it may be at work for longer than the guard waits for it.
fn begin_script(command: &mut Command) -> Result<Child, std::io::Error> {
    end_with_this_process(command, libc::SIGTERM);
    // Ctrl-C goes to the whole foreground group.
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0).spawn()
}

/// Waits until the script has done its work, so long, and so long when it was asked to end, since the run is stopped.
fn wait_for_start(
    spec: &str,
    mut command: Command,
    failed: &str,
    (time_max, stop_time_max): (Duration, Duration),
    context: &Context<'_>,
) -> Result<(), TargetError> {
    let unusable = |message: String| TargetError::Unusable { spec: spec.to_owned(), message };
    let mut child =
        begin_script(&mut command).map_err(|error| unusable(format!("cannot start bash: {error}")))?;
    let mut end_by = Instant::now() + time_max;
    let mut is_stopped = false;
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() && !is_stopped => return Ok(()),
            Ok(None) => {}
            Ok(Some(_)) if is_stopped => return Err(TargetError::Stopped),
            Ok(Some(_)) | Err(_) => {
                let mut said = String::new();
                if let Some(mut messages) = child.stderr.take() {
                    // What cannot be read cannot be shown.
                    let _ = std::io::Read::read_to_string(&mut messages, &mut said);
                }
                return Err(unusable(format!("{failed}:\n{}", said.trim_end())));
            }
        }
        if Instant::now() >= end_by {
            end(&mut child, "bash, which starts Ceph", Instant::now() + GO_TIME_MAX);
            return Err(match is_stopped {
                true => TargetError::Stopped,
                false => unusable(format!(
                    "{failed} within {} s; look at the drive under --folder (`dmesg`)",
                    time_max.as_secs()
                )),
            });
        }
        if (context.stopped)() && !is_stopped {
            is_stopped = true;
            end_by = Instant::now() + stop_time_max;
            // It is our child and has not been waited for, so that the number is its own.
            signal(child.id(), libc::SIGTERM);
        }
        std::thread::sleep(POLL);
    }
}

impl Drop for LocalCeph {
    fn drop(&mut self) {
        // If it was never up, there is nothing to end.
        let Some(guard) = self.guard.take() else { return };
        let Err(error) = self.down(guard) else {
            // If that cannot be done, it is still there with the run's folder, of which a note speaks.
            let folder = self.folder.take();
            let _ = leftovers::removed(move || folder.map_or(Ok(()), TempDir::close));
            return;
        };
        // Without the script, nobody could end it.
        self.folder.take().into_iter().for_each(leftovers::leave);
        self.left = None;
        leftovers::note(format!(
            "Ceph's daemons and {}, which could not be ended ({error}): {}",
            leftovers::quoted(self.data()),
            self.down_command()
        ))
        .keep();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cluster whose script notes each call in a file, and ends with this status.
    fn cluster(status: u8) -> LocalCeph {
        let folder = tempfile::tempdir().unwrap();
        let mut cluster = LocalCeph::in_folder(folder);
        let script =
            format!("[[ $* != *--after-input* ]] || cat\necho \"$*\" >>\"$3.calls\"\nexit {status}\n");
        std::fs::write(cluster.script(), script).unwrap();
        cluster.begin_guard().unwrap();
        cluster
    }

    #[test]
    fn the_log_that_rocksdb_may_have_fits_into_its_file() {
        let (log_bytes_max, log_file_bytes) = (1 << 30, 281 << 20);
        // The next file is begun before the oldest goes, and tables lie beside the log.
        assert!(DB_BYTES > log_bytes_max + 2 * log_file_bytes);
        assert_eq!(files_bytes(1 << 30), 9 << 30, "room for both files of each of three OSDs");
        assert_eq!(files_bytes(u64::MAX), u64::MAX);
    }

    fn notes_of(folder: &std::path::Path) -> Vec<String> {
        let folder = folder.to_string_lossy();
        leftovers::all().into_iter().filter(|text| text.contains(&*folder)).collect()
    }

    #[test]
    fn who_ended_it_is_not_asked_again() {
        let mut cluster = cluster(0);
        let path = cluster.path.clone();
        assert!(notes_of(&path)[0].contains("which another process ends"), "{:?}", notes_of(&path));
        let guard = cluster.guard.take().unwrap();
        cluster.down(guard).unwrap();
        let calls = std::fs::read_to_string(path.join("data.calls")).unwrap();
        assert_eq!(calls, format!("down --dir {} --after-input\n", path.join("data").display()));
        drop(cluster);
        assert_eq!((path.exists(), notes_of(&path)), (false, Vec::new()));
    }

    #[test]
    fn one_whose_guard_is_gone_is_ended_all_the_same() {
        let mut cluster = cluster(0);
        let path = cluster.path.clone();
        let mut guard = cluster.guard.take().unwrap();
        guard.kill().unwrap();
        cluster.down(guard).unwrap();
        let calls = std::fs::read_to_string(path.join("data.calls")).unwrap();
        assert_eq!(calls, format!("down --dir {}\n", path.join("data").display()));
        drop(cluster);
        assert_eq!((path.exists(), notes_of(&path)), (false, Vec::new()));
    }

    #[test]
    fn one_that_cannot_be_ended_is_told_and_what_ends_it_stays() {
        let cluster = cluster(1);
        let path = cluster.path.clone();
        drop(cluster);
        let notes = notes_of(&path);
        assert_eq!(notes.len(), 1, "{notes:?}");
        let command = format!("bash {0}/ceph.sh down --dir {0}/data ", path.display());
        assert!(notes[0].contains("could not be ended") && notes[0].contains(&command), "{notes:?}");
        let calls = std::fs::read_to_string(path.join("data.calls")).unwrap();
        assert_eq!((calls.lines().count(), path.join("ceph.sh").exists()), (2, true), "{calls}");
        std::fs::remove_dir_all(&path).unwrap();
    }

    /// It went on for as long as it took, and who was to end the cluster had given up waiting by then.
    #[test]
    fn a_start_that_is_at_work_ends_with_who_waits_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let script = format!(
            "trap 'touch {}; exit 143' TERM; touch {}; while :; do sleep 0.1; done",
            at("undone").display(),
            at("begun").display()
        );
        // The kernel tells of the thread that started it, which ends here like a process that is killed.
        let started = std::thread::scope(|scope| {
            let start = || {
                let child = begin_script(Command::new("bash").args(["-c", &script])).unwrap();
                let begin = Instant::now();
                while !at("begun").exists() && begin.elapsed() < Duration::from_secs(60) {
                    std::thread::sleep(POLL);
                }
                child
            };
            scope.spawn(start).join()
        });
        let mut child = started.unwrap();
        let is_gone = is_gone_by(&mut child, Instant::now() + Duration::from_secs(20));
        end(&mut child, "bash", Instant::now() + GO_TIME_MAX);
        assert!(is_gone && at("undone").exists(), "it undoes what it did");
    }

    #[test]
    fn a_start_that_does_not_end_is_given_up_in_time_and_at_a_stop() {
        let folder = tempfile::tempdir().unwrap();
        let short = Duration::from_millis(200);
        let begin = Instant::now();
        let start = |times, context: &Context<'_>| {
            let mut command = Command::new("bash");
            command.args(["-c", "trap '' TERM; while :; do sleep 0.1; done"]);
            wait_for_start("ceph-local", command, "Ceph did not start", times, context).unwrap_err()
        };
        let context = crate::target::tests::context(folder.path());
        let error = start((short, Duration::from_secs(60)), &context).to_string();
        assert!(error.contains("Ceph did not start within 0 s; look at the drive"), "{error}");
        let stopped = Context { stopped: &|| true, ..context };
        assert!(start((Duration::from_secs(60), short), &stopped).is_stop());
        assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    }
}
