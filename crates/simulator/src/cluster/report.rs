//! What a run has done.

use std::collections::BTreeMap;

/// States that must be met to be tested.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Rare {
    /// A process ended.
    NodeCrash,
    /// A machine lost power.
    PowerCut,
    /// All nodes went down at once.
    AllDown,
    /// A connection broke.
    LinkBroken,
    /// A bit of what a copy sent flipped on its way.
    BitFlipped,
    /// A node was cut off.
    Partition,
    /// One direction was blocked.
    OneWay,
    /// A drive stalled.
    DriveStall,
    /// A drive failed, and its groups halted.
    Halted,
    /// Another copy became primary.
    Takeover,
    /// A new primary need not wait, for the former one gave its leases back.
    ServedByRelease,
    /// A new primary fetched entries that it lacked.
    TakeoverWithTail,
    /// A copy that returned was cut.
    Cut,
    /// A cut took entries out.
    CutOfEntries,
    /// What a copy missed was not known.
    WholeCompare,
    /// Blocks were recovered.
    Recovered,
    /// A copy came back in sync.
    CopyAdded,
    /// A copy was taken out.
    CopyRemoved,
    /// A healthy primary had to step down.
    PrimaryMoved,
    /// Entries of a former epoch were sent.
    ReadBack,
    /// A change was answered after it was sent to several copies.
    RetryAcrossFailover,
    /// A node started while a takeover was under way.
    ReturnDuringTakeover,
    /// The cleaner moved blocks between recovered ones.
    CleanerDuringRecovery,
    /// A checkpoint was made between recovered blocks.
    CheckpointDuringRecovery,
    /// A client's host was taken for dead.
    ClientCrash,
    /// A request of a former attachment was refused.
    Fenced,
    /// A client was sent away.
    Refused,
    /// A client used an old map.
    StaleClient,
    /// No configuration could be made.
    CoordinatorAway,
    /// A layer was deleted.
    LayerRemoved,
    /// A copy was begun on another drive.
    CopyMoved,
    /// A drive was lost, and another took its place.
    DriveReplaced,
    /// A drive was emptied and taken out.
    DriveRemoved,
    /// A node began to lead.
    NewLeader,
    /// A leader found out by a write that it leads no more.
    Deposed,
    /// It was not known whether the store had done something.
    StoreAnswerLost,
    /// A watch broke without a word.
    WatchLost,
    /// A client was told that there is no space, where the drive is full.
    NoSpace,
    /// The same, where only another copy's drive is full.
    FullElsewhere,
    /// Blocks of a drive rotted.
    BitRot,
    /// A bad block was found by whoever read it.
    BadBlockFound,
    /// A bad block was repaired from another copy.
    BadBlockRepaired,
    /// No copy in sync had a block: a copy that came back took it as bad.
    BlockTakenBad,
    /// A drive was not opened for its rot.
    RottenDriveRefused,
    /// The log of such a drive was cut where it had rotten, and its copies were brought up from others.
    LogCut,
    /// Another drive took the place of a rotten one.
    RottenDriveReplaced,
    /// A client was told what is data.
    Mapped,
    /// A change came once more after its client had its answer.
    LateRequest,
    /// A failed write left something on a drive.
    FailedWriteLanded,
    /// Something of a layer came to a node that knew of its deletion.
    EntryOfRemovedLayer,
}

impl Rare {
    /// All of them.
    pub const ALL: [Rare; 50] = [
        Rare::NodeCrash,
        Rare::PowerCut,
        Rare::AllDown,
        Rare::LinkBroken,
        Rare::BitFlipped,
        Rare::Partition,
        Rare::OneWay,
        Rare::DriveStall,
        Rare::Halted,
        Rare::Takeover,
        Rare::ServedByRelease,
        Rare::TakeoverWithTail,
        Rare::Cut,
        Rare::CutOfEntries,
        Rare::WholeCompare,
        Rare::Recovered,
        Rare::CopyAdded,
        Rare::CopyRemoved,
        Rare::PrimaryMoved,
        Rare::ReadBack,
        Rare::RetryAcrossFailover,
        Rare::ReturnDuringTakeover,
        Rare::CleanerDuringRecovery,
        Rare::CheckpointDuringRecovery,
        Rare::ClientCrash,
        Rare::Fenced,
        Rare::Refused,
        Rare::StaleClient,
        Rare::CoordinatorAway,
        Rare::LayerRemoved,
        Rare::CopyMoved,
        Rare::DriveReplaced,
        Rare::DriveRemoved,
        Rare::NewLeader,
        Rare::Deposed,
        Rare::StoreAnswerLost,
        Rare::WatchLost,
        Rare::NoSpace,
        Rare::FullElsewhere,
        Rare::BitRot,
        Rare::BadBlockFound,
        Rare::BadBlockRepaired,
        Rare::BlockTakenBad,
        Rare::RottenDriveRefused,
        Rare::LogCut,
        Rare::RottenDriveReplaced,
        Rare::Mapped,
        Rare::LateRequest,
        Rare::FailedWriteLanded,
        Rare::EntryOfRemovedLayer,
    ];
}

/// What a run has done.
#[derive(Clone, Debug, Default)]
pub struct ClusterReport {
    /// Requests answered.
    pub answered: u64,
    /// Of them reads.
    pub reads: u64,
    /// Messages delivered between copies.
    pub messages: u64,
    /// Faults.
    pub faults: u64,
    /// Time that passed in the cluster.
    pub simulated_ns: u64,
    /// How often each rare state was met.
    pub rare: BTreeMap<Rare, u64>,
    /// Groups of which a copy has forgotten entries.
    pub groups_forgotten: u64,
    /// How often one of them was opened there again.
    pub groups_returned: u64,
    /// Chunks trimmed of groups that have moved away.
    pub chunks_trimmed: u64,
    /// Hash of everything that happened.
    pub trace: u64,
}

impl ClusterReport {
    /// Adds another run's.
    pub fn add(&mut self, other: &ClusterReport) {
        self.answered += other.answered;
        self.reads += other.reads;
        self.messages += other.messages;
        self.faults += other.faults;
        self.simulated_ns += other.simulated_ns;
        self.groups_forgotten += other.groups_forgotten;
        self.groups_returned += other.groups_returned;
        self.chunks_trimmed += other.chunks_trimmed;
        for (rare, count) in &other.rare {
            *self.rare.entry(*rare).or_default() += count;
        }
    }

    /// Notes a rare state.
    pub fn saw(&mut self, rare: Rare) {
        *self.rare.entry(rare).or_default() += 1;
    }

    /// Rare states that were never met.
    pub fn missing(&self) -> Vec<Rare> {
        Rare::ALL.into_iter().filter(|rare| !self.rare.contains_key(rare)).collect()
    }
}
