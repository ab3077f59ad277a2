//! Sends: what a socket takes at once, lent or copied, and what it takes later.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use super::{FileId, Reactor};
use crate::error::Errno;
use crate::operation::{Completion, Operation, Payload, VECTORS_MAX, message_of};
use crate::send::{Run, SendList};

impl Reactor {
    /// Sends the whole list. One at a time per socket, or the bytes mix.
    ///
    /// What the socket takes at once is sent at once, and its completion is the result: so the end of a send ends no wait, and the
    /// receiver begins while this thread goes on to its next turn. What it does not take is sent by the ring, and completes with
    /// a later turn.
    #[must_use = "a send that is done has no other completion"]
    pub fn send(&mut self, file: FileId, mut list: SendList, token: u64) -> Option<Completion> {
        let Some(index) = self.find(file) else {
            self.refuse(Operation::Send { list }, token, libc::EBADF);
            return None;
        };
        list.seal();
        let begun = match self.lends(index, &mut list) {
            true => {
                // Before this list is there, too: the kernel counts more than its bytes.
                self.is_all_read(index);
                self.send_lending(index, &list, 0)
            }
            false => self.send_at_once(index, &list),
        };
        let result = match begun {
            Ok(sent_bytes) if sent_bytes == list.length_bytes() => {
                Ok(u32::try_from(sent_bytes).unwrap_or(u32::MAX))
            }
            Err(errno) if !matches!(errno.0, libc::EAGAIN | libc::EINTR) => Err(errno),
            begun => {
                let operation = match list.has_lent() && self.lender.is_possible() {
                    true => Operation::Lend { list },
                    false => Operation::Send { list },
                };
                let slot = self.take_slot(index, operation, token);
                self.slots[slot as usize].progress_bytes = begun.unwrap_or(0) as u64;
                self.submit(slot);
                return None;
            }
        };
        let list = self.book_sent(index, list, result.is_ok());
        Some(Completion { token, result, payload: Payload::Send(list) })
    }

    /// Finds what of a sealed list is to be lent to the receiver, and says whether there is something.
    fn lends(&self, file: u32, list: &mut SendList) -> bool {
        if self.files[file as usize].lends && self.lender.is_possible() {
            list.find_lent();
        }
        list.has_lent()
    }

    /// Sends what the socket takes of a sealed list without waiting; gives the number of bytes.
    fn send_at_once(&mut self, file: u32, list: &SendList) -> Result<usize, Errno> {
        let Some(descriptor) = &self.files[file as usize].descriptor else { return Err(Errno(libc::EBADF)) };
        list.vectors(0, VECTORS_MAX, &mut self.vectors);
        if self.vectors.is_empty() {
            return Ok(0);
        }
        send_vectors(descriptor.as_fd(), &mut self.vectors)
    }

    /// Sends what the socket takes of a sealed list, from byte `skip_bytes` on, without waiting, and lends what can be lent; gives the
    /// number of bytes.
    fn send_lending(&mut self, file: u32, list: &SendList, skip_bytes: usize) -> Result<usize, Errno> {
        let Some(descriptor) = &self.files[file as usize].descriptor else { return Err(Errno(libc::EBADF)) };
        let mut cursor = list.cursor(skip_bytes);
        let mut sent_bytes = 0;
        loop {
            let lending = self.lender.is_possible();
            let Some(run) = list.next_run(&cursor, lending, VECTORS_MAX, &mut self.vectors) else { break };
            let wanted_bytes = self.vectors.iter().map(|vector| vector.iov_len).sum();
            let result = match run {
                Run::Lent => self.lender.send(descriptor.as_fd(), &mut self.vectors),
                Run::Copied => send_vectors(descriptor.as_fd(), &mut self.vectors),
            };
            match result {
                Ok(count) => {
                    sent_bytes += count;
                    list.advance(&mut cursor, count);
                    if count < wanted_bytes {
                        break;
                    }
                }
                // What was sent counts, whatever keeps the rest.
                Err(errno) if matches!(errno.0, libc::EAGAIN | libc::EINTR) && sent_bytes > 0 => break,
                Err(errno) => return Err(errno),
            }
        }
        Ok(sent_bytes)
    }

    /// A socket has room for more of a list.
    pub(super) fn complete_lend(&mut self, index: u32, result: i32) -> Option<Completion> {
        let slot = &mut self.slots[index as usize];
        let (token, file) = (slot.token, slot.file);
        let done_bytes = slot.progress_bytes as usize;
        let Operation::Lend { list } = &mut slot.operation else {
            unreachable!("only lists that are lent come here");
        };
        let list = std::mem::take(list);
        let sent = match result {
            _ if self.files[file as usize].closing.is_some() => Err(Errno(libc::ECANCELED)),
            _ if result < 0 => Err(Errno(-result)),
            _ => self.send_lending(file, &list, done_bytes),
        };
        let slot = &mut self.slots[index as usize];
        slot.progress_bytes += *sent.as_ref().unwrap_or(&0) as u64;
        let is_whole = slot.progress_bytes == list.length_bytes() as u64;
        let result = match sent {
            Ok(_) if is_whole => Ok(u32::try_from(slot.progress_bytes).unwrap_or(u32::MAX)),
            Err(errno) if !matches!(errno.0, libc::EAGAIN | libc::EINTR) => Err(errno),
            _ => {
                slot.operation = Operation::Lend { list };
                self.submit(index);
                return None;
            }
        };
        let list = self.book_sent(file, list, is_whole);
        self.slots[index as usize].operation = Operation::Lend { list };
        let payload = self.free_slot(index);
        Some(Completion { token, result, payload })
    }
}

/// Sends what the socket takes of these vectors without waiting; gives the number of bytes.
fn send_vectors(socket: BorrowedFd<'_>, vectors: &mut [libc::iovec]) -> Result<usize, Errno> {
    let message = message_of(vectors);
    // SAFETY: the message points to the vectors, and these into a list that its caller holds.
    #[allow(unsafe_code)]
    let sent =
        unsafe { libc::sendmsg(socket.as_raw_fd(), &message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) };
    usize::try_from(sent).map_err(|_| Errno::from_io(&std::io::Error::last_os_error()))
}
