//! `coquina up`: a server for keeps, with everything on this host.
//!
//! One node is served by this process. Several are processes of their own under this one, which has the store of the
//! map, the coordinator, the REST interface and the NBD gateway, and starts a node again that dies.

mod child;
pub mod plan;
mod several;
mod single;
mod supervisor;

use std::path::Path;
use std::sync::Arc;

use coquina_base::{ClusterId, NodeId};
use coquina_control::{Client, MapService, NodeFile, api};
use coquina_store::EmbeddedStore;

use self::plan::NodesFile;
use crate::arguments::{Global, Up};
use crate::command::drive_argument::DriveArgument;
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
/// In the folder: where the store of the map lies.
const STORE_FOLDER_NAME: &str = "store";

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
    let nodes = NodesFile::choose(&global.dir, up.nodes)?;
    let count = u16::try_from(nodes.names().len()).unwrap_or(u16::MAX);
    let copies = up.copies.unwrap_or_else(|| u32::from(count.min(COPIES_DEFAULT_MAX)));
    if copies > u32::from(count) && nodes.nodes > 1 {
        return Err(CliError::usage(format!(
            "--copies {copies} needs as many nodes, and there are {count}; give --nodes {copies}, or fewer copies"
        )));
    }
    Ok(Checked { nbd, drives, nodes, copies })
}

/// Sets what is remembered, and makes the first pool if there is none.
fn prepare_pool(http: &str, overcommit: Option<u32>, copies: u32) -> Result<(), CliError> {
    let client = Client::new(http)?;
    if let Some(percent) = overcommit {
        client.set_overcommit(percent)?;
    }
    if client.pools()?.pools.is_empty() {
        let name = FIRST_POOL_NAME.to_owned();
        client.create_pool(&api::CreatePool { name, copies, ..Default::default() })?;
    }
    Ok(())
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
