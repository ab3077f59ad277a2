//! A reactor's copy of the volume table.

use std::sync::Arc;

use coquina_base::{CHUNK_BYTES, VolumeId};
use coquina_control::{ShardRef, VolumeCounters, VolumeRecord};
use hashbrown::HashMap;

/// A volume, as a reactor knows it.
pub struct Volume {
    /// Its record.
    pub record: Arc<VolumeRecord>,
    /// What it did here.
    pub counters: VolumeCounters,
    /// Requests under way here.
    pub under_way: u32,
}

impl Volume {
    /// The shard of a chunk.
    pub fn shard_of(&self, chunk: u32) -> ShardRef {
        self.record.placement.shard_of_chunk(chunk)
    }

    /// Whether chunks of it are on a shard.
    pub fn is_on(&self, shard: &ShardRef) -> bool {
        self.record.placement.shards.contains(shard)
    }
}

/// The volumes that a reactor serves. A slot is never given to another volume.
#[derive(Default)]
pub struct VolumeTable {
    volumes: Vec<Option<Volume>>,
    by_id: HashMap<VolumeId, usize>,
    by_name: HashMap<String, usize>,
}

impl VolumeTable {
    /// Adds a volume, or takes over its new record.
    pub fn set(&mut self, record: Arc<VolumeRecord>) {
        match self.by_id.get(&record.id).copied() {
            Some(slot) => {
                if let Some(volume) = self.volumes[slot].as_mut() {
                    self.by_name.remove(&volume.record.name);
                    self.by_name.insert(record.name.clone(), slot);
                    volume.record = record;
                }
            }
            None => {
                let slot = self.volumes.len();
                self.by_id.insert(record.id, slot);
                self.by_name.insert(record.name.clone(), slot);
                self.volumes.push(Some(Volume { record, counters: VolumeCounters::default(), under_way: 0 }));
            }
        }
    }

    /// Takes a volume out of both tables; requests under way still find its slot.
    pub fn hide(&mut self, id: VolumeId) -> Option<usize> {
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

    /// Slot of a volume by its name.
    pub fn by_name(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// Slot of a volume by its identity.
    pub fn by_id(&self, id: VolumeId) -> Option<usize> {
        self.by_id.get(&id).copied()
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

/// Parts of a range of a volume, each within one chunk: (chunk, first byte within it, bytes).
pub fn parts_of(offset_bytes: u64, length_bytes: u64) -> impl Iterator<Item = (u32, u32, u32)> {
    let end = offset_bytes + length_bytes;
    let mut at = offset_bytes;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let chunk = (at / CHUNK_BYTES) as u32;
        let within = at % CHUNK_BYTES;
        let length = (CHUNK_BYTES - within).min(end - at);
        at += length;
        Some((chunk, within as u32, length as u32))
    })
}
