//! Runs: how a region of 256 blocks says where its blocks lie.
//!
//! A run covers consecutive blocks. Its locations are consecutive too, but for a skip after every `period` blocks:
//! this is how sequential data looks in the log, with a header between the frames, so that a whole region written
//! in order takes one run of 10 bytes.

/// Blocks of a region.
pub const REGION_BLOCKS: usize = 256;
/// Location that stands for reserved zeros.
pub const ZEROES: u64 = (1 << 40) - 1;
/// Bytes of an encoded run.
pub const RUN_BYTES: usize = 10;

/// A run of blocks. All counts are stored less one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub struct Run {
    location: [u8; 5],
    start: u8,
    count_less_one: u8,
    /// Blocks between skips, less one; 255 where there are none.
    period_less_one: u8,
    /// Blocks before the first skip, less one.
    first_less_one: u8,
    skip: u8,
}

fn pack(location: u64) -> [u8; 5] {
    debug_assert!(location < 1 << 40);
    let bytes = location.to_le_bytes();
    [bytes[0], bytes[1], bytes[2], bytes[3], bytes[4]]
}

fn unpack(bytes: [u8; 5]) -> u64 {
    u64::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], 0, 0, 0])
}

impl Run {
    /// A plain run of `count` (1 to 256) blocks from `start` on.
    pub fn new(start: usize, count: usize, location: u64) -> Self {
        assert!(count >= 1 && start + count <= REGION_BLOCKS, "run {start}+{count} leaves its region");
        Run {
            location: pack(location),
            start: start as u8,
            count_less_one: (count - 1) as u8,
            period_less_one: 255,
            first_less_one: 255,
            skip: 0,
        }
    }

    /// First block.
    pub fn start(&self) -> usize {
        usize::from(self.start)
    }

    /// How many blocks.
    pub fn count(&self) -> usize {
        usize::from(self.count_less_one) + 1
    }

    /// One behind the last block.
    pub fn end(&self) -> usize {
        self.start() + self.count()
    }

    /// Whether it stands for reserved zeros.
    pub fn is_zeroes(&self) -> bool {
        unpack(self.location) == ZEROES
    }

    fn offset(&self, index: usize) -> u64 {
        if self.skip == 0 {
            return index as u64;
        }
        let first = usize::from(self.first_less_one) + 1;
        if index < first {
            return index as u64;
        }
        let period = usize::from(self.period_less_one) + 1;
        let skips = 1 + (index - first) / period;
        (index + skips * usize::from(self.skip)) as u64
    }

    /// Location of the run's block `index`, counted from its start.
    pub fn location(&self, index: usize) -> u64 {
        if self.is_zeroes() {
            return ZEROES;
        }
        unpack(self.location) + self.offset(index)
    }

    /// How many blocks from `index` on lie one behind the other.
    pub fn contiguous(&self, index: usize) -> usize {
        let left = self.count() - index;
        if self.skip == 0 {
            return left;
        }
        let first = usize::from(self.first_less_one) + 1;
        let period = usize::from(self.period_less_one) + 1;
        let to_skip = if index < first { first - index } else { period - (index - first) % period };
        left.min(to_skip)
    }

    /// The part from `from` to `to` (block numbers of the region), which must overlap the run.
    pub fn part(&self, from: usize, to: usize) -> Run {
        let from = from.max(self.start());
        let to = to.min(self.end());
        assert!(from < to, "empty part of a run");
        let index = from - self.start();
        let mut part = *self;
        part.start = from as u8;
        part.count_less_one = (to - from - 1) as u8;
        if !self.is_zeroes() {
            part.location = pack(self.location(index));
            if self.skip != 0 {
                let first = usize::from(self.first_less_one) + 1;
                let period = usize::from(self.period_less_one) + 1;
                let left = if index < first { first - index } else { period - (index - first) % period };
                part.first_less_one = (left - 1) as u8;
            }
        }
        part
    }

    /// Makes one run out of this and a plain one that follows it, if that can be said.
    pub fn join(&self, next: &Run) -> Option<Run> {
        if next.start() != self.end() || next.skip != 0 {
            return None;
        }
        let mut joined = *self;
        joined.count_less_one = (self.count() + next.count() - 1) as u8;
        if self.is_zeroes() || next.is_zeroes() {
            return (self.is_zeroes() && next.is_zeroes()).then_some(joined);
        }
        let next_location = unpack(next.location);
        if self.skip != 0 {
            // The follower must lie where the pattern puts it, to its last block.
            let fits = joined.location(self.count()) == next_location
                && joined.contiguous(self.count()) >= next.count();
            return fits.then_some(joined);
        }
        let expected = unpack(self.location) + self.count() as u64;
        if next_location == expected {
            return Some(joined);
        }
        let gap = next_location.checked_sub(expected)?;
        if gap == 0 || gap > 16 || next.count() > self.count() {
            return None;
        }
        joined.skip = gap as u8;
        joined.period_less_one = (self.count() - 1) as u8;
        joined.first_less_one = (self.count() - 1) as u8;
        Some(joined)
    }

    /// Encodes the run for an index page.
    pub fn to_bytes(self) -> [u8; RUN_BYTES] {
        let mut bytes = [0; RUN_BYTES];
        bytes[..5].copy_from_slice(&self.location);
        bytes[5..].copy_from_slice(&[
            self.start,
            self.count_less_one,
            self.period_less_one,
            self.first_less_one,
            self.skip,
        ]);
        bytes
    }

    /// Decodes a run of an index page; `None` where it leaves its region.
    pub fn from_bytes(bytes: &[u8; RUN_BYTES]) -> Option<Run> {
        let run = Run {
            location: [bytes[0], bytes[1], bytes[2], bytes[3], bytes[4]],
            start: bytes[5],
            count_less_one: bytes[6],
            period_less_one: bytes[7],
            first_less_one: bytes[8],
            skip: bytes[9],
        };
        (run.end() <= REGION_BLOCKS).then_some(run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_with_headers_between_them_join_into_one_run() {
        let mut run = Run::new(0, 64, 101);
        for frame in 1..4 {
            run = run.join(&Run::new(64 * frame, 64, 101 + 65 * frame as u64)).unwrap();
        }
        assert_eq!(run.count(), 256);
        assert_eq!(run.location(63), 164);
        assert_eq!(run.location(64), 166);
        assert_eq!(run.location(255), 101 + 255 + 3);
        assert_eq!(run.contiguous(10), 54);
        let part = run.part(100, 140);
        for block in 100..140 {
            assert_eq!(part.location(block - 100), run.location(block));
        }
        assert_eq!(part.contiguous(0), 28);
        assert_eq!(part.contiguous(28), 12);
    }

    #[test]
    fn does_not_join_what_does_not_fit() {
        let run = Run::new(0, 64, 101);
        assert!(run.join(&Run::new(64, 65, 166)).is_none());
        assert!(run.join(&Run::new(65, 2, 166)).is_none());
        assert!(run.join(&Run::new(64, 2, 100)).is_none());
        assert!(run.join(&Run::new(64, 2, 300)).is_none());
        let zeroes = Run::new(0, 4, ZEROES);
        assert!(zeroes.join(&Run::new(4, 4, 9)).is_none());
        assert_eq!(zeroes.join(&Run::new(4, 4, ZEROES)).unwrap().count(), 8);
    }
}
