//! Checks of a whole shard: its invariants in memory, and everything on a stopped drive.

use coquina_base::{AlignedBuf, BLOCK_BYTES, LayerId, crc32c_block};

use crate::api::{Device, ShardConfig};
use crate::frame::Head;
use crate::geometry::Geometry;
use crate::index_region::{Map, RegionKey};
use crate::index_run::{REGION_BLOCKS, ZEROES};
use crate::recovery::OpenError;
use crate::replay::BlockReader;
use crate::shard::Shard;
use crate::superblock::{DriveSuperblock, SuperblockError};

/// A block that cannot be read back as it was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadBlock {
    /// Its layer.
    pub layer: LayerId,
    /// Its chunk.
    pub chunk: u32,
    /// Its number within the chunk.
    pub block: u32,
    /// Where it lies on the drive.
    pub offset_bytes: u64,
}

/// What `check_drive` found in one shard.
#[derive(Clone, Debug, Default)]
pub struct ShardReport {
    /// Its number.
    pub shard: u32,
    /// Why it cannot be opened, or what contradicts itself.
    pub error: Option<String>,
    /// Blocks read and compared with their checksums.
    pub blocks: u64,
    /// Those that are bad; the first 1,000.
    pub bad_blocks: Vec<BadBlock>,
    /// How many are bad.
    pub bad_count: u64,
    /// Layers with data.
    pub layers: u64,
    /// Entries replayed behind the checkpoint.
    pub replayed_entries: u64,
}

/// What `check_drive` found.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// Why nothing could be looked at.
    pub error: Option<String>,
    /// Per shard.
    pub shards: Vec<ShardReport>,
}

impl CheckReport {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.error.is_none() && self.shards.iter().all(|shard| shard.error.is_none() && shard.bad_count == 0)
    }
}

/// Reads everything on a drive that nobody uses, and writes nothing. `progress(done, expected)` counts blocks.
pub fn check_drive(device: &mut dyn Device, progress: &mut dyn FnMut(u64, u64)) -> CheckReport {
    let mut report = CheckReport::default();
    let superblock = match DriveSuperblock::read(device) {
        Ok(superblock) => superblock,
        Err(error) => {
            report.error = Some(error.to_string());
            return report;
        }
    };
    for number in 0..superblock.shards {
        let mut shard_report = ShardReport { shard: number, ..ShardReport::default() };
        if let Err(error) = check_shard(device, number, &mut shard_report, progress) {
            shard_report.error = Some(error.to_string());
        }
        report.shards.push(shard_report);
    }
    report
}

fn check_shard(
    device: &mut dyn Device,
    number: u32,
    report: &mut ShardReport,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), OpenError> {
    let config = ShardConfig { index_memory_bytes: u64::MAX, cache_bytes: 0, ..ShardConfig::default() };
    let mut shard = Shard::recover(device, number, config)?;
    report.replayed_entries = shard.stats.replayed_entries;
    let geometry = shard.geometry;
    let mut reader = BlockReader { device, geometry, drive: shard.drive, shard: number };
    let expected = shard.live_blocks;
    let layers: Vec<(u64, bool)> =
        shard.index.layers().iter().map(|layer| (layer.id, layer.deleting)).collect();
    report.layers = layers.iter().filter(|(_, deleting)| !deleting).count() as u64;
    let mut counts = Counts::new(&geometry);
    for (layer, deleting) in layers {
        let mut from = Some(0);
        while let Some(chunk) = from.and_then(|from| shard.index.next_chunk(layer, from)) {
            from = chunk.checked_add(1);
            for region in 0..4 {
                let key = RegionKey { layer, chunk, region };
                shard.load_now(&mut reader, key)?;
                check_region(&mut shard, &mut reader, key, deleting, &mut counts, report);
                // Memory for one region at a time.
                if let Some(region) = shard.index.region_mut(key)
                    && !region.is_dirty()
                    && !region.page.is_none()
                {
                    region.checksums = None;
                    region.map = Map::Absent;
                }
                progress(report.blocks, expected);
            }
        }
    }
    if let Err(text) = counts.compare(&shard).and_then(|()| shard.verify_pages()) {
        report.error = Some(text);
    }
    Ok(())
}

fn check_region(
    shard: &mut Shard,
    reader: &mut BlockReader<'_>,
    key: RegionKey,
    deleting: bool,
    counts: &mut Counts,
    report: &mut ShardReport,
) {
    let geometry = shard.geometry;
    let Some(region) = shard.index.region_mut(key) else { return };
    let mut extents = Vec::new();
    region.for_each(|block, location, count| extents.push((block, location, count)));
    let checksums = region.checksums.clone();
    let mut buffer = AlignedBuf::new();
    for (block, location, count) in extents {
        counts.add(&geometry, location, count);
        if location == ZEROES || deleting {
            continue;
        }
        let all_read = reader.read(location, count as u32, &mut buffer).is_ok();
        for index in 0..count {
            let readable = all_read || reader.read(location + index as u64, 1, &mut buffer).is_ok();
            let at = if all_read { index * BLOCK_BYTES } else { 0 };
            let expected = checksums.as_ref().map(|all| all[block + index]);
            let good = readable && expected == Some(crc32c_block(&buffer[at..at + BLOCK_BYTES]));
            report.blocks += 1;
            if good {
                continue;
            }
            report.bad_count += 1;
            if report.bad_blocks.len() < 1000 {
                report.bad_blocks.push(BadBlock {
                    layer: LayerId(key.layer),
                    chunk: key.chunk,
                    block: (usize::from(key.region) * REGION_BLOCKS + block + index) as u32,
                    offset_bytes: geometry.offset_bytes(location + index as u64),
                });
            }
        }
    }
}

/// Blocks that the index needs, per segment.
struct Counts {
    live: Vec<u32>,
    zeroes: u64,
}

impl Counts {
    fn new(geometry: &Geometry) -> Self {
        Counts { live: vec![0; geometry.segments as usize], zeroes: 0 }
    }

    fn add(&mut self, geometry: &Geometry, location: u64, count: usize) {
        if location == ZEROES {
            self.zeroes += count as u64;
        } else {
            self.live[geometry.segment_of(location) as usize] += count as u32;
        }
    }

    fn compare(&self, shard: &Shard) -> Result<(), String> {
        for number in 0..shard.segments.len() {
            let segment = shard.segments.get(number);
            let counted = self.live[number as usize];
            if segment.head != Head::Meta && segment.live != counted {
                return Err(format!(
                    "segment {number}: {} blocks counted as needed, {counted} are",
                    segment.live
                ));
            }
            if segment.head == Head::Meta && counted > 0 {
                return Err(format!(
                    "segment {number} holds index pages, but {counted} blocks of data point there"
                ));
            }
        }
        let live: u64 = self.live.iter().map(|live| u64::from(*live)).sum();
        if live != shard.live_blocks || self.zeroes != shard.zero_blocks {
            return Err(format!(
                "{} blocks and {} reserved zeros counted, {live} and {} are",
                shard.live_blocks, shard.zero_blocks, self.zeroes
            ));
        }
        Ok(())
    }
}

impl Shard {
    /// Compares the counts of needed blocks with the index. Regions that are not in memory are passed over, and then
    /// nothing is compared.
    pub fn verify(&mut self) -> Result<(), String> {
        let mut counts = Counts::new(&self.geometry);
        let geometry = self.geometry;
        let layers: Vec<u64> = self.index.layers().iter().map(|layer| layer.id).collect();
        let (mut complete, mut heap) = (true, 0);
        for layer in layers {
            let mut from = Some(0);
            while let Some(chunk) = from.and_then(|from| self.index.next_chunk(layer, from)) {
                from = chunk.checked_add(1);
                let Some(regions) = self.index.chunk_mut(layer, chunk) else { continue };
                for region in regions.iter() {
                    heap += region.heap_bytes();
                    if matches!(region.map, Map::Absent) {
                        complete = false;
                        continue;
                    }
                    region.for_each(|_, location, count| counts.add(&geometry, location, count));
                }
                self.index.cool(layer, chunk);
            }
        }
        if heap as u64 > self.index.memory_bytes() {
            return Err(format!("{heap} bytes of index in memory, {} counted", self.index.memory_bytes()));
        }
        self.verify_pages()?;
        if complete { counts.compare(self) } else { Ok(()) }
    }

    /// Compares the counts of segments of index pages with the pages and parts of checkpoints that are needed.
    pub(crate) fn verify_pages(&self) -> Result<(), String> {
        let mut needed = vec![0u64; self.segments.len() as usize];
        let geometry = &self.geometry;
        self.index.for_each_page(|_, page| {
            needed[geometry.segment_of(page.location()) as usize] += page.length_bytes() as u64;
        });
        for part in self.checkpoint.parts_needed() {
            needed[geometry.segment_of(part.location) as usize] += u64::from(part.length_bytes);
        }
        for (number, needed) in needed.into_iter().enumerate() {
            let segment = self.segments.get(number as u32);
            if segment.head == Head::Meta && u64::from(segment.live) != needed {
                return Err(format!(
                    "segment {number}: {} bytes of index counted as needed, {needed} are",
                    segment.live
                ));
            }
        }
        Ok(())
    }
}

/// Formats a drive: see [`DriveSuperblock::format`].
pub fn format_drive(
    device: &mut dyn Device,
    options: &crate::api::FormatOptions,
) -> Result<DriveSuperblock, SuperblockError> {
    DriveSuperblock::format(device, options)
}
