//! What the model leaves out: the time between a request's submission and its append, fences, refusals, suspicion.

use coquina_base::LayerId;
use coquina_replication::{
    Action, BlockRange, ClientRequest, Config, CopyId, Entry, EntryKind, Group, History, Input, Message,
    PayloadRef, RangeSet, Refusal, Run, Settings, Start, Token, Violation,
};

#[path = "accidents/acks.rs"]
mod acks;
#[path = "accidents/comparisons.rs"]
mod comparisons;
#[path = "accidents/cuts.rs"]
mod cuts;
#[path = "accidents/suspects.rs"]
mod suspects;

const ME: CopyId = CopyId(1);
const OTHER: CopyId = CopyId(2);
const THIRD: CopyId = CopyId(3);

fn config(epoch: u64, in_sync: &[CopyId], others: &[CopyId]) -> Config {
    Config { epoch, in_sync: in_sync.to_vec(), others: others.to_vec(), min_copies: 1 }
}

struct Driver {
    group: Group<RangeSet>,
    now_ns: u64,
    records: u64,
}

impl Driver {
    fn open(config: Config) -> (Driver, Vec<Action>) {
        let start = Start { config, intact: true, ..Start::default() };
        let mut actions = Vec::new();
        let group = Group::new(Settings::for_tests(ME), start, 10_000, &mut actions);
        (Driver { group, now_ns: 10_000, records: 0 }, actions)
    }

    /// The only copy of its group, serving.
    fn alone() -> Driver {
        let (driver, actions) = Driver::open(config(1, &[ME], &[]));
        assert_eq!(actions, [Action::Serve { epoch: 1 }]);
        driver
    }

    fn input(&mut self, input: Input) -> Vec<Action> {
        let mut actions = Vec::new();
        self.group.apply(self.now_ns, input, &mut actions);
        let logs = |action: &&Action| matches!(action, Action::Append(_) | Action::Persist { .. });
        self.records += actions.iter().filter(logs).count() as u64;
        actions
    }

    fn request(&mut self, token: u64, generation: u64, kind: EntryKind) -> Vec<Action> {
        self.input(Input::Request(ClientRequest {
            token: Token(token),
            session: 9,
            request: token,
            volume: 5,
            generation,
            kind,
        }))
    }

    fn append(&mut self, token: u64, kind: EntryKind) -> Vec<Action> {
        self.append_part(token, kind, true)
    }

    fn append_part(&mut self, token: u64, kind: EntryKind, is_last: bool) -> Vec<Action> {
        let range = BlockRange { layer: LayerId(1), chunk: 0, first: 0, count: 1 };
        let entry = Entry {
            epoch: self.group.config().epoch,
            sequence: self.group.last() + 1,
            session: 9,
            request: token,
            kind,
            range,
            is_last,
            payload: PayloadRef(token),
        };
        self.records += 1;
        self.input(Input::Appended { token: Token(token), entry })
    }

    /// What was promised is over after 1,100 ns, and not before.
    fn serves_when_promises_are_over(&mut self) {
        self.now_ns += 1_099;
        self.input(Input::Tick);
        assert!(!self.group.is_serving());
        self.now_ns += 1;
        self.input(Input::Tick);
        assert!(self.group.is_serving());
    }

    /// A copy that is out and was asked what it has says that it has nothing, and begins to follow.
    fn follows(&mut self, copy: CopyId) -> Vec<Action> {
        let config_epoch = self.group.config().epoch;
        let state = Message::JoinState {
            config_epoch,
            history: Default::default(),
            last: 0,
            committed: 0,
            incomplete_since: None,
            intact: true,
        };
        self.input(Input::Message(copy, state));
        self.input(Input::Message(copy, Message::CutDone { config_epoch, ranges: Vec::new() }))
    }

    fn sync(&mut self) -> Vec<Action> {
        self.input(Input::Durable { records: self.records })
    }
}

fn refuse(token: u64, refusal: Refusal) -> Action {
    Action::Refuse { token: Token(token), refusal }
}

#[test]
fn a_retry_while_the_first_is_at_the_engine_is_answered_with_it() {
    let mut driver = Driver::alone();
    assert_eq!(driver.request(1, 1, EntryKind::Write), [Action::Submit(Token(1))]);
    let retry = Input::Request(ClientRequest {
        token: Token(77),
        session: 9,
        request: 1,
        volume: 5,
        generation: 1,
        kind: EntryKind::Write,
    });
    assert_eq!(driver.input(retry.clone()), []);
    assert_eq!(driver.append(1, EntryKind::Write), []);
    assert_eq!(driver.sync(), [Action::Commit(1), Action::Answer(Token(1)), Action::Answer(Token(77))]);
    assert_eq!(driver.input(retry), [Action::Answer(Token(77))]);
}

#[test]
fn a_request_of_several_entries_is_answered_and_remembered_with_the_last() {
    let mut driver = Driver::alone();
    let retry = |token| {
        Input::Request(ClientRequest {
            token: Token(token),
            session: 9,
            request: 1,
            volume: 5,
            generation: 1,
            kind: EntryKind::Write,
        })
    };
    assert_eq!(driver.request(1, 1, EntryKind::Write), [Action::Submit(Token(1))]);
    assert_eq!(driver.append_part(1, EntryKind::Write, false), []);
    assert_eq!(driver.sync(), [Action::Commit(1)]);
    assert_eq!(driver.input(retry(77)), [], "a part is not the request");
    assert!(!driver.group.sessions().contains(9, 1));
    assert_eq!(driver.append_part(1, EntryKind::Write, false), []);
    assert_eq!(driver.append_part(1, EntryKind::Write, true), []);
    assert_eq!(driver.input(retry(78)), []);
    let answers = [1, 77, 78].map(|token| Action::Answer(Token(token)));
    assert_eq!(driver.sync(), [vec![Action::Commit(3)], answers.to_vec()].concat());
    assert_eq!(driver.input(retry(79)), [Action::Answer(Token(79))]);
}

#[test]
fn a_request_of_which_a_part_was_logged_under_a_former_primary_is_done_again() {
    let part = Entry { sequence: 1, epoch: 1, session: 9, request: 1, ..part_of_nothing() };
    let history = History::from_runs(vec![Run { epoch: 1, first_sequence: 1 }]).unwrap();
    let start = Start {
        config: config(2, &[ME], &[]),
        history,
        last: 1,
        uncommitted: vec![part],
        intact: true,
        ..Start::default()
    };
    let mut actions = Vec::new();
    let group = Group::new(Settings::for_tests(ME), start, 10_000, &mut actions);
    let mut driver = Driver { group, now_ns: 11_100, records: 0 };
    // What it may have promised to the former primary is over.
    let actions = driver.input(Input::Tick);
    assert!(actions.contains(&Action::Serve { epoch: 2 }), "{actions:?}");
    assert_eq!(driver.request(1, 1, EntryKind::Write), [Action::Submit(Token(1))]);
}

/// A part of a request that is not its last.
fn part_of_nothing() -> Entry {
    Entry {
        epoch: 0,
        sequence: 0,
        session: 0,
        request: 0,
        kind: EntryKind::Write,
        range: BlockRange { layer: LayerId(1), chunk: 0, first: 0, count: 1 },
        is_last: false,
        payload: PayloadRef(0),
    }
}

#[test]
fn a_fence_waits_for_older_requests_at_the_engine() {
    let mut driver = Driver::alone();
    let fence = EntryKind::Fence { volume: 5, generation: 2 };
    assert_eq!(driver.request(1, 1, EntryKind::Write), [Action::Submit(Token(1))]);
    assert_eq!(driver.request(2, 2, fence), []);
    assert_eq!(driver.request(3, 1, EntryKind::Write), [refuse(3, Refusal::Fenced)]);
    assert_eq!(driver.append(1, EntryKind::Write), [Action::Submit(Token(2))]);
    assert_eq!(driver.append(2, fence), []);
    assert_eq!(driver.request(4, 1, EntryKind::Write), [refuse(4, Refusal::Fenced)]);
    assert_eq!(driver.request(5, 2, EntryKind::Write), [Action::Submit(Token(5))]);
}

#[test]
fn a_full_drive_refuses_and_the_request_may_come_again() {
    let mut driver = Driver::alone();
    driver.request(1, 1, EntryKind::Write);
    let refused = driver.input(Input::Refused { token: Token(1), no_space: true });
    assert_eq!(refused, [refuse(1, Refusal::NoSpace)]);
    assert_eq!(driver.request(1, 1, EntryKind::Write), [Action::Submit(Token(1))]);
}

#[test]
fn too_few_copies_refuse_writes_and_not_reads() {
    let (mut driver, _) = Driver::open(Config { min_copies: 2, ..config(1, &[ME], &[]) });
    assert_eq!(driver.request(1, 1, EntryKind::Write), [refuse(1, Refusal::TooFewCopies)]);
    assert_eq!(driver.input(Input::Read(Token(2))), [Action::Read(Token(2))]);
}

#[test]
fn a_deposed_primary_stops_before_it_has_persisted_anything() {
    let mut driver = Driver::alone();
    driver.request(1, 1, EntryKind::Write);
    driver.append(1, EntryKind::Write);
    driver.request(2, 1, EntryKind::Write);
    let newer = config(3, &[OTHER], &[ME]);
    let actions = driver.input(Input::Config(newer.clone()));
    assert_eq!(
        actions,
        [
            Action::Stop,
            refuse(1, Refusal::NotServing),
            refuse(2, Refusal::NotServing),
            Action::Persist { config: newer, committed: 0 }
        ]
    );
    assert_eq!(driver.request(3, 1, EntryKind::Write), [refuse(3, Refusal::NotServing)]);
    assert_eq!(driver.input(Input::Refused { token: Token(2), no_space: false }), []);
}

/// A primary that serves, with one backup.
fn serving_with_a_backup() -> Driver {
    let (mut driver, _) = Driver::open(config(1, &[ME, OTHER], &[]));
    driver.input(Input::Connected(OTHER));
    let state = Message::State { config_epoch: 1, history: Default::default(), last: 0, durable: 0 };
    driver.input(Input::Message(OTHER, state));
    assert!(driver.group.is_serving());
    driver
}

#[test]
fn a_silent_backup_is_proposed_for_removal_and_its_removal_commits() {
    let mut driver = serving_with_a_backup();
    driver.request(1, 1, EntryKind::Write);
    driver.append(1, EntryKind::Write);
    assert_eq!(driver.sync(), [], "the backup's ack is missing");
    driver.input(Input::Tick);
    driver.now_ns += 1_500;
    let without = config(2, &[ME], &[OTHER]);
    let actions = driver.input(Input::Tick);
    assert!(actions.contains(&Action::Propose(without.clone())), "{actions:?}");
    driver.input(Input::Config(without));
    let actions = driver.sync();
    assert!(actions.contains(&Action::Answer(Token(1))), "{actions:?}");
    assert!(driver.group.missing(OTHER).is_some_and(|missing| missing.base == 0));
}

fn proposes(actions: &[Action]) -> bool {
    actions.iter().any(|action| matches!(action, Action::Propose(_) | Action::Withdraw(_)))
}

#[test]
fn the_removal_of_a_backup_that_answers_again_is_taken_back() {
    let mut driver = serving_with_a_backup();
    driver.request(1, 1, EntryKind::Write);
    driver.append(1, EntryKind::Write);
    driver.sync();
    driver.input(Input::Tick);
    driver.now_ns += 1_500;
    let without = config(2, &[ME], &[OTHER]);
    let actions = driver.input(Input::Tick);
    assert!(actions.contains(&Action::Propose(without.clone())), "{actions:?}");
    let grant = |driver: &Driver| Message::Grant { config_epoch: 1, sent_ns: driver.now_ns };
    driver.input(Input::Message(OTHER, grant(&driver)));
    assert!(!proposes(&driver.input(Input::Tick)), "it lacks what it lacked then");
    driver.input(Input::Message(OTHER, Message::AppendAck { config_epoch: 1, durable: 1 }));
    let actions = driver.input(Input::Tick);
    assert!(actions.contains(&Action::Withdraw(without.clone())), "{actions:?}");
    // It is not asked for again.
    for _ in 0..4 {
        driver.now_ns += 800;
        driver.input(Input::Message(OTHER, grant(&driver)));
        assert!(!proposes(&driver.input(Input::Tick)));
    }
    // Until there is a reason.
    driver.now_ns += 900;
    assert!(!proposes(&driver.input(Input::Tick)));
    driver.now_ns += 1_500;
    let actions = driver.input(Input::Tick);
    assert!(actions.contains(&Action::Propose(without)), "{actions:?}");
}

/// Nothing but a configuration ends the addition of a copy that was proposed once.
#[test]
fn an_addition_is_asked_for_again_when_the_removal_in_its_place_is_taken_back() {
    let two = config(2, &[ME, OTHER], &[THIRD]);
    let (mut driver, _) = Driver::open(config(1, &[ME, OTHER], &[THIRD]));
    driver.input(Input::Connected(OTHER));
    driver.input(Input::Connected(THIRD));
    driver.input(Input::Config(two.clone()));
    driver.sync();
    let state = Message::State { config_epoch: 2, history: Default::default(), last: 0, durable: 0 };
    driver.input(Input::Message(OTHER, state));
    assert!(driver.group.is_serving());
    driver.follows(THIRD);
    let ack = Message::StreamAck { config_epoch: 2, position: 1, durable: 0 };
    let actions = driver.input(Input::Message(THIRD, ack));
    assert!(actions.contains(&Action::Propose(two.with(THIRD))), "{actions:?}");
    driver.input(Input::Tick);
    driver.now_ns += 1_500;
    let grant = Message::Grant { config_epoch: 2, sent_ns: driver.now_ns };
    driver.input(Input::Message(THIRD, grant.clone()));
    let actions = driver.input(Input::Tick);
    assert!(actions.contains(&Action::Propose(two.without(OTHER))), "{actions:?}");
    driver.input(Input::Message(OTHER, grant));
    let actions = driver.input(Input::Tick);
    let expected = [Action::Withdraw(two.without(OTHER)), Action::Propose(two.with(THIRD))];
    assert!(expected.iter().all(|action| actions.contains(action)), "{actions:?}");
}

/// Alone, and a copy that is out has begun to follow.
fn serving_with_a_learner() -> Driver {
    let (mut driver, _) = Driver::open(config(1, &[ME], &[OTHER]));
    driver.input(Input::Config(config(2, &[ME], &[OTHER])));
    driver.sync();
    assert!(driver.group.is_serving());
    driver.input(Input::Connected(OTHER));
    driver.follows(OTHER);
    driver
}

#[test]
fn commits_wait_for_a_copy_that_is_too_far_behind() {
    let mut driver = serving_with_a_learner();
    let ack = |durable| {
        let ack = Message::StreamAck { config_epoch: 2, position: 0, durable };
        Input::Message(OTHER, ack)
    };
    // The table of sessions, the first of the stream, is never acknowledged here, so the copy is not added.
    let write = |driver: &mut Driver, token| {
        driver.request(token, 1, EntryKind::Write);
        driver.append(token, EntryKind::Write);
        driver.sync()
    };
    assert_eq!(
        write(&mut driver, 1),
        [Action::Commit(1), Action::Answer(Token(1))],
        "it may be a block behind"
    );
    assert_eq!(write(&mut driver, 2), []);
    assert_eq!(write(&mut driver, 3), []);
    assert_eq!(driver.input(ack(1)), [], "it is two blocks behind, and has what is committed");
    let actions = driver.input(ack(2));
    assert_eq!(actions, [Action::Commit(3), Action::Answer(Token(2)), Action::Answer(Token(3))]);
}

/// What is on its way is bounded for the memory that it takes.
#[test]
fn commits_do_not_wait_for_a_copy_to_trim_many_blocks() {
    let mut driver = serving_with_a_learner();
    driver.request(1, 1, EntryKind::Trim);
    let part = part_of_nothing();
    let range = BlockRange { count: 1_000, ..part.range };
    let kind = EntryKind::Trim;
    let entry = Entry { epoch: 2, sequence: 1, session: 9, request: 1, kind, range, is_last: true, ..part };
    driver.records += 1;
    driver.input(Input::Appended { token: Token(1), entry });
    assert_eq!(driver.sync(), [Action::Commit(1), Action::Answer(Token(1))]);
}

#[test]
fn a_copy_that_holds_commits_up_and_does_nothing_is_asked_anew() {
    let mut driver = serving_with_a_learner();
    for token in [1, 2] {
        driver.request(token, 1, EntryKind::Write);
        driver.append(token, EntryKind::Write);
        driver.sync();
    }
    assert_eq!(driver.group.committed(), 1);
    assert_eq!(driver.input(Input::Tick), []);
    driver.now_ns += 1_499;
    assert_eq!(driver.input(Input::Tick), []);
    driver.now_ns += 1;
    let query = Message::JoinQuery { config: config(2, &[ME], &[OTHER]) };
    let actions = driver.input(Input::Tick);
    let expected = [Action::Send { to: OTHER, message: query }, Action::Commit(2), Action::Answer(Token(2))];
    assert_eq!(actions, expected);
    // What it says of the former stream counts no more, and it may follow again.
    let ack = Message::StreamAck { config_epoch: 2, position: 9, durable: 2 };
    assert_eq!(driver.input(Input::Message(OTHER, ack)), []);
    let actions = driver.follows(OTHER);
    let joins = |action: &Action| {
        matches!(action, Action::Send { to: OTHER, message: Message::Join { from: 3, .. } })
    };
    assert!(actions.iter().any(joins), "{actions:?}");
}

/// A grant says that a copy's process lives, not that its drive takes anything.
#[test]
fn a_copy_about_to_be_added_that_grants_and_acknowledges_nothing_is_asked_anew() {
    let mut driver = serving_with_a_learner();
    let write = |driver: &mut Driver, token| {
        driver.request(token, 1, EntryKind::Write);
        driver.append(token, EntryKind::Write);
        driver.sync();
    };
    write(&mut driver, 1);
    // It has the table of sessions, the last that it lacked, and not the write behind that.
    let ack = Message::StreamAck { config_epoch: 2, position: 1, durable: 0 };
    driver.input(Input::Message(OTHER, ack));
    write(&mut driver, 2);
    assert_eq!(driver.group.committed(), 1);
    driver.input(Input::Tick);
    let message = Message::JoinQuery { config: config(2, &[ME], &[OTHER]) };
    let query = Action::Send { to: OTHER, message };
    for is_asked in [false, false, true] {
        driver.now_ns += 500;
        let grant = Message::Grant { config_epoch: 2, sent_ns: driver.now_ns };
        driver.input(Input::Message(OTHER, grant));
        assert_eq!(driver.input(Input::Tick).contains(&query), is_asked);
    }
    assert_eq!(driver.group.committed(), 2);
}

/// The coordinator does not add a copy whose drive hangs, and says nothing. Nobody but the primary ends that, and commits wait.
#[test]
fn a_copy_proposed_for_addition_that_grants_and_acknowledges_nothing_holds_nobody_up_for_long() {
    let mut driver = serving_with_a_learner();
    let two = config(2, &[ME], &[OTHER]);
    let ack = Message::StreamAck { config_epoch: 2, position: 1, durable: 0 };
    let actions = driver.input(Input::Message(OTHER, ack));
    assert!(actions.contains(&Action::Propose(two.with(OTHER))), "{actions:?}");
    driver.request(1, 1, EntryKind::Write);
    driver.append(1, EntryKind::Write);
    assert_eq!(driver.sync(), [], "it needs that copy, too");
    driver.input(Input::Tick);
    for is_ended in [false, false, true] {
        driver.now_ns += 500;
        let grant = Message::Grant { config_epoch: 2, sent_ns: driver.now_ns };
        driver.input(Input::Message(OTHER, grant));
        let actions = driver.input(Input::Tick);
        assert_eq!(actions.contains(&Action::Propose(two.renewed())), is_ended, "{actions:?}");
    }
    assert_eq!(driver.group.committed(), 0, "only a configuration ends what was proposed");
    driver.input(Input::Config(two.renewed()));
    let actions = driver.sync();
    assert!(actions.contains(&Action::Answer(Token(1))), "{actions:?}");
    driver.request(2, 1, EntryKind::Write);
    driver.append(2, EntryKind::Write);
    assert!(driver.sync().contains(&Action::Answer(Token(2))));
}

/// Alone, and two copies that are out follow. A write is committed; the first one has what it missed, and not that.
fn serving_with_one_to_be_added_and_another() -> (Driver, Config) {
    let two = config(2, &[ME], &[OTHER, THIRD]);
    let (mut driver, _) = Driver::open(config(1, &[ME], &[OTHER, THIRD]));
    driver.input(Input::Config(two.clone()));
    driver.sync();
    for copy in [OTHER, THIRD] {
        driver.input(Input::Connected(copy));
        driver.follows(copy);
    }
    driver.request(1, 1, EntryKind::Write);
    driver.append(1, EntryKind::Write);
    assert_eq!(driver.sync(), [Action::Commit(1), Action::Answer(Token(1))]);
    assert!(!proposes(&driver.input(stream_ack(OTHER, 1, 0))));
    (driver, two)
}

fn stream_ack(copy: CopyId, position: u64, durable: u64) -> Input {
    Input::Message(copy, Message::StreamAck { config_epoch: 2, position, durable })
}

/// One is added at a time, and nobody writes any more.
#[test]
fn a_copy_that_has_all_is_added_when_the_one_before_it_has_gone() {
    let (mut driver, two) = serving_with_one_to_be_added_and_another();
    assert!(!proposes(&driver.input(stream_ack(THIRD, 2, 1))));
    let actions = driver.input(Input::Disconnected(OTHER));
    assert!(actions.contains(&Action::Propose(two.with(THIRD))), "{actions:?}");
    let asked = Message::GrantRequest { config_epoch: 2, sent_ns: driver.now_ns };
    assert!(actions.contains(&Action::Send { to: THIRD, message: asked }), "{actions:?}");
}

/// It begins with the ack that it owes: until then it may be as silent as the one before it.
#[test]
fn a_copy_that_owes_an_ack_is_not_added_before_it_comes() {
    let (mut driver, two) = serving_with_one_to_be_added_and_another();
    assert!(!proposes(&driver.input(stream_ack(THIRD, 1, 0))));
    assert!(!proposes(&driver.input(Input::Disconnected(OTHER))));
    assert!(!proposes(&driver.input(Input::Tick)));
    let actions = driver.input(stream_ack(THIRD, 2, 1));
    assert!(actions.contains(&Action::Propose(two.with(THIRD))), "{actions:?}");
}

#[test]
fn a_copy_whose_tail_comes_in_many_messages_is_not_taken_for_silent() {
    let (mut driver, _) = Driver::open(config(1, &[ME, OTHER], &[]));
    driver.input(Input::Connected(OTHER));
    let history = History::from_runs(vec![Run { epoch: 1, first_sequence: 1 }]).unwrap();
    let state = Message::State { config_epoch: 1, history, last: 3, durable: 3 };
    let fetch = |from| {
        let message = Message::FetchTail { config_epoch: 1, from };
        Action::Send { to: OTHER, message }
    };
    assert_eq!(driver.input(Input::Message(OTHER, state)), [fetch(1)]);
    assert_eq!(driver.input(Input::Tick), []);
    for sequence in [1, 2] {
        driver.now_ns += 1_000;
        let entry = Entry { epoch: 1, sequence, session: 9, request: sequence, ..part_of_nothing() };
        let tail = Message::Tail { config_epoch: 1, entries: vec![entry] };
        let actions = driver.input(Input::Message(OTHER, tail));
        assert!(actions.contains(&fetch(sequence + 1)), "{actions:?}");
        assert_eq!(driver.input(Input::Tick), []);
    }
    driver.now_ns += 1_500;
    assert_eq!(driver.input(Input::Tick), [Action::Propose(config(2, &[ME], &[OTHER]))]);
}

#[test]
fn a_copy_that_has_stopped_for_a_contradiction_sends_clients_elsewhere() {
    let mut driver = Driver::alone();
    driver.request(1, 1, EntryKind::Write);
    let entry = Entry { epoch: 1, sequence: 5, ..part_of_nothing() };
    let violation = Violation::WrongAppend { expected: 1, got: 5, epoch: 1 };
    let actions = driver.input(Input::Appended { token: Token(1), entry });
    assert_eq!(actions, [Action::Stop, refuse(1, Refusal::NotServing), Action::Violation(violation)]);
    assert_eq!(driver.request(2, 1, EntryKind::Write), [refuse(2, Refusal::NotServing)]);
    assert_eq!(driver.input(Input::Read(Token(3))), [refuse(3, Refusal::NotServing)]);
    assert_eq!(driver.input(Input::Tick), []);
}

#[test]
fn a_copy_that_is_not_complete_takes_no_part_where_it_is_counted_on() {
    let open = || {
        let start = Start { config: config(5, &[OTHER], &[ME]), ..Start::default() };
        let group = Group::new(Settings::for_tests(ME), start, 10_000, &mut Vec::new());
        Driver { group, now_ns: 10_000, records: 0 }
    };
    let mut driver = open();
    let backup = config(6, &[OTHER, ME], &[]);
    assert_eq!(driver.input(Input::Message(OTHER, Message::Configure { config: backup })), []);
    // Whoever is to be the primary has itself replaced.
    let primary = config(7, &[ME, OTHER], &[]);
    let asks = [Action::Propose(primary.without(ME))];
    assert_eq!(driver.input(Input::Config(primary.clone())), asks);
    driver.now_ns += 1_500;
    assert_eq!(driver.input(Input::Tick), asks);
    assert_eq!(driver.group.config().epoch, 5, "nothing of it is persisted");
    let out = primary.without(ME);
    assert_eq!(driver.input(Input::Config(out.clone())), [Action::Persist { config: out, committed: 0 }]);
    let mut driver = open();
    let actions = driver.input(Input::Config(config(6, &[ME], &[OTHER])));
    assert_eq!(actions, [Action::Violation(Violation::Incomplete { epoch: 6 })]);
    // Nothing was lost since it was brought up, though it has started again: it may be all that there is.
    let start = Start { config: config(5, &[OTHER], &[ME]), complete: true, ..Start::default() };
    let group = Group::new(Settings::for_tests(ME), start, 10_000, &mut Vec::new());
    let mut driver = Driver { group, now_ns: 10_000, records: 0 };
    let alone = config(6, &[ME], &[OTHER]);
    let actions = driver.input(Input::Config(alone.clone()));
    assert!(actions.contains(&Action::Persist { config: alone, committed: 0 }), "{actions:?}");
}

/// A primary of two copies, which changes need, and their configuration; a client has asked for a write.
fn asked_for_a_write_that_two_must_have() -> (Driver, Config) {
    let two = Config { min_copies: 2, ..config(1, &[ME, OTHER], &[]) };
    let (mut driver, _) = Driver::open(two.clone());
    driver.input(Input::Connected(OTHER));
    let state = Message::State { config_epoch: 1, history: Default::default(), last: 0, durable: 0 };
    driver.input(Input::Message(OTHER, state));
    driver.request(1, 1, EntryKind::Write);
    (driver, two)
}

/// It was taken while there were two copies, and one has it when the other is left out.
#[test]
fn a_write_that_too_few_copies_have_is_not_answered_before_there_are_enough() {
    let (mut driver, two) = asked_for_a_write_that_two_must_have();
    driver.append(1, EntryKind::Write);
    driver.input(Input::Config(two.without(OTHER)));
    let actions = driver.sync();
    assert!(actions.contains(&Action::Commit(1)), "{actions:?}");
    assert!(actions.contains(&refuse(1, Refusal::TooFewCopies)), "{actions:?}");
    assert!(!actions.contains(&Action::Answer(Token(1))), "{actions:?}");
    assert_eq!(driver.request(1, 1, EntryKind::Write), [refuse(1, Refusal::TooFewCopies)]);
    driver.input(Input::Config(Config { min_copies: 1, ..two.without(OTHER).renewed() }));
    driver.sync();
    assert_eq!(driver.request(1, 1, EntryKind::Write), [Action::Answer(Token(1))]);
}

#[test]
fn a_stale_primary_is_told() {
    let (mut driver, _) = Driver::open(config(4, &[OTHER, ME], &[]));
    let request = Message::GrantRequest { config_epoch: 3, sent_ns: 1 };
    let told = driver.input(Input::Message(CopyId(3), request));
    let message = Message::Stale { config: config(4, &[OTHER, ME], &[]) };
    assert_eq!(told, [Action::Send { to: CopyId(3), message }]);
}

#[test]
fn a_restarted_primary_with_an_out_copy_asks_for_a_new_epoch() {
    let stored = config(6, &[ME], &[OTHER]);
    let (mut driver, actions) = Driver::open(stored.clone());
    assert_eq!(actions, [Action::Propose(stored.renewed())]);
    driver.input(Input::Config(stored.renewed()));
    driver.sync();
    assert!(!driver.group.is_serving(), "grants that it may have given still run");
    driver.now_ns += 1_100;
    driver.input(Input::Tick);
    assert!(driver.group.is_serving());
}

#[test]
fn the_only_member_waits_for_who_left_with_its_epoch_unless_it_has_served_under_it() {
    let open = |epoch_of_last: u64| {
        let mut history = History::default();
        history.push(epoch_of_last, 1);
        let start = Start {
            config: config(5, &[ME], &[]),
            history,
            last: 1,
            committed: 1,
            intact: true,
            ..Start::default()
        };
        let mut actions = Vec::new();
        let group = Group::new(Settings::for_tests(ME), start, 10_000, &mut actions);
        Driver { group, now_ns: 10_000, records: 0 }
    };
    assert!(open(5).group.is_serving());
    let mut driver = open(4);
    assert!(
        !driver.group.is_serving(),
        "the former primary may hold a grant that was given just before the restart"
    );
    driver.serves_when_promises_are_over();
}

#[test]
fn a_former_primary_gives_its_leases_back_once_it_cannot_serve_again() {
    let mut driver = serving_with_a_backup();
    let grant = Message::Grant { config_epoch: 1, sent_ns: driver.now_ns };
    driver.input(Input::Message(OTHER, grant.clone()));
    assert_eq!(driver.input(Input::Read(Token(1))), [Action::Read(Token(1))]);
    let newer = config(2, &[OTHER], &[ME]);
    let stopped = driver.input(Input::Config(newer.clone()));
    assert_eq!(stopped, [Action::Stop, Action::Persist { config: newer, committed: 0 }]);
    driver.input(Input::Message(OTHER, grant));
    assert_eq!(driver.input(Input::Read(Token(2))), [refuse(2, Refusal::NotServing)]);
    let released = Action::Send { to: OTHER, message: Message::Released { config_epoch: 2 } };
    assert_eq!(driver.sync(), [released]);
}

#[test]
fn a_new_primary_waits_for_its_promise_unless_the_former_one_gives_it_back() {
    let promised = || {
        let (mut driver, _) = Driver::open(config(1, &[OTHER, ME], &[]));
        driver.input(Input::Connected(OTHER));
        // What it may have promised before it was opened is over.
        driver.now_ns += 1_100;
        let sent_ns = driver.now_ns;
        driver.input(Input::Message(OTHER, Message::GrantRequest { config_epoch: 1, sent_ns }));
        driver.input(Input::Config(config(2, &[ME], &[OTHER])));
        driver.sync();
        assert!(!driver.group.is_serving());
        driver
    };
    let release = |epoch| Input::Message(OTHER, Message::Released { config_epoch: epoch });
    let mut driver = promised();
    driver.input(release(1));
    assert!(!driver.group.is_serving(), "it says nothing of the epoch that was promised for");
    let actions = driver.input(release(2));
    assert!(actions.contains(&Action::Serve { epoch: 2 }), "{actions:?}");
    let mut driver = promised();
    driver.serves_when_promises_are_over();
}
