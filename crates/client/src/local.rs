//! Parts for shards in this process: handed out to the driver instead of being sent.
//!
//! Invariants:
//! - a part that was handed out is in flight on its link until `local_done`, until its group moves to another link, or until the whole
//!   client fails. A shard of this process may never answer, as the thread that it is on may hang;
//! - a part that moved is named anew where it is handed out again. So an answer counts for the attempt that it answers only: what a former
//!   one comes to, an error for example, says nothing about the part where it is now.

use std::sync::Arc;

use coquina_base::{AlignedBuf, DriveId};
use coquina_protocol::{Extent, Status};

use crate::core::ClientCore;
use crate::error::ClientError;
use crate::request::{Part, RequestKind};

/// Names a part that was handed out, and which time it was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalName {
    /// Request number within the session.
    pub number: u64,
    /// How often it was handed out or sent by then.
    pub attempt: u32,
}

/// A part of a request for a shard in this process. Session and request number are those of a remote client: the
/// configuration's session, and the name's `number`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalPart {
    /// Its name.
    pub name: LocalName,
    /// Drive of the shard.
    pub drive: DriveId,
    /// Number of the shard on it.
    pub shard: u32,
    /// The placement group.
    pub group: u32,
    /// Chunk within the volume.
    pub chunk: u32,
    /// First byte within the chunk.
    pub offset_bytes: u32,
    /// Bytes.
    pub length_bytes: u32,
    /// What to do.
    pub kind: RequestKind,
    /// Every number below has been answered.
    pub request_floor: u64,
    /// Whether it was handed out or sent before.
    pub is_retry: bool,
}

/// How a local part ended well.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LocalAnswer {
    /// The change is on stable storage at all copies in sync.
    Changed,
    /// The data is in `local_buffer`.
    Data,
    /// What the range consists of; the extents cover it exactly.
    Map(Vec<Extent>),
}

impl ClientCore {
    /// Appends the parts that are for this process now, each once. To be called after `pump`.
    pub fn take_local(&mut self, parts: &mut Vec<LocalPart>) {
        let request_floor = self.window.floor();
        let group_first = self.volume.as_ref().map_or(0, |volume| volume.group_first);
        for index in 1..self.links.len() {
            if !self.links[index].is_local {
                continue;
            }
            let Some((drive, shard)) = self.links[index].shard else { continue };
            while let Some(number) = self.links[index].unsent.pop_front() {
                let Some(part) = self.window.get(number) else { continue };
                let Some(request) = self.requests[part.request as usize].as_ref() else { continue };
                let is_retry = part.sends > 0;
                part.sends += 1;
                part.in_flight = true;
                let name = LocalName { number, attempt: part.sends };
                let Part { chunk, offset_bytes, length_bytes, .. } = *part;
                self.links[index].count(length_bytes);
                parts.push(LocalPart {
                    name,
                    drive,
                    shard,
                    group: group_first + self.group_index(chunk),
                    chunk,
                    offset_bytes,
                    length_bytes,
                    kind: request.kind,
                    request_floor,
                    is_retry,
                });
            }
        }
    }

    /// The part, if it was handed out by this name, and is there and not answered.
    fn local_part(&self, name: LocalName) -> Option<Part> {
        let part = self.window.peek(name.number).copied()?;
        let is_there = part.in_flight && self.links[part.link as usize].is_local;
        (is_there && part.sends == name.attempt).then_some(part)
    }

    /// The data of a write that was handed out; none once it is answered, has moved, or the client has failed.
    pub fn local_payload(&self, name: LocalName) -> Option<&[u8]> {
        let part = self.local_part(name)?;
        let request = self.requests[part.request as usize].as_ref()?;
        let start = part.at_bytes as usize;
        request.buffer.bytes().get(start..start + part.length_bytes as usize)
    }

    /// A share of the buffer with the data of a write that was handed out, and where in it the data begins, for other
    /// threads. The share must be dropped before the part is answered, or the request completes later.
    pub fn local_share(&mut self, name: LocalName) -> Option<(Arc<AlignedBuf>, usize)> {
        let part = self.local_part(name)?;
        let request = self.requests[part.request as usize].as_mut()?;
        if request.kind != RequestKind::Write {
            return None;
        }
        Some((request.buffer.share(), part.at_bytes as usize))
    }

    /// Where the data of a read goes that was handed out; none once it is answered, has moved, or the client has failed.
    pub fn local_buffer(&mut self, name: LocalName) -> Option<&mut [u8]> {
        let part = self.local_part(name)?;
        let request = self.requests[part.request as usize].as_mut()?;
        let start = part.at_bytes as usize;
        request.buffer.target()?.get_mut(start..start + part.length_bytes as usize)
    }

    /// The token of the read of which a part that was handed out is the whole; none once it is answered, has moved, or the client has
    /// failed. Its data need not go through `local_buffer` where whoever takes the completion has it.
    pub fn local_whole_read(&self, name: LocalName) -> Option<u64> {
        let part = self.local_part(name)?;
        let request = self.requests[part.request as usize].as_ref()?;
        let is_whole = u64::from(part.length_bytes) == request.length_bytes;
        (is_whole && request.kind == RequestKind::Read).then_some(request.token)
    }

    /// Answers a part that was handed out. Ignored if it has moved, or the client has failed, meanwhile.
    pub fn local_done(&mut self, name: LocalName, result: Result<LocalAnswer, Status>, now_ns: u64) {
        let Some(part) = self.local_part(name) else { return };
        let number = name.number;
        match result {
            Ok(answer) => {
                if let LocalAnswer::Map(extents) = answer
                    && let Some(request) = self.requests[part.request as usize].as_mut()
                {
                    request.extents.push((part.at_bytes, extents));
                }
                self.finish_part(number, Ok(()));
            }
            Err(status) if status.may_pass() || status == Status::StaleHandle => {
                self.refused(number, status, "", now_ns);
            }
            Err(status) => {
                let error = ClientError::Server { status, text: String::new() };
                self.finish_part(number, Err(error));
            }
        }
    }
}
