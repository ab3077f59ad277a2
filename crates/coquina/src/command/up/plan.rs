//! How the nodes of one `coquina up` share its folder and drives.
//!
//! The folder remembers how many nodes there are in `nodes.json`, which a single node does not have.

use std::path::{Path, PathBuf};

use coquina_cluster::MapView;
use serde::{Deserialize, Serialize};

use crate::command::drive_argument::{DriveArgument, absolute};
use crate::command::serving::drives::first_drive_bytes_of;
use crate::error::CliError;

const NODES_FILE_NAME: &str = "nodes.json";
/// What only the folder of a node has.
const NODE_FILE_NAME: &str = "node.json";

#[derive(Serialize, Deserialize)]
struct NodesFile {
    nodes: u16,
}

/// How many nodes the folder is for: as many as asked for, as before, or one.
pub fn nodes_of(folder: &Path, asked: Option<u16>) -> Result<u16, CliError> {
    let path = folder.join(NODES_FILE_NAME);
    let before = match std::fs::read(&path) {
        Ok(bytes) => {
            let file: NodesFile = serde_json::from_slice(&bytes).map_err(|error| {
                CliError::failed(format!("{} is damaged ({error}); it holds {{\"nodes\":N}}", path.display()))
            })?;
            Some(file.nodes)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            folder.join(NODE_FILE_NAME).exists().then_some(1)
        }
        Err(error) => return Err(CliError::io("read", &path, &error)),
    };
    match (before, asked) {
        (Some(1), Some(asked)) if asked > 1 => Err(CliError::usage(format!(
            "{} is the folder of a single node; for {asked} nodes give another folder with --dir",
            folder.display()
        ))),
        (Some(before), Some(asked)) if asked < before => Err(CliError::usage(format!(
            "{} has {before} nodes; start it with at least as many (--nodes {before}), or leave --nodes out",
            folder.display()
        ))),
        (before, asked) => Ok(asked.or(before).unwrap_or(1)),
    }
}

/// Remembers how many nodes the folder is for.
pub fn remember_nodes(folder: &Path, nodes: u16) -> Result<(), CliError> {
    let path = folder.join(NODES_FILE_NAME);
    let text = serde_json::to_string(&NodesFile { nodes })
        .map_err(|error| CliError::failed(format!("cannot write {}: {error}", path.display())))?;
    std::fs::write(&path, text + "\n").map_err(|error| CliError::io("write", &path, &error))
}

/// The name of a node, from 1 on.
pub fn node_name(number: usize) -> String {
    format!("node{number}")
}

/// Deals drives out to nodes: one that the map knows goes to the node that has it, the others by turns. A node that has
/// none gets a first one in its folder. Gives what each node is told with `--drive`.
pub fn deal(
    folder: &Path,
    nodes: u16,
    given: Vec<DriveArgument>,
    map: &MapView,
) -> Result<Vec<Vec<String>>, CliError> {
    let nodes = usize::from(nodes);
    let mut dealt = vec![Vec::new(); nodes];
    let mut paths: Vec<PathBuf> = Vec::new();
    for (number, drive) in given.into_iter().enumerate() {
        let path = absolute(&drive.path)?;
        if paths.contains(&path) {
            return Err(CliError::usage(format!("drive {} is given twice", path.display())));
        }
        let owner = (0..nodes).find(|node| has_drive(map, *node, &path)).unwrap_or(number % nodes);
        dealt[owner].push(argument(&path, drive.size_bytes));
        paths.push(path);
    }
    for (node, drives) in dealt.iter_mut().enumerate() {
        let name = node_name(node + 1);
        let known = map.node_by_name(&name).is_some_and(|node| map.drives_of(node.id).next().is_some());
        if drives.is_empty() && !known {
            let path = absolute(&folder.join(&name).join("drive0"))?;
            let size_bytes =
                if path.exists() { None } else { Some(first_drive_bytes_of(folder, nodes as u64)?) };
            drives.push(argument(&path, size_bytes));
        }
    }
    Ok(dealt)
}

fn has_drive(map: &MapView, node: usize, path: &Path) -> bool {
    let node = map.node_by_name(&node_name(node + 1));
    node.is_some_and(|node| map.drives_of(node.id).any(|drive| Path::new(&drive.path) == path))
}

fn argument(path: &Path, size_bytes: Option<u64>) -> String {
    match size_bytes {
        Some(size_bytes) if !path.exists() => format!("{}:{size_bytes}", path.display()),
        _ => path.display().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_keeps_its_number_of_nodes() {
        let folder = tempfile::tempdir().unwrap();
        let of = |asked| nodes_of(folder.path(), asked);
        assert_eq!((of(None).unwrap(), of(Some(3)).unwrap()), (1, 3));
        remember_nodes(folder.path(), 3).unwrap();
        assert_eq!((of(None).unwrap(), of(Some(4)).unwrap()), (3, 4));
        assert!(of(Some(1)).unwrap_err().to_string().contains("has 3 nodes"));

        let single = tempfile::tempdir().unwrap();
        std::fs::write(single.path().join(NODE_FILE_NAME), "{}").unwrap();
        assert_eq!(nodes_of(single.path(), None).unwrap(), 1);
        assert!(nodes_of(single.path(), Some(3)).unwrap_err().to_string().contains("another folder"));
    }

    #[test]
    fn drives_are_dealt_out_by_turns_and_missing_ones_made() {
        let folder = tempfile::tempdir().unwrap();
        let given = ["/nowhere/a:1G", "/nowhere/b", "/nowhere/c:2G", "/nowhere/d:1G"];
        let given: Vec<_> =
            given.iter().map(|text| crate::command::drive_argument::parse(text).unwrap()).collect();
        let map = MapView::default();
        let dealt = deal(folder.path(), 3, given.clone(), &map).unwrap();
        let gib = 1u64 << 30;
        assert_eq!(dealt[0], [format!("/nowhere/a:{gib}"), format!("/nowhere/d:{gib}")]);
        assert_eq!(dealt[1..], [["/nowhere/b".to_owned()], [format!("/nowhere/c:{}", 2 * gib)]]);
        let twice = vec![given[0].clone(), given[0].clone()];
        assert!(deal(folder.path(), 3, twice, &map).unwrap_err().to_string().contains("given twice"));

        let dealt = deal(folder.path(), 5, given, &map).unwrap();
        assert!(dealt[4][0].contains("node5/drive0:"), "{dealt:?}");
    }
}
