use std::fmt;

/// Error of one request, as the protocol numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ErrorCode {
    /// `EPERM`: a write to a read-only export.
    NotPermitted = 1,
    /// `EIO`: the drive failed or a checksum did not match.
    Io = 5,
    /// `ENOMEM`. spec: a server should not return it if at all possible.
    OutOfMemory = 12,
    /// `EINVAL`: the request itself is wrong.
    InvalidArgument = 22,
    /// `ENOSPC`: past the end of the export, or the drives are full.
    NoSpace = 28,
    /// `EOVERFLOW`: too large to be answered unfragmented.
    Overflow = 75,
    /// `ENOTSUP`: a fast zero that would not be fast.
    NotSupported = 95,
    /// `ESHUTDOWN`: the server is going down.
    Shutdown = 108,
}

impl ErrorCode {
    /// The number on the wire.
    pub fn to_wire(self) -> u32 {
        self as u32
    }

    /// What a client makes of a number on the wire.
    ///
    /// spec: only these values are defined; whatever else a server sends is taken for `EINVAL`.
    pub fn from_wire(value: u32) -> Self {
        match value {
            1 => Self::NotPermitted,
            5 => Self::Io,
            12 => Self::OutOfMemory,
            28 => Self::NoSpace,
            75 => Self::Overflow,
            95 => Self::NotSupported,
            108 => Self::Shutdown,
            _ => Self::InvalidArgument,
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::NotPermitted => "operation not permitted",
            Self::Io => "input/output error",
            Self::OutOfMemory => "cannot allocate memory",
            Self::InvalidArgument => "invalid argument",
            Self::NoSpace => "no space left on device",
            Self::Overflow => "value too large",
            Self::NotSupported => "operation not supported",
            Self::Shutdown => "the server is shutting down",
        })
    }
}

/// Why a connection ends although nobody broke a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DisconnectReason {
    /// The client gave up while negotiating.
    Aborted,
    /// The client said goodbye in the transmission phase.
    Requested,
    /// `EXPORT_NAME` named an export that the driver refused, and that option has no error reply.
    ExportRefused,
}

/// What a client did that leaves no way to go on: the driver drops the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Flags that the server did not offer.
    #[error("the client set unknown handshake flags {flags:#x}")]
    ClientFlags {
        /// All flags as sent.
        flags: u32,
    },
    /// The client is not speaking NBD, or lost its place in the stream.
    #[error("an option begins with {magic:#018x}")]
    OptionMagic {
        /// What was sent in its place.
        magic: u64,
    },
    /// A client that is not fixed newstyle knows `EXPORT_NAME` only.
    #[error("option {option} from a client that did not negotiate fixed newstyle")]
    OptionNotFixed {
        /// Number of the option.
        option: u32,
    },
    /// More data than any option can need.
    #[error("option {option} announces {length_bytes} bytes of data")]
    OptionTooLong {
        /// Number of the option.
        option: u32,
        /// What the client announced, in bytes.
        length_bytes: u32,
    },
    /// A client that negotiates without end.
    #[error("the client sent too many options")]
    TooManyOptions,
    /// A bad name in `EXPORT_NAME`, which has no error reply.
    #[error(transparent)]
    Name(#[from] crate::ExportNameError),
    /// The client lost its place in the stream, or is not speaking NBD.
    #[error("a request begins with {magic:#010x}")]
    RequestMagic {
        /// What was sent in its place.
        magic: u32,
    },
    /// A payload so long that skipping it would be the client's gain.
    #[error("a write announces {length_bytes} bytes")]
    WriteTooLong {
        /// What the client announced, in bytes.
        length_bytes: u32,
    },
}
