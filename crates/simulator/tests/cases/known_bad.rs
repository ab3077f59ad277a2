//! Blocks that no copy has any more are taken as bad: they read as errors whatever happens to the drive, until they are
//! changed or somebody has them after all.

use coquina_base::{BLOCK_BYTES, LayerId, ZERO_BLOCK_CRC, crc32c_block};
use coquina_engine::{
    Action, Event, Failure, IoError, IoToken, Operation, Origin, Outcome, RepairToken, Request, RequestToken,
    Shard, ShardConfig,
};
use coquina_replication::BlockRange;
use coquina_simulator::drive::VirtualDrive;
use coquina_simulator::random::Random;

use crate::common::{SEGMENT_BYTES, formatted_drive};

const GROUP: u32 = 1;
const LAYER: LayerId = LayerId(1);
/// Who wants a turn within this time has something to do: the cleaner looks each millisecond whether users pause.
const SOON_NS: u64 = 2_000_000;
/// What was lost.
const RIGHT: [u8; BLOCK_BYTES] = [0x5c; BLOCK_BYTES];

/// A read of one block.
fn read_of(token: u64, block: u32) -> Request<'static> {
    Request {
        token: RequestToken(token),
        layer: LAYER,
        chunk: 0,
        offset_bytes: block * BLOCK_BYTES as u32,
        length_bytes: BLOCK_BYTES as u32,
        origin: Origin::default(),
        operation: Operation::Read,
    }
}

struct Drive {
    drive: VirtualDrive,
    now_ns: u64,
    outcomes: Vec<(RequestToken, Outcome)>,
    asked: Vec<(RepairToken, u32)>,
    found_bad: Vec<u32>,
    repaired: Vec<u32>,
    sequence: u64,
    cache_bytes: u64,
    /// A block that the drive cannot read, and the reads that meet it.
    unreadable: Option<u64>,
    failing: Vec<IoToken>,
}

impl Drive {
    fn new() -> Drive {
        Drive {
            drive: formatted_drive(),
            now_ns: 1,
            outcomes: Vec::new(),
            asked: Vec::new(),
            found_bad: Vec::new(),
            repaired: Vec::new(),
            sequence: 0,
            cache_bytes: 0,
            unreadable: None,
            failing: Vec::new(),
        }
    }

    #[allow(clippy::needless_update, reason = "the settings have one field more with mutations")]
    fn open(&mut self) -> Shard {
        let config = ShardConfig {
            copy: 1,
            cache_bytes: self.cache_bytes,
            checkpoint_log_bytes: 8 * SEGMENT_BYTES,
            ..ShardConfig::default()
        };
        let mut shard = Shard::open(&mut self.drive, 0, 1, config).unwrap();
        shard.accept_changes(GROUP, Some(1));
        shard
    }

    fn crash_and_open(&mut self, shard: Shard) -> Shard {
        self.drive.process_crash();
        drop(shard);
        self.open()
    }

    /// Lets everything that is under way come to its end.
    fn settle(&mut self, shard: &mut Shard) {
        while self.step(shard) {}
    }

    /// The same, and lets the time pass for which the cleaner waits for users to pause.
    fn rest(&mut self, shard: &mut Shard) {
        self.settle(shard);
        while let Some(wake_ns) = shard.next_wake_ns().filter(|wake_ns| *wake_ns <= self.now_ns + SOON_NS) {
            self.now_ns = wake_ns;
            self.settle(shard);
        }
    }

    /// Lets what ends next come to its end. False: nothing is under way, and the shard does not want another turn at once.
    fn step(&mut self, shard: &mut Shard) -> bool {
        shard.turn(self.now_ns);
        while let Some(action) = shard.next_action() {
            if let Action::Read { io, offset_bytes, buffer } = &action {
                let range = *offset_bytes..offset_bytes + buffer.len() as u64;
                let is_met = self.unreadable.is_some_and(|offset_bytes| range.contains(&offset_bytes));
                self.failing.extend(is_met.then_some(*io));
            }
            match self.drive.submit(self.now_ns, 0, action) {
                Some(Action::Done { token, outcome }) => self.outcomes.push((token, outcome)),
                Some(Action::Repair { repair, block, .. }) => self.asked.push((repair, block)),
                Some(Action::Event(Event::BadBlock { block, .. })) => self.found_bad.push(block),
                Some(Action::Event(Event::Repaired { block, .. })) => self.repaired.push(block),
                _ => {}
            }
        }
        let Some(next_ns) = self.drive.next_completion_ns() else {
            return shard.next_wake_ns().is_some_and(|wake_ns| wake_ns <= self.now_ns);
        };
        self.now_ns = self.now_ns.max(next_ns);
        while let Some(done) = self.drive.complete_next(self.now_ns) {
            let failing = self.failing.len();
            self.failing.retain(|io| *io != done.io);
            let result = if self.failing.len() < failing { Err(IoError(5)) } else { done.result };
            shard.io_done(done.io, done.buffer, result);
        }
        true
    }

    fn outcome(&mut self, shard: &mut Shard) -> Outcome {
        self.settle(shard);
        assert_eq!(self.outcomes.len(), 1, "{:?}", self.outcomes);
        self.outcomes.pop().unwrap().1
    }

    fn submit(&mut self, shard: &mut Shard, block: u32, operation: Operation<'_>) -> Outcome {
        let is_read = matches!(operation, Operation::Read);
        self.sequence += u64::from(!is_read);
        let origin = Origin { group: GROUP, session: 1, request: self.sequence, ..Origin::default() };
        shard.submit(Request {
            token: RequestToken(self.sequence),
            layer: LAYER,
            chunk: 0,
            offset_bytes: block * BLOCK_BYTES as u32,
            length_bytes: BLOCK_BYTES as u32,
            origin: if is_read { Origin::default() } else { origin },
            operation,
        });
        let outcome = self.outcome(shard);
        // Entries that are not committed may have to be read back, and are kept.
        shard.commit(GROUP, self.sequence);
        outcome
    }

    fn write(&mut self, shard: &mut Shard, block: u32, payload: &[u8; BLOCK_BYTES]) {
        let outcome = self.submit(shard, block, Operation::Write { payload, checksums_le: &[] });
        assert!(matches!(outcome, Outcome::Changed), "{outcome:?}");
    }

    fn read(&mut self, shard: &mut Shard, block: u32) -> Result<Vec<u8>, Failure> {
        match self.submit(shard, block, Operation::Read) {
            Outcome::Read(data) => Ok(data.to_bytes()),
            Outcome::Failed(failure) => Err(failure),
            other => panic!("{other:?}"),
        }
    }

    fn take_bad(&mut self, shard: &mut Shard, block: u32, checksum: u32) {
        let origin = Origin { group: GROUP, epoch: 1, recovered: true, ..Origin::default() };
        shard.take_bad(RequestToken(1 << 40), origin, (LAYER, 0, block), checksum);
        let outcome = self.outcome(shard);
        assert!(matches!(outcome, Outcome::Changed), "{outcome:?}");
    }

    /// Writes other blocks until a checkpoint was made and the cleaner has moved a block.
    fn churn(&mut self, shard: &mut Shard, moved: u32) {
        let before = shard.stats();
        let place = shard.place_of(LAYER, 0, moved);
        let mut random = Random::new(7);
        for round in 0..20_000_u32 {
            if shard.stats().checkpoints > before.checkpoints && shard.place_of(LAYER, 0, moved) != place {
                return;
            }
            let block = 100 + random.below(690) as u32;
            self.write(shard, block, &[round as u8; BLOCK_BYTES]);
        }
        panic!("the cleaner had nothing to do: {:?}", shard.stats());
    }
}

#[test]
fn a_block_taken_as_bad_is_an_error_until_it_is_changed() {
    let mut drive = Drive::new();
    let mut shard = drive.open();
    for block in 0..8 {
        drive.write(&mut shard, block, &[block as u8 + 1; BLOCK_BYTES]);
    }
    // Instead of older data, instead of nothing; and where the lost block was of zeros.
    let lost = [(2, crc32c_block(&RIGHT)), (40, crc32c_block(&RIGHT)), (41, ZERO_BLOCK_CRC), (6, 7)];
    for (block, checksum) in lost {
        drive.take_bad(&mut shard, block, checksum);
        // What will be replaced, so that the segment is worth cleaning.
        (0..4).for_each(|index| drive.write(&mut shard, 100 + index, &[1; BLOCK_BYTES]));
    }
    drive.take_bad(&mut shard, 42, 9);
    let lost = [lost[0], lost[1], lost[2], lost[3], (42, 9)];
    let check = |drive: &mut Drive, shard: &mut Shard| {
        for (block, checksum) in lost {
            assert_eq!(drive.read(shard, block).err(), Some(Failure::BadBlock), "block {block}");
            let place = shard.place_of(LAYER, 0, block).flatten().unwrap();
            assert_eq!(place.1, checksum, "it keeps the checksum that it should have");
        }
        for block in [0, 1, 3, 4, 5, 7] {
            assert_eq!(drive.read(shard, block).unwrap(), [block as u8 + 1; BLOCK_BYTES]);
        }
    };
    check(&mut drive, &mut shard);
    let mut shard = drive.crash_and_open(shard);
    check(&mut drive, &mut shard);
    drive.churn(&mut shard, 41);
    // What was acknowledged behind the frame with the moved block is there after a crash.
    drive.write(&mut shard, 50, &RIGHT);
    let mut shard = drive.crash_and_open(shard);
    assert_eq!(drive.read(&mut shard, 50).unwrap(), RIGHT);
    check(&mut drive, &mut shard);
    // A write, a trim and zeros heal it.
    drive.write(&mut shard, 2, &[9; BLOCK_BYTES]);
    drive.submit(&mut shard, 40, Operation::Trim);
    drive.submit(&mut shard, 41, Operation::WriteZeroes { no_hole: true });
    let mut shard = drive.crash_and_open(shard);
    assert_eq!(drive.read(&mut shard, 2).unwrap(), [9; BLOCK_BYTES]);
    for block in [40, 41] {
        assert_eq!(drive.read(&mut shard, block).unwrap(), [0; BLOCK_BYTES]);
    }
    assert_eq!(drive.read(&mut shard, 6).err(), Some(Failure::BadBlock));
    shard.verify().unwrap();
}

#[test]
fn a_copy_that_has_a_block_keeps_it() {
    let mut drive = Drive::new();
    let mut shard = drive.open();
    drive.write(&mut shard, 3, &RIGHT);
    drive.take_bad(&mut shard, 3, crc32c_block(&RIGHT));
    assert_eq!(drive.read(&mut shard, 3).unwrap(), RIGHT);
    let mut shard = drive.crash_and_open(shard);
    assert_eq!(drive.read(&mut shard, 3).unwrap(), RIGHT);
    shard.verify().unwrap();
}

#[test]
fn a_block_taken_as_bad_is_looked_for_and_healed_by_who_has_it() {
    let mut drive = Drive::new();
    let mut shard = drive.open();
    shard.enable_repairs();
    drive.take_bad(&mut shard, 3, crc32c_block(&RIGHT));
    shard.check_block(LAYER, 0, 3);
    drive.settle(&mut shard);
    assert_eq!(drive.found_bad, [3]);
    let (repair, block) = drive.asked.pop().unwrap();
    assert_eq!(block, 3);
    assert!(!shard.repair(repair, &[1; BLOCK_BYTES]), "another version");
    shard.cannot_repair(repair, true);
    drive.settle(&mut shard);
    assert_eq!(shard.stats().bad_blocks_left, 1);
    // Looked for again with the next read.
    shard.submit(read_of(5, 3));
    drive.settle(&mut shard);
    let (repair, _) = drive.asked.pop().unwrap();
    assert!(shard.repair(repair, &RIGHT));
    let Outcome::Read(data) = drive.outcome(&mut shard) else { panic!("not read") };
    assert_eq!(data.to_bytes(), RIGHT);
    assert_eq!(shard.stats().bad_blocks_left, 0);
    let mut shard = drive.crash_and_open(shard);
    assert_eq!(drive.read(&mut shard, 3).unwrap(), RIGHT);
}

#[test]
fn what_is_read_for_a_copy_names_lost_blocks_only_when_they_are_known_to_be_lost() {
    let mut drive = Drive::new();
    let mut shard = drive.open();
    shard.enable_repairs();
    for block in 0..8 {
        drive.write(&mut shard, block, &[block as u8 + 1; BLOCK_BYTES]);
    }
    drive.take_bad(&mut shard, 2, 77);
    drive.take_bad(&mut shard, 5, 78);
    let range = BlockRange { layer: LAYER, chunk: 0, first: 1, count: 8 };
    // One of them may be on a copy that does not answer.
    for is_lost in [false, true] {
        shard.read_for_recovery(RequestToken(9), range);
        drive.settle(&mut shard);
        assert_eq!(drive.asked.len(), 2);
        for (index, (repair, _)) in std::mem::take(&mut drive.asked).into_iter().enumerate() {
            shard.cannot_repair(repair, is_lost || index == 0);
        }
        let outcome = drive.outcome(&mut shard);
        if !is_lost {
            assert!(matches!(outcome, Outcome::Failed(Failure::BadBlock)), "{outcome:?}");
            continue;
        }
        let Outcome::Read(mut data) = outcome else { panic!("{outcome:?}") };
        data.bad.sort_unstable();
        assert_eq!(data.bad, [1, 4]);
        assert_eq!((data.checksums[1], data.checksums[4], data.has_errors), (77, 78, false));
        let bytes = data.to_bytes();
        for index in [0, 2, 3, 5, 6] {
            let block = &bytes[index * BLOCK_BYTES..][..BLOCK_BYTES];
            assert!(block.iter().all(|byte| usize::from(*byte) == index + 2), "block {}", index + 1);
        }
        assert_eq!(bytes[7 * BLOCK_BYTES..], [0; BLOCK_BYTES], "a hole");
        shard.recycle(data);
    }
    // A request of others is not told anything but an error, known to be lost or not.
    let bad = BlockRange { first: 1023, count: 2, ..range };
    shard.read_for_recovery(RequestToken(9), bad);
    assert!(matches!(drive.outcome(&mut shard), Outcome::Failed(Failure::Invalid)));
}

#[test]
fn a_block_that_cannot_be_read_takes_no_others_with_it() {
    let mut drive = Drive::new();
    let mut shard = drive.open();
    shard.enable_repairs();
    // One entry: the blocks lie side by side and are read together.
    let payload: Vec<u8> = (1..=8).flat_map(|block| [block; BLOCK_BYTES]).collect();
    shard.submit(Request {
        token: RequestToken(1),
        layer: LAYER,
        chunk: 0,
        offset_bytes: 0,
        length_bytes: payload.len() as u32,
        origin: Origin { group: GROUP, session: 1, request: 1, ..Origin::default() },
        operation: Operation::Write { payload: &payload, checksums_le: &[] },
    });
    assert!(matches!(drive.outcome(&mut shard), Outcome::Changed));
    let (offset_bytes, checksum) = shard.place_of(LAYER, 0, 3).flatten().unwrap();
    drive.unreadable = Some(offset_bytes);
    shard.read_for_recovery(RequestToken(2), BlockRange { layer: LAYER, chunk: 0, first: 0, count: 8 });
    drive.settle(&mut shard);
    let (repair, block) = drive.asked.pop().unwrap();
    assert_eq!((drive.asked.len(), block), (0, 3), "only that one is bad");
    shard.cannot_repair(repair, true);
    let Outcome::Read(data) = drive.outcome(&mut shard) else { panic!("not read") };
    assert_eq!((&data.bad[..], data.has_errors, data.checksums[3]), (&[3][..], true, checksum));
    let bytes = data.to_bytes();
    for block in [0, 1, 2, 4, 5, 6, 7] {
        assert!(
            bytes[block * BLOCK_BYTES..][..BLOCK_BYTES].iter().all(|byte| usize::from(*byte) == block + 1)
        );
    }
    shard.recycle(data);
    // The error has passed.
    drive.unreadable = None;
    assert_eq!(drive.read(&mut shard, 3).unwrap(), [4; BLOCK_BYTES]);
}

#[test]
fn a_bad_block_that_is_moved_while_it_is_asked_for_again_stays_known_as_bad() {
    let mut drive = Drive::new();
    let mut shard = drive.open();
    shard.enable_repairs();
    drive.take_bad(&mut shard, 41, crc32c_block(&RIGHT));
    let read = read_of(1 << 41, 41);
    let mut random = Random::new(3);
    let mut times = 0;
    for round in 0..40_000_u32 {
        // Nobody has it yet: the cleaner may move it as bad.
        let place = shard.place_of(LAYER, 0, 41).flatten();
        drive.sequence += 1;
        let payload = &[round as u8; BLOCK_BYTES];
        shard.submit(Request {
            token: RequestToken(drive.sequence),
            offset_bytes: (100 + random.below(900) as u32) * BLOCK_BYTES as u32,
            origin: Origin { group: GROUP, session: 1, request: drive.sequence, ..Origin::default() },
            operation: Operation::Write { payload, checksums_le: &[] },
            ..read
        });
        (0..random.below(4)).all(|_| drive.step(&mut shard));
        shard.submit(read);
        drive.settle(&mut shard);
        shard.commit(GROUP, drive.sequence);
        let is_moved = place != shard.place_of(LAYER, 0, 41).flatten();
        times += u32::from(is_moved);
        assert!(drive.repaired.is_empty(), "round {round}: moved, and as bad as before");
        assert_eq!(shard.stats().bad_blocks_left, 1, "round {round}");
        // Questions of which the last counts: the read is asked for again where the block is now.
        let asked = std::mem::take(&mut drive.asked);
        assert!(asked.len() == 1 || is_moved && asked.len() == 2, "round {round}: {asked:?}");
        let (repair, _) = asked[asked.len() - 1];
        drive.outcomes.clear();
        if times < 20 {
            shard.cannot_repair(repair, true);
            drive.settle(&mut shard);
            continue;
        }
        assert!(shard.repair(repair, &RIGHT));
        // It lies in a frame of the cleaner, which goes when that is full or at rest.
        drive.rest(&mut shard);
        assert_eq!((&drive.repaired[..], shard.stats().bad_blocks_left), (&[41][..], 0));
        drive.outcomes.clear();
        assert_eq!(drive.read(&mut shard, 41).unwrap(), RIGHT);
        let mut shard = drive.crash_and_open(shard);
        assert_eq!(drive.read(&mut shard, 41).unwrap(), RIGHT);
        return shard.verify().unwrap();
    }
    panic!("moved {times} times");
}

/// What is logged in its place is not taken for a block that has gone bad in memory, which would have to be read from the drive.
#[test]
fn a_block_taken_as_bad_is_moved_from_memory_as_others_are() {
    let mut drive = Drive { cache_bytes: 64 << 20, ..Drive::new() };
    let mut shard = drive.open();
    drive.take_bad(&mut shard, 41, crc32c_block(&RIGHT));
    drive.churn(&mut shard, 41);
    for _ in 0..5 {
        drive.unreadable = shard.place_of(LAYER, 0, 41).flatten().map(|(offset_bytes, _)| offset_bytes);
        assert!(drive.unreadable.is_some());
        drive.churn(&mut shard, 41);
        assert_eq!(drive.read(&mut shard, 41), Err(Failure::BadBlock));
    }
    shard.verify().unwrap();
}
