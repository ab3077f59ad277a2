//! Requests of the transmission phase: their fields, and which of them the session itself refuses.

use std::ops::Range;

use crate::constant::{BLOCK_BYTES_MIN, MAGIC_REQUEST, REQUEST_HEADER_BYTES, command, command_flag};
use crate::wire::Reader;
use crate::{ErrorCode, ExportInfo};

/// The client's name for a request (spec: the handle, or cookie): any 64 bits, sent back with the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cookie(pub u64);

/// Where a write's payload lies within the input that was handed to [`crate::ServerSession::receive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PayloadRange {
    /// First byte.
    pub start: usize,
    /// One past the last byte; the distance to `start` is the request's length.
    pub end: usize,
}

impl PayloadRange {
    /// For slicing the input: `&input[payload.as_range()]`.
    pub fn as_range(self) -> Range<usize> {
        self.start..self.end
    }
}

/// A valid request for the driver to carry out and answer.
///
/// The session has checked it: the range lies within the export, is not empty and is in whole sectors of 512 bytes (a
/// flush has none), reads and writes have at most the configured payload, the flags are known and were offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Goes back with the reply.
    pub cookie: Cookie,
    /// What to do.
    pub command: Command,
    /// First byte concerned.
    pub offset_bytes: u64,
    /// Number of bytes concerned; without a payload it can be almost 4 GiB.
    pub length_bytes: u32,
}

/// What a request asks for. `force_unit_access`: answer only when the change is on stable storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Send data.
    Read {
        /// Send a single content chunk.
        dont_fragment: bool,
    },
    /// Store data.
    Write {
        /// See the enum.
        force_unit_access: bool,
        /// Where the data lies in the input.
        payload: PayloadRange,
    },
    /// Answer when every write that was answered before is on stable storage.
    Flush,
    /// The range's contents are no longer needed.
    Trim {
        /// See the enum.
        force_unit_access: bool,
    },
    /// The range shall read as zeroes.
    WriteZeroes {
        /// See the enum.
        force_unit_access: bool,
        /// The space must be kept ready for writes.
        no_hole: bool,
        /// Fail with [`ErrorCode::NotSupported`] rather than take as long as a write would.
        fast_zero: bool,
    },
    /// The range will be read soon.
    Cache,
    /// Which parts of the range are stored. Answer with [`crate::BlockStatusReply`].
    BlockStatus {
        /// One extent is enough.
        one_extent: bool,
    },
}

/// A request as it was sent.
#[derive(Clone, Copy)]
pub(crate) struct RequestHeader {
    pub magic: u32,
    pub flags: u16,
    pub command: u16,
    pub cookie: Cookie,
    pub offset_bytes: u64,
    pub length_bytes: u32,
}

/// What the session may serve, for checking a request against.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    pub export: ExportInfo,
    pub structured: bool,
    pub block_status: bool,
    pub payload_bytes_max: u32,
}

/// An error reply that the session sends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub error: ErrorCode,
    pub message: &'static str,
}

fn refuse(error: ErrorCode, message: &'static str) -> Result<(), Refusal> {
    Err(Refusal { error, message })
}

impl RequestHeader {
    /// None if the header is not complete.
    pub fn parse(input: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(input.get(..REQUEST_HEADER_BYTES)?);
        Some(Self {
            magic: reader.u32()?,
            flags: reader.u16()?,
            command: reader.u16()?,
            cookie: Cookie(reader.u64()?),
            offset_bytes: reader.u64()?,
            length_bytes: reader.u32()?,
        })
    }

    pub fn has_right_magic(&self) -> bool {
        self.magic == MAGIC_REQUEST
    }

    /// The command if the request is valid; `payload` is where the payload of a write will lie.
    pub fn check(&self, limits: &Limits, payload: PayloadRange) -> Result<Command, Refusal> {
        let force_unit_access = self.has(command_flag::FUA);
        let command = match self.command {
            command::READ => Command::Read { dont_fragment: self.has(command_flag::DF) },
            command::WRITE => Command::Write { force_unit_access, payload },
            command::FLUSH => Command::Flush,
            command::TRIM => Command::Trim { force_unit_access },
            command::CACHE => Command::Cache,
            command::WRITE_ZEROES => Command::WriteZeroes {
                force_unit_access,
                no_hole: self.has(command_flag::NO_HOLE),
                fast_zero: self.has(command_flag::FAST_ZERO),
            },
            command::BLOCK_STATUS => Command::BlockStatus { one_extent: self.has(command_flag::REQ_ONE) },
            // spec: an unknown command gets EINVAL.
            _ => return Err(Refusal { error: ErrorCode::InvalidArgument, message: "unknown command" }),
        };
        self.check_flags(limits)?;
        self.check_rights(limits)?;
        self.check_range(limits)?;
        Ok(command)
    }

    fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// spec: EINVAL for an unknown flag, and for a flag that is not documented for the command.
    fn check_flags(&self, limits: &Limits) -> Result<(), Refusal> {
        // spec: FUA is accepted on all commands once it was offered.
        let allowed = command_flag::FUA
            | match self.command {
                // spec: DF must not be set unless SEND_DF was offered, which takes structured replies.
                command::READ if limits.structured => command_flag::DF,
                command::WRITE_ZEROES => command_flag::NO_HOLE | command_flag::FAST_ZERO,
                command::BLOCK_STATUS => command_flag::REQ_ONE,
                _ => 0,
            };
        if self.flags & !allowed != 0 {
            return refuse(ErrorCode::InvalidArgument, "a flag that this command does not have");
        }
        Ok(())
    }

    fn check_rights(&self, limits: &Limits) -> Result<(), Refusal> {
        let writes = matches!(self.command, command::WRITE | command::TRIM | command::WRITE_ZEROES);
        // spec: EPERM for a write, trim or write-zeroes on a read-only export.
        if writes && limits.export.read_only {
            return refuse(ErrorCode::NotPermitted, "the export is read-only");
        }
        // spec: EINVAL for a block status without a selected metadata context.
        if self.command == command::BLOCK_STATUS && !limits.block_status {
            return refuse(ErrorCode::InvalidArgument, "base:allocation was not negotiated");
        }
        Ok(())
    }

    fn check_range(&self, limits: &Limits) -> Result<(), Refusal> {
        let invalid = ErrorCode::InvalidArgument;
        if self.command == command::FLUSH {
            // spec: offset and length of a flush must be zero.
            if self.offset_bytes != 0 || self.length_bytes != 0 {
                return refuse(invalid, "a flush has no offset and no length");
            }
            return Ok(());
        }
        // spec: what a server does with a length of zero is its own choice, short of disconnecting.
        if self.length_bytes == 0 {
            return refuse(invalid, "the length is zero");
        }
        let has_payload = matches!(self.command, command::READ | command::WRITE);
        // spec: EINVAL for more than the advertised maximum, which is about payloads.
        if has_payload && self.length_bytes > limits.payload_bytes_max {
            return refuse(invalid, "longer than the advertised maximum");
        }
        // spec: EINVAL for what is not aligned to the advertised minimum.
        let unit = u64::from(BLOCK_BYTES_MIN);
        if !self.offset_bytes.is_multiple_of(unit) || !u64::from(self.length_bytes).is_multiple_of(unit) {
            return refuse(invalid, "offset and length must be multiples of 512");
        }
        let end = self.offset_bytes.checked_add(u64::from(self.length_bytes));
        if end.is_none_or(|end| end > limits.export.size_bytes) {
            // spec: ENOSPC for a write past the end; EINVAL for the rest.
            let stores = matches!(self.command, command::WRITE | command::WRITE_ZEROES);
            return refuse(if stores { ErrorCode::NoSpace } else { invalid }, "past the end of the export");
        }
        Ok(())
    }
}
