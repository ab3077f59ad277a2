//! The same random requests to two stores that both begin empty: every answer and every revision has to be alike.
//! So the model that the simulator trusts is held against a real etcd.

use std::collections::BTreeMap;
use std::sync::Arc;

use coquina_store::{
    Access, Compare, EmbeddedStore, EtcdOptions, EtcdStore, Event, LeaseId, Operation, Revision, Store,
    StoreError, StoreServer, Transaction, Watched,
};

use crate::model::ModelAdapter;

const PREFIX: &str = "/d/";

/// A small generator of its own: a seed is the same run everywhere.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Two stores and the names that their leases have in each.
struct Pair {
    stores: [Arc<dyn Store>; 2],
    leases: Vec<[LeaseId; 2]>,
    random: Random,
    /// The present revisions of the keys, to guess right often enough.
    known: BTreeMap<Vec<u8>, (u64, u64)>,
    revision: u64,
    counts: BTreeMap<&'static str, u32>,
}

/// What is the same in both stores when all is well.
fn plain(result: Result<u64, StoreError>, leases: &[LeaseId]) -> String {
    match result {
        Err(StoreError::Conflict { keys, current }) => {
            let items: Vec<String> = current.iter().map(|item| show(item, leases)).collect();
            format!("conflict {keys:?} {items:?}")
        }
        Err(StoreError::LeaseLost { .. }) => "lease lost".to_owned(),
        Err(StoreError::Invalid { .. }) => "invalid".to_owned(),
        other => format!("{other:?}"),
    }
}

fn show(item: &coquina_store::KeyValue, leases: &[LeaseId]) -> String {
    let lease = item.lease.map(|lease| leases.iter().position(|known| *known == lease).unwrap());
    format!("{:?}={:?} {} {} {lease:?}", item.key, item.value, item.create_revision, item.mod_revision)
}

impl Pair {
    fn leases_of(&self, side: usize) -> Vec<LeaseId> {
        self.leases.iter().map(|names| names[side]).collect()
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn key(&mut self) -> Vec<u8> {
        format!("{PREFIX}{}", self.random.below(6)).into_bytes()
    }

    fn compare(&mut self) -> Compare {
        let key = self.key();
        let (create, modified) = self.known.get(&key).copied().unwrap_or((0, 0));
        let wrong = u64::from(self.random.below(6) == 0);
        match self.random.below(5) {
            0 | 1 => Compare::ModRevision { key, revision: modified + wrong },
            2 | 3 => Compare::CreateRevision { key, revision: create + wrong },
            _ => Compare::NoneAfter { prefix: PREFIX.into(), revision: self.revision.saturating_sub(wrong) },
        }
    }

    async fn transaction(&mut self) {
        let compares: Vec<Compare> = (0..self.random.below(3)).map(|_| self.compare()).collect();
        let mut operations = Vec::new();
        let mut lease_at = Vec::new();
        for _ in 0..self.random.below(4) {
            let key = self.key();
            if self.random.below(3) == 0 {
                operations.push(Operation::Delete { key });
                lease_at.push(None);
            } else {
                let value = self.random.below(1000).to_string().into_bytes();
                let count = self.leases.len() as u64;
                let lease =
                    (count > 0 && self.random.below(3) == 0).then(|| self.random.below(count) as usize);
                operations.push(Operation::Put { key, value, lease: None });
                lease_at.push(lease);
            }
        }
        let mut answers = Vec::new();
        for side in 0..2 {
            let mut operations = operations.clone();
            for (operation, lease_of) in operations.iter_mut().zip(&lease_at) {
                if let Operation::Put { lease, .. } = operation {
                    *lease = lease_of.map(|index| self.leases[index][side]);
                }
            }
            let transaction = Transaction { compares: compares.clone(), operations };
            let result = self.stores[side].transaction(transaction).await;
            answers.push(plain(result, &self.leases_of(side)));
        }
        assert_eq!(answers[0], answers[1], "{compares:?} {operations:?} {lease_at:?}");
        let kind = answers[0].split([' ', '(']).next().unwrap();
        self.count(match kind {
            "conflict" => "conflicts",
            "lease" => "lost leases",
            "invalid" => "invalid",
            _ => "changes",
        });
    }

    async fn read(&mut self) {
        let mut shown = Vec::new();
        for side in 0..2 {
            let snapshot = self.stores[side].read(PREFIX.as_bytes()).await.unwrap();
            let leases = self.leases_of(side);
            let items: Vec<String> = snapshot.items.iter().map(|item| show(item, &leases)).collect();
            shown.push((items, snapshot.revision));
            self.revision = snapshot.revision;
            self.known = snapshot
                .items
                .into_iter()
                .map(|item| (item.key, (item.create_revision, item.mod_revision)))
                .collect();
        }
        assert_eq!(shown[0], shown[1]);
    }

    async fn lease(&mut self) {
        if self.leases.len() < 4 || self.random.below(3) == 0 {
            let mut names = Vec::new();
            for store in &self.stores {
                names.push(store.lease_grant(600).await.unwrap().id);
            }
            self.leases.push([names[0], names[1]]);
            return self.count("grants");
        }
        let index = self.random.below(self.leases.len() as u64) as usize;
        let keep = self.random.below(2) == 0;
        let mut answers = Vec::new();
        for side in 0..2 {
            let lease = self.leases[index][side];
            let result = match keep {
                true => self.stores[side].lease_keep_alive(lease).await,
                false => self.stores[side].lease_revoke(lease).await.map(|()| 0),
            };
            answers.push(plain(result, &[]));
        }
        assert_eq!(answers[0], answers[1]);
        self.count(if keep { "kept" } else { "revoked" });
    }

    async fn compact(&mut self) {
        let revision = self.revision.saturating_sub(self.random.below(30)).max(1);
        let mut answers = Vec::new();
        for store in &self.stores {
            answers.push(plain(store.compact(revision).await.map(|()| 0), &[]));
        }
        assert_eq!(answers[0], answers[1], "compact {revision} of {}", self.revision);
        self.count("compactions");
    }

    async fn watch(&mut self) {
        let from = 1 + self.random.below(self.revision + 1);
        let mut told = Vec::new();
        for side in 0..2 {
            let leases = self.leases_of(side);
            // Its own change is the end, whichever store it is.
            let mut watch = self.stores[side].watch(PREFIX.as_bytes(), from).unwrap();
            let end = format!("{PREFIX}end");
            crate::conformance::set(&*self.stores[side], &end, "x").await;
            let mut lines = Vec::new();
            loop {
                match watch.next().await.unwrap().unwrap() {
                    Watched::Reset { oldest_revision } => {
                        lines.push(format!("reset {oldest_revision}"));
                        break;
                    }
                    Watched::Revision(revision) => {
                        let last = revision.revision > self.revision;
                        lines.push(show_revision(&revision, &leases));
                        if last {
                            break;
                        }
                    }
                }
            }
            told.push(lines);
        }
        assert_eq!(told[0], told[1], "watch from {from}");
        self.count(if told[0][0].starts_with("reset") { "resets" } else { "watches" });
        self.read().await;
    }
}

fn show_revision(revision: &Revision, leases: &[LeaseId]) -> String {
    let mut events: Vec<String> = revision
        .events
        .iter()
        .map(|event| match event {
            Event::Put(item) => show(item, leases),
            Event::Delete { key } => format!("-{key:?}"),
        })
        .collect();
    // The order in which a lease's keys go is not documented.
    events.sort();
    format!("{}: {events:?}", revision.revision)
}

async fn compare(stores: [Arc<dyn Store>; 2], seed: u64, steps: u32) {
    let mut pair = Pair {
        stores,
        leases: Vec::new(),
        random: Random(seed),
        known: BTreeMap::new(),
        revision: 1,
        counts: BTreeMap::new(),
    };
    for _ in 0..steps {
        pair.read().await;
        match pair.random.below(20) {
            0..13 => pair.transaction().await,
            13..16 => pair.lease().await,
            16 => pair.compact().await,
            _ => pair.watch().await,
        }
    }
    println!("seed {seed}: {steps} steps, {:?}", pair.counts);
    for what in ["changes", "conflicts", "lost leases", "revoked", "compactions", "resets", "watches"] {
        assert!(pair.counts.contains_key(what), "no {what} in seed {seed}");
    }
}

#[test]
fn the_model_answers_like_etcd() {
    for seed in [1, 2, 3] {
        let Some(cluster) = crate::etcd::Cluster::start(1, &[]) else { return };
        crate::block_on(compare([Arc::new(cluster.store()), Arc::new(ModelAdapter::new())], seed, 400));
    }
}

#[test]
fn the_embedded_store_answers_like_its_model() {
    for seed in 1..=8 {
        crate::block_on(async {
            let embedded = EmbeddedStore::in_memory().unwrap();
            let address = "127.0.0.1:0".parse().unwrap();
            let server = StoreServer::start(embedded, address, Some("x".to_owned())).await.unwrap();
            let mut options = EtcdOptions::new(vec![server.endpoint()]);
            options.access = Access::Token("x".to_owned());
            let served = Arc::new(EtcdStore::new(options).unwrap());
            compare([served, Arc::new(ModelAdapter::new())], seed, 400).await;
            server.stop().await;
        });
    }
}
