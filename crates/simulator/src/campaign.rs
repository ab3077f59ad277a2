//! The power-cut campaign: from one seed a drive, its requests and its cuts; after every cut nothing that was
//! acknowledged may be missing.

use crate::counters::Counters;
use crate::plan::Plan;
use crate::random::Random;
use crate::runner::{Ended, Opened, Runner};
use crate::subject::Subject;
use crate::violation::Violation;
use crate::workload::Phase;

/// What a seed came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeedReport {
    /// What happened.
    pub counters: Counters,
    /// Hash of everything that happened.
    pub trace: u64,
}

/// A seed that found something.
#[derive(Clone, Debug)]
pub struct SeedFailure {
    /// The seed.
    pub seed: u64,
    /// Cuts before it, that of the failure included.
    pub cuts: u64,
    /// What it found.
    pub violation: Violation,
}

impl std::fmt::Display for SeedFailure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "seed {} after {} cuts: {}", self.seed, self.cuts, self.violation)
    }
}

impl std::error::Error for SeedFailure {}

/// Runs one seed up to a number of cuts. `adjust` may change its plan.
pub fn run_seed<S: Subject>(
    seed: u64,
    cuts: u64,
    adjust: impl FnOnce(&mut Plan),
) -> Result<SeedReport, SeedFailure> {
    let mut random = Random::new(seed);
    let mut plan = Plan::random(&mut random);
    // Decided apart from the rest, and only in every second seed: the others run as they always did.
    let mut forming = Random::new(seed ^ 0x666f_726d);
    if forming.chance(1, 2) {
        plan.config.batch_blocks_min = forming.pick(&[0, 1, 4, 64]);
        plan.config.batch_blocks_loaded_min = forming.pick(&[0, 64]);
    }
    adjust(&mut plan);
    let mut campaign = Campaign { runner: Runner::<S>::new(plan, random.fork()), random, phase: None };
    let result = campaign.run(cuts);
    let counters = campaign.runner.counters.clone();
    match result {
        Ok(()) => Ok(SeedReport { trace: campaign.runner.trace(), counters }),
        Err(violation) => Err(SeedFailure { seed, cuts: counters.cuts(), violation }),
    }
}

/// Starts a drive `crashes` times and lets each life end after a few actions, before a checkpoint is likely; then
/// compares everything.
pub fn run_crash_loop<S: Subject>(seed: u64, crashes: u64) -> Result<SeedReport, SeedFailure> {
    let mut random = Random::new(seed ^ 0x6c6f_6f70);
    let mut plan = Plan::random(&mut random);
    plan.config.checkpoint_log_bytes = 0;
    let mut campaign = Campaign { runner: Runner::<S>::new(plan, random.fork()), random, phase: None };
    let result = campaign.crash_loop(crashes);
    let counters = campaign.runner.counters.clone();
    match result {
        Ok(()) => Ok(SeedReport { trace: campaign.runner.trace(), counters }),
        Err(violation) => Err(SeedFailure { seed, cuts: counters.cuts(), violation }),
    }
}

struct Campaign<S> {
    runner: Runner<S>,
    random: Random,
    phase: Option<Phase>,
}

impl<S: Subject> Campaign<S> {
    fn run(&mut self, cuts: u64) -> Result<(), Violation> {
        self.format()?;
        self.restart()?;
        while self.runner.counters.cuts() < cuts {
            let most = self.random.pick(&[40, 400, 2000, 6000]);
            self.runner.set_fuse(self.random.between(1, most));
            self.work()?;
            self.restart()?;
        }
        self.runner.set_fuse(u64::MAX);
        self.stop()?;
        Ok(())
    }

    fn crash_loop(&mut self, crashes: u64) -> Result<(), Violation> {
        self.runner.format(None)?;
        while self.runner.counters.cuts() < crashes {
            let cut_after = self.random.chance(1, 3).then(|| self.random.between(1, 40));
            if self.runner.open(cut_after)? == Opened::PowerFailed {
                continue;
            }
            self.runner.set_fuse(self.random.between(1, 12));
            let mut phase = Phase::random(&mut self.random, self.runner.space_bytes());
            let ended = self.runner.run_phase(&mut phase)?;
            self.end(if ended == Ended::Done { Ended::Cut } else { ended })?;
            self.runner.set_fuse(u64::MAX);
        }
        assert_eq!(self.runner.open(None)?, Opened::Running);
        self.verify_shards()?;
        self.runner.compare_all()?;
        Ok(())
    }

    fn format(&mut self) -> Result<(), Violation> {
        if self.random.chance(1, 4) {
            let operations = self.random.between(1, 12);
            if self.runner.format(Some(operations))? == Opened::Running {
                return Ok(());
            }
        }
        self.runner.format(None)?;
        Ok(())
    }

    /// Requests until the cut, or a clean stop instead.
    fn work(&mut self) -> Result<(), Violation> {
        loop {
            let space_bytes = self.runner.space_bytes();
            let random = &mut self.random;
            let phase = self.phase.get_or_insert_with(|| Phase::random(random, space_bytes));
            let ended = self.runner.run_phase(phase)?;
            if ended != Ended::Done {
                return self.end(ended);
            }
            self.phase = None;
            if self.random.chance(1, 12) {
                return self.stop();
            }
            if self.random.chance(1, 4) {
                let ended = self.runner.idle(200)?;
                if ended != Ended::Done {
                    return self.end(ended);
                }
            }
        }
    }

    fn stop(&mut self) -> Result<(), Violation> {
        let mut ended = self.runner.drain_requests()?;
        if self.runner.is_armed() && self.random.chance(1, 2) {
            // A stop takes few actions.
            self.runner.set_fuse(self.random.between(1, 20));
        }
        if ended == Ended::Done {
            ended = self.runner.close()?;
        }
        if ended == Ended::Done {
            return Ok(());
        }
        self.end(ended)
    }

    fn end(&mut self, ended: Ended) -> Result<(), Violation> {
        assert_eq!(ended, Ended::Cut, "no writes were stalled");
        let power = self.random.chance(3, 4);
        self.runner.cut(power);
        Ok(())
    }

    /// Starts again, however often the power fails in it, and compares everything.
    fn restart(&mut self) -> Result<(), Violation> {
        self.runner.set_fuse(u64::MAX);
        if self.random.chance(1, 8) {
            self.check_drive()?;
        }
        let mut cut_after = self.random.chance(1, 4).then(|| self.random.between(1, 30));
        while self.runner.open(cut_after)? == Opened::PowerFailed {
            cut_after = self.random.chance(1, 2).then(|| self.random.between(1, 60));
        }
        self.verify_shards()?;
        if self.random.chance(1, 2) {
            self.runner.retry_unanswered()?;
        } else {
            self.runner.forget_unanswered();
        }
        // Not always: what is compared is settled by it, and later cuts should also find it unsettled.
        if self.random.chance(7, 8) {
            self.runner.compare_all()?;
            if self.random.chance(1, 8) {
                self.verify_shards()?;
            }
        }
        Ok(())
    }

    fn verify_shards(&mut self) -> Result<(), Violation> {
        for shard in self.runner.shards_mut() {
            shard.verify().map_err(Violation::SelfCheck)?;
        }
        Ok(())
    }

    fn check_drive(&mut self) -> Result<(), Violation> {
        self.runner.counters.drive_checks += 1;
        S::check_drive(&mut self.runner.drive).map_err(Violation::CheckDrive)
    }
}

#[cfg(test)]
mod tests;
