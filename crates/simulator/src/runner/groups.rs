//! Placement groups: numbers of changes without gaps, what is committed late, records, and entries that are read back.
//!
//! One copy is all there is here, so what is durable may be committed at any time after; until then reads of it wait.

use std::collections::{BTreeMap, VecDeque};

use coquina_base::crc32c_bytes;
use coquina_engine::{Appended, Failure, Outcome, Piece, RequestToken};

use super::Runner;
use crate::subject::Subject;
use crate::violation::Violation;

/// Groups in use; the layers of every third number have none.
pub(super) const GROUPS: u32 = 3;

/// Tokens of reads of entries begin here.
const ENTRY_TOKENS: u64 = 1 << 62;

/// What the runner knows of a group on a shard.
#[derive(Clone, Debug, Default)]
struct Numbers {
    /// Highest number put into the log since the start.
    appended: u64,
    /// Highest number of which the request was answered as done, over all starts.
    acknowledged: u64,
    /// Highest number that was ever committed, whether a start found it so or not.
    committed: u64,
    /// Records put into the log since the start.
    records: u64,
    /// The configurations among them that are not durable: number of the record, epoch.
    configs: VecDeque<(u64, u64)>,
    /// Epoch of the newest configuration that is durable, over all starts.
    config_durable: u64,
    /// Checksums of the entries' data, over all starts.
    checksums: BTreeMap<u64, u32>,
}

/// What the runner knows of all groups.
#[derive(Clone, Debug, Default)]
pub(crate) struct GroupNumbers {
    /// The epoch in which the shards order changes; rises with every start and configuration.
    epoch: u64,
    groups: BTreeMap<(usize, u32), Numbers>,
    /// Last number of each request that is not answered.
    under_way: BTreeMap<u64, (usize, u32, u64)>,
    /// Entries that are being read back, by token.
    reads: BTreeMap<u64, (usize, u32, u64)>,
}

/// The group of a layer; 0 for none.
pub(super) fn group_of(layer: u64) -> u32 {
    (layer % u64::from(GROUPS)) as u32
}

impl<S: Subject> Runner<S> {
    /// Checks what the shards know of the groups after a start, and makes them primaries of all.
    pub(super) fn open_groups(&mut self) -> Result<(), Violation> {
        self.numbers.epoch += 1;
        for shard in 0..self.shards.len() {
            for group in 1..GROUPS {
                let known = self.shards[shard].group_state(group);
                let numbers = self.numbers.groups.entry((shard, group)).or_default();
                if self.tolerance.stale {
                    // The end of the log may have been cut off.
                    numbers.acknowledged = numbers.acknowledged.min(known.last);
                    numbers.committed = numbers.committed.min(known.last);
                    numbers.config_durable = numbers.config_durable.min(known.config_epoch);
                }
                let wrong = known.last < numbers.acknowledged
                    || known.committed > known.last
                    || known.config_epoch < numbers.config_durable;
                if wrong {
                    return Err(Violation::Group(format!(
                        "group {group} of shard {shard} starts with {known:?}, but {} was acknowledged and \
                         configuration {} was durable",
                        numbers.acknowledged, numbers.config_durable
                    )));
                }
                self.counters.starts_with_tails += u64::from(known.committed < known.last);
                numbers.appended = known.last;
                numbers.records = 0;
                self.shards[shard].accept_changes(group, self.numbers.epoch);
                self.read_tail(shard, group);
            }
        }
        Ok(())
    }

    /// Reads entries back that are not known to be committed, as a new primary does for copies that lack them.
    fn read_tail(&mut self, shard: usize, group: u32) {
        let known = self.shards[shard].group_state(group);
        for sequence in known.committed + 1..=known.last {
            if self.random.chance(1, 2) {
                let token = ENTRY_TOKENS + self.next_token;
                self.next_token += 1;
                self.numbers.reads.insert(token, (shard, group, sequence));
                self.shards[shard].read_entry(RequestToken(token), group, sequence);
            }
        }
    }

    /// Whether an answer is to a read of an entry; checks it then.
    pub(super) fn entry_read(&mut self, token: u64, outcome: &Outcome) -> Result<bool, Violation> {
        let Some((shard, group, sequence)) = self.numbers.reads.remove(&token) else { return Ok(false) };
        self.progress += 1;
        let numbers = self.numbers.groups.get(&(shard, group));
        let expected = numbers.and_then(|one| one.checksums.get(&sequence));
        // What was committed is on all copies: nobody asks for it, and its segment may have been used again.
        let was_committed = numbers.is_some_and(|one| sequence <= one.committed);
        match outcome {
            Outcome::Read(data) => {
                let bytes: Vec<u8> = data.pieces.iter().filter_map(Piece::bytes).flatten().copied().collect();
                if expected.is_some_and(|expected| *expected != crc32c_bytes(&bytes)) {
                    return Err(Violation::Group(format!(
                        "entry {sequence} of group {group} came back wrong"
                    )));
                }
                self.counters.entries_read_back += 1;
                Ok(true)
            }
            Outcome::Failed(Failure::Invalid) if was_committed => Ok(true),
            _ if self.tolerance.bad_blocks || self.tolerance.read_only => Ok(true),
            other => Err(Violation::Group(format!("entry {sequence} of group {group}: {other:?}"))),
        }
    }

    /// An entry got its number.
    pub(super) fn appended(&mut self, shard: usize, entry: &Appended) -> Result<(), Violation> {
        let group = entry.origin.group;
        let crc = crc32c_bytes(&self.shards[shard].appended(entry));
        let numbers = self.numbers.groups.entry((shard, group)).or_default();
        if entry.origin.sequence != numbers.appended + 1 || entry.origin.epoch > self.numbers.epoch {
            return Err(Violation::Group(format!("{entry:?} follows number {}", numbers.appended)));
        }
        numbers.appended += 1;
        numbers.records += 1;
        numbers.checksums.insert(numbers.appended, crc);
        self.numbers.under_way.insert(entry.token.0, (shard, group, numbers.appended));
        self.counters.numbered_entries += 1;
        Ok(())
    }

    /// Entries and records are durable.
    pub(super) fn durable(&mut self, shard: usize, group: u32, records: u64) -> Result<(), Violation> {
        let numbers = self.numbers.groups.entry((shard, group)).or_default();
        if records > numbers.records {
            return Err(Violation::Group(format!("{records} of {} records are durable", numbers.records)));
        }
        while let Some((number, epoch)) = numbers.configs.front().copied()
            && number <= records
        {
            numbers.configs.pop_front();
            numbers.config_durable = epoch;
        }
        Ok(())
    }

    /// A request was answered.
    pub(super) fn note_answer(&mut self, token: u64, changed: bool) {
        let Some((shard, group, sequence)) = self.numbers.under_way.remove(&token) else { return };
        let numbers = self.numbers.groups.entry((shard, group)).or_default();
        if changed {
            numbers.acknowledged = sequence.max(numbers.acknowledged);
        }
    }

    /// Everything under way is gone.
    pub(super) fn cut_groups(&mut self) {
        self.numbers.under_way.clear();
        self.numbers.reads.clear();
        for numbers in self.numbers.groups.values_mut() {
            numbers.configs.clear();
        }
    }

    /// Persists a new configuration of a group.
    pub(super) fn submit_config(&mut self, shard: usize) {
        let group = self.random.between(1, u64::from(GROUPS) - 1) as u32;
        self.numbers.epoch += 1;
        let epoch = self.numbers.epoch;
        if !self.shards[shard].submit_config(group, epoch) {
            return;
        }
        let numbers = self.numbers.groups.entry((shard, group)).or_default();
        numbers.records += 1;
        numbers.configs.push_back((numbers.records, epoch));
        self.counters.configurations += 1;
        for shard in &mut self.shards {
            for group in 1..GROUPS {
                shard.accept_changes(group, epoch);
            }
        }
    }

    fn commit(&mut self, shard: usize, group: u32, up_to: u64) {
        self.shards[shard].commit(group, up_to);
        let numbers = self.numbers.groups.entry((shard, group)).or_default();
        numbers.committed = numbers.committed.max(up_to);
    }

    /// Commits everything that is durable. Says whether there was anything.
    pub(super) fn commit_all(&mut self) -> bool {
        let mut any = false;
        for shard in 0..self.shards.len() {
            for group in 1..GROUPS {
                let known = self.shards[shard].group_state(group);
                any |= known.committed < known.last;
                self.commit(shard, group, known.last);
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
                let known = self.shards[shard].group_state(group);
                if known.committed < known.last {
                    let all = self.random.chance(1, 2);
                    let up_to =
                        if all { known.last } else { self.random.between(known.committed, known.last) };
                    self.commit(shard, group, up_to);
                }
            }
        }
    }
}
