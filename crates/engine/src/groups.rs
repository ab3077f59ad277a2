//! Placement groups: what a copy of each must remember.
//!
//! A group's changes are numbered without gaps by its primary. A copy puts them into its log in the order of the numbers
//! and applies them to the index when they are durable, as any entry. It does not know then whether all other copies have
//! them: until it is told so ([`Shard::commit`](crate::Shard::commit)), they are *uncommitted*. There is no undo: should
//! another primary decide that they never happened, their blocks are fetched again. So a group keeps the list of its
//! uncommitted entries, and reads of blocks that they changed wait until they are committed.
//!
//! What else the protocol must remember (`coquina_replication`, docs/replication.md) is logged as records, and changes the
//! group's state when it is durable, in the order of the log. All of it is in checkpoints.
//!
//! Invariants:
//! - `committed <= last`;
//! - entries have the numbers 1, 2, 3, ... in the order of the log, with epochs that never fall, unless a record says
//!   that some are forgotten or skipped;
//! - `tail` holds exactly the applied entries above `committed`;
//! - a segment that holds an entry of a tail is not used again.

use std::collections::VecDeque;

use coquina_base::BLOCK_BYTES;
use coquina_replication::{
    BlockRange, Codec, Config, CopyId, Entry as GroupEntry, EntryKind as Kind, History, MissingSets,
    PayloadRef, RangeSet, Recovery, SESSION_WINDOW, Sessions, Start,
};

use crate::api::{Operation, Request, RequestToken};
use crate::frame::{Entry, EntryGroup, EntryKind};
use crate::hash::FixedState;
use crate::shard::OwnedRequest;

/// The blocks that a request touches.
pub(crate) fn range_of(request: &Request<'_>) -> BlockRange {
    let first = request.offset_bytes / BLOCK_BYTES as u32;
    let end = (request.offset_bytes + request.length_bytes).div_ceil(BLOCK_BYTES as u32);
    BlockRange { layer: request.layer, chunk: request.chunk, first, count: end - first }
}

/// What a copy remembers beside its entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A configuration, persisted before anything is done under it.
    Config {
        /// The configuration.
        config: Config,
        /// Last entry known to be committed.
        committed: u64,
    },
    /// The entries above are forgotten.
    Cut {
        /// Last entry that stays.
        at: u64,
        /// The copy's state from now on.
        recovery: Recovery,
    },
    /// The log goes on behind `last` with another history; all up to there is committed.
    Join {
        /// Epochs of the entries up to `last`.
        history: History,
        /// Last entry skipped.
        last: u64,
    },
    /// The session table from now on.
    Sessions(Sessions),
}

const RECORD_CONFIG: u8 = 1;
const RECORD_CUT: u8 = 2;
const RECORD_JOIN: u8 = 3;
const RECORD_SESSIONS: u8 = 4;
const RECORD_MORE_SESSIONS: u8 = 5;
/// Bytes of a part of a session table: half of the smallest segment has room for it, and for a part that is longer because of a
/// single session with as many unfinished requests as a client may have.
const PART_BYTES_MAX: usize = 24 << 10;
/// Bytes of a part before its sessions and fences: its kind, and how many there are of each.
const PART_HEAD_BYTES: usize = 1 + 2 * 4;
/// Bytes of a session in a part before its window.
const SESSION_BYTES: usize = 8;
/// Bytes of a fence in a part: volume and generation.
const FENCE_BYTES: usize = 16 + 8;

impl Record {
    /// The bytes of its parts, one for each entry of the log that it takes.
    pub(crate) fn parts(&self) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        match self {
            Record::Config { config, committed } => {
                out.push(RECORD_CONFIG);
                config.encode(&mut out);
                committed.encode(&mut out);
            }
            Record::Cut { at, recovery } => {
                out.push(RECORD_CUT);
                at.encode(&mut out);
                recovery.encode(&mut out);
            }
            Record::Join { history, last } => {
                out.push(RECORD_JOIN);
                history.encode(&mut out);
                last.encode(&mut out);
            }
            Record::Sessions(sessions) => return session_parts(sessions),
        }
        vec![out]
    }

    /// Reads a part. For sessions it says whether they come on top of those of the part before.
    pub(crate) fn decode(mut bytes: &[u8]) -> Option<(Record, bool)> {
        let bytes = &mut bytes;
        let kind = u8::decode(bytes).ok()?;
        let record = match kind {
            RECORD_CONFIG => {
                Record::Config { config: Config::decode(bytes).ok()?, committed: u64::decode(bytes).ok()? }
            }
            RECORD_CUT => {
                Record::Cut { at: u64::decode(bytes).ok()?, recovery: Recovery::decode(bytes).ok()? }
            }
            RECORD_JOIN => {
                Record::Join { history: History::decode(bytes).ok()?, last: u64::decode(bytes).ok()? }
            }
            RECORD_SESSIONS | RECORD_MORE_SESSIONS => Record::Sessions(Sessions::decode(bytes).ok()?),
            _ => return None,
        };
        bytes.is_empty().then_some((record, kind == RECORD_MORE_SESSIONS))
    }
}

/// A session table cut by the bytes that it takes, fences first.
fn session_parts(sessions: &Sessions) -> Vec<Vec<u8>> {
    let mut tables = vec![Sessions::default()];
    let mut length = PART_HEAD_BYTES;
    for (volume, generation) in &sessions.fences {
        part_with_room(&mut tables, &mut length, FENCE_BYTES).fences.insert(*volume, *generation);
    }
    let mut encoded = Vec::new();
    for (session, window) in sessions.windows.iter() {
        encoded.clear();
        window.encode(&mut encoded);
        let part = part_with_room(&mut tables, &mut length, SESSION_BYTES + encoded.len());
        part.windows.insert(session, window.clone());
    }
    let kinds = std::iter::once(RECORD_SESSIONS).chain(std::iter::repeat(RECORD_MORE_SESSIONS));
    let parts = kinds.zip(&tables).map(|(kind, table)| {
        let mut out = vec![kind];
        table.encode(&mut out);
        out
    });
    parts.collect()
}

/// The part into which the next `bytes` go: the last one, or a new one where it is full. `length` is that of the last one.
fn part_with_room<'a>(parts: &'a mut Vec<Sessions>, length: &mut usize, bytes: usize) -> &'a mut Sessions {
    if *length > PART_HEAD_BYTES && *length + bytes > PART_BYTES_MAX {
        parts.push(Sessions::default());
        *length = PART_HEAD_BYTES;
    }
    *length += bytes;
    let last = parts.len() - 1;
    &mut parts[last]
}

/// An entry that is durable here and not known to be committed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TailEntry {
    pub(crate) entry: GroupEntry,
    /// Location of the header of its frame.
    pub(crate) location: u64,
    /// Blocks of the frame up to the end of its data.
    pub(crate) frame_blocks: u32,
    /// Generation of the frame's segment.
    pub(crate) generation: u64,
    /// Whether its segment is kept for it.
    pub(crate) pinned: bool,
}

/// A read that waits for changes to be committed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitingRead {
    pub(crate) token: RequestToken,
    pub(crate) group: u32,
    pub(crate) range: BlockRange,
    pub(crate) offset_bytes: u32,
    pub(crate) length_bytes: u32,
    pub(crate) is_map: bool,
    /// See [`Operation::ReadUnchecked`].
    pub(crate) is_unchecked: bool,
    /// How often it was found that it must wait on.
    pub(crate) rounds: u32,
}

impl WaitingRead {
    pub(crate) fn new(request: &Request<'_>) -> WaitingRead {
        WaitingRead {
            token: request.token,
            group: request.origin.group,
            range: range_of(request),
            offset_bytes: request.offset_bytes,
            length_bytes: request.length_bytes,
            is_map: matches!(request.operation, Operation::Map),
            is_unchecked: matches!(request.operation, Operation::ReadUnchecked),
            rounds: 0,
        }
    }
}

/// Rounds after which later changes of the same blocks wait for a read, so that it ends.
const ROUNDS_MAX: u32 = 2;

/// Bytes of a tail's entry in a checkpoint, at most.
const TAIL_BYTES_MAX: u64 = 98;
/// Bytes of a session there that is new: number, window and one word of it.
const SESSION_BYTES_NEW: u64 = 52;
/// Bytes of a session there at most, but for its unfinished requests.
const SESSION_BYTES_MAX: u64 = 44 + SESSION_WINDOW / 8;
/// What a request adds to its session at most: a word at either end of those that it passes over.
const REQUEST_BYTES_MAX: u64 = 16;
/// Bytes there of an unfinished request of a session.
const UNFINISHED_BYTES: u64 = 12;
/// Bytes there of a run of blocks that another copy misses.
const MISSING_BYTES: u64 = 20;

/// Bytes that a group takes in a checkpoint, without its tail. Exact when one begins; each change until the next one adds what it may take.
#[derive(Clone, Copy, Default)]
struct EncodedBytes {
    sessions: u64,
    others: u64,
}

impl EncodedBytes {
    fn sum(self) -> u64 {
        self.sessions + self.others
    }
}

/// A group's copy on this shard.
#[derive(Default)]
pub(crate) struct Group {
    encoded: EncodedBytes,
    /// The epoch of new changes, where this copy is the primary.
    pub(crate) accepting: Option<u64>,
    /// Highest sequence number put into the log, and its epoch.
    pub(crate) appended: (u64, u64),
    /// Highest sequence number of which it was said that it is on all copies, whether it is here or not.
    pub(crate) told: u64,
    /// Entries and records put into the log since the shard was opened, and how many of them are applied.
    pub(crate) logged: u64,
    pub(crate) records: u64,
    /// The last configuration persisted.
    pub(crate) config: Config,
    /// Highest sequence number applied.
    pub(crate) last: u64,
    /// Highest sequence number that is known to be on all copies.
    pub(crate) committed: u64,
    pub(crate) history: History,
    pub(crate) tail: VecDeque<TailEntry>,
    pub(crate) recovery: Option<Recovery>,
    /// Something of it was lost with a damaged log, or may have been: it must not be in sync before all of it has been compared.
    pub(crate) is_damaged: bool,
    /// The session table, the last of what a copy is given that comes back, was logged under the present configuration, and nothing
    /// was lost since.
    pub(crate) is_complete: bool,
    /// Which requests have taken effect.
    pub(crate) sessions: Sessions,
    /// What copies that are out miss.
    pub(crate) missing: MissingSets<RangeSet>,
    pub(crate) waiting: Vec<WaitingRead>,
    /// Changes that wait for such a read.
    pub(crate) behind: Vec<OwnedRequest>,
}

/// What a copy of a group knows of its entries.
#[derive(Clone, Copy, Debug)]
pub struct GroupView {
    /// Highest sequence number that is durable here, with all before it.
    pub last: u64,
    /// Highest sequence number that is known to be on all copies; not above `last`.
    pub committed: u64,
    /// Entries and records put into the log since the shard was opened.
    pub logged: u64,
    /// How many of them are applied.
    pub records: u64,
    /// Epoch of the last configuration that is durable here.
    pub config_epoch: u64,
}

impl Group {
    /// Numbers an entry of this epoch that goes into the log now.
    pub(crate) fn number(&mut self, epoch: u64) -> u64 {
        assert!(epoch >= self.appended.1, "a group's epochs never fall");
        self.appended = (self.appended.0 + 1, epoch);
        self.appended.0
    }

    /// The group of an entry that goes into the log now.
    pub(crate) fn entry_group(&self, group: u32, epoch: u64) -> EntryGroup {
        // A group that was told of more than it has says only what is certain: what it has.
        EntryGroup { group, epoch, committed: self.committed }
    }

    pub(crate) fn view(&self) -> GroupView {
        GroupView {
            last: self.last,
            committed: self.committed,
            logged: self.logged,
            records: self.records,
            config_epoch: self.config.epoch,
        }
    }

    pub(crate) fn is_uncommitted(&self, range: &BlockRange) -> bool {
        self.tail.iter().any(|tail| tail.entry.range.intersects(range))
    }

    /// Whether a change must let a read go first.
    pub(crate) fn must_wait(&self, range: &BlockRange) -> bool {
        self.waiting.iter().any(|read| read.rounds >= ROUNDS_MAX && read.range.intersects(range))
    }

    /// Takes out the changes that no read is in the way of any more, in their order. One that has blocks in common with another
    /// before it that waits on stays behind that.
    pub(crate) fn take_behind(&mut self) -> Vec<OwnedRequest> {
        let (mut free, mut kept) = (Vec::new(), Vec::new());
        let mut ranges: Vec<BlockRange> = Vec::new();
        for request in std::mem::take(&mut self.behind) {
            let range = range_of(&request.borrow());
            if self.must_wait(&range) || ranges.iter().any(|before| before.intersects(&range)) {
                ranges.push(range);
                kept.push(request);
            } else {
                free.push(request);
            }
        }
        self.behind = kept;
        free
    }

    /// What the protocol is told at its start. A damaged copy was taken out since its last configuration, whatever that was:
    /// it is opened only then.
    pub(crate) fn start(&self, copy: CopyId) -> Start<RangeSet> {
        let mut config = self.config.clone();
        if self.is_damaged && config.is_in_sync(copy) {
            config.in_sync.retain(|other| *other != copy);
            config.others.push(copy);
        }
        Start {
            config,
            history: self.history.clone(),
            last: self.last,
            committed: self.committed,
            uncommitted: self.tail.iter().map(|tail| tail.entry).collect(),
            recovery: self.recovery.clone(),
            sessions: self.sessions.clone(),
            missing: self.missing.clone(),
            intact: !self.is_damaged,
            complete: self.is_complete,
        }
    }

    /// Changes the state as a record says, and gives the tail's entries that it ends.
    pub(crate) fn apply_record(&mut self, record: Record, is_more: bool, copy: CopyId) -> Vec<TailEntry> {
        match record {
            Record::Config { config, committed } => {
                self.told = self.told.max(committed);
                let committed = self.committed.max(committed.min(self.last));
                let above = self.tail.iter().filter(|tail| tail.entry.sequence > committed);
                self.missing.adopt(&config, copy, committed, above.map(|tail| tail.entry.range));
                if config.is_in_sync(copy) {
                    self.recovery = None;
                    self.is_damaged = false;
                }
                self.config = config;
                self.is_complete = false;
                Vec::new()
            }
            Record::Cut { at, recovery } => {
                self.is_complete = false;
                self.history.truncate(at);
                self.last = self.last.min(at);
                self.recovery = Some(recovery);
                let kept = self.tail.iter().filter(|tail| tail.entry.sequence <= at).count();
                self.tail.split_off(kept).into()
            }
            Record::Join { history, last } => {
                self.history = history;
                self.last = last;
                self.committed = last;
                self.told = self.told.max(last);
                std::mem::take(&mut self.tail).into()
            }
            Record::Sessions(sessions) if is_more => {
                self.sessions.windows.append(sessions.windows);
                for (volume, generation) in sessions.fences {
                    self.sessions.fence(volume, generation);
                }
                Vec::new()
            }
            Record::Sessions(sessions) => {
                self.sessions = sessions;
                Vec::new()
            }
        }
    }

    fn encode(&mut self, out: &mut Vec<u8>) {
        let start = out.len();
        self.config.encode(out);
        self.last.encode(out);
        self.committed.encode(out);
        self.history.encode(out);
        let flags = [self.recovery.is_some(), self.is_damaged, self.is_complete];
        out.push(flags.iter().rev().fold(0, |byte, flag| byte << 1 | u8::from(*flag)));
        if let Some(recovery) = &self.recovery {
            recovery.encode(out);
        }
        let sessions_at = out.len();
        self.sessions.encode(out);
        let sessions = (out.len() - sessions_at) as u64;
        self.missing.encode(out);
        (self.tail.len() as u32).encode(out);
        // The group's number comes before.
        let others = (out.len() - start + size_of::<u32>()) as u64 - sessions;
        self.encoded = EncodedBytes { sessions, others };
        for tail in &self.tail {
            tail.entry.encode(out);
            tail.location.encode(out);
            tail.frame_blocks.encode(out);
            tail.generation.encode(out);
        }
    }

    /// Notes an entry among the changed blocks and the requests of its session; says how many bytes it adds to a checkpoint, at most.
    pub(crate) fn note_entry(&mut self, logged: &GroupEntry) -> u64 {
        let encoded_before = self.encoded.sum();
        let missing_blocks =
            |one: &Group| one.missing.iter().map(|(_, missing)| missing.set.blocks()).sum::<u64>();
        if logged.range.count > 0 {
            let before = missing_blocks(self);
            self.missing.mark(logged.range);
            if missing_blocks(self) > before {
                self.encoded.others += MISSING_BYTES * self.missing.iter().len() as u64;
            }
        }
        match logged.kind {
            Kind::Fence { .. } => self.encoded.others += FENCE_BYTES as u64,
            _ if !logged.is_last => self.encoded.others += UNFINISHED_BYTES,
            _ => {}
        }
        let before = self.sessions.windows.len();
        self.sessions.note(logged);
        let sessions = self.sessions.windows.len();
        let new = (sessions - before) as u64;
        let grown = self.encoded.sessions + REQUEST_BYTES_MAX + new * SESSION_BYTES_NEW;
        // Fences and unfinished requests may be above that already.
        let most = (sessions as u64 * SESSION_BYTES_MAX).max(self.encoded.sessions);
        self.encoded.sessions = grown.min(most);
        self.encoded.sum() - encoded_before
    }

    fn decode(bytes: &mut &[u8], blocks_max: u64) -> Option<Group> {
        let start = bytes.len();
        let config = Config::decode(bytes).ok()?;
        let (last, committed) = (u64::decode(bytes).ok()?, u64::decode(bytes).ok()?);
        let history = History::decode(bytes).ok()?;
        let state = u8::decode(bytes).ok()?;
        let recovery = match state & 1 {
            0 => None,
            _ => Some(Recovery::decode(bytes).ok()?),
        };
        let (is_damaged, is_complete) = (state & 2 != 0, state & 4 != 0);
        let sessions_at = bytes.len();
        let sessions = Sessions::decode(bytes).ok()?;
        let session_bytes = (sessions_at - bytes.len()) as u64;
        let missing = MissingSets::decode(bytes).ok()?;
        let others = (start - bytes.len() + 2 * size_of::<u32>()) as u64 - session_bytes;
        let encoded = EncodedBytes { sessions: session_bytes, others };
        let mut tail = VecDeque::new();
        for sequence in (1..=u32::decode(bytes).ok()?).map(|number| committed + u64::from(number)) {
            let entry = GroupEntry::decode(bytes).ok()?;
            let (location, frame_blocks) = (u64::decode(bytes).ok()?, u32::decode(bytes).ok()?);
            let generation = u64::decode(bytes).ok()?;
            let in_place = location < blocks_max && u64::from(frame_blocks) <= blocks_max - location;
            if entry.sequence != sequence || !in_place {
                return None;
            }
            tail.push_back(TailEntry { entry, location, frame_blocks, generation, pinned: false });
        }
        let adds_up = committed.checked_add(tail.len() as u64) == Some(last);
        let epoch = history.runs().last().map_or(0, |run| run.epoch);
        adds_up.then(|| Group {
            encoded,
            appended: (last, epoch),
            told: committed,
            config,
            last,
            committed,
            history,
            tail,
            recovery,
            is_damaged,
            is_complete,
            sessions,
            missing,
            ..Group::default()
        })
    }

    /// What is appended behind a record, before it is durable.
    pub(crate) fn append_record(&mut self, record: &Record) {
        match record {
            // Entries on their way are forgotten, too: any epoch may follow that the history allows.
            Record::Cut { at, .. } => self.appended = (*at, 0),
            Record::Join { history, last } => {
                self.appended = (*last, history.runs().last().map_or(0, |run| run.epoch));
            }
            Record::Config { .. } | Record::Sessions(_) => {}
        }
    }
}

/// What an entry of a frame is for its group.
pub(crate) fn group_entry(entry: &Entry<'_>, of: &EntryGroup) -> GroupEntry {
    let kind = match entry.kind {
        EntryKind::Write => Kind::Write,
        EntryKind::Zeroes => Kind::Zeroes,
        EntryKind::Fence => Kind::Fence { volume: entry.volume(), generation: entry.context.layer().0 },
        _ => Kind::Trim,
    };
    let range = match kind {
        Kind::Fence { .. } => BlockRange::default(),
        _ => BlockRange {
            layer: entry.context.layer(),
            chunk: entry.chunk,
            first: u32::from(entry.start_block),
            count: u32::from(entry.blocks),
        },
    };
    GroupEntry {
        epoch: of.epoch,
        sequence: entry.sequence,
        session: entry.context.session(),
        request: entry.request,
        is_last: !entry.continues,
        kind,
        range,
        payload: PayloadRef::default(),
    }
}

/// All groups of a shard, by number.
#[derive(Default)]
pub(crate) struct Groups {
    pub(crate) groups: hashbrown::HashMap<u32, Group, FixedState>,
    /// Sum of [`Group::encoded`].
    pub(crate) encoded_bytes: u64,
    /// Tail entries of all groups: 0 lets reads pass without a look.
    pub(crate) tail_entries: usize,
    /// Reads and changes that wait, of all groups.
    pub(crate) waiting: usize,
    /// Groups of which something was committed by a frame that is being applied.
    pub(crate) to_wake: Vec<u32>,
    /// Groups of which a frame that is being applied has records.
    pub(crate) touched: Vec<u32>,
    /// The log was once cut where it was damaged.
    pub(crate) was_cut: bool,
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

    /// Notes that something of the log was lost.
    pub fn distrust(&mut self) {
        self.was_cut = true;
        self.groups.values_mut().for_each(|group| {
            group.is_damaged = true;
            group.is_complete = false;
        });
    }

    /// Hears of a configuration of a group. One of which no configuration is known may have been lost whole where the log was cut,
    /// unless this is the first one: the log is cut only when no group counts on this copy, so the group has been made since.
    pub fn doubt(&mut self, group: u32, config: &Config) {
        let is_known = self.get(group).is_some_and(|one| one.config.epoch > 0);
        if self.was_cut && !is_known && config.epoch > 1 {
            self.get_mut(group).is_damaged = true;
        }
    }

    /// Bytes that all take in a checkpoint, or somewhat more.
    pub fn encoded_bytes(&self) -> u64 {
        self.encoded_bytes + self.tail_entries as u64 * TAIL_BYTES_MAX
    }

    /// Changes a group, and counts by `count` how many bytes more or less it takes in a checkpoint.
    fn recount<T>(&mut self, group: u32, count: impl FnOnce(&mut Group) -> T) -> T {
        let one = self.groups.entry(group).or_default();
        self.encoded_bytes -= one.encoded.sum();
        let result = count(one);
        self.encoded_bytes += one.encoded.sum();
        result
    }

    /// Changes a group's state as a record says that takes so many bytes; see [`Group::apply_record`].
    pub fn apply_record(
        &mut self,
        group: u32,
        (record, is_more): (Record, bool),
        bytes: u64,
        copy: CopyId,
    ) -> Vec<TailEntry> {
        self.recount(group, |one| {
            let is_table = matches!(record, Record::Sessions(_));
            let ended = one.apply_record(record, is_more, copy);
            match is_table {
                // Of many parts, the whole is not encoded behind each.
                true if is_more => one.encoded.sessions += bytes,
                true => one.encoded.sessions = bytes,
                false => one.encode(&mut Vec::new()),
            }
            ended
        })
    }

    /// Encodes all groups for a checkpoint.
    pub fn encode(&mut self, out: &mut Vec<u8>) {
        for number in self.numbers() {
            number.encode(out);
            self.recount(number, |one| one.encode(out));
        }
    }

    /// Decodes a checkpoint's groups, on a shard of so many blocks; `None` where they cannot be right.
    pub fn decode(mut bytes: &[u8], blocks_max: u64) -> Option<Self> {
        let mut groups = Groups::default();
        while !bytes.is_empty() {
            let number = u32::decode(&mut bytes).ok()?;
            let group = Group::decode(&mut bytes, blocks_max)?;
            groups.tail_entries += group.tail.len();
            groups.encoded_bytes += group.encoded.sum();
            if number == 0 || groups.groups.insert(number, group).is_some() {
                return None;
            }
        }
        Some(groups)
    }

    /// The groups of which something is here, in order.
    pub fn numbers(&self) -> Vec<u32> {
        let mut numbers: Vec<u32> = self.groups.keys().copied().collect();
        numbers.sort_unstable();
        numbers
    }
}
