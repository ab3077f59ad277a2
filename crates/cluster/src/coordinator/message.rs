//! What goes into the coordinator and what comes out of it.

use coquina_base::{ClusterId, DriveId, NodeId};
use coquina_replication::{Config, GroupId};
use serde::{Deserialize, Serialize};

use crate::group::{ShardRef, group_number};
use crate::key::{Key, PoolId};
use crate::map::{MapError, MapView};
use crate::placement::{Placement, PlacementError, PlacementJob};
use crate::record::Record;

/// How a drive is, as its node says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DriveCondition {
    /// It serves and takes changes.
    Serving,
    /// A write failed: it takes no changes any more.
    ReadOnly,
    /// It cannot be opened, or does not answer.
    Failed,
}

/// A drive in a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveReport {
    /// The drive.
    pub drive: DriveId,
    /// How it is.
    pub condition: DriveCondition,
    /// It has answered nothing for seconds, and may again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hung: bool,
}

/// A change of who is in sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProposedChange {
    /// A backup does not answer; or the primary itself cannot do anything any more, and another one is to take its place.
    Remove(ShardRef),
    /// A copy that was out has everything.
    Add(ShardRef),
    /// The same members under the next epoch. A primary that has restarted does not know whom it was about to add, and a copy
    /// that was about to be added may have fallen silent: either goes on only when that addition cannot happen any more.
    Renew,
}

/// What a group's primary asks for. Repeated in every heartbeat until the epoch changes or the primary takes it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    /// The group.
    #[serde(with = "group_number")]
    pub group: GroupId,
    /// The epoch that is to be followed by the change.
    pub epoch: u64,
    /// The change.
    pub change: ProposedChange,
}

impl Proposal {
    /// The proposal that a group's protocol made as the configuration that it would like. `None` if it is not one step
    /// from the configuration in the map.
    pub fn of_config(map: &MapView, group: GroupId, config: &Config) -> Option<Proposal> {
        let record = map.group(group).filter(|record| record.epoch.checked_add(1) == Some(config.epoch))?;
        let in_sync: Vec<ShardRef> =
            config.in_sync.iter().map(|copy| map.shard_of(*copy)).collect::<Option<_>>()?;
        let mut added = in_sync.iter().filter(|shard| !record.in_sync.contains(shard));
        let mut removed = record.in_sync.iter().filter(|shard| !in_sync.contains(shard));
        let change = match (added.next(), removed.next(), added.next(), removed.next()) {
            (Some(shard), None, None, None) => ProposedChange::Add(*shard),
            (None, Some(shard), None, None) => ProposedChange::Remove(*shard),
            (None, None, None, None) => ProposedChange::Renew,
            _ => return None,
        };
        Some(Proposal { group, epoch: record.epoch, change })
    }
}

/// What a group's primary has still to do for a copy that is out and follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlocksLeft {
    /// The group.
    #[serde(with = "group_number")]
    pub group: GroupId,
    /// The epoch that the primary follows.
    pub epoch: u64,
    /// The copy; none from a program that did not tell copies apart.
    #[serde(default)]
    pub shard: Option<ShardRef>,
    /// Blocks that are to be sent to it or compared with it. What is left grows only when the primary begins anew with it.
    pub blocks: u64,
}

/// What a node says of itself, several times within [`Settings::node_dead_ns`](super::Settings).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The node.
    pub node: NodeId,
    /// The cluster that it belongs to.
    pub cluster: ClusterId,
    /// Revision of the map that it has.
    pub map_revision: u64,
    /// It stops now, in order: its copies may be removed at once.
    #[serde(default)]
    pub stopping: bool,
    /// The drives that it has opened. One that it does not name counts as silent.
    pub drives: Vec<DriveReport>,
    /// All that primaries on it ask for: what is not here and was before has been taken back.
    #[serde(default)]
    pub proposals: Vec<Proposal>,
    /// How far primaries on it are with copies that come back: empty but for once in a while, none from a program that does not
    /// say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub returning: Option<Vec<BlocksLeft>>,
}

/// What became of a compare-and-set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// It is in the store.
    Done,
    /// Somebody else changed the key before.
    Conflict,
    /// Not known.
    Failed,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Time has passed. Due at least four times within [`Settings::node_dead_ns`](super::Settings).
    Tick,
    /// All changes of one revision of the store, in the order of revisions.
    Changed {
        /// The revision.
        revision: u64,
        /// The records; `None` for a key that is gone.
        changes: Vec<(Key, Option<Record>)>,
    },
    /// Everything that the store holds, as asked for by [`Action::ReadAll`] or after a lost watch.
    Read {
        /// That of the question; 0 if nobody asked.
        token: u64,
        /// All records with their revisions.
        records: Vec<(Key, u64, Record)>,
        /// The store's revision when they were read.
        revision: u64,
    },
    /// A node is there.
    Heartbeat(Heartbeat),
    /// A write has come to its end.
    Written {
        /// The key.
        key: Key,
        /// How.
        outcome: WriteOutcome,
    },
    /// A placement has been found, or cannot be.
    Placed {
        /// The pool.
        pool: PoolId,
        /// As in [`Action::Place`].
        result: Result<Placement, PlacementError>,
    },
}

/// A compare-and-set on one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The key.
    pub key: Key,
    /// The revision that must have changed it last; 0 if it must not exist.
    pub expected_revision: u64,
    /// The new value; `None` deletes.
    pub record: Option<Record>,
    /// Other keys on which the decision rests, with the revisions that must have changed them last.
    pub unchanged: Vec<(Key, u64)>,
    /// If it rests on more than can be named: no drive and no block of groups was written after that revision.
    pub copies_unchanged_since: Option<u64>,
}

impl Write {
    /// A write that rests on nothing but the record that it changes.
    pub fn new(key: Key, expected_revision: u64, record: Option<Record>) -> Write {
        Write { key, expected_revision, record, unchanged: Vec::new(), copies_unchanged_since: None }
    }

    /// Whether all that it rests on is as a map shows it.
    pub fn holds_on(&self, map: &MapView) -> bool {
        let holds = |(key, revision): &(Key, u64)| map.revision_of(key) == *revision;
        let since = self.copies_unchanged_since;
        holds(&(self.key, self.expected_revision))
            && self.unchanged.iter().all(holds)
            && since.is_none_or(|since| map.copies_written() <= since)
    }
}

/// Most keys in [`Write::unchanged`]: a transaction of the store may have 128 conditions.
pub const UNCHANGED_MAX: usize = 96;

/// What a node is told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeRequest {
    /// It belongs to another cluster: it must not serve here.
    OtherCluster {
        /// This cluster.
        expected: ClusterId,
    },
    /// It is not in the map: it must register, or was removed.
    NotInMap,
    /// Its map is old: its watch may be lost. It should read the map up to this revision.
    ReadMap {
        /// The coordinator's revision.
        revision: u64,
    },
}

/// What the driver must do. The order does not matter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Write to the store, fenced by the election, and hand in [`Event::Written`]. At most one per key at a time.
    Write(Write),
    /// Tell a node, if it can be reached.
    Tell {
        /// The node.
        node: NodeId,
        /// What.
        request: NodeRequest,
    },
    /// Run [`PlacementJob::place`], on another thread if it is large, and hand in [`Event::Placed`].
    Place(Box<PlacementJob>),
    /// Read everything with a linearizable read that begins now and hand in [`Event::Read`].
    ReadAll {
        /// Handed back.
        token: u64,
    },
    /// Nothing can be decided any more: resign, report it, and have I/O refused. Nothing else will come.
    Halt(MapError),
}
