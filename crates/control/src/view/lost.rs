//! What drives hold of volumes that the map lost when it was put back to an older state.

use std::collections::BTreeSet;

use coquina_base::LayerId;
use coquina_cluster::MapView;

use super::node_name;
use crate::api;
use crate::sample::Moment;

/// What nodes have found, as far as they answer.
pub(crate) fn lost(map: &MapView, now: &Moment, dry_run: bool) -> api::LostData {
    let nodes = now.nodes.iter().filter(|(_, local)| !local.lost_layers.is_empty());
    let nodes = nodes.map(|(id, local)| api::LostOnNode {
        node: node_name(map, *id),
        layers: local.lost_layers.iter().map(|layer| layer.0).collect(),
    });
    let silent = map.nodes().filter(|node| !now.nodes.contains_key(&node.value.id));
    let layers: BTreeSet<LayerId> =
        now.nodes.values().flat_map(|local| &local.lost_layers).copied().collect();
    api::LostData {
        layers: layers.into_iter().map(|layer| layer.0).collect(),
        nodes: nodes.collect(),
        silent: silent.map(|node| node.value.name.clone()).collect(),
        dry_run,
    }
}
