//! Blocks of data that rot and stay so: copies get them from each other.

use std::ops::Range;

use coquina_base::{BLOCK_BYTES, LayerId, crc32c_block};
use coquina_copies::ShardCopies;
use coquina_replication::BlockRange;

use super::faults::Ending;
use super::node::number_of;
use super::plan::CHUNKS;
use super::report::Rare;
use super::rot::{Mended, Place, Rot};
use super::world::{Event, World};
use crate::violation::Violation;

/// Blocks tried to spoil together.
const TRIES: u64 = 400;
/// Once all is calm, copies that are out may help for so long.
const OTHERS_HELP_NS: u64 = 5_000_000_000;
/// A scrub of all drives takes no longer.
const SCRUB_NS: u64 = 60_000_000_000;
/// What a scrub has found is repaired by then.
const REPAIR_NS: u64 = 5_000_000_000;

/// A block that rots on a drive until it is repaired there, or written elsewhere.
pub struct BadBlock {
    pub copy: usize,
    group: u32,
    /// Layer, chunk, block.
    block: (u64, u32, u32),
    place: Place,
    /// It was bad when it came to this drive.
    is_taken: bool,
}

impl Rot {
    /// Whether a copy may not have a block as it should be.
    fn may_be_bad(&self, copy: usize, block: (u64, u32, u32)) -> bool {
        self.is_spoilt(copy) || self.bad.iter().any(|bad| bad.copy == copy && bad.block == block)
    }
}

impl World {
    /// Blocks of a drive rot, of which another copy in sync has the same; sometimes others, too, of groups of which a copy is out.
    pub fn rot_blocks(&mut self) {
        let Some(mut rot) = self.rot.take() else { return };
        let copy = rot.random.below(self.hosts.len() as u64) as usize;
        let length_ns = rot.random.between(100_000, 4 * self.plan.fault_length_ns);
        let before = rot.bad.len();
        let is_last = rot.random.chance(1, 3);
        for _ in 0..rot.random.between(1, TRIES) {
            self.rot_block(&mut rot, copy, is_last);
        }
        let spoilt = rot.bad.len() - before;
        self.rot = Some(rot);
        if spoilt == 0 {
            return;
        }
        self.report.faults += 1;
        self.report.saw(Rare::BitRot);
        self.note(&[61, copy as u64, spoilt as u64]);
        self.say(|| format!("{spoilt} blocks of data rot on drive {copy}"));
        self.hosts[copy].has_bad_blocks = true;
        let scrubs = self.rot.as_mut().is_some_and(|rot| rot.random.chance(1, 3));
        if scrubs {
            self.at(length_ns, Event::EndFault(Ending::Scrub(copy)));
        }
    }

    fn rot_block(&mut self, rot: &mut Rot, copy: usize, is_last: bool) {
        let layers: Vec<u64> = self.layers_in_use().collect();
        let layer = rot.random.pick(&layers);
        let chunk = rot.random.below(u64::from(CHUNKS)) as u32;
        let block = (layer, chunk, rot.random.below(u64::from(self.plan.blocks)) as u32);
        let group = self.group_of(layer, chunk);
        let config = self.coordinator.config(group);
        let is_one_out = !config.others.is_empty();
        let in_sync = config.in_sync.iter().map(|copy| number_of(*copy));
        let is_whole = |copy: &usize| !self.hosts[*copy].is_gone && !rot.may_be_bad(*copy, block);
        let whole: Vec<usize> = in_sync.filter(is_whole).collect();
        if !whole.contains(&copy) {
            return;
        }
        let Some((offset_bytes, checksum)) = self.settled_place(copy, block) else { return };
        let has_it = |other: usize| {
            let place = self.settled_place(other, block);
            other != copy && place.is_some_and(|(_, theirs)| theirs == checksum)
        };
        if whole.into_iter().any(has_it) || is_last && is_one_out {
            let place = rot.spoil(self.hosts[copy].drive.bytes_mut(), offset_bytes as usize);
            rot.bad.push(BadBlock { copy, group, block, place, is_taken: false });
        }
    }

    fn settled_place(&mut self, copy: usize, (layer, chunk, block): (u64, u32, u32)) -> Option<(u64, u32)> {
        let copies = self.hosts[copy].copies.as_mut()?;
        copies.shard_mut().settled_place(LayerId(layer), chunk, block)
    }

    /// Whether any of these blocks may be bad on a drive, or was until lately: if the drive is rotten, if the block is one that has
    /// rotted, or if what lies there is not what the index says.
    pub fn may_be_bad_there(
        &self,
        copy: usize,
        copies: &mut ShardCopies,
        (layer, chunk): (u64, u32),
        blocks: Range<u32>,
    ) -> bool {
        let Some(rot) = &self.rot else { return false };
        let is_among =
            |block: (u64, u32, u32)| (block.0, block.1) == (layer, chunk) && blocks.contains(&block.2);
        let is_mended = |mended: &Mended| {
            let is_lately = self.now_ns < mended.at_ns + REPAIR_NS;
            is_lately && mended.copy == copy && mended.block.is_none_or(is_among)
        };
        if rot.is_spoilt(copy)
            || rot.bad.iter().any(|bad| bad.copy == copy && is_among(bad.block))
            || rot.mended.iter().any(is_mended)
        {
            return true;
        }
        let host = &self.hosts[copy];
        blocks.clone().any(|block| match copies.shard_mut().place_of(LayerId(layer), chunk, block) {
            Some(Some((offset_bytes, checksum))) => {
                crc32c_block(&host.drive.bytes()[offset_bytes as usize..][..BLOCK_BYTES]) != checksum
            }
            Some(None) => false,
            // Its part of the index is not in memory.
            None => host.has_rotten || host.has_bad_blocks,
        })
    }

    /// A block has been repaired.
    pub fn repaired(&mut self, copy: usize, block: (u64, u32, u32)) {
        if let Some(rot) = &mut self.rot {
            rot.bad.retain(|bad| bad.copy != copy || bad.block != block);
        }
    }

    /// Forgets what is not bad any more. Once no copy that might help is out, blocks that no copy in sync has any more are
    /// put right.
    pub fn look_at_rot(&mut self) {
        let Some(mut rot) = self.rot.take() else { return };
        rot.bad.retain_mut(|bad| !self.hosts[bad.copy].is_gone && self.may_be_bad(bad));
        self.rot = Some(rot);
        let helps_ns = self.calm_since_ns.map(|since_ns| since_ns + OTHERS_HELP_NS);
        if helps_ns.is_some_and(|helps_ns| self.now_ns >= helps_ns) {
            self.put_lost_right();
        }
    }

    /// Whether a block may still be bad; finds it where the cleaner has moved it to.
    fn may_be_bad(&mut self, bad: &mut BadBlock) -> bool {
        let host = &mut self.hosts[bad.copy];
        let Some(copies) = &mut host.copies else { return true };
        let (layer, chunk, block) = bad.block;
        let Some(place) = copies.shard_mut().place_of(LayerId(layer), chunk, block) else { return true };
        let Some((offset_bytes, checksum)) = place else { return false };
        let start = offset_bytes as usize;
        let bytes = &host.drive.bytes_mut()[start..start + BLOCK_BYTES];
        let is_bad = checksum == bad.place.checksum() && crc32c_block(bytes) != checksum;
        if is_bad {
            bad.place.move_to(start, bytes);
        }
        is_bad
    }

    /// A copy that comes back has taken a block as bad, for no copy in sync has it.
    pub fn taken_bad(&mut self, copy: usize, group: u32, range: BlockRange) -> bool {
        let Some(rot) = &mut self.rot else { return false };
        rot.taken.push((copy, group, (range.layer.0, range.chunk, range.first)));
        self.report.saw(Rare::BlockTakenBad);
        self.hosts[copy].has_bad_blocks = true;
        true
    }

    /// Notes blocks that were taken as bad. Each must be one that has rotted.
    pub fn note_taken(&mut self) -> Result<(), Violation> {
        let Some(rot) = self.rot.as_mut().filter(|rot| !rot.taken.is_empty()) else { return Ok(()) };
        for (copy, group, block) in std::mem::take(&mut rot.taken) {
            let host = &mut self.hosts[copy];
            let Some(copies) = &mut host.copies else { continue };
            let place = copies.shard_mut().place_of(LayerId(block.0), block.1, block.2).flatten();
            let Some((offset_bytes, checksum)) = place else { continue };
            let Some(right) = rot.right.get(&checksum) else {
                return Err(Violation::Group(format!(
                    "copy {copy} took {block:?} as bad, which has not rotted"
                )));
            };
            let start = offset_bytes as usize;
            let bytes = &host.drive.bytes_mut()[start..start + BLOCK_BYTES];
            if crc32c_block(bytes) == checksum {
                // The copy had it all the time.
                continue;
            }
            let place = Place::new(start, right, bytes);
            rot.bad.retain(|bad| bad.copy != copy || bad.block != block);
            rot.bad.push(BadBlock { copy, group, block, place, is_taken: true });
        }
        Ok(())
    }

    /// All copies in sync of a block have rotted, or those that had it whole are in sync no more: somebody finds the right
    /// bytes.
    pub fn put_lost_right(&mut self) {
        let Some(mut rot) = self.rot.take() else { return };
        let mut index = 0;
        while index < rot.bad.len() {
            let bad = &rot.bad[index];
            let in_sync = self.coordinator.config(bad.group).in_sync.iter().map(|copy| number_of(*copy));
            let mut others = in_sync.filter(|other| *other != bad.copy);
            if others.any(|other| !rot.may_be_bad(other, bad.block)) {
                index += 1;
                continue;
            }
            // The log's end is left alone: it would look torn.
            let (copy, block) = (bad.copy, bad.block);
            let is_settled = self.hosts[copy].copies.is_none() || self.settled_place(copy, block).is_some();
            let bad = &rot.bad[index];
            if bad.is_taken && !is_settled {
                index += 1;
                continue;
            }
            self.say(|| format!("no other copy has block {:?} of copy {}", bad.block, bad.copy));
            rot.mended.push(Mended { at_ns: self.now_ns, copy, block: Some(block) });
            let bad = &rot.bad[index];
            bad.place.mend(self.hosts[bad.copy].drive.bytes_mut());
            rot.bad.remove(index);
        }
        self.rot = Some(rot);
    }

    /// Scrubs a drive.
    pub fn scrub(&mut self, copy: usize) -> Result<(), Violation> {
        self.say(|| format!("drive {copy} is scrubbed"));
        self.with_copy(copy, |copies, _, _| copies.start_scrub())
    }

    /// Scrubs all drives: afterwards nothing may be bad that another copy has.
    pub fn scrub_all(&mut self) -> Result<(), Violation> {
        if self.rot.is_none() {
            return Ok(());
        }
        for copy in 0..self.hosts.len() {
            self.scrub(copy)?;
        }
        let until_ns = self.now_ns + SCRUB_NS;
        let is_scrubbing = |world: &World| {
            let mut copies = world.hosts.iter().filter_map(|host| host.copies.as_ref());
            copies.any(|copies| copies.stats().scrub_progress.is_some())
        };
        while is_scrubbing(self) {
            if self.now_ns > until_ns {
                return Err(Violation::Hang(String::from("a scrub of all drives")));
            }
            self.step()?;
        }
        self.let_questions_end()
    }

    /// Lets time pass until no block is known to be bad, or what was asked of others is answered or given up.
    fn let_questions_end(&mut self) -> Result<(), Violation> {
        let until_ns = self.now_ns + REPAIR_NS;
        let is_bad = |world: &World| {
            let mut copies = world.hosts.iter().filter_map(|host| host.copies.as_ref());
            copies.any(|copies| copies.stats().bad_blocks_left > 0)
        };
        while is_bad(self) && self.now_ns < until_ns {
            self.step()?;
        }
        Ok(())
    }

    /// Puts right what no copy has any more. From then on nothing is forgiven: who asks now must get it. Questions of before
    /// may have gone to copies whose blocks were only then put right, which have said that they are bad.
    pub fn end_rot(&mut self) -> Result<(), Violation> {
        if self.rot.is_none() {
            return Ok(());
        }
        self.look_at_rot();
        self.put_lost_right();
        self.let_questions_end()?;
        self.look_at_rot();
        self.put_lost_right();
        if let Some(rot) = &mut self.rot {
            rot.is_forgiven = false;
        }
        Ok(())
    }
}
