//! What goes wrong with the members, the network and the data of etcd.

use std::convert::Infallible;
use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use coquina_store::{
    Access, EmbeddedStore, EtcdOptions, EtcdStore, Identity, Store, StoreError, StoreServer, Watched,
    campaign,
};

use crate::block_on;
use crate::conformance::{get, next, set};
use crate::etcd::{Cluster, free_port};
use crate::proxy::{Mode, Proxy};

#[test]
fn no_endpoint_answers() {
    block_on(async {
        let endpoints: Vec<String> = (0..2).map(|_| format!("http://127.0.0.1:{}", free_port())).collect();
        let store = EtcdStore::new(EtcdOptions::new(endpoints.clone())).unwrap();
        for refused in [
            store.read(b"/").await.map(|_| ()),
            store.compare_and_set(b"/a", 0, None, None).await.map(|_| ()),
            store.lease_grant(5).await.map(|_| ()),
        ] {
            let error = refused.unwrap_err();
            let text = error.to_string();
            assert!(matches!(&error, StoreError::Unreachable { tried, .. } if tried.len() == 2), "{error:?}");
            assert!(endpoints.iter().all(|endpoint| text.contains(endpoint)), "{text}");
            assert!(text.contains("refused") && text.contains("start etcd"), "{text}");
        }
        assert_eq!(store.identity(), None);
    });
}

#[test]
fn wrong_options_are_refused_at_once() {
    let refused = |endpoints: &[&str]| {
        let endpoints = endpoints.iter().map(|endpoint| (*endpoint).to_owned()).collect();
        EtcdStore::new(EtcdOptions::new(endpoints)).err().expect("it is refused").to_string()
    };
    assert!(refused(&[]).contains("--etcd URL"));
    for wrong in ["", "http://", "http://host", "ftp://host:1", "a b"] {
        assert!(
            refused(&["http://127.0.0.1:1", wrong]).contains("not a valid request: etcd endpoint"),
            "{wrong}"
        );
    }
    assert!(refused(&["https://127.0.0.1:1"]).contains("authority"));
}

#[test]
fn a_member_that_falls_silent_is_left() {
    let Some(cluster) = Cluster::start(3, &[]) else { return };
    block_on(async {
        let proxy = Proxy::start(cluster.address(0)).await;
        let mut endpoints = cluster.endpoints();
        endpoints[0].clone_from(&proxy.endpoint);
        let store = EtcdStore::new(EtcdOptions::new(endpoints)).unwrap();
        let direct = cluster.store();
        let first = set(&store, "/a", "1").await;
        let mut watch = store.watch(b"/", first).unwrap();
        assert_eq!(next(&mut watch).await.revision, first);
        proxy.set(Mode::Silent);
        let begin = Instant::now();
        let second = set(&direct, "/a", "2").await;
        assert_eq!(next(&mut watch).await.revision, second);
        println!("the watch went on after {} ms", begin.elapsed().as_millis());
        assert_eq!(get(&store, "/a").await.unwrap().mod_revision, second);
        // What was held back comes now, and is not told twice.
        proxy.set(Mode::Forward);
        tokio::time::sleep(Duration::from_millis(300)).await;
        let third = set(&store, "/a", "3").await;
        assert_eq!(next(&mut watch).await.revision, third);
    });
}

#[test]
fn a_slow_store_is_said_to_be_slow_and_a_change_to_be_unknown() {
    let Some(cluster) = Cluster::start(1, &[]) else { return };
    block_on(async {
        let proxy = Proxy::start(cluster.address(0)).await;
        let mut options = EtcdOptions::new(vec![proxy.endpoint.clone()]);
        options.request_timeout = Duration::from_millis(1000);
        options.attempt_timeout = Duration::from_millis(400);
        let store = EtcdStore::new(options).unwrap();
        let first = set(&store, "/a", "1").await;
        proxy.set(Mode::Late(Duration::from_millis(150)));
        assert_eq!(get(&store, "/a").await.unwrap().mod_revision, first);
        proxy.set(Mode::Mute);
        let error = store.compare_and_set(b"/a", first, Some(b"2".to_vec()), None).await.unwrap_err();
        assert!(matches!(error, StoreError::OutcomeUnknown { .. }), "{error:?}");
        assert!(error.to_string().contains("read again"), "{error}");
        let error = store.read(b"/").await.unwrap_err();
        assert!(matches!(error, StoreError::Slow { .. }), "{error:?}");
        assert!(error.to_string().contains(&proxy.endpoint) && error.is_passing(), "{error}");
        proxy.set(Mode::Forward);
        // It was done: that is what "unknown" warns of.
        assert_eq!(get(&store, "/a").await.unwrap().value, b"2");
    });
}

#[test]
fn a_stopped_leader_is_replaced_and_the_election_goes_on() {
    let Some(cluster) = Cluster::start(3, &[]) else { return };
    block_on(async {
        let store: Arc<dyn Store> = Arc::new(cluster.store());
        let lease = store.lease_grant(60).await.unwrap().id;
        let first = campaign(&*store, b"/leader", b"one".to_vec(), lease).await.unwrap();
        let mut watch = store.watch(b"/", first.revision + 1).unwrap();
        let leader = cluster.leader();
        cluster.stop(leader);
        let begin = Instant::now();
        let revision = loop {
            let value = Some(b"x".to_vec());
            match store.compare_and_set(b"/a", 0, value, None).await {
                Ok(revision) => break revision,
                Err(StoreError::Conflict { current, .. }) => break current[0].mod_revision,
                Err(error) => {
                    println!("{} ms: {error}", begin.elapsed().as_millis());
                    assert!(error.is_passing(), "{error}");
                }
            }
        };
        println!("changes went on {} ms after the leader stopped", begin.elapsed().as_millis());
        assert_eq!(next(&mut watch).await.revision, revision);
        first.resign(&*store).await.unwrap();
        assert_eq!(next(&mut watch).await.revision, revision + 1);
        cluster.go_on(leader);
    });
}

#[test]
fn a_member_without_the_others_serves_nothing() {
    let Some(mut cluster) = Cluster::start(3, &[]) else { return };
    let store = cluster.store();
    let first = block_on(set(&store, "/a", "1"));
    cluster.kill(1);
    cluster.kill(2);
    block_on(async {
        let begin = Instant::now();
        while let Ok(snapshot) = store.read(b"/").await {
            assert!(begin.elapsed() < Duration::from_secs(10), "{snapshot:?}");
        }
        let error = store.read(b"/").await.unwrap_err();
        assert!(error.is_passing() && !error.to_string().is_empty(), "{error:?}");
        let error = store.compare_and_set(b"/a", first, None, None).await.unwrap_err();
        assert!(error.is_passing(), "{error:?}");
    });
    cluster.restart(1);
    cluster.wait();
    block_on(async { assert!(store.read(b"/").await.is_ok()) });
}

fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).status().unwrap();
    assert!(copied.success());
}

#[test]
fn a_wiped_store_is_not_accepted() {
    let Some(mut cluster) = Cluster::start(1, &[]) else { return };
    let store = cluster.store();
    let (known, mut watch) = block_on(async {
        let first = set(&store, "/a", "1").await;
        let watch = tokio::spawn({
            let store = store.clone();
            async move { store.watch(b"/", first + 1).unwrap() }
        });
        set(&store, "/a", "2").await;
        (store.identity().unwrap(), watch.await.unwrap())
    });
    cluster.kill(0);
    fs::remove_dir_all(cluster.data(0)).unwrap();
    cluster.restart(0);
    cluster.wait();
    let went_back = |error: &StoreError| matches!(error, StoreError::WentBack { seen, .. } if *seen == known);
    block_on(async {
        let error = store.read(b"/").await.unwrap_err();
        assert!(went_back(&error), "{error:?}");
        assert!(error.to_string().contains("wiped") && !error.is_passing(), "{error}");
        // From now on, whatever is asked, and nothing is changed.
        let error = store.compare_and_set(b"/b", 0, Some(b"x".to_vec()), None).await.unwrap_err();
        assert!(went_back(&error), "{error:?}");
        assert!(went_back(&store.lease_keep_alive(coquina_store::LeaseId(1)).await.unwrap_err()));
        let mut options = cluster.options();
        options.known = Some(known);
        let restarted = EtcdStore::new(options.clone()).unwrap();
        let mut watched = restarted.watch(b"/", known.revision + 1).unwrap();
        assert!(went_back(&watched.next().await.unwrap().unwrap_err()));
        assert!(watched.next().await.is_none());
        let error = restarted.lease_grant(5).await.unwrap_err();
        assert!(went_back(&error), "{error:?}");
        // Another etcd that is further on.
        options.known = Some(Identity { store_id: known.store_id ^ 1, revision: 0 });
        let error = EtcdStore::new(options).unwrap().read(b"/").await.unwrap_err();
        assert!(matches!(error, StoreError::WentBack { .. }));
        let fresh = cluster.store();
        assert!(fresh.read(b"/").await.unwrap().items.is_empty(), "nothing was written");
    });
    // The runtime that fed it has ended.
    let _ = block_on(watch.next());
}

#[test]
fn a_store_restored_from_an_old_backup_is_not_accepted() {
    let Some(mut cluster) = Cluster::start(1, &[]) else { return };
    let store = cluster.store();
    block_on(set(&store, "/a", "1"));
    cluster.kill(0);
    let backup = cluster.folder.path().join("backup");
    copy(cluster.data(0), &backup);
    cluster.restart(0);
    cluster.wait();
    let same = block_on(store.read(b"/")).unwrap();
    assert_eq!(same.items.len(), 1, "a restart alone is no harm");
    block_on(set(&store, "/a", "2"));
    cluster.kill(0);
    fs::remove_dir_all(cluster.data(0)).unwrap();
    copy(&backup, cluster.data(0));
    cluster.restart(0);
    cluster.wait();
    let error = block_on(store.read(b"/")).unwrap_err();
    assert!(matches!(error, StoreError::WentBack { seen, now } if now.revision < seen.revision), "{error:?}");
}

#[test]
fn a_wiped_embedded_store_is_not_accepted() {
    block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let address = format!("127.0.0.1:{}", free_port()).parse().unwrap();
        let open = || EmbeddedStore::open(folder.path(), None).unwrap();
        let server = StoreServer::start(open(), address, None).await.unwrap();
        let store = EtcdStore::new(EtcdOptions::new(vec![server.endpoint()])).unwrap();
        let first = set(&store, "/a", "1").await;
        let mut watch = store.watch(b"/", first + 1).unwrap();
        server.stop().await;
        let server = StoreServer::start(open(), address, None).await.unwrap();
        // A read is tried again where the connection of before ends under it; of a change nobody could tell whether it was made.
        assert_eq!(get(&store, "/a").await.unwrap().mod_revision, first);
        let second = set(&store, "/a", "2").await;
        assert_eq!(next(&mut watch).await.revision, second);
        server.stop().await;
        for name in ["store.log", "store.previous.log"] {
            let _ = fs::remove_file(folder.path().join(name));
        }
        let server = StoreServer::start(open(), address, None).await.unwrap();
        match tokio::time::timeout(Duration::from_secs(20), watch.next()).await.unwrap() {
            Some(Err(StoreError::WentBack { seen, now })) => assert_ne!(seen.store_id, now.store_id),
            other => panic!("{other:?}"),
        }
        assert!(matches!(store.read(b"/").await, Err(StoreError::WentBack { .. })));
        server.stop().await;
    });
}

#[test]
fn the_server_of_the_embedded_store_wants_its_token() {
    block_on(async {
        let address = "127.0.0.1:0".parse().unwrap();
        let embedded = EmbeddedStore::in_memory().unwrap();
        let server = StoreServer::start(embedded, address, Some("right".to_owned())).await.unwrap();
        for access in [Access::Open, Access::Token("wrong".to_owned()), Access::Token(String::new())] {
            let mut options = EtcdOptions::new(vec![server.endpoint()]);
            options.access = access.clone();
            let store = EtcdStore::new(options).unwrap();
            let error = store.read(b"/").await.unwrap_err();
            assert!(matches!(error, StoreError::AuthRefused { .. }), "{access:?}: {error:?}");
            let error = store.compare_and_set(b"/a", 0, None, None).await.unwrap_err();
            assert!(matches!(error, StoreError::AuthRefused { .. }), "{access:?}: {error:?}");
            let mut watch = store.watch(b"/", 1).unwrap();
            assert!(matches!(watch.next().await, Some(Err(StoreError::AuthRefused { .. }))));
        }
        let second = StoreServer::start(EmbeddedStore::in_memory().unwrap(), server.address(), None).await;
        assert!(second.unwrap_err().to_string().contains("listen on 127.0.0.1"));
        server.stop().await;
    });
}

/// The stop waited for it for as long as it was stopped itself.
#[test]
fn a_server_does_not_wait_long_for_a_client_that_says_nothing_any_more() {
    let folder = tempfile::tempdir().unwrap();
    let client = block_on(async {
        let store = EmbeddedStore::open(folder.path(), None).unwrap();
        let server = StoreServer::start(store, "127.0.0.1:0".parse().unwrap(), None).await.unwrap();
        let mut client = std::net::TcpStream::connect(server.address()).unwrap();
        // The beginning of HTTP/2, with settings as usual.
        client.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
        client.read_exact(&mut [0; 9]).unwrap();
        tokio::time::timeout(Duration::from_secs(20), server.stop()).await.unwrap();
        client
    });
    EmbeddedStore::open(folder.path(), None).unwrap();
    drop(client);
}

/// Another program, which answers as one does that has none of etcd's methods.
async fn other_service(address: SocketAddr) -> tokio::task::JoinHandle<()> {
    let listener = tokio::net::TcpListener::bind(address).await.unwrap();
    let service = tower::service_fn(|_: http::Request<tonic::body::Body>| async {
        let status = tonic::Status::unimplemented("unknown service etcdserverpb.KV");
        Ok::<http::Response<tonic::body::Body>, Infallible>(status.into_http())
    });
    let incoming = tonic::transport::server::TcpIncoming::from(listener);
    tokio::spawn(async move {
        let _ = tonic::transport::Server::builder().serve_with_incoming(service, incoming).await;
    })
}

/// The connection to it was made anew without a word, and each read failed though the other member was well.
#[test]
fn a_member_whose_port_another_service_has_is_left() {
    block_on(async {
        let embedded = EmbeddedStore::in_memory().unwrap();
        let any = "127.0.0.1:0".parse().unwrap();
        let first = StoreServer::start(embedded.clone(), any, None).await.unwrap();
        let second = StoreServer::start(embedded, any, None).await.unwrap();
        let address = first.address();
        let endpoints = vec![first.endpoint(), second.endpoint()];
        let store = EtcdStore::new(EtcdOptions::new(endpoints)).unwrap();
        let lease = store.lease_grant(60).await.unwrap().id;
        first.stop().await;
        let other = other_service(address).await;
        set(&store, "/a", "1").await;
        assert!(get(&store, "/a").await.is_some());
        store.lease_keep_alive(lease).await.unwrap();
        second.stop().await;
        let error = store.read(b"/").await.unwrap_err();
        assert!(error.is_passing(), "the second may come back: {error:?}");
        other.abort();
    });
}

/// A lease was given up at once, though the other member would have kept it.
#[test]
fn a_token_that_is_refused_while_the_other_member_is_away_may_count_there() {
    block_on(async {
        let embedded = EmbeddedStore::in_memory().unwrap();
        let any = "127.0.0.1:0".parse().unwrap();
        let right = || Some("right".to_owned());
        let first = StoreServer::start(embedded.clone(), any, right()).await.unwrap();
        let address = first.address();
        let away: SocketAddr = format!("127.0.0.1:{}", free_port()).parse().unwrap();
        let mut options = EtcdOptions::new(vec![first.endpoint(), format!("http://{away}")]);
        options.access = Access::Token("right".to_owned());
        let store = EtcdStore::new(options).unwrap();
        let lease = store.lease_grant(60).await.unwrap().id;
        first.stop().await;
        let first = StoreServer::start(embedded.clone(), address, Some("other".to_owned())).await.unwrap();
        let error = store.lease_keep_alive(lease).await.unwrap_err();
        assert!(error.is_passing() && error.to_string().contains("token is missing or wrong"), "{error:?}");
        let second = StoreServer::start(embedded, away, right()).await.unwrap();
        store.lease_keep_alive(lease).await.unwrap();
        first.stop().await;
        second.stop().await;
    });
}

#[test]
fn a_folder_has_one_process_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(folder.path(), None).unwrap();
    let error = EmbeddedStore::open(folder.path(), None).err().unwrap();
    assert!(matches!(error, StoreError::InUse { .. }), "{error:?}");
    drop(store);
    EmbeddedStore::open(folder.path(), None).unwrap();
    // Not made anew beside what it was.
    fs::remove_file(folder.path().join("store.log")).unwrap();
    let error = EmbeddedStore::open(folder.path(), None).err().unwrap();
    assert!(matches!(&error, StoreError::Damaged { previous: Some(_), .. }), "{error:?}");
    let advice = error.to_string();
    assert!(advice.contains("are lost") && advice.contains("delete cluster.json"), "what it costs: {advice}");
    fs::remove_file(folder.path().join("store.previous.log")).unwrap();
    EmbeddedStore::open(folder.path(), None).unwrap();
    let nested = folder.path().join("a/b/c");
    EmbeddedStore::open(&nested, None).unwrap();
}

#[test]
fn a_slow_reader_of_a_watch_stops_nobody_and_misses_nothing() {
    let Some(cluster) = Cluster::start(1, &[]) else { return };
    block_on(async {
        let store = cluster.store();
        let first = set(&store, "/a", "0").await;
        let mut slow = store.watch(b"/", first).unwrap();
        let large = "x".repeat(200_000);
        let mut last = first;
        for _ in 0..150 {
            last = set(&store, "/a", &large).await;
        }
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(get(&store, "/a").await.unwrap().mod_revision, last);
        for revision in first..=last {
            match slow.next().await {
                Some(Ok(Watched::Revision(told))) => assert_eq!(told.revision, revision),
                other => panic!("{other:?}"),
            }
        }
    });
}
