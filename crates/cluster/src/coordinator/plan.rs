//! What is to be in the end: placement, pools that come and go, drives and nodes that leave.
//!
//! Rules:
//! - a drive takes data if it and its node are wanted, it is not read-only or given up, has a weight, and was not dead for
//!   [`Settings::drive_out_ns`], all coordinators together; one that no group names must not be dead at all. When that changes
//!   for any drive, all pools are placed anew; what lies well stays;
//! - a pool's record comes first, then its groups, then the record says that it is complete. Only while it does not, is a
//!   missing group made, on drives that are alive: a group that is missing later was lost, and making it anew would hide
//!   that. A pool that goes says so, then its groups go, then its record. One that was told to go while a volume was made in
//!   it, which the one who said so had not seen, stays;
//! - a drive that is to be removed goes when no group names it; one that was given up is noted first, so that it is not
//!   taken back with what it holds. A node that is to be removed goes after its drives;
//! - a drive goes with its node only if nobody has wanted the node again when it does;
//! - after a crash between any two of these writes the next coordinator sees the same state and goes on with it.

use std::collections::{BTreeMap, BTreeSet};

use coquina_base::DriveId;
use coquina_replication::GroupId;

use super::liveness::{Liveness, ShardLife};
use super::message::{Action, DriveCondition};
use super::{Settings, pool_groups_in};
use crate::group::{GroupBlock, GroupRecord, ShardRef};
use crate::key::{BlockId, Key, PoolId};
use crate::map::{Applied, MapView};
use crate::placement::{Placement, PlacementDrive, PlacementError, PlacementJob};
use crate::record::{
    ClusterRecord, DriveRecord, DriveState, PoolRecord, PoolState, Record, VolumeState, Wanted,
};

/// A record that has to change, and other keys on which that rests, with their revisions.
pub(super) type Due = (Key, Option<Record>, Vec<(Key, u64)>);

#[derive(Debug, Default)]
pub(super) struct Plan {
    /// Pools to place anew.
    due: BTreeSet<PoolId>,
    /// Pools that are being placed, since when.
    placing: BTreeMap<PoolId, u64>,
    /// Where groups are to be, as long as the map does not say it.
    targets: BTreeMap<GroupId, Vec<ShardRef>>,
    pub(super) errors: BTreeMap<PoolId, PlacementError>,
    /// Drives that were dead for too long.
    out: BTreeSet<DriveId>,
}

impl Plan {
    pub(super) fn new(map: &MapView) -> Plan {
        Plan { due: map.pools().map(|pool| pool.value.id).collect(), ..Plan::default() }
    }

    /// Everything was read again.
    pub(super) fn begin_anew(&mut self, map: &MapView) {
        let out = std::mem::take(&mut self.out);
        *self = Plan { out, placing: std::mem::take(&mut self.placing), ..Plan::new(map) };
    }

    pub(super) fn is_settled(&self) -> bool {
        self.due.is_empty() && self.placing.is_empty() && self.targets.is_empty()
    }

    /// Some drives are believed dead or alive now. What is made anew goes to living ones only.
    pub(super) fn drives_changed(&mut self, map: &MapView) {
        let creating = map.pools().filter(|pool| pool.value.state == PoolState::Creating);
        self.due.extend(creating.map(|pool| pool.value.id));
    }

    pub(super) fn follow(&mut self, map: &MapView, applied: &Applied) {
        let mut drives = false;
        for key in &applied.keys {
            match key {
                Key::Node(_) | Key::Drive(_) => drives = true,
                Key::Pool(pool) => {
                    self.errors.remove(pool);
                    match map.pool(*pool) {
                        Some(_) => self.due.insert(*pool),
                        None => self.due.remove(pool),
                    };
                }
                Key::Cluster | Key::Volume(_) | Key::Groups(_) => {}
            }
        }
        if drives {
            self.due.extend(map.pools().map(|pool| pool.value.id));
            self.targets.retain(|_, shards| all_take_data(map, shards));
        }
        for group in &applied.groups {
            let reached = |record: &GroupRecord| {
                self.targets.get(&record.id).is_some_and(|target| is_same(target, record.intended()))
            };
            if map.group(*group).is_none_or(reached) {
                self.targets.remove(group);
            }
        }
    }

    /// Finds drives that were dead for too long, and asks for placements that are due.
    pub(super) fn tick(
        &mut self,
        map: &MapView,
        liveness: &Liveness,
        settings: &Settings,
        now_ns: u64,
        actions: &mut Vec<Action>,
    ) {
        let out: BTreeSet<DriveId> = map
            .drives()
            .map(|drive| drive.value.id)
            .filter(|drive| {
                let before_ns = liveness.drive_dead_before_ns(*drive);
                let dead_ns = liveness.drive_dead_ns(*drive, now_ns);
                dead_ns.unwrap_or(before_ns) >= settings.drive_out_ns
                    || ((dead_ns.is_some() || before_ns > 0) && !map.is_used(*drive))
            })
            .collect();
        if out != self.out {
            self.out = out;
            self.due.extend(map.pools().map(|pool| pool.value.id));
        }
        let is_lost = |since_ns: u64| now_ns.saturating_sub(since_ns) >= 30 * settings.write_timeout_ns;
        self.due
            .extend(self.placing.iter().filter(|(_, since_ns)| is_lost(**since_ns)).map(|(pool, _)| *pool));
        self.placing.retain(|_, since_ns| !is_lost(*since_ns));
        for pool in self.due.clone() {
            let Some(record) = map.pool(pool).filter(|pool| pool.state != PoolState::Removing) else {
                self.due.remove(&pool);
                continue;
            };
            self.drop_impossible(map, liveness, record);
            let waits = self.targets.range(record.group_first..).next();
            let waits = waits.is_some_and(|(group, _)| record.has_group(*group));
            if waits || self.placing.contains_key(&pool) {
                continue;
            }
            self.due.remove(&pool);
            self.placing.insert(pool, now_ns);
            actions.push(Action::Place(Box::new(self.job(map, liveness, record))));
        }
    }

    /// Forgets the places of new groups that cannot be made since the first drive has died meanwhile, with those of their
    /// blocks, which are written whole. Otherwise the pool would wait for them for ever.
    fn drop_impossible(&mut self, map: &MapView, liveness: &Liveness, pool: &PoolRecord) {
        let is_dead = |shard: &ShardRef| liveness.shard(map, *shard) == ShardLife::Dead;
        let of_pool = self.targets.range(pool.group_first..).take_while(|(group, _)| pool.has_group(**group));
        let impossible: BTreeSet<BlockId> = of_pool
            .filter(|(group, shards)| map.group(**group).is_none() && shards.first().is_some_and(is_dead))
            .map(|(group, _)| BlockId::of(*group))
            .collect();
        if !impossible.is_empty() {
            self.targets.retain(|group, _| !impossible.contains(&BlockId::of(*group)));
        }
    }

    /// Blocks with groups that have places and are not in the map yet. Whatever kept one from being written may have passed
    /// without a word.
    pub(super) fn blocks_to_make(&self, map: &MapView) -> BTreeSet<BlockId> {
        let missing = self.targets.keys().filter(|group| map.group(**group).is_none());
        missing.map(|group| BlockId::of(*group)).collect()
    }

    fn job(&self, map: &MapView, liveness: &Liveness, pool: &PoolRecord) -> PlacementJob {
        let mut job = empty_job(pool);
        for drive in map.drives() {
            let drive = &*drive.value;
            let begins = pool.state == PoolState::Creating;
            let alive = || map.shards_of(drive).any(|shard| liveness.shard(map, shard) == ShardLife::Alive);
            if takes_data(map, drive) && !self.out.contains(&drive.id) && (!begins || alive()) {
                add_drive(&mut job, map, pool, drive);
            }
        }
        job.groups =
            pool.groups().map(|group| (group, map.group(group).map_or(Vec::new(), present))).collect();
        job
    }

    /// Takes over what was found. Returns the blocks that have to change.
    pub(super) fn placed(
        &mut self,
        map: &MapView,
        pool: PoolId,
        result: Result<Placement, PlacementError>,
    ) -> BTreeSet<BlockId> {
        if self.placing.remove(&pool).is_none() {
            return BTreeSet::new();
        }
        match result {
            Ok(placement) => {
                self.errors.remove(&pool);
                let mut blocks = BTreeSet::new();
                for (group, wanted) in placement.wanted {
                    let same = map.group(group).is_some_and(|record| is_same(record.intended(), &wanted));
                    if !same && all_take_data(map, &wanted) {
                        blocks.insert(BlockId::of(group));
                        self.targets.insert(group, wanted);
                    }
                }
                blocks
            }
            Err(error) => {
                self.errors.insert(pool, error);
                BTreeSet::new()
            }
        }
    }

    /// The group with what placement wants of it, if that is new.
    pub(super) fn planned(&self, group: &GroupRecord) -> Option<GroupRecord> {
        let target = self.targets.get(&group.id)?;
        let due = !is_same(target, group.intended());
        due.then(|| GroupRecord { wanted: target.clone(), ..group.clone() })
    }

    /// The block with the groups that a new pool lacks in it, if they have places, and that pool. `None` if it lacks none.
    pub(super) fn new_block(
        &self,
        map: &MapView,
        liveness: &Liveness,
        block: BlockId,
        present: Option<&GroupBlock>,
    ) -> Option<(GroupBlock, PoolId)> {
        let pool = map
            .pools()
            .map(|pool| &*pool.value)
            .find(|pool| pool.state == PoolState::Creating && pool_groups_in(pool, block).next().is_some())?;
        let mut next = present.cloned().unwrap_or_default();
        let before = next.groups.len();
        for id in pool_groups_in(pool, block) {
            if next.get(id).is_some() {
                continue;
            }
            let target = self.targets.get(&id)?;
            // Whoever died meanwhile is removed by the next epoch, but the first primary has to be there.
            target.first().filter(|shard| liveness.shard(map, **shard) != ShardLife::Dead)?;
            let index = next.groups.partition_point(|group| group.id < id);
            let in_sync = target.clone();
            let group =
                GroupRecord { id, pool: pool.id, epoch: 1, in_sync, others: Vec::new(), wanted: Vec::new() };
            next.groups.insert(index, group);
        }
        (next.groups.len() > before).then_some((next, pool.id))
    }

    /// Records other than groups that have to change. Drives do not go while writes of groups are under way, which may
    /// name them.
    pub(super) fn due_records(
        &self,
        map: &MapView,
        liveness: &Liveness,
        settings: &Settings,
        now_ns: u64,
        writes_groups: bool,
    ) -> Vec<Due> {
        let mut due = Vec::new();
        for pool in map.pools() {
            due_of_pool(map, &pool.value, &mut due);
        }
        for drive in map.drives() {
            let drive = &*drive.value;
            // What lies on no node at all goes as what lies on one that goes.
            let node_goes = map.node(drive.node).is_none_or(|node| node.wanted == Wanted::Removing);
            if (node_goes || drive.wanted == Wanted::Removing) && !map.is_used(drive.id) && !writes_groups {
                let (key, record) = removal_of(map, drive);
                let node = Key::Node(drive.node);
                let unchanged = match drive.wanted {
                    Wanted::Removing => Vec::new(),
                    // Only its node is to go, and an operator may want that again meanwhile.
                    Wanted::In => vec![(node, map.revision_of(&node))],
                };
                due.push((key, record, unchanged));
                continue;
            }
            let state = observed_state(map, liveness, drive).unwrap_or(drive.state);
            let dead_ms = observed_dead_ms(map, liveness, settings, now_ns, drive);
            if (state, dead_ms) != (drive.state, drive.dead_ms) {
                let record = Record::Drive(DriveRecord { state, dead_ms, ..drive.clone() });
                due.push((Key::Drive(drive.id), Some(record), Vec::new()));
            }
        }
        for node in map.nodes() {
            let node = &*node.value;
            if node.wanted == Wanted::Removing && map.drives_of(node.id).next().is_none() {
                due.push((Key::Node(node.id), None, Vec::new()));
            }
        }
        due
    }
}

/// Where a group's copies are to be, then where there are others, which serve if one of the former cannot stay.
fn present(group: &GroupRecord) -> Vec<ShardRef> {
    let mut shards: Vec<ShardRef> = group.intended().to_vec();
    for shard in group.members() {
        if !shards.contains(&shard) {
            shards.push(shard);
        }
    }
    shards
}

/// The same primary and the same backups; the order of backups means nothing.
fn is_same(one: &[ShardRef], other: &[ShardRef]) -> bool {
    one.first() == other.first() && one.len() == other.len() && one.iter().all(|shard| other.contains(shard))
}

fn due_of_pool(map: &MapView, pool: &PoolRecord, due: &mut Vec<Due>) {
    match pool.state {
        PoolState::Active => {}
        PoolState::Creating => {
            if pool.groups().all(|group| map.group(group).is_some()) {
                let complete = PoolRecord { state: PoolState::Active, ..pool.clone() };
                due.push((Key::Pool(pool.id), Some(Record::Pool(complete)), Vec::new()));
            }
        }
        PoolState::Removing => {
            let volumes =
                || map.volumes().map(|volume| &volume.value).filter(|volume| volume.pool == pool.id);
            if volumes().next().is_some() {
                let in_use = volumes().any(|volume| volume.state == VolumeState::Active);
                if in_use && pool.groups().all(|group| map.group(group).is_some()) {
                    let stays = PoolRecord { state: PoolState::Active, ..pool.clone() };
                    due.push((Key::Pool(pool.id), Some(Record::Pool(stays)), Vec::new()));
                }
                return;
            }
            let blocks: BTreeSet<BlockId> =
                pool.groups().filter(|group| map.group(*group).is_some()).map(BlockId::of).collect();
            if blocks.is_empty() {
                due.push((Key::Pool(pool.id), None, Vec::new()));
            }
            due.extend(blocks.into_iter().map(|block| (Key::Groups(block), None, Vec::new())));
        }
    }
}

/// The next write of a drive's removal.
fn removal_of(map: &MapView, drive: &DriveRecord) -> (Key, Option<Record>) {
    if drive.state == DriveState::GivenUp
        && let Some(cluster) = map.cluster()
        && !cluster.given_up_drives.contains(&drive.id)
    {
        let mut given_up_drives = cluster.given_up_drives.clone();
        given_up_drives.push(drive.id);
        return (Key::Cluster, Some(Record::Cluster(ClusterRecord { given_up_drives, ..cluster.clone() })));
    }
    (Key::Drive(drive.id), None)
}

/// The state of a drive as its living node describes it, if the record says something else.
fn observed_state(map: &MapView, liveness: &Liveness, drive: &DriveRecord) -> Option<DriveState> {
    if drive.state == DriveState::GivenUp || !liveness.is_node_alive(drive.node) {
        return None;
    }
    let dead = map.shards_of(drive).all(|shard| liveness.shard(map, shard) == ShardLife::Dead);
    let state = match liveness.condition(drive.id)? {
        DriveCondition::ReadOnly => DriveState::ReadOnly,
        DriveCondition::Failed => DriveState::Missing,
        DriveCondition::Serving if dead => DriveState::Missing,
        DriveCondition::Serving => DriveState::Healthy,
    };
    (state != drive.state).then_some(state)
}

/// For how long a drive was dead, as its record is to say it: in few steps, so that a dead drive costs few writes. Restarts
/// are over before the first one.
fn observed_dead_ms(
    map: &MapView,
    liveness: &Liveness,
    settings: &Settings,
    now_ns: u64,
    drive: &DriveRecord,
) -> u64 {
    let Some(dead_ns) = liveness.drive_dead_ns(drive.id, now_ns) else {
        let alive = map.shards_of(drive).any(|shard| liveness.shard(map, shard) == ShardLife::Alive);
        return if alive { 0 } else { drive.dead_ms };
    };
    let sixtieths = [1, 15, 30, 45, 60].into_iter().rev();
    let step_ns = sixtieths.map(|part| settings.drive_out_ns / 60 * part).find(|step_ns| dead_ns >= *step_ns);
    drive.dead_ms.max(step_ns.unwrap_or(0).div_ceil(1_000_000))
}

fn all_take_data(map: &MapView, shards: &[ShardRef]) -> bool {
    let takes = |shard: &ShardRef| {
        map.copy_of(*shard).is_some() && map.drive(shard.drive).is_some_and(|drive| takes_data(map, drive))
    };
    shards.iter().all(takes)
}

/// Whether a drive takes data, as far as records say.
pub(crate) fn takes_data(map: &MapView, drive: &DriveRecord) -> bool {
    let node_wanted = map.node(drive.node).is_some_and(|node| node.wanted == Wanted::In);
    let state_good = matches!(drive.state, DriveState::Healthy | DriveState::Missing);
    drive.wanted == Wanted::In && node_wanted && state_good && drive.weight > 0
}

/// A job of a pool without drives and groups.
pub(crate) fn empty_job(pool: &PoolRecord) -> PlacementJob {
    PlacementJob {
        pool: pool.id,
        copies: pool.copies,
        domain: pool.domain.clone(),
        drives: Vec::new(),
        drives_unlabelled: 0,
        groups: Vec::new(),
    }
}

/// Adds a drive that takes data.
pub(crate) fn add_drive(job: &mut PlacementJob, map: &MapView, pool: &PoolRecord, drive: &DriveRecord) {
    match map.domain_of(drive, &pool.domain) {
        Some(domain) => job.drives.push(PlacementDrive {
            drive: drive.id,
            shards: drive.shards,
            weight: drive.weight,
            domain,
        }),
        None => job.drives_unlabelled += 1,
    }
}
