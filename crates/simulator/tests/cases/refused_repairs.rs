//! A bad block is asked for from another copy, and the repair ends, whatever that copy does.

use coquina_base::{BLOCK_BYTES, LayerId};
use coquina_copies::{Answer, Event, Operation, Payload, Request, ShardCopies, Sink};
use coquina_engine::{Action, Failure, Shard, ShardConfig};
use coquina_replication::{Config, CopyId, Message, RecoveryToken, Settings};
use coquina_simulator::drive::VirtualDrive;

use crate::common::formatted_drive;

const GROUP: u32 = 7;
const LAYER: LayerId = LayerId(1);
const THIS: CopyId = CopyId(1);
const OTHER: CopyId = CopyId(2);
const SECOND_NS: u64 = 1_000_000_000;
const TICK_NS: u64 = SECOND_NS / 10;

/// What the other copy does when it is asked for a block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Other {
    /// It says each time that it may be asked again, as one does that has stopped.
    Refuses,
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
}

impl Sink for Outbox {
    fn send(&mut self, to: CopyId, group: u32, message: &Message, _: Payload<'_>) {
        if let Message::RepairRead { repair, .. } = message {
            assert_eq!((to, group), (OTHER, GROUP));
            self.asked.push(*repair);
        }
    }

    fn disconnect(&mut self, _: CopyId) {}

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
}

impl World {
    /// A primary that is alone in sync, with a block that has gone bad.
    fn new(other: Other) -> World {
        let mut drive = formatted_drive();
        let settings = ShardConfig { copy: THIS.0, cache_bytes: 0, ..ShardConfig::default() };
        let shard = Shard::open(&mut drive, 0, 1, settings).unwrap();
        let copies = ShardCopies::new(shard, 1);
        let (answers, asked) = (Vec::new(), Vec::new());
        let mut world = World { drive, copies, now_ns: 1, other, answers, asked, questions: 0 };
        let config = Config { epoch: 1, in_sync: vec![THIS], others: vec![OTHER], min_copies: 1 };
        let settings = Settings {
            grant_ns: SECOND_NS,
            suspect_ns: SECOND_NS,
            recover_blocks_max: 16,
            ..Settings::for_tests(CopyId(0))
        };
        world.act(|copies, _, out| copies.open_group(GROUP, settings, config, out));
        world.settle();
        world.request(Operation::Write { payload: &[7; BLOCK_BYTES], checksums_le: &[] });
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
                if self.other == Other::Refuses {
                    let message = Message::RepairRefused { config_epoch: 1, repair, is_bad: false };
                    self.act(|copies, now_ns, out| {
                        copies.receive(now_ns, OTHER, GROUP, message, &[], out).unwrap();
                    });
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
