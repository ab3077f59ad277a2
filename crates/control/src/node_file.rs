//! Which node a folder is: `node.json`.

use std::path::{Path, PathBuf};

use coquina_base::NodeId;
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
        let file = NodeFile { node: NodeId(id), name: None };
        file.save(folder)?;
        Ok(file)
    }

    /// Writes it durably.
    pub fn save(&self, folder: &Path) -> Result<(), FolderError> {
        write_json(&path(folder), self)
    }
}

fn path(folder: &Path) -> PathBuf {
    folder.join(NODE_FILE_NAME)
}
