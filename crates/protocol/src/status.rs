//! How requests end, and why a byte stream is given up.

/// How a request ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
#[repr(u16)]
pub enum Status {
    /// Done.
    #[default]
    Ok = 0,
    /// The drives are full.
    NoSpace = 1,
    /// A block does not match its checksum or cannot be read.
    BadBlock = 2,
    /// The volume or its drive takes no changes.
    ReadOnly = 3,
    /// The drive failed.
    Device = 4,
    /// The payload did not match its checksums when it arrived.
    ChecksumMismatch = 5,
    /// Range, flags or fields make no sense.
    Invalid = 6,
    /// No volume of that name or identity.
    UnknownVolume = 7,
    /// The handle is not known here, or its attachment is fenced. Open again.
    StaleHandle = 8,
    /// The placement group has a newer epoch. Get the map again.
    StaleEpoch = 9,
    /// The chunk's shard is not served on this connection. Get the map again.
    NotHere = 10,
    /// Not now: too much outstanding, or starting. Try again later.
    Busy = 11,
    /// No common protocol version.
    VersionMismatch = 12,
    /// The server is stopping. Reconnect.
    ShuttingDown = 13,
    /// The server belongs to another cluster.
    WrongCluster = 14,
    /// This copy does not serve the placement group now. Get the map again and retry.
    NotServing = 15,
    /// Fewer copies are in sync than the pool asks for. Retry later.
    TooFewCopies = 16,
    /// The volume was attached anew elsewhere, and this attachment may change nothing any more. Never retry.
    Fenced = 17,
}

impl Status {
    /// The status of a number on the wire.
    pub fn from_wire(number: u16) -> Option<Status> {
        use Status::*;
        const ALL: [Status; 18] = [
            Ok,
            NoSpace,
            BadBlock,
            ReadOnly,
            Device,
            ChecksumMismatch,
            Invalid,
            UnknownVolume,
            StaleHandle,
            StaleEpoch,
            NotHere,
            Busy,
            VersionMismatch,
            ShuttingDown,
            WrongCluster,
            NotServing,
            TooFewCopies,
            Fenced,
        ];
        ALL.get(usize::from(number)).copied()
    }

    /// Whether the same request may be taken later or elsewhere.
    pub fn may_pass(self) -> bool {
        use Status::*;
        matches!(self, StaleEpoch | NotHere | Busy | ShuttingDown | NotServing | TooFewCopies)
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Status::Ok => "done",
            Status::NoSpace => "the drives are full: remove or trim volumes, or add a drive",
            Status::BadBlock => "a block is damaged on its drive",
            Status::ReadOnly => "the volume or its drive takes no changes",
            Status::Device => "the drive failed",
            Status::ChecksumMismatch => "the data was damaged on its way to the server",
            Status::Invalid => "the request makes no sense",
            Status::UnknownVolume => "there is no such volume",
            Status::StaleHandle => "the volume was attached elsewhere or removed",
            Status::StaleEpoch => "the placement group has changed",
            Status::NotHere => "the data is served elsewhere",
            Status::Busy => "the server is busy",
            Status::VersionMismatch => "client and server share no protocol version: upgrade the older one",
            Status::ShuttingDown => "the server is stopping",
            Status::WrongCluster => "the server belongs to another cluster",
            Status::NotServing => "this copy of the data does not serve now",
            Status::TooFewCopies => {
                "fewer copies are in sync than the pool asks for: bring nodes or drives back, see `coquina status`"
            }
            Status::Fenced => "the volume was attached elsewhere, which ended this attachment: open it again",
        })
    }
}

/// Why a byte stream is given up. The connection must be closed: what follows cannot be trusted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProtocolError {
    /// Not a header of this protocol.
    #[error("the peer does not speak the Coquina protocol (magic {0:#010x})")]
    Magic(u32),
    /// The header was damaged.
    #[error("a message header is damaged (checksum)")]
    HeaderChecksum,
    /// A version outside what was agreed.
    #[error("a message has protocol version {0}, which this program does not speak")]
    Version(u16),
    /// An unknown kind of message.
    #[error("a message has the unknown kind {0:#06x}")]
    Kind(u16),
    /// An unknown kind of checksum.
    #[error("a message has the unknown checksum kind {0}")]
    ChecksumKind(u8),
    /// An unknown status.
    #[error("a message has the unknown status {0}")]
    Status(u16),
    /// The body is larger than any may be.
    #[error("a message announces a body of {0} bytes, more than allowed")]
    BodyTooLarge(u32),
    /// The body does not have the length that its kind and header ask for.
    #[error("a message of kind {kind:?} has a body of {body_bytes} bytes, which does not fit its header")]
    BodyLength {
        /// Kind of the message.
        kind: crate::Kind,
        /// Length of the body.
        body_bytes: u32,
    },
    /// The range is empty, not of whole sectors, or leaves its chunk.
    #[error(
        "a request for {length_bytes} bytes at {offset_bytes} is not within a chunk or not of whole sectors"
    )]
    Range {
        /// First byte within the chunk.
        offset_bytes: u32,
        /// Bytes.
        length_bytes: u32,
    },
    /// A peer's frame is too short for its head, or longer than any may be.
    #[error("a peer's frame of {length_bytes} bytes with a head of {head_bytes} is not possible")]
    PeerFrame {
        /// Bytes of the frame, as it says.
        length_bytes: u32,
        /// Bytes of its head, as it says.
        head_bytes: u32,
    },
    /// The head of a peer's frame was damaged.
    #[error("the head of a peer's frame is damaged (checksum)")]
    PeerChecksum,
    /// The body of a control message makes no sense.
    #[error("a message of kind {0:?} has a malformed body")]
    Malformed(crate::Kind),
}
