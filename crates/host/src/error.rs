//! What goes wrong when figures of the host are read.

/// A file in which the kernel shows its figures cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {path}: {source}")]
pub struct ProcError {
    /// The file.
    pub path: String,
    /// Why.
    pub source: std::io::Error,
}

/// Why a host cannot be sampled.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A file of the kernel cannot be read.
    #[error(transparent)]
    Proc(#[from] ProcError),
    /// No such drive.
    #[error("{name:?} is not a drive or partition of this host; lsblk lists them")]
    UnknownDrive {
        /// As it was given.
        name: String,
    },
    /// The interval is of no use.
    #[error("cannot sample every {interval_ms} ms; take 10 to 60000")]
    Interval {
        /// As it was given.
        interval_ms: u64,
    },
    /// The thread that samples cannot be started.
    #[error("cannot start a thread to sample the host: {source}")]
    Thread {
        /// Why.
        source: std::io::Error,
    },
}
