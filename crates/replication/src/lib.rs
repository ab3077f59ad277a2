//! Replication of one placement group on one copy: a pure state machine without clock, thread, file or socket.
//!
//! A [`Group`] takes an [`Input`] with the time and gives [`Action`]s. One stands for each copy (a shard of a drive) of
//! each group. Around it are two drivers: the node (reactor and engine), and the simulator; and the model checker of
//! `tests/model.rs`, which tries all orders of what can happen in a small world on this very code. The protocol is that
//! of PacificA: told for a reader in `docs/replication.md`, and here where it is done:
//!
//! | what | where |
//! |---|---|
//! | a configuration arrives, is persisted, is acted on; records become durable | `group.rs` |
//! | requests, streams to the copies in sync, commits, the lease, suspicion | `primary.rs` |
//! | a reign begins: greet, collect the tails, complete them, serve | `takeover.rs` |
//! | a copy in sync follows | `backup.rs` |
//! | an out copy comes back, its side and the primary's | `returning.rs`, `catch_up.rs` |
//! | read grants | `grant.rs` |
//! | what out copies miss | `changed.rs` |
//! | exactly once, fences | `session.rs` |
//! | bytes on the wire and in the log | `codec.rs` |
//!
//! # What the driver owes
//!
//! - Actions of one input are executed in order before the next input. [`Action::Stop`] takes effect at once.
//! - The log keeps records in order, and what is durable is a prefix. A crash loses an undurable suffix at most; lost
//!   durable records are *damage*: the group is then started with `intact: false` and never as a copy in sync. It takes no
//!   part in a configuration that counts on it before it has been brought up again: its addition may have been under way.
//! - Messages between two copies arrive in order or not at all within a connection; both sides are told that it broke
//!   before anything of the next one arrives, and the crash of a copy breaks its connections.
//! - Entries are of whole blocks; the engine merges smaller writes before it appends. It applies each entry once
//!   durable, and lets a client's read of a block wait for the block's uncommitted entries.
//! - The coordinator makes each configuration by a compare-and-set on the epoch, with copies in sync only from those
//!   in sync before and the one that the primary of exactly that epoch proposed. The first configuration has epoch 1.
//!
//! # Invariants
//!
//! 1. *One order.* (`epoch`, `sequence`) names one entry for ever: only the primary of an epoch makes entries of it, and
//!    it begins behind the end of every log in sync. So two logs that have the same epoch at a number are the same up
//!    to there.
//! 2. *Prefixes.* The logs of the copies in sync are prefixes of one another; each holds every committed entry, durable.
//! 3. *Promise.* A copy that has said that it knows epoch e has persisted it, and takes nothing of a lower one, restarts
//!    included.
//! 4. *Commit.* An entry is committed when it is durable at all copies in sync and at the one being added. Committed
//!    entries are never cut.
//! 5. *One reader.* A primary lets reads through only while every copy that could be primary next has promised not to
//!    serve yet; each of them keeps that promise before it serves, by its own clock, or, after a restart, by waiting for
//!    the longest promise that it can have given.
//! 6. *Complete.* A copy is added only when each of its blocks is that of the log's end: whatever changed since its last
//!    proven state (trims included) or belonged to entries that it cut was fetched or came as a change, and its session
//!    table is that of the log.
//! 7. *Once.* A request is in the log of a copy in sync if and only if it is in its session table (older than the
//!    table's window counts as in), but for one of a session that newer ones have pushed out.
//! 8. *Never silent.* What contradicts these is reported as a [`Violation`]; the copy then does nothing any more.
//!    Its driver proposes its removal while it is the primary, if only this copy is in doubt and another one is in sync.

#[cfg(all(feature = "mutations", not(debug_assertions)))]
compile_error!("replication's deliberate mistakes must not be in a release build");

mod api;
mod backup;
mod catch_up;
mod changed;
mod codec;
mod grant;
mod group;
mod history;
mod log;
mod message;
mod primary;
mod returning;
mod session;
mod takeover;
mod types;

#[cfg(feature = "mutations")]
pub use api::Mutation;
pub use api::{Action, ClientRequest, Input, Refusal, Settings, Start, Violation};
pub use catch_up::StreamLeft;
pub use changed::{ChangedSet, Missing, MissingSets, RangeSet};
pub use codec::{Codec, DecodeError, decode_message, encode_message};
pub use grant::{Lease, Promises};
pub use group::Group;
pub use history::{History, Run};
pub use message::Message;
pub use session::{SESSION_WINDOW, SESSIONS_MAX, Sessions, Window, Windows};
pub use types::{
    BlockRange, Config, CopyId, Entry, EntryKind, GroupEpoch, GroupId, PayloadRef, Recovery, RecoveryToken,
    Token,
};
