//! Trims: what they leave in memory, in checkpoints, and behind a power cut.

use std::collections::{BTreeMap, BTreeSet};

use coquina_base::LayerId;

use super::*;
use crate::api::{
    Action, Device, FormatOptions, Identity, MapKind, Operation, Origin, Request, RequestToken, ShardConfig,
};
use crate::check::{check_drive, format_drive};
use crate::index_region::Dense;
use crate::memory_drive::Memory;

mod full_drives;

/// What a block holds: nothing, zeros whose space is reserved, or a tag.
const HOLE: u64 = 0;
const RESERVED: u64 = u64::MAX;
const REGION: u32 = REGION_BLOCKS as u32;
const AMPLE: u64 = 1 << 30;

/// Small, fast and repeatable.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

impl Memory {
    fn formatted(bytes: usize) -> Memory {
        let mut drive = Memory(vec![0; bytes]);
        let options = FormatOptions {
            identity: Identity::default(),
            shards: 1,
            segment_bytes: 64 << 10,
            prewrite: false,
            created_unix_ns: 1,
        };
        format_drive(&mut drive, &options).unwrap();
        drive
    }
}

/// A shard with its drive, and what is on its way between them.
struct World {
    drive: Memory,
    shard: Shard,
    now_ns: u64,
    requests: u64,
    under_way: Vec<Action>,
    done: BTreeMap<u64, Outcome>,
}

impl World {
    fn open(mut drive: Memory, index_memory_bytes: u64) -> World {
        let config = ShardConfig { index_memory_bytes, cache_bytes: 0, ..ShardConfig::default() };
        let shard = Shard::open(&mut drive, 0, 1, config).unwrap();
        World { drive, shard, now_ns: 1, requests: 0, under_way: Vec::new(), done: BTreeMap::new() }
    }

    /// Opens the drive as it is; what is under way is lost.
    fn reopened(self) -> World {
        let requests = self.requests;
        World { requests, ..World::open(self.drive, self.shard.config.index_memory_bytes) }
    }

    fn closed(mut self) -> World {
        self.shard.close();
        self.settle();
        assert!(self.shard.is_closed(), "{:?}", self.shard);
        self.reopened()
    }

    fn submit(&mut self, layer: u64, chunk: u32, first: u32, blocks: u32, operation: Operation<'_>) -> u64 {
        self.requests += 1;
        self.shard.submit(Request {
            token: RequestToken(self.requests),
            layer: LayerId(layer),
            chunk,
            offset_bytes: first * BLOCK_BYTES as u32,
            length_bytes: blocks * BLOCK_BYTES as u32,
            origin: Origin::default(),
            operation,
        });
        self.requests
    }

    fn write(&mut self, layer: u64, chunk: u32, first: u32, blocks: u32) -> u64 {
        let tag = self.requests + 1;
        let payload = tag.to_le_bytes().repeat(blocks as usize * BLOCK_BYTES / 8);
        self.submit(layer, chunk, first, blocks, Operation::Write { payload: &payload, checksums_le: &[] })
    }

    /// Writes a block that must not take room.
    fn write_over(&mut self, layer: u64, chunk: u32, block: u32) -> u64 {
        self.requests += 1;
        let payload = self.requests.to_le_bytes().repeat(BLOCK_BYTES / 8);
        self.shard.submit(Request {
            token: RequestToken(self.requests),
            layer: LayerId(layer),
            chunk,
            offset_bytes: block * BLOCK_BYTES as u32,
            length_bytes: BLOCK_BYTES as u32,
            origin: Origin { replaces_only: true, ..Origin::default() },
            operation: Operation::Write { payload: &payload, checksums_le: &[] },
        });
        self.requests
    }

    fn turn(&mut self) {
        self.now_ns += 1_000;
        self.shard.turn(self.now_ns);
        self.take_actions();
    }

    fn take_actions(&mut self) {
        while let Some(action) = self.shard.next_action() {
            match action {
                Action::Done { token, outcome } => {
                    self.done.insert(token.0, outcome);
                }
                Action::Write { .. } | Action::Read { .. } => self.under_way.push(action),
                Action::Event(Event::Checkpoint { .. }) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn complete(&mut self, index: usize) {
        match self.under_way.remove(index) {
            Action::Write { io, offset_bytes, buffer } => {
                let result = self.drive.write(offset_bytes, &buffer);
                self.shard.io_done(io, buffer, result);
            }
            Action::Read { io, offset_bytes, mut buffer } => {
                let result = self.drive.read(offset_bytes, &mut buffer);
                self.shard.io_done(io, buffer, result);
            }
            other => panic!("{other:?}"),
        }
        self.take_actions();
    }

    /// Lets everything come to its end.
    fn settle(&mut self) {
        loop {
            self.turn();
            let is_idle = self.under_way.is_empty();
            while !self.under_way.is_empty() {
                self.complete(0);
            }
            let wakes = self.shard.next_wake_ns().is_some_and(|wake_ns| wake_ns <= self.now_ns);
            if is_idle && !wakes {
                return;
            }
        }
    }

    fn checkpoint(&mut self) {
        self.shard.start_checkpoint();
        self.settle();
    }

    /// Takes the outcomes of all changes, which must have succeeded.
    fn all_changed(&mut self) {
        for (token, outcome) in std::mem::take(&mut self.done) {
            assert!(matches!(outcome, Outcome::Changed), "{token}: {outcome:?}");
        }
    }

    fn region(&mut self, key: RegionKey) -> &mut Region {
        self.shard.index.region_mut(key).unwrap()
    }

    fn pages(&self) -> usize {
        let mut pages = 0;
        self.shard.index.for_each_page(|_, _| pages += 1);
        pages
    }

    fn chunks(&self) -> BTreeSet<(u64, u32)> {
        let mut chunks = BTreeSet::new();
        for layer in [1, 2] {
            let mut from = 0;
            while let Some(chunk) = self.shard.next_chunk(LayerId(layer), from) {
                chunks.insert((layer, chunk));
                from = chunk + 1;
            }
        }
        chunks
    }

    fn holds_nothing(&mut self) {
        assert_eq!((self.chunks().len(), self.pages(), self.shard.layers().len()), (0, 0, 0));
        assert_eq!(self.shard.stats().index_memory_bytes, 0);
        // Last: it takes out of memory what is of no use there.
        self.shard.verify().unwrap();
    }

    /// What the blocks of a chunk hold.
    fn contents(&mut self, layer: u64, chunk: u32) -> Vec<u64> {
        let map = self.submit(layer, chunk, 0, CHUNK_BLOCKS, Operation::Map);
        self.settle();
        let Some(Outcome::Map(extents)) = self.done.remove(&map) else { panic!("no map of chunk {chunk}") };
        let mut values = Vec::new();
        for extent in extents {
            let blocks = extent.length_bytes as usize / BLOCK_BYTES;
            match extent.kind {
                MapKind::Hole => values.resize(values.len() + blocks, HOLE),
                MapKind::Zeroes => values.resize(values.len() + blocks, RESERVED),
                MapKind::Data => {
                    let first = values.len() as u32;
                    let read = self.submit(layer, chunk, first, blocks as u32, Operation::Read);
                    self.settle();
                    let Some(Outcome::Read(data)) = self.done.remove(&read) else {
                        panic!("{chunk}: {first}")
                    };
                    let tag = |block: &[u8]| u64::from_le_bytes(block[..8].try_into().unwrap());
                    values.extend(data.to_bytes().chunks(BLOCK_BYTES).map(tag));
                }
            }
        }
        assert_eq!(values.len(), CHUNK_BLOCKS as usize);
        values
    }
}

#[test]
fn a_trim_of_holes_leaves_nothing_behind() {
    const CHUNKS: u32 = 100_000;
    let mut world = World::open(Memory::formatted(64 << 20), AMPLE);
    // Twice, so that its page replaces another in the checkpoint, as it will behind the trims.
    for _ in 0..2 {
        world.write(1, 5, 300, 1);
        world.settle();
        world.checkpoint();
    }
    let figures = |world: &World| {
        let stats = world.shard.stats();
        (stats.index_memory_bytes, world.shard.meta_reserve(), world.shard.checkpoint.table_bytes_last)
    };
    let before = figures(&world);
    // Beside what is there, too, as mkfs does on a large volume.
    for chunk in 0..CHUNKS {
        if chunk == 5 {
            world.submit(1, chunk, 0, 300, Operation::Trim);
            world.submit(1, chunk, 301, CHUNK_BLOCKS - 301, Operation::WriteZeroes { no_hole: false });
        } else {
            world.submit(1, chunk, 0, CHUNK_BLOCKS, Operation::Trim);
        }
        if chunk % 2_000 == 0 {
            world.settle();
        }
    }
    world.settle();
    world.all_changed();
    assert_eq!(world.chunks(), BTreeSet::from([(1, 5)]));
    // The region of that one block was trimmed around it.
    assert!(world.shard.dirty.len() <= 1, "{} regions are dirty", world.shard.dirty.len());
    world.checkpoint();
    assert_eq!(figures(&world), before);
    // So does what was trimmed before a checkpoint ever saw it.
    for chunk in 10..200 {
        world.write(1, chunk, 0, 2);
        world.submit(1, chunk, 0, CHUNK_BLOCKS, Operation::Trim);
    }
    world.settle();
    world.all_changed();
    // The page of what is there replaces another again.
    world.write(1, 5, 300, 1);
    world.settle();
    world.checkpoint();
    assert_eq!(figures(&world), before);
    // The same on replay, also of a layer in which nothing ever was.
    for chunk in 0..2_000 {
        world.submit(1 + u64::from(chunk % 2), 6 + chunk, 0, CHUNK_BLOCKS, Operation::Trim);
    }
    world.settle();
    world.all_changed();
    let mut world = world.reopened();
    assert!(world.shard.stats().replayed_entries >= 2_000);
    assert_eq!(world.chunks(), BTreeSet::from([(1, 5)]));
    assert!(world.shard.stats().index_memory_bytes <= before.0);
    assert!(world.shard.dirty.is_empty());
    world.submit(1, 5, 0, CHUNK_BLOCKS, Operation::Trim);
    world.settle();
    world.checkpoint();
    world.holds_nothing();
    world.closed().holds_nothing();
}

/// A region that was written block by block, in such an order that it takes the dense form.
fn fragmented() -> (World, RegionKey, Vec<u32>) {
    let mut world = World::open(Memory::formatted(16 << 20), AMPLE);
    let mut dice = Dice(5);
    let mut order: Vec<u32> = (REGION..2 * REGION).collect();
    for index in (1..order.len()).rev() {
        order.swap(index, dice.below(index as u64 + 1) as usize);
    }
    for block in &order {
        world.write(1, 9, *block, 1);
    }
    world.settle();
    world.all_changed();
    let key = RegionKey { layer: 1, chunk: 9, region: 1 };
    assert!(matches!(world.region(key).map, Map::Dense(_)));
    (world, key, order)
}

#[test]
fn a_fragmented_region_that_was_trimmed_has_no_page() {
    for (is_whole, has_page) in [(true, true), (true, false), (false, true), (false, false)] {
        let (mut world, _, order) = fragmented();
        if has_page {
            world.checkpoint();
            assert_eq!(world.pages(), 1);
        }
        if is_whole {
            world.submit(1, 9, 0, CHUNK_BLOCKS, Operation::Trim);
        } else {
            for block in order.iter().rev() {
                world.submit(1, 9, *block, 1, Operation::Trim);
            }
        }
        world.settle();
        world.all_changed();
        world.checkpoint();
        world.holds_nothing();
        world.closed().holds_nothing();
    }
}

/// Zeros whose space is reserved are not holes.
#[test]
fn a_fragmented_region_with_reserved_zeros_stays() {
    let (mut world, key, order) = fragmented();
    for block in &order {
        let last = *block == order[200];
        let operation = if last { Operation::WriteZeroes { no_hole: true } } else { Operation::Trim };
        world.submit(1, 9, *block, 1, operation);
    }
    world.settle();
    world.all_changed();
    assert!(!matches!(world.region(key).map, Map::Empty));
    let mut world = world.closed();
    assert_eq!((world.chunks(), world.pages()), (BTreeSet::from([(1, 9)]), 1));
    let contents = world.contents(1, 9);
    for (block, value) in contents.iter().enumerate() {
        assert_eq!(*value, if block as u32 == order[200] { RESERVED } else { HOLE }, "block {block}");
    }
}

/// A page of nothing, as programs before this one wrote them, goes when it is read.
#[test]
fn a_page_of_nothing_goes_when_it_is_read() {
    let (mut world, key, _) = fragmented();
    world.submit(1, 9, 0, CHUNK_BLOCKS, Operation::Trim);
    world.settle();
    let holes: Box<Dense> = Box::new([[0; 5]; REGION_BLOCKS]);
    world.shard.with_region(key, |region| region.map = Map::Dense(holes));
    world.checkpoint();
    let mut world = world.closed();
    assert_eq!((world.chunks(), world.pages()), (BTreeSet::from([(1, 9)]), 1));
    let read = world.submit(1, 9, REGION, 1, Operation::Read);
    world.settle();
    assert!(matches!(world.done.remove(&read), Some(Outcome::Read(_))));
    world.checkpoint();
    world.holds_nothing();
    world.closed().holds_nothing();
}

/// An empty region follows an older page that is on its way with a page of its own. It is of no use once both are there.
#[test]
fn a_page_that_only_followed_another_goes() {
    let mut world = World::open(Memory::formatted(16 << 20), AMPLE);
    world.write(1, 0, 3, 1);
    world.settle();
    let key = RegionKey { layer: 1, chunk: 0, region: 0 };
    let trim = world.submit(1, 0, 3, 1, Operation::Trim);
    world.turn();
    assert_eq!(world.under_way.len(), 1, "only the trim is on its way");
    // As to make room in memory.
    world.shard.write_page(key);
    world.complete(0);
    assert!(matches!(world.done.remove(&trim), Some(Outcome::Changed)));
    let region = world.region(key);
    assert!(matches!(region.map, Map::Empty) && region.is_dirty() && region.writing == 1, "{region:?}");
    world.shard.start_checkpoint();
    world.turn();
    assert_eq!(world.region(key).writing, 2, "the checkpoint has written an empty page");
    world.settle();
    world.holds_nothing();
    world.reopened().holds_nothing();
}

/// Where a whole volume is trimmed, some trim is always under way: a write on a full drive waited until there was none at all.
#[test]
fn writes_on_a_full_drive_wait_only_for_the_trims_that_matter_to_them() {
    let mut world = World::open(Memory::formatted(16 << 20), AMPLE);
    world.write(1, 0, 0, 2);
    world.settle();
    world.shard.capacity_blocks = 2;
    world.submit(1, 0, 1, 1, Operation::Trim);
    world.turn();
    world.all_changed();
    let replacing = [0, 1].map(|block| world.write_over(1, 0, block));
    let new = world.write(1, 0, 5, 1);
    let too_much = world.write(1, 0, 6, 1);
    for _ in 0..5 {
        // In the log before the one that is on its way is applied.
        world.submit(1, 9, 0, 1, Operation::Trim);
        world.complete(0);
        assert!(!world.shard.trims_under_way.is_empty());
        world.turn();
    }
    let outcomes = [replacing[0], replacing[1], new].map(|token| world.done.remove(&token));
    assert!(matches!(outcomes[0], Some(Outcome::Changed)), "{outcomes:?}");
    assert!(
        matches!(outcomes[1], Some(Outcome::Failed(Failure::NoSpace))),
        "it is a hole by then: {outcomes:?}"
    );
    assert!(matches!(outcomes[2], Some(Outcome::Changed)), "there is room by then: {outcomes:?}");
    let refused = world.done.remove(&too_much);
    assert!(
        matches!(refused, Some(Outcome::Failed(Failure::NoSpace))),
        "not behind trims that came later: {refused:?}"
    );
    world.settle();
    world.all_changed();
    assert_eq!(world.contents(1, 0)[..6], [replacing[0], HOLE, HOLE, HOLE, HOLE, new]);
    world.shard.verify().unwrap();
}

/// The pages of what is deleted must be read to know what they free: a stop waited until that was done for the whole layer.
#[test]
fn a_stop_does_not_wait_until_a_deleted_layer_is_freed() {
    const CHUNKS: u32 = 200;
    // Nothing of the index stays in memory.
    let mut world = World::open(Memory::formatted(64 << 20), 1);
    for chunk in 0..CHUNKS {
        world.write(1, chunk, 7, 1);
        world.settle();
    }
    world.all_changed();
    world.checkpoint();
    let delete = world.submit(1, 0, 0, 1, Operation::DeleteLayer);
    world.turn();
    world.complete(0);
    assert!(matches!(world.done.remove(&delete), Some(Outcome::Changed)));
    world.shard.close();
    // As a server does: it looks whether the stop has ended behind each turn.
    world.turn();
    while !world.shard.is_closed() {
        while !world.under_way.is_empty() {
            world.complete(0);
        }
        world.turn();
    }
    assert_eq!(world.shard.stats().live_bytes, u64::from(CHUNKS) * BLOCK_BYTES as u64);
    let mut world = world.reopened();
    assert!(world.shard.layers().is_empty(), "nobody sees it any more");
    world.settle();
    assert_eq!((world.shard.stats().live_bytes, world.chunks().len(), world.pages()), (0, 0, 0));
    world.shard.verify().unwrap();
}

/// Chunks of two layers: the first three on both sides of a leaf's end.
const CHUNKS: [(u64, u32); 4] = [(1, 0), (1, 63), (1, 64), (2, 500)];

/// A change: what a range holds from then on.
struct Change {
    token: u64,
    layer: u64,
    chunk: u32,
    first: u32,
    blocks: u32,
    value: u64,
}

/// A shard beside a plain table of what it should hold.
struct Trial {
    world: World,
    dice: Dice,
    /// Few chunks are written: then regions become dense.
    is_narrow: bool,
    table: BTreeMap<(u64, u32), Vec<u64>>,
    batch: Vec<Change>,
    /// Dense regions seen.
    dense: usize,
}

impl Trial {
    fn new(seed: u64) -> Trial {
        let index_memory_bytes = if seed % 3 == 0 { 1 } else { AMPLE };
        let empty = || vec![HOLE; CHUNK_BLOCKS as usize];
        Trial {
            world: World::open(Memory::formatted(16 << 20), index_memory_bytes),
            dice: Dice(seed),
            is_narrow: seed % 2 == 0,
            table: CHUNKS.iter().map(|place| (*place, empty())).collect(),
            batch: Vec::new(),
            dense: 0,
        }
    }

    fn change(&mut self, is_filling: bool) {
        let places = if self.is_narrow { 1 } else { CHUNKS.len() as u64 };
        let (mut layer, mut chunk) = CHUNKS[self.dice.below(places) as usize];
        let region = if self.is_narrow { 0 } else { self.dice.below(2) as u32 * 2 };
        let mut first = region * REGION + self.dice.below(u64::from(REGION)) as u32;
        let is_short = self.is_narrow && is_filling;
        let longest = if is_short { 1 } else { [1, 1, 1, 12, 40][self.dice.below(5) as usize] };
        let mut blocks = (1 + self.dice.below(longest) as u32).min((region + 1) * REGION - first);
        let kind = self.dice.below(12) + if is_filling { 8 } else { 0 };
        let mut value = HOLE;
        match kind {
            0 => (layer, chunk, first, blocks) = (1 + longest % 2, 1000 + first, 0, CHUNK_BLOCKS),
            1 => (first, blocks) = (0, CHUNK_BLOCKS),
            2 => (first, blocks) = (region * REGION, REGION),
            3..=8 => {}
            9 => value = RESERVED,
            _ => value = self.world.requests + 1,
        }
        let token = match value {
            HOLE => self.world.submit(layer, chunk, first, blocks, Operation::Trim),
            RESERVED => {
                let operation = Operation::WriteZeroes { no_hole: true };
                self.world.submit(layer, chunk, first, blocks, operation)
            }
            _ => self.world.write(layer, chunk, first, blocks),
        };
        self.batch.push(Change { token, layer, chunk, first, blocks, value });
    }

    /// Lets a little of what is under way come to its end, in any order.
    fn some_steps(&mut self, steps_max: u64) {
        for _ in 0..self.dice.below(steps_max) {
            self.world.turn();
            if !self.world.under_way.is_empty() {
                let index = self.dice.below(self.world.under_way.len() as u64) as usize;
                self.world.complete(index);
            }
        }
    }

    /// What a block may hold: what the last change of it that was answered made of it, or a later one.
    fn allowed(&self, place: (u64, u32), block: u32) -> Vec<u64> {
        let mut allowed = vec![self.table[&place][block as usize]];
        for change in &self.batch {
            let range = change.first..change.first + change.blocks;
            if (change.layer, change.chunk) == place && range.contains(&block) {
                if self.world.done.contains_key(&change.token) {
                    allowed.clear();
                }
                allowed.push(change.value);
            }
        }
        allowed
    }

    /// Compares everything, and goes on with what is there.
    fn compare(&mut self, what: &str) {
        for place in CHUNKS {
            let allowed: Vec<_> = (0..CHUNK_BLOCKS).map(|block| self.allowed(place, block)).collect();
            let contents = self.world.contents(place.0, place.1);
            for (block, (value, allowed)) in contents.iter().zip(allowed).enumerate() {
                assert!(
                    allowed.contains(value),
                    "{what}: {place:?}, block {block}: {value}, not {allowed:?}"
                );
            }
            self.table.insert(place, contents);
        }
        self.batch.clear();
        self.world.done.clear();
        self.world.shard.verify().unwrap();
    }

    /// Behind a checkpoint with nothing under way, no more is known than what holds something.
    fn compare_index(&mut self) {
        let holds = |values: &[u64]| values.iter().any(|value| *value != HOLE);
        let held = self.table.iter().filter(|(_, values)| holds(values)).map(|(place, _)| *place);
        let held: BTreeSet<_> = held.collect();
        assert_eq!(self.world.chunks(), held);
        let regions = self.table.values().flat_map(|values| values.chunks(REGION_BLOCKS));
        assert_eq!(self.world.pages(), regions.filter(|region| holds(region)).count());
        self.world.shard.verify().unwrap();
        if held.is_empty() {
            self.world.holds_nothing();
        }
    }

    fn round(&mut self) {
        let is_filling = self.dice.below(2) == 0;
        if self.dice.below(3) == 0 {
            self.world.shard.start_checkpoint();
        }
        let changes_max = if self.is_narrow && is_filling { 500 } else { 60 };
        for _ in 0..=self.dice.below(changes_max) {
            self.change(is_filling);
            if self.dice.below(8) == 0 {
                self.some_steps(4);
            }
        }
        if self.dice.below(4) == 0 {
            self.some_steps(12);
            return self.cut();
        }
        self.world.settle();
        let is_answered =
            |change: &Change| matches!(self.world.done.get(&change.token), Some(Outcome::Changed));
        assert!(self.batch.iter().all(is_answered), "{:?}", self.world.done);
        self.compare("in operation");
        let (layer, chunk) = CHUNKS[0];
        let region = self.world.shard.index.region_mut(RegionKey { layer, chunk, region: 0 });
        self.dense += usize::from(region.is_some_and(|region| matches!(region.map, Map::Dense(_))));
        match self.dice.below(4) {
            0 => {}
            1 => {
                self.reopen(World::closed);
                self.compare_index();
            }
            _ => {
                self.world.checkpoint();
                self.compare_index();
            }
        }
    }

    /// The power fails: of what is under way, some reaches the drive, whole or in part.
    fn cut(&mut self) {
        for action in std::mem::take(&mut self.world.under_way) {
            let Action::Write { offset_bytes, mut buffer, .. } = action else { continue };
            match self.dice.below(3) {
                0 => continue,
                1 => buffer.resize_blocks(buffer.blocks().div_ceil(2)),
                _ => {}
            }
            self.world.drive.write(offset_bytes, &buffer).unwrap();
        }
        let done = std::mem::take(&mut self.world.done);
        self.reopen(World::reopened);
        self.world.done = done;
        self.compare("behind a power cut");
    }

    fn reopen(&mut self, how: fn(World) -> World) {
        // The place of the world is needed only for as long as this takes.
        let spare = World::open(Memory::formatted(4 << 20), AMPLE);
        self.world = how(std::mem::replace(&mut self.world, spare));
    }
}

#[test]
fn trims_in_any_order_leave_what_they_should() {
    let mut dense = 0;
    for seed in 0..6 {
        let mut trial = Trial::new(seed);
        for _ in 0..40 {
            trial.round();
        }
        trial.reopen(World::reopened);
        trial.compare("at the end");
        let report = check_drive(&mut trial.world.drive, &mut |_, _| {});
        assert!(report.is_clean(), "seed {seed}: {report:?}");
        dense += trial.dense;
        for (layer, chunk) in CHUNKS {
            trial.world.submit(layer, chunk, 0, CHUNK_BLOCKS, Operation::Trim);
        }
        trial.world.settle();
        trial.world.closed().holds_nothing();
    }
    assert!(dense > 0, "no region became dense");
}
