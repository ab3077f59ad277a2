//! Who leads: etcd's recipe for an election.
//!
//! Every candidate puts a key with its lease under the election's prefix; the one whose key was created first
//! leads. The create revision of that key is the *fencing token*: a leader adds [`Leadership::fence`] to the
//! conditions of all that it changes, so that one that was replaced without knowing changes nothing.
//!
//! [`Campaign`] and [`Candidates`] are pure, for the simulator; [`campaign`] and [`observe`] drive them.
//!
//! Invariants:
//! - a campaign may be begun anew after any passing error: its key is named after its lease and is put only once;
//! - who leads is decided by a read, never by what a watch tells: a watch only says when to read again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::api::{
    Compare, Event, KeyValue, LeaseId, Operation, Revision, Snapshot, Store, Transaction, Watched,
};
use crate::error::StoreError;
use crate::model::{Request, Response};
use crate::watch::Watch;

/// How long it is waited after an error that passes.
const RETRY_PAUSE: Duration = Duration::from_millis(300);

/// A leader's claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leadership {
    /// The candidate's key.
    pub key: Vec<u8>,
    /// The fencing token: later leaders have higher ones.
    pub create_revision: u64,
    /// The revision of the read that showed it.
    pub revision: u64,
}

impl Leadership {
    /// The condition under which this leader may change anything.
    pub fn fence(&self) -> Compare {
        Compare::CreateRevision { key: self.key.clone(), revision: self.create_revision }
    }

    /// The transaction that gives the claim up.
    pub fn resignation(&self) -> Transaction {
        Transaction {
            compares: vec![self.fence()],
            operations: vec![Operation::Delete { key: self.key.clone() }],
        }
    }

    /// Gives the claim up. No error if somebody else leads already.
    pub async fn resign(&self, store: &dyn Store) -> Result<(), StoreError> {
        match store.transaction(self.resignation()).await {
            Ok(_) | Err(StoreError::Conflict { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// What a campaign wants next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CampaignStep {
    /// Ask the store, and hand the answer to [`Campaign::answered`].
    Ask(Request),
    /// Watch the prefix from a revision on, and hand what it tells to [`Campaign::watched`].
    Watch {
        /// The election's prefix.
        prefix: Vec<u8>,
        /// The revision.
        from_revision: u64,
    },
    /// It is won.
    Leads(Leadership),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Begin,
    Putting,
    Reading,
    Waiting { predecessor: Vec<u8> },
}

/// The campaign of one candidate, as a state machine.
#[derive(Clone, Debug)]
pub struct Campaign {
    prefix: Vec<u8>,
    key: Vec<u8>,
    value: Vec<u8>,
    lease: LeaseId,
    create_revision: u64,
    state: State,
}

impl Campaign {
    /// A candidate in the election of that name, which tells `value` of itself and is one as long as its lease
    /// lives.
    pub fn new(name: &[u8], value: Vec<u8>, lease: LeaseId) -> Self {
        let prefix = election_prefix(name);
        let mut key = prefix.clone();
        key.extend_from_slice(lease.to_string().as_bytes());
        Campaign { prefix, key, value, lease, create_revision: 0, state: State::Begin }
    }

    /// Begins, or begins anew after an error that passes.
    pub fn begin(&mut self) -> CampaignStep {
        self.state = State::Putting;
        self.put(Compare::CreateRevision { key: self.key.clone(), revision: 0 })
    }

    fn put(&self, compare: Compare) -> CampaignStep {
        let operation =
            Operation::Put { key: self.key.clone(), value: self.value.clone(), lease: Some(self.lease) };
        CampaignStep::Ask(Request::Transaction(Transaction {
            compares: vec![compare],
            operations: vec![operation],
        }))
    }

    fn read(&mut self) -> CampaignStep {
        self.state = State::Reading;
        CampaignStep::Ask(Request::Read { prefix: self.prefix.clone() })
    }

    /// Goes on with the store's answer. An error ends the campaign, unless it passes: then begin anew.
    pub fn answered(&mut self, answer: Result<Response, StoreError>) -> Result<CampaignStep, StoreError> {
        match (&self.state, answer) {
            (State::Putting, Err(StoreError::Conflict { current, .. })) => match current.into_iter().next() {
                // Put by an earlier attempt whose answer was lost.
                Some(own) if own.lease == Some(self.lease) && own.value == self.value => Ok(self.read()),
                Some(own) => Ok(self.put(Compare::ModRevision { key: own.key, revision: own.mod_revision })),
                None => Ok(self.begin()),
            },
            (_, Err(error)) => Err(error),
            (State::Putting, Ok(Response::Revision(_))) => Ok(self.read()),
            (State::Reading, Ok(Response::Snapshot(snapshot))) => self.decide(&snapshot),
            (state, Ok(answer)) => {
                let reason = format!("{answer:?} does not answer a campaign in state {state:?}");
                Err(StoreError::Invalid { reason })
            }
        }
    }

    fn decide(&mut self, snapshot: &Snapshot) -> Result<CampaignStep, StoreError> {
        let own = snapshot.items.iter().find(|item| item.key == self.key);
        let own = own.ok_or(StoreError::LeaseLost { lease: self.lease })?;
        self.create_revision = own.create_revision;
        let before = snapshot.items.iter().filter(|item| item.create_revision < own.create_revision);
        Ok(match before.max_by_key(|item| item.create_revision) {
            None => CampaignStep::Leads(Leadership {
                key: self.key.clone(),
                create_revision: self.create_revision,
                revision: snapshot.revision,
            }),
            Some(predecessor) => {
                self.state = State::Waiting { predecessor: predecessor.key.clone() };
                CampaignStep::Watch { prefix: self.prefix.clone(), from_revision: snapshot.revision + 1 }
            }
        })
    }

    /// Goes on with what the watch told; `None`: watch on.
    pub fn watched(&mut self, watched: &Watched) -> Result<Option<CampaignStep>, StoreError> {
        let State::Waiting { predecessor } = &self.state else { return Ok(None) };
        let Watched::Revision(revision) = watched else { return Ok(Some(self.read())) };
        let gone = |wanted: &[u8]| {
            revision.events.iter().any(|event| matches!(event, Event::Delete { key } if key == wanted))
        };
        if gone(&self.key) {
            return Err(StoreError::LeaseLost { lease: self.lease });
        }
        let read_again = gone(predecessor);
        Ok(read_again.then(|| self.read()))
    }
}

/// The keys of an election lie under its name and a slash.
fn election_prefix(name: &[u8]) -> Vec<u8> {
    let mut prefix = name.to_vec();
    prefix.push(b'/');
    prefix
}

/// Campaigns until the election is won. Waits through errors that pass; the lease has to be kept alive meanwhile,
/// and without it the campaign ends with [`StoreError::LeaseLost`]. To stop, drop the future and revoke the lease.
pub async fn campaign(
    store: &dyn Store,
    name: &[u8],
    value: Vec<u8>,
    lease: LeaseId,
) -> Result<Leadership, StoreError> {
    let mut campaign = Campaign::new(name, value, lease);
    let mut step = campaign.begin();
    loop {
        let next = match step {
            CampaignStep::Leads(leadership) => return Ok(leadership),
            CampaignStep::Ask(request) => campaign.answered(ask(store, request).await),
            CampaignStep::Watch { prefix, from_revision } => {
                let mut watch = store.watch(&prefix, from_revision)?;
                wait(&mut campaign, &mut watch).await
            }
        };
        step = match next {
            Ok(next) => next,
            Err(error) if error.is_passing() => {
                tracing::debug!(%error, "the campaign waits");
                tokio::time::sleep(RETRY_PAUSE).await;
                campaign.begin()
            }
            Err(error) => return Err(error),
        };
    }
}

async fn wait(campaign: &mut Campaign, watch: &mut Watch) -> Result<CampaignStep, StoreError> {
    loop {
        let watched = watch.next().await.ok_or(StoreError::Closed)??;
        if let Some(step) = campaign.watched(&watched)? {
            return Ok(step);
        }
    }
}

/// Asks a store by value, as the pure state machines do.
pub async fn ask(store: &dyn Store, request: Request) -> Result<Response, StoreError> {
    Ok(match request {
        Request::Read { prefix } => Response::Snapshot(store.read(&prefix).await?),
        Request::Transaction(transaction) => Response::Revision(store.transaction(transaction).await?),
        Request::LeaseGrant { seconds } => Response::Lease(store.lease_grant(seconds).await?),
        Request::LeaseKeepAlive { lease } => Response::KeptAlive(store.lease_keep_alive(lease).await?),
        Request::LeaseRevoke { lease } => {
            store.lease_revoke(lease).await?;
            Response::Done
        }
        Request::Compact { revision } => {
            store.compact(revision).await?;
            Response::Done
        }
    })
}

/// The candidates of an election, kept up to date with a read and the watch that follows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Candidates {
    items: BTreeMap<Vec<u8>, KeyValue>,
}

impl Candidates {
    /// The candidates of a read of the election's prefix.
    pub fn new(snapshot: Snapshot) -> Self {
        Candidates { items: snapshot.items.into_iter().map(|item| (item.key.clone(), item)).collect() }
    }

    /// Takes in what a revision changed.
    pub fn apply(&mut self, revision: &Revision) {
        for event in &revision.events {
            match event {
                Event::Put(item) => self.items.insert(item.key.clone(), item.clone()),
                Event::Delete { key } => self.items.remove(key),
            };
        }
    }

    /// The one that leads: its key was created first.
    pub fn leader(&self) -> Option<&KeyValue> {
        self.items.values().min_by_key(|item| item.create_revision)
    }
}

/// Tells who leads; made by [`observe`].
pub struct Observer {
    store: Arc<dyn Store>,
    prefix: Vec<u8>,
    candidates: Candidates,
    watch: Option<Watch>,
    told: Option<Option<KeyValue>>,
}

/// Observes an election of that name.
pub fn observe(store: Arc<dyn Store>, name: &[u8]) -> Observer {
    let prefix = election_prefix(name);
    Observer { store, prefix, candidates: Candidates::default(), watch: None, told: None }
}

impl Observer {
    /// Waits until somebody else leads than was told last, or nobody does (`None`): the leader's key, with its
    /// value and, as create revision, its fencing token. Waits through errors that pass. Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<KeyValue>, StoreError> {
        loop {
            let progress = match &mut self.watch {
                None => self.read().await,
                Some(watch) => match watch.next().await {
                    Some(Ok(Watched::Revision(revision))) => {
                        self.candidates.apply(&revision);
                        Ok(())
                    }
                    Some(Ok(Watched::Reset { .. })) | None => {
                        self.watch = None;
                        continue;
                    }
                    Some(Err(error)) => {
                        self.watch = None;
                        Err(error)
                    }
                },
            };
            match progress {
                Ok(()) => {}
                Err(error) if error.is_passing() => {
                    tokio::time::sleep(RETRY_PAUSE).await;
                    continue;
                }
                Err(error) => return Err(error),
            }
            let leader = self.candidates.leader().cloned();
            if self.told.as_ref() != Some(&leader) {
                self.told = Some(leader.clone());
                return Ok(leader);
            }
        }
    }

    async fn read(&mut self) -> Result<(), StoreError> {
        let snapshot = self.store.read(&self.prefix).await?;
        self.watch = Some(self.store.watch(&self.prefix, snapshot.revision + 1)?);
        self.candidates = Candidates::new(snapshot);
        Ok(())
    }
}
