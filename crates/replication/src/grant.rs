//! Read grants: who may serve reads until when.
//!
//! A backup *promises* a primary not to serve before a time by the backup's clock, counted from its receipt of the
//! request and lengthened by the drift bound. The primary counts its *lease* from when it sent the request, shortened
//! by the bound. So a lease always ends before the promise behind it, whatever the clocks show.
//!
//! A primary that is none any more gives its leases back: once it has persisted the epoch that made another one primary, it
//! can serve under no lower one, restarts included, and says so. Promises given to it under lower epochs are void then.

use std::collections::BTreeMap;

use crate::types::CopyId;

/// What was promised to one primary.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Promise {
    /// The highest epoch under which it was given.
    epoch: u64,
    until_ns: u64,
}

/// The promises that a copy has given.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Promises {
    by_holder: BTreeMap<CopyId, Promise>,
    /// A restarted copy does not remember its promises: all of them may run until then.
    forgotten_until_ns: u64,
}

impl Promises {
    /// Promises of a copy that starts now and may have given some just before.
    pub fn forgotten(now_ns: u64, promise_ns: u64) -> Promises {
        let forgotten_until_ns = now_ns.saturating_add(promise_ns);
        Promises { by_holder: BTreeMap::new(), forgotten_until_ns }
    }

    /// Promises to the primary of an epoch.
    pub fn give(&mut self, holder: CopyId, epoch: u64, now_ns: u64, promise_ns: u64) {
        self.by_holder.retain(|_, promise| promise.until_ns > now_ns);
        let promise = self.by_holder.entry(holder).or_default();
        promise.epoch = promise.epoch.max(epoch);
        promise.until_ns = promise.until_ns.max(now_ns.saturating_add(promise_ns));
    }

    /// The holder serves under no epoch below this one any more, and said so.
    pub fn given_back(&mut self, holder: CopyId, below_epoch: u64) {
        if self.by_holder.get(&holder).is_some_and(|promise| promise.epoch < below_epoch) {
            self.by_holder.remove(&holder);
        }
    }

    /// When the last promise ends; 0 if there is none.
    pub fn end_ns(&self) -> u64 {
        let last = self.by_holder.values().map(|promise| promise.until_ns).max();
        last.unwrap_or(0).max(self.forgotten_until_ns)
    }

    /// Whether no promise keeps this copy from serving.
    pub fn are_over(&mut self, now_ns: u64) -> bool {
        self.by_holder.retain(|_, promise| promise.until_ns > now_ns);
        if self.forgotten_until_ns <= now_ns {
            self.forgotten_until_ns = 0;
        }
        self.by_holder.is_empty() && self.forgotten_until_ns == 0
    }
}

/// One backup's grant as the primary sees it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Lease {
    until_ns: u64,
    asked_ns: Option<u64>,
}

impl Lease {
    /// Whether the primary may rely on it.
    pub fn is_valid(&self, now_ns: u64) -> bool {
        now_ns < self.until_ns
    }

    /// Whether to ask now: the last one was asked for before the half of a lease's time that the clock is in began, and no
    /// request younger than such a half is under way. All leases are renewed at the same times so, and the requests of many
    /// groups can go together.
    pub fn is_due(&self, now_ns: u64, lease_ns: u64) -> bool {
        let half_ns = (lease_ns / 2).max(1);
        let recently = self.asked_ns.is_some_and(|asked| now_ns < asked.saturating_add(half_ns));
        let since_ns = self.until_ns.saturating_sub(lease_ns);
        !recently && (!self.is_valid(now_ns) || since_ns / half_ns < now_ns / half_ns)
    }

    /// Notes a request.
    pub fn asked(&mut self, now_ns: u64) {
        self.asked_ns = Some(now_ns);
    }

    /// Notes a grant by the time of its request.
    pub fn granted(&mut self, sent_ns: u64, lease_ns: u64) {
        self.until_ns = self.until_ns.max(sent_ns.saturating_add(lease_ns));
        if self.asked_ns == Some(sent_ns) {
            self.asked_ns = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_ends_before_the_promise_behind_it_at_any_drift_within_the_bound() {
        let settings = crate::Settings::for_tests(CopyId(1));
        let (lease, promise) = (settings.lease_ns() as u128, settings.promise_ns() as u128);
        // True durations in parts per million: the holder's clock as slow, the giver's as fast as allowed.
        let ppm = settings.drift_ppm as u128;
        assert!(lease * 1_000_000 / (1_000_000 - ppm) <= promise * 1_000_000 / (1_000_000 + ppm));
    }

    #[test]
    fn promises_last_until_their_end_or_are_given_back() {
        let mut promises = Promises::forgotten(100, 10);
        assert!(!promises.are_over(109));
        assert!(promises.are_over(110));
        promises.give(CopyId(1), 5, 110, 10);
        promises.give(CopyId(2), 7, 115, 10);
        assert_eq!(promises.end_ns(), 125);
        promises.given_back(CopyId(2), 7);
        assert_eq!(promises.end_ns(), 125, "it may still serve under the epoch itself");
        promises.given_back(CopyId(2), 8);
        assert!(!promises.are_over(119));
        assert!(promises.are_over(120));
    }

    #[test]
    fn leases_asked_for_at_different_times_are_renewed_at_the_same_time() {
        let lease_asked_at = |asked| {
            let mut lease = Lease::default();
            lease.asked(asked);
            lease.granted(asked, 100);
            lease
        };
        let leases = [1003, 1021, 1049].map(lease_asked_at);
        assert!(leases.iter().all(|lease| !lease.is_due(1049, 100) && lease.is_due(1050, 100)));
    }

    #[test]
    fn a_late_grant_counts_from_its_request() {
        let mut lease = Lease::default();
        assert!(lease.is_due(1000, 100));
        lease.asked(1000);
        assert!(!lease.is_due(1049, 100));
        lease.granted(1000, 100);
        assert!(lease.is_valid(1099));
        assert!(!lease.is_valid(1100));
        assert!(!lease.is_due(1049, 100));
        assert!(lease.is_due(1050, 100));
    }
}
