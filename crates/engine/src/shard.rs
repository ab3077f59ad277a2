//! A shard: one log, one index, one state machine.
//!
//! The way of a write: [`Shard::submit`] checks it and copies it into the frame that is being filled
//! (`write.rs`); [`Shard::turn`] seals frames and hands them to the driver (`seal.rs`); [`Shard::io_done`] notes
//! what is durable, and what forms a prefix is applied to the index and answered (`apply.rs`).
//!
//! Invariants:
//! - nothing is answered before it and all earlier frames are on stable storage;
//! - the index is changed in the order of the log only, so that replay gives the same index;
//! - after a failed write nothing is written any more.

use std::collections::VecDeque;

use coquina_base::{AlignedBuf, DriveId};
use coquina_replication::BlockRange;
use hashbrown::HashMap;
use slab::Slab;

use crate::api::{
    Action, Event, Failure, IoToken, Operation, Origin, Outcome, ReadData, Request, RequestToken,
    ShardConfig, ShardStats,
};
use crate::background::Prewriter;
use crate::cache::{BlockCache, CacheMemory};
use crate::checkpoint::CheckpointTask;
use crate::cleaner::CleanerTask;
use crate::frame::{HEADS, Head};
use crate::geometry::Geometry;
use crate::group_log::EntryRead;
use crate::groups::Groups;
use crate::hash::FixedState;
use crate::index::Index;
use crate::index_region::RegionKey;
use crate::kept_frames::{FrameMemory, KeptFrames, ReadCost};
use crate::log::Log;
use crate::merge::Merge;
use crate::pool::Pool;
use crate::read::ReadOperation;
use crate::repair::Repairs;
use crate::scrub::ScrubTask;
use crate::segment::SegmentTable;
use crate::session::Sessions;
use crate::superblock::ShardSuperblock;

/// What an I/O is for.
#[derive(Clone, Copy, Debug)]
pub enum IoPurpose {
    /// A frame, by number.
    Frame(u64),
    /// The shard's superblock.
    Superblock,
    /// Part of a read.
    Read {
        /// The read.
        operation: usize,
        /// Its piece.
        piece: usize,
        /// Location of its first block.
        location: u64,
        /// First block of the piece, counted from the first block of the read.
        first: u32,
    },
    /// A page of the index.
    Page(RegionKey),
    /// What the cleaner needs.
    Cleaner(u32),
    /// An entry of a placement group as it was logged.
    Entry(EntryRead),
    /// Zeroing ahead.
    Prewrite,
    /// What the scrub needs.
    Scrub,
}

/// An I/O under way.
#[derive(Clone, Copy, Debug)]
pub struct Io {
    /// What it is for.
    pub purpose: IoPurpose,
    /// When it was handed out.
    pub issued_ns: u64,
}

/// A change under way: a request may take several entries.
#[derive(Clone, Copy, Debug)]
pub struct Change {
    /// Who asked.
    pub token: RequestToken,
    /// Entries not yet applied.
    pub parts_left: u32,
    /// Blocks of entries not yet applied.
    pub blocks_left: u32,
    /// Blocks that were set aside for it.
    pub reserved_blocks: u32,
    /// Why it failed.
    pub failure: Option<Failure>,
    /// Who ordered it.
    pub origin: Origin,
}

/// A request that must wait, with its payload.
#[derive(Debug)]
pub struct OwnedRequest {
    pub(crate) token: RequestToken,
    pub(crate) layer: u64,
    pub(crate) chunk: u32,
    pub(crate) offset_bytes: u32,
    pub(crate) length_bytes: u32,
    pub(crate) origin: Origin,
    pub(crate) operation: OwnedOperation,
}

/// See [`Operation`].
#[derive(Debug)]
pub enum OwnedOperation {
    /// A write with its payload and checksums.
    Write(Vec<u8>, Vec<u8>),
    /// A trim.
    Trim,
    /// Zeros.
    WriteZeroes {
        /// Keep the space.
        no_hole: bool,
    },
}

impl OwnedRequest {
    /// Copies what must be kept.
    pub fn new(request: &Request<'_>) -> Option<Self> {
        let operation = match request.operation {
            Operation::Write { payload, checksums_le } => {
                OwnedOperation::Write(payload.to_vec(), checksums_le.to_vec())
            }
            Operation::Trim => OwnedOperation::Trim,
            Operation::WriteZeroes { no_hole } => OwnedOperation::WriteZeroes { no_hole },
            _ => return None,
        };
        Some(OwnedRequest {
            token: request.token,
            layer: request.layer.0,
            chunk: request.chunk,
            offset_bytes: request.offset_bytes,
            length_bytes: request.length_bytes,
            origin: request.origin,
            operation,
        })
    }

    /// First block and number of the blocks that it touches, in whole or in part.
    pub fn blocks(&self) -> (u32, u32) {
        let block = coquina_base::BLOCK_BYTES as u32;
        let first = self.offset_bytes / block;
        (first, (self.offset_bytes + self.length_bytes).div_ceil(block) - first)
    }

    /// As it came.
    pub fn borrow(&self) -> Request<'_> {
        let operation = match &self.operation {
            OwnedOperation::Write(payload, checksums_le) => Operation::Write { payload, checksums_le },
            OwnedOperation::Trim => Operation::Trim,
            OwnedOperation::WriteZeroes { no_hole } => Operation::WriteZeroes { no_hole: *no_hole },
        };
        Request {
            token: self.token,
            layer: coquina_base::LayerId(self.layer),
            chunk: self.chunk,
            offset_bytes: self.offset_bytes,
            length_bytes: self.length_bytes,
            origin: self.origin,
            operation,
        }
    }
}

/// A change of a full drive that waits for trims in the log.
#[derive(Debug)]
pub struct BehindTrims {
    pub(crate) request: OwnedRequest,
    /// Blocks that it lacks room for; 0 if it only waits for trims of its own blocks, to know what it replaces.
    pub(crate) needed_blocks: u32,
    /// How many trims are applied ([`Shard::trims_applied`]) when those are that were in the log before it. Later ones it does not wait for.
    pub(crate) until: u64,
}

/// Who waits for a page of the index.
#[derive(Debug)]
pub enum PageWaiter {
    /// A read.
    Read(usize),
    /// A change that needs to know what is mapped.
    Change(Box<OwnedRequest>),
}

/// The drive engine of one shard.
pub struct Shard {
    pub(crate) config: ShardConfig,
    pub(crate) geometry: Geometry,
    pub(crate) drive: DriveId,
    pub(crate) number: u32,
    pub(crate) superblock: ShardSuperblock,
    pub(crate) incarnation: u64,
    pub(crate) segments: SegmentTable,
    pub(crate) index: Index,
    pub(crate) sessions: Sessions,
    pub(crate) groups: Groups,
    pub(crate) cache: BlockCache,
    pub(crate) kept_frames: KeptFrames,
    pub(crate) read_cost: ReadCost,
    pub(crate) log: Log,
    pub(crate) actions: VecDeque<Action>,
    pub(crate) ios: Slab<Io>,
    /// When the last read came back.
    pub(crate) read_done_ns: u64,
    /// When the last write did.
    pub(crate) write_done_ns: u64,
    /// When the log last had nothing to do, or something of it on its way.
    pub(crate) log_moved_ns: u64,
    pub(crate) reads: Slab<ReadOperation>,
    pub(crate) changes: Slab<Change>,
    pub(crate) merges: Vec<Merge>,
    pub(crate) page_waiters: HashMap<RegionKey, Vec<PageWaiter>, FixedState>,
    /// Trims in the log that have not been applied, in its order.
    pub(crate) trims_under_way: VecDeque<BlockRange>,
    pub(crate) trims_applied: u64,
    pub(crate) behind_trims: Vec<BehindTrims>,
    /// Requests that came again while the first was under way.
    pub(crate) repeats: Vec<(Origin, RequestToken)>,
    pub(crate) layers_deleting: Vec<(u64, u32)>,
    /// Chunk whose regions stay in memory until it is freed.
    pub(crate) chunk_deleting: Option<(u64, u32)>,
    /// Layers deleted since the shard was opened: their numbers are never given again.
    pub(crate) layers_deleted: HashMap<u64, (), FixedState>,
    /// Chunks freed of deleted layers.
    pub(crate) chunks_deleted: u64,
    /// Whether moves wait for a segment.
    pub(crate) cold_stalled: bool,
    pub(crate) checkpoint: CheckpointTask,
    pub(crate) cleaner: CleanerTask,
    pub(crate) scrub: ScrubTask,
    pub(crate) repairs: Repairs,
    pub(crate) pool: Pool,
    pub(crate) stats: ShardStats,
    pub(crate) now_ns: u64,
    pub(crate) live_blocks: u64,
    pub(crate) zero_blocks: u64,
    /// Blocks set aside for changes under way.
    pub(crate) reserved_blocks: u64,
    /// Blocks that users may fill where the tables of groups and sessions are small.
    pub(crate) capacity_blocks: u64,
    /// How many of them a segment gives.
    pub(crate) segment_capacity_blocks: u64,
    /// Errno that made the shard read-only.
    pub(crate) poisoned: Option<i32>,
    pub(crate) closing: bool,
    pub(crate) prewriter: Prewriter,
    /// Index pages on their way from the drive.
    pub(crate) pages_loading: u32,
    /// Regions that became dirty since the last checkpoint began.
    pub(crate) dirty: Vec<RegionKey>,
    pub(crate) scratch_checksums: Vec<u32>,
    /// Emptied lists of landings, to be used again.
    pub(crate) landings: Vec<Vec<AlignedBuf>>,
    pub(crate) page_scratch: Vec<u8>,
    /// Start-up: what is applied is on the drive already.
    pub(crate) replaying: bool,
    /// The last turn got on with something.
    pub(crate) again: bool,
    pub(crate) progress_seen: [u64; 5],
}

impl Shard {
    /// Takes a request. Its payload is copied before this returns. The answer comes as [`Action::Done`].
    pub fn submit(&mut self, request: Request<'_>) {
        let range_ok = u64::from(request.offset_bytes) + u64::from(request.length_bytes)
            <= coquina_base::CHUNK_BYTES
            && request.length_bytes > 0
            && request.offset_bytes % 512 == 0
            && request.length_bytes % 512 == 0;
        let is_delete = matches!(request.operation, Operation::DeleteLayer);
        let is_empty = request.length_bytes == 0 && request.origin.sequence != 0;
        let is_no_change = is_empty && matches!(request.operation, Operation::Trim);
        if !(range_ok || is_delete || is_no_change) {
            return self.fail(request.token, Failure::Invalid);
        }
        match request.operation {
            Operation::Read | Operation::ReadUnchecked | Operation::Map => self.submit_read(&request),
            _ => self.submit_change(&request),
        }
    }

    /// Tells the end of an I/O. The buffer is the one of the action.
    pub fn io_done(&mut self, io: IoToken, buffer: AlignedBuf, result: Result<(), crate::IoError>) {
        let Some(done) = self.ios.try_remove(io.0 as usize) else {
            panic!("the driver reported {io:?}, which is not under way");
        };
        match done.purpose {
            IoPurpose::Frame(_) | IoPurpose::Superblock | IoPurpose::Prewrite => {
                self.write_done_ns = self.now_ns
            }
            _ => self.read_done_ns = self.now_ns,
        }
        match done.purpose {
            IoPurpose::Frame(number) => match result {
                Ok(()) => self.frame_durable(number, buffer),
                Err(error) => self.poison(error.0),
            },
            IoPurpose::Superblock => match result {
                // After a failed write nothing is written any more.
                Ok(()) if self.poisoned.is_some() => self.pool.give(buffer),
                Ok(()) => self.checkpoint_written(buffer),
                Err(error) => self.poison(error.0),
            },
            IoPurpose::Read { operation, piece, location, first } => {
                self.read_piece_done(operation, piece, location, first, buffer, result);
            }
            IoPurpose::Page(key) => self.page_loaded(key, buffer, result),
            IoPurpose::Cleaner(slot) => {
                self.read_cost.count(self.now_ns.saturating_sub(done.issued_ns));
                self.cleaner_read_done(slot, buffer, result);
            }
            IoPurpose::Entry(read) => self.entry_read_done(read, buffer, result),
            IoPurpose::Prewrite => self.prewrite_done(result),
            IoPurpose::Scrub => self.scrub_read_done(buffer, result),
        }
    }

    /// The end of a turn of the driver's loop: everything that came in it goes out together.
    pub fn turn(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        // What readers have asked for has the memory first.
        self.kept_frames.shrink(self.cache.bytes_left());
        if self.poisoned.is_some() {
            self.scrub_step();
            return;
        }
        self.seal_all();
        self.delete_step();
        self.cleaner_step();
        self.checkpoint_step();
        self.evict_step();
        self.scrub_step();
        self.repair_step();
        self.prewrite_step();
        self.seal_all();
        if !self.log.flights.is_empty() || self.log.streams.iter().all(|stream| !stream.has_work()) {
            self.log_moved_ns = self.now_ns;
        }
        let progress = self.progress();
        self.again = progress != self.progress_seen;
        self.progress_seen = progress;
        // Last: what is put into the log now stays in the frame that is being filled until the next turn, so that the driver
        // can send it to other copies.
        let entries = self.log.entries;
        self.merge_step();
        self.again |= self.log.entries != entries;
        let is_dead_end =
            || (self.segments.damaged() > 0 && self.is_dead_end()) || self.is_checkpoint_stuck();
        if !self.again && is_dead_end() {
            // Damage, or a checkpoint that does not end, holds the space that the log needs to go on: better read-only than silent.
            self.poison(28);
        }
    }

    /// Whether somebody waits for a checkpoint that waits for a segment, and nothing under way can give it one: the cleaner begins
    /// nothing while a checkpoint lacks room, and what is empty but not covered waits for that very checkpoint.
    fn is_checkpoint_stuck(&self) -> bool {
        let is_waited_for = self.closing || self.log.streams[Head::Hot as usize].has_work();
        // What only reads frees nothing, but for the segments looked at below.
        let only_reads =
            |io: &Io| matches!(io.purpose, IoPurpose::Scrub | IoPurpose::Read { .. } | IoPurpose::Entry(_));
        is_waited_for
            && self.log.streams[Head::Meta as usize].has_work()
            && !self.checkpoint.is_idle()
            && self.segments.available() + self.segments.unprepared() == 0
            && self.log.flights.is_empty()
            && self.ios.iter().all(|(_, io)| only_reads(io))
            && !self.segments.waits_for_readers()
    }

    /// Whether changes wait in the log and nothing under way, and nothing left to try, can make room for them.
    fn is_dead_end(&self) -> bool {
        self.log.streams[Head::Hot as usize].has_work()
            && self.ios.is_empty()
            && self.actions.is_empty()
            && self.cleaner.is_stuck()
            && self.cleaner.has_given_up()
            && self.checkpoint.is_idle()
            && !self.checkpoint_is_due()
            && self.layers_deleting.is_empty()
            && self.segments.unprepared() == 0
    }

    /// Changes whenever background work got on: then the next turn may do more, whether I/O is under way or not.
    fn progress(&self) -> [u64; 5] {
        let [steps, victims] = self.cleaner.progress();
        [self.log.frame_next, self.checkpoint.progress(), steps, victims, self.chunks_deleted]
    }

    /// The next thing that the driver must do.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When [`Shard::turn`] must be called at the latest, if nothing else happens.
    pub fn next_wake_ns(&self) -> Option<u64> {
        if self.again && self.poisoned.is_none() {
            return Some(self.now_ns);
        }
        let held_up = self.segments.damaged() > 0
            && self.cleaner.is_stuck()
            && self.log.streams[Head::Hot as usize].has_work();
        let retry_ns = (held_up && self.poisoned.is_none()).then(|| self.cleaner.retry_ns());
        let recheck_ns = self.repairs.wake_ns().filter(|_| self.poisoned.is_none() && !self.closing);
        self.scrub_wake_ns()
            .into_iter()
            .chain(retry_ns)
            .chain(recheck_ns)
            .chain(self.prewrite_wake_ns())
            .chain(self.ahead_wake_ns())
            .min()
    }

    /// Makes everything short to replay and stops background work, but for what makes room for changes that are in the log
    /// already; see [`Shard::is_closed`].
    pub fn close(&mut self) {
        self.closing = true;
        self.start_checkpoint();
        // Nobody will say any more that what they wait for is committed: whoever leads the group next answers them.
        self.fail_waiting_reads(Failure::NotPrimary);
        self.end_repairs();
    }

    /// Whether more room is made in the background. A shard that closes needs none, unless changes wait for it: they are in the
    /// log, and the stop waits for them.
    pub(crate) fn makes_room(&self) -> bool {
        !self.closing || self.log.streams[Head::Hot as usize].has_work()
    }

    /// Whether [`Shard::close`] is done and nothing is under way.
    pub fn is_closed(&self) -> bool {
        let waiting = !self.merges.is_empty() || !self.behind_trims.is_empty();
        let idle = self.ios.is_empty() && self.reads.is_empty() && !waiting;
        let is_short_to_replay = self.checkpoint.is_idle() && self.log.is_quiet() && self.is_covered();
        let done = self.poisoned.is_some() || is_short_to_replay;
        self.closing && idle && done
    }

    /// Gives buffers back for the next reads.
    pub fn recycle(&mut self, mut data: ReadData) {
        for piece in data.pieces.drain(..) {
            if let crate::api::Piece::Data { buffer, .. } = piece {
                self.pool.give(buffer);
            }
        }
        data.checksums.clear();
        data.bad.clear();
        data.has_errors = false;
        self.pool.give_data(data);
    }

    /// The block cache gets its memory from there, where it need not wait for it.
    pub fn set_cache_memory(&mut self, memory: CacheMemory) {
        self.cache.set_memory(memory);
    }

    /// Frames of moved blocks stay in memory where another buffer for their place is at hand; see [`FrameMemory`].
    pub fn set_frame_memory(&mut self, memory: FrameMemory) {
        self.kept_frames.set_memory(memory);
    }

    /// Bounds the block cache, and with it the frames that stay in memory; memory above is given back at once.
    pub fn set_cache_bytes(&mut self, bytes: u64) {
        self.cache.set_bytes_max(bytes);
        self.kept_frames.shrink(self.cache.bytes_left());
    }

    /// Bounds the memory of the index; what is above is pushed out step by step.
    pub fn set_index_memory_bytes(&mut self, bytes: u64) {
        self.config.index_memory_bytes = bytes;
    }

    /// Flips a bit of each block in the block cache and in frames that stayed in memory, as bad memory would; for tests.
    #[cfg(debug_assertions)]
    pub fn damage_cache(&mut self) {
        self.cache.damage();
        self.kept_frames.damage();
    }

    /// Counters and gauges.
    pub fn stats(&self) -> ShardStats {
        let mut stats = self.stats;
        stats.capacity_bytes = self.told_capacity_blocks() * 4096;
        stats.live_bytes = (self.live_blocks + self.zero_blocks) * 4096;
        stats.segments = u64::from(self.segments.len());
        stats.segments_free = u64::from(self.segments.empty());
        stats.segment_bytes = u64::from(self.geometry.segment_blocks) * 4096;
        stats.cache_bytes = self.cache.bytes() + self.kept_frames.bytes();
        stats.index_memory_bytes = self.index.memory_bytes();
        stats.unprepared_bytes = self.unprepared_bytes();
        stats.poisoned = self.poisoned.is_some();
        stats.bad_blocks_left = self.repairs.left();
        stats.scrub_progress = self.scrub_progress();
        stats.log_since_checkpoint_bytes = self.log.sealed_bytes - self.checkpoint.sealed_at_begin;
        stats
    }

    /// The shard's number on its drive.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The first chunk at or after `from` of which a layer has blocks here, changes under way included.
    pub fn next_chunk(&self, layer: coquina_base::LayerId, from: u32) -> Option<u32> {
        let is_held = self.index.layers().iter().any(|held| held.id == layer.0 && !held.deleting);
        is_held.then(|| self.index.next_chunk(layer.0, from)).flatten()
    }

    /// Layers that have blocks here, changes under way included, and are not being deleted; in order.
    pub fn layers(&self) -> Vec<coquina_base::LayerId> {
        let layers = self.index.layers().iter().filter(|layer| !layer.deleting);
        let held = layers.filter(|layer| self.index.next_chunk(layer.id, 0).is_some());
        let mut layers: Vec<_> = held.map(|layer| coquina_base::LayerId(layer.id)).collect();
        layers.sort_unstable();
        layers
    }

    pub(crate) fn issue_io(&mut self, purpose: IoPurpose) -> IoToken {
        let issued_ns = self.now_ns;
        IoToken(self.ios.insert(Io { purpose, issued_ns }) as u64)
    }

    pub(crate) fn issue_read(&mut self, purpose: IoPurpose, location: u64, blocks: usize) {
        let offset_bytes = self.geometry.offset_bytes(location);
        let io = self.issue_io(purpose);
        let mut buffer = self.pool.take(blocks);
        buffer.resize_blocks(blocks);
        self.stats.drive_read_bytes += buffer.len() as u64;
        self.actions.push_back(Action::Read { io, offset_bytes, buffer });
    }

    pub(crate) fn finish(&mut self, token: RequestToken, outcome: Outcome) {
        self.actions.push_back(Action::Done { token, outcome });
    }

    pub(crate) fn fail(&mut self, token: RequestToken, failure: Failure) {
        self.finish(token, Outcome::Failed(failure));
    }

    pub(crate) fn event(&mut self, event: Event) {
        self.actions.push_back(Action::Event(event));
    }

    /// A write failed: nothing may be written any more, for what the drive holds is not known.
    pub(crate) fn poison(&mut self, errno: i32) {
        if self.poisoned.is_some() {
            return;
        }
        self.poisoned = Some(errno);
        self.event(Event::Poisoned { errno });
        for key in 0..self.changes.capacity() {
            let Some(change) = self.changes.try_remove(key) else { continue };
            self.fail(change.token, Failure::ReadOnly);
        }
        self.reserved_blocks = 0;
        for merge in std::mem::take(&mut self.merges) {
            self.fail(merge.request.token, Failure::ReadOnly);
            for waiting in merge.waiting {
                self.fail(waiting.token, Failure::ReadOnly);
            }
        }
        let mut changes: Vec<_> = self.behind_trims.drain(..).map(|waiting| waiting.request.token).collect();
        for waiters in self.page_waiters.values_mut() {
            waiters.retain(|waiter| match waiter {
                PageWaiter::Change(request) => {
                    changes.push(request.token);
                    false
                }
                PageWaiter::Read(_) => true,
            });
        }
        changes.sort_unstable();
        changes.extend(std::mem::take(&mut self.repeats).into_iter().map(|(_, token)| token));
        self.fail_group_waiters(&mut changes);
        for token in changes {
            self.fail(token, Failure::ReadOnly);
        }
    }

    /// I/Os that were handed out before `before_ns` and have not come back: a drive that stalls.
    pub fn stalled_ios(&self, before_ns: u64) -> usize {
        self.ios.iter().filter(|(_, io)| io.issued_ns < before_ns).count()
    }

    /// Whether the drive hangs: a frame of the log that was handed out before `before_ns` has not come back, or a read has not and no
    /// other one has since then, or nothing has. What is only looked over may take long, and zeroing ahead, too, unless the log waits for
    /// it.
    pub fn is_hung(&self, before_ns: u64) -> bool {
        let no_read_came = self.read_done_ns < before_ns;
        let nothing_came = no_read_came && self.write_done_ns < before_ns;
        self.ios.iter().any(|(_, io)| {
            io.issued_ns < before_ns
                && match io.purpose {
                    IoPurpose::Frame(_) => true,
                    IoPurpose::Prewrite => self.log_moved_ns < before_ns,
                    IoPurpose::Superblock => nothing_came,
                    IoPurpose::Scrub => false,
                    IoPurpose::Read { .. }
                    | IoPurpose::Page(_)
                    | IoPurpose::Cleaner(_)
                    | IoPurpose::Entry(_) => no_read_came,
                }
        })
    }

    /// Gives up on the drive: fails what waits and takes no changes any more.
    pub fn give_up(&mut self, errno: i32) {
        self.poison(errno);
        for key in 0..self.reads.capacity() {
            self.abandon_read(key);
        }
        self.fail_waiting_reads(Failure::Device);
    }
}

/// What matters to somebody who looks into a shard that does not go on.
impl std::fmt::Debug for Shard {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let streams = self.log.streams.iter().map(|stream| {
            (
                stream.position,
                stream.building.entry_count,
                stream.queue.len(),
                stream.in_flight,
                stream.building.data_blocks,
            )
        });
        formatter
            .debug_struct("Shard")
            .field("segments", &self.segments.len())
            .field("closed", &HEADS.map(|head| self.segments.closed_of(head)))
            .field("available", &self.segments.available())
            .field("unprepared", &self.segments.unprepared())
            .field("pending", &self.segments.pending())
            .field("meta_reserve", &self.meta_reserve())
            .field("table_bytes", &self.table_bytes())
            .field("live_blocks", &self.live_blocks)
            .field("zero_blocks", &self.zero_blocks)
            .field("reserved_blocks", &self.reserved_blocks)
            .field("capacity_blocks", &(self.capacity(), self.capacity_blocks))
            .field("streams", &streams.collect::<Vec<_>>())
            .field("flights", &self.log.flights.len())
            .field("ios", &self.ios.len())
            .field("dirty", &self.dirty.len())
            .field("pages_loading", &self.pages_loading)
            .field("reads", &self.reads.len())
            .field("changes", &self.changes.len())
            .field("page_waiters", &self.page_waiters.len())
            .field("progress", &self.progress_seen)
            .field("index_memory", &(self.index.memory_bytes(), self.config.index_memory_bytes))
            .field("closing", &self.closing)
            .field("poisoned", &self.poisoned)
            .field("merges", &self.merges.len())
            .field("deleting", &self.layers_deleting)
            .field("cold_stalled", &self.cold_stalled)
            .field("checkpoint", &self.checkpoint)
            .field("cleaner", &self.cleaner)
            .finish_non_exhaustive()
    }
}
