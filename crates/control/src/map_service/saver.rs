//! The thread that writes `cluster.json`.
//!
//! Invariants:
//! - nobody else touches the disk: what is to be saved is handed over, and a disk that hangs holds up this thread only;
//! - one save at a time; of what is handed over meanwhile only the newest is saved next;
//! - after one that failed, the next is begun 5 s later, unless somebody asks for it at once;
//! - it ends with the [`Saver`], or as soon as the save that is under way then has come back. Nothing else is begun then.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::cluster_file::ClusterFile;
use crate::folder::FolderError;

/// Pause after a save that failed.
const RETRY_PAUSE: Duration = Duration::from_secs(5);

/// Writes a file durably.
pub(super) type Save = Box<dyn Fn(&ClusterFile) -> Result<(), FolderError> + Send>;

/// Is told after each save why it failed, if it did.
pub(super) type Tell = Box<dyn Fn(Option<String>) + Send>;

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
    /// The newest is not what the last save was begun with, or that failed.
    is_due: bool,
    /// When the last save failed, if it did.
    failed_at: Option<Instant>,
    ended: bool,
}

impl Shared {
    fn work(&self) -> MutexGuard<'_, Work> {
        // Nothing is half changed when a thread panics.
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Saver {
    pub(super) fn start(save: Save, tell: Tell) -> std::io::Result<Saver> {
        let shared = Arc::new(Shared::default());
        let (came_back, done) = watch::channel(0);
        let for_thread = shared.clone();
        std::thread::Builder::new()
            .name("map-saver".to_owned())
            .spawn(move || run(&for_thread, &save, &tell, &came_back))?;
        Ok(Saver { shared, done })
    }

    /// Has a file be saved if it is not what was handed over last, or that could not be saved; not soon after a save that failed,
    /// unless it is to be `at_once`. Returns the number of its save, or of the last one.
    pub(super) fn save(&self, file: ClusterFile, at_once: bool) -> u64 {
        let mut work = self.shared.work();
        if work.newest.as_ref() != Some(&file) {
            work.newest = Some(file);
            work.is_due = true;
        }
        let may_begin = at_once || work.failed_at.is_none_or(|failed| failed.elapsed() >= RETRY_PAUSE);
        if work.is_due && may_begin {
            work.is_due = false;
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

fn run(shared: &Shared, save: &Save, tell: &Tell, came_back: &watch::Sender<u64>) {
    let mut said: Option<String> = None;
    while let Some((number, file)) = next(shared) {
        let failed = save(&file).err().map(|error| error.to_string());
        match &failed {
            Some(error) if said != failed => tracing::warn!(error, "cannot remember how far the store is"),
            None if said.is_some() => tracing::info!("it is remembered again how far the store is"),
            _ => {}
        }
        {
            let mut work = shared.work();
            work.failed_at = failed.is_some().then(Instant::now);
            work.is_due |= failed.is_some() && work.number == number;
        }
        tell(failed.clone());
        said = failed;
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use coquina_base::ClusterId;
    use coquina_store::Identity;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    /// On a full disk it was tried four times a second, each with a line in the log.
    #[tokio::test(flavor = "current_thread")]
    async fn a_save_that_fails_is_tried_rarely_and_told() {
        let tries = Arc::new(AtomicU64::new(0));
        let (is_full, told) = (Arc::new(AtomicBool::new(true)), Arc::new(Mutex::new(None)));
        let (counted, full, heard) = (tries.clone(), is_full.clone(), told.clone());
        let save: Save = Box::new(move |_| {
            counted.fetch_add(1, Ordering::SeqCst);
            let source = std::io::ErrorKind::StorageFull.into();
            let failed = FolderError::Io { doing: "write", path: "/f".into(), source };
            if full.load(Ordering::SeqCst) { Err(failed) } else { Ok(()) }
        });
        let saver = Saver::start(save, Box::new(move |failed| *heard.lock().unwrap() = failed)).unwrap();
        let file = |revision| ClusterFile::new(ClusterId::default(), Identity { store_id: 1, revision });
        for step in 0..20 {
            // Whether there is anything new or not.
            saver.save(file(step / 2), false);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(tries.load(Ordering::SeqCst), 1);
        assert!(told.lock().unwrap().as_ref().is_some_and(|error: &String| error.contains("/f")));
        assert_eq!(saver.newest(), Some(file(9)));
        let number = saver.save(file(9), true);
        assert!(saver.wait(number, PATIENCE).await);
        assert_eq!(tries.load(Ordering::SeqCst), 2, "at once");
        is_full.store(false, Ordering::SeqCst);
        let number = saver.save(file(9), true);
        assert!(saver.wait(number, PATIENCE).await);
        assert_eq!((tries.load(Ordering::SeqCst), told.lock().unwrap().clone()), (3, None));
        assert_eq!(saver.save(file(9), true), number, "there is nothing new");
        let number = saver.save(file(10), false);
        assert!(saver.wait(number, PATIENCE).await);
        assert_eq!(tries.load(Ordering::SeqCst), 4);
    }
}
