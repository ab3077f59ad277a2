//! The beginning of a stop, as NBD clients see it.

use std::io::ErrorKind;
use std::os::unix::net::UnixListener;

use super::*;

const S: u64 = 1_000_000_000;

/// A read of the first block.
fn read_request(cookie: u8) -> Vec<u8> {
    let mut request = nbd_request(0);
    request[15] = cookie;
    request
}

/// Lets the reactor go on until so many bytes came, or the end of the connection, if there is one.
fn receive(core: &mut Core, theirs: &mut UnixStream, length_bytes: usize) -> Vec<u8> {
    theirs.set_nonblocking(true).unwrap();
    let mut received = vec![0; length_bytes];
    let mut count = 0;
    for _ in 0..TURNS_MAX {
        core.service();
        core.drain_on();
        turn(core);
        match theirs.read(&mut received[count..]) {
            Ok(0) => {
                received.truncate(count);
                return received;
            }
            Ok(more) => count += more,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        if count == length_bytes {
            return received;
        }
    }
    panic!("only {count} bytes came");
}

/// Lets the reactor go on until something holds.
fn go_on(core: &mut Core, holds: impl Fn(&Core) -> bool) {
    for _ in 0..TURNS_MAX {
        if holds(core) {
            return;
        }
        core.service();
        core.drain_on();
        turn(core);
    }
    panic!("in vain");
}

/// Lets so much time of a stop go by.
fn let_pass(core: &mut Core, ns: u64) {
    core.draining.as_mut().unwrap().since_ns -= ns;
    for (_, connection) in &mut core.connections {
        if connection.told_end_ns < u64::MAX {
            connection.told_end_ns -= ns;
        }
    }
    core.now_ns = boottime_ns();
    core.drain_on();
}

/// The connection was closed, and the first one not answered. Answered with errors, both would have been errors of the client's disk; what
/// has no answer is repeated by a client that connects again.
#[test]
fn what_is_under_way_is_waited_for_and_what_comes_later_is_left_to_the_client() {
    let mut core = core_with_gateway();
    let (index, mut theirs) = connect(&mut core, Protocol::Nbd);
    theirs.write_all(&[hello(&core), read_request(1)].concat()).unwrap();
    receive(&mut core, &mut theirs, 28);
    go_on(&mut core, |core| core.connections[index].under_way > 0);
    let (done, drained) = channel();
    core.drain(done);
    // More than it is read from at once.
    for cookie in 2..200 {
        theirs.write_all(&read_request(cookie)).unwrap();
        turn(&mut core);
    }
    let_pass(&mut core, 4 * S);
    assert_eq!(core.connections[index].under_way, 1);
    assert_eq!(theirs.read(&mut [0; 16]).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(drained.try_recv(), Err(TryRecvError::Empty), "the first one may be answered yet");
    // Where its data is nobody answers.
    let_pass(&mut core, S);
    assert_eq!(drained.try_recv(), Ok(()));
    assert!(receive(&mut core, &mut theirs, 1).is_empty(), "the end");
    go_on(&mut core, |core| core.nbd_requests.is_empty());
}

/// What it had sent was lost with its connection, if the client had not received it by then.
#[test]
fn a_client_with_all_its_answers_is_told_the_end_and_hangs_up() {
    let mut core = core_with_gateway();
    let (index, mut theirs) = connect(&mut core, Protocol::Nbd);
    // Of a write only the beginning comes.
    theirs.write_all(&[hello(&core), nbd_request(1)].concat()).unwrap();
    receive(&mut core, &mut theirs, 28);
    go_on(&mut core, |core| core.connections[index].is_within_message);
    let (done, drained) = channel();
    core.drain(done);
    assert!(receive(&mut core, &mut theirs, 1).is_empty(), "the end");
    core.drain_on();
    assert_eq!(drained.try_recv(), Err(TryRecvError::Empty));
    assert!(!core.connections[index].closed);
    theirs.write_all(&[1; 4096]).unwrap();
    drop(theirs);
    go_on(&mut core, |core| core.connections.is_empty());
    core.drain_on();
    assert_eq!(drained.try_recv(), Ok(()));
}

#[test]
fn who_does_not_hang_up_is_cut_off_and_no_client_is_taken() {
    let mut core = core_with_gateway();
    let (_, mut theirs) = connect(&mut core, Protocol::Nbd);
    receive(&mut core, &mut theirs, 18);
    let (done, drained) = channel();
    core.drain(done);
    assert!(receive(&mut core, &mut theirs, 1).is_empty(), "the end");
    let_pass(&mut core, S / 4);
    assert_eq!(drained.try_recv(), Err(TryRecvError::Empty));
    let_pass(&mut core, S / 2);
    assert_eq!(drained.try_recv(), Ok(()));
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let file = core.reactor.attach(ours.into());
    core.adopt(file, Protocol::Nbd, None);
    assert!(receive(&mut core, &mut theirs, 1).is_empty(), "no greeting");
    // Other copies may need what is here, and native clients go on until they are sent elsewhere.
    let before = core.connections.len();
    connect(&mut core, Protocol::Native);
    assert_eq!(core.connections.len(), before + 1);
}

/// It stayed open until the stop was over, and its client waited for a greeting.
#[test]
fn a_connection_that_is_accepted_as_a_stop_begins_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    for protocol in [Protocol::Nbd, Protocol::Native] {
        let mut core = bare_core();
        let listener = UnixListener::bind(&path).unwrap();
        let file = core.reactor.attach(listener.into());
        core.listeners.push(ListenerSlot { file, protocol });
        core.reactor.accept(file, tag::ACCEPT);
        let mut theirs = UnixStream::connect(&path).unwrap();
        let mut accepted = Vec::new();
        while accepted.is_empty() {
            core.reactor.turn(Wait::Forever, &mut accepted).unwrap();
        }
        core.stop();
        accepted.drain(..).for_each(|completion| core.complete(completion));
        assert!(receive(&mut core, &mut theirs, 1).is_empty(), "the end");
        std::fs::remove_file(&path).unwrap();
    }
}
