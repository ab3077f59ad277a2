//! Asking all nodes what they count, and the leader how the cluster is.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use coquina_base::NodeId;
use coquina_cluster::MapView;

use crate::api::{LeaderHealth, Local};
use crate::client::{Client, ClientError};

/// How long a process may take to answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(1);
/// Most nodes that are asked at a time: hundreds that are silent must not take long one after another.
const THREADS_MAX: usize = 128;

/// Asks every node but one. Nodes that do not answer in time are not in the result.
pub(crate) fn ask_nodes(map: &MapView, except: Option<NodeId>) -> BTreeMap<NodeId, Local> {
    let nodes = map.nodes().map(|node| &node.value).filter(|node| Some(node.id) != except);
    let asked: Vec<(NodeId, String)> = nodes
        .map(|node| (node.id, node.addresses.http.clone()))
        .filter(|(_, http)| !http.is_empty())
        .collect();
    let addresses: Vec<&str> = asked.iter().map(|(_, http)| http.as_str()).collect();
    let answers = ask_all(&addresses, ANSWER_TIME_MAX, Client::local);
    let answered = asked.iter().zip(answers).filter_map(|((node, _), local)| Some((*node, local?)));
    answered.filter(|(node, local)| local.node == Some(*node)).collect()
}

/// Asks several processes at the same time; each answer, in their order, if it came within `patience` (twice that with the
/// time to connect).
pub(crate) fn ask_all<T: Send>(
    addresses: &[&str],
    patience: Duration,
    question: impl Fn(&Client) -> Result<T, ClientError> + Sync,
) -> Vec<Option<T>> {
    let answers = for_each_at_once(addresses, |address| ask(address, patience, &question));
    answers.into_iter().map(Option::flatten).collect()
}

/// Does something for several at the same time; each result, in their order.
pub(crate) fn for_each_at_once<I: Sync, T: Send>(
    items: &[I],
    work: impl Fn(&I) -> T + Sync,
) -> Vec<Option<T>> {
    let results = Mutex::new(items.iter().map(|_| None).collect::<Vec<Option<T>>>());
    let next = Mutex::new(items.iter().enumerate());
    let work_on = || loop {
        let one = next.lock().unwrap_or_else(PoisonError::into_inner).next();
        let Some((index, item)) = one else { return };
        let result = work(item);
        results.lock().unwrap_or_else(PoisonError::into_inner)[index] = Some(result);
    };
    std::thread::scope(|scope| {
        for _ in 0..items.len().min(THREADS_MAX) {
            if std::thread::Builder::new().spawn_scoped(scope, work_on).is_err() {
                // There are no more threads to be had: those that there are do it, and this one.
                return work_on();
            }
        }
    });
    results.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Asks the leader.
pub(crate) fn ask_leader(http: &str) -> Option<LeaderHealth> {
    ask(http, ANSWER_TIME_MAX, Client::leader_health)
}

fn ask<T>(http: &str, patience: Duration, question: impl Fn(&Client) -> Result<T, ClientError>) -> Option<T> {
    let client = Client::with_patience(http, patience, patience).ok()?;
    question(&client).ok()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// It took seven seconds.
    #[test]
    fn a_hundred_silent_nodes_take_no_longer_than_a_few() {
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = silent.local_addr().unwrap().to_string();
        let addresses = vec![address.as_str(); 100];
        let begin = Instant::now();
        let answers = ask_all(&addresses, ANSWER_TIME_MAX, Client::local);
        assert!(answers.len() == 100 && answers.iter().all(Option::is_none));
        assert!(begin.elapsed() < 4 * ANSWER_TIME_MAX, "{:?}", begin.elapsed());
    }

    #[test]
    fn results_are_in_order() {
        let doubled = for_each_at_once(&[1, 2, 3], |number| number * 2);
        assert_eq!(doubled, [Some(2), Some(4), Some(6)]);
    }
}
