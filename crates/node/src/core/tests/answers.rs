//! Answers to reads of NBD clients.

use super::*;
use crate::request::Answer as NbdAnswer;

/// A reactor with a volume's gateway that takes its shard for one of this process, and with an NBD client.
fn core_with_client() -> (Core, usize, UnixStream) {
    let mut core = bare_core();
    add_gateway(&mut core);
    let (index, theirs) = open(&mut core, 0);
    (core, index, theirs)
}

/// An NBD client that has opened the volume in this slot.
pub(super) fn open(core: &mut Core, slot: usize) -> (usize, UnixStream) {
    let (index, mut theirs) = connect(core, Protocol::Nbd);
    core.connections[index].volume = Some(slot);
    let volume = core.volumes.get_mut(slot).unwrap();
    volume.counters.connections += 1;
    volume.nbd_connections.push(index);
    core.look_after_connections();
    theirs.read_exact(&mut [0; 18]).unwrap();
    (index, theirs)
}

/// Has the client ask for so many blocks, and the shard answer with these pieces.
pub(super) fn read(core: &mut Core, index: usize, blocks: usize, pieces: Vec<Piece>) {
    let length_bytes = (blocks * BLOCK_BYTES) as u32;
    let connection = &mut core.connections[index];
    let slot = connection.volume.unwrap();
    let number = core.volumes.get(slot).unwrap().gateway.unwrap();
    let key = ConnectionKey { index, generation: connection.generation };
    connection.under_way += 1;
    connection.under_way_bytes += u64::from(length_bytes);
    let token = core.nbd_requests.insert(NbdRequest {
        connection: key,
        cookie: Cookie(7),
        offset_bytes: 0,
        length_bytes,
        held_bytes: u64::from(length_bytes),
        answer: NbdAnswer::Data,
        cached: None,
    });
    let buffer = AlignedBuf::zeroed(blocks);
    let (kind, length_bytes) = (RequestKind::Read, u64::from(length_bytes));
    let request = ClientRequest { token: token as u64, kind, offset_bytes: 0, length_bytes, buffer };
    let gateway = core.gateways.touch(number).unwrap();
    gateway.client().submit(request);
    gateway.client().flush(&mut core.reactor);
    let mut parts = Vec::new();
    gateway.client().take_local(&mut parts);
    assert_eq!(parts.len(), 1);
    gateway.handed_out += 1;
    core.part_done(number, parts[0].name, Answer::Read(ReadData { pieces, ..ReadData::default() }));
    core.look_after_gateways();
    // The shard takes back what is left over.
    core.emptied.clear();
    assert_eq!((core.nbd_requests.len(), core.connections[index].under_way), (0, 0));
}

/// Blocks of a cache, each filled with its number.
fn cached(count: usize) -> (Vec<SharedBlock>, Vec<Piece>) {
    let mut blocks = SharedBlock::touched_slab();
    blocks.truncate(count);
    for (number, block) in blocks.iter_mut().enumerate() {
        block.get_mut().unwrap().fill((number % 255) as u8 + 1);
    }
    let piece = |block: &SharedBlock| Piece::Cached {
        block: block.clone(),
        start_bytes: 0,
        length_bytes: BLOCK_BYTES,
    };
    let pieces = blocks.iter().map(piece).collect();
    (blocks, pieces)
}

/// Receives the answer to a read of so many blocks, of which these were cached, and the others are zeros.
fn check(theirs: &mut UnixStream, blocks: usize, cached: &[SharedBlock]) {
    let mut answer = vec![0; 16 + blocks * BLOCK_BYTES];
    theirs.read_exact(&mut answer).unwrap();
    assert_eq!(answer[..16], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]);
    let expected: Vec<u8> = cached.iter().flat_map(|block| block.iter().copied()).collect();
    assert!(answer[16..16 + expected.len()] == expected);
    assert!(answer[16 + expected.len()..].iter().all(|byte| *byte == 0));
}

fn shares(blocks: &[SharedBlock]) -> Vec<usize> {
    blocks.iter().map(SharedBlock::shares).collect()
}

/// They were copied into a buffer of the gateway first.
#[test]
fn blocks_of_the_cache_are_sent_from_where_they_lie() {
    let (mut core, index, mut theirs) = core_with_client();
    let (blocks, mut pieces) = cached(6);
    pieces.push(Piece::Zeroes { length_bytes: 2 * BLOCK_BYTES });
    read(&mut core, index, 8, pieces);
    assert_eq!(shares(&blocks), [2; 6], "the list that is sent has one");
    assert_eq!(core.gateways.get_mut(0).unwrap().spare_buffers(), 1, "the request's buffer was not needed");
    core.look_after_connections();
    check(&mut theirs, 8, &blocks);
    assert_eq!(shares(&blocks), [1; 6]);
}

#[test]
fn small_ones_are_copied_once_and_what_was_read_from_a_drive_goes_back_to_its_shard() {
    let (mut core, index, mut theirs) = core_with_client();
    let (blocks, pieces) = cached(1);
    read(&mut core, index, 1, pieces);
    assert_eq!(shares(&blocks), [1]);
    core.look_after_connections();
    check(&mut theirs, 1, &blocks);
    let (blocks, mut pieces) = cached(4);
    let buffer = AlignedBuf::zeroed(4);
    pieces.push(Piece::Data { buffer, start_bytes: 0, length_bytes: 4 * BLOCK_BYTES });
    read(&mut core, index, 8, pieces);
    assert_eq!(shares(&blocks), [1; 4], "all of it is in the request's buffer");
    core.look_after_connections();
    check(&mut theirs, 8, &blocks);
}

#[test]
fn nothing_is_kept_of_a_connection_that_is_closed() {
    let (mut core, index, _theirs) = core_with_client();
    let (blocks, pieces) = cached(8);
    read(&mut core, index, 8, pieces);
    core.close_connection(index);
    for _ in 0..TURNS_MAX {
        if core.connections.get(index).is_none() {
            break;
        }
        turn(&mut core);
    }
    assert_eq!(shares(&blocks), [1; 8]);
}

/// As much as of one that is answered from buffers.
#[test]
fn a_client_that_takes_nothing_keeps_no_more_of_the_cache_than_it_may_have_answers() {
    let (mut core, index, _theirs) = core_with_client();
    let (blocks, _) = cached(256);
    let mut answers = 0;
    while !core.connections[index].is_full() {
        let piece = |block: &SharedBlock| Piece::Cached {
            block: block.clone(),
            start_bytes: 0,
            length_bytes: BLOCK_BYTES,
        };
        read(&mut core, index, 256, blocks.iter().map(piece).collect());
        answers += 1;
    }
    assert_eq!(answers, CONNECTION_BYTES_MAX as usize / (256 * BLOCK_BYTES));
    assert!(core.connections[index].takes_no_request().is_some());
}

/// What was being sent did not count, and three reads of 31 MiB were taken before the bound was met: 190 MiB.
#[test]
fn large_reads_of_a_client_that_takes_nothing_take_no_more_than_the_bound() {
    let (mut core, index, mut theirs) = core_with_client();
    let mut taken = 0;
    let length_bytes = 31_u64 << 20;
    while core.connections[index].has_room_for(length_bytes) {
        taken += 1;
        assert!(taken < 10);
        core.connections[index].output.push_zeroes(length_bytes as usize);
        core.list(index);
        // As much of it as the socket has room for.
        core.look_after_connections();
        let connection = &core.connections[index];
        let answers_bytes = connection.sending_bytes + connection.output.length_bytes();
        assert!(connection.sending && answers_bytes as u64 <= CONNECTION_BYTES_MAX);
    }
    assert_eq!(taken, 2);
    assert!(core.connections[index].held_back && core.connections[index].is_full());
    // It is looked at again when the client has taken enough.
    let reader = std::thread::spawn(move || {
        theirs.read_exact(&mut vec![0; 2 * length_bytes as usize]).unwrap();
        theirs
    });
    while !reader.is_finished() {
        turn(&mut core);
        core.look_after_connections();
    }
    reader.join().unwrap();
    assert!(!core.connections[index].held_back && core.connections[index].has_room_for(length_bytes));
}

/// However large it is.
#[test]
fn a_single_request_is_always_taken() {
    let (mut core, index, _theirs) = core_with_client();
    assert!(core.connections[index].has_room_for(CONNECTION_BYTES_MAX + 1));
    core.connections[index].under_way_bytes = 4096;
    assert!(!core.connections[index].has_room_for(CONNECTION_BYTES_MAX));
    assert!(core.connections[index].is_full() && core.connections[index].held_back);
    assert!(core.connections[index].has_room_for(CONNECTION_BYTES_MAX - 4096));
    assert!(!core.connections[index].is_full());
}
