//! The scrub across copies: the primary of a group compares the chunks that it has with those of all others in sync, by the
//! same hashes as `compare.rs`, chunk after chunk at a bounded rate.
//!
//! All copies hash a chunk when they have applied the last entry that the primary had in its log at the begin. What is
//! written from then on is noted, and ranges of it are left out: any later change that another copy may have applied went
//! through the primary's log first. What still differs is compared once more at the end of the pass, since a layer that
//! is being deleted goes from one copy earlier than from another, and then reported. It is not mended: all
//! checksums are good, so nobody can tell which is right. A block whose checksum is not good is got from another copy when
//! it is read to be hashed.

use std::collections::{BTreeMap, VecDeque};

use coquina_base::{Hasher128, LayerId};
use coquina_engine::ShardStats;
use coquina_replication::{BlockRange, Config, CopyId, Message};

use crate::api::{Event, Sink};
use crate::compare::{FEATURE_HASHES, For, HASH_BLOCKS, HashJob, add_block};
use crate::shard::{Context, ShardCopies};

/// Chunks passed over per turn of the loop.
const SKIPPED_MAX: usize = 64;
/// A chunk that takes longer is left to the next pass.
const CHUNK_NS_MAX: u64 = 10_000_000_000;
/// Chunks that are kept in mind to be looked at again.
const SUSPECTED_MAX: usize = 4096;
/// When.
const AGAIN_NS: u64 = 10_000_000_000;
/// Bytes per second of each copy.
const BYTES_PER_S: u64 = 32 << 20;
/// Progress while only copies are still being compared, in parts of 10,000.
const VERIFYING: u32 = 9_900;
const CHUNK_BLOCKS: u32 = coquina_base::CHUNK_BLOCKS;

/// A chunk that is being compared.
#[derive(Debug)]
struct Chunk {
    member: usize,
    epoch: u64,
    range: BlockRange,
    /// Number of the requests.
    compare: u64,
    key: u128,
    own: Option<Vec<u128>>,
    /// Of each copy that was asked.
    theirs: BTreeMap<CopyId, Option<Vec<u128>>>,
    /// A bit for each range that was changed since the begin.
    touched: u64,
    /// Ranges that differed the first time, by copy.
    suspects: Option<BTreeMap<CopyId, u64>>,
    until_ns: u64,
}

/// A pass of the scrub across copies.
#[derive(Debug, Default)]
pub(crate) struct Verification {
    running: bool,
    /// Nobody was told yet that the scrub is over.
    is_untold: bool,
    /// Where to go on; no chunk behind the last one that a layer can have. Layers are numbered from 1.
    layer: u64,
    chunk: Option<u32>,
    current: Option<Chunk>,
    wake_ns: u64,
    /// Chunks that differed, with the time.
    suspected: VecDeque<(BlockRange, BTreeMap<CopyId, u64>, u64)>,
    /// Ranges known to differ, a bit each, by chunk and copy, with the group.
    differing: BTreeMap<(u64, u32, CopyId), (u32, u64)>,
}

impl Verification {
    /// Whether something of a member is under way.
    pub(crate) fn names(&self, member: usize) -> bool {
        self.current.as_ref().is_some_and(|chunk| chunk.member == member)
    }

    /// When to go on.
    pub(crate) fn wake_ns(&self) -> Option<u64> {
        (self.running && self.current.is_none()).then_some(self.wake_ns)
    }
}

impl ShardCopies {
    /// Scrubs the drive and compares with other copies what this one is the primary of; what runs already goes on.
    pub fn start_scrub(&mut self) {
        self.shard.start_scrub();
        if self.verification.running {
            return;
        }
        // What differed and is compared by no pass here any more would be told of for ever.
        let mut differing = std::mem::take(&mut self.verification.differing);
        differing.retain(|(layer, chunk, copy), (number, _)| {
            let range = BlockRange { layer: LayerId(*layer), chunk: *chunk, first: 0, count: CHUNK_BLOCKS };
            let config = self.group(*number).map(|group| group.config());
            config.is_some_and(|config| is_compared(config, self.copy, *copy)) && self.has_chunk(&range)
        });
        self.verification =
            Verification { running: true, is_untold: true, differing, ..Verification::default() };
    }

    /// Tells that a scrub is over.
    pub(crate) fn end_scrub(&mut self, sink: &mut impl Sink) {
        if !self.verification.is_untold || self.verification.running || self.shard.is_scrubbing() {
            return;
        }
        self.verification.is_untold = false;
        if let Some(report) = self.shard.scrub_report() {
            sink.event(Event::Scrubbed(report));
        }
    }

    /// The engine's figures; a scrub is over when copies have been compared, too.
    pub fn stats(&self) -> ShardStats {
        let mut stats = self.shard.stats();
        if self.verification.running {
            stats.scrub_progress = Some(stats.scrub_progress.unwrap_or(VERIFYING).min(VERIFYING));
        }
        stats
    }

    /// Blocks of a group, in ranges of 16, of which copies in sync hold different data with good checksums.
    pub fn differing_blocks(&self, group: u32) -> u64 {
        let of_group = self.verification.differing.values().filter(|(number, _)| *number == group);
        of_group.map(|(_, ranges)| u64::from(ranges.count_ones() * HASH_BLOCKS)).sum()
    }

    /// Notes a change that has gone into the log here.
    pub(crate) fn note_touched(&mut self, range: &BlockRange) {
        let Some(chunk) = &mut self.verification.current else { return };
        if chunk.range.layer == range.layer && chunk.range.chunk == range.chunk && range.count > 0 {
            let last = (range.end() - 1).min(CHUNK_BLOCKS - 1) / HASH_BLOCKS;
            (range.first / HASH_BLOCKS..=last).for_each(|part| chunk.touched |= 1 << part);
        }
    }

    /// Goes on to the next chunk.
    pub(crate) fn verify_step(&mut self, sink: &mut impl Sink) {
        if !self.verification.running {
            return;
        }
        if self.verification.current.as_ref().is_some_and(|chunk| self.now_ns >= chunk.until_ns) {
            self.leave_chunk();
        }
        for _ in 0..SKIPPED_MAX {
            if self.verification.current.is_some() || self.now_ns < self.verification.wake_ns {
                return;
            }
            let (layer, from) = (LayerId(self.verification.layer), self.verification.chunk);
            let Some(chunk) = from.and_then(|from| self.shard.next_chunk(layer, from)) else {
                let next = self.shard.layers().into_iter().find(|next| *next > layer);
                let Some(next) = next else { return self.look_again(sink) };
                (self.verification.layer, self.verification.chunk) = (next.0, Some(0));
                continue;
            };
            self.verification.chunk = chunk.checked_add(1);
            let range = BlockRange { layer, chunk, first: 0, count: CHUNK_BLOCKS };
            self.begin_chunk(range, None, sink);
        }
    }

    /// All chunks have been compared: looks once more at what differed.
    fn look_again(&mut self, sink: &mut impl Sink) {
        let due_ns = self.verification.suspected.front().map(|(_, _, since_ns)| since_ns + AGAIN_NS);
        if let Some(due_ns) = due_ns.filter(|due_ns| self.now_ns < *due_ns) {
            self.verification.wake_ns = due_ns;
            return;
        }
        match self.verification.suspected.pop_front() {
            Some((range, suspects, _)) => self.begin_chunk(range, Some(suspects), sink),
            None => self.verification.running = false,
        }
    }

    fn begin_chunk(
        &mut self,
        range: BlockRange,
        suspects: Option<BTreeMap<CopyId, u64>>,
        sink: &mut impl Sink,
    ) {
        let number = sink.group_of(range.layer, range.chunk);
        let Some(member) = number.and_then(|number| self.key_of(number)) else { return };
        let one = &self.members[member];
        let config = one.group.config();
        if one.halted || !one.group.is_serving() {
            return;
        }
        let others = config.in_sync.iter().filter(|copy| **copy != self.copy);
        let asked =
            others.filter(|copy| one.lanes.contains_key(*copy) && self.can_do(**copy, FEATURE_HASHES));
        let theirs: BTreeMap<CopyId, _> = asked.map(|copy| (*copy, None)).collect();
        if theirs.is_empty() {
            return;
        }
        // What is in the log already counts as before, though it may not be durable.
        let (at, config_epoch) = (one.group.last(), config.epoch);
        let compare = self.comparisons.number();
        let key = u128::from(self.now_ns) << 64 | u128::from(compare);
        let until_ns = self.now_ns + CHUNK_NS_MAX;
        let copies: Vec<CopyId> = theirs.keys().copied().collect();
        self.verification.current = Some(Chunk {
            member,
            epoch: config_epoch,
            range,
            compare,
            key,
            own: None,
            theirs,
            touched: 0,
            suspects,
            until_ns,
        });
        for copy in copies {
            let message = Message::HashRead { config_epoch, compare, at, range, key };
            self.send(member, copy, message, Context::None, sink);
        }
        self.add_job(HashJob::new(member, For::Verification { key }, range, key, at), sink);
    }

    /// Takes the hashes of a copy, or that it gives none.
    pub(crate) fn verify_hashes(
        &mut self,
        compare: u64,
        from: CopyId,
        hashes: Option<Vec<u128>>,
        sink: &mut impl Sink,
    ) {
        let Some(chunk) = &mut self.verification.current else { return };
        if chunk.compare != compare || !chunk.theirs.contains_key(&from) {
            return;
        }
        match hashes {
            Some(hashes) => drop(chunk.theirs.insert(from, Some(hashes))),
            None => drop(chunk.theirs.remove(&from)),
        }
        self.end_chunk(sink);
    }

    /// This copy's own hashes are there, or a block of it cannot be read.
    pub(crate) fn verify_own(&mut self, key: u128, hashes: Option<Vec<u128>>, sink: &mut impl Sink) {
        let Some(chunk) = self.verification.current.as_mut().filter(|chunk| chunk.key == key) else { return };
        match hashes {
            Some(hashes) => {
                chunk.own = Some(hashes);
                self.end_chunk(sink);
            }
            None => self.leave_chunk(),
        }
    }

    fn leave_chunk(&mut self) {
        self.verification.current = None;
        let pause_ns = coquina_base::CHUNK_BYTES * 1_000_000_000 / BYTES_PER_S;
        self.verification.wake_ns = self.now_ns + pause_ns;
    }

    /// Compares, once all hashes are there.
    fn end_chunk(&mut self, sink: &mut impl Sink) {
        let Some(chunk) = &self.verification.current else { return };
        let Some(own) = &chunk.own else { return };
        if chunk.theirs.values().any(Option::is_none) {
            return;
        }
        let parts = CHUNK_BLOCKS.div_ceil(HASH_BLOCKS) as usize;
        let hole = hole_hash(chunk.key);
        let mut found = BTreeMap::new();
        for (copy, theirs) in &chunk.theirs {
            let hash = |hashes: &[u128], part: usize| hashes.get(part).copied().unwrap_or(hole);
            let theirs = theirs.as_deref().unwrap_or_default();
            let differs = (0..parts).filter(|part| hash(own, *part) != hash(theirs, *part));
            let bits = differs.fold(0u64, |bits, part| bits | 1 << part) & !chunk.touched;
            found.insert(*copy, bits);
        }
        let (member, epoch, range) = (chunk.member, chunk.epoch, chunk.range);
        let suspects = chunk.suspects.clone();
        self.leave_chunk();
        let group = &self.members[member].group;
        if !group.is_serving() || group.config().epoch != epoch {
            return;
        }
        let is_new = suspects.is_none() && found.values().any(|bits| *bits != 0);
        if !is_new {
            self.report_differing(member, range, &found, suspects.as_ref(), sink);
        } else if self.verification.suspected.len() < SUSPECTED_MAX {
            self.verification.suspected.push_back((range, found, self.now_ns));
        }
    }

    /// What differed twice is told of; what does not any more is forgotten.
    fn report_differing(
        &mut self,
        member: usize,
        range: BlockRange,
        found: &BTreeMap<CopyId, u64>,
        suspects: Option<&BTreeMap<CopyId, u64>>,
        sink: &mut impl Sink,
    ) {
        let group = self.members[member].number;
        for (copy, bits) in found {
            let before = suspects.and_then(|suspects| suspects.get(copy)).copied().unwrap_or(0);
            let bits = bits & before;
            let place = (range.layer.0, range.chunk, *copy);
            let known = self.verification.differing.remove(&place).map_or(0, |(_, bits)| bits);
            if bits != 0 {
                self.verification.differing.insert(place, (group, bits));
            }
            if bits & !known != 0 {
                let first = bits.trailing_zeros() * HASH_BLOCKS;
                let blocks = bits.count_ones() * HASH_BLOCKS;
                sink.event(Event::CopiesDiffer {
                    group,
                    copy: *copy,
                    range: BlockRange { first, count: HASH_BLOCKS, ..range },
                    blocks,
                });
            }
        }
    }

    /// A copy is gone, or a group has stopped: the chunk is left to the next pass.
    pub(crate) fn end_verification(
        &mut self,
        is_over: impl Fn(usize, &BTreeMap<CopyId, Option<Vec<u128>>>) -> bool,
    ) {
        if self.verification.current.as_ref().is_some_and(|chunk| is_over(chunk.member, &chunk.theirs)) {
            self.leave_chunk();
        }
    }
}

/// Whether scrubs of `own` compare `copy`, now or when it is back.
fn is_compared(config: &Config, own: CopyId, copy: CopyId) -> bool {
    config.primary() == Some(own) && (config.is_in_sync(copy) || config.is_out(copy))
}

/// The hash of a range of holes.
fn hole_hash(key: u128) -> u128 {
    let mut hasher = Hasher128::new(key);
    (0..HASH_BLOCKS).for_each(|_| add_block(&mut hasher, None));
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_copy_held_that_is_gone_is_not_told_of_for_ever() {
        let (own, other, third) = (CopyId(1), CopyId(2), CopyId(3));
        let is_compared = |in_sync: &[CopyId], others: &[CopyId]| {
            let (in_sync, others) = (in_sync.to_vec(), others.to_vec());
            is_compared(&Config { epoch: 1, in_sync, others, min_copies: 1 }, own, other)
        };
        assert!(is_compared(&[own, other], &[]));
        assert!(is_compared(&[own, third], &[other]), "it comes back as it was");
        assert!(!is_compared(&[own, third], &[]));
        assert!(!is_compared(&[other, own], &[]), "that is up to its primary");
    }
}
