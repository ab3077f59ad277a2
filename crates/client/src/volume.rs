//! A volume for many threads: blocking calls, with the connection on a thread of its own.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use coquina_base::AlignedBuf;
use coquina_protocol::Extent;
use coquina_reactor::{Mailbox, MailboxSender, Wait, mailbox};

use crate::driver::VolumeConnection;
use crate::error::ClientError;
use crate::request::{ClientCompletion, ClientRequest, RequestKind};

/// Buffers kept for the next calls.
const SPARE_BUFFERS_MAX: usize = 32;

/// How a volume is opened.
#[derive(Clone, Debug)]
pub struct VolumeOptions {
    /// Refuse changes.
    pub read_only: bool,
    /// How long a broken connection is tried again before calls fail.
    pub give_up: Duration,
}

impl Default for VolumeOptions {
    fn default() -> Self {
        VolumeOptions { read_only: false, give_up: Duration::from_secs(30) }
    }
}

/// Where a call waits for its answer.
#[derive(Default)]
struct Ticket {
    done: Mutex<Option<ClientCompletion>>,
    signal: Condvar,
}

enum Job {
    Request(ClientRequest, Arc<Ticket>),
    Stop,
}

/// An open volume. Calls block; threads share it by reference or `Arc`. Dropping it closes the connection.
pub struct Volume {
    jobs: MailboxSender<Job>,
    size_bytes: Arc<AtomicU64>,
    spare: Mutex<Vec<AlignedBuf>>,
    thread: Option<JoinHandle<()>>,
}

/// The rest of a poisoned lock's data is whole: nothing panics while holding it half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Volume {
    /// Opens a volume by its name at a node's address (`host:port` or `unix:/path`), or several with commas between them.
    pub fn open(addresses: &str, name: &str, options: &VolumeOptions) -> Result<Volume, ClientError> {
        let mut config = VolumeConnection::config(addresses, name);
        config.read_only = options.read_only;
        config.give_up_ns =
            u64::try_from(options.give_up.as_nanos()).unwrap_or(u64::MAX / 2).min(u64::MAX / 2);
        let size_bytes = Arc::new(AtomicU64::new(0));
        let (ready, opened) = mpsc::channel();
        let size_for_thread = size_bytes.clone();
        let thread = std::thread::Builder::new()
            .name("coquina-volume".to_owned())
            .spawn(move || match VolumeConnection::open(config) {
                Err(error) => {
                    let _ = ready.send(Err(error));
                }
                Ok(connection) => {
                    let (sender, jobs) = mailbox(connection.waker());
                    size_for_thread.store(connection.size_bytes(), Ordering::Release);
                    if ready.send(Ok(sender)).is_ok() {
                        Worker { connection, jobs, size_bytes: size_for_thread, tickets: Vec::new() }.run();
                    }
                }
            })
            .map_err(|error| ClientError::Local(format!("cannot start a thread: {error}")))?;
        let jobs =
            opened.recv().map_err(|_| ClientError::Local("the client's thread ended".to_owned()))??;
        Ok(Volume { jobs, size_bytes, spare: Mutex::new(Vec::new()), thread: Some(thread) })
    }

    /// Size in bytes, as last told by the server.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Acquire)
    }

    /// Fills `target` from `offset_bytes` on; both of whole sectors of 512.
    pub fn read(&self, offset_bytes: u64, target: &mut [u8]) -> Result<(), ClientError> {
        let buffer = self.buffer(target.len());
        let done = self.call(RequestKind::Read, offset_bytes, target.len() as u64, buffer)?;
        target.copy_from_slice(&done.buffer[..target.len()]);
        self.keep(done.buffer);
        Ok(())
    }

    /// Writes `bytes` at `offset_bytes`; both of whole sectors of 512. On stable storage when it returns.
    pub fn write(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), ClientError> {
        let mut buffer = self.buffer(bytes.len());
        buffer[..bytes.len()].copy_from_slice(bytes);
        let done = self.call(RequestKind::Write, offset_bytes, bytes.len() as u64, buffer)?;
        self.keep(done.buffer);
        Ok(())
    }

    /// Forgets data: the range reads as zeros and takes no space.
    pub fn discard(&self, offset_bytes: u64, length_bytes: u64) -> Result<(), ClientError> {
        self.call(RequestKind::Discard, offset_bytes, length_bytes, AlignedBuf::new()).map(drop)
    }

    /// The range reads as zeros; with `no_hole` its space stays reserved.
    pub fn write_zeroes(
        &self,
        offset_bytes: u64,
        length_bytes: u64,
        no_hole: bool,
    ) -> Result<(), ClientError> {
        let kind = RequestKind::WriteZeroes { no_hole };
        self.call(kind, offset_bytes, length_bytes, AlignedBuf::new()).map(drop)
    }

    /// What the range consists of, in whole sectors of 512: extents in its order that cover it exactly.
    pub fn map(&self, offset_bytes: u64, length_bytes: u64) -> Result<Vec<Extent>, ClientError> {
        self.call(RequestKind::Map, offset_bytes, length_bytes, AlignedBuf::new()).map(|done| done.extents)
    }

    /// Everything acknowledged before is on stable storage, as it always is; fails if the client has failed.
    pub fn flush(&self) -> Result<(), ClientError> {
        self.call(RequestKind::Flush, 0, 0, AlignedBuf::new()).map(drop)
    }

    fn buffer(&self, length_bytes: usize) -> AlignedBuf {
        let mut buffer = lock(&self.spare).pop().unwrap_or_default();
        buffer.resize_blocks(length_bytes.div_ceil(coquina_base::BLOCK_BYTES));
        buffer
    }

    fn keep(&self, buffer: AlignedBuf) {
        let mut spare = lock(&self.spare);
        if spare.len() < SPARE_BUFFERS_MAX {
            spare.push(buffer);
        }
    }

    fn call(
        &self,
        kind: RequestKind,
        offset_bytes: u64,
        length_bytes: u64,
        buffer: AlignedBuf,
    ) -> Result<ClientCompletion, ClientError> {
        let ticket = Arc::new(Ticket::default());
        let request = ClientRequest { token: 0, kind, offset_bytes, length_bytes, buffer };
        self.jobs.send(Job::Request(request, ticket.clone()));
        let mut done = lock(&ticket.done);
        loop {
            if let Some(completion) = done.take() {
                return completion.result.clone().map(|()| completion);
            }
            done = ticket.signal.wait(done).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        self.jobs.send(Job::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The thread behind a volume.
struct Worker {
    connection: VolumeConnection,
    jobs: Mailbox<Job>,
    size_bytes: Arc<AtomicU64>,
    /// Who waits, by token.
    tickets: Vec<Option<Arc<Ticket>>>,
}

impl Worker {
    fn run(mut self) {
        let mut jobs = Vec::new();
        let mut completions = Vec::new();
        let mut free = Vec::new();
        loop {
            self.jobs.drain(&mut jobs);
            for job in jobs.drain(..) {
                let Job::Request(mut request, ticket) = job else { return };
                let token = free.pop().unwrap_or_else(|| {
                    self.tickets.push(None);
                    self.tickets.len() - 1
                });
                request.token = token as u64;
                self.tickets[token] = Some(ticket);
                self.connection.submit(request);
            }
            let ring = self.connection.poll(Wait::Forever, &mut completions);
            self.size_bytes.store(self.connection.size_bytes(), Ordering::Release);
            for completion in completions.drain(..) {
                let token = completion.token as usize;
                if let Some(ticket) = self.tickets[token].take() {
                    *lock(&ticket.done) = Some(completion);
                    ticket.signal.notify_one();
                    free.push(token);
                }
            }
            if let Err(error) = ring {
                return self.fail(&error);
            }
        }
    }

    /// The ring is broken: answers every call with the error until the volume is dropped.
    fn fail(self, error: &ClientError) {
        let answer = |ticket: &Ticket| {
            let failed = ClientCompletion {
                token: 0,
                result: Err(error.clone()),
                buffer: AlignedBuf::new(),
                extents: Vec::new(),
            };
            *lock(&ticket.done) = Some(failed);
            ticket.signal.notify_one();
        };
        self.tickets.iter().flatten().for_each(|ticket| answer(ticket));
        let mut jobs = Vec::new();
        loop {
            self.jobs.drain(&mut jobs);
            for job in jobs.drain(..) {
                match job {
                    Job::Request(_, ticket) => answer(&ticket),
                    Job::Stop => return,
                }
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
