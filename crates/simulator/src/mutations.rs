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

/// Runs seeds with a broken engine until one finds something.
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
        return Some(Caught { cuts: before + failure.cuts, failure });
    }
    None
}

/// Every way of breaking the protocol of copies.
pub const PROTOCOL: [Protocol; 8] = [
    Protocol::ReadAfterLease,
    Protocol::DropCut,
    Protocol::ResurrectTrim,
    Protocol::CommitWithoutJoining,
    Protocol::ForgetPromise,
    Protocol::AnswerAfterOneCopy,
    Protocol::IgnoreEpoch,
    Protocol::SkipTakeover,
];

/// Runs clusters with a broken protocol until a seed finds something.
pub fn hunt_protocol(mutation: Protocol, first_seed: u64, seeds: u64) -> Option<(u64, Violation)> {
    (first_seed..first_seed + seeds).find_map(|seed| {
        let run = || crate::cluster::run_mutated(seed, mutation);
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(result) => result.err().map(|violation| (seed, violation)),
            Err(panic) => Some((seed, Violation::Panic(text_of(panic.as_ref())))),
        }
    })
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message").to_owned()
}
