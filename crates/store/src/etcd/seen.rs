//! What was seen of etcd, to notice one that was wiped or restored from an old backup.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::api::Identity;
use crate::error::StoreError;
use crate::wire::{self, ResponseHeader};

/// The highest revision seen, and whether the store went back since.
#[derive(Debug)]
pub(super) struct Seen {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    identity: Option<Identity>,
    went_back: Option<StoreError>,
}

impl Seen {
    pub(super) fn new(known: Option<Identity>) -> Self {
        Seen { state: Mutex::new(State { identity: known, went_back: None }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn identity(&self) -> Option<Identity> {
        self.state().identity
    }

    /// The revision that an answer to a request sent now has to have at least; an error if the store went back
    /// already.
    pub(super) fn floor(&self) -> Result<u64, StoreError> {
        let state = self.state();
        match &state.went_back {
            Some(error) => Err(error.clone()),
            None => Ok(state.identity.map_or(0, |identity| identity.revision)),
        }
    }

    /// Takes in an answer. `floor` is what [`floor`](Self::floor) said before the request was sent, or 0 if the
    /// answer may come from a member that lags.
    pub(super) fn check(&self, header: &ResponseHeader, floor: u64) -> Result<(), StoreError> {
        let mut state = self.state();
        if let Some(error) = &state.went_back {
            return Err(error.clone());
        }
        let now = Identity { store_id: header.cluster_id, revision: wire::revision(header.revision) };
        let seen = state.identity.unwrap_or(now);
        if now.store_id != seen.store_id || now.revision < floor {
            let error = StoreError::WentBack { seen, now };
            tracing::error!(%error, "the store is not used any more");
            state.went_back = Some(error.clone());
            return Err(error);
        }
        state.identity = Some(Identity { revision: seen.revision.max(now.revision), ..seen });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(cluster_id: u64, revision: i64) -> ResponseHeader {
        ResponseHeader { cluster_id, revision, ..ResponseHeader::default() }
    }

    #[test]
    fn answers_may_overtake_each_other_but_the_store_may_not_go_back() {
        let seen = Seen::new(None);
        let early = seen.floor().unwrap();
        seen.check(&header(7, 10), early).unwrap();
        seen.check(&header(7, 9), early).unwrap();
        assert_eq!(seen.identity(), Some(Identity { store_id: 7, revision: 10 }));
        let late = seen.floor().unwrap();
        let error = seen.check(&header(7, 9), late).unwrap_err();
        assert!(matches!(error, StoreError::WentBack { .. }));
        assert_eq!(seen.check(&header(7, 11), 0), Err(error.clone()), "it is not forgotten");
        assert_eq!(seen.floor(), Err(error));
    }

    #[test]
    fn another_store_is_noticed_whatever_its_revision() {
        let seen = Seen::new(Some(Identity { store_id: 7, revision: 10 }));
        assert!(matches!(seen.check(&header(8, 100), 0), Err(StoreError::WentBack { .. })));
    }
}
