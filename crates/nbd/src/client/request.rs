use crate::Cookie;
use crate::constant::{MAGIC_REQUEST, REQUEST_HEADER_BYTES, command, command_flag};

/// What a client asks for. `force_unit_access`: answer only when the change is on stable storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientRequestKind {
    /// Send data.
    Read {
        /// In a single content chunk; only if the server offers it.
        dont_fragment: bool,
    },
    /// Store the data that follows the header, exactly as long as the request says.
    Write {
        /// See the enum.
        force_unit_access: bool,
    },
    /// End the session. There is no reply.
    Disconnect,
    /// Put every write that was answered on stable storage.
    Flush,
    /// Forget the range's contents.
    Trim {
        /// See the enum.
        force_unit_access: bool,
    },
    /// Read the range ahead.
    Cache,
    /// Make the range read as zeroes.
    WriteZeroes {
        /// See the enum.
        force_unit_access: bool,
        /// Keep the space ready for writes.
        no_hole: bool,
        /// Fail rather than be slow.
        fast_zero: bool,
    },
    /// Tell which parts of the range are stored.
    BlockStatus {
        /// One extent is enough.
        one_extent: bool,
    },
}

/// A request to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientRequest {
    /// Comes back with the reply. spec: distinct from those of all outstanding requests.
    pub cookie: Cookie,
    /// What to do.
    pub kind: ClientRequestKind,
    /// First byte concerned; zero for a flush and a disconnect.
    pub offset_bytes: u64,
    /// Number of bytes concerned; zero for a flush and a disconnect.
    pub length_bytes: u32,
}

impl ClientRequest {
    /// The header to send; the payload of a write follows it.
    pub fn header(&self) -> [u8; REQUEST_HEADER_BYTES] {
        let (number, flags) = self.kind.to_wire();
        let mut bytes = [0; REQUEST_HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC_REQUEST.to_be_bytes());
        bytes[4..6].copy_from_slice(&flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&number.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.0.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset_bytes.to_be_bytes());
        bytes[24..].copy_from_slice(&self.length_bytes.to_be_bytes());
        bytes
    }
}

impl ClientRequestKind {
    /// Command number and flags.
    fn to_wire(self) -> (u16, u16) {
        let flag = |is_set: bool, flag: u16| if is_set { flag } else { 0 };
        match self {
            Self::Read { dont_fragment } => (command::READ, flag(dont_fragment, command_flag::DF)),
            Self::Write { force_unit_access } => (command::WRITE, flag(force_unit_access, command_flag::FUA)),
            Self::Disconnect => (command::DISC, 0),
            Self::Flush => (command::FLUSH, 0),
            Self::Trim { force_unit_access } => (command::TRIM, flag(force_unit_access, command_flag::FUA)),
            Self::Cache => (command::CACHE, 0),
            Self::WriteZeroes { force_unit_access, no_hole, fast_zero } => (
                command::WRITE_ZEROES,
                flag(force_unit_access, command_flag::FUA)
                    | flag(no_hole, command_flag::NO_HOLE)
                    | flag(fast_zero, command_flag::FAST_ZERO),
            ),
            Self::BlockStatus { one_extent } => {
                (command::BLOCK_STATUS, flag(one_extent, command_flag::REQ_ONE))
            }
        }
    }
}
