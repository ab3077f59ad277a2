//! One copy of a group on a drive of its own, to which tests say what the others do.

use coquina_base::LayerId;
use coquina_copies::{Answer, Event, Operation, Payload, PayloadError, Request, ShardCopies, Sink};
use coquina_engine::{Action, Event as EngineEvent, Failure, IoError, Shard, ShardConfig};
use coquina_replication::{Config, CopyId, Message, RecoveryToken, Settings, Violation};
use coquina_simulator::drive::VirtualDrive;

use super::formatted_drive;

pub const GROUP: u32 = 7;
pub const ME: u64 = 1;
pub const TURN_NS: u64 = 100_000_000;
/// More than anything here takes.
pub const TURNS: u32 = 20;

/// What a shard wants done.
#[derive(Default)]
pub struct Outbox {
    pub sent: Vec<Message>,
    pub answers: Vec<(u64, Answer)>,
    pub proposals: Vec<Config>,
    pub violations: Vec<Violation>,
    pub halted: Vec<Failure>,
    pub engine: Vec<EngineEvent>,
    /// How often a connection was broken off, where a test expects that.
    pub breaks: Option<u32>,
    ios: Vec<Action>,
}

fn is_read(action: &Action) -> bool {
    matches!(action, Action::Read { .. })
}

impl Sink for Outbox {
    fn send(&mut self, _to: CopyId, _group: u32, message: &Message, _payload: Payload<'_>) {
        self.sent.push(message.clone());
    }

    fn disconnect(&mut self, from: CopyId) {
        let Some(breaks) = &mut self.breaks else { panic!("{from:?} was to be disconnected") };
        *breaks += 1;
    }

    fn answer(&mut self, client: u64, answer: Answer) {
        self.answers.push((client, answer));
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
        match event {
            Event::Violation(_, violation) => self.violations.push(violation),
            Event::Halted(_, failure) => self.halted.push(failure),
            Event::Engine(event) => self.engine.push(event),
            _ => {}
        }
    }
}

pub struct World {
    pub drive: VirtualDrive,
    pub copies: ShardCopies,
    pub now_ns: u64,
    pub out: Outbox,
    /// Reads wait until they are not held any more.
    pub holds_reads: bool,
}

impl World {
    #[allow(clippy::needless_update, reason = "the settings have one field more with mutations")]
    pub fn new() -> World {
        let mut drive = formatted_drive();
        let config = ShardConfig { copy: ME, cache_bytes: 0, ..ShardConfig::default() };
        let shard = Shard::open(&mut drive, 0, 1, config).unwrap();
        World {
            drive,
            copies: ShardCopies::new(shard, 1),
            now_ns: 1,
            out: Outbox::default(),
            holds_reads: false,
        }
    }

    /// Of a group whose first configuration is this one, with a connection to copy 2.
    pub fn with_group(config: Config) -> World {
        let mut world = World::new();
        world.copies.open_group(GROUP, Settings::for_tests(CopyId(ME)), config, &mut world.out);
        world.turns(Ok(()));
        world.copies.connected(world.now_ns, CopyId(2), &mut world.out);
        world
    }

    /// A message of copy 2.
    pub fn receive(&mut self, message: Message) {
        self.receive_with(message, &[]).unwrap();
    }

    /// The same, with data behind it.
    pub fn receive_with(&mut self, message: Message, data: &[u8]) -> Result<(), PayloadError> {
        self.copies.receive(self.now_ns, CopyId(2), GROUP, message, data, &mut self.out)
    }

    /// A client writes the first blocks of a chunk, the first thing of all, and hears that it is done.
    pub fn write_first(&mut self, payload: &[u8]) {
        let request = Request {
            client: 1,
            group: GROUP,
            session: 9,
            request: 1,
            volume: 5,
            generation: 1,
            layer: LayerId(1),
            chunk: 0,
            offset_bytes: 0,
            length_bytes: payload.len() as u32,
            operation: Operation::Write { payload, checksums_le: &[] },
        };
        self.copies.request(self.now_ns, &request, &mut self.out);
        self.turns(Ok(()));
        assert!(matches!(self.out.answers[..], [(1, Answer::Done)]), "{:?}", self.out.answers);
    }

    /// The connection to copy 2 breaks, and there is another one.
    pub fn reconnect(&mut self) {
        self.copies.disconnected(self.now_ns, CopyId(2), &mut self.out);
        self.copies.connected(self.now_ns, CopyId(2), &mut self.out);
    }

    pub fn tick(&mut self) {
        self.copies.tick(self.now_ns, &mut self.out);
    }

    /// Whether something is to be read from the drive that was not yet.
    pub fn is_reading(&self) -> bool {
        self.out.ios.iter().any(is_read)
    }

    /// Lets everything come to its end, with this result.
    pub fn turns(&mut self, result: Result<(), IoError>) {
        for _ in 0..TURNS {
            self.now_ns += TURN_NS;
            self.copies.turn(self.now_ns, &mut self.out);
            let holds = self.holds_reads;
            let ios = self.out.ios.extract_if(.., |action| !holds || !is_read(action));
            for action in ios.collect::<Vec<Action>>() {
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
