//! Single cases of engine and copies on virtual drives. One program, since each takes as long to link as most of them to run.

#![allow(clippy::unwrap_used)]

mod cleaner_cache;
mod cleaner_moves;
mod common;
mod comparisons;
mod flipped_bits;
mod forgotten;
mod halted;
mod known_bad;
mod landed;
mod parts;
mod recovery_reads;
mod refused_repairs;
mod repair_reads;
mod retries;
mod tails;
mod uncommitted_reads;
