//! Operations that the kernel has not done, or not wholly: what is left of them is tried again.
//!
//! A drive of which a write fails is given up. So what only the kernel lacks at the moment, as memory, is not told as a failure before it
//! has been missing for a while. The same bytes go to the same place again, and nobody was told that they were there.

use super::Reactor;
use crate::error::Errno;
use crate::operation::{Completion, Operation, Slot};

/// How often an operation that the kernel could not do yet is tried again at once.
const RETRIES_MAX: u32 = 1000;
/// How often one on a drive is tried again after a pause: for 1.8 s in all, less than a drive may take before it counts as slow.
const PAUSES_MAX: u32 = 20;
/// The first pause; doubles up to the longest.
const PAUSE_NS_MIN: u64 = 1_000_000;
const PAUSE_NS_MAX: u64 = 128_000_000;

/// How far an operation is.
pub(super) enum Progress {
    /// What is left is tried again at once.
    Again,
    /// The same after a pause.
    AfterPause,
    Done(Result<u32, Errno>),
}

/// The pause before an operation is tried again that was so often after a pause before.
fn pause_ns(pauses: u32) -> u64 {
    (PAUSE_NS_MIN << pauses.min(10)).min(PAUSE_NS_MAX)
}

/// Whether the operation may be done later, and nothing is wrong with the drive.
fn may_pass(result: i32) -> bool {
    matches!(-result, libc::ENOMEM | libc::EAGAIN | libc::EINTR)
}

/// Books a result on an operation and says whether a part is left to do.
pub(super) fn progress(slot: &mut Slot, result: i32) -> Progress {
    let again = match result {
        _ if slot.is_drive() && may_pass(result) => {
            let is_over = slot.pauses >= PAUSES_MAX;
            return if is_over { Progress::Done(Err(Errno(-result))) } else { Progress::AfterPause };
        }
        _ if result == -libc::EINTR || result == -libc::EAGAIN => true,
        _ if result < 0 => return Progress::Done(Err(Errno(-result))),
        _ => {
            let is_landing = matches!(slot.operation, Operation::Land { .. });
            let Some(wanted_bytes) = slot.wanted_bytes() else {
                return Progress::Done(match result {
                    0 if is_landing => Err(Errno(libc::ECONNRESET)),
                    _ => Ok(result as u32),
                });
            };
            let moved_bytes = result as u64;
            let left_bytes = wanted_bytes - slot.progress_bytes;
            assert!(moved_bytes <= left_bytes, "the kernel moved what was asked for");
            if moved_bytes == 0 {
                return Progress::Done(Err(Errno(if is_landing { libc::ECONNRESET } else { libc::EIO })));
            }
            if moved_bytes == left_bytes {
                return Progress::Done(Ok(wanted_bytes.min(u64::from(u32::MAX)) as u32));
            }
            // A part of a sector cannot be continued with direct I/O.
            let unit = if slot.is_drive() { coquina_base::SECTOR_BYTES as u64 } else { 1 };
            let counted_bytes = moved_bytes / unit * unit;
            slot.progress_bytes += counted_bytes;
            counted_bytes == 0
        }
    };
    if again {
        slot.retries += 1;
        if slot.retries > RETRIES_MAX {
            return Progress::Done(Err(Errno(if result < 0 { -result } else { libc::EIO })));
        }
    }
    Progress::Again
}

impl Reactor {
    /// Has the kernel tell the end of a pause; the operation waits in its slot.
    pub(super) fn pause(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        slot.pinned().timespec = io_uring::types::Timespec::new().nsec(pause_ns(slot.pauses) as u32);
        slot.pauses += 1;
        slot.is_paused = true;
        self.submit(index);
    }

    /// Tries an operation again whose pause is over, unless its file is being closed.
    pub(super) fn pause_over(&mut self, index: u32) -> Option<Completion> {
        let slot = &mut self.slots[index as usize];
        slot.is_paused = false;
        let token = slot.token;
        if self.files.get(slot.file as usize).is_none_or(|file| file.closing.is_none()) {
            self.submit(index);
            return None;
        }
        let payload = self.free_slot(index);
        Some(Completion { token, result: Err(Errno(libc::ECANCELED)), payload })
    }

    /// The result of an operation on a drive that has a fault.
    #[cfg(test)]
    pub(super) fn faulty(&mut self, index: u32, result: i32) -> i32 {
        let slot = &self.slots[index as usize];
        let is_meant = slot.is_drive() && !slot.is_paused;
        is_meant.then(|| self.faults.pop_front()).flatten().unwrap_or(result)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use coquina_base::{AlignedBuf, BLOCK_BYTES};

    use super::*;
    use crate::{FileId, Payload, ReactorConfig, Wait};

    /// A reactor with a file of 16 blocks.
    fn with_file() -> (Reactor, FileId, std::fs::File) {
        let file = tempfile::tempfile().unwrap();
        file.set_len(16 * BLOCK_BYTES as u64).unwrap();
        let mut reactor = Reactor::new(ReactorConfig::default()).unwrap();
        let attached = reactor.attach(file.try_clone().unwrap().into());
        (reactor, attached, file)
    }

    fn filled(byte: u8) -> AlignedBuf {
        let mut buffer = AlignedBuf::zeroed(1);
        buffer.fill(byte);
        buffer
    }

    fn collect(reactor: &mut Reactor) -> Completion {
        let mut completions = Vec::new();
        while completions.is_empty() {
            reactor.turn(Wait::Forever, &mut completions).unwrap();
        }
        assert_eq!(completions.len(), 1, "{completions:?}");
        completions.remove(0)
    }

    /// Lets the reactor go on until all faults but so many have been told. What fails next pauses for long.
    fn pause_long(reactor: &mut Reactor, faults_left: usize) {
        reactor.slots.iter_mut().for_each(|slot| slot.pauses = 10);
        while reactor.faults.len() > faults_left {
            assert!(reactor.turn(Wait::Poll, &mut Vec::new()).is_ok());
        }
        assert!(reactor.slots.iter().any(|slot| slot.is_paused));
    }

    /// The drive was given up.
    #[test]
    fn what_the_kernel_has_no_memory_for_is_tried_again() {
        for errno in [libc::ENOMEM, libc::EAGAIN, libc::EINTR] {
            let (mut reactor, file, contents) = with_file();
            reactor.faults.extend([-errno; 5]);
            reactor.write_at(file, 0, filled(1), true, 1);
            pause_long(&mut reactor, 4);
            // What it wrote when it failed does not count.
            contents.set_len(0).unwrap();
            contents.set_len(16 * BLOCK_BYTES as u64).unwrap();
            let completion = collect(&mut reactor);
            assert_eq!((completion.token, completion.result), (1, Ok(BLOCK_BYTES as u32)));
            assert!(matches!(completion.payload, Payload::Buffer(buffer) if buffer[..] == filled(1)[..]));
            assert!(reactor.faults.is_empty());
            reactor.faults.extend([-errno; 2]);
            reactor.read_at(file, 0, AlignedBuf::zeroed(1), 2);
            let completion = collect(&mut reactor);
            assert!(matches!(completion.payload, Payload::Buffer(buffer) if buffer[..] == filled(1)[..]));
            reactor.faults.push_back(-errno);
            reactor.write_zeroes(file, 0, BLOCK_BYTES as u64, 3);
            assert_eq!(collect(&mut reactor).result, Ok(BLOCK_BYTES as u32));
            assert_eq!(reactor.in_flight(), 0);
        }
    }

    #[test]
    fn it_is_told_if_that_lasts() {
        let (mut reactor, file, _contents) = with_file();
        reactor.faults.extend([-libc::ENOMEM; PAUSES_MAX as usize + 2]);
        reactor.write_at(file, 0, filled(1), true, 1);
        assert_eq!(collect(&mut reactor).result, Err(Errno(libc::ENOMEM)));
        assert_eq!(reactor.faults.len(), 1, "it was tried so often");
        let all_ns: u64 = (0..PAUSES_MAX).map(pause_ns).sum();
        assert!((1_000_000_000..2_000_000_000).contains(&all_ns), "{all_ns} ns");
    }

    #[test]
    fn what_is_wrong_with_the_drive_is_told_at_once() {
        for errno in [libc::EIO, libc::ENOSPC, libc::EROFS, libc::ENXIO] {
            let (mut reactor, file, _contents) = with_file();
            reactor.faults.extend([-errno; 2]);
            reactor.write_at(file, 0, filled(1), true, 1);
            assert_eq!(collect(&mut reactor).result, Err(Errno(errno)));
            assert_eq!(reactor.faults.len(), 1);
        }
    }

    #[test]
    fn what_waits_for_another_try_ends_with_its_file_and_with_the_reactor() {
        for is_closed in [true, false] {
            let (mut reactor, file, _contents) = with_file();
            reactor.faults.push_back(-libc::ENOMEM);
            reactor.write_at(file, 0, filled(1), true, 1);
            pause_long(&mut reactor, 0);
            if is_closed {
                reactor.close(file, 2);
                let mut ended = Vec::new();
                while ended.len() < 2 {
                    reactor.turn(Wait::Forever, &mut ended).unwrap();
                }
                let ended: Vec<_> = ended.iter().map(|one| (one.token, one.result)).collect();
                assert_eq!(ended, [(1, Err(Errno(libc::ECANCELED))), (2, Ok(0))]);
            }
            assert_eq!(reactor.in_flight(), usize::from(!is_closed));
            drop(reactor);
        }
    }
}
