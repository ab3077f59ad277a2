//! NBD exports over TCP and Unix sockets: one connection per job, simple replies.
//!
//! Invariants:
//! - a turn sends everything queued by one call and receives by one call, as long as the socket's buffers suffice;
//! - sending never blocks, so that a server that waits for us to receive cannot stop us;
//! - what the server says is checked before it is used; one that lies loses its connection.

mod stream;
pub(crate) mod uri;

use std::time::Duration;

use coquina_nbd::{
    ClientConfig, ClientHandshake, ClientRequest, ClientRequestKind, Cookie, ExportName, Negotiated, Reply,
    TransmissionFlags, parse_reply,
};

use self::stream::Stream;
use self::uri::Peer;
use super::{Completion, Lane, LaneOptions, Operation, Readiness, Target};
use crate::error::{BenchError, TargetError};

/// Bytes received at once.
const INPUT_BYTES: usize = 512 << 10;
/// How long the server may take to answer during the handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// An NBD export.
pub(super) struct NbdTarget {
    peer: Peer,
    export: ExportName,
    negotiated: Negotiated,
}

impl NbdTarget {
    /// Connects once, to learn what the export is like.
    pub fn open(uri: &str) -> Result<Self, BenchError> {
        let (peer, name) = uri::parse(uri)?;
        let export = ExportName::from_bytes(name.as_bytes())
            .map_err(|error| TargetError::Refused { peer: peer.to_string(), reason: error.to_string() })?;
        let (mut stream, negotiated) = handshake(&peer, &export)?;
        disconnect(&mut stream);
        Ok(NbdTarget { peer, export, negotiated })
    }

    fn refuse(&self, reason: impl Into<String>) -> TargetError {
        TargetError::Refused { peer: self.peer.to_string(), reason: reason.into() }
    }

    fn check(&self, options: &LaneOptions) -> Result<(), TargetError> {
        let flags = self.negotiated.flags;
        if options.writes && flags.contains(TransmissionFlags::READ_ONLY) {
            return Err(self.refuse("the export is read-only: use a workload that reads"));
        }
        if options.durable && !flags.contains(TransmissionFlags::SEND_FUA) {
            return Err(self.refuse("the server has no FUA: leave --durable out"));
        }
        let least = self.negotiated.block_sizes.bytes_min;
        if !options.io_bytes_max.is_multiple_of(least) {
            return Err(self.refuse(format!("operations must be multiples of {least} bytes: change --bs")));
        }
        Ok(())
    }
}

/// Ends the session as the specification asks, so that the server logs no error. There is no answer.
fn disconnect(stream: &mut Stream) {
    let request = ClientRequest {
        cookie: Cookie(0),
        kind: ClientRequestKind::Disconnect,
        offset_bytes: 0,
        length_bytes: 0,
    };
    let _ = stream.send(&request.header());
}

fn handshake(peer: &Peer, export: &ExportName) -> Result<(Stream, Negotiated), TargetError> {
    let broken = |reason: String| TargetError::Broken { peer: peer.to_string(), reason };
    let mut stream =
        Stream::connect(peer).map_err(|source| TargetError::Connect { peer: peer.to_string(), source })?;
    let config = ClientConfig { export: export.clone(), structured_replies: false, block_status: false };
    let mut client = ClientHandshake::new(config);
    let (mut input, mut output) = (Vec::new(), Vec::new());
    let mut piece = [0; 4096];
    loop {
        let (consumed, negotiated) = client
            .receive(&input, &mut output)
            .map_err(|error| TargetError::Refused { peer: peer.to_string(), reason: error.to_string() })?;
        input.drain(..consumed);
        if let Some(negotiated) = negotiated {
            let is_quiet = input.is_empty();
            return if is_quiet {
                Ok((stream, negotiated))
            } else {
                Err(broken("the server speaks without being asked".into()))
            };
        }
        stream.send_all(&output, HANDSHAKE).map_err(|error| broken(error.to_string()))?;
        output.clear();
        match stream.receive(&mut piece, HANDSHAKE) {
            Ok(Some(0)) => return Err(broken("it was closed during the handshake".into())),
            Ok(Some(length)) => input.extend_from_slice(&piece[..length]),
            Ok(None) => return Err(broken("no answer within 10 s: is this an NBD server?".into())),
            Err(error) => return Err(broken(error.to_string())),
        }
    }
}

impl Target for NbdTarget {
    fn size_bytes(&self) -> u64 {
        self.negotiated.size_bytes
    }

    fn readiness(&self, _offset_bytes: u64, _length_bytes: u64) -> Result<Readiness, TargetError> {
        Ok(Readiness::Ready)
    }

    fn open_lane(&self, options: &LaneOptions) -> Result<Box<dyn Lane>, TargetError> {
        self.check(options)?;
        let (stream, negotiated) = handshake(&self.peer, &self.export)?;
        if negotiated != self.negotiated {
            return Err(self.refuse("the export has just changed: start again"));
        }
        Ok(Box::new(NbdLane::new(stream, self.peer.to_string(), negotiated.flags, options)))
    }

    fn io_bytes_max(&self) -> u32 {
        self.negotiated.block_sizes.payload_bytes_max
    }
}

#[derive(Clone, Copy)]
struct Slot {
    operation: Operation,
    length_bytes: u32,
    is_busy: bool,
}

/// Data of a read that is still coming in.
#[derive(Clone, Copy)]
struct Incoming {
    slot: u32,
    done: usize,
    length: usize,
}

struct NbdLane {
    stream: Stream,
    peer: String,
    flags: TransmissionFlags,
    durable: bool,
    write_buffers: Vec<u8>,
    read_buffers: Vec<u8>,
    io_bytes_max: usize,
    slots: Vec<Slot>,
    in_flight: u32,
    output: Vec<u8>,
    sent: usize,
    input: Vec<u8>,
    input_start: usize,
    input_end: usize,
    incoming: Option<Incoming>,
    /// Completed without the server.
    ready: Vec<Completion>,
}

impl NbdLane {
    fn new(stream: Stream, peer: String, flags: TransmissionFlags, options: &LaneOptions) -> Self {
        let (depth, io_bytes_max) = (options.depth as usize, options.io_bytes_max as usize);
        let idle = Slot { operation: Operation::Flush, length_bytes: 0, is_busy: false };
        NbdLane {
            stream,
            peer,
            flags,
            durable: options.durable,
            write_buffers: vec![0; if options.writes { depth * io_bytes_max } else { 0 }],
            read_buffers: vec![0; if options.reads { depth * io_bytes_max } else { 0 }],
            io_bytes_max,
            slots: vec![idle; depth],
            in_flight: 0,
            output: Vec::with_capacity(depth * (32 + if options.writes { io_bytes_max } else { 0 })),
            sent: 0,
            input: vec![0; INPUT_BYTES],
            input_start: 0,
            input_end: 0,
            incoming: None,
            ready: Vec::with_capacity(1),
        }
    }

    fn broken(&self, reason: impl Into<String>) -> TargetError {
        TargetError::Broken { peer: self.peer.clone(), reason: reason.into() }
    }

    fn send(&mut self) -> Result<(), TargetError> {
        while self.sent < self.output.len() {
            match self.stream.send(&self.output[self.sent..]) {
                Ok(Some(length)) => self.sent += length,
                Ok(None) => return Ok(()),
                Err(error) => return Err(self.broken(error.to_string())),
            }
        }
        self.output.clear();
        self.sent = 0;
        Ok(())
    }

    /// Receives once; false if nothing was there in time.
    fn receive(&mut self, timeout: Duration) -> Result<bool, TargetError> {
        let must_send = self.sent < self.output.len();
        let is_direct = self.input_start == self.input_end && self.incoming.is_some();
        let received = match self.incoming {
            Some(incoming) if is_direct => {
                let start = incoming.slot as usize * self.io_bytes_max;
                let space = &mut self.read_buffers[start + incoming.done..start + incoming.length];
                self.stream.receive_while(space, timeout, must_send)
            }
            _ => {
                self.input.copy_within(self.input_start..self.input_end, 0);
                self.input_end -= self.input_start;
                self.input_start = 0;
                let end = self.input_end;
                self.stream.receive_while(&mut self.input[end..], timeout, must_send)
            }
        };
        match received {
            Ok(None) => return Ok(false),
            Ok(Some(0)) => return Err(self.broken("the server closed it")),
            Err(error) => return Err(self.broken(error.to_string())),
            Ok(Some(length)) => match &mut self.incoming {
                Some(incoming) if is_direct => incoming.done += length,
                _ => self.input_end += length,
            },
        }
        Ok(true)
    }

    /// Takes everything whole out of the input.
    fn take_replies(&mut self, completions: &mut Vec<Completion>) -> Result<(), TargetError> {
        loop {
            if let Some(incoming) = self.incoming.take() {
                let Some(slot) = self.take_data(incoming) else { return Ok(()) };
                self.complete(slot, 0, completions);
            }
            let input = &self.input[self.input_start..self.input_end];
            let Some((length, reply)) = parse_reply(input).map_err(|error| self.broken(error.to_string()))?
            else {
                return Ok(());
            };
            let Reply::Simple { cookie, error } = reply else {
                return Err(self.broken("the server sent a chunk that was not negotiated"));
            };
            self.input_start += length;
            let slot = self.busy_slot(cookie)?;
            let state = self.slots[slot as usize];
            match error {
                Some(error) => self.complete(slot, (error.to_wire() as i32).max(1), completions),
                None if state.operation == Operation::Read => {
                    let length = state.length_bytes as usize;
                    self.incoming = Some(Incoming { slot, done: 0, length });
                }
                None => self.complete(slot, 0, completions),
            }
        }
    }

    fn busy_slot(&self, cookie: Cookie) -> Result<u32, TargetError> {
        let slot = usize::try_from(cookie.0).ok().filter(|slot| *slot < self.slots.len());
        match slot {
            Some(slot) if self.slots[slot].is_busy => Ok(slot as u32),
            _ => Err(self.broken("the server answered a request that was never made")),
        }
    }

    /// Moves data into the slot's buffer; the slot once it is whole.
    fn take_data(&mut self, mut incoming: Incoming) -> Option<u32> {
        let take = (incoming.length - incoming.done).min(self.input_end - self.input_start);
        let start = incoming.slot as usize * self.io_bytes_max + incoming.done;
        self.read_buffers[start..start + take]
            .copy_from_slice(&self.input[self.input_start..self.input_start + take]);
        self.input_start += take;
        incoming.done += take;
        if incoming.done == incoming.length {
            return Some(incoming.slot);
        }
        self.incoming = Some(incoming);
        None
    }

    fn complete(&mut self, slot: u32, errno: i32, completions: &mut Vec<Completion>) {
        self.slots[slot as usize].is_busy = false;
        self.in_flight -= 1;
        completions.push(Completion { slot, errno });
    }
}

impl Lane for NbdLane {
    fn write_buffer(&mut self, slot: u32) -> &mut [u8] {
        let start = slot as usize * self.io_bytes_max;
        &mut self.write_buffers[start..start + self.io_bytes_max]
    }

    fn read_buffer(&self, slot: u32) -> &[u8] {
        let start = slot as usize * self.io_bytes_max;
        &self.read_buffers[start..start + self.io_bytes_max]
    }

    fn submit(&mut self, slot: u32, operation: Operation, offset_bytes: u64, length_bytes: u32) {
        assert!(length_bytes as usize <= self.io_bytes_max, "an operation fits its buffer");
        if operation == Operation::Flush && !self.flags.contains(TransmissionFlags::SEND_FLUSH) {
            // spec: a server without FLUSH has nothing to flush.
            self.ready.push(Completion { slot, errno: 0 });
            return;
        }
        let kind = match operation {
            Operation::Read => ClientRequestKind::Read { dont_fragment: false },
            Operation::Write => ClientRequestKind::Write { force_unit_access: self.durable },
            Operation::Flush => ClientRequestKind::Flush,
        };
        let cookie = Cookie(u64::from(slot));
        let request = ClientRequest { cookie, kind, offset_bytes, length_bytes };
        self.output.extend_from_slice(&request.header());
        if operation == Operation::Write {
            let start = slot as usize * self.io_bytes_max;
            self.output.extend_from_slice(&self.write_buffers[start..start + length_bytes as usize]);
        }
        self.slots[slot as usize] = Slot { operation, length_bytes, is_busy: true };
        self.in_flight += 1;
    }

    fn turn(&mut self, timeout: Duration, completions: &mut Vec<Completion>) -> Result<(), TargetError> {
        completions.append(&mut self.ready);
        self.send()?;
        if self.in_flight == 0 {
            if completions.is_empty() {
                std::thread::sleep(timeout);
            }
            return Ok(());
        }
        let before = completions.len();
        while completions.len() == before && self.receive(timeout)? {
            self.take_replies(completions)?;
            self.send()?;
        }
        Ok(())
    }
}

impl Drop for NbdLane {
    fn drop(&mut self) {
        if self.output.is_empty() {
            disconnect(&mut self.stream);
        }
    }
}
