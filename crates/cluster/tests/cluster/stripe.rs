//! Striping and the choice of groups, against plain models.

use coquina_base::{BLOCK_BYTES, CHUNK_BYTES, VOLUME_BYTES_MAX};
use coquina_cluster::{
    ChunkPlace, GroupId, PoolId, PoolRecord, PoolState, Striping, chunks_of_group, group_of,
};
use proptest::prelude::*;

fn stripings() -> impl Strategy<Value = Striping> {
    (12u32..=22, 1u32..=20)
        .prop_map(|(power, stripe_count)| Striping { stripe_unit_bytes: 1 << power, stripe_count })
}

fn pool(group_first: u32, group_count: u32) -> PoolRecord {
    PoolRecord {
        id: PoolId(1),
        name: "p".to_owned(),
        copies: 3,
        min_copies: 1,
        domain: "node".to_owned(),
        group_first: GroupId(group_first),
        group_count,
        state: PoolState::Active,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn both_directions_are_inverse(striping in stripings(), offset in 0u64..VOLUME_BYTES_MAX / 2) {
        let place = striping.chunk_of(offset);
        prop_assert!(u64::from(place.offset_bytes) < CHUNK_BYTES);
        prop_assert_eq!(striping.offset_of(place), offset);
    }

    #[test]
    fn every_place_of_a_chunk_is_a_byte_of_the_volume(
        striping in stripings(), chunk in 0u32..1 << 30, offset_bytes in 0u32..CHUNK_BYTES as u32,
    ) {
        let place = ChunkPlace { chunk, offset_bytes };
        prop_assert_eq!(striping.chunk_of(striping.offset_of(place)), place);
    }

    /// A volume uses each chunk from its beginning without gaps, and the chunks that it uses add up to its size.
    #[test]
    fn used_bytes_add_up_for_sizes_that_are_no_multiples(striping in stripings(), blocks in 1u64..40_000) {
        let size_bytes = blocks * BLOCK_BYTES as u64;
        let chunks = striping.chunks(size_bytes);
        let used = |chunk: u64| u64::from(striping.chunk_used_bytes(chunk as u32, size_bytes));
        prop_assert_eq!((0..chunks).map(used).sum::<u64>(), size_bytes);
        prop_assert!((0..chunks).all(|chunk| used(chunk) > 0));
        prop_assert_eq!(used(chunks), 0);
        for chunk in [0, chunks / 2, chunks - 1] {
            let bytes = used(chunk) as u32;
            let offset = |offset_bytes| striping.offset_of(ChunkPlace { chunk: chunk as u32, offset_bytes });
            prop_assert!(offset(bytes - 1) < size_bytes);
            prop_assert!(u64::from(bytes) == CHUNK_BYTES || offset(bytes) >= size_bytes);
        }
    }

    #[test]
    fn extents_cover_a_range_once_and_lie_together(
        striping in stripings(), offset in 0u64..1 << 34, length in 0u64..64 << 20,
    ) {
        let mut next = offset;
        for extent in striping.extents(offset, length) {
            prop_assert_eq!(extent.volume_offset_bytes, next);
            prop_assert!(extent.length_bytes > 0);
            let last = u64::from(extent.length_bytes) - 1;
            let end = ChunkPlace {
                offset_bytes: extent.place.offset_bytes + last as u32,
                ..extent.place
            };
            prop_assert_eq!(striping.chunk_of(next), extent.place);
            prop_assert_eq!(striping.chunk_of(next + last), end);
            next += last + 1;
        }
        prop_assert_eq!(next, offset + length);
    }

    #[test]
    fn a_run_of_chunks_is_even_over_groups_and_splitting_moves_nothing_else(
        family: u64, from in 0u32..1 << 31, power in 0u32..12,
    ) {
        let before = pool(1 << 18, 1 << power);
        let after = pool(1 << 18, 2 << power);
        let mut seen = vec![0; 1 << power];
        for chunk in from..from + (1 << power) {
            let group = group_of(&before, family, chunk);
            prop_assert!(before.has_group(group));
            seen[(group.0 - before.group_first.0) as usize] += 1;
            let child = group_of(&after, family, chunk).0;
            prop_assert!(child == group.0 || child == group.0 + before.group_count);
        }
        prop_assert!(seen.iter().all(|count| *count == 1));
    }
}

#[test]
fn a_stripe_is_written_out() {
    let striping = Striping { stripe_unit_bytes: 1 << 20, stripe_count: 3 };
    let chunk = |mebibyte: u64| striping.chunk_of(mebibyte << 20).chunk;
    assert_eq!((0..14).map(chunk).collect::<Vec<_>>(), [0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2, 3, 4]);
    assert_eq!(striping.chunk_of((13 << 20) + 5), ChunkPlace { chunk: 4, offset_bytes: 5 });
    assert_eq!(striping.chunk_of(4 << 20), ChunkPlace { chunk: 1, offset_bytes: 1 << 20 });
}

#[test]
fn what_does_not_fit_is_refused() {
    let check = |stripe_unit_bytes, stripe_count, size_bytes| {
        Striping { stripe_unit_bytes, stripe_count }.check(size_bytes)
    };
    assert!(check(4 << 20, 1, VOLUME_BYTES_MAX).is_ok());
    assert!(check(65536, 4, VOLUME_BYTES_MAX - 3 * CHUNK_BYTES).is_ok());
    for (unit, count) in [(0, 1), (512, 1), (12288, 1), (8 << 20, 1), (65536, 0), (65536, 4097)] {
        assert!(check(unit, count, 1 << 30).is_err(), "{unit} {count}");
    }
    assert!(
        check(4096, 2, VOLUME_BYTES_MAX - 4096).unwrap_err().to_string().contains("smaller stripe count")
    );
}

/// Part of the format: a change would lose every volume's data.
#[test]
fn the_chunks_of_a_group_are_those_that_lie_in_it() {
    for (group_first, group_count) in [(0, 1), (7, 8), (64, 64)] {
        let pool = pool(group_first, group_count);
        for family in [0, 1, 77, u64::MAX] {
            for group in (group_first..group_first + group_count).map(GroupId) {
                for chunks in [0, 1, 5, 200] {
                    let found: Vec<u32> = chunks_of_group(&pool, family, group, chunks).collect();
                    let asked = (0..chunks).filter(|chunk| group_of(&pool, family, *chunk) == group);
                    assert_eq!(found, asked.collect::<Vec<u32>>());
                }
            }
        }
    }
}

#[test]
fn the_group_of_a_chunk_never_changes() {
    let pool = pool(0, 1 << 18);
    let groups: Vec<u32> = [(0, 0), (1, 0), (1, 1), (0xdead_beef, 77)]
        .map(|(family, chunk)| group_of(&pool, family, chunk).0)
        .into();
    // The first is the known first output of splitmix64 from 0, 0xe220a8397b1dcdaf.
    assert_eq!(groups, [0x1cdaf, 154_817, 154_818, 125_928]);
}
