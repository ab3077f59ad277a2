//! The real control plane: a model of etcd by its documented guarantees, a candidate in every node, coordinators that
//! decide, maps that follow watches. Requests and answers take time and are lost; watches are late and break without a
//! word; leases end late; a leader that was replaced goes on until it finds out.

use std::collections::BTreeMap;

use coquina_base::{ClusterId, DriveId, Id128, NodeId};
use coquina_cluster::{
    Coordinator, DriveRecord, GroupRecord, Key, MapView, NodeAddresses, NodeRecord, POOL_GROUPS_MAX,
    PoolRecord, PoolState, Record, Settings, VersionRange, Wanted, Write, operation,
};
use coquina_replication::{Config, GroupId};
use coquina_store::{
    Campaign, Compare, Event as StoreEvent, Leadership, LeaseId, ModelStore, Request, Response, Revision,
    Snapshot, Transaction, WatchId, Watched,
};

use super::plan::ClusterPlan;
use super::report::Rare;
use super::world::World;
use crate::violation::Violation;

/// Leases are of whole seconds, so a second of the store is a tenth of one here.
pub const STORE_TIME: u64 = 10;
const MAP_PREFIX: &[u8] = b"map/";
/// The election's name; its keys lie under it and a slash.
pub const ELECTION: &[u8] = b"leader";
pub const ELECTION_PREFIX: &[u8] = b"leader/";
pub const CLUSTER: ClusterId = ClusterId(Id128([7; 16]));
const MS: u64 = 1_000_000;

/// What a request to the store is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// A node reads the map.
    Map,
    /// A candidate wants a lease.
    Lease,
    /// It keeps it.
    KeepAlive,
    /// A step of its campaign.
    Campaign,
    /// Having won, it reads the map.
    NewMap,
    /// A decision.
    Write(Key),
    /// A read that the coordinator asked for.
    Read(u64),
}

/// What a process knows of the control plane; gone when it ends.
#[derive(Default)]
pub struct Seat {
    pub map: MapView,
    pub watch: Option<WatchId>,
    pub is_reading: bool,
    pub lease: Option<LeaseId>,
    pub is_granting: bool,
    /// When the lease ends unless it is kept, and when to keep it, by true time.
    pub lease_until_ns: u64,
    pub keep_ns: u64,
    pub campaign: Option<Campaign>,
    pub is_campaigning: bool,
    pub election: Option<WatchId>,
    pub leadership: Option<Leadership>,
    pub coordinator: Option<Box<Coordinator>>,
}

impl Seat {
    /// Leads no more, and is no candidate until it has another lease.
    pub fn give_up(&mut self) {
        self.lease = None;
        self.campaign = None;
        self.is_campaigning = false;
        self.election = None;
        self.leadership = None;
        self.coordinator = None;
    }
}

/// All of it.
pub struct Control {
    pub store: ModelStore,
    /// The map as the store has it.
    pub truth: MapView,
    truth_watch: WatchId,
    /// By node.
    pub seats: Vec<Seat>,
    pub settings: Settings,
    /// Drives that were ever there.
    drives: u64,
}

impl Control {
    /// A store with a cluster of nodes with drives, and a pool whose groups the coordinator is to make.
    pub fn new(plan: &ClusterPlan) -> Result<Control, Violation> {
        let mut store = ModelStore::new(1);
        let truth_watch = store.watch(MAP_PREFIX, 1).map_err(wrong)?;
        let settings = Settings {
            node_dead_ns: plan.dead_ns,
            drive_out_ns: 10 * plan.dead_ns,
            move_interval_ns: 50 * MS,
            write_timeout_ns: 200 * MS,
            ..Settings::default()
        };
        let seats = (0..plan.nodes).map(|_| Seat::default()).collect();
        let truth = MapView::default();
        let mut control = Control { store, truth, truth_watch, seats, settings, drives: 0 };
        control.write(operation::create_cluster(CLUSTER))?;
        for node in 0..plan.nodes {
            let record = NodeRecord {
                id: node_id(node),
                name: format!("node-{node}"),
                addresses: NodeAddresses::default(),
                domains: BTreeMap::new(),
                versions: VersionRange { min: 1, max: 1 },
                wanted: Wanted::In,
            };
            let write = operation::register_node(&control.truth, Some(CLUSTER), &record).map_err(wrong)?;
            control.write_if(write)?;
            for _ in 0..plan.drives_per_node {
                control.add_drive(node)?;
            }
        }
        let (id, group_first, claim) = operation::claim_pool(&control.truth, false).map_err(wrong)?;
        control.write(claim)?;
        let pool = PoolRecord {
            id,
            name: String::from("pool"),
            copies: plan.copies.min(plan.nodes) as u32,
            min_copies: plan.min_copies,
            domain: String::from("node"),
            group_first,
            group_count: plan.groups,
            state: PoolState::Creating,
        };
        let write = operation::create_pool(&control.truth, &pool).map_err(wrong)?;
        control.write_if(write)?;
        Ok(control)
    }

    /// Registers a new drive of a node; its copy has the number of its host.
    pub fn add_drive(&mut self, node: usize) -> Result<DriveId, Violation> {
        let (copy_first, claim) = operation::claim_copies(&self.truth, 1, 0).map_err(wrong)?;
        self.write(claim)?;
        let id = drive_id(self.drives as usize);
        assert_eq!(copy_first, self.drives + 1, "copies are numbered as their drives are made");
        self.drives += 1;
        let record = DriveRecord {
            id,
            node: node_id(node),
            path: format!("drive-{}", self.drives),
            size_bytes: 1 << 30,
            capacity_bytes: 1 << 29,
            shards: 1,
            weight: 100,
            copy_first,
            state: coquina_cluster::DriveState::Healthy,
            wanted: Wanted::In,
            dead_ms: 0,
        };
        let write = operation::register_drive(&self.truth, &record).map_err(wrong)?;
        self.write_if(write)?;
        Ok(id)
    }

    /// An operator's change. Nobody else writes in between.
    pub fn write_if(&mut self, write: Option<Write>) -> Result<(), Violation> {
        write.map_or(Ok(()), |write| self.write(write))
    }

    fn write(&mut self, write: Write) -> Result<(), Violation> {
        self.store.apply(0, &Request::Transaction(transaction(&write, None))).map_err(wrong)?;
        self.follow_truth().map(drop)
    }

    /// Brings the truth up to the store; gives the groups that have changed, with what they were.
    pub fn follow_truth(&mut self) -> Result<Vec<(Option<GroupRecord>, GroupRecord)>, Violation> {
        let mut changed = Vec::new();
        while let Some(Watched::Revision(revision)) = self.store.watch_next(self.truth_watch) {
            let changes = changes_of(&revision)?;
            let before = self.truth.clone();
            let applied = self.truth.apply(revision.revision, changes).map_err(wrong)?;
            for group in applied.groups {
                let Some(after) = self.truth.group(group).cloned() else { continue };
                let before = before.group(group).cloned();
                if let Some(before) = &before {
                    check_step(before, &after)?;
                }
                changed.push((before, after));
            }
        }
        Ok(changed)
    }

    /// Watches the truth anew: nothing has been missed, for it is followed after each change.
    pub fn watch_truth(&mut self) {
        let from = self.truth.revision() + 1;
        if let Some(watch) = map_watch(&mut self.store, from) {
            self.truth_watch = watch;
        }
    }

    /// The configuration of a group in some map.
    pub fn config_in(map: &MapView, group: u32) -> Option<Config> {
        map.config(map_group(group))
    }

    /// What the store does, a little late with leases.
    pub fn apply(&mut self, now_ns: u64, request: &Request) -> Result<Response, coquina_store::StoreError> {
        self.store.apply(now_ns * STORE_TIME, request)
    }

    /// Ends leases whose time has passed.
    pub fn expire(&mut self, now_ns: u64) {
        self.store.expire(now_ns * STORE_TIME);
    }

    /// The leader, as a reader of the store finds it.
    pub fn leader(&mut self) -> Option<usize> {
        let read = self.store.apply(0, &Request::Read { prefix: ELECTION_PREFIX.to_vec() });
        let Ok(Response::Snapshot(snapshot)) = read else { return None };
        let first = snapshot.items.into_iter().min_by_key(|item| item.create_revision)?;
        first.value.first().map(|node| usize::from(*node))
    }
}

/// How long a lease lasts here.
pub fn lease_ns(seconds: u64) -> u64 {
    seconds * 1_000 * MS / STORE_TIME
}

/// The group's number in the map.
pub fn map_group(group: u32) -> GroupId {
    GroupId(POOL_GROUPS_MAX + group - 1)
}

pub fn node_id(node: usize) -> NodeId {
    NodeId(Id128((node as u128 + 1).to_be_bytes()))
}

/// The drive of a host.
pub fn drive_id(host: usize) -> DriveId {
    DriveId(Id128((host as u128 + (1 << 64)).to_be_bytes()))
}

pub fn wrong(error: impl std::fmt::Display) -> Violation {
    Violation::Group(format!("the control plane: {error}"))
}

pub fn map_read() -> Request {
    Request::Read { prefix: MAP_PREFIX.to_vec() }
}

pub fn map_watch(store: &mut ModelStore, from_revision: u64) -> Option<WatchId> {
    store.watch(MAP_PREFIX, from_revision).ok()
}

fn store_key(key: &Key) -> Vec<u8> {
    [MAP_PREFIX, key.to_string().as_bytes()].concat()
}

/// A decision, fenced by who leads.
pub fn transaction(write: &Write, leadership: Option<&Leadership>) -> Transaction {
    let value = write.record.as_ref().map(Record::encode);
    let key = store_key(&write.key);
    let mut transaction = Transaction::compare_and_set(&key, write.expected_revision, value, None);
    transaction.compares.extend(leadership.map(Leadership::fence));
    let unchanged = write.unchanged.iter();
    transaction.compares.extend(
        unchanged.map(|(key, revision)| Compare::ModRevision { key: store_key(key), revision: *revision }),
    );
    if let Some(revision) = write.copies_unchanged_since {
        let prefixes = Key::COPIES_PREFIXES.iter().map(|prefix| [MAP_PREFIX, prefix.as_bytes()].concat());
        transaction.compares.extend(prefixes.map(|prefix| Compare::NoneAfter { prefix, revision }));
    }
    transaction
}

fn parse(key: &[u8]) -> Result<Key, Violation> {
    let name = key.strip_prefix(MAP_PREFIX).and_then(|name| std::str::from_utf8(name).ok());
    name.ok_or_else(|| wrong("a strange key"))?.parse().map_err(wrong)
}

/// What a revision changed in the map.
pub fn changes_of(revision: &Revision) -> Result<Vec<(Key, Option<Record>)>, Violation> {
    let change = |event: &StoreEvent| match event {
        StoreEvent::Put(item) => {
            let key = parse(&item.key)?;
            Ok((key, Some(Record::decode(&key, &item.value).map_err(wrong)?)))
        }
        StoreEvent::Delete { key } => Ok((parse(key)?, None)),
    };
    revision.events.iter().map(change).collect()
}

/// All records of a read.
pub fn records_of(snapshot: &Snapshot) -> Result<Vec<(Key, u64, Record)>, Violation> {
    let record = |item: &coquina_store::KeyValue| {
        let key = parse(&item.key)?;
        Ok((key, item.mod_revision, Record::decode(&key, &item.value).map_err(wrong)?))
    };
    snapshot.items.iter().map(record).collect()
}

/// A configuration follows only from the one before.
fn check_step(before: &GroupRecord, after: &GroupRecord) -> Result<(), Violation> {
    let same = before.in_sync == after.in_sync && before.others == after.others;
    let was = |shard| before.in_sync.contains(shard);
    let right = if after.epoch == before.epoch {
        same
    } else {
        after.epoch == before.epoch + 1
            && after.in_sync.first().is_some_and(was)
            && after.in_sync.iter().all(|shard| was(shard) || before.others.contains(shard))
    };
    if right { Ok(()) } else { Err(wrong(format!("{before:?} became {after:?}"))) }
}

impl World {
    /// The store has changed: what clients could learn is brought up to it, and nodes are told when they are.
    pub fn store_changed(&mut self) -> Result<(), Violation> {
        let Some(control) = &mut self.control else { return Ok(()) };
        for (before, after) in control.follow_truth()? {
            let group = after.id.0 - POOL_GROUPS_MAX + 1;
            if let Some(config) = Control::config_in(&control.truth, group) {
                self.coordinator.configs[group as usize - 1] = config;
            }
            self.trace.add(&[20, u64::from(group), after.epoch, after.in_sync.len() as u64]);
            let Some(before) = before else { continue };
            if before.primary() != after.primary() {
                self.report.saw(Rare::Takeover);
            }
            if after.in_sync.len() > before.in_sync.len() {
                self.report.saw(Rare::CopyAdded);
            }
            if after.in_sync.len() < before.in_sync.len() {
                self.report.saw(Rare::CopyRemoved);
            }
            if after.others.iter().any(|shard| !before.is_member(*shard)) {
                self.report.saw(Rare::CopyMoved);
            }
        }
        for node in 0..self.plan.nodes {
            self.map_step_later(node);
        }
        self.follow_drives()
    }

    /// Whether the coordinator has made all groups.
    pub fn has_groups(&self) -> bool {
        self.coordinator.configs.iter().all(|config| config.epoch > 0)
    }
}
