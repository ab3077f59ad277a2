//! One job's way to what lies in a cluster: operations that Ceph's libraries call back about.
//!
//! Invariants:
//! - buffers stay owned and in place until the library has called back: a lane that is dropped with operations in flight waits
//!   for them, and gives its buffers up for good rather than free them too early;
//! - the library's threads touch nothing of a lane but its list of what is done.

use std::ffi::{c_int, c_void};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::super::buffers::Buffers;
use super::super::{Completion, Lane, LaneOptions, Operation};
use super::library::{Callback, Handle};
use crate::error::TargetError;

/// How long a lane that is dropped waits for what is in flight.
const DRAIN: Duration = Duration::from_secs(5);

/// The memory of an operation.
pub(super) enum Memory<'a> {
    /// Is read into.
    Read(&'a mut [u8]),
    /// Is written.
    Write(&'a [u8]),
    /// A flush has none.
    Flush,
}

/// What is read and written.
pub(super) trait Subject: Send + Sync + 'static {
    /// Hands an operation to the library, which calls `called` with the token when it is done; gives what it answered. The memory stays
    /// in place and is not touched until then.
    fn start(&self, offset_bytes: u64, memory: Memory<'_>, called: Callback, token: *mut c_void) -> c_int;
    /// The result of an operation that is done, whose completion is released. Called once for each, by a thread of the library.
    fn take_result(completion: Handle) -> isize;
    /// The number of the error that a result stands for, of an operation of so many bytes; 0 if it is none.
    fn errno(&self, result: isize, operation: Operation, length_bytes: usize) -> i32;
}

/// The number of the error that a result stands for where no negative number is none.
pub(super) fn errno_of(result: isize) -> i32 {
    if result < 0 { c_int::try_from(-result).unwrap_or(libc::EIO) } else { 0 }
}

/// What is done, and who waits for it.
struct Finished {
    list: Mutex<Vec<(u32, isize)>>,
    arrived: Condvar,
}

impl Finished {
    fn push(&self, slot: u32, result: isize) {
        self.list.lock().unwrap_or_else(PoisonError::into_inner).push((slot, result));
        self.arrived.notify_one();
    }
}

/// What the library hands back with a completion.
struct Token {
    finished: Arc<Finished>,
    slot: u32,
}

/// Called by a thread of the library when an operation is done.
extern "C" fn done<S: Subject>(completion: Handle, token: *mut c_void) {
    // SAFETY: the token is one of a lane, which keeps it while operations are in flight.
    #[allow(unsafe_code)]
    let token = unsafe { &*token.cast::<Token>() };
    let result = S::take_result(completion);
    // The lane may be gone as soon as it has seen this.
    let (finished, slot) = (Arc::clone(&token.finished), token.slot);
    finished.push(slot, result);
}

/// One job's way.
pub(super) struct CephLane<S: Subject> {
    subject: Arc<S>,
    finished: Arc<Finished>,
    tokens: Box<[Token]>,
    /// What each slot carries.
    carried: Box<[(Operation, usize)]>,
    buffers: Buffers,
    in_flight: usize,
}

impl<S: Subject> CephLane<S> {
    pub(super) fn new(subject: Arc<S>, options: &LaneOptions) -> Self {
        let list = Mutex::new(Vec::with_capacity(options.depth as usize));
        let finished = Arc::new(Finished { list, arrived: Condvar::new() });
        let token = |slot| Token { finished: Arc::clone(&finished), slot };
        CephLane {
            tokens: (0..options.depth).map(token).collect(),
            carried: vec![(Operation::Flush, 0); options.depth as usize].into(),
            finished,
            buffers: Buffers::new(options),
            in_flight: 0,
            subject,
        }
    }
}

impl<S: Subject> Lane for CephLane<S> {
    fn write_buffer(&mut self, slot: u32) -> &mut [u8] {
        self.buffers.write_buffer(slot)
    }

    fn read_buffer(&self, slot: u32) -> &[u8] {
        self.buffers.read_buffer(slot)
    }

    fn submit(&mut self, slot: u32, operation: Operation, offset_bytes: u64, length_bytes: u32) {
        let length_bytes = length_bytes as usize;
        assert!(length_bytes <= self.buffers.io_bytes_max(), "an operation fits its buffer");
        let memory = match operation {
            Operation::Read => Memory::Read(self.buffers.read_part(slot, 0, length_bytes)),
            Operation::Write => Memory::Write(self.buffers.write_part(slot, 0, length_bytes)),
            Operation::Flush => Memory::Flush,
        };
        // Tokens and buffers live in `self`, and are neither moved nor freed while the operation is in flight: see `drop`.
        let token: *const Token = &raw const self.tokens[slot as usize];
        let started = self.subject.start(offset_bytes, memory, done::<S>, token.cast_mut().cast());
        self.carried[slot as usize] = (operation, length_bytes);
        self.in_flight += 1;
        if started < 0 {
            self.finished.push(slot, started as isize);
        }
    }

    fn turn(&mut self, timeout: Duration, completions: &mut Vec<Completion>) -> Result<(), TargetError> {
        let list = self.finished.list.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.finished.arrived.wait_timeout_while(list, timeout, |list| list.is_empty());
        let mut list = waited.unwrap_or_else(PoisonError::into_inner).0;
        self.in_flight -= list.len();
        for (slot, result) in list.drain(..) {
            let (operation, length_bytes) = self.carried[slot as usize];
            let errno = self.subject.errno(result, operation, length_bytes);
            completions.push(Completion { slot, errno });
        }
        Ok(())
    }
}

impl<S: Subject> Drop for CephLane<S> {
    fn drop(&mut self) {
        let mut completions = Vec::new();
        let began = Instant::now();
        while self.in_flight > 0 && began.elapsed() < DRAIN {
            // It cannot fail.
            let _ = self.turn(Duration::from_millis(100), &mut completions);
        }
        if self.in_flight > 0 {
            // The library may still write into or read from them, and close nothing that it works on.
            self.buffers.leak();
            std::mem::forget(std::mem::take(&mut self.tokens));
            std::mem::forget(Arc::clone(&self.subject));
        }
    }
}
