//! The native client: a volume as a program sees it.
//!
//! Three layers, each usable alone: [`ClientCore`] is a state machine without clock, socket or randomness;
//! [`VolumeClient`] runs it on a [`Reactor`](coquina_reactor::Reactor); [`Volume`] is blocking and shared by
//! threads.
//!
//! Invariants:
//! - a request's parts keep their request numbers however often they are sent, so that a server applies each
//!   change once;
//! - the newest request number of a placement group is less than [`REQUEST_WINDOW`](coquina_protocol::REQUEST_WINDOW) above
//!   the oldest unanswered one of the group, and no number below the floor is unanswered;
//! - data that a read gives has matched its checksums.

mod answer;
mod config;
mod core;
mod driver;
mod error;
mod landing;
mod link;
mod local;
mod patience;
mod request;
mod route;
mod table;
#[cfg(test)]
mod tests;
mod volume;
mod withdraw;

pub use config::ClientConfig;
pub use core::{ClientCore, LinkAction};
pub use driver::{VolumeClient, VolumeConnection};
pub use error::ClientError;
pub use local::{LocalAnswer, LocalName, LocalPart};
pub use request::{ClientCompletion, ClientRequest, RequestKind};
pub use volume::{Volume, VolumeOptions};
pub use withdraw::LATE_NS;
