//! Placement groups: what a copy of each knows of the order of its changes.
//!
//! A group's changes are numbered without gaps by its primary. A copy puts them into its log in the order of the numbers
//! and applies them to the index when they are durable, as any entry. It does not know then whether all other copies have
//! them: until it is told so ([`Shard::commit`]), they are *uncommitted*. There is no undo: should another primary decide
//! that they never happened, their blocks are fetched again. So a group keeps the list of its uncommitted entries, and
//! reads of blocks that they changed wait until they are committed.
//!
//! Invariants:
//! - `committed <= last <= appended`; all three only grow;
//! - entries in the log have the numbers 1, 2, 3, ... in this order, with epochs that never fall;
//! - `tail` holds exactly the applied entries above `committed`;
//! - a segment that holds an entry of a tail is not used again.

use std::collections::VecDeque;

use coquina_base::BLOCK_BYTES;

use crate::api::{ChangeKind, Failure, RequestToken};
use crate::frame::{Entry, EntryGroup, EntryKind, FrameHeader};
use crate::hash::FixedState;
use crate::segment::SegmentState;
use crate::session::Sessions;
use crate::shard::{OwnedRequest, Shard};

/// A part of a chunk that a read or an entry covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockRange {
    /// The layer.
    pub layer: u64,
    /// The chunk.
    pub chunk: u32,
    /// First block within the chunk.
    pub start_block: u32,
    /// How many blocks.
    pub blocks: u32,
}

impl BlockRange {
    /// The blocks that a request touches.
    pub(crate) fn of(request: &crate::api::Request<'_>) -> BlockRange {
        let start_block = request.offset_bytes / BLOCK_BYTES as u32;
        let end = (request.offset_bytes + request.length_bytes).div_ceil(BLOCK_BYTES as u32);
        let (layer, chunk) = (request.layer.0, request.chunk);
        BlockRange { layer, chunk, start_block, blocks: end - start_block }
    }

    fn overlaps(&self, other: &BlockRange) -> bool {
        (self.layer, self.chunk) == (other.layer, other.chunk)
            && self.start_block < other.start_block + other.blocks
            && other.start_block < self.start_block + self.blocks
    }
}

/// From this sequence number on, entries were ordered in this epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EpochStart {
    /// The epoch.
    pub epoch: u64,
    /// Sequence number of its first entry.
    pub first_sequence: u64,
}

/// An entry that is durable here and not known to be committed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TailEntry {
    /// Its sequence number.
    pub sequence: u64,
    /// The epoch in which it was ordered.
    pub epoch: u64,
    /// The client's session; 0 for none.
    pub session: u64,
    /// The client's request number.
    pub request: u64,
    /// What it changed.
    pub range: BlockRange,
    /// What it does.
    pub kind: ChangeKind,
    /// Whether it is the request's last entry.
    pub is_last: bool,
    /// Location of the header of its frame.
    pub(crate) location: u64,
    /// Generation of the frame's segment.
    pub(crate) generation: u64,
    /// Whether its segment is kept for it.
    pinned: bool,
}

/// Bytes of a tail entry in a checkpoint.
const TAIL_BYTES: usize = 72;

/// A read that waits for changes to be committed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitingRead {
    pub(crate) token: RequestToken,
    pub(crate) range: BlockRange,
    pub(crate) offset_bytes: u32,
    pub(crate) length_bytes: u32,
    pub(crate) is_map: bool,
    /// How often it was found that it must wait on.
    rounds: u32,
}

impl WaitingRead {
    pub(crate) fn new(request: &crate::api::Request<'_>) -> WaitingRead {
        WaitingRead {
            token: request.token,
            range: BlockRange::of(request),
            offset_bytes: request.offset_bytes,
            length_bytes: request.length_bytes,
            is_map: matches!(request.operation, crate::api::Operation::Map),
            rounds: 0,
        }
    }
}

/// Rounds after which later changes of the same blocks wait for a read, so that it ends.
const ROUNDS_MAX: u32 = 2;

/// A group's copy on this shard.
#[derive(Default)]
pub struct Group {
    /// The epoch of new changes, where this copy is the primary.
    accepting: Option<u64>,
    /// Highest sequence number put into the log.
    appended: u64,
    /// Its epoch.
    appended_epoch: u64,
    /// Highest sequence number applied.
    last: u64,
    /// Highest sequence number that is known to be on all copies.
    committed: u64,
    /// Highest sequence number of which that was said, whether it is here or not.
    told: u64,
    history: Vec<EpochStart>,
    tail: VecDeque<TailEntry>,
    /// Which requests have taken effect.
    pub(crate) sessions: Sessions,
    pub(crate) waiting: Vec<WaitingRead>,
    /// Changes that wait for such a read.
    pub(crate) behind: Vec<OwnedRequest>,
}

/// What a copy of a group knows.
#[derive(Clone, Copy, Debug)]
pub struct GroupView<'a> {
    /// Highest sequence number that is durable here, with all before it.
    pub last: u64,
    /// Highest sequence number that is known to be on all copies; not above `last`.
    pub committed: u64,
    /// The epochs of the entries, in order.
    pub history: &'a [EpochStart],
    /// The entries above `committed`, in order.
    pub tail: &'a VecDeque<TailEntry>,
}

impl Group {
    /// Sets the epoch in which new changes are ordered, or none.
    pub(crate) fn accept(&mut self, epoch: Option<u64>) {
        assert!(epoch.is_none_or(|epoch| epoch >= self.appended_epoch), "a group's epochs never fall");
        self.accepting = epoch;
    }

    /// The epoch for a new change.
    pub(crate) fn accepts(&self) -> Option<u64> {
        self.accepting
    }

    /// The number of the next entry.
    pub(crate) fn next_sequence(&self) -> u64 {
        self.appended + 1
    }

    /// Numbers an entry of this epoch that goes into the log now.
    pub(crate) fn number(&mut self, epoch: u64) -> u64 {
        assert!(epoch >= self.appended_epoch, "a group's epochs never fall");
        self.appended += 1;
        self.appended_epoch = epoch;
        self.appended
    }

    /// As the next entry's group, for knowing how much room it needs.
    pub(crate) fn entry_group(&self, group: u32, epoch: u64) -> EntryGroup {
        EntryGroup { group, epoch, committed: self.committed }
    }

    fn view(&self) -> GroupView<'_> {
        GroupView { last: self.last, committed: self.committed, history: &self.history, tail: &self.tail }
    }

    fn is_uncommitted(&self, range: &BlockRange) -> bool {
        self.tail.iter().any(|entry| entry.range.overlaps(range))
    }

    /// Whether a change must let a read go first.
    fn must_wait(&self, range: &BlockRange) -> bool {
        self.waiting.iter().any(|read| read.rounds >= ROUNDS_MAX && read.range.overlaps(range))
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.last.to_le_bytes());
        out.extend_from_slice(&self.committed.to_le_bytes());
        out.extend_from_slice(&(self.history.len() as u32).to_le_bytes());
        out.extend_from_slice(&(self.tail.len() as u32).to_le_bytes());
        for start in &self.history {
            out.extend_from_slice(&start.epoch.to_le_bytes());
            out.extend_from_slice(&start.first_sequence.to_le_bytes());
        }
        for entry in &self.tail {
            entry.encode(out);
        }
        let at = out.len();
        out.extend_from_slice(&[0; 8]);
        self.sessions.encode(out);
        let length = (out.len() - at - 8) as u64;
        out[at..at + 8].copy_from_slice(&length.to_le_bytes());
    }

    fn decode(bytes: &mut &[u8]) -> Option<Group> {
        let (last, committed) = (long(bytes)?, long(bytes)?);
        let (epochs, entries) = (word(bytes)? as usize, word(bytes)? as usize);
        let mut group = Group { last, committed, told: committed, appended: last, ..Group::default() };
        if epochs.checked_mul(16)?.checked_add(entries.checked_mul(TAIL_BYTES)?)? > bytes.len() {
            return None;
        }
        for _ in 0..epochs {
            group.history.push(EpochStart { epoch: long(bytes)?, first_sequence: long(bytes)? });
        }
        for _ in 0..entries {
            group.tail.push_back(TailEntry::decode(bytes)?);
        }
        let length = usize::try_from(long(bytes)?).ok()?;
        let (sessions, rest) = bytes.split_at_checked(length)?;
        group.sessions = Sessions::decode(sessions)?;
        *bytes = rest;
        group.appended_epoch = group.history.last().map_or(0, |start| start.epoch);
        let right = committed <= last
            && group.history.is_sorted_by_key(|start| (start.epoch, start.first_sequence))
            && group.tail.len() as u64 == last - committed
            && group.tail.iter().map(|entry| entry.sequence).eq(committed + 1..=last);
        right.then_some(group)
    }
}

fn long(bytes: &mut &[u8]) -> Option<u64> {
    let (taken, rest) = bytes.split_first_chunk::<8>()?;
    *bytes = rest;
    Some(u64::from_le_bytes(*taken))
}

fn word(bytes: &mut &[u8]) -> Option<u32> {
    let (taken, rest) = bytes.split_first_chunk::<4>()?;
    *bytes = rest;
    Some(u32::from_le_bytes(*taken))
}

impl TailEntry {
    fn encode(&self, out: &mut Vec<u8>) {
        let kind = match self.kind {
            ChangeKind::Write => 1u16,
            ChangeKind::Trim => 2,
            ChangeKind::Zeroes => 3,
        };
        let longs = [
            self.sequence,
            self.epoch,
            self.session,
            self.request,
            self.range.layer,
            self.location,
            self.generation,
        ];
        longs.iter().for_each(|long| out.extend_from_slice(&long.to_le_bytes()));
        out.extend_from_slice(&self.range.chunk.to_le_bytes());
        out.extend_from_slice(&self.range.start_block.to_le_bytes());
        out.extend_from_slice(&self.range.blocks.to_le_bytes());
        out.extend_from_slice(&kind.to_le_bytes());
        out.extend_from_slice(&u16::from(self.is_last).to_le_bytes());
    }

    fn decode(bytes: &mut &[u8]) -> Option<TailEntry> {
        let (sequence, epoch, session, request) = (long(bytes)?, long(bytes)?, long(bytes)?, long(bytes)?);
        let (layer, location, generation) = (long(bytes)?, long(bytes)?, long(bytes)?);
        let range =
            BlockRange { layer, chunk: word(bytes)?, start_block: word(bytes)?, blocks: word(bytes)? };
        let rest = word(bytes)?;
        let kind = match rest & 0xffff {
            1 => ChangeKind::Write,
            2 => ChangeKind::Trim,
            3 => ChangeKind::Zeroes,
            _ => return None,
        };
        let end = range.start_block.checked_add(range.blocks)?;
        let in_chunk = range.blocks > 0 && end <= coquina_base::CHUNK_BLOCKS;
        in_chunk.then_some(TailEntry {
            sequence,
            epoch,
            session,
            request,
            range,
            kind,
            is_last: rest >> 16 != 0,
            location,
            generation,
            pinned: false,
        })
    }
}

/// All groups of a shard, by number.
#[derive(Default)]
pub struct Groups {
    groups: hashbrown::HashMap<u32, Group, FixedState>,
    /// Tail entries of all groups: 0 lets reads pass without a look.
    tail_entries: usize,
    /// Reads and changes that wait, of all groups.
    waiting: usize,
    /// Groups of which something was committed by a frame that is being applied.
    to_wake: Vec<u32>,
}

impl Groups {
    /// A group, if anything of it was ever here.
    pub fn get(&self, group: u32) -> Option<&Group> {
        self.groups.get(&group)
    }

    /// A group; made if it is not here yet.
    pub fn get_mut(&mut self, group: u32) -> &mut Group {
        self.groups.entry(group).or_default()
    }

    /// Whether no read or change waits for anything to be committed.
    pub fn has_no_waiters(&self) -> bool {
        self.waiting == 0
    }

    /// Encodes all groups for a checkpoint.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut numbers: Vec<u32> = self.groups.keys().copied().collect();
        numbers.sort_unstable();
        for number in numbers {
            out.extend_from_slice(&number.to_le_bytes());
            self.groups[&number].encode(out);
        }
    }

    /// Decodes a checkpoint's groups; `None` where they cannot be right.
    pub fn decode(mut bytes: &[u8]) -> Option<Self> {
        let mut groups = Groups::default();
        while !bytes.is_empty() {
            let number = word(&mut bytes)?;
            let group = Group::decode(&mut bytes)?;
            groups.tail_entries += group.tail.len();
            if groups.groups.insert(number, group).is_some() {
                return None;
            }
        }
        Some(groups)
    }
}

impl Shard {
    /// What this copy of a group knows; `None` if nothing of it was ever here.
    pub fn group(&self, group: u32) -> Option<GroupView<'_>> {
        self.groups.get(group).map(Group::view)
    }

    /// The groups of which something is here, in order.
    pub fn group_numbers(&self) -> Vec<u32> {
        // Group 0 only holds the sessions of changes without a group.
        let mut numbers: Vec<u32> =
            self.groups.groups.keys().copied().filter(|number| *number != 0).collect();
        numbers.sort_unstable();
        numbers
    }

    /// Makes this copy the primary that orders a group's new changes, in this epoch, or ends that. Changes that wait
    /// and have no sequence number then fail with [`Failure::NotPrimary`].
    pub fn accept_changes(&mut self, group: u32, epoch: Option<u64>) {
        assert_ne!(group, 0, "group 0 stands for none");
        self.groups.get_mut(group).accept(epoch);
    }

    /// Says that a group's entries up to this number are on all copies: reads may see them. A number that is higher than
    /// what is here counts for what comes; `u64::MAX` is right for as long as there is one copy.
    pub fn commit(&mut self, group: u32, sequence: u64) {
        if self.note_committed(group, sequence) {
            self.wake_group(group);
        }
    }

    /// Says whether somebody may have waited for it.
    fn note_committed(&mut self, group: u32, sequence: u64) -> bool {
        let one = self.groups.get_mut(group);
        one.told = one.told.max(sequence);
        let committed = one.told.min(one.last);
        if committed <= one.committed {
            return false;
        }
        one.committed = committed;
        let mut ended = 0;
        while one.tail.front().is_some_and(|entry| entry.sequence <= committed) {
            let Some(entry) = one.tail.pop_front() else { break };
            ended += 1;
            if entry.pinned {
                self.segments.remove_reader(self.geometry.segment_of(entry.location));
            }
        }
        self.groups.tail_entries -= ended;
        self.groups.waiting > 0
    }

    /// Takes up what waited for entries that a frame has brought: behind the frame, so that nothing sees half of it.
    pub(crate) fn wake_groups(&mut self) {
        while let Some(group) = self.groups.to_wake.pop() {
            self.wake_group(group);
        }
    }

    /// Takes up the reads whose blocks are committed now, and then the changes that waited for them.
    fn wake_group(&mut self, group: u32) {
        let one = self.groups.get_mut(group);
        let mut index = 0;
        let mut ready = Vec::new();
        while index < one.waiting.len() {
            if one.is_uncommitted(&one.waiting[index].range) {
                one.waiting[index].rounds += 1;
                index += 1;
            } else {
                ready.push(one.waiting.swap_remove(index));
            }
        }
        let behind = if one.waiting.is_empty() { std::mem::take(&mut one.behind) } else { Vec::new() };
        self.groups.waiting -= ready.len() + behind.len();
        for read in ready {
            self.start_waiting_read(&read);
        }
        self.resubmit(behind);
    }

    /// Whether a read must wait for changes that are not committed; notes it then.
    pub(crate) fn wait_for_commit(&mut self, group: u32, read: &WaitingRead) -> bool {
        if group == 0 || self.groups.tail_entries == 0 {
            return false;
        }
        let Some(one) = self.groups.groups.get_mut(&group) else { return false };
        if !one.is_uncommitted(&read.range) {
            return false;
        }
        one.waiting.push(*read);
        self.groups.waiting += 1;
        self.stats.reads_behind_commits += 1;
        true
    }

    /// Whether a new change must wait for a read that has waited long; notes it then.
    pub(crate) fn wait_for_reads(&mut self, group: u32, request: &crate::api::Request<'_>) -> bool {
        if self.groups.waiting == 0 {
            return false;
        }
        let range = BlockRange::of(request);
        let Some(one) = self.groups.groups.get_mut(&group).filter(|one| one.must_wait(&range)) else {
            return false;
        };
        let Some(owned) = OwnedRequest::new(request) else { return false };
        one.behind.push(owned);
        self.groups.waiting += 1;
        true
    }

    /// Counts an entry that is applied. Says what is wrong if it does not follow the group's last one.
    pub(crate) fn note_group(&mut self, entry: &Entry<'_>, header: &FrameHeader) -> Result<(), &'static str> {
        let Some(of) = entry.group else { return Ok(()) };
        let segment = self.geometry.segment_of(header.location);
        let one = self.groups.get_mut(of.group);
        if entry.sequence != one.last + 1 {
            return Err("an entry of a placement group is missing");
        }
        let epoch = one.history.last().map_or(0, |start| start.epoch);
        if of.epoch < epoch {
            return Err("the epochs of a placement group fall");
        }
        if of.epoch > epoch || one.history.is_empty() {
            one.history.push(EpochStart { epoch: of.epoch, first_sequence: entry.sequence });
        }
        one.last = entry.sequence;
        one.appended = one.appended.max(entry.sequence);
        one.appended_epoch = one.appended_epoch.max(of.epoch);
        one.told = one.told.max(of.committed);
        let kind = match entry.kind {
            EntryKind::Write => ChangeKind::Write,
            EntryKind::Zeroes => ChangeKind::Zeroes,
            _ => ChangeKind::Trim,
        };
        let range = BlockRange {
            layer: entry.context.layer().0,
            chunk: entry.chunk,
            start_block: u32::from(entry.start_block),
            blocks: u32::from(entry.blocks),
        };
        if entry.sequence > one.told {
            one.tail.push_back(TailEntry {
                sequence: entry.sequence,
                epoch: of.epoch,
                session: entry.context.session(),
                request: entry.request,
                range,
                kind,
                is_last: !entry.continues,
                location: header.location,
                generation: header.segment_generation,
                pinned: !self.replaying,
            });
            self.groups.tail_entries += 1;
            if !self.replaying {
                self.segments.get_mut(segment).readers += 1;
            }
        }
        let told = self.groups.get_mut(of.group).told;
        if self.note_committed(of.group, told) {
            self.groups.to_wake.push(of.group);
        }
        Ok(())
    }

    /// After replay: keeps the segments of the entries that are not committed. One that was used again since held only
    /// what was committed then, though that was not written down.
    pub(crate) fn pin_tails(&mut self) {
        let (geometry, segments) = (self.geometry, &mut self.segments);
        for group in self.groups.groups.values_mut() {
            for entry in &mut group.tail {
                let segment = geometry.segment_of(entry.location);
                let known = segments.get(segment);
                let is_used = matches!(known.state, SegmentState::Open | SegmentState::Closed);
                if is_used && known.generation == entry.generation {
                    segments.get_mut(segment).readers += 1;
                    entry.pinned = true;
                }
            }
        }
    }

    /// Ends everything that waits in the groups.
    pub(crate) fn fail_group_waiters(&mut self, changes: &mut Vec<RequestToken>) {
        for group in self.groups.groups.values_mut() {
            self.groups.waiting -= group.behind.len();
            changes.extend(group.behind.drain(..).map(|request| request.token));
        }
    }

    /// Ends the reads that wait until changes are committed.
    pub(crate) fn fail_waiting_reads(&mut self) {
        let mut tokens = Vec::new();
        for group in self.groups.groups.values_mut() {
            self.groups.waiting -= group.waiting.len();
            tokens.extend(group.waiting.drain(..).map(|read| read.token));
        }
        let mut changes = Vec::new();
        self.fail_group_waiters(&mut changes);
        for token in changes {
            self.fail(token, Failure::ReadOnly);
        }
        tokens.sort_unstable();
        for token in tokens {
            self.fail(token, Failure::Device);
        }
    }

    /// Why a change may not be put into the log of its group now, if it may not.
    pub(crate) fn refuses_change(&self, origin: &crate::api::Origin) -> Option<Failure> {
        if origin.group == 0 {
            return None;
        }
        let group = self.groups.get(origin.group);
        if origin.sequence == 0 {
            return group.is_none_or(|group| group.accepts().is_none()).then_some(Failure::NotPrimary);
        }
        let next = group.map_or(1, Group::next_sequence);
        let epoch = group.map_or(0, |group| group.appended_epoch);
        let follows = origin.sequence == next && origin.epoch >= epoch;
        (!follows).then_some(Failure::OutOfOrder)
    }
}
