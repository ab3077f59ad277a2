//! Blocks that no copy in sync has any more do not keep a copy from coming back: it takes them as bad.
//!
//! The primary reads what the copy misses. A block that is bad there is asked for from all other copies, the returning one
//! too (`repair.rs`). If each copy in sync and each that is connected has answered that it does not have it, several times
//! over some time, for an error may pass, the block is sent without data, with the checksum that it should have. If any did
//! not answer, nothing is sent: the connection is broken, and the copy asks again.
//!
//! The other copy logs the block as bad (`known_bad.rs` of `coquina_engine`) and looks for it at once, as for any bad block:
//! whoever has it after all, now or later, heals it.

use coquina_engine::{Failure, Operation as EngineOperation, Origin, Outcome};
use coquina_replication::{BlockRange, CopyId, Input, PayloadRef};

use crate::api::{Event, Sink};
use crate::drain::{read_token, taken_bad_token};
use crate::execute::ranged;
use crate::payload;
use crate::shard::{Context, RecoveryRead, ShardCopies};

/// The other copy takes blocks as bad.
pub const FEATURE_LOST: u64 = 8;

/// How often blocks are read before those that are lost are sent as such.
const TRIES: u32 = 3;
/// The same where the drive gives errors, rather than wrong data.
const TRIES_AFTER_ERRORS: u32 = 20;
/// Time between two of them.
const PAUSE_NS: u64 = 500_000_000;

/// A block on its way into the log as bad.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TakenBad {
    pub member: usize,
    pub range: BlockRange,
}

impl ShardCopies {
    /// Reads blocks for a copy that misses them.
    pub(crate) fn begin_recovery_read(&mut self, read: RecoveryRead) {
        let range = read.range;
        let read = self.reads.insert(read);
        // Without a group: what is applied is read at once, whether it is committed or not.
        if self.reads[read].tries == 0 {
            self.shard.submit(ranged(range, read_token(read), Origin::default(), EngineOperation::Read));
        } else {
            self.shard.read_for_recovery(read_token(read), range);
        }
    }

    pub(crate) fn recovery_read_done(&mut self, key: usize, outcome: Outcome, sink: &mut impl Sink) {
        let read = self.reads.remove(key);
        let member = &self.members[read.member];
        if member.halted || !member.group.is_reading(read.token) {
            // The stream that it was for has ended, perhaps with its connection. The present one must not be broken for it.
            if let Outcome::Read(data) = outcome {
                self.shard.recycle(data);
            }
            return;
        }
        let data = match outcome {
            Outcome::Read(data) => Some(data),
            // The layer has been deleted: its blocks are holes.
            Outcome::Failed(Failure::Invalid) => None,
            Outcome::Failed(Failure::BadBlock) if read.tries + 1 < TRIES => {
                return self.read_again_later(read);
            }
            // A new connection makes it ask again.
            Outcome::Failed(_) => return sink.disconnect(read.copy),
            Outcome::Changed | Outcome::Map(_) => panic!("blocks were read as {outcome:?}"),
        };
        if let Some(has_errors) =
            data.as_ref().filter(|data| !data.bad.is_empty()).map(|data| data.has_errors)
        {
            let tries = if has_errors { TRIES_AFTER_ERRORS } else { TRIES };
            let is_known = self.can_do(read.copy, FEATURE_LOST);
            if read.tries + 1 < tries || !is_known {
                data.into_iter().for_each(|data| self.shard.recycle(data));
                return if is_known { self.read_again_later(read) } else { sink.disconnect(read.copy) };
            }
        }
        let bytes = payload::recovered(read.range, data.as_ref());
        if let Some(data) = data {
            self.shard.recycle(data);
        }
        let input = Input::RecoveryRead { token: read.token, payload: PayloadRef::default() };
        self.input(read.member, input, Context::Read(&bytes), sink);
    }

    /// Some blocks cannot be read for now.
    fn read_again_later(&mut self, read: RecoveryRead) {
        let tries = read.tries + 1;
        if self.members[read.member].lanes.contains_key(&read.copy) {
            self.reads_again.push((self.now_ns + PAUSE_NS, RecoveryRead { tries, ..read }));
        }
    }

    /// Time has passed: blocks that could not be read are read again.
    pub(crate) fn lost_tick(&mut self) {
        if self.reads_again.is_empty() {
            return;
        }
        let now_ns = self.now_ns;
        let due: Vec<_> = self.reads_again.extract_if(.., |(due_ns, _)| *due_ns <= now_ns).collect();
        for (_, read) in due {
            if !self.members[read.member].halted {
                self.begin_recovery_read(read);
            }
        }
    }

    /// What a copy misses is not to be read for it any more: its connection is gone.
    pub(crate) fn end_reads_again(&mut self, member: usize, copy: CopyId) {
        self.reads_again.retain(|(_, read)| read.member != member || read.copy != copy);
    }

    /// Logs a block as bad.
    pub(crate) fn take_bad(&mut self, member: usize, origin: Origin, range: BlockRange, checksum: u32) {
        let slot = self.taken_bad.insert(TakenBad { member, range });
        self.shard.take_bad(taken_bad_token(slot), origin, (range.layer, range.chunk, range.first), checksum);
    }

    /// A block has been logged as bad. It is looked for at once.
    pub(crate) fn taken_bad_done(&mut self, slot: usize, outcome: Outcome, sink: &mut impl Sink) {
        let TakenBad { member, range } = self.taken_bad.remove(slot);
        if let Outcome::Failed(failure) = outcome {
            return self.halt(member, failure, sink);
        }
        sink.event(Event::TakenBad(self.members[member].number, range));
        self.shard.check_block(range.layer, range.chunk, range.first);
    }

    /// Whether something of a member is under way.
    pub(crate) fn lost_names(&self, key: usize) -> bool {
        self.reads_again.iter().any(|(_, read)| read.member == key)
            || self.taken_bad.iter().any(|(_, taken)| taken.member == key)
    }
}
