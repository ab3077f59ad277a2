//! Faults that can be ordered of a drive, and how often they came about.

use coquina_engine::IoError;

use crate::random::Random;

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
    /// What may become of failed writes all the same. Without it they leave nothing.
    landing: Option<Random>,
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
    /// Of them those that reached the medium all the same, at least in part.
    pub writes_landed: u64,
    /// Writes that stalled.
    pub writes_stalled: u64,
}

impl Faults {
    /// Makes reads of a range fail until [`Faults::clear`].
    pub fn fail_reads(&mut self, range: std::ops::Range<u64>) {
        self.unreadable.push(range);
    }

    /// Makes the `count`-th write from now fail, counted from 1, and if `forever` all later ones. With numbers of their own some
    /// of them reach the medium all the same, whole or in part.
    pub fn fail_write(&mut self, count: u64, forever: bool, landing: Option<Random>) {
        (self.fail_write_in, self.failing, self.landing) = (Some(count), forever, landing);
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
        (self.fail_write_in, self.failing, self.landing) = (None, false, None);
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

    pub(super) fn fails_write(&mut self) -> bool {
        let Some(count) = &mut self.fail_write_in else { return false };
        *count = count.saturating_sub(1);
        if *count > 0 {
            return false;
        }
        if !self.failing {
            self.fail_write_in = None;
        }
        self.writes_failed += 1;
        true
    }

    /// Whether a write that failed has reached the medium, whole or in part, and by which numbers.
    pub(super) fn landing(&mut self) -> Option<Random> {
        let random = self.landing.as_mut()?;
        let landing = random.fork();
        random.chance(2, 3).then_some(landing)
    }

    pub(super) fn note_landed(&mut self, arrived: u64) {
        self.writes_landed += u64::from(arrived > 0);
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
