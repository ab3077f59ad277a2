//! The coordinator of a single machine: the cluster map in a local file, nothing to install.
//!
//! Invariants:
//! - one process at a time has the folder open (see [`FolderLock`](crate::FolderLock));
//! - the map in memory is the one in the file: a change goes to the file first, and once the outcome of a change
//!   is unknown nothing more is changed until a restart has read the file again.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coquina_base::{ClusterId, NodeId};
use serde::{Deserialize, Serialize};

use crate::coordinator::{Change, Coordinator, CoordinatorError};
use crate::random::random_id;
use crate::state::{ClusterMap, ClusterRecord, FEATURE_LEVEL, InvalidMap, NodeRecord, Versioned};
use crate::state_file::StateFile;

/// Name of the state file in its folder.
pub(crate) const STATE_FILE_NAME: &str = "cluster.json";

/// Keeps the cluster map in a local file.
pub struct EmbeddedCoordinator {
    file: StateFile,
    node: NodeId,
    current: Mutex<Current>,
}

struct Current {
    map: Arc<ClusterMap>,
    poisoned: bool,
}

#[derive(Serialize)]
struct ContentRef<'a> {
    local_node: NodeId,
    map: &'a ClusterMap,
}

#[derive(Deserialize)]
struct Content {
    local_node: NodeId,
    map: ClusterMap,
}

impl EmbeddedCoordinator {
    /// Opens the state in a folder, or makes a new cluster with one node of that name.
    pub fn open(folder: &Path, node_name: &str) -> Result<Self, CoordinatorError> {
        let file = StateFile::new(folder.join(STATE_FILE_NAME));
        if let Some(content) = file.load::<Content>()? {
            content.map.validate().map_err(|error| file.damaged(error.to_string()))?;
            if !content.map.nodes.contains_key(&content.local_node) {
                return Err(file.damaged("it does not know its own node"));
            }
            let current = Current { map: Arc::new(content.map), poisoned: false };
            return Ok(EmbeddedCoordinator { file, node: content.local_node, current: Mutex::new(current) });
        }
        let random = || {
            random_id().map_err(|source| CoordinatorError::Io {
                doing: "make identities for",
                path: file.path().to_owned(),
                source,
            })
        };
        let node = NodeRecord { id: NodeId(random()?), name: node_name.to_owned() };
        let cluster = ClusterRecord {
            id: ClusterId(random()?),
            feature_level: FEATURE_LEVEL,
            layer_next: 1,
            overcommit_percent: 100,
            given_up_drives: Vec::new(),
        };
        let node_id = node.id;
        let map = ClusterMap::new(cluster, node);
        map.validate()?;
        file.prepare(&ContentRef { local_node: node_id, map: &map })?;
        file.publish()?;
        let current = Current { map: Arc::new(map), poisoned: false };
        Ok(EmbeddedCoordinator { file, node: node_id, current: Mutex::new(current) })
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        // Nothing panics while the lock is held with the map half changed: it is replaced whole.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Coordinator for EmbeddedCoordinator {
    fn node_id(&self) -> NodeId {
        self.node
    }

    fn map(&self) -> Arc<ClusterMap> {
        self.current().map.clone()
    }

    fn compare_and_set(
        &self,
        expected: Option<u64>,
        change: Change,
    ) -> Result<Arc<ClusterMap>, CoordinatorError> {
        let mut current = self.current();
        if current.poisoned {
            return Err(CoordinatorError::Poisoned);
        }
        let mut map = ClusterMap::clone(&current.map);
        map.apply(expected, change)?;
        map.validate()?;
        self.file.prepare(&ContentRef { local_node: self.node, map: &map })?;
        if let Err(error) = self.file.publish() {
            current.poisoned = true;
            return Err(error);
        }
        current.map = Arc::new(map);
        Ok(current.map.clone())
    }
}

impl ClusterMap {
    /// Applies a change of one record, if its revision is the one expected.
    fn apply(&mut self, expected: Option<u64>, change: Change) -> Result<(), CoordinatorError> {
        let record = change.record_name();
        let found = match &change {
            Change::Cluster(_) => Some(self.cluster.revision),
            Change::Node(node) => self.nodes.get(&node.id).map(|record| record.revision),
            Change::Drive(drive) => self.drives.get(&drive.id).map(|record| record.revision),
            Change::Volume(volume) => self.volumes.get(&volume.id).map(|record| record.revision),
            Change::ForgetDrive(id) => self.drives.get(id).map(|record| record.revision),
            Change::ForgetVolume(id) => self.volumes.get(id).map(|record| record.revision),
        };
        if found != expected {
            return Err(CoordinatorError::Conflict { record });
        }
        self.revision += 1;
        let revision = self.revision;
        match change {
            Change::Cluster(value) => {
                let before = &self.cluster.value;
                if value.id != before.id || value.layer_next < before.layer_next {
                    let reason = "its identity and given-out layers cannot change".to_owned();
                    return Err(InvalidMap { record, reason }.into());
                }
                self.cluster = Versioned { revision, value };
            }
            Change::Node(value) => {
                self.nodes.insert(value.id, Versioned { revision, value });
            }
            Change::Drive(value) => {
                self.drives.insert(value.id, Versioned { revision, value });
            }
            Change::Volume(value) => {
                self.volumes.insert(value.id, Versioned { revision, value });
            }
            Change::ForgetDrive(id) => {
                self.drives.remove(&id);
            }
            Change::ForgetVolume(id) => {
                self.volumes.remove(&id);
            }
        }
        Ok(())
    }
}
