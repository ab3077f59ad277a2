//! Intervals against published tables, and what comparisons say.

use crate::statistics::{
    Comparison, Direction, Estimate, Verdict, compare_paired, compare_unpaired, correct_for_several,
    paired_ratio, unpaired_ratio,
};

fn assert_near(value: f64, wanted: f64, tolerance: f64) {
    assert!((value - wanted).abs() <= tolerance, "{value} is not {wanted}");
}

fn higher(a: &[f64], b: &[f64]) -> Comparison {
    compare_paired(a, b, Direction::HigherIsBetter).unwrap()
}

/// NIST/SEMATECH e-Handbook of Statistical Methods, section 1.3.6.7.2: critical values at 0.975.
#[test]
fn half_widths_are_those_of_the_t_table() {
    for (freedom, critical) in
        [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (7, 2.365), (9, 2.262), (19, 2.093)]
    {
        let values: Vec<f64> = (0..=freedom).map(f64::from).collect();
        let estimate = Estimate::of(&values).unwrap();
        let count = values.len() as f64;
        // The variance of 0, 1, ... n - 1 is n (n + 1) / 12.
        let standard_error = (count * (count + 1.0) / 12.0 / count).sqrt();
        assert_near((estimate.high - estimate.mean) / standard_error, critical, 0.0006);
        assert_near(estimate.mean - estimate.low, estimate.high - estimate.mean, 1e-9);
        assert_eq!(estimate.count, values.len());
    }
}

#[test]
fn three_values_by_hand() {
    // Mean 100, standard deviation 10, 4.303 * 10 / sqrt(3) = 24.84.
    let estimate = Estimate::of(&[90.0, 100.0, 110.0]).unwrap();
    assert_near(estimate.mean, 100.0, 1e-9);
    assert_near(estimate.low, 75.16, 0.01);
    assert_near(estimate.high, 124.84, 0.01);
}

#[test]
fn values_that_cannot_be_judged_give_nothing() {
    assert_eq!(Estimate::of(&[]), None);
    assert_eq!(Estimate::of(&[1.0, f64::NAN]), None);
    assert_eq!(Estimate::of(&[1.0, f64::INFINITY]), None);
    assert_eq!(paired_ratio(&[], &[]), None);
    assert_eq!(paired_ratio(&[1.0, 2.0], &[1.0]), None);
    assert_eq!(paired_ratio(&[1.0, 0.0], &[1.0, 1.0]), None);
    assert_eq!(unpaired_ratio(&[1.0], &[]), None);
    assert_eq!(unpaired_ratio(&[1.0, -1.0], &[1.0, 1.0]), None);
    assert_eq!(compare_paired(&[f64::NAN; 3], &[1.0; 3], Direction::HigherIsBetter), None);
}

#[test]
fn one_value_has_no_ends() {
    let one = Estimate::of(&[7.0]).unwrap();
    assert_eq!((one.mean, one.low, one.high, one.count), (7.0, f64::NEG_INFINITY, f64::INFINITY, 1));
    let ratio = paired_ratio(&[100.0], &[110.0]).unwrap();
    assert_near(ratio.mean, 1.1, 1e-9);
    assert_eq!((ratio.low, ratio.high), (0.0, f64::INFINITY));
    let ratio = unpaired_ratio(&[100.0], &[110.0, 120.0, 130.0]).unwrap();
    assert_eq!((ratio.low, ratio.high, ratio.count), (0.0, f64::INFINITY, 1));
}

#[test]
fn what_the_machine_did_falls_out_of_paired_ratios() {
    // The machine halves and doubles from round to round; b is 10 % above a but for 1 %.
    let a = [100.0, 50.0, 200.0, 100.0];
    let b = [110.0, 55.5, 219.0, 109.5];
    let paired = paired_ratio(&a, &b).unwrap();
    assert!(paired.low > 1.08 && paired.high < 1.12, "{paired:?}");
    let unpaired = unpaired_ratio(&a, &b).unwrap();
    assert_near(unpaired.mean, paired.mean, 1e-9);
    assert!(unpaired.low < 0.5 && unpaired.high > 2.0, "{unpaired:?}");
    let inverse = paired_ratio(&b, &a).unwrap();
    assert_near(inverse.low * paired.high, 1.0, 1e-9);
}

#[test]
fn welch_by_hand() {
    // Logarithms -1, 0, 1 and 1, 2, 3, 4, 5: standard errors sqrt(1/3) and sqrt(1/2), together sqrt(5/6);
    // freedom (5/6)^2 / ((1/9)/2 + (1/4)/4) = 5.882, where tables have 2.571 for 5 and 2.447 for 6.
    let a = [-1.0_f64, 0.0, 1.0].map(f64::exp);
    let b = [1.0_f64, 2.0, 3.0, 4.0, 5.0].map(f64::exp);
    let ratio = unpaired_ratio(&a, &b).unwrap();
    assert_near(ratio.mean.ln(), 3.0, 1e-9);
    let critical = (ratio.high.ln() - 3.0) / (5.0_f64 / 6.0).sqrt();
    assert!((2.447..2.471).contains(&critical), "{critical}");
    assert_eq!(ratio.count, 3);
}

#[test]
fn the_paired_p_value_is_that_of_the_t_table() {
    // Logarithms of ratios with mean 4.303 standard errors and two degrees of freedom: 5 %.
    let differences = [-1.0, 0.0, 1.0].map(|noise: f64| 4.3027 / 3.0_f64.sqrt() + noise);
    let comparison = higher(&[1.0; 3], &differences.map(f64::exp));
    assert_near(comparison.p_value, 0.05, 0.0001);
    assert_near(comparison.ratio.low, 1.0, 0.0001);
}

#[test]
fn words_follow_the_direction() {
    let a = [100.0, 101.0, 99.0, 100.0, 100.5];
    let b =
        a.iter().zip([1.08, 1.10, 1.12, 1.09, 1.11]).map(|(value, ratio)| value * ratio).collect::<Vec<_>>();
    let up = higher(&a, &b);
    assert_eq!(
        (up.verdict, up.to_string().as_str(), up.speed_words()),
        (Verdict::Better, "better by 8 to 12 %", "faster")
    );
    let down = higher(&b, &a);
    assert_eq!(
        (down.verdict, down.to_string().as_str(), down.speed_words()),
        (Verdict::Worse, "worse by 7 to 11 %", "slower")
    );
    let latency = compare_paired(&a, &b, Direction::LowerIsBetter).unwrap();
    assert_eq!((latency.verdict, latency.to_string().as_str()), (Verdict::Worse, "worse by 8 to 12 %"));
    let latency = compare_unpaired(&b, &a, Direction::LowerIsBetter).unwrap();
    assert_eq!((latency.verdict, latency.speed_words()), (Verdict::Better, "faster"));
}

#[test]
fn noise_is_no_difference_and_says_what_may_be() {
    let comparison = higher(&[100.0, 100.0, 100.0, 100.0], &[98.0, 104.0, 101.0, 101.0]);
    assert_eq!(comparison.verdict, Verdict::NoDifferenceShown);
    assert_eq!(comparison.to_string(), "no difference shown (-3 to +5 %)");
    assert_eq!(comparison.speed_words(), "no difference shown");
    assert!(comparison.smallest_difference > 0.03 && comparison.smallest_difference < 0.08);
}

#[test]
fn equal_values_are_no_difference() {
    for values in [[100.0; 3], [0.1; 3], [1e-9; 3]] {
        for comparison in
            [higher(&values, &values), compare_unpaired(&values, &values, Direction::LowerIsBetter).unwrap()]
        {
            assert_eq!(comparison.verdict, Verdict::NoDifferenceShown);
            assert_eq!((comparison.p_value, comparison.smallest_difference), (1.0, 0.0));
            assert_eq!(comparison.to_string(), "no difference shown (0 %)");
        }
    }
    // The same ratio each time, but for rounding.
    let noise_free = higher(&[0.1, 0.2, 0.3], &[0.1 * 1.1, 0.2 * 1.1, 0.3 * 1.1]);
    assert_eq!(noise_free.to_string(), "better by 10 %");
    let too_small = higher(&[100.0; 3], &[100.01; 3]);
    assert_eq!(too_small.verdict, Verdict::NoDifferenceShown);
    assert_eq!(too_small.to_string(), "no difference shown (0 %)");
}

#[test]
fn small_differences_never_read_as_0() {
    let a = [1000.0; 4];
    assert_eq!(higher(&a, &[1003.0, 1005.0, 1004.0, 1006.0]).to_string(), "better by 0.2 to 0.7 %");
    assert_eq!(higher(&a, &[1005.0, 1015.0, 1010.0, 1020.0]).to_string(), "better by 0.2 to 2.3 %");
    assert_eq!(higher(&a, &[1005.0, 1030.0, 1020.0, 1040.0]).to_string(), "better by up to 4.8 %");
    assert_eq!(higher(&a, &[1001.0; 4]).to_string(), "better by 0.1 %");
    assert_eq!(higher(&a, &[995.0, 980.0, 970.0, 990.0]).to_string(), "no difference shown (-3 to 0 %)");
}

#[test]
fn fewer_than_three_rounds_show_nothing() {
    for count in 1..3 {
        let comparison = higher(&[100.0, 101.0][..count], &[500.0, 505.0][..count]);
        assert_eq!(comparison.verdict, Verdict::NoDifferenceShown);
        assert_eq!(comparison.to_string(), format!("no difference shown ({count} of at least 3 rounds)"));
        assert_eq!((comparison.p_value, comparison.smallest_difference), (1.0, f64::INFINITY));
        assert_near(comparison.ratio.mean, 5.0, 1e-9);
    }
    let unpaired = compare_unpaired(&[100.0; 8], &[500.0; 2], Direction::HigherIsBetter).unwrap();
    assert_eq!(unpaired.verdict, Verdict::NoDifferenceShown);
}

/// A comparison which says `better` by itself, with this p-value.
fn with_p_value(p_value: f64) -> Comparison {
    Comparison { p_value, ..higher(&[100.0; 3], &[110.0; 3]) }
}

#[test]
fn holm_withdraws_from_the_first_that_is_too_likely() {
    let better = |p_values: &[f64]| {
        let mut family: Vec<_> = p_values.iter().copied().map(with_p_value).collect();
        correct_for_several(&mut family);
        let once = family.clone();
        correct_for_several(&mut family);
        assert_eq!(once, family, "correcting twice changes nothing");
        family.iter().map(|comparison| comparison.verdict == Verdict::Better).collect::<Vec<_>>()
    };
    // Holm's thresholds for four: 0.0125, 0.0167, 0.025, 0.05.
    assert_eq!(better(&[0.04, 0.001, 0.015, 0.02]), [true, true, true, true]);
    assert_eq!(better(&[0.04, 0.001, 0.017, 0.02]), [false, true, false, false]);
    assert_eq!(better(&[0.013; 4]), [false; 4]);
    assert_eq!(better(&[0.04]), [true]);
    assert_eq!(better(&[]), [false; 0]);
    // Two rounds can raise no alarm, and cost the others nothing.
    let mut family = [with_p_value(0.04), higher(&[1.0, 1.0], &[2.0, 2.0])];
    correct_for_several(&mut family);
    assert_eq!(family[0].verdict, Verdict::Better);
}

#[test]
fn a_withdrawn_verdict_keeps_its_interval() {
    let a = [100.0; 4];
    let mut family = vec![higher(&a, &[103.0, 109.0, 106.0, 104.0])];
    family.resize(20, higher(&a, &[98.0, 104.0, 101.0, 101.0]));
    let alone = family[0];
    assert_eq!(alone.to_string(), "better by 1 to 10 %");
    correct_for_several(&mut family);
    assert_eq!(family[0].to_string(), "no difference shown (+1 to +10 %)");
    assert_eq!((family[0].ratio, family[0].p_value), (alone.ratio, alone.p_value));
}

#[test]
fn what_is_not_known_is_null_in_json() {
    let text = serde_json::to_string(&higher(&[100.0], &[110.0])).unwrap();
    assert!(text.contains("\"high\":null") && text.contains("\"no_difference_shown\""), "{text}");
}
