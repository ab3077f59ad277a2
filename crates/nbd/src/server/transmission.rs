use super::session::{Event, Step};
use crate::constant::{REQUEST_HEADER_BYTES, WRITE_DRAIN_BYTES_MAX, command};
use crate::request::{Limits, PayloadRange, Refusal, RequestHeader};
use crate::{Cookie, DisconnectReason, ReplyEncoder, Request, Violation};

/// The payload of a refused write, which is skipped without being kept, and the reply that is due then.
struct Skip {
    remaining_bytes: usize,
    cookie: Cookie,
    refusal: Refusal,
}

/// The transmission phase: takes requests, and answers the invalid ones itself.
///
/// Invariant: whatever completes a message is an event, so a request always begins where the driver's input does. The
/// payload's range relies on it.
pub struct Transmission {
    pub(crate) limits: Limits,
    skip: Option<Skip>,
}

impl Transmission {
    pub fn new(limits: Limits) -> Self {
        Self { limits, skip: None }
    }

    pub fn step(&mut self, rest: &[u8], output: &mut Vec<u8>) -> Step {
        if let Some(skip) = &mut self.skip {
            let taken = skip.remaining_bytes.min(rest.len());
            skip.remaining_bytes -= taken;
            if skip.remaining_bytes == 0 {
                let (cookie, refusal) = (skip.cookie, skip.refusal);
                self.skip = None;
                return Step::Event(taken, self.refuse(cookie, refusal, output));
            } else if taken == 0 {
                return Step::Need(1);
            }
            return Step::Consumed(taken);
        }
        let Some(header) = RequestHeader::parse(rest) else { return Step::Need(REQUEST_HEADER_BYTES) };
        // spec: either side may hang up on a violation; without the magic the place in the stream is lost.
        if !header.has_right_magic() {
            let violation = Violation::RequestMagic { magic: header.magic };
            return Step::Event(REQUEST_HEADER_BYTES, Event::Violation(violation));
        }
        match header.command {
            // spec: outstanding requests are handled, then the connection is closed; there is no reply.
            command::DISC => {
                Step::Event(REQUEST_HEADER_BYTES, Event::Disconnect(DisconnectReason::Requested))
            }
            command::WRITE => self.take_write(&header, rest),
            _ => self.take_request(&header, output),
        }
    }

    /// Whether there is a disconnect in the input, behind nothing but whole requests.
    pub fn disconnects_within(&self, input: &[u8]) -> bool {
        let mut at = self.skip.as_ref().map_or(0, |skip| skip.remaining_bytes);
        while let Some(header) = input.get(at..).and_then(RequestHeader::parse) {
            if !header.has_right_magic() {
                return false;
            }
            at += match header.command {
                command::DISC => return true,
                command::WRITE => REQUEST_HEADER_BYTES + header.length_bytes as usize,
                _ => REQUEST_HEADER_BYTES,
            };
        }
        false
    }

    fn take_request(&self, header: &RequestHeader, output: &mut Vec<u8>) -> Step {
        match header.check(&self.limits, PayloadRange { start: 0, end: 0 }) {
            Ok(command) => Step::Event(REQUEST_HEADER_BYTES, request_event(header, command)),
            Err(refusal) => Step::Event(REQUEST_HEADER_BYTES, self.refuse(header.cookie, refusal, output)),
        }
    }

    fn take_write(&mut self, header: &RequestHeader, rest: &[u8]) -> Step {
        // spec: a payload large enough to be a denial of service may be answered by hanging up.
        if header.length_bytes > WRITE_DRAIN_BYTES_MAX {
            let violation = Violation::WriteTooLong { length_bytes: header.length_bytes };
            return Step::Event(REQUEST_HEADER_BYTES, Event::Violation(violation));
        }
        let message_bytes = REQUEST_HEADER_BYTES + header.length_bytes as usize;
        let payload = PayloadRange { start: REQUEST_HEADER_BYTES, end: message_bytes };
        match header.check(&self.limits, payload) {
            Ok(_) if rest.len() < message_bytes => Step::Need(message_bytes),
            Ok(command) => Step::Event(message_bytes, request_event(header, command)),
            // spec: the payload follows the header whether or not the request is valid.
            Err(refusal) => {
                let remaining_bytes = header.length_bytes as usize;
                self.skip = Some(Skip { remaining_bytes, cookie: header.cookie, refusal });
                Step::Consumed(REQUEST_HEADER_BYTES)
            }
        }
    }

    fn refuse(&self, cookie: Cookie, refusal: Refusal, output: &mut Vec<u8>) -> Event {
        ReplyEncoder { structured: self.limits.structured }.error(
            cookie,
            refusal.error,
            refusal.message,
            output,
        );
        Event::Refused { cookie, error: refusal.error }
    }
}

fn request_event(header: &RequestHeader, command: crate::Command) -> Event {
    Event::Request(Request {
        cookie: header.cookie,
        command,
        offset_bytes: header.offset_bytes,
        length_bytes: header.length_bytes,
    })
}
