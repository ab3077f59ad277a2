//! The keys, their history and the leases: a pure state machine with etcd's semantics, which the embedded store
//! and the simulator's model share.
//!
//! Invariants:
//! - time is handed in, in nanoseconds of any monotonic clock;
//! - everything that changes is an [`Effect`] first, and the same effects in the same order make the same state:
//!   replaying the log of an embedded store gives the state that was there;
//! - each effect that changes keys has a revision one above the one before;
//! - `history` holds exactly the revisions above `compacted`;
//! - a key is in its lease's set if and only if it names that lease.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use crate::api::{
    Compare, Event, KeyValue, Lease, LeaseId, Operation, Revision, Snapshot, Transaction, check_lease_seconds,
};
use crate::error::StoreError;

/// etcd's first revision: that of an empty store.
const REVISION_FIRST: u64 = 1;
const NS_PER_SECOND: u64 = 1_000_000_000;

/// Something that happened to the state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Changed(Arc<Revision>),
    Granted { lease: LeaseId, seconds: u64 },
    Ended { lease: LeaseId },
    Compacted { revision: u64 },
}

#[derive(Clone, Debug)]
struct LeaseState {
    seconds: u64,
    expires_ns: u64,
    keys: BTreeSet<Vec<u8>>,
}

/// The state.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    revision: u64,
    compacted: u64,
    keys: BTreeMap<Vec<u8>, KeyValue>,
    history: VecDeque<Arc<Revision>>,
    history_bytes: usize,
    leases: BTreeMap<LeaseId, LeaseState>,
    lease_last: i64,
    effects: Vec<Effect>,
}

/// All of a state, to be written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MachineImage {
    pub revision: u64,
    pub compacted: u64,
    pub lease_last: i64,
    pub keys: Vec<KeyValue>,
    pub history: Vec<Arc<Revision>>,
    pub leases: Vec<Lease>,
}

impl Default for Machine {
    fn default() -> Self {
        Machine {
            revision: REVISION_FIRST,
            compacted: 0,
            keys: BTreeMap::new(),
            history: VecDeque::new(),
            history_bytes: 0,
            leases: BTreeMap::new(),
            lease_last: 0,
            effects: Vec::new(),
        }
    }
}

impl Machine {
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    pub(crate) fn compacted(&self) -> u64 {
        self.compacted
    }

    /// Bytes of keys and values that the history holds.
    pub(crate) fn history_bytes(&self) -> usize {
        self.history_bytes
    }

    /// The revision up to which the history has to go to hold at most that many bytes.
    pub(crate) fn compaction_for(&self, history_bytes_max: usize) -> Option<u64> {
        let mut bytes = self.history_bytes;
        let mut last = None;
        for revision in &self.history {
            if bytes <= history_bytes_max {
                break;
            }
            bytes -= revision_bytes(revision);
            last = Some(revision.revision);
        }
        last
    }

    /// What has happened since this was last asked.
    pub(crate) fn take_effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    pub(crate) fn read(&self, prefix: &[u8]) -> Snapshot {
        let from = (Bound::Included(prefix.to_vec()), Bound::Unbounded);
        let items = self
            .keys
            .range(from)
            .take_while(|(key, _)| key.starts_with(prefix))
            .map(|(_, item)| item.clone())
            .collect();
        Snapshot { items, revision: self.revision }
    }

    /// Keys from one on, below an end (`None`: to the last), at most so many; and whether there are more.
    pub(crate) fn range(&self, from: &[u8], end: Option<&[u8]>, limit: usize) -> (Vec<KeyValue>, bool) {
        let lower = (Bound::Included(from.to_vec()), Bound::Unbounded);
        let mut found =
            self.keys.range(lower).take_while(|(key, _)| end.is_none_or(|end| key.as_slice() < end));
        let items = found.by_ref().take(limit).map(|(_, item)| item.clone()).collect();
        (items, found.next().is_some())
    }

    /// The revisions from one on, at most so many, or the oldest that there is if that one is forgotten.
    pub(crate) fn history_from(&self, from: u64, limit: usize) -> Result<Vec<Arc<Revision>>, u64> {
        // Revision 1 is that of the empty store: it has nothing to miss.
        let from = from.max(REVISION_FIRST + 1);
        if from <= self.compacted {
            return Err(self.compacted + 1);
        }
        let begin = self.history.partition_point(|revision| revision.revision < from);
        Ok(self.history.iter().skip(begin).take(limit).cloned().collect())
    }

    pub(crate) fn holds(&self, compare: &Compare) -> bool {
        match compare {
            Compare::ModRevision { key, revision } => {
                self.keys.get(key).map_or(0, |item| item.mod_revision) == *revision
            }
            Compare::CreateRevision { key, revision } => {
                self.keys.get(key).map_or(0, |item| item.create_revision) == *revision
            }
            Compare::NoneAfter { prefix, revision } => {
                let from = (Bound::Included(prefix.as_slice()), Bound::Unbounded);
                let mut items =
                    self.keys.range::<[u8], _>(from).take_while(|(key, _)| key.starts_with(prefix));
                items.all(|(_, item)| item.mod_revision <= *revision)
            }
        }
    }

    pub(crate) fn transaction(&mut self, transaction: &Transaction) -> Result<u64, StoreError> {
        transaction.check()?;
        if !transaction.compares.iter().all(|compare| self.holds(compare)) {
            let keys = transaction.compared_keys();
            let current = keys.iter().filter_map(|key| self.keys.get(*key).cloned()).collect();
            return Err(StoreError::Conflict {
                keys: keys.into_iter().map(<[u8]>::to_vec).collect(),
                current,
            });
        }
        self.execute(&transaction.operations)
    }

    /// Makes changes without conditions.
    pub(crate) fn execute(&mut self, operations: &[Operation]) -> Result<u64, StoreError> {
        let leases = operations.iter().filter_map(|operation| match operation {
            Operation::Put { lease, .. } => *lease,
            Operation::Delete { .. } => None,
        });
        for lease in leases {
            if !self.leases.contains_key(&lease) {
                return Err(StoreError::LeaseLost { lease });
            }
        }
        let revision = self.revision + 1;
        let mut events = Vec::with_capacity(operations.len());
        for operation in operations {
            match operation {
                Operation::Put { key, value, lease } => {
                    let create_revision = self.keys.get(key).map_or(revision, |item| item.create_revision);
                    events.push(Event::Put(KeyValue {
                        key: key.clone(),
                        value: value.clone(),
                        create_revision,
                        mod_revision: revision,
                        lease: *lease,
                    }));
                }
                Operation::Delete { key } => {
                    if self.keys.contains_key(key) {
                        events.push(Event::Delete { key: key.clone() });
                    }
                }
            }
        }
        self.change(events);
        Ok(self.revision)
    }

    fn change(&mut self, events: Vec<Event>) {
        if !events.is_empty() {
            self.happen(Effect::Changed(Arc::new(Revision { revision: self.revision + 1, events })), 0);
        }
    }

    pub(crate) fn lease_grant(
        &mut self,
        wanted: Option<LeaseId>,
        seconds: u64,
        now_ns: u64,
    ) -> Result<Lease, StoreError> {
        check_lease_seconds(seconds)?;
        let mut lease = wanted.unwrap_or(LeaseId(self.lease_last.wrapping_add(1).max(1)));
        while wanted.is_none() && self.leases.contains_key(&lease) {
            lease = LeaseId(lease.0.wrapping_add(1).max(1));
        }
        if lease.0 <= 0 || self.leases.contains_key(&lease) {
            return Err(StoreError::Invalid { reason: format!("lease {lease} exists already") });
        }
        self.happen(Effect::Granted { lease, seconds }, now_ns);
        Ok(Lease { id: lease, seconds })
    }

    /// Gives a lease its time anew. That is not an effect: after a restart every lease has its whole time.
    pub(crate) fn lease_keep_alive(&mut self, lease: LeaseId, now_ns: u64) -> Result<u64, StoreError> {
        let state = self.leases.get_mut(&lease).ok_or(StoreError::LeaseLost { lease })?;
        state.expires_ns = state.expires_ns.max(expiry_ns(now_ns, state.seconds));
        Ok(state.seconds)
    }

    /// Ends a lease, and all its keys in one revision.
    pub(crate) fn lease_revoke(&mut self, lease: LeaseId) -> bool {
        let Some(state) = self.leases.get(&lease) else { return false };
        let events = state.keys.iter().map(|key| Event::Delete { key: key.clone() }).collect();
        self.change(events);
        self.happen(Effect::Ended { lease }, 0);
        true
    }

    /// When the first lease ends.
    pub(crate) fn expiry_next_ns(&self) -> Option<u64> {
        self.leases.values().map(|state| state.expires_ns).min()
    }

    pub(crate) fn leases(&self) -> impl Iterator<Item = LeaseId> {
        self.leases.keys().copied()
    }

    /// Ends every lease whose time has passed.
    pub(crate) fn expire(&mut self, now_ns: u64) {
        let due = |(lease, state): (&LeaseId, &LeaseState)| (state.expires_ns <= now_ns).then_some(*lease);
        let due: Vec<LeaseId> = self.leases.iter().filter_map(due).collect();
        for lease in due {
            self.lease_revoke(lease);
        }
    }

    /// Forgets the history up to and with a revision. One that is forgotten already is no error, as in a retry.
    pub(crate) fn compact(&mut self, revision: u64) -> Result<(), StoreError> {
        if revision > self.revision {
            let reason = format!("revision {revision} is not there yet: the store is at {}", self.revision);
            return Err(StoreError::Invalid { reason });
        }
        if revision > self.compacted {
            self.happen(Effect::Compacted { revision }, 0);
        }
        Ok(())
    }

    fn happen(&mut self, effect: Effect, now_ns: u64) {
        assert!(self.follows(&effect), "an effect of its own does not fit the state: {effect:?}");
        self.apply(&effect, now_ns);
        self.effects.push(effect);
    }

    /// Repeats an effect that was written down; `false` if it cannot have happened in this state.
    #[must_use]
    pub(crate) fn replay(&mut self, effect: &Effect, now_ns: u64) -> bool {
        let follows = self.follows(effect);
        if follows {
            self.apply(effect, now_ns);
        }
        follows
    }

    fn follows(&self, effect: &Effect) -> bool {
        match effect {
            Effect::Changed(revision) => {
                revision.revision == self.revision + 1
                    && !revision.events.is_empty()
                    && revision.events.iter().all(|event| self.event_follows(event, revision.revision))
            }
            Effect::Granted { lease, seconds } => {
                lease.0 > 0 && *seconds > 0 && !self.leases.contains_key(lease)
            }
            Effect::Ended { lease } => self.leases.get(lease).is_some_and(|state| state.keys.is_empty()),
            Effect::Compacted { revision } => *revision > self.compacted && *revision <= self.revision,
        }
    }

    fn event_follows(&self, event: &Event, revision: u64) -> bool {
        match event {
            Event::Put(item) => {
                let before = self.keys.get(&item.key).map_or(revision, |before| before.create_revision);
                item.mod_revision == revision
                    && item.create_revision == before
                    && item.lease.is_none_or(|lease| self.leases.contains_key(&lease))
            }
            Event::Delete { key } => self.keys.contains_key(key),
        }
    }

    fn apply(&mut self, effect: &Effect, now_ns: u64) {
        match effect {
            Effect::Changed(revision) => {
                self.revision = revision.revision;
                for event in &revision.events {
                    self.apply_event(event);
                }
                self.history_bytes += revision_bytes(revision);
                self.history.push_back(revision.clone());
            }
            Effect::Granted { lease, seconds } => {
                self.lease_last = self.lease_last.max(lease.0);
                let expires_ns = expiry_ns(now_ns, *seconds);
                let state = LeaseState { seconds: *seconds, expires_ns, keys: BTreeSet::new() };
                self.leases.insert(*lease, state);
            }
            Effect::Ended { lease } => {
                self.leases.remove(lease);
            }
            Effect::Compacted { revision } => {
                self.compacted = *revision;
                while let Some(oldest) = self.history.front().filter(|oldest| oldest.revision <= *revision) {
                    self.history_bytes -= revision_bytes(oldest);
                    self.history.pop_front();
                }
            }
        }
    }

    fn apply_event(&mut self, event: &Event) {
        let before = match event {
            Event::Put(item) => self.keys.insert(item.key.clone(), item.clone()),
            Event::Delete { key } => self.keys.remove(key),
        };
        if let Some(state) =
            before.as_ref().and_then(|before| before.lease).and_then(|lease| self.leases.get_mut(&lease))
        {
            state.keys.remove(event.key());
        }
        if let Event::Put(item) = event
            && let Some(state) = item.lease.and_then(|lease| self.leases.get_mut(&lease))
        {
            state.keys.insert(item.key.clone());
        }
    }

    /// All of the state.
    pub(crate) fn image(&self) -> MachineImage {
        MachineImage {
            revision: self.revision,
            compacted: self.compacted,
            lease_last: self.lease_last,
            keys: self.keys.values().cloned().collect(),
            history: self.history.iter().cloned().collect(),
            leases: self.leases.iter().map(|(id, state)| Lease { id: *id, seconds: state.seconds }).collect(),
        }
    }

    /// The state of an image, with each lease's whole time from now on; `None` if no state has that image.
    pub(crate) fn from_image(image: MachineImage, now_ns: u64) -> Option<Machine> {
        let mut machine = Machine { lease_last: image.lease_last, ..Machine::default() };
        for lease in &image.leases {
            if !machine.replay(&Effect::Granted { lease: lease.id, seconds: lease.seconds }, now_ns) {
                return None;
            }
        }
        for item in image.keys {
            let known = item.lease.is_none_or(|lease| machine.leases.contains_key(&lease));
            let revisions = 1..=image.revision;
            let possible = revisions.contains(&item.create_revision)
                && revisions.contains(&item.mod_revision)
                && item.create_revision <= item.mod_revision
                && !machine.keys.contains_key(&item.key);
            if !known || !possible {
                return None;
            }
            machine.apply_event(&Event::Put(item));
        }
        let unbroken = |pair: &[Arc<Revision>]| pair[0].revision + 1 == pair[1].revision;
        let begin = image.history.first().map_or(image.revision + 1, |oldest| oldest.revision);
        let end = image.history.last().map_or(image.revision, |newest| newest.revision);
        let oldest = begin == (image.compacted + 1).max(REVISION_FIRST + 1);
        if !oldest || end != image.revision || !image.history.windows(2).all(unbroken) {
            return None;
        }
        machine.revision = image.revision;
        machine.compacted = image.compacted;
        machine.history_bytes = image.history.iter().map(|revision| revision_bytes(revision)).sum();
        machine.history = image.history.into();
        Some(machine)
    }
}

fn expiry_ns(now_ns: u64, seconds: u64) -> u64 {
    now_ns.saturating_add(seconds.saturating_mul(NS_PER_SECOND))
}

/// What a revision takes in the history, about.
fn revision_bytes(revision: &Revision) -> usize {
    let event_bytes = |event: &Event| match event {
        Event::Put(item) => item.key.len() + item.value.len() + 64,
        Event::Delete { key } => key.len() + 32,
    };
    revision.events.iter().map(event_bytes).sum::<usize>() + 48
}

#[cfg(test)]
mod tests;
