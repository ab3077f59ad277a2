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
    /// Connections of the NBD clients here that have it open.
    pub nbd_connections: Vec<usize>,
    /// Slot of its gateway, if it has one here.
    pub gateway: Option<usize>,
    /// Whether it is served no more.
    is_gone: bool,
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

/// The volumes that a reactor serves.
///
/// A slot is never given to another volume, whoever may still know its number: clients, connections, requests, gateways. All that
/// stays of a volume that is gone, and that nothing uses any more, is its empty slot.
#[derive(Default)]
pub struct VolumeTable {
    volumes: Vec<Option<Box<Volume>>>,
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
            self.volumes.push(Some(Box::new(Volume {
                record,
                revision,
                pool,
                counters: VolumeCounters::default(),
                under_way: 0,
                nbd_connections: Vec::new(),
                gateway: None,
                is_gone: false,
            })));
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
        if let Some(volume) = &mut self.volumes[slot] {
            volume.is_gone = true;
            if self.by_name.get(&volume.record.name) == Some(&slot) {
                self.by_name.remove(&volume.record.name);
            }
        }
        Some(slot)
    }

    /// Forgets a volume that is gone, unless something of it is under way or its gateway lasts.
    pub fn forget_unused(&mut self, slot: usize) {
        let is_unused = |volume: &Volume| volume.is_gone && volume.under_way == 0 && volume.gateway.is_none();
        if self.get(slot).is_some_and(is_unused) {
            self.volumes[slot] = None;
        }
    }

    /// A volume by its slot.
    pub fn get(&self, slot: usize) -> Option<&Volume> {
        self.volumes.get(slot)?.as_deref()
    }

    /// A volume by its slot, to be changed.
    pub fn get_mut(&mut self, slot: usize) -> Option<&mut Volume> {
        self.volumes.get_mut(slot)?.as_deref_mut()
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
        self.by_id.values().filter_map(|slot| self.volumes[*slot].as_deref())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use coquina_base::Id128;
    use coquina_cluster::{GroupId, PoolId};

    use super::*;

    const MIB: u32 = 1 << 20;

    fn record(number: u8) -> VolumeRecord {
        VolumeRecord {
            id: VolumeId(Id128([number; 16])),
            name: format!("disk{number}"),
            size_bytes: 6 << 20,
            layer: LayerId(u64::from(number)),
            created_unix_ns: 0,
            state: VolumeState::Active,
            attach_generation: 1,
            shrinking_from_bytes: None,
            size_max_bytes: Some(12 << 20),
            pool: PoolId::default(),
            family: 1,
            stripe_unit_bytes: 4 * MIB,
            stripe_count: 1,
        }
    }

    fn pool() -> Arc<PoolRecord> {
        Arc::new(PoolRecord {
            id: PoolId::default(),
            name: "default".to_owned(),
            copies: 1,
            min_copies: 1,
            domain: "drive".to_owned(),
            group_first: GroupId(0),
            group_count: 1,
            state: Default::default(),
        })
    }

    /// A table of one volume, in slot 0.
    pub(crate) fn table_of_one() -> VolumeTable {
        table_of(1)
    }

    /// A table of so many volumes, in the first slots.
    pub(crate) fn table_of(volumes: u8) -> VolumeTable {
        let mut table = VolumeTable::default();
        for number in 1..=volumes {
            table.set(Arc::new(record(number)), 1, pool(), &mut VolumeChanges::default());
        }
        table
    }

    #[test]
    fn what_is_gone_is_forgotten_when_nothing_uses_it_and_its_slot_is_nobodys() {
        let pool = pool();
        let mut table = VolumeTable::default();
        let add = |table: &mut VolumeTable, number| {
            table.set(Arc::new(record(number)), 1, pool.clone(), &mut VolumeChanges::default());
            table.by_id(record(number).id).unwrap()
        };
        let slots = [1, 2, 3].map(|number| add(&mut table, number));
        table.get_mut(slots[0]).unwrap().under_way = 1;
        table.get_mut(slots[1]).unwrap().gateway = Some(7);
        for number in 1..=2 {
            let slot = table.hide(record(number).id).unwrap();
            table.forget_unused(slot);
            assert!(table.get(slot).is_some() && table.served(slot).is_none(), "it is in use");
        }
        table.forget_unused(slots[2]);
        assert!(table.served(slots[2]).is_some(), "it is served");

        table.get_mut(slots[0]).unwrap().under_way = 0;
        table.get_mut(slots[1]).unwrap().gateway = None;
        for slot in &slots[..2] {
            table.forget_unused(*slot);
            assert!(table.get(*slot).is_none());
        }
        // The same volume again, too, as after its pool was gone for a moment.
        for number in [4, 1] {
            assert!(!slots.contains(&add(&mut table, number)));
        }
        assert_eq!(table.iter().count(), 3);
    }

    #[test]
    fn what_a_shrink_cut_off_is_its_own_until_the_volume_grows_again() {
        let mib = MIB;
        let mut record = VolumeRecord { shrinking_from_bytes: Some(12 << 20), ..record(1) };
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
