//! Large writes of native clients: the payload goes from the socket into the buffers of its frames.

use coquina_base::{BLOCK_BYTES, Landing};
use coquina_copies::Operation;
use coquina_protocol::{Kind, peek_blocks};
use coquina_reactor::ReceiveBuffer;

use crate::connection::{LandingWrite, State};
use crate::core::{Core, tag};

/// Payloads of which at least so much is still to come are received into their frames; others are cheaper copied.
const LANDING_BYTES_MIN: usize = 64 << 10;
/// Behind a large write another one is expected, of which no more than this is received before it is known where its payload goes:
/// the header and the checksums of a write of 3.9 MiB.
const HEAD_BYTES_EXPECTED: usize = 4 << 10;

impl Core {
    /// Starts to receive the rest of a large write into the buffers of its frames, if one is at the front of
    /// `received` and would not be refused. `received` is taken then.
    pub(crate) fn start_landing(&mut self, index: usize, received: &mut ReceiveBuffer) -> bool {
        let Ok(Some(head)) = peek_blocks(received.data(), Kind::Write) else { return false };
        let (header, length_bytes) = (head.header, head.header.length_bytes as usize);
        let here = received.data().len() - head.head_bytes;
        if length_bytes.saturating_sub(here) < LANDING_BYTES_MIN {
            return false;
        }
        let Ok(place) = self.place_of(index, &header) else { return false };
        let connection = &mut self.connections[index];
        let State::Native(native) = &mut connection.state else { return false };
        let mut checksums_le = std::mem::take(&mut native.spare_checksums);
        checksums_le.clear();
        checksums_le.extend_from_slice(head.checksums_le);
        let mut landing =
            self.shards[place.slot].copies_mut().shard_mut().landing((length_bytes / BLOCK_BYTES) as u32);
        landing.push(&received.data()[head.head_bytes..]);
        received.clear();
        native.landing = Some(LandingWrite { header, checksums_le, received: std::mem::take(received) });
        let file = connection.file;
        self.reactor.land(file, landing, tag::RECEIVE | index as u64);
        true
    }

    /// A payload has come, or its connection has broken off. Gives the buffer for the next message back.
    pub(crate) fn landed(&mut self, index: usize, landing: Landing, is_whole: bool) -> Option<ReceiveBuffer> {
        let connection = self.connections.get_mut(index)?;
        let State::Native(native) = &mut connection.state else { return None };
        let write = native.landing.take()?;
        if !is_whole || connection.closed {
            // The memory goes: a connection that breaks off is rare.
            return Some(write.received);
        }
        match self.place_of(index, &write.header) {
            Ok(place) => {
                let asker = self.admit_native(index, &write.header);
                let operation = Operation::Write { payload: &[], checksums_le: &write.checksums_le };
                let request = place.request(&write.header, operation);
                let volume = Some(place.volume);
                self.submit_landed(asker, volume, place.slot, &request, landing);
            }
            // Its volume is gone meanwhile.
            Err(status) => self.reply_error(index, &write.header, status),
        }
        if let State::Native(native) = &mut self.connections[index].state {
            native.spare_checksums = write.checksums_le;
        }
        let mut received = write.received;
        received.limit_next(HEAD_BYTES_EXPECTED);
        Some(received)
    }
}
