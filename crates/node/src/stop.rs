//! A clean stop: connections are closed, and shards make themselves short to replay. A drive that answers nothing any more is left
//! as it is; one that is slow is waited for as long as it answers.

use crate::core::{Core, ShardSlot, tag};

/// A stop waits so long for the next answer of a drive.
const SILENT_NS_MAX: u64 = 20_000_000_000;

/// What a stop knows of a drive that it is not done with.
struct Quiet {
    /// See [`ShardSlot::quiet_since_ns`].
    since_ns: u64,
    /// Whether it takes no changes any more, so that the stop has asked it for nothing.
    has_failed: bool,
}

impl Quiet {
    /// Whether it is waited for no longer. The stop began at `stop_ns`, and the loop runs without a gap since `awake_ns`.
    fn is_too_long(&self, stop_ns: u64, awake_ns: u64, now_ns: u64) -> bool {
        let asked_ns = if self.has_failed { 0 } else { stop_ns };
        now_ns.saturating_sub(self.since_ns.max(asked_ns).max(awake_ns)) > SILENT_NS_MAX
    }
}

/// Whether a shard is short to replay, and its drive owes it nothing.
fn is_done(slot: &ShardSlot) -> bool {
    slot.released || (slot.under_way == 0 && slot.copies().shard().is_closed())
}

impl Core {
    pub(crate) fn stop(&mut self) {
        if self.stopping_since_ns.is_some() {
            return;
        }
        self.stopping_since_ns = Some(self.now_ns);
        for listener in std::mem::take(&mut self.listeners) {
            self.reactor.close(listener.file, tag::ACCEPT | tag::MASK);
        }
        let open: Vec<usize> = self.connections.iter().map(|(index, _)| index).collect();
        for index in open {
            // What is done is told, as far as the client takes it now.
            self.send(index);
            self.close_connection(index);
        }
        for slot in self.shards.iter_mut().filter(|slot| !slot.released) {
            slot.copies_mut().shard_mut().close();
        }
    }

    /// Whether there is nothing left that a stop waits for.
    pub(crate) fn is_stopped(&self) -> bool {
        let Some(stop_ns) = self.stopping_since_ns else { return false };
        let is_left = |slot: &ShardSlot| {
            let has_failed = slot.copies().shard().stats().poisoned;
            let quiet = Quiet { since_ns: slot.quiet_since_ns, has_failed };
            quiet.is_too_long(stop_ns, self.awake_since_ns, self.now_ns)
        };
        self.shards.iter().all(|slot| is_done(slot) || is_left(slot))
    }

    /// Leaves the drives alone that are not waited for any more. Whether one owes answers still.
    pub(crate) fn leave_silent_drives(&mut self) -> bool {
        let mut owes = false;
        for slot in self.shards.iter().filter(|slot| !is_done(slot)) {
            tracing::error!(
                drive = %slot.reference.drive, shard = slot.reference.shard, under_way = slot.under_way,
                "the drive has not answered for {} s: the stop does not wait for it any longer. Its log is replayed at the next \
                 start, and nothing that was acknowledged is lost",
                SILENT_NS_MAX / 1_000_000_000
            );
            self.reactor.abandon(slot.file);
            owes |= slot.under_way > 0;
        }
        owes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn a_drive_is_left_when_it_has_answered_nothing_for_long() {
        let quiet = Quiet { since_ns: 100 * S, has_failed: false };
        assert!(!quiet.is_too_long(110 * S, 0, 130 * S), "it is asked for its checkpoint by the stop only");
        assert!(quiet.is_too_long(110 * S, 0, 131 * S));
        let slow = Quiet { since_ns: 295 * S, has_failed: false };
        assert!(!slow.is_too_long(110 * S, 0, 310 * S), "it goes on, however long the stop takes");
        assert!(!quiet.is_too_long(110 * S, 290 * S, 310 * S), "the process itself was stopped meanwhile");
    }

    #[test]
    fn a_drive_that_had_failed_before_the_stop_is_not_given_more_time() {
        let quiet = Quiet { since_ns: 100 * S, has_failed: true };
        assert!(quiet.is_too_long(140 * S, 0, 140 * S));
        assert!(!quiet.is_too_long(110 * S, 0, 110 * S), "a read may be on its way");
    }
}
