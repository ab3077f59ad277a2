//! The thread that changes the state and makes the changes durable, a batch at a time.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::Shared;
use super::medium::Medium;
use super::record;
use crate::error::StoreError;
use crate::machine::Machine;

/// Something to run on the state; it returns how to answer once the outcome is durable.
pub(super) type Command = Box<dyn FnOnce(&mut Machine, u64) -> Reply + Send>;
pub(super) type Reply = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// Commands that share one sync.
const BATCH_COMMANDS_MAX: usize = 256;
/// The history is cut to half of this when it becomes larger.
const HISTORY_BYTES_MAX: usize = 16 << 20;
/// A file is rewritten when it has grown by at least this, and by the size that it had after the last time.
const GROWTH_BYTES_MIN: usize = 4 << 20;

pub(super) struct Worker {
    medium: Box<dyn Medium>,
    store_id: u64,
    shared: Arc<Shared>,
    durable: watch::Sender<u64>,
    record_next: u64,
    file_bytes: usize,
    rewrite_at_bytes: usize,
    poisoned: Option<String>,
    begin: Instant,
}

impl Worker {
    /// Works on a state that has just been written as a whole file of so many bytes.
    pub(super) fn new(medium: Box<dyn Medium>, store_id: u64, machine: Machine, file_bytes: usize) -> Self {
        let (durable, _) = watch::channel(machine.revision());
        Worker {
            medium,
            store_id,
            shared: Arc::new(Shared { machine: Mutex::new(machine) }),
            durable,
            record_next: 1,
            file_bytes,
            rewrite_at_bytes: rewrite_at(file_bytes),
            poisoned: None,
            begin: Instant::now(),
        }
    }

    pub(super) fn store_id(&self) -> u64 {
        self.store_id
    }

    pub(super) fn shared(&self) -> Arc<Shared> {
        self.shared.clone()
    }

    pub(super) fn durable(&self) -> watch::Receiver<u64> {
        self.durable.subscribe()
    }

    /// Works until nobody can ask any more.
    pub(super) fn run(mut self, commands: &Receiver<Command>) {
        loop {
            let mut batch = Vec::new();
            match self.wait(commands) {
                Ok(command) => batch.push(command),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            // All that came before is in the batch, unless that is full.
            let now_ns = self.now_ns();
            while let Some(command) =
                (batch.len() < BATCH_COMMANDS_MAX).then(|| commands.try_recv().ok()).flatten()
            {
                batch.push(command);
            }
            self.work(batch, now_ns);
        }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Sleeps until somebody asks or a lease ends.
    fn wait(&self, commands: &Receiver<Command>) -> Result<Command, RecvTimeoutError> {
        let expiry_ns = if self.poisoned.is_some() { None } else { self.shared.machine().expiry_next_ns() };
        match expiry_ns {
            None => commands.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(expiry_ns) => {
                commands.recv_timeout(Duration::from_nanos(expiry_ns.saturating_sub(self.now_ns())))
            }
        }
    }

    fn work(&mut self, batch: Vec<Command>, now_ns: u64) {
        let is_all = batch.len() < BATCH_COMMANDS_MAX;
        let (replies, effects, revision) = {
            let mut machine = self.shared.machine();
            let replies: Vec<Reply> =
                batch.into_iter().map(|command| command(&mut machine, now_ns)).collect();
            if self.poisoned.is_none() {
                // After the batch, and only if nothing else waits: a keep-alive that has waited for this thread was in time.
                if is_all {
                    machine.expire(now_ns);
                }
                if machine.history_bytes() > HISTORY_BYTES_MAX
                    && let Some(revision) = machine.compaction_for(HISTORY_BYTES_MAX / 2)
                {
                    let compacted = machine.compact(revision);
                    assert!(compacted.is_ok(), "the history ends at the present revision");
                }
            }
            (replies, machine.take_effects(), machine.revision())
        };
        if self.poisoned.is_none() && !effects.is_empty() {
            let bytes = record::encode_effects(self.store_id, self.record_next, &effects);
            // Rewrites may have failed for long. A file that the next start would refuse is not written.
            let fits = self.medium.check_length(self.file_bytes.saturating_add(bytes.len()));
            match fits.and_then(|()| self.medium.append(&bytes)) {
                Ok(()) => {
                    self.record_next += 1;
                    self.file_bytes += bytes.len();
                    self.durable.send_replace(revision);
                }
                Err(error) => self.poison(&error),
            }
        }
        for reply in replies {
            reply(match &self.poisoned {
                None => Ok(()),
                Some(reason) => Err(StoreError::Poisoned { reason: reason.clone() }),
            });
        }
        if self.poisoned.is_none() && self.file_bytes >= self.rewrite_at_bytes {
            self.rewrite();
        }
    }

    /// Replaces the file by one that holds just the present state.
    fn rewrite(&mut self) {
        let bytes = record::encode_file(self.store_id, &self.shared.machine());
        if let Err(error) = self.medium.prepare(&bytes) {
            tracing::warn!(%error, "the store's file could not be rewritten and goes on growing");
            self.rewrite_at_bytes = rewrite_at(self.file_bytes);
            return;
        }
        if let Err(error) = self.medium.publish() {
            self.poison(&error);
            return;
        }
        self.record_next = 1;
        self.file_bytes = bytes.len();
        self.rewrite_at_bytes = rewrite_at(bytes.len());
    }

    fn poison(&mut self, error: &StoreError) {
        tracing::error!(%error, "the store takes no more changes until a restart");
        self.poisoned = Some(error.to_string());
    }
}

fn rewrite_at(file_bytes: usize) -> usize {
    file_bytes + file_bytes.max(GROWTH_BYTES_MIN)
}
