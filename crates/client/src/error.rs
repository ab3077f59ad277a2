//! How requests and volumes fail, as seen by a program.

use coquina_protocol::Status;

/// Why a request or an open failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The server refused or failed it.
    #[error("{}", explain(*.status, .text))]
    Server {
        /// Why.
        status: Status,
        /// The server's explanation; may be empty.
        text: String,
    },
    /// The range leaves the volume, is empty, or is not of whole sectors.
    #[error(
        "{length_bytes} bytes at {offset_bytes} are not within the volume of {size_bytes} bytes in whole sectors of 512"
    )]
    Range {
        /// First byte.
        offset_bytes: u64,
        /// Bytes.
        length_bytes: u64,
        /// Size of the volume.
        size_bytes: u64,
    },
    /// The buffer is shorter than the request's length.
    #[error("the buffer holds {buffer_bytes} bytes, the request has {length_bytes}")]
    Buffer {
        /// Length of the buffer.
        buffer_bytes: u64,
        /// Length of the request.
        length_bytes: u64,
    },
    /// The volume was opened read-only.
    #[error("the volume was opened read-only")]
    ReadOnly,
    /// The server could not be reached for too long. Whether an outstanding write took effect is unknown.
    #[error(
        "no connection to {address} for {seconds} s, given up (last: {last}); whether outstanding changes took effect is unknown"
    )]
    GivenUp {
        /// The server.
        address: String,
        /// How long it was tried.
        seconds: u64,
        /// The last failure.
        last: String,
    },
    /// What was read did not match its checksums, several times over.
    #[error(
        "data was damaged on its way from {address}, {attempts} times in a row: check the network and the hosts' memory"
    )]
    Damaged {
        /// The server.
        address: String,
        /// How often it was read.
        attempts: u32,
    },
    /// The address makes no sense.
    #[error("{0}")]
    Address(String),
    /// The client's own ring or thread failed.
    #[error("{0}")]
    Local(String),
    /// Nobody waited for the request any more. Whether a write took effect is unknown.
    #[error("the request was withdrawn")]
    Withdrawn,
    /// The volume was closed while the request was outstanding.
    #[error("the volume is closed")]
    Closed,
}

fn explain(status: Status, text: &str) -> String {
    if text.is_empty() { status.to_string() } else { format!("{status} ({text})") }
}

impl ClientError {
    /// The server's status, if the server answered.
    pub fn status(&self) -> Option<Status> {
        match self {
            ClientError::Server { status, .. } => Some(*status),
            _ => None,
        }
    }
}
