//! What copies that return forget.

use coquina_replication::{ChangedSet, Recovery, encode_message};

use super::*;

/// A copy that is out, whose log holds this many entries of one block that never were committed; it is asked what it has.
fn out_with(entries: u64, range_of: impl Fn(u64) -> BlockRange) -> (Driver, Vec<Action>) {
    let entry = |sequence| Entry { epoch: 1, sequence, range: range_of(sequence), ..part_of_nothing() };
    let start = Start {
        config: config(2, &[OTHER], &[ME]),
        history: History::from_runs(vec![Run { epoch: 1, first_sequence: 1 }]).unwrap_or_default(),
        last: entries,
        uncommitted: (1..=entries).map(entry).collect(),
        intact: true,
        ..Start::default()
    };
    asked_what_it_has(start)
}

fn asked_what_it_has(start: Start<RangeSet>) -> (Driver, Vec<Action>) {
    let config = start.config.clone();
    let group = Group::new(Settings::for_tests(ME), start, 10_000, &mut Vec::new());
    let mut driver = Driver { group, now_ns: 10_000, records: 0 };
    driver.input(Input::Connected(OTHER));
    let actions = driver.input(Input::Message(OTHER, Message::JoinQuery { config }));
    (driver, actions)
}

/// Has it forget all entries; gives what goes into the log and what the primary is told.
fn cut_all(driver: &mut Driver) -> (Recovery, Vec<BlockRange>) {
    let actions = driver.input(Input::Message(OTHER, Message::Cut { config_epoch: 2, at: 0 }));
    let [Action::Cut { at: 0, recovery }] = &actions[..] else { panic!("{actions:?}") };
    driver.records += 1;
    let told = driver.sync();
    let [Action::Send { to: OTHER, message: Message::CutDone { ranges, .. } }] = &told[..] else {
        panic!("{told:?}")
    };
    (recovery.clone(), ranges.clone())
}

fn is_intact(actions: &[Action]) -> bool {
    let [Action::Send { message: Message::JoinState { intact, .. }, .. }] = actions else {
        panic!("{actions:?}")
    };
    *intact
}

/// The record of the cut was as long as there were entries, and what fits no segment ended the process, at each start again.
#[test]
fn what_a_copy_with_many_scattered_entries_forgets_fits_its_log() {
    const CHUNKS: u32 = 500;
    // In each chunk blocks of which each next one lies further off.
    let range_of = |sequence: u64| {
        let (chunk, place) = (sequence as u32 % CHUNKS, (sequence as u32 - 1) / CHUNKS);
        BlockRange { layer: LayerId(1), chunk, first: 2 * place * place, count: 1 }
    };
    let (mut driver, actions) = out_with(10_000, range_of);
    assert!(is_intact(&actions));
    let (recovery, ranges) = cut_all(&mut driver);
    assert_eq!(recovery.beyond, ranges);
    assert!(ranges.len() <= Recovery::RUNS_MAX, "{} runs", ranges.len());
    let mut told = RangeSet::default();
    ranges.iter().for_each(|range| told.insert(*range));
    (1..=10_000).for_each(|sequence| assert!(told.intersects(range_of(sequence)), "{sequence}"));
    let blocks: u32 = ranges.iter().map(|range| range.count).sum();
    assert!(blocks < CHUNKS * 1_024, "no more than has to be");
}

/// In more chunks than the log has room for runs. The primary is told of all of them, and after a restart compares all.
#[test]
fn a_copy_that_cannot_keep_what_it_has_forgotten_is_compared() {
    const ENTRIES: u64 = Recovery::RUNS_MAX as u64 + 1;
    let range_of =
        |sequence: u64| BlockRange { layer: LayerId(1), chunk: sequence as u32, first: 7, count: 1 };
    let (mut driver, actions) = out_with(ENTRIES, range_of);
    assert!(is_intact(&actions));
    let (recovery, ranges) = cut_all(&mut driver);
    assert_eq!(ranges, (1..=ENTRIES).map(range_of).collect::<Vec<_>>());
    // The connection breaks: what it has forgotten is still known.
    driver.input(Input::Disconnected(OTHER));
    driver.input(Input::Connected(OTHER));
    let config = config(2, &[OTHER], &[ME]);
    let query = Message::JoinQuery { config: config.clone() };
    assert!(is_intact(&driver.input(Input::Message(OTHER, query))));
    assert_eq!(cut_all(&mut driver).1, ranges);
    let start = Start { config, recovery: Some(recovery), intact: true, ..Start::default() };
    let (mut driver, actions) = asked_what_it_has(start);
    assert!(!is_intact(&actions));
    let (recovery, ranges) = cut_all(&mut driver);
    assert_eq!((recovery, ranges), (Recovery::default(), Vec::new()), "and it stays so");
}

/// In more chunks than a message has room for: it would have ended the process that sends it.
#[test]
fn a_copy_that_cannot_say_what_it_has_forgotten_is_compared() {
    /// What `coquina-protocol` takes as one frame (`PEER_FRAME_BYTES_MAX`).
    const FRAME_BYTES_MAX: usize = 8 << 20;
    const ENTRIES: u64 = Recovery::RUNS_SENT_MAX as u64;
    let range_of = |sequence: u64| {
        let (layer, chunk) = (LayerId(1 + sequence % 2), sequence as u32 / 2);
        BlockRange { layer, chunk, first: 7, count: 1 }
    };
    let (mut driver, actions) = out_with(ENTRIES, range_of);
    assert!(is_intact(&actions));
    let (_, ranges) = cut_all(&mut driver);
    assert_eq!(ranges.len() as u64, ENTRIES);
    let mut bytes = Vec::new();
    encode_message(&Message::CutDone { config_epoch: 2, ranges }, 0, &mut bytes);
    assert!(bytes.len() < FRAME_BYTES_MAX, "{} bytes", bytes.len());
    let (mut driver, actions) = out_with(ENTRIES + 1, range_of);
    assert!(!is_intact(&actions), "the primary compares all");
    let (recovery, ranges) = cut_all(&mut driver);
    assert_eq!((recovery, ranges), (Recovery::default(), Vec::new()));
    // The connection breaks.
    driver.input(Input::Disconnected(OTHER));
    driver.input(Input::Connected(OTHER));
    let query = Message::JoinQuery { config: config(2, &[OTHER], &[ME]) };
    assert!(!is_intact(&driver.input(Input::Message(OTHER, query))), "and it stays so");
    // Many entries of few chunks can be named.
    let (_, actions) = out_with(ENTRIES + 1, |sequence| range_of(sequence % 1_000));
    assert!(is_intact(&actions));
}
