//! Names, ranges, entries and configurations.

use coquina_base::LayerId;

use crate::api::{Action, Refusal};

/// A copy: a shard of a drive. Never reused, so a new drive is a new copy.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct CopyId(pub u64);

/// A placement group.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct GroupId(pub u32);

/// The driver's name for a client's request; handed back with its outcome.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Token(pub u64);

/// The group's name for a read of data to recover; handed back with the data.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RecoveryToken(pub u64);

/// The driver's handle for data. Opaque here: a buffer in memory, a place in the log, or (in the model) the value.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PayloadRef(pub u64);

/// A group under an epoch, for messages about many groups.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GroupEpoch {
    /// The group.
    pub group: GroupId,
    /// Epoch of its configuration.
    pub epoch: u64,
}

/// Whole blocks of one chunk.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct BlockRange {
    /// The layer.
    pub layer: LayerId,
    /// The chunk within the layer.
    pub chunk: u32,
    /// The first block within the chunk.
    pub first: u32,
    /// How many blocks; none for an entry that changes no data.
    pub count: u32,
}

impl BlockRange {
    /// Stands for a layer as such, apart from its blocks: what the entry that deletes it changes, so that a copy that
    /// missed the deletion is told of it like of any change. No chunk has this number.
    pub fn whole_layer(layer: LayerId) -> BlockRange {
        BlockRange { layer, chunk: u32::MAX, first: 0, count: 1 }
    }

    /// Whether it is [`BlockRange::whole_layer`].
    pub fn is_whole_layer(&self) -> bool {
        self.chunk == u32::MAX
    }

    /// The block after the last one.
    pub fn end(&self) -> u32 {
        self.first.saturating_add(self.count)
    }

    /// Whether the two have a block in common.
    pub fn intersects(&self, other: &BlockRange) -> bool {
        self.layer == other.layer
            && self.chunk == other.chunk
            && self.first < other.end()
            && other.first < self.end()
    }
}

/// What a change does.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum EntryKind {
    /// Replaces whole blocks.
    Write,
    /// Forgets whole blocks.
    Trim,
    /// Whole blocks become zeros whose space stays reserved.
    Zeroes,
    /// Forgets a whole layer; its id is never used again. The range is [`BlockRange::whole_layer`].
    DeleteLayer,
    /// Requests of lower generations of the volume's attachment are refused from now on.
    Fence {
        /// The volume.
        volume: u128,
        /// The lowest generation that is still served.
        generation: u64,
    },
}

/// A change as the log keeps it. (`epoch`, `sequence`) names it for ever.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Entry {
    /// Epoch of the configuration under which its primary made it.
    pub epoch: u64,
    /// Its place in the group's order, from 1, without gaps.
    pub sequence: u64,
    /// The client's session.
    pub session: u64,
    /// The client's request within its session.
    pub request: u64,
    /// What it does.
    pub kind: EntryKind,
    /// Which blocks it changes.
    pub range: BlockRange,
    /// Whether it is the last one of its request: large requests take several entries, in the order of their
    /// blocks and without a gap, and count as in the log with the last.
    pub is_last: bool,
    /// Where its data is.
    pub payload: PayloadRef,
}

/// Who is in a group. Made by the coordinator only, each by a compare-and-set on the epoch before.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Config {
    /// Number of this configuration; one above the former.
    pub epoch: u64,
    /// Copies that have every committed change, the primary first. Never empty.
    pub in_sync: Vec<CopyId>,
    /// Members that are out: absent or catching up.
    pub others: Vec<CopyId>,
    /// No change is taken or answered as done while fewer copies are in sync.
    pub min_copies: u32,
}

impl Config {
    /// The primary.
    pub fn primary(&self) -> Option<CopyId> {
        self.in_sync.first().copied()
    }

    /// Whether the copy is in sync.
    pub fn is_in_sync(&self, copy: CopyId) -> bool {
        self.in_sync.contains(&copy)
    }

    /// Whether the copy is a member that is out.
    pub fn is_out(&self, copy: CopyId) -> bool {
        self.others.contains(&copy)
    }

    /// Whether so many copies are in sync as changes need.
    pub fn has_enough_copies(&self) -> bool {
        self.in_sync.len() >= self.min_copies as usize
    }

    /// What a client is told of a change that all copies in sync have.
    pub(crate) fn answer_to_change(&self, token: Token) -> Action {
        match self.has_enough_copies() {
            true => Action::Answer(token),
            false => Action::Refuse { token, refusal: Refusal::TooFewCopies },
        }
    }

    /// The next configuration with the same members.
    pub fn renewed(&self) -> Config {
        Config { epoch: self.epoch + 1, ..self.clone() }
    }

    /// The next configuration without a copy in sync; it becomes an out member.
    pub fn without(&self, copy: CopyId) -> Config {
        let mut next = self.renewed();
        next.in_sync.retain(|member| *member != copy);
        if !next.others.contains(&copy) {
            next.others.push(copy);
        }
        next
    }

    /// The next configuration with an out copy in sync, as the last one.
    pub fn with(&self, copy: CopyId) -> Config {
        let mut next = self.renewed();
        next.others.retain(|member| *member != copy);
        if !next.in_sync.contains(&copy) {
            next.in_sync.push(copy);
        }
        next
    }
}

/// What a copy that was cut knows of its blocks.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Recovery {
    /// Every block had the state of this sequence number; later changes may be missing.
    pub since: u64,
    /// Blocks that had changes which were cut: they may hold data that never was committed.
    pub beyond: Vec<BlockRange>,
}

impl Recovery {
    /// Most runs of blocks in a record of the log, which must fit the smallest segment.
    pub const RUNS_MAX: usize = 1_024;
    /// Most of them in a message, which takes 20 bytes for each: there is no frame larger than 8 MiB between copies.
    pub const RUNS_SENT_MAX: usize = 1 << 18;

    /// Of a copy that can name nothing that it has for certain: all of it is compared.
    pub(crate) fn is_of_nothing(&self) -> bool {
        self.since == 0 && self.beyond.is_empty()
    }

    /// As it goes into the log: with too many runs for that it says that nothing is certain.
    pub(crate) fn for_log(&self) -> Recovery {
        if self.beyond.len() > Recovery::RUNS_MAX { Recovery::default() } else { self.clone() }
    }
}
