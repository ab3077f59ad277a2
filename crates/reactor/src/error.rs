//! Errors of the reactor and of the start-up helpers.

use std::path::PathBuf;

/// An error number of the operating system.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Errno(pub i32);

impl Errno {
    /// The number in `error`, or `EIO` where it has none.
    pub fn from_io(error: &std::io::Error) -> Errno {
        Errno(error.raw_os_error().unwrap_or(libc::EIO))
    }

    /// Whether it says only that the other side of a connection has gone: that of a client that was killed, or of somebody who just looked
    /// whether a port answers.
    pub fn is_peer_gone(self) -> bool {
        matches!(self.0, libc::ECONNRESET | libc::EPIPE)
    }

    /// The number that the last system call of this thread left behind.
    pub(crate) fn last() -> Errno {
        Errno::from_io(&std::io::Error::last_os_error())
    }
}

impl std::fmt::Display for Errno {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::io::Error::from_raw_os_error(self.0).fmt(formatter)
    }
}

impl std::error::Error for Errno {}

/// Why a ring, a drive or a listener cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ReactorError {
    /// The kernel has no io_uring.
    #[error(
        "this kernel has no io_uring (ENOSYS): Linux 5.19 or newer, built with CONFIG_IO_URING, is needed; in a container the seccomp profile may hide it: allow io_uring_setup, io_uring_enter and io_uring_register (docker: --security-opt seccomp=unconfined)"
    )]
    Missing,
    /// io_uring is there, but not allowed.
    #[error(
        "io_uring is forbidden here: set `sysctl kernel.io_uring_disabled=0`, and in a container allow io_uring_setup, io_uring_enter and io_uring_register in the seccomp profile (docker: --security-opt seccomp=unconfined)"
    )]
    Forbidden,
    /// The kernel is older than what is used here.
    #[error("this kernel's io_uring lacks {0}: Linux 5.19 or newer is needed")]
    TooOld(&'static str),
    /// Locked memory or file descriptors ran out.
    #[error("no memory for an io_uring of {entries} entries: {errno}; raise `ulimit -l` and `ulimit -n`")]
    Memory {
        /// Size of the submission queue.
        entries: u32,
        /// What the kernel said.
        errno: Errno,
    },
    /// Another failure of the ring.
    #[error("io_uring failed while {doing}: {errno}")]
    Ring {
        /// What was tried.
        doing: &'static str,
        /// What the kernel said.
        errno: Errno,
    },
    /// A drive cannot be opened.
    #[error("drive {path}: {problem}")]
    Drive {
        /// The drive.
        path: PathBuf,
        /// What is wrong, and what to do.
        problem: DriveProblem,
    },
    /// A listener cannot be made.
    #[error("cannot listen on {address}: {problem}")]
    Listen {
        /// Where.
        address: String,
        /// What is wrong, and what to do.
        problem: ListenProblem,
    },
    /// A socket cannot be made.
    #[error("cannot make a socket for {address}: {errno}")]
    Socket {
        /// For which peer.
        address: String,
        /// What the kernel said.
        errno: Errno,
    },
}

/// What is wrong with a drive.
#[derive(Debug, thiserror::Error)]
pub enum DriveProblem {
    /// Nothing there.
    #[error("does not exist; is this the right path? `coquina drive format PATH:SIZE` makes a file")]
    NotFound,
    /// There is something already.
    #[error("exists already")]
    Exists,
    /// No permission.
    #[error("permission denied; run as a user who may read and write it")]
    Permission,
    /// The file or its file system is read-only.
    #[error("is read-only")]
    ReadOnly,
    /// A directory.
    #[error("is a directory; name a file in it or a block device")]
    Directory,
    /// Neither a regular file nor a block device.
    #[error("is neither a regular file nor a block device")]
    Kind,
    /// No direct I/O.
    #[error("its file system does not support O_DIRECT; put it on ext4, xfs or a block device")]
    NoDirectIo,
    /// Somebody else has it.
    #[error("is in use by another process (it is locked); stop that process first")]
    Locked,
    /// A block device that is mounted or held by the kernel.
    #[error("is mounted or in use by the kernel (EBUSY)")]
    Busy,
    /// A file cannot be made that large.
    #[error("no space for {}", coquina_base::format_size_bytes(*bytes))]
    NoSpace {
        /// Wanted size.
        bytes: u64,
    },
    /// Anything else.
    #[error("{doing}: {errno}")]
    Other {
        /// What was tried.
        doing: &'static str,
        /// What the kernel said.
        errno: Errno,
    },
}

/// What is wrong with an address to listen on.
#[derive(Debug, thiserror::Error)]
pub enum ListenProblem {
    /// Taken.
    #[error("the address is in use by another process; stop it or choose another address")]
    InUse,
    /// Not an address of this host.
    #[error("this host does not have that address")]
    NotLocal,
    /// Low port or folder without permission.
    #[error("permission denied")]
    Permission,
    /// The path of a Unix socket names something else.
    #[error("the path exists and is not a socket; remove it or choose another path")]
    NotASocket,
    /// The folder of a Unix socket is missing.
    #[error("the folder does not exist")]
    NoFolder,
    /// Anything else.
    #[error("{0}")]
    Other(Errno),
}
