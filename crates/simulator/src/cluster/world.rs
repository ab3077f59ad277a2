//! The cluster as a whole: its parts, its events, its loop.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use coquina_cluster::Heartbeat;
use coquina_copies::{Answer, Event as CopyEvent, ShardCopies};
use coquina_engine::{Event as EngineEvent, Failure, MapExtent, Shard};
use coquina_replication::{BlockRange, Config, Message, Refusal};
use coquina_store::{Request, Response, StoreError};

use super::clients::{Client, Operation, Packet};
use super::control::{Control, Purpose};
use super::coordinator::{CHECK_NS, Coordinator};
use super::faults::Ending;
use super::network::Link;
use super::node::{Host, Node, Out, Outbox, copy_id, number_of};
use super::plan::{CHUNKS, ClusterPlan, LAYERS, group_of};
use super::report::{ClusterReport, Rare};
use super::rot::Rot;
use super::seat::SEAT_NS;
use crate::model::Model;
use crate::random::Random;
use crate::trace::TraceHash;
use crate::violation::Violation;

/// How long a cluster may take to heal and answer everything: where single blocks are recovered one after another, and drives
/// are still to be emptied, minutes.
const HEAL_NS: u64 = 240_000_000_000;
/// Longest run with faults.
const RUN_NS: u64 = 120_000_000_000;

/// Something that happens at a time.
pub enum Event {
    Tick { copy: usize, life: u64 },
    Wake { copy: usize, life: u64 },
    Link(usize),
    Connect { link: usize, end: usize, connection: u64 },
    Disconnect { link: usize, end: usize, connection: u64 },
    Deliver { link: usize, end: usize, connection: u64, group: u32, bytes: Vec<u8> },
    Config { to: usize, group: u32, config: Config },
    Propose { from: usize, group: u32, config: Config },
    Heartbeat(usize),
    CheckNodes,
    MapNews(usize),
    StoreAsked { node: usize, life: u64, purpose: Purpose, request: Box<Request> },
    StoreAnswered { node: usize, life: u64, purpose: Purpose, answer: Box<Result<Response, StoreError>> },
    MapStep { node: usize, life: u64 },
    SeatTick { node: usize, life: u64 },
    Beat { to: usize, heartbeat: Box<Heartbeat> },
    Collect(usize),
    ClientStep(usize),
    Request { to: usize, operation: u64 },
    LateRequest { to: usize, packet: Box<Packet> },
    Answer { operation: u64, from: usize, answer: ClientAnswer },
    Timeout { operation: u64, attempt: u64 },
    Fault,
    Rot,
    Rejoin { copy: usize, life: u64 },
    Sweep(usize),
    EndFault(Ending),
}

/// An answer on its way to a client.
pub enum ClientAnswer {
    Done,
    Data(Vec<u8>),
    Map(Vec<MapExtent>),
    Refused,
    NoSpace,
    Failed(coquina_engine::Failure),
}

struct Scheduled {
    at_ns: u64,
    number: u64,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_ns, self.number).cmp(&(other.at_ns, other.number))
    }
}

/// A cluster.
pub struct World {
    pub plan: ClusterPlan,
    pub now_ns: u64,
    pub random: Random,
    pub nodes: Vec<Node>,
    pub hosts: Vec<Host>,
    pub links: Vec<Link>,
    /// How many faults block messages from one node to another.
    pub blocked: Vec<Vec<u32>>,
    /// What holds, and, without the real control plane, who decides it.
    pub coordinator: Coordinator,
    /// The real control plane, in half of the runs.
    pub control: Option<Control>,
    pub clients: Vec<Client>,
    pub operations: BTreeMap<u64, Operation>,
    pub next_operation: u64,
    /// Changes that were answered and not done.
    pub failed: BTreeSet<u64>,
    pub next_version: u32,
    pub model: Model,
    /// What rots, in clusters where drives do.
    pub rot: Option<Rot>,
    pub flips: Option<Random>,
    /// When clients ask for maps and the like, in clusters where they do.
    pub besides: Option<Random>,
    /// The newest layer: it will be deleted, as those between [`LAYERS`] and it have been.
    pub doomed: u64,
    pub report: ClusterReport,
    /// No more faults.
    pub calm: bool,
    pub calm_since_ns: Option<u64>,
    events: BinaryHeap<Reverse<Scheduled>>,
    next_event: u64,
    pub trace: TraceHash,
    verbose: bool,
    pub(super) payload: Vec<u8>,
    /// Bytes that the cleaner of each copy had moved, and its checkpoints, when blocks were last recovered.
    pub(super) cleaned: Vec<(u64, u64)>,
}

impl World {
    /// A cluster whose nodes run.
    pub fn new(plan: ClusterPlan, mut random: Random, verbose: bool) -> Result<World, Violation> {
        let copies = plan.nodes * plan.drives_per_node;
        let nodes = (0..plan.nodes).map(|_| Node::new(&plan, &mut random)).collect();
        let new_host = |copy| Host::new(copy, copy / plan.drives_per_node, &plan, &mut random);
        let hosts = (0..copies).map(new_host).collect::<Result<_, _>>()?;
        let pairs = (0..copies).flat_map(|one| (one + 1..copies).map(move |other| [one, other]));
        let apart = |pair: &[usize; 2]| pair[0] / plan.drives_per_node != pair[1] / plan.drives_per_node;
        // Only the real coordinator moves copies between drives of a node.
        let links = pairs.filter(|pair| plan.is_real || apart(pair)).map(Link::new).collect();
        let coordinator = Coordinator::new(&plan, &mut random);
        let control = if plan.is_real { Some(Control::new(&plan)?) } else { None };
        let clients = (0..plan.clients).map(|number| Client::new(number, &plan, &coordinator)).collect();
        let mut world = World {
            now_ns: 1_000_000_000,
            nodes,
            hosts,
            links,
            blocked: vec![vec![0; plan.nodes]; plan.nodes],
            coordinator,
            control,
            clients,
            operations: BTreeMap::new(),
            next_operation: 1,
            failed: BTreeSet::new(),
            next_version: 1,
            model: Model::default(),
            rot: plan.rot_seed.map(Rot::new),
            flips: plan.flip_seed.map(Random::new),
            besides: plan.besides_seed.map(Random::new),
            doomed: LAYERS + 1,
            report: ClusterReport::default(),
            calm: false,
            calm_since_ns: None,
            events: BinaryHeap::new(),
            next_event: 0,
            trace: TraceHash::default(),
            verbose,
            payload: Vec::new(),
            cleaned: vec![(0, 0); copies],
            random,
            plan,
        };
        world.say(|| String::from("start"));
        let line = format!("{:?}", world.plan);
        world.say(|| line);
        for node in 0..world.plan.nodes {
            world.start_node(node)?;
            world.at(0, Event::Heartbeat(node));
            world.at(0, Event::Collect(node));
        }
        for link in 0..world.links.len() {
            world.at(0, Event::Link(link));
        }
        world.wait_for_groups()?;
        for client in 0..world.plan.clients {
            world.at(0, Event::ClientStep(client));
        }
        world.at(CHECK_NS * 10, Event::CheckNodes);
        let first_fault = world.plan.fault_ns;
        world.at(first_fault, Event::Fault);
        world.begin_to_rot();
        Ok(world)
    }

    /// The coordinator makes the groups first.
    fn wait_for_groups(&mut self) -> Result<(), Violation> {
        let start_ns = self.now_ns;
        while !self.has_groups() {
            if self.now_ns > start_ns + HEAL_NS {
                return Err(Violation::Hang(String::from("the coordinator makes no groups")));
            }
            self.step()?;
        }
        let configs = self.coordinator.configs.clone();
        self.clients.iter_mut().for_each(|client| client.map.clone_from(&configs));
        Ok(())
    }

    /// Runs with faults until all requests are made, then heals, waits for all answers, and checks the end.
    pub fn run(&mut self) -> Result<(), Violation> {
        let start_ns = self.now_ns;
        while self.clients.iter().any(|client| client.left > 0) {
            if self.now_ns > start_ns + RUN_NS {
                break;
            }
            self.step()?;
        }
        self.clients.iter_mut().for_each(|client| client.left = 0);
        self.heal()?;
        self.end_rot()?;
        self.read_everything();
        self.heal()?;
        self.free_layers()?;
        self.scrub_all()?;
        self.compare_copies()
    }

    /// Lets time pass.
    pub fn pass(&mut self, time_ns: u64) -> Result<(), Violation> {
        let end_ns = self.now_ns + time_ns;
        while self.now_ns < end_ns {
            self.step()?;
        }
        Ok(())
    }

    /// Ends all faults and waits until all is answered and all copies are back.
    fn heal(&mut self) -> Result<(), Violation> {
        self.say(|| String::from("calm"));
        self.calm()?;
        let start_ns = self.now_ns;
        while !(self.operations.values().all(|operation| operation.is_lost)
            && self.clients.iter().all(|client| client.left == 0)
            && self.is_healed())
        {
            if self.now_ns > start_ns + HEAL_NS {
                return Err(Violation::Hang(self.describe_hang()));
            }
            self.step()?;
        }
        Ok(())
    }

    /// The run's report.
    pub fn finish(mut self) -> ClusterReport {
        for host in &self.hosts {
            self.trace.add(&[host.drive.trace().value()]);
        }
        self.report.trace = self.trace.value();
        self.report.simulated_ns = self.now_ns;
        self.report
    }

    /// Lets one thing happen.
    pub fn step(&mut self) -> Result<(), Violation> {
        let event_ns = self.events.peek().map(|Reverse(scheduled)| scheduled.at_ns);
        let due = self.hosts.iter().enumerate();
        let drive = due.filter_map(|(copy, host)| host.drive.next_completion_ns().map(|at| (at, copy))).min();
        match (event_ns, drive) {
            (Some(event_ns), Some((drive_ns, copy))) if drive_ns <= event_ns => {
                self.complete_io(copy, drive_ns)
            }
            (None, Some((drive_ns, copy))) => self.complete_io(copy, drive_ns),
            (Some(_), _) => {
                let Some(Reverse(scheduled)) = self.events.pop() else { return Ok(()) };
                self.now_ns = self.now_ns.max(scheduled.at_ns);
                self.happen(scheduled.event)
            }
            (None, None) => Err(Violation::Hang(String::from("no event is left"))),
        }
    }

    fn complete_io(&mut self, copy: usize, at_ns: u64) -> Result<(), Violation> {
        self.now_ns = self.now_ns.max(at_ns);
        let Some(done) = self.hosts[copy].drive.complete_next(self.now_ns) else { return Ok(()) };
        self.with_copy(copy, |copies, _, out| copies.io_done(done.io, done.buffer, done.result, out))
    }

    fn happen(&mut self, event: Event) -> Result<(), Violation> {
        match event {
            Event::Tick { copy, life } if self.is_life(copy, life) => {
                let tick_ns = self.plan.tick_ns;
                self.at(tick_ns, Event::Tick { copy, life });
                self.with_copy(copy, |copies, now_ns, out| copies.tick(now_ns, out))
            }
            Event::Wake { copy, life } if self.is_life(copy, life) => {
                if self.hosts[copy].wake_ns.is_some_and(|wake| wake <= self.now_ns) {
                    self.hosts[copy].wake_ns = None;
                    self.with_copy(copy, |copies, now_ns, out| copies.turn(now_ns, out))?;
                }
                Ok(())
            }
            Event::Tick { .. } | Event::Wake { .. } => Ok(()),
            Event::Link(link) => {
                self.look_at_link(link);
                Ok(())
            }
            Event::Connect { link, end, connection } => self.connect_end(link, end, connection),
            Event::Disconnect { link, end, connection } => self.disconnect_end(link, end, connection),
            Event::Deliver { link, end, connection, group, bytes } => {
                self.deliver(link, end, connection, group, &bytes)
            }
            Event::Config { to, group, config } => {
                if !self.nodes[self.node_of(to)].sees_coordinator {
                    return Ok(());
                }
                self.with_copy(to, |copies, now_ns, out| copies.config(now_ns, group, config, out))
            }
            Event::Propose { from, group, config } => {
                self.proposed(from, group, config);
                Ok(())
            }
            Event::Heartbeat(node) => {
                self.at(CHECK_NS, Event::Heartbeat(node));
                self.heartbeat(node);
                self.send_heartbeat(node);
                Ok(())
            }
            Event::CheckNodes => {
                self.at(CHECK_NS, Event::CheckNodes);
                self.check_nodes();
                self.look_at_rot();
                Ok(())
            }
            Event::StoreAsked { node, life, purpose, request } => {
                self.store_asked(node, life, purpose, &request)
            }
            Event::StoreAnswered { node, life, purpose, answer } if self.lives(node, life) => {
                self.store_answered(node, purpose, *answer)
            }
            Event::MapStep { node, life } if self.lives(node, life) => self.map_step(node),
            Event::SeatTick { node, life } if self.lives(node, life) => self.seat_tick(node, life),
            Event::StoreAnswered { .. } | Event::MapStep { .. } | Event::SeatTick { .. } => Ok(()),
            Event::Beat { to, heartbeat } => self.heartbeat_arrives(to, *heartbeat),
            Event::MapNews(node) => {
                self.hear_map(node);
                Ok(())
            }
            Event::Collect(node) => self.collect_layers(node),
            Event::ClientStep(client) => {
                self.client_step(client);
                Ok(())
            }
            Event::Request { to, operation } => self.request_arrives(to, operation),
            Event::LateRequest { to, packet } => self.packet_arrives(to, &packet),
            Event::Answer { operation, from, answer } => self.answer_arrives(operation, from, answer),
            Event::Timeout { operation, attempt } => {
                self.timed_out(operation, attempt);
                Ok(())
            }
            Event::Fault => {
                if !self.calm {
                    let wait_ns = self.random.between(1_000_000, 2 * self.plan.fault_ns);
                    self.at(wait_ns, Event::Fault);
                    self.fault()?;
                }
                Ok(())
            }
            Event::Rot => {
                self.rot_somewhere();
                Ok(())
            }
            Event::Rejoin { copy, life } => self.rejoin(copy, life),
            Event::Sweep(node) => self.sweep(node),
            Event::EndFault(ending) => self.end_fault(ending),
        }
    }

    fn is_life(&self, copy: usize, life: u64) -> bool {
        self.lives(self.node_of(copy), life)
    }

    fn lives(&self, node: usize, life: u64) -> bool {
        self.nodes[node].up && self.nodes[node].life == life
    }

    /// Starts a process: opens its drives and their groups.
    pub fn start_node(&mut self, node: usize) -> Result<(), Violation> {
        if self.nodes[node].up {
            return Ok(());
        }
        self.say(|| format!("node {node} starts"));
        let waiting = (1..=self.plan.groups).any(|group| {
            let primary = self.coordinator.config(group).primary().map(number_of);
            let host = primary.and_then(|primary| self.hosts[primary].copies.as_ref());
            host.and_then(|copies| copies.group(group)).is_some_and(|group| !group.is_serving())
        });
        if waiting && self.nodes[node].life > 0 {
            self.report.saw(Rare::ReturnDuringTakeover);
        }
        self.nodes[node].up = true;
        let life = self.nodes[node].life;
        for copy in self.copies_of(node) {
            self.open_copy(copy)?;
        }
        if let Some(control) = &mut self.control {
            control.seats[node] = Default::default();
            let first_ns = self.random.below(SEAT_NS);
            self.at(first_ns, Event::SeatTick { node, life });
        }
        Ok(())
    }

    /// Opens a drive of a running process and the groups on it.
    pub fn open_copy(&mut self, copy: usize) -> Result<(), Violation> {
        let entropy = self.random.next_u64();
        let plan = self.plan.clone();
        let shard = match self.hosts[copy].open(copy, &plan, entropy) {
            Ok(shard) => shard,
            Err(_) if self.is_rotten(copy) && self.refuse_rotten(copy) => return self.open_copy(copy),
            Err(_) if self.is_rotten(copy) => return Ok(()),
            Err(violation) => return Err(violation),
        };
        self.take_up(copy, shard)
    }

    /// Opens the groups on a drive.
    pub fn take_up(&mut self, copy: usize, shard: Shard) -> Result<(), Violation> {
        let node = self.node_of(copy);
        let life = self.nodes[node].life;
        let plan = self.plan.clone();
        let now_ns = self.nodes[node].clock_ns(self.now_ns);
        let damaged: Vec<bool> = (0..=plan.groups).map(|group| shard.is_group_damaged(group)).collect();
        self.hosts[copy].copies = Some(ShardCopies::new(shard, now_ns));
        self.cleaned[copy] = (0, 0);
        let first_ns = self.random.below(self.plan.tick_ns);
        self.at(first_ns, Event::Tick { copy, life });
        if self.control.is_some() {
            // Which groups there are the map says.
            return Ok(());
        }
        for group in 1..=self.plan.groups {
            let config = self.coordinator.config(group).clone();
            if config.is_in_sync(copy_id(copy)) || config.is_out(copy_id(copy)) {
                // What the coordinator says may come much later; until then a copy knows what is in its log.
                let hears = self.nodes[node].sees_coordinator && self.random.chance(1, 3);
                let knows = hears || life == 0 || damaged[group as usize];
                let config = if knows { config } else { Config::default() };
                self.with_copy(copy, |copies, _, out| {
                    copies.open_group(group, plan.settings, config, out);
                })?;
            }
        }
        Ok(())
    }

    /// Does something with a running copy, and then what it wants done.
    pub fn with_copy(
        &mut self,
        copy: usize,
        act: impl FnOnce(&mut ShardCopies, u64, &mut Outbox),
    ) -> Result<(), Violation> {
        let Some(mut copies) = self.hosts[copy].copies.take() else { return Ok(()) };
        let node = self.node_of(copy);
        let now_ns = self.nodes[node].clock_ns(self.now_ns);
        let mut out = self.outbox(node);
        self.note_configs(copy, &copies);
        act(&mut copies, now_ns, &mut out);
        // A reactor's turn takes several things together.
        let is_turn_over = self.random.chance(2, 3);
        if is_turn_over {
            copies.turn(now_ns, &mut out);
        }
        let wake_ns = if is_turn_over {
            copies.next_wake_ns().map(|wake| self.nodes[node].true_ns(wake).max(self.now_ns + 2_000))
        } else {
            Some(self.now_ns + self.random.between(1_000, 30_000))
        };
        self.wake_later(copy, wake_ns);
        let result = out.out.into_iter().try_for_each(|out| self.carry_out(copy, &mut copies, out));
        self.hosts[copy].copies = Some(copies);
        result.and_then(|()| self.note_taken())
    }

    fn outbox(&self, node: usize) -> Outbox {
        Outbox::new(self.plan.groups, self.nodes[node].removed_below)
    }

    fn wake_later(&mut self, copy: usize, wake_ns: Option<u64>) {
        let Some(wake_ns) = wake_ns else { return };
        if self.hosts[copy].wake_ns.is_none_or(|known| wake_ns < known) {
            self.hosts[copy].wake_ns = Some(wake_ns);
            let life = self.nodes[self.node_of(copy)].life;
            self.at(wake_ns - self.now_ns, Event::Wake { copy, life });
        }
    }

    fn carry_out(&mut self, copy: usize, copies: &mut ShardCopies, out: Out) -> Result<(), Violation> {
        match out {
            Out::Send { to, group, bytes } => self.send(copy, to, group, bytes),
            Out::Disconnect(other) => {
                if let Some(link) = self.link_of(copy, other) {
                    self.break_link(link);
                }
            }
            Out::Released { group, epoch } => {
                let below = self.hosts[copy].released_below.entry(group).or_default();
                *below = epoch.max(*below);
            }
            Out::Answer { client, answer } => {
                self.check_answer(copy, copies, client, &answer)?;
                if matches!(answer, Answer::Refused(Refusal::Fenced)) {
                    self.report.saw(Rare::Fenced);
                }
                let answer = match answer {
                    Answer::Done => ClientAnswer::Done,
                    Answer::Refused(Refusal::NoSpace) => {
                        self.check_full(copy, copies)?;
                        ClientAnswer::NoSpace
                    }
                    Answer::Refused(_) => ClientAnswer::Refused,
                    Answer::Failed(failure) => ClientAnswer::Failed(failure),
                    Answer::Map(extents) => ClientAnswer::Map(extents),
                    Answer::Read(data) => {
                        let bytes = data.to_bytes();
                        copies.recycle(data);
                        ClientAnswer::Data(bytes)
                    }
                };
                self.send_answer(copy, client, answer);
            }
            Out::Io(action) => {
                let now_ns = self.now_ns;
                self.hosts[copy].drive.submit(now_ns, 0, action);
            }
            Out::Propose { group, config } => {
                self.say(|| format!("copy {copy} proposes for {group}: {config:?}"));
                let delay_ns = self.random.between(100_000, 3_000_000);
                self.at(delay_ns, Event::Propose { from: copy, group, config });
            }
            Out::Withdraw { group, config } => self.withdrawn(copy, group, &config),
            Out::Compare { group, copy: other, token } => {
                self.report.saw(Rare::WholeCompare);
                let chunks = self.chunks_of(group);
                let node = self.node_of(copy);
                let now_ns = self.nodes[node].clock_ns(self.now_ns);
                let mut more = self.outbox(node);
                copies.compare(now_ns, group, other, token, chunks, &mut more);
                more.out.into_iter().try_for_each(|out| self.carry_out(copy, copies, out))?;
            }
            Out::LayerDeleted(layer, result) => {
                // A drive that takes no changes any more deletes it once it is seen to.
                let is_excused = |failure| failure == Failure::ReadOnly && self.is_excused(copy);
                if let Err(failure) = result
                    && !self.hosts[copy].failing
                    && !is_excused(failure)
                {
                    return Err(Violation::Group(format!(
                        "copy {copy} did not delete {layer:?}: {failure:?}"
                    )));
                }
            }
            Out::Event(event) => self.copy_event(copy, copies, event)?,
        }
        Ok(())
    }

    fn copy_event(
        &mut self,
        copy: usize,
        copies: &mut ShardCopies,
        event: CopyEvent,
    ) -> Result<(), Violation> {
        if self.hosts[copy].failing {
            // Its writes fail, as was ordered.
            if matches!(event, CopyEvent::Halted(_, Failure::ReadOnly)) {
                self.report.saw(Rare::Halted);
                return Ok(());
            }
            if matches!(event, CopyEvent::Engine(EngineEvent::Poisoned { .. })) {
                return Ok(());
            }
        }
        if self.comes_of_rot(copy, copies, &event) || self.comes_of_contradiction(copy, &event) {
            return Ok(());
        }
        match event {
            CopyEvent::Engine(EngineEvent::Checkpoint { .. } | EngineEvent::ScrubDone { .. }) => Ok(()),
            CopyEvent::Scrubbed(_) => Ok(()),
            CopyEvent::Engine(event) => Err(Violation::UnexpectedEvent(event)),
            other => Err(Violation::Group(format!("copy {copy}: {other:?}\n{:?}", copies.shard()))),
        }
    }

    /// Whole chunks of a group.
    pub fn chunks_of(&self, group: u32) -> Vec<BlockRange> {
        let all = self.layers_in_use().flat_map(|layer| (0..CHUNKS).map(move |chunk| (layer, chunk)));
        let own = all.filter(|(layer, chunk)| self.group_of(*layer, *chunk) == group);
        own.map(|(layer, chunk)| BlockRange {
            layer: coquina_base::LayerId(layer),
            chunk,
            first: 0,
            count: coquina_base::CHUNK_BLOCKS,
        })
        .collect()
    }

    /// The group of a chunk.
    pub fn group_of(&self, layer: u64, chunk: u32) -> u32 {
        group_of(layer, chunk, self.plan.groups)
    }

    /// The node of a copy.
    pub fn node_of(&self, copy: usize) -> usize {
        self.hosts[copy].node
    }

    /// The copies of a node whose drives are there.
    pub fn copies_of(&self, node: usize) -> Vec<usize> {
        let is_own = |copy: &usize| self.hosts[*copy].node == node && !self.hosts[*copy].is_gone;
        (0..self.hosts.len()).filter(is_own).collect()
    }

    /// Lets an event happen after a time.
    pub fn at(&mut self, delay_ns: u64, event: Event) {
        let number = self.next_event;
        self.next_event += 1;
        self.events.push(Reverse(Scheduled { at_ns: self.now_ns + delay_ns, number, event }));
    }

    /// Adds to the trace.
    pub fn note(&mut self, words: &[u64]) {
        self.trace.add(&[self.now_ns]);
        self.trace.add(words);
    }

    /// Adds bytes to the trace.
    pub fn note_bytes(&mut self, bytes: &[u8]) {
        self.trace.add_bytes(bytes);
    }

    /// Tells what happens, if anybody listens.
    pub fn say(&self, what: impl FnOnce() -> String) {
        if self.verbose {
            eprintln!("{:>12.6} {}", self.now_ns as f64 / 1e9, what());
        }
    }

    /// Notes what a message says about the state that the cluster is in.
    pub fn count_message(&mut self, to: usize, message: &Message) {
        let range = match message {
            Message::Append { entry, .. } => Some(entry.range),
            Message::Recover { range, .. } => Some(*range),
            _ => None,
        };
        if range.is_some_and(|range| self.is_removed(self.node_of(to), range.layer.0)) {
            self.report.saw(Rare::EntryOfRemovedLayer);
        }
        match message {
            Message::Tail { entries, .. } if !entries.is_empty() => self.report.saw(Rare::TakeoverWithTail),
            Message::Cut { .. } => self.report.saw(Rare::Cut),
            Message::CutDone { ranges, .. } if !ranges.is_empty() => self.report.saw(Rare::CutOfEntries),
            Message::Append { config_epoch, entry, .. } if entry.epoch < *config_epoch => {
                self.report.saw(Rare::ReadBack);
            }
            Message::Recover { .. } => {
                self.report.saw(Rare::Recovered);
                let stats = self.hosts[to].copies.as_ref().map(|copies| copies.shard().stats());
                if let Some(stats) = stats {
                    let (cleaned, checkpoints) = self.cleaned[to];
                    if stats.cleaner_bytes > cleaned {
                        self.report.saw(Rare::CleanerDuringRecovery);
                    }
                    if stats.checkpoints > checkpoints {
                        self.report.saw(Rare::CheckpointDuringRecovery);
                    }
                    self.cleaned[to] = (stats.cleaner_bytes, stats.checkpoints);
                }
            }
            _ => {}
        }
    }
}
