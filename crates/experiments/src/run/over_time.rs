//! The machine over time around a measured time: with the warm-up before it, if there was one.

use std::time::{Duration, Instant};

use coquina_host::Sampler;
use coquina_host::sampler::Sample;

use crate::report::UtilisationSample;

/// Samples of a window that began at `looked_from`, of a measured time that began at `began`, after those of the warm-up, which began no
/// sooner than the generators were started.
pub fn over_time(
    sampler: &Sampler,
    started: Instant,
    warmup: Duration,
    began: Instant,
    looked_from: Instant,
    samples: &[Sample],
) -> Vec<UtilisationSample> {
    let warmup_from = began.checked_sub(warmup).unwrap_or(started).max(started);
    let before = sampler.window(warmup_from, began).map(|seen| seen.samples).unwrap_or_default();
    let mut all = since(began, warmup_from, &before);
    all.extend(since(began, looked_from, samples));
    all
}

/// Samples of a window count from when that began; in a report they count from when the measured time did.
fn since(began: Instant, window_from: Instant, samples: &[Sample]) -> Vec<UtilisationSample> {
    let ms = |later: Instant, earlier: Instant| later.saturating_duration_since(earlier).as_millis() as i64;
    let shift_ms = ms(window_from, began) - ms(began, window_from);
    let shifted = |sample: &Sample| UtilisationSample {
        at_ms: sample.at_ms + shift_ms,
        ..UtilisationSample::from(*sample)
    };
    samples.iter().map(shifted).collect()
}

#[cfg(test)]
mod tests {
    use coquina_host::SamplerSettings;

    use super::*;

    #[test]
    fn what_lies_before_the_measured_time_is_below_0() {
        let began = Instant::now() + Duration::from_secs(10);
        let (warmup_from, looked_from) =
            (began - Duration::from_millis(500), began + Duration::from_millis(50));
        let sample = |at_ms| Sample { at_ms, ..Sample::default() };
        let at = |window_from, samples: &[Sample]| -> Vec<i64> {
            since(began, window_from, samples).iter().map(|sample| sample.at_ms).collect()
        };
        assert_eq!(at(warmup_from, &[sample(250), sample(500)]), [-250, 0]);
        assert_eq!(at(looked_from, &[sample(250)]), [300]);
    }

    #[test]
    fn the_warm_up_is_seen_and_nothing_before_the_start() {
        let settings = SamplerSettings {
            interval_ms: 50,
            detail_interval_ms: 1000,
            drives: None,
            processes: Vec::new(),
        };
        let sampler = Sampler::start(settings).unwrap();
        let started = sampler.mark();
        std::thread::sleep(Duration::from_millis(300));
        let began = sampler.mark();
        std::thread::sleep(Duration::from_millis(200));
        let seen = sampler.window(began, sampler.mark()).unwrap();
        let all = |warmup_ms: u64| {
            over_time(&sampler, started, Duration::from_millis(warmup_ms), began, began, &seen.samples)
        };
        let early = |warmup_ms| all(warmup_ms).iter().filter(|sample| sample.at_ms < 0).count();
        assert!(early(10_000) >= 2, "{:?}", all(10_000));
        assert!(all(10_000).is_sorted_by_key(|sample| sample.at_ms));
        assert!(all(10_000).iter().all(|sample| sample.at_ms > -400), "{:?}", all(10_000));
        assert_eq!(all(0).len(), seen.samples.len());
    }
}
