use crate::constant::option_reply;

/// What the driver knows of an export that a client asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportInfo {
    /// Size of the export, in bytes; a rest that is no whole sector of 512 bytes cannot be reached.
    pub size_bytes: u64,
    /// Writes, trims and write-zeroes are refused by the session.
    pub read_only: bool,
    /// The drives below have heads that seek.
    pub rotational: bool,
    /// spec: set it only if a flush on one connection covers writes completed on all others to the same export.
    pub multiple_connections: bool,
}

impl ExportInfo {
    /// A writable export on solid-state drives whose connections share one order of flushes.
    pub fn new(size_bytes: u64) -> Self {
        Self { size_bytes, read_only: false, rotational: false, multiple_connections: true }
    }
}

/// Why the driver does not serve an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportRefusal {
    /// There is no export of that name.
    Unknown,
    /// It exists, but this client may not use it now (for instance, another host is attached).
    Forbidden,
    /// The server is going down.
    Shutdown,
}

impl ExportRefusal {
    pub(crate) fn reply_type(self) -> u32 {
        match self {
            Self::Unknown => option_reply::ERR_UNKNOWN,
            Self::Forbidden => option_reply::ERR_POLICY,
            Self::Shutdown => option_reply::ERR_SHUTDOWN,
        }
    }

    pub(crate) fn message(self) -> &'static str {
        match self {
            Self::Unknown => "no such volume",
            Self::Forbidden => "this volume may not be used by this client now",
            Self::Shutdown => "the server is shutting down",
        }
    }
}

/// What an export can do, as told to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransmissionFlags(pub u16);

impl TransmissionFlags {
    /// spec: must always be set.
    pub const HAS_FLAGS: Self = Self(1 << 0);
    /// Writes are refused.
    pub const READ_ONLY: Self = Self(1 << 1);
    /// FLUSH is served.
    pub const SEND_FLUSH: Self = Self(1 << 2);
    /// Force unit access is served.
    pub const SEND_FUA: Self = Self(1 << 3);
    /// The medium seeks.
    pub const ROTATIONAL: Self = Self(1 << 4);
    /// TRIM is served.
    pub const SEND_TRIM: Self = Self(1 << 5);
    /// `WRITE_ZEROES` is served.
    pub const SEND_WRITE_ZEROES: Self = Self(1 << 6);
    /// Reads may ask for a single chunk.
    pub const SEND_DF: Self = Self(1 << 7);
    /// Several connections see one order of flushes.
    pub const CAN_MULTI_CONN: Self = Self(1 << 8);
    /// CACHE is served.
    pub const SEND_CACHE: Self = Self(1 << 10);
    /// `WRITE_ZEROES` may ask to fail rather than be slow.
    pub const SEND_FAST_ZERO: Self = Self(1 << 11);

    /// The flags of an export in a session that did or did not negotiate structured replies.
    pub fn of(export: &ExportInfo, structured: bool) -> Self {
        // spec: HAS_FLAGS is always set, and a flag only for what is supported.
        let mut flags = Self::HAS_FLAGS.0 | Self::SEND_FLUSH.0 | Self::SEND_FUA.0 | Self::SEND_CACHE.0;
        if export.read_only {
            flags |= Self::READ_ONLY.0;
        } else {
            // spec: SEND_FAST_ZERO must not be set without SEND_WRITE_ZEROES.
            flags |= Self::SEND_TRIM.0 | Self::SEND_WRITE_ZEROES.0 | Self::SEND_FAST_ZERO.0;
        }
        if export.rotational {
            flags |= Self::ROTATIONAL.0;
        }
        if export.multiple_connections {
            flags |= Self::CAN_MULTI_CONN.0;
        }
        // spec: SEND_DF must be clear unless structured replies were negotiated.
        if structured {
            flags |= Self::SEND_DF.0;
        }
        Self(flags)
    }

    /// Whether all of `other`'s flags are set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}
