//! The coordinator: the only one that changes who is in sync. A pure state machine: events in, actions out.
//!
//! Invariants:
//! - every change is a compare-and-set on one key, and no two changes need each other: a crash of the coordinator, a lost
//!   answer or a second coordinator leave nothing half-done. All decisions follow from the map and from heartbeats alone,
//!   so whoever is elected next goes on where this one was;
//! - a group's epoch grows by one with every change of its members, and a new one is made only from the group's newest
//!   record; several groups of one block change in one write;
//! - a member in sync was in sync before, or was proposed by the primary of the epoch before; the primary was in sync
//!   before; at least one member in sync stays. See [`decide`] for the rules, [`liveness`] for who counts as dead, [`plan`]
//!   for placement, pools and removals;
//! - a write rests on all that it was decided on and that others may change meanwhile: whoever stays in sync where others leave,
//!   the pool of groups that are made, the node with which a drive goes;
//! - changes are seen only as the store's revisions bring them: a write is not assumed, it is waited for;
//! - a store that went backwards halts the coordinator ([`Action::Halt`]).

mod decide;
mod dirty;
mod liveness;
mod message;
mod plan;
mod returning;

use std::collections::{BTreeMap, BTreeSet};

use coquina_base::{DriveId, NodeId};
use coquina_replication::GroupId;

pub use liveness::{Liveness, ShardLife};
pub use message::{
    Action, BlocksLeft, DriveCondition, DriveReport, Event, Heartbeat, NodeRequest, Proposal, ProposedChange,
    UNCHANGED_MAX, Write, WriteOutcome,
};
pub use returning::Stuck;

use crate::group::{BLOCK_GROUPS, GroupBlock, ShardRef};
use crate::key::{BlockId, Key, PoolId};
use crate::map::{Applied, MapError, MapView};
use crate::placement::PlacementError;
use crate::record::{PoolState, Record};
use decide::{Budget, Context};
use dirty::{Dirty, bit};
pub(crate) use plan::{add_drive, empty_job, takes_data};
use returning::Returning;

/// How the coordinator decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// A node is dead when it was silent for so long.
    pub node_dead_ns: u64,
    /// Copies on a drive that was dead for so long are made anew on other drives. One that is out and alive and has not got on
    /// for so long does not keep others from moving.
    pub drive_out_ns: u64,
    /// Moves are begun this often.
    pub move_interval_ns: u64,
    /// Most copies that move to a drive or from the primary on it at a time, but for those of groups that take no changes until
    /// they have another copy: of these so many begin from the primaries on a drive in each `move_interval_ns`.
    pub moves_per_drive_max: u32,
    /// Most primaries that change back to the preferred one in each `move_interval_ns`.
    pub switches_max: u32,
    /// A write whose outcome is not known is forgotten after so long.
    pub write_timeout_ns: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            node_dead_ns: 1_500_000_000,
            drive_out_ns: 600_000_000_000,
            move_interval_ns: 1_000_000_000,
            moves_per_drive_max: 4,
            switches_max: 64,
            write_timeout_ns: 2_000_000_000,
        }
    }
}

/// Blocks that are looked at in each [`Settings::move_interval_ns`] without a reason.
const SWEEP_BLOCKS: usize = 32;

/// A write that is under way.
#[derive(Clone, Debug)]
struct InFlight {
    expected_revision: u64,
    unchanged: Vec<(Key, u64)>,
    sent_ns: u64,
    /// Somebody else was first: nothing is written before the map shows it.
    conflict: bool,
}

impl InFlight {
    /// Whether the map shows why it conflicted: something on which it rested has changed.
    fn is_explained(&self, map: &MapView) -> bool {
        self.conflict && self.unchanged.iter().any(|(key, revision)| map.revision_of(key) != *revision)
    }
}

/// What nodes have seen and this map does not show. If a fresh read does not either, the store went backwards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Seen {
    revision: u64,
    epochs: BTreeMap<GroupId, u64>,
}

/// A read that was asked for, and what it has to show.
#[derive(Clone, Debug)]
struct ReadUnderWay {
    token: u64,
    asked_ns: u64,
    shows: Seen,
}

/// The coordinator. See the head of the module.
pub struct Coordinator {
    settings: Settings,
    map: MapView,
    liveness: Liveness,
    now_ns: u64,
    halted: Option<MapError>,
    in_flight: BTreeMap<Key, InFlight>,
    /// Groups to decide on.
    dirty: Dirty,
    /// The next block that is looked at without a reason.
    sweep_from: BlockId,
    /// Groups that are not as they are to be in the end.
    unsettled: BTreeSet<GroupId>,
    /// What primaries ask for, as their nodes said last.
    proposals: BTreeMap<GroupId, Vec<Proposal>>,
    /// The groups of which each node's last heartbeat had proposals.
    asked: BTreeMap<NodeId, Vec<GroupId>>,
    moves_begun_ns: u64,
    returning: Returning,
    /// Something of a pool's creation or removal has come true, and the next step need not wait.
    hurries: bool,
    seen: Seen,
    /// What was seen and has to show up in the map by itself, since when.
    awaited: Option<(Seen, u64)>,
    /// The read under way.
    read: Option<ReadUnderWay>,
    reads: u64,
    /// Nodes whose map is old: the revision that they are to reach, since when.
    lagging: BTreeMap<NodeId, (u64, u64)>,
    plan: plan::Plan,
}

impl Coordinator {
    /// A coordinator that was just elected, with the map as it read it then.
    pub fn new(settings: Settings, map: MapView, now_ns: u64) -> Coordinator {
        let mut liveness = Liveness::new(&settings, now_ns);
        liveness.follow(&map, now_ns);
        let unsettled = map.groups().filter(|group| is_unsettled(group)).map(|group| group.id).collect();
        let plan = plan::Plan::new(&map);
        Coordinator {
            settings,
            returning: Returning::new(&settings),
            liveness,
            now_ns,
            halted: None,
            in_flight: BTreeMap::new(),
            // Nobody is known to be alive or dead yet, so there is nothing to decide.
            dirty: Dirty::default(),
            sweep_from: BlockId(0),
            map,
            unsettled,
            proposals: BTreeMap::new(),
            asked: BTreeMap::new(),
            moves_begun_ns: now_ns,
            hurries: false,
            seen: Seen::default(),
            awaited: None,
            read: None,
            reads: 0,
            lagging: BTreeMap::new(),
            plan,
        }
    }

    /// Says that the coordinator before ran on that node, did not resign and does not answer. Its lease ran out, so it is
    /// silent since `since_ns` at the latest: when that lease could last have been renewed.
    pub fn predecessor_silent(&mut self, node: NodeId, since_ns: u64) {
        self.liveness.predecessor_silent(node, since_ns);
    }

    /// The map as it is known here.
    pub fn map(&self) -> &MapView {
        &self.map
    }

    /// Who is alive.
    pub fn liveness(&self) -> &Liveness {
        &self.liveness
    }

    /// Copies that are out and alive, and have not got on for too long.
    pub fn stuck(&self) -> Stuck {
        self.returning.stuck(&self.map, self.now_ns)
    }

    /// Why nothing is decided any more.
    pub fn halted(&self) -> Option<&MapError> {
        self.halted.as_ref()
    }

    /// Pools whose copies cannot be placed as they should, and why.
    pub fn placement_errors(&self) -> &BTreeMap<PoolId, PlacementError> {
        &self.plan.errors
    }

    /// Whether nothing is under way and nothing is left to decide, as far as is known.
    pub fn is_settled(&self) -> bool {
        self.unsettled.is_empty() && self.in_flight.is_empty() && self.plan.is_settled()
    }

    /// Takes an event and appends what is to be done. `now_ns` never falls (`CLOCK_BOOTTIME`).
    pub fn apply(&mut self, now_ns: u64, event: Event, actions: &mut Vec<Action>) {
        if self.halted.is_some() {
            return;
        }
        let asleep_ns = now_ns.saturating_sub(self.now_ns);
        self.now_ns = self.now_ns.max(now_ns);
        if asleep_ns >= self.settings.node_dead_ns / 2 {
            self.liveness.begin_anew(self.now_ns);
            self.returning = Returning::new(&self.settings);
        }
        let result = match event {
            Event::Tick => self.tick(actions),
            Event::Changed { revision, changes } => {
                self.map.apply(revision, changes).map(|applied| self.follow(&applied))
            }
            Event::Read { token, records, revision } => self.take_read(token, records, revision),
            Event::Heartbeat(heartbeat) => {
                self.hear(heartbeat, actions);
                Ok(())
            }
            Event::Written { key, outcome } => {
                self.written(key, outcome);
                Ok(())
            }
            Event::Placed { pool, result } => {
                let blocks = self.plan.placed(&self.map, pool, result);
                blocks.into_iter().for_each(|block| self.dirty.add_block(block));
                Ok(())
            }
        };
        match result {
            Ok(()) => self.write_dirty(None, actions),
            Err(error) => {
                self.halted = Some(error.clone());
                actions.clear();
                actions.push(Action::Halt(error));
            }
        }
    }

    fn tick(&mut self, actions: &mut Vec<Action>) -> Result<(), MapError> {
        let dead = self.liveness.judge(&self.map, self.now_ns);
        self.drives_changed(&dead);
        self.forget_old_writes(actions);
        self.ask_for_seen(actions);
        let due = self.now_ns.saturating_sub(self.moves_begun_ns) >= self.settings.move_interval_ns;
        if due || self.hurries {
            self.hurries = false;
            self.moves_begun_ns = self.now_ns;
            self.plan.tick(&self.map, &self.liveness, &self.settings, self.now_ns, actions);
            self.plan.blocks_to_make(&self.map).into_iter().for_each(|block| self.dirty.add_block(block));
            self.sweep();
            self.begin_moves(actions);
            self.housekeeping(actions);
        }
        Ok(())
    }

    /// Looks at some blocks in turn, whatever happened: what no event announced is found within minutes.
    fn sweep(&mut self) {
        let mut last = None;
        for block in self.map.blocks_from(self.sweep_from).take(SWEEP_BLOCKS) {
            self.dirty.add_block(block);
            last = Some(block);
        }
        self.sweep_from = last.map_or(BlockId(0), |last| BlockId(last.0.saturating_add(1)));
    }

    /// Brings what follows from the map up to a change of it.
    fn follow(&mut self, applied: &Applied) {
        let mut members_changed = false;
        let pool_pending = self.map.pools().any(|pool| pool.value.state != PoolState::Active);
        for key in &applied.keys {
            match key {
                Key::Groups(block) => {
                    self.dirty.add_block(*block);
                    self.hurries |= pool_pending;
                }
                Key::Node(_) | Key::Drive(_) => members_changed = true,
                Key::Pool(_) => self.hurries = true,
                Key::Volume(_) => self.hurries |= pool_pending,
                Key::Cluster => {}
            }
            self.release(*key);
        }
        for group in &applied.groups {
            let record = self.map.group(*group);
            if record.is_some_and(is_unsettled) {
                self.unsettled.insert(*group);
            } else {
                self.unsettled.remove(group);
            }
            let epoch = record.map(|record| record.epoch);
            if self.proposals.get(group).is_some_and(|list| list.iter().all(|one| Some(one.epoch) != epoch)) {
                self.proposals.remove(group);
            }
        }
        if members_changed {
            self.liveness.follow(&self.map, self.now_ns);
            for key in &applied.keys {
                if let Key::Drive(drive) = key {
                    self.drives_changed(&BTreeSet::from([*drive]));
                }
            }
        }
        self.plan.follow(&self.map, applied);
    }

    /// A write is over when the map shows a newer record.
    fn release(&mut self, key: Key) {
        let revision = self.map.revision_of(&key);
        if self.in_flight.get(&key).is_some_and(|write| write.expected_revision != revision) {
            self.in_flight.remove(&key);
        }
        let map = &self.map;
        let explained = self.in_flight.iter().filter(|(_, write)| write.is_explained(map));
        let explained: Vec<Key> = explained.map(|(key, _)| *key).collect();
        explained.into_iter().for_each(|key| self.forget_write(key));
    }

    fn take_read(
        &mut self,
        token: u64,
        records: Vec<(Key, u64, Record)>,
        revision: u64,
    ) -> Result<(), MapError> {
        let shows = match self.read.take_if(|read| read.token == token) {
            Some(read) => read.shows,
            None if token == 0 => Seen { revision: self.map.revision(), epochs: BTreeMap::new() },
            // The answer to a question that was given up.
            None => return Ok(()),
        };
        let went_back = |what: String, seen, now| Err(MapError::WentBack { what, seen, now });
        if revision < shows.revision {
            return went_back("its revision".to_owned(), shows.revision, revision);
        }
        // The watch may have been faster than the read.
        if revision >= self.map.revision() {
            let next = self.map.reload(records, revision)?;
            if revision > self.map.revision() {
                self.take_whole(next);
            }
        }
        for (group, epoch) in shows.epochs {
            if let Some(record) = self.map.group(group).filter(|record| record.epoch < epoch) {
                return went_back(format!("the epoch of group {}", group.0), epoch, record.epoch);
            }
        }
        Ok(())
    }

    /// Everything was read again: nothing is known of what happened in between.
    fn take_whole(&mut self, next: MapView) {
        self.map = next;
        self.liveness.follow(&self.map, self.now_ns);
        self.dirty = Dirty::all(&self.map);
        self.unsettled =
            self.map.groups().filter(|group| is_unsettled(group)).map(|group| group.id).collect();
        let keys: Vec<Key> = self.in_flight.keys().copied().collect();
        keys.into_iter().for_each(|key| self.release(key));
        self.proposals.clear();
        self.asked.clear();
        self.plan.begin_anew(&self.map);
    }

    fn hear(&mut self, heartbeat: Heartbeat, actions: &mut Vec<Action>) {
        let node = heartbeat.node;
        let tell = |request| Action::Tell { node, request };
        let Some(cluster) = self.map.cluster() else { return };
        if cluster.id != heartbeat.cluster {
            actions.push(tell(NodeRequest::OtherCluster { expected: cluster.id }));
            return;
        }
        if self.map.node(node).is_none() {
            // It may have registered a moment ago; if so, it says so again.
            actions.push(tell(NodeRequest::NotInMap));
            return;
        }
        self.seen.revision = self.seen.revision.max(heartbeat.map_revision);
        if self.lags(node, heartbeat.map_revision) {
            actions.push(tell(NodeRequest::ReadMap { revision: self.map.revision() }));
        }
        let changed = self.liveness.hear(&self.map, &heartbeat, self.now_ns);
        self.drives_changed(&changed);
        self.take_proposals(node, heartbeat.proposals);
        let returning = heartbeat.returning.filter(|all| all.iter().all(|left| left.shard.is_some()));
        if returning.is_none() {
            self.returning.heard_mute(node, self.now_ns);
        }
        for left in returning.into_iter().flatten() {
            let group = self.map.group(left.group).filter(|group| group.epoch == left.epoch);
            if let Some(group) = group.filter(|group| self.has_primary(node, group.id)) {
                self.returning.report(group, left, self.now_ns);
            }
        }
    }

    /// Whether a node has not reached for long what the map was then: its watch is lost. What others write to the store is
    /// nothing that it lacks: each read of everything would make the others look old, without end.
    fn lags(&mut self, node: NodeId, map_revision: u64) -> bool {
        if self.lagging.get(&node).is_some_and(|(target, _)| map_revision >= *target) {
            self.lagging.remove(&node);
        }
        if map_revision >= self.map.changed {
            return false;
        }
        let (_, since_ns) = self.lagging.entry(node).or_insert((self.map.changed, self.now_ns));
        let late = self.now_ns.saturating_sub(*since_ns) >= self.settings.node_dead_ns;
        if late {
            *since_ns = self.now_ns;
        }
        late
    }

    /// Notes what primaries on a node ask for, in place of what they asked for before: they may have taken that back. A
    /// heartbeat that comes late brings it back until the next one; what is decided by it is right all the same.
    fn take_proposals(&mut self, node: NodeId, proposals: Vec<Proposal>) {
        let groups = proposals.iter().map(|proposal| proposal.group).collect();
        for group in self.asked.insert(node, groups).unwrap_or_default() {
            // A primary elsewhere says itself what it wants.
            if self.has_primary(node, group) {
                self.proposals.remove(&group);
            }
        }
        proposals.into_iter().for_each(|proposal| self.take_proposal(node, proposal));
    }

    fn has_primary(&self, node: NodeId, group: GroupId) -> bool {
        let primary = self.map.group(group).and_then(|group| group.primary());
        primary.and_then(|shard| self.map.node_of(shard)) == Some(node)
    }

    /// Notes what the primary of a group asks for. What anybody else asks for is old.
    fn take_proposal(&mut self, node: NodeId, proposal: Proposal) {
        let Some(group) = self.map.group(proposal.group) else { return };
        if proposal.epoch > group.epoch {
            let seen = self.seen.epochs.entry(group.id).or_default();
            *seen = (*seen).max(proposal.epoch);
            return;
        }
        if proposal.epoch < group.epoch || !self.has_primary(node, proposal.group) {
            return;
        }
        let list = self.proposals.entry(group.id).or_default();
        if !list.contains(&proposal) {
            list.push(proposal);
        }
        self.dirty.add(group.id);
    }

    /// Other things are believed of drives now. What lives again concerns only groups that wait for something.
    fn drives_changed(&mut self, drives: &BTreeSet<DriveId>) {
        // Drives that were given up are dead by their records.
        let any_dead = !drives.is_empty() && self.liveness.any_dead(&self.map);
        for drive in drives {
            for (shard, groups) in self.map.used_shards_of(*drive) {
                let alive = self.liveness.shard(&self.map, shard) == ShardLife::Alive;
                for group in groups {
                    let waits = || self.unsettled.contains(group) || (any_dead && self.lacks_living(*group));
                    if !alive || waits() {
                        self.dirty.add(*group);
                    }
                }
            }
        }
        if !drives.is_empty() {
            self.plan.drives_changed(&self.map);
        }
    }

    /// Whether a member in sync is dead.
    fn lacks_living(&self, group: GroupId) -> bool {
        let dead = |shard: &ShardRef| self.liveness.shard(&self.map, *shard) == ShardLife::Dead;
        self.map.group(group).is_some_and(|group| group.in_sync.iter().any(dead))
    }

    fn written(&mut self, key: Key, outcome: WriteOutcome) {
        match outcome {
            // The watch brings it.
            WriteOutcome::Done => {}
            WriteOutcome::Conflict => {
                if let Some(write) = self.in_flight.get_mut(&key) {
                    write.conflict = true;
                }
                self.release(key);
            }
            WriteOutcome::Failed => self.forget_write(key),
        }
    }

    fn forget_write(&mut self, key: Key) {
        self.in_flight.remove(&key);
        if let Key::Groups(block) = key {
            self.dirty.add_block(block);
        }
    }

    /// Answers may be lost. Trying again is safe: the same revision is expected, so it takes effect once at most.
    fn forget_old_writes(&mut self, actions: &mut Vec<Action>) {
        let old: Vec<(Key, bool)> = self
            .in_flight
            .iter()
            .filter(|(_, write)| self.now_ns.saturating_sub(write.sent_ns) >= self.settings.write_timeout_ns)
            .map(|(key, write)| (*key, write.conflict))
            .collect();
        // A conflict that the watch does not explain: the watch may be lost.
        if old.iter().any(|(_, conflict)| *conflict) {
            self.read_all(actions);
        }
        old.into_iter().for_each(|(key, _)| self.forget_write(key));
    }

    /// Asks for a fresh read if nodes have seen what the map does not show after some time.
    fn ask_for_seen(&mut self, actions: &mut Vec<Action>) {
        let map = &self.map;
        let prune = |seen: &mut Seen| {
            seen.epochs.retain(|group, epoch| map.group(*group).is_some_and(|group| group.epoch < *epoch));
            seen.revision > map.revision() || !seen.epochs.is_empty()
        };
        if !self.awaited.as_mut().is_some_and(|(seen, _)| prune(seen)) {
            let mut seen = std::mem::take(&mut self.seen);
            self.awaited = prune(&mut seen).then_some((seen, self.now_ns));
        }
        let late = |since_ns: u64| self.now_ns.saturating_sub(since_ns) >= self.settings.node_dead_ns;
        if self.awaited.as_ref().is_some_and(|(_, since_ns)| late(*since_ns)) {
            self.read_all(actions);
        }
    }

    /// Asks for a read of everything, which has to show all that was seen so far.
    fn read_all(&mut self, actions: &mut Vec<Action>) {
        let lost = |read: &ReadUnderWay| {
            self.now_ns.saturating_sub(read.asked_ns) >= 4 * self.settings.write_timeout_ns
        };
        if self.read.as_ref().is_some_and(|read| !lost(read)) {
            return;
        }
        let mut shows = self.awaited.take().map(|(seen, _)| seen).unwrap_or_default();
        shows.revision = shows.revision.max(self.map.revision());
        self.reads += 1;
        self.read = Some(ReadUnderWay { token: self.reads, asked_ns: self.now_ns, shows });
        actions.push(Action::ReadAll { token: self.reads });
    }

    fn write(
        &mut self,
        key: Key,
        record: Option<Record>,
        unchanged: Vec<(Key, u64)>,
        actions: &mut Vec<Action>,
    ) {
        if self.in_flight.contains_key(&key) {
            return;
        }
        let expected_revision = self.map.revision_of(&key);
        let sent_ns = self.now_ns;
        let write = InFlight { expected_revision, unchanged: unchanged.clone(), sent_ns, conflict: false };
        self.in_flight.insert(key, write);
        actions.push(Action::Write(Write { unchanged, ..Write::new(key, expected_revision, record) }));
    }

    /// Decides on all blocks that may have to change and have no write under way.
    fn write_dirty(&mut self, mut budget: Option<&mut Budget>, actions: &mut Vec<Action>) {
        for (block, groups) in std::mem::take(&mut self.dirty).0 {
            let key = Key::Groups(block);
            if self.in_flight.contains_key(&key) {
                // Comes back when the write is over.
                continue;
            }
            if let Some((mut next, pool)) = self.next_block(block, groups, budget.as_deref_mut()) {
                let mut unchanged = drives_that_stay(&self.map, block, &mut next);
                // A write that was long on its way must not bring groups of a pool that is gone.
                unchanged.extend(pool.map(Key::Pool).map(|key| (key, self.map.revision_of(&key))));
                self.write(key, Some(Record::Groups(next)), unchanged, actions);
            }
        }
    }

    /// What a block is to become after decisions on some of its groups, and the pool that gets new ones there. `None`: as
    /// it is.
    fn next_block(
        &self,
        block: BlockId,
        groups: u64,
        mut budget: Option<&mut Budget>,
    ) -> Option<(GroupBlock, Option<PoolId>)> {
        let context = Context { map: &self.map, liveness: &self.liveness };
        let present = self.map.block(block);
        let made =
            self.plan.new_block(&self.map, &self.liveness, block, present.map(|present| &*present.value));
        let (mut next, pool) = made.unzip();
        let Some(present) = present else { return next.map(|next| (next, pool)) };
        for group in present.value.groups.iter().filter(|group| groups & bit(group.id) != 0) {
            let planned = self.plan.planned(group);
            let record = planned.as_ref().unwrap_or(group);
            let proposals = self.proposals.get(&group.id).map_or(&[][..], |list| list);
            let decided = context.decide(record, proposals, budget.as_deref_mut());
            if let Some(record) = decided.or(planned).filter(|record| record != group) {
                let groups = &mut next.get_or_insert_with(|| (*present.value).clone()).groups;
                if let Ok(index) = groups.binary_search_by_key(&record.id, |group| group.id) {
                    groups[index] = record;
                }
            }
        }
        next.map(|next| (next, pool))
    }

    /// Begins moves and gives primaries back, those of groups first that take no changes, then of those that lack copies.
    fn begin_moves(&mut self, actions: &mut Vec<Action>) {
        self.returning.watch(&self.map, &self.liveness, &self.unsettled, self.now_ns);
        let mut budget = Budget::new(&self.settings, self.settings.switches_max);
        let (mut refusing, mut degraded, mut others) = (Dirty::default(), Dirty::default(), Dirty::default());
        let context = Context { map: &self.map, liveness: &self.liveness };
        for group in self.unsettled.iter().filter_map(|group| self.map.group(*group)) {
            let lacks = group.in_sync.len() < group.intended().len();
            let due: &mut Dirty = match (context.refuses_changes(group), lacks) {
                (true, _) => &mut refusing,
                (false, true) => &mut degraded,
                (false, false) => &mut others,
            };
            due.add(group.id);
            let Some(primary) = group.primary() else { continue };
            // What does not get on takes no bandwidth, and could be there for ever.
            let gets_on =
                |shard: ShardRef| self.returning.stuck_ns(&self.map, group, shard, self.now_ns).is_none();
            for shard in group.others.iter().filter(|shard| context.is_alive(**shard) && gets_on(**shard)) {
                budget.count(primary, *shard);
            }
        }
        for groups in [refusing, degraded, others] {
            self.dirty.extend(groups);
            self.write_dirty(Some(&mut budget), actions);
        }
    }

    /// Creates and takes away what is due.
    fn housekeeping(&mut self, actions: &mut Vec<Action>) {
        let writes_groups = self.in_flight.keys().any(|key| matches!(key, Key::Groups(_)));
        let due =
            self.plan.due_records(&self.map, &self.liveness, &self.settings, self.now_ns, writes_groups);
        for (key, record, unchanged) in due {
            self.write(key, record, unchanged, actions);
        }
    }
}

/// The drives that stay in sync in groups of a block from which others are taken out, with their revisions: who stays must
/// not have been given up meanwhile. Groups for which there is no room left as they are until the block has been written.
fn drives_that_stay(map: &MapView, block: BlockId, next: &mut GroupBlock) -> Vec<(Key, u64)> {
    let Some(present) = map.block(block) else { return Vec::new() };
    let mut drives = BTreeSet::new();
    for group in &mut next.groups {
        let Some(before) = present.value.get(group.id) else { continue };
        if before.in_sync.iter().all(|shard| group.in_sync.contains(shard)) {
            continue;
        }
        let staying: BTreeSet<DriveId> = group.in_sync.iter().map(|shard| shard.drive).collect();
        if drives.union(&staying).count() > UNCHANGED_MAX {
            group.clone_from(before);
        } else {
            drives.extend(staying);
        }
    }
    drives.into_iter().map(|drive| (Key::Drive(drive), map.revision_of(&Key::Drive(drive)))).collect()
}

fn is_unsettled(group: &crate::group::GroupRecord) -> bool {
    !group.wanted.is_empty() || !group.others.is_empty()
}

/// The groups of a block that a pool has.
fn pool_groups_in(
    pool: &crate::record::PoolRecord,
    block: BlockId,
) -> impl Iterator<Item = GroupId> + use<'_> {
    let first = block.first();
    (first.0..first.0.saturating_add(BLOCK_GROUPS)).map(GroupId).filter(|group| pool.has_group(*group))
}
