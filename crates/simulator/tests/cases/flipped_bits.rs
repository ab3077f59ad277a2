//! What comes from another copy with a flipped bit is refused before anything has taken it, and taken when it comes again.

use coquina_base::{BLOCK_BYTES, LayerId, crc32c_block};
use coquina_copies::PayloadError;
use coquina_replication::{BlockRange, Config, CopyId, Entry, EntryKind, History, Message, PayloadRef, Run};

use crate::common::config;
use crate::common::copy::{GROUP, ME, World};

const BLOCKS: u32 = 3;

fn write(sequence: u64) -> Entry {
    Entry {
        epoch: 1,
        sequence,
        session: 9,
        request: sequence,
        kind: EntryKind::Write,
        range: BlockRange { layer: LayerId(1), chunk: 0, first: sequence as u32 * BLOCKS, count: BLOCKS },
        is_last: true,
        payload: PayloadRef(0),
    }
}

/// What comes behind such an entry.
fn data() -> Vec<u8> {
    let block = [7; BLOCK_BYTES];
    [&crc32c_block(&block).to_le_bytes().repeat(BLOCKS as usize)[..], &block.repeat(BLOCKS as usize)].concat()
}

/// A bit of each checksum and each block, and the last one.
fn flips(data: &[u8]) -> Vec<Vec<u8>> {
    let head = BLOCKS as usize * 4;
    let places = (0..BLOCKS as usize).flat_map(|block| [block * 4, head + block * BLOCK_BYTES + 9]);
    let flipped = |at: usize| {
        let mut data = data.to_vec();
        data[at] ^= 0x10;
        data
    };
    places.chain([data.len() - 1]).map(flipped).collect()
}

fn assert_lives(world: &World) {
    assert!(!world.copies.is_halted(GROUP));
    assert!(world.out.halted.is_empty() && world.out.violations.is_empty());
}

fn configure(world: &mut World, config: &Config) {
    world.receive(Message::Configure { config: config.clone() });
    world.turns(Ok(()));
}

#[test]
fn an_entry_comes_again_after_its_connection_was_broken_for_a_flipped_bit() {
    let two = config(1, &[2, ME], &[]);
    let mut world = World::with_group(two.clone());
    configure(&mut world, &two);
    let append = Message::Append { config_epoch: 1, previous_epoch: 0, commit: 0, entry: write(1) };
    for flipped in flips(&data()) {
        assert_eq!(world.receive_with(append.clone(), &flipped), Err(PayloadError::Checksum));
        world.turns(Ok(()));
        assert_lives(&world);
        world.reconnect();
        world.out.sent.clear();
        configure(&mut world, &two);
        let says_nothing = |message: &Message| matches!(message, Message::State { last: 0, .. });
        assert!(world.out.sent.iter().any(says_nothing), "{:?}", world.out.sent);
    }
    assert_eq!(world.receive_with(append, &data()), Ok(()));
    world.turns(Ok(()));
    let acknowledges = |message: &Message| matches!(message, Message::AppendAck { durable: 1, .. });
    assert!(world.out.sent.iter().any(acknowledges), "{:?}", world.out.sent);
    assert_lives(&world);
}

/// In the middle of a takeover: the new primary fetches what only the other copy has.
#[test]
fn a_tail_comes_again_after_its_connection_was_broken_for_a_flipped_bit() {
    let mut world = World::with_group(config(1, &[ME, 2], &[]));
    let history = History::from_runs(vec![Run { epoch: 1, first_sequence: 1 }]).unwrap();
    let state = Message::State { config_epoch: 1, history, last: 2, durable: 2 };
    let tail = Message::Tail { config_epoch: 1, entries: vec![write(1), write(2)] };
    let good = data().repeat(2);
    let half = data().len();
    for flipped in flips(&data()) {
        world.receive(state.clone());
        let fetches = |message: &Message| matches!(message, Message::FetchTail { from: 1, .. });
        assert!(world.out.sent.iter().any(fetches), "{:?}", world.out.sent);
        // In the second entry.
        let bytes = [&good[..half], &flipped].concat();
        assert_eq!(world.receive_with(tail.clone(), &bytes), Err(PayloadError::Checksum));
        world.turns(Ok(()));
        assert_lives(&world);
        world.reconnect();
        world.out.sent.clear();
    }
    world.receive(state);
    assert_eq!(world.receive_with(tail, &good), Ok(()));
    world.turns(Ok(()));
    assert_lives(&world);
    let group = world.copies.group(GROUP).unwrap();
    assert_eq!((group.last(), group.committed(), group.is_serving()), (2, 2, true));
    assert_eq!(group.config().primary(), Some(CopyId(ME)));
}
