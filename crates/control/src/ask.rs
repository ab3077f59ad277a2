//! Asking all nodes what they count, and the leader how the cluster is.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use coquina_base::NodeId;
use coquina_cluster::MapView;

use crate::api::{LeaderHealth, Local};
use crate::client::Client;

/// How long a process may take to answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(1);
/// Most nodes that are asked at a time.
const THREADS_MAX: usize = 16;

/// Asks every node but one. Nodes that do not answer in time are not in the result.
pub(crate) fn ask_nodes(map: &MapView, except: Option<NodeId>) -> BTreeMap<NodeId, Local> {
    let nodes = map.nodes().map(|node| &node.value).filter(|node| Some(node.id) != except);
    let asked: Vec<(NodeId, String)> = nodes
        .map(|node| (node.id, node.addresses.http.clone()))
        .filter(|(_, http)| !http.is_empty())
        .collect();
    let answers = Mutex::new(BTreeMap::new());
    let next = Mutex::new(asked.iter());
    let work = || loop {
        let one = next.lock().unwrap_or_else(PoisonError::into_inner).next();
        let Some((node, http)) = one else { return };
        if let Some(local) = ask(http, Client::local).filter(|local| local.node == Some(*node)) {
            answers.lock().unwrap_or_else(PoisonError::into_inner).insert(*node, local);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..asked.len().min(THREADS_MAX) {
            scope.spawn(work);
        }
    });
    answers.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Asks the leader.
pub(crate) fn ask_leader(http: &str) -> Option<LeaderHealth> {
    ask(http, Client::leader_health)
}

fn ask<T>(http: &str, question: impl Fn(&Client) -> Result<T, crate::client::ClientError>) -> Option<T> {
    let client = Client::with_patience(http, ANSWER_TIME_MAX, ANSWER_TIME_MAX).ok()?;
    question(&client).ok()
}
