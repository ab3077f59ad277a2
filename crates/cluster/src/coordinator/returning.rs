//! Copies that are out although they are alive: since when, and whether they get on.
//!
//! Such a copy may stay out for ever: a link is cut between two nodes that both reach the leader, or the copy has stopped itself
//! and waits for a restart of its node. It must not take the place of moves that would get on.
//!
//! Rules:
//! - a copy gets on until it has been out and alive for [`Settings::drive_out_ns`] without a sign of it, as long as one of a
//!   dead drive is waited for. After that it is *stuck*;
//! - its group's primary says what is left for it, of the stream that it follows. That grows within no stream, so more than was
//!   said before shows that it began anew. A sign is that it begins, and that less is left than before;
//! - what begins anew all the time and never gets further is stuck, too: after so many new beginnings only less than was ever
//!   left is a sign;
//! - a primary whose program is too old to say so is not judged by that;
//! - nothing of this is kept: who is elected next begins to watch anew.

use std::collections::{BTreeMap, BTreeSet};

use coquina_base::NodeId;
use coquina_replication::GroupId;

use super::Settings;
use super::liveness::{Liveness, ShardLife};
use super::message::BlocksLeft;
use crate::group::{GroupRecord, ShardRef};
use crate::map::MapView;

/// How often a copy may begin anew without getting further than ever before. A link that breaks now and then does that to a long
/// comparison, and so does each new epoch.
const BEGINNINGS_MAX: u32 = 8;

/// Copies that are out and alive, and have not got on for too long: for how long.
pub type Stuck = BTreeMap<(GroupId, ShardRef), u64>;

/// See the head of the module. As large as the groups that are not settled.
#[derive(Debug)]
pub(super) struct Returning {
    patience_ns: u64,
    /// Since when a copy is out and alive.
    since_ns: BTreeMap<(GroupId, ShardRef), u64>,
    /// Of copies that are out.
    progress: BTreeMap<(GroupId, ShardRef), Progress>,
    /// When nodes were last heard that do not say how far copies are.
    mute_ns: BTreeMap<NodeId, u64>,
}

/// What was said of a copy.
#[derive(Debug)]
struct Progress {
    /// The least that was ever left.
    least_blocks: u64,
    /// What was left last.
    blocks: u64,
    /// How often it has begun anew since it got further than ever before.
    beginnings: u32,
    /// The last sign.
    advanced_ns: u64,
}

impl Progress {
    /// Takes note of what is left; says whether it gets on.
    fn advance(&mut self, blocks: u64) -> bool {
        let before = std::mem::replace(&mut self.blocks, blocks);
        if blocks < self.least_blocks {
            (self.least_blocks, self.beginnings) = (blocks, 0);
            return true;
        }
        self.beginnings += u32::from(blocks > before);
        blocks != before && self.beginnings <= BEGINNINGS_MAX
    }
}

impl Returning {
    pub(super) fn new(settings: &Settings) -> Returning {
        Returning {
            patience_ns: settings.drive_out_ns,
            since_ns: BTreeMap::new(),
            progress: BTreeMap::new(),
            mute_ns: BTreeMap::new(),
        }
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
        self.progress.retain(|(group, shard), _| is_out(map, *group, *shard));
        self.mute_ns.retain(|node, _| map.node(*node).is_some());
    }

    /// A node says nothing of copies that are out, whether there are some or not.
    pub(super) fn heard_mute(&mut self, node: NodeId, now_ns: u64) {
        self.mute_ns.insert(node, now_ns);
    }

    /// Notes what the primary of a group has left to do for a copy that is out.
    pub(super) fn report(&mut self, group: &GroupRecord, left: BlocksLeft, now_ns: u64) {
        let Some(shard) = left.shard.filter(|shard| group.others.contains(shard)) else { return };
        let first =
            || Progress { least_blocks: u64::MAX, blocks: left.blocks, beginnings: 0, advanced_ns: 0 };
        let progress = self.progress.entry((group.id, shard)).or_insert_with(first);
        if progress.advance(left.blocks) {
            progress.advanced_ns = now_ns;
        }
    }

    /// For how long a copy that is out and alive has not got on, if that is too long.
    pub(super) fn stuck_ns(
        &self,
        map: &MapView,
        group: &GroupRecord,
        shard: ShardRef,
        now_ns: u64,
    ) -> Option<u64> {
        // One that is not watched yet has just come.
        let since_ns = *self.since_ns.get(&(group.id, shard))?;
        let advanced_ns = self.progress.get(&(group.id, shard)).map_or(0, |progress| progress.advanced_ns);
        let primary = group.primary().and_then(|primary| map.node_of(primary));
        let mute_ns = primary.and_then(|node| self.mute_ns.get(&node).copied()).unwrap_or(0);
        let stuck_ns = now_ns.saturating_sub(since_ns.max(advanced_ns).max(mute_ns));
        (stuck_ns >= self.patience_ns).then_some(stuck_ns)
    }

    /// All that are stuck and still out.
    pub(super) fn stuck(&self, map: &MapView, now_ns: u64) -> Stuck {
        let copies = self.since_ns.keys().filter(|(group, shard)| is_out(map, *group, *shard));
        let stuck = copies.filter_map(|&(group, shard)| {
            Some(((group, shard), self.stuck_ns(map, map.group(group)?, shard, now_ns)?))
        });
        stuck.collect()
    }
}

fn is_out(map: &MapView, group: GroupId, shard: ShardRef) -> bool {
    map.group(group).is_some_and(|group| group.others.contains(&shard))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_may_begin_anew_a_few_times_and_not_for_ever() {
        let mut progress = Progress { least_blocks: u64::MAX, blocks: 26_000, beginnings: 0, advanced_ns: 0 };
        assert!(progress.advance(26_000), "it begins");
        assert!(progress.advance(25_000));
        assert!(!progress.advance(25_000), "nothing was done");
        assert!(progress.advance(500), "of what is left when all has been compared");
        for _ in 0..BEGINNINGS_MAX {
            assert!(progress.advance(26_000) && progress.advance(20_000));
            assert!(!progress.advance(20_000));
        }
        assert!(!progress.advance(26_000) && !progress.advance(20_000), "it never gets further");
        assert!(progress.advance(499), "it does");
        assert!(progress.advance(26_000) && progress.advance(20_000));
    }
}
