//! Bit rot: a drive that gives back other bytes than were written. A read gives the right data or fails; a start
//! fails, reports damage, or leaves everything right; nothing panics.

use coquina_base::{BLOCK_BYTES, crc32c_bytes};

use crate::campaign::SeedFailure;
use crate::model::Span;
use crate::plan::Plan;
use crate::random::Random;
use crate::runner::{Ended, Opened, Runner, Tolerance};
use crate::subject::Subject;
use crate::violation::Violation;
use crate::workload::Phase;

/// From a superblock's first copy to its second.
const SUPERBLOCK_COPY_BYTES: u64 = 64 << 10;

/// How the bytes were spoilt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Spoilt {
    /// Bits of something that was written: data, headers, footers, checkpoints.
    Written,
    /// A whole written block turned to zeros.
    Zeroed,
    /// A written block holds another block's bytes.
    Misdirected,
    /// One copy of the drive's superblock, of which both are alike: no harm may come of it.
    DriveSuperblock,
    /// One copy of a shard's superblock, perhaps the newer one: no harm, unless a power cut has spoilt the other.
    ShardSuperblock,
    /// Both copies of one superblock.
    BothSuperblocks,
    /// Any bits of the drive.
    Anywhere,
    /// A write reported success and wrote nothing.
    LostWrite,
    /// The drive got shorter.
    Truncated,
}

const KINDS: [Spoilt; 9] = [
    Spoilt::Written,
    Spoilt::Zeroed,
    Spoilt::Misdirected,
    Spoilt::DriveSuperblock,
    Spoilt::ShardSuperblock,
    Spoilt::BothSuperblocks,
    Spoilt::Anywhere,
    Spoilt::LostWrite,
    Spoilt::Truncated,
];

/// What may come of spoilt bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Harm {
    /// Nothing.
    None,
    /// Reads of one block fail.
    OneBlock,
    /// Anything but wrong data.
    Any,
    /// What was there before may be there again: the place may look like a torn tail.
    Stale,
}

/// What seeds of rot came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RotReport {
    /// Drives spoilt.
    pub drives: u64,
    /// Starts that were refused.
    pub refused: u64,
    /// Starts that reported damage.
    pub damage: u64,
    /// Drives on which reads failed with a bad block.
    pub bad_blocks: u64,
    /// Drives on which nothing showed and all data was right.
    pub unharmed: u64,
    /// Drives whose check found something.
    pub checks_failed: u64,
    /// Drives on which a scrub found bad blocks.
    pub scrubs_found: u64,
    /// Drives of which one copy of two was spoilt, or one block of data.
    pub bounded: u64,
}

impl RotReport {
    /// Adds another seed's report.
    pub fn add(&mut self, other: &RotReport) {
        self.drives += other.drives;
        self.refused += other.refused;
        self.damage += other.damage;
        self.bad_blocks += other.bad_blocks;
        self.unharmed += other.unharmed;
        self.checks_failed += other.checks_failed;
        self.scrubs_found += other.scrubs_found;
        self.bounded += other.bounded;
    }
}

/// Spoils one drive as the seed says.
pub fn run_seed<S: Subject>(seed: u64, adjust: impl FnOnce(&mut Plan)) -> Result<RotReport, SeedFailure> {
    let mut random = Random::new(seed ^ 0x0072_6f74);
    let mut plan = Plan::random(&mut random);
    adjust(&mut plan);
    let runner = Runner::<S>::new(plan, random.fork());
    let mut test = Rot { runner, random, report: RotReport::default(), tail: Vec::new(), data: Vec::new() };
    test.run().map_err(|violation| SeedFailure { seed, cuts: 0, violation })?;
    Ok(test.report)
}

/// Spoils up to `most` bytes of one drive, each on a copy of its own.
pub fn run_every_byte<S: Subject>(
    seed: u64,
    most: u64,
    adjust: impl FnOnce(&mut Plan),
) -> Result<RotReport, SeedFailure> {
    let mut random = Random::new(seed ^ 0x6279_7465);
    let mut plan = Plan::random(&mut random);
    plan.drive_bytes =
        plan.drive_bytes.min(plan.format.segment_bytes * 64 * u64::from(plan.format.shards) + (2 << 20));
    adjust(&mut plan);
    let runner = Runner::<S>::new(plan, random.fork());
    let mut test = Rot { runner, random, report: RotReport::default(), tail: Vec::new(), data: Vec::new() };
    test.run_every_byte(most).map_err(|violation| SeedFailure { seed, cuts: 0, violation })?;
    Ok(test.report)
}

struct Rot<S> {
    runner: Runner<S>,
    random: Random,
    report: RotReport,
    /// Where damage cannot be told from a torn tail.
    tail: Vec<std::ops::Range<u64>>,
    /// Where data of users lies.
    data: Vec<std::ops::Range<u64>>,
}

impl<S: Subject> Rot<S> {
    fn run(&mut self) -> Result<(), Violation> {
        let kind = self.random.pick(&KINDS);
        self.runner.format(None)?;
        self.runner.open(None)?;
        let clean = self.fill(kind)?;
        self.find_tail(clean);
        let harm = self.spoil(kind);
        if self.examine(harm)? {
            self.scrub()?;
            self.go_on()?;
        }
        Ok(())
    }

    /// Spoils one byte after another, each on a copy of the same drive, looking only at each start and its data.
    fn run_every_byte(&mut self, most: u64) -> Result<(), Violation> {
        self.runner.format(None)?;
        self.runner.open(None)?;
        let clean = self.fill(Spoilt::Written)?;
        self.find_tail(clean);
        let (drive, model) = (self.runner.drive.clone(), self.runner.model.clone());
        let numbers = self.runner.numbers.clone();
        let mut places = self.interesting_places();
        let stride = (places.len() as u64 / most.max(1)).max(1);
        let first = self.random.below(stride) as usize;
        places = places.into_iter().skip(first).step_by(stride as usize).collect();
        for at in places {
            self.runner.drive = drive.clone();
            self.runner.model = model.clone();
            self.runner.numbers = numbers.clone();
            self.runner.tolerance = Tolerance::default();
            let harm = if self.superblock_copies().any(|copy| (copy..copy + BLOCK_BYTES as u64).contains(&at))
            {
                self.harm_of_superblock(at)
            } else {
                self.harm_of_block(at)
            };
            self.runner.drive.bytes_mut()[at as usize] ^= 1 << self.random.below(8);
            if self.examine(harm)? {
                self.runner.cut(true);
            }
        }
        Ok(())
    }

    /// Bytes of every superblock's copies, and of the heads and ends of all writes that are remembered.
    fn interesting_places(&self) -> Vec<u64> {
        let copies: Vec<u64> = self.superblock_copies().collect();
        let mut places: Vec<u64> = copies.into_iter().flat_map(|copy| copy..copy + 512).collect();
        for (offset_bytes, length_bytes) in self.runner.drive.history() {
            let end = offset_bytes + length_bytes;
            places.extend((*offset_bytes..offset_bytes + 256).chain(end - 64..end));
        }
        places.sort_unstable();
        places.dedup();
        places
    }

    fn superblock_copies(&self) -> impl Iterator<Item = u64> + use<S> {
        [0, S::shard_offset_bytes(&self.runner.plan)]
            .into_iter()
            .flat_map(|first| [first, first + SUPERBLOCK_COPY_BYTES])
    }

    /// What may come of a spoilt byte in a copy of a superblock: nothing, if the other is intact.
    fn harm_of_superblock(&self, at: u64) -> Harm {
        let copy = at & !(BLOCK_BYTES as u64 - 1);
        let other = self.superblock_copies().find(|other| copy.abs_diff(*other) == SUPERBLOCK_COPY_BYTES);
        if other.is_some_and(|other| self.is_intact_superblock(other)) { Harm::None } else { Harm::Any }
    }

    /// Whether the checksum of a superblock's copy, of its block with the checksum zero, is right.
    fn is_intact_superblock(&self, at: u64) -> bool {
        let mut block = self.runner.drive.bytes()[at as usize..][..BLOCK_BYTES].to_vec();
        let checksum = [block[12], block[13], block[14], block[15]];
        block[12..16].fill(0);
        crc32c_bytes(&block) == u32::from_le_bytes(checksum)
    }

    /// What may come of a block that is spoilt.
    fn harm_of_block(&self, at: u64) -> Harm {
        if self.is_in_tail(at) {
            Harm::Stale
        } else if self.data.iter().any(|range| range.contains(&at)) {
            Harm::OneBlock
        } else {
            Harm::Any
        }
    }

    /// Checks and starts a spoilt drive and reads everything. Gives whether its shards run.
    fn examine(&mut self, harm: Harm) -> Result<bool, Violation> {
        self.report.drives += 1;
        let is_bounded = matches!(harm, Harm::None | Harm::OneBlock);
        self.report.bounded += u64::from(is_bounded);
        let check = S::check_drive(&mut self.runner.drive);
        self.report.checks_failed += u64::from(check.is_err());
        // A shard with an index page that cannot be read takes no changes any more.
        let (bad_blocks, damage, read_only) = (harm != Harm::None, !is_bounded, !is_bounded);
        self.runner.tolerance = Tolerance { bad_blocks, damage, read_only, stale: harm == Harm::Stale };
        match self.runner.open(None) {
            Ok(opened) => assert_eq!(opened, Opened::Running),
            Err(violation) if is_bounded => return Err(violation),
            Err(_) => {
                self.report.refused += 1;
                self.expect_check(check.is_err())?;
                return Ok(false);
            }
        }
        self.runner.pump()?;
        let damage = self.runner.signs.damage > 0;
        self.report.damage += u64::from(damage);
        self.runner.compare_all()?;
        if harm == Harm::OneBlock {
            self.expect_one_bad()?;
        }
        let bad = self.runner.signs.bad_blocks > 0;
        self.report.bad_blocks += u64::from(bad);
        self.report.unharmed += u64::from(!bad && !damage);
        if bad || damage {
            self.expect_check(check.is_err())?;
        }
        Ok(true)
    }

    /// Fills the drive a little and stops. Gives whether the stop was clean.
    fn fill(&mut self, kind: Spoilt) -> Result<bool, Violation> {
        for _ in 0..self.random.between(1, 5) {
            let mut phase = Phase::random(&mut self.random, self.runner.space_bytes());
            // A layer under deletion would take its bad blocks along before the scrub.
            (phase.delete_one_in, phase.delete_when_full) = (0, false);
            self.runner.run_phase(&mut phase)?;
        }
        if kind == Spoilt::LostWrite {
            // A page of the index that was lost makes its shard read-only.
            let (bad_blocks, damage, read_only) = (true, true, true);
            self.runner.tolerance = Tolerance { bad_blocks, damage, read_only, stale: false };
            let count = self.random.between(1, 200);
            self.runner.drive.faults_mut().lose_write(count);
            for _ in 0..3 {
                let mut phase = Phase::random(&mut self.random, self.runner.space_bytes());
                self.runner.run_phase(&mut phase)?;
            }
            self.runner.drive.faults_mut().clear();
        }
        let clean = self.random.chance(1, 2);
        if clean {
            self.runner.close()?;
        } else {
            self.runner.cut(true);
        }
        Ok(clean)
    }

    /// Spoils bytes. Gives what may come of it.
    fn spoil(&mut self, kind: Spoilt) -> Harm {
        let superblock = self.superblock_offset();
        let history: Vec<_> = self.runner.drive.history().iter().copied().collect();
        let number = self.random.below(history.len() as u64) as usize;
        let (write_bytes, length_bytes) = history[number];
        let block = BLOCK_BYTES as u64;
        let at = write_bytes + self.random.below(length_bytes / block) * block;
        let drive_bytes = self.runner.plan.drive_bytes;
        match kind {
            Spoilt::Written => {
                // Headers are worth more tries than data.
                let at = if self.random.chance(1, 2) { write_bytes } else { at };
                let harm = self.harm_of_block(at);
                self.flip(at, block);
                harm
            }
            Spoilt::Zeroed => {
                self.runner.drive.bytes_mut()[at as usize..][..BLOCK_BYTES].fill(0);
                self.harm_of_block(at)
            }
            Spoilt::Misdirected => {
                let (other, _) = history[self.random.below(history.len() as u64) as usize];
                let bytes = self.runner.drive.bytes_mut();
                bytes.copy_within(other as usize..other as usize + BLOCK_BYTES, at as usize);
                self.harm_of_block(at)
            }
            Spoilt::DriveSuperblock | Spoilt::ShardSuperblock => {
                let shard = S::shard_offset_bytes(&self.runner.plan);
                let first = if kind == Spoilt::DriveSuperblock { 0 } else { shard };
                let copy = first + self.random.below(2) * SUPERBLOCK_COPY_BYTES;
                let harm = self.harm_of_superblock(copy);
                self.flip(copy, 256);
                harm
            }
            Spoilt::BothSuperblocks => {
                self.flip(superblock, 256);
                self.flip(superblock + SUPERBLOCK_COPY_BYTES, 256);
                Harm::Any
            }
            Spoilt::Anywhere => {
                let at = self.random.below(drive_bytes);
                let at = at - at % block;
                self.flip(at, block);
                if self.is_in_tail(at) { Harm::Stale } else { Harm::Any }
            }
            Spoilt::LostWrite => {
                let lost_at = self.runner.drive.faults().lost.as_ref().map(|(at, _)| *at);
                if lost_at.is_some_and(|at| self.is_in_tail(at)) { Harm::Stale } else { Harm::Any }
            }
            Spoilt::Truncated => {
                let blocks = self.random.below(drive_bytes / block);
                self.runner.drive.truncate(blocks * block);
                Harm::Any
            }
        }
    }

    /// Notes what has no proof on the stopped drive, a lost write where it should be. Behind a clean stop there is
    /// nothing to lose: its checkpoint covers everything.
    fn find_tail(&mut self, clean: bool) {
        self.data = S::user_data(&mut self.runner.drive);
        self.tail.clear();
        if clean {
            return;
        }
        let mut whole = self.runner.drive.clone();
        if let Some((at, bytes)) = self.runner.drive.faults().lost.as_ref() {
            whole.bytes_mut()[*at as usize..][..bytes.len()].copy_from_slice(bytes);
        }
        self.tail = S::unproven(&mut whole);
    }

    fn is_in_tail(&self, at: u64) -> bool {
        self.tail.iter().any(|frame| frame.contains(&at))
    }

    /// Where the first copy of a superblock lies: the drive's, or a shard's.
    fn superblock_offset(&mut self) -> u64 {
        if self.random.chance(1, 2) { 0 } else { S::shard_offset_bytes(&self.runner.plan) }
    }

    fn flip(&mut self, at: u64, length_bytes: u64) {
        for _ in 0..self.random.pick(&[1, 1, 2, 8]) {
            let byte = at + self.random.below(length_bytes);
            let bit = self.random.below(8);
            self.runner.drive.bytes_mut()[byte as usize] ^= 1 << bit;
        }
    }

    fn scrub(&mut self) -> Result<(), Violation> {
        let bad = self.runner.signs.bad_blocks > 0;
        self.runner.shards_mut().iter_mut().for_each(S::start_scrub);
        self.runner.idle(20_000)?;
        let found = self.runner.signs.scrub_bad > 0;
        self.report.scrubs_found += u64::from(found);
        // A page of the index that is bad fails reads of good blocks; that is reported as damage.
        if bad && !found && self.runner.signs.damage == 0 {
            return Err(Violation::Fault("reads found a bad block that the scrub did not find"));
        }
        Ok(())
    }

    /// A spoilt drive stays usable.
    fn go_on(&mut self) -> Result<(), Violation> {
        for _ in 0..2 {
            let mut phase = Phase::random(&mut self.random, self.runner.space_bytes());
            self.runner.run_phase(&mut phase)?;
        }
        self.runner.compare_all()?;
        if self.random.chance(1, 2) {
            let ended = self.runner.close()?;
            assert_eq!(ended, Ended::Done);
        } else {
            self.runner.cut(true);
        }
        // Whether it starts again is not promised; that it does not panic is.
        if self.runner.open(None).is_ok() {
            self.runner.pump()?;
            self.runner.compare_all()?;
        }
        Ok(())
    }

    /// One block of data was spoilt: only what includes it may fail.
    fn expect_one_bad(&self) -> Result<(), Violation> {
        let bad = &self.runner.bad_blocks;
        let includes = |span: &Span| {
            let is_in = |(layer, chunk, block): &(u64, u32, u32)| {
                (*layer, *chunk) == (span.layer, span.chunk) && span.blocks().contains(block)
            };
            bad.iter().any(is_in)
        };
        if bad.len() > 1 || !self.runner.bad_spans.iter().all(includes) {
            return Err(Violation::Fault("one block of data was spoilt, and others are bad, too"));
        }
        Ok(())
    }

    fn expect_check(&self, found: bool) -> Result<(), Violation> {
        if found {
            return Ok(());
        }
        Err(Violation::Fault("the check of the stopped drive called a drive sound that is not"))
    }
}
