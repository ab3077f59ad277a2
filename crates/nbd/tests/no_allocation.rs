//! The transmission phase allocates nothing: counted by an allocator of this test's own process.

#![allow(unsafe_code, reason = "counting allocations takes a global allocator")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../../../tests/lib/counting_allocator.rs"]
mod counting_allocator;

use coquina_nbd::{
    BlockState, BlockStatusReply, ClientRequest, ClientRequestKind, Command, Cookie, Event, ExportInfo,
    Request, ServerConfig, ServerSession, hole_chunk, parse_reply,
};

use counting_allocator::allocations;

fn opened() -> ServerSession {
    let mut output = Vec::new();
    let mut session = ServerSession::new(ServerConfig::default(), &mut output);
    let mut input = vec![0, 0, 0, 3];
    for (option, data) in [
        (8_u32, &b""[..]),
        (10, b"\x00\x00\x00\x04disk\x00\x00\x00\x01\x00\x00\x00\x0fbase:allocation"),
        (7, b"\x00\x00\x00\x04disk\x00\x00"),
    ] {
        input.extend(b"IHAVEOPT");
        input.extend(option.to_be_bytes());
        input.extend((data.len() as u32).to_be_bytes());
        input.extend(data);
    }
    while !input.is_empty() {
        let (consumed_bytes, event) = session.receive(&input, &mut output);
        input.drain(..consumed_bytes);
        if matches!(event, Some(Event::LookUpExport { .. })) {
            session.export_found(Ok(ExportInfo::new(1 << 30)), &mut output);
        }
    }
    session
}

fn requests() -> Vec<u8> {
    let kinds = [
        ClientRequestKind::Read { dont_fragment: false },
        ClientRequestKind::Write { force_unit_access: true },
        ClientRequestKind::Trim { force_unit_access: false },
        ClientRequestKind::WriteZeroes { force_unit_access: false, no_hole: false, fast_zero: true },
        ClientRequestKind::Cache,
        ClientRequestKind::BlockStatus { one_extent: false },
        // A flush with a length is refused.
        ClientRequestKind::Flush,
    ];
    let mut bytes = Vec::new();
    for kind in kinds {
        let request = ClientRequest { cookie: Cookie(1), kind, offset_bytes: 4096, length_bytes: 4096 };
        bytes.extend(request.header());
        if matches!(kind, ClientRequestKind::Write { .. }) {
            bytes.extend([7; 4096]);
        }
    }
    bytes
}

fn answer(request: &Request, session: &ServerSession, output: &mut Vec<u8>) {
    let &Request { cookie, offset_bytes, length_bytes, .. } = request;
    match request.command {
        Command::Read { .. } => {
            output.extend_from_slice(&hole_chunk(cookie, offset_bytes, length_bytes, true))
        }
        Command::BlockStatus { one_extent } => {
            let mut reply = BlockStatusReply::new(cookie, length_bytes, one_extent, output);
            reply.push(512, BlockState::DATA);
            reply.push(512, BlockState::HOLE);
            reply.finish();
        }
        _ => session.replies().success(cookie, output),
    }
}

#[test]
fn transmission_allocates_nothing_once_the_output_has_its_size() {
    let mut session = opened();
    let (input, mut output) = (requests(), Vec::with_capacity(64 << 10));
    let before = allocations();
    let (mut served, mut refused) = (0, 0);
    for _ in 0..1000 {
        let mut rest = &input[..];
        while !rest.is_empty() {
            let (consumed_bytes, event) = session.receive(rest, &mut output);
            match event.unwrap() {
                Event::Request(request) => {
                    answer(&request, &session, &mut output);
                    served += 1;
                }
                Event::Refused { .. } => refused += 1,
                event => panic!("{event:?}"),
            }
            rest = &rest[consumed_bytes..];
        }
        let mut replies = &output[..];
        while let Some((used, _)) = parse_reply(replies).unwrap() {
            replies = &replies[used..];
        }
        output.clear();
    }
    let allocations = allocations() - before;
    assert_eq!((served, refused, allocations), (6000, 1000, 0));
}
