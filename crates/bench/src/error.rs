//! What can go wrong, and what to do about it.

use std::path::PathBuf;

use coquina_base::format_size_bytes;

/// A run that cannot be started as asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Not a target.
    #[error(
        "'{0}' is not a target: use volume:NAME, nbd:URI, rbd:[USER@]POOL/IMAGE, rados:[USER@]POOL/PREFIX, file:PATH or \
         device:PATH"
    )]
    Target(String),
    /// A volume without a server.
    #[error("no server is known for the volume: start one with `coquina up`, or name it with --server")]
    NoServer,
    /// Not a workload.
    #[error(
        "'{0}' is not a workload: use randwrite, randread, read, write, mix or mix:READ_PERCENT (0 to 100)"
    )]
    Workload(String),
    /// Not a size of operations.
    #[error("operations of {0} bytes are not possible: use a multiple of 512 bytes, at most 16 MiB")]
    BlockBytes(u32),
    /// Not a depth.
    #[error("depth {0} is not possible: use 1 to 4096")]
    Depth(u32),
    /// Not a number of jobs.
    #[error("{0} jobs are not possible: use 1 to 255")]
    Jobs(u32),
    /// Buffers too large.
    #[error(
        "the buffers would take {} of memory, at most {} are allowed: lower --depth, --jobs or --bs",
        format_size_bytes(*wanted),
        format_size_bytes(*most)
    )]
    BufferMemory {
        /// Bytes wanted.
        wanted: u64,
        /// Bytes allowed.
        most: u64,
    },
    /// Not a run time.
    #[error("the run time must be above zero and at most 30 days")]
    Runtime,
    /// Not a time to begin at.
    #[error("the load would begin in more than 10 minutes")]
    StartAt,
    /// Not a rate.
    #[error("a rate of 0 operations per second runs nothing")]
    Rate,
    /// Not an offset.
    #[error("the offset {0} is not a multiple of 4096")]
    Offset(u64),
    /// Verification of partial blocks.
    #[error("--verify needs operations of a multiple of 4096 bytes")]
    VerifyBlock,
    /// Objects that nobody has counted.
    #[error("how many objects there are is not known: say with --size how much all of them together hold")]
    ObjectsSize,
    /// Objects are not written ahead.
    #[error(
        "whole objects are neither filled nor verified: leave --fill and --verify out, and write them with --rw write --bytes SIZE"
    )]
    ObjectsFill,
    /// Range behind the end.
    #[error(
        "the range ends {} behind the end of the target, which has {}: lower --size or --offset",
        format_size_bytes(end.saturating_sub(*target_bytes)),
        format_size_bytes(*target_bytes)
    )]
    PastEnd {
        /// End of the range.
        end: u64,
        /// Size of the target.
        target_bytes: u64,
    },
    /// Range too small.
    #[error(
        "the range of {} is too small for {jobs} job(s) at depth {depth}: raise --size",
        format_size_bytes(*length)
    )]
    RangeTooSmall {
        /// Length of the range.
        length: u64,
        /// Jobs.
        jobs: u32,
        /// Depth.
        depth: u32,
    },
    /// Range too large to verify.
    #[error(
        "a range of {} cannot be verified, at most {}: lower --size",
        format_size_bytes(*length),
        format_size_bytes(*most)
    )]
    VerifyRange {
        /// Length of the range.
        length: u64,
        /// Longest range.
        most: u64,
    },
    /// A URI that cannot be read.
    #[error(
        "'{uri}' is not an NBD URI ({reason}): use nbd://HOST[:PORT]/EXPORT or nbd+unix:///EXPORT?socket=PATH"
    )]
    Uri {
        /// The text.
        uri: String,
        /// What is wrong with it.
        reason: &'static str,
    },
}

/// A target that does not do its work.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    /// A system call failed.
    #[error("{what} {path}: {source}")]
    Path {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A file or device cannot be used as asked.
    #[error("{path}: {reason}")]
    Unsuitable {
        /// The file or device.
        path: PathBuf,
        /// Why, and what to do.
        reason: &'static str,
    },
    /// io_uring cannot be used.
    #[error(
        "io_uring cannot be used ({0}): the kernel must be 5.11 or newer and allow it (sysctl kernel.io_uring_disabled=0; \
         in a container use a seccomp profile that allows io_uring, such as --security-opt seccomp=unconfined)"
    )]
    Ring(std::io::Error),
    /// The ring failed while running.
    #[error("io_uring failed: {0}")]
    RingFailed(std::io::Error),
    /// No connection.
    #[error("cannot connect to {peer}: {source}; start its server, or correct the address")]
    Connect {
        /// Whereto.
        peer: String,
        /// Why.
        source: std::io::Error,
    },
    /// The connection broke.
    #[error("the connection to {peer} broke: {reason}")]
    Broken {
        /// The peer.
        peer: String,
        /// How.
        reason: String,
    },
    /// The peer refused.
    #[error("{peer} refused: {reason}")]
    Refused {
        /// The peer.
        peer: String,
        /// What it said, and what to do.
        reason: String,
    },
    /// Not built in.
    #[error("{0}")]
    Unsupported(&'static str),
    /// Operations did not come back.
    #[error("{outstanding} operation(s) did not complete within {seconds} s")]
    Hung {
        /// How many.
        outstanding: usize,
        /// How long was waited.
        seconds: u64,
    },
}

impl TargetError {
    pub(crate) fn path(what: &'static str, path: &std::path::Path, source: std::io::Error) -> Self {
        TargetError::Path { what, path: path.to_owned(), source }
    }
}

/// A run that gave no report.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// It cannot be started as asked for.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The target failed before anything was measured.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// Stopped before anything was measured.
    #[error("stopped before anything was measured")]
    Stopped,
    /// Figures of the machine cannot be read.
    #[error(transparent)]
    Proc(#[from] coquina_host::ProcError),
    /// A thread cannot be started.
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    /// An experiment's parameters make no sense.
    #[error("{0}")]
    Experiment(&'static str),
}
