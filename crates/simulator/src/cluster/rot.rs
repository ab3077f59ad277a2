//! Bit rot: drives give back other bytes than were written. Nothing wrong may be answered, and at the end nothing may be
//! missing.
//!
//! Blocks of data rot on any drive, as long as another copy in sync has them. They stay so: copies get them from each
//! other, when they are read or scrubbed (`bad_blocks.rs`).
//!
//! Anything rots on one drive at a time, the log's own records as well, while others have all that it should have. Until
//! somebody mends it, by another drive in its place or by the right bytes, what is read there may fail.

use std::collections::BTreeMap;

use coquina_base::{BLOCK_BYTES, SECTOR_BYTES, crc32c_block};
use coquina_copies::{Event as CopyEvent, ShardCopies};
use coquina_engine::{Event as EngineEvent, Failure};

use super::bad_blocks::BadBlock;
use super::control::Control;
use super::faults::Ending;
use super::node::{copy_id, number_of};
use super::report::Rare;
use super::world::{Event, World};
use crate::random::Random;
use crate::violation::Violation;

/// Writes at the end of a log that are left alone: nothing later need prove yet that they were acknowledged, and damage
/// there cannot be told from a torn tail.
const TAIL_WRITES: usize = 80;

/// A spoilt block: where, what was there, what is there instead.
pub struct Place {
    pub offset_bytes: usize,
    right: Vec<u8>,
    spoilt: Vec<u8>,
}

/// A block that is right again, or all of a drive. Who has asked for it before may still be told that it is not.
pub struct Mended {
    pub at_ns: u64,
    pub copy: usize,
    /// Layer, chunk, block.
    pub block: Option<(u64, u32, u32)>,
}

/// What rots in a cluster.
pub struct Rot {
    /// Its own, so that clusters without rot run as if there were none.
    pub random: Random,
    /// Blocks of data that are bad, as far as is known.
    pub bad: Vec<BadBlock>,
    /// Blocks just taken as bad: copy, group, block.
    pub taken: Vec<(usize, u32, (u64, u32, u32))>,
    drive: Option<(usize, Vec<Place>)>,
    /// What was right of all that has ever rotted, by its checksum.
    pub right: BTreeMap<u32, Vec<u8>>,
    /// What was mended, but not by the copies.
    pub mended: Vec<Mended>,
    /// Failures of drives that rot or did are forgiven: not any more once all is read at the end.
    pub is_forgiven: bool,
}

impl Rot {
    pub fn new(seed: u64) -> Rot {
        let random = Random::new(seed);
        Rot {
            random,
            bad: Vec::new(),
            taken: Vec::new(),
            drive: None,
            right: BTreeMap::new(),
            mended: Vec::new(),
            is_forgiven: true,
        }
    }

    /// Whether a drive is the one of which anything may be rotten.
    pub fn is_spoilt(&self, copy: usize) -> bool {
        self.drive.as_ref().is_some_and(|(spoilt, _)| *spoilt == copy)
    }

    pub fn spoil(&mut self, bytes: &mut [u8], offset_bytes: usize) -> Place {
        let block = &mut bytes[offset_bytes..offset_bytes + BLOCK_BYTES];
        let right = block.to_vec();
        self.right.insert(crc32c_block(&right), right.clone());
        match self.random.below(3) {
            // Never with what might be written there next: it would be taken for rot.
            0 => block.iter_mut().for_each(|byte| *byte ^= 0xa5),
            1 => block[..SECTOR_BYTES].iter_mut().for_each(|byte| *byte ^= 0x5a),
            _ => block[self.random.below(BLOCK_BYTES as u64) as usize] ^= 1 << self.random.below(8),
        }
        Place { offset_bytes, right, spoilt: block.to_vec() }
    }
}

impl Place {
    /// A block that is bad since it was written.
    pub fn new(offset_bytes: usize, right: &[u8], spoilt: &[u8]) -> Place {
        Place { offset_bytes, right: right.to_vec(), spoilt: spoilt.to_vec() }
    }

    /// What the block should have.
    pub fn checksum(&self) -> u32 {
        crc32c_block(&self.right)
    }

    /// The cleaner has moved it, as bad as it was.
    pub fn move_to(&mut self, offset_bytes: usize, spoilt: &[u8]) {
        if self.offset_bytes != offset_bytes {
            (self.offset_bytes, self.spoilt) = (offset_bytes, spoilt.to_vec());
        }
    }

    /// Puts the right bytes back, but for sectors that were written since.
    pub fn mend(&self, bytes: &mut [u8]) {
        for at in (0..BLOCK_BYTES).step_by(SECTOR_BYTES) {
            let sector = &mut bytes[self.offset_bytes + at..][..SECTOR_BYTES];
            if *sector == self.spoilt[at..at + SECTOR_BYTES] {
                sector.copy_from_slice(&self.right[at..at + SECTOR_BYTES]);
            }
        }
    }
}

impl World {
    /// Lets the first drive rot after a while, in clusters where drives do.
    pub fn begin_to_rot(&mut self) {
        let Some(rot) = &mut self.rot else { return };
        let wait_ns = rot.random.between(1_000_000, 3 * self.plan.fault_ns);
        self.at(wait_ns, Event::Rot);
    }

    /// Something rots, if others have it.
    pub fn rot_somewhere(&mut self) {
        if self.calm {
            return;
        }
        self.begin_to_rot();
        match self.rot.as_mut().is_some_and(|rot| rot.random.chance(1, 2)) {
            true => self.rot_blocks(),
            false => self.rot_drive(),
        }
    }

    fn rot_drive(&mut self) {
        let Some(mut rot) = self.rot.take() else { return };
        let copy = rot.random.below(self.hosts.len() as u64) as usize;
        let length_ns = rot.random.between(100_000, 4 * self.plan.fault_length_ns);
        let writes: Vec<_> = self.hosts[copy].drive.history().iter().copied().collect();
        let is_whole = rot.drive.is_none() && rot.bad.iter().all(|bad| bad.copy != copy);
        let may_rot = is_whole
            && !self.hosts[copy].is_gone
            && self.is_spare_beside(copy, |other| rot.bad.iter().all(|bad| bad.copy != other));
        if may_rot && writes.len() > TAIL_WRITES {
            let (writes, tail) = writes.split_at(writes.len() - TAIL_WRITES);
            let is_of_tail =
                |at: u64| tail.iter().any(|(start, length)| (*start..start + length).contains(&at));
            let mut places = Vec::new();
            // What was written lately is read sooner.
            let writes =
                if rot.random.chance(2, 3) { &writes[writes.len().saturating_sub(60)..] } else { writes };
            for _ in 0..rot.random.between(1, 100) {
                let (offset_bytes, length_bytes) = writes[rot.random.below(writes.len() as u64) as usize];
                let block = rot.random.below(length_bytes / BLOCK_BYTES as u64);
                let at = offset_bytes + block * BLOCK_BYTES as u64;
                // It may have been written again since.
                if !is_of_tail(at) {
                    places.push(rot.spoil(self.hosts[copy].drive.bytes_mut(), at as usize));
                }
            }
            self.report.faults += 1;
            self.report.saw(Rare::BitRot);
            self.note(&[60, copy as u64, places.len() as u64]);
            self.say(|| format!("{} blocks of drive {copy} rot", places.len()));
            self.hosts[copy].has_rotten = true;
            rot.drive = Some((copy, places));
            self.at(length_ns, Event::EndFault(Ending::Rot(copy)));
        }
        self.rot = Some(rot);
    }

    /// Whether anything may be rotten on a drive now.
    pub fn is_rotten(&self, copy: usize) -> bool {
        self.rot.as_ref().is_some_and(|rot| rot.is_spoilt(copy))
    }

    fn is_whole(&self, copy: usize) -> bool {
        let has_bad = |rot: &Rot| rot.bad.iter().any(|bad| bad.copy == copy);
        !self.is_rotten(copy) && !self.rot.as_ref().is_some_and(has_bad)
    }

    /// Whether a drive that fails, or a request to it, has rot for an excuse.
    pub fn is_excused(&self, copy: usize) -> bool {
        self.hosts[copy].has_rotten && self.rot.as_ref().is_some_and(|rot| rot.is_forgiven)
    }

    /// Whether this is how rot shows to an operator.
    pub fn comes_of_rot(&mut self, copy: usize, copies: &mut ShardCopies, event: &CopyEvent) -> bool {
        self.say(|| format!("copy {copy}: {event:?}"));
        match event {
            CopyEvent::Engine(EngineEvent::BadBlock { layer, chunk, block, .. }) => {
                self.report.saw(Rare::BadBlockFound);
                self.may_be_bad_there(copy, copies, (layer.0, *chunk), *block..block + 1)
            }
            CopyEvent::Engine(EngineEvent::Repaired { layer, chunk, block }) => {
                self.report.saw(Rare::BadBlockRepaired);
                self.repaired(copy, (layer.0, *chunk, *block));
                self.hosts[copy].has_bad_blocks || self.hosts[copy].has_rotten
            }
            CopyEvent::TakenBad(group, range) => self.taken_bad(copy, *group, *range),
            CopyEvent::Engine(_) | CopyEvent::Halted(_, Failure::ReadOnly) => self.is_excused(copy),
            CopyEvent::Halted(_, Failure::BadBlock) => self.has_bad_entry(copy),
            _ => false,
        }
    }

    /// An entry in the log of a copy is bad that others in sync needed, so it has stopped; says whether that may be. Somebody restarts
    /// its node.
    fn has_bad_entry(&mut self, copy: usize) -> bool {
        let length_ns = 4 * self.plan.fault_length_ns;
        let Some(rot) = &mut self.rot else { return false };
        let wait_ns = rot.random.between(100_000, length_ns);
        self.at(wait_ns, Event::EndFault(Ending::Repair(self.node_of(copy))));
        let is_forgiven = self.rot.as_ref().is_some_and(|rot| rot.is_forgiven);
        is_forgiven && (self.hosts[copy].has_rotten || self.hosts[copy].has_bad_blocks)
    }

    /// Whether a copy of any group has stopped on a drive.
    pub fn has_halted(&self, copy: usize) -> bool {
        let copies = self.hosts[copy].copies.as_ref();
        copies.is_some_and(|copies| copies.groups().iter().any(|group| copies.is_halted(*group)))
    }

    /// Whether all that a drive should have is on others that are in sync, there, and whole.
    pub fn is_spare(&self, copy: usize) -> bool {
        self.is_spare_beside(copy, |_| true)
    }

    /// The same where only some others count.
    pub fn is_spare_beside(&self, copy: usize, counts: impl Fn(usize) -> bool) -> bool {
        let own = copy_id(copy);
        (1..=self.plan.groups).all(|group| {
            let config = self.coordinator.config(group);
            let mut others =
                config.in_sync.iter().filter(|other| **other != own).map(|other| number_of(*other));
            !config.is_in_sync(own)
                || others.any(|other| !self.hosts[other].is_gone && self.is_whole(other) && counts(other))
        })
    }

    /// A drive with rotten blocks cannot be opened. If nobody else has what it has, somebody finds the right bytes. Gives
    /// whether to try again.
    pub fn refuse_rotten(&mut self, copy: usize) -> bool {
        self.report.saw(Rare::RottenDriveRefused);
        let is_spare = self.is_spare(copy);
        self.say(|| format!("drive {copy} is not opened for its rot; others have all: {is_spare}"));
        if is_spare {
            self.rejoin_later(copy);
        } else {
            self.put_right();
        }
        !is_spare
    }

    fn rejoin_later(&mut self, copy: usize) {
        let Some(rot) = &mut self.rot else { return };
        let wait_ns = rot.random.between(20_000, 500_000);
        let life = self.nodes[self.node_of(copy)].life;
        self.at(wait_ns, Event::Rejoin { copy, life });
    }

    /// A drive that was not opened for its rot is used again once no group counts on it any more, if only its log is damaged.
    pub fn rejoin(&mut self, copy: usize, life: u64) -> Result<(), Violation> {
        let node = self.node_of(copy);
        let host = &self.hosts[copy];
        let is_waiting = self.nodes[node].up && host.copies.is_none() && !host.is_gone;
        if !is_waiting || self.nodes[node].life != life {
            return Ok(());
        }
        if self.counts_on(copy) {
            self.rejoin_later(copy);
            return Ok(());
        }
        let plan = self.plan.clone();
        let Some(shard) = self.hosts[copy].open_cut(copy, &plan) else { return Ok(()) };
        self.report.saw(Rare::LogCut);
        self.note(&[61, copy as u64]);
        self.say(|| format!("the log of drive {copy} is cut where it has rotten"));
        // What was connected to the drive's place is not connected to it.
        for link in 0..self.links.len() {
            if self.links[link].ends.contains(&copy) {
                self.break_link(link);
            }
        }
        self.take_up(copy, shard)?;
        if self.control.is_some() { self.follow_map(node) } else { Ok(()) }
    }

    /// Whether any group has a copy in sync on a drive, as far as its node knows.
    fn counts_on(&self, copy: usize) -> bool {
        let node = self.node_of(copy);
        (1..=self.plan.groups).any(|group| {
            let config = match &self.control {
                Some(control) => Control::config_in(&control.seats[node].map, group),
                None => Some(self.coordinator.config(group).clone()),
            };
            config.is_none_or(|config| config.is_in_sync(copy_id(copy)))
        })
    }

    fn put_right(&mut self) {
        let Some(rot) = &mut self.rot else { return };
        let Some((copy, places)) = rot.drive.take() else { return };
        rot.mended.push(Mended { at_ns: self.now_ns, copy, block: None });
        for place in places.iter().rev() {
            place.mend(self.hosts[copy].drive.bytes_mut());
        }
    }

    /// Somebody sees to a rotten drive: another takes its place, or its bytes are right again.
    pub fn mend_rot(&mut self, copy: usize) -> Result<(), Violation> {
        if !self.is_rotten(copy) {
            return Ok(());
        }
        let replaces = self.rot.as_mut().is_some_and(|rot| rot.random.chance(1, 2));
        if replaces && !self.hosts[copy].is_gone && self.is_spare(copy) && self.lose_drive(copy)? {
            self.report.saw(Rare::RottenDriveReplaced);
        }
        self.put_right();
        if self.hosts[copy].is_gone {
            return Ok(());
        }
        let node = self.node_of(copy);
        let is_well = match &self.hosts[copy].copies {
            Some(copies) => !copies.shard().stats().poisoned,
            None => !self.nodes[node].up,
        };
        if !is_well {
            self.crash(node, false);
        }
        Ok(())
    }

    /// All that rots is seen to.
    pub fn mend_all_rot(&mut self) -> Result<(), Violation> {
        let rotten = self.rot.as_ref().and_then(|rot| rot.drive.as_ref()).map(|(copy, _)| *copy);
        rotten.map_or(Ok(()), |copy| self.mend_rot(copy))
    }
}
