//! One io_uring per thread, for disk and network, and the start-up helpers around it.
//!
//! Invariants:
//! - a buffer given to an operation belongs to the reactor until its [`Completion`] hands it back; a ring is
//!   drained before its buffers are freed, and leaks them if it cannot be drained;
//! - a [`Reactor`] stays on the thread that made it; other threads reach it through a [`Waker`] or [`Mailbox`];
//! - a turn makes one system call at most, apart from the submission queue running over and a busy poll before it sleeps; a
//!   send makes one of its own, and more for large pieces that are lent to a server of this host;
//! - nothing is allocated in steady state: operations live in recycled slots.

mod accept;
mod busy_poll;
mod clock;
mod device;
mod drive;
mod error;
mod interrupts;
mod lend;
mod locked;
mod operation;
mod placement;
mod reactor;
mod receive;
mod ring;
mod sched_stat;
mod send;
mod shortcut;
mod socket;
mod waker;

pub use accept::{Address, AddressError, Listener, connect_blocking, is_unanswered};
pub use clock::{boottime_ns, monotonic_ns, random_u64};
pub use device::SyncDevice;
pub use drive::{DriveFile, DriveOptions};
pub use error::{DriveProblem, Errno, ListenProblem, ReactorError};
pub use interrupts::Interrupts;
pub use operation::{Completion, Payload};
pub use placement::{BindTo, Placement, Work};
pub use reactor::{FileId, Incoming, Reactor, ReactorConfig, Wait};
pub use receive::ReceiveBuffer;
pub use send::SendList;
pub use shortcut::listen_nearby;
pub use socket::{GiveUp, give_up, open_socket};
pub use waker::{Mailbox, MailboxSender, Waker, mailbox};

/// Token of the completions that report a wake-up by a [`Waker`]; not to be used for other operations.
pub const WAKE_TOKEN: u64 = u64::MAX;
