//! Entries that are not known to be committed can be read back after a start, whatever has replaced them since.

use coquina_base::{BLOCK_BYTES, LayerId};
use coquina_engine::{Failure, Operation, Origin, Outcome, Piece, Request, RequestToken, Shard, ShardConfig};
use coquina_simulator::drive::VirtualDrive;

use crate::common::{self, SEGMENT_BYTES, formatted_drive};

const GROUP: u32 = 1;
/// Blocks that are written again and again: a little more than a segment holds.
const BLOCKS: u32 = 20;

struct Drive {
    drive: VirtualDrive,
    now_ns: u64,
    outcomes: Vec<(RequestToken, Outcome)>,
}

impl Drive {
    fn new() -> Drive {
        Drive { drive: formatted_drive(), now_ns: 1, outcomes: Vec::new() }
    }

    #[allow(clippy::needless_update, reason = "the settings have one field more with mutations")]
    fn open(&mut self) -> Shard {
        let config =
            ShardConfig { copy: 1, checkpoint_log_bytes: 8 * SEGMENT_BYTES, ..ShardConfig::default() };
        let mut shard = Shard::open(&mut self.drive, 0, 1, config).unwrap();
        shard.accept_changes(GROUP, Some(1));
        shard
    }

    /// Lets everything that is under way come to its end.
    fn settle(&mut self, shard: &mut Shard) {
        self.outcomes.extend(common::settle(shard, &mut self.drive, &mut self.now_ns));
    }

    /// Writes a block as entry `sequence`, which is its content.
    fn write(&mut self, shard: &mut Shard, sequence: u64) {
        let payload = [sequence as u8; BLOCK_BYTES];
        shard.submit(Request {
            token: RequestToken(sequence),
            layer: LayerId(1),
            chunk: 0,
            offset_bytes: sequence as u32 % BLOCKS * BLOCK_BYTES as u32,
            length_bytes: BLOCK_BYTES as u32,
            origin: Origin { group: GROUP, session: 1, request: sequence, ..Origin::default() },
            operation: Operation::Write { payload: &payload, checksums_le: &[] },
        });
        self.settle(shard);
        assert!(matches!(self.outcomes.pop(), Some((_, Outcome::Changed))));
    }

    fn read_entry(&mut self, shard: &mut Shard, sequence: u64) -> Outcome {
        shard.read_entry(RequestToken(1 << 32), GROUP, sequence);
        self.settle(shard);
        self.outcomes.pop().unwrap().1
    }
}

/// The checkpoint names the entries, their blocks are replaced behind it: nothing but the entries needs their segments
/// any more, and replay took these for free.
#[test]
fn entries_that_nothing_else_needs_are_kept_by_a_start() {
    let mut drive = Drive::new();
    let mut shard = drive.open();
    let mut last = 0;
    while shard.stats().checkpoints == 0 {
        last += 1;
        drive.write(&mut shard, last);
        assert!(last < 250, "no checkpoint");
    }
    for _ in 0..2 * BLOCKS {
        last += 1;
        drive.write(&mut shard, last);
    }
    drive.drive.process_crash();
    drop(shard);
    let mut shard = drive.open();
    let known = shard.group(GROUP).unwrap();
    assert_eq!((known.committed, known.last), (0, last));
    for round in 0..2 {
        for sequence in 1..=last {
            let outcome = drive.read_entry(&mut shard, sequence);
            let Outcome::Read(data) = &outcome else { panic!("entry {sequence}, {round}: {outcome:?}") };
            let Some(bytes) = data.pieces.first().and_then(Piece::bytes) else {
                panic!("entry {sequence} has no data")
            };
            assert_eq!(bytes, [sequence as u8; BLOCK_BYTES]);
        }
        if round == 0 {
            // What is written now must not land on them either.
            let from = last;
            while last < from + u64::from(BLOCKS) * 4 {
                last += 1;
                drive.write(&mut shard, last);
            }
        }
    }
    shard.commit(GROUP, last);
    drive.settle(&mut shard);
    shard.verify().unwrap();
}

/// What the log says of the group is older: there the entries are not committed.
#[test]
fn entries_whose_segments_were_used_again_are_not_looked_for() {
    let mut drive = Drive::new();
    let mut shard = drive.open();
    let mut last = 0;
    while shard.stats().checkpoints == 0 {
        last += 1;
        drive.write(&mut shard, last);
        assert!(last < 250, "no checkpoint");
    }
    shard.commit(GROUP, last);
    // Of no group, so that nothing in the log says what is committed.
    for block in 0..30 {
        shard.submit(Request {
            token: RequestToken(1),
            layer: LayerId(1),
            chunk: 1,
            offset_bytes: block * BLOCK_BYTES as u32,
            length_bytes: BLOCK_BYTES as u32,
            origin: Origin::default(),
            operation: Operation::Write { payload: &[0xee; BLOCK_BYTES], checksums_le: &[] },
        });
        drive.settle(&mut shard);
        assert!(matches!(drive.outcomes.pop(), Some((_, Outcome::Changed))));
    }
    assert_eq!(shard.stats().checkpoints, 1);
    drive.drive.process_crash();
    drop(shard);
    let mut shard = drive.open();
    let known = shard.group(GROUP).unwrap();
    assert_eq!((known.committed, known.last), (0, last));
    let mut gone = 0;
    for sequence in 1..=last {
        match drive.read_entry(&mut shard, sequence) {
            Outcome::Read(data) => assert_eq!(data.to_bytes(), [sequence as u8; BLOCK_BYTES]),
            Outcome::Failed(Failure::Invalid) => gone += 1,
            other => panic!("entry {sequence}: {other:?}"),
        }
    }
    assert!((1..last).contains(&gone), "{gone} of {last} are gone");
    assert_eq!(shard.stats().bad_blocks, 0);
    shard.verify().unwrap();
}
