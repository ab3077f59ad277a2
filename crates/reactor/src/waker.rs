//! Waking a sleeping reactor from another thread, and handing values to it.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Errno, ReactorError};

struct Shared {
    event: OwnedFd,
    /// Whether a wake-up is on its way that the reactor has not seen yet.
    pending: AtomicBool,
}

/// Wakes one reactor. Cheap to clone; many wakes before the reactor looks make one system call.
#[derive(Clone)]
pub struct Waker {
    shared: Arc<Shared>,
}

impl Waker {
    pub(crate) fn new() -> Result<Waker, ReactorError> {
        // SAFETY: plain system call; the result is checked before it is owned.
        #[allow(unsafe_code)]
        let raw = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        if raw < 0 {
            return Err(ReactorError::Ring { doing: "making an eventfd", errno: Errno::last() });
        }
        // SAFETY: `raw` was just made and belongs to nobody else.
        #[allow(unsafe_code)]
        let event = unsafe { OwnedFd::from_raw_fd(raw) };
        Ok(Waker { shared: Arc::new(Shared { event, pending: AtomicBool::new(false) }) })
    }

    /// Makes the reactor's current or next turn end with a completion of [`WAKE_TOKEN`](crate::WAKE_TOKEN).
    pub fn wake(&self) {
        if self.shared.pending.swap(true, Ordering::AcqRel) {
            return;
        }
        let one = 1u64.to_ne_bytes();
        // SAFETY: `one` is 8 readable bytes. The counter cannot overflow, as it is written at most once
        // before it is read, so that the call neither blocks nor fails.
        #[allow(unsafe_code)]
        let written = unsafe { libc::write(self.raw(), one.as_ptr().cast(), one.len()) };
        assert_eq!(written, 8, "an eventfd takes a wake-up");
    }

    /// The reactor saw the wake-up; what was published before the next `wake` is read after this.
    pub(crate) fn seen(&self) {
        self.shared.pending.swap(false, Ordering::AcqRel);
    }

    pub(crate) fn raw(&self) -> i32 {
        self.shared.event.as_raw_fd()
    }
}

impl std::fmt::Debug for Waker {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "Waker({})", self.raw())
    }
}

/// The receiving end of values handed to a reactor; drain it after each wake-up.
#[derive(Debug)]
pub struct Mailbox<T> {
    queue: Arc<Mutex<Vec<T>>>,
}

/// The sending end: puts a value into the mailbox and wakes its reactor.
#[derive(Debug)]
pub struct MailboxSender<T> {
    queue: Arc<Mutex<Vec<T>>>,
    waker: Waker,
}

/// A mailbox whose reactor is woken through `waker`.
pub fn mailbox<T: Send>(waker: Waker) -> (MailboxSender<T>, Mailbox<T>) {
    let queue = Arc::new(Mutex::new(Vec::new()));
    (MailboxSender { queue: queue.clone(), waker }, Mailbox { queue })
}

impl<T> Clone for MailboxSender<T> {
    fn clone(&self) -> Self {
        MailboxSender { queue: self.queue.clone(), waker: self.waker.clone() }
    }
}

impl<T> MailboxSender<T> {
    /// Hands over one value.
    pub fn send(&self, value: T) {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).push(value);
        self.waker.wake();
    }
}

impl<T> Mailbox<T> {
    /// Moves all values into `values`, which must be empty: its memory goes back to the senders.
    pub fn drain(&self, values: &mut Vec<T>) {
        assert!(values.is_empty(), "a mailbox is drained into an empty vector");
        std::mem::swap(&mut *self.queue.lock().unwrap_or_else(PoisonError::into_inner), values);
    }
}
