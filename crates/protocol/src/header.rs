//! The fixed header of 96 bytes that starts every message.
//!
//! Invariant: a [`Header`] that came out of [`Header::parse`] has the right magic and checksum, a known kind,
//! status and checksum kind, and a body within [`BODY_BYTES_MAX`](crate::BODY_BYTES_MAX).

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{BODY_BYTES_MAX, ProtocolError, Status, VERSION_MAX, VERSION_MIN};

/// Size of the header of every message.
pub const HEADER_BYTES: usize = 96;
/// `CQNA` in the first four bytes.
const MAGIC: u32 = u32::from_le_bytes(*b"CQNA");

/// The header as it lies on the wire.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct WireHeader {
    magic: U32,
    header_crc: U32,
    version: U16,
    kind: U16,
    flags: U32,
    handle: U64,
    request: U64,
    request_floor: U64,
    epoch: U64,
    sequence: U64,
    trace: U64,
    chunk: U32,
    offset_bytes: U32,
    length_bytes: U32,
    body_bytes: U32,
    deadline_us: U32,
    status: U16,
    qos_class: u8,
    checksum_kind: u8,
    reserved: U64,
}

const _: () = assert!(size_of::<WireHeader>() == HEADER_BYTES);
/// The checksum covers everything behind itself.
const CHECKED_FROM: usize = 8;

macro_rules! kinds {
    ($($(#[$doc:meta])+ $name:ident = $number:literal,)+) => {
        /// What a message is. A reply's number is its request's with the top bit set.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        #[repr(u16)]
        pub enum Kind { $($(#[$doc])+ $name = $number,)+ }

        impl Kind {
            /// The kind of a number on the wire.
            pub fn from_wire(number: u16) -> Option<Kind> {
                match number { $($number => Some(Kind::$name),)+ _ => None }
            }
        }
    };
}

kinds! {
    /// First message of a connection, from the client.
    Hello = 0x0001,
    /// Answer to it.
    HelloReply = 0x8001,
    /// Opens a volume.
    Open = 0x0002,
    /// Answer: handle, size and placement.
    OpenReply = 0x8002,
    /// Reads a range.
    Read = 0x0003,
    /// The data.
    ReadReply = 0x8003,
    /// Writes a range.
    Write = 0x0004,
    /// It is on stable storage.
    WriteReply = 0x8004,
    /// Forgets a range.
    Discard = 0x0005,
    /// It is forgotten, durably.
    DiscardReply = 0x8005,
    /// Makes a range read as zeros.
    WriteZeroes = 0x0006,
    /// It does, durably.
    WriteZeroesReply = 0x8006,
    /// Asks what of a range is data.
    Map = 0x0007,
    /// The extents.
    MapReply = 0x8007,
    /// Makes acknowledged changes durable, which they are.
    Flush = 0x0008,
    /// They are.
    FlushReply = 0x8008,
    /// Asks for a sign of life.
    Ping = 0x0009,
    /// The sign.
    PingReply = 0x8009,
    /// Something about a volume has changed; from the server, unasked, unanswered.
    Notify = 0x800a,
    /// First message of a connection between two copies; peer frames follow its answer.
    PeerHello = 0x0010,
    /// Answer to it.
    PeerHelloReply = 0x8010,
    /// A request failed, whatever its kind.
    Error = 0xffff,
}

/// What the checksums in front of a payload are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
#[repr(u8)]
pub enum ChecksumKind {
    /// One CRC32C over the whole payload.
    #[default]
    Payload = 0,
    /// A CRC32C for each 4 KiB block; offset and length are whole blocks.
    Blocks = 1,
}

/// A header. Fields that a kind does not use are 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Protocol version of this message.
    pub version: u16,
    /// What the message is.
    pub kind: Kind,
    /// `FLAG_..` bits; unknown ones are ignored.
    pub flags: u32,
    /// Open handle: stands for volume, rights and attach generation.
    pub handle: u64,
    /// Request number within the session, above 0; a reply repeats it.
    pub request: u64,
    /// Every request number below has been answered to the client: the server may forget them.
    pub request_floor: u64,
    /// Epoch of the placement group, as far as the sender knows.
    pub epoch: u64,
    /// Sequence number within the placement group; 0 from clients.
    pub sequence: u64,
    /// Names the request in traces; 0 for none.
    pub trace: u64,
    /// Chunk within the volume.
    pub chunk: u32,
    /// First byte within the chunk.
    pub offset_bytes: u32,
    /// Bytes asked for, changed or carried.
    pub length_bytes: u32,
    /// Bytes that follow this header.
    pub body_bytes: u32,
    /// Microseconds from arrival within which an answer is of use; 0 for no limit.
    pub deadline_us: u32,
    /// How the request ended; `Ok` in requests.
    pub status: Status,
    /// Quality of service class; 0 is the default one.
    pub qos_class: u8,
    /// What the checksums in the body are.
    pub checksum_kind: ChecksumKind,
}

impl Header {
    /// A header of this kind with everything else 0.
    pub fn new(kind: Kind) -> Header {
        Header {
            version: VERSION_MAX,
            kind,
            flags: 0,
            handle: 0,
            request: 0,
            request_floor: 0,
            epoch: 0,
            sequence: 0,
            trace: 0,
            chunk: 0,
            offset_bytes: 0,
            length_bytes: 0,
            body_bytes: 0,
            deadline_us: 0,
            status: Status::Ok,
            qos_class: 0,
            checksum_kind: ChecksumKind::Payload,
        }
    }

    /// The start of a reply to this request: its numbers, handle and range, with another kind.
    pub fn reply(&self, kind: Kind) -> Header {
        Header {
            flags: 0,
            request_floor: 0,
            body_bytes: 0,
            deadline_us: 0,
            checksum_kind: ChecksumKind::Payload,
            kind,
            ..*self
        }
    }

    /// Appends the header with its checksum.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut wire = WireHeader {
            magic: MAGIC.into(),
            header_crc: 0.into(),
            version: self.version.into(),
            kind: (self.kind as u16).into(),
            flags: self.flags.into(),
            handle: self.handle.into(),
            request: self.request.into(),
            request_floor: self.request_floor.into(),
            epoch: self.epoch.into(),
            sequence: self.sequence.into(),
            trace: self.trace.into(),
            chunk: self.chunk.into(),
            offset_bytes: self.offset_bytes.into(),
            length_bytes: self.length_bytes.into(),
            body_bytes: self.body_bytes.into(),
            deadline_us: self.deadline_us.into(),
            status: (self.status as u16).into(),
            qos_class: self.qos_class,
            checksum_kind: self.checksum_kind as u8,
            reserved: 0.into(),
        };
        wire.header_crc = coquina_base::crc32c_bytes(&wire.as_bytes()[CHECKED_FROM..]).into();
        out.extend_from_slice(wire.as_bytes());
    }

    /// Reads a header from the front of `input`; `None` if it is not all there and good so far.
    pub fn parse(input: &[u8]) -> Result<Option<Header>, ProtocolError> {
        if let Some(magic) = input.first_chunk::<4>().map(|bytes| u32::from_le_bytes(*bytes))
            && magic != MAGIC
        {
            return Err(ProtocolError::Magic(magic));
        }
        let Ok((wire, _)) = WireHeader::ref_from_prefix(input) else {
            return Ok(None);
        };
        if coquina_base::crc32c_bytes(&input[CHECKED_FROM..HEADER_BYTES]) != wire.header_crc.get() {
            return Err(ProtocolError::HeaderChecksum);
        }
        wire.check().map(Some)
    }
}

impl WireHeader {
    fn check(&self) -> Result<Header, ProtocolError> {
        let kind = Kind::from_wire(self.kind.get()).ok_or(ProtocolError::Kind(self.kind.get()))?;
        let version = self.version.get();
        // The layout of hellos, their replies and errors is the same in all versions.
        let any_version = matches!(
            kind,
            Kind::Hello | Kind::HelloReply | Kind::PeerHello | Kind::PeerHelloReply | Kind::Error
        );
        if !any_version && !(VERSION_MIN..=VERSION_MAX).contains(&version) {
            return Err(ProtocolError::Version(version));
        }
        let body_bytes = self.body_bytes.get();
        if body_bytes as usize > BODY_BYTES_MAX {
            return Err(ProtocolError::BodyTooLarge(body_bytes));
        }
        let status = self.status.get();
        Ok(Header {
            version,
            kind,
            flags: self.flags.get(),
            handle: self.handle.get(),
            request: self.request.get(),
            request_floor: self.request_floor.get(),
            epoch: self.epoch.get(),
            sequence: self.sequence.get(),
            trace: self.trace.get(),
            chunk: self.chunk.get(),
            offset_bytes: self.offset_bytes.get(),
            length_bytes: self.length_bytes.get(),
            body_bytes,
            deadline_us: self.deadline_us.get(),
            status: Status::from_wire(status).ok_or(ProtocolError::Status(status))?,
            qos_class: self.qos_class,
            checksum_kind: match self.checksum_kind {
                0 => ChecksumKind::Payload,
                1 => ChecksumKind::Blocks,
                other => return Err(ProtocolError::ChecksumKind(other)),
            },
        })
    }
}
