//! What a run has shown. The field names are stable: programs read them.

use serde::{Deserialize, Serialize};

use crate::config::IoBenchConfig;
use crate::ledger::Findings;
use crate::recorder::Tally;
use coquina_host::Environment;

/// Version of the report's fields; raised when one changes its meaning.
pub const REPORT_VERSION: u32 = 1;

/// The report of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IoReport {
    /// [`REPORT_VERSION`].
    pub report_version: u32,
    /// When it began, in seconds since 1970.
    pub began_unix_s: u64,
    /// What was asked for.
    pub config: IoBenchConfig,
    /// The range that was used, in bytes.
    pub range_bytes: u64,
    /// When the measured time began, in milliseconds since 1970.
    pub measured_began_unix_ms: u64,
    /// Time measured, without warm-up.
    pub measured_s: f64,
    /// Reads and writes together.
    pub total: OperationReport,
    /// Reads, in mixed workloads.
    pub read: Option<OperationReport>,
    /// Writes, in mixed workloads.
    pub write: Option<OperationReport>,
    /// CPU time.
    pub cpu: CpuReport,
    /// Bytes written to the drive during the measured time, by anybody: from the drive's counters for local targets,
    /// from the caller's probe for others.
    pub drive_write_bytes: Option<u64>,
    /// Bytes written to the drive per byte written by this run. The caller may fill it in from the server's figures.
    pub write_amplification: Option<f64>,
    /// One sample per second.
    pub series: Vec<SecondSample>,
    /// Operations of each whole half second.
    #[serde(default)]
    pub operations_by_500_ms: Vec<u64>,
    /// Operations that failed, warm-up included.
    pub errors: u64,
    /// The first failure.
    pub first_error: Option<String>,
    /// Open loop only: operations that were due and had not been started when time was out. Those due in the measured time are in its
    /// latencies, with how long they had waited.
    pub rate_unmet: u64,
    /// Why the run ended early, if it did. The figures are those up to then.
    pub interrupted: Option<String>,
    /// What verification has found.
    pub verify: Option<Findings>,
    /// The machine.
    pub environment: Environment,
}

/// Figures of one kind of operation.
///
/// In an open loop, latencies are those of operations that were due in the measured time, also if they completed after it: else a stall
/// at its end would not be seen. They may be more or fewer than those that completed in it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OperationReport {
    /// Operations completed in the measured time.
    pub operations: u64,
    /// Operations per second.
    pub iops: f64,
    /// Bytes per second.
    pub bytes_per_s: f64,
    /// Mean latency.
    pub latency_ns_mean: f64,
    /// Standard deviation of the latency.
    pub latency_ns_stddev: f64,
    /// Smallest latency.
    pub latency_ns_min: u64,
    /// Median latency.
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
    /// The histogram as (highest value of the bucket in ns, operations); adding those of several runs merges them.
    pub latency_histogram: Vec<(u64, u64)>,
}

impl OperationReport {
    pub(crate) fn from_tally(tally: &Tally, seconds: f64) -> Self {
        let seconds = seconds.max(1e-9);
        let latency_ns = &tally.latency_ns;
        let throughput = OperationReport {
            operations: tally.operations,
            iops: tally.operations as f64 / seconds,
            bytes_per_s: tally.bytes as f64 / seconds,
            ..OperationReport::default()
        };
        if latency_ns.is_empty() {
            return throughput;
        }
        OperationReport {
            latency_ns_mean: latency_ns.mean(),
            latency_ns_stddev: latency_ns.stdev(),
            latency_ns_min: latency_ns.min(),
            latency_ns_p50: latency_ns.value_at_quantile(0.5),
            latency_ns_p90: latency_ns.value_at_quantile(0.9),
            latency_ns_p99: latency_ns.value_at_quantile(0.99),
            latency_ns_p99_9: latency_ns.value_at_quantile(0.999),
            latency_ns_p99_99: latency_ns.value_at_quantile(0.9999),
            latency_ns_max: latency_ns.max(),
            latency_histogram: latency_ns
                .iter_recorded()
                .map(|bucket| (bucket.value_iterated_to(), bucket.count_at_value()))
                .collect(),
            ..throughput
        }
    }
}

/// CPU time over the measured time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuReport {
    /// Busy time of the idle machine just before the run, in microseconds per second. Subtracted below.
    pub idle_us_per_s: f64,
    /// Busy time of the whole machine per operation, less the idle share, in microseconds; `None` where nothing is left of it, since the
    /// machine was busier before the run, or where nothing was done.
    pub machine_us_per_io: Option<f64>,
    /// Cores that were busy on average, the idle share included.
    pub machine_busy_cores: f64,
    /// CPU time of this process per operation, in microseconds.
    pub client_us_per_io: f64,
    /// CPU time of all named processes together per operation, in microseconds.
    pub servers_us_per_io: f64,
    /// Each of the named processes.
    pub servers: Vec<ProcessCpu>,
}

/// CPU time of one process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessCpu {
    /// Its number.
    pub pid: u32,
    /// Its short name.
    pub name: String,
    /// CPU time per operation in microseconds; `None` if it ended during the run.
    pub us_per_io: Option<f64>,
}

/// One second of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SecondSample {
    /// Which second of the measured time, from 0.
    pub second: u32,
    /// Operations completed in it.
    pub iops: u64,
    /// Bytes in it.
    pub bytes: u64,
    /// Their mean latency.
    pub latency_ns_mean: f64,
    /// Cores that were busy.
    pub cpu_busy_cores: f64,
}

impl IoReport {
    /// Operations outstanding by Little's law: operations per second times mean latency. In a closed loop it comes
    /// close to depth times jobs; otherwise the figures contradict each other.
    pub fn outstanding(&self) -> f64 {
        self.total.iops * self.total.latency_ns_mean / 1e9
    }

    /// Sets the write amplification from bytes written to the drive, as told by a server.
    pub fn set_drive_write_bytes(&mut self, bytes: u64) {
        self.drive_write_bytes = Some(bytes);
        let user = match (&self.write, self.config.workload.writes()) {
            (Some(write), _) => write.bytes_per_s * self.measured_s,
            (None, true) => self.total.bytes_per_s * self.measured_s,
            (None, false) => 0.0,
        };
        self.write_amplification = (user > 0.0).then(|| bytes as f64 / user);
    }

    /// The report as indented JSON.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(self)
    }
}
