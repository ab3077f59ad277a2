//! What comes from a server: answers to parts, refusals, notifications.

use coquina_protocol::{Body, Header, Message, Notify, NotifyKind, Status, decode};
use coquina_reactor::ReceiveBuffer;

use crate::core::ClientCore;
use crate::error::ClientError;
use crate::link::{Link, LinkState};
use crate::request::{Part, RequestKind};

/// How often a part is sent again because its data was damaged on the way or in the server's memory.
const DAMAGED_MAX: u32 = 3;

impl ClientCore {
    /// Takes the whole messages off the front of what a link received.
    pub fn received(&mut self, link: u32, buffer: &mut ReceiveBuffer, now_ns: u64) {
        self.links[link as usize].last_received_ns = now_ns;
        self.links[link as usize].probes = 0;
        let mut consumed = 0;
        let broken = loop {
            match decode(&buffer.data()[consumed..]) {
                Ok(None) => break None,
                Err(error) => break Some(error.to_string()),
                Ok(Some((message, length))) => {
                    consumed += length;
                    if let Err(reason) = self.message(link, &message, now_ns) {
                        break Some(reason);
                    }
                }
            }
            if self.failed.is_some() {
                break None;
            }
        };
        buffer.consume(consumed);
        if let Some(reason) = broken {
            self.broken(link, &reason, now_ns);
        }
    }

    /// An error breaks the connection.
    fn message(&mut self, link: u32, message: &Message<'_>, now_ns: u64) -> Result<(), String> {
        let header = &message.header;
        match &message.body {
            Body::HelloReply(reply) => self.greeted(link, reply),
            Body::OpenReply(volume) => self.opened(link, header.handle, volume, now_ns),
            Body::Error(text) if header.request == 0 => self.link_refused(link, header.status, text, now_ns),
            Body::Error(text) => self.part_refused(link, header, text, now_ns),
            Body::PingReply => Ok(()),
            Body::Notify(notify) => {
                if self.volume.as_ref().is_some_and(|volume| volume.volume == notify.volume) {
                    self.notified(notify, now_ns)?;
                }
                Ok(())
            }
            body => self.answered(link, header, body),
        }
    }

    fn notified(&mut self, notify: &Notify, now_ns: u64) -> Result<(), String> {
        match notify.kind {
            NotifyKind::Resized => {
                self.striping.check(notify.size_bytes).map_err(|error| error.to_string())?;
                // A node that is behind may tell of an older size than the table or a notice of another one has.
                if let Some(volume) = &mut self.volume
                    && notify.map_version >= self.size_version
                {
                    volume.size_bytes = notify.size_bytes;
                    self.size_version = notify.map_version;
                }
            }
            NotifyKind::MapChanged if self.asking.is_under_way => {
                // The answer may have been made before the change.
                self.asking.due_ns = Some(now_ns);
            }
            NotifyKind::MapChanged => self.refresh(now_ns),
            NotifyKind::Removed => {
                self.fail(ClientError::Server { status: Status::UnknownVolume, text: String::new() });
            }
        }
        Ok(())
    }

    fn answered(&mut self, link: u32, header: &Header, body: &Body<'_>) -> Result<(), String> {
        let number = header.request;
        let Some(part) = self.part_of_answer(link, number)? else { return Ok(()) };
        let Some(request) = self.requests[part.request as usize].as_mut() else {
            return Err("a part without its request".to_owned());
        };
        let expected = request.kind.message() as u16 | 0x8000;
        let range = (part.chunk, part.offset_bytes, part.length_bytes);
        if header.kind as u16 != expected || (header.chunk, header.offset_bytes, header.length_bytes) != range
        {
            return Err("the server answered with another kind or range than was asked for".to_owned());
        }
        match body {
            Body::ReadReply(data) => {
                let Some(buffer) = request.buffer.target() else {
                    return Err("data for a request that reads none".to_owned());
                };
                let start = part.at_bytes as usize;
                if !data.copy_checked(&mut buffer[start..start + part.length_bytes as usize]) {
                    self.damaged(link, number);
                    return Ok(());
                }
            }
            Body::MapReply(extents) => request.extents.push((part.at_bytes, extents.iter().collect())),
            _ => {}
        }
        self.finish_part(number, Ok(()));
        Ok(())
    }

    /// The part that a link answers, if it is in flight there; none if it was taken off the link meanwhile.
    pub(crate) fn part_of_answer(&mut self, link: u32, number: u64) -> Result<Option<Part>, String> {
        if let Some(part) = self.window.peek(number)
            && part.link == link
            && part.in_flight
        {
            self.links[link as usize].has_answered = true;
            return Ok(Some(*part));
        }
        let entry = &mut self.links[link as usize];
        if entry.strays == 0 || number >= self.window.next() {
            return Err(format!("the server answered request {number}, which it was not asked"));
        }
        entry.strays -= 1;
        Ok(None)
    }

    /// Takes a part off its link's connection, to be sent again.
    pub(crate) fn take_back(&mut self, link: u32, number: u64) {
        if let Some(part) = self.window.get(number) {
            part.in_flight = false;
            self.links[link as usize].uncount(part.length_bytes);
        }
    }

    /// Data is not what its checksums say, since it was spoilt on the way or in the server's memory: tries again a few times, and has the
    /// server compare it.
    pub(crate) fn damaged(&mut self, link: u32, number: u64) {
        let Some(part) = self.window.get(number) else { return };
        part.damaged += 1;
        let (attempts, request) = (part.damaged, part.request);
        if self.is_withdrawn(request) {
            return self.finish_part(number, Err(ClientError::Withdrawn));
        }
        if attempts > DAMAGED_MAX {
            let address = self.links[link as usize].address.clone();
            self.finish_part(number, Err(ClientError::Damaged { address, attempts }));
        } else {
            self.take_back(link, number);
            self.links[link as usize].unsent.push_back(number);
            self.sends_again = true;
            self.begins_again = true;
        }
    }

    fn part_refused(&mut self, link: u32, header: &Header, text: &str, now_ns: u64) -> Result<(), String> {
        let number = header.request;
        let Some(part) = self.part_of_answer(link, number)? else { return Ok(()) };
        let is_write = self.requests[part.request as usize]
            .as_ref()
            .is_some_and(|request| request.kind == RequestKind::Write);
        match header.status {
            Status::ChecksumMismatch if is_write => self.damaged(link, number),
            status if status.may_pass() => self.refused(number, status, text, now_ns),
            Status::StaleHandle => return Err("the server does not know the handle any more".to_owned()),
            status => {
                self.finish_part(number, Err(ClientError::Server { status, text: text.to_owned() }));
            }
        }
        Ok(())
    }

    /// The server refused a hello or an open.
    fn link_refused(&mut self, link: u32, status: Status, text: &str, now_ns: u64) -> Result<(), String> {
        if self.links[link as usize].state == LinkState::Idle {
            return Ok(());
        }
        // One shard's node does not speak for the cluster: it may not have heard of a change yet, or be of another
        // version. Only the end of the attachment counts, and a directed client hears of that from its driver.
        let is_passing = match status {
            Status::StaleHandle | Status::Fenced => self.directed,
            _ if link != 0 => true,
            // Of nodes that cannot be asked nothing is known, but they are not waited for without end.
            Status::UnknownVolume if self.volume.is_some() => {
                let Link { address, broken_since_ns, .. } = &self.links[0];
                let patience_over = now_ns.saturating_sub(*broken_since_ns) >= self.config.give_up_ns;
                !self.asking.is_unknown_to_all(address) && !patience_over
            }
            Status::UnknownVolume => !self.asking.is_unknown_at_first(&self.links[0].address, now_ns),
            status => status.may_pass(),
        };
        if is_passing {
            if link != 0 {
                self.refresh(now_ns);
            }
            let separator = if text.is_empty() { "" } else { ": " };
            return Err(format!("{status}{separator}{text}"));
        }
        self.fail(ClientError::Server { status, text: text.to_owned() });
        Ok(())
    }
}
