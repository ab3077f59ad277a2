//! Everything that nodes must agree on, as plain records: one key of the store each (see [`Key`](crate::Key)).
//!
//! Invariants, checked by [`Record::check`] whenever a record comes from outside:
//! - a record's identity is the one that its key says;
//! - names follow the rule for names, sizes and counts are within their bounds, numbers that are counted on from are far
//!   from the end of their kind;
//! - a record of a newer feature level than this build knows is refused, since its fields would be lost.
//!
//! What several records must agree on is checked by [`MapView::check`](crate::MapView::check).

use std::collections::BTreeMap;

use coquina_base::{
    BLOCK_BYTES, ClusterId, DriveId, LayerId, NodeId, VOLUME_BYTES_MAX, VolumeId, check_name,
};
use coquina_replication::GroupId;
use serde::{Deserialize, Serialize};

use crate::group::{BLOCK_GROUPS, GroupBlock, group_number};
use crate::key::{Key, PoolId};
use crate::stripe::Striping;

/// The newest format of records that this build writes and reads. 1 was the map of a single node.
pub const FEATURE_LEVEL: u32 = 2;
/// Most shards of one drive.
pub const DRIVE_SHARDS_MAX: u32 = 1024;
/// Most copies of a pool.
pub const COPIES_MAX: u32 = 8;
/// Most groups of one pool. Each pool owns so many group numbers from its first one on, so that its count can double
/// in place.
pub const POOL_GROUPS_MAX: u32 = 1 << 18;
/// Layers, copies and epochs are below this: more than can ever be given out, and no sum of a few of them overflows.
pub(crate) const NUMBER_MAX: u64 = 1 << 62;
/// Ranges of numbers left out that are remembered: one for each process that has given out a number since it started.
pub const SKIPPED_RANGES_MAX: usize = 64;
/// Domain labels of one node.
pub const DOMAINS_MAX: usize = 16;

/// A record and the revision of the store that wrote it last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versioned<T> {
    /// Revision of the store at the last change; what a compare-and-set compares.
    pub revision: u64,
    /// The record.
    #[serde(flatten)]
    pub value: T,
}

/// What concerns the cluster as a whole.
///
/// A number is claimed by moving `*_next` on, durably, before anything is made with it: a crash in between leaves a
/// number unused, never used twice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterRecord {
    /// The cluster.
    pub id: ClusterId,
    /// Nothing newer than this is written to drives or wires.
    pub feature_level: u32,
    /// The next layer to give out.
    pub layer_next: u64,
    /// The next group to give out; a multiple of [`POOL_GROUPS_MAX`]. Never 0, which stands for no group in logs.
    #[serde(default = "first_groups")]
    pub group_next: u32,
    /// The next pool to give out.
    #[serde(default = "one")]
    pub pool_next: u32,
    /// The next copy number to give out: every shard of every drive has one.
    #[serde(default = "one_long")]
    pub copy_next: u64,
    /// The sum of volume sizes, times copies, may be this many percent of the capacity.
    pub overcommit_percent: u32,
    /// Drives that were given up with data on them. One that comes back holds what nobody knows any more, so it is
    /// not taken back as it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub given_up_drives: Vec<DriveId>,
    /// Layers that were left out between numbers given out: data of such a layer belongs to a volume that was lost when the
    /// map went back, and is kept. The newest [`SKIPPED_RANGES_MAX`] ranges.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers_skipped: Vec<NumberRange>,
    /// The same of groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups_skipped: Vec<NumberRange>,
}

/// Numbers from one on, up to another one that does not belong to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumberRange {
    /// The first one.
    pub first: u64,
    /// The one behind the last.
    pub end: u64,
}

impl NumberRange {
    /// Whether a number belongs to the range.
    pub fn contains(self, number: u64) -> bool {
        (self.first..self.end).contains(&number)
    }
}

fn first_groups() -> u32 {
    POOL_GROUPS_MAX
}

fn one() -> u32 {
    1
}

fn one_long() -> u64 {
    1
}

impl ClusterRecord {
    /// The record of a new cluster.
    pub fn new(id: ClusterId) -> ClusterRecord {
        ClusterRecord {
            id,
            feature_level: FEATURE_LEVEL,
            layer_next: 1,
            group_next: POOL_GROUPS_MAX,
            pool_next: 1,
            copy_next: 1,
            overcommit_percent: 100,
            given_up_drives: Vec::new(),
            layers_skipped: Vec::new(),
            groups_skipped: Vec::new(),
        }
    }

    /// Whether a layer was given out by this map, so that data of it belongs to a volume that the map has or to one that was
    /// removed. What lies on drives under other numbers is of volumes that the map lost when it went back.
    pub fn has_given_layer(&self, layer: LayerId) -> bool {
        layer.0 < self.layer_next && !self.layers_skipped.iter().any(|range| range.contains(layer.0))
    }

    /// Whether a group's number was left out between those that were given out.
    pub(crate) fn has_skipped_group(&self, group: GroupId) -> bool {
        self.groups_skipped.iter().any(|range| range.contains(u64::from(group.0)))
    }
}

/// What the operator wants of a node or a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wanted {
    /// It takes part.
    #[default]
    In,
    /// Its data is being moved away, then it goes.
    Removing,
}

/// Where a node is reached, as `host:port`.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NodeAddresses {
    /// Clients' native protocol.
    pub native: String,
    /// REST and metrics.
    pub http: String,
    /// Other nodes.
    pub peer: String,
}

/// Versions of the wire protocol that a node speaks, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct VersionRange {
    /// The oldest.
    pub min: u32,
    /// The newest.
    pub max: u32,
}

impl VersionRange {
    /// Whether there is a version that both speak.
    pub fn overlaps(self, other: VersionRange) -> bool {
        self.min <= other.max && other.min <= self.max
    }
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// The node.
    pub id: NodeId,
    /// Its name, for people.
    pub name: String,
    /// Where it is reached.
    #[serde(default)]
    pub addresses: NodeAddresses,
    /// Failure domains that it is in: `host`, `rack` and whatever else the operator says.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub domains: BTreeMap<String, String>,
    /// Versions that it speaks.
    #[serde(default)]
    pub versions: VersionRange,
    /// What the operator wants of it.
    #[serde(default)]
    pub wanted: Wanted,
}

/// What became of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DriveState {
    /// Takes new data.
    #[default]
    Healthy,
    /// Serves what it holds and takes no changes: a write failed.
    ReadOnly,
    /// Not there, or cannot be opened.
    Missing,
    /// Lost for good: the operator said that it never comes back.
    GivenUp,
}

/// A drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveRecord {
    /// The drive.
    pub id: DriveId,
    /// The node that has it.
    pub node: NodeId,
    /// File or block device on that node.
    pub path: String,
    /// Size of the file or device.
    pub size_bytes: u64,
    /// What it can hold for users, all shards together.
    pub capacity_bytes: u64,
    /// Number of shards.
    pub shards: u32,
    /// Its share of the data, in any unit that is the same for all drives. 0 takes none.
    pub weight: u64,
    /// The copy number of its first shard; the others follow. Never given to another drive.
    pub copy_first: u64,
    /// What became of it.
    #[serde(default)]
    pub state: DriveState,
    /// What the operator wants of it.
    #[serde(default)]
    pub wanted: Wanted,
    /// For how long coordinators have watched it dead, in steps; 0 if it serves or has died just now. Versions that do not
    /// know it lose it when they write the record.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dead_ms: u64,
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

impl DriveRecord {
    /// The weight of a drive that nobody gave one: its capacity in MiB.
    pub fn weight_of_capacity(capacity_bytes: u64) -> u64 {
        capacity_bytes >> 20
    }
}

/// Where a pool is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolState {
    /// Its groups are being made. Only now does a missing group mean that it was never there.
    #[default]
    Creating,
    /// All its groups exist.
    Active,
    /// It has no volumes, and its groups are being taken away.
    Removing,
}

/// Volumes of the same policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolRecord {
    /// The pool.
    pub id: PoolId,
    /// Its name.
    pub name: String,
    /// Copies of each block: 1 to [`COPIES_MAX`].
    pub copies: u32,
    /// Writes are refused while fewer copies are in sync: 1 to `copies`.
    pub min_copies: u32,
    /// No two copies of a block are in the same of these: `drive`, `node`, or a label of nodes such as `host`, `rack`.
    pub domain: String,
    /// Its first group; a multiple of [`POOL_GROUPS_MAX`].
    #[serde(with = "group_number")]
    pub group_first: GroupId,
    /// How many groups it has, from the first one on: a power of two. Grows by doubling only (groups split).
    pub group_count: u32,
    /// Where it is in its life.
    pub state: PoolState,
}

impl PoolRecord {
    /// Its groups.
    pub fn groups(&self) -> impl ExactSizeIterator<Item = GroupId> + use<> {
        (self.group_first.0..self.group_first.0.saturating_add(self.group_count)).map(GroupId)
    }

    /// Whether the number is one of its groups.
    pub fn has_group(&self, group: GroupId) -> bool {
        group.0.checked_sub(self.group_first.0).is_some_and(|index| index < self.group_count)
    }
}

/// Where a volume is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VolumeState {
    /// Can be attached.
    Active,
    /// Its data is being deleted; its name is free again.
    Removing,
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeRecord {
    /// The volume, whatever its name.
    pub id: VolumeId,
    /// Its name.
    pub name: String,
    /// Its size; a multiple of a block.
    pub size_bytes: u64,
    /// The layer that holds its data.
    pub layer: LayerId,
    /// When it was made, for display only.
    pub created_unix_ns: u64,
    /// Where it is in its life.
    pub state: VolumeState,
    /// Grows with every attachment that must fence the ones before.
    pub attach_generation: u64,
    /// A shrink whose data is not all deleted yet: the size that it shrank from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shrinking_from_bytes: Option<u64>,
    /// The largest size that it had before its last shrink, if it ever shrank: see
    /// [`largest_bytes`](Self::largest_bytes). Versions that do not know it lose it when they write the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_max_bytes: Option<u64>,
    /// Its pool.
    pub pool: PoolId,
    /// Volumes of a family have the same chunk in the same group, so that clones lie beside their parents. The layer's
    /// number for a volume that is no clone.
    pub family: u64,
    /// Bytes that go to one chunk before the next of the stripe is used.
    pub stripe_unit_bytes: u32,
    /// Chunks that are filled at the same time.
    pub stripe_count: u32,
}

impl VolumeRecord {
    /// How its bytes are spread over chunks.
    pub fn striping(&self) -> Striping {
        Striping { stripe_unit_bytes: self.stripe_unit_bytes, stripe_count: self.stripe_count }
    }

    /// The largest size that it ever had, as far as the record says. Copies may hold what lay below: one that missed the end
    /// of a shrink, as after its log was cut, still has what was cut off. A record without `size_max_bytes` tells only of a
    /// shrink that is not done.
    pub fn largest_bytes(&self) -> u64 {
        self.size_bytes.max(self.shrinking_from_bytes.max(self.size_max_bytes).unwrap_or(0))
    }

    /// Number of chunks that its size covers.
    pub fn chunks(&self) -> u64 {
        self.striping().chunks(self.size_bytes)
    }
}

/// Why a record was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{record}: {reason}")]
pub struct InvalidRecord {
    /// The record.
    pub record: String,
    /// What is wrong with it.
    pub reason: String,
}

/// The value of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Of [`Key::Cluster`].
    Cluster(ClusterRecord),
    /// Of [`Key::Node`].
    Node(NodeRecord),
    /// Of [`Key::Drive`].
    Drive(DriveRecord),
    /// Of [`Key::Pool`].
    Pool(PoolRecord),
    /// Of [`Key::Volume`].
    Volume(VolumeRecord),
    /// Of [`Key::Groups`].
    Groups(GroupBlock),
}

impl Record {
    /// The record as it is kept in the store: JSON.
    pub fn encode(&self) -> Vec<u8> {
        let text = match self {
            Record::Cluster(record) => serde_json::to_vec(record),
            Record::Node(record) => serde_json::to_vec(record),
            Record::Drive(record) => serde_json::to_vec(record),
            Record::Pool(record) => serde_json::to_vec(record),
            Record::Volume(record) => serde_json::to_vec(record),
            Record::Groups(record) => serde_json::to_vec(record),
        };
        // Keys are text and writing to memory cannot fail.
        text.unwrap_or_else(|error| panic!("a record is always JSON: {error}"))
    }

    /// Reads the value of a key and checks it.
    pub fn decode(key: &Key, value: &[u8]) -> Result<Record, InvalidRecord> {
        let record = match key {
            Key::Cluster => serde_json::from_slice(value).map(Record::Cluster),
            Key::Node(_) => serde_json::from_slice(value).map(Record::Node),
            Key::Drive(_) => serde_json::from_slice(value).map(Record::Drive),
            Key::Pool(_) => serde_json::from_slice(value).map(Record::Pool),
            Key::Volume(_) => serde_json::from_slice(value).map(Record::Volume),
            Key::Groups(_) => serde_json::from_slice(value).map(Record::Groups),
        };
        let record = record.map_err(|error| InvalidRecord {
            record: key.to_string(),
            reason: format!("it cannot be read ({error})"),
        })?;
        record.check(key)?;
        Ok(record)
    }

    /// Checks what can be checked of a record alone.
    pub fn check(&self, key: &Key) -> Result<(), InvalidRecord> {
        let result = match (key, self) {
            (Key::Cluster, Record::Cluster(cluster)) => check_cluster(cluster),
            (Key::Node(id), Record::Node(node)) if *id == node.id => check_node(node),
            (Key::Drive(id), Record::Drive(drive)) if *id == drive.id => check_drive(drive),
            (Key::Pool(id), Record::Pool(pool)) if *id == pool.id => check_pool(pool),
            (Key::Volume(id), Record::Volume(volume)) if *id == volume.id => check_volume(volume),
            (Key::Groups(block), Record::Groups(groups)) => return groups.check(*block),
            _ => Err("its identity does not match its key".to_owned()),
        };
        result.map_err(|reason| InvalidRecord { record: key.to_string(), reason })
    }
}

fn check_that(holds: bool, reason: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(reason()) }
}

fn check_cluster(cluster: &ClusterRecord) -> Result<(), String> {
    check_that(!cluster.id.0.is_nil(), || "it has no identity".to_owned())?;
    check_that(cluster.feature_level <= FEATURE_LEVEL, || {
        format!(
            "it is of feature level {}, and this version knows {FEATURE_LEVEL}; use a newer coquina",
            cluster.feature_level
        )
    })?;
    check_that(cluster.layer_next <= NUMBER_MAX && cluster.copy_next <= NUMBER_MAX, || {
        format!("its next layer {} or copy {} is no number", cluster.layer_next, cluster.copy_next)
    })?;
    let skipped = || cluster.layers_skipped.iter().chain(&cluster.groups_skipped);
    check_that(skipped().all(|range| range.first < range.end), || {
        "numbers that were left out end before they begin".to_owned()
    })?;
    check_that(cluster.group_next != 0 && cluster.group_next.is_multiple_of(POOL_GROUPS_MAX), || {
        format!("its next group {} is not a multiple of {POOL_GROUPS_MAX}", cluster.group_next)
    })
}

fn check_node(node: &NodeRecord) -> Result<(), String> {
    check_that(!node.id.0.is_nil(), || "it has no identity".to_owned())?;
    check_name(&node.name).map_err(|error| error.to_string())?;
    check_that(node.versions.min <= node.versions.max, || "its versions are out of order".to_owned())?;
    check_that(node.domains.len() <= DOMAINS_MAX, || {
        format!("it has {} domain labels, {DOMAINS_MAX} are possible", node.domains.len())
    })?;
    for (label, name) in &node.domains {
        check_that(label != "drive" && label != "node", || {
            format!("{label:?} is no label: drives and nodes are domains by themselves")
        })?;
        check_name(label).map_err(|error| format!("domain label {label:?}: {error}"))?;
        check_name(name).map_err(|error| format!("domain {label}={name:?}: {error}"))?;
    }
    Ok(())
}

fn check_drive(drive: &DriveRecord) -> Result<(), String> {
    check_that(!drive.id.0.is_nil() && !drive.node.0.is_nil(), || "it has no identity or node".to_owned())?;
    check_that((1..=DRIVE_SHARDS_MAX).contains(&drive.shards), || {
        format!("it has {} shards, 1 to {DRIVE_SHARDS_MAX} are possible", drive.shards)
    })?;
    check_that(drive.capacity_bytes <= drive.size_bytes, || "its capacity is above its size".to_owned())?;
    check_that((1..=NUMBER_MAX).contains(&drive.copy_first), || "its shards have no copy numbers".to_owned())
}

pub(crate) fn check_pool(pool: &PoolRecord) -> Result<(), String> {
    check_that(pool.id.0 != 0, || "it has no number".to_owned())?;
    check_name(&pool.name).map_err(|error| error.to_string())?;
    check_name(&pool.domain).map_err(|error| format!("failure domain {:?}: {error}", pool.domain))?;
    check_that((1..=COPIES_MAX).contains(&pool.copies), || {
        format!("it has {} copies, 1 to {COPIES_MAX} are possible", pool.copies)
    })?;
    check_that((1..=pool.copies).contains(&pool.min_copies), || {
        format!(
            "min_copies is {}, 1 to {} are possible with {} copies",
            pool.min_copies, pool.copies, pool.copies
        )
    })?;
    let count = pool.group_count;
    check_that(count.is_power_of_two() && count <= POOL_GROUPS_MAX, || {
        format!("it has {count} groups, powers of two up to {POOL_GROUPS_MAX} are possible")
    })?;
    check_that(pool.group_first.0 != 0, || "its first group is 0, which stands for none".to_owned())?;
    check_that(pool.group_first.0.is_multiple_of(POOL_GROUPS_MAX.max(BLOCK_GROUPS)), || {
        "its first group is in the middle of another pool's".to_owned()
    })
}

fn check_volume(volume: &VolumeRecord) -> Result<(), String> {
    check_that(!volume.id.0.is_nil(), || "it has no identity".to_owned())?;
    check_name(&volume.name).map_err(|error| error.to_string())?;
    let sizes = [Some(volume.size_bytes), volume.shrinking_from_bytes, volume.size_max_bytes];
    for size_bytes in sizes.into_iter().flatten() {
        let holds =
            size_bytes > 0 && size_bytes <= VOLUME_BYTES_MAX && size_bytes.is_multiple_of(BLOCK_BYTES as u64);
        check_that(holds, || format!("its size is {size_bytes} bytes"))?;
        volume.striping().check(size_bytes).map_err(|error| error.to_string())?;
    }
    check_that((1..=NUMBER_MAX).contains(&volume.layer.0), || "it has no layer".to_owned())
}
