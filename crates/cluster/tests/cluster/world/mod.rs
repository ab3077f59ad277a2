//! A cluster of models around real coordinators: a store, nodes that send heartbeats and bring copies up, and faults.
//!
//! The store checks every change of a group against the truth: who really has every committed change.

#![allow(dead_code, clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use coquina_base::{ClusterId, DriveId, Id128, NodeId, VolumeId};
use coquina_cluster::operation::{self, OperationError};
use coquina_cluster::{
    Action, BlockId, BlocksLeft, Coordinator, DriveCondition, DriveRecord, DriveReport, DriveState, Event,
    GroupId, GroupRecord, Heartbeat, Key, MapView, NodeAddresses, NodeRecord, PoolRecord, PoolState,
    Proposal, ProposedChange, Record, Settings, ShardRef, Striping, VersionRange, VolumeRecord, VolumeState,
    Wanted, Write, WriteOutcome, mix,
};

pub const MILLISECOND_NS: u64 = 1_000_000;
pub const CLUSTER: ClusterId = ClusterId(Id128([7; 16]));

pub fn settings() -> Settings {
    Settings {
        drive_out_ns: 20_000 * MILLISECOND_NS,
        move_interval_ns: 500 * MILLISECOND_NS,
        ..Settings::default()
    }
}

/// Random numbers from a seed.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(1);
        mix(self.0) % bound.max(1)
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

pub fn node_id(number: u64) -> NodeId {
    NodeId(Id128((u128::from(number) + 1).to_be_bytes()))
}

pub fn drive_id(number: u64) -> DriveId {
    DriveId(Id128((u128::from(number) + (1 << 64)).to_be_bytes()))
}

/// How things go wrong, in percent.
#[derive(Clone, Copy, Default)]
pub struct Faults {
    pub heartbeat_lost: u64,
    pub heartbeat_twice: u64,
    pub write_lost: u64,
    pub answer_lost: u64,
    pub conflict: u64,
    pub watch_delayed: u64,
    pub watch_twice: u64,
    pub watch_lost: u64,
    pub placement_lost: u64,
}

impl Faults {
    pub const MANY: Faults = Faults {
        heartbeat_lost: 10,
        heartbeat_twice: 10,
        write_lost: 10,
        answer_lost: 10,
        conflict: 10,
        watch_delayed: 40,
        watch_twice: 10,
        watch_lost: 1,
        placement_lost: 10,
    };
}

#[derive(Clone, Debug)]
pub struct Node {
    pub up: bool,
    pub reachable: bool,
    pub conditions: BTreeMap<DriveId, DriveCondition>,
    pub stopping: bool,
}

/// A revision of the store and its changes.
pub type Revision = (u64, Vec<(Key, Option<Record>)>);

/// A coordinator with its place in the watch and what it has asked for.
pub struct Seat {
    pub coordinator: Coordinator,
    /// Index into the store's history of the next revision to hand in.
    position: usize,
    writes: VecDeque<Write>,
    jobs: VecDeque<Box<coquina_cluster::PlacementJob>>,
    reads: VecDeque<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub changes: u64,
    pub promotions: u64,
    pub removals: u64,
    pub additions: u64,
    pub conflicts: u64,
    pub moves: u64,
    pub down: u64,
    pub coordinators: u64,
    pub reloads: u64,
}

pub struct World {
    pub random: Random,
    pub faults: Faults,
    pub now_ns: u64,
    pub store: MapView,
    pub history: Vec<Revision>,
    pub nodes: BTreeMap<NodeId, Node>,
    pub seats: Vec<Seat>,
    /// Changes committed per group.
    committed: BTreeMap<GroupId, u64>,
    /// Changes that a copy has.
    has: BTreeMap<(GroupId, ShardRef), u64>,
    /// Copies without which nothing is committed, since their addition was proposed at that epoch.
    joining: BTreeMap<GroupId, (u64, ShardRef)>,
    pub counts: Counts,
    /// Whether primaries propose to remove backups.
    pub suspects: bool,
    /// Drives that answer nothing, as their nodes say.
    pub hung: BTreeSet<DriveId>,
    /// Drives that are said to hang though they answer again.
    pub said_to_hang: BTreeSet<DriveId>,
    /// Primaries on the first of two drives have copies on the second removed, and never get them up.
    pub apart: BTreeSet<(DriveId, DriveId)>,
    /// No copy is brought up to its end.
    pub slow: bool,
    /// What each primary says that is left for each copy that is out and that it reaches.
    pub blocks_left: Option<u64>,
    /// Nodes with an older program, that does not say it.
    pub mute: BTreeSet<NodeId>,
    /// Of pools that are made.
    pub min_copies: u32,
    /// Heartbeats that come again much later.
    late: Vec<Heartbeat>,
    next_drive: u64,
}

impl World {
    /// A volume's record in the pool `pool`, with a layer of its own; nothing is stored of it but the layer.
    pub fn volume(&mut self, number: u8, name: &str) -> VolumeRecord {
        let (layer, claim) = operation::claim_layer(&self.store, 0).unwrap();
        assert!(self.write(claim));
        VolumeRecord {
            id: VolumeId(Id128([number; 16])),
            name: name.to_owned(),
            size_bytes: 1 << 30,
            layer,
            created_unix_ns: 1,
            state: VolumeState::Active,
            attach_generation: 1,
            shrinking_from_bytes: None,
            size_max_bytes: None,
            pool: self.store.pool_by_name("pool").unwrap().id,
            family: layer.0,
            stripe_unit_bytes: Striping::PLAIN.stripe_unit_bytes,
            stripe_count: 1,
        }
    }

    pub fn new(seed: u64) -> World {
        let mut world = World {
            random: Random(seed << 24),
            faults: Faults::default(),
            now_ns: 1_000_000 * MILLISECOND_NS,
            store: MapView::default(),
            history: Vec::new(),
            nodes: BTreeMap::new(),
            seats: Vec::new(),
            committed: BTreeMap::new(),
            has: BTreeMap::new(),
            joining: BTreeMap::new(),
            counts: Counts::default(),
            suspects: true,
            hung: BTreeSet::new(),
            said_to_hang: BTreeSet::new(),
            apart: BTreeSet::new(),
            slow: false,
            blocks_left: None,
            mute: BTreeSet::new(),
            min_copies: 1,
            late: Vec::new(),
            next_drive: 0,
        };
        assert!(world.write(operation::create_cluster(CLUSTER)));
        world
    }

    pub fn add_node(&mut self, number: u64, rack: u64, drives: u64) {
        let id = node_id(number);
        let node = NodeRecord {
            id,
            name: format!("node-{number}"),
            addresses: NodeAddresses::default(),
            domains: BTreeMap::from([("rack".to_owned(), format!("rack-{rack}"))]),
            versions: VersionRange { min: 1, max: 2 },
            wanted: Wanted::In,
        };
        let write = operation::register_node(&self.store, Some(CLUSTER), &node).unwrap().unwrap();
        assert!(self.write(write));
        self.nodes
            .insert(id, Node { up: true, reachable: true, conditions: BTreeMap::new(), stopping: false });
        (0..drives).for_each(|_| self.add_drive(id));
    }

    pub fn add_drive(&mut self, node: NodeId) {
        let shards = 1 + self.random.below(2) as u32;
        let (copy_first, claim) = operation::claim_copies(&self.store, shards, 0).unwrap();
        assert!(self.write(claim));
        let id = drive_id(self.next_drive);
        self.next_drive += 1;
        let weight = 100 * (1 + self.random.below(3));
        let drive = DriveRecord {
            id,
            node,
            path: format!("/dev/{}", self.next_drive),
            size_bytes: 1 << 40,
            capacity_bytes: 1 << 39,
            shards,
            weight,
            copy_first,
            state: DriveState::Healthy,
            wanted: Wanted::In,
            dead_ms: 0,
        };
        let write = operation::register_drive(&self.store, &drive).unwrap().unwrap();
        assert!(self.write(write));
        self.nodes.get_mut(&node).unwrap().conditions.insert(id, DriveCondition::Serving);
    }

    pub fn add_pool(
        &mut self,
        name: &str,
        copies: u32,
        domain: &str,
        group_count: u32,
    ) -> Result<(), OperationError> {
        let (id, group_first, claim) = operation::claim_pool(&self.store, false)?;
        let pool = PoolRecord {
            id,
            name: name.to_owned(),
            copies,
            min_copies: self.min_copies,
            domain: domain.to_owned(),
            group_first,
            group_count,
            state: PoolState::Creating,
        };
        let write = operation::create_pool(&self.store, &pool);
        assert!(self.write(claim));
        // The claim has moved the cluster's record only.
        let write = write?.unwrap();
        assert!(self.write(write));
        Ok(())
    }

    pub fn elect(&mut self) {
        self.counts.coordinators += 1;
        let coordinator = Coordinator::new(settings(), self.store.clone(), self.now_ns);
        let position = self.history.len();
        self.seats.push(Seat {
            coordinator,
            position,
            writes: VecDeque::new(),
            jobs: VecDeque::new(),
            reads: VecDeque::new(),
        });
    }

    /// A compare-and-set. Checks what it does to groups.
    pub fn write(&mut self, write: Write) -> bool {
        if !write.holds_on(&self.store) {
            self.counts.conflicts += 1;
            return false;
        }
        if let Key::Groups(block) = write.key {
            let after = match &write.record {
                Some(Record::Groups(after)) => after.groups.clone(),
                _ => Vec::new(),
            };
            self.check_block(block, &after);
        }
        // As it is kept and read back.
        let record = write.record.map(|record| Record::decode(&write.key, &record.encode()).unwrap());
        let revision = self.store.revision() + 1;
        let changes = vec![(write.key, record)];
        self.store.apply(revision, changes.clone()).unwrap();
        self.history.push((revision, changes));
        true
    }

    fn check_block(&mut self, block: BlockId, after: &[GroupRecord]) {
        let before: BTreeMap<GroupId, GroupRecord> = self
            .store
            .block(block)
            .map(|block| block.value.groups.iter().map(|group| (group.id, group.clone())).collect())
            .unwrap_or_default();
        for group in after {
            match before.get(&group.id) {
                Some(before) => self.check_change(before, group),
                None => {
                    assert_eq!(group.epoch, 1);
                    self.check_domains(group, &group.in_sync);
                    self.committed.insert(group.id, 0);
                    self.has.extend(group.in_sync.iter().map(|shard| ((group.id, *shard), 0)));
                }
            }
        }
    }

    fn check_change(&mut self, before: &GroupRecord, after: &GroupRecord) {
        if before == after {
            return;
        }
        self.counts.changes += 1;
        if after.wanted != before.wanted && !after.wanted.is_empty() && before.in_sync == after.in_sync {
            self.check_domains(after, &after.wanted);
        }
        if before.in_sync == after.in_sync && before.others == after.others {
            assert_eq!(before.epoch, after.epoch, "an epoch without a change of members");
            return;
        }
        assert_eq!(after.epoch, before.epoch + 1, "epochs grow by one");
        let stays = |shard: &ShardRef| before.in_sync.contains(shard);
        assert!(after.in_sync.iter().any(stays), "no copy in sync stays: {before:?} {after:?}");
        assert!(stays(&after.in_sync[0]), "the primary was not in sync: {before:?} {after:?}");
        let committed = self.committed[&before.id];
        for shard in &after.in_sync {
            let has = self.has.get(&(before.id, *shard)).copied();
            assert_eq!(has, Some(committed), "{shard} is not in sync: {before:?} {after:?}");
        }
        let dropped = before.in_sync.iter().any(|shard| !after.is_member(*shard));
        let enough = after.in_sync.len() >= before.wanted.len();
        assert!(!dropped || enough, "a move has lowered the number of good copies: {before:?} {after:?}");
        self.counts.promotions += u64::from(before.in_sync[0] != after.in_sync[0]);
        self.counts.removals += u64::from(before.in_sync.iter().any(|shard| after.others.contains(shard)));
        self.counts.additions += u64::from(before.others.iter().any(|shard| after.in_sync.contains(shard)));
        self.counts.moves += u64::from(after.others.iter().any(|shard| !before.is_member(*shard)));
        self.joining.remove(&before.id);
        let members: BTreeSet<ShardRef> = after.members().collect();
        for shard in before.members().filter(|shard| !members.contains(shard)) {
            self.has.remove(&(before.id, shard));
        }
    }

    fn check_domains(&self, group: &GroupRecord, shards: &[ShardRef]) {
        let pool = self.store.pool(group.pool).unwrap();
        assert_eq!(shards.len(), pool.copies as usize);
        let known = shards.iter().filter_map(|shard| self.store.drive(shard.drive));
        let domains: Vec<_> = known.map(|drive| self.store.domain_of(drive, &pool.domain).unwrap()).collect();
        let different: BTreeSet<_> = domains.iter().collect();
        assert_eq!(different.len(), domains.len(), "two copies in a domain: {group:?}");
    }

    pub fn serves(&self, shard: ShardRef) -> bool {
        let Some(drive) = self.store.drive(shard.drive) else { return false };
        if drive.state == DriveState::GivenUp {
            return false;
        }
        self.nodes.get(&drive.node).is_some_and(|node| {
            node.up
                && node.conditions.get(&shard.drive) == Some(&DriveCondition::Serving)
                && !self.hung.contains(&shard.drive)
        })
    }

    /// Time passes: clients write, primaries bring copies up and propose, coordinators hear and act.
    pub fn step(&mut self) {
        self.now_ns += (50 + self.random.below(150)) * MILLISECOND_NS;
        let proposals = self.run_groups();
        for seat in 0..self.seats.len() {
            self.deliver_heartbeats(seat, &proposals);
            self.deliver_watch(seat);
            self.apply(seat, Event::Tick);
            self.run_actions(seat);
        }
    }

    fn run_groups(&mut self) -> BTreeMap<NodeId, Vec<Proposal>> {
        let mut proposals: BTreeMap<NodeId, Vec<Proposal>> = BTreeMap::new();
        let groups: Vec<GroupRecord> = self.store.groups().cloned().collect();
        for group in groups {
            let primary = group.in_sync[0];
            if !self.serves(primary) {
                continue;
            }
            let node = self.store.node_of(primary).unwrap();
            self.commit(&group);
            let silent = group.in_sync.iter().copied().find(|shard| !self.serves(*shard));
            // Or the primary has halted and asks to be replaced.
            let place = if self.random.below(2000) == 0 { Some(self.random.below(2) as usize) } else { None };
            let spurious = place.and_then(|place| group.in_sync.get(place).copied());
            let suspect = silent.filter(|_| self.random.chance(30)).or(spurious);
            let mut propose = |change| {
                let proposal = Proposal { group: group.id, epoch: group.epoch, change };
                proposals.entry(node).or_default().push(proposal);
            };
            let is_apart = |shard: &ShardRef| self.apart.contains(&(primary.drive, shard.drive));
            let apart = group.in_sync.iter().copied().find(is_apart);
            if let Some(shard) = suspect.filter(|_| self.suspects).or(apart) {
                propose(ProposedChange::Remove(shard));
            }
            let joining = self.joining.get(&group.id).filter(|(epoch, _)| *epoch == group.epoch);
            if let Some((_, shard)) = joining {
                propose(ProposedChange::Add(*shard));
            } else if let Some(shard) = self.any_returning(primary, &group.others)
                && self.random.chance(30)
            {
                // Brought up: from now on nothing is committed without it, until the epoch ends.
                self.has.insert((group.id, shard), self.committed[&group.id]);
                self.joining.insert(group.id, (group.epoch, shard));
                propose(ProposedChange::Add(shard));
            }
        }
        proposals
    }

    /// One of those that are out that could be brought up.
    fn any_returning(&mut self, primary: ShardRef, others: &[ShardRef]) -> Option<ShardRef> {
        let returns = |shard: &ShardRef| {
            self.serves(*shard) && !self.slow && !self.apart.contains(&(primary.drive, shard.drive))
        };
        let returning: Vec<ShardRef> = others.iter().copied().filter(returns).collect();
        let index = self.random.below(returning.len() as u64) as usize;
        returning.get(index).copied()
    }

    /// What the primaries on a node say of the copies that they bring up.
    fn blocks_left(&self, node: NodeId) -> Option<Vec<BlocksLeft>> {
        if self.mute.contains(&node) {
            return None;
        }
        let mut all = Vec::new();
        for group in self.store.groups().filter(|group| self.store.node_of(group.in_sync[0]) == Some(node)) {
            let is_reached = |shard: &&ShardRef| {
                self.serves(**shard) && !self.apart.contains(&(group.in_sync[0].drive, shard.drive))
            };
            for shard in group.others.iter().filter(is_reached) {
                let left =
                    |blocks| BlocksLeft { group: group.id, epoch: group.epoch, shard: Some(*shard), blocks };
                all.extend(self.blocks_left.map(left));
            }
        }
        Some(all)
    }

    /// Clients write, if all copies in sync and the one that is joining can take it.
    fn commit(&mut self, group: &GroupRecord) {
        let joining = self.joining.get(&group.id).filter(|(epoch, _)| *epoch == group.epoch);
        let takers: Vec<ShardRef> =
            group.in_sync.iter().copied().chain(joining.map(|(_, shard)| *shard)).collect();
        if takers.iter().all(|shard| self.serves(*shard)) {
            let committed = self.committed.get_mut(&group.id).unwrap();
            *committed += 1;
            self.has.extend(takers.iter().map(|shard| ((group.id, *shard), *committed)));
        }
    }

    fn deliver_heartbeats(&mut self, seat: usize, proposals: &BTreeMap<NodeId, Vec<Proposal>>) {
        let nodes: Vec<(NodeId, Node)> = self.nodes.iter().map(|(id, node)| (*id, node.clone())).collect();
        for (id, node) in nodes {
            let sends = (node.up || node.stopping) && node.reachable;
            if !sends || self.random.chance(self.faults.heartbeat_lost) {
                continue;
            }
            let report = |(drive, condition): (&DriveId, &DriveCondition)| DriveReport {
                drive: *drive,
                condition: *condition,
                hung: self.hung.contains(drive) || self.said_to_hang.contains(drive),
            };
            let heartbeat = Heartbeat {
                node: id,
                cluster: CLUSTER,
                map_revision: self.store.revision(),
                stopping: node.stopping,
                drives: node.conditions.iter().map(report).collect(),
                proposals: proposals.get(&id).cloned().unwrap_or_default(),
                returning: self.blocks_left(id),
            };
            if self.random.chance(self.faults.heartbeat_twice) {
                self.apply(seat, Event::Heartbeat(heartbeat.clone()));
                self.late.push(heartbeat.clone());
            }
            if self.random.chance(self.faults.heartbeat_twice) && !self.late.is_empty() {
                let index = self.random.below(self.late.len() as u64) as usize;
                let late = self.late.swap_remove(index);
                self.apply(seat, Event::Heartbeat(late));
            }
            self.apply(seat, Event::Heartbeat(heartbeat));
        }
    }

    fn deliver_watch(&mut self, seat: usize) {
        if self.random.chance(self.faults.watch_lost) {
            // The watch broke and its revisions are gone: all is read again.
            self.read(seat, 0);
            return;
        }
        while self.seats[seat].position < self.history.len() {
            if self.random.chance(self.faults.watch_delayed) {
                return;
            }
            let (revision, changes) = self.history[self.seats[seat].position].clone();
            if self.random.chance(self.faults.watch_twice) {
                self.apply(seat, Event::Changed { revision, changes: changes.clone() });
            }
            self.apply(seat, Event::Changed { revision, changes });
            self.seats[seat].position += 1;
        }
    }

    fn read(&mut self, seat: usize, token: u64) {
        self.counts.reloads += 1;
        let records = all_records(&self.store);
        self.seats[seat].position = self.history.len();
        self.apply(seat, Event::Read { token, records, revision: self.store.revision() });
    }

    pub fn apply(&mut self, seat: usize, event: Event) {
        let mut actions = Vec::new();
        let seat = &mut self.seats[seat];
        seat.coordinator.apply(self.now_ns, event, &mut actions);
        for action in actions {
            match action {
                Action::Write(write) => seat.writes.push_back(write),
                Action::Place(job) => seat.jobs.push_back(job),
                Action::ReadAll { token } => seat.reads.push_back(token),
                Action::Tell { .. } => {}
                Action::Halt(error) => panic!("halted: {error}"),
            }
        }
    }

    fn run_actions(&mut self, seat: usize) {
        for _ in 0..self.seats[seat].writes.len() {
            let Some(write) = self.seats[seat].writes.pop_front() else { break };
            let key = write.key;
            if self.random.chance(self.faults.write_lost) {
                // Neither written nor answered, or written much later.
                if self.random.chance(30) {
                    self.seats[seat].writes.push_back(write);
                }
                continue;
            }
            if self.random.chance(self.faults.conflict) {
                self.touch(key);
            }
            let outcome = if self.write(write) { WriteOutcome::Done } else { WriteOutcome::Conflict };
            let outcome =
                if self.random.chance(self.faults.answer_lost) { WriteOutcome::Failed } else { outcome };
            if !self.random.chance(self.faults.answer_lost) {
                self.apply(seat, Event::Written { key, outcome });
            }
        }
        while let Some(job) = self.seats[seat].jobs.pop_front() {
            if !self.random.chance(self.faults.placement_lost) {
                let result = job.place();
                self.apply(seat, Event::Placed { pool: job.pool, result });
            }
        }
        while let Some(token) = self.seats[seat].reads.pop_front() {
            self.read(seat, token);
        }
    }

    /// Somebody else writes the same record again.
    fn touch(&mut self, key: Key) {
        let Key::Groups(block) = key else { return };
        let Some(present) = self.store.block(block).cloned() else { return };
        let record = Some(Record::Groups((*present.value).clone()));
        let expected_revision = present.revision;
        assert!(self.write(Write::new(key, expected_revision, record)));
    }

    /// Whether every group is as it should be, and nothing is under way.
    pub fn is_clean(&self) -> Result<(), String> {
        for pool in self.store.pools() {
            let pool = &pool.value;
            if pool.state != PoolState::Active {
                return Err(format!("pool {} is {:?}", pool.name, pool.state));
            }
            for id in pool.groups() {
                let group = self.store.group(id).ok_or(format!("group {} is missing", id.0))?;
                let whole = group.in_sync.len() == pool.copies as usize
                    && group.others.is_empty()
                    && group.wanted.is_empty()
                    && group.in_sync.iter().all(|shard| self.serves(*shard));
                if !whole {
                    return Err(format!("{group:?}"));
                }
                self.check_domains(group, &group.in_sync);
            }
        }
        if let Some(drive) = self.store.drives().find(|drive| drive.value.wanted == Wanted::Removing) {
            return Err(format!("drive {} is still there", drive.value.id));
        }
        match self.seats.iter().all(|seat| seat.coordinator.is_settled()) {
            true => Ok(()),
            false => Err("the coordinator is at work".to_owned()),
        }
    }

    /// Lets time pass without faults until all is clean.
    pub fn run_until_clean(&mut self, steps: usize) {
        let mut reason = String::new();
        for _ in 0..steps {
            self.step();
            match self.is_clean() {
                Ok(()) => return,
                Err(found) => reason = found,
            }
        }
        panic!("not clean after {steps} steps: {reason}");
    }
}

pub fn all_records(map: &MapView) -> Vec<(Key, u64, Record)> {
    let cluster = map.cluster_versioned().unwrap();
    let mut records = vec![(Key::Cluster, cluster.revision, Record::Cluster((*cluster.value).clone()))];
    for node in map.nodes() {
        records.push((Key::Node(node.value.id), node.revision, Record::Node((*node.value).clone())));
    }
    for drive in map.drives() {
        records.push((Key::Drive(drive.value.id), drive.revision, Record::Drive((*drive.value).clone())));
    }
    for pool in map.pools() {
        records.push((Key::Pool(pool.value.id), pool.revision, Record::Pool((*pool.value).clone())));
    }
    for volume in map.volumes() {
        records.push((
            Key::Volume(volume.value.id),
            volume.revision,
            Record::Volume((*volume.value).clone()),
        ));
    }
    for (block, value) in map.blocks() {
        records.push((Key::Groups(block), value.revision, Record::Groups((*value.value).clone())));
    }
    records
}
