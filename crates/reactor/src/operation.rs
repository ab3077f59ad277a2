//! Operations in flight: what they own, and how each is told to the kernel.
//!
//! Invariant: what an entry of the ring points to lies on the heap, owned by the operation's slot: in a buffer
//! of the operation, or in the slot's [`Pinned`] box. Slots may move; what they own does not.

use coquina_base::{AlignedBuf, Landing};
use io_uring::types::{CancelBuilder, Fd, TimeoutFlags, Timespec};
use io_uring::{opcode, squeue};

use crate::accept::RawAddress;
use crate::error::Errno;
use crate::reactor::FileId;
use crate::receive::ReceiveBuffer;
use crate::send::{SendList, ZEROES_BYTES, zeroes};

/// Most pieces that one system call takes (`UIO_MAXIOV`).
pub(crate) const VECTORS_MAX: usize = 1024;
/// `IORING_RECVSEND_POLL_FIRST`: the socket is known to be empty, do not try before it is readable.
const POLL_FIRST: u16 = 1;

/// A finished operation.
#[derive(Debug)]
pub struct Completion {
    /// The token that the operation was given.
    pub token: u64,
    /// Bytes moved (saturating), or 0 where there is no count.
    pub result: Result<u32, Errno>,
    /// What the operation owned or made.
    pub payload: Payload,
}

/// What an operation hands back.
#[derive(Debug)]
pub enum Payload {
    /// Nothing: sync, zeroes, connect, time-out, close.
    None,
    /// The buffer of a read or write.
    Buffer(AlignedBuf),
    /// The buffer of a receive; a result of 0 bytes means that the peer has closed.
    Receive(ReceiveBuffer),
    /// The landing of a receive; full unless there is an error, or it was to be filled as the bytes come.
    Landing(Landing),
    /// The list of a send, to be recycled.
    Send(SendList),
    /// A connection, attached to this reactor. The listener goes on accepting unless the result is an error.
    Accepted(Option<FileId>),
    /// A [`Waker`](crate::Waker) was used.
    Woken,
}

/// What an operation does, with what it owns.
#[derive(Debug)]
pub(crate) enum Operation {
    Free,
    Read {
        offset_bytes: u64,
        buffer: AlignedBuf,
    },
    Write {
        offset_bytes: u64,
        buffer: AlignedBuf,
        durable: bool,
    },
    Zeroes {
        offset_bytes: u64,
        length_bytes: u64,
    },
    Sync,
    Receive {
        buffer: ReceiveBuffer,
        poll_first: bool,
    },
    Land {
        landing: Landing,
        whole: bool,
    },
    Send {
        list: SendList,
    },
    /// The rest of a list of which pieces are lent, when the socket has room again.
    Lend {
        list: SendList,
    },
    Accept,
    Connect,
    Timeout,
    Wake,
    Cancel,
}

/// What the kernel reads through pointers, apart from buffers. Boxed once per slot and reused.
pub(crate) struct Pinned {
    message: libc::msghdr,
    vectors: Vec<libc::iovec>,
    pub(crate) timespec: Timespec,
    pub(crate) address: RawAddress,
    pub(crate) wake_count: u64,
}

impl Pinned {
    pub(crate) fn new() -> Box<Pinned> {
        Box::new(Pinned {
            message: message_of(&mut []),
            vectors: Vec::new(),
            timespec: Timespec::new(),
            address: RawAddress::empty(),
            wake_count: 0,
        })
    }
}

/// The header of a message that is these vectors.
pub(crate) fn message_of(vectors: &mut [libc::iovec]) -> libc::msghdr {
    // SAFETY: `msghdr` is a plain C structure for which zeros are valid (null pointers, no lengths).
    #[allow(unsafe_code)]
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = vectors.as_mut_ptr();
    message.msg_iovlen = vectors.len() as _;
    message
}

/// One operation in flight, or a free place for one.
pub(crate) struct Slot {
    pub(crate) operation: Operation,
    pub(crate) token: u64,
    /// Index of the file in the reactor's table.
    pub(crate) file: u32,
    /// Bytes moved by earlier parts of this operation.
    pub(crate) progress_bytes: u64,
    /// How often the kernel asked to try again.
    pub(crate) retries: u32,
    /// How often it was tried again after a pause.
    pub(crate) pauses: u32,
    /// Whether the kernel has the end of a pause to tell, and not the operation.
    pub(crate) is_paused: bool,
    pub(crate) pinned: Option<Box<Pinned>>,
}

impl Slot {
    pub(crate) fn free() -> Slot {
        Slot {
            operation: Operation::Free,
            token: 0,
            file: u32::MAX,
            progress_bytes: 0,
            retries: 0,
            pauses: 0,
            is_paused: false,
            pinned: None,
        }
    }

    pub(crate) fn pinned(&mut self) -> &mut Pinned {
        self.pinned.get_or_insert_with(Pinned::new)
    }

    /// The ring entry for what is left of the operation, or for the pause before it. A write's buffer may be `registered` in the ring under a number.
    pub(crate) fn entry(&mut self, raw: i32, registered: Option<u16>) -> squeue::Entry {
        if self.is_paused {
            let timespec: *const Timespec = &self.pinned().timespec;
            return opcode::Timeout::new(timespec).build();
        }
        let fd = Fd(raw);
        let done = self.progress_bytes as usize;
        match &mut self.operation {
            Operation::Read { offset_bytes, buffer } => {
                let rest = &mut buffer[done..];
                let length = rest.len().min(IO_BYTES_MAX) as u32;
                opcode::Read::new(fd, rest.as_mut_ptr(), length).offset(*offset_bytes + done as u64).build()
            }
            Operation::Write { offset_bytes, buffer, durable } => {
                let rest = &buffer[done..];
                let length = rest.len().min(IO_BYTES_MAX) as u32;
                let offset_bytes = *offset_bytes + done as u64;
                let flags = if *durable { libc::RWF_DSYNC } else { 0 };
                match registered {
                    Some(number) => opcode::WriteFixed::new(fd, rest.as_ptr(), length, number)
                        .offset(offset_bytes)
                        .rw_flags(flags)
                        .build(),
                    None => opcode::Write::new(fd, rest.as_ptr(), length)
                        .offset(offset_bytes)
                        .rw_flags(flags)
                        .build(),
                }
            }
            Operation::Zeroes { offset_bytes, length_bytes } => {
                let length = (*length_bytes - done as u64).min(ZEROES_BYTES as u64) as u32;
                opcode::Write::new(fd, zeroes().as_ptr(), length).offset(*offset_bytes + done as u64).build()
            }
            Operation::Sync => opcode::Fsync::new(fd).flags(io_uring::types::FsyncFlags::DATASYNC).build(),
            Operation::Receive { buffer, poll_first } => {
                let tail = buffer.tail();
                let length = tail.len().min(IO_BYTES_MAX) as u32;
                opcode::Recv::new(fd, tail.as_mut_ptr(), length)
                    .ioprio(if *poll_first { POLL_FIRST } else { 0 })
                    .build()
            }
            Operation::Land { .. } => self.land_entry(fd),
            Operation::Send { .. } => self.send_entry(fd),
            Operation::Lend { .. } => opcode::PollAdd::new(fd, libc::POLLOUT as u32).build(),
            Operation::Accept => opcode::AcceptMulti::new(fd).flags(libc::SOCK_CLOEXEC).build(),
            Operation::Connect => {
                let (pointer, length) = self.pinned().address.parts();
                opcode::Connect::new(fd, pointer, length).build()
            }
            Operation::Timeout => {
                let timespec: *const Timespec = &self.pinned().timespec;
                opcode::Timeout::new(timespec).flags(TimeoutFlags::ABS | TimeoutFlags::BOOTTIME).build()
            }
            Operation::Wake => {
                let count: *mut u64 = &mut self.pinned().wake_count;
                opcode::Read::new(fd, count.cast(), 8).build()
            }
            Operation::Cancel if raw < 0 => opcode::AsyncCancel2::new(CancelBuilder::any()).build(),
            Operation::Cancel => opcode::AsyncCancel2::new(CancelBuilder::fd(fd).all()).build(),
            Operation::Free => opcode::Nop::new().build(),
        }
    }

    fn send_entry(&mut self, fd: Fd) -> squeue::Entry {
        let pinned = self.pinned.get_or_insert_with(Pinned::new);
        let Operation::Send { list } = &mut self.operation else {
            unreachable!("only sends come here");
        };
        list.seal();
        list.vectors(self.progress_bytes as usize, VECTORS_MAX, &mut pinned.vectors);
        let flags = libc::MSG_NOSIGNAL | libc::MSG_WAITALL;
        if let [only] = pinned.vectors[..] {
            let length = only.iov_len.min(IO_BYTES_MAX) as u32;
            return opcode::Send::new(fd, only.iov_base.cast(), length).flags(flags).build();
        }
        pinned.message = message_of(&mut pinned.vectors);
        let message: *const libc::msghdr = &pinned.message;
        opcode::SendMsg::new(fd, message).flags(flags as u32).build()
    }

    fn land_entry(&mut self, fd: Fd) -> squeue::Entry {
        let pinned = self.pinned.get_or_insert_with(Pinned::new);
        let Operation::Land { landing, whole } = &mut self.operation else {
            unreachable!("only landings come here");
        };
        let flags = if *whole { libc::MSG_WAITALL as u32 } else { 0 };
        pinned.vectors.clear();
        let free = landing.free_mut(self.progress_bytes as usize).take(VECTORS_MAX);
        pinned
            .vectors
            .extend(free.map(|free| libc::iovec { iov_base: free.as_mut_ptr().cast(), iov_len: free.len() }));
        pinned.message = message_of(&mut pinned.vectors);
        let message: *mut libc::msghdr = &mut pinned.message;
        opcode::RecvMsg::new(fd, message).flags(flags).build()
    }

    /// Bytes that the operation moves in all, where it has to move all of them.
    pub(crate) fn wanted_bytes(&self) -> Option<u64> {
        match &self.operation {
            Operation::Read { buffer, .. } | Operation::Write { buffer, .. } => Some(buffer.len() as u64),
            Operation::Zeroes { length_bytes, .. } => Some(*length_bytes),
            Operation::Send { list } => Some(list.length_bytes() as u64),
            Operation::Land { landing, whole: true } => Some(landing.left_bytes() as u64),
            _ => None,
        }
    }

    /// Whether the operation goes to a drive, where progress counts in whole sectors.
    pub(crate) fn is_drive(&self) -> bool {
        matches!(self.operation, Operation::Read { .. } | Operation::Write { .. } | Operation::Zeroes { .. })
    }

    /// Takes out what the operation owns; the slot is free afterwards.
    pub(crate) fn finish(&mut self) -> Payload {
        match std::mem::replace(&mut self.operation, Operation::Free) {
            Operation::Read { buffer, .. } | Operation::Write { buffer, .. } => Payload::Buffer(buffer),
            Operation::Receive { buffer, .. } => Payload::Receive(buffer),
            Operation::Land { landing, .. } => Payload::Landing(landing),
            Operation::Send { list } | Operation::Lend { list } => Payload::Send(list),
            Operation::Accept => Payload::Accepted(None),
            Operation::Wake => Payload::Woken,
            _ => Payload::None,
        }
    }
}

/// Most bytes of one system call; the kernel cuts at 2 GiB less a page.
const IO_BYTES_MAX: usize = 1 << 30;
