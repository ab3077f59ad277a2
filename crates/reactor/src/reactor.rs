//! The loop's engine: queue operations, then [`Reactor::turn`] submits them and gives what is finished.
//!
//! Invariants:
//! - each operation queued gives exactly one completion, an accept one per connection;
//! - a file is closed only when none of its operations is in flight;
//! - the user data of a ring entry is the index of its slot.

mod hang_up;
mod leaving;
mod retry;
mod sending;
mod unread;

use std::collections::VecDeque;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, OwnedFd};

use coquina_base::{AlignedBuf, Landing};

use crate::WAKE_TOKEN;
use crate::accept::{Address, RawAddress, own_accepted};
use crate::busy_poll::{BusyPoll, Expecting};
use crate::clock::monotonic_ns;
use crate::error::{Errno, ReactorError};
use crate::lend::Lender;
use crate::operation::{Completion, Operation, Payload, Slot};
use crate::receive::ReceiveBuffer;
use crate::ring::{EnterWait, Ring};
use crate::sched_stat::{IdleTime, Occupation, SchedStat};
use crate::shortcut::{connect_nearby, prepare_accepted};
use crate::socket::{GiveUp, give_up, open_socket};
use crate::waker::Waker;
pub use hang_up::Incoming;
use retry::{Progress, progress};
use unread::{Unread, UnreadLists};

const NO_FILE: u32 = u32::MAX;

/// Size of a reactor.
#[derive(Clone, Copy, Debug)]
pub struct ReactorConfig {
    /// Entries of the submission queue, rounded up to a power of two. More operations than this may be in
    /// flight; more than this queued in one turn cost a second system call.
    pub entries: u32,
    /// How long a turn may look for a completion before it sleeps, where such waits have been short of late; 0 is never.
    pub busy_poll_ns: u64,
}

impl Default for ReactorConfig {
    fn default() -> Self {
        ReactorConfig { entries: 512, busy_poll_ns: 0 }
    }
}

/// A file or socket attached to a reactor. Stale ones are recognised.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct FileId {
    index: u32,
    generation: u32,
}

/// How long a turn waits for a completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// Not at all.
    Poll,
    /// Until this time of [`monotonic_ns`].
    Until(u64),
    /// As long as it takes.
    Forever,
}

struct File {
    generation: u32,
    descriptor: Option<OwnedFd>,
    in_flight: u32,
    /// Token of the close that waits for the operations in flight.
    closing: Option<u64>,
    /// Whether the last receive left nothing in the socket.
    drained: bool,
    /// Whether it is a connection that was made to a server of this host.
    is_nearby: bool,
    /// Whether large pieces are lent to its peer.
    lends: bool,
    /// Whether the end of the reactor does not wait for what is in flight.
    is_abandoned: bool,
    unread: Unread,
}

/// One io_uring, its operations and its files. Belongs to the thread that made it.
pub struct Reactor {
    ring: Ring,
    slots: Vec<Slot>,
    free_slots: Vec<u32>,
    files: Vec<File>,
    free_files: Vec<u32>,
    /// Completions that need no ring: refused operations and closes.
    immediate: VecDeque<Completion>,
    in_flight: usize,
    /// Those of them that are a drive's.
    drive_in_flight: usize,
    /// Whether the owner waits for an answer of somebody else.
    answers_expected: bool,
    busy_poll: BusyPoll,
    busy_poll_total_ns: u64,
    sched_stat: SchedStat,
    occupation: Occupation,
    idle_time: IdleTime,
    lender: Lender,
    unread: UnreadLists,
    waker: Waker,
    /// Empty between calls; kept for its memory.
    vectors: Vec<libc::iovec>,
    /// Results that the next operations on drives have instead of their own.
    #[cfg(test)]
    faults: VecDeque<i32>,
    thread: PhantomData<*const ()>,
}

impl Reactor {
    /// Makes a ring for the calling thread.
    pub fn new(config: ReactorConfig) -> Result<Reactor, ReactorError> {
        let ring = Ring::new(config.entries.max(8))?;
        let waker = Waker::new()?;
        let mut reactor = Reactor {
            ring,
            slots: Vec::new(),
            free_slots: Vec::new(),
            files: Vec::new(),
            free_files: Vec::new(),
            immediate: VecDeque::new(),
            in_flight: 0,
            drive_in_flight: 0,
            answers_expected: false,
            busy_poll: BusyPoll::new(config.busy_poll_ns),
            busy_poll_total_ns: 0,
            sched_stat: SchedStat::open(),
            occupation: Occupation::default(),
            idle_time: IdleTime::open(),
            lender: Lender::default(),
            unread: UnreadLists::default(),
            waker,
            vectors: Vec::new(),
            #[cfg(test)]
            faults: VecDeque::new(),
            thread: PhantomData,
        };
        reactor.start(NO_FILE, Operation::Wake, WAKE_TOKEN);
        Ok(reactor)
    }

    /// A handle with which other threads end this reactor's sleep.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Operations that are queued or in the kernel, without the one that waits for wakers.
    pub fn in_flight(&self) -> usize {
        self.in_flight - 1
    }

    /// Says how many requests are under way: while any is, the next wait is likely to be short.
    pub fn expect_answers(&mut self, requests: usize) {
        self.answers_expected = requests > 0;
        self.busy_poll.expect(requests);
    }

    /// Whether many requests were under way on average, at the last waits.
    pub fn is_crowded(&self) -> bool {
        self.busy_poll.is_crowded()
    }

    /// How long turns have looked for completions instead of sleeping, in all.
    pub fn busy_poll_ns(&self) -> u64 {
        self.busy_poll_total_ns
    }

    /// Share of its time, 0 to 1, for which the thread has run of late, without the time in which it only looked for completions, or has stood
    /// in line for want of processors; 0 at first. Two system calls, once per second.
    pub fn occupation(&mut self) -> f64 {
        let count = || (self.sched_stat.read(), self.idle_time.read_ns());
        self.occupation.since(self.busy_poll_total_ns, self.idle_time.processors, monotonic_ns(), count)
    }

    /// Takes over a file or socket. It must be blocking (not `O_NONBLOCK`), as all made by this crate are.
    pub fn attach(&mut self, descriptor: OwnedFd) -> FileId {
        let index = self.free_files.pop().unwrap_or_else(|| {
            self.files.push(File {
                generation: 0,
                descriptor: None,
                in_flight: 0,
                closing: None,
                drained: false,
                is_nearby: false,
                lends: false,
                is_abandoned: false,
                unread: Unread::default(),
            });
            (self.files.len() - 1) as u32
        });
        let file = &mut self.files[index as usize];
        file.descriptor = Some(descriptor);
        file.drained = false;
        file.is_nearby = false;
        file.lends = false;
        file.is_abandoned = false;
        file.unread = Unread::default();
        FileId { index, generation: file.generation }
    }

    /// Gives a file back that has no operation in flight and whose peer has read all that was lent, for instance to another reactor.
    pub fn detach(&mut self, file: FileId) -> Option<OwnedFd> {
        let index = self.find(file)?;
        if self.files[index as usize].in_flight > 0 || !self.is_all_read(index) {
            return None;
        }
        let descriptor = self.files[index as usize].descriptor.take();
        self.release_file(index);
        descriptor
    }

    /// Whether the file is attached and not being closed.
    pub fn is_open(&self, file: FileId) -> bool {
        self.find(file).is_some()
    }

    /// Fills the buffer from `offset_bytes` on. All of it, or `EIO` at the end of the file.
    pub fn read_at(&mut self, file: FileId, offset_bytes: u64, buffer: AlignedBuf, token: u64) {
        self.queue(file, Operation::Read { offset_bytes, buffer }, token);
    }

    /// Writes the buffer at `offset_bytes`, all of it; with `durable` it is on stable storage when reported.
    pub fn write_at(
        &mut self,
        file: FileId,
        offset_bytes: u64,
        buffer: AlignedBuf,
        durable: bool,
        token: u64,
    ) {
        self.queue(file, Operation::Write { offset_bytes, buffer, durable }, token);
    }

    /// Writes zeros, not durably, 1 MiB at a time. `length_bytes` counts whole blocks.
    pub fn write_zeroes(&mut self, file: FileId, offset_bytes: u64, length_bytes: u64, token: u64) {
        self.queue(file, Operation::Zeroes { offset_bytes, length_bytes }, token);
    }

    /// Makes all writes reported before durable (`fdatasync`).
    pub fn sync(&mut self, file: FileId, token: u64) {
        self.queue(file, Operation::Sync, token);
    }

    /// Receives into the free tail of the buffer; 0 bytes mean that the peer has closed. One at a time per
    /// socket. A buffer without a free tail is refused with `ENOBUFS`.
    pub fn receive(&mut self, file: FileId, buffer: ReceiveBuffer, token: u64) {
        self.queue(file, Operation::Receive { buffer, poll_first: false }, token);
    }

    /// Receives all that the landing lacks. `ECONNRESET` if the peer closes before. One at a time per socket, as with
    /// [`Reactor::receive`].
    pub fn land(&mut self, file: FileId, landing: Landing, token: u64) {
        self.queue(file, Operation::Land { landing, whole: true }, token);
    }

    /// Receives what comes next of what the landing lacks: over a network what is there, so that its owner sees that it goes on. Else
    /// as [`Reactor::land`].
    pub fn land_as_it_comes(&mut self, file: FileId, landing: Landing, token: u64) {
        let is_nearby = self.find(file).is_some_and(|index| self.files[index as usize].is_nearby);
        self.queue(file, Operation::Land { landing, whole: is_nearby }, token);
    }

    /// Accepts connections until the listener is closed; each gives a completion with
    /// [`Payload::Accepted`]. After an error, for instance `EMFILE`, `accept` must be called again.
    pub fn accept(&mut self, listener: FileId, token: u64) {
        self.queue(listener, Operation::Accept, token);
    }

    /// Makes a connection to `address`, attached to this reactor: over a Unix socket if the server is on this host, else over TCP. It
    /// completes as [`Reactor::connect`] does. A TCP connection ends by itself as `when` says.
    pub fn connect_to(
        &mut self,
        address: &Address,
        when: GiveUp,
        token: u64,
    ) -> Result<FileId, ReactorError> {
        if let Some(socket) = connect_nearby(address) {
            self.refuse(Operation::Connect, token, 0);
            let file = self.attach(socket);
            self.files[file.index as usize].is_nearby = true;
            self.files[file.index as usize].lends = true;
            return Ok(file);
        }
        let socket = open_socket(address)?;
        give_up(&socket, when);
        let file = self.attach(socket);
        self.connect(file, address, token);
        Ok(file)
    }

    /// Connects a socket made by [`open_socket`](crate::open_socket).
    pub fn connect(&mut self, file: FileId, address: &Address, token: u64) {
        let raw = RawAddress::new(address);
        self.queue_pinned(file, Operation::Connect, token, |pinned| pinned.address = raw);
    }

    /// Completes at `deadline_ns` of [`boottime_ns`](crate::boottime_ns).
    pub fn timeout_at(&mut self, deadline_ns: u64, token: u64) {
        let slot = self.take_slot(NO_FILE, Operation::Timeout, token);
        self.slots[slot as usize].pinned().timespec = io_uring::types::Timespec::new()
            .sec(deadline_ns / 1_000_000_000)
            .nsec((deadline_ns % 1_000_000_000) as u32);
        self.submit(slot);
    }

    /// Tells the other side of a socket that nothing more is sent, behind what was. Receiving goes on.
    pub fn end_sending(&mut self, file: FileId) {
        let index = self.find(file);
        let descriptor = index.and_then(|index| self.files[index as usize].descriptor.as_ref());
        if let Some(descriptor) = descriptor {
            // One that is broken is told of by its receive.
            let _ = rustix::net::shutdown(descriptor, rustix::net::Shutdown::Write);
        }
    }

    /// Ends all operations on the file (`ECANCELED`), then closes it and completes. The id is stale at once.
    pub fn close(&mut self, file: FileId, token: u64) {
        let Some(index) = self.find(file) else {
            self.refuse(Operation::Sync, token, libc::EBADF);
            return;
        };
        let entry = &mut self.files[index as usize];
        entry.closing = Some(token);
        if entry.in_flight == 0 {
            self.finish_close(index);
            return;
        }
        if let Some(descriptor) = &entry.descriptor {
            // SAFETY: plain system call on an owned descriptor; failure (not a socket) is of no interest.
            #[allow(unsafe_code)]
            unsafe {
                libc::shutdown(descriptor.as_raw_fd(), libc::SHUT_RDWR);
            }
        }
        self.start(index, Operation::Cancel, 0);
    }

    /// Submits all that was queued and appends what is finished to `completions`, waiting for at least one.
    ///
    /// Errors are those of the ring itself; those of operations are in their completions.
    pub fn turn(&mut self, wait: Wait, completions: &mut Vec<Completion>) -> Result<(), ReactorError> {
        let before = completions.len();
        self.sweep_unread();
        completions.extend(self.immediate.drain(..));
        self.reap(completions);
        let wait = if completions.len() > before { Wait::Poll } else { wait };
        if wait == Wait::Poll {
            self.ring.enter(EnterWait::No)?;
            self.take_finished(completions);
            return Ok(());
        }
        let expecting = if self.answers_expected || self.drive_in_flight > 0 {
            Expecting::Answer
        } else {
            Expecting::Request
        };
        let begin_ns = monotonic_ns();
        loop {
            if self.poll_busily(expecting, wait)? {
                // All was submitted before the look. What it has found needs no call to the kernel.
                self.take_finished(completions);
                if completions.len() > before {
                    self.busy_poll.waited(expecting, monotonic_ns().saturating_sub(begin_ns));
                    return Ok(());
                }
            }
            let enter_wait = match wait {
                Wait::Poll => EnterWait::No,
                Wait::Forever => EnterWait::Forever,
                Wait::Until(deadline_ns) => match deadline_ns.saturating_sub(monotonic_ns()) {
                    0 => EnterWait::No,
                    left_ns => EnterWait::AtMost(left_ns),
                },
            };
            self.ring.enter(enter_wait)?;
            self.take_finished(completions);
            if completions.len() > before || enter_wait == EnterWait::No {
                self.busy_poll.waited(expecting, monotonic_ns().saturating_sub(begin_ns));
                return Ok(());
            }
        }
    }

    fn take_finished(&mut self, completions: &mut Vec<Completion>) {
        self.reap(completions);
        completions.extend(self.immediate.drain(..));
    }

    /// Looks for completions for as long as that has been worth it of late, and leaves the processor to others in between.
    /// Says whether it has looked: then all that was queued is submitted.
    fn poll_busily(&mut self, expecting: Expecting, wait: Wait) -> Result<bool, ReactorError> {
        let begin_ns = monotonic_ns();
        let window_ns = self.busy_poll.window_ns(expecting, begin_ns);
        if window_ns == 0 {
            return Ok(false);
        }
        if self.busy_poll.looks_again(begin_ns) && self.busy_poll.look(self.sched_stat.read(), begin_ns) {
            return Ok(false);
        }
        self.ring.enter(EnterWait::No)?;
        let mut end_ns = begin_ns + window_ns;
        if let Wait::Until(deadline_ns) = wait {
            end_ns = end_ns.min(deadline_ns);
        }
        let mut now_ns = monotonic_ns();
        while now_ns < end_ns && !self.ring.has_news() {
            let before_ns = now_ns;
            std::thread::yield_now();
            now_ns = monotonic_ns();
            if BusyPoll::is_jump(before_ns, now_ns) {
                self.busy_poll.jumped(before_ns, now_ns, self.sched_stat.read());
            }
        }
        self.busy_poll_total_ns += now_ns.saturating_sub(begin_ns);
        Ok(true)
    }

    fn find(&self, file: FileId) -> Option<u32> {
        let entry = self.files.get(file.index as usize)?;
        let open =
            entry.generation == file.generation && entry.descriptor.is_some() && entry.closing.is_none();
        open.then_some(file.index)
    }

    fn queue(&mut self, file: FileId, operation: Operation, token: u64) {
        self.queue_pinned(file, operation, token, |_| {});
    }

    fn queue_pinned(
        &mut self,
        file: FileId,
        mut operation: Operation,
        token: u64,
        prepare: impl FnOnce(&mut crate::operation::Pinned),
    ) {
        let Some(index) = self.find(file) else {
            return self.refuse(operation, token, libc::EBADF);
        };
        let empty = match &mut operation {
            Operation::Read { buffer, .. } | Operation::Write { buffer, .. } => buffer.is_empty(),
            Operation::Zeroes { length_bytes, .. } => *length_bytes == 0,
            Operation::Land { landing, .. } => landing.left_bytes() == 0,
            Operation::Receive { buffer, poll_first } => {
                *poll_first = self.files[index as usize].drained;
                if buffer.tail().is_empty() {
                    return self.refuse(operation, token, libc::ENOBUFS);
                }
                false
            }
            _ => false,
        };
        if empty {
            return self.refuse(operation, token, 0);
        }
        if matches!(operation, Operation::Connect) {
            let slot = self.take_slot(index, operation, token);
            prepare(self.slots[slot as usize].pinned());
            self.submit(slot);
        } else {
            self.start(index, operation, token);
        }
    }

    /// Completes an operation without the ring: with an error, or as done if `errno` is 0.
    fn refuse(&mut self, operation: Operation, token: u64, errno: i32) {
        let payload = Slot { operation, ..Slot::free() }.finish();
        let result = if errno == 0 { Ok(0) } else { Err(Errno(errno)) };
        self.immediate.push_back(Completion { token, result, payload });
    }

    fn start(&mut self, file: u32, operation: Operation, token: u64) {
        let slot = self.take_slot(file, operation, token);
        self.submit(slot);
    }

    fn take_slot(&mut self, file: u32, operation: Operation, token: u64) -> u32 {
        let index = self.free_slots.pop().unwrap_or_else(|| {
            self.slots.push(Slot::free());
            (self.slots.len() - 1) as u32
        });
        let slot = &mut self.slots[index as usize];
        slot.operation = operation;
        slot.token = token;
        slot.file = file;
        slot.progress_bytes = 0;
        slot.retries = 0;
        slot.pauses = 0;
        if let Some(file) = self.files.get_mut(file as usize) {
            file.in_flight += 1;
        }
        self.in_flight += 1;
        self.drive_in_flight += usize::from(slot.is_drive());
        index
    }

    /// Queues the ring entry for what is left of a slot's operation.
    fn submit(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        let raw = match &slot.operation {
            Operation::Wake => self.waker.raw(),
            _ => self
                .files
                .get(slot.file as usize)
                .and_then(|file| file.descriptor.as_ref())
                .map_or(-1, AsRawFd::as_raw_fd),
        };
        let registered = match &slot.operation {
            Operation::Write { buffer, .. } => self.ring.registered(buffer),
            _ => None,
        };
        let entry = slot.entry(raw, registered).user_data(u64::from(index));
        // SAFETY: all that the entry points to belongs to the slot and stays in place until the completion is
        // taken out in `reap`: the slot is not freed or changed before, and `drop` drains the ring.
        #[allow(unsafe_code)]
        unsafe {
            self.ring.push(entry);
        }
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        while let Some(entry) = self.ring.next() {
            let index = entry.user_data() as u32;
            let more = io_uring::cqueue::more(entry.flags());
            let nonempty = io_uring::cqueue::sock_nonempty(entry.flags());
            let result = entry.result();
            #[cfg(test)]
            let result = self.faulty(index, result);
            if let Some(completion) = self.complete(index, result, more, nonempty) {
                completions.push(completion);
            }
        }
    }

    fn complete(&mut self, index: u32, result: i32, more: bool, nonempty: bool) -> Option<Completion> {
        let slot = &mut self.slots[index as usize];
        if slot.is_paused {
            return self.pause_over(index);
        }
        let token = slot.token;
        match &mut slot.operation {
            Operation::Accept => return self.complete_accept(index, result, more),
            Operation::Wake => return self.complete_wake(index, result),
            Operation::Lend { .. } => return self.complete_lend(index, result),
            Operation::Cancel => {
                self.free_slot(index);
                return None;
            }
            Operation::Receive { buffer, .. } if result > 0 => {
                // More may be there: the kernel does not say for all kinds of sockets.
                let full = buffer.tail().len() == result as usize;
                buffer.received(result as usize);
                if let Some(file) = self.files.get_mut(slot.file as usize) {
                    file.drained = !nonempty && !full;
                }
            }
            Operation::Timeout if result == -libc::ETIME => {
                self.free_slot(index);
                return Some(Completion { token, result: Ok(0), payload: Payload::None });
            }
            _ => {}
        }
        let closing = self.files.get(slot.file as usize).is_some_and(|file| file.closing.is_some());
        let result = match progress(slot, result) {
            Progress::Again if !closing => {
                self.submit(index);
                return None;
            }
            Progress::AfterPause if !closing => {
                self.pause(index);
                return None;
            }
            Progress::Again | Progress::AfterPause => Err(Errno(libc::ECANCELED)),
            Progress::Done(result) => result,
        };
        match &mut slot.operation {
            Operation::Land { landing, .. } => {
                if let Ok(count) = result {
                    landing.filled(count as usize);
                }
            }
            Operation::Send { list } => {
                let (file, list) = (slot.file, std::mem::take(list));
                let list = self.book_sent(file, list, result.is_ok());
                self.slots[index as usize].operation = Operation::Send { list };
            }
            _ => {}
        }
        let payload = self.free_slot(index);
        Some(Completion { token, result, payload })
    }

    fn complete_accept(&mut self, index: u32, result: i32, more: bool) -> Option<Completion> {
        let token = self.slots[index as usize].token;
        if result >= 0 {
            let socket = own_accepted(result);
            prepare_accepted(&socket);
            let connection = self.attach(socket);
            if !more {
                let file = self.slots[index as usize].file;
                self.free_slot(index);
                if self.files[file as usize].descriptor.is_some()
                    && self.files[file as usize].closing.is_none()
                {
                    self.start(file, Operation::Accept, token);
                }
            }
            return Some(Completion { token, result: Ok(0), payload: Payload::Accepted(Some(connection)) });
        }
        if more {
            return None;
        }
        if matches!(-result, libc::ECONNABORTED | libc::EINTR | libc::EAGAIN) {
            self.submit(index);
            return None;
        }
        let payload = self.free_slot(index);
        Some(Completion { token, result: Err(Errno(-result)), payload })
    }

    fn complete_wake(&mut self, index: u32, result: i32) -> Option<Completion> {
        if result == -libc::ECANCELED {
            self.free_slot(index);
            return None;
        }
        self.waker.seen();
        self.submit(index);
        (result >= 0).then_some(Completion { token: WAKE_TOKEN, result: Ok(0), payload: Payload::Woken })
    }

    fn free_slot(&mut self, index: u32) -> Payload {
        let slot = &mut self.slots[index as usize];
        self.drive_in_flight -= usize::from(slot.is_drive());
        let payload = slot.finish();
        let file = slot.file;
        self.free_slots.push(index);
        self.in_flight -= 1;
        if let Some(entry) = self.files.get_mut(file as usize) {
            entry.in_flight -= 1;
            if entry.in_flight == 0 && entry.closing.is_some() {
                self.finish_close(file);
            }
        }
        payload
    }

    fn finish_close(&mut self, index: u32) {
        self.close_when_read(index);
        if let Some(token) = self.files[index as usize].closing.take() {
            self.immediate.push_back(Completion { token, result: Ok(0), payload: Payload::None });
        }
        self.release_file(index);
    }

    fn release_file(&mut self, index: u32) {
        let entry = &mut self.files[index as usize];
        entry.generation = entry.generation.wrapping_add(1);
        self.free_files.push(index);
    }
}
