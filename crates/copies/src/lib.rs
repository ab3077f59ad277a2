//! The placement groups of one shard: each a replication [`Group`](coquina_replication::Group), all on one engine
//! [`Shard`](coquina_engine::Shard). A pure state machine without clock, thread, file or socket.
//!
//! [`ShardCopies`] takes clients' requests, messages of other copies, completions of I/O and the time. What it wants done
//! it tells its driver at once, through a [`Sink`]: data is lent there straight from the frame that is being filled, so that
//! it is copied once on its way out. Where the parts are:
//!
//! | what | where |
//! |---|---|
//! | requests, messages, completions come in | `shard.rs` |
//! | what a group wants is done by the engine | `execute.rs` |
//! | what the engine did is told to a group | `drain.rs` |
//! | messages go out in order, with data that may have to be read back first | `outgoing.rs` |
//! | grants of all groups, and room, between two shards | `between.rs` |
//! | a copy of which nothing is known is compared by hashes | `compare.rs` |
//! | the scrub compares copies in sync | `verify.rs` |
//! | bad blocks are got from other copies | `repair.rs` |
//! | those that no copy has any more are taken as bad by one that comes back | `lost.rs` |
//! | the bytes of data behind a message | `payload.rs` |
//!
//! # Invariants
//!
//! 1. The engine's actions are taken up right after each call of the engine, and all actions of one input of a group are
//!    executed before the next input: so a group and the engine number records in the same order.
//! 2. An entry whose data is still to be sent is not committed at the engine, though it may be for the group: so it can be
//!    read back from the log.
//! 3. After a group has stepped down no change of its clients enters the log until those at the engine are over; so none of
//!    an earlier reign slips into a later one.
//! 4. What was read to be sent to a copy that misses it was read after the group asked for it: everything committed before
//!    is applied by then, and changes since are in the stream anyway (`catch_up.rs` of `coquina_replication`).

#[cfg(all(feature = "mutations", not(debug_assertions)))]
compile_error!("deliberate mistakes must not be in a release build");

mod api;
mod between;
mod compare;
mod drain;
mod execute;
mod lost;
mod outgoing;
mod payload;
mod repair;
mod shard;
mod verify;

pub use api::{Answer, Event, Operation, Request, Sink};
pub use compare::FEATURE_HASHES;
pub use outgoing::FEATURE_RELEASE;
pub use payload::{Payload, PayloadError};
pub use repair::{FEATURE_REPAIR, FEATURES};
pub use shard::ShardCopies;
