//! The end of a reactor: it waits for what the kernel still has, but for what was abandoned.

use super::{FileId, NO_FILE, Reactor};
use crate::accept::own_accepted;
use crate::operation::Operation;
use crate::ring::EnterWait;

impl Reactor {
    /// Has the end of the reactor not wait for what is in flight on a file, as on a drive that does not answer. The memory of
    /// that is lost, and the kernel keeps the file open, and so locked, until it is done.
    pub fn abandon(&mut self, file: FileId) {
        if let Some(index) = self.find(file) {
            self.files[index as usize].is_abandoned = true;
        }
    }

    /// Operations that nobody waits for.
    fn abandoned(&self) -> usize {
        self.files.iter().filter(|file| file.is_abandoned).map(|file| file.in_flight as usize).sum()
    }
}

impl Drop for Reactor {
    /// Cancels what can be cancelled and waits for the rest, so that no buffer is freed under the kernel.
    fn drop(&mut self) {
        let never_submitted: Vec<u64> = self.ring.take_backlog().collect();
        for index in never_submitted {
            self.free_slot(index as u32);
        }
        for index in 0..self.files.len() {
            self.files[index].closing.get_or_insert(0);
        }
        self.start(NO_FILE, Operation::Cancel, 0);
        while self.in_flight > self.abandoned() && self.ring.enter(EnterWait::Forever).is_ok() {
            while let Some(entry) = self.ring.next() {
                let index = entry.user_data() as u32;
                let is_accept = matches!(self.slots[index as usize].operation, Operation::Accept);
                if is_accept && entry.result() >= 0 {
                    drop(own_accepted(entry.result()));
                }
                if !io_uring::cqueue::more(entry.flags()) {
                    self.free_slot(index);
                }
            }
        }
        if self.in_flight > 0 {
            // The kernel may still use them: rather lose the memory.
            std::mem::forget(std::mem::take(&mut self.slots));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use coquina_base::AlignedBuf;

    use super::*;
    use crate::ReactorConfig;

    #[test]
    fn what_was_abandoned_is_not_waited_for() {
        let (done, ended) = channel();
        // A reactor belongs to its thread.
        let thread = std::thread::spawn(move || {
            let config = ReactorConfig { entries: 8, ..ReactorConfig::default() };
            let mut reactor = Reactor::new(config).unwrap();
            let (silent, _writer) = std::io::pipe().unwrap();
            let (cancelled, _other_writer) = std::io::pipe().unwrap();
            let (silent, cancelled) = (reactor.attach(silent.into()), reactor.attach(cancelled.into()));
            reactor.read_at(cancelled, 0, AlignedBuf::zeroed(1), 1);
            // The kernel does not hear of this one, so that it never answers.
            let buffer = AlignedBuf::zeroed(1);
            reactor.take_slot(silent.index, Operation::Read { offset_bytes: 0, buffer }, 2);
            reactor.abandon(silent);
            assert_eq!((reactor.in_flight(), reactor.abandoned()), (2, 1));
            drop(reactor);
            done.send(()).unwrap();
        });
        let ended = ended.recv_timeout(Duration::from_secs(20));
        assert!(ended.is_ok(), "the end of the reactor waits for what it was told not to wait for");
        thread.join().unwrap();
    }
}
