//! The client against a little server that fails on order.

#![allow(clippy::unwrap_used)]

mod fake;

use std::time::Duration;

use coquina_client::{
    ClientCompletion, ClientConfig, ClientError, ClientRequest, LocalAnswer, RequestKind, Volume,
    VolumeClient, VolumeConnection, VolumeOptions,
};
use coquina_protocol::{ExtentKind, Kind, NotifyKind, Status};
use coquina_reactor::{Reactor, ReactorConfig, Wait};
use fake::{Fake, Fault};

const CHUNK: u64 = 4 << 20;

fn open(fake: &Fake) -> VolumeConnection {
    VolumeConnection::open(VolumeConnection::config(&fake.address(), "disk")).unwrap()
}

fn write(token: u64, offset_bytes: u64, length: usize, byte: u8) -> ClientRequest {
    let mut buffer = VolumeConnection::buffer(length);
    buffer.fill(byte);
    ClientRequest { token, kind: RequestKind::Write, offset_bytes, length_bytes: length as u64, buffer }
}

fn read(token: u64, offset_bytes: u64, length: usize) -> ClientRequest {
    let mut buffer = VolumeConnection::buffer(length);
    buffer.fill(0xee);
    ClientRequest { token, kind: RequestKind::Read, offset_bytes, length_bytes: length as u64, buffer }
}

/// Polls until `count` requests are finished, in the order of their tokens.
fn finish(client: &mut VolumeConnection, count: usize) -> Vec<ClientCompletion> {
    let mut completions = Vec::new();
    while completions.len() < count {
        client.poll(Wait::Forever, &mut completions).unwrap();
    }
    assert_eq!(completions.len(), count);
    completions.sort_by_key(|completion| completion.token);
    completions
}

fn run(client: &mut VolumeConnection, request: ClientRequest) -> ClientCompletion {
    client.submit(request);
    finish(client, 1).remove(0)
}

/// Servers break the connection for some of these, and it was tried again until the client gave up.
#[test]
fn a_name_that_no_volume_can_have_is_refused_at_once() {
    for name in ["", "a volume", &"x".repeat(2000)] {
        let mut config = VolumeConnection::config("unix:/nobody/listens/here", name);
        config.give_up_ns = 1_000_000_000;
        let error = VolumeConnection::open(config).err().unwrap();
        assert_eq!(error.status(), Some(Status::UnknownVolume), "{error}");
        assert!(error.to_string().contains("a name has 1 to 63 characters"), "{error}");
    }
}

#[test]
fn what_is_written_is_read_back_across_chunks_and_shards() {
    let fake = Fake::start(5 * CHUNK as usize);
    let mut client = open(&fake);
    assert_eq!(client.size_bytes(), 5 * CHUNK);
    let cases =
        [(0, 4096, 1), (CHUNK - 8192, 16384, 2), (CHUNK + 512, 1536, 3), (2 * CHUNK - 4096, 9 << 20, 4)];
    for (offset, length, byte) in cases {
        let done = run(&mut client, write(1, offset, length, byte));
        assert_eq!(done.result, Ok(()));
        assert!(done.buffer.len() >= length, "the buffer comes back");
        let done = run(&mut client, read(2, offset, length));
        assert_eq!(done.result, Ok(()));
        assert!(done.buffer[..length].iter().all(|read| *read == byte), "case {byte}");
    }
    let discard = |kind, offset_bytes, length_bytes| ClientRequest {
        token: 3,
        kind,
        offset_bytes,
        length_bytes,
        buffer: Default::default(),
    };
    assert_eq!(run(&mut client, discard(RequestKind::Discard, 0, CHUNK)).result, Ok(()));
    let zeroes = RequestKind::WriteZeroes { no_hole: true };
    assert_eq!(run(&mut client, discard(zeroes, CHUNK, 3 * CHUNK)).result, Ok(()));
    fake.state.lock().unwrap().leave_out_zeroes = true;
    let done = run(&mut client, read(4, 0, 4 * CHUNK as usize));
    assert!(done.buffer.iter().all(|byte| *byte == 0));
    let mapped = run(&mut client, discard(RequestKind::Map, 512, 2 * CHUNK));
    let lengths: Vec<_> = mapped.extents.iter().map(|extent| (extent.length_bytes, extent.kind)).collect();
    let hole = ExtentKind::Hole;
    assert_eq!(lengths, [(4 << 20) - 512, 4 << 20, 512].map(|length| (length, hole)));
    assert_eq!(run(&mut client, discard(RequestKind::Flush, 0, 0)).result, Ok(()));
    assert!(fake.applied().1, "each change was applied once");
}

#[test]
fn more_requests_than_the_window_or_the_server_takes_wait_their_turn() {
    let fake = Fake::start(16 << 20);
    fake.state.lock().unwrap().requests_max = 7;
    let mut client = open(&fake);
    for token in 0..5000 {
        client.submit(write(token, token % 4096 * 4096, 4096, (token % 200) as u8 + 1));
    }
    let done = finish(&mut client, 5000);
    assert!(done.iter().all(|done| done.result.is_ok()));
    assert!(done.iter().map(|done| done.token).eq(0..5000));
    assert_eq!(fake.applied(), (5000, true));
    assert_eq!(client.client().outstanding(), 0);
}

#[test]
fn a_connection_cut_in_the_middle_of_a_reply_repeats_the_same_numbers_once() {
    let fake = Fake::start(16 << 20);
    let mut client = open(&fake);
    assert_eq!(run(&mut client, write(0, 0, 4096, 9)).result, Ok(()));
    for fault in [Fault::None, Fault::None, Fault::CutReply(40)] {
        fake.fault(fault);
    }
    for token in 1..=20 {
        client.submit(write(token, token * 4096, 4096, token as u8));
    }
    let done = finish(&mut client, 20);
    assert!(done.iter().all(|done| done.result.is_ok()));
    assert_eq!(fake.applied(), (21, true), "the write whose reply was cut was not applied again");
    let arrivals = fake.arrivals();
    let repeated: Vec<u64> =
        arrivals.iter().filter(|arrival| arrival.retry).map(|arrival| arrival.request).collect();
    assert!(repeated.contains(&4), "the cut one is repeated: {repeated:?}");
    assert!(!repeated.contains(&1), "the answered one is not: {repeated:?}");
    assert!(repeated.is_sorted(), "in their order: {repeated:?}");
    let newest = arrivals.iter().map(|arrival| arrival.request).max().unwrap();
    assert_eq!(newest, 21, "no request got a second number");
    let sessions = fake.state.lock().unwrap().sessions.clone();
    assert!(sessions.iter().all(|session| *session == sessions[0]), "one session throughout");
    for token in 1..=20 {
        let back = run(&mut client, read(99, token * 4096, 4096));
        assert!(back.buffer.iter().all(|byte| *byte == token as u8));
    }
}

#[test]
fn cuts_at_every_place_of_a_large_transfer_are_survived() {
    let fake = Fake::start(16 << 20);
    let mut client = open(&fake);
    assert_eq!(run(&mut client, write(0, 0, 65536, 7)).result, Ok(()));
    for bytes in [0, 1, 95, 96, 97, 160, 161, 30_000, 65_000] {
        fake.fault(Fault::CutReply(bytes));
        let back = run(&mut client, read(1, 0, 65536));
        assert_eq!(back.result, Ok(()), "cut after {bytes}");
        assert!(back.buffer.iter().all(|byte| *byte == 7));
    }
    fake.fault(Fault::CutBefore);
    assert_eq!(run(&mut client, write(0, 0, 1 << 20, 8)).result, Ok(()));
    assert_eq!(fake.applied(), (2, true));
    // Answers that land in the reader's buffer.
    for bytes in [100, 1119, 1120, 70_000, 500_000, (1 << 20) + 1119] {
        fake.fault(Fault::CutReply(bytes));
        let back = run(&mut client, read(1, 0, 1 << 20));
        assert_eq!((back.result, back.buffer.len()), (Ok(()), 1 << 20), "cut after {bytes}");
        assert!(back.buffer.iter().all(|byte| *byte == 8));
    }
}

#[test]
fn damaged_data_is_read_again_and_never_given() {
    let fake = Fake::start(16 << 20);
    let mut client = open(&fake);
    assert_eq!(run(&mut client, write(0, 4096, 2 << 20, 5)).result, Ok(()));
    assert!(!fake.arrivals()[0].client_checks, "it is a flag of reads");
    // The longest one lands in the reader's buffer.
    for length in [4096, 512, 2 << 20] {
        fake.fault(Fault::FlipBit);
        fake.fault(Fault::FlipBit);
        let back = run(&mut client, read(1, 4096, length));
        assert_eq!(back.result, Ok(()));
        assert!(back.buffer[..length].iter().all(|byte| *byte == 5));
        assert_eq!(fake.faults_left(), 0, "it was read until it was right");
        let arrivals = fake.arrivals();
        let last: Vec<bool> =
            arrivals[arrivals.len() - 3..].iter().map(|arrival| arrival.client_checks).collect();
        assert_eq!(last, [true, false, false], "the server is to compare what it sends again");
    }
    for _ in 0..4 {
        fake.fault(Fault::FlipBit);
    }
    let failed = run(&mut client, read(1, 4096, 4096));
    assert!(matches!(failed.result, Err(ClientError::Damaged { attempts: 4, .. })), "{:?}", failed.result);
    assert_eq!(run(&mut client, read(1, 4096, 4096)).result, Ok(()));
}

#[test]
fn a_server_that_restarts_is_found_again() {
    let fake = Fake::start(16 << 20);
    let address = fake.address();
    let mut client = open(&fake);
    assert_eq!(run(&mut client, write(0, 0, 4096, 1)).result, Ok(()));
    let (state, at) = fake.stop();
    for token in 1..=50 {
        client.submit(write(token, token * 65536, 32768, token as u8));
    }
    let mut completions = Vec::new();
    for _ in 0..20 {
        client.poll(Wait::Until(coquina_reactor::monotonic_ns() + 5_000_000), &mut completions).unwrap();
    }
    assert!(completions.is_empty(), "nobody can have answered");
    let fake = Fake::restart(state, at);
    assert_eq!(fake.address(), address);
    let done = finish(&mut client, 50);
    assert!(done.iter().all(|done| done.result.is_ok() && done.buffer.len() == 32768));
    assert_eq!(fake.applied(), (51, true));
}

#[test]
fn errors_of_requests_are_told_apart_and_do_not_spread() {
    let fake = Fake::start(16 << 20);
    let mut client = open(&fake);
    for status in [Status::NoSpace, Status::BadBlock, Status::ReadOnly, Status::Device, Status::Invalid] {
        fake.fault(Fault::Refuse(status));
        let failed = run(&mut client, write(1, 0, 4096, 1)).result.unwrap_err();
        assert_eq!(failed.status(), Some(status));
        assert!(failed.to_string().contains("as ordered"));
    }
    for status in
        [Status::Busy, Status::ShuttingDown, Status::NotHere, Status::StaleEpoch, Status::StaleHandle]
    {
        fake.fault(Fault::Refuse(status));
        fake.fault(Fault::Refuse(status));
        assert_eq!(run(&mut client, write(1, 0, 4096, 1)).result, Ok(()), "{status:?} is temporary");
    }
    for _ in 0..2 {
        fake.fault(Fault::Refuse(Status::ChecksumMismatch));
    }
    assert_eq!(run(&mut client, write(1, 0, 4096, 1)).result, Ok(()));
    // One part of three fails.
    for fault in [Fault::None, Fault::Refuse(Status::NoSpace), Fault::None] {
        fake.fault(fault);
    }
    let failed = run(&mut client, write(1, 4096, 9 << 20, 3));
    assert_eq!(failed.result.unwrap_err().status(), Some(Status::NoSpace));
    assert_eq!(failed.buffer.len(), 9 << 20);
    for (offset, length) in [(0, 0), (1, 512), (512, 100), (16 << 20, 512), (u64::MAX - 511, 512)] {
        let bad = run(&mut client, write(1, offset, length, 1)).result;
        assert!(matches!(bad, Err(ClientError::Range { .. })), "{offset} {length}");
    }
    let short = ClientRequest { length_bytes: 8192, ..read(1, 0, 4096) };
    assert!(matches!(run(&mut client, short).result, Err(ClientError::Buffer { .. })));
}

#[test]
fn a_server_that_answers_nonsense_loses_the_connection_not_the_data() {
    let fake = Fake::start(16 << 20);
    let mut client = open(&fake);
    fake.fault(Fault::WrongNumber);
    let hellos = fake.state.lock().unwrap().hellos;
    assert_eq!(run(&mut client, read(1, 0, 4096)).result, Ok(()));
    assert_eq!(
        fake.state.lock().unwrap().hellos,
        hellos + 2,
        "first hello of the shard, and one after the break"
    );
}

#[test]
fn a_silent_server_is_left_and_asked_again() {
    let fake = Fake::start(16 << 20);
    let mut config = VolumeConnection::config(&fake.address(), "disk");
    config.stall_ns = 300_000_000;
    let mut client = VolumeConnection::open(config).unwrap();
    fake.fault(Fault::Swallow);
    client.submit(write(1, 0, 4096, 1));
    let mut completions = Vec::new();
    let patience = coquina_reactor::monotonic_ns() + 1_000_000_000;
    while completions.is_empty() && coquina_reactor::monotonic_ns() < patience {
        client.poll(Wait::Until(patience), &mut completions).unwrap();
    }
    // The server lives, as its answers to pings show: a slow request is not given up for that.
    assert!(completions.is_empty());
    let (state, at) = fake.stop();
    let fake = Fake::restart(state, at);
    assert_eq!(finish(&mut client, 1)[0].result, Ok(()));
    assert_eq!(fake.applied(), (1, true));
}

#[test]
fn giving_up_says_so() {
    let fake = Fake::start(16 << 20);
    let mut config = VolumeConnection::config(&fake.address(), "disk");
    config.give_up_ns = 150_000_000;
    let mut client = VolumeConnection::open(config.clone()).unwrap();
    assert_eq!(run(&mut client, write(0, 0, 4096, 1)).result, Ok(()));
    drop(fake.stop());
    client.submit(write(1, 0, 4096, 2));
    client.submit(read(2, 4096, 4096));
    for done in finish(&mut client, 2) {
        let error = done.result.unwrap_err();
        assert!(matches!(error, ClientError::GivenUp { .. }), "{error}");
        assert!(error.to_string().contains("Connection refused"), "{error}");
    }
    let error = VolumeConnection::open(config).err().unwrap();
    assert!(matches!(error, ClientError::GivenUp { .. }), "{error}");
}

#[test]
fn opening_what_is_not_there_fails_soon() {
    let fake = Fake::start(16 << 20);
    let unknown = VolumeConnection::open(VolumeConnection::config(&fake.address(), "other")).err().unwrap();
    assert_eq!(unknown.status(), Some(Status::UnknownVolume), "{unknown}");
    fake.state.lock().unwrap().refuse_hello = Some(Status::VersionMismatch);
    let version = VolumeConnection::open(VolumeConnection::config(&fake.address(), "disk")).err().unwrap();
    assert_eq!(version.status(), Some(Status::VersionMismatch), "{version}");
    let address = VolumeConnection::open(VolumeConnection::config("nowhere", "disk")).err().unwrap();
    assert!(matches!(address, ClientError::Address(_)), "{address}");
}

#[test]
fn one_of_several_addresses_is_enough() {
    let fake = Fake::start(16 << 20);
    // Nobody listens on the first, the second has no meaning.
    let addresses = format!("127.0.0.1:1, no-such-host.invalid:7, {}", fake.address());
    let mut client = VolumeConnection::open(VolumeConnection::config(&addresses, "disk")).unwrap();
    assert_eq!(run(&mut client, write(0, 0, 4096, 1)).result, Ok(()));
    assert!(fake.applied().1);
    let error = VolumeConnection::open(VolumeConnection::config(" , ", "disk")).err().unwrap();
    assert!(matches!(error, ClientError::Address(_)), "{error}");
}

/// The two read the clock one after the other, and what had become late between them was sent without a look.
#[test]
fn what_is_late_is_judged_by_the_same_time_by_a_look_and_the_flush_after_it() {
    const MS: u64 = 1_000_000;
    let fake = Fake::start(16 << 20);
    let table = fake.attached();
    let local = table.shards.iter().map(|shard| (shard.drive, shard.shard)).collect();
    let config = ClientConfig { local, ..VolumeConnection::config("", "disk") };
    let mut reactor = Reactor::new(ReactorConfig::default()).unwrap();
    let mut client = VolumeClient::directed(config, 1 << 32);
    client.set_volume(&table);
    client.submit(write(1, 0, 4096, 5));
    // Far from what the clock says.
    let now_ns = coquina_reactor::monotonic_ns() + 3_600_000 * MS;
    client.flush_at(&mut reactor, now_ns);
    assert!(!client.may_send_again(now_ns + 99 * MS));
    assert!(client.may_send_again(now_ns + 100 * MS));
}

#[test]
fn a_directed_client_uses_what_it_is_told_and_hands_out_what_is_here() {
    let fake = Fake::start(16 << 20);
    let table = fake.attached();
    let here = (table.shards[0].drive, 0);
    let config = ClientConfig { local: vec![here], ..VolumeConnection::config("", "disk") };
    let mut reactor = Reactor::new(ReactorConfig::default()).unwrap();
    let mut client = VolumeClient::directed(config, 1 << 32);
    client.set_volume(&table);
    client.submit(write(1, 0, 16 << 20, 5));
    let (mut turned, mut parts, mut completions) = (Vec::new(), Vec::new(), Vec::new());
    let mut local = 0;
    while completions.is_empty() {
        client.flush(&mut reactor);
        client.take_local(&mut parts);
        for part in parts.drain(..) {
            assert_eq!((part.drive, part.shard, part.kind), (here.0, 0, RequestKind::Write));
            assert!(client.local_payload(part.name).unwrap().iter().all(|byte| *byte == 5));
            client.local_done(part.name, Ok(LocalAnswer::Changed));
            local += 1;
        }
        reactor.turn(Wait::Until(coquina_reactor::monotonic_ns() + 5_000_000), &mut turned).unwrap();
        for completion in turned.drain(..) {
            assert!(client.owns(completion.token));
            client.complete(&mut reactor, completion);
        }
        client.take_completions(&mut completions);
    }
    assert_eq!(completions[0].result, Ok(()));
    assert_eq!((local, fake.applied()), (2, (2, true)), "two chunks are here and two there");
    assert!(fake.arrivals().iter().all(|arrival| arrival.shard == 1));
    assert_eq!(fake.state.lock().unwrap().hellos, 1, "one connection, for the shard that is not here");
    assert_eq!(client.deadline_ns(), None);
    client.shut_down(&mut reactor);
}

#[test]
fn notifications_change_the_size_and_end_a_removed_volume() {
    let fake = Fake::start(16 << 20);
    let mut client = open(&fake);
    let mut completions = Vec::new();
    fake.notify(NotifyKind::Resized, 8 << 20);
    while client.size_bytes() != 8 << 20 {
        client.poll(Wait::Forever, &mut completions).unwrap();
    }
    assert!(matches!(run(&mut client, read(1, 8 << 20, 4096)).result, Err(ClientError::Range { .. })));
    fake.notify(NotifyKind::MapChanged, 8 << 20);
    while client.size_bytes() != 16 << 20 {
        client.poll(Wait::Forever, &mut completions).unwrap();
    }
    fake.fault(Fault::Swallow);
    client.submit(read(1, 0, 4096));
    while fake.arrivals().is_empty() {
        client.poll(Wait::Until(coquina_reactor::monotonic_ns() + 1_000_000), &mut completions).unwrap();
    }
    fake.notify(NotifyKind::Removed, 0);
    let failed = finish(&mut client, 1).remove(0);
    assert_eq!(failed.result.unwrap_err().status(), Some(Status::UnknownVolume));
    assert!(run(&mut client, read(2, 0, 4096)).result.is_err());
}

#[test]
fn threads_share_a_blocking_volume() {
    let fake = Fake::start(16 << 20);
    let volume = Volume::open(&fake.address(), "disk", &VolumeOptions::default()).unwrap();
    assert_eq!(volume.size_bytes(), 16 << 20);
    fake.fault(Fault::None);
    fake.fault(Fault::CutReply(10));
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let volume = &volume;
            scope.spawn(move || {
                for round in 0..50u64 {
                    let offset = (thread * 50 + round) * 20480;
                    let byte = (thread * 50 + round) as u8;
                    volume.write(offset, &[byte; 20480]).unwrap();
                    let mut back = [0; 20480];
                    volume.read(offset, &mut back).unwrap();
                    assert!(back.iter().all(|read| *read == byte));
                }
            });
        }
    });
    volume.discard(0, 20480).unwrap();
    volume.write_zeroes(20480, 20480, false).unwrap();
    volume.flush().unwrap();
    let mut back = [1; 512];
    volume.read(512, &mut back).unwrap();
    assert_eq!(back, [0; 512]);
    assert!(matches!(volume.read(1, &mut back), Err(ClientError::Range { .. })));
    assert!(fake.applied().1);
    let kinds: Vec<Kind> = fake.arrivals().iter().map(|arrival| arrival.kind).collect();
    assert!(kinds.contains(&Kind::Discard) && kinds.contains(&Kind::WriteZeroes));
    drop(volume);
    let options = VolumeOptions { read_only: true, give_up: Duration::from_secs(1) };
    let volume = Volume::open(&fake.address(), "disk", &options).unwrap();
    assert_eq!(volume.write(0, &[0; 512]), Err(ClientError::ReadOnly));
}

#[test]
fn a_storm_of_faults_loses_and_repeats_nothing() {
    let fake = Fake::start(16 << 20);
    let mut client = open(&fake);
    let mut seed = 11u64;
    let mut random = move |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for _ in 0..400 {
        fake.fault(match random(40) {
            0 => Fault::CutReply(random(200) as usize),
            1 => Fault::CutBefore,
            2 => Fault::Refuse(Status::Busy),
            3 => Fault::Refuse(Status::NotHere),
            4 => Fault::WrongNumber,
            _ => Fault::None,
        });
    }
    // Disjoint writes, small ones that are copied and large ones that are not, some over a chunk's end.
    let places: Vec<(u64, usize, u8)> = (0..250)
        .map(|index| (index * 65536 + 32768 * (index % 2), 512 << (index % 7), index as u8 + 1))
        .collect();
    for (token, (offset, length, byte)) in places.iter().enumerate() {
        client.submit(write(token as u64, *offset, *length, *byte));
    }
    let done = finish(&mut client, places.len());
    assert!(done.iter().all(|done| done.result.is_ok()));
    for (offset, length, byte) in &places {
        let back = run(&mut client, read(1, *offset, *length));
        assert_eq!(back.result, Ok(()));
        assert!(back.buffer[..*length].iter().all(|read| read == byte), "at {offset}");
    }
    assert!(fake.applied().1, "no change was applied twice");
    assert!(fake.state.lock().unwrap().hellos > 5, "connections did break");
}
