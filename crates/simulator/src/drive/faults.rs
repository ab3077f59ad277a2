//! Faults that can be ordered of a drive, and how often they came about.

use coquina_engine::IoError;

/// The operating system's number for an I/O error.
pub const EIO: IoError = IoError(5);

/// Orders and counts of faults. Without orders a drive works.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Reads that touch these ranges of bytes fail.
    unreadable: Vec<std::ops::Range<u64>>,
    /// Writes until one fails; later ones fail, too, as long as `failing` is set.
    fail_write_in: Option<u64>,
    failing: bool,
    /// Writes until one reports success and writes nothing.
    lose_write_in: Option<u64>,
    /// Writes until one stalls, and how many do.
    stall_write_in: Option<(u64, u64)>,
    /// The write that was lost, unless its place was written again: where, and what.
    pub lost: Option<(u64, Vec<u8>)>,
    /// Reads that failed.
    pub reads_failed: u64,
    /// Writes that failed.
    pub writes_failed: u64,
    /// Writes that stalled.
    pub writes_stalled: u64,
}

impl Faults {
    /// Makes reads of a range fail until [`Faults::clear`].
    pub fn fail_reads(&mut self, range: std::ops::Range<u64>) {
        self.unreadable.push(range);
    }

    /// Makes the `count`-th write from now fail, counted from 1, and if `forever` all later ones.
    pub fn fail_write(&mut self, count: u64, forever: bool) {
        (self.fail_write_in, self.failing) = (Some(count), forever);
    }

    /// Makes the `count`-th write from now report success without writing.
    pub fn lose_write(&mut self, count: u64) {
        self.lose_write_in = Some(count);
    }

    /// Stalls `stalled` writes from the `count`-th on.
    pub fn stall_writes(&mut self, count: u64, stalled: u64) {
        self.stall_write_in = Some((count, stalled));
    }

    /// Takes all orders back and keeps the counts.
    pub fn clear(&mut self) {
        self.unreadable.clear();
        (self.fail_write_in, self.failing) = (None, false);
        (self.lose_write_in, self.stall_write_in) = (None, None);
    }

    pub(super) fn stall_no_more(&mut self) {
        self.stall_write_in = None;
    }

    pub(super) fn stalls_write(&mut self) -> bool {
        let Some((count, stalled)) = &mut self.stall_write_in else { return false };
        *count = count.saturating_sub(1);
        if *count > 0 || *stalled == 0 {
            return false;
        }
        *stalled -= 1;
        self.writes_stalled += 1;
        true
    }

    pub(super) fn before_write(&mut self, _offset_bytes: u64, _length_bytes: u64) -> Result<(), IoError> {
        let Some(count) = &mut self.fail_write_in else { return Ok(()) };
        *count = count.saturating_sub(1);
        if *count > 0 {
            return Ok(());
        }
        if !self.failing {
            self.fail_write_in = None;
        }
        self.writes_failed += 1;
        Err(EIO)
    }

    pub(super) fn loses_write(&mut self, offset_bytes: u64, bytes: &[u8]) -> bool {
        let end = offset_bytes + bytes.len() as u64;
        self.lost =
            self.lost.take().filter(|(at, lost)| end <= *at || at + lost.len() as u64 <= offset_bytes);
        let Some(count) = &mut self.lose_write_in else { return false };
        *count = count.saturating_sub(1);
        if *count > 0 {
            return false;
        }
        self.lose_write_in = None;
        self.lost = Some((offset_bytes, bytes.to_vec()));
        true
    }

    pub(super) fn before_read(&mut self, offset_bytes: u64, length_bytes: u64) -> Result<(), IoError> {
        let end = offset_bytes + length_bytes;
        if self.unreadable.iter().any(|range| range.start < end && offset_bytes < range.end) {
            self.reads_failed += 1;
            return Err(EIO);
        }
        Ok(())
    }
}
