//! What a run may find.

use coquina_engine::{Event, Failure};

use crate::model::WrongData;

/// The engine broke a promise.
#[derive(Clone, PartialEq, Debug)]
pub enum Violation {
    /// A read gave data that no order of the requests explains.
    WrongData(WrongData),
    /// The checksums that came with a read are not those of its data.
    WrongChecksums,
    /// An answer does not fit its request.
    WrongAnswer(String),
    /// A request failed for no reason.
    Failed {
        /// Name of the request's kind.
        request: &'static str,
        /// Why it failed.
        failure: Failure,
    },
    /// `NoSpace` though there is room, or though room was promised.
    NoSpaceTooEarly {
        /// Blocks that may be in use, outstanding writes included.
        used_blocks: u64,
        /// Blocks that the shard can hold.
        capacity_blocks: u64,
    },
    /// More is stored than the shard says it can hold: then its cleaner may get stuck.
    OverCommitted {
        /// Bytes of live data and reserved zeros.
        live_bytes: u64,
        /// What the shard says it can hold.
        capacity_bytes: u64,
    },
    /// An event that nothing gave cause to.
    UnexpectedEvent(Event),
    /// A drive could not be formatted.
    Format(String),
    /// A drive could not be opened.
    Open(String),
    /// The numbers of a placement group's entries are not what they must be.
    Group(String),
    /// The shard found its own invariants broken.
    SelfCheck(String),
    /// The check of the stopped drive found something.
    CheckDrive(String),
    /// A fault went unnoticed, or what it led to was not what is promised.
    Fault(&'static str),
    /// Nothing happens any more though something should.
    Hang(String),
    /// The same seed gave two different runs.
    NotRepeatable,
    /// The engine panicked.
    Panic(String),
}

impl std::fmt::Display for Violation {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Violation::WrongData(wrong) => write!(formatter, "wrong data: {wrong}"),
            Violation::WrongChecksums => write!(formatter, "a read's checksums are not those of its data"),
            Violation::WrongAnswer(what) => write!(formatter, "an answer does not fit its request: {what}"),
            Violation::Failed { request, failure } => {
                write!(formatter, "a {request} failed without cause: {failure:?}")
            }
            Violation::NoSpaceTooEarly { used_blocks, capacity_blocks } => write!(
                formatter,
                "NoSpace, but at most {used_blocks} of {capacity_blocks} blocks are used or promised space was refused"
            ),
            Violation::OverCommitted { live_bytes, capacity_bytes } => {
                write!(formatter, "{live_bytes} bytes are stored where {capacity_bytes} find room")
            }
            Violation::UnexpectedEvent(event) => write!(formatter, "an event without cause: {event:?}"),
            Violation::Format(error) => write!(formatter, "the drive cannot be formatted: {error}"),
            Violation::Open(error) => write!(formatter, "the drive cannot be opened: {error}"),
            Violation::Group(what) => write!(formatter, "a placement group's numbers are wrong: {what}"),
            Violation::SelfCheck(error) => write!(formatter, "the shard's self-check failed: {error}"),
            Violation::CheckDrive(error) => {
                write!(formatter, "the check of the stopped drive failed: {error}")
            }
            Violation::Fault(what) => write!(formatter, "{what}"),
            Violation::Hang(what) => write!(formatter, "nothing happens any more: {what}"),
            Violation::NotRepeatable => write!(formatter, "two runs of the same seed differ"),
            Violation::Panic(message) => write!(formatter, "panic: {message}"),
        }
    }
}

impl std::error::Error for Violation {}

impl From<WrongData> for Violation {
    fn from(wrong: WrongData) -> Self {
        Violation::WrongData(wrong)
    }
}
