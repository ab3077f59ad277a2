//! A new map: volumes, groups, connections to other copies and gateways are brought up to it.
//!
//! Invariant: a reactor never goes back to an older map.

use std::collections::BTreeSet;
use std::sync::Arc;

use coquina_base::CHUNK_BYTES;
use coquina_cluster::{GroupId, MapView, PoolId, PoolRecord, VolumeRecord, VolumeState, chunks_of_group};
use coquina_copies::Answer;
use coquina_engine::Failure;
use coquina_protocol::{
    AttachedVolume, GROUP_UNKNOWN, Header, Kind, Notify, NotifyKind, ShardRef as WireShard, encode_notify,
};
use coquina_replication::{BlockRange, Refusal, Settings};
use hashbrown::HashMap;

use crate::connection::State;
use crate::core::{Comparison, Core};
use crate::request::Asker;
use crate::sweep::removed_pools;

/// What a drive that another node has now counts as here: as if it had been taken out.
const ENODEV: i32 = 19;
/// How long a copy promises not to become primary. With what a coordinator needs to find out that a node is dead, it
/// decides how long a failover takes.
const GRANT_NS: u64 = 1_000_000_000;
/// How much clocks may drift: far more than those of computers do.
const DRIFT_PPM: u64 = 1_000;
/// A copy in sync that is silent for so long is to be removed.
const SUSPECT_NS: u64 = 1_000_000_000;
/// Blocks in one message to a copy that lacks them.
const RECOVER_BLOCKS_MAX: u32 = 16;
/// Such messages on their way.
const RECOVER_WINDOW: u32 = 16;
/// Blocks of changes of a group that a copy which catches up may be behind before commits wait for it: 1 MiB. It is what
/// such a copy may have to keep in memory for each group, and the primary for it.
const STREAM_LAG_BLOCKS_MAX: u64 = 256;

/// Whose a shard is, by the maps that its reactor has followed since it has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// No map has its drive on this node yet.
    Unseen,
    /// This node's.
    Own,
    /// It was this node's, and was given to another one. Nothing is written to it here any more.
    Left,
}

/// Who is primary of a pool's groups, as clients are told.
pub(crate) struct PoolTable {
    shards: Vec<WireShard>,
    groups: Vec<u32>,
}

/// Tables of all pools that somebody asked about, of one map.
#[derive(Default)]
pub(crate) struct PoolTables {
    revision: u64,
    tables: HashMap<PoolId, Arc<PoolTable>>,
}

impl PoolTables {
    /// The table of a pool.
    pub fn get(&mut self, map: &MapView, pool: &PoolRecord) -> Arc<PoolTable> {
        if self.revision != map.revision() {
            self.revision = map.revision();
            self.tables.clear();
        }
        self.tables.entry(pool.id).or_insert_with(|| Arc::new(make_table(map, pool))).clone()
    }
}

fn make_table(map: &MapView, pool: &PoolRecord) -> PoolTable {
    let mut shards: Vec<WireShard> = Vec::new();
    let mut known = HashMap::new();
    let mut place_of = |group: GroupId| {
        let primary = map.group(group)?.primary()?;
        if let Some(index) = known.get(&primary) {
            return Some(*index);
        }
        let address = &map.node(map.node_of(primary)?)?.addresses.native;
        if address.is_empty() {
            return None;
        }
        let index = shards.len() as u32;
        shards.push(WireShard { drive: primary.drive, shard: primary.shard, address: address.clone() });
        known.insert(primary, index);
        Some(index)
    };
    let groups = pool.groups().map(|group| place_of(group).unwrap_or(GROUP_UNKNOWN)).collect();
    PoolTable { shards, groups }
}

impl Core {
    /// How a request is answered while I/O is refused. A client of another process that can go on with other copies is told to: they take
    /// over from a node that refuses, and it will hear of that. A gateway here has the map that is refused, and hears of nothing.
    pub(crate) fn refusal(&self, asker: &Asker, slot: usize, group: u32) -> Answer {
        let group = self.shards[slot].copies().group(group);
        let has_others = group.is_none_or(|group| group.config().in_sync.len() > 1);
        match asker {
            Asker::Native(..) if has_others => Answer::Refused(Refusal::NotServing),
            _ => Answer::Failed(Failure::Device),
        }
    }

    /// Follows a map, unless it is an older one.
    pub(crate) fn follow(&mut self, map: Arc<MapView>) {
        if map.revision() < self.map.revision() {
            return;
        }
        let removed_pools = removed_pools(&self.map, &map);
        self.map = map.clone();
        let changes = self.volumes.follow(&map);
        for slot in changes.gone {
            for index in self.users_of(slot) {
                self.close_connection(index);
            }
            self.drop_gateway(slot);
            self.volumes.forget_unused(slot);
        }
        for slot in changes.resized {
            self.tell_size(slot);
        }
        for slot in 0..self.shards.len() {
            if !self.shards[slot].released {
                let sweep = &mut self.shards[slot].sweep;
                sweep.is_due = true;
                sweep.removed_pools.extend(&removed_pools);
                self.follow_groups(slot, &map);
                self.connect_peers(slot);
            }
        }
        self.proposals.prune(&map);
        self.refresh_gateways();
    }

    /// Whether the map has the drive of a shard on another node.
    pub(crate) fn is_elsewhere(&self, slot: usize) -> bool {
        self.map.node_of(self.shards[slot].reference).is_some_and(|node| node != self.node)
    }

    /// Has a shard do nothing for its groups: the map has its drive on another node, which may be serving them. A drive that has just
    /// come may still be another node's by this map; the next one says that it is here.
    fn stay_away(&mut self, slot: usize) {
        for lost in self.shards[slot].peers.follow(Vec::new()) {
            self.close_connection(lost);
        }
        if self.shards[slot].owner == Owner::Own {
            self.leave_to_other(slot);
        }
    }

    /// Writes nothing more to a drive: its log is another node's now.
    fn leave_to_other(&mut self, slot: usize) {
        let shard = &mut self.shards[slot];
        if std::mem::replace(&mut shard.owner, Owner::Left) == Owner::Left {
            return;
        }
        tracing::warn!(
            drive = %shard.reference.drive, shard = shard.reference.shard,
            "the drive belongs to another node now: nothing is written to it here any more, and it is let go of"
        );
        shard.copies_mut().shard_mut().give_up(ENODEV);
        // At once: a former primary must answer nothing any more. Who asked it for something asks the other node.
        self.on_shard(slot, |copies, now_ns, hands| copies.turn(now_ns, hands));
    }

    /// Has a shard come to rest, so that its drive can be let go of.
    pub(crate) fn close_shard(&mut self, slot: usize) {
        if !self.shards[slot].released && self.is_elsewhere(slot) {
            // No checkpoint either.
            self.leave_to_other(slot);
        }
        self.shards[slot].copies_mut().shard_mut().close();
    }

    pub(crate) fn follow_groups(&mut self, slot: usize, map: &MapView) {
        let reference = self.shards[slot].reference;
        match map.node_of(reference) {
            Some(node) if node != self.node => return self.stay_away(slot),
            Some(_) if self.shards[slot].owner == Owner::Unseen => self.shards[slot].owner = Owner::Own,
            _ => {}
        }
        let is_member = |group: &GroupId| map.group(*group).is_some_and(|one| one.is_member(reference));
        let mut numbers: BTreeSet<u32> =
            map.groups_on(reference).iter().filter(|group| is_member(group)).map(|group| group.0).collect();
        let mut others = Vec::new();
        for number in &numbers {
            let members = map.group(GroupId(*number)).into_iter().flat_map(|group| group.members());
            for shard in members.filter(|shard| *shard != reference) {
                others.extend(map.copy_of(shard).map(|copy| (copy, shard)));
            }
        }
        numbers.extend(self.shards[slot].copies().groups());
        for number in numbers {
            let Some(config) = map.config(GroupId(number)) else {
                if self.refused.is_none() && self.shards[slot].sweep.is_gone(map, GroupId(number)) {
                    // At once, so that no copy takes another one that has stopped for dead. The sweep does it again if it must.
                    self.on_shard(slot, |copies, now_ns, hands| {
                        copies.forget_removed_group(now_ns, number, hands);
                    });
                }
                continue;
            };
            let known = self.shards[slot].copies().group(number).map(|group| group.config().epoch);
            match known {
                // Opened when that is over: see `sweep.rs`.
                None if self.shards[slot].copies_mut().is_forgetting(number) => {
                    self.shards[slot].sweep.reopen = true;
                }
                None => self.on_shard(slot, |copies, _, hands| {
                    copies.open_group(number, settings(), config, hands);
                }),
                Some(epoch) if epoch < config.epoch => {
                    self.on_shard(slot, |copies, now_ns, hands| copies.config(now_ns, number, config, hands));
                }
                Some(_) => {}
            }
        }
        for lost in self.shards[slot].peers.follow(others) {
            self.close_connection(lost);
        }
    }

    /// Connections that use a volume.
    pub(crate) fn users_of(&self, slot: usize) -> Vec<usize> {
        let uses = |(_, connection): &(usize, &crate::connection::Connection)| {
            connection.volume == Some(slot) && !connection.closed
        };
        self.connections.iter().filter(uses).map(|(index, _)| index).collect()
    }

    /// Tells everybody that uses a volume how large it is now.
    fn tell_size(&mut self, slot: usize) {
        let Some(volume) = self.volumes.get(slot) else { return };
        let (id, size_bytes) = (volume.record.id, volume.record.size_bytes);
        let map_version = self.map.revision();
        for index in self.users_of(slot) {
            let connection = &mut self.connections[index];
            match &mut connection.state {
                State::Nbd(session) => session.resize(size_bytes),
                State::Native(_) => {
                    let notify = Notify { kind: NotifyKind::Resized, volume: id, size_bytes, map_version };
                    encode_notify(connection.output.bytes(), &Header::new(Kind::Notify), &notify);
                    self.list(index);
                }
                State::Peer(_) => {}
            }
        }
    }

    /// What a client is told of a volume.
    pub(crate) fn attached(&mut self, slot: usize, read_only: bool) -> Option<AttachedVolume> {
        let volume = self.volumes.served(slot)?;
        let (record, pool) = (volume.record.clone(), volume.pool.clone());
        let table = self.tables.get(&self.map, &pool);
        let addresses = self.map.nodes().map(|node| node.value.addresses.native.clone());
        Some(AttachedVolume {
            volume: record.id,
            name: record.name.clone(),
            size_bytes: record.size_bytes,
            layer: record.layer,
            attach_generation: record.attach_generation,
            map_version: self.map.revision(),
            family: record.family,
            group_first: pool.group_first.0,
            stripe_unit_bytes: record.stripe_unit_bytes,
            stripe_count: record.stripe_count,
            read_only,
            shards: table.shards.clone(),
            groups: table.groups.clone(),
            nodes: addresses.filter(|address| !address.is_empty()).collect(),
        })
    }

    /// Answers groups that want to know what differs on another copy: all chunks that their volumes may have are compared.
    /// One that neither has costs a question and an answer of some 100 bytes each, and 24 bytes here until it is asked for.
    pub(crate) fn compare(&mut self) {
        for Comparison { slot, group, copy, token } in std::mem::take(&mut self.comparisons) {
            let chunks = chunks_of(&self.map, GroupId(group));
            self.on_shard(slot, |copies, now_ns, hands| {
                copies.compare(now_ns, group, copy, token, chunks, hands);
            });
        }
    }
}

/// All chunks of a group that any copy may have, those behind the present ends of volumes included: a copy whose log was cut
/// may have missed the end of a shrink, and what it still has there would be read once the volume has grown again.
fn chunks_of(map: &MapView, group: GroupId) -> Vec<BlockRange> {
    let mut ranges = Vec::new();
    for volume in map.volumes().filter(|volume| volume.value.state == VolumeState::Active) {
        let Some(pool) = map.pool(volume.value.pool).filter(|pool| pool.has_group(group)) else { continue };
        let record: &VolumeRecord = &volume.value;
        let chunks = u32::try_from(record.striping().chunks(record.largest_bytes())).unwrap_or(u32::MAX);
        let whole = |chunk| BlockRange { layer: record.layer, chunk, first: 0, count: CHUNK_BLOCKS };
        ranges.extend(chunks_of_group(pool, record.family, group, chunks).map(whole));
    }
    ranges
}

/// Blocks of a chunk.
const CHUNK_BLOCKS: u32 = (CHUNK_BYTES / coquina_base::BLOCK_BYTES as u64) as u32;

/// Group and copy are set where a group is opened.
fn settings() -> Settings {
    Settings {
        group: GroupId(0),
        copy: Default::default(),
        grant_ns: GRANT_NS,
        drift_ppm: DRIFT_PPM,
        suspect_ns: SUSPECT_NS,
        recover_blocks_max: RECOVER_BLOCKS_MAX,
        recover_window: RECOVER_WINDOW,
        stream_lag_blocks_max: STREAM_LAG_BLOCKS_MAX,
    }
}

#[cfg(test)]
mod tests {
    use coquina_base::{ClusterId, Id128, LayerId, VolumeId};
    use coquina_cluster::{ClusterRecord, Key, POOL_GROUPS_MAX, PoolState, Record, group_of};

    use super::*;

    const GIB: u64 = 1 << 30;

    /// A map with a volume that was once that large, and is 5 GiB.
    fn map_with_volume(size_max_bytes: Option<u64>) -> (MapView, PoolRecord) {
        let cluster = ClusterRecord {
            layer_next: 2,
            pool_next: 2,
            group_next: 2 * POOL_GROUPS_MAX,
            ..ClusterRecord::new(ClusterId(Id128([1; 16])))
        };
        let pool = PoolRecord {
            id: PoolId(1),
            name: "data".to_owned(),
            copies: 3,
            min_copies: 2,
            domain: "node".to_owned(),
            group_first: GroupId(POOL_GROUPS_MAX),
            group_count: 64,
            state: PoolState::Active,
        };
        let volume = VolumeRecord {
            id: VolumeId(Id128([2; 16])),
            name: "disk".to_owned(),
            size_bytes: 5 * GIB,
            layer: LayerId(1),
            created_unix_ns: 0,
            state: VolumeState::Active,
            attach_generation: 0,
            shrinking_from_bytes: None,
            size_max_bytes,
            pool: pool.id,
            family: 1,
            stripe_unit_bytes: CHUNK_BYTES as u32,
            stripe_count: 1,
        };
        let records = vec![
            (Key::Cluster, 1, Record::Cluster(cluster)),
            (Key::Pool(pool.id), 1, Record::Pool(pool.clone())),
            (Key::Volume(volume.id), 1, Record::Volume(volume)),
        ];
        (MapView::load(records, 1).unwrap(), pool)
    }

    #[test]
    fn what_lies_behind_the_end_of_a_volume_that_shrank_is_compared() {
        let chunk = (15 * GIB / CHUNK_BYTES) as u32;
        let range = BlockRange { layer: LayerId(1), chunk, first: 0, count: CHUNK_BLOCKS };
        let (map, pool) = map_with_volume(Some(20 * GIB));
        assert!(chunks_of(&map, group_of(&pool, 1, chunk)).contains(&range));
        let all: usize = pool.groups().map(|group| chunks_of(&map, group).len()).sum();
        assert_eq!(all as u64, 20 * GIB / CHUNK_BYTES, "each chunk is in the list of one group");
        let (never_larger, pool) = map_with_volume(None);
        assert!(!chunks_of(&never_larger, group_of(&pool, 1, chunk)).contains(&range));
    }
}
