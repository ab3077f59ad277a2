//! What a victim is worth: the more room it gives for what must be moved, the better, and the older, the better.
//!
//! Invariant: only operations whose result IEEE 754 prescribes to the last bit. Logarithms and powers of the system's library
//! are not the same on all processors, and one seed must give one run on each.

/// Terms of the series; the next one is below 1e-11.
const TERMS: u32 = 14;

/// The score of a segment whose emptiness gives `gain`, where `age` is the time since it was written, 0 for the newest.
/// It is at most `gain`.
pub(super) fn score(gain: f64, age: f64) -> f64 {
    gain * logarithm_of_one_and(age).clamp(0.01, 1.0).sqrt().sqrt()
}

/// The natural logarithm of `1 + age`, but 1 at most: 2 artanh(age / (age + 2)), by its series.
fn logarithm_of_one_and(age: f64) -> f64 {
    let age = age.min(std::f64::consts::E - 1.0);
    let ratio = age / (age + 2.0);
    let (mut power, mut sum) = (ratio, 0.0);
    for term in 0..TERMS {
        sum += power / f64::from(2 * term + 1);
        power *= ratio * ratio;
    }
    2.0 * sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::disallowed_methods, reason = "a difference in the last bit does not matter here")]
    fn the_logarithm_is_right_and_ends_at_one() {
        for step in 0..=2000 {
            let age = f64::from(step) / 1000.0;
            let expected = (1.0 + age).ln().min(1.0);
            assert!((logarithm_of_one_and(age) - expected).abs() < 1e-10, "of 1 + {age}");
        }
        assert!((logarithm_of_one_and(1e9) - 1.0).abs() < 1e-10);
    }

    #[test]
    fn scores_are_the_same_to_the_last_bit_everywhere() {
        let bits = [0.0, 0.1, 0.5, 1.0, 2.0].map(|age| score(0.7, age).to_bits());
        let expected = [
            0x3fcc_5581_8998_6648,
            0x3fd8_e465_8bb3_8fa2,
            0x3fe1_dfe5_f15d_95e5,
            0x3fe4_7052_149d_e8df,
            0x3fe6_6666_6666_01c4,
        ];
        assert_eq!(bits, expected, "{bits:016x?}");
    }

    #[test]
    fn age_adds_to_the_score_up_to_the_gain() {
        let scores = [0.0, 0.1, 0.5, 1.0, 1.7].map(|age| score(0.7, age));
        assert!(scores.is_sorted_by(|one, next| one < next), "{scores:?}");
        assert!(scores.iter().all(|score| *score <= 0.7), "{scores:?}");
    }
}
