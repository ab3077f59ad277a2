//! A comparison of a whole group ends when the copy that it is with is no member any more, or opens the group anew. One of a scrub leaves
//! out what is changed meanwhile.

use std::collections::VecDeque;

use coquina_base::{BLOCK_BYTES, CHUNK_BLOCKS, LayerId};
use coquina_copies::{Answer, Event, Operation, Payload, Request, ShardCopies, Sink};
use coquina_engine::{
    Action, Operation as EngineOperation, Origin, Request as EngineRequest, RequestToken, Shard, ShardConfig,
};
use coquina_replication::{BlockRange, Config, CopyId, Message, RecoveryToken, Settings};
use coquina_simulator::drive::VirtualDrive;

use crate::common::{config, formatted_drive, settle};

const GROUP: u32 = 7;
const PRIMARY: usize = 0;
const OTHER: usize = 1;
/// More than are compared at the same time.
const CHUNKS: u32 = 3;

fn copy_of(side: usize) -> CopyId {
    CopyId(side as u64 + 1)
}

fn settings() -> Settings {
    let second_ns = 1_000_000_000;
    Settings {
        grant_ns: second_ns,
        suspect_ns: second_ns,
        recover_blocks_max: 16,
        ..Settings::for_tests(CopyId(0))
    }
}

/// What a shard wants done.
#[derive(Default)]
struct Outbox {
    ios: Vec<Action>,
    messages: Vec<(CopyId, u32, Message, Vec<u8>)>,
    comparisons: Vec<RecoveryToken>,
    proposals: Vec<Config>,
    answers: Vec<(u64, Answer)>,
}

impl Sink for Outbox {
    fn send(&mut self, to: CopyId, group: u32, message: &Message, payload: Payload<'_>) {
        let mut data = Vec::new();
        payload.append_to(&mut data);
        self.messages.push((to, group, message.clone(), data));
    }

    fn disconnect(&mut self, from: CopyId) {
        panic!("{from:?} was to be disconnected");
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

    fn compare(&mut self, group: u32, copy: CopyId, token: RecoveryToken) {
        assert_eq!((group, copy), (GROUP, copy_of(OTHER)));
        self.comparisons.push(token);
    }

    fn group_of(&mut self, _: LayerId, _: u32) -> Option<u32> {
        Some(GROUP)
    }

    fn event(&mut self, event: Event) {
        assert!(matches!(event, Event::Engine(_) | Event::Scrubbed(_)), "{event:?}");
    }
}

struct Side {
    drive: VirtualDrive,
    copies: ShardCopies,
}

impl Side {
    /// With blocks that were written before anybody knew of a group: each by chunk and number.
    fn new(side: usize, written: &[(u32, u32)]) -> Side {
        let mut drive = formatted_drive();
        let config = ShardConfig { copy: copy_of(side).0, cache_bytes: 0, ..ShardConfig::default() };
        let mut shard = Shard::open(&mut drive, 0, 1, config).unwrap();
        for &(chunk, block) in written {
            shard.submit(EngineRequest {
                token: RequestToken(1),
                layer: LayerId(1),
                chunk,
                offset_bytes: block * BLOCK_BYTES as u32,
                length_bytes: BLOCK_BYTES as u32,
                origin: Origin::default(),
                operation: EngineOperation::Write {
                    payload: &[side as u8 + 1; BLOCK_BYTES],
                    checksums_le: &[],
                },
            });
        }
        let outcomes = settle(&mut shard, &mut drive, &mut 1);
        assert_eq!(outcomes.len(), written.len());
        Side { drive, copies: ShardCopies::new(shard, 1) }
    }
}

/// Two copies that are connected, and what is on its way between them.
struct World {
    sides: [Side; 2],
    now_ns: u64,
    messages: VecDeque<(usize, u32, Message, Vec<u8>)>,
    /// Questions for hashes that are kept back.
    held: VecDeque<(usize, u32, Message, Vec<u8>)>,
    is_holding: bool,
    /// Comparisons that the primary has asked for, and whether they are begun at once.
    comparisons: Vec<RecoveryToken>,
    is_comparing: bool,
    proposals: Vec<Config>,
    answers: Vec<(u64, Answer)>,
}

impl World {
    /// The primary alone is in sync, and is about to compare all with the other copy, which does not answer.
    fn new() -> World {
        World::with([&[], &[]])
    }

    /// The same, where each of the copies has blocks of its own.
    fn with(written: [&[(u32, u32)]; 2]) -> World {
        let world = World::configured(written, &config(1, &[1], &[2]));
        assert_eq!(world.held.len(), 2, "two chunks at a time");
        assert_eq!(world.blocks_left(), u64::from(CHUNK_BLOCKS));
        world
    }

    /// With a first configuration.
    fn configured(written: [&[(u32, u32)]; 2], config: &Config) -> World {
        let mut world = World {
            sides: [PRIMARY, OTHER].map(|side| Side::new(side, written[side])),
            now_ns: 1,
            messages: VecDeque::new(),
            held: VecDeque::new(),
            is_holding: true,
            comparisons: Vec::new(),
            is_comparing: true,
            proposals: Vec::new(),
            answers: Vec::new(),
        };
        for side in [PRIMARY, OTHER] {
            world.open(side, config.clone());
        }
        for side in [PRIMARY, OTHER] {
            let other = copy_of(1 - side);
            world.act(side, |copies, now_ns, out| copies.connected(now_ns, other, out));
        }
        world.settle();
        world
    }

    fn act<T>(&mut self, side: usize, act: impl FnOnce(&mut ShardCopies, u64, &mut Outbox) -> T) -> T {
        let mut out = Outbox::default();
        let result = act(&mut self.sides[side].copies, self.now_ns, &mut out);
        for io in out.ios {
            assert!(self.sides[side].drive.submit(self.now_ns, 0, io).is_none());
        }
        for (to, group, message, data) in out.messages {
            assert_eq!(to, copy_of(1 - side));
            let is_held = self.is_holding && matches!(message, Message::HashRead { .. });
            let queue = if is_held { &mut self.held } else { &mut self.messages };
            queue.push_back((1 - side, group, message, data));
        }
        self.comparisons.extend(out.comparisons);
        self.proposals.extend(out.proposals);
        self.answers.extend(out.answers);
        result
    }

    fn open(&mut self, side: usize, config: Config) {
        self.act(side, |copies, _, out| copies.open_group(GROUP, settings(), config, out));
    }

    /// Tells a copy of a configuration, and lets all come to rest.
    fn configure(&mut self, side: usize, config: Config) {
        self.act(side, |copies, now_ns, out| copies.config(now_ns, GROUP, config, out));
        self.settle();
    }

    fn forget(&mut self, side: usize) -> bool {
        let is_forgotten = self.act(side, |copies, now_ns, out| copies.forget_group(now_ns, GROUP, out));
        self.settle();
        is_forgotten
    }

    fn blocks_left(&self) -> u64 {
        self.sides[PRIMARY].copies.comparing_blocks_left(GROUP)
    }

    /// Lets everything that is under way come to its end, but for what is kept back.
    fn settle(&mut self) {
        loop {
            for side in [PRIMARY, OTHER] {
                self.act(side, |copies, now_ns, out| copies.turn(now_ns, out));
            }
            if let Some((to, group, message, data)) = self.messages.pop_front() {
                let from = copy_of(1 - to);
                self.act(to, |copies, now_ns, out| {
                    copies.receive(now_ns, from, group, message, &data, out).unwrap();
                });
                continue;
            }
            if self.is_comparing
                && let Some(token) = self.comparisons.pop()
            {
                let chunk = |chunk| BlockRange { layer: LayerId(1), chunk, first: 0, count: CHUNK_BLOCKS };
                let chunks = (0..CHUNKS).map(chunk).collect();
                self.act(PRIMARY, |copies, now_ns, out| {
                    copies.compare(now_ns, GROUP, copy_of(OTHER), token, chunks, out);
                });
                continue;
            }
            let next_ns = self.sides.iter().filter_map(|side| side.drive.next_completion_ns()).min();
            let Some(next_ns) = next_ns else { return };
            self.now_ns = self.now_ns.max(next_ns);
            for side in [PRIMARY, OTHER] {
                while let Some(done) = self.sides[side].drive.complete_next(self.now_ns) {
                    self.act(side, |copies, _, out| copies.io_done(done.io, done.buffer, done.result, out));
                }
            }
        }
    }
}

#[test]
fn a_comparison_ends_when_its_copy_is_no_member_any_more() {
    let mut world = World::new();
    for side in [PRIMARY, OTHER] {
        world.configure(side, config(2, &[1], &[]));
    }
    assert!(world.forget(OTHER));
    // Nobody is there any more to answer.
    world.messages.extend(std::mem::take(&mut world.held));
    world.settle();
    assert_eq!(world.blocks_left(), u64::from(CHUNK_BLOCKS));
    world.act(PRIMARY, |copies, now_ns, out| copies.tick(now_ns, out));
    assert_eq!(world.blocks_left(), 0);
    world.configure(PRIMARY, config(3, &[3], &[]));
    assert!(world.forget(PRIMARY), "nothing names the group any more");
}

#[test]
fn a_comparison_ends_when_this_copy_is_primary_no_more() {
    let mut world = World::new();
    world.configure(PRIMARY, config(2, &[3], &[1, 2]));
    world.act(PRIMARY, |copies, now_ns, out| copies.tick(now_ns, out));
    assert_eq!(world.blocks_left(), 0);
    world.configure(PRIMARY, config(3, &[3], &[]));
    assert!(world.forget(PRIMARY));
}

#[test]
fn a_copy_that_opens_the_group_anew_is_compared_anew() {
    let mut world = World::new();
    for side in [PRIMARY, OTHER] {
        world.configure(side, config(2, &[1], &[]));
    }
    assert!(world.forget(OTHER));
    // A member again before the primary has noticed that the comparison is nobody's.
    world.configure(PRIMARY, config(3, &[1], &[2]));
    assert_eq!(world.blocks_left(), u64::from(CHUNK_BLOCKS));
    (world.is_holding, world.is_comparing) = (false, false);
    world.open(OTHER, config(3, &[1], &[2]));
    world.settle();
    assert_eq!(world.blocks_left(), 0, "what was asked before was not heard");
    assert_eq!(world.comparisons.len(), 1);
    world.is_comparing = true;
    world.settle();
    assert_eq!(world.blocks_left(), 0);
    assert_eq!(world.proposals, [config(4, &[1, 2], &[])], "it has all, and is to be added");
}

#[test]
fn a_group_of_a_removed_pool_is_forgotten_by_those_who_are_its_members() {
    let mut world = World::new();
    assert!(!world.forget(PRIMARY) && !world.forget(OTHER), "both are members");
    for side in [OTHER, PRIMARY] {
        let forgotten =
            world.act(side, |copies, now_ns, out| copies.forget_removed_group(now_ns, GROUP, out));
        assert!(forgotten);
        world.settle();
        assert!(world.sides[side].copies.groups().is_empty());
    }
    assert!(world.proposals.is_empty());
}

/// Wherever in its chunk it lies, and whether the other copy has anything of the chunk or nothing.
#[test]
fn a_comparison_finds_what_only_one_of_the_copies_has() {
    let last = CHUNK_BLOCKS - 1;
    let both: &[(u32, u32)] = &[(0, 0), (0, 17), (0, last), (1, 5)];
    let some: &[(u32, u32)] = &[(0, 0)];
    for written in [[both, some], [some, both], [both, &[]], [&[], both], [both, both]] {
        let mut world = World::with(written);
        world.is_holding = false;
        world.messages.extend(std::mem::take(&mut world.held));
        // Holes are hashed without any I/O that would have to be waited for.
        (0..2 * CHUNK_BLOCKS).for_each(|_| world.settle());
        assert_eq!(world.blocks_left(), 0);
        assert_eq!(world.proposals, [config(2, &[1, 2], &[])], "it has all, and is to be added");
        for &(chunk, block) in both {
            let checksum = |side: &mut Side| {
                let place = side.copies.shard_mut().place_of(LayerId(1), chunk, block);
                place.flatten().map(|(_, checksum)| checksum)
            };
            let [primary, other] = world.sides.each_mut().map(checksum);
            assert_eq!(primary.is_some(), written[PRIMARY].contains(&(chunk, block)));
            assert_eq!(other, primary, "block {block} of chunk {chunk}: {written:?}");
        }
    }
}

/// It would be told apart from a copy that has applied more.
#[test]
fn hashes_are_made_when_all_has_been_applied_that_they_are_to_be_made_of() {
    let mut world = World::new();
    let range = BlockRange { layer: LayerId(1), chunk: 0, first: 0, count: CHUNK_BLOCKS };
    for (at, is_answered) in [(0, true), (1, false)] {
        let message = Message::HashRead { config_epoch: 1, compare: 1 << 40, at, range, key: 7 };
        world.act(OTHER, |copies, now_ns, out| {
            copies.receive(now_ns, copy_of(PRIMARY), GROUP, message, &[], out).unwrap();
        });
        let answers = std::mem::take(&mut world.messages);
        let is_hash = |answer: &(usize, u32, Message, Vec<u8>)| matches!(answer.2, Message::Hashes { .. });
        assert_eq!(answers.iter().any(is_hash), is_answered, "as of entry {at}: {answers:?}");
    }
}

impl World {
    /// Writes a block of the first chunk on both copies.
    fn write(&mut self, request: u64, block: u32) {
        let payload = [request as u8; BLOCK_BYTES];
        let request = Request {
            client: request,
            group: GROUP,
            session: 9,
            request,
            volume: 1,
            generation: 1,
            layer: LayerId(1),
            chunk: 0,
            offset_bytes: block * BLOCK_BYTES as u32,
            length_bytes: BLOCK_BYTES as u32,
            operation: Operation::Write { payload: &payload, checksums_le: &[] },
        };
        self.act(PRIMARY, |copies, now_ns, out| copies.request(now_ns, &request, out));
        self.settle();
        assert!(matches!(self.answers.pop(), Some((_, Answer::Done))));
    }

    /// Lets a chunk be hashed, of which a part is in each turn.
    fn hash(&mut self) {
        (0..CHUNK_BLOCKS).for_each(|_| self.settle());
    }
}

/// The set of what it misses grows with each write until it is in sync: whether a copy gets on did not show there.
#[test]
fn what_is_left_for_a_copy_does_not_grow_with_what_is_written() {
    let mut world = World::with([&[(0, 0), (1, 5), (1, 9)], &[]]);
    let left = |world: &World| world.sides[PRIMARY].copies.returning_blocks_left(GROUP);
    let all = vec![(copy_of(OTHER), u64::from(CHUNKS * CHUNK_BLOCKS))];
    assert_eq!(left(&world), all);
    (1..4).for_each(|request| world.write(request, 20 * request as u32));
    assert_eq!(left(&world), all);
    world.act(PRIMARY, |copies, now_ns, out| copies.disconnected(now_ns, copy_of(OTHER), out));
    assert_eq!(left(&world), [], "nobody brings it up");
    world.act(OTHER, |copies, now_ns, out| copies.disconnected(now_ns, copy_of(PRIMARY), out));
    (world.held, world.messages) = Default::default();
    for side in [PRIMARY, OTHER] {
        world.act(side, |copies, now_ns, out| copies.connected(now_ns, copy_of(1 - side), out));
    }
    world.settle();
    assert!(left(&world)[0].1 >= all[0].1, "it begins anew");
    world.is_holding = false;
    world.messages.extend(std::mem::take(&mut world.held));
    let mut before = u64::MAX;
    for _ in 0..2 * CHUNK_BLOCKS {
        world.settle();
        let now = left(&world)[0].1;
        assert!(now <= before, "{before}, then {now}");
        before = now;
    }
    assert_eq!((before, world.proposals.len()), (0, 1), "it has all, and is to be added");
}

/// It differed from what the other copy had when it was asked, and good copies were told to differ.
#[test]
fn what_is_written_while_a_scrub_compares_is_left_out() {
    let mut world = World::configured([&[], &[]], &config(1, &[1, 2], &[]));
    let blocks = [0, 16, CHUNK_BLOCKS - 1];
    (1..).zip(blocks).for_each(|(request, block)| world.write(request, block));
    world.act(PRIMARY, |copies, _, _| copies.start_scrub());
    for (request, block) in (4..).zip(blocks) {
        world.hash();
        assert_eq!(world.held.len(), 1, "this copy has hashed its chunk, and the other one not yet");
        world.write(request, block);
        world.messages.extend(std::mem::take(&mut world.held));
        world.hash();
        // What differed would be looked at once more after a while.
        world.now_ns += 20_000_000_000;
        world.hash();
        assert!(world.held.is_empty(), "block {block} has been left out");
        assert_eq!(world.sides[PRIMARY].copies.differing_blocks(GROUP), 0);
        world.act(PRIMARY, |copies, _, _| copies.start_scrub());
    }
}
