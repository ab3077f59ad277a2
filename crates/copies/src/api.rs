//! What goes in and comes out.

use coquina_base::LayerId;
use coquina_engine::{Action as IoAction, Event as EngineEvent, Failure, MapExtent, ReadData, ScrubReport};
use coquina_replication::{BlockRange, Config, CopyId, Message, RecoveryToken, Refusal, Violation};

use crate::payload::Payload;

/// A client's request of one group. It lies within one chunk; offset and length are multiples of 512.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Handed back with the answer.
    pub client: u64,
    /// The group.
    pub group: u32,
    /// The client's session; not 0 for a change.
    pub session: u64,
    /// The request's number in its session: the same for each retry.
    pub request: u64,
    /// The volume.
    pub volume: u128,
    /// Generation of the client's attachment to it.
    pub generation: u64,
    /// The layer.
    pub layer: LayerId,
    /// The chunk within the layer.
    pub chunk: u32,
    /// First byte, counted from the start of the chunk.
    pub offset_bytes: u32,
    /// Bytes read or changed; above zero.
    pub length_bytes: u32,
    /// What to do.
    pub operation: Operation<'a>,
}

/// What a request does.
#[derive(Clone, Copy, Debug)]
pub enum Operation<'a> {
    /// Gives data.
    Read,
    /// Gives data, of which whoever asks compares each block with the checksum that comes with it, and reads anew with
    /// [`Operation::Read`] if one differs ([`coquina_engine::Operation::ReadUnchecked`]).
    ReadUnchecked,
    /// Says what is data, zeros or a hole.
    Map,
    /// Replaces data.
    Write {
        /// Exactly `length_bytes` bytes.
        payload: &'a [u8],
        /// CRC32C of each whole block, little-endian, or empty.
        checksums_le: &'a [u8],
    },
    /// Forgets the whole blocks of the range.
    Trim,
    /// The range reads as zeros.
    WriteZeroes {
        /// Keep the space reserved.
        no_hole: bool,
    },
    /// Requests of lower generations of the volume are refused from now on.
    Fence,
}

/// The answer to a request.
#[derive(Debug)]
pub enum Answer {
    /// The change is durable on all copies in sync.
    Done,
    /// Data. Give it back with [`ShardCopies::recycle`](crate::ShardCopies::recycle).
    Read(ReadData),
    /// Extents in order, covering the range exactly.
    Map(Vec<MapExtent>),
    /// Not done as far as is known; may be tried again, here or elsewhere, with the same request number.
    Refused(Refusal),
    /// The drive could not do it.
    Failed(Failure),
}

/// Something an operator should know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// Of the drive.
    Engine(EngineEvent),
    /// A group has stopped: what cannot be has happened. If only this copy is in doubt, it has itself replaced as primary.
    Violation(u32, Violation),
    /// Another copy of a group is damaged; its removal has been proposed.
    Damaged(u32, Violation),
    /// Copies in sync hold different data, and both have good checksums for it.
    CopiesDiffer {
        /// The group.
        group: u32,
        /// The copy that differs from this one.
        copy: CopyId,
        /// The first range that differs.
        range: BlockRange,
        /// How many blocks lie in ranges of this chunk that differ.
        blocks: u32,
    },
    /// A block of a group that no copy in sync has any more: this copy, which missed it, has taken it as bad. What it should
    /// be is lost, unless a copy that is away still has it.
    TakenBad(u32, BlockRange),
    /// A scrub is over: all of the drive was read, and all that this copy is the primary of was compared.
    Scrubbed(ScrubReport),
    /// A group has stopped here: the drive does not take what it must, or an entry of the log that a copy in sync needs cannot be
    /// read back ([`Failure::BadBlock`]).
    Halted(u32, Failure),
}

/// What the driver does, at once and in this order.
pub trait Sink {
    /// Sends a message to a copy. It need not arrive, but all that arrives on one connection arrives in order.
    fn send(&mut self, to: CopyId, group: u32, message: &Message, payload: Payload<'_>);
    /// Breaks the connection to a copy, and tells [`ShardCopies::disconnected`](crate::ShardCopies::disconnected) later.
    fn disconnect(&mut self, from: CopyId);
    /// Answers a request.
    fn answer(&mut self, client: u64, answer: Answer);
    /// Reads from or writes to the drive: `Write`, `Read` or `Prewrite`.
    fn io(&mut self, action: IoAction);
    /// Asks the coordinator for a configuration, in place of what was asked for before for the group.
    fn propose(&mut self, group: u32, config: Config);
    /// Takes back what was asked for, if that was this configuration. Drivers that do not keep it do nothing.
    fn withdraw(&mut self, group: u32, config: &Config) {
        let _ = (group, config);
    }
    /// Finds all chunks that a group may have, and tells [`ShardCopies::compare`](crate::ShardCopies::compare).
    fn compare(&mut self, group: u32, copy: CopyId, token: RecoveryToken);
    /// The group of a chunk, if it is known: blocks of it that are bad are asked for from the group's other copies.
    fn group_of(&mut self, layer: LayerId, chunk: u32) -> Option<u32> {
        let _ = (layer, chunk);
        None
    }
    /// The end of [`ShardCopies::delete_layer`](crate::ShardCopies::delete_layer): durable here, or why it is not. Drivers
    /// that delete no layers do nothing.
    fn layer_deleted(&mut self, layer: LayerId, result: Result<(), Failure>) {
        let _ = (layer, result);
    }
    /// Something an operator should know.
    fn event(&mut self, event: Event);
}
