//! Finds the server that a command is for.

use std::net::{SocketAddr, ToSocketAddrs};

use coquina_control::{Client, api, running_server};

use crate::arguments::Global;
use crate::error::CliError;

/// A client of the server named by `--server`, or of the one that runs on the folder.
pub fn client(global: &Global) -> Result<Client, CliError> {
    match &global.server {
        Some(address) => Ok(Client::new(address)?),
        None => Ok(Client::new(&running_server(&global.dir)?.http)?),
    }
}

/// Where the nodes that are up serve the native protocol, as seen from here, with commas between them.
pub fn native_addresses(client: &Client, status: &api::Status) -> String {
    let nodes = status.nodes.iter().filter(|node| node.state == api::NodeState::Up);
    let addresses: Vec<String> = nodes.map(|node| reachable(client, &node.native)).collect();
    addresses.join(",")
}

/// The native address as seen from here: one that listens on everything is reached at the server's address.
fn reachable(client: &Client, native: &str) -> String {
    let resolved = native.to_socket_addrs().ok().and_then(|mut addresses| addresses.next());
    match resolved {
        Some(address) if address.ip().is_unspecified() => {
            SocketAddr::new(client.address().ip(), address.port()).to_string()
        }
        _ => native.to_owned(),
    }
}
