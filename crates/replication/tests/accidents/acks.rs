//! What counts as durable on another copy, and what is still missing there.

use coquina_replication::{ChangedSet, Missing, MissingSets};

use super::*;

fn entry(sequence: u64) -> Entry {
    Entry { epoch: 1, sequence, session: 9, request: sequence, is_last: true, ..part_of_nothing() }
}

fn block(first: u32) -> BlockRange {
    BlockRange { first, ..part_of_nothing().range }
}

fn first_epoch() -> History {
    History::from_runs(vec![Run { epoch: 1, first_sequence: 1 }]).unwrap_or_default()
}

/// A backup that has been sent entries 1 to 3.
fn backup_with_three_entries() -> Driver {
    let (mut driver, _) = Driver::open(config(1, &[OTHER, ME], &[]));
    driver.input(Input::Connected(OTHER));
    for sequence in 1..=3 {
        let previous_epoch = u64::from(sequence > 1);
        let message = Message::Append { config_epoch: 1, previous_epoch, commit: 0, entry: entry(sequence) };
        assert_eq!(driver.input(Input::Message(OTHER, message)), [Action::Append(entry(sequence))]);
    }
    driver
}

/// What is in its log is lost with its power until the drive has it.
#[test]
fn a_backup_acknowledges_what_is_durable_and_not_what_it_has_been_sent() {
    let mut driver = backup_with_three_entries();
    let ack = |durable| {
        let message = Message::AppendAck { config_epoch: 1, durable };
        [Action::Send { to: OTHER, message }]
    };
    assert_eq!(driver.input(Input::Durable { records: 1 }), ack(1));
    assert_eq!(driver.input(Input::Durable { records: 3 }), ack(3));
}

#[test]
fn a_backup_says_to_a_greeting_how_much_of_its_log_is_durable() {
    let mut driver = backup_with_three_entries();
    driver.input(Input::Durable { records: 2 });
    let greeting = Message::Configure { config: config(1, &[OTHER, ME], &[]) };
    let message = Message::State { config_epoch: 1, history: first_epoch(), last: 3, durable: 2 };
    let said = driver.input(Input::Message(OTHER, greeting));
    assert_eq!(said, [Action::Send { to: OTHER, message }]);
}

/// It has been sent them over a connection that broke, and its power may go.
#[test]
fn a_primary_counts_what_is_durable_on_a_backup_and_not_where_its_log_ends() {
    let mut driver = serving_with_a_backup();
    for token in [1, 2] {
        driver.request(token, 1, EntryKind::Write);
        driver.append(token, EntryKind::Write);
    }
    assert_eq!(driver.sync(), []);
    driver.input(Input::Disconnected(OTHER));
    driver.input(Input::Connected(OTHER));
    let state = Message::State { config_epoch: 1, history: first_epoch(), last: 2, durable: 1 };
    let actions = driver.input(Input::Message(OTHER, state));
    assert!(actions.contains(&Action::Answer(Token(1))), "{actions:?}");
    assert!(!actions.contains(&Action::Answer(Token(2))), "{actions:?}");
    let actions = driver.input(Input::Message(OTHER, Message::AppendAck { config_epoch: 1, durable: 2 }));
    assert_eq!(actions, [Action::Commit(2), Action::Answer(Token(2))]);
}

/// The configuration that adds it says nothing of what was sent to it since it was proposed.
#[test]
fn a_copy_that_has_been_added_counts_only_for_what_it_has_acknowledged() {
    let mut driver = serving_with_a_learner();
    let two = config(2, &[ME], &[OTHER]);
    let actions = driver.input(stream_ack(OTHER, 1, 0));
    assert!(actions.contains(&Action::Propose(two.with(OTHER))), "{actions:?}");
    driver.request(1, 1, EntryKind::Write);
    driver.append(1, EntryKind::Write);
    driver.input(Input::Config(two.with(OTHER)));
    driver.sync();
    assert_eq!((driver.group.config().epoch, driver.group.committed()), (3, 0));
    let history = History::from_runs(vec![Run { epoch: 2, first_sequence: 1 }]).unwrap_or_default();
    let state = Message::State { config_epoch: 3, history, last: 1, durable: 0 };
    driver.input(Input::Message(OTHER, state));
    assert_eq!(driver.group.committed(), 0);
    let actions = driver.input(Input::Message(OTHER, Message::AppendAck { config_epoch: 3, durable: 1 }));
    assert_eq!(actions, [Action::Commit(1), Action::Answer(Token(1))]);
}

/// Two clients count their requests from 1 on.
#[test]
fn requests_of_different_sessions_with_the_same_number_are_different_requests() {
    let mut driver = Driver::alone();
    let request = |token, session| {
        Input::Request(ClientRequest {
            token: Token(token),
            session,
            request: 1,
            volume: 5,
            generation: 1,
            kind: EntryKind::Write,
        })
    };
    assert_eq!(driver.input(request(1, 9)), [Action::Submit(Token(1))]);
    assert_eq!(driver.input(request(2, 10)), [Action::Submit(Token(2))], "the first is at the engine");
    driver.append(1, EntryKind::Write);
    assert_eq!(driver.input(request(3, 11)), [Action::Submit(Token(3))], "the first is in the log");
    assert_eq!(driver.sync(), [Action::Commit(1), Action::Answer(Token(1))]);
    assert_eq!(driver.input(request(4, 12)), [Action::Submit(Token(4))], "the first is committed");
}

/// A primary that serves under epoch 3, and a copy that is out: it missed blocks 0 to 2 by entries above 5, the last one.
fn with_a_copy_that_missed_three_blocks() -> Driver {
    let mut missing = MissingSets::default();
    let mut set = RangeSet::default();
    set.insert(BlockRange { count: 3, ..block(0) });
    missing.insert(OTHER, Missing { base: 5, set });
    let start = Start {
        config: config(2, &[ME], &[OTHER]),
        history: first_epoch(),
        last: 5,
        committed: 5,
        missing,
        intact: true,
        ..Start::default()
    };
    let group = Group::new(Settings::for_tests(ME), start, 10_000, &mut Vec::new());
    let mut driver = Driver { group, now_ns: 11_100, records: 0 };
    driver.input(Input::Config(config(3, &[ME], &[OTHER])));
    driver.sync();
    driver.input(Input::Tick);
    assert!(driver.group.is_serving());
    driver.input(Input::Connected(OTHER));
    driver
}

/// It says where its log ends and what it may miss in that, and follows.
fn follows_from(driver: &mut Driver, last: u64, incomplete_since: Option<u64>) -> Vec<Action> {
    let state = Message::JoinState {
        config_epoch: 3,
        history: first_epoch(),
        last,
        committed: last,
        incomplete_since,
        intact: true,
    };
    driver.input(Input::Message(OTHER, state));
    driver.input(Input::Message(OTHER, Message::CutDone { config_epoch: 3, ranges: Vec::new() }))
}

/// One entry less, and its blocks are in no set.
#[test]
fn a_copy_that_has_not_everything_up_to_the_base_is_compared() {
    for (last, incomplete_since, is_compared) in
        [(5, None, false), (4, None, true), (5, Some(5), false), (5, Some(4), true)]
    {
        let mut driver = with_a_copy_that_missed_three_blocks();
        let actions = follows_from(&mut driver, last, incomplete_since);
        let compares = actions.iter().any(|action| matches!(action, Action::Compare { copy: OTHER, .. }));
        assert_eq!(compares, is_compared, "{last}, {incomplete_since:?}: {actions:?}");
    }
}

/// The token of the read that was asked for.
fn read_of(actions: &[Action], range: BlockRange) -> Input {
    let token = actions.iter().find_map(|action| match action {
        Action::ReadForRecovery { token, range: wanted, .. } if *wanted == range => Some(*token),
        _ => None,
    });
    let Some(token) = token else { panic!("{range:?} is not read: {actions:?}") };
    Input::RecoveryRead { token, payload: PayloadRef(0) }
}

fn ack(position: u64, durable: u64) -> Input {
    Input::Message(OTHER, Message::StreamAck { config_epoch: 3, position, durable })
}

/// Its connection may break before that is so: then it is sent again.
#[test]
fn a_block_is_missing_until_its_push_is_durable() {
    let mut driver = with_a_copy_that_missed_three_blocks();
    let is_missing = |driver: &Driver| {
        let missing = driver.group.missing(OTHER).map(|missing| &missing.set);
        [0, 1, 2].map(|number| missing.is_some_and(|set| set.intersects(block(number))))
    };
    let actions = follows_from(&mut driver, 5, None);
    let actions = driver.input(read_of(&actions, block(0)));
    driver.input(read_of(&actions, block(1)));
    assert_eq!(is_missing(&driver), [true; 3]);
    driver.input(ack(0, 5));
    assert_eq!(is_missing(&driver), [true; 3], "nothing of the stream is durable");
    let actions = driver.input(ack(1, 5));
    assert_eq!(is_missing(&driver), [false, true, true]);
    driver.input(read_of(&actions, block(2)));
    driver.input(ack(3, 5));
    assert_eq!(is_missing(&driver), [false; 3]);
}

/// A change in the stream may be cut when the stream breaks, so it takes no block out of what is missing, nor does a push of the
/// block before it.
#[test]
fn a_block_of_which_a_change_was_sent_is_missing_until_the_copy_is_in_sync() {
    let mut driver = with_a_copy_that_missed_three_blocks();
    let actions = follows_from(&mut driver, 5, None);
    driver.input(read_of(&actions, block(0)));
    driver.request(1, 1, EntryKind::Write);
    driver.append(1, EntryKind::Write);
    driver.input(ack(1, 5));
    let missing =
        |driver: &Driver| driver.group.missing(OTHER).is_some_and(|one| one.set.intersects(block(0)));
    assert!(missing(&driver), "the push is durable, the change is not");
    driver.input(ack(2, 6));
    assert!(missing(&driver));
}

/// It may be the primary when the copy that is out comes back.
#[test]
fn a_backup_notes_what_is_missing_on_a_copy_that_is_out() {
    let (mut driver, _) = Driver::open(config(1, &[OTHER, ME], &[THIRD]));
    driver.input(Input::Connected(OTHER));
    driver.input(Input::Config(config(2, &[OTHER, ME], &[THIRD])));
    driver.sync();
    let first = Entry { epoch: 2, ..entry(1) };
    let message = Message::Append { config_epoch: 2, previous_epoch: 0, commit: 0, entry: first };
    assert_eq!(driver.input(Input::Message(OTHER, message)), [Action::Append(first)]);
    assert!(driver.group.missing(THIRD).is_some_and(|missing| missing.set.intersects(first.range)));
}

/// The number alone does not say that it follows.
#[test]
fn an_entry_behind_one_of_another_epoch_is_not_taken() {
    let mut driver = backup_with_three_entries();
    let fourth = Entry { epoch: 2, ..entry(4) };
    let message = Message::Append { config_epoch: 1, previous_epoch: 2, commit: 0, entry: fourth };
    let actions = driver.input(Input::Message(OTHER, message));
    assert_eq!(actions, [Action::Violation(Violation::Gap { expected: 4, got: 4 })]);
}

/// It was known to be done though a copy that has it had left: as one whose change is in the log, it is not answered before there are enough.
#[test]
fn a_write_that_changes_nothing_is_not_answered_with_too_few_copies() {
    let (mut driver, two) = asked_for_a_write_that_two_must_have();
    driver.input(Input::Config(two.without(OTHER)));
    driver.sync();
    let actions = driver.input(Input::Unchanged { token: Token(1) });
    assert_eq!(actions, [refuse(1, Refusal::TooFewCopies)]);
}
