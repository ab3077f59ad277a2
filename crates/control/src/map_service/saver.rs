//! The thread that writes `cluster.json`.
//!
//! Invariants:
//! - nobody else touches the disk: what is to be saved is handed over, and a disk that hangs holds up this thread only;
//! - one save at a time; of what is handed over meanwhile only the newest is saved next;
//! - it ends with the [`Saver`], or as soon as the save that is under way then has come back. Nothing else is begun then.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::cluster_file::ClusterFile;
use crate::folder::FolderError;

/// Writes a file durably.
pub(super) type Save = Box<dyn Fn(&ClusterFile) -> Result<(), FolderError> + Send>;

/// The way to the thread.
pub(super) struct Saver {
    shared: Arc<Shared>,
    /// Number of the last save that came back.
    done: watch::Receiver<u64>,
}

#[derive(Default)]
struct Shared {
    work: Mutex<Work>,
    changed: Condvar,
}

#[derive(Default)]
struct Work {
    /// What was handed over last. Saves are counted.
    newest: Option<ClusterFile>,
    number: u64,
    /// The last save that was begun.
    begun: u64,
    /// The last one that failed.
    failed: u64,
    ended: bool,
}

impl Shared {
    fn work(&self) -> MutexGuard<'_, Work> {
        // Nothing is half changed when a thread panics.
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Saver {
    pub(super) fn start(save: Save) -> std::io::Result<Saver> {
        let shared = Arc::new(Shared::default());
        let (came_back, done) = watch::channel(0);
        let for_thread = shared.clone();
        std::thread::Builder::new()
            .name("map-saver".to_owned())
            .spawn(move || run(&for_thread, &save, &came_back))?;
        Ok(Saver { shared, done })
    }

    /// Has a file be saved if it is not what was handed over last, or that could not be saved. Returns the number of its save.
    pub(super) fn save(&self, file: ClusterFile) -> u64 {
        let mut work = self.shared.work();
        let is_new = work.newest.as_ref() != Some(&file) || work.failed == work.number;
        if is_new {
            work.newest = Some(file);
            work.number += 1;
            self.shared.changed.notify_all();
        }
        work.number
    }

    /// What was handed over last.
    pub(super) fn newest(&self) -> Option<ClusterFile> {
        self.shared.work().newest.clone()
    }

    /// Waits until a save or a later one has come back, even if with an error; `false` if that takes too long.
    pub(super) async fn wait(&self, number: u64, patience: Duration) -> bool {
        let mut done = self.done.clone();
        let came_back = done.wait_for(|done| *done >= number);
        tokio::time::timeout(patience, came_back).await.is_ok_and(|done| done.is_ok())
    }
}

impl Drop for Saver {
    fn drop(&mut self) {
        self.shared.work().ended = true;
        self.shared.changed.notify_all();
    }
}

fn run(shared: &Shared, save: &Save, came_back: &watch::Sender<u64>) {
    while let Some((number, file)) = next(shared) {
        if let Err(error) = save(&file) {
            tracing::warn!(%error, "cannot remember how far the store is");
            shared.work().failed = number;
        }
        came_back.send_replace(number);
    }
}

/// Waits for something to save. `None`: nobody wants anything any more.
fn next(shared: &Shared) -> Option<(u64, ClusterFile)> {
    let mut work = shared.work();
    loop {
        if work.ended {
            return None;
        }
        if work.number > work.begun {
            work.begun = work.number;
            return work.newest.clone().map(|file| (work.number, file));
        }
        work = shared.changed.wait(work).unwrap_or_else(PoisonError::into_inner);
    }
}
