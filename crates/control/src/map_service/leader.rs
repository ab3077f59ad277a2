//! Who leads, as every process sees it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use coquina_base::NodeId;
use coquina_store::{KeyValue, Store, observe};
use serde::{Deserialize, Serialize};

use super::{ELECTION, LeaderSeen, Shared};

/// Pause before an election is observed anew that could not be.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// What a candidate says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Candidate {
    /// Address of its REST interface.
    pub(crate) http: String,
    /// Its node, if it has one.
    pub(crate) node: Option<NodeId>,
    /// Its process, so that a restarted one is another candidate.
    pub(crate) process: u32,
}

/// The process that leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// Address of its REST interface.
    pub http: String,
    /// Its node, if it has one.
    pub node: Option<NodeId>,
    /// Its fencing token: later leaders have higher ones.
    pub term: u64,
}

impl Leader {
    fn of(item: &KeyValue) -> Option<Leader> {
        let candidate: Candidate = serde_json::from_slice(&item.value).ok()?;
        Some(Leader { http: candidate.http, node: candidate.node, term: item.create_revision })
    }
}

/// Keeps the state's leader up to date. Never ends.
pub(super) async fn follow(shared: &Shared, store: Arc<dyn Store>) {
    loop {
        let mut observer = observe(store.clone(), ELECTION);
        loop {
            match observer.next().await {
                Ok(item) => {
                    let leader = item.as_ref().and_then(Leader::of);
                    shared.change_state(|state| {
                        let last = state.leaders_last[0].as_ref().map(|seen| &seen.leader);
                        if let Some(new) = leader.as_ref().filter(|leader| Some(*leader) != last) {
                            let seen = LeaderSeen { leader: new.clone(), heard: Instant::now() };
                            state.leaders_last[1] = state.leaders_last[0].replace(seen);
                        }
                        state.leader = leader;
                    });
                }
                Err(error) => {
                    tracing::debug!(%error, "the election cannot be observed");
                    break;
                }
            }
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}
