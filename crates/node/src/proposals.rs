//! What the primaries of a node ask the coordinator for.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use coquina_cluster::{Config, GroupId, MapView};

/// What primaries of a node asked for: the newest configuration for each group that the map does not have.
#[derive(Default)]
pub(crate) struct Proposals(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    configs: BTreeMap<u32, Config>,
    /// The newest map that a reactor had when it told something. One that is behind may not have the groups of another one.
    revision: u64,
}

impl Proposals {
    /// Notes what a primary asks for. `revision` is that of the map which its reactor follows.
    pub fn set(&self, group: u32, config: Config, revision: u64) {
        let mut kept = self.lock();
        kept.revision = kept.revision.max(revision);
        kept.configs.insert(group, config);
    }

    /// Forgets what a primary has taken back.
    pub fn withdraw(&self, group: u32, config: &Config) {
        let mut kept = self.lock();
        if kept.configs.get(&group) == Some(config) {
            kept.configs.remove(&group);
        }
    }

    /// Forgets what the map has, or something newer, and what was asked for groups that are gone.
    pub fn prune(&self, map: &MapView) {
        let mut kept = self.lock();
        if map.revision() < kept.revision {
            return;
        }
        kept.revision = map.revision();
        kept.configs.retain(|group, config| {
            map.group(GroupId(*group)).is_some_and(|record| record.epoch < config.epoch)
        });
    }

    /// All of them.
    pub fn all(&self) -> Vec<(GroupId, Config)> {
        self.lock().configs.iter().map(|(group, config)| (GroupId(*group), config.clone())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use coquina_base::{ClusterId, DriveId, Id128};
    use coquina_cluster::{BlockId, ClusterRecord, GroupBlock, GroupRecord, Key, PoolId, Record, ShardRef};
    use coquina_replication::CopyId;

    use super::*;

    /// A map with these groups, each with its epoch.
    fn map_with(groups: &[(u32, u64)], revision: u64) -> MapView {
        let record = |&(id, epoch): &(u32, u64)| GroupRecord {
            id: GroupId(id),
            pool: PoolId(1),
            epoch,
            in_sync: vec![ShardRef { drive: DriveId(Id128([1; 16])), shard: 0 }],
            others: Vec::new(),
            wanted: Vec::new(),
        };
        let block = GroupBlock { groups: groups.iter().map(record).collect() };
        let cluster = ClusterRecord::new(ClusterId(Id128([1; 16])));
        let records = vec![
            (Key::Cluster, 1, Record::Cluster(cluster)),
            (Key::Groups(BlockId(0)), revision, Record::Groups(block)),
        ];
        MapView::load(records, revision).unwrap()
    }

    fn config(epoch: u64) -> Config {
        Config { epoch, in_sync: vec![CopyId(1)], others: Vec::new(), min_copies: 1 }
    }

    fn groups(proposals: &Proposals) -> Vec<u32> {
        proposals.all().iter().map(|(group, _)| group.0).collect()
    }

    #[test]
    fn what_was_asked_for_a_group_that_is_gone_is_forgotten() {
        let proposals = Proposals::default();
        proposals.set(1, config(3), 5);
        proposals.set(2, config(3), 5);
        proposals.prune(&map_with(&[(1, 2), (2, 2)], 5));
        assert_eq!(groups(&proposals), [1, 2], "the map does not have it yet");
        proposals.prune(&map_with(&[(1, 2)], 6));
        assert_eq!(groups(&proposals), [1]);
        proposals.prune(&map_with(&[(1, 3)], 7));
        assert!(groups(&proposals).is_empty(), "the map has it");
    }

    #[test]
    fn a_reactor_that_is_behind_does_not_take_a_new_group_for_gone() {
        let proposals = Proposals::default();
        proposals.set(2, config(2), 6);
        proposals.prune(&map_with(&[(1, 1)], 5));
        assert_eq!(groups(&proposals), [2]);
        proposals.prune(&map_with(&[(1, 1), (2, 1)], 6));
        assert_eq!(groups(&proposals), [2]);
    }
}
