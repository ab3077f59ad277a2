//! Sockets on loopback: echo, large lists, wake-ups, closes, addresses.

#![allow(clippy::unwrap_used)]

use std::io::Read;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use coquina_base::{AlignedBuf, BLOCK_BYTES, Landing, SharedBlock};
use coquina_reactor::{
    Address, Completion, Errno, FileId, GiveUp, ListenProblem, Listener, Payload, Reactor, ReactorConfig,
    ReactorError, ReceiveBuffer, SendList, WAKE_TOKEN, Wait, listen_nearby, mailbox, open_socket,
};

const ACCEPT: u64 = 1;
const CONNECT: u64 = 2;
const SEND: u64 = 3;
const RECEIVE: u64 = 4;
const CLOSE: u64 = 5;

fn collect(reactor: &mut Reactor, count: usize) -> Vec<Completion> {
    let mut completions = Vec::new();
    while completions.len() < count {
        reactor.turn(Wait::Forever, &mut completions).unwrap();
    }
    assert_eq!(completions.len(), count, "{completions:?}");
    completions
}

/// A reactor with both ends of a connection.
fn pair(address: &Address) -> (Reactor, FileId, FileId, FileId) {
    let mut reactor = Reactor::new(ReactorConfig { entries: 32, ..ReactorConfig::default() }).unwrap();
    let listener = Listener::bind(address).unwrap();
    let address = listener.address().clone();
    let listener = reactor.attach(listener.into_socket());
    reactor.accept(listener, ACCEPT);
    let client = reactor.attach(open_socket(&address).unwrap());
    reactor.connect(client, &address, CONNECT);
    let mut server = None;
    for completion in collect(&mut reactor, 2) {
        match (completion.token, completion.payload) {
            (ACCEPT, Payload::Accepted(Some(connection))) => server = Some(connection),
            (CONNECT, _) => assert_eq!(completion.result, Ok(0)),
            other => panic!("{other:?}"),
        }
    }
    (reactor, listener, client, server.unwrap())
}

/// A reactor with both ends of a connection that was made to a server of this host.
fn nearby_pair() -> (Reactor, FileId, FileId) {
    let mut reactor = Reactor::new(ReactorConfig { entries: 32, ..ReactorConfig::default() }).unwrap();
    let tcp = Listener::bind(&any_port()).unwrap();
    let address = tcp.address().clone();
    let nearby = reactor.attach(listen_nearby(&address).unwrap().unwrap());
    reactor.accept(nearby, ACCEPT);
    let client = reactor.connect_to(&address, GiveUp::SilentSeconds(5), CONNECT).unwrap();
    let server = collect(&mut reactor, 2).into_iter().find_map(|completion| match completion.payload {
        Payload::Accepted(connection) => connection,
        _ => None,
    });
    (reactor, client, server.unwrap())
}

fn any_port() -> Address {
    Address::resolve("127.0.0.1:0").unwrap()
}

/// Sends the list from one end and gives what arrives at the other.
fn transfer(reactor: &mut Reactor, from: FileId, to: FileId, list: SendList) -> Vec<u8> {
    let length = list.length_bytes();
    let at_once = reactor.send(from, list, SEND);
    let mut sent = at_once.is_some_and(|sent| sent.result == Ok(length as u32));
    reactor.receive(to, ReceiveBuffer::with_capacity_bytes(64 << 10), RECEIVE);
    let mut arrived = Vec::new();
    let mut completions = Vec::new();
    while !sent || arrived.len() < length {
        reactor.turn(Wait::Forever, &mut completions).unwrap();
        for completion in completions.drain(..) {
            match completion.payload {
                Payload::Send(_) => {
                    assert_eq!(completion.result, Ok(length as u32));
                    sent = true;
                }
                Payload::Receive(mut buffer) => {
                    arrived.extend_from_slice(buffer.data());
                    buffer.clear();
                    if arrived.len() < length {
                        reactor.receive(to, buffer, RECEIVE);
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }
    arrived
}

fn pattern(blocks: usize) -> AlignedBuf {
    let mut buffer = AlignedBuf::zeroed(blocks);
    buffer.iter_mut().enumerate().for_each(|(index, byte)| *byte = (index % 251) as u8);
    buffer
}

#[test]
fn a_list_of_many_kinds_arrives_in_order() {
    let (mut reactor, _, client, server) = pair(&any_port());
    let shared = Arc::new(pattern(300));
    let make = || {
        let mut list = SendList::new();
        // More pieces than one system call takes, and more bytes than a socket buffers.
        for index in 0..700usize {
            list.bytes().extend_from_slice(&(index as u32).to_le_bytes());
            list.push_shared(shared.clone(), index, 1000 + index);
        }
        list.push_zeroes((1 << 20) + 5);
        list.push_buffer(pattern(400), 3, 400 * 4096 - 3);
        list.bytes().push(77);
        list
    };
    let expected = make().to_bytes();
    assert!(transfer(&mut reactor, client, server, make()) == expected);
    assert!(transfer(&mut reactor, server, client, make()) == expected);
}

#[test]
fn unix_sockets_work_and_stale_ones_are_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let address = Address::resolve(&format!("unix:{}/socket", folder.path().display())).unwrap();
    {
        let (mut reactor, _, client, server) = pair(&address);
        let mut list = SendList::new();
        list.bytes().extend_from_slice(b"hello");
        assert_eq!(transfer(&mut reactor, client, server, list), b"hello");
        match Listener::bind(&address) {
            Err(ReactorError::Listen { problem: ListenProblem::InUse, .. }) => {}
            other => panic!("somebody listens there: {other:?}"),
        }
    }
    // The file of the listener that is gone is still there.
    let listener = Listener::bind(&address).unwrap();
    Listener::remove(listener.address());
    std::fs::write(folder.path().join("socket"), b"precious").unwrap();
    match Listener::bind(&address) {
        Err(ReactorError::Listen { problem: ListenProblem::NotASocket, .. }) => {}
        other => panic!("a file is not removed: {other:?}"),
    }
}

#[test]
fn a_port_in_use_is_said_so() {
    let listener = Listener::bind(&any_port()).unwrap();
    let error = Listener::bind(listener.address()).unwrap_err().to_string();
    assert!(error.contains("in use by another process"), "{error}");
}

#[test]
fn closing_ends_a_receive_and_the_peer_sees_it() {
    let (mut reactor, listener, client, server) = pair(&any_port());
    reactor.receive(client, ReceiveBuffer::with_capacity_bytes(16), 10);
    reactor.receive(server, ReceiveBuffer::with_capacity_bytes(16), 11);
    let mut nothing = Vec::new();
    reactor.turn(Wait::Poll, &mut nothing).unwrap();
    reactor.close(client, CLOSE);
    assert!(!reactor.is_open(client));
    let mut completions = collect(&mut reactor, 3);
    completions.sort_by_key(|completion| completion.token);
    assert_eq!(completions[0].token, CLOSE);
    assert!(matches!(completions[1].payload, Payload::Receive(_)));
    assert_eq!(completions[2].result, Ok(0), "0 bytes: the peer has closed");
    reactor.close(listener, CLOSE);
    let completions = collect(&mut reactor, 2);
    let accept = completions.iter().find(|completion| completion.token == ACCEPT).unwrap();
    assert!(accept.result.is_err());
    assert_eq!(reactor.in_flight(), 0);
    assert!(reactor.detach(server).is_some());
}

#[test]
fn a_broken_connection_is_an_error_not_a_signal() {
    let (mut reactor, _, client, server) = pair(&any_port());
    reactor.close(server, CLOSE);
    collect(&mut reactor, 1);
    let mut failed = None;
    for _ in 0..10 {
        let mut list = SendList::new();
        list.bytes().extend_from_slice(&[1; 100]);
        let sent = reactor.send(client, list, SEND).unwrap_or_else(|| collect(&mut reactor, 1).remove(0));
        if let Err(errno) = sent.result {
            failed = Some(errno);
            break;
        }
    }
    assert!(matches!(failed, Some(Errno(libc::EPIPE | libc::ECONNRESET))), "{failed:?}");
}

#[test]
fn accepted_connections_break_when_nothing_is_acknowledged_for_a_minute() {
    let (mut reactor, _, _, server) = pair(&any_port());
    let socket = reactor.detach(server).unwrap();
    assert_eq!(rustix::net::sockopt::tcp_user_timeout(&socket), Ok(60_000));
    assert_eq!(rustix::net::sockopt::socket_keepalive(&socket), Ok(true), "and idle ones are watched");
}

#[test]
fn connections_that_nobody_has_heard_of_are_closed_with_their_reactor() {
    let mut reactor = Reactor::new(ReactorConfig { entries: 32, ..ReactorConfig::default() }).unwrap();
    let listener = Listener::bind(&any_port()).unwrap();
    let Address::Tcp(address) = listener.address().clone() else { panic!("it is TCP") };
    let listener = reactor.attach(listener.into_socket());
    // It is first submitted when the reactor ends, and then accepts all that wait, in one go.
    reactor.accept(listener, ACCEPT);
    let mut clients: Vec<TcpStream> = (0..3).map(|_| TcpStream::connect(address).unwrap()).collect();
    drop(reactor);
    for client in &mut clients {
        client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        match client.read(&mut [0]) {
            Ok(0) => {}
            // Those that were not accepted go with the listener.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
            other => panic!("it is still open: {other:?}"),
        }
    }
}

#[test]
fn other_threads_wake_a_sleeping_reactor() {
    let mut reactor = Reactor::new(ReactorConfig::default()).unwrap();
    let (sender, receiver) = mailbox(reactor.waker());
    let threads: Vec<_> = (0..4u64)
        .map(|thread| {
            let sender = sender.clone();
            std::thread::spawn(move || (0..1000).for_each(|number| sender.send(thread * 1000 + number)))
        })
        .collect();
    let mut received = Vec::new();
    let mut values = Vec::new();
    let mut completions = Vec::new();
    while received.len() < 4000 {
        reactor.turn(Wait::Forever, &mut completions).unwrap();
        for completion in completions.drain(..) {
            assert_eq!(completion.token, WAKE_TOKEN);
            assert!(matches!(completion.payload, Payload::Woken));
        }
        receiver.drain(&mut values);
        received.append(&mut values);
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    received.sort_unstable();
    assert!(received.iter().copied().eq(0..4000));
}

#[test]
fn addresses_are_read() {
    assert!(matches!(Address::resolve("127.0.0.1:80"), Ok(Address::Tcp(_))));
    assert!(matches!(Address::resolve("[::1]:80"), Ok(Address::Tcp(_))));
    assert!(matches!(Address::resolve("unix:/tmp/x"), Ok(Address::Unix(_))));
    for bad in ["", "unix:", "host", ":80", "host:", "host:99999"] {
        assert!(Address::resolve(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn a_landing_is_filled_whole_however_the_bytes_come() {
    let (mut reactor, _listener, client, server) = pair(&any_port());
    let payload: Vec<u8> = (0..5 * BLOCK_BYTES).map(|index| (index % 251) as u8).collect();
    let mut landing = Landing::new(vec![AlignedBuf::zeroed(4), AlignedBuf::zeroed(3)]);
    landing.push(&payload[..1000]);
    reactor.land(server, landing, RECEIVE);
    let mut landed = 0;
    for part in [&payload[1000..9000], &payload[9000..]] {
        let mut list = SendList::new();
        list.bytes().extend_from_slice(part);
        list.bytes().extend_from_slice(if part.len() == 8000 { b"" } else { b"next" });
        let at_once = reactor.send(client, list, SEND);
        let wanted = if part.len() == 8000 { 1 } else { 2 } - usize::from(at_once.is_some());
        for completion in collect(&mut reactor, wanted) {
            let Payload::Landing(landing) = completion.payload else { continue };
            landed += 1;
            assert_eq!(completion.result, Ok(5 * BLOCK_BYTES as u32 - 1000));
            assert_eq!(landing.left_bytes(), 0);
            assert_eq!(landing.pieces().collect::<Vec<_>>().concat(), payload);
            assert!(landing.into_buffers().iter().all(|buffer| buffer[..BLOCK_BYTES] == [0; BLOCK_BYTES]));
        }
    }
    assert_eq!(landed, 1);
    // What follows the payload is left for the next receive.
    reactor.receive(server, ReceiveBuffer::with_capacity_bytes(64), RECEIVE);
    let completions = collect(&mut reactor, 1);
    let Payload::Receive(received) = &completions[0].payload else { panic!("{completions:?}") };
    assert_eq!(received.data(), b"next");
}

#[test]
fn a_landing_whose_peer_breaks_off_is_an_error() {
    let (mut reactor, _listener, client, server) = pair(&any_port());
    reactor.land(server, Landing::new(vec![AlignedBuf::zeroed(2)]), RECEIVE);
    let mut list = SendList::new();
    list.bytes().extend_from_slice(&[7; 100]);
    assert_eq!(reactor.send(client, list, SEND).map(|sent| sent.result), Some(Ok(100)));
    reactor.close(client, CLOSE);
    let completions = collect(&mut reactor, 2);
    let landed = completions.iter().find(|completion| completion.token == RECEIVE).unwrap();
    assert_eq!(landed.result, Err(Errno(libc::ECONNRESET)));
}

#[test]
fn large_pieces_are_lent_to_a_server_of_this_host() {
    let (mut reactor, client, server) = nearby_pair();
    let shared = Arc::new(pattern(300));
    let make = || {
        let mut list = SendList::new();
        // More than a socket takes at once, with small pieces in between, and pieces at odd places.
        for index in 0..20usize {
            list.bytes().extend_from_slice(&(index as u32).to_le_bytes());
            list.push_shared(shared.clone(), index * 77, 1_000_000 + index);
            list.push_shared(shared.clone(), index, 1000);
            list.push_shared(shared.clone(), index * 4096, 128 << 10);
            list.push_shared(shared.clone(), 5, 40_000);
        }
        list.push_zeroes(100_000);
        list.push_buffer(pattern(40), 3, 40 * 4096 - 3);
        list
    };
    let expected = make().to_bytes();
    for _ in 0..3 {
        assert!(transfer(&mut reactor, client, server, make()) == expected);
    }
    // The pages were read by the receiver where they lie: what is changed before that, it sees.
    let mut changed = Arc::new(pattern(16));
    let mut list = SendList::new();
    list.push_shared(changed.clone(), 0, 16 * BLOCK_BYTES);
    let Some(sent) = reactor.send(client, list, SEND) else { panic!("there is room for so little") };
    drop(sent);
    Arc::get_mut(&mut changed).expect("the list gave its share back")[0] = 255;
    reactor.receive(server, ReceiveBuffer::with_capacity_bytes(1 << 20), RECEIVE);
    let completions = collect(&mut reactor, 1);
    let Payload::Receive(received) = &completions[0].payload else { panic!("{completions:?}") };
    assert_eq!(received.data()[0], 255, "it was lent, not copied");
    assert!(received.data()[1..] == pattern(16)[1..received.data().len()]);
}

#[test]
fn a_list_that_is_lent_ends_with_its_connection() {
    for ends_here in [true, false] {
        let (mut reactor, client, server) = nearby_pair();
        let shared = Arc::new(pattern(5000));
        let mut list = SendList::new();
        list.push_shared(shared.clone(), 0, 5000 * BLOCK_BYTES);
        assert!(reactor.send(client, list, SEND).is_none(), "a socket takes less than that");
        reactor.close(if ends_here { client } else { server }, CLOSE);
        let completions = collect(&mut reactor, 2);
        let sent = completions.iter().find(|completion| completion.token == SEND).unwrap();
        assert!(matches!(sent.result, Err(Errno(libc::ECANCELED | libc::EPIPE))), "{sent:?}");
        drop(completions);
        assert_eq!(Arc::strong_count(&shared), 1);
    }
}

/// Receives until all that was sent is there.
fn receive_all(reactor: &mut Reactor, from: FileId, length: usize) -> Vec<u8> {
    let mut arrived = Vec::new();
    while arrived.len() < length {
        reactor.receive(from, ReceiveBuffer::with_capacity_bytes(64 << 10), RECEIVE);
        let completions = collect(reactor, 1);
        let Payload::Receive(received) = &completions[0].payload else { panic!("{completions:?}") };
        assert!(!received.data().is_empty(), "all of it comes");
        arrived.extend_from_slice(received.data());
    }
    arrived
}

/// Blocks that all hold their number, and a list that sends them in answers of `blocks` with a head each, and a buffer at its end.
fn answers(count: usize, blocks: usize) -> (Vec<SharedBlock>, SendList) {
    let mut all: Vec<SharedBlock> = SharedBlock::slab(count).collect();
    for (index, block) in all.iter_mut().enumerate() {
        block.get_mut().unwrap().fill(index as u8);
    }
    let mut list = SendList::new();
    for (index, answer) in all.chunks(blocks).enumerate() {
        list.bytes().extend_from_slice(&(index as u32).to_le_bytes());
        list.push_block(answer[0].clone(), 100, BLOCK_BYTES - 100);
        answer[1..].iter().for_each(|block| list.push_block(block.clone(), 0, BLOCK_BYTES));
    }
    list.push_buffer(pattern(10), 0, 10 * BLOCK_BYTES);
    (all, list)
}

#[test]
fn what_is_lent_from_a_list_is_kept_until_it_is_read() {
    // One answer, many, and more than a socket takes at once.
    for (count, blocks) in [(20, 20), (200, 10), (3000, 128)] {
        let (mut reactor, client, server) = nearby_pair();
        reactor.lend_to(server);
        let (mut all, mut list) = answers(count, blocks);
        let expected = list.to_bytes();
        let given_back = |list: &mut SendList| {
            let mut buffers = 0;
            list.recycle(|buffer| buffers += buffer.blocks());
            buffers
        };
        let mut sent = reactor.send(server, list, SEND);
        let mut arrived = Vec::new();
        while sent.is_none() {
            reactor.receive(client, ReceiveBuffer::with_capacity_bytes(64 << 10), RECEIVE);
            for completion in collect_some(&mut reactor) {
                match completion.payload {
                    Payload::Receive(received) => arrived.extend_from_slice(received.data()),
                    Payload::Send(_) => sent = Some(completion),
                    _ => panic!("{completion:?}"),
                }
            }
        }
        let Some(Completion { result, payload: Payload::Send(mut list), .. }) = sent else { panic!() };
        assert_eq!(result, Ok(expected.len() as u32));
        assert_eq!(given_back(&mut list), 0, "the list with the buffer is still to be read");
        // What is still unread may not change yet: nobody but its owner and the socket have shares.
        let last = all.last_mut().unwrap();
        assert!(last.get_mut().is_none(), "a share is kept for the peer");
        let left = expected.len() - arrived.len();
        arrived.extend(receive_all(&mut reactor, client, left));
        assert!(arrived == expected);
        // The next list that is lent finds it read, and brings the old one back.
        let (_, list) = answers(20, 20);
        let length = list.length_bytes();
        let Some(Completion { payload: Payload::Send(mut list), .. }) = reactor.send(server, list, SEND)
        else {
            panic!("there is room for so little")
        };
        assert_eq!(given_back(&mut list), 10, "the first buffer");
        assert!(all.iter_mut().all(|block| block.get_mut().is_some()), "no share is left");
        assert_eq!(receive_all(&mut reactor, client, length).len(), length);
    }
}

#[test]
fn a_list_is_kept_while_it_is_unread_whatever_is_sent_behind_it() {
    let (mut reactor, client, server) = nearby_pair();
    reactor.lend_to(server);
    let send = |reactor: &mut Reactor| {
        let (all, list) = answers(64, 32);
        let length = list.length_bytes();
        assert!(reactor.send(server, list, SEND).is_some(), "there is room for so little");
        (all, length)
    };
    let kept = |all: &mut [SharedBlock]| -> usize {
        all.iter_mut().map(|block| usize::from(block.get_mut().is_none())).sum()
    };
    let (mut first, length) = send(&mut reactor);
    let (mut second, _) = send(&mut reactor);
    assert_eq!((kept(&mut first), kept(&mut second)), (64, 64));
    let mut arrived = receive_all(&mut reactor, client, length / 2).len();
    assert!(arrived < length);
    let (mut third, _) = send(&mut reactor);
    assert_eq!((kept(&mut first), kept(&mut second), kept(&mut third)), (64, 64, 64));
    arrived += receive_all(&mut reactor, client, 2 * length - arrived).len();
    assert!(arrived < 3 * length);
    let (mut fourth, _) = send(&mut reactor);
    // The kernel counts a little more than what is unread, so that the second one may be kept for longer.
    assert_eq!(kept(&mut first), 0, "what was read is given up");
    assert_eq!((kept(&mut third), kept(&mut fourth)), (64, 64), "and nothing else");
    receive_all(&mut reactor, client, 4 * length - arrived);
    let _ = send(&mut reactor);
    assert_eq!((kept(&mut second), kept(&mut third), kept(&mut fourth)), (0, 0, 0));
}

/// At least one completion.
fn collect_some(reactor: &mut Reactor) -> Vec<Completion> {
    let mut completions = Vec::new();
    while completions.is_empty() {
        reactor.turn(Wait::Forever, &mut completions).unwrap();
    }
    completions
}

#[test]
fn what_is_lent_is_kept_when_its_connection_is_closed() {
    for peer_reads in [true, false] {
        let (mut reactor, client, server) = nearby_pair();
        reactor.lend_to(server);
        let (mut all, mut list) = answers(64, 32);
        let expected = list.to_bytes();
        assert!(reactor.send(server, list, SEND).is_some());
        assert!(reactor.detach(server).is_none(), "not while pages are lent");
        reactor.close(server, CLOSE);
        assert_eq!(collect(&mut reactor, 1)[0].token, CLOSE);
        assert!(all[0].get_mut().is_none());
        if peer_reads {
            assert!(receive_all(&mut reactor, client, expected.len()) == expected);
            reactor.receive(client, ReceiveBuffer::with_capacity_bytes(1 << 10), RECEIVE);
            assert_eq!(collect(&mut reactor, 1)[0].result, Ok(0), "then the connection is closed");
        } else {
            reactor.close(client, CLOSE);
            collect(&mut reactor, 1);
        }
        let mut completions = Vec::new();
        let mut looks = 0;
        while all.iter_mut().any(|block| block.get_mut().is_none()) {
            looks += 1;
            assert!(looks < 1000, "what was read, or will not be, is given up");
            reactor.turn(Wait::Poll, &mut completions).unwrap();
            assert!(completions.is_empty());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
fn nothing_is_lent_to_a_peer_that_was_not_said_to_check() {
    let (mut reactor, client, server) = nearby_pair();
    let (mut all, list) = answers(64, 32);
    let length = list.length_bytes();
    assert!(reactor.send(server, list, SEND).is_some());
    assert!(all.iter_mut().all(|block| block.get_mut().is_some()), "it was copied");
    assert_eq!(receive_all(&mut reactor, client, length).len(), length);
    let (mut reactor, _, client, server) = pair(&any_port());
    reactor.lend_to(server);
    let (mut all, list) = answers(64, 32);
    let arrived = transfer(&mut reactor, server, client, list);
    assert!(all.iter_mut().all(|block| block.get_mut().is_some()), "nor is it over TCP");
    assert_eq!(arrived.len(), length);
}

#[test]
fn a_landing_that_is_filled_as_the_bytes_come() {
    // Over TCP, where what is there completes.
    let (mut reactor, _listener, client, server) = pair(&any_port());
    let payload = pattern(5);
    let mut landing = Landing::plain(vec![AlignedBuf::zeroed(6)], 5 * BLOCK_BYTES);
    for (part, more) in [(&payload[..9000], true), (&payload[9000..], false)] {
        reactor.land_as_it_comes(server, landing, RECEIVE);
        let mut list = SendList::new();
        list.bytes().extend_from_slice(part);
        list.bytes().extend_from_slice(if more { b"" } else { b"next" });
        assert!(reactor.send(client, list, SEND).is_some());
        let mut completions = collect(&mut reactor, 1);
        assert_eq!(completions[0].result, Ok(part.len() as u32));
        let Payload::Landing(landed) = completions.remove(0).payload else { panic!("no landing") };
        assert_eq!(landed.left_bytes() > 0, more);
        landing = landed;
    }
    assert!(landing.into_buffers()[0][..5 * BLOCK_BYTES] == payload[..]);
    reactor.close(client, CLOSE);
    let landing = Landing::plain(vec![AlignedBuf::zeroed(1)], BLOCK_BYTES);
    reactor.land_as_it_comes(server, landing, RECEIVE);
    let mut completions = collect(&mut reactor, 2);
    completions.retain(|completion| completion.token == RECEIVE);
    assert_eq!(completions[0].result, Ok(4), "what was sent before");
    let Payload::Landing(landing) = completions.remove(0).payload else { panic!("no landing") };
    reactor.land_as_it_comes(server, landing, RECEIVE);
    assert_eq!(collect(&mut reactor, 1)[0].result, Err(Errno(libc::ECONNRESET)));
}

#[test]
fn a_server_of_this_host_is_reached_by_its_unix_socket() {
    let mut reactor = Reactor::new(ReactorConfig { entries: 32, ..ReactorConfig::default() }).unwrap();
    let tcp = Listener::bind(&any_port()).unwrap();
    let address = tcp.address().clone();
    let tcp = reactor.attach(tcp.into_socket());
    reactor.accept(tcp, ACCEPT);
    let nearby = reactor.attach(listen_nearby(&address).unwrap().unwrap());
    reactor.accept(nearby, ACCEPT + 100);
    assert!(listen_nearby(&address).unwrap().is_err(), "the name is taken");
    // With the Unix socket gone, and with it its name, TCP is left.
    for (listener, token) in [(Some(nearby), ACCEPT + 100), (None, ACCEPT)] {
        let client = reactor.connect_to(&address, GiveUp::SilentSeconds(5), CONNECT).unwrap();
        let mut server = None;
        for completion in collect(&mut reactor, 2) {
            if let Payload::Accepted(Some(connection)) = completion.payload {
                assert_eq!(completion.token, token);
                server = Some(connection);
            } else {
                assert_eq!((completion.token, completion.result), (CONNECT, Ok(0)));
            }
        }
        let mut list = SendList::new();
        list.push_buffer(pattern(300), 0, 300 * BLOCK_BYTES);
        let arrived = transfer(&mut reactor, client, server.unwrap(), list);
        assert!(arrived == pattern(300)[..]);
        if let Some(listener) = listener {
            reactor.close(listener, CLOSE);
            collect(&mut reactor, 2);
        }
    }
}
