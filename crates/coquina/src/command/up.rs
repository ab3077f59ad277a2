//! `coquina up`: a server for keeps, with everything on this host.
//!
//! One node is served by this process. Several are processes of their own under this one, which has the store of the
//! map, the coordinator, the REST interface and the NBD gateway, and starts a node again that dies.

mod child;
mod output;
pub mod plan;
mod several;
mod single;
mod supervisor;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use coquina_base::{ClusterId, NodeId};
use coquina_control::{Client, ClientError, ClusterFile, MapService, NodeFile, api};
use coquina_store::EmbeddedStore;

use self::plan::NodesFile;
use crate::arguments::{Global, Up};
use crate::command::drive_argument::{DriveArgument, for_map};
use crate::command::serving::{self, address, drives};
use crate::error::CliError;

/// What was checked before anything is made.
struct Checked {
    nbd: Vec<String>,
    drives: Vec<DriveArgument>,
    nodes: NodesFile,
    copies: u32,
}

/// Most copies that the first pool has unless they are asked for.
const COPIES_DEFAULT_MAX: u16 = 3;
/// The pool that is made by itself.
const FIRST_POOL_NAME: &str = "default";
/// How long the server may take to hear of the drives of nodes that have started, on a host that is busy.
const DRIVES_KNOWN_WITHIN: Duration = Duration::from_secs(10);
const DRIVES_POLL: Duration = Duration::from_millis(20);
/// In the folder: where the store of the map lies.
pub const STORE_FOLDER_NAME: &str = "store";

pub fn run(global: &Global, up: &Up) -> Result<(), CliError> {
    serving::refuse_server(global)?;
    serving::start_logging();
    let checked = check(global, up)?;
    if checked.nodes.nodes == 1 {
        single::run(global, up, checked)
    } else {
        several::run(global, up, checked)
    }
}

fn check(global: &Global, up: &Up) -> Result<Checked, CliError> {
    let nbd = if up.nbd.is_empty() { vec![serving::NBD_DEFAULT.to_owned()] } else { up.nbd.clone() };
    nbd.iter().try_for_each(|nbd| address::check_nbd("--nbd", nbd))?;
    address::check_tcp("--http", &up.http)?;
    address::check_tcp("--listen", &up.listen)?;
    let all = [&[up.http.clone(), up.listen.clone()], nbd.as_slice()].concat();
    address::check_closed(&all, up.running.insecure)?;
    let drives = drives::parse_all(&up.drives)?;
    refuse_without_map(&global.dir)?;
    let nodes = NodesFile::choose(&global.dir, up.nodes)?;
    if nodes.nodes > 1 && nodes.names().is_empty() {
        return Err(CliError::usage(format!(
            "all nodes of {} were removed; give --nodes {} to add one",
            global.dir.display(),
            nodes.nodes.saturating_add(1)
        )));
    }
    // The first drives of a new folder lie in it.
    if drives.len() < nodes.names().len() && !EmbeddedStore::is_in(&global.dir.join(STORE_FOLDER_NAME)) {
        for_map(&global.dir)?;
    }
    let count = u16::try_from(nodes.names().len()).unwrap_or(u16::MAX);
    let copies = up.copies.unwrap_or_else(|| u32::from(count.min(COPIES_DEFAULT_MAX)));
    if copies > u32::from(count) && nodes.nodes > 1 {
        return Err(CliError::usage(format!(
            "--copies {copies} needs as many nodes, and there are {count}; give --nodes {copies}, or fewer copies"
        )));
    }
    Ok(Checked { nbd, drives, nodes, copies })
}

/// Sets what is remembered, and makes the first pool if there is none. `asked` are the copies that its user named.
fn prepare_pool(
    http: &str,
    overcommit: Option<u32>,
    copies: u32,
    asked: Option<u32>,
) -> Result<(), CliError> {
    let client = Client::new(http)?;
    if let Some(percent) = overcommit {
        client.set_overcommit(percent)?;
    }
    let pools = client.pools()?.pools;
    if pools.is_empty() {
        let request = api::CreatePool { name: FIRST_POOL_NAME.to_owned(), copies, ..Default::default() };
        once_drives_are_known(|| client.create_pool(&request))?;
    }
    // No reason to serve nothing: what is there is as it was made.
    if let Some(note) = pools.iter().find_map(|pool| copies_note(&pool.name, pool.copies, asked?)) {
        crate::output::tell(note);
    }
    Ok(())
}

/// What is said where other copies are asked for than the first pool has.
fn copies_note(pool: &str, copies: u32, asked: u32) -> Option<String> {
    (pool == FIRST_POOL_NAME && copies != asked).then(|| {
        format!(
            "--copies {asked} has no effect: pool \"{pool}\" was made with {copies} before; for volumes with {asked} make another pool: \
             coquina pool create NAME --copies {asked}"
        )
    })
}

/// Tries again while the server has not heard of the drives yet.
fn once_drives_are_known<T>(mut create: impl FnMut() -> Result<T, ClientError>) -> Result<T, ClientError> {
    let begin = Instant::now();
    loop {
        match create() {
            Err(error) if lacks_drives(&error) && begin.elapsed() < DRIVES_KNOWN_WITHIN => {
                std::thread::sleep(DRIVES_POLL);
            }
            result => return result,
        }
    }
}

/// Whether a pool was refused for want of drives. Nodes that have just started have told the store of theirs, of which the server may
/// not have heard yet.
fn lacks_drives(error: &ClientError) -> bool {
    matches!(error, ClientError::Refused { code, .. } if code == "too_few_domains" || code == "no_healthy_drive")
}

/// The cluster of a folder that belongs to one and has no map of it: its map is elsewhere, unless it was lost.
pub fn cluster_without_map(folder: &Path) -> Result<Option<ClusterId>, CliError> {
    // What is wrong with the folder itself is said when it is taken.
    if !folder.is_dir() {
        return Ok(None);
    }
    let known = ClusterFile::read(folder)?.map(|file| file.cluster);
    Ok(known.filter(|_| !EmbeddedStore::is_in(&folder.join(STORE_FOLDER_NAME))))
}

/// Makes no new map beside what remembers another one.
fn refuse_without_map(folder: &Path) -> Result<(), CliError> {
    let Some(cluster) = cluster_without_map(folder)? else { return Ok(()) };
    Err(CliError::failed(format!(
        "{folder} belongs to cluster {cluster}, and its map is not there ({store}): this is the folder of a node or gateway \
         whose map is elsewhere, in etcd or in the folder above, or {STORE_FOLDER_NAME}/ was lost. Start the node as it was \
         started before (`coquina node`, or `coquina up` with the folder above), bring {STORE_FOLDER_NAME}/ back from a \
         backup, or give another folder with --dir for a new cluster",
        folder = folder.display(),
        store = folder.join(STORE_FOLDER_NAME).display(),
    )))
}

/// The cluster and the node of a folder that nobody serves now, made if there are none.
pub fn identity(folder: &Path) -> Result<(ClusterId, NodeId), CliError> {
    let store = EmbeddedStore::open(&folder.join(STORE_FOLDER_NAME), None)
        .map_err(|error| CliError::failed(error.to_string()))?;
    let maps = MapService::start(Arc::new(store), folder, true, &mut serving::tell_waiting())
        .map_err(serving::map_failed)?;
    let node = NodeFile::open(folder)?.node;
    let cluster = maps.cluster();
    maps.stop();
    Ok((cluster, node))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: &str) -> ClientError {
        ClientError::Refused { status: 409, code: code.to_owned(), message: "it exists".to_owned() }
    }

    #[test]
    fn copies_that_are_asked_for_in_vain_are_told() {
        assert_eq!(copies_note(FIRST_POOL_NAME, 3, 3), None);
        assert_eq!(copies_note("fast", 1, 3), None, "a pool that somebody has made");
        let note = copies_note(FIRST_POOL_NAME, 1, 2).unwrap();
        assert!(
            note.contains("--copies 2 has no effect") && note.contains("was made with 1 before"),
            "{note}"
        );
    }

    /// What comes of these answers, one for each try, and how many tries there were.
    fn tried(mut answers: Vec<Result<u32, ClientError>>) -> (Result<u32, ClientError>, usize) {
        let count = answers.len();
        let result = once_drives_are_known(|| answers.remove(0));
        (result, count - answers.len())
    }

    /// The server knew only two of three drives when the pool was asked for, and the start failed.
    #[test]
    fn the_first_pool_waits_until_the_server_knows_the_drives() {
        let answers = vec![Err(refused("no_healthy_drive")), Err(refused("too_few_domains")), Ok(7), Ok(8)];
        let (result, tries) = tried(answers);
        assert!(matches!(result, Ok(7)), "{result:?}");
        assert_eq!(tries, 3);
    }

    #[test]
    fn what_else_is_wrong_is_told_at_once() {
        let (result, tries) = tried(vec![Err(refused("name_taken")), Ok(7)]);
        let error = result.err().map(|error| error.to_string());
        assert_eq!((error.as_deref(), tries), (Some("it exists"), 1));
    }
}
