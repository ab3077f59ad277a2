//! The numbers of the protocol, named as the specification names them less its `NBD_` prefix, and this server's limits.

/// Size of a request header, in bytes.
pub const REQUEST_HEADER_BYTES: usize = 28;
/// Largest payload of one read or write that this crate accepts, in bytes: 32 MiB.
///
/// spec: any length below 2^25 should not be taken for a denial of service.
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;
/// Longest payload of a refused write that is skipped rather than answered by dropping the connection, in bytes: 64 MiB.
pub const WRITE_DRAIN_BYTES_MAX: u32 = 64 << 20;
/// Most data of one option that is buffered, in bytes; longer options are skipped and refused.
pub const OPTION_BYTES_MAX: u32 = 64 << 10;
/// Longest option that is skipped rather than answered by dropping the connection, in bytes.
pub const OPTION_DRAIN_BYTES_MAX: u32 = 1 << 20;
/// Options that one client may send before it is taken for a flood.
pub const OPTIONS_MAX: u32 = 4096;
/// The id under which `base:allocation` is selected.
pub const ALLOCATION_CONTEXT_ID: u32 = 1;
/// The only metadata context that this crate knows.
pub const ALLOCATION_CONTEXT: &str = "base:allocation";

/// Smallest length and alignment of a request, in bytes.
pub const BLOCK_BYTES_MIN: u32 = coquina_base::SECTOR_BYTES as u32;
/// Smallest length and alignment that is served without a merge, in bytes.
pub const BLOCK_BYTES_PREFERRED: u32 = coquina_base::BLOCK_BYTES as u32;

pub const MAGIC_INITIAL: u64 = 0x4e42_444d_4147_4943;
pub const MAGIC_OPTION: u64 = 0x4948_4156_454f_5054;
pub const MAGIC_OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
pub const MAGIC_REQUEST: u32 = 0x2560_9513;
pub const MAGIC_SIMPLE_REPLY: u32 = 0x6744_6698;
pub const MAGIC_STRUCTURED_REPLY: u32 = 0x668e_33ef;

/// Server's greeting: both magic numbers and the handshake flags.
pub const GREETING_BYTES: usize = 18;
/// Magic, option and length.
pub const OPTION_HEADER_BYTES: usize = 16;
/// Magic, option, reply type and length.
pub const OPTION_REPLY_HEADER_BYTES: usize = 20;
/// Magic, flags, type, cookie and length.
pub const CHUNK_HEADER_BYTES: usize = 20;
/// Zeroes that follow the export's size and flags unless the client asked for their omission.
pub const EXPORT_PADDING_BYTES: usize = 124;

pub const FLAG_FIXED_NEWSTYLE: u16 = 1 << 0;
pub const FLAG_NO_ZEROES: u16 = 1 << 1;
pub const CLIENT_FLAG_FIXED_NEWSTYLE: u32 = 1 << 0;
pub const CLIENT_FLAG_NO_ZEROES: u32 = 1 << 1;

pub mod option {
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
    pub const LIST_META_CONTEXT: u32 = 9;
    pub const SET_META_CONTEXT: u32 = 10;
}

pub mod option_reply {
    pub const ACK: u32 = 1;
    pub const SERVER: u32 = 2;
    pub const INFO: u32 = 3;
    pub const META_CONTEXT: u32 = 4;
    /// Set in the type of every error reply.
    pub const ERROR_BIT: u32 = 1 << 31;
    pub const ERR_UNSUP: u32 = ERROR_BIT + 1;
    pub const ERR_POLICY: u32 = ERROR_BIT + 2;
    pub const ERR_INVALID: u32 = ERROR_BIT + 3;
    pub const ERR_UNKNOWN: u32 = ERROR_BIT + 6;
    pub const ERR_SHUTDOWN: u32 = ERROR_BIT + 7;
    pub const ERR_TOO_BIG: u32 = ERROR_BIT + 9;
}

pub mod info {
    pub const EXPORT: u16 = 0;
    pub const NAME: u16 = 1;
    pub const BLOCK_SIZE: u16 = 3;
}

pub mod command {
    pub const READ: u16 = 0;
    pub const WRITE: u16 = 1;
    pub const DISC: u16 = 2;
    pub const FLUSH: u16 = 3;
    pub const TRIM: u16 = 4;
    pub const CACHE: u16 = 5;
    pub const WRITE_ZEROES: u16 = 6;
    pub const BLOCK_STATUS: u16 = 7;
}

pub mod command_flag {
    pub const FUA: u16 = 1 << 0;
    pub const NO_HOLE: u16 = 1 << 1;
    pub const DF: u16 = 1 << 2;
    pub const REQ_ONE: u16 = 1 << 3;
    pub const FAST_ZERO: u16 = 1 << 4;
}

pub mod chunk {
    pub const FLAG_DONE: u16 = 1 << 0;
    pub const NONE: u16 = 0;
    pub const OFFSET_DATA: u16 = 1;
    pub const OFFSET_HOLE: u16 = 2;
    pub const BLOCK_STATUS: u16 = 5;
    /// Set in the type of every error chunk.
    pub const ERROR_BIT: u16 = 1 << 15;
    pub const ERROR: u16 = ERROR_BIT + 1;
    pub const ERROR_OFFSET: u16 = ERROR_BIT + 2;
}
