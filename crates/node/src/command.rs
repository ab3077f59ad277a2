//! What other threads ask of a reactor, through its mailbox.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use coquina_base::{DriveId, LayerId, VolumeId};
use coquina_control::VolumeRecord;
use coquina_engine::{Outcome, RequestToken};
use coquina_reactor::ReceiveBuffer;

use crate::connection::Protocol;
use crate::request::HoppingRequest;
use crate::snapshot::CoreSnapshot;

/// A message to a reactor.
pub enum Command {
    /// A connection that belongs to a shard of this reactor, with what was received already.
    Adopt {
        /// The socket.
        socket: OwnedFd,
        /// What it speaks.
        protocol: Protocol,
        /// Bytes received so far.
        received: ReceiveBuffer,
    },
    /// A request of a gateway on another reactor.
    Hop {
        /// Reactor that asks.
        from: usize,
        /// Its name for the request.
        token: RequestToken,
        /// What to do.
        request: HoppingRequest,
    },
    /// The answer to a [`Command::Hop`].
    HopDone {
        /// The name of the request.
        token: RequestToken,
        /// What became of it.
        outcome: Outcome,
    },
    /// A volume is new or has changed.
    SetVolume {
        /// Its record.
        volume: Arc<VolumeRecord>,
        /// Told when the reactor knows.
        done: Sender<()>,
    },
    /// A volume goes: its connections are closed, no request is taken any more.
    DropVolume {
        /// The volume.
        volume: VolumeId,
        /// Told when no request is under way.
        done: Sender<()>,
    },
    /// No request beyond a volume's end may be under way when this is answered.
    Quiesce {
        /// The volume.
        volume: VolumeId,
        /// Told then.
        done: Sender<()>,
    },
    /// Delete a layer on a shard of this reactor.
    DeleteLayer {
        /// The drive.
        drive: DriveId,
        /// The shard.
        shard: u32,
        /// The layer.
        layer: LayerId,
        /// What became of it.
        done: Sender<Result<(), String>>,
    },
    /// Trim parts of a layer on a shard of this reactor.
    TrimLayer {
        /// The drive.
        drive: DriveId,
        /// The shard.
        shard: u32,
        /// The layer.
        layer: LayerId,
        /// (chunk, first byte, bytes) each.
        ranges: Vec<(u32, u32, u32)>,
        /// What became of it.
        done: Sender<Result<(), String>>,
    },
    /// Start a scrub.
    Scrub {
        /// Of this drive, or of all.
        drive: Option<DriveId>,
    },
    /// Bytes of block cache for each shard of this reactor.
    SetCache {
        /// Bytes per shard.
        bytes_per_shard: u64,
    },
    /// Counters and gauges.
    Snapshot {
        /// Told.
        done: Sender<CoreSnapshot>,
    },
    /// Let go of a drive on which nothing lies any more.
    ReleaseDrive {
        /// The drive.
        drive: DriveId,
        /// Told when nothing of this reactor has it open any more.
        done: Sender<()>,
    },
    /// Stop: connections are closed, shards make themselves short to replay, the thread ends.
    Stop,
}
