//! One block as a plain model sees it: which states may it have, given what was ordered and answered?
//!
//! An exact check of linearizability for one block. While operations overlap, the model keeps every possible
//! *world*: the block's state and which of the operations under way have taken effect. An answer removes the worlds
//! that it contradicts; none left is a violation. A crash ends all operations: each has happened or has not.
//!
//! Invariants:
//! - a change takes effect on a whole block at once, between its order and its answer;
//! - there is always at least one world.

use crate::content::{BlockState, Version};

/// Operations that may be under way on one block at the same time.
pub const SLOTS: usize = 4;

/// What an operation does to the block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Nothing; it sees the state.
    Read,
    /// The sectors of the mask get this version.
    Set {
        /// Bit per sector.
        mask: u8,
        /// Version, 0 for zeros.
        version: Version,
    },
}

/// What was seen cannot be explained.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Contradiction {
    /// What would have been right.
    pub allowed: Vec<BlockState>,
}

/// Slot value of an operation that has not taken effect.
const PENDING: u16 = 0;

/// States beyond which those not in use are forgotten.
const STATES_KEPT: usize = 24;

/// A state and what has taken effect in it: for a change 1, for a read 1 + the number of the state it saw.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct World {
    state: u16,
    slots: [u16; SLOTS],
}

#[derive(Clone, Debug, Default)]
struct Worlds {
    states: Vec<BlockState>,
    worlds: Vec<World>,
    effects: [Option<Effect>; SLOTS],
    /// Changes that failed: none takes effect any more while this life lasts, but the next may find them.
    doubts: Vec<Effect>,
}

#[derive(Clone, Debug, Default)]
enum Activity {
    #[default]
    Idle,
    /// Exactly one operation, in slot 0, on a known state: the common case, without an allocation.
    One(Effect),
    Many(Box<Worlds>),
}

/// One block.
#[derive(Clone, Debug, Default)]
pub struct BlockModel {
    known: BlockState,
    activity: Activity,
}

impl BlockModel {
    /// Begins an operation; gives its slot, or `None` if too many are under way.
    pub fn begin(&mut self, effect: Effect) -> Option<u8> {
        match &mut self.activity {
            Activity::Idle => {
                self.activity = Activity::One(effect);
                Some(0)
            }
            Activity::One(_) => self.spread().begin(effect),
            Activity::Many(worlds) => worlds.begin(effect),
        }
    }

    /// Whether `begin` would find a slot, and a change would not put too much in doubt.
    pub fn has_room(&self, change: bool) -> bool {
        let Activity::Many(worlds) = &self.activity else { return true };
        let changes = worlds.effects.iter().flatten().filter(|effect| **effect != Effect::Read).count();
        worlds.effects.iter().any(Option::is_none) && (!change || worlds.doubts.len() + changes < SLOTS)
    }

    /// Whether nothing is under way.
    pub fn is_quiet(&self) -> bool {
        match &self.activity {
            Activity::Idle => true,
            Activity::One(_) => false,
            Activity::Many(worlds) => worlds.is_quiet(),
        }
    }

    #[cfg(test)]
    /// The state, if it is the only possible one and nothing is under way.
    pub fn known(&self) -> Option<&BlockState> {
        matches!(self.activity, Activity::Idle).then_some(&self.known)
    }

    /// A change was acknowledged.
    pub fn finish_change(&mut self, slot: u8) -> Result<(), Contradiction> {
        if let Activity::One(effect) = self.activity {
            assert_eq!(slot, 0);
            apply(&mut self.known, effect);
            self.activity = Activity::Idle;
            return Ok(());
        }
        self.answer(slot, |world, _| world.slots[slot as usize] != PENDING)
    }

    /// A change was refused: it never took effect.
    pub fn finish_refused(&mut self, slot: u8) -> Result<(), Contradiction> {
        if let Activity::One(_) = self.activity {
            assert_eq!(slot, 0);
            self.activity = Activity::Idle;
            return Ok(());
        }
        self.answer(slot, |world, _| world.slots[slot as usize] == PENDING)
    }

    /// A change failed: it has taken effect, or may have after the next crash.
    pub fn finish_unknown(&mut self, slot: u8) {
        let worlds = match &mut self.activity {
            Activity::Many(worlds) => worlds,
            _ => self.spread(),
        };
        let effect = worlds.effects[slot as usize];
        worlds.close();
        worlds.end(slot as usize);
        worlds.doubts.extend(effect);
    }

    /// Nobody will hear how a change ended, and it is over: it has taken effect or never will.
    pub fn finish_either(&mut self, slot: u8) {
        let worlds = match &mut self.activity {
            Activity::Many(worlds) => worlds,
            _ => self.spread(),
        };
        worlds.close();
        worlds.end(slot as usize);
        let settled = worlds.settled();
        self.settle(settled);
    }

    /// A read gave these versions in the sectors of the mask.
    pub fn finish_read(&mut self, slot: u8, mask: u8, seen: &BlockState) -> Result<(), Contradiction> {
        if let Activity::One(_) = self.activity {
            assert_eq!(slot, 0);
            if !agrees(&self.known, mask, seen) {
                return Err(Contradiction { allowed: vec![self.known] });
            }
            self.activity = Activity::Idle;
            return Ok(());
        }
        self.answer(slot, |world, states| {
            let saw = world.slots[slot as usize];
            saw != PENDING && agrees(&states[saw as usize - 1], mask, seen)
        })
    }

    /// A read ended without data.
    pub fn finish_nothing(&mut self, slot: u8) {
        let ended = match &mut self.activity {
            Activity::One(_) => {
                self.activity = Activity::Idle;
                return;
            }
            Activity::Many(worlds) => {
                worlds.end(slot as usize);
                worlds.settled()
            }
            Activity::Idle => None,
        };
        self.settle(ended);
    }

    /// Everything under way ends without an answer: each change has happened or has not.
    pub fn crash(&mut self) {
        let worlds = match &mut self.activity {
            Activity::Idle => return,
            Activity::One(Effect::Read) => {
                self.activity = Activity::Idle;
                return;
            }
            Activity::One(_) => self.spread(),
            Activity::Many(worlds) => worlds,
        };
        for slot in 0..SLOTS {
            if worlds.effects[slot] == Some(Effect::Read) {
                worlds.end(slot);
            }
        }
        worlds.close();
        worlds.close_doubts();
        (0..SLOTS).for_each(|slot| worlds.end(slot));
        let settled = worlds.settled();
        self.settle(settled);
    }

    /// Every state that the block may have now or get by what is under way.
    pub fn possible(&self) -> Vec<BlockState> {
        match &self.activity {
            Activity::Idle | Activity::One(Effect::Read) => vec![self.known],
            Activity::One(effect) => {
                let mut changed = self.known;
                apply(&mut changed, *effect);
                vec![self.known, changed]
            }
            Activity::Many(worlds) => worlds.possible(),
        }
    }

    fn spread(&mut self) -> &mut Worlds {
        let mut worlds = Worlds {
            states: vec![self.known],
            worlds: vec![World { state: 0, slots: [PENDING; SLOTS] }],
            effects: [None; SLOTS],
            doubts: Vec::new(),
        };
        if let Activity::One(effect) = self.activity {
            worlds.effects[0] = Some(effect);
        }
        self.activity = Activity::Many(Box::new(worlds));
        match &mut self.activity {
            Activity::Many(worlds) => worlds,
            _ => unreachable!("set just above"),
        }
    }

    fn answer(
        &mut self,
        slot: u8,
        keep: impl Fn(&World, &[BlockState]) -> bool,
    ) -> Result<(), Contradiction> {
        let Activity::Many(worlds) = &mut self.activity else { panic!("an answer without an operation") };
        assert!(worlds.effects[slot as usize].is_some(), "an answer without an operation");
        worlds.close();
        let states = std::mem::take(&mut worlds.states);
        worlds.worlds.retain(|world| keep(world, &states));
        worlds.states = states;
        if worlds.worlds.is_empty() {
            return Err(Contradiction { allowed: worlds.states.clone() });
        }
        worlds.end(slot as usize);
        let settled = worlds.settled();
        self.settle(settled);
        Ok(())
    }

    fn settle(&mut self, settled: Option<BlockState>) {
        if let Some(state) = settled {
            self.known = state;
            self.activity = Activity::Idle;
        }
    }
}

impl Worlds {
    fn begin(&mut self, effect: Effect) -> Option<u8> {
        let slot = self.effects.iter().position(Option::is_none)?;
        self.effects[slot] = Some(effect);
        Some(slot as u8)
    }

    /// Adds every world that is reached as operations under way take effect, in any order.
    fn close(&mut self) {
        let mut next = 0;
        while next < self.worlds.len() {
            let world = self.worlds[next];
            next += 1;
            for slot in 0..SLOTS {
                let Some(effect) = self.effects[slot] else { continue };
                if world.slots[slot] != PENDING {
                    continue;
                }
                let mut reached = world;
                match effect {
                    Effect::Read => reached.slots[slot] = 1 + world.state,
                    Effect::Set { .. } => {
                        let mut state = self.states[world.state as usize];
                        apply(&mut state, effect);
                        reached.state = self.state_number(state);
                        reached.slots[slot] = 1;
                    }
                }
                self.reach(reached);
            }
        }
    }

    /// Adds every world that is reached as changes in doubt are found, in any order, by the next life.
    fn close_doubts(&mut self) {
        let mut doubts = std::mem::take(&mut self.doubts);
        if doubts.is_empty() {
            return;
        }
        // Changes that are still under way are found before those or after.
        doubts.extend(self.effects.iter().flatten().filter(|effect| **effect != Effect::Read));
        let mut next = 0;
        while next < self.worlds.len() {
            let world = self.worlds[next];
            next += 1;
            for doubt in &doubts {
                let mut state = self.states[world.state as usize];
                apply(&mut state, *doubt);
                let state = self.state_number(state);
                self.reach(World { state, ..world });
            }
        }
    }

    fn reach(&mut self, world: World) {
        if !self.worlds.contains(&world) {
            self.worlds.push(world);
        }
    }

    fn is_quiet(&self) -> bool {
        self.doubts.is_empty() && self.effects.iter().all(Option::is_none)
    }

    fn state_number(&mut self, state: BlockState) -> u16 {
        let found = self.states.iter().position(|known| *known == state);
        found.unwrap_or_else(|| {
            self.states.push(state);
            self.states.len() - 1
        }) as u16
    }

    fn end(&mut self, slot: usize) {
        self.effects[slot] = None;
        for world in &mut self.worlds {
            world.slots[slot] = PENDING;
        }
        self.worlds.sort_unstable();
        self.worlds.dedup();
        if self.states.len() > STATES_KEPT {
            self.forget_unused_states();
        }
    }

    /// Keeps a block that is never quiet from gathering states for ever.
    fn forget_unused_states(&mut self) {
        let states = std::mem::take(&mut self.states);
        let effects = self.effects;
        let mut worlds = std::mem::take(&mut self.worlds);
        for world in &mut worlds {
            world.state = self.state_number(states[world.state as usize]);
            for (slot, effect) in effects.iter().enumerate() {
                if *effect == Some(Effect::Read) && world.slots[slot] != PENDING {
                    world.slots[slot] = 1 + self.state_number(states[world.slots[slot] as usize - 1]);
                }
            }
        }
        self.worlds = worlds;
    }

    fn settled(&self) -> Option<BlockState> {
        (self.is_quiet() && self.worlds.len() == 1).then(|| self.states[self.worlds[0].state as usize])
    }

    fn possible(&self) -> Vec<BlockState> {
        let mut all = self.clone();
        all.close();
        all.close_doubts();
        let mut states: Vec<_> = all.worlds.iter().map(|world| all.states[world.state as usize]).collect();
        states.sort_unstable();
        states.dedup();
        states
    }
}

fn apply(state: &mut BlockState, effect: Effect) {
    if let Effect::Set { mask, version } = effect {
        for (sector, current) in state.iter_mut().enumerate() {
            if mask & (1 << sector) != 0 {
                *current = version;
            }
        }
    }
}

fn agrees(state: &BlockState, mask: u8, seen: &BlockState) -> bool {
    (0..state.len()).all(|sector| mask & (1 << sector) == 0 || state[sector] == seen[sector])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(version: Version) -> Effect {
        Effect::Set { mask: 0xff, version }
    }

    #[test]
    fn acknowledged_write_is_the_only_state() {
        let mut block = BlockModel::default();
        let slot = block.begin(whole(1)).unwrap();
        block.finish_change(slot).unwrap();
        let read = block.begin(Effect::Read).unwrap();
        assert!(block.finish_read(read, 0xff, &[0; 8]).is_err());
        assert_eq!(block.known().copied().unwrap_or([1; 8]), [1; 8]);
    }

    #[test]
    fn read_during_a_write_sees_old_or_new() {
        for seen in [0, 1] {
            let mut block = BlockModel::default();
            let write = block.begin(whole(1)).unwrap();
            let read = block.begin(Effect::Read).unwrap();
            block.finish_read(read, 0xff, &[seen; 8]).unwrap();
            block.finish_change(write).unwrap();
            assert_eq!(block.known(), Some(&[1; 8]));
        }
    }

    #[test]
    fn new_then_old_is_refused() {
        let mut block = BlockModel::default();
        block.begin(whole(1)).unwrap();
        let first = block.begin(Effect::Read).unwrap();
        block.finish_read(first, 0xff, &[1; 8]).unwrap();
        let second = block.begin(Effect::Read).unwrap();
        assert!(block.finish_read(second, 0xff, &[0; 8]).is_err());
    }

    #[test]
    fn state_that_was_read_survives_a_crash() {
        let mut block = BlockModel::default();
        block.begin(whole(1)).unwrap();
        let read = block.begin(Effect::Read).unwrap();
        block.finish_read(read, 0xff, &[1; 8]).unwrap();
        block.crash();
        assert_eq!(block.known(), Some(&[1; 8]));
    }

    #[test]
    fn crash_leaves_old_or_new_and_never_half_a_block() {
        let mut block = BlockModel::default();
        block.begin(whole(1)).unwrap();
        block.crash();
        assert_eq!(block.possible(), vec![[0; 8], [1; 8]]);
        let read = block.begin(Effect::Read).unwrap();
        let mut half = [0; 8];
        half[0] = 1;
        assert!(block.finish_read(read, 0xff, &half).is_err());
    }

    #[test]
    fn outcome_after_a_crash_stays_as_it_was_first_seen() {
        let mut block = BlockModel::default();
        block.begin(whole(1)).unwrap();
        block.crash();
        let read = block.begin(Effect::Read).unwrap();
        block.finish_read(read, 0xff, &[0; 8]).unwrap();
        assert_eq!(block.known(), Some(&[0; 8]));
    }

    #[test]
    fn overlapping_parts_merge_in_one_order_for_all() {
        let mut block = BlockModel::default();
        let left = block.begin(Effect::Set { mask: 0b0011, version: 1 }).unwrap();
        let right = block.begin(Effect::Set { mask: 0b0110, version: 2 }).unwrap();
        block.finish_change(left).unwrap();
        block.finish_change(right).unwrap();
        assert_eq!(block.possible(), vec![[1, 1, 2, 0, 0, 0, 0, 0], [1, 2, 2, 0, 0, 0, 0, 0]]);
        let read = block.begin(Effect::Read).unwrap();
        block.finish_read(read, 0b0010, &[9, 1, 9, 9, 9, 9, 9, 9]).unwrap();
        assert_eq!(block.known(), Some(&[1, 1, 2, 0, 0, 0, 0, 0]));
    }

    #[test]
    fn block_that_is_never_quiet_keeps_few_states() {
        let mut block = BlockModel::default();
        let mut last = block.begin(whole(1)).unwrap();
        for version in 2..500 {
            let next = block.begin(whole(version)).unwrap();
            let read = block.begin(Effect::Read).unwrap();
            block.finish_change(last).unwrap();
            block.finish_read(read, 0xff, &[version - 1; 8]).unwrap();
            last = next;
        }
        block.finish_change(last).unwrap();
        let Activity::Many(worlds) = &block.activity else {
            panic!("either of the last two may be the last")
        };
        assert!(worlds.states.len() <= STATES_KEPT);
        let write = block.begin(whole(500)).unwrap();
        block.finish_change(write).unwrap();
        assert_eq!(block.known(), Some(&[500; 8]));
    }

    #[test]
    fn failed_write_stays_in_doubt_until_a_crash_and_a_read() {
        for seen in [0, 1] {
            let mut block = BlockModel::default();
            let write = block.begin(whole(1)).unwrap();
            block.finish_unknown(write);
            assert!(!block.is_quiet());
            let read = block.begin(Effect::Read).unwrap();
            block.finish_read(read, 0xff, &[0; 8]).unwrap();
            block.crash();
            assert_eq!(block.possible(), vec![[0; 8], [1; 8]]);
            let read = block.begin(Effect::Read).unwrap();
            block.finish_read(read, 0xff, &[seen; 8]).unwrap();
            assert_eq!(block.known(), Some(&[seen; 8]));
        }
    }

    #[test]
    fn refused_write_never_shows() {
        let mut block = BlockModel::default();
        let write = block.begin(whole(1)).unwrap();
        let other = block.begin(whole(2)).unwrap();
        block.finish_refused(write).unwrap();
        block.finish_change(other).unwrap();
        assert_eq!(block.known(), Some(&[2; 8]));
        let slots: Vec<_> = (0..SLOTS).map(|_| block.begin(Effect::Read)).collect();
        assert!(slots.iter().all(Option::is_some));
        assert!(!block.has_room(false));
        assert_eq!(block.begin(Effect::Read), None);
    }
}
