//! Takes back what a first start has made, if that start is refused: what is left of it would be taken for a cluster by the next one.
//!
//! Invariants:
//! - nothing goes that was there before, nor a drive that somebody else has made meanwhile;
//! - nothing goes of a cluster to which a drive belongs now that was there before, or that has a volume, or a node in a map kept elsewhere.

use std::io;
use std::path::{Path, PathBuf};

use coquina_control::{ClusterFile, NodeFile};
use coquina_node::drive::DriveInfo;
use coquina_store::EmbeddedStore;

use super::made::Before;
use crate::command::up::STORE_FOLDER_NAME;
use crate::error::CliError;

/// All that a start makes in its folder, but for drives and the lock.
const NAMES: [&str; 9] = [
    STORE_FOLDER_NAME,
    "cluster.json",
    "cluster.new.json",
    "node.json",
    "node.new.json",
    "nodes.json",
    "nodes.new.json",
    "server.json",
    "server.new.json",
];

/// The first start in a folder.
pub struct FirstStart {
    /// Of what it may make, what was not there.
    absent: Vec<PathBuf>,
}

impl FirstStart {
    /// Looks at a folder before anything is made in it. `names` are those of the folders of its nodes. `None` if it belongs to a
    /// cluster.
    pub fn look(folder: &Path, names: &[String]) -> Result<Option<FirstStart>, CliError> {
        let has_store = EmbeddedStore::is_in(&folder.join(STORE_FOLDER_NAME));
        if has_store || ClusterFile::read(folder)?.is_some() || NodeFile::read(folder)?.is_some() {
            return Ok(None);
        }
        let names = NAMES.into_iter().chain(names.iter().map(String::as_str));
        let absent = names.map(|name| folder.join(name)).filter(|path| path.symlink_metadata().is_err());
        Ok(Some(FirstStart { absent: absent.collect() }))
    }

    /// Takes back what was made since. `before` are the drives as they were, `is_own` tells those that this start has made. When this is
    /// called nothing of it is open.
    pub fn take_back(self, before: &Before, is_own: impl Fn(&DriveInfo) -> bool) {
        if before.has_formatted_others() {
            return;
        }
        // What stays harms nobody.
        for path in before.new_files() {
            if coquina_node::drive::info(path).is_ok_and(|info| is_own(&info)) {
                let _ = std::fs::remove_file(path);
            }
        }
        for path in self.absent {
            let _ = match std::fs::remove_file(&path) {
                Err(error) if error.kind() == io::ErrorKind::IsADirectory => std::fs::remove_dir_all(&path),
                result => result,
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_before_stays() {
        let folder = tempfile::tempdir().unwrap();
        let [mine, store, node, old, new] =
            ["notes", "store", "node1", "old", "new"].map(|name| folder.path().join(name));
        for path in [&mine, &old] {
            std::fs::write(path, "x").unwrap();
        }
        std::fs::create_dir(&node).unwrap();
        std::fs::write(node.join("kept"), "x").unwrap();
        let first =
            FirstStart::look(folder.path(), &["node1".to_owned(), "node2".to_owned()]).unwrap().unwrap();
        let before = Before::look([old.as_path(), new.as_path()]);
        std::fs::create_dir_all(store.join("below")).unwrap();
        std::fs::create_dir(folder.path().join("node2")).unwrap();
        for path in [&new, &folder.path().join("cluster.json"), &store.join("store.log")] {
            std::fs::write(path, "{}").unwrap();
        }
        first.take_back(&before, |_| true);
        let mut left: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["new", "node1", "notes", "old"], "what is no drive is not of this start");
        assert!(node.join("kept").exists());
    }

    #[test]
    fn a_folder_of_a_cluster_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        NodeFile::open(folder.path()).unwrap();
        assert!(FirstStart::look(folder.path(), &[]).unwrap().is_none());
        assert!(FirstStart::look(&folder.path().join("none"), &[]).unwrap().is_some());
    }
}
