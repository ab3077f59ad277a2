//! The cleaner: moves needed blocks out of emptier segments, so that these can be written again.
//!
//! A victim's footer says what was written there; the index says what of it is still needed. That is read, put in the
//! order of chunks (random writes become sequential reads again) and written to the cold stream, apart from what
//! users write. A moved block counts only if the index still points to where it came from. Three victims are under way at the
//! same time: the footer of one is read, the blocks of the second are looked up and read, those of the third go into the log.
//!
//! Invariants:
//! - a victim is freed by its counts alone, when its moves have been applied or nothing in it is needed any more: the cleaner frees
//!   nothing itself; a move that is sealed after its victim was written again has no effect;
//! - a block that is in the block cache is not read, nor one whose frame stayed in memory when it was moved last (`kept_frames.rs`);
//! - a block that is bad is left to be repaired; if it cannot be, it is moved with the checksum it should have: it stays bad,
//!   and is not lost sight of. One bad look is never enough for that: it must be bad in that very place a second time.

mod ahead;
mod moving;
mod reading;
mod score;
mod vain;

use std::collections::BTreeMap;

use coquina_base::{AlignedBuf, BLOCK_BYTES};

use crate::api::{Event, IoError};
use crate::footer::{self, Trailer};
use crate::frame::{EntryKind, FrameHeader, Head};
use crate::index_region::RegionKey;
use crate::index_run::REGION_BLOCKS;
use crate::segment::SegmentState;
use crate::shard::{IoPurpose, Shard};
use reading::{Got, Wanted, WindowRead};

/// Blocks of one read.
const READ_BLOCKS: u64 = 64;
/// Holes that are read over rather than starting a new read: one more read costs a drive as much as some 3 blocks, but the
/// processor, by estimate, as much as tens of them.
const GAP_BLOCKS: u64 = 16;
/// Blocks of the first read of a footer, until one was larger.
const FOOTER_BLOCKS: u64 = 4;
/// Reads at the same time where users may soon have to wait for room.
const READS_MAX: usize = 6;
/// The same where they have room: more would only be in the way of what they write.
const READS_CALM: usize = 1;
/// Blocks looked at together: they are sorted among themselves.
const WINDOW_ITEMS: usize = 2048;
/// Index pages read ahead.
const LOADS_MAX: u32 = 8;
/// Blocks put into the log per turn of the loop.
const MOVES_PER_TURN: usize = 256;
/// The same while users pause: each takes some 2 us, and what they ask meanwhile waits.
const MOVES_PER_IDLE_TURN: usize = 64;
/// Blocks that may be moved because users have written so many meanwhile.
const CREDIT_MAX: f64 = 1024.0;
/// Cold frames that may wait for their turn.
const QUEUE_MAX: usize = 2;
/// How long no frame of users may have gone to the drive, with none under way, for the cleaner to have the drive for itself: longer
/// than one who waits for each write may have to wait for one of other copies.
const PATIENCE_NS: u64 = 10_000_000;

/// Users that wrote something so long ago still count as active.
const ACTIVE_NS: u64 = 200_000_000;
/// When damaged segments are tried again.
const RETRY_NS: u64 = 20_000_000_000;
/// Tries in vain after which a drive that cannot make room for what waits takes no changes any more.
const RETRIES_MAX: u32 = 3;
/// Blocks that are kept in mind because they were bad once: as many as the largest segment has.
const BAD_ONCE_MAX: usize = 1 << 16;

/// A block of the victim.
#[derive(Clone, Copy, Debug)]
struct Item {
    layer: u64,
    chunk: u32,
    block: u16,
    checksum: u32,
    location: u64,
    /// The read that it comes with, once that is known.
    read: u32,
}

impl Item {
    fn place(&self) -> (u64, u32, u32) {
        (self.layer, self.chunk, u32::from(self.block))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Phase {
    #[default]
    Idle,
    /// What is still needed is looked up.
    Checking,
    /// It is on its way from the drive.
    Reading,
    /// It is here, and waits for the window before it to be in the log.
    Ready,
}

/// A segment that is to be emptied next. Its footer is read while the one before it is still looked up and read.
struct NextVictim {
    number: u32,
    /// What was written there, in order of location, last first; none while the footer is on its way.
    items: Option<Vec<Item>>,
}

/// Blocks that are in memory and go into the log, while the next ones are looked up and read.
struct MovingWindow {
    victim: u32,
    /// Whether the victim has no more.
    last: bool,
    items: Vec<Item>,
    reads: Vec<WindowRead>,
    moved: usize,
}

/// The cleaner's work.
#[derive(Default)]
pub struct CleanerTask {
    phase: Phase,
    next: Option<NextVictim>,
    /// Blocks to read for a footer at first.
    footer_blocks: u64,
    victim: u32,
    /// Blocks of the victim that are not looked at yet, in order of location, last first.
    todo: Vec<Item>,
    /// The window: what is checked, and then what is needed.
    window: Vec<Item>,
    checked: usize,
    /// Up to here pages of the index have been read ahead.
    pages_ahead: usize,
    needed: usize,
    /// What is needed; kept for its memory.
    wanted: Vec<Wanted>,
    reads: Vec<WindowRead>,
    moving: Option<MovingWindow>,
    /// Blocks that may be moved before users come first again.
    credit: f64,
    /// Blocks moved per block freed, of late.
    ratio: f64,
    hot_blocks_seen: u64,
    hot_blocks: u64,
    idle_since_ns: u64,
    ahead: ahead::Ahead,
    /// Whether part-filled cold frames may go out.
    pub flushing: bool,
    stuck: bool,
    /// Damaged segments are not tried again before.
    retry_ns: u64,
    /// How often they were tried again in vain while changes waited for room.
    retries: u32,
    /// Victims chosen so far.
    victims: u64,
    /// Victims chosen since room was last gained by it.
    vain: vain::Vain,
    /// Victims whose moves are on their way.
    settling: Vec<u32>,
    /// Victims of which blocks were left to be repaired, or to be read since they are not what they were in memory.
    left: Vec<u32>,
    /// Where blocks lie that were bad when they were read, and that nobody is asked for; with the generation of their segment.
    bad_once: BTreeMap<u64, u64>,
    waiting: bool,
}

impl CleanerTask {
    /// Whether nothing can be gained before a checkpoint or a trim.
    pub fn is_stuck(&self) -> bool {
        self.stuck
    }

    /// Whether damaged segments have been tried again often enough.
    pub fn has_given_up(&self) -> bool {
        self.retries >= RETRIES_MAX
    }

    /// When damaged segments are tried again.
    pub fn retry_ns(&self) -> u64 {
        self.retry_ns
    }

    /// Changes whenever the cleaner gets on. With all of a victim in memory, a turn may end with the next one where it began with
    /// this one: so victims are counted.
    pub fn progress(&self) -> [u64; 2] {
        let next = self.next.as_ref().map_or(0, |next| 1 + u64::from(next.items.is_some()));
        let flags = u64::from(self.flushing) << 59 | u64::from(self.stuck) << 58 | next << 56;
        let steps = (self.phase as u64) << 60
            | flags
            | (self.checked as u64) << 40
            | (self.moving.as_ref().map_or(0, |moving| moving.moved as u64 + 1)) << 20
            | self.todo.len() as u64;
        [steps, self.victims]
    }

    /// Whether it waits for users to pause.
    pub fn is_waiting(&self) -> bool {
        self.waiting
    }

    /// Whether there is no victim.
    fn is_at_rest(&self) -> bool {
        self.phase == Phase::Idle && self.next.is_none() && self.moving.is_none()
    }

    /// Counts what users write: the cleaner goes as fast as they do.
    pub fn count_hot(&mut self, blocks: u32) {
        self.hot_blocks += u64::from(blocks);
    }
}

impl Shard {
    fn cleaning_level(&self) -> u32 {
        self.hot_reserve() + 3 + self.segments.len() / 1024
    }

    /// Blocks of data that a segment of full frames holds.
    fn cold_blocks(&self) -> u32 {
        footer::cold_blocks(&self.geometry, self.frame_blocks_max_of(Head::Cold))
    }

    /// While nobody writes, only what gains much is cleaned: a full drive must come to rest.
    fn users_are_active(&self) -> bool {
        let waiting = self.log.streams[Head::Hot as usize].has_work();
        waiting || self.now_ns.saturating_sub(self.cleaner.idle_since_ns) < ACTIVE_NS
    }

    fn room(&self) -> u32 {
        self.segments.available() + self.segments.unprepared()
    }

    /// Whether there is so much room that the cleaner need not make any for those who write now.
    pub(crate) fn has_room(&self) -> bool {
        self.room() >= self.cleaning_level()
    }

    pub(crate) fn cleaner_step(&mut self) {
        self.note_what_is_asked();
        self.gain_credit();
        self.retry_damaged();
        self.cleaner.waiting = false;
        for _ in 0..4 {
            if self.cleaner.next.is_none() {
                self.choose_victim();
            }
            let before = self.cleaner.phase;
            match before {
                Phase::Idle => self.take_victim(),
                Phase::Checking => self.check_window(),
                Phase::Reading => self.read_window(),
                Phase::Ready => self.hand_over(),
            }
            if self.cleaner.phase == before {
                break;
            }
        }
        self.move_window();
        if self.cleaner.phase == Phase::Ready {
            self.hand_over();
        }
        self.settle();
        // Full frames only, as long as there are more moves to come: a part-filled one costs as much header. Not while it waits for those who
        // read: what is repaired lies in such a frame, too, and they may wait for that.
        let hot = &self.log.streams[Head::Hot as usize];
        let is_written = hot.in_flight > 0 || hot.has_work();
        let waits_for_reads =
            self.cleaner.waiting && self.has_room() && !self.reads.is_empty() && !is_written;
        self.cleaner.flushing = self.cleaner.is_at_rest() || waits_for_reads;
    }

    /// Goes on with the victim whose footer is here.
    fn take_victim(&mut self) {
        let goes_on = self.makes_room();
        let Some(NextVictim { number, items: Some(items) }) = &mut self.cleaner.next else { return };
        if !goes_on {
            let number = *number;
            self.cleaner.next = None;
            return self.segments.remove_reader(number);
        }
        self.cleaner.victim = *number;
        self.cleaner.todo = std::mem::take(items);
        self.cleaner.next = None;
        self.cleaner.phase = Phase::Checking;
        self.next_window();
    }

    fn gain_credit(&mut self) {
        let written = self.cleaner.hot_blocks - self.cleaner.hot_blocks_seen;
        self.cleaner.hot_blocks_seen = self.cleaner.hot_blocks;
        if written > 0 {
            self.cleaner.idle_since_ns = self.now_ns;
        }
        let (level, reserve, room) = (self.cleaning_level(), self.hot_reserve(), self.room());
        if room <= reserve {
            self.cleaner.credit = MOVES_PER_TURN as f64;
            return;
        }
        let do_not_write = self.now_ns.saturating_sub(self.cleaner.idle_since_ns) >= PATIENCE_NS
            && self.log.streams[Head::Hot as usize].in_flight == 0;
        let is_idle = if room < level { do_not_write } else { self.is_left_alone() };
        if is_idle {
            self.cleaner.credit = MOVES_PER_IDLE_TURN as f64;
            return;
        }
        if self.cleaner.is_at_rest() {
            // What users wrote while there was nothing to do is not made up for in one go, in front of what they write next.
            self.cleaner.credit = 0.0;
            return;
        }
        let urgency = f64::from(level.saturating_sub(room)) / f64::from(level - reserve);
        let ratio = self.cleaner.ratio.clamp(0.1, 20.0);
        let gained = written as f64 * ratio * (0.5 + 1.5 * urgency);
        self.cleaner.credit = (self.cleaner.credit + gained).min(CREDIT_MAX);
    }

    fn choose_victim(&mut self) {
        if !self.makes_room() || self.checkpoint_needs_room() {
            return;
        }
        let is_ahead = self.has_room();
        if is_ahead && !self.cleans_ahead() {
            return;
        }
        let applied = self.log.applied;
        let covered = self.segments.covered_frame;
        let most = f64::from(self.geometry.segment_blocks);
        // Of no use unless its blocks take less room than it gives: such a one is no victim, however good its score, or one that is of use
        // would not be chosen behind it, and changes on a full drive wait for ever.
        let cold = self.cold_blocks();
        let must_gain_much = is_ahead || !self.users_are_active();
        let live_max = if must_gain_much { cold / 4 * 3 } else { cold - cold.div_ceil(32) };
        let mut best: Option<(f64, u32)> = None;
        for number in 0..self.segments.len() {
            let segment = self.segments.get(number);
            let eligible = segment.state == SegmentState::Closed
                && segment.head != Head::Meta
                && (1..=live_max).contains(&segment.live)
                && !segment.damaged
                && segment.readers == 0
                && segment.last_frame <= covered;
            if !eligible {
                continue;
            }
            let used = f64::from(segment.live) / most;
            let gain = (1.0 - used) / (1.0 + used);
            if best.is_some_and(|(known, _)| gain <= known) {
                // Age only lowers it.
                continue;
            }
            let age = (applied - segment.last_frame) as f64 / (applied - covered + 1024) as f64;
            let score = score::score(gain, age);
            if best.is_none_or(|(known, _)| score > known) {
                best = Some((score, number));
            }
        }
        if self.is_in_vain() {
            best = None;
        }
        let Some((_, victim)) = best else {
            // What is moved now may yet make room.
            if self.cleaner.is_at_rest() {
                self.rest();
            }
            self.cleaner.stuck = !is_ahead && self.cleaner.phase == Phase::Idle;
            return;
        };
        let live = f64::from(self.segments.get(victim).live);
        let ratio = live / (f64::from(cold) - live).max(1.0);
        self.cleaner.ratio += (ratio - self.cleaner.ratio) / 8.0;
        self.cleaner.stuck = false;
        self.cleaner.next = Some(NextVictim { number: victim, items: None });
        self.cleaner.victims += 1;
        self.cleaner.vain.count();
        self.segments.get_mut(victim).readers += 1;
        let blocks = self.cleaner.footer_blocks.max(FOOTER_BLOCKS);
        self.read_footer_of(victim, blocks.min(u64::from(self.geometry.segment_blocks)));
    }

    fn mark_damaged(&mut self, victim: u32) {
        self.segments.set_damaged(victim, true);
        self.cleaner.retry_ns = self.now_ns + RETRY_NS;
    }

    /// What could not be read may be readable by now, so that its space is not lost.
    fn retry_damaged(&mut self) {
        let is_waited_for =
            self.log.streams[Head::Hot as usize].has_work() && self.room() <= self.hot_reserve();
        if !is_waited_for {
            // Those in vain for which nobody waited say nothing of the next: one may be damaged for long before room runs short.
            self.cleaner.retries = 0;
        }
        if self.segments.damaged() == 0 || self.now_ns < self.cleaner.retry_ns {
            return;
        }
        self.cleaner.retries = if is_waited_for && self.cleaner.stuck { self.cleaner.retries + 1 } else { 0 };
        self.cleaner.vain.try_again(self.segments.damaged());
        for number in 0..self.segments.len() {
            self.segments.set_damaged(number, false);
        }
    }

    /// Cold frames must not take the last segments from a checkpoint that is under way.
    fn checkpoint_needs_room(&self) -> bool {
        self.segments.available() <= self.meta_reserve() && !self.checkpoint.is_idle()
    }

    fn read_footer_of(&mut self, victim: u32, blocks: u64) {
        let end = self.geometry.segment_start(victim) + u64::from(self.geometry.segment_blocks);
        if let Some(footer) = self.kept_footer(victim, end) {
            return self.footer_read(footer, Ok(()), true);
        }
        self.issue_read(IoPurpose::Cleaner(u32::MAX), end - blocks, blocks as usize);
    }

    /// A footer that stayed in memory; `end` is the end of its segment.
    fn kept_footer(&mut self, victim: u32, end: u64) -> Option<AlignedBuf> {
        let trailer = Trailer::decode(self.kept_frames.find(victim, end - 1, 1)?)?;
        let blocks = u64::from(trailer.blocks.min(self.geometry.segment_blocks));
        let footer = self.kept_frames.find(victim, end - blocks, blocks)?;
        let mut buffer = self.pool.take(blocks as usize);
        buffer.clear();
        buffer.extend_from_bytes(footer);
        Some(buffer)
    }

    pub(crate) fn cleaner_read_done(&mut self, slot: u32, buffer: AlignedBuf, result: Result<(), IoError>) {
        if slot == u32::MAX {
            return self.footer_read(buffer, result, false);
        }
        let Some(read) = self.cleaner.reads.get_mut(slot as usize) else { return };
        read.failed = result.is_err();
        read.got = Got::Read(buffer);
        if read.failed && read.blocks > 1 {
            self.read_singly(slot);
        }
    }

    fn footer_read(&mut self, buffer: AlignedBuf, result: Result<(), IoError>, was_in_memory: bool) {
        let Some(victim) = self.cleaner.next.as_ref().map(|next| next.number) else {
            panic!("a footer that nobody waits for")
        };
        let end = self.geometry.segment_start(victim) + u64::from(self.geometry.segment_blocks);
        let trailer = match result {
            Ok(()) => Trailer::decode(&buffer[buffer.len() - BLOCK_BYTES..]),
            Err(_) => None,
        };
        let generation = self.segments.get(victim).generation;
        let trailer = trailer.filter(|trailer| {
            trailer.segment_generation == generation
                && trailer.blocks <= self.geometry.segment_blocks
                && trailer.location + u64::from(trailer.blocks) == end
        });
        if let Some(trailer) = trailer {
            let blocks = trailer.blocks as usize;
            // As large as they are of late: most come with one read.
            let seen = self.cleaner.footer_blocks;
            self.cleaner.footer_blocks = u64::from(trailer.blocks).max(seen - seen.div_ceil(16));
            if blocks > buffer.blocks() {
                self.pool.give(buffer);
                return self.read_footer_of(victim, blocks as u64);
            }
            let frame = &buffer[(buffer.blocks() - blocks) * BLOCK_BYTES..];
            if let Some(items) = self.items_of(frame, &trailer) {
                self.cleaner.next = Some(NextVictim { number: victim, items: Some(items) });
                self.pool.give(buffer);
                return;
            }
        }
        let blocks = buffer.blocks() as u64;
        self.pool.give(buffer);
        if was_in_memory {
            // It changed there.
            self.kept_frames.forget(victim);
            return self.read_footer_of(victim, blocks);
        }
        self.mark_damaged(victim);
        self.segments.remove_reader(victim);
        self.cleaner.next = None;
        let offset_bytes = self.geometry.offset_bytes(end - 1);
        self.event(Event::Damage { offset_bytes, reason: "the footer of a segment cannot be read" });
    }

    /// Everything that was written to the victim, last first.
    fn items_of(&self, frame: &[u8], trailer: &Trailer) -> Option<Vec<Item>> {
        let header = FrameHeader::peek(frame, self.drive, self.number)?;
        let intact = header.is_intact(&frame[..BLOCK_BYTES])
            && header.data_crc == coquina_base::crc32c_bytes(&frame[BLOCK_BYTES..]);
        if !intact {
            return None;
        }
        let mut items = Vec::new();
        for listed in footer::list(frame, &header, trailer.frames)? {
            let data = listed.header.location + u64::from(listed.header.header_blocks);
            let mut entries = listed.entries()?;
            while let Some(entry) = entries.next_entry() {
                let entry = entry?;
                if !matches!(entry.kind, EntryKind::Write | EntryKind::Move) {
                    continue;
                }
                for index in 0..usize::from(entry.blocks) {
                    items.push(Item {
                        layer: entry.context.layer().0,
                        chunk: entry.chunk,
                        block: entry.start_block + index as u16,
                        checksum: entry.checksum(index),
                        location: data + u64::from(entry.data_offset) + index as u64,
                        read: 0,
                    });
                }
            }
        }
        items.reverse();
        Some(items)
    }

    fn next_window(&mut self) {
        let from = self.cleaner.todo.len().saturating_sub(WINDOW_ITEMS);
        let mut window = std::mem::take(&mut self.cleaner.window);
        window.clear();
        window.extend(self.cleaner.todo.drain(from..));
        window.sort_unstable_by_key(|item| (item.layer, item.chunk, item.block, item.location));
        self.cleaner.window = window;
        self.cleaner.checked = 0;
        self.cleaner.pages_ahead = 0;
        self.cleaner.needed = 0;
        if self.cleaner.window.is_empty() {
            let victim = self.cleaner.victim;
            match &mut self.cleaner.moving {
                Some(moving) if moving.victim == victim => moving.last = true,
                _ => self.cleaner.settling.push(victim),
            }
            self.cleaner.phase = Phase::Idle;
        } else {
            self.cleaner.phase = Phase::Checking;
            for items in self.cleaner.window.chunk_by(|one, next| one.layer == next.layer) {
                self.index.look_at(items[0].layer, items.iter().map(|item| (item.chunk, item.block)));
            }
        }
    }

    /// Keeps the items that the index still points to; reads index pages that are not in memory.
    fn check_window(&mut self) {
        while self.cleaner.checked < self.cleaner.window.len() {
            let item = self.cleaner.window[self.cleaner.checked];
            let key = key_of(&item);
            if self.is_deleting(item.layer) {
                self.cleaner.checked += 1;
                continue;
            }
            let Some(region) = self.index.region_mut(key) else {
                self.cleaner.checked += 1;
                continue;
            };
            if matches!(region.map, crate::index_region::Map::Absent) {
                return self.load_ahead();
            }
            if region.location(usize::from(item.block) % REGION_BLOCKS) == item.location {
                let needed = self.cleaner.needed;
                self.cleaner.window[needed] = item;
                self.cleaner.needed += 1;
            }
            self.cleaner.checked += 1;
        }
        let needed = self.cleaner.needed;
        self.cleaner.window.truncate(needed);
        if needed == 0 {
            return self.next_window();
        }
        self.plan_reads();
        self.cleaner.phase = Phase::Reading;
    }

    fn load_ahead(&mut self) {
        let checked = self.cleaner.checked;
        let mut last = None;
        for index in
            std::iter::once(checked).chain(checked.max(self.cleaner.pages_ahead)..self.cleaner.window.len())
        {
            let key = key_of(&self.cleaner.window[index]);
            if last != Some(key) && self.pages_loading >= LOADS_MAX {
                return;
            }
            // Once: what was pushed out again before it was looked at waits until it is the next.
            self.cleaner.pages_ahead = self.cleaner.pages_ahead.max(index + 1);
            if last == Some(key) {
                continue;
            }
            last = Some(key);
            let absent = self.index.region_mut(key).is_some_and(|region| {
                matches!(region.map, crate::index_region::Map::Absent)
                    && !region.is_loading()
                    && !region.page.is_none()
            });
            if absent {
                self.load_page(key);
            }
        }
    }

    pub(crate) fn cleaner_page_loaded(&mut self) {
        if self.cleaner.phase == Phase::Checking {
            self.check_window();
        }
    }

    /// A victim is done when every move of it has been applied.
    fn settle(&mut self) {
        let cold = &self.log.streams[Head::Cold as usize];
        let moving =
            cold.has_work() || self.log.flights.iter().any(|flight| flight.header.head == Head::Cold);
        let mut index = 0;
        while index < self.cleaner.settling.len() {
            let victim = self.cleaner.settling[index];
            let live = self.segments.get(victim).live;
            // What else keeps it is about to end: reads, or a repair.
            let moving = moving || self.segments.get(victim).readers > 1;
            if live > 0 && (moving || self.cleaner.phase != Phase::Idle || self.cleaner.moving.is_some()) {
                index += 1;
                continue;
            }
            self.cleaner.settling.swap_remove(index);
            self.segments.remove_reader(victim);
            if !self.cleaner.bad_once.is_empty() {
                let (segments, geometry) = (&self.segments, &self.geometry);
                self.cleaner.bad_once.retain(|location, generation| {
                    let segment = segments.get(geometry.segment_of(*location));
                    segment.live > 0 && segment.generation == *generation
                });
            }
            let is_left = self.cleaner.left.contains(&victim);
            self.cleaner.left.retain(|left| *left != victim);
            if live == 0 {
                self.kept_frames.forget(victim);
                self.stats.cleaner_segments += 1;
                if self.has_gained() {
                    self.cleaner.retries = 0;
                }
            } else if self.layers_deleting.is_empty() && !is_left {
                // Blocks that cannot be read, or that the index does not point to: not to be tried for ever.
                self.mark_damaged(victim);
                self.event(Event::Damage {
                    offset_bytes: 0,
                    reason: "a segment holds blocks that cannot be read or that nothing points to",
                });
            }
        }
    }
}

fn key_of(item: &Item) -> RegionKey {
    RegionKey {
        layer: item.layer,
        chunk: item.chunk,
        region: (usize::from(item.block) / REGION_BLOCKS) as u8,
    }
}

impl std::fmt::Debug for CleanerTask {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("CleanerTask")
            .field("phase", &self.phase)
            .field("victim", &self.victim)
            .field("next", &self.next.as_ref().map(|next| next.number))
            .field("todo", &self.todo.len())
            .field("window", &(self.window.len(), self.checked, self.needed))
            .field("moving", &self.moving.as_ref().map(|moving| (moving.items.len(), moving.moved)))
            .field("settling", &self.settling)
            .field("credit", &self.credit)
            .field("stuck", &self.stuck)
            .field("waiting", &self.waiting)
            .finish_non_exhaustive()
    }
}
