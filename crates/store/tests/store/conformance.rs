//! What every store does alike. Each case has keys of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use coquina_store::{
    Compare, Event, KeyValue, LeaseId, LeaseKeeper, Operation, Revision, Store, StoreError, Transaction,
    Watch, Watched, campaign, observe,
};

/// Longest wait for something that happens soon.
const SOON: Duration = Duration::from_secs(20);

type Shared = Arc<dyn Store>;

pub async fn run(store: Shared) {
    macro_rules! cases {
        ($($case:ident),* $(,)?) => {
            $(
                println!("{}", stringify!($case));
                $case(store.clone(), concat!("/", stringify!($case), "/")).await;
            )*
        };
    }
    cases!(
        keys_carry_the_revisions_of_their_changes,
        a_change_on_an_old_state_conflicts,
        a_transaction_happens_whole_or_not_at_all,
        a_change_may_rest_on_all_keys_of_a_prefix,
        a_watch_tells_every_revision_once_and_whole,
        a_watch_may_begin_in_the_future,
        forgotten_history_resets_a_watch,
        a_lease_ends_with_all_its_keys_at_once,
        a_lease_lives_while_it_is_kept,
        a_key_put_without_its_lease_stays,
        the_first_candidate_leads_until_it_resigns,
        a_leader_whose_lease_ended_is_fenced,
        wrong_requests_are_refused,
        many_keys_are_read_at_one_revision,
        a_storm_on_one_key_loses_nothing,
    );
}

pub fn put(key: &str, value: &str, lease: Option<LeaseId>) -> Operation {
    Operation::Put { key: key.into(), value: value.into(), lease }
}

pub async fn set(store: &dyn Store, key: &str, value: &str) -> u64 {
    let transaction = Transaction { compares: Vec::new(), operations: vec![put(key, value, None)] };
    store.transaction(transaction).await.unwrap()
}

pub async fn get(store: &dyn Store, key: &str) -> Option<KeyValue> {
    let snapshot = store.read(key.as_bytes()).await.unwrap();
    snapshot.items.into_iter().find(|item| item.key == key.as_bytes())
}

pub async fn next(watch: &mut Watch) -> Revision {
    match tokio::time::timeout(SOON, watch.next()).await.expect("the watch tells something soon") {
        Some(Ok(Watched::Revision(revision))) => revision,
        other => panic!("{other:?}"),
    }
}

fn values(revision: &Revision) -> Vec<(String, Option<String>)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let value = |event: &Event| match event {
        Event::Put(item) => (text(&item.key), Some(text(&item.value))),
        Event::Delete { key } => (text(key), None),
    };
    revision.events.iter().map(value).collect()
}

async fn keys_carry_the_revisions_of_their_changes(store: Shared, prefix: &str) {
    let before = store.read(prefix.as_bytes()).await.unwrap();
    assert!(before.items.is_empty());
    let (a, b) = (format!("{prefix}a"), format!("{prefix}b"));
    let first = set(&*store, &a, "1").await;
    assert_eq!(first, before.revision + 1);
    let second = set(&*store, &b, "").await;
    let third = set(&*store, &a, "3").await;
    assert_eq!((second, third), (first + 1, first + 2));
    let snapshot = store.read(prefix.as_bytes()).await.unwrap();
    let item = |key: &str, value: &str, create_revision, mod_revision| KeyValue {
        key: key.into(),
        value: value.into(),
        create_revision,
        mod_revision,
        lease: None,
    };
    assert_eq!(snapshot.items, [item(&a, "3", first, third), item(&b, "", second, second)]);
    assert_eq!(snapshot.revision, third);
    assert_eq!(store.identity().unwrap().revision, third);
    store.compare_and_set(a.as_bytes(), third, None, None).await.unwrap();
    let again = set(&*store, &a, "5").await;
    assert_eq!(get(&*store, &a).await, Some(item(&a, "5", again, again)));
}

async fn a_change_on_an_old_state_conflicts(store: Shared, prefix: &str) {
    let key = format!("{prefix}key");
    let cas = |expected, value: Option<&str>| {
        store.compare_and_set(key.as_bytes(), expected, value.map(Into::into), None)
    };
    let first = cas(0, Some("1")).await.unwrap();
    for (expected, value) in [(0, Some("x")), (first + 1, Some("x")), (first - 1, None)] {
        match cas(expected, value).await {
            Err(error @ StoreError::Conflict { .. }) => {
                let text = error.to_string();
                assert!(text.contains(&key) && text.contains("read again"), "{text}");
                let StoreError::Conflict { keys, current } = error else { unreachable!() };
                assert_eq!(keys, [key.as_bytes()]);
                assert_eq!((current.len(), current[0].mod_revision), (1, first));
                assert_eq!(current[0].value, b"1");
            }
            other => panic!("{other:?}"),
        }
    }
    let second = cas(first, Some("2")).await.unwrap();
    assert_eq!(second, first + 1, "conflicts change nothing");
    assert_eq!(cas(second, None).await.unwrap(), second + 1);
    assert!(
        matches!(cas(second, None).await, Err(StoreError::Conflict { current, .. }) if current.is_empty())
    );
    // Removing what is not there changes nothing.
    assert_eq!(cas(0, None).await.unwrap(), second + 1);
}

async fn a_transaction_happens_whole_or_not_at_all(store: Shared, prefix: &str) {
    let keys: Vec<String> = (0..4).map(|index| format!("{prefix}{index}")).collect();
    let first = set(&*store, &keys[0], "0").await;
    let second = set(&*store, &keys[1], "1").await;
    let compares = |third: u64| {
        vec![
            Compare::ModRevision { key: keys[0].clone().into(), revision: first },
            Compare::CreateRevision { key: keys[1].clone().into(), revision: second },
            Compare::ModRevision { key: keys[2].clone().into(), revision: third },
        ]
    };
    let operations = vec![
        put(&keys[3], "new", None),
        put(&keys[0], "changed", None),
        Operation::Delete { key: keys[1].clone().into() },
        Operation::Delete { key: keys[2].clone().into() },
    ];
    let wrong = Transaction { compares: compares(7), operations: operations.clone() };
    match store.transaction(wrong).await {
        Err(StoreError::Conflict { keys: compared, current }) => {
            assert_eq!((compared.len(), current.len()), (3, 2));
        }
        other => panic!("{other:?}"),
    }
    let right = Transaction { compares: compares(0), operations };
    let revision = store.transaction(right).await.unwrap();
    assert_eq!(revision, second + 1);
    let items = store.read(prefix.as_bytes()).await.unwrap().items;
    let found: Vec<(&[u8], u64)> =
        items.iter().map(|item| (item.key.as_slice(), item.mod_revision)).collect();
    assert_eq!(found, [(keys[0].as_bytes(), revision), (keys[3].as_bytes(), revision)]);
}

async fn a_change_may_rest_on_all_keys_of_a_prefix(store: Shared, prefix: &str) {
    let (under, beside) = (format!("{prefix}many/"), format!("{prefix}other"));
    let attempt = |revision: u64| {
        let compares = vec![Compare::NoneAfter { prefix: under.clone().into(), revision }];
        store.transaction(Transaction { compares, operations: vec![put(&beside, "x", None)] })
    };
    let mut last = attempt(0).await.expect("nothing is there");
    // More than a transaction could name.
    for index in 0..150 {
        last = set(&*store, &format!("{under}{index}"), "1").await;
    }
    let beside_changed = attempt(last).await.unwrap();
    attempt(last).await.expect("what lies beside does not count");
    match attempt(last - 1).await {
        Err(StoreError::Conflict { keys, current }) => assert_eq!((keys.len(), current.len()), (0, 0)),
        other => panic!("{other:?}"),
    }
    set(&*store, &format!("{under}7"), "2").await;
    assert!(matches!(attempt(beside_changed).await, Err(StoreError::Conflict { .. })));
}

async fn a_watch_tells_every_revision_once_and_whole(store: Shared, prefix: &str) {
    let (a, b) = (format!("{prefix}a"), format!("{prefix}b"));
    let first = set(&*store, &a, "1").await;
    let mut early = store.watch(prefix.as_bytes(), first).unwrap();
    let mut late = store.watch(prefix.as_bytes(), first + 1).unwrap();
    set(&*store, "/elsewhere", "x").await;
    let many = (0..100).map(|index| put(&format!("{prefix}many/{index:03}"), &"v".repeat(9000), None));
    let mut operations: Vec<Operation> = many.collect();
    operations.push(put(&b, "2", None));
    operations.push(Operation::Delete { key: a.clone().into() });
    let whole = store.transaction(Transaction { compares: Vec::new(), operations }).await.unwrap();
    let last = set(&*store, &b, "3").await;
    assert_eq!(values(&next(&mut early).await), [(a.clone(), Some("1".to_owned()))]);
    for watch in [&mut early, &mut late] {
        let revision = next(watch).await;
        assert_eq!((revision.revision, revision.events.len()), (whole, 102));
        let values = values(&revision);
        assert_eq!(values[99].0, format!("{prefix}many/099"));
        assert_eq!(values[100..], [(b.clone(), Some("2".to_owned())), (a.clone(), None)]);
        let revision = next(watch).await;
        assert_eq!((revision.revision, values_of_one(&revision)), (last, "3".to_owned()));
    }
}

fn values_of_one(revision: &Revision) -> String {
    let values = values(revision);
    assert_eq!(values.len(), 1);
    values[0].1.clone().unwrap()
}

async fn a_watch_may_begin_in_the_future(store: Shared, prefix: &str) {
    let key = format!("{prefix}key");
    let now = store.read(prefix.as_bytes()).await.unwrap().revision;
    let mut watch = store.watch(prefix.as_bytes(), now + 3).unwrap();
    for value in 1..=4 {
        set(&*store, &key, &value.to_string()).await;
    }
    assert_eq!(values_of_one(&next(&mut watch).await), "3");
    assert_eq!(values_of_one(&next(&mut watch).await), "4");
}

async fn forgotten_history_resets_a_watch(store: Shared, prefix: &str) {
    let key = format!("{prefix}key");
    let first = set(&*store, &key, "1").await;
    for value in 2..=5 {
        set(&*store, &key, &value.to_string()).await;
    }
    store.compare_and_set(key.as_bytes(), first + 4, None, None).await.unwrap();
    store.compact(first + 3).await.unwrap();
    store.compact(first + 2).await.unwrap();
    for from in [first, first + 3] {
        let mut watch = store.watch(prefix.as_bytes(), from).unwrap();
        match tokio::time::timeout(SOON, watch.next()).await.unwrap() {
            Some(Ok(Watched::Reset { oldest_revision })) => assert_eq!(oldest_revision, first + 4),
            other => panic!("{other:?}"),
        }
        assert!(watch.next().await.is_none());
    }
    let mut watch = store.watch(prefix.as_bytes(), first + 4).unwrap();
    assert_eq!(values_of_one(&next(&mut watch).await), "5");
    assert_eq!(values(&next(&mut watch).await), [(key, None)]);
    assert!(matches!(store.compact(first + 1000).await, Err(StoreError::Invalid { .. })));
}

async fn a_lease_ends_with_all_its_keys_at_once(store: Shared, prefix: &str) {
    let asked = Instant::now();
    let lease = store.lease_grant(2).await.unwrap();
    assert!(lease.seconds >= 2);
    let now = store.read(prefix.as_bytes()).await.unwrap().revision;
    let mut watch = store.watch(prefix.as_bytes(), now + 1).unwrap();
    for name in ["a", "b", "c"] {
        let operations = vec![put(&format!("{prefix}{name}"), "x", Some(lease.id))];
        store.transaction(Transaction { compares: Vec::new(), operations }).await.unwrap();
        assert_eq!(next(&mut watch).await.events.len(), 1);
    }
    assert_eq!(get(&*store, &format!("{prefix}a")).await.unwrap().lease, Some(lease.id));
    let ended = next(&mut watch).await;
    assert!(asked.elapsed() >= Duration::from_secs(lease.seconds), "not before its time");
    assert_eq!(ended.events.len(), 3);
    assert!(ended.events.iter().all(|event| matches!(event, Event::Delete { .. })));
    assert!(store.read(prefix.as_bytes()).await.unwrap().items.is_empty());
    let lost = StoreError::LeaseLost { lease: lease.id };
    assert_eq!(store.lease_keep_alive(lease.id).await, Err(lost.clone()));
    let operations = vec![put(&format!("{prefix}a"), "x", Some(lease.id))];
    assert_eq!(store.transaction(Transaction { compares: Vec::new(), operations }).await, Err(lost));
    assert_eq!(store.lease_revoke(lease.id).await, Ok(()));
}

async fn a_lease_lives_while_it_is_kept(store: Shared, prefix: &str) {
    let key = format!("{prefix}key");
    let mut keeper = LeaseKeeper::grant(store.clone(), 2).await.unwrap();
    let operations = vec![put(&key, "x", Some(keeper.lease()))];
    store.transaction(Transaction { compares: Vec::new(), operations }).await.unwrap();
    tokio::time::sleep(Duration::from_millis(4500)).await;
    assert_eq!(keeper.lost_already(), None);
    assert!(get(&*store, &key).await.is_some());
    let lease = keeper.lease();
    store.lease_revoke(lease).await.unwrap();
    assert!(get(&*store, &key).await.is_none());
    let lost = tokio::time::timeout(SOON, keeper.lost()).await.unwrap();
    assert_eq!(lost, StoreError::LeaseLost { lease });
    assert_eq!(keeper.lost_already(), Some(lost));
}

async fn a_key_put_without_its_lease_stays(store: Shared, prefix: &str) {
    let (kept, gone) = (format!("{prefix}kept"), format!("{prefix}gone"));
    let one = store.lease_grant(60).await.unwrap().id;
    let other = store.lease_grant(60).await.unwrap().id;
    assert_ne!(one, other);
    let operations = vec![put(&kept, "1", Some(one)), put(&gone, "1", Some(one))];
    store.transaction(Transaction { compares: Vec::new(), operations }).await.unwrap();
    set(&*store, &kept, "2").await;
    let operations = vec![put(&gone, "2", Some(other))];
    store.transaction(Transaction { compares: Vec::new(), operations }).await.unwrap();
    let before = store.read(prefix.as_bytes()).await.unwrap().revision;
    store.lease_revoke(one).await.unwrap();
    let after = store.read(prefix.as_bytes()).await.unwrap();
    assert_eq!(
        (after.revision, after.items.len()),
        (before, 2),
        "a lease without keys ends without a change"
    );
    store.lease_revoke(other).await.unwrap();
    let after = store.read(prefix.as_bytes()).await.unwrap();
    assert_eq!((after.revision, after.items.len()), (before + 1, 1));
    assert_eq!(after.items[0].lease, None);
}

async fn the_first_candidate_leads_until_it_resigns(store: Shared, prefix: &str) {
    let name = format!("{prefix}leader");
    let mut observer = observe(store.clone(), name.as_bytes());
    assert_eq!(observer.next().await.unwrap(), None);
    let leases = [store.lease_grant(60).await.unwrap().id, store.lease_grant(60).await.unwrap().id];
    let first = campaign(&*store, name.as_bytes(), b"one".to_vec(), leases[0]).await.unwrap();
    let leader = observer.next().await.unwrap().unwrap();
    assert_eq!((leader.value, leader.create_revision), (b"one".to_vec(), first.create_revision));
    // Again, as after a lost answer: the claim stays what it was.
    let again = campaign(&*store, name.as_bytes(), b"one".to_vec(), leases[0]).await.unwrap();
    assert_eq!(again.create_revision, first.create_revision);
    let waiting = {
        let (store, name) = (store.clone(), name.clone());
        tokio::spawn(async move { campaign(&*store, name.as_bytes(), b"two".to_vec(), leases[1]).await })
    };
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!waiting.is_finished());
    first.resign(&*store).await.unwrap();
    let second = tokio::time::timeout(SOON, waiting).await.unwrap().unwrap().unwrap();
    assert!(second.create_revision > first.create_revision);
    let told = tokio::time::timeout(SOON, async {
        loop {
            if let Some(leader) = observer.next().await.unwrap().filter(|leader| leader.value == b"two") {
                return leader;
            }
        }
    });
    assert_eq!(told.await.unwrap().create_revision, second.create_revision);
    first.resign(&*store).await.unwrap();
    assert!(get(&*store, &String::from_utf8(second.key).unwrap()).await.is_some(), "not another's claim");
}

async fn a_leader_whose_lease_ended_is_fenced(store: Shared, prefix: &str) {
    let (name, key) = (format!("{prefix}leader"), format!("{prefix}map"));
    let lease = store.lease_grant(60).await.unwrap().id;
    let old = campaign(&*store, name.as_bytes(), b"old".to_vec(), lease).await.unwrap();
    let write = |fence: Compare, value: &str| {
        store.transaction(Transaction { compares: vec![fence], operations: vec![put(&key, value, None)] })
    };
    write(old.fence(), "old").await.unwrap();
    store.lease_revoke(lease).await.unwrap();
    let lost = campaign(&*store, name.as_bytes(), b"old".to_vec(), lease).await;
    assert_eq!(lost, Err(StoreError::LeaseLost { lease }));
    let lease = store.lease_grant(60).await.unwrap().id;
    let new = campaign(&*store, name.as_bytes(), b"new".to_vec(), lease).await.unwrap();
    assert!(new.create_revision > old.create_revision);
    assert!(matches!(write(old.fence(), "late").await, Err(StoreError::Conflict { .. })));
    write(new.fence(), "new").await.unwrap();
    assert_eq!(get(&*store, &key).await.unwrap().value, b"new");
    // A waiting candidate whose lease ends is told.
    let other = store.lease_grant(60).await.unwrap().id;
    let waiting = campaign(&*store, name.as_bytes(), b"third".to_vec(), other);
    let ended = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        store.lease_revoke(other).await
    };
    let (waited, ended) = tokio::join!(tokio::time::timeout(SOON, waiting), ended);
    ended.unwrap();
    assert_eq!(waited.unwrap(), Err(StoreError::LeaseLost { lease: other }));
}

async fn wrong_requests_are_refused(store: Shared, prefix: &str) {
    let key = format!("{prefix}key");
    let invalid = |operations: Vec<Operation>| {
        let store = store.clone();
        async move {
            let refused = store.transaction(Transaction { compares: Vec::new(), operations }).await;
            assert!(matches!(refused, Err(StoreError::Invalid { .. })), "{refused:?}");
        }
    };
    let before = store.read(prefix.as_bytes()).await.unwrap().revision;
    invalid(vec![put("", "x", None)]).await;
    invalid(vec![put(&"k".repeat(5000), "x", None)]).await;
    invalid(vec![put(&key, "1", None), put(&key, "2", None)]).await;
    invalid(vec![put(&key, "1", None), Operation::Delete { key: key.clone().into() }]).await;
    invalid((0..129).map(|index| put(&format!("{key}{index}"), "x", None)).collect()).await;
    invalid(vec![put(&key, &"x".repeat((1 << 20) + 1), None)]).await;
    assert!(matches!(store.read(b"").await, Err(StoreError::Invalid { .. })));
    assert!(matches!(store.watch(b"", 1), Err(StoreError::Invalid { .. })));
    assert!(matches!(store.lease_grant(0).await, Err(StoreError::Invalid { .. })));
    assert!(matches!(store.lease_grant(u64::MAX).await, Err(StoreError::Invalid { .. })));
    let after = store.read(prefix.as_bytes()).await.unwrap();
    assert_eq!((after.revision, after.items.len()), (before, 0));
    let largest: Vec<Operation> =
        (0..128).map(|index| put(&format!("{prefix}{index:03}"), &"x".repeat(8000), None)).collect();
    store.transaction(Transaction { compares: Vec::new(), operations: largest }).await.unwrap();
    assert_eq!(store.read(prefix.as_bytes()).await.unwrap().items.len(), 128);
    assert!(matches!(
        store.lease_keep_alive(LeaseId(0x0fff_ffff_ffff_ffff)).await,
        Err(StoreError::LeaseLost { .. })
    ));
}

async fn many_keys_are_read_at_one_revision(store: Shared, prefix: &str) {
    for batch in 0..8 {
        let operations =
            (0..100).map(|index| put(&format!("{prefix}{:04}", batch * 100 + index), "0", None)).collect();
        store.transaction(Transaction { compares: Vec::new(), operations }).await.unwrap();
    }
    // The first and the last key always change together.
    let changing = {
        let (store, prefix) = (store.clone(), prefix.to_owned());
        tokio::spawn(async move {
            for value in 1..=60 {
                let value = value.to_string();
                let operations = vec![
                    put(&format!("{prefix}0000"), &value, None),
                    put(&format!("{prefix}0799"), &value, None),
                ];
                store.transaction(Transaction { compares: Vec::new(), operations }).await.unwrap();
            }
        })
    };
    while !changing.is_finished() {
        let snapshot = store.read(prefix.as_bytes()).await.unwrap();
        assert_eq!(snapshot.items.len(), 800);
        assert!(snapshot.items.is_sorted_by(|before, after| before.key < after.key));
        assert_eq!(snapshot.items[0].value, snapshot.items[799].value);
        assert!(snapshot.items.iter().all(|item| item.mod_revision <= snapshot.revision));
    }
    changing.await.unwrap();
}

async fn a_storm_on_one_key_loses_nothing(store: Shared, prefix: &str) {
    const WRITERS: u64 = 6;
    const EACH: u64 = 12;
    let key = format!("{prefix}counter");
    let first = set(&*store, &key, "0").await;
    let mut watch = store.watch(prefix.as_bytes(), first).unwrap();
    let writers: Vec<_> = (0..WRITERS)
        .map(|_| {
            let (store, key) = (store.clone(), key.clone());
            tokio::spawn(async move {
                let mut done = 0;
                while done < EACH {
                    let item = get(&*store, &key).await.unwrap();
                    let value: u64 = String::from_utf8(item.value).unwrap().parse().unwrap();
                    let value = (value + 1).to_string().into_bytes();
                    match store.compare_and_set(key.as_bytes(), item.mod_revision, Some(value), None).await {
                        Ok(_) => done += 1,
                        Err(StoreError::Conflict { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            })
        })
        .collect();
    let mut revision = 0;
    for value in 0..=WRITERS * EACH {
        let told = next(&mut watch).await;
        assert!(told.revision > revision);
        revision = told.revision;
        assert_eq!(values_of_one(&told), value.to_string());
    }
    for writer in writers {
        writer.await.unwrap();
    }
}
