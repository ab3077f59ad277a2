//! Health entries: stable codes, what is wrong, and what to do.

use serde::{Deserialize, Serialize};

use crate::backend::{DriveSnapshot, NodeSnapshot};
use crate::state::{ClusterMap, VolumeState};

/// A stable code; scripts and alert rules may rely on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum HealthCode {
    /// A write to the drive failed: it takes no changes any more.
    DriveReadOnly,
    /// A drive of the map is not served by this node.
    DriveMissing,
    /// No room for new data.
    DriveFull,
    /// Little room for new data.
    DriveNearlyFull,
    /// Writes to the drive take long.
    SlowDrive,
    /// Blocks do not match their checksums or cannot be read.
    BadBlocks,
    /// Acknowledged data was not found at start-up.
    DamagedLog,
    /// Volume sizes add up to more than the drives can hold.
    Overcommitted,
    /// The data of a removed volume could not be deleted yet.
    RemovalPending,
    /// The node's interfaces take no part in authentication and are reachable from other hosts.
    OpenInterface,
}

impl HealthCode {
    /// The code as shown, such as `DRIVE_READ_ONLY`.
    pub fn as_str(self) -> &'static str {
        match self {
            HealthCode::DriveReadOnly => "DRIVE_READ_ONLY",
            HealthCode::DriveMissing => "DRIVE_MISSING",
            HealthCode::DriveFull => "DRIVE_FULL",
            HealthCode::DriveNearlyFull => "DRIVE_NEARLY_FULL",
            HealthCode::SlowDrive => "SLOW_DRIVE",
            HealthCode::BadBlocks => "BAD_BLOCKS",
            HealthCode::DamagedLog => "DAMAGED_LOG",
            HealthCode::Overcommitted => "OVERCOMMITTED",
            HealthCode::RemovalPending => "REMOVAL_PENDING",
            HealthCode::OpenInterface => "OPEN_INTERFACE",
        }
    }

    /// What to do about it.
    pub fn advice(self) -> &'static str {
        match self {
            HealthCode::DriveReadOnly => {
                "copy the volumes off it, look for the device's errors in the kernel log, replace the device; \
                 a restart tries it again"
            }
            HealthCode::DriveMissing => {
                "bring the drive back and restart the server, or restart it with the drive's new path after --drive; \
                 if it is lost for good, give it up with `coquina drive remove`"
            }
            HealthCode::DriveFull => "remove or trim volumes, or add a drive with --drive",
            HealthCode::DriveNearlyFull => {
                "remove or trim volumes, or add a drive with --drive, before it is full"
            }
            HealthCode::SlowDrive => {
                "look for the device's errors in the kernel log and for other load on it"
            }
            HealthCode::BadBlocks => {
                "run `coquina drive scrub` to find all of them, restore the volumes named in the server's log, \
                 replace the device"
            }
            HealthCode::DamagedLog => {
                "restore the volumes named in the server's log from a backup; run `coquina drive check` on the \
                 stopped drive"
            }
            HealthCode::Overcommitted => "add a drive, or shrink or remove volumes",
            HealthCode::RemovalPending => {
                "nothing while all drives work, it is tried again by itself; if a drive of it is lost for good, give \
                 that up with `coquina drive remove`"
            }
            HealthCode::OpenInterface => "give addresses on 127.0.0.1 or a private network",
        }
    }
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
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
    /// What is concerned: a drive, a volume.
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
    ) -> Self {
        let advice = code.advice().to_owned();
        HealthEntry { code, severity, subject: subject.into(), message: message.into(), advice }
    }
}

/// A drive counts as nearly full from this part of its capacity on.
const NEARLY_FULL_PERCENT: u128 = 85;
/// A drive counts as full from this part of its capacity on.
const FULL_PERCENT: u128 = 99;

/// The node's own entries, and those that follow from the map and the counters. Worst first.
pub fn derive_health(map: &ClusterMap, snapshot: &NodeSnapshot) -> Vec<HealthEntry> {
    let mut entries = snapshot.health.clone();
    for drive in &snapshot.drives {
        drive_health(drive, &mut entries);
    }
    for drive in map.drives.values() {
        if !snapshot.drives.iter().any(|served| served.id == drive.value.id) {
            let reason = snapshot.absent_reason(drive.value.id).unwrap_or("it is not served");
            let volumes = map.volumes_on(drive.value.id).len();
            entries.push(HealthEntry::new(
                HealthCode::DriveMissing,
                Severity::Error,
                format!("drive {}", drive.value.path),
                format!(
                    "drive {} cannot be used ({reason}); {volumes} volume(s) have data on it",
                    drive.value.id
                ),
            ));
        }
    }
    let (provisioned, provisionable) = (map.provisioned_bytes(), map.provisionable_bytes());
    if provisioned > provisionable {
        entries.push(HealthEntry::new(
            HealthCode::Overcommitted,
            Severity::Warning,
            "cluster",
            format!("volume sizes add up to {provisioned} bytes, {provisionable} are allowed"),
        ));
    }
    for volume in map.volumes.values().filter(|volume| volume.value.state == VolumeState::Removing) {
        entries.push(HealthEntry::new(
            HealthCode::RemovalPending,
            Severity::Warning,
            format!("volume {}", volume.value.name),
            "its data is still being deleted",
        ));
    }
    entries.sort_by(|a, b| {
        b.severity.cmp(&a.severity).then(a.code.cmp(&b.code)).then(a.subject.cmp(&b.subject))
    });
    entries
}

fn drive_health(drive: &DriveSnapshot, entries: &mut Vec<HealthEntry>) {
    let subject = format!("drive {}", drive.path);
    let mut add = |code, severity, message: String| {
        entries.push(HealthEntry::new(code, severity, subject.clone(), message));
    };
    let poisoned = drive.shards.iter().filter(|shard| shard.stats.poisoned).count();
    if poisoned > 0 {
        let message = format!("a write failed on {poisoned} of its {} shards", drive.shards.len());
        add(HealthCode::DriveReadOnly, Severity::Error, message);
    }
    let bad: u64 = drive.shards.iter().map(|shard| shard.stats.bad_blocks).fold(0, u64::saturating_add);
    if bad > 0 {
        add(HealthCode::BadBlocks, Severity::Error, format!("{bad} bad block(s) found since the start"));
    }
    let fullest = drive
        .shards
        .iter()
        .filter(|shard| shard.stats.capacity_bytes > 0)
        .map(|shard| u128::from(shard.stats.live_bytes) * 100 / u128::from(shard.stats.capacity_bytes))
        .max()
        .unwrap_or(0);
    if fullest >= FULL_PERCENT {
        add(HealthCode::DriveFull, Severity::Error, format!("{fullest} % of a shard is in use"));
    } else if fullest >= NEARLY_FULL_PERCENT {
        add(HealthCode::DriveNearlyFull, Severity::Warning, format!("{fullest} % of a shard is in use"));
    }
}

#[cfg(test)]
mod tests {
    use coquina_base::{ClusterId, DriveId, Id128, NodeId};
    use coquina_engine::ShardStats;

    use super::*;
    use crate::backend::ShardSnapshot;
    use crate::state::{ClusterRecord, FEATURE_LEVEL, NodeRecord};

    fn map() -> ClusterMap {
        let id = ClusterId(Id128([1; 16]));
        let cluster = ClusterRecord {
            id,
            feature_level: FEATURE_LEVEL,
            layer_next: 1,
            overcommit_percent: 100,
            given_up_drives: Vec::new(),
        };
        ClusterMap::new(cluster, NodeRecord { id: NodeId(Id128([2; 16])), name: "a".to_owned() })
    }

    fn drive(live_bytes: u64, bad_blocks: u64, poisoned: bool) -> DriveSnapshot {
        let stats =
            ShardStats { capacity_bytes: 100, live_bytes, bad_blocks, poisoned, ..Default::default() };
        DriveSnapshot {
            id: DriveId(Id128([3; 16])),
            path: "/d".to_owned(),
            shards: vec![ShardSnapshot { stats, ..Default::default() }],
            ..Default::default()
        }
    }

    #[test]
    fn entries_follow_from_counters_worst_first() {
        let codes = |drive: DriveSnapshot| {
            let snapshot = NodeSnapshot { drives: vec![drive], ..Default::default() };
            derive_health(&map(), &snapshot).iter().map(|entry| entry.code).collect::<Vec<_>>()
        };
        assert_eq!(codes(drive(10, 0, false)), []);
        assert_eq!(codes(drive(85, 0, false)), [HealthCode::DriveNearlyFull]);
        assert_eq!(codes(drive(99, 0, false)), [HealthCode::DriveFull]);
        assert_eq!(
            codes(drive(90, 2, true)),
            [HealthCode::DriveReadOnly, HealthCode::BadBlocks, HealthCode::DriveNearlyFull]
        );
    }

    #[test]
    fn codes_are_written_as_shown() {
        for code in [HealthCode::DriveReadOnly, HealthCode::BadBlocks, HealthCode::OpenInterface] {
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
        }
    }
}
