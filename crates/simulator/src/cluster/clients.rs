//! Clients: each with a session, some requests outstanding, a map that may be stale, and patience.

use coquina_base::{BLOCK_BYTES, LayerId};
use coquina_copies::{Operation as CopyOperation, Request};
use coquina_engine::Failure;
use coquina_replication::Config;

use super::coordinator::Coordinator;
use super::node::number_of;
use super::plan::{CHUNKS, ClusterPlan, LAYERS};
use super::report::Rare;
use super::world::{ClientAnswer, Event, World};
use crate::content;
use crate::model::{Answer, Span, Ticket, zeros_of};
use crate::violation::Violation;

/// What a request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Read,
    /// Asks what is data and what is zeros.
    Map,
    Write,
    Trim,
    Zero,
    Fence,
}

impl Kind {
    pub fn is_change(self) -> bool {
        !matches!(self, Kind::Read | Kind::Map)
    }
}

/// What of a request goes over the network.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    id: u64,
    client: usize,
    session: u64,
    generation: u64,
    number: u64,
    group: u32,
    kind: Kind,
    span: Span,
    version: u32,
}

/// A request that is not answered.
#[derive(Debug)]
pub struct Operation {
    pub client: usize,
    session: u64,
    generation: u64,
    /// Its client has crashed: nobody waits for the answer, though it may still be sent again.
    pub is_lost: bool,
    pub number: u64,
    pub group: u32,
    pub kind: Kind,
    pub span: Span,
    pub version: u32,
    pub attempt: u64,
    /// Whom it was sent to first, and whether that changed.
    first_target: Option<usize>,
    has_moved: bool,
    /// None once what became of it does not matter to the model.
    pub ticket: Option<Ticket>,
}

impl Operation {
    fn packet(&self, id: u64) -> Packet {
        let Operation { client, session, generation, number, group, kind, span, version, .. } = *self;
        Packet { id, client, session, generation, number, group, kind, span, version }
    }
}

/// A client.
#[derive(Debug)]
pub struct Client {
    session: u64,
    generation: u64,
    /// Groups that do not know of this attachment yet.
    fences_left: u32,
    next_request: u64,
    pub outstanding: usize,
    /// Requests still to be made.
    pub left: u64,
    pub map: Vec<Config>,
}

impl Client {
    pub fn new(number: usize, plan: &ClusterPlan, coordinator: &Coordinator) -> Client {
        Client {
            session: number as u64 + 1,
            generation: 1,
            fences_left: 0,
            next_request: 1,
            outstanding: 0,
            left: plan.requests,
            map: coordinator.configs.clone(),
        }
    }
}

impl World {
    /// A client makes the next requests.
    pub fn client_step(&mut self, client: usize) {
        while self.clients[client].fences_left == 0
            && self.clients[client].left > 0
            && self.clients[client].outstanding < self.plan.depth
        {
            self.clients[client].left -= 1;
            self.make_request(client);
            if self.random.chance(1, 3) {
                break;
            }
        }
        if self.clients[client].left > 0 {
            let pause_ns = self.random.between(10_000, 2_000_000);
            self.at(pause_ns, Event::ClientStep(client));
        }
    }

    fn make_request(&mut self, client: usize) {
        // The last of several clients only reads: so its map is stale for longer.
        let only_reads = self.plan.clients > 1 && client + 1 == self.plan.clients;
        let weights = if only_reads { [1, 0, 0, 0] } else { [30, 60, 5, 5] };
        let kind = [Kind::Read, Kind::Write, Kind::Trim, Kind::Zero][self.random.weighted(&weights)];
        // On full drives nothing is trimmed that a copy keeps which is away: it would have no room for what the others take
        // instead, until it hears of the trim.
        let keeps = self.plan.is_full && !self.is_healed();
        let kind = if keeps && matches!(kind, Kind::Trim | Kind::Zero) { Kind::Write } else { kind };
        let kind = if kind == Kind::Read && self.does_besides(1, 8) { Kind::Map } else { kind };
        let layer = self.random.between(1, LAYERS + 1);
        let layer = if layer > LAYERS { self.doomed } else { layer };
        let chunk = self.random.below(u64::from(CHUNKS)) as u32;
        let block = BLOCK_BYTES as u64;
        let space_bytes = u64::from(self.plan.blocks) * block;
        let (unit, most) = match self.random.below(8) {
            0 => (512, 20),
            1 => (block, 40),
            _ => (block, 3),
        };
        let length_bytes = (self.random.between(1, most) * unit).min(space_bytes);
        let offset_bytes = self.random.below((space_bytes - length_bytes) / unit + 1) * unit;
        let (offset_bytes, length_bytes) = (offset_bytes as u32, length_bytes as u32);
        let span = Span { layer, chunk, offset_bytes, length_bytes };
        // Some trims are of parts of blocks as well.
        let span = match kind {
            Kind::Trim if !self.does_besides(1, 2) => {
                span.whole_blocks().unwrap_or(Span { offset_bytes: 0, length_bytes: 4096, ..span })
            }
            _ => span,
        };
        self.begin(client, kind, span);
    }

    /// Whether clients do something that they do not do in all clusters, so often. Its numbers are its own, so that the others run
    /// as if there were no such thing.
    pub fn does_besides(&mut self, numerator: u64, denominator: u64) -> bool {
        self.besides.as_mut().is_some_and(|random| random.chance(numerator, denominator))
    }

    /// Begins a request, unless too much is under way on its blocks.
    fn begin(&mut self, client: usize, kind: Kind, span: Span) {
        let is_change = kind.is_change();
        // A trim keeps parts of blocks as they are.
        let seen = if kind == Kind::Trim { span.whole_blocks() } else { Some(span) };
        if seen.is_some_and(|seen| !self.model.has_room(&seen, is_change)) {
            return;
        }
        let version = match kind {
            Kind::Write => {
                self.next_version += 1;
                self.next_version
            }
            _ => 0,
        };
        let ticket = seen.map(|seen| self.model.begin(seen, is_change.then_some(version)));
        let group = self.group_of(span.layer, span.chunk);
        self.add(client, kind, span, version, group, ticket);
    }

    fn add(
        &mut self,
        client: usize,
        kind: Kind,
        span: Span,
        version: u32,
        group: u32,
        ticket: Option<Ticket>,
    ) {
        let id = self.next_operation;
        self.next_operation += 1;
        let one = &mut self.clients[client];
        one.outstanding += 1;
        let number = one.next_request;
        one.next_request += u64::from(kind.is_change());
        let (session, generation) = (one.session, one.generation);
        self.note(&[
            40,
            id,
            u64::from(span.chunk),
            u64::from(span.offset_bytes),
            u64::from(span.length_bytes),
        ]);
        let operation = Operation {
            client,
            session,
            generation,
            is_lost: false,
            number,
            group,
            kind,
            span,
            version,
            attempt: 0,
            first_target: None,
            has_moved: false,
            ticket,
        };
        self.operations.insert(id, operation);
        self.try_request(id);
    }

    /// Sends a request to where the client's map says.
    fn try_request(&mut self, id: u64) {
        let Some(operation) = self.operations.get_mut(&id) else { return };
        operation.attempt += 1;
        let (client, group, attempt) = (operation.client, operation.group, operation.attempt);
        if attempt > 1 && self.now_ns >= self.coordinator.away_until_ns && self.random.chance(2, 3) {
            let newest = self.coordinator.config(group).clone();
            self.clients[client].map[group as usize - 1] = newest;
        }
        let config = &self.clients[client].map[group as usize - 1];
        if config.epoch < self.coordinator.config(group).epoch {
            self.report.saw(Rare::StaleClient);
        }
        let target = config.primary().map(number_of);
        let target = match target {
            Some(target) if !self.random.chance(1, 20) => target,
            _ => self.random.below(self.hosts.len() as u64) as usize,
        };
        let Some(operation) = self.operations.get_mut(&id) else { return };
        let first = *operation.first_target.get_or_insert(target);
        operation.has_moved |= first != target;
        if !self.random.chance(1, 100) {
            let delay_ns = self.random.between(20_000, 400_000);
            self.at(delay_ns, Event::Request { to: target, operation: id });
        }
        self.send_late(target, id);
        let patience_ns = self.random.between(20_000_000, 60_000_000);
        self.at(patience_ns, Event::Timeout { operation: id, attempt });
    }

    /// Some requests are held up on their way, for longer than their clients wait, and arrive whatever has become of them.
    fn send_late(&mut self, target: usize, id: u64) {
        if !self.does_besides(1, 50) {
            return;
        }
        let (Some(random), Some(operation)) = (&mut self.besides, self.operations.get(&id)) else { return };
        let most_ns = random.pick(&[100_000_000, 3_000_000_000]);
        let delay_ns = random.between(20_000_000, most_ns);
        let packet = Box::new(operation.packet(id));
        self.at(delay_ns, Event::LateRequest { to: target, packet });
    }

    /// The client waits no longer.
    pub fn timed_out(&mut self, id: u64, attempt: u64) {
        let Some(operation) = self.operations.get(&id) else { return };
        if operation.attempt == attempt && (!operation.is_lost || self.random.chance(4, 5)) {
            self.try_request(id);
        }
    }

    /// A request arrives at a node.
    pub fn request_arrives(&mut self, to: usize, id: u64) -> Result<(), Violation> {
        let Some(operation) = self.operations.get(&id) else { return Ok(()) };
        let packet = operation.packet(id);
        self.packet_arrives(to, &packet)
    }

    /// The same of one whose client may have its answer already.
    pub fn packet_arrives(&mut self, to: usize, packet: &Packet) -> Result<(), Violation> {
        let node = &self.nodes[self.node_of(to)];
        if !node.up || !node.sees_clients {
            return Ok(());
        }
        let (id, span) = (packet.id, packet.span);
        // Whoever was told that it could not be done does not know what becomes of it.
        if self.failed.contains(&id) {
            return Ok(());
        }
        if !self.operations.contains_key(&id) && packet.kind.is_change() {
            self.report.saw(Rare::LateRequest);
        }
        if self.is_removed(self.node_of(to), span.layer) {
            self.send_answer(to, id, ClientAnswer::Refused);
            return Ok(());
        }
        let mut payload = std::mem::take(&mut self.payload);
        payload.clear();
        if packet.kind == Kind::Write {
            payload.resize(span.length_bytes as usize, 0);
            content::fill(&mut payload, packet.version, span.place());
        }
        let request = Request {
            client: id,
            group: packet.group,
            session: packet.session,
            request: packet.number,
            volume: packet.client as u128 + 1,
            generation: packet.generation,
            layer: LayerId(span.layer),
            chunk: span.chunk,
            offset_bytes: span.offset_bytes,
            length_bytes: span.length_bytes,
            operation: match packet.kind {
                Kind::Read if id.is_multiple_of(2) => CopyOperation::ReadUnchecked,
                Kind::Read => CopyOperation::Read,
                Kind::Map => CopyOperation::Map,
                Kind::Write => CopyOperation::Write { payload: &payload, checksums_le: &[] },
                Kind::Trim => CopyOperation::Trim,
                Kind::Zero => CopyOperation::WriteZeroes { no_hole: id % 2 == 0 },
                Kind::Fence => CopyOperation::Fence,
            },
        };
        let result = self.with_copy(to, |copies, now_ns, out| copies.request(now_ns, &request, out));
        self.payload = payload;
        result
    }

    /// A node answers.
    pub fn send_answer(&mut self, from: usize, id: u64, answer: ClientAnswer) {
        if self.nodes[self.node_of(from)].sees_clients && !self.random.chance(1, 100) {
            let delay_ns = self.random.between(20_000, 400_000);
            self.at(delay_ns, Event::Answer { operation: id, from, answer });
        }
    }

    /// An answer arrives.
    pub fn answer_arrives(&mut self, id: u64, from: usize, answer: ClientAnswer) -> Result<(), Violation> {
        let Some(operation) = self.operations.get(&id) else { return Ok(()) };
        let is_read = !operation.kind.is_change();
        if operation.is_lost && !matches!(answer, ClientAnswer::Refused) {
            return Ok(());
        }
        let mut zeros = None;
        let answer = match &answer {
            ClientAnswer::Refused => {
                self.report.saw(Rare::Refused);
                let (attempt, wait_ns) = (operation.attempt, self.random.between(500_000, 10_000_000));
                self.at(wait_ns, Event::Timeout { operation: id, attempt });
                return Ok(());
            }
            ClientAnswer::NoSpace if !is_read => Answer::Either,
            // It was looked at when it was sent.
            ClientAnswer::Failed(Failure::BadBlock) => Answer::Either,
            ClientAnswer::Failed(failure) => {
                let request = if is_read { "read" } else { "change" };
                return Err(Violation::Failed { request, failure: *failure });
            }
            ClientAnswer::Done if !is_read => Answer::Changed,
            ClientAnswer::Data(bytes) if operation.kind == Kind::Read => Answer::Data(bytes),
            ClientAnswer::Map(extents) if operation.kind == Kind::Map => {
                zeros = Some(zeros_of(&operation.span, extents)?);
                Answer::Either
            }
            _ => return Err(Violation::WrongAnswer(format!("{operation:?} of copy {from}"))),
        };
        let Some(operation) = self.operations.remove(&id) else { return Ok(()) };
        self.report.answered += 1;
        self.report.reads += u64::from(is_read);
        if operation.has_moved && !is_read {
            self.report.saw(Rare::RetryAcrossFailover);
        }
        if answer == Answer::Either && operation.kind.is_change() {
            self.failed.insert(id);
        }
        self.clients[operation.client].outstanding -= 1;
        self.note(&[41, id, from as u64]);
        self.say(|| format!("answer of {from}: {operation:?}"));
        if operation.kind == Kind::Fence {
            self.fenced(operation.client)?;
        } else if let Some(ticket) = operation.ticket {
            if let Some(zeros) = zeros {
                self.report.saw(Rare::Mapped);
                self.model.finish_map(ticket, &zeros)?;
                return Ok(());
            }
            if is_read && answer == Answer::Either {
                self.model.abandon_read(ticket);
                return Ok(());
            }
            self.model.finish(ticket, answer, operation.kind == Kind::Write)?;
        }
        Ok(())
    }

    /// A client's host is taken for dead, and its volume attached elsewhere. The old one may go on for a while.
    pub fn crash_client(&mut self, client: usize) {
        if self.clients[client].fences_left > 0 || self.clients[client].left == 0 {
            return;
        }
        self.report.saw(Rare::ClientCrash);
        for operation in self.operations.values_mut().filter(|operation| operation.client == client) {
            operation.is_lost = true;
        }
        let groups = self.plan.groups;
        let one = &mut self.clients[client];
        one.session += 100;
        one.generation += 1;
        one.fences_left = groups;
        one.outstanding = 0;
        for group in 1..=groups {
            let span = Span { layer: 1, chunk: 0, offset_bytes: 0, length_bytes: 512 };
            self.add(client, Kind::Fence, span, 0, group, None);
        }
    }

    /// A group refuses a client's former attachments from now on. Once all do, its lost requests are over.
    fn fenced(&mut self, client: usize) -> Result<(), Violation> {
        self.clients[client].fences_left -= 1;
        if self.clients[client].fences_left > 0 {
            return Ok(());
        }
        for operation in self.operations.values_mut() {
            let Some(ticket) = operation.ticket.take_if(|_| operation.client == client && operation.is_lost)
            else {
                continue;
            };
            if !operation.kind.is_change() {
                self.model.abandon_read(ticket);
            } else {
                self.model.finish(ticket, Answer::Either, operation.kind == Kind::Write)?;
            }
        }
        Ok(())
    }

    /// Reads all that was ever used, as clients do.
    pub fn read_everything(&mut self) {
        for (layer, chunk) in
            self.layers_in_use().flat_map(|layer| (0..CHUNKS).map(move |chunk| (layer, chunk)))
        {
            let length_bytes = self.plan.blocks * BLOCK_BYTES as u32;
            let span = Span { layer, chunk, offset_bytes: 0, length_bytes };
            self.begin(0, Kind::Read, span);
            if self.besides.is_some() {
                self.begin(0, Kind::Map, span);
            }
        }
    }
}
