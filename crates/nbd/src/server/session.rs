use super::haggling::{Haggling, LookUpOutcome};
use super::transmission::Transmission;
use crate::constant::{
    BLOCK_BYTES_PREFERRED, CLIENT_FLAG_FIXED_NEWSTYLE, CLIENT_FLAG_NO_ZEROES, FLAG_FIXED_NEWSTYLE,
    FLAG_NO_ZEROES, MAGIC_INITIAL, MAGIC_OPTION, PAYLOAD_BYTES_MAX,
};
use crate::wire::{Reader, put_u16, put_u64};
use crate::{
    Cookie, DisconnectReason, ErrorCode, ExportInfo, ExportName, ExportRefusal, ReplyEncoder, Request,
    Violation,
};

/// What a server chooses for all its sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    payload_bytes_max: u32,
}

impl ServerConfig {
    /// Accepts reads and writes of up to `payload_bytes_max` bytes each.
    ///
    /// # Panics
    /// Unless it is a multiple of 4096 between 4 KiB and 32 MiB. The specification wants at least 1 MiB.
    pub fn new(payload_bytes_max: u32) -> Self {
        let is_legal = (BLOCK_BYTES_PREFERRED..=PAYLOAD_BYTES_MAX).contains(&payload_bytes_max)
            && payload_bytes_max.is_multiple_of(BLOCK_BYTES_PREFERRED);
        assert!(is_legal, "largest payload of {payload_bytes_max} bytes");
        Self { payload_bytes_max }
    }

    /// Longest read and write, in bytes. A driver's input buffer must be able to hold 28 bytes more.
    pub fn payload_bytes_max(&self) -> u32 {
        self.payload_bytes_max
    }
}

impl Default for ServerConfig {
    /// 32 MiB, which every client keeps to even unasked.
    fn default() -> Self {
        Self::new(PAYLOAD_BYTES_MAX)
    }
}

/// What the driver has to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Find an export, then call [`ServerSession::export_found`]; until then the session takes no input.
    LookUpExport {
        /// As the client sent it: it may be empty, or no legal volume name.
        name: ExportName,
        /// What the client will do with it.
        purpose: LookUpPurpose,
    },
    /// Collect the names of the exports, then call [`ServerSession::exports_listed`]; until then the session takes no
    /// input.
    ListExports,
    /// The export looked up last is now in use: requests follow.
    Ready,
    /// Carry it out, and answer with [`ServerSession::replies`]. Requests may be answered in any order.
    Request(Request),
    /// An invalid request was answered by the session with an error reply in the output. There is nothing to do, other
    /// than counting it and not letting the output grow without bound when a client floods and does not receive.
    Refused {
        /// Which request.
        cookie: Cookie,
        /// The answer.
        error: ErrorCode,
    },
    /// Answer what is outstanding, send the output, then close the connection.
    Disconnect(DisconnectReason),
    /// Drop the connection now.
    Violation(Violation),
}

/// Why a client names an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookUpPurpose {
    /// To learn about it; nothing needs to be opened.
    Inspect,
    /// To use it from now on.
    Open,
}

pub(crate) enum State {
    ClientFlags,
    Haggling(Haggling),
    Transmission(Transmission),
    Closed,
}

/// What one step of the state machine did with the input.
pub(crate) enum Step {
    /// More bytes are needed: as many as given here, in all, from the first unconsumed one.
    Need(usize),
    /// The driver has to answer first.
    Wait,
    /// So many bytes were used up.
    Consumed(usize),
    /// So many bytes were used up, and the driver has something to do.
    Event(usize, Event),
}

/// A server's side of one connection, from the greeting to the goodbye.
///
/// Invariants:
/// - the session takes whole messages, except that data which it only skips is taken as it comes: how the peer's
///   bytes are cut into calls changes no event and no output;
/// - it never takes an option before the one before it is answered, so a driver may look exports up at leisure;
/// - the input never needs to hold more than [`ServerSession::needed_bytes`], which is bounded by the configuration;
/// - what it appends to the output are whole messages; a driver must not put them between a reply's header and its
///   payload, and should stop receiving while the client does not take its output.
pub struct ServerSession {
    config: ServerConfig,
    state: State,
    needed_bytes: usize,
    /// Outlives the transmission phase, because requests outstanding at a disconnect are still answered.
    replies: ReplyEncoder,
}

impl ServerSession {
    /// Begins a session: appends the greeting to the output.
    pub fn new(config: ServerConfig, output: &mut Vec<u8>) -> Self {
        put_u64(output, MAGIC_INITIAL);
        put_u64(output, MAGIC_OPTION);
        // spec: a server that speaks fixed newstyle says so, and sets no other flags than these two.
        put_u16(output, FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES);
        Self {
            config,
            state: State::ClientFlags,
            needed_bytes: 4,
            replies: ReplyEncoder { structured: false },
        }
    }

    /// Takes messages from the front of the input until there is an event or no whole message left.
    ///
    /// Returns how many bytes were used up and must be dropped from the front, which includes the payload of a write
    /// that is in the event. Without an event, call again when more bytes have arrived. After a disconnect or a
    /// violation, all input is dropped.
    pub fn receive(&mut self, input: &[u8], output: &mut Vec<u8>) -> (usize, Option<Event>) {
        let mut consumed_bytes = 0;
        loop {
            let rest = &input[consumed_bytes..];
            match self.step(rest, output) {
                Step::Consumed(bytes) => consumed_bytes += bytes,
                Step::Event(bytes, event) => {
                    if matches!(event, Event::Disconnect(_) | Event::Violation(_)) {
                        self.state = State::Closed;
                    }
                    self.needed_bytes = 0;
                    return (consumed_bytes + bytes, Some(event));
                }
                Step::Need(bytes) => {
                    self.needed_bytes = bytes;
                    return (consumed_bytes, None);
                }
                Step::Wait => {
                    self.needed_bytes = 0;
                    return (consumed_bytes, None);
                }
            }
        }
    }

    /// How many bytes the next message has, as far as that is known, counted from the first byte not yet consumed.
    ///
    /// Valid after [`ServerSession::receive`] returned no event: an input buffer of this size makes progress. Zero
    /// while the driver owes an answer.
    pub fn needed_bytes(&self) -> usize {
        self.needed_bytes
    }

    /// Whether the client says in this input, which begins with the first byte not yet consumed, that it disconnects, behind nothing but
    /// whole requests.
    pub fn disconnects_within(&self, input: &[u8]) -> bool {
        matches!(&self.state, State::Transmission(transmission) if transmission.disconnects_within(input))
    }

    fn step(&mut self, rest: &[u8], output: &mut Vec<u8>) -> Step {
        match &mut self.state {
            State::ClientFlags => self.take_client_flags(rest),
            State::Haggling(haggling) => haggling.step(rest, output),
            State::Transmission(transmission) => transmission.step(rest, output),
            State::Closed if rest.is_empty() => Step::Wait,
            State::Closed => Step::Consumed(rest.len()),
        }
    }

    fn take_client_flags(&mut self, rest: &[u8]) -> Step {
        let Some(flags) = Reader::new(rest).u32() else { return Step::Need(4) };
        // spec: the server must drop the connection if the client sets a flag that was not offered.
        if flags & !(CLIENT_FLAG_FIXED_NEWSTYLE | CLIENT_FLAG_NO_ZEROES) != 0 {
            return Step::Event(4, Event::Violation(Violation::ClientFlags { flags }));
        }
        self.state = State::Haggling(Haggling::new(
            flags & CLIENT_FLAG_FIXED_NEWSTYLE != 0,
            flags & CLIENT_FLAG_NO_ZEROES != 0,
            self.config,
        ));
        Step::Consumed(4)
    }

    /// Answers [`Event::LookUpExport`]. An event that comes back is to be handled like those of `receive`.
    ///
    /// # Panics
    /// If no look-up is outstanding: the driver's mistake.
    pub fn export_found(
        &mut self,
        answer: Result<ExportInfo, ExportRefusal>,
        output: &mut Vec<u8>,
    ) -> Option<Event> {
        let State::Haggling(haggling) = &mut self.state else { panic!("no look-up is outstanding") };
        match haggling.export_found(answer, output) {
            LookUpOutcome::Answered => None,
            LookUpOutcome::Refused => {
                self.state = State::Closed;
                Some(Event::Disconnect(DisconnectReason::ExportRefused))
            }
            LookUpOutcome::Opened(limits) => {
                self.replies = ReplyEncoder { structured: limits.structured };
                self.state = State::Transmission(Transmission::new(limits));
                Some(Event::Ready)
            }
        }
    }

    /// Answers [`Event::ListExports`] with the names of all exports, none longer than 4096 bytes.
    ///
    /// # Panics
    /// If no list is outstanding: the driver's mistake.
    pub fn exports_listed<Name: AsRef<str>>(
        &mut self,
        names: impl IntoIterator<Item = Name>,
        output: &mut Vec<u8>,
    ) {
        let State::Haggling(haggling) = &mut self.state else { panic!("no list is outstanding") };
        haggling.exports_listed(names, output);
    }

    /// The size of the export in use has changed; requests from now on are checked against the new one.
    ///
    /// The protocol has no way to tell the client, which sees it when it connects again.
    pub fn resize(&mut self, size_bytes: u64) {
        if let State::Transmission(transmission) = &mut self.state {
            transmission.limits.export.size_bytes = size_bytes;
        }
    }

    /// How to encode replies in this session; it does not change after [`Event::Ready`].
    pub fn replies(&self) -> ReplyEncoder {
        self.replies
    }
}
