//! What stalls: I/O that a drive does not answer, and connections on which nothing moves.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use coquina_base::DriveId;
use coquina_cluster::ShardRef;

use crate::connection::{HANDSHAKE_NS_MAX, MESSAGE_NS_MAX, SEND_NS_MAX};
use crate::core::{Core, HOUSEKEEPING_NS, tag};

/// An I/O that takes so long is worth a warning; of a drive that answers nothing for so long the coordinator is told.
const SLOW_NS: u64 = 5_000_000_000;
/// An I/O that takes so long is given up, and its drive with it.
const STALLED_NS: u64 = 30_000_000_000;
const ETIMEDOUT: i32 = 110;

/// The shards of a node whose drives answer nothing for the time being.
#[derive(Default)]
pub(crate) struct HungShards(Mutex<BTreeSet<ShardRef>>);

impl HungShards {
    /// Notes it; says whether that is new.
    fn set(&self, shard: ShardRef, is_hung: bool) -> bool {
        if is_hung { self.lock().insert(shard) } else { self.lock().remove(&shard) }
    }

    /// Whether a drive hangs, or a part of it.
    pub fn has(&self, drive: DriveId) -> bool {
        self.lock().iter().any(|shard| shard.drive == drive)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<ShardRef>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

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
            let is_hung = shard.is_hung(before(SLOW_NS));
            slot.stalled = stalled;
            if self.hung.set(slot.reference, is_hung) {
                let drive = &slot.reference.drive;
                if is_hung {
                    tracing::warn!(%drive, "the drive has not answered for 5 s: groups with enough other copies go on without it until it does");
                } else {
                    tracing::info!(%drive, "the drive answers again");
                }
            }
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
        let awake_since_ns = self.awake_since_ns;
        let late: Vec<usize> = self
            .connections
            .iter()
            .filter(|(_, connection)| {
                let lasts = |since_ns, ns_max| is_late(since_ns, awake_since_ns, now_ns, ns_max);
                let handshake = connection.is_in_handshake() && lasts(connection.since_ns, HANDSHAKE_NS_MAX);
                let send = connection.sending && lasts(connection.sent_ns, SEND_NS_MAX);
                let message = connection.awaits_rest() && lasts(connection.received_ns, MESSAGE_NS_MAX);
                !connection.closed && (handshake || send || message)
            })
            .map(|(index, _)| index)
            .collect();
        for index in late {
            self.drop_connection(index, "it stalls");
        }
    }
}

/// Whether nothing has moved for too long since `since_ns`. The loop runs without a gap since `awake_since_ns`: what a client took while
/// the process was stopped is not known before the loop has run for a while.
fn is_late(since_ns: u64, awake_since_ns: u64, now_ns: u64, ns_max: u64) -> bool {
    now_ns.saturating_sub(since_ns.max(awake_since_ns)) > ns_max
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn a_client_is_not_dropped_for_what_the_process_itself_was_stopped() {
        assert!(!is_late(100 * S, 50 * S, 160 * S, SEND_NS_MAX));
        assert!(is_late(100 * S, 50 * S, 161 * S, SEND_NS_MAX));
        assert!(!is_late(100 * S, 500 * S, 501 * S, SEND_NS_MAX), "stopped from 101 s to 500 s");
        assert!(is_late(100 * S, 500 * S, 561 * S, SEND_NS_MAX));
    }
}
