//! Requests under way: who asked, and who is to be told.

use coquina_base::LayerId;
use coquina_client::LocalName;
use coquina_cluster::ShardRef;
use coquina_copies::{Operation, Request};
use coquina_engine::ReadData;
use coquina_nbd::Cookie;
use coquina_protocol::Header;

/// A connection's place in its reactor's table; stale ones are recognised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionKey {
    /// Index in the table.
    pub index: usize,
    /// Which connection of that index.
    pub generation: u32,
}

/// What a request does, for counting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Reads data.
    Read,
    /// Writes data.
    Write,
    /// Trims or writes zeroes.
    Trim,
    /// Asks what is where.
    Map,
}

/// Who asked.
#[derive(Clone, Copy, Debug)]
pub enum Asker {
    /// A native client: its header goes into the reply.
    Native(ConnectionKey, Header),
    /// A gateway of this reactor.
    Gateway {
        /// The gateway's slot.
        gateway: usize,
        /// Its name for the part.
        part: LocalName,
    },
    /// A gateway on another reactor.
    Hop {
        /// The reactor.
        core: usize,
        /// The gateway's slot there.
        gateway: usize,
        /// Its name for the part.
        part: LocalName,
    },
}

/// A request under way at a shard of this reactor.
pub struct InFlight {
    /// Who asked.
    pub asker: Asker,
    /// Slot of the volume, for counting.
    pub volume: Option<usize>,
    /// When it came, by the loop's clock.
    pub started_ns: u64,
    /// Rises with each request.
    pub serial: u64,
    /// Its length.
    pub length_bytes: u32,
    /// What it does.
    pub kind: Kind,
}

/// A request of an NBD client.
pub struct NbdRequest {
    /// Who is answered.
    pub connection: ConnectionKey,
    /// The client's name for it.
    pub cookie: Cookie,
    /// First byte of the volume.
    pub offset_bytes: u64,
    /// Bytes.
    pub length_bytes: u32,
    /// Bytes of buffers that it holds meanwhile.
    pub held_bytes: u64,
    /// How it is answered.
    pub answer: Answer,
    /// What was read for all of it, if that lies in a shard's cache and not in the request's buffer.
    pub cached: Option<ReadData>,
}

/// How a gateway's request is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// With data.
    Data,
    /// With success: the data was only to be cached.
    Cached,
    /// With success.
    Success,
    /// With a map of the range.
    BlockStatus {
        /// Only the first extent is wanted.
        one_extent: bool,
    },
}

/// A part of a gateway's request on its way to the reactor of its shard, with its payload.
pub struct HoppingRequest {
    /// Drive and shard.
    pub shard: ShardRef,
    /// The placement group.
    pub group: u32,
    /// The gateway's session.
    pub session: u64,
    /// The part's number in it.
    pub request: u64,
    /// The volume.
    pub volume: coquina_base::VolumeId,
    /// Generation of the attachment.
    pub generation: u64,
    /// The layer.
    pub layer: LayerId,
    /// The chunk.
    pub chunk: u32,
    /// First byte within the chunk.
    pub offset_bytes: u32,
    /// Bytes.
    pub length_bytes: u32,
    /// What to do.
    pub operation: HoppingOperation,
}

/// See [`Operation`].
pub enum HoppingOperation {
    /// Reads.
    Read,
    /// Writes.
    Write(Vec<u8>),
    /// Trims.
    Trim,
    /// Writes zeroes.
    WriteZeroes {
        /// Keep the space.
        no_hole: bool,
    },
    /// Asks what is where.
    Map,
}

impl HoppingRequest {
    /// As the shard takes it.
    pub fn to_request(&self, client: u64) -> Request<'_> {
        let operation = match &self.operation {
            HoppingOperation::Read => Operation::Read,
            HoppingOperation::Write(payload) => Operation::Write { payload, checksums_le: &[] },
            HoppingOperation::Trim => Operation::Trim,
            HoppingOperation::WriteZeroes { no_hole } => Operation::WriteZeroes { no_hole: *no_hole },
            HoppingOperation::Map => Operation::Map,
        };
        Request {
            client,
            group: self.group,
            session: self.session,
            request: self.request,
            volume: volume_number(self.volume),
            generation: self.generation,
            layer: self.layer,
            chunk: self.chunk,
            offset_bytes: self.offset_bytes,
            length_bytes: self.length_bytes,
            operation,
        }
    }

    /// Copies a request for the way.
    pub fn of(shard: ShardRef, volume: coquina_base::VolumeId, request: &Request<'_>) -> HoppingRequest {
        let operation = match request.operation {
            Operation::Write { payload, .. } => HoppingOperation::Write(payload.to_vec()),
            Operation::Trim => HoppingOperation::Trim,
            Operation::WriteZeroes { no_hole } => HoppingOperation::WriteZeroes { no_hole },
            Operation::Map => HoppingOperation::Map,
            Operation::Read | Operation::ReadUnchecked | Operation::Fence => HoppingOperation::Read,
        };
        HoppingRequest {
            shard,
            group: request.group,
            session: request.session,
            request: request.request,
            volume,
            generation: request.generation,
            layer: request.layer,
            chunk: request.chunk,
            offset_bytes: request.offset_bytes,
            length_bytes: request.length_bytes,
            operation,
        }
    }
}

/// What a kind of operation counts as.
pub fn kind_of(operation: &Operation<'_>) -> Kind {
    match operation {
        Operation::Read | Operation::ReadUnchecked => Kind::Read,
        Operation::Write { .. } => Kind::Write,
        Operation::Map => Kind::Map,
        Operation::Trim | Operation::WriteZeroes { .. } | Operation::Fence => Kind::Trim,
    }
}

/// A volume's identity as a number, as fences have it.
pub fn volume_number(volume: coquina_base::VolumeId) -> u128 {
    u128::from_le_bytes(volume.0.0)
}
