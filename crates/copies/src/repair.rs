//! Bad blocks: this shard asks other copies for theirs, and answers when others ask.
//!
//! Copies in sync are asked first, under the same configuration, and they answer once they have applied all that the asking
//! copy had. So what they give is the version that was lost or a later one; and the engine takes only what has the checksum
//! that it keeps of the lost one, and moves it to where the index points if it still points to the bad place
//! (`repair.rs` of `coquina_engine`). A later version comes to the asking copy by itself, in its stream. A copy that is out is
//! the last resort: it may have an older version, and there only the checksum tells, as it does for each read.
//!
//! The answer does not go through the group's lane: nothing depends on its order.

use std::collections::BTreeMap;

use coquina_base::{BLOCK_BYTES, LayerId};
use coquina_engine::{Outcome, Piece, ReadData, RepairToken};
use coquina_replication::{BlockRange, CopyId, Message, PayloadRef};
use slab::Slab;

use crate::api::Sink;
use crate::compare::FEATURE_HASHES;
use crate::drain::repair_token;
use crate::lost::FEATURE_LOST;
use crate::outgoing::FEATURE_RELEASE;
use crate::payload::Payload;
use crate::shard::ShardCopies;

/// The other copy answers [`Message::RepairRead`].
pub const FEATURE_REPAIR: u64 = 1;
/// What this version can do beside what all versions can.
pub const FEATURES: u64 = FEATURE_REPAIR | FEATURE_HASHES | FEATURE_RELEASE | FEATURE_LOST;

/// A copy that has not answered by then does not help.
const ANSWER_NS: u64 = 1_000_000_000;
/// A block is not asked for any longer.
const REPAIR_NS: u64 = 3_000_000_000;
/// Blocks that others wait for here.
const ASKS_MAX: usize = 4096;

/// A bad block of this shard.
#[derive(Debug)]
struct Repair {
    engine: RepairToken,
    member: usize,
    range: BlockRange,
    /// Last entry applied here when it was found.
    at: u64,
    /// Copies that do not help.
    tried: Vec<CopyId>,
    /// Those of them that have said so.
    refused: Vec<CopyId>,
    asked: Option<CopyId>,
    asked_ns: u64,
    until_ns: u64,
}

/// A bad block of another copy.
#[derive(Clone, Copy, Debug)]
struct Ask {
    member: usize,
    from: CopyId,
    repair: u64,
    at: u64,
    range: BlockRange,
    until_ns: u64,
    /// Its connection has broken: nobody waits for the answer, and the same name may stand for another question since.
    is_over: bool,
}

/// A bad block of this shard whose group is not open here.
#[derive(Clone, Copy, Debug)]
struct Early {
    engine: RepairToken,
    /// Layer, chunk, block.
    place: (LayerId, u32, u32),
    until_ns: u64,
}

/// Bad blocks, here and on other copies.
#[derive(Debug, Default)]
pub(crate) struct Repairs {
    own: BTreeMap<u64, Repair>,
    next: u64,
    /// Of groups that are not open here yet: asked for once they are.
    early: Vec<Early>,
    /// Asked for here, and not to be read yet.
    waiting: Vec<Ask>,
    /// Being read.
    reading: Slab<Ask>,
    /// What connected copies can do; those of drivers that do not say so can do everything.
    features: BTreeMap<CopyId, u64>,
}

impl Repairs {
    /// Whether something of a member is under way.
    pub(crate) fn names(&self, member: usize) -> bool {
        self.own.values().any(|repair| repair.member == member)
            || self.waiting.iter().any(|ask| ask.member == member)
            || self.reading.iter().any(|(_, ask)| ask.member == member)
    }

    /// Whether a copy can do something.
    pub(crate) fn has(&self, copy: CopyId, feature: u64) -> bool {
        self.features.get(&copy).is_none_or(|features| features & feature != 0)
    }
}

impl ShardCopies {
    /// Says what another copy can do ([`FEATURES`] of its version), before it is said to be connected.
    pub fn set_features(&mut self, copy: CopyId, features: u64) {
        self.repairs.features.insert(copy, features);
    }

    /// Whether a copy can do something.
    pub(crate) fn can_do(&self, copy: CopyId, feature: u64) -> bool {
        self.repairs.has(copy, feature)
    }

    /// The engine wants good data for a bad block. A shard that has just been opened may find some, in a scrub, before its
    /// groups are open.
    pub(crate) fn begin_repair(
        &mut self,
        engine: RepairToken,
        (layer, chunk, block): (LayerId, u32, u32),
        sink: &mut impl Sink,
    ) {
        let until_ns = self.now_ns + REPAIR_NS;
        self.begin_repair_until(Early { engine, place: (layer, chunk, block), until_ns }, sink);
    }

    fn begin_repair_until(&mut self, early: Early, sink: &mut impl Sink) {
        let Early { engine, place: (layer, chunk, block), until_ns } = early;
        let Some(member) = sink.group_of(layer, chunk).and_then(|number| self.key_of(number)) else {
            if self.now_ns < until_ns {
                return self.repairs.early.push(early);
            }
            return self.shard.cannot_repair(engine, false);
        };
        if self.members[member].halted {
            return self.shard.cannot_repair(engine, false);
        }
        let at = self.shard.group(self.members[member].number).map_or(0, |group| group.last);
        let id = self.repairs.next;
        self.repairs.next += 1;
        let range = BlockRange { layer, chunk, first: block, count: 1 };
        let (tried, refused) = (Vec::new(), Vec::new());
        let repair = Repair { engine, member, range, at, tried, refused, asked: None, asked_ns: 0, until_ns };
        self.repairs.own.insert(id, repair);
        self.ask_next(id, sink);
    }

    /// Asks the next copy that may help, the primary first; gives up when there is none.
    fn ask_next(&mut self, id: u64, sink: &mut impl Sink) {
        let Some(repair) = self.repairs.own.get(&id) else { return };
        let member = &self.members[repair.member];
        let config = member.group.config();
        let others = config.in_sync.iter().chain(&config.others);
        let others = others.filter(|copy| **copy != self.copy && !repair.tried.contains(copy));
        let others: Vec<CopyId> = others.copied().collect();
        let is_there =
            |copy: &&CopyId| member.lanes.contains_key(copy) && self.can_do(**copy, FEATURE_REPAIR);
        let next = others.iter().find(is_there).copied();
        let is_over = others.is_empty() || self.now_ns >= repair.until_ns;
        if next.is_none() && is_over {
            // Whoever is neither in sync nor there does not count: it heals the block when it comes back.
            let out_but_there = config.others.iter().filter(|copy| member.lanes.contains_key(*copy));
            let mut all = config.in_sync.iter().chain(out_but_there);
            let is_lost = config.is_in_sync(self.copy)
                && all.all(|copy| *copy == self.copy || repair.refused.contains(copy));
            return self.end_repair(id, is_lost);
        }
        // A copy that is out does not get so far.
        let at = if next.is_some_and(|copy| config.is_in_sync(copy)) { repair.at } else { 0 };
        let message = Message::RepairRead { config_epoch: config.epoch, repair: id, at, range: repair.range };
        let number = member.number;
        let now_ns = self.now_ns;
        if let Some(repair) = self.repairs.own.get_mut(&id) {
            (repair.asked, repair.asked_ns) = (next, now_ns);
        }
        if let Some(to) = next {
            sink.send(to, number, &message, Payload::default());
        }
    }

    /// No copy helps. `is_lost`: none has it, as far as any can tell.
    fn end_repair(&mut self, id: u64, is_lost: bool) {
        if let Some(repair) = self.repairs.own.remove(&id) {
            self.shard.cannot_repair(repair.engine, is_lost);
        }
    }

    /// Takes what another copy says about bad blocks; says whether the message was such.
    pub(crate) fn receive_repair(
        &mut self,
        key: usize,
        from: CopyId,
        message: &Message,
        data: &[u8],
        sink: &mut impl Sink,
    ) -> bool {
        match message {
            Message::RepairRead { config_epoch, repair, at, range } => {
                let until_ns = self.now_ns + ANSWER_NS;
                let ask = Ask {
                    member: key,
                    from,
                    repair: *repair,
                    at: *at,
                    range: *range,
                    until_ns,
                    is_over: false,
                };
                let member = &self.members[key];
                let config = member.group.config();
                let can_answer = config.epoch == *config_epoch && !member.halted;
                if !can_answer || self.repairs.waiting.len() >= ASKS_MAX {
                    self.refuse_repair(&ask, false, sink);
                    return true;
                }
                self.repairs.waiting.push(ask);
                self.answer_asks(key);
            }
            Message::RepairData { repair: id, range, .. } => {
                let repair = self.repairs.own.get(id);
                let Some(repair) =
                    repair.filter(|repair| repair.asked == Some(from) && repair.range == *range)
                else {
                    return true;
                };
                if self.shard.repair(repair.engine, data) {
                    self.repairs.own.remove(id);
                } else {
                    self.has_none(*id, from, sink);
                }
            }
            Message::RepairRefused { repair: id, is_bad, .. } => {
                let repair = self.repairs.own.get_mut(id);
                let Some(repair) = repair.filter(|repair| repair.asked == Some(from)) else { return true };
                if *is_bad {
                    self.has_none(*id, from, sink);
                } else if self.now_ns < repair.until_ns {
                    // Its configuration is another one for the moment: asked again with the next tick.
                    repair.asked = None;
                } else {
                    // Or it has stopped, and would refuse for ever.
                    self.does_not_help(*id, from, sink);
                }
            }
            _ => return false,
        }
        true
    }

    /// A copy has said that it does not have what was lost.
    fn has_none(&mut self, id: u64, copy: CopyId, sink: &mut impl Sink) {
        if let Some(repair) = self.repairs.own.get_mut(&id) {
            repair.refused.push(copy);
        }
        self.does_not_help(id, copy, sink);
    }

    fn does_not_help(&mut self, id: u64, copy: CopyId, sink: &mut impl Sink) {
        if let Some(repair) = self.repairs.own.get_mut(&id) {
            repair.tried.push(copy);
            self.ask_next(id, sink);
        }
    }

    fn refuse_repair(&self, ask: &Ask, is_bad: bool, sink: &mut impl Sink) {
        let member = &self.members[ask.member];
        let config_epoch = member.group.config().epoch;
        let message = Message::RepairRefused { config_epoch, repair: ask.repair, is_bad };
        sink.send(ask.from, member.number, &message, Payload::default());
    }

    /// Reads what others asked for and this copy has by now.
    pub(crate) fn answer_asks(&mut self, key: usize) {
        if self.repairs.waiting.is_empty() {
            return;
        }
        let last = self.shard.group(self.members[key].number).map_or(0, |group| group.last);
        let is_due = |ask: &mut Ask| ask.member == key && ask.at <= last;
        let due: Vec<Ask> = self.repairs.waiting.extract_if(.., is_due).collect();
        for ask in due {
            let slot = self.repairs.reading.insert(ask);
            self.shard.read_for_copy(repair_token(slot), ask.range.layer, ask.range.chunk, ask.range.first);
        }
    }

    /// A block has been read for another copy.
    pub(crate) fn repair_read_done(&mut self, slot: usize, outcome: Outcome, sink: &mut impl Sink) {
        let ask = self.repairs.reading.remove(slot);
        let Outcome::Read(data) = outcome else {
            if !ask.is_over {
                self.refuse_repair(&ask, true, sink);
            }
            return;
        };
        match block_of(&data) {
            _ if ask.is_over => {}
            Some(block) => {
                let member = &self.members[ask.member];
                let config_epoch = member.group.config().epoch;
                let payload = PayloadRef::default();
                let message =
                    Message::RepairData { config_epoch, repair: ask.repair, range: ask.range, payload };
                sink.send(ask.from, member.number, &message, Payload { head: &[], data: &[block] });
            }
            None => self.refuse_repair(&ask, true, sink),
        }
        self.shard.recycle(data);
    }

    /// Time has passed: who does not answer is not waited for.
    pub(crate) fn repair_tick(&mut self, sink: &mut impl Sink) {
        if !self.repairs.waiting.is_empty() {
            let now_ns = self.now_ns;
            let late: Vec<Ask> = self.repairs.waiting.extract_if(.., |ask| ask.until_ns <= now_ns).collect();
            late.iter().for_each(|ask| self.refuse_repair(ask, false, sink));
        }
        for early in std::mem::take(&mut self.repairs.early) {
            self.begin_repair_until(early, sink);
        }
        let ids: Vec<u64> = self.repairs.own.keys().copied().collect();
        for id in ids {
            let Some(repair) = self.repairs.own.get_mut(&id) else { continue };
            match repair.asked {
                None => self.ask_next(id, sink),
                Some(copy) if self.now_ns >= repair.asked_ns + ANSWER_NS => {
                    self.does_not_help(id, copy, sink)
                }
                Some(_) => {}
            }
        }
    }

    /// A copy has opened a group by now: what it was asked before, it has not heard. It is asked again with the next tick.
    pub(crate) fn ask_anew(&mut self, key: usize, copy: CopyId) {
        let asked = self.repairs.own.values_mut();
        let asked = asked.filter(|repair| repair.member == key && repair.asked == Some(copy));
        asked.for_each(|repair| repair.asked = None);
    }

    /// A copy is gone, and its answers with it.
    pub(crate) fn repair_disconnected(&mut self, copy: CopyId) {
        self.repairs.features.remove(&copy);
        self.repairs.waiting.retain(|ask| ask.from != copy);
        let reading = self.repairs.reading.iter_mut().filter(|(_, ask)| ask.from == copy);
        reading.for_each(|(_, ask)| ask.is_over = true);
        let asked = self.repairs.own.values_mut().filter(|repair| repair.asked == Some(copy));
        asked.for_each(|repair| repair.asked = None);
    }

    /// A group has stopped here.
    pub(crate) fn end_repairs_of(&mut self, key: usize) {
        self.repairs.waiting.retain(|ask| ask.member != key);
        let own = self.repairs.own.iter().filter(|(_, repair)| repair.member == key);
        let ids: Vec<u64> = own.map(|(id, _)| *id).collect();
        ids.into_iter().for_each(|id| self.end_repair(id, false));
    }
}

/// The block that was read, unless it is a hole.
fn block_of(data: &ReadData) -> Option<&[u8]> {
    data.pieces.first().and_then(Piece::bytes).filter(|bytes| bytes.len() == BLOCK_BYTES)
}
