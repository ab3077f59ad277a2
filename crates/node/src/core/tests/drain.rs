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

/// The answer of a server that stops.
fn refusal(cookie: u8) -> [u8; 16] {
    let mut reply = [0; 16];
    reply[..4].copy_from_slice(&0x6744_6698_u32.to_be_bytes());
    reply[4..8].copy_from_slice(&108_u32.to_be_bytes());
    reply[15] = cookie;
    reply
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

/// The connection was closed, and neither of them was answered.
#[test]
fn what_is_under_way_is_waited_for_and_what_comes_later_is_refused() {
    let mut core = core_with_gateway();
    let (index, mut theirs) = connect(&mut core, Protocol::Nbd);
    theirs.write_all(&[hello(&core), read_request(1)].concat()).unwrap();
    receive(&mut core, &mut theirs, 28);
    let (done, drained) = channel();
    for _ in 0..TURNS_MAX {
        if core.connections[index].under_way > 0 {
            break;
        }
        core.service();
        turn(&mut core);
    }
    core.drain(done);
    theirs.write_all(&read_request(2)).unwrap();
    assert_eq!(receive(&mut core, &mut theirs, 16), refusal(2));
    assert_eq!(core.connections[index].under_way, 1);
    core.draining.as_mut().unwrap().since_ns -= 4 * S;
    core.now_ns = boottime_ns();
    core.drain_on();
    assert_eq!(drained.try_recv(), Err(TryRecvError::Empty), "the first one may be answered yet");
    // Where its data is nobody answers.
    core.draining.as_mut().unwrap().since_ns -= S;
    assert_eq!(receive(&mut core, &mut theirs, 16), refusal(1));
    assert_eq!(drained.try_recv(), Err(TryRecvError::Empty), "it may go on asking for a moment");
    theirs.write_all(&read_request(3)).unwrap();
    assert_eq!(receive(&mut core, &mut theirs, 16), refusal(3));
    assert!(receive(&mut core, &mut theirs, 1).is_empty(), "the end");
    core.service();
    core.drain_on();
    assert_eq!(drained.try_recv(), Ok(()));
    assert!(core.nbd_requests.is_empty(), "it is not tried again");
}

#[test]
fn who_does_not_leave_is_cut_off() {
    let mut core = core_with_gateway();
    let (index, mut theirs) = connect(&mut core, Protocol::Nbd);
    // Of a write only the beginning comes.
    theirs.write_all(&[hello(&core), nbd_request(1)].concat()).unwrap();
    receive(&mut core, &mut theirs, 28);
    for _ in 0..TURNS_MAX {
        if core.connections[index].is_within_message {
            break;
        }
        core.service();
        turn(&mut core);
    }
    let (done, drained) = channel();
    core.drain(done);
    core.draining.as_mut().unwrap().since_ns -= 5 * S;
    core.now_ns = boottime_ns();
    core.drain_on();
    assert_eq!(drained.try_recv(), Err(TryRecvError::Empty));
    core.draining.as_mut().unwrap().since_ns -= S;
    core.drain_on();
    assert_eq!(drained.try_recv(), Ok(()));
    assert!(receive(&mut core, &mut theirs, 1).is_empty(), "the end");
}

#[test]
fn nobody_is_waited_for_who_asks_for_nothing_and_no_client_is_taken() {
    let mut core = core_with_gateway();
    let (index, mut theirs) = connect(&mut core, Protocol::Nbd);
    receive(&mut core, &mut theirs, 18);
    core.connections[index].received_ns -= S;
    core.connections[index].sent_ns -= S;
    let (done, drained) = channel();
    core.drain(done);
    core.drain_on();
    assert_eq!(drained.try_recv(), Ok(()));
    assert!(receive(&mut core, &mut theirs, 1).is_empty(), "the end");
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
