//! Gateways of volumes that nobody has open.

use super::answers::{open, read};
use super::*;

const VOLUMES: usize = 40;
/// 512 KiB: more than a socket has room for.
const BLOCKS: usize = 128;

fn spare_buffers(core: &mut Core) -> Vec<usize> {
    (0..VOLUMES).map(|number| core.gateways.get_mut(number).unwrap().spare_buffers()).collect()
}

/// Has a client read a volume, and take the answers or not.
fn use_volume(core: &mut Core, slot: usize, takes_answers: bool) {
    let (index, mut theirs) = open(core, slot);
    for _ in 0..4 {
        let buffer = AlignedBuf::zeroed(BLOCKS);
        let length_bytes = BLOCKS * BLOCK_BYTES;
        read(core, index, BLOCKS, vec![Piece::Data { buffer, start_bytes: 0, length_bytes }]);
    }
    core.look_after_connections();
    if takes_answers {
        let reader = std::thread::spawn(move || {
            theirs.read_exact(&mut vec![0; 4 * (16 + BLOCKS * BLOCK_BYTES)]).unwrap();
            theirs
        });
        while core.connections[index].sending {
            turn(core);
        }
        reader.join().unwrap();
        core.look_after_gateways();
        assert_eq!(core.gateways.get_mut(slot).unwrap().spare_buffers(), 4, "an open one keeps them");
    }
    assert_eq!(core.connections[index].sending, !takes_answers);
    core.close_connection(index);
    core.look_after_gateways();
    for _ in 0..TURNS_MAX {
        if core.connections.get(index).is_none() {
            return;
        }
        turn(core);
        core.look_after_gateways();
    }
    panic!("it is not closed");
}

/// Each kept up to 16 MiB: a backup of a thousand volumes, one after the other, took 16 GB.
#[test]
fn buffers_of_a_volume_go_when_its_last_client_has_gone() {
    let mut core = bare_core();
    core.volumes = crate::volume::tests::table_of(VOLUMES as u8);
    (0..VOLUMES).for_each(|slot| add_gateway_of(&mut core, slot));
    for round in 0..2 {
        for slot in 0..VOLUMES {
            // In every other one they come back only when the connection is gone.
            use_volume(&mut core, slot, (slot + round).is_multiple_of(2));
        }
        assert_eq!(spare_buffers(&mut core), [0; VOLUMES]);
    }
}
