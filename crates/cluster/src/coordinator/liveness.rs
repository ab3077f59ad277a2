//! Who is alive, as far as heartbeats say.
//!
//! Rules:
//! - a node is dead when it was not heard for [`Settings::node_dead_ns`], or when it said that it stops. A drive is dead
//!   when its living node did not name it as serving for that long, and at once when its node says that it failed;
//! - a coordinator believes nobody dead until it has itself watched for `node_dead_ns` after it was elected, and begins
//!   anew when it was itself asleep (no event for half of that time): its own silence is no node's death;
//! - for how long a drive was dead is kept in its record ([`DriveRecord::dead_ms`](crate::record::DriveRecord)), so that the time
//!   goes on under the next coordinator, whoever that is;
//! - if more than half of the nodes not known as dead are silent at once, the coordinator is the one that is cut off: it
//!   believes nobody dead then. Known as dead is also who was not heard since the election and has only drives that
//!   coordinators before found dead. So a real loss of more than half of the nodes at once stops the groups that need them
//!   until some come back or the operator gives their drives up. *At once* is: silent for half of `node_dead_ns` when
//!   one of them is silent for all of it;
//! - who was not heard since the election is neither dead nor alive, and nothing is promoted there;
//! - the node of the coordinator before, whose lease ran out and which does not answer, counts as silent since that lease
//!   could last have been renewed: it is dead without being watched anew, if it was silent for `node_dead_ns` by then and at
//!   least half of all nodes were heard since the election.

use std::collections::{BTreeMap, BTreeSet};

use coquina_base::{DriveId, NodeId};

use super::Settings;
use super::message::{DriveCondition, Heartbeat};
use crate::group::ShardRef;
use crate::map::MapView;
use crate::record::{DriveRecord, DriveState};

#[derive(Clone, Debug)]
struct NodeWatch {
    /// Last heartbeat, or when watching began.
    heard_ns: u64,
    /// Whether there was a heartbeat.
    heard: bool,
    dead: bool,
}

#[derive(Clone, Debug)]
struct DriveWatch {
    /// Last time that it was said to serve, or when watching began.
    served_ns: u64,
    served: bool,
    condition: DriveCondition,
    hung: bool,
    /// When it was found dead.
    dead_since_ns: Option<u64>,
    /// For how long coordinators before have watched it dead, if it was not heard to serve since.
    dead_before_ns: u64,
}

/// What is believed of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardLife {
    /// Heard of in time.
    Alive,
    /// Heard of in time, but its drive answers nothing for the time being.
    Hung,
    /// Not to be counted on any more.
    Dead,
    /// Neither is proven.
    Unknown,
}

/// Who is alive. See the head of the module.
#[derive(Clone, Debug)]
pub struct Liveness {
    node_dead_ns: u64,
    began_ns: u64,
    nodes: BTreeMap<NodeId, NodeWatch>,
    drives: BTreeMap<DriveId, DriveWatch>,
    isolated: bool,
    /// The node of the coordinator before, and since when it is silent.
    predecessor: Option<(NodeId, u64)>,
}

impl Liveness {
    pub(super) fn new(settings: &Settings, now_ns: u64) -> Liveness {
        Liveness {
            node_dead_ns: settings.node_dead_ns,
            began_ns: now_ns,
            nodes: BTreeMap::new(),
            drives: BTreeMap::new(),
            isolated: false,
            predecessor: None,
        }
    }

    /// The coordinator before ran on that node, and it is silent since then.
    pub(super) fn predecessor_silent(&mut self, node: NodeId, since_ns: u64) {
        self.predecessor = Some((node, since_ns));
    }

    /// Whether so many nodes are silent that it is rather the coordinator that is cut off.
    pub fn is_isolated(&self) -> bool {
        self.isolated
    }

    /// Whether anything is believed dead.
    pub(super) fn any_dead(&self, map: &MapView) -> bool {
        self.drives.values().any(|watch| watch.dead_since_ns.is_some())
            || map.drives().any(|drive| drive.value.state == DriveState::GivenUp)
    }

    /// Whether a node was heard of in time.
    pub fn is_node_alive(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|watch| watch.heard && !watch.dead)
    }

    /// Whether a node may be there: it was heard in time, or is not watched for long enough yet. Unlike the others this also
    /// tells who is silent while the coordinator believes nobody dead.
    pub fn is_node_heard(&self, node: NodeId, now_ns: u64) -> bool {
        let in_time = |watch: &NodeWatch| now_ns.saturating_sub(watch.heard_ns) < self.node_dead_ns;
        self.nodes.get(&node).is_some_and(|watch| !watch.dead && in_time(watch))
    }

    /// For how long a node was not heard, or not since watching began; `None` for one that is not known.
    pub fn silent_ns(&self, node: NodeId, now_ns: u64) -> Option<u64> {
        self.nodes.get(&node).map(|watch| now_ns.saturating_sub(watch.heard_ns))
    }

    /// Whether a node is believed dead.
    pub fn is_node_dead(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|watch| watch.dead)
    }

    /// What is believed of a shard.
    pub fn shard(&self, map: &MapView, shard: ShardRef) -> ShardLife {
        let Some(record) = map.drive(shard.drive) else { return ShardLife::Dead };
        if record.state == DriveState::GivenUp {
            return ShardLife::Dead;
        }
        let Some(watch) = self.drives.get(&shard.drive) else { return ShardLife::Unknown };
        if watch.dead_since_ns.is_some() {
            return ShardLife::Dead;
        }
        match (watch.served && self.is_node_alive(record.node), watch.hung) {
            (false, _) => ShardLife::Unknown,
            (true, true) => ShardLife::Hung,
            (true, false) => ShardLife::Alive,
        }
    }

    /// How long a drive has been dead, as far as this coordinator and those before have watched it.
    pub fn drive_dead_ns(&self, drive: DriveId, now_ns: u64) -> Option<u64> {
        let watch = self.drives.get(&drive)?;
        Some(now_ns.saturating_sub(watch.dead_since_ns?).saturating_add(watch.dead_before_ns))
    }

    /// For how long coordinators before have watched a drive dead that was not heard to serve since.
    pub(super) fn drive_dead_before_ns(&self, drive: DriveId) -> u64 {
        self.drives.get(&drive).map_or(0, |watch| watch.dead_before_ns)
    }

    /// Whether a node counts when it is asked how many are silent.
    fn is_expected(map: &MapView, node: NodeId, watch: &NodeWatch) -> bool {
        let lived = |drive: &DriveRecord| drive.dead_ms == 0 && drive.state != DriveState::GivenUp;
        watch.heard || map.drives_of(node).any(lived)
    }

    /// How a living node described its drive last.
    pub(super) fn condition(&self, drive: DriveId) -> Option<DriveCondition> {
        self.drives.get(&drive).filter(|watch| watch.served).map(|watch| watch.condition)
    }

    /// The coordinator itself was asleep: nothing is known of the time since.
    pub(super) fn begin_anew(&mut self, now_ns: u64) {
        self.began_ns = now_ns;
        self.predecessor = None;
        for watch in self.nodes.values_mut() {
            watch.heard_ns = now_ns;
        }
        for watch in self.drives.values_mut() {
            watch.served_ns = now_ns;
        }
    }

    /// Watches the nodes and drives of the map and no others. Who is new is watched from now on.
    pub(super) fn follow(&mut self, map: &MapView, now_ns: u64) {
        self.nodes.retain(|node, _| map.node(*node).is_some());
        self.drives.retain(|drive, _| map.drive(*drive).is_some());
        for node in map.nodes() {
            let watch = NodeWatch { heard_ns: now_ns, heard: false, dead: false };
            self.nodes.entry(node.value.id).or_insert(watch);
        }
        for drive in map.drives() {
            self.drives.entry(drive.value.id).or_insert(DriveWatch {
                served_ns: now_ns,
                served: false,
                condition: DriveCondition::Serving,
                hung: false,
                dead_since_ns: None,
                dead_before_ns: drive.value.dead_ms.saturating_mul(1_000_000),
            });
        }
    }

    /// Takes a heartbeat of a node of the map. Returns the drives of which other things are believed now.
    pub(super) fn hear(&mut self, map: &MapView, heartbeat: &Heartbeat, now_ns: u64) -> BTreeSet<DriveId> {
        let mut changed = BTreeSet::new();
        let Some(node) = self.nodes.get_mut(&heartbeat.node) else { return changed };
        node.heard_ns = now_ns;
        if node.dead != heartbeat.stopping || !node.heard {
            changed.extend(map.drives_of(heartbeat.node).map(|drive| drive.id));
        }
        node.dead = heartbeat.stopping;
        node.heard = true;
        if heartbeat.stopping {
            for drive in map.drives_of(heartbeat.node) {
                if let Some(watch) = self.drives.get_mut(&drive.id) {
                    watch.dead_since_ns.get_or_insert(now_ns);
                }
            }
            return changed;
        }
        for report in &heartbeat.drives {
            // A drive that was moved belongs to the node that the map says, whatever another one still claims.
            if map.drive(report.drive).is_none_or(|drive| drive.node != heartbeat.node) {
                continue;
            }
            let Some(watch) = self.drives.get_mut(&report.drive) else { continue };
            let serves = report.condition == DriveCondition::Serving;
            let dead_since_ns = if serves { None } else { watch.dead_since_ns.or(Some(now_ns)) };
            let same = watch.served
                && dead_since_ns.is_some() == watch.dead_since_ns.is_some()
                && watch.condition == report.condition
                && watch.hung == report.hung;
            if !same {
                changed.insert(report.drive);
            }
            if serves {
                watch.served_ns = now_ns;
                watch.dead_before_ns = 0;
            }
            watch.served = true;
            watch.dead_since_ns = dead_since_ns;
            watch.condition = report.condition;
            watch.hung = report.hung;
        }
        changed
    }

    /// Finds who has been silent for too long. Returns the drives that are dead now and were not before.
    pub(super) fn judge(&mut self, map: &MapView, now_ns: u64) -> BTreeSet<DriveId> {
        let mut changed = self.judge_predecessor(map, now_ns);
        if now_ns.saturating_sub(self.began_ns) < self.node_dead_ns {
            return changed;
        }
        let silence_ns = |watch: &NodeWatch| now_ns.saturating_sub(watch.heard_ns);
        let (mut nodes, mut quiet, mut silent) = (0, 0, Vec::new());
        for (node, watch) in self.nodes.iter().filter(|(_, watch)| !watch.dead) {
            if Self::is_expected(map, *node, watch) {
                nodes += 1;
                quiet += usize::from(silence_ns(watch) >= self.node_dead_ns / 2);
            }
            if silence_ns(watch) >= self.node_dead_ns {
                silent.push(*node);
            }
        }
        self.isolated = !silent.is_empty() && quiet * 2 > nodes;
        if self.isolated {
            return changed;
        }
        for node in silent {
            if let Some(watch) = self.nodes.get_mut(&node) {
                watch.dead = true;
            }
        }
        for (id, watch) in self.drives.iter_mut().filter(|(_, watch)| watch.dead_since_ns.is_none()) {
            let Some(node) = map.drive(*id).map(|drive| drive.node) else { continue };
            let node_watch = self.nodes.get(&node);
            let node_dead = node_watch.is_some_and(|node| node.dead);
            // A silent node that is not believed dead takes its drives' silence with it.
            let node_heard = node_watch.is_some_and(|node| silence_ns(node) < self.node_dead_ns);
            let silent = node_heard && now_ns.saturating_sub(watch.served_ns) >= self.node_dead_ns;
            if node_dead || silent {
                watch.dead_since_ns = Some(now_ns);
                changed.insert(*id);
            }
        }
        changed
    }

    /// Finds whether the node of the coordinator before is dead, before it has been watched.
    fn judge_predecessor(&mut self, map: &MapView, now_ns: u64) -> BTreeSet<DriveId> {
        let mut changed = BTreeSet::new();
        let Some((node, since_ns)) = self.predecessor else { return changed };
        if now_ns.saturating_sub(since_ns) < self.node_dead_ns {
            return changed;
        }
        let expected = || self.nodes.iter().filter(|(node, watch)| Self::is_expected(map, **node, watch));
        let unheard = expected().filter(|(_, watch)| !watch.heard).count();
        if unheard * 2 > expected().count() {
            return changed;
        }
        self.predecessor = None;
        let Some(watch) = self.nodes.get_mut(&node).filter(|watch| !watch.heard) else { return changed };
        watch.dead = true;
        for drive in map.drives_of(node) {
            if let Some(watch) = self.drives.get_mut(&drive.id)
                && watch.dead_since_ns.is_none()
            {
                watch.dead_since_ns = Some(now_ns);
                changed.insert(drive.id);
            }
        }
        changed
    }
}
