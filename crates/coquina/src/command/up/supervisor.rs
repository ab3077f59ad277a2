//! Runs children: starts them again when they die, and stops them in order.
//!
//! Invariants:
//! - a child that died is started again after a pause, for as long as nobody asked for a stop;
//! - of starts that fail for the same reason one after the other, the first is told of, and the pauses grow;
//! - when this ends, no child is left, however it ends.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use tracing::{error, info, warn};

use super::child::{Child, ChildSpec, Event, is_taken};
use crate::error::{CliError, EXIT_CODE_REMOVED};

/// Pause before a child is started again. After each start that failed it is twice as long.
const RESTART_PAUSE: Duration = Duration::from_secs(3);
/// The longest one.
const RESTART_PAUSE_MAX: Duration = Duration::from_secs(60);
/// What a child says that is tried again is passed on after so long, though it neither serves nor has ended.
const HELD_TIME_MAX: Duration = Duration::from_secs(10);
/// Longest wait for all children to serve, at first.
const START_TIME_MAX: Duration = Duration::from_secs(120);
/// Longest wait for children to stop cleanly; each of them gives up by itself 27 s after it was told, or 37 s if a thread hangs.
const STOP_TIME_MAX: Duration = Duration::from_secs(50);
/// How often it is looked whether a child serves, or has ended.
const POLL: Duration = Duration::from_millis(20);
/// The same of one that was started again.
const POLL_AGAIN: Duration = Duration::from_millis(200);

/// How the start went.
#[derive(Debug, Default)]
pub struct Started {
    /// Names of children that serve.
    pub ready: Vec<String>,
    /// Names of children that ended instead, and how.
    pub failed: Vec<(String, String)>,
    /// Names of children that say that they were removed from the cluster.
    pub removed: Vec<String>,
}

/// The starts of a child that failed one after the other.
#[derive(Default)]
struct Failures {
    count: u32,
    /// What was told of the last one.
    told: String,
}

impl Failures {
    /// Takes note that a child ended, which had served or not, and how. Gives the pause before it is started again, and
    /// whether this is worth telling.
    fn ended(&mut self, has_served: bool, how: &str) -> (Duration, bool) {
        if has_served {
            *self = Failures::default();
        }
        let pause = RESTART_PAUSE.saturating_mul(1 << self.count.min(16)).min(RESTART_PAUSE_MAX);
        let is_news = has_served || self.told != how;
        if !has_served {
            self.count = self.count.saturating_add(1);
            how.clone_into(&mut self.told);
        }
        (pause, is_news)
    }
}

struct Slot {
    child: Child,
    /// When it is started again.
    restart_at: Option<Instant>,
    /// Its output has ended, but not the child itself.
    ending: bool,
    /// When it was started, if it does not serve yet.
    starting: Option<Instant>,
    failures: Failures,
}

impl Slot {
    fn new(spec: ChildSpec) -> Slot {
        let failures = Failures::default();
        Slot { child: Child::new(spec), restart_at: None, ending: false, starting: None, failures }
    }

    fn start(&mut self, number: usize, sender: &Sender<Event>) -> Result<(), CliError> {
        self.starting = Some(Instant::now());
        self.child.start(number, sender.clone(), self.failures.count > 0)
    }

    /// It serves.
    fn serves(&mut self) {
        self.starting = None;
        if std::mem::take(&mut self.failures).count > 0 {
            info!(node = self.child.name(), "was started again, and serves");
        }
        self.child.output().release();
    }

    /// Looks whether it serves, or starts for so long that what it says is of interest.
    fn look_whether_it_serves(&mut self) {
        let Some(since) = self.starting else { return };
        if self.child.is_ready() {
            self.serves();
        } else if since.elapsed() > HELD_TIME_MAX {
            self.child.output().release();
        }
    }

    /// What is said of the starts that follow one that failed.
    fn outlook(&self) -> String {
        if self.failures.count == 0 {
            return String::new();
        }
        format!(
            ", then after growing pauses of up to {} s; if it fails for the same reason that is not told again",
            RESTART_PAUSE_MAX.as_secs()
        )
    }

    /// It has ended, and is to be started again. Says how it ended, for people, and whether that is to be told.
    fn ended(&mut self, status: ExitStatus) -> (String, Duration, bool) {
        let reason = self.child.output().reason();
        let how = if reason.is_empty() { how(status) } else { format!("{}: {reason}", how(status)) };
        let (pause, is_news) = self.failures.ended(self.starting.is_none(), &how);
        if is_news {
            self.child.output().release();
        }
        self.restart_at = Some(Instant::now() + pause);
        (how, pause, is_news)
    }
}

/// Tells that a node was removed, and has that noted.
pub fn note_removal(name: &str, note: &mut dyn FnMut(&str) -> Result<(), CliError>) {
    info!(node = name, "was removed from the cluster; it is not started again");
    if let Err(failed) = note(name) {
        // The others serve all the same; the next start tries this one again.
        error!(node = name, "that could not be noted: {failed}");
    }
}

fn is_removal(status: ExitStatus) -> bool {
    status.code() == Some(i32::from(EXIT_CODE_REMOVED))
}

/// The children.
pub struct Supervisor {
    slots: Vec<Slot>,
    folders: Vec<PathBuf>,
    sender: Sender<Event>,
    events: Receiver<Event>,
}

impl Supervisor {
    /// Children that are not started yet. A sender of [`Event::Stop`] ends [`run`](Self::run).
    pub fn new(specs: Vec<ChildSpec>, sender: Sender<Event>, events: Receiver<Event>) -> Supervisor {
        let folders = specs.iter().map(|spec| spec.folder.clone()).collect();
        Supervisor { slots: specs.into_iter().map(Slot::new).collect(), folders, sender, events }
    }

    /// Starts all, and waits until each serves or has ended. `None` if somebody asked for a stop meanwhile.
    pub fn start(&mut self) -> Result<Option<Started>, CliError> {
        let begin = Instant::now();
        if !self.wait_for_folders(begin)? {
            return Ok(None);
        }
        for number in 0..self.slots.len() {
            self.slots[number].start(number, &self.sender)?;
        }
        let mut started = Started::default();
        let mut waiting: Vec<usize> = (0..self.slots.len()).collect();
        while !waiting.is_empty() {
            let mut left = Vec::new();
            for number in waiting {
                let slot = &mut self.slots[number];
                let name = slot.child.name().to_owned();
                // All that it said is known once its output has ended.
                let ended = if slot.ending { slot.child.ended()? } else { None };
                if slot.child.is_ready() {
                    slot.serves();
                    started.ready.push(name);
                } else if let Some(status) = ended {
                    slot.ending = false;
                    if is_removal(status) {
                        started.removed.push(name);
                    } else {
                        started.failed.push((name, slot.ended(status).0));
                    }
                } else if begin.elapsed() > START_TIME_MAX {
                    let reason = format!("it does not serve after {} s", START_TIME_MAX.as_secs());
                    started.failed.push((name, reason));
                } else {
                    left.push(number);
                }
            }
            waiting = left;
            match self.events.recv_timeout(POLL) {
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => return Ok(None),
                // Perhaps of one that has served already: it is not waited for any more, and is told of only once.
                Ok(Event::OutputEnded(number)) => self.slots[number].ending = true,
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
        Ok(Some(started))
    }

    /// Children of a supervisor that was killed stop by themselves, which may take a while. `false` if somebody asked for a stop
    /// meanwhile.
    fn wait_for_folders(&self, begin: Instant) -> Result<bool, CliError> {
        let mut said = false;
        while let Some(folder) = self.folders.iter().find(|folder| is_taken(folder)) {
            if begin.elapsed() > STOP_TIME_MAX {
                return Err(CliError::failed(format!(
                    "a node still runs on {}; stop it first, or give another folder with --dir",
                    folder.display()
                )));
            }
            if !said {
                info!("nodes of an earlier start are still stopping");
                said = true;
            }
            match self.events.recv_timeout(POLL) {
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => return Ok(false),
                // None of these has been started yet.
                Ok(Event::OutputEnded(_)) | Err(RecvTimeoutError::Timeout) => {}
            }
        }
        Ok(true)
    }

    /// Keeps them running until somebody asks for a stop. One that says that it was removed from the cluster is not started
    /// again; `removed` is told its name, and it is said if that fails.
    pub fn run(&mut self, removed: &mut dyn FnMut(&str) -> Result<(), CliError>) -> Result<(), CliError> {
        loop {
            let event = match self.next_wake() {
                // No sender is gone: this has one itself.
                None => self.events.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(at) => self.events.recv_timeout(at.saturating_duration_since(Instant::now())),
            };
            match event {
                Ok(Event::Stop) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Ok(Event::OutputEnded(number)) => self.slots[number].ending = true,
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.look_after(removed)?;
        }
    }

    fn next_wake(&self) -> Option<Instant> {
        let restart = self.slots.iter().filter_map(|slot| slot.restart_at).min();
        let now = Instant::now();
        let ending = self.slots.iter().any(|slot| slot.ending).then(|| now + POLL);
        let starting = |slot: &Slot| slot.starting.is_some() && slot.child.process_id().is_some();
        let starting = self.slots.iter().any(starting).then(|| now + POLL_AGAIN);
        [restart, ending, starting].into_iter().flatten().min()
    }

    fn look_after(&mut self, removed: &mut dyn FnMut(&str) -> Result<(), CliError>) -> Result<(), CliError> {
        for (number, slot) in self.slots.iter_mut().enumerate() {
            slot.look_whether_it_serves();
            if slot.ending
                && let Some(status) = slot.child.ended()?
            {
                slot.ending = false;
                if is_removal(status) {
                    slot.child.output().release();
                    note_removal(slot.child.name(), removed);
                } else if let (how, pause, true) = slot.ended(status) {
                    let node = slot.child.name();
                    warn!(
                        node,
                        "ended ({how}); starting it again in {} s{}",
                        pause.as_secs(),
                        slot.outlook()
                    );
                }
            }
            if slot.restart_at.is_some_and(|at| at <= Instant::now()) {
                slot.restart_at = None;
                if let Err(failed) = slot.start(number, &self.sender) {
                    error!(node = slot.child.name(), "{failed}");
                    slot.child.kill();
                    slot.restart_at = Some(Instant::now() + RESTART_PAUSE);
                }
            }
        }
        Ok(())
    }

    /// Stops all at once, cleanly if they can.
    pub fn stop(&mut self) {
        self.slots.iter_mut().for_each(|slot| slot.child.ask_to_stop());
        let begin = Instant::now();
        while begin.elapsed() < STOP_TIME_MAX {
            let ended = |slot: &mut Slot| {
                // One that cannot be asked is killed below.
                let _ = slot.child.ended();
                slot.child.process_id().is_none()
            };
            let all_ended = self.slots.iter_mut().map(ended).filter(|ended| !ended).count() == 0;
            if all_ended {
                return;
            }
            std::thread::sleep(POLL);
        }
        for slot in &mut self.slots {
            if slot.child.process_id().is_some() {
                error!(node = slot.child.name(), "does not stop; it is ended");
                slot.child.kill();
            }
        }
    }
}

/// How a process ended, for people.
fn how(status: ExitStatus) -> String {
    match (status.code(), std::os::unix::process::ExitStatusExt::signal(&status)) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::path::Path;
    use std::sync::mpsc;

    use coquina_control::{FolderLock, ServerFile, running_server};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    #[track_caller]
    fn wait(holds: impl Fn() -> bool) {
        let begin = Instant::now();
        while !holds() {
            assert!(begin.elapsed() < PATIENCE, "it has not come true");
            std::thread::sleep(POLL);
        }
    }

    /// What the tests below start. It serves once there is a file `go` in its folder, and ends when that is gone.
    #[test]
    #[ignore = "a child of the tests below"]
    fn serves_when_told_to() {
        let folder = std::env::args_os().next_back().map(PathBuf::from);
        let Some(folder) = folder.filter(|folder| folder.is_dir()) else { return };
        if folder.join("fails").exists() {
            // The test harness keeps what the usual macro says to itself.
            std::io::Write::write_all(&mut std::io::stderr(), b"error: the drive is gone\n").unwrap();
            std::process::exit(if folder.join("removed").exists() {
                i32::from(EXIT_CODE_REMOVED)
            } else {
                1
            });
        }
        wait(|| folder.join("go").exists());
        let lock = FolderLock::acquire(&folder).unwrap();
        let file = ServerFile {
            version: String::new(),
            process: std::process::id(),
            http: String::new(),
            nbd: Vec::new(),
            native: String::new(),
        };
        lock.announce(&file).unwrap();
        wait(|| !folder.join("go").exists());
        if folder.join("removed").exists() {
            std::process::exit(i32::from(EXIT_CODE_REMOVED));
        }
    }

    /// A child in a folder of its own.
    fn spec(folder: &Path, name: &str) -> ChildSpec {
        let folder = folder.join(name);
        std::fs::create_dir(&folder).unwrap();
        let child = format!("{}::serves_when_told_to", module_path!().split_once("::").unwrap().1);
        let mut arguments = ["--ignored", "--exact", child.as_str()].map(OsString::from).to_vec();
        arguments.push(folder.clone().into());
        ChildSpec { name: name.to_owned(), folder, arguments }
    }

    fn process(folder: &Path) -> Option<u32> {
        running_server(folder).ok().map(|server| server.process)
    }

    /// A node without a drive was started every 3 s, and said the same each time.
    #[test]
    fn starts_that_fail_are_told_once_and_the_pauses_grow() {
        let mut failures = Failures::default();
        let seconds = |seconds| Duration::from_secs(seconds);
        assert_eq!(failures.ended(true, "signal 9"), (seconds(3), true));
        assert_eq!(failures.ended(true, "signal 9"), (seconds(3), true), "it had served in between");
        assert_eq!(failures.ended(false, "no drive"), (seconds(3), true));
        let next: Vec<_> = (0..6).map(|_| failures.ended(false, "no drive")).collect();
        assert_eq!(next, [6, 12, 24, 48, 60, 60].map(|pause| (seconds(pause), false)));
        assert_eq!(failures.ended(false, "no room"), (seconds(60), true), "another reason");
        failures.count = u32::MAX - 1;
        assert_eq!(failures.ended(false, "no room"), (seconds(60), false));
        assert_eq!(failures.ended(true, "no room"), (seconds(3), true));
    }

    /// The supervisor's first word of a node that fails has its reason, and one that says that it was removed is told apart.
    #[test]
    fn a_start_that_fails_is_told_with_its_reason() {
        let folder = tempfile::tempdir().unwrap();
        let specs = vec![spec(folder.path(), "first"), spec(folder.path(), "second")];
        std::fs::write(specs[0].folder.join("fails"), "").unwrap();
        std::fs::write(specs[1].folder.join("go"), "").unwrap();
        let (sender, events) = mpsc::channel();
        let mut supervisor = Supervisor::new(specs, sender, events);
        let started = supervisor.start().unwrap().unwrap();
        assert_eq!(started.ready, ["second"]);
        assert_eq!(started.failed, [("first".to_owned(), "exit code 1: the drive is gone".to_owned())]);
        assert!(supervisor.slots[0].restart_at.is_some() && supervisor.slots[0].failures.count == 1);
        supervisor.stop();
    }

    #[test]
    fn one_that_says_that_it_was_removed_when_it_starts_is_not_started_again() {
        let folder = tempfile::tempdir().unwrap();
        let specs = vec![spec(folder.path(), "first"), spec(folder.path(), "second")];
        for name in ["fails", "removed"] {
            std::fs::write(specs[0].folder.join(name), "").unwrap();
        }
        std::fs::write(specs[1].folder.join("go"), "").unwrap();
        let (sender, events) = mpsc::channel();
        let mut supervisor = Supervisor::new(specs, sender, events);
        let started = supervisor.start().unwrap().unwrap();
        assert_eq!((started.removed, started.ready), (vec!["first".to_owned()], vec!["second".to_owned()]));
        assert!(started.failed.is_empty() && supervisor.slots[0].restart_at.is_none());
        supervisor.stop();
    }

    #[test]
    fn a_stop_is_heard_while_nodes_of_an_earlier_start_are_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let specs = vec![spec(folder.path(), "first")];
        let earlier = FolderLock::acquire(&specs[0].folder).unwrap();
        let (sender, events) = mpsc::channel();
        let mut supervisor = Supervisor::new(specs, sender.clone(), events);
        sender.send(Event::Stop).unwrap();
        let begin = Instant::now();
        assert!(supervisor.start().unwrap().is_none());
        assert!(begin.elapsed() < STOP_TIME_MAX / 2, "{:?}", begin.elapsed());
        drop(earlier);
    }

    #[test]
    fn one_that_dies_while_others_still_start_is_started_again() {
        let folder = tempfile::tempdir().unwrap();
        let specs = vec![spec(folder.path(), "first"), spec(folder.path(), "second")];
        let (first, second) = (specs[0].folder.clone(), specs[1].folder.clone());
        let (sender, events) = mpsc::channel();
        let mut supervisor = Supervisor::new(specs, sender.clone(), events);
        std::fs::write(first.join("go"), "").unwrap();
        let thread = std::thread::spawn(move || {
            supervisor.start().unwrap();
            supervisor.run(&mut |_| Ok(())).unwrap();
            supervisor.stop();
        });
        wait(|| process(&first).is_some());
        let before = process(&first);
        // It is seen to serve, then it ends, and then the second one is still starting.
        std::thread::sleep(10 * POLL);
        std::fs::remove_file(first.join("go")).unwrap();
        wait(|| process(&first).is_none());
        std::thread::sleep(10 * POLL);
        std::fs::write(first.join("go"), "").unwrap();
        std::fs::write(second.join("go"), "").unwrap();
        wait(|| process(&first).is_some_and(|now| Some(now) != before));
        sender.send(Event::Stop).unwrap();
        thread.join().unwrap();
    }

    #[test]
    fn others_serve_though_it_cannot_be_noted_that_one_was_removed() {
        let folder = tempfile::tempdir().unwrap();
        let specs = vec![spec(folder.path(), "first"), spec(folder.path(), "second")];
        let (first, second) = (specs[0].folder.clone(), specs[1].folder.clone());
        let (sender, events) = mpsc::channel();
        let mut supervisor = Supervisor::new(specs, sender.clone(), events);
        [&first, &second].iter().for_each(|folder| std::fs::write(folder.join("go"), "").unwrap());
        let (noted, told) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            supervisor.start().unwrap();
            let mut note = |name: &str| {
                noted.send(name.to_owned()).unwrap();
                Err::<(), _>(CliError::failed("no space left"))
            };
            supervisor.run(&mut note).unwrap();
            supervisor.stop();
        });
        wait(|| process(&first).is_some() && process(&second).is_some());
        std::thread::sleep(10 * POLL);
        std::fs::write(first.join("removed"), "").unwrap();
        std::fs::remove_file(first.join("go")).unwrap();
        assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "first");
        std::thread::sleep(10 * POLL);
        assert!(process(&second).is_some() && !thread.is_finished());
        sender.send(Event::Stop).unwrap();
        thread.join().unwrap();
    }
}
