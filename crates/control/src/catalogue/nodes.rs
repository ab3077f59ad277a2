//! Nodes: finding, removing, giving them up.

use std::collections::BTreeSet;

use coquina_base::{DriveId, Nearest};
use coquina_cluster::{
    DriveRecord, DriveState, GroupId, MapView, NodeRecord, OperationError, Wanted, operation,
};

use super::drives::PREFIX_MIN;
use super::{Catalogue, CatalogueError};
use crate::api::RemoveNode;
use crate::ask::ask_nodes;

/// What a removal of a node does, or has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRemoval {
    /// The node as it was.
    pub node: NodeRecord,
    /// Its drives.
    pub drives: Vec<DriveId>,
    /// Groups whose copy there has to be moved or made anew elsewhere first.
    pub groups_left: u64,
    /// Drives that go all the same if the node is to stay after all, since they themselves are being removed.
    pub drives_leaving: Vec<DriveId>,
}

impl Catalogue {
    /// The node that a name, an identity or the beginning of one names.
    pub fn find_node(&self, text: &str) -> Result<NodeRecord, CatalogueError> {
        Ok(self.look_up(&|map| find(map, text).cloned())?.1)
    }

    /// Takes a node with its drives out of the cluster, or says what that would do.
    pub fn remove_node(&self, request: &RemoveNode) -> Result<NodeRemoval, CatalogueError> {
        let (map, node) = self.look_up(&|map| find(map, &request.node).cloned())?;
        let id = node.id;
        let drives: Vec<DriveId> = map.drives_of(id).map(|drive| drive.id).collect();
        if request.cancel {
            if !request.dry_run {
                self.change(&|map| Ok(operation::want_node(map, id, Wanted::In)?))?;
            }
            // One that was given up does not come back.
            let leaves =
                |drive: &&DriveRecord| drive.wanted == Wanted::Removing && drive.state != DriveState::GivenUp;
            let drives_leaving = self.map().drives_of(id).filter(leaves).map(|drive| drive.id).collect();
            return Ok(NodeRemoval { node, drives, groups_left: 0, drives_leaving });
        }
        if request.lost {
            let answers = Some(id) == self.node || ask_nodes(&map, self.node).contains_key(&id);
            if answers {
                return Err(CatalogueError::NodeAnswers { name: node.name });
            }
            self.check_silent(&map, id)?;
            check_last_copies(&map, &node)?;
        }
        // Dry or not, it is decided in the same way.
        operation::want_node(&map, id, Wanted::Removing)?;
        if !request.lost {
            self.check_room_elsewhere(&map, &|drive| drive.node == id)?;
        }
        let groups: usize =
            drives.iter().flat_map(|drive| map.used_shards_of(*drive)).map(|(_, groups)| groups.len()).sum();
        let removal = NodeRemoval { node, drives, groups_left: groups as u64, drives_leaving: Vec::new() };
        if request.dry_run {
            return Ok(removal);
        }
        if request.lost {
            for drive in &removal.drives {
                self.change(&|map| match map.drive(*drive) {
                    Some(_) => Ok(operation::give_up_drive(map, *drive)?),
                    None => Ok(None),
                })?;
            }
        }
        self.change(&|map| match map.node(id) {
            Some(_) => Ok(operation::want_node(map, id, Wanted::Removing)?),
            None => Ok(None),
        })?;
        Ok(removal)
    }
}

/// A node can be given up only if every group has a good copy elsewhere.
fn check_last_copies(map: &MapView, node: &NodeRecord) -> Result<(), CatalogueError> {
    let lost = |drive: DriveId| {
        map.drive(drive).is_none_or(|drive| drive.node == node.id || drive.state == DriveState::GivenUp)
    };
    let groups: BTreeSet<GroupId> = map
        .groups()
        .filter(|group| group.in_sync.iter().all(|shard| lost(shard.drive)))
        .map(|group| group.id)
        .collect();
    if groups.is_empty() {
        return Ok(());
    }
    let what = format!("node {:?}", node.name);
    Err(OperationError::LastGoodCopy { what, groups: groups.len() }.into())
}

fn find<'a>(map: &'a MapView, text: &str) -> Result<&'a NodeRecord, CatalogueError> {
    if let Some(node) = map.node_by_name(text) {
        return Ok(node);
    }
    let prefix = text.to_ascii_lowercase();
    let begins = |node: &&NodeRecord| text.len() >= PREFIX_MIN && node.id.to_string().starts_with(&prefix);
    let found: Vec<&NodeRecord> = map.nodes().map(|node| &*node.value).filter(begins).collect();
    match found.as_slice() {
        [] => {
            let nearest = Nearest::of(text, map.nodes().map(|node| node.value.name.as_str()));
            Err(CatalogueError::NodeNotFound { text: text.to_owned(), nearest })
        }
        [node] => Ok(node),
        several => Err(CatalogueError::NodeAmbiguous { text: text.to_owned(), count: several.len() }),
    }
}
