//! The model behind the asynchronous trait, with real time.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use coquina_store::{
    Identity, Lease, LeaseId, ModelStore, Request, Response, Snapshot, Store, StoreError, StoreFuture,
    Transaction, Watch,
};
use tokio::sync::mpsc;

pub struct ModelAdapter {
    model: Arc<Mutex<ModelStore>>,
    begin: Instant,
}

impl ModelAdapter {
    pub fn new() -> Self {
        ModelAdapter { model: Arc::new(Mutex::new(ModelStore::new(1))), begin: Instant::now() }
    }

    fn ask<T: Send + 'static>(
        &self,
        request: Request,
        pick: fn(Response) -> Option<T>,
    ) -> StoreFuture<'_, T> {
        Box::pin(async move {
            let now_ns = self.begin.elapsed().as_nanos() as u64;
            let mut model = self.model.lock().unwrap();
            model.expire(now_ns);
            model.apply(now_ns, &request).map(|response| pick(response).unwrap())
        })
    }
}

impl Store for ModelAdapter {
    fn read<'a>(&'a self, prefix: &'a [u8]) -> StoreFuture<'a, Snapshot> {
        self.ask(Request::Read { prefix: prefix.to_vec() }, |response| match response {
            Response::Snapshot(snapshot) => Some(snapshot),
            _ => None,
        })
    }

    fn transaction(&self, transaction: Transaction) -> StoreFuture<'_, u64> {
        self.ask(Request::Transaction(transaction), |response| match response {
            Response::Revision(revision) => Some(revision),
            _ => None,
        })
    }

    fn watch(&self, prefix: &[u8], from_revision: u64) -> Result<Watch, StoreError> {
        let model = self.model.clone();
        let begin = self.begin;
        let id = model.lock().unwrap().watch(prefix, from_revision)?;
        let (sender, receiver) = mpsc::channel(8);
        let feeder = tokio::spawn(async move {
            while model.lock().unwrap().is_watched(id) {
                let next = {
                    let mut model = model.lock().unwrap();
                    model.expire(begin.elapsed().as_nanos() as u64);
                    model.watch_next(id)
                };
                match next {
                    Some(watched) => {
                        if sender.send(Ok(watched)).await.is_err() {
                            return;
                        }
                    }
                    None => tokio::time::sleep(Duration::from_millis(2)).await,
                }
            }
        });
        Ok(Watch::new(receiver, Some(feeder.abort_handle())))
    }

    fn lease_grant(&self, seconds: u64) -> StoreFuture<'_, Lease> {
        self.ask(Request::LeaseGrant { seconds }, |response| match response {
            Response::Lease(lease) => Some(lease),
            _ => None,
        })
    }

    fn lease_keep_alive(&self, lease: LeaseId) -> StoreFuture<'_, u64> {
        self.ask(Request::LeaseKeepAlive { lease }, |response| match response {
            Response::KeptAlive(seconds) => Some(seconds),
            _ => None,
        })
    }

    fn lease_revoke(&self, lease: LeaseId) -> StoreFuture<'_, ()> {
        self.ask(Request::LeaseRevoke { lease }, |_| Some(()))
    }

    fn compact(&self, revision: u64) -> StoreFuture<'_, ()> {
        self.ask(Request::Compact { revision }, |_| Some(()))
    }

    fn identity(&self) -> Option<Identity> {
        Some(self.model.lock().unwrap().identity())
    }
}

#[test]
fn a_lost_watch_tells_nothing_more_and_a_new_one_goes_on() {
    let mut model = ModelStore::new(1);
    let put = |model: &mut ModelStore, value: &str| {
        let transaction =
            Transaction::compare_and_set(b"/a", model.identity().revision, Some(value.into()), None);
        let mut transaction = transaction;
        transaction.compares.clear();
        model.apply(0, &Request::Transaction(transaction)).unwrap();
    };
    let watch = model.watch(b"/", 2).unwrap();
    put(&mut model, "1");
    put(&mut model, "2");
    assert!(model.watch_next(watch).is_some());
    model.lose_watch(watch);
    assert_eq!(model.watch_next(watch), None);
    assert!(!model.is_watched(watch));
    let backup = model.clone();
    let watch = model.watch(b"/", 3).unwrap();
    put(&mut model, "3");
    let told: Vec<_> = std::iter::from_fn(|| model.watch_next(watch)).collect();
    assert_eq!(told.len(), 2);
    assert_eq!((backup.identity().revision, model.identity().revision), (3, 4));
}

#[test]
fn a_lease_may_end_late_and_is_kept_until_then() {
    let mut model = ModelStore::new(1);
    let granted = model.apply(0, &Request::LeaseGrant { seconds: 1 }).unwrap();
    let Response::Lease(lease) = granted else { panic!("{granted:?}") };
    let due_ns = model.expiry_next_ns().unwrap();
    assert_eq!(due_ns, 1_000_000_000);
    model.expire(due_ns - 1);
    assert!(model.apply(due_ns + 5, &Request::LeaseKeepAlive { lease: lease.id }).is_ok());
    assert_eq!(model.expiry_next_ns(), Some(2 * due_ns + 5));
    model.renew_leases(2 * due_ns);
    model.expire(3 * due_ns);
    let lost = model.apply(0, &Request::LeaseKeepAlive { lease: lease.id });
    assert_eq!(lost, Err(StoreError::LeaseLost { lease: lease.id }));
}
