//! `coquina nbd`: an NBD server that is a client of the cluster, on any host.

use std::sync::Arc;
use std::time::Duration;

use coquina_control::{FolderLock, MapService, MapServiceError};
use coquina_node::{Node, NodeError};
use coquina_store::Store;

use super::serving::control::{Control, ControlSpec};
use super::serving::{self, address};
use super::store;
use crate::arguments::{Global, Nbd};
use crate::error::CliError;
use crate::output;

/// How often it is looked whether there is a cluster.
const CLUSTER_POLL: Duration = Duration::from_secs(1);

pub fn run(global: &Global, nbd: &Nbd) -> Result<(), CliError> {
    serving::refuse_server(global)?;
    serving::start_logging();
    let listen =
        if nbd.listen.is_empty() { vec![serving::NBD_DEFAULT.to_owned()] } else { nbd.listen.clone() };
    listen.iter().try_for_each(|listen| address::check_nbd("--listen", listen))?;
    address::check_tcp("--http", &nbd.http)?;
    address::check_closed(
        &[std::slice::from_ref(&nbd.http), listen.as_slice()].concat(),
        nbd.running.insecure,
    )?;
    let store = store::connect(&nbd.store)?;
    let (ask, stopped) = serving::stop_channel();
    let stop = serving::Stop::watch(&nbd.running, ask.clone())?;

    let lock = FolderLock::acquire(&global.dir)?;
    let listener = address::bind_http(&nbd.http, &nbd.running)?;
    let maps = follow(global, &store)?;
    let config = serving::gateway_config(listen, &nbd.running, &nbd.threads);
    let gateway = Node::start(config, maps.clone()).map_err(with_own_flag)?;
    let spec = ControlSpec {
        maps: maps.clone(),
        backend: gateway.clone(),
        node: None,
        may_lead: false,
        nbd: gateway.nbd_addresses(),
        native: String::new(),
    };
    let served = Control::start(spec, listener, &nbd.running, ask).and_then(|control| {
        let announced = serving::announce(global, &lock, &control.file, "the cluster's volumes", "", None);
        if announced.is_ok() {
            stop.serving();
            // An error would mean that nobody can ask for a stop any more.
            let _ = stopped.recv();
            serving::tell_stopping();
        }
        control.stop(&|| false);
        announced
    });
    gateway.stop();
    maps.stop();
    served.and(lock.withdraw().map_err(CliError::from))?;
    serving::tell_stopped();
    Ok(())
}

/// An address is named with the option that this command has for it.
fn with_own_flag(error: NodeError) -> NodeError {
    match error {
        NodeError::Address { address, reason } => {
            let address = match address.strip_prefix("--nbd ") {
                Some(address) => format!("--listen {address}"),
                None => address,
            };
            NodeError::Address { address, reason }
        }
        other => other,
    }
}

/// Follows the map of the cluster. One that does not exist yet is waited for: gateways may be started before nodes.
fn follow(global: &Global, store: &Arc<dyn Store>) -> Result<Arc<MapService>, CliError> {
    let mut is_told = false;
    loop {
        let started = MapService::start(store.clone(), &global.dir, false, &mut serving::tell_waiting());
        match started {
            Err(MapServiceError::Empty) => {
                if !is_told {
                    output::tell(format_args!("waiting: {}", MapServiceError::Empty));
                }
                is_told = true;
                std::thread::sleep(CLUSTER_POLL);
            }
            started => return started.map_err(serving::map_failed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_named_with_the_option_of_this_command() {
        let address = "--nbd unix:/nowhere/x".to_owned();
        let error = with_own_flag(NodeError::Address { address, reason: "no such folder".to_owned() });
        assert_eq!(error.to_string(), "--listen unix:/nowhere/x: no such folder");
    }
}
