//! A node without drives: remembers which blocks of which layers hold data.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use coquina_base::{BLOCK_BYTES, DriveId, Id128, LayerId, VolumeId};
use coquina_control::{
    AbsentDrive, BackendError, Catalogue, Coordinator, DriveRecord, DriveSnapshot, DriveState,
    EmbeddedCoordinator, LatencyHistogram, NodeBackend, NodeSnapshot, ShardSnapshot, VolumeCounters,
    VolumeRecord, VolumeSnapshot, register_drive,
};
use coquina_engine::ShardStats;

pub const DRIVE: DriveId = DriveId(Id128([9; 16]));
pub const CAPACITY_BYTES: u64 = 64 << 30;

/// What the made-up node remembers.
#[derive(Default)]
pub struct Memory {
    /// Sizes of the volumes on offer.
    pub offered: BTreeMap<VolumeId, (String, u64)>,
    /// Blocks that hold data, per layer.
    pub data: BTreeMap<LayerId, BTreeSet<u64>>,
    pub connections: u64,
    pub refuse_changes: bool,
    pub poisoned: bool,
    pub bad_blocks: u64,
    pub scrubs: Vec<Option<DriveId>>,
    pub shutdown_requested: bool,
    /// Drives of the map that are not there.
    pub absent: Vec<AbsentDrive>,
    pub removed_drives: Vec<DriveId>,
    /// Grows with every snapshot, so that rates are above zero.
    pub snapshots: u64,
}

#[derive(Default)]
pub struct FakeNode {
    memory: Mutex<Memory>,
}

impl FakeNode {
    pub fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap()
    }

    /// Writes one block as a client of the volume would.
    pub fn write(&self, volume: &VolumeRecord, block: u64) {
        let mut memory = self.memory();
        let (_, size_bytes) = memory.offered.get(&volume.id).expect("the volume is on offer");
        assert!((block + 1) * BLOCK_BYTES as u64 <= *size_bytes, "a write past the end is refused");
        memory.data.entry(volume.layer).or_default().insert(block);
    }

    /// Forgets what a process forgets when it dies; data stays.
    pub fn restart(&self, coordinator: &dyn Coordinator) {
        let mut memory = self.memory();
        memory.offered.clear();
        for volume in coordinator.map().volumes.values() {
            let volume = &volume.value;
            if volume.state == coquina_control::VolumeState::Active {
                memory.offered.insert(volume.id, (volume.name.clone(), volume.size_bytes));
            }
        }
    }
}

impl NodeBackend for FakeNode {
    fn snapshot(&self) -> NodeSnapshot {
        let mut memory = self.memory();
        memory.snapshots += 1;
        let mut latency = LatencyHistogram::new();
        latency.record(100_000);
        let stats = ShardStats {
            capacity_bytes: CAPACITY_BYTES / 2,
            live_bytes: 4096,
            poisoned: memory.poisoned,
            bad_blocks: memory.bad_blocks,
            scrub_progress: (!memory.scrubs.is_empty()).then_some(2500),
            ..Default::default()
        };
        let shard = ShardSnapshot { stats, reactor: 0, open_ns: 1_500_000_000 };
        let volume = |(id, (name, _)): (&VolumeId, &(String, u64))| VolumeSnapshot {
            id: *id,
            name: name.clone(),
            counters: VolumeCounters {
                connections: memory.connections,
                writes: memory.snapshots * 1000,
                write_bytes: memory.snapshots * 4_096_000,
                write_latency: latency,
                ..Default::default()
            },
        };
        NodeSnapshot {
            uptime_ns: 2_500_000_000,
            drives: vec![DriveSnapshot {
                id: DRIVE,
                path: "/drives/\"0\"".to_owned(),
                size_bytes: CAPACITY_BYTES + 4096,
                shards: vec![shard.clone(), shard],
                write_latency: latency,
                read_latency: LatencyHistogram::new(),
            }],
            absent: memory.absent.clone(),
            volumes: memory.offered.iter().map(volume).collect(),
            nbd_connections: memory.connections,
            ..Default::default()
        }
    }

    fn volume_opened(&self, volume: &VolumeRecord) -> Result<(), BackendError> {
        self.memory().offered.insert(volume.id, (volume.name.clone(), volume.size_bytes));
        Ok(())
    }

    fn volume_changed(&self, volume: &VolumeRecord) -> Result<(), BackendError> {
        self.volume_opened(volume)
    }

    fn volume_removed(&self, volume: &VolumeRecord, force: bool) -> Result<(), BackendError> {
        let mut memory = self.memory();
        if memory.connections > 0 && !force {
            return Err(BackendError::Attached { connections: memory.connections });
        }
        memory.offered.remove(&volume.id);
        Ok(())
    }

    fn delete_layer(&self, volume: &VolumeRecord) -> Result<(), BackendError> {
        let mut memory = self.memory();
        refuse(&memory)?;
        if let Some(absent) = memory.absent.iter().find(|absent| volume.placement.is_on(absent.id)) {
            return Err(BackendError::DriveMissing(absent.id));
        }
        assert!(!memory.offered.contains_key(&volume.id), "data is deleted only after access has ended");
        memory.data.remove(&volume.layer);
        Ok(())
    }

    fn trim_layer(&self, volume: &VolumeRecord, from_bytes: u64, to_bytes: u64) -> Result<(), BackendError> {
        let mut memory = self.memory();
        refuse(&memory)?;
        let size_bytes = memory.offered.get(&volume.id).map(|(_, size_bytes)| *size_bytes);
        assert!(size_bytes <= Some(from_bytes), "data is cut off only after access to it has ended");
        let blocks = memory.data.entry(volume.layer).or_default();
        blocks.retain(|block| !(from_bytes..to_bytes).contains(&(block * BLOCK_BYTES as u64)));
        Ok(())
    }

    fn scrub_start(&self, drive: Option<DriveId>) -> Result<(), BackendError> {
        self.memory().scrubs.push(drive);
        Ok(())
    }

    fn drive_removed(&self, drive: DriveId) -> Result<(), BackendError> {
        let mut memory = self.memory();
        memory.absent.retain(|absent| absent.id != drive);
        memory.removed_drives.push(drive);
        Ok(())
    }
}

fn refuse(memory: &Memory) -> Result<(), BackendError> {
    if memory.refuse_changes {
        return Err(BackendError::Drive { drive: DRIVE, reason: "it is read-only".to_owned() });
    }
    Ok(())
}

/// Opens the coordinator of a folder, with one drive of two shards in its map.
pub fn open(folder: &Path) -> Arc<EmbeddedCoordinator> {
    let coordinator = EmbeddedCoordinator::open(folder, "node-a").unwrap();
    let drive = DriveRecord {
        id: DRIVE,
        node: coordinator.node_id(),
        path: "/drives/\"0\"".to_owned(),
        size_bytes: CAPACITY_BYTES + 4096,
        capacity_bytes: CAPACITY_BYTES,
        shards: 2,
        state: DriveState::Healthy,
    };
    register_drive(&coordinator, &drive).unwrap();
    Arc::new(coordinator)
}

/// Starts a catalogue as a restart of the process would.
pub fn start(folder: &Path, node: &Arc<FakeNode>) -> Catalogue {
    let coordinator = open(folder);
    node.restart(&*coordinator);
    Catalogue::start(coordinator, node.clone()).unwrap()
}

/// Waits until the background thread has nothing left to do.
pub fn settle(catalogue: &Catalogue) {
    let pending = || {
        catalogue.map().volumes.values().any(|volume| {
            volume.value.state != coquina_control::VolumeState::Active
                || volume.value.shrinking_from_bytes.is_some()
        })
    };
    for _ in 0..5000 {
        if !pending() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    panic!("the background thread does not finish");
}
