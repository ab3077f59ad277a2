//! Answers to large reads: the data goes from the socket into the program's buffer.
//!
//! Invariant: while an answer lands, its request's buffer is the driver's, and the request has none. It gets the buffer back when the
//! landing ends; if something else has data for the request or ends it before, it gets another in its place.

use coquina_base::{AlignedBuf, Landing};
use coquina_protocol::{Data, Kind, peek_blocks};
use coquina_reactor::ReceiveBuffer;

use crate::core::ClientCore;
use crate::request::{Buffer, RequestKind};

/// The answer that is being received on a link into a program's buffer.
#[derive(Debug, Default)]
pub(crate) struct LandingRead {
    /// Request number of the part that it answers; 0 while nothing lands.
    number: u64,
    /// CRC32C of each block, little-endian.
    checksums_le: Vec<u8>,
    /// Empty; kept for its memory.
    buffers: Vec<AlignedBuf>,
}

#[cfg(test)]
impl LandingRead {
    /// Request number of the part whose data lands.
    pub(crate) fn number(&self) -> Option<u64> {
        (self.number != 0).then_some(self.number)
    }
}

impl ClientCore {
    /// Hands out the buffer of a read if the rest of its answer is to be received into it: a large one, at the front of what
    /// the link `received`, which is taken then. To be called after `received`; `landed` takes the landing back.
    pub fn start_landing(&mut self, link: u32, received: &mut ReceiveBuffer) -> Option<Landing> {
        // What cannot be followed is found when the message is taken.
        let head = peek_blocks(received.data(), Kind::ReadReply).ok()??;
        let (header, length_bytes) = (head.header, head.header.length_bytes as usize);
        let here_bytes = received.data().len() - head.head_bytes;
        if length_bytes.saturating_sub(here_bytes) < self.config.landing_bytes_min {
            return None;
        }
        let part = self.window.peek(header.request).filter(|part| part.link == link && part.in_flight)?;
        let is_asked = (part.chunk, part.offset_bytes, part.length_bytes)
            == (header.chunk, header.offset_bytes, header.length_bytes);
        let request = self.requests[part.request as usize].as_mut()?;
        let is_all = u64::from(part.length_bytes) == request.length_bytes;
        if request.kind != RequestKind::Read || !is_asked || !is_all {
            return None;
        }
        let buffer = request.buffer.lend()?;
        let landing = &mut self.links[link as usize].landing;
        assert_eq!(landing.number, 0, "one answer after the other");
        landing.number = header.request;
        landing.checksums_le.clear();
        landing.checksums_le.extend_from_slice(head.checksums_le);
        let mut buffers = std::mem::take(&mut landing.buffers);
        buffers.push(buffer);
        let mut handed_out = Landing::plain(buffers, length_bytes);
        handed_out.push(&received.data()[head.head_bytes..]);
        received.clear();
        Some(handed_out)
    }

    /// More of an answer has landed; gives the landing back if it is not full.
    pub fn landed(&mut self, link: u32, landing: Landing, now_ns: u64) -> Option<Landing> {
        let entry = &mut self.links[link as usize];
        entry.last_received_ns = now_ns;
        entry.probes = 0;
        if landing.left_bytes() > 0 {
            return Some(landing);
        }
        let number = std::mem::take(&mut entry.landing.number);
        let checksums_le = std::mem::take(&mut entry.landing.checksums_le);
        let mut buffers = landing.into_buffers();
        if let Some(buffer) = buffers.pop() {
            self.give_back(number, buffer);
        }
        let result = self.take_landed(link, number, &checksums_le);
        let landing = &mut self.links[link as usize].landing;
        landing.checksums_le = checksums_le;
        landing.buffers = buffers;
        if let Err(reason) = result {
            self.broken(link, &reason, now_ns);
        }
        None
    }

    fn take_landed(&mut self, link: u32, number: u64, checksums_le: &[u8]) -> Result<(), String> {
        let Some(part) = self.part_of_answer(link, number)? else { return Ok(()) };
        let Some(request) = self.requests[part.request as usize].as_ref() else {
            return Err("a part without its request".to_owned());
        };
        let payload = &request.buffer.bytes()[..part.length_bytes as usize];
        if (Data { checksums_le, payload_crc: None, payload }).is_intact() {
            self.finish_part(number, Ok(()));
        } else {
            self.damaged(link, number);
        }
        Ok(())
    }

    /// Gives a buffer to the read that it was taken from, unless that has another by now or is gone.
    fn give_back(&mut self, number: u64, buffer: AlignedBuf) {
        if let Some(part) = self.window.peek(number)
            && let Some(request) = self.requests[part.request as usize].as_mut()
            && request.buffer.is_lent()
        {
            request.buffer = Buffer::Owned(buffer);
        }
    }

    /// Ends what a link has under way; what lands there still is of no use.
    pub(crate) fn reset_link(&mut self, link: usize) {
        let entry = &mut self.links[link];
        entry.reset();
        let number = std::mem::take(&mut entry.landing.number);
        if let Some(part) = self.window.peek(number)
            && let Some(request) = self.requests[part.request as usize].as_mut()
        {
            request.buffer.replace_lent();
        }
    }
}
