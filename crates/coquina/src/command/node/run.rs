//! Starts a node.
//!
//! The order of the start: lock, HTTP port, map, drives and reactors, control plane; the node says where it listens
//! last. The stop goes backwards.

use std::sync::mpsc;
use std::time::Duration;

use coquina_base::{NodeId, check_name};
use coquina_control::{Client, FolderLock, MapService, NodeFile};
use coquina_node::{Node, NodeConfig, NodeError, NodeIdentity};

use crate::arguments::{Domains, Global, NodeStart};
use crate::command::processors;
use crate::command::serving::control::{Control, ControlSpec};
use crate::command::serving::first_start::FirstStart;
use crate::command::serving::made::Before;
use crate::command::serving::{self, address, drives, membership};
use crate::command::store;
use crate::error::CliError;

/// How often it is looked whether the node was removed.
const REMOVED_POLL: Duration = Duration::from_secs(1);

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
    let listener = address::bind_http(&start.http, &start.running)?;
    address::check_reachable("--http", listener.address())?;
    let first = FirstStart::look(&global.dir, &[])?;
    let remembers_map = membership::remembers_map(&global.dir)?;
    let maps = MapService::start(store, &global.dir, true, &mut serving::tell_waiting())
        .map_err(serving::map_failed)?;
    let mut identity = NodeFile::open(&global.dir)?;
    if remembers_map && identity.was_removed(maps.cluster(), &maps.map()) {
        return Err(membership::removed(&name));
    }
    identity.note_joined(&global.dir, maps.cluster(), &maps.map())?;
    let chosen = match drives::choose(None, given, &maps.map(), identity.node, start.force) {
        Ok(chosen) => chosen,
        Err(error) => {
            take_back(first, &maps, &Before::default(), identity.node);
            return Err(error);
        }
    };
    let before = Before::look(chosen.drives.iter().map(|drive| drive.path.as_path()));
    let host = Domains::from([(serving::HOST_LABEL.to_owned(), serving::host_name())]);
    let config = NodeConfig {
        identity: Some(NodeIdentity {
            id: identity.node,
            name: name.clone(),
            http: listener.address().to_owned(),
            domains: start.domain.clone().unwrap_or(host),
        }),
        drives: chosen.drives,
        native: Some(start.listen.clone()),
        nbd: start.nbd.clone(),
        insecure: start.running.insecure,
        index_memory_bytes: start.tuning.index_memory,
        cache_memory_bytes: start.tuning.cache_memory,
        zero_ahead_bytes: start.tuning.zero_ahead,
        tcp_only: start.tuning.tcp_only,
        busy_poll_ns: start.tuning.threads.busy_poll.limit_ns(),
        bind_cpu: processors::of_node(&start.tuning.bind_cpu),
        reactors: start.tuning.threads.reactors.map(usize::from),
        folder: Some(global.dir.clone()),
    };
    let node = Node::start(config, maps.clone()).map_err(|error| {
        if membership::is_removal(&error, identity.node, &maps.map()) {
            return membership::removed(&name);
        }
        // One whose registration failed may have joined all the same.
        let is_change = matches!(error, NodeError::Change(_));
        if !is_change && maps.map().node(identity.node).is_none() {
            take_back(first, &maps, &before, identity.node);
        }
        error.into()
    })?;
    identity.note_joined(&global.dir, maps.cluster(), &maps.map())?;
    let spec = ControlSpec {
        maps: maps.clone(),
        backend: node.clone(),
        node: Some(identity.node),
        may_lead: !start.no_coordinator,
        nbd: node.nbd_addresses(),
        native: node.native_address(),
    };
    let served = Control::start(spec, listener, &start.running, ask).and_then(|control| {
        let what = format!("node {name}");
        let result = begin(start, &control)
            .and_then(|()| serving::announce(global, &lock, &control.file, &what, "", Some(&before.made())))
            .and_then(|()| {
                stop.serving();
                wait(&name, &control, &stopped)
            });
        // The nodes of `coquina up` stop together when that ends their input; a signal is for one of them.
        // Of nodes of `coquina up` that says it.
        let is_alone = start.store.store_folder.is_none();
        if result.is_ok() && is_alone {
            serving::tell_stopping();
        }
        let stops_with_others = || start.store.store_folder.is_some() && stop.input_has_ended();
        control.stop(&|| result.is_ok() && !stops_with_others());
        result
    });
    node.stop();
    maps.stop();
    served.and(lock.withdraw().map_err(CliError::from))?;
    if start.store.store_folder.is_none() {
        serving::tell_stopped();
    }
    Ok(())
}

/// Takes back what a first start has made of a node that has not joined.
fn take_back(first: Option<FirstStart>, maps: &MapService, before: &Before, node: NodeId) {
    maps.stop();
    if let Some(first) = first {
        first.take_back(before, |drive| drive.node == node);
    }
}

fn begin(start: &NodeStart, control: &Control) -> Result<(), CliError> {
    if let Some(percent) = start.overcommit {
        Client::new(&control.file.http)?.set_overcommit(percent)?;
    }
    Ok(())
}

/// Waits until somebody asks for a stop, or the node is removed.
fn wait(name: &str, control: &Control, stopped: &mpsc::Receiver<()>) -> Result<(), CliError> {
    // An error other than that of the time would mean that nobody can ask for a stop any more.
    while let Err(mpsc::RecvTimeoutError::Timeout) = stopped.recv_timeout(REMOVED_POLL) {
        if control.was_removed() {
            return Err(membership::removed(name));
        }
    }
    Ok(())
}
