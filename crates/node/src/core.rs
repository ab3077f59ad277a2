//! The loop of a reactor: completions in, engine, replies out, one system call per turn.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use coquina_base::{AlignedBuf, ClusterId, DriveId, NodeId};
use coquina_control::{LatencyHistogram, ShardRef};
use coquina_engine::{Action, IoError, IoToken, Operation, Origin, Outcome, Request, RequestToken, Shard};
use coquina_reactor::{
    Completion, FileId, Mailbox, MailboxSender, Payload, Reactor, ReactorError, WAKE_TOKEN, Wait,
    boottime_ns, monotonic_ns,
};
use hashbrown::HashMap;
use slab::Slab;

use crate::command::Command;
use crate::connection::{Connection, HANDSHAKE_NS_MAX, Protocol, SEND_NS_MAX};
use crate::housekeeper::Notice;
use crate::request::{Asker, ConnectionKey, ControlJob, Group, HoppingRequest, InFlight, Kind, kind_of};
use crate::snapshot::{CoreShard, CoreSnapshot};
use crate::volume::VolumeTable;

/// How often a busy loop looks for what stalls.
const HOUSEKEEPING_NS: u64 = 1_000_000_000;
/// An I/O that takes so long is worth a warning.
const SLOW_NS: u64 = 5_000_000_000;
/// An I/O that takes so long is given up, and its drive with it.
const STALLED_NS: u64 = 30_000_000_000;
/// A stop takes no longer.
const STOP_NS_MAX: u64 = 20_000_000_000;
const ETIMEDOUT: i32 = 110;

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
    /// The rest of a token.
    pub const MASK: u64 = (1 << 56) - 1;
}

/// A shard on its reactor.
pub struct ShardSlot {
    /// Its name in the map.
    pub reference: ShardRef,
    /// The engine.
    pub shard: Shard,
    /// The drive.
    pub file: FileId,
    /// How long its start-up took.
    pub open_ns: u64,
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
    /// I/Os that have been on their way for long.
    pub stalled: u64,
    /// What was damaged.
    pub damage: Vec<String>,
    /// Whether the drive was let go of. The slot stays, so that others keep their numbers.
    pub released: bool,
}

/// A listener of a reactor.
pub struct ListenerSlot {
    /// The socket.
    pub file: FileId,
    /// What is spoken there.
    pub protocol: Protocol,
}

/// A reactor's thread.
pub struct Core {
    pub(crate) index: usize,
    pub(crate) reactor: Reactor,
    pub(crate) mailbox: Mailbox<Command>,
    pub(crate) peers: Vec<MailboxSender<Command>>,
    pub(crate) cluster: ClusterId,
    pub(crate) node: NodeId,
    pub(crate) shards: Vec<ShardSlot>,
    /// Reactor and slot of every shard of the node.
    pub(crate) places: Arc<HashMap<ShardRef, (usize, usize)>>,
    pub(crate) listeners: Vec<ListenerSlot>,
    pub(crate) connections: Slab<Connection>,
    pub(crate) generation_next: u32,
    /// Connections that need a look at the end of the turn.
    pub(crate) listed: Vec<usize>,
    pub(crate) requests: Slab<InFlight>,
    pub(crate) serial_next: u64,
    pub(crate) groups: Slab<Group>,
    pub(crate) spare_outcomes: Vec<Vec<Option<Outcome>>>,
    pub(crate) volumes: VolumeTable,
    pub(crate) sessions: HashMap<(u64, ShardRef), ConnectionKey>,
    /// Volumes that somebody waits for: slot, last serial that counts, who.
    pub(crate) waiters: Vec<(usize, u64, Sender<()>)>,
    /// Drives that are let go of, and who waits for it.
    pub(crate) releases: Vec<(DriveId, Sender<()>)>,
    pub(crate) notices: Sender<Notice>,
    pub(crate) now_ns: u64,
    pub(crate) housekeeping_ns: u64,
    /// Whether a time-out for housekeeping is on its way.
    pub(crate) timer_runs: bool,
    pub(crate) stopping_since_ns: Option<u64>,
    pub(crate) adopt_next: usize,
    pub(crate) dropped_connections: u64,
    pub(crate) turns: u64,
    pub(crate) busy_ns: u64,
    pub(crate) operations: u64,
}

impl Core {
    /// Runs until told to stop.
    pub fn run(mut self) -> Result<(), ReactorError> {
        for index in 0..self.listeners.len() {
            let file = self.listeners[index].file;
            self.reactor.accept(file, tag::ACCEPT | index as u64);
        }
        let mut completions: Vec<Completion> = Vec::new();
        let mut commands = Vec::new();
        self.now_ns = monotonic_ns();
        loop {
            self.service();
            if self.is_stopped() {
                return Ok(());
            }
            let before = monotonic_ns();
            self.busy_ns += before.saturating_sub(self.now_ns);
            let wait = self.wait(before);
            self.reactor.turn(wait, &mut completions)?;
            self.now_ns = monotonic_ns();
            self.turns += 1;
            self.operations += completions.len() as u64;
            let mut woken = false;
            for completion in completions.drain(..) {
                woken |= completion.token == WAKE_TOKEN;
                self.complete(completion);
            }
            if woken {
                self.mailbox.drain(&mut commands);
                for command in commands.drain(..) {
                    self.obey(command);
                }
            }
            if self.now_ns >= self.housekeeping_ns {
                self.housekeeping_ns = self.now_ns + HOUSEKEEPING_NS;
                self.housekeeping();
            }
        }
    }

    fn wait(&mut self, now_ns: u64) -> Wait {
        let mut until = u64::MAX;
        // One time-out a second rather than one for each wait: arming a timer costs a virtual machine an exit.
        let busy = || {
            self.shards.iter().any(|slot| slot.under_way > 0)
                || self
                    .connections
                    .iter()
                    .any(|(_, connection)| connection.sending || connection.is_in_handshake())
                || self.stopping_since_ns.is_some()
        };
        if !self.timer_runs && busy() {
            self.timer_runs = true;
            self.reactor.timeout_at(boottime_ns() + HOUSEKEEPING_NS, tag::TIMER);
        }
        for slot in self.shards.iter().filter(|slot| !slot.released) {
            until = until.min(slot.shard.next_wake_ns().unwrap_or(u64::MAX));
        }
        match until {
            u64::MAX => Wait::Forever,
            until if until <= now_ns => Wait::Poll,
            until => Wait::Until(until),
        }
    }

    /// Turns the shards and looks after connections until nothing more comes of it.
    fn service(&mut self) {
        for _ in 0..16 {
            let mut acted = false;
            for slot in 0..self.shards.len() {
                if self.shards[slot].released {
                    continue;
                }
                self.shards[slot].shard.turn(self.now_ns);
                acted |= self.drain_actions(slot);
            }
            acted |= self.look_after_connections();
            if !acted {
                break;
            }
        }
        if !self.waiters.is_empty() {
            self.tell_waiters();
        }
        if !self.releases.is_empty() {
            self.finish_releases();
        }
    }

    fn drain_actions(&mut self, slot: usize) -> bool {
        let mut acted = false;
        while let Some(action) = self.shards[slot].shard.next_action() {
            acted = true;
            match action {
                Action::Write { io, offset_bytes, buffer } => {
                    let file = self.start_io(slot, io, true);
                    self.reactor.write_at(file, offset_bytes, buffer, true, io_token(slot, io));
                }
                Action::Read { io, offset_bytes, buffer } => {
                    let file = self.start_io(slot, io, false);
                    self.reactor.read_at(file, offset_bytes, buffer, io_token(slot, io));
                }
                Action::Prewrite { io, offset_bytes, length_bytes } => {
                    let file = self.start_io(slot, io, false);
                    self.reactor.write_zeroes(file, offset_bytes, length_bytes, io_token(slot, io));
                }
                // Copies on other nodes are to come.
                Action::Appended(_) | Action::FenceAppended { .. } | Action::Durable { .. } => {}
                Action::Done { token, outcome } => self.request_done(slot, token, outcome),
                Action::Event(event) => self.report(slot, &event),
            }
        }
        acted
    }

    fn start_io(&mut self, slot: usize, io: IoToken, is_write: bool) -> FileId {
        let now_ns = self.now_ns;
        let slot = &mut self.shards[slot];
        let index = io.0 as usize;
        if slot.issued_ns.len() <= index {
            slot.issued_ns.resize(index + 1, 0);
            slot.is_write.resize(index + 1, false);
        }
        slot.issued_ns[index] = now_ns;
        slot.is_write[index] = is_write;
        slot.under_way += 1;
        slot.file
    }

    fn complete(&mut self, completion: Completion) {
        let rest = completion.token & tag::MASK;
        match completion.token & !tag::MASK {
            tag::SHARD => self.io_done(rest, completion),
            tag::ACCEPT => self.accepted(rest as usize, completion),
            tag::RECEIVE => self.received(rest as usize, completion),
            tag::SEND => self.sent(rest as usize, completion),
            tag::CLOSE => self.closed(rest as usize),
            tag::TIMER => self.timer_runs = false,
            _ => {}
        }
    }

    fn io_done(&mut self, rest: u64, completion: Completion) {
        let (index, io) = ((rest >> 40) as usize, rest & ((1 << 40) - 1));
        let now_ns = self.now_ns;
        let slot = &mut self.shards[index];
        slot.under_way -= 1;
        let latency = now_ns.saturating_sub(slot.issued_ns[io as usize]);
        let buffer = match completion.payload {
            Payload::Buffer(buffer) => buffer,
            _ => AlignedBuf::new(),
        };
        if slot.is_write[io as usize] {
            slot.write_latency.record(latency);
        } else if buffer.blocks() > 0 {
            slot.read_latency.record(latency);
        }
        let result = completion.result.map(drop).map_err(|errno| IoError(errno.0));
        slot.shard.io_done(IoToken(io), buffer, result);
    }

    /// Hands a request to the shard that has the data, here or on another reactor.
    pub(crate) fn submit(
        &mut self,
        asker: Asker,
        volume: Option<usize>,
        shard: ShardRef,
        place: (usize, usize),
        request: &Request<'_>,
    ) {
        let token = self.register(asker, volume, request);
        let (core, slot) = place;
        if core == self.index {
            self.shards[slot].shard.submit(Request { token, ..*request });
            return;
        }
        let hopping = HoppingRequest {
            shard,
            layer: request.layer,
            chunk: request.chunk,
            offset_bytes: request.offset_bytes,
            length_bytes: request.length_bytes,
            operation: HoppingRequest::copy_operation(&request.operation),
        };
        self.peers[core].send(Command::Hop { from: self.index, token, request: hopping });
    }

    /// Notes who asked for a request; gives its token.
    pub(crate) fn register(
        &mut self,
        asker: Asker,
        volume: Option<usize>,
        request: &Request<'_>,
    ) -> RequestToken {
        let serial = self.serial_next;
        self.serial_next += 1;
        if let Some(volume) = volume.and_then(|slot| self.volumes.get_mut(slot)) {
            volume.under_way += 1;
        }
        let key = self.requests.insert(InFlight {
            asker,
            volume,
            started_ns: self.now_ns,
            serial,
            length_bytes: request.length_bytes,
            kind: kind_of(&request.operation),
        });
        RequestToken(key as u64)
    }

    fn request_done(&mut self, slot: usize, token: RequestToken, outcome: Outcome) {
        let Some(request) = self.requests.try_remove(token.0 as usize) else {
            panic!("the shard answered {token:?}, which is not under way");
        };
        self.count(&request, &outcome);
        match request.asker {
            Asker::Native(connection, header) => self.answer_native(slot, connection, &header, outcome),
            Asker::Gateway { group, part } => self.part_done(group, part, outcome),
            Asker::Hop { core, token } => self.peers[core].send(Command::HopDone { token, outcome }),
            Asker::Control(job) => {
                let mut job = job.borrow_mut();
                if let Outcome::Failed(failure) = outcome {
                    job.failure.get_or_insert_with(|| format!("{failure:?}"));
                }
                job.left -= 1;
                if job.left == 0 {
                    let result = job.failure.take().map_or(Ok(()), Err);
                    // Nobody listens any more if the control plane has stopped.
                    let _ = job.done.send(result);
                }
            }
        }
    }

    fn count(&mut self, request: &InFlight, outcome: &Outcome) {
        let now_ns = self.now_ns;
        let Some(volume) = request.volume.and_then(|slot| self.volumes.get_mut(slot)) else { return };
        volume.under_way -= 1;
        let counters = &mut volume.counters;
        let latency = now_ns.saturating_sub(request.started_ns);
        if matches!(outcome, Outcome::Failed(_)) {
            counters.errors += 1;
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
            Command::Hop { from, token, request } => self.hop(from, token, &request),
            Command::HopDone { token, outcome } => self.request_done(usize::MAX, token, outcome),
            Command::SetVolume { volume, done } => {
                self.set_volume(volume);
                let _ = done.send(());
            }
            Command::DropVolume { volume, done } => self.drop_volume(volume, done),
            Command::Quiesce { volume, done } => {
                let serial = self.serial_next;
                match self.volumes.by_id(volume) {
                    Some(slot) => self.waiters.push((slot, serial, done)),
                    None => drop(done.send(())),
                }
            }
            Command::DeleteLayer { drive, shard, layer, done } => {
                let request = (0, 0, 0);
                self.control_job(
                    ShardRef { drive, shard },
                    layer,
                    vec![request],
                    Operation::DeleteLayer,
                    done,
                );
            }
            Command::TrimLayer { drive, shard, layer, ranges, done } => {
                self.control_job(ShardRef { drive, shard }, layer, ranges, Operation::Trim, done);
            }
            Command::Scrub { drive } => {
                for slot in &mut self.shards {
                    if !slot.released && drive.is_none_or(|drive| drive == slot.reference.drive) {
                        slot.shard.start_scrub();
                    }
                }
            }
            Command::SetCache { bytes_per_shard } => {
                for slot in &mut self.shards {
                    slot.shard.set_cache_bytes(bytes_per_shard);
                }
            }
            Command::Snapshot { done } => {
                let _ = done.send(self.snapshot());
            }
            Command::ReleaseDrive { drive, done } => {
                for slot in self.shards.iter_mut().filter(|slot| slot.reference.drive == drive) {
                    slot.shard.close();
                }
                self.releases.push((drive, done));
            }
            Command::Stop => self.stop(),
        }
    }

    fn hop(&mut self, from: usize, token: RequestToken, request: &HoppingRequest) {
        let Some(&(core, slot)) = self.places.get(&request.shard) else { return };
        assert_eq!(core, self.index, "a request for a shard of another reactor");
        let serial = self.serial_next;
        self.serial_next += 1;
        let engine_request = request.to_engine(RequestToken(0));
        let key = self.requests.insert(InFlight {
            asker: Asker::Hop { core: from, token },
            volume: None,
            started_ns: self.now_ns,
            serial,
            length_bytes: request.length_bytes,
            kind: kind_of(&engine_request.operation),
        });
        self.shards[slot].shard.submit(Request { token: RequestToken(key as u64), ..engine_request });
    }

    fn control_job(
        &mut self,
        shard: ShardRef,
        layer: coquina_base::LayerId,
        ranges: Vec<(u32, u32, u32)>,
        operation: Operation<'static>,
        done: Sender<Result<(), String>>,
    ) {
        let Some(&(core, slot)) = self.places.get(&shard) else {
            let _ = done.send(Err("no such shard on this node".to_owned()));
            return;
        };
        if ranges.is_empty() {
            let _ = done.send(Ok(()));
            return;
        }
        let job = ControlJob { left: ranges.len(), failure: None, done };
        let job = std::rc::Rc::new(std::cell::RefCell::new(job));
        for (chunk, offset_bytes, length_bytes) in ranges {
            let request = Request {
                token: RequestToken(0),
                layer,
                chunk,
                offset_bytes,
                length_bytes,
                origin: Origin::default(),
                operation,
            };
            self.submit(Asker::Control(job.clone()), None, shard, (core, slot), &request);
        }
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
                slot.released = slot.shard.is_closed();
                busy |= !slot.released;
                if slot.released {
                    slot.shard.set_cache_bytes(0);
                    reactor.close(slot.file, tag::IGNORED);
                }
            }
            if !busy {
                let _ = done.send(());
            }
            busy
        });
    }

    fn housekeeping(&mut self) {
        let now_ns = self.now_ns;
        for slot in &mut self.shards {
            slot.stalled = slot.shard.stalled_ios(now_ns.saturating_sub(SLOW_NS)) as u64;
            if slot.shard.stalled_ios(now_ns.saturating_sub(STALLED_NS)) > 0 && !slot.shard.stats().poisoned {
                tracing::error!(
                    drive = %slot.reference.drive,
                    "the drive has not answered for 30 s: it is given up and takes no changes any more"
                );
                slot.shard.give_up(ETIMEDOUT);
            }
        }
        let late: Vec<usize> = self
            .connections
            .iter()
            .filter(|(_, connection)| {
                let handshake = connection.is_in_handshake()
                    && now_ns.saturating_sub(connection.since_ns) > HANDSHAKE_NS_MAX;
                let send = connection.sending && now_ns.saturating_sub(connection.sent_ns) > SEND_NS_MAX;
                !connection.closed && (handshake || send)
            })
            .map(|(index, _)| index)
            .collect();
        for index in late {
            self.drop_connection(index, "it stalls");
        }
    }

    fn report(&mut self, slot: usize, event: &coquina_engine::Event) {
        use coquina_engine::Event;
        let slot = &mut self.shards[slot];
        let (drive, shard) = (slot.reference.drive, slot.reference.shard);
        match event {
            Event::BadBlock { layer, chunk, block, offset_bytes } => {
                tracing::error!(%drive, shard, layer = layer.0, chunk, block, offset_bytes, "bad block");
            }
            Event::Damage { offset_bytes, reason } => {
                tracing::error!(%drive, shard, offset_bytes, reason, "damage");
                if slot.damage.len() < 16 {
                    slot.damage
                        .push(format!("drive {drive}, shard {shard}: {reason} (near byte {offset_bytes})"));
                }
            }
            Event::Poisoned { errno } => {
                tracing::error!(%drive, shard, errno, "a write failed: the drive takes no changes any more");
                // Nobody listens any more if the node is stopping.
                let _ = self.notices.send(Notice::Poisoned(drive));
            }
            Event::Checkpoint { number } => tracing::debug!(%drive, shard, number, "checkpoint"),
            Event::ScrubDone { blocks, bad } => tracing::info!(%drive, shard, blocks, bad, "scrub done"),
        }
    }

    fn snapshot(&self) -> CoreSnapshot {
        let shards = self.shards.iter().filter(|slot| !slot.released).map(|slot| CoreShard {
            drive: slot.reference.drive,
            number: slot.reference.shard,
            shard: coquina_control::ShardSnapshot {
                stats: slot.shard.stats(),
                reactor: self.index as u32,
                open_ns: slot.open_ns,
            },
            write_latency: slot.write_latency,
            read_latency: slot.read_latency,
            stalled: slot.stalled,
            damage: slot.damage.clone(),
        });
        let volumes = self.volumes.iter().map(|volume| (volume.record.id, volume.counters));
        let count = |protocol| self.connections.iter().filter(|(_, one)| one.protocol() == protocol).count();
        CoreSnapshot {
            shards: shards.collect(),
            volumes: volumes.collect(),
            reactor: coquina_control::ReactorSnapshot {
                turns: self.turns,
                busy_ns: self.busy_ns,
                operations: self.operations,
            },
            nbd_connections: count(Protocol::Nbd) as u64,
            native_connections: count(Protocol::Native) as u64,
            dropped_connections: self.dropped_connections,
        }
    }

    fn stop(&mut self) {
        if self.stopping_since_ns.is_some() {
            return;
        }
        self.stopping_since_ns = Some(self.now_ns);
        for listener in std::mem::take(&mut self.listeners) {
            self.reactor.close(listener.file, tag::ACCEPT | tag::MASK);
        }
        let open: Vec<usize> = self.connections.iter().map(|(index, _)| index).collect();
        for index in open {
            self.close_connection(index);
        }
        for slot in self.shards.iter_mut().filter(|slot| !slot.released) {
            slot.shard.close();
        }
    }

    fn is_stopped(&self) -> bool {
        let Some(since_ns) = self.stopping_since_ns else { return false };
        let closed = self.shards.iter().all(|slot| slot.released || slot.shard.is_closed());
        closed || self.now_ns.saturating_sub(since_ns) > STOP_NS_MAX
    }
}

fn io_token(slot: usize, io: IoToken) -> u64 {
    assert!(io.0 < 1 << 40 && slot < 1 << 16, "an I/O token does not fit");
    tag::SHARD | (slot as u64) << 40 | io.0
}

impl Connection {
    /// What it speaks.
    pub fn protocol(&self) -> Protocol {
        match self.state {
            crate::connection::State::Nbd(_) => Protocol::Nbd,
            crate::connection::State::Native(_) => Protocol::Native,
        }
    }
}
