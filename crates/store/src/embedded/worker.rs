//! The thread that changes the state and makes the changes durable, a batch at a time.
//!
//! Once a write fails, nobody knows what the file's end holds, and the state in memory is ahead of what was answered. So nothing is
//! answered from either any more: what is durable is kept a second time (`written`), and a new file of just that takes the place of
//! the old one as soon as it can be written. What was not answered as done is not done from then on.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::Shared;
use super::medium::Medium;
use super::record;
use crate::error::{Attempt, StoreError};
use crate::machine::{Effect, Machine};

/// The state and the time, or why nothing may be run on it.
pub(super) type Access<'a> = Result<(&'a mut Machine, u64), StoreError>;
/// Something to run on the state; it returns how to answer once the outcome is durable.
pub(super) type Command = Box<dyn FnOnce(Access<'_>) -> Reply + Send>;
pub(super) type Reply = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// Commands that share one sync.
const BATCH_COMMANDS_MAX: usize = 256;
/// The history is cut to half of this when it becomes larger.
const HISTORY_BYTES_MAX: usize = 16 << 20;
/// A file is rewritten when it has grown by at least this, and by the size that it had after the last time.
const GROWTH_BYTES_MIN: usize = 4 << 20;
/// Pause after an attempt to write the file anew that has failed.
const RETRY_PAUSE: Duration = Duration::from_millis(if cfg!(test) { 10 } else { 1000 });

/// The file could not be written.
struct Poisoned {
    /// What happened last.
    reason: String,
    /// When it is tried again.
    retry_ns: u64,
}

pub(super) struct Worker {
    medium: Box<dyn Medium>,
    store_id: u64,
    shared: Arc<Shared>,
    /// The state that is durable, with leases that know nothing of their time. Only what is being written is not in it.
    written: Machine,
    durable: watch::Sender<u64>,
    record_next: u64,
    file_bytes: usize,
    rewrite_at_bytes: usize,
    poisoned: Option<Poisoned>,
    begin: Instant,
}

impl Worker {
    /// Works on a state that has just been written as a whole file of so many bytes.
    pub(super) fn new(medium: Box<dyn Medium>, store_id: u64, machine: Machine, file_bytes: usize) -> Self {
        let (durable, _) = watch::channel(machine.revision());
        Worker {
            medium,
            store_id,
            written: machine.clone(),
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

    /// Sleeps until somebody asks, a lease ends or the file is to be written anew.
    fn wait(&self, commands: &Receiver<Command>) -> Result<Command, RecvTimeoutError> {
        let until_ns = match &self.poisoned {
            Some(poisoned) => Some(poisoned.retry_ns),
            None => self.shared.machine().expiry_next_ns(),
        };
        match until_ns {
            None => commands.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(until_ns) => {
                commands.recv_timeout(Duration::from_nanos(until_ns.saturating_sub(self.now_ns())))
            }
        }
    }

    fn work(&mut self, batch: Vec<Command>, now_ns: u64) {
        if self.poisoned.as_ref().is_some_and(|poisoned| now_ns >= poisoned.retry_ns) {
            self.recover();
        }
        if let Some(Poisoned { reason, .. }) = &self.poisoned {
            for command in batch {
                command(Err(StoreError::Poisoned { reason: reason.clone() }))(Ok(()));
            }
            return;
        }
        let is_all = batch.len() < BATCH_COMMANDS_MAX;
        let (replies, effects, revision) = {
            let mut machine = self.shared.machine();
            let replies: Vec<Reply> =
                batch.into_iter().map(|command| command(Ok((&mut *machine, now_ns)))).collect();
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
            (replies, machine.take_effects(), machine.revision())
        };
        let outcome = self.write(&effects, revision, now_ns);
        for reply in replies {
            reply(outcome.clone());
        }
        if self.poisoned.is_none() && self.file_bytes >= self.rewrite_at_bytes {
            self.rewrite();
        }
    }

    /// Makes what has happened durable.
    fn write(&mut self, effects: &[Effect], revision: u64, now_ns: u64) -> Result<(), StoreError> {
        if effects.is_empty() {
            return Ok(());
        }
        let bytes = record::encode_effects(self.store_id, self.record_next, effects);
        // Rewrites may have failed for long. A file that the next start would refuse is not written.
        let fits = self.medium.check_length(self.file_bytes.saturating_add(bytes.len()));
        if let Err(error) = fits.and_then(|()| self.medium.append(&bytes)) {
            self.poison(&error);
            // A start that comes before the new file may find it in the old one.
            let attempt = Attempt { endpoint: self.medium.name(), reason: error.to_string() };
            return Err(StoreError::OutcomeUnknown { doing: "change the cluster map", attempt });
        }
        for effect in effects {
            assert!(self.written.replay(effect, now_ns), "what happened fits the state that it happened to");
        }
        self.record_next += 1;
        self.file_bytes += bytes.len();
        self.durable.send_replace(revision);
        Ok(())
    }

    /// Replaces the file by one that holds just the present state.
    fn rewrite(&mut self) {
        let bytes = record::encode_file(self.store_id, &self.written);
        if let Err(error) = self.medium.prepare(&bytes) {
            tracing::warn!(%error, "the store's file could not be rewritten and goes on growing");
            self.rewrite_at_bytes = rewrite_at(self.file_bytes);
            return;
        }
        match self.medium.publish() {
            Ok(()) => self.begin_file(bytes.len()),
            // Either file may be there after a power cut: none may grow any more.
            Err(error) => self.poison(&error),
        }
    }

    fn begin_file(&mut self, file_bytes: usize) {
        self.record_next = 1;
        self.file_bytes = file_bytes;
        self.rewrite_at_bytes = rewrite_at(file_bytes);
    }

    fn poison(&mut self, error: &StoreError) {
        tracing::error!(%error, "the store takes no changes until its file can be written anew, which is tried again and again");
        self.poisoned = Some(Poisoned { reason: error.to_string(), retry_ns: self.now_ns() });
    }

    /// Writes a new file of what was durable, and goes on from that.
    fn recover(&mut self) {
        let image = Machine::from_image(self.written.image(), self.now_ns());
        let machine = image.unwrap_or_else(|| panic!("a state has an image that is one of a state"));
        assert!(machine.revision() == *self.durable.borrow(), "all that was answered is in what was written");
        let bytes = record::encode_file(self.store_id, &machine);
        if let Err(error) = self.medium.prepare(&bytes).and_then(|()| self.medium.publish()) {
            tracing::debug!(%error, "the store's file cannot be written anew");
            let retry_ns = self.now_ns().saturating_add(RETRY_PAUSE.as_nanos() as u64);
            self.poisoned = Some(Poisoned { reason: error.to_string(), retry_ns });
            return;
        }
        self.written = machine.clone();
        *self.shared.machine() = machine;
        self.begin_file(bytes.len());
        self.poisoned = None;
        tracing::info!("the store's file was written anew; it takes changes again");
    }
}

fn rewrite_at(file_bytes: usize) -> usize {
    file_bytes + file_bytes.max(GROWTH_BYTES_MIN)
}
