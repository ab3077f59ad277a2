//! When segments may be written again.

use super::*;

fn fill(table: &mut SegmentTable, head: Head, last_frame: u64, live: u32) -> u32 {
    let segment = table.take(head).unwrap();
    table.open(segment, head);
    table.add_live(segment, live);
    table.get_mut(segment).last_frame = last_frame;
    table.close(segment);
    segment
}

#[test]
fn a_data_segment_waits_for_a_checkpoint_that_covers_it() {
    let mut table = SegmentTable::new(4, false);
    let segment = fill(&mut table, Head::Hot, 10, 3);
    table.remove_live(segment, 3);
    assert_eq!((table.pending(), table.available()), (1, 3));
    table.era += 1;
    table.checkpoint_complete(1, 9);
    assert_eq!((table.pending(), table.available()), (1, 3), "frame 10 is not covered by 9");
    table.era += 1;
    table.checkpoint_complete(2, 10);
    assert_eq!((table.pending(), table.available()), (0, 4));
}

#[test]
fn a_segment_of_index_pages_waits_for_a_checkpoint_begun_later() {
    let mut table = SegmentTable::new(4, false);
    let segment = fill(&mut table, Head::Meta, 10, 3);
    table.era = 1;
    table.remove_live(segment, 3);
    table.checkpoint_complete(1, 20);
    assert_eq!(table.pending(), 1, "the running checkpoint may name its pages");
    table.era = 2;
    table.checkpoint_complete(2, 30);
    assert_eq!(table.pending(), 0);
}

#[test]
fn readers_keep_a_segment() {
    let mut table = SegmentTable::new(4, false);
    let segment = fill(&mut table, Head::Hot, 10, 1);
    table.get_mut(segment).readers = 1;
    table.checkpoint_complete(0, 10);
    table.remove_live(segment, 1);
    assert_eq!((table.pending(), table.available()), (0, 3));
    table.remove_reader(segment);
    assert_eq!(table.available(), 4);
}

#[test]
fn the_table_comes_back_without_what_is_outdated() {
    let mut table = SegmentTable::new(4, false);
    let data = fill(&mut table, Head::Hot, 10, 5);
    let pages = fill(&mut table, Head::Meta, 11, 700);
    let mut outdated = HashMap::<u32, u32, FixedState>::default();
    outdated.insert(pages, 300);
    let mut bytes = Vec::new();
    table.encode(&outdated, &mut bytes);
    let mut back = SegmentTable::decode(&bytes, 4, false).unwrap();
    assert_eq!((back.get(data).live, back.get(pages).live), (5, 400));
    back.rebuild(&[None; 3], &[None; 3]);
    assert_eq!(back.available(), 2);
    assert_eq!(back.get(data).generation, table.get(data).generation);
    assert!(SegmentTable::decode(&bytes[1..], 4, false).is_none());
    bytes[24] = 9;
    assert!(SegmentTable::decode(&bytes, 4, false).is_none(), "an impossible state");
}

#[test]
fn a_checkpoint_remembers_what_was_prewritten() {
    let mut table = SegmentTable::new(6, true);
    for segment in 0..4 {
        assert_eq!(table.to_prewrite(4), Some(segment));
        table.prewritten(segment);
    }
    assert_eq!((table.to_prewrite(4), table.to_prewrite(5)), (None, Some(4)));
    let taken = fill(&mut table, Head::Hot, 1, 1);
    assert_eq!((taken, table.available(), table.unprepared()), (0, 3, 2));
    assert_eq!((table.unprepared_of(4), table.unprepared_of(9)), (1, 2));

    let mut bytes = Vec::new();
    table.encode(&HashMap::default(), &mut bytes);
    let mut read = SegmentTable::decode(&bytes, 6, true).unwrap();
    read.rebuild(&[Some(1)], &[]);
    assert_eq!((read.available(), read.unprepared(), read.to_prewrite(9)), (2, 2, Some(4)));
    assert_eq!((read.take(Head::Hot), read.take(Head::Hot), read.take(Head::Hot)), (Some(2), Some(3), None));
}

#[test]
fn what_is_needed_again_waits_for_no_checkpoint() {
    let mut table = SegmentTable::new(4, false);
    let pages = fill(&mut table, Head::Meta, 10, 3);
    let data = fill(&mut table, Head::Hot, 11, 3);
    table.remove_live(pages, 3);
    table.remove_live(data, 3);
    table.add_live(pages, 2);
    table.review_pending();
    assert_eq!((table.pending(), table.empty()), (1, 3));
    // Its emptiness counts anew.
    table.remove_live(pages, 2);
    assert_eq!(table.pending(), 2);
}

#[test]
fn what_is_read_still_becomes_free_only_if_a_checkpoint_covers_it() {
    let mut table = SegmentTable::new(4, false);
    let segment = fill(&mut table, Head::Hot, 10, 1);
    table.get_mut(segment).readers = 1;
    table.remove_live(segment, 1);
    assert!(!table.waits_for_readers(), "it waits for a checkpoint, too");
    table.checkpoint_complete(0, 10);
    assert!(table.waits_for_readers());
    table.remove_reader(segment);
    assert!(!table.waits_for_readers());
    assert_eq!(table.available(), 4);
}

/// Replay does not take its blocks again, so it must not begin where they are still counted.
#[test]
fn a_segment_of_a_deleted_layer_waits_for_a_checkpoint_begun_later() {
    let mut table = SegmentTable::new(4, false);
    let delete = |table: &mut SegmentTable, segment| {
        table.note_deleted(segment);
        table.remove_live(segment, 3);
    };
    let first = fill(&mut table, Head::Hot, 10, 3);
    table.checkpoint_begins();
    delete(&mut table, first);
    table.checkpoint_complete(1, 10);
    assert_eq!(table.pending(), 1, "the checkpoint began before");
    table.checkpoint_begins();
    table.checkpoint_complete(2, 10);
    assert_eq!(table.pending(), 0);
    let second = fill(&mut table, Head::Hot, 11, 3);
    table.checkpoint_complete(2, 11);
    delete(&mut table, second);
    assert_eq!(table.pending(), 1, "none has begun since");
    table.checkpoint_begins();
    table.checkpoint_complete(3, 11);
    assert_eq!((table.pending(), table.available()), (0, 4));
}
