//! Steadiness, histograms, and figures that contradict each other.

use serde_json::json;

use crate::statistics::sanity::{Figures, check, check_printed, rounding};
use crate::statistics::{Contradiction, ContradictionKind, LatencyHistogram, steadiness};

fn text_of(samples: &[f64]) -> String {
    let found = steadiness(samples);
    assert_eq!(found.is_steady, found.text.starts_with("steady"), "{found:?}");
    found.text
}

/// 40 samples: 1000 with a ripple of 2 %.
fn ripple() -> Vec<f64> {
    (0..40).map(|index| if index % 2 == 0 { 990.0 } else { 1010.0 }).collect()
}

#[test]
fn short_series_cannot_be_judged() {
    assert_eq!(text_of(&[]), "too short to tell (0 values)");
    assert_eq!(text_of(&[5.0]), "too short to tell (1 value)");
    assert_eq!(text_of(&[5.0; 5]), "too short to tell (5 values)");
    assert_eq!(text_of(&[5.0; 8]), "steady: slope 0.0 %, quarters within 0.0 % of the mean");
}

#[test]
fn growth_and_fall_are_named_with_figures() {
    let line = |percent: f64| -> Vec<f64> {
        (0..40).map(|index| 1000.0 * (1.0 + percent / 100.0 * (f64::from(index) / 39.0 - 0.5))).collect()
    };
    assert_eq!(text_of(&line(23.0)), "not steady: grows by 23 % over the window");
    assert_eq!(text_of(&line(-50.0)), "not steady: falls by 50 % over the window");
    assert_eq!(text_of(&line(8.0)), "steady: slope 8.0 %, quarters within 3.1 % of the mean");
    assert_eq!(text_of(&line(-8.0)), "steady: slope -8.0 %, quarters within 3.1 % of the mean");
}

#[test]
fn a_bulge_without_slope_is_not_steady() {
    let samples: Vec<f64> =
        (0..40).map(|index| if (10..30).contains(&index) { 1300.0 } else { 1000.0 }).collect();
    assert_eq!(text_of(&samples), "not steady: quarters range over 26 % of the mean");
}

#[test]
fn one_spike_changes_nothing() {
    assert_eq!(text_of(&ripple()), "steady: slope 0.1 %, quarters within 0.0 % of the mean");
    for index in 0..40 {
        for value in [0.0, 100_000.0] {
            let mut samples = ripple();
            samples[index] = value;
            assert!(steadiness(&samples).is_steady, "{value} at {index}: {}", text_of(&samples));
        }
    }
    for index in 0..8 {
        let mut samples = [1000.0; 8];
        samples[index] = 0.0;
        assert!(steadiness(&samples).is_steady, "0 at {index} of 8");
    }
}

#[test]
fn what_is_no_throughput_is_not_steady() {
    assert_eq!(text_of(&[0.0; 20]), "not steady: nothing was done");
    assert_eq!(text_of(&[f64::NAN; 20]), "not steady: some values are not rates");
    assert_eq!(text_of(&[-1.0; 20]), "not steady: some values are not rates");
}

/// Latencies that are spread over five orders of magnitude.
fn raw(seed: u64) -> Vec<u64> {
    let mut state = seed;
    (0..20_000)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let share = (state >> 11) as f64 / (1u64 << 53) as f64;
            (1000.0 * 1e5_f64.powf(share)) as u64
        })
        .collect()
}

fn histogram_of(values: &[u64]) -> LatencyHistogram {
    LatencyHistogram::from_pairs(&values.iter().map(|value| (*value, 1)).collect::<Vec<_>>())
}

fn assert_within_a_thousandth(value: f64, wanted: f64) {
    assert!((value / wanted - 1.0).abs() <= 0.001, "{value} is not {wanted}");
}

#[test]
fn merged_percentiles_are_those_of_all_operations() {
    let (one, other) = (raw(1), raw(2).into_iter().map(|value| value * 3).collect::<Vec<_>>());
    let mut merged = histogram_of(&one);
    merged.merge(&histogram_of(&other));
    let mut all = [one, other].concat();
    all.sort_unstable();
    let at = |share: f64| all[(share * all.len() as f64).ceil() as usize - 1] as f64;
    let percentiles = merged.percentiles().unwrap();
    assert_eq!(merged.count(), 40_000);
    assert_within_a_thousandth(percentiles.latency_ns_p50 as f64, at(0.5));
    assert_within_a_thousandth(percentiles.latency_ns_p90 as f64, at(0.9));
    assert_within_a_thousandth(percentiles.latency_ns_p99 as f64, at(0.99));
    assert_within_a_thousandth(percentiles.latency_ns_p99_9 as f64, at(0.999));
    assert_within_a_thousandth(percentiles.latency_ns_p99_99 as f64, at(0.9999));
    assert_within_a_thousandth(percentiles.latency_ns_max as f64, at(1.0));
    assert_within_a_thousandth(merged.mean().unwrap(), all.iter().sum::<u64>() as f64 / 40_000.0);
}

#[test]
fn pairs_give_the_same_buckets_again() {
    let values = raw(3);
    let histogram = histogram_of(&values);
    let again = LatencyHistogram::from_pairs(&histogram.pairs());
    assert_eq!(again.pairs(), histogram.pairs());
    assert_eq!(again.percentiles(), histogram.percentiles());
    for value in values.iter().copied().chain([1, 2, 2047, 2048, 2049, 3_599_999_999_999]) {
        let pairs = LatencyHistogram::from_pairs(&[(value, 1)]).pairs();
        assert_eq!(pairs.len(), 1);
        assert_within_a_thousandth(pairs[0].0 as f64, value as f64);
    }
}

#[test]
fn nothing_was_measured_in_an_empty_histogram() {
    let empty = LatencyHistogram::new().with_exact(Some(0), Some(5));
    assert_eq!((empty.count(), empty.percentiles(), empty.mean(), empty.pairs()), (0, None, None, vec![]));
    let mut merged = LatencyHistogram::from_pairs(&[(700, 3)]);
    merged.merge(&empty);
    assert_eq!((merged.min_ns(), merged.max_ns()), (700, 700));
    let mut merged = empty;
    merged.merge(&LatencyHistogram::from_pairs(&[(700, 3)]));
    assert_eq!((merged.count(), merged.min_ns(), merged.max_ns()), (3, 700, 700));
}

#[test]
fn percentiles_stay_below_the_exact_maximum() {
    let mut histogram = LatencyHistogram::from_pairs(&[(1_000_000, 99), (5_000_000, 1)])
        .with_exact(Some(999_900), Some(4_990_000));
    let percentiles = histogram.percentiles().unwrap();
    assert_eq!((percentiles.latency_ns_p99_99, percentiles.latency_ns_max), (4_990_000, 4_990_000));
    assert_eq!(histogram.min_ns(), 999_900);
    histogram.merge(&LatencyHistogram::from_pairs(&[(2000, 1)]).with_exact(Some(2000), Some(2000)));
    assert_eq!((histogram.min_ns(), histogram.max_ns()), (2000, 4_990_000));
    histogram.merge(&LatencyHistogram::from_pairs(&[(1500, 1)]));
    assert_eq!((histogram.min_ns(), histogram.max_ns()), (1500, 4_990_000));
    histogram.record(6_000_000, 1);
    assert_eq!(histogram.percentiles().unwrap().latency_ns_max, 6_000_000);
    // A maximum above what buckets hold is told all the same.
    let long = LatencyHistogram::from_pairs(&[(u64::MAX, 1)]).with_exact(None, Some(u64::MAX));
    assert_eq!(long.max_ns(), u64::MAX);
}

#[test]
fn values_out_of_range_count_as_the_nearest() {
    let mut histogram =
        LatencyHistogram::from_pairs(&[(0, 1), (u64::MAX, u64::MAX), (u64::MAX, u64::MAX), (5, u64::MAX)]);
    histogram.merge(&histogram.clone());
    assert_eq!(histogram.count(), 1 << 62);
    let percentiles = histogram.percentiles().unwrap();
    assert_within_a_thousandth(percentiles.latency_ns_max as f64, 3.6e12);
    assert_within_a_thousandth(percentiles.latency_ns_p50 as f64, 3.6e12);
    assert!(histogram.mean().unwrap() > 3.5e12);
}

#[test]
fn fio_bins_are_read() {
    let latency = json!({
        "min": 250_123, "max": 9_006_000, "mean": 1_790_210.5, "stddev": 400_000.0, "N": 1000,
        "percentile": { "50.000000": 1_777_664 },
        "bins": { "259072": 10, "1777664": 900, "3555328": 80, "9043968": 10, "9175040": 0 }
    });
    let histogram = LatencyHistogram::from_fio(&latency).unwrap();
    let percentiles = histogram.percentiles().unwrap();
    assert_eq!(histogram.count(), 1000);
    assert_within_a_thousandth(percentiles.latency_ns_p50 as f64, 1_777_664.0);
    assert_within_a_thousandth(percentiles.latency_ns_p99 as f64, 3_555_328.0);
    assert_eq!((percentiles.latency_ns_p99_9, percentiles.latency_ns_max), (9_006_000, 9_006_000));
    assert_eq!((histogram.min_ns(), histogram.pairs().len()), (250_123, 4));
    assert_within_a_thousandth(histogram.mean().unwrap(), 1_977_355.0);
}

#[test]
fn what_is_not_fios_is_refused() {
    for strange in [
        json!({}),
        json!(null),
        json!({ "bins": 5 }),
        json!({ "bins": { "x": 1 } }),
        json!({ "bins": { "7": -1 } }),
    ] {
        assert!(LatencyHistogram::from_fio(&strange).is_none(), "{strange}");
    }
    let idle = LatencyHistogram::from_fio(&json!({ "min": 0, "max": 0, "bins": {} })).unwrap();
    assert_eq!(idle.percentiles(), None);
}

/// 32000 operations/s of 4 KiB and 4 ms, 128 in flight.
fn sound() -> Figures {
    Figures {
        iops: Some(32_000.0),
        bandwidth_bytes_per_s: Some(32_000.0 * 4096.0),
        in_flight_at_end_bytes_per_s: None,
        block_bytes: Some(4096),
        latency_ns_mean: Some(4e6),
        outstanding: Some(128.0),
        between_ns_max: 0.0,
        is_open_loop: false,
    }
}

fn only(figures: Figures) -> Contradiction {
    let mut found = check(&figures);
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

#[test]
fn sound_figures_contradict_nothing() {
    assert_eq!(check(&sound()), []);
    assert_eq!(check(&Figures { outstanding: Some(115.0), ..sound() }), []);
    assert_eq!(check(&Figures { bandwidth_bytes_per_s: Some(32_000.0 * 4096.0 * 1.04), ..sound() }), []);
    assert_eq!(check(&Figures::default()), []);
    // Operations in flight at the end may be in the bandwidth, and not in the operations per second.
    let slow = Figures { iops: Some(900.0), outstanding: None, ..sound() };
    let with_end = |bytes_per_s: f64| Figures {
        bandwidth_bytes_per_s: Some(bytes_per_s),
        in_flight_at_end_bytes_per_s: Some(64.0 * 4096.0),
        ..slow
    };
    assert_eq!(check(&with_end((900.0 + 64.0) * 4096.0)), []);
    assert_eq!(check(&with_end(900.0 * 4096.0 * 1.0486)), []);
    assert_eq!(check(&Figures { in_flight_at_end_bytes_per_s: None, ..with_end(964.0 * 4096.0) }).len(), 1);
    assert_eq!(check(&with_end((900.0 + 128.0) * 4096.0)).len(), 1, "twice as much is not explained");
    assert_eq!(check(&with_end((900.0 - 64.0) * 4096.0)).len(), 1, "nor is less");
    assert_eq!(check(&Figures { iops: Some(0.0), ..sound() }), []);
    assert_eq!(check(&Figures { latency_ns_mean: Some(f64::NAN), block_bytes: Some(0), ..sound() }), []);
    // One at a time, with 150 us of the generator's between them.
    let alone = Figures { iops: Some(2_857.0), latency_ns_mean: Some(200e3), ..sound() };
    let alone =
        Figures { bandwidth_bytes_per_s: None, outstanding: Some(1.0), between_ns_max: 200e3, ..alone };
    assert_eq!(check(&alone), []);
    assert_eq!(check(&Figures { between_ns_max: 0.0, ..alone }).len(), 1);
    assert_eq!(check(&Figures { iops: Some(1_000.0), latency_ns_mean: Some(1e6), ..alone }), []);
    assert_eq!(check(&Figures { iops: Some(1_000.0), latency_ns_mean: Some(0.5e6), ..alone }).len(), 1);
    assert_eq!(check(&Figures { iops: Some(1_000.0), latency_ns_mean: Some(1e9), ..alone }).len(), 1);
    assert_eq!(check(&Figures { is_open_loop: true, outstanding: Some(4096.0), ..sound() }), []);
}

#[test]
fn contradictions_name_figures_and_the_likely_reason() {
    let found = only(Figures { outstanding: Some(100.0), ..sound() });
    assert_eq!(found.kind, ContradictionKind::LittlesLaw);
    assert_eq!(
        found.to_string(),
        "32000 operations/s of 4 ms mean latency are 128 in flight by Little's law, not 100"
    );
    let hint =
        |figures| only(figures).text.split_once(" (").map(|(_, hint)| hint.to_owned()).unwrap_or_default();
    let little = |outstanding, latency_ns| {
        hint(Figures { outstanding: Some(outstanding), latency_ns_mean: Some(latency_ns), ..sound() })
    };
    assert_eq!(little(128.0, 4e3), "the unit of latency may be wrong by 1000)");
    assert_eq!(little(128.0, 4e12), "the unit of latency may be wrong by 1000000)");
    assert_eq!(little(32.0, 3.9e6), "as if 4 jobs ran and one was told)");
    assert!(little(384.0, 4e6).starts_with("as if 3 jobs were told and one ran"));
    assert_eq!(little(128.0, 2.6 * 4e6), "");
    assert_eq!(little(1.0, 4e6), "");

    let bandwidth =
        |factor: f64| hint(Figures { bandwidth_bytes_per_s: Some(32_000.0 * 4096.0 * factor), ..sound() });
    assert_eq!(bandwidth(1.3), "");
    assert_eq!(bandwidth(1.0 / 1.048_576), "MiB/s may have been taken for MB/s)");
    assert_eq!(bandwidth(1.024_f64.powi(3)), "GB/s may have been taken for GiB/s)");
    assert_eq!(bandwidth(1000.0), "the unit of bandwidth may be wrong by 1000)");
    assert!(bandwidth(8.0).contains("bits"));
    assert_eq!(bandwidth(0.25), "as if bandwidth were that of one of 4 jobs)");
    let text = only(Figures { bandwidth_bytes_per_s: Some(1e8), ..sound() }).text;
    assert_eq!(text, "32000 operations/s of 4096 bytes are 131 MB/s, not 100 MB/s");
}

#[test]
fn printed_figures_may_differ_by_their_rounding_only() {
    let printed = |iops: f64, mib_s: f64| {
        let figures = Figures {
            iops: Some(iops),
            bandwidth_bytes_per_s: Some(mib_s * 1_048_576.0),
            block_bytes: Some(4096),
            ..Figures::default()
        };
        check_printed(&figures, rounding(iops) + rounding(mib_s)).len()
    };
    assert_eq!(printed(104_000.0, 404.0), 0, "104k may be 103.5k");
    assert_eq!(printed(104_000.0, 400.0), 1);
    assert_eq!(printed(2321.0, 9.067), 0);
    assert_eq!(printed(2321.0, 9.0), 0, "within 1 %");
    assert_eq!(printed(2321.0, 9.167), 1);
    assert_eq!(printed(26.0, 0.1), 0, "one digit is no more than it says");
    assert!((rounding(104_000.0) - 1000.0 / 104_000.0).abs() < 1e-12);
    assert!((rounding(100_000.0) - 0.01).abs() < 1e-12 && (rounding(3.906) - 0.001 / 3.906).abs() < 1e-12);
    assert!((rounding(61.0) - 1.0 / 61.0).abs() < 1e-12);
    assert_eq!((rounding(0.0), rounding(f64::NAN)), (0.0, 0.0));
}
