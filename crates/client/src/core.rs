//! The client as a state machine: requests, time and bytes go in; bytes, orders and completions come out.
//!
//! Invariants:
//! - an unanswered part is in exactly one place: in flight, in its link's `unsent`, parked, or, while its link
//!   is not ready, in the window only, from which it is sent again when the link is ready;
//! - a link's `in_flight` counts the window's parts in flight on it, and its `strays` the answers that may still come
//!   on its connection to parts that are no longer in flight there.

use std::collections::VecDeque;

use coquina_base::SECTOR_BYTES;
use coquina_cluster::Striping;
use coquina_protocol::{
    AttachedVolume, FLAG_BEYOND_END, FLAG_CLIENT_CHECKS, FLAG_NO_HOLE, FLAG_RETRY, Header, REQUEST_WINDOW,
    Status, encode_data_head_for, encode_plain,
};
use coquina_reactor::SendList;

use crate::config::ClientConfig;
use crate::error::ClientError;
use crate::link::{Link, LinkState};
use crate::request::{Buffer, ClientCompletion, ClientRequest, Part, Request, RequestKind, Window};
use crate::table::Asking;

/// A part that is not answered for so long holds others back no more, even if its server answers pings.
pub(crate) const STUCK_NS: u64 = 500_000_000;

/// What the driver must do with a connection. The link is a small number that starts at 0.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LinkAction {
    /// Connect, then call `connected` or `broken`.
    Connect {
        /// Which.
        link: u32,
        /// Where to.
        address: String,
    },
    /// Drop the connection, and everything that still comes from it.
    Close {
        /// Which.
        link: u32,
    },
}

/// A volume's client without clock, socket or randomness. `now_ns` is any clock that never goes back.
pub struct ClientCore {
    pub(crate) config: ClientConfig,
    pub(crate) links: Vec<Link>,
    pub(crate) requests: Vec<Option<Request>>,
    free_requests: Vec<u32>,
    /// Requests that are not yet wholly made into parts.
    pub(crate) backlog: VecDeque<u32>,
    /// The same, of which the next part waits for an old one of its placement group.
    pub(crate) behind_aside: Vec<u32>,
    /// Requests submitted before the volume was open.
    pub(crate) early: Vec<ClientRequest>,
    pub(crate) window: Window,
    /// Parts to be tried again later.
    pub(crate) parked: Vec<Parked>,
    /// Finished requests whose buffers a send still holds.
    held: Vec<u32>,
    completions: Vec<ClientCompletion>,
    pub(crate) actions: Vec<LinkAction>,
    /// Whether a part waits to be sent that was sent before, or has waited long for its connection.
    pub(crate) sends_again: bool,
    /// Whether such a part, or another late one, has come to be sent since the last `pump`.
    pub(crate) begins_again: bool,
    /// When its driver was last told to look who is gone.
    pub(crate) looked_ns: u64,
    /// Whether the driver knows the map, so that nobody has to be asked for it.
    pub(crate) directed: bool,
    /// Whether somebody has the volume open; one that is not directed is there for that.
    pub(crate) is_open: bool,
    pub(crate) volume: Option<AttachedVolume>,
    /// The version of the map that told the volume's size. A notice may tell of a newer one than the table is of.
    pub(crate) size_version: u64,
    pub(crate) striping: Striping,
    /// Added to a chunk's number before the group is taken from its low bits.
    pub(crate) group_shift: u32,
    /// For each placement group the link to its primary, or `NO_LINK`; a power of two of them.
    pub(crate) group_links: Vec<u32>,
    pub(crate) asking: Asking,
    pub(crate) failed: Option<ClientError>,
    /// How often all that waits was searched for one request.
    #[cfg(test)]
    pub(crate) searches: usize,
}

/// A part that waits for its time to be tried again.
#[derive(Debug)]
pub(crate) struct Parked {
    pub(crate) until_ns: u64,
    pub(crate) number: u64,
    /// Why it was refused, with the server's explanation.
    pub(crate) status: Status,
    pub(crate) text: String,
}

impl ClientCore {
    /// A client that wants to be connected.
    pub fn new(config: ClientConfig, now_ns: u64) -> ClientCore {
        let mut core = ClientCore::start(config);
        core.want(0, now_ns);
        core
    }

    /// A client that does nothing before its driver tells it by `set_volume` where the data is.
    pub fn directed(config: ClientConfig) -> ClientCore {
        ClientCore { directed: true, ..ClientCore::start(config) }
    }

    fn start(config: ClientConfig) -> ClientCore {
        let control = Link::new(config.addresses.first().cloned().unwrap_or_default(), None);
        ClientCore {
            asking: Asking::new(config.addresses.clone()),
            config,
            links: vec![control],
            requests: Vec::new(),
            free_requests: Vec::new(),
            backlog: VecDeque::new(),
            behind_aside: Vec::new(),
            early: Vec::new(),
            window: Window::new(REQUEST_WINDOW),
            parked: Vec::new(),
            held: Vec::new(),
            completions: Vec::new(),
            actions: Vec::new(),
            sends_again: false,
            begins_again: false,
            looked_ns: 0,
            directed: false,
            is_open: true,
            volume: None,
            size_version: 0,
            striping: Striping::PLAIN,
            group_shift: 0,
            group_links: Vec::new(),
            failed: None,
            #[cfg(test)]
            searches: 0,
        }
    }

    /// The open volume, as last told by the server.
    pub fn volume(&self) -> Option<&AttachedVolume> {
        self.volume.as_ref()
    }

    /// Why the client gave up for good, if it did.
    pub fn failure(&self) -> Option<&ClientError> {
        self.failed.as_ref()
    }

    /// Requests that are not finished.
    pub fn outstanding(&self) -> usize {
        self.requests.len() - self.free_requests.len() + self.early.len()
    }

    /// Gives the memory of requests back, while there are none.
    pub(crate) fn forget_requests(&mut self) {
        (self.requests, self.free_requests) = (Vec::new(), Vec::new());
        (self.backlog, self.behind_aside) = (VecDeque::new(), Vec::new());
        (self.parked, self.held, self.early) = (Vec::new(), Vec::new(), Vec::new());
        self.completions.shrink_to_fit();
    }

    /// Whether a link is not connected, and nobody wants it to be.
    pub fn is_idle(&self, link: u32) -> bool {
        self.links.get(link as usize).is_none_or(|link| link.state == LinkState::Idle)
    }

    /// Moves finished requests to `completions`.
    pub fn take_completions(&mut self, completions: &mut Vec<ClientCompletion>) {
        if !self.held.is_empty() {
            self.release_held();
        }
        completions.append(&mut self.completions);
    }

    /// Moves orders to the driver to `actions`.
    pub fn take_actions(&mut self, actions: &mut Vec<LinkAction>) {
        actions.append(&mut self.actions);
    }

    /// How many links there are; they are numbered from 0.
    pub fn links(&self) -> u32 {
        self.links.len() as u32
    }

    /// What the driver must send on a connected link now. It calls `sent` before there is more.
    pub fn take_send(&mut self, link: u32) -> Option<SendList> {
        self.links[link as usize].take_list()
    }

    /// A list was sent.
    pub fn sent(&mut self, link: u32, mut list: SendList) {
        list.recycle(drop);
        let link = &mut self.links[link as usize];
        link.sending = false;
        link.spare = list;
        self.release_held();
    }

    /// A list of a connection that is gone came back.
    pub fn send_dropped(&mut self, list: SendList) {
        drop(list);
        self.release_held();
    }

    /// Takes a request. It is sent with the next `take_send`, after a `pump`.
    pub fn submit(&mut self, request: ClientRequest) {
        if self.failed.is_none() && self.volume.is_none() {
            self.early.push(request);
            return;
        }
        if let Err(error) = self.check(&request) {
            return self.refuse(request, Err(error));
        }
        if request.kind == RequestKind::Flush {
            return self.refuse(request, Ok(()));
        }
        let ClientRequest { token, kind, offset_bytes, length_bytes, buffer } = request;
        let request = Request {
            token,
            kind,
            offset_bytes,
            length_bytes,
            buffer: Buffer::Owned(buffer),
            issued_bytes: 0,
            issued_chunks: 0,
            parts_outstanding: 0,
            asked_ns: u64::MAX,
            error: None,
            is_withdrawn: false,
            extents: Vec::new(),
        };
        let index = self.free_requests.pop().unwrap_or_else(|| {
            self.requests.push(None);
            (self.requests.len() - 1) as u32
        });
        self.requests[index as usize] = Some(request);
        self.backlog.push_back(index);
    }

    fn check(&self, request: &ClientRequest) -> Result<(), ClientError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let ClientRequest { kind, offset_bytes, length_bytes, ref buffer, .. } = *request;
        if kind == RequestKind::Flush {
            return Ok(());
        }
        let (size_bytes, read_only) =
            self.volume.as_ref().map_or((0, false), |volume| (volume.size_bytes, volume.read_only));
        let aligned = (offset_bytes | length_bytes).is_multiple_of(SECTOR_BYTES as u64);
        let may_leave = kind == RequestKind::Discard && self.config.discards_beyond_end;
        let inside = offset_bytes.checked_add(length_bytes).is_some_and(|end| {
            end <= size_bytes || may_leave && end <= i64::MAX as u64 && self.striping.check(end).is_ok()
        });
        if length_bytes == 0 || !aligned || !inside {
            return Err(ClientError::Range { offset_bytes, length_bytes, size_bytes });
        }
        let carries = matches!(kind, RequestKind::Read | RequestKind::Write);
        if carries && (buffer.len() as u64) < length_bytes {
            return Err(ClientError::Buffer { buffer_bytes: buffer.len() as u64, length_bytes });
        }
        if kind.is_change() && (read_only || self.config.read_only) {
            return Err(ClientError::ReadOnly);
        }
        Ok(())
    }

    /// Finishes a request at once.
    pub(crate) fn refuse(&mut self, request: ClientRequest, result: Result<(), ClientError>) {
        let ClientRequest { token, buffer, .. } = request;
        self.completions.push(ClientCompletion { token, result, buffer, extents: Vec::new() });
    }

    /// Takes the requests that came before the volume was open.
    pub(crate) fn submit_early(&mut self) {
        for request in std::mem::take(&mut self.early) {
            self.submit(request);
        }
    }

    /// Makes parts of waiting requests as far as the window allows, and messages of parts whose links take
    /// them. To be called after submits and answers, before `take_send`.
    pub fn pump(&mut self, now_ns: u64) {
        for index in self.backlog.iter().rev() {
            let request = self.requests[*index as usize].as_mut();
            let Some(request) = request.filter(|request| request.asked_ns == u64::MAX) else { break };
            request.asked_ns = now_ns;
        }
        while let Some(index) = self.backlog.front().copied() {
            let Some(request) = self.requests[index as usize].as_ref().filter(|one| one.error.is_none())
            else {
                self.backlog.pop_front();
                self.finish_if_done(index);
                continue;
            };
            let next_chunk = request.next_chunk(&self.striping);
            if self.window.is_full() && !self.lay_stuck_aside(now_ns) {
                break;
            }
            let group = next_chunk.map_or(0, |chunk| self.group_index(chunk));
            if self.window.is_held(group) {
                self.backlog.pop_front();
                self.behind_aside.push(index);
                continue;
            }
            let Some(request) = self.requests[index as usize].as_mut() else { continue };
            let part = Part { group, ..request.next_part(&self.striping, index, now_ns) };
            if request.issued_bytes == request.length_bytes {
                self.backlog.pop_front();
            } else if !request.has_data() {
                // One that takes a hundred thousand parts gives way to what waits behind it.
                self.backlog.rotate_left(1);
            }
            let number = self.window.add(part);
            self.dispatch(number, now_ns);
        }
        if !self.is_open && self.outstanding() == 0 {
            self.rest();
        }
        for link in 0..self.links.len() {
            self.fill(link, now_ns);
            self.drop_left_over(link as u32);
        }
        self.sends_again &= self.links.iter().any(|link| !link.is_local && !link.unsent.is_empty());
        self.begins_again = false;
    }

    /// Lays the oldest part aside if it waits for what may take long, so that others need not. Says whether it is.
    fn lay_stuck_aside(&mut self, now_ns: u64) -> bool {
        self.has_stuck(now_ns) && self.window.lay_aside()
    }

    /// Whether the oldest part waits for what may take long.
    pub(crate) fn has_stuck(&self, now_ns: u64) -> bool {
        let Some(part) = self.window.oldest() else { return false };
        let was_refused = part.parked || part.refused_ns < u64::MAX;
        was_refused
            || now_ns >= part.started_ns.saturating_add(STUCK_NS)
            || self.links.get(part.link as usize).is_none_or(|link| match link.state {
                LinkState::Ready => link.probes > 0,
                _ => link.attempts > 0,
            })
    }

    /// Makes messages of a link's unsent parts.
    fn fill(&mut self, link: usize, now_ns: u64) {
        let entry = &mut self.links[link];
        if entry.state != LinkState::Ready || entry.unsent.is_empty() || entry.is_local {
            return;
        }
        if entry.in_flight == 0 {
            // The time of silence counts from the first request that waits for an answer.
            entry.last_received_ns = now_ns;
        }
        while self.links[link].has_room()
            && let Some(number) = self.links[link].unsent.pop_front()
        {
            self.encode_part(link, number);
        }
    }

    fn encode_part(&mut self, link: usize, number: u64) {
        let request_floor = self.window.floor();
        let Some(part) = self.window.get(number) else { return };
        let Some(request) = self.requests[part.request as usize].as_mut() else { return };
        let entry = &mut self.links[link];
        let mut flags = if part.sends > 0 { FLAG_RETRY } else { 0 };
        if request.kind == (RequestKind::WriteZeroes { no_hole: true }) {
            flags |= FLAG_NO_HOLE;
        }
        if request.kind == RequestKind::Discard && self.config.discards_beyond_end {
            flags |= FLAG_BEYOND_END;
        }
        if request.kind == RequestKind::Read && part.damaged == 0 {
            flags |= FLAG_CLIENT_CHECKS;
        }
        part.sends += 1;
        part.in_flight = true;
        entry.count(part.length_bytes);
        let header = Header {
            flags,
            handle: entry.handle,
            request: number,
            request_floor,
            chunk: part.chunk,
            offset_bytes: part.offset_bytes,
            length_bytes: part.length_bytes,
            ..Header::new(request.kind.message())
        };
        if request.kind != RequestKind::Write {
            return encode_plain(entry.list.bytes(), &header);
        }
        let (start, length) = (part.at_bytes as usize, part.length_bytes as usize);
        if length >= self.config.copy_bytes_max {
            let buffer = request.buffer.share();
            encode_data_head_for(entry.list.bytes(), &header, &buffer[start..start + length]);
            entry.list.push_shared(buffer, start, length);
        } else {
            let payload = &request.buffer.bytes()[start..start + length];
            let bytes = entry.list.bytes();
            encode_data_head_for(bytes, &header, payload);
            bytes.extend_from_slice(payload);
        }
    }

    /// Ends a part, and its request if it was the last.
    pub(crate) fn finish_part(&mut self, number: u64, result: Result<(), ClientError>) {
        let group = self.window.peek(number).map_or(0, |part| part.group);
        let was_held = self.window.is_held(group);
        let Some(part) = self.window.remove(number) else { return };
        if was_held && !self.window.is_held(group) {
            // Some of them may wait for others still.
            self.behind_aside.drain(..).rev().for_each(|index| self.backlog.push_front(index));
        }
        if part.in_flight {
            self.links[part.link as usize].uncount(part.length_bytes);
        }
        if let Some(request) = self.requests[part.request as usize].as_mut() {
            request.parts_outstanding -= 1;
            if let Err(error) = result {
                request.error.get_or_insert(error);
            }
        }
        self.finish_if_done(part.request);
    }

    pub(crate) fn finish_if_done(&mut self, index: u32) {
        let Some(request) = self.requests[index as usize].as_mut() else { return };
        if !request.is_finished() {
            return;
        }
        let Some(buffer) = request.buffer.release() else {
            if !self.held.contains(&index) {
                self.held.push(index);
            }
            return;
        };
        let Some(mut request) = self.requests[index as usize].take() else { return };
        self.free_requests.push(index);
        // What was withdrawn was taken out with others.
        if request.issued_bytes < request.length_bytes && !request.is_withdrawn {
            #[cfg(test)]
            {
                self.searches += 1;
            }
            self.backlog.retain(|waiting| *waiting != index);
            self.behind_aside.retain(|waiting| *waiting != index);
        }
        request.extents.sort_by_key(|(at_bytes, _)| *at_bytes);
        let extents = request.extents.into_iter().flat_map(|(_, extents)| extents).collect();
        let result = request.error.map_or(Ok(()), Err);
        self.completions.push(ClientCompletion { token: request.token, result, buffer, extents });
    }

    fn release_held(&mut self) {
        for index in std::mem::take(&mut self.held) {
            self.finish_if_done(index);
        }
    }

    /// Gives up for good: everything outstanding and everything to come fails with `error`.
    pub fn fail(&mut self, error: ClientError) {
        if self.failed.is_some() {
            return;
        }
        self.failed = Some(error.clone());
        for link in 0..self.links.len() {
            let entry = &mut self.links[link];
            if !entry.is_local && !matches!(entry.state, LinkState::Idle | LinkState::Backoff { .. }) {
                self.actions.push(LinkAction::Close { link: link as u32 });
            }
            self.reset_link(link);
            self.links[link].state = LinkState::Idle;
        }
        self.parked.clear();
        for number in self.window.numbers() {
            if let Some(part) = self.window.get(number) {
                part.in_flight = false;
            }
            self.finish_part(number, Err(error.clone()));
        }
        let behind_aside = std::mem::take(&mut self.behind_aside);
        for index in std::mem::take(&mut self.backlog).into_iter().chain(behind_aside) {
            if let Some(request) = self.requests[index as usize].as_mut() {
                request.error.get_or_insert(error.clone());
            }
            self.finish_if_done(index);
        }
        self.submit_early();
    }
}
