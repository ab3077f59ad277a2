//! Copies that are compared as a whole.

use coquina_replication::RecoveryToken;

use super::*;

/// A copy says that it has nothing for certain, and follows; gives the name of the comparison, if all of it is to be compared, and what
/// is to be read for it.
fn follows_blank(driver: &mut Driver, copy: CopyId) -> (Option<RecoveryToken>, Vec<BlockRange>) {
    let config_epoch = driver.group.config().epoch;
    let state = Message::JoinState {
        config_epoch,
        history: Default::default(),
        last: 0,
        committed: 0,
        incomplete_since: Some(0),
        intact: false,
    };
    driver.input(Input::Message(copy, state));
    let actions = driver.input(Input::Message(copy, Message::CutDone { config_epoch, ranges: Vec::new() }));
    let compare = actions.iter().find_map(|action| match action {
        Action::Compare { token, copy: other } if *other == copy => Some(*token),
        _ => None,
    });
    let reads = actions.iter().filter_map(|action| match action {
        Action::ReadForRecovery { copy: other, range, .. } if *other == copy => Some(*range),
        _ => None,
    });
    (compare, reads.collect())
}

/// Alone, and two blank copies follow that are compared; gives the names of their comparisons.
fn with_two_blank_copies() -> (Driver, [RecoveryToken; 2]) {
    let (mut driver, _) = Driver::open(config(1, &[ME], &[OTHER, THIRD]));
    driver.input(Input::Config(config(2, &[ME], &[OTHER, THIRD])));
    driver.sync();
    let tokens = [OTHER, THIRD].map(|copy| {
        driver.input(Input::Connected(copy));
        follows_blank(&mut driver, copy).0.expect("it may have anything")
    });
    (driver, tokens)
}

/// Nothing differs on the first copy, which is added under epoch 3.
fn add_the_first(driver: &mut Driver, token: RecoveryToken) {
    driver.input(Input::Compared { copy: OTHER, token, ranges: Vec::new(), done: true });
    let ack = Message::StreamAck { config_epoch: 2, position: 1, durable: 0 };
    let with_it = config(2, &[ME], &[OTHER, THIRD]).with(OTHER);
    let actions = driver.input(Input::Message(OTHER, ack));
    assert!(actions.contains(&Action::Propose(with_it.clone())), "{actions:?}");
    driver.input(Input::Config(with_it.clone()));
    let query = Action::Send { to: THIRD, message: Message::JoinQuery { config: with_it } };
    let actions = driver.sync();
    assert!(actions.contains(&query), "{actions:?}");
}

fn differing() -> BlockRange {
    BlockRange { layer: LayerId(1), chunk: 3, first: 32, count: 16 }
}

/// What it missed was known, and all of the group was compared again for it: for each copy that was added before it.
#[test]
fn a_copy_that_was_compared_is_not_compared_again_when_another_one_is_added() {
    let (mut driver, [first, second]) = with_two_blank_copies();
    let ranges = vec![differing()];
    driver.input(Input::Compared { copy: THIRD, token: second, ranges, done: true });
    add_the_first(&mut driver, first);
    let (compare, reads) = follows_blank(&mut driver, THIRD);
    assert_eq!(compare, None);
    let [BlockRange { layer: LayerId(1), chunk: 3, first: 32, .. }] = reads[..] else { panic!("{reads:?}") };
    // With its connection something of it may have gone.
    driver.input(Input::Disconnected(THIRD));
    driver.input(Input::Connected(THIRD));
    assert!(follows_blank(&mut driver, THIRD).0.is_some());
}

#[test]
fn a_copy_that_was_not_compared_to_the_end_is_compared_again_when_another_one_is_added() {
    let (mut driver, [first, second]) = with_two_blank_copies();
    let ranges = vec![differing()];
    driver.input(Input::Compared { copy: THIRD, token: second, ranges, done: false });
    add_the_first(&mut driver, first);
    assert!(follows_blank(&mut driver, THIRD).0.is_some());
}
