//! Records of placement groups of which each takes several entries.

use coquina_replication::{BlockRange, CopyId, Recovery, Sessions, Window};

use super::*;
use crate::groups::{Group, Record};

const GROUP: u32 = 1;

/// Sessions whose windows take as many bytes as they can, and fences.
fn sessions_of(sessions: u64, fences: u64) -> Sessions {
    let mut table = Sessions::default();
    for session in 1..=sessions {
        let seen = std::array::from_fn(|word| 0x5555_5555_5555_5555 << (session % 2) ^ word as u64);
        let parts = vec![(session, 16), (session + 1, 32)];
        let window = Window { used: session, highest: 9_000 + session, parts, seen };
        assert!(window.seen.iter().all(|word| *word != 0 && *word != u64::MAX));
        table.windows.insert(session, window);
    }
    (1..=fences).for_each(|volume| table.fence(u128::from(volume) << 64 | 1, volume));
    table
}

fn session_table(world: &World) -> Sessions {
    world.shard.group_start(GROUP).unwrap().sessions
}

#[test]
fn a_session_table_of_any_length_fits_the_smallest_segments() {
    for (sessions, fences) in [(0, 0), (100, 0), (0, 2_500), (1_024, 2_500), (1, 1)] {
        let table = sessions_of(sessions, fences);
        let record = Record::Sessions(table.clone());
        let lengths: Vec<usize> = record.parts().iter().map(Vec::len).collect();
        assert!(lengths.iter().all(|length| *length <= 24 << 10), "{lengths:?}");
        let mut world = World::new();
        // What was there is replaced, not added to.
        world.shard.submit_record(GROUP, &Record::Sessions(sessions_of(3, 3_000)));
        world.settle();
        world.shard.submit_record(GROUP, &record);
        world.settle();
        assert_eq!(world.shard.group(GROUP).unwrap().records, 2, "each counts once");
        assert!(session_table(&world) == table, "{sessions} sessions, {fences} fences");
        let world = world.reopen();
        assert!(session_table(&world) == table, "{sessions} sessions, {fences} fences, after a start");
    }
}

/// As older programs cut them: by the number of sessions, with all fences in the first part.
#[test]
fn parts_of_a_session_table_add_up_however_they_were_cut() {
    let table = sessions_of(40, 9);
    let mut cut = [Sessions::default(), Sessions::default(), Sessions::default()];
    for (index, (session, window)) in table.windows.iter().enumerate() {
        cut[index / 15].windows.insert(session, window.clone());
    }
    for fences in [[9, 0, 0], [2, 3, 4]] {
        let mut group = Group::default();
        let mut left = table.fences.clone().into_iter();
        for (index, part) in cut.iter().enumerate() {
            let fences = left.by_ref().take(fences[index]).collect();
            let part = Record::Sessions(Sessions { fences, windows: part.windows.clone() });
            group.apply_record(part, index > 0, CopyId(1));
        }
        assert!(group.sessions == table, "fences cut {fences:?}");
    }
}

#[test]
fn the_longest_cut_fits_the_smallest_segments() {
    let range = |number| BlockRange { layer: LAYER, chunk: number / 512, first: number % 512 * 2, count: 1 };
    let beyond: Vec<BlockRange> = (0..Recovery::RUNS_MAX as u32).map(range).collect();
    let recovery = Recovery { since: 0, beyond };
    let mut world = World::new();
    // Wherever in a segment it falls.
    for _ in 0..9 {
        world.shard.submit_record(GROUP, &Record::Cut { at: 0, recovery: recovery.clone() });
        world.change(write_of(1, 0, 0, &[7; BLOCK_BYTES]));
    }
    let world = world.reopen();
    assert_eq!(world.shard.group_start(GROUP).unwrap().recovery, Some(recovery));
}

/// What is one entry on one copy must be one on each: where a frame held less, a copy could not go on.
#[test]
fn an_entry_of_any_copy_fits_the_smallest_segments_of_drives_for_use() {
    use crate::geometry::COPY_SEGMENT_BYTES_MIN;

    let mut largest = formatted(128 << 20, 4 << 20, false);
    let blocks = open(&mut largest).part_blocks_max();
    for (segment_bytes, is_taken) in [(COPY_SEGMENT_BYTES_MIN, true), (COPY_SEGMENT_BYTES_MIN / 2, false)] {
        let mut drive = formatted(16 << 20, segment_bytes, false);
        let shard = open(&mut drive);
        let mut world = World::of(drive, shard, 1);
        let payload = vec![5; blocks as usize * BLOCK_BYTES];
        let origin = Origin { group: GROUP, epoch: 1, sequence: 1, ..Origin::default() };
        world.shard.submit(Request { origin, ..write_of(1, 0, 0, &payload) });
        world.settle();
        let outcome = world.outcome(1);
        assert_eq!(matches!(outcome, Some(Outcome::Changed)), is_taken, "{segment_bytes}: {outcome:?}");
    }
}
