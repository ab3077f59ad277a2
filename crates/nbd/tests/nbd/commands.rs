//! Every command, valid and invalid, with and without structured replies.

use coquina_nbd::{
    Command, Cookie, DisconnectReason, ErrorCode, Event, PayloadRange, Reply, Request, ServerConfig,
    Violation, parse_reply,
};

use crate::exercise::{Driver, EXPORT_BYTES};
use crate::support::*;

const COOKIE: u64 = 0x0102_0304_0506_0708;

fn open(name: &str, structured: bool) -> Driver {
    let mut driver = Driver::new(ServerConfig::default());
    assert!(driver.receive(&opening(name, structured)));
    driver.trace.output.clear();
    driver.trace.seen.clear();
    driver
}

/// What one message leads to on a connection of its own.
fn event_of(name: &str, structured: bool, message: &[u8]) -> Event {
    let mut driver = open(name, structured);
    driver.receive(message);
    assert_eq!(driver.trace.seen.len(), 1, "{:?}", driver.trace.seen);
    driver.trace.seen.remove(0).event
}

fn command_of(message: &[u8]) -> Command {
    match event_of("disk", true, message) {
        Event::Request(request) => request.command,
        event => panic!("{event:?}"),
    }
}

fn is_error(structured: bool, output: &[u8], expected: ErrorCode) -> bool {
    match parse_reply(output).unwrap().unwrap() {
        (used, Reply::Error { cookie, error, message, last }) => {
            assert!(structured && last && !message.is_empty() && used == output.len());
            cookie == Cookie(COOKIE) && error == expected
        }
        (used, Reply::Simple { cookie, error }) => {
            assert!(!structured && used == output.len());
            cookie == Cookie(COOKIE) && error == Some(expected)
        }
        (_, reply) => panic!("{reply:?}"),
    }
}

/// Checks the error reply in both modes, and that the next request is understood.
fn assert_refused(name: &str, message: &[u8], expected: ErrorCode) {
    for structured in [false, true] {
        let mut driver = open(name, structured);
        assert!(driver.receive(message));
        let refused = Event::Refused { cookie: Cookie(COOKIE), error: expected };
        assert_eq!(driver.trace.seen[0].event, refused, "{message:x?}");
        assert!(is_error(structured, &driver.trace.output, expected), "{message:x?}");
        assert!(driver.receive(&request(0, CMD_FLUSH, 9, 0, 0)));
        assert!(matches!(
            driver.trace.seen[1].event,
            Event::Request(Request { command: Command::Flush, .. })
        ));
    }
}

fn bad(flags: u16, command: u16, offset_bytes: u64, length_bytes: u32) -> Vec<u8> {
    request(flags, command, COOKIE, offset_bytes, length_bytes)
}

#[test]
fn commands_carry_their_fields_and_flags() {
    assert_eq!(command_of(&bad(0, CMD_READ, 0, 512)), Command::Read { dont_fragment: false });
    assert_eq!(command_of(&bad(DF, CMD_READ, 0, 512)), Command::Read { dont_fragment: true });
    assert_eq!(command_of(&bad(0, CMD_FLUSH, 0, 0)), Command::Flush);
    assert_eq!(command_of(&bad(FUA, CMD_TRIM, 0, 512)), Command::Trim { force_unit_access: true });
    assert_eq!(command_of(&bad(0, CMD_CACHE, 0, 512)), Command::Cache);
    assert_eq!(
        command_of(&bad(FUA | NO_HOLE | FAST_ZERO, CMD_WRITE_ZEROES, 0, 512)),
        Command::WriteZeroes { force_unit_access: true, no_hole: true, fast_zero: true }
    );
    assert_eq!(
        command_of(&bad(REQ_ONE, CMD_BLOCK_STATUS, 0, 512)),
        Command::BlockStatus { one_extent: true }
    );
    let event = event_of("disk", false, &bad(0, CMD_READ, EXPORT_BYTES - 512, 512));
    let expected = Request {
        cookie: Cookie(COOKIE),
        command: Command::Read { dont_fragment: false },
        offset_bytes: EXPORT_BYTES - 512,
        length_bytes: 512,
    };
    assert_eq!(event, Event::Request(expected));
}

#[test]
fn fua_is_accepted_on_every_command() {
    // spec: once SEND_FUA was offered, the flag must be accepted on all commands.
    for command in [CMD_READ, CMD_TRIM, CMD_CACHE, CMD_WRITE_ZEROES, CMD_BLOCK_STATUS] {
        command_of(&bad(FUA, command, 0, 512));
    }
    command_of(&bad(FUA, CMD_FLUSH, 0, 0));
}

#[test]
fn a_write_waits_for_its_whole_payload_and_shows_it_in_place() {
    let mut driver = open("disk", false);
    let message = [bad(FUA, CMD_WRITE, 4096, 1024), vec![7; 1024]].concat();
    assert!(driver.receive(&message[..100]));
    assert!(driver.trace.seen.is_empty());
    assert_eq!(driver.session.needed_bytes(), message.len());
    assert!(driver.receive(&message[100..]));
    let payload = PayloadRange { start: 0, end: 1024 };
    let expected = Request {
        cookie: Cookie(COOKIE),
        command: Command::Write { force_unit_access: true, payload },
        offset_bytes: 4096,
        length_bytes: 1024,
    };
    assert_eq!(driver.trace.seen[0].event, Event::Request(expected));
    assert_eq!(driver.trace.seen[0].payload, vec![7; 1024]);
}

#[test]
fn payload_range_counts_from_the_start_of_the_input() {
    let mut output = Vec::new();
    let mut session = coquina_nbd::ServerSession::new(ServerConfig::default(), &mut output);
    let (consumed_bytes, _) = session.receive(&opening("disk", false), &mut output);
    assert_eq!(consumed_bytes, opening("disk", false).len());
    session.export_found(crate::exercise::look_up("disk"), &mut output);
    let input = [bad(0, CMD_WRITE, 0, 512), vec![1; 512], bad(0, CMD_WRITE, 0, 512), vec![2; 512]].concat();
    let (first_bytes, _) = session.receive(&input, &mut output);
    assert_eq!(first_bytes, 540);
    let (second_bytes, event) = session.receive(&input[first_bytes..], &mut output);
    let Some(Event::Request(Request { command: Command::Write { payload, .. }, .. })) = event else {
        panic!()
    };
    assert_eq!((second_bytes, payload), (540, PayloadRange { start: 28, end: 540 }));
    assert_eq!(input[first_bytes..][payload.as_range()], [2; 512]);
}

#[test]
fn past_the_end_is_invalid_for_reads_and_no_space_for_writes() {
    for (offset_bytes, length_bytes) in
        [(EXPORT_BYTES, 512), (EXPORT_BYTES - 512, 1024), (u64::MAX - 511, 512), (u64::MAX - 511, 1024)]
    {
        for command in [CMD_READ, CMD_TRIM, CMD_CACHE] {
            assert_refused("disk", &bad(0, command, offset_bytes, length_bytes), ErrorCode::InvalidArgument);
        }
        // spec: ENOSPC for a write or write-zeroes that reaches beyond the export.
        assert_refused("disk", &bad(0, CMD_WRITE_ZEROES, offset_bytes, length_bytes), ErrorCode::NoSpace);
        let write = [bad(0, CMD_WRITE, offset_bytes, length_bytes), vec![0; length_bytes as usize]].concat();
        assert_refused("disk", &write, ErrorCode::NoSpace);
    }
}

#[test]
fn unaligned_and_empty_requests_are_invalid() {
    for (offset_bytes, length_bytes) in [(1, 512), (0, 511), (256, 256), (511, 1), (0, 0), (512, 0)] {
        for command in [CMD_READ, CMD_TRIM, CMD_CACHE, CMD_WRITE_ZEROES] {
            assert_refused("disk", &bad(0, command, offset_bytes, length_bytes), ErrorCode::InvalidArgument);
        }
        let write = [bad(0, CMD_WRITE, offset_bytes, length_bytes), vec![0; length_bytes as usize]].concat();
        assert_refused("disk", &write, ErrorCode::InvalidArgument);
    }
    assert_refused("disk", &bad(0, CMD_FLUSH, 512, 0), ErrorCode::InvalidArgument);
    assert_refused("disk", &bad(0, CMD_FLUSH, 0, 512), ErrorCode::InvalidArgument);
}

#[test]
fn unknown_commands_and_flags_are_invalid() {
    for command in [8, 9, 255, u16::MAX] {
        assert_refused("disk", &bad(0, command, 0, 512), ErrorCode::InvalidArgument);
    }
    // spec: EINVAL for a flag that is not documented for the command.
    let misplaced = [
        (NO_HOLE, CMD_READ),
        (REQ_ONE, CMD_READ),
        (DF, CMD_TRIM),
        (FAST_ZERO, CMD_TRIM),
        (DF, CMD_CACHE),
        (REQ_ONE, CMD_WRITE_ZEROES),
        (1 << 5, CMD_WRITE_ZEROES),
        (1 << 15, CMD_READ),
    ];
    for (flags, command) in misplaced {
        assert_refused("disk", &bad(flags, command, 0, 512), ErrorCode::InvalidArgument);
    }
    assert_refused("disk", &bad(DF, CMD_FLUSH, 0, 0), ErrorCode::InvalidArgument);
    // spec: DF must not be used unless offered, which takes structured replies.
    let refused = Event::Refused { cookie: Cookie(COOKIE), error: ErrorCode::InvalidArgument };
    assert_eq!(event_of("disk", false, &bad(DF, CMD_READ, 0, 512)), refused);
}

#[test]
fn block_status_needs_a_selected_context_of_the_same_export() {
    let refused = Event::Refused { cookie: Cookie(COOKIE), error: ErrorCode::InvalidArgument };
    assert_eq!(event_of("disk", false, &bad(0, CMD_BLOCK_STATUS, 0, 512)), refused);
    for (selected, queries, opened) in [
        ("read-only", &["base:allocation"][..], "disk"),
        ("disk", &["base:"], "disk"),
        ("missing", &[], "disk"),
    ] {
        let mut driver = Driver::new(ServerConfig::default());
        driver.receive(&FIXED_AND_NO_ZEROES);
        driver.receive(&option(OPT_STRUCTURED_REPLY, &[]));
        let first = context_data("disk", &["base:allocation"]);
        driver.receive(&option(OPT_SET_META_CONTEXT, &first));
        // spec: the later selection replaces the earlier one, even when it fails.
        driver.receive(&option(OPT_SET_META_CONTEXT, &context_data(selected, queries)));
        driver.receive(&option(OPT_GO, &info_data(opened, &[])));
        driver.receive(&bad(0, CMD_BLOCK_STATUS, 0, 512));
        assert_eq!(driver.trace.seen.last().unwrap().event, refused);
    }
}

#[test]
fn listing_a_context_does_not_select_it() {
    let mut driver = Driver::new(ServerConfig::default());
    driver.receive(&FIXED_AND_NO_ZEROES);
    driver.receive(&option(OPT_STRUCTURED_REPLY, &[]));
    driver.receive(&option(OPT_LIST_META_CONTEXT, &context_data("disk", &["base:allocation"])));
    driver.receive(&option(OPT_GO, &info_data("disk", &[])));
    driver.receive(&bad(0, CMD_BLOCK_STATUS, 0, 512));
    assert!(matches!(driver.trace.seen.last().unwrap().event, Event::Refused { .. }));
}

#[test]
fn read_only_exports_refuse_every_change() {
    // spec: EPERM for a write, trim or write-zeroes on a read-only export.
    assert_refused("read-only", &bad(0, CMD_TRIM, 0, 512), ErrorCode::NotPermitted);
    assert_refused("read-only", &bad(0, CMD_WRITE_ZEROES, 0, 512), ErrorCode::NotPermitted);
    let write = [bad(0, CMD_WRITE, 0, 512), vec![0; 512]].concat();
    assert_refused("read-only", &write, ErrorCode::NotPermitted);
    assert!(matches!(event_of("read-only", false, &bad(0, CMD_READ, 0, 512)), Event::Request(_)));
}

#[test]
fn too_long_reads_are_refused_and_too_long_writes_skipped_or_dropped() {
    assert_refused("disk", &bad(0, CMD_READ, 0, (32 << 20) + 512), ErrorCode::InvalidArgument);
    let mut driver = open("disk", true);
    let length_bytes = (32 << 20) + 512;
    assert!(driver.receive(&bad(0, CMD_WRITE, 0, length_bytes)));
    for _ in 0..length_bytes / 512 {
        // A refused payload is taken as it comes.
        assert_eq!(driver.session.needed_bytes(), 1);
        assert!(driver.trace.seen.is_empty());
        assert!(driver.receive(&[0; 512]));
    }
    assert!(is_error(true, &driver.trace.output, ErrorCode::InvalidArgument));

    let event = event_of("disk", true, &bad(0, CMD_WRITE, 0, (64 << 20) + 1));
    assert_eq!(event, Event::Violation(Violation::WriteTooLong { length_bytes: (64 << 20) + 1 }));
}

#[test]
fn commands_without_payload_may_exceed_the_payload_limit() {
    let mut driver = Driver::new(ServerConfig::new(4096));
    assert!(driver.receive(&opening("disk", true)));
    for command in [CMD_TRIM, CMD_WRITE_ZEROES, CMD_CACHE, CMD_BLOCK_STATUS] {
        driver.receive(&bad(0, command, 0, EXPORT_BYTES as u32));
        assert!(matches!(driver.trace.seen.last().unwrap().event, Event::Request(_)));
    }
    driver.receive(&bad(0, CMD_READ, 0, 4096));
    assert!(matches!(driver.trace.seen.last().unwrap().event, Event::Request(_)));
    driver.receive(&bad(0, CMD_READ, 0, 4608));
    assert!(matches!(driver.trace.seen.last().unwrap().event, Event::Refused { .. }));
}

#[test]
fn disconnect_ends_the_session_and_what_follows_is_dropped() {
    let mut driver = open("disk", true);
    let input = [bad(0, CMD_DISC, 0, 0), bad(0, CMD_READ, 0, 512)].concat();
    assert!(!driver.receive(&input));
    assert_eq!(driver.trace.seen[0].event, Event::Disconnect(DisconnectReason::Requested));
    assert_eq!(driver.session.receive(&input, &mut driver.trace.output), (input.len(), None));
    assert!(driver.trace.output.is_empty());
    // Requests that were outstanding are still answered in the client's mode.
    assert!(driver.session.replies().is_structured());
}

#[test]
fn a_disconnect_is_found_behind_whole_requests_only() {
    let mut driver = open("disk", true);
    let write = [bad(0, CMD_WRITE, 0, 512), vec![0x25; 512]].concat();
    let requests = [bad(0, CMD_TRIM, 0, 512), write, bad(0, CMD_READ, 0, 512)].concat();
    let mut input = [requests.clone(), bad(0, CMD_DISC, 0, 0)].concat();
    assert!(driver.session.disconnects_within(&input));
    assert!((0..input.len()).all(|length| !driver.session.disconnects_within(&input[..length])));
    input[0] ^= 1;
    assert!(!driver.session.disconnects_within(&input));
    // The payload of a refused write is skipped as it comes.
    assert!(driver.receive(&bad(0, CMD_WRITE, 0, 513)));
    let disconnect = bad(0, CMD_DISC, 0, 0);
    assert!(!driver.session.disconnects_within(&disconnect));
    assert!(driver.session.disconnects_within(&[vec![0; 513], disconnect].concat()));
}

#[test]
fn wrong_magic_drops_the_connection() {
    let mut message = bad(0, CMD_READ, 0, 512);
    message[0] ^= 1;
    let event = event_of("disk", false, &message);
    assert_eq!(event, Event::Violation(Violation::RequestMagic { magic: 0x2460_9513 }));
}

#[test]
fn a_resized_export_is_checked_at_its_new_size() {
    let mut driver = open("disk", false);
    driver.session.resize(EXPORT_BYTES / 2);
    driver.receive(&bad(0, CMD_READ, EXPORT_BYTES / 2, 512));
    assert!(matches!(driver.trace.seen[0].event, Event::Refused { .. }));
    driver.session.resize(EXPORT_BYTES);
    driver.receive(&bad(0, CMD_READ, EXPORT_BYTES / 2, 512));
    assert!(matches!(driver.trace.seen[1].event, Event::Request(_)));
}
