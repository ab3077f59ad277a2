//! What an operator sees of the cluster: groups by state, and what is wrong, with stable codes and what to do.

use std::collections::{BTreeMap, BTreeSet};

use coquina_base::{DriveId, NodeId};
use serde::{Deserialize, Serialize};

use crate::coordinator::{Coordinator, Liveness, ShardLife, Stuck};
use crate::group::GroupRecord;
use crate::key::PoolId;
use crate::map::MapView;
use crate::placement::PlacementError;
use crate::record::{DriveRecord, DriveState, PoolRecord, PoolState, Wanted};

/// A stable code; scripts and alert rules may rely on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum HealthCode {
    /// The store of the map has lost changes.
    MapWentBack,
    /// No copy in sync of a group can be reached: its data cannot be read or written.
    GroupDown,
    /// Fewer copies in sync than `min_copies`: writes are refused.
    GroupBelowMinCopies,
    /// Fewer copies in sync than the pool has.
    GroupDegraded,
    /// Copies on a drive are out though it serves, and have not got on for long.
    CopyStuck,
    /// More than half of the nodes are silent for the coordinator: nobody is removed.
    CoordinatorIsolated,
    /// A node does not answer.
    NodeDown,
    /// A drive takes no changes: a write failed.
    DriveReadOnly,
    /// A drive cannot be used.
    DriveMissing,
    /// The copies of a pool cannot be kept apart as it says.
    TooFewDomains,
    /// A node or drive is to be removed, and its data is being moved.
    Removing,
    /// A pool is being created or removed.
    PoolPending,
    /// The store of the map does not answer: the map cannot change, I/O goes on.
    StoreUnreachable,
    /// The store of the map answers and takes no changes: it is full, say.
    StoreRefusesChanges,
    /// A process cannot write its folder.
    FolderNotWritten,
    /// No process leads: nobody decides on failures.
    NoLeader,
    /// No room for new data.
    DriveFull,
    /// Little room for new data.
    DriveNearlyFull,
    /// I/Os on a drive take long.
    SlowDrive,
    /// Blocks do not match their checksums or cannot be read.
    BadBlocks,
    /// Copies in sync hold different data, and all have good checksums for it.
    CopiesDiffer,
    /// Acknowledged data was not found at start-up.
    DamagedLog,
    /// Volume sizes, times copies, add up to more than the drives can hold.
    Overcommitted,
    /// The data of a removed volume could not be deleted yet.
    RemovalPending,
    /// What a volume held beyond its new end could not be deleted yet.
    ShrinkPending,
    /// Interfaces without certificates are reachable from other hosts.
    OpenInterface,
    /// A record of the map whose node or pool is not there.
    MapOrphan,
    /// Drives hold data of volumes that the map lost when it was put back to an older state.
    LostVolumes,
    /// A code of a newer node that this program does not know. The entry's other parts are that node's.
    #[serde(other)]
    Unknown,
}

impl HealthCode {
    /// The code as shown, such as `NODE_DOWN`.
    pub fn as_str(self) -> &'static str {
        match self {
            HealthCode::MapWentBack => "MAP_WENT_BACK",
            HealthCode::GroupDown => "GROUP_DOWN",
            HealthCode::GroupBelowMinCopies => "GROUP_BELOW_MIN_COPIES",
            HealthCode::GroupDegraded => "GROUP_DEGRADED",
            HealthCode::CopyStuck => "COPY_STUCK",
            HealthCode::CoordinatorIsolated => "COORDINATOR_ISOLATED",
            HealthCode::NodeDown => "NODE_DOWN",
            HealthCode::DriveReadOnly => "DRIVE_READ_ONLY",
            HealthCode::DriveMissing => "DRIVE_MISSING",
            HealthCode::TooFewDomains => "TOO_FEW_DOMAINS",
            HealthCode::Removing => "REMOVING",
            HealthCode::PoolPending => "POOL_PENDING",
            HealthCode::StoreUnreachable => "STORE_UNREACHABLE",
            HealthCode::StoreRefusesChanges => "STORE_REFUSES_CHANGES",
            HealthCode::FolderNotWritten => "FOLDER_NOT_WRITTEN",
            HealthCode::NoLeader => "NO_LEADER",
            HealthCode::DriveFull => "DRIVE_FULL",
            HealthCode::DriveNearlyFull => "DRIVE_NEARLY_FULL",
            HealthCode::SlowDrive => "SLOW_DRIVE",
            HealthCode::BadBlocks => "BAD_BLOCKS",
            HealthCode::CopiesDiffer => "COPIES_DIFFER",
            HealthCode::DamagedLog => "DAMAGED_LOG",
            HealthCode::Overcommitted => "OVERCOMMITTED",
            HealthCode::RemovalPending => "REMOVAL_PENDING",
            HealthCode::ShrinkPending => "SHRINK_PENDING",
            HealthCode::OpenInterface => "OPEN_INTERFACE",
            HealthCode::MapOrphan => "MAP_ORPHAN",
            HealthCode::LostVolumes => "LOST_VOLUMES",
            HealthCode::Unknown => "UNKNOWN",
        }
    }

    /// How bad it is.
    pub fn severity(self) -> Severity {
        match self {
            HealthCode::MapWentBack
            | HealthCode::GroupDown
            | HealthCode::GroupBelowMinCopies
            | HealthCode::CoordinatorIsolated
            | HealthCode::DriveFull
            | HealthCode::CopiesDiffer
            | HealthCode::DamagedLog => Severity::Error,
            HealthCode::Removing
            | HealthCode::PoolPending
            | HealthCode::RemovalPending
            | HealthCode::ShrinkPending => Severity::Notice,
            _ => Severity::Warning,
        }
    }

    /// What to do about it.
    pub fn advice(self) -> &'static str {
        match self {
            HealthCode::MapWentBack => {
                "stop all processes and bring back the newest state of the store; I/O is refused until then. Once it is certain \
                 that it is the newest, delete `cluster.json` in the folder (--dir) of each node and gateway, and start them"
            }
            HealthCode::GroupDown => "start the nodes and drives named here: they have the only good copies",
            HealthCode::GroupBelowMinCopies => {
                "start the missing nodes, or wait until copies are made anew; writes are refused until then"
            }
            HealthCode::GroupDegraded => {
                "nothing, copies are being brought up; start missing nodes, or replace missing drives"
            }
            HealthCode::CopyStuck => {
                "see whether the nodes named here reach each other at their peer addresses, and whether DAMAGED_LOG names a copy there \
                 that has stopped: restart its node, after making room if it says NoSpace. If neither helps, remove the drive \
                 with `coquina drive remove`, and its copies are made anew elsewhere"
            }
            HealthCode::CoordinatorIsolated => {
                "look at the network between the nodes; if the silent ones are lost for good, give their drives up \
                 with `coquina drive remove --lost`"
            }
            HealthCode::NodeDown => {
                "start the node, or look at its network; if it is gone for good, remove it"
            }
            HealthCode::DriveReadOnly => {
                "look for the device's errors in the kernel log and replace it; its copies are made anew elsewhere"
            }
            HealthCode::DriveMissing => {
                "bring the drive back, or give it up with `coquina drive remove --lost` to have its copies made anew elsewhere"
            }
            HealthCode::TooFewDomains => {
                "add nodes or drives in other failure domains, or label the nodes that have no label"
            }
            HealthCode::Removing | HealthCode::PoolPending => "nothing; it goes on by itself",
            HealthCode::StoreUnreachable => {
                "start etcd, or look at the network to it (of `coquina up`: at its process and at the disk under its --dir); I/O goes on, but no failure is handled and nothing can be \
                 changed until it answers"
            }
            HealthCode::StoreRefusesChanges => {
                "do what the message says, such as making room in etcd; I/O goes on, but no failure is handled and nothing \
                 can be changed until it takes changes"
            }
            HealthCode::FolderNotWritten => {
                "look at the disk under the folder of that process (--dir), and make room there; until then its next start may \
                 not notice that the store went back"
            }
            HealthCode::NoLeader => {
                "nothing if it lasts for seconds only; otherwise look whether the store answers and the nodes' clocks run"
            }
            HealthCode::DriveFull => "remove or trim volumes, or add a drive with `coquina drive add`",
            HealthCode::DriveNearlyFull => {
                "remove or trim volumes, or add a drive with `coquina drive add`, before it is full"
            }
            HealthCode::SlowDrive => {
                "look for the device's errors in the kernel log and for other load on it"
            }
            HealthCode::BadBlocks => {
                "nothing for volumes with another good copy, they are repaired from it; run `coquina drive scrub` to \
                 find all of them, and replace the device if there are more"
            }
            HealthCode::CopiesDiffer => {
                "report this: it is not to happen. Clients get what the primary has. The log names the blocks; remove the \
                 drive whose copy is wrong, or write the blocks anew, and scrub again"
            }
            HealthCode::DamagedLog => {
                "nothing for volumes with another good copy; restore others, named in the node's log, from a backup. Run \
                 `coquina drive check` on the stopped drive"
            }
            HealthCode::Overcommitted => "add a drive, or shrink or remove volumes",
            HealthCode::RemovalPending => {
                "nothing while all nodes run, it goes on by itself; start the nodes that are down, or remove those that \
                 are gone for good"
            }
            HealthCode::ShrinkPending => {
                "nothing while all nodes run, it goes on by itself; start the nodes that are down. If it stays, the log of the \
                 process that leads says why"
            }
            HealthCode::MapOrphan => {
                "nothing for a drive that nothing names, it goes by itself; otherwise report it, and keep a copy of the store: \
                 everything else works"
            }
            HealthCode::LostVolumes => {
                "if there is a newer state of the map (etcd or `store/`), bring it back; if there is none, give the data up to free \
                 its space: `coquina volume forget-lost`"
            }
            HealthCode::Unknown => {
                "ask a node of the newest version how the cluster is: this one does not know the code"
            }
            HealthCode::OpenInterface => "give addresses on 127.0.0.1 or a private network",
        }
    }
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Something is under way as it should.
    Notice,
    /// Everything works; something needs attention.
    Warning,
    /// Something does not work.
    Error,
}

/// Something that an operator should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthEntry {
    /// A stable code.
    pub code: HealthCode,
    /// How bad it is.
    pub severity: Severity,
    /// What is concerned: a node, a drive, a pool.
    pub subject: String,
    /// What is wrong, with figures.
    pub message: String,
    /// What to do about it.
    pub advice: String,
}

impl HealthEntry {
    /// An entry with the code's usual advice.
    pub fn new(
        code: HealthCode,
        severity: Severity,
        subject: impl Into<String>,
        message: impl Into<String>,
    ) -> HealthEntry {
        let advice = code.advice().to_owned();
        HealthEntry { code, severity, subject: subject.into(), message: message.into(), advice }
    }

    /// An entry as bad as is usual for its code.
    pub fn usual(code: HealthCode, subject: impl Into<String>, message: impl Into<String>) -> HealthEntry {
        HealthEntry::new(code, code.severity(), subject, message)
    }
}

/// Groups by state. One group can be in several, except for `active_clean`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GroupCounts {
    /// All of them.
    pub total: u64,
    /// As many copies in sync and alive as there should be, where they should be.
    pub active_clean: u64,
    /// No copy in sync is alive.
    pub down: u64,
    /// Fewer copies in sync and alive than `min_copies`.
    pub below_min_copies: u64,
    /// Fewer copies in sync and alive than the pool has.
    pub degraded: u64,
    /// Degraded, and not even members for all copies are alive.
    pub undersized: u64,
    /// Degraded, and a copy is being brought up and gets on.
    pub recovering: u64,
    /// A copy is out and alive, and has not got on for long.
    #[serde(default)]
    pub stuck: u64,
    /// All copies are there, but not yet where they are to be.
    pub moving: u64,
    /// Copies that are missing, all groups together.
    pub copies_missing: u64,
}

impl GroupCounts {
    fn count(&mut self, map: &MapView, liveness: &Liveness, stuck: &Stuck, group: &GroupRecord) {
        let Some(pool) = map.pool(group.pool) else { return };
        let alive = |shards: &[crate::ShardRef]| {
            shards.iter().filter(|shard| liveness.shard(map, **shard) == ShardLife::Alive).count() as u64
        };
        let (in_sync, others) = (alive(&group.in_sync), alive(&group.others));
        let is_stuck = |shard: &&crate::ShardRef| stuck.contains_key(&(group.id, **shard));
        let stuck = group.others.iter().filter(is_stuck).count() as u64;
        let (copies, min_copies) = (u64::from(pool.copies), u64::from(pool.min_copies));
        let degraded = in_sync < copies;
        let settled = group.wanted.is_empty() && group.others.is_empty();
        let moving = !degraded && !settled;
        self.total += 1;
        self.active_clean += u64::from(!degraded && !moving);
        self.down += u64::from(in_sync == 0);
        self.below_min_copies += u64::from(in_sync < min_copies);
        self.degraded += u64::from(degraded);
        self.undersized += u64::from(degraded && in_sync + others < copies);
        self.recovering += u64::from(degraded && in_sync > 0 && others > stuck);
        self.stuck += u64::from(stuck > 0);
        self.moving += u64::from(moving);
        self.copies_missing += copies.saturating_sub(in_sync);
    }
}

/// The state of the cluster as its coordinator sees it.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ClusterHealth {
    /// All groups by state.
    pub groups: GroupCounts,
    /// The same by pool.
    pub pools: BTreeMap<PoolId, GroupCounts>,
    /// What is wrong, worst first.
    pub entries: Vec<HealthEntry>,
}

impl ClusterHealth {
    /// The health as a coordinator sees it. Costs a pass over all groups.
    pub fn of(coordinator: &Coordinator) -> ClusterHealth {
        let errors = coordinator.placement_errors();
        let (map, liveness, stuck) = (coordinator.map(), coordinator.liveness(), coordinator.stuck());
        let mut health = ClusterHealth::derive(map, liveness, &stuck, errors);
        if let Some(error) = coordinator.halted() {
            let entry = HealthEntry::usual(HealthCode::MapWentBack, "cluster", error.to_string());
            health.entries.insert(0, entry);
        }
        health
    }

    /// The health that follows from the map, from who is alive and from who does not get on.
    fn derive(
        map: &MapView,
        liveness: &Liveness,
        stuck: &Stuck,
        errors: &BTreeMap<PoolId, PlacementError>,
    ) -> ClusterHealth {
        let mut health = ClusterHealth::default();
        let mut needed: BTreeSet<DriveId> = BTreeSet::new();
        for group in map.groups() {
            health.groups.count(map, liveness, stuck, group);
            let counts = health.pools.entry(group.pool).or_default();
            let down = counts.down;
            counts.count(map, liveness, stuck, group);
            if counts.down > down {
                needed.extend(group.in_sync.iter().map(|shard| shard.drive));
            }
        }
        health.pool_entries(map, liveness, errors, &needed);
        health.node_entries(map, liveness);
        health.drive_entries(map, liveness);
        health.stuck_entries(map, stuck);
        health.entries.sort_by(|a, b| {
            b.severity.cmp(&a.severity).then(a.code.cmp(&b.code)).then(a.subject.cmp(&b.subject))
        });
        health
    }

    fn pool_entries(
        &mut self,
        map: &MapView,
        liveness: &Liveness,
        errors: &BTreeMap<PoolId, PlacementError>,
        needed: &BTreeSet<DriveId>,
    ) {
        for pool in map.pools() {
            let pool = &pool.value;
            let subject = format!("pool {}", pool.name);
            let mut add =
                |code, message| self.entries.push(HealthEntry::usual(code, subject.clone(), message));
            let counts = self.pools.get(&pool.id).copied().unwrap_or_default();
            let of = format!("of {} group(s)", counts.total);
            if counts.down > 0 {
                let drives: Vec<String> = needed
                    .iter()
                    .filter_map(|id| map.drive(*id))
                    .map(|drive| format!("{} on {}", drive.path, node_name(map, drive.node)))
                    .collect();
                let shown = listed(drives.into_iter());
                let message = format!("{} {of} are down; good copies are on {shown}", counts.down);
                add(HealthCode::GroupDown, message);
            }
            if counts.below_min_copies > counts.down {
                let message = format!(
                    "{} {of} have fewer than {} copies in sync",
                    counts.below_min_copies, pool.min_copies
                );
                add(HealthCode::GroupBelowMinCopies, message);
            }
            if let Some(error) = errors.get(&pool.id) {
                add(HealthCode::TooFewDomains, error.to_string());
            }
            let degraded = (counts.degraded > 0).then(|| {
                let mut message = format!(
                    "{} {of} lack {} copies, {} are being recovered",
                    counts.degraded, counts.copies_missing, counts.recovering
                );
                if counts.stuck > 0 {
                    message.push_str(&format!("; {} have a copy that does not get on", counts.stuck));
                }
                let mut entry = HealthEntry::usual(HealthCode::GroupDegraded, subject.clone(), message);
                if counts.recovering < counts.degraded {
                    let lacks_domains = errors.contains_key(&pool.id);
                    entry.advice = waits_for(map, liveness, pool, &counts, lacks_domains).to_owned();
                }
                entry
            });
            match pool.state {
                PoolState::Active => {}
                PoolState::Creating => {
                    add(
                        HealthCode::PoolPending,
                        format!("{} of {} groups are made", counts.total, pool.group_count),
                    );
                }
                PoolState::Removing => add(HealthCode::PoolPending, "it is being removed".to_owned()),
            }
            self.entries.extend(degraded);
        }
    }

    fn node_entries(&mut self, map: &MapView, liveness: &Liveness) {
        if liveness.is_isolated() {
            let message = "more than half of the nodes are silent at once; none of them counts as dead";
            self.entries.push(HealthEntry::usual(HealthCode::CoordinatorIsolated, "coordinator", message));
        }
        for node in map.nodes() {
            let (id, subject) = (node.value.id, format!("node {}", node.value.name));
            if liveness.is_node_dead(id) {
                let drives = map.drives_of(id).count();
                let message = format!("it does not answer; it has {drives} drive(s)");
                self.entries.push(HealthEntry::usual(HealthCode::NodeDown, subject.clone(), message));
            }
            if node.value.wanted == Wanted::Removing {
                let groups: usize = map.drives_of(id).map(|drive| groups_on(map, drive.id)).sum();
                let message = format!("{groups} group(s) have still a copy there");
                self.entries.push(HealthEntry::usual(HealthCode::Removing, subject, message));
            }
        }
    }

    /// An entry for each drive with copies that are out, alive and do not get on.
    fn stuck_entries(&mut self, map: &MapView, stuck: &Stuck) {
        let mut drives: BTreeMap<DriveId, StuckDrive> = BTreeMap::new();
        for ((group, shard), stuck_ns) in stuck {
            let drive = drives.entry(shard.drive).or_default();
            drive.groups.push(group.0);
            drive.stuck_ns_max = drive.stuck_ns_max.max(*stuck_ns);
            let primary = map.group(*group).and_then(GroupRecord::primary);
            drive.primaries.extend(primary.and_then(|primary| map.node_of(primary)));
        }
        for (id, stuck) in drives {
            let Some(drive) = map.drive(id) else { continue };
            let groups = listed(stuck.groups.iter().map(u32::to_string));
            let primaries = listed(stuck.primaries.iter().map(|node| node_name(map, *node)));
            let message = format!(
                "{} group(s) have a copy there that is out and has not got on for {}, though the drive serves; their primaries are \
                 on {primaries}; groups {groups}",
                stuck.groups.len(),
                long_time(stuck.stuck_ns_max),
            );
            let subject = format!("drive {} on {}", drive.path, node_name(map, drive.node));
            self.entries.push(HealthEntry::usual(HealthCode::CopyStuck, subject, message));
        }
    }

    fn drive_entries(&mut self, map: &MapView, liveness: &Liveness) {
        for drive in map.drives() {
            let drive = &drive.value;
            let subject = format!("drive {} on {}", drive.path, node_name(map, drive.node));
            let mut add =
                |code, message| self.entries.push(HealthEntry::usual(code, subject.clone(), message));
            let groups = || groups_on(map, drive.id);
            match drive.state {
                DriveState::Healthy => {}
                DriveState::ReadOnly => {
                    add(
                        HealthCode::DriveReadOnly,
                        format!("a write failed; {} group(s) are on it", groups()),
                    );
                }
                // The node's entry says enough of the drives of a node that is down.
                DriveState::Missing if liveness.is_node_dead(drive.node) => {}
                DriveState::Missing => {
                    add(
                        HealthCode::DriveMissing,
                        format!("it cannot be used; {} group(s) are on it", groups()),
                    );
                }
                DriveState::GivenUp => {
                    add(HealthCode::Removing, format!("given up; {} group(s) still name it", groups()));
                }
            }
            if drive.wanted == Wanted::Removing && drive.state != DriveState::GivenUp {
                add(HealthCode::Removing, format!("{} group(s) have still a copy there", groups()));
            }
        }
    }
}

/// What copies of a pool wait for that are missing and not being made.
fn waits_for(
    map: &MapView,
    liveness: &Liveness,
    pool: &PoolRecord,
    counts: &GroupCounts,
    lacks_domains: bool,
) -> &'static str {
    // Placement was tried without what has been silent for too long, and found no place.
    if lacks_domains {
        return "bring back what is missing, or add nodes or drives in other failure domains: there is none with room for another \
                copy, so none is made anew";
    }
    let groups = || map.groups().filter(|group| group.pool == pool.id);
    let may_return = |drive: DriveId| {
        let is_silent = |record: &DriveRecord| {
            record.state == DriveState::Healthy && !liveness.is_node_alive(record.node)
        };
        map.drive(drive).is_some_and(is_silent)
    };
    if groups().flat_map(|group| group.named()).any(|shard| may_return(shard.drive)) {
        return "start the nodes that are down, and their copies catch up; those that stay silent for 10 minutes have their copies \
                made anew elsewhere, if there is another failure domain with room";
    }
    if counts.stuck > 0 {
        return "do what COPY_STUCK says of the drives that it names: copies there are out though their drives serve, and do not get \
                on by themselves";
    }
    "nothing for a moment, the next copies are made when the ones before them are done; if the number does not fall, bring back what \
     is missing, or add nodes or drives in other failure domains with room"
}

/// Copies on a drive that do not get on.
#[derive(Default)]
struct StuckDrive {
    groups: Vec<u32>,
    primaries: BTreeSet<NodeId>,
    stuck_ns_max: u64,
}

/// The first of some names, and whether there are more.
fn listed(names: impl ExactSizeIterator<Item = String>) -> String {
    const SHOWN: usize = 8;
    let more = if names.len() > SHOWN { ", ..." } else { "" };
    format!("{}{more}", names.take(SHOWN).collect::<Vec<_>>().join(", "))
}

/// A time of minutes or more, roughly.
fn long_time(time_ns: u64) -> String {
    let minutes = time_ns / 60_000_000_000;
    match minutes {
        0..2 => format!("{} s", time_ns / 1_000_000_000),
        2..120 => format!("{minutes} min"),
        _ => format!("{} h", minutes / 60),
    }
}

fn groups_on(map: &MapView, drive: DriveId) -> usize {
    map.used_shards_of(drive).map(|(_, groups)| groups.len()).sum()
}

fn node_name(map: &MapView, node: NodeId) -> String {
    map.node(node).map_or_else(|| node.to_string(), |node| node.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The whole answer of a newer node could not be read, so that it was taken for silent.
    #[test]
    fn an_entry_with_a_code_of_a_newer_node_is_read_and_told_on() {
        let newer = r#"{"code":"TOO_MANY_CATS","severity":"error","subject":"drive /d on n1",
            "message":"three cats sleep on it","advice":"wake them"}"#;
        let entry: HealthEntry = serde_json::from_str(newer).unwrap();
        assert_eq!((entry.code, entry.severity), (HealthCode::Unknown, Severity::Error));
        assert_eq!((entry.message.as_str(), entry.advice.as_str()), ("three cats sleep on it", "wake them"));
        let again = serde_json::to_string(&entry).unwrap();
        assert!(again.contains("\"UNKNOWN\""), "{again}");
        assert_eq!(serde_json::from_str::<HealthEntry>(&again).unwrap(), entry);
        let known: HealthCode = serde_json::from_str("\"BAD_BLOCKS\"").unwrap();
        assert_eq!(known, HealthCode::BadBlocks);
    }
}
