//! Targets: where load goes. One file each.
//!
//! A [`Target`] is opened once; each job then opens its own [`Lane`] in its own thread. A lane has `depth` slots with
//! a buffer each for writing and for reading, owned by the lane, so that a target can keep them registered, aligned
//! or behind its headers.
//!
//! To add a target: a file here, a variant of [`TargetSpec`](crate::TargetSpec), a line in [`open`].
//!
//! Invariants:
//! - a slot carries at most one operation at a time, and each operation gives exactly one [`Completion`];
//! - `submit` only queues; `turn` sends everything queued at once and waits;
//! - nothing is allocated per operation.

mod buffers;
mod ceph;
pub(crate) mod file;
pub(crate) mod nbd;
mod volume;

use std::path::PathBuf;
use std::time::Duration;

use crate::config::{IoBenchConfig, TargetSpec};
use crate::error::{BenchError, TargetError};

pub use ceph::objects::remove_objects;

/// What an operation does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Fills the slot's read buffer.
    Read,
    /// Writes the slot's write buffer.
    Write,
    /// Makes all completed writes durable; offset and length are ignored.
    Flush,
}

/// A finished operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// The slot that carried it.
    pub slot: u32,
    /// 0, or the error number of the operating system.
    pub errno: i32,
}

/// How a job will use its lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LaneOptions {
    /// Slots.
    pub depth: u32,
    /// Largest operation; each buffer has this size.
    pub io_bytes_max: u32,
    /// Whether reads will come.
    pub reads: bool,
    /// Whether writes will come.
    pub writes: bool,
    /// Whether each write must be durable when it completes.
    pub durable: bool,
    /// How long a client of volumes may look for an answer before it sleeps. Others never do.
    pub busy_poll_ns: u64,
}

/// One job's way to a target. Made and used in one thread.
pub trait Lane {
    /// The slot's bytes for the next write. Only to be called while the slot carries nothing. What was in it stays.
    fn write_buffer(&mut self, slot: u32) -> &mut [u8];
    /// The bytes that the slot's last read gave.
    fn read_buffer(&self, slot: u32) -> &[u8];
    /// Queues an operation in a slot that carries nothing. `length_bytes` is at most `io_bytes_max`.
    fn submit(&mut self, slot: u32, operation: Operation, offset_bytes: u64, length_bytes: u32);
    /// Sends what is queued, waits for at least one completion or until the time is out, and appends what completed.
    /// A zero timeout does not wait. An error is final: nothing more will complete.
    fn turn(&mut self, timeout: Duration, completions: &mut Vec<Completion>) -> Result<(), TargetError>;
}

/// What the space of a target is like before a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Readiness {
    /// It can be used as it is.
    Ready,
    /// It has space that was never written, so the whole range must be written first for honest figures.
    MustFill,
}

/// A place to send load to.
pub trait Target: Send + Sync {
    /// Its size.
    fn size_bytes(&self) -> u64;
    /// Whether the range can be used as it is.
    fn readiness(&self, offset_bytes: u64, length_bytes: u64) -> Result<Readiness, TargetError>;
    /// Opens one job's lane, in the job's thread.
    fn open_lane(&self, options: &LaneOptions) -> Result<Box<dyn Lane>, TargetError>;
    /// The file or device whose drive is watched for bytes written, where there is one on this host.
    fn local_path(&self) -> Option<PathBuf> {
        None
    }
    /// Largest operation that it takes.
    fn io_bytes_max(&self) -> u32 {
        crate::config::IO_BYTES_MAX
    }
}

/// Opens the target of a run.
pub fn open(config: &IoBenchConfig) -> Result<Box<dyn Target>, BenchError> {
    Ok(match &config.target {
        TargetSpec::File { path } => Box::new(file::FileTarget::open_file(path, config)?),
        TargetSpec::Device { path } => Box::new(file::FileTarget::open_device(path, config)?),
        TargetSpec::Nbd { uri } => Box::new(nbd::NbdTarget::open(uri)?),
        TargetSpec::Rbd { user, pool, image } => Box::new(ceph::rbd::RbdTarget::open(user, pool, image)?),
        TargetSpec::Rados { .. } => Box::new(ceph::objects::ObjectsTarget::open(config)?),
        TargetSpec::Volume { server, name } => Box::new(volume::VolumeTarget::open(server, name)?),
    })
}
