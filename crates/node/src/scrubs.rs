//! When the drives here were scrubbed last: kept in memory, and in the node's folder for the next start.
//!
//! The folder's disk may hang: each save has a thread of its own, and there is one at a time.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coquina_base::DriveId;
use coquina_control::{ScrubFile, ScrubRecord};

use crate::snapshot::CoreSnapshot;

/// The last scrubs.
pub(crate) struct Scrubs {
    /// Where they are kept; nowhere if there is none.
    folder: Option<PathBuf>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    file: ScrubFile,
    /// Whether the folder lacks something.
    is_due: bool,
    is_saving: bool,
    /// Whether it was told that it cannot be saved.
    is_told: bool,
}

impl Scrubs {
    /// Reads what was kept. Blocks for a moment.
    pub(crate) fn open(folder: Option<PathBuf>) -> Arc<Scrubs> {
        let read = folder.as_deref().map(ScrubFile::read).transpose();
        let file = read.unwrap_or_else(|error| {
            tracing::warn!(%error, "it is not known any more when drives were scrubbed");
            None
        });
        let state = State { file: file.unwrap_or_default(), ..State::default() };
        Arc::new(Scrubs { folder, state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing is half changed when a thread panics.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last scrub of a shard, as it was kept.
    pub(crate) fn last(&self, drive: DriveId, shard: u32) -> Option<ScrubRecord> {
        self.state().file.last(drive, shard)
    }

    /// Takes note of what reactors say of scrubs, and has it be kept. Does not wait for that.
    pub(crate) fn take(self: &Arc<Self>, cores: &[CoreSnapshot]) {
        let mut state = self.state();
        for shard in cores.iter().flat_map(|core| &core.shards) {
            if let Some(record) = shard.shard.last_scrub {
                let is_new = state.file.note(shard.drive, shard.number, record);
                state.is_due |= is_new;
            }
        }
        let Some(folder) = self.folder.clone() else { return };
        if !state.is_due || state.is_saving {
            return;
        }
        let (file, scrubs) = (state.file.clone(), self.clone());
        let save = move || {
            let saved = file.save(&folder);
            let mut state = scrubs.state();
            state.is_saving = false;
            // It is tried again with the next look.
            state.is_due |= saved.is_err();
            match saved {
                Ok(()) => state.is_told = false,
                Err(error) if !state.is_told => {
                    tracing::warn!(%error, "cannot remember when drives were scrubbed");
                    state.is_told = true;
                }
                Err(_) => {}
            }
        };
        // Without a thread it is tried again, too.
        if std::thread::Builder::new().name("scrub-saver".to_owned()).spawn(save).is_ok() {
            (state.is_due, state.is_saving) = (false, true);
        }
    }
}
