//! A server's side of one connection.
//!
//! `session` is the state machine; `haggling` answers the options of the
//! handshake, whose data `option` reads; `transmission` takes requests.

mod haggling;
mod option;
mod session;
mod transmission;

pub use session::{Event, LookUpPurpose, ServerConfig, ServerSession};
