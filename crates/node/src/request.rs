//! Requests under way: who asked, and who is to be told.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::mpsc::Sender;

use coquina_base::LayerId;
use coquina_engine::{Operation, Origin, Outcome, Request, RequestToken};
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
pub enum Asker {
    /// A native client: its header goes into the reply.
    Native(ConnectionKey, Header),
    /// A part of a gateway's request.
    Gateway {
        /// The request.
        group: usize,
        /// Which part.
        part: u32,
    },
    /// A gateway on another reactor.
    Hop {
        /// The reactor.
        core: usize,
        /// Its name for the request.
        token: RequestToken,
    },
    /// The control plane.
    Control(Rc<RefCell<ControlJob>>),
}

/// Several requests of the control plane that are answered together.
pub struct ControlJob {
    /// Requests that are not finished.
    pub left: usize,
    /// The first failure.
    pub failure: Option<String>,
    /// Told at the end.
    pub done: Sender<Result<(), String>>,
}

/// A request under way.
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

/// A gateway's request, in parts that lie within one chunk each.
pub struct Group {
    /// Who is answered.
    pub connection: ConnectionKey,
    /// The client's name for it.
    pub cookie: Cookie,
    /// First byte of the volume.
    pub offset_bytes: u64,
    /// Bytes.
    pub length_bytes: u32,
    /// How it is answered.
    pub answer: Answer,
    /// Parts that are not finished.
    pub left: u32,
    /// Whether a part lies on a drive that is missing.
    pub is_missing: bool,
    /// What became of each part.
    pub outcomes: Vec<Option<Outcome>>,
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

/// A request on its way to another reactor, with its payload.
pub struct HoppingRequest {
    /// Drive and shard.
    pub shard: coquina_control::ShardRef,
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
    /// As the engine takes it.
    pub fn to_engine(&self, token: RequestToken) -> Request<'_> {
        let operation = match &self.operation {
            HoppingOperation::Read => Operation::Read,
            HoppingOperation::Write(payload) => Operation::Write { payload, checksums_le: &[] },
            HoppingOperation::Trim => Operation::Trim,
            HoppingOperation::WriteZeroes { no_hole } => Operation::WriteZeroes { no_hole: *no_hole },
            HoppingOperation::Map => Operation::Map,
        };
        Request {
            token,
            layer: self.layer,
            chunk: self.chunk,
            offset_bytes: self.offset_bytes,
            length_bytes: self.length_bytes,
            origin: Origin::default(),
            operation,
        }
    }

    /// Copies an operation for the way.
    pub fn copy_operation(operation: &Operation<'_>) -> HoppingOperation {
        match operation {
            Operation::Write { payload, .. } => HoppingOperation::Write(payload.to_vec()),
            Operation::Trim => HoppingOperation::Trim,
            Operation::WriteZeroes { no_hole } => HoppingOperation::WriteZeroes { no_hole: *no_hole },
            Operation::Map => HoppingOperation::Map,
            Operation::Read | Operation::DeleteLayer => HoppingOperation::Read,
        }
    }
}

/// What a kind of operation counts as.
pub fn kind_of(operation: &Operation<'_>) -> Kind {
    match operation {
        Operation::Read => Kind::Read,
        Operation::Write { .. } => Kind::Write,
        Operation::Map => Kind::Map,
        _ => Kind::Trim,
    }
}
