//! What all processes of the cluster count at a moment, and what was counted a moment before.

use std::collections::BTreeMap;
use std::time::Duration;

use coquina_base::{NodeId, VolumeId};
use coquina_cluster::{HealthEntry, MapView};

use crate::api::{LeaderHealth, Local};
use crate::ask::ask_nodes;
use crate::backend::{GroupRole, GroupSnapshot};
use crate::catalogue::Catalogue;
use crate::counters::VolumeCounters;
use crate::health::{self, Known};
use crate::map_service::{Leader, StoreState};

/// All that is known at a moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Moment {
    /// Nodes that answered, with this process's own.
    pub(crate) nodes: BTreeMap<NodeId, Local>,
    /// This process, if it is no node.
    pub(crate) own: Option<Local>,
}

/// All that is known, and what was counted before if rates are wanted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) now: Moment,
    pub(crate) before: Option<(Moment, Duration)>,
    pub(crate) leader: Option<Leader>,
    pub(crate) leader_health: Option<LeaderHealth>,
    pub(crate) store: StoreState,
}

impl Moment {
    /// Asks every node of the cluster, or this process only. Blocks for up to a second.
    pub(crate) fn take(map: &MapView, own: Local, everywhere: bool) -> Moment {
        let mut nodes = if everywhere { ask_nodes(map, own.node) } else { BTreeMap::new() };
        match own.node {
            Some(node) => {
                nodes.insert(node, own);
                Moment { nodes, own: None }
            }
            None => Moment { nodes, own: Some(own) },
        }
    }

    /// All processes.
    pub(crate) fn processes(&self) -> impl Iterator<Item = &Local> {
        self.nodes.values().chain(&self.own)
    }

    /// What was done with a volume, all processes together. Each request is counted where it was served.
    pub(crate) fn volume(&self, id: VolumeId) -> VolumeCounters {
        let mut sum = VolumeCounters::default();
        let volumes = self.processes().flat_map(|local| &local.snapshot.volumes);
        volumes.filter(|volume| volume.id == id).for_each(|volume| sum.merge(&volume.counters));
        sum
    }

    /// What was done with a volume since another moment, as far as it is known.
    pub(crate) fn volume_since(&self, before: &Moment, id: VolumeId) -> VolumeCounters {
        let mut sum = VolumeCounters::default();
        for (now, before) in self.since(before) {
            let of = |local: &Local| {
                let volume = local.snapshot.volumes.iter().find(|volume| volume.id == id);
                volume.map(|volume| volume.counters).unwrap_or_default()
            };
            sum.merge(&of(now).since(&of(before)));
        }
        sum
    }

    /// The same of all volumes.
    pub(crate) fn volumes_since(&self, before: &Moment) -> VolumeCounters {
        let mut sum = VolumeCounters::default();
        for (now, before) in self.since(before) {
            let volumes = before.snapshot.volumes.iter();
            let before: BTreeMap<VolumeId, &VolumeCounters> =
                volumes.map(|volume| (volume.id, &volume.counters)).collect();
            for volume in &now.snapshot.volumes {
                match before.get(&volume.id) {
                    Some(before) => sum.merge(&volume.counters.since(before)),
                    None => sum.merge(&volume.counters),
                }
            }
        }
        sum
    }

    /// Blocks that were sent to copies which came back, since the processes started.
    pub(crate) fn recovered_blocks(&self) -> u64 {
        let nodes = self.nodes.values().map(|local| local.snapshot.recovered_blocks());
        nodes.fold(0, u64::saturating_add)
    }

    /// The same since another moment, as far as it is known.
    pub(crate) fn recovered_blocks_since(&self, before: &Moment) -> u64 {
        let more = |(now, before): (&Local, &Local)| {
            now.snapshot.recovered_blocks().saturating_sub(before.snapshot.recovered_blocks())
        };
        self.since(before).map(more).fold(0, u64::saturating_add)
    }

    /// The processes that have told what they count now and at another moment. Of one that did not answer then nobody knows what of
    /// all that it has ever counted belongs to the time between.
    fn since<'a>(&'a self, before: &'a Moment) -> impl Iterator<Item = (&'a Local, &'a Local)> {
        let nodes = self.nodes.iter().filter_map(|(id, now)| Some((now, before.nodes.get(id)?)));
        let own = self.own.as_ref().zip(before.own.as_ref());
        nodes.chain(own).filter(|(now, before)| {
            let is_same =
                now.process == before.process && now.snapshot.uptime_ns >= before.snapshot.uptime_ns;
            is_same && !before.snapshot.incomplete
        })
    }

    /// All copies of groups, as their nodes describe them.
    pub(crate) fn copies(&self) -> impl Iterator<Item = &GroupSnapshot> {
        let drives = self.nodes.values().flat_map(|local| &local.snapshot.drives);
        drives.flat_map(|drive| &drive.shards).flat_map(|shard| &shard.groups)
    }

    /// The primary of each group as its node describes it, the newest if several believe to be it.
    pub(crate) fn primaries(&self) -> BTreeMap<u32, &GroupSnapshot> {
        let mut primaries: BTreeMap<u32, &GroupSnapshot> = BTreeMap::new();
        for copy in self.copies().filter(|copy| copy.role == GroupRole::Primary) {
            let known = primaries.entry(copy.group).or_insert(copy);
            if copy.epoch > known.epoch {
                *known = copy;
            }
        }
        primaries
    }
}

impl Sample {
    /// What this process counts, and what its leader says if it is this process.
    pub(crate) fn take_here(catalogue: &Catalogue, own: Local) -> Sample {
        let service = catalogue.map_service();
        Sample {
            now: Moment::take(&service.map(), own, false),
            before: None,
            leader: service.leader(),
            leader_health: catalogue.coordinator().and_then(|coordinator| coordinator.health_blocking()),
            store: service.state(),
        }
    }

    /// A sample of now, of all processes. Blocks for up to a second.
    pub(crate) fn take(catalogue: &Catalogue, own: Local) -> Sample {
        let service = catalogue.map_service();
        let map = service.map();
        let leader = service.leader();
        let ask = || catalogue.leader_health();
        let (now, leader_health) = std::thread::scope(|scope| {
            let asked = std::thread::Builder::new().spawn_scoped(scope, ask);
            let now = Moment::take(&map, own, true);
            let health = match asked {
                Ok(asked) => asked.join().ok().flatten(),
                // There is no other thread to be had.
                Err(_) => ask(),
            };
            (now, health)
        });
        Sample { now, before: None, leader, leader_health, store: service.state() }
    }

    /// Everything that an operator should know.
    pub(crate) fn health(&self, map: &MapView, more: &[HealthEntry]) -> Vec<HealthEntry> {
        let known = Known {
            nodes: self.now.nodes.iter().map(|(node, local)| (*node, local)).collect(),
            own: self.now.own.as_ref(),
            leader: self.leader_health.as_ref(),
            led: self.leader.is_some(),
            store: self.store.clone(),
        };
        health::derive(map, &known, more)
    }
}

#[cfg(test)]
mod tests {
    use coquina_base::Id128;

    use super::*;
    use crate::backend::{CopyTotals, NodeSnapshot, VolumeSnapshot};

    const VOLUME: VolumeId = VolumeId(Id128([7; 16]));

    fn node(number: u8) -> NodeId {
        NodeId(Id128([number; 16]))
    }

    /// What a process that has served for so long says.
    fn local(process: u32, uptime_ns: u64, writes: u64) -> Local {
        let counters = VolumeCounters { writes, ..VolumeCounters::default() };
        let snapshot = NodeSnapshot {
            uptime_ns,
            volumes: vec![VolumeSnapshot { id: VOLUME, name: "disk".to_owned(), counters }],
            copy_totals: CopyTotals { recovered_blocks: writes, ..CopyTotals::default() },
            ..NodeSnapshot::default()
        };
        Local { process, snapshot, ..Local::default() }
    }

    fn moment(nodes: Vec<(u8, Local)>) -> Moment {
        Moment { nodes: nodes.into_iter().map(|(number, local)| (node(number), local)).collect(), own: None }
    }

    fn done(now: &Moment, before: &Moment) -> [u64; 3] {
        let of_volume = now.volume_since(before, VOLUME).writes;
        [of_volume, now.volumes_since(before).writes, now.recovered_blocks_since(before)]
    }

    /// All that it had ever written was shown as written within the interval: terabytes per second.
    #[test]
    fn a_node_that_did_not_answer_before_has_done_nothing_that_is_known() {
        let before = moment(vec![(1, local(10, 100, 500))]);
        let now = moment(vec![(1, local(10, 200, 507)), (2, local(20, 1 << 40, 1 << 40))]);
        assert_eq!(done(&now, &before), [7; 3]);
        assert_eq!(done(&before, &now), [0; 3], "nor has one that does not answer any more");
        let mut hung = before.clone();
        hung.nodes.get_mut(&node(1)).unwrap().snapshot.incomplete = true;
        assert_eq!(done(&now, &hung), [0; 3], "what its reactors had counted is not known");
    }

    /// It hid what the others did meanwhile, too.
    #[test]
    fn a_node_that_was_started_again_begins_anew() {
        let before = moment(vec![(1, local(10, 100, 500)), (2, local(20, 100, 90_000))]);
        let other_process = moment(vec![(1, local(10, 200, 507)), (2, local(21, 50, 3))]);
        assert_eq!(done(&other_process, &before), [7; 3]);
        let same_number = moment(vec![(1, local(10, 200, 507)), (2, local(20, 50, 3))]);
        assert_eq!(done(&same_number, &before), [7; 3], "of another host's start");
    }

    #[test]
    fn a_volume_that_goes_hides_nothing_and_one_that_comes_counts() {
        let before = moment(vec![(1, local(10, 100, 500))]);
        let mut now = moment(vec![(1, local(10, 200, 9))]);
        now.nodes.get_mut(&node(1)).unwrap().snapshot.volumes[0].id = VolumeId(Id128([8; 16]));
        assert_eq!(now.volumes_since(&before).writes, 9);
    }
}
