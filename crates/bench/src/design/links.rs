//! Connections over loopback on a reactor of their own, as the experiments use them.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;

use coquina_reactor::{Completion, FileId, Payload, Reactor, ReactorConfig, ReceiveBuffer, SendList, Wait};

use crate::error::{BenchError, TargetError};

/// Room for receiving; several hundred messages fit.
const RECEIVE_BYTES: usize = 1 << 20;

/// Waits for a thread.
pub(super) fn joined<T>(
    thread: std::thread::ScopedJoinHandle<'_, Result<T, BenchError>>,
) -> Result<T, BenchError> {
    match thread.join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Two ends of a TCP connection over loopback.
pub(super) fn socket_pair() -> Result<(OwnedFd, OwnedFd), TargetError> {
    let connect = || -> std::io::Result<(OwnedFd, OwnedFd)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let near = TcpStream::connect(listener.local_addr()?)?;
        let (far, _) = listener.accept()?;
        near.set_nodelay(true)?;
        far.set_nodelay(true)?;
        Ok((near.into(), far.into()))
    };
    connect().map_err(|source| TargetError::Connect { peer: "loopback".to_owned(), source })
}

pub(super) fn broken(reason: impl std::fmt::Display) -> BenchError {
    TargetError::Broken { peer: "loopback".to_owned(), reason: reason.to_string() }.into()
}

/// What happened on a connection.
pub(super) enum Arrival {
    Bytes,
    Closed,
    Nothing,
}

/// A reactor and its connections; connection `n` has the tokens 2n (receive) and 2n + 1 (send).
pub(super) struct Links {
    reactor: Reactor,
    pub(super) links: Vec<Link>,
    completions: Vec<Completion>,
}

pub(super) struct Link {
    file: FileId,
    pub(super) input: ReceiveBuffer,
    output: SendList,
    /// Takes what comes while `output` is being sent.
    pub(super) next: SendList,
    is_sending: bool,
}

impl Links {
    pub fn new(ends: Vec<OwnedFd>) -> Result<Self, BenchError> {
        let mut reactor = Reactor::new(ReactorConfig::default()).map_err(broken)?;
        let mut links = Vec::with_capacity(ends.len());
        for (index, end) in ends.into_iter().enumerate() {
            let file = reactor.attach(end);
            let buffer = ReceiveBuffer::with_capacity_bytes(RECEIVE_BYTES);
            reactor.receive(file, buffer, index as u64 * 2);
            links.push(Link {
                file,
                input: ReceiveBuffer::default(),
                output: SendList::new(),
                next: SendList::new(),
                is_sending: false,
            });
        }
        Ok(Links { reactor, links, completions: Vec::new() })
    }

    /// Sends what is queued and waits for something to happen.
    pub fn turn(&mut self, wait: Wait) -> Result<Vec<Completion>, BenchError> {
        let mut completions = std::mem::take(&mut self.completions);
        for (index, link) in self.links.iter_mut().enumerate() {
            if !link.is_sending && !link.next.is_empty() {
                std::mem::swap(&mut link.output, &mut link.next);
                let list = std::mem::take(&mut link.output);
                link.is_sending = true;
                completions.extend(self.reactor.send(link.file, list, index as u64 * 2 + 1));
            }
        }
        self.reactor.turn(wait, &mut completions).map_err(broken)?;
        Ok(completions)
    }

    /// Takes a completion; for one of a receive the bytes are then in the link's input.
    pub fn take(&mut self, completion: Completion) -> Result<(usize, Arrival), BenchError> {
        let index = (completion.token / 2) as usize;
        let Some(link) = self.links.get_mut(index) else { return Ok((0, Arrival::Nothing)) };
        match (completion.payload, completion.result) {
            (Payload::Receive(buffer), Ok(length)) => {
                link.input = buffer;
                Ok((index, if length == 0 { Arrival::Closed } else { Arrival::Bytes }))
            }
            (Payload::Send(mut list), Ok(_)) => {
                list.recycle(drop);
                link.output = list;
                link.is_sending = false;
                Ok((index, Arrival::Nothing))
            }
            (_, Err(errno)) => Err(broken(errno)),
            _ => Ok((index, Arrival::Nothing)),
        }
    }

    /// Receives on after the input was looked through.
    pub fn receive(&mut self, index: usize) {
        let input = self.take_input(index);
        self.receive_into(index, input);
    }

    /// What has come on a link, to be given back with `receive_into`.
    pub fn take_input(&mut self, index: usize) -> ReceiveBuffer {
        std::mem::take(&mut self.links[index].input)
    }

    /// Receives on behind what is left of the input.
    pub fn receive_into(&mut self, index: usize, mut buffer: ReceiveBuffer) {
        let link = &mut self.links[index];
        buffer.reserve(RECEIVE_BYTES / 2);
        self.reactor.receive(link.file, buffer, index as u64 * 2);
    }

    /// Where to put what is to be sent on a link.
    pub fn output(&mut self, index: usize) -> &mut Vec<u8> {
        self.links[index].next.bytes()
    }

    /// The ring.
    pub fn reactor(&mut self) -> &mut Reactor {
        &mut self.reactor
    }

    /// Takes the list of completions back, to be used again.
    pub fn give_back(&mut self, completions: Vec<Completion>) {
        self.completions = completions;
    }
}
