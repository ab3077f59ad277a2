//! What each node does in the control plane: it follows the map, sends heartbeats, wants to lead, and leads.

use coquina_cluster::{
    Action, Coordinator, DriveCondition, DriveReport, Event as CoordinatorEvent, Heartbeat, MapView,
    NodeRequest, Proposal, WriteOutcome,
};
use coquina_store::{Attempt, Campaign, CampaignStep, Request, Response, Snapshot, StoreError, Watched};

use super::control::{
    CLUSTER, Control, ELECTION, Purpose, changes_of, drive_id, lease_ns, map_group, map_read, map_watch,
    node_id, records_of, transaction, wrong,
};
use super::node::copy_id;
use super::report::Rare;
use super::world::{Event, World};
use crate::violation::Violation;

const MS: u64 = 1_000_000;
/// Time between looks at what is due.
pub const SEAT_NS: u64 = 10 * MS;
/// Seconds of a candidate's lease, as the store counts them.
const LEASE_SECONDS: u64 = 2;
/// How long an answer of the store is waited for.
const PATIENCE_NS: u64 = 60 * MS;

impl World {
    fn sees_store(&self, node: usize) -> bool {
        self.nodes[node].sees_coordinator && self.now_ns >= self.coordinator.away_until_ns
    }

    fn ask(&mut self, node: usize, purpose: Purpose, request: Request) {
        let life = self.nodes[node].life;
        let delay_ns = self.random.between(50_000, 2 * MS);
        self.at(delay_ns, Event::StoreAsked { node, life, purpose, request: Box::new(request) });
    }

    /// A request arrives at the store, or never does.
    pub fn store_asked(
        &mut self,
        node: usize,
        life: u64,
        purpose: Purpose,
        request: &Request,
    ) -> Result<(), Violation> {
        let unreachable = || StoreError::Unreachable { doing: "ask", tried: Vec::new() };
        if !self.sees_store(node) || self.random.chance(1, 100) {
            let answer = Box::new(Err(unreachable()));
            self.at(PATIENCE_NS, Event::StoreAnswered { node, life, purpose, answer });
            return Ok(());
        }
        let now_ns = self.now_ns;
        let Some(control) = &mut self.control else { return Ok(()) };
        let answer = control.apply(now_ns, request);
        let is_change = matches!(request, Request::Transaction(_));
        if is_change && answer.is_ok() {
            self.store_changed()?;
        }
        if self.random.chance(1, 60) {
            let attempt = Attempt { endpoint: String::new(), reason: String::from("lost") };
            let lost = match is_change {
                true => StoreError::OutcomeUnknown { doing: "change", attempt },
                false => unreachable(),
            };
            self.report.saw(Rare::StoreAnswerLost);
            let answer = Box::new(Err(lost));
            self.at(PATIENCE_NS, Event::StoreAnswered { node, life, purpose, answer });
        } else {
            let delay_ns = self.random.between(50_000, 2 * MS);
            self.at(delay_ns, Event::StoreAnswered { node, life, purpose, answer: Box::new(answer) });
        }
        Ok(())
    }

    /// An answer of the store arrives at a process that still lives.
    pub fn store_answered(
        &mut self,
        node: usize,
        purpose: Purpose,
        answer: Result<Response, StoreError>,
    ) -> Result<(), Violation> {
        let now_ns = self.now_ns;
        let Some(control) = &mut self.control else { return Ok(()) };
        let seat = &mut control.seats[node];
        match purpose {
            Purpose::Map => {
                seat.is_reading = false;
                if let Ok(Response::Snapshot(snapshot)) = answer {
                    self.take_map(node, &snapshot, None)?;
                }
            }
            Purpose::Lease => {
                seat.is_granting = false;
                if let Ok(Response::Lease(lease)) = answer {
                    seat.lease = Some(lease.id);
                    seat.lease_until_ns = now_ns + lease_ns(lease.seconds);
                    seat.keep_ns = now_ns + lease_ns(lease.seconds) / 3;
                    let mut campaign = Campaign::new(ELECTION, vec![node as u8], lease.id);
                    let step = campaign.begin();
                    seat.campaign = Some(campaign);
                    self.campaign_step(node, step);
                }
            }
            Purpose::KeepAlive => match answer {
                Ok(Response::KeptAlive(seconds)) => {
                    // Counted from when it was asked for, or earlier.
                    seat.lease_until_ns = seat.lease_until_ns.max(seat.keep_ns + lease_ns(seconds) / 2);
                }
                Err(StoreError::LeaseLost { .. }) => seat.give_up(),
                _ => {}
            },
            Purpose::Campaign => {
                seat.is_campaigning = false;
                let Some(campaign) = &mut seat.campaign else { return Ok(()) };
                match campaign.answered(answer) {
                    Ok(step) => self.campaign_step(node, step),
                    Err(error) if error.is_passing() => {
                        let step = campaign.begin();
                        self.campaign_step(node, step);
                    }
                    Err(_) => seat.give_up(),
                }
            }
            Purpose::NewMap => match answer {
                Ok(Response::Snapshot(snapshot)) if seat.leadership.is_some() => {
                    self.begin_to_lead(node, &snapshot)?;
                }
                _ if seat.leadership.is_some() => self.ask(node, Purpose::NewMap, map_read()),
                _ => {}
            },
            Purpose::Write(key) => {
                let outcome = match &answer {
                    Ok(_) => WriteOutcome::Done,
                    Err(StoreError::Conflict { current, .. }) => {
                        let fence = seat.leadership.as_ref();
                        let leads = fence.is_some_and(|one| {
                            let own = current.iter().find(|item| item.key == one.key);
                            own.is_some_and(|item| item.create_revision == one.create_revision)
                        });
                        if !leads {
                            seat.give_up();
                            self.report.saw(Rare::Deposed);
                            return Ok(());
                        }
                        WriteOutcome::Conflict
                    }
                    Err(_) => WriteOutcome::Failed,
                };
                self.coordinate(node, CoordinatorEvent::Written { key, outcome })?;
            }
            Purpose::Read(token) => {
                if let Ok(Response::Snapshot(snapshot)) = answer {
                    self.take_map(node, &snapshot, Some(token))?;
                }
            }
        }
        Ok(())
    }

    fn campaign_step(&mut self, node: usize, step: CampaignStep) {
        match step {
            CampaignStep::Ask(request) => {
                if let Some(control) = &mut self.control {
                    control.seats[node].is_campaigning = true;
                }
                self.ask(node, Purpose::Campaign, request);
            }
            CampaignStep::Watch { prefix, from_revision } => {
                let Some(control) = &mut self.control else { return };
                control.seats[node].election = control.store.watch(&prefix, from_revision).ok();
            }
            CampaignStep::Leads(leadership) => {
                if let Some(control) = &mut self.control {
                    control.seats[node].leadership = Some(leadership);
                }
                self.ask(node, Purpose::NewMap, map_read());
            }
        }
    }

    fn begin_to_lead(&mut self, node: usize, snapshot: &Snapshot) -> Result<(), Violation> {
        let map = MapView::load(records_of(snapshot)?, snapshot.revision).map_err(wrong)?;
        let now_ns = self.nodes[node].clock_ns(self.now_ns);
        self.report.saw(Rare::NewLeader);
        self.say(|| format!("node {node} leads"));
        let Some(control) = &mut self.control else { return Ok(()) };
        control.seats[node].coordinator = Some(Box::new(Coordinator::new(control.settings, map, now_ns)));
        self.take_map(node, snapshot, None)
    }

    /// A node has read all of the map.
    fn take_map(&mut self, node: usize, snapshot: &Snapshot, token: Option<u64>) -> Result<(), Violation> {
        let records = records_of(snapshot)?;
        let Some(control) = &mut self.control else { return Ok(()) };
        let seat = &mut control.seats[node];
        if snapshot.revision >= seat.map.revision() {
            seat.map = match seat.map.cluster() {
                Some(_) => seat.map.reload(records.clone(), snapshot.revision).map_err(wrong)?,
                None => MapView::load(records.clone(), snapshot.revision).map_err(wrong)?,
            };
        }
        if let Some(watch) = seat.watch.take() {
            control.store.lose_watch(watch);
        }
        seat.watch = map_watch(&mut control.store, seat.map.revision() + 1);
        let revision = snapshot.revision;
        // A read that nobody asked for may be older than what the watch has told meanwhile.
        let known = seat.coordinator.as_ref().map_or(0, |coordinator| coordinator.map().revision());
        if token.is_none() && revision < known {
            return self.follow_map(node);
        }
        self.coordinate(node, CoordinatorEvent::Read { token: token.unwrap_or(0), records, revision })?;
        self.follow_map(node)
    }

    /// A node hears of changes of the map after a while.
    pub fn map_step_later(&mut self, node: usize) {
        if self.nodes[node].up {
            let life = self.nodes[node].life;
            let most_ns = if self.random.chance(1, 8) { 50 * MS } else { 2 * MS };
            let delay_ns = self.random.between(50_000, most_ns);
            self.at(delay_ns, Event::MapStep { node, life });
        }
    }

    /// A node takes what its watch tells.
    pub fn map_step(&mut self, node: usize) -> Result<(), Violation> {
        if !self.sees_store(node) {
            return Ok(());
        }
        let loses = self.random.chance(1, 400);
        let Some(control) = &mut self.control else { return Ok(()) };
        let Some(watch) = control.seats[node].watch else { return Ok(()) };
        if loses {
            // Without a word.
            control.store.lose_watch(watch);
            self.report.saw(Rare::WatchLost);
            return Ok(());
        }
        let mut told = Vec::new();
        while let Some(watched) = control.store.watch_next(watch) {
            told.push(watched);
        }
        if told.is_empty() {
            return Ok(());
        }
        for watched in told {
            let Some(control) = &mut self.control else { return Ok(()) };
            match watched {
                Watched::Revision(revision) => {
                    let changes = changes_of(&revision)?;
                    let revision = revision.revision;
                    control.seats[node].map.apply(revision, changes.clone()).map_err(wrong)?;
                    self.coordinate(node, CoordinatorEvent::Changed { revision, changes })?;
                }
                Watched::Reset { .. } => control.seats[node].watch = None,
            }
        }
        self.follow_map(node)
    }

    /// The copies of a node learn their configurations.
    pub fn follow_map(&mut self, node: usize) -> Result<(), Violation> {
        let settings = self.plan.settings;
        for group in 1..=self.plan.groups {
            let map = self.control.as_ref().map(|control| &control.seats[node].map);
            let Some(config) = map.and_then(|map| Control::config_in(map, group)) else { continue };
            for copy in self.copies_of(node) {
                let known = self.hosts[copy].copies.as_ref().map(|copies| copies.group(group).is_some());
                let is_member = config.is_in_sync(copy_id(copy)) || config.is_out(copy_id(copy));
                let config = config.clone();
                match known {
                    Some(true) => {
                        self.with_copy(copy, |copies, now_ns, out| copies.config(now_ns, group, config, out))?
                    }
                    Some(false) if is_member => {
                        self.with_copy(copy, |copies, _, out| {
                            // Opened when that is over: see `sweep.rs`.
                            if !copies.is_forgetting(group) {
                                copies.open_group(group, settings, config, out);
                            }
                        })?;
                        let is_open =
                            self.hosts[copy].copies.as_ref().is_some_and(|one| one.group(group).is_some());
                        let has_returned = is_open && self.hosts[copy].has_forgotten.remove(&group);
                        self.report.groups_returned += u64::from(has_returned);
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Hands a coordinator an event and does what it wants.
    fn coordinate(&mut self, node: usize, event: CoordinatorEvent) -> Result<(), Violation> {
        let now_ns = self.nodes[node].clock_ns(self.now_ns);
        let Some(control) = &mut self.control else { return Ok(()) };
        let seat = &mut control.seats[node];
        let Some(coordinator) = &mut seat.coordinator else { return Ok(()) };
        let mut actions = Vec::new();
        coordinator.apply(now_ns, event, &mut actions);
        let leadership = seat.leadership.clone();
        for action in actions {
            match action {
                Action::Write(write) => {
                    let request = Request::Transaction(transaction(&write, leadership.as_ref()));
                    self.ask(node, Purpose::Write(write.key), request);
                }
                Action::Place(job) => {
                    let placed = CoordinatorEvent::Placed { pool: job.pool, result: job.place() };
                    self.coordinate(node, placed)?;
                }
                Action::ReadAll { token } => self.ask(node, Purpose::Read(token), map_read()),
                Action::Tell { node: told, request: NodeRequest::ReadMap { .. } } => {
                    let told = (0..self.plan.nodes).find(|node| node_id(*node) == told);
                    if let Some(told) = told.filter(|told| self.reaches(node, *told)) {
                        self.read_map(told);
                    }
                }
                Action::Tell { .. } => {}
                Action::Halt(error) => return Err(wrong(error)),
            }
        }
        Ok(())
    }

    fn reaches(&self, from: usize, to: usize) -> bool {
        from == to || self.blocked[from][to] == 0
    }

    fn read_map(&mut self, node: usize) {
        let Some(control) = &mut self.control else { return };
        if self.nodes[node].up && !std::mem::replace(&mut control.seats[node].is_reading, true) {
            self.ask(node, Purpose::Map, map_read());
        }
    }

    /// What is due in a node.
    pub fn seat_tick(&mut self, node: usize, life: u64) -> Result<(), Violation> {
        self.at(SEAT_NS, Event::SeatTick { node, life });
        let (now_ns, sees_store) = (self.now_ns, self.sees_store(node));
        let (looks, expires) = (self.random.chance(1, 100), self.random.chance(1, 2));
        // The clock of a process that was held up says it late; the fence is what counts.
        let gives_up = self.random.chance(1, 100);
        let Some(control) = &mut self.control else { return Ok(()) };
        if expires && now_ns >= self.coordinator.away_until_ns {
            control.expire(now_ns);
        }
        let seat = &mut control.seats[node];
        if seat.watch.is_none() || looks {
            self.read_map(node);
        }
        self.map_step(node)?;
        let Some(control) = &mut self.control else { return Ok(()) };
        let seat = &mut control.seats[node];
        match seat.lease {
            None if !std::mem::replace(&mut seat.is_granting, true) => {
                self.ask(node, Purpose::Lease, Request::LeaseGrant { seconds: LEASE_SECONDS });
            }
            None => {}
            Some(_) if now_ns >= seat.lease_until_ns && gives_up => seat.give_up(),
            Some(lease) if now_ns >= seat.keep_ns => {
                seat.keep_ns = now_ns + lease_ns(LEASE_SECONDS) / 4;
                self.ask(node, Purpose::KeepAlive, Request::LeaseKeepAlive { lease });
            }
            Some(_) => {}
        }
        if sees_store {
            self.watch_election(node)?;
        }
        self.coordinate(node, CoordinatorEvent::Tick)
    }

    /// A candidate looks whether the one before it is gone.
    fn watch_election(&mut self, node: usize) -> Result<(), Violation> {
        let Some(control) = &mut self.control else { return Ok(()) };
        let seat = &mut control.seats[node];
        let (Some(campaign), Some(watch)) = (&mut seat.campaign, seat.election) else { return Ok(()) };
        while let Some(watched) = control.store.watch_next(watch) {
            match campaign.watched(&watched) {
                Ok(None) => {}
                Ok(Some(step)) => {
                    seat.election = None;
                    self.campaign_step(node, step);
                    return Ok(());
                }
                Err(_) => {
                    seat.give_up();
                    return Ok(());
                }
            }
        }
        if !control.store.is_watched(watch) && !seat.is_campaigning {
            let step = campaign.begin();
            seat.election = None;
            self.campaign_step(node, step);
        }
        Ok(())
    }

    /// A node tells the leader how it is.
    pub fn send_heartbeat(&mut self, node: usize) {
        if !self.nodes[node].up || !self.nodes[node].sees_coordinator {
            return;
        }
        let reaches_store = self.sees_store(node);
        let Some(control) = &mut self.control else { return };
        // Who does not reach the store goes on with the leader that it knows, which is seldom another one.
        let leader = control.leader().filter(|_| reaches_store || node % 2 == 0);
        let map = control.seats[node].map.clone();
        let Some(leader) = leader.filter(|leader| self.reaches(node, *leader)) else { return };
        let mut drives = Vec::new();
        let mut proposals = Vec::new();
        for copy in self.copies_of(node) {
            let host = &self.hosts[copy];
            let Some(copies) = host.copies.as_ref() else { continue };
            let condition = match copies.shard().stats().poisoned {
                true => DriveCondition::ReadOnly,
                false => DriveCondition::Serving,
            };
            let now_ns = self.nodes[node].clock_ns(self.now_ns);
            let hangs = |hung_ns| copies.shard().is_hung(now_ns.saturating_sub(hung_ns));
            let hung = self.plan.hung_ns.is_some_and(hangs);
            drives.push(DriveReport { drive: drive_id(copy), condition, hung });
            for (group, config) in &host.proposals {
                proposals.extend(Proposal::of_config(&map, map_group(*group), config));
            }
        }
        let map_revision = map.revision();
        let heartbeat = Heartbeat {
            node: node_id(node),
            cluster: CLUSTER,
            map_revision,
            stopping: false,
            drives,
            proposals,
            returning: Some(Vec::new()),
        };
        for _ in 0..if self.random.chance(1, 50) { 2 } else { 1 } {
            if !self.random.chance(1, 50) {
                let delay_ns = self.random.between(50_000, 2 * MS);
                self.at(delay_ns, Event::Beat { to: leader, heartbeat: Box::new(heartbeat.clone()) });
            }
        }
    }

    /// A heartbeat arrives.
    pub fn heartbeat_arrives(&mut self, to: usize, heartbeat: Heartbeat) -> Result<(), Violation> {
        if !self.nodes[to].up {
            return Ok(());
        }
        self.coordinate(to, CoordinatorEvent::Heartbeat(heartbeat))
    }
}
