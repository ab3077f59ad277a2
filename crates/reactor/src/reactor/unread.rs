//! Lists of which pages were lent, kept until their receiver has read them: only then may what lies there change.
//!
//! A Unix socket tells how much of what was sent is still unread, at most. So a list has been read when that much was sent since.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, sockopt};

use super::{FileId, Reactor};
use crate::clock::monotonic_ns;
use crate::lend::unread_bytes;
use crate::send::SendList;

/// How often lists are looked at that no later send has found to be read.
const SWEEP_NS: u64 = 100_000_000;
/// Lists that were read and wait to be handed back; more are dropped with their buffers.
const READ_LISTS_MAX: usize = 16;
/// Closed connections whose peers have something to read; with more of them the oldest is given up. Its peer may then read what does
/// not match the checksums it got.
const LINGERING_MAX: usize = 256;

/// What a peer may still read of a socket's lists.
#[derive(Default)]
pub(super) struct Unread {
    /// What was sent for certain.
    sent_bytes: u64,
    /// Each with the number of bytes that were sent when it had been.
    lists: VecDeque<(u64, SendList)>,
}

/// All lists that are kept.
#[derive(Default)]
pub(super) struct UnreadLists {
    /// How many there are.
    count: usize,
    /// When to look at all of them again.
    sweep_at_ns: u64,
    /// Those that were read.
    read: Vec<SendList>,
    /// Sockets that were shut down before all was read.
    lingering: VecDeque<(OwnedFd, Unread)>,
}

impl Unread {
    /// Takes out what was read.
    fn release(&mut self, socket: &OwnedFd, all: &mut UnreadLists) {
        if self.lists.is_empty() {
            return;
        }
        let Some(unread_bytes) = unread_bytes(socket.as_fd()) else { return };
        while let Some((end_bytes, _)) = self.lists.front() {
            let is_read = unread_bytes == 0
                || end_bytes.checked_add(unread_bytes as u64).is_some_and(|bytes| bytes <= self.sent_bytes);
            if !is_read {
                break;
            }
            if let Some((_, list)) = self.lists.pop_front() {
                all.was_read(list);
            }
        }
    }
}

impl UnreadLists {
    fn was_read(&mut self, mut list: SendList) {
        self.count -= 1;
        list.give_up_blocks();
        if self.read.len() < READ_LISTS_MAX {
            self.read.push(list);
        }
    }
}

impl Reactor {
    /// From now on large pieces are lent to the peer of a connection from this host: it must be one that checks what it reads against
    /// checksums that were sent before, since a peer that hands the pages on unread (`splice(2)`) sees what is changed in them later.
    /// Nothing for other files.
    pub fn lend_to(&mut self, file: FileId) {
        if let Some(index) = self.find(file) {
            let entry = &mut self.files[index as usize];
            entry.lends |= entry
                .descriptor
                .as_ref()
                .is_some_and(|socket| sockopt::socket_domain(socket) == Ok(AddressFamily::UNIX));
        }
    }

    /// Books a list as sent, or as given up in the middle. What its receiver may still read of it is kept, and a list that was read is
    /// given instead.
    pub(super) fn book_sent(&mut self, file: u32, list: SendList, is_whole: bool) -> SendList {
        let Some(entry) = self.files.get_mut(file as usize).filter(|entry| entry.lends) else { return list };
        if is_whole {
            entry.unread.sent_bytes += list.length_bytes() as u64;
        }
        if !list.keeps_lent() {
            return list;
        }
        let end_bytes = if is_whole { entry.unread.sent_bytes } else { u64::MAX };
        entry.unread.lists.push_back((end_bytes, list));
        self.unread.count += 1;
        self.unread.read.pop().unwrap_or_default()
    }

    /// Looks at what the peer has read of what was lent, and says whether it is all.
    pub(super) fn is_all_read(&mut self, file: u32) -> bool {
        let entry = &mut self.files[file as usize];
        if let Some(socket) = &entry.descriptor {
            entry.unread.release(socket, &mut self.unread);
        }
        entry.unread.lists.is_empty()
    }

    /// Closes a file; its socket, if its peer may still read what was lent, is only shut down and closed later.
    pub(super) fn close_when_read(&mut self, file: u32) {
        let is_all_read = self.is_all_read(file);
        let entry = &mut self.files[file as usize];
        let (socket, unread) = (entry.descriptor.take(), std::mem::take(&mut entry.unread));
        let Some(socket) = socket.filter(|_| !is_all_read) else { return };
        // SAFETY: plain system call on an owned descriptor; that it fails is of no interest.
        #[allow(unsafe_code)]
        unsafe {
            libc::shutdown(socket.as_raw_fd(), libc::SHUT_RDWR);
        }
        if self.unread.lingering.len() == LINGERING_MAX
            && let Some((_, given_up)) = self.unread.lingering.pop_front()
        {
            self.unread.count -= given_up.lists.len();
        }
        self.unread.lingering.push_back((socket, unread));
    }

    /// Looks now and then for lists that have been read.
    pub(super) fn sweep_unread(&mut self) {
        if self.unread.count == 0 {
            return;
        }
        let now_ns = monotonic_ns();
        if now_ns < self.unread.sweep_at_ns {
            return;
        }
        self.unread.sweep_at_ns = now_ns + SWEEP_NS;
        for entry in &mut self.files {
            if let Some(socket) = &entry.descriptor {
                entry.unread.release(socket, &mut self.unread);
            }
        }
        let mut lingering = std::mem::take(&mut self.unread.lingering);
        lingering.retain_mut(|(socket, unread)| {
            unread.release(socket, &mut self.unread);
            !unread.lists.is_empty()
        });
        self.unread.lingering = lingering;
    }
}
