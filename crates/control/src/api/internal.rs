//! What the processes of a cluster ask each other.

use std::collections::{BTreeMap, BTreeSet};

use coquina_base::{ClusterId, LayerId, NodeId, VolumeId};
use coquina_cluster::{ClusterHealth, NodeRequest};
use serde::{Deserialize, Serialize};

use crate::backend::NodeSnapshot;

/// What a process counts, for the others that put a whole together.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Local {
    /// The cluster.
    pub cluster: ClusterId,
    /// The node; none for gateways and supervisors.
    pub node: Option<NodeId>,
    /// Version of the program.
    pub version: String,
    /// The process.
    pub process: u32,
    /// Revision of the map that it follows.
    pub map_revision: u64,
    /// Addresses of its NBD server.
    pub nbd: Vec<String>,
    /// Layers that drives here hold and that the map does not know, since it lost them when it was put back to an older state.
    #[serde(default)]
    pub lost_layers: BTreeSet<LayerId>,
    /// All counters.
    pub snapshot: NodeSnapshot,
}

/// How long a process has not heard the leader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaderSilence {
    /// The leader's fencing token.
    pub term: u64,
    /// Since its last answer to the node of this process.
    pub silent_ms: u64,
}

/// How the cluster is, as its leader sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LeaderHealth {
    /// Groups by state and what is wrong.
    pub health: ClusterHealth,
    /// Nodes that it counts as dead.
    pub dead: Vec<NodeId>,
    /// Nodes that it has heard in time, or does not watch for long enough yet to know. `None` if it does not say: an older version.
    #[serde(default)]
    pub heard: Option<Vec<NodeId>>,
    /// For how long each node was not heard, in milliseconds, counted from when this process began to lead at the earliest.
    #[serde(default)]
    pub silent_ms: BTreeMap<NodeId, u64>,
}

/// The answer to a heartbeat.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeartbeatReply {
    /// What the node is asked to do.
    #[serde(default)]
    pub requests: Vec<NodeRequest>,
}

/// Asks a process to say when nothing of a volume that was taken under an older map is under way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quiesce {
    /// The volume.
    pub volume: VolumeId,
    /// The map.
    pub map_revision: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_leader_does_not_say_whom_it_hears() {
        let health = serde_json::to_value(LeaderHealth::default()).unwrap();
        let mut older = health.clone();
        older.as_object_mut().unwrap().remove("heard");
        assert_eq!(serde_json::from_value::<LeaderHealth>(older).unwrap().heard, None);
        let with = LeaderHealth { heard: Some(Vec::new()), ..LeaderHealth::default() };
        let text = serde_json::to_string(&with).unwrap();
        assert_eq!(serde_json::from_str::<LeaderHealth>(&text).unwrap(), with, "it hears nobody");
    }
}
