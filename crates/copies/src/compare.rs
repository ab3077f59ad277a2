//! Comparing copies by hashes: of a copy that comes back, when it is not known what it misses; and of copies in sync, by the
//! scrub (`verify.rs`).
//!
//! The primary goes through the chunks of the group. The other copy is asked first: what it has nothing of need not be read
//! here. It answers with a hash for each range of 16 blocks; the primary hashes the same ranges, and those that differ are
//! handed to the group, which sends them.
//!
//! Writes go on meanwhile. All of them are in the stream to the copy, which began before; the group leaves out blocks of
//! which a change was sent in it (`catch_up.rs` of `coquina_replication`). All other blocks stay as they are on both sides
//! from the begin of the stream on, so it does not matter when each side reads them.
//!
//! A hash is made of at most 256 KiB per turn of the loop, so that others need not wait long.

use std::collections::{BTreeMap, VecDeque};

use coquina_base::{BLOCK_BYTES, Hasher128};
use coquina_engine::{Failure, Operation as EngineOperation, Origin, Outcome, ReadData};
use coquina_replication::{BlockRange, CopyId, Input, Message, RecoveryToken};
use slab::Slab;

use crate::api::Sink;
use crate::drain::hash_token;
use crate::execute::ranged;
use crate::shard::{Context, ShardCopies};

/// The other copy answers [`Message::HashRead`].
pub const FEATURE_HASHES: u64 = 2;

/// Blocks of a hash.
pub(crate) const HASH_BLOCKS: u32 = 16;
/// Blocks that are read and hashed together.
const READ_BLOCKS: u32 = 64;
/// Chunks of a comparison that are under way.
const WINDOW: usize = 2;
/// Ticks that a job waits for entries: who asked has given up by then.
const TICKS_MAX: u32 = 200;
/// Requests of others that wait here.
const ASKS_MAX: usize = 4096;

/// A comparison of a whole group with a copy that comes back.
#[derive(Debug)]
struct Comparison {
    member: usize,
    copy: CopyId,
    token: RecoveryToken,
    chunks: VecDeque<BlockRange>,
    under_way: usize,
    /// Blocks of which it is not known yet whether they differ.
    left_blocks: u64,
}

/// Hashes that another copy was asked for.
#[derive(Debug)]
struct Asked {
    comparison: u64,
    range: BlockRange,
    key: u128,
}

/// Whom hashes are for.
#[derive(Clone, Debug)]
pub(crate) enum For {
    /// Another copy that asked.
    Copy { from: CopyId, id: u64 },
    /// A comparison here, with what the other copy has.
    Comparison { comparison: u64, theirs: Vec<u128> },
    /// The scrub's, by its key.
    Verification { key: u128 },
}

/// Hashes being made.
#[derive(Clone, Debug)]
pub(crate) struct HashJob {
    pub member: usize,
    pub for_whom: For,
    pub range: BlockRange,
    pub key: u128,
    /// Not before this entry is applied.
    pub at: u64,
    pub hashes: Vec<u128>,
    done_blocks: u32,
    /// Ticks that it has waited.
    ticks: u32,
}

/// All comparisons, here and for others.
#[derive(Debug, Default)]
pub(crate) struct Comparisons {
    next: u64,
    own: BTreeMap<u64, Comparison>,
    asked: BTreeMap<u64, Asked>,
    waiting: Vec<HashJob>,
    jobs: Slab<HashJob>,
    /// Jobs of which the next blocks are to be read.
    ready: VecDeque<usize>,
}

impl Comparisons {
    /// Whether something of a member is under way.
    pub(crate) fn names(&self, member: usize) -> bool {
        self.own.values().any(|one| one.member == member)
            || self.waiting.iter().any(|job| job.member == member)
            || self.jobs.iter().any(|(_, job)| job.member == member)
    }

    /// The next request's number.
    pub(crate) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Whether the next turn has something to do.
    pub(crate) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Ends comparisons here. Hashes that still come for one are nobody's, and are dropped.
    fn end(&mut self, is_over: impl Fn(&Comparison) -> bool) {
        self.own.retain(|_, one| !is_over(one));
        let own = &self.own;
        self.asked.retain(|_, asked| own.contains_key(&asked.comparison));
    }
}

impl ShardCopies {
    /// The answer to [`Sink::compare`]: all chunks that the group may have. What differs is found here.
    pub fn compare(
        &mut self,
        now_ns: u64,
        group: u32,
        copy: CopyId,
        token: RecoveryToken,
        chunks: Vec<BlockRange>,
        sink: &mut impl Sink,
    ) {
        self.advance(now_ns);
        let Some(member) = self.key_of(group) else { return };
        if !self.can_do(copy, FEATURE_HASHES) {
            let input = Input::Compared { copy, token, ranges: chunks, done: true };
            self.input(member, input, Context::None, sink);
            return self.drain(sink);
        }
        self.end_comparison_with(member, copy);
        let id = self.comparisons.number();
        let left_blocks = chunks.iter().map(|range| u64::from(range.count)).sum();
        let comparison = Comparison { member, copy, token, chunks: chunks.into(), under_way: 0, left_blocks };
        self.comparisons.own.insert(id, comparison);
        self.go_on_comparing(id, sink);
        self.drain(sink);
    }

    /// Blocks of a group that are still to be compared.
    pub fn comparing_blocks_left(&self, group: u32) -> u64 {
        let Some(member) = self.key_of(group) else { return 0 };
        let own = self.comparisons.own.values().filter(|one| one.member == member);
        own.flat_map(|one| &one.chunks).map(|range| u64::from(range.count)).sum()
    }

    /// Blocks that a group's primary has still to send to each copy that follows it again, or to compare with it. What was left of
    /// a stream grows only when it begins anew.
    pub fn returning_blocks_left(&self, group: u32) -> Vec<(CopyId, u64)> {
        let Some(member) = self.key_of(group) else { return Vec::new() };
        let left = |copy, token| {
            let is_it = |one: &&Comparison| (one.member, one.copy, one.token) == (member, copy, token);
            self.comparisons.own.values().find(is_it).map(|one| one.left_blocks)
        };
        let streams = self.members[member].group.streams();
        let blocks_left = streams.filter_map(|stream| {
            // How much a comparison is that has not begun is not known.
            let compared = stream.comparing.map_or(Some(0), |token| left(stream.copy, token))?;
            Some((stream.copy, stream.todo.blocks() + stream.under_way_blocks + compared))
        });
        blocks_left.collect()
    }

    /// A copy begins anew with a group: what it was asked before, it has not heard. The group, which has the copy's return
    /// begin anew as well, asks for another comparison if it needs one.
    pub(crate) fn end_comparison_with(&mut self, member: usize, copy: CopyId) {
        self.comparisons.end(|one| one.member == member && one.copy == copy);
    }

    /// Asks for the hashes of the next chunks.
    fn go_on_comparing(&mut self, id: u64, sink: &mut impl Sink) {
        loop {
            let Some(one) = self.comparisons.own.get_mut(&id) else { return };
            if one.under_way >= WINDOW {
                return;
            }
            let (member, copy, token) = (one.member, one.copy, one.token);
            let Some(range) = one.chunks.pop_front() else {
                if one.under_way == 0 {
                    self.comparisons.own.remove(&id);
                    let input = Input::Compared { copy, token, ranges: Vec::new(), done: true };
                    self.input(member, input, Context::None, sink);
                }
                return;
            };
            one.under_way += 1;
            let compare = self.comparisons.number();
            let key = u128::from(self.now_ns) << 64 | u128::from(compare);
            self.comparisons.asked.insert(compare, Asked { comparison: id, range, key });
            let config_epoch = self.members[member].group.config().epoch;
            let message = Message::HashRead { config_epoch, compare, at: 0, range, key };
            self.send(member, copy, message, Context::None, sink);
        }
    }

    /// A chunk has been compared, and some ranges of it differ.
    fn compared_chunk(&mut self, id: u64, chunk: BlockRange, ranges: Vec<BlockRange>, sink: &mut impl Sink) {
        let Some(one) = self.comparisons.own.get_mut(&id) else { return };
        one.under_way -= 1;
        one.left_blocks = one.left_blocks.saturating_sub(u64::from(chunk.count));
        let (member, copy, token) = (one.member, one.copy, one.token);
        if !ranges.is_empty() {
            let input = Input::Compared { copy, token, ranges, done: false };
            self.input(member, input, Context::None, sink);
        }
        self.go_on_comparing(id, sink);
    }

    /// Takes what another copy says about hashes; says whether the message was such.
    pub(crate) fn receive_hashes(
        &mut self,
        key: usize,
        from: CopyId,
        message: &mut Message,
        sink: &mut impl Sink,
    ) -> bool {
        match message {
            Message::HashRead { config_epoch, compare, at, range, key: hash_key } => {
                let for_whom = For::Copy { from, id: *compare };
                let job = HashJob::new(key, for_whom, *range, *hash_key, *at);
                let epoch = self.members[key].group.config().epoch;
                if epoch != *config_epoch || self.comparisons.waiting.len() >= ASKS_MAX {
                    let message = Message::HashRefused { config_epoch: epoch, compare: *compare };
                    self.send(key, from, message, Context::None, sink);
                } else {
                    self.add_job(job, sink);
                }
            }
            Message::Hashes { compare, range, hashes, .. } => {
                let Some(asked) = self.comparisons.asked.remove(compare) else {
                    self.verify_hashes(*compare, from, Some(std::mem::take(hashes)), sink);
                    return true;
                };
                if asked.range != *range {
                    self.compared_chunk(asked.comparison, asked.range, vec![asked.range], sink);
                    return true;
                }
                self.take_hashes(key, asked, std::mem::take(hashes), sink);
            }
            Message::HashRefused { compare, .. } => match self.comparisons.asked.remove(compare) {
                Some(asked) => self.compared_chunk(asked.comparison, asked.range, vec![asked.range], sink),
                None => self.verify_hashes(*compare, from, None, sink),
            },
            _ => return false,
        }
        true
    }

    fn take_hashes(&mut self, member: usize, asked: Asked, theirs: Vec<u128>, sink: &mut impl Sink) {
        let is_here = self.has_chunk(&asked.range);
        let parts = asked.range.count.div_ceil(HASH_BLOCKS) as usize;
        if !is_here || theirs.len() != parts {
            // Nothing is there, or nothing here: all of it, or none.
            let is_same = !is_here && theirs.is_empty();
            let ranges = if is_same { Vec::new() } else { vec![asked.range] };
            return self.compared_chunk(asked.comparison, asked.range, ranges, sink);
        }
        let for_whom = For::Comparison { comparison: asked.comparison, theirs };
        self.add_job(HashJob::new(member, for_whom, asked.range, asked.key, 0), sink);
    }

    /// Makes hashes, as soon as this copy has what they are to be made of.
    pub(crate) fn add_job(&mut self, job: HashJob, sink: &mut impl Sink) {
        let member = job.member;
        self.comparisons.waiting.push(job);
        self.begin_hashes(member, sink);
    }

    pub(crate) fn has_chunk(&self, range: &BlockRange) -> bool {
        self.shard.next_chunk(range.layer, range.chunk) == Some(range.chunk)
    }

    /// Begins with hashes that waited for entries to be applied.
    pub(crate) fn begin_hashes(&mut self, key: usize, sink: &mut impl Sink) {
        if self.comparisons.waiting.is_empty() {
            return;
        }
        let last = self.shard.group(self.members[key].number).map_or(0, |group| group.last);
        let is_due = |job: &mut HashJob| job.member == key && job.at <= last;
        let due: Vec<HashJob> = self.comparisons.waiting.extract_if(.., is_due).collect();
        for job in due {
            if self.has_chunk(&job.range) {
                let slot = self.comparisons.jobs.insert(job);
                self.comparisons.ready.push_back(slot);
            } else {
                self.hashes_made(job, true, sink);
            }
        }
    }

    /// Reads the next blocks of one job.
    pub(crate) fn hash_step(&mut self) {
        let Some(slot) = self.comparisons.ready.pop_front() else { return };
        let job = &self.comparisons.jobs[slot];
        let first = job.range.first + job.done_blocks;
        let count = (job.range.count - job.done_blocks).min(READ_BLOCKS);
        let range = BlockRange { first, count, ..job.range };
        // Without a group: what is applied is read at once, whether it is committed or not.
        self.shard.submit(ranged(range, hash_token(slot), Origin::default(), EngineOperation::Read));
    }

    /// Blocks of a job have been read.
    pub(crate) fn hash_read_done(&mut self, slot: usize, outcome: Outcome, sink: &mut impl Sink) {
        let job = &mut self.comparisons.jobs[slot];
        let count = (job.range.count - job.done_blocks).min(READ_BLOCKS);
        let is_good = match &outcome {
            Outcome::Read(data) => {
                job.add(data);
                true
            }
            // The layer has been deleted: its blocks are holes.
            Outcome::Failed(Failure::Invalid) => {
                job.add(&ReadData::default());
                true
            }
            _ => false,
        };
        job.done_blocks += count;
        let is_over = job.done_blocks >= job.range.count;
        if let Outcome::Read(data) = outcome {
            self.shard.recycle(data);
        }
        if !is_good || is_over {
            let job = self.comparisons.jobs.remove(slot);
            self.hashes_made(job, is_good, sink);
        } else {
            self.comparisons.ready.push_back(slot);
        }
    }

    /// Hashes are complete, or a block cannot be read.
    fn hashes_made(&mut self, job: HashJob, is_good: bool, sink: &mut impl Sink) {
        let config_epoch = self.members[job.member].group.config().epoch;
        match job.for_whom {
            For::Copy { from, id } => {
                let (compare, range, hashes) = (id, job.range, job.hashes);
                let message = match is_good {
                    true => Message::Hashes { config_epoch, compare, range, hashes },
                    false => Message::HashRefused { config_epoch, compare },
                };
                self.send(job.member, from, message, Context::None, sink);
            }
            For::Verification { key } => self.verify_own(key, is_good.then_some(job.hashes), sink),
            For::Comparison { comparison, theirs } => {
                let ranges = match is_good {
                    true => differing(job.range, &job.hashes, &theirs),
                    false => vec![job.range],
                };
                self.compared_chunk(comparison, job.range, ranges, sink);
            }
        }
    }

    /// Time has passed: what waits for entries that do not come is dropped, and so are comparisons that nobody wants any more.
    /// A group wants one only as long as it serves and the copy is out: a copy that is no member any more may never answer,
    /// and as long as a comparison is under way, its group is not forgotten.
    pub(crate) fn comparisons_tick(&mut self) {
        let members = &self.members;
        self.comparisons.end(|one| {
            let group = &members[one.member].group;
            !group.is_serving() || !group.config().is_out(one.copy)
        });
        self.comparisons.waiting.retain_mut(|job| {
            job.ticks += 1;
            job.ticks < TICKS_MAX
        });
    }

    /// A copy is gone: what was to be compared with it is asked anew when it is back.
    pub(crate) fn comparisons_disconnected(&mut self, copy: CopyId) {
        self.comparisons.end(|one| one.copy == copy);
        let is_for = |job: &HashJob| matches!(job.for_whom, For::Copy { from, .. } if from == copy);
        self.comparisons.waiting.retain(|job| !is_for(job));
    }

    /// A group has stopped here.
    pub(crate) fn end_comparisons_of(&mut self, key: usize) {
        self.comparisons.end(|one| one.member == key);
        self.comparisons.waiting.retain(|job| job.member != key);
    }
}

impl HashJob {
    pub(crate) fn new(member: usize, for_whom: For, range: BlockRange, key: u128, at: u64) -> HashJob {
        HashJob { member, for_whom, range, key, at, hashes: Vec::new(), done_blocks: 0, ticks: 0 }
    }

    /// Adds the hashes of blocks that were read; what is missing at the end is holes.
    fn add(&mut self, data: &ReadData) {
        let count = (self.range.count - self.done_blocks).min(READ_BLOCKS);
        let mut pieces = Pieces { data, piece: 0, block: 0 };
        let mut done = 0;
        while done < count {
            let part = (count - done).min(HASH_BLOCKS);
            let mut hasher = Hasher128::new(self.key);
            (0..part).for_each(|_| add_block(&mut hasher, pieces.next_block()));
            self.hashes.push(hasher.finish());
            done += part;
        }
    }
}

/// Adds a block, or that there is a hole: that reads as zeros, but zeros that were written keep their room.
pub(crate) fn add_block(hasher: &mut Hasher128, block: Option<&[u8]>) {
    hasher.add_word(u64::from(block.is_some()));
    block.into_iter().for_each(|block| hasher.add(block));
}

/// The blocks of what was read.
struct Pieces<'a> {
    data: &'a ReadData,
    piece: usize,
    block: usize,
}

impl<'a> Pieces<'a> {
    /// The next block; none for a hole, and behind the end.
    fn next_block(&mut self) -> Option<&'a [u8]> {
        let piece = self.data.pieces.get(self.piece)?;
        let at = self.block * BLOCK_BYTES;
        let bytes = piece.bytes().and_then(|bytes| bytes.get(at..at + BLOCK_BYTES));
        self.block += 1;
        if self.block * BLOCK_BYTES >= piece.length_bytes() {
            (self.piece, self.block) = (self.piece + 1, 0);
        }
        bytes
    }
}

/// The ranges whose hashes differ, side by side ones joined.
fn differing(range: BlockRange, own: &[u128], theirs: &[u128]) -> Vec<BlockRange> {
    if own.len() != theirs.len() {
        return vec![range];
    }
    let mut ranges: Vec<BlockRange> = Vec::new();
    for (part, (own, theirs)) in own.iter().zip(theirs).enumerate() {
        if own == theirs {
            continue;
        }
        let first = range.first + part as u32 * HASH_BLOCKS;
        let count = HASH_BLOCKS.min(range.end() - first);
        match ranges.last_mut() {
            Some(last) if last.end() == first => last.count += count,
            _ => ranges.push(BlockRange { first, count, ..range }),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_that_differs_is_named() {
        let of = |first, count| BlockRange { layer: coquina_base::LayerId(1), chunk: 3, first, count };
        let range = of(32, 40);
        let found = |theirs: &[u128]| differing(range, &[1, 2, 3], theirs);
        assert_eq!(found(&[1, 2, 3]), []);
        assert_eq!(found(&[9, 2, 3]), [of(32, 16)]);
        assert_eq!(found(&[1, 2, 9]), [of(64, 8)], "the last part is as long as the range");
        assert_eq!(found(&[9, 2, 9]), [of(32, 16), of(64, 8)]);
        assert_eq!(found(&[1, 9, 9]), [of(48, 24)]);
        assert_eq!(found(&[1, 2]), [range], "hashes that are missing say nothing");
    }
}
