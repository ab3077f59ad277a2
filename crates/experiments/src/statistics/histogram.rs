//! Latencies of many operations, which can be merged.
//!
//! Invariants:
//! - values are told apart to 0.1 %, from 1 ns to an hour; others count as the nearest that can be told;
//! - percentiles and the mean lie between the exact extremes, where these are known;
//! - counts stop growing before their sum overflows.

use hdrhistogram::Histogram;
use serde::Serialize;
use serde_json::Value;

/// Longest latency told apart; longer ones count as this.
const LATENCY_NS_MAX: u64 = 3_600_000_000_000;
/// Operations that one histogram holds; further ones are not counted.
const COUNT_MAX: u64 = 1 << 62;

/// A histogram of latencies in nanoseconds, with three significant digits.
#[derive(Clone, Debug)]
pub struct LatencyHistogram {
    buckets: Histogram<u64>,
    exact_min_ns: Option<u64>,
    exact_max_ns: Option<u64>,
}

/// What latencies stayed below, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Percentiles {
    /// Median.
    pub latency_ns_p50: u64,
    /// 90th percentile.
    pub latency_ns_p90: u64,
    /// 99th percentile.
    pub latency_ns_p99: u64,
    /// 99.9th percentile.
    pub latency_ns_p99_9: u64,
    /// 99.99th percentile.
    pub latency_ns_p99_99: u64,
    /// Largest latency.
    pub latency_ns_max: u64,
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self::new()
    }
}

impl LatencyHistogram {
    /// Without any operation.
    pub fn new() -> Self {
        let buckets = match Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3) {
            Ok(buckets) => buckets,
            Err(error) => unreachable!("the bounds are constants that fit: {error}"),
        };
        LatencyHistogram { buckets, exact_min_ns: None, exact_max_ns: None }
    }

    /// From (value of the bucket in ns, operations), in any order. A value may come several times.
    pub fn from_pairs(pairs: &[(u64, u64)]) -> Self {
        let mut histogram = Self::new();
        for (value_ns, count) in pairs {
            histogram.record(*value_ns, *count);
        }
        histogram
    }

    /// From the object `lat_ns` or `clat_ns` of a report that fio wrote as `json+`: its `bins`, `min` and `max`. fio's
    /// bins are 1.6 % wide and are named by their middles.
    ///
    /// `None` where there are no bins: fio writes those of `lat_ns` with `lat_percentiles=1` only, and none for what was
    /// not done, such as the reads of a job that writes.
    pub fn from_fio(latency: &Value) -> Option<Self> {
        let mut histogram = Self::new();
        for (value_ns, count) in latency.get("bins")?.as_object()? {
            histogram.record(value_ns.parse().ok()?, whole(count)?);
        }
        let extreme = |name: &str| latency.get(name).and_then(whole);
        let (min_ns, max_ns) = (extreme("min"), extreme("max"));
        Some(histogram.with_exact(min_ns, max_ns))
    }

    /// With the extremes in ns, where the source knows them better than its buckets. An empty histogram has none.
    pub fn with_exact(mut self, min: Option<u64>, max: Option<u64>) -> Self {
        if self.count() > 0 {
            self.exact_min_ns = min.or(self.exact_min_ns);
            self.exact_max_ns = max.or(self.exact_max_ns);
        }
        self
    }

    /// Counts operations of one latency.
    pub fn record(&mut self, value_ns: u64, count: u64) {
        let count = count.min(COUNT_MAX - self.count());
        if count == 0 {
            return;
        }
        self.buckets.saturating_record_n(value_ns, count);
        // Exact extremes have to hold for what is added, too.
        self.exact_min_ns = self.exact_min_ns.map(|exact_ns| exact_ns.min(value_ns));
        self.exact_max_ns = self.exact_max_ns.map(|exact_ns| exact_ns.max(value_ns));
    }

    /// Adds what another one holds: percentiles are then those of all operations of both.
    pub fn merge(&mut self, other: &Self) {
        if other.count() == 0 {
            return;
        }
        if self.count() == 0 {
            *self = other.clone();
            return;
        }
        let is_min_exact = self.exact_min_ns.is_some() || other.exact_min_ns.is_some();
        let is_max_exact = self.exact_max_ns.is_some() || other.exact_max_ns.is_some();
        let (min_ns, max_ns) = (self.min_ns().min(other.min_ns()), self.max_ns().max(other.max_ns()));
        for (value_ns, count) in other.pairs() {
            self.record(value_ns, count);
        }
        self.exact_min_ns = is_min_exact.then_some(min_ns);
        self.exact_max_ns = is_max_exact.then_some(max_ns);
    }

    /// The buckets that are not empty: (highest value in ns, operations), ascending. [`Self::from_pairs`] of them gives
    /// the same buckets; the exact extremes have to be kept aside.
    pub fn pairs(&self) -> Vec<(u64, u64)> {
        self.buckets.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value())).collect()
    }

    /// Operations.
    pub fn count(&self) -> u64 {
        self.buckets.len()
    }

    /// Smallest latency; 0 without operations.
    pub fn min_ns(&self) -> u64 {
        self.exact_min_ns.unwrap_or_else(|| self.buckets.min())
    }

    /// Largest latency; 0 without operations.
    pub fn max_ns(&self) -> u64 {
        self.exact_max_ns.unwrap_or_else(|| self.buckets.max())
    }

    /// Mean latency in ns; `None` without operations.
    pub fn mean(&self) -> Option<f64> {
        (self.count() > 0).then(|| self.buckets.mean().max(self.min_ns() as f64).min(self.max_ns() as f64))
    }

    /// What shares of the operations stayed below; `None` without operations.
    pub fn percentiles(&self) -> Option<Percentiles> {
        if self.count() == 0 {
            return None;
        }
        let at =
            |quantile: f64| self.buckets.value_at_quantile(quantile).max(self.min_ns()).min(self.max_ns());
        Some(Percentiles {
            latency_ns_p50: at(0.5),
            latency_ns_p90: at(0.9),
            latency_ns_p99: at(0.99),
            latency_ns_p99_9: at(0.999),
            latency_ns_p99_99: at(0.9999),
            latency_ns_max: self.max_ns(),
        })
    }
}

/// A number that is not negative; fio has written some with a decimal point.
fn whole(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_f64().filter(|number| *number >= 0.0).map(|number| number as u64))
}
