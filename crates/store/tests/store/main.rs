//! One suite for all stores, and what goes wrong with a real etcd.
//!
//! Tests that need `etcd` say `SKIPPED` and pass where it is not installed.

#![allow(clippy::unwrap_used, reason = "a failed unwrap fails the test")]

mod accidents;
mod conformance;
mod differential;
mod etcd;
mod model;
mod proxy;
mod secured;
mod storm;

use std::sync::Arc;

use coquina_store::{EmbeddedStore, EtcdOptions, EtcdStore, Store, StoreServer};

/// Runs a test's future on two threads.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap().block_on(future)
}

#[test]
fn the_embedded_store_conforms() {
    let folder = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(folder.path(), None).unwrap();
    block_on(conformance::run(Arc::new(store)));
}

#[test]
fn the_embedded_store_in_memory_conforms() {
    block_on(conformance::run(Arc::new(EmbeddedStore::in_memory().unwrap())));
}

#[test]
fn the_embedded_store_behind_its_server_conforms() {
    block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let embedded = EmbeddedStore::open(folder.path(), None).unwrap();
        let address = "127.0.0.1:0".parse().unwrap();
        let server = StoreServer::start(embedded, address, Some("secret".to_owned())).await.unwrap();
        let mut options = EtcdOptions::new(vec![server.endpoint()]);
        options.access = coquina_store::Access::Token("secret".to_owned());
        let store: Arc<dyn Store> = Arc::new(EtcdStore::new(options).unwrap());
        conformance::run(store).await;
        server.stop().await;
        // All of it has ended: the folder can be opened again.
        EmbeddedStore::open(folder.path(), None).unwrap();
    });
}

#[test]
fn the_model_conforms() {
    block_on(conformance::run(Arc::new(model::ModelAdapter::new())));
}

#[test]
fn one_member_of_etcd_conforms() {
    let Some(cluster) = etcd::Cluster::start(1, &[]) else { return };
    block_on(conformance::run(Arc::new(cluster.store())));
}

#[test]
fn three_members_of_etcd_conform() {
    let Some(cluster) = etcd::Cluster::start(3, &[]) else { return };
    block_on(conformance::run(Arc::new(cluster.store())));
}
