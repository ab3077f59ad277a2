//! How a driver serves one connection: the smallest one.

use coquina_nbd::{Command, ErrorCode, Event, ExportInfo, ExportRefusal, ServerConfig, ServerSession};

use crate::support::{CMD_READ, CMD_WRITE, opening, request};

/// Takes what was received, and leaves what must be sent. Returns false once the connection has to be closed, after `output` has been sent.
fn turn(
    session: &mut ServerSession,
    input: &mut Vec<u8>,
    output: &mut Vec<u8>,
    engine: &mut Vec<u8>,
) -> bool {
    loop {
        let (consumed_bytes, event) = session.receive(input, output);
        match event {
            Some(Event::Request(request)) => match request.command {
                Command::Write { payload, .. } => {
                    engine.extend(&input[payload.as_range()]);
                    session.replies().success(request.cookie, output);
                }
                _ => {
                    let why = "a write-only disk";
                    session.replies().error(request.cookie, ErrorCode::NotSupported, why, output);
                }
            },
            Some(Event::LookUpExport { name, .. }) => {
                let is_known = name.as_str() == "disk";
                let answer =
                    if is_known { Ok(ExportInfo::new(1 << 30)) } else { Err(ExportRefusal::Unknown) };
                session.export_found(answer, output);
            }
            Some(Event::ListExports) => session.exports_listed(["disk"], output),
            Some(Event::Ready | Event::Refused { .. }) => {}
            Some(Event::Disconnect(_) | Event::Violation(_)) => return false,
            // Now receive until at least `session.needed_bytes()` are buffered.
            None => {
                input.drain(..consumed_bytes);
                return true;
            }
        }
        input.drain(..consumed_bytes);
    }
}

#[test]
fn the_smallest_driver_serves_a_client() {
    let (mut input, mut output, mut engine) = (opening("disk", false), Vec::new(), Vec::new());
    let mut session = ServerSession::new(ServerConfig::default(), &mut output);
    assert!(turn(&mut session, &mut input, &mut output, &mut engine));
    output.clear();
    let block = [7; 512];
    input = [request(0, CMD_WRITE, 21, 0, 512), block.to_vec(), request(0, CMD_READ, 22, 0, 512)].concat();
    assert!(turn(&mut session, &mut input, &mut output, &mut engine));
    assert_eq!(engine, block);
    // Simple replies: a magic number, an error, the cookie.
    let reply = |error: u32, cookie: u64| {
        [&0x6744_6698_u32.to_be_bytes()[..], &error.to_be_bytes(), &cookie.to_be_bytes()].concat()
    };
    assert_eq!(output, [reply(0, 21), reply(95, 22)].concat());
    input = b"no request at all, and as long as one".to_vec();
    assert!(!turn(&mut session, &mut input, &mut output, &mut engine));
}
