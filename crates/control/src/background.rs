//! The thread that finishes removals and shrinks. Asleep while there is nothing to do.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::catalogue::CatalogueCore;

/// Pause before failed work is tried again; doubles up to the longest.
const RETRY_PAUSE_MIN: Duration = Duration::from_secs(10);
const RETRY_PAUSE_MAX: Duration = Duration::from_secs(640);

pub(crate) struct Background {
    signal: Arc<Signal>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Signal {
    flags: Mutex<Flags>,
    changed: Condvar,
}

#[derive(Default)]
struct Flags {
    work: bool,
    stop: bool,
}

impl Signal {
    fn flags(&self) -> MutexGuard<'_, Flags> {
        self.flags.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for work, or for the pause after failed work. Returns whether to stop.
    fn wait(&self, pause: Option<Duration>) -> bool {
        let mut flags = self.flags();
        while !flags.work && !flags.stop {
            match pause {
                None => flags = self.changed.wait(flags).unwrap_or_else(PoisonError::into_inner),
                Some(pause) => {
                    let waited =
                        self.changed.wait_timeout(flags, pause).unwrap_or_else(PoisonError::into_inner);
                    flags = waited.0;
                    if waited.1.timed_out() {
                        break;
                    }
                }
            }
        }
        flags.work = false;
        flags.stop
    }
}

impl Background {
    pub(crate) fn start(core: Arc<CatalogueCore>) -> std::io::Result<Background> {
        let signal = Arc::new(Signal::default());
        signal.flags().work = true;
        let thread_signal = signal.clone();
        let thread = std::thread::Builder::new().name("catalogue".to_owned()).spawn(move || {
            let mut pause: Option<Duration> = None;
            while !thread_signal.wait(pause) {
                let complete = core.work_off(&|| thread_signal.flags().stop);
                let next = pause.map_or(RETRY_PAUSE_MIN, |pause| (pause * 2).min(RETRY_PAUSE_MAX));
                pause = (!complete).then_some(next);
            }
        })?;
        Ok(Background { signal, thread: Mutex::new(Some(thread)) })
    }

    pub(crate) fn wake(&self) {
        self.signal.flags().work = true;
        self.signal.changed.notify_all();
    }

    pub(crate) fn stop(&self) {
        self.signal.flags().stop = true;
        self.signal.changed.notify_all();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic of the thread was already reported by the panic hook.
            let _ = thread.join();
        }
    }
}
