//! Whom a primary suspects, and what becomes of what it has asked for.

use super::*;

/// What the backup says to the greeting under the first configuration: its log ends here, and all of that is durable.
fn state(last: u64) -> Input {
    let runs = if last > 0 { vec![Run { epoch: 1, first_sequence: 1 }] } else { Vec::new() };
    let history = History::from_runs(runs).unwrap_or_default();
    Input::Message(OTHER, Message::State { config_epoch: 1, history, last, durable: last })
}

fn write(driver: &mut Driver, token: u64) {
    driver.request(token, 1, EntryKind::Write);
    driver.append(token, EntryKind::Write);
    driver.sync();
}

/// The connection to the backup breaks; on the next one it says that its log ends at `last`, and grants.
fn reconnects(driver: &mut Driver, last: u64) {
    driver.input(Input::Disconnected(OTHER));
    driver.input(Input::Connected(OTHER));
    driver.input(state(last));
    let grant = Message::Grant { config_epoch: 1, sent_ns: driver.now_ns };
    driver.input(Input::Message(OTHER, grant));
}

/// It refuses an entry each time, say, and breaks off. No commit would ever come.
#[test]
fn a_backup_that_answers_and_breaks_off_time_and_again_is_suspected() {
    let without = Action::Propose(config(2, &[ME], &[OTHER]));
    let mut driver = serving_with_a_backup();
    write(&mut driver, 1);
    let mut proposed = None;
    for round in 0..50 {
        reconnects(&mut driver, 0);
        driver.now_ns += 100;
        if driver.input(Input::Tick).contains(&without) {
            proposed.get_or_insert(round);
        }
    }
    // A few greetings are forgiven, and then it has as long as one that is silent.
    assert!(proposed.is_some_and(|round| (15..25).contains(&round)), "{proposed:?}");
    assert_eq!(driver.group.committed(), 0);
}

/// One that gets on with each connection, or lacks nothing and grants, is not.
#[test]
fn a_backup_that_gets_on_is_not_suspected_however_often_its_connection_breaks() {
    let mut driver = serving_with_a_backup();
    (1..=50).for_each(|token| write(&mut driver, token));
    for round in 0..100 {
        reconnects(&mut driver, u64::min(round, 50));
        driver.now_ns += 100;
        assert!(!proposes(&driver.input(Input::Tick)), "{round}");
    }
    assert_eq!(driver.group.committed(), 50);
}

/// People decide which of the two has less: the coordinator must not, by what was asked for before.
#[test]
fn what_was_asked_for_is_taken_back_when_two_copies_contradict_each_other() {
    let without = config(2, &[ME], &[OTHER]);
    let mut driver = serving_with_a_backup();
    write(&mut driver, 1);
    driver.input(Input::Tick);
    driver.now_ns += 1_500;
    let actions = driver.input(Input::Tick);
    assert!(actions.contains(&Action::Propose(without.clone())), "{actions:?}");
    driver.input(Input::Disconnected(OTHER));
    driver.input(Input::Connected(OTHER));
    let actions = driver.input(state(2));
    let violation = Violation::LogsPart { one: ME, other: OTHER, at: 1 };
    let expected = [
        Action::Stop,
        refuse(1, Refusal::NotServing),
        Action::Withdraw(without),
        Action::Violation(violation),
    ];
    assert_eq!(actions, expected);
    driver.now_ns += 1_500;
    assert_eq!(driver.input(Input::Tick), []);
}
