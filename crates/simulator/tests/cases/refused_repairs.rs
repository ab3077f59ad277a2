//! A bad block is asked for from another copy, and the repair ends, whatever that copy does.

use coquina_base::{BLOCK_BYTES, LayerId};
use coquina_copies::{Answer, Event, Operation, Payload, Request, ShardCopies, Sink};
use coquina_engine::{Action, Failure, Shard, ShardConfig};
use coquina_replication::{Config, CopyId, History, Message, RecoveryToken, Settings};
use coquina_simulator::drive::VirtualDrive;

use crate::common::formatted_drive;

const GROUP: u32 = 7;
const LAYER: LayerId = LayerId(1);
const THIS: CopyId = CopyId(1);
const OTHER: CopyId = CopyId(2);
/// Another one that may be in sync, and never answers when it is asked for a block.
const SILENT: CopyId = CopyId(3);
const SECOND_NS: u64 = 1_000_000_000;
const TICK_NS: u64 = SECOND_NS / 10;

/// What the other copy does when it is asked for a block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Other {
    /// It says each time that it may be asked again, as one does that has stopped.
    Refuses,
    /// It says that it does not have the block.
    HasNone,
    /// It does not answer.
    IsSilent,
    /// There is no connection to it.
    IsAway,
}

/// What a shard wants done.
#[derive(Default)]
struct Outbox {
    ios: Vec<Action>,
    answers: Vec<Answer>,
    /// Names of the repairs that the other copy was asked for.
    asked: Vec<u64>,
    /// Blocks that it was sent, as one that comes back.
    pushed: u32,
    is_broken: bool,
}

impl Sink for Outbox {
    fn send(&mut self, to: CopyId, group: u32, message: &Message, _: Payload<'_>) {
        match message {
            Message::RepairRead { repair, .. } if to == OTHER => {
                assert_eq!(group, GROUP);
                self.asked.push(*repair);
            }
            Message::Recover { range, .. } => self.pushed += range.count,
            _ => {}
        }
    }

    fn disconnect(&mut self, _: CopyId) {
        self.is_broken = true;
    }

    fn answer(&mut self, _: u64, answer: Answer) {
        self.answers.push(answer);
    }

    fn io(&mut self, action: Action) {
        self.ios.push(action);
    }

    fn propose(&mut self, _: u32, _: Config) {}

    fn compare(&mut self, _: u32, _: CopyId, _: RecoveryToken) {}

    fn group_of(&mut self, _: LayerId, _: u32) -> Option<u32> {
        Some(GROUP)
    }

    fn event(&mut self, event: Event) {
        assert!(matches!(event, Event::Engine(_)), "{event:?}");
    }
}

struct World {
    drive: VirtualDrive,
    copies: ShardCopies,
    now_ns: u64,
    other: Other,
    answers: Vec<Answer>,
    /// What the other copy was asked, and is to answer.
    asked: Vec<u64>,
    /// How often it was asked.
    questions: usize,
    /// Blocks that it was sent.
    pushed: u32,
    /// The connection to it was broken off.
    is_broken: bool,
}

impl World {
    /// A primary that is alone in sync, with a block that has gone bad.
    fn new(other: Other) -> World {
        World::with(other, &[THIS])
    }

    /// The same, perhaps with the silent copy in sync.
    fn with(other: Other, in_sync: &[CopyId]) -> World {
        let mut drive = formatted_drive();
        let settings = ShardConfig { copy: THIS.0, cache_bytes: 0, ..ShardConfig::default() };
        let shard = Shard::open(&mut drive, 0, 1, settings).unwrap();
        let copies = ShardCopies::new(shard, 1);
        let (answers, asked) = (Vec::new(), Vec::new());
        let (questions, pushed, is_broken) = (0, 0, false);
        let mut world =
            World { drive, copies, now_ns: 1, other, answers, asked, questions, pushed, is_broken };
        let config = Config { epoch: 1, in_sync: in_sync.to_vec(), others: vec![OTHER], min_copies: 1 };
        let settings = Settings {
            grant_ns: SECOND_NS,
            suspect_ns: SECOND_NS,
            recover_blocks_max: 16,
            ..Settings::for_tests(CopyId(0))
        };
        world.act(|copies, _, out| copies.open_group(GROUP, settings, config, out));
        world.settle();
        if in_sync.contains(&SILENT) {
            world.act(|copies, now_ns, out| copies.connected(now_ns, SILENT, out));
            let history = History::default();
            world.receive(SILENT, Message::State { config_epoch: 1, history, last: 0, durable: 0 });
        }
        world.request(Operation::Write { payload: &[7; BLOCK_BYTES], checksums_le: &[] });
        if in_sync.contains(&SILENT) {
            world.receive(SILENT, Message::AppendAck { config_epoch: 1, durable: 1 });
        }
        assert!(matches!(world.answers[..], [Answer::Done]), "{:?}", world.answers);
        world.answers.clear();
        let place = world.copies.shard_mut().place_of(LAYER, 0, 0);
        let (offset_bytes, _) = place.flatten().unwrap();
        world.drive.bytes_mut()[offset_bytes as usize] ^= 1;
        if other != Other::IsAway {
            world.act(|copies, now_ns, out| copies.connected(now_ns, OTHER, out));
            world.settle();
        }
        world
    }

    fn act(&mut self, act: impl FnOnce(&mut ShardCopies, u64, &mut Outbox)) {
        let mut out = Outbox::default();
        act(&mut self.copies, self.now_ns, &mut out);
        for io in out.ios {
            assert!(self.drive.submit(self.now_ns, 0, io).is_none());
        }
        self.answers.extend(out.answers);
        self.questions += out.asked.len();
        self.asked.extend(out.asked);
        self.pushed += out.pushed;
        self.is_broken |= out.is_broken;
    }

    /// A message of another copy.
    fn receive(&mut self, from: CopyId, message: Message) {
        self.act(|copies, now_ns, out| copies.receive(now_ns, from, GROUP, message, &[], out).unwrap());
    }

    fn request(&mut self, operation: Operation<'_>) {
        let request = Request {
            client: 1,
            group: GROUP,
            session: 1,
            request: 1,
            volume: 1,
            generation: 1,
            layer: LAYER,
            chunk: 0,
            offset_bytes: 0,
            length_bytes: BLOCK_BYTES as u32,
            operation,
        };
        self.act(|copies, now_ns, out| copies.request(now_ns, &request, out));
        self.settle();
    }

    /// Lets all I/O come to its end, and the other copy answer.
    fn settle(&mut self) {
        loop {
            self.act(|copies, now_ns, out| copies.turn(now_ns, out));
            for repair in std::mem::take(&mut self.asked) {
                if matches!(self.other, Other::Refuses | Other::HasNone) {
                    let is_bad = self.other == Other::HasNone;
                    self.receive(OTHER, Message::RepairRefused { config_epoch: 1, repair, is_bad });
                }
            }
            let Some(next_ns) = self.drive.next_completion_ns() else { return };
            self.now_ns = self.now_ns.max(next_ns);
            while let Some(done) = self.drive.complete_next(self.now_ns) {
                self.act(|copies, _, out| copies.io_done(done.io, done.buffer, done.result, out));
            }
        }
    }
}

/// Reads the bad block; gives how long that took, and how often the other copy was asked meanwhile.
fn failed_read(other: Other) -> (u64, usize) {
    let mut world = World::new(other);
    world.request(Operation::Read);
    let started_ns = world.now_ns;
    while world.answers.is_empty() {
        let waited_ns = world.now_ns - started_ns;
        assert!(waited_ns < 10 * SECOND_NS, "asked {} times, and the read waits", world.questions);
        world.now_ns += TICK_NS;
        world.act(|copies, now_ns, out| copies.tick(now_ns, out));
        world.settle();
    }
    assert!(matches!(world.answers[..], [Answer::Failed(Failure::BadBlock)]), "{:?}", world.answers);
    (world.now_ns - started_ns, world.questions)
}

/// One that has stopped refuses for ever, and one that does not know the configuration yet refuses for a moment.
#[test]
fn a_repair_ends_though_the_other_copy_refuses_each_time() {
    let (waited_ns, questions) = failed_read(Other::Refuses);
    assert!(questions > 10, "it may be able to help soon: asked {questions} times");
    assert!(waited_ns < 3 * SECOND_NS + 5 * TICK_NS, "{waited_ns} ns");
}

#[test]
fn a_repair_ends_though_the_other_copy_does_not_answer() {
    let (waited_ns, questions) = failed_read(Other::IsSilent);
    assert_eq!(questions, 1);
    assert!(waited_ns < SECOND_NS + 5 * TICK_NS, "{waited_ns} ns");
}

#[test]
fn a_repair_ends_though_the_other_copy_does_not_come() {
    let (waited_ns, questions) = failed_read(Other::IsAway);
    assert_eq!(questions, 0);
    assert!((2 * SECOND_NS..3 * SECOND_NS + 5 * TICK_NS).contains(&waited_ns), "{waited_ns} ns");
}

/// Whether the bad block is sent as lost to the other copy, which comes back, rather than the connection to it broken off.
fn is_taken_for_lost(other: Other, in_sync: &[CopyId]) -> bool {
    let mut world = World::with(other, in_sync);
    let (history, last, committed, incomplete_since, intact) = (History::default(), 0, 0, None, true);
    world.receive(
        OTHER,
        Message::JoinState { config_epoch: 1, history, last, committed, incomplete_since, intact },
    );
    world.receive(OTHER, Message::CutDone { config_epoch: 1, ranges: Vec::new() });
    world.settle();
    let started_ns = world.now_ns;
    while world.pushed == 0 && !world.is_broken {
        assert!(world.now_ns - started_ns < 20 * SECOND_NS, "asked {} times", world.questions);
        world.now_ns += TICK_NS;
        world.act(|copies, now_ns, out| copies.tick(now_ns, out));
        world.settle();
    }
    assert_eq!((world.pushed, world.is_broken), if world.is_broken { (0, true) } else { (1, false) });
    !world.is_broken
}

/// One that has not said so may have it.
#[test]
fn a_block_is_lost_only_if_each_copy_has_said_that_it_does_not_have_it() {
    assert!(is_taken_for_lost(Other::HasNone, &[THIS]));
    assert!(!is_taken_for_lost(Other::IsSilent, &[THIS]));
    assert!(!is_taken_for_lost(Other::Refuses, &[THIS]));
    assert!(!is_taken_for_lost(Other::HasNone, &[THIS, SILENT]), "it may have it");
}
