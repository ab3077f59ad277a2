//! A region: the index of 256 consecutive blocks (1 MiB) of a chunk, and its page on the drive.
//!
//! Invariants:
//! - a region is *absent* (only its page on the drive knows), or complete in memory, or in memory without its
//!   checksums (only where it is clean and its page can give them);
//! - fragmented regions change to a dense form of 9 bytes per block, so that memory stays bounded.

use std::ops::Range;

use coquina_base::crc32c_bytes;

use crate::index_run::{REGION_BLOCKS, RUN_BYTES, Run, ZEROES};

/// Where a page lies: location of its block (40 bits), offset in it in units of 8 bytes (9 bits), length in units
/// of 8 bytes (10 bits). 0 means that there is no page.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PageRef(pub u64);

impl PageRef {
    /// A page at a byte offset (a multiple of 8) from the start of the shard's segments.
    pub fn new(location: u64, offset_bytes: usize, length_bytes: usize) -> Self {
        assert!(location < 1 << 40 && offset_bytes < 4096 && offset_bytes % 8 == 0);
        let units = length_bytes.div_ceil(8) as u64;
        assert!((1..1 << 10).contains(&units), "a page of {length_bytes} bytes");
        PageRef(location | (offset_bytes as u64 / 8) << 40 | units << 49)
    }

    /// Whether there is no page.
    pub fn is_none(self) -> bool {
        self.0 == 0
    }

    /// Location of the first block.
    pub fn location(self) -> u64 {
        self.0 & ((1 << 40) - 1)
    }

    /// Offset of the page in that block.
    pub fn offset_bytes(self) -> usize {
        (self.0 >> 40 & 511) as usize * 8
    }

    /// Length, a multiple of 8.
    pub fn length_bytes(self) -> usize {
        (self.0 >> 49 & 1023) as usize * 8
    }

    /// Blocks that must be read to see the page.
    pub fn blocks(self) -> usize {
        (self.offset_bytes() + self.length_bytes()).div_ceil(4096)
    }
}

/// Dense form: a location of 5 bytes for each block, 0 for a hole.
pub type Dense = [[u8; 5]; REGION_BLOCKS];

/// What a dense region of holes looks like.
static NO_LOCATIONS: [u8; size_of::<Dense>()] = [0; size_of::<Dense>()];

/// Runs above which the dense form is smaller.
const RUNS_MAX: usize = REGION_BLOCKS * 5 / RUN_BYTES;
/// Runs below which a dense region goes back to runs, when its page is read.
const DENSE_RUNS_MIN: usize = RUNS_MAX / 2;

/// How a region says where its blocks lie.
// A vector in a box keeps this at 16 bytes: there is one for each MiB of every volume.
#[allow(clippy::box_collection)]
#[derive(Debug, Default)]
pub enum Map {
    /// Only the page on the drive knows.
    Absent,
    /// All holes.
    #[default]
    Empty,
    /// One run.
    One(Run),
    /// Runs in order.
    Many(Box<Vec<Run>>),
    /// A location per block.
    Dense(Box<Dense>),
}

/// The index of one region.
#[derive(Debug, Default)]
pub struct Region {
    /// Where the blocks lie.
    pub map: Map,
    /// CRC32C of each block that has data.
    pub checksums: Option<Box<[u32; REGION_BLOCKS]>>,
    /// The newest page on the drive.
    pub page: PageRef,
    /// Operations that need the region to stay in memory.
    pub pins: u32,
    /// Pages of it that are being written: the page reference is about to change.
    pub writing: u8,
    /// Low bits of the number of checkpoints begun when it became dirty.
    pub dirty_era: u8,
    flags: u8,
}

// Four of them are what each chunk in memory takes.
const _: () = assert!(size_of::<Region>() == 40);

/// Changed since its page was written.
const DIRTY: u8 = 1;
/// Its page is being read.
const LOADING: u8 = 2;
/// Used since the last look of the evictor.
const REFERENCED: u8 = 4;

fn dense_get(dense: &Dense, block: usize) -> u64 {
    let b = dense[block];
    u64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], 0, 0, 0])
}

fn dense_set(dense: &mut Dense, block: usize, location: u64) {
    dense[block].copy_from_slice(&location.to_le_bytes()[..5]);
}

impl Region {
    /// Whether reads and changes can be done without reading its page.
    pub fn is_complete(&self) -> bool {
        match self.map {
            Map::Absent => false,
            Map::Empty => true,
            _ => self.checksums.is_some(),
        }
    }

    /// Whether it has changed since its page was written.
    pub fn is_dirty(&self) -> bool {
        self.flags & DIRTY != 0
    }

    /// See [`Region::is_dirty`].
    pub fn set_dirty(&mut self, is_dirty: bool) {
        self.set_flag(DIRTY, is_dirty);
    }

    /// Whether its page is being read.
    pub fn is_loading(&self) -> bool {
        self.flags & LOADING != 0
    }

    /// See [`Region::is_loading`].
    pub fn set_loading(&mut self, is_loading: bool) {
        self.set_flag(LOADING, is_loading);
    }

    /// Whether it was used since the last look of the evictor.
    pub fn is_referenced(&self) -> bool {
        self.flags & REFERENCED != 0
    }

    /// See [`Region::is_referenced`].
    pub fn set_referenced(&mut self, is_referenced: bool) {
        self.set_flag(REFERENCED, is_referenced);
    }

    fn set_flag(&mut self, flag: u8, is_set: bool) {
        self.flags = if is_set { self.flags | flag } else { self.flags & !flag };
    }

    /// Whether nothing is to be known of it, here or on the drive, and nothing of it is on its way.
    pub fn is_vacant(&self) -> bool {
        matches!(self.map, Map::Empty)
            && self.page.is_none()
            && !self.is_dirty()
            && self.writing == 0
            && !self.is_loading()
    }

    /// Bytes of heap that the region holds.
    pub fn heap_bytes(&self) -> usize {
        let map = match &self.map {
            Map::Absent | Map::Empty | Map::One(_) => 0,
            Map::Many(runs) => 24 + runs.capacity() * RUN_BYTES + 16,
            Map::Dense(_) => size_of::<Dense>() + 8,
        };
        map + if self.checksums.is_some() { REGION_BLOCKS * 4 + 8 } else { 0 }
    }

    /// Has the processor get a block's location and checksum from memory; it need not wait for them.
    pub fn look_at(&self, block: usize) {
        if let Map::Dense(dense) = &self.map {
            std::hint::black_box(dense[block][0]);
        }
        if let Some(checksums) = &self.checksums {
            std::hint::black_box(checksums[block]);
        }
    }

    /// Location of a block; 0 for a hole, [`ZEROES`] for reserved zeros.
    pub fn location(&self, block: usize) -> u64 {
        let in_run = |run: &Run| run.location(block - run.start());
        match &self.map {
            Map::Absent => panic!("look-up in an absent region"),
            Map::Empty => 0,
            Map::One(run) if (run.start()..run.end()).contains(&block) => in_run(run),
            Map::One(_) => 0,
            Map::Many(runs) => match runs.binary_search_by(|run| run.start().cmp(&block)) {
                Ok(at) => in_run(&runs[at]),
                Err(0) => 0,
                Err(at) if block < runs[at - 1].end() => in_run(&runs[at - 1]),
                Err(_) => 0,
            },
            Map::Dense(dense) => dense_get(dense, block),
        }
    }

    /// Location of a block, and how many blocks up to `end` go on in the same way.
    pub fn extent(&self, block: usize, end: usize) -> (u64, usize) {
        let location = self.location(block);
        let of_run = |run: &Run| match run.is_zeroes() {
            true => (location, run.end().min(end) - block),
            false => (location, run.contiguous(block - run.start()).min(end - block)),
        };
        let hole_to = |next: Option<&Run>| (0, next.map_or(end, |run| run.start().min(end)) - block);
        match &self.map {
            Map::Absent | Map::Empty => (0, end - block),
            Map::One(run) if (run.start()..run.end()).contains(&block) => of_run(run),
            Map::One(run) => hole_to(Some(run).filter(|run| run.start() > block)),
            Map::Many(runs) => {
                let at = runs.partition_point(|run| run.end() <= block);
                match runs.get(at) {
                    Some(run) if run.start() <= block => of_run(run),
                    next => hole_to(next),
                }
            }
            Map::Dense(dense) => {
                let step = u64::from(location != 0 && location != ZEROES);
                let mut count = 1;
                while block + count < end && dense_get(dense, block + count) == location + step * count as u64
                {
                    count += 1;
                }
                (location, count)
            }
        }
    }

    /// Replaces the location of a range: `location` 0 for a hole, [`ZEROES`], or the first of consecutive blocks.
    /// Calls `displaced(location, count)` for what was there.
    pub fn replace(
        &mut self,
        start: usize,
        count: usize,
        location: u64,
        displaced: &mut impl FnMut(u64, usize),
    ) {
        assert!(count >= 1 && start + count <= REGION_BLOCKS);
        assert!(!matches!(self.map, Map::Absent), "change of an absent region");
        let end = start + count;
        if let Map::Dense(dense) = &mut self.map {
            let step = u64::from(location != 0 && location != ZEROES);
            for index in 0..count {
                let old = dense_get(dense, start + index);
                if old != 0 {
                    displaced(old, 1);
                }
                dense_set(dense, start + index, location + step * index as u64);
            }
            // Once for a whole range, and it ends at the first block that is left: a count of blocks would cost every write.
            if location == 0 && dense.as_flattened() == NO_LOCATIONS {
                self.map = Map::Empty;
            }
            return;
        }
        let new = (location != 0).then(|| Run::new(start, count, location));
        let runs: &mut Vec<Run> = match &mut self.map {
            Map::Many(runs) => runs,
            Map::One(run) => {
                let run = *run;
                return self.replace_few(Some(run), start..end, new, displaced);
            }
            _ => return self.replace_few(None, start..end, new, displaced),
        };
        let first = runs.partition_point(|run| run.end() <= start);
        let mut last = first;
        let mut before = None;
        let mut after = None;
        while last < runs.len() && runs[last].start() < end {
            let run = runs[last];
            if run.start() < start {
                before = Some(run.part(run.start(), start));
            }
            if run.end() > end {
                after = Some(run.part(end, run.end()));
            }
            report(&run.part(start, end), displaced);
            last += 1;
        }
        splice(runs, first, last, before, new, after);
        self.normalise();
    }

    /// The same where there is one run or none, as under each entry of a sequential write: without taking memory for a list.
    fn replace_few(
        &mut self,
        old: Option<Run>,
        range: Range<usize>,
        new: Option<Run>,
        displaced: &mut impl FnMut(u64, usize),
    ) {
        let Range { start, end } = range;
        let (mut before, mut after) = (None, None);
        if let Some(run) = old {
            before = (run.start() < start).then(|| run.part(run.start(), start));
            after = (run.end() > end).then(|| run.part(end, run.end()));
            if run.start() < end && run.end() > start {
                report(&run.part(start, end), displaced);
            }
        }
        let mut runs: [Option<Run>; 3] = [None; 3];
        let mut used: usize = 0;
        for piece in [before, new, after].into_iter().flatten() {
            let last = used.checked_sub(1);
            match last.and_then(|last| Some((last, runs[last]?.join(&piece)?))) {
                Some((last, joined)) => runs[last] = Some(joined),
                None => {
                    runs[used] = Some(piece);
                    used += 1;
                }
            }
        }
        self.map = match runs {
            [None, ..] => Map::Empty,
            [Some(run), None, _] => Map::One(run),
            _ => Map::Many(Box::new(runs.into_iter().flatten().collect())),
        };
    }

    fn normalise(&mut self) {
        let Map::Many(runs) = &mut self.map else { return };
        match runs.len() {
            0 => self.map = Map::Empty,
            1 => self.map = Map::One(runs[0]),
            length if length > RUNS_MAX => {
                let mut dense = Box::new([[0; 5]; REGION_BLOCKS]);
                for run in runs.iter() {
                    for block in run.start()..run.end() {
                        dense_set(&mut dense, block, run.location(block - run.start()));
                    }
                }
                self.map = Map::Dense(dense);
            }
            length if runs.capacity() > 8 && runs.capacity() > length * 2 => {
                runs.shrink_to(length + length / 4)
            }
            _ => {}
        }
    }

    /// Calls `visit(start, location, count)` for everything that is not a hole, in order.
    pub fn for_each(&self, mut visit: impl FnMut(usize, u64, usize)) {
        let mut block = 0;
        while block < REGION_BLOCKS {
            let (location, count) = self.extent(block, REGION_BLOCKS);
            if location != 0 {
                visit(block, location, count);
            }
            block += count;
        }
    }

    /// Makes room for checksums.
    pub fn add_checksums(&mut self) {
        self.checksums.get_or_insert_with(|| Box::new([0; REGION_BLOCKS]));
    }

    /// Sets the checksum of a block.
    pub fn set_checksum(&mut self, block: usize, checksum: u32) {
        self.checksums.get_or_insert_with(|| Box::new([0; REGION_BLOCKS]))[block] = checksum;
    }
}

fn report(run: &Run, displaced: &mut impl FnMut(u64, usize)) {
    let mut index = 0;
    while index < run.count() {
        let count = if run.is_zeroes() { run.count() } else { run.contiguous(index) };
        displaced(run.location(index), count);
        index += count;
    }
}

/// Puts up to three runs in the place of `runs[first..last]`, joined with their neighbours where possible.
fn splice(
    runs: &mut Vec<Run>,
    first: usize,
    last: usize,
    before: Option<Run>,
    new: Option<Run>,
    after: Option<Run>,
) {
    let mut pieces = [before, new, after].into_iter().flatten();
    let mut first = first;
    let mut out: [Option<Run>; 4] = [None; 4];
    let mut used = 0;
    if first > 0 {
        first -= 1;
        out[0] = Some(runs[first]);
        used = 1;
    }
    for piece in &mut pieces {
        let joined = if used > 0 { out[used - 1].and_then(|run| run.join(&piece)) } else { None };
        match joined {
            Some(joined) => out[used - 1] = Some(joined),
            None => {
                out[used] = Some(piece);
                used += 1;
            }
        }
    }
    let replaced = first..last;
    if replaced.len() == used {
        for (slot, run) in runs[replaced].iter_mut().zip(out.iter().flatten()) {
            *slot = *run;
        }
    } else {
        runs.splice(replaced, out.into_iter().flatten());
    }
}

/// Bytes of a page's header: layer, chunk, region, form, count, CRC32C.
const PAGE_HEADER_BYTES: usize = 24;

/// Which region a page belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RegionKey {
    /// The layer's number.
    pub layer: u64,
    /// The chunk.
    pub chunk: u32,
    /// 0 to 3 within the chunk.
    pub region: u8,
}

const FORM_RUNS: u8 = 1;
const FORM_DENSE: u8 = 2;

impl Region {
    /// Appends the region's page, padded to a multiple of 8 bytes. The region must be complete and not empty.
    pub fn encode_page(&self, key: RegionKey, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&key.layer.to_le_bytes());
        out.extend_from_slice(&key.chunk.to_le_bytes());
        out.push(key.region);
        let (form, count) = match &self.map {
            Map::One(_) => (FORM_RUNS, 1),
            Map::Many(runs) => (FORM_RUNS, runs.len()),
            Map::Dense(_) => (FORM_DENSE, REGION_BLOCKS),
            Map::Absent | Map::Empty => (FORM_RUNS, 0),
        };
        out.push(form);
        out.extend_from_slice(&(count as u16).to_le_bytes());
        out.extend_from_slice(&[0; 8]);
        match &self.map {
            Map::One(run) => out.extend_from_slice(&run.to_bytes()),
            Map::Many(runs) => runs.iter().for_each(|run| out.extend_from_slice(&run.to_bytes())),
            Map::Dense(dense) => dense.iter().for_each(|location| out.extend_from_slice(location)),
            Map::Absent | Map::Empty => {}
        }
        if let Some(checksums) = &self.checksums {
            self.for_each(|block, location, count| {
                if location != ZEROES {
                    for checksum in &checksums[block..block + count] {
                        out.extend_from_slice(&checksum.to_le_bytes());
                    }
                }
            });
        }
        out.resize(start + (out.len() - start).next_multiple_of(8), 0);
        let crc = crc32c_bytes(&out[start..]);
        out[start + 16..start + 20].copy_from_slice(&crc.to_le_bytes());
    }

    /// Reads a page into the map and checksums; page reference, pins and flags stay. `None` where the page is not
    /// intact, belongs elsewhere or names a location at or behind `blocks_max`.
    pub fn decode_page(&mut self, key: RegionKey, page: &[u8], blocks_max: u64) -> Option<()> {
        let header: &[u8; PAGE_HEADER_BYTES] = page.get(..PAGE_HEADER_BYTES)?.try_into().ok()?;
        let stored = u32::from_le_bytes([header[16], header[17], header[18], header[19]]);
        let mut zeroed = *header;
        zeroed[16..20].fill(0);
        if coquina_base::crc32c_append(crc32c_bytes(&zeroed), &page[PAGE_HEADER_BYTES..]) != stored {
            return None;
        }
        let belongs = header[..8] == key.layer.to_le_bytes()
            && header[8..12] == key.chunk.to_le_bytes()
            && header[12] == key.region;
        if !belongs {
            return None;
        }
        let count = usize::from(u16::from_le_bytes([header[14], header[15]]));
        let rest = &page[PAGE_HEADER_BYTES..];
        let (map, rest) = match header[13] {
            FORM_RUNS => decode_runs(rest, count, blocks_max)?,
            FORM_DENSE if count == REGION_BLOCKS => decode_dense(rest, blocks_max)?,
            _ => return None,
        };
        let loaded = Region { map, ..Region::default() };
        let mut checksums = Box::new([0; REGION_BLOCKS]);
        let mut bytes = rest.chunks_exact(4);
        let mut complete = true;
        loaded.for_each(|block, location, count| {
            if location != ZEROES {
                for slot in &mut checksums[block..block + count] {
                    match bytes.next() {
                        Some(four) => *slot = u32::from_le_bytes([four[0], four[1], four[2], four[3]]),
                        None => complete = false,
                    }
                }
            }
        });
        if !complete {
            return None;
        }
        self.map = loaded.map;
        self.checksums = Some(checksums);
        Some(())
    }
}

fn decode_runs(bytes: &[u8], count: usize, blocks_max: u64) -> Option<(Map, &[u8])> {
    if count > RUNS_MAX {
        return None;
    }
    let length = count * RUN_BYTES;
    let mut runs = Vec::with_capacity(count);
    let mut end = 0;
    for bytes in bytes.get(..length)?.chunks_exact(RUN_BYTES) {
        let run = Run::from_bytes(bytes.try_into().ok()?)?;
        let in_place = run.is_zeroes() || run.location(run.count() - 1) < blocks_max;
        if run.start() < end || !in_place {
            return None;
        }
        end = run.end();
        runs.push(run);
    }
    let map = match runs.as_slice() {
        [] => Map::Empty,
        [run] => Map::One(*run),
        _ => Map::Many(Box::new(runs)),
    };
    Some((map, &bytes[length..]))
}

fn decode_dense(bytes: &[u8], blocks_max: u64) -> Option<(Map, &[u8])> {
    let length = size_of::<Dense>();
    let mut dense = Box::new([[0; 5]; REGION_BLOCKS]);
    for (slot, bytes) in dense.iter_mut().zip(bytes.get(..length)?.chunks_exact(5)) {
        slot.copy_from_slice(bytes);
    }
    for block in 0..REGION_BLOCKS {
        let location = dense_get(&dense, block);
        if location != ZEROES && location >= blocks_max {
            return None;
        }
    }
    let dense_region = Region { map: Map::Dense(dense), ..Region::default() };
    let mut runs = Vec::new();
    dense_region.for_each(|block, location, count| {
        if runs.len() < DENSE_RUNS_MIN {
            runs.push(Run::new(block, count, location));
        }
    });
    let map = match runs.len() {
        0 => Map::Empty,
        1 => Map::One(runs[0]),
        length if length < DENSE_RUNS_MIN => Map::Many(Box::new(runs)),
        _ => dense_region.map,
    };
    Some((map, &bytes[length..]))
}

#[cfg(test)]
mod tests;
