//! What copies of a group say to each other. The node adds the group and batches messages of many groups.
//!
//! Messages between two copies arrive in order or not at all: a connection that breaks loses what is under way, and
//! both sides are told before anything of the next connection arrives.

use crate::history::History;
use crate::session::Sessions;
use crate::types::{BlockRange, Config, Entry, GroupEpoch, PayloadRef};

/// A message. `config_epoch` is the sender's epoch.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Message {
    /// Primary to a copy in sync, first on each connection and for each configuration: persist this, stop everything
    /// of lower epochs, and say where your log ends.
    Configure {
        /// The configuration.
        config: Config,
    },
    /// Answer to `Configure`: the configuration is persisted.
    State {
        /// The configuration's epoch.
        config_epoch: u64,
        /// Epochs of the log's entries.
        history: History,
        /// Last entry of the log.
        last: u64,
        /// Last entry that is durable.
        durable: u64,
    },
    /// Asks a copy in sync for the entries that the new primary lacks.
    FetchTail {
        /// The primary's epoch.
        config_epoch: u64,
        /// First sequence number wanted.
        from: u64,
    },
    /// Answer to `FetchTail`: all entries from there on, with their original epochs.
    Tail {
        /// The primary's epoch.
        config_epoch: u64,
        /// The entries, in order.
        entries: Vec<Entry>,
    },
    /// One change, from the primary, behind all others of its stream.
    Append {
        /// The primary's epoch.
        config_epoch: u64,
        /// Epoch of the entry before.
        previous_epoch: u64,
        /// All entries up to this one are committed.
        commit: u64,
        /// The change.
        entry: Entry,
    },
    /// All entries up to this one are durable at a copy in sync.
    AppendAck {
        /// The copy's epoch.
        config_epoch: u64,
        /// Last durable entry.
        durable: u64,
    },
    /// All entries up to this one are committed; sent when no `Append` says so soon.
    Commit {
        /// The primary's epoch.
        config_epoch: u64,
        /// Last committed entry.
        commit: u64,
    },
    /// What was sent is of a lower epoch than this configuration.
    Stale {
        /// The configuration that holds.
        config: Config,
    },
    /// Asks for a read grant.
    GrantRequest {
        /// The primary's epoch.
        config_epoch: u64,
        /// The primary's time when it asked.
        sent_ns: u64,
    },
    /// A read grant: the sender will not serve as primary before its time of receipt plus the grant's length.
    Grant {
        /// The epoch granted for.
        config_epoch: u64,
        /// The time in the request.
        sent_ns: u64,
    },
    /// The sender was primary and is not any more: it has persisted this epoch and serves under no lower one, so what was
    /// promised to it under those is void.
    Released {
        /// The epoch.
        config_epoch: u64,
    },
    /// `GrantRequest` of many groups at once: a message of two copies, not of one group.
    GrantRequests {
        /// The primary's time when it asked.
        sent_ns: u64,
        /// The groups, with the primary's epochs.
        groups: Vec<GroupEpoch>,
    },
    /// `Grant` of many groups at once: a message of two copies, not of one group.
    Grants {
        /// The time in the request.
        sent_ns: u64,
        /// The groups, with the epochs granted for.
        groups: Vec<GroupEpoch>,
    },
    /// The sender has just opened the group, on a connection that there was: what was said of it before is to be forgotten.
    /// For the drivers of groups: a group sees it as the end of a connection and the next one.
    Opened {},
    /// Answer to `Opened`: what follows was said after it.
    OpenedToo {},
    /// Whether the sender's shard has room only for what cannot be refused: a message of two copies, not of one group.
    Room {
        /// It has no more.
        is_full: bool,
    },
    /// Asks an out copy where it stands.
    JoinQuery {
        /// The configuration.
        config: Config,
    },
    /// Answer to `JoinQuery`: the configuration is persisted.
    JoinState {
        /// The configuration's epoch.
        config_epoch: u64,
        /// Epochs of the log's entries.
        history: History,
        /// Last entry of the log.
        last: u64,
        /// Last entry known to be committed.
        committed: u64,
        /// Blocks may lack changes above this, if it was cut before.
        incomplete_since: Option<u64>,
        /// False if the copy is blank or has lost durable records: everything must be compared.
        intact: bool,
    },
    /// Forget the entries above.
    Cut {
        /// The primary's epoch.
        config_epoch: u64,
        /// Last entry that stays.
        at: u64,
    },
    /// Answer to `Cut`, durable.
    CutDone {
        /// The copy's epoch.
        config_epoch: u64,
        /// Blocks of all entries that were ever cut and not recovered since.
        ranges: Vec<BlockRange>,
    },
    /// Start of the stream to an out copy: skip to here. All skipped entries are committed.
    Join {
        /// The primary's epoch.
        config_epoch: u64,
        /// Epochs of the entries before `from`.
        history: History,
        /// The first entry that the stream brings.
        from: u64,
    },
    /// Data of blocks that no entry of the stream has changed so far.
    Recover {
        /// The primary's epoch.
        config_epoch: u64,
        /// The blocks.
        range: BlockRange,
        /// Their data or holes.
        payload: PayloadRef,
    },
    /// The session table as of this place in the stream.
    Sessions {
        /// The primary's epoch.
        config_epoch: u64,
        /// The table.
        sessions: Sessions,
    },
    /// Asks for a block that is bad here. For the drivers of groups: what a group decides does not depend on it.
    RepairRead {
        /// The sender's epoch.
        config_epoch: u64,
        /// Handed back.
        repair: u64,
        /// Last entry applied here: to be answered when it is applied there, too.
        at: u64,
        /// The block.
        range: BlockRange,
    },
    /// Answer to `RepairRead`: the block, as it is there.
    RepairData {
        /// The sender's epoch.
        config_epoch: u64,
        /// As asked.
        repair: u64,
        /// The block.
        range: BlockRange,
        /// Its data.
        payload: PayloadRef,
    },
    /// Answer to `RepairRead`: none.
    RepairRefused {
        /// The sender's epoch.
        config_epoch: u64,
        /// As asked.
        repair: u64,
        /// There is no such block there, or it is bad; otherwise it may be asked for again.
        is_bad: bool,
    },
    /// Asks for hashes of blocks. For the drivers of groups, like `RepairRead`.
    HashRead {
        /// The sender's epoch.
        config_epoch: u64,
        /// Handed back.
        compare: u64,
        /// To be answered when this entry is applied there.
        at: u64,
        /// The blocks.
        range: BlockRange,
        /// The key of the hashes.
        key: u128,
    },
    /// Answer to `HashRead`: a hash for each 16 blocks, or none at all if there is nothing of the chunk.
    Hashes {
        /// The sender's epoch.
        config_epoch: u64,
        /// As asked.
        compare: u64,
        /// The blocks.
        range: BlockRange,
        /// The hashes.
        hashes: Vec<u128>,
    },
    /// Answer to `HashRead`: none, for now or because a block cannot be read.
    HashRefused {
        /// The sender's epoch.
        config_epoch: u64,
        /// As asked.
        compare: u64,
    },
    /// Everything in the stream up to the position (`Join` is 0, then one each) is durable.
    StreamAck {
        /// The copy's epoch.
        config_epoch: u64,
        /// Position in the stream.
        position: u64,
        /// Last durable entry.
        durable: u64,
    },
}
