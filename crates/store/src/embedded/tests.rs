//! What the embedded store keeps through a kill at any byte and a power cut, and what it does when its disk fails.

use std::sync::{Arc, Mutex};

use super::*;
use crate::api::KeyValue;

/// A disk in memory that can be told to fail.
#[derive(Clone, Default)]
struct Disk {
    state: Arc<Mutex<DiskState>>,
}

/// How the next sync ends.
#[derive(Clone, Copy, Default)]
enum Sync {
    #[default]
    Done,
    /// The process is killed before it. What was written stays in the kernel's memory, to be synced some time.
    Killed,
    /// With an error, after which what was written counts as clean and never reaches the disk.
    Failed,
}

#[derive(Default)]
struct DiskState {
    content: Option<Vec<u8>>,
    /// What a power cut leaves of the content.
    durable: Vec<u8>,
    /// Where the part of the content begins that a sync has to write.
    dirty_from: Option<usize>,
    sync: Sync,
    bytes_max: Option<usize>,
    prepared: Vec<u8>,
    /// Length of the content after each write that was answered.
    durable_bytes: Vec<usize>,
    steps: usize,
    fail_at: Option<usize>,
    prepares_to_fail: usize,
    /// Nothing more can be written, a part of it excepted.
    is_full: bool,
    /// The next ones put the new content in place and cannot say that it is durable.
    publishes_to_fail: usize,
}

impl Disk {
    fn of(content: Vec<u8>) -> Self {
        let disk = Disk::default();
        disk.state.lock().unwrap().durable.clone_from(&content);
        disk.state.lock().unwrap().content = Some(content);
        disk
    }

    fn set_sync(&self, sync: Sync) {
        self.state.lock().unwrap().sync = sync;
    }

    fn cut_power(&self) {
        let mut state = self.state.lock().unwrap();
        (state.content, state.dirty_from) = (Some(state.durable.clone()), None);
        state.sync = Sync::Done;
    }

    fn content(&self) -> Vec<u8> {
        self.state.lock().unwrap().content.clone().unwrap()
    }

    fn set_full(&self, is_full: bool) {
        self.state.lock().unwrap().is_full = is_full;
    }

    fn step(&self) -> Result<(), StoreError> {
        let mut state = self.state.lock().unwrap();
        state.steps += 1;
        if state.is_full {
            return Err(StoreError::io("write", Path::new("disk"))(std::io::ErrorKind::StorageFull.into()));
        }
        if state.fail_at.is_some_and(|fail_at| state.steps >= fail_at) {
            return Err(StoreError::io("write", Path::new("disk"))(std::io::Error::other("broken")));
        }
        Ok(())
    }
}

impl Medium for Disk {
    fn load(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.state.lock().unwrap().content.clone())
    }

    fn check_length(&self, bytes: usize) -> Result<(), StoreError> {
        match self.state.lock().unwrap().bytes_max.is_some_and(|most| bytes > most) {
            true => Err(StoreError::io("write", Path::new("disk"))(std::io::Error::other("too long"))),
            false => Ok(()),
        }
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        let failed = self.step();
        let mut state = self.state.lock().unwrap();
        // A write that fails has written a part.
        let written = if failed.is_err() { &bytes[..bytes.len() / 2] } else { bytes };
        let mut content = state.content.take().unwrap();
        let from = state.dirty_from.unwrap_or(content.len());
        content.extend_from_slice(written);
        let length = content.len();
        state.dirty_from = Some(from);
        let error = || StoreError::io("sync", Path::new("disk"))(std::io::Error::other("broken"));
        let result = match state.sync {
            _ if failed.is_err() => failed,
            Sync::Killed => Err(error()),
            Sync::Failed => {
                state.dirty_from = None;
                Err(error())
            }
            Sync::Done => {
                state.durable.resize(length, 0);
                state.durable[from..].copy_from_slice(&content[from..]);
                state.dirty_from = None;
                state.durable_bytes.push(length);
                Ok(())
            }
        };
        state.content = Some(content);
        result
    }

    fn prepare(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.step()?;
        let mut state = self.state.lock().unwrap();
        // A process that was killed does nothing more.
        if matches!(state.sync, Sync::Killed) {
            return Err(StoreError::io("write", Path::new("disk"))(std::io::Error::other("broken")));
        }
        if state.prepares_to_fail > 0 {
            state.prepares_to_fail -= 1;
            return Err(StoreError::io("write", Path::new("disk"))(std::io::ErrorKind::StorageFull.into()));
        }
        state.prepared = bytes.to_vec();
        Ok(())
    }

    fn publish(&mut self) -> Result<(), StoreError> {
        self.step()?;
        let mut state = self.state.lock().unwrap();
        let prepared = std::mem::take(&mut state.prepared);
        (state.content, state.dirty_from) = (Some(prepared.clone()), None);
        if state.publishes_to_fail > 0 {
            state.publishes_to_fail -= 1;
            return Err(StoreError::io("sync", Path::new("disk"))(std::io::Error::other("broken")));
        }
        state.durable = prepared;
        state.durable_bytes.clear();
        Ok(())
    }

    fn name(&self) -> String {
        "disk".to_owned()
    }

    fn previous(&self) -> Option<String> {
        None
    }
}

fn open(disk: &Disk) -> Result<EmbeddedStore, StoreError> {
    EmbeddedStore::on(Box::new(disk.clone()), None)
}

fn block<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

async fn put(store: &EmbeddedStore, key: &str, value: &str) -> Result<u64, StoreError> {
    let put = crate::api::Operation::Put { key: key.into(), value: value.into(), lease: None };
    store.transaction(Transaction { compares: Vec::new(), operations: vec![put] }).await
}

type State = (u64, Vec<KeyValue>);

async fn state(store: &EmbeddedStore) -> State {
    let snapshot = store.read(b"/").await.unwrap();
    (snapshot.revision, snapshot.items)
}

/// A disk after changes of all kinds, with the state after each.
fn written() -> (Disk, Vec<State>) {
    let disk = Disk::default();
    let states = block(async {
        let store = open(&disk).unwrap();
        let mut states = vec![state(&store).await];
        let lease = store.lease_grant(100).await.unwrap();
        states.push(state(&store).await);
        for index in 0..4 {
            put(&store, &format!("/{index}"), &"value ".repeat(index)).await.unwrap();
            states.push(state(&store).await);
        }
        store.compare_and_set(b"/leased", 0, Some(b"x".to_vec()), Some(lease.id)).await.unwrap();
        states.push(state(&store).await);
        store.compact(3).await.unwrap();
        states.push(state(&store).await);
        store.lease_revoke(lease.id).await.unwrap();
        states.push(state(&store).await);
        let (revision, _) = state(&store).await;
        store.compare_and_set(b"/3", revision - 2, None, None).await.unwrap();
        states.push(state(&store).await);
        states
    });
    (disk, states)
}

#[test]
fn after_a_kill_at_any_byte_every_answered_change_is_there_and_none_in_part() {
    let (disk, states) = written();
    let bytes = disk.content();
    let durable_bytes = disk.state.lock().unwrap().durable_bytes.clone();
    assert_eq!(durable_bytes.len() + 1, states.len());
    let first = decode_first_bytes(&bytes);
    for length in 0..=bytes.len() {
        let cut = Disk::of(bytes[..length].to_vec());
        if length < first {
            // Never seen after a kill: this part is put in place by a rename.
            assert!(matches!(open(&cut), Err(StoreError::Damaged { .. })), "{length}");
            continue;
        }
        let answered = durable_bytes.iter().filter(|durable| **durable <= length).count();
        block(async {
            let store = open(&cut).unwrap();
            assert_eq!(state(&store).await, states[answered], "{length}");
            put(&store, "/more", "after").await.unwrap();
            let after = state(&store).await;
            drop(store);
            assert_eq!(state(&open(&cut).unwrap()).await, after);
        });
    }
}

/// Length of the head and the first record.
fn decode_first_bytes(bytes: &[u8]) -> usize {
    let mut length = [0; 4];
    length.copy_from_slice(&bytes[32..36]);
    32 + 16 + u32::from_le_bytes(length) as usize
}

#[test]
fn a_flipped_bit_is_refused_or_at_most_cuts_off_the_last_record() {
    let (disk, states) = written();
    let bytes = disk.content();
    let durable_bytes = disk.state.lock().unwrap().durable_bytes.clone();
    let last_begin = durable_bytes[durable_bytes.len() - 2];
    for offset in 0..bytes.len() {
        let mut flipped = bytes.clone();
        flipped[offset] ^= 1 << (offset % 8);
        match open(&Disk::of(flipped)) {
            Err(StoreError::Damaged { .. } | StoreError::NewerFormat { .. }) => {
                assert!(offset < last_begin, "{offset}");
            }
            Err(error) => panic!("{offset}: {error}"),
            Ok(store) => {
                assert!(offset >= last_begin, "{offset}");
                let before_last = &states[states.len() - 2];
                assert_eq!(&block(state(&store)), before_last);
                // Who remembers the revision notices.
                let (seen, now) = (states[states.len() - 1].0, before_last.0);
                assert!(seen > now);
            }
        }
    }
}

#[test]
fn a_store_in_an_older_state_or_another_one_is_not_accepted() {
    let (disk, states) = written();
    let seen = open(&disk).unwrap().identity().unwrap();
    assert_eq!(seen.revision, states[states.len() - 1].0);
    assert!(EmbeddedStore::on(Box::new(disk.clone()), Some(seen)).is_ok());
    let newer = Identity { revision: seen.revision + 1, ..seen };
    let error = EmbeddedStore::on(Box::new(disk.clone()), Some(newer)).err().unwrap();
    assert_eq!(error, StoreError::WentBack { seen: newer, now: seen });
    let other = Identity { store_id: seen.store_id ^ 1, revision: 1 };
    let error = EmbeddedStore::on(Box::new(disk), Some(other)).err().unwrap();
    assert!(matches!(error, StoreError::WentBack { .. }) && error.to_string().contains("went back"));
}

#[test]
fn after_a_write_fails_nothing_is_answered_and_a_restart_has_all_that_was() {
    for fail_at in 3..14 {
        let disk = Disk::default();
        block(async {
            let store = open(&disk).unwrap();
            disk.state.lock().unwrap().fail_at = Some(fail_at);
            let mut answered = 0;
            let mut refused = 0;
            for index in 0..12 {
                match put(&store, "/counter", &index.to_string()).await {
                    Ok(_) if refused == 0 => answered = index + 1,
                    Ok(revision) => panic!("answered {revision} after a failure"),
                    // The one that was under way, and all that came later.
                    Err(StoreError::OutcomeUnknown { attempt, .. }) if refused == 0 => {
                        assert!(attempt.reason.contains("broken"));
                        refused += 1;
                    }
                    Err(StoreError::Poisoned { reason }) if refused > 0 => {
                        assert!(reason.contains("broken"));
                        refused += 1;
                    }
                    Err(error) => panic!("{error}"),
                }
            }
            assert_eq!((answered, refused), (fail_at - 3, 12 - answered));
            assert!(matches!(store.read(b"/").await, Err(StoreError::Poisoned { .. })));
            assert_eq!(store.identity().unwrap().revision, 1 + answered as u64);
            drop(store);
            disk.state.lock().unwrap().fail_at = None;
            assert_eq!(state(&open(&disk).unwrap()).await.0, 1 + answered as u64);
        });
    }
}

#[test]
fn a_file_that_has_grown_is_rewritten_and_a_failed_rewrite_loses_nothing() {
    let disk = Disk::default();
    let large = "x".repeat(100_000);
    block(async {
        let store = open(&disk).unwrap();
        disk.state.lock().unwrap().prepares_to_fail = 2;
        for _ in 0..300 {
            put(&store, "/large", &large).await.unwrap();
        }
        assert_eq!(disk.state.lock().unwrap().prepares_to_fail, 0);
        assert!(disk.content().len() < 300 * large.len() * 3 / 4, "it was rewritten");
        let before = state(&store).await;
        assert_eq!(before.0, 301);
        let mut watch = store.watch(b"/", 300).unwrap();
        assert!(matches!(watch.next().await, Some(Ok(Watched::Revision(found))) if found.revision == 300));
        let mut watch = store.watch(b"/", 2).unwrap();
        assert!(
            matches!(watch.next().await, Some(Ok(Watched::Reset { oldest_revision })) if oldest_revision > 2)
        );
        assert!(watch.next().await.is_none());
        drop(store);
        let store = open(&disk).unwrap();
        assert_eq!(state(&store).await, before);
        let mut watch = store.watch(b"/", 300).unwrap();
        assert!(matches!(watch.next().await, Some(Ok(Watched::Revision(found))) if found.revision == 300));
    });
}

/// The record is read from the kernel's memory after the kill, and answered with: a power cut must not take it back.
#[test]
fn what_a_killed_process_left_unsynced_is_durable_before_it_is_answered() {
    let disk = Disk::default();
    block(async {
        let store = open(&disk).unwrap();
        put(&store, "/a", "1").await.unwrap();
        disk.set_sync(Sync::Killed);
        assert!(matches!(put(&store, "/b", "2").await, Err(StoreError::OutcomeUnknown { .. })));
        drop(store);
        disk.set_sync(Sync::Done);
        let store = open(&disk).unwrap();
        let (before, seen) = (state(&store).await, store.identity().unwrap());
        assert_eq!(before.1.len(), 2, "it is there, whoever was told of it");
        drop(store);
        disk.cut_power();
        let store = EmbeddedStore::on(Box::new(disk.clone()), Some(seen)).unwrap();
        assert_eq!(state(&store).await, before);
    });
}

/// What could not be synced is clean for the kernel, so that no later sync writes it: the file would have a hole.
#[test]
fn what_a_failed_sync_left_behind_is_written_again_before_anything_follows_it() {
    let disk = Disk::default();
    block(async {
        let store = open(&disk).unwrap();
        put(&store, "/a", "1").await.unwrap();
        disk.set_sync(Sync::Failed);
        // It ends before it could write the file anew.
        disk.state.lock().unwrap().prepares_to_fail = usize::MAX;
        assert!(matches!(put(&store, "/b", "2").await, Err(StoreError::OutcomeUnknown { .. })));
        drop(store);
        disk.set_sync(Sync::Done);
        disk.state.lock().unwrap().prepares_to_fail = 0;
        let store = open(&disk).unwrap();
        put(&store, "/c", "3").await.unwrap();
        let before = state(&store).await;
        drop(store);
        disk.cut_power();
        let store = open(&disk).unwrap();
        assert_eq!(state(&store).await, before);
    });
}

#[test]
fn a_file_that_cannot_be_rewritten_does_not_become_too_long_to_be_loaded() {
    let disk = Disk::default();
    let large = "x".repeat(100_000);
    block(async {
        let store = open(&disk).unwrap();
        let bytes_max = 6_000_000;
        disk.state.lock().unwrap().prepares_to_fail = usize::MAX;
        disk.state.lock().unwrap().bytes_max = Some(bytes_max);
        let mut answered = 0;
        let refused = loop {
            match put(&store, "/large", &large).await {
                Ok(revision) => answered = revision,
                Err(error) => break error,
            }
            assert!(answered < 100);
        };
        assert!(
            matches!(&refused, StoreError::OutcomeUnknown { attempt, .. } if attempt.reason.contains("too long")),
            "{refused}"
        );
        assert!(disk.content().len() <= bytes_max);
        drop(store);
        disk.state.lock().unwrap().prepares_to_fail = 0;
        let store = open(&disk).unwrap();
        assert_eq!(state(&store).await.0, answered);
    });
}

/// Waits until the store answers again.
async fn answers(store: &EmbeddedStore) -> State {
    let begin = std::time::Instant::now();
    while let Err(error) = store.read(b"/").await {
        assert!(matches!(error, StoreError::Poisoned { .. }), "{error}");
        assert!(begin.elapsed().as_secs() < 20, "it stays as it is: {error}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    state(store).await
}

/// It took changes again with a restart only.
#[test]
fn a_disk_that_was_full_takes_changes_again_without_a_restart() {
    let disk = Disk::default();
    block(async {
        let store = open(&disk).unwrap();
        let lease = store.lease_grant(1).await.unwrap();
        store.compare_and_set(b"/leased", 0, Some(b"x".to_vec()), Some(lease.id)).await.unwrap();
        put(&store, "/a", "1").await.unwrap();
        let before = state(&store).await;
        let mut watch = store.watch(b"/a", before.0).unwrap();
        assert!(matches!(watch.next().await, Some(Ok(Watched::Revision(_)))));
        disk.set_full(true);
        assert!(matches!(put(&store, "/a", "2").await, Err(StoreError::OutcomeUnknown { .. })));
        for _ in 0..3 {
            std::thread::sleep(std::time::Duration::from_millis(30));
            assert!(matches!(put(&store, "/a", "3").await, Err(StoreError::Poisoned { .. })));
            assert!(matches!(store.read(b"/").await, Err(StoreError::Poisoned { .. })));
        }
        // Longer than the lease: nobody could keep it.
        std::thread::sleep(std::time::Duration::from_millis(1100));
        disk.set_full(false);
        assert_eq!(answers(&store).await, before, "what nobody was told of is not made");
        assert_eq!(store.lease_keep_alive(lease.id).await, Ok(1));
        let revision = put(&store, "/a", "4").await.unwrap();
        match watch.next().await {
            Some(Ok(Watched::Revision(told))) => assert_eq!(told.revision, revision),
            other => panic!("{other:?}"),
        }
        let after = state(&store).await;
        drop(store);
        disk.cut_power();
        assert_eq!(state(&open(&disk).unwrap()).await, after);
    });
}

/// A second sync of the same file would say that all is well.
#[test]
fn after_a_failed_sync_it_goes_on_in_a_new_file() {
    for sync in [Sync::Failed, Sync::Done] {
        let disk = Disk::default();
        block(async {
            let store = open(&disk).unwrap();
            put(&store, "/a", "1").await.unwrap();
            let before = state(&store).await;
            disk.set_sync(Sync::Failed);
            disk.state.lock().unwrap().publishes_to_fail = 2;
            assert!(matches!(put(&store, "/b", "2").await, Err(StoreError::OutcomeUnknown { .. })));
            assert_eq!(answers(&store).await, before);
            assert_eq!(disk.state.lock().unwrap().publishes_to_fail, 0);
            disk.set_sync(sync);
            // Once more, or all is well from now on.
            if matches!(sync, Sync::Failed) {
                assert!(matches!(put(&store, "/b", "3").await, Err(StoreError::OutcomeUnknown { .. })));
                assert_eq!(answers(&store).await, before);
                disk.set_sync(Sync::Done);
            }
            put(&store, "/c", "4").await.unwrap();
            let after = state(&store).await;
            drop(store);
            disk.cut_power();
            assert_eq!(state(&open(&disk).unwrap()).await, after);
        });
    }
}

/// Whatever fails, and whenever the power is cut: what was answered is there, and what was refused is not.
#[test]
fn what_was_answered_between_failures_of_all_kinds_survives_a_power_cut() {
    for seed in 0..200_u64 {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut next = |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        let disk = Disk::default();
        let (mut made, mut unknown) = (Vec::new(), None);
        block(async {
            let store = open(&disk).unwrap();
            for step in 0..40 {
                match next(12) {
                    0 => disk.set_full(true),
                    1 => disk.set_sync(Sync::Failed),
                    2 => disk.state.lock().unwrap().publishes_to_fail += 1,
                    3 => disk.state.lock().unwrap().prepares_to_fail += 1,
                    4..8 => {
                        disk.set_full(false);
                        disk.set_sync(Sync::Done);
                    }
                    _ => {}
                }
                let key = format!("/{step:02}");
                match put(&store, &key, "x").await {
                    Ok(_) => {
                        made.push(key);
                        // Whatever came before it is decided.
                        unknown = None;
                    }
                    Err(StoreError::OutcomeUnknown { .. }) => unknown = Some(key),
                    Err(StoreError::Poisoned { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
                if let Ok(snapshot) = store.read(b"/").await {
                    let keys: Vec<_> = snapshot.items.iter().map(|item| item.key.clone()).collect();
                    assert!(keys.iter().eq(made.iter().map(String::as_bytes)), "seed {seed}, step {step}");
                    unknown = None;
                }
            }
            drop(store);
        });
        // A kill leaves what the kernel had.
        if next(2) == 0 {
            disk.cut_power();
        }
        let found = block(async { state(&open(&Disk::of(disk.content())).unwrap()).await.1 });
        let found: Vec<_> = found.iter().map(|item| String::from_utf8(item.key.clone()).unwrap()).collect();
        let with_unknown: Vec<_> = made.iter().chain(&unknown).cloned().collect();
        assert!(
            found == made || found == with_unknown,
            "seed {seed}: {found:?}, not {made:?} and {unknown:?}"
        );
    }
}

/// Only so many requests share a sync, and leases ended in between.
#[test]
fn a_lease_lives_on_if_its_keep_alive_waits_behind_many_others() {
    let store = EmbeddedStore::in_memory().unwrap();
    block(async {
        let lease = store.lease_grant(1).await.unwrap();
        let (go_on, waits) = mpsc::channel();
        let stall = store.ask(move |_, _| {
            let _: Result<(), _> = waits.recv();
            Ok(())
        });
        let reads: Vec<_> = (0..1000).map(|_| store.read(b"/")).collect();
        let kept = store.lease_keep_alive(lease.id);
        std::thread::sleep(std::time::Duration::from_millis(1100));
        go_on.send(()).unwrap();
        stall.await.unwrap();
        for read in reads {
            read.await.unwrap();
        }
        assert_eq!(kept.await, Ok(1));
    });
}

/// On a full disk it was what kept the file from growing, so that the store took no more changes, and did not start again.
#[test]
fn a_rewrite_that_fails_leaves_no_file_that_takes_room() {
    let folder = tempfile::tempdir().unwrap();
    let mut medium = FolderMedium::open(folder.path()).unwrap();
    medium.prepare(b"one").unwrap();
    medium.publish().unwrap();
    // In the way of the last step.
    std::fs::create_dir(folder.path().join("store.old.log")).unwrap();
    assert!(medium.prepare(&[7; 100_000]).is_err());
    assert!(!folder.path().join("store.new.log").exists());
    medium.append(b"two").unwrap();
    assert_eq!(std::fs::read(folder.path().join("store.log")).unwrap(), b"onetwo");
    std::fs::remove_dir(folder.path().join("store.old.log")).unwrap();
    medium.prepare(b"three").unwrap();
    medium.publish().unwrap();
    medium.append(b"four").unwrap();
    assert_eq!(std::fs::read(folder.path().join("store.log")).unwrap(), b"threefour");
    assert_eq!(std::fs::read(folder.path().join("store.previous.log")).unwrap(), b"onetwo");
}
