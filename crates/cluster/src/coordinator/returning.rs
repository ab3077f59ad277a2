//! Copies that are out although they are alive: since when, and whether they get on.
//!
//! Such a copy may stay out for ever: a link is cut between two nodes that both reach the leader, or the copy has stopped itself
//! and waits for a restart of its node. It must not take the place of moves that would get on.
//!
//! Rules:
//! - a copy gets on until it has been out and alive for [`Settings::drive_out_ns`] without a sign of it, as long as one of a
//!   dead drive is waited for. After that it is *stuck*;
//! - a sign is that the group's primary has less left to do than it ever said before with the same copies out. Copies of a
//!   group are not told apart: one that is stuck beside one that gets on is found out when that one is in sync;
//! - what never gets on because it begins anew each time has never less left, and is found out, too;
//! - nothing of this is kept: who is elected next begins to watch anew.

use std::collections::{BTreeMap, BTreeSet};

use coquina_replication::GroupId;

use super::Settings;
use super::liveness::{Liveness, ShardLife};
use super::message::BlocksLeft;
use crate::group::{GroupRecord, ShardRef};
use crate::map::MapView;

/// Copies that are out and alive, and have not got on for too long: for how long.
pub type Stuck = BTreeMap<(GroupId, ShardRef), u64>;

/// See the head of the module. As large as the groups that are not settled.
#[derive(Debug)]
pub(super) struct Returning {
    patience_ns: u64,
    /// Since when a copy is out and alive.
    since_ns: BTreeMap<(GroupId, ShardRef), u64>,
    progress: BTreeMap<GroupId, Progress>,
}

/// What a group's primary said.
#[derive(Debug)]
struct Progress {
    /// The copies that were out.
    others: Vec<ShardRef>,
    /// The least that was left for them.
    blocks_left: u64,
    /// When it last became less; 0: never.
    advanced_ns: u64,
}

impl Returning {
    pub(super) fn new(settings: &Settings) -> Returning {
        Returning { patience_ns: settings.drive_out_ns, since_ns: BTreeMap::new(), progress: BTreeMap::new() }
    }

    /// Looks who is out and alive, of the groups that are not settled.
    pub(super) fn watch(
        &mut self,
        map: &MapView,
        liveness: &Liveness,
        unsettled: &BTreeSet<GroupId>,
        now_ns: u64,
    ) {
        let groups = unsettled.iter().filter_map(|group| map.group(*group));
        let out = groups.flat_map(|group| group.others.iter().map(move |shard| (group.id, *shard)));
        let out = out.filter(|(_, shard)| liveness.shard(map, *shard) == ShardLife::Alive);
        let before = std::mem::take(&mut self.since_ns);
        self.since_ns = out.map(|copy| (copy, before.get(&copy).copied().unwrap_or(now_ns))).collect();
        self.progress.retain(|group, _| unsettled.contains(group));
    }

    /// Notes what the primary of a group has left to do for its copies that are out.
    pub(super) fn report(&mut self, group: &GroupRecord, left: BlocksLeft, now_ns: u64) {
        // Nothing: either it is done, or it has not begun yet, and how much there is to do is not known.
        if left.blocks == 0 || group.others.is_empty() {
            return;
        }
        let first = || Progress { others: Vec::new(), blocks_left: u64::MAX, advanced_ns: 0 };
        let progress = self.progress.entry(group.id).or_insert_with(first);
        if progress.others != group.others {
            progress.others.clone_from(&group.others);
            progress.blocks_left = left.blocks;
        } else if left.blocks < progress.blocks_left {
            progress.blocks_left = left.blocks;
            progress.advanced_ns = now_ns;
        }
    }

    /// For how long a copy that is out and alive has not got on, if that is too long.
    pub(super) fn stuck_ns(&self, group: GroupId, shard: ShardRef, now_ns: u64) -> Option<u64> {
        // One that is not watched yet has just come.
        let since_ns = *self.since_ns.get(&(group, shard))?;
        let advanced_ns = self.progress.get(&group).map_or(0, |progress| progress.advanced_ns);
        let stuck_ns = now_ns.saturating_sub(since_ns.max(advanced_ns));
        (stuck_ns >= self.patience_ns).then_some(stuck_ns)
    }

    /// All that are stuck and still out.
    pub(super) fn stuck(&self, map: &MapView, now_ns: u64) -> Stuck {
        let is_out = |group: GroupId, shard: ShardRef| {
            map.group(group).is_some_and(|group| group.others.contains(&shard))
        };
        let copies = self.since_ns.keys().filter(|(group, shard)| is_out(*group, *shard));
        copies
            .filter_map(|&(group, shard)| Some(((group, shard), self.stuck_ns(group, shard, now_ns)?)))
            .collect()
    }
}
