//! Another copy asks for a block of which its own is bad. The connection may break before the answer is read.

use coquina_base::{BLOCK_BYTES, LayerId};
use coquina_replication::{BlockRange, Message};

use crate::common::config;
use crate::common::copy::{ME, World};

/// Asks for a block, under the first name that each life of a copy gives.
fn ask(world: &mut World, block: u32) {
    let range = BlockRange { layer: LayerId(1), chunk: 0, first: block, count: 1 };
    world.receive(Message::RepairRead { config_epoch: 1, repair: 0, at: 0, range });
    world.turns(Ok(()));
}

/// The other copy had started again, named another block the same, and took the old answer for that of the new question: that nobody has it.
#[test]
fn an_answer_for_a_connection_that_has_broken_is_not_sent_on_the_next_one() {
    let mut world = World::with_group(config(1, &[ME], &[2]));
    world.write_first(&[7; 2 * BLOCK_BYTES]);
    let (offset_bytes, _) = world.copies.shard_mut().place_of(LayerId(1), 0, 0).unwrap().unwrap();
    world.drive.bytes_mut()[offset_bytes as usize] ^= 1;
    world.holds_reads = true;
    ask(&mut world, 0);
    assert!(world.is_reading());
    world.reconnect();
    ask(&mut world, 1);
    world.out.sent.clear();
    world.holds_reads = false;
    world.turns(Ok(()));
    let is_answer =
        |message: &&Message| matches!(message, Message::RepairData { .. } | Message::RepairRefused { .. });
    let answers: Vec<&Message> = world.out.sent.iter().filter(is_answer).collect();
    let [Message::RepairData { repair: 0, range, .. }] = answers[..] else { panic!("{answers:?}") };
    assert_eq!(range.first, 1);
    // Without a break in between the bad one is told.
    ask(&mut world, 0);
    let refused = Message::RepairRefused { config_epoch: 1, repair: 0, is_bad: true };
    assert!(world.out.sent.contains(&refused), "{:?}", world.out.sent);
}
