//! The Unix sockets of a server, when another one takes its place.

use coquina_node::{Node, NodeConfig};
use coquina_reactor::{Address, Listener};

use crate::cluster::Cluster;

/// A name that had no address yet when it was looked at passed, and was served on whatever it had when it was bound.
#[test]
fn what_other_hosts_can_reach_is_not_bound_unless_that_is_meant() {
    let cluster = Cluster::start(1, 1);
    let folder = tempfile::tempdir().unwrap();
    let config = |insecure| NodeConfig {
        identity: None,
        drives: Vec::new(),
        native: None,
        nbd: vec!["0.0.0.0:0".to_owned()],
        insecure,
        ..cluster.node_config(folder.path(), 0)
    };
    let refused = Node::start(config(false), cluster.service().clone()).map(drop).unwrap_err().to_string();
    assert!(refused.contains("--nbd 0.0.0.0:0: it can be reached from other hosts"), "{refused}");
    Node::start(config(true), cluster.service().clone()).unwrap().stop();
}

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
