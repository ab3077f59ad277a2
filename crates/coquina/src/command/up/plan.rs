//! How the nodes of one `coquina up` share its folder and drives.
//!
//! The folder remembers how many nodes there are in `nodes.json`, which a single node does not have.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use coquina_cluster::MapView;
use serde::{Deserialize, Serialize};

use crate::command::drive_argument::{DriveArgument, for_map};
use crate::command::serving::drives::first_drive_bytes_of;
use crate::error::CliError;

const NODES_FILE_NAME: &str = "nodes.json";
/// What only the folder of a node has.
const NODE_FILE_NAME: &str = "node.json";

/// What the folder remembers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodesFile {
    /// How many nodes there are or were.
    pub nodes: u16,
    /// Numbers of those that were removed from the cluster.
    #[serde(default)]
    pub removed: Vec<u16>,
}

impl NodesFile {
    /// The one of a folder; the default is what it would be without.
    fn read(folder: &Path) -> Result<Option<NodesFile>, CliError> {
        let path = folder.join(NODES_FILE_NAME);
        match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| {
                CliError::failed(format!("{} is damaged ({error}); it holds {{\"nodes\":N}}", path.display()))
            }),
            // What is wrong with the folder itself is said when it is taken.
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                let single = folder.join(NODE_FILE_NAME).exists();
                Ok(single.then_some(NodesFile { nodes: 1, removed: Vec::new() }))
            }
            Err(error) => Err(CliError::io("read", &path, &error)),
        }
    }

    /// Which nodes the folder is for: as many as asked for, as before, or one. Whether so few are enough for those that there
    /// are is said by [`check_enough`](Self::check_enough).
    pub fn choose(folder: &Path, asked: Option<u16>) -> Result<NodesFile, CliError> {
        let before = NodesFile::read(folder)?;
        let nodes = before.as_ref().map(|before| before.nodes);
        match (nodes, asked) {
            (Some(1), Some(asked)) if asked > 1 => Err(CliError::usage(format!(
                "{} is the folder of a single node; for {asked} nodes give another folder with --dir",
                folder.display()
            ))),
            // Of one alone the files lie elsewhere. How many there are is not known yet: a start may have failed.
            (Some(nodes), Some(1)) if nodes > 1 => Err(CliError::usage(format!(
                "{} was made for {nodes} nodes; start it with --nodes {nodes}, or leave --nodes out; for a single node give another \
                 folder with --dir",
                folder.display()
            ))),
            _ => Ok(NodesFile {
                nodes: asked.or(nodes).unwrap_or(1),
                removed: before.map(|before| before.removed).unwrap_or_default(),
            }),
        }
    }

    /// Refuses fewer nodes than the map has. More may have been remembered, by a start that failed.
    pub fn check_enough(&self, folder: &Path, map: &MapView) -> Result<(), CliError> {
        let numbers = map.nodes().filter_map(|node| number_of(&node.value.name));
        match numbers.max() {
            Some(highest) if highest > self.nodes => Err(too_few(folder, highest)),
            _ => Ok(()),
        }
    }

    /// Remembers it. What was there before stays whole until then: without it the folder's nodes are not known.
    pub fn write(&self, folder: &Path) -> Result<(), CliError> {
        let (path, new) = (folder.join(NODES_FILE_NAME), folder.join("nodes.new.json"));
        let text = serde_json::to_string(self)
            .map_err(|error| CliError::failed(format!("cannot write {}: {error}", path.display())))?;
        let replace = || -> std::io::Result<()> {
            let mut file = File::create(&new)?;
            file.write_all((text + "\n").as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&new, &path)
        };
        replace().map_err(|error| CliError::io("write", &path, &error))
    }

    /// Names of the nodes that are in the cluster.
    pub fn names(&self) -> Vec<String> {
        let numbers = (1..=self.nodes).filter(|number| !self.removed.contains(number));
        numbers.map(|number| node_name(usize::from(number))).collect()
    }

    /// Takes note that a node was removed.
    pub fn remove(&mut self, name: &str) {
        let number = (1..=self.nodes).find(|number| node_name(usize::from(*number)) == name);
        self.removed.extend(number);
    }
}

/// The name of a node, from 1 on.
pub fn node_name(number: usize) -> String {
    format!("node{number}")
}

/// Which one has that name.
fn number_of(name: &str) -> Option<u16> {
    let number = name.strip_prefix("node")?.parse().ok()?;
    (node_name(usize::from(number)) == name).then_some(number)
}

fn too_few(folder: &Path, nodes: u16) -> CliError {
    CliError::usage(format!(
        "{} has {nodes} nodes; start it with at least as many (--nodes {nodes}), or leave --nodes out; \
         `coquina node remove` takes one out",
        folder.display()
    ))
}

/// Deals drives out to nodes: one that the map knows goes to the node that has it, the others by turns. A node that has
/// none gets a first one in its folder. Gives what each node is told with `--drive`.
pub fn deal(
    folder: &Path,
    names: &[String],
    given: Vec<DriveArgument>,
    map: &MapView,
) -> Result<Vec<Vec<String>>, CliError> {
    let nodes = names.len();
    let mut dealt = vec![Vec::new(); nodes];
    let mut paths: Vec<PathBuf> = Vec::new();
    for (number, drive) in given.into_iter().enumerate() {
        let path = for_map(&drive.path)?;
        if paths.contains(&path) {
            return Err(CliError::usage(format!("drive {} is given twice", path.display())));
        }
        let owner = names.iter().position(|name| has_drive(map, name, &path)).unwrap_or(number % nodes);
        dealt[owner].push(argument(&path, drive.size_bytes));
        paths.push(path);
    }
    for (name, drives) in names.iter().zip(&mut dealt) {
        let known = map.node_by_name(name).is_some_and(|node| map.drives_of(node.id).next().is_some());
        if drives.is_empty() && !known {
            let path = for_map(&folder.join(name).join("drive0"))?;
            let size_bytes =
                if path.exists() { None } else { Some(first_drive_bytes_of(folder, nodes as u64)?) };
            drives.push(argument(&path, size_bytes));
        }
    }
    Ok(dealt)
}

fn has_drive(map: &MapView, name: &str, path: &Path) -> bool {
    let node = map.node_by_name(name);
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
    use coquina_cluster::{Key, Record};

    use super::*;

    #[test]
    fn a_folder_keeps_its_nodes() {
        let folder = tempfile::tempdir().unwrap();
        let of = |asked| NodesFile::choose(folder.path(), asked);
        assert_eq!((of(None).unwrap().nodes, of(Some(3)).unwrap().nodes), (1, 3));
        of(Some(3)).unwrap().write(folder.path()).unwrap();
        assert_eq!((of(None).unwrap().nodes, of(Some(4)).unwrap().nodes), (3, 4));
        // A write that fails half-way, as on a full disk, must not harm what is there.
        let (path, before) = (folder.path().join(NODES_FILE_NAME), folder.path().join("before"));
        std::fs::hard_link(&path, &before).unwrap();
        of(Some(4)).unwrap().write(folder.path()).unwrap();
        assert!(std::fs::read_to_string(&before).unwrap().contains("\"nodes\":3"));
        std::fs::rename(&before, &path).unwrap();
        let mut file = of(None).unwrap();
        file.remove("node2");
        file.write(folder.path()).unwrap();
        assert_eq!(of(None).unwrap().names(), ["node1", "node3"]);
        assert_eq!(of(Some(4)).unwrap().names(), ["node1", "node3", "node4"]);
        assert_eq!(of(Some(2)).unwrap().names(), ["node1"], "the map says whether that is enough");

        let single = tempfile::tempdir().unwrap();
        std::fs::write(single.path().join(NODE_FILE_NAME), "{}").unwrap();
        assert_eq!(NodesFile::choose(single.path(), None).unwrap().nodes, 1);
        let refused = NodesFile::choose(single.path(), Some(3)).unwrap_err().to_string();
        assert!(refused.contains("another folder"), "{refused}");
    }

    /// A first start that fails leaves a folder of which no node can be removed.
    #[test]
    fn a_folder_for_several_nodes_says_so_where_one_is_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(NODES_FILE_NAME), "{\"nodes\":3}").unwrap();
        let refused = NodesFile::choose(folder.path(), Some(1)).unwrap_err();
        assert_eq!(refused.exit_code(), 2);
        let text = refused.to_string();
        for part in ["was made for 3 nodes", "--nodes 3", "another folder with --dir"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("has 3 nodes") && !text.contains("node remove"), "{text}");
    }

    /// A start with 5 nodes that failed left a folder that could be started neither with 5 nor with the 3 that there are.
    #[test]
    fn as_many_nodes_as_the_map_has_are_enough() {
        let folder = Path::new("/nowhere");
        let node = |number: u8, name: &str| coquina_cluster::NodeRecord {
            id: coquina_base::NodeId(coquina_base::Id128([number; 16])),
            name: name.to_owned(),
            addresses: Default::default(),
            domains: Default::default(),
            versions: Default::default(),
            wanted: Default::default(),
        };
        let cluster =
            coquina_cluster::ClusterRecord::new(coquina_base::ClusterId(coquina_base::Id128([1; 16])));
        let mut records = vec![(Key::Cluster, 1, Record::Cluster(cluster))];
        for (number, name) in [(1, "node1"), (2, "node3"), (3, "node07"), (4, "node"), (5, "n9")] {
            records.push((Key::Node(node(number, name).id), 1, Record::Node(node(number, name))));
        }
        let map = MapView::load(records, 1).unwrap();
        let check = |nodes| NodesFile { nodes, removed: Vec::new() }.check_enough(folder, &map);
        assert!(check(3).is_ok() && check(5).is_ok());
        let refused = check(2).unwrap_err();
        assert!(refused.to_string().contains("has 3 nodes") && refused.exit_code() == 2, "{refused}");
        assert!(
            NodesFile { nodes: 1, removed: Vec::new() }.check_enough(folder, &MapView::default()).is_ok()
        );
    }

    #[test]
    fn drives_are_dealt_out_by_turns_and_missing_ones_made() {
        let folder = tempfile::tempdir().unwrap();
        let given = ["/nowhere/a:1G", "/nowhere/b", "/nowhere/c:2G", "/nowhere/d:1G"];
        let given: Vec<_> =
            given.iter().map(|text| crate::command::drive_argument::parse(text).unwrap()).collect();
        let map = MapView::default();
        let names: Vec<_> = (1..=5).map(node_name).collect();
        let dealt = deal(folder.path(), &names[..3], given.clone(), &map).unwrap();
        let gib = 1u64 << 30;
        assert_eq!(dealt[0], [format!("/nowhere/a:{gib}"), format!("/nowhere/d:{gib}")]);
        assert_eq!(dealt[1..], [["/nowhere/b".to_owned()], [format!("/nowhere/c:{}", 2 * gib)]]);
        let twice = vec![given[0].clone(), given[0].clone()];
        assert!(
            deal(folder.path(), &names[..3], twice, &map).unwrap_err().to_string().contains("given twice")
        );

        let dealt = deal(folder.path(), &names, given, &map).unwrap();
        assert!(dealt[4][0].contains("node5/drive0:"), "{dealt:?}");
    }
}
