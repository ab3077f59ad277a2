//! A reactor's copy of the volume table, brought up to each map.

use std::sync::Arc;

use coquina_base::{LayerId, VolumeId};
use coquina_cluster::{MapView, PoolRecord, VolumeRecord, VolumeState, group_of};
use coquina_control::VolumeCounters;
use hashbrown::HashMap;

/// A volume, as a reactor knows it.
pub struct Volume {
    /// Its record.
    pub record: Arc<VolumeRecord>,
    /// Revision of the map that changed the record last.
    pub revision: u64,
    /// Its pool.
    pub pool: Arc<PoolRecord>,
    /// What it did here.
    pub counters: VolumeCounters,
    /// Requests under way here.
    pub under_way: u32,
    /// Slot of its gateway, if it has one here.
    pub gateway: Option<usize>,
}

impl Volume {
    /// The placement group of a chunk.
    pub fn group_of(&self, chunk: u32) -> u32 {
        group_of(&self.pool, self.record.family, chunk).0
    }

    /// Whether a range of a chunk lies within the volume.
    pub fn has_range(&self, chunk: u32, offset_bytes: u32, length_bytes: u32) -> bool {
        let used_bytes = used_bytes(&self.record, chunk, self.record.size_bytes);
        offset_bytes.checked_add(length_bytes).is_some_and(|end| end <= used_bytes)
    }

    /// Whether a shrink that is not done yet has cut a range of a chunk off.
    pub fn has_cut_off(&self, chunk: u32, offset_bytes: u32, length_bytes: u32) -> bool {
        is_cut_off(&self.record, chunk, offset_bytes, length_bytes)
    }
}

fn used_bytes(record: &VolumeRecord, chunk: u32, size_bytes: u64) -> u32 {
    record.striping().chunk_used_bytes(chunk, size_bytes)
}

/// A volume that grew again since has its range back: who still discards for the shrink, as a leader that was stopped for long, must
/// not.
fn is_cut_off(record: &VolumeRecord, chunk: u32, offset_bytes: u32, length_bytes: u32) -> bool {
    let Some(before_bytes) = record.shrinking_from_bytes else { return false };
    let end = offset_bytes.checked_add(length_bytes);
    offset_bytes >= used_bytes(record, chunk, record.size_bytes)
        && end.is_some_and(|end| end <= used_bytes(record, chunk, before_bytes))
}

/// What a new map changed.
#[derive(Default)]
pub struct VolumeChanges {
    /// Slots whose size changed.
    pub resized: Vec<usize>,
    /// Slots that are served no more.
    pub gone: Vec<usize>,
}

/// The volumes that a reactor serves. A slot is never given to another volume.
#[derive(Default)]
pub struct VolumeTable {
    volumes: Vec<Option<Volume>>,
    by_id: HashMap<VolumeId, usize>,
    by_name: HashMap<String, usize>,
}

impl VolumeTable {
    /// Takes over what a map says.
    pub fn follow(&mut self, map: &MapView) -> VolumeChanges {
        let mut changes = VolumeChanges::default();
        let is_served = |id: &VolumeId| {
            let record = map.volume(*id);
            record
                .is_some_and(|record| record.state == VolumeState::Active && map.pool(record.pool).is_some())
        };
        let gone: Vec<VolumeId> = self.by_id.keys().filter(|id| !is_served(id)).copied().collect();
        for id in gone {
            changes.gone.extend(self.hide(id));
        }
        for volume in map.volumes().filter(|volume| is_served(&volume.value.id)) {
            let Some(pool) = map.pools().find(|pool| pool.value.id == volume.value.pool) else { continue };
            self.set(volume.value.clone(), volume.revision, pool.value.clone(), &mut changes);
        }
        changes
    }

    fn set(
        &mut self,
        record: Arc<VolumeRecord>,
        revision: u64,
        pool: Arc<PoolRecord>,
        changes: &mut VolumeChanges,
    ) {
        let Some(slot) = self.by_id.get(&record.id).copied() else {
            let slot = self.volumes.len();
            self.by_id.insert(record.id, slot);
            self.by_name.insert(record.name.clone(), slot);
            let counters = VolumeCounters::default();
            self.volumes.push(Some(Volume { record, revision, pool, counters, under_way: 0, gateway: None }));
            return;
        };
        let Some(volume) = self.volumes[slot].as_mut() else { return };
        volume.pool = pool;
        if volume.revision == revision {
            return;
        }
        volume.revision = revision;
        if volume.record.name != record.name {
            if self.by_name.get(&volume.record.name) == Some(&slot) {
                self.by_name.remove(&volume.record.name);
            }
            self.by_name.insert(record.name.clone(), slot);
        }
        if volume.record.size_bytes != record.size_bytes {
            changes.resized.push(slot);
        }
        volume.record = record;
    }

    /// Takes a volume out of both tables; requests under way still find its slot.
    fn hide(&mut self, id: VolumeId) -> Option<usize> {
        let slot = self.by_id.remove(&id)?;
        if let Some(volume) = &self.volumes[slot]
            && self.by_name.get(&volume.record.name) == Some(&slot)
        {
            self.by_name.remove(&volume.record.name);
        }
        Some(slot)
    }

    /// A volume by its slot.
    pub fn get(&self, slot: usize) -> Option<&Volume> {
        self.volumes.get(slot)?.as_ref()
    }

    /// A volume by its slot, to be changed.
    pub fn get_mut(&mut self, slot: usize) -> Option<&mut Volume> {
        self.volumes.get_mut(slot)?.as_mut()
    }

    /// A volume that is served, by its slot.
    pub fn served(&self, slot: usize) -> Option<&Volume> {
        self.get(slot).filter(|volume| self.by_id.get(&volume.record.id) == Some(&slot))
    }

    /// Slot of a volume by its name.
    pub fn by_name(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// Slot of a volume by its identity.
    pub fn by_id(&self, id: VolumeId) -> Option<usize> {
        self.by_id.get(&id).copied()
    }

    /// The volume that has a layer, and its pool.
    pub fn of_layer(&self, layer: LayerId) -> Option<(Arc<VolumeRecord>, Arc<PoolRecord>)> {
        let volume = self.iter().find(|volume| volume.record.layer == layer)?;
        Some((volume.record.clone(), volume.pool.clone()))
    }

    /// Names of all volumes, in order.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.by_name.keys().cloned().collect();
        names.sort_unstable();
        names
    }

    /// All volumes that are served.
    pub fn iter(&self) -> impl Iterator<Item = &Volume> {
        self.by_id.values().filter_map(|slot| self.volumes[*slot].as_ref())
    }
}

#[cfg(test)]
mod tests {
    use coquina_cluster::PoolId;

    use super::*;

    #[test]
    fn what_a_shrink_cut_off_is_its_own_until_the_volume_grows_again() {
        let mib = 1u32 << 20;
        let mut record = VolumeRecord {
            id: VolumeId::default(),
            name: "disk".to_owned(),
            size_bytes: 6 << 20,
            layer: LayerId(1),
            created_unix_ns: 0,
            state: VolumeState::Active,
            attach_generation: 1,
            shrinking_from_bytes: Some(12 << 20),
            size_max_bytes: Some(12 << 20),
            pool: PoolId::default(),
            family: 1,
            stripe_unit_bytes: 4 * mib,
            stripe_count: 1,
        };
        assert!(is_cut_off(&record, 1, 2 * mib, 2 * mib) && is_cut_off(&record, 2, 0, 4 * mib));
        assert!(!is_cut_off(&record, 1, mib, 2 * mib), "a part of it lies within the volume");
        assert!(!is_cut_off(&record, 3, 0, mib), "there was nothing before the shrink, either");
        assert!(!is_cut_off(&record, 2, u32::MAX, 2));
        record.size_bytes = 8 << 20;
        assert!(!is_cut_off(&record, 1, 2 * mib, 2 * mib), "it has grown again");
        record.shrinking_from_bytes = None;
        assert!(!is_cut_off(&record, 2, 0, 4 * mib), "the shrink is done");
    }
}
