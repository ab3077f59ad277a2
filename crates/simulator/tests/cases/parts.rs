//! The entries of a request of a placement group: of one that comes again, with only its first entries in the log, the engine's
//! caller leaves as many blocks out, from the start of the range, as these have.

use coquina_base::{BLOCK_BYTES, LayerId};
use coquina_engine::{Action, Operation, Origin, Request, RequestToken, Shard, ShardConfig};
use coquina_simulator::random::Random;

use crate::common;

const BLOCKS: u32 = 100;

#[test]
#[allow(clippy::needless_update, reason = "the settings have one field more with mutations")]
fn entries_of_a_request_follow_each_other_in_the_order_of_its_blocks() {
    let mut drive = common::formatted(32 << 20, 256 << 10);
    let config = ShardConfig { copy: 1, ..ShardConfig::default() };
    let mut shard = Shard::open(&mut drive, 0, 1, config).unwrap();
    shard.accept_changes(1, Some(1));
    let mut random = Random::new(5);
    let mut now_ns = 1;
    let mut of_three = 0;
    for number in 1..=3_000 {
        let sectors = |count: u32| count * 512;
        let first = random.below(u64::from(BLOCKS) * 8) as u32;
        let longest = [2, 4, 40][random.below(3) as usize];
        let count = random.between(1, 8 * longest) as u32;
        let payload = vec![number as u8; sectors(count) as usize];
        let operation = match random.below(3) {
            0 => Operation::Write { payload: &payload, checksums_le: &[] },
            1 => Operation::WriteZeroes { no_hole: false },
            _ => Operation::WriteZeroes { no_hole: true },
        };
        shard.submit(Request {
            token: RequestToken(number),
            layer: LayerId(1),
            chunk: 0,
            offset_bytes: sectors(first),
            length_bytes: sectors(count),
            origin: Origin { group: 1, session: 1, request: number, ..Origin::default() },
            operation,
        });
        let mut entries = Vec::new();
        let mut is_done = false;
        while !is_done {
            shard.turn(now_ns);
            while let Some(action) = shard.next_action() {
                match action {
                    Action::Appended(entry) => entries.push(entry),
                    action => {
                        is_done |= drive
                            .submit(now_ns, 0, action)
                            .is_some_and(|action| matches!(action, Action::Done { .. }))
                    }
                }
            }
            // A merge takes some turns in which the drive has nothing to do.
            now_ns = now_ns.max(drive.next_completion_ns().unwrap_or(now_ns + 1));
            assert!(now_ns < 1 << 50, "request {number} is not answered");
            while let Some(done) = drive.complete_next(now_ns) {
                shard.io_done(done.io, done.buffer, done.result);
            }
        }
        shard.commit(1, entries.last().unwrap().origin.sequence);
        let block = BLOCK_BYTES as u32;
        let mut next = sectors(first) / block;
        for (index, entry) in entries.iter().enumerate() {
            let is_last = index + 1 == entries.len();
            assert_eq!((entry.start_block, entry.origin.continues), (next, !is_last), "{entries:?}");
            next += entry.blocks;
        }
        assert_eq!(next, sectors(first + count).div_ceil(block), "{entries:?}");
        of_three += usize::from(entries.len() == 3 && !matches!(operation, Operation::Write { .. }));
    }
    assert!(of_three > 100, "{of_three} with two edges and what lies between them");
}
