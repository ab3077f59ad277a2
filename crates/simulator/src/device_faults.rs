//! Drives that fail or stall: errors surface, nothing is acknowledged that is not stable, nothing hangs for longer
//! than the drive does, nothing panics.

use crate::campaign::SeedFailure;
use crate::plan::Plan;
use crate::random::Random;
use crate::runner::{Ended, Opened, Runner, Tolerance};
use crate::subject::Subject;
use crate::violation::Violation;
use crate::workload::Phase;

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scenario {
    /// A write fails while the shards run.
    FailedWrite,
    /// Writes stall and go on later.
    StalledWrite,
    /// Writes stall until the power is cut.
    StalledUntilCut,
    /// Reads fail while the shards run.
    FailedRead,
    /// Reads fail during a start.
    FailedReadAtStart,
    /// A write fails during a start.
    FailedWriteAtStart,
}

/// Every scenario.
pub const SCENARIOS: [Scenario; 6] = [
    Scenario::FailedWrite,
    Scenario::StalledWrite,
    Scenario::StalledUntilCut,
    Scenario::FailedRead,
    Scenario::FailedReadAtStart,
    Scenario::FailedWriteAtStart,
];

/// What seeds of failing drives came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultReport {
    /// Drives tried.
    pub drives: u64,
    /// Writes that failed.
    pub writes_failed: u64,
    /// Of them those that reached the medium all the same, at least in part.
    pub writes_landed: u64,
    /// Reads that failed.
    pub reads_failed: u64,
    /// Writes that stalled.
    pub writes_stalled: u64,
    /// Shards that were poisoned.
    pub poisoned: u64,
    /// Starts that were refused.
    pub starts_refused: u64,
    /// Starts that reported damage.
    pub damage: u64,
    /// Reads that failed with a bad block, and events of them.
    pub bad_blocks: u64,
}

impl FaultReport {
    /// Adds another seed's report.
    pub fn add(&mut self, other: &FaultReport) {
        self.drives += other.drives;
        self.writes_failed += other.writes_failed;
        self.writes_landed += other.writes_landed;
        self.reads_failed += other.reads_failed;
        self.writes_stalled += other.writes_stalled;
        self.poisoned += other.poisoned;
        self.starts_refused += other.starts_refused;
        self.damage += other.damage;
        self.bad_blocks += other.bad_blocks;
    }
}

/// Lets one drive fail as the seed says, in one of the scenarios.
pub fn run_seed<S: Subject>(
    seed: u64,
    scenarios: &[Scenario],
    adjust: impl FnOnce(&mut Plan),
) -> Result<FaultReport, SeedFailure> {
    let mut random = Random::new(seed ^ 0x6661_756c_7473);
    let mut plan = Plan::random(&mut random);
    adjust(&mut plan);
    let runner = Runner::<S>::new(plan, random.fork());
    let landing = Random::new(seed ^ 0x6c61_6e64);
    let mut test = Faulty { runner, random, landing, report: FaultReport::default() };
    let scenario = test.random.pick(scenarios);
    let result = test.run(scenario);
    result.map_err(|violation| SeedFailure { seed, cuts: 0, violation })?;
    let faults = test.runner.drive.faults();
    test.report.drives = 1;
    test.report.writes_failed = faults.writes_failed;
    test.report.writes_landed = faults.writes_landed;
    test.report.reads_failed = faults.reads_failed;
    test.report.writes_stalled = faults.writes_stalled;
    Ok(test.report)
}

struct Faulty<S> {
    runner: Runner<S>,
    random: Random,
    /// What becomes of writes that fail: its own, so that all else is as if they left nothing.
    landing: Random,
    report: FaultReport,
}

impl<S: Subject> Faulty<S> {
    fn run(&mut self, scenario: Scenario) -> Result<(), Violation> {
        self.runner.format(None)?;
        self.runner.open(None)?;
        let phases = self.random.between(1, 4);
        self.phases(phases)?;
        match scenario {
            Scenario::FailedWrite => self.failed_write(),
            Scenario::StalledWrite => self.stalled_write(true),
            Scenario::StalledUntilCut => self.stalled_write(false),
            Scenario::FailedRead => self.failed_read(),
            Scenario::FailedReadAtStart => self.failed_start(true),
            Scenario::FailedWriteAtStart => self.failed_start(false),
        }
    }

    fn phases(&mut self, count: u64) -> Result<Ended, Violation> {
        for _ in 0..count {
            let mut phase = Phase::random(&mut self.random, self.runner.space_bytes());
            let ended = self.runner.run_phase(&mut phase)?;
            if ended != Ended::Done {
                return Ok(ended);
            }
        }
        Ok(Ended::Done)
    }

    /// The drive works again after a restart, and everything acknowledged is there.
    fn restart_and_compare(&mut self) -> Result<(), Violation> {
        self.runner.drive.faults_mut().clear();
        self.runner.tolerance = Tolerance::default();
        assert_eq!(self.runner.open(None)?, Opened::Running);
        self.runner.compare_all()?;
        for shard in self.runner.shards_mut() {
            shard.verify().map_err(Violation::SelfCheck)?;
        }
        self.phases(1)?;
        self.runner.compare_all()?;
        Ok(())
    }

    fn failed_write(&mut self) -> Result<(), Violation> {
        self.runner.tolerance.read_only = true;
        let (count, forever) = (self.random.between(1, 100), self.random.chance(1, 2));
        let landing = Some(self.landing.fork());
        self.runner.drive.faults_mut().fail_write(count, forever, landing);
        self.phases(3)?;
        let failed = self.runner.drive.faults().writes_failed > 0;
        let signs = self.runner.signs;
        self.report.poisoned += signs.poisoned;
        if failed && signs.poisoned == 0 {
            return Err(Violation::Fault("a write of the drive failed and no shard said so"));
        }
        if self.runner.plan.format.shards == 1 && signs.changes_after_poison > 0 {
            return Err(Violation::Fault("a change was acknowledged after a write of the drive failed"));
        }
        if failed && !self.runner.shards_mut().iter().any(|shard| shard.stats().poisoned) {
            return Err(Violation::Fault("a write of the drive failed and no shard's counters show it"));
        }
        // Reads go on.
        self.runner.compare_all()?;
        if self.random.chance(1, 2) {
            self.runner.close()?;
        } else {
            self.runner.cut(true);
        }
        self.runner.model.crash();
        self.restart_and_compare()
    }

    fn stalled_write(&mut self, release: bool) -> Result<(), Violation> {
        let (count, stalled) = (self.random.between(1, 100), self.random.pick(&[1, 1, 4]));
        self.runner.drive.faults_mut().stall_writes(count, stalled);
        while self.phases(2)? == Ended::Stalled {
            if !self.runner.only_changes_wait() {
                return Err(Violation::Fault("a read waits for a stalled write"));
            }
            if !release {
                break;
            }
            self.runner.release_stalled();
        }
        if release {
            self.runner.release_stalled();
            self.runner.drain_requests()?;
            self.runner.compare_all()?;
            self.runner.close()?;
        } else {
            self.runner.cut(self.random.chance(1, 2));
        }
        self.restart_and_compare()
    }

    /// Ranges of which reads fail, where something was written.
    fn fail_reads(&mut self) {
        let history: Vec<_> = self.runner.drive.history().iter().copied().collect();
        for _ in 0..self.random.between(1, 8) {
            let (offset_bytes, length_bytes) = history[self.random.below(history.len() as u64) as usize];
            self.runner.drive.faults_mut().fail_reads(offset_bytes..offset_bytes + length_bytes);
        }
    }

    fn failed_read(&mut self) -> Result<(), Violation> {
        self.runner.tolerance = Tolerance { bad_blocks: true, read_only: true, damage: true, stale: false };
        self.fail_reads();
        self.phases(3)?;
        self.runner.compare_all()?;
        self.report.bad_blocks += self.runner.signs.bad_blocks;
        self.runner.drive.faults_mut().clear();
        self.phases(1)?;
        // What is known to be bad may stay so until it is looked at again, but nothing may be wrong.
        self.runner.compare_all()?;
        self.runner.cut(true);
        // What could not be read for a while is still where it was.
        self.restart_and_compare()
    }

    fn failed_start(&mut self, reads: bool) -> Result<(), Violation> {
        self.runner.cut(true);
        self.runner.tolerance = Tolerance { damage: true, bad_blocks: true, read_only: true, stale: false };
        if reads {
            self.fail_reads();
        } else {
            let count = self.random.between(1, 4);
            let landing = Some(self.landing.fork());
            self.runner.drive.faults_mut().fail_write(count, true, landing);
        }
        match self.runner.open(None) {
            Err(_) => self.report.starts_refused += 1,
            Ok(_) => {
                self.runner.pump()?;
                self.report.damage += u64::from(self.runner.signs.damage > 0);
                self.runner.compare_all()?;
                self.runner.cut(true);
            }
        }
        self.restart_and_compare()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toy::Toy;

    const STALLS: [Scenario; 2] = [Scenario::StalledWrite, Scenario::StalledUntilCut];

    fn first_failure<const FLAW: usize>() -> Option<SeedFailure> {
        let larger = |plan: &mut Plan| plan.drive_bytes = 256 << 20;
        (0..4).find_map(|seed| run_seed::<Toy<FLAW>>(seed, &STALLS, larger).err())
    }

    #[test]
    fn a_right_toy_bears_stalled_writes() {
        if let Some(failure) = first_failure::<0>() {
            panic!("{failure}");
        }
    }

    #[test]
    fn answers_that_do_not_wait_for_a_stalled_write_are_caught() {
        assert!(first_failure::<1>().is_some());
    }
}
