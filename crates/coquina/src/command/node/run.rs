//! Starts a node.
//!
//! The order of the start: lock, HTTP port, map, drives and reactors, control plane; the node says where it listens
//! last. The stop goes backwards.

use coquina_base::check_name;
use coquina_control::{Client, ControlListener, FolderLock, MapService, NodeFile};
use coquina_node::{Node, NodeConfig};

use crate::arguments::{Domains, Global, NodeStart};
use crate::command::serving::control::{Control, ControlSpec};
use crate::command::serving::{self, address, drives};
use crate::command::store;
use crate::error::CliError;

/// Checks what can be checked before anything is made.
fn check(start: &NodeStart) -> Result<String, CliError> {
    let name = start.name.clone().unwrap_or_default();
    check_name(&name).map_err(|error| CliError::usage(format!("--name: {error}")))?;
    start.nbd.iter().try_for_each(|nbd| address::check_nbd("--nbd", nbd))?;
    address::check_tcp("--http", &start.http)?;
    address::check_tcp("--listen", &start.listen)?;
    address::check_reachable("--http", &start.http)?;
    address::check_reachable("--listen", &start.listen)?;
    let all = [&[start.http.clone(), start.listen.clone()], start.nbd.as_slice()].concat();
    address::check_closed(&all, start.running.insecure)?;
    Ok(name)
}

pub fn run(global: &Global, start: &NodeStart) -> Result<(), CliError> {
    serving::refuse_server(global)?;
    serving::start_logging();
    let name = check(start)?;
    let given = drives::parse_all(&start.drives)?;
    let store = store::connect(&start.store)?;
    let (ask, stopped) = serving::stop_channel();
    let stop = serving::Stop::watch(&start.running, ask.clone())?;

    let lock = FolderLock::acquire(&global.dir)?;
    let listener = ControlListener::bind(&start.http)?;
    let maps = MapService::start(store, &global.dir, true, &mut serving::tell_waiting())
        .map_err(serving::map_failed)?;
    let identity = NodeFile::open(&global.dir)?;
    let chosen = drives::choose(None, given, &maps.map(), identity.node, start.force)?;
    let host = Domains::from([(serving::HOST_LABEL.to_owned(), serving::host_name())]);
    let config = NodeConfig {
        folder: global.dir.clone(),
        name: name.clone(),
        http: listener.address().to_owned(),
        domains: start.domain.clone().unwrap_or(host),
        drives: chosen.drives,
        native: start.listen.clone(),
        nbd: start.nbd.clone(),
        index_memory_bytes: start.tuning.index_memory,
        cache_memory_bytes: start.tuning.cache_memory,
        reactors: start.tuning.reactors.map(usize::from),
    };
    let node = Node::start(config, maps.clone())?;
    let spec = ControlSpec {
        maps: maps.clone(),
        backend: node.clone(),
        node: Some(identity.node),
        may_lead: !start.no_coordinator,
        nbd: node.nbd_addresses(),
        native: node.native_address(),
    };
    let served = Control::start(spec, listener, &start.running, ask).and_then(|control| {
        if let Some(percent) = start.overcommit {
            Client::new(&control.file.http)?.set_overcommit(percent)?;
        }
        let announced = serving::announce(global, &lock, &control.file, &format!("node {name}"), "");
        if announced.is_ok() {
            stop.serving();
            // An error would mean that nobody can ask for a stop any more.
            let _ = stopped.recv();
        }
        control.stop();
        announced
    });
    node.stop();
    maps.stop();
    served.and(lock.withdraw().map_err(CliError::from))
}
