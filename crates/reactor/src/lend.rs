//! Hands the pages of large buffers to another process of this host instead of copies of them: `vmsplice(2)` puts them into a pipe, from
//! which `splice(2)` moves them to the Unix socket. The receiver's copy is the only one: see
//! `docs/decisions/large-writes-are-lent.md`.
//!
//! Invariants: the pipe is empty between calls; no more is moved to a socket than it has room for, since moving would wait for room
//! otherwise (`splice(2)` asks the open file whether it may wait, and the ring needs one that may).
//!
//! What is changed in a buffer before the receiver has read it, is changed for the receiver, too. So only pieces go this way of
//! which a share is kept for as long as no answer has come, or until the socket says that they were read (`reactor/unread.rs`), and whose
//! checksums were sent with them.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno as RawErrno;
use rustix::net::sockopt;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

use crate::error::Errno;

/// Pieces that are smaller are copied: four system calls cost as much as copying 16 KiB.
pub(crate) const LENT_BYTES_MIN: usize = 32 << 10;
/// Sockets with less room when their reader has taken nearly all get copies.
const ROOM_BYTES_MIN: usize = LENT_BYTES_MIN;
/// Room that the pipe should have: what users may ask for on an ordinary host (`/proc/sys/fs/pipe-max-size`).
const PIPE_BYTES: usize = 1 << 20;

/// A pipe on which pages travel.
struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
    /// Takes what the socket did not.
    drain: OwnedFd,
}

impl Pipe {
    fn open() -> Result<Pipe, RawErrno> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
        // Users with many pipes get no large ones: a small one takes more calls.
        let _ = fcntl_setpipe_size(&writer, PIPE_BYTES);
        let drain = open("/dev/null", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Pipe { reader, writer, drain })
    }

    /// Moves up to `length_bytes` that are in the pipe to a file that takes them without waiting; an error only if nothing was moved.
    fn empty_into(&self, target: BorrowedFd<'_>, length_bytes: usize) -> Result<usize, RawErrno> {
        let mut moved = 0;
        while moved < length_bytes {
            let flags = SpliceFlags::NONBLOCK;
            match splice(&self.reader, None, target, None, length_bytes - moved, flags) {
                Ok(0) => break,
                Ok(count) => moved += count,
                Err(RawErrno::INTR) => {}
                Err(error) if moved == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(moved)
    }
}

/// The pipe of a reactor, made when it is first needed.
#[derive(Default)]
pub(crate) struct Lender {
    pipe: Option<Pipe>,
    /// Whether this host refuses it, for instance to a container: then everything is copied.
    refused: bool,
}

impl Lender {
    /// Whether it was not refused so far.
    pub(crate) fn is_possible(&self) -> bool {
        !self.refused
    }

    /// Sends the front of what the vectors say without waiting, as much as the Unix socket has room for; gives the number of bytes.
    /// `EAGAIN` if it takes none, and also if this host refuses to lend, which `is_possible` tells then.
    pub(crate) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        mut vectors: &mut [libc::iovec],
    ) -> Result<usize, Errno> {
        let Some(mut room_bytes) = room_bytes(socket) else { return Err(self.refuse()) };
        let mut sent = 0;
        while !vectors.is_empty() && room_bytes > 0 {
            match self.send_once(socket, vectors, room_bytes) {
                Ok((taken, into_pipe)) => {
                    sent += taken;
                    room_bytes -= taken;
                    if taken < into_pipe {
                        break;
                    }
                    vectors = without_front(vectors, taken);
                }
                Err(_) if sent > 0 => break,
                Err(error) => return Err(error),
            }
        }
        if sent > 0 { Ok(sent) } else { Err(Errno(libc::EAGAIN)) }
    }

    /// How much the socket took, of how much.
    fn send_once(
        &mut self,
        socket: BorrowedFd<'_>,
        vectors: &[libc::iovec],
        room_bytes: usize,
    ) -> Result<(usize, usize), Errno> {
        if self.pipe.is_none() {
            self.pipe = Pipe::open().ok();
        }
        let Some(pipe) = &self.pipe else { return Err(self.refuse()) };
        let mut bytes = 0;
        let fitting = vectors.iter().take_while(|vector| {
            bytes += vector.iov_len;
            bytes <= room_bytes
        });
        let cut = libc::iovec { iov_len: room_bytes, ..vectors[0] };
        let fitting = match fitting.count() {
            0 => std::slice::from_ref(&cut),
            count => &vectors[..count],
        };
        // SAFETY: the pages stay what they are while the pipe and the socket refer to them, even if the memory is unmapped; only
        // their content may change, which receivers must reckon with (see the module's head).
        #[allow(unsafe_code)]
        let filled = unsafe {
            libc::vmsplice(pipe.writer.as_raw_fd(), fitting.as_ptr(), fitting.len(), libc::SPLICE_F_NONBLOCK)
        };
        let Ok(filled) = usize::try_from(filled) else { return Err(self.refuse()) };
        let moved = pipe.empty_into(socket, filled);
        let left = filled - moved.unwrap_or(0);
        if left > 0 && pipe.empty_into(pipe.drain.as_fd(), left) != Ok(left) {
            // What is left must not go before what is sent next.
            self.pipe = None;
        }
        match moved {
            Ok(moved) => Ok((moved, filled)),
            Err(RawErrno::AGAIN) => Err(Errno(libc::EAGAIN)),
            Err(RawErrno::INVAL | RawErrno::OPNOTSUPP | RawErrno::PERM | RawErrno::NOSYS) => {
                Err(self.refuse())
            }
            Err(error) => Err(Errno(error.raw_os_error())),
        }
    }

    fn refuse(&mut self) -> Errno {
        self.pipe = None;
        self.refused = true;
        Errno(libc::EAGAIN)
    }
}

/// What is left of the vectors behind their first bytes.
fn without_front(mut vectors: &mut [libc::iovec], mut bytes: usize) -> &mut [libc::iovec] {
    while let Some((first, _)) = vectors.split_first_mut().filter(|_| bytes > 0) {
        if bytes < first.iov_len {
            first.iov_base = first.iov_base.wrapping_byte_add(bytes);
            first.iov_len -= bytes;
            break;
        }
        bytes -= first.iov_len;
        vectors = &mut vectors[1..];
    }
    vectors
}

/// What was sent to a Unix socket and its peer has not read yet, at most: the kernel counts at least each byte that is still there, and
/// all of a piece of which some bytes are. `None` for other files.
pub(crate) fn unread_bytes(socket: BorrowedFd<'_>) -> Option<usize> {
    let mut queued_bytes: libc::c_int = 0;
    // SAFETY: the request writes an `int`, which outlives the call.
    #[allow(unsafe_code)]
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut queued_bytes) };
    usize::try_from(queued_bytes).ok().filter(|_| result >= 0)
}

/// What a Unix socket takes without waiting; 0 if too little to begin with. `None` for one that never has enough room, and for other
/// files. When the kernel says that it is writable, three quarters of its buffer are free.
fn room_bytes(socket: BorrowedFd<'_>) -> Option<usize> {
    let buffer_bytes = sockopt::socket_send_buffer_size(socket).ok()?;
    let queued_bytes = unread_bytes(socket)?;
    // The kernel counts its own structures, too: about 1 KiB for 64 KiB.
    let usable_bytes = |bytes: usize| bytes - bytes / 8;
    if usable_bytes(buffer_bytes / 4 * 3) < ROOM_BYTES_MIN {
        return None;
    }
    let room_bytes = usable_bytes(buffer_bytes.saturating_sub(queued_bytes));
    Some(if room_bytes < ROOM_BYTES_MIN { 0 } else { room_bytes })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use coquina_base::AlignedBuf;

    use super::*;

    fn pattern(blocks: usize) -> AlignedBuf {
        let mut buffer = AlignedBuf::zeroed(blocks);
        buffer.iter_mut().enumerate().for_each(|(index, byte)| *byte = (index % 251) as u8);
        buffer
    }

    /// Pieces of odd sizes.
    fn vectors(data: &[u8]) -> Vec<libc::iovec> {
        let pieces = data.chunks(5000);
        pieces.map(|piece| libc::iovec { iov_base: piece.as_ptr() as *mut _, iov_len: piece.len() }).collect()
    }

    #[test]
    fn what_is_left_of_vectors() {
        let data = pattern(3);
        for (front, wanted) in [
            (0, vec![5000, 5000, 2288]),
            (4999, vec![1, 5000, 2288]),
            (5000, vec![5000, 2288]),
            (12_287, vec![1]),
            (12_288, vec![]),
        ] {
            let mut vectors = vectors(&data);
            let left = without_front(&mut vectors, front);
            assert_eq!(left.iter().map(|vector| vector.iov_len).collect::<Vec<_>>(), wanted);
            assert!(left.is_empty() || left[0].iov_base.cast_const() == data[front..].as_ptr().cast());
        }
    }

    #[test]
    fn what_a_full_socket_does_not_take_is_taken_back() {
        let (sender, mut receiver) = UnixStream::pair().unwrap();
        let data = pattern(2000);
        let mut lender = Lender::default();
        let mut received = vec![0; data.len()];
        let (mut sent, mut arrived, mut refusals) = (0, 0, 0);
        while arrived < data.len() {
            match lender.send(sender.as_fd(), &mut vectors(&data[sent..])) {
                Ok(count) => sent += count,
                Err(error) => {
                    assert_eq!(error, Errno(libc::EAGAIN));
                    refusals += 1;
                }
            }
            assert!(sent > arrived, "a socket that was emptied takes something");
            receiver.read_exact(&mut received[arrived..sent]).unwrap();
            arrived = sent;
        }
        assert!(received == data[..] && refusals == 0 && lender.is_possible());
        let mut sent = 0;
        let refusal = loop {
            match lender.send(sender.as_fd(), &mut vectors(&data[sent..])) {
                Ok(count) => sent += count,
                Err(error) => break error,
            }
        };
        assert_eq!(refusal, Errno(libc::EAGAIN));
        assert!(sent > ROOM_BYTES_MIN && lender.is_possible());
        receiver.read_exact(&mut received[..sent]).unwrap();
        assert!(received[..sent] == data[..sent]);
        // The pipe holds nothing that could go before this.
        assert_eq!(lender.send(sender.as_fd(), &mut vectors(&data[5..50])), Ok(45));
        (&sender).write_all(b"after").unwrap();
        drop(sender);
        let mut rest = Vec::new();
        receiver.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, [&data[5..50], b"after"].concat());
    }

    #[test]
    fn a_receiver_that_is_gone_is_an_error_and_a_socket_with_a_small_buffer_is_refused() {
        let (sender, receiver) = UnixStream::pair().unwrap();
        drop(receiver);
        let data = pattern(20);
        let mut lender = Lender::default();
        assert_eq!(lender.send(sender.as_fd(), &mut vectors(&data)), Err(Errno(libc::EPIPE)));
        assert!(lender.is_possible());
        let (sender, _receiver) = UnixStream::pair().unwrap();
        sockopt::set_socket_send_buffer_size(&sender, 10_000).unwrap();
        assert_eq!(lender.send(sender.as_fd(), &mut vectors(&data)), Err(Errno(libc::EAGAIN)));
        assert!(!lender.is_possible());
    }
}
