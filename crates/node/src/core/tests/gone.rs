//! NBD clients that are gone, of which requests are still to be taken, or to be tried again.

use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

use super::*;
use crate::withdraw::RECEIVES_AHEAD_MAX;

const READ: u16 = 0;
const DISCONNECT: u16 = 2;

/// Turns once; `meanwhile` happens when all that was there is received, and before it is looked at.
fn turn_with(core: &mut Core, meanwhile: impl FnOnce()) {
    let mut completions = Vec::new();
    core.reactor.turn(Wait::Until(monotonic_ns() + 10_000_000), &mut completions).unwrap();
    core.now_ns = boottime_ns();
    core.turns += 1;
    meanwhile();
    completions.drain(..).for_each(|completion| core.complete(completion));
}

/// Turns until something is as it is to be.
fn turn_until(core: &mut Core, is_done: impl Fn(&Core) -> bool) {
    for _ in 0..TURNS_MAX {
        if is_done(core) {
            return;
        }
        turn_with(core, || {});
        core.look_after_connections();
    }
    panic!("in vain");
}

fn is_closed(core: &Core, index: usize) -> bool {
    core.connections.get(index).is_none_or(|one| one.closed)
}

/// Opens the volume by a connection to these sockets; gives its number.
fn open(core: &mut Core, ours: OwnedFd, mut theirs: impl std::io::Write + std::io::Read) -> usize {
    let file = core.reactor.attach(ours);
    core.adopt(file, Protocol::Nbd, None);
    let index = core.connections.iter().map(|(index, _)| index).max().unwrap();
    theirs.write_all(&hello(core)).unwrap();
    turn_until(core, |core| {
        let one = &core.connections[index];
        one.volume.is_some() && one.received.is_none() && one.output.is_empty() && !one.sending
    });
    // It leaves nothing behind that it does not take: the end of its connection comes in order.
    theirs.read_exact(&mut [0; 18 + 10]).unwrap();
    index
}

/// A client that is read from no further, and so many reads of it that were received, but not taken.
fn held_back(core: &mut Core, requests: usize) -> (usize, UnixStream) {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let index = open(core, ours.into(), &theirs);
    core.connections[index].under_way = REQUESTS_MAX;
    theirs.write_all(&nbd_request(READ).repeat(requests)).unwrap();
    turn_until(core, |core| core.connections[index].received.is_some());
    assert_eq!(core.connections[index].received.as_ref().unwrap().data().len(), 28 * requests);
    (index, theirs)
}

/// Lets so much time pass that its client may have given up.
fn pass(core: &mut Core) {
    std::thread::sleep(Duration::from_millis(110));
    core.now_ns = boottime_ns();
}

/// So many requests are answered.
fn give_room(core: &mut Core, index: usize, requests: u32) {
    core.connections[index].under_way -= requests;
    core.list(index);
    core.look_after_connections();
}

/// They were taken as new ones, when the drive answered again, and overwrote what was written since by another connection.
#[test]
fn what_was_held_back_is_not_taken_of_a_client_that_is_gone() {
    let mut core = core_with_gateway();
    let (index, theirs) = held_back(&mut core, 3);
    drop(theirs);
    pass(&mut core);
    give_room(&mut core, index, REQUESTS_MAX);
    assert!(core.nbd_requests.is_empty() && is_closed(&core, index));
}

#[test]
fn nothing_is_taken_before_all_that_a_client_sent_last_is_received() {
    let mut core = core_with_gateway();
    for disconnects in [false, true] {
        let (index, mut theirs) = held_back(&mut core, 3);
        let more = if disconnects { DISCONNECT } else { READ };
        theirs.write_all(&[nbd_request(READ).repeat(2000), nbd_request(more)].concat()).unwrap();
        theirs.shutdown(Shutdown::Write).unwrap();
        pass(&mut core);
        give_room(&mut core, index, REQUESTS_MAX);
        assert!(core.nbd_requests.is_empty() && !is_closed(&core, index), "it is received first");
        if disconnects {
            turn_until(&mut core, |core| core.connections[index].ended);
            assert_eq!(core.nbd_requests.len(), REQUESTS_MAX as usize, "what it asked for before is done");
            assert!(!is_closed(&core, index));
        } else {
            turn_until(&mut core, |core| is_closed(core, index));
            assert!(core.nbd_requests.is_empty());
        }
    }
}

/// Its end waits behind more than the receiving socket has room for.
#[test]
fn the_end_is_found_behind_what_the_network_has_no_room_for() {
    let mut core = core_with_gateway();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut theirs = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let index = open(&mut core, listener.accept().unwrap().0.into(), &theirs);
    core.connections[index].under_way = REQUESTS_MAX;
    theirs.set_nonblocking(true).unwrap();
    let requests = nbd_request(READ).repeat(1000);
    let mut sent_bytes = 0;
    while let Ok(bytes) = theirs.write(&requests[sent_bytes % 28..])
        && sent_bytes < 3 << 20
    {
        sent_bytes += bytes;
    }
    drop(theirs);
    turn_until(&mut core, |core| core.connections[index].received.is_some());
    pass(&mut core);
    give_room(&mut core, index, REQUESTS_MAX);
    turn_until(&mut core, |core| is_closed(core, index) || !core.nbd_requests.is_empty());
    assert!(core.nbd_requests.is_empty(), "of {sent_bytes} bytes");
}

#[test]
fn who_was_held_back_for_a_moment_only_is_not_asked_about() {
    let mut core = core_with_gateway();
    let (index, theirs) = held_back(&mut core, 1);
    drop(theirs);
    give_room(&mut core, index, REQUESTS_MAX);
    assert_eq!(core.nbd_requests.len(), 1);
}

/// What is left over is as old as before.
#[test]
fn each_time_something_old_is_taken_its_client_is_looked_for() {
    let mut core = core_with_gateway();
    let (index, theirs) = held_back(&mut core, 3);
    pass(&mut core);
    for taken in 1..=2 {
        give_room(&mut core, index, 1);
        assert_eq!(core.nbd_requests.len(), taken);
    }
    drop(theirs);
    give_room(&mut core, index, 1);
    assert!(is_closed(&core, index));
    assert_eq!(core.nbd_requests.len(), 2, "they are with the gateway, which withdraws them");
}

#[test]
fn who_goes_on_sending_is_served_all_the_same() {
    let mut core = core_with_gateway();
    let (index, theirs) = held_back(&mut core, 1);
    pass(&mut core);
    let send = || (&theirs).write_all(&nbd_request(READ)).unwrap();
    send();
    give_room(&mut core, index, REQUESTS_MAX);
    for receives in 1..=RECEIVES_AHEAD_MAX {
        assert_eq!(core.connections[index].waiting.receives_ahead, receives);
        assert!(core.nbd_requests.is_empty());
        turn_with(&mut core, send);
    }
    assert_eq!(core.nbd_requests.len(), 1 + RECEIVES_AHEAD_MAX as usize);
}

#[test]
fn no_more_is_received_of_who_has_sent_much() {
    let mut core = core_with_gateway();
    let (index, mut theirs) = held_back(&mut core, 1);
    let much = nbd_request(READ).repeat((4 << 20) / 28 + 1);
    core.connections[index].received.as_mut().unwrap().extend(&much);
    theirs.write_all(&nbd_request(READ)).unwrap();
    pass(&mut core);
    give_room(&mut core, index, REQUESTS_MAX);
    assert_eq!(core.nbd_requests.len(), REQUESTS_MAX as usize);
}

/// One turn was too short for a client whose rest takes several receives.
#[test]
fn a_gateway_waits_while_something_comes_of_its_clients_but_not_for_ever() {
    for ends in [false, true] {
        let mut core = core_with_gateway();
        let (index, theirs) = client_of_what_is_tried_again(&mut core);
        let send = || (&theirs).write_all(&[0; 100]).unwrap();
        let turns = if ends { RECEIVES_AHEAD_MAX - 1 } else { RECEIVES_AHEAD_MAX };
        send();
        for _ in 0..turns {
            core.gateways.touch(0).unwrap();
            core.look_after_gateways();
            assert_eq!(core.gateways.get_mut(0).unwrap().waits_in, Some(core.turns));
            turn_with(&mut core, send);
        }
        if ends {
            drop(theirs);
        }
        core.gateways.touch(0).unwrap();
        core.look_after_gateways();
        assert!(core.gateways.get_mut(0).unwrap().waits_in.is_none());
        assert_eq!((is_closed(&core, index), core.nbd_requests.is_empty()), (ends, ends));
    }
}

#[test]
fn only_clients_of_the_volume_with_requests_under_way_are_looked_for() {
    let mut core = core_with_gateway();
    let clients: Vec<(usize, UnixStream)> = (0..5).map(|_| held_back(&mut core, 1)).collect();
    let indexes: Vec<usize> = clients.iter().map(|(index, _)| *index).collect();
    assert_eq!(core.volumes.get(0).unwrap().nbd_connections, indexes);
    core.connections[indexes[2]].under_way = 0;
    drop(clients);
    core.close_hung_up(0, 0);
    let closed: Vec<bool> = indexes.iter().map(|index| is_closed(&core, *index)).collect();
    assert_eq!(closed, [true, true, false, true, true]);
    assert_eq!(core.volumes.get(0).unwrap().nbd_connections, indexes[2..3]);
    core.close_connection(indexes[2]);
    assert!(core.volumes.get(0).unwrap().nbd_connections.is_empty());
}
