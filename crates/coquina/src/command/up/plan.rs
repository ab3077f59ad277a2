//! How the nodes of one `coquina up` share its folder and drives.
//!
//! The folder remembers how many nodes there are in `nodes.json`, which a single node does not have.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use coquina_base::DriveId;
use coquina_cluster::{DriveRecord, DriveState, MapView, NodeRecord, Wanted};
use coquina_node::NodeError;
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

/// Deals drives out to nodes. One that the map knows, by what is written on it or else by its path, goes to the node that has it.
/// The others go where the fewest are that can be used: first to nodes that have none, as they never had one or have lost
/// theirs. A node without any in the map but such as were given up gets a first one in its folder. Gives what each node is told
/// with `--drive`.
pub fn deal(
    folder: &Path,
    names: &[String],
    given: Vec<DriveArgument>,
    map: &MapView,
) -> Result<Vec<Vec<String>>, CliError> {
    let mut drives: Vec<Given> = Vec::new();
    for drive in given {
        let path = for_map(&drive.path)?;
        if drives.iter().any(|other| other.path == path) {
            return Err(CliError::usage(format!("drive {} is given twice", path.display())));
        }
        let holds = coquina_node::drive::info(&path).ok().map(|info| info.drive);
        drives.push(Given { path, size_bytes: drive.size_bytes, holds });
    }
    let nodes: Vec<Option<&NodeRecord>> = names.iter().map(|name| map.node_by_name(name)).collect();
    let records = |index: usize| nodes[index].into_iter().flat_map(|node| map.drives_of(node.id));
    let mut usable: Vec<usize> = (0..nodes.len())
        .map(|index| records(index).filter(|drive| can_be_used(drive, &drives)).count())
        .collect();
    let mut dealt = vec![Vec::new(); names.len()];
    for drive in &drives {
        let is_its = |index: &usize| records(*index).any(|record| Some(record.id) == drive.holds);
        let is_there = |index: &usize| records(*index).any(|record| Path::new(&record.path) == drive.path);
        let owner = (0..names.len()).find(is_its).or_else(|| (0..names.len()).find(is_there));
        let leaves = |index: usize| nodes[index].is_some_and(|node| node.wanted == Wanted::Removing);
        let neediest = || (0..names.len()).min_by_key(|index| (leaves(*index), usable[*index], *index));
        let Some(to) = owner.or_else(neediest) else { return Err(no_nodes(folder)) };
        if owner.is_none() {
            usable[to] += 1;
        }
        dealt[to].push(argument(&drive.path, drive.size_bytes));
    }
    for (index, name) in names.iter().enumerate() {
        let has_one = records(index).any(|drive| drive.state != DriveState::GivenUp);
        if dealt[index].is_empty() && !has_one {
            let path = for_map(&folder.join(name).join("drive0"))?;
            let size_bytes =
                if path.exists() { None } else { Some(first_drive_bytes_of(folder, names.len() as u64)?) };
            dealt[index].push(argument(&path, size_bytes));
        }
    }
    Ok(dealt)
}

/// A drive of the command line.
struct Given {
    path: PathBuf,
    size_bytes: Option<u64>,
    /// What its superblock says that it is.
    holds: Option<DriveId>,
}

/// Whether a drive of the map is still there, under its own path or a new one that was given, and is to stay.
fn can_be_used(drive: &DriveRecord, given: &[Given]) -> bool {
    let is_there = || match coquina_node::drive::info(Path::new(&drive.path)) {
        Ok(info) => info.drive == drive.id,
        Err(NodeError::Superblock { .. }) => false,
        // Somebody may still hold it, as a node of an earlier start.
        Err(_) => Path::new(&drive.path).exists(),
    };
    let stays = drive.state != DriveState::GivenUp && drive.wanted == Wanted::In;
    stays && (given.iter().any(|given| given.holds == Some(drive.id)) || is_there())
}

/// Why a folder of several nodes cannot be started.
pub fn no_nodes(folder: &Path) -> CliError {
    CliError::usage(format!(
        "all nodes of {} were removed; give --nodes with one more than before to add one",
        folder.display()
    ))
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

    /// A cluster of nodes that have these drives.
    fn map_with(nodes: &[Vec<(DriveId, &Path, DriveState)>]) -> MapView {
        let id = coquina_base::Id128;
        let mut cluster = coquina_cluster::ClusterRecord::new(coquina_base::ClusterId(id([1; 16])));
        let mut records = Vec::new();
        for (index, drives) in nodes.iter().enumerate() {
            let node = NodeRecord {
                id: coquina_base::NodeId(id([index as u8 + 1; 16])),
                name: node_name(index + 1),
                addresses: Default::default(),
                domains: Default::default(),
                versions: Default::default(),
                wanted: Default::default(),
            };
            for (drive, path, state) in drives {
                let drive = DriveRecord {
                    id: *drive,
                    node: node.id,
                    path: path.display().to_string(),
                    size_bytes: 1 << 30,
                    capacity_bytes: 1 << 30,
                    shards: 1,
                    weight: 1,
                    copy_first: cluster.copy_next,
                    state: *state,
                    wanted: Wanted::In,
                    dead_ms: 0,
                };
                cluster.copy_next += 1;
                records.push((Key::Drive(drive.id), 1, Record::Drive(drive)));
            }
            records.push((Key::Node(node.id), 1, Record::Node(node)));
        }
        records.push((Key::Cluster, 1, Record::Cluster(cluster)));
        MapView::load(records, 1).unwrap()
    }

    /// A drive in a file of its own.
    fn drive_file(folder: &Path, name: &str) -> (PathBuf, DriveId) {
        let path = for_map(folder).unwrap().join(name);
        let request = coquina_node::drive::FormatRequest {
            size_bytes: Some(64 << 20),
            shards: 1,
            segment_bytes: None,
            cluster_and_node: Default::default(),
            force: false,
        };
        let info = coquina_node::drive::format(&path, &request).unwrap();
        (path, info.drive)
    }

    /// Beside the program: `/tmp` may be a file system without `O_DIRECT`.
    fn folder_of_drives() -> tempfile::TempDir {
        let program = std::env::current_exe().unwrap();
        tempfile::tempdir_in(program.parent().unwrap()).unwrap()
    }

    fn parsed(texts: &[&str]) -> Vec<DriveArgument> {
        texts.iter().map(|text| crate::command::drive_argument::parse(text).unwrap()).collect()
    }

    /// The drive of the second of three nodes was lost, and the one that was to replace it went to the first node.
    #[test]
    fn a_new_drive_goes_to_the_node_that_lost_its_own() {
        let folder = folder_of_drives();
        let (a, a_id) = drive_file(folder.path(), "a");
        let (c, c_id) = drive_file(folder.path(), "c");
        let (gone, gone_id) =
            (for_map(folder.path()).unwrap().join("b"), DriveId(coquina_base::Id128([9; 16])));
        let names: Vec<_> = (1..=3).map(node_name).collect();
        let new = ["/nowhere/new:1G", "/nowhere/more:1G"];
        let argument_of = |path: &str| format!("{path}:{}", 1u64 << 30);
        for state in [DriveState::Healthy, DriveState::Missing, DriveState::GivenUp] {
            let map = map_with(&[
                vec![(a_id, &a, DriveState::Healthy)],
                vec![(gone_id, &gone, state)],
                vec![(c_id, &c, DriveState::Healthy)],
            ]);
            let dealt = deal(folder.path(), &names, parsed(&new[..1]), &map).unwrap();
            assert_eq!(dealt[1], [argument_of("/nowhere/new")], "{state:?}: {dealt:?}");
            assert!(dealt[0].is_empty() && dealt[2].is_empty(), "{dealt:?}");
            // Then all have one.
            let dealt = deal(folder.path(), &names, parsed(&new), &map).unwrap();
            assert_eq!(dealt[..2], [[argument_of("/nowhere/more")], [argument_of("/nowhere/new")]]);
            // What is remembered on the command line stays where it is, and counts once.
            let all = [a.to_str().unwrap(), gone.to_str().unwrap(), c.to_str().unwrap(), new[0]];
            let dealt = deal(folder.path(), &names, parsed(&all), &map).unwrap();
            assert_eq!(dealt[1], [gone.display().to_string(), argument_of("/nowhere/new")], "{dealt:?}");
            // Nothing is made in the place of what may come back.
            let dealt = deal(folder.path(), &names, Vec::new(), &map).unwrap();
            assert_eq!(dealt[1].len(), usize::from(state == DriveState::GivenUp), "{dealt:?}");
            assert!(dealt[0].is_empty() && dealt[2].is_empty(), "{dealt:?}");
        }
    }

    #[test]
    fn a_new_drive_goes_where_the_fewest_are_and_a_moved_one_to_its_node() {
        let folder = folder_of_drives();
        let (a, a_id) = drive_file(folder.path(), "a");
        let (b, b_id) = drive_file(folder.path(), "b");
        let (c, c_id) = drive_file(folder.path(), "c");
        let names: Vec<_> = (1..=2).map(node_name).collect();
        let drives = |moved: &'static str| {
            let first =
                vec![(a_id, a.as_path(), DriveState::Healthy), (b_id, b.as_path(), DriveState::Healthy)];
            map_with(&[first, vec![(c_id, Path::new(moved), DriveState::Healthy)]])
        };
        let map = drives("/nowhere/before");
        let c = c.to_str().unwrap();
        let dealt = deal(folder.path(), &names, parsed(&[c, "/nowhere/new"]), &map).unwrap();
        assert_eq!(
            dealt,
            [vec![], vec![c.to_owned(), "/nowhere/new".to_owned()]],
            "a node of two has enough"
        );
        // The second is then as many as the first has, so that the third goes there.
        let given = ["/nowhere/new", "/nowhere/more", c];
        let dealt = deal(folder.path(), &names, parsed(&given), &map).unwrap();
        assert_eq!(dealt, [vec!["/nowhere/more".to_owned()], vec!["/nowhere/new".to_owned(), c.to_owned()]]);
    }
}
