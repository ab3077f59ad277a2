use super::*;
use crate::toy::Toy;

const TOY_CUTS: u64 = 5;

/// A drive for the toy, which never cleans: large enough for what the cuts let happen.
fn toy_plan(plan: &mut Plan) {
    plan.drive_bytes = 128 << 20;
}

fn first_failure<const FLAW: usize>(seeds: impl IntoIterator<Item = u64>) -> Option<SeedFailure> {
    seeds.into_iter().find_map(|seed| run_seed::<Toy<FLAW>>(seed, TOY_CUTS, toy_plan).err())
}

#[test]
fn a_right_toy_passes() {
    if let Some(failure) = first_failure::<0>(0..4) {
        panic!("{failure}");
    }
}

#[test]
fn acknowledging_before_the_sync_is_caught() {
    assert!(first_failure::<1>(0..8).is_some());
}

#[test]
fn trusting_what_a_dead_process_left_is_caught() {
    // The first that shows it; others would do.
    let failure = first_failure::<2>(std::iter::once(26).chain(0..60));
    assert!(matches!(failure, Some(SeedFailure { violation: Violation::WrongData(_), .. })), "{failure:?}");
}

#[test]
fn forgetting_trims_is_caught() {
    assert!(first_failure::<3>(0..8).is_some());
}

#[test]
fn an_answer_that_never_comes_is_caught() {
    let failure = first_failure::<4>(0..8);
    assert!(matches!(failure, Some(SeedFailure { violation: Violation::Hang(_), .. })), "{failure:?}");
}

#[test]
fn missing_checksums_are_caught() {
    let failure = first_failure::<5>(0..8);
    assert!(matches!(failure, Some(SeedFailure { violation: Violation::WrongChecksums, .. })), "{failure:?}");
}

#[test]
fn a_drive_that_is_full_too_early_is_caught() {
    let failure = first_failure::<6>(0..60);
    let caught = matches!(failure, Some(SeedFailure { violation: Violation::NoSpaceTooEarly { .. }, .. }));
    assert!(caught, "{failure:?}");
}

#[test]
fn showing_data_that_a_cut_can_still_take_is_caught() {
    let failure = first_failure::<7>(std::iter::once(7).chain(0..60));
    assert!(matches!(failure, Some(SeedFailure { violation: Violation::WrongData(_), .. })), "{failure:?}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed| run_seed::<Toy<0>>(seed, TOY_CUTS, toy_plan).unwrap();
    assert_eq!(run(5), run(5));
    assert_ne!(run(5).trace, run(6).trace);
}
