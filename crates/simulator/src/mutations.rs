//! Deliberately broken engines: a campaign that cannot find them would prove nothing. Never in a release build.

use std::panic::{AssertUnwindSafe, catch_unwind};

use coquina_engine::{Mutation, Shard};
use coquina_replication::Mutation as Protocol;

use crate::campaign::{SeedFailure, run_seed};
use crate::violation::Violation;

/// Every way of breaking the engine.
pub const ALL: [Mutation; 4] = [
    Mutation::AckBeforeSync,
    Mutation::ReplayStaleFrame,
    Mutation::ReuseSegmentEarly,
    Mutation::ApplyMoveTwice,
];

/// A broken engine that was caught.
#[derive(Clone, Debug)]
pub struct Caught {
    /// Cuts that it took, over all seeds.
    pub cuts: u64,
    /// What was found.
    pub failure: SeedFailure,
}

/// Runs seeds with a broken engine until one finds something that it does not find in a right one.
pub fn hunt(mutation: Mutation, first_seed: u64, seeds: u64, cuts: u64) -> Option<Caught> {
    let mut before = 0;
    for seed in first_seed..first_seed + seeds {
        let run = || run_seed::<Shard>(seed, cuts, |plan| plan.config.mutation = Some(mutation));
        let failure = match catch_unwind(AssertUnwindSafe(run)) {
            Ok(Ok(report)) => {
                before += report.counters.cuts();
                continue;
            }
            Ok(Err(failure)) => failure,
            Err(panic) => SeedFailure { seed, cuts: 0, violation: Violation::Panic(text_of(panic.as_ref())) },
        };
        let right = || run_seed::<Shard>(seed, cuts, |_| {}).map_err(|failure| failure.violation);
        if found(right).is_none() {
            return Some(Caught { cuts: before + failure.cuts, failure });
        }
    }
    None
}

/// Every way of breaking the protocol of copies.
pub const PROTOCOL: [Protocol; 9] = [
    Protocol::ReadAfterLease,
    Protocol::DropCut,
    Protocol::ResurrectTrim,
    Protocol::CommitWithoutJoining,
    Protocol::ForgetPromise,
    Protocol::AnswerAfterOneCopy,
    Protocol::IgnoreEpoch,
    Protocol::SkipTakeover,
    Protocol::ReleaseBeforeStopping,
];

/// A broken protocol that was caught.
#[derive(Clone, Debug)]
pub struct CaughtProtocol {
    /// The seed.
    pub seed: u64,
    /// What it found: wrong data, or a rule of the protocol or the engine broken.
    pub violation: Violation,
    /// Seeds before it that only hung or had no space, which might have had another cause and do not count.
    pub unclear: u64,
}

/// Runs clusters with a broken protocol until a seed finds something that it does not find in a right one.
pub fn hunt_protocol(mutation: Protocol, first_seed: u64, seeds: u64) -> Option<CaughtProtocol> {
    let mut unclear = 0;
    (first_seed..first_seed + seeds).find_map(|seed| {
        let violation = found(|| crate::cluster::run_mutated(seed, mutation))?;
        let is_clear = !matches!(violation, Violation::Hang(_) | Violation::Failed { .. });
        if is_clear && found(|| crate::cluster::run_seed(seed, false)).is_none() {
            return Some(CaughtProtocol { seed, violation, unclear });
        }
        unclear += 1;
        None
    })
}

fn found<R>(run: impl FnOnce() -> Result<R, Violation>) -> Option<Violation> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => result.err(),
        Err(panic) => Some(Violation::Panic(text_of(panic.as_ref()))),
    }
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message").to_owned()
}
