//! What index pages take at most.

use super::*;
use crate::index_region::Region;
use crate::index_run::{REGION_BLOCKS, ZEROES};

/// Small, fast and repeatable.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Bytes of the page of a region that was written in random order, at random places, and how many blocks it holds.
fn random_page(dice: &mut Dice, writes: u64, longest: u64) -> (u64, u64) {
    let mut region = Region::default();
    for _ in 0..writes {
        let start = dice.below(REGION_BLOCKS as u64) as usize;
        let count = (1 + dice.below(longest) as usize).min(REGION_BLOCKS - start);
        let location = if dice.below(16) == 0 { ZEROES } else { 1 + dice.below(1 << 30) };
        region.replace(start, count, location, &mut |_, _| {});
    }
    region.add_checksums();
    let mut blocks = 0;
    region.for_each(|_, _, count| blocks += count as u64);
    let mut page = Vec::new();
    region.encode_page(RegionKey { layer: 1, chunk: 2, region: 3 }, &mut page);
    (page.len() as u64, blocks)
}

#[test]
fn what_is_kept_for_pages_is_enough_however_the_regions_were_written() {
    let mut dice = Dice(1);
    // In the table, and again behind it.
    let records = 2 * crate::index::PAGE_RECORD_BYTES as u64;
    for longest in [1, 3, 40] {
        for writes in [1, 2, 5, 20, 60, 100, 128, 160, 250, 600, 2000] {
            let (mut bytes, mut blocks) = (0, 0);
            for _ in 0..40 {
                let (page_bytes, page_blocks) = random_page(&mut dice, writes, longest);
                assert!(page_bytes <= PAGE_COST_MAX - records);
                assert!(page_bytes + records <= page_bytes_max(1, page_blocks));
                bytes += page_bytes + records;
                blocks += page_blocks;
            }
            let kept = page_bytes_max(40, blocks);
            assert!(bytes <= kept, "{writes} writes of up to {longest}: {bytes} bytes, {kept} kept");
            if longest == 1 {
                // Not much more either: it is room that users do not get.
                assert!(kept <= bytes * 2, "{writes} writes: {bytes} bytes, {kept} kept");
            }
        }
    }
}
