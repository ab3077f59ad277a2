//! Placement groups: numbers of changes without gaps, and what is committed late.
//!
//! One copy is all there is here, so what is durable may be committed at any time after; until then reads of it wait.

use std::collections::BTreeMap;

use coquina_engine::Appended;

use super::Runner;
use crate::subject::Subject;
use crate::violation::Violation;

/// Groups in use; the layers of every third number have none.
pub(super) const GROUPS: u32 = 3;

/// What the runner knows of the groups' numbers.
#[derive(Clone, Debug, Default)]
pub(super) struct GroupNumbers {
    /// The epoch in which the shards order changes; rises with every start.
    epoch: u64,
    /// Highest number put into the log since the start.
    appended: BTreeMap<(usize, u32), u64>,
    /// Last number of each request that is not answered.
    under_way: BTreeMap<u64, (usize, u32, u64)>,
    /// Highest number of which the request was answered as done, over all starts.
    acknowledged: BTreeMap<(usize, u32), u64>,
}

/// The group of a layer; 0 for none.
pub(super) fn group_of(layer: u64) -> u32 {
    (layer % u64::from(GROUPS)) as u32
}

impl<S: Subject> Runner<S> {
    /// Checks what the shards know of the groups after a start, and makes them primaries of all.
    pub(super) fn open_groups(&mut self) -> Result<(), Violation> {
        self.numbers.epoch += 1;
        self.numbers.appended.clear();
        for shard in 0..self.shards.len() {
            for group in 1..GROUPS {
                let (last, committed) = self.shards[shard].group_numbers(group);
                let acknowledged = self.numbers.acknowledged.get(&(shard, group)).copied().unwrap_or(0);
                if last < acknowledged || committed > last {
                    return Err(Violation::Group(format!(
                        "group {group} of shard {shard} ends with {last} ({committed} committed), \
                         but {acknowledged} was acknowledged"
                    )));
                }
                self.counters.starts_with_tails += u64::from(committed < last);
                self.numbers.appended.insert((shard, group), last);
                self.shards[shard].accept_changes(group, self.numbers.epoch);
            }
        }
        Ok(())
    }

    /// An entry got its number.
    pub(super) fn appended(&mut self, shard: usize, entry: &Appended) -> Result<(), Violation> {
        let group = entry.origin.group;
        let last = self.numbers.appended.entry((shard, group)).or_default();
        if entry.origin.sequence != *last + 1 || entry.origin.epoch != self.numbers.epoch {
            return Err(Violation::Group(format!("{entry:?} follows number {last}")));
        }
        *last += 1;
        self.numbers.under_way.insert(entry.token.0, (shard, group, *last));
        self.counters.numbered_entries += 1;
        Ok(())
    }

    /// A request was answered.
    pub(super) fn note_answer(&mut self, token: u64, changed: bool) {
        let Some((shard, group, sequence)) = self.numbers.under_way.remove(&token) else { return };
        if changed {
            let highest = self.numbers.acknowledged.entry((shard, group)).or_default();
            *highest = sequence.max(*highest);
        }
    }

    /// Everything under way is gone.
    pub(super) fn cut_groups(&mut self) {
        self.numbers.under_way.clear();
    }

    /// Commits everything that is durable. Says whether there was anything.
    pub(super) fn commit_all(&mut self) -> bool {
        let mut any = false;
        for shard in &mut self.shards {
            for group in 1..GROUPS {
                let (last, committed) = shard.group_numbers(group);
                any |= committed < last;
                shard.commit(group, last);
            }
        }
        any
    }

    /// Commits some of what is durable, sometimes all.
    pub(super) fn commit_some(&mut self) {
        if !self.random.chance(1, 4) {
            return;
        }
        for shard in 0..self.shards.len() {
            for group in 1..GROUPS {
                let (last, committed) = self.shards[shard].group_numbers(group);
                if committed < last {
                    let all = self.random.chance(1, 2);
                    let up_to = if all { last } else { self.random.between(committed, last) };
                    self.shards[shard].commit(group, up_to);
                }
            }
        }
    }
}
