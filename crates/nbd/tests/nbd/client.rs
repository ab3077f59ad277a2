//! The client codec: against the server session, and against servers that lie.

use coquina_nbd::{
    BlockState, ClientConfig, ClientError, ClientHandshake, ClientRequest, ClientRequestKind, Command,
    Cookie, ErrorCode, Event, Negotiated, Reply, ServerConfig, TransmissionFlags, data_chunk_header,
    done_chunk, hole_chunk, parse_reply, simple_reply, write_error_chunk, write_error_offset_chunk,
};

use crate::exercise::{Driver, EXPORT_BYTES};
use crate::support::*;

fn config(export: &str, structured_replies: bool, block_status: bool) -> ClientConfig {
    ClientConfig { export: export.parse().unwrap(), structured_replies, block_status }
}

/// Runs both ends against each other, a byte at a time from the server.
fn negotiate(config: ClientConfig) -> Result<(Negotiated, Driver), ClientError> {
    let mut driver = Driver::new(ServerConfig::default());
    let mut client = ClientHandshake::new(config);
    let (mut sent, mut input) = (0, Vec::new());
    loop {
        let byte = driver.trace.output.get(sent).copied().expect("the server has more to say");
        sent += 1;
        input.push(byte);
        let mut output = Vec::new();
        let (consumed_bytes, negotiated) = client.receive(&input, &mut output)?;
        input.drain(..consumed_bytes);
        driver.receive(&output);
        if let Some(negotiated) = negotiated {
            assert!(input.is_empty() && driver.trace.ready_at == Some(sent));
            return Ok((negotiated, driver));
        }
    }
}

#[test]
fn client_and_server_agree() {
    for (structured, block_status) in [(false, false), (true, false), (true, true)] {
        let (negotiated, _) = negotiate(config("disk", structured, block_status)).unwrap();
        assert_eq!(negotiated.size_bytes, EXPORT_BYTES);
        assert_eq!(negotiated.structured_replies, structured);
        assert_eq!(negotiated.allocation_context_id, block_status.then_some(1));
        assert_eq!(negotiated.block_sizes.payload_bytes_max, 32 << 20);
        assert_eq!(negotiated.block_sizes.bytes_min, 512);
        assert!(negotiated.flags.contains(TransmissionFlags::CAN_MULTI_CONN));
    }
    let error = negotiate(config("missing", true, true)).err().unwrap();
    assert!(matches!(error, ClientError::OptionRefused { option: OPT_GO, reply_type: REP_ERR_UNKNOWN, .. }));
    assert!(error.to_string().contains("no such volume"));
}

#[test]
fn client_headers_are_what_the_server_takes() {
    let (_, mut driver) = negotiate(config("disk", true, true)).unwrap();
    let kinds = [
        (ClientRequestKind::Read { dont_fragment: true }, Command::Read { dont_fragment: true }),
        (ClientRequestKind::Trim { force_unit_access: true }, Command::Trim { force_unit_access: true }),
        (ClientRequestKind::Cache, Command::Cache),
        (
            ClientRequestKind::WriteZeroes { force_unit_access: true, no_hole: false, fast_zero: true },
            Command::WriteZeroes { force_unit_access: true, no_hole: false, fast_zero: true },
        ),
        (ClientRequestKind::BlockStatus { one_extent: true }, Command::BlockStatus { one_extent: true }),
    ];
    for (number, (kind, command)) in kinds.into_iter().enumerate() {
        let cookie = Cookie(number as u64);
        let request = ClientRequest { cookie, kind, offset_bytes: 512 * 7, length_bytes: 1024 };
        driver.receive(&request.header());
        let Event::Request(seen) = &driver.trace.seen.last().unwrap().event else { panic!() };
        assert_eq!((seen.cookie, seen.command), (cookie, command));
        assert_eq!((seen.offset_bytes, seen.length_bytes), (512 * 7, 1024));
    }
}

#[test]
fn a_server_without_extensions_is_accepted() {
    let mut client = ClientHandshake::new(config("a", true, true));
    let mut output = Vec::new();
    client.receive(b"NBDMAGICIHAVEOPT\x00\x01", &mut output).unwrap();
    // spec: NO_ZEROES must not be set if the server did not offer it.
    assert_eq!(output[..4], [0, 0, 0, 1]);
    output.clear();
    let refusal = b"\x00\x03\xe8\x89\x04\x55\x65\xa9\x00\x00\x00\x08\x80\x00\x00\x01\x00\x00\x00\x00";
    client.receive(refusal, &mut output).unwrap();
    assert_eq!(output, option(OPT_GO, &info_data("a", &[3])));
    let info = b"\x00\x03\xe8\x89\x04\x55\x65\xa9\x00\x00\x00\x07\x00\x00\x00\x03\x00\x00\x00\x0c\
        \x00\x00\x00\x00\x00\x00\x00\x00\x10\x00\x00\x01";
    let end = b"\x00\x03\xe8\x89\x04\x55\x65\xa9\x00\x00\x00\x07\x00\x00\x00\x01\x00\x00\x00\x00";
    let (_, negotiated) = client.receive(&[&info[..], end].concat(), &mut output).unwrap();
    let negotiated = negotiated.unwrap();
    assert_eq!((negotiated.size_bytes, negotiated.structured_replies), (4096, false));
    assert_eq!((negotiated.allocation_context_id, negotiated.flags), (None, TransmissionFlags::HAS_FLAGS));
}

#[test]
fn a_context_named_before_an_error_is_disregarded() {
    let mut client = ClientHandshake::new(config("a", true, true));
    let reply = |fields: &[u8], data: &[u8]| [b"\x00\x03\xe8\x89\x04\x55\x65\xa9", fields, data].concat();
    let messages = [
        b"NBDMAGICIHAVEOPT\x00\x03".to_vec(),
        reply(b"\x00\x00\x00\x08\x00\x00\x00\x01\x00\x00\x00\x00", &[]),
        reply(b"\x00\x00\x00\x0a\x00\x00\x00\x04\x00\x00\x00\x13", b"\x00\x00\x00\x01base:allocation"),
        reply(b"\x00\x00\x00\x0a\x80\x00\x00\x03\x00\x00\x00\x00", &[]),
        reply(b"\x00\x00\x00\x07\x00\x00\x00\x03\x00\x00\x00\x0c", &[0; 12]),
        reply(b"\x00\x00\x00\x07\x00\x00\x00\x01\x00\x00\x00\x00", &[]),
    ];
    let (_, negotiated) = client.receive(&messages.concat(), &mut Vec::new()).unwrap();
    assert_eq!(negotiated.unwrap().allocation_context_id, None);
}

#[test]
fn servers_that_lie_are_left() {
    let greet =
        |bytes: &[u8]| ClientHandshake::new(config("a", false, false)).receive(bytes, &mut Vec::new());
    assert_eq!(greet(b"NBDMAGICIHAVEOPT\x00\x00"), Err(ClientError::NotFixedNewstyle));
    assert_eq!(greet(b"HTTP/1.1 400 Bad Request"), Err(ClientError::NotFixedNewstyle));
    let after_greeting = |reply: &[u8]| {
        let mut client = ClientHandshake::new(config("a", false, false));
        client.receive(b"NBDMAGICIHAVEOPT\x00\x03", &mut Vec::new()).unwrap();
        client.receive(reply, &mut Vec::new()).err()
    };
    let magic = b"\x00\x03\xe8\x89\x04\x55\x65\xa9";
    let end = [&magic[..], b"\x00\x00\x00\x07\x00\x00\x00\x01\x00\x00\x00\x00"].concat();
    assert_eq!(after_greeting(&end), Some(ClientError::NoExportInfo));
    let wrong_option = [&magic[..], b"\x00\x00\x00\x06\x00\x00\x00\x03\x00\x00\x00\x0c", &[0; 12]].concat();
    assert_eq!(after_greeting(&wrong_option), Some(ClientError::Invalid("option reply")));
    let endless = [&magic[..], b"\x00\x00\x00\x07\x00\x00\x00\x03\xff\xff\xff\xff"].concat();
    assert!(after_greeting(&endless).is_some());
    let short_info = [&magic[..], b"\x00\x00\x00\x07\x00\x00\x00\x03\x00\x00\x00\x03\x00\x00\x00"].concat();
    assert!(after_greeting(&short_info).is_some());
    let odd_block_size =
        b"\x00\x00\x00\x07\x00\x00\x00\x03\x00\x00\x00\x0e\x00\x03\0\0\x02\x01\0\0\x10\0\0\0\x20\0";
    assert!(after_greeting(&[&magic[..], odd_block_size].concat()).is_some());
}

#[test]
fn replies_come_back_as_they_were_encoded() {
    let cookie = Cookie(77);
    let whole = |bytes: &[u8]| (bytes.len(), ());
    let simple = simple_reply(cookie, Some(ErrorCode::Io));
    let expected = Reply::Simple { cookie, error: Some(ErrorCode::Io) };
    assert_eq!(parse_reply(&simple), Ok(Some((whole(&simple).0, expected))));
    let data = data_chunk_header(cookie, 512, 1024, true);
    let expected = Reply::Data { cookie, offset_bytes: 512, length_bytes: 1024, last: true };
    assert_eq!(parse_reply(&data), Ok(Some((28, expected))));
    let hole = hole_chunk(cookie, 512, 1024, false);
    let expected = Reply::Hole { cookie, offset_bytes: 512, length_bytes: 1024, last: false };
    assert_eq!(parse_reply(&hole), Ok(Some((32, expected))));
    assert_eq!(parse_reply(&done_chunk(cookie)), Ok(Some((20, Reply::Done { cookie }))));
    let mut bytes = Vec::new();
    write_error_chunk(cookie, ErrorCode::NoSpace, "full", true, &mut bytes);
    let expected = Reply::Error { cookie, error: ErrorCode::NoSpace, message: "full", last: true };
    assert_eq!(parse_reply(&bytes), Ok(Some((bytes.len(), expected))));
    let mut bytes = Vec::new();
    write_error_offset_chunk(cookie, ErrorCode::Io, "rot", 4096, false, &mut bytes);
    let expected = Reply::Error { cookie, error: ErrorCode::Io, message: "rot", last: false };
    assert_eq!(parse_reply(&bytes), Ok(Some((bytes.len(), expected))));
    // Every proper prefix asks for more.
    for end in 0..bytes.len() {
        assert_eq!(parse_reply(&bytes[..end]), Ok(None));
    }
}

#[test]
fn messages_are_cut_between_characters() {
    let message = format!("{}ä", "x".repeat(4095));
    let mut bytes = Vec::new();
    write_error_chunk(Cookie(1), ErrorCode::Io, &message, true, &mut bytes);
    let (_, Reply::Error { message, .. }) = parse_reply(&bytes).unwrap().unwrap() else { panic!() };
    assert_eq!(message.len(), 4095);
}

#[test]
fn block_status_merges_neighbours_and_keeps_to_the_request() {
    let extents = |one_extent, length_bytes, pushes: &[(u64, BlockState)]| {
        let mut bytes = Vec::new();
        let mut reply = coquina_nbd::BlockStatusReply::new(Cookie(1), length_bytes, one_extent, &mut bytes);
        let wanted: Vec<bool> =
            pushes.iter().map(|&(length_bytes, state)| reply.push(length_bytes, state)).collect();
        reply.finish();
        let (_, Reply::BlockStatus { descriptors, last: true, .. }) = parse_reply(&bytes).unwrap().unwrap()
        else {
            panic!()
        };
        (descriptors.collect::<Vec<_>>(), wanted)
    };
    let (data, hole) = (BlockState::DATA, BlockState::HOLE);
    let pushes = [(512, data), (512, data), (1024, hole), (u64::MAX, data)];
    let (all, wanted) = extents(false, 4096, &pushes);
    assert_eq!(all, [(1024, data), (1024, hole), (2048, data)]);
    assert_eq!(wanted, [true, true, true, false]);
    // spec: with REQ_ONE exactly one descriptor, no longer than the request.
    assert_eq!(extents(true, 4096, &pushes).0, [(1024, data)]);
    assert_eq!(extents(true, 4096, &[(u64::MAX, hole)]).0, [(4096, hole)]);
    let many: Vec<_> = (0..20_000).map(|number| (512, if number % 2 == 0 { data } else { hole })).collect();
    assert_eq!(extents(false, u32::MAX, &many).0.len(), 8192);
}

#[test]
fn an_abandoned_block_status_leaves_no_trace() {
    let mut bytes = vec![1, 2, 3];
    let mut reply = coquina_nbd::BlockStatusReply::new(Cookie(1), 4096, false, &mut bytes);
    reply.push(512, BlockState::DATA);
    reply.abandon();
    assert_eq!(bytes, [1, 2, 3]);
}

#[test]
fn invalid_chunks_are_errors() {
    let chunk = |chunk_type: u16, flags: u16, length_bytes: u32, payload: &[u8]| {
        let mut bytes = 0x668e_33ef_u32.to_be_bytes().to_vec();
        bytes.extend(flags.to_be_bytes());
        bytes.extend(chunk_type.to_be_bytes());
        bytes.extend(5_u64.to_be_bytes());
        bytes.extend(length_bytes.to_be_bytes());
        bytes.extend(payload);
        bytes
    };
    let invalid = [
        chunk(0, 0, 0, &[]),
        chunk(0, 1, 1, &[0]),
        chunk(1, 1, 8, &[0; 8]),
        chunk(2, 1, 11, &[0; 11]),
        chunk(2, 1, 12, &[0; 12]),
        chunk(3, 1, 0, &[]),
        chunk(5, 1, 4, &[0; 4]),
        chunk(5, 1, 12, &[0; 12]),
        chunk(5, 1, 13, &[1; 13]),
        chunk(5, 1, u32::MAX - 3, &[]),
        chunk(0x8001, 1, 5, &[0; 5]),
        chunk(0x8001, 1, 6, &[0, 0, 0, 5, 0, 1]),
        chunk(0x8001, 1, u32::MAX, &[]),
        b"GET / HTTP/1.1".to_vec(),
    ];
    for bytes in invalid {
        assert!(parse_reply(&bytes).is_err(), "{bytes:x?}");
    }
    // spec: an unknown error chunk makes its request fail, and no more.
    let unknown_error = chunk(0x8099, 1, 8, &[0, 0, 0, 5, 0, 0, 9, 9]);
    let expected = Reply::Error { cookie: Cookie(5), error: ErrorCode::Io, message: "", last: true };
    assert_eq!(parse_reply(&unknown_error), Ok(Some((28, expected))));
}
