//! What stalls: I/O that a drive does not answer, and connections on which nothing moves.

use std::collections::BTreeMap;
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

/// What a drive that has hung must answer at least, without hanging again, before its groups count on it again.
const ANSWERS_NS_MIN: u64 = 10_000_000_000;
/// What it must at most, however often it has hung.
const ANSWERS_NS_MAX: u64 = 300_000_000_000;
/// After so long without hanging it counts as one that never has.
const FORGET_NS: u64 = 3_600_000_000_000;

/// How a drive has hung, and since when it answers.
#[derive(Debug)]
struct Hang {
    began_ns: u64,
    /// Since when it answers again.
    answers_ns: Option<u64>,
    /// How long it must answer, if it does not hang any more.
    wait_ns: u64,
    /// Hangs before this one that are not forgotten.
    repeats: u32,
    /// It has answered for long enough since.
    is_over: bool,
}

/// What has changed with a drive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum HangChange {
    Begins,
    /// It answers; it counts as hung for so long still.
    Answers {
        wait_ns: u64,
    },
    Over,
}

impl Hang {
    fn new(now_ns: u64, repeats: u32) -> Hang {
        let began_ns = now_ns.saturating_sub(SLOW_NS);
        Hang { began_ns, answers_ns: None, wait_ns: 0, repeats, is_over: false }
    }

    /// One that hangs, answers for a moment and hangs again would hold up what its groups write each time they take it back.
    fn look(&mut self, now_ns: u64, is_hung: bool) -> Option<HangChange> {
        match (is_hung, self.answers_ns) {
            (true, None) => None,
            (true, Some(_)) => {
                let was_over = self.is_over;
                *self = Hang::new(now_ns, self.repeats.saturating_add(1));
                was_over.then_some(HangChange::Begins)
            }
            (false, None) => {
                let lasted_ns = now_ns.saturating_sub(self.began_ns).max(ANSWERS_NS_MIN);
                let factor = 1u64.checked_shl(self.repeats).unwrap_or(u64::MAX);
                self.wait_ns = lasted_ns.saturating_mul(factor).min(ANSWERS_NS_MAX);
                self.answers_ns = Some(now_ns);
                Some(HangChange::Answers { wait_ns: self.wait_ns })
            }
            (false, Some(since_ns)) => {
                let is_over = now_ns.saturating_sub(since_ns) >= self.wait_ns;
                (is_over && !std::mem::replace(&mut self.is_over, true)).then_some(HangChange::Over)
            }
        }
    }

    fn is_forgotten(&self, now_ns: u64) -> bool {
        self.is_over && self.answers_ns.is_some_and(|since_ns| now_ns.saturating_sub(since_ns) >= FORGET_NS)
    }
}

/// The shards of a node whose drives answer nothing, or have not yet answered for long enough since they did.
#[derive(Default)]
pub(crate) struct HungShards(Mutex<BTreeMap<ShardRef, Hang>>);

impl HungShards {
    /// Notes whether a shard's drive answers nothing now.
    fn look(&self, shard: ShardRef, now_ns: u64, is_hung: bool) -> Option<HangChange> {
        let mut hangs = self.lock();
        if let Some(hang) = hangs.get_mut(&shard) {
            let change = hang.look(now_ns, is_hung);
            if hang.is_forgotten(now_ns) {
                hangs.remove(&shard);
            }
            return change;
        }
        if is_hung {
            hangs.insert(shard, Hang::new(now_ns, 0));
        }
        is_hung.then_some(HangChange::Begins)
    }

    /// Whether a drive, or a part of it, is one that groups had better not count on.
    pub fn has(&self, drive: DriveId) -> bool {
        self.lock().iter().any(|(shard, hang)| shard.drive == drive && !hang.is_over)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ShardRef, Hang>> {
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
            let drive = &slot.reference.drive;
            match self.hung.look(slot.reference, now_ns, is_hung) {
                Some(HangChange::Begins) => tracing::warn!(
                    %drive,
                    "the drive has not answered for 5 s: groups with enough other copies go on without it until it does"
                ),
                Some(HangChange::Answers { wait_ns }) => {
                    let wait_s = wait_ns.div_ceil(1_000_000_000);
                    tracing::info!(%drive, wait_s, "the drive answers again: groups take it back when it has done so for a while");
                }
                Some(HangChange::Over) => tracing::info!(%drive, "the drive counts again"),
                None => {}
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

    fn shard() -> ShardRef {
        ShardRef { drive: DriveId(coquina_base::Id128([7; 16])), shard: 0 }
    }

    /// Looks once a second, as long as it lasts; gives the changes with their times in seconds.
    fn pass(hung: &HungShards, now_s: &mut u64, seconds: u64, is_hung: bool) -> Vec<(u64, HangChange)> {
        let mut changes = Vec::new();
        for _ in 0..seconds {
            *now_s += 1;
            changes.extend(hung.look(shard(), *now_s * S, is_hung).map(|change| (*now_s, change)));
        }
        changes
    }

    #[test]
    fn a_drive_that_hangs_again_and_again_is_taken_back_later_each_time() {
        use HangChange::{Answers, Begins, Over};
        let hung = HungShards::default();
        let mut now_s = 100;
        assert_eq!(pass(&hung, &mut now_s, 10, false), []);
        assert!(!hung.has(shard().drive));
        // It has not answered for 5 s when it is first seen.
        assert_eq!(pass(&hung, &mut now_s, 2, true), [(111, Begins)]);
        assert!(hung.has(shard().drive) && !hung.has(DriveId::default()));
        assert_eq!(pass(&hung, &mut now_s, 5, false), [(113, Answers { wait_ns: 10 * S })]);
        assert!(hung.has(shard().drive), "it has answered for a moment");
        // It hangs before it was taken back: nothing new for its groups, and the time doubles.
        assert_eq!(pass(&hung, &mut now_s, 2, true), []);
        assert_eq!(pass(&hung, &mut now_s, 30, false), [(120, Answers { wait_ns: 20 * S }), (140, Over)]);
        assert!(!hung.has(shard().drive));
        // For as long as it did not answer, times four.
        assert_eq!(pass(&hung, &mut now_s, 10, true), [(150, Begins)]);
        assert_eq!(pass(&hung, &mut now_s, 100, false), [(160, Answers { wait_ns: 60 * S }), (220, Over)]);
        for _ in 0..70 {
            pass(&hung, &mut now_s, 1, true);
            pass(&hung, &mut now_s, 1, false);
        }
        pass(&hung, &mut now_s, 298, false);
        assert!(hung.has(shard().drive));
        assert_eq!(
            pass(&hung, &mut now_s, 3, false).last().map(|change| change.1),
            Some(Over),
            "at most minutes"
        );
        // An hour later that is forgotten.
        pass(&hung, &mut now_s, 3_600, false);
        assert_eq!(hung.lock().len(), 0);
        let answers = {
            pass(&hung, &mut now_s, 1, true);
            pass(&hung, &mut now_s, 1, false)
        };
        assert_eq!(answers.last().map(|change| change.1), Some(Answers { wait_ns: 10 * S }));
    }

    #[test]
    fn a_client_is_not_dropped_for_what_the_process_itself_was_stopped() {
        assert!(!is_late(100 * S, 50 * S, 160 * S, SEND_NS_MAX));
        assert!(is_late(100 * S, 50 * S, 161 * S, SEND_NS_MAX));
        assert!(!is_late(100 * S, 500 * S, 501 * S, SEND_NS_MAX), "stopped from 101 s to 500 s");
        assert!(is_late(100 * S, 500 * S, 561 * S, SEND_NS_MAX));
    }
}
