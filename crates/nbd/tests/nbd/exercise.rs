//! A driver that serves a few made-up exports from memory, and checks everything a session promises on any input.
//!
//! The fuzz target `fuzz/fuzz_targets/session.rs` is this file too.

use coquina_nbd::{
    BlockState, BlockStatusReply, Command, Cookie, Event, ExportInfo, ExportRefusal, LookUpPurpose,
    OPTION_BYTES_MAX, PayloadRange, Reply, ReplyEncoder, Request, ServerConfig, ServerSession,
    data_chunk_header, done_chunk, hole_chunk, parse_reply,
};

/// Size of every export here, in bytes.
pub const EXPORT_BYTES: u64 = 1 << 20;
/// Names that a list returns.
pub const EXPORT_NAMES: [&str; 2] = ["disk", "read-only"];

/// An event, with the payload where its range was.
#[derive(Debug, PartialEq, Eq)]
pub struct Seen {
    pub event: Event,
    pub payload: Vec<u8>,
}

/// All that a session did.
#[derive(Debug, PartialEq, Eq, Default)]
pub struct Trace {
    pub seen: Vec<Seen>,
    pub output: Vec<u8>,
    /// Where the transmission phase begins in the output.
    pub ready_at: Option<usize>,
    pub structured: bool,
}

/// Serves one connection; a stand-in for the reactor.
pub struct Driver {
    pub session: ServerSession,
    pub trace: Trace,
    buffered: Vec<u8>,
    config: ServerConfig,
}

pub fn look_up(name: &str) -> Result<ExportInfo, ExportRefusal> {
    match name {
        "disk" | "" => Ok(ExportInfo::new(EXPORT_BYTES)),
        "read-only" => Ok(ExportInfo { read_only: true, ..ExportInfo::new(EXPORT_BYTES) }),
        "locked" => Err(ExportRefusal::Forbidden),
        "late" => Err(ExportRefusal::Shutdown),
        _ => Err(ExportRefusal::Unknown),
    }
}

impl Driver {
    pub fn new(config: ServerConfig) -> Self {
        let mut trace = Trace::default();
        let session = ServerSession::new(config, &mut trace.output);
        Self { session, trace, buffered: Vec::new(), config }
    }

    /// Hands over what has arrived. False once the connection is to be closed.
    pub fn receive(&mut self, bytes: &[u8]) -> bool {
        self.buffered.extend_from_slice(bytes);
        loop {
            let (consumed_bytes, event) = self.session.receive(&self.buffered, &mut self.trace.output);
            assert!(consumed_bytes <= self.buffered.len(), "consumed more than was given");
            let Some(event) = event else {
                self.buffered.drain(..consumed_bytes);
                self.check_needed_bytes();
                return true;
            };
            let is_open = self.take(event, consumed_bytes);
            self.buffered.drain(..consumed_bytes);
            if !is_open {
                return false;
            }
        }
    }

    fn check_needed_bytes(&self) {
        let needed_bytes = self.session.needed_bytes();
        let bytes_max = (28 + self.config.payload_bytes_max()).max(16 + OPTION_BYTES_MAX) as usize;
        assert!(needed_bytes > self.buffered.len(), "the session waits although it has all it needs");
        assert!(needed_bytes <= bytes_max, "the session wants {needed_bytes} bytes");
    }

    fn take(&mut self, event: Event, consumed_bytes: usize) -> bool {
        let (event, payload) = normalized(event, &self.buffered, consumed_bytes);
        let output = &mut self.trace.output;
        let mut is_open = true;
        let mut follow_up = None;
        match &event {
            Event::LookUpExport { name, purpose } => {
                follow_up = self.session.export_found(look_up(name.as_str()), output);
                let opens = look_up(name.as_str()).is_ok() && *purpose == LookUpPurpose::Open;
                assert_eq!(follow_up == Some(Event::Ready), opens);
            }
            Event::ListExports => self.session.exports_listed(EXPORT_NAMES, output),
            Event::Request(request) => answer(request, self.session.replies(), output),
            Event::Ready | Event::Refused { .. } => {}
            Event::Disconnect(_) | Event::Violation(_) => is_open = false,
        }
        self.trace.seen.push(Seen { event, payload });
        match follow_up {
            Some(Event::Ready) => {
                self.trace.ready_at = Some(self.trace.output.len());
                self.trace.structured = self.session.replies().is_structured();
                self.trace.seen.push(Seen { event: Event::Ready, payload: Vec::new() });
            }
            Some(event) => {
                self.trace.seen.push(Seen { event, payload: Vec::new() });
                is_open = false;
            }
            None => {}
        }
        is_open
    }
}

/// Takes a write's payload out of the buffer, so that events can be compared however the input was cut.
fn normalized(event: Event, buffered: &[u8], consumed_bytes: usize) -> (Event, Vec<u8>) {
    let Event::Request(mut request) = event else { return (event, Vec::new()) };
    let mut bytes = Vec::new();
    if let Command::Write { payload, .. } = &mut request.command {
        assert_eq!(payload.end, consumed_bytes, "the payload ends where the message does");
        bytes = buffered[payload.as_range()].to_vec();
        assert_eq!(bytes.len(), request.length_bytes as usize);
        *payload = PayloadRange { start: 0, end: bytes.len() };
    }
    check_promises(&request);
    (Event::Request(request), bytes)
}

/// What the driver may rely on without checking again.
fn check_promises(request: &Request) {
    if request.command == Command::Flush {
        return;
    }
    assert!(request.length_bytes > 0 && request.length_bytes.is_multiple_of(512));
    assert!(request.offset_bytes.is_multiple_of(512));
    assert!(request.offset_bytes + u64::from(request.length_bytes) <= EXPORT_BYTES);
}

/// Even sectors of every export are holes, odd ones are full of ones.
fn sector(offset_bytes: u64) -> (bool, [u8; 512]) {
    let is_hole = (offset_bytes / 512).is_multiple_of(2);
    (is_hole, [u8::from(!is_hole); 512])
}

fn answer(request: &Request, replies: ReplyEncoder, output: &mut Vec<u8>) {
    let &Request { cookie, offset_bytes, length_bytes, .. } = request;
    let sectors = (offset_bytes..offset_bytes + u64::from(length_bytes)).step_by(512);
    match request.command {
        Command::Read { dont_fragment: false } if replies.is_structured() && length_bytes <= 8192 => {
            for offset_bytes in sectors {
                let (is_hole, data) = sector(offset_bytes);
                if is_hole {
                    output.extend_from_slice(&hole_chunk(cookie, offset_bytes, 512, false));
                } else {
                    output.extend_from_slice(&data_chunk_header(cookie, offset_bytes, 512, false));
                    output.extend_from_slice(&data);
                }
            }
            output.extend_from_slice(&done_chunk(cookie));
        }
        Command::Read { .. } => {
            output.extend_from_slice(replies.read(cookie, offset_bytes, length_bytes).as_bytes());
            sectors.for_each(|offset_bytes| output.extend_from_slice(&sector(offset_bytes).1));
        }
        Command::BlockStatus { one_extent } => {
            let mut reply = BlockStatusReply::new(cookie, length_bytes, one_extent, output);
            for offset_bytes in sectors {
                let state = if sector(offset_bytes).0 { BlockState::HOLE } else { BlockState::DATA };
                if !reply.push(512, state) {
                    break;
                }
            }
            reply.finish();
        }
        _ => replies.success(cookie, output),
    }
}

/// Feeds a whole connection in pieces of the given sizes, over and over; no sizes mean one piece.
pub fn run(config: ServerConfig, input: &[u8], piece_sizes: &[usize]) -> Trace {
    let mut driver = Driver::new(config);
    let mut rest = input;
    let mut sizes = piece_sizes.iter().copied().cycle();
    while !rest.is_empty() {
        let size = sizes.next().unwrap_or(rest.len()).clamp(1, rest.len());
        let (piece, after) = rest.split_at(size);
        rest = after;
        if !driver.receive(piece) {
            break;
        }
    }
    driver.trace
}

/// Every request and every refusal has exactly one complete reply, which a client can read.
pub fn check_replies(trace: &Trace) {
    let Some(ready_at) = trace.ready_at else { return };
    let mut output = &trace.output[ready_at..];
    for seen in &trace.seen {
        match &seen.event {
            Event::Request(request) => {
                let is_read = matches!(request.command, Command::Read { .. });
                output = skip_reply(output, request.cookie, if is_read { request.length_bytes } else { 0 });
            }
            Event::Refused { cookie, .. } => output = skip_reply(output, *cookie, 0),
            _ => {}
        }
    }
    assert!(output.is_empty(), "more replies than requests");
}

fn skip_reply(mut output: &[u8], expected: Cookie, read_bytes: u32) -> &[u8] {
    let mut covered_bytes = 0;
    loop {
        let (used, reply) = parse_reply(output).expect("a valid reply").expect("a complete reply");
        output = &output[used..];
        let (cookie, data_bytes, is_last) = match reply {
            Reply::Simple { cookie, error } => (cookie, if error.is_some() { 0 } else { read_bytes }, true),
            Reply::Data { cookie, length_bytes, last, .. } => (cookie, length_bytes, last),
            Reply::Hole { cookie, length_bytes, last, .. } => {
                covered_bytes += length_bytes;
                (cookie, 0, last)
            }
            Reply::Done { cookie } => (cookie, 0, true),
            Reply::Error { cookie, last, .. } | Reply::BlockStatus { cookie, last, .. } => (cookie, 0, last),
        };
        assert_eq!(cookie, expected);
        covered_bytes += data_bytes;
        output = &output[data_bytes as usize..];
        if is_last {
            assert_eq!(covered_bytes, read_bytes, "a read is covered in full");
            return output;
        }
    }
}

/// What the fuzz target does with an input: two bytes choose how the rest is cut into pieces.
///
/// Returns how many requests were served or refused, so that a run can see that it was not idle.
#[allow(dead_code, reason = "the fuzz target and the corpus replay use it")]
pub fn exercise(data: &[u8]) -> usize {
    let Some((&[first, second], input)) = data.split_first_chunk::<2>() else { return 0 };
    let config = ServerConfig::new(16 << 10);
    let whole = run(config, input, &[]);
    check_replies(&whole);
    let pieces = run(config, input, &[usize::from(first) + 1, usize::from(second) + 1]);
    assert_eq!(whole, pieces, "how the input is cut changed the outcome");
    // A client must survive the same bytes.
    let _ = parse_reply(input);
    let config = coquina_nbd::ClientConfig {
        export: "disk".parse().expect("a name"),
        structured_replies: first % 2 == 0,
        block_status: second % 2 == 0,
    };
    let mut client_output = Vec::new();
    let result = coquina_nbd::ClientHandshake::new(config).receive(input, &mut client_output);
    assert!(result.is_err() || result.is_ok_and(|(consumed_bytes, _)| consumed_bytes <= input.len()));
    whole.seen.iter().filter(|seen| matches!(seen.event, Event::Request(_) | Event::Refused { .. })).count()
}
