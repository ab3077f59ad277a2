//! What a returning copy misses is read for the stream to it, which may end before the read does.

use coquina_base::{BLOCK_BYTES, LayerId};
use coquina_replication::{CopyId, History, Message};

use crate::common::config;
use crate::common::copy::{ME, World};

/// The other copy says that it has nothing, and begins to follow.
fn follow(world: &mut World) {
    world.receive(Message::JoinState {
        config_epoch: 1,
        history: History::default(),
        last: 0,
        committed: 0,
        incomplete_since: None,
        intact: true,
    });
    world.receive(Message::CutDone { config_epoch: 1, ranges: Vec::new() });
}

/// Time passes, and what is read from the drive is held.
fn wait_for_a_read(world: &mut World) {
    world.holds_reads = true;
    for _ in 0..10 {
        if world.is_reading() {
            return;
        }
        world.turns(Ok(()));
        world.tick();
    }
    panic!("nothing is read");
}

/// Lets a read end, and what follows of it.
fn end_reads(world: &mut World) {
    world.holds_reads = false;
    world.turns(Ok(()));
}

/// How often a block is read before its stream is given up.
const TRIES: u32 = 3;

/// Its failure broke the connection that there was by then, and whatever had begun on that.
#[test]
fn a_read_for_a_stream_that_has_ended_breaks_no_connection() {
    let mut world = World::with_group(config(1, &[ME], &[2]));
    world.out.breaks = Some(0);
    world.write_first(&[7; BLOCK_BYTES]);
    let (offset_bytes, _) = world.copies.shard_mut().place_of(LayerId(1), 0, 0).unwrap().unwrap();
    world.drive.bytes_mut()[offset_bytes as usize] ^= 1;
    for breaks_connection in [false, true] {
        follow(&mut world);
        for _ in 1..TRIES {
            wait_for_a_read(&mut world);
            end_reads(&mut world);
        }
        wait_for_a_read(&mut world);
        if !breaks_connection {
            world.copies.disconnected(world.now_ns, CopyId(2), &mut world.out);
            world.copies.connected(world.now_ns, CopyId(2), &mut world.out);
        }
        end_reads(&mut world);
        for _ in 0..5 {
            world.tick();
            world.turns(Ok(()));
        }
        assert_eq!(world.out.breaks, Some(u32::from(breaks_connection)));
    }
}
