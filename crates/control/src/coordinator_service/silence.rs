//! A leader that the nodes do not hear is replaced before its lease runs out.
//!
//! A lease of etcd lives for two seconds at least and ends up to half a second late, which alone would be most of the time
//! that a failover may take. And a leader that reaches the store but not the nodes would keep its lease for ever.
//!
//! Rules:
//! - a leader is replaced when this process's node has had no answer to its heartbeats for [`SILENCE_MAX`], more than half of
//!   all nodes (this one counted) say nearly the same, and it does not answer when it is asked itself. So one broken connection
//!   replaces nobody, and of two nodes none does;
//! - what a process did not hear while it was itself asleep proves nothing;
//! - to replace it is to delete its key in the election, on condition that it is the same leader's. All that it still
//!   decides is fenced off from then on, and the next candidate in line leads;
//! - only the first two candidates in line ask, so that large clusters stay quiet.

use std::sync::Arc;
use std::time::{Duration, Instant};

use coquina_base::NodeId;
use coquina_cluster::MapView;
use coquina_store::{KeyValue, Leadership, LeaseId, StoreError};

use super::Shared;
use super::lead::Ended;
use crate::ask::ask_all;
use crate::client::Client;
use crate::map_service::ELECTION;

/// How often it is looked.
const TICK: Duration = Duration::from_millis(100);
/// After a longer pause this process was itself asleep.
const TICK_MAX: Duration = Duration::from_millis(400);
/// How long the leader may be silent: several heartbeats.
const SILENCE_MAX: Duration = Duration::from_secs(1);
/// How long it has to be silent for another node to agree: more than two heartbeats.
const SILENCE_AGREED_MS: u64 = 600;
/// How long a node may take to answer.
const ANSWER_TIME_MAX: Duration = Duration::from_millis(300);
/// Pause after nobody was replaced.
const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// Most nodes that are asked.
const ASKED_MAX: usize = 32;
/// Candidates in line that ask.
const ASKING_MAX: usize = 2;

/// Watches the leader as long as another process leads, and ends when this one led and was replaced.
pub(super) async fn watch(shared: &Arc<Shared>, lease: LeaseId) -> Ended {
    let mut observed: Option<(u64, Instant)> = None;
    let mut looked = Instant::now();
    loop {
        tokio::time::sleep(TICK).await;
        let was_asleep = looked.elapsed() > TICK_MAX;
        looked = Instant::now();
        let own_term = shared.leading().as_ref().map(|leading| leading.term);
        let seen = shared.map.leader_seen();
        if let Some(own_term) = own_term {
            if seen.is_some_and(|seen| seen.leader.term > own_term) {
                return Ended::Replaced;
            }
            observed = None;
            continue;
        }
        // Who refuses the map sends no heartbeats, and so hears of no leader.
        let refuses = shared.map.state().refused.is_some();
        let Some(seen) = seen.filter(|_| !was_asleep && !refuses) else {
            observed = None;
            continue;
        };
        let term = seen.leader.term;
        let (_, since) = *observed.get_or_insert((term, looked));
        if observed.is_some_and(|(known, _)| known != term) {
            observed = Some((term, looked));
            continue;
        }
        let silence = seen.heard.elapsed().min(since.elapsed());
        if silence < SILENCE_MAX {
            continue;
        }
        match replace(shared, lease, term, seen.leader.node, &seen.leader.http).await {
            Ok(true) => {
                tracing::warn!(term, leader = seen.leader.http, "the leader is silent and was replaced")
            }
            Ok(false) => tokio::time::sleep(RETRY_PAUSE).await,
            Err(error) => {
                tracing::debug!(%error, "the silent leader could not be replaced");
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        }
        // The time since belongs to the questions, not to a sleep of this process.
        looked = Instant::now();
    }
}

/// Replaces the leader of a term if the rules allow it.
async fn replace(
    shared: &Arc<Shared>,
    lease: LeaseId,
    term: u64,
    leader: Option<NodeId>,
    http: &str,
) -> Result<bool, StoreError> {
    let Some(own) = shared.config.node else { return Ok(false) };
    let store = shared.map.store();
    let snapshot = store.read(ELECTION).await?;
    let Some(first) = leader_of(snapshot.items, lease).filter(|first| first.create_revision == term) else {
        return Ok(false);
    };
    let map = shared.map.map();
    let http = http.to_owned();
    let asked = tokio::task::spawn_blocking(move || {
        let others = others_of(&map, own, leader);
        let mut addresses: Vec<&str> = others.iter().map(String::as_str).collect();
        addresses.push(&http);
        let mut answers = ask_all(&addresses, ANSWER_TIME_MAX, Client::leader_silence);
        let leader_answers = answers.pop().is_none_or(|answer| answer.is_some());
        let agree = answers.iter().flatten();
        let agree =
            agree.filter(|answer| answer.term == term && answer.silent_ms >= SILENCE_AGREED_MS).count();
        !leader_answers && are_most(agree, others.len(), leader.is_some())
    });
    // A panic of the thread was already reported by the panic hook.
    if !asked.await.unwrap_or(false) {
        return Ok(false);
    }
    let leadership = Leadership { key: first.key, create_revision: term, revision: snapshot.revision };
    leadership.resign(&**store).await?;
    Ok(true)
}

/// Who leads, if the candidate with that lease is one of the next in line.
fn leader_of(mut candidates: Vec<KeyValue>, lease: LeaseId) -> Option<KeyValue> {
    candidates.sort_by_key(|candidate| candidate.create_revision);
    let own = candidates.iter().position(|candidate| candidate.lease == Some(lease))?;
    (1..=ASKING_MAX).contains(&own).then(|| candidates.swap_remove(0))
}

/// Addresses of the nodes to be asked besides the leader's: all, or those that follow this one in a larger cluster.
fn others_of(map: &MapView, own: NodeId, leader: Option<NodeId>) -> Vec<String> {
    let is_other = |id: NodeId| id != own && Some(id) != leader;
    let nodes = || map.nodes().map(|node| &*node.value).filter(|node| is_other(node.id));
    let behind = nodes().filter(|node| node.id > own);
    let around = behind.chain(nodes().filter(|node| node.id < own));
    around.map(|node| node.addresses.http.clone()).take(ASKED_MAX).collect()
}

/// Whether those who agree, and this node, are more than half of those asked, this node, and the leader's.
fn are_most(agree: usize, asked: usize, leader_has_node: bool) -> bool {
    (agree + 1) * 2 > asked + 1 + usize::from(leader_has_node)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(lease: i64, create_revision: u64) -> KeyValue {
        KeyValue {
            key: lease.to_string().into_bytes(),
            value: Vec::new(),
            create_revision,
            mod_revision: create_revision,
            lease: Some(LeaseId(lease)),
        }
    }

    #[test]
    fn one_node_of_two_or_three_replaces_nobody_alone() {
        assert!(!are_most(0, 0, true));
        assert!(!are_most(0, 1, true));
        assert!(are_most(1, 1, true));
        assert!(!are_most(1, 2, true));
        assert!(are_most(2, 3, true));
        // A leader without a node, as a supervisor is.
        assert!(are_most(1, 2, false));
        assert!(!are_most(0, 1, false));
    }

    #[test]
    fn only_the_next_in_line_ask() {
        let line = || vec![candidate(30, 7), candidate(10, 5), candidate(20, 6), candidate(40, 8)];
        let asks = |lease| leader_of(line(), LeaseId(lease)).map(|first| first.create_revision);
        assert_eq!(asks(10), None);
        assert_eq!(asks(20), Some(5));
        assert_eq!(asks(30), Some(5));
        assert_eq!(asks(40), None);
        assert_eq!(asks(50), None);
    }
}
