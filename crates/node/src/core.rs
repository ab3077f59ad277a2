//! The loop of a reactor: completions in, shards, gateways and connections served, one system call per turn and one per send.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use coquina_base::{ClusterId, DriveId, Landing, NodeId};
use coquina_client::LocalName;
use coquina_cluster::{MapView, ShardRef};
use coquina_control::{GroupRole, GroupSnapshot, LatencyHistogram};
use coquina_copies::{Answer, Operation, Request, ShardCopies};
use coquina_engine::{IoError, IoToken, ReadData};
use coquina_reactor::{
    Completion, FileId, Interrupts, Mailbox, MailboxSender, Payload, Placement, Reactor, ReactorError,
    WAKE_TOKEN, Wait, Work, boottime_ns, monotonic_ns,
};
use coquina_replication::{CopyId, RecoveryToken, Refusal};
use hashbrown::HashMap;
use slab::Slab;

use crate::command::Command;
use crate::connection::{Connection, Protocol};
use crate::drain::Drain;
use crate::follow::{Owner, PoolTables};
use crate::gateways::Gateways;
use crate::hands::Hands;
use crate::housekeeper::Notice;
use crate::peers::PeerLinks;
use crate::proposals::Proposals;
use crate::request::{Asker, ConnectionKey, HoppingRequest, InFlight, Kind, NbdRequest, kind_of};
use crate::stalls::HungShards;
use crate::sweep::Sweep;
use crate::threads::Places;
use crate::volume::VolumeTable;

/// How often a busy loop looks for what stalls.
pub const HOUSEKEEPING_NS: u64 = 1_000_000_000;
/// Rounds of shards, gateways and connections before the ring is looked at again.
const SERVICE_ROUNDS_MAX: u32 = 16;
/// How often time is told to groups that have other copies.
const TICK_NS: u64 = 100_000_000;
/// The same where no group has.
const TICK_ALONE_NS: u64 = 1_000_000_000;

/// What a token of the ring is for: its top byte.
pub mod tag {
    /// An I/O of a shard.
    pub const SHARD: u64 = 1 << 56;
    /// A listener.
    pub const ACCEPT: u64 = 2 << 56;
    /// A receive of a connection.
    pub const RECEIVE: u64 = 3 << 56;
    /// A send of a connection.
    pub const SEND: u64 = 4 << 56;
    /// The end of a connection.
    pub const CLOSE: u64 = 5 << 56;
    /// The time for housekeeping.
    pub const TIMER: u64 = 6 << 56;
    /// Nothing that needs to be known.
    pub const IGNORED: u64 = 7 << 56;
    /// A gateway's client; its slot is in bits 32 to 55.
    pub const GATEWAY: u64 = 8 << 56;
    /// A connection to another copy that is being made.
    pub const CONNECT: u64 = 9 << 56;
    /// The rest of a token.
    pub const MASK: u64 = (1 << 56) - 1;
}

/// A shard on its reactor.
pub struct ShardSlot {
    /// Its name in the map.
    pub reference: ShardRef,
    /// Which copy of its groups it is.
    pub copy: CopyId,
    /// Its groups and its engine; taken out while they are at work.
    pub copies: Option<Box<ShardCopies>>,
    /// Connections to the other copies of its groups.
    pub peers: PeerLinks,
    /// The drive.
    pub file: FileId,
    /// How long its start-up took.
    pub open_ns: u64,
    pub interrupts: Interrupts,
    /// Latency of writes to the device.
    pub write_latency: LatencyHistogram,
    /// Latency of reads from the device.
    pub read_latency: LatencyHistogram,
    /// When each I/O was handed out, by its token.
    pub issued_ns: Vec<u64>,
    /// Whether the I/O was a write.
    pub is_write: Vec<bool>,
    /// I/Os under way.
    pub under_way: u32,
    /// When the drive last answered, or was asked something while it owed nothing.
    pub quiet_since_ns: u64,
    /// I/Os that have been on their way for long.
    pub stalled: u64,
    /// What was damaged.
    pub damage: Vec<String>,
    /// The last scrub that has ended since the start.
    pub last_scrub: Option<coquina_control::ScrubRecord>,
    /// How far it is with what lies there for nobody.
    pub sweep: Sweep,
    /// Layers being deleted, and who waits for it.
    pub deletions: Vec<(coquina_base::LayerId, Sender<Result<(), String>>)>,
    /// Whose it is.
    pub owner: Owner,
    /// Whether the drive was let go of. The slot stays, so that others keep their numbers.
    pub released: bool,
}

impl ShardSlot {
    /// Its groups. They are in their place whenever none of their methods runs.
    pub fn copies(&self) -> &ShardCopies {
        let Some(copies) = self.copies.as_deref() else {
            panic!("a shard is asked about itself while it works")
        };
        copies
    }

    /// The same, to be changed by what needs no hands.
    pub fn copies_mut(&mut self) -> &mut ShardCopies {
        let Some(copies) = self.copies.as_deref_mut() else { panic!("a shard is changed while it works") };
        copies
    }

    /// How a group is here.
    pub(crate) fn group(&self, number: u32) -> Option<GroupSnapshot> {
        let group = self.copies().group(number)?;
        let config = group.config();
        // One that is halted answers nothing, and waits for an epoch without it.
        let role = match config.primary() {
            _ if self.copies().is_halted(number) => GroupRole::Out,
            Some(primary) if primary == self.copy => GroupRole::Primary,
            _ if config.is_in_sync(self.copy) => GroupRole::Backup,
            _ => GroupRole::Out,
        };
        let missing = config.others.iter().filter_map(|copy| group.missing(*copy));
        let left: u64 = missing.map(|missing| missing.set.blocks()).sum();
        let recovering_blocks_left = left + self.copies().comparing_blocks_left(number);
        Some(GroupSnapshot {
            group: number,
            epoch: config.epoch,
            role,
            serving: role == GroupRole::Primary && group.is_serving(),
            in_sync: u8::try_from(config.in_sync.len()).unwrap_or(u8::MAX),
            recovering_blocks_left,
            recovered_blocks: self.copies().recovered_blocks(number),
            differing_blocks: self.copies().differing_blocks(number),
        })
    }
}

/// A listener of a reactor.
pub struct ListenerSlot {
    /// The socket.
    pub file: FileId,
    /// What is spoken there.
    pub protocol: Protocol,
}

/// Blocks that a group wants to know of: all that may differ on another copy.
pub(crate) struct Comparison {
    pub slot: usize,
    pub group: u32,
    pub copy: CopyId,
    pub token: RecoveryToken,
}

/// A reactor's thread. All times are of `CLOCK_BOOTTIME`.
pub struct Core {
    pub(crate) index: usize,
    pub(crate) reactor: Reactor,
    pub(crate) mailbox: Mailbox<Command>,
    pub(crate) peers: Vec<MailboxSender<Command>>,
    pub(crate) cluster: ClusterId,
    pub(crate) node: NodeId,
    pub(crate) map: Arc<MapView>,
    pub(crate) tables: PoolTables,
    /// Why no I/O is done any more.
    pub(crate) refused: Option<String>,
    pub(crate) shards: Vec<ShardSlot>,
    /// Reactor and slot of every shard of the node.
    pub(crate) places: Arc<Places>,
    pub(crate) listeners: Vec<ListenerSlot>,
    pub(crate) connections: Slab<Connection>,
    pub(crate) generation_next: u32,
    /// Connections that need a look at the end of the turn.
    pub(crate) listed: Vec<usize>,
    pub(crate) requests: Slab<InFlight>,
    pub(crate) serial_next: u64,
    pub(crate) gateways: Gateways,
    /// Requests of NBD clients.
    pub(crate) nbd_requests: Slab<NbdRequest>,
    pub(crate) volumes: VolumeTable,
    pub(crate) sessions: HashMap<(u64, ShardRef), ConnectionKey>,
    /// Volumes that somebody waits for: slot, last serial that counts, who.
    pub(crate) waiters: Vec<(usize, u64, Sender<()>)>,
    /// Drives that are let go of, and who waits for it.
    pub(crate) releases: Vec<(DriveId, Sender<()>)>,
    pub(crate) notices: Sender<Notice>,
    pub(crate) proposals: Arc<Proposals>,
    pub(crate) hung: Arc<HungShards>,
    /// Connections to copies that are gone, and of which their shards do not know.
    pub(crate) lost_peers: Vec<(usize, CopyId)>,
    pub(crate) comparisons: Vec<Comparison>,
    /// Buffers that go back to their shards.
    pub(crate) emptied: Vec<ReadData>,
    /// Listeners that could not accept, which are asked again with the next housekeeping.
    pub(crate) accept_again: Vec<usize>,
    /// Whether the last attempt to accept failed, of which it is told once.
    pub(crate) accept_fails: bool,
    pub(crate) now_ns: u64,
    pub(crate) housekeeping_ns: u64,
    /// When all connections were last asked whether they must be held to something, for the next housekeeping.
    pub(crate) asked_ns: u64,
    /// Since when the loop runs without a long gap.
    pub(crate) awake_since_ns: u64,
    pub(crate) tick_ns: u64,
    /// Whether a time-out for housekeeping is on its way.
    pub(crate) timer_runs: bool,
    /// What a stop begins with.
    pub(crate) draining: Option<Drain>,
    pub(crate) stopping_since_ns: Option<u64>,
    pub(crate) adopt_next: usize,
    pub(crate) dropped_connections: u64,
    pub(crate) turns: u64,
    /// Whether more may come of the shards, gateways and connections at once.
    pub(crate) has_more: bool,
    #[cfg(test)]
    pub(crate) shard_turns: u64,
    pub(crate) busy_ns: u64,
    pub(crate) operations: u64,
    pub(crate) placement: Placement,
    pub(crate) work: Work,
}

impl Core {
    /// Runs until told to stop. Whether a drive owes answers then.
    pub fn run(mut self) -> Result<bool, ReactorError> {
        for index in 0..self.listeners.len() {
            let file = self.listeners[index].file;
            self.reactor.accept(file, tag::ACCEPT | index as u64);
        }
        let mut completions: Vec<Completion> = Vec::new();
        let mut commands = Vec::new();
        self.now_ns = boottime_ns();
        let map = self.map.clone();
        self.follow(map);
        loop {
            self.service();
            self.drain_on();
            if self.is_stopped() {
                return Ok(self.leave_silent_drives());
            }
            let before = boottime_ns();
            self.busy_ns += before.saturating_sub(self.now_ns);
            let wait = self.wait(before);
            self.reactor.expect_answers(self.requests.len() + self.nbd_requests.len());
            self.reactor.turn(wait, &mut completions)?;
            self.now_ns = boottime_ns();
            self.hung.turned(self.index, self.now_ns);
            self.turns += 1;
            self.operations += completions.len() as u64;
            let mut woken = false;
            for completion in completions.drain(..) {
                woken |= completion.token == WAKE_TOKEN;
                self.complete(completion);
            }
            if woken {
                self.mailbox.drain(&mut commands);
                // What other reactors ask came after the time above. A read must not be judged by a time before it was asked, at
                // which this copy may still have had leases that it has lost meanwhile.
                self.now_ns = boottime_ns();
                for command in commands.drain(..) {
                    self.obey(command);
                }
            }
            if self.now_ns >= self.tick_ns {
                self.tick();
            }
            if self.now_ns >= self.housekeeping_ns {
                self.housekeeping();
            }
            if self.now_ns >= self.placement.due_ns() {
                let shards = &self.shards;
                let is_crowded = self.reactor.is_crowded();
                self.placement.look(self.work, is_crowded, self.now_ns, || interrupted_cpu(shards));
            }
        }
    }

    fn wait(&mut self, now_ns: u64) -> Wait {
        let mut until = self.drain_due_ns(now_ns);
        // One time-out for each tick rather than one for each wait: arming a timer costs a virtual machine an exit.
        if !self.timer_runs {
            let has_shards = self.shards.iter().any(|slot| !slot.released);
            if has_shards || self.needs_housekeeping(now_ns) {
                self.timer_runs = true;
                let deadline_ns = if has_shards { self.tick_ns } else { now_ns + HOUSEKEEPING_NS };
                self.reactor.timeout_at(deadline_ns, tag::TIMER);
            }
        }
        for slot in self.shards.iter().filter(|slot| !slot.released) {
            until = until.min(slot.copies().next_wake_ns().unwrap_or(u64::MAX));
        }
        if self.has_more {
            // Shards have not been turned yet since they were asked something.
            until = now_ns;
        }
        let monotonic = monotonic_ns();
        let gateways_ns = self.gateways.due_ns();
        if gateways_ns < u64::MAX {
            until = until.min(gateways_ns.saturating_sub(monotonic).saturating_add(now_ns));
        }
        match until {
            u64::MAX => Wait::Forever,
            until if until <= now_ns => Wait::Poll,
            until => Wait::Until(monotonic + (until - now_ns)),
        }
    }

    /// Tells time to the groups, and makes connections that are due.
    fn tick(&mut self) {
        let mut has_peers = false;
        let occupation = self.reactor.occupation();
        for slot in 0..self.shards.len() {
            if self.shards[slot].released || self.is_elsewhere(slot) {
                continue;
            }
            self.shards[slot].copies_mut().shard_mut().set_occupation(occupation);
            has_peers |= !self.shards[slot].peers.is_empty();
            self.tell_lost_peers();
            self.on_shard(slot, |copies, now_ns, hands| copies.tick(now_ns, hands));
            self.connect_peers(slot);
            self.sweep(slot);
        }
        self.tick_ns = self.now_ns + if has_peers { TICK_NS } else { TICK_ALONE_NS };
    }

    /// Has a shard do something.
    pub(crate) fn on_shard<T>(
        &mut self,
        slot: usize,
        work: impl FnOnce(&mut ShardCopies, u64, &mut Hands<'_>) -> T,
    ) -> T {
        let Some(mut copies) = self.shards[slot].copies.take() else {
            panic!("a shard is called while it works")
        };
        let now_ns = self.now_ns;
        let result = work(&mut copies, now_ns, &mut Hands { core: self, slot });
        while let Some(data) = self.emptied.pop() {
            copies.recycle(data);
        }
        self.shards[slot].copies = Some(copies);
        result
    }

    /// Turns the shards and looks after gateways and connections until nothing more comes of it, or for so long that others come first.
    fn service(&mut self) {
        self.gateways.list_due();
        self.has_more = true;
        for _ in 0..SERVICE_ROUNDS_MAX {
            // What they hand over is for this turn of the shards, and what they are answered for needs none.
            self.look_after_gateways();
            let mut acted = false;
            for slot in 0..self.shards.len() {
                if !self.shards[slot].released {
                    #[cfg(test)]
                    (self.shard_turns += 1);
                    let before = self.operations_done();
                    self.on_shard(slot, |copies, now_ns, hands| copies.turn(now_ns, hands));
                    acted |= before != self.operations_done();
                }
            }
            acted |= self.look_after_gateways();
            acted |= self.look_after_connections();
            if !self.lost_peers.is_empty() || !self.comparisons.is_empty() {
                self.tell_lost_peers();
                self.compare();
                acted = true;
            }
            if !acted {
                self.has_more = false;
                break;
            }
        }
        if !self.waiters.is_empty() {
            self.tell_waiters();
        }
        if !self.releases.is_empty() {
            self.finish_releases();
        }
        if self.shards.iter().all(|slot| slot.released) {
            // Shards of other reactors answered, and here is none that has a use for their buffers.
            self.emptied.clear();
        }
    }

    /// Moves with everything that a shard had done for it.
    fn operations_done(&self) -> usize {
        self.reactor.in_flight() + self.requests.len() + self.listed.len()
    }

    fn complete(&mut self, completion: Completion) {
        let rest = completion.token & tag::MASK;
        match completion.token & !tag::MASK {
            tag::SHARD => {
                self.work.drive_ios += 1;
                self.io_done(rest, completion);
            }
            tag::ACCEPT => self.accepted(rest as usize, completion),
            tag::RECEIVE => self.received(rest as usize, completion),
            tag::SEND => self.sent(rest as usize, completion),
            tag::CLOSE => self.closed(rest as usize),
            tag::TIMER => self.timer_runs = false,
            tag::GATEWAY => self.gateway_completion((rest >> 32) as usize, completion),
            tag::CONNECT => self.peer_connected(rest as usize, &completion),
            _ => {}
        }
    }

    fn io_done(&mut self, rest: u64, completion: Completion) {
        let (index, io) = ((rest >> 40) as usize, rest & ((1 << 40) - 1));
        let now_ns = self.now_ns;
        let slot = &mut self.shards[index];
        slot.under_way -= 1;
        slot.quiet_since_ns = now_ns;
        let latency = now_ns.saturating_sub(slot.issued_ns[io as usize]);
        let buffer = match completion.payload {
            Payload::Buffer(buffer) => buffer,
            _ => Default::default(),
        };
        if slot.is_write[io as usize] {
            slot.write_latency.record(latency);
        } else if buffer.blocks() > 0 {
            slot.read_latency.record(latency);
        }
        let result = completion.result.map(drop).map_err(|errno| IoError(errno.0));
        self.on_shard(index, |copies, _, hands| copies.io_done(IoToken(io), buffer, result, hands));
    }

    /// Hands a request to a shard of this reactor. `request.client` is set here.
    pub(crate) fn submit(&mut self, asker: Asker, volume: Option<usize>, slot: usize, request: &Request<'_>) {
        let client = self.register(asker, volume, request.length_bytes, &request.operation);
        if self.refused.is_some() {
            return self.request_done(client, self.refusal(&asker, slot, request.group));
        }
        let request = Request { client, ..*request };
        self.on_shard(slot, |copies, now_ns, hands| copies.request(now_ns, &request, hands));
    }

    /// The same for a write whose payload lies in buffers of the shard.
    pub(crate) fn submit_landed(
        &mut self,
        asker: Asker,
        volume: Option<usize>,
        slot: usize,
        request: &Request<'_>,
        landing: Landing,
    ) {
        let client = self.register(asker, volume, request.length_bytes, &request.operation);
        if self.refused.is_some() {
            self.shards[slot].copies_mut().shard_mut().recycle_landing(landing);
            return self.request_done(client, self.refusal(&asker, slot, request.group));
        }
        let request = Request { client, ..*request };
        self.on_shard(slot, |copies, now_ns, hands| {
            copies.request_landed(now_ns, &request, landing, hands);
        });
    }

    /// Notes who asked for a request; gives its token.
    fn register(
        &mut self,
        asker: Asker,
        volume: Option<usize>,
        length_bytes: u32,
        operation: &Operation<'_>,
    ) -> u64 {
        let serial = self.serial_next;
        self.serial_next += 1;
        if let Some(volume) = volume.and_then(|slot| self.volumes.get_mut(slot)) {
            volume.under_way += 1;
        }
        let started_ns = self.now_ns;
        let kind = kind_of(operation);
        self.requests.insert(InFlight { asker, volume, started_ns, serial, length_bytes, kind }) as u64
    }

    pub(crate) fn request_done(&mut self, client: u64, answer: Answer) {
        let Some(request) = self.requests.try_remove(client as usize) else {
            panic!("the shard answered request {client}, which is not under way");
        };
        self.count(&request, &answer);
        if let Some(slot) = request.volume {
            self.volumes.forget_unused(slot);
        }
        match request.asker {
            Asker::Native(connection, header) => self.answer_native(connection, &header, answer),
            Asker::Gateway { gateway, part } => self.part_done(gateway, part, answer),
            Asker::Hop { core, gateway, part } => {
                self.peers[core].send(Command::HopDone { gateway, part, answer });
            }
        }
    }

    fn count(&mut self, request: &InFlight, answer: &Answer) {
        let now_ns = self.now_ns;
        let Some(volume) = request.volume.and_then(|slot| self.volumes.get_mut(slot)) else { return };
        volume.under_way -= 1;
        let counters = &mut volume.counters;
        let latency = now_ns.saturating_sub(request.started_ns);
        match answer {
            // The client is told, and does not try again.
            Answer::Failed(_) | Answer::Refused(Refusal::NoSpace | Refusal::Fenced) => counters.errors += 1,
            // It comes again: only what was done counts.
            Answer::Refused(_) => return,
            _ => {}
        }
        let bytes = u64::from(request.length_bytes);
        match request.kind {
            Kind::Read => {
                counters.reads += 1;
                counters.read_bytes += bytes;
                counters.read_latency.record(latency);
            }
            Kind::Write => {
                counters.writes += 1;
                counters.write_bytes += bytes;
                counters.write_latency.record(latency);
            }
            Kind::Trim => {
                counters.trims += 1;
                counters.trim_bytes += bytes;
                counters.write_latency.record(latency);
            }
            Kind::Map => {}
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Adopt { socket, protocol, received } => {
                let file = self.reactor.attach(socket);
                self.adopt(file, protocol, Some(received));
            }
            Command::Hop { from, gateway, part, request } => self.hop(from, gateway, part, &request),
            Command::HopDone { gateway, part, answer } => self.part_done(gateway, part, answer),
            Command::Follow { map, done } => {
                // One that it has was followed when the reactor began or was told of it. Two tell it of each: see `tell_map.rs`.
                if map.revision() > self.map.revision() {
                    self.follow(map);
                }
                let _ = done.send(());
            }
            Command::RefuseIo { reason } => self.refused = Some(reason),
            Command::Shards { new, places, done } => {
                self.take_shards(new, places);
                let _ = done.send(());
            }
            Command::Quiesce { volume, done } => {
                let serial = self.serial_next;
                match self.volumes.by_id(volume) {
                    Some(slot) => self.waiters.push((slot, serial, done)),
                    None => drop(done.send(())),
                }
            }
            Command::Layers { done } => {
                let open = self.shards.iter().filter(|slot| !slot.released);
                let layers = open.map(|slot| (slot.reference, slot.copies().shard().layers())).collect();
                let _ = done.send(layers);
            }
            Command::DeleteLayer { shard, layer, done } => {
                let slot = self.shards.iter().position(|slot| slot.reference == shard && !slot.released);
                let Some(slot) = slot else {
                    let _ = done.send(Err("no such shard on this node".to_owned()));
                    return;
                };
                self.shards[slot].deletions.push((layer, done));
                self.on_shard(slot, |copies, now_ns, hands| copies.delete_layer(now_ns, layer, hands));
            }
            Command::Scrub { drive } => {
                for slot in &mut self.shards {
                    if !slot.released && drive.is_none_or(|drive| drive == slot.reference.drive) {
                        slot.copies_mut().start_scrub();
                    }
                }
            }
            Command::SetMemory { cache_bytes_per_shard, index_bytes_per_shard } => {
                for slot in self.shards.iter_mut().filter(|slot| !slot.released) {
                    let shard = slot.copies_mut().shard_mut();
                    shard.set_cache_bytes(cache_bytes_per_shard);
                    shard.set_index_memory_bytes(index_bytes_per_shard);
                }
            }
            Command::Snapshot { done } => {
                let _ = done.send(self.snapshot());
            }
            Command::ReleaseDrive { drive, done } => {
                for slot in 0..self.shards.len() {
                    if self.shards[slot].reference.drive == drive {
                        self.close_shard(slot);
                    }
                }
                // Whoever asked before has given up, and asks again.
                self.releases.retain(|(other, _)| *other != drive);
                self.releases.push((drive, done));
            }
            Command::Drain { done } => self.drain(done),
            Command::Stop => self.stop(),
        }
    }

    fn hop(&mut self, from: usize, gateway: usize, part: LocalName, request: &HoppingRequest) {
        let asker = Asker::Hop { core: from, gateway, part };
        let place = self.places.get(&request.shard).copied();
        let Some((_, slot)) =
            place.filter(|(core, slot)| *core == self.index && !self.shards[*slot].released)
        else {
            let answer = Answer::Refused(coquina_replication::Refusal::NotServing);
            return self.peers[from].send(Command::HopDone { gateway, part, answer });
        };
        let volume = self.volumes.by_id(request.volume);
        let is_within = volume.and_then(|slot| self.volumes.get(slot)).is_some_and(|volume| {
            volume.has_range(request.chunk, request.offset_bytes, request.length_bytes)
        });
        if !is_within {
            // This reactor or the other one has not heard yet that the volume grew or shrank, or is gone: it comes again.
            let answer = Answer::Refused(coquina_replication::Refusal::NotServing);
            return self.peers[from].send(Command::HopDone { gateway, part, answer });
        }
        self.submit(asker, volume, slot, &request.to_request(0));
    }

    fn tell_waiters(&mut self) {
        let requests = &self.requests;
        self.waiters.retain(|(slot, serial, done)| {
            let busy =
                requests.iter().any(|(_, request)| request.volume == Some(*slot) && request.serial < *serial);
            if !busy {
                let _ = done.send(());
            }
            busy
        });
    }

    /// Closes the files of drives whose shards have come to rest.
    fn finish_releases(&mut self) {
        let (shards, reactor) = (&mut self.shards, &mut self.reactor);
        self.releases.retain(|(drive, done)| {
            let mut busy = false;
            for slot in shards.iter_mut().filter(|slot| slot.reference.drive == *drive && !slot.released) {
                slot.released = slot.copies().shard().is_closed();
                busy |= !slot.released;
                if slot.released {
                    let shard = slot.copies_mut().shard_mut();
                    shard.set_cache_bytes(0);
                    // What was at hand for it goes, and who touches it.
                    shard.set_cache_memory(Box::new(|| None));
                    shard.set_frame_memory(Box::new(|_, _| None));
                    reactor.close(slot.file, tag::IGNORED);
                }
            }
            if !busy {
                let _ = done.send(());
            }
            busy
        });
    }
}

/// The processor that the drives of all shards interrupt, if it is the same.
fn interrupted_cpu(shards: &[ShardSlot]) -> Option<u32> {
    let mut cpus = shards.iter().filter(|slot| !slot.released).map(|slot| slot.interrupts.cpu());
    let first = cpus.next()??;
    cpus.all(|cpu| cpu == Some(first)).then_some(first)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
