//! A client's side of one connection, for load generators and tests.

mod handshake;
mod reply;
mod request;

pub use handshake::{BlockSizes, ClientConfig, ClientHandshake, Negotiated};
pub use reply::{DescriptorIterator, Reply, parse_reply};
pub use request::{ClientRequest, ClientRequestKind};

use crate::ExportNameError;

/// What makes a client give a connection up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The peer is not an NBD server, or one older than fixed newstyle.
    #[error("the peer does not speak fixed newstyle NBD")]
    NotFixedNewstyle,
    /// The server refused an option that the client cannot do without.
    #[error("the server refused option {option} with reply {reply_type:#x}: {message}")]
    OptionRefused {
        /// Number of the option.
        option: u32,
        /// Type of the error reply.
        reply_type: u32,
        /// What the server says of it, cut to 4096 bytes.
        message: String,
    },
    /// The server ended an option without what must come before its end.
    #[error("the server did not describe the export")]
    NoExportInfo,
    /// Something in the stream is not what it has to be.
    #[error("the server sent an invalid {0}")]
    Invalid(&'static str),
    /// The export's name cannot be sent.
    #[error(transparent)]
    Name(#[from] ExportNameError),
}
