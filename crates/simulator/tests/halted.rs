//! A group that has stopped for good on the copy that is its primary asks for another one.

#![allow(clippy::unwrap_used)]

use coquina_base::LayerId;
use coquina_copies::{Answer, Event, Payload, ShardCopies, Sink};
use coquina_engine::{Action, IoError, Shard, ShardConfig};
use coquina_replication::{
    BlockRange, Config, CopyId, Entry, EntryKind, History, Message, PayloadRef, RecoveryToken, Run, Settings,
    Violation,
};
use coquina_simulator::drive::VirtualDrive;

mod common;

use common::{config, formatted_drive};

const GROUP: u32 = 7;
const ME: u64 = 1;
const TURN_NS: u64 = 100_000_000;
/// More than anything here takes.
const TURNS: u32 = 20;

/// What a shard wants done.
#[derive(Default)]
struct Outbox {
    ios: Vec<Action>,
    proposals: Vec<Config>,
    violations: Vec<Violation>,
}

impl Sink for Outbox {
    fn send(&mut self, _to: CopyId, _group: u32, _message: &Message, _payload: Payload<'_>) {}

    fn disconnect(&mut self, from: CopyId) {
        panic!("{from:?} was to be disconnected");
    }

    fn answer(&mut self, client: u64, answer: Answer) {
        panic!("request {client} was answered with {answer:?}, and nobody has asked");
    }

    fn io(&mut self, action: Action) {
        self.ios.push(action);
    }

    fn propose(&mut self, group: u32, config: Config) {
        assert_eq!(group, GROUP);
        self.proposals.push(config);
    }

    fn compare(&mut self, _group: u32, copy: CopyId, _token: RecoveryToken) {
        panic!("nothing is to be compared with {copy:?}");
    }

    fn event(&mut self, event: Event) {
        if let Event::Violation(_, violation) = event {
            self.violations.push(violation);
        }
    }
}

struct World {
    drive: VirtualDrive,
    copies: ShardCopies,
    now_ns: u64,
    out: Outbox,
}

impl World {
    fn new() -> World {
        let mut drive = formatted_drive();
        let config = ShardConfig { copy: ME, cache_bytes: 0, ..ShardConfig::default() };
        let shard = Shard::open(&mut drive, 0, 1, config).unwrap();
        World { drive, copies: ShardCopies::new(shard, 1), now_ns: 1, out: Outbox::default() }
    }

    /// Of a group whose first configuration is this one, with a connection to copy 2.
    fn with_group(config: Config) -> World {
        let mut world = World::new();
        world.copies.open_group(GROUP, Settings::for_tests(CopyId(ME)), config, &mut world.out);
        world.turns(Ok(()));
        world.copies.connected(world.now_ns, CopyId(2), &mut world.out);
        world
    }

    /// A message of copy 2.
    fn receive(&mut self, message: Message) {
        self.copies.receive(self.now_ns, CopyId(2), GROUP, message, &[], &mut self.out).unwrap();
    }

    fn tick(&mut self) {
        self.copies.tick(self.now_ns, &mut self.out);
    }

    /// Lets everything come to its end, with this result.
    fn turns(&mut self, result: Result<(), IoError>) {
        for _ in 0..TURNS {
            self.now_ns += TURN_NS;
            self.copies.turn(self.now_ns, &mut self.out);
            for action in std::mem::take(&mut self.out.ios) {
                assert!(self.drive.submit(self.now_ns, 0, action).is_none(), "only I/O is handed out");
            }
            let Some(next_ns) = self.drive.next_completion_ns() else { continue };
            self.now_ns = self.now_ns.max(next_ns);
            while let Some(done) = self.drive.complete_next(self.now_ns) {
                self.copies.io_done(done.io, done.buffer, done.result.and(result), &mut self.out);
            }
        }
    }
}

/// The coordinator thinks it alive, and what made it the primary never becomes durable on it.
#[test]
fn a_copy_that_halts_while_it_becomes_primary_asks_for_another_one() {
    let mut world = World::new();
    let backup = config(1, &[2, ME, 3], &[]);
    world.copies.open_group(GROUP, Settings::for_tests(CopyId(ME)), backup, &mut world.out);
    world.turns(Ok(()));
    assert_eq!(world.copies.group(GROUP).unwrap().config().epoch, 1);
    let primary = config(2, &[ME, 3], &[2]);
    world.copies.config(world.now_ns, GROUP, primary.clone(), &mut world.out);
    world.turns(Err(IoError(5)));
    assert!(world.copies.is_halted(GROUP));
    assert_eq!(world.copies.group(GROUP).unwrap().config().epoch, 1);
    world.tick();
    assert_eq!(world.out.proposals, [primary.without(CopyId(ME))]);
}

/// What copy 2 says of its log when it is asked under the first configuration: all of that is durable.
fn state(last: u64) -> Message {
    let runs = if last > 0 { vec![Run { epoch: 1, first_sequence: 1 }] } else { Vec::new() };
    Message::State { config_epoch: 1, history: History::from_runs(runs).unwrap(), last, durable: last }
}

/// The others have all that is committed, whatever is wrong with this one.
#[test]
fn a_copy_that_has_stopped_itself_and_becomes_primary_asks_for_another_one() {
    let mut world = World::with_group(config(1, &[2, ME, 3], &[]));
    let entry = Entry {
        epoch: 1,
        sequence: 2,
        session: 9,
        request: 2,
        kind: EntryKind::Trim,
        range: BlockRange { layer: LayerId(1), chunk: 0, first: 0, count: 1 },
        is_last: true,
        payload: PayloadRef(0),
    };
    world.receive(Message::Append { config_epoch: 1, previous_epoch: 1, commit: 0, entry });
    assert_eq!(world.out.violations, [Violation::Gap { expected: 1, got: 2 }]);
    assert!(world.copies.is_halted(GROUP));
    world.tick();
    assert!(world.out.proposals.is_empty(), "the primary does: {:?}", world.out.proposals);
    let primary = config(2, &[ME, 3], &[2]);
    world.copies.config(world.now_ns, GROUP, primary.clone(), &mut world.out);
    world.tick();
    assert_eq!(world.out.proposals, [primary.without(CopyId(ME))]);
    // The last one that has everything stays.
    world.copies.config(world.now_ns, GROUP, config(3, &[ME], &[2, 3]), &mut world.out);
    world.now_ns += TURN_NS;
    world.tick();
    assert_eq!(world.out.proposals.len(), 1);
}

/// The other copy has let go of what this one lacks: that is committed, and this one should never have been in sync.
#[test]
fn a_primary_that_finds_itself_incomplete_asks_for_another_one() {
    let primary = config(1, &[ME, 2], &[]);
    let mut world = World::with_group(primary.clone());
    world.receive(state(1));
    world.receive(Message::Tail { config_epoch: 1, entries: Vec::new() });
    assert_eq!(world.out.violations, [Violation::Gap { expected: 1, got: 0 }]);
    world.tick();
    assert_eq!(world.out.proposals, [primary.without(CopyId(ME))]);
}

/// Whichever is left out may be the one that holds a write which was answered.
#[test]
fn a_primary_whose_log_parts_from_that_of_a_backup_leaves_it_to_people() {
    let mut world = World::with_group(config(1, &[ME, 2], &[]));
    world.receive(state(0));
    assert!(world.copies.group(GROUP).unwrap().is_serving());
    world.receive(state(1));
    assert_eq!(world.out.violations, [Violation::LogsPart { one: CopyId(ME), other: CopyId(2), at: 0 }]);
    assert!(!world.copies.is_halted(GROUP));
    for _ in 0..TURNS {
        world.now_ns += TURN_NS;
        world.tick();
    }
    assert!(world.out.proposals.is_empty(), "{:?}", world.out.proposals);
}
