//! Which cluster a folder belongs to, and how far its store was: `cluster.json`.
//!
//! A process remembers this across restarts, so that a store that was wiped, replaced or restored from an old backup is
//! noticed before anything is served by its map.

use std::path::{Path, PathBuf};

use coquina_base::ClusterId;
use coquina_store::Identity;
use serde::{Deserialize, Serialize};

use crate::folder::{FolderError, read_json, write_json};

const CLUSTER_FILE_NAME: &str = "cluster.json";

/// What is remembered of the cluster and its store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterFile {
    /// The cluster.
    pub cluster: ClusterId,
    /// The store's identity, in hexadecimal digits.
    #[serde(default)]
    store: String,
    /// The highest revision of the store that was seen. It is written within moments after it was.
    #[serde(default)]
    revision: u64,
    /// Why the store was refused, if it was. That stays: once others have written to a store that lost changes, its
    /// revision tells nothing any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

impl ClusterFile {
    /// What is to be remembered.
    pub fn new(cluster: ClusterId, identity: Identity) -> ClusterFile {
        ClusterFile {
            cluster,
            store: format!("{:016x}", identity.store_id),
            revision: identity.revision,
            refused: None,
        }
    }

    /// Reads it. `None`: the folder belongs to no cluster yet.
    pub fn read(folder: &Path) -> Result<Option<ClusterFile>, FolderError> {
        read_json(&ClusterFile::path(folder))
    }

    /// Writes it durably.
    pub fn save(&self, folder: &Path) -> Result<(), FolderError> {
        write_json(&ClusterFile::path(folder), self)
    }

    /// The store as it was seen last; also for [`EtcdOptions::known`](coquina_store::EtcdOptions).
    pub fn identity(&self) -> Option<Identity> {
        let store_id = u64::from_str_radix(&self.store, 16).ok()?;
        Some(Identity { store_id, revision: self.revision })
    }

    /// Where it is.
    pub fn path(folder: &Path) -> PathBuf {
        folder.join(CLUSTER_FILE_NAME)
    }
}
