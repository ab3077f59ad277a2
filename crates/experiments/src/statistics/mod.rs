//! What few and noisy figures allow to be said, and what they do not.
//!
//! Invariants:
//! - a difference is said only where chance shows it in at most one of twenty runs, and never from fewer than three rounds;
//! - values that cannot be judged (none, negative, not a number) give `None`, never a figure;
//! - percentiles come from merged histograms, never from averages of percentiles.

pub mod compare;
pub mod estimate;
pub mod histogram;
pub mod sanity;
pub mod steadiness;
#[cfg(test)]
mod tests;

pub use compare::{
    Comparison, Direction, Verdict, compare_paired, compare_steps, compare_unpaired, correct_for_several,
};
pub use estimate::{Estimate, paired_ratio, unpaired_ratio, unpaired_ratio_of_steps};
pub use histogram::{LatencyHistogram, Percentiles};
pub use sanity::{Contradiction, ContradictionKind};
pub use steadiness::{SAMPLES_MIN, Steadiness, steadiness};
