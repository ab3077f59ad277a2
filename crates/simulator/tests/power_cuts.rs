//! The power-cut campaign on the real engine, in the size for every test run.

use coquina_engine::Shard;
use coquina_simulator::campaign::run_seed;
use coquina_simulator::counters::Counters;

/// Enough to reach every counter.
const SEEDS: u64 = 45;
const CUTS: u64 = 20;

#[test]
fn no_acknowledged_write_is_lost_in_thousands_of_cuts() {
    let mut total = Counters::default();
    for seed in 1..=SEEDS {
        match run_seed::<Shard>(seed, CUTS, |_| {}) {
            Ok(report) => total.add(&report.counters),
            Err(failure) => panic!(
                "{failure}\nreproduce: cargo run -p coquina-simulator -- cuts --seed {seed} --cuts {CUTS}"
            ),
        }
    }
    assert!(total.cuts() >= SEEDS * CUTS);
    assert_eq!(total.missing(), Vec::<&str>::new(), "{total:#?}");
}

/// Seeds that found something once, but for those above.
const FOUND: [u64; 7] = [49, 54, 71, 79, 110, 137, 164];

#[test]
fn seeds_that_found_something_once_find_nothing() {
    for seed in FOUND {
        if let Err(failure) = run_seed::<Shard>(seed, CUTS, |_| {}) {
            panic!(
                "{failure}\nreproduce: cargo run -p coquina-simulator -- cuts --seed {seed} --cuts {CUTS}"
            );
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_run_byte_for_byte() {
    for seed in [3, 1_000_003] {
        let run = || run_seed::<Shard>(seed, CUTS, |_| {}).unwrap();
        assert_eq!(run(), run());
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
