//! What goes into a [`Group`](crate::Group) and what comes out of it.

use crate::history::History;
use crate::message::Message;
use crate::session::Sessions;
use crate::types::{
    BlockRange, Config, CopyId, Entry, EntryKind, GroupId, PayloadRef, Recovery, RecoveryToken, Token,
};

/// A deliberate mistake, for the model and the simulator to find.
#[cfg(feature = "mutations")]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mutation {
    /// Commits what is durable at the primary alone.
    AnswerAfterOneCopy,
    /// A copy takes changes of a lower epoch.
    IgnoreEpoch,
    /// A new primary serves at once, without asking anybody.
    SkipTakeover,
    /// Configurations count without being persisted, so that a restart forgets all but the first.
    ForgetPromise,
    /// A primary reads without asking for its lease.
    ReadAfterLease,
    /// The ranges of a returning copy's cut entries are not fetched.
    DropCut,
    /// Trims are not counted as changes that an out copy misses.
    ResurrectTrim,
    /// Commits do not wait for a copy that is being added.
    CommitWithoutJoining,
    /// A primary that hears that it is none any more gives its leases back, and serves on until it has persisted that.
    ReleaseBeforeStopping,
}

/// What a group is told at its start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Settings {
    /// The group.
    pub group: GroupId,
    /// This copy.
    pub copy: CopyId,
    /// Length of a read grant, the same everywhere in the cluster.
    pub grant_ns: u64,
    /// Bound on the drift of a clock, in parts per million of its true rate.
    pub drift_ppm: u64,
    /// Time without an answer after which a primary proposes to remove a copy.
    pub suspect_ns: u64,
    /// Most blocks recovered by one message.
    pub recover_blocks_max: u32,
    /// Most recovery messages without an ack, per copy.
    pub recover_window: u32,
    /// Blocks of changes that a copy which catches up may be behind, per copy: with more, commits wait for it.
    pub stream_lag_blocks_max: u64,
    /// A deliberate mistake.
    #[cfg(feature = "mutations")]
    pub mutation: Option<Mutation>,
}

impl Settings {
    /// Settings for tests: grants of 1,000 ns, 10 % of drift.
    #[doc(hidden)]
    pub fn for_tests(copy: CopyId) -> Settings {
        Settings {
            group: GroupId(1),
            copy,
            grant_ns: 1_000,
            drift_ppm: 100_000,
            suspect_ns: 1_500,
            recover_blocks_max: 1,
            recover_window: 2,
            stream_lag_blocks_max: 1,
            #[cfg(feature = "mutations")]
            mutation: None,
        }
    }

    /// Whether the mistake is to be made.
    #[cfg(feature = "mutations")]
    pub(crate) fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// Whether an entry counts as a change of what out copies miss: all that change blocks do, trims included.
    pub(crate) fn marks(&self, entry: &Entry) -> bool {
        #[cfg(feature = "mutations")]
        if self.has(Mutation::ResurrectTrim) && entry.kind == EntryKind::Trim {
            return false;
        }
        entry.range.count > 0
    }

    /// Whether changes of any epoch are taken: only by the mutation.
    pub(crate) fn ignores_epochs(&self) -> bool {
        #[cfg(feature = "mutations")]
        return self.has(Mutation::IgnoreEpoch);
        #[cfg(not(feature = "mutations"))]
        false
    }

    /// How long the primary relies on a grant, by its own clock.
    pub fn lease_ns(&self) -> u64 {
        self.grant_ns - drift(self.grant_ns, self.drift_ppm)
    }

    /// How long a backup keeps to a grant, by its own clock.
    pub fn promise_ns(&self) -> u64 {
        self.grant_ns + drift(self.grant_ns, self.drift_ppm)
    }
}

/// The drift of a duration, rounded up.
fn drift(duration_ns: u64, drift_ppm: u64) -> u64 {
    let product = u128::from(duration_ns) * u128::from(drift_ppm);
    u64::try_from(product.div_ceil(1_000_000)).unwrap_or(duration_ns).min(duration_ns)
}

/// What a copy's log says when it is opened: everything that is durable.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Start<C> {
    /// Configuration of the last record; that of epoch 0, without members, where there is none.
    pub config: Config,
    /// Epochs of the entries.
    pub history: History,
    /// Last entry.
    pub last: u64,
    /// Last entry known to be committed.
    pub committed: u64,
    /// Entries above `committed`, in order.
    pub uncommitted: Vec<Entry>,
    /// Set if the copy was cut and has not been in sync since.
    pub recovery: Option<Recovery>,
    /// Requests in the log.
    pub sessions: Sessions,
    /// What each out copy misses, as [`Group::missing`](crate::Group::missing) said, or rebuilt by
    /// [`MissingSets`](crate::MissingSets) from the log.
    pub missing: crate::MissingSets<C>,
    /// False for a blank copy in a group that is not new, and after damage to durable records. Such a copy is added only
    /// after it was brought up in this life.
    pub intact: bool,
    /// Whether this copy was brought up, up to the session table, under `config` and after any such damage: both are in the log
    /// that this was read from. Then it may be added though it is not intact.
    pub complete: bool,
}

/// A client's request that changes something.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientRequest {
    /// Handed back with the outcome.
    pub token: Token,
    /// The client's session.
    pub session: u64,
    /// The request's number within its session.
    pub request: u64,
    /// The volume.
    pub volume: u128,
    /// Generation of the client's attachment to it.
    pub generation: u64,
    /// What is to be done.
    pub kind: EntryKind,
}

/// Something that happened. The driver executes all actions of one input before it hands in the next.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Input {
    /// Time has passed. Due several times within `suspect_ns` and within `grant_ns`.
    Tick,
    /// The coordinator's configuration. Lower ones than known are ignored.
    Config(Config),
    /// A new connection to a copy; before it, `Disconnected`, if there was one.
    Connected(CopyId),
    /// The connection to a copy broke.
    Disconnected(CopyId),
    /// A message of another copy on the current connection.
    Message(CopyId, Message),
    /// A client wants a change.
    Request(ClientRequest),
    /// A client wants to read.
    Read(Token),
    /// The engine has put a submitted change into its log. It got sequence number `last + 1` and the epoch of the
    /// last [`Action::Serve`], or of the one before where the two have crossed. A large change takes several entries: they come one by one, the last marked so.
    Appended {
        /// The request.
        token: Token,
        /// The entry as logged.
        entry: Entry,
    },
    /// The engine does not make a submitted change: no space, or an [`Action::Stop`] came first. Never after an
    /// [`Input::Appended`] of the change.
    Refused {
        /// The request.
        token: Token,
        /// True if for lack of space.
        no_space: bool,
    },
    /// A submitted change changes nothing, and takes no entry: a trim of no whole block, for instance.
    Unchanged {
        /// The request.
        token: Token,
    },
    /// So many records of this group are durable, counted since the start: each of [`Action::Append`],
    /// [`Action::Persist`], [`Action::Cut`], [`Action::Join`], [`Action::Recovered`], [`Action::SetSessions`] and each
    /// [`Input::Appended`] is one record, logged in that order.
    Durable {
        /// Records.
        records: u64,
    },
    /// The answer to [`Action::ReadForRecovery`].
    RecoveryRead {
        /// As asked.
        token: RecoveryToken,
        /// The data.
        payload: PayloadRef,
    },
    /// Blocks that an [`Action::Compare`] found different.
    Compared {
        /// The copy.
        copy: CopyId,
        /// As asked.
        token: RecoveryToken,
        /// The blocks.
        ranges: Vec<BlockRange>,
        /// Whether that was all.
        done: bool,
    },
}

/// What the driver must do, in this order.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// Send a message. What goes to one copy leaves in order; it is dropped if there is no connection.
    Send {
        /// To whom.
        to: CopyId,
        /// What.
        message: Message,
    },
    /// Hand a client's change to the engine, which orders and appends it, or refuses it.
    Submit(Token),
    /// Log an entry with its numbers and apply it. One record.
    Append(Entry),
    /// Log a configuration, with the number up to which entries are known to be committed. One record.
    Persist {
        /// The configuration.
        config: Config,
        /// Last committed entry known.
        committed: u64,
    },
    /// Log that the entries above are forgotten. Their data stays; the blocks are in `recovery`. One record.
    Cut {
        /// Last entry that stays.
        at: u64,
        /// The copy's state from now on.
        recovery: Recovery,
    },
    /// Log that the log goes on behind `last` with another history; all up to `last` is committed. One record.
    Join {
        /// Epochs of the entries up to `last`.
        history: History,
        /// The last entry skipped.
        last: u64,
    },
    /// Log data of blocks that belongs to entries skipped. One record.
    Recovered {
        /// The blocks.
        range: BlockRange,
        /// Their data.
        payload: PayloadRef,
    },
    /// Log this session table in place of the one there is. One record.
    SetSessions(Sessions),
    /// All entries up to this one, durable here, are committed: let go of reads that wait for them.
    Commit(u64),
    /// From now on append submitted changes with this epoch.
    Serve {
        /// The epoch.
        epoch: u64,
    },
    /// Refuse all submitted changes that are not appended yet and all reads that are not answered yet.
    Stop,
    /// A client's change is committed.
    Answer(Token),
    /// A client's request is not done, as far as is known; it may be tried again with the same request number.
    Refuse {
        /// The request.
        token: Token,
        /// Why.
        refusal: Refusal,
    },
    /// Read for a client; wait for uncommitted changes of the blocks.
    Read(Token),
    /// Read blocks as they are now, for a copy that misses them.
    ReadForRecovery {
        /// Handed back.
        token: RecoveryToken,
        /// The copy.
        copy: CopyId,
        /// The blocks.
        range: BlockRange,
    },
    /// Compare all blocks with those of a copy and report those that differ (or simply all).
    Compare {
        /// Handed back.
        token: RecoveryToken,
        /// The copy.
        copy: CopyId,
    },
    /// Ask the coordinator for this configuration, if its epoch is the next one, in place of what was asked for before.
    Propose(Config),
    /// This configuration, asked for before, is not wanted any more. Nothing is wrong if it is decided on all the same.
    Withdraw(Config),
    /// What cannot be has happened. The group has stopped. As long as this copy is the primary, its driver has it replaced if that
    /// [is safe](Violation::is_about_this_copy).
    Violation(Violation),
    /// Another copy is damaged; its removal has been proposed and the group goes on.
    Report(Violation),
}

/// Why a request was not done. All of them may be tried again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Refusal {
    /// This copy is not the primary, or not yet, or not any more.
    NotServing,
    /// Fewer copies than `min_copies` are in sync.
    TooFewCopies,
    /// The primary cannot prove now that no other serves.
    NoLease,
    /// The client's attachment has been replaced by a newer one. Trying again does not help.
    Fenced,
    /// The drive is full.
    NoSpace,
}

/// Two copies, or a copy and its driver, disagree on what was proven. Nothing is done any more by this copy: keep its
/// log, and replace the copy.
#[derive(Clone, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum Violation {
    /// Copies in sync whose logs are not prefixes of one another.
    #[error(
        "logs of {one:?} and {other:?}, both in sync, part at entry {at}: replace the one with less data"
    )]
    LogsPart {
        /// This copy.
        one: CopyId,
        /// The other one.
        other: CopyId,
        /// The last common entry.
        at: u64,
    },
    /// A cut that would forget a committed entry.
    #[error("asked to cut at entry {at} below the committed entry {committed}: replace this copy")]
    CutCommitted {
        /// Where.
        at: u64,
        /// The last committed entry.
        committed: u64,
    },
    /// An entry that does not follow the last one.
    #[error("entry {got} of a stream came where {expected} was expected: restart the node, report this")]
    Gap {
        /// What was expected.
        expected: u64,
        /// What came.
        got: u64,
    },
    /// The engine logged an entry that was not ordered.
    #[error(
        "the engine appended entry {got} of epoch {epoch} where {expected} was due: restart the node, report this"
    )]
    WrongAppend {
        /// What was due.
        expected: u64,
        /// What was appended.
        got: u64,
        /// Its epoch.
        epoch: u64,
    },
    /// The only copy in sync was given all, and its log was damaged before it heard that it had been added.
    #[error("the only copy in sync under epoch {epoch} has a log with a gap: keep the drives of all members")]
    Incomplete {
        /// The configuration's epoch.
        epoch: u64,
    },
    /// A copy in sync lacks committed entries.
    #[error(
        "{copy:?} is in sync and ends at entry {last}, below the committed entry {committed}: replace it"
    )]
    LostCommitted {
        /// The copy.
        copy: CopyId,
        /// Its last entry.
        last: u64,
        /// The last committed entry.
        committed: u64,
    },
}

impl Violation {
    /// Whether only the copy that has stopped is in doubt: each other copy in sync has everything that is committed, so
    /// that one of them may take its place. Where two sides contradict each other nobody can tell which of them holds a
    /// write that was answered, and people decide: it may be the one that would be left out. So it is with a cut of what is
    /// committed, too: the copy, which is out then, knows of an entry that those in sync lack.
    pub fn is_about_this_copy(&self) -> bool {
        matches!(self, Violation::Gap { .. } | Violation::WrongAppend { .. })
    }
}
