//! The thread that looks after a node now and then: how much memory the block cache may take, which drives have
//! failed, and when they were scrubbed.

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use coquina_base::DriveId;
use coquina_reactor::MailboxSender;

use crate::cache_size::{HostMemory, target_bytes};
use crate::command::Command;
use crate::error::NodeError;
use crate::scrubs::Scrubs;
use crate::snapshot::CoreSnapshot;

/// How often the block cache's size is looked at, and what could not be recorded is tried again.
const PERIOD: Duration = Duration::from_secs(5);

/// How long reactors may take to say what they hold, all together.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(1);

/// What the thread is told.
pub(crate) enum Notice {
    /// A write to the drive failed: it takes no changes any more.
    Poisoned(DriveId),
    /// A scrub of a shard has ended.
    Scrubbed,
    /// Nothing more to do.
    Stop,
}

/// A running housekeeper.
pub(crate) struct Housekeeper {
    stop: Sender<Notice>,
    thread: JoinHandle<()>,
}

/// What the thread works with.
pub(crate) struct HousekeeperConfig {
    /// Drives that take no changes any more.
    pub read_only: Arc<Mutex<BTreeSet<DriveId>>>,
    pub scrubs: Arc<Scrubs>,
    pub cores: Vec<MailboxSender<Command>>,
    /// Most bytes of cache, for all shards together.
    pub cache_bound_bytes: u64,
    /// Most bytes of index, for all shards together.
    pub index_bytes: u64,
}

impl Housekeeper {
    /// Starts the thread. `stop` sends to `notices`.
    pub fn start(
        config: HousekeeperConfig,
        stop: Sender<Notice>,
        notices: Receiver<Notice>,
    ) -> Result<Housekeeper, NodeError> {
        let mut task = Task { config, cache_bytes: 0, shards: 0 };
        let thread = std::thread::Builder::new()
            .name("housekeeper".to_owned())
            .spawn(move || task.run(&notices))
            .map_err(NodeError::Thread)?;
        Ok(Housekeeper { stop, thread })
    }

    /// Ends the thread.
    pub fn stop(self) {
        // A thread that is gone needs no telling, and a panic of it was already reported.
        let _ = self.stop.send(Notice::Stop);
        let _ = self.thread.join();
    }
}

struct Task {
    config: HousekeeperConfig,
    cache_bytes: u64,
    /// Shards that memory was divided among.
    shards: u64,
}

impl Task {
    fn run(&mut self, notices: &Receiver<Notice>) {
        let mut due = Instant::now() + PERIOD;
        loop {
            match notices.recv_timeout(due.saturating_duration_since(Instant::now())) {
                Ok(Notice::Poisoned(drive)) => {
                    let read_only = &self.config.read_only;
                    read_only.lock().unwrap_or_else(PoisonError::into_inner).insert(drive);
                }
                Ok(Notice::Scrubbed) => due = Instant::now(),
                Ok(Notice::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    due = Instant::now() + PERIOD;
                    let snapshots = self.look();
                    self.config.scrubs.take(&snapshots);
                    self.size_memory(&snapshots);
                }
            }
        }
    }

    /// What reactors say, those that answer in time.
    fn look(&self) -> Vec<CoreSnapshot> {
        let cores = &self.config.cores;
        let (sender, receiver) = channel();
        cores.iter().for_each(|core| core.send(Command::Snapshot { done: sender.clone() }));
        // All together, and not for long: meanwhile nobody takes notices, such as that a drive takes no changes any more.
        let until = Instant::now() + ANSWER_TIME_MAX;
        let left = || until.saturating_duration_since(Instant::now());
        cores.iter().map_while(|_| receiver.recv_timeout(left()).ok()).collect()
    }

    /// Divides memory among the shards that there are: drives come and go.
    fn size_memory(&mut self, snapshots: &[CoreSnapshot]) {
        let Some(memory) = HostMemory::read() else { return };
        let cores = &self.config.cores;
        let shards = snapshots.iter().map(|core| core.shards.len() as u64).sum();
        if snapshots.len() < cores.len() || shards == 0 {
            return;
        }
        let held = snapshots.iter().flat_map(|core| &core.shards).map(|shard| shard.shard.stats.cache_bytes);
        let target = target_bytes(memory, held.sum(), self.config.cache_bound_bytes);
        // Small changes are not worth the waking.
        if shards != self.shards || target.abs_diff(self.cache_bytes) > self.cache_bytes / 16 {
            (self.cache_bytes, self.shards) = (target, shards);
            let cache_bytes_per_shard = target / shards;
            let index_bytes_per_shard = self.config.index_bytes / shards;
            for core in cores {
                core.send(Command::SetMemory { cache_bytes_per_shard, index_bytes_per_shard });
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use coquina_control::ShardSnapshot;
    use coquina_reactor::{Reactor, ReactorConfig, Wait, mailbox};

    use super::*;
    use crate::snapshot::CoreShard;

    const MIB: u64 = 1 << 20;

    /// Stands for a reactor: says how many shards it has, and passes on what it is told of memory.
    struct FakeCore {
        commands: MailboxSender<Command>,
        shards: Arc<AtomicUsize>,
        /// Bytes of cache and of index for each shard.
        told: Receiver<(u64, u64)>,
        thread: JoinHandle<()>,
    }

    impl FakeCore {
        fn start() -> FakeCore {
            let (ready, started) = channel();
            let (tell, told) = channel();
            let shards = Arc::new(AtomicUsize::new(0));
            let count = shards.clone();
            let thread = std::thread::spawn(move || {
                let mut reactor = Reactor::new(ReactorConfig::default()).unwrap();
                let (sender, mailbox) = mailbox(reactor.waker());
                ready.send(sender).unwrap();
                let (mut completions, mut commands) = (Vec::new(), Vec::new());
                loop {
                    reactor.turn(Wait::Forever, &mut completions).unwrap();
                    completions.clear();
                    mailbox.drain(&mut commands);
                    for command in commands.drain(..) {
                        match command {
                            Command::Snapshot { done } => {
                                done.send(snapshot_of(count.load(Ordering::SeqCst))).unwrap();
                            }
                            Command::SetMemory { cache_bytes_per_shard, index_bytes_per_shard } => {
                                tell.send((cache_bytes_per_shard, index_bytes_per_shard)).unwrap();
                            }
                            Command::Stop => return,
                            _ => panic!("no housekeeper asks for that"),
                        }
                    }
                }
            });
            FakeCore { commands: started.recv().unwrap(), shards, told, thread }
        }

        /// What it has been told since it was asked last.
        fn told(&self) -> Vec<(u64, u64)> {
            // It takes one after the other: when this is answered, all that was sent before has been passed on.
            let (done, answer) = channel();
            self.commands.send(Command::Snapshot { done });
            answer.recv().unwrap();
            self.told.try_iter().collect()
        }
    }

    fn snapshot_of(shards: usize) -> CoreSnapshot {
        let shard = CoreShard {
            drive: DriveId::default(),
            number: 0,
            shard: ShardSnapshot::default(),
            write_latency: Default::default(),
            read_latency: Default::default(),
            stalled: 0,
            damage: Vec::new(),
        };
        CoreSnapshot { shards: vec![shard; shards], ..CoreSnapshot::default() }
    }

    #[test]
    fn reactors_that_hang_are_waited_for_together() {
        let reactors = [(); 4].map(|()| Reactor::new(ReactorConfig::default()).unwrap());
        let mailboxes = reactors.each_ref().map(|reactor| mailbox::<Command>(reactor.waker()));
        let config = HousekeeperConfig {
            read_only: Arc::default(),
            scrubs: Scrubs::open(None),
            cores: mailboxes.iter().map(|(sender, _)| sender.clone()).collect(),
            cache_bound_bytes: MIB,
            index_bytes: MIB,
        };
        let task = Task { config, cache_bytes: 0, shards: 0 };
        let begin = Instant::now();
        assert!(task.look().is_empty());
        assert!(begin.elapsed() < 3 * ANSWER_TIME_MAX, "{:?}", begin.elapsed());
    }

    #[test]
    fn memory_is_divided_anew_when_drives_come_and_go() {
        let cores = [FakeCore::start(), FakeCore::start()];
        let config = HousekeeperConfig {
            read_only: Arc::default(),
            scrubs: Scrubs::open(None),
            cores: cores.iter().map(|core| core.commands.clone()).collect(),
            // Less than the smallest cache: the target is the same, whatever the host can spare.
            cache_bound_bytes: 12 * MIB,
            index_bytes: 24 * MIB,
        };
        let mut task = Task { config, cache_bytes: 0, shards: 0 };
        let mut told_of = |shards: [usize; 2]| {
            for (core, count) in cores.iter().zip(shards) {
                core.shards.store(count, Ordering::SeqCst);
            }
            let snapshots = task.look();
            task.size_memory(&snapshots);
            let told = cores.each_ref().map(FakeCore::told);
            assert_eq!(told[0], told[1], "each reactor is told the same");
            told[0].clone()
        };
        assert_eq!(told_of([1, 0]), [(12 * MIB, 24 * MIB)]);
        assert!(told_of([1, 0]).is_empty(), "nothing has changed");
        assert_eq!(told_of([2, 1]), [(4 * MIB, 8 * MIB)], "drives have come");
        assert!(told_of([1, 2]).is_empty(), "as many as before");
        assert_eq!(told_of([1, 1]), [(6 * MIB, 12 * MIB)], "one has gone");
        assert!(told_of([0, 0]).is_empty(), "there is nobody to take it");
        for core in cores {
            core.commands.send(Command::Stop);
            core.thread.join().unwrap();
        }
    }
}
