//! The world of the model: three copies with their drives, the connections between them, a coordinator, two clients.
//!
//! One [`Step`] is one thing that happens somewhere. All orders are possible; what costs a *budget* happens at most so
//! often. Requests reach a copy, and answers the client, at once: a request that is slow is one that is made later.
//! Reads are instantaneous, tried at every step on every copy.

use std::collections::{BTreeMap, VecDeque};

use coquina_replication::{
    Action, ClientRequest, Config, CopyId, Entry, EntryKind, Group, Input, Message, PayloadRef,
    RecoveryToken, Settings, Token,
};

use super::disk::{BLOCKS, Disk, Record, block};
use super::register::Register;

pub const COPIES: usize = 3;
const TIME_UNIT_NS: u64 = 1_000;
/// Where each node's clock starts, and how many thousandths of the true rate it has.
const CLOCKS: [(u64, u64); COPIES] = [(50_000_000, 1_000), (7_000, 1_090), (900_000, 910)];

/// What is rare and must be seen by the walks.
pub const SIGHTS: &[&str] = &[
    "block recovered",
    "change in a stream to an out copy",
    "cut of entries",
    "grant by a joining copy",
    "grant to a primary removed",
    "read that rules out an order",
    "release that lets a primary serve",
    "retry of a request under way",
    "return after a broken return",
    "stale sender told",
    "tail fetched by a new primary",
    "whole group compared",
];

/// What a client wants: a block, a value, and whether it is a trim.
pub type Operation = (usize, u8, bool);

/// How often something may happen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Budget {
    pub crashes: u8,
    pub breaks: u8,
    /// Removals and promotions that the coordinator makes by itself.
    pub moves: u8,
    pub retries: u8,
    pub time: u8,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Copy {
    /// None while the node is down.
    pub group: Option<Group>,
    pub disk: Disk,
    /// The coordinator's epoch that it was told of and does not take part in.
    refused: u64,
    ticked: bool,
    reads: Vec<(RecoveryToken, u8)>,
    /// It has said that it serves under no epoch below this one.
    released_below: u64,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Client {
    pub operations: &'static [Operation],
    /// The one under way or next.
    pub current: usize,
    begun: bool,
}

/// Something that happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    Deliver(usize, usize),
    Sync(usize),
    /// One record becomes durable, and others behind it do not yet.
    SyncOne(usize),
    Request {
        client: usize,
        operation: usize,
        copy: usize,
    },
    Read {
        copy: usize,
        block: usize,
    },
    RecoveryRead(usize),
    Decide(usize),
    Inform(usize),
    Tick(usize),
    Advance,
    Remove(usize),
    Promote(usize),
    Break(usize, usize),
    Crash(usize),
    Restart(usize),
}

/// What went wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wrong(pub String);

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct World {
    pub copies: [Copy; COPIES],
    queues: [[VecDeque<Message>; COPIES]; COPIES],
    pub coordinator: Config,
    pub proposals: Vec<Config>,
    /// Those of them that were taken back: the coordinator may have heard that, or decide all the same.
    pub withdrawn: Vec<Config>,
    pub clients: [Client; 2],
    registers: [Register; BLOCKS],
    /// What was ever committed, by sequence number.
    committed: BTreeMap<u64, (u64, u64, PayloadRef)>,
    pub budget: Budget,
    time: u64,
    settings: Settings,
    /// Crashes lose nothing.
    eager_sync: bool,
    /// What is in the log may become durable in parts, so that a crash takes the rest of what was logged together.
    pub syncs_in_parts: bool,
}

fn token(client: usize, operation: usize) -> Token {
    Token((client * 16 + operation) as u64)
}

impl World {
    /// The first so many copies are members, in sync and serving, nothing written.
    pub fn new(
        settings: Settings,
        members: usize,
        operations: [&'static [Operation]; 2],
        eager_sync: bool,
    ) -> World {
        let ids = (0..members as u64).map(CopyId).collect();
        let config = Config { epoch: 1, in_sync: ids, others: Vec::new(), min_copies: 1 };
        let copy = || Copy {
            group: None,
            disk: Disk::new(config.clone()),
            refused: 0,
            ticked: false,
            reads: Vec::new(),
            released_below: 0,
        };
        let mut world = World {
            copies: [copy(), copy(), copy()],
            queues: Default::default(),
            coordinator: config.clone(),
            proposals: Vec::new(),
            withdrawn: Vec::new(),
            clients: operations.map(|operations| Client { operations, current: 0, begun: false }),
            registers: [Register::new(), Register::new()],
            committed: BTreeMap::new(),
            budget: Budget::default(),
            time: 0,
            settings,
            eager_sync,
            syncs_in_parts: false,
        };
        world.settle(3, false).expect("an empty world settles");
        assert!(world.copies[0].group.as_ref().is_some_and(Group::is_serving), "copy 0 serves");
        world
    }

    fn now_ns(&self, copy: usize) -> u64 {
        let (offset, rate) = CLOCKS[copy];
        offset + self.time * TIME_UNIT_NS * rate / 1_000
    }

    fn settings(&self, copy: usize) -> Settings {
        Settings { copy: CopyId(copy as u64), ..self.settings }
    }

    /// Everything that may happen now.
    pub fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        let running: Vec<usize> = (0..COPIES).filter(|copy| self.copies[*copy].group.is_some()).collect();
        for &copy in &running {
            for from in (0..COPIES).filter(|from| !self.queues[*from][copy].is_empty()) {
                steps.push(Step::Deliver(from, copy));
            }
            if !self.copies[copy].disk.is_synced() {
                steps.push(Step::Sync(copy));
            }
            if self.syncs_in_parts && self.copies[copy].disk.unsynced() > 1 {
                steps.push(Step::SyncOne(copy));
            }
            if !self.copies[copy].reads.is_empty() {
                steps.push(Step::RecoveryRead(copy));
            }
        }
        self.client_steps(&running, &mut steps);
        steps.extend((0..self.proposals.len()).map(Step::Decide));
        for &copy in &running {
            if self.epoch_known(copy) < self.coordinator.epoch {
                steps.push(Step::Inform(copy));
            }
            if !self.copies[copy].ticked {
                steps.push(Step::Tick(copy));
            }
        }
        steps.extend((0..COPIES).filter(|copy| self.copies[*copy].group.is_none()).map(Step::Restart));
        self.fault_steps(&running, &mut steps);
        steps
    }

    fn client_steps(&self, running: &[usize], steps: &mut Vec<Step>) {
        for &copy in running {
            if self.copies[copy].group.as_ref().is_some_and(Group::is_serving) {
                for (client, state) in self.clients.iter().enumerate() {
                    let begun = state.operations.len().min(state.current + 1);
                    for operation in 0..begun {
                        let first = operation == state.current && !state.begun;
                        if first || self.budget.retries > 0 {
                            steps.push(Step::Request { client, operation, copy });
                        }
                    }
                }
            }
            for block in 0..BLOCKS {
                if self.readable(copy, block).is_some_and(|value| self.registers[block].read(value).is_some())
                {
                    steps.push(Step::Read { copy, block });
                }
            }
        }
    }

    fn fault_steps(&self, running: &[usize], steps: &mut Vec<Step>) {
        if self.budget.time > 0 {
            steps.push(Step::Advance);
        }
        if self.budget.moves > 0 && self.coordinator.in_sync.len() > 1 {
            for (place, copy) in self.coordinator.in_sync.iter().enumerate() {
                steps.push(Step::Remove(copy.0 as usize));
                if place > 0 {
                    steps.push(Step::Promote(copy.0 as usize));
                }
            }
        }
        if self.budget.breaks > 0 {
            for &one in running {
                steps.extend(
                    running.iter().filter(|other| **other > one).map(|other| Step::Break(one, *other)),
                );
            }
        }
        if self.budget.crashes > 0 {
            steps.extend(running.iter().map(|copy| Step::Crash(*copy)));
        }
    }

    fn epoch_known(&self, copy: usize) -> u64 {
        let Some(group) = &self.copies[copy].group else { return 0 };
        let persisting = self.copies[copy].disk.log.iter().rev().find_map(|record| match record {
            Record::Config(config, _) => Some(config.epoch),
            _ => None,
        });
        persisting.unwrap_or(0).max(group.config().epoch).max(self.copies[copy].refused)
    }

    /// What a read of the block at the copy gives now, if it is answered now.
    pub fn readable(&self, copy: usize, number: usize) -> Option<u8> {
        let group = self.copies[copy].group.as_ref()?;
        group.may_read(self.now_ns(copy)).ok()?;
        let uncommitted = self.copies[copy].disk.entries();
        let mut uncommitted = uncommitted.range(group.committed() + 1..);
        let waits = uncommitted.any(|(_, entry)| entry.range.intersects(&block(number)));
        (!waits).then_some(self.copies[copy].disk.blocks[number])
    }

    /// Lets something happen, then checks everything.
    pub fn take(&mut self, step: Step) -> Result<(), Wrong> {
        match step {
            Step::Deliver(from, to) => {
                if let Some(message) = self.queues[from][to].pop_front() {
                    self.input(to, Input::Message(CopyId(from as u64), message))?;
                }
            }
            Step::Sync(copy) => self.sync(copy, usize::MAX)?,
            Step::SyncOne(copy) => self.sync(copy, 1)?,
            Step::Request { client, operation, copy } => self.request(client, operation, copy)?,
            Step::Read { copy, block } => {
                if let Some(read) =
                    self.readable(copy, block).and_then(|value| self.registers[block].read(value))
                {
                    self.registers[block] = read;
                }
            }
            Step::RecoveryRead(copy) => {
                let (token, value) = self.copies[copy].reads.remove(0);
                self.input(copy, Input::RecoveryRead { token, payload: PayloadRef(value.into()) })?;
            }
            Step::Decide(place) => {
                let config = self.proposals.remove(place);
                self.decide(config);
            }
            Step::Inform(copy) => {
                self.input(copy, Input::Config(self.coordinator.clone()))?;
                if self.epoch_known(copy) < self.coordinator.epoch {
                    self.copies[copy].refused = self.coordinator.epoch;
                }
            }
            Step::Tick(copy) => {
                self.copies[copy].ticked = true;
                self.input(copy, Input::Tick)?;
            }
            Step::Advance => {
                self.budget.time = self.budget.time.saturating_sub(1);
                self.time += 1;
                self.copies.iter_mut().for_each(|copy| copy.ticked = false);
            }
            Step::Remove(copy) => {
                self.budget.moves -= 1;
                self.decide(self.coordinator.without(CopyId(copy as u64)));
            }
            Step::Promote(copy) => {
                self.budget.moves -= 1;
                let mut config = self.coordinator.renewed();
                config.in_sync.retain(|other| other.0 as usize != copy);
                config.in_sync.insert(0, CopyId(copy as u64));
                self.decide(config);
            }
            Step::Break(one, other) => {
                self.budget.breaks -= 1;
                self.disconnect(one, other)?;
                self.disconnect(other, one)?;
                self.connect(one, other)?;
            }
            Step::Crash(copy) => {
                self.budget.crashes -= 1;
                self.copies[copy].group = None;
                self.copies[copy].reads.clear();
                self.copies[copy].disk.crash();
                for other in (0..COPIES).filter(|other| *other != copy) {
                    self.queues[copy][other].clear();
                    self.disconnect(other, copy)?;
                }
            }
            Step::Restart(copy) => self.restart(copy)?,
        }
        self.check()
    }

    /// Whether a step needs the connections of a copy, or the coordinator's where the copy is one too many.
    pub fn is_remote(step: &Step, copy: usize) -> bool {
        match step {
            Step::Deliver(from, to) => *from == copy || *to == copy,
            Step::Inform(informed) => *informed == copy || copy == COPIES,
            Step::Decide(_) => copy == COPIES,
            _ => false,
        }
    }

    /// A name for what is rare about a step.
    pub fn sight(&self, step: Step) -> Option<&'static str> {
        let (from, to) = match step {
            Step::Deliver(from, to) => (from, to),
            Step::Request { client, operation, .. } => {
                let state = &self.clients[client];
                let again = operation == state.current && state.begun && self.budget.retries > 0;
                return again.then_some("retry of a request under way");
            }
            Step::Read { .. } => return Some("read that rules out an order"),
            _ => return None,
        };
        let in_sync = |copy: usize| self.coordinator.is_in_sync(CopyId(copy as u64));
        match self.queues[from][to].front()? {
            Message::Tail { entries, .. } if !entries.is_empty() => Some("tail fetched by a new primary"),
            Message::CutDone { ranges, .. } if !ranges.is_empty() => Some("cut of entries"),
            Message::Append { .. } if in_sync(from) && !in_sync(to) => {
                Some("change in a stream to an out copy")
            }
            Message::Recover { .. } => Some("block recovered"),
            Message::JoinState { last, incomplete_since, .. } => {
                let group = self.copies[to].group.as_ref()?;
                let since = incomplete_since.unwrap_or(*last).min(*last);
                match group.missing(CopyId(from as u64)) {
                    Some(missing) if missing.base > since => Some("whole group compared"),
                    _ if incomplete_since.is_some() => Some("return after a broken return"),
                    _ => None,
                }
            }
            Message::Stale { .. } => Some("stale sender told"),
            message @ Message::Released { .. } => {
                let mut group = self.copies[to].group.clone().filter(|group| !group.is_serving())?;
                let input = Input::Message(CopyId(from as u64), message.clone());
                group.apply(self.now_ns(to), input, &mut Vec::new());
                group.is_serving().then_some("release that lets a primary serve")
            }
            Message::GrantRequest { .. } if in_sync(from) && !in_sync(to) => Some("grant by a joining copy"),
            Message::Grant { .. } if !in_sync(to) => Some("grant to a primary removed"),
            _ => None,
        }
    }

    /// What a step is about.
    pub fn describe(&self, step: Step) -> String {
        match step {
            Step::Deliver(from, to) => format!("{:?}", self.queues[from][to].front()),
            Step::Decide(place) => format!("{:?}", self.proposals[place]),
            Step::Inform(_) => format!("{:?}", self.coordinator),
            _ => String::new(),
        }
    }

    fn restart(&mut self, copy: usize) -> Result<(), Wrong> {
        let (settings, now_ns) = (self.settings(copy), self.now_ns(copy));
        let start = self.copies[copy].disk.start(settings.copy, |entry| marks(&settings, entry));
        let mut actions = Vec::new();
        self.copies[copy].group = Some(Group::new(settings, start, now_ns, &mut actions));
        self.copies[copy].ticked = false;
        self.copies[copy].refused = 0;
        self.execute(copy, actions)?;
        for other in (0..COPIES).filter(|other| *other != copy) {
            if self.copies[other].group.is_some() {
                self.connect(copy, other)?;
            }
        }
        Ok(())
    }

    fn disconnect(&mut self, copy: usize, other: usize) -> Result<(), Wrong> {
        self.queues[other][copy].clear();
        self.input(copy, Input::Disconnected(CopyId(other as u64)))?;
        self.queues[copy][other].clear();
        Ok(())
    }

    fn connect(&mut self, one: usize, other: usize) -> Result<(), Wrong> {
        self.input(one, Input::Connected(CopyId(other as u64)))?;
        self.input(other, Input::Connected(CopyId(one as u64)))
    }

    fn decide(&mut self, config: Config) {
        if config.epoch == self.coordinator.epoch + 1 {
            self.coordinator = config;
        }
        let epoch = self.coordinator.epoch;
        self.proposals.retain(|proposal| proposal.epoch == epoch + 1);
        self.withdrawn.retain(|proposal| proposal.epoch == epoch + 1);
    }

    fn sync(&mut self, copy: usize, most: usize) -> Result<(), Wrong> {
        let Some(group) = &self.copies[copy].group else { return Ok(()) };
        let committed = group.committed();
        let disk = &mut self.copies[copy].disk;
        let records = disk.sync_to(disk.synced + disk.unsynced().min(most), committed);
        self.input(copy, Input::Durable { records })
    }

    fn request(&mut self, client: usize, operation: usize, copy: usize) -> Result<(), Wrong> {
        let state = &mut self.clients[client];
        let (block, value, _) = state.operations[operation];
        if operation == state.current && !state.begun {
            state.begun = true;
            self.registers[block].begin(value);
        } else {
            self.budget.retries = self.budget.retries.saturating_sub(1);
        }
        let trim = state.operations[operation].2;
        let request = ClientRequest {
            token: token(client, operation),
            session: client as u64 + 1,
            request: operation as u64 + 1,
            volume: 1,
            generation: 1,
            kind: if trim { EntryKind::Trim } else { EntryKind::Write },
        };
        self.input(copy, Input::Request(request))
    }

    fn input(&mut self, copy: usize, input: Input) -> Result<(), Wrong> {
        let now_ns = self.now_ns(copy);
        let Some(group) = &mut self.copies[copy].group else { return Ok(()) };
        let mut actions = Vec::new();
        group.apply(now_ns, input, &mut actions);
        self.execute(copy, actions)
    }

    /// The driver of one copy.
    fn execute(&mut self, copy: usize, actions: Vec<Action>) -> Result<(), Wrong> {
        let mut next = Vec::new();
        for action in actions {
            let disk = &mut self.copies[copy].disk;
            match action {
                Action::Send { to, message } => {
                    if let Message::Released { config_epoch } = message {
                        let copy = &mut self.copies[copy];
                        copy.released_below = copy.released_below.max(config_epoch);
                    }
                    if self.copies[to.0 as usize].group.is_some() {
                        self.queues[copy][to.0 as usize].push_back(message);
                    }
                }
                Action::Submit(token) => next.push(self.append(copy, token)?),
                Action::Append(entry) => disk.log.push(Record::Change(entry)),
                Action::Persist { config, committed } => disk.log.push(Record::Config(config, committed)),
                Action::Cut { at, recovery } => disk.log.push(Record::Cut(at, recovery)),
                Action::Join { history, last } => disk.log.push(Record::Join(history, last)),
                Action::Recovered { range, payload } => disk.log.push(Record::Recovered(range, payload)),
                Action::SetSessions(sessions) => disk.log.push(Record::Sessions(sessions)),
                Action::Commit(sequence) => self.commit(copy, sequence)?,
                Action::Answer(token) => self.answer(token)?,
                Action::ReadForRecovery { token, range, .. } => {
                    let value = disk.blocks[range.first as usize];
                    self.copies[copy].reads.push((token, value));
                }
                Action::Compare { token, copy } => {
                    let ranges = (0..BLOCKS).map(block).collect();
                    next.push(Input::Compared { copy, token, ranges, done: true });
                }
                Action::Propose(config) => {
                    self.withdrawn.retain(|withdrawn| *withdrawn != config);
                    if config.epoch > self.coordinator.epoch && !self.proposals.contains(&config) {
                        self.proposals.push(config);
                        self.proposals.sort();
                    }
                }
                Action::Withdraw(config) => {
                    if self.proposals.contains(&config) && !self.withdrawn.contains(&config) {
                        self.withdrawn.push(config);
                        self.withdrawn.sort();
                    }
                }
                Action::Violation(violation) | Action::Report(violation) => {
                    return Err(Wrong(format!("copy {copy} reports: {violation}")));
                }
                Action::Serve { .. } | Action::Stop | Action::Refuse { .. } | Action::Read(_) => {}
            }
        }
        for input in next {
            self.input(copy, input)?;
        }
        if self.eager_sync && !self.copies[copy].disk.is_synced() {
            self.sync(copy, usize::MAX)?;
        }
        Ok(())
    }

    /// The engine appends a change at once.
    fn append(&mut self, copy: usize, token: Token) -> Result<Input, Wrong> {
        let group = self.copies[copy].group.as_ref().ok_or(Wrong("down".into()))?;
        let (client, operation) = (token.0 as usize / 16, token.0 as usize % 16);
        let (number, value, trim) = self.clients[client].operations[operation];
        let entry = Entry {
            epoch: group.config().epoch,
            sequence: group.last() + 1,
            session: client as u64 + 1,
            request: operation as u64 + 1,
            kind: if trim { EntryKind::Trim } else { EntryKind::Write },
            range: block(number),
            is_last: true,
            payload: PayloadRef(value.into()),
        };
        self.copies[copy].disk.log.push(Record::Change(entry));
        Ok(Input::Appended { token, entry })
    }

    fn commit(&mut self, copy: usize, sequence: u64) -> Result<(), Wrong> {
        let entries = self.copies[copy].disk.entries();
        for (number, entry) in entries.range(..=sequence) {
            let change = (entry.session, entry.request, entry.payload);
            match self.committed.get(number) {
                Some(known) if *known != change => {
                    return Err(Wrong(format!("copy {copy} commits {change:?} as {number}, {known:?} was")));
                }
                Some(_) => {}
                None if self.committed.values().any(|known| *known == change) => {
                    return Err(Wrong(format!("copy {copy} commits {change:?} again, as {number}")));
                }
                None => {
                    self.committed.insert(*number, change);
                }
            }
        }
        Ok(())
    }

    fn answer(&mut self, token: Token) -> Result<(), Wrong> {
        let (client, operation) = (token.0 as usize / 16, token.0 as usize % 16);
        let (session, request) = (client as u64 + 1, operation as u64 + 1);
        if !self.committed.values().any(|known| (known.0, known.1) == (session, request)) {
            return Err(Wrong(format!("request {request} of client {client} is answered, not committed")));
        }
        let state = &mut self.clients[client];
        if operation == state.current && state.begun {
            let (block, value, _) = state.operations[operation];
            state.current += 1;
            state.begun = false;
            if !self.registers[block].answer(value) {
                return Err(Wrong(format!("no order explains the answer of the write of {value}")));
            }
        }
        Ok(())
    }

    /// What must hold at any time.
    fn check(&self) -> Result<(), Wrong> {
        for (copy, state) in self.copies.iter().enumerate() {
            let Some(group) = &state.group else { continue };
            let epoch = group.config().epoch;
            if epoch < state.released_below && group.may_read(self.now_ns(copy)).is_ok() {
                return Err(Wrong(format!(
                    "copy {copy} reads under epoch {epoch}, and has released all below {}",
                    state.released_below
                )));
            }
        }
        for copy in 0..COPIES {
            for number in 0..BLOCKS {
                let Some(value) = self.readable(copy, number) else { continue };
                if self.registers[number].read(value).is_some_and(|read| !read.is_explained()) {
                    return Err(Wrong(format!(
                        "copy {copy} reads {value} from block {number}: not linearizable"
                    )));
                }
            }
        }
        let disks = self.coordinator.in_sync.iter().map(|copy| (copy, &self.copies[copy.0 as usize].disk));
        // One that knows that it has lost something does not act as one in sync, whatever the coordinator says.
        let counts = |(copy, disk): &(&CopyId, &Disk)| disk.is_synced() && disk.is_intact(**copy);
        let disks: Vec<_> = disks.filter(counts).collect();
        for (one, disk) in &disks {
            for (other, other_disk) in &disks {
                if disk.last == other_disk.last && disk.blocks != other_disk.blocks {
                    return Err(Wrong(format!(
                        "copies {one:?} and {other:?}, in sync at entry {}, hold {:?} and {:?}",
                        disk.last, disk.blocks, other_disk.blocks
                    )));
                }
            }
        }
        Ok(())
    }
}

/// As the group itself decides it; the replay of a mutated copy makes the same mistake.
fn marks(settings: &Settings, entry: &Entry) -> bool {
    #[cfg(feature = "mutations")]
    if settings.mutation == Some(coquina_replication::Mutation::ResurrectTrim) {
        return entry.kind != EntryKind::Trim;
    }
    let _ = settings;
    entry.range.count > 0
}
