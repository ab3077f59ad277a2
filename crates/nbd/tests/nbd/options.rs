//! Every option, as asked rightly and wrongly.

use coquina_nbd::{
    DisconnectReason, Event, ExportNameError, LookUpPurpose, ServerConfig, TransmissionFlags, Violation,
};

use crate::exercise::{Driver, EXPORT_BYTES};
use crate::support::*;

const GREETING_BYTES: usize = 18;

fn haggle(messages: &[Vec<u8>]) -> Driver {
    let mut driver = Driver::new(ServerConfig::default());
    driver.receive(&FIXED_AND_NO_ZEROES);
    for message in messages {
        driver.receive(message);
    }
    driver
}

fn replies(messages: &[Vec<u8>]) -> Vec<OptionReply> {
    option_replies(&haggle(messages).trace.output[GREETING_BYTES..])
}

/// Reply types only.
fn outcome(messages: &[Vec<u8>]) -> Vec<u32> {
    replies(messages).iter().map(|reply| reply.reply_type).collect()
}

fn last_event(driver: &Driver) -> &Event {
    &driver.trace.seen.last().unwrap().event
}

#[test]
fn greeting_offers_fixed_newstyle_and_no_zeroes() {
    // spec: both magic numbers, then the handshake flags, of which no others may be set.
    assert_eq!(Driver::new(ServerConfig::default()).trace.output, b"NBDMAGICIHAVEOPT\x00\x03");
}

#[test]
fn unknown_client_flags_drop_the_connection() {
    // spec: the server must drop the connection if the client sets an unknown flag.
    let mut driver = Driver::new(ServerConfig::default());
    assert!(!driver.receive(&[0, 0, 0, 7]));
    assert_eq!(last_event(&driver), &Event::Violation(Violation::ClientFlags { flags: 7 }));
}

#[test]
fn without_fixed_newstyle_only_export_name_is_valid() {
    let mut driver = Driver::new(ServerConfig::default());
    driver.receive(&[0, 0, 0, 0]);
    assert!(!driver.receive(&option(OPT_LIST, &[])));
    assert_eq!(last_event(&driver), &Event::Violation(Violation::OptionNotFixed { option: OPT_LIST }));

    let mut driver = Driver::new(ServerConfig::default());
    driver.receive(&[0, 0, 0, 0]);
    assert!(driver.receive(&option(OPT_EXPORT_NAME, b"disk")));
    assert_eq!(last_event(&driver), &Event::Ready);
}

#[test]
fn export_name_has_zeroes_unless_negotiated_away() {
    for (client_flags, padding_bytes) in [([0, 0, 0, 1], 124), ([0, 0, 0, 3], 0)] {
        let mut driver = Driver::new(ServerConfig::default());
        driver.receive(&client_flags);
        driver.receive(&option(OPT_EXPORT_NAME, b"disk"));
        let reply = &driver.trace.output[GREETING_BYTES..];
        assert_eq!(reply[..8], EXPORT_BYTES.to_be_bytes());
        assert_eq!(reply[10..], vec![0; padding_bytes]);
    }
}

#[test]
fn export_name_that_is_refused_ends_the_session() {
    // spec: the server must terminate the session, since this option cannot return an error.
    for name in ["missing", "locked", "late"] {
        let driver = haggle(&[option(OPT_EXPORT_NAME, name.as_bytes())]);
        assert_eq!(last_event(&driver), &Event::Disconnect(DisconnectReason::ExportRefused));
        assert_eq!(driver.trace.output.len(), GREETING_BYTES);
    }
    let driver = haggle(&[option_header(OPT_EXPORT_NAME, 4097)]);
    let too_long = Violation::Name(ExportNameError::TooLong { length_bytes: 4097 });
    assert_eq!(last_event(&driver), &Event::Violation(too_long));
    let driver = haggle(&[option(OPT_EXPORT_NAME, b"\xff")]);
    assert_eq!(last_event(&driver), &Event::Violation(Violation::Name(ExportNameError::NotUtf8)));
}

#[test]
fn abort_is_acknowledged_and_its_data_ignored() {
    for data in [&b""[..], b"bye"] {
        let driver = haggle(&[option(OPT_ABORT, data)]);
        assert_eq!(last_event(&driver), &Event::Disconnect(DisconnectReason::Aborted));
        assert_eq!(option_replies(&driver.trace.output[GREETING_BYTES..])[0].reply_type, REP_ACK);
    }
}

#[test]
fn list_names_every_export() {
    let replies = replies(&[option(OPT_LIST, &[])]);
    assert_eq!(
        replies.iter().map(|reply| reply.reply_type).collect::<Vec<_>>(),
        [REP_SERVER, REP_SERVER, REP_ACK]
    );
    assert_eq!(replies[0].data, b"\x00\x00\x00\x04disk");
    assert_eq!(replies[1].data, b"\x00\x00\x00\x09read-only");
    // spec: LIST with data should get ERR_INVALID.
    assert_eq!(outcome(&[option(OPT_LIST, b"x")]), [REP_ERR_INVALID]);
}

#[test]
fn options_that_are_not_served_get_unsupported_and_negotiation_goes_on() {
    for number in [0, 4, OPT_STARTTLS, OPT_EXTENDED_HEADERS, 12, u32::MAX] {
        assert_eq!(
            outcome(&[option(number, b"some data"), option(OPT_INFO, &info_data("gone", &[]))]),
            [REP_ERR_UNSUP, REP_ERR_UNKNOWN]
        );
    }
}

#[test]
fn info_describes_the_export_and_stays_in_negotiation() {
    let data = info_data("disk", &[1, 3, 77]);
    let replies = replies(&[option(OPT_INFO, &data), option(OPT_INFO, &data)]);
    assert_eq!(replies.len(), 8);
    // spec: asked twice in a row, the same is answered.
    assert_eq!(replies[..4], replies[4..]);
    let types: Vec<u32> = replies[..4].iter().map(|reply| reply.reply_type).collect();
    assert_eq!(types, [REP_INFO, REP_INFO, REP_INFO, REP_ACK]);
    assert_eq!(replies[0].data[..2], [0, 0]);
    assert_eq!(replies[0].data[2..10], EXPORT_BYTES.to_be_bytes());
    assert_eq!(replies[1].data, [0, 3, 0, 0, 2, 0, 0, 0, 0x10, 0, 2, 0, 0, 0]);
    assert_eq!(replies[2].data, b"\x00\x01disk");
}

#[test]
fn go_opens_the_export() {
    let driver = haggle(&[option(OPT_GO, &info_data("disk", &[]))]);
    assert_eq!(last_event(&driver), &Event::Ready);
    assert_eq!(driver.trace.ready_at, Some(driver.trace.output.len()));
    let look_up = &driver.trace.seen[0].event;
    let name = "disk".parse().unwrap();
    assert_eq!(look_up, &Event::LookUpExport { name, purpose: LookUpPurpose::Open });
}

#[test]
fn go_refusals_say_why_in_words() {
    for (name, reply_type) in
        [("missing", REP_ERR_UNKNOWN), ("locked", REP_ERR_POLICY), ("late", REP_ERR_SHUTDOWN)]
    {
        for number in [OPT_GO, OPT_INFO] {
            let replies = replies(&[option(number, &info_data(name, &[3]))]);
            assert_eq!((replies.len(), replies[0].reply_type), (1, reply_type));
            assert!(!replies[0].text().is_empty());
        }
    }
}

#[test]
fn go_with_broken_data_is_invalid_and_may_be_repeated() {
    let good = info_data("disk", &[3]);
    let mut messages: Vec<Vec<u8>> = (0..good.len()).map(|end| option(OPT_GO, &good[..end])).collect();
    messages.push(option(OPT_GO, &[good.clone(), vec![0]].concat()));
    messages.push(option(OPT_GO, b"\xff\xff\xff\xff"));
    messages.push(option(OPT_GO, &info_data("nul\0", &[])));
    let broken = messages.len();
    messages.push(option(OPT_GO, &good));
    let outcome = outcome(&messages);
    assert_eq!(outcome[..broken], vec![REP_ERR_INVALID; broken]);
    assert_eq!(outcome[broken..], [REP_INFO, REP_INFO, REP_ACK]);
}

#[test]
fn too_long_names_and_options_are_too_big() {
    assert_eq!(outcome(&[option(OPT_GO, &info_data(&"x".repeat(4096), &[]))]), [REP_ERR_UNKNOWN]);
    assert_eq!(outcome(&[option(OPT_GO, &info_data(&"x".repeat(4097), &[]))]), [REP_ERR_TOO_BIG]);
    assert_eq!(outcome(&[option(OPT_GO, &vec![0; 65_537])]), [REP_ERR_TOO_BIG]);
    assert_eq!(outcome(&[option(OPT_LIST, &vec![0; 1 << 20])]), [REP_ERR_TOO_BIG]);
    let driver = haggle(&[option_header(OPT_GO, (1 << 20) + 1)]);
    let too_long = Violation::OptionTooLong { option: OPT_GO, length_bytes: (1 << 20) + 1 };
    assert_eq!(last_event(&driver), &Event::Violation(too_long));
}

#[test]
fn skipped_data_is_never_buffered() {
    let mut driver = haggle(&[option_header(OPT_STARTTLS, 1 << 20)]);
    assert_eq!(driver.session.needed_bytes(), 1);
    for _ in 0..1 << 10 {
        assert!(driver.receive(&[0; 1 << 10]));
    }
    let replies = option_replies(&driver.trace.output[GREETING_BYTES..]);
    assert_eq!(replies[0].reply_type, REP_ERR_UNSUP);
}

#[test]
fn structured_replies_are_acknowledged_and_offer_dont_fragment() {
    assert_eq!(outcome(&[option(OPT_STRUCTURED_REPLY, b"x")]), [REP_ERR_INVALID]);
    for structured in [false, true] {
        let mut messages = vec![option(OPT_INFO, &info_data("disk", &[]))];
        if structured {
            messages.insert(0, option(OPT_STRUCTURED_REPLY, &[]));
        }
        let replies = replies(&messages);
        let info = &replies[usize::from(structured)];
        let flags = TransmissionFlags(u16::from_be_bytes([info.data[10], info.data[11]]));
        // spec: SEND_DF must be clear if structured replies were not negotiated.
        assert_eq!(flags.contains(TransmissionFlags::SEND_DF), structured);
        assert_eq!(flags.0 & !TransmissionFlags::SEND_DF.0, 0b1101_0110_1101);
    }
}

#[test]
fn read_only_exports_offer_no_writes() {
    let replies = replies(&[option(OPT_INFO, &info_data("read-only", &[]))]);
    let flags = u16::from_be_bytes([replies[0].data[10], replies[0].data[11]]);
    assert_eq!(flags, 0b0101_0000_1111);
}

#[test]
fn contexts_need_structured_replies() {
    // spec: ERR_INVALID if structured replies were not negotiated first.
    for number in [OPT_LIST_META_CONTEXT, OPT_SET_META_CONTEXT] {
        let message = option(number, &context_data("disk", &["base:allocation"]));
        assert_eq!(outcome(&[message]), [REP_ERR_INVALID]);
    }
}

fn contexts(number: u32, name: &str, queries: &[&str]) -> Vec<OptionReply> {
    let structured = option(OPT_STRUCTURED_REPLY, &[]);
    replies(&[structured, option(number, &context_data(name, queries))]).split_off(1)
}

#[test]
fn contexts_are_listed_by_name_and_wildcard() {
    for queries in [&[][..], &["base:"], &["base:allocation"], &["x-other:thing", "base:"]] {
        let replies = contexts(OPT_LIST_META_CONTEXT, "disk", queries);
        assert_eq!(replies.len(), 2, "{queries:?}");
        assert_eq!((replies[0].reply_type, replies[1].reply_type), (REP_META_CONTEXT, REP_ACK));
        // spec: in a list the context's id should be zero.
        assert_eq!(replies[0].data, b"\x00\x00\x00\x00base:allocation");
    }
    // spec: unknown namespaces and names are ignored, with a lone ACK.
    for queries in [&["base:missing"][..], &["qemu:dirty-bitmap:x"], &["no colon"], &[""]] {
        let replies = contexts(OPT_LIST_META_CONTEXT, "disk", queries);
        assert_eq!((replies.len(), replies[0].reply_type), (1, REP_ACK), "{queries:?}");
    }
}

#[test]
fn contexts_are_selected_by_full_name_only() {
    let replies = contexts(OPT_SET_META_CONTEXT, "disk", &["base:allocation", "base:allocation", "x-a:b"]);
    assert_eq!(replies.len(), 2);
    assert_eq!(replies[0].data, b"\x00\x00\x00\x01base:allocation");
    // spec: no queries select nothing, and so does the wildcard.
    for queries in [&[][..], &["base:"], &["base:missing"]] {
        let replies = contexts(OPT_SET_META_CONTEXT, "disk", queries);
        assert_eq!((replies.len(), replies[0].reply_type), (1, REP_ACK), "{queries:?}");
    }
    let replies = contexts(OPT_SET_META_CONTEXT, "missing", &["base:allocation"]);
    assert_eq!((replies.len(), replies[0].reply_type), (1, REP_ERR_UNKNOWN));
}

#[test]
fn contexts_with_broken_data_are_invalid() {
    let good = context_data("disk", &["base:allocation", "x-a:b"]);
    let mut messages = vec![option(OPT_STRUCTURED_REPLY, &[])];
    messages.extend((0..good.len()).map(|end| option(OPT_SET_META_CONTEXT, &good[..end])));
    messages.push(option(OPT_SET_META_CONTEXT, &[good, vec![0]].concat()));
    messages.push(option(OPT_SET_META_CONTEXT, b"\x00\x00\x00\x00\xff\xff\xff\xff"));
    let outcome = outcome(&messages);
    assert_eq!(outcome[1..], vec![REP_ERR_INVALID; messages.len() - 1]);
    let long_query = "x".repeat(4097);
    let replies = contexts(OPT_SET_META_CONTEXT, "disk", &[&long_query]);
    assert_eq!(replies[0].reply_type, REP_ERR_TOO_BIG);
}

#[test]
fn endless_negotiation_is_dropped() {
    let mut driver = haggle(&[]);
    let message = option(OPT_STRUCTURED_REPLY, &[]);
    for _ in 0..4096 {
        assert!(driver.receive(&message));
    }
    assert!(!driver.receive(&message));
    assert_eq!(last_event(&driver), &Event::Violation(Violation::TooManyOptions));
}

#[test]
fn nothing_is_taken_while_an_answer_is_due() {
    let mut output = Vec::new();
    let mut session = coquina_nbd::ServerSession::new(ServerConfig::default(), &mut output);
    let list = option(OPT_LIST, &[]);
    let input = [&FIXED_AND_NO_ZEROES[..], &list, &list].concat();
    let (consumed_bytes, event) = session.receive(&input, &mut output);
    assert_eq!((consumed_bytes, event), (4 + list.len(), Some(Event::ListExports)));
    assert_eq!(session.receive(&list, &mut output), (0, None));
    assert_eq!(session.needed_bytes(), 0);
    session.exports_listed(["a"], &mut output);
    assert_eq!(session.receive(&list, &mut output), (list.len(), Some(Event::ListExports)));
}

#[test]
fn what_is_not_nbd_is_dropped() {
    let driver = haggle(&[b"GET / HTTP/1.1\r\n".to_vec()]);
    assert!(matches!(last_event(&driver), Event::Violation(Violation::OptionMagic { .. })));
}
