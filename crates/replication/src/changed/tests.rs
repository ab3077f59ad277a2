//! Sets of blocks beside plain ones, and what they cost.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;

use coquina_base::CHUNK_BLOCKS;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::codec::Codec;

/// Each block of the set by layer, chunk and number.
type Plain = BTreeSet<(u64, u32, u32)>;

fn range(first: u32, count: u32) -> BlockRange {
    BlockRange { layer: LayerId(1), chunk: 2, first, count }
}

fn set_of(ranges: impl IntoIterator<Item = BlockRange>) -> RangeSet {
    let mut set = RangeSet::default();
    ranges.into_iter().for_each(|range| set.insert(range));
    set
}

fn blocks_of(range: BlockRange) -> impl Iterator<Item = (u64, u32, u32)> {
    (range.first..range.end()).map(move |block| (range.layer.0, range.chunk, block))
}

/// The runs of a plain set, as long as can be.
fn runs_of(plain: &Plain) -> Vec<BlockRange> {
    let mut runs: Vec<BlockRange> = Vec::new();
    for &(layer, chunk, block) in plain {
        match runs.last_mut().filter(|run| (run.layer.0, run.chunk, run.end()) == (layer, chunk, block)) {
            Some(run) => run.count += 1,
            None => runs.push(BlockRange { layer: LayerId(layer), chunk, first: block, count: 1 }),
        }
    }
    runs
}

fn hash_of(set: &impl Hash) -> u64 {
    foldhash::fast::FixedState::default().hash_one(set)
}

fn bitmaps(set: &RangeSet) -> impl Iterator<Item = &Arc<blocks::Bits>> {
    set.chunks.values().filter_map(|blocks| match blocks {
        Blocks::Many(bits) => Some(bits),
        Blocks::Few(_) => None,
    })
}

#[test]
fn behaves_like_a_plain_set() {
    let (mut set, mut plain, mut seed) = (RangeSet::default(), BTreeSet::new(), 1u64);
    for _ in 0..4000 {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let (first, count) = ((seed >> 33) as u32 % 40, (seed >> 50) as u32 % 7);
        if seed >> 63 == 0 {
            set.insert(range(first, count));
            plain.extend(first..first + count);
        } else {
            set.remove(range(first, count));
            plain.retain(|block| !(first..first + count).contains(block));
        }
        let blocks: BTreeSet<u32> = set.ranges().flat_map(|run| run.first..run.end()).collect();
        assert_eq!(blocks, plain);
        assert_eq!(set.intersects(range(10, 5)), plain.range(10..15).next().is_some());
        let mut gaps = BTreeSet::new();
        set.gaps(range(8, 20), |gap| gaps.extend(gap.first..gap.end()));
        assert_eq!(gaps, (8..28).filter(|block| !plain.contains(block)).collect());
        assert_eq!(set.first(3).map(|run| run.first), plain.first().copied());
    }
}

#[test]
fn a_deletion_takes_the_place_of_all_else_of_its_layer() {
    let mut set = RangeSet::default();
    set.insert(range(0, 4));
    set.insert(BlockRange { layer: LayerId(2), ..range(7, 1) });
    set.insert(BlockRange::whole_layer(LayerId(1)));
    let left: Vec<_> = set.ranges().collect();
    let other = BlockRange { layer: LayerId(2), ..range(7, 1) };
    assert_eq!(left, [BlockRange::whole_layer(LayerId(1)), other]);
    assert_eq!(set.blocks(), 2);
    set.insert(range(3, 1));
    let left: Vec<_> = set.ranges().collect();
    assert_eq!(left, [range(3, 1), BlockRange::whole_layer(LayerId(1)), other]);
}

#[test]
fn chunks_are_apart() {
    let mut set = RangeSet::default();
    set.insert(range(0, 4));
    assert!(!set.intersects(BlockRange { chunk: 3, ..range(0, 4) }));
    assert!(!set.intersects(BlockRange { layer: LayerId(2), ..range(0, 4) }));
}

#[test]
fn runs_end_with_their_chunk() {
    let whole = [range(0, CHUNK_BLOCKS), BlockRange { chunk: 3, ..range(0, CHUNK_BLOCKS) }];
    let set = set_of(whole);
    assert_eq!(set.ranges().collect::<Vec<_>>(), whole);
    assert_eq!((set.blocks(), bitmaps(&set).count()), (2 * u64::from(CHUNK_BLOCKS), 0));
    assert_eq!(set.first(1), Some(range(0, 1)));
    assert_eq!(set.first(u32::MAX), Some(whole[0]));
}

#[test]
fn behind_the_end_of_a_chunk_there_is_nothing() {
    let mut set = set_of([range(1000, 24)]);
    assert!(!set.intersects(range(1024, u32::MAX)));
    let mut gaps = Vec::new();
    set.gaps(range(1010, 20), |gap| gaps.push(gap));
    set.gaps(range(u32::MAX - 1, 20), |gap| gaps.push(gap));
    assert_eq!(gaps, [range(1024, 6), range(u32::MAX - 1, 1)]);
    set.remove(range(5000, 10));
    set.remove(range(1020, u32::MAX));
    assert_eq!(set, set_of([range(1000, 20)]));
}

#[test]
#[should_panic(expected = "blocks of a chunk")]
fn blocks_that_no_chunk_has_are_refused() {
    set_of([range(1020, 5)]);
}

#[test]
fn an_empty_range_is_nothing() {
    let mut set = set_of([range(7, 0)]);
    assert_eq!(set, RangeSet::default());
    set.insert(range(0, 9));
    set.remove(range(4, 0));
    assert_eq!(set.ranges().collect::<Vec<_>>(), [range(0, 9)]);
    assert!(!set.intersects(range(4, 0)));
    set.gaps(range(20, 0), |gap| panic!("{gap:?}"));
}

#[test]
fn random_blocks_cost_by_the_chunk() {
    const CHUNKS: u64 = 16 << 10;
    let (mut set, mut seed) = (RangeSet::default(), 7u64);
    for _ in 0..1_000_000 {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let place = (seed >> 20) % (CHUNKS * u64::from(CHUNK_BLOCKS));
        let (chunk, first) = ((place / u64::from(CHUNK_BLOCKS)) as u32, place as u32 % CHUNK_BLOCKS);
        set.insert(BlockRange { chunk, ..range(first, 1) });
    }
    assert!(set.blocks() > 900_000, "{}", set.blocks());
    assert!(set.chunks.len() as u64 <= CHUNKS);
    // The tree at half of its places, and the counts of each bitmap.
    let entry_bytes = 2 * size_of::<((LayerId, u32), Blocks)>();
    let bytes = set.chunks.len() * entry_bytes + bitmaps(&set).count() * (size_of::<blocks::Bits>() + 16);
    assert!(bytes < 4_000_000, "{bytes} bytes");

    // A clone has no bitmap of its own until it changes.
    let mut todo = set.clone();
    let own = |todo: &RangeSet| {
        let pairs = bitmaps(&set).zip(bitmaps(todo));
        pairs.filter(|pair| !Arc::ptr_eq(pair.0, pair.1)).count()
    };
    assert_eq!(own(&todo), 0);
    todo.insert(BlockRange { chunk: 0, ..range(0, CHUNK_BLOCKS / 2 + 1) });
    todo.insert(BlockRange { chunk: 0, ..range(3, 5) });
    assert_eq!(own(&todo), 1);
}

#[test]
fn few_runs_need_no_bitmap() {
    assert!(size_of::<Blocks>() <= 16);
    let mut set = set_of([range(0, 1), range(500, 524), range(63, 2)]);
    assert_eq!(bitmaps(&set).count(), 0);
    set.insert(range(3, 1));
    assert_eq!(bitmaps(&set).count(), 1);
    let shared = set.clone();
    set.insert(range(600, 100));
    set.remove(range(100, 300));
    assert!(bitmaps(&set).zip(bitmaps(&shared)).all(|(one, other)| Arc::ptr_eq(one, other)));
    set.remove(range(3, 1));
    assert_eq!((bitmaps(&set).count(), bitmaps(&shared).count()), (0, 1));
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Insert(BlockRange),
    Remove(BlockRange),
}

/// Ranges of three chunks of two layers, many of them around the ends of words and of the chunk.
fn a_range() -> impl Strategy<Value = BlockRange> {
    let first = prop_oneof![
        4 => 0..CHUNK_BLOCKS,
        2 => (1..16u32, 0..3u32).prop_map(|(word, back)| word * 64 - back),
        1 => Just(0u32),
        1 => CHUNK_BLOCKS - 3..CHUNK_BLOCKS,
    ];
    let count = prop_oneof![8 => 0..4u32, 3 => 0..200u32, 1 => Just(CHUNK_BLOCKS), 1 => 60..70u32];
    (1..3u64, 0..3u32, first, count).prop_map(|(layer, chunk, first, count)| BlockRange {
        layer: LayerId(layer),
        chunk,
        first,
        count: count.min(CHUNK_BLOCKS - first),
    })
}

fn a_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        30 => a_range().prop_map(Step::Insert),
        20 => a_range().prop_map(Step::Remove),
        1 => (1..3u64).prop_map(|layer| Step::Insert(BlockRange::whole_layer(LayerId(layer)))),
    ]
}

fn insert_plain(plain: &mut Plain, range: BlockRange) {
    if range.is_whole_layer() {
        plain.retain(|block| block.0 != range.layer.0);
    }
    plain.extend(blocks_of(range));
}

fn take(step: Step, set: &mut RangeSet, plain: &mut Plain) {
    match step {
        // A layer that was deleted is not written again, so its deletion stays all that is in the set of it.
        Step::Insert(range) if plain.contains(&(range.layer.0, u32::MAX, 0)) => {}
        Step::Insert(range) => {
            set.insert(range);
            insert_plain(plain, range);
        }
        Step::Remove(range) => {
            set.remove(range);
            blocks_of(range).for_each(|block| {
                plain.remove(&block);
            });
        }
    }
}

proptest! {
    #[test]
    fn is_what_a_plain_set_is(
        steps in vec(a_step(), 0..60),
        asked in vec(a_range(), 1..8),
        most in 1..2000u32,
    ) {
        let (mut set, mut plain) = (RangeSet::default(), Plain::new());
        for step in steps {
            take(step, &mut set, &mut plain);
            prop_assert_eq!(set.blocks(), plain.len() as u64);
        }
        let runs = runs_of(&plain);
        prop_assert_eq!(set.ranges().collect::<Vec<_>>(), runs.clone());
        prop_assert_eq!(set.is_empty(), plain.is_empty());
        let first = runs.first().map(|run| BlockRange { count: run.count.min(most), ..*run });
        prop_assert_eq!(set.first(most), first);
        for range in asked {
            prop_assert_eq!(set.intersects(range), blocks_of(range).any(|block| plain.contains(&block)));
            let mut gaps = Vec::new();
            set.gaps(range, |gap| gaps.push(gap));
            let absent: Plain = blocks_of(range).filter(|block| !plain.contains(block)).collect();
            prop_assert_eq!(gaps, runs_of(&absent));
        }
        // Whatever the way to it, a set is the same, and so are its bytes.
        let other = set_of(runs.iter().copied());
        prop_assert_eq!(&other, &set);
        prop_assert_eq!(hash_of(&other), hash_of(&set));
        let mut bytes = Vec::new();
        set.encode(&mut bytes);
        let mut expected = (runs.len() as u32).to_le_bytes().to_vec();
        runs.iter().for_each(|run| run.encode(&mut expected));
        prop_assert_eq!(&bytes, &expected);
        prop_assert_eq!(RangeSet::decode(&mut &bytes[..]), Ok(set));
    }

    #[test]
    fn clones_go_their_own_ways(
        before in vec(a_step(), 0..40),
        ours in vec(a_step(), 0..20),
        theirs in vec(a_step(), 0..20),
    ) {
        let (mut set, mut plain) = (RangeSet::default(), Plain::new());
        before.into_iter().for_each(|step| take(step, &mut set, &mut plain));
        let (mut other, mut other_plain) = (set.clone(), plain.clone());
        ours.into_iter().for_each(|step| take(step, &mut set, &mut plain));
        theirs.into_iter().for_each(|step| take(step, &mut other, &mut other_plain));
        prop_assert_eq!(set.ranges().collect::<Vec<_>>(), runs_of(&plain));
        prop_assert_eq!(other.ranges().collect::<Vec<_>>(), runs_of(&other_plain));

        other.ranges().for_each(|range| insert_plain(&mut plain, range));
        set.merge(&other);
        prop_assert_eq!(set.ranges().collect::<Vec<_>>(), runs_of(&plain));
    }

    #[test]
    fn taken_from_the_front_it_ends(steps in vec(a_step(), 0..60), most in 1..300u32) {
        let (mut set, mut plain) = (RangeSet::default(), Plain::new());
        steps.into_iter().for_each(|step| take(step, &mut set, &mut plain));
        let mut taken = Vec::new();
        while let Some(range) = set.first(most) {
            set.remove(range);
            taken.extend(blocks_of(range));
        }
        prop_assert_eq!(taken, plain.into_iter().collect::<Vec<_>>());
        prop_assert_eq!(set, RangeSet::default());
    }
}
