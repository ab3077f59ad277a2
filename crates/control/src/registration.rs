//! How a node comes into the map under a name of its own.

use std::cell::Cell;

use coquina_cluster::{NodeRecord, OperationError, operation};

use crate::map_service::{ChangeError, MapService};

/// Puts a node into the map, or brings its record up to date. Of two that take the same name at the same moment the later one is
/// refused, and leaves the map as it was. Blocks.
pub fn register_node(map: &MapService, node: &NodeRecord) -> Result<(), ChangeError> {
    let own = Some(map.cluster());
    let before = map.map().node(node.id).cloned();
    map.change(&|view| operation::register_node(view, own, node))?;
    if before.as_ref().is_some_and(|before| before.name == node.name) {
        return Ok(());
    }
    let taken_by = Cell::new(None);
    let after = map.change(&|view| {
        let write = operation::withdraw_node(view, node.id, before.as_ref())?;
        let other = view.nodes().find(|other| other.value.name == node.name && other.value.id != node.id);
        // Called again if the answer was lost: its record is as before then.
        if write.is_some() {
            taken_by.set(other.map(|other| other.value.id));
        }
        Ok(write)
    })?;
    match taken_by.get() {
        Some(id) if after.node(node.id).is_none_or(|now| now.name != node.name) => {
            Err(OperationError::NodeNameTaken { name: node.name.clone(), id }.into())
        }
        _ => Ok(()),
    }
}
