//! Bit rot: a drive that gives back other bytes than were written. A read gives the right data or fails; a start
//! fails, reports damage, or leaves everything right; nothing panics.

use coquina_base::BLOCK_BYTES;

use crate::campaign::SeedFailure;
use crate::plan::Plan;
use crate::random::Random;
use crate::runner::{Ended, Opened, Runner, Tolerance};
use crate::subject::Subject;
use crate::violation::Violation;
use crate::workload::Phase;

/// What comes before the first shard: two equal superblocks and nothing else.
const DRIVE_HEAD_BYTES: u64 = 1 << 20;

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
    /// One copy of a shard's superblock, perhaps the newer one.
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
    }
}

/// Spoils one drive as the seed says.
pub fn run_seed<S: Subject>(seed: u64, adjust: impl FnOnce(&mut Plan)) -> Result<RotReport, SeedFailure> {
    let mut random = Random::new(seed ^ 0x0072_6f74);
    let mut plan = Plan::random(&mut random);
    adjust(&mut plan);
    let runner = Runner::<S>::new(plan, random.fork());
    let mut test = Rot { runner, random, report: RotReport::default(), tail: Vec::new() };
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
    let mut test = Rot { runner, random, report: RotReport::default(), tail: Vec::new() };
    test.run_every_byte(most).map_err(|violation| SeedFailure { seed, cuts: 0, violation })?;
    Ok(test.report)
}

struct Rot<S> {
    runner: Runner<S>,
    random: Random,
    report: RotReport,
    /// Where damage cannot be told from a torn tail.
    tail: Vec<std::ops::Range<u64>>,
}

impl<S: Subject> Rot<S> {
    fn run(&mut self) -> Result<(), Violation> {
        let kind = self.random.pick(&KINDS);
        self.runner.format(None)?;
        self.runner.open(None)?;
        let clean = self.fill(kind)?;
        self.find_tail(clean);
        let unproven = self.spoil(kind);
        if self.examine(unproven, kind == Spoilt::DriveSuperblock)? {
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
            self.runner.drive.bytes_mut()[at as usize] ^= 1 << self.random.below(8);
            let unproven = self.is_in_tail(at);
            let superblock = at < DRIVE_HEAD_BYTES;
            if self.examine(unproven, superblock)? {
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
            .flat_map(|first| [first, first + (64 << 10)])
    }

    /// Checks and starts a spoilt drive and reads everything. Gives whether its shards run. `unproven` says that the
    /// place may look like a torn tail, `harmless` that nothing may be lost.
    fn examine(&mut self, unproven: bool, harmless: bool) -> Result<bool, Violation> {
        self.report.drives += 1;
        let check = S::check_drive(&mut self.runner.drive);
        self.report.checks_failed += u64::from(check.is_err());
        // A shard with an index page that cannot be read takes no changes any more.
        let (bad_blocks, damage, read_only) = (!harmless, !harmless, !harmless);
        self.runner.tolerance = Tolerance { bad_blocks, damage, read_only, stale: unproven };
        match self.runner.open(None) {
            Ok(opened) => assert_eq!(opened, Opened::Running),
            Err(violation) if harmless => return Err(violation),
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

    /// Spoils bytes. Gives whether that may look like the torn tail of a log.
    fn spoil(&mut self, kind: Spoilt) -> bool {
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
                self.flip(at, block);
                self.is_in_tail(at)
            }
            Spoilt::Zeroed => {
                self.runner.drive.bytes_mut()[at as usize..][..BLOCK_BYTES].fill(0);
                self.is_in_tail(at)
            }
            Spoilt::Misdirected => {
                let (other, _) = history[self.random.below(history.len() as u64) as usize];
                let bytes = self.runner.drive.bytes_mut();
                bytes.copy_within(other as usize..other as usize + BLOCK_BYTES, at as usize);
                self.is_in_tail(at)
            }
            Spoilt::DriveSuperblock | Spoilt::ShardSuperblock => {
                let shard = S::shard_offset_bytes(&self.runner.plan);
                let first = if kind == Spoilt::DriveSuperblock { 0 } else { shard };
                let copy = first + self.random.below(2) * (64 << 10);
                self.flip(copy, 256);
                false
            }
            Spoilt::BothSuperblocks => {
                self.flip(superblock, 256);
                self.flip(superblock + (64 << 10), 256);
                false
            }
            Spoilt::Anywhere => {
                let at = self.random.below(drive_bytes);
                let at = at - at % block;
                self.flip(at, block);
                self.is_in_tail(at)
            }
            Spoilt::LostWrite => {
                let lost_at = self.runner.drive.faults().lost.as_ref().map(|(at, _)| *at);
                lost_at.is_some_and(|at| self.is_in_tail(at))
            }
            Spoilt::Truncated => {
                let blocks = self.random.below(drive_bytes / block);
                self.runner.drive.truncate(blocks * block);
                false
            }
        }
    }

    /// Notes what has no proof on the stopped drive, a lost write where it should be. Behind a clean stop there is
    /// nothing to lose: its checkpoint covers everything.
    fn find_tail(&mut self, clean: bool) {
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

    fn expect_check(&self, found: bool) -> Result<(), Violation> {
        if found {
            return Ok(());
        }
        Err(Violation::Fault("the check of the stopped drive called a drive sound that is not"))
    }
}
