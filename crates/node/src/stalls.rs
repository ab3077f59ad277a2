//! What stalls: I/O that a drive does not answer, and connections on which nothing moves.

use crate::connection::{HANDSHAKE_NS_MAX, SEND_NS_MAX};
use crate::core::{Core, HOUSEKEEPING_NS, tag};

/// An I/O that takes so long is worth a warning.
const SLOW_NS: u64 = 5_000_000_000;
/// An I/O that takes so long is given up, and its drive with it.
const STALLED_NS: u64 = 30_000_000_000;
const ETIMEDOUT: i32 = 110;

impl Core {
    /// Notes drives and connections that stall, and gives up those that do for too long; accepts again where that failed.
    pub(crate) fn housekeeping(&mut self) {
        let now_ns = self.now_ns;
        if now_ns.saturating_sub(self.housekeeping_ns) > SLOW_NS {
            // Who was stopped, with the process or the machine, cannot tell that a drive did not answer meanwhile.
            self.awake_since_ns = now_ns;
        }
        self.housekeeping_ns = now_ns + HOUSEKEEPING_NS;
        let awake_ns = now_ns.saturating_sub(self.awake_since_ns);
        let before = |age_ns| if awake_ns < age_ns { 0 } else { now_ns.saturating_sub(age_ns) };
        for slot in &mut self.shards {
            if slot.released {
                continue;
            }
            let shard = slot.copies().shard();
            let stalled = shard.stalled_ios(before(SLOW_NS)) as u64;
            let is_lost = shard.stalled_ios(before(STALLED_NS)) > 0 && !shard.stats().poisoned;
            slot.stalled = stalled;
            if is_lost {
                tracing::error!(
                    drive = %slot.reference.drive,
                    "the drive has not answered for 30 s: it is given up and takes no changes any more"
                );
                slot.copies_mut().shard_mut().give_up(ETIMEDOUT);
            }
        }
        for listener in std::mem::take(&mut self.accept_again) {
            if let Some(slot) = self.listeners.get(listener) {
                self.reactor.accept(slot.file, tag::ACCEPT | listener as u64);
            }
        }
        let late: Vec<usize> = self
            .connections
            .iter()
            .filter(|(_, connection)| {
                let handshake = connection.is_in_handshake()
                    && now_ns.saturating_sub(connection.since_ns) > HANDSHAKE_NS_MAX;
                let send = connection.sending && now_ns.saturating_sub(connection.sent_ns) > SEND_NS_MAX;
                !connection.closed && (handshake || send)
            })
            .map(|(index, _)| index)
            .collect();
        for index in late {
            self.drop_connection(index, "it stalls");
        }
    }
}
