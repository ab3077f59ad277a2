//! The threads of the reactors: how they start, and what they start with.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use coquina_base::{ClusterId, NodeId};
use coquina_cluster::{MapView, ShardRef};
use coquina_copies::ShardCopies;
use coquina_engine::Shard;
use coquina_reactor::{
    BindTo, Interrupts, Mailbox, MailboxSender, Placement, Reactor, ReactorConfig, ReactorError, boottime_ns,
    mailbox,
};
use coquina_replication::CopyId;
use hashbrown::HashMap;

use crate::command::Command;
use crate::connection::Protocol;
use crate::core::{Core, ListenerSlot, ShardSlot};
use crate::error::NodeError;
use crate::follow::Owner;
use crate::housekeeper::Notice;
use crate::peers::PeerLinks;
use crate::proposals::Proposals;
use crate::stalls::HungShards;
use crate::volume::VolumeTable;

/// Reactor and slot of every shard.
pub(crate) type Places = HashMap<ShardRef, (usize, usize)>;

/// What a reactor's thread starts with.
pub(crate) struct Seed {
    pub index: usize,
    pub shards: Vec<SeedShard>,
    pub listeners: Vec<(OwnedFd, Protocol)>,
    pub places: Arc<Places>,
    pub map: Arc<MapView>,
    pub cluster: ClusterId,
    pub node: NodeId,
    pub notices: Sender<Notice>,
    pub proposals: Arc<Proposals>,
    pub hung: Arc<HungShards>,
    pub busy_poll_ns: u64,
    pub bind_to: BindTo,
}

/// A shard on its way to its reactor.
pub(crate) struct SeedShard {
    pub reference: ShardRef,
    pub copy: CopyId,
    pub engine: Shard,
    pub descriptor: OwnedFd,
    pub open_ns: u64,
}

impl SeedShard {
    /// The shard on its reactor.
    fn into_slot(mut self, reactor: &mut Reactor) -> ShardSlot {
        self.engine.set_cache_memory(crate::cache_memory::touched_ahead());
        self.engine.set_frame_memory(crate::cache_memory::frames_touched_ahead());
        ShardSlot {
            reference: self.reference,
            copy: self.copy,
            copies: Some(Box::new(ShardCopies::new(self.engine, boottime_ns()))),
            peers: PeerLinks::new(self.copy),
            interrupts: Interrupts::of(&self.descriptor),
            file: reactor.attach(self.descriptor),
            open_ns: self.open_ns,
            write_latency: Default::default(),
            read_latency: Default::default(),
            issued_ns: Vec::new(),
            is_write: Vec::new(),
            under_way: 0,
            quiet_since_ns: 0,
            stalled: 0,
            damage: Vec::new(),
            last_scrub: None,
            sweep: Default::default(),
            deletions: Vec::new(),
            owner: Owner::Unseen,
            released: false,
        }
    }
}

impl Core {
    /// Takes over new shards, and where all are.
    pub(crate) fn take_shards(&mut self, new: Vec<SeedShard>, places: Arc<Places>) {
        let first = self.shards.len();
        for seed in new {
            let slot = seed.into_slot(&mut self.reactor);
            self.shards.push(slot);
        }
        self.places = places;
        if self.stopping_since_ns.is_some() {
            // The others were told before, and the stop waits for all.
            self.shards[first..].iter_mut().for_each(|slot| slot.copies_mut().shard_mut().close());
            return;
        }
        let map = self.map.clone();
        self.follow(map);
    }
}

/// A reactor's thread.
pub(crate) struct CoreThread {
    thread: JoinHandle<()>,
    /// Told when the reactor has stopped: whether a drive owes it answers.
    stopped: Receiver<bool>,
    index: usize,
    hung: Arc<HungShards>,
}

/// How often a thread that is waited for is looked at.
const LOOK: Duration = Duration::from_millis(500);

impl CoreThread {
    /// Waits until the reactor has stopped, or its thread has hung for too long.
    pub fn wait(self) {
        let owes = loop {
            match self.stopped.recv_timeout(LOOK) {
                Ok(owes) => break owes,
                // One that is gone without a word has said why.
                Err(RecvTimeoutError::Disconnected) => break false,
                Err(RecvTimeoutError::Timeout) if self.hung.is_given_up(self.index, boottime_ns()) => {
                    tracing::error!(
                        reactor = self.index,
                        "the thread of a reactor hangs, most likely in the file system of a drive: the stop does not wait for it any \
                         longer. The logs of its drives are replayed at the next start, and nothing that was acknowledged is lost"
                    );
                    break true;
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        };
        if !owes {
            let _ = self.thread.join();
        }
    }
}

/// Ways to the reactors, and their threads.
pub(crate) type Cores = (Vec<MailboxSender<Command>>, Vec<CoreThread>);

pub(crate) fn start_cores(seeds: Vec<Seed>) -> Result<Cores, NodeError> {
    let count = seeds.len();
    let (ready_sender, ready) = channel();
    let mut peers = Vec::new();
    let mut threads = Vec::new();
    for seed in seeds {
        let (peer_sender, peer_receiver) = channel::<Vec<MailboxSender<Command>>>();
        peers.push(peer_sender);
        let ready_sender = ready_sender.clone();
        let (stopped_sender, stopped) = channel();
        let (index, hung) = (seed.index, seed.hung.clone());
        let run = move || {
            let owes = run_core(seed, &ready_sender, &peer_receiver);
            let _ = stopped_sender.send(owes);
            if owes {
                // The kernel may hold up the end of a thread until its I/O is done, and with that whatever waits for the thread.
                loop {
                    std::thread::park();
                }
            }
        };
        let thread = std::thread::Builder::new().name("reactor".to_owned()).spawn(run);
        threads.push(CoreThread { thread: thread.map_err(NodeError::Thread)?, stopped, index, hung });
    }
    let mut senders: Vec<Option<MailboxSender<Command>>> = (0..count).map(|_| None).collect();
    for _ in 0..count {
        match ready.recv() {
            Ok((index, Ok(sender))) => senders[index] = Some(sender),
            Ok((_, Err(error))) => return Err(error.into()),
            Err(_) => break,
        }
    }
    let senders: Vec<_> = senders.into_iter().flatten().collect();
    for peer in peers {
        // A thread that is gone has said so above.
        let _ = peer.send(senders.clone());
    }
    Ok((senders, threads))
}

type Ready = Sender<(usize, Result<MailboxSender<Command>, ReactorError>)>;

/// Runs a reactor until it is told to stop. Whether a drive owes it answers then.
fn run_core(seed: Seed, ready: &Ready, peers: &Receiver<Vec<MailboxSender<Command>>>) -> bool {
    let index = seed.index;
    let reactor =
        match Reactor::new(ReactorConfig { busy_poll_ns: seed.busy_poll_ns, ..ReactorConfig::default() }) {
            Ok(reactor) => reactor,
            Err(error) => {
                let _ = ready.send((index, Err(error)));
                return false;
            }
        };
    let (sender, mailbox) = mailbox(reactor.waker());
    if ready.send((index, Ok(sender))).is_err() {
        return false;
    }
    // The others did not start.
    let Ok(peers) = peers.recv() else { return false };
    let core = core_of(seed, reactor, mailbox, peers);
    match core.run() {
        Ok(owes) => owes,
        Err(error) => {
            tracing::error!(%error, "a reactor has failed: the server must be restarted");
            std::process::abort();
        }
    }
}

/// The reactor's loop, as it begins.
pub(crate) fn core_of(
    seed: Seed,
    mut reactor: Reactor,
    mailbox: Mailbox<Command>,
    peers: Vec<MailboxSender<Command>>,
) -> Core {
    let placement = Placement::new(seed.bind_to);
    let shards = seed.shards.into_iter().map(|shard| shard.into_slot(&mut reactor)).collect();
    let listeners = seed
        .listeners
        .into_iter()
        .map(|(socket, protocol)| ListenerSlot { file: reactor.attach(socket), protocol })
        .collect();
    Core {
        index: seed.index,
        reactor,
        mailbox,
        peers,
        cluster: seed.cluster,
        node: seed.node,
        map: seed.map,
        tables: Default::default(),
        refused: None,
        shards,
        places: seed.places,
        listeners,
        connections: slab::Slab::new(),
        generation_next: 0,
        listed: Vec::new(),
        requests: slab::Slab::new(),
        serial_next: 0,
        gateways: crate::gateways::Gateways::default(),
        nbd_requests: slab::Slab::new(),
        volumes: VolumeTable::default(),
        sessions: HashMap::new(),
        waiters: Vec::new(),
        releases: Vec::new(),
        notices: seed.notices,
        proposals: seed.proposals,
        hung: seed.hung,
        lost_peers: Vec::new(),
        comparisons: Vec::new(),
        emptied: Vec::new(),
        accept_again: Vec::new(),
        accept_fails: false,
        now_ns: 0,
        housekeeping_ns: 0,
        asked_ns: 0,
        awake_since_ns: 0,
        tick_ns: 0,
        timer_runs: false,
        draining: None,
        stopping_since_ns: None,
        adopt_next: 0,
        dropped_connections: 0,
        turns: 0,
        has_more: false,
        #[cfg(test)]
        shard_turns: 0,
        busy_ns: 0,
        operations: 0,
        placement,
        work: Default::default(),
    }
}
