//! The power-cut campaign on the real engine, in the size for every test run.

use coquina_engine::{Shard, ShardConfig};
use coquina_simulator::campaign::run_seed;
use coquina_simulator::counters::Counters;
use coquina_simulator::spread::spread;

/// Enough to reach every counter.
const SEEDS: u64 = 45;
const CUTS: u64 = 20;

#[test]
fn no_acknowledged_write_is_lost_in_thousands_of_cuts() {
    let mut total = Counters::default();
    let run = |seed| match run_seed::<Shard>(seed, CUTS, |_| {}) {
        Ok(report) => report.counters,
        Err(failure) => {
            panic!("{failure}\nreproduce: cargo run -p coquina-simulator -- cuts --seed {seed} --cuts {CUTS}")
        }
    };
    spread(1..=SEEDS, run).iter().for_each(|counters| total.add(counters));
    assert!(total.cuts() >= SEEDS * CUTS);
    assert_eq!(total.missing(), Vec::<&str>::new(), "{total:#?}");
}

/// Seeds that found something once, but for those above.
const FOUND: [u64; 7] = [49, 54, 71, 79, 110, 137, 164];

#[test]
fn seeds_that_found_something_once_find_nothing() {
    let usual = ShardConfig::default().batch_blocks_min;
    spread(FOUND, |seed| {
        let result = run_seed::<Shard>(seed, CUTS, |plan| {
            plan.config.batch_blocks_min = usual;
            plan.config.batch_blocks_loaded_min = 0;
        });
        if let Err(failure) = result {
            panic!("{failure}");
        }
    });
}

/// A large write that came into the log in part was refused for lack of space when it was sent again: the model took it for
/// one that had never happened.
#[test]
fn a_change_that_is_refused_when_it_is_sent_again_may_have_happened_in_part() {
    let result = run_seed::<Shard>(600_046, 50, |plan| {
        plan.config.batch_blocks_min = 64;
        plan.config.frames_in_flight_max = 16;
        plan.config.batch_blocks_loaded_min = 0;
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run_byte_for_byte() {
    for seed in [3, 1_000_003] {
        let run = || run_seed::<Shard>(seed, CUTS, |_| {}).unwrap();
        assert_eq!(run(), run());
    }
}

/// An entry was committed, which no frame said yet; its segment was used again, and a power cut took the new frame's header
/// but left some of its data: at the start the entry looked uncommitted, and its place like a bad block.
#[test]
fn what_was_committed_and_used_again_is_no_bad_block() {
    let result = run_seed::<Shard>(500_111, 50, |plan| {
        plan.config.batch_blocks_min = 4;
        plan.config.frames_in_flight_max = 3;
        plan.config.batch_blocks_loaded_min = 0;
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

/// A machine that dies shortly after every start, more often than a shard can name incarnations.
#[test]
fn a_crash_loop_without_any_checkpoint_ends_well() {
    for seed in 1..=3 {
        let result = coquina_simulator::campaign::run_crash_loop::<Shard>(seed, 300);
        if let Err(failure) = result {
            panic!("{failure}");
        }
    }
}
