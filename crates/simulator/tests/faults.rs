//! Spoilt bytes and failing drives under the real engine.

use coquina_engine::Shard;
use coquina_simulator::device_faults::{self, FaultReport, Scenario};
use coquina_simulator::rot::{self, RotReport};
use coquina_simulator::spread::spread;

#[test]
fn rot_never_gives_wrong_data() {
    let mut total = RotReport::default();
    let run = |seed| match rot::run_seed::<Shard>(seed, |_| {}) {
        Ok(report) => report,
        Err(failure) => panic!("{failure}\nreproduce: cargo run -p coquina-simulator -- rot --seed {seed}"),
    };
    spread(1..=30, run).iter().for_each(|report| total.add(report));
    // Damage of the log refuses the start; only a spoilt index page or footer is damage of a running shard, and rare.
    let RotReport { refused, bad_blocks, unharmed, checks_failed, scrubs_found, .. } = total;
    let all = [refused, bad_blocks, unharmed, checks_failed, scrubs_found];
    assert!(all.iter().all(|count| *count > 0), "{total:?}");
}

/// A seed that found something once: on a full drive the cleaner chose the segment of the best score, which was of no use, and not the next
/// one, which was, so that a write waited for ever.
const ROT_FOUND: u64 = 7_800_180;

#[test]
fn a_seed_of_rot_that_found_something_once_finds_nothing() {
    if let Err(failure) = rot::run_seed::<Shard>(ROT_FOUND, |_| {}) {
        panic!("{failure}");
    }
}

/// Seeds that found something once: where the end of a log may look torn, numbers of groups may be cut off with it (4); a frame
/// whose data had rotted was taken for torn, though one behind a gap of the log proved that it was acknowledged (11).
const BYTES_FOUND: [u64; 2] = [4, 11];

#[test]
fn any_byte_of_superblocks_frames_and_checkpoints_may_rot() {
    let mut total = RotReport::default();
    for seed in [1, 2].into_iter().chain(BYTES_FOUND) {
        match rot::run_every_byte::<Shard>(seed, 150, |_| {}) {
            Ok(report) => total.add(&report),
            Err(failure) => {
                panic!("{failure}\nreproduce: cargo run -p coquina-simulator -- bytes --seed {seed}")
            }
        }
    }
    assert!(total.drives >= 150 && total.unharmed > 0 && total.bad_blocks > 0, "{total:?}");
}

#[test]
fn failing_drives_lose_nothing_and_hang_nothing() {
    let mut total = FaultReport::default();
    let run = |seed| match device_faults::run_seed::<Shard>(seed, &device_faults::SCENARIOS, |_| {}) {
        Ok(report) => report,
        Err(failure) => {
            panic!("{failure}\nreproduce: cargo run -p coquina-simulator -- faults --seed {seed}")
        }
    };
    spread(1..=30, run).iter().for_each(|report| total.add(report));
    let FaultReport {
        writes_failed,
        writes_landed,
        reads_failed,
        writes_stalled,
        poisoned,
        starts_refused,
        ..
    } = total;
    let all = [writes_failed, writes_landed, reads_failed, writes_stalled, poisoned, starts_refused];
    assert!(all.iter().all(|count| *count > 0), "{total:?}");
}

/// Seeds that found something once: on a full drive a write of part of a block, which only replaced, was refused with
/// `NoSpace` when its index page had been pushed out of memory; a shard that a failed write had made read-only woke up each
/// millisecond for its cleaner; a turn in which the cleaner found all that it needed in memory, and ended with the next segment as it
/// had begun with the one before, was taken for one in which it had not got on; the next finds a cleaner that moves what it could
/// not read, so that nothing is left of it. In the last, segments that could not be read held so much that a write waited for room, and the
/// cleaner moved the blocks of the others, which were nearly full, round and round: it was never out of work when the damaged ones were
/// tried again, the tries did not count, and the write waited for ever.
const FOUND: [u64; 5] = [916, 5_100_118, 24, 630, 30_116_015];

#[test]
fn seeds_of_failing_drives_that_found_something_once_find_nothing() {
    for seed in FOUND {
        if let Err(failure) = device_faults::run_seed::<Shard>(seed, &device_faults::SCENARIOS, |_| {}) {
            panic!("{failure}");
        }
    }
}

/// Seeds of stalled writes and almost no index memory that found something once: in the first four the scrub's page of
/// the index was pushed out before the scrub looked at it, and was read again, for as long as the drive stalled; in the
/// last, a layer that was being deleted waited for changes that waited for the room of another.
const FOUND_WITHOUT_INDEX_MEMORY: [u64; 5] = [1, 3, 7, 1006, 28];

#[test]
fn stalled_writes_without_index_memory_let_nothing_go_round_without_end() {
    const STALLS: [Scenario; 2] = [Scenario::StalledWrite, Scenario::StalledUntilCut];
    for seed in FOUND_WITHOUT_INDEX_MEMORY {
        // Nothing may stay in memory that need not.
        let result =
            device_faults::run_seed::<Shard>(seed, &STALLS, |plan| plan.config.index_memory_bytes = 1);
        if let Err(failure) = result {
            panic!("{failure}");
        }
    }
}
