//! Latency histograms with fixed buckets: cheap to record on the I/O path, mergeable, and directly what
//! `/metrics` shows.

use serde::{Deserialize, Serialize};

/// Number of buckets: upper bounds of 4.096 us, doubled up to 17.2 s, and one without bound.
pub const LATENCY_BUCKETS: usize = 24;
const FIRST_BOUND_SHIFT: u32 = 12;

/// Counts of latencies per bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LatencyHistogram {
    /// Count per bucket, not cumulative.
    pub counts: [u64; LATENCY_BUCKETS],
    /// Sum of all latencies.
    pub sum_ns: u64,
}

impl LatencyHistogram {
    /// Nothing recorded.
    pub const fn new() -> Self {
        LatencyHistogram { counts: [0; LATENCY_BUCKETS], sum_ns: 0 }
    }

    /// Largest latency of a bucket, or `None` for the last one.
    pub fn bound_ns(bucket: usize) -> Option<u64> {
        (bucket + 1 < LATENCY_BUCKETS).then(|| 1u64 << (FIRST_BOUND_SHIFT + bucket as u32))
    }

    /// Records one latency. Does not allocate.
    pub fn record(&mut self, latency_ns: u64) {
        let bits = u64::BITS - latency_ns.saturating_sub(1).leading_zeros();
        let bucket = (bits.saturating_sub(FIRST_BOUND_SHIFT) as usize).min(LATENCY_BUCKETS - 1);
        self.counts[bucket] += 1;
        self.sum_ns = self.sum_ns.saturating_add(latency_ns);
    }

    /// Adds another histogram, such as that of another reactor.
    pub fn merge(&mut self, other: &LatencyHistogram) {
        for (count, more) in self.counts.iter_mut().zip(other.counts) {
            *count = count.saturating_add(more);
        }
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
    }

    /// What was recorded since an earlier state of the same histogram.
    pub fn since(&self, earlier: &LatencyHistogram) -> LatencyHistogram {
        let mut difference = *self;
        for (count, before) in difference.counts.iter_mut().zip(earlier.counts) {
            *count = count.saturating_sub(before);
        }
        difference.sum_ns = self.sum_ns.saturating_sub(earlier.sum_ns);
        difference
    }

    /// Number of latencies recorded.
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Mean, or 0 if nothing was recorded.
    pub fn mean_ns(&self) -> u64 {
        self.sum_ns.checked_div(self.count()).unwrap_or(0)
    }

    /// Upper bound of the bucket that holds the given part (in thousandths) of all latencies; 0 if empty.
    pub fn quantile_bound_ns(&self, thousandths: u64) -> u64 {
        let wanted = (u128::from(self.count()) * u128::from(thousandths)).div_ceil(1000);
        let mut seen = 0u128;
        for (bucket, count) in self.counts.iter().enumerate() {
            seen += u128::from(*count);
            if seen >= wanted && seen > 0 {
                return Self::bound_ns(bucket).unwrap_or(u64::MAX);
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_latency_lies_within_the_bounds_of_its_bucket() {
        for latency_ns in (0..64).flat_map(|shift| [(1u64 << shift) - 1, 1 << shift, (1 << shift) + 1]) {
            let mut histogram = LatencyHistogram::new();
            histogram.record(latency_ns);
            let bucket = histogram.counts.iter().position(|count| *count == 1).unwrap();
            assert!(LatencyHistogram::bound_ns(bucket).is_none_or(|bound| latency_ns <= bound));
            if bucket > 0 {
                assert!(latency_ns > LatencyHistogram::bound_ns(bucket - 1).unwrap());
            }
        }
    }

    #[test]
    fn quantiles_and_differences() {
        let mut earlier = LatencyHistogram::new();
        assert_eq!(earlier.quantile_bound_ns(990), 0);
        earlier.record(1 << 30);
        let mut later = earlier;
        for _ in 0..99 {
            later.record(10_000);
        }
        later.record(1_000_000);
        let recent = later.since(&earlier);
        assert_eq!(recent.count(), 100);
        assert_eq!(recent.quantile_bound_ns(500), 1 << 14);
        assert_eq!(recent.quantile_bound_ns(1000), 1 << 20);
        assert_eq!(recent.mean_ns(), (99 * 10_000 + 1_000_000) / 100);
        let mut merged = recent;
        merged.merge(&earlier);
        assert_eq!(merged, later);
    }
}
