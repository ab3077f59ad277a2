//! How the cluster is: what its leader says, what nodes found, and what follows from their counters.

use std::collections::BTreeMap;

use coquina_base::{DriveId, NodeId, format_size_bytes};
use coquina_cluster::{DriveState, GroupRecord, HealthCode, HealthEntry, MapView, Severity, VolumeState};

use crate::api::{LeaderHealth, Local};
use crate::backend::{DriveSnapshot, ShardSnapshot};
use crate::catalogue::Room;
use crate::map_service::StoreState;

/// A drive counts as nearly full from this part of its capacity on.
const NEARLY_FULL_PERCENT: u128 = 85;
/// A drive counts as full from this part of its capacity on.
const FULL_PERCENT: u128 = 99;

/// What to do about a store in the folder of a server that could not write its file.
const BROKEN_ADVICE: &str = "look at the disk under --dir of `coquina up` and make room there: the store tries again every second and takes \
                             changes again by itself. I/O goes on, but no failure is handled and nothing can be changed until then";

/// What is known of the cluster besides its map.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known<'a> {
    /// What processes count, by node. Nodes that do not answer are missing.
    pub(crate) nodes: BTreeMap<NodeId, &'a Local>,
    /// What this process counts, if it is no node.
    pub(crate) own: Option<&'a Local>,
    /// What the leader says, if it could be asked.
    pub(crate) leader: Option<&'a LeaderHealth>,
    /// Whether somebody leads.
    pub(crate) led: bool,
    /// The store.
    pub(crate) store: StoreState,
}

/// Everything that an operator should know. Worst first.
pub(crate) fn derive(map: &MapView, known: &Known<'_>, more: &[HealthEntry]) -> Vec<HealthEntry> {
    let mut entries = more.to_vec();
    if let Some(leader) = known.leader {
        entries.extend(leader.health.entries.iter().cloned());
    }
    store_health(known, &mut entries);
    for local in known.nodes.values().copied().chain(known.own) {
        entries.extend(local.snapshot.health.iter().cloned());
        for drive in &local.snapshot.drives {
            let node = local.node.and_then(|node| map.node(node));
            let severity = if has_single_copies(map, drive.id) { Severity::Error } else { Severity::Warning };
            drive_health(node.map_or("", |node| &node.name), drive, severity, &mut entries);
        }
        for absent in &local.snapshot.absent {
            if !is_served_elsewhere(map, known, local.node, absent.id) {
                absent_health(map, absent, &mut entries);
            }
        }
    }
    if known.leader.is_none() {
        nodes_health(map, known, &mut entries);
    }
    map_health(map, &mut entries);
    // The leader and a node may both know that a drive is missing; the first one says what is wrong with it.
    entries.sort_by(|a, b| {
        b.severity.cmp(&a.severity).then(a.code.cmp(&b.code)).then(a.subject.cmp(&b.subject))
    });
    entries.dedup_by(|b, a| a.code == b.code && a.subject == b.subject && a.message == b.message);
    entries
}

fn store_health(known: &Known<'_>, entries: &mut Vec<HealthEntry>) {
    if let Some(error) = &known.store.refused {
        entries.push(HealthEntry::usual(HealthCode::MapWentBack, "cluster map", error.to_string()));
        // The store answers; it is this process that follows it no more, and no leader either.
        return;
    }
    match &known.store.unreachable {
        Some((_, reason)) if known.store.broken => {
            let mut entry = HealthEntry::usual(HealthCode::StoreUnreachable, "store", reason.clone());
            entry.advice = BROKEN_ADVICE.to_owned();
            entries.push(entry);
        }
        Some((since, reason)) => {
            let message = format!("no answer for {} s: {reason}", since.elapsed().as_secs());
            entries.push(HealthEntry::usual(HealthCode::StoreUnreachable, "store", message));
        }
        None => {}
    }
    if known.leader.is_none() {
        let message = if known.led {
            "the process that leads does not answer here"
        } else {
            "nobody leads: failures are not handled and nothing moves"
        };
        entries.push(HealthEntry::usual(HealthCode::NoLeader, "cluster", message));
    }
}

/// What a process says of itself, so that all others tell it, too.
pub(crate) fn of_process(store: &StoreState, process: &str) -> Vec<HealthEntry> {
    let not_remembered = store.not_remembered.as_ref().map(|reason| {
        let message = format!("it cannot be remembered how far the store is: {reason}");
        HealthEntry::usual(HealthCode::FolderNotWritten, process, message)
    });
    let lost = (!store.lost_layers.is_empty()).then(|| {
        let message = format!(
            "drives here hold data of {} volume(s) that the map does not know: it was put back to an older state",
            store.lost_layers.len()
        );
        HealthEntry::usual(HealthCode::LostVolumes, process, message)
    });
    // A store whose file cannot be written is told as that already.
    let is_told = store.broken && store.unreachable.is_some();
    let refused = store.changes_refused.as_ref().filter(|_| !is_told);
    let entry =
        |reason: &String| HealthEntry::usual(HealthCode::StoreRefusesChanges, "store", reason.clone());
    refused.map(|refused| entry(&refused.reason)).into_iter().chain(not_remembered).chain(lost).collect()
}

/// Without a leader nodes that do not answer are told as that; nobody has judged them.
fn nodes_health(map: &MapView, known: &Known<'_>, entries: &mut Vec<HealthEntry>) {
    for node in map.nodes().filter(|node| !known.nodes.contains_key(&node.value.id)) {
        let subject = format!("node {}", node.value.name);
        entries.push(HealthEntry::usual(HealthCode::NodeDown, subject, "it does not answer this process"));
    }
}

/// Whether a drive that a node cannot use is another one's by the map, and is served: it has moved on. One that has just come to a node
/// stays another one's until it can be used.
fn is_served_elsewhere(map: &MapView, known: &Known<'_>, node: Option<NodeId>, drive: DriveId) -> bool {
    let mut served = known.nodes.values().flat_map(|local| &local.snapshot.drives);
    map.drive(drive).is_some_and(|record| Some(record.node) != node) && served.any(|one| one.id == drive)
}

fn absent_health(map: &MapView, absent: &crate::backend::AbsentDrive, entries: &mut Vec<HealthEntry>) {
    let Some(drive) = map.drive(absent.id).filter(|drive| drive.state != DriveState::GivenUp) else { return };
    let node = map.node(drive.node).map_or("", |node| &node.name);
    let subject = drive_subject(node, &drive.path);
    let groups: usize = map.used_shards_of(drive.id).map(|(_, groups)| groups.len()).sum();
    let message =
        format!("drive {} cannot be used ({}); {groups} group(s) are on it", drive.id, absent.reason);
    // Says more than the leader knows.
    entries.retain(|entry| entry.code != HealthCode::DriveMissing || entry.subject != subject);
    entries.push(HealthEntry::usual(HealthCode::DriveMissing, subject, message));
}

fn map_health(map: &MapView, entries: &mut Vec<HealthEntry>) {
    for (key, lacks) in map.orphans() {
        let message = format!("{lacks}; nothing uses this record");
        entries.push(HealthEntry::usual(HealthCode::MapOrphan, format!("record {key}"), message));
    }
    let room = Room::of(map);
    if room.provisioned_bytes > room.provisionable_bytes {
        let message = format!(
            "volume sizes, times copies, add up to {}, {} are allowed",
            format_size_bytes(room.provisioned_bytes),
            format_size_bytes(room.provisionable_bytes)
        );
        entries.push(HealthEntry::usual(HealthCode::Overcommitted, "cluster", message));
    }
    for volume in map.volumes().map(|volume| &volume.value) {
        let mut add = |code, message: String| {
            entries.push(HealthEntry::usual(code, format!("volume {}", volume.name), message));
        };
        match (volume.state, volume.shrinking_from_bytes) {
            (VolumeState::Removing, _) => {
                add(HealthCode::RemovalPending, "not all nodes know yet that it is gone".to_owned());
            }
            (VolumeState::Active, Some(from_bytes)) => {
                let message = format!(
                    "what it held beyond its {}, up to {}, is not deleted yet",
                    format_size_bytes(volume.size_bytes),
                    format_size_bytes(from_bytes)
                );
                add(HealthCode::ShrinkPending, message);
            }
            (VolumeState::Active, None) => {}
        }
    }
}

/// Whether what goes wrong on a drive cannot be made good from another copy: those that are out do not count.
fn has_single_copies(map: &MapView, drive: DriveId) -> bool {
    let groups = map.used_shards_of(drive).flat_map(|(_, groups)| groups);
    let is_only_here = |group: &GroupRecord| group.in_sync.iter().all(|shard| shard.drive == drive);
    groups.filter_map(|group| map.group(*group)).any(is_only_here)
}

/// What a drive is called in health entries, as the coordinator calls it too.
fn drive_subject(node: &str, path: &str) -> String {
    format!("drive {path} on {node}")
}

/// `severity` is that of damage: an error where there is no other copy.
fn drive_health(node: &str, drive: &DriveSnapshot, severity: Severity, entries: &mut Vec<HealthEntry>) {
    let subject = drive_subject(node, &drive.path);
    let poisoned = drive.shards.iter().filter(|shard| shard.stats.poisoned).count();
    if poisoned > 0 {
        let message = format!("a write failed on {poisoned} of its {} shards", drive.shards.len());
        entries.retain(|entry| entry.code != HealthCode::DriveReadOnly || entry.subject != subject);
        entries.push(HealthEntry::new(HealthCode::DriveReadOnly, severity, subject.clone(), message));
    }
    // A scrub may find more than the engine keeps in mind.
    let left = |shard: &ShardSnapshot| shard.stats.bad_blocks_left.max(shard.scrub_blocks_left);
    let bad: u64 = drive.shards.iter().map(left).fold(0, u64::saturating_add);
    if bad > 0 {
        let message = format!("{bad} bad block(s) that are not repaired");
        entries.push(HealthEntry::new(HealthCode::BadBlocks, severity, subject.clone(), message));
    }
    let groups = drive.shards.iter().flat_map(|shard| &shard.groups);
    for group in groups.filter(|group| group.differing_blocks > 0) {
        let message = format!("copies differ in {} blocks, or parts of them", group.differing_blocks);
        let subject = format!("group {}", group.group);
        entries.push(HealthEntry::usual(HealthCode::CopiesDiffer, subject, message));
    }
    let fullest = drive
        .shards
        .iter()
        .filter(|shard| shard.stats.capacity_bytes > 0)
        .map(|shard| u128::from(shard.stats.live_bytes) * 100 / u128::from(shard.stats.capacity_bytes))
        .max()
        // More where other primaries have filled what is kept for them.
        .map_or(0, |percent| percent.min(100));
    if fullest >= FULL_PERCENT {
        entries.push(HealthEntry::usual(
            HealthCode::DriveFull,
            subject,
            format!("{fullest} % of a shard is in use"),
        ));
    } else if fullest >= NEARLY_FULL_PERCENT {
        entries.push(HealthEntry::usual(
            HealthCode::DriveNearlyFull,
            subject,
            format!("{fullest} % of a shard is in use"),
        ));
    }
}

/// The worst severity, as the interface shows it.
pub(crate) fn state_of(entries: &[HealthEntry]) -> crate::api::HealthState {
    match entries.iter().map(|entry| entry.severity).max() {
        None | Some(Severity::Notice) => crate::api::HealthState::Ok,
        Some(Severity::Warning) => crate::api::HealthState::Warning,
        Some(Severity::Error) => crate::api::HealthState::Error,
    }
}

#[cfg(test)]
mod tests {
    use coquina_base::{ClusterId, Id128};
    use coquina_cluster::{ClusterRecord, Key, Record};
    use coquina_engine::ShardStats;

    use super::*;
    use crate::backend::{AbsentDrive, NodeSnapshot, ScrubRecord};

    fn map() -> MapView {
        let cluster = ClusterRecord::new(ClusterId(Id128([1; 16])));
        MapView::load(vec![(Key::Cluster, 1, Record::Cluster(cluster))], 1).unwrap()
    }

    fn drive(live_bytes: u64, bad_blocks_left: u64, poisoned: bool) -> DriveSnapshot {
        let stats =
            ShardStats { capacity_bytes: 100, live_bytes, bad_blocks_left, poisoned, ..Default::default() };
        DriveSnapshot {
            id: DriveId(Id128([3; 16])),
            path: "/d".to_owned(),
            shards: vec![ShardSnapshot { stats, ..Default::default() }],
            ..Default::default()
        }
    }

    #[test]
    fn entries_follow_from_counters_worst_first() {
        let leader = LeaderHealth::default();
        let codes = |drive: DriveSnapshot| {
            let snapshot = NodeSnapshot { drives: vec![drive], ..Default::default() };
            let own = Local { snapshot, ..Local::default() };
            let known = Known { own: Some(&own), leader: Some(&leader), ..Known::default() };
            derive(&map(), &known, &[]).iter().map(|entry| entry.code).collect::<Vec<_>>()
        };
        assert_eq!(codes(drive(10, 0, false)), []);
        // Not scrubbed for long is nothing wrong; what the last scrub has found and nobody has mended is.
        let mut scrubbed = drive(10, 0, false);
        scrubbed.shards[0].last_scrub = Some(ScrubRecord::default());
        assert_eq!(codes(scrubbed.clone()), []);
        scrubbed.shards[0].scrub_blocks_left = 70_000;
        assert_eq!(codes(scrubbed), [HealthCode::BadBlocks]);
        assert_eq!(codes(drive(85, 0, false)), [HealthCode::DriveNearlyFull]);
        assert_eq!(codes(drive(99, 0, false)), [HealthCode::DriveFull]);
        assert_eq!(
            codes(drive(90, 2, true)),
            [HealthCode::DriveReadOnly, HealthCode::DriveNearlyFull, HealthCode::BadBlocks]
        );
    }

    #[test]
    fn a_lost_store_and_a_lost_leader_are_told() {
        let store = StoreState {
            unreachable: Some((std::time::Instant::now(), "refused".to_owned())),
            ..StoreState::default()
        };
        let entries = derive(&map(), &Known { store, ..Known::default() }, &[]);
        let codes: Vec<_> = entries.iter().map(|entry| entry.code).collect();
        assert_eq!(codes, [HealthCode::StoreUnreachable, HealthCode::NoLeader]);
    }

    /// Health told that the store did not answer and that I/O went on, though it answered and I/O was refused.
    #[test]
    fn a_map_that_went_back_is_told_alone() {
        let refused =
            coquina_cluster::MapError::WentBack { what: "its revision".to_owned(), seen: 7, now: 3 };
        let store = StoreState {
            unreachable: Some((std::time::Instant::now(), "went back".to_owned())),
            refused: Some(refused),
            ..StoreState::default()
        };
        let entries = derive(&map(), &Known { store, ..Known::default() }, &[]);
        let [entry] = &entries[..] else { panic!("{entries:?}") };
        assert_eq!(entry.code, HealthCode::MapWentBack);
        assert!(
            entry.advice.contains("delete `cluster.json` in the folder (--dir) of each node"),
            "{entry:?}"
        );
    }

    #[test]
    fn a_store_that_could_not_write_its_file_is_no_etcd_that_is_down() {
        let store = StoreState {
            unreachable: Some((std::time::Instant::now(), "No space left on device".to_owned())),
            broken: true,
            ..StoreState::default()
        };
        let leader = LeaderHealth::default();
        let entries = derive(&map(), &Known { store, leader: Some(&leader), ..Known::default() }, &[]);
        let [entry] = &entries[..] else { panic!("{entries:?}") };
        assert_eq!(entry.message, "No space left on device");
        assert!(entry.advice.contains("make room") && entry.advice.contains("by itself"), "{entry:?}");
        assert!(!entry.advice.contains("etcd"), "{entry:?}");
    }

    fn drive_record(id: DriveId, node: NodeId) -> coquina_cluster::DriveRecord {
        coquina_cluster::DriveRecord {
            id,
            node,
            path: "/d".to_owned(),
            size_bytes: 1,
            capacity_bytes: 1,
            shards: 1,
            weight: 1,
            copy_first: 1,
            state: DriveState::Healthy,
            wanted: Default::default(),
            dead_ms: 0,
        }
    }

    #[test]
    fn a_record_that_lacks_its_node_is_told_and_keeps_nothing_from_working() {
        let cluster = ClusterRecord { copy_next: 3, ..ClusterRecord::new(ClusterId(Id128([1; 16]))) };
        let lost = drive_record(DriveId(Id128([3; 16])), NodeId(Id128([4; 16])));
        let records = vec![
            (Key::Cluster, 1, Record::Cluster(cluster)),
            (Key::Drive(lost.id), 1, Record::Drive(lost.clone())),
        ];
        let map = MapView::load(records, 1).unwrap();
        let leader = LeaderHealth::default();
        let entries = derive(&map, &Known { leader: Some(&leader), ..Known::default() }, &[]);
        let [entry] = &entries[..] else { panic!("{entries:?}") };
        assert_eq!((entry.code, entry.severity), (HealthCode::MapOrphan, Severity::Warning));
        assert!(entry.subject.contains(&lost.id.to_string()), "{entry:?}");
    }

    /// Its former node had it as one that cannot be used, and health advised to give it up.
    #[test]
    fn a_drive_that_another_node_serves_is_not_missing() {
        let cluster = ClusterRecord { copy_next: 3, ..ClusterRecord::new(ClusterId(Id128([1; 16]))) };
        let [former, owner] = [4, 5].map(|byte| NodeId(Id128([byte; 16])));
        let node = |id| coquina_cluster::NodeRecord {
            id,
            name: format!("n{id}"),
            addresses: Default::default(),
            domains: Default::default(),
            versions: coquina_cluster::VersionRange { min: 1, max: 1 },
            wanted: Default::default(),
        };
        let moved = drive_record(drive(0, 0, false).id, owner);
        let records = vec![
            (Key::Cluster, 1, Record::Cluster(cluster)),
            (Key::Node(former), 1, Record::Node(node(former))),
            (Key::Node(owner), 1, Record::Node(node(owner))),
            (Key::Drive(moved.id), 1, Record::Drive(moved.clone())),
        ];
        let map = MapView::load(records, 1).unwrap();
        let local = |id, serves: bool| {
            let absent = AbsentDrive { id: moved.id, reason: "it is gone".to_owned() };
            let snapshot = match serves {
                true => NodeSnapshot { drives: vec![drive(10, 0, false)], ..Default::default() },
                false => NodeSnapshot { absent: vec![absent], ..Default::default() },
            };
            Local { node: Some(id), snapshot, ..Local::default() }
        };
        let leader = LeaderHealth::default();
        let codes = |locals: &[Local]| {
            let nodes = locals.iter().map(|local| (local.node.unwrap(), local)).collect();
            let known = Known { nodes, leader: Some(&leader), ..Known::default() };
            derive(&map, &known, &[]).iter().map(|entry| entry.code).collect::<Vec<_>>()
        };
        assert_eq!(codes(&[local(former, false), local(owner, true)]), []);
        assert_eq!(codes(&[local(owner, false)]), [HealthCode::DriveMissing]);
        // It has come back there with a log that cannot be read, and the map has it where it was as long as that is so.
        assert_eq!(codes(&[local(former, false)]), [HealthCode::DriveMissing]);
    }

    #[test]
    fn codes_are_written_as_shown() {
        for code in [HealthCode::DriveReadOnly, HealthCode::BadBlocks, HealthCode::StoreUnreachable] {
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
        }
    }
}
