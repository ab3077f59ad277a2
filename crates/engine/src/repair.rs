//! Bad blocks: each is asked for from another copy, checked, and written to another place.
//!
//! Invariants:
//! - what is given out or written for a bad block has the checksum that the index keeps of it: the lost version, no other;
//! - it is logged as a move from the bad place, which counts only if the index still points there: nothing newer is ever
//!   replaced, now or on replay;
//! - a segment with a bad block that is asked for or written is not used again before that is over, so that the place
//!   that the move names still means what it meant;
//! - nothing waits for ever: whoever asks the other copies says so when there is none that helps.

use std::collections::{BTreeMap, VecDeque};

use coquina_base::{BLOCK_BYTES, LayerId, crc32c_block};

use crate::api::{Action, Event, Failure, RepairToken};
use crate::frame::{Context, Entry, EntryKind, FrameHeader, Head, MOVE_BLOCK_BYTES, MOVE_BYTES, NewEntry};
use crate::index_region::{Map, RegionKey};
use crate::index_run::{REGION_BLOCKS, ZEROES};
use crate::known_bad::is_stand_in;
use crate::shard::Shard;

/// Bad blocks that are kept in mind. More are reported, and reads of them fail.
const BAD_BLOCKS_MAX: usize = 1 << 16;
/// Blocks that are asked for at the same time.
const ASKED_MAX: usize = 64;
/// How soon blocks that could not be repaired are looked at again: another copy may have come back, or somebody may have
/// written them.
const RECHECK_NS: u64 = 60_000_000_000;
/// Blocks that are looked at again together.
const RECHECKED_MAX: usize = 64;

/// Layer, chunk, block.
pub type Place = (u64, u32, u32);

/// Where good data of a bad block goes.
#[derive(Clone, Copy, Debug)]
pub struct Waiter {
    /// The read.
    pub read: usize,
    /// Its piece.
    pub piece: usize,
    /// The block within the piece.
    pub index: usize,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum State {
    /// Others are asked for first.
    Queued,
    /// Asked for from other copies.
    Asked(RepairToken),
    /// Good data is on its way into the log.
    Writing(Vec<u8>),
    /// No other copy has it.
    Failed,
    /// Being read again.
    Checking,
}

#[derive(Debug)]
struct Bad {
    location: u64,
    /// That of its segment: the same location may hold something else later.
    generation: u64,
    checksum: u32,
    state: State,
    waiters: Vec<Waiter>,
    /// The pass of the scrub that found it last; 0 for none.
    scrub: u64,
}

impl Bad {
    /// Whether its segment is kept for it.
    fn is_held(&self) -> bool {
        !matches!(self.state, State::Failed | State::Checking)
    }
}

/// The bad blocks of a shard.
#[derive(Default)]
pub struct Repairs {
    /// Whether there may be other copies to be asked.
    enabled: bool,
    blocks: BTreeMap<Place, Bad>,
    queue: VecDeque<Place>,
    asked: Vec<(RepairToken, Place)>,
    token_next: u64,
    /// Blocks that could not be repaired.
    failed: usize,
    recheck_ns: u64,
    /// Where to go on with looking at them again.
    recheck_from: Place,
    /// The last pass of the scrub, how many blocks were found bad while it ran, how many of them are above, and how many were repaired.
    scrub: u64,
    scrub_found: u64,
    scrub_left: u64,
    scrub_repaired: u64,
}

impl Repairs {
    /// Bad blocks that are known and not repaired.
    pub fn left(&self) -> u64 {
        self.blocks.len() as u64
    }

    /// A pass of the scrub begins, with a number that none had before.
    pub fn begin_scrub(&mut self, pass: u64) {
        (self.scrub, self.scrub_found, self.scrub_left, self.scrub_repaired) = (pass, 0, 0, 0);
    }

    /// A block was found bad in the last pass of the scrub, if it is kept in mind. One that is known already from it is not new.
    pub fn found_by_scrub(&mut self, place: Place, is_new: bool) {
        if let Some(bad) = self.blocks.get_mut(&place).filter(|bad| bad.scrub != self.scrub) {
            bad.scrub = self.scrub;
            self.scrub_left += 1;
            self.scrub_found += u64::from(is_new);
        }
    }

    /// How many blocks were found bad while the last pass of the scrub ran, how many of them were repaired, and how many are left.
    pub fn of_scrub(&self) -> (u64, u64, u64) {
        (self.scrub_found, self.scrub_repaired, self.scrub_left)
    }

    /// When some are looked at again.
    pub fn wake_ns(&self) -> Option<u64> {
        (self.failed > 0).then_some(self.recheck_ns)
    }
}

impl Shard {
    /// From now on bad blocks are asked for by [`Action::Repair`], and reads wait for the answer.
    pub fn enable_repairs(&mut self) {
        self.repairs.enabled = true;
    }

    /// Takes note of a bad block, and asks for it. False: it is not asked for, and whoever waits has to fail.
    pub(crate) fn note_bad(
        &mut self,
        place: Place,
        location: u64,
        checksum: Option<u32>,
        waiter: Option<Waiter>,
    ) -> bool {
        self.note_again(place, location, checksum, waiter, false)
    }

    /// The same of one that the scrub may have found where it was before.
    fn note_again(
        &mut self,
        place: Place,
        location: u64,
        checksum: Option<u32>,
        waiter: Option<Waiter>,
        mut is_scrubbed: bool,
    ) -> bool {
        let Some(checksum) = checksum.filter(|_| self.repairs.enabled && !self.closing) else { return false };
        if self.is_overwritten(place, location) {
            waiter.into_iter().for_each(|waiter| self.read_anew(waiter));
            return true;
        }
        if let Some(bad) = self.repairs.blocks.get_mut(&place) {
            if bad.location == location && bad.checksum == checksum {
                match &bad.state {
                    State::Queued | State::Asked(_) => {
                        bad.waiters.extend(waiter);
                        return true;
                    }
                    State::Writing(data) => {
                        let data = data.clone();
                        if let Some(waiter) = waiter {
                            self.give_good(waiter, &data);
                        }
                        return true;
                    }
                    State::Failed | State::Checking => {}
                }
            }
            is_scrubbed |= bad.scrub == self.repairs.scrub && bad.scrub > 0;
            let waiters = self.forget_bad(place);
            waiters.into_iter().for_each(|waiter| self.read_anew(waiter));
        }
        if self.repairs.blocks.len() >= BAD_BLOCKS_MAX {
            return false;
        }
        let segment = self.segments.get_mut(self.geometry.segment_of(location));
        segment.readers += 1;
        let (generation, state) = (segment.generation, State::Queued);
        let waiters = waiter.into_iter().collect();
        self.repairs.blocks.insert(place, Bad { location, generation, checksum, state, waiters, scrub: 0 });
        // The same block, if it is asked for anew, is still one that the scrub found. Others may find some before it comes there.
        if is_scrubbed || self.is_scrubbing() {
            self.repairs.found_by_scrub(place, !is_scrubbed);
        }
        self.repairs.queue.push_back(place);
        self.ask_for_blocks();
        true
    }

    /// Whether the cleaner leaves a bad block where it is, for it is being repaired.
    pub(crate) fn leaves_to_repair(&mut self, place: Place, location: u64, checksum: u32) -> bool {
        !self.is_given_up(place, location, checksum) && self.note_bad(place, location, Some(checksum), None)
    }

    /// Whether a block was bad before just where it is now, and nobody is being asked for it any more. What is known of another place
    /// says nothing of this one.
    pub(crate) fn is_given_up(&self, place: Place, location: u64, checksum: u32) -> bool {
        let generation = self.segments.get(self.geometry.segment_of(location)).generation;
        let is_it =
            |bad: &Bad| (bad.location, bad.generation, bad.checksum) == (location, generation, checksum);
        self.repairs.blocks.get(&place).is_some_and(|bad| !bad.is_held() && is_it(bad))
    }

    fn ask_for_blocks(&mut self) {
        while self.repairs.asked.len() < ASKED_MAX {
            let Some(place) = self.repairs.queue.pop_front() else { return };
            let Some(bad) = self.repairs.blocks.get_mut(&place).filter(|bad| bad.state == State::Queued)
            else {
                continue;
            };
            let repair = RepairToken(self.repairs.token_next);
            self.repairs.token_next += 1;
            bad.state = State::Asked(repair);
            self.repairs.asked.push((repair, place));
            let (layer, chunk, block) = place;
            self.actions.push_back(Action::Repair { repair, layer: LayerId(layer), chunk, block });
        }
    }

    /// Forgets a bad block; gives who waited for it.
    fn forget_bad(&mut self, place: Place) -> Vec<Waiter> {
        let Some(bad) = self.repairs.blocks.remove(&place) else { return Vec::new() };
        if bad.is_held() {
            self.segments.remove_reader(self.geometry.segment_of(bad.location));
        }
        if bad.state == State::Failed {
            self.repairs.failed -= 1;
        }
        if bad.scrub == self.repairs.scrub && bad.scrub > 0 {
            self.repairs.scrub_left -= 1;
        }
        self.repairs.asked.retain(|(_, asked)| *asked != place);
        bad.waiters
    }

    /// Gives data of another copy for a bad block. False: it is not the version that was lost; others may be asked, and
    /// [`Shard::cannot_repair`] ends it.
    pub fn repair(&mut self, repair: RepairToken, block: &[u8]) -> bool {
        let Some(&(_, place)) = self.repairs.asked.iter().find(|(asked, _)| *asked == repair) else {
            // It is over: the block was overwritten.
            return true;
        };
        let Some(bad) = self.repairs.blocks.get_mut(&place) else { return true };
        if block.len() != BLOCK_BYTES || crc32c_block(block) != bad.checksum {
            return false;
        }
        let (location, checksum) = (bad.location, bad.checksum);
        let waiters = std::mem::take(&mut bad.waiters);
        self.repairs.asked.retain(|(asked, _)| *asked != repair);
        if self.poisoned.is_some() || self.closing {
            self.set_failed(place);
        } else if self.is_overwritten(place, location) {
            self.forget_bad(place);
        } else {
            if let Some(bad) = self.repairs.blocks.get_mut(&place) {
                bad.state = State::Writing(block.to_vec());
            }
            self.append_repair(place, location, checksum, block);
        }
        waiters.into_iter().for_each(|waiter| self.give_good(waiter, block));
        self.ask_for_blocks();
        true
    }

    /// No other copy gives good data for a bad block. `is_lost`: each that counts has said that it has none; otherwise some
    /// may have it, and did not answer.
    pub fn cannot_repair(&mut self, repair: RepairToken, is_lost: bool) {
        let Some(&(_, place)) = self.repairs.asked.iter().find(|(asked, _)| *asked == repair) else { return };
        let Some(bad) = self.repairs.blocks.get_mut(&place) else { return };
        let location = bad.location;
        let waiters = std::mem::take(&mut bad.waiters);
        self.repairs.asked.retain(|(asked, _)| *asked != repair);
        if self.is_overwritten(place, location) {
            self.forget_bad(place);
            waiters.into_iter().for_each(|waiter| self.read_anew(waiter));
        } else {
            self.set_failed(place);
            waiters.into_iter().for_each(|waiter| self.waiter_fails(waiter, is_lost));
        }
        self.ask_for_blocks();
    }

    fn set_failed(&mut self, place: Place) {
        let Some(bad) = self.repairs.blocks.get_mut(&place) else { return };
        let segment = self.geometry.segment_of(bad.location);
        if bad.is_held() {
            self.segments.remove_reader(segment);
        }
        bad.state = State::Failed;
        self.repairs.failed += 1;
        if self.repairs.failed == 1 {
            self.repairs.recheck_ns = self.now_ns + RECHECK_NS;
        }
    }

    /// Whether the index points elsewhere by now, as far as it is in memory.
    pub(crate) fn is_overwritten(&mut self, (layer, chunk, block): Place, location: u64) -> bool {
        let region = (block as usize / REGION_BLOCKS) as u8;
        match self.index.region_mut(RegionKey { layer, chunk, region }) {
            None => true,
            Some(region) if matches!(region.map, Map::Absent) => false,
            Some(region) => region.location(block as usize % REGION_BLOCKS) != location,
        }
    }

    /// Puts a move of a single block into the log, with good data.
    pub(crate) fn append_repair(&mut self, place: Place, location: u64, checksum: u32, block: &[u8]) {
        let (layer, chunk, number) = place;
        let context = Context::new(LayerId(layer), 0);
        let data_blocks_max = self.frame_room(Head::Cold);
        let builder = &self.log.stream(Head::Cold).building;
        let is_full = builder.room_bytes(&context, None) < MOVE_BYTES + MOVE_BLOCK_BYTES
            || builder.data_blocks >= data_blocks_max;
        if is_full && !builder.is_empty() {
            self.rotate(Head::Cold);
        }
        self.pin(layer, chunk, number, 1);
        let segment = self.geometry.segment_of(location);
        let origin = (segment, self.segments.get(segment).generation);
        let builder = &mut self.log.stream(Head::Cold).building;
        let entry = NewEntry {
            context: builder.context(context),
            group: None,
            kind: EntryKind::Move,
            chunk,
            start_block: number as u16,
            blocks: 1,
            data_offset: builder.data_blocks,
            sequence: 0,
            request: 0,
            continues: false,
            recovered: false,
        };
        builder.add_move(&entry, std::iter::once(checksum), std::iter::once(location), origin);
        builder.data_blocks += 1;
        builder.only_metadata = false;
        builder.buffer.extend_from_bytes(block);
    }

    /// A move has been applied, as far as it still counted: of a repair, or of the cleaner, which had read the block while
    /// it was good, or given it up before it was asked for again.
    pub(crate) fn moved(&mut self, entry: &Entry<'_>, header: &FrameHeader, body: &[u8]) {
        if self.repairs.blocks.is_empty() {
            return;
        }
        let layer = entry.context.layer().0;
        let data = header.location + u64::from(header.header_blocks) + u64::from(entry.data_offset);
        for (index, bytes) in body.chunks_exact(BLOCK_BYTES).enumerate() {
            let block = u32::from(entry.start_block) + index as u32;
            let place = (layer, entry.chunk, block);
            let source = entry.source(index);
            let Some(bad) = self.repairs.blocks.get_mut(&place).filter(|bad| bad.location == source) else {
                continue;
            };
            let location = data + index as u64;
            let is_bad = is_stand_in(bytes, self.drive, self.number, header.incarnation, entry, index);
            if !bad.is_held() {
                // Given up where it was, and no better where it is now: others are not asked anew for each of its moves.
                if is_bad && bad.state == State::Failed {
                    bad.location = location;
                    bad.generation = self.segments.get(self.geometry.segment_of(location)).generation;
                }
                continue;
            }
            let is_scrubbed = bad.scrub == self.repairs.scrub && bad.scrub > 0;
            let waiters = self.forget_bad(place);
            if is_bad {
                // As bad as it was, elsewhere. What was under way for the old place comes to nothing.
                self.note_again(place, location, Some(entry.checksum(index)), None, is_scrubbed);
            } else if !self.is_overwritten(place, location) {
                self.stats.repaired_blocks += 1;
                self.repairs.scrub_repaired += u64::from(is_scrubbed);
                let (layer, chunk) = (entry.context.layer(), entry.chunk);
                self.event(Event::Repaired { layer, chunk, block });
            }
            waiters.into_iter().for_each(|waiter| self.read_anew(waiter));
        }
        // Answers for what is forgotten let nobody go on: those that wait for their turn do so now.
        self.ask_for_blocks();
    }

    /// Blocks that could not be repaired are read again from time to time.
    pub(crate) fn repair_step(&mut self) {
        if self.repairs.failed == 0 || self.now_ns < self.repairs.recheck_ns || self.closing {
            return;
        }
        self.repairs.recheck_ns = self.now_ns + RECHECK_NS;
        let from = self.repairs.recheck_from;
        let later = self.repairs.blocks.range(from..).chain(self.repairs.blocks.range(..from));
        let failed = later.filter(|(_, bad)| bad.state == State::Failed).map(|(place, _)| *place);
        let places: Vec<Place> = failed.take(RECHECKED_MAX + 1).collect();
        self.repairs.recheck_from = places.get(RECHECKED_MAX).copied().unwrap_or_default();
        for place in places.into_iter().take(RECHECKED_MAX) {
            if let Some(bad) = self.repairs.blocks.get_mut(&place) {
                bad.state = State::Checking;
                self.repairs.failed -= 1;
                self.read_bad_again(place);
            }
        }
    }

    /// A bad block has been read again. If it was still bad it has been asked for, and is in another state.
    pub(crate) fn bad_was_read(&mut self, place: Place) {
        if self.repairs.blocks.get(&place).is_some_and(|bad| bad.state == State::Checking) {
            self.forget_bad(place);
        }
    }

    /// The shard closes: nobody will bring anything any more.
    pub(crate) fn end_repairs(&mut self) {
        let places: Vec<Place> = self.repairs.blocks.keys().copied().collect();
        for place in places {
            let Some(bad) = self.repairs.blocks.get_mut(&place) else { continue };
            if !matches!(bad.state, State::Queued | State::Asked(_)) {
                continue;
            }
            let waiters = std::mem::take(&mut bad.waiters);
            self.set_failed(place);
            waiters.into_iter().for_each(|waiter| self.waiter_fails(waiter, false));
        }
        self.repairs.asked.clear();
        self.repairs.queue.clear();
    }

    /// Where a block lies that no start replays any more, and its checksum, if its part of the index is in memory: for tests
    /// that damage it.
    #[doc(hidden)]
    pub fn settled_place(&mut self, layer: LayerId, chunk: u32, block: u32) -> Option<(u64, u32)> {
        let (location, checksum) = self.location_of(layer, chunk, block)??;
        let segment = self.segments.get(self.geometry.segment_of(location));
        let is_settled = segment.last_frame <= self.segments.covered_frame;
        is_settled.then(|| (self.geometry.offset_bytes(location), checksum))
    }

    /// Where a block lies, and its checksum, if it has data: for tests. Nothing if its part of the index is not in memory.
    #[doc(hidden)]
    pub fn place_of(&mut self, layer: LayerId, chunk: u32, block: u32) -> Option<Option<(u64, u32)>> {
        let found = self.location_of(layer, chunk, block)?;
        Some(found.map(|(location, checksum)| (self.geometry.offset_bytes(location), checksum)))
    }

    fn location_of(&mut self, layer: LayerId, chunk: u32, block: u32) -> Option<Option<(u64, u32)>> {
        let key = RegionKey { layer: layer.0, chunk, region: (block as usize / REGION_BLOCKS) as u8 };
        let Some(region) = self.index.region_mut(key) else { return Some(None) };
        if !region.is_complete() {
            return None;
        }
        let block = block as usize % REGION_BLOCKS;
        let location = region.location(block);
        let checksum = region.checksums.as_ref().and_then(|all| all.get(block)).copied();
        let has_data = location != 0 && location != ZEROES;
        Some(checksum.filter(|_| has_data).map(|checksum| (location, checksum)))
    }

    fn waiter_fails(&mut self, waiter: Waiter, is_lost: bool) {
        let goes_on = is_lost && self.goes_on_without(waiter);
        self.end_wait(waiter.read, (!goes_on).then_some(Failure::BadBlock));
    }
}
