//! What only a coordinator does, of which these clusters have none: what primaries ask for, and who waits for that.
//!
//! Once a primary has asked for a copy to be added, and the copy then owes an ack or a grant for a second or its connection
//! breaks, the primary asks for the next epoch with the same members instead. It stays with that, also when the copy answers
//! again, until somebody decides: so whoever waits for additions has to.

use std::collections::BTreeSet;
use std::fmt::Write;

use coquina_cluster::{GroupRecord, MapView, Proposal, ProposedChange, ShardRef};
use coquina_control::{GroupSnapshot, NodeBackend};

use crate::cluster::{Cluster, wait_for_or_tell};

impl Cluster {
    /// What the coordinator would hear from the nodes.
    pub fn proposals(&self) -> Vec<Proposal> {
        let map = self.service().map();
        let configs = self.machines.iter().flatten().flat_map(|machine| machine.node.proposals());
        configs.filter_map(|(group, config)| Proposal::of_config(&map, group, &config)).collect()
    }

    /// Of how many groups such a change is wanted.
    pub fn groups_that_want(&self, is_it: impl Fn(ProposedChange) -> bool) -> usize {
        let proposals = self.proposals();
        let wanted = proposals.iter().filter(|proposal| is_it(proposal.change));
        wanted.map(|proposal| proposal.group).collect::<BTreeSet<_>>().len()
    }

    /// Waits until the primaries of so many groups ask for a copy to be added.
    pub fn wait_for_additions(&self, count: usize) {
        self.wait_for("copies to be proposed for addition", || {
            self.renew();
            self.groups_that_want(|change| matches!(change, ProposedChange::Add(_))) == count
        });
    }

    /// Waits, and tells how the cluster is if that was in vain.
    pub fn wait_for(&self, what: &str, holds: impl FnMut() -> bool) {
        wait_for_or_tell(what, holds, || self.state());
    }

    /// Gives groups the next epoch with the same members where that is asked for.
    fn renew(&self) {
        let mut renewed = self.proposals();
        renewed.retain(|proposal| proposal.change == ProposedChange::Renew);
        if renewed.is_empty() {
            return;
        }
        self.change_groups(|group| {
            let is_asked =
                renewed.iter().any(|proposal| (proposal.group, proposal.epoch) == (group.id, group.epoch));
            GroupRecord { epoch: group.epoch + u64::from(is_asked), ..group.clone() }
        });
    }

    /// The groups of the map, and of each node what it serves, what it asks for, and how its copies of the groups are.
    fn state(&self) -> String {
        let map = self.service().map();
        let mut text = format!("\nthe map, revision {}:", map.revision());
        for group in map.groups() {
            let (in_sync, others) = (copies(&map, &group.in_sync), copies(&map, &group.others));
            let (id, epoch) = (group.id.0, group.epoch);
            write!(text, "\n  group {id}, epoch {epoch}: in sync {in_sync:?}, out {others:?}").unwrap();
        }
        for (index, machine) in self.machines.iter().enumerate() {
            let Some(machine) = machine else {
                write!(text, "\nnode {index} is stopped").unwrap();
                continue;
            };
            write!(text, "\nnode {index} has map {}", machine.service.map().revision()).unwrap();
            for (group, config) in machine.node.proposals() {
                let in_sync: Vec<u64> = config.in_sync.iter().map(|copy| copy.0).collect();
                let others: Vec<u64> = config.others.iter().map(|copy| copy.0).collect();
                let (id, epoch) = (group.0, config.epoch);
                write!(text, "\n  asks for group {id}, epoch {epoch}: in sync {in_sync:?}, out {others:?}")
                    .unwrap();
            }
            let snapshot = machine.node.snapshot();
            for absent in &snapshot.absent {
                write!(text, "\n  does not serve drive {}: {}", absent.id, absent.reason).unwrap();
            }
            for peer in &snapshot.peers {
                let (from, to, is_up) = (peer.from_copy, peer.to_copy, peer.connected);
                write!(text, "\n  copy {from} to {to}: connected {is_up}").unwrap();
            }
            for entry in &snapshot.health {
                write!(text, "\n  {}", entry.message).unwrap();
            }
            for shard in snapshot.drives.iter().flat_map(|drive| &drive.shards) {
                write!(text, "\n  serves a shard whose log was cut {} times", shard.stats.log_cuts).unwrap();
                for group in &shard.groups {
                    let GroupSnapshot {
                        group, epoch, role, serving, in_sync, recovering_blocks_left, ..
                    } = group;
                    write!(
                        text,
                        "\n    group {group}, epoch {epoch}: {}, serving {serving}, {in_sync} in sync, {recovering_blocks_left} blocks to send",
                        role.as_str()
                    )
                    .unwrap();
                }
            }
        }
        text
    }
}

/// By their numbers, as in what is asked for.
fn copies(map: &MapView, shards: &[ShardRef]) -> Vec<u64> {
    shards.iter().filter_map(|shard| map.copy_of(*shard)).map(|copy| copy.0).collect()
}
