//! The Unix sockets of a server, when another one takes its place.

use coquina_node::{Node, NodeConfig};
use coquina_reactor::{Address, Listener};

use crate::cluster::Cluster;

#[test]
fn a_server_that_stops_leaves_the_socket_of_the_next_one_alone() {
    let cluster = Cluster::start(1, 1);
    // Paths of Unix sockets are short.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nbd");
    let config = NodeConfig {
        identity: None,
        drives: Vec::new(),
        native: None,
        nbd: vec![format!("unix:{}", path.display())],
        ..cluster.node_config(folder.path(), 0)
    };
    let gateway = Node::start(config, cluster.service().clone()).unwrap();
    assert!(path.exists());
    gateway.stop();
    assert!(!path.exists(), "it takes its own away");
    let next = Listener::bind(&Address::Unix(path.clone())).unwrap();
    gateway.stop();
    drop(gateway);
    assert!(path.exists(), "that of the next one stays");
    drop(next);
}
