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

    /// The same of all volumes.
    pub(crate) fn volumes(&self) -> VolumeCounters {
        let mut sum = VolumeCounters::default();
        let volumes = self.processes().flat_map(|local| &local.snapshot.volumes);
        volumes.for_each(|volume| sum.merge(&volume.counters));
        sum
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
