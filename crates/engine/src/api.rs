//! What goes into a shard and what comes out of it.
//!
//! A [`Shard`](crate::Shard) is a state machine. Its driver hands in requests, completions of I/O and the
//! time, and takes out [`Action`]s. Offsets are bytes from the start of the drive; everything on a drive is
//! read and written in whole blocks from aligned buffers, so that `O_DIRECT` works.

use coquina_base::{AlignedBuf, ClusterId, DriveId, LayerId, NodeId, SharedBlock};
use serde::{Deserialize, Serialize};

/// The driver's name for a request; handed back with its outcome.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct RequestToken(pub u64);

/// The shard's name for an I/O; handed back with its completion.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct IoToken(pub u64);

/// The shard's name for a bad block that it asks for; handed back with its data.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct RepairToken(pub u64);

/// Who ordered a change, kept in its log entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Origin {
    /// The placement group; 0 for none: then there are no epochs and sequence numbers.
    pub group: u32,
    /// Epoch in which the primary ordered the change. For new changes the group's own counts instead.
    pub epoch: u64,
    /// Sequence number within the placement group, given by the primary; 0 for new changes, which get the next ones
    /// when they are put into the log.
    pub sequence: u64,
    /// The client's session.
    pub session: u64,
    /// The client's request number within its session.
    pub request: u64,
    /// Of an entry with a given sequence number: more entries of the same request follow.
    pub continues: bool,
    /// Data that entries of the group brought elsewhere: it has no sequence number.
    pub recovered: bool,
    /// Of a new change: another copy of the group is full. What needs room there fails with [`Failure::NoSpace`].
    pub replaces_only: bool,
    /// Of a new change on a full drive, set by the shard: it has waited for the trims that were in the log before it, and is decided on
    /// without waiting for later ones.
    pub after_trims: bool,
}

/// One request. It lies within one chunk; offset and length are multiples of 512.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Handed back in [`Action::Done`].
    pub token: RequestToken,
    /// The layer that is read or changed.
    pub layer: LayerId,
    /// Number of the chunk of 4 MiB within the layer.
    pub chunk: u32,
    /// First byte, counted from the start of the chunk.
    pub offset_bytes: u32,
    /// Bytes read or changed; above zero.
    pub length_bytes: u32,
    /// Who ordered a change. Ignored for reads.
    pub origin: Origin,
    /// What to do.
    pub operation: Operation<'a>,
}

/// What a request does.
#[derive(Clone, Copy, Debug)]
pub enum Operation<'a> {
    /// Gives the newest acknowledged data.
    Read,
    /// Gives the same, but blocks that lie in memory may have gone bad there: who asks compares each with the checksum that comes
    /// with the data, and reads anew with [`Operation::Read`] if one differs. The same as that for a range that is not of whole
    /// blocks, with which no checksums come.
    ReadUnchecked,
    /// Replaces data. Copied before `submit` returns.
    Write {
        /// Exactly `length_bytes` bytes.
        payload: &'a [u8],
        /// CRC32C of each whole block of the payload, in little-endian order, as made by the client.
        /// Checked on arrival. Empty where the client makes none; then they are made here. Only for
        /// payloads of whole aligned blocks. Those of entries and recovered data that come from another copy must have been
        /// compared by whoever took them: here it would be too late to ask for them again.
        checksums_le: &'a [u8],
    },
    /// Forgets data: the whole blocks within the range read as zeros and take no space. Parts of blocks at its ends
    /// stay as they are; a range without a whole block changes nothing.
    Trim,
    /// The range reads as zeros. Whole blocks cost metadata only. Parts of blocks at its ends are merged with what
    /// is there and written, and may so fail with [`Failure::NoSpace`] where nothing was.
    WriteZeroes {
        /// Keep the space reserved, so that a later write cannot fail with `NoSpace`.
        no_hole: bool,
    },
    /// Says what of the range is data, zeros or a hole. Answered by [`Outcome::Map`].
    Map,
    /// Forgets a whole layer (chunk, offset and length are ignored). Answered when it cannot come back;
    /// the space is freed in the background. From then on, and perhaps from now on, changes of the layer answer
    /// [`Failure::Invalid`], and so do reads until all is freed; later ones, and [`Operation::Map`], find holes, as in any layer
    /// that has nothing here. Its id is never used again. Entries that other primaries have ordered are logged without effect.
    DeleteLayer,
}

/// What became of a request.
#[derive(Debug)]
pub enum Outcome {
    /// The change is on stable storage.
    Changed,
    /// The data.
    Read(ReadData),
    /// Extents in order, covering the range exactly.
    Map(Vec<MapExtent>),
    /// Nothing was changed, or it is unknown for [`Failure::Device`].
    Failed(Failure),
}

/// Why a request failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The drive is full. Trims and deletes still work.
    NoSpace,
    /// A block on the drive does not match its checksum or cannot be read.
    BadBlock,
    /// A write or sync of the drive failed earlier or now: it takes no changes any more.
    ReadOnly,
    /// The drive failed to read.
    Device,
    /// The payload does not match the client's checksums.
    ChecksumOnArrival,
    /// The request's range or layer is not valid.
    Invalid,
    /// The placement group takes no new changes here.
    NotPrimary,
    /// The sequence number does not follow that of the placement group's last entry.
    OutOfOrder,
}

/// Data read: pieces in order that together have the length that was asked for.
///
/// Give it back with [`Shard::recycle`](crate::Shard::recycle), so that its buffers are used again.
#[derive(Debug, Default)]
pub struct ReadData {
    /// Pieces in order.
    pub pieces: Vec<Piece>,
    /// CRC32C of each block, where the request was of whole blocks; else empty.
    pub checksums: Vec<u32>,
    /// Blocks that no copy has any more, counted from the first that was read: their checksums are those that they should
    /// have, their data is not to be used. Only of [`Shard::read_for_recovery`](crate::Shard::read_for_recovery).
    pub bad: Vec<u32>,
    /// Some of them because the drive gave an error, which may pass.
    pub has_errors: bool,
}

impl ReadData {
    /// Puts all of its bytes behind others, holes as zeros.
    pub fn append_to(&self, bytes: &mut Vec<u8>) {
        for piece in &self.pieces {
            match piece.bytes() {
                None => bytes.resize(bytes.len() + piece.length_bytes(), 0),
                Some(data) => bytes.extend_from_slice(data),
            }
        }
    }

    /// All of its bytes, holes as zeros.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.append_to(&mut bytes);
        bytes
    }
}

/// A part of the data read.
#[derive(Debug)]
pub enum Piece {
    /// A hole or zeros.
    Zeroes {
        /// How many bytes.
        length_bytes: usize,
    },
    /// `buffer[start..start + length]`.
    Data {
        /// Holds the bytes.
        buffer: AlignedBuf,
        /// First byte.
        start_bytes: usize,
        /// How many bytes.
        length_bytes: usize,
    },
    /// `block[start..start + length]`, where it lies in the block cache.
    Cached {
        /// A share of it.
        block: SharedBlock,
        /// First byte.
        start_bytes: usize,
        /// How many bytes.
        length_bytes: usize,
    },
}

impl Piece {
    /// Its bytes; none of a hole or zeros.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Piece::Zeroes { .. } => None,
            Piece::Data { buffer, start_bytes, length_bytes } => {
                Some(&buffer[*start_bytes..*start_bytes + *length_bytes])
            }
            Piece::Cached { block, start_bytes, length_bytes } => {
                Some(&block[*start_bytes..*start_bytes + *length_bytes])
            }
        }
    }

    /// How many bytes it has.
    pub fn length_bytes(&self) -> usize {
        match self {
            Piece::Zeroes { length_bytes }
            | Piece::Data { length_bytes, .. }
            | Piece::Cached { length_bytes, .. } => *length_bytes,
        }
    }
}

/// A run of bytes of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapExtent {
    /// How many bytes.
    pub length_bytes: u32,
    /// What they are.
    pub kind: MapKind,
}

/// What a run of bytes is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapKind {
    /// Written data.
    Data,
    /// Zeros whose space is reserved.
    Zeroes,
    /// Nothing: reads as zeros.
    Hole,
}

/// What the driver must do.
#[derive(Debug)]
pub enum Action {
    /// Write the buffer; report completion only when it is on stable storage (as with `O_DSYNC`).
    Write {
        /// Handed back.
        io: IoToken,
        /// Where.
        offset_bytes: u64,
        /// What; handed back.
        buffer: AlignedBuf,
    },
    /// Fill the buffer.
    Read {
        /// Handed back.
        io: IoToken,
        /// Where.
        offset_bytes: u64,
        /// Its length says how much to read; handed back.
        buffer: AlignedBuf,
    },
    /// Write zeros; need not be durable when reported. Makes later writes into a file cheap.
    Prewrite {
        /// Handed back with an empty buffer.
        io: IoToken,
        /// Where.
        offset_bytes: u64,
        /// How much.
        length_bytes: u64,
    },
    /// An entry of a new change of a placement group has its sequence number; a large change has several. Comes in
    /// the order of the numbers, before the entry is durable. See [`Shard::appended`](crate::Shard::appended).
    Appended(Appended),
    /// A fence of a placement group has its sequence number.
    FenceAppended {
        /// The request.
        token: RequestToken,
        /// Who ordered it, with epoch and sequence number.
        origin: Origin,
        /// The volume.
        volume: u128,
        /// The lowest generation of its attachment that is still served.
        generation: u64,
    },
    /// Entries and records of a placement group are durable: so many since the shard was opened, in the order in which
    /// they were put into the log. An entry of recovered data counts, too.
    Durable {
        /// The group.
        group: u32,
        /// How many.
        records: u64,
    },
    /// A request is finished.
    Done {
        /// The request.
        token: RequestToken,
        /// What became of it.
        outcome: Outcome,
    },
    /// A block is bad: find it on another copy. Answered by [`Shard::repair`](crate::Shard::repair) or
    /// [`Shard::cannot_repair`](crate::Shard::cannot_repair). Only after
    /// [`Shard::enable_repairs`](crate::Shard::enable_repairs).
    Repair {
        /// Handed back.
        repair: RepairToken,
        /// Its layer.
        layer: LayerId,
        /// Its chunk.
        chunk: u32,
        /// Its number within the chunk.
        block: u32,
    },
    /// Something an operator should know.
    Event(Event),
}

/// What an entry does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChangeKind {
    /// The range holds data.
    Write,
    /// The range becomes a hole.
    Trim,
    /// The range becomes zeros whose space stays reserved.
    Zeroes,
}

/// An entry of a placement group that was just put into the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Appended {
    /// The request.
    pub token: RequestToken,
    /// Who ordered it, with epoch and sequence number.
    pub origin: Origin,
    /// The layer.
    pub layer: LayerId,
    /// The chunk.
    pub chunk: u32,
    /// First block within the chunk.
    pub start_block: u32,
    /// How many blocks.
    pub blocks: u32,
    /// What it does.
    pub kind: ChangeKind,
    /// First block of its data in the frame that is being filled, and which frame that is.
    pub(crate) data_block: u32,
    /// Where its record ends among those of the frame; its checksums lie before that.
    pub(crate) entry_end: usize,
    pub(crate) builder: u64,
}

/// Something an operator should know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A block does not match its checksum or cannot be read.
    BadBlock {
        /// Its layer.
        layer: LayerId,
        /// Its chunk.
        chunk: u32,
        /// Its number within the chunk.
        block: u32,
        /// Where it lies on the drive.
        offset_bytes: u64,
    },
    /// A block that was bad has been written again with the data of another copy.
    Repaired {
        /// Its layer.
        layer: LayerId,
        /// Its chunk.
        chunk: u32,
        /// Its number within the chunk.
        block: u32,
    },
    /// Something that the drive needs for itself cannot be read: a segment's footer, so that the segment cannot be
    /// cleaned, or a page of the index, so that the shard takes no changes any more. No data was given out wrong.
    Damage {
        /// Where it lies on the drive, or 0 where that is not known.
        offset_bytes: u64,
        /// What was found.
        reason: &'static str,
    },
    /// A write failed: the drive takes no changes any more.
    Poisoned {
        /// Error number of the operating system.
        errno: i32,
    },
    /// A checkpoint is complete; a restart replays from here.
    Checkpoint {
        /// Its number.
        number: u64,
    },
    /// A pass of the scrub is complete.
    ScrubDone {
        /// Blocks read and checked.
        blocks: u64,
        /// Blocks that were bad.
        bad: u64,
    },
}

/// Error number of the operating system for a failed I/O.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IoError(pub i32);

/// A drive as seen at start-up and by `check`, when nothing else runs. Offsets and lengths are of whole blocks.
pub trait Device {
    /// Size in bytes.
    fn size_bytes(&self) -> u64;
    /// Fills the buffer from the drive.
    fn read(&mut self, offset_bytes: u64, buffer: &mut AlignedBuf) -> Result<(), IoError>;
    /// Writes the buffer; durable when it returns.
    fn write(&mut self, offset_bytes: u64, buffer: &AlignedBuf) -> Result<(), IoError>;
    /// Makes everything written before durable, whoever wrote it.
    fn sync(&mut self) -> Result<(), IoError>;
    /// Does several reads, at the same time if it can.
    fn read_many(&mut self, reads: &mut [DeviceRead]) {
        for read in reads {
            read.result = self.read(read.offset_bytes, &mut read.buffer);
        }
    }
}

/// One of several reads.
#[derive(Debug)]
pub struct DeviceRead {
    /// Where.
    pub offset_bytes: u64,
    /// As long as what is read; filled if the result says so.
    pub buffer: AlignedBuf,
    /// How it ended.
    pub result: Result<(), IoError>,
}

/// Whose drive this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Identity {
    /// The cluster.
    pub cluster: ClusterId,
    /// The node that formatted it.
    pub node: NodeId,
    /// The drive.
    pub drive: DriveId,
}

/// How a drive is laid out when it is formatted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FormatOptions {
    /// Whose drive it becomes.
    pub identity: Identity,
    /// How many shards; each has its own log and index.
    pub shards: u32,
    /// Size of a segment, or 0 to choose it by the size of the drive.
    pub segment_bytes: u64,
    /// Whether the drive is a file whose space must be written once before use.
    pub prewrite: bool,
    /// For display only.
    pub created_unix_ns: u64,
}

/// A deliberate mistake, for the simulator to find.
#[cfg(feature = "mutations")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutation {
    /// Answers when a frame is handed to the drive, not when it is on stable storage.
    AckBeforeSync,
    /// Takes frames of earlier mounts for its own on replay.
    ReplayStaleFrame,
    /// Writes a segment again before a checkpoint covers what was in it.
    ReuseSegmentEarly,
    /// Applies a move although the index points elsewhere by now.
    ApplyMoveTwice,
}

/// Most frames with user data on their way to the drive at once: replay looks only so far behind a torn frame for
/// proof that it was acknowledged.
pub const FULL_FRAMES_IN_FLIGHT_LIMIT: u32 = 32;

/// Settings of a running shard.
#[derive(Clone, Debug)]
pub struct ShardConfig {
    /// Most bytes of index held in memory.
    pub index_memory_bytes: u64,
    /// Bytes of blocks and of frames held in memory to begin with; see `Shard::set_cache_bytes`.
    pub cache_bytes: u64,
    /// Largest frame in bytes, header excluded.
    pub frame_bytes_max: u32,
    /// Frames with user data written at the same time while none is full: the fewer, the larger batches grow.
    pub frames_in_flight_max: u32,
    /// While a frame is on its way, the next one waits until it has this many blocks, so that batches form under load.
    pub batch_blocks_min: u32,
    /// And until it has half of the blocks that are in it or on their way, but no more than this many: many writes under
    /// way go in few frames, each of which costs a write and a flush of the drive.
    pub batch_blocks_loaded_min: u32,
    /// Full frames written at the same time: what a drive needs to run at its bandwidth. Up to
    /// [`FULL_FRAMES_IN_FLIGHT_LIMIT`].
    pub full_frames_in_flight_max: u32,
    /// Bytes of a drive file that are zeroed ahead of use while nothing else goes on; a few segments always are.
    pub zero_ahead_bytes: u64,
    /// Bytes of log after which a checkpoint starts; 0 chooses by the size of the shard.
    pub checkpoint_log_bytes: u64,
    /// Bytes per second that a scrub reads.
    pub scrub_bytes_per_s: u64,
    /// The number by which the cluster knows this shard, for placement groups; 0 where there are none.
    pub copy: u64,
    /// A deliberate mistake.
    #[cfg(feature = "mutations")]
    pub mutation: Option<Mutation>,
}

impl Default for ShardConfig {
    fn default() -> Self {
        ShardConfig {
            index_memory_bytes: 1 << 30,
            cache_bytes: 64 << 20,
            frame_bytes_max: 256 << 10,
            frames_in_flight_max: 2,
            batch_blocks_min: 4,
            batch_blocks_loaded_min: 64,
            full_frames_in_flight_max: FULL_FRAMES_IN_FLIGHT_LIMIT,
            zero_ahead_bytes: 16 << 30,
            checkpoint_log_bytes: 0,
            scrub_bytes_per_s: 32 << 20,
            copy: 0,
            #[cfg(feature = "mutations")]
            mutation: None,
        }
    }
}

/// Counters and gauges of a shard; all counters start at zero when it is opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ShardStats {
    /// Bytes that the shard can hold for users; what is kept for the entries of other primaries is left out.
    pub capacity_bytes: u64,
    /// Bytes of live user data, reserved zeros included.
    pub live_bytes: u64,
    /// Segments in all.
    pub segments: u64,
    /// Segments ready to be written.
    pub segments_free: u64,
    /// Size of a segment.
    pub segment_bytes: u64,
    /// Reads, in requests.
    pub reads: u64,
    /// Bytes read by requests.
    pub read_bytes: u64,
    /// Reads that waited until changes were committed.
    pub reads_behind_commits: u64,
    /// Changes, in requests.
    pub writes: u64,
    /// Bytes written by requests.
    pub write_bytes: u64,
    /// Of these, received into the buffers of their frames rather than copied there.
    pub landed_bytes: u64,
    /// Bytes trimmed or zeroed.
    pub trim_bytes: u64,
    /// Bytes read from the drive.
    pub drive_read_bytes: u64,
    /// Bytes written to the drive, everything included but prewriting.
    pub drive_write_bytes: u64,
    /// Bytes of zeros written ahead.
    pub prewrite_bytes: u64,
    /// Bytes that will be zeroed ahead as soon as nothing else is to be done.
    pub unprepared_bytes: u64,
    /// Frames written.
    pub frames: u64,
    /// Bytes moved by the cleaner.
    pub cleaner_bytes: u64,
    /// Bytes that it found in memory instead of reading them: in frames that had stayed there, or in the block cache.
    pub cleaner_cached_bytes: u64,
    /// Segments freed by the cleaner.
    pub cleaner_segments: u64,
    /// Blocks that it moved in vain: their segment had been written again before the move had its place in the log.
    pub cleaner_stale_blocks: u64,
    /// Bytes written for checkpoints and index pages.
    pub metadata_bytes: u64,
    /// Checkpoints completed.
    pub checkpoints: u64,
    /// Blocks served from memory.
    pub cache_hits: u64,
    /// Blocks read from the drive.
    pub cache_misses: u64,
    /// Bytes held by the block cache and by frames of moved blocks that stayed in memory.
    pub cache_bytes: u64,
    /// Bytes of memory that the index takes.
    pub index_memory_bytes: u64,
    /// Index pages read from the drive.
    pub index_page_reads: u64,
    /// Index pages written out to make room.
    pub index_page_evictions: u64,
    /// Blocks found bad, each time that they were.
    pub bad_blocks: u64,
    /// Bad blocks that are known and neither repaired nor overwritten yet.
    pub bad_blocks_left: u64,
    /// Bad blocks written again with the data of another copy.
    pub repaired_blocks: u64,
    /// Whether the log was found damaged at the start and cut there: 1, or 0.
    pub log_cuts: u64,
    /// Whether a failed write has made the shard read-only.
    #[serde(rename = "read_only", alias = "poisoned")]
    pub poisoned: bool,
    /// Progress of the running scrub in parts of 10,000, or `None`.
    pub scrub_progress: Option<u32>,
    /// Bytes of log since the last checkpoint.
    pub log_since_checkpoint_bytes: u64,
    /// Time that the last start-up took to replay, as reported by the driver, and entries replayed.
    pub replayed_entries: u64,
}
