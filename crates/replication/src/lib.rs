//! Replication of one placement group on one copy: a pure state machine without clock, thread, file or socket.

#[cfg(all(feature = "mutations", not(debug_assertions)))]
compile_error!("replication's deliberate mistakes must not be in a release build");

mod api;
mod backup;
mod catch_up;
mod changed;
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
pub use changed::{ChangedSet, Missing, MissingSets, RangeSet};
pub use grant::{Lease, Promises};
pub use group::Group;
pub use history::{History, Run};
pub use message::Message;
pub use session::{SESSION_WINDOW, SESSIONS_MAX, Sessions, Window};
pub use types::{
    BlockRange, Config, CopyId, Entry, EntryKind, GroupId, PayloadRef, Recovery, RecoveryToken, Token,
};
