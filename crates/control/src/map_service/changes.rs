//! Whether the store takes changes. A full one answers all reads, so that nothing else shows it.

use std::mem::Discriminant;
use std::time::{Duration, Instant};

use coquina_store::{Store, StoreError};

use super::{MapService, Shared};

/// Pauses before a change is tried again that was refused: as long as that has gone on, within these.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// How long after the last refusal a store without room is asked for a lease, to see whether it has room again.
const FULL_PROBE_AFTER: Duration = Duration::from_secs(10);
/// How long another refusal counts when nobody tries any more.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);
/// Life of the lease that it is asked for.
const PROBE_LEASE_SECONDS: u64 = 2;

/// The store answers and takes no changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangesRefused {
    /// Since when.
    pub since: Instant,
    /// When it refused last.
    pub last: Instant,
    /// What it said last.
    pub reason: String,
    kind: Discriminant<StoreError>,
}

impl ChangesRefused {
    /// Takes note of a refusal. Whether it is to be told: once for each kind.
    fn note(refused: &mut Option<ChangesRefused>, error: &StoreError, now: Instant) -> bool {
        let kind = std::mem::discriminant(error);
        let is_new = refused.as_ref().is_none_or(|before| before.kind != kind);
        let since = refused.as_ref().map_or(now, |before| before.since);
        *refused = Some(ChangesRefused { since, last: now, reason: error.to_string(), kind });
        is_new
    }

    fn pause(&self) -> Duration {
        self.last.duration_since(self.since).clamp(PAUSE_MIN, PAUSE_MAX)
    }

    /// Whether it can write nothing: a lease that it grants shows that it can again.
    fn is_full(&self) -> bool {
        let full = StoreError::Full { endpoint: String::new(), reason: String::new() };
        let poisoned = StoreError::Poisoned { reason: String::new() };
        [full, poisoned].iter().any(|error| self.kind == std::mem::discriminant(error))
    }
}

/// Whether an error says that the store takes no changes until somebody does something about it.
fn is_refusal(error: &StoreError) -> bool {
    let is_else = matches!(
        error,
        StoreError::Conflict { .. } | StoreError::LeaseLost { .. } | StoreError::WentBack { .. }
    );
    !is_else && !error.is_passing()
}

impl Shared {
    /// What became of a change.
    pub(super) fn changed_with<T>(&self, result: &Result<T, StoreError>) {
        match result {
            Ok(_) => self.changes_taken(|_| true),
            // Of one caller only.
            Err(StoreError::Invalid { .. }) => {}
            Err(error) => drop(self.refused_with(error)),
        }
    }

    /// Notes an error of a change or of a lease; how long to wait before the next try, if it is a refusal.
    fn refused_with(&self, error: &StoreError) -> Option<Duration> {
        if !is_refusal(error) {
            return None;
        }
        let (is_new, pause) = self.change_state(|state| {
            let refused = &mut state.store.changes_refused;
            let is_new = ChangesRefused::note(refused, error, Instant::now());
            (is_new, refused.as_ref().map_or(PAUSE_MIN, ChangesRefused::pause))
        });
        if is_new {
            tracing::warn!(%error, "the store takes no changes of the cluster map; I/O goes on, and it is tried again");
        }
        Some(pause)
    }

    /// It takes changes again, if it was refused for that.
    fn changes_taken(&self, concerns: impl Fn(&ChangesRefused) -> bool) {
        // Rarely so, and nobody need be woken for it otherwise.
        if !self.state().store.changes_refused.as_ref().is_some_and(&concerns) {
            return;
        }
        if let Some(was) = self.change_state(|state| state.store.changes_refused.take()) {
            let seconds = was.since.elapsed().as_secs();
            tracing::info!(seconds, "the store takes changes of the cluster map again");
        }
    }

    /// Finds out whether it takes changes again when nobody else tries.
    pub(super) async fn probe_changes(&self, store: &dyn Store) {
        let Some(refused) = self.state().store.changes_refused.clone() else { return };
        if refused.is_full() && refused.last.elapsed() >= FULL_PROBE_AFTER {
            match store.lease_grant(PROBE_LEASE_SECONDS).await {
                Ok(lease) => {
                    self.changes_taken(ChangesRefused::is_full);
                    // It runs out by itself otherwise.
                    let _ = store.lease_revoke(lease.id).await;
                }
                Err(error) => drop(self.refused_with(&error)),
            }
        } else if !refused.is_full() && refused.last.elapsed() >= FORGOTTEN_AFTER {
            self.changes_taken(|now| *now == refused);
        }
    }
}

impl MapService {
    /// Notes an error of a change or of a lease; how long to wait before the next try, if it is a refusal.
    pub(crate) fn refused_with(&self, error: &StoreError) -> Option<Duration> {
        self.shared.refused_with(error)
    }

    /// The store has made a change.
    pub(crate) fn changes_taken(&self) {
        self.shared.changes_taken(|_| true);
    }

    /// The store has granted a lease: who may not write may have leases all the same.
    pub(crate) fn lease_granted(&self) {
        self.shared.changes_taken(ChangesRefused::is_full);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(endpoint: &str) -> StoreError {
        StoreError::Full { endpoint: endpoint.to_owned(), reason: "database space exceeded".to_owned() }
    }

    #[test]
    fn a_refusal_is_told_once_for_each_kind_and_tried_again_ever_more_rarely() {
        let begin = Instant::now();
        let (mut refused, mut now, mut told, mut tries) = (None, begin, 0, 0);
        while now < begin + Duration::from_secs(10) {
            // One member of etcd or another says it.
            let error = full(if tries % 2 == 0 { "a" } else { "b" });
            told += u32::from(ChangesRefused::note(&mut refused, &error, now));
            tries += 1;
            now += refused.as_ref().unwrap().pause();
        }
        assert!(told == 1 && (3..10).contains(&tries), "told {told} times in {tries} tries");
        assert_eq!(refused.as_ref().unwrap().since, begin);
        let other = StoreError::Poisoned { reason: String::new() };
        assert!(ChangesRefused::note(&mut refused, &other, now));
        assert!(!ChangesRefused::note(&mut refused, &other, now));
        assert!(refused.as_ref().unwrap().is_full(), "a lease shows when the embedded store writes again");
        assert!(!is_refusal(&StoreError::Closed) && is_refusal(&other) && is_refusal(&full("a")));
    }
}
