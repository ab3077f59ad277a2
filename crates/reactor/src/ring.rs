//! The ring itself: set-up with fallbacks for older kernels, submission, waiting.
//!
//! Invariant: an entry that was pushed is submitted exactly once, in order, however small the queue is.

use std::collections::VecDeque;
use std::io;

use coquina_base::{AlignedBuf, SLAB_BYTES, SLABS_MAX};
use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, squeue};

use crate::error::{Errno, ReactorError};
use crate::locked::slabs_allowed;

const ENTER_GETEVENTS: u32 = 1;
const ENTER_EXT_ARG: u32 = 8;
const ENTER_NO_IOWAIT: u32 = 1 << 7;

/// Most threads of the kernel for operations on files that cannot be done without blocking: as many as some drives have under way.
const KERNEL_THREADS_MAX: u32 = 256;

pub(crate) struct Ring {
    ring: IoUring,
    /// Entries that did not fit into the submission queue.
    backlog: VecDeque<squeue::Entry>,
    /// Keeps sleep in the ring from being shown as iowait, where the kernel can.
    wait_flags: u32,
    /// How many slabs more the kernel may look up once and keep.
    slabs_left: u16,
    /// The slabs of which it did: a bit for each.
    registered_slabs: u64,
}

const _: () = assert!(SLABS_MAX as u32 <= u64::BITS);

/// How long [`Ring::enter`] waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EnterWait {
    No,
    /// At most so many nanoseconds.
    AtMost(u64),
    Forever,
}

impl Ring {
    pub(crate) fn new(entries: u32) -> Result<Ring, ReactorError> {
        let ring = Self::build(entries, true)
            .or_else(|error| match error.raw_os_error() {
                Some(libc::EINVAL) => Self::build(entries, false),
                _ => Err(error),
            })
            .map_err(|error| Self::explain(&error, entries))?;
        let parameters = ring.params();
        if !parameters.is_feature_ext_arg() {
            return Err(ReactorError::TooOld("waiting with a time-out"));
        }
        if !parameters.is_feature_nodrop() {
            return Err(ReactorError::TooOld("completions that cannot be lost"));
        }
        // The kernel's own bound may be 8: files on a file system that hangs would keep all of its threads, and those of other file
        // systems would wait for them. More are made only when the others are blocked. Kernels before 5.15 cannot.
        let _ = ring.submitter().register_iowq_max_workers(&mut [KERNEL_THREADS_MAX, 0]);
        let wait_flags = if parameters.is_feature_no_iowait() { ENTER_NO_IOWAIT } else { 0 };
        // Older kernels (before 5.19) have no tables to be filled later.
        let has_table = ring.submitter().register_buffers_sparse(u32::from(SLABS_MAX)).is_ok();
        let slabs_left = if has_table { slabs_allowed() } else { 0 };
        Ok(Ring { ring, backlog: VecDeque::new(), wait_flags, slabs_left, registered_slabs: 0 })
    }

    fn build(entries: u32, modern: bool) -> io::Result<IoUring> {
        let mut builder = IoUring::builder();
        builder.setup_cqsize(entries.saturating_mul(4)).setup_clamp().dontfork();
        if modern {
            builder.setup_single_issuer().setup_defer_taskrun().setup_coop_taskrun().setup_taskrun_flag();
            builder.setup_submit_all();
        }
        builder.build(entries)
    }

    fn explain(error: &io::Error, entries: u32) -> ReactorError {
        match error.raw_os_error() {
            Some(libc::ENOSYS) => ReactorError::Missing,
            Some(libc::EPERM | libc::EACCES) => ReactorError::Forbidden,
            Some(libc::ENOMEM | libc::EMFILE | libc::ENFILE) => {
                ReactorError::Memory { entries, errno: Errno::from_io(error) }
            }
            _ => ReactorError::Ring { doing: "setting it up", errno: Errno::from_io(error) },
        }
    }

    /// The number under which the kernel knows the memory of this buffer, if it does: writes from it need no look at its pages.
    pub(crate) fn registered(&mut self, buffer: &AlignedBuf) -> Option<u16> {
        let slab = buffer.slab()?;
        let bit = 1u64 << slab;
        if self.registered_slabs & bit == 0 {
            self.slabs_left = self.slabs_left.checked_sub(1)?;
            let start = buffer.as_ptr().map_addr(|address| address & !(SLAB_BYTES - 1));
            let slab_memory = libc::iovec { iov_base: start.cast_mut().cast(), iov_len: SLAB_BYTES };
            // SAFETY: slabs are never unmapped, so the kernel's pages stay those of this address.
            #[allow(unsafe_code)]
            let done = unsafe {
                self.ring.submitter().register_buffers_update(u32::from(slab), &[slab_memory], None)
            };
            match done {
                Ok(()) => self.registered_slabs |= bit,
                // Most likely more memory than may be locked: those that are registered stay so.
                Err(_) => self.slabs_left = 0,
            }
        }
        (self.registered_slabs & bit != 0).then_some(slab)
    }

    /// Queues an entry for the next [`Ring::enter`].
    ///
    /// # Safety
    /// Everything that the entry points to must stay where it is and valid until its completion was taken out.
    #[allow(unsafe_code)]
    pub(crate) unsafe fn push(&mut self, entry: squeue::Entry) {
        // SAFETY: the caller's promise is passed on.
        if !self.backlog.is_empty() || unsafe { self.ring.submission().push(&entry) }.is_err() {
            self.backlog.push_back(entry);
        }
    }

    /// Submits all that is queued and waits for at least one completion. An elapsed wait, an interruption by
    /// a signal and a completion queue that must be emptied first are not errors.
    pub(crate) fn enter(&mut self, wait: EnterWait) -> Result<(), ReactorError> {
        loop {
            self.refill();
            let last = self.backlog.is_empty();
            let progress = self.enter_once(if last { wait } else { EnterWait::No })?;
            if last || !progress {
                return Ok(());
            }
        }
    }

    fn refill(&mut self) {
        let mut queue = self.ring.submission();
        while let Some(entry) = self.backlog.front() {
            // SAFETY: whoever pushed the entry into the backlog promised what `push` asks for.
            #[allow(unsafe_code)]
            if unsafe { queue.push(entry) }.is_err() {
                return;
            }
            self.backlog.pop_front();
        }
    }

    /// One system call or none. False if the kernel took nothing because completions must be taken first.
    fn enter_once(&mut self, wait: EnterWait) -> Result<bool, ReactorError> {
        let queue = self.ring.submission();
        let to_submit = queue.len() as u32;
        let pending = queue.taskrun() || queue.cq_overflow();
        drop(queue);
        if wait == EnterWait::No && to_submit == 0 && !pending {
            return Ok(true);
        }
        let mut flags = ENTER_EXT_ARG | ENTER_GETEVENTS | self.wait_flags;
        let timespec;
        let arguments = match wait {
            EnterWait::AtMost(wait_ns) => {
                timespec =
                    Timespec::new().sec(wait_ns / 1_000_000_000).nsec((wait_ns % 1_000_000_000) as u32);
                SubmitArgs::new().timespec(&timespec)
            }
            EnterWait::Forever => SubmitArgs::new(),
            EnterWait::No => {
                flags &= !self.wait_flags;
                SubmitArgs::new()
            }
        };
        let wanted = u32::from(wait != EnterWait::No);
        // SAFETY: the arguments are of the kind that `ENTER_EXT_ARG` announces and outlive the call; what the
        // entries point to is kept by their pushers.
        #[allow(unsafe_code)]
        let result = unsafe { self.ring.submitter().enter(to_submit, wanted, flags, Some(&arguments)) };
        match result {
            Ok(_) => Ok(true),
            Err(error) => match error.raw_os_error() {
                Some(libc::ETIME | libc::EINTR) => Ok(true),
                Some(libc::EBUSY | libc::EAGAIN) => Ok(false),
                _ => Err(ReactorError::Ring { doing: "submitting", errno: Errno::from_io(&error) }),
            },
        }
    }

    /// Whether a completion is there, or would be after an [`Ring::enter`] that does not wait. No system call.
    pub(crate) fn has_news(&mut self) -> bool {
        let queue = self.ring.submission();
        let is_pending = queue.taskrun() || queue.cq_overflow();
        drop(queue);
        is_pending || !self.ring.completion().is_empty()
    }

    /// The next completion that is there already.
    pub(crate) fn next(&mut self) -> Option<cqueue::Entry> {
        self.ring.completion().next()
    }

    /// Forgets entries that the kernel has not seen, and says which.
    pub(crate) fn take_backlog(&mut self) -> impl Iterator<Item = u64> {
        std::mem::take(&mut self.backlog).into_iter().map(|entry| entry.get_user_data())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slabs_are_registered_once_and_other_memory_never() {
        let mut ring = Ring::new(8).unwrap();
        let kept = AlignedBuf::kept();
        let slab = kept.slab();
        assert!(slab.is_some());
        assert_eq!(ring.registered(&AlignedBuf::zeroed(coquina_base::KEPT_BLOCKS)), None);
        if ring.slabs_left == 0 {
            return eprintln!(
                "this kernel has no tables of buffers that can be filled later, or this user may not lock memory"
            );
        }
        assert_eq!((ring.registered(&kept), ring.registered(&kept)), (slab, slab));
        assert_eq!(ring.registered_slabs.count_ones(), 1);
        let mut poor = Ring::new(8).unwrap();
        poor.slabs_left = 0;
        assert_eq!(poor.registered(&kept), None);
    }
}
