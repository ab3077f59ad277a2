//! The log's lines of what was changed in the map: one for each change, by the process that made it, once it was made.
//!
//! A line says what follows from the record before and the record after, so that no way of changing one is without.

use std::collections::BTreeMap;

use coquina_base::DriveId;
use coquina_cluster::{
    ClusterRecord, DriveRecord, DriveState, GroupBlock, Key, MapView, NodeRecord, PoolRecord, PoolState,
    Record, VolumeRecord, VolumeState, Wanted, Write,
};

use crate::view::node_name;

/// A line of the log. The fields are stable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    Cluster { what: &'static str, overcommit_percent: u32 },
    Volume { what: &'static str, volume: String, id: String, size_bytes: u64, before: String },
    Pool { what: &'static str, pool: String, copies: u32 },
    Node { what: &'static str, node: String, id: String },
    Drive { what: &'static str, drive: DriveId, path: String, node: String, is_bad: bool },
    LeftOut { drive: DriveId, path: String, node: String, groups: usize },
}

impl Line {
    pub(crate) fn tell(&self) {
        match self {
            Line::Cluster { what, overcommit_percent } => tracing::info!(overcommit_percent, "{what}"),
            Line::Volume { what, volume, id, size_bytes, before } => {
                tracing::info!(volume, id, size_bytes, before, "{what}");
            }
            Line::Pool { what, pool, copies } => tracing::info!(pool, copies, "{what}"),
            Line::Node { what, node, id } => tracing::info!(node, id, "{what}"),
            Line::Drive { what, drive, path, node, is_bad: false } => {
                tracing::info!(%drive, path, node, "{what}");
            }
            Line::Drive { what, drive, path, node, is_bad: true } => {
                tracing::warn!(%drive, path, node, "{what}");
            }
            Line::LeftOut { drive, path, node, groups } => {
                tracing::warn!(%drive, path, node, groups, "groups go on without their copies on a drive");
            }
        }
    }
}

/// What a write changes of the map that it rests on. Nothing for what only counts or moves on by itself.
pub(crate) fn lines(map: &MapView, write: &Write) -> Vec<Line> {
    let record = write.record.as_ref();
    let line = match (write.key, record) {
        (Key::Cluster, Some(Record::Cluster(after))) => {
            map.cluster().and_then(|before| cluster(before, after))
        }
        (Key::Volume(id), None) => map.volume(id).and_then(|before| volume(Some(before), None)),
        (Key::Volume(id), Some(Record::Volume(after))) => volume(map.volume(id), Some(after)),
        (Key::Pool(id), None) => map.pool(id).and_then(|before| pool(Some(before), None)),
        (Key::Pool(id), Some(Record::Pool(after))) => pool(map.pool(id), Some(after)),
        (Key::Node(id), None) => map.node(id).and_then(|before| node(Some(before), None)),
        (Key::Node(id), Some(Record::Node(after))) => node(map.node(id), Some(after)),
        (Key::Drive(id), None) => map.drive(id).and_then(|before| drive(map, Some(before), None)),
        (Key::Drive(id), Some(Record::Drive(after))) => drive(map, map.drive(id), Some(after)),
        (Key::Groups(id), Some(Record::Groups(after))) => {
            return map.block(id).map(|before| left_out(map, &before.value, after)).unwrap_or_default();
        }
        _ => None,
    };
    line.into_iter().collect()
}

fn cluster(before: &ClusterRecord, after: &ClusterRecord) -> Option<Line> {
    let gives_up = after.layers_skipped.is_empty() && !before.layers_skipped.is_empty();
    let what = match before.overcommit_percent != after.overcommit_percent {
        true => "what volume sizes may add up to was changed",
        false if gives_up => "the data of volumes that the map has lost was given up",
        false => return None,
    };
    Some(Line::Cluster { what, overcommit_percent: after.overcommit_percent })
}

fn volume(before: Option<&VolumeRecord>, after: Option<&VolumeRecord>) -> Option<Line> {
    let goes = |volume: &VolumeRecord| volume.state == VolumeState::Removing;
    let (what, was) = match (before, after) {
        (None, Some(_)) => ("a volume was created", String::new()),
        (Some(_), None) => ("all nodes know that a volume was removed", String::new()),
        (Some(before), Some(after)) if goes(after) && !goes(before) => {
            ("a volume was removed", String::new())
        }
        (Some(before), Some(after)) if before.name != after.name => {
            ("a volume was renamed", before.name.clone())
        }
        (Some(before), Some(after)) if before.size_bytes != after.size_bytes => {
            ("a volume was resized", format!("{} bytes", before.size_bytes))
        }
        (Some(before), Some(after)) if before.shrinking_from_bytes != after.shrinking_from_bytes => {
            ("what a shrink has cut off is deleted", String::new())
        }
        _ => return None,
    };
    let shown = after.or(before)?;
    let (volume, id) = (shown.name.clone(), shown.id.to_string());
    Some(Line::Volume { what, volume, id, size_bytes: shown.size_bytes, before: was })
}

fn pool(before: Option<&PoolRecord>, after: Option<&PoolRecord>) -> Option<Line> {
    let what = match (before.map(|pool| pool.state), after.map(|pool| pool.state)) {
        (None, Some(_)) => "a pool was created",
        (Some(_), None) => "a pool is gone with its groups",
        (Some(before), Some(after)) if before == after => return None,
        (_, Some(PoolState::Active)) => "all groups of a pool are made",
        (_, Some(PoolState::Removing)) => "a pool was removed",
        _ => return None,
    };
    let shown = after.or(before)?;
    Some(Line::Pool { what, pool: shown.name.clone(), copies: shown.copies })
}

fn node(before: Option<&NodeRecord>, after: Option<&NodeRecord>) -> Option<Line> {
    let what = match (before.map(|node| node.wanted), after.map(|node| node.wanted)) {
        (None, Some(_)) => "a node joined the cluster",
        (Some(_), None) => "a node is gone from the cluster",
        (Some(Wanted::In), Some(Wanted::Removing)) => "a node is to be removed",
        (Some(Wanted::Removing), Some(Wanted::In)) => "the removal of a node was cancelled",
        _ => return None,
    };
    let shown = after.or(before)?;
    Some(Line::Node { what, node: shown.name.clone(), id: shown.id.to_string() })
}

fn drive(map: &MapView, before: Option<&DriveRecord>, after: Option<&DriveRecord>) -> Option<Line> {
    let shown = after.or(before)?;
    let (what, is_bad) = match (before, after) {
        (None, _) => ("a drive joined the cluster", false),
        (_, None) => ("a drive is gone from the cluster", false),
        (Some(before), Some(after)) if before.state != after.state => match after.state {
            DriveState::Healthy => ("a drive serves again", false),
            DriveState::ReadOnly => ("a drive takes no changes: a write failed", true),
            DriveState::Missing => ("a drive is missing: its copies are made anew elsewhere", true),
            DriveState::GivenUp => ("a drive was given up with what it holds", true),
        },
        (Some(before), Some(after)) if before.wanted != after.wanted => match after.wanted {
            Wanted::Removing => ("a drive is to be removed", false),
            Wanted::In => ("the removal of a drive was cancelled", false),
        },
        (Some(before), Some(after)) if before.weight != after.weight => ("a drive has another weight", false),
        (Some(before), Some(after)) if before.node != after.node => ("a drive moved to another node", false),
        _ => return None,
    };
    let (path, node) = (shown.path.clone(), node_name(map, shown.node));
    Some(Line::Drive { what, drive: shown.id, path, node, is_bad })
}

/// Copies that were in sync and are out, by drive.
fn left_out(map: &MapView, before: &GroupBlock, after: &GroupBlock) -> Vec<Line> {
    let mut drives: BTreeMap<DriveId, usize> = BTreeMap::new();
    for group in &after.groups {
        let Some(was) = before.get(group.id).filter(|was| was.epoch != group.epoch) else { continue };
        for shard in group.others.iter().filter(|shard| was.in_sync.contains(shard)) {
            *drives.entry(shard.drive).or_default() += 1;
        }
    }
    let line = |(drive, groups)| {
        let record = map.drive(drive);
        let path = record.map(|record| record.path.clone()).unwrap_or_default();
        let node = record.map(|record| node_name(map, record.node)).unwrap_or_default();
        Line::LeftOut { drive, path, node, groups }
    };
    drives.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use coquina_base::{ClusterId, Id128, NodeId};
    use coquina_cluster::{BlockId, GroupId, GroupRecord, PoolId, ShardRef};

    use super::*;

    fn record(wanted: Wanted, state: DriveState) -> DriveRecord {
        DriveRecord {
            id: DriveId(Id128([3; 16])),
            node: NodeId(Id128([4; 16])),
            path: "/d".to_owned(),
            size_bytes: 1,
            capacity_bytes: 1,
            shards: 2,
            weight: 1,
            copy_first: 1,
            state,
            wanted,
            dead_ms: 0,
        }
    }

    fn told(before: &DriveRecord, after: Option<DriveRecord>) -> Option<(&'static str, bool)> {
        let cluster = ClusterRecord { copy_next: 3, ..ClusterRecord::new(ClusterId(Id128([1; 16]))) };
        let key = Key::Drive(before.id);
        let records =
            vec![(Key::Cluster, 1, Record::Cluster(cluster)), (key, 1, Record::Drive(before.clone()))];
        let map = MapView::load(records, 1).unwrap();
        match &lines(&map, &Write::new(key, 1, after.map(Record::Drive)))[..] {
            [] => None,
            [Line::Drive { what, is_bad, .. }] => Some((*what, *is_bad)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_becomes_of_a_drive_is_told_and_what_only_counts_is_not() {
        let healthy = record(Wanted::In, DriveState::Healthy);
        let leaving = record(Wanted::Removing, DriveState::Healthy);
        let told_of = |after| told(&healthy, Some(after)).unwrap();
        assert_eq!(
            told_of(record(Wanted::In, DriveState::GivenUp)).0,
            "a drive was given up with what it holds"
        );
        assert!(told_of(record(Wanted::In, DriveState::GivenUp)).1);
        assert_eq!(told_of(leaving.clone()), ("a drive is to be removed", false));
        assert_eq!(
            told(&leaving, Some(healthy.clone())),
            Some(("the removal of a drive was cancelled", false))
        );
        assert_eq!(told(&leaving, None), Some(("a drive is gone from the cluster", false)));
        assert_eq!(told(&healthy, Some(DriveRecord { dead_ms: 7, ..healthy.clone() })), None);
    }

    #[test]
    fn copies_that_are_left_out_are_counted_by_drive() {
        let drive = record(Wanted::In, DriveState::Healthy);
        let shard = |shard| ShardRef { drive: drive.id, shard };
        let group = |number, epoch, in_sync: &[u32], others: &[u32]| GroupRecord {
            id: GroupId(number),
            pool: PoolId(1),
            epoch,
            in_sync: in_sync.iter().copied().map(shard).collect(),
            others: others.iter().copied().map(shard).collect(),
            wanted: Vec::new(),
        };
        let cluster = ClusterRecord { copy_next: 3, ..ClusterRecord::new(ClusterId(Id128([1; 16]))) };
        let map = MapView::load(vec![(Key::Cluster, 1, Record::Cluster(cluster))], 1).unwrap();
        let before = GroupBlock { groups: vec![group(1, 1, &[0, 1], &[]), group(2, 4, &[1, 0], &[])] };
        let after = GroupBlock { groups: vec![group(1, 2, &[1], &[0]), group(2, 5, &[1], &[0])] };
        let told = left_out(&map, &before, &after);
        let [Line::LeftOut { drive: of, groups: 2, .. }] = &told[..] else { panic!("{told:?}") };
        assert_eq!((*of, BlockId::of(GroupId(1))), (drive.id, BlockId(0)));
        assert_eq!(left_out(&map, &after, &before), [], "one that comes back is not");
        assert_eq!(left_out(&map, &before, &before), []);
    }
}
