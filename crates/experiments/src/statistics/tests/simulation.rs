//! How often comparisons are wrong, and how often they find what there is: seeded, so that figures are the same each time.

use crate::statistics::{
    Comparison, Direction, Verdict, compare_paired, compare_unpaired, correct_for_several, steadiness,
};

const ROUNDS: usize = 8;
const FAMILY: usize = 20;

/// Splitmix64, and normal values from it by Box and Muller.
struct Noise(u64);

impl Noise {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        let (radius, angle) =
            ((-2.0 * (1.0 - self.uniform()).ln()).sqrt(), self.uniform() * std::f64::consts::TAU);
        radius * angle.cos()
    }

    /// Rounds of two targets, of which the second is `ratio` times the first. `drift` is what the machine does to both
    /// in a round, `own` what happens to each.
    fn rounds(&mut self, count: usize, ratio: f64, drift: f64, own: f64) -> (Vec<f64>, Vec<f64>) {
        (0..count)
            .map(|_| {
                let common = drift * self.normal();
                let (a, b) = (common + own * self.normal(), common + own * self.normal());
                (1000.0 * a.exp(), 1000.0 * ratio * b.exp())
            })
            .unzip()
    }
}

fn share(tries: usize, mut is_hit: impl FnMut() -> bool) -> f64 {
    (0..tries).filter(|_| is_hit()).count() as f64 / tries as f64
}

fn is_shown(comparison: &Comparison) -> bool {
    comparison.verdict != Verdict::NoDifferenceShown
}

#[test]
fn equal_targets_are_seldom_told_apart() {
    let mut noise = Noise(1);
    let mut alone = 0;
    let alarms = share(2000, || {
        let mut family: Vec<_> = (0..FAMILY)
            .map(|_| {
                let (a, b) = noise.rounds(ROUNDS, 1.0, 0.0, 0.08);
                compare_paired(&a, &b, Direction::HigherIsBetter).unwrap()
            })
            .collect();
        alone += family.iter().filter(|comparison| is_shown(comparison)).count();
        correct_for_several(&mut family);
        family.iter().any(is_shown)
    });
    let alone = alone as f64 / (2000 * FAMILY) as f64;
    println!("false alarms: {alone} of comparisons, {alarms} of families after correction");
    assert!((0.04..=0.06).contains(&alone), "{alone}");
    assert!((0.02..=0.06).contains(&alarms), "{alarms}");
}

#[test]
fn equal_runs_of_two_days_are_seldom_told_apart() {
    let mut noise = Noise(2);
    let alarms = share(4000, || {
        let (a, _) = noise.rounds(ROUNDS, 1.0, 0.0, 0.08);
        let (b, _) = noise.rounds(5, 1.0, 0.0, 0.16);
        is_shown(&compare_unpaired(&a, &b, Direction::HigherIsBetter).unwrap())
    });
    println!("false alarms without pairs: {alarms}");
    assert!((0.035..=0.06).contains(&alarms), "{alarms}");
}

#[test]
fn a_slowdown_of_10_percent_is_found() {
    let mut noise = Noise(3);
    let mut found = |rounds: usize, drift: f64, own: f64| {
        share(1000, || {
            let (a, b) = noise.rounds(rounds, 0.9, drift, own);
            compare_paired(&a, &b, Direction::HigherIsBetter).unwrap().verdict == Verdict::Worse
        })
    };
    // Noise of 8 % in all, of which most is the machine's.
    let shared = found(ROUNDS, 0.063, 0.05);
    // The machine's comes on top, and takes nothing away.
    let on_top = found(ROUNDS, 0.3, 0.05);
    // 8 % that are each target's own: pairs have noise of 11 %, and eight are too few for any test.
    let own = found(ROUNDS, 0.0, 0.08);
    let own_more_rounds = found(12, 0.3, 0.08);
    println!("found: {shared} shared, {on_top} on top, {own} own, {own_more_rounds} own in 12 rounds");
    assert!(shared >= 0.8 && on_top >= 0.8, "{shared} {on_top}");
    assert!((0.5..0.75).contains(&own), "{own}");
    assert!(own_more_rounds >= 0.8, "{own_more_rounds}");
}

#[test]
fn the_smallest_difference_is_found_in_four_of_five_tries() {
    let mut noise = Noise(4);
    let smallest = |noise: &mut Noise, ratio| {
        let (a, b) = noise.rounds(ROUNDS, ratio, 0.2, 0.05);
        compare_paired(&a, &b, Direction::HigherIsBetter).unwrap()
    };
    let mean = (0..300).map(|_| smallest(&mut noise, 1.0).smallest_difference).sum::<f64>() / 300.0;
    let found = share(1000, || is_shown(&smallest(&mut noise, 1.0 + mean)));
    println!("smallest difference {mean}, found {found}");
    assert!((0.7..0.9).contains(&found), "{found}");
}

#[test]
fn steady_throughput_is_seldom_doubted() {
    let mut noise = Noise(5);
    let mut doubted = |samples: usize, sigma: f64| {
        share(300, || {
            let values: Vec<f64> = (0..samples).map(|_| 1000.0 * (sigma * noise.normal()).exp()).collect();
            !steadiness(&values).is_steady
        })
    };
    let (short, usual, long) = (doubted(8, 0.04), doubted(40, 0.08), doubted(120, 0.15));
    println!("doubted: {short} of 8 at 4 %, {usual} of 40 at 8 %, {long} of 120 at 15 %");
    assert!(short <= 0.05 && usual <= 0.05 && long <= 0.05);
}
