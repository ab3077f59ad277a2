//! Whether the node of a folder is in its cluster, or was removed.
//!
//! Invariants:
//! - a node that has never joined, as after a first start that failed, was not removed;
//! - a folder without `cluster.json` remembers no map: its user says that the map of now is the right one, whatever was before.

use std::path::Path;

use coquina_base::{ClusterId, NodeId};
use coquina_cluster::MapView;
use coquina_control::{ClusterFile, NodeFile};
use coquina_node::NodeError;

use crate::error::CliError;

/// Whether the node of a folder was in this map once and is not any more. Asked before the folder's own process reads the map.
pub fn was_removed(folder: &Path, cluster: ClusterId, map: &MapView) -> Result<bool, CliError> {
    if !remembers_map(folder)? {
        return Ok(false);
    }
    Ok(NodeFile::read(folder)?.is_some_and(|file| file.was_removed(cluster, map)))
}

/// Whether the folder knows a map. Asked before it is read, since that is remembered.
pub fn remembers_map(folder: &Path) -> Result<bool, CliError> {
    Ok(ClusterFile::read(folder)?.is_some())
}

/// Whether a node does not start since it was removed: a drive that it has formatted itself was given up, and the node is not in
/// the map. So it is told for folders of versions that did not take note of having joined.
pub fn is_removal(error: &NodeError, node: NodeId, map: &MapView) -> bool {
    let NodeError::GivenUp { path } = error else { return false };
    let is_own = coquina_node::drive::info(path).is_ok_and(|info| info.node == node);
    is_own && map.node(node).is_none()
}

/// What is said to a node that was removed.
pub fn removed(name: &str) -> CliError {
    CliError::Removed(format!(
        "node {name} was removed from the cluster; to join again, start it with an empty folder and drive"
    ))
}
