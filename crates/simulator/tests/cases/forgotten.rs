//! A group that is forgotten, on a copy that had committed entries of it.

use coquina_base::{BLOCK_BYTES, LayerId};
use coquina_copies::{Answer, Event, Operation, Payload, Request, ShardCopies, Sink};
use coquina_engine::{Action, Shard, ShardConfig};
use coquina_replication::{Config, CopyId, Message, RecoveryToken, Settings};
use coquina_simulator::drive::VirtualDrive;

use crate::common::{config, formatted_drive};

const GROUP: u32 = 7;

/// What a shard wants done. There is no other copy.
#[derive(Default)]
struct Outbox {
    ios: Vec<Action>,
    done: usize,
}

impl Sink for Outbox {
    fn send(&mut self, _: CopyId, _: u32, _: &Message, _: Payload<'_>) {}
    fn disconnect(&mut self, _: CopyId) {}
    fn propose(&mut self, _: u32, _: Config) {}
    fn compare(&mut self, _: u32, _: CopyId, _: RecoveryToken) {}
    fn event(&mut self, _: Event) {}

    fn answer(&mut self, _: u64, answer: Answer) {
        assert!(matches!(answer, Answer::Done), "{answer:?}");
        self.done += 1;
    }

    fn io(&mut self, action: Action) {
        self.ios.push(action);
    }
}

struct World {
    drive: VirtualDrive,
    copies: ShardCopies,
    now_ns: u64,
    done: usize,
}

impl World {
    fn act<T>(&mut self, act: impl FnOnce(&mut ShardCopies, u64, &mut Outbox) -> T) -> T {
        let mut out = Outbox::default();
        let result = act(&mut self.copies, self.now_ns, &mut out);
        for io in out.ios {
            assert!(self.drive.submit(self.now_ns, 0, io).is_none());
        }
        self.done += out.done;
        result
    }

    fn settle(&mut self) {
        loop {
            self.act(|copies, now_ns, out| copies.turn(now_ns, out));
            let Some(next_ns) = self.drive.next_completion_ns() else { return };
            self.now_ns = self.now_ns.max(next_ns);
            while let Some(done) = self.drive.complete_next(self.now_ns) {
                self.act(|copies, _, out| copies.io_done(done.io, done.buffer, done.result, out));
            }
        }
    }
}

/// The second time found what was still known as committed, and a record that is numbered below it ended the process.
#[test]
fn a_group_of_a_removed_pool_may_be_forgotten_twice_at_once() {
    let mut drive = formatted_drive();
    let settings = ShardConfig { copy: 1, cache_bytes: 0, ..ShardConfig::default() };
    let shard = Shard::open(&mut drive, 0, 1, settings).unwrap();
    let mut world = World { drive, copies: ShardCopies::new(shard, 1), now_ns: 1, done: 0 };
    let first = config(1, &[1], &[]);
    world.act(|copies, _, out| copies.open_group(GROUP, Settings::for_tests(CopyId(1)), first, out));
    world.settle();
    for number in 1..=5 {
        let request = Request {
            client: number,
            group: GROUP,
            session: 1,
            request: number,
            volume: 1,
            generation: 1,
            layer: LayerId(1),
            chunk: 0,
            offset_bytes: 0,
            length_bytes: BLOCK_BYTES as u32,
            operation: Operation::Write { payload: &[number as u8; BLOCK_BYTES], checksums_le: &[] },
        };
        world.act(|copies, now_ns, out| copies.request(now_ns, &request, out));
        world.settle();
    }
    assert_eq!(world.done, 5);
    assert_eq!(world.copies.shard().group(GROUP).unwrap().committed, 5);
    for _ in 0..2 {
        assert!(world.act(|copies, now_ns, out| copies.forget_removed_group(now_ns, GROUP, out)));
    }
    world.settle();
    assert!(!world.copies.is_forgetting(GROUP));
    assert_eq!(world.copies.shard().group(GROUP).map_or(0, |view| view.last), 0);
    // It can be opened again, and begins anew.
    let again = config(2, &[1], &[]);
    world.act(|copies, _, out| copies.open_group(GROUP, Settings::for_tests(CopyId(1)), again, out));
    world.settle();
    assert!(world.copies.group(GROUP).is_some());
}
