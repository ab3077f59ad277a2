//! Round trips of every message, arbitrary and truncated bytes.

#![allow(clippy::unwrap_used)]

use coquina_base::{ClusterId, DriveId, Id128, LayerId, NodeId, SessionId, VolumeId};
use coquina_protocol::*;
use proptest::prelude::*;

fn identity() -> impl Strategy<Value = Id128> {
    any::<[u8; 16]>().prop_filter("not nil", |bytes| *bytes != [0; 16]).prop_map(Id128)
}

prop_compose! {
    fn header()(
        flags in any::<u32>(), handle in any::<u64>(), request in any::<u64>(), request_floor in any::<u64>(),
        numbers in any::<[u64; 3]>(), chunk in any::<u32>(), deadline_us in any::<u32>(), qos_class in any::<u8>(),
        first in 0u32..8192, length in 1u32..64,
    ) -> Header {
        let [epoch, sequence, trace] = numbers;
        let offset_bytes = first * 512;
        let length_bytes = (length * 512).min((4 << 20) - offset_bytes);
        let flags = flags & !FLAG_ZEROES;
        Header {
            flags, handle, request, request_floor, epoch, sequence, trace, chunk, offset_bytes, length_bytes,
            deadline_us, qos_class, ..Header::new(Kind::Ping)
        }
    }
}

fn attached() -> impl Strategy<Value = AttachedVolume> {
    let shard = (identity(), any::<u32>(), "[a-z:0-9/.]{1,40}")
        .prop_map(|(drive, shard, address)| ShardRef { drive: DriveId(drive), shard, address });
    let groups = (0u32..6).prop_flat_map(|power| proptest::collection::vec(any::<u32>(), 1usize << power));
    let nodes = proptest::collection::vec("[a-z:0-9/.]{0,40}", 0..5);
    let table = (proptest::collection::vec(shard, 1..6), groups, nodes);
    let numbers = any::<([u64; 5], [u32; 3])>();
    (identity(), "[a-zA-Z0-9._-]{1,63}", numbers, any::<bool>(), table).prop_map(
        |(volume, name, (numbers, counts), read_only, (shards, groups, nodes))| AttachedVolume {
            volume: VolumeId(volume),
            name,
            size_bytes: numbers[0],
            layer: LayerId(numbers[1]),
            attach_generation: numbers[2],
            map_version: numbers[3],
            family: numbers[4],
            group_first: counts[0] / 2,
            stripe_unit_bytes: counts[1],
            stripe_count: counts[2],
            read_only,
            groups: groups
                .into_iter()
                .map(|group| match group % (shards.len() as u32 + 1) {
                    0 => GROUP_UNKNOWN,
                    shard => shard - 1,
                })
                .collect(),
            shards,
            nodes,
        },
    )
}

/// One message of any kind, encoded.
fn message() -> impl Strategy<Value = Vec<u8>> {
    let text = "\\PC{0,60}";
    (header(), 0..14u32, attached(), identity(), text, any::<u16>(), any::<bool>()).prop_map(
        |(header, which, attached, identity, text, number, flag)| {
            let mut out = Vec::new();
            let payload: Vec<u8> =
                (0..header.length_bytes).map(|byte| (byte * 7 + number as u32) as u8).collect();
            match which {
                0 => encode_hello(
                    &mut out,
                    &Header { kind: Kind::Hello, ..header },
                    &hello(identity, &text, flag),
                ),
                1 => encode_hello_reply(
                    &mut out,
                    &Header { kind: Kind::HelloReply, ..header },
                    &hello_reply(identity, number),
                ),
                2 => encode_open(&mut out, &Header { kind: Kind::Open, ..header }, &open(identity, flag)),
                3 => encode_open_reply(&mut out, &Header { kind: Kind::OpenReply, ..header }, &attached)
                    .unwrap(),
                4 | 5 => {
                    let kind = if which == 4 { Kind::Write } else { Kind::ReadReply };
                    encode_data_head_for(&mut out, &Header { kind, ..header }, &payload);
                    out.extend_from_slice(&payload);
                }
                6 => {
                    encode_map_reply(&mut out, &Header { kind: Kind::MapReply, ..header }, &extents(&header))
                }
                7 => encode_notify(
                    &mut out,
                    &Header { kind: Kind::Notify, ..header },
                    &notify(identity, number),
                ),
                8 => encode_error(&mut out, &header, Status::NoSpace, &text),
                9 => {
                    let flags = header.flags | FLAG_ZEROES;
                    encode_plain(&mut out, &Header { kind: Kind::ReadReply, flags, ..header });
                }
                10 => {
                    let header = Header { kind: Kind::PeerHello, ..header };
                    encode_peer_hello(&mut out, &header, &peer_hello(identity, number));
                }
                11 => {
                    let header = Header { kind: Kind::PeerHelloReply, ..header };
                    encode_peer_hello(&mut out, &header, &peer_hello(identity, number));
                }
                _ => {
                    const PLAIN: [Kind; 11] = [
                        Kind::Read,
                        Kind::WriteReply,
                        Kind::Discard,
                        Kind::DiscardReply,
                        Kind::WriteZeroes,
                        Kind::WriteZeroesReply,
                        Kind::Map,
                        Kind::Flush,
                        Kind::FlushReply,
                        Kind::Ping,
                        Kind::PingReply,
                    ];
                    encode_plain(&mut out, &Header { kind: PLAIN[number as usize % PLAIN.len()], ..header });
                }
            }
            out
        },
    )
}

fn hello(identity: Id128, client: &str, flag: bool) -> Hello<'_> {
    Hello {
        version_min: 1,
        version_max: 3,
        features: 5,
        cluster: ClusterId(identity),
        session: SessionId(77),
        shard: flag.then_some((DriveId(identity), 3)),
        client,
    }
}

fn hello_reply(identity: Id128, version: u16) -> HelloReply {
    HelloReply {
        version,
        features: 9,
        cluster: ClusterId(identity),
        node: NodeId(identity),
        requests_max: 128,
    }
}

fn peer_hello(identity: Id128, version: u16) -> PeerHello {
    PeerHello {
        cluster: ClusterId(identity),
        node: NodeId(identity),
        from_copy: 1 << 40,
        to_copy: 7,
        version_min: 1,
        version_max: version,
        features: 3,
    }
}

fn open(identity: Id128, flag: bool) -> OpenRequest<'static> {
    let volume = if flag { VolumeRef::Name("a-volume") } else { VolumeRef::Id(VolumeId(identity)) };
    OpenRequest { volume, read_only: flag, attach_generation: 4 }
}

fn notify(identity: Id128, number: u16) -> Notify {
    let kind = [NotifyKind::Resized, NotifyKind::Removed, NotifyKind::MapChanged][number as usize % 3];
    Notify { kind, volume: VolumeId(identity), size_bytes: number.into(), map_version: 8 }
}

fn extents(header: &Header) -> Vec<Extent> {
    let kinds = [ExtentKind::Data, ExtentKind::Zeroes, ExtentKind::Hole];
    (0..header.length_bytes / 512)
        .map(|index| Extent { length_bytes: 512, kind: kinds[index as usize % 3] })
        .collect()
}

fn decode_one(bytes: &[u8]) -> Message<'_> {
    let (message, consumed) = decode(bytes).unwrap().unwrap();
    assert_eq!(consumed, bytes.len());
    message
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn data_comes_back_whole(header in header(), seed in any::<u32>()) {
        let payload: Vec<u8> = (0..header.length_bytes).map(|byte| (byte ^ seed) as u8).collect();
        let header = Header { kind: Kind::Write, ..header };
        let mut out = Vec::new();
        encode_data_head_for(&mut out, &header, &payload);
        out.extend_from_slice(&payload);
        let message = decode_one(&out);
        let Body::Write(data) = message.body else { panic!("a write") };
        prop_assert_eq!(data.payload, &payload[..]);
        prop_assert!(data.is_intact());
        let mut copy = vec![1; payload.len()];
        prop_assert!(data.copy_checked(&mut copy));
        prop_assert_eq!(&copy, &payload);
        let blocks = (header.offset_bytes | header.length_bytes).is_multiple_of(4096);
        prop_assert_eq!(data.payload_crc.is_none(), blocks);
        prop_assert_eq!(data.checksums_le.len(), if blocks { payload.len() / 1024 } else { 0 });
        let body_bytes = message.header.body_bytes;
        let checksum_kind = if blocks { ChecksumKind::Blocks } else { ChecksumKind::Payload };
        prop_assert_eq!(message.header, Header { body_bytes, checksum_kind, ..header });

        // The head alone says the same, as soon as it is there.
        let head_bytes = out.len() - payload.len();
        prop_assert_eq!(peek_blocks(&out[..head_bytes - 1], Kind::Write).unwrap(), None);
        prop_assert_eq!(peek_blocks(&out, Kind::ReadReply).unwrap(), None);
        let head = peek_blocks(&out[..head_bytes], Kind::Write).unwrap();
        prop_assert_eq!(head.is_some(), blocks);
        if let Some(head) = head {
            prop_assert_eq!(head.header, message.header);
            prop_assert_eq!((head.checksums_le, head.head_bytes), (data.checksums_le, head_bytes));
        }

        // The other way to make the same bytes.
        let mut checksums = Vec::new();
        let kind = checksum_payload(header.offset_bytes, &payload, &mut checksums);
        let mut again = Vec::new();
        encode_data_head(&mut again, &header, kind, &checksums);
        again.extend_from_slice(&payload);
        prop_assert_eq!(&again, &out);

        // A flipped bit of the payload is noticed.
        let at = out.len() - 1 - (seed as usize % payload.len());
        out[at] ^= 1u8 << (seed % 8);
        let Body::Write(data) = decode_one(&out).body else { panic!("a write") };
        prop_assert!(!data.is_intact());
        prop_assert!(!data.copy_checked(&mut copy));
    }

    #[test]
    fn control_messages_come_back_whole(attached in attached(), identity in identity(), text in "\\PC{0,60}",
                                        number in 1u16..9, flag in any::<bool>(), header in header()) {
        let mut out = Vec::new();
        encode_hello(&mut out, &Header { kind: Kind::Hello, ..header }, &hello(identity, &text, flag));
        prop_assert_eq!(decode_one(&out).body, Body::Hello(hello(identity, &text, flag)));
        out.clear();
        encode_hello_reply(&mut out, &Header { kind: Kind::HelloReply, ..header }, &hello_reply(identity, number));
        prop_assert_eq!(decode_one(&out).body, Body::HelloReply(hello_reply(identity, number)));
        out.clear();
        encode_open(&mut out, &Header { kind: Kind::Open, ..header }, &open(identity, flag));
        prop_assert_eq!(decode_one(&out).body, Body::Open(open(identity, flag)));
        out.clear();
        encode_open_reply(&mut out, &Header { kind: Kind::OpenReply, ..header }, &attached).unwrap();
        prop_assert_eq!(decode_one(&out).body, Body::OpenReply(Box::new(attached)));
        out.clear();
        encode_notify(&mut out, &Header { kind: Kind::Notify, ..header }, &notify(identity, number));
        prop_assert_eq!(decode_one(&out).body, Body::Notify(notify(identity, number)));
        out.clear();
        encode_error(&mut out, &header, Status::Busy, &text);
        prop_assert_eq!(decode_one(&out).body, Body::Error(&text));
        prop_assert_eq!(decode_one(&out).header.request, header.request);
        out.clear();
        encode_peer_hello(&mut out, &Header { kind: Kind::PeerHello, ..header }, &peer_hello(identity, number));
        prop_assert_eq!(decode_one(&out).body, Body::PeerHello(peer_hello(identity, number)));
        out.clear();
        encode_peer_hello(&mut out, &Header { kind: Kind::PeerHelloReply, ..header }, &peer_hello(identity, number));
        prop_assert_eq!(decode_one(&out).body, Body::PeerHelloReply(peer_hello(identity, number)));
        out.clear();
        encode_map_reply(&mut out, &Header { kind: Kind::MapReply, ..header }, &extents(&header));
        let Body::MapReply(back) = decode_one(&out).body else { panic!("a map") };
        prop_assert!(back.iter().eq(extents(&header)));
    }

    #[test]
    fn a_message_cut_anywhere_is_incomplete(message in message(), more in message()) {
        let whole = message.len();
        for end in 0..whole {
            prop_assert!(matches!(decode(&message[..end]), Ok(None)), "at {} of {}", end, whole);
            prop_assert!(message_bytes(&message[..end]).unwrap().is_none_or(|bytes| bytes == whole));
        }
        let both = [&message[..], &more[..]].concat();
        let (first, consumed) = decode(&both).unwrap().unwrap();
        prop_assert_eq!(consumed, whole);
        prop_assert_eq!(first, decode_one(&message));
        prop_assert_eq!(decode(&both[consumed..]).unwrap().unwrap().1, more.len());
    }

    #[test]
    fn a_changed_header_is_refused(message in message(), at in 0..HEADER_BYTES, bit in 0..8) {
        let mut message = message;
        message[at] ^= 1u8 << bit;
        prop_assert!(decode(&message).is_err());
    }

    #[test]
    fn any_bytes_are_survived(mut bytes in proptest::collection::vec(any::<u8>(), 0..400), fix in any::<bool>()) {
        let _ = decode(&bytes);
        if fix && bytes.len() >= HEADER_BYTES {
            repair(&mut bytes);
            let _ = decode(&bytes);
        }
    }

    #[test]
    fn a_changed_message_with_a_right_checksum_is_survived(
        message in message(), changes in proptest::collection::vec((8usize..400, any::<u8>()), 1..6)
    ) {
        let mut message = message;
        for (at, byte) in changes {
            let at = 8 + (at - 8) % (message.len() - 8);
            message[at] = byte;
        }
        repair(&mut message);
        if let Ok(Some((decoded, consumed))) = decode(&message) {
            prop_assert!(consumed <= message.len());
            if let Body::Write(data) | Body::ReadReply(data) = decoded.body {
                let _ = data.is_intact();
                prop_assert!(data.payload.is_empty() || data.payload.len() == decoded.header.length_bytes as usize);
            }
        }
    }
}

/// Gives the bytes the magic, version and header checksum of a message, so that the checks behind them are met.
fn repair(bytes: &mut [u8]) {
    bytes[..4].copy_from_slice(b"CQNA");
    bytes[8..10].copy_from_slice(&1u16.to_le_bytes());
    let crc = coquina_base::crc32c_bytes(&bytes[8..HEADER_BYTES]);
    bytes[4..8].copy_from_slice(&crc.to_le_bytes());
}

fn plain(header: Header) -> Vec<u8> {
    let mut out = Vec::new();
    header.encode(&mut out);
    out
}

#[test]
fn ranges_that_leave_their_chunk_are_refused() {
    let read = |offset_bytes, length_bytes| {
        let bytes = plain(Header { offset_bytes, length_bytes, ..Header::new(Kind::Read) });
        decode(&bytes).map(|message| message.is_some())
    };
    assert_eq!(read(0, 4 << 20), Ok(true));
    assert_eq!(read((4 << 20) - 512, 512), Ok(true));
    for (offset_bytes, length_bytes) in [
        (0, 0),
        (512, 4 << 20),
        (0, 513),
        (1, 512),
        (u32::MAX - 511, 512),
        (0, (4 << 20) + 512),
        (4 << 20, 512),
    ] {
        assert_eq!(
            read(offset_bytes, length_bytes),
            Err(ProtocolError::Range { offset_bytes, length_bytes })
        );
    }
}

#[test]
fn bodies_of_wrong_length_are_refused_before_they_arrive() {
    let huge = plain(Header { body_bytes: u32::MAX, ..Header::new(Kind::Write) });
    assert_eq!(decode(&huge), Err(ProtocolError::BodyTooLarge(u32::MAX)));
    let bodied = plain(Header { body_bytes: 1, ..Header::new(Kind::Ping) });
    assert_eq!(decode(&bodied), Err(ProtocolError::BodyLength { kind: Kind::Ping, body_bytes: 1 }));
}

#[test]
fn other_versions_are_refused_but_in_a_hello() {
    let ping = plain(Header { version: 9, ..Header::new(Kind::Ping) });
    assert_eq!(decode(&ping), Err(ProtocolError::Version(9)));
    let mut out = Vec::new();
    encode_hello(
        &mut out,
        &Header { version: 9, ..Header::new(Kind::Hello) },
        &hello(Id128([1; 16]), "new", false),
    );
    assert!(matches!(decode_one(&out).body, Body::Hello(_)));
}

#[test]
fn the_header_has_the_documented_bytes() {
    let header = Header {
        flags: 0x0102_0304,
        handle: 0x1112_1314_1516_1718,
        request: 0x21,
        request_floor: 0x22,
        epoch: 0x23,
        sequence: 0x24,
        trace: 0x25,
        chunk: 0x31,
        offset_bytes: 0x1000,
        length_bytes: 0x2000,
        deadline_us: 0x33,
        qos_class: 0x41,
        ..Header::new(Kind::Read)
    };
    let bytes = plain(header);
    assert_eq!(bytes.len(), 96);
    assert_eq!(&bytes[..4], b"CQNA");
    assert_eq!(bytes[4..8], coquina_base::crc32c_bytes(&bytes[8..]).to_le_bytes());
    assert_eq!(bytes[8..16], [1, 0, 3, 0, 4, 3, 2, 1]);
    assert_eq!(bytes[16..24], 0x1112_1314_1516_1718u64.to_le_bytes());
    for (at, value) in [(24, 0x21), (32, 0x22), (40, 0x23), (48, 0x24), (56, 0x25)] {
        assert_eq!(bytes[at..at + 8], u64::to_le_bytes(value), "at {at}");
    }
    for (at, value) in [(64, 0x31), (68, 0x1000), (72, 0x2000), (76, 0), (80, 0x33)] {
        assert_eq!(bytes[at..at + 4], u32::to_le_bytes(value), "at {at}");
    }
    assert_eq!(bytes[84..88], [0, 0, 0x41, 0]);
    assert_eq!(bytes[88..], [0; 8]);
}

#[test]
fn every_status_has_its_number() {
    let numbers: Vec<u16> = (0..).map_while(Status::from_wire).map(|status| status as u16).collect();
    assert_eq!(numbers, (0..18).collect::<Vec<u16>>());
    assert_eq!(Status::from_wire(16), Some(Status::TooFewCopies));
    assert_eq!(Status::from_wire(18), None);
}

fn table() -> AttachedVolume {
    AttachedVolume {
        volume: VolumeId(Id128([1; 16])),
        name: "disk".to_owned(),
        size_bytes: 0x0203,
        layer: LayerId(0x0405),
        attach_generation: 0x0607,
        map_version: 0x0809,
        family: 0x0a0b_0c0d_0e0f_1011,
        group_first: 0x1213,
        stripe_unit_bytes: 0x1_0000,
        stripe_count: 0x14,
        read_only: true,
        shards: vec![ShardRef { drive: DriveId(Id128([2; 16])), shard: 3, address: "a:1".to_owned() }],
        groups: vec![0, GROUP_UNKNOWN],
        nodes: vec!["b:2".to_owned()],
    }
}

#[test]
fn the_open_reply_has_the_documented_bytes() {
    let mut out = Vec::new();
    encode_open_reply(&mut out, &Header::new(Kind::OpenReply), &table()).unwrap();
    let body = &out[HEADER_BYTES..];
    assert_eq!(body[..16], [1; 16]);
    for (at, value) in [(16, 0x0203), (24, 0x0405), (32, 0x0607), (40, 0x0809), (48, 0x0a0b_0c0d_0e0f_1011)] {
        assert_eq!(body[at..at + 8], u64::to_le_bytes(value), "at {at}");
    }
    for (at, value) in [(56, 0x1213), (60, 2), (64, 1), (68, 0x1_0000), (72, 0x14), (76, 1), (84, 0)] {
        assert_eq!(body[at..at + 4], u32::to_le_bytes(value), "at {at}");
    }
    assert_eq!(body[80..84], [4, 0, 1, 0]);
    assert_eq!(&body[88..92], b"disk");
    assert_eq!(body[92..108], [2; 16]);
    assert_eq!(body[108..116], [3, 0, 0, 0, 3, 0, 0, 0]);
    assert_eq!(&body[116..119], b"a:1");
    assert_eq!(body[119..127], [0, 0, 0, 0, 255, 255, 255, 255]);
    assert_eq!(&body[127..], b"\x03\0b:2");
}

#[test]
fn a_table_that_no_message_holds_is_an_error() {
    let shard = |number| ShardRef {
        drive: DriveId(Id128([2; 16])),
        shard: number,
        address: "192.168.100.100:10900".to_owned(),
    };
    let table = |shards| AttachedVolume { shards: (0..shards).map(shard).collect(), ..table() };
    let mut out = vec![7];
    encode_open_reply(&mut out, &Header::new(Kind::OpenReply), &table(90_000)).unwrap();
    assert!(decode(&out[1..]).unwrap().is_some());
    out.truncate(1);
    let error = encode_open_reply(&mut out, &Header::new(Kind::OpenReply), &table(100_000)).unwrap_err();
    assert!(matches!(error, ProtocolError::BodyTooLarge(_)), "{error}");
    assert_eq!(out, [7], "nothing of it is sent");
}

#[test]
fn tables_that_make_no_sense_are_refused() {
    let mut good = Vec::new();
    encode_open_reply(&mut good, &Header::new(Kind::OpenReply), &table()).unwrap();
    let changed = |at: usize, bytes: &[u8]| {
        let mut message = good.clone();
        message[HEADER_BYTES + at..HEADER_BYTES + at + bytes.len()].copy_from_slice(bytes);
        decode(&message).map(|message| message.is_some())
    };
    assert_eq!(changed(0, &[]), Ok(true));
    let malformed = Err(ProtocolError::Malformed(Kind::OpenReply));
    let number = |value: u32| value.to_le_bytes();
    assert_eq!(changed(56, &number(u32::MAX)), malformed, "groups beyond the last number");
    for groups in [0, 1, 3, 4, 1 << 19, u32::MAX] {
        assert_eq!(changed(60, &number(groups)), malformed, "{groups} groups");
    }
    for shards in [0, 2, u32::MAX] {
        assert_eq!(changed(64, &number(shards)), malformed, "{shards} shards");
    }
    assert_eq!(changed(80, &[255, 255]), malformed, "a long name");
    assert_eq!(changed(82, &[2, 0]), malformed, "a node more");
    assert_eq!(changed(82, &[0, 0]), malformed, "a node less");
    assert_eq!(changed(112, &[0, 0]), malformed, "a shard that is nowhere");
    assert_eq!(changed(119, &number(1)), malformed, "a group on a shard that is not there");
    assert_eq!(changed(88, &[0xff]), malformed, "a name that is no text");
}
