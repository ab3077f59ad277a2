//! Writers, a watch and an election through kills of the store.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use coquina_store::{
    Access, EmbeddedStore, EtcdOptions, EtcdStore, Event, Store, StoreError, StoreServer, Watched,
    create_token, read_token,
};

use crate::conformance::{get, set};
use crate::etcd::{Cluster, free_port};

const WRITERS: usize = 4;

/// A storm under way.
#[derive(Default)]
struct Storm {
    stop: AtomicBool,
    answered: AtomicUsize,
}

impl Storm {
    /// Lets it go on for so long, and until so many more changes were answered, however slow the machine is.
    fn go_on(&self, at_least: Duration, more: usize) {
        let (begin, before) = (Instant::now(), self.answered.load(Ordering::Relaxed));
        std::thread::sleep(at_least);
        while self.answered.load(Ordering::Relaxed) < before + more {
            assert!(begin.elapsed() < Duration::from_secs(60), "nothing is answered");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// What a storm has come to.
#[derive(Debug, Default)]
struct Outcome {
    answered: usize,
    unknown: usize,
    failed: usize,
    resets: usize,
    told: usize,
}

/// Counts a key up from several writers, one watching, until it is told to stop. Every value that was answered has to be
/// told exactly once and in order, whatever happens to the store meanwhile.
async fn storm(store: Arc<dyn Store>, storm: Arc<Storm>) -> Outcome {
    let key = "/storm/counter";
    let first = set(&*store, key, "0").await;
    let watcher = tokio::spawn(watch(store.clone(), first));
    let writers: Vec<_> =
        (0..WRITERS).map(|_| tokio::spawn(write(store.clone(), key, storm.clone()))).collect();
    let mut outcome = Outcome::default();
    let mut answered = Vec::new();
    for writer in writers {
        let (own, unknown, failed) = writer.await.unwrap();
        answered.extend(own);
        outcome.unknown += unknown;
        outcome.failed += failed;
    }
    let last = loop {
        match store.read(key.as_bytes()).await {
            Ok(snapshot) => break snapshot.items[0].clone(),
            Err(error) => assert!(error.is_passing(), "{error}"),
        }
    };
    let end: u64 = String::from_utf8(last.value).unwrap().parse().unwrap();
    // An unknown change may still happen: the end is marked by a value that nobody else writes.
    let marked = mark(&*store, key).await;
    let (told, resets) = watcher.await.unwrap();
    assert!(marked >= last.mod_revision && told.len() as u64 >= end);
    let values: Vec<u64> = told.iter().map(|(value, _)| *value).collect();
    assert_eq!(values, (0..told.len() as u64).collect::<Vec<_>>(), "none lost, none twice");
    assert!(told.is_sorted_by(|before, after| before.1 < after.1));
    answered.sort_unstable();
    for pair in answered.windows(2) {
        assert_ne!(pair[0].0, pair[1].0, "no value was answered to two");
    }
    for (value, revision) in &answered {
        assert_eq!(told[*value as usize].1, *revision, "value {value}");
    }
    outcome.answered = answered.len();
    outcome.resets = resets;
    outcome.told = told.len();
    outcome
}

async fn mark(store: &dyn Store, key: &str) -> u64 {
    loop {
        let snapshot = match store.read(key.as_bytes()).await {
            Ok(snapshot) => snapshot,
            Err(error) if error.is_passing() => continue,
            Err(error) => panic!("{error}"),
        };
        let item = &snapshot.items[0];
        if item.value == b"end" {
            return item.mod_revision;
        }
        let marked =
            store.compare_and_set(key.as_bytes(), item.mod_revision, Some(b"end".to_vec()), None).await;
        match marked {
            Ok(revision) => return revision,
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => assert!(error.is_passing(), "{error}"),
        }
    }
}

/// The values told, with their revisions, up to the mark; and how often all had to be read again.
async fn watch(store: Arc<dyn Store>, first: u64) -> (Vec<(u64, u64)>, usize) {
    let mut told = Vec::new();
    let resets = 0;
    let mut watch = store.watch(b"/storm/", first).unwrap();
    loop {
        let next = tokio::time::timeout(Duration::from_secs(60), watch.next()).await;
        match next.expect("the watch gets on") {
            Some(Ok(Watched::Revision(revision))) => {
                assert_eq!(revision.events.len(), 1);
                let Event::Put(item) = &revision.events[0] else { panic!("{revision:?}") };
                assert_eq!(item.mod_revision, revision.revision);
                if item.value == b"end" {
                    return (told, resets);
                }
                let value = String::from_utf8(item.value.clone()).unwrap().parse().unwrap();
                told.push((value, revision.revision));
            }
            other => panic!("{other:?}"),
        }
    }
}

async fn write(
    store: Arc<dyn Store>,
    key: &'static str,
    storm: Arc<Storm>,
) -> (Vec<(u64, u64)>, usize, usize) {
    let (mut answered, mut unknown, mut failed) = (Vec::new(), 0, 0);
    while !storm.stop.load(Ordering::Relaxed) {
        let item = match store.read(key.as_bytes()).await {
            Ok(snapshot) => snapshot.items[0].clone(),
            Err(error) if error.is_passing() => {
                failed += 1;
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        let value = String::from_utf8(item.value).unwrap().parse::<u64>().unwrap() + 1;
        let text = Some(value.to_string().into_bytes());
        match store.compare_and_set(key.as_bytes(), item.mod_revision, text, None).await {
            Ok(revision) => {
                answered.push((value, revision));
                storm.answered.fetch_add(1, Ordering::Relaxed);
            }
            Err(StoreError::Conflict { .. }) => {}
            Err(StoreError::OutcomeUnknown { .. }) => unknown += 1,
            Err(error) if error.is_passing() => failed += 1,
            Err(error) => panic!("{error}"),
        }
    }
    (answered, unknown, failed)
}

#[test]
fn killed_members_of_etcd_lose_and_repeat_nothing() {
    let Some(mut cluster) = Cluster::start(3, &[]) else { return };
    let under_way = Arc::new(Storm::default());
    let store: Arc<dyn Store> = Arc::new(cluster.store());
    let storming = {
        let (store, under_way) = (store.clone(), under_way.clone());
        std::thread::spawn(move || crate::block_on(storm(store, under_way)))
    };
    let mut leaders = 0;
    for round in 0..6 {
        std::thread::sleep(Duration::from_millis(700));
        let leader = cluster.leader();
        // The leader every other time: then there is no leader for a while.
        let victim = if round % 2 == 0 { leader } else { (leader + 1) % 3 };
        leaders += usize::from(victim == leader);
        cluster.kill(victim);
        std::thread::sleep(Duration::from_millis(700));
        cluster.restart(victim);
    }
    // All at once, as when the power fails.
    (0..3).for_each(|index| cluster.kill(index));
    std::thread::sleep(Duration::from_millis(300));
    (0..3).for_each(|index| cluster.restart(index));
    cluster.wait();
    under_way.go_on(Duration::from_millis(500), 4);
    under_way.stop.store(true, Ordering::Relaxed);
    let outcome = storming.join().unwrap();
    println!("killed 3 of 3 once, and singly 6, {leaders} of them leaders: {outcome:?}");
    assert!(outcome.answered > 20, "{outcome:?}");
}

/// The folder and port of a server that runs in a process of its own, so that it can be killed.
const CHILD_FOLDER: &str = "COQUINA_STORE_TEST_FOLDER";
const CHILD_PORT: &str = "COQUINA_STORE_TEST_PORT";

/// Not a test: the process that [`a_killed_embedded_store_loses_and_repeats_nothing`] kills.
#[test]
#[ignore = "is started by another test"]
fn server_to_be_killed() {
    let Some(folder) = std::env::var_os(CHILD_FOLDER) else { return };
    let port = std::env::var(CHILD_PORT).unwrap();
    crate::block_on(async {
        let folder = Path::new(&folder);
        let store = EmbeddedStore::open(folder, None).unwrap();
        let token = create_token(folder).unwrap();
        let address: SocketAddr = format!("127.0.0.1:{port}").parse().unwrap();
        let _server = StoreServer::start(store, address, Some(token)).await.unwrap();
        std::future::pending::<()>().await;
    });
}

fn start_child(folder: &Path, port: u16) -> Child {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(std::env::current_exe().unwrap());
    command.args(["--exact", "storm::server_to_be_killed", "--ignored"]);
    command.env(CHILD_FOLDER, folder).env(CHILD_PORT, port.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap()
}

#[test]
fn a_killed_embedded_store_loses_and_repeats_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let mut child = start_child(folder.path(), port);
    let begin = Instant::now();
    let token = loop {
        match read_token(folder.path()) {
            Ok(token) => break token,
            Err(error) => assert!(begin.elapsed() < Duration::from_secs(20), "{error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let mut options = EtcdOptions::new(vec![format!("http://127.0.0.1:{port}")]);
    options.access = Access::Token(token);
    let store: Arc<dyn Store> = Arc::new(EtcdStore::new(options.clone()).unwrap());
    crate::block_on(async {
        while store.read(b"/").await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // Kept by nobody, and still there after restarts, which give it its time again.
        let lease = store.lease_grant(30).await.unwrap();
        store.compare_and_set(b"/leased", 0, Some(b"x".to_vec()), Some(lease.id)).await.unwrap();
    });
    let under_way = Arc::new(Storm::default());
    let storming = {
        let (store, under_way) = (store.clone(), under_way.clone());
        std::thread::spawn(move || crate::block_on(storm(store, under_way)))
    };
    // A connection of its own: it ends with the runtime.
    let wait_for_answer = || {
        let begin = Instant::now();
        let store = EtcdStore::new(options.clone()).unwrap();
        crate::block_on(async {
            while store.read(b"/").await.is_err() {
                assert!(begin.elapsed() < Duration::from_secs(60), "the store does not come back");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
    };
    for round in 0..8 {
        // Twice it may not have got far in starting.
        if round % 4 != 3 {
            wait_for_answer();
            under_way.go_on(Duration::from_millis(400), 3);
        } else {
            std::thread::sleep(Duration::from_millis(400));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        child = start_child(folder.path(), port);
    }
    wait_for_answer();
    under_way.go_on(Duration::from_millis(600), 4);
    under_way.stop.store(true, Ordering::Relaxed);
    let outcome = storming.join().unwrap();
    println!("killed 8 times: {outcome:?}");
    assert!(outcome.answered > 20, "{outcome:?}");
    crate::block_on(async { assert!(get(&*store, "/leased").await.is_some()) });
    child.kill().unwrap();
    child.wait().unwrap();
}
