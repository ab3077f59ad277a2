//! Which node a folder is: `node.json`.

use std::path::{Path, PathBuf};

use coquina_base::{ClusterId, NodeId};
use coquina_cluster::MapView;
use serde::{Deserialize, Serialize};

use crate::folder::{FolderError, read_json, write_json};
use crate::random::random_id;

const NODE_FILE_NAME: &str = "node.json";

/// The node that a folder belongs to. Made once and kept: a node that lost it is a new node, and its drives are
/// recognised by what is written on them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeFile {
    /// The node.
    pub node: NodeId,
    /// The name under which it was registered, if it was: what it is called without `--name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The cluster in whose map it was seen, if it was: when it is not in there any more, it was removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    joined: Option<ClusterId>,
}

impl NodeFile {
    /// Reads it. `None`: the folder is no node's yet.
    pub fn read(folder: &Path) -> Result<Option<NodeFile>, FolderError> {
        read_json(&path(folder))
    }

    /// Reads it, or makes a new one with a new identity.
    pub fn open(folder: &Path) -> Result<NodeFile, FolderError> {
        if let Some(file) = NodeFile::read(folder)? {
            return Ok(file);
        }
        let failed = |source| FolderError::Io { doing: "make an identity for", path: path(folder), source };
        let id = random_id().map_err(failed)?;
        let file = NodeFile { node: NodeId(id), name: None, joined: None };
        file.save(folder)?;
        Ok(file)
    }

    /// Takes note that the node is in the map of a cluster, if it is. Called again it writes nothing.
    pub fn note_joined(
        &mut self,
        folder: &Path,
        cluster: ClusterId,
        map: &MapView,
    ) -> Result<(), FolderError> {
        if map.node(self.node).is_none() || self.joined == Some(cluster) {
            return Ok(());
        }
        self.joined = Some(cluster);
        self.save(folder)
    }

    /// Whether the node was in the map of this cluster and is not any more: it was removed, perhaps while it was down.
    pub fn was_removed(&self, cluster: ClusterId, map: &MapView) -> bool {
        self.joined == Some(cluster) && map.node(self.node).is_none()
    }

    /// Writes it durably.
    pub fn save(&self, folder: &Path) -> Result<(), FolderError> {
        write_json(&path(folder), self)
    }
}

fn path(folder: &Path) -> PathBuf {
    folder.join(NODE_FILE_NAME)
}

#[cfg(test)]
mod tests {
    use coquina_base::Id128;
    use coquina_cluster::{ClusterRecord, Key, NodeRecord, Record};

    use super::*;

    #[test]
    fn a_node_that_left_the_map_of_its_cluster_was_removed() {
        let folder = tempfile::tempdir().unwrap();
        let cluster = ClusterId(Id128([1; 16]));
        let mut file = NodeFile::open(folder.path()).unwrap();
        let node = NodeRecord {
            id: file.node,
            name: "node1".to_owned(),
            addresses: Default::default(),
            domains: Default::default(),
            versions: Default::default(),
            wanted: Default::default(),
        };
        let without = vec![(Key::Cluster, 1, Record::Cluster(ClusterRecord::new(cluster)))];
        let mut with = without.clone();
        with.push((Key::Node(node.id), 1, Record::Node(node)));
        let (with, without) = (MapView::load(with, 1).unwrap(), MapView::load(without, 2).unwrap());

        file.note_joined(folder.path(), cluster, &without).unwrap();
        assert!(!file.was_removed(cluster, &without), "it has never joined");
        file.note_joined(folder.path(), cluster, &with).unwrap();
        let file = NodeFile::read(folder.path()).unwrap().unwrap();
        assert!(!file.was_removed(cluster, &with));
        assert!(file.was_removed(cluster, &without));
        assert!(
            !file.was_removed(ClusterId(Id128([2; 16])), &without),
            "another cluster knows nothing of it"
        );
    }
}
