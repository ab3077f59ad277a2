//! What other threads ask of a reactor, through its mailbox.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use coquina_base::{DriveId, LayerId, VolumeId};
use coquina_client::LocalName;
use coquina_cluster::{MapView, ShardRef};
use coquina_copies::Answer;
use coquina_reactor::ReceiveBuffer;

use crate::connection::Protocol;
use crate::request::HoppingRequest;
use crate::snapshot::CoreSnapshot;
use crate::threads::{Places, SeedShard};

/// A message to a reactor.
pub(crate) enum Command {
    /// A connection that belongs to a shard of this reactor, with what was received already.
    Adopt {
        /// The socket.
        socket: OwnedFd,
        /// What it speaks.
        protocol: Protocol,
        /// Bytes received so far.
        received: ReceiveBuffer,
    },
    /// A part of a request of a gateway on another reactor.
    Hop {
        /// Reactor that asks.
        from: usize,
        /// The gateway's slot there.
        gateway: usize,
        /// Its name for the part.
        part: LocalName,
        /// What to do.
        request: HoppingRequest,
    },
    /// The answer to a [`Command::Hop`].
    HopDone {
        /// The gateway's slot.
        gateway: usize,
        /// The name of the part.
        part: LocalName,
        /// What became of it.
        answer: Answer,
    },
    /// There is a newer map.
    Follow {
        /// The map.
        map: Arc<MapView>,
        /// Told when the reactor follows it.
        done: Sender<()>,
    },
    /// The map cannot be trusted any more: no I/O is done.
    RefuseIo {
        /// Why.
        reason: String,
    },
    /// Shards of this reactor that are new, and where all shards are now.
    Shards {
        /// New ones of this reactor.
        new: Vec<SeedShard>,
        /// Reactor and slot of every shard of the node.
        places: Arc<Places>,
        /// Told when the reactor knows.
        done: Sender<()>,
    },
    /// No request that was taken before may be under way when this is answered.
    Quiesce {
        /// The volume.
        volume: VolumeId,
        /// Told then.
        done: Sender<()>,
    },
    /// Which layers have blocks.
    Layers {
        /// Told.
        done: Sender<Vec<(ShardRef, Vec<LayerId>)>>,
    },
    /// Delete what a shard of this reactor holds of a layer.
    DeleteLayer {
        /// The shard.
        shard: ShardRef,
        /// The layer.
        layer: LayerId,
        /// What became of it.
        done: Sender<Result<(), String>>,
    },
    /// Start a scrub.
    Scrub {
        /// Of this drive, or of all.
        drive: Option<DriveId>,
    },
    /// Memory for each shard of this reactor.
    SetMemory {
        /// Bytes of block cache.
        cache_bytes_per_shard: u64,
        /// Bytes of index.
        index_bytes_per_shard: u64,
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
    /// Answer what NBD clients have asked for, and close their connections. Everything else goes on.
    Drain {
        /// Told when they are closed.
        done: Sender<()>,
    },
    /// Stop: connections are closed, shards make themselves short to replay, the thread ends.
    Stop,
}
