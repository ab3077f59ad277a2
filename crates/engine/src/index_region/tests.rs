//! The region against a plain array of locations.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use super::*;

/// Counts what each thread takes.
struct Counting;

thread_local! {
    static TAKEN: Cell<u64> = const { Cell::new(0) };
}

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: it is the system's.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = TAKEN.try_with(|taken| taken.set(taken.get() + 1));
        // SAFETY: as the caller of this.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller of this.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Small, fast and repeatable.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

const KEY: RegionKey = RegionKey { layer: 3, chunk: 7, region: 2 };
const BLOCKS_MAX: u64 = 1 << 30;

fn compare(region: &Region, plain: &[u64; REGION_BLOCKS]) {
    for (block, expected) in plain.iter().enumerate() {
        assert_eq!(region.location(block), *expected, "block {block}");
        let (location, count) = region.extent(block, REGION_BLOCKS);
        assert!(count >= 1 && block + count <= REGION_BLOCKS);
        let step = u64::from(location != 0 && location != ZEROES);
        for index in 0..count {
            assert_eq!(plain[block + index], location + step * index as u64, "block {block} and {index} on");
        }
    }
}

#[test]
fn every_change_gives_what_a_plain_array_gives() {
    for seed in 0..40 {
        let mut dice = Dice(seed);
        let mut region = Region { map: Map::Empty, ..Region::default() };
        let mut plain = [0u64; REGION_BLOCKS];
        let longest = [1, 4, 40, 256][seed as usize % 4];
        for _ in 0..400 {
            let start = dice.below(REGION_BLOCKS as u64) as usize;
            let count = (1 + dice.below(longest) as usize).min(REGION_BLOCKS - start);
            let location = match dice.below(5) {
                0 => 0,
                1 => ZEROES,
                _ => 1 + dice.below(1 << 20),
            };
            let mut displaced = Vec::new();
            region.replace(start, count, location, &mut |old, blocks| {
                let step = u64::from(old != ZEROES);
                displaced.extend((0..blocks as u64).map(|index| old + step * index));
            });
            let expected: Vec<u64> =
                plain[start..start + count].iter().copied().filter(|location| *location != 0).collect();
            assert_eq!(displaced, expected);
            let step = u64::from(location != 0 && location != ZEROES);
            for index in 0..count {
                plain[start + index] = location + step * index as u64;
            }
        }
        compare(&region, &plain);
        page_gives_the_same(&mut region, &plain, &mut dice);
    }
}

/// Each entry took memory and gave it back.
#[test]
fn a_sequential_write_takes_no_memory_for_its_places() {
    let mut region = Region { map: Map::Empty, ..Region::default() };
    let before = TAKEN.get();
    for start in (0..REGION_BLOCKS).step_by(16) {
        region.replace(start, 16, 100 + start as u64, &mut |_, _| panic!("nothing was there"));
    }
    let mut displaced = 0;
    region.replace(0, REGION_BLOCKS, 9_000, &mut |_, count| displaced += count);
    assert_eq!(TAKEN.get() - before, 0);
    assert_eq!(displaced, REGION_BLOCKS);
    assert!(matches!(region.map, Map::One(_)));
}

/// Whatever the order, and also where the last blocks to go are several: then there is nothing to keep a page for.
#[test]
fn a_dense_region_is_empty_when_its_last_block_goes() {
    for seed in 0..40 {
        let mut dice = Dice(seed);
        let mut region = Region { map: Map::Empty, ..Region::default() };
        let mut plain = [0u64; REGION_BLOCKS];
        while !matches!(region.map, Map::Dense(_)) {
            let block = dice.below(REGION_BLOCKS as u64) as usize;
            plain[block] = if dice.below(4) == 0 { ZEROES } else { 1 + dice.below(1 << 20) };
            region.replace(block, 1, plain[block], &mut |_, _| {});
        }
        while plain.iter().any(|location| *location != 0) {
            compare(&region, &plain);
            assert!(!matches!(region.map, Map::Empty));
            let start = dice.below(REGION_BLOCKS as u64) as usize;
            let count = (1 + dice.below(8) as usize).min(REGION_BLOCKS - start);
            region.replace(start, count, 0, &mut |_, _| {});
            plain[start..start + count].fill(0);
        }
        assert!(matches!(region.map, Map::Empty) && region.is_vacant());
    }
}

fn page_gives_the_same(region: &mut Region, plain: &[u64; REGION_BLOCKS], dice: &mut Dice) {
    for block in 0..REGION_BLOCKS {
        region.set_checksum(block, block as u32 * 77 + 1);
    }
    let mut page = Vec::new();
    region.encode_page(KEY, &mut page);
    assert_eq!(page.len() % 8, 0);
    let mut decoded = Region::default();
    decoded.decode_page(KEY, &page, BLOCKS_MAX).unwrap();
    compare(&decoded, plain);
    let checksums = decoded.checksums.as_ref().unwrap();
    for (block, location) in plain.iter().enumerate().filter(|(_, at)| **at != 0 && **at != ZEROES) {
        assert_eq!(checksums[block], block as u32 * 77 + 1, "block {block} at {location}");
    }
    let other = RegionKey { chunk: 8, ..KEY };
    assert!(Region::default().decode_page(other, &page, BLOCKS_MAX).is_none());
    for _ in 0..50 {
        let mut spoilt = page.clone();
        spoilt[dice.below(page.len() as u64) as usize] ^= 1 << dice.below(8);
        assert!(Region::default().decode_page(KEY, &spoilt, BLOCKS_MAX).is_none());
        spoilt.truncate(dice.below(page.len() as u64) as usize);
        assert!(Region::default().decode_page(KEY, &spoilt, BLOCKS_MAX).is_none());
    }
}

#[test]
fn a_page_that_names_a_place_behind_the_end_is_refused() {
    let mut region = Region { map: Map::Empty, ..Region::default() };
    region.replace(0, 4, 96, &mut |_, _| {});
    region.add_checksums();
    let mut page = Vec::new();
    region.encode_page(KEY, &mut page);
    assert!(Region::default().decode_page(KEY, &page, 100).is_some());
    assert!(Region::default().decode_page(KEY, &page, 99).is_none());
}
