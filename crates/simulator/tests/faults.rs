//! Spoilt bytes and failing drives under the real engine.

use coquina_engine::Shard;
use coquina_simulator::device_faults::{self, FaultReport};
use coquina_simulator::rot::{self, RotReport};

#[test]
fn rot_never_gives_wrong_data() {
    let mut total = RotReport::default();
    for seed in 1..=60 {
        match rot::run_seed::<Shard>(seed, |_| {}) {
            Ok(report) => total.add(&report),
            Err(failure) => {
                panic!("{failure}\nreproduce: cargo run -p coquina-simulator -- rot --seed {seed}")
            }
        }
    }
    // Damage of the log refuses the start; only a spoilt index page or footer is damage of a running shard, and rare.
    let RotReport { refused, bad_blocks, unharmed, checks_failed, scrubs_found, .. } = total;
    let all = [refused, bad_blocks, unharmed, checks_failed, scrubs_found];
    assert!(all.iter().all(|count| *count > 0), "{total:?}");
}

#[test]
fn any_byte_of_superblocks_frames_and_checkpoints_may_rot() {
    let mut total = RotReport::default();
    for seed in 1..=2 {
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
    for seed in 1..=60 {
        match device_faults::run_seed::<Shard>(seed, &device_faults::SCENARIOS, |_| {}) {
            Ok(report) => total.add(&report),
            Err(failure) => {
                panic!("{failure}\nreproduce: cargo run -p coquina-simulator -- faults --seed {seed}")
            }
        }
    }
    let FaultReport { writes_failed, reads_failed, writes_stalled, poisoned, starts_refused, .. } = total;
    let all = [writes_failed, reads_failed, writes_stalled, poisoned, starts_refused];
    assert!(all.iter().all(|count| *count > 0), "{total:?}");
}
