//! Runs children: starts them again when they die, and stops them in order.
//!
//! Invariants:
//! - a child that died is started again after a pause, for as long as nobody asked for a stop;
//! - when this ends, no child is left, however it ends.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use tracing::{error, info, warn};

use super::child::{Child, ChildSpec, Event, is_taken};
use crate::error::{CliError, EXIT_CODE_REMOVED};

/// Pause before a child is started again.
const RESTART_PAUSE: Duration = Duration::from_secs(3);
/// Longest wait for all children to serve, at first.
const START_TIME_MAX: Duration = Duration::from_secs(120);
/// Longest wait for children to stop cleanly; each of them gives up after 20 s by itself.
const STOP_TIME_MAX: Duration = Duration::from_secs(40);
/// How often it is looked whether a child serves, or has ended.
const POLL: Duration = Duration::from_millis(20);

/// How the start went.
#[derive(Debug, Default)]
pub struct Started {
    /// Names of children that serve.
    pub ready: Vec<String>,
    /// Names of children that ended instead, and how.
    pub failed: Vec<(String, String)>,
}

struct Slot {
    child: Child,
    /// When it is started again.
    restart_at: Option<Instant>,
    /// Its output has ended, but not the child itself.
    ending: bool,
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
        let slot = |spec| Slot { child: Child::new(spec), restart_at: None, ending: false };
        Supervisor { slots: specs.into_iter().map(slot).collect(), folders, sender, events }
    }

    /// Starts all, and waits until each serves or has ended. Says `false` if somebody asked for a stop meanwhile.
    pub fn start(&mut self) -> Result<Option<Started>, CliError> {
        let begin = Instant::now();
        self.wait_for_folders(begin)?;
        for number in 0..self.slots.len() {
            self.slots[number].child.start(number, self.sender.clone())?;
        }
        let mut started = Started::default();
        let mut waiting: Vec<usize> = (0..self.slots.len()).collect();
        while !waiting.is_empty() {
            let mut left = Vec::new();
            for number in waiting {
                let slot = &mut self.slots[number];
                let name = slot.child.name().to_owned();
                if slot.child.is_ready() {
                    started.ready.push(name);
                } else if let Some(status) = slot.child.ended()? {
                    slot.restart_at = Some(Instant::now() + RESTART_PAUSE);
                    started.failed.push((name, how(status)));
                } else if begin.elapsed() > START_TIME_MAX {
                    let reason = format!("it does not serve after {} s", START_TIME_MAX.as_secs());
                    started.failed.push((name, reason));
                } else {
                    left.push(number);
                }
            }
            waiting = left;
            match self.events.recv_timeout(POLL) {
                Ok(Event::Stop) => return Ok(None),
                Ok(Event::OutputEnded(_)) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(None),
            }
        }
        Ok(Some(started))
    }

    /// Children of a supervisor that was killed stop by themselves, which may take a while.
    fn wait_for_folders(&self, begin: Instant) -> Result<(), CliError> {
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
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    /// Keeps them running until somebody asks for a stop. One that says that it was removed from the cluster is not started
    /// again; `removed` is told its name.
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
        let poll = self.slots.iter().any(|slot| slot.ending).then(|| Instant::now() + POLL);
        [restart, poll].into_iter().flatten().min()
    }

    fn look_after(&mut self, removed: &mut dyn FnMut(&str) -> Result<(), CliError>) -> Result<(), CliError> {
        for (number, slot) in self.slots.iter_mut().enumerate() {
            if slot.ending {
                let ended = slot.child.ended()?;
                if ended.is_some_and(|status| status.code() == Some(i32::from(EXIT_CODE_REMOVED))) {
                    info!(node = slot.child.name(), "was removed from the cluster; it is not started again");
                    removed(slot.child.name())?;
                } else if let Some(status) = ended {
                    warn!(
                        node = slot.child.name(),
                        "ended ({}); starting it again in {} s",
                        how(status),
                        RESTART_PAUSE.as_secs()
                    );
                    slot.restart_at = Some(Instant::now() + RESTART_PAUSE);
                }
                // A child that was waited for during the start has set its restart by itself.
                slot.ending = slot.child.process_id().is_some();
            }
            if slot.restart_at.is_some_and(|at| at <= Instant::now()) {
                slot.restart_at = None;
                if let Err(failed) = slot.child.start(number, self.sender.clone()) {
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
