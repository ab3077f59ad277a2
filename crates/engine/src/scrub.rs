//! The scrub: reads everything that is needed, at a bounded rate, and says what is bad before somebody needs it.

use coquina_base::{AlignedBuf, BLOCK_BYTES, crc32c_block};

use crate::api::{Event, IoError};
use crate::frame::Head;
use crate::index_region::RegionKey;
use crate::index_run::{REGION_BLOCKS, ZEROES};
use crate::shard::{IoPurpose, Shard};

const READ_BLOCKS: usize = 64;

/// What a pass of the scrub has found, and what became of that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct ScrubReport {
    /// Blocks read.
    pub blocks: u64,
    /// Found bad meanwhile, some perhaps by readers and by the comparison with other copies, before it came there.
    pub bad_blocks: u64,
    /// Of those, written again with the data of another copy by now.
    pub repaired_blocks: u64,
    /// Of those, still bad as far as is known: neither repaired nor overwritten. More than are kept in mind count until the next pass.
    pub bad_blocks_left: u64,
    /// Blocks passed over, since their part of the index cannot be read.
    pub skipped_blocks: u64,
}

/// A pass of the scrub.
#[derive(Default)]
pub struct ScrubTask {
    running: bool,
    /// The number of this pass since the shard was opened; 0 if there was none.
    pass: u64,
    /// Layers of this pass that are still to come, the current one last.
    layers: Vec<u64>,
    chunk: u32,
    block: u32,
    reading: bool,
    location: u64,
    checksums: Vec<u32>,
    wake_ns: u64,
    blocks: u64,
    bad: u64,
    /// Bad ones that nobody keeps in mind: nothing is heard of them before the next pass.
    unnoted: u64,
    skipped: u64,
    blocks_expected: u64,
    /// The region that is being looked at: it stays in memory until the scrub has gone through it.
    pinned: Option<RegionKey>,
}

impl Shard {
    /// Starts a pass, if none is running.
    pub fn start_scrub(&mut self) {
        if self.scrub.running {
            return;
        }
        let pass = self.scrub.pass + 1;
        self.repairs.begin_scrub(pass);
        self.scrub = ScrubTask {
            running: true,
            pass,
            layers: self.index.layers().iter().map(|layer| layer.id).collect(),
            wake_ns: self.now_ns,
            blocks_expected: self.live_blocks,
            ..ScrubTask::default()
        };
    }

    /// Whether a pass is under way.
    pub fn is_scrubbing(&self) -> bool {
        self.scrub.running
    }

    /// What the pass under way has found so far, or else the last one; `None` if there was none since the shard was opened.
    pub fn scrub_report(&self) -> Option<ScrubReport> {
        let scrub = &self.scrub;
        let (noted, repaired_blocks, noted_left) = self.repairs.of_scrub();
        (scrub.pass > 0).then_some(ScrubReport {
            blocks: scrub.blocks,
            bad_blocks: noted + scrub.unnoted,
            repaired_blocks,
            bad_blocks_left: noted_left + scrub.unnoted,
            skipped_blocks: scrub.skipped,
        })
    }

    pub(crate) fn scrub_progress(&self) -> Option<u32> {
        let scrub = &self.scrub;
        scrub.running.then(|| (scrub.blocks * 10_000 / scrub.blocks_expected.max(1)).min(10_000) as u32)
    }

    pub(crate) fn scrub_wake_ns(&self) -> Option<u64> {
        let scrubbing =
            (self.scrub.running && !self.scrub.reading && !self.closing).then_some(self.scrub.wake_ns);
        // The end of a frame of users is the cleaner's next turn. That of a read may be far off, where the drive stalls.
        let is_called = self.log.streams[Head::Hot as usize].in_flight > 0;
        let cleans = self.cleaner.is_waiting() && !is_called && self.poisoned.is_none();
        let soon_ns = self.now_ns + 1_000_000;
        let cleaning =
            cleans.then_some(if self.has_room() { self.left_alone_ns().max(soon_ns) } else { soon_ns });
        scrubbing.into_iter().chain(cleaning).min()
    }

    pub(crate) fn scrub_step(&mut self) {
        while self.scrub.running && !self.scrub.reading && self.now_ns >= self.scrub.wake_ns && !self.closing
        {
            if !self.scrub_next() {
                return;
            }
        }
    }

    /// Keeps a region in memory instead of the one before.
    fn scrub_pin(&mut self, key: Option<RegionKey>) {
        if self.scrub.pinned == key {
            return;
        }
        if let Some(old) = self.scrub.pinned.take() {
            let Some(region) = self.index.region_mut(old) else { panic!("{old:?} was dropped while pinned") };
            region.pins -= 1;
            self.index.look_again();
            // It may have been trimmed while only the scrub kept it.
            self.index.cool(old.layer, old.chunk);
        }
        if let Some(region) = key.and_then(|key| self.index.region_mut(key)) {
            region.pins += 1;
            self.scrub.pinned = key;
        }
    }

    /// A layer is being deleted: the scrub must not keep it.
    pub(crate) fn scrub_leave(&mut self, layer: u64) {
        if self.scrub.pinned.is_some_and(|key| key.layer == layer) {
            self.scrub_pin(None);
        }
    }

    /// A layer is over.
    fn scrub_next_layer(&mut self) {
        self.scrub_pin(None);
        self.scrub.layers.pop();
        (self.scrub.chunk, self.scrub.block) = (0, 0);
    }

    /// Goes on to the next blocks; says whether to go on at once.
    fn scrub_next(&mut self) -> bool {
        let Some(&layer) = self.scrub.layers.last() else {
            self.scrub.running = false;
            let (blocks, bad) = (self.scrub.blocks, self.scrub.bad);
            self.event(Event::ScrubDone { blocks, bad });
            return false;
        };
        let next = match self.index.layer_position(layer) {
            Some(position) if !self.index.layers()[position].deleting => {
                self.index.next_chunk(layer, self.scrub.chunk)
            }
            _ => None,
        };
        let Some(chunk) = next else {
            self.scrub_next_layer();
            return true;
        };
        if chunk != self.scrub.chunk {
            (self.scrub.chunk, self.scrub.block) = (chunk, 0);
        }
        if self.scrub.block >= coquina_base::CHUNK_BLOCKS {
            match chunk.checked_add(1) {
                Some(next) => (self.scrub.chunk, self.scrub.block) = (next, 0),
                // It was the last one that a layer can have.
                None => self.scrub_next_layer(),
            }
            return true;
        }
        let block = self.scrub.block as usize;
        let key = RegionKey { layer, chunk, region: (block / REGION_BLOCKS) as u8 };
        self.scrub_pin(Some(key));
        let Some(region) = self.index.region_mut(key) else {
            self.scrub.block = (block / REGION_BLOCKS * REGION_BLOCKS + REGION_BLOCKS) as u32;
            return true;
        };
        if !region.is_complete() {
            if self.poisoned.is_some() && !region.is_loading() {
                // Perhaps for this very page: it would be read again for ever.
                self.scrub.block = (block / REGION_BLOCKS * REGION_BLOCKS + REGION_BLOCKS) as u32;
                self.scrub.skipped += u64::from(self.scrub.block) - block as u64;
                return true;
            }
            if !region.is_loading() {
                self.load_page(key);
            }
            self.scrub.wake_ns = self.now_ns + 1_000_000;
            return false;
        }
        let first = block % REGION_BLOCKS;
        let (location, count) = region.extent(first, REGION_BLOCKS);
        if location == 0 || location == ZEROES {
            self.scrub.block += count as u32;
            return true;
        }
        let count = count.min(READ_BLOCKS);
        let checksums = region.checksums.as_ref().map(|all| all[first..first + count].to_vec());
        self.scrub.checksums = checksums.unwrap_or_default();
        self.scrub.location = location;
        self.scrub.reading = true;
        let segment = self.geometry.segment_of(location);
        self.segments.get_mut(segment).readers += 1;
        self.issue_read(IoPurpose::Scrub, location, count);
        false
    }

    pub(crate) fn scrub_read_done(&mut self, buffer: AlignedBuf, result: Result<(), IoError>) {
        let segment = self.geometry.segment_of(self.scrub.location);
        self.scrub.reading = false;
        let Some(&layer) = self.scrub.layers.last() else {
            self.segments.remove_reader(segment);
            return self.pool.give(buffer);
        };
        let (chunk, first) = (self.scrub.chunk, self.scrub.block);
        for (index, block) in buffer.chunks_exact(BLOCK_BYTES).enumerate() {
            let good = result.is_ok() && self.scrub.checksums.get(index) == Some(&crc32c_block(block));
            let number = first + index as u32;
            let (place, location) = ((layer, chunk, number), self.scrub.location + index as u64);
            // One that was repaired or written while it was read is not bad any more.
            if !good && !self.is_overwritten(place, location) {
                self.scrub.bad += 1;
                self.bad_block(layer, chunk, number);
                let checksum = self.scrub.checksums.get(index).copied();
                if !self.note_bad(place, location, checksum, None) {
                    self.scrub.unnoted += 1;
                }
                self.repairs.found_by_scrub(place, true);
            }
        }
        self.segments.remove_reader(segment);
        self.scrub.blocks += buffer.blocks() as u64;
        self.scrub.block += buffer.blocks() as u32;
        let rate = self.config.scrub_bytes_per_s.max(4096);
        let pause_ns = buffer.len() as u64 * 1_000_000_000 / rate;
        self.scrub.wake_ns = self.scrub.wake_ns.max(self.now_ns.saturating_sub(100_000_000)) + pause_ns;
        self.pool.give(buffer);
    }
}
