//! What stalls: I/O that a drive does not answer, reactors whose thread hangs, and connections on which nothing moves.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use coquina_base::DriveId;
use coquina_cluster::ShardRef;

use crate::connection::{Connection, HANDSHAKE_NS_MAX, MESSAGE_NS_MAX, SEND_NS_MAX};
use crate::core::{Core, HOUSEKEEPING_NS, tag};

/// An I/O that takes so long is worth a warning; of a drive that answers nothing for so long the coordinator is told.
const SLOW_NS: u64 = 5_000_000_000;
/// An I/O that takes so long is given up, and its drive with it.
const STALLED_NS: u64 = 30_000_000_000;
const ETIMEDOUT: i32 = 110;

/// Who asks about the turns of reactors asks more often than this, or was itself stopped meanwhile.
const ASKED_NS_MAX: u64 = 2_500_000_000;

/// The shards of a node whose drives answer nothing for the time being, and when its reactors went on last.
///
/// A reactor notices by itself that a drive does not answer, unless its own thread hangs in the kernel: submitting a write to a file
/// may wait for the file system's journal. Then nobody on that reactor notices anything, so that those who report for it look at
/// when it went on last. One that has shards does so every second.
pub(crate) struct HungShards {
    shards: Mutex<BTreeSet<ShardRef>>,
    turned_ns: Box<[TurnedNs]>,
    asked: Mutex<Asked>,
}

/// When a reactor went on last, `CLOCK_BOOTTIME`; 0 before it began. On a cache line of its own, as it is written in each turn.
#[repr(align(64))]
#[derive(Default)]
struct TurnedNs(AtomicU64);

#[derive(Default)]
struct Asked {
    last_ns: u64,
    /// Asked without a gap since then.
    awake_since_ns: u64,
    /// Reactors that hang.
    stuck: BTreeSet<usize>,
}

impl HungShards {
    /// Of a node with so many reactors.
    pub fn of(reactors: usize) -> HungShards {
        let turned_ns = (0..reactors).map(|_| TurnedNs::default()).collect();
        HungShards { shards: Mutex::default(), turned_ns, asked: Mutex::default() }
    }

    /// Notes it; says whether that is new.
    fn set(&self, shard: ShardRef, is_hung: bool) -> bool {
        if is_hung { self.lock().insert(shard) } else { self.lock().remove(&shard) }
    }

    /// Whether a drive hangs, or a part of it.
    pub fn has(&self, drive: DriveId) -> bool {
        self.lock().iter().any(|shard| shard.drive == drive)
    }

    /// A reactor goes on.
    pub fn turned(&self, reactor: usize, now_ns: u64) {
        if let Some(turned_ns) = self.turned_ns.get(reactor) {
            turned_ns.0.store(now_ns, Ordering::Relaxed);
        }
    }

    /// For how long reactors have not gone on, for which whoever asks has been there all the time: by number, only those for which
    /// it is longer than `age_ns`.
    fn silent(&self, now_ns: u64, age_ns: u64) -> BTreeSet<usize> {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if now_ns.saturating_sub(asked.last_ns) > ASKED_NS_MAX {
            // The whole process may have been stopped, and nobody knows who goes on first.
            asked.awake_since_ns = now_ns;
        }
        asked.last_ns = asked.last_ns.max(now_ns);
        let silent = |turned: &TurnedNs| {
            let turned_ns = turned.0.load(Ordering::Relaxed);
            turned_ns > 0 && now_ns.saturating_sub(turned_ns.max(asked.awake_since_ns)) > age_ns
        };
        self.turned_ns
            .iter()
            .enumerate()
            .filter(|(_, turned)| silent(turned))
            .map(|(index, _)| index)
            .collect()
    }

    /// The reactors whose threads hang, of those that have shards. To be asked all the time.
    pub fn stuck_reactors(&self, with_shards: &BTreeSet<usize>, now_ns: u64) -> BTreeSet<usize> {
        let mut stuck = self.silent(now_ns, SLOW_NS);
        stuck.retain(|reactor| with_shards.contains(reactor));
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        for reactor in stuck.difference(&asked.stuck) {
            tracing::warn!(
                reactor,
                "the thread of a reactor has hung for 5 s, most likely in the file system of a drive: groups with enough other copies \
                 go on without its drives until it goes on"
            );
        }
        for reactor in asked.stuck.difference(&stuck) {
            tracing::info!(reactor, "the thread of the reactor goes on again");
        }
        asked.stuck.clone_from(&stuck);
        stuck
    }

    /// Whether a reactor is not worth waiting for. To be asked all the time.
    pub fn is_given_up(&self, reactor: usize, now_ns: u64) -> bool {
        self.silent(now_ns, STALLED_NS).contains(&reactor)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<ShardRef>> {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Core {
    /// Whether a reactor without shards must wake for housekeeping.
    ///
    /// All connections are asked at most once in the time of one housekeeping: a reactor that is busy goes round much more often than that.
    /// It wakes once more instead, and sleeps for good only when it has asked and found nothing.
    pub(crate) fn needs_housekeeping(&mut self, now_ns: u64) -> bool {
        if !self.accept_again.is_empty() || self.stopping_since_ns.is_some() {
            return true;
        }
        if self.connections.is_empty() || now_ns < self.asked_ns.saturating_add(HOUSEKEEPING_NS) {
            return !self.connections.is_empty();
        }
        self.asked_ns = now_ns;
        let is_held = |connection: &Connection| {
            connection.sending || connection.is_in_handshake() || connection.awaits_rest()
        };
        self.connections.iter().any(|(_, connection)| is_held(connection))
    }

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
    fn a_reactor_whose_thread_hangs_is_found_by_who_asks_all_the_time() {
        let hung = HungShards::of(3);
        let with_shards = BTreeSet::from([0, 1]);
        for second in 100..120 {
            // The last one has no shards, and sleeps.
            hung.turned(0, second * S);
            if second < 105 {
                (1..3).for_each(|reactor| hung.turned(reactor, second * S));
            }
            let expected = if second >= 109 { BTreeSet::from([1]) } else { BTreeSet::new() };
            assert_eq!(hung.stuck_reactors(&with_shards, second * S + 1), expected, "{second} s");
        }
        assert!(!hung.is_given_up(1, 120 * S));
        (121..136).for_each(|second| drop(hung.stuck_reactors(&with_shards, second * S)));
        assert!(hung.is_given_up(1, 136 * S));
        hung.turned(1, 136 * S);
        hung.turned(0, 136 * S);
        assert_eq!(hung.stuck_reactors(&with_shards, 137 * S), BTreeSet::new());
        // All were stopped for long, and who asks goes on first.
        assert_eq!(hung.stuck_reactors(&with_shards, 500 * S), BTreeSet::new());
        assert!(!hung.is_given_up(1, 500 * S));
        assert_eq!(
            HungShards::of(1).stuck_reactors(&with_shards, 500 * S),
            BTreeSet::new(),
            "it has not begun"
        );
    }

    #[test]
    fn a_client_is_not_dropped_for_what_the_process_itself_was_stopped() {
        assert!(!is_late(100 * S, 50 * S, 160 * S, SEND_NS_MAX));
        assert!(is_late(100 * S, 50 * S, 161 * S, SEND_NS_MAX));
        assert!(!is_late(100 * S, 500 * S, 501 * S, SEND_NS_MAX), "stopped from 101 s to 500 s");
        assert!(is_late(100 * S, 500 * S, 561 * S, SEND_NS_MAX));
    }
}
